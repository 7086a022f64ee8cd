"""Dumps as traces: nothing is lost, what belongs together is found, and two of them can be compared."""

import json
import math

import numpy as np
import pytest

import twintrace as tt
from tests.compat.msprobe.reading.elements import tensor
from twintrace.compat.msprobe.dumps import open_dump
from twintrace.model.records import Role
from twintrace.model.sites import Kind, Phase
from twintrace.model.tensors import Statistics
from twintrace.model.values import Nest, TensorRef, Token

X, W, B, Y, Z = (tensor(mean=0.1 * n, shape=shape) for n, shape in enumerate(((2, 4), (3, 4), (3,), (2, 3), (2, 3)), 1))
DX, DW, DB, DY = (
    tensor(mean=-0.1 * n, shape=shape, grad=False) for n, shape in enumerate(((2, 4), (3, 4), (3,), (2, 3)), 1)
)
LINEAR, RELU = "Functional.linear.0", "Functional.relu.0"
MODULE = "Module.fc.Linear"
RECORDS = {
    f"{LINEAR}.forward": {"input_args": [X, W, B], "input_kwargs": {}, "output": [Y]},
    f"{MODULE}.forward.0": {
        "input_args": [X],
        "input_kwargs": {},
        "output": [Y],
        "parameters": {"weight": W, "bias": B},
    },
    f"{RELU}.forward": {
        "input_args": [Y],
        "input_kwargs": {"inplace": {"type": "bool", "value": False}},
        "output": [Z],
    },
    f"{RELU}.backward": {"input": [tensor(mean=0.9, shape=(2, 3))], "output": [DY]},
    f"{LINEAR}.backward": {"input": [DY], "output": [DB, DX, DW]},
    f"{MODULE}.backward.0": {"input": [DY], "output": [DX]},
    f"{MODULE}.parameters_grad.0": {"bias": [DB], "weight": [DW]},
}
CONSTRUCT = {
    f"{MODULE}.forward.0": None,
    f"{LINEAR}.forward": f"{MODULE}.forward.0",
    f"{RELU}.forward": None,
    f"{LINEAR}.backward": f"{MODULE}.backward.0",
}
FRAMES = [
    "File /env/lib/python3.11/site-packages/torch/nn/modules/linear.py, line 134, in forward, \n return F.linear(…)",
    "File /home/me/net.py, line 7, in forward, \n return self.fc(x)",
]


@pytest.fixture
def journal(dump):
    place = dump(RECORDS, construct=CONSTRUCT, stacks={"0": [[f"{LINEAR}.forward"], FRAMES]})
    return tt.open(place).journal(0)


def by_name(journal):
    return {call.site.name: call for call in journal.calls()}


def test_the_tree(journal):
    """A module stands behind what it called, and began before it."""
    calls = by_name(journal)
    assert list(calls) == ["torch.nn.functional.linear", "fc", "torch.nn.functional.relu"]
    linear, module, relu = calls.values()
    assert (linear.parent, linear.site.path) == (module.id, "fc")
    assert (module.parent, module.site.kind, module.site.type) == (None, Kind.MODULE, "Linear")
    assert [module.id, linear.id, relu.id] == [0, 1, 2]


def test_arguments_results_and_parameters(journal):
    linear, module, relu = by_name(journal).values()
    x, w, b = (item.id for item in linear.args)
    assert module.args == (TensorRef(x),)
    assert module.parameters == {"weight": w, "bias": b}
    assert linear.output == module.output == relu.args[0]
    assert relu.kwargs == {"inplace": False}
    assert journal.tensor(linear.output.id).producer == linear.id
    assert journal.tensor(x).producer is None
    assert str(journal.tensor(w).spec) == "f32[3, 4]"
    assert journal.tensor(w).requires_grad


def test_gradients(journal):
    """Those of a function's arguments are what a node gave, in PyTorch; those of a module have their places."""
    linear, module, _ = by_name(journal).values()
    assert [(g.role, g.slot) for g in linear.gradients] == [
        (Role.OUTPUT, ""),
        (Role.INPUT, "node.0"),
        (Role.INPUT, "node.1"),
        (Role.INPUT, "node.2"),
    ]
    assert [(g.role, g.slot) for g in module.gradients] == [(Role.OUTPUT, ""), (Role.INPUT, "0")]
    found = {g.slot: g.tensor for g in journal.parameter_gradients()}
    assert found.keys() == {"fc.bias", "fc.weight"}
    assert found["fc.bias"] == linear.gradients[1].tensor


@pytest.mark.parametrize("head", [{"framework": "mindtorch"}, {"recorder": "twintrace"}])
def test_gradients_that_are_the_arguments(dump, head):
    """By place if the shapes agree, else by shape where only one fits."""
    place = dump(RECORDS | {f"{LINEAR}.backward": {"input": [DY], "output": [DX, DW, None]}}, **head)
    assert [g.slot for g in by_name(tt.open(place).journal(0))["torch.nn.functional.linear"].gradients] == [
        "",
        "0",
        "1",
    ]
    place = dump(RECORDS, **head)
    assert [g.slot for g in by_name(tt.open(place).journal(0))["torch.nn.functional.linear"].gradients] == [
        "", "2", "0", "1"
    ]  # fmt: skip


def test_gradients_of_a_primitive_begin_with_the_last_argument(dump):
    """The real tool has them as its hooks came, we in the order of the arguments. Of square matrices shapes do not tell."""
    name, other = "Primitive.matmul.MatMul.0", "Functional.matmul.0"
    square = [tensor(mean=0.1 * n, dtype="Float32", type="mindspore.Tensor") for n in range(6)]
    forward, backward = {"input_args": square[:2], "output": [square[2]]}, {"input": [square[3]], "output": square[4:]}
    records = {
        f"{call}.{what}": entry
        for call in (name, other)
        for what, entry in (("forward", forward), ("backward", backward))
    }

    def slots(journal):
        return {call.site.name: [g.slot for g in call.gradients if g.role is Role.INPUT] for call in journal.calls()}

    def means(journal, slot):
        call = by_name(journal)["mindspore.ops.MatMul"]
        return [
            journal.tensor(g.tensor).statistics.mean for g in call.gradients if (g.role, g.slot) == (Role.INPUT, slot)
        ]

    theirs = tt.open(dump(records, framework="mindspore")).journal(0)
    assert slots(theirs) == {"mindspore.ops.MatMul": ["0", "1"], "mindspore.ops.matmul": ["0", "1"]}
    assert (means(theirs, "0"), means(theirs, "1")) == ([0.5], [0.4])
    ours = tt.open(dump(records, framework="mindspore", recorder="twintrace")).journal(0)
    assert (means(ours, "0"), means(ours, "1")) == ([0.4], [0.5])


def test_a_gradient_that_fits_nowhere_keeps_its_place(dump):
    odd = tensor(mean=7.0, shape=(9, 9))
    place = dump(RECORDS | {f"{RELU}.backward": {"input": [odd, odd], "output": []}}, framework="mindtorch")
    assert [g.slot for g in by_name(tt.open(place).journal(0))["torch.nn.functional.relu"].gradients] == [
        "node.0",
        "node.1",
    ]


def test_a_backward_without_its_forward(dump):
    place = dump({f"{RELU}.backward": RECORDS[f"{RELU}.backward"]})
    [call] = tt.open(place).journal(0).calls()
    assert (call.site.phase, call.site.name, len(call.args)) == (Phase.BACKWARD, "torch.nn.functional.relu", 1)
    assert isinstance(call.output, TensorRef)


def test_the_users_lines_of_the_stack(journal):
    [frame] = by_name(journal)["torch.nn.functional.linear"].stack
    assert (frame.file, frame.line, frame.function, frame.code) == (
        "/home/me/net.py",
        7,
        "forward",
        "return self.fc(x)",
    )


def test_what_the_optimizer_calls(dump):
    place = dump(
        {"Tensor.add_.0.forward": {"input_args": [X], "output": [Y]}},
        construct={"Tensor.add_.0.forward": "optimizer"},
    )
    [call] = tt.open(place).journal(0).calls()
    assert call.site.phase is Phase.UPDATE


def test_a_module_that_was_not_recorded_is_still_the_path(dump):
    place = dump(
        {f"{RELU}.forward": RECORDS[f"{RELU}.forward"]},
        construct={f"{RELU}.forward": "Module.block.act.ReLU.forward.0", "Module.block.act.ReLU.forward.0": None},
    )
    [call] = tt.open(place).journal(0).calls()
    assert (call.site.path, call.parent) == ("block.act", None)


def test_values_that_are_no_tensors(dump):
    special = [
        {"type": "int", "value": 3},
        {"type": "float", "value": 2.5},
        {"type": "str", "value": "same"},
        {"type": "bool", "value": True},
        None,
        {"type": "slice", "value": [None, 2, None]},
        {"type": "slice", "value": [0, 9, 3]},
        {"type": "ellipsis", "value": "..."},
        {"type": "torch.Size", "value": [1, 2]},
        {"type": "float32", "value": 2.0},
        {"type": "torch.dtype", "value": "torch.float16"},
        {"type": "mindspore.dtype", "value": "Float16"},
        {"type": "torch.device", "value": "cpu"},
        {"type": "torch.memory_format", "format": "contiguous_format"},
        [{"type": "int", "value": 1}, None],
        {"a": {"type": "int", "value": 1}},
        {"type": "complex", "value": "(1+2j)"},
        {"type": "torch.layout", "value": "strided"},
        {"type": "enum", "value": "Mode.FAST"},
    ]
    [call] = tt.open(dump({f"{RELU}.forward": {"input_args": special}})).journal(0).calls()
    assert call.args == (
        3, 2.5, "same", True, None, Token("slice", ":2"), Token("slice", "0:9:3"), Token("ellipsis", "..."),
        Nest("tuple", (("0", 1), ("1", 2))), 2.0, Token("dtype", "float16"), Token("dtype", "Float16"), Token("device", "cpu"),
        Token("torch.memory_format", '{"format": "contiguous_format"}'), Nest("list", (("0", 1), ("1", None))),
        Nest("dict", (("a", 1),)), 1 + 2j, Token("layout", "strided"), Token("enum", "Mode.FAST"),
    )  # fmt: skip


def test_results_of_every_form(dump):
    """One result stands in a list of one, a list in a list; a tuple's items stand side by side."""
    forms = {"one": [Y], "list": [[Y, Z]], "tuple": [Y, Z], "named": {"a": Y, "b": Z}, "nothing": []}
    place = dump({f"Functional.{name}.0.forward": {"output": form} for name, form in forms.items()})
    found = {call.site.name.rpartition(".")[2]: call.output for call in tt.open(place).journal(0).calls()}
    assert isinstance(found["one"], TensorRef)
    assert [found[name].kind for name in ("list", "tuple", "named")] == ["list", "tuple", "dict"]
    assert found["nothing"] is None


def test_what_the_script_saved(dump):
    place = dump({"loss.0.debug": Y, "loss_grad.0.debug": DY}, name="debug.json")
    [call] = tt.open(place).journal(0).calls()
    assert (call.site.kind, call.site.name) == (Kind.SAVE, "loss")
    assert [(g.role, g.slot) for g in call.gradients] == [(Role.SAVED, "")]


def test_every_call_has_an_address_of_its_own(dump):
    """The tool counts a primitive for each attribute that holds one."""
    names = [
        "Primitive.a.MatMul.0",
        "Primitive.b.MatMul.0",
        "Primitive.a.MatMul.1",
        "Functional.relu.0",
        "Functional.relu.2",
    ]
    place = dump({f"{name}.forward": {"output": [Y]} for name in names}, framework="mindspore")
    assert [str(call.site).partition(":")[2] for call in tt.open(place).journal(0).calls()] == [
        "mindspore.ops.MatMul#0",
        "mindspore.ops.MatMul#1",
        "mindspore.ops.MatMul#2",
        "mindspore.ops.relu#0",
        "mindspore.ops.relu#2",
    ]


def test_what_was_saved_beside_the_records(dump):
    place = dump(RECORDS)
    dump({"loss.0.debug": Y}, name="debug.json")
    assert [call.site.name for call in tt.open(place).journal(0).calls()][-1] == "loss"
    assert len(list(tt.open(place / "debug.json").journal(0).calls())) == 1


@pytest.mark.parametrize(
    ("element", "statistics"),
    [
        (tensor(-1.0, 2.0, 0.5, 3.0), Statistics(-1.0, 2.0, 0.5, 3.0, 0, 0, 0, 0)),
        (tensor(math.nan, math.nan, math.nan, math.nan), Statistics(None, None, None, None, 1, 0, 0, 0)),
        (tensor(-math.inf, 2.0, -math.inf, math.inf), Statistics(None, 2.0, None, None, 0, 0, 1, 0)),
        (tensor(-2.5, -2.5, -2.5, -2.5, shape=()), Statistics(-2.5, -2.5, -2.5, 2.5, 0, 0, 0, 0)),
        (tensor(1, 9, None, None, dtype="torch.int64"), Statistics(1, 9, None, None, 0, 0, 0, 0)),
        (tensor(1.0, 9.0, 5.0, 20.0, dtype="Int64"), Statistics(1, 9, None, None, 0, 0, 0, 0)),
        (tensor(1.0, 2.0**40, 5.0, 2.0**40, dtype="Int64"), Statistics(1, None, None, None, 0, 0, 0, 0)),
        (tensor(False, True, None, None, dtype="torch.bool"), Statistics(0, 1, None, None, 0, 0, 0, 0)),
        (tensor(None, None, None, None), None),
    ],
)
def test_statistics(dump, element, statistics):
    """How many elements are not finite is not in a dump: 1 is some. What does not fit is in the facts."""
    [found] = tt.open(dump({f"{RELU}.forward": {"output": [element]}})).journal(0).tensors()
    assert found.statistics == statistics
    assert found.is_rough == (statistics is not None)
    if statistics and statistics.max is None:
        assert f"Max {element['Max']}" in found.facts["statistics"]


def test_an_element_type_that_is_not_known(dump):
    [found] = tt.open(dump({f"{RELU}.forward": {"output": [tensor(dtype="torch.qint8")]}})).journal(0).tensors()
    assert found.missing == "elements of type torch.qint8, which is not known here"
    assert found.facts["dtype"] == "torch.qint8"


def test_nothing_is_lost(dump):
    """Every tensor's item, its element type, checksum and whatever else the element said."""
    odd = tensor(mean=0.7, md5="0badcafe", type="torch.distributed.tensor.DTensor", placements=[{"Shard": {"dim": 0}}])
    place = dump(RECORDS | {"Functional.odd.0.forward": {"input_args": [odd]}})
    found = [tensor.facts for tensor in tt.open(place).journal(0).tensors()]
    told = {name for facts in found for name in (facts["item"], *facts.get("also", ()))}
    assert told == {item.name for item in open_dump(place).items if item.is_tensor}
    [facts] = [facts for facts in found if "md5" in facts]
    assert (facts["md5"], facts["class"], facts["placements"]) == (
        "0badcafe",
        "torch.distributed.tensor.DTensor",
        '[{"Shard": {"dim": 0}}]',
    )


def test_constants_are_not_taken_for_one_tensor(dump):
    ones = tensor(1.0, 1.0, 1.0, 2.0)
    place = dump({f"Functional.a.{n}.forward": {"input_args": [ones]} for n in range(2)})
    assert len(list(tt.open(place).journal(0).tensors())) == 2


def test_values_decide_what_is_one_tensor(dump):
    """A square matrix and its transpose have the same statistics."""
    place = dump(
        {
            "Tensor.t.0.forward": {
                "input_args": [tensor(data_name="in.npy")],
                "output": [tensor(data_name="out.npy")],
            },
            "Tensor.abs.0.forward": {"input_args": [tensor(data_name="again.npy")]},
        },
        task="tensor",
        framework="mindspore",
    )
    (place / "dump_tensor_data").mkdir()
    values = np.arange(4, dtype=np.float32).reshape(2, 2)
    for name, array in (("in", values), ("out", values.T), ("again", values.T)):
        np.save(place / "dump_tensor_data" / f"{name}.npy", np.ascontiguousarray(array))
    journal = tt.open(place).journal(0)
    turn, absolute = journal.calls()
    assert turn.args[0] != turn.output == absolute.args[0]
    np.testing.assert_array_equal(journal.array(journal.tensor(turn.output.id)), values.T)


def test_a_file_of_another_shape(dump):
    place = dump({"Tensor.t.0.forward": {"output": [tensor(data_name="x.npy")]}}, task="tensor")
    (place / "dump_tensor_data").mkdir()
    np.save(place / "dump_tensor_data" / "x.npy", np.zeros(3, np.float32))
    journal = tt.open(place).journal(0)
    with pytest.raises(tt.TraceFormatError, match=r"x\.npy: expected f32\[2, 2\], found f32\[3\]"):
        journal.array(journal.tensor(0))


# --- which directories are dumps --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("opened", "places"),
    [
        (".", ((0, 0), (0, 1), (3, 0), (3, 1))),
        ("step3", ((3, 0), (3, 1))),
        ("step3/rank1", ((3, 1),)),
        ("step3/rank1/dump.json", ((3, 1),)),
    ],
)
def test_steps_and_ranks(dump, opened, places):
    for step in (0, 3):
        for rank in (0, 1):
            place = dump(RECORDS, folder=f"step{step}/rank{rank}")
    trace = tt.open(place.parent.parent / opened)
    assert (trace.places, trace.layout, trace.framework) == (places, "msprobe", "torch")
    assert trace.manifest["settings"] == {"level": "mix", "keep": "statistics"}


@pytest.mark.parametrize("folder", ["step0/rank", "step0/proc1234"])
def test_a_process_that_was_not_distributed(dump, folder):
    place = dump(RECORDS, folder=folder)
    assert tt.open(place.parent.parent).places == ((0, 0),)


def test_beside_compiled_graphs(dump):
    place = dump(RECORDS, folder="pynative/step4/rank0")
    assert tt.open(place.parent.parent.parent).places == ((4, 0),)


def test_a_folder_without_steps(dump):
    assert tt.open(dump(RECORDS, folder="some")).places == ((0, 0),)


@pytest.mark.parametrize(
    ("theirs", "ours"), [("pytorch", "torch"), ("mindspore", "mindspore"), ("mindtorch", "msadapter")]
)
def test_frameworks(dump, theirs, ours):
    assert tt.open(dump(RECORDS, framework=theirs)).framework == ours


# --- comparing --------------------------------------------------------------------------------------------------------


def test_equal_dumps_agree_and_others_do_not(dump):
    left = dump(RECORDS, construct=CONSTRUCT)
    right = dump(RECORDS, construct=CONSTRUCT, folder="other/step0/rank0")
    assert tt.compare(left, right).agree
    changed = json.loads((right / "dump.json").read_text())
    changed["data"][f"{RELU}.forward"]["output"][0]["Max"] = 5.0
    (right / "dump.json").write_text(json.dumps(changed))
    found = tt.compare(left, right)
    assert "part at torch.nn.functional.relu" in tt.verdict(found)


def test_checksums_are_compared_with_checksums(dump):
    """Equal ones are equal bits; another one, with equal statistics, is the same values elsewhere."""
    positive = tensor(1.0, 2.0, 1.5, 3.0)
    sides = [
        dump({f"{RELU}.forward": {"output": [positive | {"md5": md5}]}}, folder=f"{n}/step0/rank0")
        for n, md5 in enumerate(("00000001", "00000001", "00000002"))
    ]
    assert "bit by bit" in tt.verdict(tt.compare(sides[0], sides[1]))
    assert "the same values in other places" in tt.verdict(tt.compare(sides[0], sides[2]))


def test_a_checksum_is_no_fingerprint(dump, tmp_path):
    """Beside a trace of our own, the statistics are what both have."""
    place = dump({f"{RELU}.forward": {"output": [tensor(1.0, 2.0, 1.5, 3.0, md5="00000001")]}})
    other = tt.convert_trace(place, tmp_path / "own")
    file = tmp_path / "own" / "step0" / "rank0" / "journal.jsonl"
    from twintrace.store.lines import seal, unseal

    lines = [unseal(line) for line in file.read_bytes().splitlines()]
    for line in lines:
        line.pop("crc", None)
        if line["k"] == "tensor":
            line["fp"] = "9f86d081884c7d659f86d081884c7d65"
    file.write_bytes(b"".join(map(seal, lines)))
    assert tt.compare(place, other.path).agree
