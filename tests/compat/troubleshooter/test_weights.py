"""TroubleShooter's functions about weights, as its documents call them."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("mindspore")

import mindspore as ms
import torch
from mindspore import nn as mn
from mindspore import ops
from torch import nn as tn

import twintrace.compat.troubleshooter as ts
from twintrace.compat.troubleshooter.tables import boxed, percent, truncated
from twintrace.model.errors import TwintraceError, UsageError, WeightsError

pytestmark = [pytest.mark.needs_torch, pytest.mark.needs_mindspore]


class TorchNet(tn.Module):
    def __init__(self, inputs=2):
        super().__init__()
        self.fc1 = tn.Linear(inputs, 10)
        self.bn1 = tn.BatchNorm1d(10)
        self.fc2 = tn.Linear(10, 1)

    def forward(self, x):
        return torch.sigmoid(self.fc2(torch.relu(self.bn1(self.fc1(x)))))


class MindSporeNet(mn.Cell):
    def __init__(self, inputs=2):
        super().__init__()
        self.fc1 = mn.Dense(inputs, 10)
        self.bn1 = mn.BatchNorm1d(10)
        self.fc2 = mn.Dense(10, 1)

    def construct(self, x):
        return ops.sigmoid(self.fc2(ops.relu(self.bn1(self.fc1(x)))))


class Several(tn.Module):
    """One of everything that has a name of its own in MindSpore."""

    def __init__(self):
        super().__init__()
        self.features = tn.ModuleDict(
            {"conv": tn.Conv1d(2, 3, 3), "norm": tn.BatchNorm3d(3), "embed": tn.Embedding(4, 3), "act": tn.PReLU()}
        )
        self.out = torch.nn.utils.parametrizations.weight_norm(tn.Linear(3, 2))


@pytest.fixture
def saved(tmp_path):
    """A net, its map and its checkpoint."""
    net = TorchNet()
    ts.migrator.get_weight_map(pt_net=net, weight_map_save_path=tmp_path / "map.json")
    torch.save(net.state_dict(), tmp_path / "net.pth")
    return net, tmp_path


def test_a_map_has_every_name_and_the_functions_that_change_values():
    names, values = ts.migrator.get_weight_map(pt_net=Several())
    assert names == {
        "features.conv.weight": "features.conv.weight",
        "features.conv.bias": "features.conv.bias",
        "features.norm.weight": "features.norm.bn2d.gamma",
        "features.norm.bias": "features.norm.bn2d.beta",
        "features.norm.running_mean": "features.norm.bn2d.moving_mean",
        "features.norm.running_var": "features.norm.bn2d.moving_variance",
        "features.norm.num_batches_tracked": "features.norm.num_batches_tracked",
        "features.embed.weight": "features.embed.embedding_table",
        "features.act.weight": "features.act.w",
        "out.bias": "out.bias",
        "out.parametrizations.weight.original0": None,
        "out.parametrizations.weight.original1": "out.weight",
    }
    assert list(values) == ["features.conv.weight", "out.parametrizations.weight.original1"]
    assert values["features.conv.weight"].startswith("troubleshooter.migrator.mapping_relation.weight_adapter.")


def test_the_document_s_first_use_map_convert_load(saved, capsys):
    net, folder = saved
    ts.migrator.get_weight_map(pt_net=net, weight_map_save_path=folder / "map.json", print_map=True)
    assert "'bn1.weight': 'bn1.gamma'" in capsys.readouterr().out
    names, values = json.loads((folder / "map.json").read_text())
    assert (names["bn1.running_var"], values) == ("bn1.moving_variance", {})
    ts.migrator.convert_weight(
        weight_map_path=str(folder / "map.json"),
        pt_file_path=str(folder / "net.pth"),
        ms_file_save_path=str(folder / "net.ckpt"),
    )
    printed = capsys.readouterr().out
    assert "The list of conversion result" in printed.splitlines()[1]
    assert re.search(r"\| +fc1.weight +\| +fc1.weight +\| +Consistent +\| +\(10, 2\) +\| +\(10, 2\) +\|", printed)
    assert "weight->gamma" in printed
    assert f"The saved path is: {folder / 'net.ckpt'}" in printed
    loaded = ms.load_checkpoint(str(folder / "net.ckpt"))
    assert np.array_equal(loaded["bn1.gamma"].asnumpy(), net.bn1.weight.detach().numpy())
    other = MindSporeNet()
    assert ms.load_param_into_net(other, loaded)[0] == []


def test_the_document_s_second_use_a_prefix(saved):
    net, folder = saved
    ts.migrator.get_weight_map(pt_net=net, weight_map_save_path=folder / "map.json", weight_name_prefix="uvp")
    ts.migrator.convert_weight(folder / "map.json", folder / "net.pth", folder / "net.ckpt", print_conv_info=False)
    assert {name.split(".")[0] for name in ms.load_checkpoint(str(folder / "net.ckpt"))} == {"uvp"}


def test_the_document_s_third_use_a_function_for_names(tmp_path):
    def custorm_weight_name(weight_name_map):
        prefix = ".custorm."
        custorm_name_map = {}
        for key, value in weight_name_map.items():
            index = value.find(".")
            value = value[0:index] + prefix + value[index + 1 :]
            custorm_name_map[key] = str(value)
        return custorm_name_map

    names, _ = ts.migrator.get_weight_map(pt_net=Several(), custom_name_func=custorm_weight_name)
    assert names["features.embed.weight"] == "features.custorm.embed.embedding_table"


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda names: dict.fromkeys(names, "same"), "are both mapped to same"),
        (lambda names: None, "must return the names, got NoneType"),
        (lambda names: {"other": "x"}, r"keys must stay as they are; lost \['fc1.weight'"),
        (lambda names: dict.fromkeys(names, 3), "mapped to 3; expected a name"),
        (7, "expected a function, got int"),
    ],
)
def test_a_function_for_names_that_cannot_work_is_refused_and_nothing_is_written(tmp_path, function, message):
    with pytest.raises(TwintraceError, match=message):
        ts.migrator.get_weight_map(TorchNet(), tmp_path / "map.json", custom_name_func=function)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("keyword", ["pth_para_dict", "pt_param_dict"])
def test_a_dict_and_a_map_at_hand_will_do(tmp_path, keyword):
    net = Several()
    names_and_values = ts.migrator.get_weight_map(net)
    ts.migrator.convert_weight(
        weight_map=names_and_values, ms_file_save_path=tmp_path / "net.ckpt", **{keyword: net.state_dict()}
    )
    found = ms.load_checkpoint(str(tmp_path / "net.ckpt"))
    assert found["features.conv.weight"].shape == (3, 2, 1, 3)
    assert np.allclose(found["out.weight"].asnumpy(), net.out.weight.detach().numpy(), rtol=1e-6)


def test_a_whole_module_is_read_as_the_document_says(tmp_path):
    """`torch.save(torch_net, …)`, in every function that takes a file."""
    net = tn.Sequential(tn.Linear(2, 3), tn.BatchNorm1d(3))
    whole, state, map_file = tmp_path / "net.pth", tmp_path / "state.pth", tmp_path / "map.json"
    torch.save(net, whole)
    torch.save(net.state_dict(), state)
    names = ts.migrator.get_weight_map(net, weight_map_save_path=map_file)
    ts.migrator.convert_weight(weight_map=names, pt_file_path=whole, ms_file_save_path=tmp_path / "whole.ckpt")
    ts.migrator.convert_weight(weight_map=names, pt_file_path=state, ms_file_save_path=tmp_path / "state.ckpt")
    assert (tmp_path / "whole.ckpt").read_bytes() == (tmp_path / "state.ckpt").read_bytes()
    target = mn.SequentialCell(mn.Dense(2, 3), mn.BatchNorm1d(3))
    ts.migrator.convert_weight_and_load(map_file, whole, target)
    assert np.array_equal(target[0].weight.asnumpy(), net[0].weight.detach().numpy())
    assert "True" in ts.migrator.compare_pth_and_ckpt(map_file, whole, tmp_path / "whole.ckpt")


@pytest.mark.parametrize(("level", "rows"), [(0, 0), (1, 7), (2, 4)])
def test_how_much_of_a_conversion_is_printed(tmp_path, capsys, level, rows):
    net = tn.Sequential(tn.Linear(2, 3), tn.BatchNorm1d(3))
    names = ts.migrator.get_weight_map(net)
    ts.migrator.convert_weight(
        weight_map=names, pth_para_dict=net.state_dict(), ms_file_save_path=tmp_path / "n.ckpt", print_level=level
    )
    printed = capsys.readouterr().out
    assert sum(line.startswith("|") and ("(" in line) for line in printed.splitlines()) == rows
    with pytest.raises(UsageError, match="print_level: expected 0, 1 or 2, got 3"):
        ts.migrator.convert_weight(
            weight_map=names, pth_para_dict=net.state_dict(), ms_file_save_path=tmp_path / "n.ckpt", print_level=3
        )


def test_maps_and_checkpoints_that_do_not_fit_are_refused_and_nothing_is_written(saved):
    _, folder = saved
    target = folder / "net.ckpt"
    names, values = json.loads((folder / "map.json").read_text())
    cases = [
        ([{k: v for k, v in names.items() if k != "fc1.bias"}, values], "1 weights of .* are not in the map: fc1.bias"),
        ([names | {"fc9.bias": "fc9.bias"}, values], "names 1 weights that .* does not have: fc9.bias"),
        ([names, {"fc1.weight": "os.system"}], "Functions named in a file are not called"),
        ([names, {"fc9.weight": "x"}], "functions for names that are not mapped: fc9.weight"),
        ([names], "expected two dicts"),
        ({"a": 1}, "is no weight map"),
        ([names | {"fc1.bias": "fc1.weight"}, values], "are both mapped to fc1.weight"),
    ]
    for content, message in cases:
        (folder / "bad.json").write_text(json.dumps(content))
        with pytest.raises(WeightsError, match=message):
            ts.migrator.convert_weight(folder / "bad.json", folder / "net.pth", target)
    with pytest.raises(UsageError, match="expected weight_map_path or weight_map, got neither"):
        ts.migrator.convert_weight(pt_file_path=folder / "net.pth", ms_file_save_path=target)
    with pytest.raises(WeightsError, match="no such file"):
        ts.migrator.convert_weight(folder / "map.json", folder / "gone.pth", target)
    assert not target.exists()


def test_the_scripts_step_four_saves_on_one_side_and_loads_on_the_other(tmp_path):
    torch.manual_seed(1)
    net, other = TorchNet(), MindSporeNet()
    with torch.no_grad():
        net.bn1.running_mean.uniform_(-1, 1)
    ts.migrator.save_net_and_weight_params(net, path=tmp_path / "info")
    assert sorted(item.name for item in (tmp_path / "info").iterdir()) == [
        "torch_net_architecture.txt",
        "torch_net_map.json",
        "torch_troubleshooter_create.pth",
    ]
    assert "BatchNorm1d(10" in (tmp_path / "info" / "torch_net_architecture.txt").read_text()
    assert torch.equal(torch.load(tmp_path / "info" / "torch_troubleshooter_create.pth")["fc1.weight"], net.fc1.weight)
    ts.migrator.convert_weight_and_load(
        weight_map_path=tmp_path / "info" / "torch_net_map.json",
        pt_file_path=tmp_path / "info" / "torch_troubleshooter_create.pth",
        net=other,
    )
    x = np.random.default_rng(0).standard_normal((4, 2)).astype(np.float32)
    other.set_train(False)
    assert np.allclose(net.eval()(torch.tensor(x)).detach().numpy(), other(ms.Tensor(x)).asnumpy(), atol=1e-5)
    ts.migrator.save_net_and_weight_params(other, path=tmp_path / "info", weight_params_filename="mine.ckpt")
    assert np.array_equal(
        ms.load_checkpoint(str(tmp_path / "info" / "mine.ckpt"))["fc1.weight"].asnumpy(),
        net.fc1.weight.detach().numpy(),
    )
    assert (tmp_path / "info" / "mindspore_net_architecture.txt").exists()
    with pytest.raises(UsageError, match="expected a net, got int"):
        ts.migrator.save_net_and_weight_params(3, path=tmp_path)


def test_a_net_that_is_not_filled_is_an_error_and_stays_as_it_was(saved):
    _, folder = saved
    wider = MindSporeNet(3)
    before = wider.fc1.weight.asnumpy().copy()
    with pytest.raises(WeightsError, match=r"fc1.weight becomes f32\[10, 2\], but fc1.weight of .* is f32\[10, 3\]"):
        ts.migrator.convert_weight_and_load(folder / "map.json", folder / "net.pth", wider)
    assert np.array_equal(before, wider.fc1.weight.asnumpy())
    more = MindSporeNet()
    more.extra = mn.Dense(2, 2)
    with pytest.raises(WeightsError, match=r"nothing fills extra.weight, extra.bias"):
        ts.migrator.convert_weight_and_load(folder / "map.json", folder / "net.pth", more)


@pytest.fixture
def checkpoints(tmp_path):
    ms.set_seed(1)
    for name, inputs in (("a", 2), ("b", 3)):
        ms.save_checkpoint(MindSporeNet(inputs), str(tmp_path / f"{name}.ckpt"))
    return tmp_path / "a.ckpt", tmp_path / "b.ckpt"


def test_two_checkpoints_are_compared_in_two_tables(checkpoints, capsys):
    text = ts.migrator.compare_ms_ckpt(*checkpoints)
    assert capsys.readouterr().out == text + "\n"
    shapes, values = text.split("The list of comparison results for values")
    assert "| Parameter name of original ckpt | Parameter name of target ckpt | Whether shape are equal |" in shapes
    assert "|            fc1.weight           |           fc1.weight          |          False          |" in shapes
    assert "Shape is inconsistent" in values
    assert (
        "|            bn1.gamma            |           bn1.gamma           |          True         |      100.00%      |"
        in values
    )


def test_only_differences_are_printed_at_level_two_and_nothing_at_level_zero(checkpoints, capsys):
    text = ts.migrator.compare_ms_ckpt(*checkpoints, print_level=2)
    assert "bn1.gamma" not in text
    assert "fc1.weight" in text
    capsys.readouterr()
    ts.migrator.compare_ms_ckpt(*checkpoints, print_level=0)
    assert capsys.readouterr().out == ""
    text = ts.migrator.compare_ms_ckpt(*checkpoints, compare_value=False, print_level=2)
    assert "values" not in text
    with pytest.raises(UsageError, match="print_level: expected 0"):
        ts.migrator.compare_ms_ckpt(*checkpoints, print_level=3)


def test_checkpoints_without_a_common_name_are_compared_too(tmp_path):
    for name in "ab":
        ms.save_checkpoint(
            [{"name": f"{name}.w", "data": ms.Tensor([1.0, float("nan")])}], str(tmp_path / f"{name}.ckpt")
        )
    text = ts.migrator.compare_ms_ckpt(tmp_path / "a.ckpt", tmp_path / "b.ckpt")
    assert " None " in text
    assert "a.w" in text
    assert "b.w" in text
    same = ts.migrator.compare_ms_ckpt(tmp_path / "a.ckpt", tmp_path / "a.ckpt")
    assert re.search(r"\| +False +\| +50.00% +\|", same)
    assert "100.00%" in ts.migrator.compare_ms_ckpt(tmp_path / "a.ckpt", tmp_path / "a.ckpt", equal_nan=True)


def test_a_pth_and_a_ckpt_are_compared_by_a_map(saved, capsys):
    _, folder = saved
    ms.save_checkpoint(MindSporeNet(3), str(folder / "ms.ckpt"))
    text = ts.migrator.compare_pth_and_ckpt(folder / "map.json", folder / "net.pth", folder / "ms.ckpt", print_level=2)
    assert (
        "| Parameter name of torch | Parameter name of MindSpore | Whether shape are equal | Parameter shape of torch |"
        in text
    )
    assert (
        "|        fc1.weight       |          fc1.weight         |          False          |         (10, 2)          |"
        in text
    )
    assert "|        fc2.weight       |          fc2.weight         |         False         |" in text
    assert "bn1.gamma" not in text
    ts.migrator.convert_weight(folder / "map.json", folder / "net.pth", folder / "out.ckpt", print_conv_info=False)
    same = ts.migrator.compare_pth_and_ckpt(
        folder / "map.json", folder / "net.pth", folder / "out.ckpt", rtol=0.0, atol=0.0
    )
    assert "False" not in same
    assert same.count("100.00%") == 9


def test_a_map_of_the_real_tool_is_read(tmp_path):
    net = tn.Sequential(tn.Conv1d(2, 3, 3), tn.BatchNorm1d(3))
    torch.save(net.state_dict(), tmp_path / "net.pth")
    names = {name: name for name in net.state_dict()} | {"1.weight": "1.gamma", "1.bias": "1.beta"}
    function = "troubleshooter.migrator.mapping_relation.weight_adapter.trans_conv1d_weight_value"
    (tmp_path / "map.json").write_text(json.dumps([names, {"0.weight": function}]))
    ts.migrator.convert_weight(tmp_path / "map.json", tmp_path / "net.pth", tmp_path / "net.ckpt")
    assert ms.load_checkpoint(str(tmp_path / "net.ckpt"))["0.weight"].shape == (3, 2, 1, 3)


def test_tables_are_drawn_as_the_document_shows_them():
    assert boxed("Title", ("a", "second"), [(True, 1), ("False", (2, 3))]) == (
        "+----------------+\n"
        "|     Title      |\n"
        "+-------+--------+\n"
        "|   a   | second |\n"
        "+-------+--------+\n"
        "|  True |   1    |\n"
        "| False | (2, 3) |\n"
        "+-------+--------+"
    )
    assert boxed("A long title", ("a",), []).splitlines()[1] == "| A long title |"
    assert [truncated(n, 5) for n in (0.999999, None, float("nan"), float("inf"))] == ["0.99999", "nan", "nan", "inf"]
    assert [percent(n) for n in (1.0, 0.99999, None)] == ["100.00%", "99.99%", "0.00%"]
