"""Results and gradients that are not finite on one side alone, though both sides mean the same."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

from tests.judge.recorded_pairs import Net, compared, rand  # noqa: E402
from twintrace.judge.ranges import RangeJudge  # noqa: E402
from twintrace.model.results import Comparison, Mistake  # noqa: E402
from twintrace.model.values import TensorRef  # noqa: E402
from twintrace.operations.sides import Slice  # noqa: E402

pytestmark = pytest.mark.needs_torch
Function = Callable[[Any], Any]
ORDERS = pytest.mark.parametrize("turned", [False, True], ids=["on the right", "on the left"])
LEVELS = pytest.mark.parametrize("level", ["mix", "op"])
_SEEN = torch.tril(torch.ones(8, 8)).bool()


def pair(
    tmp_path: Path,
    functions: tuple[Function, Function],
    *,
    turned: bool = False,
    dtype: Any = torch.float16,
    **options: Any,
) -> Comparison:
    """Two networks that end in functions of the same meaning; the second comes first if `turned`."""

    def run(side: int, record: Callable[..., Any]) -> None:
        function = functions[side ^ turned]
        net = Net(lambda net, x: function(net.a(x)), a=nn.Linear(16, 16)).to(dtype)
        with record(net):
            net(rand(8, 16).to(dtype)).float().sum().backward()

    return compared(tmp_path, run, **options)


def first(result: Comparison) -> Mistake:
    return next(mistake for item in result.results for mistake in item.mistakes if mistake.effective)


def softmax_by_hand(x: Any) -> Any:
    powers = (x * 20).exp()
    return powers / powers.sum(-1, keepdim=True)


def tanh_by_hand(x: Any) -> Any:
    up, down = torch.exp(x * 20), torch.exp(x * -20)
    return (up - down) / (up + down)


CASES = {
    "softmax": (lambda x: torch.softmax(x * 20, -1), softmax_by_hand, "exp: overflow", "f16 ends at exp(11.09)"),
    "tanh": (lambda x: torch.tanh(x * 20), tanh_by_hand, "exp: overflow", "f16 ends at exp(11.09)"),
    "logsumexp": (
        lambda x: torch.logsumexp(x * 30, -1), lambda x: (x * 30).exp().sum(-1).log(), "exp: overflow", "f16 ends at exp(11.09)",
    ),
    "cross entropy": (
        lambda x: F.cross_entropy(x * 60, torch.zeros(8, dtype=torch.long)),
        lambda x: -torch.softmax(x * 60, -1).log()[:, 0].mean(), "log: log of zero", "elements of the input are 0",
    ),
    "norm": (
        lambda x: torch.linalg.vector_norm(x * 300), lambda x: ((x * 300) ** 2).sum().sqrt(), "overflow", "largest number of f16",
    ),
    "normalize": (
        lambda x: F.normalize(x * 1e-4, dim=-1), lambda x: (x * 1e-4) / (x * 1e-4).square().sum(-1, keepdim=True).sqrt(),
        "div: division by zero", "elements of the divisor are 0",
    ),
}  # fmt: skip


@ORDERS
@pytest.mark.parametrize("name", CASES)
def test_a_result_that_is_not_finite_on_one_side_is_told_with_its_call(tmp_path: Path, name: str, turned: bool) -> None:
    right, wrong, *causes = CASES[name]

    result = pair(tmp_path, (right, wrong), turned=turned)
    mistake = first(result)

    side = "left" if turned else "right"
    assert result.code == 1
    assert (mistake.kind, mistake.side, mistake.backward) == ("range", side, False)
    assert mistake.why.startswith(f"the {side}'s torch.")
    assert all(cause in mistake.why.replace("__pow__", "pow") for cause in causes)
    [call] = mistake.left if turned else mistake.right
    assert call.site.name in mistake.why


@ORDERS
def test_an_infinity_that_the_result_does_not_show(tmp_path: Path, turned: bool) -> None:
    """Squares overflow, and what is divided by their root is zero: each call is right for what it takes."""

    def by_hand(x: Any) -> Any:
        large = x * 600
        return large / (large.square().mean(-1, keepdim=True) + 1e-5).sqrt()

    result = pair(tmp_path, (lambda x: F.rms_norm(x * 600, (16,), eps=1e-5), by_hand), turned=turned)
    mistake = first(result)

    side = "left" if turned else "right"
    assert result.code == 1
    assert mistake.kind == "range"
    assert mistake.what.startswith(
        f"the {side}'s result is lost to rounding: 1.0e+00 from what its calls compute in float64"
    )
    assert mistake.why.startswith(f"the {side}'s torch.Tensor.square: overflow")


@ORDERS
def test_zeros_on_the_way_that_the_result_does_not_show(tmp_path: Path, turned: bool) -> None:
    """Squares of 1e-4 are zero in f16, and the epsilon alone is left to divide by."""

    def by_hand(x: Any) -> Any:
        small = x * 1e-4
        return small / small.square().sum(-1, keepdim=True).sqrt().clamp_min(1e-5)

    result = pair(tmp_path, (lambda x: F.normalize(x * 1e-4, dim=-1, eps=1e-5), by_hand), turned=turned)

    side = "left" if turned else "right"
    assert result.code == 1
    assert any(
        mistake.kind == "range" and mistake.why.startswith(f"the {side}'s torch.Tensor.square rounds it away")
        for item in result.results
        for mistake in item.mistakes
    )


@ORDERS
@LEVELS
def test_a_gradient_that_is_not_finite_on_one_side(tmp_path: Path, level: str, turned: bool) -> None:
    """1 / (1 + inf) is a right result, and its gradient is 0 · inf."""
    functions = (lambda x: F.silu(x * -30), lambda x: (x * -30) / (1 + torch.exp(x * 30)))

    result = pair(tmp_path, functions, turned=turned, level=level)
    mistake = first(result)

    assert result.code == 1
    assert mistake.kind == "range"
    assert "exp" in mistake.why
    if level == "mix":
        assert mistake.backward
        assert "zero times infinity: exp overflowed in the forward pass" in mistake.why


def test_statistics_are_enough(tmp_path: Path) -> None:
    right, wrong, *_ = CASES["softmax"]

    result = pair(tmp_path, (right, wrong), keep="statistics")

    assert result.code == 1
    assert first(result).kind == "range"
    assert "f16 ends at exp(11.09)" in first(result).why


@LEVELS
def test_an_optimizer_whose_epsilon_its_type_cannot_hold(tmp_path: Path, level: str) -> None:
    def run(side: int, record: Callable[..., Any]) -> None:
        net = nn.Linear(16, 16).half()
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, fused=not side)
        with record(net):
            (net(rand(8, 16).half()) * 1e-4).float().sum().backward()
            optimizer.step()

    result = compared(tmp_path, run, level=level)
    mistake = first(result)

    assert result.code == 1
    assert (mistake.kind, mistake.side) == ("range", "right")
    cause = "eps=1e-08 is 0 in f16" if level == "mix" else "256 of 256 elements of the divisor are 0"
    assert f"division by zero{' in the optimizer' * (level == 'mix')}: {cause}" in mistake.why
    assert ("on the right alone" in str(result)) == (level == "op")  # Adam.step has a partner, its addcdiv_ has none


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
def test_the_same_overflow_on_both_sides_is_none(tmp_path: Path, dtype: Any) -> None:
    functions = (lambda x: (x * 1e3).exp().clamp(max=5.0), lambda x: torch.exp(x * 1e3).clamp(max=5.0))

    assert pair(tmp_path, functions, dtype=dtype).code == 0


def attention(mask: Function) -> Function:
    return lambda x: torch.softmax(mask(x @ x.T / 4), -1) @ x


def added(value: float, dtype: Any = torch.float16) -> Function:
    return lambda scores: scores + torch.zeros(8, 8, dtype=dtype).masked_fill(~_SEEN, value).to(scores.dtype)


MASKS = {
    "-inf | -1e4": (lambda s: s.masked_fill(~_SEEN, -torch.inf), lambda s: s.masked_fill(~_SEEN, -1e4)),
    "-inf | the least number": (lambda s: s.masked_fill(~_SEEN, -torch.inf), lambda s: s.masked_fill(~_SEEN, -65504.0)),
    "added below the range": (lambda s: (s - 40).masked_fill(~_SEEN, -torch.inf), lambda s: added(-65504.0)(s - 40)),
    "cast below the range": (added(-1e9, torch.float32), added(-1e4)),
    "-1e4 | cast f32's least number": (added(-1e4), added(torch.finfo(torch.float32).min, torch.float32)),
}


@ORDERS
@LEVELS
@pytest.mark.parametrize("name", MASKS)
def test_masks_that_hide_the_same_are_none(tmp_path: Path, name: str, level: str, turned: bool) -> None:
    one, two = MASKS[name]

    assert pair(tmp_path, (attention(one), attention(two)), level=level, turned=turned).code == 0


@ORDERS
def test_a_row_that_a_mask_hides_whole_is_told(tmp_path: Path, turned: bool) -> None:
    """With -1e9, which is -inf in f16, the row is NaN; with -1e4 it is the mean."""
    closed = _SEEN.clone()
    closed[3] = False

    def mask(value: float) -> Function:
        return lambda scores: scores + torch.zeros(8, 8).masked_fill(~closed, value).to(scores.dtype)

    result = pair(tmp_path, (attention(mask(-1e4)), attention(mask(-1e9))), turned=turned)

    assert result.code == 1
    assert "NaN" in str(result) or "inf" in str(result)


# --- masks that MSAdapter fills with the last number of the type, though the call says -inf ---------------------------------


def odd(
    judge: RangeJudge, left: Any, right: Any, exact: Any, edge: int = 0, made: int = 1, dtype: str = "f16"
) -> tuple[bool, bool]:
    """Elements that are not finite on one side alone, of two values that both calls mean to be `exact`: they make one in float16,
    of which another one makes these.
    """
    spec, half = (SimpleNamespace(spec=SimpleNamespace(dtype=name)) for name in (dtype, "f16"))
    side = SimpleNamespace(tensor=lambda number: spec if number == made else half)
    fill: Any = SimpleNamespace(output=TensorRef(99), after={})
    item = SimpleNamespace(left=spec, right=spec, pair=SimpleNamespace(left=made, right=made, layout=None))
    values = torch.tensor(left), torch.tensor(right)
    judge._state = SimpleNamespace(  # type: ignore[assignment]
        recomputation=SimpleNamespace(
            recorded=SimpleNamespace(laid_alike=lambda numbers, layout: values),
            exact=lambda *slices: (torch.tensor(exact), torch.tensor(exact)),
        ),
        sides=(side, side),
    )
    return judge._odd_elements(item, (Slice(made, (fill,), (edge,)), Slice(made, (fill,), (edge,)), {}))  # type: ignore[arg-type]


def test_the_last_number_of_a_type_is_its_infinity_where_that_is_meant() -> None:
    judge = RangeJudge(None)  # type: ignore[arg-type]

    assert odd(judge, [-math.inf, 1.0], [-65504.0, 1.0], [-math.inf, 1.0], made=1) == (False, False)
    assert odd(judge, [-math.inf, 1.0], [-65000.0, 1.0], [-math.inf, 1.0], made=2) == (True, False)
    assert odd(judge, [math.inf, 1.0], [-65504.0, 1.0], [math.inf, 1.0], made=2) == (True, False)
    assert odd(judge, [-math.inf, 1.0], [-65504.0, 1.0], [-7e4, 1.0], made=2) == (True, False)
    assert odd(judge, [-math.inf, 1.0], [-65504.0, 1.0], [-math.inf, 1.0], made=7, dtype="f32") == (False, False)
    # What is made of the first: a cast, a sum with scores.
    assert odd(judge, [-math.inf, 1.0], [-65000.0, 1.0], [-math.inf, 1.0], edge=1, made=3) == (False, False)
    assert odd(judge, [-math.inf, 1.0], [-65000.0, 1.0], [-math.inf, 1.0], edge=3, made=4) == (False, False)
    assert odd(judge, [-math.inf, 1.0], [-900.0, 1.0], [-math.inf, 1.0], edge=1, made=5) == (True, False)
    assert odd(judge, [-math.inf, 1.0], [-65000.0, 1.0], [-math.inf, 1.0], edge=2, made=6) == (True, False)
