"""Run the tests with the oldest, the middle and the newest versions, and write the table of docs/reference/versions.md.

    $ make matrix                      # every row
    $ make matrix MATRIX=oldest        # one of them; the others keep their lines in the table
    matrix: oldest: Python 3.10.13, numpy 1.24.0, torch 2.1.0, mindspore 2.7.0: 1370 passed, 31 skipped

Each row has an environment of its own, built and cached by scripts/env.py like that of `make test`, with the row's interpreter:
`python3.10` on PATH, or one of pyenv's. A build of torch for GPUs takes about 5 GB; an index with builds for CPUs, in
PIP_EXTRA_INDEX_URL, makes it a tenth. With `--discard` an environment is removed as soon as its row is through.

The tests are those that a version can break: hooks, recording, formats, weights, comparing, the verbs, the command line. The
corpora and the browser are left to `make test`. A row that fails stays in the table as failed, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import env

PAGE = env.ROOT / "docs" / "reference" / "versions.md"
EXTRA = "matrix"
PACKAGES = ("numpy", "torch", "mindspore")
TESTS = (
    "tests/frameworks",
    "tests/collect/test_session.py",
    "tests/collect/test_flatten.py",
    "tests/store/test_arrays.py",
    "tests/store/test_npy.py",
    "tests/store/test_reader.py",
    "tests/store/test_writer.py",
    "tests/measure/test_values.py",
    "tests/weights/test_checkpoints.py",
    "tests/weights/test_conversion.py",
    "tests/operations/test_workers.py",
    "tests/cli/test_commands.py",
    "tests/cli/test_show.py",
    "tests/test_api.py",
    "tests/test_arrays.py",
    "tests/test_comparing.py",
    "tests/test_imports.py",
    "tests/test_results.py",
    "tests/test_versions.py",
    "--ignore=tests/frameworks/torch/test_zoo.py",  # of the models that the others are tested with, not of twintrace
)


@dataclass(frozen=True)
class Row:
    """Versions that are tested together. Of `2.6` the last patch is taken. None: the package is not installed."""

    name: str
    python: str
    numpy: str
    torch: str | None
    mindspore: str | None

    @property
    def pins(self) -> list[str]:
        wanted = {package: getattr(self, package) for package in PACKAGES}
        pins = [
            f"{package}=={version}{'.*' if version.count('.') == 1 else ''}"
            for package, version in wanted.items()
            if version is not None
        ]
        return (
            [*pins, "pyarrow<25"] if self.numpy.startswith("1.") else pins
        )  # later ones want numpy 2, and pip does not know

    @property
    def requires(self) -> list[str]:
        return [f"--require={package}" for package in PACKAGES[1:] if getattr(self, package) is not None]


ROWS = (
    Row("oldest", "3.10", "1.24.0", "2.1.0", "2.7.0"),
    Row("middle", "3.12", "1.26", "2.6", "2.8"),
    Row("tested", "3.11", "1.26", "2.13", "2.10"),
    Row("numpy2", "3.12", "2.5", None, "2.10"),
    Row("newest", "3.13", "2.5", "2.15", None),
)
"""Both ends of each package, torch in the middle too, and what `make test` runs with. MindSpore has no build for Python 3.13."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Run the tests with several versions of everything.")
    parser.add_argument(
        "rows", nargs="*", metavar="ROW", help=f"of {', '.join(row.name for row in ROWS)} (default: all)"
    )
    parser.add_argument("--discard", action="store_true", help="remove each environment when its row is through")
    parser.add_argument("--workers", default="auto", help="pytest's -n (default: auto)")
    parser.add_argument("--environment", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args(argv)
    unknown = set(asked.rows) - {row.name for row in ROWS}
    if unknown:
        parser.error(f"no row {', '.join(sorted(unknown))}: there are {', '.join(row.name for row in ROWS)}")
    chosen = [row for row in ROWS if row.name in (asked.rows or [row.name])]
    try:
        if asked.environment:
            print(json.dumps(environment(chosen[0])))
            return 0
        passed = [run(row, workers=asked.workers, discard=asked.discard) for row in chosen]
    except (env.EnvError, OSError) as error:
        print(f"matrix: {error}", file=sys.stderr)
        return 1
    return 0 if all(passed) else 1


# --- environments -----------------------------------------------------------------------------------------------------


def environment(row: Row) -> dict[str, str]:
    """Makes the row's two layers, by its own interpreter, which runs this; their folders."""
    envs, thin = env.cache_folder(), env.ROOT / "build" / "matrix" / row.name
    envs.mkdir(parents=True, exist_ok=True)
    thin.parent.mkdir(parents=True, exist_ok=True)
    pyproject = env.tomllib.loads((env.ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = sorted({*env.requirements(pyproject, [EXTRA]), *row.pins})
    with env.lock(envs / f"{env.env_name(wanted)}.lock"), contextlib.redirect_stdout(sys.stderr):
        cached = envs / env.env_name(wanted)
        if not env.stamp_of(cached):  # a larger environment would do, but may have other versions
            env.build(envs, wanted)
        env.lay_over(env.ROOT, thin, cached, [])
    return {"cached": str(cached), "python": str(thin / "bin" / "python")}


def interpreter(version: str) -> str:
    """Path of a Python of this version that can make environments."""
    for path in candidates(version):
        ask = [path, "-I", "-c", "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"]
        if subprocess.run(ask, capture_output=True, text=True).stdout.strip() == version:
            return path
    raise env.EnvError(
        f"no Python {version} with venv found, on PATH or below pyenv's versions. Install one and run again."
    )


def candidates(version: str) -> Iterator[str]:
    found = shutil.which(f"python{version}")
    if found:
        yield found
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from map(str, sorted(pyenv.glob(f"versions/{version}.*/bin/python")))


# --- a row ------------------------------------------------------------------------------------------------------------


def run(row: Row, *, workers: str, discard: bool) -> bool:
    """Runs the tests of a row and writes its line; True if none failed."""
    made = subprocess.run(
        [interpreter(row.python), __file__, row.name, "--environment"], stdout=subprocess.PIPE, text=True
    )
    if made.returncode:
        raise env.EnvError(f"no environment for the row {row.name}.")
    folders = json.loads(made.stdout.splitlines()[-1])
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [
            folders["python"],
            "-m",
            "pytest",
            "-n",
            workers,
            "-q",
            "-m",
            "not slow",
            "--older-releases",
            f"--junitxml={report}",
        ]
        subprocess.run([*command, *row.requires, *TESTS], cwd=env.ROOT, env=os.environ | {"GLOG_v": "3"})
        result = outcome(report)
    versions = installed(folders["python"])
    line = [row.name, *(versions.get(name, "–") for name in ("python", *PACKAGES)), result]
    write(PAGE, line)
    print(f"matrix: {row.name}: {', '.join(f'{name} {version}' for name, version in versions.items())}: {result}")
    if discard:
        shutil.rmtree(folders["cached"])
        shutil.rmtree(Path(folders["python"]).parent.parent)
    return "failed" not in result


def outcome(report: Path) -> str:
    """`1370 passed, 31 skipped`, of a report of pytest's."""
    if not report.is_file():
        return "failed to start"
    suites = list(ElementTree.parse(report).getroot().iter("testsuite"))
    total, failures, errors, skipped = (
        sum(int(suite.get(name, 0)) for suite in suites) for name in ("tests", "failures", "errors", "skipped")
    )
    failed = failures + errors
    parts = [(total - failed - skipped, "passed"), (skipped, "skipped"), (failed, "failed")]
    return ", ".join(f"{number} {word}" for number, word in parts if number) or "failed to find a test"


def installed(python: str) -> Mapping[str, str]:
    """Versions of Python and of what a row names, as the interpreter says them."""
    ask = "import json, platform, sys; from importlib.metadata import distributions as all;" + (
        "print(json.dumps({'python': platform.python_version(), **{d.name: d.version for d in all() if d.name in sys.argv}}))"
    )
    told = subprocess.run([python, "-c", ask, *PACKAGES], capture_output=True, text=True, check=True)
    found = json.loads(told.stdout)
    return {name: found[name] for name in ("python", *PACKAGES) if name in found}


# --- the table --------------------------------------------------------------------------------------------------------


def write(page: Path, line: Sequence[str]) -> None:
    """Puts a line into the page's table, in the place of the one with the same name, else at the row's place."""
    text = page.read_text(encoding="utf-8")
    before, head, rest = re.split(r"(\| row \|.*\n\|[-|]+\n)", text, maxsplit=1)
    table, after = re.match(r"((?:\|[^\n]*\n)*)(.*)", rest, re.DOTALL).groups()
    lines = {cells(old)[0]: old for old in table.splitlines()}
    lines[line[0]] = f"| {' | '.join(line)} |"
    ordered = "".join(f"{lines[row.name]}\n" for row in ROWS if row.name in lines)
    env.replace(page, before + head + ordered + after)


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


if __name__ == "__main__":
    sys.exit(main())
