"""`ts.save` and `ts.save_grad`: tensors as numbered .npy files, from anywhere in a network.

    ts.save("out/x", tensor)                       out/x_float32_0.npy
    ts.save("out/x", [one, two])                   out/x.0_float32_1.npy       out/x.1_float32_2.npy
    ts.save("out/x", {"a": one}, suffix="torch")   out/x.a_torch_float32_3.npy
    h = ts.save_grad("out/h", h)                   out/h_backward_float32_4.npy, when the backward pass has come by

Numbers go on for as long as the process runs, whosever the tensors are: no two files of a run have the same. A file of an earlier
run that has the same name is replaced. Of a parallel run each rank writes into a folder of its own: out/rank1/x_float32_0.npy.
"""

from __future__ import annotations

import functools
import itertools
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ... import api
from ...model.errors import UsageError
from ...store.appending import replaced
from ...store.arrays import as_float
from .tables import say

StrPath = str | os.PathLike[str]
MARK = "_TS_SAVE_NAME:"
"""Before the names that `output_mode="print"` prints; `ts.widget.save_convert` looks for it."""

STEP, RANK = "{step}", "{rank}"
"""In the folder's name: filled in when a file is written (step0, rank0), as MindSpore's own TensorDump does."""
_PLAIN = (bool, int, float, complex, np.ndarray, np.generic)


class _Numbers:
    """Numbers of this process: those of files, and that of the step which `{step}` in a folder's name stands for."""

    def __init__(self) -> None:
        self.files = itertools.count()
        self.step = 0


_NUMBERS = _Numbers()


def next_step() -> None:
    """Begins the next step: later saves belong to it."""
    _NUMBERS.step += 1


def save(file: StrPath, data: Any, suffix: str | None = None, output_mode: str = "npy") -> None:
    """Write a tensor, or each tensor of a nested list, tuple or dict, to a file of its own. None is passed over.

    file          folder and name; `.npy` at its end is left out       suffix   goes behind the name
    output_mode   "npy", or "print": names and values on stdout, no files

    In a graph that MindSpore compiles it runs as it does elsewhere, each time that the graph comes by.
    """
    # MindSpore compiles this, and what takes the nest apart: handed to Python as it is, a dict in it would come without its keys.
    keys, values = _flat((), data)
    return _write(file, keys, values, suffix, output_mode)  # returned, since a compiler drops what nobody takes


def _flat(keys: tuple[Any, ...], data: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """(keys of each value, values) of lists, tuples and dicts. In the words that MindSpore's compiler knows."""
    if isinstance(data, dict):
        paths, values = (), ()
        for key, value in data.items():
            below = _flat((*keys, key), value)
            paths, values = paths + below[0], values + below[1]
        return paths, values
    if isinstance(data, (list, tuple)):
        paths, values = (), ()
        for key, value in enumerate(data):
            below = _flat((*keys, key), value)
            paths, values = paths + below[0], values + below[1]
        return paths, values
    return (keys,), (data,)


def _write_all(
    file: StrPath, keys: Sequence[tuple[Any, ...]], values: Sequence[Any], suffix: str | None, mode: str
) -> None:
    folder, name = _place(file)
    _check_mode(mode)
    for path, value in zip(keys, values, strict=True):
        for full, leaf in _leaves(name + "".join(map(_part, path)), value):
            _put(folder, f"{full}_{suffix}" if suffix else full, leaf, mode)


# MindSpore compiles the source of functions that it finds in `construct`; this has none, so it is called.
_write = functools.partial(_write_all)


def save_grad(file: StrPath, data: Any, suffix: str | None = "backward", output_mode: str = "npy") -> Any:
    """The tensor to go on with; when a backward pass comes by, its gradient is written as `save` writes a tensor."""
    if _is_compiled():  # MindSpore compiles this; what has no tensors among its arguments it asks once, meanwhile
        return _graph_tap(file, suffix, output_mode)(data)
    return api.tap(data, _teller(file, suffix, output_mode))


def _teller(file: StrPath, suffix: str | None, mode: str) -> Callable[[Any], None]:
    folder, name = _place(file)
    _check_mode(mode)
    return functools.partial(_put, folder, f"{name}_{suffix}" if suffix else name, mode=mode)


def _is_asked_by_a_compiler() -> bool:
    """True if another asks than the line above, as it stands there."""
    return sys._getframe(1).f_code.co_filename != _teller.__code__.co_filename


_is_compiled = functools.partial(_is_asked_by_a_compiler)
_graph_tap = functools.partial(lambda *arguments: api.graph_tap(_teller(*arguments)))


def _place(file: StrPath) -> tuple[Path, str]:
    text = os.fspath(file) if isinstance(file, str | os.PathLike) else ""
    folder, name = os.path.split(text)
    name = name.removesuffix(".npy")
    if not isinstance(text, str) or not name:
        raise UsageError(f"file: expected a folder and a name, such as 'out/x', got {file!r}.")
    if RANK in folder:
        return Path(folder), name
    rank, world = api.rank_and_world()
    return (Path(folder, f"rank{rank}") if world > 1 else Path(folder)), name


def _check_mode(mode: str) -> None:
    if mode not in ("npy", "print"):
        raise UsageError(f"output_mode: expected 'npy' or 'print', got {mode!r}.")


def _leaves(name: str, data: Any) -> Iterator[tuple[str, Any]]:
    """(name, value) of everything in a nest; a key is part of the name."""
    if isinstance(data, Mapping):
        items: Iterator[tuple[Any, Any]] = iter(data.items())
    elif isinstance(data, list | tuple):
        items = enumerate(data)
    else:
        if data is not None:
            yield name, data
        return
    for key, value in items:
        yield from _leaves(name + _part(key), value)


def _part(key: Any) -> str:
    """A key names a file, it leads to no other folder."""
    return "." + str(key).replace(os.sep, "_").replace("\0", "_")


def _put(folder: Path, name: str, value: Any, mode: str) -> None:
    if mode == "print":
        say(f"{MARK}{name} {value}")
        return
    array = _values(value)
    if STEP in str(folder) or RANK in str(folder):
        filled = str(folder).replace(STEP, f"step{_NUMBERS.step}").replace(RANK, f"rank{api.rank_and_world()[0]}")
        folder = Path(filled)
    path = folder / f"{name}_{array.dtype.name}_{next(_NUMBERS.files)}.npy"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with replaced(path) as file:  # also over a file that may not be written to
        np.save(file, array, allow_pickle=False)


def _values(value: Any) -> np.ndarray[Any, Any]:
    if isinstance(value, _PLAIN):
        array = np.asarray(value)
        if array.dtype.kind not in "fciub":
            raise UsageError(f"data: expected tensors, arrays or numbers, got an array of {array.dtype}.")
        return array
    if api.framework_of(value) is None:
        raise UsageError(
            f"data: expected a tensor of PyTorch, MindSpore or MSAdapter, or a list, tuple or dict of them, got "
            f"{type(value).__name__}."
        )
    raw, dtype = api.array_of(value)
    return as_float(raw, dtype)
