"""The miniature computes what it says: gradients beside differences, views and versions, hooks in any order."""

import gc
import weakref

import numpy as np
import pytest

from twintrace.frameworks.reference import miniature as mini
from twintrace.frameworks.reference.miniature import HOOKS, Parameter, Tensor

RNG = np.random.default_rng(0)
A, B, ROW = RNG.standard_normal((3, 4)), RNG.standard_normal((3, 4)), RNG.standard_normal(4)


def in_place(a, b):
    h = mini.mul(a, 2.0)
    mini.add_(h, b)
    return mini.mul(h, h)


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (mini.add, (A, B)),
        (mini.add, (A, ROW)),
        (mini.mul, (A, B)),
        (mini.mul, (A, ROW)),
        (lambda a: mini.mul(a, a), (A,)),
        (lambda a: mini.mul(mini.add(a, 2.0), 3.0), (A,)),
        (mini.matmul, (A, B.T.copy())),
        (mini.relu, (A,)),
        (lambda a: mini.mul(mini.reshape(a, (4, 3)), mini.reshape(a, (4, 3))), (A,)),
        (in_place, (A, B)),
        (in_place, (A, ROW)),
        (mini.linear, (A, RNG.standard_normal((4, 2)), RNG.standard_normal(2))),
        (mini.layer_norm, (A, ROW, B[0])),
        (lambda a: mini.checkpoint(lambda h: mini.mul(h, mini.relu(h)), a), (A,)),
    ],
)
def test_gradients_are_those_of_small_differences(function, inputs):
    weights = None

    def loss(*arrays, track=False):
        nonlocal weights
        tensors = [Tensor(array.copy(), requires_grad=track) for array in arrays]
        result = function(*tensors)
        weights = RNG.standard_normal(result.shape) if weights is None else weights
        return mini.total(mini.mul(result, Tensor(weights))), tensors

    value, tensors = loss(*inputs, track=True)
    value.backward()
    for position, tensor in enumerate(tensors):
        for index in np.ndindex(*tensor.shape):
            low, high = [array.copy() for array in inputs], [array.copy() for array in inputs]
            low[position][index] -= 1e-6
            high[position][index] += 1e-6
            slope = (loss(*high)[0].array - loss(*low)[0].array) / 2e-6
            assert slope == pytest.approx(tensor.grad.array[index], rel=1e-5, abs=1e-7)


def test_gradients_add_up_in_leaves():
    x = Parameter([1.0, 2.0])
    for _ in range(2):
        mini.total(x * 3.0).backward()
    assert x.grad.array.tolist() == [6, 6]


def test_without_the_tape_nothing_has_a_history():
    x = Parameter([1.0])
    with mini.taping(False):
        y = mini.relu(x)
    assert y.node is None
    assert mini.relu(x).node is not None
    with pytest.raises(RuntimeError, match="no history"):
        y.backward()


def test_a_view_shares_storage_and_version():
    x = Tensor(np.arange(6.0))
    view = mini.reshape(x, (2, 3))
    assert view.storage is x.storage
    assert view.is_view
    mini.add_(view, 1.0)
    assert x.array.tolist() == [1, 2, 3, 4, 5, 6]
    assert x.storage.version == 1
    assert mini.relu(x).storage is not x.storage


@pytest.mark.parametrize("make", [lambda x: x, lambda x: mini.reshape(mini.relu(x), (2, 1))], ids=["leaf", "view"])
def test_writes_that_the_tape_cannot_follow_are_refused(make):
    with pytest.raises(RuntimeError, match="cannot follow"):
        mini.add_(make(Parameter([1.0, 2.0])), 1.0)


def test_a_meta_tensor_has_a_shape_only():
    found = mini.matmul(Tensor(np.ones((2, 3), np.float32)), Tensor.meta(3, 4))
    assert (found.device, found.shape, found.dtype) == ("meta", (2, 4), "f32")


def test_types_that_numpy_has_not_are_held_and_not_computed_with():
    x = Tensor(np.zeros(3, np.uint16), "bf16")
    assert x.dtype == "bf16"
    with pytest.raises(TypeError, match=r"bf16\[3\]"):
        mini.relu(x)


def test_only_the_outermost_function_is_seen_and_all_kernels():
    seen = []

    def listen(what, args, kwargs, run):
        seen.append(what.__name__)
        return run()

    for hooks in (HOOKS.calls, HOOKS.kernels):
        hooks.append(listen)
    mini.linear(Tensor(np.ones((1, 2))), Tensor(np.ones((2, 2))), Tensor(np.ones(2)))
    for hooks in (HOOKS.calls, HOOKS.kernels):
        hooks.remove(listen)
    mini.relu(Tensor([1.0]))

    assert seen == ["linear", "matmul", "add"]


def test_hooks_may_change_results_and_leave_in_any_order():
    def plus_one(what, args, kwargs, run):
        return mini.add(run(), 1.0)

    def doubled(what, args, kwargs, run):
        return mini.mul(run(), 2.0)

    class Same(mini.Module):
        def forward(self, x):
            return x

    net, x = Same(), Tensor([1.0])
    HOOKS.modules.append(plus_one)
    HOOKS.modules.append(doubled)
    try:
        assert net(x).array == 4, "the last that came is the outermost"
        HOOKS.modules.remove(plus_one)
        assert net(x).array == 2
    finally:
        HOOKS.modules.clear()
    assert net(x).array == 1


def test_intermediate_tensors_are_let_go():
    x = Parameter([1.0])
    h = mini.mul(x, 2.0)
    held = weakref.ref(h)
    y = mini.add(h, 1.0)
    del h
    gc.collect()
    assert held() is None
    mini.total(y).backward()
    assert x.grad.array == 2


def test_a_module_knows_what_is_below_it():
    class Net(mini.Module):
        def __init__(self):
            self.one, self.two = mini.Linear(2, 2), mini.LayerNorm(2)
            self.count = Tensor([0.0])

    net = Net()
    assert list(net.modules()) == ["", "one", "two"]
    assert list(net.tensors()) == ["count", "one.weight", "one.bias", "two.weight", "two.bias"]
    net.train(False)
    assert not net.two.training
    with pytest.raises(NotImplementedError, match="Net has no forward"):
        net(1)


def test_descent_goes_down():
    x = Parameter([1.0, -1.0])
    mini.total(x * x).backward()
    mini.Descent([x], 0.25).step()
    assert x.array.tolist() == [0.5, -0.5]
    assert x.grad is None
