"""Kernels of 16 bits: right ones pass, whatever they add up in; wrong ones do not, forward and backward."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402

from twintrace.model.tensors import Spec  # noqa: E402
from twintrace.operations import Meaning, Operand  # noqa: E402
from twintrace.operations.audits import Audit, audit  # noqa: E402
from twintrace.operations.evaluation import Values  # noqa: E402
from twintrace.operations.recorded_gradients import Gradients  # noqa: E402
from twintrace.operations.rounding import RunningError  # noqa: E402
from twintrace.operations.scores import judge_result, precision_of  # noqa: E402
from twintrace.operations.simulation import rounded_steps  # noqa: E402

pytestmark = pytest.mark.needs_torch
NAMES = {torch.bfloat16: "bf16", torch.float16: "f16", torch.int64: "i64"}
HALVES = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
Wrong = Callable[[torch.Tensor], torch.Tensor]


def rand(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def norm_of(shape: tuple[int, ...]) -> list[torch.Tensor]:
    return [rand(*shape), rand(shape[1], seed=1) + 2, rand(shape[1], seed=2)]


ATTENTION = {"attn_mask": None, "dropout_p": 0.0, "is_causal": True, "scale": 16**-0.5, "enable_gqa": False}
BATCH = {"running_mean": None, "running_var": None, "training": True, "momentum": None, "eps": 1e-5}
KERNELS: dict[str, tuple[Callable[..., torch.Tensor], list[torch.Tensor], tuple[str, ...], dict[str, object]]] = {
    "tanh": (torch.tanh, [rand(40, 64)], ("input",), {}),
    "silu": (F.silu, [rand(40, 64)], ("input",), {}),
    "rsqrt": (torch.rsqrt, [rand(9, 33).abs() + 0.1], ("input",), {}),  # the root is rounded before it divides
    "sigmoid": (torch.sigmoid, [rand(40, 64)], ("input",), {}),
    "mul": (torch.mul, [rand(40, 64), rand(40, 64, seed=1)], ("input", "other"), {}),
    "layer_norm": (
        lambda x, w, b: F.layer_norm(x, (64,), w, b),
        norm_of((400, 64)),
        ("input", "weight", "bias"),
        {"normalized_shape": (64,), "eps": 1e-5},
    ),
    "group_norm": (
        lambda x, w, b: F.group_norm(x, 4, w, b),
        norm_of((4, 8, 6, 6)),
        ("input", "weight", "bias"),
        {"num_groups": 4, "eps": 1e-5},
    ),
    "batch_norm": (
        lambda x, w, b: F.batch_norm(x, None, None, w, b, True),
        norm_of((8, 8, 6, 6)),
        ("input", "weight", "bias"),
        BATCH,
    ),
    "scaled_dot_product_attention": (
        attend,
        [rand(2, 4, 64, 16, seed=seed) for seed in range(3)],
        ("query", "key", "value"),
        ATTENTION,
    ),
    "embedding": (
        lambda w: F.embedding(torch.arange(600) % 5, w),
        [rand(5, 16)],
        ("weight",),
        {"input": Operand(90), "padding_idx": None},
    ),
    "avg_pool": (
        lambda x: F.avg_pool2d(x, 3, 1),
        [rand(2, 3, 12, 12)],
        ("input",),
        {"kernel_size": (3, 3), "stride": (1, 1), "padding": ((0, 0), (0, 0)), "ceil_mode": (0, 0), "count_include_pad": True,
         "divisor_override": None},
    ),
    "max_pool": (
        lambda x: F.max_pool2d(x, 2),
        [rand(2, 3, 12, 12)],
        ("input",),
        {"kernel_size": (2, 2), "stride": (2, 2), "padding": ((0, 0), (0, 0)), "dilation": (1, 1), "ceil_mode": (0, 0)},
    ),
    "interpolate": (
        lambda x: F.interpolate(x, scale_factor=3, mode="bilinear"),
        [rand(2, 3, 14, 14)],
        ("input",),
        {"size": (42, 42), "scales": (3.0, 3.0), "mode": "bilinear", "align_corners": False, "antialias": False},
    ),
}  # fmt: skip


def scores_of(name: str, dtype: torch.dtype, output: Wrong = lambda y: y, gradient: Wrong = lambda g: g) -> Audit:
    """Audit of a kernel's results, changed as a wrong kernel might."""
    function, inputs, paths, settings = KERNELS[name]
    operands = [item.to(dtype).requires_grad_() for item in inputs]
    y = function(*operands)
    seed = rand(*y.shape, seed=9).to(dtype)
    sent = torch.autograd.grad(y, operands, seed)
    tensors = dict(enumerate(operands)) | {10: output(y.detach()), 11: seed, 90: torch.arange(600) % 5}
    tensors |= {20 + place: gradient(item) for place, item in enumerate(sent)}
    arguments = {path: Operand(place) for place, path in enumerate(paths)} | settings
    values = Values(
        lambda number: (
            (item := tensors[number].detach()) is not None
            and (item.float() if item.is_floating_point() else item).numpy()
        ),
        lambda number: Spec(NAMES[tensors[number].dtype], tuple(tensors[number].shape)),
    )
    inputs_of = {place: [20 + place] for place in range(len(operands))}
    return audit(Meaning(name, arguments, {10: 0}), values, Gradients({10: 11}, inputs_of))


def one_element(y: torch.Tensor) -> torch.Tensor:
    wrong = y.clone(memory_format=torch.contiguous_format)
    place = int(wrong.abs().argmax())
    wrong.view(-1)[place] *= 1.06
    return wrong


@pytest.mark.parametrize(("factor", "right"), [(1.0, True), (1.05, False)])
def test_a_convolution_of_images_whose_channels_lie_last_passes(factor: float, right: bool) -> None:
    """PyTorch has another kernel for them, which adds up small gradients in 16 bits in another order."""
    x, w = rand(2, 128, 4, 4).half(), rand(128, 1, 3, 3, seed=1).half()
    x = x.to(memory_format=torch.channels_last).requires_grad_()
    y = F.conv2d(x, w, padding=1, groups=128)
    seed = (rand(*y.shape, seed=10) * 1e-3).half().to(memory_format=torch.channels_last)
    (sent,) = torch.autograd.grad(y, x, seed)
    tensors = {0: x, 1: w, 10: y, 11: seed, 20: (sent * factor).half()}
    settings = {"stride": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1), "groups": 128}
    meaning = Meaning("conv", {"input": Operand(0), "weight": Operand(1), "bias": None, **settings}, {10: 0})
    values = Values(
        lambda number: tensors[number].detach().float().contiguous().numpy(),
        lambda number: Spec("f16", tuple(tensors[number].shape)),
    )

    found = audit(meaning, values, Gradients({10: 11}, {0: [20]}))

    assert (found.backward[20].ratio <= 1) is right


@HALVES
@pytest.mark.parametrize("name", KERNELS)
def test_a_right_kernel_passes(name: str, dtype: torch.dtype) -> None:
    found = scores_of(name, dtype)

    assert not found.failure
    assert not found.backward_failure
    assert max(score.ratio for score in (*found.forward.values(), *found.backward.values())) <= 1


@HALVES
@pytest.mark.parametrize("how", [one_element, lambda y: (y.double() * 0.99).to(y.dtype), lambda y: y / 2])
@pytest.mark.parametrize("name", KERNELS)
def test_a_wrong_result_fails(name: str, how: Wrong, dtype: torch.dtype) -> None:
    assert scores_of(name, dtype, output=how).forward[10].ratio > 1


@HALVES
@pytest.mark.parametrize("how", [one_element, lambda y: y / 2])
@pytest.mark.parametrize("name", KERNELS)
def test_a_wrong_gradient_fails(name: str, how: Wrong, dtype: torch.dtype) -> None:
    assert all(score.ratio > 1 for score in scores_of(name, dtype, gradient=how).backward.values())


@pytest.mark.parametrize("name", ["sigmoid", "tanh", "mul"])
def test_a_gradient_times_099_fails(name: str) -> None:
    wrong = scores_of(name, torch.bfloat16, gradient=lambda g: (g.double() * 0.99).to(g.dtype))

    assert all(score.ratio > 1 for score in wrong.backward.values())


@HALVES
def test_sums_in_sixteen_bits_are_told(dtype: torch.dtype) -> None:
    """The gradient of an embedding is added up in memory on CPUs; that of few tokens' norms in float32."""
    assert scores_of("embedding", dtype).backward[20].coarse_inside
    assert not any(score.coarse_inside for score in scores_of("tanh", dtype).backward.values())


def test_numbers_that_are_rounded_to_zero_are_no_gain() -> None:
    x = (rand(64, 64) * 4e-8).half()
    values = Values(
        lambda number: (x, (x.double() * 0.6).half())[number].float().numpy(), lambda _: Spec("f16", (64, 64))
    )

    found = audit(Meaning("mul", {"input": Operand(0), "other": 0.6}, {1: 0}), values)

    assert found.forward[1].ratio <= 1


@HALVES
@pytest.mark.parametrize("share", [1.0, 0.9])
def test_a_bias_may_be_added_by_a_kernel_of_its_own(share: float, dtype: torch.dtype) -> None:
    x, w, b = rand(32, 64).to(dtype), (rand(8, 64, seed=1) / 8).to(dtype), rand(8, seed=2).to(dtype)
    y = F.linear(x, w) + share * b
    tensors = x, w, b, y
    meaning = Meaning("linear", {"input": Operand(0), "weight": Operand(1), "bias": Operand(2)}, {3: 0})

    score = audit(
        meaning,
        Values(
            lambda number: tensors[number].float().numpy(),
            lambda number: Spec(NAMES[dtype], tuple(tensors[number].shape)),
        ),
    ).forward[3]

    assert (score.ratio <= 1) == (share == 1)


def test_a_power_that_overflows_on_the_way_is_infinite() -> None:
    """The gradient of 1/√x has the third power of the result in it."""
    held = precision_of("f16", Meaning("rsqrt", {}, {}), "torch")
    got, want = torch.tensor([math.inf, 3.0]).double(), torch.tensor([651.0, 3.0]).double()

    assert judge_result(got, want, None, held).ratio > 1
    assert judge_result(got, want, None, held, simulated=got).ratio <= 1
    assert judge_result(want, want, None, held, simulated=got).ratio > 1


def test_errors_of_one_sign_are_those_of_the_kernel_that_has_them() -> None:
    """1 - x² in the gradient of an arc sine is rounded before its root divides."""
    held = precision_of("bf16", Meaning("asin", {}, {}), "torch")
    want = rand(64, 64).double()
    wide = want.abs()

    assert judge_result(want * 1.02, want, wide, held).ratio > 1
    assert judge_result(want * 1.02, want, wide, held, simulated=want * 1.02).ratio <= 1
    assert judge_result(want * 0.98, want, wide, held, simulated=want * 1.02).ratio > 1


def test_zeros_without_memory_are_exact() -> None:
    """Autograd has them for the gradient of a sign."""
    with RunningError(2.0**-24, 2.0**-24) as errors:
        errors.add(torch._efficientzerotensor((2,)), torch.ones(2))

    assert errors.of(torch._efficientzerotensor((2,))) is None


@pytest.mark.parametrize(("number", "held"), [(0.1, 0.10009765625), (3.14159, 3.14159), (1e-45, 1e-45)])
def test_numbers_below_one_are_held_in_16_bits_where_each_step_is(number: float, held: float) -> None:
    """Factors of 0.1; not larger ones, nor an epsilon that would become zero."""
    x = torch.linspace(1, 2, 500).bfloat16().double()
    values = Values({1: x.float().numpy()}.get, lambda _: Spec("bf16", (500,)))
    meaning = Meaning("mul", {"input": Operand(1), "other": number}, {2: 0})
    found = rounded_steps(meaning, values, None, "bf16").results[2]
    assert torch.equal(found, (x * held).bfloat16().double())
    assert not torch.equal((x * 0.1).bfloat16(), (x * 0.10009765625).bfloat16())
