"""Classes 1 to 5: what one side alone does, operands of one side, other shapes, layouts, and order inside statistics."""

from __future__ import annotations

import random
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .cases import Pair, noise, pairs, whole

# --- 1: left alone, and does not matter -------------------------------------------------------------------------------


class Wrapped(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


@pairs(
    1,
    "question",
    "item",
    "iterate",
    "concat",
    "roll",
    "twice",
    "mask",
    "positions",
    "wrapper",
    "dropout",
    "loop",
    "stack",
)
def harmless(r: random.Random, how: str) -> Pair:
    """Calls that one side alone makes, and on which no result depends that is not compared."""
    wide, long = r.choice((6, 8)), r.choice((5, 7))

    def parts(way: int) -> dict[str, nn.Module]:
        held = {"a": nn.Linear(wide, wide), "b": nn.Linear(wide, wide), "c": nn.Linear(wide, wide)}
        return held | {"o": nn.Linear(3 * wide if how == "concat" else wide, 4)}

    def run(s: Any, x: Tensor, way: int, wrong: bool) -> Tensor:
        y = s.a(x).relu()
        if how == "question" and way and torch.all(x == 0):
            return y
        if how == "item" and way and (y.abs().max() > 1e9).item():
            return y
        if how == "iterate" and way:
            for row in y:
                row.norm()
        if how == "concat":
            parts = y, s.b(x).tanh(), s.c(x)
            return s.o(torch.cat((torch.cat(parts[:2], -1), parts[2]), -1) if way else torch.cat(parts, -1))
        if how == "stack":
            parts = y, s.b(x).tanh(), s.c(x)
            return s.o((torch.cat([part[None] for part in parts]) if way else torch.stack(parts)).sum(0))
        if how == "roll":
            y = torch.cat((y[:, 2:], y[:, :2]), 1) if way else torch.roll(y, -2, 1)
        if how == "mask":
            scores = y @ y.transpose(1, 2)
            places = torch.arange(long)
            if way:
                scores = scores + torch.where(places[:, None] >= places[None, :], 0.0, float("-inf")).to(y.dtype)
            else:
                scores = scores.masked_fill(~torch.ones(long, long, dtype=torch.bool).tril(), float("-inf"))
            y = torch.softmax(scores, -1) @ y
        if how == "positions":
            places = torch.ones(long).cumsum(0).sub(1) if way else torch.arange(long)
            y = y + places.to(y.dtype)[None, :, None]
        if how == "dropout" and way:
            y = F.dropout(y, 0.3, training=False)
        if how == "twice":
            z = torch.sigmoid(y)
            return s.o(s.b(y) * z + (torch.sigmoid(y) if way else z))
        if how == "loop" and way:
            return s.o(torch.stack([s.b.forward(row) for row in y]))
        return s.o(Wrapped(s.b)(y) if how == "wrapper" and way else s.b(y))

    return Pair(parts, run, (noise(r, 2, long, wide),))


COUNTING = {"tanh": "tanh", "scaled": "mul", "residual": "add", "clamped": "clamp"}


@pairs(1, **dict.fromkeys(COUNTING, "part"))
def counting(r: random.Random, how: str) -> Pair:
    """A call that one side alone makes, and that changes the result."""
    wide = r.choice((6, 8))

    def parts(way: int) -> dict[str, nn.Module]:
        return {"a": nn.Linear(wide, wide), "b": nn.Linear(wide, wide), "o": nn.Linear(wide, 4)}

    def run(s: Any, x: Tensor, way: int, wrong: bool) -> Tensor:
        y = s.b(s.a(x).relu())
        if wrong:
            y = {
                "tanh": lambda: torch.tanh(y),
                "scaled": lambda: y * 0.5,
                "residual": lambda: y + x,
                "clamped": lambda: y.clamp(-0.1, 0.1),
            }[how]()
        return s.o(y)

    return Pair(parts, run, (noise(r, 4, wide),), place=COUNTING[how], lone=True)


# --- 2: strays ----------------------------------------------------------------------------------------------------------

STRAYS = {
    "bias_missing": ("linear", "bias"),
    "mask_missing": ("scaled_dot_product_attention", "mask"),
    "gain_missing": ("layer_norm", "weight"),
    "other_mask": ("scaled_dot_product_attention|tril|triu|ones", "mask|diagonal|tril|triu"),
    "other_positions": ("embedding|arange|add", "positions|arange|start|indices|input|embedding"),
    "pad_value": ("pad", "value"),
}


@pairs(2, "keyword", "turned", "where", "clamp", **dict.fromkeys(STRAYS, "part"))
def operands(r: random.Random, how: str) -> Pair:
    """Operands that one side gives otherwise, or not at all."""
    wide, long = r.choice((6, 8)), r.choice((5, 7))

    def parts(way: int) -> dict[str, nn.Module]:
        norm = nn.LayerNorm(wide)
        with torch.no_grad():
            norm.weight.add_(torch.randn(wide))
        return {"a": nn.Linear(wide, wide), "e": nn.Embedding(2 * long, wide), "n": norm, "o": nn.Linear(wide, 4)}

    def run(s: Any, x: Tensor, way: int, wrong: bool) -> Tensor:
        y = F.linear(x, s.a.weight, None if wrong and how == "bias_missing" else s.a.bias).tanh()
        if how == "keyword":
            y = F.layer_norm(y, (wide,), weight=s.n.weight, bias=s.n.bias) if way else s.n(y)
        if how == "gain_missing":
            y = F.layer_norm(y, (wide,), None if wrong else s.n.weight, s.n.bias)
        if how in ("mask_missing", "other_mask"):
            keep = torch.ones(long, long, dtype=torch.bool).tril(1 if wrong and how == "other_mask" else 0)
            y = F.scaled_dot_product_attention(y, y, y, None if wrong and how == "mask_missing" else keep)
        if how in ("other_positions", "turned"):
            start = int(wrong and how == "other_positions")
            places = s.e(torch.arange(start, start + long))
            y = places + y if way else y + places
        if how == "where":
            y = torch.where(y > 0, y, 0.1 * y) if way else torch.where(y <= 0, y * 0.1, y)
        if how == "clamp":
            y = torch.minimum(y, torch.tensor(0.5, dtype=y.dtype)) if way else y.clamp(max=0.5)
        if how == "pad_value":
            y = F.pad(y, (0, 0, 1, 0), value=1.0 if wrong else 0.0)
        return s.o(y)

    place, told = STRAYS.get(how, ("", ""))
    return Pair(parts, run, (noise(r, 2, long, wide),), place=place, told=told)


# --- 3: other shapes ------------------------------------------------------------------------------------------------------

SHAPES = {
    "ceil": ("max_pool2d", r"ceil_mode|\]"),
    "pooled": ("max_pool2d", r"padding|\]"),
    "padding": ("conv2d", r"padding|\]"),
    "stride": ("conv2d", r"stride|\]"),
    "cut": ("getitem|mean|conv2d", r"\]"),
    "token": ("getitem|mean|cat", r"\]"),
}


@pairs(3, "kept_axes", "flattened", **dict.fromkeys(SHAPES, "part"))
def shapes(r: random.Random, how: str) -> Pair:
    """A mistake that changes a shape: what comes after it is still paired. And shapes that only look different."""
    size, wide = r.choice((14, 16)), r.choice((4, 8))

    def parts(way: int) -> dict[str, nn.Module]:
        return {
            "c": nn.Conv2d(3, wide, 3),
            "e": nn.Conv2d(wide, wide, 3, padding=1),
            "d": nn.Conv2d(wide, wide, 1),
            "o": nn.Linear(wide, 4),
        }

    def run(s: Any, x: Tensor, way: int, wrong: bool) -> Tensor:
        y = s.c(x).relu()
        y = F.max_pool2d(y, 3, 2, ceil_mode=wrong and how == "ceil", padding=int(wrong and how == "pooled"))
        stride, padding = (2, 1) if wrong and how == "stride" else (1, 0 if wrong and how == "padding" else 1)
        y = F.conv2d(y, s.e.weight, s.e.bias, stride=stride, padding=padding).tanh()
        if wrong and how == "cut":
            y = y[:, :, 1:]
        y = s.d(y).sigmoid()
        if how == "token":
            tokens = y.flatten(2).transpose(1, 2)
            tokens = s.o(torch.cat((tokens.mean(1, keepdim=True), tokens), 1)).tanh()
            return (tokens[:, 1:] if wrong else tokens).square()
        if how == "kept_axes" and way:
            return s.o(y.mean((2, 3), keepdim=True).squeeze(-1).squeeze(-1))
        if how == "flattened" and way:
            return s.o(y.flatten(2).mean(-1))
        return s.o(y.mean((2, 3)))

    place, told = SHAPES.get(how, ("", ""))
    return Pair(parts, run, (noise(r, 2, 3, size, size),), place=place, told=told, lone=True)


# --- 4: layouts -----------------------------------------------------------------------------------------------------------

FAULTS_OF_LAYOUT = {
    "heads_untransposed": "reshape|view|transpose|contiguous|linear",
    "axis": "softmax",
    "square_transposed": r"matmul|\bmm\b|linear|\.T\b|transpose|\bt\b",
}


@pairs(4, "split", "chunk", "unbind", "three", "unbind_three", "square", "channels_last", "transposed_product", "batch_second",
       "einsum", **dict.fromkeys(FAULTS_OF_LAYOUT, "part"))  # fmt: skip
def layouts(r: random.Random, how: str) -> Pair:
    """Heads and tokens of one size, equal axes, qkv cut in other ways: shapes do not tell the order of the axes."""
    heads = r.choice((2, 4))
    wide = r.choice((4, 8))
    long = wide if how != "split" else r.choice((5, heads))
    batch = r.choice((2, heads))
    full = heads * wide

    def parts(way: int) -> dict[str, nn.Module]:
        held: dict[str, nn.Module] = {"qkv": nn.Linear(full, 3 * full), "o": nn.Linear(full, full)}
        held["c"] = nn.Linear(full, full)
        if how in ("three", "unbind_three") and way:
            whole = held.pop("qkv")
            for name, weight, bias in zip("qkv", whole.weight.chunk(3), whole.bias.chunk(3), strict=True):
                held[name] = nn.Linear(full, full)
                with torch.no_grad():
                    held[name].weight.copy_(weight)
                    held[name].bias.copy_(bias)
        if how == "channels_last" and way:
            plain = held["c"]
            held["c"] = nn.Conv2d(full, full, 1)
            with torch.no_grad():
                held["c"].weight.copy_(plain.weight[:, :, None, None])
                held["c"].bias.copy_(plain.bias)
        return held

    def cut(s: Any, x: Tensor, way: int) -> tuple[Tensor, ...]:
        b, t, _ = x.shape
        if how in ("three", "unbind_three") and way:
            return tuple(getattr(s, name)(x).view(b, t, heads, wide).transpose(1, 2) for name in "qkv")
        y = s.qkv(x)
        if (how in ("unbind", "unbind_three")) != bool(way):
            return tuple(y.reshape(b, t, 3, heads, wide).permute(2, 0, 3, 1, 4).unbind(0))
        pieces = y.chunk(3, -1) if how == "chunk" else y.split(full, -1)
        return tuple(piece.view(b, t, heads, wide).transpose(1, 2) for piece in pieces)

    def run(s: Any, x: Tensor, way: int, wrong: bool) -> Tensor:
        b, t, _ = x.shape
        if how == "channels_last":
            if way:
                return s.c(x.transpose(1, 2)[..., None])[..., 0].transpose(1, 2).tanh()
            return s.c(x).tanh()
        if how in ("transposed_product", "square_transposed"):
            y = torch.matmul(x, s.c.weight if wrong else s.c.weight.t()).tanh()
            if how == "transposed_product" and way:
                y = torch.matmul(s.c.weight, x.transpose(1, 2)).transpose(1, 2).tanh()
            return s.o(y)
        if how == "batch_second" and way:
            x = x.transpose(0, 1).contiguous().transpose(0, 1)
        q, k, v = cut(s, x, way)
        if how == "einsum" and way:
            scores = torch.einsum("bhqd,bhkd->bhqk", q, k) * wide**-0.5
        else:
            scores = torch.matmul(q, k.transpose(-2, -1)) * wide**-0.5
        chosen = torch.softmax(scores, -2 if wrong and how == "axis" else -1)
        if how == "einsum" and way:
            y = torch.einsum("bhqk,bhkd->bqhd", chosen, v).reshape(b, t, full)
        elif wrong and how == "heads_untransposed":
            y = torch.matmul(chosen, v).reshape(b, t, full)
        else:
            y = torch.matmul(chosen, v).transpose(1, 2).reshape(b, t, full)
        return s.o(y)

    return Pair(parts, run, (noise(r, batch, long, full),), place=FAULTS_OF_LAYOUT.get(how, ""), lone=True)


# --- 5: order inside statistics -------------------------------------------------------------------------------------------

ORDERS = {
    "rolled": "roll",
    "flipped": "flip",
    "shuffled": "getitem|index_select",
    "swapped": "cat",
    "transposed": "transpose|matmul",
    "labels": "roll|cross_entropy",
}


@pairs(5, "twice", "chained", **dict.fromkeys(ORDERS, "part"))
def orders(r: random.Random, how: str) -> Pair:
    """Values that only moved, in traces that keep statistics and fingerprints, not values."""
    size = r.choice((6, 8))
    order = list(range(size))
    while order == sorted(order):
        r.shuffle(order)

    def parts(way: int) -> dict[str, nn.Module]:
        return {"a": nn.Linear(size, size), "b": nn.Linear(size, size), "o": nn.Linear(size, size)}

    def run(s: Any, x: Tensor, y: Tensor, way: int, wrong: bool) -> Tensor:
        z = s.a(x).tanh()
        if how == "rolled":
            z = torch.roll(z, 2 if wrong else 1, 1)
        if how == "flipped":
            z = torch.flip(z, (0,) if wrong else (1,))
        if how == "shuffled":
            z = z[:, order if wrong else order[::-1]]
        if how == "swapped":
            two = s.b(x).sigmoid()
            z = torch.cat((two, z) if wrong else (z, two), 0)
            z = z[:size] - 2 * z[size:]
        if how == "transposed":
            z = torch.matmul(z, z.transpose(0, 1) if wrong else z)
        if how == "chained":
            z = torch.cat((z[1:], z[:1])) if way else torch.roll(z, -1, 0)
        z = s.o(z)
        if how == "labels":
            return F.cross_entropy(z, torch.roll(y, 1, 0) if wrong else torch.roll(y, 2, 0))
        return z.square().mean()

    keep = r.choice(("fingerprint", "statistics")) if how not in ("twice", "chained") else "fingerprint"
    inputs = noise(r, size, size), whole(r, size, size)
    return Pair(parts, run, inputs, place=ORDERS.get(how, ""), keep=keep, lone=True)
