"""A process that records and is killed. `python killed.py`, then on stdin: a line of JSON for each run; on stdout:

    pid 4711        the child that records
    0 17            17 calls of step 0 are recorded, says the child, as soon as it is so
    0 18
    gone 4711       the child has ended

Torch is imported once; each run is a fork of this process, so fifty kills take no longer than fifty runs.
"""

import json
import os
import sys
import warnings
from pathlib import Path

import torch

import twintrace as tt
from twintrace.store import digest
from twintrace.store.lines import seal
from twintrace.store.writer import TraceWriter


def say(text: str) -> None:
    os.write(1, f"{text}\n".encode())


def record(path: str, *, size: int, buffer: int) -> None:
    """Calls whose results are known: the output of call n of step s is n + 1000 s, in every element."""
    warnings.simplefilter("error")
    base = torch.zeros(size)
    with tt.record(path, level="api", keep="tensor", buffer=buffer, strict=True) as recorder:
        for step in range(10_000):
            before = recorder.total_calls
            for number in range(40):
                torch.add(base, number + 1000 * step)
                say(f"{step} {recorder.total_calls - before}")
            recorder.step()


def write_long_lines(path: str) -> None:
    """Lines so long that a kill finds the kernel in the middle of one."""
    journal = TraceWriter.create(Path(path), {"framework": "none"}).begin_step(0, {})
    line = seal({"k": "note", "topic": "long", "text": "x" * 4_000_000})
    for number in range(1, 100):
        journal.add(line)
        journal.commit()
        say(f"0 {number}")


def main() -> None:
    torch.set_num_threads(1)
    digest.warm_up()
    say("ready")
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if not child:
            say(f"pid {os.getpid()}")
            Path(request["path"]).parent.mkdir(parents=True, exist_ok=True)
            write_long_lines(**request) if len(request) == 1 else record(**request)
            os._exit(0)
        os.waitpid(child, 0)
        say(f"gone {child}")


if __name__ == "__main__":
    main()
