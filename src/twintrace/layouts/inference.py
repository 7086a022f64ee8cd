"""Inference of placements: the part that each tensor of a rank is of the whole, call by call.

Values are placed in the order of the calls that make them (placing.py). Gradients follow from their values: they have their shape,
and what is not cut is a sum. Where ranks share a batch and each takes the mean loss of its part, each rank's gradients are as many
times too large as there are ranks, until they are averaged.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from ..model.records import Call, Gradient, Role
from ..model.sites import Phase
from ..model.tensors import UNITS, Spec
from ..model.values import TensorRef, tensor_slots
from ..model.values import leaves as leaves_of
from ..model.words import dotted
from ..operations.sides import inputs_of, outputs_of
from .collectives import COLLECTING, Collective, as_function, collective_of
from .merging import Member, renumbered, renumbered_call
from .placements import (
    MEAN,
    REPLICATE,
    SUM,
    Part,
    shard,
    whole_shape,
)
from .placing import ITS_CALL, Placing, given
from .wholes import SAID, Placed


class Inference(Placing):
    """Placements of the groups of merged calls, found in the order of the calls."""

    def run(self) -> None:
        calls = sorted(self.merged.calls, key=lambda call: call.order)
        self._note_roles(calls)
        self._note_declared(calls)
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
            taken = [number for number in inputs_of(call).values() if number in waiting]
            why = next((self.unplaced[number] for number in taken if number in self.unplaced), None)
            if why is None:
                self._place_call(call)
            else:  # what is made of a gradient that is none of the whole is none either
                self.unplaced |= dict.fromkeys(outputs_of(call).values(), why)
        for call in calls:
            if call.site.phase is Phase.UPDATE:
                self._place_update(call)
            collective = collective_of(call, self.mesh)
            if collective is not None:
                self.calls[call.id] = as_function(collective, self.placements, self.factor, self.mesh)
        self._leave_out_backward(calls)
        self._leave_out_joined(calls)
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

    def _leave_out_joined(self, calls: Sequence[Call]) -> None:
        """Takes out calls that put the micro-batches together, as schedules of pipelines do with their results: what they give is,
        bit by bit, the whole of what they take one by one.
        """
        if not self.mesh.micro:
            return
        micro = self.mesh.shape[-1]  # of one rank all have one journal
        cut: dict[Member, set[int]] = {}
        for group in self._made & self.placed.keys():
            if any(item.part is Part.SHARD for item in self.placed[group].placements):
                for place, number in self.merged.groups[group]:
                    cut.setdefault((place // micro, number), set()).add(group)
        same: dict[int, int] = {}
        for call in calls:
            taken, made = list(inputs_of(call).values()), list(outputs_of(call).values())
            if call.parent is not None or len(taken) < 2 or len(made) != 1:
                continue
            members = [self.merged.groups[number][0] for number in taken]
            sources = [cut.get((place // micro, number), set()) for place, number in members]
            result = self.ranks_of(made[0])[0]
            for group in set.intersection(*sources) - {*made}:
                whole = self.whole(group)
                if (whole.spec, whole.fingerprint) == (result.spec, result.fingerprint) and whole.fingerprint:
                    same[made[0]] = group
                    self.calls.pop(call.id, None)
        if same:
            self.calls = {number: renumbered_call(call, same) for number, call in self.calls.items()}

    def _is_same_whole(self, one: int, two: int) -> bool:
        """True if two wholes differ by the rounding of adding them up over the ranks, at most."""
        values, others, allowed = self.values(one), self.values(two), self.slack(one)
        if values is None or others is None or values.shape != others.shape:
            return False
        unit = UNITS.get(self.ranks_of(one)[0].spec.dtype, 0.0)
        bound = unit * (2 * np.abs(values) + (0.0 if allowed is None else allowed))
        return bool(np.all(np.abs(np.asarray(values, np.float64) - others) <= bound))

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
            dotted(call.site.name, name): number for call in reversed(calls) for name, number in call.parameters.items()
        }
        for gradient in self.merged.gradients:
            if gradient.slot in self._names:
                self._gradients.setdefault(gradient.tensor, []).append(self._names[gradient.slot])

    def _place_call(self, call: Call) -> None:
        for number in inputs_of(call).values():
            if number not in self._gradients:
                self._place_leaf(number)
        made = [number for number in outputs_of(call).values() if number not in self.placed]
        if not made:
            return
        collective = collective_of(call, self.mesh)
        for number in made:
            if self._place_declared(number) or (collective is not None and self._place_collected(number, collective)):
                continue
            reference = self._references.get(number)
            if not self._is_alike_by_chance(number, call, collective) and self._place_plainly(number):
                continue
            results = self.results_of(call) if collective is None else {}
            if number in results:
                values = results[number]
                self._place(number, values.shape, functools.partial(given, values), ITS_CALL, call=call)
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

    def _place_gradient(self, group: int, value: int) -> None:
        if group in self.placed:
            return
        if value not in self.placed:
            if value in self.unplaced and value in self._parameters:
                self.unplaced[group] = self.unplaced[value]
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
        self._updated.update(parameters.values())
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
            if owner is not None and owner in self.unplaced and owner not in self.placed:
                self.unplaced[number] = self.unplaced[owner]
                continue
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
