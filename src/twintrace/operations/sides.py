"""One side of a comparison as a graph of values: which call made a tensor, which calls took it, where its gradients came from.

    side.maker(17)             the innermost call that put out tensor 17, or that has a meaning
    side.slice(17, known)      calls between tensor 17 and the values in `known`, and the tensors at that edge
    side.contributions(17)     gradients that the calls which took tensor 17 sent back

No tensor is opened.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from ..model.pairs import Layout
from ..model.records import Call, Role
from ..model.sites import Kind, Phase
from ..model.tensors import Spec, Tensor
from ..model.values import TensorRef, leaves, tensor_slots
from .families import MAKING, family_of
from .meanings import Meaning, different_arguments
from .telling import meaning_of
from .traits import traits_of
from .writes import wholes_written

_LONGEST = 4096
"""Calls between two compared values up to which a region is computed: a recurrent layer that a framework unrolls is ten calls for
every step, layer and direction (MindSpore's GRU), and all of them are one call on the other side.
"""
_DEPENDENTS = 1 << 20
"""Numbers of dependent tensors that are held at once."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A tensor of the right side and the left one that stands for it."""

    left: int
    layout: Layout


@dataclass(frozen=True, slots=True)
class Slice:
    """Calls that make one tensor out of the tensors at the edge, in the order in which they ended."""

    tensor: int
    calls: tuple[Call, ...]
    edge: tuple[int, ...]
    failure: str = ""
    """Why it cannot be recomputed: a call whose meaning is not known."""
    copies: Mapping[int, int] = field(default_factory=dict)
    """Tensors that came about unseen, and those of the same bits that calls made."""


@dataclass(slots=True)
class Side:
    """Calls of one journal, indexed by the tensors they make and take."""

    framework: str
    calls: Sequence[Call]
    tensor: Callable[[int], Tensor]
    level: str = "mix"
    precision: Mapping[str, object] = field(default_factory=dict)
    """Precision settings of the journal; a call may have others."""
    _by_id: dict[int, Call] = field(default_factory=dict)
    _inside: dict[int, list[Call]] = field(default_factory=dict)
    _makers: dict[int, list[Call]] = field(default_factory=dict)
    _takers: dict[int, list[Call]] = field(default_factory=dict)
    _written: list[Call] = field(default_factory=list)
    """Writes through views, as calls that make the tensors that the views are of (`writes.py`)."""
    _meanings: dict[int, Meaning | None] = field(default_factory=dict)
    _sent_back: dict[int, list[tuple[Call, int]]] = field(default_factory=dict)
    _of_output: dict[int, list[tuple[Call, int]]] = field(default_factory=dict)
    _by_modules: dict[int, tuple[Call, int]] = field(default_factory=dict)
    _parameters: dict[str, int] = field(default_factory=dict)
    _leaves: dict[tuple[Hashable, Spec], list[int]] = field(default_factory=dict)
    _copied: dict[int, list[int]] | None = None
    _origins: dict[int, int] = field(default_factory=dict)
    _by_bits: dict[tuple[Hashable, Spec], list[int]] = field(default_factory=dict)
    _forward: tuple[dict[int, list[Call]], Sequence[int]] | None = None
    _dependents: dict[int, frozenset[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._by_id = {call.id: call for call in self.calls}
        for call in self.calls:
            if call.parent is not None:
                self._inside.setdefault(call.parent, []).append(call)
        for call in self.calls:
            taken = set(inputs_of(call).values())
            for number in outputs_of(call).values():
                if number not in taken:
                    self._makers.setdefault(number, []).append(call)
            if self.is_leaf(call):
                for number in taken:
                    self._takers.setdefault(number, []).append(call)
        self._add_writes()

    def _add_writes(self) -> None:
        """Make whoever wrote through a view the maker of what the view is of."""
        hidden = [number for number in self._takers if number not in self._makers and self._writer(number) is not None]
        if not hidden:
            return
        known = self.tensor, self._writer, self._maker, self.takers, self.meaning
        for call, meaning in wholes_written(hidden, *known):
            self._meanings[call.id] = meaning
            self._written.append(call)
            for number in outputs_of(call).values():
                self._makers[number] = [call]
            for _, operand in meaning.operands():
                self._takers.setdefault(operand.tensor, []).append(call)

    def _writer(self, number: int) -> Call | None:
        """The call that wrote a tensor through another view of its memory."""
        producer = self.tensor(number).producer
        return None if producer is None or number in self._makers else self._by_id.get(producer)

    def is_leaf(self, call: Call) -> bool:
        """True if nothing was recorded inside a call."""
        return call.id not in self._inside

    def meaning(self, call: Call) -> Meaning | None:
        """Meaning of a call; None where it cannot be told, and for modules of the user's own."""
        if call.id not in self._meanings:
            self._meanings[call.id] = meaning_of(call, self.framework, lambda number: self.tensor(number).spec)
        return self._meanings[call.id]

    def origin(self, number: int) -> int:
        """The tensor that a call whose meaning is known made with the same bits, for one that came about unseen: a copy that a
        module hands out, a tensor wrapped anew. Itself if there is none.
        """
        if number not in self._origins:
            self._origins[number] = self._find_origin(number)
        return self._origins[number]

    def _find_origin(self, number: int) -> int:
        maker = self._maker(number)
        if maker is not None and self.meaning(maker) is not None:
            if number not in maker.after.values():
                return number
            # MindSpore's writes in place return another object than the one they wrote to: one value under two numbers.
            returned = [leaf.id for _, leaf in leaves(maker.output) if isinstance(leaf, TensorRef)]
            return min((number, *(other for other in self._made_alike(number) if other in returned)))
        if maker is None:  # of several that were made with these bits, the last before it was seen
            return max((other for other in self._made_alike(number) if other < number), default=number)
        return min((number, *self._made_alike(number)))

    def _made_alike(self, number: int) -> Sequence[int]:
        """Tensors with the bits of one that calls made, in the order in which they were seen."""
        bits = self._bits(number)
        if bits is None:
            return ()
        if not self._by_bits:
            for other in sorted(self._makers):
                known = self._bits(other)
                if known is not None and any(map(self.is_leaf, self._makers[other])):
                    self._by_bits.setdefault((known, self.tensor(other).spec), []).append(other)
        return self._by_bits.get((bits, self.tensor(number).spec), ())

    def _bits(self, number: int) -> Hashable | None:
        """The fingerprint of a tensor; where none was recorded, its statistics with the sums that mind the order."""
        tensor = self.tensor(number)
        if tensor.fingerprint is not None or tensor.statistics is None or tensor.statistics.order is None:
            return tensor.fingerprint
        return tensor.statistics, tensor.statistics.order

    def originals(self, number: int) -> Sequence[int]:
        """Tensors that one which came about unseen may be a copy of: a cast to its own type leaves several with the same bits."""
        if self.origin(number) == number:
            return ()
        return [other for other in self._made_alike(number) if other < number]

    def twins(self, number: int) -> list[int]:
        """Other tensors that were computed from the same values in the same way: each has a part of the gradient."""
        call = self.maker(number)
        meaning = None if call is None else self.meaning(call)
        if meaning is None:
            return []
        found = []
        for other in self._made_alike(number):
            maker = self.maker(other)
            twin = None if maker is None or maker is call else self.meaning(maker)
            if twin is not None and self._compute_alike(twin, meaning):
                found.append(other)
        return found

    def _compute_alike(self, one: Meaning, two: Meaning) -> bool:
        """True if two calls compute the same of tensors with the same bits."""
        if one.operation != two.operation or one.arguments.keys() != two.arguments.keys():
            return False
        taken = [
            {path: next(iter(self._made_alike(item.tensor)), item.tensor) for path, item in meaning.operands()}
            for meaning in (one, two)
        ]
        return taken[0] == taken[1] and not different_arguments(one, two)

    def maker(self, number: int) -> Call | None:
        """The call that made a tensor: the innermost, or the next around it whose meaning can be told."""
        return self._maker(self.origin(number))

    def _maker(self, number: int) -> Call | None:
        makers = self._makers.get(number)
        if not makers:
            return None
        innermost = min(makers, key=lambda call: call.order)  # what is inside ends first
        call: Call | None = innermost
        passed: set[int] = set()  # a damaged trace may have calls that are in each other
        while call is not None and call.id not in passed:
            passed.add(call.id)
            if call in makers and self.meaning(call) is not None:
                return call
            call = self._by_id.get(call.parent) if call.parent is not None else None
        return innermost

    def around(self, call: Call) -> Call | None:
        """The module that a call was made in; None outside of all."""
        return self._by_id.get(call.parent) if call.parent is not None else None

    def is_written_state(self, call: Call, number: int) -> bool:
        """True if a call writes to a tensor that was there before the run, by itself or through a view, and `number` is what it has
        left there.
        """
        if call.site.kind is Kind.MODULE:
            return False
        waiting, seen = _written_to(call, number), set[int]()
        while waiting:
            current = waiting.pop()
            if current in seen:
                continue
            seen.add(current)
            maker = self.maker(current)
            if maker is None or self.is_buffer(current):
                return True
            meaning = self.meaning(maker)
            if maker.mutates:
                waiting += _written_to(maker, self.origin(current))
            elif meaning is not None and _is_view(meaning):
                waiting += [operand.tensor for _, operand in meaning.operands()]
        return False

    def makers(self, number: int) -> Sequence[Call]:
        """All calls that put a tensor out: a function, and the modules around it."""
        return self._makers.get(number, ())

    def takers(self, number: int) -> Sequence[Call]:
        """Calls that took a tensor, without the modules around them."""
        return self._takers.get(number, ())

    def slice(self, number: int, known: Collection[int]) -> Slice:
        """Calls that make a tensor of values in `known` and of leaves."""
        calls: dict[int, Call] = {}
        edge: dict[int, None] = {}
        copies: dict[int, int] = {}
        start = self.origin(number)
        waiting, seen, failure = [start], {start}, ""
        while waiting:
            current = waiting.pop()
            if current not in (number, start) and current in known:
                edge[current] = None
                continue
            origin = self.origin(current)
            if origin != current:
                copies[current] = origin
                if origin not in seen:
                    seen.add(origin)
                    waiting.append(origin)
                continue
            maker = self.maker(current)
            if maker is None:
                edge[current] = None
                continue
            if maker.id in calls:
                continue
            calls[maker.id] = maker
            meaning = self.meaning(maker)
            if meaning is None and not inputs_of(maker) and family_of(maker.site.name) in MAKING:
                del calls[maker.id]  # made of numbers or of an array, which were not recorded: taken as it is
                edge[current] = None
                continue
            if meaning is None:
                failure = failure or f"{name_of(maker)} is not among the operations that can be recomputed"
                taken = list(inputs_of(maker).values())
                for inner in self._inside.get(maker.id, ()):  # a module made it of what the modules in it made
                    taken += outputs_of(inner).values()
            else:
                taken = [operand.tensor for _, operand in meaning.operands()]
            if len(calls) > _LONGEST:
                return Slice(
                    start, (), (), f"more than {_LONGEST} calls lie between it and the values that were compared"
                )
            for item in taken:
                if item not in seen:
                    seen.add(item)
                    waiting.append(item)
        ordered = tuple(sorted(calls.values(), key=lambda call: call.order))
        return Slice(start, ordered, tuple(edge), failure, copies)

    def dtype_before_casts(self, number: int) -> str:
        """Element type that a value was computed in, before it was cast or moved."""
        seen = {number}
        while True:
            maker = self.maker(number)
            meaning = self.meaning(maker) if maker is not None else None
            if meaning is None or not (traits_of(meaning).casts or traits_of(meaning).moves):
                return self.tensor(number).spec.dtype
            taken = [operand.tensor for _, operand in meaning.operands()]
            if len(taken) != 1 or taken[0] in seen:
                return self.tensor(number).spec.dtype
            number = taken[0]
            seen.add(number)

    def ancestors(self, number: int) -> set[int]:
        """Tensors that a tensor was made of, directly or not."""
        found: set[int] = set()
        waiting = [number]
        while waiting:
            current = self.origin(waiting.pop())
            maker = self.maker(current)
            meaning = self.meaning(maker) if maker is not None else None
            if maker is None:
                continue
            taken = inputs_of(maker).values() if meaning is None else [item.tensor for _, item in meaning.operands()]
            more = [item for item in taken if item not in found and item != number]
            found.update(more)
            waiting += more
        return found

    def dependents(self, number: int) -> frozenset[int]:
        """Tensors of the forward pass that depend on a tensor, itself and copies that came about unseen among them."""
        known = self._dependents.get(number)
        if known is None:
            if sum(map(len, self._dependents.values())) > _DEPENDENTS:
                self._dependents.clear()
            known = self._dependents[number] = self._find_dependents(number)
        return known

    def _find_dependents(self, number: int) -> frozenset[int]:
        if self._forward is None:
            self._forward = self._index_forward()
        takers, copies = self._forward
        made, waiting = {number}, [number]
        while waiting:
            for call in takers.get(waiting.pop(), ()):
                fresh = set(outputs_of(call).values()) - made
                made |= fresh
                waiting += fresh
        return frozenset(made | {copy for copy in copies if not made.isdisjoint(self.originals(copy))})

    def _index_forward(self) -> tuple[dict[int, list[Call]], Sequence[int]]:
        """Calls of the forward pass by what they take, and tensors that may be copies of others."""
        takers: dict[int, list[Call]] = {}
        seen: dict[int, None] = {}
        for call in self.calls:
            taken = inputs_of(call).values()
            seen.update(dict.fromkeys((*taken, *outputs_of(call).values())))
            # A module that is known as one operation stands for what was recorded in it.
            if call.site.phase is Phase.FORWARD and (self.is_leaf(call) or self.meaning(call) is not None):
                for number in taken:
                    for same in (number, *self.originals(number)):
                        takers.setdefault(same, []).append(call)
        return takers, [number for number in seen if self.originals(number)]

    def depends(self, call: Call, number: int) -> bool:
        """True if a tensor goes into a call, by whatever way."""
        waiting, seen = [*inputs_of(call).values()], set()
        while waiting:
            current = waiting.pop()
            if current == number or number in self.originals(current):
                return True
            if current in seen:
                continue
            seen.add(current)
            maker = self.maker(current)
            if maker is not None:
                waiting += inputs_of(maker).values()
        return False

    # --- gradients -----------------------------------------------------------------------------------------------------

    def index_gradients(self) -> None:
        """Read off the calls who sent which gradient back, and of which value each is the gradient."""
        for call in self.calls:
            if call.site.kind is Kind.MODULE:
                for name, number in call.parameters.items():
                    self._parameters.setdefault(".".join(filter(None, (call.site.name, name))), number)
            taken, made = inputs_of(call), outputs_of(call)
            for gradient in call.gradients:
                if gradient.role is Role.INPUT and gradient.slot in taken:
                    value = taken[gradient.slot]
                    if not self.is_leaf(call):
                        self._by_modules.setdefault(gradient.tensor, (call, value))
                    elif value not in made.values():  # one that hands its argument on sends back what others sent to it
                        self._sent_back.setdefault(value, []).append((call, gradient.tensor))
                elif gradient.role is Role.OUTPUT:
                    output = made.get(gradient.slot, made.get("0") if not gradient.slot else None)
                    if output is not None:
                        self._of_output.setdefault(output, []).append((call, gradient.tensor))

    def contributions(self, number: int) -> Sequence[tuple[Call, int]]:
        """`(call, gradient)` that the calls which took a tensor sent back to it.

        It may have been taken under other numbers too: as a copy that came about unseen (a hook wraps what goes through it), or
        as the result of a call that handed it on and has no gradients of its own (a cast to the same type). Some of these may
        have been counted elsewhere already: see `Recorded.summands`.
        """
        found: list[tuple[Call, int]] = []
        seen = {number, self.origin(number), *self._made_inside(number)}
        waiting = sorted(seen)
        while waiting:
            current = waiting.pop()
            found += self._sent_back.get(current, ())
            for same in (*self.copies_of(current), *self._handed_on(current)):
                if same not in seen:
                    seen.add(same)
                    waiting.append(same)
        return found

    def _made_inside(self, number: int) -> list[int]:
        """Tensors with the bits of one that a layer hands out, made by the calls inside it: a copy may be of any of them."""
        maker = self._maker(number)
        if maker is None or self.is_leaf(maker):
            return []
        alike = self._made_alike(number)
        return [other for other in alike if any(self._is_inside(call, maker) for call in self._makers[other])]

    def _handed_on(self, number: int) -> list[int]:
        """Results with the bits of their operand, of calls that took part in no backward pass."""
        bits = self._bits(number)
        return [
            output
            for call in (self._takers.get(number, ()) if bits is not None else ())
            if not call.gradients
            for output in outputs_of(call).values()
            if output > number and self._bits(output) == bits
        ]

    def copies_of(self, number: int) -> Sequence[int]:
        """Numbers under which calls took what may be a copy of a tensor, made unseen."""
        if self._copied is None:
            self._copied = {}
            for taken in self._takers:
                for original in self.originals(taken):
                    self._copied.setdefault(original, []).append(taken)
        return self._copied.get(number, ())

    def other_contributions(self, number: int) -> Sequence[tuple[Call, int]]:
        """The same of other numbers of a leaf: a weight that is tied, or wrapped anew for each use, has the same bits."""
        bits = self._bits(number)
        if bits is None or self._maker(number) is not None:
            return ()
        if not self._leaves:
            for other in self._sent_back:
                if self._maker(other) is None:
                    self._leaves.setdefault((self._bits(other), self.tensor(other).spec), []).append(other)
        same = self._leaves.get((bits, self.tensor(number).spec), ())
        return [item for other in same if other != number for item in self._sent_back[other]]

    def leaves_of(self, shape: Sequence[int]) -> list[int]:
        """Tensors of one shape that no recorded call made and that calls sent gradients back to."""
        return [
            number
            for number in self._sent_back
            if self.tensor(number).spec.shape == tuple(shape) and self._maker(self.origin(number)) is None
        ]

    def contributions_inside(self, gradient: int) -> Sequence[tuple[Call, int]]:
        """The same within the module that a gradient left; nothing if it left none."""
        if gradient not in self._by_modules:
            return ()
        module, value = self._by_modules[gradient]
        return [item for item in self.contributions(value) if self._is_inside(item[0], module)]

    def _is_inside(self, call: Call, module: Call) -> bool:
        up: int | None = call.parent
        passed: set[int] = set()
        while up is not None and up != module.id and up not in passed:
            passed.add(up)
            up = self._by_id[up].parent if up in self._by_id else None
        return up == module.id

    def parameter(self, name: str) -> int | None:
        """Number of the value of a parameter, by its name in the model, as the first module that holds it had it."""
        return self._parameters.get(name)

    def parameter_name(self, number: int) -> str | None:
        """Name in the model of a parameter, by its value."""
        return next((name for name, value in self._parameters.items() if value == number), None)

    def parameters_like(self, tensor: Tensor) -> list[str]:
        """Names of the parameters that have the bits of a tensor; none of one whose elements are all equal, as of many."""
        known = tensor.statistics
        if tensor.fingerprint is None or (known and known.constant(math.prod(tensor.spec.shape)) is not None):
            return []
        return [
            name
            for name, number in self._parameters.items()
            if self.tensor(number).fingerprint == tensor.fingerprint and self.tensor(number).spec == tensor.spec
        ]

    def gradient(self, number: int | None) -> int | None:
        """The recorded gradient of a tensor, all that came back to it; None if there is none."""
        found = self._of_output.get(number, ()) if number is not None else ()
        return found[-1][1] if found else None

    def has_gradient(self, number: int) -> bool:
        """True if a gradient of a tensor was recorded."""
        return number in self._of_output or bool(self.contributions(number))

    def leads_to_gradients(self, number: int) -> bool:
        """True if a tensor goes, through any number of calls, into one that took part in a backward pass."""
        seen, waiting = {number}, [number]
        while waiting:
            for call in self._takers.get(waiting.pop(), ()):
                if call.gradients:
                    return True
                made = [output for output in outputs_of(call).values() if output not in seen]
                seen.update(made)
                waiting += made
        return False

    def is_buffer(self, number: int | None) -> bool:
        """True if a module holds a tensor as a buffer."""
        return any(number in call.buffers.values() for call in self.calls if call.buffers)

    def senders(self) -> Mapping[int, Sequence[tuple[Call, int]]]:
        """Of each gradient that a call sent back: the call, and the value that it is the gradient of."""
        return _by_gradient(self._sent_back)

    def received(self) -> Mapping[int, Sequence[tuple[Call, int]]]:
        """Of each gradient that came into a call: the call, and its result that it is the gradient of."""
        return _by_gradient(self._of_output)


def _is_view(meaning: Meaning) -> bool:
    """True if the result of a call may share memory with its only operand; what places in a tensor choose is a copy."""
    copied = meaning.called.rpartition(".")[2] == "clone" or len(list(meaning.operands())) > 1
    return traits_of(meaning).views and not copied


def _written_to(call: Call, number: int) -> list[int]:
    """Arguments that a call writes to, as they were before it; where one of its results is known to be one of them, that one."""
    taken = inputs_of(call)
    own = [slot for slot in call.mutates if call.after.get(slot) == number] or call.mutates
    return [taken[slot] for slot in own if slot in taken]


def _by_gradient(by_value: Mapping[int, Sequence[tuple[Call, int]]]) -> Mapping[int, Sequence[tuple[Call, int]]]:
    found: dict[int, list[tuple[Call, int]]] = {}
    for value, items in by_value.items():
        for call, gradient in items:
            found.setdefault(gradient, []).append((call, value))
    return found


def inputs_of(call: Call) -> dict[str, int]:
    """Tensors that came into a call, by slot; parameters and buffers of a module by their names."""
    found = dict(tensor_slots(call.args, call.kwargs))
    found.update(call.parameters)
    found.update(call.buffers)
    return found


def outputs_of(call: Call) -> dict[str, int]:
    """Tensors that came out of a call or were written by it, by slot."""
    found = {slot: leaf.id for slot, leaf in leaves(call.output) if isinstance(leaf, TensorRef)}
    for slot, number in call.after.items():
        found[f"after.{slot}"] = number
    return found


def name_of(call: Call) -> str:
    """A call by its function or its class."""
    return call.site.type if call.site.kind is Kind.MODULE else call.site.name
