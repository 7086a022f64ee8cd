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

from .rows import AS_IT_IS, NOTHING, NUMBERS, Cell, Generation, Mode, Row

PASS, WARNING, ERROR = "pass", "warning", "error"
FAILURES = frozenset({"No", "Unmatched", "Different", "Warning", WARNING, ERROR})
"""Verdicts that the advisor looks for."""

# Of these the values mean nothing: memory that nobody has written to yet, and copies to other places.
_MEANINGLESS = frozenset({
    "empty", "empty_like", "empty_strided", "empty_with_format", "new_empty", "new_empty_strided",
    "numpy", "to", "__setitem__",
})  # fmt: skip
# Arguments of these are buffers that the call fills.
_BUFFERS_IN = frozenset({"_reduce_scatter_base", "_all_gather_base", "all_to_all_single", "batch_isend_irecv"})


def judge(rows: Sequence[Row], mode: Mode, generation: Generation) -> None:
    """Fill in `verdict` and `messages` of the rows of one record."""
    if generation is Generation.NEWER and not mode.of_kernels:
        _judge_newer(rows, mode)
        return
    for row in rows:
        row.verdict = _OLDER[mode](row)
        row.messages += [text for text in (*_missing(row), row.unread, row.differs, row.remark) if text]
        if row.consistent == "False" and row.matched:
            row.messages.append("requires_grad differs.")


def _missing(row: Row) -> list[str]:
    if row.matched:
        return [row.pair.because] if "fuzzy" in row.pair.because else []
    return [f"No {'bench' if row.pair.bench is None else 'NPU'} data matched.", row.pair.because]


# Older --------------------------------------------------------------------------------------------------------------


def _reached(row: Row) -> str:
    cosine, error = row.numbers[0], row.numbers[2]
    if row.differs or cosine == NOTHING:
        return "No"
    if cosine == "shape unmatched":
        return "Unmatched"
    if not isinstance(error, float) or cosine == "unsupported":
        return "None"
    if not isinstance(cosine, float):  # one side is all zeros, the other is not
        return "No" if error > 0.001 else "Yes"
    far = cosine < 0.9 or error > 1 or (cosine < 0.99 and error > 0.001)
    return _far(row, far, f"The cosine is {cosine}, the largest error {error}.")


def _warned(row: Row) -> str:
    if row.unread or not row.matched:
        return "Warning"
    far = any(_apart(one, two) > 0.5 for one, two in zip(row.npu.numbers, row.bench.numbers, strict=True))
    _far(row, far, "A statistic differs by more than half of the larger one.")
    return "Warning" if far or row.differs else ""


def _alike(row: Row) -> str:
    if row.unread or not row.matched:
        return NOTHING
    return PASS if row.npu.md5 == row.bench.md5 else "Different"


def _kernel_reached(row: Row) -> str:
    if row.unread or not row.matched:
        return "None"
    if row.npu.shape != row.bench.shape and row.pair.layout == AS_IT_IS:
        return "Unmatched"
    one, two = row.npu.numbers[0], row.bench.numbers[0]
    if row.differs or one == two:
        return "No" if row.differs else "Yes"
    far = not isinstance(one, NUMBERS) or not isinstance(two, NUMBERS) or _apart(one, two) > 0.5
    return _far(row, far, f"The largest values are {one} | {two}: more than half of the larger one apart.")


_OLDER: dict[Mode, Callable[[Row], str]] = {
    Mode.TENSOR: _reached,
    Mode.KERNEL: _reached,
    Mode.STATISTICS: _warned,
    Mode.MD5: _alike,
    Mode.KERNEL_STATISTICS: _kernel_reached,
}


def _far(row: Row, far: bool, text: str) -> str:
    """`No`, and why, or `Yes`."""
    if far:
        row.messages.append(text)
    return "No" if far else "Yes"


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


# Newer --------------------------------------------------------------------------------------------------------------


def _judge_newer(rows: Sequence[Row], mode: Mode) -> None:
    before, after = [row for row in rows if not row.output], [row for row in rows if row.output]
    function = before[0].name.split(".", 2)[1:2] if before else []  # `linear` of Functional.linear.0.forward
    meaningless, fills = (any(name in names for name in function) for names in (_MEANINGLESS, _BUFFERS_IN))
    looked_at = () if meaningless else after if fills else rows
    for row in rows:
        row.verdict = PASS
        if not row.matched:
            _add(row, WARNING, " ".join(filter(None, _missing(row))))
        if row.unread:
            _add(row, ERROR, row.unread)
    if mode is Mode.MD5:
        for row in looked_at:
            if row.matched and row.npu.md5 != row.bench.md5:
                lonely = NOTHING in (row.npu.md5, row.bench.md5)
                text = "Only one side has a CRC-32." if lonely else "The CRC-32 of the two sides differ."
                _add(row, WARNING if lonely else ERROR, text)
        return
    for row in looked_at:
        if row.npu.numbers != row.bench.numbers and _overflowed(row.npu.numbers) and not _overflowed(row.bench.numbers):
            _add(row, ERROR, "The largest or smallest value of the NPU is NaN or infinite.")
    results = () if meaningless or fills else after
    came_in = 0.0 if mode is Mode.TENSOR else max((_share(row.numbers[7]) for row in before), default=0.0)
    if results and mode is Mode.TENSOR:
        if _least(before, 4) > 0.9 and _least(results, 4) < 0.6:
            text = "Of what went in more than 90 % of the elements agree to a thousandth, of a result less than 60 %."
            _add(results[0], ERROR, text)
    elif came_in < 0.1:
        for row in results:
            if _share(row.numbers[7], infinite=True) > 0.5:
                text = "The norm of a result is off by more than 50 %, those of what went in by less than 10 %."
                _add(row, ERROR, text)
    for row in looked_at:
        if row.matched:
            _judge_facts(row)
    if results and mode is Mode.TENSOR:
        if (cosine := _least(before, 0)) > 0.9 and cosine - _least(results, 0) > 0.1:
            _add(results[0], WARNING, "The cosine falls by more than 0.1 in this call.")
    elif results:
        went_out = max(_share(row.numbers[7]) for row in results)
        if went_out > 0.1 if came_in == 0 else went_out / came_in > 10:
            _add(results[0], WARNING, "The relative error of the norm grows more than tenfold in this call.")


def _add(row: Row, verdict: str, text: str) -> None:
    if row.verdict != ERROR:
        row.verdict = verdict
    row.messages.append(f"{verdict}: {text}")


def _overflowed(numbers: Sequence[Cell]) -> bool:
    high, low = numbers[0], numbers[1]
    if type(high) is type(low) is float:
        return math.isinf(high) or math.isinf(low)
    return any(number == "Nan" or (isinstance(number, float) and math.isinf(number)) for number in (high, low))


def _judge_facts(row: Row) -> None:
    """Add an error for each fact that must be the same whatever the values are, and is not."""
    npu, bench = row.npu, row.bench
    if row.consistent == "False":
        _add(row, ERROR, "requires_grad differs.")
    scalars = npu.shape == "[]" and "class" in npu.dtype and "class" in bench.dtype
    if scalars and not row.output and npu.numbers[0] != bench.numbers[0]:
        _add(row, ERROR, row.differs or "An argument that is no tensor differs.")
    if npu.dtype != bench.dtype and _plain(npu.dtype) != _plain(bench.dtype):
        _add(row, ERROR, "The element types differ.")
    if npu.shape != bench.shape and row.pair.layout == AS_IT_IS:
        _add(row, ERROR, "The shapes differ.")


def _plain(dtype: str) -> str:
    """`float32` of `torch.float32` and of `Float32`."""
    return dtype.removeprefix("torch.").lower()


def _least(rows: Sequence[Row], place: int) -> float:
    return min((value for row in rows if isinstance(value := row.numbers[place], float)), default=1.0)


def _share(relative: Cell, *, infinite: bool = False) -> float:
    """`12.5%` is 0.125. What is no percentage counts as nothing, an infinity only where it is asked for."""
    if isinstance(relative, str):
        return float(relative[:-1]) / 100 if relative.endswith("%") else 0.0
    return math.inf if infinite and isinstance(relative, float) else 0.0


# Colours ------------------------------------------------------------------------------------------------------------

RED, YELLOW = "red", "yellow"
FILLS = {RED: "FF0000", YELLOW: "FFFF00"}


def colour(rows: Sequence[Row], mode: Mode, generation: Generation) -> None:
    """Colour the rows of one record, and say why. Each result is compared with everything that went in; results of the newer
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
            row.colour = {ERROR: RED, WARNING: YELLOW}.get(row.verdict)
    elif mode is not Mode.MD5:
        before = [row for row in rows if not row.output and _comparable(row, mode)]
        for row in rows:
            marks = [*_marks_alone(row, mode)]
            if not marks and row.output and before and _comparable(row, mode):
                marks = [*_marks_against(before, row, mode)]
            row.colour = RED if any(mark == RED for mark, _ in marks) else YELLOW if marks else None
            row.messages += [text for mark, text in marks if mark == row.colour]
            differs = row.differs or (row.consistent == "False" and row.matched)
            # Of many kernels only what comes out is known, so there is nothing to compare it with.
            if row.colour is None and (differs or (mode.of_kernels and row.verdict in ("No", "Unmatched"))):
                row.colour = YELLOW


def _marks_alone(row: Row, mode: Mode) -> Iterator[tuple[str, str]]:
    if any(number == "Nan" or (isinstance(number, float) and number - number != 0) for number in row.npu.numbers[:2]):
        yield RED, "The largest or smallest value is NaN or infinite."
    elif _error(row, mode) > 1e10:
        yield RED, "The largest error is above 1e10."


def _marks_against(before: Sequence[Row], row: Row, mode: Mode) -> Iterator[tuple[str, str]]:
    """(colour, reason) of a result: each rule holds if it does for one of the inputs."""
    error = _error(row, mode)
    if error > 1 and any(_error(other, mode) > 1 and error >= 10 * _error(other, mode) for other in before):
        yield YELLOW, "Errors above 1 go in and come out, and what comes out is at least ten times as large."
    after = _number(row.numbers[4])
    inputs = [number for other in before if (number := _number(other.numbers[4])) is not None]
    if mode.reads:
        if after is not None and after < 0.6 and any(number > 0.9 for number in inputs):
            yield RED, "More than 0.9 of what goes in agrees to a thousandth, less than 0.6 of what comes out."
        elif after is not None and any(number - after > 0.1 for number in inputs):
            yield YELLOW, "The share that agrees to a thousandth falls by more than 0.1."
        cosine, cosines = _number(row.numbers[0]), (_number(other.numbers[0]) for other in before)
        if cosine is not None and any(number is not None and number - cosine > 0.1 for number in cosines):
            yield YELLOW, "The cosine falls by more than 0.1."
    elif after is not None and after > 0.5:
        yield RED, "The largest value is off by more than 50 %."
    elif after is not None and after > 0.1 and any(number < 0.01 for number in inputs):
        yield YELLOW, "The largest value is off by more than 10 %, what goes in by less than 1 %."


def _error(row: Row, mode: Mode) -> float:
    """Magnitude of the largest error, or of the difference of the largest values; 0 where there is none."""
    return abs(_number(row.numbers[2 if mode.reads else 0]) or 0.0)


def _comparable(row: Row, mode: Mode) -> bool:
    numbers = (row.npu.numbers[0], row.bench.numbers[0], _number(row.numbers[2 if mode.reads else 0]))
    return all(isinstance(number, NUMBERS) for number in numbers)


def _number(value: Cell) -> float | None:
    if isinstance(value, str):
        return float(value[:-1]) / 100 if value.endswith("%") else None
    return float(value) if isinstance(value, NUMBERS) else None
