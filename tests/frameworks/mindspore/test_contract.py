"""The MindSpore adapter keeps the contract: its page."""

import numpy as np
import pytest

ms = pytest.importorskip("mindspore")

from mindspore import mint, nn, ops  # noqa: E402
from mindspore.common.initializer import initializer  # noqa: E402
from mindspore.experimental.optim import SGD  # noqa: E402

from twintrace.frameworks.mindspore import ops as kernels  # noqa: E402
from twintrace.frameworks.mindspore import patches  # noqa: E402
from twintrace.frameworks.mindspore.gradients import unseen  # noqa: E402
from twintrace.frameworks.mindspore.tensors import NAMES  # noqa: E402
from twintrace.model.records import Role  # noqa: E402
from twintrace.testing.contract import FrameworkContract  # noqa: E402
from twintrace.testing.fixtures import Derivatives, Function, Page, rearranged  # noqa: E402
from twintrace.testing.reading import check_same_bits  # noqa: E402
from twintrace.testing.recording import recorded  # noqa: E402

DTYPES = {name: dtype for dtype, name in NAMES.items()}


class Mlp(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Dense(3, 4), nn.LayerNorm((4,), epsilon=1e-5), nn.Dense(4, 2)

    def construct(self, x):
        return self.last(mint.nn.functional.relu(self.norm(self.first(x))))


class Shared(nn.Cell):
    def __init__(self):
        super().__init__()
        self.layer = nn.Dense(3, 3)

    def construct(self, x):
        return self.layer(mint.nn.functional.relu(self.layer(x)))


class Forked(nn.Cell):
    def construct(self, x):
        return mint.add(mint.nn.functional.relu(x), ops.mul(x, 2.0))


class Bad(nn.Cell):
    def construct(self, x):
        raise RuntimeError("bad layer")


class Broken(nn.Cell):
    def __init__(self):
        super().__init__()
        self.good, self.bad = nn.Dense(3, 3), Bad()

    def construct(self, x):
        return self.bad(self.good(x))


class Structured(nn.Cell):
    def __init__(self):
        super().__init__()
        self.layer = nn.Dense(3, 3)

    def construct(self, items, *, options):
        return rearranged(self.layer, items, options)


class Buffered(nn.Cell):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", ms.Tensor(np.zeros(3, np.float32)))

    def construct(self, x):
        self.seen.copy_(mint.add(self.seen, 1.0))
        return mint.add(x, self.seen)


def add_(tensor, other):
    """MindSpore's own `add_` gives a new tensor on CPU and leaves the old one as it was; this one writes."""
    with unseen():
        value = other if isinstance(other, ms.Tensor) else ms.Tensor(np.full(tensor.shape, other, np.float32))
    return ops.assign_add(tensor, value)


def recompute(function, x):
    class Block(nn.Cell):
        def construct(self, x):
            return function(x)

    return ms.recompute(Block(), x)


class MindsporePage(Page):
    name = "mindspore"
    functions = {
        "add": Function(mint.add, "mindspore.mint.add", "AddExt"),
        "mul": Function(ops.mul, "mindspore.ops.mul", "Mul"),
        "relu": Function(ops.relu, "mindspore.mint.nn.functional.relu", "ReLU"),
        "total": Function(mint.sum, "mindspore.mint.sum", "SumExt"),
        "add_": Function(add_, "mindspore.ops.assign_add", "AssignAdd"),
        "checkpoint": Function(recompute, ""),
    }
    models = {
        "mlp": Mlp,
        "shared": Shared,
        "forked": Forked,
        "broken": Broken,
        "structured": Structured,
        "buffered": Buffered,
    }

    def __init__(self):
        self._gradients = None

    def tensor(self, values, dtype="f32", *, requires_grad=False):
        """`requires_grad` says nothing here: what is differentiated is said by `differentiate`."""
        if dtype not in DTYPES:
            raise NotImplementedError(dtype)
        with unseen():
            if dtype not in ("bf16", "f8e4m3fn", "f8e5m2"):
                return ms.Tensor(values.copy())
            # What numpy does not have: bytes as bytes. A way through another type would quieten signalling NaNs.
            made = ms.Tensor(np.zeros(values.shape, np.uint8), DTYPES[dtype])
            # Before 2.8 a tensor has no address until an operator has touched it; its array is the same memory.
            memory = self._memory(made) if made.data_ptr() else made.asnumpy().view(np.uint8).reshape(-1)
            memory[...] = np.frombuffer(values.tobytes(), np.uint8)
            return made

    def array(self, tensor):
        with unseen():
            return tensor.asnumpy().copy()

    def overwrite(self, tensor, value):
        tensor.asnumpy()[...] = value

    def differentiate(self, function, *inputs, model=None):
        parameters = dict(self.adapter.named_parameters(model)) if model else {}
        positions = tuple(range(len(inputs)))
        if parameters:
            value, (back, by_weights) = ms.value_and_grad(function, positions, list(parameters.values()))(*inputs)
        else:
            value, back = ms.value_and_grad(function, positions)(*inputs)
            by_weights = ()
        self._gradients = tuple(by_weights)
        with unseen():
            back = (back,) if isinstance(back, ms.Tensor) else back
            back = [None if gradient is None else self.array(gradient) for gradient in back]
            gradients = {name: self.array(item) for name, item in zip(parameters, by_weights, strict=True)}
            return Derivatives(self.array(value), tuple(back), gradients)

    def update(self, model):
        with unseen():  # making an optimizer computes as well
            optimizer = SGD(list(model.trainable_params()), 0.1)
        optimizer(self._gradients)

    def hook_count(self, model):
        return len(patches._LAYERS) + len(kernels._MODE.listeners)

    def unpleasant(self):
        with unseen():
            base = ms.Tensor(np.arange(12, dtype=np.float32).reshape(3, 4))
            return {
                "transposed": base.T,
                "every second": base[::2, ::2],
                "stretched": base[0].expand((3, 4)),
                "second row": base[1],
                "scalar": ms.Tensor(np.float32(-0.0)),
                "empty": ms.Tensor(np.zeros((0, 3), np.float32)),
                "not finite": ms.Tensor(np.array([np.nan, np.inf, -np.inf, -0.0], np.float32)),
                "parameter": ms.Parameter(np.ones(2, np.float32), name="p"),
            }

    def unreadable(self):
        """A tensor on no device, or where there are none of those, one whose initialiser has not run."""
        if hasattr(ms.Tensor, "is_meta"):
            return mint.empty((2, 3), device="meta")
        return initializer("ones", (2, 3))

    def token(self):
        return ms.bfloat16, ("dtype", "BFloat16")

    @staticmethod
    def _memory(tensor):
        raw = type("Raw", (), {})()
        raw.__array_interface__ = {
            "version": 3, "data": (tensor.data_ptr(), False), "shape": (tensor.nbytes,), "typestr": "|u1",
        }  # fmt: skip
        raw.tensor = tensor
        return np.asarray(raw)


@pytest.mark.needs_mindspore
class TestMindspore(FrameworkContract):
    @pytest.fixture
    def framework(self):
        return MindsporePage()

    def test_gradients_go_through_writes_in_place(self, framework, tmp_path):
        """`copy_` is the write that MindSpore can differentiate on CPU: what was there before has no part in what follows."""

        def function(x):
            h = ops.mul(x, 2.0)
            h.copy_(ops.mul(x, 3.0))
            return mint.sum(mint.mul(h, h))

        x = framework.tensor(np.arange(6, dtype=np.float32).reshape(2, 3), requires_grad=True)
        reading, found = recorded(framework, tmp_path / "t", function, x)
        written = reading["api:mindspore.Tensor.copy_#0"]
        six = framework.array(x) * np.float32(6)

        assert written.mutates == ("0",)
        check_same_bits(reading.inputs(written)["0"], framework.array(x) * np.float32(2))
        check_same_bits(reading.outputs(written)[""], framework.array(x) * np.float32(3))
        check_same_bits(reading.gradients(written, Role.OUTPUT)[""], six)
        check_same_bits(reading.gradients(written, Role.INPUT)["1"], six)
        check_same_bits(found.inputs[0], six * np.float32(3))
