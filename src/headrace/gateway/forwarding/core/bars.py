"""Why a stream went on elsewhere, why one could not, and what its caller has at that moment."""

from dataclasses import dataclass
from enum import StrEnum


class ResumeCause(StrEnum):
    """What made a stream go on at another endpoint; a metric label."""

    DIED = "died"
    """The engine's answer broke, or the engine said that it failed."""
    STALLED = "stalled"
    DRAINED = "drained"
    """The endpoint is being taken away; its engine was well."""


class ResumeBar(StrEnum):
    """Why a broken stream ended in-band; a metric label."""

    OFF = "off"
    API = "api"
    ENGINE = "engine"
    CHOICES = "choices"
    LOGPROBS = "logprobs"
    TOOLS = "tools"
    REASONING = "reasoning"
    PENALTIES = "penalties"
    MIN_TOKENS = "min_tokens"
    SEED = "seed"
    STRUCTURED = "structured"
    MESSAGES = "messages"
    FIELD = "field"
    TOO_LONG = "too_long"
    REFUSED = "refused"
    ATTEMPTS = "attempts"
    BUDGET = "budget"
    NO_ENDPOINT = "no_endpoint"


BAR_TEXT: dict[ResumeBar, str] = {
    ResumeBar.OFF: "resume is switched off",
    ResumeBar.API: "streams of this API are not resumed",
    ResumeBar.ENGINE: "the engine is not proved to continue answers",
    ResumeBar.CHOICES: "it has several choices",
    ResumeBar.LOGPROBS: "it has log-probabilities or token ids",
    ResumeBar.TOOLS: "it has tools",
    ResumeBar.REASONING: "it reasons",
    ResumeBar.PENALTIES: "its sampling depends on what was said before",
    ResumeBar.MIN_TOKENS: "it has min_tokens",
    ResumeBar.SEED: "its sampling is seeded",
    ResumeBar.STRUCTURED: "its output is held to a constraint",
    ResumeBar.MESSAGES: "its last message is the assistant's, or its prompt is not one text",
    ResumeBar.FIELD: "it has a field that is not proved to survive",
    ResumeBar.TOO_LONG: "it is longer than gateway.resume.kept_bytes",
    ResumeBar.REFUSED: "its engine reported an error after the last word",
    ResumeBar.ATTEMPTS: "it was resumed as often as gateway.resume.max_resumes allows",
    ResumeBar.BUDGET: "the resume budget is used up",
    ResumeBar.NO_ENDPOINT: "no other endpoint was ready in time",
}
"""The rest of "not resumed, since ..."."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Had:
    """What the caller has of a stream that stopped."""

    text: str
    tokens: int
    """Output events: its tokens, where the engine sends one an event."""
    first_event: bytes
    """The stream's first event: what identifies the answer is repeated from it. Empty: nothing came."""
    is_open: bool = True
    """What holds the text was begun: the content block of a message, the assistant's role of a choice."""
    token_ids: tuple[int, ...] | None = None
    """Of the text, where an engine has told them."""
    is_finished: bool = False
    """The finish reason has come: only the end is missing."""

    @property
    def prompt_tokens(self) -> int:
        """What of the next prompt is this: its tokens as an engine has them, which may be fewer than were generated."""
        return self.tokens if self.token_ids is None else len(self.token_ids)
