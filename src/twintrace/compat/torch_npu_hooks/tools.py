"""`torch_npu.hooks.tools`: `compare` puts two dumps into a csv, one row for each tensor.

    Name                               Npu Tensor Dtype  …  Cosine  RMSE     MAPE
    Functional_linear_forward_output   torch.float32     …  1.0     2.1e-08  0.0000153%

Calls belong together if the project's own alignment says so and they are what the old document asks for: the same name, as many
inputs and outputs, of the same shapes. The rest is skipped, as fused operations are, and every call that is skipped is listed with
the reason in a second file, beside the first.
"""

from __future__ import annotations

import csv
import math
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ... import api
from ...model.errors import TraceError, TraceWriteError, UsageError
from ...model.pairs import Layout, Part
from ...model.records import Call
from ...model.results import CallResult, Comparison, TensorResult
from ...model.sites import Phase
from ...model.tensors import Tensor
from ...model.verdicts import Outcome
from ...store.arrays import as_float
from ...store.trace import Journal, Trace
from ..arguments import path_of
from . import recording
from .layout import READING
from .names import operation_name, parse

NOT_CALCULATED = "cannot be calculated"


class Scores(NamedTuple):
    """The last three cells of a row."""

    cosine: str
    rmse: str
    mape: str


_UNKNOWN = Scores(NOT_CALCULATED, NOT_CALCULATED, NOT_CALCULATED)
_NAN = Scores("nan", "nan", "nan")


def scores(item: TensorResult) -> Scores:
    """From what was measured; where the bits are equal nothing needed to be. `nan`: a number cannot be had, because of an element
    that is not finite, a zero vector's cosine, a zero of the bench for MAPE.
    """
    bench = item.left.statistics
    if bench is None or item.left.missing or item.right.missing:
        return _UNKNOWN
    zeros = bench.zero
    measured = item.measurement
    if measured is None:
        if item.verdict.outcome is not Outcome.SAME:
            return _UNKNOWN
        if bench.nan or bench.posinf or bench.neginf or bench.norm is None:
            return _NAN
        return Scores(_text(1.0 if bench.norm else None), "0.0", _percent(None if zeros else 0.0))
    if measured.finite < measured.count or not measured.count:
        return _NAN
    return Scores(_text(measured.cosine), _text(measured.rmse), _percent(None if zeros else measured.mape))


def legacy_scores(npu: Journal, npu_tensor: Tensor, bench: Journal, bench_tensor: Tensor) -> Scores:
    """As the old tool computed them: a cosine moved into [0, 1], MAPE rounded to four digits, nan and inf included."""
    if npu_tensor.payload is None or bench_tensor.payload is None:
        return _UNKNOWN
    a, b = _flat(npu, npu_tensor), _flat(bench, bench_tensor)
    with np.errstate(all="ignore"):
        cosine = 0.5 + 0.5 * float(np.float64(a @ b) / (np.linalg.norm(a) * np.linalg.norm(b)))
        rmse = float(np.linalg.norm(a - b) / np.sqrt(np.float64(len(a))))
        mape = round(float(np.sum(np.abs((a - b) / b)) / np.float64(len(b)) * 100), 4)
    return Scores(_text(cosine), "" if math.isnan(rmse) else repr(rmse), f"{mape}%")


def _flat(journal: Journal, tensor: Tensor) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    values = as_float(journal.array(tensor), tensor.spec.dtype)
    return np.real(values).astype(np.float64).reshape(-1)


def _text(number: float | None) -> str:
    return "nan" if number is None or math.isnan(number) else repr(number)


def _percent(number: float | None) -> str:
    return "nan" if number is None or math.isnan(number) else f"{number:.10g}%"


COLUMNS = (
    "Name",
    "Npu Tensor Dtype",
    "Bench Tensor Dtype",
    "Npu Tensor Shape",
    "Bench Tensor Shape",
    "Cosine",
    "RMSE",
    "MAPE",
)
SKIPPED_COLUMNS = ("Side", "Name", "Line", "Tensors", "Because")
_SHOWN = 8
"""Skipped calls on the terminal; all of them are in the file."""

PathLike = str | os.PathLike[str]


class _Skipped(NamedTuple):
    """A line of the second file."""

    side: str
    name: str
    line: int
    tensors: str
    because: str


def compare(
    npu_pkl_path: PathLike,
    bench_pkl_path: PathLike,
    output_path: PathLike,
    shape_flag: bool = True,
    *,
    legacy: bool = False,
) -> None:
    """Compare a dump with that of the bench, and write the csv.

    shape_flag   False: calls of the same name are compared although their shapes differ, which no number can then be had of
    legacy       the numbers of the old tool: a cosine moved into [0, 1], MAPE rounded to four digits, nan left empty
    """
    recording.flush()
    target = _target(output_path)
    npu, bench = _opened(npu_pkl_path), _opened(bench_pkl_path)
    with api.progress_bar() as progress:
        reading = READING.set(progress)
        try:
            comparison = api.compare(bench, npu, progress=progress)
        finally:
            READING.reset(reading)
    rows: list[tuple[int, tuple[str, ...]]] = []  # by the line of the npu's dump
    skipped: list[_Skipped] = []
    for result in comparison.results:
        match, journals = result.match, [trace.journal(result.step, result.rank) for trace in (bench, npu)]
        for backward in (False, True):
            pairs = [item for item in result.tensors if _belongs(item.pair.part, backward)]
            strays = [stray.slot for stray in (*match.only_left, *match.only_right) if _belongs(stray.part, backward)]
            if not pairs and not strays:
                continue
            because = _mismatch(result, pairs, strays, shape_flag=shape_flag)
            if because is None:
                rows += [(item.right.id, _row(item, journals, legacy=legacy)) for item in pairs]
                continue
            for side, journal, calls in zip(("bench", "npu"), journals, (match.left, match.right), strict=True):
                for call in calls:
                    skipped += _skipped(side, journal, call, because, backward=backward)
    for side, trace, alone in (("bench", bench, comparison.only_left), ("npu", npu, comparison.only_right)):
        for step, rank, item in alone:
            for backward in (False, True):
                skipped += _skipped(side, trace.journal(step, rank), item.call, item.because, backward=backward)
    if not rows:
        raise TraceError(
            f"{npu.path} and {bench.path} have nothing in common: no call of the one ({_operations(npu)}) has the name and the "
            f"shapes of a call of the other ({_operations(bench)}). Give two dumps of the same model."
        )
    skipped.sort(key=lambda item: (item.side, item.line))
    _write(target, COLUMNS, [cells for _, cells in sorted(rows, key=lambda row: row[0])])
    beside = target.with_name(f"{target.stem}_skipped{target.suffix}")
    _write(beside, SKIPPED_COLUMNS, skipped)
    sys.stdout.write("\n".join(_told(comparison, len(rows), skipped, target, beside)) + "\n")


# --- rows -------------------------------------------------------------------------------------------------------------


def _belongs(part: Part, backward: bool) -> bool:
    return part.backward is backward and part is not Part.PARAMETER


def _mismatch(
    result: CallResult, pairs: Sequence[TensorResult], strays: Sequence[str], *, shape_flag: bool
) -> str | None:
    """Reason that these calls are not the same operation in the sense of the document; None if they are."""
    match = result.match
    left, right = ([_operation(call) for call in calls] for calls in (match.left, match.right))
    if len(left) != 1 or len(right) != 1:
        return f"fused: {' + '.join(right)} beside {' + '.join(left)} of the bench ({match.because})"
    if left != right:
        return f"another name: {right[0]} beside {left[0]} of the bench ({match.because})"
    if strays:
        return f"not as many inputs and outputs: {', '.join(strays)} on one side only"
    for item in pairs:
        if _plain_name(item.left) != _plain_name(item.right):
            return f"{item.right.facts['line']} is what {item.left.facts['line']} of the bench is"
        if shape_flag and (item.left.spec.shape != item.right.spec.shape or item.pair.layout != Layout()):
            return f"other shapes: {item.right.spec} beside {item.left.spec} of the bench"
    return None


def _row(item: TensorResult, journals: Sequence[Journal], *, legacy: bool) -> tuple[str, ...]:
    bench, npu = item.left, item.right
    if bench.spec.shape != npu.spec.shape:
        numbers = Scores(f"{NOT_CALCULATED} " if legacy else NOT_CALCULATED, NOT_CALCULATED, NOT_CALCULATED)
    else:
        numbers = legacy_scores(journals[1], npu, journals[0], bench) if legacy else scores(item)
    dtypes, shapes = (
        (str(side.facts["dtype"]) for side in (npu, bench)),
        (str([*side.spec.shape]) for side in (npu, bench)),
    )
    return str(npu.facts["line"]), *dtypes, *shapes, *numbers


def _plain_name(tensor: Tensor) -> str:
    """The name without the number that later tools put before it, or behind the operation."""
    text = str(tensor.facts["line"])
    name = parse(text, numbered=True)
    return str(name._replace(call=None)) if name else text


# --- what is skipped --------------------------------------------------------------------------------------------------


def _skipped(side: str, journal: Journal, call: Call, because: str, *, backward: bool) -> Iterator[_Skipped]:
    """A line for one direction of a call, if it has tensors."""
    numbers = [number for part, _, _, number in call.tensors() if _belongs(part, backward)]
    if numbers:
        direction = "backward" if backward or call.site.phase is Phase.BACKWARD else "forward"
        tensors = ", ".join(str(journal.tensor(number).spec) for number in sorted(numbers))
        yield _Skipped(side, f"{_operation(call)}_{direction}", min(numbers) + 1, tensors, because)


def _operation(call: Call) -> str:
    return operation_name(call.site.kind, call.site.name, call.site.type)


def _operations(trace: Trace) -> str:
    counts: dict[str, int] = {}
    for call in trace.calls():
        counts[_operation(call)] = counts.get(_operation(call), 0) + 1
    shown = ", ".join(f"{name} ×{count}" for name, count in list(counts.items())[:4])
    return (shown or "none at all") + (f" and {len(counts) - 4} more" if len(counts) > 4 else "")


# --- files and terminal -----------------------------------------------------------------------------------------------


def _target(path: PathLike) -> Path:
    target = path_of("output_path", path, "csv file")
    if target.is_dir():
        raise UsageError(f"output_path: {target} is a directory. Give the name of a csv file in it.")
    if not target.parent.is_dir():
        raise UsageError(f"output_path: the folder {target.parent} does not exist. Make it, or give another path.")
    return target


def _opened(path: PathLike) -> Trace:
    trace = api.open(path, tolerant=True)
    if trace.layout != "torch_npu":
        raise UsageError(
            f"{path} is a trace in the layout {trace.layout}, and its tensors have no names of this tool. Use tt.compare for it."
        )
    return trace


def _write(path: Path, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    try:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows(rows)
    except OSError as error:
        raise TraceWriteError(f"{path} cannot be written ({error.strerror}). Choose another path.") from error


def _told(comparison: Comparison, rows: int, skipped: Sequence[_Skipped], target: Path, beside: Path) -> Iterator[str]:
    yield f"{comparison.right.path} beside {comparison.left.path}: {rows} tensors compared, {len(skipped)} calls skipped."
    for item in skipped[:_SHOWN]:
        yield f"  skipped {item.side} line {item.line}: {item.name} ({item.tensors}): {item.because}"
    if len(skipped) > _SHOWN:
        yield f"  and {len(skipped) - _SHOWN} more"
    for remark in comparison.remarks:
        yield f"  {remark}"
    yield f"  written: {target}, {beside}"
