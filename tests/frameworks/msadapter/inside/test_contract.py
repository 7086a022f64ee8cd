"""The MSAdapter adapter keeps the contract: its page."""

import mindspore as ms
import numpy as np
import pytest
import torch
from torch import nn

from twintrace.frameworks.mindspore import patches
from twintrace.frameworks.mindspore.gradients import unseen
from twintrace.frameworks.msadapter.tensors import NAMES
from twintrace.testing.contract import FrameworkContract
from twintrace.testing.fixtures import Derivatives, Function, Page, rearranged

DTYPES = {name: dtype for dtype, name in NAMES.items() if not name.startswith("f8")}  # of which no tensor can be made


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(3, 4), nn.LayerNorm(4, eps=1e-5), nn.Linear(4, 2)

    def forward(self, x):
        return self.last(torch.relu(self.norm(self.first(x))))


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x):
        return self.layer(torch.relu(self.layer(x)))


class Forked(nn.Module):
    def forward(self, x):
        return torch.add(torch.relu(x), torch.mul(x, 2.0))


class Bad(nn.Module):
    def forward(self, x):
        raise RuntimeError("bad layer")


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.good, self.bad = nn.Linear(3, 3), Bad()

    def forward(self, x):
        return self.bad(self.good(x))


class Structured(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, items, *, options):
        return rearranged(self.layer, items, options)


class Buffered(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x):
        self.seen.add_(1)
        return torch.add(x, self.seen)


class Descent(torch.optim.Optimizer):
    """A user's own optimizer: MSAdapter's have no kernels on CPU."""

    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr})

    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.sub_(torch.mul(parameter.grad, group["lr"]))


class MsadapterPage(Page):
    name = "msadapter"
    functions = {
        "add": Function(torch.add, "torch.add", "Add"),
        "mul": Function(torch.mul, "torch.mul", "Mul"),
        "relu": Function(torch.relu, "torch.relu", "ReLU"),
        "total": Function(torch.sum, "torch.sum", "ReduceSum"),
        "add_": Function(torch.Tensor.add_, "torch.Tensor.add_", "Add"),
    }
    models = {
        "mlp": Mlp,
        "shared": Shared,
        "forked": Forked,
        "broken": Broken,
        "structured": Structured,
        "buffered": Buffered,
    }

    def tensor(self, values, dtype="f32", *, requires_grad=False):
        """`requires_grad` says nothing here: what is differentiated is said by `differentiate`."""
        if dtype not in DTYPES:
            raise NotImplementedError(dtype)
        with unseen():
            try:
                made = torch.zeros(values.shape, dtype=DTYPES[dtype])
            except TypeError as error:  # no kernel: bf16 before MindSpore 2.8
                raise NotImplementedError(dtype) from error
            _memory(made)[...] = np.frombuffer(values.tobytes(), np.uint8)
            return made

    def array(self, tensor):
        with unseen():
            return tensor.asnumpy().copy()

    def differentiate(self, function, *inputs, model=None):
        parameters = dict(self.adapter.named_parameters(model)) if model else {}
        positions = tuple(range(len(inputs)))
        if parameters:
            value, (back, by_weights) = ms.value_and_grad(function, positions, list(parameters.values()))(*inputs)
        else:
            value, back = ms.value_and_grad(function, positions)(*inputs)
            by_weights = ()
        with unseen():
            back = (back,) if isinstance(back, ms.Tensor) else back
            for parameter, gradient in zip(parameters.values(), by_weights, strict=True):
                parameter.grad = torch.tensor(gradient.asnumpy())
            gradients = {name: self.array(item) for name, item in zip(parameters, by_weights, strict=True)}
            back = [None if gradient is None else self.array(gradient) for gradient in back]
            return Derivatives(self.array(value), tuple(back), gradients)

    def update(self, model):
        Descent(model.parameters(), 0.1).step()

    def hook_count(self, model):
        return len(patches._LAYERS)

    def unpleasant(self):
        with unseen():
            base = torch.tensor(np.arange(12, dtype=np.float32).reshape(3, 4))
            return {
                "transposed": base.t(),
                "every second": base[::2, ::2],
                "stretched": base[0].expand(3, 4),
                "second row": base[1],
                "scalar": torch.tensor(-0.0),
                "empty": torch.zeros(0, 3),
                "not finite": torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0]),
                "parameter": nn.Parameter(torch.ones(2)),
                "MindSpore's own": ms.Tensor(np.ones(3, np.float32)),
            }

    def unreadable(self):
        return torch.empty(2, 3, device="meta")

    def token(self):
        return torch.bfloat16, ("dtype", "bfloat16")


def _memory(tensor):
    raw = type("Raw", (), {})()
    raw.__array_interface__ = {
        "version": 3, "data": (tensor._data_ptr(), False), "shape": (tensor._nbytes,), "typestr": "|u1",
    }  # fmt: skip
    raw.tensor = tensor
    return np.asarray(raw)


class TestMsadapter(FrameworkContract):
    @pytest.fixture
    def framework(self):
        return MsadapterPage()
