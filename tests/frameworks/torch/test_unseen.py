"""The run does not see the recorder: no subclass and no mode of the user's is called for what the recorder does."""

import collections
import contextlib

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.overrides import TorchFunctionMode  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_map  # noqa: E402

import twintrace as tt  # noqa: E402
from twintrace.model.values import leaves  # noqa: E402

pytestmark = pytest.mark.needs_torch
LEVELS = ("module", "api", "mix", "op")
KEEPS = ("fingerprint", "tensor")


class Wrapper(torch.Tensor):
    """Keeps its values in an attribute; each kernel is the class's own Python. Counts what it is called for."""

    seen: collections.Counter = collections.Counter()

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, dtype=inner.dtype, requires_grad=inner.requires_grad
        )

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        Wrapper.seen[str(func)] += 1
        args, kwargs = tree_map(lambda x: x.inner if isinstance(x, Wrapper) else x, (args, kwargs or {}))
        return tree_map(lambda x: cls(x) if isinstance(x, torch.Tensor) else x, func(*args, **kwargs))


class SlottedWrapper(Wrapper):
    __slots__ = ("kept",)

    def __init__(self, inner):
        self.kept = self.inner = inner


class Empty(torch.Tensor):
    """Keeps no tensor anywhere: its values come from a function."""

    @staticmethod
    def __new__(cls):
        return torch.Tensor._make_wrapper_subclass(cls, (3,), dtype=torch.float32)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return func(*[torch.ones(3) if isinstance(x, Empty) else x for x in args], **(kwargs or {}))


class Asked(torch.Tensor):
    seen: collections.Counter = collections.Counter()

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        Asked.seen[getattr(func, "__name__", str(func))] += 1
        return super().__torch_function__(func, types, args, kwargs or {})


class Kernels(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


class Functions(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen.append(getattr(func, "__name__", str(func)))
        return func(*args, **(kwargs or {}))


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))


def subclasses_under_a_mode():
    """as_subclass under a mode that sees kernels"""
    with Kernels():
        try:
            torch.ones(1, requires_grad=True).as_subclass(Asked)
        except RuntimeError:
            return False
    return True


def modes_that_do_not_disturb_each_other():
    """a mode that sees the same kernels whatever modes are inside of it"""

    def seen(*inner):
        with Kernels() as outer, contextlib.ExitStack() as stack:
            for mode in inner:
                stack.enter_context(mode)
            nn.Linear(2, 2)(torch.ones(1, 2)).sum().backward()
        return outer.seen

    return seen(Kernels()) == seen(Kernels(), Kernels())


def train(model, mode):
    """Two backward passes into the same gradients, strided and sparse tensors, one tensor that two calls use, a step."""
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    x = torch.arange(12.0).view(4, 3).t()
    with mode:
        for _ in range(2):
            hidden = model[0](x)
            (model(x) + hidden.sum() * hidden[:, ::2].mean()).sum().backward()
        torch.sparse_coo_tensor([[0, 1]], [1.0, 2.0], (3,), check_invariants=False).coalesce() * 2
        x.conj().resolve_conj().t()[::2].neg().sum()
        optimizer.step()
    return mode.seen


@pytest.mark.parametrize("keep", KEEPS)
@pytest.mark.parametrize("level", LEVELS)
class TestWhoIsAsked:
    def record(self, tmp_path, level, keep, model=None):
        return tt.record(tmp_path / "t", model or net(), level=level, keep=keep, framework="torch", strict=True)

    def test_a_wrapper_runs_as_often_as_without(self, tmp_path, level, keep):
        def run():
            Wrapper.seen.clear()
            x = Wrapper(torch.ones(3))
            model((x * 2 + 1).relu()).sum()
            return dict(Wrapper.seen)

        model = nn.ReLU()
        bare = run()
        with self.record(tmp_path, level, keep, model):
            assert run() == bare

    def test_a_subclass_is_asked_as_often_as_without(self, tmp_path, level, keep, needs_offered):
        if level == "op":
            needs_offered(subclasses_under_a_mode)

        def run():
            Asked.seen.clear()
            x = torch.ones(3, 4, requires_grad=True).as_subclass(Asked)
            model((x * 2) + 1).sum().backward()
            return dict(Asked.seen)

        model = net()
        bare = run()
        with self.record(tmp_path, level, keep, model):
            assert run() == bare

    @pytest.mark.parametrize("kind", [Kernels, Functions])
    def test_a_mode_sees_the_same_calls(self, tmp_path, level, keep, kind, needs_offered):
        if level == "op":
            needs_offered(modes_that_do_not_disturb_each_other)
        bare = train(net(), kind())
        model = net()
        with self.record(tmp_path, level, keep, model):
            assert train(model, kind()) == bare

    @pytest.mark.parametrize("kind", [Kernels, Functions])
    def test_a_mode_around_the_recorder_sees_the_same_calls(self, tmp_path, level, keep, kind, needs_offered):
        if level == "op":
            needs_offered(modes_that_do_not_disturb_each_other)
        bare, mode = kind(), kind()
        first, second = net(), net()
        with bare:
            train(first, Kernels())
        with mode, self.record(tmp_path, level, keep, second):
            train(second, Kernels())
        assert mode.seen == bare.seen

    def test_what_is_saved_asks_nobody(self, tmp_path, level, keep):
        x = torch.ones(3, 4, requires_grad=True).as_subclass(Asked)
        mode = Functions()
        with self.record(tmp_path, level, keep) as rec, mode:
            Asked.seen.clear()
            rec.save("x", x)
            assert (dict(Asked.seen), mode.seen) == ({}, [])


class TestValues:
    """What wraps other tensors is recorded by these; where that cannot be, the trace says why."""

    @pytest.fixture
    def recorded(self, tmp_path):
        def run(function, name):
            with tt.record(tmp_path / "t", level="api", keep="tensor", framework="torch", strict=True):
                function()
            journal = tt.open(tmp_path / "t").journal(0)
            call = next(call for call in journal.calls() if call.site.name == name)
            return journal, journal.tensor(call.args[0].id), journal.tensor(call.output.id)

        return run

    def parts(self, journal, tensor):
        return {name: journal.array(journal.tensor(number)).tolist() for name, number in tensor.parts.items()}

    @pytest.mark.parametrize("kind", [Wrapper, SlottedWrapper])
    def test_of_a_wrapper(self, recorded, kind):
        journal, left, right = recorded(lambda: kind(torch.arange(3.0)) * 2, "torch.Tensor.mul")
        assert self.parts(journal, left)["inner"] == [0, 1, 2]
        assert self.parts(journal, right)["inner"] == [0, 2, 4]
        assert left.facts == {"class": kind.__name__, "layout": "wrapper"}
        assert set(left.parts) == ({"inner"} if kind is Wrapper else {"inner", "kept"})

    def test_of_a_wrapper_that_is_written_to(self, recorded):
        """Its version does not count for what it wraps: it is read each time."""

        def write():
            x = Wrapper(torch.zeros(2))
            x * 1
            x.inner += 5
            torch.relu(x)

        journal, left, _ = recorded(write, "torch.relu")
        assert self.parts(journal, left)["inner"] == [5, 5]

    def test_a_wrapper_of_nothing_says_so(self, recorded):
        _, left, _ = recorded(lambda: Empty() * 2, "torch.Tensor.mul")
        assert "a recorder does not run it" in left.missing

    @pytest.mark.offered("torch.jagged")
    def test_of_a_ragged_tensor(self, recorded):
        ragged = torch.nested.nested_tensor([torch.ones(2, 3), torch.zeros(1, 3)], layout=torch.jagged)
        journal, left, right = recorded(lambda: ragged * 2, "torch.Tensor.mul")
        assert self.parts(journal, left) == {"values": [[1] * 3] * 2 + [[0] * 3], "offsets": [0, 2, 3]}
        assert self.parts(journal, right)["values"][0] == [2, 2, 2]

    def test_inside_vmap(self, recorded):
        journal, left, right = recorded(
            lambda: torch.vmap(lambda row: row * 2, in_dims=1)(torch.arange(6.0).view(2, 3)), "torch.Tensor.mul"
        )
        assert (left.spec.shape, left.facts["dimension"]) == ((2,), 1)
        assert self.parts(journal, left) == {"batch": [[0, 1, 2], [3, 4, 5]]}
        assert sorted(number for row in self.parts(journal, right)["batch"] for number in row) == [0, 2, 4, 6, 8, 10]

    def test_inside_grad(self, recorded):
        journal, left, right = recorded(
            lambda: torch.func.grad(lambda x: (x.t() * 3).sum())(torch.arange(4.0).view(2, 2)), "torch.Tensor.mul"
        )
        assert journal.array(left).tolist() == [[0, 2], [1, 3]]
        assert journal.array(right).tolist() == [[0, 6], [3, 9]]

    def test_inside_grad_of_vmap(self, recorded):
        def per_example(weight, x):
            return (weight * x).sum()

        journal, left, _ = recorded(
            lambda: torch.vmap(torch.func.grad(per_example), (None, 0))(torch.ones(2), torch.arange(6.0).view(3, 2)),
            "torch.Tensor.mul",
        )
        assert journal.array(left).tolist() == [1, 1]

    def test_inside_functionalize_it_says_why_not(self, recorded):
        _, left, _ = recorded(lambda: torch.func.functionalize(lambda x: x * 2)(torch.ones(2)), "torch.Tensor.mul")
        assert "functionalize" in left.missing

    @pytest.mark.parametrize(
        ("function", "name", "result"),
        [
            (lambda x: torch.is_nonzero(x[0]), "torch.is_nonzero", {"": True}),
            (lambda x: 2.0 in x, "torch.Tensor.__contains__", {"": True}),
            (lambda x: torch.equal(x, x), "torch.equal", {"": True}),
            (lambda x: x.tolist(), "torch.Tensor.tolist", {"0": 1.0, "1": 2.0}),
            (lambda x: float(x[1]), "torch.Tensor.__float__", {"": 2.0}),
        ],
    )
    def test_results_that_are_no_tensors(self, tmp_path, function, name, result):
        with tt.record(tmp_path / "t", level="api", framework="torch", strict=True):
            function(torch.tensor([1.0, 2.0]))
        [call] = [call for call in tt.open(tmp_path / "t").journal(0).calls() if call.site.name == name]
        assert dict(leaves(call.output)) == result
