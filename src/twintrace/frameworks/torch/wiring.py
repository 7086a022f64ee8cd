"""Hooks of a plan on the graph that a step makes: the same functions in every step, put where the plan says.

    wire(script, take, reporter)        once, when the plan is made: a function for each node
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
from .drafts import Departed, Event, Key, Script
from .gradients import Gradients, Hooked, unseen

Slots = tuple[tuple[bool, int, Key], ...]
Take = Callable[[Slots, Sequence[Any], Sequence[Any]], None]


def wire(script: Script, take: Take, reporter: Callable[[Key], Callable[[Any], None]]) -> None:
    """Make the hooks of a plan. `take` is told of the gradients of a node; `reporter(key)` tells of one, which was added up."""
    for event in script.events:
        if event.hooked is None or event.pres:  # an event may belong to several plans that begin alike
            continue
        if _is_one_node(event.hooked):
            ((place, kind, slots),) = event.hooked.ends
            before = [(False, number, (event.id, Role.OUTPUT, slot)) for slot, number in slots]
            inner = event.hooked.layout.inner[0][2]
            after = [(True, position, (event.id, Role.INPUT, slot)) for position, slot, _ in inner]
            event.pres.append((place, kind, None))
            event.whole = place, kind, _hook((*before, *after), take)
            continue
        for place, kind, slots in event.hooked.ends:
            event.pres.append(
                (place, kind, _prehook(tuple((False, n, (event.id, Role.OUTPUT, slot)) for slot, n in slots), take))
            )
        for (end, way, edges), kinds in zip(event.hooked.layout.inner, event.hooked.kinds, strict=True):
            wanted = [(position, (event.id, Role.INPUT, slot), total) for position, slot, total in edges]
            if all(total < 0 for _, _, total in wanted):
                hook = _hook(tuple((True, position, key) for position, key, _ in wanted), take)
                event.posts.append((end, way, kinds, hook))
            else:
                receivers = [(position, reporter(key), total) for position, key, total in wanted]
                event.posts.append((end, way, kinds, receivers))


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
