"""Look at a MindSpore tensor, recognise it again, read its values on the host.

    look(t)       f32[8, 8] on cpu, requires_grad, facts of the unusual ones (a parameter's name, sparse)
    glance(t)     the same, what recognises it again (object, view, version), and where its bytes lie
    host(t)       numpy, a view of the tensor's own memory where that is possible

MindSpore's version counter hardly counts: assignments, optimizers and most writes in place leave it alone. So `wrote` is called by
whoever sees a write, and then every tensor counts as changed. Memory is given to the next tensor as soon as one is gone, and
nothing holds it weakly, so a tensor is recognised by its Python object.

Memory is read where it lies. `asnumpy` is not called: it rearranges views.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from operator import attrgetter
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import COOTensor, CSRTensor, Parameter, Tensor
from mindspore._c_expression import disable_multi_thread

try:
    from mindspore.graph import api as running
except ImportError:  # before 2.10
    from mindspore.common import api as running

from ...model.dtypes import LETTERS, LONG_NAMES, MINDSPORE_NAMES
from ..protocol import Glance, Look, Lost, Unreadable

__all__ = [
    "ELSEWHERE", "HAS_ADDRESSES", "NAMES", "asnumpy", "dtype_of", "glance", "hold", "host", "identity", "in_place", "is_tensor",
    "launch_synchronously", "look", "release", "released", "running", "same_value", "shape_of", "storage", "stored", "stretch",
    "wrote",
]  # fmt: skip

NAMES: dict[Any, str] = {  # not every MindSpore has all of them
    getattr(ms, long): name for name, long in LONG_NAMES.items() if name in MINDSPORE_NAMES and hasattr(ms, long)
} | {ms.bool_: "b8"}
_CODES: dict[Any, str] = {dtype: LETTERS[name] for dtype, name in NAMES.items()}
_SPARSE = (COOTensor, CSRTensor)
_LOOKS: dict[Any, Look] = {}
_MAX_LOOKS = 4096
_HOST = "CPU"
# Asked of the class beneath, in C++, which nobody patches: ports give `Tensor.stride`, `shape` or `device` another meaning before
# they record.
_BASE: Any = next((kind for kind in Tensor.__mro__ if kind.__name__ == "TensorPy"), Tensor)
_is_contiguous: Any = getattr(_BASE, "is_contiguous", Tensor.is_contiguous)
_stride: Any = getattr(_BASE, "stride", Tensor.stride)
asnumpy: Any = getattr(_BASE, "asnumpy", Tensor.asnumpy)
_data_ptr: Any = getattr(_BASE, "_data_ptr", None) or getattr(Tensor, "_data_ptr", None)


def _reader(name: str) -> Callable[[Any], Any]:
    """Reads an attribute as the class beneath has it."""
    attribute = vars(_BASE).get(name)
    return attrgetter(name) if attribute is None else attribute.__get__


dtype_of, shape_of, _device_name, _init = _reader("dtype"), _reader("_shape"), _reader("device"), _reader("init")
HAS_ADDRESSES = hasattr(Tensor, "_grad_node")
"""Before 2.8 a tensor that no operator has touched has none."""


class _Writes:
    """Number of writes that have been seen."""

    count = 0


class _Serials:
    """A number for each tensor object, never given to another."""

    def __init__(self) -> None:
        self._numbers: dict[int, tuple[weakref.ref[Any], int]] = {}
        self._next = itertools.count()

    def of(self, tensor: Any) -> int:
        place = id(tensor)
        known = self._numbers.get(place)
        if known is not None and known[0]() is tensor:
            return known[1]
        number = next(self._next)
        self.give(tensor, number)
        return number

    def give(self, tensor: Any, number: int) -> None:
        """Let a tensor have the number of another."""
        place = id(tensor)
        self._numbers[place] = (weakref.ref(tensor, lambda gone: self._drop(place, gone)), number)

    def _drop(self, place: int, gone: weakref.ref[Any]) -> None:
        known = self._numbers.get(place)
        if known is not None and known[0] is gone:
            del self._numbers[place]


_SERIALS = _Serials()


def launch_synchronously() -> None:
    """Let operators run when they are called. Otherwise they are queued, and whoever asks for a value waits for a queue.

    `launch_blocking` works only before the first operator; this works at any time, on all versions from 2.7, and errors are raised
    where they are made. It changes no bit, and cannot be undone.
    """
    running._pynative_executor.sync()
    disable_multi_thread()


def wrote() -> None:
    """Something was written to: no tensor is known to be what it was."""
    _Writes.count += 1


def same_value(alias: Any, tensor: Any) -> None:
    """Let an alias be recognised as the tensor that it stands for."""
    _SERIALS.give(alias, _SERIALS.of(tensor))


def is_tensor(value: object) -> bool:
    """Is this a MindSpore tensor?"""
    return isinstance(value, (Tensor, *_SPARSE))


def look(tensor: Any) -> Look:
    """Facts that are known without the values."""
    if isinstance(tensor, _SPARSE):
        return _look_sparse(tensor)
    name = tensor.name if isinstance(tensor, Parameter) else None
    dtype = dtype_of(tensor)
    key = (dtype, shape_of(tensor), _device_name(tensor), tensor._requires_grad, name)
    known = _LOOKS.get(key)
    if known is None:
        if len(_LOOKS) >= _MAX_LOOKS:
            _LOOKS.clear()
        known = _LOOKS[key] = Look(
            NAMES.get(dtype, "u8"), tuple(shape_of(tensor)), _device(tensor), bool(tensor._requires_grad)
        )
        facts = {} if name is None else {"parameter": name}
        if dtype not in NAMES:
            facts["dtype"] = str(dtype)
        known.facts = facts
    return known


def glance(tensor: Any) -> Glance | None:
    """See `protocol.Glance`. None for sparse tensors."""
    if isinstance(tensor, _SPARSE):
        return None
    near = _device_name(tensor) == _HOST and _init(tensor) is None
    return *identity(tensor), look(tensor), None, *(stretch(tensor) if near else ELSEWHERE)


ELSEWHERE = 0, 0, None, None
"""The end of a glance at what is not on the host."""


def identity(tensor: Any) -> tuple[Any, Any, Any]:
    """The object, the view of its memory, and how many writes there were."""
    serial = _SERIALS.of(tensor)
    return serial, (serial, shape_of(tensor), dtype_of(tensor)), (_Writes.count, getattr(tensor, "_version", 0))


def stretch(tensor: Any) -> tuple[int, int, bool | None, None]:
    """Where the elements of a tensor on the host lie, through attributes that MSAdapter leaves alone."""
    if not HAS_ADDRESSES or not _is_contiguous(tensor) or dtype_of(tensor) not in _CODES:
        return ELSEWHERE
    nbytes = tensor._nbytes
    address = _data_ptr(tensor)  # waits until the value is there
    return (address, nbytes, True, None) if address or not nbytes else ELSEWHERE


def storage(tensor: Any) -> Any:
    """The first part of a glance."""
    return None if isinstance(tensor, _SPARSE) else _SERIALS.of(tensor)


def hold(tensor: Any) -> Any:
    """A weak hold."""
    return weakref.ref(tensor)


def released(hold: Any) -> bool:
    """Has the tensor gone?"""
    return hold() is None


def release(hold: Any) -> None:
    """Give the hold back."""


def host(tensor: Any) -> np.ndarray[Any, Any]:
    """The values, C-contiguous, in their storage type."""
    try:
        if _init(tensor) is not None:
            raise Unreadable("not initialised yet: its initialiser has not run")
        if getattr(tensor, "is_meta", False):
            raise Unreadable("a meta tensor has no values")
        if _device_name(tensor) != _HOST or not HAS_ADDRESSES:
            return stored(np.ascontiguousarray(asnumpy(tensor)), tensor)
        return in_place(tensor)
    except (RuntimeError, TypeError, ValueError) as error:
        raise Lost(f"MindSpore does not give its values here: {_first_line(error)}") from None


def in_place(tensor: Any) -> np.ndarray[Any, Any]:
    """The tensor's own memory as an array, through attributes that MSAdapter leaves alone."""
    code = _CODES.get(dtype_of(tensor))
    if code is None:
        raise Lost(f"elements of type {dtype_of(tensor)} have no place in a trace")
    shape = shape_of(tensor)
    start = _data_ptr(tensor)  # waits until the value is there
    if 0 in shape or not start:
        return np.empty(shape, code)
    if _is_contiguous(tensor):
        return np.asarray(_Memory(tensor, start, shape, code, None))
    size = tensor._itemsize
    return np.ascontiguousarray(_Memory(tensor, start, shape, code, tuple(step * size for step in _stride(tensor))))


class _Memory:
    """Array interface of memory that is not numpy's own; it keeps the tensor alive as long as the array lives."""

    __slots__ = ("__array_interface__", "tensor")

    def __init__(self, tensor: Any, start: int, shape: Any, code: str, strides: tuple[int, ...] | None) -> None:
        self.tensor = tensor
        self.__array_interface__ = {
            "version": 3,
            "data": (start, False),
            "shape": shape,
            "typestr": code,
            "strides": strides,
        }


def stored(array: np.ndarray[Any, Any], tensor: Any) -> np.ndarray[Any, Any]:
    """Array of a type of numpy's own making (bf16), as integers of its width."""
    code = np.dtype(_CODES.get(dtype_of(tensor), "|u1"))
    return array if array.dtype == code else array.view(code)


def _device(tensor: Any) -> str:
    return str(_device_name(tensor)).lower()


def _look_sparse(tensor: Any) -> Look:
    values = tensor.values
    look = Look(NAMES.get(dtype_of(values), "u8"), tuple(tensor.shape), _device(values), False)
    look.facts = {"layout": "sparse_coo" if isinstance(tensor, COOTensor) else "sparse_csr"}
    if isinstance(tensor, COOTensor):
        look.parts = {"indices": tensor.indices, "values": values}
    else:
        look.parts = {"crow": tensor.indptr, "col": tensor.indices, "values": values}
    return look


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__
