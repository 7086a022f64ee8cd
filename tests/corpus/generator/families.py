"""Families of mistakes, and of rewrites that are none.

Each sets one knob (parts.py) to values that are wrong, or right in another way. `calls` is a pattern for the names of the
calls that a mistake is in, where the module is not enough to say it; `cause` is a pattern for what a verdict has to mention.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Knob = tuple[str, str]


@dataclass(frozen=True)
class Family:
    """Mistakes of one kind."""

    name: str
    knob: str
    values: Callable[[Any], tuple[Any, ...]]
    """Wrong values, given the right one."""
    cause: str
    calls: str = ""
    modes: tuple[str, ...] = ("forward", "backward")
    lone: bool = False
    only_torch: bool = False
    """Can be planted in PyTorch alone."""
    where: Callable[[str], bool] = lambda site: True
    train: bool = False
    """Seen in trainings alone."""
    sets: str = ""
    """The knob that is set, where it is another than the one that says where this can be."""


def _given(*values: Any) -> Callable[[Any], tuple[Any, ...]]:
    return lambda right: tuple(value for value in values if value != right)


def _other_kind(right: str) -> tuple[str, ...]:
    return {"relu6": ("relu",), "silu": ("gelu", "relu"), "relu": ("silu",), "leaky": ("relu",)}.get(right, ())


_BACKWARD = ("backward",)
_ATTENTION = ""  # any call in the module: the whole of it may be one region

FAMILIES = (
    Family("epsilon", "eps", _given(1e-2, 1e-3), r"\beps(ilon)?\b", where=lambda site: site != "#optimizer"),
    Family(
        "gelu_variant",
        "kind",
        lambda right: {"gelu": ("gelu_tanh",), "gelu_tanh": ("gelu",)}.get(right, ()),
        r"approximate|\btanh\b|\berf\b",
        "gelu|tanh|erf|mul|add|pow",
    ),
    Family("leaky_slope", "slope", _given(0.2, 0.01), r"slope|alpha", "leaky|where|mul|maximum|select"),
    Family(
        "activation_kind",
        "kind",
        _other_kind,
        r"relu6?\b|silu|gelu|swish|leaky|hardtanh",
        "relu|silu|gelu|leaky|swish|hardtanh|sigmoid",
    ),
    Family(
        "missing_bias",
        "bias",
        lambda right: (False,) if right else (),
        r"\bbias",
        where=lambda site: not site.endswith(".k"),  # adds the same to all scores of a query: no mistake
    ),
    Family("missing_mask", "mask", _given("none"), r"mask", _ATTENTION),
    Family("attention_scale", "scale", _given(2.0, 0.5, 8**0.5), r"scal|factor|multipl|divid", _ATTENTION),
    Family("softmax_axis", "axis", _given(-2), r"\b(dim|axis)\b", _ATTENTION),
    Family("q_and_k_exchanged", "exchange", _given(True), r"exchang|swap|order", _ATTENTION),
    Family("repeated_keys", "repeat", _given("whole"), r"repeat|interleav|order", _ATTENTION),
    Family("missing_window", "window", _given(None), r"window|mask", _ATTENTION),
    Family("missing_cap", "cap", _given(None, "fused"), r"cap\b|tanh", _ATTENTION),
    Family("missing_final_cap", "final_cap", _given(None), r"cap\b|tanh", "tanh|mul|div", lone=True),
    Family(
        "rotary_halves",
        "rotary",
        _given("interleaved", "sign lost"),
        r"rotar|rotat|interleav|half|halves|sign|\bneg",
        _ATTENTION,
    ),
    Family(
        "rotary_base",
        "base",
        _given(500000.0, 1000.0),
        r"\bcos|\bsin|constant|given|start|frequenc|not made by",
        _ATTENTION,
    ),
    Family(
        "missing_residual",
        "residual",
        _given("missing"),
        r"\badd|residual|missing|alone|only the|one side",
        "add",
        lone=True,
    ),
    Family("residual_factor", "residual", _given("halved"), r"\bmul|factor|scal|0\.5", "add|mul", lone=True),
    Family("dropout_on", "p", _given(0.3), r"random|dropout", "dropout", lone=True),
    Family(
        "batch_norm_momentum",
        "momentum",
        _given(0.2, 0.9),
        r"momentum",
        modes=_BACKWARD,
        where=lambda site: site != "#optimizer",
    ),
    Family("batch_norm_frozen", "frozen", _given(True), r"\btrain|\beval|frozen", modes=_BACKWARD),
    Family("group_count", "groups", _given(2, 1), r"groups"),
    Family("padding_mode", "padding_mode", _given("reflect", "late"), r"\bpad"),
    Family("dilation", "dilation", _given(2), r"dilation"),
    Family("ceil_mode", "ceil_mode", lambda right: (not right,), r"ceil_mode", "pool"),
    Family("counted_padding", "count_include_pad", _given(True), r"count_include_pad", "pool"),
    Family("upsampling_mode", "mode", _given("bilinear"), r"\bmode\b|bilinear", "interpolate|upsample|resize"),
    Family("concat_order", "joined", _given("exchanged"), r"order|exchang|swap", "cat"),
    Family("transposed_weight", "square", lambda right: ("transposed",), r"transpos", sets="weights"),
    Family("weight_of_another_layer", "weights", _given("other layer"), r"weight|parameter"),
    Family("weight_off_by_one_element", "weights", _given("one element"), r"weight|parameter"),
    Family("exchanged_halves_of_a_weight", "weights", _given("halves exchanged"), r"weight|parameter"),
    Family(
        "gate_order", "weights", _given("gates exchanged"), r"weight|parameter|gate", where=lambda site: site == "rnn"
    ),
    Family(
        "labels_not_shifted",
        "shifted",
        _given(False),
        r"label|target|shift|getitem|slice|shape",
        "cross_entropy|getitem|slice|reshape|view|nll",
    ),
    Family("loss_reduction", "reduction", _given("sum"), r"reduction", "cross_entropy|mse|nll|mean|sum"),
    Family("label_smoothing", "smoothing", _given(0.1), r"smoothing", "cross_entropy|nll"),
    Family(
        "loss_not_divided",
        "divided",
        _given(False),
        r"\bdiv|truediv|divided|factor|scal",
        "div|loss|cross_entropy|mse",
        lone=True,
    ),
    Family(
        "detached",
        "way",
        _given("detached"),
        r"detach|stop_gradient|\bcut",
        "detach|stop_?gradient",
        modes=_BACKWARD,
        lone=True,
    ),
    Family(
        "detached_residual",
        "residual",
        _given("detached"),
        r"detach|stop_gradient|\bcut",
        "detach|stop_?gradient",
        modes=_BACKWARD,
        lone=True,
    ),
    Family(
        "cast_in_between",
        "way",
        _given("cast f16", "cast bf16"),
        r"\bcast|precision|dtype|bf16|f16|bfloat16|float16",
        "to$|cast|type|half|bfloat16",
        lone=True,
    ),
    Family(
        "layer_in_half_precision",
        "cast",
        _given("f16", "bf16"),
        r"\bcast|precision|dtype|bf16|f16|bfloat16|float16",
        lone=True,
    ),
    Family("unbiased_variance", "unbiased", _given(True), r"biased|correction|ddof|variance|\bvar\b"),
    Family("centred_rms", "centred", _given(True), r"mean|centre|\bsub|layer norm", lone=True),
    Family("offset_of_a_scale", "offset", _given(1.0), r"\badd|offset|\+ ?1", lone=True),
    Family("factor_after_a_layer", "gain", _given(1.25, 0.5), r"\bmul|factor|scal|1\.25|0\.5", lone=True),
    Family(
        "wrong_kernel",
        "kernel",
        _given("zero", "halved", "times 0.99", "one element", "one column"),
        r"kernel|its own",
        only_torch=True,
    ),
    Family("sums_in_16_bits", "kernel", _given("sums in 16 bits"), r"16[ -]bit|accumul|kernel", only_torch=True),
    Family(
        "wrong_kernel_backward",
        "kernel_backward",
        _given("halved", "one element", "one column", "times 0.99"),
        r"kernel|its own",
        modes=_BACKWARD,
        only_torch=True,
        where=lambda site: site == "head",
    ),
    Family("optimizer_beta", "beta2", _given(0.99, 0.9), r"beta", train=True, modes=_BACKWARD),
    Family(
        "optimizer_epsilon",
        "eps",
        _given(1e-3, 1e-2),
        r"\beps(ilon)?\b",
        train=True,
        modes=_BACKWARD,
        where=lambda site: site == "#optimizer",
    ),
    Family("learning_rate", "lr", _given(2e-2, 5e-3), r"\blr\b|learning.rate", train=True, modes=_BACKWARD),
    Family("weight_decay", "decay", _given(0.1, 0.0), r"weight.decay", train=True, modes=_BACKWARD),
    Family(
        "positions_off_by_one",
        "first",
        _given(1, 2),
        r"position|indices|index|constant|given|start|not made by",
        "embedding|gather",
    ),
    Family("missing_embedding_scale", "scale_by", _given(None), r"\bmul|scal|factor", "mul", lone=True),
    Family(
        "gate_and_up_exchanged",
        "gated",
        _given("exchanged"),
        r"exchang|swap|order|operand|input",
        "silu|mul|sigmoid|swish",
    ),
    Family("number_of_experts", "count", _given(1, 3), r"\bk\b|top.?k", "top.?k"),
    Family("experts_not_normalised", "normalised", _given(False), r"\bdiv|truediv|\bsum|normali", "div|sum", lone=True),
    Family("untied_head", "tied", _given(False), r"\btied|\bshared|\btie", modes=_BACKWARD),
    Family(
        "patch_order",
        "order",
        lambda right: ("columns",) if right == "rows" else (),
        r"permut|transpos|order|ax[ei]s|dim",
        "permute|transpose|reshape",
    ),
    Family("first_instead_of_last", "last", _given("first"), r"index|getitem|slice|select", "getitem|slice|select"),
)


@dataclass(frozen=True)
class Rewrite:
    """The same computation in other words."""

    name: str
    knob: str
    values: Callable[[Any], tuple[Any, ...]]
    modes: tuple[str, ...] = ("forward", "backward")
    only_torch: bool = False
    train: bool = False
    where: Callable[[str], bool] = lambda site: True


REWRITES = (
    Rewrite("linear_function", "form", _given("functional"), where=lambda site: site != "#optimizer"),
    Rewrite("product_and_bias", "form", _given("matmul"), where=lambda site: site != "#optimizer"),
    Rewrite("norm_function", "norm_form", _given("functional")),
    Rewrite("norm_written_out", "norm_form", _given("manual", "var")),
    Rewrite("rms_by_sum", "rms_form", _given("sum")),
    Rewrite("activation_module", "act_form", _given("module")),
    Rewrite("residual_order", "residual", _given("y + x")),
    # Elsewhere the sum is written into what a recurrent layer keeps for its backward pass.
    Rewrite(
        "residual_in_place",
        "residual",
        _given("in place"),
        only_torch=True,
        where=lambda site: site.startswith("blocks"),
    ),
    Rewrite("fused_attention", "fused", _given(True), only_torch=True),
    Rewrite("scaled_queries", "attention", _given("prescaled")),
    Rewrite("chunked_projection", "projected", _given("chunk")),
    Rewrite("unbound_projection", "projected", _given("unbind")),
    Rewrite("mask_value", "fill", _given("-1e4", "least")),
    Rewrite("mask_by_where", "fill_form", _given("where")),
    Rewrite("mask_that_is_added", "fill_form", _given("add")),
    Rewrite("heads_beside_batches", "layout", _given("merged")),
    Rewrite("mean_of_a_flat_image", "averaged", _given("flat")),
    Rewrite("concat_chain", "joined", _given("one by one")),
    Rewrite("padding_apart", "padding_mode", _given("apart")),
    Rewrite("branches_in_other_order", "gated", _given("other order")),
    Rewrite("compiled_helper", "compiled", _given(True), only_torch=True),
    Rewrite("experts_in_other_order", "order", lambda right: ((3, 1, 0, 2),) if isinstance(right, tuple) else ()),
    Rewrite("question_to_python", "way", _given("question")),
    Rewrite("dead_end", "way", _given("dead end")),
    Rewrite("checkpointed", "checkpointed", _given(True), modes=_BACKWARD, only_torch=True),
    Rewrite(
        "optimizer_form",
        "form",
        _given("foreach", "fused", "single"),
        train=True,
        modes=_BACKWARD,
        only_torch=True,
        where=lambda site: site == "#optimizer",
    ),
)
