"""Recorded gradients of one call, by the values that they belong to, and the readings of them.

gradients_of(side, call)      Gradients(outputs={21: 30}, inputs={17: [31]}): tensor 30 came in for 21, 31 was sent back for 17
other_readings(gradients)     the same for frameworks that count what goes within the call otherwise
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from ..model.records import Call
from .sides import Side, inputs_of, outputs_of


@dataclass(frozen=True, slots=True)
class Gradients:
    """Recorded gradients of one call: of its results and of its operands, by the number of the value they belong to."""

    outputs: Mapping[int, int]
    inputs: Mapping[int, Sequence[int]]
    inner: Collection[int] = ()
    """Results beside others that no recorded call took: their gradients may come from within the call itself."""
    totals: bool = False
    """True if the gradient of a result has the part that comes from within the call, too: of a cell's c, that by way of its h."""

    def hold(self, seeds: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> None:
        """Let each result send back its recorded gradient and nothing more, where that is the whole one."""
        for result, seed in seeds if self.totals else ():
            if not result.is_leaf and result.requires_grad:
                result.register_hook(lambda _, seed=seed: seed)


def gradients_of(side: Side, call: Call) -> Gradients:
    """Gradients of a call in its last backward pass."""
    taken, made = inputs_of(call), outputs_of(call)
    outputs: dict[int, int] = {}
    inputs: dict[int, list[int]] = {}
    last = min((gradient.count for gradient in call.gradients), default=0)
    for gradient in call.gradients:
        if gradient.count != last:
            continue
        if gradient.role == "output":
            value = made.get(gradient.slot, made.get("0") if not gradient.slot else None)
            if value is not None:
                outputs[value] = gradient.tensor
        elif gradient.slot in taken:
            inputs.setdefault(taken[gradient.slot], []).append(gradient.tensor)
    for value in made.values() if inputs else ():
        # A hook on a tensor that is written to afterwards is one on the new value: the only taker knows the old one's gradient.
        if value not in outputs:
            parts = side.contributions(value)
            added = _gradient_of_sum(side, value) if not parts else None
            if added is not None:
                outputs[value] = added
            elif len(parts) == 1:
                outputs[value] = parts[0][1]
    inner = frozenset(value for value in outputs if not side.takers(value))
    return Gradients(outputs, inputs, inner if len(inner) < len(outputs) else ())


def _gradient_of_sum(side: Side, value: int) -> int | None:
    """The gradient of the sum that was written over a tensor, which is that of the tensor, too; None if it went elsewhere."""
    takers = side.takers(value)
    meaning = side.meaning(takers[0]) if len(takers) == 1 else None
    if meaning is None or meaning.operation != "add" or meaning.arguments.get("alpha", 1) != 1:
        return None
    shape = side.tensor(value).spec.shape
    made = [number for number in outputs_of(takers[0]).values() if side.tensor(number).spec.shape == shape]
    return next((found for number in made if (found := side.gradient(number)) is not None), None)


def other_readings(gradients: Gradients | None) -> Iterator[Gradients]:
    """Other readings of recorded gradients of several results, one of which may be made of another.

    A norm returns the deviation that it divides by, a cell its state, of which it makes its output. Where the call is one node of
    the graph, the gradient of each is what came from outside; where it is several, it has what came by way of the other result.
    """
    if gradients is None or len(gradients.outputs) < 2:
        return
    if gradients.inner:
        outer = {value: sent for value, sent in gradients.outputs.items() if value not in gradients.inner}
        yield replace(gradients, outputs=outer)
    yield replace(gradients, totals=True)
