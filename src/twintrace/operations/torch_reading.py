"""Meanings of PyTorch's calls (and MSAdapter's, which has PyTorch's names): names taken apart, overloads told apart.

    torch.Tensor.add_         home Tensor, name add, in place
    torch.Tensor.__rsub__     sub with its operands swapped
    aten.mm.default           home aten, name mm

What has neither a row nor an operation of its name is called as it stands: `torch.fft.rfft`, with its positions as `0`, `1` …
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..model.records import Call
from ..model.values import Nest
from .conventions import given
from .meanings import Meaning, Operand, SpecOf
from .reading import Recorded, numbers_in
from .rows import NotTold, signature_of
from .torch_names import OPERATORS, QUESTIONS, row_of

_HOMES = (
    ("torch.nn.functional.", "F"), ("torch.Tensor.", "Tensor"), ("torch._C._nn.", "F"), ("torch._C._linalg.", "linalg"),
    ("torch._C._special.", "special"), ("torch._C._fft.", "fft"), ("torch.functional.", "functional"),
    ("torch.linalg.", "linalg"), ("torch.special.", "special"), ("torch.fft.", "fft"), ("torch._VF.", "torch"),
    ("torch._C.TensorBase.", "Tensor"), ("torch._C._VariableFunctions.", "torch"), ("torch._VariableFunctionsClass.", "torch"),
    ("torch.", "torch"),
)  # fmt: skip
_BY_LAYOUT = frozenset(
    (
        "as_strided",
        "as_strided_scatter",
        "set",
        "resize",
        "resize_as",
        "data_ptr",
        "_cudnn_rnn",
        "_cudnn_rnn_backward",
    )
)
_NUMPY = {"axis": "dim", "keepdims": "keepdim", "x": "input", "a": "input", "x1": "input", "x2": "other"}
"""NumPy's names of arguments, which PyTorch takes for its own."""
COLLECTIVES = (
    "all_reduce", "reduce_scatter", "reduce_scatter_tensor", "reduce_scatter_single", "all_gather", "all_gather_into_tensor",
    "all_gather_single", "broadcast",
)  # fmt: skip
"""Functions of torch.distributed that, of all ranks together, are functions of the whole (`layouts/collectives.py`)."""
FOREACH = "_foreach_"
"""Beginning of the names of multi-tensor kernels, which do what the function of the same name does."""
_BY_NUMBERS = {"maximum": "clamp_min", "maximum_": "clamp_min_", "minimum": "clamp_max", "minimum_": "clamp_max_"}
"""Functions for one tensor of the kernels that take a number where the function of their name takes a tensor."""
Special = Callable[[Recorded], Meaning]
SPECIAL: dict[str, Special] = {}
"""Functions that a row cannot tell: overloads, and settings that are read off the operands."""


def read_call(call: Call, spec: SpecOf) -> Meaning | None:
    """Meaning of a call of one of PyTorch's functions, methods, operators or kernels; None for what Python only asked."""
    full = call.site.name
    home, name, overload = taken_apart(full)
    if name.startswith(FOREACH) and not any(isinstance(value, Nest) for value in call.args):
        call, name, overload = _of_one_tensor(call, name.removeprefix(FOREACH)), name.removeprefix(FOREACH), ""
        name = _BY_NUMBERS.get(name, name) if not numbers_in(call.args[-1]) else name
    name = OPERATORS.get(name, name) if home in ("Tensor", "torch") else name
    inplace = name.endswith("_") and not name.endswith("__")
    bare = name.rstrip("_") if inplace else name
    if bare.lstrip("_") in QUESTIONS or name in QUESTIONS:
        return None
    recorded = Recorded(call, spec, full, inplace=inplace or name == "__setitem__" or bool(call.mutates))
    recorded.kwargs = {_NUMPY.get(key, key): value for key, value in recorded.kwargs.items()}
    return read_named(recorded, home, bare, overload)


def _of_one_tensor(call: Call, name: str) -> Call:
    """A part of a multi-tensor kernel with the arguments of the function for one tensor, which names its factor."""
    if name.rstrip("_") in ("addcmul", "addcdiv") and len(call.args) > 3:
        return replace(call, args=call.args[:3], kwargs={**call.kwargs, "value": call.args[3]})
    return call


def read_named(recorded: Recorded, home: str, bare: str, overload: str) -> Meaning:
    """Meaning by PyTorch's table; `bare` is the name without the underscore of in-place functions."""
    special = SPECIAL.get(f"{home}.{bare}") or SPECIAL.get(bare)
    if special is not None and home != "fft":
        return special(recorded)
    row = row_of(home, bare)
    if row is not None and row.operation:
        return recorded.read(row)
    return as_it_stands(recorded, home, bare, overload)


def taken_apart(full: str) -> tuple[str, str, str]:
    """`(home, name, overload)` of a full name."""
    if full.startswith("_c10d_functional."):
        return "torch", full.split(".")[1], ""
    if full.startswith("aten."):
        _, name, *overload = full.split(".")
        return "aten", name, ".".join(overload)
    for prefix, home in _HOMES:
        if full.startswith(prefix):
            rest = full[len(prefix) :]
            return home, rest.rpartition(".")[2] if home == "torch" else rest, ""
    return "", full, ""


def as_it_stands(recorded: Recorded, home: str, name: str, overload: str) -> Meaning:
    """The function itself with its arguments, out of place; homes that are not public have the name of those that are."""
    homes = {"F": "torch.nn.functional", "functional": "torch.functional", "aten": "torch.ops.aten"}
    where = homes.get(home, "torch" if home == "torch" else f"torch.{home}")
    if name in _BY_LAYOUT:
        raise NotTold("it depends on how its operand lies in memory, or runs in one precision only")
    if not home:
        raise NotTold("not PyTorch's")
    if home == "torch" and recorded.name.count(".") > 1 and not recorded.name.startswith("torch._V"):
        raise NotTold("neither a function nor a method")  # torch.optim, torch.distributed, torch.nn.utils …
    dotted = f"{where}.{name}" + (f".{overload}" if overload else "")
    arguments = {str(place): value for place, value in enumerate(recorded.args)}
    arguments |= {key: value for key, value in recorded.kwargs.items() if key not in ("out", "generator", "inplace")}
    return recorded.meaning(dotted, arguments)


def _special(*names: str) -> Callable[[Special], Special]:
    def add(function: Special) -> Special:
        SPECIAL.update(dict.fromkeys(names, function))
        return function

    return add


def _bound(recorded: Recorded, signature: str) -> dict[str, Any]:
    return recorded.bound(signature_of(signature), {})


@_special("max", "min")
def _extreme(recorded: Recorded) -> Meaning:
    """Of all elements, along an axis (with places), or of two tensors."""
    which = _last(recorded)
    bound = _bound(recorded, f"{which}(input, dim=None, keepdim=False, *, other=None)")
    other = bound["dim"] if isinstance(bound["dim"], Operand) else bound["other"]
    if other is not None:
        name = "maximum" if which == "max" else "minimum"
        return recorded.meaning(name, {"input": bound["input"], "other": other})
    if bound["dim"] is None:
        return recorded.meaning(f"a{which}", {"input": bound["input"]})
    return recorded.meaning(f"{which}_dim", bound)


@_special("median")
def _median(recorded: Recorded) -> Meaning:
    bound = _bound(recorded, "median(input, dim=None, keepdim=False)")
    return recorded.meaning("median" if bound["dim"] is None else "median_dim", bound)


@_special("var", "std", "var_mean", "std_mean")
def _spread_of(recorded: Recorded) -> Meaning:
    """Three ways to write it: (dim, unbiased), (unbiased), (dim, correction=)."""
    name = _last(recorded)
    bound = _bound(recorded, "var(input, dim=None, unbiased=None, keepdim=False, *, correction=None)")
    if isinstance(bound["dim"], bool):
        bound["dim"], bound["unbiased"] = None, bound["dim"]
    if "aten" in recorded.name and recorded.name.endswith("correction"):
        bound["keepdim"] = recorded.kwargs.get("keepdim", False)
    unbiased, correction = bound["unbiased"], bound["correction"]
    bound["correction"] = correction if correction is not None else int(unbiased) if unbiased is not None else 1
    return recorded.meaning(name, bound)


@_special("norm", "linalg.norm")
def _norm(recorded: Recorded) -> Meaning:
    bound = _bound(recorded, "norm(input, p='fro', dim=None, keepdim=False, out=None, dtype=None, *, ord=None, A=None)")
    order = given(bound["ord"], bound["p"])
    if recorded.name.startswith("torch.linalg") and order not in (None, "fro"):
        rank = recorded.context.rank(bound["input"])
        if (bound["dim"] is None and rank == 2) or (isinstance(bound["dim"], tuple) and len(bound["dim"]) == 2):
            raise NotTold("a norm of matrices")
    if order == "nuc":
        raise NotTold("a norm of matrices")
    bound["ord"] = 2 if order in (None, "fro") else float(order) if isinstance(order, str) else order
    return recorded.meaning("vector_norm", bound)


@_special("where")
def _where(recorded: Recorded) -> Meaning:
    bound = _bound(recorded, "where(condition, input=None, other=None)")
    if "Tensor." in recorded.name and recorded.name.startswith("torch.Tensor"):
        bound["condition"], bound["input"] = bound["input"], bound["condition"]
    if bound["other"] is None:
        return recorded.meaning("nonzero", {"input": bound["condition"], "as_tuple": True})
    return recorded.meaning("where", bound)


@_special("div", "divide", "true_divide")
def _div(recorded: Recorded) -> Meaning:
    bound = _bound(recorded, "div(input, other, *, rounding_mode=None)")
    names = {"floor": "floor_divide", "trunc": "trunc_divide"}
    return recorded.meaning(names.get(bound["rounding_mode"], "div"), bound)


@_special("arange", "range")
def _arange(recorded: Recorded) -> Meaning:
    """`arange(end)`, `arange(start, end, step)`."""
    bound = _bound(recorded, "arange(start=None, end=None, step=1, *rest)")
    if bound["end"] is None:
        bound["start"], bound["end"] = 0, bound["start"]
    return recorded.meaning("arange", {**bound, "dtype": recorded.context.out_dtype()})


@_special("clamp", "clip")
def _clamp(recorded: Recorded) -> Meaning:
    return recorded.meaning("clamp", _bound(recorded, "clamp(input, min=None, max=None)"))


@_special("scatter")
def _scatter(recorded: Recorded) -> Meaning:
    bound = _bound(recorded, "scatter(input, dim, index, src=None, *, value=None, reduce=None)")
    bound["src"] = bound["src"] if bound["src"] is not None else bound["value"]
    if bound["reduce"] is not None:
        raise NotTold("scatter with a reduction")
    return recorded.meaning("scatter", bound)


@_special("index_select")
def _index_select(recorded: Recorded) -> Meaning:
    return recorded.meaning("index_select", _bound(recorded, "index_select(input, dim, index)"))


@_special("transpose", "swapaxes", "swapdims")
def _transpose(recorded: Recorded) -> Meaning:
    recorded.kwargs = {name.replace("axis", "dim"): value for name, value in recorded.kwargs.items()}
    bound = _bound(recorded, "transpose(input, dim0, dim1)")
    return recorded.meaning(
        "permute",
        {"input": bound["input"], "dims": recorded.context.permutation(bound["input"], bound["dim0"], bound["dim1"])},
    )


@_special(
    "to",
    "type",
    "type_as",
    "float",
    "double",
    "half",
    "bfloat16",
    "int",
    "long",
    "short",
    "bool",
    "byte",
    "char",
    "_to_copy",
)
def _to(recorded: Recorded) -> Meaning:
    """To another element type; to another device or layout alone, the values stay."""
    tensor = recorded.args[0] if recorded.args else recorded.kwargs["input"]
    before, after = recorded.context.dtype(tensor), recorded.context.out_dtype()
    if before == after:
        return recorded.meaning("identity", {"input": tensor})
    return recorded.meaning("cast", {"input": tensor, "dtype": after})


@_special(*(f"torch.{name}" for name in COLLECTIVES))
def collective(recorded: Recorded) -> Meaning:
    """A collective of all ranks, where `whole` says what it makes of the whole; of one rank alone nothing is told."""
    verb, *words = str(recorded.kwargs.get("whole") or "nothing").split()
    if verb == "times":
        factor = float(words[0])
        if factor == 1.0:
            return recorded.meaning("identity", {"input": recorded.args[0]})
        return recorded.meaning("mul", {"input": recorded.args[0], "other": factor})
    if verb == "pieces":
        return recorded.meaning("torch.chunk", {"0": recorded.args[0], "1": int(words[0]), "2": int(words[2])})
    raise NotTold("a collective, of which one rank knows a part")


@_special("as_tensor", "asarray", "tensor")
def _tensor(recorded: Recorded) -> Meaning:
    bound = _bound(recorded, "as_tensor(data, *rest)")
    if isinstance(bound["data"], Operand):
        same = recorded.context.dtype(bound["data"]) == recorded.context.out_dtype()
        return recorded.meaning(
            "identity" if same else "cast", {"input": bound["data"], "dtype": recorded.context.out_dtype()}
        )
    return recorded.meaning("tensor", {"data": bound["data"], "dtype": recorded.context.out_dtype()})


@_special("aten.convolution", "convolution", "_convolution")
def _convolution(recorded: Recorded) -> Meaning:
    bound = _bound(
        recorded,
        "convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups, *rest)",
    )
    count = len(recorded.context.kernel(bound["weight"]))
    spread, sides = recorded.context.names()["spread"], recorded.context.names()["sides"]
    bound |= {name: spread(bound[name], count) for name in ("stride", "dilation", "output_padding")}
    bound["padding"] = sides(bound["padding"], count)
    return recorded.meaning("conv_transpose" if bound["transposed"] else "conv", bound)


@_special("max_pool1d_with_indices", "max_pool2d_with_indices", "max_pool3d_with_indices")
def _pool_with_indices(recorded: Recorded) -> Meaning:
    row = row_of("F", _last(recorded).removesuffix("_with_indices"))
    assert row is not None
    return recorded.read(row)


@_special("hstack", "vstack", "dstack", "row_stack", "column_stack")
def _stacks(recorded: Recorded) -> Meaning:
    return stacked(recorded, _bound(recorded, "hstack(tensors)")["tensors"])


def stacked(recorded: Recorded, tensors: Any) -> Meaning:
    """Tensors put together along an axis that vectors do not have: told where they have it."""
    ranks = [recorded.context.rank(tensor) for tensor in tensors]
    last = recorded.name.rpartition(".")[2]
    if last == "hstack":
        return recorded.meaning("cat", {"tensors": tensors, "dim": 1 if ranks[0] > 1 else 0})
    if last in ("vstack", "row_stack") and min(ranks) > 1:
        return recorded.meaning("cat", {"tensors": tensors, "dim": 0})
    if last in ("vstack", "row_stack") and max(ranks) == 1:
        return recorded.meaning("stack", {"tensors": tensors, "dim": 0})
    return recorded.meaning(f"torch.{last}", {"0": tensors})


@_special("inner")
def _inner(recorded: Recorded) -> Meaning:
    bound = _bound(recorded, "inner(input, other)")
    if recorded.context.rank(bound["other"]) == 1:
        return recorded.meaning("matmul", bound)
    return recorded.meaning("torch.inner", {"0": bound["input"], "1": bound["other"]})


@_special("rms_norm_fused", "_fused_rms_norm")
def _fused_rms_norm(recorded: Recorded) -> Meaning:
    bound = _bound(recorded, "rms_norm(input, normalized_shape, weight=None, eps=None)")
    bound["eps"] = given(bound["eps"], recorded.context.machine_epsilon(bound["input"]))
    return recorded.meaning("rms_norm", bound)


@_special("lstm_cell", "gru_cell")
def _cell(recorded: Recorded) -> Meaning:
    return recorded.meaning(_last(recorded), _bound(recorded, "cell(input, hx, w_ih, w_hh, b_ih=None, b_hh=None)"))


def _last(recorded: Recorded) -> str:
    full = recorded.name.replace("mindspore.mint.", "torch.")
    _, name, _ = taken_apart(full)
    return name.rstrip("_") if not name.endswith("__") else name
