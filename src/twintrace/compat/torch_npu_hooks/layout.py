"""Dumps as traces: the line format of `torch_npu.hooks`, and ptdbg_ascend's lines beside a directory of npy files.

    ["Functional_linear_forward_input.0", [0.04, 0.40], "torch.float32", [1, 2]]                      torch_npu.hooks
    ["Functional_linear_0_forward_input.0", 0, [], "torch.float32", [1, 2], [0.40, 0.04, 0.22]]       ptdbg_ascend

    cpu.pkl                                one file, one trace: step 0, rank 0
    ptdbg_dump_v2.0/rank0/dump.pkl         with dump/Functional_linear_0_forward_input.0.npy; a rank for each folder

A dump is read once to learn what is in it; values are read again when they are asked for. It vouches for nothing: every line is
checked, and one that does not fit is damage that is named, with its number.
"""

from __future__ import annotations

import math
import os
import pickletools
import re
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ...model.dtypes import short_name
from ...model.errors import TraceFormatError
from ...model.records import Call, Damage, Frame, Header, Note
from ...model.sites import Kind
from ...model.tensors import Spec, Statistics, Tensor
from ...model.values import tensor_slots
from ...store.decimals import parse as parse_numbers
from ...store.native import Tell, write_rank
from ...store.trace import HeldJournal, Trace
from ..lines import Line, LineName, fold, mark
from ..reading import digested, note_damage, npy_values, parsed, ranks_in, shape_of, statistic, storable, trace_of
from .names import parse
from .writer import LineWriter, from_values

_MAX_LINE = 2 << 30
_BLOCK = 1 << 20  # bytes of a dump that are read at a time
_QUICK = 1 << 12  # bytes of a line from which on its numbers are read by themselves
_HEAD = re.compile(rb'\s*\[\s*"([^"\\\x00-\x1f]*)"\s*,\s*\[')
_TAIL = re.compile(rb'\]\s*,\s*"([^"\\\x00-\x1f]*)"\s*,\s*\[([\d,\s]*)\]\s*\]\s*\Z')
_ENDS = 1 << 10  # bytes in which the two are looked for
_EXACT = 1 << 53  # whole numbers below this are float64 values
READING: ContextVar[Tell | None] = ContextVar("READING", default=None)
"""Is told how far the reading of a dump is: (what, megabytes, of how many)."""
_SAMPLED = 13
"""Late torch_npu.hooks kept ten values of a tensor and its largest, smallest and mean."""


def recognises(path: Path) -> bool:
    """A file called .pkl or whose first line is one of these; a directory of ranks, or of one rank, with such a file in it."""
    if path.is_dir():
        return bool(_ranks(path))
    return path.is_file() and (path.suffix == ".pkl" or (path.stat().st_size > 0 and is_line_dump(path)))


def is_line_dump(path: Path) -> bool:
    """True for a file that begins like a dump, or is empty."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        start = file.read(64).lstrip()
    return not start or re.match(rb'\[\s*"', start) is not None


def read(path: Path, *, tolerant: bool) -> Trace:
    """Open a dump."""
    ranks = _ranks(path) if path.is_dir() else {0: path}
    for file in ranks.values():
        _refuse_pickles(file)
    journals = {(0, rank): partial(DumpJournal, file, tolerant=tolerant) for rank, file in ranks.items()}
    return trace_of(path, "torch_npu", "torch", {"keep": "tensor"}, journals)


def write(trace: Trace, path: Path, *, tell: Tell | None = None) -> None:
    """Write any trace as a dump, all steps one after the other: one file, or a directory with one for each rank."""
    for rank in trace.ranks:
        writer = LineWriter(path if len(trace.ranks) == 1 else path / f"rank{rank}" / "dump.pkl")
        write_rank(writer, trace, rank, tell=tell)


def _ranks(path: Path) -> dict[int, Path]:
    """The dump of each rank in a directory."""
    return ranks_in(path, lambda folder: next(filter(is_line_dump, sorted(folder.glob("*.pkl"))), None))


def _refuse_pickles(path: Path) -> None:
    """A pickle runs code when it is loaded. This tool's files are JSON, whatever they are called."""
    with path.open("rb") as file:
        start = file.read(1 << 12)
    if start[:4] == b"PK\x03\x04":
        raise TraceFormatError(_not_a_dump(path, "a zip archive, such as torch.save writes"))
    if start.lstrip()[:1] in (b"[", b""):  # no opcode of a pickle is `[`
        return
    try:
        first = next(pickletools.genops(start))[0].name
    except (ValueError, IndexError, StopIteration, AttributeError):
        raise TraceFormatError(_not_a_dump(path, f"something that begins with {start[:16]!r}")) from None
    raise TraceFormatError(
        _not_a_dump(path, f"a real pickle (its first opcode is {first})")
        + " It was not loaded: a pickle may run any code."
    )


def _not_a_dump(path: Path, what: str) -> str:
    return (
        f'{path}: expected lines of JSON, ["name", [values], "dtype", [shape]], found {what}. '
        f"Give the file that was given to set_dump_path."
    )


@dataclass(frozen=True, slots=True)
class _Line:
    """Location of a tensor's values: a stretch of the file, or a file of their own."""

    offset: int
    length: int
    text: str
    npy: Path | None


class DumpJournal(HeldJournal):
    """One dump file."""

    def __init__(self, path: Path, header: Header, *, tolerant: bool) -> None:
        super().__init__(header)
        self._path, self._tolerant = path, tolerant
        self._lines: dict[int, _Line] = {}
        self._names: dict[int, LineName] = {}
        self._stacks: dict[str, tuple[Frame, ...]] = {}
        self._whole, self._ptdbg, self._sampled = True, False, 0
        self._read()
        lines = (Line(number, number, name) for number, name in self._names.items())
        calls = fold(lines, self._tensors, self._stacks, swapped=self._ptdbg)
        self._calls = [_with_parameters(call, calls, self._tensors) for call in calls]

    # --- what a journal offers ----------------------------------------------------------------------------------

    @property
    def complete(self) -> bool:
        """A dump has no end mark; one whose last line is torn was surely not finished."""
        return self._whole

    def notes(self) -> Iterator[Note]:
        if self._sampled:
            text = f"{self._sampled} tensors have {_SAMPLED} numbers instead of their values: they were recorded as samples"
            yield Note("sampled", text)

    def array(self, tensor: Tensor) -> np.ndarray[Any, Any]:
        line = self._lines[tensor.id]
        if line.npy is not None:
            return npy_values(line.npy, tensor.spec)
        with self._path.open("rb") as file:
            file.seek(line.offset)
            raw = file.read(line.length)
        try:
            return from_values(_parsed(raw, tensor.spec)[1], tensor.spec)
        except (ValueError, IndexError) as error:
            raise TraceFormatError(
                f"{self._path}: line {tensor.id + 1}: {error}. It was changed after it was opened."
            ) from None

    # --- reading ------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        """Take the lines one by one; the last may be torn by the end of the process."""
        tell, offset = READING.get(), 0
        with self._path.open("rb", buffering=_BLOCK) as file:
            size = os.fstat(file.fileno()).st_size
            for number, raw in enumerate(iter(lambda: file.readline(_MAX_LINE), b"")):
                if tell is not None:
                    tell(f"reading {self._path.name}, MB", offset >> 20, size >> 20)
                try:
                    if raw[:64].strip() or raw.strip():
                        self._understand(number, offset, raw)
                except ValueError as error:
                    text = str(error)
                    if not raw.endswith(b"\n"):
                        self._whole = False
                        text = f"the last line is torn after {len(raw)} bytes: the process ended while it was writing"
                        if len(raw) == _MAX_LINE:
                            text = f"longer than {_MAX_LINE} bytes"
                    where = Damage(str(self._path), f"line {number + 1}", text)
                    note_damage(self._damage, where, tolerant=self._tolerant)
                    if len(raw) == _MAX_LINE:
                        return
                offset += len(raw)

    def _understand(self, number: int, offset: int, raw: bytes) -> None:
        fields = _parsed(raw, None)
        if len(fields) == 2:
            self._stack(fields)
            return
        numbered = len(fields) > 4
        text, dtype, shape = fields[0], fields[3 if numbered else 2], fields[4 if numbered else 3]
        name = parse(text, numbered=numbered) if text.isprintable() else None
        if name is None:
            raise ValueError(f"the name {text[:60]!r} does not say which end of a call it is")
        short = short_name(dtype) if isinstance(dtype, str) and dtype.startswith("torch.") else None
        if short is None:
            raise ValueError(f"unknown element type {str(dtype)[:40]!r}")
        spec = Spec(storable(short), shape_of(shape))
        npy = self._npy_of(text) if numbered else None
        self._ptdbg = self._ptdbg or numbered
        tensor = Tensor(number, spec, facts={"line": text, "dtype": dtype})
        line = _Line(offset, len(raw), text, npy)
        self._tensors[number] = replace(tensor, **self._known(fields, line, spec))
        self._lines[number], self._names[number] = line, name

    def _known(self, fields: list[Any], line: _Line, spec: Spec) -> dict[str, Any]:
        """Knowledge of the values."""
        count: int = math.prod(spec.shape)
        if line.npy is not None:
            try:
                values = npy_values(line.npy, spec)
            except TraceFormatError as error:
                return {"missing": str(error)}
        elif len(fields) > 4:
            return {"statistics": _summary(fields[5:]), "missing": f"there is no {line.text}.npy beside the dump"}
        elif not len(fields[1]) and count:
            return {"missing": "the dump has no values of it"}
        elif len(fields[1]) == _SAMPLED and count != _SAMPLED:
            self._sampled += 1
            return {"missing": f"the dump has a sample of {_SAMPLED} numbers instead of its values"}
        else:
            values = from_values(fields[1], spec)
        return digested(values, spec.dtype, line.offset)

    def _stack(self, fields: list[Any]) -> None:
        """`["Functional_conv2d_0_stack_info", [[file, line, function, code], …]]`, innermost first."""
        match = re.fullmatch(r"(?P<call>.+?)(_forward|_backward)?_stack_info", fields[0], re.DOTALL)
        name = parse(f"{match['call']}_forward_input", numbered=True) if match else None
        if name is None or not isinstance(fields[1], list):
            raise ValueError(f"expected a tensor or the stack of a call, got {str(fields)[:60]}")
        frames = [
            Frame(str(item[0]), item[1] if isinstance(item[1], int) else 0, str(item[2]), str(item[3]))
            for item in fields[1]
            if isinstance(item, list) and len(item) == 4
        ]
        self._stacks[name.label] = tuple(frames)

    def _npy_of(self, name: str) -> Path | None:
        """The file of a tensor's values: in the folder called like the dump, or beside it."""
        if "/" in name or "\0" in name:
            return None
        stem = self._path.with_suffix("")
        folders = [stem, self._path.parent]
        if not stem.is_dir():  # the first of them put the time behind the name
            folders[1:1] = sorted(entry for entry in self._path.parent.glob(f"{stem.name}_*") if entry.is_dir())
        return next((file for folder in folders if (file := folder / f"{name}.npy").is_file()), None)


def _with_parameters(call: Call, calls: Sequence[Call], tensors: Mapping[int, Tensor]) -> Call:
    """A dump does not say what a module holds. The function before it, if it made what the module gives out, was called with it."""
    inside = calls[call.id - 1] if call.id else None
    made_by = {tensors[tensor].producer for tensor in call.returned.values()}
    if call.site.kind is not Kind.MODULE or inside is None or made_by != {inside.id}:
        return call
    given = {mark(tensors[tensor]) for _, tensor in tensor_slots(call.args, call.kwargs)}
    held = {
        slot.removeprefix("kw."): tensor
        for slot, tensor in tensor_slots(inside.args, inside.kwargs)
        if tensors[tensor].producer is None and mark(tensors[tensor]) not in given
    }
    return replace(call, parameters=held)


def _quickly(raw: bytes, spec: Spec | None) -> list[Any] | None:
    """The same of a long line of real numbers, with an array for its list; None where it is not plainly one."""
    if len(raw) < _QUICK:
        return None
    end = len(raw) - _ENDS
    head, tail = _HEAD.match(raw[:_ENDS]), _TAIL.search(raw[end:])
    if head is None or tail is None:
        return None
    try:
        name, dtype = (part.decode() for part in (head[1], tail[1]))
        shape = [int(size) for size in tail[2].split(b",")] if tail[2].strip() else []
    except ValueError:
        return None
    short = spec.dtype if spec is not None else storable(short_name(dtype) or "")
    if short[:1] not in ("f", "b", "i", "u") or len(shape) > 64:
        return None
    count = math.prod(shape)
    text = memoryview(raw)[head.end() : end + tail.start()]
    values = parse_numbers(text, count, wide=short != "f32") if 0 < 2 * count <= len(text) + 1 else None
    if values is None or (short[:1] in "iu" and not (np.abs(values) < _EXACT).all()):
        return None
    return [name, values, dtype, shape]


def _parsed(raw: bytes, spec: Spec | None) -> list[Any]:
    """The fields of a line; ValueError with one clause. `spec`: what its tensor is known to be."""
    quick = _quickly(raw, spec)
    if quick is not None:
        return quick
    fields = parsed(raw)
    if not isinstance(fields, list) or len(fields) not in (2, 4, 6, 7) or not isinstance(fields[0], str):
        raise ValueError(f'expected ["name", [values], "dtype", [shape]], got {raw[:60]!r}')
    if len(fields) > 2 and not isinstance(fields[1 if len(fields) == 4 else 2], list):
        raise ValueError(f"expected a list of values, got {raw[:60]!r}")
    return fields


def _summary(rest: list[Any]) -> Statistics | None:
    """`[max, min, mean]`, and the norm where the tool knows it."""
    numbers = rest[0] if rest and isinstance(rest[0], list) else []
    known = [statistic(number) for number in (*numbers, None)[:4]]
    if len(numbers) < 3 or None in known[: len(numbers)]:
        return None
    high, low, mean, norm = known
    return Statistics(low, high, float(mean or 0.0), None if norm is None else float(norm), 0, 0, 0, 0)
