"""`python -m headrace.wiring`: the supervisor's process, started by `headrace up --detach` and by an upgrade."""

import sys

from headrace.domain.operator_error import OperatorError
from headrace.settings import Settings, load_settings
from headrace.whole_file import check_room
from headrace.wiring.declared import argument_parser, source_of
from headrace.wiring.instance import run_instance

ROOM_BYTES = 1 << 20
"""What a start writes into the state folder, with room to spare: database, logs, state files. Chosen."""


def main() -> int:
    """Run one instance; what stops it goes to stderr."""
    parser = argument_parser("headrace.wiring")
    parser.add_argument("--check", action="store_true", help="only say (by exit status 0) whether it would start")
    options = parser.parse_args()
    if options.check:
        return _check(load_settings())
    try:
        run_instance(source_of(options), load_settings())
    except OperatorError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _check(settings: Settings) -> int:
    """A supervisor that replaces itself and then cannot write would take the instance down with it."""
    try:
        check_room(settings.state_dir, ROOM_BYTES)
    except OSError as error:
        sys.stderr.write(f"{settings.state_dir} cannot be written: {error.strerror}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
