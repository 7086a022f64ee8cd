"""Parts that the readers of several tools' dumps have in common. A dump vouches for nothing: each function checks what it is given.

parsed(b'["NN_ReLU_0", …]')             the fields; ValueError with one clause
shape_of([2, 3])                        (2, 3); ValueError for what is no shape
nested({"0": 3, "1.0": 4})              a tuple of tensor 3 and a tuple with tensor 4 inside
frame_of("File a.py, line 3, in f, \\n x")    Frame("a.py", 3, "f", "x")
ranks_in(folder, find)                  {0: folder/rank0/dump.pkl, …}
note_damage(found, Damage(…), …)        kept, or an error
npy_values(file, spec)                  the values of a tensor that is a file of its own
link(calls, tensors)                    tensors learn which call put them out
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..model.errors import TraceFormatError
from ..model.records import Call, Damage, Frame
from ..model.sites import Kind
from ..model.tensors import Spec, Tensor
from ..model.values import Nest, TensorRef, Value, leaves, tensor_slots
from ..store.arrays import STORAGE
from ..store.npy import Npy

Array = np.ndarray[Any, Any]
RANK = re.compile(r"rank(0|[1-9][0-9]{0,8})")
"""The folder of a rank."""
_FRAME = re.compile(r"File (?P<file>.*), line (?P<line>\d{1,9}), in (?P<function>.*?),\s+(?P<code>.*)", re.DOTALL)


def parsed(raw: bytes) -> Any:
    """A line of JSON."""
    try:
        return json.loads(raw)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"not JSON ({error})") from None


def shape_of(sizes: Any) -> tuple[int, ...]:
    """A shape that a tensor may have."""
    whole = isinstance(sizes, list) and all(isinstance(size, int) and not isinstance(size, bool) for size in sizes)
    if not whole or any(size < 0 for size in sizes) or len(sizes) > 64 or math.prod(sizes) > 1 << 40:
        raise ValueError(f"{str(sizes)[:60]} is no shape")
    return tuple(sizes)


def nested(slots: Mapping[str, int]) -> Nest:
    """Tensors by slot, as the nest that they were taken out of: a tuple, or a dict where a slot has a name."""
    groups: dict[str, dict[str, int]] = {}
    for slot, tensor in slots.items():
        head, _, rest = slot.partition(".")
        groups.setdefault(head, {})[rest] = tensor
    items: list[tuple[str, Value]] = [
        (head, TensorRef(inside[""]) if "" in inside else nested(inside)) for head, inside in groups.items()
    ]
    if not all(head.isdecimal() for head in groups):
        return Nest("dict", tuple(items))
    return Nest("tuple", tuple(sorted(items, key=lambda item: int(item[0]))))


def frame_of(text: str) -> Frame | None:
    """A line of a stack, None for what is none."""
    match = _FRAME.fullmatch(text)
    return Frame(match["file"], int(match["line"]), match["function"], match["code"].strip()) if match else None


def ranks_in(path: Path, find: Callable[[Path], Path | None]) -> dict[int, Path]:
    """Result of `find` for a folder and for the ranks' folders in it, by the number of the rank; 0 where there is none."""
    found = {}
    for folder in (path, *sorted(entry for entry in path.iterdir() if entry.is_dir())):
        number = RANK.fullmatch(folder.name)
        if (folder == path or number is not None) and (file := find(folder)) is not None:
            found[int(number[1]) if number else 0] = file
    return found


def note_damage(found: list[Damage], item: Damage, *, tolerant: bool) -> None:
    """Add damage to what was found; TraceFormatError unless the reader is tolerant."""
    if not tolerant:
        raise TraceFormatError(f"{item}. Open it with tolerant=True to read the rest.")
    found.append(item)


def statistic(number: object) -> float | int | None:
    """A number that statistics may hold."""
    return number if isinstance(number, int | float) and math.isfinite(number) else None


# --- values -----------------------------------------------------------------------------------------------------------


def storable(dtype: str) -> str:
    """The element type in which another tool's values are read back: itself, or float32 where that is a type of codes."""
    return "f32" if dtype.startswith(("f8", "f4")) else "c64" if dtype == "c32" else dtype


def stored(numbers: Array, dtype: str) -> Array:
    """Numbers in the storage type of an element type."""
    with np.errstate(over="ignore", invalid="ignore"):
        if dtype == "bf16":  # what came from bf16 has its lower half empty
            found = (np.ascontiguousarray(numbers, dtype=np.float32).view(np.uint32) >> 16).astype(np.uint16)
        else:
            found = np.ascontiguousarray(numbers.astype(STORAGE[dtype], copy=False))
    return found.reshape(numbers.shape)  # of one without dimensions numpy has made one with a dimension


def npy_values(path: Path, spec: Spec) -> Array:
    """The values of a .npy file, of which its row says that they are of this type and shape."""
    found = Npy.of(path, "bf16" if spec.dtype == "bf16" else None)
    if found.spec.shape != spec.shape:
        raise TraceFormatError(f"{path}: expected the shape {list(spec.shape)}, as its row says, got {found.spec}.")
    values = found.values()
    return values if found.spec.dtype == spec.dtype else stored(values, spec.dtype)


# --- calls ------------------------------------------------------------------------------------------------------------


def result_of(slots: Mapping[str, int]) -> Value:
    """A call's result out of its tensors by slot."""
    return TensorRef(slots[""]) if "" in slots else nested(slots) if slots else None


def results(call: Call) -> dict[str, int]:
    """Tensors that a call puts out, by slot."""
    return {slot: leaf.id for slot, leaf in leaves(call.output) if isinstance(leaf, TensorRef)}


def arguments_of(slots: Mapping[str, int]) -> tuple[Value, ...]:
    """By position; what was no tensor is not in a dump, and None stands in its place. What has no number follows."""
    nest = dict(nested(slots).items)
    numbers = {key: int(key) for key in nest if key.isdecimal() and len(key) < 5}
    by_number = {number: nest[key] for key, number in numbers.items()}
    rest = [value for key, value in nest.items() if key not in numbers]
    return (*(by_number.get(position) for position in range(max(by_number, default=-1) + 1)), *rest)


def mark(tensor: Tensor) -> tuple[str, str]:
    """Key that tensors with the same values have in common."""
    return str(tensor.spec), tensor.fingerprint or f"tensor {tensor.id}"


def link(calls: Sequence[Call], tensors: dict[int, Tensor]) -> None:
    """A value that goes in and has come out before comes from there."""
    made: dict[tuple[str, str], int] = {}
    for call in calls:
        for _, tensor in tensor_slots(call.args, call.kwargs):
            producer = made.get(mark(tensors[tensor]))
            if producer is not None:
                tensors[tensor] = replace(tensors[tensor], producer=producer)
        for tensor in results(call).values():
            key = mark(tensors[tensor])
            if call.site.kind is Kind.MODULE:  # what it gives out was made by a function inside it, as a rule
                made.setdefault(key, call.id)
            else:
                made[key] = call.id
            tensors[tensor] = replace(tensors[tensor], producer=made[key])
