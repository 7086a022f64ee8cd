"""MindSpore's own kernel dumps, opened as a trace: what KERNELS.md describes, read only and trusting nothing.

    rank_0/Net/0/3/MatMul.Default_l1-Dense_MatMul-op0.0.0.1794744157070204.output.0.DefaultFormat.Float32.npy

    step 3, rank 0    forward/op:Default_l1-Dense_MatMul-op0#0  (MatMul)  in module l1, graph 0   … → f32[3, 4]

Names say everything but the values, so a step is opened by listing its folders and reading the headers of its files. Bytes
are mapped when they are asked for; statistics and fingerprint are taken when they are. A file that cannot be read, or whose
name says nothing, is a call that says so: a dump is often what a dying run left behind.
"""

from __future__ import annotations

import csv
import functools
import itertools
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ...model.dtypes import short_name
from ...model.errors import TraceFormatError, TraceNotFoundError
from ...model.records import Call, Config, Damage, Header, Note
from ...model.sites import Kind, Phase, Site
from ...model.tensors import Location, Spec, Statistics, Tensor
from ...model.values import Nest, TensorRef, Token, Value
from ...store.digest import digest
from ...store.lines import decode
from ...store.npy import Npy
from ...store.trace import HeldJournal, Trace
from ..reading import trace_of
from .places import (
    KERNEL,
    MAPPING,
    NUMBER,
    OVERFLOW,
    RAW,
    STATISTICS,
    UNSPELT,
    Folder,
    folders_in,
    place_in_network,
    scopes_of,
    text_of,
    walk,
)

FRAMEWORK = "mindspore"
SETTINGS = {"level": "op", "keep": "tensor"}
MAX_LOOKED_AT = 20_000  # names, before a directory is said to be something else
MAX_SLOT = 4096

_NARROW = {"int4": "i8", "uint1": "u8"}
"""Element types that are dumped as a wider one, which a fact says."""


# --- what the registry asks for ---------------------------------------------------------------------------------------


def recognises(path: Path) -> bool:
    """True if a kernel's file, or a table of kernels, is in or below this directory. Looks at a bounded number of names."""
    if not path.is_dir():
        return False
    names = itertools.islice(walk(path), MAX_LOOKED_AT)
    return any(
        KERNEL.fullmatch(entry.name) or (entry.name == STATISTICS and _is_table_of_kernels(Path(entry.path)))
        for entry in names
        if entry.is_file()
    )


def read(path: Path, *, tolerant: bool) -> Trace:
    """Open a directory of kernel files: lists names, reads nothing. `tolerant` changes nothing, everything is tolerated."""
    folders: dict[tuple[int, int], list[Folder]] = {}
    constants: list[Folder] = []
    for folder in folders_in(path):
        (constants if folder.constant else folders.setdefault((folder.step, folder.rank), [])).append(folder)
    for folder in constants:  # of the whole graph: told once, in the first step that ran it
        steps = (
            place
            for place, them in folders.items()
            if any((f.rank, f.graph) == (folder.rank, folder.graph) for f in them)
        )
        folders.setdefault(min(steps, default=(0, folder.rank)), []).insert(0, folder)
    journals = {place: partial(KernelJournal, path, folders=inside) for place, inside in folders.items()}
    return trace_of(path, "mindspore-kernels", FRAMEWORK, SETTINGS, journals)


# --- one step ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _File:
    """One tensor of one kernel: a file, or a row of a table."""

    path: Path
    type: str
    name: str
    time: int
    io: str
    slot: int
    dtype: str | None = None
    array: Npy | None = None
    statistics: Statistics | None = None
    spec: Spec = field(default_factory=lambda: Spec("u8", (0,)))
    facts: dict[str, object] = field(default_factory=dict)
    missing: str | None = None

    @property
    def leaf(self) -> tuple[str, int]:
        return self.io, self.slot


class _KernelTensor(Tensor):
    """A Tensor that is digested when somebody asks for its statistics or fingerprint: until then the two are not set."""

    __slots__ = ("_file",)
    _file: _File

    def __getattr__(self, name: str) -> Any:
        if name not in ("statistics", "fingerprint"):
            raise AttributeError(name)
        statistics, fingerprint = self._file.statistics, None
        if self._file.array is not None:
            try:
                made = digest(self._file.array.values(), self.spec.dtype)
                statistics, fingerprint = made.statistics, made.fingerprint
            except TraceFormatError:  # the file has changed, or says what it does not hold: whoever asks for it is told
                pass
        object.__setattr__(self, "statistics", statistics)
        object.__setattr__(self, "fingerprint", fingerprint)
        return getattr(self, name)


class KernelJournal(HeldJournal):
    """The kernels of one step of one rank."""

    def __init__(self, root: Path, header: Header, folders: Sequence[Folder]) -> None:
        super().__init__(header)
        self._root, self._notes = root, list[Note]()
        self._files: list[_File] = []
        findscopes_of = functools.cache(scopes_of)
        launches = [launch for folder in folders for launch in self._launches(folder)]
        launches.sort(key=lambda launch: launch.files[0].time)
        counts: dict[tuple[str, Phase], int] = {}
        calls = self._calls = list[Call]()
        for number, launch in enumerate(launches):
            phase, path = place_in_network(launch.name, launch.folder, findscopes_of)
            count = counts[launch.name, phase] = counts.get((launch.name, phase), -1) + 1
            site = Site(Kind.OP, launch.name, count, phase, path, launch.type)
            calls.append(self._call(number, site, launch))

    def notes(self) -> Iterator[Note]:
        return iter(self._notes)

    def tensor(self, identity: int) -> Tensor:
        known = self._tensors.get(identity)
        return Tensor(identity, Spec("u8", (0,)), missing="there is no such tensor") if known is None else known

    def array(self, tensor: Tensor) -> np.ndarray[Any, Any]:
        """The tensor's values, mapped from its file."""
        file = self._files[tensor.id]
        if file.array is None:
            raise TraceNotFoundError(
                f"{file.path}: there are no values: {file.missing or 'only statistics were dumped'}."
            )
        return file.array.values()

    # --- from files to calls ----------------------------------------------------------------------------------------

    def _launches(self, folder: Folder) -> Iterator[_Launch]:
        """The kernels that ran, each as often as it ran: a slot that is there already belongs to the next time."""
        try:
            files, arguments = self._kernel_files(folder)
        except OSError as error:
            self._damage.append(Damage(str(folder.path), "folder", f"cannot be read ({error.strerror})"))
            return
        open_launches: dict[tuple[str, str], _Launch] = {}
        for file in sorted(files, key=lambda file: (file.time, file.io, file.slot)):
            key = (file.type, file.name)
            launch = open_launches.get(key)
            if launch is not None and not any(file.leaf == other.leaf for other in launch.files):
                launch.files.append(file)
                continue
            if launch is not None:
                yield launch
            open_launches[key] = _Launch(
                folder, file.type, file.name, [file], arguments.get(f"{file.type}.{file.name}", {})
            )
        yield from open_launches.values()

    def _kernel_files(self, folder: Folder) -> tuple[list[_File], dict[str, Mapping[str, Value]]]:
        with os.scandir(folder.path) as entries:
            here = {
                entry.name: Path(entry.path)
                for entry in sorted(entries, key=lambda entry: entry.name)
                if entry.is_file()
            }
        long_names = self._long_names(here)
        files: list[_File] = []
        arguments: dict[str, Mapping[str, Value]] = {}
        for name, path in here.items():
            full = long_names.get(name, name)
            if name in (STATISTICS, MAPPING):
                continue
            if OVERFLOW.fullmatch(full):
                self._notes.append(Note("overflow", f"an operator overflowed: see {self._short(path)}"))
            elif full.endswith(".json"):
                arguments[full.removesuffix(".json")] = self._arguments(path)
            elif full.endswith(".npy") or RAW.fullmatch(full):
                files.append(self._file(path, full))
        if STATISTICS in here:
            known = {(file.type, file.name, file.time, *file.leaf) for file in files}
            files += [
                row for row in self._rows(here[STATISTICS]) if (row.type, row.name, row.time, *row.leaf) not in known
            ]
        return files, arguments

    def _file(self, path: Path, name: str) -> _File:
        match, raw = KERNEL.fullmatch(name), RAW.fullmatch(name)
        if match and int(match["slot"]) <= MAX_SLOT:
            file = _File(path, match["type"], match["name"], int(match["time"]), match["io"], int(match["slot"]))
            file.dtype = match["dtype"]
            layout = match["format"]
            # msaccucmp writes the shape there.
            if layout != "DefaultFormat" and not re.fullmatch("[0-9]+(x[0-9]+)*", layout):
                file.facts["format"] = layout
        elif raw:
            file = _File(path, raw["type"], raw["name"], int(raw["time"]), "output", 0)
            file.missing = "it is in the format of the device; convert it with msaccucmp.py to .npy first"
        else:
            file = _File(path, "", name.removesuffix(".npy"), 0, "output", 0)
            self._damage.append(
                Damage(self._short(path), "name", "expected type.name.task.stream.time.input|output.slot.format.npy")
            )
        if file.missing is None:
            try:
                file.array = Npy.of(path, _element_type(file.dtype or ""))
                file.spec = file.array.spec
            except TraceFormatError as error:
                file.missing = str(error).removeprefix(f"{path}: ").rstrip(".")
            if file.dtype and file.dtype.lower() in _NARROW:
                file.facts["dtype"] = file.dtype
        if file.missing:
            self._damage.append(Damage(self._short(path), "values", file.missing))
        return file

    def _call(self, number: int, site: Site, launch: _Launch) -> Call:
        refs: dict[str, dict[int, Value]] = {"input": {}, "output": {}}
        missing = []
        for file in launch.files:
            identity = len(self._tensors)
            file.facts["file"] = self._short(file.path)
            tensor = _KernelTensor(
                identity,
                file.spec,
                producer=number if file.io == "output" else None,
                payload=Location(0, file.array.nbytes) if file.array else None,
                missing=file.missing,
                facts=file.facts,
            )
            object.__setattr__(tensor, "_file", file)
            for name in ("statistics", "fingerprint"):
                object.__delattr__(tensor, name)
            self._tensors[identity] = tensor
            self._files.append(file)
            refs[file.io][file.slot] = TensorRef(identity)
            if file.missing:
                missing.append(f"{file.io} {file.slot}: {self._short(file.path)}: {file.missing}")
        if not launch.type:
            missing.append("the name of the file is not that of a kernel's")
        inputs, outputs = _filled(refs["input"]), _filled(refs["output"])
        output: Value = Nest("tuple", tuple((str(slot), value) for slot, value in enumerate(outputs)))
        values: dict[str, Value] = {"graph": launch.folder.graph} | dict(launch.arguments)
        return Call(
            number,
            site,
            None,
            tuple(inputs),
            {},
            output if len(outputs) > 1 else (outputs[0] if outputs else None),
            config=Config(site.path, site.type, values),
            missing=tuple(missing),
            order=number,
        )

    # --- the tables beside the files ----------------------------------------------------------------------------------

    def _long_names(self, here: Mapping[str, Path]) -> dict[str, str]:
        """`mapping.csv`: a name that was too long for the file system became a number; which, is said in either order."""
        names: dict[str, str] = {}
        if MAPPING in here:
            for row in self._table(here[MAPPING]):
                for short, full in (row[:2], row[:2][::-1]) if len(row) >= 2 else ():
                    spelling = next((name for name in (short, f"{short}.npy") if name in here), None)
                    if spelling and spelling not in names:
                        names[spelling] = (
                            full if full.endswith(".npy") or not spelling.endswith(".npy") else f"{full}.npy"
                        )
        return names

    def _rows(self, path: Path) -> Iterator[_File]:
        """`statistic.csv`: one tensor in each row. Which numbers are there was the user's choice; the order varies."""
        titles: list[str] = []
        for number, row in enumerate(self._table(path)):
            if not number:
                titles = [_title(text) for text in row]
                continue
            cells = dict(zip(titles, (text.strip() for text in row), strict=False))
            try:
                yield _row(path, cells)
            except (KeyError, ValueError) as error:
                self._damage.append(Damage(self._short(path), f"line {number + 1}", f"cannot be understood ({error})"))

    def _table(self, path: Path) -> list[list[str]]:
        try:
            return list(csv.reader(text_of(path).splitlines()))
        except (TraceFormatError, csv.Error) as error:
            self._damage.append(Damage(self._short(path), "table", str(error)))
            return []

    def _arguments(self, path: Path) -> Mapping[str, Value]:
        """`MatMul.Default_MatMul-op0.json`: what the kernel was set up with."""
        try:
            wire = decode(text_of(path).encode())
        except (TraceFormatError, ValueError) as error:
            self._damage.append(Damage(self._short(path), "arguments", str(error)))
            return {}
        return {str(key): str(value) for key, value in wire.items()} if isinstance(wire, dict) else {}

    def _short(self, path: Path) -> str:
        return str(path.relative_to(self._root))


@dataclass(slots=True)
class _Launch:
    """One time that a kernel ran."""

    folder: Folder
    type: str
    name: str
    files: list[_File]
    arguments: Mapping[str, Value]


def _filled(refs: Mapping[int, Value]) -> list[Value]:
    """By slot. Scalars that MindSpore does not dump leave gaps."""
    return [refs.get(slot, Token("opaque", "not in the dump")) for slot in range(max(refs, default=-1) + 1)]


# --- tables -----------------------------------------------------------------------------------------------------------


def _title(text: str) -> str:
    """`Op Type`, `OpType`, `op_type` -> `optype`."""
    return re.sub("[^a-z0-9]", "", text.lower())


def _is_table_of_kernels(path: Path) -> bool:
    with path.open("rb") as file:
        titles = {_title(text) for text in file.readline(4096).decode("utf-8", "replace").split(",")}
    return {"optype", "opname", "io", "slot"} <= titles


def _element_type(spelling: str) -> str | None:
    """Element type as MindSpore's names and tables spell it, as we do."""
    return _NARROW.get(spelling.lower()) or short_name(spelling)


def _row(path: Path, cells: Mapping[str, str]) -> _File:
    io, slot = cells["io"].lower(), int(cells["slot"])
    if io not in ("input", "output") or not 0 <= slot <= MAX_SLOT:
        raise ValueError(f"{io!r} {slot} is no input or output of a kernel")
    spelling = cells["datatype"].lower()
    dtype = _element_type(spelling)
    if dtype is None:
        raise ValueError(f"unknown element type {spelling[:40]!r}")
    name = cells["opname"].translate(UNSPELT)
    file = _File(path, cells["optype"], name, int(cells.get("timestamp") or 0), io, slot)
    file.spec = Spec(dtype, tuple(int(size) for size in re.findall("[0-9]{1,15}", cells.get("shape", ""))))
    if spelling in _NARROW:
        file.facts["dtype"] = cells["datatype"]
    counts = [_count(cells, name) for name in ("nancount", "positiveinfcount", "negativeinfcount", "zerocount")]
    if None in counts:
        file.facts["statistics"] = "of MindSpore: NaN, Inf and zeros were not all counted"
    low, high, mean, norm = (_finite(cells, name) for name in ("minvalue", "maxvalue", "avgvalue", "l2normvalue"))
    nan, posinf, neginf, zero = (count or 0 for count in counts)
    file.statistics = Statistics(low, high, mean, norm, nan, posinf, neginf, zero)
    if cells.get("md5"):
        file.facts["md5"] = cells["md5"]
    file.facts["row"] = f"{cells['opname']}.{cells.get('taskid', '')}.{io}.{slot}"
    return file


def _finite(cells: Mapping[str, str], name: str) -> float | None:
    text = cells.get(name) or cells.get(name.removesuffix("value")) or ""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _count(cells: Mapping[str, str], name: str) -> int | None:
    text = cells.get(name, "")
    return int(text) if re.fullmatch(NUMBER, text) else None
