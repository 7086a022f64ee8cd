"""Known variants of an operation: what a port computes instead when no argument says so.

    for sentence, variant in variants(meaning):
        "GELU by tanh", gelu(…, approximate="tanh")

The candidates are tried one by one: the one that gives the other side's result is the cause. Only those that the kernels can
compute are given, and none that is the meaning itself.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from .catalog import OPERATIONS
from .meanings import Meaning, Operand, SpecOf, equal_arguments

Candidates = Iterator[tuple[str, Meaning]]


def variants(meaning: Meaning, spec: SpecOf | None = None) -> Candidates:
    """`(sentence, meaning)` of every known variant. `spec` gives shapes, for those that depend on them."""
    for sentence, candidate in _candidates(meaning, spec):
        if candidate.operation != meaning.operation or not _same(candidate.arguments, meaning.arguments):
            yield sentence, candidate


def _same(one: Mapping[str, Any], two: Mapping[str, Any]) -> bool:
    return one.keys() == two.keys() and all(equal_arguments(one[name], two[name]) for name in one)


def _candidates(meaning: Meaning, spec: SpecOf | None) -> Candidates:
    own = _OWN.get(meaning.operation)
    if own is not None:
        yield from own(meaning, spec)
    yield from _other_operation(meaning)
    arguments = meaning.arguments
    if "reduction" in arguments:
        for word, sentence in (("mean", "the mean"), ("sum", "the sum"), ("none", "no reduction")):
            yield f"{sentence} over the elements", _with(meaning, reduction=word)
    if isinstance(arguments.get("eps"), float):
        for value in (1e-12, 1e-8, 1e-7, 1e-6, 1e-5, 1e-3, 0.0):
            yield f"eps={value:g}", _with(meaning, eps=value)
    if "weight" in arguments and isinstance(arguments["weight"], Operand) and meaning.operation in _AFFINE:
        yield "without weight", _with(meaning, weight=None)
    if isinstance(arguments.get("bias"), Operand):
        yield "without bias", _with(meaning, bias=None)
    yield from _other_axis(meaning, spec)


_AFFINE = frozenset(("layer_norm", "group_norm", "batch_norm", "rms_norm", "instance_norm"))


def _with(meaning: Meaning, **changed: Any) -> Meaning:
    return replace(meaning, arguments={**meaning.arguments, **changed})


def _as(meaning: Meaning, operation: str, **changed: Any) -> Meaning:
    """Another operation with the arguments that both have, and defaults for the rest."""
    known = OPERATIONS[operation]
    given = {**meaning.arguments, **changed}
    arguments = {}
    for parameter in known.parameters:
        if parameter.name in given:
            arguments[parameter.name] = given[parameter.name]
        elif not parameter.required:
            arguments[parameter.name] = parameter.default
        else:
            raise KeyError(parameter.name)
    return replace(meaning, operation=operation, arguments=arguments)


_FAMILIES: tuple[tuple[tuple[str, str], ...], ...] = (
    (
        ("relu", "ReLU"), ("relu6", "ReLU6, which stops at 6"), ("gelu", "GELU"), ("silu", "SiLU"), ("leaky_relu", "leaky ReLU"),
        ("quick_gelu", "GELU by sigmoid(1.702x)"), ("elu", "ELU"), ("hardswish", "hard swish"), ("mish", "Mish"),
        ("identity", "no activation"),
    ),
    (("sigmoid", "sigmoid"), ("hardsigmoid", "hard sigmoid"), ("tanh", "tanh")),
    (("softmax", "softmax"), ("log_softmax", "the logarithm of softmax")),
    (("floor_divide", "division rounded down"), ("trunc_divide", "division rounded toward zero"), ("div", "true division")),
    (("remainder", "remainder with the divisor's sign"), ("fmod", "remainder with the dividend's sign")),
    (("add", "a sum"), ("sub", "a difference")),
    (("sum", "sum"), ("mean", "mean"), ("amax", "greatest element")),
    (("max_pool", "max pooling"), ("avg_pool", "average pooling")),
    (("mse_loss", "squared error"), ("l1_loss", "absolute error"), ("smooth_l1_loss", "smooth absolute error")),
    (("normalize", "division by the norm, bounded below"), ("l2_normalize", "the root of the bounded sum of squares")),
)  # fmt: skip


def _other_operation(meaning: Meaning) -> Candidates:
    for family in _FAMILIES:
        names = dict(family)
        if meaning.operation not in names:
            continue
        for operation, sentence in family:
            if operation == meaning.operation:
                continue
            try:
                changed: dict[str, Any] = {}
                if operation == "avg_pool":
                    changed = {"count_include_pad": True, "divisor_override": None}
                if operation == "max_pool":
                    changed = {"dilation": (1,) * len(meaning.arguments["kernel_size"])}  # type: ignore[arg-type]
                yield sentence, _as(meaning, operation, **changed)
            except (KeyError, TypeError):
                continue


def _other_axis(meaning: Meaning, spec: SpecOf | None) -> Candidates:
    """The same along another axis."""
    known = OPERATIONS.get(meaning.operation)
    kinds = {parameter.name: parameter.kind for parameter in known.parameters} if known else {}
    kind = kinds.get("dim", "")
    first = next((operand for _, operand in meaning.operands()), None)
    if spec is None or not kind or first is None:
        return
    rank = len(spec(first.tensor).shape)
    for place in range(rank):
        changed = (place,) if kind == "axes" else place
        yield f"along axis {place}", _with(meaning, dim=changed)


def _gelu(meaning: Meaning, spec: SpecOf | None) -> Candidates:
    yield "GELU by tanh", _with(meaning, approximate="tanh")
    yield "GELU by the error function", _with(meaning, approximate="none")


def _spread(meaning: Meaning, spec: SpecOf | None) -> Candidates:
    yield "divided by n (biased)", _with(meaning, correction=0)
    yield "divided by n - 1 (unbiased)", _with(meaning, correction=1)


def _attention(meaning: Meaning, spec: SpecOf | None) -> Candidates:
    yield "with a causal mask", _with(meaning, is_causal=True)
    yield "without a causal mask", _with(meaning, is_causal=False)
    yield "scores that are not scaled", _with(meaning, scale=1.0)
    query = meaning.arguments.get("query")
    if spec is not None and isinstance(query, Operand):
        shape = spec(query.tensor).shape
        yield "scores scaled by 1/sqrt(d)", _with(meaning, scale=1 / math.sqrt(shape[-1]))
        yield "scores scaled by 1/d", _with(meaning, scale=1 / shape[-1])
        if len(shape) > 3:
            yield "scaled by the width of all heads", _with(meaning, scale=1 / math.sqrt(shape[-1] * shape[-3]))
    if meaning.arguments.get("attn_mask") is not None:
        yield "without the mask", _with(meaning, attn_mask=None)


def _swapped(one: str, two: str) -> Callable[[Meaning, SpecOf | None], Candidates]:
    def swap(meaning: Meaning, spec: SpecOf | None) -> Candidates:
        arguments = meaning.arguments
        yield "its operands swapped", _with(meaning, **{one: arguments[two], two: arguments[one]})

    return swap


def _matmul(meaning: Meaning, spec: SpecOf | None) -> Candidates:
    arguments = meaning.arguments
    yield "its operands swapped", _with(meaning, input=arguments["other"], other=arguments["input"])
    yield "the second matrix transposed", _with(meaning, transpose_b=not arguments["transpose_b"])
    yield "the first matrix transposed", _with(meaning, transpose_a=not arguments["transpose_a"])


def _linear(meaning: Meaning, spec: SpecOf | None) -> Candidates:
    arguments = meaning.arguments
    weight = arguments["weight"]
    if arguments.get("bias") is None:
        yield "the weight transposed", _as(meaning, "matmul", other=weight)
    elif spec is None or (isinstance(weight, Operand) and len(set(spec(weight.tensor).shape)) == 1):
        yield (
            "the weight transposed",
            _as(meaning, "addmm", input=arguments["bias"], mat1=arguments["input"], mat2=weight),
        )


def _batch_norm(meaning: Meaning, spec: SpecOf | None) -> Candidates:
    arguments = meaning.arguments
    training, momentum = arguments["training"], arguments["momentum"]
    if arguments.get("running_mean") is not None:
        said = "with the running statistics (eval)" if training else "with the statistics of the batch (train)"
        yield said, _with(meaning, training=not training)
    if isinstance(momentum, float):
        yield f"momentum {1 - momentum:g}, the share of the old value", _with(meaning, momentum=1 - momentum)


def _dropout(meaning: Meaning, spec: SpecOf | None) -> Candidates:
    yield "switched off (eval)", _with(meaning, training=False)
    share = meaning.arguments["p"]
    if isinstance(share, int | float):
        yield f"p={1 - share:g}, the share that is kept", _with(meaning, p=1 - share)


def _conv(meaning: Meaning, spec: SpecOf | None) -> Candidates:
    padding = meaning.arguments["padding"]
    if not isinstance(padding, tuple):
        return
    yield "without padding", _with(meaning, padding=((0, 0),) * len(padding))
    pairs: Any = padding
    totals: list[int] = [before + behind for before, behind in pairs]
    yield (
        "the odd cell of the padding behind",
        _with(meaning, padding=tuple((all_ // 2, all_ - all_ // 2) for all_ in totals)),
    )
    yield (
        "the odd cell of the padding before",
        _with(meaning, padding=tuple((all_ - all_ // 2, all_ // 2) for all_ in totals)),
    )
    yield "as much padding before as behind", _with(meaning, padding=tuple((-(-all_ // 2),) * 2 for all_ in totals))


def _pool(meaning: Meaning, spec: SpecOf | None) -> Candidates:
    yield from _conv(meaning, spec)
    cells = meaning.arguments["ceil_mode"]
    if isinstance(cells, tuple):
        yield "without the cells of ceil_mode", _with(meaning, ceil_mode=(0,) * len(cells))
    if "count_include_pad" in meaning.arguments:
        yield "the padding counted", _with(meaning, count_include_pad=True)
        yield "the padding not counted", _with(meaning, count_include_pad=False)


def _pad(meaning: Meaning, spec: SpecOf | None) -> Candidates:
    for mode, sentence in _PADDED.items():
        yield sentence, _with(meaning, mode=mode, value=0)


_PADDED = {
    "constant": "padded with zeros (padding_mode constant)", "reflect": "padded by reflection (padding_mode reflect)",
    "replicate": "padded with the values at the edge (padding_mode replicate)", "circular": "padded from the other end (circular)",
}  # fmt: skip


def _leaky(meaning: Meaning, spec: SpecOf | None) -> Candidates:
    for slope in (0.01, 0.1, 0.2, 0.3):
        yield f"slope {slope:g}", _with(meaning, negative_slope=slope)


def _interpolate(meaning: Meaning, spec: SpecOf | None) -> Candidates:
    yield "corners aligned", _with(meaning, align_corners=True)
    yield "corners not aligned", _with(meaning, align_corners=False)
    rank = len(meaning.arguments["size"])  # type: ignore[arg-type]
    for mode in ("nearest", "nearest-exact", {1: "linear", 2: "bilinear", 3: "trilinear"}[rank]):
        yield f"by {mode} interpolation", _with(meaning, mode=mode)


def _shuffle(meaning: Meaning, spec: SpecOf | None) -> Candidates:
    size = meaning.arguments.get("upscale_factor", meaning.arguments.get("block_size"))
    yield "blocks before channels", _as(meaning, "depth_to_space", block_size=size)
    yield "channels before blocks", _as(meaning, "pixel_shuffle", upscale_factor=size)


def _layer_norm(meaning: Meaning, spec: SpecOf | None) -> Candidates:
    yield "without subtracting the mean", _as(meaning, "rms_norm")


def _rms_norm(meaning: Meaning, spec: SpecOf | None) -> Candidates:
    yield "with the mean subtracted", _as(meaning, "layer_norm", bias=None)


def _cross_entropy(meaning: Meaning, spec: SpecOf | None) -> Candidates:
    yield "of log-probabilities that are given already", _as(meaning, "nll_loss")
    yield "without label smoothing", _with(meaning, label_smoothing=0.0)
    yield "ignoring no target", _with(meaning, ignore_index=-(2**31))
    if meaning.arguments.get("weight") is not None:
        yield "without the weights of classes", _with(meaning, weight=None)


def _adam(meaning: Meaning, spec: SpecOf | None) -> Candidates:
    for place in ("after correction", "before correction"):
        yield f"eps added {place} of the averages", _with(meaning, eps_added=place)
    yield "weight decay apart from the gradient (AdamW)", _with(meaning, decoupled=True)
    yield "weight decay in the gradient (Adam)", _with(meaning, decoupled=False)
    yield "without bias correction", _with(meaning, bias_correction=False, beta1_power=None, beta2_power=None)


def _rmsprop(meaning: Meaning, spec: SpecOf | None) -> Candidates:
    for place in ("below the root", "after the root"):
        yield f"eps added {place}", _with(meaning, eps_added=place)


def _sgd(meaning: Meaning, spec: SpecOf | None) -> Candidates:
    yield "with Nesterov's momentum", _with(meaning, nesterov=True)
    yield "with plain momentum", _with(meaning, nesterov=False)
    yield "without weight decay", _with(meaning, weight_decay=0.0)


def _getitem(meaning: Meaning, spec: SpecOf | None) -> Candidates:
    """The other half, the other of even and odd: rotary embeddings are cut both ways."""
    index = meaning.arguments["index"]
    first = meaning.arguments["input"]
    if spec is None or not isinstance(index, tuple) or not isinstance(first, Operand) or not index:
        return
    shape = spec(first.tensor).shape
    last = index[-1]
    if not isinstance(last, slice) or len(index) > len(shape) or None in index:
        return
    length = shape[len(index) - 1]
    if length % 2:
        return
    half = length // 2
    ways = {
        "the first half (not interleaved)": slice(0, half, 1),
        "the second half (not interleaved)": slice(half, length, 1),
        "every second element from 0 (interleaved)": slice(0, length, 2),
        "every second element from 1 (interleaved)": slice(1, length, 2),
    }
    for sentence, way in ways.items():
        if (way.stop - way.start + way.step - 1) // way.step == (last.stop - last.start + last.step - 1) // last.step:
            yield sentence, _with(meaning, index=(*index[:-1], way))


def _permute(meaning: Meaning, spec: SpecOf | None) -> Candidates:
    """Two axes exchanged."""
    dims, source = meaning.arguments["dims"], meaning.arguments["input"]
    if not isinstance(dims, tuple | list) or not isinstance(source, Operand) or spec is None:
        return
    sizes = spec(source.tensor).shape
    if len(sizes) != len(dims):
        return
    places = [place for place, axis in enumerate(dims) if isinstance(axis, int) and sizes[axis] > 1]
    for one, two in itertools.combinations(places, 2):
        order = [*dims]
        order[one], order[two] = order[two], order[one]
        yield f"axes {tuple(order)}", _with(meaning, dims=type(dims)(order))


_OWN: Mapping[str, Callable[[Meaning, SpecOf | None], Candidates]] = {
    "gelu": _gelu, "var": _spread, "std": _spread, "var_mean": _spread, "std_mean": _spread,
    "scaled_dot_product_attention": _attention, "matmul": _matmul, "linear": _linear, "batch_norm": _batch_norm,
    "dropout": _dropout, "conv": _conv, "max_pool": _pool, "avg_pool": _pool, "leaky_relu": _leaky,
    "interpolate": _interpolate, "pixel_shuffle": _shuffle, "depth_to_space": _shuffle, "layer_norm": _layer_norm,
    "rms_norm": _rms_norm, "cross_entropy": _cross_entropy, "adam": _adam, "rmsprop": _rmsprop, "sgd": _sgd,
    "getitem": _getitem, "pad": _pad, "permute": _permute,
    "sub": _swapped("input", "other"), "div": _swapped("input", "other"), "pow": _swapped("input", "other"),
    "lt": _swapped("input", "other"), "le": _swapped("input", "other"), "gt": _swapped("input", "other"),
    "ge": _swapped("input", "other"), "kl_div": _swapped("input", "target"), "where": _swapped("input", "other"),
}  # fmt: skip
