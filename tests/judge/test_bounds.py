"""Introduced here, or inherited? A chain of calls, each side computed by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.judge.evidence import evidence
from twintrace.judge import BoundsJudge, CarriedBounds, Case, first_backward, first_forward, policy_named
from twintrace.model.pairs import Match, Part, Stray
from twintrace.model.records import Call, Gradient, Role
from twintrace.model.sites import Kind, Phase, Site
from twintrace.model.verdicts import Outcome

X = np.random.default_rng(3).normal(size=(8, 16)).astype(np.float32)
NOISE = np.float32(1) + np.float32(1e-7) * np.random.default_rng(4).normal(size=X.shape).astype(np.float32)


class Chain:
    """Calls one after the other: the output of each is the input of the next, on both sides."""

    def __init__(self, left=X, right=X, *, kept=True):
        self.values = [(left, right)]
        self.kept = kept
        self.cases = []
        self.order = 0

    def call(self, name, left, right, *, extra=(), parent=None, phase=Phase.FORWARD, gradients=()):
        """`left` and `right` are what the call puts out; `extra` are further inputs, as pairs."""
        came = len(self.values) - 1
        self.values.append((left, right))
        number = len(self.cases)
        found = [
            evidence(*self.values[came], part=Part.INPUT, numbers=(came, came), values=self.kept),
            evidence(left, right, part=Part.OUTPUT, numbers=(came + 1, came + 1), values=self.kept),
        ]
        for position, (one, two) in enumerate(extra):
            found.append(evidence(one, two, part=Part.PARAMETER, numbers=(100 + number, 100 + number)))
            assert position == 0
        orders = []
        for part, one, two, identity, order in gradients:
            found.append(evidence(one, two, part=part, numbers=(identity, identity)))
            orders.append(Gradient(Role.OUTPUT, "", identity, number, order=order))
        self.order += 1
        site = Site(Kind.API, name, number, phase)
        call = Call(number, site, parent, (), {}, None, gradients=tuple(orders), order=self.order)
        self.cases.append(Case(Match((call,), (call,), "by hand"), found))
        return self

    def judge(self, **options):
        return BoundsJudge(policy_named("auto"), **options).judge(0, 0, self.cases)


def outcomes(results):
    return [result.forward.outcome for result in results]


def test_what_is_equal_stays_equal():
    results = Chain().call("torch.relu", X, X).call("torch.Tensor.mul", 2 * X, 2 * X).judge()
    assert outcomes(results) == [Outcome.SAME, Outcome.SAME]
    assert first_forward(results) is None


def test_the_call_that_adds_the_error_has_introduced_it_and_what_follows_has_inherited_it():
    wrong = X * np.float32(1.0001)
    results = (
        Chain()
        .call("torch.Tensor.mul", X, X * NOISE)
        .call("torch.Tensor.clone", X, wrong)
        .call("torch.Tensor.neg", -X, -wrong)
        .judge()
    )
    assert outcomes(results) == [Outcome.ROUNDING, Outcome.DIFFERENT, Outcome.DIFFERENT]
    assert [result.introduced_forward for result in results] == [False, True, False]
    found = first_forward(results)
    assert found.result is results[1]
    assert (found.inherited, found.after) == (False, 1)
    assert found.tensors[0].pair.part is Part.OUTPUT


def test_an_error_that_grows_as_rounding_does_is_no_divergence():
    chain, left, right = Chain(), X, X
    for number in range(30):
        right = right * (np.float32(1) + np.float32(6e-8) * np.random.default_rng(number).normal(size=X.shape)).astype(
            np.float32
        )
        chain.call("torch.Tensor.mul", left, right)
    assert {*outcomes(chain.judge())} == {Outcome.ROUNDING}


def test_what_differs_from_the_start_is_inherited():
    results = Chain(X, X * np.float32(1.001)).call("torch.Tensor.neg", -X, -X * np.float32(1.001)).judge()
    found = first_forward(results)
    assert found.inherited
    assert found.tensors[0].pair.part is Part.INPUT
    assert "outside what was recorded" in found.because


def test_other_weights_are_told_as_that():
    weights = (np.ones((4, 4), np.float32), np.full((4, 4), 2, np.float32))
    results = Chain().call("torch.nn.functional.linear", X, 2 * X, extra=[weights]).judge()
    found = first_forward(results)
    assert found.inherited
    assert found.tensors[0].pair.part is Part.PARAMETER
    assert "different weights" in found.because


def test_a_module_around_what_differs_has_not_introduced_it():
    chain = Chain().call("torch.Tensor.mul", X, 2 * X, parent=7)
    inner = chain.cases[0]
    module = Call(7, Site(Kind.MODULE, "block", 0, type="Block"), None, (), {}, None, order=9)
    around = [item for item in inner.evidence if item.pair.part in (Part.INPUT, Part.OUTPUT)]
    results = BoundsJudge(policy_named("auto")).judge(
        0, 0, [inner, Case(Match((module,), (module,), "by hand"), around, 1)]
    )
    assert [result.introduced_forward for result in results] == [True, False]


def test_the_update_comes_after_the_forward_pass():
    chain = Chain().call("torch.optim.SGD.step", X, 2 * X, phase=Phase.UPDATE)
    chain.values.append((X, X))
    chain.call("torch.Tensor.neg", -X, 3 * X)
    found = first_forward(chain.judge())
    assert found.result.match.left[0].site.name == "torch.Tensor.neg"


def test_gradients_are_judged_in_the_order_of_the_backward_pass():
    """The last call's gradients come first; the first call doubles its own."""
    g = X + 1
    chain = Chain()
    chain.call("a", X, X, gradients=[(Part.OUTPUT_GRADIENT, g, g, 31, 13), (Part.INPUT_GRADIENT, g, 2 * g, 32, 14)])
    chain.call("b", X, X, gradients=[(Part.OUTPUT_GRADIENT, g, g, 30, 11), (Part.INPUT_GRADIENT, g, g, 31, 12)])
    results = chain.judge()
    assert [result.introduced_backward for result in results] == [True, False]
    found = first_backward(results)
    assert found.result.match.left[0].site.name == "a"
    assert not found.inherited
    assert first_forward(results) is None


def test_a_gradient_that_follows_from_other_values_is_not_introduced_by_the_backward_pass():
    g = X + 1
    chain = Chain().call(
        "torch.Tensor.mul",
        X,
        2 * X,
        gradients=[(Part.OUTPUT_GRADIENT, g, g, 30, 11), (Part.INPUT_GRADIENT, g, 2 * g, 31, 12)],
    )
    results = chain.judge()
    assert results[0].introduced_forward
    assert not results[0].introduced_backward
    assert "values of the forward pass differ" in first_backward(results).because


def test_noise_that_a_repeated_run_shows_is_allowed():
    chain = Chain().call("torch.Tensor.mul", X, X * np.float32(1.0001))
    assert outcomes(chain.judge()) == [Outcome.DIFFERENT]
    (result,) = chain.judge(noise={1: 1e-4})
    assert result.forward.outcome is Outcome.ROUNDING
    assert "a repeated run is 1.0e-04 apart" in result.forward.because


def test_a_gradient_that_is_nothing_beside_the_others_is_noise():
    """Of a bias before a batch norm: zero but for rounding, on both sides."""
    draw = np.random.default_rng(5)
    large = draw.normal(size=(64,)).astype(np.float32)
    left, right = (1e-9 * draw.normal(size=(2, 8))).astype(np.float32)
    pair = [
        evidence(large, large * np.float32(1 + 1e-7), part=Part.PARAMETER_GRADIENT, numbers=(1, 1)),
        evidence(left, right, part=Part.PARAMETER_GRADIENT, numbers=(2, 2)),
    ]
    results = BoundsJudge(policy_named("auto")).judge_gradients(0, 0, pair)
    assert [result.backward.outcome for result in results] == [Outcome.ROUNDING, Outcome.ROUNDING]
    alone = BoundsJudge(policy_named("auto")).judge_gradients(0, 0, pair[1:])
    assert alone[0].backward.outcome is Outcome.DIFFERENT


def test_a_small_gradient_may_be_what_is_left_of_a_tenth_of_the_largest():
    draw = np.random.default_rng(5)
    large, small = draw.normal(size=(64,)).astype(np.float32), (1e-4 * draw.normal(size=(64,))).astype(np.float32)
    pair = [
        evidence(item, item * np.float32(1 + 1e-7), part=Part.PARAMETER_GRADIENT, numbers=(number, number))
        for number, item in enumerate((large, small))
    ]
    beside = BoundsJudge(policy_named("auto")).judge_gradients(0, 0, pair)[1].backward.bound
    alone = BoundsJudge(policy_named("auto")).judge_gradients(0, 0, pair[1:])[0].backward.bound
    sizes = [float(np.sqrt(np.mean(np.square(item, dtype=np.float64)))) for item in (large, small)]
    assert beside / alone == pytest.approx(0.1 * sizes[0] / sizes[1], rel=1e-3)


@pytest.mark.parametrize(
    ("units", "outcome"), [(28, Outcome.ROUNDING), (50, Outcome.DIFFERENT), (1e5, Outcome.DIFFERENT)]
)
def test_statistics_may_hide_eight_units_of_what_came_in(units, outcome):
    """Four times eight, and 4.5 of the call's own."""
    unit = 2.0**-24
    chain = Chain(kept=False).call("torch.Tensor.mul", X, (X * np.float64(1 + 2 * unit)).astype(np.float32))
    results = chain.call("torch.Tensor.neg", -X, (-X * np.float64(1 + units * unit)).astype(np.float32)).judge()
    assert outcomes(results) == [Outcome.ROUNDING, outcome]


@pytest.mark.parametrize(("left_over", "absorbed"), [(0.05, True), (0.14, False)])
def test_a_difference_is_absorbed_if_no_tenth_of_it_is_left(left_over, absorbed):
    chain = Chain().call("torch.Tensor.add", X, X * np.float32(1 + 1e-4))
    results = chain.call("torch.softmax", X, X * np.float32(1 + left_over * 1e-4)).judge()
    assert results[1].tensors[-1].verdict.outcome is Outcome.ROUNDING
    assert results[0].absorbed_forward is absorbed


@pytest.mark.parametrize("factor", [1.0, 1e-20, 1e20])
def test_the_size_of_the_values_does_not_matter(factor):
    scale = np.float32(factor)
    results = Chain(X * scale, X * scale).call("torch.Tensor.mul", X * scale, X * scale * NOISE).judge()
    assert outcomes(results) == [Outcome.ROUNDING]


def test_a_difference_without_effect_is_absorbed():
    """Masked scores: -10000 or -9998 before a softmax give the same zeros."""
    results = Chain().call("torch.Tensor.add", X, X * np.float32(1.001)).call("torch.softmax", X, X * NOISE).judge()
    assert [result.absorbed_forward for result in results] == [True, True]
    assert first_forward(results) is None


def test_a_small_difference_that_is_handed_on_has_an_effect():
    """A wrong epsilon: beyond the rounding of a layer norm, within that of what follows, and just as large there."""
    wrong = X * np.float32(1 + 1.5e-6)
    results = Chain().call("torch.Tensor.clone", X, wrong).call("torch.nn.functional.gelu", X, wrong).judge()
    assert results[1].tensors[-1].verdict.outcome is Outcome.ROUNDING
    assert first_forward(results).result is results[0]


def test_but_not_if_something_else_is_made_of_it():
    chain = Chain().call("torch.Tensor.add", X, X * np.float32(1.001)).call("torch.softmax", X, X * NOISE)
    chain.values.append(chain.values[1])
    chain.cases.append(Chain(*chain.values[1]).call("torch.neg", -X, -X * np.float32(1.001)).cases[0])
    other = chain.cases[-1]
    inputs = [replace(item, pair=replace(item.pair, left=1, right=1)) for item in other.evidence[:1]]
    outputs = [replace(item, pair=replace(item.pair, left=50, right=50)) for item in other.evidence[1:]]
    call = replace(other.match.left[0], id=9, order=9)
    chain.cases[-1] = Case(Match((call,), (call,), "by hand"), [*inputs, *outputs])
    results = chain.judge()
    assert [result.absorbed_forward for result in results] == [False, True, False]
    assert first_forward(results).result is results[0]


def test_what_nobody_takes_is_not_absorbed():
    (result,) = Chain().call("torch.Tensor.add", X, X * np.float32(1.001)).judge()
    assert not result.absorbed_forward


def test_a_gradient_that_nobody_lets_through_is_absorbed():
    """Of a tie, one framework gives the gradient to one element and the other to all; a relu before it sets both to zero."""
    g, other = X + 1, X + 2
    chain = Chain()
    chain.call("relu", X, X, gradients=[(Part.OUTPUT_GRADIENT, g, other, 31, 13), (Part.INPUT_GRADIENT, g, g, 32, 14)])
    chain.call("amax", X, X, gradients=[(Part.OUTPUT_GRADIENT, g, g, 30, 11), (Part.INPUT_GRADIENT, g, other, 31, 12)])
    results = chain.judge()
    assert [result.absorbed_backward for result in results] == [True, True]
    assert all(result.harmless for result in results)
    assert first_backward(results) is None


def test_gradients_are_judged_by_the_size_of_gradients():
    """Values of 1 and gradients of 1e-4: an error of one percent in the gradient of a linear is not put down to cancellation."""
    g = (1e-4 * (X + 1)).astype(np.float32)
    wrong = g * np.float32(1.01)
    weights = (np.ones((16, 16), np.float32),) * 2
    chain = Chain().call(
        "torch.nn.functional.linear", X, X * NOISE, extra=[weights],
        gradients=[(Part.OUTPUT_GRADIENT, g, g * NOISE, 30, 11), (Part.INPUT_GRADIENT, g, wrong, 31, 12)],
    )  # fmt: skip
    (result,) = chain.judge()
    assert result.backward.outcome is Outcome.DIFFERENT
    assert result.introduced_backward


def test_a_difference_that_shows_in_the_gradients_is_not_absorbed():
    """The loss hides it (a gelu with tanh or with erf): the gradient that is made of the values does not."""
    wrong, g = X * np.float32(1.001), X + 1
    chain = Chain().call("torch.nn.functional.gelu", X, wrong)
    chain.call("torch.nn.functional.linear", 2 * X, 2 * wrong, gradients=[
        (Part.OUTPUT_GRADIENT, g, g, 30, 11), (Part.INPUT_GRADIENT, g, g * np.float32(1.001), 31, 12)
    ])  # fmt: skip
    chain.call("loss", X[:1], X[:1] * NOISE[:1], gradients=[(Part.INPUT_GRADIENT, g, g, 30, 10)])
    results = chain.judge()
    assert [result.absorbed_forward for result in results] == [False, False, True]
    assert first_forward(results).result is results[0]


def test_a_loss_that_agrees_is_no_proof_without_gradients():
    chain = Chain().call("torch.nn.functional.gelu", X, X * np.float32(1.001))
    loss = np.float32(X.mean())
    results = chain.call("torch.nn.functional.mse_loss", loss, loss * np.float32(1 + 1e-7)).judge()
    assert first_forward(results).result is results[0]


def test_the_gradients_that_an_optimizer_takes_are_judged_as_gradients():
    """One that is noise beside the others: neither it nor the state that is made of it is held against the update."""
    draw = np.random.default_rng(5)
    large = draw.normal(size=(64,)).astype(np.float32)
    left, right = (1e-9 * draw.normal(size=(2, 8))).astype(np.float32)
    noise, real = (left, right), (large, large * np.float32(1 + 2e-7))
    gradients = [
        evidence(*pair, part=Part.PARAMETER_GRADIENT, numbers=(50 + number, 50 + number))
        for number, pair in enumerate((noise, real))
    ]

    def update(parameter):
        taken = [
            replace(item, pair=replace(item.pair, part=Part.INPUT, left_slot=f"kw.gradients.{number}"))
            for number, item in enumerate(gradients)
        ]
        given = [
            _slot(evidence(*noise, part=Part.OUTPUT, numbers=(60, 60)), "state.0.momentum_buffer"),
            _slot(evidence(*parameter, part=Part.OUTPUT, numbers=(61, 61)), "parameters.1"),
        ]
        call = Call(0, Site(Kind.API, "torch.optim.SGD.step", 0, Phase.UPDATE), None, (), {}, None, order=1)
        case = Case(Match((call,), (call,), "by hand"), [*taken, *given])
        return BoundsJudge(policy_named("auto")).judge(0, 0, [case], gradients)

    assert outcomes(update(real)) == [Outcome.ROUNDING]
    (wrong,) = update((large, 2 * large))
    assert wrong.introduced_forward


def _slot(item, name):
    return replace(item, pair=replace(item.pair, left_slot=name, right_slot=name))


def test_weights_may_be_as_far_apart_as_the_step_before_left_them():
    """A bias that began as zero is its gradient after one step, with the error of a gradient."""
    weights = (X[0], X[0] * np.float32(1 + 1e-6))
    chain = Chain().call("torch.nn.functional.linear", X, X * NOISE, extra=[weights])
    assert outcomes(chain.judge()) == [Outcome.DIFFERENT]
    assert outcomes(chain.judge(before=CarriedBounds(1e-6))) == [Outcome.ROUNDING]
    assert outcomes(chain.judge(before=CarriedBounds(1e-8))) == [Outcome.DIFFERENT]


def test_what_a_step_leaves_behind():
    g = X + 1
    bench = BoundsJudge(policy_named("auto"))
    gradients = [(Part.OUTPUT_GRADIENT, g, g, 30, 11), (Part.INPUT_GRADIENT, g, g * NOISE, 31, 12)]
    bench.judge(0, 0, Chain().call("torch.Tensor.mul", X, X, gradients=gradients).cases)
    assert 5e-8 < bench.left_behind.apart < 2e-7


def test_arguments_that_were_swapped_are_told_as_that():
    """What comes in differs on each place, and is the same all in all."""
    chain = Chain(X, 2 * X).call("torch.sub", -X, X)
    other = evidence(2 * X, X, part=Part.INPUT, numbers=(90, 90))
    chain.cases[0] = replace(chain.cases[0], evidence=[*chain.cases[0].evidence, other])
    found = first_forward(chain.call("torch.neg", X, -X).judge())
    assert found.result.match.left[0].site.name == "torch.sub"
    assert not found.inherited
    assert found.because == "the same values come in, in another order"


def test_where_calls_are_alone_they_may_be_the_cause():
    results = Chain(X, X * np.float32(1.001)).call("torch.Tensor.neg", -X, -X * np.float32(1.001)).judge()
    assert "by a call that only one side makes" in first_forward(results, alone={0}).because


def test_inputs_without_a_counterpart_are_not_said_to_agree():
    chain = Chain().call("torch.nn.functional.linear", X, 2 * X)
    case = chain.cases[0]
    stray = (Stray(Part.INPUT, "0", 0, "by hand"),)
    match = replace(case.match, only_left=stray, only_right=stray)
    chain.cases[0] = replace(case, match=match, evidence=case.evidence[1:])
    assert "what comes in has no counterpart" in first_forward(chain.judge()).because


def test_what_a_call_takes_without_a_counterpart_is_not_absorbed():
    """The gather has other inputs on the other side: nobody knows that it hides the difference."""
    chain = Chain().call("torch.Tensor.add", X, X * np.float32(1.001)).call("torch.softmax", X, X * NOISE)
    gather = Chain().call("torch.gather", X, 2 * X).cases[0]
    call = replace(gather.match.left[0], id=9, order=9)
    match = replace(gather.match, left=(call,), right=(call,), only_left=(Stray(Part.INPUT, "0", 1, "by hand"),))
    output = gather.evidence[1]
    chain.cases.append(Case(match, [replace(output, pair=replace(output.pair, left=50, right=50))]))
    results = chain.judge()
    assert first_forward(results).result is results[0]


@pytest.mark.parametrize("mask", [-1e4, -1e9, float(np.finfo(np.float32).min)])
def test_a_mask_does_not_hide_a_wrong_softmax(mask):
    """What is masked gives zero: its size allows nothing."""
    scores = X.copy()
    scores[:, 8:] = mask
    right = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    wrong = np.exp(scores) / np.exp(scores[:, :8]).sum(0).max()
    (good,) = Chain(scores, scores).call("torch.softmax", right, right * NOISE).judge()
    (bad,) = Chain(scores, scores).call("torch.softmax", right, wrong).judge()
    assert (good.forward.outcome, bad.forward.outcome) == (Outcome.ROUNDING, Outcome.DIFFERENT)
    assert bad.introduced_forward


@pytest.mark.parametrize("values", [True, False], ids=["values", "statistics"])
@pytest.mark.parametrize("mask", [-1e9, float(np.finfo(np.float32).min)])
def test_a_mask_does_not_hide_wrong_scores(mask, values):
    """Beside -1e9 an error of a hundredth would be nothing."""
    hidden = np.arange(X.shape[1]) >= 8
    scores, wrong, rounded = (np.where(hidden, np.float32(mask), seen) for seen in (X, X * np.float32(1.01), X * NOISE))
    for other, outcome in ((wrong, Outcome.DIFFERENT), (rounded, Outcome.ROUNDING)):
        chain = Chain().call("torch.add", scores, other)
        came, went = chain.cases[0].evidence
        went = evidence(scores, other, part=Part.OUTPUT, numbers=(1, 1), values=values)
        chain.cases[0] = replace(chain.cases[0], evidence=[came, went])
        assert outcomes(chain.judge()) == [outcome]


@pytest.mark.parametrize(
    ("kind", "inside", "rounding"), [("Whitening", 0, True), ("Whitening", 1, False), ("ReLU", 0, False)]
)
def test_a_users_module_without_calls_inside_may_cancel_and_approximate(kind, inside, rounding):
    """Its class says nothing of what it does; where calls inside were recorded, they say it, and a framework's class is known."""
    one = (X + np.float32(100)).astype(np.float32)
    two = (one * NOISE).astype(np.float32)
    chain = Chain(one, two).call("torch.Tensor.mul", one, two).call("", one - one.mean(), two - two.mean())
    match = chain.cases[-1].match
    call = replace(match.left[0], site=Site(Kind.MODULE, "norm", 0, type=kind))
    chain.cases[-1] = Case(Match((call,), (call,), "by hand"), chain.cases[-1].evidence, inside)
    assert (chain.judge()[-1].forward.outcome is Outcome.ROUNDING) is rounding
