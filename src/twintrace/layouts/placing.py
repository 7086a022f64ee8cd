"""Placements of one group of tensors: as the run says, by bits, or the nearest to a reference among those that fit its shape.

declared   by the user, in the mapping file
said       by the run: placements of a DTensor
bits       equal on all ranks along an axis of the mesh: a copy
shapes     beside that of the whole, which the other side has, or which follows from the call: pieces along an axis
values     a sum, a mean, or copies that differ: the nearest to the other side's value, or to what the call computes
"""

from __future__ import annotations

import fnmatch
import functools
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..model.errors import UsageError
from ..model.pairs import Declared
from ..model.records import Call
from ..model.sites import Kind
from ..model.tensors import Spec, Tensor
from ..model.words import dotted
from ..operations.sides import inputs_of, outputs_of
from ..store.arrays import as_float
from ..store.digest import fingerprint
from ..store.trace import Journal
from .candidates import NEAR, distance, fitting, in_blocks, order_of, sharded
from .computing import computed
from .merging import Merged
from .meshes import Mesh
from .placements import (
    ADDABLE,
    MEAN,
    REPLICATE,
    SUM,
    Array,
    Part,
    Placement,
    Placements,
    put_together,
    read,
    shard,
    told,
    whole_shape,
)
from .wholes import DECLARED, SAID, Placed, Reference, Wholes, relative

ITS_CALL = "its call"
NUMBERED_ANEW = "each rank holds another parameter there: its modules are numbered anew on each rank"
_NAMED = "parameter"
"""Fact of a tensor that is a parameter, in frameworks that name parameters."""
PIECES = "bit by bit pieces of what all ranks have"


class Placing(Wholes):
    """Groups of tensors that are placed one by one.

    Args:
        journals: of the ranks, in their order.
        merged: their calls.
        mesh: the grid of the ranks.
        references: the other side's tensors, by the number of the group.
        leaves: shape, element type and bits of the other side's tensors that no call made.
        losses: numbers at which the other side's backward pass begins.
        known: placements of parameters by their names in the model, where nothing else tells them.
        declared: placements that the user says.
        strange: shapes of parameters of the other side whose names no rank has.
    """

    def __init__(
        self,
        journals: Sequence[Journal],
        merged: Merged,
        mesh: Mesh,
        references: Mapping[int, Reference],
        leaves: Collection[tuple[Spec, str | None]] = (),
        losses: Sequence[float] = (),
        known: Mapping[str, Placements] | None = None,
        declared: Declared | None = None,
        strange: Collection[Spec] = (),
    ) -> None:
        super().__init__(journals, merged, mesh)
        self._losses, self._before = losses, known or {}
        self._user, self._strange = declared or Declared(), strange
        self._declared: dict[int, tuple[str, Placements]] = {}
        """Groups of which the user says the placement: the pattern that fits, and what it says."""
        self._references, self._leaves = references, leaves
        self.calls: dict[int, Call] = {call.id: call for call in merged.calls}
        """Merged calls by id; collectives with their meaning for the whole, sizes as those of the whole."""
        self.unproven: set[int] = set()
        """Calls whose results, put together, are not what the call computes for the whole."""
        self._parameters: set[int] = set()
        self._updated: set[int] = set()
        """Parameters as an optimizer takes them."""
        self._names: dict[str, int] = {}
        """Parameters of the modules by their names in the model."""
        self._gradients: dict[int, list[int]] = {}
        """Values by the numbers of their gradients: what a call hands on has the same gradient before and behind it."""
        self._means: set[int] = set()
        """Axes of the mesh along which the ranks take the mean of a part of the batch."""
        self._summed: set[int] = set()
        """Axes along which the losses of the ranks add up to that of the whole: each was divided by their number."""
        self._dropped: set[int] = set()
        """Calls that do nothing to the whole."""
        self._made: set[int] = set()
        """Groups that calls have made."""
        self._ends: set[int] = set()
        """Numbers at which the backward pass begins."""
        self._by_bits: dict[tuple[tuple[str, str | None], ...], int] = {}
        self._indexed = self._seen = 0
        self._known: set[tuple[Spec, str | None]] = set()
        self._batch: dict[int, int] = {}
        """Axis along which data is cut, by the axis of the mesh."""

    @property
    def averaged(self) -> set[int]:
        """Axes of the mesh along which each rank's loss is the mean of a part of the batch, so that its gradients are too large."""
        return self._means - self._summed

    @property
    def shared(self) -> frozenset[int]:
        """Axes of the mesh along which each rank has a part of the data."""
        return frozenset(self._batch)

    def parameter_names(self) -> dict[int, str]:
        """Names in the model of the parameters, by their numbers."""
        return {number: name for name, number in self._names.items()}

    def results_of(self, call: Call) -> Mapping[int, Array]:
        """Results of a merged call for the whole, computed in float64; nothing where that cannot be done."""
        results, done = computed(self, self.calls.get(call.id, call))
        if call.id in self.calls:
            self.calls[call.id] = done
        return results

    def _place_plainly(self, group: int) -> bool:
        """By what the user or the run says, or because all ranks have the same bits."""
        if group in self.placed or self._place_declared(group):
            return True
        said = [self._said(tensor) for tensor in self.ranks_of(group)]
        if said[0] is not None and all(item == said[0] for item in said) and len(said[0]) == len(self.mesh.shape):
            self.placed[group] = Placed(said[0], SAID)
            return True
        if self.bits(group) is not None and all(self.copies(group)):
            self.placed[group] = Placed((REPLICATE,) * len(self.mesh.shape), "the same bits on all ranks")
            return True
        return False

    def _note_declared(self, calls: Iterable[Call]) -> None:
        """Takes note of the parameters and results that the user's patterns fit; of several patterns the last counts."""
        names: dict[str, list[int]] = {}
        for call in calls:
            site = call.site
            for name, number in (*call.parameters.items(), *call.buffers.items()):
                names.setdefault(dotted(site.name, name), []).append(number)
            made = list(outputs_of(call).values())
            names.setdefault(str(site), []).extend(made)
            if site.kind is Kind.MODULE and site.name:
                names.setdefault(site.name, []).extend(made)
        for pattern, texts in self._user.tensors.items():
            parts = tuple(item for item in map(read, texts) if item is not None)
            if len(parts) != len(self.mesh.rank_axes):
                raise UsageError(
                    f"placements: {pattern}: {', '.join(texts)}: expected one placement for each axis of the mesh of the ranks, "
                    f"which is {self.mesh}."
                )
            for name, groups in names.items():
                if fnmatch.fnmatchcase(name, pattern):
                    self._declared |= dict.fromkeys(groups, (pattern, parts))

    def _place_declared(self, group: int) -> bool:
        """As the user says. Along the axis of the micro-batches copies are copies, and pieces lie as those of the data."""
        if group not in self._declared:
            return False
        pattern, parts = self._declared[group]
        if self.mesh.micro:
            axis = len(self.mesh.shape) - 1
            copy = self.is_copy(group, axis)
            if not copy and axis not in self._batch:
                return False
            parts = (*parts, REPLICATE if copy else shard(self._batch[axis]))
        if whole_shape(self.shapes(group), self.mesh, parts) is None:
            raise UsageError(
                f"placements: {pattern}: {told(parts)} does not fit the tensors of the ranks, {self.told_shapes(group)}."
            )
        self.placed[group] = Placed(parts, DECLARED, odd=self.odd_ranks(group, parts))
        self._means.update(axis for axis, item in enumerate(parts) if item == MEAN)
        return True

    @staticmethod
    def _said(tensor: Tensor) -> Placements | None:
        listed = tensor.facts.get("placements")
        if not isinstance(listed, list | tuple):
            return None
        placements = [read(str(item)) for item in listed]
        known = tuple(item for item in placements if item is not None)
        return known if len(known) == len(placements) else None

    def _place_pieces(self, group: int) -> bool:
        """Pieces that make up, bit by bit, a tensor that all ranks have, or a leaf of the other side."""
        tensors, arrays = self.ranks_of(group), self.arrays(group)
        if arrays is None:
            return False
        copies = self.copies(group)
        for parts, shape in sharded(self, group):
            if any((item == REPLICATE) != copy for item, copy in zip(parts, copies, strict=True)):
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

    def _is_copy_of_unplaced(self, group: int) -> bool:
        """True if the ranks have the bits of what a call made that could not be placed: what a function of the user's hands out."""
        bits = self.bits(group)
        return bits is not None and any(self.bits(other) == bits for other in self.unplaced if other in self._made)

    def _is_of_other_modules(self, group: int) -> bool:
        """True if what has one name on the ranks may be several parameters of the other side, whose names no rank has: experts that
        each rank counts from nought. Copies that differ are told from those by nothing.
        """
        spec, reference = self.ranks_of(group)[0].spec, self._references.get(group)
        is_parameter = group in self._parameters or group in self._updated
        alike = reference is None or reference.shape == spec.shape
        return is_parameter and spec in self._strange and alike and not any(self.copies(group))

    def _place_copy(self, group: int) -> bool:
        """As another group of the same bits on every rank: a tensor that came about unseen, a DTensor's own piece."""
        bits = self.bits(group)
        while self._indexed < len(self.placed):
            known = list(self.placed)[self._indexed]
            self._indexed += 1
            own = self.bits(known)
            if own is not None:
                self._by_bits.setdefault(own, known)
        other = None if bits is None else self._by_bits.get(bits)
        if other is None:
            return False
        self.placed[group] = replace(self.placed[other], because="the same bits as a tensor whose placement is known")
        return True

    def _is_data(self, group: int) -> bool:
        """True for what no parameter is. In MindSpore every tensor says that it requires a gradient, and parameters have names."""
        if group in self._parameters:
            return False
        tensor = self.ranks_of(group)[0]
        return not tensor.requires_grad or (self._names_parameters and _NAMED not in tensor.facts)

    @functools.cached_property
    def _names_parameters(self) -> bool:
        """True if the run itself says which tensors are parameters."""
        return any(_NAMED in self.ranks_of(group)[0].facts for group in self._parameters)

    def _note_batch(self, group: int) -> None:
        """Takes note of data of which each rank has a part."""
        if self.placed[group].because != PIECES:  # pieces of what all ranks have are no data of their own
            for axis, item in enumerate(self.placed[group].placements):
                if item.part is Part.SHARD:
                    self._batch.setdefault(axis, item.axis)

    def _place_leaf(self, group: int) -> None:
        if group in self.placed or group in self._made or (group in self.unplaced and group not in self._references):
            return
        reference = self._references.get(group)
        if self._place_plainly(group):
            return
        if self._place_copy(group) or self._place_pieces(group):
            if self._is_data(group):
                self._note_batch(group)
            return
        if self._is_copy_of_unplaced(group):
            self.unplaced[group] = "it is a copy of what cannot be placed"
            return
        if self._is_of_other_modules(group):
            self.unplaced[group] = NUMBERED_ANEW
            return
        known = self._before.get(self.parameter_names().get(group, ""))
        if reference is not None:
            self._place(group, reference.shape, reference.values, "the other side")
        elif known is not None and whole_shape(self.shapes(group), self.mesh, known) is not None:
            self.placed[group] = Placed(known, "as in the step before", odd=self.odd_ranks(group, known))
        elif self._batch:  # data that comes with other data is cut as that is
            parts = tuple(
                shard(self._batch[axis]) if axis in self._batch and not self.is_copy(group, axis) else REPLICATE
                for axis in range(len(self.mesh.shape))
            )
            if whole_shape([tensor.spec.shape for tensor in self.ranks_of(group)], self.mesh, parts) is not None:
                self.placed[group] = Placed(parts, "cut as the other data", 0.7)
        if group in self.placed and self._is_data(group):
            self._note_batch(group)
        if group not in self.placed:
            self.unplaced[group] = (
                f"it is another on each rank ({self.told_shapes(group)}), and nothing tells of which whole"
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
        """Placements that give a whole of this shape; among several the nearest to the reference. `call` made it, if one did.

        What a call made and is far from the reference is placed only if its shape alone says how: then the call is unproven.
        """
        spec = self.ranks_of(group)[0].spec
        fits, differ = fitting(self, group, shape)
        if not fits:
            whole = Spec(spec.dtype, tuple(shape))
            self.unplaced[group] = (
                f"the pieces of the ranks ({self.told_shapes(group)}) do not make up {whole} of {beside}"
            )
            return
        copies = self.copies(group)
        candidates: list[Placements] = []
        for parts in fits:
            open_axes = [axis for axis, item in enumerate(parts) if item == REPLICATE and not copies[axis]]
            candidates += self._filled(parts, open_axes, call, spec.dtype)
        candidates = list(dict.fromkeys(candidates))
        if not candidates:
            self.unplaced[group] = (
                f"each rank has made its own of its piece, and they are not added up: {self.told_shapes(group)}"
            )
            return
        if call is not None and self._place_end(group, candidates, reference, call):
            return
        measured = [(distance(self, group, parts, reference), parts) for parts in candidates]
        if len(candidates) == 1 and not differ:
            near, parts = measured[0]
            order: tuple[int, ...] = ()
            if near is not None and near > NEAR and any(item.part is Part.SHARD for item in parts):
                blocks = in_blocks(self, group, parts, reference, near)
                if blocks is not None:
                    self.placed[group] = Placed(blocks, f"shape and values beside {beside}", 0.9)
                    return
                order = order_of(self, group, parts, reference) if call is None else ()
                if call is not None and beside == ITS_CALL:  # the other side may have made something else of it
                    self.unproven.add(call.id)
            self.placed[group] = Placed(parts, f"shape beside {beside}", order=order)
            return
        if len(candidates) == 1 and (call is None or candidates[0] == fits[0]):
            odd = self.odd_ranks(group, candidates[0])
            self.placed[group] = Placed(candidates[0], f"as what it is made of, shape beside {beside}", odd=odd)
            return
        if any(apart is None for apart, _ in measured):
            self.unplaced[group] = (
                "the ranks have values of the same shape that differ, and without values a sum is not told from copies"
            )
            return
        ranked = sorted(((apart or 0.0), place) for place, (apart, _) in enumerate(measured))
        nearest, place = ranked[0]
        parts = measured[place][1]
        if nearest > NEAR and call is not None and not self._is_sum_with_copies(group, parts, reference, call):
            self.unplaced[group] = f"neither copies nor parts of a sum give what is to be expected beside {beside}"
            return
        if nearest > NEAR and call is not None:
            self.unproven.add(call.id)
        sure = nearest <= NEAR and (len(ranked) == 1 or ranked[1][0] > nearest)
        self.placed[group] = Placed(
            parts, f"values beside {beside}", 1.0 if sure else 0.5, odd=self.odd_ranks(group, parts)
        )
        if nearest <= NEAR:
            self._means.update(axis for axis, item in enumerate(parts) if item == MEAN)

    def _place_end(
        self, group: int, candidates: Sequence[Placements], reference: Callable[[], Any], call: Call
    ) -> bool:
        """A loss of which each rank has its share: together they are the other side's, whatever the call makes of the whole.

        Where the call only divides each rank's mean by the number of ranks, it is left out: of the whole it is the identity.
        """
        arrays, spec = self.arrays(group), self.ranks_of(group)[0].spec
        if group not in self._ends or arrays is None or spec.dtype not in ADDABLE:
            return False

        def near(parts: Placements) -> bool:
            value = as_float(put_together(arrays, spec, self.mesh, parts), spec.dtype)
            return any(abs(float(value) - loss) <= _LOSS * abs(loss) for loss in self._losses)

        fits = [parts for parts in candidates if near(parts)]
        if len(fits) > 1:  # with as many ranks as micro-batches: losses are divided by the number of the latter
            open_axes = [axis for axis in self.mesh.rank_axes if not self.is_copy(group, axis)]
            fits = [parts for parts in fits if all(parts[axis] == MEAN for axis in open_axes)]
        if len(fits) != 1 or not any(item.part is Part.SUM for item in fits[0]):
            return False
        self._summed.update(axis for axis, item in enumerate(fits[0]) if item.part is Part.SUM)
        self.placed[group] = Placed(fits[0], "added up it is the other side's loss")
        apart = distance(self, group, fits[0], reference)
        if apart is None or apart > NEAR:
            taken = [self.values(number) for number in inputs_of(call).values()]
            same = (
                len(taken) == 1
                and taken[0] is not None
                and relative(taken[0], np.asarray(self.values(group))) <= _SHARE
            )
            if same:
                self._dropped.add(call.id)
            else:
                self.unproven.add(call.id)
        return True

    def _is_sum_with_copies(self, group: int, parts: Placements, reference: Callable[[], Any], call: Call) -> bool:
        """True if the ranks have parts of a sum to each of which something was added that is the same on all: a bias."""
        count = number_of_addends(self.mesh, parts)
        spec, arrays, wanted = self.ranks_of(group)[0].spec, self.arrays(group), reference()
        if count == 1 or arrays is None or wanted is None:
            return False
        gap = np.asarray(as_float(put_together(arrays, spec, self.mesh, parts), spec.dtype), np.float64) - wanted
        return self.copy_in_gap(call, gap, count) is not None

    def copy_in_gap(self, call: Call, gap: Array, count: int) -> str | None:
        """The argument that is the same on all ranks and makes up a difference, being added `count` times for once."""
        for slot, number in inputs_of(call).items():
            placed = self.placed.get(number)
            values = self.values(number) if placed is not None and placed.is_copy else None
            if values is None or values.dtype.kind != "f" or values.shape != gap.shape[gap.ndim - values.ndim :]:
                continue
            if float(np.linalg.norm(gap - (count - 1) * values)) <= VISIBLE * float(np.linalg.norm(gap)):
                return slot
        return None

    def _filled(self, parts: Placements, open_axes: Sequence[int], call: Call | None, dtype: str) -> list[Placements]:
        """The placements with what the ranks may have along axes where they differ and are not cut.

        Of copies come copies, of pieces parts of a sum; where each rank has a part of the data, also of a mean.
        """
        kinds: list[tuple[Placement, ...]] = []
        for axis in open_axes:
            taken = set()
            for number in inputs_of(call).values() if call is not None else ():
                own = self.placed.get(number)
                taken.add(None if own is None else own.placements[axis].part)
            mean = (MEAN,) if axis in self._batch else ()
            sums = (SUM, *mean) if dtype in ADDABLE else ()
            if call is None or taken == {Part.REPLICATE}:
                kinds.append((REPLICATE,))
            elif Part.SHARD in taken:
                kinds.append(sums)
            else:
                kinds.append((REPLICATE, *sums))
        variants = []
        for chosen in itertools.product(*kinds):
            filled = list(parts)
            for axis, kind in zip(open_axes, chosen, strict=True):
                filled[axis] = kind
            variants.append(tuple(filled))
        return variants


_SHARE = 1e-5
"""Relative distance of a mean and of the sum of its shares: divided in float32, by a number that need not be a power of two."""
_LOSS = 1e-2
"""Relative distance of two losses that are the same: another number of ranks is far from it."""
VISIBLE = 1e-3
"""Relative size from which on a difference is more than the rounding of sums in 16 bits."""


def number_of_addends(mesh: Mesh, parts: Placements) -> int:
    """Parts of a sum that a whole is added up of; 1 if it is none."""
    count = 1
    for length, item in zip(mesh.shape, parts, strict=True):
        count *= length if item.part is Part.SUM else 1
    return count


def given(values: Array) -> Array:
    return values
