"""Stands in for SGLang's kernel package on a CPU: see `kernels.py`, and `gpu_events.py` for prefill and decode."""

from sgl_kernel.gpu_events import replace_gpu_events
from sgl_kernel.kernels import assign_req_to_token_pool_cpu
from sgl_kernel.kernels import kernel_named as __getattr__

__version__ = "0.0.0+cpu.stub"
__all__ = ["__getattr__", "assign_req_to_token_pool_cpu"]

replace_gpu_events()
