"""Device, stream and modes around what the recorder does on a device by itself."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes


def default_room(device: torch.device) -> int:
    """1 GiB or 2 % of the device's memory, whichever is more, and no more than an eighth of it."""
    if device.type != "cuda":
        return 1 << 30
    total = torch.cuda.get_device_properties(device).total_memory
    return int(min(max(1 << 30, total // 50), total // 8))


def is_lost(device: torch.device) -> bool:
    """Has the device failed for good?"""
    if device.type != "cuda":
        return False
    try:
        torch.cuda.synchronize(device)
    except Exception:  # noqa: BLE001 - that is the answer
        return True
    return False


def no_modes() -> contextlib.AbstractContextManager[Any]:
    """Nobody's modes see what is done here, the recorder's and the user's."""
    if not torch._C._len_torch_dispatch_stack():  # the usual case, and a hundredth of the other's cost
        return torch._C.DisableTorchFunction()
    return _without_any_mode()


@contextlib.contextmanager
def _without_any_mode() -> Iterator[None]:
    with torch._C.DisableTorchFunction(), _disable_current_modes():
        yield


@contextlib.contextmanager
def on_stream(device: torch.device, number: int, several: bool, batch: list[Tensor], then_wait: bool) -> Iterator[None]:
    """The device and stream of a batch. With several streams its memory must not be given away before the kernels are through."""
    if device.type != "cuda":
        yield
        return
    if not several and torch._C._cuda_getCurrentRawStream(device.index) == number:
        if torch._C._cuda_getDevice() == device.index:  # as nearly always
            yield
            return
        with torch.cuda.device(device):
            yield
        return
    present = torch.cuda.current_stream(device)
    stream = torch.cuda.ExternalStream(number, device=device) if number else torch.cuda.default_stream(device)
    with torch.cuda.stream(stream):
        yield
        for tensor in batch:
            tensor.record_stream(stream)
    if then_wait and present.cuda_stream != number:
        present.wait_stream(stream)
