"""What was set differently, whatever the two sides call it.

    LayerNorm(eps=1e-05)   LayerNorm(epsilon=1e-07)      eps: 1e-05 | 1e-07
    softmax(x, -1)         softmax(x, dim=1)             dim: -1 | 1, where the names of positions are known
    linear(x, w, b)        linear(x, w)                  bias: a tensor | not given
    linear(x, w, None)     linear(x, w)                  nothing: None is what it is when it is not given

Between two calls of the same name everything is compared, and what only one side has is told. Between different ones only what
both have, by a table of names that mean the same: that one framework has a setting more is no difference.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from ..model.records import Call
from ..model.values import Nest, TensorRef, Token, Value, leaves

SYNONYMS: Mapping[str, str] = {
    "epsilon": "eps", "variance_epsilon": "eps", "axis": "dim", "begin_norm_axis": "dim", "keep_dims": "keepdim",
    "keepdims": "keepdim", "in_channels": "in", "in_features": "in", "out_channels": "out", "out_features": "out",
    "has_bias": "bias", "use_bias": "bias", "alpha": "negative_slope", "group": "groups", "num_groups": "groups",
    "gelu_type": "approximate", "learning_rate": "lr", "init_learning_rate": "lr", "beta1": "betas.0", "beta2": "betas.1",
    "use_nesterov": "nesterov", "use_amsgrad": "amsgrad",
    "vocab_size": "num_embeddings", "embedding_size": "embedding_dim",
    "perm": "dims", "normalized_shape": "shape", "num_features": "features",
}  # fmt: skip
"""Names of one setting, to the one that is shown."""

_REDUCTION = ("input", "dim", "keepdim")
_CONVOLUTION = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
_TRANSPOSED = ("input", "weight", "bias", "stride", "padding", "output_padding", "groups", "dilation")
_POOL = ("input", "kernel_size", "stride", "padding")
_BATCH_NORM = ("input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")
POSITIONS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("sum", "mean", "amax", "amin", "argmax", "argmin", "all", "any", "prod", "logsumexp"), _REDUCTION),
    **dict.fromkeys(("softmax", "log_softmax", "cumsum", "cumprod", "squeeze", "unsqueeze"), ("input", "dim")),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), _CONVOLUTION),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), _TRANSPOSED),
    **dict.fromkeys(("avg_pool1d", "avg_pool2d", "avg_pool3d", "max_pool1d", "max_pool2d", "max_pool3d"), _POOL),
    "linear": ("input", "weight", "bias"), "clamp": ("input", "min", "max"), "dropout": ("input", "p", "training"),
    "layer_norm": ("input", "normalized_shape", "weight", "bias", "eps"),
    "group_norm": ("input", "num_groups", "weight", "bias", "eps"), "rms_norm": ("input", "normalized_shape", "weight", "eps"),
    "leaky_relu": ("input", "negative_slope"), "elu": ("input", "alpha"), "cross_entropy": ("input", "target", "weight"),
    "transpose": ("input", "dim0", "dim1"), "flatten": ("input", "start_dim", "end_dim"), "cat": ("tensors", "dim"),
    "stack": ("tensors", "dim"), "masked_fill": ("input", "mask", "value"),
    # not what torch.batch_norm and torch.embedding take
    "nn.functional.batch_norm": _BATCH_NORM, "nn.functional.embedding": ("input", "weight", "padding_idx", "max_norm"),
    "scaled_dot_product_attention": ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale"),
}  # fmt: skip
"""What the positions of PyTorch's functions are called. A record has what was written: values, and names only of what was named."""

_UNTOLD = frozenset({"training", "name", "auto_prefix", "cls_name", "data_format", "format", "prefix"})
"""Between different frameworks: bookkeeping, or shown elsewhere."""


def different_settings(left: Sequence[Call], right: Sequence[Call]) -> Mapping[str, tuple[str, str]]:
    """What was set differently in two calls, or in two regions of calls (then nothing is said)."""
    if len(left) != 1 or len(right) != 1:
        return {}
    one, two = left[0], right[0]
    alike = one.site.name == two.site.name if one.site.kind != "module" else one.site.type == two.site.type
    own_names = _own_names(one) == _own_names(two)
    if alike and own_names:
        return _compared(dict(_settings(one)), dict(_settings(two)), everything=True)
    sides = [{canonical(name): value for name, value in _settings(call) if _telling(name)} for call in (one, two)]
    return _compared(sides[0], sides[1], everything=False)


def another_number(settings: Mapping[str, tuple[str, str]]) -> bool:
    """Is a number among them that is not counted, an epsilon, a share, a factor: not the same, or given on one side only?"""
    return any(
        any(map(_is_fraction, sides)) and all(side == NOT_GIVEN or _is_number(side) for side in sides)
        for sides in settings.values()
    )


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _is_fraction(text: str) -> bool:
    return _is_number(text) and not text.lstrip("-").isdigit()


def _own_names(call: Call) -> set[str]:
    return set(call.config.values) if call.config else set()


def canonical(name: str) -> str:
    """The name that is shown, for all that mean the same: `epsilon.0` is `eps.0`, an optimizer's `groups.0.lr` is `lr`."""
    head, dot, rest = name.removeprefix("settings.").removeprefix("groups.0.").partition(".")
    return SYNONYMS.get(head, head) + dot + rest


def number_set(call: Call, name: str) -> float | None:
    """The number that a setting has in a call, by the name that is shown; None if it has none."""
    found = (value for own, value in _settings(call) if canonical(own) == name)
    return next((float(value) for value in found if isinstance(value, int | float)), None)


def _telling(name: str) -> bool:
    return not name.startswith("argument ") and name.partition(".")[0] not in _UNTOLD


def _compared(left: dict[str, Value], right: dict[str, Value], *, everything: bool) -> dict[str, tuple[str, str]]:
    found: dict[str, tuple[str, str]] = {}
    for name in sorted(left.keys() | right.keys()):
        sides = [_lookup(side, name) for side in (left, right)]
        if any(side is _NOTHING for side in sides):
            if not everything or None in sides:
                continue
        elif _equal(sides[0], sides[1]):
            continue
        texts = [_text(side) for side in sides]
        if texts[0] != texts[1]:
            found[name] = (texts[0], texts[1])
    return found


NOT_GIVEN = "not given"
_NOTHING = Token("nothing", NOT_GIVEN)
_TENSOR = Token("tensor", "a tensor")


def _lookup(side: Mapping[str, Value], name: str) -> Value:
    """`stride` of one side is `stride.0` of the other, where one number stands for all axes."""
    if name in side:
        return side[name]
    head, dot, _ = name.rpartition(".")
    return side[head] if dot and head in side else _NOTHING


def _equal(left: Value, right: Value) -> bool:
    if isinstance(left, bool) != isinstance(right, bool):
        return False
    if isinstance(left, int | float) and isinstance(right, int | float):
        return left == right or math.isclose(left, right, rel_tol=1e-9) or (left != left and right != right)
    return _text(left) == _text(right)


def _settings(call: Call) -> Iterator[tuple[str, Value]]:
    if call.config:
        for name, value in call.config.values.items():
            yield from _scalars(name, value)
    names = _names_of_positions(call)
    for position, value in enumerate(call.args):
        yield from _scalars(names[position] if position < len(names) else f"argument {position}", value)
    for name, value in call.kwargs.items():
        yield from _scalars(name, value)


def _names_of_positions(call: Call) -> tuple[str, ...]:
    framework, _, name = call.site.name.partition(".")
    if framework != "torch":
        return ()
    return POSITIONS.get(name) or POSITIONS.get(name.rpartition(".")[2], ())


def _scalars(name: str, value: Value) -> Iterator[tuple[str, Value]]:
    if isinstance(value, TensorRef):
        yield name, _TENSOR
    for slot, leaf in leaves(value, name):
        if not isinstance(leaf, TensorRef | Nest):
            yield slot, leaf


def _text(value: Value) -> str:
    return value.text if isinstance(value, Token) else repr(value)
