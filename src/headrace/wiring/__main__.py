"""`python -m headrace.wiring`: the supervisor's process, started by `headrace up --detach` and by an upgrade."""

import sys

from headrace.domain.operator_error import OperatorError
from headrace.settings import load_settings
from headrace.wiring.declared import argument_parser, source_of
from headrace.wiring.instance import run_instance


def main() -> int:
    """Run one instance; what stops it goes to stderr."""
    parser = argument_parser("headrace.wiring")
    parser.add_argument("--check", action="store_true", help="only say (by exit status 0) that this program starts")
    options = parser.parse_args()
    if options.check:
        return 0
    try:
        run_instance(source_of(options), load_settings())
    except OperatorError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
