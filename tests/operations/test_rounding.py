"""The running error bound: right kernels stay within it, and it is not so wide that wrong ones do."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402

from twintrace.operations.kernels import KERNELS  # noqa: E402
from twintrace.operations.rounding import FUNCTION_UNITS, WALK, RunningError  # noqa: E402
from twintrace.operations.traits import accuracy_of  # noqa: E402

pytestmark = pytest.mark.needs_torch
UNITS = {torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}
ROUNDS_INSIDE = {
    "cross_entropy",
    "batch_norm",
    "instance_norm",
    "log_softmax",
    "normalize",
    "rms_norm",
    "attention",
    "mish",
    "var",
    "std",
}
SUMS_IN_SIXTEEN_BITS = {
    "conv2d",
    "depthwise",
    "conv_transpose2d",
    "avg_pool2d",
    "max_pool2d",
    "embedding",
    "layer_norm",
}
"""PyTorch's CPU kernels add up parts of these in 16 bits, forward or backward."""


def rand(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape) + len(shape)))


CASES: dict[str, tuple[Callable[..., torch.Tensor], list[torch.Tensor]]] = {
    "linear": (F.linear, [rand(64, 256), rand(96, 256) / 16, rand(96)]),
    "linear of 4096": (F.linear, [rand(32, 4096), rand(64, 4096) / 64]),
    "matmul": (torch.matmul, [rand(2, 4, 32, 64), rand(2, 4, 64, 32)]),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (64,), w, b), [rand(32, 64), rand(64), rand(64)]),
    "rms_norm": (lambda x, w: F.rms_norm(x, (64,), w), [rand(32, 64), rand(64)]),
    "group_norm": (lambda x, w, b: F.group_norm(x, 4, w, b), [rand(4, 8, 6, 6), rand(8), rand(8)]),
    "batch_norm": (lambda x, w, b: F.batch_norm(x, None, None, w, b, True), [rand(8, 8, 6, 6), rand(8), rand(8)]),
    "instance_norm": (F.instance_norm, [rand(4, 8, 6, 6)]),
    "softmax": (lambda x: F.softmax(x, -1), [rand(32, 64) * 4]),
    "log_softmax": (lambda x: F.log_softmax(x, -1), [rand(32, 64) * 4]),
    "gelu": (F.gelu, [rand(64, 64) * 2]),
    "gelu by tanh": (lambda x: F.gelu(x, approximate="tanh"), [rand(64, 64) * 2]),
    "silu": (F.silu, [rand(64, 64) * 3]),
    "mish": (F.mish, [rand(64, 64)]),
    "tanh": (torch.tanh, [rand(64, 64)]),
    "sigmoid": (torch.sigmoid, [rand(64, 64) * 3]),
    "sin of large arguments": (torch.sin, [rand(64, 64).abs() * 999]),
    "exp": (torch.exp, [rand(64, 64) * 2]),
    "softplus": (F.softplus, [rand(64, 64) * 8]),
    "cross_entropy": (lambda x: F.cross_entropy(x, torch.arange(64) % 50), [rand(64, 50) * 3]),
    "conv2d": (
        lambda x, w, b: F.conv2d(x, w, b, padding=1, stride=2),
        [rand(2, 16, 12, 12), rand(24, 16, 3, 3) / 12, rand(24)],
    ),
    "depthwise": (lambda x, w: F.conv2d(x, w, groups=16), [rand(2, 16, 12, 12), rand(16, 1, 3, 3)]),
    "conv_transpose2d": (lambda x, w: F.conv_transpose2d(x, w, stride=2), [rand(2, 8, 6, 6), rand(8, 6, 3, 3)]),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 3, 2, 1), [rand(2, 8, 12, 12)]),
    "max_pool2d": (lambda x: F.max_pool2d(x, 3, 2, 1), [rand(2, 8, 12, 12)]),
    "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x, 1), [rand(2, 8, 12, 12)]),
    "attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        [rand(2, 4, 32, 16) for _ in range(3)],
    ),
    "sum": (lambda x: x.sum(0), [rand(4096, 16)]),
    "mean": (lambda x: x.mean(), [rand(128, 64) + 1]),
    "var": (lambda x: x.var(-1), [rand(64, 64) + 3]),
    "std": (lambda x: x.std(-1), [rand(64, 64)]),
    "interpolate by 3": (lambda x: F.interpolate(x, scale_factor=3, mode="bilinear"), [rand(4, 8, 14, 14)]),
    "interpolate": (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), [rand(2, 4, 6, 6)]),
    "embedding": (lambda w: F.embedding(torch.arange(64) % 10, w), [rand(10, 16)]),
    "normalize": (lambda x: F.normalize(x, dim=-1), [rand(64, 64)]),
    "cumsum": (lambda x: x.cumsum(-1), [rand(32, 128)]),
    "div": (torch.div, [rand(64, 64), rand(64, 65)[:, :64] + 3]),
    "logsumexp": (lambda x: torch.logsumexp(x, -1), [rand(32, 64)]),
    "smooth_l1_loss": (F.smooth_l1_loss, [rand(64, 64), rand(64, 65)[:, 1:]]),
    "glu": (F.glu, [rand(32, 64)]),
}


def ratios(name: str, dtype: torch.dtype) -> tuple[float, list[float], set[str]]:
    """Largest error over its bound: of the result, of each gradient; kernels without a rule."""
    function, inputs = CASES[name]
    operands = [item.to(dtype).requires_grad_() for item in inputs]
    result = function(*operands)
    seed = rand(*result.shape).to(dtype) if result.dim() else torch.ones_like(result)
    gradients = torch.autograd.grad(result, operands, seed)
    unit, least = UNITS[dtype], torch.finfo(dtype).tiny * torch.finfo(dtype).eps / 2
    wide = [item.detach().double().requires_grad_() for item in operands]
    inner = unit if name in ROUNDS_INSIDE else 2.0**-24
    math_only = torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)
    with math_only, RunningError(inner, 2.0**-24, least=least if inner == unit else 0.0) as errors:
        computed = function(*wide)
        errors.add(computed, unit * computed.detach().abs() + least)
        errors.unit, errors.least = unit, least
        if dtype is not torch.float32 and name in SUMS_IN_SIXTEEN_BITS:
            errors.sum_unit = unit
        back = torch.autograd.grad(computed, wide, seed.double())

    accuracy = accuracy_of(name, "torch")  # of approximations that differ between processors

    def ratio(got: torch.Tensor, want: torch.Tensor) -> float:
        error = errors.of(want)
        bound = unit * want.detach().abs() + least + (0.0 if error is None else error)
        if accuracy.absolute or accuracy.input:
            bound = bound + 2.0**-24 * (accuracy.absolute + accuracy.input * wide[0].detach().abs())
        apart = (got.detach().double() - want.detach()).abs()
        return float(torch.where(apart == 0, 0.0, apart / bound).max())

    forward = 0.0 if dtype is not torch.float32 and name == "conv_transpose2d" else ratio(result, computed)
    return forward, [ratio(one, two) for one, two in zip(gradients, back, strict=True)], errors.unknown


@pytest.mark.parametrize("dtype", UNITS, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_right_kernels_stay_within_the_bound(name: str, dtype: torch.dtype) -> None:
    forward, backward, unknown = ratios(name, dtype)

    assert forward <= 1
    assert max(backward) <= 1
    assert not unknown


def test_the_bound_of_a_product_is_that_of_a_random_walk() -> None:
    """2·√K units of Σ|x·w|: a wider constant would excuse TF32, a narrower one accuse sequential sums."""
    x, w = rand(4, 1024).double(), rand(8, 1024).double()

    with RunningError(2.0**-24, 2.0**-24) as errors:
        y = x @ w.T

    error = errors.of(y)
    assert error is not None
    walk = 1.001 * WALK * math.sqrt(1024) * 2.0**-24 * (x.abs() @ w.abs().T) + 2.0**-24 * y.abs()
    torch.testing.assert_close(error, walk, rtol=1e-5, atol=0.0)
    assert WALK == 3.0


@pytest.mark.parametrize("convolution", [False, True])
def test_a_sum_of_one_value_many_times_rounds_in_one_direction(convolution: bool) -> None:
    """The gradient of a mean over 2048 places, summed one after another in float32: 5 times what a random walk explains."""
    share = torch.tensor([0.7, -0.3, 0.21]) / 2048
    terms = share.expand(2048, 3)
    got = torch.zeros(3)
    for term in terms:
        got += term
    with RunningError(2.0**-24, 2.0**-24) as errors:
        if convolution:
            g, weight = terms.double().T.reshape(1, 3, 32, 64), torch.zeros(3, 1, 1, 1, dtype=torch.float64)
            image = torch.zeros(1, 1, 32, 64, dtype=torch.float64)
            want = torch.ops.aten.convolution_backward(
                g, image, weight, [3], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True, True, True]
            )[2]
        else:
            want = terms.double().sum(0)
    error = errors.of(want)
    walk = WALK * math.sqrt(2048) * 2.0**-24 * want.abs()
    assert error is not None
    assert ((got - want).abs() > walk).any()
    assert ((got - want).abs() <= error).all()
    assert (error < 1e-3 * want.abs()).all()
    spread = terms.double() * torch.linspace(1, 2, 2048, dtype=torch.float64)[:, None]
    with RunningError(2.0**-24, 2.0**-24) as errors:  # only where values repeat
        total = spread.sum(0)
    assert torch.allclose(errors.of(total), (WALK * math.sqrt(2048) + 1) * 2.0**-24 * total.abs())


def test_an_elementary_function_may_be_off_by_eight_units() -> None:
    x = rand(1000).double()

    with RunningError(2.0**-24, 2.0**-24) as errors:
        y = x.exp()

    torch.testing.assert_close(errors.of(y), FUNCTION_UNITS * 2.0**-24 * y)
    assert FUNCTION_UNITS == 8.0


def test_errors_follow_views_and_writes_in_place() -> None:
    x = rand(8, 8).double()

    with RunningError(2.0**-24, 2.0**-24) as errors:
        y = x * 3.0
        part = y[2:4].T
        y[2] += 1.0

    assert torch.equal(errors.of(part)[:, 1], (2.0**-24 * y[3].abs()))  # type: ignore[index]
    assert bool((errors.of(y)[2] > errors.of(part)[:, 1].min() * 0).all())  # type: ignore[index]


def test_what_vanishes_in_a_sum_has_no_rounding_there() -> None:
    """Nor is there any in the sum: it is the other number."""
    a, b = torch.tensor([0.5, 0.5, 0.5], dtype=torch.float64), torch.tensor([-1e30, -1e9, 2.0], dtype=torch.float64)
    with RunningError(2**-24, 2**-24) as mode:
        mode.add(a, torch.full_like(a, 1e-3))
        for total in (a + b, b + a):
            bound = mode.of(total)
            assert bound is not None
            assert bound.tolist() == pytest.approx([0.0, 1e-3 + 1e9 * 2**-24, 1e-3 + 2.5 * 2**-24])


def test_a_product_with_a_power_of_two_is_exact() -> None:
    x = rand(8, 8).double()

    with RunningError(2.0**-24, 2.0**-24) as errors:
        exact, rounded = x * 0.5, x * 0.3

    assert errors.of(exact) is None
    assert errors.of(rounded) is not None


@pytest.mark.parametrize("name", ["batch_norm", "instance_norm"])
@pytest.mark.parametrize("is_composed", [False, True])
@pytest.mark.parametrize("is_affine", [False, True])
def test_norms_by_known_statistics_may_cancel(name: str, is_composed: bool, is_affine: bool) -> None:
    """Kernels compute x·scale + (bias - mean·scale): both terms are rounded, and large beside their sum far from zero."""
    mean, variance = rand(64) * 50, rand(64).abs() + 0.01
    weight, bias = (rand(64), rand(64) * 3) if is_affine else (None, None)
    x = mean[:, None, None] + rand(4, 64, 8, 8)
    got = getattr(F, name)(x, mean, variance, weight, bias, False).double()
    exact = [item if item is None else item.double() for item in (x, mean, variance, weight, bias)]
    mode = RunningError(2.0**-24, 2.0**-24)
    with mode:
        want = getattr(F, name)(*exact, False) if is_composed else KERNELS[name](*exact, False, 0.1, 1e-5)
    error = mode.of(want)
    assert error is not None
    worst = float(((got - want).abs() / (error + 2.0**-24 * want.abs())).max())
    assert 0.2 < worst < 1
