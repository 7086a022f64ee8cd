"""`ts.migrator`'s functions about folders of .npy files.

    pairs = ts.migrator.get_name_map_list_by_number("out/torch", "out/ms")
    ts.migrator.compare_npy_dir("out/torch", "out/ms", name_map_list=pairs, output_file="result.csv")
    ts.migrator.compare_grads_dir("grads/torch", "grads/ms")

Tables are printed and returned. A file that is not there, or that cannot be read, is a row that says so.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .... import api
from ....model.errors import ReportError, UsageError
from ....model.results import TensorResult
from ..tables import (
    INCONSISTENT,
    VALUE_FIELDS,
    Scores,
    attention,
    boxed,
    caution,
    in_their_words,
    is_double,
    say,
    scores,
    write_csv,
)

StrPath = str | os.PathLike[str]
NamePair = tuple[str | None, str | None]

_FIELDS = ("orig array name", "target array name", *VALUE_FIELDS)
_SHAPES = ("shape of orig", "shape of target")


# --- which file belongs to which --------------------------------------------------------------------------------------


def get_name_map_list_by_name(orig_dir: StrPath, target_dir: StrPath) -> list[NamePair]:
    """(name, name) of files with the same name; (name, None) and (None, name) of the others."""
    pairs = api.pair_arrays(*_folders(orig_dir, target_dir))
    if any(None in pair for pair in pairs):
        caution(
            "The files in the original directory and the target directory cannot be fully mapped. "
            "Please manually complete the mapping of file names"
        )
    return pairs


def get_name_map_list_by_number(
    orig_dir: StrPath, target_dir: StrPath, sort_key: Callable[[str], Any] | None = None
) -> list[NamePair]:
    """The first beside the first …, in the order of the numbers that they were saved under; `sort_key` of a name instead."""
    pairs = api.pair_arrays(*_folders(orig_dir, target_dir), by="number", key=sort_key)
    sizes = [sum(pair[side] is not None for pair in pairs) for side in (0, 1)]
    if sizes[0] != sizes[1]:
        caution(
            "The number of files is not equal. Some files can not be mapped. Number of files in the original directory is "
            f"{sizes[0]}, Number of files in the target directory is {sizes[1]}"
        )
    return pairs


def get_name_map_list_by_shape_edit_distance(
    orig_dir: StrPath, target_dir: StrPath, *, del_cost: float = 1, ins_cost: float = 1, rep_cost: float = 5
) -> list[NamePair]:
    """The cheapest way from one sequence of shapes to the other; two of different shapes are beside each other at `rep_cost`."""
    costs = (del_cost, ins_cost, rep_cost)
    pairs = api.pair_arrays(*_folders(orig_dir, target_dir), by="shape", costs=costs)
    shapes = [api.array_shapes(folder) for folder in (orig_dir, target_dir)]
    if any(shapes[0].get(one or "", 0) != shapes[1].get(two or "", 1) for one, two in pairs):
        caution(
            "The number of files or their corresponding shapes are inconsistent, and some files may not be correctly mapped."
        )
    return pairs


# --- side by side -----------------------------------------------------------------------------------------------------


def compare_npy_dir(
    orig_dir: StrPath,
    target_dir: StrPath,
    rtol: float = 1e-4,
    atol: float = 1e-4,
    equal_nan: bool = False,
    *,
    name_map_list: Sequence[NamePair] | None = None,
    compare_shape: bool = False,
    output_file: StrPath | None = None,
    num_processes: int | None = None,
    title: str | None = None,
    field_names: Sequence[str] | None = None,
    frame_names: Sequence[str] | None = None,
) -> str:
    """A table with a row for each pair of files, printed and returned.

    rtol, atol      every element within atol + rtol·|target|, as numpy.allclose     equal_nan     NaN equals NaN
    name_map_list   what belongs together; files of the same name, if not given      compare_shape two more columns
    output_file     the same table as CSV                                            num_processes threads to measure with
    title, field_names   above the table, and in its head: six names                 frame_names   taken, and not needed
    """
    folders = _folders(orig_dir, target_dir)
    if field_names is not None and len(field_names) != len(_FIELDS):
        raise UsageError(f"field_names: expected {len(_FIELDS)} names, got {len(field_names)}.")
    if output_file is not None and not Path(output_file).absolute().parent.is_dir():
        raise ReportError(f"output_file: {os.fspath(output_file)} lies in a folder that does not exist. Make it first.")
    pairs = get_name_map_list_by_name(*folders) if name_map_list is None else _checked(name_map_list)
    attention(f"The compare directory information:\n The orig dir: {folders[0]} \n The target dir: {folders[1]}")
    rows = _rows(folders, pairs, (rtol, atol, equal_nan), num_processes)
    shapes = [api.array_shapes(folder) for folder in folders] if compare_shape else [{}, {}]
    names = list(field_names or _FIELDS)
    heads = [*names[:2], *(_SHAPES if compare_shape else ()), *names[2:]]
    columns = 2 if compare_shape else 0
    cells = [
        (*pair, *[shapes[side].get(_file(pair[side]) or "") for side in range(columns)], *found.cells)
        for pair, found in rows
    ]
    text = boxed(title or "The list of comparison results", heads, cells)
    say(text)
    if output_file is not None:
        write_csv(output_file, heads, cells)
    return text


def compare_grads_dir(
    orig_dir: StrPath,
    target_dir: StrPath,
    rtol: float = 1e-4,
    atol: float = 1e-4,
    equal_nan: bool = False,
    compare_shape: bool = True,
    output_file: StrPath | None = None,
    num_processes: int | None = None,
    *,
    name_map_list: Sequence[NamePair] | None = None,
) -> str:
    """The same for gradients, whose names differ: what belongs together is told by the sequence of their shapes."""
    pairs = get_name_map_list_by_shape_edit_distance(orig_dir, target_dir) if name_map_list is None else name_map_list
    return compare_npy_dir(
        orig_dir, target_dir, rtol, atol, equal_nan, name_map_list=pairs, compare_shape=compare_shape,
        output_file=output_file, num_processes=num_processes,
    )  # fmt: skip


def compare_list_dir(
    orig_dir: StrPath,
    target_dir: StrPath,
    rtol: float = 1e-4,
    atol: float = 1e-4,
    equal_nan: bool = False,
    compare_shape: bool = False,
    output_file: StrPath | None = None,
    num_processes: int | None = None,
) -> str:
    """The same for lists that were saved: in the order of the last number in their names."""
    pairs = get_name_map_list_by_number(orig_dir, target_dir, _last_number)
    return compare_npy_dir(
        orig_dir, target_dir, rtol, atol, equal_nan, name_map_list=pairs, compare_shape=compare_shape,
        output_file=output_file, num_processes=num_processes,
    )  # fmt: skip


def compare_dict_dir(
    orig_dir: StrPath,
    target_dir: StrPath,
    rtol: float = 1e-4,
    atol: float = 1e-4,
    equal_nan: bool = False,
    compare_shape: bool = False,
    output_file: StrPath | None = None,
    num_processes: int | None = None,
) -> str:
    """The same for dicts that were saved: by their keys, in whatever order they were saved."""
    return compare_npy_dir(
        orig_dir, target_dir, rtol, atol, equal_nan, name_map_list=_pairs_by_key(orig_dir, target_dir), compare_shape=compare_shape,
        output_file=output_file, num_processes=num_processes,
    )  # fmt: skip


_NUMBERED = re.compile(r"(?P<key>.+?)_(?P<dtype>[a-z]+\d*)_(?P<number>\d+)")  # data.a_float32_3, of MindSpore and ours
_PREFIXED = re.compile(r"(?P<number>\d+)_(?P<key>.+)")  # 3_data.a, of the real tool and PyTorch


def _pairs_by_key(orig_dir: StrPath, target_dir: StrPath) -> list[NamePair]:
    """Files of the same key beside each other, the first saved beside the first; then those whose keys differ in the name alone
    that the dict was saved under (`pt.a`, `ms.a`)."""
    listed = api.pair_arrays(*_folders(orig_dir, target_dir))
    sides = [[name for pair in listed if (name := pair[side]) is not None] for side in (0, 1)]
    pairs: list[NamePair] = []
    for shorten in (False, True):
        keys: list[dict[str, list[str]]] = [{}, {}]
        taken = [{pair[side] for pair in pairs} for side in (0, 1)]
        for side, names in enumerate(sides):
            for name in sorted((name for name in names if name not in taken[side]), key=lambda name: _key_of(name)[1]):
                key = _key_of(name)[0]
                keys[side].setdefault(key.partition(".")[2] or key if shorten else key, []).append(name)
        for key, ours in keys[0].items():
            theirs = keys[1].get(key, [])
            if not shorten or len(ours) == len(theirs):
                pairs += zip(ours, theirs, strict=False)
    taken = [{pair[side] for pair in pairs} for side in (0, 1)]
    alone: list[NamePair] = [(name, None) for name in sides[0] if name not in taken[0]]
    alone += [(None, name) for name in sides[1] if name not in taken[1]]
    if alone:
        caution("Some keys are in one of the two directories only.")
    order = {name: number for number, name in enumerate(sides[0])}
    return sorted(pairs + alone, key=lambda pair: order.get(pair[0] or "", len(order)))


def _key_of(name: str) -> tuple[str, int]:
    """(key, number that it was saved under) of a file."""
    stem = name.removesuffix(".npy")
    match = _NUMBERED.fullmatch(stem) or _PREFIXED.fullmatch(stem)
    return (match["key"], int(match["number"])) if match else (stem, 0)


def cal_algorithm(
    orig_value: np.ndarray[Any, Any] | None,
    target_value: np.ndarray[Any, Any] | None,
    rtol: float,
    atol: float,
    equal_nan: bool,
) -> Scores:
    """(allclose, ratio, cosine, (mean, max)) of two arrays; where one is None, or shapes differ, what the table says of that."""
    if orig_value is None or target_value is None:
        return Scores(False)
    if np.shape(orig_value) != np.shape(target_value):
        return Scores(INCONSISTENT)
    sides = np.asarray(target_value), np.asarray(orig_value)
    measured = api.measure_arrays(*sides, rtol=rtol, atol=atol)
    narrow = all(side.dtype in (np.float32, np.float16) for side in sides)
    return scores(measured, equal_nan=equal_nan, double=not narrow)


def cal_cosine_sim(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> float:
    """The cosine of two arrays as vectors; 1 where both are zero, nan where one is."""
    measured = api.measure_arrays(np.asarray(a).reshape(-1), np.asarray(b).reshape(-1))
    if measured.finite < measured.count:
        return math.nan
    if measured.cosine is None:
        return math.nan if measured.max_left or measured.max_right else 1.0
    return measured.cosine


# --- rows -------------------------------------------------------------------------------------------------------------

_Row = tuple[NamePair, Scores]


def _rows(
    folders: tuple[str, str], pairs: Sequence[NamePair], limits: tuple[float, float, bool], workers: int | None
) -> list[_Row]:
    """In the order of the pairs. The target is what errors are relative to, so it is the left side of the comparison."""
    rtol, atol, equal_nan = limits
    wanted = [(target, orig) for orig, target in pairs]
    with api.progress_bar() as progress:
        comparison = api.compare_arrays(
            folders[1], folders[0], pairs=wanted, rtol=rtol, atol=atol, equal_nan=equal_nan, workers=workers,
            progress=progress,
        )  # fmt: skip
    known = {
        (result.match.right[0].site.name, result.match.left[0].site.name): result.tensors[0]
        for result in comparison.results
    }
    there = [{path.name for path in Path(folder).glob("*.npy")} for folder in folders]
    rows: list[_Row] = []
    for pair in pairs:
        if any(name is not None and name.startswith("LAYER_") for name in pair):
            continue  # marks of api_dump, which hold no values
        files = _file(pair[0]), _file(pair[1])
        item = known.get((files[0] or "", files[1] or ""))
        gone = [name for name, names in zip(files, there, strict=True) if name is not None and name not in names]
        said = Scores(f"There is no {gone[0]}" if gone else False) if item is None else _said(item, equal_nan)
        rows.append((pair, said))
    for remark in comparison.remarks:
        caution(in_their_words(remark))
    return rows


def _said(item: TensorResult, equal_nan: bool) -> Scores:
    lost = [side.missing for side in (item.right, item.left) if side.is_lost and side.missing]
    if lost:
        return Scores(f"Cannot be read: {'; '.join(lost)}")
    if item.left.spec.shape != item.right.spec.shape:
        return Scores(INCONSISTENT)
    if item.measurement is None:
        return Scores(f"Cannot be read: {item.verdict.because}")
    return scores(item.measurement, equal_nan=equal_nan, double=is_double(item.left.spec, item.right.spec))


def _file(name: str | None) -> str | None:
    return name if name is None or name.endswith(".npy") else f"{name}.npy"


def _folders(orig_dir: StrPath, target_dir: StrPath) -> tuple[str, str]:
    for name, folder in (("orig_dir", orig_dir), ("target_dir", target_dir)):
        if not isinstance(folder, str | os.PathLike) or not Path(folder).is_dir():
            raise UsageError(f"{name}: expected a folder of .npy files, got {folder!r}.")
        if not any(Path(folder).glob("*.npy")):
            raise UsageError(f"{name}: expected .npy files in {os.fspath(folder)}, found none.")
    return os.fspath(orig_dir), os.fspath(target_dir)


def _checked(pairs: Sequence[NamePair]) -> list[NamePair]:
    for pair in pairs:
        if not isinstance(pair, Sequence) or len(pair) != 2 or not all(isinstance(x, str | None) for x in pair):
            raise UsageError(f"name_map_list: expected pairs of names, (orig or None, target or None), got {pair!r}.")
    return [(one, two) for one, two in pairs]


def _last_number(name: str) -> float:
    numbers = re.findall("[0-9]+", name)
    return int(numbers[-1]) if numbers else math.inf
