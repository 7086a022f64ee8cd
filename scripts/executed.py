"""Tests and the lines they execute, recorded with `coverage` in a copy of the tree.

    with copied(root) as tree:
        executed = record(Bench(tree), ["tests/judge/test_state.py"], folder, anew=False)
        executed.by_line["src/twintrace/judge/state.py|worse|return max(statuses, key=ORDER.__getitem__, default=Status.SAME)"]

pytest runs in forks of this process, which has imported what takes long: a test file takes a second more than its tests.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import itertools
import json
import os
import resource
import shutil
import signal
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
from mutations import Mutation, assigned, functions, references

LEFT_OUT = frozenset(
    (".git", ".venv", "build", "dist", "runs", "site", "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache")
)
MEMORY = 24 << 30
"""Bytes of address space of a fork: a mutant may ask for any amount."""


def source_of(root: Path, path: str) -> str:
    return (root / path).read_text(encoding="utf-8")


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
    of_function: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Lines by `path|function`."""

    def add(self, seconds: Mapping[str, float], lines: Mapping[str, Iterable[int]]) -> None:
        """Adds those of one file: `lines` has the places of tests in `seconds`."""
        self.seconds.update(seconds)
        tests = list(seconds)
        for line, places in lines.items():
            known = [tests[place] for place in places]
            self.by_line[line].update(known)
            self.of_function["|".join(line.split("|", 2)[:2])].add(line)

    def by_function(self, where: str) -> set[str]:
        """Tests that execute something of a function."""
        return set().union(*(self.by_line[line] for line in self.of_function[where]))


class _Recorder:
    """Plugin of pytest: processor time of each test that passes, and its name as the context of `coverage`."""

    def __init__(self, coverage: Any) -> None:
        self._coverage = coverage
        self.seconds: dict[str, float] = {}
        self.failed: set[str] = set()
        self._test = ""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any, nextitem: Any) -> Any:
        self._test = item.nodeid
        self._coverage.switch_context(self._test)
        began = sum(os.times()[:4])
        found = yield
        self.seconds[self._test] = sum(os.times()[:4]) - began
        return found

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
    """Tests that execute the statement of a mutation; of one at the top of a file or class, which is executed by whoever imports it
    first, those that execute statements with its name; of a default, those of its function.
    """
    source = source_of(tree, mutation.path)
    where = f"{mutation.path}|{mutation.function}"
    nodes = _statements(source)
    definitions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    if any(node.body[0].lineno <= mutation.line <= (node.end_lineno or 0) for node in definitions):
        # Nothing of a line that is new since the recording: then those of the function.
        return _at(executed, mutation.path, source, *mutation.statement) or executed.by_function(where)
    inner = next(node for node in nodes if node.lineno == mutation.statement[0])
    if not assigned(inner):
        return executed.by_function(where)
    found: set[str] = set()
    names, seen = assigned(inner), set[str]()
    while names:
        seen |= names
        fresh: set[str] = set()
        for file in sorted((tree / "src").rglob("*.py")):
            text = file.read_text(encoding="utf-8")
            if not any(name in text for name in names):
                continue
            path = file.relative_to(tree).as_posix()
            for first, last, targets in references(text, names):
                fresh |= targets
                if not targets:
                    found |= _at(executed, path, text, first, last)
        names = fresh - seen
    return found


def _statements(source: str) -> list[ast.stmt]:
    return [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt)]


def _at(executed: Executed, path: str, source: str, first: int, last: int) -> set[str]:
    texts, names = source.splitlines(), functions(source)
    keys = {key_of(path, names[line], texts[line - 1]) for line in range(first, last + 1)}
    return set().union(*(executed.by_line.get(key, ()) for key in keys))


def in_order(executed: Executed, tests: Iterable[str], where: str, room: str, seconds: float) -> list[str]:
    """Tests up to a sum of seconds: those of the room first, one of each test function before the second of any. In turn the one
    that executes most lines of the function at `where`, which others leave early, and the shortest.
    """
    lines: Counter[str] = Counter()
    for line in executed.of_function[where]:
        lines.update(executed.by_line[line])
    turns: dict[tuple[bool, int], list[str]] = defaultdict(list)
    seen: Counter[str] = Counter()
    for test in sorted(tests, key=lambda test: (-lines[test], executed.seconds[test], test)):
        turns[not test.startswith(f"tests/{room}/"), seen[test.split("[")[0]]].append(test)
        seen[test.split("[")[0]] += 1
    found: dict[str, float] = {}
    for turn in sorted(turns):
        short = sorted(turns[turn], key=executed.seconds.__getitem__)
        for test in itertools.chain.from_iterable(zip(turns[turn], short, strict=True)):
            if not found or sum(found.values()) + executed.seconds[test] <= seconds:
                found[test] = executed.seconds[test]
    return list(found)
