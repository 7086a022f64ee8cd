"""Every kernel, forward and backward, is made of steps whose rounding has a rule: none counts as inexact by a guess.

What has no rule is taken to be eight units of its result off, and what it was given to be exact: a sum that cancels would be
accused, and a composition would forget the errors of what came before.
"""

import itertools
from dataclasses import replace

import pytest
import torch
from operation_samples import VARIANTS, is_differentiable, results_of

from twintrace.model.tensors import Spec
from twintrace.operations import audits, scores, scoring
from twintrace.operations.catalog import OPERATIONS
from twintrace.operations.evaluation import Values
from twintrace.operations.listing import listing
from twintrace.operations.meanings import Meaning, Operand
from twintrace.operations.recorded_gradients import Gradients
from twintrace.operations.rounding import RunningError

KNOWN = {item.name: item for item in listing()}
SINGLE = 2.0**-24
CASES = [(name, {}) for name in OPERATIONS if KNOWN[name].forward] + VARIANTS


@pytest.mark.parametrize(("name", "given_"), CASES, ids=[f"{place}-{name}" for place, (name, _) in enumerate(CASES)])
def test_every_step_of_a_kernel_has_a_rule(name, given_):
    mode = RunningError(SINGLE, SINGLE)
    with mode:
        results = results_of(name, **given_)
    assert not mode.unknown
    if KNOWN[name].backward:
        with mode:
            assert is_differentiable(results)
        assert not mode.unknown


def test_a_step_without_a_rule_is_told():
    """The check can fail."""
    x = torch.rand(3, 3, dtype=torch.float64)
    with RunningError(SINGLE, SINGLE) as mode:
        torch.linalg.matrix_exp(x)
    assert mode.unknown


# --- a part of the bound, which is quicker to compute ----------------------------------------------------------------------

ARGUMENTS = {
    "gelu": [{"approximate": "none"}, {"approximate": "tanh"}], "div": [{"other": Operand(2)}, {"other": 3.0}],
    "adam": [{"decoupled": True}, {"decoupled": False}, {"eps_added": "before correction"}, {"nesterov": True}],
}  # fmt: skip
ELEMENTWISE = [(name, given) for name in sorted(audits._LEAST_UNITS) for given in ARGUMENTS.get(name, [{}])]
GRADIENT, RESULT, SENT = 3, 4, 5


def elements(name):
    """Arguments of all sizes, of both signs where the operation takes them."""
    sizes = torch.logspace(-12, 1.2, 4_000, dtype=torch.float64).float()
    return torch.cat((sizes, -sizes)) if name not in ("sqrt", "rsqrt") else sizes


def adam(**given):
    lists = {
        name: (Operand(place + 10),) for place, name in enumerate(("parameters", "gradients", "exp_avg", "exp_avg_sq"))
    }
    settings = {
        "lr": 1e-3,
        "beta1": 0.9,
        "beta2": 0.999,
        "eps": 1e-8,
        "weight_decay": 0.01,
        "eps_added": "after correction",
    }
    flags = dict.fromkeys(("amsgrad", "nesterov", "maximize", "decoupled"), False) | {"bias_correction": True}
    others = {"max_exp_avg_sq": (None,), "step": (3,), "beta1_power": None, "beta2_power": None, "grad_scale": 1.0}
    results = {20: "parameters.0", 21: "exp_avg.0", 22: "exp_avg_sq.0"}
    return Meaning("adam", lists | settings | flags | others | given, results)


def limits(name, given, monkeypatch, **settings):
    """Computed results and gradients of an operation, and the limits of their elements."""
    x = elements(name)
    generator = torch.Generator().manual_seed(0)
    tensors = {number: torch.randn(x.shape, generator=generator) for number in (2, GRADIENT, *range(10, 14))}
    tensors[13] = tensors[13].abs()
    tensors |= dict.fromkeys((1, RESULT, SENT, 20, 21, 22), x)
    values = Values(lambda number: tensors[number].numpy(), lambda number: Spec("f32", tuple(x.shape)))
    found = []

    def judge(got, want, error, precision, *rest, **more):
        limit = precision.unit * want.abs() + precision.least
        found.append((want.abs(), limit if error is None else limit + error))
        return scores.Score(0.0)

    monkeypatch.setattr(scoring, "judge_result", judge)
    if name == "adam":
        meaning, gradients = adam(**given), None
    else:
        meaning = Meaning(name, {"input": Operand(1), **given}, {RESULT: 0})
        gradients = Gradients({RESULT: GRADIENT}, {1: [SENT]})
    scoring.score_call(scoring.Task(meaning, values, gradients), scoring.Limit(**settings))
    return found


@pytest.mark.parametrize(
    ("name", "given_"), ELEMENTWISE, ids=[f"{place}-{case[0]}" for place, case in enumerate(ELEMENTWISE)]
)
def test_the_smaller_bound_of_an_elementwise_operation_is_no_larger_than_the_whole_one(name, given_, monkeypatch):
    part = limits(name, given_, monkeypatch, bounded=False, least_units=audits._LEAST_UNITS[name])
    whole = limits(name, given_, monkeypatch)
    assert len(part) == len(whole) == (3 if name == "adam" else 2)
    for (size, smaller), (_, larger) in zip(part, whole, strict=True):
        assert bool((smaller <= larger * (1 + 1e-6))[size > 1e-30].all())


@pytest.mark.parametrize(
    ("name", "given_"), ELEMENTWISE, ids=[f"{place}-{case[0]}" for place, case in enumerate(ELEMENTWISE)]
)
def test_the_smaller_bound_has_as_many_units_as_the_table_says(name, given_, monkeypatch):
    *_, (size, smaller) = limits(name, given_, monkeypatch, bounded=False, least_units=audits._LEAST_UNITS[name])
    assert bool((smaller >= (1 + audits._LEAST_UNITS[name]) * SINGLE * size).all())


def test_a_parameter_without_a_gradient_is_a_copy():
    """Off by a unit in the last place it is wrong; with a gradient it is rounded."""
    x = torch.linspace(1, 2, 100)
    arrays = dict.fromkeys((10, 11, 12, 13), x) | {20: torch.nextafter(x, x + 1)}
    values = Values(lambda number: arrays[number].numpy(), lambda number: Spec("f32", (100,)))
    given = adam(gradients=(None,), exp_avg=(None,), exp_avg_sq=(None,))
    assert audits.audit(replace(given, results={20: "parameters.0"}), values).forward[20].ratio > 1
    step = adam(lr=0.0, weight_decay=0.0)
    assert audits.audit(replace(step, results={20: "parameters.0"}), values).forward[20].ratio <= 1


def gelu_with(got, sent):
    x = torch.linspace(-6, 6, 5_000)
    arrays = {1: x, GRADIENT: torch.ones_like(x), RESULT: got(x), SENT: sent(x)}
    values = Values(lambda number: arrays[number].detach().numpy(), lambda number: Spec("f32", tuple(x.shape)))
    meaning = Meaning("gelu", {"input": Operand(1), "approximate": "none"}, {RESULT: 0})
    return audits.audit(meaning, values, Gradients({RESULT: GRADIENT}, {1: [SENT]}))


def slope(x):
    x = x.double().requires_grad_()
    return torch.autograd.grad(torch.nn.functional.gelu(x).sum(), x)[0].float()


def test_elements_beyond_the_smaller_bound_are_held_against_the_whole_one():
    """Between the two nothing is told, and beyond the whole one is."""
    rounded = torch.nn.functional.gelu
    assert gelu_with(rounded, slope).backward[SENT].ratio < 1
    near = gelu_with(rounded, lambda x: slope(x) * (1 + 6 * SINGLE * (x > 0)))  # 5 units are the smaller one
    assert 0.5 < near.backward[SENT].ratio <= 1
    assert not near.whole
    far = gelu_with(rounded, lambda x: slope(x) * (1 + 40 * SINGLE * (x == x[4_000])))
    assert far.backward[SENT].ratio > 1
    assert (far.backward[SENT].index, far.whole) == ((4_000,), True)


def test_one_gradient_of_many_elements_that_share_a_number_is_no_element():
    """`x / c`: the gradient of c is a sum of all elements, and held against the whole bound."""
    x, c, ones = torch.linspace(1, 2, 100), torch.tensor(3.0), torch.ones(100)
    right = -(x.double() / 9).sum().float()
    for off, passes in ((1.0, True), (1 + 1e-3, False)):
        arrays = dict(zip(itertools.count(1), (x, c, ones, x / c, ones / c, right * off), strict=False))
        values = Values(
            lambda number, arrays=arrays: arrays[number].numpy(),
            lambda number, arrays=arrays: Spec("f32", tuple(arrays[number].shape)),
        )
        meaning = Meaning("div", {"input": Operand(1), "other": Operand(2)}, {4: 0})
        audit = audits.audit(meaning, values, Gradients({4: 3}, {1: [5], 2: [6]}))
        assert (audit.backward[6].ratio <= 1) is passes
