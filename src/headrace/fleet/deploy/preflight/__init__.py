"""Preflight: what stands between a declared pool and a running one on this machine, each finding with its remedy.

`core/` judges facts, pure; `gather.py` asks the machine and `capture.py` reads what another machine said, both as the
same texts, which `facts.py` reads. The arithmetic of memory is `headrace.sizing`. Page: docs/preflight.md.
"""
