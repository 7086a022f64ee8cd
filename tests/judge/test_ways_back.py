"""Gradients that come back in another way on one side: a wrong one is told in any type, however small, and a right one is not."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import twintrace as tt  # noqa: E402
from tests.judge.recorded_pairs import Net, compared, rand  # noqa: E402

pytestmark = pytest.mark.needs_torch

Way = Callable[..., torch.Tensor]
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=["f32", "bf16", "f16"])


class Scaled(torch.autograd.Function):
    """Hands its input on, and another gradient back."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, factor: float) -> torch.Tensor:
        ctx.factor = factor
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradients[0] * ctx.factor, None


def partly_cut(factor: float) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: x * factor + (x - x * factor).detach()


def trained(tmp_path: Path, left: Way, right: Way, dtype: torch.dtype = torch.float32, **options: Any) -> tt.Comparison:
    def run(side: int, record: Callable[..., Any]) -> None:
        net = Net((left, right)[side], **{name: nn.Linear(32, 32) for name in "abc"}).to(dtype)
        x = rand(4, 16, 32).to(dtype).requires_grad_()
        with record(net):
            out = net(x).float()
            (out * torch.linspace(-1, 1.3, out.numel()).reshape(out.shape)).sum().backward()

    return compared(tmp_path, run, **options)


def after(change: Callable[[torch.Tensor], torch.Tensor]) -> dict[str, Way]:
    """Networks in which a value is changed on the way."""
    return {
        "linear": lambda s, x: s.b(change(s.a(x))),
        "gelu": lambda s, x: s.b(change(F.gelu(s.a(x)))),
        "mul": lambda s, x: s.c(s.a(x) * change(s.b(x))),
    }


@DTYPES
@pytest.mark.parametrize("factor", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("net", ["linear", "gelu", "mul"])
def test_a_part_of_a_gradient_that_is_cut_is_told(tmp_path: Path, net: str, factor: float, dtype: torch.dtype) -> None:
    result = trained(tmp_path, after(lambda x: x)[net], after(partly_cut(factor))[net], dtype)

    assert result.code == 1
    assert "only the right cuts the gradient (torch.Tensor.detach)" in str(result)


@DTYPES
@pytest.mark.parametrize("net", ["linear", "gelu"])
def test_a_gradient_that_is_more_than_was_sent_back_is_told(tmp_path: Path, net: str, dtype: torch.dtype) -> None:
    """Nothing was recorded between the calls that it comes from and goes to."""
    result = trained(tmp_path, after(lambda x: x)[net], after(lambda x: Scaled.apply(x, 0.9))[net], dtype)

    assert result.code == 1


@DTYPES
@pytest.mark.parametrize("net", ["linear", "gelu", "mul"])
def test_another_way_to_the_same_gradient_agrees(tmp_path: Path, net: str, dtype: torch.dtype) -> None:
    right = after(lambda x: Scaled.apply(x, 1.0) * 0.5 + x * 0.5)[net]

    assert trained(tmp_path, after(lambda x: x)[net], right, dtype).code == 0


@DTYPES
def test_a_value_that_one_side_alone_has_is_rounded(tmp_path: Path, dtype: torch.dtype) -> None:
    """Queries that are scaled before the product, and scores after it: by no power of two."""

    def scaled(s: Any, x: torch.Tensor, before: bool) -> torch.Tensor:
        q, k = s.a(x), s.b(x)
        scores = (q * 0.3) @ k.mT if before else (q @ k.mT) * 0.3
        return scores.softmax(-1) @ s.c(x)

    ways = [functools.partial(scaled, before=before) for before in (True, False)]

    assert trained(tmp_path / "there", *ways, dtype).code == 0
    assert trained(tmp_path / "back", *ways[::-1], dtype).code == 0


@pytest.mark.parametrize("size", [1e2, 1e4])
def test_a_value_that_one_side_alone_has_is_made_of_what_both_have(tmp_path: Path, size: float) -> None:
    """Weights of an attention by hand, whose queries are apart by what a sine makes of one rounding; a fused one has none."""

    def attended(s: Any, x: torch.Tensor, fused: bool) -> torch.Tensor:
        waves = (x * (size * 10) * 0.7).sin() if fused else (x * (size * 7)).sin()
        q, k, v = s.a(waves), s.b(waves), s.c(x)
        if fused:
            return F.scaled_dot_product_attention(q, k, v, scale=1.0)
        return (q @ k.mT).softmax(-1) @ v

    ways = [functools.partial(attended, fused=fused) for fused in (True, False)]

    assert trained(tmp_path / "there", *ways).code == 0
    assert trained(tmp_path / "back", *ways[::-1]).code == 0


@pytest.mark.parametrize("cut", [False, True], ids=["right", "cut"])
def test_a_gradient_of_operands_that_are_apart_by_rounding(tmp_path: Path, cut: bool) -> None:
    """A divisor near zero, whose gradient is a sum of terms that cancel: the sine of one rounding is much of it."""

    def divided(s: Any, x: torch.Tensor, factors: tuple[float, ...], cut: bool) -> torch.Tensor:
        waves = x
        for factor in factors:
            waves = waves * factor
        y = s.a(waves.sin())
        below = y[..., -1:] * 1e-2
        return s.b(torch.cat([y[..., :-1] / (below.detach() if cut else below), y[..., -1:]], -1))

    ways = [
        functools.partial(divided, factors=factors, cut=cut and len(factors) == 1) for factors in ((1e4, 0.7), (7e3,))
    ]

    assert trained(tmp_path / "there", *ways).code == int(cut)
    assert trained(tmp_path / "back", *ways[::-1]).code == int(cut)


def by_hand(s: Any, x: torch.Tensor, cut: bool = False) -> torch.Tensor:
    scores = s.a(x)
    largest = scores.amax(-1, keepdim=True)
    powers = (scores - (largest.detach() if cut else largest)).exp()
    return s.b(powers / powers.sum(-1, keepdim=True))


@DTYPES
@pytest.mark.parametrize("level", ["mix", "op"])
def test_a_cut_through_which_only_rounding_comes_back_is_none(tmp_path: Path, level: str, dtype: torch.dtype) -> None:
    """The gradient of the score that a softmax takes off is the sum of terms that cancel."""
    assert trained(tmp_path, by_hand, functools.partial(by_hand, cut=True), dtype, level=level).code == 0


@DTYPES
def test_a_cut_through_which_more_comes_back_is_told(tmp_path: Path, dtype: torch.dtype) -> None:
    def unnormalised(s: Any, x: torch.Tensor, cut: bool) -> torch.Tensor:
        scores = s.a(x)
        largest = scores.amax(-1, keepdim=True)
        return s.b((scores - (largest.detach() if cut else largest)).exp())

    ways = (functools.partial(unnormalised, cut=cut) for cut in (False, True))

    assert trained(tmp_path, *ways, dtype).code == 1


@DTYPES
def test_a_cut_of_half_a_batch_does_not_agree(tmp_path: Path, dtype: torch.dtype) -> None:
    def halved(s: Any, x: torch.Tensor) -> torch.Tensor:
        return s.b(torch.cat([s.a(x[:2]), s.a(x[2:]).detach()]))

    assert trained(tmp_path, lambda s, x: s.b(s.a(x)), halved, dtype).code in (1, 3)


# --- level op: the kernels of the backward pass are calls -------------------------------------------------------------------


def by_equation(s: Any, x: torch.Tensor) -> torch.Tensor:
    return s.b(torch.einsum("bsd,ed->bse", x, s.a.weight) + s.a.bias)


def multiplied_out(s: Any, x: torch.Tensor) -> torch.Tensor:
    return x @ s.a.weight.T @ s.b.weight.T + (s.a.bias @ s.b.weight.T) + s.b.bias


def in_two_halves(s: Any, x: torch.Tensor) -> torch.Tensor:
    parts = zip(s.a.weight.chunk(2), s.a.bias.chunk(2), strict=True)
    return s.b(torch.cat([F.linear(x, weight, bias) for weight, bias in parts], -1))


def gated(s: Any, x: torch.Tensor) -> torch.Tensor:
    return s.c(F.silu(s.a(x)) * s.b(x))


def gated_in_one(change: Callable[[torch.Tensor], torch.Tensor]) -> Way:
    def forward(s: Any, x: torch.Tensor) -> torch.Tensor:
        weight, bias = torch.cat([s.a.weight, s.b.weight]), torch.cat([s.a.bias, s.b.bias])
        gate, up = F.linear(x, weight, bias).chunk(2, -1)
        return s.c(F.silu(gate) * change(up))

    return forward


@DTYPES
@pytest.mark.parametrize(
    ("left", "right"),
    [
        (lambda s, x: s.b(s.a(x)), by_equation),
        (lambda s, x: s.b(s.a(x)), multiplied_out),
        (lambda s, x: s.b(s.a(x)), in_two_halves),
        (gated, gated_in_one(lambda up: up)),
    ],
    ids=["equation", "multiplied out", "halves", "gate and up"],
)
def test_kernels_of_another_way_agree(tmp_path: Path, left: Way, right: Way, dtype: torch.dtype) -> None:
    assert trained(tmp_path, left, right, dtype, level="op").code == 0


@DTYPES
@pytest.mark.parametrize("change", [torch.detach, partly_cut(0.5)], ids=["cut", "half"])
def test_kernels_of_another_way_with_another_gradient_part(
    tmp_path: Path, change: Callable[[torch.Tensor], torch.Tensor], dtype: torch.dtype
) -> None:
    assert trained(tmp_path, gated, gated_in_one(change), dtype, level="op").code == 1


@pytest.mark.parametrize("right", [multiplied_out, by_equation], ids=["multiplied out", "equation"])
def test_without_bits_a_value_that_was_written_over_is_known_by_its_statistics(tmp_path: Path, right: Way) -> None:
    """Kernels take what another one has written in place, or a view of a weight, under a number of its own."""
    result = trained(tmp_path, lambda s, x: s.b(s.a(x)), right, level="op", keep="statistics")

    assert result.code in (0, 3)


@DTYPES
@pytest.mark.parametrize("keep", ["statistics", "fingerprint"])
def test_weights_of_one_size_are_told_apart_without_values(tmp_path: Path, keep: str, dtype: torch.dtype) -> None:
    """In 16 bits, two weights have nearly the same smallest, largest and mean."""
    assert trained(tmp_path, gated, gated_in_one(lambda up: up), dtype, keep=keep).code in (0, 3)


# --- precision ------------------------------------------------------------------------------------------------------------


class InHalf(nn.Linear):
    """float16 has more digits than bfloat16, and less range."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x.half(), self.weight.half(), self.bias.half()).to(x.dtype)


def test_a_layer_in_the_other_half_precision_is_told(tmp_path: Path) -> None:
    def run(side: int, record: Callable[..., Any]) -> None:
        layers = {"a": nn.Linear(32, 32), "b": (nn.Linear, InHalf)[side](32, 32), "c": nn.Linear(32, 32)}
        net = Net(lambda s, x: s.c(s.b(s.a(x))), **layers).bfloat16()
        with record(net):
            net(rand(4, 16, 32).bfloat16()).float().sum().backward()

    result = compared(tmp_path, run)

    assert result.code == 1
    assert "the two compute in another precision: bf16 | f16" in str(result)
