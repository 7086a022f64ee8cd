"""The reference adapter keeps the contract: its page."""

import numpy as np
import pytest

from twintrace.frameworks.reference import miniature as mini
from twintrace.frameworks.reference.miniature import Linear, Module, Tensor
from twintrace.testing.contract import FrameworkContract
from twintrace.testing.fixtures import Derivatives, Function, Page, rearranged


class Mlp(Module):
    def __init__(self):
        self.first, self.norm, self.last = Linear(3, 4), mini.LayerNorm(4), Linear(4, 2)

    def forward(self, x):
        return self.last(mini.relu(self.norm(self.first(x))))


class Shared(Module):
    def __init__(self):
        self.layer = Linear(3, 3)

    def forward(self, x):
        return self.layer(mini.relu(self.layer(x)))


class Forked(Module):
    def forward(self, x):
        return mini.add(mini.relu(x), mini.mul(x, 2.0))


class Bad(Module):
    def forward(self, x):
        raise RuntimeError("bad layer")


class Broken(Module):
    def __init__(self):
        self.good, self.bad = Linear(3, 3), Bad()

    def forward(self, x):
        return self.bad(self.good(x))


class Structured(Module):
    def __init__(self):
        self.layer = Linear(3, 3)

    def forward(self, items, *, options):
        return rearranged(self.layer, items, options)


class Buffered(Module):
    def __init__(self):
        self.seen = Tensor(np.zeros(3, np.float32))

    def forward(self, x):
        mini.add_(self.seen, 1.0)
        return mini.add(x, self.seen)


def functions():
    names = ("add", "mul", "relu", "total", "add_")
    found = {name: Function(getattr(mini, name), f"reference.{name}", f"reference.kernel.{name}") for name in names}
    return found | {"checkpoint": Function(mini.checkpoint, "")}


class ReferencePage(Page):
    name = "reference"
    functions = functions()
    models = {
        "mlp": Mlp,
        "shared": Shared,
        "forked": Forked,
        "broken": Broken,
        "structured": Structured,
        "buffered": Buffered,
    }

    def tensor(self, values, dtype="f32", *, requires_grad=False):
        return Tensor(values, dtype, requires_grad=requires_grad)

    def array(self, tensor):
        return np.array(tensor.array, order="C")

    def overwrite(self, tensor, value):
        tensor.array[...] = value

    def differentiate(self, function, *inputs, model=None):
        parameters = model.tensors() if model else {}
        for tensor in (*inputs, *parameters.values()):
            tensor.grad = None
        value = function(*inputs)
        if value.node is not None:
            value.backward()
        gradients = {name: tensor.grad.array for name, tensor in parameters.items() if tensor.grad is not None}
        return Derivatives(value.array, tuple(x.grad and x.grad.array for x in inputs), gradients)

    def update(self, model):
        mini.Descent(model.tensors().values(), 0.1).step()

    def hook_count(self, model):
        nodes = [tensor.node for tensor in model.tensors().values() if tensor.node]
        return sum(map(len, vars(mini.HOOKS).values())) + sum(len(node.before) + len(node.after) for node in nodes)

    def unpleasant(self):
        base = np.arange(12, dtype=np.float32).reshape(3, 4)
        frozen = base.copy()
        frozen.setflags(write=False)
        arrays = {
            "transposed": base.T,
            "backwards": base[::-1, ::-1],
            "every second": base[::2, ::2],
            "stretched": np.broadcast_to(base[0], (3, 4)),
            "overlapping": np.lib.stride_tricks.sliding_window_view(np.arange(5.0), 3),
            "scalar": np.array(-0.0),
            "empty": np.zeros((0, 3), np.float32),
            "not finite": np.array([np.nan, np.inf, -np.inf, -0.0], np.float32),
            "frozen": frozen,
        }
        return {name: Tensor(array) for name, array in arrays.items()}

    def unreadable(self):
        return Tensor.meta(2, 3)

    def token(self):
        return mini.RANDOM, ("generator", "reference.Generator")


class TestReference(FrameworkContract):
    @pytest.fixture
    def framework(self):
        return ReferencePage()
