"""Listing of the table: every operation, its names in each framework, and what is known of it.

    listing()[0]                 KnownOperation("abs", torch=("abs", "absolute", …), forward=True, backward=True, …)
    select(listing(), ["Dense"]) those that have such a name in some framework

Read off the tables that meanings are made with; needs no framework. Two rules are in no table. A function of PyTorch's (or of
`mindspore.mint`) that has no row is called as it stands. A name that ends in `_`, and `out=`, are the operation out of place.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from ..model.listings import KnownOperation
from ..model.tensors import Spec
from . import mindspore_names, mindspore_reading, module_names, torch_names, torch_reading
from .catalog import OPERATIONS
from .families import operations_named
from .meanings import Meaning, Operand
from .optimizers import KINDS, written_by
from .rows import Row
from .steps import STEPS
from .traits import draws, has_gradient, traits_of, writes
from .variants import variants

_HOMES = {"F": "torch.nn.functional", "Tensor": "torch.Tensor", "linalg": "torch.linalg", "special": "torch.special",
          "functional": "torch.functional", "fft": "torch.fft"}  # fmt: skip
_OURS = frozenset((
    "identity", "trunc_divide", "div_no_nan", "cast", "quick_gelu", "swiglu", "max_dim", "min_dim", "median_dim",
    "bias_add", "add_all", "conv", "conv_transpose", "max_pool", "avg_pool", "lp_pool", "adaptive_avg_pool", "adaptive_max_pool",
    "attention_backward", "multi_head_attention", "l2_normalize", "dice_loss", "half_square_sum", "getitem", "setitem", "gather_nd",
    "depth_to_space", "space_to_depth", "weight_norm", "mirror_pad", "unfold_axis", "rnn", "flat_lstm", "lstm_layer",
    "lstm_layer_backward", "rnn_cell",
))  # fmt: skip
"""Operations whose names here are no names of PyTorch's."""
Names = dict[str, set[str]]


def listing() -> list[KnownOperation]:
    """Every operation by name, then what only asks a question."""
    torch, mindspore = _torch(), _mindspore()
    known = [_entry(name, torch, mindspore) for name in sorted({*OPERATIONS, *STEPS})]
    return known + [_question(name) for name in sorted(torch_names.QUESTIONS | mindspore_reading.SILENT)]


def select(known: Iterable[KnownOperation], names: Sequence[str]) -> list[KnownOperation]:
    """Operations that have one of these names, or a name with it inside, in some framework; `conv*` is a pattern."""
    return [item for item in known if any(_fits(item, name.lower()) for name in names)] if names else list(known)


def _fits(item: KnownOperation, wanted: str) -> bool:
    for name in (item.name, *item.torch, *item.mindspore, *item.msadapter):
        whole, last = name.lower(), name.lower().rpartition(".")[2]
        if any(mark in wanted for mark in "*?["):
            if fnmatchcase(last, wanted) or fnmatchcase(whole, wanted):
                return True
        elif wanted in last or ("." in wanted and wanted in whole):
            return True
    return False


def _entry(name: str, torch: Names, mindspore: Names) -> KnownOperation:
    step = name in STEPS
    drawn = draws(name)
    traits = traits_of(Meaning(name, {}, {}))
    forward = drawn != "always" and not traits.uninitialised
    operators = _in_place(name)
    own = torch.get(name, set())
    return KnownOperation(
        name,
        torch=tuple(sorted(own)),
        mindspore=tuple(sorted(mindspore.get(name, set()))),
        msadapter=tuple(sorted(item for item in own if not item.startswith("aten."))),
        forward=forward,
        backward=forward and not step and has_gradient(name),
        draws=drawn,
        moves=traits.moves,
        asks=False,
        writes=written_by(name) if step else (*writes(name), *operators),
        variants=tuple(_variants(name)),
    )


def _question(name: str) -> KnownOperation:
    asked = name in torch_names.QUESTIONS
    known = KnownOperation(name, (), (name,), (), False, False, "", False, True, (), ())
    return replace(known, torch=(name,), msadapter=(name,)) if asked else known


def _torch() -> Names:
    """PyTorch's names by operation."""
    found: Names = {name: {name} for name in OPERATIONS if name not in _OURS}
    for name, row in torch_names.ROWS.items():
        found.setdefault(row.operation, set()).add(_full(name, "torch"))
    for alias in torch_names.ALIASES:
        home, _, last = alias.rpartition(".")
        known = torch_names.row_of(home or "torch", last)
        if known is not None:
            found.setdefault(known.operation, set()).add(_full(alias, "torch"))
    _add(found, torch_reading.SPECIAL, lambda name: _full(name, "torch"))
    _add_operators(found, torch_names.OPERATORS, lambda name: torch_names.row_of("Tensor", name), "torch.Tensor.")
    _add_modules(found, module_names.TORCH, "torch.nn.")
    for name, kind in KINDS.items():
        if name.startswith("torch."):
            found.setdefault(kind, set()).add(name)
    return found


def _mindspore() -> Names:
    """MindSpore's names by operation; those of `mint` are PyTorch's, and listed only where they have a row of their own."""
    found: Names = {name: {name} for name in mindspore_names.SAME}
    for name, row in mindspore_names.ROWS.items():
        found.setdefault(row.operation, set()).add(_full(name, "mindspore"))
    for alias in mindspore_names.ALIASES:
        known = mindspore_reading.row_of("ops", alias)
        if known is not None:
            found.setdefault(known.operation, set()).add(_full(alias, "mindspore"))
    _add(found, mindspore_reading.SPECIAL, lambda name: _full(name, "mindspore"))
    _add_operators(
        found, mindspore_names.OPERATORS, lambda name: mindspore_reading.row_of("Tensor", name), "mindspore.Tensor."
    )
    _add_modules(found, module_names.MINDSPORE, "mindspore.nn.")
    for name, kind in KINDS.items():
        if name.startswith("mindspore."):
            found.setdefault(kind, set()).add(name)
    return found


def _full(name: str, framework: str) -> str:
    """A name of a table with its home written out; without one, it is found by the last part alone."""
    home, _, last = name.rpartition(".")
    if not home or home == "aten":
        return name
    if framework == "mindspore":
        return f"mindspore.{name}"
    return f"{_HOMES.get(home, home)}.{last}"


def _add(found: Names, special: Iterable[str], full: Callable[[str], str]) -> None:
    """Names of functions that a row cannot tell: all operations that a call of this name may be."""
    for name in special:
        if not name.endswith("Grad"):
            along = {f"{name}_dim"} & OPERATIONS.keys()  # of all elements, or along an axis
            for operation in operations_named(name) | along:
                found.setdefault(operation, set()).add(full(name))


def _add_operators(
    found: Names, operators: Mapping[str, str], row_of: Callable[[str], Row | None], prefix: str
) -> None:
    for operator, name in operators.items():
        bare = name if name.endswith("__") else name.rstrip("_")
        row = row_of(bare)
        for operation in {row.operation} if row is not None else operations_named(bare):
            found.setdefault(operation, set()).add(prefix + operator)


def _add_modules(found: Names, rows: Mapping[str, Row], prefix: str) -> None:
    for name, row in rows.items():
        found.setdefault(row.operation, set()).add(prefix + name)
    for name in ("LSTM", "GRU", "RNN"):
        found.setdefault(name.lower(), set()).add(prefix + name)


def _in_place(operation: str) -> tuple[str, ...]:
    """Python's operators that write the result of an operation over its first operand."""
    written = (item for item in torch_names.OPERATORS.items() if item[1].endswith("_") and not item[1].endswith("__"))
    return tuple(operator for operator, name in written if operation in operations_named(name.rstrip("_")))


_SAMPLES: Mapping[str, Any] = {
    "padding": ((0, 1), (1, 1)), "kernel_size": (3, 3), "stride": (1, 1), "dilation": (1, 1), "ceil_mode": (1, 1), "size": (4, 4),
    "index": (slice(0, 4, 1),), "output_size": (2, 2), "beta1_power": None, "beta2_power": None, "negative_slope": 0.5,
    "momentum": 0.25, "p": 0.25, "correction": 2, "eps": 0.5, "dim": None, "eps_added": "", "reduction": "", "mode": "",
    "training": True, "is_causal": None, "scale": 0.75, "label_smoothing": 0.5, "nesterov": None, "weight_decay": 0.5,
    "approximate": "", "decoupled": None, "align_corners": None, "count_include_pad": None, "upscale_factor": 2, "block_size": 2,
    "divisor_override": None, "normalized_shape": (8,), "transpose_a": False, "transpose_b": False,
}  # fmt: skip
"""Arguments that no variant has: all variants of an operation are others."""


def _variants(operation: str) -> list[str]:
    """Sentences of the variants of an operation; one for all axes, one for all epsilons."""
    signature = OPERATIONS.get(operation)
    names = (
        [item.name for item in signature.parameters] if signature else inspect.signature(STEPS[operation]).parameters
    )
    arguments = {name: _SAMPLES.get(name, Operand(place)) for place, name in enumerate(names)}
    found = variants(Meaning(operation, arguments, {}), lambda _: Spec("f32", (8, 8, 8, 8)))
    said = (
        re.sub(r"^eps=\S+", "another eps", re.sub(r"^along axis \d+", "along another axis", text)) for text, _ in found
    )
    return list(dict.fromkeys(said))
