"""Layers, and the tree that their paths form.

encoder.0.attn.q.weight, .bias      Group encoder.0.attn.q: a linear [16, 16], its weights by role
                                    Node  encoder - 0 - attn - q, each noting what is below it, in any order
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..model.tensors import Spec
from .states import Item, State

# Names that weights of layers have; anything else is a parameter that somebody put into a module of their own.
_ORDINARY = re.compile(
    r"weight(\.[gv])?|bias|running_(mean|var)|num_batches_tracked|(weight|bias)_[ih]h(_l\d+(_reverse)?)?|in_proj_\w+|\w_proj_weight|bias_[kv]"
)
_FAMILIES = {"layer_norm": "norm", "group_norm": "norm", "rms_norm": "norm", "instance_norm": "batch_norm"}


@dataclass
class Group:
    """A layer: its weights by role. `order` is its place in the state."""

    path: str
    order: int
    items: dict[str, Item] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        return next((item.rule.kind for item in self.items.values() if item.rule.kind), "")

    def signature(self, with_kind: bool, loose: bool = False) -> tuple[Any, ...]:
        """Equal for layers that could be the same one; `loose`: whatever their kind, if they have as many elements."""
        if loose:
            counts = (count(item.spec) for item in self.items.values() if not item.counter and item.role != "weight.g")
            return tuple(sorted(counts))
        kind = _FAMILIES.get(self.kind, self.kind)
        if kind in ("norm", "batch_norm"):  # one framework may leave out what the other always has
            size = next((item.plain.shape for item in self.items.values() if item.plain.shape), ())
            return (kind, size)
        shapes = {}
        for role, item in self.items.items():
            if not item.counter and role != "weight.g":
                shapes["weight" if role == "weight.v" else role] = tuple(
                    size for axis, size in enumerate(item.plain.shape) if axis < 2 or size != 1
                )
        return (kind if with_kind else "", *sorted(shapes.items()))

    def __str__(self) -> str:
        shapes = sorted({item.plain.shape for item in self.items.values() if item.plain.shape}, key=len)
        return f"{self.kind or 'layer'} {list(shapes[-1]) if shapes else ''}".strip()


@dataclass
class Node:
    """A place in the tree of paths."""

    name: str
    group: Group | None = None
    children: dict[str, Node] = field(default_factory=dict)
    deep: tuple[Any, ...] = ()

    def groups(self) -> Iterator[Group]:
        if self.group is not None:
            yield self.group
        for child in self.children.values():
            yield from child.groups()

    def inner(self) -> Node:
        """This node, or the first below it where there is anything to choose."""
        node = self
        while node.group is None and len(node.children) == 1:
            node = next(iter(node.children.values()))
        return node


def groups_of(state: State) -> dict[str, Group]:
    """The layers of a state. A weight that no layer is known to have stands for itself: its name is its path."""
    found: dict[str, Group] = {}
    for item in state.items.values():
        if item.same_as is None:
            alone = not item.rule.kind and not _ORDINARY.fullmatch(item.role)
            path, role = (".".join(filter(None, (item.path, item.role))), "value") if alone else (item.path, item.role)
            found.setdefault(path, Group(path, len(found))).items[role] = item
    return found


def tree_of(groups: Iterable[Group], look: Callable[[Group], Any]) -> Node:
    """The tree of the layers' paths. `look`: what a layer is, for the notes about what is below a node."""
    root = Node("")
    for group in groups:
        node = root
        for part in group.path.split(".") if group.path else ():
            node = node.children.setdefault(part, Node(part))
        node.group = group
    _sign(root, look)
    return root


def _sign(node: Node, look: Callable[[Group], Any]) -> None:
    """Note at each node what is below it, in any order."""
    signatures: list[Any] = []
    for child in node.children.values():
        _sign(child, look)
        signatures.extend(child.deep)
    if node.group is not None:
        signatures.append(repr(look(node.group)))
    node.deep = tuple(sorted(signatures))


def below(node: Node, path: str = "") -> Iterator[tuple[str, Node]]:
    """A node and all below it, with their paths."""
    here = f"{path}.{node.name}".lstrip(".")
    yield here, node
    for child in node.children.values():
        yield from below(child, here)


def by_contents(nodes: Mapping[str, Node]) -> dict[tuple[Any, ...], list[str]]:
    """The names of nodes that have the same below them."""
    found: dict[tuple[Any, ...], list[str]] = {}
    for name, node in nodes.items():
        found.setdefault(node.deep, []).append(name)
    return found


def count(spec: Spec) -> int:
    """How many elements it has."""
    return math.prod(spec.shape)
