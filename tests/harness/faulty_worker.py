"""A gateway worker with a planted bug: one function of the real program raises once, whenever the test arms it.

`python faulty_worker.py MODULE:CLASS.METHOD TRIGGER ...` runs `headrace.gateway` with that function replaced by one
that first looks for the file TRIGGER: if it is there, the file is removed and the bug raised. Nothing else is changed.
"""

import sys
from collections.abc import Callable
from functools import reduce
from importlib import import_module
from pathlib import Path
from typing import Any

from headrace.gateway.__main__ import main

PLANTED = "a planted bug"


class PlantedBugError(Exception):
    """An exception that no part of the program knows."""


def plant(place: str, trigger: Path) -> None:
    """Replace the function at `place`. Raises: AttributeError where there is none (any more)."""
    module, _, path = place.partition(":")
    *owners, name = path.split(".")
    owner = reduce(getattr, owners, import_module(module))
    original: Callable[..., Any] = getattr(owner, name)

    def faulty(*arguments: Any, **named: Any) -> Any:
        if trigger.exists():
            trigger.unlink()
            raise PlantedBugError(PLANTED)
        return original(*arguments, **named)

    setattr(owner, name, faulty)


if __name__ == "__main__":
    plant(sys.argv[1], Path(sys.argv[2]))
    del sys.argv[1:3]
    main()
