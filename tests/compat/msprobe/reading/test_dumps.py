"""A dump as items: their names and order are those of the real tool's comparison, whatever the generation."""

import json
import math

import numpy as np
import pytest

from tests.compat.msprobe.reading.elements import tensor
from twintrace.compat.msprobe.dumps import Dump, open_dump
from twintrace.model.errors import TraceError, TraceNotFoundError


def names(found: Dump) -> list[str]:
    return [item.name for item in found.items]


def test_every_kind_of_element_has_its_name(dump):
    place = dump(
        {
            "Functional.linear.0.forward": {
                "input_args": [tensor(), [tensor(), [None, {"type": "int", "value": 3}]], {"a": tensor()}],
                "input_kwargs": {"bias": None, "flag": {"type": "bool", "value": True}},
                "output": [tensor()],
            },
            "Functional.linear.0.backward": {"input": [tensor()], "output": [tensor(), None]},
        }
    )
    found = open_dump(place)
    assert names(found) == [
        "Functional.linear.0.forward.input.0",
        "Functional.linear.0.forward.input.1.0",
        "Functional.linear.0.forward.input.1.1.0",
        "Functional.linear.0.forward.input.1.1.1",
        "Functional.linear.0.forward.input.2.a",
        "Functional.linear.0.forward.input.bias",
        "Functional.linear.0.forward.input.flag",
        "Functional.linear.0.forward.output.0",
        "Functional.linear.0.backward.input.0",
        "Functional.linear.0.backward.output.0",
        "Functional.linear.0.backward.output.1",
    ]
    first, scalar, nothing, flag = (found.items[place] for place in (0, 3, 2, 6))
    assert (first.type, first.dtype, first.shape) == ("torch.Tensor", "torch.float32", (2, 2))
    assert (first.max, first.min, first.mean, first.norm, first.requires_grad) == (2.0, -1.0, 0.5, 3.0, True)
    assert (first.state, first.record, first.is_tensor) == ("input", "Functional.linear.0.forward", True)
    assert (scalar.type, scalar.value, scalar.shape, scalar.is_tensor) == ("int", 3, None, False)
    assert (nothing.type, flag.type, flag.value) == ("NoneType", "bool", True)
    assert [item.state for item in found.items[-3:]] == ["input", "output", "output"]
    assert found.problems == ()


def test_parameters_come_before_results(dump):
    """As the comparison shows them; in the file they stand behind."""
    place = dump(
        {
            "Module.fc.Linear.forward.0": {
                "input_args": [tensor()],
                "output": [tensor()],
                "parameters": {"weight": tensor()},
            }
        }
    )
    assert names(open_dump(place)) == [
        f"Module.fc.Linear.forward.0.{end}" for end in ("input.0", "parameters.weight", "output.0")
    ]


@pytest.mark.parametrize("record", ["Module.fc.Linear.parameters_grad", "Module.fc.Linear.parameters_grad.0"])
def test_gradients_of_parameters_in_both_generations(dump, record):
    found = open_dump(dump({record: {"bias": [tensor()], "weight": [tensor()]}}))
    assert names(found) == [f"{record}.bias", f"{record}.weight"]
    assert {item.state for item in found.items} == {"parameters_grad"}


def test_what_a_script_saved(dump):
    found = open_dump(dump({"loss.0.debug": tensor(), "both.0.debug": [tensor(), None]}, name="debug.json"))
    assert names(found) == ["loss.0.debug", "both.0.debug.0", "both.0.debug.1"]
    assert found.path.name == "debug.json"


def test_where_values_were_kept_the_file_gives_the_name(dump):
    """`.kwargs.mask`, where it would be `.input.mask` otherwise."""
    element = tensor(data_name="Tensor.where.0.forward.kwargs.mask.pt")
    [item] = open_dump(dump({"Tensor.where.0.forward": {"input_kwargs": {"mask": element}}})).items
    assert (item.name, item.data_name) == (
        "Tensor.where.0.forward.kwargs.mask",
        "Tensor.where.0.forward.kwargs.mask.pt",
    )


@pytest.mark.parametrize("stacks", [{"0": [["A.b.0.forward"], ["one", "two"]]}, {"A.b.0.forward": ["one", "two"]}])
def test_stacks_of_both_generations(dump, stacks):
    assert open_dump(dump({}, stacks=stacks)).stacks == {"A.b.0.forward": ("one", "two")}


def test_the_tree_with_and_without_micro_steps(dump):
    construct = {"a": None, "b": "a", "c": ["a", 2], "megatron_micro_step_number": 3}
    assert open_dump(dump({}, construct=construct)).construct == {"a": None, "b": "a", "c": "a"}


def test_numbers_that_are_not_finite(dump):
    found = open_dump(dump({"A.b.0.forward": {"output": [tensor(-math.inf, math.inf, math.nan, math.nan)]}}))
    [item] = found.items
    assert (item.max, item.min) == (math.inf, -math.inf)
    assert math.isnan(item.mean)


def test_special_elements(dump):
    special = [
        {"type": "slice", "value": [0, 2, None]},
        {"type": "torch.Size", "value": [1, 2]},
        {"type": "torch.memory_format", "format": "contiguous_format"},
        {"type": "torch.ProcessGroup", "group_ranks": [0, 1], "group_id": "12ab"},
        {
            "class_type": "torch.distributed.P2POp",
            "tensor": tensor(),
            "op": "isend",
            "peer": 1,
            "tag": 0,
            "group_id": "1",
        },
        {},
    ]
    found = open_dump(dump({"A.b.0.forward": {"input_args": special}}))
    assert [item.value for item in found.items[:4]] == [[0, 2, None], [1, 2], "contiguous_format", [0, 1]]
    message = found.items[4]
    assert message.shape == (2, 2)
    assert message.value == {"op": "isend", "peer": 1, "tag": 0, "group_id": "1"}
    assert len(found.items) == 5  # of an empty object the comparison has no row


def test_md5(dump):
    [item] = open_dump(dump({"A.b.0.forward": {"output": [tensor(md5="0badcafe")]}})).items
    assert item.md5 == "0badcafe"


def test_values_of_npy_files(dump):
    element = tensor(data_name="A.b.0.forward.output.0.npy")
    place = dump({"A.b.0.forward": {"output": [element]}}, task="tensor")
    (place / "dump_tensor_data").mkdir()
    values = np.arange(6, dtype=np.float64).reshape(2, 3)
    np.save(place / "dump_tensor_data" / "A.b.0.forward.output.0.npy", values)
    found = open_dump(place)
    np.testing.assert_array_equal(found.array(found.items[0]), values)


@pytest.mark.needs_torch
def test_values_of_pt_files_without_torch(dump):
    """bf16 is widened exactly; the file is read, not loaded."""
    import torch

    place = dump({"A.b.0.forward": {"output": [tensor(data_name="x.pt"), tensor(data_name="y.pt")]}}, task="tensor")
    (place / "dump_tensor_data").mkdir()
    wide, turned = torch.tensor([1.5, -2.25]), torch.arange(6.0).reshape(2, 3).T
    torch.save(wide.bfloat16(), place / "dump_tensor_data" / "x.pt")
    torch.save(turned, place / "dump_tensor_data" / "y.pt")
    found = open_dump(place)
    np.testing.assert_array_equal(found.array(found.items[0]), wide.numpy())
    np.testing.assert_array_equal(found.array(found.items[1]), turned.numpy())
    assert found.stored(found.items[0])[1] == "bf16"


def test_no_values_kept(dump):
    found = open_dump(dump({"A.b.0.forward": {"output": [tensor()]}}))
    with pytest.raises(TraceError, match=r"no values were kept of A\.b\.0\.forward\.output\.0"):
        found.array(found.items[0])


def test_a_path_that_does_not_exist(tmp_path):
    with pytest.raises(TraceNotFoundError, match="there is no such file"):
        open_dump(tmp_path / "nowhere.json")


def test_a_directory_above_names_the_rank(dump):
    place = dump({})
    with pytest.raises(TraceNotFoundError, match=r"Name the rank: .*step0.rank0"):
        open_dump(place.parent.parent)


def test_the_framework_of_a_dump_that_does_not_say_it(dump):
    place = dump({"A.b.0.forward": {"output": [tensor(type="mindspore.Tensor")]}})
    document = json.loads((place / "dump.json").read_text())
    del document["framework"]
    (place / "dump.json").write_text(json.dumps(document))
    assert open_dump(place).framework == "mindspore"
