"""Optimizers of parameters in 16 bits, where much of an update is rounded away."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import twintrace as tt  # noqa: E402
from tests.judge.recorded_pairs import compared, rand  # noqa: E402

pytestmark = pytest.mark.needs_torch

Made = Callable[[Iterator[nn.Parameter]], torch.optim.Optimizer]


class WrittenOut(torch.optim.Optimizer):
    """AdamW by hand, with PyTorch's own settings."""

    def __init__(self, parameters: Iterator[nn.Parameter], decay: float = 0.999) -> None:
        super().__init__(list(parameters), {})
        self.decay = decay

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for parameter in self.param_groups[0]["params"]:
            state = self.state[parameter]
            if not state:
                state.update(step=0, first=torch.zeros_like(parameter), second=torch.zeros_like(parameter))
            state["step"] += 1
            gradient = parameter.grad
            state["first"].mul_(0.9).add_(gradient, alpha=1 - 0.9)
            state["second"].mul_(self.decay).addcmul_(gradient, gradient, value=1 - self.decay)
            corrected = (state["second"] / (1 - self.decay ** state["step"])).sqrt().add_(1e-8)
            parameter.mul_(1 - 1e-2 * 0.01)
            parameter.addcdiv_(state["first"], corrected, value=-1e-2 / (1 - 0.9 ** state["step"]))


def trained(
    tmp_path: Path,
    left: Made,
    right: Made,
    dtype: torch.dtype = torch.bfloat16,
    *,
    cleared: bool = True,
    steps: int = 2,
) -> tt.Comparison:
    data = [
        (rand(8, 16, seed=10 + i).to(dtype), torch.randint(0, 8, (8,), generator=torch.Generator().manual_seed(i)))
        for i in range(steps)
    ]

    def run(side: int, record: Callable[..., Any]) -> None:
        net = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 8)).to(dtype)
        optimizer = (left, right)[side](net.parameters())
        with record(net) as recorder:
            for x, labels in data:
                if cleared or side == 0:
                    optimizer.zero_grad()
                F.cross_entropy(net(x), labels).backward()
                optimizer.step()
                recorder.step()

    return compared(tmp_path, run)


def adamw(**settings: Any) -> Made:
    return lambda parameters: torch.optim.AdamW(parameters, lr=1e-2, **settings)


def test_a_moment_that_16_bits_do_not_let_decay(tmp_path: Path) -> None:
    """Times 0.999 it has the same bits, so that the kernel of the left seems to begin with what the right has after it."""
    result = trained(tmp_path, adamw(), WrittenOut)

    assert result.code == 0, str(result)


def test_another_decay_of_the_moment_never_agrees(tmp_path: Path) -> None:
    """What the two kernels round apart is as much as the decay does in three steps."""
    result = trained(tmp_path, adamw(), lambda parameters: WrittenOut(parameters, 0.99), steps=3)

    assert result.code in (1, 3)


def test_a_weight_decay_that_is_rounded_away_is_a_remark(tmp_path: Path) -> None:
    result = trained(tmp_path, adamw(weight_decay=0.01), adamw(weight_decay=0.1))

    assert result.code == 0
    told = "torch.optim.AdamW.step is set differently, without effect on these values: weight_decay: 0.01 | 0.1"
    assert told in str(result)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "f16"])
def test_a_forgotten_zero_grad_is_told(tmp_path: Path, dtype: torch.dtype) -> None:
    def sgd(parameters: Iterator[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.1)

    assert "call zero_grad() before each backward pass on the right" in str(
        trained(tmp_path, sgd, sgd, dtype, cleared=False)
    )
