"""`python -m headrace.wiring`: the supervisor's process, started by `headrace up --detach` and by an upgrade."""

import argparse
import sys
from pathlib import Path

from headrace.domain.endpoint import EngineKind
from headrace.domain.operator_error import OperatorError
from headrace.settings import load_settings
from headrace.wiring.declared import Source
from headrace.wiring.instance import run_instance


def main() -> int:
    """Run one instance; what stops it goes to stderr."""
    parser = argparse.ArgumentParser(prog="headrace.wiring")
    parser.add_argument("--config", type=Path)
    parser.add_argument("--endpoint")
    parser.add_argument("--engine", type=EngineKind)
    parser.add_argument("--served-model")
    parser.add_argument("--context-tokens", type=int)
    parser.add_argument("--set", action="append", default=[], dest="overrides")
    parser.add_argument("--check", action="store_true", help="only say (by exit status 0) that this program starts")
    options = parser.parse_args()
    if options.check:
        return 0
    source = Source(
        config=options.config,
        overrides=tuple(options.overrides),
        endpoint=options.endpoint,
        engine=options.engine,
        served_model=options.served_model,
        context_tokens=options.context_tokens,
    )
    try:
        run_instance(source, load_settings())
    except OperatorError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
