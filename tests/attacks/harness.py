"""Ask the jail, and believe nothing else than a result or an error of ours.

jail(path)                    Answer; AssertionError where reading crashed, hung or ate memory
answer.strict.error           the first error, as text, or None
answer.found_out(good)        was the damage noticed, or harmless?
"""

import json
import select
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import specimens

SECONDS = 20
MEGABYTES = 512


@dataclass
class Answer:
    """How each way of reading ended."""

    ways: dict[str, SimpleNamespace]
    opened: list[str]

    @property
    def strict(self) -> SimpleNamespace:
        return self.ways["strict"]

    @property
    def tolerant(self) -> SimpleNamespace:
        return self.ways["tolerant"]

    def noticed(self) -> bool:
        """Did both ways of reading say that something is wrong?"""
        return all(way.error is not None or way.damage > 0 for way in (self.strict, self.tolerant))

    def same_as(self, other: "Answer") -> bool:
        """Was exactly the same read?"""
        return all(self.ways[name].hash == other.ways[name].hash for name in ("strict", "tolerant"))


class Jail:
    """A process that reads traces for us. It is started when it is needed, and again after it died."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> "Jail":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __call__(self, path: Path, *, seconds: float = SECONDS, megabytes: int = MEGABYTES, **more: object) -> Answer:
        answer = self._ask({"path": str(path), "seconds": seconds, "megabytes": megabytes} | more)
        if "crash" in answer:
            if "before" not in more:
                self.stop()
            raise AssertionError(f"reading {path} crashed: {answer['crash']}")
        opened = answer.pop("opened")
        return Answer({name: SimpleNamespace(**way) for name, way in answer.items()}, opened)

    def _ask(self, request: dict[str, object]) -> dict[str, object]:
        process = self._start()
        try:
            print(json.dumps(request), file=process.stdin, flush=True)
            answer = self._line(float(request["seconds"]) + 20)
        except BrokenPipeError:
            answer = ""
        if not answer:
            self.stop()
            return {"crash": f"the process ended with status {process.returncode}, or did not answer"}
        return json.loads(answer)

    def _start(self) -> "subprocess.Popen[str]":
        if self._process is None:
            command = [sys.executable, str(Path(__file__).parent / "jail.py")]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            self._process = subprocess.Popen(command, env=specimens.environment(), text=True, **pipes)
            assert self._line(120).strip() == "ready"
        return self._process

    def _line(self, seconds: float) -> str:
        assert self._process is not None
        ready, _, _ = select.select([self._process.stdout], [], [], seconds)
        return self._process.stdout.readline() if ready else ""

    def stop(self) -> None:
        """End the process; the next question starts another."""
        if self._process is not None:
            process, self._process = self._process, None
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()
