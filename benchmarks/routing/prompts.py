"""The requests of a trace as real text: every block name stands for its own 2,048 bytes, so that equal beginnings of
block names become equal beginnings of prompts."""

import json
from random import Random

from headrace.rehearsal.routing_trace import TRACE_BLOCK_TOKENS, TracedRequest

BYTES_PER_TOKEN = 4
"""As the simulated engine's tokenizer counts."""
WORDS = (
    "water wheel mill race stone grain river gate weir sluice bank flow turn grind flour sack beam axle gear tooth "
    "paddle bucket spill pond channel level season rain frost repair mason carpenter miller wage ledger toll bread"
).split()


def block_text(block: int, size_bytes: int) -> str:
    """Words by chance, the same for the same block, preceded by its name, so that no two are alike."""
    chance = Random(block)
    text = f"[{block}] "
    while len(text) < size_bytes:
        text += " ".join(chance.choices(WORDS, k=64)) + " "
    return text[:size_bytes]


class Prompts:
    """Makes bodies; blocks are made once."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._blocks: dict[int, str] = {}

    def body(self, number: int, request: TracedRequest) -> bytes:
        """The request with its prompt; what is no whole block is text of its own."""
        text = "".join(self._block(block) for block in request.blocks)
        rest_tokens = request.input_tokens - len(request.blocks) * TRACE_BLOCK_TOKENS
        text += block_text(-number - 1, max(1, rest_tokens) * BYTES_PER_TOKEN)
        fields = {
            "model": self._model,
            "messages": [{"role": "user", "content": text}],
            "max_tokens": request.output_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        return json.dumps(fields, separators=(",", ":")).encode()

    def _block(self, block: int) -> str:
        found = self._blocks.get(block)
        if found is None:
            found = self._blocks[block] = block_text(block, TRACE_BLOCK_TOKENS * BYTES_PER_TOKEN)
        return found
