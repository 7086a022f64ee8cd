"""Causes of mistakes in attention, positions and gates: what is named, and what is only a consequence."""

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
from tests.judge.recorded_pairs import Net, compared, only_mistake, rand  # noqa: E402

pytestmark = pytest.mark.needs_torch

Forward = Callable[..., torch.Tensor]
CAUSAL = torch.ones(16, 16).tril().bool()


def trained(tmp_path: Path, left: Forward, right: Forward) -> tt.Comparison:
    def run(side: int, record: Callable[..., Any]) -> None:
        net = Net((left, right)[side], **{name: nn.Linear(32, 32) for name in "qkvo"}, table=nn.Embedding(64, 32))
        with record(net):
            out = net(rand(4, 16, 32).requires_grad_())
            (out * torch.linspace(-1, 1.3, out.numel()).reshape(out.shape)).sum().backward()

    return compared(tmp_path, run)


def heads(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(4, 16, 4, 8).transpose(1, 2)


def tables() -> tuple[torch.Tensor, torch.Tensor]:
    angles = torch.arange(16)[:, None] * (10000.0 ** (-torch.arange(4) / 4))[None]
    angles = torch.cat([angles, angles], -1)
    return angles.cos(), angles.sin()


def rotated(x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, -1)
    return x * cosines + torch.cat([-second, first], -1) * sines


def attention(s: Any, x: torch.Tensor, rotation: str = "", once: bool = True, **options: Any) -> torch.Tensor:
    values = {name: heads(getattr(s, name)(x)) for name in "qkv"}
    shared = tables() if rotation and once else None
    values |= {name: rotated(values[name], *(shared or tables())) for name in rotation}
    return s.o(F.scaled_dot_product_attention(*values.values(), **options).transpose(1, 2).reshape(4, 16, 32))


def masked_by_hand(s: Any, x: torch.Tensor, masked: bool) -> torch.Tensor:
    q, k, v = (heads(getattr(s, name)(x)) for name in "qkv")
    scores = q @ k.mT / 8**0.5
    if masked:
        scores = scores + torch.zeros(16, 16).masked_fill(~CAUSAL, -1e4)
    return s.o((scores.softmax(-1) @ v).transpose(1, 2).reshape(4, 16, 32))


@pytest.mark.parametrize("once", [True, False])
@pytest.mark.parametrize(("left", "right", "alone"), [("qk", "q", "left"), ("k", "qk", "right")])
def test_a_rotation_of_one_side_alone_is_the_cause(
    tmp_path: Path, left: str, right: str, alone: str, once: bool
) -> None:
    """A power with its operands exchanged would make all angles zero, and the results equal: it is none, whether the angles are
    those of the other side, or computed anew.
    """
    ways = [functools.partial(attention, rotation=names, once=once) for names in (left, right)]

    mistake = only_mistake(trained(tmp_path, *ways))

    assert mistake.why.startswith(
        f"only the {alone} computes here: … → neg → cat(dim=3) → mul → add(alpha=1); without it"
    )


def test_halves_of_one_value_are_told_apart(tmp_path: Path) -> None:
    def gated(s: Any, x: torch.Tensor, first: bool) -> torch.Tensor:
        one, two = F.linear(x, torch.cat([s.q.weight, s.k.weight])).chunk(2, -1)
        return s.o(F.silu(one) * two if first else one * F.silu(two))

    result = trained(tmp_path, *(functools.partial(gated, first=first) for first in (True, False)))

    linear = "the result of torch.nn.functional.linear in the model"
    assert f"the right takes part 2 of 2 of {linear} where the left takes part 1 of 2 of {linear}" in str(result)


def test_other_elements_of_one_value_are_told_apart(tmp_path: Path) -> None:
    def gated(s: Any, x: torch.Tensor, first: bool) -> torch.Tensor:
        both = F.linear(x, torch.cat([s.q.weight, s.k.weight]))
        one, two = both[..., ::2], both[..., 1::2]
        return s.o(F.silu(one) * two if first else one * F.silu(two))

    result = trained(tmp_path, *(functools.partial(gated, first=first) for first in (True, False)))

    assert "the right takes [0:4, 0:16, 1:64:2] of the result of" in str(result)
    assert "where the left takes [0:4, 0:16, 0:64:2] of the result of" in str(result)


def test_an_index_is_told_as_it_would_be_written(tmp_path: Path) -> None:
    ways = (lambda s, x, first=first: s.o(s.q(x)[:, first::2]) for first in (0, 1))

    assert "index: (0:4, 0:16:2) | (0:4, 1:16:2)" in str(trained(tmp_path, *ways))


def test_an_opposite_sign_is_the_cause(tmp_path: Path) -> None:
    """The other half of a rotation is negated."""

    def turned(s: Any, x: torch.Tensor, first: bool) -> torch.Tensor:
        cosines, sines = tables()
        values = heads(s.q(x))
        one, two = values[..., :4], values[..., 4:]
        half = torch.cat((-two, one), -1) if first else torch.concat((two, torch.negative(one)), -1)
        return s.o((values * cosines + half * sines).transpose(1, 2).reshape(4, 16, 32))

    result = trained(tmp_path, *(functools.partial(turned, first=first) for first in (True, False)))

    assert "the right's result has the opposite sign; with it changed the results agree" in str(result)


def test_gradients_that_come_back_through_a_mistake_are_no_others(tmp_path: Path) -> None:
    ways = functools.partial(masked_by_hand, masked=True), functools.partial(attention)

    mistake = only_mistake(trained(tmp_path, *ways))

    assert mistake.why.startswith("only the left adds f32[16, 16] (torch.Tensor.add)")


def test_dropout_of_one_side_alone(tmp_path: Path) -> None:
    ways = (lambda s, x, p=p: s.o(F.dropout(F.gelu(s.q(x)), p, training=p > 0)) for p in (0.0, 0.2))

    result = trained(tmp_path, *ways)

    assert (
        "only the right draws random numbers: torch.nn.functional.dropout; is the left in eval mode, or its rate 0"
        in str(result)
    )
    assert "next    switch it off on the right (eval mode, a rate of 0) where the left does without it" in str(result)


@pytest.mark.parametrize("turned", [False, True])
def test_the_rate_of_a_fused_dropout_is_named(tmp_path: Path, turned: bool) -> None:
    rates = [0.1, 0.0] if turned else [0.0, 0.1]
    result = trained(tmp_path, *(functools.partial(attention, dropout_p=rate) for rate in rates))

    side = "left" if turned else "right"
    told = f"only the {side} draws random numbers: torch.nn.functional.scaled_dot_product_attention; dropout_p: "
    assert told + f"{rates[0]} | {rates[1]}" in str(result)


def test_positions_are_exact(tmp_path: Path) -> None:
    """There is no rounding of integers that they could be compared with."""
    ways = (lambda s, x, first=first: s.o(s.q(x) + s.table(torch.arange(16) + first)) for first in (0, 1))

    result = trained(tmp_path, *ways)

    assert "addend: 0 | 1" in str(result)
    assert "size    1.1e-01 apart on the same inputs; worst at [0]: 0 | 1\n" in str(result)


@pytest.mark.parametrize("turned", [False, True], ids=["right", "left"])
def test_an_update_with_a_gradient_of_zeros_is_told_as_that(tmp_path: Path, turned: bool) -> None:
    """PyTorch passes over a parameter without a gradient; MindSpore has one of zeros, and the weight decays."""

    def run(side: int, record: Callable[..., Any]) -> None:
        net = Net(lambda s, x: s.a(x), a=nn.Linear(8, 8), unused=nn.Linear(8, 8))
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
        with record(net):
            net(rand(4, 8)).square().sum().backward()
            if bool(side) is not turned:
                net.unused.weight.grad = torch.zeros(8, 8)
            optimizer.step()

    result = compared(tmp_path, run)

    assert result.code == 1
    assert f"only the {'left' if turned else 'right'} updates it: with a gradient of zeros too it decays" in str(result)


def test_a_cast_does_not_hide_a_scale_that_lacks(tmp_path: Path) -> None:
    """A port calls a fused attention whose result has 16 bits, and whose scale is 1 unless it is given."""

    def attended(s: Any, x: torch.Tensor, right: bool) -> torch.Tensor:
        q, k, v = (heads(getattr(s, name)(x)) for name in "qkv")
        if right:
            q, k, v = (value.half().float() for value in (q, k, v))
            out = (((q @ k.mT) * 1.0).softmax(-1) @ v).half().float()
        else:
            out = F.scaled_dot_product_attention(q, k, v)
        return s.o(out.transpose(1, 2).flatten(2))

    result = trained(tmp_path, *(functools.partial(attended, right=right) for right in (False, True)))

    causes = [mistake.why for item in result.results for mistake in item.mistakes if mistake.effective]
    assert any("loses precision" in why for why in causes)
    assert any("scale: 0.353553" in why for why in causes)
