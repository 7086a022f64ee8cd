"""Self-check a whole script: three fresh processes, the same script, compared by what they end with.

    python -m twintrace.collect.scripts CONFIG.json     one such process (started by `selfcheck_script`)

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
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..frameworks import registry
from ..model.errors import SessionError, UsageError
from ..model.records import Keep, Level
from .selfcheck import Run, SelfCheck, judge


def selfcheck_script(
    script: str, arguments: Sequence[str] = (), *, level: str | None = None, keep: str | None = None
) -> SelfCheck:
    """Run `script` twice without and once with recording, each in a process of its own, and compare bit by bit."""
    runs = []
    if not Path(script).is_file():
        raise UsageError(f"{script}: expected a script, and there is no such file.")
    if not _imported(Path(script).resolve()) & registry.packages():
        raise UsageError(
            f"{script} imports no framework that can be recorded ({', '.join(registry.names())}), nor do the files beside it."
        )
    with tempfile.TemporaryDirectory(prefix="twintrace-selfcheck-") as directory:
        for number, recording in enumerate((False, False, True)):
            config: dict[str, Any] = {
                "script": script,
                "arguments": list(arguments),
                "recording": recording,
                "level": level,
                "keep": keep,
            }
            config["result"] = str(Path(directory) / f"result{number}.json")
            file = Path(directory) / f"config{number}.json"
            file.write_text(json.dumps(config))
            environment = os.environ | {"PYTHONHASHSEED": "0"}
            done = subprocess.run(
                [sys.executable, "-m", "twintrace.collect.scripts", str(file)], env=environment, check=False
            )
            if not Path(config["result"]).is_file():
                raise SessionError(
                    f"{script}: the process {'with' if recording else 'without'} recording ended with code {done.returncode} "
                    f"before it could be compared. Its own messages are above."
                )
            found = json.loads(Path(config["result"]).read_text())
            run = Run(recording=recording, level=Level(level) if level else None, keep=Keep(keep) if keep else None)
            run.values, run.calls, run.raised = found["values"], found["calls"], found["raised"]
            run.used = set(found["used"])
            runs.append(run)
    return judge(*runs)


def _run_one(config: dict[str, Any]) -> None:
    level, keep = config["level"], config["keep"]
    run = Run(recording=config["recording"], level=Level(level) if level else None, keep=Keep(keep) if keep else None)
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
    found: set[str] = set()
    pending, seen = [script], {script}
    while pending:
        try:
            packages = _packages(pending.pop().read_text(encoding="utf-8"))
        except (OSError, SyntaxError, ValueError):
            continue  # it will say so itself when it runs
        found |= packages
        for name in packages:
            for file in (script.parent / f"{name}.py", *sorted((script.parent / name).glob("**/*.py"))):
                if file.is_file() and file not in seen:
                    seen.add(file)
                    pending.append(file)
    return found


def _packages(source: str) -> set[str]:
    """The first part of every name that is imported, wherever in the file."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.split(".")[0])
    return found


if __name__ == "__main__":
    _run_one(json.loads(Path(sys.argv[1]).read_text()))
