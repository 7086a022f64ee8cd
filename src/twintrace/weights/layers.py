"""Names of a layer's weights in each framework, and their layouts.

    layer        torch                           mindspore.nn                        mindspore.mint.nn
    linear       Linear   weight, bias           Dense   weight, bias                Linear, as torch
    conv1d       Conv1d   weight [o, i, k]       Conv1d  weight [o, i, 1, k]
    batch_norm   BatchNorm1d, 2d, 3d, Sync       gamma, beta, moving_mean,           as torch
                 weight, bias, running_mean …    moving_variance; 3d: below bn2d
    embedding    Embedding  weight               embedding_table                     weight
    prelu        PReLU  weight                   w                                   weight

A weight's *role* is what torch calls it; its layout is torch's too. So a rule is a row per framework, and every pair of
frameworks, in both directions, follows from two rows. A layer that has no row keeps its names and its layout.

Gates need no rule: LSTM (input, forget, cell, output), GRU (reset, update, new), attention (query, key, value) are stacked in
the same order in both frameworks, which the tests show by running them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from ..model.tensors import Spec


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer kind in one framework. `roles`: own name -> role, where they differ. `layout`: role -> steps from torch's."""

    kind: str
    roles: Mapping[str, str] = field(default_factory=dict)
    layout: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    neutral: Mapping[str, float] = field(default_factory=dict)
    """Roles that this layer always has, and their neutral values where the other framework's has none."""
    children: Mapping[str, str] = field(default_factory=dict)
    """Names of the layers inside it -> their roles; an empty role: the child stands for the layer itself."""


_WITH_AXIS = {"weight": ("insert axis 2",)}
_NORM = {"gamma": "weight", "beta": "bias"}
_BATCH = {**_NORM, "moving_mean": "running_mean", "moving_variance": "running_var"}
_PLAIN = {"weight": 1.0, "bias": 0.0}
_MOVING = {**_PLAIN, "running_mean": 0.0, "running_var": 1.0}
_TRANSFORMER = {"dense1": "linear1", "dense2": "linear2"}

_SAME = {
    "Linear": "linear", "Bilinear": "bilinear", "Conv1d": "conv1d", "Conv2d": "conv2d", "Conv3d": "conv3d",
    "ConvTranspose1d": "conv1d_transposed", "ConvTranspose2d": "conv2d_transposed", "ConvTranspose3d": "conv3d_transposed",
    "BatchNorm1d": "batch_norm", "BatchNorm2d": "batch_norm", "BatchNorm3d": "batch_norm", "SyncBatchNorm": "batch_norm",
    "LayerNorm": "layer_norm", "GroupNorm": "group_norm", "RMSNorm": "rms_norm", "InstanceNorm1d": "instance_norm",
    "InstanceNorm2d": "instance_norm", "InstanceNorm3d": "instance_norm", "Embedding": "embedding",
    "EmbeddingBag": "embedding", "PReLU": "prelu", "LSTM": "lstm", "GRU": "gru", "RNN": "rnn", "LSTMCell": "lstm_cell",
    "GRUCell": "gru_cell", "RNNCell": "rnn_cell", "MultiheadAttention": "attention",
    "TransformerEncoderLayer": "encoder_layer", "TransformerDecoderLayer": "decoder_layer",
}  # fmt: skip

_LIKE_TORCH = {name: Layer(kind) for name, kind in _SAME.items()}
TORCH: dict[str, Layer] = {
    **_LIKE_TORCH,
    "Conv1D": Layer("linear", layout={"weight": ("permute 1 0",)}),  # of transformers: GPT-2's
}
_MINT = (
    "Linear", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose2d", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm",
    "LayerNorm", "GroupNorm", "Embedding", "PReLU",
)  # fmt: skip
_OWN_NAMES = {
    "Dense": "linear", "BiDense": "bilinear", "Conv2d": "conv2d", "Conv3d": "conv3d", "Conv2dTranspose": "conv2d_transposed",
    "Conv3dTranspose": "conv3d_transposed", "LSTM": "lstm", "GRU": "gru", "RNN": "rnn", "LSTMCell": "lstm_cell",
    "GRUCell": "gru_cell", "RNNCell": "rnn_cell", "MultiheadAttention": "attention",
}  # fmt: skip
_BATCH_NORM, _INSTANCE_NORM = (Layer(kind, _BATCH, neutral=_MOVING) for kind in ("batch_norm", "instance_norm"))
MINDSPORE: dict[str, Layer] = {
    **{f"mint.{name}": _LIKE_TORCH[name] for name in _MINT},
    **{name: Layer(kind) for name, kind in _OWN_NAMES.items()},
    "Conv1d": Layer("conv1d", layout=_WITH_AXIS),
    "Conv1dTranspose": Layer("conv1d_transposed", layout=_WITH_AXIS),
    **dict.fromkeys(("BatchNorm1d", "BatchNorm2d", "SyncBatchNorm"), _BATCH_NORM),
    "BatchNorm3d": Layer("batch_norm", children={"bn2d": ""}),
    **dict.fromkeys(("InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d"), _INSTANCE_NORM),
    "LayerNorm": Layer("layer_norm", _NORM, neutral=_PLAIN),
    "GroupNorm": Layer("group_norm", _NORM, neutral=_PLAIN),
    **dict.fromkeys(("Embedding", "EmbeddingLookup"), Layer("embedding", {"embedding_table": "weight"})),
    "PReLU": Layer("prelu", {"w": "weight"}),
    "TransformerEncoderLayer": Layer("encoder_layer", children=_TRANSFORMER),
    "TransformerDecoderLayer": Layer("decoder_layer", children=_TRANSFORMER),
}
RULES: dict[str, dict[str, Layer]] = {"torch": TORCH, "mindspore": MINDSPORE, "reference": {
    "Linear": Layer("linear", layout={"weight": ("permute 1 0",)}), "LayerNorm": Layer("layer_norm"),
}}  # fmt: skip
# The class of a layer of this kind in a framework, where there is a choice: the one with the class name of the other side.
_TARGETS = {
    "mindspore": {"Linear": "Dense", "Conv1D": "Dense", "Bilinear": "BiDense", "ConvTranspose1d": "Conv1dTranspose",
                  "ConvTranspose2d": "Conv2dTranspose", "ConvTranspose3d": "Conv3dTranspose", "EmbeddingBag": "Embedding"},
}  # fmt: skip
UNKNOWN = Layer("")
# Counters that one framework keeps and the other does not; their loss changes nothing that is computed.
COUNTERS = ("num_batches_tracked",)


def layer_of(framework: str, kinds: Collection[str]) -> tuple[str, Layer]:
    """(class, rule) of a live layer, given the framework's classes that it is one of."""
    rules = RULES.get(framework, {})
    return next(((kind, rules[kind]) for kind in kinds if kind in rules), ("", UNKNOWN))


def counterpart(framework: str, kind: str) -> Layer:
    """The rule for the layer that a torch class becomes in another framework; `mint.X` for the framework's torch-like API."""
    rules = RULES.get(framework, {})
    return rules.get(_TARGETS.get(framework, {}).get(kind, kind), UNKNOWN)


Guess = tuple[str, Layer, float, str]
"""(class, rule, confidence, reason) of a layer of which only the names and shapes in a checkpoint are known."""
_HINTS = {
    2: (("Embedding", r"emb|wte|wpe|token|vocab|lookup"),
        ("Linear", r"proj|fc|linear|dense|head|query|key|value|out|mlp|gate|up|down|^w?[qkv]$")),
    1: (("PReLU", r"prelu|relu|act"), ("LayerNorm", r"norm|ln")),
}  # fmt: skip
"""Classes of a matrix without bias, and of a vector alone, by parts of their names."""


def infer(framework: str, owns: Mapping[str, Spec], path: str) -> Guess:
    """The layer that these weights are likely to be."""
    names = set(owns)
    if framework == "mindspore":
        return _infer_mindspore(names, owns)
    weight = owns.get("weight")
    rank = len(weight.shape) if weight else 0
    last = path.rpartition(".")[2].lower()

    def guess(kind: str, sure: float, why: str) -> Guess:
        return kind, TORCH[kind], sure, why

    if "running_mean" in names or "running_var" in names:
        kind = "InstanceNorm2d" if "num_batches_tracked" not in names else "BatchNorm2d"
        return guess(kind, 0.9, "it has running statistics")
    if any(re.match(r"(weight|bias)_[ih]h(_l\d+)?", name) for name in names):
        square = (shape.shape for name, shape in owns.items() if name.startswith("weight_hh") and len(shape.shape) == 2)
        rows, columns = next(square, (4, 1))  # as many gates as the rows of a hidden weight are times its columns
        kind = {4: "LSTM", 3: "GRU"}.get(rows // max(columns, 1), "RNN")
        return guess(kind, 0.9, "its weights are a recurrent layer's")
    if "in_proj_weight" in names or "in_proj_bias" in names:
        return guess("MultiheadAttention", 0.9, "its weights are an attention's")
    if weight is None:
        return "", UNKNOWN, 0.9, "its names are those of no known layer"
    if rank >= 4:
        return guess("Conv2d" if rank == 4 else "Conv3d", 0.9, f"its weight has {rank} axes")
    if rank == 3:
        return guess("Conv1d", 0.7, "a weight of three axes is a Conv1d's or ConvTranspose1d's (or Bilinear's)")
    if "bias" in names and rank:
        if rank == 2:
            return guess("Linear", 0.9, "a matrix and a bias")
        return guess("LayerNorm", 0.8, "a vector and a bias: a LayerNorm's or GroupNorm's, which are named alike")
    what = "a matrix without bias" if rank == 2 else "a vector alone"
    for kind, words in _HINTS.get(rank, _HINTS[1]):
        hint = re.search(words, last)
        if hint:
            return guess(kind, 0.7, f"{what}, and {hint[0]!r} in its name")
    if rank == 2:
        return guess("Linear", 0.4, "a matrix without bias may be a Linear's or an Embedding's")
    return "", UNKNOWN, 0.4, "a vector alone may be a norm's or a PReLU's"


def _infer_mindspore(names: set[str], owns: Mapping[str, Spec]) -> Guess:
    if names & {"moving_mean", "moving_variance", "gamma", "beta"}:
        kind = "BatchNorm2d" if names & {"moving_mean", "moving_variance"} else "LayerNorm"
        return kind, MINDSPORE[kind], 0.9, "its names are a norm's"
    if "embedding_table" in names:
        return "Embedding", MINDSPORE["Embedding"], 0.95, "embedding_table"
    if names == {"w"} and len(owns["w"].shape) == 1:
        return "PReLU", MINDSPORE["PReLU"], 0.8, "a vector called w"
    weight = owns.get("weight")
    if weight is not None and len(weight.shape) == 4 and weight.shape[2] == 1:
        sure = 0.4 if weight.shape[3] > 1 else 0.7  # kernels of one element are nearly always a Conv2d's
        return "", UNKNOWN, sure, "a weight [o, i, 1, k] is a Conv1d's or a Conv2d's"
    return "", UNKNOWN, 0.9, "named as in torch"
