"""Which item stands beside which, for every way of pairing."""

from __future__ import annotations

import json
import re

import pytest

from tests.compat.msprobe.compare.writing import backward, make_dump, record, tensor
from twintrace.compat.msprobe.compare.layers import Layers
from twintrace.compat.msprobe.compare.mappings import read_api_mapping
from twintrace.compat.msprobe.compare.pairing import Pairing, PairingRules, pair_items
from twintrace.compat.msprobe.dumps import open_dump

MS = {"framework": "mindspore"}


def f32(*shape, seed=1.0):
    return tensor(*shape, seed=seed, dtype="Float32")


def rows(found: Pairing) -> list[tuple[str, str]]:
    return [(pair.npu.name if pair.npu else "–", pair.bench.name if pair.bench else "–") for pair in found.pairs]


def assert_whole(found: Pairing, npu, bench):
    """Every item is there once."""
    assert [pair.npu for pair in found.pairs if pair.npu] == list(npu.items)
    theirs = [pair.bench.name for pair in found.pairs if pair.bench]
    assert sorted(theirs) == sorted(item.name for item in bench.items)
    assert all(pair.because for pair in found.pairs)


# --- equal names ------------------------------------------------------------------------------------------------------


def test_equal_names_and_what_only_one_side_has_in_its_place(tmp_path):
    x = tensor(2, 2)
    one = make_dump(
        tmp_path / "a",
        {
            "Torch.abs.0.forward": record([x], [x]),
            "Torch.mul.0.forward": record([x, x], [x]),
            "Torch.neg.0.forward": record([x], [x]),
        },
    )
    two = make_dump(
        tmp_path / "b",
        {
            "Torch.sin.0.forward": record([x], []),
            "Torch.abs.0.forward": record([x], [x]),
            "Torch.cos.0.forward": record([x], []),
            "Torch.mul.0.forward": record([x], [x, x]),
            "Torch.neg.0.forward": record([x], [x]),
            "Torch.exp.0.forward": record([x], []),
        },
    )

    found = pair_items(one, two)

    assert_whole(found, one, two)
    assert [(a.replace(".forward", ""), b.replace(".forward", "")) for a, b in rows(found)] == [
        ("–", "Torch.sin.0.input.0"),
        ("Torch.abs.0.input.0", "Torch.abs.0.input.0"),
        ("Torch.abs.0.output.0", "Torch.abs.0.output.0"),
        ("–", "Torch.cos.0.input.0"),
        ("Torch.mul.0.input.0", "Torch.mul.0.input.0"),
        ("Torch.mul.0.input.1", "–"),
        ("Torch.mul.0.output.0", "Torch.mul.0.output.0"),
        ("–", "Torch.mul.0.output.1"),
        ("Torch.neg.0.input.0", "Torch.neg.0.input.0"),
        ("Torch.neg.0.output.0", "Torch.neg.0.output.0"),
        ("–", "Torch.exp.0.input.0"),
    ]


def test_the_gradients_of_a_call_are_those_with_its_number_whatever_came_first(tmp_path):
    forward = {f"Tensor.__add__.{n}.forward": record([tensor(2, seed=n)], [tensor(2)]) for n in (0, 1)}
    gradients = {f"Tensor.__add__.{n}.backward": backward([tensor(2, seed=n)], [tensor(2)]) for n in (0, 1)}
    one = make_dump(tmp_path / "a", forward | gradients)
    two = make_dump(tmp_path / "b", forward | dict(reversed(gradients.items())))

    assert all(a == b for a, b in rows(pair_items(one, two)))


def test_both_generations_of_the_tool_are_one_name(tmp_path):
    x = tensor(2)
    old = make_dump(
        tmp_path / "a",
        {
            "Torch.sum.0.forward": record([x], [x], dim={"type": "int", "value": 1}),
            "Module.fc.Linear.parameters_grad": {"weight": [x], "bias": [x]},
        },
    )
    named = x | {"data_name": "Torch.sum.0.forward.kwargs.dim.pt"}
    new = make_dump(
        tmp_path / "b",
        {
            "Torch.sum.0.forward": record([x], [x], dim=named),
            "Module.fc.Linear.parameters_grad.0": {"bias": [x], "weight": [x]},
        },
    )

    found = pair_items(old, new)

    assert_whole(found, old, new)
    assert rows(found)[1:2] == [("Torch.sum.0.forward.input.dim", "Torch.sum.0.forward.kwargs.dim")]
    assert ("Module.fc.Linear.parameters_grad.weight", "Module.fc.Linear.parameters_grad.0.weight") in rows(found)
    assert all("–" not in row for row in rows(found))


def test_two_frameworks_without_a_mapping_are_remarked_on(tmp_path):
    one = make_dump(tmp_path / "a", {"Tensor.__add__.0.forward": record([f32(2)], [f32(2)])}, **MS)
    two = make_dump(tmp_path / "b", {"Tensor.__add__.0.forward": record([tensor(2)], [tensor(2)])})

    found = pair_items(one, two)

    assert all(a == b for a, b in rows(found))
    assert "no mapping was given" in found.remarks[0]
    nameless = pair_items(one, make_dump(tmp_path / "c", {"Tensor.__add__.0.forward": record([], [])}, framework=""))
    assert "dump.json of an unknown framework, and no mapping" in nameless.remarks[0]
    assert not pair_items(one, two, PairingRules(cells={})).remarks


# --- numbers of calls ---------------------------------------------------------------------------------------------------


def chain(count: int, extra_after: int | None = None):
    """`neg` of `neg` of …, with one call in between that the other side does not make."""
    names, values, found = 0, [tensor(4, seed=float(n)) for n in range(count + 1)], {}
    for n in range(count):
        if n == extra_after:
            found[f"Torch.neg.{names}.forward"] = record([tensor(7, seed=99.0)], [tensor(7, seed=98.0)])
            names += 1
        found[f"Torch.neg.{names}.forward"] = record([values[n]], [values[n + 1]])
        names += 1
    return found


def test_fuzzy_an_extra_call_does_not_shift_those_after_it(tmp_path):
    one, two = make_dump(tmp_path / "a", chain(5)), make_dump(tmp_path / "b", chain(5, extra_after=2))

    by_name = pair_items(one, two)
    fuzzy = pair_items(one, two, PairingRules(fuzzy=True))

    assert_whole(fuzzy, one, two)
    assert ("Torch.neg.3.forward.input.0", "Torch.neg.3.forward.input.0") in rows(by_name)
    assert ("Torch.neg.3.forward.input.0", "Torch.neg.4.forward.input.0") in rows(fuzzy)
    assert [b for a, b in rows(fuzzy) if a == "–"] == ["Torch.neg.2.forward.input.0", "Torch.neg.2.forward.output.0"]


def test_fuzzy_pairs_only_what_has_one_name(tmp_path):
    one = make_dump(tmp_path / "a", {"Torch.add.0.forward": record([tensor(3)], [tensor(3, seed=2.0)])})
    two = make_dump(tmp_path / "b", {"Tensor.__add__.0.forward": record([tensor(3)], [tensor(3, seed=2.0)])})

    found = pair_items(one, two, PairingRules(fuzzy=True))

    assert_whole(found, one, two)
    assert all("–" in row for row in rows(found))


@pytest.mark.parametrize("rules", [PairingRules(fuzzy=True), PairingRules(api_rules=()), PairingRules(layers={})])
def test_what_is_no_api_is_paired_by_an_equal_name_too(tmp_path, rules):
    """Modules, their gradients, and what a script saved: they have no numbers that could be shifted."""
    records = {
        "Module.fc.Linear.forward.0": record([tensor(2)], [tensor(2, seed=2.0)], {}),
        "Module.fc.Linear.parameters_grad": {"weight": [tensor(3)]},
        "loss.0.debug": tensor(1, seed=5.0),
    }
    other = {"Module.fc.Linear.forward.0": record([tensor(5, seed=9.0)], [tensor(5, seed=8.0)], {})}
    one, two = make_dump(tmp_path / "a", records), make_dump(tmp_path / "b", records | other)

    found = pair_items(one, two, rules)

    assert_whole(found, one, two)
    assert all(a == b for a, b in rows(found))


# --- cells --------------------------------------------------------------------------------------------------------------


def cells(tmp_path):
    one = make_dump(
        tmp_path / "ms",
        {
            "Tensor.__add__.0.forward": record([f32(2)], [f32(2)]),
            "Tensor.__sub__.0.forward": record([f32(2)], [f32(2)]),
            "Cell.fc1.Dense.forward.0": record([f32(2, 3)], [f32(2, 4)], {"weight": f32(4, 3), "bias": f32(4)}),
            "Cell.norm.LayerNorm.forward.0": record([f32(2, 4)], [f32(2, 4)], {"gamma": f32(4), "beta": f32(4)}),
            "Cell.act.MyActivation.forward.0": record([f32(2, 4)], [f32(2, 4)], {}),
            "Cell.norm.LayerNorm.backward.0": backward([f32(2, 4)], [f32(2, 4)]),
            "Cell.norm.LayerNorm.parameters_grad": {"gamma": [f32(4)], "beta": [f32(4)]},
        },
        construct={"Tensor.__add__.0.forward": "Cell.fc1.Dense.forward.0", "Tensor.__sub__.0.forward": "Cell.fc1.Dense.forward.0"},
        **MS,
    )  # fmt: skip
    two = make_dump(
        tmp_path / "pt",
        {
            "Tensor.__add__.0.forward": record([tensor(2)], [tensor(2)]),
            "Tensor.__sub__.0.forward": record([tensor(2)], [tensor(2)]),
            "Module.fc1.Linear.forward.0": record([tensor(2, 3)], [tensor(2, 4)], {"weight": tensor(4, 3), "bias": tensor(4)}),
            "Module.norm.LayerNorm.forward.0": record([tensor(2, 4)], [tensor(2, 4)], {"weight": tensor(4), "bias": tensor(4)}),
            "Module.last.GELU.forward.0": record([tensor(2, 4)], [tensor(2, 4)], {}),
            "Module.norm.LayerNorm.backward.0": backward([tensor(2, 4)], [tensor(2, 4)]),
            "Module.norm.LayerNorm.parameters_grad.0": {"bias": [tensor(4)], "weight": [tensor(4)]},
        },
        construct={
            "Tensor.__add__.0.forward": "Module.last.GELU.forward.0",
            "Tensor.__sub__.0.forward": "Module.fc1.Linear.forward.0",
        },
    )  # fmt: skip
    return one, two


def test_cells_by_path_and_kind_and_parameters_by_what_they_are(tmp_path):
    one, two = cells(tmp_path)

    found = pair_items(one, two, PairingRules(cells={}))

    assert_whole(found, one, two)
    pairs = dict(row for row in rows(found) if "–" not in row)
    assert pairs["Cell.fc1.Dense.forward.0.parameters.weight"] == "Module.fc1.Linear.forward.0.parameters.weight"
    assert (
        pairs["Cell.norm.LayerNorm.forward.0.parameters.gamma"] == "Module.norm.LayerNorm.forward.0.parameters.weight"
    )
    assert pairs["Cell.norm.LayerNorm.parameters_grad.beta"] == "Module.norm.LayerNorm.parameters_grad.0.bias"
    assert pairs["Cell.norm.LayerNorm.backward.0.output.0"] == "Module.norm.LayerNorm.backward.0.output.0"
    assert not [name for name in pairs if "MyActivation" in name]
    assert "Tensor.__sub__.0.forward.input.0" in pairs
    assert "Tensor.__add__.0.forward.input.0" not in pairs, "the cells around them do not belong together"


@pytest.mark.parametrize("said", [{"act.MyActivation": "last.GELU"}, {"act": "last", "MyActivation": "GELU"}])
def test_cells_as_a_file_says(tmp_path, said):
    one, two = cells(tmp_path)

    found = pair_items(one, two, PairingRules(cells=said))

    assert_whole(found, one, two)
    assert ("Cell.act.MyActivation.forward.0.output.0", "Module.last.GELU.forward.0.output.0") in rows(found)
    assert ("Cell.fc1.Dense.forward.0.input.0", "Module.fc1.Linear.forward.0.input.0") in rows(found)


def layers_of(tmp_path, name: str, cell: str, **options):
    """fc1 and fc2, forwards and backwards, with their parameters; all of one shape."""
    made = {}
    for way in (["fc1", "fc2"], ["fc2", "fc1"]):
        for path in way:
            if way[0] == "fc1":
                made[f"{cell.format(path)}.forward.0"] = record([f32(2, 3)], [f32(2, 3)], {"weight": f32(3, 3)})
            else:
                made[f"{cell.format(path)}.backward.0"] = backward([f32(2, 3)], [f32(2, 3)])
                made[f"{cell.format(path)}.parameters_grad"] = {"weight": [f32(3, 3)]}
    return make_dump(tmp_path / name, made, **options)


@pytest.mark.parametrize("layers", [None, {}])
def test_what_the_cell_file_says_goes_before_equal_paths_forwards_and_backwards(tmp_path, layers):
    one, two = layers_of(tmp_path, "ms", "Cell.{}.Dense", **MS), layers_of(tmp_path, "pt", "Module.{}.Linear")

    found = pair_items(one, two, PairingRules(cells={"fc2.Dense": "fc1.Linear"}, layers=layers))

    assert_whole(found, one, two)
    beside = {ours: theirs for ours, theirs in rows(found) if ours.startswith("Cell.fc2.")}
    assert len(beside) == 6
    assert all(theirs.startswith("Module.fc1.Linear.") for theirs in beside.values()), beside


# --- APIs by a file -----------------------------------------------------------------------------------------------------


def apis(tmp_path):
    one = make_dump(
        tmp_path / "ms",
        {
            "Functional.f.0.forward": record(
                [f32(1), f32(2), f32(3)], [f32(4), f32(5)], axis={"type": "int", "value": 0}
            ),
            "Functional.f.0.backward": backward([f32(4), f32(5)], [f32(1), f32(2), f32(3)]),
        },
        **MS,
    )
    two = make_dump(
        tmp_path / "pt",
        {
            "Torch.g.0.forward": record([tensor(1), tensor(3)], [tensor(5)], dim={"type": "int", "value": 0}),
            "Torch.g.0.backward": backward([tensor(5)], [tensor(1), tensor(3)]),
        },
    )
    return one, two


def rules(tmp_path, text):
    (tmp_path / "api.yaml").write_text("ms_api: Functional.f\npt_api: Torch.g\n" + text, encoding="utf-8")
    return read_api_mapping(tmp_path / "api.yaml")


def test_arguments_and_results_by_their_places(tmp_path):
    one, two = apis(tmp_path)
    said = rules(tmp_path, "ms_args: [0, 2, axis]\npt_args: [0, 1, dim]\nms_outputs: [1]\npt_outputs: [0]\n")

    found = pair_items(one, two, PairingRules(api_rules=said))

    assert_whole(found, one, two)
    assert [row for row in rows(found) if "–" not in row] == [
        ("Functional.f.0.forward.input.0", "Torch.g.0.forward.input.0"),
        ("Functional.f.0.forward.input.2", "Torch.g.0.forward.input.1"),
        ("Functional.f.0.forward.input.axis", "Torch.g.0.forward.input.dim"),
        ("Functional.f.0.forward.output.1", "Torch.g.0.forward.output.0"),
        ("Functional.f.0.backward.input.1", "Torch.g.0.backward.input.0"),
        ("Functional.f.0.backward.output.0", "Torch.g.0.backward.output.0"),
        ("Functional.f.0.backward.output.2", "Torch.g.0.backward.output.1"),
    ]
    left_out = next(pair for pair in found.pairs if pair.npu and pair.npu.name == "Functional.f.0.forward.input.1")
    assert left_out.because == "the API mapping leaves it out"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("ms_args: [3]\npt_args: [0]\n", "line 3: ms_args: 3 is out of range: in .*ms.* Functional.f has 3 of them"),
        ("ms_args: [0]\npt_args:\n- 2\n", "line 5: pt_args: 2 is out of range: in .*pt.* Torch.g has 2 of them"),
        ("ms_outputs: [0]\npt_outputs: [1]\n", "line 4: pt_outputs: 1 is out of range: in .* Torch.g has 1 of them"),
    ],
)
def test_a_place_that_an_api_does_not_have_is_told_and_passed_over(tmp_path, text, told):
    one, two = apis(tmp_path)

    found = pair_items(one, two, PairingRules(api_rules=rules(tmp_path, text)))

    (remark,) = found.remarks
    assert re.search(f"api.yaml: {told}", remark)
    assert remark.endswith("It is passed over.")
    assert_whole(found, one, two)


def test_the_api_mapping_of_the_document_on_a_real_abs(tmp_path):
    """Its section 3.3 names two arguments and two results of a function that has one of each."""
    one = make_dump(tmp_path / "ms", {"Functional.abs.0.forward": record([f32(2)], [f32(2, seed=2)])}, **MS)
    two = make_dump(tmp_path / "pt", {"Torch.abs.0.forward": record([tensor(2)], [tensor(2, seed=2)])})
    lists = "".join(f"{name}:\n- 0\n- 1\n" for name in ("ms_args", "pt_args", "ms_outputs", "pt_outputs"))
    (tmp_path / "api.yaml").write_text(f"ms_api: Functional.abs\npt_api: Torch.abs\n{lists}")

    found = pair_items(one, two, PairingRules(api_rules=read_api_mapping(tmp_path / "api.yaml")))

    assert rows(found) == [
        (f"Functional.abs.0.forward.{item}.0", f"Torch.abs.0.forward.{item}.0") for item in ("input", "output")
    ]
    assert len(found.remarks) == 4
    assert all("1 is out of range" in remark for remark in found.remarks)


def test_an_api_that_is_not_there_is_told(tmp_path):
    one, two = apis(tmp_path)
    (tmp_path / "api.yaml").write_text(
        "- {ms_api: Functional.h, pt_api: Torch.g}\n- {ms_api: Functional.f, pt_api: Torch.h}\n"
    )

    found = pair_items(one, two, PairingRules(api_rules=read_api_mapping(tmp_path / "api.yaml")))

    assert [remark.split(": ")[1:] for remark in found.remarks] == [
        ["line 1", f"Functional.h is not in {one.path}."],
        ["line 2", f"Torch.h is not in {two.path}."],
    ]


def test_without_a_file_apis_are_paired_by_what_they_do(tmp_path):
    """Under another name, and with a call before it that the other side does not make: numbers do not count."""
    x, w, y, z = 1.75, 3.5, 5.25, 7.0
    one = make_dump(
        tmp_path / "ms",
        {
            "Primitive.relu.ReLU.0.forward": record([f32(3, seed=40.0)], [f32(3, seed=41.0)]),
            "Primitive.matmul.MatMul.0.forward": record([f32(2, 3, seed=x), f32(3, 4, seed=w)], [f32(2, 4, seed=y)]),
            "Primitive.relu.ReLU.1.forward": record([f32(2, 4, seed=y)], [f32(2, 4, seed=z)]),
        },
        **MS,
    )
    two = make_dump(
        tmp_path / "pt",
        {
            "Torch.matmul.5.forward": record([tensor(2, 3, seed=x), tensor(3, 4, seed=w)], [tensor(2, 4, seed=y)]),
            "Functional.relu.0.forward": record([tensor(2, 4, seed=y)], [tensor(2, 4, seed=z)]),
        },
    )

    found = pair_items(one, two, PairingRules(api_rules=()))

    assert_whole(found, one, two)
    assert [row for row in rows(found) if "–" not in row] == [
        ("Primitive.matmul.MatMul.0.forward.input.0", "Torch.matmul.5.forward.input.0"),
        ("Primitive.matmul.MatMul.0.forward.input.1", "Torch.matmul.5.forward.input.1"),
        ("Primitive.matmul.MatMul.0.forward.output.0", "Torch.matmul.5.forward.output.0"),
        ("Primitive.relu.ReLU.1.forward.input.0", "Functional.relu.0.forward.input.0"),
        ("Primitive.relu.ReLU.1.forward.output.0", "Functional.relu.0.forward.output.0"),
    ]


def test_one_call_beside_two_is_compared_at_its_edge(tmp_path):
    """A dump of MindSpore does not say which tensors are parameters."""
    x, w, b, xw, y = 1.75, 3.5, 5.25, 7.0, 8.75
    one = make_dump(
        tmp_path / "ms",
        {
            "Primitive.matmul.MatMul.0.forward": record([f32(2, 3, seed=x), f32(4, 3, seed=w)], [f32(2, 4, seed=xw)]),
            "Primitive.bias_add.BiasAdd.0.forward": record([f32(2, 4, seed=xw), f32(4, seed=b)], [f32(2, 4, seed=y)]),
        },
        **MS,
    )
    taken = [tensor(2, 3, seed=x), tensor(4, 3, seed=w), tensor(4, seed=b)]
    two = make_dump(tmp_path / "pt", {"Functional.linear.0.forward": record(taken, [tensor(2, 4, seed=y)])})

    found = pair_items(one, two, PairingRules(api_rules=()))

    assert_whole(found, one, two)
    assert [row for row in rows(found) if "–" not in row] == [
        ("Primitive.matmul.MatMul.0.forward.input.0", "Functional.linear.0.forward.input.0"),
        ("Primitive.matmul.MatMul.0.forward.input.1", "Functional.linear.0.forward.input.1"),
        ("Primitive.bias_add.BiasAdd.0.forward.input.1", "Functional.linear.0.forward.input.2"),
        ("Primitive.bias_add.BiasAdd.0.forward.output.0", "Functional.linear.0.forward.output.0"),
    ]


def test_cells_without_a_partner_say_that_apis_alone_were_asked_for(tmp_path):
    one, two = cells(tmp_path)

    found = pair_items(one, two, PairingRules(api_rules=()))

    lonely = {
        (pair.npu or pair.bench).name: pair.because for pair in found.pairs if pair.npu is None or pair.bench is None
    }
    said = {name: because for name, because in lonely.items() if name.startswith(("Cell.", "Module."))}
    assert {"Cell.fc1.Dense.forward.0.input.0", "Module.norm.LayerNorm.parameters_grad.0.bias"} <= said.keys()
    assert set(said.values()) == {"-am pairs APIs only; -cm pairs cells, -lm both"}
    both = pair_items(one, two, PairingRules(api_rules=(), cells={}))
    assert not [pair for pair in both.pairs if "APIs only" in pair.because]


# --- items by a file ----------------------------------------------------------------------------------------------------


def test_items_and_records_as_a_file_says_and_the_rest_by_name(tmp_path):
    one = make_dump(
        tmp_path / "ms",
        {
            "Functional.q.0.forward": record([f32(1)], [f32(2)]),
            "Functional.k.0.forward": record([f32(1)], [f32(2)]),
            "Functional.v.0.forward": record([f32(1)], [f32(2)]),
            "Tensor.__add__.0.forward": record([f32(1)], [f32(2)]),
        },
        **MS,
    )
    two = make_dump(
        tmp_path / "pt",
        {
            "Functional.qkv.0.forward": record([tensor(1)], [tensor(2)]),
            "Torch.v.1.forward": record([tensor(1)], [tensor(2)]),
            "Tensor.__add__.0.forward": record([tensor(1)], [tensor(2)]),
        },
    )
    said = {
        "Functional.q.0.forward.input.0": "Functional.qkv.0.forward.input.0",
        "Functional.k.0.forward.input.0": "Functional.qkv.0.forward.input.0",
        "Functional.v.0.forward": "Torch.v.1.forward",
        "Functional.q.9.forward.input.0": "Functional.qkv.0.forward.output.0",
    }

    found = pair_items(one, two, PairingRules(items=said))

    assert rows(found) == [
        ("Functional.q.0.forward.input.0", "Functional.qkv.0.forward.input.0"),
        ("Functional.q.0.forward.output.0", "–"),
        ("–", "Functional.qkv.0.forward.output.0"),
        ("Functional.k.0.forward.input.0", "Functional.qkv.0.forward.input.0"),
        ("Functional.k.0.forward.output.0", "–"),
        ("Functional.v.0.forward.input.0", "Torch.v.1.forward.input.0"),
        ("Functional.v.0.forward.output.0", "Torch.v.1.forward.output.0"),
        ("Tensor.__add__.0.forward.input.0", "Tensor.__add__.0.forward.input.0"),
        ("Tensor.__add__.0.forward.output.0", "Tensor.__add__.0.forward.output.0"),
    ]
    assert found.remarks == ("the data mapping names what is not in the dumps: Functional.q.9.forward.input.0 (npu).",)


# --- layers -------------------------------------------------------------------------------------------------------------


def modules(tmp_path, name, prefix, *paths, **options):
    """A dump of modules without tensors of their own; the class of a path is what stands behind its `:`."""
    x = tensor(2)
    records = {f"{prefix}.{path.replace(':', '.')}.forward.0": record([x], [x], {}) for path in paths}
    return make_dump(tmp_path / name, records, **options)


def test_layers_level_by_level_as_in_the_document(tmp_path):
    one = modules(
        tmp_path, "ms", "Cell",
        "network_with_loss:PipelineCell",
        "network_with_loss.model.layers.5:ParallelTransformerLayer",
        "network_with_loss.model.layers.5.attention:ParallelAttention",
        "network_with_loss.model.layers.5.attention.qkv_proj:Linear",
        "network_with_loss.model.layers.6.attention:ParallelAttention",
        "network_with_loss.model.embedding:Embedding",
        "network_with_loss.model.embedding.a.b:Dropout",
        "network_with_loss.model.lost:Dense",
        **MS,
    )  # fmt: skip
    two = modules(
        tmp_path, "pt", "Module",
        "module.module.layers.0:ParallelTransformerLayer",
        "module.module.layers.0.self_attention:ParallelAttention",
        "module.module.layers.0.self_attention.query_key_value:Linear",
        "module.module.layers.1.self_attention:ParallelAttention",
        "module.module.embedding:Embedding",
        "module.module.embedding.embedding_dropout:Dropout",
    )  # fmt: skip
    said = {
        "TopLayer": {"network_with_loss": "module"},
        "PipelineCell": {"model": "module"},
        "ParallelTransformerLayer": {"attention": "self_attention"},
        "ParallelAttention": {"qkv_proj": "query_key_value"},
        "Embedding": {"a.b": "embedding_dropout"},
        "layers": {"5": "0", "6": "1"},
    }

    found = Layers(one, two, said).modules()

    root = "network_with_loss.model"
    assert found == {
        f"{root}.layers.5": "module.module.layers.0",
        f"{root}.layers.5.attention": "module.module.layers.0.self_attention",
        f"{root}.layers.5.attention.qkv_proj": "module.module.layers.0.self_attention.query_key_value",
        f"{root}.embedding": "module.module.embedding",
        f"{root}.embedding.a.b": "module.module.embedding.embedding_dropout",
    }, "layers.6 has no record of its own class, so nothing says that its attention is a self_attention"


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        (
            PairingRules(
                cells={"mlp.up.Dense": "mlp.wide.Linear", "mlp.far.Dense": "mlp.wide.Conv", "Dense": "Linear"}
            ),
            "the cell mapping names what is not in the dumps: mlp.far.Dense (npu), mlp.wide.Conv (bench).",
        ),
        (
            PairingRules(
                layers={"MLP": {"up": "wide", "far": "away"}, "Other": {"up": "wide"}, "TopLayer": {"mlp": "mlp"}}
            ),
            "the layer mapping names what is not in the dumps: far (npu), away (bench), Other (npu).",
        ),
    ],
)
def test_names_in_a_file_that_are_in_neither_dump_are_told(tmp_path, rules, told):
    one = modules(tmp_path, "ms", "Cell", "mlp:MLP", "mlp.up:Dense", **MS)
    two = modules(tmp_path, "pt", "Module", "mlp:MLP", "mlp.wide:Linear")

    found = pair_items(one, two, rules)

    assert found.remarks == (told,)
    assert ("Cell.mlp.up.Dense.forward.0.input.0", "Module.mlp.wide.Linear.forward.0.input.0") in rows(found)


def test_stages_of_a_pipeline_count_their_layers_anew(tmp_path):
    one = modules(tmp_path, "ms", "Cell", "t:ParallelTransformer", "t.layers.4:Layer", "t.layers.5:Layer", **MS)
    two = modules(tmp_path, "pt", "Module", "t:ParallelTransformer", "t.layers.0:Layer", "t.layers.1:Layer")

    assert Layers(one, two, {}).modules() == {"t": "t", "t.layers.4": "t.layers.0", "t.layers.5": "t.layers.1"}


def test_layers_and_what_is_inside_them(tmp_path):
    one = make_dump(
        tmp_path / "ms",
        {
            "Primitive.mul.Mul.0.forward": record([f32(2, seed=1.0), f32(2, seed=2.0)], [f32(2, seed=3.0)]),
            "Cell.block.Block.forward.0": record([f32(2, seed=1.0)], [f32(2, seed=3.0)], {"gamma": f32(2, seed=2.0)}),
        },
        construct={"Primitive.mul.Mul.0.forward": "Cell.block.Block.forward.0", "Cell.block.Block.forward.0": None},
        **MS,
    )
    two = make_dump(
        tmp_path / "pt",
        {
            "Tensor.__mul__.7.forward": record([tensor(2, seed=1.0), tensor(2, seed=2.0)], [tensor(2, seed=3.0)]),
            "Module.layer.Block.forward.0": record(
                [tensor(2, seed=1.0)], [tensor(2, seed=3.0)], {"weight": tensor(2, seed=2.0)}
            ),
        },
        construct={"Tensor.__mul__.7.forward": "Module.layer.Block.forward.0", "Module.layer.Block.forward.0": None},
    )

    found = pair_items(one, two, PairingRules(layers={"TopLayer": {"block": "layer"}}))

    assert_whole(found, one, two)
    assert rows(found) == [
        ("Primitive.mul.Mul.0.forward.input.0", "Tensor.__mul__.7.forward.input.0"),
        ("Primitive.mul.Mul.0.forward.input.1", "Tensor.__mul__.7.forward.input.1"),
        ("Primitive.mul.Mul.0.forward.output.0", "Tensor.__mul__.7.forward.output.0"),
        ("Cell.block.Block.forward.0.input.0", "Module.layer.Block.forward.0.input.0"),
        ("Cell.block.Block.forward.0.parameters.gamma", "Module.layer.Block.forward.0.parameters.weight"),
        ("Cell.block.Block.forward.0.output.0", "Module.layer.Block.forward.0.output.0"),
    ]
    assert found.names["Primitive.mul.Mul.0.forward.input.0"] == "Tensor.__mul__.7.forward.input.0"


def test_wishes_add_up(tmp_path):
    """A file for items, cells and APIs at once."""
    one, two = cells(tmp_path)

    found = pair_items(
        one,
        two,
        PairingRules(cells={}, api_rules=(), items={"Cell.act.MyActivation.forward.0": "Module.last.GELU.forward.0"}),
    )

    assert_whole(found, one, two)
    pairs = dict(row for row in rows(found) if "–" not in row)
    assert pairs["Cell.act.MyActivation.forward.0.input.0"] == "Module.last.GELU.forward.0.input.0"
    assert pairs["Cell.fc1.Dense.forward.0.input.0"] == "Module.fc1.Linear.forward.0.input.0"
    assert pairs["Tensor.__sub__.0.forward.input.0"].startswith("Tensor.")


def test_apis_inside_a_layer_are_paired_as_the_file_says(tmp_path):
    """An API by another name, in another layer, and one that the framework itself calls: as the tool pairs them."""
    layer, attention = "Cell.net.layers.0.Block.forward.0", "Cell.net.layers.0.attention.Attention.forward.0"
    theirs, flash = "Module.net.layers.0.Block.forward.0", "Module.net.layers.0.core.flash.Flash.forward.0"
    x, y = f32(2, 2), f32(3)
    a, b = tensor(4, 4, seed=5.0), tensor(7, seed=9.0)  # nothing is alike: only names can tell
    one = make_dump(
        tmp_path / "ms",
        {
            "Tensor.__add__.0.forward": record([x, x], [x]),  # made by MindSpore itself, for an index
            "Tensor.__add__.1.forward": record([x, x], [x]),
            "Mint.logical_or.0.forward": record([x, x], [x]),
            "Functional.flash_attention_score.0.forward": record([x, x, x], [y]),
            "Functional.flash_attention_score.0.backward": backward([y], [x, x, x]),
            layer: record([x], [x]),
            attention: record([x], [x]),
        },
        construct={
            "Tensor.__add__.0.forward": layer, "Tensor.__add__.1.forward": layer, "Mint.logical_or.0.forward": layer,
            "Functional.flash_attention_score.0.forward": attention, layer: None, attention: layer,
        },
        **MS,
    )  # fmt: skip
    stacks = {
        "Tensor.__add__.0.forward": [
            "File /x/site-packages/mindspore/ops/_compile_utils.py, line 1, in data_update, \n a",
            "File net.py, line 3, in construct, \n y = x[0]",
        ]
    }
    (tmp_path / "ms" / "stack.json").write_text(json.dumps(stacks))
    one = open_dump(tmp_path / "ms" / "dump.json")
    two = make_dump(
        tmp_path / "pt",
        {
            "Tensor.__add__.0.forward": record([a, a], [a]),
            "Tensor.__or__.0.forward": record([b, b], [b]),
            "NPU.npu_fusion_attention.0.forward": record([b, a, b], [a]),
            "NPU.npu_fusion_attention.0.backward": backward([a], [b, a, b]),
            theirs: record([a], [a]),
        },
        construct={
            "Tensor.__add__.0.forward": theirs, "Tensor.__or__.0.forward": theirs,
            "NPU.npu_fusion_attention.0.forward": flash, theirs: None, flash: theirs,
        },
    )  # fmt: skip
    said = {
        "Block": {"logical_or": "__or__", "attention": "core"},
        "Attention": {"flash_attention_score": "flash.npu_fusion_attention"},
    }

    found = pair_items(one, two, PairingRules(layers=said))

    assert_whole(found, one, two)
    pairs = {
        (one.rpartition("ward.")[0], two.rpartition("ward.")[0]) for one, two in rows(found) if "–" not in (one, two)
    }
    assert pairs == {
        ("Tensor.__add__.1.for", "Tensor.__add__.0.for"),
        ("Mint.logical_or.0.for", "Tensor.__or__.0.for"),
        ("Functional.flash_attention_score.0.for", "NPU.npu_fusion_attention.0.for"),
        ("Functional.flash_attention_score.0.back", "NPU.npu_fusion_attention.0.back"),
        ("Cell.net.layers.0.Block.for", "Module.net.layers.0.Block.for"),
    }
    assert not found.remarks, "an API is a name that the dumps have"
