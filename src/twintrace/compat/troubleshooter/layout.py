"""TroubleShooter's dumps as traces: a folder for each rank, a JSON row for each tensor, a npy file beside it.

    torch_dump/rank0/torch_api_dump_info.csv      ["NN_ReLU_0_forward_output", 1, [], "torch.float32", [1], [2, 2, NaN], [], 2]
    torch_dump/rank0/torch_api_dump/              NN_ReLU_0_forward_output.npy
    torch_dump/rank0/torch_api_dump_stack.json    where calls were made

A step ends where a forward follows a backward, and where the number of the region changes (the real tool never changes it). Rows
are read when the dump is opened, values when a step is looked at. A dump does not say where an argument comes from: one that holds
what an earlier call has put out is taken to be that. It vouches for nothing: a row that does not fit is damage that is named by its
line, a file that cannot be read costs its tensor.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ... import api
from ...model.errors import TraceError, TraceFormatError, UsageError
from ...model.records import Call, Damage, Frame, Header, Note
from ...model.sites import Kind, Phase
from ...model.tensors import Spec, Statistics, Tensor
from ...store.native import write_journal
from ...store.registry import Tell
from ...store.trace import HeldJournal, Journal, Trace
from ..lines import Line, LineName, fold
from ..reading import (
    RANK,
    digested,
    frame_of,
    note_damage,
    npy_values,
    parsed,
    ranks_in,
    shape_of,
    statistic,
    storable,
    trace_of,
)
from .layers import CONTAINERS
from .names import MARK, SCALARS, STEMS, Labels, label_of_stack, operation_name, parse, short_dtype
from .writer import Content, DumpFiles, DumpWriter

_INFO = re.compile(r"(?P<stem>mindtorch|mindspore|torch)_api_dump_info\.(csv|pkl)")  # .pkl before 1.0.18; JSON as well
_FRAMEWORKS = {stem: framework for framework, stem in STEMS.items()}
_MAX_LINE, _MAX_STACKS = 1 << 20, 1 << 30


def recognises(path: Path) -> bool:
    """A folder of ranks, or of one rank, with a file of rows in it; or that file."""
    return bool(_ranks(path))


def read(path: Path, *, tolerant: bool) -> Trace:
    """Open a dump."""
    ranks = _ranks(path)
    stems = {match["stem"] for file in ranks.values() if (match := _INFO.fullmatch(file.name))}
    if len(stems) > 1:
        raise TraceFormatError(
            f"{path}: its ranks are dumps of different frameworks ({', '.join(sorted(stems))}). Give the folder of one rank."
        )
    framework = _FRAMEWORKS[stems.pop()]
    parts = {rank: _RankDump(file, tolerant=tolerant) for rank, file in ranks.items()}
    keep = "tensor" if any(part.has_values for part in parts.values()) else "statistics"
    journals = {
        (step, rank): partial(DumpJournal, part, step)
        for rank, part in parts.items()
        for step in range(len(part.steps))
    }
    return trace_of(path, "troubleshooter", framework, {"level": "api", "keep": keep}, journals)


def write(trace: Trace, path: Path, *, tell: Tell | None = None) -> None:
    """Write any trace as a dump, as the tool itself would have: layers and functions, tensors of floating point numbers.

    A module is a layer if it is known as one operation, or if no call inside it was recorded; other modules are not written.
    """
    if trace.framework not in STEMS:
        raise UsageError(
            f"{trace.path}: a trace of {trace.framework} has no place in this layout: expected one of {', '.join(STEMS)}."
        )
    for rank in trace.ranks or (0,):
        labels, region = Labels(), 0
        files = DumpFiles(path, trace.framework)
        with contextlib.closing(files):
            for step in trace.steps:
                if (step, rank) in trace.places:
                    region += 1
                    journal = trace.journal(step, rank)
                    label = _labelled(journal, trace.framework, labels)
                    writer = DumpWriter(files, trace.framework, label, Content(), region=region, copies=False)
                    write_journal(writer, journal, tell=tell)
                    writer.close()


def _labelled(journal: Journal, framework: str, labels: Labels) -> Callable[[Mapping[str, Any]], str | None]:
    """Names of a journal's calls in a dump."""
    calls = sorted(journal.calls(), key=lambda call: call.id)  # a module before what it calls
    parents = {call.parent for call in calls}
    hidden: set[int] = set()  # layers and what is inside them
    names: dict[int, str] = {}
    for call in calls:
        site = call.site
        if site.phase is not Phase.FORWARD or call.raised or site.kind not in (Kind.MODULE, Kind.API):
            continue
        inside = call.parent in hidden
        whole = site.type not in CONTAINERS and (call.id not in parents or api.is_operation(site.type))
        layer = site.kind is Kind.MODULE and whole
        if inside or layer:
            hidden.add(call.id)
        if layer or (site.kind is Kind.API and not inside):
            names[call.id] = labels.next(operation_name(framework, site.kind, site.name, site.type))
    return lambda record: names.get(record["id"])


def _ranks(path: Path) -> dict[int, Path]:
    """The rows' file of each rank."""
    if path.is_file():
        number = RANK.fullmatch(path.parent.name)
        return {int(number[1]) if number else 0: path} if _INFO.fullmatch(path.name) else {}
    return ranks_in(path, _info_in) if path.is_dir() else {}


def _info_in(folder: Path) -> Path | None:
    """Mindspore before mindtorch before torch: by name, as it happens, and nearly as the real tool has it."""
    return min((file for file in folder.iterdir() if _INFO.fullmatch(file.name) and file.is_file()), default=None)


@dataclass(frozen=True, slots=True)
class _Row:
    line: int
    text: str
    name: LineName
    dtype: str
    spec: Spec
    summary: Statistics | None
    md5: str | None


@dataclass(slots=True)
class _Step:
    region: int
    rows: list[_Row] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)


class _RankDump:
    """One rank: its rows by step, and its stacks."""

    def __init__(self, path: Path, *, tolerant: bool) -> None:
        self.path, self._tolerant = path, tolerant
        self.folder = path.with_name(path.name.partition("_info.")[0])
        self.has_values = any(self.folder.glob("*.npy"))
        self.steps: list[_Step] = []
        self.whole = True
        with path.open("rb") as file:
            for number, raw in enumerate(iter(lambda: file.readline(_MAX_LINE), b""), 1):
                self._take(number, raw)
        if not self.steps:
            self.steps.append(_Step(1))
        self.stacks = self._read_stacks()

    def _take(self, number: int, raw: bytes) -> None:
        if not raw.strip():
            return
        try:
            row, region = _understood(number, raw)
        except ValueError as error:
            torn = not raw.endswith(b"\n")
            self.whole = self.whole and not torn
            self._spoilt(number, f"{error}: the process ended while it was writing" if torn else str(error))
            return
        if row is None:
            return
        last = self.steps[-1] if self.steps else None
        if row.name.backward:  # it may come while a later region is recorded
            last = next((step for step in reversed(self.steps) if step.region == region), None)
        elif last is not None and (last.region != region or (last.rows and last.rows[-1].name.backward)):
            last = None
        if last is None:
            last = _Step(region)
            self.steps.append(last)
        last.rows.append(row)

    def _spoilt(self, number: int, text: str) -> None:
        if not self.steps:
            self.steps.append(_Step(1))
        item = Damage(str(self.path), f"line {number}", text)
        note_damage(self.steps[-1].damage, item, tolerant=self._tolerant)

    def _read_stacks(self) -> dict[str, tuple[Frame, ...]]:
        file = self.path.with_name(f"{self.folder.name}_stack.json")
        if not file.is_file():
            return {}
        try:
            if file.stat().st_size > _MAX_STACKS:
                raise ValueError(f"longer than {_MAX_STACKS} bytes")
            stacks = json.loads(file.read_bytes())
            if not isinstance(stacks, dict):
                raise ValueError(f"expected an object, got {type(stacks).__name__}")
        except (ValueError, OSError, RecursionError) as error:
            item = Damage(str(file), "stacks", f"cannot be read ({error})")
            note_damage(self.steps[0].damage, item, tolerant=self._tolerant)
            return {}
        labels = {key: label_of_stack(key) for key in stacks}
        return {label: _frames(stacks[key]) for key, label in labels.items() if label is not None}


def _understood(number: int, raw: bytes) -> tuple[_Row | None, int]:
    """(row, number of its region); no row for a mark. ValueError with one clause."""
    fields = parsed(raw)
    if not isinstance(fields, list) or not 6 <= len(fields) <= 8 or not isinstance(fields[0], str):
        raise ValueError(f'expected ["name", 1, [], "dtype", [shape], [max, min, mean], md5, norm], got {raw[:60]!r}')
    text, region, _, dtype, shape, summary = fields[:6]
    if not isinstance(region, int):
        raise ValueError(f"expected a number in the second place, got {str(region)[:40]!r}")
    if text.startswith(MARK):
        return None, region
    name = parse(text)
    if name is None:
        raise ValueError(f"the name {text[:80]!r} does not say which call's tensor it is")
    short = short_dtype(dtype) if isinstance(dtype, str) else None
    if short is None:
        raise ValueError(f"unknown element type {str(dtype)[:40]!r}")
    md5 = fields[6] if len(fields) > 6 and isinstance(fields[6], str) else None
    norm = fields[7] if len(fields) > 7 else None
    return _Row(number, text, name, dtype, Spec(short, shape_of(shape)), _summary(summary, norm), md5), region


def _summary(numbers: Any, norm: Any) -> Statistics | None:
    """Statistics of the row; NaN stands for what was not asked for."""
    if not isinstance(numbers, list) or len(numbers) != 3:
        raise ValueError(f"expected [max, min, mean], got {str(numbers)[:60]}")
    most, least, mean, length = map(statistic, (*numbers, norm))
    if most is None and least is None and mean is None and length is None:
        return None
    mean, length = (None if number is None else float(number) for number in (mean, length))
    return Statistics(least, most, mean, length, 0, 0, 0, 0)


def _frames(lines: Any) -> tuple[Frame, ...]:
    frames = (frame_of(line) for line in lines if isinstance(line, str)) if isinstance(lines, list) else ()
    return tuple(frame for frame in frames if frame is not None)


class DumpJournal(HeldJournal):
    """One step of one rank."""

    def __init__(self, dump: _RankDump, step: int, header: Header) -> None:
        super().__init__(header)
        self._dump, self._step = dump, dump.steps[step]
        self._is_last = step == len(dump.steps) - 1
        self._damage = list(self._step.damage)
        self._rows = {number: row for number, row in enumerate(self._step.rows)}
        self._seen: dict[tuple[int, int, str], Mapping[str, Any]] = {}
        self._tensors = {number: self._tensor(number, row) for number, row in self._rows.items()}
        self._orphans = 0
        self._calls = self._fold()

    # --- what a journal offers ----------------------------------------------------------------------------------

    @property
    def complete(self) -> bool:
        """A dump has no end mark; one whose last row is torn was surely not finished."""
        return self._dump.whole or not self._is_last

    def notes(self) -> Iterator[Note]:
        if self._orphans:
            yield Note(
                "gradients", f"{self._orphans} gradients belong to calls of which there is no forward in this step"
            )

    def array(self, tensor: Tensor) -> np.ndarray[Any, Any]:
        return npy_values(self._file(self._rows[tensor.id]), tensor.spec)

    # --- reading ------------------------------------------------------------------------------------------------

    def _file(self, row: _Row) -> Path:
        return self._dump.folder / f"{row.text}.npy"

    def _tensor(self, number: int, row: _Row) -> Tensor:
        spec = Spec(storable(row.spec.dtype), row.spec.shape)
        facts = {"row": row.text, "dtype": row.dtype} | ({"md5": row.md5} if row.md5 else {})
        plain = Tensor(number, spec, facts=facts, statistics=row.summary)
        try:
            status = self._file(row).stat()
        except OSError:
            remark = "a number of Python's" if row.dtype in SCALARS else f"there is no {self._file(row)}"
            return replace(plain, missing=remark)
        key = (status.st_dev, status.st_ino, str(spec))  # one call's result and the next one's argument may be one file
        if key not in self._seen:
            try:
                self._seen[key] = digested(npy_values(self._file(row), spec), spec.dtype)
            except TraceError as error:
                self._damage.append(Damage(str(self._file(row)), "values", str(error)))
                return replace(plain, missing=str(error))
        return replace(plain, **self._seen[key])

    def _fold(self) -> list[Call]:
        """Rows into calls; of a gradient without its call nothing but their number is told."""
        forward = {row.name.label for row in self._rows.values() if not row.name.backward}
        same = self._same_tensors()
        rows = [(number, row.name) for number, row in self._rows.items() if row.name.label in forward]
        self._orphans = len(self._rows) - len(rows)
        lines = [Line(number, same.get(number, number), name) for number, name in rows]
        calls = fold(lines, self._tensors, self._dump.stacks, framework=self.header.framework, swapped=True)
        self._tensors = {number: tensor for number, tensor in self._tensors.items() if number not in same}
        return calls

    def _same_tensors(self) -> dict[int, int]:
        """Arguments that are what was put out, or taken, before: their numbers, and those of the tensors that they are."""
        same: dict[int, int] = {}
        known: dict[tuple[str, object], int] = {}
        for number, row in self._rows.items():
            mark = _mark(self._tensors[number])
            lost = self._dump.has_values and self._tensors[number].missing is not None  # each says its own reason
            if row.name.backward or mark is None or lost:
                continue
            if row.name.output:
                known[mark] = number
            elif known.setdefault(mark, number) != number:
                same[number] = known[mark]
        return same


def _mark(tensor: Tensor) -> tuple[str, object] | None:
    """Key that two tensors with the same values have in common; None where that says nothing, as of constants."""
    statistics = tensor.statistics
    if statistics is None or statistics.min is None or statistics.min == statistics.max:
        return None
    return str(tensor.spec), tensor.fingerprint or tensor.facts.get("md5") or statistics
