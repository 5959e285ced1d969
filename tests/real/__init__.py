"""The contract suite against real engines on a CPU: `make test-vllm`, `make test-sglang`; docs/real-engines.md."""
