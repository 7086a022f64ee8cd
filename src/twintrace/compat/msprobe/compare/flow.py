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
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ....model.errors import ReportError, TwintraceError, UsageError
from ..dumps import Dump, open_dump, read_stacks
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
    kernels = None
    if request.kernels:
        from .kernels import Kernels

        if settings.fuzzy or settings.stacks or rules.mapped:
            raise UsageError(
                "these are kernel dumps, which have no APIs, cells, layers or stacks: -s, -f and the mappings mean nothing for "
                "them. Leave them out."
            )
        kernels = Kernels(request.places[0].npu, request.places[0].bench)
    made_folder(settings.output)
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
                    laid_out = _laid_out(place, request, settings, rules)
                written += _compare(place, request, settings, rules, laid_out, stamp, say)
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


def _laid_out(place: Place, request: Request, settings: Settings, rules: PairingRules) -> tuple[Dump, Dump, Pairing]:
    npu, bench = open_dump(place.npu), open_dump(place.bench)
    common_mode(npu, bench)
    if settings.stacks:
        npu = _with_stacks(npu, request.stack if len(request.places) == 1 else None)  # each rank has its own
    return npu, bench, pair_items(npu, bench, rules)


def _compare(
    place: Place,
    request: Request,
    settings: Settings,
    rules: PairingRules,
    laid_out: tuple[Dump, Dump, Pairing],
    stamp: str,
    say: Say,
) -> list[Path]:
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


def _pairing_rules(settings: Settings) -> PairingRules:
    """The rules of the files: None for what was not asked for, empty for what was asked for without a file."""
    if settings.data_mapping is True:
        raise UsageError("data_mapping: expected a YAML file; without one there is nothing to map.")
    if not (settings.api_mapping or settings.cell_mapping or settings.data_mapping or settings.layer_mapping):
        return PairingRules(settings.fuzzy)
    from . import mappings  # and YAML with it

    def rules_of(file: MappingFile, read: Callable[[Path], Any], empty: Any) -> Any:
        return (empty if file is True else read(file)) if file else None

    return PairingRules(
        settings.fuzzy,
        rules_of(settings.api_mapping, mappings.read_api_mapping, ()),
        rules_of(settings.cell_mapping, mappings.read_cell_mapping, {}),
        rules_of(settings.data_mapping, mappings.read_data_mapping, None),
        rules_of(settings.layer_mapping, mappings.read_layer_mapping, {}),
    )


# --- names of files ---------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def free_stamp(folder: Path) -> Iterator[str]:
    """A time for the names of all files that are written in the block: the second that it is, or the next that is free.

    While it is used, a hidden file says so, and is locked. A lock ends with its process, however that ends: a file without one is
    what a killed comparison left, and is removed with whatever that was writing.
    """
    for path in folder.glob(f".{'[0-9]' * 14}.lock"):
        with contextlib.suppress(OSError), path.open("r+b") as old:  # gone by now, in use, or not ours to remove
            fcntl.flock(old, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for left in (*folder.glob(f".*_{path.stem[1:]}.*"), path):
                left.unlink()
    second = int(time.time())
    while (handle := _take(folder, stamp := time.strftime("%Y%m%d%H%M%S", time.localtime(second)))) is None:
        second += 1
    try:
        yield stamp
    finally:
        (folder / f".{stamp}.lock").unlink(missing_ok=True)
        os.close(handle)


def _take(folder: Path, stamp: str) -> int | None:
    """The locked file of a time; None if the time is taken."""
    path = folder / f".{stamp}.lock"
    try:
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    except FileExistsError:
        return None
    except OSError as error:
        raise ReportError(f"{folder}: cannot be written to ({error.strerror}). Choose another with -o.") from None
    swept = False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        swept = True
    except OSError:  # where a file system knows no locks, nobody has one
        pass
    swept = swept or os.fstat(handle).st_nlink == 0  # somebody took it for a leftover
    if swept or any(folder.glob(f"*_{stamp}.*")):
        if not swept:
            path.unlink(missing_ok=True)
        os.close(handle)
        return None
    return handle
