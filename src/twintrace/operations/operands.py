"""Operands by slot: what an argument, a parameter or a buffer of a call is for its operation, whatever its framework calls it.

    operand_of("linear", Part.INPUT, "1", function="torch.nn.functional.linear")     weight
    operand_of("embedding", Part.INPUT, "0", function="mindspore.ops.Gather")        weight: its table comes first
    operand_of("batch_norm", Part.PARAMETER, "gamma")                                weight
    parameter_of("moving_mean")                                                      running_mean

Read off the rows of the function or module; of one that has none, off the order of the catalog, counted among the tensors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from ..model.pairs import Part
from . import mindspore_names, mindspore_reading, module_names, torch_names, torch_reading
from .catalog import OPERATIONS
from .families import family_of
from .rows import NotTold, Row

TENSORS = frozenset((
    "input", "other", "weight", "bias", "running_mean", "running_var", "query", "key", "value", "attn_mask", "mask", "target",
    "condition", "index", "indices", "src", "source", "tensors", "operands", "mat1", "mat2", "hx", "params", "w_ih", "w_hh", "b_ih",
    "b_hh",
))  # fmt: skip
"""Arguments of the catalog's operations that are tensors as a rule."""

_SHARED: Mapping[tuple[str, str], Mapping[str, str]] = {
    ("linear", "addmm"): {"input": "bias", "mat1": "input", "mat2": "weight"},
    ("matmul", "addmm"): {"input": "bias", "mat1": "input", "mat2": "other"},
    ("embedding", "index_select"): {"input": "weight", "index": "input"},
    ("embedding", "take"): {"input": "weight", "index": "input"},
    ("add", "bias_add"): {"bias": "other"},
    ("lerp", "lerp"): {"weight": "share"},  # no layer's weight
}
"""Arguments of an operation by what they are for the family that it belongs to."""


@lru_cache(maxsize=65536)
def operand_of(operation: str, part: Part, slot: str, rank: int = -1, function: str = "") -> str:
    """Name of the operand in a slot of a call: `weight` for the second argument of linear, for gamma, for embedding_table.

    Args:
        operation: family of the operation.
        part: where the slot is; those of results are returned as they are.
        slot: `1`, `kw.bias`, `0.2`, or the name of a parameter.
        rank: its place among the tensors in positions, for functions that have no row.
        function: full name of the function. One of another family is read by the order of the operation.
    """
    if part in (Part.PARAMETER, Part.BUFFER):
        owner, _, last = slot.rpartition(".")
        return f"{owner}.{parameter_of(last)}" if owner else parameter_of(last)
    if part is not Part.INPUT:
        return slot
    head, _, rest = slot.partition(".")
    row = _row_of(function) if function and family_of(function) == operation else None
    if head == "kw":
        head, _, rest = rest.partition(".")
        name = _argument(operation, row, head)
    elif not head.isdigit():
        name = head
    elif row is not None and (own := row.signature.name_of(head)) is not None:
        name = _argument(operation, row, own)
    else:
        order = _order(operation)
        place = int(head) if rank < 0 else rank
        name = order[place] if place < len(order) else ("input" if head == "0" else head)
    return f"{name}.{rest}" if rest else name


@lru_cache(maxsize=4096)
def parameter_of(name: str) -> str:
    """Name of a module's parameter or buffer in PyTorch's words: `gamma` is `weight`."""
    return _PARAMETERS.get(name.lower(), name.lower())


def ranks(slots: Sequence[str]) -> list[int]:
    """Place of each slot among those that are positions; -1 for the others, and for what is inside a container."""
    places = sorted(int(slot) for slot in slots if slot.isdigit())
    return [places.index(int(slot)) if slot.isdigit() else -1 for slot in slots]


def _argument(operation: str, row: Row | None, name: str) -> str:
    if row is None or name not in {parameter.name for parameter in row.signature.parameters} | {row.signature.rest}:
        return _PARAMETERS.get(name, _KEYWORDS.get(name, name))
    found = row.renamed.get(name, name)
    return _SHARED.get((operation, row.operation), {}).get(found, found)


@lru_cache(maxsize=4096)
def _order(operation: str) -> tuple[str, ...]:
    """Operands of an operation in the order of the catalog."""
    if operation not in OPERATIONS:
        return ()
    return tuple(parameter.name for parameter in OPERATIONS[operation].parameters if parameter.name in TENSORS)


@lru_cache(maxsize=4096)
def _row_of(function: str) -> Row | None:
    """Row of a function, method, operator or primitive by its full name."""
    try:
        if function.startswith(("torch.", "aten.")):
            home, name, _ = torch_reading.taken_apart(function)
            name = torch_names.OPERATORS.get(name, name)
            return torch_names.row_of(home, name if name.endswith("__") else name.rstrip("_"))
        home, name = mindspore_reading.taken_apart(function)
    except NotTold:
        return None
    name = mindspore_names.OPERATORS.get(name, name)
    name = name if name.endswith("__") else name.rstrip("_")
    found = mindspore_reading.row_of(home, name)
    return torch_names.row_of("F", name) if found is None and home == "mint" else found


def _most_common(renamed: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The operand that a name is in most rows; of equally many, in the first."""
    counts = Counter((own, name) for own, name in renamed if name in TENSORS)
    return dict(key for key, _ in reversed(counts.most_common()))


_MODULES = [*module_names.TORCH.values(), *module_names.MINDSPORE.values()]
_PARAMETERS = _most_common(
    (parameter.name, row.renamed[parameter.name])
    for row in _MODULES
    for parameter in row.signature.named
    if parameter.name in row.renamed
)
"""Operands by the names that frameworks give a module's parameters and buffers."""
_KEYWORDS: Mapping[str, str] = {
    **_most_common(
        (own, name)
        for row in (*torch_names.ROWS.values(), *mindspore_names.ROWS.values(), *_MODULES)
        for own, name in row.renamed.items()
        if own not in TENSORS
    ),
    "self": "input", "data": "input", "predict": "input", "q": "query", "k": "key", "v": "value", "mask": "attn_mask",
    "attention_mask": "attn_mask",
}  # fmt: skip
"""Operands by keyword, for functions and modules that have no row."""
