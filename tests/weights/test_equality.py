"""Equal values: what they settle, what they contradict, and what they do not tell."""

from __future__ import annotations

import numpy as np
import pytest

from twintrace.weights.certificate import certify
from twintrace.weights.conversion import value
from twintrace.weights.derivation import derivation
from twintrace.weights.mapping import declare, map_states
from twintrace.weights.states import open_state

RANDOM = np.random.default_rng(3)


def numbers(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def states(left, right, other="torch"):
    return open_state(left, framework="torch"), open_state(right, framework=other)


def certificate(left, right):
    sides = states(left, right)
    return certify(*sides, declare(*sides))


def turned(found):
    """{right: (left, steps)} of a map."""
    return {pair.right: (pair.left, pair.steps) for pair in found.pairs}


# --- layouts ----------------------------------------------------------------------------------------------------------

WHOLE, KERNEL = numbers(6, 4), numbers(8, 3, 5, 2)


@pytest.mark.parametrize(
    ("one", "two", "steps"),
    [
        (WHOLE, WHOLE, ()),
        (WHOLE, WHOLE.T, ("permute 1 0",)),
        (WHOLE, WHOLE[None, :, :, None], ("reshape 1 6 4 1",)),
        (KERNEL, KERNEL.transpose(0, 2, 3, 1), ("permute 0 2 3 1",)),
        (KERNEL, KERNEL.transpose(2, 3, 1, 0), ("permute 2 3 1 0",)),
        (KERNEL, KERNEL.reshape(8, 30), ("reshape 8 30",)),
    ],
)
def test_a_weight_is_found_in_any_layout(one, two, steps):
    rival = numbers(*one.shape)
    left = {"alpha.weight": one, "omega.weight": rival}
    right = {"tick.weight": numbers(*two.shape), "gnu.weight": np.ascontiguousarray(two)}
    assert turned(map_states(*states(left, right))) == {"gnu.weight": (("alpha.weight",), steps)}


@pytest.mark.parametrize("name", ["norm", "net.norm"])
@pytest.mark.parametrize("shape", [(1, 6, 1, 1), (1, 1, 1, 6)])
def test_axes_of_one_element_are_no_other_layout(name, shape):
    """Somebody's own norm keeps its weight ready to be multiplied, whatever it is called."""
    left = {"norm.weight": numbers(6), "norm.bias": numbers(6), "fc.weight": numbers(3, 6)}
    right = {key.replace("norm", name): array.reshape(shape) if "norm" in key else array for key, array in left.items()}

    for one, two in ((left, right), (right, left)):
        assert certificate(one, two).code == 0, certificate(one, two)
    assert certificate(left, left | {"norm.weight": left["norm.weight"].reshape(2, 3)}).code != 0


def test_a_square_matrix_is_not_taken_as_it_is_where_others_are_kept_transposed():
    """GPT-2's layers keep their weights transposed. Of a square one only the values tell."""
    names = {"c_fc": (4, 8), "c_proj": (4, 4)}
    left = {f"h.{name}.weight": numbers(*shape) for name, shape in names.items()}
    left |= {f"h.{name}.bias": numbers(shape[1]) for name, shape in names.items()}
    right = {"m.up.weight": left["h.c_fc.weight"].T, "m.up.bias": left["h.c_fc.bias"]}
    right |= {"m.out.weight": left["h.c_proj.weight"].T, "m.out.bias": left["h.c_proj.bias"]}
    blank = {name: numbers(*array.shape) for name, array in right.items()}
    found = map_states(*states(left, blank))
    assert turned(found) == {"m.up.weight": (("h.c_fc.weight",), ("permute 1 0",)), "m.up.bias": (("h.c_fc.bias",), ())}
    assert found.ambiguous[0].because == "square, and may be transposed as others are"
    assert turned(map_states(*states(left, right)))["m.out.weight"] == (("h.c_proj.weight",), ("permute 1 0",))


def test_two_matrices_that_the_other_framework_may_keep_transposed_are_not_told_apart_by_shape():
    left = {"a.wi.weight": numbers(8, 4), "a.wo.weight": numbers(4, 8), "norm.weight": numbers(4)}
    right = {"b.mapping.weight": numbers(4, 8), "b.projection.weight": numbers(8, 4), "norm.gamma": numbers(4)}
    found = map_states(*states(left, right, "mindspore"))
    assert [pair.right for pair in found.pairs] == ["norm.gamma"]
    assert len(found.ambiguous) == 1
    both = map_states(*states(left, {name.replace("gamma", "weight"): array for name, array in right.items()}))
    assert turned(both)["b.mapping.weight"] == (("a.wo.weight",), ())  # in one framework both keep them alike


# --- one weight and several -------------------------------------------------------------------------------------------


def by_heads(parts, heads):
    pieces = [part.reshape(heads, -1, *part.shape[1:]) for part in parts]
    return np.concatenate(pieces, 1).reshape(-1, *parts[0].shape[1:])


@pytest.mark.parametrize("heads", [1, 2, 4], ids=["one after the other", "by two", "by four"])
@pytest.mark.parametrize("sizes", [(8, 8, 8), (8, 4, 4)], ids=["alike", "grouped"])
@pytest.mark.parametrize("transposed", [False, True])
def test_parts_are_found_however_they_lie_in_one_weight_and_back(heads, sizes, transposed):
    parts = [numbers(size, 5) for size in sizes]
    biases = [numbers(size) for size in sizes]
    several = {f"attn.{name}.weight": part for name, part in zip("qkv", parts, strict=True)}
    several |= {f"attn.{name}.bias": part for name, part in zip("qkv", biases, strict=True)}
    whole = by_heads(parts, heads)
    one = {
        "core.qkv.weight": np.ascontiguousarray(whole.T) if transposed else whole,
        "core.qkv.bias": by_heads(biases, heads),
    }
    for left, right in ((one, several), (several, one)):
        sides = states(left, right)
        found = declare(*sides)
        assert {pair.right for pair in found.pairs} == set(right)
        for pair in found.pairs:
            assert np.array_equal(value(sides[0], pair), right[pair.right])
        assert certify(*sides, found).granted


def test_parts_that_lie_in_another_order_than_their_names_have_are_not_certified():
    q, k, v = numbers(4, 5), numbers(4, 5), numbers(4, 5)
    several = {"attn.q.weight": q, "attn.k.weight": k, "attn.v.weight": v}
    for left, right in (
        ({"x.qkv.weight": np.concatenate([k, q, v])}, several),
        (several, {"x.qkv.weight": np.concatenate([k, q, v])}),
    ):
        found = certificate(left, right)
        assert not found.granted
        assert any("they lie in the order k q v, by name q k v" in text for text in found.mistakes), found.mistakes


def test_a_weight_of_which_a_part_is_missing_is_not_carried_over_in_part():
    q, k, v = numbers(4, 5), numbers(4, 5), numbers(4, 5)
    left, right = {"x.qkv.weight": np.concatenate([q, k, v])}, {"a.q.weight": q, "a.k.weight": k, "a.v.weight": -v}
    assert map_states(*states(left, right)).pairs == ()
    assert not certificate(left, right).granted


# --- what contradicts -------------------------------------------------------------------------------------------------


def test_a_query_that_holds_the_key_is_not_certified_under_other_names():
    q, k = numbers(4, 5), numbers(4, 5)
    left = {"attn.q_proj.weight": q, "attn.k_proj.weight": k}
    assert certificate(left, {"self.query.weight": q, "self.key.weight": k}).granted
    found = certificate(left, {"self.query.weight": k, "self.key.weight": q})
    assert not found.granted
    assert any(
        "has the values of attn.k_proj.weight" in text and "called the same: q" in text for text in found.mistakes
    )


def test_a_square_matrix_that_was_not_transposed_with_the_others_is_not_certified():
    """Carrying GPT-2's layers over to linear ones, a square weight fits as it is."""
    left = {"h.c_fc.weight": numbers(4, 8), "h.c_proj.weight": numbers(4, 4)}
    right = {"m.up.weight": left["h.c_fc.weight"].T, "m.out.weight": left["h.c_proj.weight"].T}
    assert certificate(left, right).granted
    found = certificate(left, {**right, "m.out.weight": left["h.c_proj.weight"]})
    assert not found.granted
    assert any("it is not transposed, and others are" in text for text in found.mistakes), found.mistakes


def test_a_square_matrix_that_was_transposed_alone_is_not_certified():
    left = {"a.weight": numbers(4, 4), "b.weight": numbers(4, 8)}
    for more in (("a.weight",), ("a.weight", "b.weight")):
        some = {name: left[name] for name in more}
        right = {f"x.{name}": array for name, array in some.items()} | {"x.a.weight": left["a.weight"].T}
        right = {name.replace("x.a", "x.first").replace("x.b", "x.second"): array for name, array in right.items()}
        assert not certificate(some, right).granted


def test_a_layer_that_holds_another_is_no_tie():
    left = {"a.fc1.weight": numbers(4, 5), "a.fc2.weight": numbers(4, 5)}
    found = certificate(left, {"b.lin1.weight": left["a.fc1.weight"], "b.lin2.weight": left["a.fc1.weight"]})
    assert found.mistakes == ("b.lin2.weight holds the values of b.lin1.weight",)
    left = {"fc.weight": numbers(4, 5), "a.mid.weight": numbers(4, 5)}
    found = certificate(left, {"fc.weight": left["fc.weight"], "b.inner.weight": left["fc.weight"]})
    assert found.mistakes == ("b.inner.weight holds the values of fc.weight",)


def test_layers_that_exchanged_their_biases_alone_are_not_certified():
    left = {
        f"{name}.{role}": numbers(*shape)
        for name in ("alpha", "omega")
        for role, shape in (("weight", (4, 4)), ("bias", (4,)))
    }
    right = {"tick.weight": left["alpha.weight"], "tick.bias": left["omega.bias"],
             "gnu.weight": left["omega.weight"], "gnu.bias": left["alpha.bias"]}  # fmt: skip
    found = certificate(left, right)
    assert not found.granted
    assert any("have the values of different layers" in text for text in found.mistakes), found.mistakes
    right["tick.bias"], right["gnu.bias"] = right["gnu.bias"], right["tick.bias"]
    assert certificate(left, right).granted


def test_a_weight_that_holds_the_bias_is_not_certified():
    one, two = numbers(4), numbers(4)
    left = {"norm.weight": one, "norm.bias": two}
    assert certificate(left, {"ln.weight": one, "ln.bias": two}).granted
    assert "ln.weight and ln.bias are swapped" in certificate(left, {"ln.weight": two, "ln.bias": one}).mistakes
    found = certificate(left, {"ln.weight": one, "ln.bias": one})
    assert any(text.startswith("ln.bias holds the values of ln.weight") for text in found.mistakes), found.mistakes


def test_what_is_not_clear_is_no_expectation():
    """Two layers that nothing tells apart, with values that are nowhere: not clear, and no word of what they should be."""
    left = {"alpha.weight": numbers(4, 4), "omega.weight": numbers(4, 4)}
    found = certificate(left, {"tick.weight": left["omega.weight"], "gnu.weight": numbers(4, 4)})
    assert not found.granted
    assert not any("holds the values" in text or "swapped" in text for text in found.mistakes), found.mistakes


# --- what identifies nothing ------------------------------------------------------------------------------------------


def test_values_that_are_the_same_everywhere_follow_their_layer():
    """Biases of zeros and weights of ones, as a net has before training: equal for any pairing, so certified."""
    left = {f"{name}.weight": numbers(4, 4) for name in ("alpha", "omega")}
    right = {"tick.weight": left["omega.weight"], "gnu.weight": left["alpha.weight"]}
    for side in (left, right):
        side |= {name.replace("weight", "bias"): np.zeros(4, np.float32) for name in list(side)}
    found = declare(*states(left, right))
    assert turned(found)["tick.bias"] == (("omega.bias",), ())
    norms = [
        {name: np.ones(4, np.float32) for name in names}
        for names in (("a.norm.weight", "b.norm.weight"), ("x.ln.weight", "y.ln.weight"))
    ]
    assert certificate(*norms).granted
    norms[1]["x.ln.weight"] = np.full(4, 2, np.float32)
    assert not certificate(*norms).granted


def test_a_tied_weight_that_the_other_side_keeps_twice_is_told_as_tied():
    table, fc = numbers(9, 4), numbers(4, 3)
    left = {"embed.weight": table, "body.weight": fc}
    right = {"embed.weight": table, "body.weight": fc, "lm_head.weight": table}
    sides = states(left, right, "mindspore")
    [pair] = [pair for pair in declare(*sides).pairs if pair.right == "lm_head.weight"]
    assert (pair.left, pair.because) == (("embed.weight",), "same values as embed.weight: tied")
    assert certify(*sides, declare(*sides)).granted
    sides = states(left, {**right, "lm_head.weight": numbers(9, 4)}, "mindspore")
    assert not certify(*sides, declare(*sides)).granted


# --- what follows from its shape --------------------------------------------------------------------------------------


def as_bf16(array):
    """Rounded to the nearest of bf16, in f32."""
    bits = np.asarray(array, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


POSITIONS = np.arange(6)[:, None] * (10000.0 ** (-np.arange(4) / 4))
BUFFERS = {
    "position_ids": (np.arange(12)[None], "position indices"),
    "offsets": (np.arange(5) + 2, "position indices"),
    "token_type_ids": (np.zeros((1, 8), np.int64), "a constant"),
    "inv_freq": ((10000.0 ** (-np.arange(8) / 8)).astype(np.float32), "inverse frequencies"),
    "half.inv_freq": ((500000.0 ** (-np.arange(64) / 64)).astype(np.float16), "inverse frequencies"),
    "brain.inv_freq": (as_bf16(10000.0 ** (-np.arange(64) / 64)), "inverse frequencies"),
    "rope.inv_freq": (np.array([1, 0.01], np.float32), "inverse frequencies"),
    "mask": (np.tril(np.ones((1, 1, 6, 6), bool)), "a causal mask"),
    "causal": (np.triu(np.full((6, 6), -np.inf, np.float32), 1), "a causal mask"),
    "masked_bias": (np.array(-1e9, np.float32), "the value of a mask"),
    "pe": (np.concatenate([np.sin(POSITIONS), np.cos(POSITIONS)], 1).astype(np.float32), "a table of sines and cosines"),
    "pe2": (np.stack([np.sin(POSITIONS), np.cos(POSITIONS)], -1).reshape(6, 8).astype("f4"), "a table of sines and cosines"),
    "final_logits_bias": (np.zeros((1, 9), np.float32), "a bias of zeros"),
    "lm_head.bias": (np.zeros(9, np.float32), "a bias of zeros"),
    # and what does not
    "permutation": (np.array([2, 0, 1, 3]), ""),
    "table": (numbers(6, 8), ""),
    "scale": (np.ones(4, np.float32), ""),
    "logit_scale": (np.array(2.66, np.float32), ""),
    "relative_bias_table": (np.zeros((9, 2), np.float32), ""),
    "pair": (np.array([1, 0.01], np.float32), ""),
    "bias": (numbers(4), ""),
    "ramp": (np.array([1, 0.9, 0.8, 0.7], np.float32), ""),
    "brain.ramp": (as_bf16(np.array([1, 0.9, 0.8, 0.7])), ""),
    "half.ramp": (np.array([1, 0.9, 0.8, 0.7], np.float16), ""),
    "single": (np.append(np.float32(1), as_bf16(10000.0 ** (-np.arange(1, 8) / 8)) * np.float32(1 - 2**-11)), ""),
    "block": (np.kron(np.eye(2), np.ones((3, 3))).astype(np.float32), ""),
}  # fmt: skip


@pytest.mark.parametrize("name", BUFFERS)
def test_what_follows_from_its_shape_is_known_by_its_values(name):
    array, told = BUFFERS[name]
    state = open_state({name: array}, framework="torch")
    assert derivation(state.items[name], state) == told


@pytest.mark.parametrize("name", [name for name, (_, told) in BUFFERS.items() if told])
def test_a_buffer_that_one_side_keeps_is_not_missed_on_the_other(name):
    fc = {"fc.weight": numbers(4, 3)}
    for left, right in (({**fc, name: BUFFERS[name][0]}, fc), (fc, {**fc, name: BUFFERS[name][0]})):
        sides = states(left, right, "mindspore")
        found = map_states(*sides)
        assert found.complete, found
        assert certify(*sides, declare(*sides)).granted


def test_a_bias_of_zeros_is_not_needed_where_its_layer_arrived_and_missed_where_it_did_not():
    left = {"fc.weight": numbers(4, 3), "fc.bias": np.zeros(4, np.float32)}
    sides = states(left, {"fc.weight": left["fc.weight"]}, "mindspore")
    assert certify(*sides, declare(*sides)).granted
    sides = states({**left, "fc.bias": numbers(4)}, {"fc.weight": left["fc.weight"]}, "mindspore")
    assert not certify(*sides, declare(*sides)).granted
    found = map_states(*states({**left, "x.weight": numbers(2, 2)}, {"x.weight": numbers(2, 2)}, "mindspore"))
    assert [item.harmless for item in found.only_left] == [False, False]
