"""Tensors of the ranks by the number of their group, and the tensors that are put together of them, as they are asked for.

wholes.ranks_of(7)       the tensors of the ranks
wholes.whole(7)          the tensor put together: its facts are those of the whole
wholes.values(7)         its values as numbers
wholes.slack(7)          bound on the roundings of adding it up
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..model.errors import TwintraceError
from ..model.tensors import Location, Spec, Tensor
from ..store.arrays import as_float, nbytes
from ..store.digest import digest
from ..store.trace import Journal
from .merging import Merged
from .meshes import Mesh
from .placements import Array, Part, Placements, put_together, size_of_addends, whole_shape

SAID = "said by the run"
DECLARED = "said by the mapping file"
_OF_RANKS = ("placements", "shape", "class", "mesh")
"""Facts of a rank's tensor that the whole does not have."""


@dataclass(frozen=True, slots=True)
class Placed:
    """Placements of one group of tensors, and where they come from."""

    placements: Placements
    because: str
    confidence: float = 1.0
    factor: float = 1.0
    odd: tuple[int, ...] = ()
    """Positions of ranks whose copy differs from that of most."""
    order: tuple[int, ...] = ()
    """Of pieces that lie in another order than the other side's: which piece each rank has."""

    @property
    def is_copy(self) -> bool:
        """True if the whole is what each rank has."""
        return all(item.part is Part.REPLICATE for item in self.placements) and self.factor == 1.0


@dataclass(frozen=True, slots=True)
class Reference:
    """The other side's tensor beside a group: its shape, and its values as numbers where they were kept."""

    shape: tuple[int, ...]
    values: Callable[[], Any] = lambda: None


class Wholes:
    """Groups of tensors of the ranks, with their placements as far as these are known.

    Args:
        journals: of the ranks, in their order.
        merged: their calls.
        mesh: the grid of the ranks.
    """

    def __init__(self, journals: Sequence[Journal], merged: Merged, mesh: Mesh) -> None:
        self.journals, self.merged, self.mesh = journals, merged, mesh
        self.placed: dict[int, Placed] = {}
        self.unplaced: dict[int, str] = {}
        """Groups of which it cannot be told what they are, and why."""
        self._tensors: dict[int, tuple[Tensor, ...]] = {}
        self._wholes: dict[int, Tensor] = {}

    def placements(self, group: int) -> Placements | None:
        placed = self.placed.get(group)
        return None if placed is None else placed.placements

    def factor(self, group: int) -> float:
        """Number by which what is put together is scaled."""
        placed = self.placed.get(group)
        return 1.0 if placed is None else placed.factor

    def ranks_of(self, group: int) -> tuple[Tensor, ...]:
        """The tensors of the ranks."""
        if group not in self._tensors:
            self._tensors[group] = tuple(self.member(*member) for member in self.merged.groups[group])
        return self._tensors[group]

    def member(self, place: int, number: int) -> Tensor:
        """One tensor of one rank; of no part of a sum a tensor that has neither bits nor values of its own."""
        if place < 0:
            like = self.member(~place, number)
            return replace(like, fingerprint=None, statistics=None)
        journal = self.journals[place]
        # The tensor inside one that only wraps it: the result of a collective that may be waited for later.
        tensor = journal.tensor(number)
        if len(tensor.parts) != 1 or tensor.facts.get("layout") != "wrapper":
            return tensor
        inner = journal.tensor(next(iter(tensor.parts.values())))
        return replace(inner, producer=tensor.producer, requires_grad=tensor.requires_grad)

    def arrays(self, group: int) -> list[Array] | None:
        """Values of the ranks in their storage type; None where they were not kept."""
        tensors = self.ranks_of(group)
        if any(tensor.payload is None for tensor in tensors):
            return None
        places = [place for place, _ in self.merged.groups[group]]
        try:
            return [
                self.journals[place].array(tensor) if place >= 0 else np.zeros_like(self.journals[~place].array(tensor))
                for place, tensor in zip(places, tensors, strict=True)
            ]
        except (TwintraceError, OSError):
            return None

    def shapes(self, group: int) -> list[tuple[int, ...]]:
        return [tensor.spec.shape for tensor in self.ranks_of(group)]

    def told_shapes(self, group: int) -> str:
        return " | ".join(dict.fromkeys(str(tensor.spec) for tensor in self.ranks_of(group)))

    def whole(self, group: int) -> Tensor:
        """The tensor put together: its facts are those of the whole."""
        if group not in self._wholes:
            whole = self._make_whole(group)
            if group not in self.placed:  # it may be placed later
                return whole
            self._wholes[group] = whole
        return self._wholes[group]

    def array(self, group: int) -> Array:
        placed, arrays = self.placed[group], self.arrays(group)
        if arrays is None:
            raise TwintraceError("the values of a rank were not kept")
        return put_together(arrays, self.ranks_of(group)[0].spec, self.mesh, placed.placements, placed.factor)

    def slack(self, group: int) -> Array | None:
        """Bound on the roundings of what was added up over the ranks, in units: each of them once, and each of the additions."""
        placed = self.placed.get(group)
        arrays = None if placed is None else self.arrays(group)
        if placed is None or arrays is None:
            return None
        size = size_of_addends(arrays, self.ranks_of(group)[0].spec, self.mesh, placed.placements, placed.factor)
        return None if size is None else size * self.mesh.size

    def values(self, group: int) -> Array | None:
        """Values of the whole as numbers; None where it cannot be put together."""
        if group not in self.placed or self.arrays(group) is None:
            return None
        return as_float(self.array(group), self.ranks_of(group)[0].spec.dtype)

    def _make_whole(self, group: int) -> Tensor:
        tensors = self.ranks_of(group)
        first = tensors[0]
        placed = self.placed.get(group)
        facts = {key: value for key, value in first.facts.items() if key not in _OF_RANKS}
        if placed is None:
            why = self.unplaced.get(group, "what it is of the whole was not asked")
            return replace(
                first, id=group, statistics=None, fingerprint=None, payload=None, missing=why, facts=facts, parts={}
            )
        if placed.is_copy:
            return replace(first, id=group, facts=facts, parts={})
        shape = whole_shape(self.shapes(group), self.mesh, placed.placements)
        assert shape is not None
        spec = Spec(first.spec.dtype, shape)
        bare = replace(
            first, id=group, spec=spec, statistics=None, fingerprint=None, payload=None, facts=facts, parts={}
        )
        if self.arrays(group) is None:
            return replace(bare, missing="the values of the ranks were not kept, so that it cannot be put together")
        digested = digest(self.array(group), spec.dtype)
        return replace(
            bare, statistics=digested.statistics, fingerprint=digested.fingerprint, payload=Location(0, nbytes(spec))
        )

    # --- the ranks beside each other --------------------------------------------------------------------------------------

    def bits(self, group: int) -> tuple[tuple[str, str | None], ...] | None:
        """Shapes, types and bits on all ranks; None where some are not known."""
        bits_of_ranks = tuple((str(tensor.spec), tensor.fingerprint) for tensor in self.ranks_of(group))
        return bits_of_ranks if all(bits for _, bits in bits_of_ranks) else None

    def is_copy(self, group: int, axis: int) -> bool:
        """True if the ranks have the same bits along an axis of the mesh."""
        bits = [(str(tensor.spec), tensor.fingerprint or tensor.statistics) for tensor in self.ranks_of(group)]
        return all(len({bits[place] for place in line}) == 1 for line in self.mesh.lines(axis))

    def copies(self, group: int) -> list[bool]:
        """`is_copy` for each axis of the mesh."""
        return [self.is_copy(group, axis) for axis in range(len(self.mesh.shape))]

    def odd_ranks(self, group: int, parts: Placements) -> tuple[int, ...]:
        """Positions of ranks whose copy differs from that of most, where copies differ."""
        copies, tensors = self.copies(group), self.ranks_of(group)
        odd: list[int] = []
        for axis, item in enumerate(parts):
            if item.part is not Part.REPLICATE or copies[axis]:
                continue
            for line in self.mesh.lines(axis):
                bits = [tensors[place].fingerprint for place in line]
                common = max(bits, key=lambda one: (bits.count(one), -bits.index(one)))
                odd += [place for place, one in zip(line, bits, strict=True) if one != common]
        return tuple(sorted(set(odd)))

    def apart(self, group: int) -> float:
        """Largest relative distance of the copies of the ranks that differ from those of the rest; infinite without values."""
        arrays, dtype = self.arrays(group), self.ranks_of(group)[0].spec.dtype
        odd = self.placed[group].odd
        common = [place for place in range(self.mesh.size) if place not in odd]
        if arrays is None or not common or len({array.shape for array in arrays}) > 1:
            return float("inf")
        values = [as_float(array, dtype) for array in arrays]
        return max(min(relative(values[place], values[other]) for other in common) for place in odd)


def relative(got: Array, wanted: Array) -> float:
    """Relative distance of two arrays of one shape, over the elements that are finite in both."""
    wanted = np.asarray(wanted)
    if got.shape != wanted.shape:
        return float("inf")
    with np.errstate(invalid="ignore", over="ignore"):  # NaN, infinities and memory that nobody has written to
        one = np.asarray(got, np.complex128 if got.dtype.kind == "c" else np.float64).reshape(-1)
        two = np.asarray(wanted, one.dtype).reshape(-1)
        finite = np.isfinite(one) & np.isfinite(two)
        size = float(np.linalg.norm(two[finite]))
        gap = float(np.linalg.norm(one[finite] - two[finite]))
    return gap / size if size else (0.0 if not gap else float("inf"))
