"""Run a whole script in fresh processes: for the self-check three times, compared by what they end with; or twice, recorded.

    python -m twintrace.collect.scripts CONFIG.json     one such process (started by `selfcheck_script` and `record_twice`)

Each process runs the script with `tt.record` either doing nothing or recording into a temporary directory, and writes down the
fingerprints of the models that were recorded and of the script's global variables.
"""

from __future__ import annotations

import ast
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..frameworks import registry
from ..model.errors import SessionError, UsageError
from ..model.records import Keep, Level
from ..model.words import KeepName, LevelName
from .selfcheck import Run, SelfCheck, judge


def selfcheck_script(
    script: str, arguments: Sequence[str] = (), *, level: LevelName | None = None, keep: KeepName | None = None
) -> SelfCheck:
    """Run `script` twice without and once with recording, each in a process of its own, and compare bit by bit."""
    _check(script)
    with tempfile.TemporaryDirectory(prefix="twintrace-selfcheck-") as directory:
        runs = [
            _in_a_process(
                Path(directory) / str(number),
                script,
                arguments,
                hash_seed="0",
                recording=recording,
                level=level,
                keep=keep,
            )
            for number, recording in enumerate((False, False, True))
        ]
    return judge(*runs)


def record_twice(
    script: str, arguments: Sequence[str], folder: Path, *, level: LevelName | None = None, seed: int | None = None
) -> tuple[Run, Run]:
    """Run `script` twice, each in a process of its own, recorded with fingerprints into `folder/first` and `folder/second`.

    Generators are left as the script finds them, unless a seed is given; so is PYTHONHASHSEED.
    """
    _check(script)
    hash_seed = None if seed is None else str(seed)
    options: dict[str, Any] = {"level": level, "keep": Keep.FINGERPRINT.value, "seed": seed}
    first, second = (
        _in_a_process(folder / name, script, arguments, hash_seed=hash_seed, folder=str(folder / name), **options)
        for name in ("first", "second")
    )
    return first, second


def _check(script: str) -> None:
    if not Path(script).is_file():
        raise UsageError(f"{script}: expected a script, and there is no such file.")
    if not _imported(Path(script).resolve()) & registry.packages():
        raise UsageError(
            f"{script} imports no framework that can be recorded ({', '.join(registry.names())}), nor do the files beside it."
        )


def _in_a_process(place: Path, script: str, arguments: Sequence[str], *, hash_seed: str | None, **options: Any) -> Run:
    """One run in a process of its own: what it ended with. `options` are those of `Run`, as JSON has them."""
    place.mkdir(parents=True, exist_ok=True)
    chosen = {"recording": True, "level": None, "keep": None, "seed": 0, "folder": None} | options
    result, file = place.with_suffix(".result.json"), place.with_suffix(".config.json")
    file.write_text(json.dumps({"script": script, "arguments": list(arguments), "result": str(result)} | chosen))
    environment = dict(os.environ) if hash_seed is None else os.environ | {"PYTHONHASHSEED": hash_seed}
    done = subprocess.run([sys.executable, "-m", "twintrace.collect.scripts", str(file)], env=environment, check=False)
    file.unlink()
    if not result.is_file():
        raise SessionError(
            f"{script}: the process {'with' if chosen['recording'] else 'without'} recording ended with code {done.returncode} "
            f"before it could be compared. Its own messages are above."
        )
    outcome = json.loads(result.read_text())
    result.unlink()
    run = _run_of(chosen)
    run.values, run.calls, run.raised = outcome["values"], outcome["calls"], outcome["raised"]
    run.used = set(outcome["used"])
    return run


def _run_of(config: Mapping[str, Any]) -> Run:
    level, keep, folder = config["level"], config["keep"], config["folder"]
    return Run(
        recording=config["recording"],
        level=Level(level) if level else None,
        keep=Keep(keep) if keep else None,
        seed=config["seed"],
        folder=Path(folder) if folder else None,
    )


def _run_one(config: dict[str, Any]) -> None:
    run = _run_of(config)
    script = Path(config["script"]).resolve()
    sys.argv = [config["script"], *config["arguments"]]
    sys.path.insert(0, str(script.parent))
    source = script.read_text()
    registry.load(_imported(script))  # before anything is seeded
    run(lambda: _execute(run, script, source))
    result = {"values": run.values, "calls": run.calls, "raised": run.raised, "used": sorted(run.used)}
    Path(config["result"]).write_text(json.dumps(result))


def _execute(run: Run, script: Path, source: str) -> dict[str, Any]:
    """Run the script; its global variables. One that records nothing itself is recorded as a whole."""
    module = types.ModuleType("__main__")
    module.__file__ = str(script)
    sys.modules["__main__"] = module
    code = compile(source, str(script), "exec")
    around = contextlib.nullcontext() if _records_itself(source) else run.record(None)
    with around, contextlib.suppress(SystemExit):
        exec(code, module.__dict__)
    names = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    # Plain numbers may be anything, times among them; tensors, arrays and models are what is to be compared.
    return {name: value for name, value in names.items() if not isinstance(value, bool | int | float | complex)}


def _records_itself(source: str) -> bool:
    """Does it call tt.record, in whatever words?"""
    names = {
        getattr(node, "attr", None) or getattr(node, "name", None)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute | ast.alias)
    }
    return "twintrace" in _packages(source) and "record" in names


def _imported(script: Path) -> set[str]:
    """The packages that a script imports, itself or through the files beside it."""
    packages_of_all: set[str] = set()
    pending, seen = [script], {script}
    while pending:
        try:
            packages = _packages(pending.pop().read_text(encoding="utf-8"))
        except (OSError, SyntaxError, ValueError):
            continue  # it will say so itself when it runs
        packages_of_all |= packages
        for name in packages:
            for file in (script.parent / f"{name}.py", *sorted((script.parent / name).glob("**/*.py"))):
                if file.is_file() and file not in seen:
                    seen.add(file)
                    pending.append(file)
    return packages_of_all


def _packages(source: str) -> set[str]:
    """The first part of every name that is imported, wherever in the file."""
    packages: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            packages |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            packages.add(node.module.split(".")[0])
    return packages


if __name__ == "__main__":
    _run_one(json.loads(Path(sys.argv[1]).read_text()))
