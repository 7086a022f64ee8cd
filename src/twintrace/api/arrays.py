"""Two folders of .npy files side by side: a Comparison, as of two traces.

array_shapes(folder)           the shape of every file            -> shapes by name, None of unreadable files
pair_arrays(left, right)       which file belongs to which        -> pairs of names, None where there is no partner
compare_arrays(left, right)    shapes and values side by side     -> Comparison
measure_arrays(left, right)    two arrays, element by element     -> Measurement
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..judge.policies import policy_named
from ..model.errors import UsageError
from ..model.measurements import Measurement
from ..model.pairs import Alignment, Alone, Match, Part, Side, TensorPair
from ..model.records import Call
from ..model.verdicts import Outcome
from ..model.words import Progress, Word, counted
from ..report.naming import places
from ..store.arrays import element_type
from ..store.saved import open_folder
from ..store.trace import Trace
from .comparing import compare_traces
from .places import Request
from .results import Comparison

Folder = str | os.PathLike[str]
NamePair = tuple[str | None, str | None]
"""Names of two files that belong together; None where a side has none."""


class By(Word):
    """Rules by which files are paired."""

    NAME = "name"
    NUMBER = "number"
    SHAPE = "shape"


_TOGETHER = {
    By.NAME: "the same name",
    By.NUMBER: "the same place in the order of their numbers",
    By.SHAPE: "the same shape, in the same order",
}
_ALONE = {
    By.NAME: "the other side has no file of this name",
    By.NUMBER: "the other side has fewer files",
    By.SHAPE: "the other side has no file of this shape here",
}


def pair_arrays(
    left: Folder,
    right: Folder,
    *,
    by: str = "name",
    key: Callable[[str], Any] | None = None,
    costs: tuple[float, float, float] = (1, 1, 5),
) -> list[NamePair]:
    """Which file of the left folder belongs to which of the right, in the order of the left, or of both.

    by      name    the same name
            number  the first beside the first, in the order of the numbers in their names
            shape   the longest sequence of shapes that both have: for gradients, whose names and numbers differ
    key     sort key of a name, instead of those numbers
    costs   by shape: of a file without a partner on the left, of one on the right, and of two partners of different shapes
    """
    return _pairs((open_folder(left), open_folder(right)), _chosen(by), key, costs)


def array_shapes(folder: Folder) -> dict[str, tuple[int, ...] | None]:
    """The shape of every .npy file in a folder, by name; None of one that cannot be read. Headers are read, no values."""
    trace = open_folder(folder)
    tensors = trace.journal(0).tensors()
    return {
        name: None if tensor.is_lost else tensor.spec.shape for name, tensor in zip(_files(trace), tensors, strict=True)
    }


def compare_arrays(
    left: Folder,
    right: Folder,
    *,
    by: str = "name",
    pairs: Sequence[NamePair] | None = None,
    rtol: float = 1e-4,
    atol: float = 1e-4,
    equal_nan: bool = False,
    pictures: bool = False,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Two folders of .npy files side by side: every element within atol + rtol·|left|, or how far beyond.

        print(tt.compare_arrays("dumps/torch", "dumps/mindspore", by="number"))

    A file without a partner, and one that cannot be read, is told of and does not end the comparison.

    Args:
        left: the folder whose values are the reference.
        right: the other folder.
        by: rule of pairing: "name", "number" (the order in which they were saved) or "shape" (the sequence of their shapes).
        pairs: names that belong together, instead of `by`; with or without `.npy`.
        rtol: tolerance relative to the left element.
        atol: absolute tolerance.
        equal_nan: NaN beside NaN is no difference.
        pictures: where in an array the difference is, for reports.
        workers: threads to measure with; all cores if None.
        progress: called with (task, done, total).

    Returns:
        A comparison with one result for each pair of files.

    Raises:
        TraceNotFoundError: one of the folders is not there, or holds no such file.
        UsageError: an unknown `by`.
    """
    chosen = _chosen(by)
    traces = (open_folder(left), open_folder(right))
    if pairs is None:
        named, because, alone = _pairs(traces, chosen, None, (1, 1, 5)), _TOGETHER[chosen], _ALONE[chosen]
    else:
        named = [(_file_name(one), _file_name(two)) for one, two in pairs]
        because, alone = "given by hand", "it was given no partner that is there"

    def pair(one: Side, two: Side) -> Alignment:
        return _alignment(one, two, named, because, alone)

    policy = policy_named(rtol=rtol, atol=atol)
    request = Request(traces, policy, pair, workers=workers, equal_nan=equal_nan)
    comparison = compare_traces(request, pictures=pictures, progress=progress)
    return replace(comparison, remarks=(*comparison.remarks, *_remarks(comparison, traces, named, atol)))


def measure_arrays(
    left: np.ndarray[Any, Any], right: np.ndarray[Any, Any], *, rtol: float = 1e-4, atol: float = 1e-4
) -> Measurement:
    """All numbers about two arrays of one shape; `rtol` is relative to the left."""
    from ..measure.values import measure

    arrays, kinds = [], []
    for array in (left, right):
        kind = element_type(array.dtype)
        if kind is None:
            raise UsageError(f"expected arrays of numbers, got one of {array.dtype}.")
        arrays.append(np.asarray(array, array.dtype.newbyteorder("<")))
        kinds.append(kind)
    return measure(arrays[0], arrays[1], kinds[0], kinds[1], rtol=rtol, atol=atol)


def _chosen(by: str) -> By:
    if by not in [item.value for item in By]:
        raise UsageError(f"by: expected one of {', '.join(By)}, got {by!r}.")
    return By(by)


def _file_name(name: str | None) -> str | None:
    return name if name is None or name.endswith(".npy") else f"{name}.npy"


def _files(trace: Trace) -> dict[str, Call]:
    return {call.site.name: call for call in trace.journal(0).calls()}


def _pairs(
    traces: tuple[Trace, Trace], by: By, key: Callable[[str], Any] | None, costs: tuple[float, float, float]
) -> list[NamePair]:
    from ..align import files

    names = [[*_files(trace)] for trace in traces]
    if key is not None:
        names = [sorted(side, key=key) for side in names]
    if by is By.NAME:
        pairs = files.by_name(*names)
    elif by is By.NUMBER:
        pairs = files.by_number(*names)
    else:
        shapes = [_shapes(trace, side) for trace, side in zip(traces, names, strict=True)]
        pairs, _ = files.by_shape(*shapes, drop=costs[0], add=costs[1], change=costs[2])
    return [(None if one is None else names[0][one], None if two is None else names[1][two]) for one, two in pairs]


def _shapes(trace: Trace, names: Sequence[str]) -> list[object]:
    """Shapes of files. For one that cannot be read, its name: unlike all others of its side, like its namesake of the other."""
    journal, calls = trace.journal(0), _files(trace)
    tensors = [journal.tensor(calls[name].id) for name in names]
    return [name if tensor.is_lost else tensor.spec.shape for name, tensor in zip(names, tensors, strict=True)]


def _alignment(left: Side, right: Side, named: Sequence[NamePair], because: str, alone: str) -> Alignment:
    ours, theirs = ({call.site.name: call for call in side.calls} for side in (left, right))
    matches: list[Match] = []
    only: tuple[list[Alone], list[Alone]] = ([], [])
    for one, two in named:
        mine, other = ours.get(one or ""), theirs.get(two or "")
        if mine is not None and other is not None:
            tensors = TensorPair(Part.OUTPUT, "", "", mine.id, other.id)
            matches.append(Match((mine,), (other,), because, tensors=(tensors,)))
        elif mine is not None:
            only[0].append(Alone(mine, alone if two is None else f"there is no {two}"))
        elif other is not None:
            only[1].append(Alone(other, alone if one is None else f"there is no {one}"))
    return Alignment(tuple(matches), tuple(only[0]), tuple(only[1]))


def _remarks(
    comparison: Comparison, traces: tuple[Trace, Trace], named: Sequence[NamePair], atol: float
) -> Iterator[str]:
    """Remarks on top of the verdicts."""
    tensors = [
        (result, item.verdict.outcome, item.measurement)
        for result in comparison.results
        for item in result.tensors
        if item.measurement is not None
    ]
    small = [
        result
        for result, outcome, measured in tensors
        if outcome is Outcome.ROUNDING and max(measured.max_left or 0.0, measured.max_right or 0.0) <= atol
    ]
    if small:
        yield (
            f"Within the tolerances only because every value is below atol {atol:g}: {counted(len(small), 'pair')}, "
            f"first {places(small[0])}. A smaller atol would tell."
        )
    nan = [result for result, outcome, measured in tensors if outcome.good and measured.nan_both]
    if nan:
        yield f"NaN on both sides: {counted(len(nan), 'pair')}, first {places(nan[0])}."
    there = [_files(trace).keys() for trace in traces]
    for number, side in enumerate(("left", "right")):
        asked = {pair[number] for pair in named}
        ignored = [name for name in there[number] if name not in asked]
        if ignored:
            yield f"Not among the pairs that were given: {counted(len(ignored), 'file')} of the {side}, first {ignored[0]}."
    gone = [pair for pair in named if pair[0] not in there[0] and pair[1] not in there[1]]
    if gone:
        yield f"Given by hand, and not there: {counted(len(gone), 'pair')}, first {gone[0]}."
