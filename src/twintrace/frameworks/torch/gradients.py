"""Gradients that flow back through a call, read from torch's graph without touching it (see `nodes.py`).

A wrapper such as a full backward hook inserts two nodes, and with that changes the order of accumulation and the bits; so the nodes
themselves are hooked. Which nodes are the call's own? Those with a sequence number at or above the one that was next when the
call began.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..nodes import Key, Layout, NodeHooks
from ..protocol import Open, Sink
from .quiet import quiet

next_sequence_number: Callable[[], int] = torch._C._autograd._get_sequence_nr
unseen: Any = torch._C.DisableTorchFunction
"""While the engine runs our mode is on; our own looks at tensors need not pass through it."""


def edges_of(call: Open) -> list[tuple[str, Any, int]]:
    """(slot, node, output number) of each input that takes part in autograd. Asked before the call: in-place calls change it."""
    found: list[tuple[str, Any, int]] = []
    for slot, tensor in call.inputs:
        if tensor.requires_grad:
            node = tensor.grad_fn
            found.append((slot, tensor, -1) if node is None else (slot, node, tensor.output_nr))
    return found


@dataclass(slots=True)
class Hooked:
    """Places of one call's hooks in the graph that it has made."""

    ends: list[tuple[int, type, list[tuple[str, int]]]]
    """Of each node that made results: which result has it, its class, (slot, number of the output) of all of them."""
    layout: Layout
    kinds: list[list[type]]
    """Classes of the nodes on the way to each of `layout.inner`, the end not among them."""


def _way(node: Any, way: tuple[int, ...]) -> list[Any]:
    """The nodes on a way."""
    found = []
    for position in way:
        node = node.next_functions[position][0]
        found.append(node)
    return found


class Gradients:
    """The hooks of one step."""

    def __init__(self, sink: Sink) -> None:
        self.nodes = NodeHooks(sink, unseen=unseen, identity=id, target=_target, add=_add)

    def follow(
        self, call: Open, inputs: list[tuple[str, Any, int]], start: int, *, describe: bool = False
    ) -> Hooked | None:
        """Hook the nodes that this call has made. The hooks keep the call, so the call lets go of its tensors.

        `describe`: say where they are, None where there are none.
        """
        ends: dict[Any, list[tuple[str, int]]] = {}
        places: dict[Any, int] = {}
        results = call.outputs if describe else [*call.outputs, *_written(call)]
        for place, (slot, tensor) in enumerate(results):
            node = tensor.grad_fn if tensor.requires_grad else None
            if node is not None and node._sequence_nr() >= start:
                ends.setdefault(node, []).append((slot, tensor.output_nr))
                places.setdefault(node, place)
        call.inputs.clear()
        call.outputs.clear()
        if not ends:
            return None
        keys = [(slot, (id(source), number)) for slot, source, number in inputs]
        layout = Layout() if describe else None
        self.nodes.follow(call, keys, list(ends.items()), start, layout)
        if layout is None:
            return None
        nodes = list(ends)
        kinds = [[type(node) for node in _way(nodes[end], way)] for end, way, _ in layout.inner]
        return Hooked([(places[node], type(node), slots) for node, slots in ends.items()], layout, kinds)

    def flush(self) -> None:
        """The backward pass is over."""
        self.nodes.flush()

    def are_pending(self) -> bool:
        """Is there a hook on a graph that is still there?"""
        return self.nodes.are_pending()

    def remove(self) -> None:
        """Take every hook off again."""
        self.nodes.remove()


def _written(call: Open) -> list[tuple[str, Tensor]]:
    """Results that a call has written and does not return, by their slots (`x[0] = y`). A view has another node each time
    that it is written to, and its gradient goes by way of what it is a view of.
    """
    returned = {id(tensor) for _, tensor in call.outputs}
    written = call.state.mutated(call.inputs) if call.state is not None and call.state.mutates else []
    return [
        (f"after.{slot}", tensor) for slot, tensor in written if id(tensor) not in returned and not tensor._is_view()
    ]


def _target(node: Any, number: int) -> Key:
    """A leaf has no node of its own in the forward pass, but one that collects its gradient."""
    return (id(node.variable), -1) if hasattr(node, "variable") else (id(node), number)


def _add(total: Tensor | None, gradient: Tensor) -> Tensor:
    with quiet():  # neither wants a gradient, so none is made of the sum
        found = gradient.detach()
        return found if total is None else total + found
