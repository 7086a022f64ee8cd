"""Cross entropy that is written in other ways, in float32 inside a 16-bit run."""

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

LABELS = torch.tensor([3, 3, 0, 1, 2, 6, 5, 4])


def loss(way: str, logits: torch.Tensor, counted: bool) -> torch.Tensor:
    """Mean over the labels that are not 3, or their sum divided by the number of all."""
    if way == "fused":
        scores = F.log_softmax(logits.float(), -1)
    else:  # two casts of one tensor
        scores = logits.float() - torch.logsumexp(logits.float(), -1, keepdim=True)
    each = -scores.gather(1, LABELS[:, None])[:, 0]
    kept = LABELS != 3
    return (each * kept).sum() / (kept.sum() if counted else kept.numel())


def ran(tmp_path: Path, ways: tuple[str, str], dtype: torch.dtype, counted: bool = True) -> Any:
    def run(side: int, record: Callable[..., Any]) -> None:
        net = Net(lambda net, x: net.head(net.norm(x)), norm=nn.LayerNorm(16), head=nn.Linear(16, 7)).to(dtype)
        with record(net):
            loss(ways[side], net(rand(8, 16).to(dtype)), counted or not side).backward()

    return compared(tmp_path, run)


def test_a_value_that_is_cast_twice_has_its_gradient_in_two_parts(tmp_path: Path) -> None:
    found = ran(tmp_path, ("fused", "written out"), torch.bfloat16)
    assert found.code == 0, tt.verdict(found)


def test_the_other_divisor_is_told(tmp_path: Path) -> None:
    """A tensor of one number on the left, a number on the right."""
    text = tt.verdict(ran(tmp_path, ("fused", "written out"), torch.float32, counted=False))
    assert "part at torch.Tensor.div" in text
    assert "divisor: 6.0 | 8.0" in text


@pytest.mark.parametrize(("smoothing", "code"), [(0.0, 0), (0.001, 1)])
@pytest.mark.parametrize("plain", [True, False])
def test_a_loss_that_is_rounded_to_the_same_number(tmp_path: Path, plain: bool, smoothing: float, code: int) -> None:
    """One loss in bfloat16, of two meanings: the gradients tell, and the cause is that of the loss."""
    labels = torch.randint(0, 7, (8,), generator=torch.Generator().manual_seed(5))

    def run(side: int, record: Callable[..., Any]) -> None:
        net = Net(lambda net, x: net.head(x), head=nn.Linear(16, 7)).bfloat16()
        with record(net):
            logits = net(rand(8, 16).bfloat16())
            if plain or side:
                F.cross_entropy(logits, labels, label_smoothing=smoothing * side).backward()
            else:
                (F.cross_entropy(logits, labels, reduction="none").sum() / 8).backward()

    found = compared(tmp_path, run)
    losses = [item for result in found.results for item in result.tensors if not item.left.spec.shape]
    assert any(item.left.fingerprint == item.right.fingerprint for item in losses if not item.pair.part.backward)
    assert found.code == code
    if code:
        assert "cross_entropy" in tt.verdict(found).splitlines()[0]


@pytest.mark.parametrize("factor", [1.0, 1.5])
def test_a_factor_on_the_loss_is_told_by_the_gradients_alone(tmp_path: Path, factor: float) -> None:
    """Level module does not show the loss: that all gradients have one factor says where to look."""

    def run(side: int, record: Callable[..., Any]) -> None:
        net = nn.Sequential(nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 4))
        with record(net):
            (net(rand(8, 16)).square().mean() * (factor if side else 1)).backward()

    found = compared(tmp_path, run, level="module")
    assert ("all gradients of the right are 1.5 times the left's" in tt.verdict(found)) is (factor != 1)
    assert found.code == (factor != 1)


@pytest.mark.parametrize(("factor", "code"), [(1.0, 3), (1 + 1e-5, 3), (1.5, 1)])
def test_norms_tell_where_calls_cannot_be_recomputed(tmp_path: Path, factor: float, code: int) -> None:
    """Two modules of unknown meaning, the first of other rounding: the second is accused if it is far off, and else left untold."""

    def run(side: int, record: Callable[..., Any]) -> None:
        weight = rand(64, 64, seed=3) / 8
        first = Net(lambda _, x: x[:, :32] @ weight[:32] + x[:, 32:] @ weight[32:] if side else x @ weight)
        second = Net(lambda _, x: torch.tanh(x) * (factor if side else 1))
        net = nn.Sequential(first, second)
        with record(net):
            net(rand(16, 64))

    found = compared(tmp_path, run, level="module")
    assert found.code == code, tt.verdict(found)


@pytest.mark.parametrize(("eps", "code"), [(1.0001e-5, 0), (2e-4, 1)])
def test_another_meaning_that_shows_in_no_gradient_is_no_mistake(tmp_path: Path, eps: float, code: int) -> None:
    """In bfloat16 results and gradients have the same bits with an epsilon that is other in its fifth digit."""

    def run(side: int, record: Callable[..., Any]) -> None:
        norm = nn.LayerNorm(16, eps=eps if side else 1e-5).bfloat16()
        with record(norm):
            norm(rand(8, 16).bfloat16().mul(0.1).requires_grad_()).float().square().mean().backward()

    assert compared(tmp_path, run).code == code


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("factor", [1.0, 1.01])
def test_a_sigmoid_that_saturates_may_cancel(tmp_path: Path, dtype: torch.dtype, factor: float) -> None:
    """Kernels compute the gradient of a binary cross entropy as sigmoid(x) - target: near 1 - 1 its rounding is all of it."""
    target = (rand(8, 16, seed=3) > 0).to(dtype)

    def by_hand(scores: torch.Tensor) -> torch.Tensor:
        return (F.softplus(scores) - factor * scores * target).mean()

    def run(side: int, record: Callable[..., Any]) -> None:
        net = Net(lambda net, x: net.a(x) * 20, a=nn.Linear(16, 16)).to(dtype)
        with record(net):
            scores = net(rand(8, 16).to(dtype))
            (by_hand(scores) if side else F.binary_cross_entropy_with_logits(scores, target)).backward()

    assert compared(tmp_path, run).code == int(factor != 1)
