"""Arithmetic of memory: what a model's weights and KV cache take, and what an engine has room for. Pure.

`hf_config.py` and `gguf_file.py` read a model's own description into one `Architecture`; `weights.py` and `kv.py` add
it up; `memory_plan.py` divides a device as each engine does. Every constant names its source; the claims are tested
against published checkpoints and start-up logs (tests/unit/sizing).
"""
