"""MindSpore's tensors, dressed as torch's: looked at and read without any of the methods that MSAdapter has put on them.

MSAdapter replaces much of a tensor's surface. `data_ptr` runs an operator, `itemsize` raises, `device` raises for a tensor that
MindSpore made by itself (every gradient). MindSpore's own attributes, which lie beneath, are used here.
"""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np

from ..mindspore.tensors import (
    ELSEWHERE,
    HAS_ADDRESSES,
    NAMES,
    hold,
    identity,
    in_place,
    is_tensor,
    launch_synchronously,
    release,
    released,
    storage,
    stored,
    stretch,
    wrote,
)
from ..protocol import Glance, Look, Lost, Unreadable

__all__ = [
    "NAMES",
    "glance",
    "hold",
    "host",
    "is_tensor",
    "launch_synchronously",
    "look",
    "release",
    "released",
    "storage",
    "wrote",
]

_BENEATH = ms.Tensor.__mro__[1]
_device_beneath = vars(_BENEATH)["device"].__get__
_LOOKS: dict[Any, Look] = {}
_MAX_LOOKS = 4096


def look(tensor: Any) -> Look:
    """Facts that are known without the values."""
    wanted = bool(getattr(tensor, "_requires_grad", False)) or getattr(tensor, "_grad_node", None) is not None
    key = (tensor.dtype, tensor._shape, _device(tensor), wanted)
    known = _LOOKS.get(key)
    if known is None:
        if len(_LOOKS) >= _MAX_LOOKS:
            _LOOKS.clear()
        known = _LOOKS[key] = Look(NAMES.get(tensor.dtype, "u8"), tuple(tensor._shape), *key[2:])
        if tensor.dtype not in NAMES:
            known.facts = {"dtype": str(tensor.dtype)}
    return known


def host(tensor: Any) -> np.ndarray[Any, Any]:
    """The values, C-contiguous, in their storage type."""
    if _device(tensor).startswith("meta"):
        raise Unreadable("a meta tensor has no values")
    try:
        if HAS_ADDRESSES and _on_host(tensor):
            return in_place(tensor)
        return stored(np.ascontiguousarray(tensor.asnumpy()), tensor)
    except (RuntimeError, TypeError, ValueError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise Lost(f"MindSpore does not give its values here: {lines[0][:200]}") from None


def glance(tensor: Any) -> Glance | None:
    """See `protocol.Glance`."""
    return *identity(tensor), look(tensor), None, *(stretch(tensor) if _on_host(tensor) else ELSEWHERE)


def _on_host(tensor: Any) -> bool:
    return str(_device_beneath(tensor)) in ("CPU", "") and not _device(tensor).startswith("meta")


def _device(tensor: Any) -> str:
    """`cpu`, `npu:0`: as the user's code has it; tensors that MindSpore made by itself have MindSpore's."""
    device = getattr(tensor, "_device", None)
    if device is None:
        return str(_device_beneath(tensor)).lower() or "cpu"
    return str(device.type) if device.index is None else f"{device.type}:{device.index}"
