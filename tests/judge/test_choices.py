"""Choices between equal values: any is right, what follows from it differs, and a choice that is wrong is told."""

from __future__ import annotations

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

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=["f32", "bf16", "f16"])


def recorded(
    tmp_path: Path,
    ways: tuple[Callable[..., Any], Callable[..., Any]],
    dtype: torch.dtype = torch.float32,
    **parts: Any,
) -> tt.Comparison:
    def run(side: int, record: Callable[..., Any]) -> None:
        net = Net(ways[side], **{name: make() for name, make in parts.items()}).to(dtype)
        x = rand(4, 16, 32).to(dtype).requires_grad_()
        with record(net):
            out = net(x).float()
            (out * torch.linspace(-1, 1.3, out.numel()).reshape(out.shape)).sum().backward()

    return compared(tmp_path, run)


def _experts(net: Any, x: torch.Tensor, weights: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """All experts, of which each token takes those at its places."""
    total = torch.zeros_like(x)
    for number, expert in enumerate(net.experts):
        total = total + ((places == number).to(x.dtype) * weights).sum(-1, keepdim=True) * expert(x)
    return total


def _router(net: Any, x: torch.Tensor) -> torch.Tensor:
    """Probabilities of which many are equal."""
    return ((net.router(x) * 3).round() / 3).softmax(-1)


def _top(net: Any, x: torch.Tensor, count: int = 2) -> torch.Tensor:
    return _experts(net, x, *_router(net, x).topk(count, -1))


def _sorted(net: Any, x: torch.Tensor) -> torch.Tensor:
    weights, places = _router(net, x).sort(-1, descending=True)
    return _experts(net, x, weights[..., :2], places[..., :2])


def _argsorted(net: Any, x: torch.Tensor) -> torch.Tensor:
    probabilities = _router(net, x)
    places = probabilities.argsort(-1, descending=True)[..., :2]
    return _experts(net, x, probabilities.gather(-1, places), places)


ROUTED = {
    "router": lambda: nn.Linear(32, 4),
    "experts": lambda: nn.ModuleList(nn.Linear(32, 32) for _ in range(4)),
}


@pytest.mark.parametrize("other", [_sorted, _argsorted])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["f32", "f16"])
def test_experts_with_equal_probabilities_may_be_chosen_either_way(
    tmp_path: Path, dtype: torch.dtype, other: Callable[..., Any]
) -> None:
    result = recorded(tmp_path, (_top, other), dtype, **ROUTED)

    assert result.code == 0
    assert any("rounding decides 25 of 128 elements" in remark for remark in result.remarks)


def test_another_number_of_experts_is_no_choice(tmp_path: Path) -> None:
    result = recorded(tmp_path, (_top, lambda net, x: _top(net, x, 1)), **ROUTED)

    assert result.code == 1
    assert "k: 2 | 1" in str(result)
    assert not any("rounding decides" in remark for remark in result.remarks)


def test_scores_apart_by_rounding_may_choose_other_experts(tmp_path: Path) -> None:
    """Two experts have the same weights in the router: which of them is the larger one is decided by the order of a sum."""

    def router() -> nn.Linear:
        layer = nn.Linear(32, 4, bias=False)
        with torch.no_grad():
            layer.weight[1] = layer.weight[0]
        return layer

    def in_two_parts(net: Any, x: torch.Tensor) -> torch.Tensor:
        weight = net.router.weight
        first = F.linear(x[..., :16], weight[:1, :16]) + F.linear(x[..., 16:], weight[:1, 16:])
        return torch.cat([first, F.linear(x, weight[1:])], -1)

    ways = tuple(
        lambda net, x, scores=scores: _experts(net, x, *scores(net, x).softmax(-1).topk(1, -1))
        for scores in (lambda net, x: net.router(x), in_two_parts)
    )
    result = recorded(tmp_path, (ways[0], ways[1]), **{**ROUTED, "router": router})

    assert result.code == 0
    assert any("topk: rounding decides" in remark for remark in result.remarks)


@DTYPES
def test_gradients_go_to_the_places_that_were_recorded(tmp_path: Path, dtype: torch.dtype) -> None:
    """A sort that is not stable, beside the largest values: equal ones lie in another order, and so do their gradients."""

    def net(take: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., Any]:
        return lambda net, x: net.b(take(net.a(x)))

    ways = net(lambda h: h.topk(32, -1).values), net(lambda h: h.sort(-1, descending=True).values)
    result = recorded(tmp_path, ways, dtype, a=lambda: nn.Linear(32, 32), b=lambda: nn.Linear(32, 32))

    assert result.code == 0


def test_places_counted_from_the_end_are_told(tmp_path: Path) -> None:
    """Truth values on the one side come of numbers on the other."""

    def turned(net: Any, x: torch.Tensor) -> torch.Tensor:
        weights, places = _router(net, x).flip(-1).topk(2, -1)
        return _experts(net, x, weights, places)

    assert recorded(tmp_path, (_top, turned), **ROUTED).code == 1


@pytest.mark.parametrize("level", ["api", "op"])
@pytest.mark.parametrize(("largest", "code"), [(True, 0), (False, 1)])
def test_the_largest_values_are_no_result_where_their_places_are_taken(
    tmp_path: Path, level: str, largest: bool, code: int
) -> None:
    """One side chooses by scores, the other by their probabilities."""

    def chosen(net: Any, x: torch.Tensor, side: int) -> torch.Tensor:
        scores = net.a(x)
        scores, greatest = (scores.softmax(-1), largest) if side else (scores, True)
        places = scores.topk(2, -1, largest=greatest)[1]
        return net.b(x.gather(-1, places))

    def run(side: int, record: Callable[..., Any]) -> None:
        net = Net(lambda net, x: chosen(net, x, side), a=nn.Linear(8, 8), b=nn.Linear(2, 4))
        with record(net):
            net(rand(4, 8))

    assert compared(tmp_path, run, level=level).code == code
