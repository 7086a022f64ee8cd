"""The first difference of two runs of one program, by cause."""

from __future__ import annotations

import numpy as np
import pytest

import twintrace as tt
from twintrace.diagnose.repetition import first_difference
from twintrace.model.repetition import Unsteadiness

pytestmark = pytest.mark.needs_torch
torch = pytest.importorskip("torch")


def noise(run):
    (torch.ones(3) + torch.randn(3)).exp().sum()


def dropout(run):
    (torch.nn.functional.dropout(torch.arange(64.0), 0.5) * 2).sum()


def masks(run):
    torch.empty(64).bernoulli_(0.5).mul(torch.arange(64.0)).sum()


def data(run):
    x = torch.from_numpy(np.random.default_rng(run).random(4, np.float32))
    (x * 2).sum()


def rows(run):
    x = torch.from_numpy(np.random.default_rng(run).permutation(32).astype(np.float32))
    (x * torch.arange(32.0)).sum()


def permutation(run):
    torch.arange(32.0)[torch.randperm(32)][:4].sum()


def number(run):
    (torch.ones(3) * (0.5 + run)).sum()


def way(run):
    x = torch.ones(3)
    (x.exp() if run else x.sin()).sum()


def threads(run):
    x = torch.ones(3)
    for name in ("exp", "sin") if run else ("sin", "exp"):
        getattr(x, name)()


def memory(run):
    x = torch.empty(4096)
    x.numpy()[:] = run  # as memory may be
    (x + 1).sum()


def initialisation(run):
    x = torch.empty(64, 64)
    x.numpy()[:] = run
    torch.nn.init.kaiming_uniform_(x)
    (x + 1).sum()


def read_back(run):
    (torch.ones(3) * torch.rand(()).item()).sum()


CAUSES = [
    (noise, Unsteadiness.RANDOM, "torch.randn"),
    (dropout, Unsteadiness.RANDOM, "torch.nn.functional.dropout"),
    (masks, Unsteadiness.RANDOM, "torch.Tensor.bernoulli_"),
    (data, Unsteadiness.DATA, "torch.Tensor.mul"),
    (rows, Unsteadiness.ORDER, "torch.Tensor.mul"),
    (permutation, Unsteadiness.ORDER, "torch.randperm"),
    (number, Unsteadiness.NUMBER, "torch.Tensor.mul"),
    (way, Unsteadiness.FLOW, None),
    (threads, Unsteadiness.THREADS, None),
    (initialisation, Unsteadiness.RANDOM, "torch.nn.init.kaiming_uniform_"),
    (read_back, Unsteadiness.RANDOM, "torch.rand"),
]


def recorded(tmp_path, program, level="api", model=None):
    for run in (0, 1):
        torch.manual_seed(run)
        with tt.record(tmp_path / str(run), model, level=level, framework="torch", strict=True):
            program(run)
    return first_difference(tt.open(tmp_path / "0"), tt.open(tmp_path / "1"))


@pytest.mark.parametrize(("program", "cause", "name"), CAUSES, ids=[case[0].__name__ for case in CAUSES])
def test_the_cause_is_named(tmp_path, program, cause, name):
    found, count = recorded(tmp_path, program)
    assert found is not None
    assert found.cause is cause, found
    if name is not None:
        assert found.call.site.name == name
        assert found.call.stack[0].function == program.__name__
    assert count.calls


def kernels(tmp_path, program):
    return recorded(tmp_path, program, level="op")[0]


@pytest.mark.parametrize("program", [noise, dropout, masks])
def test_kernels_that_draw(tmp_path, program):
    assert kernels(tmp_path, program).cause is Unsteadiness.RANDOM


def seed_that_nobody_uses(run):
    torch.empty((), dtype=torch.int64).random_().item()
    torch.ones(3).sum()


def memory_that_is_overwritten(run):
    x = torch.empty(64)
    x.numpy()[:] = run
    x.copy_(torch.ones(64))
    x.zero_()
    (x + 1).sum()


def draw_that_is_not_taken(run):
    torch.where(torch.ones(3) > 0, torch.ones(3), torch.randn(3)).sum()


def memory_that_is_initialised(run):
    x = torch.empty(64)
    x.numpy()[:] = run
    torch.nn.init.constant_(x, 2.0)
    (x + 1).sum()


@pytest.mark.parametrize(
    "program",
    [seed_that_nobody_uses, memory_that_is_overwritten, memory_that_is_initialised, draw_that_is_not_taken],
)
@pytest.mark.parametrize("level", ["api", "op"])
def test_without_effect_it_is_no_difference(tmp_path, program, level):
    found, count = recorded(tmp_path, program, level=level)
    assert found is None
    assert count.values


def test_weights(tmp_path):
    nets = [torch.nn.Linear(4, 2) for _ in range(2)]
    for level in ("module", "mix", "api"):
        for run, net in enumerate(nets):
            with tt.record(tmp_path / level / str(run), net, level=level):
                net(torch.ones(1, 4)).sum()
        found, _ = first_difference(*(tt.open(tmp_path / level / str(run)) for run in (0, 1)))
        assert found.cause is Unsteadiness.WEIGHTS, level


def test_data_in_another_order_over_the_steps(tmp_path):
    torch.manual_seed(0)
    net, batches = torch.nn.Linear(4, 1), torch.randn(8, 2, 4)
    for run in (0, 1):
        order = np.random.default_rng(run).permutation(16)
        with tt.record(tmp_path / str(run), net, level="module") as rec:
            for start in range(0, 16, 4):
                net(batches.reshape(16, 4)[torch.from_numpy(order[start : start + 4])])
                rec.step()
    found, _ = first_difference(tt.open(tmp_path / "0"), tt.open(tmp_path / "1"))
    assert (found.cause, found.step) == (Unsteadiness.ORDER, 0)


def test_a_module_that_draws_in_its_own_code(tmp_path):
    class Noisy(torch.nn.Module):
        def forward(self, x):
            return x + torch.randn(3)

    found, _ = recorded(tmp_path, lambda run: net(torch.ones(3)), level="module", model=(net := Noisy()))
    assert found.cause is Unsteadiness.OUTSIDE
    assert "mix" in found.advice


def test_a_gradient_that_differs_alone(tmp_path):
    class Unsteady(torch.autograd.Function):
        factor = 1.0

        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            return gradient * Unsteady.factor

    class Net(torch.nn.Module):
        def forward(self, x):
            return Unsteady.apply(x)

    net = Net()

    def program(run):
        Unsteady.factor = 1.0 + run
        net(torch.ones(3, requires_grad=True).exp()).sum().backward()

    found, _ = recorded(tmp_path / "module", program, level="module", model=net)
    assert found.backward
    assert found.cause is Unsteadiness.OUTSIDE
    found, _ = recorded(tmp_path / "mix", program, level="mix", model=net)
    assert found.cause is Unsteadiness.NUMBER  # the code of the backward pass is recorded there
    assert found.call.stack[0].function == "backward"


def test_another_number_of_steps(tmp_path):
    for run in (0, 1):
        with tt.record(tmp_path / str(run), level="api", framework="torch") as rec:
            for _ in range(2 + run):
                torch.ones(2).sum()
                rec.step()
    found, _ = first_difference(tt.open(tmp_path / "0"), tt.open(tmp_path / "1"))
    assert found.cause is Unsteadiness.FLOW
    assert "only the second run has step 2" in found.what
