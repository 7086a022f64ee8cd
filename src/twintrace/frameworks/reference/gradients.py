"""Gradients that flow back through a call, read from hooks on the tape's nodes.

    x ──▶ [ nodes made by this call ] ──▶ y            forward
    x ◀── after the node whose target    ◀── before the node of y            backward
          is the node of x

A tensor that two calls use shows each call's own contribution. Which nodes are the call's own? Those that are younger than
every node there was when the call began.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ...model.records import Role
from ..protocol import Open, Sink
from .miniature import HOOKS, STATE, Node, Tensor, now

Edge = tuple[Node, int]
Report = Callable[["Tensor | None"], None]


def in_backward() -> int:
    """Number of backward passes that this thread is in."""
    return STATE.backwards


def edges_of(call: Open) -> list[tuple[str, Node]]:
    """(slot, node) of each input that takes part in the tape. Asked before the call: a write in place changes it."""
    return [(slot, tensor.node) for slot, tensor in call.inputs if tensor.node is not None]


class Gradients:
    """The hooks of one step."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._undo: list[Callable[[], None]] = []
        self._sums: list[_Sum] = []

    def install(self) -> Iterator[Callable[[], None]]:
        """Install; yields what undoes each change."""
        HOOKS.backwards.append(self._flush_after)
        yield lambda: HOOKS.backwards.remove(self._flush_after)

    def follow(self, call: Open, sink: Sink, run: Callable[[], Any]) -> Any:
        """Run an open call, tell the sink how it ended, and hook the nodes that it has made."""
        wanted = call.wants_gradients and STATE.taping
        inputs = edges_of(call) if wanted else []
        start = now()
        try:
            output = run()
        except BaseException as error:
            sink.fail(call, error)
            raise
        sink.leave(call, output)
        if wanted:
            self._hook(call, inputs, start)
        call.inputs, call.outputs = [], []  # the hooks keep the call; what it took and gave is not theirs to keep alive
        return output

    def are_pending(self) -> bool:
        """Is there a hook on a tape's node?"""
        return bool(self._undo)

    def remove(self) -> None:
        """Take every hook off again."""
        self._flush()
        while self._undo:
            self._undo.pop()()

    def _hook(self, call: Open, inputs: list[tuple[str, Node]], start: int) -> None:
        ends = [(slot, tensor.node) for slot, tensor in call.outputs if tensor.node and tensor.node.number > start]
        for slot, node in ends:
            self._put(node.before, self._reporter(call, Role.OUTPUT, slot))
        leaving: dict[Node, list[Edge]] = {}
        for node, position, target in _leaving_edges([node for _, node in ends], start):
            leaving.setdefault(target, []).append((node, position))
        for source in dict.fromkeys(node for _, node in inputs):
            slots = [slot for slot, node in inputs if node is source]
            edges = leaving.get(source, [])
            if len(slots) == len(edges):  # one edge for each mention, in the order of the arguments
                for slot, edge in zip(slots, edges, strict=True):
                    self._put_on(edge, self._reporter(call, Role.INPUT, slot))
            elif edges:
                together = _Sum(len(edges), self._reporter(call, Role.INPUT, slots[0]))
                self._sums.append(together)
                for edge in edges:
                    self._put_on(edge, together.add)

    def _put_on(self, edge: Edge, report: Report) -> None:
        node, position = edge
        self._put(node.after, lambda sent: report(sent[position]))

    def _put(self, hooks: list[Any], hook: Any) -> None:
        hooks.append(hook)
        self._undo.append(functools.partial(hooks.remove, hook))

    def _reporter(self, call: Open, role: Role, slot: str) -> Report:
        count = 0

        def report(gradient: Tensor | None) -> None:
            nonlocal count
            if gradient is not None:
                self._sink.gradient(call, role, slot, gradient, count)
                count += 1

        return report

    def _flush_after(self, what: Any, args: Sequence[Any], kwargs: Mapping[str, Any], run: Callable[[], Any]) -> Any:
        try:
            return run()
        finally:
            if not in_backward():
                self._flush()

    def _flush(self) -> None:
        """The backward pass is over: sums that wait for an edge which never came are as complete as they will be."""
        for waiting in self._sums:
            waiting.give()


def _leaving_edges(ends: list[Node], start: int) -> list[tuple[Node, int, Node]]:
    """(node, position, target) of every edge from the call's own nodes to a node that was there before."""
    edges: list[tuple[Node, int, Node]] = []
    pending = list(dict.fromkeys(ends))
    for node in pending:  # grows while it is walked
        for position, target in enumerate(node.targets):
            if target is None:
                continue
            if target.number < start:
                edges.append((node, position, target))
            elif target not in pending:
                pending.append(target)
    return edges


class _Sum:
    """Adds up what several edges send to the same input."""

    def __init__(self, edges: int, report: Report) -> None:
        self._edges, self._report = edges, report
        self._arrived: list[Tensor | None] = []

    def add(self, gradient: Tensor | None) -> None:
        """One edge's gradient has come; with the last one the sum is reported."""
        self._arrived.append(gradient)
        if len(self._arrived) == self._edges:
            self.give()

    def give(self) -> None:
        """Report what there is."""
        arrays = [part.array for part in self._arrived if part is not None]
        self._arrived = []
        if arrays:
            self._report(Tensor(functools.reduce(lambda a, b: a + b, arrays)))
