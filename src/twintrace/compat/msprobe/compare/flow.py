"""A comparison from end to end: what is asked for in, tables in a directory out.

    request ─places─▶ dumps ─items─▶ pairing ─pairs─▶ rows ─table─▶ compare_result_{timestamp}.xlsx, advisor_{timestamp}.txt

A place is one rank of one step. Each gets its own files; one that cannot be compared does not keep the others from being so, and
is told of at the end. A file is written whole, or not at all.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from ....model.errors import ReportError, TwintraceError, UsageError
from ..dumps import Dump, open_dump, read_stacks
from .mappings import read_api_mapping, read_cell_mapping, read_data_mapping, read_layer_mapping, write_data_mapping
from .pairing import Pairing, Wishes, pair_items
from .request import Place, Request

__all__ = ["Settings", "run"]

Say = Callable[[str], None]
MappingFile = Path | bool | None
"""A file; True: without a file; None or False: not at all."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How to compare, besides what.

    stacks   a column that says where each API was called      advise   advice on the first row that fails
    xlsx     a spreadsheet; otherwise csv                      verbose  name rows that fail
    """

    output: Path = Path("output")
    stacks: bool = False
    advise: bool = True
    xlsx: bool = True
    verbose: bool = True
    fuzzy: bool = False
    api_mapping: MappingFile = None
    cell_mapping: MappingFile = None
    data_mapping: MappingFile = None
    layer_mapping: MappingFile = None


def run(request: Request, settings: Settings, say: Say) -> tuple[Path, ...]:
    """Compare every place that was asked for; the files that were written. `say` is told what people want to know."""
    wishes = _wishes(settings)
    if request.kernels and (settings.fuzzy or wishes.mapped or settings.stacks):
        raise UsageError("kernel dumps are compared with -i and -o alone: they have no APIs, cells, layers or stacks.")
    _make(settings.output)
    stamp = time.strftime("%Y%m%d%H%M%S")
    for remark in request.remarks:
        say(remark)
    written: list[Path] = []
    failures: list[str] = []
    for place in request.places:
        try:
            written += _compare(place, request, settings, wishes, stamp, say)
        except TwintraceError as error:
            if len(request.places) == 1:
                raise
            failures.append(f"{place.label.strip('_').replace('_', ' ')}: {error}")
            say(failures[-1])
    if failures:
        done = len(request.places) - len(failures)
        raise UsageError(
            f"{len(failures)} of {len(request.places)} ranks and steps could not be compared: {failures[0]}"
            + (f" The tables of the other {done} are in {settings.output}." if done else "")
        )
    return tuple(written)


def _compare(
    place: Place, request: Request, settings: Settings, wishes: Wishes, stamp: str, say: Say
) -> Iterator[Path]:
    """One rank of one step."""
    from .advisor import advise
    from .rows import make_table
    from .sheets import write_table

    if request.kernels:
        npu, bench, pairing = _kernels(place)
    else:
        npu, bench = open_dump(place.npu), open_dump(place.bench)
        npu = _with_stacks(npu, request, settings)
        pairing = pair_items(npu, bench, wishes)
    for problem in (*npu.problems, *bench.problems, *pairing.remarks):
        say(problem)
    table = make_table(npu, bench, pairing.pairs, stacks=settings.stacks, kernels=request.kernels, legacy=settings.legacy)
    name = f"{place.label}_{stamp}"
    written = settings.output / f"compare_result{name}.{'xlsx' if settings.xlsx else 'csv'}"
    write_table(table, written)
    yield written
    if wishes.layers is not None:
        mapping = settings.output / f"data_mapping{name}.yaml"
        write_data_mapping(mapping, pairing.names)
        yield mapping
    if settings.advise:
        advice = settings.output / f"advisor{name}.txt"
        advice.write_text(advise(table), encoding="utf-8")
        yield advice
