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
        found = json.loads(_REMARK.sub(lambda match: match[1] or " " * len(match[0]), text))
    except (ValueError, RecursionError) as error:
        line = f"line {error.lineno}: " if isinstance(error, json.JSONDecodeError) else ""
        why = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        raise UsageError(f'{path}: {line}not JSON: {why}. Expected {{"npu_path": "…", "bench_path": "…"}}.') from None
    return request_of(found, str(path), beside=path.parent)


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
    parameters, given = _renamed(parameters, source)
    fields = _Fields(parameters, source, beside, {**given, **(names or {})})
    npu, bench = fields.path("npu_path"), fields.path("bench_path")
    ranks, steps = fields.numbers("rank_id"), fields.numbers("step_id")
    stack = fields.path("stack_path", must_exist=False) if parameters.get("stack_path") is not None else None
    verbose = parameters.get("is_print_compare_log", True)
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
        for name in parameters
        if name not in _KNOWN
    ]
    trees = []
    for path, key in ((npu, "npu_path"), (bench, "bench_path")):
        try:
            trees.append(_tree(path, fields, key))
        except OSError as error:
            fields.refuse(key, f"{error.filename or path} cannot be read ({error.strerror}). See who may read it")
    if not trees[0] and not trees[1]:
        return replace(_kernels(npu, bench, ranks, steps, fields), stack=stack, verbose=verbose, remarks=tuple(remarks))
    for tree, path, key in ((trees[0], npu, "npu_path"), (trees[1], bench, "bench_path")):
        if not tree:
            fields.refuse(key, f"{path} holds no dump.json, the other side does. Give two dumps of the same kind")
    places = _paired(trees[0], trees[1], (npu, bench), ranks, steps, remarks, source)
    return Request(tuple(places), stack=stack, verbose=verbose, remarks=tuple(remarks))


def _renamed(parameters: Mapping[str, Any], source: str) -> tuple[dict[str, Any], dict[str, str]]:
    """The fields by the names that are used here, and what those are called that were given otherwise."""
    found: dict[str, Any] = {}
    given: dict[str, str] = {}
    for name, value in parameters.items():
        ours = _OTHER_NAMES.get(name, name)
        if ours in found and found[ours] != value:
            raise UsageError(
                f"{source}: {given.get(ours, ours)} and {name} name two paths for one side. Leave one out."
            )
        found[ours] = value
        if ours != name:
            given[ours] = name
    return found, given


# --- fields -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Fields:
    values: Mapping[str, Any]
    source: str
    beside: Path | None
    names: Mapping[str, str]

    def path(self, key: str, *, must_exist: bool = True) -> Path:
        value = self.values.get(key)
        if value is None:
            self.refuse(key, "is missing. Give the path of a dump.json, or of a directory of them")
        if not isinstance(value, str | Path) or not str(value).strip() or "\0" in str(value):
            self.refuse(key, f"expected a path, got {_kind(value)}")
        asked = Path(value)
        try:
            found = next((path for path in self._candidates(asked) if path.exists()), None)
        except OSError as error:  # a name that no file system has
            self.refuse(key, f"{str(asked)[:60]} cannot be looked for ({error.strerror}). Correct the path")
        if must_exist and found is None:
            self.refuse(key, f"{asked} does not exist (looked for from {Path.cwd()}). Correct the path")
        return found or asked

    def _candidates(self, path: Path) -> list[Path]:
        return [path] if path.is_absolute() or self.beside is None else [path, self.beside / path]

    def numbers(self, key: str) -> tuple[int, ...]:
        value = self.values.get(key)
        if value is None:
            return ()
        if not isinstance(value, Sequence) or isinstance(value, str):
            self.refuse(key, f"expected a list of numbers, such as [0, 1], got {_kind(value)}")
        for item in value:
            if not isinstance(item, int) or isinstance(item, bool) or item < 0:
                self.refuse(key, f"expected numbers from 0 on, got {item!r}")
        return tuple(dict.fromkeys(value))

    def refuse(self, key: str, why: str) -> NoReturn:
        raise UsageError(f"{self.source}: {self.names.get(key, key)}: {why}.")


def _kind(value: Any) -> str:
    return f"{value!r}" if len(repr(value)) < 60 else f"{type(value).__name__} ({repr(value)[:50]}…)"


# --- directories ------------------------------------------------------------------------------------------------------


def _tree(path: Path, fields: _Fields, key: str) -> dict[_Where, Path]:
    """The dumps below a path, by step and rank; none if it holds no dump.json."""
    tree: dict[_Where, Path] = {}
    for step, rank, folder in places_in(path):
        if (step, rank) in tree:
            two = f"{folder.parent} holds {tree[step, rank].name} and {folder.name}"
            fields.refuse(key, f"{two}, and nothing tells which is meant. Name one of them")
        tree[step, rank] = folder
    return dict(sorted(tree.items(), key=lambda item: [-1 if number is None else number for number in item[0]]))


def _paired(
    npu: dict[_Where, Path],
    bench: dict[_Where, Path],
    roots: tuple[Path, Path],
    ranks: Sequence[int],
    steps: Sequence[int],
    remarks: list[str],
    source: str,
) -> list[Place]:
    """The places that both sides have, and that were asked for; a single rank stands beside a single rank, whatever its number."""
    if {step for step, _ in npu} != {step for step, _ in bench} and len(npu) == len(bench) == 1:
        (bench_path,) = bench.values()
        bench = dict.fromkeys(npu, bench_path)
    for step in sorted(
        {step for step, _ in npu} & {step for step, _ in bench}, key=lambda step: -1 if step is None else step
    ):
        ours, theirs = ([where for where in side if where[0] == step] for side in (npu, bench))
        if len(ours) == len(theirs) == 1 and ours != theirs:
            bench = {ours[0] if where == theirs[0] else where: path for where, path in bench.items()}
    chosen = [where for where in npu if where in bench and _asked_for(where, (npu[where], bench[where]), steps, ranks)]
    alone = [f"{roots[0]} alone has {_told(where)}" for where in npu if where not in bench]
    alone += [f"{roots[1]} alone has {_told(where)}" for where in bench if where not in npu]
    if not chosen:
        which = " among those that were asked for" if ranks or steps else ""
        advice = (
            "Ask for others, or for none, and all are compared"
            if which
            else "Give two dumps of the same ranks and steps"
        )
        raise UsageError(
            f"{source}: {roots[0]} ({_listed(npu)}) and {roots[1]} ({_listed(bench)}) have no rank and step in common{which}. "
            f"{advice}."
        )
    remarks.extend(f"{text}; it is not compared." for text in alone)
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


# --- kernels ----------------------------------------------------------------------------------------------------------


def _kernels(npu: Path, bench: Path, ranks: Sequence[int], steps: Sequence[int], fields: _Fields) -> Request:
    """Two directories of MindSpore's kernel dumps; each rank and step gets a file of its own."""
    from ...mindspore_kernels.layout import recognises

    for key, path in (("npu_path", npu), ("bench_path", bench)):
        if not recognises(path):
            fields.refuse(
                key,
                f"{path} holds neither a dump.json nor files of a kernel dump. Give the directory that holds step0 or rank0",
            )
    places = []
    for path in (npu, bench):
        try:
            places.append(set(api.open(path, tolerant=True).places))
        except TraceError as error:
            raise UsageError(f"{fields.source}: {error}") from None
    for key, asked, which in (("step_id", steps, 0), ("rank_id", ranks, 1)):
        for number in asked:
            lacking = [
                str(path)
                for path, there in zip((npu, bench), places, strict=True)
                if number not in {place[which] for place in there}
            ]
            if lacking:
                fields.refuse(key, f"{number} is not in {' nor in '.join(lacking)}. Leave it out, or give another")
    common = sorted(
        place
        for place in places[0] & places[1]
        if (not steps or place[0] in steps) and (not ranks or place[1] in ranks)
    )
    if not common:
        raise UsageError(
            f"{fields.source}: {npu} and {bench} have no step and rank in common. Give two dumps of the same steps and ranks."
        )
    return Request(tuple(Place(npu, bench, f"_{rank}_{step}", step, rank) for step, rank in common), kernels=True)
