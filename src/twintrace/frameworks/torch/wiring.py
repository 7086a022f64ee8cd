"""Hooks of a plan on the graph that a step makes: the same functions in every step, put where the plan says.

    wire(script, take)                  once, when the plan is made: a function for each node
    hook_up(event, results, gradients)  in each step, when the call has ended

A function that is called by a node tells of all its gradients at once, as slots (was it sent?, position, key): `take(slots, sent,
received)`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ...model.records import Role
from .checks import check_of_run
from .drafts import Departed, Event, Script, Slots, parameter_slots
from .gradients import Gradients, Hooked, unseen

Take = Callable[[Slots, Sequence[Any], Sequence[Any]], None]


def wire(script: Script, take: Take) -> None:
    """Make the hooks of a plan. `take` is told of the gradients of a node, or of one which was added up."""
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
            event.whole = place, kind, _hook(event.slots[0], take)
            continue
        for place, kind, slots in event.hooked.ends:
            received = tuple((False, n, (event.id, Role.OUTPUT, slot)) for slot, n in slots)
            event.slots.append(received)
            event.pres.append((place, kind, _prehook(received, take)))
        for (end, way, edges), kinds in zip(event.hooked.layout.inner, event.hooked.kinds, strict=True):
            wanted = [(position, (event.id, Role.INPUT, slot), total) for position, slot, total in edges]
            if all(total < 0 for _, _, total in wanted):
                sent = tuple((True, position, key) for position, key, _ in wanted)
                event.slots.append(sent)
                event.posts.append((end, way, kinds, _hook(sent, take)))
            else:
                alone: list[Slots] = [((False, 0, key),) for _, key, _ in wanted]
                event.slots += alone
                receivers = [
                    (position, _receiver(slots, take), total)
                    for slots, (position, _, total) in zip(alone, wanted, strict=True)
                ]
                event.posts.append((end, way, kinds, receivers))
    _find_runs(script)


def _find_runs(script: Script) -> None:
    """Give one check to the gradients that come together from one hook."""
    events = script.events
    owners = {key: slots for event in events for slots in event.slots for _, _, key in slots}
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


def _hook(slots: Slots, take: Take) -> Any:
    def hook(sent: tuple[Tensor | None, ...], received: tuple[Tensor | None, ...]) -> None:
        with unseen():
            take(slots, sent, received)

    return hook


def _prehook(slots: Slots, take: Take) -> Any:
    def hook(received: tuple[Tensor | None, ...]) -> None:
        with unseen():
            take(slots, (), received)

    return hook


def _receiver(slots: Slots, take: Take) -> Callable[[Any], None]:
    def receive(tensor: Any) -> None:
        if tensor is not None:
            take(slots, (), (tensor,))

    return receive


def _summing_hook(receivers: list[tuple[int, Callable[[Any], None]]]) -> Any:
    def hook(sent: tuple[Tensor | None, ...], _received: Any) -> None:
        with unseen():
            for position, receive in receivers:
                receive(sent[position] if position < len(sent) else None)

    return hook


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
