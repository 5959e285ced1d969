"""`python -m headrace.ledger JOURNAL_DIR BACKLOG_FILE PARENT_PID [RETENTION_DAYS]`, as `projector_launch` says it."""

import os
import sys
from pathlib import Path

from headrace.ledger.process import DATABASE_VARIABLE, run_projector

if __name__ == "__main__":
    journal_dir, backlog_file, parent, *retention = sys.argv[1:]
    run_projector(
        Path(journal_dir),
        Path(backlog_file),
        int(parent),
        os.environ.pop(DATABASE_VARIABLE),
        int(retention[0]) if retention else None,
    )
