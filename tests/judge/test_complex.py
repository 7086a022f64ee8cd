"""Complex numbers: rotations of keys and queries, learned filters in the frequency domain."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from tests.judge.recorded_pairs import Net, compared, rand  # noqa: E402
from twintrace.model.results import Comparison  # noqa: E402

pytestmark = pytest.mark.needs_torch

ANGLES = torch.outer(torch.arange(8.0), 10000.0 ** -(torch.arange(0, 16, 2) / 16))
Operation = Callable[[Any, Any], Any]


def filtered(tmp_path: Path, operations: tuple[Operation, Operation], *, trained: bool = True) -> Comparison:
    """Two networks in which a complex value meets a learned complex weight; the second layer adds up in another order."""

    def layer(net: Any, x: Any, side: int) -> Any:
        if not side:
            return net.a(x)
        weight, bias = net.a.weight, net.a.bias
        return x[..., :7] @ weight[:, :7].T + x[..., 7:] @ weight[:, 7:].T + bias

    def run(side: int, record: Callable[..., Any]) -> None:
        def forward(net: Any, x: Any) -> Any:
            value = torch.view_as_complex(layer(net, x, side).reshape(2, 8, 8, 2))
            made = operations[side](value, torch.view_as_complex(net.filter))
            return torch.view_as_real(made).flatten(2) if made.is_complex() else made

        net = Net(forward, a=nn.Linear(16, 16))
        net.filter = nn.Parameter(torch.stack((ANGLES.cos(), ANGLES.sin()), -1))
        with record(net):
            result = net(rand(2, 8, 16))
            if trained:
                result.square().mean().backward()

    return compared(tmp_path, run)


OPERATIONS: dict[str, Operation] = {
    "mul": lambda z, w: z * w,
    "div": lambda z, w: z / w,
    "add": lambda z, w: z + w,
    "sub": lambda z, w: w - z,
    "conj": lambda z, w: z * w.conj(),
    "square": lambda z, w: torch.square(z) - w,
    "abs": lambda z, w: (z * w).abs(),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_other_roundings_agree_in_both_passes(tmp_path: Path, name: str) -> None:
    assert filtered(tmp_path, (OPERATIONS[name], OPERATIONS[name])).code == 0


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("factor", [1 + 1e-4j, 1 - 1e-4j, 1.0001, -1])
def test_a_turn_is_told_whatever_the_parts(tmp_path: Path, factor: complex, trained: bool) -> None:
    """What constants may be off by has an imaginary part, too: a tolerance of it excused any turn."""
    result = filtered(tmp_path, (OPERATIONS["mul"], lambda z, w: z * (w * factor)), trained=trained)

    assert result.code == 1
    [mistake] = [mistake for item in result.results for mistake in item.mistakes if mistake.effective]
    what = "calls torch.Tensor.mul" if isinstance(factor, complex) else f"multiplies by {factor} (torch.Tensor.mul)"
    assert mistake.why.startswith(f"only the right {what}; without it the results agree")


def test_a_wrong_gradient_of_a_complex_value_is_told(tmp_path: Path) -> None:
    def wrong(z: Any, w: Any) -> Any:
        made = z * w
        made.register_hook(lambda gradient: gradient * (1 + 1e-3j))
        return made

    assert filtered(tmp_path, (OPERATIONS["mul"], wrong)).code == 1


@pytest.mark.parametrize("turned", [False, True])
def test_a_rotation_in_real_numbers_agrees_with_a_complex_one(tmp_path: Path, turned: bool) -> None:
    def rotated(value: Any, table: Any) -> Any:
        (even, odd), (cos, sin) = torch.view_as_real(value).unbind(-1), torch.view_as_real(table).unbind(-1)
        return torch.view_as_complex(torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1))

    ways = (rotated, OPERATIONS["mul"])
    assert filtered(tmp_path, ways[::-1] if turned else ways).code == 0


def transformed(tmp_path: Path, operations: tuple[Operation, Operation]) -> Comparison:
    """Two networks that mix tokens by Fourier transforms."""

    def run(side: int, record: Callable[..., Any]) -> None:
        def forward(net: Any, x: Any) -> Any:
            hidden = net.a(x)
            mixed = operations[side](torch, hidden)
            return net.b(nn.functional.layer_norm(hidden + mixed, (14,)))

        net = Net(forward, a=nn.Linear(14, 14), b=nn.Linear(14, 3))
        with record(net):
            net(rand(2, 9, 14)).square().mean().backward()

    return compared(tmp_path, run)


def by_numpy(_: Any, x: Any) -> Any:
    """No gradient comes back through it, and no call of it is recorded."""
    return torch.from_numpy(np.fft.fftn(x.detach().numpy(), axes=(1, 2)).real.astype(np.float32))


TRANSFORMS: dict[str, tuple[Operation, Operation]] = {
    "axis by axis": (
        lambda t, x: t.fft.fftn(x, dim=(1, 2)).real,
        lambda t, x: t.fft.fft(t.fft.fft(x, dim=1), dim=2).real,
    ),
    "of real numbers": (
        lambda t, x: t.fft.irfft(t.fft.rfft(x, dim=1) * 2, n=9, dim=1),
        lambda t, x: t.fft.ifft(t.fft.fft(x, dim=1) * 2, dim=1).real,
    ),
    "normalised": (
        lambda t, x: t.fft.ifft2(x, norm="ortho").abs(),
        lambda t, x: t.fft.ifftn(x, dim=(-2, -1), norm="ortho").abs(),
    ),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_agree_in_both_passes(tmp_path: Path, name: str) -> None:
    result = transformed(tmp_path, TRANSFORMS[name])

    assert result.code == 0
    assert not result.mistakes


OTHER_TRANSFORMS: dict[str, Operation] = {
    "norm": lambda t, x: t.fft.fftn(x, dim=(1, 2), norm="ortho").real,
    "axes": lambda t, x: t.fft.fftn(x, dim=(0, 2)).real,
    "part": lambda t, x: t.fft.fftn(x, dim=(1, 2)).imag,
    "cut": by_numpy,
    "partly cut": lambda t, x: t.fft.fftn(x * 0.9 + (x * 0.1).detach(), dim=(1, 2)).real,
}


@pytest.mark.parametrize("name", OTHER_TRANSFORMS)
def test_another_transform_is_told(tmp_path: Path, name: str) -> None:
    assert transformed(tmp_path, (TRANSFORMS["axis by axis"][0], OTHER_TRANSFORMS[name])).code == 1
