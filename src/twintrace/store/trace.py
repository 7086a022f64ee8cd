"""A trace as everybody above the store sees it, whatever its layout on disk.

    trace = open_trace("runs/a")
    trace.steps, trace.ranks                     (0, 1, 2), (0,)
    for journal in trace.journals():             one per step and rank
        for call in journal.calls():             Call, in the order of the journal
            journal.tensor(call.output.id)       Tensor: spec, statistics, fingerprint, producer
            journal.array(tensor)                its values as numpy, checked against the fingerprint

Opening reads names and positions only; records are parsed as they are asked for, tensors are mapped, not loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from ..model.errors import TraceFormatError, TraceNotFoundError
from ..model.records import Call, Damage, Gradient, Header, Note
from ..model.tensors import Tensor


class Journal(Protocol):
    """One step of one rank."""

    @property
    def header(self) -> Header: ...
    @property
    def damage(self) -> tuple[Damage, ...]: ...
    @property
    def complete(self) -> bool: ...
    def __len__(self) -> int: ...
    def calls(self) -> Iterator[Call]: ...
    def parameter_gradients(self) -> Iterator[Gradient]: ...
    def notes(self) -> Iterator[Note]: ...
    def tensors(self) -> Iterator[Tensor]: ...
    def tensor(self, identity: int) -> Tensor: ...
    def array(self, tensor: Tensor) -> np.ndarray[Any, Any]: ...


class HeldJournal:
    """Most of a journal whose records are all in memory: of a layout that is read whole when it is opened.

    Whoever reads it fills these; `array` is up to the layout.
    """

    def __init__(self, header: Header) -> None:
        self.header = header
        self._damage: list[Damage] = []
        self._calls: Sequence[Call] = ()
        self._gradients: Sequence[Gradient] = ()
        self._tensors: dict[int, Tensor] = {}

    @property
    def damage(self) -> tuple[Damage, ...]:
        return tuple(self._damage)

    @property
    def complete(self) -> bool:
        """Most layouts have no end mark."""
        return True

    def __len__(self) -> int:
        return len(self._calls)

    def calls(self) -> Iterator[Call]:
        return iter(self._calls)

    def parameter_gradients(self) -> Iterator[Gradient]:
        return iter(self._gradients)

    def notes(self) -> Iterator[Note]:
        return iter(())

    def tensors(self) -> Iterator[Tensor]:
        return iter(self._tensors.values())

    def tensor(self, identity: int) -> Tensor:
        if identity not in self._tensors:
            raise TraceFormatError(f"step {self.header.step} of rank {self.header.rank} has no tensor {identity}.")
        return self._tensors[identity]


class DerivedJournal:
    """A journal over another one, of which everything is asked that a subclass does not answer itself."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    def __len__(self) -> int:
        return len(self._journal)


class Trace:
    """A recorded run."""

    def __init__(
        self,
        path: str,
        manifest: Mapping[str, Any],
        places: list[tuple[int, int]],
        load: Callable[[int, int], Journal],
        *,
        layout: str = "twintrace",
    ) -> None:
        self.path = path
        self.manifest = manifest
        self.layout = layout
        self._places = places
        self._load = load
        self._loaded: dict[tuple[int, int], Journal] = {}

    @property
    def framework(self) -> str:
        """The framework that ran: `torch`, `mindspore`, …"""
        return str(self.manifest.get("framework", "unknown"))

    @property
    def steps(self) -> tuple[int, ...]:
        """Numbers of the recorded steps."""
        return tuple(sorted({step for step, _ in self._places}))

    @property
    def ranks(self) -> tuple[int, ...]:
        """Numbers of the recorded ranks."""
        return tuple(sorted({rank for _, rank in self._places}))

    @property
    def places(self) -> tuple[tuple[int, int], ...]:
        """`(step, rank)` of every journal."""
        return tuple(self._places)

    def journal(self, step: int, rank: int = 0) -> Journal:
        """The journal of one step of one rank."""
        place = (step, rank)
        if place not in self._loaded:
            if place not in self._places:
                raise TraceNotFoundError(
                    f"{self.path} has no step {step} of rank {rank}. It has steps {_span(self.steps)} of ranks {_span(self.ranks)}."
                )
            self._loaded[place] = self._load(step, rank)
        return self._loaded[place]

    def parts(self) -> tuple[str, Mapping[str, Any], list[tuple[int, int]], Callable[[int, int], Journal]]:
        """Path, manifest, places and loader: what another trace over the same journals is made of."""
        return self.path, self.manifest, self._places, self._load

    def forget(self) -> None:
        """Let go of the journals that were loaded, for those who go through many; they are loaded again when asked for."""
        self._loaded.clear()

    def journals(self) -> Iterator[Journal]:
        """Every journal, by step and rank."""
        for step, rank in self._places:
            yield self.journal(step, rank)

    def calls(self) -> Iterator[Call]:
        """Every call of every journal."""
        for journal in self.journals():
            yield from journal.calls()

    def __len__(self) -> int:
        return sum(len(journal) for journal in self.journals())

    def __repr__(self) -> str:
        return f"<Trace {self.path}: {self.framework}, steps {_span(self.steps)}, ranks {_span(self.ranks)}>"


def _span(numbers: tuple[int, ...]) -> str:
    if not numbers:
        return "none"
    if numbers[-1] - numbers[0] == len(numbers) - 1 > 1:
        return f"{numbers[0]}-{numbers[-1]}"
    return ", ".join(map(str, numbers))
