"""Record straight into a dump: a file for each tensor, then its row; with the kernel before the next call begins.

    rank0/torch_api_dump/NN_Conv2d_0_forward_input.0.npy
    rank0/torch_api_dump_info.csv       ["NN_Conv2d_0_forward_input.0", 1, [], "torch.float32", [1, 3], [max, min, mean], [], norm]
    rank0/torch_api_dump_stack.json     {"torch.nn.Conv2d(0) forward": ["File net.py, line 19, in forward, \\n x = self.conv(x)"]}

A row is written after its file, and the JSON of stacks is whole after every write: what is there after
`kill -9` can be read. The second file of the same values (one call's result is the next one's argument) is a second name of the
first.

The second column of a row is the number of the recorded region, from 1. The real tool always writes 1, and reads none.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...model.errors import TraceExistsError, TraceWriteError
from ...model.records import Role
from ...model.sites import Phase
from ...model.values import TensorRef
from ...store.appending import append, replaced, write_errors
from ...store.arrays import STORAGE, as_float
from ..documents import Document
from ..lines import line_name
from ..reading import storable, stored
from ..translating import TensorFacts, Translator, frame_text, give_name, over_all_elements
from .names import STEMS, Leaf, argument_leaves, long_dtype, result_leaves, stack_key

Row = list[Any]
Label = Callable[[Mapping[str, Any]], str | None]
"""A call's line in, its name out; None if it is not to be written."""

_PACKAGE = str(Path(__file__).parents[2]) + os.sep
_FLOATS = ("f", "bf")


@dataclass(frozen=True, slots=True)
class Content:
    """Parts of a call that are written: the settings of `api_dump_start`."""

    npy: bool = True
    statistics: bool = True
    filter_data: bool = True
    """Only tensors of floating point numbers, with at least one dimension and one element."""
    filter_stack: bool = True
    """Only the user's own lines."""
    overflow: bool = False
    """Only calls whose result has an element that is not finite."""
    categories: frozenset[str] = frozenset(("max", "min", "l2norm"))


class DumpFiles:
    """The files of one rank of a dump. Writers share them: a region's gradients may come while another region is recorded."""

    def __init__(self, root: Path, framework: str) -> None:
        self.folder = root
        self._root, self._stem = root, STEMS.get(framework, framework)
        self._csv, self._size = -1, 0
        self._stacks: Document | None = None
        self._known: set[str] = set()

    @property
    def is_open(self) -> bool:
        return self._csv >= 0

    def open(self, rank: int) -> None:
        """Begin the files of a rank, without what an older dump has left there."""
        place = self._root / f"rank{rank}"
        self.folder = place / f"{self._stem}_api_dump"
        stacks = place / f"{self.folder.name}_stack.json"
        try:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.folder.mkdir(mode=0o700, exist_ok=True)
            for entry in self.folder.iterdir():  # an old dump, and nothing else: what is not a dump's stays
                if entry.suffix in (".npy", ".part") and (entry.is_file() or entry.is_symlink()):
                    entry.unlink()
            self._info.unlink(missing_ok=True)
            self._csv = os.open(self._info, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            self._stacks = Document(stacks, mode=0o600)
        except FileExistsError as error:
            raise TraceExistsError(
                f"{place}: expected a folder, found a file in the way. Choose another path."
            ) from error
        except OSError as error:
            raise TraceWriteError(f"{place} cannot be written ({error.strerror}). Choose another path.") from error

    @property
    def _info(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}_info.csv")

    def add_rows(self, rows: Iterable[Row]) -> None:
        """Rows at the end of the csv file."""
        data = "".join(json.dumps(row) + "\n" for row in rows).encode()
        self._size = append(self._csv, data, self._size, where=self._info)

    def add_stacks(self, stacks: Iterable[tuple[str, list[str]]]) -> None:
        """Stacks by their keys; one that is there stays as it is."""
        if self._stacks is not None:
            for key, frames in stacks:
                if key not in self._known:
                    self._known.add(key)
                    self._stacks.add(key, json.dumps(frames))
            self._stacks.commit()

    def close(self) -> None:
        """Let go of the files; they are whole."""
        csv, self._csv = self._csv, -1
        stacks, self._stacks = self._stacks, None
        if csv >= 0:
            with contextlib.suppress(OSError):
                os.close(csv)
        if stacks is not None:
            stacks.abandon()  # all that was added is committed; a forked child must not write


class DumpWriter(Translator):
    """Writes the journal of a recorder into the files of a dump."""

    def __init__(
        self,
        files: DumpFiles,
        framework: str,
        label: Label,
        content: Content,
        *,
        region: int = 1,
        copies: bool = True,
    ) -> None:
        """`files` are opened by the writer that comes first, and closed by whoever has made them."""
        super().__init__(copies=copies)
        self.environment: Mapping[str, Any] = {}
        """Facts about the run from the recorder, once it has begun."""
        self.rows = self.gradients = 0
        self._framework = framework
        self._label, self._content, self._region = label, content, region
        self._files_of_dump = files
        self._is_open = False
        self._files: dict[tuple[int, str, tuple[int, ...]], Path] = {}
        self._saved: dict[int, tuple[str, Path]] = {}  # place -> (element type, file)
        self._reset()

    def _reset(self) -> None:
        self._tensors.clear()
        self._frames: dict[int, list[list[Any]]] = {}
        self._calls: dict[int, tuple[str, dict[str, str]]] = {}  # (label, suffix by slot of the result)
        self._pending: list[tuple[str, TensorFacts | bool | int | float]] = []
        self._pending_stacks: list[tuple[str, list[str]]] = []

    # --- what a recorder calls ----------------------------------------------------------------------------------

    def begin_step(self, step: int, header: Mapping[str, Any]) -> DumpWriter:
        """Tensors are numbered from 0 again."""
        self.environment = header.get("environment") or {}
        if not self._files_of_dump.is_open:
            self._files_of_dump.open(int(header.get("rank") or 0))
        self._is_open = True
        self._reset()
        return self

    def commit(self) -> None:
        """Write what is known by now: files, then their rows, then stacks."""
        pending, self._pending = self._pending, []
        stacks, self._pending_stacks = self._pending_stacks, []
        if pending:
            self._files_of_dump.add_rows([self._row(name, value) for name, value in pending])
            self.rows += len(pending)
        if stacks:
            self._files_of_dump.add_stacks(stacks)

    def end_step(self) -> None:
        """Write what is left; bytes that were held for files that never came are let go."""
        self.commit()
        self._reset()
        self.release()

    def close(self) -> None:
        """Write what is left."""
        if self._is_open:
            self.end_step()
        self._is_open = False

    def abandon(self) -> None:
        """Write no more."""
        self._is_open = False

    # --- calls --------------------------------------------------------------------------------------------------

    def _add_stack(self, record: Mapping[str, Any]) -> None:
        self._frames[record["id"]] = record["frames"]

    def _add_call(self, record: Mapping[str, Any]) -> None:
        label = self._label(record) if "raised" not in record and record["phase"] == Phase.FORWARD else None
        if label is None:
            return
        inputs, outputs = list(argument_leaves(record["in"], record["kw"])), list(result_leaves(record["out"]))
        if not any(isinstance(leaf.value, TensorRef) for leaf in outputs):
            outputs = _written_to(inputs, record.get("after") or {})
        if self._content.overflow and all(self._is_finite(leaf) for leaf in outputs):
            return
        suffixes: dict[str, str] = {}
        for part, leaves in (("input", inputs), ("output", outputs)):
            for leaf in leaves:
                value = self._wanted(leaf)
                if value is not None:
                    self._pending.append((line_name(label, part, leaf.suffix), value))
                    if part == "output":
                        suffixes[leaf.slot] = leaf.suffix
        self._calls[record["id"]] = label, suffixes
        frames = self._frames.get(record.get("stack", -1), []) if self._content.filter_stack else _all_frames()
        self._pending_stacks.append((stack_key(self._framework, label), [frame_text(frame) for frame in frames]))

    def _add_gradient(self, record: Mapping[str, Any]) -> None:
        label, suffixes = self._calls.get(record.get("of", -1), ("", {}))
        first = record["role"] == Role.OUTPUT and not record["n"]  # a second backward pass has no name here
        if first and record["slot"] in suffixes:
            name = line_name(label, "input", suffixes[record["slot"]], backward=True)
            self._pending.append((name, self._tensors[record["t"]]))
            self.gradients += 1

    def _is_finite(self, leaf: Leaf) -> bool:
        statistics = self._tensors[leaf.value.id].statistics if isinstance(leaf.value, TensorRef) else None
        return statistics is None or not any(statistics[4:7])

    def _wanted(self, leaf: Leaf) -> TensorFacts | bool | int | float | None:
        if isinstance(leaf.value, TensorRef):
            value = self._tensors[leaf.value.id]
            if not self._content.filter_data:
                return value
            return value if value.shape and value.count and value.dtype.startswith(_FLOATS) else None
        scalar = isinstance(leaf.value, bool | int | float) and not self._content.filter_data
        return leaf.value if scalar else None  # type: ignore[return-value]  # mypy does not follow `scalar`

    # --- rows ---------------------------------------------------------------------------------------------------

    def _row(self, name: str, value: TensorFacts | bool | int | float) -> Row:
        if not isinstance(value, TensorFacts):
            return self._scalar_row(name, value)
        if self._content.npy and value.place is not None:
            self._write_array(name, value)
        dtype = long_dtype(self._framework, value.dtype)
        return [name, self._region, [], dtype, list(value.shape), *self._summary(value)]

    def _scalar_row(self, name: str, value: bool | int | float) -> Row:
        chosen, counts = self._content.categories, self._content.statistics
        if self._content.npy:
            self._save(name, np.asarray(value))
        md5 = hashlib.md5(str(value).encode()).hexdigest() if counts and "md5" in chosen else []
        norm: float | list[object] = abs(float(value)) if counts and "l2norm" in chosen else []
        return [name, self._region, [], str(type(value)), [], [value if counts else math.nan] * 3, md5, norm]

    def _summary(self, value: TensorFacts) -> tuple[list[float], Any, Any]:
        """([max, min, mean], md5 of the bytes, norm) over all elements; NaN or an empty list for what was not asked for."""
        statistics, chosen = value.statistics, self._content.categories if self._content.statistics else frozenset()
        extremes = [math.nan] * 3
        md5: str | list[object] = []
        norm: float | list[object] = []
        if statistics is not None and value.dtype != "b8" and value.count:
            *numbers, _ = over_all_elements(*statistics[:7])
            wanted = zip(("max", "min", "avg"), numbers, strict=True)
            extremes = [
                math.nan if key not in chosen or number is None else _printed(number, value.dtype)
                for key, number in wanted
            ]
        if "md5" in chosen and value.place is not None:
            md5 = hashlib.md5(self._array(value).tobytes()).hexdigest()
        if "l2norm" in chosen and statistics is not None:
            norm = _printed(over_all_elements(*statistics[:7])[3] or 0.0, value.dtype)
        return extremes, md5, norm

    # --- files --------------------------------------------------------------------------------------------------

    def _array(self, value: TensorFacts) -> np.ndarray[Any, Any]:
        """The values as they are saved: what numpy has no type for as float32."""
        assert value.place is not None
        raw = self._bytes.get(value.place)
        if raw is None:  # it has been written, perhaps in another shape
            dtype, file = self._saved[value.place]
            raw = stored(np.load(file), dtype).reshape(-1).view(np.uint8)
        return as_float(raw.view(STORAGE[value.dtype]).reshape(value.shape), value.dtype)

    def _write_array(self, name: str, value: TensorFacts) -> None:
        assert value.place is not None
        key = (value.place, value.dtype, value.shape)
        twin = self._files.get(key)
        if twin is not None:
            give_name(twin, self._files_of_dump.folder / f"{name}.npy", again=True)
            return
        file = self._files[key] = self._save(name, self._array(value))
        if storable(value.dtype) == value.dtype:  # otherwise the file does not give the bytes back
            self._saved.setdefault(value.place, (value.dtype, file))
            self._bytes.pop(value.place, None)

    def _save(self, name: str, array: np.ndarray[Any, Any]) -> Path:
        path = self._files_of_dump.folder / f"{name}.npy"
        with write_errors(path), replaced(path, 0o400) as file:
            np.save(file, array, allow_pickle=False)
        return path


def _printed(number: float, dtype: str) -> float:
    """A statistic as the real tool writes it: of floating point numbers up to 32 bits as a float32, where that holds it."""
    if dtype in ("f64", "c128") or not dtype.startswith(("f", "bf", "c")):
        return float(number)
    with np.errstate(over="ignore"):
        rounded = float(np.float32(number))
    return rounded if math.isfinite(rounded) else float(number)


def _written_to(inputs: list[Leaf], after: Mapping[str, int]) -> list[Leaf]:
    """Results of a call that returns nothing: the tensors that it has written to (a collective, `x[0] = y`)."""
    suffixes = {leaf.slot: leaf.suffix for leaf in inputs}
    if len(after) == 1:
        return [Leaf("", slot, TensorRef(tensor)) for slot, tensor in after.items()]
    return [Leaf(suffixes[slot], slot, TensorRef(tensor)) for slot, tensor in after.items() if slot in suffixes]


def _all_frames() -> list[list[Any]]:
    """Every frame that is not ours, innermost first, down to the script: a call's line is written while it still runs."""
    import linecache

    frames: list[list[Any]] = []
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_PACKAGE):
            frames.append([file, frame.f_lineno, frame.f_code.co_name, linecache.getline(file, frame.f_lineno).strip()])
        if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") == "__main__":
            break
        frame = frame.f_back  # type: ignore[assignment]  # the last one's is None
    return frames
