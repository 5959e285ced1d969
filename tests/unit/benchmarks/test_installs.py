"""What is never installed."""

import pytest
from benchmarks.installs import Requirement, install_peer
from benchmarks.problem import BenchmarkError


def test_a_compromised_release_is_never_installed() -> None:
    """LiteLLM 1.107.0 is refused by name, whatever the pin says."""
    with pytest.raises(BenchmarkError, match="compromised"):
        install_peer(Requirement(package="litellm", version="1.107.0", extra="proxy"))
