"""The shape of the declaration: what pools are, and what cannot be combined."""

from typing import Any

import pytest
from pydantic import ValidationError

from headrace.declaration.limits import GatewayLimits
from headrace.declaration.model import Credentials, Declaration, EndpointTls, Ledger, Pool


def pool(**keys: Any) -> Pool:
    return Pool.model_validate({"model": "m", **keys})


def test_a_pool_runs_one_replica_unless_told_otherwise() -> None:
    """replicas counts processes here; a remote pool has none."""
    assert (pool().replica_count, pool().is_remote) == (1, False)
    assert pool(replicas=3).replica_count == 3
    remote = pool(engine="vllm", endpoints=["http://a"])
    assert (remote.replica_count, remote.is_remote) == (0, True)


@pytest.mark.parametrize(
    "keys",
    [
        {"replicas": 1, "endpoints": ["http://a"]},
        {"engine": "openai"},
        {"replicas": 0},
        {"replicas": 65},
        {"batching": {"max_sequences": 0}},
        {"unknown": 1},
    ],
)
def test_pools_that_cannot_be(keys: dict[str, Any]) -> None:
    """A pool is run here or elsewhere, within bounds, with known keys."""
    with pytest.raises(ValidationError):
        pool(**keys)


def test_a_client_certificate_needs_its_key() -> None:
    """Mutual TLS takes both files or none."""
    with pytest.raises(ValidationError, match="go together"):
        EndpointTls(certificate="a.pem")
    assert EndpointTls(certificate="a.pem", key="b.pem").key == "b.pem"


def test_sections_do_not_change_after_loading() -> None:
    """What was validated stays as it was."""
    with pytest.raises(ValidationError):
        GatewayLimits().in_flight = 5  # type: ignore[misc]


def test_secrets_are_hidden_in_repr_and_json_but_there_for_use() -> None:
    """A plan can read a secret, a log or an answer cannot."""
    credentials = Credentials(bearer="canary", headers={"x": "canary"})
    ledger = Ledger(database="postgresql://u:canary@h/d")
    for section in (credentials, ledger):
        assert "canary" not in repr(section)
        assert "canary" not in section.model_dump_json()
        assert "canary" in str(section.model_dump())


def test_at_least_one_model_and_pool() -> None:
    """A declaration that serves nothing is none."""
    with pytest.raises(ValidationError):
        Declaration(models={}, pools={})
