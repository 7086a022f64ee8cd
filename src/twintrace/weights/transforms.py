"""The steps that make one framework's weight into the other's, on arrays in their storage type.

    apply(("insert axis 2",), [f32[4, 3, 5]])    f32[4, 3, 1, 5], the same bytes
    apply(("weight_norm 0",), [g, v])            v scaled to the lengths g
    result(("rows 0:4",), [Spec f32[12, 4]])     f32[4, 4], without looking at values
    keeps_bytes(steps)                           may the bytes be copied as they are?

An impossible step raises WeightsError, with the shape and the step.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..model.errors import WeightsError
from ..model.tensors import DTYPES, Spec
from ..store.arrays import STORAGE, as_float

Array = np.ndarray[Any, Any]
SAME_BYTES = ("insert axis", "drop axis", "reshape")
_FORMS = (
    r"insert axis (\d+)", r"drop axis (\d+)", r"weight_norm (-?\d+|None)", r"lengths (-?\d+|None)", r"rows (\d+):(\d+)",
    r"stack", r"heads (\d+)", r"permute (\d+(?: \d+)*)", r"reshape((?: \d+)*)", r"cast (\w+)",
)  # fmt: skip


def parse(step: str) -> tuple[str, tuple[Any, ...]]:
    """("insert axis", (2,)): the step and its numbers. WeightsError if there is no such step."""
    for form in _FORMS:
        match = re.fullmatch(form, step)
        if match:
            name = re.match(r"[a-z_]+(?: axis)?", form)
            assert name
            if name[0] == "cast":
                if match[1] not in DTYPES:
                    break
                return "cast", (match[1],)
            if name[0] in ("permute", "reshape"):
                return name[0], (tuple(map(int, match[1].split())),)
            return name[0], tuple(None if value == "None" else int(value) for value in match.groups())
    raise WeightsError(f"there is no transform {step!r}; known are {', '.join(form for form in _FORMS)}.")


def keeps_bytes(steps: Sequence[str]) -> bool:
    """True if the result is the same bytes in another shape."""
    return all(step.startswith(SAME_BYTES) for step in steps)


def inverse(steps: Sequence[str]) -> tuple[str, ...] | None:
    """The steps that undo these; None where something is lost."""
    undone = []
    for step in reversed(steps):
        name, values = parse(step)
        if name == "insert axis":
            undone.append(f"drop axis {values[0]}")
        elif name == "drop axis":
            undone.append(f"insert axis {values[0]}")
        elif name == "permute":
            undone.append("permute " + " ".join(map(str, np.argsort(values[0]))))
        else:
            return None
    return tuple(undone)


def simple(steps: Sequence[str]) -> tuple[str, ...]:
    """Without a step that is undone by the next."""
    kept: list[str] = []
    for step in steps:
        if kept and inverse([kept[-1]]) == (step,):
            kept.pop()
        else:
            kept.append(step)
    return tuple(kept)


def result(steps: Sequence[str], specs: Sequence[Spec]) -> Spec:
    """The result by shape and element type alone."""
    spec = specs[0]
    for step in steps:
        name, values = parse(step)
        shape = list(spec.shape)
        try:
            if name == "insert axis":
                if values[0] > len(shape):
                    raise IndexError
                shape.insert(values[0], 1)
            elif name == "drop axis":
                if shape.pop(values[0]) != 1:
                    raise IndexError
            elif name == "weight_norm":
                shape = list(specs[1].shape)
            elif name == "lengths":
                kept = range(len(shape)) if values[0] is None else [values[0] % len(shape)]
                shape = [] if values[0] is None else [size if axis in kept else 1 for axis, size in enumerate(shape)]
            elif name == "rows":
                if not values[0] < values[1] <= shape[0]:
                    raise IndexError
                shape[0] = values[1] - values[0]
            elif name in ("stack", "heads"):
                heads = values[0] if name == "heads" else 1
                types = {other.dtype for other in specs} if name == "stack" else ()
                if len(types) > 1 or any(o.shape[1:] != spec.shape[1:] or o.shape[0] % heads for o in specs):
                    raise IndexError
                shape[0] = sum(other.shape[0] for other in specs)
            elif name == "permute":
                if sorted(values[0]) != list(range(len(shape))):
                    raise IndexError
                shape = [shape[axis] for axis in values[0]]
            elif name == "reshape":
                if math.prod(values[0]) != math.prod(shape):
                    raise IndexError
                shape = list(values[0])
        except IndexError:
            raise WeightsError(f"{step!r} cannot be done to {', '.join(map(str, specs))}.") from None
        spec = Spec(values[0] if name == "cast" else spec.dtype, tuple(shape))
    return spec


def apply(steps: Sequence[str], arrays: Sequence[Array], specs: Sequence[Spec]) -> Array:
    """The result as a C-contiguous array in its storage type."""
    expected = result(steps, specs)
    array, dtype = arrays[0], specs[0].dtype
    for step in steps:
        name, values = parse(step)
        if name == "insert axis":
            array = np.expand_dims(array, values[0])
        elif name == "drop axis":
            array = np.squeeze(array, values[0])
        elif name == "weight_norm":
            array = _computed(
                lambda g, v, dim=values[0]: np.asarray(v * (g / _lengths(v, dim)), v.dtype), arrays[:2], dtype
            )
        elif name == "lengths":
            array = _computed(partial(_lengths, dim=values[0]), [array], dtype)
        elif name == "rows":
            array = array[values[0] : values[1]]
        elif name == "stack":
            array = np.concatenate(arrays, 0)
        elif name == "heads":
            chunks = [other.reshape(values[0], -1, *other.shape[1:]) for other in arrays]
            array = np.concatenate(chunks, 1).reshape(-1, *array.shape[1:])
        elif name == "permute":
            array = np.transpose(array, values[0])
        elif name == "reshape":
            array = np.ascontiguousarray(array).reshape(values[0])
        elif name == "cast":
            array, dtype = cast(array, dtype, values[0]), values[0]
    return np.ascontiguousarray(array).reshape(expected.shape)


def _computed(function: Callable[..., Array], arrays: Sequence[Array], dtype: str) -> Array:
    values = function(*(np.asarray(as_float(array, dtype)) for array in arrays))
    return values if dtype in ("f32", "f64") else cast(values.astype(np.float32), "f32", dtype)


def _lengths(v: Array, dim: int | None) -> Array:
    # In the tensor's own precision, as both frameworks do: the result then rounds as theirs would.
    if dim is None:
        return np.asarray(np.sqrt(np.square(v).sum()), v.dtype)
    axes = tuple(axis for axis in range(v.ndim) if axis != dim % v.ndim)
    return np.asarray(np.sqrt(np.square(v).sum(axes, keepdims=True)), v.dtype)


def cast(array: Array, source: str, target: str) -> Array:
    """Values in another element type, rounded to nearest even where it is narrower."""
    if source == target:
        return array
    values = as_float(array, source)
    if target == "bf16":
        bits = values.astype(np.float32).view(np.uint32)
        rounded = ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype(
            np.uint16
        )
        nan = np.isnan(values)
        return np.where(nan, np.uint16(0x7FC0), rounded)
    if target.startswith(("f8", "f4", "c32")):
        raise WeightsError(f"cast {target}: {source} is not rounded to {target} here; let the framework do it.")
    with np.errstate(over="ignore"):
        return values.astype(STORAGE[target])
