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
from dataclasses import replace
from typing import Any

import numpy as np

from ..model.records import Call, Gradient, Role
from ..model.sites import Phase
from ..model.tensors import UNITS, Spec, Tensor
from ..model.values import TensorRef, tensor_slots
from ..model.values import leaves as leaves_of
from ..operations.sides import inputs_of, outputs_of
from ..store.arrays import as_float
from ..store.digest import fingerprint
from ..store.trace import Journal
from .candidates import NEAR, distance, fitting, in_blocks, order_of, sharded
from .collectives import COLLECTING, Collective, as_function, collective_of
from .computing import computed
from .merging import Merged, renumbered
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
    whole_shape,
)
from .wholes import SAID, Placed, Reference, Wholes, relative

_ITS_CALL = "its call"
PIECES = "bit by bit pieces of what all ranks have"


class Inference(Wholes):
    """Placements of the groups of merged calls, found in the order of the calls.

    Args:
        journals: of the ranks, in their order.
        merged: their calls.
        mesh: the grid of the ranks.
        references: the other side's tensors, by the number of the group.
        leaves: shape, element type and bits of the other side's tensors that no call made.
        losses: numbers at which the other side's backward pass begins.
        known: placements of parameters by their names in the model, where nothing else tells them.
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
    ) -> None:
        super().__init__(journals, merged, mesh)
        self._losses, self._declared = losses, known or {}
        self._references, self._leaves = references, leaves
        self.calls: dict[int, Call] = {call.id: call for call in merged.calls}
        """Merged calls by id; collectives with their meaning for the whole, sizes as those of the whole."""
        self.unproven: set[int] = set()
        """Calls whose results, put together, are not what the call computes for the whole."""
        self._parameters: set[int] = set()
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

    def run(self) -> None:
        calls = sorted(self.merged.calls, key=lambda call: call.order)
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
        for group, values in self._gradients.items():
            for value in values:
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
        for number in self._dropped:
            self.calls.pop(number, None)
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

    # --- roles --------------------------------------------------------------------------------------------------------

    def _note_roles(self, calls: Sequence[Call]) -> None:
        for call in calls:
            self._parameters.update(call.parameters.values())
            taken, made = inputs_of(call), outputs_of(call)
            self._made.update(set(made.values()) - set(taken.values()))
            for gradient in call.gradients:
                value = (
                    taken.get(gradient.slot) if gradient.role is Role.INPUT else made.get(gradient.slot, made.get("0"))
                )
                if value is not None:
                    self._gradients.setdefault(gradient.tensor, []).append(value)
        taken_at_all = {
            number for call in calls if call.site.phase is Phase.FORWARD for number in inputs_of(call).values()
        }
        self._ends = {
            number
            for call in calls
            if call.gradients and call.site.phase is Phase.FORWARD
            for number in set(outputs_of(call).values()) - taken_at_all
            if not self.ranks_of(number)[0].spec.shape
        }
        self._names = {
            ".".join(filter(None, (call.site.name, name))): number
            for call in reversed(calls)
            for name, number in call.parameters.items()
        }
        for gradient in self.merged.gradients:
            if gradient.slot in self._names:
                self._gradients.setdefault(gradient.tensor, []).append(self._names[gradient.slot])

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
            if not self._is_alike_by_chance(number, call, collective) and self._place_plainly(number):
                continue
            results = self.results_of(call) if collective is None else {}
            if number in results:
                values = results[number]
                self._place(number, values.shape, functools.partial(_given, values), _ITS_CALL, call=call)
            elif reference is not None:
                self._place(number, reference.shape, reference.values, "the other side", call=call)
            else:
                self.unplaced.setdefault(
                    number, f"what {call.site} gives on the ranks is not told by its shape: {self.told_shapes(number)}"
                )

    def _is_alike_by_chance(self, group: int, call: Call, collective: Collective | None) -> bool:
        """True if what is the same on all ranks is made of pieces, and larger for the whole: zeros like a piece."""
        taken = [self.placed.get(number) for number in inputs_of(call).values()]
        cut = any(item is not None and any(one.part is Part.SHARD for one in item.placements) for item in taken)
        if not cut or collective is not None or not all(self.copies(group)):
            return False
        values = self.results_of(call).get(group)
        return values is not None and tuple(values.shape) != self.shapes(group)[0]

    def _place_collected(self, group: int, collective: Collective) -> bool:
        """Results of a collective: along the axes of its group a reduction and a gathering leave copies, a scattering pieces."""
        before = self.placed.get(collective.taken[0]) if collective.taken else None
        if before is None or collective.axes is None or collective.name not in COLLECTING:
            return False
        scatters = collective.name.startswith("reduce_scatter")
        if scatters and len(collective.axes) > 1:
            return False
        if not scatters and not all(self.is_copy(group, axis) for axis in collective.axes):
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

    def _place_plainly(self, group: int) -> bool:
        """By what the run says, or because all ranks have the same bits."""
        if group in self.placed:
            return True
        said = [self._said(tensor) for tensor in self.ranks_of(group)]
        if said[0] is not None and all(item == said[0] for item in said) and len(said[0]) == len(self.mesh.shape):
            self.placed[group] = Placed(said[0], SAID)
            return True
        if self.bits(group) is not None and all(self.copies(group)):
            self.placed[group] = Placed((REPLICATE,) * len(self.mesh.shape), "the same bits on all ranks")
            return True
        return False

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

    def parameter_names(self) -> dict[int, str]:
        """Names in the model of the parameters, by their numbers."""
        return {number: name for name, number in self._names.items()}

    def gradients(self) -> Iterator[tuple[Call, Role, int, int]]:
        """`(call, end, gradient, value)` of every gradient of a merged call."""
        for call in self.merged.calls:
            taken, made = inputs_of(call), outputs_of(call)
            for gradient in call.gradients:
                value = (
                    taken.get(gradient.slot) if gradient.role is Role.INPUT else made.get(gradient.slot, made.get("0"))
                )
                if value is not None:
                    yield call, gradient.role, gradient.tensor, value

    def results_of(self, call: Call) -> Mapping[int, Array]:
        """Results of a merged call for the whole, computed in float64; nothing where that cannot be done."""
        results, done = computed(self, self.calls.get(call.id, call))
        if call.id in self.calls:
            self.calls[call.id] = done
        return results

    def _place_leaf(self, group: int) -> None:
        if group in self.placed or group in self._made or (group in self.unplaced and group not in self._references):
            return
        reference = self._references.get(group)
        if self._place_plainly(group):
            return
        if self._place_copy(group) or self._place_pieces(group):
            if group not in self._parameters and not self.ranks_of(group)[0].requires_grad:
                self._note_batch(group)
            return
        if self._is_copy_of_unplaced(group):
            self.unplaced[group] = "it is a copy of what cannot be placed"
            return
        known = self._declared.get(self.parameter_names().get(group, ""))
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
        if group in self.placed and group not in self._parameters and not self.ranks_of(group)[0].requires_grad:
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
                if call is not None and beside == _ITS_CALL:  # the other side may have made something else of it
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
        told = sorted(((apart or 0.0), place) for place, (apart, _) in enumerate(measured))
        nearest, place = told[0]
        parts = measured[place][1]
        if nearest > NEAR and call is not None and not self._is_sum_with_copies(group, parts, reference, call):
            self.unplaced[group] = f"neither copies nor parts of a sum give what is to be expected beside {beside}"
            return
        if nearest > NEAR and call is not None:
            self.unproven.add(call.id)
        sure = nearest <= NEAR and (len(told) == 1 or told[1][0] > nearest)
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

        found = [parts for parts in candidates if near(parts)]
        if len(found) > 1:  # with as many ranks as micro-batches: losses are divided by the number of the latter
            open_axes = [axis for axis in self.mesh.rank_axes if not self.is_copy(group, axis)]
            found = [parts for parts in found if all(parts[axis] == MEAN for axis in open_axes)]
        if len(found) != 1 or not any(item.part is Part.SUM for item in found[0]):
            return False
        self._summed.update(axis for axis, item in enumerate(found[0]) if item.part is Part.SUM)
        self.placed[group] = Placed(found[0], "added up it is the other side's loss")
        apart = distance(self, group, found[0], reference)
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
            if values is None or values.dtype.kind != "f" or not _broadcasts(values.shape, gap.shape):
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
        found = []
        for chosen in itertools.product(*kinds):
            filled = list(parts)
            for axis, kind in zip(open_axes, chosen, strict=True):
                filled[axis] = kind
            found.append(tuple(filled))
        return found

    # --- the backward pass --------------------------------------------------------------------------------------------

    def _place_gradient(self, group: int, value: int) -> None:
        if group in self.placed or value not in self.placed:
            return
        shape = self.whole(value).spec.shape
        own = self.placed[value].placements
        # Of a mean each rank's gradient is a part, also where all are the same.
        if MEAN not in own and self._place_plainly(group):
            placed = self.placed[group]
            if placed.because != SAID:
                return
        else:
            parts = tuple(
                REPLICATE
                if self.is_copy(group, axis) and item.part not in (Part.SHARD, Part.MEAN)
                else item
                if item.part is Part.SHARD
                else SUM
                for axis, item in enumerate(own)
            )
            if whole_shape([tensor.spec.shape for tensor in self.ranks_of(group)], self.mesh, parts) != shape:
                self.unplaced[group] = (
                    f"the gradients of the ranks ({self.told_shapes(group)}) do not make up that of the value"
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
                self.unplaced[number] = f"it is another on each rank ({self.told_shapes(number)})"
                continue
            self.placed[number] = Placed(parts, "as its parameter", odd=self.odd_ranks(number, parts))
        self._name_parameters(call, slots)

    def _name_parameters(self, call: Call, slots: Mapping[str, int]) -> None:
        """Parameters that an optimizer takes in pieces, and modules as a whole, are one tensor: it gets the modules' number."""
        if call.id not in self.calls:
            return
        held: dict[tuple[Spec, str | None], list[int]] = {}
        for number in dict.fromkeys(item for other in self.merged.calls for item in other.parameters.values()):
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
            args = tuple(renumbered(value, same) for value in call.args)
            self.calls[call.id] = replace(self.calls[call.id], args=args)
        told = {gradient.slot for gradient in self.merged.gradients}
        names = self.parameter_names()
        for slot, number in slots.items():  # the gradients of the pieces are those that the modules' parameters get
            gradient, name = slots.get(f"kw.gradients.{slot.removeprefix('0.')}"), names.get(same.get(number, -1))
            if slot.startswith("0.") and gradient is not None and name is not None and name not in told:
                first = self._before_changes(gradient)
                self.merged.gradients.append(Gradient(Role.PARAMETER, name, first, order=call.order))

    def _before_changes(self, gradient: int) -> int:
        """A gradient as it was before calls that take nothing else changed it: scaled it, clipped it."""
        makers = {self.bits(number): call for call in self.merged.calls for number in outputs_of(call).values()}
        makers.pop(None, None)
        seen = {gradient}
        while (maker := makers.get(self.bits(gradient))) is not None:
            taken = list(inputs_of(maker).values())
            if len(taken) != 1 or taken[0] in seen or taken[0] not in self.placed:
                break
            if self.whole(taken[0]).spec != self.whole(gradient).spec:
                break
            gradient = taken[0]
            seen.add(gradient)
        return gradient


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


def _broadcasts(shape: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    return len(shape) <= len(whole) and shape == whole[len(whole) - len(shape) :]


def _given(values: Array) -> Array:
    return values
