"""The mistakes of faults.py, planted: each takes the correct network and makes one thing wrong, as a person would have written it.

Each function is named after its fault. It changes the network, and may give back another `loss(net, batch)`.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, mint, nn, ops

from corpus.notation import side

Loss = Callable[[nn.Cell, dict[str, Tensor]], Any]

PLANTS: dict[str, Callable[[nn.Cell], Loss | None]] = {}


def _plant(function: Callable[[nn.Cell], Loss | None]) -> Callable[[nn.Cell], Loss | None]:
    PLANTS[function.__name__] = function
    return function


def _with_weights(new: nn.Cell, old: nn.Cell) -> nn.Cell:
    """The new Cell with the old one's parameters, as far as it has them."""
    own = dict(old.parameters_and_names())
    for name, value in new.parameters_and_names():
        value.set_data(Tensor(own[name].asnumpy()))
    return new.set_train()


def _rewrite(cell: nn.Cell, construct: Callable[..., Any], name: str = "construct") -> None:
    """Give one Cell another construct, or another method."""
    setattr(cell, name, types.MethodType(construct, cell))


@_plant
def layer_norm_epsilon(net):
    net.layers[1].norm_a = _with_weights(nn.LayerNorm([16]), net.layers[1].norm_a)


@_plant
def batch_norm_epsilon(net):
    net.layers[2][1] = _with_weights(nn.BatchNorm2d(10), net.layers[2][1])


@_plant
def batch_norm_momentum(net):
    net.blocks[1].a_norm = _with_weights(nn.BatchNorm2d(12, momentum=0.1), net.blocks[1].a_norm)


@_plant
def batch_norm_frozen(net):
    net.blocks[2].a_norm.set_train(False)


@_plant
def pad_mode(net):
    net.blocks[1].a = _with_weights(nn.Conv2d(8, 12, 3, 2, pad_mode="same"), net.blocks[1].a)


@_plant
def dilation(net):
    net.c2 = _with_weights(nn.Conv2d(8, 12, 3, pad_mode="pad", padding=1), net.c2)


@_plant
def group_norm_groups(net):
    net.block_b.gn1 = _with_weights(nn.GroupNorm(2, 8), net.block_b.gn1)


@_plant
def gelu_by_default(net):
    net.first.ff[1] = nn.GELU()


@_plant
def leaky_slope(net):
    def construct(self, images):
        x = ops.transpose(images, (0, 3, 1, 2))
        x = ops.leaky_relu(self.n1(self.c1(x)))
        x = ops.leaky_relu(self.n2(self.c2(x)), 0.1)
        x = ops.transpose(x, (0, 2, 3, 1))
        n, h, w, c = x.shape
        return self.linear(x.reshape((n, h * w, c)))

    _rewrite(net, construct)


def _bert_attention(*, axis=-1, width=None):
    def construct(self, x, padding):
        n, length, whole = x.shape
        shape = (n, length, self.heads, self.size)
        q = self.transpose(self.reshape(self.query(x), shape), (0, 2, 1, 3))
        k = self.transpose(self.reshape(self.key(x), shape), (0, 2, 3, 1))
        v = self.transpose(self.reshape(self.value(x), shape), (0, 2, 1, 3))
        scores = self.matmul(q, k) * ((width or self.size) ** -0.5)
        scores = ops.masked_fill(scores, padding, ms.Tensor(-1e9, ms.float32))
        context = self.matmul(ops.softmax(scores, axis), v)
        context = self.transpose(context, (0, 2, 1, 3))
        return self.dense(self.reshape(context, (n, length, whole)))

    return construct


@_plant
def softmax_axis(net):
    _rewrite(net.encoder[0].attn, _bert_attention(axis=-2))


@_plant
def attention_scale(net):
    _rewrite(net.encoder[1].attn, _bert_attention(width=12))


@_plant
def attention_unscaled(net):
    def construct(self, x):
        q, k, v = self.split(self.wq(x)), self.split(self.wk(x)), self.split(self.wv(x))
        weights = ops.softmax(ops.matmul(q, k.swapaxes(-1, -2)), axis=-1)
        mixed = ops.matmul(weights, v)
        n, _, length, _ = mixed.shape
        return self.wo(mixed.transpose(0, 2, 1, 3).reshape((n, length, -1)))

    _rewrite(net.layers[0].attn, construct)


@_plant
def causal_mask(net):
    layer = net.layers[0]
    correct = layer.construct
    _rewrite(layer, lambda self, x, future: correct(x, Tensor(np.zeros(future.shape, bool))))


@_plant
def rotary_sign(net):
    def rotate(self, x, cos, sin):
        half = self.size // 2
        turned = mint.cat((x[..., half:], x[..., :half]), -1)
        return mint.add(mint.mul(x, cos), mint.mul(turned, sin))

    _rewrite(net.layers[0].attention, rotate, "rotate")


@_plant
def transposed_weight(net):
    weight = net.encoder[1].attn.query.weight
    weight.set_data(Tensor(weight.asnumpy().T.copy()))


@_plant
def missing_bias(net):
    net.classifier[2] = _with_weights(nn.Dense(120, 84, has_bias=False), net.classifier[2])


@_plant
def gate_order(net):
    for name, value in net.rnn.parameters_and_names():
        gates = np.split(value.asnumpy(), 4)
        assert name.startswith(("weight", "bias"))
        value.set_data(Tensor(np.concatenate([gates[0], gates[1], gates[3], gates[2]])))


@_plant
def loss_reduction(net):
    def loss(net, batch):
        again, mu, logvar = net(batch["x"], batch["noise"])
        reconstruction = ops.binary_cross_entropy(again, batch["x"], reduction="mean")
        kld = ops.sum(1 + logvar - ops.square(mu) - ops.exp(logvar)) * -0.5
        return reconstruction + kld, {"again": again}

    return loss


@_plant
def loss_padding(net):
    def loss(net, batch):
        scores = net(batch["sentence"])
        return ops.cross_entropy(scores.reshape((-1, 7)), batch["tags"].reshape(-1)), {"scores": scores}

    return loss


@_plant
def label_smoothing(net):
    def loss(net, batch):
        logits = net(batch["image"])
        return ops.cross_entropy(logits, batch["label"]), {"logits": logits}

    return loss


@_plant
def half_precision_layer(net):
    def construct(self, x):
        y = ops.matmul(x.astype(ms.float16), self.weight.astype(ms.float16).swapaxes(0, 1))
        return (y + self.bias.astype(ms.float16)).astype(ms.float32)

    _rewrite(net.blocks[0].channels[0], construct)


@_plant
def align_corners(net):
    def construct(self, small):
        x = self.conv_last(self.rb2(self.rb1(self.conv_first(small))))
        _, _, h, w = small.shape
        base = ops.interpolate(small, size=(2 * h, 2 * w), mode="bilinear", align_corners=True)
        return base + self.shuffle(x)

    _rewrite(net, construct)


@_plant
def upsampling_mode(net):
    def up(self, x):
        _, _, h, w = x.shape
        return ops.interpolate(x, size=(h * 2, w * 2), mode="bilinear")

    _rewrite(net.fpn, up, "up")


@_plant
def pooling_kind(net):
    net.a.pool = nn.AvgPool2d(3, 1, pad_mode="same")


@_plant
def concat_order(net):
    def construct(self, x):
        skip1 = self.enc1(x)
        skip2 = self.enc2(self.shrink(skip1))
        x = self.bridge(self.shrink(skip2))
        x = self.dec2(ops.concat((self.expand2(x), skip2), 1))
        x = self.dec1(ops.concat((skip1, self.expand1(x)), 1))
        return self.final(x)

    _rewrite(net, construct)


@_plant
def shuffle_order(net):
    def shuffle(self, x):
        n, c, h, w = x.shape
        x = ops.reshape(x, (n, c // 4, 2, 2, h, w))
        x = ops.transpose(x, (0, 1, 4, 3, 5, 2))
        return ops.reshape(x, (n, c // 4, 2 * h, 2 * w))

    _rewrite(net, shuffle, "shuffle")


@_plant
def residual_source(net):
    def construct(self, x):
        y = ops.transpose(self.norm_t(x), (0, 2, 1))
        y = ops.transpose(self.tokens(y), (0, 2, 1))
        y = mint.add(x, y)
        return mint.add(x, self.channels(self.norm_c(y)))

    _rewrite(net.blocks[1], construct)


@_plant
def dropout_on(net):
    net.enc.dropout1 = nn.Dropout(p=0.5).set_train()


@_plant
def channel_order(net):
    correct = side("mobilenet_v3", "mindspore").loss
    return lambda net, batch: correct(net, batch | {"image": Tensor(batch["image"].asnumpy()[:, ::-1].copy())})


@_plant
def detached_norm(net):
    _rewrite(net, lambda self, x: x / ops.stop_gradient(ops.sqrt(ops.sum(ops.square(x), -1, keepdim=True))), "unit")


def plant(fault: str, pair: str, net: nn.Cell) -> Loss:
    """Plant a fault in a pair's network; the loss to use."""
    return PLANTS[fault](net) or side(pair, "mindspore").loss
