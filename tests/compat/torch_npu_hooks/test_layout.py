"""Dumps as traces: both line formats, gradients with their calls, and what is refused or left out."""

import json
import os
import pickle
import tracemalloc

import numpy as np
import pytest

import twintrace as tt
from tests.compat.torch_npu_hooks.dumps import tensor, write_dump
from twintrace.compat.torch_npu_hooks import layout
from twintrace.model.errors import TraceFormatError, TraceNotFoundError
from twintrace.model.sites import Kind, Phase
from twintrace.model.values import TensorRef
from twintrace.store import native

LINES = [
    tensor("Functional_linear_forward_input.0", [1.0, 2.0], [1, 2]),
    tensor("Functional_linear_forward_input.1", [3.0, 4.0], [1, 2]),
    tensor("Functional_linear_forward_output", [11.0], [1, 1]),
    tensor("Module_Linear_forward_input.0", [1.0, 2.0], [1, 2]),
    tensor("Module_Linear_forward_output", [11.0], [1, 1]),
    tensor("Functional_linear_forward_input.0", [11.0], [1, 1]),
    tensor("Functional_linear_forward_input.1", [2.0], [1, 1]),
    tensor("Functional_linear_forward_output", [22.0], [1, 1]),
    tensor("Functional_linear_backward_input.0", [2.0], [1, 1]),
    tensor("Functional_linear_backward_output.0", [1.0], [1, 1]),
    tensor("Functional_linear_backward_input.1", [2.0, 4.0], [1, 2]),
    tensor("Functional_linear_backward_output.0", [2.0], [1, 1]),
]


def opened(path, **options):
    return tt.open(path, **options).journal(0)


def test_a_dump_is_a_trace(tmp_path):
    trace = tt.open(write_dump(tmp_path / "a.pkl", LINES))
    assert (trace.layout, trace.framework, trace.places) == ("torch_npu", "torch", ((0, 0),))
    journal = trace.journal(0)
    calls = list(journal.calls())
    sites = [(call.site.kind, call.site.name, call.site.call, call.site.type) for call in calls]
    assert sites == [
        (Kind.API, "torch.nn.functional.linear", 0, ""),
        (Kind.MODULE, "Linear", 0, "Linear"),
        (Kind.API, "torch.nn.functional.linear", 1, ""),
    ]
    assert calls[0].args == (TensorRef(0), TensorRef(1))
    assert calls[0].output == TensorRef(2)
    found = journal.tensor(0)
    assert str(found.spec) == "f32[1, 2]"
    assert journal.array(found).tolist() == [[1.0, 2.0]]
    assert found.statistics.max == 2.0
    assert journal.complete
    assert not journal.damage


def test_gradients_belong_to_the_last_call_that_has_none(tmp_path):
    journal = opened(write_dump(tmp_path / "a.pkl", LINES))
    first, _, second = journal.calls()
    assert [(g.role, g.slot, g.tensor) for g in second.gradients] == [("output", "", 9), ("input", "0", 8)]
    assert [(g.role, g.slot, g.tensor) for g in first.gradients] == [("output", "", 11), ("input", "1", 10)]
    assert journal.tensor(first.args[1].id).requires_grad
    assert not journal.tensor(first.args[0].id).requires_grad


def test_gradients_of_another_shape_are_of_another_call(tmp_path):
    lines = [
        tensor("Torch_relu_forward_output", [1.0, 2.0]),
        tensor("Torch_relu_forward_output", [1.0]),
        tensor("Torch_relu_backward_output.0", [0.0, 1.0]),
        tensor("Torch_relu_backward_output.0", [1.0, 2.0, 3.0]),
    ]
    first, second, dangling = opened(write_dump(tmp_path / "a.pkl", lines)).calls()
    assert [g.tensor for g in first.gradients] == [2]
    assert not second.gradients
    assert (dangling.site.phase, dangling.args) == (Phase.BACKWARD, (TensorRef(3),))


def test_values_lead_from_call_to_call(tmp_path):
    journal = opened(write_dump(tmp_path / "a.pkl", LINES))
    _, module, second = journal.calls()
    assert journal.tensor(second.args[0].id).producer == 0, "made by the function, not by the module around it"
    assert journal.tensor(module.output.id).producer == 0
    assert module.parameters == {"1": 1}, "what the function inside it was called with, besides the module's own input"
    assert journal.tensor(0).producer is None


@pytest.mark.parametrize(
    ("lines", "count"),
    [
        ([tensor("Torch_topk_forward_output.0", [1.0]), tensor("Torch_topk_forward_output.1", [1.0])], 1),
        ([tensor("Torch_relu_forward_output", [1.0]), tensor("Torch_relu_forward_output", [1.0])], 2),
        ([tensor("Torch_save_forward_input.0", [1.0]), tensor("Torch_save_forward_input.0", [1.0])], 2),
        ([tensor("Torch_save_forward_input.0", [1.0]), tensor("Torch_relu_forward_output", [1.0])], 2),
        ([tensor("Torch_relu_forward_output", [1.0]), tensor("Torch_relu_forward_input.0", [1.0])], 2),
    ],
    ids=["two outputs", "twice", "no output", "no output, then another", "output before input"],
)
def test_where_a_call_ends(tmp_path, lines, count):
    assert len(list(opened(write_dump(tmp_path / "a.pkl", lines)).calls())) == count


def test_nested_arguments_keep_their_places(tmp_path):
    lines = [tensor(f"Torch_cat_forward_input.{slot}", [1.0]) for slot in ("0.0", "0.1", "2", "kw.out")]
    (call,) = opened(write_dump(tmp_path / "a.pkl", lines)).calls()
    nest, nothing, third = call.args
    assert [leaf for _, leaf in nest.items] == [TensorRef(0), TensorRef(1)]
    assert (nothing, third, call.kwargs) == (None, TensorRef(2), {"out": TensorRef(3)})


def test_the_late_format_has_numbers_and_samples(tmp_path):
    lines = [
        tensor("0_Torch_relu_forward_input.0", [float(i) for i in range(13)], [5, 5]),
        tensor("1_Torch_relu_forward_output", [], [5, 5]),
    ]
    journal = opened(write_dump(tmp_path / "a.pkl", lines))
    (call,) = journal.calls()
    assert "a sample of 13 numbers" in journal.tensor(call.args[0].id).missing
    assert "no values" in journal.tensor(call.output.id).missing
    assert [note.topic for note in journal.notes()] == ["sampled"]


# --- ptdbg_ascend -----------------------------------------------------------------------------------------------------

PTDBG = [
    ["Functional_conv2d_0_forward_input.0", 0, [], "torch.float32", [2], [2.0, 1.0, 1.5]],
    ["Functional_conv2d_0_forward_output", 0, [], "torch.float16", [2], [4.0, 2.0, 3.0, 4.5]],
    ["Functional_conv2d_0_stack_info", [["net.py", 7, "forward", "x = F.conv2d(x)"]]],
    ["Functional_conv2d_1_forward_input.0", 0, [], "torch.bfloat16", [], [1.0, 1.0, 1.0]],
    ["Functional_conv2d_1_forward_output", 0, [], "torch.int64", [1], [1.0, 1.0, 1.0]],
    ["Functional_conv2d_0_backward_input.0", 0, [], "torch.float16", [2], [1.0, 1.0, 1.0]],
    ["Functional_conv2d_0_backward_output.0", 0, [], "torch.float32", [2], [5.0, 5.0, 5.0]],
]


def write_ptdbg(root, ranks=1, folder="dump"):
    for rank in range(ranks):
        home = root / f"rank{rank}"
        (home / folder).mkdir(parents=True)
        write_dump(home / "dump.pkl", PTDBG)
        for line in PTDBG:
            if len(line) > 2 and "conv2d_1_forward_output" not in line[0]:
                dtype = {"torch.float16": np.float16}.get(line[3], np.float32)
                np.save(home / folder / f"{line[0]}.npy", np.full(line[4], line[5][0], dtype))
    return root


@pytest.mark.parametrize("folder", ["dump", "dump_20230601", "."])
def test_a_ptdbg_directory_is_a_trace(tmp_path, folder):
    trace = tt.open(write_ptdbg(tmp_path / "ptdbg_dump_v2.0", ranks=2, folder=folder))
    assert trace.places == ((0, 0), (0, 1))
    journal = trace.journal(0, 1)
    first, second = journal.calls()
    assert (first.site.call, second.site.call) == (0, 1)
    assert [(frame.file, frame.line, frame.code) for frame in first.stack] == [("net.py", 7, "x = F.conv2d(x)")]
    assert journal.array(journal.tensor(first.output.id)).tolist() == [4.0, 4.0]
    assert str(journal.tensor(second.args[0].id).spec) == "bf16[]"
    assert journal.array(journal.tensor(second.args[0].id)).tolist() == 0x3F80
    missing = journal.tensor(second.output.id)
    assert "there is no Functional_conv2d_1_forward_output.npy" in missing.missing
    assert missing.statistics.mean == 1.0


def test_ptdbg_calls_the_gradient_of_a_result_backward_input(tmp_path):
    first, second = opened(write_ptdbg(tmp_path / "d") / "rank0" / "dump.pkl").calls()
    assert {(g.role, g.tensor) for g in first.gradients} == {("output", 5), ("input", 6)}
    assert not second.gradients


def test_an_npy_file_that_does_not_fit_costs_its_tensor(tmp_path):
    root = write_ptdbg(tmp_path / "d")
    values = root / "rank0" / "dump"
    np.save(values / "Functional_conv2d_0_forward_input.0.npy", np.zeros(3))
    np.save(values / "Functional_conv2d_0_forward_output.npy", np.array([{}, {}]), allow_pickle=True)
    journal = opened(root)
    first = next(iter(journal.calls()))
    assert "expected the shape [2], as its row says, got f64[3]" in journal.tensor(first.args[0].id).missing
    assert "expected numbers" in journal.tensor(first.output.id).missing


# --- bad input --------------------------------------------------------------------------------------------------------


class Bomb:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("tolerant", [False, True])
def test_a_real_pickle_is_refused_and_not_loaded(tmp_path, protocol, tolerant):
    path, marker = tmp_path / "a.pkl", tmp_path / "loaded"
    path.write_bytes(pickle.dumps([Bomb(marker)], protocol))
    with pytest.raises(TraceFormatError, match=r"a real pickle \(its first opcode is \w+\).* It was not loaded"):
        tt.open(path, tolerant=tolerant)
    assert not marker.exists()


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"PK\x03\x04", "a zip archive, such as torch.save writes"), (b"\xff\xfe\x00", "something that begins with")],
)
def test_other_things_called_pkl(tmp_path, content, said):
    (tmp_path / "a.pkl").write_bytes(content)
    with pytest.raises(TraceFormatError, match=said):
        tt.open(tmp_path / "a.pkl")


def test_a_torn_last_line(tmp_path):
    path = write_dump(tmp_path / "a.pkl", LINES[:4])
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(TraceFormatError, match=r"line 4: the last line is torn after \d+ bytes"):
        opened(path)
    journal = opened(path, tolerant=True)
    assert [item.where for item in journal.damage] == ["line 4"]
    assert not journal.complete
    assert len(list(journal.tensors())) == 3


def test_a_last_line_without_its_newline_is_whole_if_it_can_be_read(tmp_path):
    journal = opened(write_dump(tmp_path / "a.pkl", LINES, end=""))
    assert journal.complete
    assert len(list(journal.tensors())) == len(LINES)


@pytest.mark.parametrize(
    "line",
    [
        '{"name": 1}',
        "[1, [1.0], 2, [1]]",
        '["Torch_relu_forward_output", 3, "torch.float32", [1]]',
        '["Torch_relu_forward_output", [1.0], "torch.float33", [1]]',
        '["Torch_relu_forward_output", [1.0], ["torch.float32"], [1]]',
        '["Torch_relu_forward_output", [1.0], "torch.float32", [-1]]',
        '["Torch_relu_forward_output", [1.0], "torch.float32", [1.5]]',
        '["Torch_relu_forward_output", [1.0], "torch.float32", [true]]',
        '["Torch_relu_forward_output", [1.0], "torch.float32", [1099511627776, 9]]',
        '["Torch_relu_forward_output", [1.0], "torch.float32", [2]]',
        '["Torch_relu_forward_output", ["x"], "torch.float32", [1]]',
        '["Torch_relu_forward_output", [[1.0]], "torch.float32", [1]]',
        '["no name", [1.0], "torch.float32", [1]]',
        '["Torch_relu\\ud800_forward_output", [1.0], "torch.float32", [1]]',
        '["Torch_relu_stack", []]',
        "[" * 100_000,
        '["Torch_relu_forward_output", ' + "[" * 100_000 + "]" * 100_000 + ', "torch.float32", [1]]',
        "\x00",
        "[[]]",
    ],
)
def test_a_damaged_line_is_named_and_left_out(tmp_path, line):
    path = tmp_path / "a.pkl"
    good = json.dumps(LINES[0])
    path.write_text(f"{good}\n{line}\n{good}\n")
    with pytest.raises(TraceFormatError, match=r"line 2: .*Open it with tolerant=True"):
        opened(path)
    journal = opened(path, tolerant=True)
    assert len(journal.damage) == 1
    assert len(list(journal.tensors())) == 2


def test_empty_and_blank_lines(tmp_path):
    (tmp_path / "a.pkl").write_text("")
    assert len(opened(tmp_path / "a.pkl")) == 0
    (tmp_path / "b.pkl").write_text(f"\n{json.dumps(LINES[0])}\n\n")
    assert len(opened(tmp_path / "b.pkl")) == 1


def test_what_is_not_there(tmp_path):
    with pytest.raises(TraceNotFoundError, match=r"gone\.pkl does not exist"):
        tt.open(tmp_path / "gone.pkl")
    (tmp_path / "notes.txt").write_text("[1, 2]")
    assert not layout.recognises(tmp_path / "notes.txt")
    assert not layout.recognises(tmp_path)


def test_a_file_that_changes_under_the_reader(tmp_path):
    path = write_dump(tmp_path / "a.pkl", LINES)
    journal = opened(path)
    path.write_text("")
    with pytest.raises(TraceFormatError, match="It was changed after it was opened"):
        journal.array(journal.tensor(0))
    with pytest.raises(TraceFormatError, match="has no tensor 99"):
        journal.tensor(99)


def test_a_dump_becomes_a_trace_of_ours(tmp_path):
    native.write(tt.open(write_dump(tmp_path / "a.pkl", LINES)), tmp_path / "ours")
    ours = tt.open(tmp_path / "ours").journal(0)
    assert [len(call.gradients) for call in ours.calls()] == [2, 0, 2]
    assert ours.array(ours.tensor(1)).tolist() == [[3.0, 4.0]]


@pytest.mark.parametrize(
    "dtype", ["torch.float32", "torch.float16", "torch.bfloat16", "torch.float64", "torch.float8_e5m2"]
)
def test_long_lines_are_read_without_making_objects_and_give_the_same(tmp_path, dtype, monkeypatch):
    """Of 4 kB on; blanks and newlines in a line, what is not finite, and lines that are as long but not as plain."""
    random = np.random.default_rng(0)
    values = np.concatenate([random.standard_normal(3000).astype(np.float16), [np.inf, -np.inf, np.nan, 0.0, -0.0]])
    text = json.dumps(values.astype(np.float64).tolist())
    lines = [
        f'["Torch_relu_forward_input.0", {text}, "{dtype}", [1, {values.size}]]',
        f'  [ "Torch_relu_forward_output" ,\t{text.replace(",", " , ")} , "{dtype}" , [ {values.size} ] ]',
    ]
    (tmp_path / "d.pkl").write_text("\n".join(lines) + "\n\n" + lines[0])
    found = tt.open(tmp_path / "d.pkl").journal(0)
    arrays = [found.array(tensor) for tensor in found.tensors()]
    monkeypatch.setattr(layout, "_quickly", lambda raw, spec: None)
    slowly = tt.open(tmp_path / "d.pkl").journal(0)
    assert len(arrays) == 3
    for one, other, array in zip(found.tensors(), slowly.tensors(), arrays, strict=True):
        assert one == other
        assert array.tobytes() == slowly.array(other).tobytes()


@pytest.mark.parametrize("dtype", ["torch.int64", "torch.int32", "torch.uint8", "torch.bool", "torch.uint64"])
@pytest.mark.parametrize("written", ["{}", "{}.0"])
def test_long_lines_of_whole_numbers_too(tmp_path, dtype, written, monkeypatch):
    """What float64 cannot hold is read as Python reads it."""
    values = [number % 2 if dtype == "torch.bool" else number % 200 for number in range(4000)]
    large = [*values[:-1], 2**62 + 1] if dtype in ("torch.int64", "torch.uint64") else values
    read = []
    plainly = layout._quickly
    monkeypatch.setattr(layout, "_quickly", lambda raw, spec: read.append(plainly(raw, spec)) or read[-1])
    for name, numbers, quick in (("a", values, True), ("b", large, large is values)):
        text = ", ".join(written.format(number) for number in numbers)
        (tmp_path / name).write_text(f'["Torch_relu_forward_output", [{text}], "{dtype}", [{len(numbers)}]]\n')
        journal = opened(tmp_path / name)
        array = journal.array(next(iter(journal.tensors())))
        assert (read[-1] is not None) is quick
        expected = [number if written == "{}" else float(number) for number in numbers]
        assert array.tolist() == np.array(expected).astype(array.dtype).tolist()


def test_a_long_line_that_lies_is_damage_that_is_named(tmp_path):
    values = ", ".join(["0.5"] * 3000)
    lines = [
        f'["Torch_relu_forward_input.0", [{values}], "torch.float32", [2999]]',
        f'["Torch_relu_forward_input.0", [{values}, x], "torch.float32", [3000]]',
        f'["Torch_relu_forward_input.0", [[{values}]], "torch.float32", [3000]]',
        f'["Torch_relu_forward_input.0", [{values}], "torch.float32", [3000]',
    ]
    (tmp_path / "d.pkl").write_text("\n".join(lines) + "\n")
    journal = tt.open(tmp_path / "d.pkl", tolerant=True).journal(0)
    assert [(item.where, item.text.split(" (")[0][:32]) for item in journal.damage] == [
        ("line 1", "3000 values for a tensor of f32["),
        ("line 2", "not JSON"),
        ("line 3", "expected a flat list of numbers,"),
        ("line 4", "not JSON"),
    ]


def test_a_line_longer_than_a_block_and_how_far_the_reading_is(tmp_path, monkeypatch):
    monkeypatch.setattr(layout, "_BLOCK", 1 << 14)
    values = [round(number, 6) for number in np.random.default_rng(0).standard_normal(20_000).tolist()]
    line = f'["Torch_relu_forward_output", {json.dumps(values)}, "torch.float64", [20000]]\n'
    (tmp_path / "d.pkl").write_text(line * 3 + "\n" + line[:-1])
    told = []
    token = layout.READING.set(lambda what, done, total: told.append((what, done, total)))
    try:
        journal = tt.open(tmp_path / "d.pkl").journal(0)
    finally:
        layout.READING.reset(token)
    assert [journal.array(tensor).tolist() for tensor in journal.tensors()] == [values] * 4
    assert told[-1] == (
        "reading d.pkl, MB",
        (tmp_path / "d.pkl").stat().st_size >> 20,
        (tmp_path / "d.pkl").stat().st_size >> 20,
    )


def test_memory_does_not_grow_with_the_dump(tmp_path):
    """The same for four times the lines: one line at a time is held."""
    line = f'["Torch_relu_forward_output", {json.dumps([0.123456789] * 100_000)}, "torch.float32", [100000]]\n'
    peaks = []
    for name, count in (("warm", 1), ("small", 5), ("large", 20)):
        (tmp_path / name).with_suffix(".pkl").write_text(line * count)
        tracemalloc.start()
        tt.open((tmp_path / name).with_suffix(".pkl")).journal(0)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[2] < 1.2 * peaks[1] < 40e6
