"""Dumps as traces, damaged ones too; traces as dumps."""

import json
import re

import numpy as np
import pytest

import twintrace as tt
from tests.compat.troubleshooter.dumps import array, names, rows, stacks, write_dump
from twintrace import api
from twintrace.compat.troubleshooter import layout
from twintrace.model.errors import TraceFormatError, TraceNotFoundError, UsageError
from twintrace.model.values import Nest, TensorRef

X, Y = (np.random.default_rng(1).standard_normal(shape).astype(np.float32) for shape in ((2, 3), (2, 4)))
GOOD = {
    "NN_Linear_0_forward_input.0": X,
    "NN_Linear_0_forward_output": Y,
    "Torch_relu_0_forward_input.0": Y,
    "Torch_relu_0_forward_output": np.maximum(Y, 0),
    "Torch_relu_0_backward_input": Y * 2,
    "NN_Linear_0_backward_input": Y * 3,
}


def csv_of(folder):
    return folder / "rank0" / "torch_api_dump_info.csv"


def test_a_dump_is_a_trace(tmp_path):
    trace = tt.open(write_dump(tmp_path / "d", GOOD))
    assert (trace.layout, trace.framework, trace.steps, trace.ranks) == ("troubleshooter", "torch", (0,), (0,))
    linear, relu = trace.calls()
    journal = trace.journal(0)
    assert [str(call.site) for call in (linear, relu)] == ["forward/module:Linear#0", "forward/api:torch.relu#0"]
    assert linear.site.type == "Linear"
    assert linear.output == relu.args[0], "what one puts out is what the other takes"
    assert journal.tensor(linear.output.id).producer == linear.id
    assert np.array_equal(journal.array(journal.tensor(linear.output.id)), Y)
    (gradient,) = linear.gradients
    assert (gradient.role, gradient.slot) == ("output", "")
    assert np.array_equal(journal.array(journal.tensor(gradient.tensor)), Y * 3)
    assert journal.complete
    assert not journal.damage


@pytest.mark.parametrize("below", ["", "rank0", "rank0/torch_api_dump_info.csv"])
def test_the_folder_its_rank_and_its_rows_are_the_same_dump(tmp_path, below):
    write_dump(tmp_path / "d", GOOD)
    assert len(tt.open(tmp_path / "d" / below)) == 2


def test_dumps_of_the_time_when_rows_were_called_pkl(tmp_path):
    write_dump(tmp_path / "d", GOOD)
    csv_of(tmp_path / "d").rename(csv_of(tmp_path / "d").with_suffix(".pkl"))
    assert tt.open(tmp_path / "d").layout == "troubleshooter"


def test_constants_are_not_taken_for_each_other(tmp_path):
    """All zeros come from anywhere."""
    zero = np.zeros((2, 2), np.float32)
    trace = tt.open(write_dump(tmp_path / "d", {"Torch_a_0_forward_output": zero, "Torch_b_0_forward_input.0": zero}))
    first, second = trace.calls()
    assert first.output != second.args[0]


def test_nested_arguments_and_several_results(tmp_path):
    parts = {f"Torch_cat_0_forward_input.0.{n}": X + n for n in (0, 1)}
    results = {f"Torch_split_1_forward_output.{n}": Y + n for n in (0, 1)}
    trace = tt.open(write_dump(tmp_path / "d", {**parts, "Torch_cat_0_forward_input.2": Y, **results}))
    cat, split = trace.calls()
    assert cat.args == (Nest("tuple", (("0", TensorRef(0)), ("1", TensorRef(1)))), None, TensorRef(2))
    assert split.output == Nest("tuple", (("0", TensorRef(3)), ("1", TensorRef(4))))
    assert split.site.call == 1


def test_marks_are_no_tensors(tmp_path):
    mark = (1, [], "torch.float32", [1], [0.0, 0.0, 0.0], [], 0.0)
    trace = tt.open(write_dump(tmp_path / "d", {"LAYER_blocks_0_fc_forward_input": mark, **GOOD}))
    assert len(trace) == 2


def test_statistics_without_files(tmp_path):
    write_dump(tmp_path / "d", GOOD)
    for file in (tmp_path / "d" / "rank0" / "torch_api_dump").iterdir():
        file.unlink()
    trace = tt.open(tmp_path / "d")
    tensor = trace.journal(0).tensor(0)
    assert trace.manifest["settings"]["keep"] == "statistics"
    assert tensor.statistics.max == float(X.max())
    assert tensor.statistics.mean is None
    assert tensor.statistics.norm == pytest.approx(float(np.linalg.norm(X)))
    assert tensor.missing == f"there is no {tmp_path}/d/rank0/torch_api_dump/NN_Linear_0_forward_input.0.npy"
    linear, relu = trace.calls()
    assert linear.output == relu.args[0]


def test_element_types(tmp_path):
    dtypes = {"torch": ["float16", "float64", "int64", "bool", "uint8"], "mindspore": ["float16", "int32", "bool"]}
    for stem, kinds in dtypes.items():
        folder = write_dump(tmp_path / stem, {f"Tensor_{k}_0_forward_output": np.ones(3, k) for k in kinds}, stem)
        journal = tt.open(folder).journal(0)
        found = [str(tensor.spec) for tensor in journal.tensors()]
        short = {"float16": "f16", "float64": "f64", "int64": "i64", "int32": "i32", "bool": "b8", "uint8": "u8"}
        assert found == [f"{short[kind]}[3]" for kind in kinds]


def test_what_is_bf16_is_read_as_bf16(tmp_path):
    values = np.array([1.5, -2.0], np.float32)
    write_dump(tmp_path / "d", {"NN_ReLU_0_forward_output": values})
    csv_of(tmp_path / "d").write_text(csv_of(tmp_path / "d").read_text().replace("float32", "bfloat16"))
    journal = tt.open(tmp_path / "d").journal(0)
    assert str(journal.tensor(0).spec) == "bf16[2]"
    assert journal.array(journal.tensor(0)).tolist() == [0x3FC0, 0xC000]


# --- damage -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{not json", "not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a": 1}', "expected .*name"),
        ('["NN_ReLU_0_forward_output", 1, [], "torch.float32", [1]]', "expected .*name"),
        ('["NN_ReLU_0_forward_output", "x", [], "torch.float32", [1], [0, 0, 0], [], []]', "second place"),
        ('["NN_ReLU_forward_output", 1, [], "torch.float32", [1], [0, 0, 0], [], []]', "does not say which call's"),
        (
            '["NN_ReLU_0_forward_output", 1, [], "torch.quux", [1], [0, 0, 0], [], []]',
            "unknown element type 'torch.quux'",
        ),
        ('["NN_ReLU_0_forward_output", 1, [], "torch.float32", [-1], [0, 0, 0], [], []]', "is no shape"),
        (
            '["NN_ReLU_0_forward_output", 1, [], "torch.float32", [99999999999, 99999999999], [0, 0, 0], [], []]',
            "is no shape",
        ),
        ('["NN_ReLU_0_forward_output", 1, [], "torch.float32", [1], 7, [], []]', r"expected \[max, min, mean\]"),
        (
            '["NN_../../x_0_forward_output", 1, [], "torch.float32", [1], [0, 0, 0], [], []]',
            "does not say which call's",
        ),
    ],
)
def test_a_row_that_does_not_fit_is_named(tmp_path, line, message):
    write_dump(tmp_path / "d", GOOD)
    lines = csv_of(tmp_path / "d").read_text().splitlines()
    csv_of(tmp_path / "d").write_text("\n".join([*lines[:2], line, *lines[2:]]) + "\n")
    with pytest.raises(TraceFormatError, match=rf"torch_api_dump_info.csv: line 3: .*{message}"):
        tt.open(tmp_path / "d")
    trace = tt.open(tmp_path / "d", tolerant=True)
    assert len(trace) == 2
    (damage,) = trace.journal(0).damage
    assert damage.where == "line 3"


def test_a_torn_last_row_costs_itself(tmp_path):
    write_dump(tmp_path / "d", GOOD)
    text = csv_of(tmp_path / "d").read_text()
    csv_of(tmp_path / "d").write_text(text[:-30])
    journal = tt.open(tmp_path / "d", tolerant=True).journal(0)
    assert not journal.complete
    assert "the process ended while it was writing" in journal.damage[0].text
    assert [len(call.gradients) for call in journal.calls()] == [0, 1]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda file: file.write_bytes(b""), "no npy file"),
        (lambda file: file.write_bytes(file.read_bytes()[:-3]), "cut off"),
        (lambda file: np.save(file, np.zeros((9, 9), np.float32)), r"expected the shape \[2, 4\], as its row says"),
        (lambda file: np.save(file, np.array([{}], dtype=object)), "objects are never loaded"),
        (lambda file: np.save(file, np.array(["text"] * 8).reshape(2, 4)), "expected numbers"),
    ],
)
def test_a_file_that_is_no_array_costs_its_tensor(tmp_path, make, message):
    write_dump(tmp_path / "d", GOOD)
    make(tmp_path / "d" / "rank0" / "torch_api_dump" / "NN_Linear_0_forward_output.npy")
    journal = tt.open(tmp_path / "d").journal(0)
    linear, _ = journal.calls()
    tensor = journal.tensor(linear.output.id)
    assert tensor.payload is None
    assert re.search(message, tensor.missing)
    assert len(journal.damage) == 1
    assert journal.tensor(linear.args[0].id).payload is not None


def test_stacks_that_cannot_be_read(tmp_path):
    write_dump(tmp_path / "d", GOOD)
    file = tmp_path / "d" / "rank0" / "torch_api_dump_stack.json"
    for text in ("[]", '{"torch.nn.Linear(0) forward": ["File', "\xff"):
        file.write_text(text, encoding="latin-1")
        with pytest.raises(TraceFormatError, match=r"stack.json: stacks: cannot be read"):
            tt.open(tmp_path / "d")
        assert len(tt.open(tmp_path / "d", tolerant=True).journal(0).damage) == 1
    file.write_text(json.dumps({"torch.nn.Linear(0) forward": ["File a, b.py, line 3, in f, \n x = 1", 7], "?": 3}))
    linear, relu = tt.open(tmp_path / "d").calls()
    assert [(f.file, f.line, f.function, f.code) for f in linear.stack] == [("a, b.py", 3, "f", "x = 1")]
    assert relu.stack == ()


def test_an_empty_dump_and_a_folder_that_is_none(tmp_path):
    write_dump(tmp_path / "d", {}, end="")
    assert len(tt.open(tmp_path / "d")) == 0
    (tmp_path / "e" / "rank0").mkdir(parents=True)
    with pytest.raises(TraceNotFoundError, match="not a trace of any known layout"):
        tt.open(tmp_path / "e")


def test_ranks_of_two_frameworks_are_no_dump(tmp_path):
    write_dump(tmp_path / "d", GOOD)
    write_dump(tmp_path / "d", {"NN_Dense_0_forward_output": X}, "mindspore", rank=1)
    with pytest.raises(TraceFormatError, match="dumps of different frameworks"):
        tt.open(tmp_path / "d")


def test_gradients_without_their_call_are_told(tmp_path):
    journal = tt.open(write_dump(tmp_path / "d", {**GOOD, "NN_ReLU_7_backward_input": X})).journal(0)
    assert [note.text for note in journal.notes()] == [
        "1 gradients belong to calls of which there is no forward in this step"
    ]


# --- traces as dumps --------------------------------------------------------------------------------------------------


def test_a_dump_becomes_a_trace_of_ours_and_a_dump_again(tmp_path):
    write_dump(tmp_path / "d", GOOD)
    api.convert_trace(tmp_path / "d", tmp_path / "native")
    again = api.convert_trace(tmp_path / "native", tmp_path / "again", to="troubleshooter")
    assert again.layout == "troubleshooter"
    assert names(tmp_path / "again") == list(GOOD)
    assert all(np.array_equal(array(tmp_path / "again", name), value) for name, value in GOOD.items())
    assert tt.compare(tmp_path / "d", tmp_path / "again").agree


def test_steps_stay_steps(tmp_path):
    later = {name.replace("_0_", "_1_"): value for name, value in GOOD.items()}
    write_dump(tmp_path / "d", {**GOOD, **later})
    made = api.convert_trace(tmp_path / "d", tmp_path / "again", to="troubleshooter")
    assert made.steps == (0, 1)
    assert names(tmp_path / "again") == [*GOOD, *later]
    assert {row[1] for row in rows(tmp_path / "again")} == {1, 2}


@pytest.mark.needs_torch
def test_a_recorded_network_has_a_row_for_each_layer_and_function(tmp_path):
    torch = pytest.importorskip("torch")

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(4, 4)

        def forward(self, x, mask):
            return torch.relu(self.fc(x)).masked_fill(mask, 0.0)

    net = torch.nn.Sequential(torch.nn.LayerNorm(4))
    block = Block()
    with tt.record(tmp_path / "t", {"net": net, "block": block}, keep="tensor"):
        block(net(torch.randn(2, 4)), torch.ones(2, 4, dtype=torch.bool)).sum().backward()
    api.convert_trace(tmp_path / "t", tmp_path / "d", to="troubleshooter")
    found = [name for name in names(tmp_path / "d") if "ones" not in name and "randn" not in name]
    assert [name for name in found if name.endswith("forward_output")] == [
        "NN_LayerNorm_0_forward_output", "NN_Linear_0_forward_output", "Torch_relu_0_forward_output",
        "Tensor_masked_fill_0_forward_output",
    ]  # fmt: skip
    assert "Tensor_masked_fill_0_backward_input" in found
    assert "Tensor_masked_fill_0_forward_input.1" not in found, "a mask is no tensor of floating point numbers"
    assert stacks(tmp_path / "d")["torch.relu(0) forward"][0].startswith(f"File {__file__}, line ")


def test_a_trace_of_another_framework_has_no_place(tmp_path):
    from twintrace.frameworks.reference.miniature import Linear, Tensor

    with tt.record(tmp_path / "t", net := Linear(2, 2), keep="tensor"):
        net(Tensor(np.ones((1, 2), np.float32)))
    with pytest.raises(UsageError, match="a trace of reference has no place in this layout: expected one of torch"):
        layout.write(tt.open(tmp_path / "t"), tmp_path / "d")
