"""The files of a comparison: the table, and the advice.

    write_result(npu, bench, pairs, output="./output")
        compare_result_20260102030405.xlsx         the table, coloured
        advisor_20260102030405.txt                 the first row that fails, and what to look at
    write_result(…, generation=Generation.NEWER)
        compare_result_20260102030405.csv          xlsx=True for a spreadsheet

Rows are made a record at a time and written as they are made: memory does not grow with the dumps. Values are read and measured
on all cores, one pair each. A file is put in place when it is complete, never before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import TypeAlias

from .... import api
from ....model.errors import ReportError, UsageError
from ..dumps import Dump
from .advisor import Advisor
from .pairing import ItemPair
from .rows import NOTHING, Cell, Generation, Mode, Row, cells_of, columns, make_row, mode_of
from .verdicts import FILLS, colour, judge

Rows: TypeAlias = "Iterator[tuple[str | None, list[Cell]]]"
"""Colour and cells of each."""
_WIDTHS = {"NPU Name": 52, "Bench Name": 52, "Err_message": 40, "NPU_Stack_Info": 40, "Data_name": 40}


@dataclass(frozen=True, slots=True)
class Summary:
    """Files that were written, and their contents in short."""

    path: Path
    rows: int
    verdicts: Mapping[str, int] = field(default_factory=dict)
    """Number of rows with each verdict."""
    first: tuple[int, str] | None = None
    """The first row that fails: its number in the sheet, and its name."""
    arises: tuple[int, str] | None = None
    """The first record that fails although nothing that went in does."""
    unread: int = 0
    """Rows that should have been compared and were not."""
    advice: Path | None = None


def write_result(
    npu: Dump,
    bench: Dump,
    pairs: Iterable[ItemPair],
    *,
    output: str | Path,
    name: str = "compare_result",
    generation: Generation = Generation.OLDER,
    mode: Mode | None = None,
    stack: bool = False,
    xlsx: bool | None = None,
    advise: bool | None = None,
    stamp: str | None = None,
    say: Callable[[str], object] | None = None,
) -> Summary:
    """Write the result of one rank and step.

    output   the directory, made if it is not there              name    of the file, before the time: `compare_result_rank0`
    mode     what is known of the values; else both dumps say it, and must say the same
    stack    with the stacks of the npu's dump                   xlsx    a spreadsheet; else the generation decides
    advise   with an advisor_{time}.txt; else the older generation has one
    stamp    the time in the names of the files; else now        say     is called with a line for each row whose values are read
    """
    mode = mode or common_mode(npu, bench)
    older = generation is Generation.OLDER
    xlsx = older if xlsx is None else xlsx
    advise = older if advise is None else advise
    stamp = stamp or time.strftime("%Y%m%d%H%M%S")
    folder = made_folder(Path(output))
    advisor = Advisor()
    path = folder / f"{name}_{stamp}.{'xlsx' if xlsx else 'csv'}"
    heads = columns(generation, mode, stack=stack)
    widths = [_WIDTHS.get(head, max(12, len(head) + 3)) for head in heads]
    rows = _rows(npu, bench, mode, generation, stack, say, pairs, advisor)
    api.write_table(path, heads, rows, fills=FILLS, widths=widths)
    advice = None
    if advise:
        advice = folder / f"{name.replace('compare_result', 'advisor')}_{stamp}.txt"
        api.write_text(advice, advisor.text(npu.path, bench.path))
    first = advisor.first[:2] if advisor.first else None
    return Summary(path, advisor.line - 1, advisor.verdicts, first, advisor.arises, advisor.unread, advice)


def common_mode(npu: Dump, bench: Dump) -> Mode:
    """The mode of both dumps, which must be the same."""
    one, two = mode_of(npu), mode_of(bench)
    if one is not two:
        raise UsageError(
            f"Expected two dumps of one kind, got {one.value} ({npu.path}) and {two.value} ({bench.path}). "
            f"Record both with the same task and summary_mode."
        )
    return one


def made_folder(path: Path) -> Path:
    """The directory of the results, made if it is not there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ReportError(f"{path}: the directory cannot be made ({error.strerror}). Choose another with -o.") from None
    return path


def _rows(
    npu: Dump,
    bench: Dump,
    mode: Mode,
    generation: Generation,
    stack: bool,
    say: Callable[[str], object] | None,
    pairs: Iterable[ItemPair],
    advisor: Advisor,
) -> Rows:
    """Coloured cells, a record at a time."""
    made = _measured(npu, bench, pairs, mode, generation, say) if mode.reads else (
        make_row(pair, mode, generation) for pair in pairs
    )  # fmt: skip
    for record, rows in _records(made):
        judge(rows, mode, generation)
        colour(rows, mode, generation)
        advisor.see(rows)
        shown = _stack(npu.stacks.get(record)) if stack else None
        for row in rows:
            yield row.colour, cells_of(row, mode, generation, shown)
            shown = NOTHING if stack else None  # once for each record


@lru_cache(maxsize=64)  # calls from one place follow each other
def _stack(frames: tuple[str, ...] | None) -> str:
    return NOTHING if frames is None else str([*frames])


def _measured(
    npu: Dump,
    bench: Dump,
    pairs: Iterable[ItemPair],
    mode: Mode,
    generation: Generation,
    say: Callable[[str], object] | None,
) -> Iterator[Row]:
    from .tensors import measure_pair  # and numpy with it

    for done in api.Local().run(partial(measure_pair, npu, bench), pairs):
        row = make_row(done.item, mode, generation, done.result())
        if say is not None:
            say(f"{row.name}: {', '.join(map(str, row.numbers))} {row.unread or row.remark}".rstrip())
        yield row


def _records(rows: Iterable[Row]) -> Iterator[tuple[str, list[Row]]]:
    """Rows of one record of the npu's, as they come; what only the bench has stays with the rows before it."""
    record, gathered = "", list[Row]()
    for row in rows:
        if row.pair.npu is not None and row.pair.npu.record != record:
            if gathered:
                yield record, gathered
            record, gathered = row.pair.npu.record, []
        gathered.append(row)
    if gathered:
        yield record, gathered
