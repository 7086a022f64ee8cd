"""Hooks of a plan on the graph that a step makes: the same functions in every step, put where the plan says.

    wire(script, planner)                  once, when the plan is made: a function for each node
    hook_up(event, results, gradients)  in each step, when the call has ended

A function that is called by a node tells of all its gradients at once, as slots (was it sent?, position, key).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any, Protocol
from weakref import ref

import torch
from torch import Tensor

from ...model.records import Role
from .checks import check_of_run
from .gradients import Gradients, Hooked, unseen
from .layers import Unit, find_units
from .scripts import Departed, Event, Script, Slots, parameter_slots


class Planner(Protocol):
    """Receiver of gradients."""

    follower: Any
    """Of the present step (`plans.Follower`), while it is as planned."""

    def gradients(self, slots: Slots, sent: Sequence[Any], received: Sequence[Any]) -> None:
        """Gradients of calls that were planned, in a step that is not as planned any more."""


def wire(script: Script, planner: Planner) -> None:
    """Make the hooks of a plan, which tell of the gradients of a node, or of one that was added up."""
    for event in script.events:
        if event.hooked is None or event.pres:  # an event may belong to several plans that begin alike
            continue
        if _is_one_node(event.hooked):
            ((place, kind, slots),) = event.hooked.ends
            before = [(False, number, (event.id, Role.OUTPUT, slot)) for slot, number in slots]
            inner = event.hooked.layout.inner[0][2]
            after = [(True, position, (event.id, Role.INPUT, slot)) for position, slot, _ in inner]
            event.pres.append((place, kind, None))
            event.slots = [(*before, *after)]
            event.whole = place, kind, _hook(event.slots[0], planner)
            continue
        for place, kind, slots in event.hooked.ends:
            received = tuple((False, n, (event.id, Role.OUTPUT, slot)) for slot, n in slots)
            event.slots.append(received)
            event.pres.append((place, kind, _prehook(received, planner)))
        for (end, way, edges), kinds in zip(event.hooked.layout.inner, event.hooked.kinds, strict=True):
            wanted = [(position, (event.id, Role.INPUT, slot), total) for position, slot, total in edges]
            if all(total < 0 for _, _, total in wanted):
                sent = tuple((True, position, key) for position, key, _ in wanted)
                event.slots.append(sent)
                event.posts.append((end, way, kinds, _hook(sent, planner)))
            else:
                alone: list[Slots] = [((False, 0, key),) for _, key, _ in wanted]
                event.slots += alone
                receivers = [
                    (position, _receiver(slots, planner), total)
                    for slots, (position, _, total) in zip(alone, wanted, strict=True)
                ]
                event.posts.append((end, way, kinds, receivers))
    find_units(script)
    for event in script.events:
        if event.unit is not None and event.unit.hook is None:
            _hook_once(event.unit, planner)
    _find_runs(script)


def _hook_once(unit: Unit, planner: Planner) -> None:
    """One hook tells of the gradients of a layer and of its call, where both are one node."""
    if unit.left.whole is not None and unit.end.whole is not None and unit.left.whole[1] is unit.end.whole[1]:
        unit.slots = (*unit.left.slots[0], *unit.end.slots[0])
        unit.hook = _hook(unit.slots, planner)


def _find_runs(script: Script) -> None:
    """Give one check to the gradients that come together from one hook."""
    events = script.events
    owners = {key: slots for event in events for slots in event.slots for _, _, key in slots}
    units = [event.unit for event in events if event.unit is not None]
    owners |= {key: unit.slots for unit in units for _, _, key in unit.slots}
    at = 0
    while at < len(events):
        key, first = events[at].key, at
        if key is not None:
            slots = parameter_slots(key[2]) if key[1] is Role.PARAMETER else owners.get(key, ())
            for _, _, expected in slots:
                if at < len(events) and events[at].key == expected and events[at].thread == events[first].thread:
                    at += 1
            if at > first:
                run = events[first:at]
                run[0].run = slots, len(run), run[-1], check_of_run(slots, run)
                continue
        at += 1


def _is_one_node(hooked: Hooked) -> bool:
    """Is the call one node of torch's own, to which nothing comes between what it receives and what it sends? Then one hook, after
    it, reads both: no node of torch's own writes to what it has received.
    """
    if len(hooked.ends) != 1 or len(hooked.layout.inner) != 1 or hooked.layout.sums:
        return False
    return not hooked.layout.inner[0][1] and not issubclass(
        hooked.ends[0][1], torch.autograd.function.BackwardCFunction
    )


def _hook(slots: Slots, planner: Planner) -> Any:
    count = len(slots)

    def hook(sent: tuple[Tensor | None, ...], received: tuple[Tensor | None, ...]) -> None:
        with unseen():
            follower = planner.follower
            done = 0 if follower is None else follower.gradients(slots, sent, received)
            if done != count:
                planner.gradients(slots[done:], sent, received)

    _OWN.add(hook.__code__)
    return hook


def _prehook(slots: Slots, planner: Planner) -> Any:
    hook = _hook(slots, planner)

    def prehook(received: tuple[Tensor | None, ...]) -> None:
        hook((), received)

    _OWN.add(prehook.__code__)
    return prehook


def _receiver(slots: Slots, planner: Planner) -> Callable[[Any], None]:
    hook = _hook(slots, planner)

    def receive(tensor: Any) -> None:
        if tensor is not None:
            hook((), (tensor,))

    return receive


def _summing_hook(receivers: list[tuple[int, Callable[[Any], None]]]) -> Any:
    def hook(sent: tuple[Tensor | None, ...], _received: Any) -> None:
        with unseen():
            for position, receive in receivers:
                receive(sent[position] if position < len(sent) else None)

    return hook


class _Hooks(dict[int, Any]):
    """The hooks of one node, which live as long as it."""

    __slots__ = ("__weakref__",)


class _Handle(ref[_Hooks]):
    """Handle of the first hook of a node."""

    __slots__ = ()

    def remove(self) -> None:
        """Take the hook off again."""
        hooks = self()
        if hooks is not None:
            hooks.pop(_FIRST, None)

    @property
    def hooks_dict_ref(self) -> _Handle:
        """Tells whether the node is still there, as torch's handles do."""
        return self


_FIRST = -1
"""Key of the first hook; torch counts those of others from 0."""
_OWN: set[CodeType] = set()
"""Code of the hooks of plans."""


def register_quickly(original: Any) -> Any:
    """A layer for the function by which torch notes a hook in the dictionary of a node: the first of a plan's hooks gets a handle
    that is half the work to make. A step puts hundreds of them into its graph.
    """

    def _register_hook(hooks: Any, hook: Any) -> Any:
        if hooks is None and getattr(hook, "__code__", None) in _OWN:
            hooks = _Hooks()
            hooks[_FIRST] = hook
            return hooks, _Handle(hooks)
        return original(hooks, hook)

    return _register_hook


def hook_up(event: Event, results: Sequence[Tensor], gradients: Gradients) -> None:
    """Put the hooks of a call that has ended where the plan says. Departed where the graph is another."""
    ends: list[Any] = []
    node: Any
    keep = gradients.nodes.keep
    for place, kind, _ in event.pres:
        node = results[place].grad_fn
        if type(node) is not kind:
            raise Departed
        ends.append(node)
    if event.whole is not None:
        keep(ends[0].register_hook(event.whole[2]))
        return
    posts: list[tuple[Any, Any]] = []
    for end, way, kinds, hook in event.posts:
        node = ends[end]
        for position, kind in zip(way, kinds, strict=True):
            node = node.next_functions[position][0]
            if type(node) is not kind:
                raise Departed
        posts.append((node, hook))
    for node, (_, _, pre) in zip(ends, event.pres, strict=True):
        keep(node.register_prehook(pre))
    sums: dict[int, Any] = {}
    for node, hook in posts:
        if type(hook) is list:
            receivers = []
            for position, receive, total in hook:
                if total >= 0:
                    if total not in sums:
                        edges, _ = event.hooked.layout.sums[total]  # type: ignore[union-attr]
                        sums[total] = gradients.nodes.sum_up(edges, receive)
                    receive = sums[total]
                receivers.append((position, receive))
            hook = _summing_hook(receivers)
        keep(node.register_hook(hook))
