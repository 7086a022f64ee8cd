"""Sampled mutation run: small changes of the source that no test of its room notices.

    $ make mutants                                                       # 40 of each room
    $ make mutants MUTANTS="--paths src/twintrace/judge --count 200"     # more of one; a file or folder
    judge        200 mutants   194 killed     4 explained     2 survive
    build/mutants/report.md

A mutant (`mutations.py`) is killed if a test fails or runs out of time. Only tests that execute the changed statement are run; for
a constant at the top of a file those that execute a statement with its name. Which these are is recorded once with `coverage`,
test by test, and kept in build/mutants for each test file as long as it stays the same (`--record`: anew). A survivor is a rule
without a test, or has an entry in `mutants.toml` that says why nothing can notice it.

mutmut and cosmic-ray were looked at. mutmut changes what is inside of functions alone, and the constants of the judge are outside;
cosmic-ray starts an interpreter and the whole command for each mutant, which here is an import of PyTorch and a minute of tests.
Here every mutant is a fork of a process that has imported the libraries, in a copy of the tree: the checkout is never changed.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import random
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from executed import Bench, Executed, copied, in_order, record, source_of, tests_of
from mutations import KINDS, Mutation, mutations

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
EXPLAINED = Path(__file__).with_suffix(".toml")
ROOMS = {"judge": 0.0, "operations": 0.0, "align": 0.1, "collect": 0.1, "report": 0.1}
"""Share of mutants that may survive without an explanation."""
NEIGHBOURS = {"operations": ("judge",), "align": ("judge",)}
"""Rooms whose tests also are the tests of a room: verdicts are what operations and pairs are for."""
LIBRARIES = ("numpy", "torch", "numba", "yaml", "rich", "click")
"""Imported once, before the mutants are forked off; those of a test that are not among them are imported by each."""
FIRST_FILES, FIRST_SECONDS = 4, 6.0
"""Most mutants die early: test files and seconds of the first round."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Change the source in small ways and see which changes no test notices."
    )
    parser.add_argument("--paths", nargs="+", default=[f"src/twintrace/{room}" for room in ROOMS], metavar="PATH")
    parser.add_argument("--count", type=int, default=40, help="mutants of each path (default: 40)")
    parser.add_argument("--seed", type=int, default=0, help="another sample (default: 0)")
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS, help="as in mutations.py (default: all)")
    parser.add_argument("--seconds", type=float, default=60.0, help="tests at most for each mutant (default: 60 s)")
    parser.add_argument("--record", action="store_true", help="record anew which tests execute what")
    parser.add_argument("--again", action="store_true", help="only those that survived in the last run")
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout (default: the one of this script)")
    asked = parser.parse_args(argv)
    with contextlib.suppress(ModuleNotFoundError):
        importlib.import_module("coverage")
        return _run(asked)
    sys.path.insert(0, str(ROOT / "scripts"))
    python = importlib.import_module("layers").layer("mutants", ["coverage>=7.6,<8"])
    return subprocess.call([python, __file__, *(sys.argv[1:] if argv is None else argv)])


def _run(asked: argparse.Namespace) -> int:
    root, out = asked.root.resolve(), asked.root.resolve() / "build" / "mutants"
    out.mkdir(parents=True, exist_ok=True)
    explanations = explained_in(EXPLAINED if root == ROOT else root / "mutants.toml", root)
    for name in LIBRARIES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    with copied(root) as tree:
        bench = Bench(tree)
        old = json.loads((out / "report.json").read_text(encoding="utf-8")) if asked.again else []
        results = []
        for path in asked.paths:
            chosen = sample(tree, path, asked.count, asked.seed, asked.kinds)
            if asked.again:
                again = {(item["path"], item["before"], item["after"]) for item in old if item["outcome"] == "survived"}
                everything = sample(tree, path, None, asked.seed)
                chosen = [item for item in everything if (item.path, *item.diff(source_of(tree, item.path))) in again]
            tests = record(bench, test_files(tree, room_of(path)), out / "executed", asked.record)
            for number, mutation in enumerate(chosen, 1):
                result = judged(bench, tests, mutation, explanations, asked.seconds)
                results.append(result)
                done = f"{number}/{len(chosen)} {mutation.path}:{mutation.line}: {result['outcome']}"
                print(f"{done} ({result['seconds']:.1f} s)", file=sys.stderr, flush=True)
                (out / "report.json").write_text(json.dumps(results, indent=1), encoding="utf-8")
    (out / "report.md").write_text(told(results), encoding="utf-8")
    bad = False
    for room, counts in totals(results).items():
        number = sum(counts.values())
        killed = counts["killed"] + counts["timeout"]
        print(
            f"{room:<11} {number:>4} mutants  {killed:>4} killed  {counts['explained']:>4} explained  "
            f"{counts['survived']:>4} survive"
        )
        bad |= counts["survived"] > ROOMS.get(room, 0.0) * number
    print(out / "report.md")
    return int(bad)


# --- which mutants ----------------------------------------------------------------------------------------------------


def room_of(path: str) -> str:
    """Package of a file or folder below src/twintrace."""
    return (*Path(path).parts, "", "", "")[2]


def sample(root: Path, path: str, count: int | None, seed: int, kinds: Collection[str] = KINDS) -> list[Mutation]:
    """One mutation each of `count` lines below a path, drawn with this seed; all mutations if there is no count."""
    place = root / path
    files = sorted(place.rglob("*.py")) if place.is_dir() else [place]
    names = [file.relative_to(root).as_posix() for file in files]
    every = [item for name in names for item in mutations(name, source_of(root, name)) if item.kind in kinds]
    if count is None:
        return every
    draw = random.Random(seed)
    lines = defaultdict(list)
    for item in every:
        lines[item.path, item.line].append(item)
    chosen: list[Mutation] = []
    for key in draw.sample(sorted(lines), len(lines)):
        item = draw.choice(lines[key])
        if len(chosen) < count and item.compiles(source_of(root, item.path)):
            chosen.append(item)
    return chosen


def test_files(tree: Path, room: str) -> list[str]:
    rooms = (room, *NEIGHBOURS.get(room, ()))
    return sorted(
        path.relative_to(tree).as_posix() for name in rooms for path in tree.glob(f"tests/{name}/**/test_*.py")
    )


# --- explanations -----------------------------------------------------------------------------------------------------


def explained_in(path: Path, root: Path) -> list[dict[str, str]]:
    """Entries of the list of equivalent mutants. One whose line is gone from its file is an error: nobody needs it any more."""
    entries = tomllib.loads(path.read_text(encoding="utf-8")).get("equivalent", []) if path.exists() else []
    for entry in entries:
        lines = {line.strip() for line in source_of(root, entry["path"]).splitlines()}
        missing = [line for line in entry["before"].strip().splitlines() if line.strip() not in lines]
        if missing:
            raise SystemExit(
                f"{path.name}: {entry['path']} has no line {missing[0].strip()!r} any more: take the entry out."
            )
    return entries


def is_explained(entries: Iterable[Mapping[str, str]], path: str, function: str, before: str, after: str) -> bool:
    """True if an entry is about this change; one without `after` is about every change of its line."""
    return any(
        entry["path"] == path
        and entry.get("function", function) == function
        and entry["before"].strip() == before.strip()
        and entry.get("after", after).strip() == after.strip()
        for entry in entries
    )


# --- one mutant -------------------------------------------------------------------------------------------------------


class _Chosen:
    """Plugin of pytest: these tests, in this order."""

    def __init__(self, tests: Sequence[str]) -> None:
        self._place = {test: place for place, test in enumerate(tests)}

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = sorted(
            (item for item in items if item.nodeid in self._place), key=lambda item: self._place[item.nodeid]
        )


def judged(
    bench: Bench, executed: Executed, mutation: Mutation, explanations: Sequence[Mapping[str, str]], seconds: float
) -> dict[str, Any]:
    """Outcome of one mutant: killed, timeout, explained or survived."""
    source = source_of(bench.tree, mutation.path)
    before, after = mutation.diff(source)
    room = room_of(mutation.path)
    result = {
        "path": mutation.path, "line": mutation.line, "function": mutation.function, "kind": mutation.kind, "room": room,
        "before": before, "after": after, "outcome": "explained", "tests": 0, "seconds": 0.0,
    }  # fmt: skip
    if is_explained(explanations, mutation.path, mutation.function, before, after):
        return result
    began = time.monotonic()
    where = f"{mutation.path}|{mutation.function}"
    tests = in_order(executed, tests_of(executed, bench.tree, mutation), where, room, seconds)
    bench.write(mutation.path, mutation.apply(source))
    try:
        result["outcome"] = outcome_of(bench, executed, tests)
    finally:
        bench.write(mutation.path, source)
    return {**result, "tests": len(tests), "seconds": round(time.monotonic() - began, 1)}


def outcome_of(bench: Bench, executed: Executed, tests: Sequence[str]) -> str:
    for part in rounds(executed, tests):
        files = list(dict.fromkeys(test.split("::")[0] for test in part))
        limit = 60.0 + 10 * sum(executed.seconds[test] for test in part)
        code = bench.pytest(["-x", *files], _Chosen(part), limit, lambda: None)
        if code is None:
            return "timeout"
        if code not in (0, 5):
            return "killed"
    return "survived"


def rounds(executed: Executed, tests: Sequence[str]) -> list[list[str]]:
    """Few files and seconds first, then the rest."""
    first: list[str] = []
    files: set[str] = set()
    spent = 0.0
    for test in tests:
        file = test.split("::")[0]
        if (file in files or len(files) < FIRST_FILES) and spent <= FIRST_SECONDS:
            files.add(file)
            spent += executed.seconds[test]
            first.append(test)
    taken = set(first)
    return [part for part in (first, [test for test in tests if test not in taken]) if part]


# --- the report -------------------------------------------------------------------------------------------------------


def totals(results: Iterable[Mapping[str, Any]]) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for result in results:
        found[result["room"]][result["outcome"]] += 1
    return found


def told(results: Sequence[Mapping[str, Any]]) -> str:
    """The report in Markdown: a table of the rooms, and each survivor with its diff."""
    out = io.StringIO()
    out.write("| room | mutants | killed | out of time | explained | survive |\n|---|---|---|---|---|---|\n")
    for room, counts in totals(results).items():
        cells = [counts[name] for name in ("killed", "timeout", "explained", "survived")]
        out.write(f"| {room} | {sum(cells)} | {' | '.join(map(str, cells))} |\n")
    for result in results:
        if result["outcome"] == "survived":
            out.write(
                f"\n{result['path']}:{result['line']} in `{result['function'] or 'the file'}`, {result['tests']} tests\n"
            )
            lines = [f"- {line}" for line in result["before"].splitlines()]
            lines += [f"+ {line}" for line in result["after"].splitlines()]
            out.write("\n".join(["```diff", *lines, "```"]) + "\n")
    return out.getvalue()


if __name__ == "__main__":
    raise SystemExit(main())
