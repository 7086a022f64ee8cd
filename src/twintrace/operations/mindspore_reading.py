"""Meanings of MindSpore's calls: functions of `ops` and `mint`, methods, primitives and kernels.

    mindspore.mint.softmax          home mint: PyTorch's row, unless MindSpore has one of its own
    mindspore.Tensor.mean           home Tensor
    mindspore.ops.ReduceMean        a primitive, whose attributes are settings of the call
    ReduceMean                      the same as a kernel of level op

What is in no table is not told: `ops` has functions of PyTorch's names with other arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..model.records import Call
from .catalog import OPERATIONS
from .conventions import axis, given
from .meanings import Meaning, Operand, SpecOf
from .mindspore_names import ALIASES, OPERATORS, PRIMITIVES, ROWS, SAME
from .reading import Recorded
from .rows import NotTold, Row, signature_of
from .torch_names import QUESTIONS
from .torch_reading import collective, read_named, stacked

Special = Callable[[Recorded], Meaning]
SPECIAL: dict[str, Special] = {}
"""Functions that a row cannot tell: overloads, and settings that are read off the operands."""
SILENT = frozenset(
    (
        "typeof",
        "CompileOp",
        "make_range",
        "Size",
        "Shape",
        "Rank",
        "item",
        "tolist",
        "shape",
        "size",
        "IsDimUnKnown",
        "StringToEnum",
        "sequence_len",
        "TupleGetItem",
    )
)
"""Calls that compute nothing: questions and what MindSpore does for itself."""
_MINT_ALIASES = {
    "softmax_ext": "softmax", "flatten_ext": "flatten", "hardtanh_op": "hardtanh", "threshold_op": "threshold",
    "silu_func": "silu", "elu_ext": "elu", "inplace_elu": "elu", "inplace_silu": "silu", "npu_gelu": "gelu",
    "adaptive_avg_pool3d_ext": "adaptive_avg_pool3d",
}  # fmt: skip
"""Functions of `mint` that are recorded under a name behind the scenes."""
_CASTS = frozenset((
    "to", "type", "type_as", "astype", "float", "double", "half", "bfloat16", "int", "long", "short", "bool", "byte", "cast",
    "Cast", "to_tensor", "CastExt",
))  # fmt: skip


def read_call(call: Call, spec: SpecOf) -> Meaning | None:
    """Meaning of a call of MindSpore; None for what Python only asked."""
    home, name = taken_apart(call.site.name) if "whole" not in call.kwargs else ("", call.site.name)
    name = OPERATORS.get(name, name)
    inplace = (name.endswith("_") and not name.endswith("__")) or name == "__setitem__" or bool(call.mutates)
    bare = name.rstrip("_") if name.endswith("_") and not name.endswith("__") else name
    bare = bare.removeprefix("Inplace") or bare
    if bare in SILENT or (bare in QUESTIONS and (bare != "equal" or home == "mint")):  # elsewhere it is eq
        return None
    recorded = Recorded(call, spec, call.site.name, inplace=inplace)
    if "whole" in call.kwargs:
        return collective(recorded)
    if bare in _CASTS:
        return _cast(recorded)
    special = SPECIAL.get(f"{home}.{bare}") or (SPECIAL.get(bare) if home != "mint" else None)
    if special is not None:
        return special(recorded)
    row = row_of(home, bare)
    if row is not None:
        return recorded.read(row)
    if home == "mint":
        return read_named(recorded, _mint_home(call.site.name), _MINT_ALIASES.get(bare, bare), "")
    raise NotTold(f"{call.site.name} is in no table")


def taken_apart(full: str) -> tuple[str, str]:
    """`(home, name)`: ops, mint, Tensor; kernels and primitives have the home ops."""
    for prefix, home in (("mindspore.mint.", "mint"), ("mindspore.Tensor.", "Tensor")):
        if full.startswith(prefix):
            if full.startswith("mindspore.mint.distributed."):
                raise NotTold("a collective")
            return home, full.rpartition(".")[2]
    if full.startswith("mindspore.communication.comm_func.") and not full.endswith(".cat"):
        raise NotTold("a collective")
    if full.startswith("mindspore.jit."):
        raise NotTold("compiled code of the user's")
    return "ops", full.rpartition(".")[2]


def row_of(home: str, name: str) -> Row | None:
    """Row of a function, method or primitive. Those of `mint` count only where they are written for it."""
    keys = (f"mint.{name}",) if home == "mint" else (f"{home}.{name}", name)
    for key in keys:
        if key in ROWS:
            return ROWS[key]
    alias = ALIASES.get(name)
    if alias is not None and alias != name and (home != "mint" or alias not in OPERATIONS):
        return row_of(home, alias)
    target = alias or (PRIMITIVES.get(name.lower(), name) if name[:1].isupper() else name)
    if home != "mint" and target in SAME:
        return Row(OPERATIONS[target], target)
    return None


def _mint_home(full: str) -> str:
    homes = (("functional", "F"), ("linalg", "linalg"), ("special", "special"))
    return next((home for part, home in homes if f".{part}." in full), "torch")


def _special(*names: str) -> Callable[[Special], Special]:
    def add(function: Special) -> Special:
        SPECIAL.update(dict.fromkeys(names, function))
        return function

    return add


def _bound(recorded: Recorded, signature: str) -> dict[str, Any]:
    return recorded.bound(signature_of(signature), recorded.more())


def _cast(recorded: Recorded) -> Meaning:
    """To another element type; where it has it already, the values stay."""
    tensor = recorded.args[0] if recorded.args else recorded.kwargs["input"]
    if isinstance(tensor, bool | int | float):
        return recorded.meaning("full", {"size": (), "fill_value": tensor, "dtype": recorded.context.out_dtype()})
    before, after = recorded.context.dtype(tensor), recorded.context.out_dtype()
    if before == after:
        return recorded.meaning("identity", {"input": tensor})
    return recorded.meaning("cast", {"input": tensor, "dtype": after})


@_special("Tensor.index_add")
def _index_add(recorded: Recorded) -> Meaning:
    """As PyTorch writes it, the axis first, or as MindSpore did before: the axis last."""
    early = len(recorded.args) > 1 and isinstance(recorded.args[1], Operand)
    if early or "indices" in recorded.kwargs:
        return recorded.read(ROWS["index_add"])
    return recorded.read(ROWS["IndexAddExt"])


@_special("MatMul", "BatchMatMul")
def _matmul(recorded: Recorded) -> Meaning:
    """A product with a transposed matrix is a linear map; PyTorch has no name for the others."""
    bound = _bound(recorded, "MatMul(input, other, transpose_a, transpose_b)")
    plain = not bound["transpose_a"] and recorded.context.rank(bound["other"]) == 2
    if bound["transpose_b"] and plain:
        return recorded.meaning("linear", {"input": bound["input"], "weight": bound["other"]})
    return recorded.meaning("matmul", bound)


@_special("BiasAdd", "bias_add")
def _bias_add(recorded: Recorded) -> Meaning:
    bound = _bound(recorded, "BiasAdd(input, bias, data_format='NCHW')")
    rank = recorded.context.rank(bound["input"])
    last = str(bound["data_format"]) in ("NHWC", "1") or rank == 2
    if last:
        return recorded.meaning("add", {"input": bound["input"], "other": bound["bias"]})
    return recorded.meaning("bias_add", {**bound, "dim": 1})


@_special("max", "min")
def _extreme(recorded: Recorded) -> Meaning:
    """`ops.max` along an axis gives places as well; methods take PyTorch's names too."""
    which = recorded.name.rpartition(".")[2]
    bound = _bound(
        recorded, "max(input, axis=None, keepdims=False, *, initial=None, where=None, dim=None, keepdim=False)"
    )
    if bound["initial"] is not None or isinstance(bound["where"], Operand):
        raise NotTold("initial values")
    if isinstance(bound["axis"], Operand):
        return recorded.meaning(
            "maximum" if which == "max" else "minimum", {"input": bound["input"], "other": bound["axis"]}
        )
    place = given(bound["dim"], bound["axis"])
    keep = bool(bound["keepdims"]) or bool(bound["keepdim"])
    if place is None and len(recorded.outputs) == 1:
        return recorded.meaning(f"a{which}", {"input": bound["input"]})
    if len(recorded.outputs) == 1:
        return recorded.meaning(f"a{which}", {"input": bound["input"], "dim": place, "keepdim": keep})
    if place is None:
        raise NotTold("places in the flattened tensor")
    return recorded.meaning(f"{which}_dim", {"input": bound["input"], "dim": place, "keepdim": keep})


@_special("ArgMaxWithValue", "ArgMinWithValue")
def _with_places(recorded: Recorded) -> Meaning:
    """Places first, then values: the other way round than PyTorch."""
    bound = _bound(recorded, "ArgMaxWithValue(input, axis=0, keep_dims=False)")
    which = "max" if "Max" in recorded.name else "min"
    meaning = recorded.meaning(
        f"{which}_dim", {"input": bound["input"], "dim": bound["axis"], "keepdim": bool(bound["keep_dims"])}
    )
    swapped: dict[int, int | str] = {
        number: 1 - key if isinstance(key, int) else key for number, key in meaning.results.items()
    }
    return Meaning(meaning.operation, meaning.arguments, swapped, meaning.called)


@_special("median")
def _median(recorded: Recorded) -> Meaning:
    bound = _bound(recorded, "median(input, axis=-1, keepdims=False)")
    return recorded.meaning("median_dim", {"input": bound["input"], "dim": bound["axis"], "keepdim": bound["keepdims"]})


@_special("where", "mint.where")
def _where(recorded: Recorded) -> Meaning:
    bound = _bound(recorded, "where(condition, input=None, other=None, *, y=None)")
    if ".Tensor." in recorded.name:
        bound["condition"], bound["input"] = bound["input"], bound["condition"]
        bound["other"] = (
            given(bound["other"], bound["y"]) if not isinstance(bound["other"], Operand) else bound["other"]
        )
    if bound["other"] is None:
        return recorded.meaning("nonzero", {"input": bound["condition"], "as_tuple": True})
    return recorded.meaning("where", bound)


@_special("div", "divide", "true_divide", "Div", "DivMod", "Divs", "RealDiv")
def _div(recorded: Recorded) -> Meaning:
    bound = _bound(recorded, "div(input, other, *, rounding_mode=None)")
    names = {"floor": "floor_divide", "trunc": "trunc_divide"}
    return recorded.meaning(names.get(bound["rounding_mode"], "div"), bound)


@_special("arange", "range", "mint.arange", "Range", "Arange")
def _arange(recorded: Recorded) -> Meaning:
    bound = _bound(recorded, "arange(start=0, end=None, step=1, *rest)")
    if bound["end"] is None:
        bound["start"], bound["end"] = 0, bound["start"]
    return recorded.meaning("arange", {**bound, "dtype": recorded.context.out_dtype()})


_GRADIENTS = {
    "ReluGrad": ("threshold_backward", (0, 1), (0,)),
    "SigmoidGrad": ("sigmoid_backward", (1, 0), ()),
    "TanhGrad": ("tanh_backward", (1, 0), ()),
    "SiLUGrad": ("silu_backward", (0, 1), ()),
}
"""Kernels of the backward pass: PyTorch's kernel, its arguments by position here, further arguments."""


@_special(*_GRADIENTS)
def _gradient(recorded: Recorded) -> Meaning:
    name, places, more = _GRADIENTS[recorded.name.rpartition(".")[2]]
    values = [recorded.args[place] for place in places] + list(more)
    return recorded.meaning(f"torch.ops.aten.{name}.default", {str(place): value for place, value in enumerate(values)})


@_special("norm")
def _norm(recorded: Recorded) -> Meaning:
    bound = _bound(recorded, "norm(A, ord=None, dim=None, keepdim=False, *, dtype=None)")
    rank = recorded.context.rank(bound["A"])
    over_two = (bound["dim"] is None and rank == 2) or (isinstance(bound["dim"], tuple) and len(bound["dim"]) == 2)
    if bound["ord"] not in (None, "fro") and (over_two or isinstance(bound["ord"], str)):
        raise NotTold("a norm of matrices")
    order = 2 if bound["ord"] in (None, "fro") else bound["ord"]
    return recorded.meaning(
        "vector_norm", {"input": bound["A"], "ord": order, "dim": bound["dim"], "keepdim": bound["keepdim"]}
    )


@_special("Tensor.transpose")
def _transpose(recorded: Recorded) -> Meaning:
    """All axes in a new order, or two that change places."""
    bound = _bound(recorded, "transpose(input, *dims, dim0=None, dim1=None)")
    tensor, context = bound["input"], recorded.context
    dims = bound["dims"]
    if bound["dim0"] is not None:
        dims = (bound["dim0"], bound["dim1"])
    rank = context.rank(tensor)
    if len(dims) == 2 and not isinstance(dims[0], tuple):  # two numbers: PyTorch's signature
        return recorded.meaning("permute", {"input": tensor, "dims": context.permutation(tensor, *dims)})
    if not dims:
        return recorded.meaning("permute", {"input": tensor, "dims": context.reversed_axes(tensor)})
    order = context.order(tensor, dims)
    if len(order) != rank:
        raise NotTold("an order of other axes")
    return recorded.meaning("permute", {"input": tensor, "dims": order})


@_special("Tensor.gather")
def _gather(recorded: Recorded) -> Meaning:
    """`gather(dim, index)` takes element by element, `gather(input_indices, axis)` rows."""
    bound = _bound(recorded, "gather(input, dim=None, index=None, *rest, input_indices=None, axis=None, batch_dims=0)")
    if isinstance(bound["dim"], int) and isinstance(bound["index"], Operand):
        return recorded.meaning("gather", bound)
    if bound["batch_dims"]:
        raise NotTold("batch_dims")
    index = bound["dim"] if isinstance(bound["dim"], Operand) else bound["input_indices"]
    place = bound["index"] if isinstance(bound["index"], int) else bound["axis"]
    return recorded.meaning("index_select", {"input": bound["input"], "index": index, "dim": place})


@_special("dot")
def _dot(recorded: Recorded) -> Meaning:
    """`ops.dot` sums over the last axis of one and the last but one of the other, without broadcasting."""
    bound = _bound(recorded, "dot(input, other)")
    ranks = [recorded.context.rank(bound[name]) for name in ("input", "other")]
    if max(ranks) <= 2:
        return recorded.meaning("matmul", bound)
    return recorded.meaning("tensordot", {**bound, "dims": ((ranks[0] - 1,), (max(ranks[1] - 2, 0),))})


@_special("inner")
def _inner(recorded: Recorded) -> Meaning:
    bound = _bound(recorded, "inner(input, other)")
    ranks = [recorded.context.rank(bound[name]) for name in ("input", "other")]
    return recorded.meaning("tensordot", {**bound, "dims": ((ranks[0] - 1,), (ranks[1] - 1,))})


@_special("split", "Tensor.split", "mint.split")
def _split(recorded: Recorded) -> Meaning:
    names = "input=None, sizes=None, axis=None, *, dim=None, tensor=None, split_size_or_sections=None, split_size=None"
    bound = _bound(recorded, f"split({names})")
    tensor = given(bound["input"], bound["tensor"])
    place = axis(given(bound["dim"], given(bound["axis"], 0)), recorded.context.rank(tensor))
    return recorded.meaning("split", {"input": tensor, "sizes": recorded.context.parts(place), "dim": place})


@_special("Tensor.squeeze", "squeeze")
def _squeeze(recorded: Recorded) -> Meaning:
    tensor = recorded.args[0] if recorded.args else recorded.kwargs["input"]
    return recorded.meaning("reshape", {"input": tensor, "shape": recorded.context.out_shape()})


@_special("vstack", "hstack", "dstack", "column_stack", "row_stack")
def _stacks(recorded: Recorded) -> Meaning:
    return stacked(recorded, recorded.args[0] if recorded.args else next(iter(recorded.kwargs.values())))
