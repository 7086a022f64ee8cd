"""What flows back through a call, read without touching the graph.

    x ──▶ [ nodes made by this call ] ──▶ y            forward
    x ◀──  hook on the node whose edge   ◀── hook before the node of y      backward
           leaves towards x

The gradient of an output is read before the node that made it runs; the gradient of an input is what the call's own nodes send
along the edges that leave towards it, so a tensor used by two calls shows each call's contribution. Hooks on nodes add no node:
a wrapper such as a full backward hook inserts two, and with that changes the order of accumulation and the bits.

Which nodes are the call's own? Those with a sequence number at or above the one that was next when the call began.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ...model.records import Role
from ..protocol import Open, Sink

next_sequence_number: Callable[[], int] = torch._C._autograd._get_sequence_nr
unseen: Any = torch._C.DisableTorchFunction
"""While the engine runs our mode is on; our own looks at tensors need not pass through it."""
_LEAF_NUMBER = 2**64 - 1
_MAX_NODES = 200_000

Edge = tuple[Any, int]


def edges_of(call: Open) -> list[tuple[str, Any, int]]:
    """(slot, node, output number) of each input that takes part in autograd. Asked before the call: in-place calls change it."""
    found: list[tuple[str, Any, int]] = []
    for slot, tensor in call.inputs:
        if tensor.requires_grad:
            node = tensor.grad_fn
            found.append((slot, tensor, -1) if node is None else (slot, node, tensor.output_nr))
    return found


class Gradients:
    """The hooks of one step."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._handles: list[Any] = []
        self._sums: list[_Sum] = []

    def follow(self, call: Open, inputs: list[tuple[str, Any, int]], start: int) -> None:
        """Hook the nodes that this call has made. The hooks keep the call, so the call lets go of its tensors."""
        ends: dict[Any, list[tuple[str, int]]] = {}
        for slot, tensor in call.outputs:
            node = tensor.grad_fn if tensor.requires_grad else None
            if node is not None and node._sequence_nr() >= start:
                ends.setdefault(node, []).append((slot, tensor.output_nr))
        call.inputs.clear()
        call.outputs.clear()
        if not ends:
            return
        for node, slots in ends.items():
            self._handles.append(node.register_prehook(self._before(call, slots)))
        if inputs:
            self._hook_inputs(call, inputs, list(ends), start)

    def flush(self) -> None:
        """The backward pass is over: sums that wait for an edge which never came are as complete as they will be."""
        for waiting in self._sums:
            waiting.give_up()

    def remove(self) -> None:
        """Take every hook off again."""
        self.flush()
        self._sums.clear()
        while self._handles:
            self._handles.pop().remove()

    def _before(self, call: Open, slots: list[tuple[str, int]]) -> Callable[[Any], None]:
        count = 0

        def hook(gradients: tuple[Tensor | None, ...]) -> None:
            nonlocal count
            with unseen():
                for slot, number in slots:
                    gradient = gradients[number] if number < len(gradients) else None
                    if gradient is not None:
                        self._sink.gradient(call, Role.OUTPUT, slot, gradient, count)
            count += 1

        return hook

    def _hook_inputs(self, call: Open, inputs: list[tuple[str, Any, int]], ends: list[Any], start: int) -> None:
        wanted: dict[tuple[int, int], list[str]] = {}
        for slot, source, number in inputs:
            wanted.setdefault((id(source), number), []).append(slot)
        leaving: dict[tuple[int, int], list[tuple[Any, int]]] = {}
        for node, position, target, number in _leaving_edges(ends, start):
            # A leaf has no node of its own in the forward pass, but one that collects its gradient.
            key = (id(target.variable), -1) if hasattr(target, "variable") else (id(target), number)
            if key in wanted:
                leaving.setdefault(key, []).append((node, position))
        by_node: dict[Any, list[tuple[int, Callable[[Tensor | None], None]]]] = {}
        for key, edges in leaving.items():
            slots = wanted[key]
            if len(slots) == len(edges):  # one edge for each mention, in the order of the arguments
                for slot, (node, position) in zip(slots, edges, strict=True):
                    by_node.setdefault(node, []).append((position, self._reporter(call, slot)))
            else:
                total = _Sum(len(edges), self._reporter(call, slots[0]))
                self._sums.append(total)
                for node, position in edges:
                    by_node.setdefault(node, []).append((position, total.add))
        for node, receivers in by_node.items():
            self._handles.append(node.register_hook(_after(receivers)))

    def _reporter(self, call: Open, slot: str) -> Callable[[Tensor | None], None]:
        count = 0

        def report(gradient: Tensor | None) -> None:
            nonlocal count
            if gradient is not None:
                self._sink.gradient(call, Role.INPUT, slot, gradient, count)
                count += 1

        return report


def _after(receivers: list[tuple[int, Callable[[Tensor | None], None]]]) -> Callable[[Any, Any], None]:
    def hook(sent: tuple[Tensor | None, ...], _received: Any) -> None:
        with unseen():
            for position, receive in receivers:
                receive(sent[position] if position < len(sent) else None)

    return hook


def _leaving_edges(ends: list[Any], start: int) -> list[tuple[Any, int, Any, int]]:
    """(node, position, target, number) of every edge from the call's own nodes to a node that was there before."""
    found: list[tuple[Any, int, Any, int]] = []
    pending = list(reversed(ends))
    seen = set(ends)
    while pending and len(seen) < _MAX_NODES:
        node = pending.pop()
        for position, (target, number) in enumerate(node.next_functions):
            if target is None:
                continue
            sequence = target._sequence_nr()
            if start <= sequence < _LEAF_NUMBER:
                if target not in seen:
                    seen.add(target)
                    pending.append(target)
            else:
                found.append((node, position, target, number))
    return found


class _Sum:
    """Adds up what several edges send to the same input."""

    def __init__(self, edges: int, report: Callable[[Tensor | None], None]) -> None:
        self._edges, self._report = edges, report
        self._total: Tensor | None = None
        self._arrived = 0

    def add(self, gradient: Tensor | None) -> None:
        """One edge's gradient has come; with the last one the sum is reported."""
        self._arrived += 1
        if gradient is not None:
            with torch.no_grad():
                found = gradient.detach()
                self._total = found if self._total is None else self._total + found
        if self._arrived == self._edges:
            self.give_up()

    def give_up(self) -> None:
        """Report what there is."""
        if self._arrived:
            total, self._total, self._arrived = self._total, None, 0
            self._report(total)
