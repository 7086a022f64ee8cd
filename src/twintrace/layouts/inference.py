"""Inference of placements: the part that each tensor of a rank is of the whole.

    said       by the run: placements of a DTensor
    bits       equal on all ranks along an axis of the mesh: a copy
    shapes     beside that of the whole, which the other side has, or which follows from the call: pieces along an axis
    values     a sum, a mean, or copies that differ: the nearest to the other side's value, or to what the call computes

Gradients follow from their values: they have their shape, and what is not cut is a sum. Where ranks share a batch and each takes
the mean loss of its part, each rank's gradients are as many times too large as there are ranks, until they are averaged.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..model.errors import TwintraceError
from ..model.records import Call, Gradient, Role
from ..model.sites import Phase
from ..model.tensors import UNITS, Location, Spec, Tensor
from ..model.values import Nest, TensorRef, Value, tensor_slots
from ..model.values import leaves as leaves_of
from ..operations.sides import inputs_of, outputs_of
from ..store.arrays import as_float, nbytes
from ..store.digest import digest, fingerprint
from ..store.trace import Journal
from .collectives import COLLECTING, Collective, as_function, collective_of
from .merging import Merged
from .meshes import Mesh
from .placements import (
    ADDABLE,
    MEAN,
    REPLICATE,
    SUM,
    Array,
    Part,
    Placements,
    cut_apart,
    put_together,
    read,
    shard,
    size_of_addends,
    whole_shape,
)

SAID = "said by the run"
PIECES = "bit by bit pieces of what all ranks have"
_BLOCKS = 64
"""Most blocks into which an axis is cut before the pieces of a rank are taken from each."""
_NEAR = 0.02
"""Relative error up to which a value is taken for the one that a call computes: bf16 has three digits, and its sums fewer."""
_CLOSER = 4.0
"""Times by which the nearest of several candidates must be nearer than the next where none is near."""


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


@dataclass(frozen=True, slots=True)
class Reference:
    """The other side's tensor beside a group: its shape, and its values as numbers where they were kept."""

    shape: tuple[int, ...]
    values: Callable[[], Any] = lambda: None


class Inference:
    """Placements of the groups of merged calls, found in the order of the calls, and the tensors put together.

    Args:
        journals: of the ranks, in their order.
        merged: their calls.
        mesh: the grid of the ranks.
        references: the other side's tensors, by the number of the group.
        leaves: shape, element type and bits of the other side's tensors that no call made.
    """

    def __init__(
        self,
        journals: Sequence[Journal],
        merged: Merged,
        mesh: Mesh,
        references: Mapping[int, Reference],
        leaves: Collection[tuple[Spec, str | None]] = (),
    ) -> None:
        self._journals, self._merged, self.mesh, self._references = journals, merged, mesh, references
        self.placed: dict[int, Placed] = {}
        self.unplaced: dict[int, str] = {}
        """Groups of which it cannot be told what they are, and why."""
        self.calls: dict[int, Call] = {call.id: call for call in merged.calls}
        """Merged calls by id; collectives with their meaning for the whole, sizes as those of the whole."""
        self._tensors: dict[int, tuple[Tensor, ...]] = {}
        self._wholes: dict[int, Tensor] = {}
        self._held: dict[int, Array] = {}
        self._parameters: set[int] = set()
        self._names: dict[str, int] = {}
        """Parameters of the modules by their names in the model."""
        self._gradients: dict[int, int] = {}
        """Values by the numbers of their gradients."""
        self.averaged: set[int] = set()
        """Axes of the mesh along which the ranks take the mean loss of a part of the batch."""
        self._by_bits: dict[tuple[tuple[str, str | None], ...], int] = {}
        self._indexed = self._seen = 0
        self._known: set[tuple[Spec, str | None]] = set()
        self._leaves = leaves
        self._batch: dict[int, int] = {}
        """Axis along which data is cut, by the axis of the mesh."""

    def run(self) -> None:
        calls = sorted(self._merged.calls, key=lambda call: call.order)
        self._note_roles(calls)
        later: list[Call] = []
        waiting = set(self._gradients)
        for call in calls:
            if call.site.phase is Phase.UPDATE:
                continue
            if waiting.intersection(inputs_of(call).values()):
                later.append(call)
                waiting.update(outputs_of(call).values())
            else:
                self._place_call(call)
        for group, value in self._gradients.items():
            self._place_gradient(group, value)
        for call in later:  # a backward pass that was written by hand, and what is done to gradients before the update
            self._place_call(call)
        for call in calls:
            if call.site.phase is Phase.UPDATE:
                self._place_update(call)
            found = collective_of(call, self.mesh)
            if found is not None:
                self.calls[call.id] = as_function(found, self.placements, self.factor, self.mesh)
        self._leave_out_backward(calls)
        self.unplaced = {group: why for group, why in self.unplaced.items() if group not in self.placed}

    def _leave_out_backward(self, calls: Sequence[Call]) -> None:
        """Takes out a backward pass that was written by hand, as a rule of collectives, and the reduction of gradients before the
        update where it leaves the whole as it is. Gradients are judged where they come back to a value, and where the optimizer
        takes them. What is recomputed in a backward pass has gradients of its own, and stays.
        """
        origin = {gradient: gradient for gradient in self._gradients}
        chains: dict[int, list[Call]] = {}
        for call in calls:
            taken, made = list(inputs_of(call).values()), list(outputs_of(call).values())
            if call.site.phase is Phase.RECOMPUTE and call.parent is None and not call.gradients:
                origin.update((item, item) for item in made)
                self.calls.pop(call.id, None)
            elif call.site.phase is not Phase.UPDATE and len(taken) == len(made) == 1 and taken[0] in origin:
                start = origin.setdefault(made[0], origin[taken[0]])
                chains.setdefault(start, []).append(call)
        for start, chain in chains.items():
            end = next(iter(outputs_of(chain[-1]).values()))
            collects = any(collective_of(call, self.mesh) is not None for call in chain)
            if collects and self._is_same_whole(start, end):
                for call in chain:
                    self.calls.pop(call.id, None)
        taken_at_all = {number for call in self.calls.values() for number in inputs_of(call).values()}
        for call in calls:  # memory that a collective has written to
            made = list(outputs_of(call).values())
            unused = not taken_at_all.intersection(made) and all(number not in self.placed for number in made)
            if call.id in self.calls and not inputs_of(call) and made and unused:
                del self.calls[call.id]
        told = {
            item for call in self.calls.values() for item in (*inputs_of(call).values(), *outputs_of(call).values())
        }
        told.update(gradient.tensor for call in self.calls.values() for gradient in call.gradients)
        self.unplaced = {group: why for group, why in self.unplaced.items() if group in told}

    def _is_same_whole(self, one: int, two: int) -> bool:
        """True if two wholes differ by the rounding of adding them up over the ranks, at most."""
        values, others, allowed = self.values(one), self.values(two), self.slack(one)
        if values is None or others is None or values.shape != others.shape:
            return False
        unit = UNITS.get(self.ranks_of(one)[0].spec.dtype, 0.0)
        bound = unit * (2 * np.abs(values) + (0.0 if allowed is None else allowed))
        return bool(np.all(np.abs(np.asarray(values, np.float64) - others) <= bound))

    # --- what is asked of it ------------------------------------------------------------------------------------------

    def placements(self, group: int) -> Placements | None:
        found = self.placed.get(group)
        return None if found is None else found.placements

    def factor(self, group: int) -> float:
        """Number by which what is put together is scaled."""
        found = self.placed.get(group)
        return 1.0 if found is None else found.factor

    def ranks_of(self, group: int) -> tuple[Tensor, ...]:
        """The tensors of the ranks."""
        if group not in self._tensors:
            numbers = self._merged.groups[group]
            self._tensors[group] = tuple(
                _unwrapped(journal, journal.tensor(number))
                for journal, number in zip(self._journals, numbers, strict=True)
            )
        return self._tensors[group]

    def arrays(self, group: int) -> list[Array] | None:
        """Values of the ranks in their storage type; None where they were not kept."""
        tensors = self.ranks_of(group)
        if any(tensor.payload is None for tensor in tensors):
            return None
        try:
            return [journal.array(tensor) for journal, tensor in zip(self._journals, tensors, strict=True)]
        except (TwintraceError, OSError):
            return None

    def whole(self, group: int) -> Tensor:
        """The tensor put together: its facts are those of the whole."""
        if group not in self._wholes:
            found = self._make_whole(group)
            if group not in self.placed:  # it may be placed later
                return found
            self._wholes[group] = found
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
        found = size_of_addends(arrays, self.ranks_of(group)[0].spec, self.mesh, placed.placements, placed.factor)
        return None if found is None else found * self.mesh.size

    def values(self, group: int) -> Array | None:
        """Values of the whole as numbers; None where it cannot be put together."""
        if group not in self.placed or self.arrays(group) is None:
            return None
        return as_float(self.array(group), self.ranks_of(group)[0].spec.dtype)

    def _make_whole(self, group: int) -> Tensor:
        tensors = self.ranks_of(group)
        first = tensors[0]
        placed = self.placed.get(group)
        facts = {
            key: value for key, value in first.facts.items() if key not in ("placements", "shape", "class", "mesh")
        }
        if placed is None:
            why = self.unplaced.get(group, "what it is of the whole was not asked")
            return replace(
                first, id=group, statistics=None, fingerprint=None, payload=None, missing=why, facts=facts, parts={}
            )
        copies = all(item.part is Part.REPLICATE for item in placed.placements) and placed.factor == 1.0
        if copies:
            return replace(first, id=group, facts=facts, parts={})
        shape = whole_shape([tensor.spec.shape for tensor in tensors], self.mesh, placed.placements)
        assert shape is not None
        spec = Spec(first.spec.dtype, shape)
        bare = replace(
            first, id=group, spec=spec, statistics=None, fingerprint=None, payload=None, facts=facts, parts={}
        )
        if self.arrays(group) is None:
            return replace(bare, missing="the values of the ranks were not kept, so that it cannot be put together")
        found = digest(self.array(group), spec.dtype)
        return replace(
            bare, statistics=found.statistics, fingerprint=found.fingerprint, payload=Location(0, nbytes(spec))
        )

    # --- roles --------------------------------------------------------------------------------------------------------

    def _note_roles(self, calls: Sequence[Call]) -> None:
        for call in calls:
            self._parameters.update(call.parameters.values())
            taken, made = inputs_of(call), outputs_of(call)
            for gradient in call.gradients:
                value = (
                    taken.get(gradient.slot) if gradient.role is Role.INPUT else made.get(gradient.slot, made.get("0"))
                )
                if value is not None:
                    self._gradients.setdefault(gradient.tensor, value)
        self._names = {
            ".".join(filter(None, (call.site.name, name))): number
            for call in reversed(calls)
            for name, number in call.parameters.items()
        }
        for gradient in self._merged.gradients:
            if gradient.slot in self._names:
                self._gradients.setdefault(gradient.tensor, self._names[gradient.slot])

    # --- the forward pass ---------------------------------------------------------------------------------------------

    def _place_call(self, call: Call) -> None:
        for number in inputs_of(call).values():
            if number not in self._gradients:
                self._place_leaf(number)
        made = [number for number in outputs_of(call).values() if number not in self.placed]
        if not made:
            return
        collective = collective_of(call, self.mesh)
        for number in made:
            if collective is not None and self._place_collected(number, collective):
                continue
            reference = self._references.get(number)
            if self._place_plainly(number):
                continue
            computed = self._computed(call) if collective is None else {}
            shape = reference.shape if reference is not None else None
            if number in computed:
                values = computed[number]
                self._place(number, values.shape, functools.partial(_given, values), "its call", call=call)
            elif shape is not None and reference is not None:
                self._place(number, shape, reference.values, "the other side", call=call)
            else:
                self.unplaced.setdefault(
                    number, f"what {call.site} gives on the ranks is not told by its shape: {self._shapes(number)}"
                )

    def _place_collected(self, group: int, collective: Collective) -> bool:
        """Results of a collective: along the axes of its group a reduction and a gathering leave copies, a scattering pieces."""
        before = self.placed.get(collective.taken[0]) if collective.taken else None
        if before is None or collective.axes is None or collective.name not in COLLECTING:
            return False
        scatters = collective.name.startswith("reduce_scatter")
        if scatters and len(collective.axes) > 1:
            return False
        if not scatters and not all(self._same_along(group, axis) for axis in collective.axes):
            return False
        parts = list(before.placements)
        factor = before.factor
        for axis in collective.axes:
            if axis in self.averaged and parts[axis].part is not Part.REPLICATE and factor != 1.0:
                factor *= self.mesh.shape[axis]
            parts[axis] = shard(0) if scatters else REPLICATE
        if whole_shape([tensor.spec.shape for tensor in self.ranks_of(group)], self.mesh, tuple(parts)) is None:
            return False
        self.placed[group] = Placed(tuple(parts), f"by {collective.name}", before.confidence, factor)
        return True

    def _shapes(self, group: int) -> str:
        return " | ".join(dict.fromkeys(str(tensor.spec) for tensor in self.ranks_of(group)))

    def _place_plainly(self, group: int) -> bool:
        """By what the run says, or because all ranks have the same bits."""
        if group in self.placed:
            return True
        said = [self._said(tensor) for tensor in self.ranks_of(group)]
        if said[0] is not None and all(item == said[0] for item in said) and len(said[0]) == len(self.mesh.shape):
            self.placed[group] = Placed(said[0], SAID)
            return True
        if self._same(group) and all(self._same_along(group, axis) for axis in range(len(self.mesh.shape))):
            self.placed[group] = Placed((REPLICATE,) * len(self.mesh.shape), "the same bits on all ranks")
            return True
        return False

    def _bits(self, group: int) -> tuple[tuple[str, str | None], ...] | None:
        found = tuple((str(tensor.spec), tensor.fingerprint) for tensor in self.ranks_of(group))
        return found if all(bits for _, bits in found) else None

    def _note_batch(self, group: int) -> None:
        """Takes note of data of which each rank has a part."""
        if self.placed[group].because != PIECES:  # pieces of what all ranks have are no data of their own
            for axis, item in enumerate(self.placed[group].placements):
                if item.part is Part.SHARD:
                    self._batch.setdefault(axis, item.axis)

    def _place_pieces(self, group: int) -> bool:
        """Pieces that make up, bit by bit, a tensor that all ranks have, or a leaf of the other side."""
        tensors, arrays = self.ranks_of(group), self.arrays(group)
        if arrays is None:
            return False
        shapes = [tensor.spec.shape for tensor in tensors]
        copies = [self._same_along(group, axis) for axis in range(len(self.mesh.shape))]
        choices: list[tuple[int | None, ...]] = [()]
        for copy in copies:
            axes = [None] if copy else list(range(len(shapes[0])))
            choices = [(*choice, axis) for choice in choices for axis in axes]
        for choice in choices:
            parts = tuple(REPLICATE if axis is None else shard(axis) for axis in choice)
            shape = whole_shape(shapes, self.mesh, parts)
            if shape is None:
                continue
            spec = Spec(tensors[0].spec.dtype, shape)
            bits = fingerprint(put_together(arrays, spec, self.mesh, parts))
            if (spec, bits) in self._leaves:
                self.placed[group] = Placed(parts, "bit by bit the other side's")
                return True
            if (spec, bits) in self._copies():
                self.placed[group] = Placed(parts, PIECES)
                return True
        return False

    def _copies(self) -> set[tuple[Spec, str | None]]:
        """Tensors that all ranks have."""
        while self._seen < len(self.placed):
            known = list(self.placed)[self._seen]
            self._seen += 1
            if all(item.part is Part.REPLICATE for item in self.placed[known].placements):
                first = self.ranks_of(known)[0]
                self._known.add((first.spec, first.fingerprint))
        return self._known

    def _place_copy(self, group: int) -> bool:
        """As another group of the same bits on every rank: a tensor that came about unseen, a DTensor's own piece."""
        bits = self._bits(group)
        while self._indexed < len(self.placed):
            known = list(self.placed)[self._indexed]
            self._indexed += 1
            own = self._bits(known)
            if own is not None:
                self._by_bits.setdefault(own, known)
        other = None if bits is None else self._by_bits.get(bits)
        if other is None:
            return False
        self.placed[group] = replace(self.placed[other], because="the same bits as a tensor whose placement is known")
        return True

    @staticmethod
    def _said(tensor: Tensor) -> Placements | None:
        listed = tensor.facts.get("placements")
        if not isinstance(listed, list | tuple):
            return None
        found = [read(str(item)) for item in listed]
        return None if any(item is None for item in found) else tuple(item for item in found if item is not None)

    @property
    def shared(self) -> frozenset[int]:
        """Axes of the mesh along which each rank has a part of the data."""
        return frozenset(self._batch)

    def gradients(self) -> Iterator[tuple[Call, Role, int, int]]:
        """`(call, end, gradient, value)` of every gradient of a merged call."""
        for call in self._merged.calls:
            taken, made = inputs_of(call), outputs_of(call)
            for gradient in call.gradients:
                value = (
                    taken.get(gradient.slot) if gradient.role is Role.INPUT else made.get(gradient.slot, made.get("0"))
                )
                if value is not None:
                    yield call, gradient.role, gradient.tensor, value

    def results_of(self, call: Call) -> Mapping[int, Array]:
        """Results of a merged call for the whole, computed in float64; nothing where that cannot be done."""
        return self._computed(self.calls.get(call.id, call))

    def apart(self, group: int) -> float:
        """Largest relative distance of the copies of the ranks that differ from those of the rest; infinite without values."""
        arrays, dtype = self.arrays(group), self.ranks_of(group)[0].spec.dtype
        odd = self.placed[group].odd
        common = [place for place in range(self.mesh.size) if place not in odd]
        if arrays is None or not common or len({array.shape for array in arrays}) > 1:
            return float("inf")
        values = [as_float(array, dtype) for array in arrays]
        return max(min(_relative(values[place], values[other]) for other in common) for place in odd)

    def is_copy(self, group: int, axis: int) -> bool:
        """True if the ranks have the same bits along an axis of the mesh."""
        return self._same_along(group, axis)

    def _same(self, group: int) -> bool:
        return all(tensor.fingerprint is not None for tensor in self.ranks_of(group))

    def _same_along(self, group: int, axis: int) -> bool:
        tensors = self.ranks_of(group)
        bits = [(str(tensor.spec), tensor.fingerprint or tensor.statistics) for tensor in tensors]
        return all(len({bits[place] for place in line}) == 1 for line in self.mesh.lines(axis))

    def _place_leaf(self, group: int) -> None:
        if group in self.placed or (group in self.unplaced and group not in self._references):
            return
        reference = self._references.get(group)
        if self._place_plainly(group):
            return
        if self._place_copy(group) or self._place_pieces(group):
            if group not in self._parameters and not self.ranks_of(group)[0].requires_grad:
                self._note_batch(group)
            return
        if reference is not None:
            self._place(group, reference.shape, reference.values, "the other side")
        elif self._batch:  # data that comes with other data is cut as that is
            parts = tuple(
                shard(self._batch[axis]) if axis in self._batch and not self._same_along(group, axis) else REPLICATE
                for axis in range(len(self.mesh.shape))
            )
            if whole_shape([tensor.spec.shape for tensor in self.ranks_of(group)], self.mesh, parts) is not None:
                self.placed[group] = Placed(parts, "cut as the other data", 0.7)
        if group in self.placed and group not in self._parameters and not self.ranks_of(group)[0].requires_grad:
            self._note_batch(group)
        if group not in self.placed:
            self.unplaced[group] = (
                f"it is another on each rank ({self._shapes(group)}), and nothing tells of which whole"
            )

    def _place(
        self,
        group: int,
        shape: tuple[int, ...],
        reference: Callable[[], Any],
        beside: str,
        *,
        call: Call | None = None,
    ) -> None:
        """Placements that give a whole of this shape; among several the nearest to the reference. `call` made it, if one did."""
        leaf = call is None
        tensors = self.ranks_of(group)
        shapes = [tensor.spec.shape for tensor in tensors]
        copies = [self._same_along(group, axis) for axis in range(len(self.mesh.shape))]
        choices = []
        for axes in itertools.product((None, *range(len(shape))), repeat=len(self.mesh.shape)):
            parts = tuple(REPLICATE if axis is None else shard(axis) for axis in axes)
            if whole_shape(shapes, self.mesh, parts) == tuple(shape):
                cut_copies = sum(axis is not None and copies[place] for place, axis in enumerate(axes))
                uncut = sum(axis is None and not copies[place] for place, axis in enumerate(axes))
                choices.append(((cut_copies, uncut), parts))
        if not choices:
            spec = Spec(tensors[0].spec.dtype, tuple(shape))
            self.unplaced[group] = f"the pieces of the ranks ({self._shapes(group)}) do not make up {spec} of {beside}"
            return
        best = min(rank for rank, _ in choices)
        candidates: list[Placements] = []
        for rank, parts in choices:
            if rank == best:
                open_axes = [axis for axis, item in enumerate(parts) if item == REPLICATE and not copies[axis]]
                candidates += self._filled(parts, open_axes, call, tensors[0].spec.dtype)
        candidates = list(dict.fromkeys(candidates))
        if len(candidates) == 1 and not best[1]:
            parts = candidates[0]
            near = self._distance(group, parts, reference) if any(item.part is Part.SHARD for item in parts) else 0.0
            order: tuple[int, ...] = ()
            if near is not None and near > _NEAR:
                blocks = self._in_blocks(group, parts, reference, near)
                if blocks is not None:
                    self.placed[group] = Placed(blocks, f"shape and values beside {beside}", 0.9)
                    return
                order = self._order(group, parts, reference) if leaf else ()
            self.placed[group] = Placed(parts, f"shape beside {beside}", order=order)
            return
        if len(candidates) == 1:
            odd = self._odd(group, candidates[0], copies)
            self.placed[group] = Placed(candidates[0], f"as what it is made of, shape beside {beside}", odd=odd)
            return
        measured = [(self._distance(group, parts, reference), parts) for parts in candidates]
        if any(distance is None for distance, _ in measured):
            self.unplaced[group] = (
                "the ranks have values of the same shape that differ, and without values a sum is not told from copies"
            )
            return
        told = sorted(((distance or 0.0), place) for place, (distance, _) in enumerate(measured))
        nearest, place = told[0]
        parts = measured[place][1]
        sure = nearest <= _NEAR and (len(told) == 1 or told[1][0] > nearest)
        odd = self._odd(group, parts, copies)
        self.placed[group] = Placed(parts, f"values beside {beside}", 1.0 if sure else 0.5, odd=odd)
        if nearest <= _NEAR:
            self.averaged.update(axis for axis, item in enumerate(parts) if item == MEAN)

    def _filled(self, parts: Placements, open_axes: Sequence[int], call: Call | None, dtype: str) -> list[Placements]:
        """The placements with what the ranks may have along axes where they differ and are not cut.

        Of copies come copies, of pieces parts of a sum; where each rank has a part of the data, also of a mean.
        """
        kinds = []
        for axis in open_axes:
            taken = set()
            for number in inputs_of(call).values() if call is not None else ():
                own = self.placed.get(number)
                taken.add(None if own is None else own.placements[axis].part)
            mean = (MEAN,) if axis in self._batch else ()
            if call is None or dtype not in ADDABLE or taken == {Part.REPLICATE}:
                kinds.append((REPLICATE,))
            elif Part.SHARD in taken:
                kinds.append((SUM, *mean))
            else:
                kinds.append((REPLICATE, SUM, *mean))
        found = []
        for chosen in itertools.product(*kinds):
            filled = list(parts)
            for axis, kind in zip(open_axes, chosen, strict=True):
                filled[axis] = kind
            found.append(tuple(filled))
        return found

    def _distance(self, group: int, parts: Placements, reference: Callable[[], Any]) -> float | None:
        """Relative distance of the whole from the reference; None where either has no values."""
        arrays, wanted = self.arrays(group), reference()
        if arrays is None or wanted is None:
            return None
        spec = self.ranks_of(group)[0].spec
        got = as_float(put_together(arrays, spec, self.mesh, parts), spec.dtype)
        return _relative(got, wanted)

    def _in_blocks(
        self, group: int, parts: Placements, reference: Callable[[], Any], plain: float
    ) -> Placements | None:
        """The same cut from several blocks of the axis, where that is nearer."""
        axes = [axis for axis, item in enumerate(parts) if item.part is Part.SHARD]
        if len(axes) != 1:
            return None
        item = parts[axes[0]]
        local = min(tensor.spec.shape[item.axis] for tensor in self.ranks_of(group))
        best, found = plain, None
        for blocks in range(2, min(local, _BLOCKS) + 1):
            if local % blocks:
                continue
            tried = tuple(shard(item.axis, blocks) if axis == axes[0] else other for axis, other in enumerate(parts))
            distance = self._distance(group, tried, reference)
            if distance is not None and distance * _CLOSER < best:
                best, found = distance, tried
        return found if best <= _NEAR else None

    def _order(self, group: int, parts: Placements, reference: Callable[[], Any]) -> tuple[int, ...]:
        """Which piece of the reference each rank has, where they have the pieces in another order; else nothing."""
        arrays = self.arrays(group)
        pieces = cut_apart(np.asarray(reference()), self.mesh, parts)
        if arrays is None or pieces is None:
            return ()
        dtype = self.ranks_of(group)[0].spec.dtype
        found: list[int] = []
        for array in arrays:
            values = as_float(array, dtype)
            same = [place for place, piece in enumerate(pieces) if np.array_equal(values, piece)]
            if not same:
                return ()
            found.append(len(found) if len(found) in same else same[0])
        return tuple(found) if found != list(range(len(found))) else ()

    def _odd(self, group: int, parts: Placements, copies: Sequence[bool]) -> tuple[int, ...]:
        """Ranks whose copy differs from that of most, where copies differ."""
        axes = [axis for axis, item in enumerate(parts) if item.part is Part.REPLICATE and not copies[axis]]
        tensors = self.ranks_of(group)
        found: list[int] = []
        for axis in axes:
            for line in self.mesh.lines(axis):
                bits = [tensors[place].fingerprint for place in line]
                common = max(bits, key=lambda one: (bits.count(one), -bits.index(one)))
                found += [place for place, one in zip(line, bits, strict=True) if one != common]
        return tuple(sorted(set(found)))

    def _computed(self, call: Call) -> Mapping[int, Array]:
        """Results of a merged call for the whole, in float64, by their groups; nothing where it cannot be computed.

        Sizes among its arguments may be those of a piece: each is tried as that of the whole where the call fails, or gives what no
        pieces make up.
        """
        from ..operations.evaluation import NotRecomputable, Values, run
        from ..operations.telling import meaning_of
        from ..operations.traits import traits_of

        assumed: dict[int, Spec] = {}

        def spec(group: int) -> Spec:
            return assumed.get(group) or self.whole(group).spec

        if any(number not in self.placed for number in inputs_of(call).values()):
            return {}
        framework = self._journals[0].header.framework
        values = Values(self.values, spec)
        made = [number for number in outputs_of(call).values() if number not in self.placed]
        shapes = self._possible_shapes(made[0]) if made else [()]
        for tried, shape in itertools.product(self._with_whole_sizes(call), shapes):
            if made:
                assumed[made[0]] = replace(self.ranks_of(made[0])[0].spec, shape=shape)  # a view is read off its result
            meaning = meaning_of(tried, framework, spec)
            if meaning is None or traits_of(meaning).random:
                continue
            try:
                results = {number: np.asarray(item.detach().numpy()) for number, item in run([meaning], values).items()}
            except NotRecomputable:
                continue
            if results and all(tuple(item.shape) in self._possible_shapes(number) for number, item in results.items()):
                self.calls[call.id] = tried
                return results
        return {}

    def _possible_shapes(self, group: int) -> list[tuple[int, ...]]:
        """Shapes of all wholes that the tensors of the ranks may be pieces of."""
        shapes = [tensor.spec.shape for tensor in self.ranks_of(group)]
        found: dict[tuple[int, ...], None] = {}
        for axes in itertools.product((None, *range(len(shapes[0]))), repeat=len(self.mesh.shape)):
            parts = tuple(REPLICATE if axis is None else shard(axis) for axis in axes)
            shape = whole_shape(shapes, self.mesh, parts)
            if shape is not None:
                found[shape] = None
        return list(found)

    def _with_whole_sizes(self, call: Call) -> list[Call]:
        """The call, then with one whole number among its arguments times the length of an axis of the mesh."""
        found = [call]
        lengths = sorted({length for length in (*self.mesh.shape, self.mesh.size) if length > 1})

        def changed(value: Value, wanted: int, factor: int, count: list[int]) -> Value:
            if isinstance(value, Nest):
                return Nest(value.kind, tuple((key, changed(item, wanted, factor, count)) for key, item in value.items))
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                count[0] += 1
                return value * factor if count[0] - 1 == wanted else value
            return value

        numbers = [0]
        for value in (*call.args, *call.kwargs.values()):
            changed(value, -1, 1, numbers)
        for place, factor in itertools.product(range(min(numbers[0], 8)), lengths):
            count = [0]
            args = tuple(changed(value, place, factor, count) for value in call.args)
            kwargs = {name: changed(value, place, factor, count) for name, value in call.kwargs.items()}
            found.append(replace(call, args=args, kwargs=kwargs))
        return found

    # --- the backward pass --------------------------------------------------------------------------------------------

    def _place_gradient(self, group: int, value: int) -> None:
        if group in self.placed or value not in self.placed:
            return
        shape = self.whole(value).spec.shape
        if self._place_plainly(group):
            placed = self.placed[group]
            if placed.because != SAID:
                return
        else:
            own = self.placed[value].placements
            parts = tuple(
                REPLICATE
                if self._same_along(group, axis) and item.part is not Part.SHARD
                else item
                if item.part is Part.SHARD
                else SUM
                for axis, item in enumerate(own)
            )
            if whole_shape([tensor.spec.shape for tensor in self.ranks_of(group)], self.mesh, parts) != shape:
                self.unplaced[group] = (
                    f"the gradients of the ranks ({self._shapes(group)}) do not make up that of the value"
                )
                return
            self.placed[group] = Placed(parts, "as its value")
            placed = self.placed[group]
        factor = 1.0
        for axis in self.averaged:
            if placed.placements[axis].part is not Part.REPLICATE:
                factor /= self.mesh.shape[axis]
        self.placed[group] = replace(placed, factor=factor)

    def _place_update(self, call: Call) -> None:
        """Parameters, gradients and state of an optimizer: each is what its parameter is, and nothing is a sum any more."""
        slots = dict(tensor_slots(call.args, call.kwargs))
        made = {slot: leaf.id for slot, leaf in leaves_of(call.output) if isinstance(leaf, TensorRef)}
        parameters = {slot.rpartition(".")[2]: number for slot, number in slots.items() if slot.startswith("0.")}
        for slot, number in (*slots.items(), *made.items()):
            if number in self.placed or self._place_plainly(number):
                continue
            place = next(
                (
                    part
                    for part in slot.split(".")
                    if part.isdigit() and part in parameters and not slot.startswith("0.")
                ),
                None,
            )
            owner = parameters.get(place) if place is not None else None
            if owner is None or owner not in self.placed:
                self._place_leaf(number)
                continue
            parts = self.placed[owner].placements
            shape = whole_shape([tensor.spec.shape for tensor in self.ranks_of(number)], self.mesh, parts)
            if shape is None:
                self.unplaced[number] = f"it is another on each rank ({self._shapes(number)})"
                continue
            copies = [self._same_along(number, axis) for axis in range(len(self.mesh.shape))]
            self.placed[number] = Placed(parts, "as its parameter", odd=self._odd(number, parts, copies))
        self._name_parameters(call, slots)

    def _name_parameters(self, call: Call, slots: Mapping[str, int]) -> None:
        """Parameters that an optimizer takes in pieces, and modules as a whole, are one tensor: it gets the modules' number."""
        if call.id not in self.calls:
            return
        held: dict[tuple[Spec, str | None], list[int]] = {}
        for number in dict.fromkeys(item for other in self._merged.calls for item in other.parameters.values()):
            tensor = self.whole(number)
            if tensor.fingerprint is not None:
                held.setdefault((tensor.spec, tensor.fingerprint), []).append(number)
        taken = set(slots.values())
        same: dict[int, int] = {}
        for slot, number in slots.items():
            tensor = self.whole(number)
            candidates = held.get((tensor.spec, tensor.fingerprint), [])
            if slot.startswith("0.") and number not in self._parameters and candidates:
                free = [item for item in candidates if item not in taken and item not in same.values()]
                if free:  # weights of the same bits in their order
                    same[number] = free[0]
        if same:
            args = tuple(_renumbered(value, same) for value in call.args)
            self.calls[call.id] = replace(self.calls[call.id], args=args)
        told = {gradient.slot for gradient in self._merged.gradients}
        names = {number: name for name, number in self._names.items()}
        for slot, number in slots.items():  # the gradients of the pieces are those that the modules' parameters get
            gradient, name = slots.get(f"kw.gradients.{slot.removeprefix('0.')}"), names.get(same.get(number, -1))
            if slot.startswith("0.") and gradient is not None and name is not None and name not in told:
                first = self._before_changes(gradient)
                self._merged.gradients.append(Gradient(Role.PARAMETER, name, first, order=call.order))

    def _before_changes(self, gradient: int) -> int:
        """A gradient as it was before calls that take nothing else changed it: scaled it, clipped it."""
        makers = {self._bits(number): call for call in self._merged.calls for number in outputs_of(call).values()}
        makers.pop(None, None)
        seen = {gradient}
        while (maker := makers.get(self._bits(gradient))) is not None:
            taken = list(inputs_of(maker).values())
            if len(taken) != 1 or taken[0] in seen or taken[0] not in self.placed:
                break
            if self.whole(taken[0]).spec != self.whole(gradient).spec:
                break
            gradient = taken[0]
            seen.add(gradient)
        return gradient


def _renumbered(value: Value, numbers: Mapping[int, int]) -> Value:
    """A value with other numbers for some of its tensors."""
    if isinstance(value, Nest):
        return Nest(value.kind, tuple((key, _renumbered(item, numbers)) for key, item in value.items))
    return TensorRef(numbers.get(value.id, value.id)) if isinstance(value, TensorRef) else value


def _given(values: Array) -> Array:
    return values


def _unwrapped(journal: Journal, tensor: Tensor) -> Tensor:
    """The tensor inside one that only wraps it: the result of a collective that may be waited for later."""
    if len(tensor.parts) != 1 or tensor.facts.get("layout") != "wrapper":
        return tensor
    inner = journal.tensor(next(iter(tensor.parts.values())))
    return replace(inner, producer=tensor.producer, requires_grad=tensor.requires_grad)


def _relative(got: Array, wanted: Array) -> float:
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
