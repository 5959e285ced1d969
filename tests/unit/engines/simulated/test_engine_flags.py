"""Real engines' command lines, followed by a simulated one."""

import pytest

from headrace.engines.simulated.config import Role, TransferLoss
from headrace.engines.simulated.engine_flags import read_engine_flags


@pytest.mark.parametrize(
    ("line", "read"),
    [
        (
            "serve /models/m --served-model-name m --host 127.0.0.1 --port 30000 --max-model-len 512 --max-num-seqs 8",
            {"served_model_name": "m", "host": "127.0.0.1", "port": 30000, "context_tokens": 512, "max_sequences": 8},
        ),
        (
            "serve m --tensor-parallel-size 4 --enable-prefix-caching --shutdown-timeout 20",
            {"tp": 4, "shutdown_timeout": 20.0},
        ),
        (
            "--model-path /models/m --tp-size 2 --disaggregation-mode prefill --disaggregation-bootstrap-port 9000",
            {"tp": 2, "role": Role.PREFILL, "bootstrap_port": 9000},
        ),
        ("serve m --max_seq_len=64 --tp_size=1", {"context_tokens": 64, "tp": 1}),
        (
            'serve m --kv-transfer-config {"kv_role":"kv_consumer","kv_load_failure_policy":"recompute"}',
            {"role": Role.DECODE, "transfer_loss": TransferLoss.RECOMPUTE},
        ),
        ("serve m --unknown 7 --port 1 --port 2", {"port": 2}),
        ("", {}),
    ],
)  # fmt: skip
def test_what_it_can_follow_is_followed(line: str, read: dict[str, object]):
    """Names, addresses, bounds and roles are taken over; other flags are ignored with their values."""
    assert read_engine_flags(line.split()) == read


@pytest.mark.parametrize("line", ["--port", "--port x", "--disaggregation-mode half", "--kv-transfer-config {"])
def test_a_value_that_is_none_is_named(line: str):
    """A broken command line is not run as if it were another."""
    with pytest.raises(ValueError, match=line.split(maxsplit=1)[0]):
        read_engine_flags(line.split())
