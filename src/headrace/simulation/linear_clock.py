"""A step clock of a few measured coefficients: what a calibration file holds, and what it is good for."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearClock:
    """A step takes a fixed time and a price for everything in it. Units: seconds, each per what its name says."""

    fixed_s: float = 0.0
    prefill_token_s: float = 0.0
    prefill_pair_s: float = 0.0
    """Per (query, key) pair of a prompt's attention."""
    decode_token_s: float = 0.0
    """Per position that generating sequences compute."""
    kv_token_s: float = 0.0
    """Per token of context that generating sequences read."""

    def step_s(
        self,
        prefill_tokens: int,
        prefill_pairs: int,
        prefill_kv_tokens: int,
        decode_sequences: int,
        decode_tokens: int,
        decode_kv_tokens: int,
    ) -> float:
        return (
            self.fixed_s
            + self.prefill_token_s * prefill_tokens
            + self.prefill_pair_s * prefill_pairs
            + self.decode_token_s * decode_tokens
            + self.kv_token_s * decode_kv_tokens
        )
