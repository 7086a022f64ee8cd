"""Gradients of values that are written to in place: right ones agree, whatever way the graph goes; a part that is cut is told."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import twintrace as tt  # noqa: E402
from tests.judge.recorded_pairs import Net, compared, rand  # noqa: E402

pytestmark = pytest.mark.needs_torch

Way = Callable[[Any, torch.Tensor], torch.Tensor]
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=["f32", "bf16", "f16"])


def trained(tmp_path: Path, left: Way, right: Way, dtype: torch.dtype) -> tt.Comparison:
    def run(side: int, record: Callable[..., Any]) -> None:
        net = Net((left, right)[side], a=nn.Linear(32, 32), b=nn.Linear(32, 32)).to(dtype)
        with record(net):
            net(rand(4, 16, 32).to(dtype)).float().square().sum().backward()

    return compared(tmp_path, run)


def in_place(view: bool, change: Callable[[torch.Tensor], torch.Tensor] = lambda part: part) -> Way:
    """The first and the last rows are written over, which a mask does to scores."""

    def forward(s: Any, x: torch.Tensor) -> torch.Tensor:
        y = s.a(x)
        y = y.view(4, 16, 4, 8).transpose(1, 2) if view else y * 1.5
        y[:, :2] = change(y[:, :2].sigmoid())
        y[:, -1:] = y[:, -1:] * 2
        return s.b(y.transpose(1, 2).reshape(4, 16, 32) if view else y)

    return forward


def put_together(view: bool) -> Way:
    def forward(s: Any, x: torch.Tensor) -> torch.Tensor:
        y = s.a(x)
        y = y.view(4, 16, 4, 8).transpose(1, 2) if view else y * 1.5
        y = torch.cat([y[:, :2].sigmoid(), y[:, 2:-1], y[:, -1:] * 2], 1)
        return s.b(y.transpose(1, 2).reshape(4, 16, 32) if view else y)

    return forward


@DTYPES
@pytest.mark.parametrize("view", [False, True], ids=["value", "view"])
def test_values_that_are_written_over_have_their_gradients(tmp_path: Path, view: bool, dtype: torch.dtype) -> None:
    assert trained(tmp_path / "there", in_place(view), put_together(view), dtype).code == 0
    assert trained(tmp_path / "back", put_together(view), in_place(view), dtype).code == 0


def halved(part: torch.Tensor) -> torch.Tensor:
    return part * 0.5 + (part * 0.5).detach()


@DTYPES
@pytest.mark.parametrize("change", [torch.detach, halved], ids=["cut", "half"])
@pytest.mark.parametrize("view", [False, True], ids=["value", "view"])
def test_a_part_that_is_cut_as_it_is_written_is_told(
    tmp_path: Path, view: bool, change: Callable[[torch.Tensor], torch.Tensor], dtype: torch.dtype
) -> None:
    result = trained(tmp_path, put_together(view), in_place(view, change), dtype)

    assert result.code == 1
    assert "the right cuts the gradient" in str(result)


@DTYPES
def test_a_call_that_lets_no_gradient_through_is_named(tmp_path: Path, dtype: torch.dtype) -> None:
    """Calls before it and after it have no gradients either: only what they take wants one or does not."""

    def attended(s: Any, x: torch.Tensor, masked: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        scores = masked((s.a(x) * 0.3) @ x.mT)
        return s.b(scores.float().softmax(-1).to(dtype) @ x)

    def unfollowed(scores: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return scores.clamp(-4, 4)

    left = functools.partial(attended, masked=lambda scores: scores.clamp(-4, 4))
    result = trained(tmp_path, left, functools.partial(attended, masked=unfollowed), dtype)

    assert result.code == 1
    assert "part at torch.Tensor.clamp" in str(result)
    assert "no gradient comes back through torch.Tensor.clamp on the right" in str(result)
