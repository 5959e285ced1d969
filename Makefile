# headrace: the commands everything hangs on. Each does its own set-up in .venv; only Python 3.11+ and make are needed.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/python -m uv
RUNTIME_READY := $(VENV)/.runtime-ready
DEV_READY := $(VENV)/.dev-ready
COMPILED := $(VENV)/compiled
COMPILED_READY := $(COMPILED)/.ready
COMPILED_TESTS := tests/unit/gateway tests/contract tests/property tests/story

.PHONY: up down test test-compiled test-vllm test-sglang drill-resume check fmt bench lock docs goldens clean help

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 20

$(BIN)/uv: requirements/bootstrap.txt
	@$(PYTHON) -c 'import sys; sys.exit("headrace needs Python 3.11 or newer; this is %d.%d. Set PYTHON=/path/to/python3" % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -q --disable-pip-version-check -r requirements/bootstrap.txt
	@touch $@

$(RUNTIME_READY): $(BIN)/uv requirements/runtime.txt pyproject.toml
	@echo "Installing headrace into $(VENV) ..."
	@$(UV) pip install -q --python $(BIN)/python --require-hashes -r requirements/runtime.txt
	@$(UV) pip install -q --python $(BIN)/python --no-deps -e .
	@touch $@

$(DEV_READY): $(RUNTIME_READY) requirements/dev.txt
	@echo "Installing the development tools into $(VENV) ..."
	@$(UV) pip install -q --python $(BIN)/python --require-hashes -r requirements/dev.txt
	@touch $@

up: $(RUNTIME_READY) ## Start engine and gateway in the background; prints URL, key and a curl line
	@$(BIN)/headrace up --detach

down: $(RUNTIME_READY) ## Stop what `make up` started
	@$(BIN)/headrace down

test: $(DEV_READY) ## Run the whole test suite (a folder or a test: make test ARGS=tests/unit/ledger)
	@$(BIN)/python -m pytest -n 2 --dist loadfile $(ARGS)

$(COMPILED_READY): $(DEV_READY) requirements/build.txt tools/compile_hook.py $(shell find src -name '*.py')
	@echo "Compiling the hot path into $(COMPILED) (a C compiler works for some minutes) ..."
	@$(UV) venv -q --clear --python $(BIN)/python $(COMPILED)
	@$(UV) pip install -q --python $(COMPILED)/bin/python --require-hashes -r requirements/runtime.txt
	@$(UV) pip install -q --python $(COMPILED)/bin/python --require-hashes -r requirements/dev.txt
	@$(UV) pip install -q --python $(COMPILED)/bin/python --require-hashes -r requirements/build.txt
	@HEADRACE_COMPILE=1 $(UV) pip install -q --python $(COMPILED)/bin/python --no-deps --no-build-isolation --no-cache .
	@touch $@

test-compiled: $(COMPILED_READY) ## Compile the hot path and run the gateway's tests against it (needs a C compiler)
	@$(COMPILED)/bin/python -m pytest -n 2 --dist loadfile $(or $(ARGS),$(COMPILED_TESTS))

test-vllm: $(DEV_READY) ## Run the contract suite against the real vLLM on this CPU (installs 4 GB once)
	@HEADRACE_REAL_ENGINE=vllm $(BIN)/python -m pytest -s tests/real $(ARGS)

test-sglang: $(DEV_READY) ## Run the contract suite against the real SGLang on this CPU (installs 7 GB once)
	@HEADRACE_REAL_ENGINE=sglang $(BIN)/python -m pytest -s tests/real $(ARGS)

drill-resume: $(DEV_READY) ## Kill, stop and restart engines twenty times under 32 open streams, and print the figures
	@HEADRACE_DRILL_KILLS=20 HEADRACE_DRILL_STREAMS=32 $(BIN)/python -m pytest -s tests/drill/test_resume.py tests/drill/test_resume_real.py tests/drill/test_rolling_restart.py $(ARGS)

check: $(DEV_READY) ## Format, lint, types, imports, sizes, docs
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/basedpyright
	@$(BIN)/lint-imports
	@$(BIN)/python tools/check_sizes.py
	@$(BIN)/python tools/check_compiled.py
	@$(BIN)/python -m pytest -q tests/docs

fmt: $(DEV_READY) ## Format the code and mend what ruff can mend
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: $(DEV_READY) ## Measure headrace (on PYTHON_BENCH=...) beside nginx and its peers (needs a C compiler)
	@$(BIN)/python -m benchmarks $(if $(PYTHON_BENCH),--headrace-python $(PYTHON_BENCH)) $(ARGS)

docs: $(DEV_READY) ## Write the generated pages of docs/ anew
	@$(BIN)/python -m tools.generate_docs

goldens: $(DEV_READY) ## Write tests/golden/render/ anew: what `headrace render` makes of each case (read the diff)
	@$(BIN)/python -m tools.render_goldens $(ARGS)

lock: $(BIN)/uv ## Resolve dependencies anew (releases younger than a week are left out)
	@$(UV) pip compile -q --universal --generate-hashes --exclude-newer "$$(date -u -d '7 days ago' +%Y-%m-%dT00:00:00Z)" --no-emit-index-url --no-annotate --python-version 3.11 --custom-compile-command "make lock" pyproject.toml -o requirements/runtime.txt
	@$(UV) pip compile -q --universal --generate-hashes --exclude-newer "$$(date -u -d '7 days ago' +%Y-%m-%dT00:00:00Z)" --no-emit-index-url --no-annotate --python-version 3.11 --custom-compile-command "make lock" --group dev -c requirements/runtime.txt -o requirements/dev.txt
	@$(UV) pip compile -q --universal --generate-hashes --exclude-newer "$$(date -u -d '7 days ago' +%Y-%m-%dT00:00:00Z)" --no-emit-index-url --no-annotate --python-version 3.11 --custom-compile-command "make lock" --extra kv-events --extra postgres --extra redis -c requirements/runtime.txt pyproject.toml -o requirements/image.txt
	@$(UV) pip compile -q --universal --generate-hashes --exclude-newer "$$(date -u -d '7 days ago' +%Y-%m-%dT00:00:00Z)" --no-emit-index-url --no-annotate --python-version 3.11 --custom-compile-command "make lock" -c requirements/dev.txt requirements/build.in -o requirements/build.txt

clean: ## Remove the environment and caches
	@rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis .import_linter_cache
