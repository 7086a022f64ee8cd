"""Cores and memory of a recomputation: two functions at once, the same settings afterwards, the same results in blocks."""

from __future__ import annotations

import threading

import pytest

torch = pytest.importorskip("torch")

from tests.operations.test_evaluation import rand, values_of  # noqa: E402
from twintrace.operations import Meaning, Operand, scores, scoring  # noqa: E402
from twintrace.operations.audits import audit  # noqa: E402
from twintrace.operations.rounding import coarse_product  # noqa: E402
from twintrace.operations.scores import judge_result, precision_of  # noqa: E402
from twintrace.operations.steps import AFTER  # noqa: E402
from twintrace.operations.workers import both, plain_attention, working  # noqa: E402

pytestmark = pytest.mark.needs_torch


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def test_two_functions_run_at_once_on_half_the_cores_each(threads):
    threads(4)
    barrier = threading.Barrier(2, timeout=20)

    def cores() -> int:
        barrier.wait()  # neither comes back before the other has begun
        return torch.get_num_threads()

    with working():
        assert both(cores, cores) == (2, 2)
    assert torch.get_num_threads() == 4


def test_one_core_works_one_after_the_other(threads):
    threads(1)
    with working():
        assert both(threading.get_ident, threading.get_ident) == (threading.get_ident(),) * 2


def test_an_error_of_either_is_raised(threads):
    threads(2)
    with working():
        with pytest.raises(ZeroDivisionError):
            both(lambda: 1 / 0, lambda: 1)
        with pytest.raises(ZeroDivisionError):
            both(lambda: 1, lambda: 1 / 0)


def test_fused_attention_is_back_after_the_last_user():
    before = torch.backends.cuda.flash_sdp_enabled()
    outer = plain_attention()
    with plain_attention():
        outer.__enter__()
    assert not torch.backends.cuda.flash_sdp_enabled()  # the one that came last is still inside
    outer.__exit__(None, None, None)
    assert torch.backends.cuda.flash_sdp_enabled() is before


@pytest.mark.parametrize("size", [7, 64, 1 << 20])
def test_a_score_does_not_depend_on_blocks(size, monkeypatch):
    want = rand(40, 25).double()
    got, error = want.float().double(), rand(40, 25, seed=1).double().abs() * 1e-7
    got[7, 3] += 4e-7
    got[2, 2] = want[2, 2] = float("inf")
    precision = precision_of("f32", Meaning("add", {}, {1: 0}), "torch")
    whole = judge_result(got, want, error, precision)
    monkeypatch.setattr(scores, "BLOCK", size)
    parts = judge_result(got, want, error, precision)
    assert whole.index == parts.index == (7, 3)
    assert whole.ratio == parts.ratio > 1
    assert whole.share == parts.share == 1 / 1000
    assert parts.limit == pytest.approx(whole.limit, rel=1e-12)
    assert parts.relative == pytest.approx(whole.relative, rel=1e-12)


def adam(damaged: float = 0.0):
    """A step of Adam for two parameters: its meaning and all tensors."""
    parameters = [rand(30, 7, seed=1).requires_grad_(), rand(5, seed=2).requires_grad_()]
    optimizer = torch.optim.Adam(parameters, lr=0.1)
    before = {}
    for place, parameter in enumerate(parameters):
        before[place] = parameter.detach().clone()
        parameter.grad = rand(*parameter.shape, seed=3 + place)
    optimizer.step()
    names = ("parameters", "gradients", "exp_avg", "exp_avg_sq", "max_exp_avg_sq", "step")
    operands = {name: (None, None) for name in names}
    operands["parameters"], operands["gradients"] = (Operand(0), Operand(1)), (Operand(2), Operand(3))
    operands["step"] = (0, 0)
    arguments = {
        **operands, "beta1_power": None, "beta2_power": None, "lr": 0.1, "weight_decay": 0.0, "beta1": 0.9, "beta2": 0.999,
        "eps": 1e-8, "eps_added": AFTER, "bias_correction": True, "decoupled": False, "amsgrad": False,
        "nesterov": False, "maximize": False, "grad_scale": 1.0,
    }  # fmt: skip
    tensors = {**before, 2: parameters[0].grad, 3: parameters[1].grad}
    results = {}
    for place, parameter in enumerate(parameters):
        state = optimizer.state[parameter]
        for offset, (key, value) in enumerate(
            [("parameters", parameter), ("exp_avg", state["exp_avg"]), ("exp_avg_sq", state["exp_avg_sq"])]
        ):
            number = 10 + 3 * place + offset
            tensors[number], results[number] = value.detach().clone(), f"{key}.{place}"
    tensors[10][29, 6] += damaged
    return Meaning("adam", arguments, results), tensors


@pytest.mark.parametrize("damaged", [0.0, 1e-5])
def test_a_step_in_blocks_is_the_whole_step(damaged, monkeypatch):
    meaning, tensors = adam(damaged)
    whole = audit(meaning, values_of(tensors))
    monkeypatch.setattr(scoring, "BLOCK", 16)
    parts = audit(meaning, values_of(tensors))
    assert not whole.failure
    assert not parts.failure
    assert sorted(parts.forward) == [10, 11, 12, 13, 14, 15]
    for number, score in parts.forward.items():
        assert score.ratio == pytest.approx(whole.forward[number].ratio, rel=1e-9)
    assert (parts.forward[10].ratio > 1) is (damaged > 0)
    assert all(parts.forward[number].ratio <= 1 for number in range(11, 16))


@pytest.mark.parametrize(("scale", "exact"), [(1.0, False), (1e30, True), (1e-30, True), (0.0, True)])
def test_bounds_are_products_in_float32_where_it_can_hold_them(scale, exact):
    a, b = rand(5, 300).double().abs() * scale, rand(300, 4).double().abs()
    product = coarse_product(torch.matmul, a, b)
    want = a @ b if exact else 1.001 * (a @ b)
    torch.testing.assert_close(product, want, rtol=0.0 if exact else 1e-5, atol=0.0)


def test_values_that_repeat_are_counted_once():
    assert scores._distinct(torch.arange(100_000.0).double()) == 100_000
    assert scores._distinct((torch.arange(100_000) % 300).double()) == 300
    assert scores._distinct((torch.arange(100) % 3).double()) == 3
