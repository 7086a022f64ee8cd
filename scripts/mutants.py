"""Sampled mutation run: small changes of the source that no test of its room notices.

    $ make mutants                                                       # 40 of each room
    $ make mutants MUTANTS="--paths src/twintrace/judge --count 200"     # more of one; a file or folder
    judge        200 mutants   194 killed     4 explained     2 survive
    build/mutants/report.md

A mutant (`mutations.py`) is killed if a test fails or runs out of time. Only tests that execute the changed statement are run; for
a constant at the top of a file those that execute a statement with its name. Which these are is recorded once with `coverage`,
test by test, and kept in build/mutants for each test file as long as it stays the same (`--record`: anew). A survivor is a rule
without a test, or has an entry in `mutants.toml` that says why nothing can notice it.

mutmut and cosmic-ray were tried. mutmut changes what is inside of functions alone, and the constants of the judge are outside;
cosmic-ray starts an interpreter and the whole command for each mutant, which here is an import of PyTorch and a minute of tests.
Here every mutant is a fork of a process that has imported the libraries, in a copy of the tree: the checkout is never changed.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import hashlib
import importlib
import io
import itertools
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from mutations import Mutation, assigned, functions, mutations, references

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
LEFT_OUT = (
    ".git",
    ".venv",
    "build",
    "dist",
    "runs",
    "__pycache__",
    ".pytest_cache",
    ".mypy_cache",
    ".ruff_cache",
    "site",
)
FIRST_FILES, FIRST_SECONDS = 4, 6.0
"""Most mutants die early: test files and seconds of the first round."""
MEMORY = 24 << 30


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Change the source in small ways and see which changes no test notices."
    )
    parser.add_argument("--paths", nargs="+", default=[f"src/twintrace/{room}" for room in ROOMS], metavar="PATH")
    parser.add_argument("--count", type=int, default=40, help="mutants of each path (default: 40)")
    parser.add_argument("--seed", type=int, default=0, help="another sample (default: 0)")
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
            chosen = sample(root, path, asked.count, asked.seed)
            if asked.again:
                again = {(item["path"], item["before"], item["after"]) for item in old if item["outcome"] == "survived"}
                everything = sample(root, path, None, asked.seed)
                chosen = [item for item in everything if (item.path, *item.diff(source_of(root, item.path))) in again]
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


def source_of(root: Path, path: str) -> str:
    return (root / path).read_text(encoding="utf-8")


def room_of(path: str) -> str:
    """Package of a file or folder below src/twintrace."""
    return (*Path(path).parts, "", "", "")[2]


def sample(root: Path, path: str, count: int | None, seed: int) -> list[Mutation]:
    """One mutation each of `count` lines below a path, drawn with this seed; all mutations if there is no count."""
    place = root / path
    files = sorted(place.rglob("*.py")) if place.is_dir() else [place]
    names = [file.relative_to(root).as_posix() for file in files]
    every = [item for name in names for item in mutations(name, source_of(root, name))]
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


def is_explained(entries: Iterable[Mapping[str, str]], path: str, before: str, after: str) -> bool:
    """True if an entry is about this change; one without `after` is about every change of its line."""
    return any(
        entry["path"] == path
        and entry["before"].strip() == before.strip()
        and entry.get("after", after).strip() == after.strip()
        for entry in entries
    )


# --- a copy of the tree, and processes in it --------------------------------------------------------------------------


@contextlib.contextmanager
def copied(root: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(root, tree, ignore=shutil.ignore_patterns(*LEFT_OUT), symlinks=True)
        yield tree


@dataclass
class Bench:
    """A copy of the tree, and pytest in forks of this process."""

    tree: Path
    recorded: set[str] = field(default_factory=set)
    """Test files that were recorded in this run."""
    _stamp: int = 1_000_000_000

    def write(self, path: str, text: str) -> None:
        """Writes a file with a time of its own: the compiled one of another text of the same length would be taken otherwise."""
        self._stamp += 2
        (self.tree / path).write_text(text, encoding="utf-8")
        os.utime(self.tree / path, (self._stamp, self._stamp))

    def pytest(
        self, arguments: Sequence[str], plugin: object, seconds: float, finish: Callable[[], None]
    ) -> int | None:
        """Exit code of pytest in a fork, or None if it took longer than that; `finish` is called in the fork."""
        scratch = self.tree.parent / "scratch"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        child = os.fork()
        if not child:
            code = 3
            try:
                os.setpgid(0, 0)
                resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
                with (self.tree.parent / "log").open("wb") as log:
                    os.dup2(log.fileno(), 1)
                    os.dup2(log.fileno(), 2)
                os.chdir(self.tree)
                sys.path[:0] = [str(self.tree / "src")]
                os.environ["PYTHONPATH"] = str(self.tree / "src")
                os.environ["TMPDIR"] = tempfile.tempdir = str(scratch)
                for file in (self.tree / "build").glob("*"):
                    shutil.rmtree(file, ignore_errors=True)
                options = ["-q", "-n", "0", "-p", "no:cacheprovider", "-m", "not slow", "--tb=line"]
                code = int(pytest.main([*options, f"--basetemp={scratch / 'base'}", *arguments], [plugin]))
                finish()
            except BaseException:  # noqa: BLE001 - the fork may not return into its parent's code
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        return self._wait(child, seconds)

    def _wait(self, child: int, seconds: float) -> int | None:
        until = time.monotonic() + seconds
        pause = 0.01
        while time.monotonic() < until:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                self._end_group(child)
                return os.waitstatus_to_exitcode(status)
            time.sleep(pause)
            pause = min(2 * pause, 0.2)
        self._end_group(child)
        os.waitpid(child, 0)
        return None

    def _end_group(self, child: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child, signal.SIGKILL)


# --- which tests execute what -----------------------------------------------------------------------------------------


@dataclass
class Executed:
    """Tests by the lines that they execute. A line is `path|function|text`: it stays the same when lines above it come or go."""

    seconds: dict[str, float] = field(default_factory=dict)
    by_line: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    by_function: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def add(self, seconds: Mapping[str, float], lines: Mapping[str, Iterable[int]]) -> None:
        """Adds those of one file: `lines` has the places of tests in `seconds`."""
        self.seconds.update(seconds)
        tests = list(seconds)
        for line, places in lines.items():
            known = [tests[place] for place in places]
            self.by_line[line].update(known)
            self.by_function[line.rsplit("|", 1)[0]].update(known)


class _Recorder:
    """Plugin of pytest: the time of each test that passes, and its name as the context of `coverage`."""

    def __init__(self, coverage: Any) -> None:
        self._coverage = coverage
        self.seconds: Counter[str] = Counter()
        self.failed: set[str] = set()
        self._test = ""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any, nextitem: Any) -> Any:
        self._test = item.nodeid
        self._coverage.switch_context(self._test)
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Any:
        """What several tests share is executed for all of them."""
        if fixturedef.scope == "function":
            return (yield)
        self._coverage.switch_context("shared")
        try:
            return (yield)
        finally:
            self._coverage.switch_context(self._test)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.seconds[report.nodeid] += report.duration
        if not report.passed:
            self.failed.add(report.nodeid)


def record(bench: Bench, files: Iterable[str], folder: Path, anew: bool) -> Executed:
    """The tests of these files, and the lines they execute; of files that have changed since, recorded now."""
    found = Executed()
    folder.mkdir(parents=True, exist_ok=True)
    for path in files:
        own = hashlib.sha256((bench.tree / path).read_bytes()).hexdigest()[:16]
        kept = folder / f"{path.replace('/', '.')}.json"
        known = (
            json.loads(kept.read_text(encoding="utf-8"))
            if kept.exists() and (path in bench.recorded or not anew)
            else {}
        )
        if known.get("file") != own:
            print(f"recording {path}", file=sys.stderr, flush=True)
            code = _record_file(bench, path, kept)
            if code not in (0, 1, 5):
                log = (bench.tree.parent / "log").read_text(encoding="utf-8", errors="replace")
                raise SystemExit(f"{path}: pytest ended with {code}\n{log[-2000:]}")
            bench.recorded.add(path)
            known = json.loads(kept.read_text(encoding="utf-8"))
            kept.write_text(json.dumps({"file": own, **known}), encoding="utf-8")
        found.add(known["seconds"], known["lines"])
    return found


def test_files(tree: Path, room: str) -> list[str]:
    rooms = (room, *NEIGHBOURS.get(room, ()))
    return sorted(
        path.relative_to(tree).as_posix() for name in rooms for path in tree.glob(f"tests/{name}/**/test_*.py")
    )


def _record_file(bench: Bench, path: str, kept: Path) -> int | None:
    import coverage

    source = bench.tree / "src"
    data = bench.tree.parent / "coverage"
    data.unlink(missing_ok=True)
    measuring = coverage.Coverage(data_file=str(data), source=[str(source)], config_file=False, messages=False)
    measuring.set_option("run:core", "ctrace")  # the other one knows no contexts
    recorder = _Recorder(measuring)

    def finish() -> None:
        measuring.stop()
        measuring.save()
        passed = {name: seconds for name, seconds in recorder.seconds.items() if name not in recorder.failed}
        lines = _executed(measuring.get_data(), bench.tree, list(passed))
        kept.write_text(json.dumps({"seconds": passed, "lines": lines}), encoding="utf-8")

    class Started:
        """Starts in the fork: threads and tracing do not survive it."""

        def pytest_collection(self, session: Any) -> None:
            measuring.start()
            session.config.pluginmanager.register(recorder)

    return bench.pytest([path], Started(), 1800.0, finish)


def _executed(data: Any, tree: Path, tests: list[str]) -> dict[str, list[int]]:
    places = {test: place for place, test in enumerate(tests)}
    found: dict[str, set[int]] = defaultdict(set)
    for file in data.measured_files():
        path = Path(file).relative_to(tree).as_posix()
        source = source_of(tree, path)
        texts, names = source.splitlines(), functions(source)
        for line, contexts in data.contexts_by_lineno(file).items():
            own = places.values() if "shared" in contexts else {places[item] for item in contexts if item in places}
            if own and line <= len(texts):
                found[key_of(path, names[line], texts[line - 1])].update(own)
    return {line: sorted(numbers) for line, numbers in found.items()}


def key_of(path: str, function: str, text: str) -> str:
    return f"{path}|{function}|{text.strip()}"


def tests_of(executed: Executed, tree: Path, mutation: Mutation) -> set[str]:
    """Tests that execute the statement of a mutation; of one at the top of a file or class, statements with its name."""
    source = source_of(tree, mutation.path)
    found = _at(executed, mutation.path, source, *mutation.statement)
    inner = next((node for node in _statements(source) if node.lineno == mutation.statement[0]), None)
    if not found and inner is not None and isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):  # a default
        return set(executed.by_function.get(f"{mutation.path}|{mutation.function}", ()))
    if not found and inner is not None and assigned(inner):
        names, seen = {assigned(inner)}, set[str]()
        while names:
            seen |= names
            fresh = set()
            for file in sorted((tree / "src").rglob("*.py")):
                text = file.read_text(encoding="utf-8")
                if not any(name in text for name in names):
                    continue
                path = file.relative_to(tree).as_posix()
                for first, last, target in references(text, names):
                    if target:
                        fresh.add(target)
                    else:
                        found |= _at(executed, path, text, first, last)
            names = fresh - seen
    if not found and mutation.function:  # a line that is new since the recording
        found = set(executed.by_function.get(f"{mutation.path}|{mutation.function}", ()))
    return found


def _statements(source: str) -> list[ast.stmt]:
    return [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt)]


def _at(executed: Executed, path: str, source: str, first: int, last: int) -> set[str]:
    texts, names = source.splitlines(), functions(source)
    keys = {key_of(path, names[line], texts[line - 1]) for line in range(first, last + 1)}
    return set().union(*(executed.by_line.get(key, ()) for key in keys))


def in_order(executed: Executed, tests: Iterable[str], room: str, seconds: float) -> list[str]:
    """Tests up to a sum of seconds: those of the room first, short ones first, one of each function before the second of any."""
    turns: dict[str, list[str]] = defaultdict(list)
    for test in sorted(tests, key=lambda test: (executed.seconds[test], test)):
        turns[test.split("[")[0]].append(test)
    ranked = sorted(
        (
            (not test.startswith(f"tests/{room}/"), turn, executed.seconds[test], test)
            for group in turns.values()
            for turn, test in enumerate(group)
        ),
    )
    spent = itertools.accumulate(item[2] for item in ranked)
    return [item[3] for item, total in zip(ranked, spent, strict=True) if total <= seconds or item is ranked[0]]


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
    if is_explained(explanations, mutation.path, before, after):
        return result
    began = time.monotonic()
    tests = in_order(executed, tests_of(executed, bench.tree, mutation), room, seconds)
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
