"""api_dump_init, api_dump_start, api_dump_stop: what is in a dump, and what is as it was afterwards."""

import gc
import hashlib
import math
import os
import signal
import stat
import subprocess
import sys
import textwrap
from contextlib import contextmanager

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.nn import functional as F

import twintrace as tt
import twintrace.compat.troubleshooter as ts
from tests.compat.troubleshooter.dumps import array, names, rows, stacks
from twintrace.compat.troubleshooter.layers import own_class
from twintrace.compat.troubleshooter.migrator import api_dump
from twintrace.frameworks.torch import FRAMEWORK
from twintrace.model.errors import SessionError, TraceExistsError, TwintraceError, UsageError

pytestmark = pytest.mark.needs_torch


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(torch.relu(self.fc(x))) + x


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(Block(), Block())
        self.norm = nn.LayerNorm(4)

    def forward(self, x):
        return self.norm(self.blocks(x)).sum(-1)


@contextmanager
def dumping(net, path, *, retain_backward=False, **options):
    ts.migrator.api_dump_init(net, path, retain_backward=retain_backward)
    ts.migrator.api_dump_start(**options)
    yield
    ts.migrator.api_dump_stop()


def labels(folder):
    """The APIs of a dump, each once."""
    return list(dict.fromkeys(name.split("_forward")[0].split("_backward")[0] for name in names(folder)))


@pytest.fixture
def x():
    torch.manual_seed(0)
    return torch.randn(3, 4)


BLOCK = ["NN_Linear_{}", "Torch_relu_{}", "NN_Dropout_{}", "Tensor_add_{}"]
ALL = [name.format(number) for number in (0, 1) for name in BLOCK] + ["NN_LayerNorm_0", "Tensor_sum_0"]


def test_layers_and_functions_in_order(tmp_path, x):
    with dumping(Net(), tmp_path / "d"):
        Net()(x)  # another network of the same process: its functions are seen, its layers are not
    assert labels(tmp_path / "d") == ["Torch_relu_0", "Tensor_add_0", "Torch_relu_1", "Tensor_add_1", "Tensor_sum_0"]
    net = Net()
    with dumping(net, tmp_path / "d"):
        net(x)
    assert labels(tmp_path / "d") == ALL
    row = rows(tmp_path / "d")[0]
    assert row[:5] == ["NN_Linear_0_forward_input.0", 1, [], "torch.float32", [3, 4]]
    assert row[5][:2] == [float(x.max()), float(x.min())]
    assert math.isnan(row[5][2])
    assert row[6] == []
    assert row[7] == pytest.approx(float(x.norm()))
    assert np.array_equal(array(tmp_path / "d", "NN_Linear_0_forward_input.0"), x)


def test_what_a_layer_calls_is_not_recorded_wherever_the_layer_is(tmp_path, x):
    """A loss that is no part of the network: neither it nor what it calls; the same function called by the user is."""
    net, criterion = Net(), nn.MSELoss()
    with dumping(net, tmp_path / "d"):
        out = net(x)
        criterion(out, torch.zeros_like(out))
        F.l1_loss(out, out)
    assert [name for name in labels(tmp_path / "d") if "loss" in name] == ["Functional_l1_loss_0"]


def test_a_subclass_of_a_layer_is_that_layer(tmp_path, x):
    class Scaled(nn.Linear):
        def forward(self, x):
            return F.linear(x, self.weight) * 2

    net = nn.Sequential(Scaled(4, 2), nn.ReLU())
    with dumping(net, tmp_path / "d"):
        net(x)
    assert labels(tmp_path / "d") == ["NN_Linear_0", "NN_ReLU_0"]
    assert own_class(Scaled) == "Linear"
    assert own_class(nn.Sequential) is own_class(Net) is None


def test_gradients_of_results_are_those_of_a_run_that_is_not_recorded(tmp_path, x):
    torch.manual_seed(1)
    net = Net().eval()
    net(x).square().sum().backward()
    expected = {name: p.grad.clone() for name, p in net.named_parameters()}
    net.zero_grad()
    with dumping(net, tmp_path / "d", retain_backward=True):
        net(x).square().sum().backward()
    assert all(torch.equal(p.grad, expected[name]) for name, p in net.named_parameters())
    backward = [name for name in names(tmp_path / "d") if "backward" in name]
    assert backward[:3] == [
        "Tensor_square_0_backward_input",
        "Tensor_sum_0_backward_input",
        "NN_LayerNorm_0_backward_input",
    ]
    assert backward[-1] == "NN_Linear_0_backward_input"
    assert not [name for name in backward if "output" in name]
    assert array(tmp_path / "d", "Tensor_sum_0_backward_input").shape == (3,)


def test_without_retain_backward_there_are_none(tmp_path, x):
    net = Net()
    with dumping(net, tmp_path / "d"):
        net(x).sum().backward()
    assert not [name for name in names(tmp_path / "d") if "backward" in name]


def test_dropout_is_out_between_start_and_stop_alone(tmp_path):
    net = nn.Sequential(nn.Dropout(0.5)).train()
    ones = torch.ones(200, 4)
    before, functions = nn.Dropout.forward, dict(vars(F))
    with dumping(net, tmp_path / "d"):
        assert torch.equal(net(ones), ones)
        assert torch.equal(F.dropout(ones, 0.5), ones)
    assert nn.Dropout.forward is before
    assert dict(vars(F)) == functions
    assert not torch.equal(net(ones), ones)
    assert np.array_equal(array(tmp_path / "d", "NN_Dropout_0_forward_output"), ones)


def test_nothing_remains_even_after_a_model_that_raises(tmp_path, x):
    class Broken(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x):
            return self.fc(x) @ torch.ones(7)

    net = Broken()
    call, dropout = nn.Module.__call__, F.dropout
    ts.migrator.api_dump_init(net, tmp_path / "d")
    ts.migrator.api_dump_start()
    with pytest.raises(RuntimeError, match="size mismatch"):
        net(x)
    ts.migrator.api_dump_stop()
    assert nn.Module.__call__ is call
    assert F.dropout is dropout
    assert not torch.overrides._get_current_function_mode_stack()
    assert not net._forward_hooks
    assert labels(tmp_path / "d") == ["NN_Linear_0", "Torch_ones_0"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ALL),
        ({"mode": "list", "scope": ["NN_Linear_1", "Tensor_add_0", "NN_Nothing_0"]}, ["Tensor_add_0", "NN_Linear_1"]),
        ({"mode": "range", "scope": ["NN_Dropout_0", "Torch_relu_1"]}, ALL[2:6]),
        ({"mode": "range", "scope": ["NN_LayerNorm_0", "NN_LayerNorm_0"]}, ["NN_LayerNorm_0"]),
        ({"mode": "api_list", "scope": ["RELU", "sum"]}, ["Torch_relu_0", "Torch_relu_1", "Tensor_sum_0"]),
    ],
)
def test_modes(tmp_path, x, options, expected):
    net = Net()
    with dumping(net, tmp_path / "d", **options):
        net(x)
    assert labels(tmp_path / "d") == expected


def test_a_second_range_begins_anew(tmp_path, x):
    net = Net()
    ts.migrator.api_dump_init(net, tmp_path / "d")
    for first, last in (("NN_Linear_0", "Torch_relu_0"), ("NN_Dropout_3", "Tensor_add_3")):
        ts.migrator.api_dump_start("range", [first, last])
        net(x)
        ts.migrator.api_dump_stop()
    assert labels(tmp_path / "d") == ["NN_Linear_0", "Torch_relu_0", "NN_Dropout_3", "Tensor_add_3"]
    assert [row[1] for row in rows(tmp_path / "d")] == [1] * 4 + [2] * 5


@pytest.mark.parametrize("kind", ["all", "npy", "statistics", "stack"])
def test_dump_types(tmp_path, x, kind):
    net = Net()
    with dumping(net, tmp_path / "d", dump_type=kind):
        net(x)
    files = list((tmp_path / "d" / "rank0" / "torch_api_dump").iterdir())
    assert labels(tmp_path / "d") == ALL
    assert (len(files) == len(rows(tmp_path / "d"))) is (kind in ("all", "npy"))
    assert bool(files) is (kind in ("all", "npy"))
    counted = kind in ("all", "statistics")
    for row in rows(tmp_path / "d"):
        assert math.isnan(row[5][0]) is not counted
        assert (row[7] == []) is not counted
    assert len(stacks(tmp_path / "d")) == len(ALL)


def test_statistics_of_every_category(tmp_path):
    net = nn.Sequential(nn.ReLU())
    values = torch.tensor([[1.0, 4.0]])
    with dumping(
        net, tmp_path / "d", statistic_category=["max", "min", "avg", "md5", "l2norm"], dump_type="statistics"
    ):
        net(values)
    md5 = hashlib.md5(values.numpy().tobytes()).hexdigest()
    assert rows(tmp_path / "d")[0][3:] == ["torch.float32", [1, 2], [4.0, 1.0, 2.5], md5, pytest.approx(17**0.5)]
    with dumping(net, tmp_path / "d", statistic_category=None):
        net(torch.tensor([[math.inf, 1.0]]))
    assert str(rows(tmp_path / "d")[0][5:]) == "[[nan, nan, nan], [], []]"
    values = [torch.tensor([[odd, 1.0]]) for odd in (math.inf, math.nan)]
    with dumping(net, tmp_path / "d", statistic_category=("max", "min", "avg", "l2norm")):
        for value in values:
            net(value)
    assert rows(tmp_path / "d")[0][5:] == [[math.inf, 1.0, math.inf], [], math.inf]
    assert str(rows(tmp_path / "d")[2][5:]) == "[[nan, nan, nan], [], nan]"


def test_filter_data(tmp_path):
    def run(**options):
        net = nn.Sequential(nn.Embedding(5, 4))
        with dumping(net, tmp_path / "d", **options):
            out = net(torch.tensor([0, 3]))
            torch.clip(out, 0.5, max=2).sum()
            torch.zeros(0, 4)
        return names(tmp_path / "d")

    floats = ["NN_Embedding_0_forward_output", "Torch_clip_0_forward_input.0", "Torch_clip_0_forward_output"]
    assert [name for name in run() if "tensor" not in name] == [*floats, "Tensor_sum_0_forward_input.0"]
    everything = run(filter_data=False)
    assert {
        "NN_Embedding_0_forward_input.0", "Torch_clip_0_forward_input.1", "Torch_clip_0_forward_input.2",
        "Tensor_sum_0_forward_output", "Torch_zeros_0_forward_output",
    } <= set(everything)  # fmt: skip
    by_name = {row[0]: row for row in rows(tmp_path / "d")}
    assert by_name["Torch_clip_0_forward_input.1"][3:] == ["<class 'float'>", [], [0.5, 0.5, 0.5], [], 0.5]
    assert by_name["Torch_clip_0_forward_input.2"][3] == "<class 'int'>"
    assert array(tmp_path / "d", "Torch_clip_0_forward_input.1") == 0.5


def test_overflow_check(tmp_path):
    net = nn.Sequential(nn.ReLU())
    with dumping(net, tmp_path / "d", overflow_check=True):
        out = net(torch.tensor([[0.0, 1.0]]))
        torch.exp(out)
        torch.log(out)
        torch.exp(torch.log(out))
    assert labels(tmp_path / "d") == ["Torch_log_0", "Torch_log_1"]


def test_nested_and_keyword_arguments_have_two_numbers_at_most(tmp_path, x):
    net = nn.Sequential(nn.LSTM(4, 4, batch_first=True))
    x = x[None]
    with dumping(net, tmp_path / "d"):
        out, _ = net(x)
        F.linear(out, weight=torch.ones(4, 4), bias=torch.zeros(4))
        torch.cat([out, out], dim=0)
    assert [name for name in names(tmp_path / "d") if "ones" not in name and "zeros" not in name] == [
        "NN_LSTM_0_forward_input.0",
        "NN_LSTM_0_forward_output.0", "NN_LSTM_0_forward_output.1.0", "NN_LSTM_0_forward_output.1.1",
        "Functional_linear_0_forward_input.0", "Functional_linear_0_forward_input.1", "Functional_linear_0_forward_input.2",
        "Functional_linear_0_forward_output",
        "Torch_cat_0_forward_input.0.0", "Torch_cat_0_forward_input.0.1", "Torch_cat_0_forward_output",
    ]  # fmt: skip


def test_an_argument_has_the_values_from_before_the_call(tmp_path, x):
    net = nn.Sequential(nn.ReLU(inplace=True))
    given = x.clone()
    with dumping(net, tmp_path / "d"):
        net(given)
        given.add_(5)
    assert np.array_equal(array(tmp_path / "d", "NN_ReLU_0_forward_input.0"), x)
    assert np.array_equal(array(tmp_path / "d", "Tensor_add__0_forward_input.0"), x.relu())
    assert np.array_equal(array(tmp_path / "d", "Tensor_add__0_forward_output"), x.relu() + 5)


def test_what_a_call_without_a_result_has_written_to_is_its_result(tmp_path, x):
    net, given = nn.Sequential(nn.ReLU()), x.clone()
    with dumping(net, tmp_path / "d"):
        given[0] = 7.0
    assert names(tmp_path / "d") == ["Tensor___setitem___0_forward_input.0", "Tensor___setitem___0_forward_output"]
    assert np.array_equal(array(tmp_path / "d", "Tensor___setitem___0_forward_input.0"), x)
    assert np.array_equal(array(tmp_path / "d", "Tensor___setitem___0_forward_output"), given)


def test_bf16(tmp_path, x):
    net = nn.Sequential(nn.Linear(4, 4)).bfloat16()
    with dumping(net, tmp_path / "d", retain_backward=True, statistic_category=["max", "md5"]):
        out = net(x.bfloat16())
        out.sum().backward()
    row = {row[0]: row for row in rows(tmp_path / "d")}["NN_Linear_0_forward_output"]
    saved = array(tmp_path / "d", "NN_Linear_0_forward_output")
    assert row[3] == "torch.bfloat16"
    assert saved.dtype == np.float32
    assert np.array_equal(saved, out.detach().float())
    assert row[6] == hashlib.md5(saved.tobytes()).hexdigest()
    tensor = tt.open(tmp_path / "d").journal(0).tensor(1)
    assert str(tensor.spec) == "bf16[3, 4]"


def test_stacks(tmp_path, x):
    net = Net()
    with dumping(net, tmp_path / "d"):
        net(x)
    found = stacks(tmp_path / "d")
    assert list(found)[:4] == [
        "torch.nn.Linear(0) forward", "torch.relu(0) forward", "torch.nn.Dropout(0) forward", "torch.Tensor.add(0) forward",
    ]  # fmt: skip
    first = found["torch.nn.Linear(0) forward"][0]
    assert first.startswith(f"File {__file__}, line ")
    assert first.endswith(", in forward, \n return self.drop(torch.relu(self.fc(x))) + x")
    assert not [line for lines in found.values() for line in lines if "/torch/" in line]
    with dumping(net, tmp_path / "d", filter_stack=False):
        net(x)
    lines = [line for lines in stacks(tmp_path / "d").values() for line in lines]
    assert [line for line in lines if "/torch/nn/modules/" in line]
    assert not [line for line in lines if "/twintrace/" in line.partition(", line")[0] and "/src/" in line]


def test_regions_follow_each_other_and_an_old_dump_is_replaced(tmp_path, x):
    net = Net()
    ts.migrator.api_dump_init(net, tmp_path / "d", retain_backward=True)
    for _ in range(2):
        ts.migrator.api_dump_start()
        net(x).sum().backward()
        ts.migrator.api_dump_stop()
        net(x)  # not recorded, and not counted
    trace = tt.open(tmp_path / "d")
    assert trace.steps == (0, 1)
    assert [len(journal) for journal in trace.journals()] == [11, 11]
    assert len(stacks(tmp_path / "d")) == 22
    assert "NN_LayerNorm_1_backward_input" in names(tmp_path / "d")
    (tmp_path / "d" / "rank0" / "torch_api_dump" / "mine.txt").write_text("kept")
    with dumping(net, tmp_path / "d"):
        net(x)
    assert tt.open(tmp_path / "d").steps == (0,)
    files = {file.name for file in (tmp_path / "d" / "rank0" / "torch_api_dump").iterdir()}
    assert files == {f"{name}.npy" for name in names(tmp_path / "d")} | {"mine.txt"}


def test_forward_only_regions_are_steps(tmp_path, x):
    """The real tool cannot tell them apart."""
    net = Net()
    ts.migrator.api_dump_init(net, tmp_path / "d")
    for _ in range(3):
        ts.migrator.api_dump_start()
        net(x)
        ts.migrator.api_dump_stop()
    assert tt.open(tmp_path / "d").steps == (0, 1, 2)


def test_the_same_values_are_one_file(tmp_path, x):
    net = Net()
    with dumping(net, tmp_path / "d"):
        net(x)
    folder = tmp_path / "d" / "rank0" / "torch_api_dump"
    made, taken = (folder / f"{name}.npy" for name in ("NN_Linear_0_forward_output", "Torch_relu_0_forward_input.0"))
    assert made.samefile(taken)
    modes = {
        path.name: stat.S_IMODE(path.stat().st_mode)
        for path in (made, folder, folder.parent, folder.parent / "torch_api_dump_info.csv")
    }
    assert list(modes.values()) == [0o400, 0o700, 0o700, 0o600]


def test_every_rank_has_its_folder(tmp_path, x, monkeypatch):
    monkeypatch.setattr(FRAMEWORK, "rank", lambda: (3, 8))
    net = Net()
    with dumping(net, tmp_path / "d"):
        net(x)
    assert [entry.name for entry in (tmp_path / "d").iterdir()] == ["rank3"]
    assert "NN_LayerNorm_0_forward_output" in names(tmp_path / "d", rank=3)
    assert tt.open(tmp_path / "d").ranks == (3,)


def test_what_was_written_survives_a_kill(tmp_path, checkout_env):
    script = """
        import os, signal, sys, torch
        from torch import nn
        import twintrace.compat.troubleshooter as ts
        net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        ts.migrator.api_dump_init(net, sys.argv[1])
        ts.migrator.api_dump_start()
        net(torch.ones(2, 4))
        os.kill(os.getpid(), signal.SIGKILL)
    """
    command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "d")]
    done = subprocess.run(command, env=checkout_env, capture_output=True, timeout=120)
    assert done.returncode == -signal.SIGKILL
    journal = tt.open(tmp_path / "d").journal(0)
    assert [call.site.name for call in journal.calls()] == ["torch.ones", "Linear", "ReLU"]
    assert all(call.stack or call.site.name for call in journal.calls())
    assert len(stacks(tmp_path / "d")) == 3
    assert all(journal.array(tensor) is not None for tensor in journal.tensors())


def test_a_dump_at_a_time(tmp_path, x):
    net = Net()
    with pytest.raises(SessionError, match="api_dump_start before api_dump_init"):
        ts.migrator.api_dump_start()
    with pytest.raises(SessionError, match="api_dump_stop before api_dump_init"):
        ts.migrator.api_dump_stop()
    ts.migrator.api_dump_init(net, tmp_path / "d")
    with dumping(net, tmp_path / "other"):
        net(x)
    assert labels(tmp_path / "other") == ALL
    assert not (tmp_path / "d" / "rank0").exists()


def test_a_stop_where_nothing_runs_does_nothing(tmp_path, x, capsys):
    net = Net()
    ts.migrator.api_dump_init(net, tmp_path / "d")
    capsys.readouterr()
    ts.migrator.api_dump_stop()
    assert not capsys.readouterr().err
    ts.migrator.api_dump_start()
    net(x)
    ts.migrator.api_dump_stop()
    ts.migrator.api_dump_stop()
    assert labels(tmp_path / "d") == ALL


def test_an_init_while_a_dump_runs_goes_on_with_the_new_network(tmp_path, x, capsys):
    first, second = Net(), nn.Sequential(nn.Linear(4, 2), nn.ReLU())
    ts.migrator.api_dump_init(first, tmp_path / "first")
    ts.migrator.api_dump_start("api_list", ["linear"])
    first(x)
    ts.migrator.api_dump_init(second, tmp_path / "second")
    assert "goes on with this network" in capsys.readouterr().err
    second(x)
    ts.migrator.api_dump_stop()
    assert labels(tmp_path / "first") == ["NN_Linear_0", "NN_Linear_1"]
    assert labels(tmp_path / "second") == ["NN_Linear_0"]


def test_the_network_is_kept_alive(tmp_path, x):
    def begin():
        ts.migrator.api_dump_init(nn.Sequential(nn.Linear(4, 2), nn.ReLU()), tmp_path / "d")
        ts.migrator.api_dump_start()

    begin()
    gc.collect()
    torch.relu(x)
    ts.migrator.api_dump_stop()
    assert labels(tmp_path / "d") == ["Torch_relu_0"]


class Narrowing(nn.Module):
    """Calls `inside` at the beginning of its forward; between `before` and `after` lies one function and one layer."""

    def __init__(self, inside, before=lambda: None, after=lambda: None):
        super().__init__()
        self.fc, self.norm, self.relu = nn.Linear(4, 4), nn.LayerNorm(4), nn.ReLU()
        self.inside, self.before, self.after = inside, before, after

    def forward(self, x):
        self.inside()
        x = self.fc(x)
        self.before()
        x = torch.clip(x, -0.5, 0.5)
        self.after()
        x = self.norm(x)
        self.before()
        x = self.relu(x)
        self.after()
        return x


def test_a_second_start_narrows_what_is_recorded(tmp_path, x):
    """As in the real tool's own tests: started in the loop, and with other settings inside `forward`."""
    net = Narrowing(lambda: ts.migrator.api_dump_start("list", ["NN_Linear_0", "NN_ReLU_0"], dump_type="statistics"))
    ts.migrator.api_dump_init(net, tmp_path / "d", retain_backward=True)
    ts.migrator.api_dump_start()
    net(x).sum().backward()
    ts.migrator.api_dump_stop()
    assert names(tmp_path / "d") == [
        *(f"NN_Linear_0_forward_{part}" for part in ("input.0", "output")),
        *(f"NN_ReLU_0_forward_{part}" for part in ("input.0", "output")),
        "NN_ReLU_0_backward_input",
        "NN_Linear_0_backward_input",
    ]
    assert not list((tmp_path / "d" / "rank0" / "torch_api_dump").iterdir())
    assert {row[1] for row in rows(tmp_path / "d")} == {1}, "the region before was empty"


@pytest.mark.parametrize("retain_backward", [False, True])
def test_a_region_that_another_start_ends_at_once_is_not_complained_of(tmp_path, x, retain_backward, recwarn):
    net = Narrowing(lambda: ts.migrator.api_dump_start("list", ["NN_ReLU_0"]))
    ts.migrator.api_dump_init(net, tmp_path / "d", retain_backward=retain_backward)
    ts.migrator.api_dump_start()
    net(x)
    ts.migrator.api_dump_stop()
    api_dump.close()
    assert labels(tmp_path / "d") == ["NN_ReLU_0"]
    assert not [warning for warning in recwarn if "nothing was recorded" in str(warning.message)]


def test_a_start_in_a_running_region_keeps_what_was_recorded(tmp_path, x):
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    ts.migrator.api_dump_init(net, tmp_path / "d")
    ts.migrator.api_dump_start(dump_type="statistics")
    net(x)
    ts.migrator.api_dump_start("api_list", ["relu"])
    net(x)
    ts.migrator.api_dump_stop()
    assert labels(tmp_path / "d") == ["NN_Linear_0", "NN_ReLU_0", "NN_ReLU_1"]
    folder = tmp_path / "d" / "rank0" / "torch_api_dump"
    assert {file.name for file in folder.iterdir()} == {
        f"NN_ReLU_1_forward_{part}.npy" for part in ("input.0", "output")
    }


def test_gradients_come_after_a_region_was_closed(tmp_path, x):
    """Two regions inside `forward`, two APIs, six rows: and nothing of torch is replaced while they are waited for."""
    net = Narrowing(ts.migrator.api_dump_stop, ts.migrator.api_dump_start, ts.migrator.api_dump_stop)
    call = nn.Module.__call__
    ts.migrator.api_dump_init(net, tmp_path / "d", retain_backward=True)
    losses = []
    for _ in range(2):
        ts.migrator.api_dump_start()
        loss = net(x).square().sum()
        assert nn.Module.__call__ is call
        assert not torch.overrides._get_current_function_mode_stack()
        loss.backward()
        ts.migrator.api_dump_stop()
        losses.append(loss.item())
    assert losses[0] == losses[1]
    for number in (0, 1):
        expected = [
            *(f"Torch_clip_{number}_forward_{part}" for part in ("input.0", "output")),
            *(f"NN_ReLU_{number}_forward_{part}" for part in ("input.0", "output")),
            f"NN_ReLU_{number}_backward_input",
            f"Torch_clip_{number}_backward_input",
        ]
        assert [row[0] for row in rows(tmp_path / "d") if row[1] == number + 1] == expected
    trace = tt.open(tmp_path / "d")
    assert trace.steps == (0, 1)
    assert [sum(len(call.gradients) for call in journal.calls()) for journal in trace.journals()] == [2, 2]

    hidden = net.relu(net.norm(torch.clip(net.fc(x), -0.5, 0.5)).requires_grad_())
    hidden.retain_grad()
    hidden.square().sum().backward()
    assert np.array_equal(array(tmp_path / "d", "NN_ReLU_1_backward_input"), hidden.grad)


def test_each_region_gets_the_gradients_of_its_own_graph(tmp_path, x):
    """Two losses, of two regions; one goes back while the other waits, and after a third region was begun."""
    net = nn.Sequential(nn.Linear(4, 2), nn.ReLU())
    ts.migrator.api_dump_init(net, tmp_path / "d", retain_backward=True)
    losses = []
    for scale in (1.0, 2.0):
        ts.migrator.api_dump_start()
        losses.append(net(x * scale).sum())
        ts.migrator.api_dump_stop()
    losses[0].backward()
    ts.migrator.api_dump_start()
    net(x * 3.0)
    losses[1].backward()
    ts.migrator.api_dump_stop()
    backward = [(row[0], row[1]) for row in rows(tmp_path / "d") if "backward" in row[0]]
    assert backward == [(f"{name}_{n}_backward_input", 1) for n in (0, 1) for name in ("NN_ReLU", "NN_Linear")]
    trace = tt.open(tmp_path / "d")
    assert [sum(len(call.gradients) for call in journal.calls()) for journal in trace.journals()] == [4, 0]


def test_regions_whose_graphs_are_gone_are_let_go(tmp_path, x):
    net = nn.Sequential(nn.Linear(4, 2), nn.ReLU())
    ts.migrator.api_dump_init(net, tmp_path / "d", retain_backward=True)
    for _ in range(20):
        ts.migrator.api_dump_start(dump_type="statistics")
        net(x)  # nobody keeps the result, so no gradient can come
        ts.migrator.api_dump_stop()
    assert len(api_dump._DUMP._waiting) == 1
    with torch.no_grad():
        ts.migrator.api_dump_start()
        net(x)
        ts.migrator.api_dump_stop()
    ts.migrator.api_dump_start()
    assert not api_dump._DUMP._waiting


def test_statistics_are_written_as_the_real_tool_writes_them(tmp_path):
    """Numbers that its own tests expect: float32 of the mean and of the norm; of float64 as they are."""
    net = nn.Sequential(nn.Identity())
    values = [1.0, 2.0, -3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 0.0]
    inputs = torch.tensor(values), torch.tensor(values, dtype=torch.float64)
    with dumping(net, tmp_path / "d", statistic_category=["max", "min", "avg", "l2norm"]):
        for each in inputs:
            net(each)
    narrow, wide = rows(tmp_path / "d")[0], rows(tmp_path / "d")[2]
    assert narrow[5:] == [[9.0, -3.0, 3.9000000953674316], [], 16.881942749023438]
    assert wide[5:] == [[9.0, -3.0, 3.9], [], pytest.approx(285**0.5, rel=1e-15)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "stack"}, "mode: expected one of all, list, range, api_list, got 'stack'"),
        ({"scope": ["NN_Linear_0"]}, "scope: expected None with mode='all'"),
        ({"mode": "list"}, "scope: expected a list of names with mode='list', got None"),
        ({"mode": "list", "scope": []}, "scope: expected a list of names"),
        ({"mode": "list", "scope": ["Linear"]}, r"names such as NN_Conv2d_0 .* got 'Linear'"),
        ({"mode": "range", "scope": ["NN_Linear_0"]}, r"expected \[start, end\]"),
        ({"mode": "api_list", "scope": [1]}, "scope: expected a list of names"),
        ({"dump_type": "tensor"}, "dump_type: expected one of all, npy, statistics, stack, got 'tensor'"),
        ({"filter_data": 1}, "filter_data: expected True or False, got 1"),
        (
            {"statistic_category": ["mean"]},
            "statistic_category: expected some of max, min, avg, md5, l2norm, got 'mean'",
        ),
        ({"statistic_category": "max"}, "statistic_category: expected a list"),
    ],
)
def test_what_cannot_be_asked_for(tmp_path, options, message):
    net = Net()
    ts.migrator.api_dump_init(net, tmp_path / "d")
    with pytest.raises(UsageError, match=message):
        ts.migrator.api_dump_start(**options)
    assert not (tmp_path / "d" / "rank0").exists()


def test_what_is_no_network_and_no_folder(tmp_path):
    net = Net()
    for wrong, kind in (([net], "list"), (7, "int"), (None, "NoneType")):
        with pytest.raises(
            UsageError, match=rf"net: expected a torch.nn.Module, a mindspore.nn.Cell or .*, got {kind}"
        ):
            ts.migrator.api_dump_init(wrong, tmp_path / "d")
    with pytest.raises(UsageError, match="retain_backward: expected True or False"):
        ts.migrator.api_dump_init(net, tmp_path / "d", retain_backward=1)
    with pytest.raises(UsageError, match="output_path: expected the name of a folder"):
        ts.migrator.api_dump_init(net, 7)
    (tmp_path / "file").write_text("")
    with pytest.raises(TraceExistsError, match="found a file in the way"):
        ts.migrator.api_dump_init(net, tmp_path / "file")


def test_nothing_in_scope_is_said(tmp_path, x, capsys):
    net = Net()
    ts.migrator.api_dump_init(net, tmp_path / "d")
    ts.migrator.api_dump_start("list", ["NN_Nothing_0"])
    net(x)
    ts.migrator.api_dump_stop()
    assert "no data has been saved. Please check the dump scope!" in capsys.readouterr().err


def test_the_default_folder(tmp_path, x, monkeypatch):
    monkeypatch.chdir(tmp_path)
    net = Net()
    ts.migrator.api_dump_init(net)
    ts.migrator.api_dump_start()
    os.chdir("/")
    net(x)
    ts.migrator.api_dump_stop()
    assert labels(tmp_path / "ts_api_dump") == ALL


def test_weights_beside_the_dumps_are_compared(tmp_path, x, capsys):
    for name in "ab":
        torch.manual_seed(3)
        net = Net()
        ts.migrator.api_dump_init(net, tmp_path / name, compare_statedict=True)
        ts.migrator.api_dump_start()
        net(x)
        ts.migrator.api_dump_stop()
    ts.migrator.api_dump_compare(tmp_path / "a", tmp_path / "b")
    said = capsys.readouterr().out
    assert "The list of comparison results for values" in said
    assert "blocks.0.fc.weight" in said


def test_fix_random():
    ts.fix_random()
    first = torch.rand(3), np.random.rand()
    ts.fix_random(16)
    assert torch.equal(torch.rand(3), first[0])
    assert np.random.rand() == first[1]
    with pytest.raises(TwintraceError, match="seed"):
        ts.fix_random(-1)
