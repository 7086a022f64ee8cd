"""Ours and the peers comparing, each in a process of its own, and the same tensors written as each reads them.

    python -m benchmarks.comparers write FORMAT FOLDER TENSORS ELEMENTS
    python -m benchmarks.comparers compare TOOL WARM DATA OUT      one line of JSON: seconds, cpu, rows, peak_mb

`WARM` is compared first, and not timed: importing and compiling are not what is measured here. Every tensor is f32, and half of its
elements are one unit in the last place apart: nothing can be skipped as equal, nothing is an outlier.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

SIDES = ("left", "right")


@dataclass(frozen=True)
class Data:
    """So many tensors of so many elements."""

    name: str
    tensors: int
    elements: int

    def arrays(self, side: str) -> Iterator[np.ndarray[Any, Any]]:
        """One after the other, the same at every call."""
        import numpy as np

        rng = np.random.default_rng(self.elements)
        base = rng.standard_normal(self.elements, dtype=np.float32)
        flip = (rng.random(self.elements) < 0.5).astype(np.uint32)
        for number in range(self.tensors):
            left = np.roll(base, number)  # contents that occur once: a trace stores each only once
            yield left if side == "left" else (left.view(np.uint32) ^ flip).view(np.float32)


# The same tensors in each format -----------------------------------------------------------------------------------


def write_traces(folder: Path, data: Data) -> None:
    """Ours: values given to `save`."""
    import torch

    import twintrace

    for side in SIDES:
        recorder = twintrace.record(folder / side, level="api", keep="tensor", framework="torch")
        recorder.start()
        for number, array in enumerate(data.arrays(side)):
            recorder.save(f"value{number}", torch.from_numpy(array.copy()))
        recorder.step()
        recorder.close()


def write_dumps(folder: Path, data: Data) -> None:
    """What msprobe writes for a call with one output, field for field; its own names for files."""
    import torch

    for side in SIDES:
        place = folder / side
        tensors = place / "dump_tensor_data"
        tensors.mkdir(parents=True)
        calls = {}
        for number, array in enumerate(data.arrays(side)):
            tensor = torch.from_numpy(array.copy())
            name = f"Functional.relu.{number}.forward"
            torch.save(tensor, tensors / f"{name}.output.0.pt")
            entry = {
                "type": "torch.Tensor", "dtype": "torch.float32", "shape": [array.size],
                "Max": float(tensor.max()), "Min": float(tensor.min()), "Mean": float(tensor.mean()), "Norm": float(tensor.norm()),
                "requires_grad": False, "data_name": f"{name}.output.0.pt",
            }  # fmt: skip
            calls[name] = {"input_args": [], "input_kwargs": {}, "output": [entry]}
        dump = {"task": "tensor", "level": "L1", "framework": "pytorch", "dump_data_dir": str(tensors), "data": calls}
        stack = {"0": [[*calls], ["File train.py, line 1, in step, \n y = relu(x)"]]}
        for file, content in (("dump", dump), ("stack", stack), ("construct", dict.fromkeys(calls))):
            (place / f"{file}.json").write_text(json.dumps(content), encoding="utf-8")


def write_arrays(folder: Path, data: Data) -> None:
    """A folder of .npy files for each side."""
    _write_pairs(folder, zip(data.arrays("left"), data.arrays("right"), strict=True))


def write_neighbours(folder: Path, data: Data) -> None:
    """The same, but what another framework would have computed: every element a few units in the last place away."""
    import numpy as np

    apart = np.random.default_rng(0).standard_normal(data.elements, dtype=np.float32) * np.float32(1e-6)
    _write_pairs(folder, ((left, left + apart) for left in data.arrays("left")))


def write_twins(folder: Path, data: Data) -> None:
    """The same, with the left side's arrays on both sides."""
    _write_pairs(folder, ((left, left) for left in data.arrays("left")))


def _write_pairs(folder: Path, pairs: Iterable[tuple[np.ndarray[Any, Any], ...]]) -> None:
    import numpy as np

    for side in SIDES:
        (folder / side).mkdir(parents=True)
    for number, arrays in enumerate(pairs):
        for side, array in zip(SIDES, arrays, strict=True):
            np.save(folder / side / f"value{number}.npy", array)


FORMATS: dict[str, Callable[[Path, Data], None]] = {
    "traces": write_traces,
    "dumps": write_dumps,
    "arrays": write_arrays,
    "neighbours": write_neighbours,
    "twins": write_twins,
}


# Who compares ------------------------------------------------------------------------------------------------------


class Comparer(ABC):
    """Something that lays two folders side by side."""

    format: str

    def prepare(self, folder: Path) -> None:  # noqa: B027 - most have nothing to prepare
        """What is not timed."""

    @abstractmethod
    def compare(self, folder: Path, out: Path) -> int:
        """How many pairs of tensors were compared."""


class Twintrace(Comparer):
    """Ours, the whole way: `twintrace.compare`."""

    format = "traces"

    def compare(self, folder: Path, out: Path) -> int:
        import twintrace

        found = twintrace.compare(folder / "left", folder / "right")
        return sum(item.measurement is not None for result in found.results for item in result.tensors)


class Scales(Comparer):
    """Ours without pairing and judging: both traces opened, values paired by name, read, checked and measured."""

    format = "traces"

    def compare(self, folder: Path, out: Path) -> int:
        from twintrace.engine.local import Local
        from twintrace.measure.values import measure
        from twintrace.store.registry import open_trace

        journals = [open_trace(folder / side).journal(0) for side in SIDES]
        saved = [{call.site.name: journal.tensor(call.output.id) for call in journal.calls()} for journal in journals]

        def task(name: str) -> object:
            one, two = (journal.array(side[name]) for journal, side in zip(journals, saved, strict=True))
            return measure(one, two, "f32", "f32", rtol=1e-5, atol=1e-8)

        return sum(done.result() is not None for done in Local().run(task, saved[0]))


class Kernel(Comparer):
    """Ours on arrays that are in memory already, in one thread: nothing but the pass over both."""

    format = "arrays"

    def prepare(self, folder: Path) -> None:
        import numpy as np

        names = sorted(path.name for path in (folder / "left").glob("*.npy"))
        self.pairs = [[np.load(folder / side / name) for side in SIDES] for name in names]

    def compare(self, folder: Path, out: Path) -> int:
        from twintrace.measure.values import backend, measure

        assert backend() == "numba", "numba is not installed"
        for one, two in self.pairs:
            measure(one, two, "f32", "f32", rtol=1e-5, atol=1e-8)
        return len(self.pairs)


class Msprobe(Comparer):
    """MindStudio-Probe: what `msprobe compare` runs, in this process."""

    format = "dumps"

    def compare(self, folder: Path, out: Path) -> int:
        from msprobe.msprobe import main

        names = [str(folder / side / "dump.json") for side in SIDES]
        place = out / f"msprobe-{time.monotonic_ns()}"
        place.mkdir(parents=True)
        sys.argv = ["msprobe", "compare", "-tp", names[1], "-gp", names[0], "-o", str(place)]
        with contextlib.suppress(SystemExit):
            main()
        [result] = place.glob("compare_result*.csv")
        return len(result.read_text(encoding="utf-8").splitlines()) - 1


class TroubleShooter(Comparer):
    """TroubleShooter's `compare_npy_dir`, with the number of processes that it chooses."""

    format = "arrays"

    def compare(self, folder: Path, out: Path) -> int:
        import troubleshooter

        table = troubleshooter.migrator.compare_npy_dir(str(folder / "left"), str(folder / "right"))
        return str(table).count("value") // 2


class Folders(Comparer):
    """Ours in TroubleShooter's place: the same call, the same table."""

    format = "arrays"

    def compare(self, folder: Path, out: Path) -> int:
        from twintrace.compat.troubleshooter import migrator

        return migrator.compare_npy_dir(str(folder / "left"), str(folder / "right")).count("value") // 2


COMPARERS: dict[str, type[Comparer]] = {
    "kernel": Kernel,
    "scales": Scales,
    "twintrace": Twintrace,
    "msprobe": Msprobe,
    "troubleshooter": TroubleShooter,
    "folders": Folders,
}
PEERS = ("msprobe", "troubleshooter")


def write(name: str, folder: str, tensors: str, elements: str) -> None:
    """Write the tensors to a folder."""
    FORMATS[name](Path(folder), Data("", int(tensors), int(elements)))


def compare(tool: str, warm: str, data: str, out: str) -> None:
    """Compare twice, time the second, and say so on the last line of stdout; what the tool says goes nowhere."""
    comparer = COMPARERS[tool]()
    with _aside() as say:
        comparer.prepare(Path(warm))
        comparer.compare(Path(warm), Path(out))
        comparer.prepare(Path(data))
        began, cpu = time.perf_counter(), _cpu()
        rows = comparer.compare(Path(data), Path(out))
        seconds, cpu = time.perf_counter() - began, _cpu() - cpu
        peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        say(json.dumps({"seconds": seconds, "cpu": cpu, "rows": rows, "peak_mb": peak / 1024}))


def _cpu() -> float:
    """Of this process and of those that it has waited for."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


@contextlib.contextmanager
def _aside() -> Iterator[Callable[[str], object]]:
    """Peers print tables and bars: their stdout is put aside, and ours is kept for one line."""
    kept = os.dup(1)
    with open(os.devnull, "w", encoding="utf-8") as nowhere:  # noqa: PTH123 - the device, not a path
        os.dup2(nowhere.fileno(), 1)
    yield lambda line: os.write(kept, (line + "\n").encode())


if __name__ == "__main__":
    {"write": write, "compare": compare}[sys.argv[1]](*sys.argv[2:])
