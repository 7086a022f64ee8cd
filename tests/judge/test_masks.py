"""Attention whose scores are hidden in other ways: masks of one effect are no mistake, and hide none beside them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import twintrace as tt  # noqa: E402
from tests.judge.recorded_pairs import Net, compared, only_mistake, rand  # noqa: E402
from twintrace.report.text import verdict  # noqa: E402

pytestmark = pytest.mark.needs_torch

TOKENS, HEADS, WIDTH = 9, 2, 8


def hide(way: str, scores: torch.Tensor, scale: float, hidden: torch.Tensor) -> torch.Tensor:
    """Scaled scores, of which some are hidden from the softmax."""
    zeros, least = torch.zeros(TOKENS, TOKENS, dtype=scores.dtype), torch.finfo(scores.dtype).min
    if way == "add -inf":
        return scores * scale + zeros.masked_fill(hidden, float("-inf"))
    if way == "add -1e9":
        return scores * scale + hidden.to(scores.dtype) * -1e9
    if way == "add the least":
        return scores / (1 / scale) + torch.full_like(zeros, least).masked_fill(~hidden, 0)
    assert way == "fill -inf"
    return (scores * scale).masked_fill(hidden, float("-inf"))


def attend(net: Any, x: torch.Tensor, way: str, scale: float) -> torch.Tensor:
    q, k, v = (part(x).view(2, TOKENS, HEADS, WIDTH).transpose(1, 2) for part in (net.q, net.k, net.v))
    hidden = torch.ones(TOKENS, TOKENS).triu(1).bool()
    if way == "fused":
        mask = torch.zeros(TOKENS, TOKENS, dtype=x.dtype).masked_fill(hidden, -1e4)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
    else:
        mixed = hide(way, q @ k.mT, scale, hidden).softmax(-1) @ v
    return net.o(mixed.transpose(1, 2).reshape(2, TOKENS, HEADS * WIDTH))


@pytest.mark.parametrize("factor", [1.0, 1.02])
@pytest.mark.parametrize(
    ("ways", "dtype"),
    [
        (("add the least", "fused"), torch.bfloat16),
        (("add -inf", "add -1e9"), torch.float32),
        (("fill -inf", "add the least"), torch.float32),
        (("fused", "add -inf"), torch.float16),
    ],
)
def test_another_scale_beside_another_mask(
    tmp_path: Path, ways: tuple[str, str], dtype: torch.dtype, factor: float
) -> None:
    """Of two layers the second has another scale, or none: that is named, with its cause, and no mask is."""
    scale = WIDTH**-0.5

    def run(side: int, record: Callable[..., Any]) -> None:
        def layer(own: float) -> Net:
            parts = {name: nn.Linear(HEADS * WIDTH, HEADS * WIDTH) for name in "qkvo"}
            return Net(lambda net, x: attend(net, x, ways[side], own), **parts)

        net = nn.Sequential(layer(scale), layer(scale * factor if side else scale)).to(dtype)
        with record(net):
            y = net(rand(2, TOKENS, HEADS * WIDTH).to(dtype))
            (y * rand(2, TOKENS, HEADS * WIDTH, seed=2).to(dtype)).sum().backward()

    found = compared(tmp_path, run)
    assert found.code == (factor != 1.0), tt.verdict(found)
    if factor != 1.0:
        assert found.divergence is not None
        assert found.divergence.result.match.right[0].site.path == "1"
        assert f"{scale * factor:.7}"[:7] in verdict(found).partition("why")[2].partition("share")[0]


@pytest.mark.parametrize("ahead", [0, 1])
def test_a_mask_that_is_built_in_vmap_beside_one_of_numbers(tmp_path: Path, ahead: int) -> None:
    """Tensors inside of vmap have no values: they are no partners of numbers, and the mask that comes out is computed with."""
    places = torch.arange(6)

    def mask(side: int) -> torch.Tensor:
        if not side:
            allowed = torch.vmap(torch.vmap(lambda q, k: (k <= q).to(torch.bool) & (k >= 0), (None, 0)), (0, None))
            return allowed(places, places)
        low = torch.tensor(torch.finfo(torch.float32).min).to(torch.float32)
        return torch.zeros(6, 6).masked_fill(places > places[:, None] + ahead, low)

    def run(side: int, record: Callable[..., Any]) -> None:
        def forward(net: Any, x: torch.Tensor) -> torch.Tensor:
            q, k, v = net.q(x), net.k(x), net.v(x)
            if not side:
                return net.o(F.scaled_dot_product_attention(q, k, v, attn_mask=mask(side)))
            return net.o(torch.softmax(q @ k.transpose(-1, -2) / 4 + mask(side), -1) @ v)

        net = Net(forward, **{name: nn.Linear(16, 16) for name in "qkvo"})
        with record(net):
            net(rand(2, 6, 16)).square().mean().backward()

    found = compared(tmp_path, run)
    assert found.code == ahead, tt.verdict(found)
    assert not ahead or only_mistake(found).why.startswith("only the right adds 1 (torch.Tensor.add); without it")


# --- rows that may see nothing: fused attention gives zeros, a softmax over one fill value the mean of all ------------------

SEEN = torch.ones(2, 1, TOKENS, TOKENS, dtype=torch.bool).tril()
SEEN[1, :, 6:] = False


def fused_rows(net: Any, x: torch.Tensor) -> torch.Tensor:
    q, k, v = (part(x).view(2, TOKENS, HEADS, WIDTH).transpose(1, 2) for part in (net.q, net.k, net.v))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=SEEN)


def written_rows(net: Any, x: torch.Tensor, cleared: bool) -> torch.Tensor:
    q, k, v = (part(x).view(2, TOKENS, HEADS, WIDTH).transpose(1, 2) for part in (net.q, net.k, net.v))
    mask = torch.zeros(SEEN.shape, dtype=x.dtype).masked_fill(~SEEN, torch.finfo(x.dtype).min)
    weights = (q @ k.mT / WIDTH**0.5 + mask).softmax(-1)
    return (weights.masked_fill(~SEEN.any(-1, keepdim=True), 0) if cleared else weights) @ v


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=["f32", "bf16", "f16"])
@pytest.mark.parametrize("cleared", [False, True])
@pytest.mark.parametrize("trained", [False, True])
def test_rows_that_see_nothing(tmp_path: Path, trained: bool, cleared: bool, dtype: torch.dtype) -> None:
    """Scores vanish beside the fill value: what is left of them is no rounding of the rows."""

    def run(side: int, record: Callable[..., Any]) -> None:
        parts = {name: nn.Linear(HEADS * WIDTH, HEADS * WIDTH) for name in "qkvo"}

        def forward(net: Any, x: torch.Tensor) -> torch.Tensor:
            mixed = written_rows(net, x, cleared) if side else fused_rows(net, x)
            return net.o(mixed.transpose(1, 2).reshape(2, TOKENS, HEADS * WIDTH))

        net = Net(forward, **parts).to(dtype)
        with record(net):
            out = net(rand(2, TOKENS, HEADS * WIDTH).to(dtype)).float()
            if trained:
                out.square().mean().backward()

    result = compared(tmp_path, run)

    assert result.code == (0 if cleared else 1)
    assert cleared or "scaled_dot_product_attention" in str(result)
