"""Record straight into a dump: each tensor one line, with the kernel before the next one begins.

    ["Functional_linear_forward_input.0", [0.046, 0.402], "torch.float32", [1, 2]]      <- when the call returns
    ["Functional_linear_backward_input.0", [...], "torch.float32", [1, 2]]              <- when its gradients are known

A value that comes again is not made into text again: its text is copied from where it stands in
the file, so memory holds only what has not been written yet.

A backward pass gives a call's gradients one by one, those of the results first. They are held until all of them are known, since
readers of this format take everything up to an `output` line for one call. One that never comes (an argument that the result does
not depend on) is given up when the next forward call begins, or at the end.

    f32[2]   1.5, nan        ->  [1.5, NaN]                 as Python's json writes them, which is what the old tool did
    i64[1]   2**60           ->  [1152921504606846976]      the old tool went through float32 and lost it
    c64[1]   1+2j            ->  [1.0, 2.0]                 real and imaginary part of each element
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ...model.dtypes import LONG_NAMES
from ...model.errors import TraceWriteError
from ...model.records import Role
from ...model.sites import Phase
from ...model.tensors import Spec
from ...model.values import TensorRef, leaves, tensor_slots
from ...store.appending import append
from ...store.arrays import STORAGE, as_float
from ..lines import line_name
from ..reading import storable, stored
from ..translating import TensorFacts, Translator
from .names import operation_name


@dataclass(frozen=True, slots=True)
class _Text:
    """Location of the text of a value."""

    file: int
    offset: int
    length: int


@dataclass(slots=True)
class _Backward:
    """The gradients of one call, as far as they have come: tensors by slot."""

    outputs: dict[str, int] = field(default_factory=dict)
    inputs: dict[str, int] = field(default_factory=dict)


class LineWriter(Translator):
    """Writes the journal of a recorder as the lines of a dump. `switch` goes on in another file."""

    def __init__(self, path: Path, *, append: bool = False) -> None:
        self._old: list[int] = []
        self._path = path
        self._file = self._size = -1
        self._open(path, append)
        super().__init__()
        self._texts: dict[tuple[int, str], _Text] = {}
        self._reset()

    def _reset(self) -> None:
        self._tensors.clear()
        self._calls: dict[int, tuple[str, tuple[str, ...]]] = {}  # what it is called, the inputs that want a gradient
        self._waiting: dict[tuple[int, int], _Backward] = {}
        self._pending: list[tuple[str, int]] = []  # (name, tensor)

    # --- what a recorder calls ----------------------------------------------------------------------------------

    def begin_step(self, step: int, header: Mapping[str, Any]) -> LineWriter:
        """Tensors are numbered from 0 again."""
        self._reset()
        return self

    def commit(self) -> None:
        """Write the lines that are known by now."""
        pending, self._pending = self._pending, []
        for name, tensor in pending:
            self._write(name, self._tensors[tensor])

    def end_step(self) -> None:
        """Give up waiting for gradients; what was kept for lines that never came is dropped."""
        self.flush()
        self._reset()
        self.release()

    def flush(self) -> None:
        """Write what is known of calls whose gradients have not all come."""
        for key in list(self._waiting):
            self._pending.extend(self._backward_lines(key))
        self.commit()

    def switch(self, path: Path, *, append: bool = False) -> None:
        """Write to another file from here on."""
        self.flush()
        before = self._file
        self._open(path, append)
        self._old.append(before)

    def abandon(self) -> None:
        """Let go of the files without writing."""
        files, self._old = [*self._old, self._file], []
        self._file = -1
        for file in files:
            with contextlib.suppress(OSError):
                os.close(file)

    # --- lines --------------------------------------------------------------------------------------------------

    def _add_call(self, record: Mapping[str, Any]) -> None:
        if "raised" in record:
            return
        if record["phase"] == Phase.FORWARD:
            for key in list(self._waiting):
                self._pending.extend(self._backward_lines(key))
        name = operation_name(record["kind"], record["name"], record.get("type") or "")
        inputs = list(tensor_slots(record["in"], record["kw"]))
        self._pending += [(line_name(name, "input", slot), tensor) for slot, tensor in inputs]
        self._pending += [
            (line_name(name, "output", slot), leaf.id)
            for slot, leaf in leaves(record["out"])
            if isinstance(leaf, TensorRef)
        ]
        wanting = tuple(slot for slot, tensor in inputs if self._tensors[tensor].requires_grad)
        self._calls[record["id"]] = name, wanting

    def _add_gradient(self, record: Mapping[str, Any]) -> None:
        if record["role"] == Role.PARAMETER or record["of"] not in self._calls:
            return
        key = record["of"], record["n"]
        gradients = self._waiting.setdefault(key, _Backward())
        (gradients.inputs if record["role"] == Role.INPUT else gradients.outputs)[record["slot"]] = record["t"]
        if gradients.outputs and gradients.inputs.keys() >= {*self._calls[key[0]][1]}:
            self._pending.extend(self._backward_lines(key))

    def _backward_lines(self, key: tuple[int, int]) -> Iterator[tuple[str, int]]:
        """Gradients of the arguments, then those of the results, which in this format are always numbered."""
        gradients = self._waiting.pop(key)
        name, wanting = self._calls[key[0]]
        for slot in wanting:
            if slot in gradients.inputs:
                yield line_name(name, "input", slot, backward=True), gradients.inputs[slot]
        for slot, tensor in gradients.outputs.items():
            yield line_name(name, "output", slot or "0", backward=True), tensor

    def _write(self, name: str, value: TensorFacts) -> None:
        head = f"[{json.dumps(name)}, ".encode()
        tail = f", {json.dumps(f'torch.{LONG_NAMES[value.dtype]}')}, {json.dumps([*value.shape])}]\n".encode()
        text = self._text(value)
        offset = self._size + len(head)
        self._size = append(self._file, b"".join((head, text, tail)), self._size, where=self._path)
        if value.place is not None:
            self._texts[value.place, value.dtype] = _Text(self._file, offset, len(text))
            if storable(value.dtype) == value.dtype:  # otherwise the text does not give the bytes back
                self._bytes.pop(value.place, None)

    def _text(self, value: TensorFacts) -> bytes:
        if value.place is None:
            return b"[]"
        known = self._texts.get((value.place, value.dtype))
        if known is not None:
            return _read(known)
        held = self._bytes.get(value.place)
        return to_text(self._reread(value.place) if held is None else held.data, value.dtype)

    def _reread(self, place: int) -> bytes:
        """Bytes that were written as another element type before (eight zero bytes are an f64 and an i64)."""
        dtype, text = next((dtype, text) for (known, dtype), text in self._texts.items() if known == place)
        values = json.loads(_read(text))
        count = len(values) // 2 if dtype.startswith("c") else len(values)
        return from_values(values, Spec(dtype, (count,))).tobytes()

    # --- the file -----------------------------------------------------------------------------------------------

    def _open(self, path: Path, append: bool) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | (0 if append else os.O_TRUNC)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, flags, 0o644)
            self._size = os.fstat(self._file).st_size
        except OSError as error:
            raise TraceWriteError(f"{path} cannot be written ({error.strerror}). Choose another path.") from error
        self._path = path


def _read(text: _Text) -> bytes:
    """The text of a value that was written before."""
    parts, done = [], 0
    while done < text.length:
        part = os.pread(text.file, min(text.length - done, 1 << 30), text.offset + done)
        if not part:
            raise TraceWriteError(
                "the dump was cut short while it was being written. Leave the file alone until the run ends."
            )
        parts.append(part)
        done += len(part)
    return b"".join(parts)


# --- values as JSON, and back ----------------------------------------------------------------------------------------


def to_text(raw: bytes | memoryview, dtype: str) -> bytes:
    """The values of a tensor's bytes as a JSON list. Packed types, two elements to a byte, have no such list: it is empty."""
    if dtype.startswith("f4"):
        return b"[]"
    values = as_float(np.frombuffer(raw, dtype=STORAGE[dtype]), dtype)
    if dtype == "b8":
        values = values.astype(np.float32)
    if np.iscomplexobj(values):
        values = values.view(np.float64 if dtype == "c128" else np.float32)
    return json.dumps(values.tolist()).encode()


def from_values(values: list[Any] | np.ndarray[Any, Any], spec: Spec) -> np.ndarray[Any, Any]:
    """The array of a JSON list (or of its numbers, already read) in the storage type of its element type; ValueError with one
    clause where that cannot be.
    """
    count, numbers = math.prod(spec.shape), values
    if not isinstance(numbers, np.ndarray):
        exact = spec.dtype == "u64" and all(type(value) is int and 0 <= value < 1 << 64 for value in values)
        # numpy's own choice for 2**63 beside 0 is a float.
        numbers = np.array(values, dtype=np.uint64 if exact else None)
        if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iufb"):
            raise ValueError(f"expected a flat list of numbers, got {str(values)[:40]}")
        if spec.dtype.startswith("c") and numbers.size == 2 * count:
            numbers = numbers.astype(np.float64).view(np.complex128)
    if numbers.size != count:
        raise ValueError(f"{numbers.size} values for a tensor of {spec}")
    return stored(numbers.reshape(spec.shape), spec.dtype)
