"""One journal as data flow: calls in the order in which they ended, values by number, who made and who took each.

    flow.state(7)          Counts of tensor 7: how many NaN, +inf, -inf; None where nothing is known of its values
    flow.taken(call)       numbers of the tensors that come into a call
    flow.made(call)        numbers of the tensors that it returned or wrote
    flow.consumers(7)      calls that take tensor 7, in order

Arguments have their values from before the call, so a call that writes in place takes one number and makes another.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping

from ..model.nonfinite import FINITE, Counts, ValueRange
from ..model.records import Call, Gradient, Role
from ..model.sites import Kind, Phase
from ..model.tensors import LARGEST, Tensor
from ..model.values import tensor_slots
from ..operations import Meaning, is_question, meaning_of
from ..store.trace import Journal

_SEEING = frozenset(("isnan", "isinf", "isfinite", "isposinf", "isneginf"))
"""Functions that ask for NaN and infinities: that is no use of the value."""


class Flow:
    """The calls of one step of one rank, and the values between them."""

    def __init__(self, journal: Journal, framework: str) -> None:
        self.journal, self.framework = journal, journal.header.framework or framework
        self.step, self.rank = journal.header.step, journal.header.rank
        self.calls: list[Call] = sorted(journal.calls(), key=lambda call: call.order)
        self.by_id = {call.id: call for call in self.calls}
        self._states: dict[int, Counts | None] = {}
        self._consumers: dict[int, list[Call]] = defaultdict(list)
        self._meanings: dict[int, Meaning | None] = {}
        self.children: dict[int | None, list[Call]] = defaultdict(list)
        self.maker: dict[int, Call] = {}
        """By tensor: the call that put it out first; the innermost, as a module ends after its inner calls."""
        self._aliases: dict[int, int] = {}  # by tensor: the result that it is, read again
        for call in self.calls:
            self.children[call.parent].append(call)
            for tensor in self.made(call):
                self.maker.setdefault(tensor, call)
        written: dict[object, int] = {}  # by value: the latest result of a call in place
        for call in self.calls:
            for tensor in self._arguments(call):
                if tensor not in self.maker:
                    self._find_alias(tensor, written)
            for tensor in self.taken(call):
                self._consumers[tensor].append(call)
            if call.mutates:
                written |= {self._value(made): made for made in self.made(call)}
        self.parameter_gradients: list[Gradient] = list(journal.parameter_gradients())

    def tensor(self, number: int) -> Tensor:
        return self.journal.tensor(number)

    def state(self, number: int) -> Counts | None:
        """Counts of a tensor; of one that is made up of others, of all its parts together."""
        if number not in self._states:
            self._states[number] = None  # parts that lead in a circle
            self._states[number] = self._count(self.tensor(number))
        return self._states[number]

    def _count(self, tensor: Tensor) -> Counts | None:
        known = tensor.statistics
        if known is not None:
            return Counts(known.nan, known.posinf, known.neginf)
        if tensor.parts:
            told = [part for part in map(self.state, tensor.parts.values()) if part is not None]
            return sum(told, FINITE) if told else None
        if tensor.spec.dtype not in LARGEST or not math.prod(tensor.spec.shape):
            return None if tensor.is_lost else FINITE  # an integer is always finite
        return None

    def is_bad(self, number: int) -> bool:
        return bool(self.state(number))

    def taken(self, call: Call) -> list[int]:
        """Numbers of arguments, parameters and buffers, as they were before the call."""
        return list(dict.fromkeys(self._aliases.get(number, number) for number in self._arguments(call)))

    def _arguments(self, call: Call) -> list[int]:
        numbers = [number for _, number in tensor_slots(call.args, call.kwargs)]
        return [*numbers, *call.parameters.values(), *call.buffers.values()]

    def _find_alias(self, number: int, written: Mapping[object, int]) -> None:
        """A result that is read again has another number, and beneath autograd no maker, as its version moves behind the kernel.
        It is known by its maker, or by its value among those that were written in place.
        """
        producer = self.tensor(number).producer
        maker = self.by_id.get(producer) if producer is not None else None
        value = self._value(number)
        results = self.made(maker) if maker is not None else [written[value]] if value in written else []
        same = next((made for made in results if self._value(made) == value), None)
        if same is not None and producer in (None, self.maker[same].id):
            self._aliases[number] = same

    def _value(self, number: int) -> object:
        tensor = self.tensor(number)
        known = tensor.statistics
        if known is None:
            return number  # like no other
        counts = (known.min, known.max, known.mean, known.norm, known.nan, known.posinf, known.neginf, known.zero)
        return tensor.spec, counts, tensor.fingerprint

    def made(self, call: Call) -> list[int]:
        """Numbers of the tensors that the call returned or wrote to, without those that it hands on unchanged."""
        before = {number for _, number in tensor_slots(call.args, call.kwargs)}
        numbers = dict.fromkeys([*call.returned.values(), *call.after.values()])
        return [number for number in numbers if number not in before]

    def consumers(self, number: int) -> list[Call]:
        """Calls that compute with a value; those that only look at it, or keep it for the user, are left out."""
        return [call for call in self._consumers[number] if self._computes_with(call, number)]

    def is_looked_at(self, number: int) -> bool:
        """True if a value is handed to Python, or tested for NaN."""
        return any(self.only_looks(call) for call in self._consumers[number])

    def _computes_with(self, call: Call, number: int) -> bool:
        if call.site.kind is Kind.SAVE or self.only_looks(call):
            return False
        told = self.meaning(call)
        if told is None or call.site.kind is Kind.MODULE or call.site.phase is Phase.UPDATE:
            return True
        slots = [slot for slot, n in tensor_slots(call.args, call.kwargs) if self._aliases.get(n, n) == number]
        if any(slot in call.mutates for slot in slots):
            return True  # it is written to, and was something else before
        # `ones_like(x)` takes a tensor for its shape alone.
        return any(self._aliases.get(operand.tensor, operand.tensor) == number for _, operand in told.operands())

    def read(self, call: Call) -> list[int]:
        """Numbers of the tensors whose values a call reads: not those that it only writes to, or takes for their shape."""
        told = self.meaning(call)
        if told is None or call.site.kind is Kind.MODULE or call.site.phase is Phase.UPDATE:
            numbers = self.taken(call)
            fills = call.site.kind is not Kind.MODULE and _FILLERS.fullmatch(call.site.name.rpartition(".")[2])
            return numbers[1:] if fills else numbers
        return [self._aliases.get(operand.tensor, operand.tensor) for _, operand in told.operands()]

    def only_looks(self, call: Call) -> bool:
        name = call.site.name.rpartition(".")[2]
        return is_question(call) or name in _SEEING or any(f".{seeing}." in f"{call.site.name}." for seeing in _SEEING)

    def ancestors(self, call: Call) -> Iterator[Call]:
        """Recorded modules around a call, the innermost first."""
        seen = {call.id}
        while call.parent is not None and call.parent in self.by_id and call.parent not in seen:
            seen.add(call.parent)
            call = self.by_id[call.parent]
            yield call

    def descendants(self, call: Call) -> Iterator[Call]:
        """Calls made inside a module, in the order in which they ended."""
        pending, seen = list(self.children[call.id]), {call.id}
        calls = []
        while pending:
            inner = pending.pop()
            if inner.id not in seen:
                seen.add(inner.id)
                calls.append(inner)
                pending.extend(self.children[inner.id])
        return iter(sorted(calls, key=lambda inner: inner.order))

    def meaning(self, call: Call) -> Meaning | None:
        if call.id not in self._meanings:
            self._meanings[call.id] = meaning_of(call, self.framework, lambda number: self.tensor(number).spec)
        return self._meanings[call.id]

    def operation(self, call: Call) -> str:
        """Name of the operation: of the catalog where its meaning is told, otherwise the last part of the function's name."""
        told = self.meaning(call)
        if told is not None:
            return told.operation.rpartition(".")[2]
        name = call.site.name.split(".")[1] if call.site.name.startswith("aten.") else call.site.name.rpartition(".")[2]
        return call.site.type if call.site.kind is Kind.MODULE else name.strip("_").lower()

    def input_ranges(self, call: Call) -> list[ValueRange]:
        """Tensors that come into a call, by the names that its operation has for them."""
        told = self.meaning(call)
        roles = {} if told is None else {operand.tensor: path for path, operand in told.operands()}
        named = [(f"input {slot.removeprefix('kw.')}", number) for slot, number in tensor_slots(call.args, call.kwargs)]
        named += [(name, number) for name, number in (*call.parameters.items(), *call.buffers.items())]
        names: dict[int, str] = {}
        for name, number in named:
            names.setdefault(number, roles.get(number, name))
        return [self.range_of(number, name) for number, name in names.items()]

    def output_ranges(self, call: Call) -> list[ValueRange]:
        named = {number: f"output {slot or '0'}" for slot, number in reversed(call.returned.items())}
        named |= {
            number: f"argument {slot.removeprefix('kw.')} after the call"
            for slot, number in call.after.items()
            if number not in named
        }
        return [self.range_of(number, named[number]) for number in self.made(call) if number in named]

    def range_of(self, number: int, name: str) -> ValueRange:
        tensor = self.tensor(number)
        return ValueRange(name, tensor.spec, tensor.statistics, tensor.is_rough)

    def gradients(self, call: Call, role: Role, count: int | None = None) -> list[Gradient]:
        return [item for item in call.gradients if item.role is role and count in (None, item.count)]


_FILLERS = re.compile(
    r"(uniform|normal|log_normal|trunc_normal|random|bernoulli|exponential|cauchy|geometric|constant|ones|zeros|eye|dirac|sparse"
    r"|orthogonal|(kaiming|xavier)_(uniform|normal))_"
)
"""Functions that write to their first argument, in torch.nn.init and of tensors, without a look at what is in it."""
