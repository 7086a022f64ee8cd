"""Limits of the judge, each just within and just beyond."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")
from twintrace.judge.backward import Gradients
from twintrace.judge.detours import Detours
from twintrace.judge.effects import small_effects
from twintrace.judge.fallback import Fallback
from twintrace.judge.gradient_rounding import GradientRounding
from twintrace.judge.loss_scale import LossScale
from twintrace.judge.state import Standing
from twintrace.judge.values import Values
from twintrace.model.pairs import Layout, Part, TensorPair
from twintrace.model.results import Mistake
from twintrace.model.tensors import Spec, Tensor
from twintrace.model.verdicts import Outcome, Verdict
from twintrace.operations.sides import Slice

HALF = Slice(1, (), (0,))


def item(error: float, dtype: str = "f32", outcome: Outcome = Outcome.ROUNDING, part: Part = Part.OUTPUT) -> Any:
    tensor = Tensor(0, Spec(dtype, (4,)))
    measured = SimpleNamespace(rmse=error, rms_left=1.0, rms_right=1.0)
    verdict = Verdict(outcome, "", error)
    return SimpleNamespace(
        left=tensor,
        right=tensor,
        measurement=measured,
        verdict=verdict,
        pair=TensorPair(part, "", "", 1, 1, Layout(), ""),
    )


def made_by(operation: str) -> Slice:
    return Slice(1, (SimpleNamespace(id=0, operation=operation),), (0,))  # type: ignore[arg-type]


def values(visible: bool, **more: Any) -> Values:
    side = SimpleNamespace(meaning=lambda call: SimpleNamespace(operation=call.operation))
    recomputation = SimpleNamespace(is_visible=lambda *given: visible)
    state: Any = SimpleNamespace(recomputation=recomputation, bound={}, sides=(side, side), origins={}, **more)
    return Values(state, SimpleNamespace(), SimpleNamespace())  # type: ignore[arg-type]


@pytest.mark.parametrize(("size", "visible"), [(99.0, True), (101.0, False)])
def test_a_small_mistake_is_not_gone_because_it_cannot_be_seen(size: float, visible: bool) -> None:
    mistake = Mistake("meaning", "other", size=size)
    assert values(False)._still_visible(item(1e-5), None, HALF, [mistake]) is visible


@pytest.mark.parametrize(("error", "visible"), [(0.0099, False), (0.0101, True)])
def test_a_large_difference_is_seen_whatever_came_in(error: float, visible: bool) -> None:
    mistake = Mistake("meaning", "other", size=1e6)
    assert values(False)._still_visible(item(error), None, HALF, [mistake]) is visible


@pytest.mark.parametrize(("effect", "visible"), [(0.9e-9, False), (1.1e-9, True)])
def test_what_a_selection_drops_is_told_by_its_effect(
    monkeypatch: pytest.MonkeyPatch, effect: float, visible: bool
) -> None:
    mistake = Mistake("meaning", "other", size=1e6)
    judge = values(True)
    monkeypatch.setattr(judge, "_effect", lambda *given: effect)
    assert judge._still_visible(item(1e-5), None, made_by("softmax"), [mistake]) is visible
    assert judge._still_visible(item(1e-5), None, made_by("exp"), [mistake])  # nothing is dropped


@pytest.mark.parametrize(("times", "here"), [(999.0, False), (1001.0, True)])
def test_a_far_difference_arises_where_it_is_seen(times: float, here: bool) -> None:
    state: Any = SimpleNamespace(by_norms=({(0, 0), (1, 0)}, set()))
    judge = Fallback(state, SimpleNamespace(), SimpleNamespace())  # type: ignore[arg-type]
    far = SimpleNamespace(verdict=Verdict(Outcome.DIFFERENT, "", times * 1e-6, bound=1e-6))
    assert judge._came_in_alike(far, made_by("exp"), made_by("exp")) is here  # type: ignore[arg-type]


def of_type(dtype: str) -> Any:
    return SimpleNamespace(results=[SimpleNamespace(tensors=[item(0.0, dtype)])])


def test_gradients_may_differ_by_the_rounding_of_many_layers() -> None:
    assert GradientRounding(of_type("f32")).least == pytest.approx(1e-2)
    assert GradientRounding(of_type("bf16")).least == pytest.approx(64 * 2.0**-8)


@pytest.mark.parametrize(("error", "told"), [(0.031, True), (0.032, False)])
def test_a_call_that_was_not_audited_is_taken_to_be_right_for_small_errors(error: float, told: bool) -> None:
    incoming = Standing(Outcome.ROUNDING, unaudited="an unknown kernel")
    gradients = Gradients(of_type("bf16"))
    gradients._ways.difference = lambda item: None  # type: ignore[method-assign]
    judged = gradients._unexplained(item(error, "bf16"), incoming, ([], [(None, 0)]))  # type: ignore[list-item]
    assert (judged is None) is told


@pytest.mark.parametrize(
    ("dtype", "error", "near"),
    [("f32", 0.0099, True), ("f32", 0.0101, False), ("bf16", 15.9 * 2.0**-8, True), ("bf16", 16.1 * 2.0**-8, False)],
)
def test_values_that_meet_again_lie_near_each_other(dtype: str, error: float, near: bool) -> None:
    assert Detours(SimpleNamespace())._is_near(item(error, dtype)) is near  # type: ignore[arg-type]


def loss_scale(factors: list[float | None]) -> LossScale:
    each = iter(factors)
    results = [SimpleNamespace(tensors=[item(0.0, part=Part.PARAMETER_GRADIENT)]) for _ in factors]
    recomputation = SimpleNamespace(recorded=SimpleNamespace(factor=lambda pair, layout: next(each)))
    return LossScale(SimpleNamespace(results=results, recomputation=recomputation))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("factors", "common"),
    [
        ([2.0, 2.0 * (1 + 0.9e-4)], True),
        ([2.0, 2.0 * (1 + 1.1e-4)], False),
        ([1 + 0.9e-4], False),
        ([1 + 1.1e-4], True),
        ([2.0, None], False),
    ],
)
def test_gradients_have_one_factor_within_a_ten_thousandth(factors: list[float | None], common: bool) -> None:
    assert (loss_scale(factors)._common_factor() is not None) is common


@pytest.mark.parametrize(
    ("kind", "size", "seen", "counts"),
    [
        ("meaning", 99.0, 1.1e-9, True),
        ("meaning", 99.0, 0.9e-9, False),
        ("meaning", 101.0, 1.0, False),  # large, and gone: undone
        ("leaf", 1e6, 1.1e-6, True),
        ("leaf", 1e6, 0.9e-6, False),
        ("leaf", 1e6, None, True),
        ("meaning", 99.0, None, False),
    ],
)
def test_small_mistakes_count_by_their_effect_at_a_result(
    monkeypatch: pytest.MonkeyPatch, kind: str, size: float, seen: float | None, counts: bool
) -> None:
    mistake = Mistake(kind, "other", size=size)
    state: Any = SimpleNamespace(
        undone=set(), origins={mistake: ()}, choices=lambda gone: {0: ()} if gone else {}, recomputation=None
    )
    monkeypatch.setattr("twintrace.operations.replay.effect", lambda *given: seen)
    results: Any = [SimpleNamespace(mistakes=[mistake])]
    assert small_effects(state, results, set(), {7: None}) == ({mistake} if counts else set())
