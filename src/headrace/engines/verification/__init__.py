"""Comparing what headrace would pass to an engine, and read from it, with the engine that is installed.

`help_text` reads an engine's --help, `compare` finds the differences (both pure), `look` runs and asks the engine.
"""

from headrace.engines.verification.compare import FlagFinding, Look, MetricFinding, State, Verification, verify
from headrace.engines.verification.help_text import HelpFacts, read_help

__all__ = [
    "FlagFinding",
    "HelpFacts",
    "Look",
    "MetricFinding",
    "State",
    "Verification",
    "read_help",
    "verify",
]
