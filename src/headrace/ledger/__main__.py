"""`python -m headrace.ledger JOURNAL_DIR BACKLOG_FILE PARENT_PID`, as `process.projector_launch` says it."""

import os
import sys
from pathlib import Path

from headrace.ledger.process import DATABASE_VARIABLE, run_projector

if __name__ == "__main__":
    run_projector(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), os.environ.pop(DATABASE_VARIABLE))
