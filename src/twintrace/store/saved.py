"""A folder of .npy files as a trace: each file is a value that somebody saved.

    runs/ms/loss_float32_0.npy          forward/save:loss_float32_0.npy#0   →  f32[]
    runs/ms/notes.txt                   not looked at
    runs/ms/broken.npy                  a value that says why it cannot be read

Files of the folder itself, not of those below it, in the order in which they were saved, as far as their names tell, and then of
their names: never of their dates, which a copy changes. A header is read when its tensor is asked for, values are mapped when they
are, and no statistics are taken.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..model.errors import TraceFormatError, TraceNotFoundError
from ..model.records import Call, Header
from ..model.sites import Kind, Site
from ..model.tensors import Location, Spec, Tensor
from ..model.values import TensorRef
from .npy import Npy
from .trace import HeldJournal, Trace

FRAMEWORK = "npy"
SETTINGS = {"keep": "tensor"}
_NUMBERED = re.compile(r"_(?:bool|(?:bfloat|float|complex|uint|int)[0-9]+)_([0-9]+)\.npy")
_PIECES = re.compile(r"([^0-9]*)([0-9]*)")
_LOST = Spec("u8", (0,))


def open_folder(path: str | os.PathLike[str]) -> Trace:
    """The arrays of a folder. TraceNotFoundError where there is no folder, or no .npy file in it."""
    root = Path(path)
    if not root.is_dir():
        what = "is a file" if root.exists() else "does not exist"
        raise TraceNotFoundError(f"{root}: expected a folder of .npy files, but it {what}.")
    try:
        with os.scandir(root) as entries:
            files = [entry.name for entry in entries if entry.name.endswith(".npy")]
    except OSError as error:
        raise TraceNotFoundError(f"{root}: cannot be read ({error.strerror}).") from error
    if not files:
        raise TraceNotFoundError(f"{root}: expected .npy files in it, found none. Folders below it are not looked at.")
    names = sorted(files, key=lambda name: (numbers_of(name), _natural(name)))

    def load(step: int, rank: int) -> SavedJournal:
        return SavedJournal(root, names, Header(step, rank, 1, FRAMEWORK, SETTINGS))

    return Trace(str(root), {"framework": FRAMEWORK, "settings": SETTINGS, "world": 1}, [(0, 0)], load, layout="npy")


def numbers_of(name: str) -> tuple[int, ...]:
    """Sort key of a file: the number that it was saved under, else the first and the last number in its name.

    ms_tensor.x1_float32_4.npy   (0, 4, 4)    what MindSpore's TensorDump writes, and TroubleShooter by its documents
    12_torch_tensor.layer2.npy   (0, 12, 2)   what TroubleShooter 1.0.18 writes for PyTorch
    weights.npy                  (1,)         after all that have a number
    """
    numbered = _NUMBERED.search(name)
    numbers = [numbered[1]] if numbered else re.findall("[0-9]+", name)
    return (0, int(numbers[0]), int(numbers[-1])) if numbers else (1,)


def _natural(name: str) -> tuple[tuple[tuple[str, int], ...], str]:
    """Letters as letters, numbers as numbers: x2 before x10."""
    return tuple((text, int(number or 0)) for text, number in _PIECES.findall(name)), name


class SavedJournal(HeldJournal):
    """The arrays of one folder."""

    def __init__(self, root: Path, names: list[str], header: Header) -> None:
        super().__init__(header)
        self._root, self._names = root, names
        self._known: dict[int, tuple[Tensor, Npy | None]] = {}
        self._calls = [
            Call(number, Site(Kind.SAVE, name, 0), None, (), {}, TensorRef(number), order=number)
            for number, name in enumerate(names)
        ]

    def _read(self, number: int) -> tuple[Tensor, Npy | None]:
        if number not in self._known:
            try:
                stored = Npy.of(self._root / self._names[number])
            except TraceFormatError as error:
                missing = str(error).removeprefix(f"{self._root}{os.sep}").rstrip(".")
                self._known[number] = Tensor(number, _LOST, missing=missing), None
            else:
                payload = Location(stored.offset, stored.nbytes)
                self._known[number] = Tensor(number, stored.spec, producer=number, payload=payload), stored
        return self._known[number]

    def tensors(self) -> Iterator[Tensor]:
        return (self._read(number)[0] for number in range(len(self)))

    def tensor(self, identity: int) -> Tensor:
        if 0 <= identity < len(self):
            return self._read(identity)[0]
        return Tensor(identity, _LOST, missing="there is no such file")

    def array(self, tensor: Tensor) -> np.ndarray[Any, Any]:
        """The values, mapped from their file."""
        stored = self._read(tensor.id)[1]
        if stored is None:
            raise TraceFormatError(f"{self._root}: {tensor.missing}")
        return stored.values()
