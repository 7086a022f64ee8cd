"""Dumps of MindSpore networks: PyNative, GRAPH_MODE, @jit; dropout, bf16."""

import warnings

import numpy as np
import pytest

pytest.importorskip("mindspore")

import mindspore as ms
from mindspore import mint, nn, ops

import twintrace as tt
import twintrace.compat.troubleshooter as ts
from tests.compat.troubleshooter.dumps import array, names, rows, stacks

pytestmark = pytest.mark.needs_mindspore


class Block(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fc = nn.Dense(4, 4)
        self.drop = nn.Dropout(p=0.5)

    def construct(self, x):
        return self.drop(ops.relu(self.fc(x))) + x


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.blocks = nn.SequentialCell(Block(), Block())
        self.head = mint.nn.Linear(4, 2)

    def construct(self, x):
        return self.head(self.blocks(x)).sum(-1)


BLOCK = ["NN_Dense_{}", "Functional_relu_{}", "NN_Dropout_{}", "Tensor_add_{}"]
ALL = [name.format(number) for number in (0, 1) for name in BLOCK] + ["NN_Linear_0", "Tensor_sum_0"]


def labels(folder):
    return list(dict.fromkeys(name.split("_forward")[0].split("_backward")[0] for name in names(folder, "mindspore")))


@pytest.fixture
def x():
    return ms.Tensor(np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32))


@pytest.fixture
def net():
    ms.set_seed(1)
    return Net().set_train()


def step(net, x, wrapped=lambda function: function):
    """One step with a loss that is no part of the network."""
    criterion = nn.MSELoss()

    def forward(x):
        return criterion(net(x), ops.zeros((3,), ms.float32))

    return ms.value_and_grad(wrapped(forward), None, net.trainable_params())(x)


def dump(folder, run, net, **options):
    ts.migrator.api_dump_init(net, folder, retain_backward=True)
    ts.migrator.api_dump_start(**options)
    found = run()
    ts.migrator.api_dump_stop()
    return found


def test_layers_functions_and_gradients(tmp_path, net, x):
    dump(tmp_path / "d", lambda: step(net, x), net)
    found = [name for name in labels(tmp_path / "d") if "zeros" not in name]
    assert found == ALL, "neither the loss nor what it calls, as it is no part of the network"
    backward = [name for name in names(tmp_path / "d", "mindspore") if "backward" in name]
    assert (backward[0], backward[-1]) == ("Tensor_sum_0_backward_input", "NN_Dense_0_backward_input")
    row = rows(tmp_path / "d", "mindspore")[0]
    assert row[:5] == ["NN_Dense_0_forward_input.0", 1, [], "Float32", [3, 4]]
    assert np.array_equal(array(tmp_path / "d", row[0], "mindspore"), x.asnumpy())
    assert stacks(tmp_path / "d", "mindspore")["NN_Dense_0_forward_stack_info"][0].startswith(f"File {__file__}, line ")


def test_gradients_are_those_of_a_run_that_is_not_recorded(tmp_path, net, x):
    for block in net.blocks:
        block.drop = nn.Identity()
    loss, gradients = step(net, x)
    again, others = dump(tmp_path / "d", lambda: step(net, x), net)
    assert loss == again
    assert all(np.array_equal(one.asnumpy(), two.asnumpy()) for one, two in zip(gradients, others, strict=True))


def test_dropout_is_out_between_start_and_stop_alone(tmp_path):
    net = nn.SequentialCell(nn.Dropout(p=0.5)).set_train()
    ones = ms.Tensor(np.ones((200, 4), np.float32))
    construct = nn.Dropout.construct
    inside = dump(tmp_path / "d", lambda: (net(ones), ops.dropout(ones, 0.5)), net)
    assert all(np.array_equal(found.asnumpy(), ones.asnumpy()) for found in inside)
    assert nn.Dropout.construct is construct
    assert not np.array_equal(net(ones).asnumpy(), ones.asnumpy())
    assert not np.array_equal(ops.dropout(ones, 0.5).asnumpy(), ones.asnumpy())


def test_graph_mode_is_run_call_by_call_and_that_is_said(tmp_path, net, x, capsys):
    ms.set_context(mode=ms.GRAPH_MODE)
    try:
        dump(tmp_path / "d", lambda: net(x), net)
        assert ms.get_context("mode") == ms.GRAPH_MODE
    finally:
        ms.set_context(mode=ms.PYNATIVE_MODE)
    assert labels(tmp_path / "d") == ALL
    assert (
        "The network is in GRAPH_MODE: it runs call by call (PYNATIVE_MODE) until api_dump_stop"
        in capsys.readouterr().err
    )


def test_what_is_compiled_is_run_call_by_call_and_that_is_said(tmp_path, net, x, capsys):
    dump(tmp_path / "d", lambda: step(net, x, ms.jit), net)
    assert "compiled by @jit run call by call until api_dump_stop" in capsys.readouterr().err
    assert [name for name in labels(tmp_path / "d") if "zeros" not in name] == ALL


def test_a_rank_of_a_parallel_run_has_its_folder(tmp_path, net, x, monkeypatch):
    monkeypatch.setenv("RANK_ID", "2")
    monkeypatch.setenv("RANK_SIZE", "4")
    dump(tmp_path / "d", lambda: net(x), net)
    assert tt.open(tmp_path / "d").ranks == (2,)


def test_bf16(tmp_path, net):
    values = ms.Tensor(np.array([[1.5, -2.0]], np.float32)).astype(ms.bfloat16)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dump(tmp_path / "d", lambda: values.reshape(2, 1), net)
    row = rows(tmp_path / "d", "mindspore")[-1]
    assert row[3] == "BFloat16"
    assert array(tmp_path / "d", row[0], "mindspore").tolist() == [[1.5], [-2.0]]


def test_overflow_check(tmp_path, net):
    zero = ms.Tensor(np.array([0.0, 1.0], np.float32))
    dump(tmp_path / "d", lambda: (ops.exp(zero), ops.log(zero)), net, overflow_check=True)
    assert labels(tmp_path / "d") == ["Functional_log_0"]


def test_two_runs_of_one_network_agree(tmp_path, net, x):
    for name in ("one", "two"):
        dump(tmp_path / name, lambda: step(net, x), net)
    assert tt.compare(tmp_path / "one", tmp_path / "two").agree


def test_gradients_come_after_a_region_was_closed(tmp_path, x):
    """A second start, a stop where nothing runs, and two regions inside `construct`: two APIs, six rows a step."""

    class Narrowing(nn.Cell):
        def __init__(self):
            super().__init__()
            self.fc, self.relu = nn.Dense(4, 4), nn.ReLU()

        def construct(self, x):
            ts.migrator.api_dump_stop()
            ts.migrator.api_dump_stop()
            x = self.fc(x)
            ts.migrator.api_dump_start()
            ts.migrator.api_dump_start(statistic_category=["max"])
            x = ops.clip(x, -0.5, 0.5)
            ts.migrator.api_dump_stop()
            x = self.fc(x)
            ts.migrator.api_dump_start()
            x = self.relu(x)
            ts.migrator.api_dump_stop()
            return x

    net = Narrowing().set_train()
    ts.migrator.api_dump_init(net, tmp_path / "d", retain_backward=True)
    for _ in range(2):
        ts.migrator.api_dump_start()
        ms.value_and_grad(lambda x: net(x).sum(), None, net.trainable_params())(x)
        ts.migrator.api_dump_stop()
    for number in (0, 1):
        assert [row[0] for row in rows(tmp_path / "d", "mindspore") if row[1] == number + 1] == [
            *(f"Functional_clip_{number}_forward_{part}" for part in ("input.0", "output")),
            *(f"NN_ReLU_{number}_forward_{part}" for part in ("input.0", "output")),
            f"NN_ReLU_{number}_backward_input",
            f"Functional_clip_{number}_backward_input",
        ]
