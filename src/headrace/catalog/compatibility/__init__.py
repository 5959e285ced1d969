"""Which model runs on which engine, GPU and precision: facts with their sources, and one pure judgement over them.

`judge(Combination(...))` answers yes, no or conditional with reasons; preflight, planning and placement take a no as a
hard constraint. Whether the weights fit into memory is not asked here: that is arithmetic (`sizing/`).
"""

from headrace.catalog.compatibility.families import Family, find_family
from headrace.catalog.compatibility.judge import find_capability, judge
from headrace.catalog.compatibility.terms import Alternative, Answer, Combination, KvDtype, Precision, Reason, Verdict

__all__ = [
    "Alternative",
    "Answer",
    "Combination",
    "Family",
    "KvDtype",
    "Precision",
    "Reason",
    "Verdict",
    "find_capability",
    "find_family",
    "judge",
]
