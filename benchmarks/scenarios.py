"""What is sent: whole answers with small and large prompts, and many streams at once."""

from dataclasses import dataclass

ITL_S = 0.02
"""Gap between the chunks of one stream of the mock engine: 50 tokens a second."""
STREAM_CHUNKS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One kind of load, the same for every target."""

    kind: str
    title: str
    connections: int
    prompt_bytes: int = 450
    """Of the prompt; the body around it adds about 150 bytes."""
    is_stream: bool = False
    backends: int = 1
    duration_s: float = 5.0
    waves: int = 3
    """Streams: how often every connection's place is filled anew."""
    slow_connections: int | None = None
    """For targets that cannot carry `connections`; None: such targets are left out."""

    def load_arguments(self, *, is_quick: bool, is_slow_target: bool) -> list[str]:
        """Arguments of the load client."""
        connections = self.slow_connections if is_slow_target and self.slow_connections else self.connections
        arguments = ["--connections", str(connections), "--prompt-bytes", str(self.prompt_bytes)]
        if not self.is_stream:
            duration_s = self.duration_s * (0.4 if is_quick else 1)
            return [*arguments, "--requests", "1000000000", "--duration-s", str(duration_s)]
        waves = max(2, self.waves - 1) if is_quick else self.waves
        return [
            *arguments,
            *("--stream", "--include-usage", "--chunks", str(STREAM_CHUNKS)),
            *("--requests", str(connections * waves), "--spread-s", str(STREAM_CHUNKS * ITL_S)),
        ]

    def warm_up_arguments(self, *, is_slow_target: bool) -> list[str]:
        """A short load of the same kind, not measured."""
        connections = min(self.connections, 20 if is_slow_target else 100)
        arguments = ["--connections", str(connections), "--prompt-bytes", str(self.prompt_bytes)]
        if self.is_stream:
            return [*arguments, "--stream", "--include-usage", "--chunks", "8", "--requests", str(connections)]
        return [*arguments, "--requests", "1000000000", "--duration-s", "0.5"]


SCENARIOS = (
    Scenario(kind="small", title="0.6 KB body, 32 connections", connections=32, slow_connections=32),
    Scenario(kind="prompt-32k", title="32 KB prompt, 32 connections", connections=32, prompt_bytes=32_000),
    Scenario(kind="prompt-256k", title="256 KB prompt, 32 connections", connections=32, prompt_bytes=256_000),
    Scenario(
        kind="streams-500",
        title="500 streams, 64 chunks, 20 ms apart",
        connections=500,
        is_stream=True,
        waves=4,
        slow_connections=100,
    ),
    Scenario(
        kind="streams-1000",
        title="1,000 concurrent streams, 64 chunks, 20 ms apart",
        connections=1000,
        is_stream=True,
        waves=2,
    ),
    Scenario(kind="four-backends", title="0.6 KB body, 32 connections, four backends", connections=32, backends=4),
)


def is_left_out(scenario: Scenario, *, is_slow_target: bool) -> bool:
    return is_slow_target and scenario.slow_connections is None
