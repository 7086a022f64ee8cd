"""Audits of recorded results: a right kernel passes, a wrong one does not, in every precision."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402

from twintrace.model.tensors import Spec  # noqa: E402
from twintrace.operations import Meaning, Operand  # noqa: E402
from twintrace.operations.audits import Audit, audit  # noqa: E402
from twintrace.operations.evaluation import NotRecomputable, Values, evaluate, run  # noqa: E402
from twintrace.operations.kernels import KERNELS  # noqa: E402
from twintrace.operations.recorded_gradients import Gradients  # noqa: E402
from twintrace.operations.scores import judge_result, precision_of  # noqa: E402

pytestmark = pytest.mark.needs_torch
NAMES = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16", torch.int64: "i64", torch.bool: "b8"}
FLOATS = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)


def values_of(tensors: dict[int, torch.Tensor]) -> Values:
    def read(number: int) -> object:
        if number not in tensors:
            return None
        tensor = tensors[number].detach()
        return (tensor.float() if tensor.is_floating_point() else tensor).numpy()

    return Values(read, lambda number: Spec(NAMES[tensors[number].dtype], tuple(tensors[number].shape)))


def rand(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


LINEAR = Meaning("linear", {"input": Operand(0), "weight": Operand(1), "bias": None}, {2: 0})


def audited_linear(x: torch.Tensor, w: torch.Tensor, y: torch.Tensor) -> Audit:
    return audit(LINEAR, values_of({0: x, 1: w, 2: y}))


def in_pieces(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    parts = x[..., :half].float() @ w[:, :half].float().T, x[..., half:].float() @ w[:, half:].float().T
    return (parts[0] + parts[1]).to(x.dtype)


def coarse(x: torch.Tensor, bits: int) -> torch.Tensor:
    mantissa, exponent = torch.frexp(x.double())
    return torch.ldexp(torch.round(mantissa * 2**bits) / 2**bits, exponent)


def damaged(y: torch.Tensor) -> torch.Tensor:
    wrong = y.clone()
    wrong[5, 7] = wrong[5, 7] * 1.03 + 0.05
    return wrong


WRONG: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "zero": torch.zeros_like,
    "negated": torch.neg,
    "halved": lambda y: y / 2,
    "a dead column": lambda y: torch.cat((y[:, :-1], y[:, -1:] * 0), 1),
    "one damaged element": damaged,
}


@FLOATS
@pytest.mark.parametrize("terms", [64, 1024, 4096])
def test_a_product_in_another_order_of_sums_passes(terms: int, dtype: torch.dtype) -> None:
    x, w = rand(64, terms).to(dtype), (rand(96, terms, seed=1) / math.sqrt(terms)).to(dtype)

    assert audited_linear(x, w, F.linear(x, w)).forward[2].ratio <= 1
    assert audited_linear(x, w, in_pieces(x, w)).forward[2].ratio <= 1


@FLOATS
@pytest.mark.parametrize("terms", [64, 1024, 4096])
@pytest.mark.parametrize("how", WRONG)
def test_a_wrong_product_fails(how: str, terms: int, dtype: torch.dtype) -> None:
    x, w = rand(64, terms).to(dtype), (rand(96, terms, seed=1) / math.sqrt(terms)).to(dtype)

    score = audited_linear(x, w, WRONG[how](F.linear(x, w)).to(dtype)).forward[2]

    assert score.ratio > 1
    assert not score.coarse_inside


@FLOATS
@pytest.mark.parametrize("terms", [64, 1024, 4096])
def test_a_product_times_0999_fails(terms: int, dtype: torch.dtype) -> None:
    x, w = rand(64, terms).to(dtype), (rand(96, terms, seed=1) / math.sqrt(terms)).to(dtype)

    score = audited_linear(x, w, (F.linear(x.double(), w.double()) * 0.999).to(dtype)).forward[2]

    assert score.ratio > 1


@pytest.mark.parametrize("bits", [11, 8], ids=["TF32", "bf16"])
@pytest.mark.parametrize("terms", [64, 1024, 4096])
def test_operands_of_fewer_bits_fail(terms: int, bits: int) -> None:
    x, w = rand(64, terms), rand(96, terms, seed=1) / math.sqrt(terms)

    score = audited_linear(x, w, F.linear(coarse(x, bits), coarse(w, bits)).float()).forward[2]

    assert score.ratio > 1


def test_operands_of_fewer_bits_pass_where_the_mode_was_recorded() -> None:
    x, w = rand(64, 1024), rand(96, 1024, seed=1) / 32
    values = values_of({0: x, 1: w, 2: F.linear(coarse(x, 11), coarse(w, 11)).float()})

    assert audit(LINEAR, values, operand_unit=2.0**-11).forward[2].ratio <= 1


def test_a_channel_times_0999_fails_in_bf16() -> None:
    """Every element is within its own rounding; the channel as a whole is not."""
    x, w = rand(4096, 64).bfloat16(), (rand(32, 64, seed=1) / 8).bfloat16()
    exact = F.linear(x.double(), w.double())
    y = exact.clone()
    y[:, 3] *= 0.999
    # Just above a power of two the unit of bf16, 2⁻⁸, is all that rounding takes: there 0.999 more would show in the element.
    within = (y.bfloat16().double() - exact).abs() <= 2**-8 * exact.abs()
    assert 0.9 < within[:, 3].double().mean() < 1

    score = audited_linear(x, w, torch.where(within, y, exact).bfloat16()).forward[2]

    assert score.ratio > 1
    assert score.test == "channel on axis 1: 3"


def test_rows_that_repeat_each_other_do_not_count_twice() -> None:
    """The same row a thousand times is rounded the same way a thousand times; that is no gain."""
    x, w = rand(1, 64).bfloat16().expand(1000, 64).contiguous(), (rand(8, 64, seed=1) / 8).bfloat16()

    assert audited_linear(x, w, F.linear(x, w)).forward[2].ratio <= 1


@FLOATS
def test_gradients_are_audited_by_their_own_product(dtype: torch.dtype) -> None:
    x, w = rand(16, 64).to(dtype).requires_grad_(), (rand(8, 64, seed=1) / 8).to(dtype).requires_grad_()
    y = F.linear(x, w)
    g = rand(16, 8, seed=2).to(dtype)
    gx, gw = torch.autograd.grad(y, (x, w), g)
    gradients = Gradients({2: 3}, {0: [4], 1: [5]})

    right = audit(LINEAR, values_of({0: x, 1: w, 2: y, 3: g, 4: gx, 5: gw}), gradients)
    wrong = audit(LINEAR, values_of({0: x, 1: w, 2: y, 3: g, 4: gx * 1.5, 5: gw}), gradients)

    assert max(score.ratio for score in right.backward.values()) <= 1
    assert wrong.backward[4].ratio > 1
    assert wrong.backward[5].ratio <= 1


@pytest.mark.parametrize(
    ("inner", "factor", "right"), [((3,), 1.0, True), ((), 1.0, True), ((3,), 1.5, False), ((), 1.5, False)]
)
def test_what_comes_back_to_a_result_from_within_its_call_is_no_second_gradient(
    inner: tuple[int, ...], factor: float, right: bool
) -> None:
    """A norm that is composed of functions returns the scale that it multiplies by, whether somebody takes it or not."""
    meaning = Meaning(
        "rms_norm", {"input": Operand(0), "normalized_shape": (64,), "weight": None, "eps": 1e-6}, {2: 0, 3: 1}
    )
    x = rand(16, 64).requires_grad_()
    scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
    y, g = x * scale, rand(16, 64, seed=2)
    gx, within = torch.autograd.grad(y, (x, scale), g)
    values = values_of({0: x, 2: y, 3: scale, 4: g, 5: within, 6: gx * factor})

    found = audit(meaning, values, Gradients({2: 4, 3: 5}, {0: [6]}, inner))

    assert (found.backward[6].ratio <= 1) is right


def test_a_part_of_the_bound_is_enough_until_the_whole_is_asked_for() -> None:
    """One term of eight bounds the sums of a right kernel; what that does not excuse is held to the whole bound."""
    x, w = rand(32, 256), rand(48, 256, seed=1) / 16
    exact = x.double() @ w.double().T
    limit = 2.0**-24 * (3 * 16 * (x.double().abs() @ w.double().abs().T) + exact.abs())
    values = values_of({0: x, 1: w, 2: F.linear(x, w)})

    part, whole = audit(LINEAR, values), audit(LINEAR, values, whole=True)
    assert (part.whole, whole.whole) == (False, True)
    assert whole.forward[2].ratio < part.forward[2].ratio <= 1
    assert part.forward[2].limit == pytest.approx(whole.forward[2].limit / 8, rel=0.1)

    for share, fine in ((0.5, True), (1.5, False)):  # half of the whole bound is beyond an eighth of it
        one = exact.clone()
        one[3, 4] += share * limit[3, 4]
        found = audit(LINEAR, values_of({0: x, 1: w, 2: one.float()}))
        assert found.whole
        assert (found.forward[2].ratio <= 1) is fine

    few = values_of({0: x[:, :64], 1: w[:, :64], 2: F.linear(x[:, :64], w[:, :64])})
    assert audit(LINEAR, few).forward[2].limit == audit(LINEAR, few, whole=True).forward[2].limit


def test_terms_that_cancel_are_counted_only_where_the_result_excuses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Σ(x·w)² takes a product of its own: it is computed where errors are large beside the result, as of sums that cancel."""
    from twintrace.operations import scoring

    asked: list[Meaning] = []
    squares = scoring._squares
    monkeypatch.setattr(
        scoring, "_squares", lambda meaning, operands: asked.append(meaning) or squares(meaning, operands)
    )
    x, w = rand(32, 256), rand(48, 256, seed=1) / 16
    assert audited_linear(x, w, F.linear(x, w)).forward[2].ratio <= 1
    assert not asked
    x[:, 128:], w[:, 128:] = x[:, :128], -w[:, :128] * (1 + 2.0**-12 * rand(48, 128, seed=2))
    backwards = sum(x[:, place : place + 1] @ w[:, place : place + 1].T for place in range(256))
    assert audited_linear(x, w, torch.as_tensor(backwards)).forward[2].ratio <= 1
    assert asked


def test_autocast_rounds_the_operands_first() -> None:
    x, w = rand(16, 64), rand(8, 64, seed=1) / 8

    assert audited_linear(x, w, F.linear(x.bfloat16(), w.bfloat16())).forward[2].ratio <= 1


def test_overflow_of_fp16_is_right() -> None:
    x = torch.tensor([10.0, 12.0, 1.0]).half()
    meaning = Meaning("exp", {"input": Operand(0)}, {1: 0})

    assert audit(meaning, values_of({0: x, 1: x.exp()})).forward[1].ratio <= 1
    assert (
        audit(meaning, values_of({0: x, 1: torch.tensor([math.inf, math.inf, math.inf]).half()})).forward[1].ratio
        == math.inf
    )


@pytest.mark.parametrize(
    ("dtype", "x", "flushed"), [("float32", -96.0, True), ("bfloat16", -96.0, True), ("float16", -12.0, False)]
)
def test_numbers_below_the_normal_ones_may_be_flushed_to_zero(dtype: str, x: float, flushed: bool) -> None:
    """Where the numbers that are left are small enough: those below float16's normal ones are in use."""
    values = values_of(
        {
            0: torch.tensor([x, 0.0], dtype=getattr(torch, dtype)),
            1: torch.tensor([0.0, 1.0], dtype=getattr(torch, dtype)),
        }
    )

    ratio = audit(Meaning("exp", {"input": Operand(0)}, {1: 0}), values).forward[1].ratio

    assert (ratio <= 1) is flushed


def test_any_of_tied_places_is_right() -> None:
    x = torch.tensor([[1.0, 3.0, 3.0]])
    meaning = Meaning("argmax", {"input": Operand(0), "dim": 1, "keepdim": False}, {1: 0})

    assert audit(meaning, values_of({0: x, 1: torch.tensor([2])})).forward[1].ratio == 0
    assert audit(meaning, values_of({0: x, 1: torch.tensor([0])})).forward[1].ratio == math.inf


def test_values_and_gradients_are_those_of_the_recorded_places() -> None:
    x, sent = torch.tensor([[1.0, 3.0, 3.0, 2.0]]), torch.tensor([[1.0, 10.0]])
    meaning = Meaning("topk", {"input": Operand(0), "k": 2, "dim": 1, "largest": True, "sorted": True}, {1: 0, 2: 1})

    def scores(places: list[int], gradient: list[float], values: tuple[float, float] = (3.0, 3.0)) -> tuple[float, ...]:
        tensors = {
            0: x, 1: torch.tensor([values]), 2: torch.tensor([places]), 3: sent, 4: torch.tensor([gradient]),
        }  # fmt: skip
        found = audit(meaning, values_of(tensors), Gradients({1: 3}, {0: [4]}))
        return found.forward[1].ratio, found.forward[2].ratio, found.backward[4].ratio

    assert scores([1, 2], [0.0, 1.0, 10.0, 0.0]) == (0, 0, 0)
    assert scores([2, 1], [0.0, 10.0, 1.0, 0.0]) == (0, 0, 0)
    assert scores([2, 1], [0.0, 1.0, 10.0, 0.0])[2] > 1
    assert scores([2, 3], [0.0, 0.0, 1.0, 10.0])[1] == math.inf
    assert min(scores([2, 3], [0.0, 0.0, 1.0, 10.0], (3.0, 2.0))[:2]) > 1
    assert scores([2, 2], [0.0, 0.0, 11.0, 0.0])[2] > 1
    assert scores([2, 7], [0.0, 0.0, 1.0, 0.0])[2] > 1


@pytest.mark.parametrize("operation", ["max_dim", "min_dim", "median_dim", "mode"])
def test_all_operations_that_tell_places_may_tell_any_of_equal_values(operation: str) -> None:
    x = torch.tensor([[5.0, 5.0, 5.0]])
    meaning = Meaning(operation, {"input": Operand(0), "dim": 1, "keepdim": False}, {1: 0, 2: 1})

    for place in range(3):
        scores = audit(meaning, values_of({0: x, 1: torch.tensor([5.0]), 2: torch.tensor([place])})).forward
        assert scores[1].ratio == scores[2].ratio == 0


@pytest.mark.parametrize(("one", "two"), [(0.0, -5.0), (1, 0), (True, False), (0.0, torch.tensor(2.0))])
def test_a_condition_may_choose_between_numbers(one: object, two: object) -> None:
    condition = torch.tensor([True, False, True])
    tensors = {0: condition, 1: torch.where(condition, one, two)}  # type: ignore[call-overload]
    if isinstance(two, torch.Tensor):
        tensors[2], two = two, Operand(2)
    meaning = Meaning("where", {"condition": Operand(0), "input": one, "other": two}, {1: 0})

    assert audit(meaning, values_of(tensors)).forward[1].ratio == 0


def test_either_derivative_is_right_at_a_kink() -> None:
    x = torch.tensor([-1.0, 0.0, 2.0])
    meaning = Meaning("relu", {"input": Operand(0)}, {1: 0})

    def score(gradient: list[float]) -> float:
        tensors = {0: x, 1: x.relu(), 2: torch.ones(3), 3: torch.tensor(gradient)}
        return audit(meaning, values_of(tensors), Gradients({1: 2}, {0: [3]})).backward[3].ratio

    assert score([0.0, 0.0, 1.0]) <= 1
    assert score([0.0, 1.0, 1.0]) <= 1
    assert score([1.0, 0.0, 1.0]) > 1


def test_a_gradient_may_go_to_any_of_tied_maxima() -> None:
    x = torch.zeros(1, 1, 1, 4)
    settings = {
        "kernel_size": (1, 2),
        "stride": (1, 2),
        "padding": ((0, 0), (0, 0)),
        "dilation": (1, 1),
        "ceil_mode": ((0, 0)),
    }
    meaning = Meaning("max_pool", {"input": Operand(0), **settings}, {1: 0})

    def score(gradient: list[float]) -> float:
        tensors = {
            0: x,
            1: torch.zeros(1, 1, 1, 2),
            2: torch.ones(1, 1, 1, 2),
            3: torch.tensor(gradient).reshape(1, 1, 1, 4),
        }
        return audit(meaning, values_of(tensors), Gradients({1: 2}, {0: [3]})).backward[3].ratio

    assert score([1.0, 0.0, 1.0, 0.0]) <= 1
    assert score([0.0, 1.0, 1.0, 0.0]) <= 1
    assert score([1.0, 0.0, 0.0, 0.0]) > 1


def test_values_that_were_not_kept_cannot_be_recomputed() -> None:
    values = Values(lambda number: None, lambda number: Spec("f32", (2, 2)))

    with pytest.raises(NotRecomputable, match=r"f32\[2, 2\] were not kept"):
        evaluate(LINEAR, lambda path, number: values(number))


def test_several_calls_are_one_function() -> None:
    x, w = rand(4, 8), rand(3, 8, seed=1)
    relu = Meaning("relu", {"input": Operand(2)}, {3: 0})

    made = run([LINEAR, relu], values_of({0: x, 1: w, 2: torch.full((4, 3), math.nan)}))

    torch.testing.assert_close(made[3], F.linear(x.double(), w.double()).relu())


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize(("share", "right"), [(3.40282e38 / 3.4028234663852886e38, True), (0.9, False), (-1.0, False)])
def test_the_largest_number_stands_for_infinity(dtype, share, right):
    """Programs write -3.40282e38 for -inf: a mask that is filled with it is no mistake of its kernel."""
    precision = precision_of(dtype, Meaning("masked_fill", {}, {1: 0}), "torch")
    got = torch.tensor([0.5, -share * precision.largest], dtype=torch.float64)
    want = torch.tensor([0.5, -math.inf], dtype=torch.float64)

    assert (judge_result(got, want, None, precision).ratio <= 1) is right


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("bound", [math.nan, math.inf])
def test_a_bound_that_overflowed_excuses_nothing(dtype, bound):
    precision = precision_of(dtype, Meaning("gru", {}, {1: 0}), "torch")
    want = torch.full((64,), 2.0, dtype=torch.float64)
    error = torch.zeros(64, dtype=torch.float64)
    error[7] = bound
    for units, right in ((60.0, True), (140.0, False)):  # 8·√64 units of an element and the rms of all
        got = want.clone()
        got[7] += units * 2.0 * precision.unit
        assert (judge_result(got, want, error, precision).ratio <= 1) is right


@FLOATS
@pytest.mark.parametrize("framework", ["torch", "mindspore"])
def test_a_masked_probability_is_zero(dtype: torch.dtype, framework: str) -> None:
    """A masked score is infinite; what a softmax makes of it is exact, forward and backward."""
    scores = rand(3, 5, 6).to(dtype).masked_fill(torch.ones(5, 6, dtype=torch.bool).triu(1), -math.inf).requires_grad_()
    weights = scores.softmax(-1)
    seed = rand(3, 5, 6, seed=1).to(dtype)
    weights.backward(seed)
    meaning = Meaning("softmax", {"input": Operand(0), "dim": -1}, {1: 0})
    tensors = {0: scores, 1: weights, 2: seed, 3: scores.grad}
    for number in (None, 1, 3):
        damaged = {key: tensor.detach().clone() for key, tensor in tensors.items()}
        if number is not None:
            damaged[number][1, 2, 5] += 0.01
        found = audit(meaning, values_of(damaged), Gradients({1: 2}, {0: [3]}), framework=framework)
        assert (found.forward[1].ratio > 1) is (number == 1)
        assert (found.backward[3].ratio > 1) is (number == 3)


def test_complex_numbers() -> None:
    """Elementwise products and moves are judged; what has no bound is not recomputed, and no error of the comparison."""
    a, b = (torch.complex(rand(8, 9, seed=seed), rand(8, 9, seed=seed + 1)) for seed in (0, 2))

    def audited(meaning: Meaning, result: torch.Tensor) -> Audit:
        tensors = {0: a, 1: b, 2: result}
        values = Values(
            lambda number: tensors[number].numpy(), lambda number: Spec("c64", tuple(tensors[number].shape))
        )
        return audit(meaning, values)

    product = Meaning("mul", {"input": Operand(0), "other": Operand(1)}, {2: 0})
    turned = Meaning("permute", {"input": Operand(0), "dims": (1, 0)}, {2: 0})
    wrong = (a * b).clone()
    wrong[2, 3] *= 1.00001

    assert audited(product, a * b).forward[2].ratio <= 1
    assert audited(product, wrong).forward[2].ratio > 1
    assert audited(product, a * b.conj()).forward[2].ratio > 1000
    assert audited(turned, a.T.contiguous()).forward[2].ratio == 0
    assert audited(turned, a.T.contiguous() * 1.01).forward[2].ratio > 1
    assert "complex" in audited(Meaning("exp", {"input": Operand(0)}, {2: 0}), a.exp()).failure


@pytest.mark.parametrize("steps", [2, 9, 257])
def test_steps_between_two_numbers(steps: int) -> None:
    """`linspace` multiplies a rounded step: more than one rounding of the result, and less than two of its ends."""
    meaning = Meaning("linspace", {"start": -1.0, "end": 3.7, "steps": steps, "dtype": "f32"}, {0: 0})
    right = torch.linspace(-1.0, 3.7, steps)
    wrong = right.clone()
    wrong[-1] *= 1.0001

    assert audit(meaning, values_of({0: right})).forward[0].ratio <= 1
    assert audit(meaning, values_of({0: wrong})).forward[0].ratio > 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("exponent", [3.0, 3, 2.5, -2.0])
def test_powers_in_16_bits(tmp_path, dtype, exponent):
    """PyTorch's kernel holds the square of a cube in 16 bits, as in the GELU of many models: right, and rounded twice."""
    import twintrace as tt

    x = torch.linspace(0.02, 2.0, 256)
    for name, kind in (("single", torch.float32), ("half", dtype)):
        base = x.to(kind)
        with tt.record(tmp_path / name, level="api", framework="torch", keep="tensor"):
            torch.pow(base, exponent)
    found = tt.compare(tmp_path / "single", tmp_path / "half")
    assert found.code == 0, str(found)


# --- kernels inside PyTorch -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("heads", [4, 2], ids=["a key for each query", "a key for two queries"])
def test_the_backward_pass_of_attention_is_that_of_autograd(causal: bool, masked: bool, heads: int) -> None:
    q, k, v, g = (rand(2, heads if seed in (1, 2) else 4, 5, 8, seed=seed).double() for seed in range(4))
    mask = rand(5, 5, seed=9).double() if masked else None
    given = [tensor.clone().requires_grad_() for tensor in (q, k, v)]
    key, value = (tensor.repeat_interleave(4 // heads, 1) for tensor in given[1:])
    scores = given[0] @ key.transpose(-2, -1) * 0.3
    scores = scores if mask is None else scores + mask
    scores = scores.masked_fill(~torch.ones(5, 5, dtype=torch.bool).tril(), -math.inf) if causal else scores
    wanted = torch.autograd.grad(scores.softmax(-1) @ value, given, g)

    found = KERNELS["attention_backward"](
        grad_out=g, query=q, key=k, value=v, dropout_p=0.0, is_causal=causal, attn_mask=mask, scale=0.3
    )

    assert all(torch.allclose(one, two) for one, two in zip(found, wanted, strict=True))


def test_a_kernel_that_checks_nothing_is_given_no_other_shapes() -> None:
    meaning = Meaning("torch.ops.aten._softmax.default", {"0": Operand(0), "1": 1, "2": False}, {1: 0})
    made_up = replace(meaning, arguments={**meaning.arguments, "0": Operand(-1)})

    def spec(_: int) -> Spec:
        return Spec("f32", (2, 3))

    assert run([meaning], lambda _: rand(2, 3), spec=spec)[1].shape == (2, 3)
    for other, shape in ((meaning, (2, 4)), (made_up, (2, 3))):
        with pytest.raises(NotRecomputable, match="as they were recorded only"):
            run([other], lambda _, shape=shape: rand(*shape), spec=spec)


def test_a_nan_that_signals_is_widened_in_silence():
    bits = np.array([0x7F800001, 0x3F800000], np.uint32).view(np.float32)
    values = Values(lambda number: bits, lambda number: Spec("f32", (2,)))
    assert values(0).dtype == torch.float64
    assert values(0).isnan().tolist() == [True, False]


def test_results_that_are_not_wanted_are_dropped_after_their_last_use():
    """A long slice does not hold everything that it has made."""
    steps = [Meaning("mul", {"input": Operand(place), "other": 2.0}, {place + 1: 0}) for place in range(4)]
    steps.append(Meaning("add", {"input": Operand(4), "other": Operand(2), "alpha": 1}, {5: 0}))
    x = rand(3)
    made = run(steps, values_of({0: x}), wanted={5, 1})
    assert made.keys() == {1, 5}
    assert torch.equal(made[5], 20 * x.double())
    assert run(steps, values_of({0: x})).keys() == {1, 2, 3, 4, 5}


@pytest.mark.parametrize(("factor", "right"), [(1.0, True), (0.99, False)])
def test_a_gain_of_few_large_results_is_seen(factor, right):
    """Gradients of 16 bits, most of them small: the gain's standard error is that of what it leaves over."""
    precision = precision_of("bf16", Meaning("gelu", {}, {1: 0}), "torch")
    want = torch.randn(768, generator=torch.Generator().manual_seed(1), dtype=torch.float64) ** 3
    got = (factor * want).to(torch.bfloat16).double()

    assert (judge_result(got, want, want.abs() / 8, precision).ratio <= 1) is right


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("sent", [(True, True, True), (True, False, False), (False, True, False), (False, False, True)])
def test_the_backward_pass_of_an_lstm_layer_is_that_of_autograd(reverse: bool, sent: tuple[bool, bool, bool]) -> None:
    shapes = (6, 2, 4), (20, 4), (20, 5), (20,), (20,), (2, 5), (2, 5)
    given = [rand(*shape, seed=seed).double().requires_grad_() for seed, shape in enumerate(shapes)]
    names = "input", "w_ih", "w_hh", "b_ih", "b_hh", "h", "c"
    results = KERNELS["lstm_layer"](**dict(zip(names, given, strict=True)), reverse=reverse)
    gradients = [rand(*result.shape, seed=9 + number).double() for number, result in enumerate(results)]
    chosen = [gradient if wanted else None for gradient, wanted in zip(gradients, sent, strict=True)]
    used = [(one, two) for one, two in zip(results, chosen, strict=True) if two is not None]
    wanted = torch.autograd.grad([one for one, _ in used], given, [two for _, two in used])

    found = KERNELS["lstm_layer_backward"](
        **{name: tensor.detach() for name, tensor in zip(names, given, strict=True)},
        **dict(zip(("grad_out", "grad_h", "grad_c"), chosen, strict=True)),
        reverse=reverse,
    )

    assert all(torch.allclose(one, two) for one, two in zip(found, wanted, strict=True))
