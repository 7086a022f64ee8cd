"""Hooks on the nodes of an autograd graph, for every framework whose graph has them.

    x ──▶ [ nodes made by this call ] ──▶ y            forward
    x ◀──  hook on the node whose edge   ◀── hook before the node of y      backward
           leaves towards x

The gradient of an output is read before the node that made it runs; the gradient of an input is what the call's own nodes send
along the edges that leave towards it, so a tensor used by two calls shows each call's contribution. Hooks on nodes add no node.

Asked of a node: `next_functions`, `_sequence_nr()`, `register_prehook`, `register_hook`. A call's own nodes are those with a
sequence number at or above the one that was next when it began. The differences between frameworks are given: how a node is
recognised again, how two gradients are added, how the recorder's own calls are kept from being recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from ..model.records import Role
from .protocol import Open, Sink

LEAF_NUMBER = 2**64 - 1
"""The sequence number of a node that collects the gradient of a leaf."""
_MAX_NODES = 200_000

Key = tuple[int, int]
Receive = Callable[[Any], None]


@dataclass(slots=True)
class Layout:
    """Places of one call's hooks, told without the nodes themselves: the same call of another step has them in the same places."""

    inner: list[tuple[int, tuple[int, ...], list[tuple[int, str, int]]]] = field(default_factory=list)
    """Of each node with edges that leave: the end from which it is reached, the positions of the edges on the way, and of its
    own edges (position, slot, number of the sum that it is added to, -1: none).
    """
    sums: list[tuple[int, str]] = field(default_factory=list)
    """Of each sum: edges, slot."""


class NodeHooks:
    """The hooks of one step."""

    def __init__(
        self,
        sink: Sink,
        *,
        unseen: Callable[[], AbstractContextManager[Any]],
        identity: Callable[[Any], int],
        target: Callable[[Any, int], Key],
        add: Callable[[Any, Any], Any],
    ) -> None:
        """`identity` of a node; `target` the key of what an edge leads to, as `follow` gets it; `add` two gradients (or None)."""
        self._sink, self._unseen, self._identity, self._target, self._add = sink, unseen, identity, target, add
        self._handles: list[Any] = []
        self._sums: list[_Sum] = []

    def keep(self, handle: Any) -> None:
        """A hook that was put somewhere else, to be removed with the others."""
        self._handles.append(handle)

    def follow(
        self,
        call: Open,
        inputs: Sequence[tuple[str, Key]],
        ends: Sequence[tuple[Any, list[tuple[str, int]]]],
        start: int,
        layout: Layout | None = None,
    ) -> None:
        """`ends` are the nodes that made the outputs, each with (slot, number); `inputs` are (slot, key) before the call.

        `layout` is filled with the places of the hooks.
        """
        for node, slots in ends:
            self._handles.append(node.register_prehook(self._before(call, slots)))
        if inputs:
            self._hook_inputs(call, inputs, [node for node, _ in ends], start, layout)

    def sum_up(self, edges: int, report: Receive) -> Receive:
        """Receiver of several edges' gradients, which reports their sum."""
        total = _Sum(edges, report, self._add)
        self._sums.append(total)
        return total.take

    def flush(self) -> None:
        """The backward pass is over: sums that wait for an edge which never came are as complete as they will be."""
        for waiting in self._sums:
            waiting.give_up()

    def are_pending(self) -> bool:
        """Is there a hook on a node that is still there? A handle refers weakly to hooks that live as long as their node."""
        self._handles = [handle for handle in self._handles if _is_alive(handle)]
        return bool(self._handles)

    def remove(self) -> None:
        """Take every hook off again."""
        self.flush()
        self._sums.clear()
        while self._handles:
            self._handles.pop().remove()

    def reporter(self, call: Open, slot: str, role: Role = Role.INPUT) -> Receive:
        """Tells the sink of one gradient after the other, numbered."""
        count = 0

        def report(gradient: Any) -> None:
            nonlocal count
            if gradient is not None:
                self._sink.gradient(call, role, slot, gradient, count)
                count += 1

        return report

    def _before(self, call: Open, slots: list[tuple[str, int]]) -> Receive:
        count = 0

        def hook(gradients: tuple[Any, ...]) -> None:
            nonlocal count
            with self._unseen():
                for slot, number in slots:
                    gradient = gradients[number] if number < len(gradients) else None
                    if gradient is not None:
                        self._sink.gradient(call, Role.OUTPUT, slot, gradient, count)
            count += 1

        return hook

    def _hook_inputs(
        self, call: Open, inputs: Sequence[tuple[str, Key]], ends: list[Any], start: int, layout: Layout | None
    ) -> None:
        wanted: dict[Key, list[str]] = {}
        for slot, key in inputs:
            wanted.setdefault(key, []).append(slot)
        leaving: dict[Key, list[tuple[Any, int]]] = {}
        ways: dict[int, tuple[int, tuple[int, ...]]] | None = None if layout is None else {}
        for node, position, target, number in self._leaving_edges(ends, start, ways):
            key = self._target(target, number)
            if key in wanted:
                leaving.setdefault(key, []).append((node, position))
        by_node: dict[int, tuple[Any, list[tuple[int, Receive]]]] = {}
        places: dict[int, list[tuple[int, str, int]]] = {}
        for key, edges in leaving.items():
            slots, total = wanted[key], -1
            if len(slots) == len(edges):  # one edge for each mention, in the order of the arguments
                receivers = [self.reporter(call, slot) for slot in slots]
            else:
                slots = slots[:1] * len(edges)
                receivers = [self.sum_up(len(edges), self.reporter(call, slots[0]))] * len(edges)
                if layout is not None:
                    total = len(layout.sums)
                    layout.sums.append((len(edges), slots[0]))
            for (node, position), receive, slot in zip(edges, receivers, slots, strict=True):
                by_node.setdefault(self._identity(node), (node, []))[1].append((position, receive))
                if layout is not None:
                    places.setdefault(self._identity(node), []).append((position, slot, total))
        for node, waiting in by_node.values():
            self._handles.append(node.register_hook(self._after(waiting)))
        if layout is not None and ways is not None:
            layout.inner = [(*ways[node], edges) for node, edges in places.items()]

    def _after(self, receivers: list[tuple[int, Receive]]) -> Callable[[Any, Any], None]:
        def hook(sent: tuple[Any, ...], _received: Any) -> None:
            with self._unseen():
                for position, receive in receivers:
                    receive(sent[position] if position < len(sent) else None)

        return hook

    def _leaving_edges(
        self, ends: list[Any], start: int, ways: dict[int, tuple[int, tuple[int, ...]]] | None
    ) -> list[tuple[Any, int, Any, int]]:
        """(node, position, target, number) of every edge from the call's own nodes to a node that was there before.

        `ways` is filled with the way to each of the nodes: the end, and the positions of the edges that lead there.
        """
        found: list[tuple[Any, int, Any, int]] = []
        pending = list(reversed(ends))
        if ways is not None:
            ways.update({self._identity(node): (i, ()) for i, node in enumerate(ends)})
        seen = {self._identity(node): node for node in ends}  # and held: an identity may be given away with its object
        while pending and len(seen) < _MAX_NODES:
            node = pending.pop()
            for position, (target, number) in enumerate(node.next_functions):
                if target is None:
                    continue
                if start <= target._sequence_nr() < LEAF_NUMBER:
                    if self._identity(target) not in seen:
                        seen[self._identity(target)] = target
                        pending.append(target)
                        if ways is not None:
                            end, way = ways[self._identity(node)]
                            ways[self._identity(target)] = end, (*way, position)
                else:
                    found.append((node, position, target, number))
        return found


def _is_alive(handle: Any) -> bool:
    """True if what a handle belongs to still exists; True of a handle that cannot tell."""
    hooks = getattr(handle, "hooks_dict_ref", None) or getattr(handle, "hook_dict_ref", None)  # torch's, MindSpore's
    return hooks is None or hooks() is not None


class _Sum:
    """Adds up what several edges send to the same input."""

    def __init__(self, edges: int, report: Receive, add: Callable[[Any, Any], Any]) -> None:
        self._edges, self._report, self._add = edges, report, add
        self._total: Any = None
        self._arrived = 0

    def take(self, gradient: Any) -> None:
        """One edge's gradient has come; with the last one the sum is reported."""
        self._arrived += 1
        if gradient is not None:
            self._total = self._add(self._total, gradient)
        if self._arrived == self._edges:
            self.give_up()

    def give_up(self) -> None:
        """Report what there is."""
        if self._arrived:
            total, self._total, self._arrived = self._total, None, 0
            self._report(total)
