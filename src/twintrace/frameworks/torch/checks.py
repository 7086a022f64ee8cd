"""Checks of a plan's events, written out: one function for each, in which nothing is looked up or looped over that a plan knows.

    write_out(script)        gives each event its `check`
    check_of_run(…)          one check for all gradients that a hook tells of
    event.check(f, …)        compares what has come with the event, in the state `f` of the step (`plans.Follower`); True: plain
                             values are others, and their line is to be made anew; Departed, or another error: not as planned

    def check(f, args, kwargs, module, n0=17, g0=True, v1=0.5, …):
        seen, versions, addresses, table = f.seen, f.versions, f.addresses, f.table
        x0, x1, = args
        known = seen[n0]
        …

The text is put together from pieces, one for each kind of place; what differs between events of one form (numbers, guards, values)
is given by default arguments, so a plan of a thousand events has some dozens of texts to compile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from types import CodeType, FunctionType
from typing import Any
from weakref import ref

from ...model.sites import Phase
from .scripts import (
    ENTER,
    ENTRIES,
    EQUAL,
    FIXED,
    GRADIENT,
    ITEMS,
    LEAVE,
    NUMBERS,
    TENSOR,
    VALUE,
    Departed,
    Event,
    Item,
    Script,
    Sight,
    Slots,
)

_MOST = 12
"""Places of a list that are written out; of a longer one each is checked by a function of its own, and these share their text."""

_KNOWN = """\
known = seen[{n}]
if known is not {x} and (known.__class__ is not ref or known() is not {x}):
    f.recognise({s}, {x})
elif {x}._version != versions[{n}] or {x}.data_ptr() != addresses[{n}] or {x}.requires_grad is not {g}:
    raise Departed"""
_KNOWN_AGAIN = """\
if (
    not {alike}({x}) or table.get(({x}.data_ptr(), {k})) != {n} or {x}._version != versions[{n}]
    or (({n} < f.sure or seen[{n}].__class__ is ref) and not f.is_known({n}, {x}))
):
    raise Departed"""
_GIVEN = """\
known, address = seen[{n}], {x}.data_ptr()
key = address, {k}
if (
    known.__class__ is not ref or known() is not {x} or {n} not in f.ahead or f.count != {n} or key in table
    or address != addresses[{n}] or {x}._version != versions[{n}] or not {alike}({x})
):
    f.meet({s}, {x})
else:
    f.ahead.discard({n})
    table[key], f.count = {n}, {n} + 1"""
_NEW = """\
if f.count != {n} or not {alike}({x}):
    raise Departed
address, version = {x}.data_ptr(), {x}._version
key = address, {k}
found = table.get(key)
if found is not None and versions[found] == version and f.is_known(found, {x}):
    raise Departed
seen[{n}], addresses[{n}], versions[{n}], table[key], f.count = {held}, address, version, {n}, {n} + 1"""


def write_out(script: Script) -> None:
    """Give each event its check."""
    opened: dict[int, Event] = {}
    for event in script.events:
        if event.kind == ENTER:
            opened[event.id] = event
        if event.check is not None or (event.kind != GRADIENT and event.id < 0):
            continue
        if event.kind == ENTER:
            event.check = _check_of_call(event)
        elif event.kind == LEAVE:
            event.check = _check_of_result(event, opened[event.id])
        elif event.kind == GRADIENT:
            text = _Text(is_backward=True)
            text.item((TENSOR, event.sight), "x")
            event.check = text.function("x")


def check_of_run(slots: Slots, events: Sequence[Event]) -> Callable[..., Any]:
    """The check of a hook's gradients, which takes what a node has sent and received. `events`: those of the slots, in order; a
    slot without one had no gradient.
    """
    text, rest = _Text(is_backward=True), list(events)
    for place, (is_sent, position, key) in enumerate(slots):
        given = f"{'sent' if is_sent else 'received'}[{position}]"
        if rest and rest[0].key == key:
            text.add(f"x{place} = {given}")
            text.item((TENSOR, rest.pop(0).sight), f"x{place}")
        else:
            text.add(f"if {given} is not None:", "    raise Departed")
    return text.function("sent, received")


def _check_of_call(event: Event) -> Callable[..., Any]:
    text = _Text(is_backward=event.phase is Phase.RECOMPUTE)
    if event.settings is not None:
        text.add(f"if not {text.given(event.settings.are_those_of)}(module.__dict__):", "    raise Departed")
        for name, items in event.kept:
            text.items(items, f"(module.__dict__[{name!r}],)")
        for (names, sights), attribute in ((event.parameters, "_parameters"), (event.buffers, "_buffers")):
            text.add(f"if tuple(module.{attribute}) != {text.given(names)}:", "    raise Departed")
            if names:
                own: list[Item] = [(VALUE, None) if sight is None else (TENSOR, sight) for sight in sights]
                text.items(own, f"module.{attribute}.values()", strict=True)
    text.items(event.args, "args")
    if event.names:
        text.add(f"if kwargs is None or tuple(kwargs) != {text.given(event.names)}:", "    raise Departed")
        text.items(event.kwargs, "kwargs.values()")
    else:
        text.add("if kwargs:", "    raise Departed")
    return text.function("args, kwargs, module")


def _check_of_result(event: Event, enter: Event) -> Callable[..., Any]:
    text = _Text(is_backward=enter.phase is Phase.RECOMPUTE)
    text.item(event.output[0], "x")
    after = [(TENSOR, sight) for _, sight in event.after]
    if after:
        text.items(after, f"f.inputs_of({text.given(enter)}, args, kwargs, {text.given([p for p, _ in event.after])})")
    return text.function("args, kwargs, x")


class _Text:
    """The lines of a function, and what is given to it."""

    def __init__(self, *, is_backward: bool) -> None:
        self._lines: list[str] = []
        self._given: dict[str, Any] = {}
        self._names = 0
        self._is_backward = is_backward

    def add(self, *lines: str) -> None:
        """Lines as they are."""
        self._lines += lines

    def given(self, value: Any) -> str:
        """The name of a constant."""
        name = f"c{len(self._given)}"
        self._given[name] = value
        return name

    def items(self, items: Sequence[Item], source: str, *, strict: bool = False) -> None:
        """Check what comes one after the other. `strict`: plain values are the same, or it is not as planned."""
        if len(items) > _MOST:
            checks = []
            for item in items:
                text = _Text(is_backward=self._is_backward)
                text.item(item, "x", strict=strict)
                checks.append(text.function("x"))
            self.add(f"if each(f, {self.given(checks)}, {source}):", "    told = True")
            return
        names = [f"x{self._names + i}" for i in range(len(items))]
        self._names += len(items)
        self.add(f"[{', '.join(names)}] = {source}")
        for item, name in zip(items, names, strict=True):
            self.item(item, name, strict=strict)

    def item(self, item: Item, x: str, *, strict: bool = False) -> None:
        """Check one place, which has come as the variable `x`."""
        kind, planned = item
        if kind == TENSOR:
            self._tensor(planned, x)
        elif kind == VALUE and strict:
            self.add(f"if {x} is not {self.given(planned)}:", "    raise Departed")
        elif kind == VALUE:
            value = self.given(planned)
            self.add(f"if {x} is not {value} and not is_same({value}, {x}):", "    told = True")
        elif kind == NUMBERS:
            self.add(f"if not are_same({self.given(planned)}, {x}):", "    told = True")
        elif kind == ITEMS:
            self.add(f"if type({x}) is not {self.given(planned[0])}:", "    raise Departed")
            self.items(planned[1], x)
        elif kind == ENTRIES:
            self.add(f"if type({x}) is not dict or tuple({x}) != {self.given(planned[0])}:", "    raise Departed")
            self.items(planned[1], f"{x}.values()")
        else:
            self.add("told = True")

    def _tensor(self, sight: Sight, x: str) -> None:
        if not sight.spec.elsewhere:
            self.add(f"f.{'meet' if sight.is_new else 'recognise'}({self.given(sight)}, {x})")
        elif sight.is_new and sight.is_given:
            self._piece(_GIVEN, x, n=sight.number, s=sight, k=sight.spec.number, alike=sight.is_alike)
        elif sight.is_new:
            # In a backward pass an alias is held, as in `DeviceDigests.submit`.
            piece = _NEW.replace("{held}", "{x}.detach()" if self._is_backward else "{x}")
            self._piece(piece, x, n=sight.number, k=sight.spec.number, alike=sight.is_alike)
        elif self._is_backward:  # an object of its own each time
            self._piece(_KNOWN_AGAIN, x, n=sight.number, k=sight.spec.number, alike=sight.is_alike)
        else:
            self._piece(_KNOWN, x, n=sight.number, s=sight, g=sight.grad)

    def _piece(self, piece: str, x: str, **given: Any) -> None:
        names = {name: self.given(value) for name, value in given.items()}
        self.add(*piece.format(x=x, **names).splitlines())

    def function(self, parameters: str) -> Callable[..., Any]:
        """The check, which takes the step's state and what has come."""
        signature = ", ".join(("f", parameters, *self._given))
        found = FunctionType(_compiled(signature, "\n    ".join(self._lines)), _NAMES, "check")
        found.__defaults__ = tuple(self._given.values()) or None
        return found


@cache
def _compiled(signature: str, body: str) -> CodeType:
    text = f"""\
def check({signature}):
    seen, versions, addresses, table, told = f.seen, f.versions, f.addresses, f.table, False
    {body}
    return told
"""
    made: dict[str, Any] = {}
    exec(compile(text, "<plan>", "exec"), _NAMES, made)
    code: CodeType = made["check"].__code__
    return code


def _each(f: Any, checks: Sequence[Callable[..., Any]], values: Any) -> bool:
    if len(checks) != len(values):
        raise Departed
    told = False
    for check, value in zip(checks, values, strict=True):
        if check(f, value):
            told = True
    return told


def _is_same(planned: Any, value: Any) -> bool:
    """Do two plain values say the same? Departed where the other is no plain value."""
    kind = type(value)
    if kind is type(planned):
        if kind is float:
            return bool(value == planned and (value != 0.0 or repr(value) == repr(planned)))
        if kind in EQUAL or kind is slice:
            return bool(value == planned)
    if kind in FIXED or kind is float or kind in EQUAL or kind is slice:
        return False
    raise Departed


def _are_same(planned: Any, value: Any) -> bool:
    """The same of numbers in a row."""
    expected, numbers, types = planned
    if type(value) is not expected or len(value) != len(types):
        raise Departed
    if value == numbers and list(map(type, value)) == types:
        return True
    if not all(type(number) in (int, float, bool, str) for number in value):
        raise Departed
    return False


_NAMES: dict[str, Any] = {
    "Departed": Departed,
    "are_same": _are_same,
    "each": _each,
    "is_same": _is_same,
    "ref": ref,
    "__builtins__": __builtins__,
}
