"""CUDA events, streams and pinned memory as nothing: SGLang's prefill side asks for them on every machine."""

from typing import Any

import torch


class _Event:
    """Everything that it marks has happened already: a CPU computes in order."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def record(self, *_: object) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def wait(self, *_: object) -> None:
        pass

    def query(self) -> bool:
        return True


class _Stream:
    def wait_event(self, *_: object) -> None:
        pass

    def wait_stream(self, *_: object) -> None:
        pass

    def synchronize(self) -> None:
        pass


def replace_gpu_events() -> None:
    """Only where there is no GPU."""
    if torch.cuda.is_available():
        return
    empty = torch.empty

    def unpinned_empty(*sizes: Any, **options: Any) -> torch.Tensor:
        options.pop("pin_memory", None)
        return empty(*sizes, **options)

    torch.cuda.Event = _Event
    torch.cuda.current_stream = lambda *_, **__: _Stream()
    torch.cuda.synchronize = lambda *_, **__: None
    torch.empty = unpinned_empty
    torch.Tensor.pin_memory = lambda self, *_, **__: self
