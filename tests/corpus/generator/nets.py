"""Ten nets, each written once.

    NETS["gpt"].build(plan)            the net
    NETS["gpt"].batch(rng)             inputs as numpy arrays
    NETS["gpt"].loss(plan, net, batch) (loss, output)

They are small: two blocks, a width of 16 to 32. What is hard about judging does not grow with the size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .kit import kit as k
from .parts import (
    Attention,
    Plan,
    RootMeanSquareNorm,
    activation,
    add,
    affine,
    averaged,
    batch_norm,
    convolution,
    dropped,
    group_norm,
    joined,
    layer_norm,
    passed,
)

Batch = dict[str, Any]
WIDTH, HEADS, LENGTH, VOCABULARY = 32, 4, 10, 40


@dataclass(frozen=True)
class Net:
    build: Callable[[Plan], Any]
    batch: Callable[[np.random.Generator], dict[str, np.ndarray]]
    loss: Callable[[Plan, Any, Batch], tuple[Any, Any]]


def causal(length: int) -> np.ndarray:
    return np.triu(np.ones((length, length), bool), 1)


# --- losses -----------------------------------------------------------------------------------------------------------


def classified(plan: Plan, logits: Any, labels: Any) -> Any:
    """Cross entropy in float32, halved as for two accumulated batches."""
    logits = k.cast(logits, plan.high)
    reduction = plan.at("#loss", "reduction", "mean")
    smoothing = plan.at("#loss", "smoothing", 0.0)
    loss = k.cross_entropy(logits, labels, reduction, smoothing)
    return loss / 2 if plan.at("#loss", "divided", True) else loss


def regressed(plan: Plan, output: Any, target: Any) -> Any:
    reduction = plan.at("#loss", "reduction", "mean")
    loss = k.mse(k.cast(output, plan.high), k.cast(target, plan.high), reduction)
    return loss / 2 if plan.at("#loss", "divided", True) else loss


def next_token(plan: Plan, logits: Any, tokens: Any) -> Any:
    """Each place predicts the token after it."""
    if plan.at("#loss", "shifted", True):
        logits, labels = logits[:, :-1], tokens[:, 1:]
    else:
        labels = tokens
    count = labels.shape[0] * labels.shape[1]
    return classified(plan, k.reshape(logits, (count, VOCABULARY)), k.reshape(labels, (count,)))


def _classify(plan: Plan, net: Any, batch: Batch) -> tuple[Any, Any]:
    output = net(batch["x"])
    return classified(plan, output, batch["labels"]), output


def _predict(plan: Plan, net: Any, batch: Batch) -> tuple[Any, Any]:
    output = net(batch["tokens"])
    return next_token(plan, output, batch["tokens"]), output


def _tokens(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {"tokens": rng.integers(0, VOCABULARY, (3, LENGTH))}


def _images(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {"x": rng.standard_normal((4, 3, 15, 15)).astype(np.float32), "labels": rng.integers(0, 5, 4)}


# --- nets -------------------------------------------------------------------------------------------------------------


class Perceptron(k.Module):
    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan
        self.fc1 = affine(plan, "fc1", 12, WIDTH)
        self.act1 = activation(plan, "act1", "leaky")
        self.norm = layer_norm(plan, "norm", WIDTH)
        self.fc2 = affine(plan, "fc2", WIDTH, WIDTH)
        self.act2 = activation(plan, "act2", "gelu")
        self.head = affine(plan, "head", WIDTH, 5)

    def forward(self, x: Any) -> Any:
        x = self.norm(self.act1(self.fc1(x)))
        y = passed(self.plan, "#between", self.act2(self.fc2(x)))
        return self.head(dropped(self.plan, "#drop", add(self.plan, "#add1", x, y)))


class ConvNet(k.Module):
    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan
        self.conv1 = convolution(plan, "conv1", 3, 16)
        self.act1 = activation(plan, "act1", "relu6")
        self.ceil = plan.at("#pool1", "ceil_mode", True)
        self.conv2 = convolution(plan, "conv2", 16, 16, stride=2)
        self.act2 = activation(plan, "act2", "leaky")
        self.counted = plan.at("#pool2", "count_include_pad", False)
        self.head = affine(plan, "head", 16, 5)

    def forward(self, x: Any) -> Any:
        x = self.act1(self.conv1(x) * 3.0)
        x = k.max_pool(x, 2, 2, 0, self.ceil)
        x = passed(self.plan, "#between", self.act2(self.conv2(x)))
        x = k.avg_pool(x, 3, 1, 1, self.counted)
        return self.head(averaged(self.plan, "#mean", x))


class ResidualBlock(k.Module):
    def __init__(self, plan: Plan, site: str, channels: int) -> None:
        super().__init__()
        self.plan, self.site = plan, site
        self.conv1 = convolution(plan, f"{site}.conv1", channels, channels, bias=False)
        self.bn1 = batch_norm(plan, f"{site}.bn1", channels)
        self.conv2 = convolution(plan, f"{site}.conv2", channels, channels, bias=False)
        self.bn2 = batch_norm(plan, f"{site}.bn2", channels)
        self.act = activation(plan, f"{site}.act", "relu")

    def forward(self, x: Any) -> Any:
        y = self.bn2(self.conv2(self.act(self.bn1(self.conv1(x)))))
        return self.act(add(self.plan, f"{self.site}#add1", x, y))


class ResidualNet(k.Module):
    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan
        self.stem = convolution(plan, "stem", 3, 8, bias=False)
        self.bn1 = batch_norm(plan, "bn1", 8)
        self.blocks = k.module_list([ResidualBlock(plan, f"blocks.{n}", 8) for n in range(2)])
        self.head = affine(plan, "head", 8, 5)

    def forward(self, x: Any) -> Any:
        x = k.relu(self.bn1(self.stem(x)))
        x = k.max_pool(x, 2, 2, 0, self.plan.at("#pool1", "ceil_mode", False))
        for block in self.blocks:
            x = block(x)
        return self.head(averaged(self.plan, "#mean", x))


class FeedForward(k.Module):
    def __init__(self, plan: Plan, site: str, kind: str) -> None:
        super().__init__()
        self.fc1 = affine(plan, f"{site}.fc1", WIDTH, 2 * WIDTH)
        self.act = activation(plan, f"{site}.act", kind)
        self.fc2 = affine(plan, f"{site}.fc2", 2 * WIDTH, WIDTH)

    def forward(self, x: Any) -> Any:
        return self.fc2(self.act(self.fc1(x)))


class EncoderBlock(k.Module):
    """A norm after each half, as in BERT."""

    def __init__(self, plan: Plan, site: str) -> None:
        super().__init__()
        self.plan, self.site = plan, site
        self.attn = Attention(plan, f"{site}.attn", WIDTH, HEADS)
        self.norm1 = layer_norm(plan, f"{site}.norm1", WIDTH)
        self.mlp = FeedForward(plan, f"{site}.mlp", "gelu")
        self.norm2 = layer_norm(plan, f"{site}.norm2", WIDTH)

    def forward(self, x: Any, hidden: Any) -> Any:
        x = self.norm1(add(self.plan, f"{self.site}#add1", x, self.attn(x, hidden)))
        y = dropped(self.plan, f"{self.site}#drop", self.mlp(x))
        return self.norm2(add(self.plan, f"{self.site}#add2", x, y))


class Encoder(k.Module):
    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan
        self.tokens = plan.keep("tokens", k.embedding_layer(VOCABULARY, WIDTH))
        self.places = plan.keep("places", k.embedding_layer(LENGTH + 2, WIDTH))
        self.norm = layer_norm(plan, "norm", WIDTH)
        self.blocks = k.module_list([EncoderBlock(plan, f"blocks.{n}") for n in range(2)])
        self.head = affine(plan, "head", WIDTH, VOCABULARY)

    def forward(self, tokens: Any) -> Any:
        hidden = np.zeros((3, 1, 1, LENGTH), bool)
        hidden[1, ..., -3:] = hidden[2, ..., -1:] = True
        first = self.plan.at("#places", "first", 0)
        x = self.norm(self.tokens(tokens) + self.places(k.constant(np.arange(first, first + LENGTH))))
        for number, block in enumerate(self.blocks):
            x = block(x, hidden)
            if number == 0:
                x = passed(self.plan, "#between", x)
        return self.head(x)


class DecoderBlock(k.Module):
    """A norm before each half, as in GPT-2 and ViT."""

    def __init__(self, plan: Plan, site: str, kind: str, *, causal: bool) -> None:
        super().__init__()
        self.plan, self.site = plan, site
        self.norm1 = layer_norm(plan, f"{site}.norm1", WIDTH)
        self.attn = Attention(plan, f"{site}.attn", WIDTH, HEADS, together=causal, masked=causal)
        self.norm2 = layer_norm(plan, f"{site}.norm2", WIDTH)
        self.mlp = FeedForward(plan, f"{site}.mlp", kind)

    def forward(self, x: Any, hidden: Any) -> Any:
        x = add(self.plan, f"{self.site}#add1", x, self.attn(self.norm1(x), hidden))
        y = dropped(self.plan, f"{self.site}#drop", self.mlp(self.norm2(x)))
        return add(self.plan, f"{self.site}#add2", x, y)


class Decoder(k.Module):
    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan
        self.tokens = plan.keep("tokens", k.embedding_layer(VOCABULARY, WIDTH))
        self.places = plan.keep("places", k.embedding_layer(LENGTH + 2, WIDTH))
        self.blocks = k.module_list([DecoderBlock(plan, f"blocks.{n}", "gelu_tanh", causal=True) for n in range(2)])
        self.norm = layer_norm(plan, "norm", WIDTH)
        self.head = affine(plan, "head", WIDTH, VOCABULARY, bias=False)
        self.checkpointed = plan.at("", "checkpointed", False)

    def forward(self, tokens: Any) -> Any:
        first = self.plan.at("#places", "first", 0)
        x = self.tokens(tokens) + self.places(k.constant(np.arange(first, first + LENGTH)))
        hidden = causal(LENGTH)
        for number, block in enumerate(self.blocks):
            x = k.checkpoint(block, x, hidden) if self.checkpointed else block(x, hidden)
            if number == 0:
                x = passed(self.plan, "#between", x)
        return self.head(self.norm(x))


class GatedFeedForward(k.Module):
    """SwiGLU."""

    def __init__(self, plan: Plan, site: str) -> None:
        super().__init__()
        self.plan, self.site = plan, site
        self.gate = affine(plan, f"{site}.gate", WIDTH, 2 * WIDTH, bias=False)
        self.up = affine(plan, f"{site}.up", WIDTH, 2 * WIDTH, bias=False)
        self.down = affine(plan, f"{site}.down", 2 * WIDTH, WIDTH, bias=False)
        self.act = activation(plan, f"{site}.act", "silu")
        self.order = plan.at(f"{site}#gated", "gated", "gate")
        compiled = plan.at(f"{site}#gated", "compiled", False)
        self.helper = k.compiled(lambda a, b: k.silu(a) * b) if compiled else None

    def forward(self, x: Any) -> Any:
        if self.order == "other order":
            up = self.up(x)
            gate = self.gate(x)
        else:
            gate = self.gate(x)
            up = self.up(x)
        if self.order == "exchanged":
            gate, up = up, gate
        return self.down(self.helper(gate, up) if self.helper else self.act(gate) * up)


class LlamaBlock(k.Module):
    def __init__(self, plan: Plan, site: str, window: int | None) -> None:
        super().__init__()
        self.plan, self.site = plan, site
        self.norm1 = RootMeanSquareNorm(plan, f"{site}.norm1", WIDTH)
        self.attn = Attention(
            plan, f"{site}.attn", WIDTH, HEADS, groups=2, rotary=True, window=window, cap=5.0, bias=False
        )
        self.norm2 = RootMeanSquareNorm(plan, f"{site}.norm2", WIDTH)
        self.mlp = GatedFeedForward(plan, f"{site}.mlp")

    def forward(self, x: Any, hidden: Any) -> Any:
        x = add(self.plan, f"{self.site}#add1", x, self.attn(self.norm1(x), hidden))
        return add(self.plan, f"{self.site}#add2", x, self.mlp(self.norm2(x)))


class Llama(k.Module):
    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan
        self.tokens = plan.keep("tokens", k.embedding_layer(VOCABULARY, WIDTH))
        self.scale = plan.at("#embedding", "scale_by", WIDTH**0.5)
        self.blocks = k.module_list([LlamaBlock(plan, f"blocks.{n}", 4 if n else None) for n in range(2)])
        self.norm = RootMeanSquareNorm(plan, "norm", WIDTH)
        self.head = affine(plan, "head", WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: Any) -> Any:
        x = self.tokens(tokens)
        x = x * self.scale if self.scale else x
        for block in self.blocks:
            x = block(x, causal(LENGTH))
        return self.head(self.norm(x))


class VisionTransformer(k.Module):
    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan
        self.stem = plan.keep("stem", k.conv_layer(3, WIDTH, 4, 4, 0, 1, plan.at("stem", "bias", True)))
        self.places = plan.keep("places", k.embedding_layer(9, WIDTH))
        self.blocks = k.module_list([DecoderBlock(plan, f"blocks.{n}", "gelu", causal=False) for n in range(2)])
        self.norm = layer_norm(plan, "norm", WIDTH)
        self.head = affine(plan, "head", WIDTH, 5)

    def forward(self, images: Any) -> Any:
        x = self.stem(images)
        order = (0, 3, 2, 1) if self.plan.at("#patches", "order", "rows") == "columns" else (0, 2, 3, 1)
        x = k.reshape(k.permute(x, order), (4, 9, WIDTH)) + self.places(k.constant(np.arange(9)))
        for number, block in enumerate(self.blocks):
            x = block(x, None)
            if number == 0:
                x = passed(self.plan, "#between", x)
        return self.head(k.mean(self.norm(x), 1))


class UNetStage(k.Module):
    def __init__(self, plan: Plan, site: str, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv1 = convolution(plan, f"{site}.conv1", inputs, outputs)
        self.norm1 = group_norm(plan, f"{site}.norm1", outputs)
        self.act = activation(plan, f"{site}.act", "silu")

    def forward(self, x: Any) -> Any:
        return self.act(self.norm1(self.conv1(x)))


class UNet(k.Module):
    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan
        self.down1 = UNetStage(plan, "down1", 3, 8)
        self.middle = UNetStage(plan, "middle", 8, 8)
        self.up1 = UNetStage(plan, "up1", 16, 8)
        self.conv2 = convolution(plan, "conv2", 8, 3)
        self.mode = plan.at("#upsample", "mode", "nearest")
        self.counted = plan.at("#pool1", "count_include_pad", False)

    def forward(self, x: Any) -> Any:
        skip = self.down1(x)
        y = self.middle(k.avg_pool(skip, 3, 2, 1, self.counted))
        y = k.upsample(y, (16, 16), self.mode)
        y = passed(self.plan, "#between", y)
        return self.conv2(self.up1(joined(self.plan, "#joined", [skip, y], 1)))


class Recurrent(k.Module):
    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan
        self.tokens = plan.keep("tokens", k.embedding_layer(VOCABULARY, WIDTH))
        self.rnn = plan.keep("rnn", k.lstm_layer(WIDTH, WIDTH))
        self.second = plan.keep("second", k.gru_layer(WIDTH, WIDTH))
        self.norm = layer_norm(plan, "norm", WIDTH)
        self.head = affine(plan, "head", WIDTH, 5)

    def forward(self, tokens: Any) -> Any:
        x = self.tokens(tokens)
        y, _ = self.rnn(x)
        y = passed(self.plan, "#between", y)
        y = add(self.plan, "#add1", x, y)
        z, _ = self.second(y)
        last = z[:, 0] if self.plan.at("#last", "last", "last") == "first" else z[:, -1]
        return self.head(dropped(self.plan, "#drop", self.norm(last)))


class Experts(k.Module):
    """Two of four experts, chosen for each token; the weights of the two sum to one."""

    def __init__(self, plan: Plan, site: str) -> None:
        super().__init__()
        self.high = plan.high
        self.router = affine(plan, f"{site}.router", WIDTH, 4, bias=False)
        self.experts = k.module_list([FeedForward(plan, f"{site}.experts.{n}", "gelu") for n in range(4)])
        self.count = plan.at(f"{site}#choice", "count", 2)
        self.normalised = plan.at(f"{site}#choice", "normalised", True)
        self.order = plan.at(f"{site}#choice", "order", (0, 1, 2, 3))

    def forward(self, x: Any) -> Any:
        chances = k.softmax(k.cast(self.router(x), self.high), -1)
        best, which = k.top_k(chances, self.count)
        if self.normalised:
            best = best / k.total(best, -1, True)
        y = None
        for number in self.order:
            chosen = k.cast_like(which == number, best)
            share = k.cast_like(k.total(best * chosen, -1, True), x)
            part = self.experts[number](x) * share
            y = part if y is None else y + part
        return y


class MixtureBlock(k.Module):
    def __init__(self, plan: Plan, site: str) -> None:
        super().__init__()
        self.plan, self.site = plan, site
        self.norm1 = RootMeanSquareNorm(plan, f"{site}.norm1", WIDTH)
        self.attn = Attention(plan, f"{site}.attn", WIDTH, HEADS, rotary=True, bias=False)
        self.norm2 = RootMeanSquareNorm(plan, f"{site}.norm2", WIDTH)
        self.mlp = Experts(plan, f"{site}.mlp")

    def forward(self, x: Any, hidden: Any) -> Any:
        x = add(self.plan, f"{self.site}#add1", x, self.attn(self.norm1(x), hidden))
        return add(self.plan, f"{self.site}#add2", x, self.mlp(self.norm2(x)))


class Mixture(k.Module):
    """A mixture of experts whose output layer is its embedding, with capped logits."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan
        self.tokens = plan.keep("tokens", k.embedding_layer(VOCABULARY, WIDTH))
        self.blocks = k.module_list([MixtureBlock(plan, f"blocks.{n}") for n in range(1)])
        self.norm = RootMeanSquareNorm(plan, "norm", WIDTH)
        self.cap = plan.at("#logits", "final_cap", 4.0)
        self.tied = plan.at("#logits", "tied", True)
        if not self.tied:
            self.head = k.linear_layer(WIDTH, VOCABULARY, False)
            plan.copies.append((self.head, "tokens"))

    def forward(self, tokens: Any) -> Any:
        x = self.tokens(tokens)
        for block in self.blocks:
            x = block(x, causal(LENGTH))
        x = passed(self.plan, "#between", self.norm(x))
        logits = k.linear(x, k.held(self.tokens, "weight")) if self.tied else self.head(x)
        return k.tanh(logits / self.cap) * self.cap if self.cap else logits


def _encode(plan: Plan, net: Any, batch: Batch) -> tuple[Any, Any]:
    output = net(batch["tokens"])
    count = 3 * LENGTH
    labels = k.reshape(batch["labels"], (count,))
    return classified(plan, k.reshape(output, (count, VOCABULARY)), labels), output


def _tag(plan: Plan, net: Any, batch: Batch) -> tuple[Any, Any]:
    output = net(batch["tokens"])
    return classified(plan, output, batch["labels"]), output


def _paint(plan: Plan, net: Any, batch: Batch) -> tuple[Any, Any]:
    output = net(batch["x"])
    return regressed(plan, output, batch["target"]), output


NETS: dict[str, Net] = {
    "mlp": Net(
        Perceptron,
        lambda rng: {"x": rng.standard_normal((8, 12)).astype(np.float32), "labels": rng.integers(0, 5, 8)},
        _classify,
    ),
    "cnn": Net(ConvNet, _images, _classify),
    "resnet": Net(ResidualNet, _images, _classify),
    "encoder": Net(Encoder, lambda rng: _tokens(rng) | {"labels": rng.integers(0, VOCABULARY, (3, LENGTH))}, _encode),
    "gpt": Net(Decoder, _tokens, _predict),
    "llama": Net(Llama, _tokens, _predict),
    "vit": Net(
        VisionTransformer,
        lambda rng: {"x": rng.standard_normal((4, 3, 12, 12)).astype(np.float32), "labels": rng.integers(0, 5, 4)},
        _classify,
    ),
    "unet": Net(
        UNet,
        lambda rng: {name: rng.standard_normal((2, 3, 16, 16)).astype(np.float32) for name in ("x", "target")},
        _paint,
    ),
    "recurrent": Net(Recurrent, lambda rng: _tokens(rng) | {"labels": rng.integers(0, 5, 3)}, _tag),
    "mixture": Net(Mixture, _tokens, _predict),
}
