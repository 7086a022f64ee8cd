"""Classes 11, 12, 14, 15 and 16: arguments, gradients, values without effect, ties, objects as settings."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from .cases import Pair, noise, pairs, whole

# --- 11: arguments --------------------------------------------------------------------------------------------------------


class Answer(nn.Module):
    """Gives a number of Python beside its tensor."""

    def forward(self, x: Tensor, factor: float) -> tuple[Tensor, float]:
        return x.tanh(), factor * len(x)


@pairs(11, "number", "shape", "keyword", "jagged", "mapped", "gradient_mapped", "named", other_number="part",
       other_result="part", other_jagged="part", other_mapped="part", other_argument="part")  # fmt: skip
def arguments(r: random.Random, how: str) -> Pair:
    """Results that are no tensors, jagged tensors, tensors inside of transformations, arguments given in another way."""
    wide = r.choice((4, 6))
    kind = how.removeprefix("other_")

    def parts(way: int) -> dict[str, nn.Module]:
        return {"a": nn.Linear(wide, wide), "o": nn.Linear(wide, 3), "r": Answer()}

    def run(s: Any, x: Tensor, way: int, wrong: bool) -> Any:
        y = s.a(x)
        if kind == "number":
            y, number = s.r(y, 0.75 if wrong else 0.5)
            y = torch.mul(y, number) if way else y * number
        if kind == "result":
            return s.o(y), {"rows": len(x) + wrong}
        if kind == "shape":
            y = y * (float(y.size(-1)) if way else float(y.shape[-1]))
        if kind == "keyword":
            y = torch.clamp(y, min=-0.5, max=0.5) if way else y.clamp(-0.5, 0.5)
        if kind == "argument":
            y = torch.clamp(y, min=-0.5, max=0.25 if wrong else 0.5)
        if kind == "named":
            y = (torch.max(y, dim=-1) if way else y.max(-1)).values[..., None] * y
        if kind == "jagged":
            rows = torch.nested.nested_tensor([x[0, :2], x[1, :3], x[2]], layout=torch.jagged)
            y = y + s.a(rows).values().mul(2.0 if wrong else 1.0).mean(0)
        if kind == "mapped":
            y = torch.func.vmap(lambda v: s.a(v).tanh() * (3.0 if wrong else 1.0))(x)
        if kind == "gradient_mapped":
            y = y * torch.func.grad(lambda v: v.sin().sum())(x)
        return s.o(y)

    places = {"other_number": r"\br\b|mul", "other_argument": "clamp", "other_result": r"rows|^ in $|model"}
    place = places.get(how, "mul|vmap|tanh|linear|add|mean")
    return Pair(parts, run, (noise(r, 3, 4, wide),), place=place, lone=True, backward=kind != "result")


# --- 12: gradients --------------------------------------------------------------------------------------------------------


class Scaled(torch.autograd.Function):
    """Twice its argument; its gradient is `factor` times what comes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return x * 2

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0] * ctx.factor, None


GRADIENTS = {
    "detached": ("detach", "detach"),
    "not_divided": ("div|mul", "div|mul"),
    "scaled_loss": ("mul", "mul"),
    "missing_term": ("add|square|mean|pow", "add|mean|square|pow|term"),
    "custom_factor": ("Scaled|mul", "backward|gradient|factor|Scaled"),
    "no_grad": (r"a\b|linear|tanh|no_grad|weight|bias", "grad"),
    "cut_half": ("detach|getitem|cat", "detach"),
}


@pairs(12, "averaged", "by_hand", "recomputed", "custom", "summed", **dict.fromkeys(GRADIENTS, "part"))
def gradients(r: random.Random, how: str) -> Pair:
    """What only the backward pass shows."""
    wide = r.choice((4, 8))
    rows = r.choice((4, 6))

    def parts(way: int) -> dict[str, nn.Module]:
        return {"a": nn.Linear(wide, wide), "b": nn.Linear(wide, wide), "o": nn.Linear(wide, 3)}

    def run(s: Any, x: Tensor, way: int, wrong: bool) -> Tensor:
        if how == "no_grad" and wrong:
            with torch.no_grad():
                y = s.a(x).tanh()
        else:
            y = s.a(x).tanh()
        if how in ("custom", "custom_factor"):
            y = Scaled.apply(y, 1.0 if wrong else 2.0) if way or how == "custom_factor" else y * 2
        middle = s.b(y)
        if how == "recomputed" and way:
            middle = checkpoint(s.b, y, use_reentrant=False)
        if how == "cut_half" and wrong:
            middle = torch.cat((middle[:, :2].detach(), middle[:, 2:]), 1)
        elif how == "cut_half":
            middle = torch.cat((middle[:, :2], middle[:, 2:]), 1)
        z = s.o(middle.detach() if wrong and how == "detached" else middle)
        loss = z.square().mean()
        if how == "by_hand" and way:
            loss = (z * z).mean()
        if how == "averaged" and way:
            loss = z.square().sum() / z.numel()
        if how == "summed":
            loss = sum(part.square().sum() for part in z.split(1)) / z.numel() if way else loss
        if how == "not_divided" and not wrong:
            loss = loss / 4
        if how == "scaled_loss":
            loss = loss * (8.0 if wrong else 4.0)
        if how in ("missing_term", "detached"):
            loss = loss if wrong and how == "missing_term" else loss + middle.square().mean()
        return loss

    place, told = GRADIENTS.get(how, ("", ""))
    return Pair(parts, run, (noise(r, rows, wide),), place=place, told=told, lone=True)


# --- 14: without effect ---------------------------------------------------------------------------------------------------

LEAST = {"f32": -3.4e38, "half": -65504.0, "small": -1e4, "integer": -9.2e18}
EFFECTIVE = {
    "other_mask": "triu|masked_fill|softmax|ones",
    "scale_behind": "mul",
    "layer_dropped": "add|tanh|linear|rand|lt",
    "weak_mask": "masked_fill|softmax|where",
}


HARMLESS = (*LEAST, "added", "where", "layer_drop", "padded", "argmax")


@pairs(14, **dict.fromkeys(HARMLESS, "harmless"), **dict.fromkeys(EFFECTIVE, "part"))
def effects(r: random.Random, how: str) -> Pair:
    """Values that only feed a softmax, a comparison or a selection."""
    wide, long = r.choice((4, 8)), r.choice((5, 6))

    def parts(way: int) -> dict[str, nn.Module]:
        return {
            "q": nn.Linear(wide, wide),
            "k": nn.Linear(wide, wide),
            "v": nn.Linear(wide, wide),
            "o": nn.Linear(wide, 3),
        }

    def run(s: Any, x: Tensor, way: int, wrong: bool) -> Tensor:
        q, k, v = s.q(x), s.k(x), s.v(x)
        scores = torch.matmul(q, k.transpose(1, 2)) * (wide**-0.5 * (1.5 if wrong and how == "scale_behind" else 1.0))
        hidden = torch.ones(long, long, dtype=torch.bool).triu(2 if wrong and how == "other_mask" else 1)
        least = float("-inf")
        if wrong and how in (*LEAST, "added", "where"):
            least = max(LEAST.get(how, -1e30), torch.finfo(scores.dtype).min)
        if wrong and how == "weak_mask":
            least = -1.0
        if how == "added" and way:
            scores = scores + torch.zeros(long, long, dtype=scores.dtype).masked_fill(hidden, least)
        elif how == "where" and way:
            scores = torch.where(hidden, torch.full((), least, dtype=scores.dtype), scores)
        else:
            scores = scores.masked_fill(hidden, least)
        y = torch.matmul(torch.softmax(scores, -1), v)
        if how in ("layer_drop", "layer_dropped"):
            drawn = torch.rand((), generator=torch.Generator().manual_seed(int(wrong)))
            if drawn < (1.0 if wrong and how == "layer_dropped" else 0.0):
                return s.o(y)
            y = y + v.tanh()
        if how == "padded":
            junk = torch.full_like(y, 3.0 if wrong else 5.0)
            y = torch.where(torch.ones(long, 1, dtype=torch.bool), y, junk)
        if how == "argmax":
            best = (scores * (2.0 if wrong else 1.0)).argmax(-1)
            y = y + F.one_hot(best, long).to(y.dtype) @ v
        return s.o(y)

    return Pair(parts, run, (noise(r, 2, long, wide),), place=EFFECTIVE.get(how, ""), lone=True)


# --- 15: ties and cut gradients -------------------------------------------------------------------------------------------

TIES = {
    "untied": "tied|shared|share",
    "frozen": "gradient|requires_grad|trained",
    "unused_bias": "bias",
    "zero_buffer": "zero|0",
    "unused_gain": "weight|gain|mul",
}


@pairs(15, "tied", "copied", "buffer", "both_frozen", **dict.fromkeys(TIES, "part"))
def ties(r: random.Random, how: str) -> Pair:
    """Weights that are shared, never used, or without gradient on one side only; buffers that were never loaded."""
    wide, kinds = r.choice((4, 8)), r.choice((6, 9))

    def parts(way: int) -> dict[str, nn.Module]:
        held: dict[str, Any] = {"e": nn.Embedding(kinds, wide), "a": nn.Linear(wide, wide), "n": nn.BatchNorm1d(wide)}
        held["h"] = nn.Linear(wide, kinds, bias=False)
        held["h"].weight = held["e"].weight
        with torch.no_grad():
            held["n"].weight.add_(torch.randn(wide))
            held["n"].running_mean.add_(torch.randn(wide))
        held["n"].eval()
        if how == "both_frozen":
            held["a"].weight.requires_grad_(False)
        return held

    def prepare(s: Any, wrong: bool) -> None:
        if wrong and how == "untied":
            s.h.weight = nn.Parameter(s.e.weight.detach().clone())
        if wrong and how == "frozen":
            s.a.weight.requires_grad_(False)
        if wrong and how == "zero_buffer":
            s.n.running_mean.zero_()

    def run(s: Any, ids: Tensor, way: int, wrong: bool) -> Tensor:
        y = s.e(ids)
        bias = None if wrong and how == "unused_bias" else s.a.bias
        y = F.linear(y, s.a.weight, bias).tanh() if how == "unused_bias" else s.a(y).tanh()
        if how in ("buffer", "zero_buffer", "unused_gain"):
            gain = None if wrong and how == "unused_gain" else s.n.weight
            z = y.transpose(1, 2)
            z = F.batch_norm(z, s.n.running_mean, s.n.running_var, gain, s.n.bias) if how == "unused_gain" else s.n(z)
            y = z.transpose(1, 2)
        if how == "copied" and way:
            y = y.clone()
        logits = F.linear(y, s.e.weight) if how == "tied" and way else s.h(y)
        return F.cross_entropy(logits.flatten(0, 1), ids.roll(1, 1).flatten())

    places = {"untied": r"\be\b|\bh\b|embedding|linear|weight", "frozen": r"\ba\b|linear|weight", "unused_bias": "linear",
              "zero_buffer": r"\bn\b|batch_norm|running_mean", "unused_gain": "batch_norm"}  # fmt: skip
    inputs = (whole(r, kinds, 3, 5),)
    return Pair(parts, run, inputs, place=places.get(how, ""), told=TIES.get(how, ""), lone=True, prepare=prepare)


# --- 16: objects as settings ----------------------------------------------------------------------------------------------


@dataclass
class Config:
    """Settings of a layer, as one code base has them."""

    width: int
    eps: float = 1e-5
    dropout: float = 0.0
    unused: str = "one"


@dataclass
class Settings:
    """The same, as another has them."""

    width: int
    eps: float = 1e-5
    dropout: float = 0.0
    unused: str = "another"
    extra: tuple[int, ...] = (1, 2)


class Configured(nn.Module):
    """A layer that is made from an object, or from a dict, and that keeps it."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        self.width, self.eps = (
            (config["width"], config["eps"]) if isinstance(config, dict) else (config.width, config.eps)
        )
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, self.width))
        self.bias = nn.Parameter(torch.linspace(-0.5, 0.5, self.width))

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, (self.width,), self.weight, self.bias, self.eps)


@pairs(
    16,
    "class_path",
    "unused_fields",
    "dictionary",
    "renamed",
    "subclass",
    eps_beside="part",
    weight_beside="part",
    activation_beside="part",
)
def settings(r: random.Random, how: str) -> Pair:
    """Configurations that differ in class or in fields that nobody reads, alone or beside a real mistake."""
    wide = r.choice((6, 8))

    def config(way: int, eps: float) -> Any:
        if not way:
            return Config(wide, eps)
        if how == "dictionary":
            return {"width": wide, "eps": eps, "unused": "a third"}
        return Config(wide, eps, 0.1, "other") if how == "unused_fields" else Settings(wide, eps)

    def parts(way: int) -> dict[str, nn.Module]:
        kind = type("Renamed", (Configured,), {}) if how in ("renamed", "subclass") and way else Configured
        return {
            "a": nn.Linear(wide, wide),
            "n": kind(config(way, 1e-5)),
            "b": nn.Linear(wide, wide),
            "o": nn.Linear(wide, 3),
        }

    def prepare(s: Any, wrong: bool) -> None:
        if wrong and how == "eps_beside":
            s.n.eps = 0.1

    def run(s: Any, x: Tensor, way: int, wrong: bool) -> Tensor:
        y = s.n(s.a(x))
        weight = s.b.weight * 1.25 if wrong and how == "weight_beside" else s.b.weight * 1.0
        y = F.linear(y, weight, s.b.bias) if how == "weight_beside" else s.b(y)
        y = F.gelu(y, approximate="tanh" if wrong and how == "activation_beside" else "none")
        return s.o(y)

    place, told = {
        "eps_beside": ("layer_norm|n in", "eps"),
        "weight_beside": ("mul", ""),
        "activation_beside": ("gelu", "approximate"),
    }.get(how, ("", ""))
    return Pair(parts, run, (noise(r, 7, wide) * 3,), place=place, told=told, prepare=prepare)
