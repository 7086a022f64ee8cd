"""What only MindSpore has: its ways of differentiating, its Cells, primitives, optimizers, and its CPU."""

import collections
import json

import numpy as np
import pytest

ms = pytest.importorskip("mindspore")

from cells import CASES, Attention, ConvNet, filled, numbers  # noqa: E402
from mindspore import Parameter, Tensor, mint, nn, ops  # noqa: E402
from mindspore.train import Callback, Model  # noqa: E402

import twintrace as tt  # noqa: E402
from twintrace.frameworks.mindspore.names import _unwrapped  # noqa: E402
from twintrace.model.records import Role  # noqa: E402
from twintrace.model.sites import Kind, Phase  # noqa: E402
from twintrace.testing.reading import Reading, check_same_bits  # noqa: E402

pytestmark = pytest.mark.needs_mindspore


class Mlp(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Dense(3, 4), nn.Dense(4, 2)

    def construct(self, x):
        return self.last(ops.relu(self.first(x)))


def total(value):
    return mint.sum(value)


def by_hand(net, x):
    """The gradients of the sum of an Mlp's output, by the chain rule and numpy."""
    w1, b1, w2, _ = (p.asnumpy().astype(np.float64) for p in net.trainable_params())
    x = x.asnumpy().astype(np.float64)
    hidden = x @ w1.T + b1
    out = np.ones((len(x), len(w2)))
    back = (out @ w2) * (hidden > 0)
    return {
        "relu": out @ w2,
        "hidden": back,
        "x": back @ w1,
        "first.weight": back.T @ x,
        "first.bias": back.sum(0),
        "last.weight": out.T @ np.maximum(hidden, 0),
        "last.bias": out.sum(0),
    }


@pytest.fixture
def net():
    return filled(Mlp())


class TestDifferentiation:
    """However the user differentiates, the gradients are there and they are right."""

    def close(self, found, expected):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)

    @pytest.mark.parametrize("level", ["module", "api", "mix"])
    def test_value_and_grad(self, net, tmp_path, level):
        x = numbers(5, 3)
        weights = net.trainable_params()
        with tt.record(tmp_path / "t", net, level=level, keep="tensor", strict=True):
            _, (by_x, by_weights) = ms.value_and_grad(lambda x: total(net(x)), 0, weights)(x)
        reading, expected = Reading(tmp_path / "t"), by_hand(net, x)

        gradients = reading.parameter_gradients()
        assert list(gradients) == ["first.weight", "first.bias", "last.weight", "last.bias"]
        for (name, found), own in zip(gradients.items(), by_weights, strict=True):
            check_same_bits(found, own.asnumpy(), name)
            self.close(found, expected[name])
        if level != "api":
            first = reading["module:first#0"]
            check_same_bits(reading.gradients(first, Role.INPUT)["0"], by_x.asnumpy())
            self.close(reading.gradients(first, Role.INPUT)["0"], expected["x"])
            self.close(reading.gradients(first, Role.OUTPUT)[""], expected["hidden"])
        if level != "module":
            relu = reading["api:mindspore.mint.nn.functional.relu#0"]
            self.close(reading.gradients(relu, Role.OUTPUT)[""], expected["relu"])
            self.close(reading.gradients(relu, Role.INPUT)["0"], expected["hidden"])
            matmul = reading["api:mindspore.ops.MatMul#0"]
            self.close(reading.gradients(matmul, Role.INPUT)["0"], expected["x"])
            self.close(reading.gradients(matmul, Role.INPUT)["1"], expected["first.weight"])

    def test_grad_of_inputs_alone(self, net, tmp_path):
        x = numbers(5, 3)
        with tt.record(tmp_path / "t", net, keep="tensor", strict=True):
            by_x = ms.grad(lambda x: total(net(x)))(x)
        reading = Reading(tmp_path / "t")
        check_same_bits(reading.gradients(reading["module:#0"], Role.INPUT)["0"], by_x.asnumpy())
        self.close(by_x.asnumpy(), by_hand(net, x)["x"])
        assert not reading.parameter_gradients()

    @pytest.mark.parametrize(
        "options", [{}, {"get_all": True}, {"get_by_list": True}, {"get_all": True, "get_by_list": True}]
    )
    def test_grad_operation(self, net, tmp_path, options):
        x = numbers(5, 3)
        weights = ms.ParameterTuple(net.trainable_params())
        operation = ops.GradOperation(**options)
        with tt.record(tmp_path / "t", net, keep="tensor", strict=True):
            (operation(net, weights) if "get_by_list" in options else operation(net))(x)
        reading, expected = Reading(tmp_path / "t"), by_hand(net, x)
        gradients = reading.parameter_gradients()
        assert len(gradients) == (4 if "get_by_list" in options else 0)
        for name, found in gradients.items():
            self.close(found, expected[name])
        self.close(reading.gradients(reading["module:last#0"], Role.INPUT)["0"], expected["relu"])

    def test_a_train_step_cell_and_its_optimizer(self, net, tmp_path):
        loss = nn.WithLossCell(net, nn.MSELoss())
        step = nn.TrainOneStepCell(loss, nn.Momentum(net.trainable_params(), 0.1, 0.9)).set_train()
        before = {name: p.asnumpy().copy() for name, p in net.parameters_and_names()}
        with tt.record(tmp_path / "t", step, keep="tensor", strict=True) as rec:
            for _ in range(2):
                step(numbers(5, 3), numbers(5, 2, seed=1))
                rec.step()
        reading = Reading(tmp_path / "t")
        update = reading["update/api:mindspore.nn.Momentum#0"]

        assert reading["module:network._backbone.first#0"].site.type == "Dense"
        assert not [call for call in reading.calls if "optimizer" in call.site.name.split(".")]
        gradients = reading.parameter_gradients()
        assert set(gradients) == {f"network._backbone.{name}" for name in before}
        taken = reading.inputs(update)
        given = {slot: value for slot, value in taken.items() if slot.startswith("kw.gradients")}
        for (name, gradient), value in zip(gradients.items(), given.values(), strict=True):
            check_same_bits(value, gradient, name)
        after = {slot: value for slot, value in reading.outputs(update).items() if slot.startswith("parameters")}
        for number, (name, old) in enumerate(before.items()):
            check_same_bits(taken[f"0.{number}"], old, name)
            gradient = gradients[f"network._backbone.{name}"]
            np.testing.assert_allclose(
                after[f"parameters.{number}"], old - np.float32(0.1) * gradient, rtol=1e-5, atol=1e-7
            )
        assert any(slot.startswith("kw.state.moments") for slot in taken)

    def test_model_train(self, net, tmp_path):
        data = [(np.float32([i, 1, 2]), np.float32([0, i])) for i in range(4)]
        dataset = ms.dataset.GeneratorDataset(data, ["x", "y"], shuffle=False).batch(2)
        model = Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.01))
        with tt.record(tmp_path / "t", net, keep="tensor", strict=True) as rec:

            class Steps(Callback):
                def on_train_step_end(self, run_context):
                    rec.step()

            model.train(1, dataset, callbacks=[Steps()], dataset_sink_mode=False)
        assert tt.open(tmp_path / "t").steps == (0, 1)
        for step in (0, 1):
            reading = Reading(tmp_path / "t", step=step)
            assert set(reading.parameter_gradients()) == {"first.weight", "first.bias", "last.weight", "last.bias"}
            assert reading["module:first#0"].gradients
            assert reading.sites(phase=Phase.UPDATE) == ["update/api:mindspore.nn.SGD#0"]

    def test_gradients_of_gradients(self, tmp_path):
        x = numbers(4)
        with tt.record(tmp_path / "t", framework="mindspore", level="api", keep="tensor", strict=True):
            found = ms.grad(lambda x: total(ms.grad(lambda x: total(x * x * x))(x)))(x)
        np.testing.assert_allclose(found.asnumpy(), 6 * x.asnumpy(), rtol=1e-6)

    def test_a_bprop_of_the_users_own(self, tmp_path):
        case = CASES["custom bprop"]()
        net = filled(case.net)
        with tt.record(tmp_path / "t", net, keep="tensor", strict=True):
            ms.grad(lambda x: total(net(x)))(*case.inputs)
        reading = Reading(tmp_path / "t")
        double = reading["module:double#0"]
        assert (reading.gradients(double, Role.INPUT)["0"] == 3).all()
        assert (reading.gradients(double, Role.OUTPUT)[""] == 1).all()
        inside = reading["backward/api:mindspore.Tensor.mul#0"]
        assert inside.args[1] == 3.0, "what the user's bprop calls is no forward"

    def test_arguments_that_are_handed_back_are_the_users_own(self, tmp_path):
        """Releases before 2.8 call with aliases, which must not come out; what is only handed back has made no gradient."""
        Held = collections.namedtuple("Held", "value number")

        class Passing(nn.Cell):
            def construct(self, x, kept, held):
                kept.append(x)
                return x, held, ops.mul(held.value, 3.0)

        def function(x):
            h, g = ops.mul(x, 2.0), ops.mul(x, 5.0)
            kept = [h]
            back, held, y = net(h, kept, Held(g, 1))
            assert (back is h, held.value is g, kept[0] is h, kept[1] is h) == (True,) * 4
            return total(y)

        x, net = numbers(2, 3), Passing()
        with tt.record(tmp_path / "t", net, keep="tensor", strict=True):
            by_x = ms.grad(function)(x)
        reading = Reading(tmp_path / "t")
        module = reading["module:#0"]
        assert (by_x.asnumpy() == 15).all()
        assert {slot: value.max() for slot, value in reading.gradients(module, Role.INPUT).items()} == {"2.value": 3}
        assert {slot: value.max() for slot, value in reading.gradients(module, Role.OUTPUT).items()} == {"2": 1}

    def test_attention_agrees_with_torch(self, tmp_path):
        torch = pytest.importorskip("torch")
        net = filled(Attention())
        x = numbers(2, 3, 8)
        with tt.record(tmp_path / "t", net, keep="tensor", strict=True):
            ms.value_and_grad(lambda x: total(net(x) * net(x)), 0, net.trainable_params())(x)
        reading = Reading(tmp_path / "t")

        weights = {name: torch.tensor(p.asnumpy(), requires_grad=True) for name, p in net.parameters_and_names()}
        given = torch.tensor(x.asnumpy(), requires_grad=True)

        def dense(name, value):
            return torch.nn.functional.linear(value, weights[f"{name}.weight"], weights[f"{name}.bias"])

        def split(value):
            return value.reshape(2, 3, 2, 4).transpose(1, 2)

        h = torch.nn.functional.layer_norm(given, (8,), weights["norm.gamma"], weights["norm.beta"], 1e-5)
        query = dense("query", h)
        query.retain_grad()
        scores = torch.softmax(split(query) @ split(dense("key", h)).transpose(2, 3) / 2.0, -1)
        mixed = (scores @ split(dense("value", h))).transpose(1, 2).reshape(2, 3, 8)
        out = given + dense("out", mixed)
        (out * out).sum().backward()

        for name, found in reading.parameter_gradients().items():
            np.testing.assert_allclose(found, weights[name].grad.numpy(), rtol=2e-3, atol=2e-4, err_msg=name)
        halves = [reading.gradients(reading[f"module:query#{n}"], Role.OUTPUT)[""] for n in (0, 1)]
        np.testing.assert_allclose(sum(halves), query.grad.numpy(), rtol=2e-3, atol=2e-4)


class TestCells:
    def test_configuration_and_parameters(self, tmp_path):
        net = ConvNet()
        dropout = nn.Dropout(p=0.25)
        with tt.record(tmp_path / "t", {"net": net, "dropout": dropout}, level="module", keep="tensor", strict=True):
            dropout(net(numbers(2, 3, 4, 4)))
        reading = Reading(tmp_path / "t")
        conv, norm = reading["module:net.conv#0"], reading["module:net.norm#0"]

        values = conv.config.values
        assert (values["pad_mode"], values["has_bias"], values["in_channels"]) == ("same", True, 3)
        assert norm.config.values["eps"] == 1e-5
        assert norm.config.values["momentum"] == pytest.approx(0.1)
        assert norm.config.values["training"] is False
        assert norm.parameters.keys() == {"gamma", "beta", "moving_mean", "moving_variance"}
        assert reading["module:dropout#0"].config.values["p"] == 0.25
        assert not {"cls_name", "phase", "_params", "requires_grad"} & set(values)

    def test_parameters_keep_the_name_that_mindspore_knows_them_by(self, tmp_path):
        cell = nn.Dense(3, 4)
        cell.weight.name = "my_weight"
        with tt.record(tmp_path / "t", cell, level="module", strict=True):
            cell(numbers(2, 3))
        reading = Reading(tmp_path / "t")
        weight = reading.journal.tensor(reading["module:#0"].parameters["weight"])
        assert weight.facts["parameter"] == "my_weight"

    def test_moving_averages_are_those_from_before_the_call(self, tmp_path):
        net = ConvNet().set_train()
        before = net.norm.moving_mean.asnumpy().copy()
        with tt.record(tmp_path / "t", net, level="module", keep="tensor", strict=True):
            for _ in range(2):
                net(numbers(2, 3, 4, 4))
        reading = Reading(tmp_path / "t")
        seen = [reading.values(reading[f"module:norm#{n}"].parameters["moving_mean"]) for n in (0, 1)]
        check_same_bits(seen[0], before)
        assert (seen[1] != before).any()
        assert (seen[1] != net.norm.moving_mean.asnumpy()).any()

    def test_stacks_lead_into_the_users_construct(self, net, tmp_path):
        with tt.record(tmp_path / "t", net, strict=True):
            ms.grad(lambda x: total(net(x)))(numbers(2, 3))
        stack = Reading(tmp_path / "t")["api:mindspore.mint.nn.functional.relu#0"].stack
        assert [frame.function for frame in stack[:2]] == ["construct", "<lambda>"]
        assert stack[0].file == __file__
        assert stack[0].code == "return self.last(ops.relu(self.first(x)))"


class TestCalls:
    def recorded(self, path, run, **options):
        with tt.record(path, framework="mindspore", level="api", keep="tensor", strict=True, **options):
            run()
        return Reading(path)

    def test_every_way_of_calling_has_a_name(self, tmp_path):
        x, y = numbers(2, 3), numbers(2, 3, seed=1)
        calls = {
            "mindspore.Tensor.add": lambda: x + y,
            "mindspore.Tensor.__rsub__": lambda: 1.0 - x,
            "mindspore.Tensor.__getitem__": lambda: x[0],
            "mindspore.Tensor.lt": lambda: x < y,
            "mindspore.Tensor.exp": lambda: x.exp(),
            "mindspore.Tensor.T": lambda: x.T,
            "mindspore.mint.tanh": lambda: ops.tanh(x),
            "mindspore.ops.softmax": lambda: ops.softmax(x),
            "mindspore.mint.cat": lambda: mint.cat([x, y]),
            "mindspore.mint.nn.functional.linear": lambda: mint.nn.functional.linear(x, y),
            "mindspore.ops.MatMul": lambda: ops.MatMul(transpose_b=True)(x, y),
            "mindspore.ops.ReduceSum": lambda: ops.ReduceSum()(x, 1),
        }
        for number, (name, call) in enumerate(calls.items()):
            reading = self.recorded(tmp_path / str(number), call)
            assert reading.sites() == [f"forward/api:{name}#0"]

    def test_questions_are_not_recorded(self, tmp_path):
        x = numbers(2, 3)
        with pytest.warns(RuntimeWarning, match="nothing was recorded: nothing was called"):
            reading = self.recorded(
                tmp_path / "t", lambda: (x.shape, x.dtype, x.ndim, x.size, x.asnumpy(), len(x), ops.shape(x), str(x))
            )
        assert not reading.calls

    def test_writes_by_index(self, tmp_path):
        x = Tensor(np.zeros((2, 3), np.float32))

        def run():
            x[0] = 5.0
            ops.relu(x)

        reading = self.recorded(tmp_path / "t", run)
        write = reading["api:mindspore.Tensor.__setitem__#0"]
        assert write.mutates == ("0",)
        assert reading.inputs(write)["0"].sum() == 0
        assert reading.outputs(write)[""].tolist() == [[5, 5, 5], [0, 0, 0]]
        assert reading.inputs(reading["api:mindspore.mint.nn.functional.relu#0"])["0"].sum() == 15

    @pytest.mark.parametrize("assign", [ops.assign, ops.Assign()], ids=["function", "primitive"])
    @pytest.mark.parametrize(
        "level", ["module", "api", pytest.param("op", marks=pytest.mark.offered("mindspore.MsDispatchMode"))]
    )
    def test_assignments_are_noticed_at_every_level(self, tmp_path, level, assign):
        """MindSpore's version counter does not move when a parameter is assigned to."""
        cell = nn.Dense(40, 40)
        with tt.record(tmp_path / "t", cell, level=level, keep="tensor", strict=True):
            cell(numbers(2, 40))
            values = cell.weight.asnumpy().copy()
            values[-1, -1] = 100.0
            assign(cell.weight, Tensor(values))
            cell(numbers(2, 40))
        reading = Reading(tmp_path / "t")
        name = {"module": "module:#{}", "api": "api:mindspore.ops.MatMul#{}", "op": "op:MatMul#{}"}[level]
        calls = [reading[name.format(number)] for number in (0, 1)]
        weights = [
            reading.values(call.parameters["weight"]) if level == "module" else reading.inputs(call)["1"]
            for call in calls
        ]
        assert (weights[0].max() < 100, weights[1].max()) == (True, 100)

    def test_sparse_tensors_are_their_parts(self, tmp_path):
        sparse = ms.COOTensor(Tensor([[0, 1], [1, 2]], ms.int32), Tensor([1.0, 2.0], ms.float32), (3, 4))
        with tt.record(tmp_path / "t", framework="mindspore", level="api", keep="tensor", strict=True) as rec:
            rec.save("sparse", sparse)
        reading = Reading(tmp_path / "t")
        tensor = reading.journal.tensor(reading.output_ids(reading["save:sparse#0"])[""])
        assert str(tensor.spec) == "f32[3, 4]"
        assert reading.values(tensor.parts["values"]).tolist() == [1, 2]
        assert reading.values(tensor.parts["indices"]).tolist() == [[0, 1], [1, 2]]

    def test_tensors_that_do_not_fill_their_memory(self, tmp_path):
        base = numbers(4, 6)
        views = [base.T, base[1], base[:, 2], base[:, 2:5], base[::2, ::2], mint.chunk(base, 2, 1)[1]]
        with tt.record(tmp_path / "t", framework="mindspore", level="api", keep="tensor", strict=True) as rec:
            for number, view in enumerate(views):
                rec.save(str(number), view)
        reading = Reading(tmp_path / "t")
        for number, view in enumerate(views):
            check_same_bits(reading.outputs(reading[f"save:{number}#0"])[""], view.asnumpy().copy())

    def test_mindspores_add_in_place_on_cpu_writes_nothing(self):
        """A fact of MindSpore's, not of ours; when it changes, the page of the contract may use `add_` itself."""
        x = numbers(2)
        before = x.asnumpy().copy()
        assert (x.add_(1.0).asnumpy() == before + 1).all()
        assert (x.asnumpy() == before).all()


class TestCompleteness:
    """Nothing runs that a level api record does not account for."""

    @pytest.mark.offered("mindspore.MsDispatchMode")
    # Dispatched kernels, by the function that they are the work of; several may serve one call.
    @pytest.mark.parametrize("name", ["dense", "conv and batch norm", "layer norm", "attention", "mint", "residual"])
    def test_every_forward_kernel_is_inside_a_recorded_call(self, name, tmp_path):
        """Each call's kernels, run alone from the recorded arguments' place: none is left over between calls."""
        from twintrace.frameworks.mindspore import calls as public
        from twintrace.frameworks.mindspore.ops import OpMode

        outside = []

        class Watcher(OpMode):
            def __ms_dispatch__(self, func, args, kwargs=None):
                if not public._INSIDE.owners:
                    outside.append(func.name)
                return func(*args)

        case = CASES[name]()
        with tt.record(tmp_path / "t", case.net, level="api", strict=True), Watcher():
            case.loss(case.net(*case.inputs))
        assert Reading(tmp_path / "t").sites(Kind.API)
        assert not outside


class TestGraphs:
    def test_a_graph_inside_is_told_once_with_two_ways_out(self, tmp_path):
        case = CASES["jit inside"]()
        with (
            pytest.warns(RuntimeWarning, match="cannot be seen") as told,
            tt.record(tmp_path / "t", case.net, strict=False),
        ):
            [case.net(*case.inputs) for _ in range(2)]
        reading = Reading(tmp_path / "t")
        assert len(told) == 1
        assert "eager=True" in reading.notes()["compiled"]
        assert "kernels=True" in reading.notes()["compiled"]
        assert reading["module:#0"].output is not None
        assert "forward/api:mindspore.mint.nn.functional.relu#0" not in reading.sites()

    def test_eager_runs_what_is_compiled_call_by_call(self, tmp_path, recwarn):
        case = CASES["jit inside"]()
        expected = case.net(*case.inputs).asnumpy()
        with tt.record(tmp_path / "t", case.net, keep="tensor", strict=True, eager=True):
            _, gradients = ms.value_and_grad(lambda x: total(case.net(x)), None, case.net.trainable_params())(
                *case.inputs
            )
        reading = Reading(tmp_path / "t")
        check_same_bits(reading.outputs(reading["module:#0"])[""], expected)
        assert reading["api:mindspore.mint.nn.functional.relu#0"].gradients
        assert "compiled" not in reading.notes()
        assert len(gradients) == len(reading.parameter_gradients())
        assert not [warning for warning in recwarn if "twintrace" in str(warning.message)]

    def test_eager_is_over_with_the_recording(self, tmp_path, monkeypatch):
        import os

        monkeypatch.delenv("MS_JIT", raising=False)
        case = CASES["jit inside"]()
        with tt.record(tmp_path / "t", case.net, steps=[1], eager=True) as rec:
            assert "MS_JIT" not in os.environ
            rec.step()
            assert os.environ["MS_JIT"] == "0"
            rec.step()
            assert "MS_JIT" not in os.environ
        monkeypatch.setenv("MS_JIT", "1")
        with tt.record(tmp_path / "u", case.net, eager=True):
            assert os.environ["MS_JIT"] == "0"
        assert os.environ["MS_JIT"] == "1"

    @pytest.fixture
    def graph_mode(self):
        ms.set_context(mode=ms.GRAPH_MODE)
        yield
        ms.set_context(mode=ms.PYNATIVE_MODE)

    @pytest.mark.usefixtures("graph_mode")
    def test_a_network_in_graph_mode_is_seen_from_outside(self, net, tmp_path):
        x = numbers(2, 3)
        with pytest.warns(RuntimeWarning, match="cannot be seen"), tt.record(tmp_path / "t", net, keep="tensor"):
            found = net(x)
        reading = Reading(tmp_path / "t")
        assert reading.sites(Kind.MODULE) == ["forward/module:#0"]
        check_same_bits(reading.outputs(reading["module:#0"])[""], found.asnumpy())

    @pytest.mark.usefixtures("graph_mode")
    def test_a_network_in_graph_mode_can_be_recorded_eagerly(self, net, tmp_path):
        x = numbers(5, 3)
        differentiated = ms.value_and_grad(lambda x: total(net(x)), 0, net.trainable_params())
        with tt.record(tmp_path / "t", net, keep="tensor", strict=True, eager=True):
            differentiated(x)
        reading, expected = Reading(tmp_path / "t"), by_hand(net, x)
        assert ms.get_context("mode") == ms.GRAPH_MODE
        assert "forward/module:first#0" in reading.sites()
        for name, found in reading.parameter_gradients().items():
            np.testing.assert_allclose(found, expected[name], rtol=1e-5, atol=1e-6)

    def test_what_was_compiled_while_recording_is_not_compiled_with_the_recorder_in_it(self, tmp_path):
        x = numbers(2, 3)

        @ms.jit
        def fresh(x):
            return ops.tanh(x) + mint.nn.functional.relu(x)

        rec = tt.record(tmp_path / "t", framework="mindspore", level="api")
        with pytest.warns(RuntimeWarning, match="cannot be seen"), rec:
            during = fresh(x)
        assert [str(call.site) for call in Reading(tmp_path / "t").calls] == ["forward/api:mindspore.jit.fresh#0"]
        check_same_bits(during.asnumpy(), fresh(x).asnumpy())


def test_the_trace_says_what_it_was_recorded_with(net, tmp_path):
    with tt.record(tmp_path / "t", net):
        net(numbers(2, 3))
    header = Reading(tmp_path / "t").journal.header
    assert header.framework == "mindspore"
    assert header.environment["mindspore"] == ms.__version__
    assert (header.environment["mode"], header.environment["device"]) == ("pynative", "CPU")
    assert json.dumps(dict(header.environment))


def test_doctor_knows_mindspore():
    found = {finding.subject: finding for finding in tt.doctor()}["mindspore"]
    assert found.good
    assert "module" in found.text


def test_a_parameter_outside_the_model_has_no_gradient_of_its_own(net, tmp_path):
    other = Parameter(np.ones(2, np.float32), name="other")
    with tt.record(tmp_path / "t", net, keep="tensor", strict=True):
        ms.value_and_grad(lambda x: total(net(x) * other), None, [other, net.first.bias])(numbers(2, 3))
    assert list(Reading(tmp_path / "t").parameter_gradients()) == ["first.bias"]


@pytest.mark.parametrize("name", ["squeeze", "reshape", "flatten", "t"])
def test_functions_that_a_decorator_has_wrapped_have_their_public_names(name, tmp_path):
    """MindSpore 2.10 wraps some views, and the wrapper has neither their names nor their module."""
    given = {"squeeze": (0,), "reshape": ((-1,),)}.get(name, ())
    with tt.record(tmp_path / "t", framework="mindspore", level="api"):
        getattr(mint, name)(Tensor(np.ones((1, 2), np.float32)), *given)
    [call] = Reading(tmp_path / "t").calls
    assert call.site.name == f"mindspore.mint.{name}"


def test_a_wrapper_stands_for_the_one_function_that_it_wraps():
    def wrapper(inner, other=None):
        def wrapped(*args, **kwargs):
            return inner(*args, **kwargs) if other is None else other

        return wrapped

    assert _unwrapped(wrapper(wrapper(ops.relu))) is ops.relu
    for other in (wrapper(np.maximum), wrapper(ops.relu, ops.tanh), np.maximum, 3):
        assert _unwrapped(other) is other


@pytest.mark.offered("mindspore.MsDispatchMode")
def test_level_op_has_the_gradients_of_parameters(net, tmp_path):
    x = numbers(5, 3)
    with tt.record(tmp_path / "t", net, level="op", keep="tensor"):
        ms.grad(lambda x: total(net(x)), None, net.trainable_params())(x)
    found = Reading(tmp_path / "t").parameter_gradients()
    expected = {name: value for name, value in by_hand(net, x).items() if "." in name}
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6)
