"""Formulas for the primitives of MindSpore that have no kernel on a CPU, so that the layers that call them can be run.

    with stood_in():
        mint.nn.Conv2d(4, 6, 3)(x)      # the real Cell: its parameters, its construct, its primitive; the kernel is a formula

MindSpore 2.10 has these kernels on Ascend (InstanceNorm's: on GPU) only. Without them nothing could be computed here with
the weights of `mint.nn`'s convolutions and norms, and a rule about those weights would be believed rather than shown. Each
formula is what the primitive's documentation says, written with operators that there are on a CPU, and is differentiated by
MindSpore. None of them knows the rules that they help to test: what is called `weight`, and how it lies, is the Cell's business.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from itertools import product
from math import prod
from typing import Any
from unittest import mock

import mindspore as ms
import numpy as np
from mindspore import ops
from mindspore.ops.auto_generate import gen_ops_prim as prims
from mindspore.ops.operations import InstanceNorm


@contextlib.contextmanager
def stood_in() -> Iterator[None]:
    """The formulas in place of the primitives' own calls, for as long as the block lasts."""
    with contextlib.ExitStack() as stack:
        for primitive, formula in FORMULAS.items():
            stack.enter_context(mock.patch.object(primitive, "__call__", formula))
        yield


def along(channels: Any, like: Any) -> Any:
    """A vector of channels, shaped so that it meets the axis of channels."""
    return channels.reshape((1, -1) + (1,) * (like.ndim - 2))


def normalise(x: Any, axes: tuple[int, ...], eps: float) -> tuple[Any, Any, Any]:
    mean = x.mean(axes, keep_dims=True)
    variance = ((x - mean) * (x - mean)).mean(axes, keep_dims=True)
    return (x - mean) / ops.sqrt(variance + eps), mean, variance


def remember(running: Any, batch: Any, momentum: float) -> None:
    ops.assign(running, (1 - momentum) * running + momentum * batch.reshape(running.shape))


def batch_norm(
    _: Any, x: Any, weight: Any, bias: Any, mean: Any, variance: Any, training: bool, momentum: float, eps: float
):
    if training:
        normal, found, spread = normalise(x, (0, *range(2, x.ndim)), eps)
        if mean is not None:
            count = prod(x.shape) // x.shape[1]
            remember(mean, found, momentum)
            remember(variance, spread * count / (count - 1), momentum)
    else:
        normal = (x - along(mean, x)) / ops.sqrt(along(variance, x) + eps)
    return (normal if weight is None else normal * along(weight, x) + along(bias, x),)


def instance_norm(primitive: Any, x: Any, gamma: Any, beta: Any, mean: Any, variance: Any):
    normal, found, spread = normalise(x, tuple(range(2, x.ndim)), primitive.epsilon)
    count = prod(x.shape[2:])
    remember(mean, found.mean(0), primitive.momentum)
    remember(variance, (spread * count / (count - 1)).mean(0), primitive.momentum)
    return normal * along(gamma, x) + along(beta, x), found, spread


def layer_norm(_: Any, x: Any, shape: Any, weight: Any, bias: Any, eps: float):
    normal, mean, variance = normalise(x, tuple(range(-len(shape), 0)), eps)
    return normal * weight + bias, mean, variance


def embedding(_: Any, numbers: Any, weight: Any, padding: Any, max_norm: Any, *rest: Any):
    assert padding is None
    assert max_norm is None
    return ops.gather(weight, numbers, 0)


def convolve(_: Any, x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int):
    """For each place in the kernel, the inputs that it meets times its weights: a sum of matrix products."""
    around = [size for before in reversed(padding) for size in (before, before)]
    x = ops.pad(x, around) if any(around) else x
    kernel = weight.shape[2:]
    out = [
        (size - step * (width - 1) - 1) // stride_ + 1
        for size, step, width, stride_ in zip(x.shape[2:], dilation, kernel, stride, strict=True)
    ]
    weights = weight.reshape(groups, weight.shape[0] // groups, weight.shape[1], *kernel)
    total: Any = 0
    for place in product(*map(range, kernel)):
        starts = [at * step for at, step in zip(place, dilation, strict=True)]
        met = x[
            (
                slice(None),
                slice(None),
                *(slice(s, s + d * (n - 1) + 1, d) for s, d, n in zip(starts, stride, out, strict=True)),
            )
        ]
        met = met.reshape(x.shape[0], groups, weight.shape[1], prod(out))
        total = total + ops.matmul(weights[(slice(None), slice(None), slice(None), *place)], met)
    total = total.reshape(x.shape[0], weight.shape[0], *out)
    return total if bias is None else total + along(bias, total)


def convolve_transposed(
    _: Any, x: Any, weight: Any, bias: Any, stride: Any, padding: Any, output_padding: Any, groups: int, dilation: Any
):
    """Zeros between the inputs, and a convolution with the weights turned round."""
    for axis, step in enumerate(stride, 2):
        spread = np.zeros((x.shape[axis], (x.shape[axis] - 1) * step + 1), np.float32)
        spread[np.arange(x.shape[axis]), np.arange(x.shape[axis]) * step] = 1
        x = ops.matmul(x.swapaxes(axis, -1), ms.Tensor(spread)).swapaxes(axis, -1)
    inputs, outputs, *kernel = weight.shape
    turned = weight.reshape(groups, inputs // groups, outputs, *kernel).swapaxes(1, 2)
    turned = ops.flip(turned.reshape(groups * outputs, inputs // groups, *kernel), tuple(range(2, weight.ndim)))
    sides = [step * (width - 1) - less for step, width, less in zip(dilation, kernel, padding, strict=True)]
    x = ops.pad(
        x, [size for side, more in zip(sides[::-1], output_padding[::-1], strict=True) for size in (side, side + more)]
    )
    return convolve(None, x, turned, bias, (1,) * len(kernel), (0,) * len(kernel), dilation, groups)


FORMULAS = {
    prims.BatchNormExt: batch_norm,
    prims.LayerNormExt: layer_norm,
    prims.Embedding: embedding,
    prims.Conv1DExt: convolve,
    prims.Conv2DExt: convolve,
    prims.Conv3DExt: convolve,
    prims.ConvTranspose2D: convolve_transposed,
    InstanceNorm: instance_norm,
}
