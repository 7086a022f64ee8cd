"""Which weight is which: by structure, by names, by values; and what is not decided."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

from twintrace.model.errors import UsageError, WeightsError
from twintrace.store.registry import open_trace
from twintrace.weights.conversion import convert
from twintrace.weights.mapping import map_states, predict
from twintrace.weights.states import open_state
from twintrace.weights.uses import Uses

sys.path.append(str(Path(__file__).resolve().parent.parent))  # as the corpus's own tests do


def state(shapes, framework="torch", seed=None):
    """A checkpoint's names and shapes, with random values or zeros."""
    random = np.random.default_rng(seed or 0)
    make = (
        (lambda shape: random.standard_normal(shape).astype(np.float32))
        if seed
        else (lambda shape: np.zeros(shape, np.float32))
    )
    return open_state({name: make(shape) for name, shape in shapes.items()}, framework=framework)


def linear(name, outputs, inputs):
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def paired(found):
    return {pair.left[0]: pair.right for pair in found.pairs if pair.left[0].endswith("weight")}


def test_names_are_enough_where_they_are_the_same():
    left = state(linear("a", 3, 2) | linear("b", 3, 3) | linear("c", 3, 3))
    found = map_states(left, state(linear("c", 3, 3) | linear("b", 3, 3) | linear("a", 3, 2), "mindspore"))
    assert paired(found) == {f"{name}.weight": f"{name}.weight" for name in "abc"}
    assert {(pair.confidence, pair.because) for pair in found.pairs} == {(1.0, "same path")}
    assert found.complete


@pytest.mark.parametrize(("one", "two"), [("", "net."), ("module.", ""), ("model.backbone.", "net.")])
def test_a_prefix_does_not_matter(one, two):
    shapes = linear("x", 3, 3) | linear("y", 3, 3)
    left = state({one + name: shape for name, shape in shapes.items()})
    right = state({two + name: shape for name, shape in shapes.items()}, "mindspore")
    found = map_states(left, right)
    assert paired(found) == {f"{one}{name}.weight": f"{two}{name}.weight" for name in "xy"}
    assert "prefix" in found.pairs[0].because or "for" in found.pairs[0].because


def test_shapes_tell_where_names_do_not():
    left = state(linear("in", 4, 3) | linear("mid", 5, 4) | linear("out", 2, 5))
    found = map_states(left, state(linear("z", 2, 5) | linear("y", 4, 3) | linear("x", 5, 4), "mindspore"))
    assert paired(found) == {"in.weight": "y.weight", "mid.weight": "x.weight", "out.weight": "z.weight"}


def test_what_is_alike_is_told_apart_by_its_number():
    left = state(linear("0", 3, 3) | linear("2", 3, 3) | linear("4", 3, 3))
    found = map_states(left, state(linear("fc3", 3, 3) | linear("fc2", 3, 3) | linear("fc1", 3, 3), "mindspore"))
    assert paired(found) == {"0.weight": "fc1.weight", "2.weight": "fc2.weight", "4.weight": "fc3.weight"}
    assert all(pair.confidence < 0.95 for pair in found.pairs)
    assert "order of their numbers" in found.pairs[0].because


def test_numbers_that_have_moved_are_not_taken_for_names():
    """`1` on the right is the first layer, though the left has a `1` too."""
    found = map_states(
        state(linear("net.0", 3, 3) | linear("net.1", 3, 3)),
        state(linear("net.1", 3, 3) | linear("net.2", 3, 3), "mindspore"),
    )
    assert paired(found) == {"net.0.weight": "net.1.weight", "net.1.weight": "net.2.weight"}


def test_what_is_alike_is_told_apart_by_the_words_of_its_name():
    left = state(linear("q_proj", 3, 3) | linear("k_proj", 3, 3) | linear("v_proj", 3, 3))
    found = map_states(left, state(linear("value", 3, 3) | linear("query", 3, 3) | linear("key", 3, 3), "mindspore"))
    assert paired(found) == {
        "q_proj.weight": "query.weight",
        "k_proj.weight": "key.weight",
        "v_proj.weight": "value.weight",
    }
    assert "called the same: v" in found.pairs[0].because


def test_names_that_resemble_each_other_decide_nothing():
    """The norm before the feed-forward part is the one that LLaMA calls post_attention_layernorm."""
    left = state(
        {"layers.0.attention_norm.weight": (4,), "layers.0.ffn_norm.weight": (4,), "layers.0.w.weight": (4, 3)}
    )
    right = state(
        {
            "h.0.input_layernorm.weight": (4,),
            "h.0.post_attention_layernorm.weight": (4,),
            "h.0.mlp.weight": (4, 3),
        }
    )
    found = map_states(left, right)
    assert paired(found) == {"layers.0.w.weight": "h.0.mlp.weight"}
    assert [len(item.left) for item in found.ambiguous] == [2]


def test_the_only_ones_left_are_no_pair_where_something_else_is_left_over():
    """A pooler and a head for masked words have a matrix of one shape, and are different layers."""
    left = state(linear("body", 3, 2) | linear("pooler", 3, 3))
    right = state(linear("body", 3, 2) | linear("transform", 3, 3) | linear("decoder", 9, 3))
    found = map_states(left, right)
    assert paired(found) == {"body.weight": "body.weight"}
    assert found.ambiguous[0].left == ("pooler.weight", "pooler.bias")
    assert paired(map_states(left, state(linear("body", 3, 2) | linear("transform", 3, 3))))["pooler.weight"]


def test_order_alone_decides_nothing():
    left = state(linear("alpha", 3, 3) | linear("omega", 3, 3))
    found = map_states(left, state(linear("tick", 3, 3) | linear("gnu", 3, 3), "mindspore"))
    assert not found.pairs
    assert not found.complete
    [item] = found.ambiguous
    assert item.left == ("alpha.weight", "alpha.bias", "omega.weight", "omega.bias")
    assert "nothing tells apart" in item.because
    assert next((pair.left[0], pair.right) for pair in item.suggestion) == ("alpha.weight", "tick.weight")
    with pytest.raises(WeightsError, match=r"it is not clear where alpha.weight"):
        convert(left, "never.ckpt", found)


def test_equal_values_decide_what_names_leave_open():
    left = state(linear("alpha", 3, 3) | linear("omega", 3, 3), seed=1)
    values = {name: left.read(name) for name in left.items}
    right = open_state(
        {
            "tick.weight": values["omega.weight"],
            "tick.bias": values["omega.bias"],
            "gnu.weight": values["alpha.weight"],
            "gnu.bias": values["alpha.bias"],
        },
        framework="mindspore",
    )
    found = map_states(left, right)
    assert paired(found) == {"alpha.weight": "gnu.weight", "omega.weight": "tick.weight"}
    assert all(pair.because.startswith("same values") for pair in found.pairs)


def test_nesting_does_not_matter():
    left = state(
        linear("blocks.0.q", 3, 3)
        | linear("blocks.0.k", 3, 3)
        | linear("blocks.1.q", 3, 3)
        | linear("blocks.1.k", 3, 3)
    )
    right = state(
        linear("first.att.key", 3, 3)
        | linear("first.att.query", 3, 3)
        | linear("last.att.key", 3, 3)
        | linear("last.att.query", 3, 3),
        "mindspore",
    )
    assert paired(map_states(left, right)) == {
        "blocks.0.q.weight": "first.att.query.weight",
        "blocks.0.k.weight": "first.att.key.weight",
        "blocks.1.q.weight": "last.att.query.weight",
        "blocks.1.k.weight": "last.att.key.weight",
    }


def test_branches_are_numbered_by_words_too():
    """Only in its own branch is it clear which query, key and value are one weight on the other side."""
    left = state({f"blocks.{n}.attn.in_proj_weight": (12, 4) for n in (0, 1)})
    right = state({f"{n}.{part}.weight": (4, 4) for n in ("first", "last") for part in ("q", "k", "v")})
    found = map_states(left, right)
    assert {pair.right: pair.left[0] for pair in found.pairs} == {
        f"{word}.{part}.weight": f"blocks.{number}.attn.in_proj_weight"
        for number, word in enumerate(("first", "last"))
        for part in ("q", "k", "v")
    }


@pytest.mark.parametrize("other", ["enc", "trunk"])
def test_branches_of_one_size_are_told_apart_by_name_and_by_being_left(other):
    left = state({f"{name}.{n}.in_proj_weight": (12, 4) for name in ("encoder", "decoder") for n in (0, 1)})
    right = state(
        {f"{name}.{n}.{p}.weight": (4, 4) for name in (other, "dec") for n in (0, 1) for p in ("q", "k", "v")}
    )
    found = {pair.right: pair.left[0] for pair in map_states(left, right).pairs}
    assert len(found) == 12
    assert found["dec.1.k.weight"] == "decoder.1.in_proj_weight"
    assert found[f"{other}.0.v.weight"] == "encoder.0.in_proj_weight"


def test_branches_are_of_one_size_with_and_without_biases():
    left = {
        f"blocks.{n}.attn.in_proj_{role}": shape
        for n in (0, 1)
        for role, shape in (("weight", (12, 4)), ("bias", (12,)))
    }
    right = {f"h.{n}.{part}.weight": (4, 4) for n in (0, 1) for part in ("q", "k", "v")}
    found = {pair.right: pair.left[0] for pair in map_states(state(left), state(right)).pairs}
    assert len(found) == 6
    assert found["h.1.k.weight"] == "blocks.1.attn.in_proj_weight"


def test_a_convolution_of_whole_windows_may_be_a_linear_layer():
    left = state({"patch.weight": (6, 3, 2, 2), "patch.bias": (6,), "head.weight": (5, 6)})
    found = map_states(left, state({"cut.weight": (6, 12), "cut.bias": (6,), "head.weight": (5, 6)}))
    assert {pair.right: pair.steps for pair in found.pairs}["cut.weight"] == ("reshape 6 12",)


def test_layers_that_are_numbered_in_another_order_are_paired_by_shape_and_not_by_number():
    left = state({"ffn.w1.weight": (6, 4), "ffn.w2.weight": (4, 6), "ffn.w3.weight": (6, 4)})
    right = state({"mlp.dense1.weight": (6, 4), "mlp.dense2.weight": (6, 4), "mlp.dense3.weight": (4, 6)})
    found = map_states(left, right)
    assert paired(found)["ffn.w2.weight"] == "mlp.dense3.weight"
    assert all(pair.steps == () for pair in found.pairs)


def test_a_prefix_of_a_branch_is_no_prefix_of_the_net():
    """Two heads that begin alike and are called differently."""
    body = {f"body.{n}.weight": (3, n + 2) for n in range(6)}
    left = state(body | {"pooler.a.weight": (4, 4), "pooler.b.weight": (4, 5)})
    right = state(body | {"cls.a.weight": (4, 4), "cls.b.weight": (4, 5), "cls.c.weight": (9, 9)})
    assert {pair.because for pair in map_states(left, right).pairs} == {"same path"}


def test_branches_that_only_their_numbers_pair_are_less_sure():
    shapes = {"q.weight": (4, 4), "k.weight": (4, 4)}
    left = state({f"blocks.{n}.{name}": shape for n in (0, 1) for name, shape in shapes.items()})
    right = state({f"h.{n}.{name}": shape for n in (0, 1) for name, shape in shapes.items()})
    found = map_states(left, right)
    assert {pair.confidence for pair in found.pairs} == {0.85}
    assert all("by the order of their numbers" in pair.because for pair in found.pairs)


def test_parts_of_the_attention_are_not_one_weight_of_the_feed_forward_part():
    left = state({"mlp.w12.weight": (8, 4), "head.weight": (3, 4)})
    found = map_states(left, state({"attn.k.weight": (4, 4), "attn.v.weight": (4, 4), "head.weight": (3, 4)}))
    assert found.ambiguous == ()
    assert [item.name for item in found.only_left] == ["mlp.w12.weight"]


def test_a_weight_with_a_counterpart_in_one_piece_is_not_taken_for_parts_of_another():
    """A matrix with as many rows as key and value together, beside them."""
    left = state(
        {"b.0.core.weight": (12, 4), "b.0.up.weight": (8, 4), "b.1.core.weight": (12, 4), "b.1.up.weight": (8, 4)}
    )
    right = {f"h.{n}.{p}.weight": (4, 4) for n in (0, 1) for p in ("q", "k", "v")}
    found = map_states(left, state(right | {"h.0.mlp.weight": (8, 4), "h.1.mlp.weight": (8, 4)}))
    assert paired(found) == {"b.0.up.weight": "h.0.mlp.weight", "b.1.up.weight": "h.1.mlp.weight"}
    assert [len(item.right) for item in found.ambiguous] == [3, 3]


def test_the_only_ones_left_are_no_pair_if_their_names_contradict():
    left = state({"x.q_proj.weight": (4, 4), "y.weight": (5, 4)})
    assert not paired(map_states(left, state({"a.key.weight": (4, 4), "b.weight": (5, 4)}))).get("x.q_proj.weight")
    assert paired(map_states(left, state({"a.lookup.weight": (4, 4), "b.weight": (5, 4)}))).get("x.q_proj.weight")


def test_names_that_are_the_same_and_shapes_that_do_not_fit_are_a_misfit_and_no_pair():
    left = state({"fc.weight": (3, 2), "fc.bias": (3,)})
    found = map_states(left, state({"fc.weight": (3, 4), "fc.bias": (3,)}, "mindspore"))
    assert [pair.right for pair in found.pairs] == ["fc.bias"]
    assert found.misfits == ("fc.weight is f32[3, 2], fc.weight is f32[3, 4]",)
    assert not found.complete


def test_nothing_is_dropped():
    left = state(linear("a", 3, 2) | linear("extra", 7, 7))
    found = map_states(left, state(linear("a", 3, 2) | linear("more", 9, 9), "mindspore"))
    assert [item.name for item in found.only_left] == ["extra.weight", "extra.bias"]
    assert [item.name for item in found.only_right] == ["more.weight", "more.bias"]
    assert not any(item.harmless for item in found.only_left)


def test_how_parts_lie_in_one_piece_is_suggested_and_not_guessed():
    left = state(linear("attn.qkv", 12, 4) | linear("out", 3, 4))
    right = state(
        linear("attn.q", 4, 4) | linear("attn.k", 4, 4) | linear("attn.v", 4, 4) | linear("out", 3, 4), "mindspore"
    )
    found = map_states(left, right)
    assert paired(found) == {"out.weight": "out.weight"}
    [fused] = found.ambiguous
    assert fused.because == "attn.q, attn.k, attn.v in one piece: one after the other, or head by head, nothing tells"
    assert [(pair.right, pair.steps) for pair in fused.suggestion[:2]] == [
        ("attn.q.weight", ("rows 0:4",)),
        ("attn.k.weight", ("rows 4:8",)),
    ]
    [back] = map_states(right, left).ambiguous
    assert back.suggestion[0].left == ("attn.q.weight", "attn.k.weight", "attn.v.weight")
    assert back.suggestion[0].steps == ("stack",)


def test_what_cannot_be_known_from_a_file_alone_is_said():
    found = predict(
        state({"table.weight": (9, 4), "embed.weight": (9, 4), "prelu.weight": (4,), "x.weight": (4,)}), "mindspore"
    )
    assert {pair.right for pair in found.pairs} == {"embed.embedding_table", "prelu.w"}
    assert [item.left for item in found.ambiguous] == [("table.weight",), ("x.weight",)]
    assert "Linear's or an Embedding's" in found.ambiguous[0].because


def test_two_names_that_become_one_are_refused():
    with pytest.raises(WeightsError, match=r"a.weight and b.weight would both be called x"):
        predict(
            state(linear("a", 2, 2) | linear("b", 2, 2)),
            "mindspore",
            rename=lambda name: name[2:].replace("weight", "x"),
        )


def test_what_holds_no_weights_is_refused():
    with pytest.raises(UsageError, match="expected a net, the path of a checkpoint or a dict of tensors, got int"):
        open_state(3)
    with pytest.raises(UsageError, match="w is a str"):
        open_state({"w": "text"})
    with pytest.raises(UsageError, match="expected names as keys"):
        open_state({3: np.zeros(2, np.float32)})
    with pytest.raises(WeightsError, match="is empty"):
        open_state({})


# --- real networks, written twice -------------------------------------------------------------------------------------

# What names and shapes do not tell: how parts lie in one weight, which of two halves that differ in nothing but their names is
# which, and which of two norms in a block, of which one side says what they are for and the other numbers them.
OPEN = {
    "deepfm", "llama", "lstm_by_hand", "vae", "channels_last", "dueling_dqn", "inception", "mixer", "mobilenet_v3",
}  # fmt: skip
USED = {"mixer": 30, "mobilenet_v3": 45}
"""Networks that the order of use settles, and how many weights they have."""


def corpus():
    from corpus.notation import pair_names

    return pair_names()


@pytest.mark.needs_torch
@pytest.mark.needs_mindspore
@pytest.mark.filterwarnings("ignore")  # what the networks' own constructors warn about
@pytest.mark.parametrize("name", corpus())
def test_networks_that_were_written_twice_are_mapped_and_never_wrongly(name):
    from corpus.notation import side, truth_of

    pytest.importorskip("torch")
    pytest.importorskip("mindspore")
    importlib.invalidate_caches()
    truth = truth_of(name)
    left, right = open_state(side(name, "torch").build()), open_state(side(name, "mindspore").build())
    wanted = {line.right: line for line in truth.parameters(set(left.items), set(right.items))}

    def same(one, two):
        return left.items[one].same_as == two or left.items[two].same_as == one or one == two

    for found, backwards in ((map_states(left, right), False), (map_states(right, left), True)):
        plain = [pair for pair in found.pairs if len(pair.left) == 1 and not any("rows" in step for step in pair.steps)]
        pairs = [(pair.right, pair.left[0]) if backwards else (pair.left[0], pair.right) for pair in plain]
        wrong = [(one, two) for one, two in pairs if two not in wanted or not same(one, wanted[two].left)]
        assert wrong == []
        assert found.complete is not (name in OPEN), found
        told = {name for pair in found.pairs for name in pair.left} | {item.name for item in found.only_left}
        told |= {name for item in found.ambiguous for name in item.left}
        assert told == set((right if backwards else left).items)  # nothing is dropped


@pytest.mark.slow
@pytest.mark.needs_torch
@pytest.mark.needs_mindspore
@pytest.mark.filterwarnings("ignore")
def test_most_weights_of_the_corpus_are_found_without_help_and_the_rest_is_told():
    from corpus.notation import pair_names, side, truth_of

    found = wanted = alone = 0
    for name in pair_names():
        left, right = open_state(side(name, "torch").build()), open_state(side(name, "mindspore").build())
        wanted += len({line.right for line in truth_of(name).parameters(set(left.items), set(right.items))})
        made = map_states(left, right)
        found += len(made.pairs)
        alone += sum(not item.harmless for item in made.only_right)
    assert found / wanted > 0.89
    assert alone == 0


@pytest.mark.slow
@pytest.mark.needs_torch
@pytest.mark.needs_mindspore
@pytest.mark.filterwarnings("ignore")
def test_the_order_of_use_decides_what_names_leave_open(tmp_path):
    from corpus.notation import side, truth_of
    from corpus.record import recordings

    traces = recordings(sorted(USED), tmp_path)
    for name, count in USED.items():
        left, right = open_state(side(name, "torch").build()), open_state(side(name, "mindspore").build())
        truth = {line.right: line.left for line in truth_of(name).parameters(set(left.items), set(right.items))}
        found = map_states(left, right, Uses(*map(open_trace, traces[name])))
        assert {pair.right: pair.left[0] for pair in found.pairs} == truth
        assert len(truth) == count
        assert any(pair.because.startswith("alike, and used in the same order") for pair in found.pairs)
