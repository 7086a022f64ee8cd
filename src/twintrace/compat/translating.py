"""Writers that put the records of a recorder into another tool's file, as they come.

    tt.record(path, model, writer=LineWriter(path))     takes the place of the archive's own writer

A trace's records, replayed into such a writer, are an export. What has been committed is in the tool's files, and these can be
read, whenever the process is killed.
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..model.tensors import Location
from ..store.appending import write_errors
from ..store.lines import number_of, value_of

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class TensorFacts:
    """Facts of a journal about a tensor: `place` is that of its bytes, None where it has none."""

    dtype: str
    shape: tuple[int, ...]
    place: int | None
    requires_grad: bool
    statistics: list[Any] | None

    @property
    def count(self) -> int:
        return math.prod(self.shape)


class Translator:
    """Base of the writers of dumps: hands on records by their kind, and holds the bytes of tensors until they are written.

    A writer has `_add_call` and `_add_gradient`, and `commit`, `end_step` and `abandon` of a `store.writer.Writer`. The arguments
    and the result of a call are values of the model by then; its tensors are in `_tensors`.
    """

    def __init__(self, *, copies: bool = True) -> None:
        self._copies = copies
        self._places: dict[str, int] = {}
        self._bytes: dict[int, Array] = {}
        self._next_place = 0
        self._tensors: dict[int, TensorFacts] = {}

    def has_step(self, step: int) -> bool:
        """False: a dump knows no steps, so another may always begin."""
        return False

    def store(self, data: Array, fingerprint: str) -> Location:
        """Hold the bytes, each content once, until they are written."""
        key = f"{fingerprint}{len(data)}"
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = self._next_place
            self._next_place += 1
            self._bytes[place] = data.copy() if self._copies else data
        return Location(place, len(data))

    def take(self, record: Mapping[str, Any]) -> None:
        """Take a record of the journal."""
        match record["k"]:
            case "tensor":
                self._add_tensor(record)
            case "stack":
                self._add_stack(record)
            case "call":
                named = {key: value_of(wire) for key, wire in record["kw"].items()}
                values = {"in": tuple(map(value_of, record["in"])), "kw": named, "out": value_of(record.get("out"))}
                self._add_call({**record, **values})
            case "grad":
                self._add_gradient(record)

    def release(self) -> None:
        """Let go of bytes that were held and not written; should they be needed all the same, they are given again."""
        self._places = {key: place for key, place in self._places.items() if place not in self._bytes}
        self._bytes.clear()

    def close(self) -> None:
        """End the dump."""
        try:
            self.end_step()
        finally:
            self.abandon()

    def end_step(self) -> None:
        raise NotImplementedError

    def abandon(self) -> None:
        raise NotImplementedError

    def _add_tensor(self, record: Mapping[str, Any]) -> None:
        at, statistics = record.get("at"), record.get("stats")
        numbers = None if statistics is None else [number_of(number) for number in statistics]
        facts = TensorFacts(
            record["dtype"], tuple(record["shape"]), at[0] if at else None, bool(record.get("grad")), numbers
        )
        self._tensors[record["id"]] = facts

    def _add_stack(self, record: Mapping[str, Any]) -> None:
        """Most dumps do not say where a call was made."""

    def _add_call(self, record: Mapping[str, Any]) -> None:
        raise NotImplementedError

    def _add_gradient(self, record: Mapping[str, Any]) -> None:
        raise NotImplementedError


def give_name(file: Path, path: Path, *, again: bool) -> None:
    """Give a file another name, or a copy where a file system has no links; `again`: instead of what has that name."""
    with write_errors(path):
        if again:
            path.unlink(missing_ok=True)
        try:
            os.link(file, path)
        except OSError:  # no links there, or too many of one file
            shutil.copy(file, path)


def frame_text(frame: Sequence[Any]) -> str:
    """A line of a stack, as these tools write it; `reading.frame_of` takes it apart."""
    file, line, function, code = frame
    return f"File {file}, line {line}, in {function}, \n {code}"


Number = float | int | None


def over_all_elements(
    least: Number, largest: Number, mean: Number, norm: Number, nan: int, above: int, below: int
) -> tuple[Number, Number, Number, Number]:
    """Max, min, mean and norm of all elements, as the frameworks' own functions give them. Those of a trace are of the finite ones.

    `nan`, `above` and `below` count NaN and the infinities.
    """
    if nan:
        return math.nan, math.nan, math.nan, math.nan
    if not above and not below:
        return largest, least, mean, norm
    high = math.inf if above else largest if largest is not None else -math.inf
    low = -math.inf if below else least if least is not None else math.inf
    return high, low, math.nan if above and below else high if above else low, math.inf
