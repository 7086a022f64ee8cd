"""Values that part on the way and meet again: other steps, weights in another order or folded into others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

from tests.judge.recorded_pairs import Net, compared, rand  # noqa: E402

pytestmark = pytest.mark.needs_torch
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
CAP = 5.0


def trained(net: nn.Module, x: torch.Tensor, record: Callable[..., Any], steps: int = 1) -> None:
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with record(net) as recorder:
        for _ in range(steps):
            optimizer.zero_grad()
            net(x).float().square().mean().backward()
            optimizer.step()
            recorder.step()


@DTYPES
@pytest.mark.parametrize(("factor", "code"), [(2.0, 0), (1.99, 1)])
def test_a_soft_cap_by_sigmoid_is_one_by_tanh(tmp_path: Path, dtype: torch.dtype, factor: float, code: int) -> None:
    def run(side: int, record: Callable[..., Any]) -> None:
        def forward(net: Any, x: torch.Tensor) -> torch.Tensor:
            h = net.a(x)
            capped = 2 * torch.sigmoid(factor * h / CAP) - 1 if side else torch.tanh(h / CAP)
            return net.b(capped * CAP)

        net = Net(forward, a=nn.Linear(16, 16), b=nn.Linear(16, 4)).to(dtype)
        trained(net, rand(8, 16).to(dtype), record)

    assert compared(tmp_path, run).code == code


def rotated(x: torch.Tensor, interleaved: bool) -> torch.Tensor:
    angles = torch.arange(x.shape[-2])[:, None] / 10.0 ** torch.arange(x.shape[-1] // 2)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    a, b = (x[..., ::2], x[..., 1::2]) if interleaved else x.chunk(2, -1)
    halves = a * cos - b * sin, b * cos + a * sin
    return torch.stack(halves, -1).flatten(-2) if interleaved else torch.cat(halves, -1)


@DTYPES
@pytest.mark.parametrize(("permuted", "code"), [("qk", 0), ("q", 1)])
def test_weights_in_the_order_of_another_rotation_are_the_same_network(
    tmp_path: Path, dtype: torch.dtype, permuted: str, code: int
) -> None:
    """Interleaved rotations and rotations of halves, as checkpoints are converted; over two steps of training."""

    def run(side: int, record: Callable[..., Any]) -> None:
        def forward(net: Any, x: torch.Tensor) -> torch.Tensor:
            q, k, v = (part(x).view(2, 8, 2, 8).transpose(1, 2) for part in (net.q, net.k, net.v))
            made = F.scaled_dot_product_attention(rotated(q, not side), rotated(k, not side), v)
            return net.o(made.transpose(1, 2).reshape(x.shape))

        net = Net(forward, **{name: nn.Linear(16, 16) for name in "qkvo"})
        order = torch.cat((torch.arange(0, 8, 2), torch.arange(1, 8, 2)))
        for name in permuted if side else "":
            layer = getattr(net, name)
            with torch.no_grad():
                layer.weight.copy_(layer.weight[torch.cat((order, order + 8))])
                layer.bias.copy_(layer.bias[torch.cat((order, order + 8))])
        trained(net.to(dtype), rand(2, 8, 16).to(dtype), record, 2)

    result = compared(tmp_path, run)

    assert result.code == code
    assert (
        any("other weights, of which the calls after them make the same" in note for note in result.remarks) is not code
    )


@DTYPES
@pytest.mark.parametrize(("factor", "code"), [(1.0, 0), (1.1, 1)])
def test_a_norm_folded_into_a_convolution_is_the_same(
    tmp_path: Path, dtype: torch.dtype, factor: float, code: int
) -> None:
    """A wrong variance is 5 % of each channel, within the rounding of single weights of bf16, but not of all together."""

    def run(side: int, record: Callable[..., Any]) -> None:
        conv, norm, last = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 4, 1)
        with torch.no_grad():
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.5, 2).mul_(factor if side else 1.0)
            norm.weight.normal_()
        norm.eval()
        first = [torch.nn.utils.fuse_conv_bn_eval(conv.eval(), norm)] if side else [conv, norm]
        net = nn.Sequential(*first, nn.ReLU(), last).to(dtype).eval()
        with record(net), torch.no_grad():
            net(rand(2, 3, 8, 8).to(dtype))

    assert compared(tmp_path, run).code == code


def test_other_weights_that_this_input_does_not_show_are_other_weights(tmp_path: Path) -> None:
    def run(side: int, record: Callable[..., Any]) -> None:
        net = nn.Sequential(nn.Embedding(8, 4), nn.Linear(4, 4))
        with torch.no_grad():
            net[0].weight[7] += side
        with record(net):
            net(torch.arange(5))

    assert compared(tmp_path, run).code == 1


def by_complex_numbers(x: torch.Tensor, base: float) -> torch.Tensor:
    angles = torch.arange(x.shape[-2])[:, None] / base ** torch.arange(x.shape[-1] // 2)
    turns = torch.polar(torch.ones_like(angles), angles)
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns).flatten(-2).type_as(x)


@DTYPES
@pytest.mark.parametrize(("base", "code"), [(10.0, 0), (10.2, 1)])
def test_a_rotation_by_complex_numbers_is_one_by_sines(
    tmp_path: Path, dtype: torch.dtype, base: float, code: int
) -> None:
    """In 16 bits the numbers are f32, cast after they were moved. Another base is within the rounding of bf16, and is told."""

    def run(side: int, record: Callable[..., Any]) -> None:
        def forward(net: Any, x: torch.Tensor) -> torch.Tensor:
            q, k, v = (part(x).view(2, 8, 2, 8).transpose(1, 2) for part in (net.q, net.k, net.v))
            q, k = (by_complex_numbers(part, base) if side else rotated(part, True) for part in (q, k))
            return net.o(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape))

        net = Net(forward, **{name: nn.Linear(16, 16) for name in "qkvo"}).to(dtype)
        trained(net, rand(2, 8, 16).to(dtype), record)

    assert compared(tmp_path, run).code == code


@pytest.mark.parametrize(("factor", "tries"), [(1 + 2.0**-21, 0), (1 + 1e-4, 24)], ids=["units", "more"])
def test_weights_a_little_off_are_recomputed_in_linear_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, factor: float, tries: int
) -> None:
    """All values lie near each other, and none meets again: not each of them is recomputed from the beginning of the net."""
    from twintrace.operations import recomputation

    computed = []
    original = recomputation.run
    monkeypatch.setattr(recomputation, "run", lambda *args: computed.append(len(args[0])) or original(*args))

    def run(side: int, record: Callable[..., Any]) -> None:
        net = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(48)))
        with torch.no_grad():
            for weight in net.parameters():
                weight.mul_(factor if side else 1.0)
        with record(net), torch.no_grad():
            net(rand(4, 8))

    assert compared(tmp_path, run).code == 1
    # Each of 96 calls twice; a try is of at most 24 calls, four times.
    assert sum(computed) <= 2 * 96 + tries * 24 * 4
