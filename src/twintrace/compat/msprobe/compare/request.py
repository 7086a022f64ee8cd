"""Places that are to be compared: a compare.json, or two paths, as places that both sides have.

    {"npu_path": "npu/step0/rank0/dump.json", "bench_path": "bench/step0/rank0/dump.json"}    one card: two files
    {"npu_path": "npu/step0", "bench_path": "bench/step0"}                                    many cards: ranks are paired
    {"npu_path": "npu", "bench_path": "bench"}                                                steps and ranks are paired
    {"npu_path": "npu", "bench_path": "bench", "rank_id": [0], "step_id": []}                 MindSpore's kernel dumps

Paths are looked for from where the command is run, then from beside the compare.json. Items of one side alone are told.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from .... import api
from ....model.errors import TraceError, UsageError
from ..dumps import RANK, STEP, places_in

_KNOWN = ("npu_path", "bench_path", "stack_path", "is_print_compare_log", "rank_id", "step_id")
_OTHER_NAMES = {"npu_json_path": "npu_path", "bench_json_path": "bench_path", "stack_json_path": "stack_path"}
"""Names in the documents of 1.x and 8.x of the fields of `compare(input_param, …)`."""
# A remark in a compare.json, as the tool's own document has them; a `#` in a text is none.
_REMARK = re.compile(r'("(?:\\.|[^"\\])*")|#[^\n]*|//[^\n]*')

_Where = tuple[int | None, int | None]
"""Step and rank; None where there is only one, without a number."""


@dataclass(frozen=True, slots=True)
class Place:
    """Two dumps of one rank and step. `label` is what tells its files from those of other places: `_rank0`, or nothing."""

    npu: Path
    bench: Path
    label: str = ""
    step: int | None = None
    rank: int | None = None

    def __str__(self) -> str:
        numbers = (("step", self.step), ("rank", self.rank))
        return ", ".join(f"{name} {number}" for name, number in numbers if number is not None)


@dataclass(frozen=True, slots=True)
class Request:
    """Request for a comparison; `remarks` are for people."""

    places: tuple[Place, ...]
    kernels: bool = False
    stack: Path | None = None
    verbose: bool = True
    remarks: tuple[str, ...] = ()


def read_request(path: Path) -> Request:
    """Request of a compare.json."""
    text = text_in(path, "a compare.json")
    try:
        fields = json.loads(_REMARK.sub(lambda match: match[1] or " " * len(match[0]), text))
    except (ValueError, RecursionError) as error:
        line = f"line {error.lineno}: " if isinstance(error, json.JSONDecodeError) else ""
        why = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        raise UsageError(f'{path}: {line}not JSON: {why}. Expected {{"npu_path": "…", "bench_path": "…"}}.') from None
    return request_of(fields, str(path), beside=path.parent)


def text_in(path: Path, kind: str) -> str:
    """The text of a file that a user names; `kind` is what it should be."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8 text (byte {error.start}). Save it as UTF-8.") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}). Give the name of {kind}.") from None


def request_of(
    parameters: Any, source: str, *, beside: Path | None = None, names: Mapping[str, str] | None = None
) -> Request:
    """Request of these fields; for errors, `source` is where they come from and `names` what they are called there."""
    if not isinstance(parameters, Mapping):
        raise UsageError(
            f'{source}: expected an object, {{"npu_path": "…", "bench_path": "…"}}, got {_kind(parameters)}.'
        )
    fields = _Fields(parameters, source, beside, names or {})
    npu, bench = fields.path("npu_path"), fields.path("bench_path")
    ranks, steps = fields.numbers("rank_id"), fields.numbers("step_id")
    stack = fields.path("stack_path", must_exist=False) if fields.values.get("stack_path") is not None else None
    verbose = fields.values.get("is_print_compare_log", True)
    if not isinstance(verbose, bool):
        fields.refuse("is_print_compare_log", f"expected true or false, got {_kind(verbose)}")
    if npu.is_dir() != bench.is_dir():
        which = ("npu_path", "bench_path") if npu.is_dir() else ("bench_path", "npu_path")
        fields.refuse(
            which[0],
            f"is a directory and {which[1]} is a file. Give two dump.json, or two directories of the same level",
        )
    remarks = [
        f"{source}: {name!r} means nothing here; the fields are {', '.join(_KNOWN)}."
        for name in fields.values
        if name not in _KNOWN
    ]
    sides = {"npu_path": npu, "bench_path": bench}
    trees = [_tree(path, fields, key) for key, path in sides.items()]
    kernels = not any(trees)
    if kernels:
        trees = [_kernels(path, fields, key) for key, path in sides.items()]
    for tree, (key, path) in zip(trees, sides.items(), strict=True):
        if not tree:
            fields.refuse(key, f"{path} holds no dump.json, the other side does. Give two dumps of the same kind")
    if not kernels:
        trees[1] = _renumbered(*trees)
    places = _paired(trees, (npu, bench), ranks, steps, remarks, source)
    if kernels:
        places = [replace(place, label=f"_{place.rank}_{place.step}") for place in places]
    return Request(tuple(places), kernels, stack, verbose, tuple(remarks))


# --- fields -----------------------------------------------------------------------------------------------------------


class _Fields:
    """The fields by the names that are used here; for errors, by those that they were given under."""

    def __init__(self, given: Mapping[str, Any], source: str, beside: Path | None, names: Mapping[str, str]) -> None:
        self._source, self._beside, self._names = source, beside, dict(names)
        self.values: dict[str, Any] = {}
        for name, value in given.items():
            ours = _OTHER_NAMES.get(name, name)
            if ours in self.values and self.values[ours] != value:
                other = self._names.get(ours, ours)
                raise UsageError(f"{source}: {other} and {name} name two paths for one side. Leave one out.")
            self.values[ours] = value
            if ours != name:
                self._names[ours] = name

    def path(self, key: str, *, must_exist: bool = True) -> Path:
        value = self.values.get(key)
        if value is None:
            self.refuse(key, "is missing. Give the path of a dump.json, or of a directory of them")
        if not isinstance(value, str | Path) or not str(value).strip() or "\0" in str(value):
            self.refuse(key, f"expected a path, got {_kind(value)}")
        asked = Path(value)
        candidates = [asked] if self._beside is None else [asked, self._beside / asked]
        try:
            there = next((path for path in candidates if path.exists()), None)
        except OSError as error:  # a name that no file system has
            self.refuse(key, f"{str(asked)[:60]} cannot be looked for ({error.strerror}). Correct the path")
        if must_exist and there is None:
            self.refuse(key, f"{asked} does not exist (looked for from {Path.cwd()}). Correct the path")
        return there or asked

    def numbers(self, key: str) -> tuple[int, ...]:
        value = self.values.get(key)
        if value is None:
            return ()
        if not isinstance(value, Sequence) or isinstance(value, str):
            self.refuse(key, f"expected a list of numbers, such as [0, 1], got {_kind(value)}")
        for number in value:
            if not isinstance(number, int) or isinstance(number, bool) or number < 0:
                self.refuse(key, f"expected numbers from 0 on, got {number!r}")
        return tuple(dict.fromkeys(value))

    def refuse(self, key: str, why: str) -> NoReturn:
        raise UsageError(f"{self._source}: {self._names.get(key, key)}: {why}.")


def _kind(value: Any) -> str:
    return f"{value!r}" if len(repr(value)) < 60 else f"{type(value).__name__} ({repr(value)[:50]}…)"


# --- directories ------------------------------------------------------------------------------------------------------


def _tree(path: Path, fields: _Fields, key: str) -> dict[_Where, Path]:
    """The dumps below a path, by step and rank; none if it holds no dump.json."""
    tree: dict[_Where, Path] = {}
    try:
        for step, rank, folder in places_in(path):
            if (step, rank) in tree:
                two = f"{folder.parent} holds {tree[step, rank].name} and {folder.name}"
                fields.refuse(key, f"{two}, and nothing tells which is meant. Name one of them")
            tree[step, rank] = folder
    except OSError as error:
        fields.refuse(key, f"{error.filename or path} cannot be read ({error.strerror}). See who may read it")
    return dict(sorted(tree.items(), key=lambda place: [-1 if number is None else number for number in place[0]]))


def _renumbered(npu: dict[_Where, Path], bench: dict[_Where, Path]) -> dict[_Where, Path]:
    """The bench's dumps; a single rank stands beside a single rank, whatever its number, and has that of the npu's."""
    if len(npu) == len(bench) == 1:
        return dict(zip(npu, bench.values(), strict=True))
    for step in {step for step, _ in npu}:
        ours, theirs = ([where for where in side if where[0] == step] for side in (npu, bench))
        if len(ours) == len(theirs) == 1:
            bench = {ours[0] if where == theirs[0] else where: path for where, path in bench.items()}
    return bench


def _kernels(path: Path, fields: _Fields, key: str) -> dict[_Where, Path]:
    """The steps and ranks of MindSpore's kernel dumps in a directory, all in that directory."""
    from ...mindspore_kernels.layout import recognises

    if not recognises(path):
        fields.refuse(
            key,
            f"{path} holds neither a dump.json nor files of a kernel dump. Give the directory that holds step0 or rank0",
        )
    try:
        return dict.fromkeys(sorted(api.open(path, tolerant=True).places), path)
    except TraceError as error:
        fields.refuse(key, str(error).rstrip("."))


def _paired(
    trees: Sequence[dict[_Where, Path]],
    roots: tuple[Path, Path],
    ranks: Sequence[int],
    steps: Sequence[int],
    remarks: list[str],
    source: str,
) -> list[Place]:
    """The places that both sides have, and that were asked for."""
    npu, bench = trees
    chosen = [where for where in npu if where in bench and _asked_for(where, (npu[where], bench[where]), steps, ranks)]
    if not chosen:
        which = " among those that were asked for" if ranks or steps else ""
        advice = (
            "Ask for others, or for none, and all are"
            if which
            else "Give two dumps of the same ranks and steps, which are"
        )
        raise UsageError(
            f"{source}: {roots[0]} ({_listed(npu)}) and {roots[1]} ({_listed(bench)}) have no rank and step in common{which}. "
            f"{advice} compared."
        )
    for root, one, two in ((roots[0], npu, bench), (roots[1], bench, npu)):
        remarks += [f"{root} alone has {_told(where)}; it is not compared." for where in one if where not in two]
    return [Place(npu[where], bench[where], _label(where), *where) for where in chosen]


def _asked_for(where: _Where, paths: tuple[Path, Path], steps: Sequence[int], ranks: Sequence[int]) -> bool:
    """A path that was given down to its step or rank has the numbers that it names, and on either side: `--step 3 -tp npu/step3`.

    One that names no step is of every step. A run of one process has a rank without a number: it is rank 0.
    """
    step, rank = where
    its_steps = _named(paths, STEP) if step is None else {step}
    its_ranks = (_named(paths, RANK) or {0}) if rank is None else {rank}
    return not (steps and its_steps and its_steps.isdisjoint(steps)) and not (ranks and its_ranks.isdisjoint(ranks))


def _named(paths: tuple[Path, Path], pattern: re.Pattern[str]) -> set[int]:
    """The numbers that a dump.json, the directory of a rank or that of a step lie under."""
    names = (part for path in paths for part in path.absolute().parts[-3 if path.is_file() else -2 :])
    return {int(match[1]) for name in names if (match := pattern.fullmatch(name)) and match[1]}


def _label(where: _Where) -> str:
    step, rank = where
    return "".join(f"_{name}{number}" for name, number in (("step", step), ("rank", rank)) if number is not None)


def _told(where: _Where) -> str:
    return _label(where).strip("_").replace("_", " ") or "a dump without a rank"


def _listed(tree: Mapping[_Where, Path]) -> str:
    shown = ", ".join(_told(where) for where in list(tree)[:4])
    return shown + (f" and {len(tree) - 4} more" if len(tree) > 4 else "")
