"""Carrying weights over: files of every format, both directions; all or nothing; maps as files; element types keep their bits."""

from __future__ import annotations

import json

import numpy as np
import pytest

import twintrace as tt
from twintrace import api
from twintrace.frameworks.reference.miniature import LayerNorm, Linear, Module
from twintrace.model.errors import CheckpointError, UsageError, WeightsError
from twintrace.model.tensors import Spec
from twintrace.model.weights import Pair, WeightMap
from twintrace.weights.checkpoints import open_checkpoint, writing
from twintrace.weights.conversion import convert
from twintrace.weights.extents import pieces
from twintrace.weights.mapfile import read_map, write_weight_map
from twintrace.weights.states import open_state
from twintrace.weights.transforms import apply, cast, inverse, parse, result

WEIGHTS = {
    "embed.weight": np.arange(12, dtype=np.float32).reshape(4, 3),
    "conv.weight": np.arange(30, dtype=np.float32).reshape(2, 3, 5),
    "conv.bias": np.ones(2, np.float32),
    "norm.weight": np.full(3, 2.0, np.float32),
    "norm.bias": np.full(3, 3.0, np.float32),
}
NAMES = {"embed.weight": "embed.embedding_table", "norm.weight": "norm.gamma", "norm.bias": "norm.beta"}


def written(path, values=WEIGHTS, framework="torch"):
    state = open_state(values, framework=framework)
    with writing(path, {name: item.spec for name, item in state.items.items()}, framework=framework) as out:
        for name, value in values.items():
            out.put(name, pieces(value))
    return path


@pytest.mark.parametrize("source", ["net.pth", "net.safetensors"])
@pytest.mark.parametrize("target", ["net.ckpt", "out.safetensors"])
def test_from_torch_to_mindspore_and_back_nothing_has_changed(tmp_path, source, target):
    start = written(tmp_path / source)
    there = tt.convert_weights(start, tmp_path / target, to="mindspore")
    found = open_checkpoint(tmp_path / target)
    assert set(found.specs) == {NAMES.get(name, name) for name in WEIGHTS}
    assert found.specs["conv.weight"].shape == (2, 3, 1, 5)
    assert there.nbytes == sum(value.nbytes for value in WEIGHTS.values())
    # The kind of a [2, 3, 1, 5] weight cannot be told from a MindSpore file: the torch file that it is for says it.
    tt.convert_weights(tmp_path / target, tmp_path / "back.pth", like=start)
    back = open_checkpoint(tmp_path / "back.pth")
    assert {name: back.read(name).tobytes() for name in back.specs} == {n: v.tobytes() for n, v in WEIGHTS.items()}
    assert {name: spec.shape for name, spec in back.specs.items()} == {n: v.shape for n, v in WEIGHTS.items()}


def test_shards_are_converted_as_one(tmp_path):
    files = {"a.safetensors": list(WEIGHTS)[:2], "b.safetensors": list(WEIGHTS)[2:]}
    for file, names in files.items():
        written(tmp_path / file, {name: WEIGHTS[name] for name in names})
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {name: file for file, names in files.items() for name in names}}))
    tt.convert_weights(index, tmp_path / "net.ckpt")
    assert set(open_checkpoint(tmp_path / "net.ckpt").specs) == {NAMES.get(name, name) for name in WEIGHTS}


@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32", "f64", "i64", "b8"])
def test_bits_are_kept(tmp_path, dtype):
    spec = Spec(dtype, (3, 4))
    raw = np.random.default_rng(0).integers(
        0, 2, 12 * {"bf16": 2, "f16": 2, "f32": 4, "f64": 8, "i64": 8, "b8": 1}[dtype]
    )
    raw = raw.astype(np.uint8).tobytes()
    with writing(tmp_path / "net.pth", {"fc.weight": spec, "fc.bias": spec}) as out:
        out.put("fc.weight", [raw])
        out.put("fc.bias", [raw])
    tt.convert_weights(tmp_path / "net.pth", tmp_path / "net.ckpt")
    found = open_checkpoint(tmp_path / "net.ckpt")
    assert found.specs["fc.weight"] == spec
    assert found.read("fc.weight").tobytes() == raw


def test_a_data_parallel_wrapper_does_not_matter(tmp_path):
    write_weight_map(tt.map_weights(written(tmp_path / "net.pth")), tmp_path / "map.json")
    wrapped = written(tmp_path / "wrapped.pth", {f"module.{name}": value for name, value in WEIGHTS.items()})
    found = tt.convert_weights(wrapped, tmp_path / "net.ckpt", map=tmp_path / "map.json")
    assert "norm.gamma" in open_checkpoint(tmp_path / "net.ckpt").specs
    assert any("module." in note for note in found.notes)


def test_progress_is_told_and_ends_at_the_whole(tmp_path):
    told = []
    tt.convert_weights(written(tmp_path / "net.pth"), tmp_path / "net.ckpt", progress=lambda *args: told.append(args))
    assert told[-1][1] == told[-1][2] == sum(value.nbytes for value in WEIGHTS.values())


def test_a_file_that_is_there_is_overwritten_only_by_force(tmp_path):
    source, target = written(tmp_path / "net.pth"), tmp_path / "net.ckpt"
    target.write_bytes(b"precious")
    with pytest.raises(UsageError, match=r"is there already.*force=True"):
        tt.convert_weights(source, target)
    assert target.read_bytes() == b"precious"
    tt.convert_weights(source, target, force=True)
    assert set(open_checkpoint(target).specs) == {NAMES.get(name, name) for name in WEIGHTS}


def test_what_is_read_is_not_written_over(tmp_path):
    path = written(tmp_path / "net.safetensors")
    with pytest.raises(UsageError, match="is the file that is read"):
        tt.convert_weights(path, path, to="mindspore", force=True)
    assert set(open_checkpoint(path).specs) == set(WEIGHTS)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pairs": []}, "maps nothing"),
        (
            {"pairs": [{"left": "embed.weight", "right": "x", "steps": ["explode"]}]},
            r"pairs\[0\]: there is no transform 'explode'",
        ),
        ({"pairs": [{"left": "a", "right": "x"}, {"left": "b", "right": "x"}]}, "a and b are both mapped to x"),
        ({"pairs": [{"left": "gone", "right": "x"}]}, "does not have: gone"),
        ({"pairs": [{"left": "embed.weight", "right": "x"}]}, "4 weights of .* are not in the map: conv.weight"),
        ({"pairs": [{"left": 3, "right": "x"}]}, "expected a name or a list of names, got 3"),
        ({"pairs": [{"left": "a", "right": "x", "speed": 1}]}, r"got \['speed'\]"),
        ({"pairs": [{"left": "a", "right": None}]}, "right: expected a text, got None"),
        ({"pairs": 3}, "pairs: expected a list"),
        ({"version": 9}, "version 9 of a weight map; this release reads 1"),
        ({"format": "other"}, "is no weight map"),
        ({"surprise": 1}, "unknown keys surprise"),
    ],
)
def test_a_map_that_cannot_work_is_refused_and_nothing_is_written(tmp_path, change, message):
    source = written(tmp_path / "net.pth")
    write_weight_map(tt.map_weights(source), tmp_path / "map.json")
    content = json.loads((tmp_path / "map.json").read_text()) | change
    (tmp_path / "map.json").write_text(json.dumps(content))
    with pytest.raises(WeightsError, match=message):
        tt.convert_weights(source, tmp_path / "net.ckpt", map=tmp_path / "map.json")
    assert not (tmp_path / "net.ckpt").exists()


def test_maps_that_are_no_maps_are_said_to_be_none(tmp_path):
    for text, message in (("{", "is not JSON"), ("3", "is no weight map"), ('{"a": 1, "a": 2}', "'a' is there twice")):
        (tmp_path / "map.json").write_text(text)
        with pytest.raises(WeightsError, match=message):
            read_map(tmp_path / "map.json")
    with pytest.raises(WeightsError, match="there is no such map"):
        read_map(tmp_path / "gone.json")


def test_a_map_that_is_written_is_read_as_it_was(tmp_path):
    found = tt.map_weights(WEIGHTS, {NAMES.get(name, name): value for name, value in WEIGHTS.items()})
    write_weight_map(found, tmp_path / "map.json")
    assert read_map(tmp_path / "map.json").pairs == found.pairs
    assert read_map(tmp_path / "map.json").only_left == found.only_left


def test_a_damaged_file_is_found_out_and_nothing_is_written(tmp_path):
    path = written(tmp_path / "net.pth")
    raw = path.read_bytes()
    path.write_bytes(raw.replace(WEIGHTS["conv.weight"].tobytes(), WEIGHTS["conv.weight"].tobytes()[::-1]))
    with pytest.raises(CheckpointError, match="not those that were written"):
        tt.convert_weights(path, tmp_path / "net.ckpt")
    assert [item.name for item in tmp_path.iterdir()] == ["net.pth"]


def test_shapes_that_do_not_fit_are_refused(tmp_path):
    bad = WeightMap("a", "b", (Pair(("embed.weight",), "x", ("drop axis 0",)),))
    with pytest.raises(WeightsError, match=r"embed.weight -> x: 'drop axis 0' cannot be done to f32\[4, 3\]"):
        convert(open_state({"embed.weight": WEIGHTS["embed.weight"]}), tmp_path / "net.ckpt", bad)


def test_partly_is_possible_when_it_is_said(tmp_path):
    values = WEIGHTS | {"thing.weight": np.ones(3, np.float32)}
    with pytest.raises(WeightsError, match=r"(?s)thing.weight.*partial=True"):
        tt.convert_weights(values, tmp_path / "net.ckpt")
    found = tt.convert_weights(values, tmp_path / "net.ckpt", partial=True)
    assert len(found.rows) == len(WEIGHTS)
    assert "ambiguous      thing.weight" in api.conversion_text(found)


def test_what_the_verbs_give_back_prints_as_one_line(tmp_path):
    values = {"fc.weight": np.ones((3, 2), np.float32), "fc.bias": np.ones(3, np.float32)}
    target = tmp_path / "net.ckpt"
    given = f"the given dict -> {target}: "
    done = tt.convert_weights(values, target)
    assert str(done) == given + "2 weights carried over, 36 bytes"
    assert repr(done) == f"<Conversion {done}>"
    assert str(tt.map_weights(values, target)) == given + "2 weights mapped, complete"
    assert str(tt.compare_weights(values, target)) == f"the given dict and {target} agree: 2 equal"
    assert str(tt.certify_weights(values, target)) == given + "certified, 2 weights"
    values["fc.bias"] = np.full(3, 2, np.float32)
    assert str(tt.compare_weights(values, target)) == f"the given dict and {target} do not agree: 1 equal, 1 different"
    assert str(tt.certify_weights(values, target)).startswith(given + "not certified: fc.bias is 0.5 times")
    values["odd.thing"] = np.ones(4, np.float32)
    assert str(tt.map_weights(values, target)) == given + "2 weights mapped, not complete (1 only left)"


# --- into nets, with the reference framework --------------------------------------------------------------------------


class Net(Module):
    def __init__(self):
        self.first, self.norm = Linear(3, 4), LayerNorm(4)

    def forward(self, x):
        return self.norm(self.first(x))


def test_a_net_is_filled_from_a_file_and_laid_out_as_it_needs():
    """The miniature keeps a linear layer's weight transposed."""
    net = Net()
    weight = np.arange(12, dtype=np.float32).reshape(4, 3)
    values = {"first.weight": weight, "first.bias": np.ones(4, np.float32), "norm.weight": np.full(4, 2.0, np.float32),
              "norm.bias": np.zeros(4, np.float32)}  # fmt: skip
    found = tt.convert_weights(values, net)
    assert {pair.right: pair.transform for pair in found.map.pairs}["first.weight"] == "permute 1 0"
    assert np.array_equal(net.first.weight.array, weight.T)
    assert np.array_equal(net.norm.weight.array, values["norm.weight"])


def test_a_net_that_cannot_be_filled_is_left_alone(tmp_path):
    net = Net()
    before = net.first.weight.array.copy()
    values = {"first.weight": np.ones((4, 3), np.float32), "first.bias": np.ones(4, np.float32)}
    with pytest.raises(WeightsError, match=r"nothing fills norm.weight"):
        tt.convert_weights(values, net)
    path = written(
        tmp_path / "net.pth", {**values, "norm.weight": np.ones(4, np.float32), "norm.bias": np.ones(4, np.float32)}
    )
    raw = path.read_bytes()
    path.write_bytes(raw.replace(values["first.weight"].tobytes(), bytes(48)))
    with pytest.raises(CheckpointError, match="not those that were written"):
        tt.convert_weights(path, net)
    assert np.array_equal(net.first.weight.array, before)


def test_a_trial_of_two_nets_of_one_framework():
    left, right = Net(), Net()
    tt.convert_weights(left, right)
    x = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    found = tt.certify_weights(left, right, inputs=[x])
    assert found.granted, found
    assert {row.what for row in found.trial} == {"output", "gradient of input", "gradient of"}
    right.norm.eps = 0.1
    found = tt.certify_weights(left, right, inputs=[x])
    assert not found.granted
    assert not found.mistakes
    assert "the nets are set differently" in api.certificate_text(found)


def test_a_trial_wants_nets_and_inputs_that_fit():
    net = Net()
    with pytest.raises(UsageError, match="the nets themselves are needed"):
        tt.certify_weights({"first.weight": np.ones((3, 4), np.float32)}, net, inputs=[np.ones((2, 3))])
    with pytest.raises(UsageError, match=r"the reference net Net does not run with float32\[2, 9\]"):
        tt.certify_weights(net, net, inputs=[np.ones((2, 9), np.float32)])
    assert any("no inputs were given" in note for note in tt.certify_weights(net, net).notes)


def test_a_checkpoint_that_is_not_its_nets_is_refused():
    net = Net()
    full = {name: tensor.array.copy() for name, tensor in net.tensors().items()}
    state = open_state(full, framework="reference")
    assert tt.certify_weights(state, state, nets=(Net(), Net()), inputs=[np.ones((2, 3), np.float32)]).granted
    part = open_state({name: value for name, value in full.items() if name != "norm.bias"}, framework="reference")
    with pytest.raises(WeightsError, match=r"nothing fills norm.bias"):
        tt.certify_weights(part, state, nets=(Net(), Net()))


# --- transforms -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "shape", "expected"),
    [
        (("insert axis 2",), (2, 3, 5), (2, 3, 1, 5)),
        (("drop axis 2",), (2, 3, 1, 5), (2, 3, 5)),
        (("permute 1 0",), (2, 3), (3, 2)),
        (("reshape 6",), (2, 3), (6,)),
        (("rows 1:3",), (4, 3), (2, 3)),
        (("lengths 0",), (4, 3), (4, 1)),
        (("lengths None",), (4, 3), ()),
        (("cast f16", "insert axis 0"), (2,), (1, 2)),
    ],
)
def test_a_step_does_what_its_result_says(steps, shape, expected):
    array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    spec = Spec("f32", shape)
    assert result(steps, [spec]).shape == expected
    assert apply(steps, [array], [spec]).shape == expected
    back = inverse(steps)
    if back is not None:
        assert np.array_equal(apply(back, [apply(steps, [array], [spec])], [result(steps, [spec])]), array)


@pytest.mark.parametrize(
    ("step", "shape"),
    [("drop axis 0", (2, 3)), ("drop axis 5", (1,)), ("insert axis 9", (2,)), ("rows 3:9", (4,)), ("permute 0 0", (2, 2)),
     ("reshape 5", (2, 2))],
)  # fmt: skip
def test_a_step_that_cannot_be_done_is_refused(step, shape):
    with pytest.raises(WeightsError, match="cannot be done to"):
        result((step,), [Spec("f32", shape)])


@pytest.mark.parametrize(
    "step", ["", "fly", "insert axis", "insert axis -1", "cast q7", "rows 1", "permute", "weight_norm x"]
)
def test_a_step_that_there_is_not_is_refused(step):
    with pytest.raises(WeightsError, match="there is no transform"):
        parse(step)


def test_stacking_and_taking_rows_are_each_others_inverse():
    q, k = np.ones((2, 3), np.float32), np.zeros((2, 3), np.float32)
    spec = Spec("f32", (2, 3))
    both = apply(("stack",), [q, k], [spec, spec])
    assert both.shape == (4, 3)
    assert np.array_equal(apply(("rows 0:2",), [both], [Spec("f32", (4, 3))]), q)


@pytest.mark.needs_torch
def test_rounding_to_bfloat16_is_torchs():
    torch = pytest.importorskip("torch")
    values = np.random.default_rng(0).standard_normal(10000).astype(np.float32)
    values[:4] = [np.nan, np.inf, -np.inf, 3.4e38]
    ours = cast(values, "f32", "bf16")
    theirs = torch.tensor(values).bfloat16().view(torch.int16).numpy().view(np.uint16)
    same = (ours == theirs) | np.isnan(values)
    assert same.all()
    assert (ours[0] & 0x7FFF) > 0x7F80  # still not a number
