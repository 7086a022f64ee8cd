"""Networks that are written in two ways, for the tests of what real ports do: made by seed, with PyTorch.

    for rewrite in rewrites("attention", seed):       Rewrite(name, left, right, inputs, agrees)
    one, two = recorded(rewrite, folder, dtype)       both sides, with their values
    foreign(two)                                      the same record as another framework would have it: other names

`agrees` says that both sides compute the same. Then `score` tells from the values alone which pairs are wrong, and which tensors
that both sides have were not paired; otherwise from the names of the modules, which are the same on both sides of a rewrite.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import twintrace as tt
from twintrace.model.pairs import Alignment, Layout, Side
from twintrace.model.records import Call
from twintrace.model.sites import Kind
from twintrace.model.values import TensorRef, leaves
from twintrace.operations.multi_tensor import split
from twintrace.store.arrays import as_float

Forward = Callable[..., Any]


@dataclass(frozen=True)
class Rewrite:
    """One network, twice."""

    name: str
    modules: Callable[[], dict[str, nn.Module]]
    left: Forward
    right: Forward
    inputs: tuple[torch.Tensor, ...]
    agrees: bool = True
    loss: Callable[[Any], torch.Tensor] | None = field(default=None)
    level: str = "mix"
    region: tuple[str, str] = ("", "")
    """Operations that must be in one match: of the left, of the right."""


class Net(nn.Module):
    def __init__(self, how: Forward, modules: dict[str, nn.Module]) -> None:
        super().__init__()
        self.how = how
        for name, module in modules.items():
            setattr(self, name, module)

    def forward(self, *inputs: Any) -> Any:
        return self.how(self, *inputs)


def noise(random_: random.Random, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(random_.randrange(1 << 30)))


# --- attention --------------------------------------------------------------------------------------------------------


def attention(seed: int) -> Iterator[Rewrite]:
    """Fused and written out: scale, mask, heads, repeated keys, square shapes; and the mistakes that are made there."""
    r = random.Random(seed)
    heads, wide = r.choice((1, 2, 4)), r.choice((4, 8))
    groups = r.choice([g for g in (1, 2, 4) if heads % g == 0])
    long = r.choice((5, 9, wide))
    full, batch = heads * wide, r.choice((1, 3))
    x = noise(r, batch, long, full)
    masks = r.choice(("none", "causal", "added", "bool"))
    scale_at = r.choice(("scores", "query", "division"))
    dropped = r.random() < 0.5
    layout = r.choice(("three", "split", "chunk", "unbind"))
    projected = r.random() < 0.7

    def modules() -> dict[str, nn.Module]:
        held = {"o": nn.Linear(full, full), "n": nn.LayerNorm(full)}
        if layout == "three":
            return held | {
                "q": nn.Linear(full, full),
                "k": nn.Linear(full, groups * wide),
                "v": nn.Linear(full, groups * wide),
            }
        return held | {"qkv": nn.Linear(full, 3 * full)}

    def cut(s: Any, x: torch.Tensor, other: bool) -> tuple[torch.Tensor, ...]:
        b, t, _ = x.shape
        if layout == "three":
            return tuple(
                getattr(s, name)(x).view(b, t, h, wide).transpose(1, 2)
                for name, h in (("q", heads), ("k", groups), ("v", groups))
            )
        y = s.qkv(x)
        way = layout if not other else {"split": "unbind", "chunk": "split", "unbind": "chunk"}[layout]
        if way == "unbind":
            return tuple(y.reshape(b, t, 3, heads, wide).permute(2, 0, 3, 1, 4).unbind(0))
        parts = y.split(full, -1) if way == "split" else y.chunk(3, -1)
        return tuple(part.view(b, t, heads, wide).transpose(1, 2) for part in parts)

    def mask(t: int, dtype: torch.dtype) -> torch.Tensor | None:
        if masks == "none":
            return None
        keep = torch.ones(t, t, dtype=torch.bool).tril()
        if masks in ("causal", "bool"):
            return keep
        return torch.zeros(t, t, dtype=dtype).masked_fill(~keep, -1e4)

    def repeated(y: torch.Tensor, wrong: bool = False) -> torch.Tensor:
        times = y.shape[1] and heads // y.shape[1]
        if times == 1:
            return y
        return y.repeat(1, times, 1, 1) if wrong else y.repeat_interleave(times, 1)

    def plain(s: Any, x: torch.Tensor, fault: str = "") -> torch.Tensor:
        x = s.n(x)
        b, t, _ = x.shape
        q, k, v = cut(s, x, True)
        k, v = repeated(k, fault == "repeat"), repeated(v, fault == "repeat")
        if fault == "exchanged":
            q, k = k, q
        factor = 1.0 if fault == "scale" else wide**-0.5
        if scale_at == "query":
            q = q * factor
        scores = torch.matmul(q, k.transpose(-2, -1))
        if scale_at == "scores":
            scores = scores * factor
        if scale_at == "division":
            scores = scores / (1.0 / factor)
        keep = mask(t, x.dtype)
        if keep is not None and fault != "mask":
            scores = (
                scores.masked_fill(~keep, torch.finfo(scores.dtype).min) if keep.dtype == torch.bool else scores + keep
            )
        if fault == "window":
            near = torch.ones(t, t, dtype=torch.bool).triu(-1)
            scores = scores.masked_fill(~near, torch.finfo(scores.dtype).min)
        probabilities = F.softmax(scores, -1)
        if dropped:
            probabilities = F.dropout(probabilities, 0.1, training=False)
        y = torch.matmul(probabilities, v).transpose(1, 2).reshape(b, t, full)
        return s.o(y) if projected else y

    def fused(s: Any, x: torch.Tensor) -> torch.Tensor:
        x = s.n(x)
        b, t, _ = x.shape
        q, k, v = cut(s, x, False)
        if masks == "causal":
            y = F.scaled_dot_product_attention(q, repeated(k), repeated(v), is_causal=True)
        else:
            y = F.scaled_dot_product_attention(q, repeated(k), repeated(v), attn_mask=mask(t, x.dtype))
        y = y.transpose(1, 2).contiguous().view(b, t, full)
        return s.o(y) if projected else y

    region = ("scaled_dot_product_attention", "matmul softmax matmul")
    name = f"attention-{seed}-{heads}x{wide}-{long}-{masks}-{scale_at}-{layout}-{groups}"
    yield Rewrite(name, modules, fused, plain, (x,), region=region)
    faults = ["scale", "window", "exchanged"]
    faults += ["mask"] if masks != "none" else []
    faults += ["repeat"] if layout == "three" and 1 < groups < heads else []
    fault = r.choice(faults)
    yield Rewrite(f"{name}-{fault}", modules, fused, lambda s, x: plain(s, x, fault), (x,), agrees=False, region=region)


# --- norms, linear layers, convolutions ---------------------------------------------------------------------------------


def norms(seed: int) -> Iterator[Rewrite]:
    """A norm in one call, and by hand."""
    r = random.Random(seed)
    width, rows = r.choice((6, 16)), r.choice((3, 6, 16))
    kind, how = r.choice(("layer", "rms")), r.randrange(3)
    x = noise(r, 2, rows, width)

    def modules() -> dict[str, nn.Module]:
        norm = nn.LayerNorm(width) if kind == "layer" else nn.RMSNorm(width, eps=1e-5)
        with torch.no_grad():
            for parameter in norm.parameters():
                parameter.add_(torch.randn_like(parameter))
        return {"a": nn.Linear(width, width), "n": norm, "b": nn.Linear(width, 4)}

    def whole(s: Any, x: torch.Tensor) -> torch.Tensor:
        return s.b(s.n(s.a(x)).relu())

    def by_hand(s: Any, x: torch.Tensor, eps: float = 1e-5, unbiased: bool = False) -> torch.Tensor:
        y = s.a(x)
        if kind == "layer":
            mean = y.mean(-1, keepdim=True)
            spread = (
                y.var(-1, keepdim=True, unbiased=unbiased) if how == 0 else ((y - mean) ** 2).mean(-1, keepdim=True)
            )
            y = (y - mean) / torch.sqrt(spread + eps) if how < 2 else (y - mean) * torch.rsqrt(spread + eps)
            y = y * s.n.weight + s.n.bias
        else:
            y = s.n.weight * (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + eps))
        return s.b(y.relu())

    one = "layer_norm" if kind == "layer" else "rms_norm"
    yield Rewrite(f"norm-{seed}-{kind}-{how}", modules, whole, by_hand, (x,), region=(one, "mean mul"))
    yield Rewrite(
        f"norm-{seed}-{kind}-{how}-eps",
        modules,
        whole,
        lambda s, x: by_hand(s, x, eps=0.3),
        (x,),
        agrees=False,
        region=(one, "mean mul"),
    )


def linears(seed: int) -> Iterator[Rewrite]:
    """A linear layer, and a product with its bias: large, small or of zeros; and a bias that is forgotten."""
    r = random.Random(seed)
    wide, out = r.choice((8, 16)), r.choice((8, 12))
    factor, how, rank = r.choice((1.0, 1e-4, 0.0)), r.randrange(3), r.choice((2, 3))
    x = noise(r, *((2, 5, wide) if rank == 3 else (5, wide)))

    def modules() -> dict[str, nn.Module]:
        held = {"a": nn.Linear(wide, wide), "b": nn.Linear(wide, out), "c": nn.Linear(out, 3)}
        with torch.no_grad():
            held["b"].bias.mul_(factor)
        return held

    def whole(s: Any, x: torch.Tensor) -> torch.Tensor:
        return s.c(torch.tanh(s.b(s.a(x).relu())))

    def split(s: Any, x: torch.Tensor, bias: bool = True) -> torch.Tensor:
        y = s.a(x).relu()
        if how == 0:
            y = torch.matmul(y, s.b.weight.t())
        elif how == 1:
            y = F.linear(y, s.b.weight)
        else:
            y = y.reshape(-1, wide) @ s.b.weight.T
        if bias:
            y = y + s.b.bias
        if how == 2:
            y = y.reshape(*x.shape[:-1], out)
        return s.c(torch.tanh(y))

    yield Rewrite(
        f"linear-{seed}-{factor}-{how}-{rank}",
        modules,
        whole,
        split,
        (x,),
        region=("linear", "linear add" if how == 1 else "matmul add"),
    )
    if factor:
        yield Rewrite(
            f"linear-{seed}-{factor}-{how}-{rank}-forgotten",
            modules,
            whole,
            lambda s, x: split(s, x, False),
            (x,),
            agrees=False,
        )


def convolutions(seed: int) -> Iterator[Rewrite]:
    """A convolution that pads, and one that is padded before; a bias that is added after."""
    r = random.Random(seed)
    side, kernel, stride, groups = r.choice((8, 9)), r.choice((3, 5)), r.choice((1, 2)), r.choice((1, 4))
    how = r.choice(("pad", "bias", "both"))
    x = noise(r, 2, 3, side, side)

    def modules() -> dict[str, nn.Module]:
        return {
            "c0": nn.Conv2d(3, 4, 3),
            "c": nn.Conv2d(4, 8, kernel, stride, padding=kernel // 2, groups=groups),
            "d": nn.Conv2d(8, 4, 1),
        }

    def whole(s: Any, x: torch.Tensor) -> torch.Tensor:
        return s.d(s.c(s.c0(x).relu()).relu())

    def apart(s: Any, x: torch.Tensor) -> torch.Tensor:
        y, edge = s.c0(x).relu(), kernel // 2
        if how != "bias":
            y, edge = F.pad(y, (edge,) * 4), 0
        bias = None if how != "pad" else s.c.bias
        y = F.conv2d(y, s.c.weight, bias, stride, edge, 1, groups)
        if how != "pad":
            y = y + s.c.bias.view(1, -1, 1, 1)
        return s.d(y.relu())

    right = {"pad": "pad conv2d", "bias": "conv2d add", "both": "pad conv2d add"}[how]
    yield Rewrite(
        f"convolution-{seed}-{how}-{kernel}-{stride}-{groups}", modules, whole, apart, (x,), region=("conv2d", right)
    )


# --- what moves values --------------------------------------------------------------------------------------------------


def moves(seed: int) -> Iterator[Rewrite]:
    """Concatenations in a chain, rolls by slices, stacks, flips, splits: what only moves values about."""
    r = random.Random(seed)
    how, wide = r.choice(("concat", "roll", "stack", "split", "flip", "shift2d")), r.choice((6, 8))
    by = r.choice((1, 2))
    x = noise(r, 2, 7, wide)

    def modules() -> dict[str, nn.Module]:
        names = {"a": nn.Linear(wide, wide), "b": nn.Linear(wide, wide), "c": nn.Linear(wide, wide)}
        return names | {"o": nn.Linear(3 * wide if how == "concat" else wide, 4), "n": nn.LayerNorm(wide)}

    def one(s: Any, x: torch.Tensor) -> torch.Tensor:
        a, b, c = s.a(x).relu(), s.b(x).tanh(), s.c(x)
        if how == "concat":
            return s.o(torch.cat((a, b, c), -1))
        if how == "roll":
            return s.o(torch.roll(s.n(a + b * c), -by, 1))
        if how == "stack":
            return s.o(torch.stack((a, b, c)).sum(0))
        if how == "flip":
            return s.o(torch.flip(a, (1,)) + b * c)
        if how == "shift2d":
            return s.o(torch.roll(a + b * c, (by, -1), (1, 2)))
        return s.o(torch.cat((a[..., : wide // 2] * b[..., : wide // 2], c[..., wide // 2 :]), -1))

    def other(s: Any, x: torch.Tensor) -> torch.Tensor:
        a, b, c = s.a(x).relu(), s.b(x).tanh(), s.c(x)
        if how == "concat":
            return s.o(torch.cat((torch.cat((a, b), -1), c), -1))
        if how == "roll":
            y = s.n(a + b * c)
            return s.o(torch.cat((y[:, by:], y[:, :by]), 1))
        if how == "stack":
            return s.o(torch.cat((a[None], b[None], c[None]), 0).sum(0))
        if how == "flip":
            return s.o(a[:, torch.arange(a.shape[1] - 1, -1, -1)] + b * c)
        if how == "shift2d":
            y = a + b * c
            y = torch.cat((y[:, -by:], y[:, :-by]), 1)
            return s.o(torch.cat((y[:, :, 1:], y[:, :, :1]), 2))
        (p, _), (q, _), (_, u) = a.chunk(2, -1), b.chunk(2, -1), c.chunk(2, -1)
        return s.o(torch.cat((p * q, u), -1))

    yield Rewrite(f"move-{seed}-{how}-{wide}", modules, one, other, (x,))


# --- what is left alone -------------------------------------------------------------------------------------------------


class Wrapped(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)


def lone(seed: int) -> Iterator[Rewrite]:
    """Calls that one side alone makes, and that do not matter; and some that do."""
    r = random.Random(seed)
    wide, long = r.choice((6, 8)), r.choice((5, 6))
    how = r.choice(("question", "twice", "mask", "dropout", "iterate", "positions", "wrapper", "item", "loop"))
    x = noise(r, 2, long, wide)

    def modules() -> dict[str, nn.Module]:
        return {"a": nn.Linear(wide, wide), "b": nn.Linear(wide, wide), "o": nn.Linear(wide, 4), "d": nn.Dropout(0.2)}

    def one(s: Any, x: torch.Tensor) -> torch.Tensor:
        y = s.a(x).relu()
        if how == "mask":
            scores = y @ y.transpose(1, 2)
            keep = torch.ones(long, long, dtype=torch.bool).tril()
            y = torch.softmax(scores.masked_fill(~keep, float("-inf")), -1) @ y
        if how == "positions":
            y = y + torch.arange(long).view(1, long, 1).to(y.dtype)
        if how == "twice":
            z = torch.sigmoid(y)
            return s.o(s.b(y) * z + z)
        return s.o(s.b(y))

    def other(s: Any, x: torch.Tensor) -> torch.Tensor:
        y = s.a(x).relu()
        if how == "question" and torch.all(x == 0):
            return y
        if how == "item" and (y.abs().max() > 1e9).item():
            return y
        if how == "mask":
            scores = y @ y.transpose(1, 2)
            places = torch.arange(long)
            bias = torch.where(places[:, None] >= places[None, :], 0.0, float("-inf")).to(y.dtype)
            y = torch.softmax(scores + bias, -1) @ y
        if how == "positions":
            y = y + torch.ones(long).cumsum(0).sub(1).to(y.dtype)[None, :, None]
        if how == "dropout":
            y = F.dropout(y, 0.3, training=False)
        if how == "iterate":
            for row in y:
                row.norm()
        if how == "twice":
            return s.o(s.b(y) * torch.sigmoid(y) + torch.sigmoid(y))
        if how == "loop":
            return s.o(torch.stack([s.b.forward(row) for row in y]))
        return s.o(Wrapped(s.b)(y) if how == "wrapper" else s.b(y))

    yield Rewrite(f"lone-{seed}-{how}-{wide}-{long}", modules, one, other, (x,))


def lone_that_counts(seed: int) -> Iterator[Rewrite]:
    """A call that one side alone makes, and that changes the result."""
    r = random.Random(seed)
    wide = r.choice((6, 8))
    how = r.choice(("activation", "scale", "residual", "norm", "noise"))
    x = noise(r, 4, wide)

    def modules() -> dict[str, nn.Module]:
        return {"a": nn.Linear(wide, wide), "b": nn.Linear(wide, wide), "o": nn.Linear(wide, 4)}

    def one(s: Any, x: torch.Tensor) -> torch.Tensor:
        return s.o(s.b(s.a(x).relu()))

    def other(s: Any, x: torch.Tensor) -> torch.Tensor:
        y = s.b(s.a(x).relu())
        if how == "activation":
            y = torch.tanh(y)
        if how == "scale":
            y = y * 0.5
        if how == "residual":
            y = y + x
        if how == "norm":
            y = F.normalize(y, dim=-1)
        if how == "noise":
            y = y.clamp(-0.1, 0.1)
        return s.o(y)

    yield Rewrite(f"counts-{seed}-{how}-{wide}", modules, one, other, (x,), agrees=False)


# --- other shapes -------------------------------------------------------------------------------------------------------


def shapes(seed: int) -> Iterator[Rewrite]:
    """A mistake that changes a shape: what comes after it is still paired."""
    r = random.Random(seed)
    how = r.choice(("ceil", "padding", "stride", "cut", "pool"))
    x = noise(r, 2, 3, 16, 16)

    def modules() -> dict[str, nn.Module]:
        return {
            "c": nn.Conv2d(3, 8, 3),
            "e": nn.Conv2d(8, 8, 3, padding=1),
            "d": nn.Conv2d(8, 8, 1),
            "o": nn.Linear(8, 4),
        }

    def run(s: Any, x: torch.Tensor, wrong: bool) -> torch.Tensor:
        y = s.c(x).relu()
        y = F.max_pool2d(y, 3, 2, ceil_mode=wrong and how == "ceil", padding=int(wrong and how == "pool"))
        if wrong and how == "padding":
            y = F.conv2d(y, s.e.weight, s.e.bias).tanh()
        elif wrong and how == "stride":
            y = F.conv2d(y, s.e.weight, s.e.bias, stride=2, padding=1).tanh()
        else:
            y = s.e(y).tanh()
        if wrong and how == "cut":
            y = y[:, :, 1:]
        y = s.d(y).relu()
        return s.o(y.mean((2, 3)))

    yield Rewrite(
        f"shape-{seed}-{how}", modules, lambda s, x: run(s, x, False), lambda s, x: run(s, x, True), (x,), agrees=False
    )


def labels(seed: int) -> Iterator[Rewrite]:
    """Labels that are not shifted, or are other ones: the loss is the only candidate."""
    r = random.Random(seed)
    wide, long, kinds = r.choice((8, 12)), r.choice((6, 9)), 12
    how = r.choice(("shift", "roll", "first"))
    x, y = noise(r, 4, long, wide), torch.arange(4 * long).reshape(4, long) * 5 % kinds

    def modules() -> dict[str, nn.Module]:
        return {"a": nn.Linear(wide, wide), "o": nn.Linear(wide, kinds)}

    def run(s: Any, x: torch.Tensor, y: torch.Tensor, wrong: bool) -> torch.Tensor:
        z = s.o(s.a(x).relu())
        if how == "shift":
            z, y = (z, y) if wrong else (z[:, :-1], y[:, 1:])
        if how == "roll" and wrong:
            y = torch.roll(y, 1, 1)
        if how == "first" and wrong:
            y = y[:, :1].expand(4, long)
        return F.cross_entropy(z.flatten(0, 1), y.flatten())

    yield Rewrite(
        f"labels-{seed}-{how}",
        modules,
        lambda s, x, y: run(s, x, y, False),
        lambda s, x, y: run(s, x, y, True),
        (x, y),
        agrees=False,
        region=("cross_entropy", "cross_entropy"),
    )


# --- kernels ------------------------------------------------------------------------------------------------------------


def branches(seed: int) -> Iterator[Rewrite]:
    """Independent branches in another order, at the level of kernels and of functions."""
    r = random.Random(seed)
    wide, count = r.choice((6, 8)), r.choice((2, 3))
    same = r.random() < 0.5
    functions = [torch.tanh, torch.tanh if same else torch.relu, torch.tanh if same else torch.sigmoid][:count]
    order = list(range(count))
    while order == list(range(count)):
        r.shuffle(order)
    x = noise(r, 4, wide)

    def modules() -> dict[str, nn.Module]:
        return {f"m{number}": nn.Linear(wide, wide) for number in range(count)}

    def run(s: Any, x: torch.Tensor, order: list[int]) -> torch.Tensor:
        parts = {number: functions[number](getattr(s, f"m{number}")(x)) for number in order}
        total = parts[0]
        for number in range(1, count):
            total = total * parts[number]
        return total

    for level in ("op", "mix", "api"):
        yield Rewrite(
            f"branches-{seed}-{count}-{same}-{level}",
            modules,
            lambda s, x: run(s, x, list(range(count))),
            lambda s, x: run(s, x, order),
            (x,),
            level=level,
        )


CLASSES: dict[str, Callable[[int], Iterator[Rewrite]]] = {
    "attention": attention,
    "norms": norms,
    "linears": linears,
    "convolutions": convolutions,
    "moves": moves,
    "lone": lone,
    "lone_that_counts": lone_that_counts,
    "shapes": shapes,
    "labels": labels,
    "branches": branches,
}


# --- recording ----------------------------------------------------------------------------------------------------------


def recorded(rewrite: Rewrite, folder: Path, dtype: torch.dtype = torch.float32) -> tuple[Side, Side]:
    """Both sides, run forward and backward."""
    sides = []
    for number, how in enumerate((rewrite.left, rewrite.right)):
        torch.manual_seed(7)
        net = Net(how, rewrite.modules()).to(dtype).eval()
        inputs = [x.to(dtype) if x.is_floating_point() else x for x in rewrite.inputs]
        path = folder / f"{rewrite.name}-{number}"
        with tt.record(path, net, level=rewrite.level, keep="tensor"):
            net(*inputs).float().square().mean().backward()
        sides.append(side_of(path))
    return sides[0], sides[1]


def side_of(path: Path, framework: str | None = None) -> Side:
    journal = tt.open(path).journal(0, 0)
    tensor, (calls,) = split(journal.tensor, sorted(journal.calls(), key=lambda call: call.id))

    def values(number: int) -> np.ndarray | None:
        tensor = journal.tensor(number)
        return None if tensor.payload is None else as_float(journal.array(tensor), tensor.spec.dtype)

    return Side(framework or journal.header.framework, calls, tensor, tuple(journal.parameter_gradients()), values)


def foreign(side: Side) -> Side:
    """The same record under other names: functions of MindSpore, and modules of another nesting."""

    def renamed(call: Call) -> Call:
        site = call.site
        name = site.name
        if site.kind is Kind.MODULE:
            name = f"net.{name}" if name else "net"
        else:
            name = name.replace("torch.nn.functional", "mindspore.ops").replace("torch.", "mindspore.ops.")
        path = f"net.{site.path}" if site.path else "net"
        kind = {"Linear": "Dense"}.get(site.type, site.type)
        return replace(call, site=replace(site, name=name, path=path, type=kind), stack=())

    return replace(side, framework="mindspore", calls=[renamed(call) for call in side.calls])


# --- scoring ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Found:
    """How good an alignment is."""

    asked: int
    missing: tuple[str, ...]
    wrong: tuple[str, ...]
    counting: tuple[str, ...]
    """Calls without partner that cost the verdict."""

    def __str__(self) -> str:
        lines = [f"{self.asked - len(self.missing)} of {self.asked} paired"]
        lines += [f"  wrong    {text}" for text in self.wrong]
        lines += [f"  missing  {text}" for text in self.missing]
        lines += [f"  counts   {text}" for text in self.counting]
        return "\n".join(lines)


def laid(array: np.ndarray, layout: Layout, shape: tuple[int, ...]) -> np.ndarray | None:
    if layout.axes is not None:
        array = array.transpose(layout.axes)
    if layout.reshaped and array.size == math.prod(shape):
        array = array.reshape(shape)
    return array if array.shape == tuple(shape) else None


def score(rewrite: Rewrite, alignment: Alignment, one: Side, two: Side, rounding: float) -> Found:
    """Held against the values where both sides agree, and against the modules' names."""
    wrong, missing, asked = [], [], 0
    paired: dict[int, set[int]] = {}
    inside = {call.id for match in alignment.matches for call in match.left if len(match.left) > 1}
    for match in alignment.matches:
        name = f"{[str(c.site) for c in match.left]} = {[str(c.site) for c in match.right]} ({match.because})"
        names = [{c.site.name.removeprefix("net.") for c in side if c.site.kind is Kind.MODULE} for side in
                 (match.left, match.right)]  # fmt: skip
        if names[0] and names[1] and not names[0] & names[1] and "net" not in names[0] | names[1]:
            wrong.append(f"{name}: other modules")
        for pair in match.tensors:
            paired.setdefault(pair.left, set()).add(pair.right)
            # In 16 bits an activation at zero passes a gradient on one side and not on the other: those go with their tensors.
            if rewrite.agrees and not (pair.part.backward and rounding > ROUNDING[torch.float32]):
                arrays = one.values(pair.left), two.values(pair.right)
                lies = laid(arrays[1].astype(np.float64), pair.layout, arrays[0].shape)
                if lies is None or not _near(arrays[0].astype(np.float64), lies, rounding, pair.part.backward):
                    wrong.append(f"{name}: {pair.part} {pair.left_slot} | {pair.right_slot} {pair.layout}")
    if rewrite.agrees:
        theirs: dict[int, list[int]] = {}
        sorted_right = {
            t: np.sort(two.values(t).astype(np.float64), axis=None) for call in two.calls for t in _outputs(call)
        }
        for t, values in sorted_right.items():
            theirs.setdefault(values.size, []).append(t)
        for call in one.calls:
            if call.site.name.rpartition(".")[2] in _HANDING or call.site.phase == "backward":
                continue
            for t in _outputs(call):
                values = np.sort(one.values(t).astype(np.float64), axis=None)
                if not values.size or values[0] == values[-1]:
                    continue
                same = [o for o in theirs.get(values.size, ()) if _near(values, sorted_right[o], rounding, False)]
                if same:
                    asked += 1
                    if not paired.get(t) and call.id not in inside:
                        missing.append(f"{call.site} {one.tensor(t).spec}")
    else:
        names = [{c.site.name.removeprefix("net."): c for c in side.calls if c.site.kind is Kind.MODULE}
                 for side in (one, two)]  # fmt: skip
        matched = {c.site.name.removeprefix("net.") for m in alignment.matches for c in m.left}
        matched_right = {c.site.name.removeprefix("net.") for m in alignment.matches for c in m.right}
        for name in names[0].keys() & names[1].keys():
            asked += 1
            if name not in matched or name not in matched_right:
                missing.append(name)
    if all(rewrite.region):
        asked += 1
        if not any(
            _includes(match.left, rewrite.region[0]) and _includes(match.right, rewrite.region[1])
            for match in alignment.matches
        ):
            missing.append(f"a region of {rewrite.region}")
    counting = [f"{item.call.site}: {item.because}" for item in (*alignment.only_left, *alignment.only_right) if
                not item.skipped]  # fmt: skip
    return Found(asked, tuple(missing), tuple(wrong), tuple(counting))


_HANDING = frozenset(
    [
        "abs",
        "view",
        "reshape",
        "transpose",
        "permute",
        "contiguous",
        "flatten",
        "to",
        "float",
        "clone",
        "detach",
        "t",
        "T",
        "mT",
        "expand",
        "unsqueeze",
        "squeeze",
        "split",
        "chunk",
        "unbind",
        "__getitem__",
        "repeat_interleave",
        "roll",
        "cat",
        "stack",
    ]
)


def _includes(calls: tuple[Call, ...], wanted: str) -> bool:
    names = [call.site.name.rpartition(".")[2].strip("_").removeprefix("r") for call in calls]
    for name in wanted.split():
        name = name.removeprefix("r")
        if name not in names:
            return False
        names.remove(name)
    return True


def _outputs(call: Call) -> Iterator[int]:
    for _, leaf in leaves(call.output):
        if isinstance(leaf, TensorRef):
            yield leaf.id


def _near(one: np.ndarray, two: np.ndarray, rounding: float, gradient: bool) -> bool:
    finite = np.isfinite(one) & np.isfinite(two)
    if not np.array_equal(np.isfinite(one), np.isfinite(two)):
        return False
    one, two = np.where(finite, one, 0), np.where(finite, two, 0)
    scale = max(float(np.abs(one).max(initial=0)), float(np.abs(two).max(initial=0)), 1e-3 if gradient else 0)
    return bool(np.abs(one - two).max(initial=0) <= rounding * scale)


ROUNDING = {torch.float32: 2e-4, torch.bfloat16: 0.1, torch.float16: 2e-2}
