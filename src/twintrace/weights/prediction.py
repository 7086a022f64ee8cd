"""Predicts the names of a net's weights in another framework, given one side only.

bn.running_mean    BatchNorm2d running_mean      bn.moving_mean
conv.weight        Conv1d weight                 conv.weight, "insert axis 2"
"""

from __future__ import annotations

from collections.abc import Callable

from ..model.errors import WeightsError
from ..model.weights import Ambiguity, Pair, Unpaired, WeightMap
from ..model.words import dotted
from .layers import UNKNOWN, counterpart
from .members import dimension, lengths_of
from .states import Item, State
from .transforms import inverse, simple


def predict(
    left: State, framework: str, *, mint: bool = False, rename: Callable[[str], str] | None = None
) -> WeightMap:
    """The map to a net of another framework that is built alike, given one side only.

    mint     name the weights as mindspore.mint.nn does, not as mindspore.nn
    rename   makes another name of each
    """
    pairs, alone, ambiguous = [], [], []
    taken: dict[str, str] = {}
    for item in left.items.values():
        if item.same_as is not None and framework == "mindspore":
            alone.append(Unpaired(item.name, f"tied to {item.same_as}, which is carried over", harmless=True))
            continue
        if item.role == "weight.g":
            continue  # goes with its direction
        if item.counter and framework == "mindspore" and not mint:
            alone.append(
                Unpaired(item.name, "a count of batches, which MindSpore's nn layers do not keep", harmless=True)
            )
            continue
        name, steps = _predicted(item, framework, mint)
        name = rename(name) if rename else name
        sources: tuple[str, ...] = (item.name,)
        if item.role == "weight.v":
            lengths = lengths_of(item, left)
            if lengths is None:
                alone.append(Unpaired(item.name, "a direction (weight_norm) whose length is not there"))
                continue
            sources, steps = (lengths.name, item.name), (f"weight_norm {dimension(lengths, item)}", *steps)
        if name in taken:
            raise WeightsError(f"{taken[name]} and {item.name} would both be called {name}. Rename one of them.")
        taken[name] = item.name
        because = (
            item.hint if not left.live else f"{item.kind} {item.role}" if item.kind else "no known layer: named alike"
        )
        pair = Pair(sources, name, steps, item.sure, because)
        if item.sure < 0.5:
            ambiguous.append(Ambiguity(sources, (name,), item.hint, (pair,)))
        else:
            pairs.append(pair)
    return WeightMap(left.label, framework, tuple(pairs), tuple(alone), (), tuple(ambiguous))


def _predicted(item: Item, framework: str, mint: bool) -> tuple[str, tuple[str, ...]]:
    path, role, rule = item.path, item.role, UNKNOWN
    undo = inverse(item.layout) or ()
    if role in ("weight.g", "weight.v"):
        role = "weight"
    if framework == "mindspore" and not mint:
        rule = counterpart(framework, item.kind)
        around = {inside: name for name, inside in counterpart(framework, item.outer).children.items()}
        head, _, last = path.rpartition(".")
        path = dotted(head, around.get(last, last))
        for name, inside in rule.children.items():
            if not inside:  # the weights are one level further down
                path, rule = f"{path}.{name}".lstrip("."), counterpart(framework, "BatchNorm2d")
    own = next((own for own, known in rule.roles.items() if known == role), role)
    return dotted(path, own), simple((*undo, *rule.layout.get(role, ())))
