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
from typing import Any

from ..model.records import Role
from .protocol import Open, Sink

LEAF_NUMBER = 2**64 - 1
"""The sequence number of a node that collects the gradient of a leaf."""
_MAX_NODES = 200_000

Key = tuple[int, int]
Receive = Callable[[Any], None]


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
    ) -> None:
        """`ends` are the nodes that made the outputs, each with (slot, number); `inputs` are (slot, key) before the call."""
        for node, slots in ends:
            self._handles.append(node.register_prehook(self._before(call, slots)))
        if inputs:
            self._hook_inputs(call, inputs, [node for node, _ in ends], start)

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

    def _hook_inputs(self, call: Open, inputs: Sequence[tuple[str, Key]], ends: list[Any], start: int) -> None:
        wanted: dict[Key, list[str]] = {}
        for slot, key in inputs:
            wanted.setdefault(key, []).append(slot)
        leaving: dict[Key, list[tuple[Any, int]]] = {}
        for node, position, target, number in self._leaving_edges(ends, start):
            key = self._target(target, number)
            if key in wanted:
                leaving.setdefault(key, []).append((node, position))
        by_node: dict[int, tuple[Any, list[tuple[int, Receive]]]] = {}
        for key, edges in leaving.items():
            slots = wanted[key]
            if len(slots) == len(edges):  # one edge for each mention, in the order of the arguments
                receivers = [self.reporter(call, slot) for slot in slots]
            else:
                total = _Sum(len(edges), self.reporter(call, slots[0]), self._add)
                self._sums.append(total)
                receivers = [total.take] * len(edges)
            for (node, position), receive in zip(edges, receivers, strict=True):
                by_node.setdefault(self._identity(node), (node, []))[1].append((position, receive))
        for node, waiting in by_node.values():
            self._handles.append(node.register_hook(self._after(waiting)))

    def _after(self, receivers: list[tuple[int, Receive]]) -> Callable[[Any, Any], None]:
        def hook(sent: tuple[Any, ...], _received: Any) -> None:
            with self._unseen():
                for position, receive in receivers:
                    receive(sent[position] if position < len(sent) else None)

        return hook

    def _leaving_edges(self, ends: list[Any], start: int) -> list[tuple[Any, int, Any, int]]:
        """(node, position, target, number) of every edge from the call's own nodes to a node that was there before."""
        found: list[tuple[Any, int, Any, int]] = []
        pending = list(reversed(ends))
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
