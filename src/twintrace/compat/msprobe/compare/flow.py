"""A comparison from end to end: what is asked for in, tables in a directory out.

    request ─places─▶ dumps ─items─▶ pairing ─pairs─▶ rows ─table─▶ compare_result_{timestamp}.xlsx, advisor_{timestamp}.txt

A place is one rank of one step. Each gets its own files; one that cannot be compared does not keep the others from being so, and
is told of at the end. Rows are made a record at a time and written as they are made: memory does not grow with the dumps. Values
are read and measured on all cores, one pair each. A file is put in place when it is complete, never before.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from .... import api
from ....model.errors import ReportError, TwintraceError, UsageError
from ...arguments import made_folder
from ..dumps import Dump, open_dump, read_stacks
from .advisor import Advisor
from .pairing import ItemPair, Pairing, PairingRules, pair_items
from .request import Place, Request
from .rows import Generation, Mode, Row, cells_of, columns, make_row, mode_of
from .verdicts import FILLS, colour, judge

_WIDTHS = {"NPU Name": 52, "Bench Name": 52, "Err_message": 40, "NPU_Stack_Info": 40, "Data_name": 40}

Say = Callable[[str], object]
MappingFile = str | os.PathLike[str] | bool | None
"""A YAML file; True: the option without a file; None or False: not asked for."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Options of a comparison.

    generation   whose tables: with the columns and verdicts of the commands with a compare.json, or of those with two paths
    xlsx         a spreadsheet, otherwise csv; None: as the generation has it
    stacks       a column that says where each API was called; None: if known
    advise       advice on the first row that fails; None: as the generation has it
    verbose      a line for each row whose values are read
    framework    whose dumps they are said to be
    """

    output: Path = Path("output")
    generation: Generation = Generation.OLDER
    xlsx: bool | None = None
    stacks: bool | None = False
    advise: bool | None = None
    verbose: bool = True
    framework: str | None = None
    rules: PairingRules = field(default_factory=PairingRules)


def run(request: Request, settings: Settings, say: Say) -> tuple[Path, ...]:
    """Compare every place that was asked for; the files that were written. `say` is told what people want to know."""
    kernels = None
    if request.kernels:
        from .kernels import Kernels

        if settings.rules.fuzzy or settings.stacks or settings.rules.mapped:
            raise UsageError(
                "these are kernel dumps, which have no APIs, cells, layers or stacks: -s, -f and the mappings mean nothing for "
                "them. Leave them out."
            )
        kernels = Kernels(request.places[0].npu, request.places[0].bench)
    made_folder("output_path", settings.output, trouble=ReportError)
    written: list[Path] = []
    failures: list[str] = []
    with free_stamp(settings.output) as stamp:
        for remark in request.remarks:
            say(remark)
        for place in request.places:
            try:
                laid_out: tuple[Dump, Dump, Pairing]
                if kernels is not None:
                    laid_out = kernels.pair(place.step or 0, place.rank or 0)
                else:
                    laid_out = _laid_out(place, request, settings)
                written += _compare(place, laid_out, settings, stamp, say, verbose=request.verbose)
            except TwintraceError as error:
                if len(request.places) == 1:
                    raise
                failures.append(f"{place}: {error}")
                say(failures[-1])
    if failures:
        done = len(request.places) - len(failures)
        rest = f" The tables of the other {done} are in {settings.output}." if done else ""
        raise UsageError(f"{len(failures)} of {len(request.places)} comparisons failed, first {failures[0]}{rest}")
    return tuple(written)


def _laid_out(place: Place, request: Request, settings: Settings) -> tuple[Dump, Dump, Pairing]:
    npu, bench = open_dump(place.npu), open_dump(place.bench)
    common_mode(npu, bench)
    if settings.stacks:
        npu = _with_stacks(npu, request.stack if len(request.places) == 1 else None)  # each rank has its own
    return npu, bench, pair_items(npu, bench, settings.rules)


def _compare(
    place: Place, laid_out: tuple[Dump, Dump, Pairing], settings: Settings, stamp: str, say: Say, *, verbose: bool
) -> list[Path]:
    """One rank of one step."""
    npu, bench, pairing = laid_out
    for problem in (*npu.problems, *bench.problems, *pairing.remarks):
        say(problem)
    if settings.framework is not None and npu.framework not in (settings.framework, "mindtorch"):
        say(f"{npu.path} is a dump of {npu.framework or 'an unknown framework'}, not of {settings.framework}.")
    told = say if settings.verbose and verbose else None
    made = write_result(npu, bench, pairing.pairs, settings, name=f"compare_result{place.label}", stamp=stamp, say=told)
    written = [path for path in (made.path, made.advice) if path is not None]
    if settings.rules.layers is not None:
        from .mappings import write_data_mapping

        written.append(settings.output / f"data_mapping{place.label}_{stamp}.yaml")
        write_data_mapping(written[-1], pairing.names)
    only_npu = sum(pair.bench is None for pair in pairing.pairs)
    only_bench = sum(pair.npu is None for pair in pairing.pairs)
    both = len(pairing.pairs) - only_npu - only_bench
    verdicts = ", ".join(f"{count} {name or 'not judged'}" for name, count in made.verdicts.items()) or "no rows"
    label = f"{place}: " if place.label else ""
    say(f"{label}{both} items of both, {only_npu} of the npu alone, {only_bench} of the bench alone: {verdicts}.")
    for what, row in (("first that fails", made.first), ("first that fails on inputs that do not", made.arises)):
        if row is not None:
            say(f"  {what}: line {row[0]}, {row[1]}")
    if made.unread:
        say(f"  {made.unread} rows could not be compared; each says why")
    say(f"  written: {', '.join(map(str, written))}")
    return written


def _with_stacks(dump: Dump, file: Path | None) -> Dump:
    """The dump with the stacks of this file; without one, its own must be there."""
    own = dump.path.with_name("stack.json")
    if file is None and not own.is_file():
        raise UsageError(
            f"-s: there is no stack.json beside {dump.path}. Name one as stack_path in the compare.json, or leave out -s."
        )
    if file is not None and not file.is_file():
        raise UsageError(f"stack_path: {file} does not exist. Correct it in the compare.json, or leave out -s.")
    if file is None or (own.is_file() and own.samefile(file)):
        return dump  # it has been read, and what is wrong with it is told
    problems = list(dump.problems)
    return replace(dump, stacks=read_stacks(file, problems), problems=tuple(problems))


# --- files ----------------------------------------------------------------------------------------------------------


def write_result(
    npu: Dump,
    bench: Dump,
    pairs: Iterable[ItemPair],
    settings: Settings,
    *,
    name: str = "compare_result",
    stamp: str = "",
    say: Say | None = None,
) -> Advisor:
    """Write the result of one rank and step.

    name    of the file, before the time: `compare_result_rank0`      stamp   the time in the names of the files; else now
    say     is called with a line for each row whose values are read
    """
    mode, generation = common_mode(npu, bench), settings.generation
    older = generation is Generation.OLDER
    stamp = stamp or time.strftime("%Y%m%d%H%M%S")
    stack = bool(npu.stacks) if settings.stacks is None else settings.stacks
    folder = settings.output
    made_folder("output_path", folder, trouble=ReportError)
    advisor = Advisor()
    advisor.path = folder / f"{name}_{stamp}.{'xlsx' if _either(settings.xlsx, older) else 'csv'}"
    heads = columns(generation, mode, stack=stack)
    widths = [_WIDTHS.get(head, max(12, len(head) + 3)) for head in heads]
    made = _measured(npu, bench, pairs, mode, generation, say) if mode.reads else (
        make_row(pair, mode, generation) for pair in pairs
    )  # fmt: skip

    def rows() -> Iterator[tuple[str | None, list[str | float | int | bool | None]]]:
        """Colour and cells of each row, a record at a time."""
        for record, together in _records(made):
            judge(together, mode, generation)
            colour(together, mode, generation)
            advisor.see(together)
            if stack and record in npu.stacks:
                together[0].stack = str([*npu.stacks[record]])  # once for each record
            for row in together:
                yield row.colour, cells_of(row, mode, generation, stack=stack)

    api.write_table(advisor.path, heads, rows(), fills=FILLS, widths=widths)
    if _either(settings.advise, older):
        advisor.advice = folder / f"{name.replace('compare_result', 'advisor')}_{stamp}.txt"
        api.write_text(advisor.advice, advisor.text(npu.path, bench.path))
    return advisor


def _either(choice: bool | None, usual: bool) -> bool:
    return usual if choice is None else choice


def common_mode(npu: Dump, bench: Dump) -> Mode:
    """The mode of both dumps, which must be the same."""
    one, two = mode_of(npu), mode_of(bench)
    if one is not two:
        raise UsageError(
            f"Expected two dumps of one kind, got {one.value} ({npu.path}) and {two.value} ({bench.path}). "
            f"Record both with the same task and summary_mode."
        )
    return one


def _measured(
    npu: Dump, bench: Dump, pairs: Iterable[ItemPair], mode: Mode, generation: Generation, say: Say | None
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

    for name, together in itertools.groupby(rows, record_of):
        yield name, [*together]


def rules_of(
    fuzzy: bool,
    api_mapping: MappingFile,
    cell_mapping: MappingFile,
    data_mapping: MappingFile,
    layer_mapping: MappingFile,
) -> PairingRules:
    """Rules of the four files."""
    if data_mapping is True:
        raise UsageError("data_mapping: expected a YAML file; without one there is nothing to map.")
    if not (api_mapping or cell_mapping or data_mapping or layer_mapping):
        return PairingRules(fuzzy)
    from . import mappings  # and YAML with it

    def rules(file: MappingFile, read: Callable[[Path], Any], empty: Any) -> Any:
        return None if not file else empty if file is True else read(Path(file))

    return PairingRules(
        fuzzy,
        rules(api_mapping, mappings.read_api_mapping, ()),
        rules(cell_mapping, mappings.read_cell_mapping, {}),
        rules(data_mapping, mappings.read_data_mapping, None),
        rules(layer_mapping, mappings.read_layer_mapping, {}),
    )


@contextlib.contextmanager
def free_stamp(folder: Path) -> Iterator[str]:
    """A time for the names of all files that are written in the block: the second that it is, or the next that is free.

    A hidden file keeps others from taking the same second meanwhile.
    """
    for second in itertools.count(int(time.time())):
        stamp = time.strftime("%Y%m%d%H%M%S", time.localtime(second))
        mark = folder / f".{stamp}.lock"
        try:
            mark.touch(exist_ok=False)
        except FileExistsError:
            continue
        except OSError as error:
            raise ReportError(f"{folder}: cannot be written to ({error.strerror}). Choose another with -o.") from None
        try:
            if not any(folder.glob(f"*_{stamp}.*")):
                yield stamp
                return
        finally:
            mark.unlink(missing_ok=True)
