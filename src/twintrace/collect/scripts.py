"""Self-check a whole script: three fresh processes, the same script, compared by what they end with.

    python -m twintrace.collect.scripts CONFIG.json     one such process (started by `selfcheck_script`)

Each process runs the script with `tt.record` either doing nothing or recording into a temporary directory, and writes down the
fingerprints of the models that were recorded and of the script's global variables.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..frameworks import registry
from ..model.errors import SessionError
from ..model.records import Keep, Level
from .selfcheck import Run, SelfCheck, judge


def selfcheck_script(
    script: str, arguments: Sequence[str] = (), *, level: str | None = None, keep: str | None = None
) -> SelfCheck:
    """Run `script` twice without and once with recording, each in a process of its own, and compare bit by bit."""
    runs = []
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
            run.values, run.calls = found["values"], found["calls"]
            runs.append(run)
    return judge(*runs)


def _run_one(config: dict[str, Any]) -> None:
    level, keep = config["level"], config["keep"]
    run = Run(recording=config["recording"], level=Level(level) if level else None, keep=Keep(keep) if keep else None)
    sys.argv = [config["script"], *config["arguments"]]
    sys.path.insert(0, str(Path(config["script"]).resolve().parent))

    def whole_script() -> dict[str, Any]:
        names = runpy.run_path(config["script"], run_name="__main__")
        return {name: value for name, value in names.items() if not name.startswith("_")}

    run(lambda: _recorded_whole(run, whole_script))
    Path(config["result"]).write_text(json.dumps({"values": run.values, "calls": run.calls}))


def _recorded_whole(run: Run, script: Any) -> Any:
    """A script that does not call `tt.record` is recorded as a whole, provided that it imports a framework that can be."""
    if "twintrace" in Path(sys.argv[0]).read_text():
        return script()
    for name in registry.names():
        if registry.installed(name) and name != registry.REFERENCE:
            registry.by_name(name)
            with run.record(None):
                return script()
    return script()


if __name__ == "__main__":
    _run_one(json.loads(Path(sys.argv[1]).read_text()))
