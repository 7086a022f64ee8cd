"""Mapping files: what they say, and which rule a wrong one breaks."""

from __future__ import annotations

import pytest

from twintrace.compat.msprobe.compare.mappings import (
    Slots,
    read_api_mapping,
    read_cell_mapping,
    read_data_mapping,
    read_layer_mapping,
    write_data_mapping,
)
from twintrace.model.errors import UsageError


@pytest.fixture
def yaml_file(tmp_path):
    def write(text: str):
        path = tmp_path / "mapping.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


DOCUMENTED = """\
ms_api: Functional.abs
pt_api: Torch.abs
ms_args:
- 0
- 2
pt_args:
- 0
- 1
ms_outputs:
- 0
pt_outputs:
- 0
# a remark at the end
"""


def test_the_documented_api_mapping(yaml_file):
    (rule,) = read_api_mapping(yaml_file(DOCUMENTED))

    assert (rule.ms_api, rule.pt_api) == ("Functional.abs", "Torch.abs")
    assert rule.slots == {"input": Slots((0, 2), (0, 1), (4, 7)), "output": Slots((0,), (0,), (10, 12))}


@pytest.mark.parametrize(
    "text",
    [
        "- {ms_api: Functional.abs, pt_api: Torch.abs}\n- {ms_api: Tensor.add, pt_api: Tensor.__add__}\n",
        "ms_api: Functional.abs\npt_api: Torch.abs\n---\nms_api: Tensor.add\npt_api: Tensor.__add__\n",
        "---\n- ms_api: Functional.abs\n  pt_api: Torch.abs\n---\n\n---\nms_api: Tensor.add\npt_api: Tensor.__add__\n",
    ],
    ids=["a list", "several documents", "both"],
)
def test_several_apis_in_one_file(yaml_file, text):
    rules = read_api_mapping(yaml_file(text))

    assert [(rule.ms_api, rule.pt_api) for rule in rules] == [
        ("Functional.abs", "Torch.abs"),
        ("Tensor.add", "Tensor.__add__"),
    ]


def test_the_spelling_of_the_tool(yaml_file):
    (rule,) = read_api_mapping(
        yaml_file(
            "ms_api: Functional.a\npt_api: Torch.a\nms_output: [1]\npt_outputs: [0]\nms_args: [axis]\npt_args: [dim]"
        )
    )

    assert {state: slots[:2] for state, slots in rule.slots.items()} == {
        "output": ((1,), (0,)),
        "input": (("axis",), ("dim",)),
    }


APIS = "ms_api: Functional.abs\npt_api: Torch.abs\n"


@pytest.mark.parametrize(
    ("text", "line", "rule"),
    [
        (APIS + "ms_args: [0, 1]\npt_args: [0]\n", 3, "ms_args, pt_args: expected as many in both lists, got 2 and 1"),
        (APIS + "ms_outputs: [0]\n", 3, "ms_outputs, pt_outputs: expected as many in both lists, got 1 and 0"),
        (APIS + "ms_args: [0]\npt_args: [0]\npt_outputs: [0]\n", 5, "ms_outputs, pt_outputs: expected as many"),
        (APIS + "ms_args:\n- 0\n- 0\npt_args: [0, 1]\n", 5, "ms_args: 0 is there twice"),
        (
            APIS + "ms_args: [0]\npt_args:\n- -1\n",
            5,
            "pt_args: expected a place (0, 1, 2, …) or the name of an argument",
        ),
        (
            APIS + "ms_args: [true]\npt_args: [0]\n",
            3,
            "ms_args: expected a place (0, 1, 2, …) or the name of an argument",
        ),
        (APIS + "ms_args: [0]\npt_args: [1.5]\n", 4, "pt_args: expected a place"),
        (
            APIS + "ms_args: 0\npt_args: [0]\n",
            3,
            "ms_args: expected a list of places, such as [0, 1], found the text '0'",
        ),
        (APIS + "ms_outputs: [0]\nms_output: [0]\npt_outputs: [0]\n", 4, "ms_output: is the same as ms_outputs"),
        (APIS + "ms_arg: [0]\n", 3, "unknown key 'ms_arg'"),
        (APIS + "pt_api: Torch.add\n", 3, "pt_api: is there twice"),
        ("ms_api: Functional.abs\n", 1, "pt_api: is missing"),
        (
            "ms_api: abs\npt_api: Torch.abs\n",
            1,
            "ms_api: expected {api_type}.{api_name}, such as Functional.abs, got 'abs'",
        ),
        (APIS + "---\n" + APIS, 4, "ms_api: Functional.abs has a partner already, in line 1"),
        ("- 3\n", 1, "an API mapping: expected `key: value` lines, found the text '3'"),
        ("ms_api: [a, b]\npt_api: Torch.abs\n", 1, "expected a name, found a list"),
        (APIS + "ms_args: [0\n", 4, "not YAML"),
    ],
)
def test_a_wrong_api_mapping_is_refused_by_file_line_and_key(yaml_file, text, line, rule):
    path = yaml_file(text)

    with pytest.raises(UsageError) as caught:
        read_api_mapping(path)

    assert str(caught.value).startswith(f"{path}: line {line}: {rule}")


def test_cells(yaml_file):
    path = yaml_file(
        "fc2.Dense: fc2.Linear\nCell.conv1.Conv2d: Module.conv3.Conv2d\n---\nDense: Linear\nMine: Linear\n"
    )

    assert read_cell_mapping(path) == {
        "fc2.Dense": "fc2.Linear",
        "conv1.Conv2d": "conv3.Conv2d",
        "Dense": "Linear",
        "Mine": "Linear",
    }


def test_items(yaml_file):
    path = yaml_file(
        "# API\nFunctional.attention.4.forward.input.0: NPU.npu_attention.4.forward.input.0\n"
        "Cell.relu.ReLU.forward.0.input.0.npy: Module.embedding.forward.0.input.0.pt\n"
        "Cell.relu.ReLU.forward.0.input.1: N/A\n"
    )

    assert read_data_mapping(path) == {
        "Functional.attention.4.forward.input.0": "NPU.npu_attention.4.forward.input.0",
        "Cell.relu.ReLU.forward.0.input.0": "Module.embedding.forward.0.input.0",
    }


def test_layers(yaml_file):
    path = yaml_file(
        "ParallelAttention:                 # a layer\n  qkv_proj: query_key_value\n  a.b: dense(Linear)\n"
        "Cell:\n  network_with_loss: module\nlayers:\n  '5': '0'\n  6: 1\n"
    )

    assert read_layer_mapping(path) == {
        "ParallelAttention": {"qkv_proj": "query_key_value", "a.b": "dense"},
        "TopLayer": {"network_with_loss": "module"},
        "layers": {"5": "0", "6": "1"},
    }


@pytest.mark.parametrize(
    ("read", "text", "line", "rule"),
    [
        (read_cell_mapping, "a.Dense: a.Linear\na.Dense: b.Linear\n", 2, "a.Dense: is there twice"),
        (read_cell_mapping, "a.Dense:\n", 1, "a.Dense: expected a name on both sides of the colon"),
        (read_cell_mapping, "- a.Dense\n", 1, "the mapping: expected `key: value` lines, found a list"),
        (
            read_cell_mapping,
            "a.Dense: c.Linear\nb.Dense: c.Linear\n",
            2,
            "c.Linear: is there twice; it stands beside a.Dense",
        ),
        (read_cell_mapping, "a.Dense: a.Linear\nfc2.Dense: 3\n", 2, "expected a name, such as fc2.Dense, got 3 (int)"),
        (read_cell_mapping, "true: a.Linear\n", 1, "expected a name, such as fc2.Dense, got true (bool)"),
        (read_layer_mapping, "MLP:\n  a: c\n  b: c\n", 3, "c: is there twice; it stands beside a already"),
        (read_data_mapping, "abs: Torch.abs.0.forward.input.0\n", 1, "abs: expected the full name of an item"),
        (read_data_mapping, "A.b.0.forward.input.0:\n- x\n", 2, "expected a name, found a list"),
        (read_layer_mapping, "MLP: mapping\n", 1, "MLP: expected `key: value` lines, found the text 'mapping'"),
        (read_layer_mapping, "MLP:\n  a: b\n  a: c\n", 3, "a: is there twice"),
        (read_layer_mapping, "MLP: {a: b\n", 2, "not YAML"),
    ],
)
def test_other_wrong_mappings_are_refused_too(yaml_file, read, text, line, rule):
    path = yaml_file(text)

    with pytest.raises(UsageError) as caught:
        read(path)

    assert str(caught.value).startswith(f"{path}: line {line}: {rule}")


@pytest.mark.parametrize("read", [read_api_mapping, read_cell_mapping, read_data_mapping, read_layer_mapping])
def test_a_file_that_says_nothing_or_is_not_there(yaml_file, tmp_path, read):
    with pytest.raises(UsageError, match="the mapping is empty"):
        read(yaml_file("# only a remark\n"))
    with pytest.raises(UsageError, match="cannot be read"):
        read(tmp_path / "missing.yaml")
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="not UTF-8"):
        read(binary)


@pytest.mark.parametrize(
    "text", ["[" * 1_000, "a: " * 500, "- &a [*a]\n", "a: &x [b, *x]\n", "{" * 1_000 + "}" * 1_000]
)
@pytest.mark.parametrize("read", [read_api_mapping, read_cell_mapping, read_data_mapping, read_layer_mapping])
def test_a_file_that_is_made_to_harm_is_refused_in_time(yaml_file, read, text):
    with pytest.raises(UsageError, match=r"mapping\.yaml: "):
        read(yaml_file(text))


def test_what_is_written_can_be_read(tmp_path):
    pairs = {"Cell.a.Dense.forward.0.input.0": "Module.a.Linear.forward.0.input.0"}

    write_data_mapping(tmp_path / "data.yaml", pairs)

    assert read_data_mapping(tmp_path / "data.yaml") == pairs
