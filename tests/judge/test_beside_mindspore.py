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


@pytest.mark.parametrize("level", ["api", "mix"])
@pytest.mark.parametrize(("shift", "code"), [(2.0, 0), (2.5, 1)])
def test_a_sum_that_is_written_over_a_value_of_the_run_is_no_state(
    tmp_path: Path, level: str, shift: float, code: int
) -> None:
    """MindSpore's `+=` returns another object than the one that it writes to, which nobody takes."""
    ms = pytest.importorskip("mindspore")
    table, places = rand(9, 8), rand(9)

    def plain(net: Any, x: torch.Tensor) -> torch.Tensor:
        h = x @ table.T
        h = h + (places.unsqueeze(0) * 0.5 + 2.0)
        return torch.softmax(h, -1) * h

    def written(net: Any, x: Any) -> Any:
        h = ms.mint.matmul(x, ms.Tensor(table.numpy()).T)
        p = ms.Tensor(places.numpy()).unsqueeze(0) * 0.5
        p += shift
        h += p
        return ms.mint.softmax(h, -1) * h

    found = compared(tmp_path, Net(plain), cell(written), rand(3, 8), level=level)
    assert found.code == code, found


@pytest.mark.parametrize("level", ["api", "mix"])
@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize(("share", "code"), [(0.1, 0), (0.2, 1), (0.0, 1)])
def test_state_that_a_method_writes_to_and_returns_is_one_result(
    tmp_path: Path, level: str, swapped: bool, share: float, code: int
) -> None:
    ms = pytest.importorskip("mindspore")

    def plain(net: Any, x: torch.Tensor) -> torch.Tensor:
        h = torch.tanh(x) * 2
        net.mean.copy_(net.mean + h.mean(0) * 0.1)
        return h

    def ported(net: Any, x: Any) -> Any:
        h = ms.mint.tanh(x) * 2
        if share:
            net.mean.copy_(net.mean + h.mean(0) * share)
        return h

    net = Net(plain)
    net.register_buffer("mean", torch.arange(6.0))
    port = cell(ported, mean=ms.Parameter(ms.Tensor(np.arange(6, dtype=np.float32)), requires_grad=False))
    found = compared(tmp_path, net, port, rand(4, 6), level=level)
    if swapped:
        found = tt.compare(tmp_path / "right", tmp_path / "left")
    assert found.code == code, found


def layers(shape: tuple[int, int]) -> tuple[nn.Linear, Any]:
    """A linear layer, and MindSpore's with the same weights."""
    ms = pytest.importorskip("mindspore")
    left, right = nn.Linear(*shape), ms.mint.nn.Linear(*shape)
    for name, value in left.named_parameters():
        getattr(right, name).set_data(ms.Tensor(value.detach().numpy()))
    return left, right


@pytest.mark.offered("mindspore.MsDispatchMode")
@pytest.mark.parametrize("frozen", [False, True])
def test_gradients_of_parameters_have_partners_at_level_op(tmp_path: Path, frozen: bool) -> None:
    ms = pytest.importorskip("mindspore")
    (one, two), (last, end) = layers((8, 6)), layers((6, 3))
    end.bias.requires_grad = not frozen
    left = Net(lambda net, x: net.b(torch.softmax(net.a(x), -1)), a=one, b=last)
    right = cell(lambda net, x: net.b(ms.mint.softmax(net.a(x), -1)), a=two, b=end)
    found = compared(tmp_path, left, right, rand(4, 8), backward=True, level="op")
    assert found.code == int(frozen), found
    assert ("only the left has a gradient of b.bias" in str(found)) is frozen


@pytest.mark.parametrize("name", ["squeeze", "reshape", "flatten", "t"])
def test_a_view_at_the_end_of_a_layer_is_recomputed(tmp_path: Path, name: str) -> None:
    """MindSpore 2.10 wraps these functions, without their names."""
    ms = pytest.importorskip("mindspore")
    given = {"squeeze": (0,), "reshape": ((-1,),), "flatten": (0,), "t": ()}[name]
    x = rand(6, 4) if name == "t" else rand(1, 6, 4)
    left = Net(lambda net, x: net.head(x), head=Net(lambda net, x: getattr(torch, name)(torch.sigmoid(x) * 10, *given)))
    head = cell(lambda net, x: getattr(ms.mint, name)(ms.mint.sigmoid(x) * 10, *given))
    found = compared(tmp_path, left, cell(lambda net, x: net.head(x), head=head), x)
    assert found.code == 0, found


def test_a_write_in_place_that_is_lost_is_told(tmp_path: Path) -> None:
    """MindSpore's add_ has a kernel for CPUs that returns the sum and writes nothing."""
    ms = pytest.importorskip("mindspore")
    values = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)

    class Left(torch.nn.Module):
        def forward(self, x):
            total = x * 0
            total.add_(x.sin())
            return total.reshape(2, 2, 6) * 2

    class Right(ms.nn.Cell):
        def construct(self, x):
            total = x * 0
            total.add_(ms.ops.sin(x))
            return total.reshape(2, 2, 6) * 2

    with tt.record(str(tmp_path / "left"), net := Left(), keep="tensor"):
        net(torch.from_numpy(values))
    with tt.record(str(tmp_path / "right"), cell := Right(), keep="tensor"):
        written = bool((cell(ms.Tensor(values)).asnumpy() != 0).any())

    result = tt.compare(str(tmp_path / "left"), str(tmp_path / "right"))

    if written:
        assert result.code == 0
    else:
        assert "the right's mindspore.Tensor.add_ does not give what it computes of its own operands" in str(result)
