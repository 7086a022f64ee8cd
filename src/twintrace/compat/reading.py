"""Parts that the readers of several tools' dumps have in common. A dump vouches for nothing: each function checks what it is given.

parsed(b'["NN_ReLU_0", …]')             the fields; ValueError with one clause
shape_of([2, 3])                        (2, 3); ValueError for what is no shape
frame_of("File a.py, line 3, in f, \\n x")    Frame("a.py", 3, "f", "x")
ranks_in(folder, find)                  {0: folder/rank0/dump.pkl, …}
trace_of(folder, "msprobe", …)          the Trace of a dump
note_damage(found, Damage(…), …)        kept, or an error
npy_values(file, spec)                  the values of a tensor that is a file of its own
digested(values, "f32")                 what a tensor's record says of its values
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..model.errors import TraceFormatError
from ..model.records import Damage, Frame, Header
from ..model.tensors import Location, Spec
from ..store.arrays import STORAGE
from ..store.digest import digest
from ..store.npy import Npy
from ..store.trace import Journal, Trace

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


def frame_of(text: str) -> Frame | None:
    """A line of a stack, None for what is none."""
    match = _FRAME.fullmatch(text)
    return Frame(match["file"], int(match["line"]), match["function"], match["code"].strip()) if match else None


def trace_of(
    path: Path,
    layout: str,
    framework: str,
    settings: dict[str, str],
    journals: Mapping[tuple[int, int], Callable[[Header], Journal]],
) -> Trace:
    """A dump as a trace: for each step and rank a function that makes the journal when it is asked for."""
    world = max((rank for _, rank in journals), default=0) + 1

    def load(step: int, rank: int) -> Journal:
        return journals[step, rank](Header(step, rank, world, framework, settings))

    manifest = {"framework": framework, "settings": settings, "world": world}
    return Trace(str(path), manifest, sorted(journals), load, layout=layout)


def ranks_in(path: Path, find: Callable[[Path], Path | None]) -> dict[int, Path]:
    """Result of `find` for a folder and for the ranks' folders in it, by the number of the rank; 0 where there is none."""
    ranks = {}
    for folder in (path, *sorted(entry for entry in path.iterdir() if entry.is_dir())):
        number = RANK.fullmatch(folder.name)
        if (folder == path or number is not None) and (file := find(folder)) is not None:
            ranks[int(number[1]) if number else 0] = file
    return ranks


def note_damage(known: list[Damage], damage: Damage, *, tolerant: bool) -> None:
    """Add damage to what is known; TraceFormatError unless the reader is tolerant."""
    if not tolerant:
        raise TraceFormatError(f"{damage}. Open it with tolerant=True to read the rest.")
    known.append(damage)


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
            array = (np.ascontiguousarray(numbers, dtype=np.float32).view(np.uint32) >> 16).astype(np.uint16)
        else:
            array = np.ascontiguousarray(numbers.astype(STORAGE[dtype], copy=False))
    return array.reshape(numbers.shape)  # of one without dimensions numpy has made one with a dimension


def npy_values(path: Path, spec: Spec) -> Array:
    """The values of a .npy file, of which its row says that they are of this type and shape."""
    file = Npy.of(path, "bf16" if spec.dtype == "bf16" else None)
    if file.spec.shape != spec.shape:
        raise TraceFormatError(f"{path}: expected the shape {list(spec.shape)}, as its row says, got {file.spec}.")
    return file.values() if file.spec.dtype == spec.dtype else stored(file.values(), spec.dtype)


def digested(values: Array, dtype: str, place: int = 0) -> dict[str, Any]:
    """Statistics, fingerprint and place of values that were read, as fields of their tensor."""
    made = digest(np.ascontiguousarray(values).reshape(values.shape), dtype)
    return {
        "statistics": made.statistics,
        "fingerprint": made.fingerprint,
        "payload": Location(place, values.nbytes),
    }
