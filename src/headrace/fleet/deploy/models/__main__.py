"""Fetch one model and end: `python -m headrace.fleet.deploy.models --source SOURCE`, the init container of an engine.

Same store as on a single machine: resumed after a drop or a kill, checked, one writer at a time on a shared volume.
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence

from headrace.domain.clock import Clock, SystemClock
from headrace.fleet.deploy.models.download import FetchPolicy
from headrace.fleet.deploy.models.failure import ModelFetchError
from headrace.fleet.deploy.models.progress import FetchPhase, FetchProgress, describe
from headrace.fleet.deploy.models.store import ModelStore
from headrace.settings import load_settings

SAY_INTERVAL_S = 10.0
"""Between two lines about one phase; a container's log is read afterwards."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Fetch, say what happens line by line, and return the exit code: 0 fetched, 1 not."""
    options = _parser().parse_args(arguments)
    policy = FetchPolicy(
        stall_timeout_s=options.stall_timeout_s,
        attempts=options.attempts,
        total_timeout_s=options.total_timeout_s,
    )
    store = ModelStore(load_settings().cache_dir, environ=os.environ, policy=policy)
    report = Telling(lambda line: print(line, flush=True))  # noqa: T201 (the container's log)
    try:
        path = store.ensure_now(options.source, options.sha256, options.requantize, progress=report)
    except (ModelFetchError, ValueError) as error:
        print(f"{options.source}: not fetched: {error}", file=sys.stderr, flush=True)  # noqa: T201
        return 1
    print(f"{options.source} is complete and checked at {path}", flush=True)  # noqa: T201
    return 0


class Telling:
    """Turns reports into lines: each new phase, and one line every ten seconds of a long one."""

    def __init__(self, say: Callable[[str], None], *, clock: Clock | None = None) -> None:
        self._say = say
        self._clock = clock or SystemClock()
        self._said: tuple[str, str, str] | None = None
        self._said_mono_s = 0.0

    def __call__(self, progress: FetchProgress) -> None:
        if progress.phase is FetchPhase.DONE:
            return
        step = (progress.phase.value, progress.what, progress.note)
        now_mono_s = self._clock.mono_s()
        if step == self._said and now_mono_s - self._said_mono_s < SAY_INTERVAL_S:
            return
        self._said, self._said_mono_s = step, now_mono_s
        self._say(describe(progress))


def _parser() -> argparse.ArgumentParser:
    policy = FetchPolicy()
    parser = argparse.ArgumentParser(
        prog="python -m headrace.fleet.deploy.models",
        description="Fetch one model into HEADRACE_CACHE_DIR. HF_TOKEN, HF_ENDPOINT, PIP_INDEX_URL and the usual "
        "variables for proxies and certificates are honoured.",
    )
    parser.add_argument("--source", required=True, help="as models.<name>.source")
    parser.add_argument("--sha256", help="as models.<name>.sha256")
    parser.add_argument("--requantize", help="as models.<name>.requantize")
    parser.add_argument("--total-timeout-s", type=float, help="longest time of the whole fetch; default: none")
    parser.add_argument(
        "--stall-timeout-s", type=float, default=policy.stall_timeout_s, help="longest silence within a transfer"
    )
    parser.add_argument(
        "--attempts", type=int, default=policy.attempts, help="failures in a row without a new byte until it gives up"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
