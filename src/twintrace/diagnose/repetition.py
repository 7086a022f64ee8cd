"""Two runs of one script, event by event: the first call that differs, by cause.

    torch.randn(4)            the same comes in (nothing), something else goes out, and it draws: random numbers without a seed
    linear(x, w), x differs   no recorded call made x: data, their order, or initial weights
    index_add on cuda         the same bits in, others out: a kernel that is not deterministic
    other calls               the two runs take other ways

Two runs of one script make the same calls in the same order, so nothing is paired: the events of a step are compared one by one, by
fingerprint. A difference that nothing takes over (memory that is overwritten before it is read) does not count.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from ..model.records import Call, Gradient, Role, is_kept
from ..model.repetition import FirstDifference, Unsteadiness
from ..model.sites import Kind
from ..model.tensors import Statistics, Tensor, in_another_order, same_values
from ..model.values import TensorRef, Value, leaves, tensor_slots
from ..operations import traits_of
from ..store.trace import Journal, Trace
from .flow import Flow
from .suspects import is_uninitialised

_DRAWS = (
    "rand", "normal_", "uniform_", "bernoulli", "multinomial", "poisson", "exponential_", "cauchy_", "geometric_", "dropout",
    "random_", "kaiming_", "xavier_", "orthogonal_", "trunc_normal_", "sparse_", "gumbel", "shuffle", "standard_normal",
)  # fmt: skip
"""Parts of the names of functions that draw, for those whose meaning is not told."""
_AHEAD = 8
"""Calls behind a draw among which the permutation of a data loader is looked for."""


_TOLD: Mapping[Unsteadiness, tuple[str, str]] = {
    Unsteadiness.RANDOM: (
        "it draws, and its generator was not seeded, or drew another number of times before",
        "call tt.seed_all(0), or the framework's own seed, at the beginning; twintrace twice --seed 0 shows what is left then",
    ),
    Unsteadiness.ORDER: (
        "the same data come in another order: a data loader that shuffles without a seed, or several of its workers",
        "give the data loader a generator with a seed, and each worker its own (worker_init_fn), or call tt.seed_all(0)",
    ),
    Unsteadiness.WEIGHTS: (
        "they were initialised with random numbers without a seed, or loaded from elsewhere",
        "call tt.seed_all(0) before the model is built",
    ),
    Unsteadiness.DATA: (
        "it was made outside what was recorded: numpy or Python that draw without a seed, files, the time",
        "seed numpy and Python (tt.seed_all), and what reads the data",
    ),
    Unsteadiness.NUMBER: (
        "it is no tensor: Python's random, the time, the hash of a text, or a value that was read back",
        "seed Python's random (tt.seed_all), set PYTHONHASHSEED",
    ),
    Unsteadiness.KERNEL: (
        "the same bits come in and others go out: it adds in another order each time (atomics)",
        "torch.use_deterministic_algorithms(True) and CUBLAS_WORKSPACE_CONFIG=:4096:8; cudnn.benchmark off",
    ),
    Unsteadiness.THREADS: (
        "the same goes in, and the order of the work decides: threads, or memory that one writes while another reads",
        "repeat with OMP_NUM_THREADS=1; if it stays, record with level='op' to see inside",
    ),
    Unsteadiness.UNINITIALISED: (
        "its result is whatever was in memory, and it is read before it is written to",
        "use zeros, or write to it before it is read",
    ),
    Unsteadiness.OUTSIDE: (
        "it is made in the module's own code, which was not recorded",
        "repeat with --level mix, which sees functions as well as modules",
    ),
    Unsteadiness.FLOW: (
        "everything before is the same, and the script takes another way: the order of a set (PYTHONHASHSEED), the time, random",
        "set PYTHONHASHSEED=0, seed Python's random",
    ),
}
"""Reason and remedy."""


@dataclass(frozen=True, slots=True)
class Event:
    """A call that ended, or a gradient that arrived."""

    key: tuple[str, ...]
    call: Call | None
    gradient: Gradient | None = None


@dataclass(slots=True)
class Count:
    """Extent of the comparison."""

    calls: int = 0
    values: int = 0
    untold: int = 0
    tainted: set[int] = field(default_factory=set)


def first_difference(left: Trace, right: Trace) -> tuple[FirstDifference | None, Count]:
    """The first event in which two runs of one script differ with effect, and how much was compared up to there."""
    count = Count()
    for place in sorted({*left.places, *right.places}):
        if place not in left.places or place not in right.places:
            which = "first" if place in left.places else "second"
            what = f"only the {which} run has step {place[0]}"
            return FirstDifference(*place, Unsteadiness.FLOW, what, *_TOLD[Unsteadiness.FLOW]), count
        difference = difference_in_step(left, right, place, count)
        if difference is not None:
            return difference, count
        left.forget()
        right.forget()
    return None, count


def difference_in_step(
    left: Trace, right: Trace, place: tuple[int, int], count: Count | None = None
) -> FirstDifference | None:
    """The same within one step of one rank, which both have."""
    count = count or Count()
    one, two = left.journal(*place), right.journal(*place)
    values = _equal_values(one, two)
    if values is None:
        return _Pair(left, right, one, two, count).first()
    count.calls, count.values = count.calls + len(one), count.values + values
    return None


def _equal_values(one: Journal, two: Journal) -> int | None:
    """Number of values of two journals, if these are the same in the same order: then nothing else needs to be read."""
    if len(one) != len(two):
        return None
    count = 0
    for left, right in zip_longest(one.tensors(), two.tensors()):
        if left is None or right is None or not left.fingerprint:
            return None
        if (left.spec, left.fingerprint) != (right.spec, right.fingerprint):
            return None
        count += 1
    return count


class _Pair:
    """One step of one rank, of both runs."""

    def __init__(self, left: Trace, right: Trace, one: Journal, two: Journal, count: Count) -> None:
        self._traces = left, right
        self._one, self._two = Flow(one, left.framework), Flow(two, right.framework)
        self._partners = {str(call.site): call for call in self._two.calls}
        self._differing: list[int] = []  # tensors of the present call that differ for the first time
        self._count = count
        self._count.tainted.clear()  # numbers belong to a journal

    def first(self) -> FirstDifference | None:
        events = list(_events(self._one)), list(_events(self._two))
        read_back: FirstDifference | None = None  # a difference that went to Python, and nowhere else yet
        for one, two in zip_longest(*events):
            if one is None or two is None or one.key != two.key:
                return read_back or self._other_calls(events, one, two)
            difference = self._gradients(one, two) if one.gradient is not None else self._calls(one.call, two.call)
            if difference is None:
                continue
            if not self._has_effect(difference):
                read_back = read_back or (None if difference.cause is Unsteadiness.UNINITIALISED else difference)
                continue
            return read_back if read_back is not None and difference.cause is Unsteadiness.NUMBER else difference
        return None

    def _same(self, left: int, right: int) -> bool:
        """Do two tensors have the same bits? By fingerprint; without one, by statistics."""
        one, two = self._one.tensor(left), self._two.tensor(right)
        if one.parts or two.parts:
            return one.parts.keys() == two.parts.keys() and all(
                self._same(number, two.parts[name]) for name, number in one.parts.items()
            )
        if one.fingerprint and two.fingerprint:
            self._count.values += 1
            return one.spec == two.spec and one.fingerprint == two.fingerprint
        if one.statistics is None or two.statistics is None:
            self._count.untold += 1
            return one.spec == two.spec
        self._count.values += 1
        return one.spec == two.spec and one.statistics == two.statistics

    def _calls(self, one: Call | None, two: Call | None) -> FirstDifference | None:
        assert one is not None
        assert two is not None
        self._count.calls += 1
        tainted = self._count.tainted
        read = {*self._one.read(one), *one.parameters.values(), *one.buffers.values()}
        both = zip(self._one.taken(one), self._two.taken(two), strict=False)
        taken = [(a, b) for a, b in both if a in read and not self._same(a, b)]
        fresh = [pair for pair in taken if pair[0] not in tainted]
        made = [(a, b) for a, b in zip(_returned(one), _returned(two), strict=False) if not self._same(a, b)]
        new = [pair for pair in made if pair[0] not in tainted]
        tainted.update(a for a, _ in (*taken, *made))
        self._differing = [a for a, _ in (*fresh, *new)]
        if one.site.kind is Kind.SAVE:
            what = (
                f"the value that was saved differs, and no recorded call made it: {self._gap(*new[0])}" if new else ""
            )
            return self._difference(one, Unsteadiness.OUTSIDE, what) if new else None
        if fresh:
            return self._of_leaf(one, fresh)
        numbers = _numbers(one, two)
        if numbers and not taken:
            what = f"an argument is {numbers[0]} in one run and {numbers[1]} in the other"
            return self._difference(one, Unsteadiness.NUMBER, what)
        if new and not taken:
            return self._of_call(one, new)
        return None

    def _gradients(self, one: Event, two: Event) -> FirstDifference | None:
        assert one.gradient is not None
        assert two.gradient is not None
        tainted = self._count.tainted
        if self._same(one.gradient.tensor, two.gradient.tensor):
            return None
        known = one.gradient.tensor in tainted
        tainted.add(one.gradient.tensor)
        call = one.call
        if known or call is None or one.gradient.role is not Role.INPUT:
            # A gradient that comes into a call, or into a parameter, is the sum of those that calls gave: they are looked at.
            if known or call is not None or any(g.tensor in tainted for c in self._one.calls for g in c.gradients):
                return None
            what = f"the gradient of {one.gradient.slot} differs"
            return self._kernel(None, what, self._one.tensor(one.gradient.tensor), backward=True)
        before = [item.tensor for item in self._one.gradients(call, Role.OUTPUT, one.gradient.count)]
        values = [*self._one.taken(call), *_returned(call)]
        if any(number in tainted for number in (*before, *values)):
            return None
        what = f"the same gradients come in, and that of input {one.gradient.slot} differs"
        if call.site.kind is Kind.MODULE and self._one.meaning(call) is None:
            return self._difference(call, Unsteadiness.OUTSIDE, what, backward=True)
        return self._kernel(call, what, self._one.tensor(one.gradient.tensor), backward=True)

    # --- causes -------------------------------------------------------------------------------------------------

    def _of_call(self, call: Call, pairs: Sequence[tuple[int, int]]) -> FirstDifference:
        what = f"the same comes in, and {self._gap(*pairs[0])}"
        if is_uninitialised(self._one, call):
            return self._difference(call, Unsteadiness.UNINITIALISED, what)
        if self._draws(call):
            return self._difference(call, Unsteadiness.ORDER if self._orders_data(call) else Unsteadiness.RANDOM, what)
        if call.site.kind is Kind.MODULE and self._one.meaning(call) is None:
            return self._difference(call, Unsteadiness.OUTSIDE, what)
        return self._kernel(call, what, self._one.tensor(pairs[0][0]))

    def _kernel(self, call: Call | None, what: str, tensor: Tensor, *, backward: bool = False) -> FirstDifference:
        on_host = tensor.device.partition(":")[0] == "cpu"
        return self._difference(call, Unsteadiness.THREADS if on_host else Unsteadiness.KERNEL, what, backward=backward)

    def _of_leaf(self, call: Call, pairs: Sequence[tuple[int, int]]) -> FirstDifference:
        """Values that no recorded call made."""
        number = pairs[0][0]
        name = next(
            (item for item, known in (*call.parameters.items(), *call.buffers.items()) if known == number), None
        )
        slot = next((item for item, known in tensor_slots(call.args, call.kwargs) if known == number), None)
        what = f"{name or f'input {slot}'} differs, and no recorded call made it: {self._gap(*pairs[0])}"
        told = self._one.meaning(call)
        roles = [] if told is None else [path for path, operand in told.operands() if operand.tensor == number]
        tensor = self._one.tensor(number)
        weight = any(role.partition(".")[0] in ("weight", "bias", "params") for role in roles)
        if name is not None or (weight and tensor.requires_grad and tensor.producer is None):
            return self._difference(call, Unsteadiness.WEIGHTS, what)
        order = self._is_another_order(call, slot, pairs[0])
        return self._difference(call, Unsteadiness.ORDER if order else Unsteadiness.DATA, what)

    def _is_another_order(self, call: Call, slot: str | None, pair: tuple[int, int]) -> bool:
        """Are they the same values in other places, within this tensor or over all steps?"""
        one, two = self._one.tensor(pair[0]), self._two.tensor(pair[1])
        known = one.statistics, two.statistics
        if known[0] is not None and known[1] is not None and one.spec == two.spec:
            many = math.prod(one.spec.shape)
            if same_values(known[0], known[1], many) and in_another_order(known[0], known[1]) is not False:
                return True
        if slot is None:
            return False
        left, right = (_over_steps(trace, call, slot) for trace in self._traces)
        if len(left) < 2 or len(left) != len(right):
            return False
        if sorted(print_ for print_, _, _ in left) == sorted(print_ for print_, _, _ in right):
            return True
        return _totals(left) is not None and _close(_totals(left), _totals(right))

    def _draws(self, call: Call) -> bool:
        told = self._one.meaning(call)
        if told is not None and traits_of(told).random:
            return True
        name = call.site.name.lower()
        kind = call.site.type.lower() if call.site.kind is Kind.MODULE else ""
        return (told is None and any(part in name for part in _DRAWS)) or "dropout" in kind

    def _orders_data(self, call: Call) -> bool:
        """Is this draw a data loader's: a permutation, or the seed of one?"""
        calls = self._one.calls
        place = calls.index(call)
        return any("randperm" in other.site.name for other in calls[place : place + _AHEAD])

    def _other_calls(
        self, events: tuple[list[Event], list[Event]], one: Event | None, two: Event | None
    ) -> FirstDifference:
        names = [_named(event) for event in (one, two)]
        what = f"the first run goes on with {names[0]}, the second with {names[1]}"
        same = Counter(event.key[:2] for event in events[0]) == Counter(event.key[:2] for event in events[1])
        cause = Unsteadiness.THREADS if same else Unsteadiness.FLOW
        return self._difference(one.call if one is not None else None, cause, what)

    def _has_effect(self, difference: FirstDifference) -> bool:
        """Does a call that computes with the difference differ too? What nobody takes is a result, but what Python alone looks at
        (the seed that a data loader draws for its workers) may do nothing.
        """
        call = difference.call
        if call is None or difference.backward or difference.cause in (Unsteadiness.NUMBER, Unsteadiness.FLOW):
            return True
        differing = [number for number in self._differing if number in {*_returned(call), *self._one.taken(call)}]
        for number in differing:
            takers = [taker for taker in self._one.consumers(number) if number not in _returned(taker)]
            if not takers and self._one.is_looked_at(number):
                continue
            if not takers and not is_uninitialised(self._one, call):
                return True
            for taker in takers:
                other = self._partners.get(str(taker.site))
                results = () if other is None else zip(_returned(taker), _returned(other), strict=False)
                draws = self._draws(taker) and number not in self._one.read(taker)
                if other is None or (not draws and any(not self._same(a, b) for a, b in results)):
                    return True
        return False

    def _gap(self, left: int, right: int) -> str:
        one, two = self._one.tensor(left), self._two.tensor(right)
        if one.spec != two.spec:
            return f"the result is {one.spec} in one run and {two.spec} in the other"
        return f"{one.spec} has {_told(one.statistics)} in one run and {_told(two.statistics)} in the other"

    def _difference(
        self, call: Call | None, cause: Unsteadiness, what: str, *, backward: bool = False
    ) -> FirstDifference:
        return FirstDifference(self._one.step, self._one.rank, cause, what, *_TOLD[cause], call, backward)


def _events(flow: Flow) -> Iterator[Event]:
    events: list[tuple[int, Event]] = []
    for call in flow.calls:
        if is_kept(call):
            continue
        events.append((call.order, Event(("call", f"{call.site}", call.site.path), call)))
        for gradient in call.gradients:
            key = ("gradient", f"{call.site}", gradient.role, gradient.slot, str(gradient.count))
            events.append((gradient.order, Event(key, call, gradient)))
    for gradient in flow.parameter_gradients:
        events.append((gradient.order, Event(("parameter", gradient.slot, str(gradient.count)), None, gradient)))
    return (event for _, event in sorted(events, key=lambda item: item[0]))


def _returned(call: Call) -> list[int]:
    return [*call.returned.values(), *call.after.values()]


def _numbers(one: Call, two: Call) -> tuple[str, str] | None:
    """The first argument that is no tensor and differs."""
    pairs = zip((*one.args, *one.kwargs.values()), (*two.args, *two.kwargs.values()), strict=False)
    for left, right in pairs:
        for (_, a), (_, b) in zip(leaves(left), leaves(right), strict=False):
            if not isinstance(a, TensorRef) and not isinstance(b, TensorRef) and not _equal(a, b):
                return f"{a!r}", f"{b!r}"
    return None


def _equal(one: Value, two: Value) -> bool:
    plain = (bool, int, float, complex, str)
    if not isinstance(one, plain) or not isinstance(two, plain):
        return True  # texts of objects may hold addresses
    return one == two or (one != one and two != two)


def _named(event: Event | None) -> str:
    if event is None:
        return "nothing"
    return event.key[1] if event.gradient is None else f"a gradient of {event.key[1]}"


def _told(known: Statistics | None) -> str:
    if known is None or known.min is None:
        return "other values"
    return f"{known.min:.6g} … {known.max:.6g}, norm {known.norm or 0.0:.9g}"


def _over_steps(trace: Trace, call: Call, slot: str) -> list[tuple[str, Statistics | None, int]]:
    """Fingerprint, statistics and size of one argument of a call, step by step."""
    values = []
    for place in trace.places:
        journal = trace.journal(*place)
        for other in journal.calls():
            if other.site == call.site:
                number = dict(tensor_slots(other.args, other.kwargs)).get(slot)
                if number is not None:
                    tensor = journal.tensor(number)
                    values.append((tensor.fingerprint or "", tensor.statistics, math.prod(tensor.spec.shape)))
    return values


def _totals(items: Sequence[tuple[str, Statistics | None, int]]) -> tuple[float, ...] | None:
    """Sum, sum of squares, smallest and largest over all steps: the same whatever the order."""
    known = [
        (stats, size)
        for _, stats, size in items
        if stats is not None and stats.min is not None and stats.max is not None
    ]
    if len(known) != len(items):
        return None
    return (
        sum((stats.mean or 0.0) * size for stats, size in known),
        sum((stats.norm or 0.0) ** 2 for stats, _ in known),
        float(min(stats.min for stats, _ in known if stats.min is not None)),
        float(max(stats.max for stats, _ in known if stats.max is not None)),
    )


def _close(left: tuple[float, ...] | None, right: tuple[float, ...] | None) -> bool:
    if left is None or right is None:
        return False
    scale = math.sqrt(max(left[1], 1e-300))
    return all(math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9 * scale) for a, b in zip(left, right, strict=True))
