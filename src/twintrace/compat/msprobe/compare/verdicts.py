"""Verdict on a row and its colour, by the rules of the tool.

    older    Accuracy Reached or Not    Yes · No · Unmatched (shapes) · None (not compared)           values
             Result                     Warning or nothing                                            statistics
             Result                     pass · Different · N/A (not compared)                         hashes
    newer    Result                     pass · warning · error, with a list of the reasons            all

The newer generation looks at a record as a whole: what went in beside what came out. One rule is ours: what was not read, and
what has no partner, is never `pass`. SURFACE.md lists the others that are meant to differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from ....model.pairs import Layout
from .rows import NOTHING, NUMBERS, Cell, Generation, Mode, Row

PASS, WARNING, ERROR = "pass", "warning", "error"
FAILURES = frozenset({"No", "Unmatched", "Different", "Warning", WARNING, ERROR})
"""Verdicts that the advisor looks for."""

_AS_IT_IS = Layout()
# Of these the values mean nothing: memory that nobody has written to yet, and copies to other places.
_MEANINGLESS = frozenset({
    "empty", "empty_like", "empty_strided", "empty_with_format", "new_empty", "new_empty_strided",
    "numpy", "to", "__setitem__",
})  # fmt: skip
# Arguments of these are buffers that the call fills.
_BUFFERS_IN = frozenset({"_reduce_scatter_base", "_all_gather_base", "all_to_all_single", "batch_isend_irecv"})


def judge(rows: Sequence[Row], mode: Mode, generation: Generation) -> None:
    """Fill in `verdict` and `messages` of the rows of one record."""
    if generation is Generation.OLDER or mode.of_kernels:
        for row in rows:
            row.verdict = _OLDER[mode](row)
            row.messages += [text for text in (*_missing(row), row.unread, row.differs, row.remark) if text]
            if row.consistent == "False" and row.matched:
                row.messages.append("requires_grad differs.")
    else:
        _judge_newer(rows, mode)


def _missing(row: Row) -> list[str]:
    if row.matched:
        return [row.pair.because] if "fuzzy" in row.pair.because else []
    side = "bench" if row.pair.bench is None else "NPU"
    return [f"No {side} data matched.", row.pair.because]


# Older --------------------------------------------------------------------------------------------------------------


def _reached(row: Row) -> str:
    cosine, error = row.numbers[0], row.numbers[2]
    if row.differs:
        return "No"
    if cosine == "shape unmatched":
        return "Unmatched"
    if cosine == NOTHING:
        return "No"
    if not isinstance(error, float) or cosine == "unsupported":
        return "None"
    if not isinstance(cosine, float):  # one side is all zeros, the other is not
        return "No" if error > 0.001 else "Yes"
    far = cosine < 0.9 or error > 1 or (cosine < 0.99 and error > 0.001)
    if far:
        row.messages.append(f"The cosine is {cosine}, the largest error {error}.")
    return "No" if far else "Yes"


def _warned(row: Row) -> str:
    if row.unread or not row.matched:
        return "Warning"
    far = any(_apart(one, two) > 0.5 for one, two in zip(row.npu.numbers, row.bench.numbers, strict=True))
    if far:
        row.messages.append("A statistic differs by more than half of the larger one.")
    return "Warning" if far or row.differs else ""


def _alike(row: Row) -> str:
    if row.unread or not row.matched:
        return NOTHING
    return PASS if row.npu.md5 == row.bench.md5 else "Different"


def _kernel_reached(row: Row) -> str:
    if row.unread or not row.matched:
        return "None"
    if row.npu.shape != row.bench.shape and row.pair.layout == _AS_IT_IS:
        return "Unmatched"
    one, two = row.npu.numbers[0], row.bench.numbers[0]
    if row.differs:
        return "No"
    if one == two:
        return "Yes"
    far = not _numeric(one) or not _numeric(two) or _apart(one, two) > 0.5
    if far:
        row.messages.append(f"The largest values are {one} | {two}: more than half of the larger one apart.")
    return "No" if far else "Yes"


_OLDER: dict[Mode, Callable[[Row], str]] = {
    Mode.TENSOR: _reached,
    Mode.KERNEL: _reached,
    Mode.STATISTICS: _warned,
    Mode.MD5: _alike,
    Mode.KERNEL_STATISTICS: _kernel_reached,
}


def _apart(npu: Cell, bench: Cell) -> float:
    """Distance as a share of the larger; 0 where one of them is no number."""
    if not isinstance(npu, NUMBERS) or not isinstance(bench, NUMBERS) or npu == bench:
        return 0.0
    try:
        if math.isinf(npu) or math.isinf(bench):
            return math.inf
        return abs(npu - bench) / (max(abs(npu), abs(bench)) + 1e-10)
    except OverflowError:  # a whole number that no float holds
        return math.inf


def _numeric(value: Cell) -> bool:
    return isinstance(value, NUMBERS)


# Newer --------------------------------------------------------------------------------------------------------------


def _judge_newer(rows: Sequence[Row], mode: Mode) -> None:
    before, after = [row for row in rows if not row.output], [row for row in rows if row.output]
    called = _called(before[0]) if before else ""
    looked_at = () if called in _MEANINGLESS else after if called in _BUFFERS_IN else rows
    whole = called not in _MEANINGLESS and called not in _BUFFERS_IN
    for row in rows:
        row.verdict = PASS
        if not row.matched:
            _add(row, WARNING, " ".join(filter(None, _missing(row))))
        if row.unread:
            _add(row, ERROR, row.unread)
    if mode is Mode.MD5:
        for row in looked_at:
            _hashes(row)
        return
    for row in looked_at:
        if row.npu.numbers != row.bench.numbers and _overflowed(row.npu.numbers) and not _overflowed(row.bench.numbers):
            _add(row, ERROR, "The largest or smallest value of the NPU is NaN or infinite.")
    of_values = mode is Mode.TENSOR
    came_in = 0.0 if of_values else max((_share(row.numbers[7]) for row in before), default=0.0)
    if whole and after:
        _shares(before, after) if of_values else _norms(came_in, after)
    for row in looked_at:
        if row.matched:
            _facts(row)
    if whole and after:
        _cosines(before, after) if of_values else _growth(came_in, after)


def _called(row: Row) -> str:
    parts = row.name.split(".", 2)
    return parts[1] if len(parts) > 1 else ""


def _add(row: Row, verdict: str, text: str) -> None:
    if row.verdict != ERROR:
        row.verdict = verdict
    row.messages.append(f"{verdict}: {text}")


def _hashes(row: Row) -> None:
    if row.npu.md5 == row.bench.md5 or not row.matched:
        return
    if NOTHING in (row.npu.md5, row.bench.md5):
        _add(row, WARNING, "Only one side has a CRC-32.")
    else:
        _add(row, ERROR, "The CRC-32 of the two sides differ.")


def _overflowed(numbers: Sequence[Cell]) -> bool:
    high, low = numbers[0], numbers[1]
    if type(high) is type(low) is float:
        return math.isinf(high) or math.isinf(low)
    return any(each == "Nan" or (isinstance(each, float) and math.isinf(each)) for each in (high, low))


def _facts(row: Row) -> None:
    """Facts that must be the same whatever the values are."""
    npu, bench = row.npu, row.bench
    if row.consistent == "False":
        _add(row, ERROR, "requires_grad differs.")
    scalars = npu.shape == "[]" and "class" in npu.dtype and "class" in bench.dtype
    if scalars and not row.output and npu.numbers[0] != bench.numbers[0]:
        _add(row, ERROR, row.differs or "An argument that is no tensor differs.")
    if npu.dtype != bench.dtype and _plain(npu.dtype) != _plain(bench.dtype):
        _add(row, ERROR, "The element types differ.")
    if npu.shape != bench.shape and row.pair.layout == _AS_IT_IS:
        _add(row, ERROR, "The shapes differ.")


def _plain(dtype: str) -> str:
    """`torch.float32` and `Float32` are one type."""
    return dtype.removeprefix("torch.").lower()


def _norms(came_in: float, after: Sequence[Row]) -> None:
    if came_in < 0.1:
        for row in after:
            if _share(row.numbers[7], infinite=True) > 0.5:
                _add(
                    row,
                    ERROR,
                    "The norm of a result is off by more than 50 %, those of what went in by less than 10 %.",
                )


def _growth(came_in: float, after: Sequence[Row]) -> None:
    went_out = max(_share(row.numbers[7]) for row in after)
    if went_out > 0.1 if came_in == 0 else went_out / came_in > 10:
        _add(after[0], WARNING, "The relative error of the norm grows more than tenfold in this call.")


def _shares(before: Sequence[Row], after: Sequence[Row]) -> None:
    if _least(before, 4) > 0.9 and _least(after, 4) < 0.6:
        text = "Of what went in more than 90 % of the elements agree to a thousandth, of a result less than 60 %."
        _add(after[0], ERROR, text)


def _cosines(before: Sequence[Row], after: Sequence[Row]) -> None:
    came_in = _least(before, 0)
    if came_in > 0.9 and came_in - _least(after, 0) > 0.1:
        _add(after[0], WARNING, "The cosine falls by more than 0.1 in this call.")


def _least(rows: Sequence[Row], place: int) -> float:
    return min((value for row in rows if isinstance(value := row.numbers[place], float)), default=1.0)


def _share(relative: Cell, *, infinite: bool = False) -> float:
    """`12.5%` is 0.125. What is no percentage counts as nothing, an infinity only where it is asked for."""
    if isinstance(relative, str):
        return float(relative[:-1]) / 100 if relative.endswith("%") else 0.0
    return math.inf if infinite and isinstance(relative, float) else 0.0


RED, YELLOW = "red", "yellow"
FILLS = {RED: "FF0000", YELLOW: "FFFF00"}
_VERDICTS = {"error": RED, "warning": YELLOW}
_Found: TypeAlias = "tuple[str, str]"


def colour(rows: Sequence[Row], mode: Mode, generation: Generation) -> None:
    """Colour the rows of one record, and say why. Each result is held against everything that went in; results of the newer
    generation are coloured by their verdict.

    red       the NPU's largest or smallest value is NaN or infinite · an error above 1e10
              values:      a thousandth ratio above 0.9 goes in, below 0.6 comes out
              statistics:  a result's MaxRelativeErr is above 0.5
    yellow    both errors above 1, and the result's ten times as large
              values:      the thousandth ratio, or the cosine, falls by more than 0.1
              statistics:  a result's MaxRelativeErr is above 0.1, below 0.01 went in
              kernels: not accurate
              requires_grad differs · an argument that is no tensor, shapes or the kinds of elements differ
    """
    if generation is Generation.NEWER and not mode.of_kernels:
        for row in rows:
            row.colour = _VERDICTS.get(row.verdict)
    elif mode in _MARKS:
        before, after = [row for row in rows if not row.output], [row for row in rows if row.output]
        for row in rows:
            _apply(row, [*_alone(row, mode)])
        for row in after:
            if row.colour != RED and _comparable(row, mode):
                others = (other for other in before if _comparable(other, mode))
                _apply(row, [mark for other in others for mark in _MARKS[mode](other, row)])
        for row in rows:
            if (row.differs or (row.consistent == "False" and row.matched)) and row.colour is None:
                row.colour = YELLOW
            elif mode.of_kernels and row.verdict in ("No", "Unmatched") and row.colour is None:
                row.colour = YELLOW  # of many kernels only what comes out is known, so nothing to hold it against


def _apply(row: Row, found: Sequence[_Found]) -> None:
    """Red wins, and then only the red reasons are told; each once."""
    shade = RED if any(shade == RED for shade, _ in found) else YELLOW if found else None
    if shade is not None:
        row.colour = shade
        row.messages += dict.fromkeys(text for each, text in found if each == shade)


def _alone(row: Row, mode: Mode) -> Iterator[_Found]:
    if any(each in ("Nan",) or (isinstance(each, float) and each - each != 0) for each in row.npu.numbers[:2]):
        yield RED, "The largest or smallest value is NaN or infinite."
    elif abs(_error(row, mode) or 0.0) > 1e10:
        yield RED, "The largest error is above 1e10."


def _error(row: Row, mode: Mode) -> float | None:
    return _number(row.numbers[2 if mode.reads else 0])


def _comparable(row: Row, mode: Mode) -> bool:
    numbers = (row.npu.numbers[0], row.bench.numbers[0], _error(row, mode))
    return all(isinstance(each, NUMBERS) for each in numbers)


def _grows(one: Row, two: Row, mode: Mode) -> Iterator[_Found]:
    before, after = abs(_error(one, mode) or 0.0), abs(_error(two, mode) or 0.0)
    if before > 1 and after > 1 and after >= 10 * before:
        yield YELLOW, "Errors above 1 go in and come out, and what comes out is at least ten times as large."


def _of_values(one: Row, two: Row) -> Iterator[_Found]:
    yield from _grows(one, two, Mode.TENSOR)
    before, after = _number(one.numbers[4]), _number(two.numbers[4])
    if before is not None and after is not None:
        if before > 0.9 and after < 0.6:
            yield RED, "More than 0.9 of what goes in agrees to a thousandth, less than 0.6 of what comes out."
        elif before - after > 0.1:
            yield YELLOW, "The share that agrees to a thousandth falls by more than 0.1."
    before, after = _number(one.numbers[0]), _number(two.numbers[0])
    if before is not None and after is not None and before - after > 0.1:
        yield YELLOW, "The cosine falls by more than 0.1."


def _of_statistics(one: Row, two: Row) -> Iterator[_Found]:
    yield from _grows(one, two, Mode.STATISTICS)
    before, after = _number(one.numbers[4]), _number(two.numbers[4])
    if after is not None and after > 0.5:
        yield RED, "The largest value is off by more than 50 %."
    elif before is not None and after is not None and after > 0.1 and before < 0.01:
        yield YELLOW, "The largest value is off by more than 10 %, what goes in by less than 1 %."


_MARKS: dict[Mode, Callable[[Row, Row], Iterator[_Found]]] = {
    Mode.TENSOR: _of_values,
    Mode.STATISTICS: _of_statistics,
    Mode.KERNEL: _of_values,
    Mode.KERNEL_STATISTICS: _of_statistics,
}


def _number(value: Cell) -> float | None:
    if isinstance(value, str):
        return float(value[:-1]) / 100 if value.endswith("%") else None
    return float(value) if isinstance(value, NUMBERS) else None
