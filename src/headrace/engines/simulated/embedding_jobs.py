"""Embeddings requests under way: each of their prompts is a sequence of one token in the engine."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headrace.engines.simulated.ask import Api, Ask
from headrace.engines.simulated.dialects.contract import Dialect
from headrace.engines.simulated.embedding import embedding_body, read_embedding
from headrace.engines.simulated.http import Connection, HttpRequest, Reply
from headrace.engines.simulated.pump import Pump
from headrace.simulation.request import SimulatedRequest


@dataclass(slots=True)
class EmbeddingJob:
    """One request."""

    connection: Connection
    body: Callable[[], bytes]
    request_ids: list[str]
    left: int


class EmbeddingJobs:
    """All of one engine's."""

    def __init__(self, dialect: Dialect, pump: Pump) -> None:
        self._dialect = dialect
        self._pump = pump
        self._jobs: dict[str, EmbeddingJob] = {}

    def __len__(self) -> int:
        return len(self._jobs)

    def start(self, connection: Connection, request: HttpRequest, name: str) -> None:
        """Queue a request's prompts.

        Raises: AskError.
        """
        prompts, encoding, model = read_embedding(request.body)
        self._dialect.check_model(model)
        config = self._dialect.config

        def body() -> bytes:
            return embedding_body(prompts, config.served_model, config.embedding_dimensions, encoding, _usage)

        ids = [f"{name}-{index}" for index in range(len(prompts))]
        job = EmbeddingJob(connection, body, ids, left=len(prompts))
        connection.owner = job
        for request_id, prompt in zip(ids, prompts, strict=True):
            refusal = self._pump.submit(
                SimulatedRequest(
                    request_id=request_id, prompt_tokens=prompt.tokens, output_tokens=1, max_output_tokens=1
                )
            )
            if refusal is not None:
                self.drop(job)
                ask = Ask(api=Api.COMPLETIONS, model=None, prompts=[prompt])
                raise self._dialect.refused(refusal, ask, len(prompt.tokens))
            self._jobs[request_id] = job

    def note(self, request_id: str) -> Callable[[], None] | None:
        """A prompt is done; returns what answers its request when it was the last one."""
        job = self._jobs.pop(request_id, None)
        if job is None:
            return None
        job.left -= 1
        return None if job.left else lambda: job.connection.reply(Reply(body=job.body()))

    def drop(self, job: EmbeddingJob) -> None:
        """Its client left."""
        for request_id in job.request_ids:
            if self._jobs.pop(request_id, None) is not None:
                self._pump.cancel(request_id)


def _usage(tokens: int) -> Mapping[str, object]:
    return {"prompt_tokens": tokens, "total_tokens": tokens}
