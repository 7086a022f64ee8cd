"""One side of a comparison as a graph of values: which call made a tensor, which calls took it, where its gradients came from.

    side.maker(17)             the innermost call that put out tensor 17, or that has a meaning
    side.slice(17, known)      calls between tensor 17 and the values in `known`, and the tensors at that edge
    side.contributions(17)     gradients that the calls which took tensor 17 sent back

No tensor is opened.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from ..model.records import Call, Role
from ..model.sites import Kind
from ..model.tensors import Tensor
from ..model.values import TensorRef, leaves, tensor_slots
from .meanings import Meaning
from .telling import meaning_of

_LONGEST = 256
"""Calls between two compared values beyond which nobody would believe a region."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Calls that make one tensor out of the tensors at the edge, in the order in which they ended."""

    tensor: int
    calls: tuple[Call, ...]
    edge: tuple[int, ...]
    failure: str = ""
    """Why it cannot be recomputed: a call whose meaning is not known."""


@dataclass(slots=True)
class Side:
    """Calls of one journal, indexed by the tensors they make and take."""

    framework: str
    calls: Sequence[Call]
    tensor: Callable[[int], Tensor]
    level: str = "mix"
    _by_id: dict[int, Call] = field(default_factory=dict)
    _inside: dict[int, list[Call]] = field(default_factory=dict)
    _makers: dict[int, list[Call]] = field(default_factory=dict)
    _takers: dict[int, list[Call]] = field(default_factory=dict)
    _meanings: dict[int, Meaning | None] = field(default_factory=dict)
    _sent_back: dict[int, list[tuple[Call, int]]] = field(default_factory=dict)
    _of_output: dict[int, list[tuple[Call, int]]] = field(default_factory=dict)

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

    def is_leaf(self, call: Call) -> bool:
        """Whether nothing was recorded inside a call."""
        return call.id not in self._inside

    def meaning(self, call: Call) -> Meaning | None:
        """Meaning of a call; None where it cannot be told, and for modules of the user's own."""
        if call.id not in self._meanings:
            self._meanings[call.id] = meaning_of(call, self.framework, lambda number: self.tensor(number).spec)
        return self._meanings[call.id]

    def maker(self, number: int) -> Call | None:
        """The call that made a tensor: the innermost, or the next around it whose meaning can be told."""
        makers = self._makers.get(number)
        if not makers:
            return None
        innermost = min(makers, key=lambda call: call.order)  # what is inside ends first
        call: Call | None = innermost
        while call is not None:
            if call in makers and self.meaning(call) is not None:
                return call
            call = self._by_id.get(call.parent) if call.parent is not None else None
        return innermost

    def takers(self, number: int) -> Sequence[Call]:
        """Calls that took a tensor, without the modules around them."""
        return self._takers.get(number, ())

    def is_container(self, call: Call) -> bool:
        """Whether a call is a module that others were recorded in, and has no meaning of its own."""
        return call.site.kind is Kind.MODULE and call.id in self._inside and self.meaning(call) is None

    def slice(self, number: int, known: Collection[int]) -> Slice:
        """Calls that make a tensor of values in `known` and of leaves."""
        calls: dict[int, Call] = {}
        edge: dict[int, None] = {}
        waiting, seen, failure = [number], {number}, ""
        while waiting:
            current = waiting.pop()
            maker = self.maker(current)
            if maker is None or (current != number and current in known):
                edge[current] = None
                continue
            if maker.id in calls:
                continue
            calls[maker.id] = maker
            meaning = self.meaning(maker)
            if meaning is None:
                failure = failure or f"{name_of(maker)} is not among the operations that can be recomputed"
                taken = list(inputs_of(maker).values())
            else:
                taken = [operand.tensor for _, operand in meaning.operands()]
            if len(calls) > _LONGEST:
                return Slice(number, (), (), f"more than {_LONGEST} calls lie between it and the values that were compared")
            for item in taken:
                if item not in seen:
                    seen.add(item)
                    waiting.append(item)
        ordered = tuple(sorted(calls.values(), key=lambda call: call.order))
        return Slice(number, ordered, tuple(edge), failure)

    # --- gradients -----------------------------------------------------------------------------------------------------

    def index_gradients(self) -> None:
        """Read off the calls who sent which gradient back, and of which value each is the gradient."""
        for call in self.calls:
            if not self.is_leaf(call):
                continue
            taken, made = inputs_of(call), outputs_of(call)
            for gradient in call.gradients:
                if gradient.role is Role.INPUT and gradient.slot in taken:
                    self._sent_back.setdefault(taken[gradient.slot], []).append((call, gradient.tensor))
                elif gradient.role is Role.OUTPUT:
                    value = made.get(gradient.slot, made.get("0") if not gradient.slot else None)
                    if value is not None:
                        self._of_output.setdefault(value, []).append((call, gradient.tensor))

    def contributions(self, number: int) -> Sequence[tuple[Call, int]]:
        """`(call, gradient)` that the calls which took a tensor sent back to it."""
        return self._sent_back.get(number, ())

    def senders(self) -> Mapping[int, Sequence[tuple[Call, int]]]:
        """Of each gradient that a call sent back: the call, and the value that it is the gradient of."""
        found: dict[int, list[tuple[Call, int]]] = {}
        for value, items in self._sent_back.items():
            for call, gradient in items:
                found.setdefault(gradient, []).append((call, value))
        return found

    def received(self) -> Mapping[int, Sequence[tuple[Call, int]]]:
        """Of each gradient that came into a call: the call, and its result that it is the gradient of."""
        found: dict[int, list[tuple[Call, int]]] = {}
        for value, items in self._of_output.items():
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
