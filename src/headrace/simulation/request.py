"""What an engine is asked to do, in tokens: the input of the engine model."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedRequest:
    """One request as an engine's scheduler sees it: already tokenized, its length already decided.

    Units: tokens.
    """

    request_id: str
    prompt_tokens: Sequence[int]
    """Token ids of the whole prompt. A trace without text passes `range(n)` here and names contents in
    `prompt_blocks`."""
    output_tokens: int
    """How many tokens it would generate if nothing bounded it, the end of text included."""
    max_output_tokens: int | None = None
    """The caller's limit; None means as many as the context holds."""
    salt: str = ""
    """Prompts with different salts never share cached KV."""
    priority: int = 0
    """Lower goes first, as in vLLM; matters only where the model's order is `priority`."""
    reply_tokens: Sequence[int] | None = None
    """Token ids that it generates, so that a later turn can find them cached. None: never cached."""
    prompt_blocks: Sequence[int] | None = None
    """Names of the prompt's full blocks, each standing for the block and all before it (as the `hash_ids` of
    published traces), of the model's block size. Only for the block-hash cache; replaces hashing the token ids."""
    is_prefill_only: bool = False
    """The prefill leg of a disaggregated request: it ends with its first token, and its KV is held for a transfer."""
    transferred_tokens: int = 0
    """The decode leg: KV of this many prompt tokens comes from a prefill engine (0: computed here)."""
    is_recomputed_on_transfer_loss: bool = False
    """What a lost transfer means: recompute the prompt here, or end with an error."""

    @property
    def input_tokens(self) -> int:
        return len(self.prompt_tokens)
