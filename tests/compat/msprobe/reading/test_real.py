"""What the real msprobe writes opens here without loss, in every mode, and its own comparison has the same rows."""

import csv
import json
import zlib
from pathlib import Path

import numpy as np
import pytest

import twintrace as tt
from twintrace.compat.msprobe.dumps import open_dump
from twintrace.model.values import Nest, TensorRef, Token, leaves
from twintrace.model.verdicts import Outcome

pytestmark = [pytest.mark.needs_torch]
MODES = ("statistics_statistics", "statistics_md5", "tensor_statistics")
FRAMEWORKS = [
    pytest.param("torch", id="torch"),
    pytest.param("mindspore", id="mindspore", marks=pytest.mark.needs_mindspore),
]


def raw_elements(value):
    """Every element below a value of dump.json: tensors, scalars, None."""
    if isinstance(value, dict) and isinstance(value.get("type"), str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from raw_elements(item)
    else:
        yield value


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_opens_without_loss(real, framework, mode):
    """Each record is a call, or gradients of one; each element is a tensor or a value; each number is there."""
    trace = tt.open(real(framework) / mode)
    assert trace.framework == framework
    for journal in trace.journals():
        [file] = (real(framework) / mode / f"step{journal.header.step}").glob("*/dump.json")
        data = json.loads(file.read_text())["data"]
        calls = list(journal.calls())
        assert journal.damage == ()
        assert len(calls) == sum(".forward" in name for name in data)
        facts = {
            name: tensor
            for tensor in journal.tensors()
            for name in (tensor.facts["item"], *tensor.facts.get("also", ()))
        }
        dump = open_dump(file)
        assert facts.keys() == {item.name for item in dump.items if item.is_tensor}
        for item in dump.items:
            if item.is_tensor:
                found = facts[item.name]
                assert (found.spec.shape, found.facts["dtype"]) == (item.shape, item.dtype)
                assert found.facts.get("md5") == item.md5
                assert found.requires_grad == bool(item.requires_grad)
                assert (found.payload is not None) == (mode == "tensor_statistics")
        scalars = [
            e["value"] for e in raw_elements([r for n, r in data.items() if "forward" in n]) if e and "value" in e
        ]
        kept = [
            leaf
            for call in calls
            for value in (*call.args, *call.kwargs.values(), call.output)
            for _, leaf in leaves(value)
        ]
        told = [leaf for leaf in kept if leaf is not None and not isinstance(leaf, TensorRef | Nest | Token)]
        assert sorted(map(str, told)) == sorted(str(value) for value in scalars if not isinstance(value, list))
        names = [name for name in data if ".parameters_grad" in name]
        assert len(list(journal.parameter_gradients())) == sum(len(data[name]) for name in names)
        assert sum(len(call.gradients) for call in calls) == sum(
            e is not None for e in raw_elements([record for name, record in data.items() if ".backward" in name])
        )
        stacks = json.loads(file.with_name("stack.json").read_text())
        assert {frame.line for call in calls for frame in call.stack} <= {
            int(text.split(", line ")[1].split(",")[0]) for _, frames in stacks.values() for text in frames
        }
        assert all(call.stack for call in calls)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_values_and_checksums(real, framework):
    """The weights are those of the net; checksums in the one dump are those of the values in the other."""
    truth = np.load(real(framework) / "tensor_statistics.npz")
    journals = [tt.open(real(framework) / mode).journal(0) for mode in ("tensor_statistics", "statistics_md5")]
    modules = {call.site.name: call for call in journals[0].calls() if call.parameters}
    assert modules.keys() == {"conv", "fc1", "fc2"}
    for path, call in modules.items():
        for name, tensor in call.parameters.items():
            np.testing.assert_array_equal(journals[0].array(journals[0].tensor(tensor)), truth[f"{path}.{name}"])
    checks = {tensor.facts["item"]: tensor.facts["md5"] for tensor in journals[1].tensors()}
    checked = 0
    for tensor in journals[0].tensors():
        if tensor.payload is not None and tensor.facts["item"] in checks:
            crc = zlib.crc32(np.ascontiguousarray(journals[0].array(tensor)).tobytes())
            assert checks[tensor.facts["item"]] == f"{crc:08x}"
            checked += 1
    assert checked > 20


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_imports(real, framework, mode, tmp_path):
    made = tt.convert_trace(real(framework) / mode, tmp_path / "own")
    found = tt.compare(real(framework) / mode, made.path)
    assert found.agree
    assert len(made) == len(tt.open(real(framework) / mode))
    if mode == "tensor_statistics":
        assert "bit by bit" in tt.verdict(found)


@pytest.mark.parametrize("mode", MODES)
def test_our_own_recording_agrees(real, mode, tmp_path):
    """The same net, recorded here: what both have agrees, bit by bit where both have the bits."""
    from tests.compat.msprobe.reading.real.small_net import steps

    turns = steps()
    net, compute = next(turns)
    with tt.record(tmp_path / "own", net, keep="tensor", strict=True) as rec:
        compute().backward()
        rec.step()
        for _, again in turns:
            again().backward()
            rec.step()
    found = tt.compare(tmp_path / "own", real("torch") / mode)
    text = tt.verdict(found)
    assert not any(result.mistakes for result in found.results), text
    assert "different" not in text, text
    if mode == "tensor_statistics":
        assert found.code == 0, text
    else:  # its statistics are rounded to f32: near is not equal, and nothing can be computed again
        assert found.code == 3, text
        assert "keep='tensor'" in text


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.needs_mindspore
def test_two_frameworks_have_no_false_difference(real, mode):
    """The first step is the same net with the same weights in both. A dump has no settings of a primitive (the stride of
    Conv2D), and without values there is nothing to compute with: that they agree cannot be told.
    """
    found = tt.compare(real("torch") / mode, real("mindspore") / mode, steps=[0])
    text = tt.verdict(found)
    assert found.code == 3, text
    assert not any(result.mistakes for result in found.results), text
    assert not any(result.verdict.outcome is Outcome.DIFFERENT for result in found.results), text
    if mode == "tensor_statistics":
        assert "mindspore.ops.Conv2D" in text
    else:
        assert "keep='tensor'" in text


@pytest.mark.slow
@pytest.mark.needs_mindspore
@pytest.mark.parametrize(
    ("framework", "mode"),
    [("torch", "tensor_statistics"), ("torch", "statistics_statistics"), ("mindspore", "statistics_md5")],
)
def test_its_comparison_has_our_items_as_rows(real, run_real, framework, mode, tmp_path):
    [file] = (real(framework) / mode / "step0").glob("*/dump.json")
    run_real(Path(__file__).parent / "real" / "compare.py", file, tmp_path)
    [table] = tmp_path.glob("*.csv")
    with table.open(newline="") as opened:
        rows = [row["NPU Name"] for row in csv.DictReader(opened)]
    assert rows == [item.name for item in open_dump(file).items]


@pytest.mark.slow
def test_its_comparison_takes_an_export(real, run_real, tmp_path):
    """A real dump, imported and exported again: the same rows, every value found."""
    tt.convert_trace(real("torch") / "tensor_statistics", tmp_path / "own")
    tt.convert_trace(tmp_path / "own", tmp_path / "again", to="msprobe")
    run_real(Path(__file__).parent / "real" / "compare.py", tmp_path / "again/step1/rank/dump.json", tmp_path)
    [table] = tmp_path.glob("*.csv")
    with table.open(newline="") as opened:
        rows = {row["NPU Name"]: row for row in csv.DictReader(opened)}
    [file] = (real("torch") / "tensor_statistics" / "step1").glob("*/dump.json")
    theirs = {item.name.replace("parameters_grad.0.", "parameters_grad."): item for item in open_dump(file).items}
    assert {
        name for name in rows.keys() ^ theirs.keys() if rows.get(name, {}).get("NPU Dtype", "N/A") != "N/A"
    } == set()
    for name, item in theirs.items():
        if item.data_name and item.shape:  # of single numbers it has no cosine
            assert rows[name]["Cosine"] not in ("unsupported", "N/A"), name
