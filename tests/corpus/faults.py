"""Mistakes that ports make, planted one at a time in the right side of a correct pair, and where each is.

    layer_norm_epsilon   gpt     blocks.1.ln_1 | layers.1.norm_a     MindSpore's default epsilon is 1e-7, PyTorch's 1e-5

`left` and `right` are places: the path of the module in which the guilty call is made (`.` for the network and the loss), and,
where that is not enough, a word that is in the call's name. `planted.py` plants them; it needs MindSpore, this file does not.
"""

from __future__ import annotations

from dataclasses import dataclass

from corpus.notation import ROOT
from twintrace.model.records import Call
from twintrace.model.sites import Kind


@dataclass(frozen=True)
class Place:
    path: str
    call: str = ""

    def holds(self, call: Call) -> bool:
        """Is this call here: the module itself, or a call that it makes?"""
        site = call.site
        if site.kind is Kind.MODULE and (site.name or ROOT) == self.path:
            return not self.call
        return (site.path or ROOT) == self.path and self.call.lower() in site.name.lower()

    def __str__(self) -> str:
        return f"{self.call or 'a call'} in {self.path}"


@dataclass(frozen=True)
class Fault:
    name: str
    pair: str
    left: Place
    right: Place
    about: str
    backward: bool = False
    """Only gradients differ."""


def _fault(name: str, pair: str, left: str, right: str, about: str, *, backward: bool = False) -> Fault:
    """`left` and `right` as `path` or `path call`."""
    return Fault(name, pair, Place(*left.split()), Place(*right.split()), about, backward)


FAULTS = (
    _fault(
        "layer_norm_epsilon",
        "gpt",
        "blocks.1.ln_1",
        "layers.1.norm_a",
        "MindSpore's default epsilon is 1e-7, PyTorch's 1e-5",
    ),
    _fault(
        "batch_norm_epsilon", "depthwise", "stages.1.norm1", "layers.2.1", "epsilon left at its default instead of 1e-3"
    ),
    _fault(
        "batch_norm_momentum",
        "resnet",
        "layer2.bn1",
        "blocks.1.a_norm",
        "momentum 0.1 as in PyTorch, where MindSpore means 0.9",
    ),
    _fault("batch_norm_frozen", "resnet", "layer3.bn1", "blocks.2.a_norm", "a batch norm that is not set to train"),
    _fault(
        "pad_mode",
        "resnet",
        "layer2.conv1",
        "blocks.1.a",
        "pad_mode='same' with stride 2 pads one side more than padding=1",
    ),
    _fault(
        "dilation", "channels_last", "body.3", "c2", "dilation forgotten, padding adjusted so that the shape is right"
    ),
    _fault("group_norm_groups", "group_norm", "blocks.1.norm1", "block_b.gn1", "two groups instead of four"),
    _fault("gelu_by_default", "vit", "blocks.0 gelu", "first.ff.1", "nn.GELU() is the tanh approximation in MindSpore"),
    _fault(
        "leaky_slope",
        "channels_last",
        "body.2",
        ". leaky",
        "leaky_relu's default slope is 0.2 in MindSpore, 0.01 in PyTorch",
    ),
    _fault("softmax_axis", "bert", "layer.0.attention softmax", "encoder.0.attn softmax", "softmax over the queries"),
    _fault(
        "attention_scale",
        "bert",
        "layer.1.attention",
        "encoder.1.attn",
        "scaled by the width of the model, not of a head",
    ),
    _fault(
        "attention_unscaled",
        "encoder_fused",
        "encoder.layers.0.self_attn",
        "layers.0.attn",
        "scores not divided by anything",
    ),
    _fault("causal_mask", "gpt", "blocks.0.attn scaled_dot", "layers.0", "the future is not hidden"),
    _fault("rotary_sign", "llama", "layers.0.attn", "layers.0.attention", "the turned half keeps its sign"),
    _fault(
        "transposed_weight",
        "bert",
        "layer.1.attention.query",
        "encoder.1.attn.query",
        "a square weight loaded transposed",
    ),
    _fault("missing_bias", "lenet", "fc2", "classifier.2", "a dense layer without its bias"),
    _fault("gate_order", "lstm_tagger", "lstm", "rnn", "gates i, f, o, g instead of i, f, g, o"),
    _fault("loss_reduction", "vae", ". binary_cross_entropy", ". binary_cross_entropy", "mean instead of sum"),
    _fault("loss_padding", "lstm_tagger", ". cross_entropy", ". cross_entropy", "padding counts in the loss"),
    _fault("label_smoothing", "mobilenet_v3", ". cross_entropy", ". cross_entropy", "no label smoothing"),
    _fault(
        "half_precision_layer",
        "mixer",
        "layers.0.channel.fc1",
        "blocks.0.channels.0",
        "one dense layer computes in float16",
    ),
    _fault("align_corners", "super_resolution", ". interpolate", ". interpolate", "align_corners=True"),
    _fault("upsampling_mode", "feature_pyramid", ". interpolate", "fpn interpolate", "bilinear instead of nearest"),
    _fault("pooling_kind", "inception", "mixed1 max_pool", "a.pool", "average instead of maximum"),
    _fault("concat_order", "unet", ". cat", ". concat", "the skip connection comes second"),
    _fault(
        "shuffle_order", "super_resolution", "shuffle", ". transpose", "rows and columns of the sub-pixels exchanged"
    ),
    _fault(
        "residual_source",
        "mixer",
        "layers.1 add",
        "blocks.1 add",
        "the residual is taken before the first half of the block",
    ),
    _fault(
        "dropout_on",
        "translator",
        "encoder",
        "enc.dropout1",
        "dropout with p=0.5 where it is off on the other side",
    ),
    _fault(
        "channel_order", "mobilenet_v3", "stem.0", "stem_conv", "images read as BGR: everything after has other values"
    ),
    _fault(
        "detached_norm",
        "two_towers",
        ". normalize",
        ". StopGradient",
        "no gradient through the length of a vector",
        backward=True,
    ),
)


def fault_of(name: str) -> Fault:
    return next(fault for fault in FAULTS if fault.name == name)
