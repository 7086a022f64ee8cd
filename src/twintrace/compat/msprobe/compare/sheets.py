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
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import groupby
from pathlib import Path

from .... import api
from ....model.errors import ReportError, UsageError
from ..dumps import Dump
from .advisor import Advisor
from .pairing import ItemPair
from .rows import Generation, Mode, Row, cells_of, columns, make_row, mode_of
from .verdicts import FILLS, colour, judge

_WIDTHS = {"NPU Name": 52, "Bench Name": 52, "Err_message": 40, "NPU_Stack_Info": 40, "Data_name": 40}


def write_result(
    npu: Dump,
    bench: Dump,
    pairs: Iterable[ItemPair],
    *,
    output: str | Path,
    name: str = "compare_result",
    generation: Generation = Generation.OLDER,
    stack: bool = False,
    xlsx: bool | None = None,
    advise: bool | None = None,
    stamp: str | None = None,
    say: Callable[[str], object] | None = None,
) -> Advisor:
    """Write the result of one rank and step.

    output   the directory, made if it is not there              name    of the file, before the time: `compare_result_rank0`
    stack    with the stacks of the npu's dump                   xlsx    a spreadsheet; else the generation decides
    advise   with an advisor_{time}.txt; else the older generation has one
    stamp    the time in the names of the files; else now        say     is called with a line for each row whose values are read
    """
    mode, older = common_mode(npu, bench), generation is Generation.OLDER
    stamp = stamp or time.strftime("%Y%m%d%H%M%S")
    folder = made_folder(Path(output))
    advisor = Advisor()
    advisor.path = folder / f"{name}_{stamp}.{'xlsx' if (older if xlsx is None else xlsx) else 'csv'}"
    heads = columns(generation, mode, stack=stack)
    widths = [_WIDTHS.get(head, max(12, len(head) + 3)) for head in heads]
    made = _measured(npu, bench, pairs, mode, generation, say) if mode.reads else (
        make_row(pair, mode, generation) for pair in pairs
    )  # fmt: skip

    def rows() -> Iterator[tuple[str | None, list[str | float | int | bool | None]]]:
        """Colour and cells of each row, a record at a time."""
        for record, found in _records(made):
            judge(found, mode, generation)
            colour(found, mode, generation)
            advisor.see(found)
            if stack and record in npu.stacks:
                found[0].stack = str([*npu.stacks[record]])  # once for each record
            for row in found:
                yield row.colour, cells_of(row, mode, generation, stack=stack)

    api.write_table(advisor.path, heads, rows(), fills=FILLS, widths=widths)
    if older if advise is None else advise:
        advisor.advice = folder / f"{name.replace('compare_result', 'advisor')}_{stamp}.txt"
        api.write_text(advisor.advice, advisor.text(npu.path, bench.path))
    return advisor


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
    record = ""

    def record_of(row: Row) -> str:
        nonlocal record
        record = row.pair.npu.record if row.pair.npu is not None else record
        return record

    for name, found in groupby(rows, record_of):
        yield name, [*found]
