"""`twintrace weights …`: what is printed, what is written, how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from twintrace.cli import cli
from twintrace.weights.checkpoints import open_checkpoint, writing
from twintrace.weights.extents import pieces
from twintrace.weights.states import open_state

WEIGHTS = {
    "embed.weight": np.arange(12, dtype=np.float32).reshape(4, 3),
    "fc.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "fc.bias": np.ones(2, np.float32),
    "norm.weight": np.full(3, 2.0, np.float32),
    "norm.bias": np.full(3, 3.0, np.float32),
}


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def command(*arguments):
        done = CliRunner().invoke(cli, ["weights", *arguments])
        return done.exit_code, done.output, done.exception

    return command


@pytest.fixture
def net(tmp_path):
    return written(tmp_path / "net.pth")


def written(path, values=WEIGHTS):
    state = open_state(values)
    with writing(path, {name: item.spec for name, item in state.items.items()}) as out:
        for name, value in values.items():
            out.put(name, pieces(value))
    return path


def test_map_says_what_becomes_of_each_name(run, net):
    code, text, _ = run("map", "net.pth", "-o", "map.json", "--table")
    assert code == 0
    assert text.splitlines()[0] == "net.pth -> mindspore: 5 weights mapped, complete"
    assert "embed.embedding_table" in text
    assert json.loads(Path("map.json").read_text())["pairs"][0]["right"] == "embed.embedding_table"


def test_map_ends_with_one_where_something_is_open(run, tmp_path):
    written(tmp_path / "net.pth", {"thing.weight": np.ones(3, np.float32)})
    code, text, _ = run("map", "net.pth")
    assert code == 1
    assert "ambiguous      thing.weight" in text


def test_convert_compare_certify(run, net):
    code, text, _ = run("convert", "net.pth", "net.ckpt")
    assert code == 0
    assert text.splitlines()[0] == "net.pth -> net.ckpt: 5 weights carried over, 104 bytes"
    assert set(open_checkpoint("net.ckpt").specs) == {
        "embed.embedding_table",
        "fc.weight",
        "fc.bias",
        "norm.gamma",
        "norm.beta",
    }
    code, text, _ = run("compare", "net.pth", "net.ckpt")
    assert (code, text.splitlines()[0]) == (0, "net.pth and net.ckpt agree: 5 equal (rtol 0.0001, atol 0.0001)")
    code, text, _ = run("certify", "net.pth", "net.ckpt", "--table")
    assert code == 0
    assert text.startswith("certified: net.pth -> net.ckpt\n  5 of 5 weights are equal under their transform")


def test_a_difference_ends_with_one(run, net, tmp_path):
    run("convert", "net.pth", "net.ckpt")
    values = {name: open_checkpoint("net.ckpt").read(name) for name in open_checkpoint("net.ckpt").specs}
    values["norm.gamma"], values["norm.beta"] = values["norm.beta"], values["norm.gamma"]
    written(tmp_path / "bad.ckpt", values)
    code, text, _ = run("certify", "net.pth", "bad.ckpt")
    assert code == 1
    assert "mistake        norm.gamma and norm.beta are swapped" in text
    code, text, _ = run("compare", "net.pth", "bad.ckpt")
    assert code == 1
    assert "2 different" in text.splitlines()[0]
    assert run("compare", "net.pth", "bad.ckpt", "--shapes")[0] == 0


def test_a_map_is_given_back(run, net):
    run("map", "net.pth", "-o", "map.json")
    assert run("convert", "net.pth", "net.ckpt", "--map", "map.json")[0] == 0
    assert run("certify", "net.pth", "net.ckpt", "--map", "map.json")[0] == 0


def test_bad_input_is_an_error_with_its_sentence(run, net):
    for arguments, message in (
        (("convert", "gone.pth", "net.ckpt"), "there is no such file"),
        (("convert", "net.pth", "net.onnx"), "expected a name that ends in"),
        (("certify", "net.pth", "net.pth", "--input", "f32[2]"), "the nets themselves are needed"),
        (("certify", "net.pth", "net.pth", "--input", "i64[2]"), "expected an input such as"),
    ):
        _, _, error = run(*arguments)
        assert message in str(error)
    code, text, _ = run("certify", "net.pth", "net.pth", "--left-net", "a.py:A")
    assert code == 2
    assert "belong together" in text


@pytest.mark.needs_torch
@pytest.mark.needs_mindspore
def test_certify_runs_both_nets(run, tmp_path):
    torch, mindspore = pytest.importorskip("torch"), pytest.importorskip("mindspore")
    (tmp_path / "left.py").write_text(
        "import torch\ndef make():\n    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))\n"
    )
    (tmp_path / "right.py").write_text(
        "import mindspore.nn as nn\ndef make():\n    return nn.SequentialCell(nn.Dense(3, 4), nn.ReLU(), nn.Dense(4, 2))\n"
    )
    torch.save(
        torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2)).state_dict(), "net.pth"
    )
    assert run("convert", "net.pth", "net.ckpt", "--like-net", "right.py:make")[0] == 0
    nets = ("--left-net", "left.py:make", "--right-net", "right.py:make")
    code, text, _ = run("certify", "net.pth", "net.ckpt", *nets, "--input", "f32[5,3]")
    assert code == 0, text
    assert "6 of 6 outputs and gradients within what rounding explains" in text
    assert mindspore is not None


def test_a_counter_that_mindspore_does_not_keep_is_no_difference(run, tmp_path):
    names = ("weight", "bias", "running_mean", "running_var")
    batch = {f"bn.{name}": np.arange(1, 4, dtype=np.float32) for name in names}
    written(tmp_path / "net.pth", batch | {"bn.num_batches_tracked": np.array(7)})
    assert run("convert", "net.pth", "net.ckpt")[0] == 0
    code, text, _ = run("compare", "net.pth", "net.ckpt")
    assert (code, text.splitlines()[0]) == (
        0,
        "net.pth and net.ckpt agree: 4 equal, 1 not needed (rtol 0.0001, atol 0.0001)",
    )
