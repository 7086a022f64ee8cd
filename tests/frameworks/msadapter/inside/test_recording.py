"""What MSAdapter's users see: their own script, torch's names, gradients that numpy agrees with, writes in place."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.functional import gelu as imported_before

import twintrace as tt
from twintrace.frameworks import registry
from twintrace.model.errors import MissingPackageError, UsageError
from twintrace.model.records import Role
from twintrace.model.sites import Kind, Phase
from twintrace.testing.reading import Reading

ADAPTER = registry.by_name("msadapter")
KNOWS_NODES = hasattr(ms.Tensor, "_grad_node")
"""From MindSpore 2.8 on its graph can be read; before, only the gradient of a whole tensor is told."""


def numbers(*shape, seed=0):
    return torch.tensor(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def record(path, *model, **options):
    return tt.record(path, *model, **({"keep": "tensor", "strict": True, "level": "api"} | options))


# --- whose it is ------------------------------------------------------------------------------------------------------


def test_it_is_known_by_its_objects():
    for value in (torch.ones(1), nn.Linear(1, 1), nn.Linear(1, 1).weight, ms.Tensor([1.0])):
        assert registry.framework_of(value) is ADAPTER
    assert registry.framework_of(ms.nn.Dense(1, 1)).name == "mindspore"
    assert [adapter.name for adapter in registry.foremost()] == ["msadapter"]
    assert [adapter.name for adapter in registry.loaded()][:2] == ["msadapter", "mindspore"]


def test_pytorch_is_not_there_and_says_why():
    assert not registry.installed("torch")
    with pytest.raises(MissingPackageError, match="in this process `torch` is MSAdapter"):
        registry.by_name("torch")


def test_no_framework_needs_to_be_named(tmp_path):
    with record(tmp_path / "t"):
        torch.ones(2)
    assert tt.open(tmp_path / "t").framework == "msadapter"
    assert Reading(tmp_path / "t").sites() == ["forward/api:torch.ones#0"]


# --- the script -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["module", "api", "mix"])
def test_the_users_script(tmp_path, monkeypatch, level):
    """Three steps; inputs, outputs and gradients of every call are what numpy computes from the recorded parameters."""
    script = Path(__file__).with_name("script.py")
    monkeypatch.setattr(sys, "argv", [str(script), str(tmp_path / "t"), level])
    runpy.run_path(str(script), run_name="__main__")
    assert tt.open(tmp_path / "t").steps == (0, 1, 2)
    for step in range(3):
        reading = Reading(tmp_path / "t", step=step)
        addresses = {
            "module": ["module:linear1#0", "module:linear2#0", "module:#0"],
            "api": ["api:torch.nn.functional.linear#0", "api:torch.nn.functional.linear#1", "api:torch.nn.functional.relu#0"],
        }  # fmt: skip
        wanted = [*addresses["module"], *addresses["api"]] if level == "mix" else addresses[level]
        assert sorted(reading.sites()) == sorted(f"forward/{address}" for address in wanted)

        apart = level == "api"
        first, second = (reading[address] for address in addresses["api" if apart else "module"][:2])
        weights = [
            (reading.inputs(call)["1"], reading.inputs(call)["2"]) if apart else
            tuple(reading.values(call.parameters[name]) for name in ("weight", "bias"))
            for call in (first, second)
        ]  # fmt: skip
        x = reading.inputs(first)["0"]
        assert x.shape == (10, 8)
        h = x @ weights[0][0].T + weights[0][1]
        y = h @ weights[1][0].T + weights[1][1]
        back = (y > 0).astype(np.float32)
        expected = {
            "y": back, "h": back @ weights[1][0], "x": back @ weights[1][0] @ weights[0][0],
        }  # fmt: skip
        assert np.allclose(reading.outputs(first)[""], h, atol=1e-5)
        assert np.allclose(reading.outputs(second)[""], y, atol=1e-5)
        for call, after, before in ((first, "h", "x"), (second, "y", "h")):
            assert np.allclose(reading.gradients(call, Role.OUTPUT)[""], expected[after], atol=1e-5)
            assert np.allclose(reading.gradients(call, Role.INPUT)["0"], expected[before], atol=1e-5)
        if level != "module":
            relu = reading["api:torch.nn.functional.relu#0"]
            assert np.array_equal(reading.outputs(relu)[""], np.maximum(reading.inputs(relu)["0"], 0))
            assert np.allclose(reading.gradients(relu, Role.OUTPUT)[""], np.ones((10, 2)))
            assert np.allclose(reading.gradients(relu, Role.INPUT)["0"], expected["y"], atol=1e-6)
            assert relu.stack[0].file.endswith("script.py")
            assert "F.relu" in relu.stack[0].code


def test_what_the_readme_says(tmp_path, monkeypatch):
    readme = (Path(__file__).parents[4] / "README.md").read_text(encoding="utf-8")
    (block,) = (text for text in re.findall(r"```python\n(.*?)```", readme, re.DOTALL) if "MSAdapter" in text)
    monkeypatch.chdir(tmp_path)
    exec(block, {"__name__": "readme"})
    assert Reading(tmp_path / "runs/adapter").sites() == [
        "forward/module:#0",
        "forward/api:torch.nn.functional.linear#0",
    ]


def test_parameters_and_their_gradients(tmp_path):
    net, x = nn.Linear(3, 2), numbers(4, 3)
    with record(tmp_path / "t", net, level="mix"):
        _, (by_weight, by_bias) = ms.value_and_grad(lambda x: torch.sum(net(x) * net(x)), None, list(net.parameters()))(
            x
        )
    reading = Reading(tmp_path / "t")
    found = {item.slot: reading.values(item.tensor) for item in reading.journal.parameter_gradients()}
    y = x.asnumpy() @ net.weight.asnumpy().T + net.bias.asnumpy()
    assert np.array_equal(found["weight"], by_weight.asnumpy())
    assert np.array_equal(found["bias"], by_bias.asnumpy())
    assert np.allclose(found["weight"], 2 * y.T @ x.asnumpy(), atol=1e-4)
    assert reading["module:#0"].config.values["in_features"] == 3


# --- names ------------------------------------------------------------------------------------------------------------

CALLS = {
    "torch.Tensor.add": [lambda x: x + 1, lambda x: 1 + x, lambda x: x.add(x)],
    "torch.Tensor.sub": [lambda x: x - 1, lambda x: x.sub(1)],
    "torch.Tensor.__rsub__": [lambda x: 1 - x],
    "torch.Tensor.mul": [lambda x: x * 2, lambda x: 2 * x],
    "torch.Tensor.div": [lambda x: x / 2],
    "torch.Tensor.__rtruediv__": [lambda x: 2 / x],
    "torch.Tensor.__pow__": [lambda x: x**2],
    "torch.Tensor.matmul": [lambda x: x @ x],
    "torch.Tensor.neg": [lambda x: -x],
    "torch.Tensor.gt": [lambda x: x > 0],
    "torch.Tensor.__eq__": [lambda x: x == x],
    "torch.Tensor.__getitem__": [lambda x: x[0]],
    "torch.Tensor.__setitem__": [lambda x: x.__setitem__(0, 1.0)],
    "torch.Tensor.add_": [lambda x: x.__iadd__(x), lambda x: x.add_(x)],
    "torch.Tensor.reshape": [lambda x: x.reshape(4)],
    "torch.Tensor.sum": [lambda x: x.sum()],
    "torch.Tensor.T": [lambda x: x.T],
    "torch.Tensor.detach": [lambda x: x.detach()],
    "torch.cat": [lambda x: torch.cat([x, x])],
    "torch.relu": [lambda x: torch.relu(x)],
    "torch.softmax": [lambda x: torch.softmax(x, 0)],
    "torch.nn.functional.relu": [lambda x: F.relu(x)],
    "torch.nn.functional.softmax": [lambda x: F.softmax(x, 0)],
    "torch.nn.functional.gelu": [lambda x: imported_before(x)],
    "torch.nn.functional.layer_norm": [lambda x: F.layer_norm(x, (2,))],
    "torch.tensor": [lambda x: torch.tensor([1.0])],
    "torch.functional.einsum": [lambda x: torch.einsum("ij,jk->ik", x, x)],
    "torch.functional.split": [lambda x: torch.split(x, 1)],
    "torch.zeros_like": [lambda x: torch.zeros_like(x)],
}


@pytest.mark.parametrize("name", CALLS)
def test_names_are_those_that_pytorchs_users_know(tmp_path, name):
    """The same that PyTorch's adapter gives; only the outermost call, however the function was come by."""
    for number, call in enumerate(CALLS[name]):
        x = numbers(2, 2)
        with record(tmp_path / str(number)):
            call(x)
        assert Reading(tmp_path / str(number)).sites() == [f"forward/api:{name}#0"]


def test_questions_are_not_recorded(tmp_path):
    x = numbers(2, 2)
    recorder = record(tmp_path / "t")
    recorder.start()
    assert (x.shape, x.size(), x.dim(), x.dtype) == ((2, 2), (2, 2), 2, torch.float32)
    assert x.numpy().shape == (2, 2)
    assert (x.is_floating_point(), torch.is_tensor(x), len(x)) == (True, True, 2)
    with pytest.warns(RuntimeWarning, match="nothing was recorded: nothing was called"):
        recorder.close()
    assert Reading(tmp_path / "t").calls == []


# --- writes in place --------------------------------------------------------------------------------------------------


def doubled_then(write):
    """h = 2x, written to in place; the sum of its squares."""

    def function(x):
        h = torch.mul(x, 2.0)
        write(h, x)
        return torch.sum(torch.mul(h, h))

    return function


WRITES = {
    "torch.Tensor.add_": (lambda h, x: h.add_(x), 3.0, lambda x: 18 * x),
    "torch.Tensor.mul_": (lambda h, x: h.mul_(3.0), 6.0, lambda x: 72 * x),
    "torch.Tensor.zero_": (lambda h, x: h.zero_(), 0.0, lambda x: 0 * x),
}


@pytest.mark.parametrize("level", ["api", "mix"])
@pytest.mark.parametrize("name", WRITES)
def test_writes_in_place_forward_and_backward(tmp_path, name, level):
    write, factor, gradient = WRITES[name]
    x = numbers(2, 3)
    bare = ms.grad(doubled_then(write))(x).asnumpy()
    model = nn.Linear(1, 1)
    with record(tmp_path / "t", *([model] if level == "mix" else []), level=level):
        found = ms.grad(doubled_then(write))(x).asnumpy()
    assert np.array_equal(found, bare)
    assert np.allclose(found, gradient(x.asnumpy()), atol=1e-4)

    reading = Reading(tmp_path / "t")
    call = reading[f"api:{name}#0"]
    assert "0" in call.mutates
    assert np.array_equal(reading.inputs(call)["0"], 2 * x.asnumpy()), "the value from before"
    assert np.allclose(reading.outputs(call)[""], factor * x.asnumpy(), atol=1e-6)
    back = reading.gradients(call, Role.OUTPUT)
    assert np.allclose(back[""], 2 * factor * x.asnumpy(), atol=1e-4)
    if name == "torch.Tensor.add_":
        assert np.allclose(reading.gradients(call, Role.INPUT)["0"], back[""], atol=1e-6)


def test_a_write_that_leaves_no_gradient_behind_says_so(tmp_path):
    """`inplace=True` makes no node here that could be read; the record says so, the run goes on, and its gradient is the same."""
    x = numbers(2, 3)

    def function(x):
        h = torch.mul(x, 2.0)
        F.relu(h, inplace=True)
        return torch.sum(torch.mul(h, h))

    bare = ms.grad(function)(x).asnumpy()
    with record(tmp_path / "t"):
        assert np.array_equal(ms.grad(function)(x).asnumpy(), bare)
    reading = Reading(tmp_path / "t")
    relu = reading["api:torch.nn.functional.relu#0"]
    assert "0" in relu.mutates
    assert np.array_equal(reading.outputs(relu)[""], np.maximum(2 * x.asnumpy(), 0))
    if not KNOWS_NODES:  # a hook on the tensor is told what no node tells
        assert np.allclose(reading.gradients(relu, Role.INPUT)["0"], np.maximum(4 * x.asnumpy(), 0), atol=1e-5)
    else:
        assert not relu.gradients
        assert relu.missing == ("argument 0 was written to in place, and MindSpore keeps no gradient of that write",)


def test_a_write_by_an_index(tmp_path):
    x = numbers(2, 3)

    def function(x):
        h = torch.mul(x, 2.0)
        h[0] = 5.0
        return torch.sum(torch.mul(h, h))

    bare = ms.grad(function)(x).asnumpy()
    with record(tmp_path / "t"):
        assert np.array_equal(ms.grad(function)(x).asnumpy(), bare)
    reading = Reading(tmp_path / "t")
    put, square = reading["api:torch.Tensor.__setitem__#0"], reading["api:torch.mul#1"]
    after = 2 * x.asnumpy()
    after[0] = 5.0
    assert "0" in put.mutates
    assert np.array_equal(reading.inputs(put)["0"], 2 * x.asnumpy())
    assert np.array_equal(reading.inputs(square)["0"], after)


def test_a_step_of_the_users_own_optimizer_is_an_update(tmp_path):
    class Descent(torch.optim.Optimizer):
        def __init__(self, parameters):
            super().__init__(parameters, {"lr": 0.5})

        def step(self):
            for parameter in self.param_groups[0]["params"]:
                parameter.sub_(torch.mul(parameter, 0.5))

    net = nn.Linear(2, 2)
    before = net.weight.asnumpy().copy()
    with record(tmp_path / "t"):
        Descent(net.parameters()).step()
    calls = Reading(tmp_path / "t").calls
    assert {call.site.phase for call in calls} == {Phase.UPDATE}
    assert [call.site.name for call in calls] == ["torch.mul", "torch.Tensor.sub_"] * 2
    assert np.allclose(net.weight.asnumpy(), before / 2)


def test_a_step_that_raises_is_recorded_as_such_and_is_over(tmp_path):
    """mindtorch's optimizers have no kernels on CPU."""
    net = nn.Linear(2, 2)
    for parameter in net.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with record(tmp_path / "t"):
        with pytest.raises(RuntimeError, match="raw_sgd"):
            optimizer.step()
        torch.ones(2)
    step, after = Reading(tmp_path / "t").calls
    assert str(step.site) == "update/api:torch.optim.SGD.step#0"
    assert "raw_sgd" in step.raised
    assert str(after.site) == "forward/api:torch.ones#0"


# --- compiled graphs --------------------------------------------------------------------------------------------------


@ms.jit
def compiled(x):
    return ms.ops.relu(x) * 2


def test_a_compiled_graph_is_recorded_from_outside_and_said_to_be(tmp_path):
    x = numbers(2, 3)
    with record(tmp_path / "t", strict=False), pytest.warns(RuntimeWarning, match="cannot be seen") as told:
        found = ms.grad(lambda x: compiled(torch.mul(x, 3.0)))(x)
    assert "Record with kernels=True" in str(told[0].message)
    assert "eager=True is not offered beside MSAdapter" in str(told[0].message)
    reading = Reading(tmp_path / "t")
    assert reading.sites() == ["forward/api:torch.mul#0", "forward/api:mindspore.jit.compiled#0"]
    assert np.array_equal(found.asnumpy(), 6.0 * (x.asnumpy() > 0))
    assert np.array_equal(reading.gradients(reading.calls[0], Role.INPUT)["0"], found.asnumpy())
    if not KNOWS_NODES:  # what a graph takes has no hook: it would be compiled in
        assert reading.gradients(reading.calls[0], Role.OUTPUT) == {}


def test_running_compiled_code_one_by_one_is_not_offered(tmp_path):
    with pytest.raises(UsageError, match=r"does not run uncompiled\. kernels=True shows"):
        record(tmp_path / "t", eager=True)


def test_what_is_compiled_does_not_run_uncompiled(monkeypatch):
    """Why it is not offered; when this no longer raises, it can be."""
    x = numbers(2, 3)
    assert compiled(x).shape == (2, 3)
    monkeypatch.setenv("MS_JIT", "0")
    with pytest.raises(ValueError, match="must have device"):
        compiled(x)


def test_pytorch_s_own_ways_to_compile_are_seen_as_they_are(tmp_path):
    net = nn.Linear(3, 4)
    with record(tmp_path / "t"):
        torch.compile(net)(numbers(2, 3))
        torch.jit.script(net)(numbers(2, 3))
    assert Reading(tmp_path / "t").sites().count("forward/api:torch.nn.functional.linear#0") == 1
    assert Reading(tmp_path / "t").sites().count("forward/api:torch.nn.functional.linear#1") == 1


KERNELS = """
import sys
import mindspore as ms
import numpy as np
import {adapter}
import torch
import twintrace as tt

@ms.jit
def compiled(x):
    return ms.ops.relu(x) * 2

with tt.record(sys.argv[1], framework="msadapter", level="api", kernels=True):
    compiled(torch.tensor(np.ones((2, 3), np.float32)))
"""


def test_the_kernels_of_a_graph_are_taken_into_the_trace(tmp_path):
    """In a process of its own: MindSpore reads the settings of its dump with the first graph."""
    script = tmp_path / "script.py"
    script.write_text(KERNELS.format(adapter=os.environ.get("TWINTRACE_IMPORT_FIRST", "torch")))
    done = subprocess.run([sys.executable, script, tmp_path / "t"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert [call.site.type for call in Reading(tmp_path / "t").calls if call.site.kind is Kind.OP][:2] == [
        "ReLU",
        "Mul",
    ]


# --- the run is left alone ----------------------------------------------------------------------------------------------


class Small(nn.Module):
    """Convolution, batch norm, layer norm, attention by hand, in-place activation."""

    def __init__(self):
        super().__init__()
        self.embed, self.norm, self.drop = nn.Linear(6, 8), nn.LayerNorm(8), nn.Dropout(0.0)
        self.query, self.key, self.out = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x):
        h = self.norm(self.embed(x))
        scores = torch.softmax(self.query(h) @ self.key(h).transpose(-1, -2) / 8**0.5, -1)
        h = h + self.drop(scores @ h)
        h = F.relu(h, inplace=True)
        return self.out(h)


@pytest.mark.parametrize("level", ["module", "api", "mix"])
def test_recording_changes_no_bit(level):
    def step(recorder):
        torch.manual_seed(0)
        net, x = Small(), numbers(2, 5, 6)
        parameters = list(net.parameters())
        with recorder(net):
            loss, gradients = ms.value_and_grad(lambda x: torch.sum(net(x) * net(x)), None, parameters)(x)
            with torch.no_grad():
                for parameter, gradient in zip(parameters, gradients, strict=True):
                    parameter.sub_(torch.tensor(gradient.asnumpy()) * 0.01)
        return loss, net

    found = tt.selfcheck(step, level=level, keep="tensor")
    assert found.same, str(found)
    assert found.recorded > 5


def test_seeds_are_set_and_given_back():
    with tt.seed_all(3):
        one = torch.empty(4).uniform_().asnumpy()
    with tt.seed_all(3):
        two = torch.empty(4).uniform_().asnumpy()
    assert np.array_equal(one, two)
    x = torch.ones(100)
    with tt.seed_all(3, disable_dropout=True):
        assert np.array_equal(F.dropout(x, 0.5, True).asnumpy(), x.asnumpy())
    assert not np.array_equal(F.dropout(x, 0.5, True).asnumpy(), x.asnumpy())


def test_a_seed_reaches_every_draw():
    """mindtorch's kernels for the CPU take none: while it is seeded they draw from numpy, and go on one from the other."""

    def draw():
        found = [
            torch.randn(3, 4),
            torch.randn(3, 4),
            torch.rand(5),
            torch.randint(0, 1000, (6,)),
            torch.randn_like(torch.ones(4)),
        ]
        return [array.asnumpy() for array in (*found, F.dropout(torch.ones(50), 0.5, True))]

    with tt.seed_all(3):
        one = draw()
        torch.manual_seed(3)
        again = draw()
    with tt.seed_all(3):
        two = draw()
    with tt.seed_all(4):
        other = draw()
    for first, second, third, fourth in zip(one, two, again, other, strict=True):
        assert np.array_equal(first, second)
        assert np.array_equal(first, third), "torch.manual_seed counts, too"
        assert not np.array_equal(first, fourth)
    assert not np.array_equal(one[0], one[1])
    assert one[0].dtype == np.float32
    assert abs(float(np.mean(one[2])) - 0.5) < 0.5
    assert set(np.unique(one[5])) == {0.0, 2.0}
    assert not np.array_equal(torch.randn(3).asnumpy(), torch.randn(3).asnumpy())


def test_gradients_flow_through_a_seeded_dropout():
    with tt.seed_all(3):
        gradient = ms.grad(lambda x: torch.sum(F.dropout(x, 0.5, True)))(torch.ones(50))
    assert set(np.unique(gradient.asnumpy())) == {0.0, 2.0}


def test_the_input_of_the_function_has_its_gradient_when_it_is_saved(tmp_path):
    x = numbers(2, 3)
    with tt.record(tmp_path / "t", level="api", framework="msadapter", keep="tensor") as rec:

        def function(x):
            rec.save("x", x)
            return torch.sum(x * x)

        gradient = ms.grad(function)(x)
    journal = tt.open(tmp_path / "t").journal(0)
    (saved,) = [call for call in journal.calls() if call.site.kind is Kind.SAVE]
    (found,) = saved.gradients
    assert np.array_equal(journal.array(journal.tensor(found.tensor)), gradient.asnumpy())
