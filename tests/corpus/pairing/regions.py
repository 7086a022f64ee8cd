"""Classes 6 to 10: fused against plain, biases apart, kernels, the only candidate, runs that meet again."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .cases import Pair, noise, pairs, whole

# --- 6: regions between anchors -------------------------------------------------------------------------------------------

ATTENTION = {
    "mask": r"mask|causal",
    "scale": r"scal",
    "window": r"mask|window|masked_fill|softmax|attention",
    "repeat": r"repeat",
    "exchanged": r"exchang|swap|matmul|attention",
}
INSIDE = "scaled_dot_product_attention|matmul|softmax|masked_fill|repeat|mul|transpose"


@pairs(6, "plain", "causal", "added", "grouped", "scaled_query", **dict.fromkeys(ATTENTION, "part"))
def attention(r: random.Random, how: str) -> Pair:
    """Attention in one call and written out, and the mistakes that are made in it."""
    heads, wide = r.choice((2, 4)), r.choice((4, 8))
    groups = 2 if how in ("grouped", "repeat") else heads
    heads = 4 if how in ("grouped", "repeat") else heads
    long, full = r.choice((5, 7, wide)), heads * wide
    masked = how in ("causal", "added", "mask") or r.random() < 0.4

    def parts(way: int) -> dict[str, nn.Module]:
        return {
            "n": nn.LayerNorm(full),
            "q": nn.Linear(full, full),
            "k": nn.Linear(full, groups * wide),
            "v": nn.Linear(full, groups * wide),
            "o": nn.Linear(full, full),
        }

    def run(s: Any, x: Tensor, way: int, wrong: bool) -> Tensor:
        b, t, _ = x.shape
        y = s.n(x)
        q, k, v = (
            getattr(s, name)(y).view(b, t, count, wide).transpose(1, 2)
            for name, count in (("q", heads), ("k", groups), ("v", groups))
        )
        if groups != heads:
            times = heads // groups
            k, v = (
                (z.repeat(1, times, 1, 1) if wrong and how == "repeat" else z.repeat_interleave(times, 1))
                for z in (k, v)
            )
        keep = torch.ones(t, t, dtype=torch.bool).tril()
        if not way:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=masked)
        else:
            if wrong and how == "exchanged":
                q, k = k, q
            factor = 1.0 if wrong and how == "scale" else wide**-0.5
            if how == "scaled_query":
                scores = torch.matmul(q * factor, k.transpose(-2, -1))
            else:
                scores = torch.matmul(q, k.transpose(-2, -1)) * factor
            least = torch.finfo(scores.dtype).min
            if masked and not (wrong and how == "mask"):
                if how == "added":
                    scores = scores + torch.zeros(t, t, dtype=scores.dtype).masked_fill(~keep, -1e4)
                else:
                    scores = scores.masked_fill(~keep, least)
            if wrong and how == "window":
                scores = scores.masked_fill(~torch.ones(t, t, dtype=torch.bool).triu(-1), least)
            y = torch.matmul(torch.softmax(scores, -1), v)
        return s.o(y.transpose(1, 2).reshape(b, t, full))

    return Pair(parts, run, (noise(r, 2, long, full),), place=INSIDE, told=ATTENTION.get(how, ""), lone=True)


BY_HAND = {"eps": r"eps|layer_norm|rms_norm", "tanh_gelu": r"approximate|gelu", "no_gate": r"silu|sigmoid"}


@pairs(6, "layer_norm", "rms_norm", "gelu", "silu", "cross_entropy", **dict.fromkeys(BY_HAND, "part"))
def by_hand(r: random.Random, how: str) -> Pair:
    """Norms, activations and losses in one call and by hand."""
    wide = r.choice((6, 8))
    kind = {"eps": r.choice(("layer_norm", "rms_norm")), "tanh_gelu": "gelu", "no_gate": "silu"}.get(how, how)

    def parts(way: int) -> dict[str, nn.Module]:
        norm = nn.RMSNorm(wide, eps=1e-5) if kind == "rms_norm" else nn.LayerNorm(wide)
        with torch.no_grad():
            for parameter in norm.parameters():
                parameter.add_(torch.randn_like(parameter))
        return {"a": nn.Linear(wide, wide), "n": norm, "b": nn.Linear(wide, 5)}

    def run(s: Any, x: Tensor, labels: Tensor, way: int, wrong: bool) -> Tensor:
        y = s.a(x)
        eps = 0.3 if wrong and how == "eps" else 1e-5
        if kind in ("layer_norm", "rms_norm") and not way:
            y = s.n(y)
        elif kind == "layer_norm":
            centred = y - y.mean(-1, keepdim=True)
            y = centred / torch.sqrt((centred**2).mean(-1, keepdim=True) + eps) * s.n.weight + s.n.bias
        elif kind == "rms_norm":
            y = s.n.weight * (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + eps))
        elif kind == "gelu":
            if wrong:
                y = 0.5 * y * (1 + torch.tanh(0.7978845608 * (y + 0.044715 * y**3)))
            else:
                y = 0.5 * y * (1 + torch.erf(y * 0.7071067811865476)) if way else F.gelu(y)
        elif kind == "silu":
            y = (torch.sigmoid(y) if wrong else y * torch.sigmoid(y)) if way else F.silu(y)
        y = s.b(y.tanh())
        if kind == "cross_entropy":
            if way:
                return -F.log_softmax(y, -1).gather(1, labels[:, None]).squeeze(1).mean()
            return F.cross_entropy(y, labels)
        return y

    places = {
        "eps": "norm|mean|sqrt|add|mul|div|pow|sub",
        "tanh_gelu": "gelu|tanh|mul|erf|pow|add",
        "no_gate": "silu|sigmoid",
    }
    inputs = noise(r, 7, wide), whole(r, 5, 7)
    return Pair(parts, run, inputs, place=places.get(how, ""), told=BY_HAND.get(how, ""), lone=True)


# --- 7: the bias that stayed alone ----------------------------------------------------------------------------------------


@pairs(7, "large", "small", "zeros", "functional", "flat", "conv", "conv_small", forgotten="part", twice="part",
       conv_forgotten="part", negated="part")  # fmt: skip
def bias(r: random.Random, how: str) -> Pair:
    """A layer with its bias, and a product to which the bias is added."""
    wide, out = r.choice((8, 12)), r.choice((6, 8))
    factor = {"small": 1e-3, "conv_small": 1e-3, "zeros": 0.0}.get(how, 1.0)

    def parts(way: int) -> dict[str, nn.Module]:
        held: dict[str, nn.Module] = {"a": nn.Linear(wide, wide), "b": nn.Linear(wide, out), "c": nn.Linear(out, 3)}
        held["d"] = nn.Conv1d(wide, out, 3, padding=1)
        with torch.no_grad():
            held["b"].bias.mul_(factor)
            held["d"].bias.mul_(factor)
        return held

    def run(s: Any, x: Tensor, way: int, wrong: bool) -> Tensor:
        y = s.a(x).relu()
        if how.startswith("conv"):
            z = y.transpose(1, 2)
            if way:
                z = F.conv1d(z, s.d.weight, None, padding=1)
                z = z if wrong else z + s.d.bias[:, None]
            else:
                z = s.d(z)
            return s.c(z.transpose(1, 2).tanh())
        if not way:
            return s.c(s.b(y).tanh())
        if how == "functional":
            y = F.linear(y, s.b.weight)
        elif how == "flat":
            y = y.reshape(-1, wide) @ s.b.weight.T
        else:
            y = torch.matmul(y, s.b.weight.t())
        if wrong and how == "negated":
            y = y - s.b.bias
        elif not (wrong and how == "forgotten"):
            y = y + s.b.bias
        if wrong and how == "twice":
            y = y + s.b.bias
        return s.c(y.reshape(*x.shape[:-1], out).tanh())

    return Pair(
        parts, run, (noise(r, 2, 5, wide),), place="linear|matmul|conv1d|add|sub", told="bias|add|sub", lone=True
    )


# --- 8: level op ----------------------------------------------------------------------------------------------------------


@pairs(8, "different", "alike", "three", "residual", other_function="part", other_scale="part")
def branches(r: random.Random, how: str) -> Pair:
    """Independent branches in another order, at the level of kernels."""
    wide, count = r.choice((6, 8)), 3 if how == "three" or r.random() < 0.5 else 2
    functions = [torch.tanh] * 3 if how == "alike" else [torch.tanh, torch.relu, torch.sigmoid]
    order = list(range(count))
    while order == sorted(order):
        r.shuffle(order)

    def parts(way: int) -> dict[str, nn.Module]:
        return {f"m{number}": nn.Linear(wide, wide) for number in range(count)} | {"o": nn.Linear(wide, 3)}

    def run(s: Any, x: Tensor, way: int, wrong: bool) -> Tensor:
        made = {}
        for number in order if way else range(count):
            function: Callable[[Tensor], Tensor] = functions[number]
            if wrong and number == 1 and how == "other_function":
                function = torch.nn.functional.softsign
            y = getattr(s, f"m{number}")(x)
            if wrong and number == 1 and how == "other_scale":
                y = y * 1.5
            made[number] = function(y)
        total = made[0]
        for number in range(1, count):
            total = total * made[number] if how != "residual" else total + made[number]
        return s.o(total)

    place = "relu|abs|div|add|mul|threshold|softsign"
    return Pair(parts, run, (noise(r, 4, wide),), level="op", place=place, lone=True)


@pairs(8, "foreach", "fused", "lstm", "nested_lstm", beta="part", rate="part")
def kernels(r: random.Random, how: str) -> Pair:
    """Optimizers and recurrent layers, whose kernels are many on one side and one on the other."""
    wide = r.choice((4, 6))
    rate = r.choice((0.01, 0.05))
    # Not SGD where it is fused: PyTorch's kernel leaves 16 bits as they are, from 16 elements on, and that is told rightly.
    kinds = [torch.optim.Adam, torch.optim.AdamW, *([] if how in ("fused", "beta") else [torch.optim.SGD])]
    kind = r.choice(kinds)

    def parts(way: int) -> dict[str, nn.Module]:
        return {"a": nn.Linear(wide, wide), "o": nn.Linear(wide, 3), "l": nn.LSTM(wide, wide, batch_first=True)}

    def cells(s: Any, x: Tensor) -> Tensor:
        h = c = x.new_zeros(x.shape[0], wide)
        results = []
        for t in range(x.shape[1]):
            gates = F.linear(x[:, t], s.l.weight_ih_l0, s.l.bias_ih_l0) + F.linear(h, s.l.weight_hh_l0, s.l.bias_hh_l0)
            i, f, g, o = gates.chunk(4, -1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            results.append(h)
        return torch.stack(results, 1)

    def run(s: Any, x: Tensor, way: int, wrong: bool) -> Tensor:
        y = s.a(x).tanh()
        if "lstm" in how:
            y = cells(s, y) if way else s.l(y)[0]
        # A scaled loss: in f16 squares of small gradients are nothing, and what kernels for one tensor make of it is told rightly.
        return s.o(y).square().mean() * (64 if how == "fused" else 1)

    def optimizer(parameters: Any, way: int, wrong: bool) -> torch.optim.Optimizer:
        options: dict[str, Any] = {"lr": rate * 1.5 if wrong and how == "rate" else rate}
        if kind is not torch.optim.SGD:
            options["betas"] = (0.9, 0.99 if wrong and how == "beta" else 0.999)
        options["foreach"] = bool(way)
        if how == "fused":
            options["eps"] = (
                1e-4  # 1e-8 is nothing in f16: kernels for one tensor leave infinities where the fused one does not
            )
            options |= {"foreach": False, "fused": True} if way else {}
        return kind(parameters, **options)

    level = "mix" if how == "nested_lstm" else "op"
    return Pair(
        parts,
        run,
        (noise(r, 3, 4, wide),),
        level=level,
        optimizer=None if "lstm" in how else optimizer,
        steps=1 if "lstm" in how else 2,
        place="step|add|mul|lerp|addcmul|addcdiv|sqrt|div|foreach",
    )


@pairs(8, "slice", "rows", "mask", other_factor="part", other_place="part", one_more="part")
def writes(r: random.Random, how: str) -> Pair:
    """Writes through views, which no kernel puts out: what is read afterwards is the tensor that the view is of."""
    wide, long = r.choice((6, 8)), r.choice((5, 7))

    def parts(way: int) -> dict[str, nn.Module]:
        return {"a": nn.Linear(wide, wide), "o": nn.Linear(wide, 3)}

    def run(s: Any, x: Tensor, way: int, wrong: bool) -> Tensor:
        y = s.a(x).tanh()
        if how == "slice" and way:
            y = torch.cat((y[:, :1], torch.zeros_like(y[:, 1:3]), y[:, 3:]), 1)
        elif how == "slice":
            y = y.clone()
            y[:, 1:3] = 0
        if how == "rows" and way:
            whole = torch.zeros_like(y)
            for place in range(long):
                whole[:, place] = torch.sigmoid(y[:, place])
            y = whole
        elif how == "rows":
            y = torch.sigmoid(y)
        if how == "mask":
            keep = torch.ones(long, 1, dtype=y.dtype)
            if way:
                keep[2:] = 0
            else:
                keep = (torch.arange(long) < 2).to(y.dtype)[:, None]
            y = y * keep
        if how in EFFECTIVE_WRITES:
            y = y.clone()
            y[:, 2 if wrong and how == "other_place" else 1].mul_(3 if wrong and how == "other_factor" else 2)
            if wrong and how == "one_more":
                y[:, 3].neg_()
        return s.o(y)

    # The backward pass of a write goes through `as_strided`, of memory whose strides no record has: that it cannot be told is told.
    return Pair(
        parts,
        run,
        (noise(r, 2, long, wide),),
        level="op",
        place=EFFECTIVE_WRITES.get(how, ""),
        lone=True,
        backward=how != "rows",
    )


EFFECTIVE_WRITES = {"other_factor": "mul", "other_place": "mul|select", "one_more": "neg"}


# --- 9: the only candidate ------------------------------------------------------------------------------------------------

CANDIDATES = {
    "shift": "cross_entropy|getitem|flatten",
    "roll": "roll|cross_entropy",
    "first": "cross_entropy|expand|getitem",
    "target": "mse_loss|roll",
    "indices": "embedding|roll",
    "weight": "cross_entropy",
    "gathered": "gather|index|roll",
}


@pairs(9, "flat", "permuted", **dict.fromkeys(CANDIDATES, "part"))
def candidates(r: random.Random, how: str) -> Pair:
    """Two calls of one operation that take the same tensor, and another operand that differs."""
    wide, long, kinds = r.choice((8, 12)), r.choice((6, 9)), 12

    def parts(way: int) -> dict[str, nn.Module]:
        return {"e": nn.Embedding(kinds, wide), "a": nn.Linear(wide, wide), "o": nn.Linear(wide, kinds)}

    def run(s: Any, x: Tensor, y: Tensor, way: int, wrong: bool) -> Tensor:
        if how == "indices":
            x = x + s.e(torch.roll(y, 1 if wrong else 2, 1))
        z = s.o(s.a(x).relu())
        if how == "target":
            return F.mse_loss(z.tanh(), torch.roll(z.detach(), 1 if wrong else 2, 1))
        if how == "gathered":
            return z.log_softmax(-1).gather(2, torch.roll(y, 1 if wrong else 2, 1)[..., None]).mean().neg()
        if how == "shift" and not wrong:
            z, y = z[:, :-1], y[:, 1:]
        if how == "roll" and wrong:
            y = torch.roll(y, 1, 1)
        if how == "first" and wrong:
            y = y[:, :1].expand(4, long)
        if how == "permuted" and way:
            return F.cross_entropy(z.transpose(1, 2), y)
        if how == "flat" and way:
            return F.cross_entropy(z.reshape(-1, kinds), y.reshape(-1))
        weight = None
        if how == "weight":
            weight = torch.linspace(0.5, 2.0 if wrong else 1.5, kinds, dtype=z.dtype)
        return F.cross_entropy(z.flatten(0, 1), y.flatten(), weight)

    inputs = noise(r, 4, long, wide), whole(r, kinds, 4, long)
    return Pair(parts, run, inputs, place=CANDIDATES.get(how, "") + "|linspace", lone=True)


# --- 10: runs that meet again ---------------------------------------------------------------------------------------------

MEETING = {
    "shifted_softmax": r"Without effect[^\n]*add",
    "scaled_norm": r"Without effect[^\n]*mul",
    "rotated": r"Without effect[^\n]*(arange|mul|cos|sin)",
    "sorted": r"Without effect[^\n]*roll",
    "dead": r"Without effect[^\n]*mul",
}


@pairs(10, "same", **dict.fromkeys(MEETING, "remark"), shifted_sigmoid="part", scaled_linear="part")
def meeting(r: random.Random, how: str) -> Pair:
    """A difference that is gone later: where it arises is told, and it costs nothing if no result shows it."""
    wide, long = r.choice((4, 8)), r.choice((5, 6))

    def parts(way: int) -> dict[str, nn.Module]:
        return {"a": nn.Linear(wide, wide), "b": nn.Linear(wide, wide), "o": nn.Linear(wide, 3)}

    def rotated(y: Tensor, start: int) -> Tensor:
        rates = 10000.0 ** (-torch.arange(0, wide, 2, dtype=torch.float64) / wide)
        angles = torch.arange(start, start + long, dtype=torch.float64)[:, None] * rates[None]
        cos, sin = angles.cos().to(y.dtype), angles.sin().to(y.dtype)
        one, two = y.chunk(2, -1)
        return torch.cat((one * cos - two * sin, one * sin + two * cos), -1)

    def run(s: Any, x: Tensor, way: int, wrong: bool) -> Tensor:
        y, z = s.a(x), s.b(x)
        if how in ("shifted_softmax", "shifted_sigmoid"):
            y = y + (0.5 if wrong else 0.25)
            y = torch.softmax(y, -1) if how == "shifted_softmax" else torch.sigmoid(y)
        if how in ("scaled_norm", "scaled_linear"):
            y = y * (2.0 if wrong else 4.0)
            y = F.normalize(y, dim=-1) if how == "scaled_norm" else y.tanh()
        if how == "rotated":
            q, k = (rotated(part, 3 if wrong else 0) for part in (y, z))
            y = torch.softmax(q @ k.transpose(1, 2), -1) @ z
        if how == "sorted":
            y = torch.roll(y, 1 if wrong else 2, 1)
            y = torch.sort(y, 1).values
        if how == "dead":
            unused = torch.tanh(y * (2.0 if wrong else 1.0))
            y = y + 0.0 * unused
        return s.o(y)

    place = "add|mul" if how.startswith(("shifted", "scaled")) else ""
    return Pair(parts, run, (noise(r, 2, long, wide),), place=place, told=MEETING.get(how, ""))
