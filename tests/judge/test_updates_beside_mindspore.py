"""Updates of a port from PyTorch to MindSpore: a parameter that one side's optimizer passes over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import twintrace as tt  # noqa: E402
from tests.judge.recorded_pairs import Net, rand  # noqa: E402
from twintrace.model.results import Comparison  # noqa: E402

pytestmark = [pytest.mark.needs_torch, pytest.mark.needs_mindspore]


def trained(tmp_path: Path, passed_over: int | None, rate: float) -> Comparison:
    """Two steps of one net on both sides; in step `passed_over` the left has no gradient of its last weight."""
    import mindspore as ms

    layers = {"first": nn.Linear(8, 8, bias=False), "last": nn.Linear(8, 4, bias=False)}
    weights = {name: ms.Tensor(layer.weight.detach().numpy().copy()) for name, layer in layers.items()}
    left, x = Net(lambda net, x: net.last(torch.tanh(net.first(x))), **layers), rand(16, 8)

    class Port(ms.nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.first = ms.nn.Dense(8, 8, weight_init=weights["first"], has_bias=False)
            self.last = ms.nn.Dense(8, 4, weight_init=weights["last"], has_bias=False)

        def construct(self, x: Any) -> Any:
            return self.last(ms.ops.tanh(self.first(x)))

    right, given = Port(), ms.Tensor(x.numpy())
    ours = torch.optim.SGD(left.parameters(), lr=rate)
    theirs = ms.experimental.optim.SGD(right.trainable_params(), lr=rate)
    gradients = ms.value_and_grad(lambda: right(given).square().mean(), None, right.trainable_params())
    with tt.record(tmp_path / "left", left, level="mix", keep="tensor") as run:
        for step in range(2):
            left(x).square().mean().backward()
            if step == passed_over:
                left.last.weight.grad = None
            ours.step()
            ours.zero_grad()
            run.step()
    with tt.record(tmp_path / "right", right, level="mix", keep="tensor") as run:
        for _ in range(2):
            theirs(gradients()[1])
            run.step()
    return tt.compare(tmp_path / "left", tmp_path / "right")


@pytest.mark.parametrize("rate", [0.5, 1e-3])
@pytest.mark.parametrize("step", [0, 1])
def test_a_parameter_that_the_optimizer_passes_over_is_no_unavoidable_difference(
    tmp_path: Path, rate: float, step: int
) -> None:
    found = trained(tmp_path, step, rate)
    assert found.first is not None
    place = str(found).splitlines()[0]
    assert "mindspore.experimental.optim.SGD" in place
    assert place.endswith(f"step {step}, update")


def test_the_same_updates_agree(tmp_path: Path) -> None:
    assert trained(tmp_path, None, 0.5)
