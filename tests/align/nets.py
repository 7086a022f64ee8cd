"""Small networks, each written in several ways, for the tests of the aligning."""

from __future__ import annotations

from typing import Any

import numpy as np
from sides import Maker, Value, noise

from twintrace.model.pairs import Side

WIDTH = 8


def relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0)


def softmax(x: np.ndarray) -> np.ndarray:
    raised = np.exp(x - x.max(-1, keepdims=True))
    return (raised / raised.sum(-1, keepdims=True)).astype(np.float32)


def weight(seed: int, rows: int = WIDTH, columns: int = WIDTH) -> np.ndarray:
    return WEIGHTS.setdefault((seed, rows, columns), noise(rows, columns, seed=seed + 1))


WEIGHTS: dict[tuple[int, int, int], np.ndarray] = {}


def mlp(names: tuple[str, ...] = ("fc1", "fc2", "fc3"), *, framework: str = "torch", **how: Any) -> Side:
    """fc, relu, fc, relu, fc in PyTorch's names."""
    made = Maker(framework, **how)
    x = made.given(noise(4, WIDTH))
    with made.module("", "Net", [x]) as net:
        for number, name in enumerate(names):
            w = weight(number)
            x = made.layer(name, "Linear", x, x.array @ w.T, "torch.nn.functional.linear", weight=w)
            if number < len(names) - 1:
                x = made.call("torch.relu", [x], relu(x.array))
        net.gives(x)
    return made.side()


def ported_mlp(
    *, transposed: bool = False, casts: bool = False, nested: bool = False, split: bool = False, **how: Any
) -> Side:
    """The same in MindSpore's names: Dense, with its kernels; other nesting, layouts, casts as asked for."""
    made = Maker("mindspore", **how)
    x = made.given(noise(4, WIDTH))
    with made.module("", "Network", [x]) as net:
        if nested:
            with made.module("body", "SequentialCell", [x]) as body:
                x = body.gives(_dense_layers(made, x, "body.", transposed, casts, split))
        else:
            x = _dense_layers(made, x, "", transposed, casts, split)
        net.gives(x)
    return made.side()


def _dense_layers(made: Maker, x: Value, prefix: str, transposed: bool, casts: bool, split: bool) -> Value:
    for number, name in enumerate(("dense_in", "dense_mid", "dense_out")):
        w = weight(number)
        held = TRANSPOSED.setdefault(number, np.ascontiguousarray(w.T)) if transposed else w
        if casts:
            x = made.call("mindspore.ops.cast", [x], x.array.astype(np.float32))
        with made.module(prefix + name, "Dense", [x], weight=held) as dense:
            result = x.array @ w.T
            if split:
                half = made.call("mindspore.ops.MatMul", [x, dense.weight], result + 1)
                x = dense.gives(made.call("mindspore.ops.BiasAdd", [half], result))
            else:
                x = dense.gives(made.call("mindspore.ops.Dense", [x, dense.weight], result))
        if number < 2:
            x = made.layer(f"{prefix}act{number}", "ReLU", x, relu(x.array), "mindspore.ops.ReLU")
    return x


TRANSPOSED: dict[int, np.ndarray] = {}


def attention(*, fused: bool, framework: str = "torch") -> Side:
    """Projections and attention: in one call, or as products and a softmax."""
    made = Maker(framework)
    x = made.given(noise(2, 5, WIDTH))
    prefix = "torch" if framework == "torch" else "mindspore.ops"
    linear = "torch.nn.functional.linear" if framework == "torch" else "mindspore.ops.Dense"
    with made.module("", "Net", [x]) as net:
        q, k, v = (
            made.layer(
                name, "Linear" if framework == "torch" else "Dense", x, x.array @ weight(n).T, linear, weight=weight(n)
            )
            for n, name in enumerate(("q", "k", "v") if framework == "torch" else ("query", "key", "value"))
        )
        scores = q.array @ k.array.transpose(0, 2, 1)
        result = softmax(scores / 2) @ v.array
        if fused:
            y = made.call(f"{prefix}.nn.functional.scaled_dot_product_attention", [q, k, v], result)
        else:
            turned = made.call(f"{prefix}.transpose", [k], np.ascontiguousarray(k.array.transpose(0, 2, 1)))
            raw = made.call(f"{prefix}.matmul", [q, turned], scores)
            scaled = made.call(f"{prefix}.div", [raw, 2.0], scores / 2)
            y = made.call(
                f"{prefix}.matmul", [made.call(f"{prefix}.softmax", [scaled], softmax(scores / 2)), v], result
            )
        kind = "Linear" if framework == "torch" else "Dense"
        net.gives(made.layer("out", kind, y, y.array @ weight(3).T, linear, weight=weight(3)))
    return made.side()


def blocks(count: int, framework: str = "torch", *, known: bool = True, skip: int | None = None) -> Side:
    """Transformer blocks that are all alike: same shapes, same weights, biases of zero. `skip` leaves one out."""
    made = Maker(framework, known=known)
    torch = framework == "torch"
    x = made.given(noise(3, WIDTH))
    bias = BIAS
    with made.module("", "Stack", [x]) as net:
        for number in range(count):
            result = 0.9 * x.array + 0.1 * relu(x.array @ weight(0).T)
            if number == skip:
                x = Value(x.number, x.array)
                continue
            path = f"blocks.{number}" if torch else f"layer{number}"
            with made.module(path, "Block" if torch else "Layer", [x]) as block:
                fc, kind = ("fc", "Linear") if torch else ("dense", "Dense")
                function = "torch.nn.functional.linear" if torch else "mindspore.ops.Dense"
                inner = x.array @ weight(0).T
                y = made.layer(f"{path}.{fc}", kind, x, inner, function, weight=weight(0), bias=bias)
                y = made.call("torch.relu" if torch else "mindspore.ops.relu", [y], relu(inner))
                x = block.gives(made.call("torch.add" if torch else "mindspore.ops.add", [x, y], result))
        net.gives(x)
    return made.side()


BIAS = np.zeros(WIDTH, np.float32)


def convnet() -> Side:
    """Something that has nothing in common with an mlp."""
    made = Maker("mindspore")
    x = made.given(noise(2, 3, 10, 10, seed=90))
    w = WEIGHTS.setdefault((91, 5, 27), noise(5, 3, 3, 3, seed=91))
    y = made.layer("stem", "Conv2d", x, noise(2, 5, 10, 10, seed=92), "mindspore.ops.Conv2D", weight=w)
    y = made.layer("pool", "MaxPool2d", y, noise(2, 5, 5, 5, seed=93), "mindspore.ops.MaxPool")
    made.call("mindspore.ops.Sigmoid", [y], noise(2, 5, 5, 5, seed=94))
    return made.side()
