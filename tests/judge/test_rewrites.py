"""One network, written in two ways: right rewrites agree, and a mistake in one of them is told."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from .recorded_pairs import Net, compared, rand

Forward = Callable[..., torch.Tensor]
Parts = Callable[[], dict[str, nn.Module]]


def of_two(
    tmp_path: Path,
    parts: Parts,
    left: Forward,
    right: Forward,
    data: torch.Tensor,
    dtype: torch.dtype = torch.float32,
    trained: bool = True,
) -> Any:
    """Comparison of two forward passes of the same modules, with their gradients if `trained`."""

    def run(side: int, record: Callable[..., Any]) -> None:
        net = Net((left, right)[side], **parts()).to(dtype)
        with record(net):
            result = net(data.to(dtype)).float()
            if trained:
                (result * result + result).mean().backward()

    return compared(tmp_path, run)


def projections() -> dict[str, nn.Module]:
    return {name: nn.Linear(16, 16) for name in "qkvo"}


def heads(s: Any, x: torch.Tensor) -> list[torch.Tensor]:
    return [part(x).view(*x.shape[:2], 2, 8) for part in (s.q, s.k, s.v)]


def attention(s: Any, x: torch.Tensor) -> torch.Tensor:
    q, k, v = (part.transpose(1, 2) for part in heads(s, x))
    return s.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape))


def einsums(divisor: float) -> Forward:
    def forward(s: Any, x: torch.Tensor) -> torch.Tensor:
        q, k, v = heads(s, x)
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / divisor
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        weights = scores.masked_fill(mask, torch.finfo(scores.dtype).min).softmax(-1)
        return s.o(torch.einsum("bhqk,bkhd->bqhd", weights, v).reshape(x.shape))

    return forward


def decoding(s: Any, x: torch.Tensor) -> torch.Tensor:
    """Four tokens at once, then one by one, with the keys and values of those before."""
    made: list[torch.Tensor] = []
    held: list[torch.Tensor] = []
    for chunk in (x[:, :4], *x[:, 4:].split(1, 1)):
        q, k, v = (part.transpose(1, 2) for part in heads(s, chunk))
        held = [torch.cat(pair, 2) for pair in zip(held, (k, v), strict=True)] if held else [k, v]
        found = F.scaled_dot_product_attention(q, *held, is_causal=not made)
        made.append(s.o(found.transpose(1, 2).reshape(chunk.shape)))
    return torch.cat(made, 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_decoding_with_a_cache_is_one_pass_over_all_tokens(tmp_path: Path, dtype: torch.dtype) -> None:
    """The cache holds recorded keys, rounded; the other side recomputes them: both must begin with the same values."""
    result = of_two(tmp_path, projections, attention, decoding, rand(2, 8, 16), dtype, trained=False)
    assert result.code == 0


def test_another_scale_is_told_in_bfloat16_though_the_heads_lie_in_another_order(tmp_path: Path) -> None:
    assert of_two(tmp_path, projections, attention, einsums(4.0), rand(3, 7, 16), torch.bfloat16).code == 1


def test_attention_by_einsum_agrees_in_bfloat16(tmp_path: Path) -> None:
    assert of_two(tmp_path, projections, attention, einsums(math.sqrt(8)), rand(3, 7, 16), torch.bfloat16).code == 0


def chain(s: Any, x: torch.Tensor) -> torch.Tensor:
    return s.b(F.relu(s.a(x)))


def with_other_weights(change: Callable[[torch.Tensor], torch.Tensor]) -> Parts:
    """Modules whose weights are changed on the right, the second time that they are made."""
    made: list[int] = []

    def parts() -> dict[str, nn.Module]:
        modules = {"a": nn.Linear(64, 96), "b": nn.Linear(96, 32)}
        if made:
            with torch.no_grad():
                for module in modules.values():
                    module.weight.copy_(change(module.weight))
        made.append(1)
        return modules

    return parts


def test_a_factor_on_all_weights_is_told_though_each_is_within_its_rounding(tmp_path: Path) -> None:
    parts = with_other_weights(lambda weight: weight * 1.003)
    result = of_two(tmp_path, parts, chain, chain, rand(9, 64), torch.bfloat16)
    assert result.code == 1
    assert re.search(r"1\.00(3|299)\d* times the left's, but for rounding", str(result))


def test_weights_that_were_rounded_toward_zero_are_a_remark(tmp_path: Path) -> None:
    def cut(weight: torch.Tensor) -> torch.Tensor:
        return (weight.view(torch.int32) & -65536).view(torch.float32)

    result = of_two(tmp_path, with_other_weights(cut), chain, chain, rand(9, 64), torch.bfloat16)
    assert result.code == 0
    assert any("rounded toward zero, the left's to the nearest" in note for note in result.remarks)


def normed() -> dict[str, nn.Module]:
    modules = {"i": nn.Linear(16, 32), "n": nn.LayerNorm(32), "o": nn.Linear(32, 8)}
    with torch.no_grad():
        modules["n"].weight.copy_(1 + 0.3 * rand(32, seed=7))
    return modules


def written_out(eps: float) -> Forward:
    def forward(s: Any, x: torch.Tensor) -> torch.Tensor:
        h = s.i(x)
        f = h.float()
        f = (f - f.mean(-1, keepdim=True)) * torch.rsqrt(f.var(-1, keepdim=True, correction=0) + eps)
        return s.o((f * s.n.weight.float() + s.n.bias.float()).to(h.dtype))

    return forward


@pytest.mark.parametrize("turned", [False, True], ids=["left", "right"])
@pytest.mark.parametrize(("eps", "code"), [(1e-5, 0), (1e-3, 1)])
def test_a_norm_written_out_in_float32_in_a_bfloat16_run(tmp_path: Path, eps: float, code: int, turned: bool) -> None:
    """Kernels of bfloat16 compute in float32 inside. Another epsilon is seen, finer than the run's rounding as it is."""
    both = [lambda s, x: s.o(s.n(s.i(x))), written_out(eps)]
    left, right = reversed(both) if turned else both
    assert of_two(tmp_path, normed, left, right, rand(3, 5, 16), torch.bfloat16).code == code


class Transposed(nn.Module):
    """A linear layer whose weight lies the other way, as GPT-2 has it."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(linear.weight.detach().T.clone()), linear.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.addmm(self.bias, x, self.weight)


@pytest.mark.parametrize("turned", [False, True], ids=["left", "right"])
def test_a_square_weight_lies_otherwise_in_another_layer(tmp_path: Path, turned: bool) -> None:
    def run(side: int, record: Callable[..., Any]) -> None:
        layer = nn.Linear(16, 16)
        net = Net(lambda s, x: F.gelu(s.a(x)), a=layer if side == turned else Transposed(layer))
        with record(net):
            net(rand(5, 16)).sum().backward()

    assert compared(tmp_path, run).code == 0


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda s, x: F.layer_norm(x, (16,), s.n.weight, s.n.bias, 0.0), "eps: 1e-05 | 0.0"),
        (lambda s, x: F.layer_norm(x, (16,), s.n.weight, s.n.bias, 1e-7), "eps: 1e-05 | 1e-07"),
        # Nearly what another epsilon gives, and not quite: nothing is proven by coming near.
        (lambda s, x: s.n(x) * (1 - 4.999e-6), "only the right multiplies by"),
        (lambda s, x: s.n(x * 1.0).softmax(-1) @ torch.eye(16) * 16 - 1, "none of the changes"),
    ],
)
def test_a_cause_explains_all_of_a_difference(tmp_path: Path, change: Forward, told: str) -> None:
    result = of_two(tmp_path, lambda: {"n": nn.LayerNorm(16)}, lambda s, x: s.n(x), change, rand(8, 16))
    assert result.code == 1
    assert told in str(result)


def normalised(biased: bool) -> Forward:
    """Batch norm in training, written out, with its running averages."""

    def forward(s: Any, x: torch.Tensor) -> torch.Tensor:
        mean, variance, many = x.mean(0), x.var(0, correction=0), len(x)
        with torch.no_grad():
            s.n.running_mean.mul_(0.9).add_(mean * 0.1)
            s.n.running_var.mul_(0.9).add_(variance * (1 if biased else many / (many - 1)) * 0.1)
            s.n.num_batches_tracked.add_(1)
        return (x - mean) / torch.sqrt(variance + 1e-5) * s.n.weight + s.n.bias

    return forward


@pytest.mark.parametrize("turned", [False, True], ids=["left", "right"])
@pytest.mark.parametrize("biased", [False, True])
def test_running_averages_are_compared_whoever_computes_them(tmp_path: Path, biased: bool, turned: bool) -> None:
    both: list[Forward] = [lambda s, x: s.n(x), normalised(biased)]
    left, right = reversed(both) if turned else both
    assert of_two(tmp_path, lambda: {"n": nn.BatchNorm1d(6)}, left, right, rand(5, 6)).code == biased


def test_a_layer_that_is_run_again_in_the_backward_pass(tmp_path: Path) -> None:
    def again(s: Any, x: torch.Tensor) -> torch.Tensor:
        return s.b(checkpoint(lambda h: F.relu(s.a(h)), x.requires_grad_(), use_reentrant=True))

    parts = lambda: {"a": nn.Linear(64, 96), "b": nn.Linear(96, 32)}  # noqa: E731
    assert of_two(tmp_path, parts, chain, again, rand(9, 64)).code == 0


@pytest.mark.parametrize(
    ("way", "code"), [("cleared", 0), ("sum", 0), ("nothing", 0), ("average", 0), ("penalty", 1), ("decay", 1)]
)
def test_steps_of_training_that_are_written_otherwise(tmp_path: Path, way: str, code: int) -> None:
    """Gradients set to zero, a loss written out, a term of the loss that is zero, a moving average of the weights."""

    def run(side: int, record: Callable[..., Any]) -> None:
        net, average = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)), torch.zeros(16, 8)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        own = way if side else ""
        with record(net) as recorder:
            for step in range(2):
                optimizer.zero_grad(set_to_none=own != "cleared")
                hidden, target = net[1](net[0](rand(6, 8, seed=step))), rand(6, 4, seed=9)
                apart = net[2](hidden) - target
                loss = (apart * apart).sum() / 24 if own == "sum" else apart.pow(2).mean()
                if own in ("nothing", "penalty"):
                    loss = loss + (1e-3 if own == "penalty" else 0.0) * hidden.sum()
                loss.backward()
                optimizer.step()
                with torch.no_grad():
                    if own == "average":
                        average.copy_(average * 0.9 + net[0].weight * (1 - 0.9))
                    else:
                        average.mul_(0.9).add_(net[0].weight, alpha=0.2 if own == "decay" else 1 - 0.9)
                recorder.step()

    assert compared(tmp_path, run).code == code


@pytest.mark.parametrize(("way", "code"), [("by hand", 0), ("scaler", 0), ("left in", 1), ("half", 1)])
def test_a_loss_scale_is_a_remark_if_it_is_taken_off_again(tmp_path: Path, way: str, code: int) -> None:
    def run(side: int, record: Callable[..., Any]) -> None:
        net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
        optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=side == 1 and way == "scaler")
        with record(net) as recorder:
            for step in range(2):
                optimizer.zero_grad()
                loss = F.mse_loss(net(rand(6, 8, seed=step)), rand(6, 4, seed=9))
                scaler.scale(loss * 1024 if side and way != "scaler" else loss).backward()
                for number, parameter in enumerate(net.parameters()):
                    if side and (way == "by hand" or (way == "half" and number < 2)):
                        parameter.grad.div_(1024)
                scaler.step(optimizer)
                scaler.update()
                recorder.step()

    result = compared(tmp_path, run)
    assert result.code == code
    assert code or any("1024 times the left's" in remark for remark in result.remarks)


ADAM = functools.partial(torch.optim.AdamW, lr=1e-2)
SGD = functools.partial(torch.optim.SGD, lr=0.1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("turned", [False, True], ids=["left", "right"])
@pytest.mark.parametrize(
    ("optimizers", "code"),
    [
        ((SGD, SGD), 0),
        ((functools.partial(SGD, momentum=0.9), functools.partial(SGD, momentum=0.9)), 0),
        ((functools.partial(SGD, momentum=0.9), functools.partial(SGD, momentum=0.8)), 1),
        ((ADAM, ADAM), 0),
        ((ADAM, functools.partial(ADAM, betas=(0.9, 0.9))), 1),
    ],
    ids=["plain", "momentum", "another momentum", "Adam", "another beta"],
)
def test_one_weight_and_three_are_trained_alike(
    tmp_path: Path, optimizers: tuple[Any, Any], code: int, turned: bool, dtype: torch.dtype
) -> None:
    """The gradient of the keys' bias is rounding, of which Adam makes full steps; in 16 bits the weights part by rounding."""

    def in_one(s: Any, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.view(*x.shape[:2], 2, 8).transpose(1, 2) for part in s.qkv(x).chunk(3, -1))
        return s.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape))

    def run(side: int, record: Callable[..., Any]) -> None:
        parts, joined = projections(), nn.Linear(16, 48)
        with torch.no_grad():
            joined.weight.copy_(torch.cat([parts[name].weight for name in "qkv"]))
            joined.bias.copy_(torch.cat([parts[name].bias for name in "qkv"]))
        fused = side != turned
        net = Net(in_one, qkv=joined, o=parts["o"]) if fused else Net(attention, **parts)
        net.to(dtype)
        optimizer = optimizers[fused](net.parameters())
        with record(net) as recorder:
            for step in range(3):
                optimizer.zero_grad()
                net(rand(3, 7, 16, seed=step).to(dtype)).float().square().mean().backward()
                optimizer.step()
                recorder.step()

    assert compared(tmp_path, run).code == code


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (
            lambda s, x: F.gelu(s.a(x), approximate="tanh"),
            lambda s, x: (lambda h: 0.5 * h * (1 + torch.tanh(0.7978845608 * (h + 0.044715 * torch.pow(h, 3)))))(
                s.a(x)
            ),
        ),
        (lambda s, x: torch.logsumexp(s.b(s.a(x)), -1), lambda s, x: s.b(s.a(x)).exp().sum(-1).log()),
    ],
    ids=["power", "logsumexp"],
)
def test_kernels_that_round_in_between_are_right(tmp_path: Path, left: Forward, right: Forward) -> None:
    """PyTorch multiplies twice for a third power, and composes logsumexp of kernels of bfloat16."""
    parts = lambda: {"a": nn.Linear(16, 24), "b": nn.Linear(24, 8)}  # noqa: E731
    assert of_two(tmp_path, parts, left, right, rand(9, 16), torch.bfloat16).code == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_a_value_that_is_computed_twice_has_its_gradient_in_two_parts(tmp_path: Path, dtype: torch.dtype) -> None:
    """No part alone is the gradient of the one on the left; each is far from zero, and they nearly cancel."""

    def right(s: Any, x: torch.Tensor) -> torch.Tensor:
        y = s.a(x)
        return torch.exp(y - 3) / torch.exp(y - 3).sum(-1, keepdim=True)

    def parts() -> dict[str, nn.Module]:
        return {"a": nn.Linear(16, 16)}

    left = lambda s, x: torch.softmax(s.a(x), -1)  # noqa: E731

    assert of_two(tmp_path, parts, left, right, rand(8, 16), dtype).code == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=["f32", "bf16", "f16"])
def test_a_bilinear_layer_agrees_with_its_equation(tmp_path: Path, dtype: torch.dtype) -> None:
    """The layer rounds what it has in between, and adds the gradients of its inputs up in 16 bits."""

    def parts() -> dict[str, nn.Module]:
        return {"pair": nn.Bilinear(32, 32, 8), "other": nn.Linear(32, 32)}

    def layer(s: Any, x: torch.Tensor) -> torch.Tensor:
        return s.pair(x, s.other(x))

    def equation(s: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.einsum("bsi,oij,bsj->bso", x, s.pair.weight, s.other(x)) + s.pair.bias

    def turned(s: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.einsum("bsi,oji,bsj->bso", x, s.pair.weight, s.other(x)) + s.pair.bias

    assert of_two(tmp_path, parts, layer, equation, rand(4, 16, 32), dtype).code == 0
    wrong = of_two(tmp_path / "wrong", parts, layer, turned, rand(4, 16, 32), dtype)
    assert wrong.code == 1
    assert "einsum" in str(wrong)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=["f32", "bf16", "f16"])
def test_a_chain_of_products_may_be_put_in_brackets_either_way(tmp_path: Path, dtype: torch.dtype) -> None:
    """The first product of the one side is neither of the other's, although it shares a weight with the one and activations with
    the other, and two weights of one size have alike statistics in 16 bits.
    """

    def parts() -> dict[str, nn.Module]:
        return {"a": nn.Linear(32, 32), "b": nn.Linear(32, 32)}

    def of_activations(s: Any, x: torch.Tensor) -> torch.Tensor:
        return (x @ s.a.weight) @ s.b.weight

    def of_weights(s: Any, x: torch.Tensor) -> torch.Tensor:
        return x @ (s.a.weight @ s.b.weight)

    def scaled(s: Any, x: torch.Tensor) -> torch.Tensor:
        return x @ (s.a.weight @ s.b.weight * 1.25)

    assert of_two(tmp_path, parts, of_activations, of_weights, rand(4, 16, 32), dtype).code == 0
    wrong = of_two(tmp_path / "wrong", parts, of_activations, scaled, rand(4, 16, 32), dtype)
    assert wrong.code == 1
    assert "1.25" in str(wrong)
