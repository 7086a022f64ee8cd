"""Calls of single ranks, where the call of all ranks is none of the whole, and how they hang together with the whole.

    the whole weight ─cut─▶ rank 0's rows ─ embedding ─ mask ─┐
                            rank 1's rows ─ embedding ─ mask ─┴joined: sum─▶ what the whole embedding gives

A row of a vocabulary that another rank has, a token that goes to another rank's expert: what a rank computes with it is no part of
anything that one device computes. Such calls stay what they are, one for each rank; `cut` and `joined` say what of the whole
goes into them and what they make of it. So they are recomputed like any other call, and no rule says what they are for.
They are not paired with calls of the other side: what is compared are the values before and behind them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ..model.errors import TwintraceError
from ..model.records import Call, Gradient, Role
from ..model.sites import Kind, Phase, Site
from ..model.tensors import Spec, Tensor
from ..model.values import Nest, TensorRef, Value, leaves, mapped, tensor_slots
from ..operations.sides import inputs_of, outputs_of
from ..operations.telling import meaning_of
from ..store.arrays import as_float
from ..store.digest import digest
from .collectives import Collective, collective_of, splits_of
from .inference import Inference
from .merging import DIFFERENT, Member
from .placements import Array, Part, Placement, Placements, narrowed, segments_of
from .wholes import Placed

CUT, JOINED = "twintrace.cut", "twintrace.joined"
Step = tuple[int, str, int, tuple[tuple[int, int, int], ...]]
"""So many tensors, one after the other, in this way (`first`, `sum`, `mean`, `max`, `min`, `cat`), along an axis, of these pieces
of each: `(which, start, length)`.
"""


class Parts:
    """Calls of single ranks in the place of those merged calls that are none of the whole.

    Their tensors have numbers of their own, behind those of the groups.
    """

    def __init__(self, inference: Inference) -> None:
        self._inference, self._merged, self._mesh = inference, inference.merged, inference.mesh
        self._first = len(inference.merged.groups)
        self._own: list[tuple[Member, float]] = []
        self._numbers: dict[tuple[Member, object], int] = {}
        self.calls: list[Call] = []
        """Calls of the ranks, cuts and joints, in no order."""
        self._framework = inference.journals[0].header.framework
        self.replaced = self._chosen()
        self._made = {
            number
            for call in self._merged.calls
            if call.id in self.replaced
            for number in outputs_of(call).values()
            if number not in inputs_of(call).values()
        }
        self._next = 1 + max((call.id for call in self._merged.calls), default=0)
        for call in sorted(self._merged.calls, key=lambda call: call.order):
            if call.id in self.replaced:
                self._replace(call)
        self._add_gradients_of_collectives()

    # --- their tensors ----------------------------------------------------------------------------------------------------

    def has(self, number: int) -> bool:
        return number >= self._first

    def tensor(self, number: int) -> Tensor:
        (place, own), factor = self._own[number - self._first]
        tensor = replace(self._inference.member(place, own), id=number, parts={})
        if factor == 1.0 or tensor.payload is None:
            return tensor
        digested = digest(self.array(number), tensor.spec.dtype)
        return replace(tensor, statistics=digested.statistics, fingerprint=digested.fingerprint)

    def array(self, number: int) -> Array:
        (place, own), factor = self._own[number - self._first]
        tensor = self._inference.member(place, own)
        if tensor.payload is None:
            raise TwintraceError("the values of a rank were not kept")
        array = self._inference.journals[place].array(tensor)
        return array if factor == 1.0 else narrowed(as_float(array, tensor.spec.dtype) * factor, tensor.spec.dtype)

    def _number(self, member: Member, use: object = None, factor: float = 1.0) -> int:
        """Number of one rank's tensor; `use` tells apart pieces of the whole that several calls take."""
        key = member, use
        if key not in self._numbers:
            self._numbers[key] = self._first + len(self._own)
            self._own.append((member, factor))
        return self._numbers[key]

    def _gradient(self, member: Member, group: int) -> int:
        placed = self._inference.placed.get(group)
        if placed is not None and placed.is_copy and not placed.odd:
            return group
        factor = 1.0
        for axis in self._inference.averaged:
            factor /= self._mesh.shape[axis]
        return self._number(member, "gradient", factor)

    # --- which calls ------------------------------------------------------------------------------------------------------

    def _chosen(self) -> set[int]:
        """Ids of the merged calls that are none of the whole: their tensors, their arguments or what they compute."""
        inside = {call.parent for call in self._merged.calls}
        candidates = {
            call.id: call
            for call in self._merged.calls
            if call.id not in inside and call.site.phase is Phase.FORWARD and call.id in self._inference.calls
        }
        chosen = {number for number, call in candidates.items() if self._is_of_ranks(call)}
        makers: dict[int, list[int]] = {}
        for call in candidates.values():
            for number in outputs_of(call).values():
                makers.setdefault(number, []).append(call.id)
        waiting = list(chosen)
        while waiting:  # parts of a sum are no function of it: whoever takes them one by one has them from their maker
            for number in inputs_of(candidates[waiting.pop()]).values():
                placed = self._inference.placed.get(number)
                if placed is None or _is_cut(placed.placements):
                    continue
                more = [maker for maker in makers.get(number, ()) if maker not in chosen]
                chosen.update(more)
                waiting += more
        return chosen

    def _is_of_ranks(self, call: Call) -> bool:
        placed = self._inference.placed
        if any(number not in placed for number in (*inputs_of(call).values(), *outputs_of(call).values())):
            return True
        if call.id in self._inference.unproven:
            return True
        if not outputs_of(call):
            return False
        told = self._inference.calls[call.id]
        if collective_of(call, self._mesh) is not None:
            return told.kwargs.get("whole", "") is None
        if not any(
            getattr(leaf, "kind", "") == DIFFERENT
            for value in (*call.args, *call.kwargs.values())
            for _, leaf in leaves(value)
        ):
            return False
        known = meaning_of(told, self._framework, lambda number: self._inference.whole(number).spec)
        return known is None

    # --- calls of the ranks -----------------------------------------------------------------------------------------------

    def _replace(self, call: Call) -> None:
        places, ranks = self._merged.places[call.id], self._merged.members[call.id]
        collective = collective_of(call, self._mesh)
        taken = self._operands(call, places)
        if collective is not None and collective.axes is not None:
            self._exchange(call, collective, places, ranks, taken)
        else:
            for place, own in zip(places, ranks, strict=True):
                self._call_of_rank(call, own, place, taken)
        for slot, group in outputs_of(call).items():
            if group in self._inference.placed and group not in inputs_of(call).values():
                self._join(call, slot, group, places)

    def _operands(self, call: Call, places: Sequence[int]) -> Mapping[tuple[int, str], int]:
        """Numbers of what the ranks take, by the position of the rank and the slot."""
        operands: dict[tuple[int, str], int] = {}
        for slot, group in inputs_of(call).items():
            placed, members = self._inference.placed.get(group), self._merged.groups[group]
            if group not in self._made and placed is not None and placed.is_copy and not placed.odd:
                operands |= {(place, slot): group for place in places}
            elif group not in self._made and placed is not None and _is_cut(placed.placements):
                operands |= self._cut(call, slot, group, places, placed)
            else:
                operands |= {(place, slot): self._number(members[place]) for place in places}
        return operands

    def _cut(
        self, call: Call, slot: str, group: int, places: Sequence[int], placed: Placed
    ) -> dict[tuple[int, str], int]:
        members, shapes = self._merged.groups[group], self._inference.shapes(group)
        numbers = [self._number(members[place], (call.id, slot)) for place in places]
        pieces = [segments_of(self._mesh, placed.placements, shapes, place) for place in places]
        kwargs = {"pieces": _nest(pieces)} | ({} if placed.factor == 1.0 else {"factor": 1.0 / placed.factor})
        gradients: list[Gradient] = []
        sent = next((item for item in call.gradients if item.role is Role.INPUT and item.slot == slot), None)
        if sent is not None and sent.tensor in self._inference.placed:
            gradients.append(replace(sent, slot="0"))
            for index, place in enumerate(places):
                own = self._gradient(self._merged.groups[sent.tensor][place], sent.tensor)
                gradients.append(replace(sent, role=Role.OUTPUT, slot=str(index), tensor=own))
        self._add(
            CUT, call, -2, (TensorRef(group),), kwargs,
            Nest("list", tuple((str(index), TensorRef(number)) for index, number in enumerate(numbers))), gradients,
        )  # fmt: skip
        return {(place, slot): number for place, number in zip(places, numbers, strict=True)}

    def _call_of_rank(self, call: Call, own: Call, place: int, taken: Mapping[tuple[int, str], int]) -> None:
        def numbered(leaf: Value, slot: str) -> Value:
            return TensorRef(taken[place, slot]) if isinstance(leaf, TensorRef) else leaf

        def made(leaf: Value, slot: str) -> Value:
            return TensorRef(self._result(own, place, leaf.id, taken)) if isinstance(leaf, TensorRef) else leaf

        groups = {(item.role, item.slot, item.count): item.tensor for item in call.gradients}
        gradients = [
            replace(item, tensor=self._gradient((place, item.tensor), groups[item.role, item.slot, item.count]))
            for item in own.gradients
            if (item.role, item.slot, item.count) in groups
        ]
        self.calls.append(
            replace(
                own,
                id=self._next,
                parent=call.parent,
                args=tuple(mapped(value, numbered, str(index)) for index, value in enumerate(own.args)),
                kwargs={name: mapped(value, numbered, f"kw.{name}") for name, value in own.kwargs.items()},
                parameters={name: taken[place, name] for name in own.parameters},
                buffers={name: taken[place, name] for name in own.buffers},
                output=mapped(own.output, made),
                after={slot: self._result(own, place, number, taken) for slot, number in own.after.items()},
                gradients=tuple(gradients),
                order=call.order,
            )
        )
        self._next += 1

    def _result(self, own: Call, place: int, number: int, taken: Mapping[tuple[int, str], int]) -> int:
        """Number of a result; one that a call hands on is what it took."""
        for slot, item in inputs_of(own).items():
            if item == number:
                return taken[place, slot]
        return self._number((place, number))

    def _join(self, call: Call, slot: str, group: int, places: Sequence[int]) -> None:
        members, placements = self._merged.groups[group], self._inference.placed[group].placements
        numbers = [self._number(members[place]) for place in range(self._mesh.size)]
        if numbers == [group] * len(numbers):
            return
        gradients: list[Gradient] = []
        received = next((item for item in call.gradients if item.role is Role.OUTPUT and item.slot == slot), None)
        if received is not None and received.tensor in self._inference.placed:
            gradients.append(replace(received, slot=""))
            sent = self._merged.groups[received.tensor]
            gradients += [
                replace(received, role=Role.INPUT, slot=str(place), tensor=self._gradient(sent[place], received.tensor))
                for place in range(self._mesh.size)
            ]
        steps = self._steps(group, placements)
        self._add_joined(call, 2, numbers, steps, group, gradients)

    def _steps(self, group: int, placements: Placements) -> list[Step]:
        """Steps that put the tensors of the ranks together, the last axis of the mesh first."""
        steps: list[Step] = []
        shape = list(self._inference.shapes(group)[0])
        for length, item in zip(reversed(self._mesh.shape), reversed(placements), strict=True):
            if item.part is Part.SHARD:
                steps.append((length, "cat", item.axis, _interleaved(item, length, shape[item.axis])))
                shape[item.axis] *= length  # blocks are cut evenly
            else:
                steps.append((length, _HOW[item.part], 0, ()))
        return steps

    def _add_joined(
        self,
        call: Call,
        turn: int,
        taken: Sequence[int],
        steps: Sequence[Step],
        made: int,
        gradients: Iterable[Gradient],
    ) -> None:
        args = (Nest("list", tuple((str(index), TensorRef(number)) for index, number in enumerate(taken))),)
        gradients = [replace(item, slot=f"0.{item.slot}") if item.role is Role.INPUT else item for item in gradients]
        self._add(JOINED, call, turn, args, {"steps": _nest(steps)}, TensorRef(made), gradients)

    def _add(
        self,
        name: str,
        call: Call,
        turn: int,
        args: tuple[Value, ...],
        kwargs: Mapping[str, Value],
        output: Value,
        gradients: Iterable[Gradient] = (),
    ) -> None:
        site = Site(Kind.API, name, len(self.calls), call.site.phase, call.site.path)
        self.calls.append(
            Call(
                self._next, site, call.parent, args, kwargs, output,
                stack=call.stack, gradients=tuple(gradients), order=call.order + turn,
            )
        )  # fmt: skip
        self._next += 1

    # --- collectives ------------------------------------------------------------------------------------------------------

    def _exchange(
        self,
        call: Call,
        collective: Collective,
        places: Sequence[int],
        ranks: Sequence[Call],
        taken: Mapping[tuple[int, str], int],
    ) -> None:
        """A collective as a function of what the ranks of each of its groups give."""
        assert collective.axes is not None
        own = dict(zip(places, ranks, strict=True))
        slots = {number: slot for slot, number in inputs_of(call).items()}
        given = [slots[number] for number in collective.taken]
        for line in self._mesh.groups_along(collective.axes):
            if not set(line) <= own.keys():
                continue
            numbers = [[taken[place, slot] for place in line] for slot in given]
            for index in range(len(line)):
                self._received(call, collective, [own[item] for item in line], index, line, numbers)

    def _received(
        self,
        call: Call,
        collective: Collective,
        ranks: Sequence[Call],
        index: int,
        line: Sequence[int],
        numbers: Sequence[Sequence[int]],
    ) -> None:
        """Value of one rank after a collective. `numbers`: of what was given, by argument and rank."""
        name, count = collective.name, len(ranks)
        made = [self._merged.groups[group][line[index]] for group in collective.made]
        if name == "all_gather":  # the pieces one by one
            for member, number in zip(made, numbers[0], strict=False):
                self._numbers[member, None] = number
            return
        if name == "all_to_all":
            for member, given in zip(made, range(count), strict=False):
                self._numbers[member, None] = numbers[index][given]
            return
        if name == "broadcast":
            source = collective.source
            if source is not None:
                self._numbers[made[0], None] = numbers[0][source % count]
            return
        if index and name in _SAME_FOR_ALL:
            self._numbers[made[0], None] = self._number(self._merged.groups[collective.made[0]][line[0]])
            return
        shape = self._inference.member(*made[0]).spec.shape
        how = _OPERATIONS.get(collective.operation)
        steps: list[Step] | None = None
        if name == "all_reduce" and how is not None:
            steps = [(count, how, 0, ())]
        elif name in ("all_gather_into_tensor", "all_gather_single"):
            steps = [(count, "cat", 0, ())]
        elif name in ("reduce_scatter_tensor", "reduce_scatter_single") and how is not None:
            steps = [(count, how, 0, ()), (1, "cat", 0, ((0, index * shape[0], shape[0]),))]
        elif name == "all_to_all_single":
            steps = [(count, "cat", 0, splits_of(ranks, index, [self._length(number) for number in numbers[0]]))]
        if steps is None:
            return
        self._add_joined(call, 0, numbers[0], steps, self._number(made[0]), ())

    def _length(self, number: int) -> int:
        spec: Spec = self.tensor(number).spec if self.has(number) else self._inference.whole(number).spec
        return spec.shape[0] if spec.shape else 1

    def _add_gradients_of_collectives(self) -> None:
        """Gradients of collectives, whose backward passes are written by hand and not recorded as theirs: what the one call sends
        back that takes the result, and what came back to the calls that made the operands.
        """
        received: dict[int, list[Gradient]] = {}
        came: dict[int, Gradient] = {}
        for call in self.calls:
            taken, made = inputs_of(call), outputs_of(call)
            for item in call.gradients:
                if item.role is Role.INPUT and item.slot in taken:
                    received.setdefault(taken[item.slot], []).append(item)
                elif item.role is Role.OUTPUT:
                    number = made.get(item.slot, made.get("0") if not item.slot else None)
                    if number is not None:
                        came[number] = item
        for index, call in enumerate(self.calls):
            if call.site.name != JOINED or call.gradients or not isinstance(call.output, TensorRef):
                continue
            sent = received.get(call.output.id, [])
            operands = {slot: came.get(number) for slot, number in tensor_slots(call.args, {})}
            if len(sent) != 1 or not all(operands.values()):
                continue
            gradients = [replace(sent[0], role=Role.OUTPUT, slot="")]
            gradients += [
                replace(item, role=Role.INPUT, slot=slot) for slot, item in operands.items() if item is not None
            ]
            self.calls[index] = replace(call, gradients=tuple(gradients))


_HOW = {Part.REPLICATE: "first", Part.SUM: "sum", Part.MEAN: "mean"}
_SAME_FOR_ALL = frozenset(("all_reduce", "all_gather_into_tensor", "all_gather_single"))
"""Collectives after which all ranks of a group have the same tensor."""
_OPERATIONS = {"SUM": "sum", "AVG": "mean", "MAX": "max", "MIN": "min"}


def _is_cut(placements: Placements) -> bool:
    return all(item.part in (Part.REPLICATE, Part.SHARD) for item in placements)


def _interleaved(item: Placement, count: int, size: int) -> tuple[tuple[int, int, int], ...]:
    """Pieces in the order of the whole, where a rank has some of each of several blocks; nothing where it has one.

    `size`: length of a piece along the axis that is cut.
    """
    if item.blocks == 1:
        return ()
    length = size // item.blocks
    return tuple((rank, block * length, length) for block in range(item.blocks) for rank in range(count))


def _nest(value: object) -> Value:
    if isinstance(value, tuple | list):
        return Nest("tuple", tuple((str(index), _nest(item)) for index, item in enumerate(value)))
    assert isinstance(value, int | str)
    return value
