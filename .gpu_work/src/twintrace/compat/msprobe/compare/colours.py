"""Rows that stand out in a spreadsheet, and why.

    red       the NPU's largest or smallest value is NaN or infinite · an error above 1e10
              values:      a thousandth ratio above 0.9 goes in, below 0.6 comes out
              statistics:  a result's MaxRelativeErr is above 0.5
    yellow    both errors above 1, and the result's ten times as large
              values:      the thousandth ratio, or the cosine, falls by more than 0.1
              statistics:  a result's MaxRelativeErr is above 0.1, below 0.01 went in
              kernels: not accurate
              requires_grad differs · an argument that is no tensor, shapes or the kinds of elements differ

Each result of a record is held against everything that went in. Results of the newer generation are coloured by their verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from .columns import Generation, Mode
from .rows import NUMBERS, Cell, Row

__all__ = ["FILLS", "RED", "YELLOW", "colour"]

RED, YELLOW = "red", "yellow"
FILLS = {RED: "FF0000", YELLOW: "FFFF00"}
_VERDICTS = {"error": RED, "warning": YELLOW}
_Found: TypeAlias = "tuple[str, str]"


def colour(rows: Sequence[Row], mode: Mode, generation: Generation) -> None:
    """Colour the rows of one record, and say why."""
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
