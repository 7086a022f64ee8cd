"""Roles of tensors: what an argument, a parameter or a buffer is for its operation, whatever its framework calls it.

    meaning_of("linear", Part.INPUT, "1")                weight
    meaning_of("batch_norm", Part.PARAMETER, "gamma")    weight

Each row is one role, and a name stands in one row only, so that the relation is symmetric and has no chains.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from ..model.pairs import Part

_PARAMETERS = """
weight            gamma embeddingtable w
bias              beta
runningmean       movingmean
runningvar        movingvariance
"""

# What the tensors among the positional arguments of a function mean, in order.
_ARGUMENTS = """
linear            input weight bias
conv              input weight bias
conv_transpose input weight bias
batch_norm input runningmean runningvar weight bias
instance_norm input runningmean runningvar weight bias
layer_norm input weight bias
rms_norm input weight
group_norm input weight bias
prelu             input weight
scaled_dot_product_attention query key value mask
cross_entropy input target
nll_loss input target
mse_loss input target
l1_loss input target
binary_cross_entropy input target
binary_cross_entropy_with_logits input target
kl_div input target
where             condition input other
masked_fill input mask value
add               input other
sub               input other
mul               input other
div               input other
matmul            input other
"""

# The same for functions that have another order than their namesakes, by their full names.
_ARGUMENTS_OF = """
mindspore.ops.BatchNorm     input weight bias runningmean runningvar
mindspore.ops.Gather        weight input
mindspore.ops.gather        weight input
"""

# Names of keyword arguments, and of positions where an operation has no row above.
_KEYWORDS = """
input             x inputx inputs self tensor a logits predict data
other             y mat2 inputy b exponent
target            labels label
mask              attnmask attentionmask
tensors           tensorlist
query             q
key               k
value             v
"""


def _rows(text: str) -> dict[str, tuple[str, ...]]:
    """Name, then its equals; an indented line goes on with the one above."""
    lines = (line.split() for line in text.replace("\n ", " ").strip().splitlines())
    return {name: tuple(others) for name, *others in lines}


PARAMETERS = _rows(_PARAMETERS)
ARGUMENTS = _rows(_ARGUMENTS)
ARGUMENTS_OF = _rows(_ARGUMENTS_OF)
KEYWORDS = _rows(_KEYWORDS)


def _inverted(rows: dict[str, tuple[str, ...]]) -> dict[str, str]:
    return {name: row for row, others in rows.items() for name in (row, *others)}


_PARAMETER = _inverted(PARAMETERS)
_KEYWORD = _inverted(KEYWORDS)


@lru_cache(maxsize=65536)
def meaning_of(operation: str, part: Part, slot: str, rank: int = -1, function: str = "") -> str:
    """What a tensor is for its operation: `weight` for the second argument of linear, for gamma, for embedding_table.

    `rank` is its place among the tensors in positions; `function` the full name of the function, which may have its own order.
    """
    if part in (Part.PARAMETER, Part.BUFFER):
        owner, _, last = slot.rpartition(".")
        name = _bare(last)
        return f"{owner}.{_PARAMETER.get(name, name)}" if owner else _PARAMETER.get(name, name)
    if part is not Part.INPUT:
        return slot
    head, _, rest = slot.partition(".")
    if head == "kw":
        head, _, rest = rest.partition(".")
        name = _bare(head)
        name = _PARAMETER.get(name, _KEYWORD.get(name, name))
    elif head.isdigit():
        row = ARGUMENTS_OF.get(function, ARGUMENTS.get(operation, ()))
        place = int(head) if rank < 0 else rank
        name = row[place] if place < len(row) else ("input" if head == "0" else head)
    else:
        name = head
    return f"{name}.{rest}" if rest else name


def ranks(slots: Sequence[str]) -> list[int]:
    """The place of each slot among those that are positions; -1 for the others, and for what is inside a container."""
    places = sorted(int(slot) for slot in slots if slot.isdigit())
    return [places.index(int(slot)) if slot.isdigit() else -1 for slot in slots]


def _bare(name: str) -> str:
    return name.replace("_", "").lower()


def parameter_meaning(name: str) -> str:
    """The name of a parameter here: `gamma` is `weight`."""
    bare = _bare(name)
    return _PARAMETER.get(bare, bare)
