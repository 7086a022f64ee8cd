"""Look at a miniature tensor, recognise it again, read its values.

    look(t)       f32[8, 8] on cpu, requires_grad
    glance(t)     the same, what recognises it again (storage, view, version), and where its bytes lie
    host(t)       numpy, the tensor's own memory where that is possible

Nothing here changes a tensor, tapes anything or draws a random number.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from ..protocol import Glance, Look, Unreadable
from ..runs import Runs
from .miniature import Array, Storage, Tensor


def is_tensor(value: object) -> bool:
    """Is this a miniature tensor?"""
    return isinstance(value, Tensor)


def look(tensor: Tensor) -> Look:
    """Facts that are known without the values."""
    return Look(tensor.dtype, tensor.shape, tensor.device, tensor.requires_grad)


def glance(tensor: Tensor) -> Glance | None:
    """See `protocol.Glance`. Permuted ones are not recognised as such here: they are walked like those with gaps."""
    array, number = tensor.array, tensor.storage.number
    address = array.__array_interface__["data"][0]
    glance = number, (number, address, array.shape, array.strides, tensor.dtype), tensor.storage.version
    if tensor.device != "cpu":  # a real device would have to be waited for
        return *glance, look(tensor), None, 0, 0, None, None
    if array.flags.c_contiguous:
        return *glance, look(tensor), (address, array.nbytes, tensor.dtype), address, array.nbytes, True, None
    runs = Runs.of(array.shape, array.strides, array.itemsize)
    return *glance, look(tensor), None, address, min(array.nbytes, array.itemsize), None, runs


def storage(tensor: Tensor) -> Any:
    """The first part of a glance."""
    return tensor.storage.number


def hold(tensor: Tensor) -> weakref.ref[Storage]:
    """A weak hold. The storage's number is its own for ever, so there is nothing to keep from others."""
    return weakref.ref(tensor.storage)


def released(hold: weakref.ref[Storage]) -> bool:
    """Has the storage gone?"""
    return hold() is None


def release(hold: weakref.ref[Storage]) -> None:
    """Give the hold back."""


def host(tensor: Tensor) -> Array:
    """The values, C-contiguous, in their storage type."""
    if tensor.device == "meta":
        raise Unreadable("a meta tensor has no values")
    return np.asarray(tensor.array, order="C")  # not ascontiguousarray, which makes a list out of a scalar
