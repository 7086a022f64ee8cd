"""Mistakes in ports from PyTorch to MindSpore whose cause or place lies in calls that only MindSpore makes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import twintrace as tt  # noqa: E402
from tests.judge.recorded_pairs import Net, only_mistake, rand  # noqa: E402
from twintrace.model.results import Comparison  # noqa: E402

pytestmark = [pytest.mark.needs_torch, pytest.mark.needs_mindspore]


def compared(
    tmp_path: Path, left: nn.Module, right: Any, x: torch.Tensor, backward: bool = False, level: str = "mix"
) -> Comparison:
    import mindspore as ms

    with tt.record(tmp_path / "left", left, level=level, keep="tensor"):
        result = left(x)
        if backward:
            result.float().square().mean().backward()
    given = ms.Tensor(x.numpy())
    with tt.record(tmp_path / "right", right, level=level, keep="tensor"):
        if backward:
            ms.value_and_grad(lambda: right(given).square().mean(), None, right.trainable_params())()
        else:
            right(given)
    return tt.compare(tmp_path / "left", tmp_path / "right")


def cell(construct: Callable[..., Any], **parts: Any) -> Any:
    import mindspore as ms

    class Cell(ms.nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            for name, part in parts.items():
                setattr(self, name, part)

        def construct(self, x: Any) -> Any:
            return construct(self, x)

    return Cell()


def test_a_bias_that_a_convolution_adds_is_called_a_bias(tmp_path: Path) -> None:
    ms = pytest.importorskip("mindspore")
    conv = nn.Conv2d(3, 4, 3, bias=False)
    weight = ms.Tensor(conv.weight.detach().numpy())
    right = ms.nn.Conv2d(3, 4, 3, pad_mode="valid", has_bias=True, weight_init=weight, bias_init="ones")
    left = Net(lambda net, x: F.relu(net.conv(x)), conv=conv)
    found = compared(tmp_path, left, cell(lambda net, x: ms.ops.relu(net.conv(x)), conv=right), rand(2, 3, 8, 8))

    assert only_mistake(found).why.startswith("only the right adds a bias, f32[4] (mindspore.ops.BiasAdd); without it")


@pytest.mark.parametrize("base", [10000.0, 1000.0])
def test_a_table_that_is_cast_before_it_is_used_is_named(tmp_path: Path, base: float) -> None:
    """Neither the tables nor the casts are paired: their values differ."""
    ms = pytest.importorskip("mindspore")
    linear = nn.Linear(8, 8).half()
    weight, bias = (ms.Tensor(part.detach().numpy()) for part in (linear.weight, linear.bias))

    def table(base: float) -> np.ndarray[Any, Any]:
        return np.cos(np.outer(np.arange(10), base ** (-np.arange(8) / 8))).astype(np.float32)

    here, there = torch.from_numpy(table(10000.0)), ms.Tensor(table(base))
    left = Net(lambda net, x: net.a(x) * here.to(torch.float16), a=linear)
    dense = ms.nn.Dense(8, 8, weight, bias, dtype=ms.float16)
    right = cell(lambda net, x: net.a(x) * there.astype(ms.float16), a=dense)
    found = compared(tmp_path, left, right, rand(3, 10, 8).half())

    assert found.code == (base != 10000.0)
    if found.code:
        why = only_mistake(found).why
        assert "the two start from different" in tt.verdict(found), why


@pytest.mark.parametrize("cut", ["nothing", "weight", "value"])
def test_gate_and_up_in_one_weight(tmp_path: Path, cut: str) -> None:
    """The gradients of two weights beside that of one which holds both."""
    ms = pytest.importorskip("mindspore")
    layers = {name: nn.Linear(16, 16) for name in ("gate", "up", "down")}
    given = [ms.Tensor(torch.cat([layers[name].weight for name in ("gate", "up")]).detach().numpy())]
    given += [ms.Tensor(torch.cat([layers[name].bias for name in ("gate", "up")]).detach().numpy())]
    both = ms.nn.Dense(16, 32, *given)
    down = ms.nn.Dense(
        16, 16, *(ms.Tensor(part.detach().numpy()) for part in (layers["down"].weight, layers["down"].bias))
    )

    def stopped(value: Any, here: str) -> Any:
        return ms.ops.stop_gradient(value) if cut == here else value

    def right(net: Any, x: Any) -> Any:
        weight = ms.ops.cat([net.both.weight[:16], stopped(net.both.weight[16:], "weight")])
        gate, up = ms.ops.split(ms.ops.matmul(x, weight.T) + net.both.bias, 16, -1)
        return net.down(ms.ops.silu(gate) * stopped(up, "value"))

    left = Net(lambda net, x: net.down(F.silu(net.gate(x)) * net.up(x)), **layers)
    found = compared(tmp_path, left, cell(right, both=both, down=down), rand(2, 8, 16), backward=True)

    assert found.code == (0 if cut == "nothing" else 1)
    told = {
        "value": "only the right calls mindspore.ops.StopGradient",
        "weight": "the gradients of up.weight | both.weight",
    }
    assert told.get(cut, "") in str(found)


@pytest.mark.parametrize("level", ["api", "mix"])
def test_statistics_beside_the_result_of_a_norm_are_no_results(tmp_path: Path, level: str) -> None:
    """MindSpore's kernel puts out the mean and the variance, in float32 for float16."""
    ms = pytest.importorskip("mindspore")
    norm = nn.LayerNorm(16).half()
    right = ms.nn.LayerNorm((16,), epsilon=1e-5, dtype=ms.float16)
    left = Net(lambda net, x: net.norm(x), norm=norm)
    found = compared(tmp_path, left, cell(lambda net, x: net.norm(x), norm=right), rand(2, 8, 16).half(), level=level)

    assert found.code == 0
