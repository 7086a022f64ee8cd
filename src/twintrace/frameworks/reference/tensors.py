"""Look at a miniature tensor, recognise it again, read its values.

    look(t)       f32[8, 8] on cpu, requires_grad
    identity(t)   (storage, view, version): equal means the same values
    host(t)       numpy, the tensor's own memory where that is possible
    peek(t)       a few of its bytes, for noticing writes that no version shows

Nothing here changes a tensor, tapes anything or draws a random number.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from ..protocol import Look, Unreadable
from .miniature import Array, Storage, Tensor


def is_tensor(value: object) -> bool:
    """Is this a miniature tensor?"""
    return isinstance(value, Tensor)


def look(tensor: Tensor) -> Look:
    """What can be said without the values."""
    return Look(tensor.dtype, tensor.shape, tensor.device, tensor.requires_grad)


def identity(tensor: Tensor) -> tuple[Any, Any, Any] | None:
    """Storage, the view of it, and the version of its contents."""
    array = tensor.array
    view = (array.__array_interface__["data"][0], array.shape, array.strides, tensor.dtype)
    return tensor.storage.number, view, tensor.storage.version


def wants_gradient(tensor: Tensor) -> bool:
    """Is a gradient of it wanted? As in `look`."""
    return tensor.requires_grad


def storage(tensor: Tensor) -> Any:
    """The first part of the identity."""
    return tensor.storage.number


def hold(tensor: Tensor) -> weakref.ref[Storage]:
    """A weak hold. The storage's number is its own for ever, so there is nothing to keep from others."""
    return weakref.ref(tensor.storage)


def released(hold: weakref.ref[Storage]) -> bool:
    """Has the storage gone?"""
    return hold() is None


def release(hold: weakref.ref[Storage]) -> None:
    """Give the hold back."""


def host(tensor: Tensor, *, ordered: bool = True) -> Array:
    """The values, C-contiguous, in their storage type."""
    if tensor.device == "meta":
        raise Unreadable("a meta tensor has no values")
    return np.asarray(tensor.array, order="C")  # not ascontiguousarray, which makes a list out of a scalar


def stretch(tensor: Tensor) -> tuple[Any, bool]:
    """The memory that a contiguous array fills. (Permuted ones are not recognised here: they are read again.)"""
    array = tensor.array
    return ((array.ctypes.data, array.nbytes, tensor.dtype), True) if array.flags.c_contiguous else (None, False)


def peek(tensor: Tensor) -> bytes | None:
    """The first bytes. None off the host: a real device would have to be waited for."""
    return tensor.array.reshape(-1)[:16].tobytes() if tensor.device == "cpu" else None
