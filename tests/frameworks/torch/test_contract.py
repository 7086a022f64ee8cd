"""The torch adapter keeps the contract: its page."""

import contextlib

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.optim import optimizer as optimizers  # noqa: E402
from torch.utils import _python_dispatch as dispatch  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from twintrace.frameworks.torch import patches  # noqa: E402
from twintrace.frameworks.torch.tensors import NAMES  # noqa: E402
from twintrace.testing.contract import FrameworkContract  # noqa: E402
from twintrace.testing.fixtures import Derivatives, Function, Page, rearranged  # noqa: E402
from twintrace.testing.recording import recorder  # noqa: E402

DTYPES = {name: dtype for dtype, name in NAMES.items() if not str(dtype).startswith("torch.q")}


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2)

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


@contextlib.contextmanager
def unrecorded():
    """The page's own doings are not part of the run."""
    with torch._C.DisableTorchFunction(), dispatch._disable_current_modes():
        yield


def recompute(function, x):
    return checkpoint(function, x, use_reentrant=False)


class TorchPage(Page):
    name = "torch"
    functions = {
        "add": Function(torch.add, "torch.add", "aten.add.Tensor"),
        "mul": Function(torch.mul, "torch.mul", "aten.mul.Tensor"),
        "relu": Function(torch.relu, "torch.relu", "aten.relu.default"),
        "total": Function(torch.sum, "torch.sum", "aten.sum.default"),
        "add_": Function(torch.Tensor.add_, "torch.Tensor.add_", "aten.add_.Tensor"),
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
    own_kernels = (
        "aten.detach.default",
    )  # of a value that is saved for the way back: torch 2.1 shows it to outer modes as well

    def tensor(self, values, dtype="f32", *, requires_grad=False):
        if dtype not in DTYPES:
            raise NotImplementedError(dtype)
        # Bytes as bytes, and only then their meaning: a way through another type would quieten signalling NaNs.
        with unrecorded():
            raw = torch.from_numpy(np.frombuffer(values.tobytes(), np.uint8).copy())
            return raw.view(DTYPES[dtype]).reshape(values.shape).requires_grad_(requires_grad)

    def array(self, tensor):
        with unrecorded():
            plain = tensor.detach().clone(memory_format=torch.contiguous_format)
            return plain.resolve_conj().resolve_neg().numpy()

    def overwrite(self, tensor, value):
        tensor.numpy()[...] = value

    def differentiate(self, function, *inputs, model=None):
        parameters = dict(model.named_parameters()) if model else {}
        for tensor in (*inputs, *parameters.values()):
            tensor.grad = None
        value = function(*inputs)
        if value.requires_grad:
            value.backward()
        back = [None if tensor.grad is None else self.array(tensor.grad) for tensor in (*inputs, *parameters.values())]
        gradients = dict(zip(parameters, back[len(inputs) :], strict=True))
        return Derivatives(self.array(value), tuple(back[: len(inputs)]), gradients)

    def update(self, model):
        torch.optim.SGD(model.parameters(), 0.1).step()

    def hook_count(self, model):
        on_modules = sum(
            len(hooks) for module in model.modules() for key, hooks in vars(module).items() if key.endswith("_hooks")
        )
        on_tensors = sum(len(tensor._backward_hooks or ()) for tensor in model.parameters())
        modes = torch.overrides._get_current_function_mode_stack()
        modes += dispatch._get_current_dispatch_mode_stack()
        everywhere = (optimizers._global_optimizer_pre_hooks, optimizers._global_optimizer_post_hooks)
        return on_modules + on_tensors + len(modes) + sum(map(len, everywhere)) + len(patches._LAYERS)

    def unpleasant(self):
        base = torch.arange(12.0).reshape(3, 4)
        return {
            "transposed": base.t(),
            "every second": base[::2, ::2],
            "stretched": base[0].expand(3, 4),
            "overlapping": base.as_strided((3, 3), (1, 1)),
            "channels last": torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last),
            "scalar": torch.tensor(-0.0),
            "empty": torch.zeros(0, 3),
            "not finite": torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0]),
            "conjugated": torch.tensor([1 + 2j, 3 - 4j]).conj(),
            "negated": torch.tensor([1 + 2j, 3 - 4j]).conj().imag,
            "parameter": nn.Parameter(torch.ones(2)),
            "taped": torch.ones(2, requires_grad=True) * 2,
        }

    def unreadable(self):
        return torch.empty(2, 3, device="meta")

    def token(self):
        return torch.bfloat16, ("dtype", "bfloat16")


@pytest.mark.needs_torch
class TestTorch(FrameworkContract):
    @pytest.fixture
    def framework(self):
        return TorchPage()

    @pytest.mark.parametrize("level", ["module", "api", "mix", "op"])
    def test_recorded_tensors_can_still_be_resized(self, framework, tmp_path, level):
        """`Tensor.numpy` marks a storage as not resizable, for ever; sharded training frees storages by resizing them."""
        model, x = Mlp(), torch.ones(2, 3)
        with recorder(framework, tmp_path / "t", model, level=level) as rec:
            y = model(x)
            rec.save("y", y)
            y.sum().backward()
        tensors = [y, *model.parameters(), *(parameter.grad for parameter in model.parameters())]
        for tensor in tensors:
            larger = tensor.untyped_storage().nbytes() + 4
            assert tensor.untyped_storage().resize_(larger).nbytes() == larger
