"""Calls of one step that made a value which is not finite out of values that are, in the order in which they did.

    masked_fill(scores, mask, -inf)       no suspect: the infinity stands in the call, it was made on purpose
    softmax of it                         no suspect where it is finite; one where a row has nothing but -inf
    log(x), x has zeros                   a suspect; harmless if everything that takes it gives finite results
    a NaN that no recorded call made      a suspect by itself: data, weights, or code that was not recorded

An infinity made on purpose may be handed on (reshaped, added to, scaled). It becomes a suspect's where it turns into NaN, where it
is added up with others, and where there are more of them than came in.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field

from ..model.nonfinite import FINITE, Counts, Pass, Source
from ..model.records import Call, Gradient, Role, is_kept
from ..model.sites import Kind, Phase
from ..model.values import leaves, tensor_slots
from ..operations.nonfinite import REDUCES
from .flow import Flow

_ELEMENTWISE = frozenset(
    ("add", "sub", "mul", "div", "lerp", "maximum", "minimum", "clamp", "relu", "where", "masked_fill")
)
"""Operations in which an infinity of the result comes from one in the same place of an operand."""
_FILLS = (
    "full", "fill", "where", "pad", "scatter", "put", "setitem", "clamp", "clip", "nan_to_num", "threshold", "hardtanh", "maximum",
    "minimum", "copy",
)  # fmt: skip
"""Parts of the names of functions that write a given number into a tensor, or bound it by one."""
_COLLECTIVES = (
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "recv", "scatter", "gather", "reduce",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Suspect:
    """A call, or a place between calls, where something that is not finite arose."""

    order: int
    when: Pass
    call: Call | None
    made: tuple[int, ...]
    """Numbers of the tensors that are not finite."""
    source: Source | None = None
    """Told by the place alone; None: to be told from the operation and its ranges."""
    slots: tuple[str, ...] = ()
    """Of `made`: which argument's gradient, or which parameter's."""
    between: tuple[Call | None, Call | None] = (None, None)
    """The last recorded call before it and the first behind it, where code that was not recorded made it."""
    given: tuple[int, ...] = ()
    """Gradients that came in."""
    purposes: tuple[Call, ...] = field(default=(), compare=False)
    """Calls that made the infinities that came in, on purpose."""


def written_infinities(call: Call) -> Counts:
    """Numbers among a call's arguments that are not finite: `masked_fill(x, mask, float("-inf"))`."""
    counts = FINITE
    for value in (*call.args, *call.kwargs.values()):
        for _, leaf in leaves(value):
            if isinstance(leaf, float) and not math.isfinite(leaf):
                counts += Counts(int(math.isnan(leaf)), int(leaf == math.inf), int(leaf == -math.inf))
    return counts


class ForwardSuspects:
    """Walks through the calls of a step: results, and at level op the kernels of the backward pass."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._known: set[int] = set()  # accounted for: made by a suspect, or a consequence
        self.purposes: dict[int, Call | Suspect] = {}
        """Infinities on purpose, by tensor: the call that made them, or the place where they came in from outside."""
        self._held: dict[int, str] = {
            number: name for call in flow.calls for name, number in (*call.parameters.items(), *call.buffers.items())
        }
        gradients = [*(g for call in flow.calls for g in call.gradients), *flow.parameter_gradients]
        self._first_gradient = min((g.order for g in gradients if flow.is_bad(g.tensor)), default=None)
        self.suspects: list[Suspect] = []
        for call in flow.calls:
            if call.site.kind is not Kind.SAVE:
                self._take(call)
                self._make(call)

    def on_purpose(self) -> Iterator[tuple[Call, int, bool]]:
        """Infinities on purpose: the call that made them or took them first, their tensor, and whether they were made there."""
        for number, origin in self.purposes.items():
            if isinstance(origin, Call) and number in self._flow.made(origin):
                yield origin, number, True
            elif isinstance(origin, Suspect) and number in origin.made and origin.call is not None:
                yield origin.call, number, False

    # --- what comes in ------------------------------------------------------------------------------------------

    def _take(self, call: Call) -> None:
        flow = self._flow
        for number in flow.taken(call):
            if not flow.is_bad(number) or number in self._known or number in self.purposes:
                continue
            tensor = flow.tensor(number)
            writer = flow.by_id.get(tensor.producer) if tensor.producer is not None else None
            made = [] if writer is None or writer is call else flow.made(writer)
            if any(other in self._known for other in made):
                self._known.add(number)  # the same memory through another view
                continue
            origin = next((self.purposes[other] for other in made if other in self.purposes), None)
            if origin is not None:
                self.purposes[number] = origin
                continue
            if self._first_gradient is not None and self._first_gradient < call.order:
                self._known.add(number)  # gradients are not finite before it: it is one, or was made with one
                continue
            self._leaf(call, number)

    def _leaf(self, call: Call, number: int) -> None:
        """A value that is not finite, and no recorded call put it out."""
        flow = self._flow
        around = [call, *flow.ancestors(call)]
        holder = [outer for outer in around if number in flow.taken(outer)][-1]
        counts = flow.state(number) or FINITE
        name = self._held.get(number)
        weight = name is not None and number in {n for outer in flow.calls for n in outer.parameters.values()}
        weight = weight or self._is_weight(call, number)
        inside = holder.parent is not None and holder.parent in flow.by_id and name is None and not weight
        if inside:
            parent = flow.by_id[holder.parent or 0]
            before = [item for item in flow.children[parent.id] if item.order < holder.order and item.id < holder.id]
            neighbours = (before[-1] if before else None, holder)
            suspect = Suspect(call.order, Pass.FORWARD, parent, (number,), Source.UNRECORDED, between=neighbours)
        else:
            stray = flow.tensor(number).requires_grad and not weight and call.site.kind is not Kind.MODULE
            source = Source.WEIGHTS if weight or name is not None else Source.UNRECORDED if stray else Source.DATA
            suspect = Suspect(call.order, Pass.FORWARD, holder, (number,), source)
        if not counts.nan and not weight:  # it may be a mask: whether it does harm is seen behind it
            self.purposes[number] = suspect
        else:
            self._known.add(number)
            self.suspects.append(suspect)

    def _is_weight(self, call: Call, number: int) -> bool:
        told = self._flow.meaning(call)
        roles = () if told is None else [path for path, operand in told.operands() if operand.tensor == number]
        trained = self._flow.tensor(number).requires_grad and self._flow.tensor(number).producer is None
        kinds = ("weight", "bias", "params", "w_ih", "w_hh", "in_proj")
        return trained and any(role.partition(".")[0] in kinds for role in roles)

    # --- what goes out ------------------------------------------------------------------------------------------

    def _make(self, call: Call) -> None:
        flow = self._flow
        fresh = [n for n in flow.made(call) if flow.is_bad(n) and n not in self._known and n not in self.purposes]
        if not fresh:
            return
        taken = [number for number in flow.taken(call) if flow.is_bad(number)]
        if any(number in self._known for number in taken):
            self._known.update(fresh)  # a consequence
            return
        written = written_infinities(call)
        inner = [item for item in flow.descendants(call) if any(n in self._known for n in flow.made(item))]
        if inner and call.site.kind is Kind.MODULE:  # made of what is inside, by code that was not recorded
            self._known.update(fresh)
            return
        if not taken and not (written and self._is_fill(call)):
            self._known.update(fresh)
            elsewhere = Source.ELSEWHERE if self._is_collective(call) else None
            self.suspects.append(Suspect(call.order, _pass_of(call), call, tuple(fresh), elsewhere))
            return
        self._hand_on(call, taken, written, fresh)

    def _hand_on(self, call: Call, taken: Sequence[int], written: Counts, fresh: Sequence[int]) -> None:
        """Infinities that were made on purpose come in."""
        flow = self._flow
        states = [flow.state(number) or FINITE for number in fresh]
        nan_in = bool(written.nan) or any((flow.state(number) or FINITE).nan for number in taken)
        operation = flow.operation(call)
        turned = any(state.nan for state in states) and not nan_in
        summed = self._adds_up(call, operation, taken)
        origins = [self.purposes[number] for number in taken if number in self.purposes]
        if turned or summed or self._are_more(operation, taken, written, fresh):
            self._known.update(fresh)
            given = [origin for origin in origins if isinstance(origin, Suspect)]
            if given and summed:  # no mask is added up: the data were so
                self._known.update(given[0].made)
                self.suspects.append(given[0])
                return
            purposes = tuple(origin for origin in origins if isinstance(origin, Call))
            source = Source.PASSED_ON if summed and not turned else None
            self.suspects.append(Suspect(call.order, _pass_of(call), call, tuple(fresh), source, purposes=purposes))
        else:
            origin = call if written or not origins else origins[0]
            self.purposes.update(dict.fromkeys(fresh, origin))

    def _is_fill(self, call: Call) -> bool:
        """Does the call put a number that stands in it into a tensor? A number that is computed with is no mask."""
        words = {self._flow.operation(call), call.site.name.rpartition(".")[2].lower()}
        return "tensor" in words or any(part in word for word in words for part in _FILLS)

    def _adds_up(self, call: Call, operation: str, taken: Sequence[int]) -> bool:
        """Does one of these values meet others in a sum? A bias, and the first operand of addmm, are added in their own places."""
        if operation not in REDUCES:
            return False
        told = self._flow.meaning(call)
        roles = {} if told is None else {operand.tensor: path for path, operand in told.operands()}
        beside = {"linear": "bias", "conv": "bias", "conv_transpose": "bias"}.get(
            operation, "input" if operation in ("addmm", "baddbmm", "addbmm", "addr") else ""
        )
        return any(roles.get(number, "?") != beside for number in taken)

    def _are_more(self, operation: str, taken: Sequence[int], written: Counts, fresh: Sequence[int]) -> bool:
        """Has an elementwise result more infinities than its operands have, each spread over the result?"""
        if operation not in _ELEMENTWISE or written or len(fresh) != 1:
            return False
        total = math.prod(self._flow.tensor(fresh[0]).spec.shape)
        expected = 0
        for number in taken:
            tensor, state = self._flow.tensor(number), self._flow.state(number) or FINITE
            if tensor.is_rough:
                return False
            expected += state.inf * max(total // max(math.prod(tensor.spec.shape), 1), 1)
        return (self._flow.state(fresh[0]) or FINITE).inf > expected

    def _is_collective(self, call: Call) -> bool:
        name = call.site.name
        return ("distributed" in name or "communication" in name) and name.rpartition(".")[2].startswith(_COLLECTIVES)


def _pass_of(call: Call) -> Pass:
    return {Phase.UPDATE: Pass.UPDATE, Phase.BACKWARD: Pass.BACKWARD}.get(call.site.phase, Pass.FORWARD)


def gradient_suspects(flow: Flow) -> Iterator[Suspect]:
    """Calls whose backward pass made a gradient that is not finite out of gradients that are."""
    # Calls with a gradient that is not finite at either end.
    bad = {call.id for call in flow.calls if any(flow.is_bad(item.tensor) for item in call.gradients)}
    for call in flow.calls:
        if call.id in bad and call.site.kind is not Kind.SAVE:
            for count in sorted({item.count for item in call.gradients}):
                yield from _suspects_of(flow, call, count, bad)
    yield from _parameter_suspects(flow, bad)


def _suspects_of(flow: Flow, call: Call, count: int, bad: set[int]) -> Iterator[Suspect]:
    incoming = flow.gradients(call, Role.OUTPUT, count)
    outgoing = [item for item in flow.gradients(call, Role.INPUT, count) if flow.is_bad(item.tensor)]
    broken = [item for item in incoming if flow.is_bad(item.tensor)]
    if outgoing and not broken and not any(inner.id in bad for inner in flow.descendants(call)):
        order, slots = min(item.order for item in outgoing), tuple(item.slot for item in outgoing)
        made, given = (tuple(item.tensor for item in items) for items in (outgoing, incoming))
        yield Suspect(order, Pass.BACKWARD, call, made, slots=slots, given=given)
    for item in broken:
        yield from _from_nowhere(flow, call, item)


def _from_nowhere(flow: Flow, call: Call, item: Gradient) -> Iterator[Suspect]:
    """A gradient that comes into a call and is not finite, although no recorded call that took its result made one that is."""
    number = call.returned.get(item.slot)
    if number is None:
        return
    others = [other for other in flow.consumers(number) if other is not call]
    takers = [other for other in others if any(g.role is Role.INPUT for g in other.gradients)]
    slots = [
        gradient
        for other in takers
        for gradient in flow.gradients(other, Role.INPUT)
        if dict(tensor_slots(other.args, other.kwargs)).get(gradient.slot) == number
    ]
    if any(flow.is_bad(gradient.tensor) for gradient in slots):
        return
    if any(flow.is_bad(g.tensor) and g.order < item.order for other in takers for g in other.gradients):
        return  # a taker's other gradients are not finite: which of them reached this one is not known
    if len(slots) > 1:
        given = tuple(gradient.tensor for gradient in slots)
        yield Suspect(item.order, Pass.BACKWARD, call, (item.tensor,), Source.OVERFLOW, slots=(item.slot,), given=given)
        return
    # The innermost module around it that does not itself return this value; its code behind the call was not recorded.
    around = [outer for outer in flow.ancestors(call) if number not in outer.returned.values()]
    parent = around[0] if around else None
    if parent is not None and any(flow.is_bad(g.tensor) for g in flow.gradients(parent, Role.OUTPUT)):
        return  # it came in from outside the module
    later = [other for other in flow.calls if other.id > call.id and other.parent == call.parent]
    behind = [other for other in later if other.site.kind is not Kind.SAVE]
    yield Suspect(
        item.order, Pass.BACKWARD, parent, (item.tensor,), Source.UNRECORDED, slots=(item.slot,),
        between=(call, behind[0] if behind else None),
    )  # fmt: skip


def _parameter_suspects(flow: Flow, bad: set[int]) -> Iterator[Suspect]:
    """Gradients of parameters that are not finite although every gradient before them is."""
    earliest = min((g.order for call in flow.calls for g in call.gradients if flow.is_bad(g.tensor)), default=None)
    for gradient in flow.parameter_gradients:
        if not flow.is_bad(gradient.tensor) or (earliest is not None and earliest < gradient.order):
            continue
        owner = gradient.slot.rpartition(".")[0]
        calls = [call for call in flow.calls if call.site.kind is Kind.MODULE and call.site.name == owner]
        call = calls[-1] if calls else None
        given = () if call is None else tuple(item.tensor for item in flow.gradients(call, Role.OUTPUT))
        yield Suspect(gradient.order, Pass.BACKWARD, call, (gradient.tensor,), slots=(gradient.slot,), given=given)


def is_uninitialised(flow: Flow, call: Call) -> bool:
    """Is the call's result whatever was in memory?"""
    kinds = ("empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted")
    return flow.operation(call) in kinds


@dataclass(frozen=True, slots=True)
class Effect:
    """Later effect of a value that is not finite."""

    harmful: bool
    reached: int
    """Calls that it reached."""
    swallowed: tuple[Call, ...] = ()
    """Calls that took it and gave finite results."""


def effect_of(flow: Flow, suspect: Suspect) -> Effect:
    """Follow a forward suspect's values: harmless if every call that takes one gives finite results in the end."""
    pending, seen = list(suspect.made), set(suspect.made)
    reached: dict[int, Call] = {}
    swallowed: dict[int, Call] = {}
    harmful = False
    while pending:
        number = pending.pop()
        takers = [call for call in flow.consumers(number) if number not in call.returned.values()]
        if not takers:
            module = _that_ends_it(flow, number)
            harmful = harmful or module is None
            swallowed |= {} if module is None else {module.id: module}
        for call in takers:
            broken = [made for made in flow.made(call) if flow.is_bad(made)]
            if broken:
                reached[call.id] = call
                pending += [made for made in broken if made not in seen]
                seen.update(broken)
            elif call.site.kind is not Kind.MODULE or not flow.children[call.id]:
                swallowed[call.id] = call
    if suspect.call is not None and is_uninitialised(flow, suspect.call):
        harmful = harmful and bool(reached)  # memory that nobody reads may hold anything
    if suspect.source in (Source.DATA, Source.WEIGHTS) and not reached:
        harmful = False
    return Effect(harmful, len(reached), tuple(swallowed.values()))


def _that_ends_it(flow: Flow, number: int) -> Call | None:
    """The module in which a value is left behind that nobody takes: one around its maker that gives finite results."""
    maker = flow.maker.get(number)
    for module in flow.ancestors(maker) if maker is not None else ():
        results = list(module.returned.values())
        if number in results:
            continue
        if results and not any(flow.is_bad(result) for result in results):
            return module
        return None
    return None


def stray_suspects(flow: Flow, purposes: Container[int], harm: bool) -> Iterator[Suspect]:
    """Values that are not finite where no suspect explains them: results of the step, values that were saved, gradients."""
    for call in flow.calls:
        numbers = [number for number in call.returned.values() if flow.is_bad(number) and number not in purposes]
        numbers = [number for number in numbers if not is_uninitialised(flow, flow.maker.get(number, call))]
        if call.site.kind is Kind.SAVE:
            if is_kept(call):
                continue
            numbers = [number for number in numbers if number not in flow.maker or flow.maker[number] is call]
        else:
            ends = [number for number in numbers if not flow.consumers(number)]
            numbers = [number for number in ends if not any(True for _ in flow.ancestors(flow.maker.get(number, call)))]
        if numbers:
            yield Suspect(call.order, _pass_of(call), call, tuple(numbers), Source.UNRECORDED)
    lines = [(item, call) for call in flow.calls for item in call.gradients if flow.is_bad(item.tensor)] if harm else []
    for item, call in sorted(lines, key=lambda line: line[0].order)[:1]:
        yield Suspect(item.order, Pass.BACKWARD, call, (item.tensor,), Source.UNRECORDED, slots=(item.slot,))


def gradients_do_harm(flow: Flow) -> bool:
    """Do gradients that are not finite reach a parameter, or the end of the recorded graph?"""
    if any(flow.is_bad(item.tensor) for item in flow.parameter_gradients):
        return True
    for call in flow.calls:
        numbers = dict(tensor_slots(call.args, call.kwargs))
        for item in flow.gradients(call, Role.INPUT):
            maker = flow.maker.get(numbers.get(item.slot, -1))
            if flow.is_bad(item.tensor) and (maker is None or not flow.gradients(maker, Role.OUTPUT)):
                return True  # of a leaf
        arrives = any(flow.is_bad(item.tensor) for item in flow.gradients(call, Role.OUTPUT))
        if arrives and not flow.gradients(call, Role.INPUT) and not flow.children[call.id]:
            return True  # what came of it is not recorded
    return False
