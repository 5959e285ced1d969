"""How many tokens an input has, before any engine has counted it: bytes over bytes per token, learned per model.

A guess on the safe side: what is estimated too high is given back when the engine has counted, what is estimated too
low lets a limit be passed. Read by admission (reservations) and routing.
"""

from collections.abc import Mapping

import msgspec

from headrace.domain.request import ApiDialect

START_BYTES_PER_TOKEN = 2.5
"""Before anything is learned. Chosen on the safe side: English prose has 4 to 5, code 3, with today's vocabularies."""
LEAST_BYTES_PER_TOKEN, MOST_BYTES_PER_TOKEN = 0.5, 16.0
"""Whatever engines may say. Chosen: chat templates add tokens that no byte stands for; long words are one token."""
DOWN, UP = 0.5, 0.05
"""How fast the learned value follows a request with fewer, or more, bytes per token: it stays near the lowest."""
TEMPLATE_TOKENS = 8
"""Added by chat templates to the shortest prompt. Chosen: ChatML adds 5 to 8."""
MEDIA_TOKENS = 1024
"""Of one inline picture or other medium. Chosen: a picture of a megapixel is 700 to 1,500 tokens on today's models."""
_FIELDS: Mapping[ApiDialect, tuple[str, ...]] = {
    ApiDialect.CHAT_COMPLETIONS: ("messages", "tools"),
    ApiDialect.COMPLETIONS: ("prompt", "suffix"),
    ApiDialect.EMBEDDINGS: ("input",),
    ApiDialect.RESPONSES: ("input", "instructions", "tools"),
    ApiDialect.MESSAGES: ("messages", "system", "tools"),
}


class TokenEstimates:
    """What is learned of each model's inputs. Concurrency: event loop only."""

    def __init__(self) -> None:
        self._bytes_per_token: dict[str, float] = {}
        """Of declared models only."""

    def measure(
        self,
        model: str,
        dialect: ApiDialect,
        fields: Mapping[str, msgspec.Raw],
        *,
        media: int = 0,
        media_bytes: int = 0,
    ) -> tuple[int, int]:
        """Bytes of a request's input as JSON, and the tokens that they are likely to be. Inline media, of so many
        bytes, count as the bytes that their tokens would take.
        """
        size = 0
        for name in _FIELDS[dialect]:
            if name in fields:
                size += len(fields[name])
        if media:
            size = max(0, size - media_bytes) + round(media * MEDIA_TOKENS * START_BYTES_PER_TOKEN)
        return size, int(size / self._bytes_per_token.get(model, START_BYTES_PER_TOKEN)) + TEMPLATE_TOKENS

    def tokens_of(self, model: str, prompt_bytes: int) -> int:
        """The tokens that an input of so many bytes is likely to have at another model."""
        return int(prompt_bytes / self._bytes_per_token.get(model, START_BYTES_PER_TOKEN)) + TEMPLATE_TOKENS

    def learn(self, model: str, prompt_bytes: int, input_tokens: int) -> None:
        """An engine has counted an input."""
        if input_tokens <= TEMPLATE_TOKENS or not prompt_bytes:
            return
        seen = prompt_bytes / (input_tokens - TEMPLATE_TOKENS)
        known = self._bytes_per_token.get(model, START_BYTES_PER_TOKEN)
        learned = known + (seen - known) * (DOWN if seen < known else UP)
        if learned < LEAST_BYTES_PER_TOKEN:
            learned = LEAST_BYTES_PER_TOKEN
        elif learned > MOST_BYTES_PER_TOKEN:
            learned = MOST_BYTES_PER_TOKEN
        self._bytes_per_token[model] = learned
