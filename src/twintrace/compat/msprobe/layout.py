"""Dumps as traces, for every verb of the project: msprobe's of both generations, and what is exported here.

    dump/step0/rank0/dump.json         the root of a dump: all its steps and ranks
         step0/                        one step
         step0/rank0/, …/dump.json     one rank of it
         step0/proc1234/               a process that was not distributed (26.2): rank 0
         pynative/step0/ …             MindSpore beside compiled graphs, whose kernels are a layout of their own

Steps and ranks have the numbers of their folders. A dump.json is read when its journal is asked for; tensors stay where they are
until their values are wanted. A dump vouches for nothing: what cannot be read is damage that is named, and the rest is there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ...model.errors import TraceFormatError
from ...model.records import Damage, Header
from ...model.tensors import Spec, Tensor
from ...store.native import Tell, write_rank
from ...store.trace import HeldJournal, Trace
from ..reading import trace_of
from .config import Settings
from .dumps import FILES, RANK, STEP, TENSORS, Records, file_in, places_in, read_records
from .folding import fold
from .names import FRAMEWORKS
from .readings import Readings
from .values import read_values
from .writer import DumpWriter

_HEAD = 1 << 12
_OURS = {theirs: ours for ours, theirs in FRAMEWORKS.items()}
_LEVELS = {"L0": "module", "L1": "api", "L2": "op"}


def recognises(path: Path) -> bool:
    """A dump.json or debug.json; a directory of one rank, one step, or a whole dump."""
    return bool(_places(path))


def read(path: Path, *, tolerant: bool) -> Trace:
    """Open a dump."""
    places = _places(path)
    task, level, framework = _head(next(iter(places.values())))
    keep = "tensor" if task == "tensor" else "statistics"
    settings = {"level": _LEVELS.get(level, level), "keep": keep}
    journals = {place: partial(DumpJournal, file, tolerant=tolerant) for place, file in places.items()}
    return trace_of(path, "msprobe", framework, settings, journals)


class DumpJournal(HeldJournal):
    """One rank of one step."""

    def __init__(self, path: Path, header: Header, *, tolerant: bool) -> None:
        super().__init__(header)
        self._path, self._folder = path, path.parent / TENSORS
        records = _with_saved(read_records(path))
        files = frozenset(file.name for file in self._folder.iterdir()) if self._folder.is_dir() else frozenset()
        self._readings = Readings(records.framework, self._folder, files)
        folded = fold(records, self._readings)
        self._calls, self._gradients = folded.calls, folded.gradients
        self.records = tuple(records.data)
        """The names of its records: that of a call is at its `order`."""
        self._damage = [Damage(str(path), "file", text.removeprefix(f"{path}: ")) for text in records.problems]
        self._damage += [Damage(str(path), name, text) for name, text in self._readings.problems]
        if self._damage and not tolerant:
            raise TraceFormatError(
                f"{self._damage[0]}{f' (and {len(self._damage) - 1} more)' if len(self._damage) > 1 else ''}. "
                f"Open it with tolerant=True to read the rest."
            )

    def tensors(self) -> Iterator[Tensor]:
        return iter(self._readings.tensors)

    def tensor(self, identity: int) -> Tensor:
        if not 0 <= identity < len(self._readings.tensors):
            raise TraceFormatError(f"{self._path}: there is no tensor {identity}.")
        return self._readings.tensors[identity]

    def array(self, tensor: Tensor) -> np.ndarray[Any, Any]:
        name = self._readings.files.get(tensor.id)
        if name is None:
            raise TraceFormatError(f"{self._path}: no values were kept of {tensor.facts.get('item', tensor.id)}.")
        array, dtype = read_values(self._folder, name, tensor.spec.dtype)
        if (found := Spec(dtype, array.shape)) != tensor.spec:
            raise TraceFormatError(f"{self._folder / name}: expected {tensor.spec}, found {found}.")
        return array


def _with_saved(records: Records) -> Records:
    """Values that the script saved itself: they are in a file of their own, beside the records."""
    saved = records.path.with_name(FILES[1])
    if records.path.name != FILES[0] or not saved.is_file():
        return records
    more = read_records(saved)
    return replace(records, data={**records.data, **more.data}, problems=(*records.problems, *more.problems))


def _places(path: Path) -> dict[tuple[int, int], Path]:
    """The JSON file of each step and rank, by the names of its folders. Processes that have no numbers are counted."""
    dumps = [*places_in(path)] or [*places_in(path / "pynative")]
    places: dict[tuple[int, int], Path] = {}
    for _, rank, at in dumps:
        file = at if at.is_file() else file_in(at) or at
        folder = file.parent.absolute()
        step, own = STEP.fullmatch(folder.parent.name), RANK.fullmatch(folder.name)
        number = rank or (int(own[1]) if own and own[1] else 0)
        while (int(step[1]) if step else 0, number) in places:
            number += 1
        if file.name in FILES:
            places[int(step[1]) if step else 0, number] = file
    return places


def _head(file: Path) -> tuple[str, str, str]:
    """Task, level and framework. They stand at the beginning, and a dump may be large and is not read for them."""
    with file.open("rb") as opened:
        text = opened.read(_HEAD).decode("utf-8", errors="replace")

    def said(key: str) -> str:
        match = re.search(rf'"{key}"\s*:\s*"([^"\\]*)"', text)
        return match[1] if match else ""

    framework = said("framework") or ("mindspore" if "mindspore.Tensor" in text else "pytorch")
    return said("task"), said("level"), _OURS.get(framework, framework)


_THEIR_LEVELS = {"module": "L0", "api": "L1"}


def write(trace: Trace, path: Path, *, tell: Tell | None = None) -> None:
    """Write a dump: all steps of all ranks, with values if the trace has them. Root module, optimizer, buffers, configurations and
    devices are left out, as msprobe leaves them out.
    """
    told = trace.manifest.get("settings")
    settings = told if isinstance(told, dict) else {}
    task = "tensor" if settings.get("keep") == "tensor" else "statistics"
    level = _THEIR_LEVELS.get(str(settings.get("level")), "mix")
    for rank in trace.ranks:
        write_rank(DumpWriter(Settings(path, task, level), portable=True), trace, rank, tell=tell)
