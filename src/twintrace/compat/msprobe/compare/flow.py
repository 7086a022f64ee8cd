"""A comparison from end to end: what is asked for in, tables in a directory out.

    request ─places─▶ dumps ─items─▶ pairing ─pairs─▶ rows ─table─▶ compare_result_{timestamp}.xlsx, advisor_{timestamp}.txt

A place is one rank of one step. Each gets its own files; one that cannot be compared does not keep the others from being so, and
is told of at the end. A file is written whole, or not at all.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ....model.errors import ReportError, TwintraceError, UsageError
from ..dumps import Dump, open_dump, read_stacks
from .advisor import Advisor
from .pairing import Pairing, PairingRules, pair_items
from .request import Place, Request
from .rows import Generation
from .sheets import common_mode, made_folder, write_result

Say = Callable[[str], None]
MappingFile = Path | bool | None
"""A file; True: without a file; None or False: not at all."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Options of a comparison.

    generation   whose tables: with the columns and verdicts of the commands with a compare.json, or of those with two paths
    xlsx         a spreadsheet; otherwise csv              stacks   a column that says where each API was called; None: if known
    advise       advice on the first row that fails        verbose  name rows that fail
    framework    whose dumps they are said to be
    """

    output: Path = Path("output")
    generation: Generation = Generation.OLDER
    xlsx: bool = True
    stacks: bool | None = False
    advise: bool = True
    verbose: bool = True
    framework: str | None = None
    fuzzy: bool = False
    api_mapping: MappingFile = None
    cell_mapping: MappingFile = None
    data_mapping: MappingFile = None
    layer_mapping: MappingFile = None


def run(request: Request, settings: Settings, say: Say) -> tuple[Path, ...]:
    """Compare every place that was asked for; the files that were written. `say` is told what people want to know."""
    rules = _pairing_rules(settings)
    if request.kernels and (settings.fuzzy or settings.stacks or rules.mapped):
        raise UsageError(
            "these are kernel dumps, which have no APIs, cells, layers or stacks: -s, -f and the mappings mean nothing for "
            "them. Leave them out."
        )
    made_folder(settings.output)
    with free_stamp(settings.output) as stamp:
        return _run(request, settings, rules, stamp, say)


def _run(request: Request, settings: Settings, rules: PairingRules, stamp: str, say: Say) -> tuple[Path, ...]:
    for remark in request.remarks:
        say(remark)
    written: list[Path] = []
    failures: list[str] = []
    if request.kernels:
        from .kernels import Kernels
    kernels = Kernels(request.places[0].npu, request.places[0].bench) if request.kernels else None
    for place in request.places:
        try:
            laid_out = _laid_out(place, request, settings, rules) if kernels is None else kernels.pair(*_numbers(place))
            written += _compare(place, request, settings, rules, laid_out, stamp, say)
        except TwintraceError as error:
            if len(request.places) == 1:
                raise
            failures.append(f"{_where(place)}: {error}")
            say(failures[-1])
    if failures:
        done = len(request.places) - len(failures)
        rest = f" The tables of the other {done} are in {settings.output}." if done else ""
        raise UsageError(f"{len(failures)} of {len(request.places)} comparisons failed, first {failures[0]}{rest}")
    return tuple(written)


def _compare(
    place: Place,
    request: Request,
    settings: Settings,
    rules: PairingRules,
    laid_out: tuple[Dump, Dump, Pairing],
    stamp: str,
    say: Say,
) -> Iterator[Path]:
    """One rank of one step."""
    npu, bench, pairing = laid_out
    for problem in (*npu.problems, *bench.problems, *pairing.remarks):
        say(problem)
    if settings.framework is not None and npu.framework not in (settings.framework, "mindtorch"):
        say(f"{npu.path} is a dump of {npu.framework or 'an unknown framework'}, not of {settings.framework}.")
    made = write_result(
        npu,
        bench,
        pairing.pairs,
        output=settings.output,
        name=f"compare_result{place.label}",
        generation=settings.generation,
        stack=bool(npu.stacks) if settings.stacks is None else settings.stacks,
        xlsx=settings.xlsx,
        advise=settings.advise,
        stamp=stamp,
        say=say if settings.verbose and request.verbose else None,
    )
    written = [path for path in (made.path, made.advice) if path is not None]
    if rules.layers is not None:
        written.append(settings.output / f"data_mapping{place.label}_{stamp}.yaml")
        from .mappings import write_data_mapping

        write_data_mapping(written[-1], pairing.names)
    for line in _told(place, pairing, made, written):
        say(line)
    yield from written


def _laid_out(place: Place, request: Request, settings: Settings, rules: PairingRules) -> tuple[Dump, Dump, Pairing]:
    npu, bench = open_dump(place.npu), open_dump(place.bench)
    common_mode(npu, bench)
    if settings.stacks:
        npu = _with_stacks(npu, request.stack if len(request.places) == 1 else None)  # each rank has its own
    return npu, bench, pair_items(npu, bench, rules)


def _told(place: Place, pairing: Pairing, made: Advisor, written: Sequence[Path]) -> Iterator[str]:
    """Summary for people, in a few lines."""
    both = sum(pair.npu is not None and pair.bench is not None for pair in pairing.pairs)
    only_npu = sum(pair.bench is None for pair in pairing.pairs)
    only_bench = sum(pair.npu is None for pair in pairing.pairs)
    verdicts = ", ".join(f"{count} {name or 'not judged'}" for name, count in made.verdicts.items()) or "no rows"
    label = f"{_where(place)}: " if place.label else ""
    yield f"{label}{both} items of both, {only_npu} of the npu alone, {only_bench} of the bench alone: {verdicts}."
    if made.first is not None:
        yield f"  first that fails: line {made.first[0]}, {made.first[1]}"
    if made.arises is not None:
        yield f"  first that fails on inputs that do not: line {made.arises[0]}, {made.arises[1]}"
    if made.unread:
        yield f"  {made.unread} rows could not be compared; each says why"
    yield f"  written: {', '.join(map(str, written))}"


def _with_stacks(dump: Dump, file: Path | None) -> Dump:
    """The dump with the stacks of this file; without one, its own must be there."""
    if file is None:
        if not dump.path.with_name("stack.json").is_file():
            raise UsageError(
                f"-s: there is no stack.json beside {dump.path}. Name one as stack_path in the compare.json, or leave out -s."
            )
        return dump
    if not file.is_file():
        raise UsageError(f"stack_path: {file} does not exist. Correct it in the compare.json, or leave out -s.")
    own = dump.path.with_name("stack.json")
    if own.is_file() and own.samefile(file):
        return dump  # it has been read, and what is wrong with it is told
    problems = list(dump.problems)
    stacks = read_stacks(file, problems)
    return replace(dump, stacks=stacks, problems=tuple(problems))


# --- options ----------------------------------------------------------------------------------------------------------


def _pairing_rules(settings: Settings) -> PairingRules:
    if settings.data_mapping is True:
        raise UsageError("data_mapping: expected a YAML file; without one there is nothing to map.")
    apis, cells, items, layers = (
        settings.api_mapping,
        settings.cell_mapping,
        settings.data_mapping,
        settings.layer_mapping,
    )
    if not (apis or cells or items or layers):
        return PairingRules(settings.fuzzy)
    from .mappings import read_api_mapping, read_cell_mapping, read_data_mapping, read_layer_mapping  # and YAML with it

    return PairingRules(
        settings.fuzzy,
        (() if apis is True else read_api_mapping(apis)) if apis else None,
        ({} if cells is True else read_cell_mapping(cells)) if cells else None,
        read_data_mapping(items) if items else None,
        ({} if layers is True else read_layer_mapping(layers)) if layers else None,
    )


def _numbers(place: Place) -> tuple[int, int]:
    return place.step or 0, place.rank or 0


def _where(place: Place) -> str:
    numbers = (("step", place.step), ("rank", place.rank))
    return ", ".join(f"{name} {number}" for name, number in numbers if number is not None)


_DIGITS = "[0-9]" * 14


@contextlib.contextmanager
def free_stamp(folder: Path) -> Iterator[str]:
    """A time for the names of all files that are written in the block: the second that it is, or the next that is free.

    While it is used, a hidden file says so, and is locked. A lock ends with its process, however that ends: a file without one is
    what a killed comparison left, and is removed with whatever that was writing.
    """
    _sweep(folder)
    second = int(time.time())
    while (taken := _take(folder, _written(second))) is None:
        second += 1
    path, handle = taken
    try:
        yield _written(second)
    finally:
        path.unlink(missing_ok=True)
        os.close(handle)


def _take(folder: Path, stamp: str) -> tuple[Path, int] | None:
    path = folder / f".{stamp}.lock"
    try:
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    except FileExistsError:
        return None
    except OSError as error:
        raise ReportError(f"{folder}: cannot be written to ({error.strerror}). Choose another with -o.") from None
    if not _lock(handle) or os.fstat(handle).st_nlink == 0:  # somebody took it for a leftover
        os.close(handle)
        return None
    if any(folder.glob(f"*_{stamp}.*")):
        path.unlink(missing_ok=True)
        os.close(handle)
        return None
    return path, handle


def _lock(handle: int) -> bool:
    """False if another has it. Where a file system knows no locks, nobody has."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _sweep(folder: Path) -> None:
    """Remove what killed comparisons left."""
    for path in folder.glob(f".{_DIGITS}.lock"):
        with contextlib.suppress(OSError):  # gone by now, or not ours to remove
            handle = os.open(path, os.O_RDWR)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                for left in folder.glob(f".*_{path.stem[1:]}.*"):
                    left.unlink()
                path.unlink()
            finally:
                os.close(handle)


def _written(second: int) -> str:
    return time.strftime("%Y%m%d%H%M%S", time.localtime(second))
