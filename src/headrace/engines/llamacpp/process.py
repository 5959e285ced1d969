"""The embedded engine's own process: llama.cpp's HTTP server through xllamacpp, so that its crash is not ours.

`python -m headrace.engines.llamacpp.process --config JSON`. SIGTERM: finishes what runs, then exits 0; a second one
exits at once. It goes on accepting meanwhile, so whoever stops it stops sending first.
"""

import argparse
import http.client
import os
import select
import signal
import socket
import sys
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import msgspec

from headrace.domain.undecodable import UNDECODABLE
from headrace.engines.llamacpp.config import EXIT_BAD_CONFIG, EXIT_LOAD_FAILED, EXIT_PORT_TAKEN, ProcessConfig
from headrace.engines.llamacpp.launch import NO_BROWSER_ORIGIN

IDLE_POLL_S = 0.1
"""How often a draining server is asked whether it is idle; twice in a row must say so, since the last bytes of an
answer leave after its slot is free."""


def main() -> None:
    """Serve until told to stop."""
    parser = argparse.ArgumentParser(prog="headrace.engines.llamacpp.process")
    parser.add_argument("--config", required=True, help="a ProcessConfig as JSON")
    try:
        config = msgspec.json.decode(parser.parse_args().config.encode(), type=ProcessConfig)
    except UNDECODABLE as error:
        _fail(EXIT_BAD_CONFIG, f"--config is not understood: {error}")
    _require_free_port(config)
    Path(config.slot_dir).mkdir(parents=True, exist_ok=True)
    _server = _start(config)  # referenced for as long as it serves
    print(f"llama.cpp serves {config.served_model} at http://{config.host}:{config.port}", flush=True)  # noqa: T201
    _wait_for_stop(config)
    sys.stdout.flush()
    os._exit(0)  # not by way of the server's destructor, which waits for the answers that still run


def _start(config: ProcessConfig) -> object:
    """Load the model; the port answers 503 meanwhile, and SIGTERM ends the process at once."""
    xllamacpp: Any = import_module("xllamacpp")  # only now: 100 MB of library
    try:
        return xllamacpp.Server(parameters_of(xllamacpp, config))
    except (RuntimeError, ValueError, OSError) as error:
        _fail(EXIT_LOAD_FAILED, f"llama.cpp cannot serve {config.model_path}: {error}")


def parameters_of(xllamacpp: Any, config: ProcessConfig) -> Any:
    """Make the parameters of a server. `headrace engine verify` looks each of them up in the installed package."""
    params = xllamacpp.CommonParams()
    params.model.path = config.model_path
    params.model_alias = {config.served_model}
    params.hostnames = [config.host]
    params.port = config.port
    params.n_parallel = config.slots
    params.n_ctx = config.context_tokens * config.slots
    params.n_batch = params.n_ubatch = config.batch_tokens
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = config.threads
    params.n_threads_http = config.http_threads
    params.endpoint_metrics = True
    params.endpoint_slots = True
    params.slot_save_path = config.slot_dir.rstrip("/") + "/"
    params.ui = False
    params.cors_origins = NO_BROWSER_ORIGIN
    params.cache_ram_mib = config.prompt_cache_mib
    params.sse_ping_interval = -1  # the gateway sends its own, and wants to see an engine's silence
    params.fit_params = False  # the declared context, not what llama.cpp thinks fits
    params.use_jinja = True
    if config.chat_template is not None:
        params.chat_template = config.chat_template
    if config.is_embedding:
        params.embedding = True
    if config.pooling is not None:
        params.pooling_type = getattr(xllamacpp.llama_pooling_type, f"LLAMA_POOLING_TYPE_{config.pooling.upper()}")
    return params


def _require_free_port(config: ProcessConfig) -> None:
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((config.host, config.port))
        except OSError as error:
            _fail(EXIT_PORT_TAKEN, f"port {config.port} on {config.host} cannot be used: {error.strerror}")


def _wait_for_stop(config: ProcessConfig) -> None:
    """Block until SIGTERM or SIGINT, then until idle or the second signal."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _note)
    os.read(woken, 1)
    idle_in_a_row = 0
    while idle_in_a_row < 2:
        if select.select([woken], [], [], IDLE_POLL_S)[0]:
            return
        idle_in_a_row = idle_in_a_row + 1 if _is_idle(config) else 0


def _note(number: int, frame: FrameType | None) -> None:
    """Do nothing: the wake-up pipe says it."""


def _is_idle(config: ProcessConfig) -> bool:
    """Ask the server itself; no answer counts as busy."""
    connection = http.client.HTTPConnection(config.host, config.port, timeout=1.0)
    try:
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode("utf-8", "replace").splitlines()
    except OSError:
        return False
    finally:
        connection.close()
    busy = ("llamacpp:requests_processing ", "llamacpp:requests_deferred ")
    return all(float(line.rsplit(" ", 1)[1]) == 0 for line in lines if line.startswith(busy))


def _fail(code: int, message: str) -> NoReturn:
    print(f"headrace llama.cpp: {message}", file=sys.stderr, flush=True)  # noqa: T201
    raise SystemExit(code)


if __name__ == "__main__":
    main()
