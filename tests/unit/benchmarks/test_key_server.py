"""The server that vllm-router asks about its callers' keys."""

import urllib.error
import urllib.request

import pytest
from benchmarks.targets.contract import KEY
from benchmarks.targets.key_server import key_server_url


def ask(authorization: str) -> int:
    asked = urllib.request.Request(key_server_url(), headers={"authorization": authorization})
    with urllib.request.urlopen(asked, timeout=10) as answer:
        return answer.status


def test_the_benchmark_s_key_is_right() -> None:
    """The key that the load client shows is taken."""
    assert ask(f"Bearer {KEY}") == 200


@pytest.mark.parametrize("authorization", ["Bearer hr-wrong-key", "Bearer ", f"Basic {KEY}"])
def test_any_other_is_wrong(authorization: str) -> None:
    """A peer that asks about another key learns that it is wrong."""
    with pytest.raises(urllib.error.HTTPError) as refused:
        ask(authorization)
    with refused.value as answer:
        assert answer.code == 401
