"""Certificates: granted where every weight arrived, refused with the mistake's name where one did not. Fifty mistakes."""

from __future__ import annotations

import re

import numpy as np
import pytest

from twintrace import api
from twintrace.model.weights import Pair, WeightMap
from twintrace.weights.certificate import certify
from twintrace.weights.comparison import compare
from twintrace.weights.mapping import declare, map_states
from twintrace.weights.mistakes import describe
from twintrace.weights.states import open_state

# A net's state dict in PyTorch: shapes by name.
SHAPES = {
    "embed.weight": (12, 8),
    "conv1.weight": (8, 4, 3, 3), "conv1.bias": (8,), "conv2.weight": (8, 8, 3, 3), "conv2.bias": (8,),
    "conv3.weight": (8, 8, 3, 3), "conv3.bias": (8,), "wave.weight": (6, 8, 5), "wave.bias": (6,),
    "bn1.weight": (8,), "bn1.bias": (8,), "bn1.running_mean": (8,), "bn1.running_var": (8,),
    "bn2.weight": (8,), "bn2.bias": (8,), "bn2.running_mean": (8,), "bn2.running_var": (8,),
    "ln.weight": (8,), "ln.bias": (8,),
    "lstm.weight_ih_l0": (16, 8), "lstm.weight_hh_l0": (16, 4), "lstm.bias_ih_l0": (16,), "lstm.bias_hh_l0": (16,),
    "lstm.weight_ih_l0_reverse": (16, 8), "lstm.weight_hh_l0_reverse": (16, 4), "lstm.bias_ih_l0_reverse": (16,),
    "lstm.bias_hh_l0_reverse": (16,),
    "gru.weight_ih_l0": (12, 8), "gru.weight_hh_l0": (12, 4), "gru.bias_ih_l0": (12,), "gru.bias_hh_l0": (12,),
    "attn.in_proj_weight": (
        24, 8), "attn.in_proj_bias": (24,), "attn.out_proj.weight": (8, 8),
        "attn.out_proj.bias": (8,),
    "layers.0.weight": (8, 8), "layers.0.bias": (8,), "layers.1.weight": (8, 8), "layers.1.bias": (8,),
    "layers.2.weight": (8, 8), "layers.2.bias": (8,), "wide.weight": (10, 8), "wide.bias": (10,),
    "prelu.weight": (8,), "head.weight": (5, 10), "head.bias": (5,),
}  # fmt: skip
RENAMED = {
    "embed.weight": "embed.embedding_table", "prelu.weight": "prelu.w", "ln.weight": "ln.gamma", "ln.bias": "ln.beta",
    **{f"{bn}.{old}": f"{bn}.{new}" for bn in ("bn1", "bn2") for old, new in
       (("weight", "gamma"), ("bias", "beta"), ("running_mean", "moving_mean"), ("running_var", "moving_variance"))},
}  # fmt: skip
MAP = WeightMap(
    "torch",
    "mindspore",
    tuple(
        Pair((name,), RENAMED.get(name, name), ("insert axis 2",) if name == "wave.weight" else (), 1.0, "declared")
        for name in SHAPES
    ),
)


def original():
    random = np.random.default_rng(7)
    values = {name: random.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}
    return {name: np.abs(value) + 0.5 if "running_var" in name else value for name, value in values.items()}


def arrived(values):
    """The same in MindSpore, rightly converted."""
    moved = {RENAMED.get(name, name): value.copy() for name, value in values.items()}
    moved["wave.weight"] = moved["wave.weight"][:, :, None, :]
    return moved


def swap(one, two):
    def mistake(right):
        right[one], right[two] = right[two], right[one]

    return mistake


def change(name, function):
    def mistake(right):
        right[name] = np.ascontiguousarray(function(right[name]))

    return mistake


def copied(target, source):
    def mistake(right):
        right[target] = right[source].copy()

    return mistake


def lost(*names):
    def mistake(right):
        for name in names:
            del right[name]

    return mistake


def blocks(name, count, order, axis=0):
    return change(name, lambda w: np.concatenate([np.split(w, count, axis)[number] for number in order], axis))


def rounded(name, dtype):
    return change(name, lambda w: w.astype(dtype).astype(np.float32))


def as_bf16(w):
    bits = w.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def set_one(name, index, value):
    def mistake(right):
        right[name][index] = value

    return mistake


def added(name, shape):
    def mistake(right):
        right[name] = np.ones(shape, np.float32)

    return mistake


def several(*mistakes):
    def mistake(right):
        for each in mistakes:
            each(right)

    return mistake


RANDOM = np.random.default_rng(99)
# what was done: (the mistake, what the certificate must say)
MISTAKES = {
    "equal-shaped layers swapped": (
        swap("layers.0.weight", "layers.1.weight"),
        "layers.0.weight and layers.1.weight are swapped"),
    "equal-shaped biases swapped": (
        swap("layers.0.bias", "layers.2.bias"),
        "layers.0.bias and layers.2.bias are swapped"),
    "convolutions swapped": (swap("conv2.weight", "conv3.weight"), "conv2.weight and conv3.weight are swapped"),
    "whole layers swapped": (
        several(swap("conv2.weight", "conv3.weight"), swap("conv2.bias", "conv3.bias")),
        "conv2.bias and conv3.bias are swapped",
    ),
    "layers shifted by one": (
        several(copied("layers.2.weight", "layers.1.weight"), copied("layers.1.weight", "layers.0.weight")),
        "layers.1.weight holds the values of layers.0.weight",
    ),
    "one layer copied into another": (
        copied("conv3.weight", "conv2.weight"),
        "conv3.weight holds the values of conv2.weight"),
    "square matrix transposed": (change("layers.0.weight", np.transpose), "layers.0.weight is transposed"),
    "square recurrent output transposed": (
        change("attn.out_proj.weight", np.transpose),
        "attn.out_proj.weight is transposed"),
    "oblong matrix transposed": (change("wide.weight", np.transpose), "wide.weight is transposed"),
    "embedding transposed": (change("embed.embedding_table", np.transpose), "embed.embedding_table is transposed"),
    "kernel's height and width swapped": (
        change("conv1.weight", lambda w: w.transpose(0, 1, 3, 2)),
        "conv1.weight is transposed: its axes are in the order 0 1 3 2"),
    "kernel's channels swapped": (
        change("conv2.weight", lambda w: w.transpose(1, 0, 2, 3)),
        "conv2.weight is transposed: its axes are in the order 1 0 2 3"),
    "kernel in channels-last order": (
        change("conv1.weight", lambda w: w.transpose(0, 2, 3, 1)),
        "conv1.weight is transposed: its axes are in the order 0 2 3 1"),
    "kernel turned by 180 degrees": (
        change("conv3.weight", lambda w: w[:, :, ::-1, ::-1]), "conv3.weight is mirrored along axes 2 and 3"),
    "kernel of a wave mirrored": (
        change("wave.weight", lambda w: w[..., ::-1]),
        "wave.weight is mirrored along axis 3"),
    "axis of a wave not inserted": (
        change("wave.weight", lambda w: w[:, :, 0, :]),
        "wave.weight has the right values in the shape"),
    "axis of a wave inserted at the end": (
        change("wave.weight", lambda w: w.transpose(0, 1, 3, 2)),
        "wave.weight is transposed|has the right values in the shape"),
    "gamma and beta swapped": (swap("bn1.gamma", "bn1.beta"), "bn1.gamma and bn1.beta are swapped"),
    "gamma and beta of a layer norm swapped": (swap("ln.gamma", "ln.beta"), "ln.gamma and ln.beta are swapped"),
    "moving mean and variance swapped": (
        swap("bn1.moving_mean", "bn1.moving_variance"), "bn1.moving_mean and bn1.moving_variance are swapped"),
    "statistics of two norms swapped": (
        swap("bn1.moving_mean", "bn2.moving_mean"), "bn1.moving_mean and bn2.moving_mean are swapped"),
    "standard deviation for variance": (
        change("bn2.moving_variance", np.sqrt), "bn2.moving_variance is the square root of what it should be"),
    "one over the deviation for variance": (
        change("bn2.moving_variance", lambda v: 1 / np.sqrt(v)),
        "bn2.moving_variance is one divided by the square root of"),
    "statistics never loaded": (
        change("bn1.moving_mean", np.zeros_like),
        "bn1.moving_mean is all 0: it was never loaded"),
    "variance reset": (
        change("bn1.moving_variance", np.ones_like),
        "bn1.moving_variance is all 1: it was never loaded, or was reset"),
    "gamma reset": (change("ln.gamma", np.ones_like), "ln.gamma is all 1"),
    "PReLU left at its default": (change("prelu.w", lambda w: np.full_like(w, 0.25)), "prelu.w is all 0.25"),
    "a missing bias": (lost("head.bias"), "head.bias"),
    "a missing layer": (lost("wide.weight", "wide.bias"), "wide.weight"),
    "a bias that is zero": (change("conv1.bias", np.zeros_like), "conv1.bias is all 0"),
    "LSTM gates i g f o": (
        blocks("lstm.weight_ih_l0", 4, (0, 2, 1, 3)),
        r"its 4 blocks \(gates i f g o\) in the order 0 2 1 3"),
    "LSTM gates i f o g": (
        several(*(blocks(f"lstm.{name}", 4, (0, 1, 3, 2)) for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0",
        "bias_hh_l0"))),
        r"lstm.bias_hh_l0 has its 4 blocks \(gates i f g o\) in the order 0 1 3 2"),
    "GRU gates z r n": (
        blocks("gru.weight_hh_l0", 3, (1, 0, 2)),
        r"gru.weight_hh_l0 has its 3 blocks \(gates r z n\) in the order 1 0 2"),
    "directions of an LSTM swapped": (
        swap("lstm.weight_ih_l0", "lstm.weight_ih_l0_reverse"),
        "lstm.weight_ih_l0 and lstm.weight_ih_l0_reverse are swapped"),
    "two biases of an LSTM swapped": (
        swap("lstm.bias_ih_l0", "lstm.bias_hh_l0"), "lstm.bias_ih_l0 and lstm.bias_hh_l0 are swapped"),
    "two biases of an LSTM made one": (
        lambda right: right.update({"lstm.bias_ih_l0": right["lstm.bias_ih_l0"] + right["lstm.bias_hh_l0"],
                                    "lstm.bias_hh_l0": np.zeros(16, np.float32)}),
        "lstm.bias_ih_l0 is the sum of lstm.bias_ih_l0 and lstm.bias_hh_l0"),
    "query and key swapped": (
        blocks("attn.in_proj_weight", 3, (1, 0, 2)),
        r"attn.in_proj_weight has its 3 blocks \(query, key and value\) in the order 1 0 2"),
    "query, key, value interleaved": (
        change("attn.in_proj_weight", lambda w: w.reshape(3, 8, 8).transpose(1, 0, 2).reshape(24, 8)),
        "attn.in_proj_weight has its slices along axis 0 in another order"),
    "halves swapped": (
        blocks("embed.embedding_table", 2, (1, 0)),
        "embed.embedding_table has its 2 blocks in the order 1 0"),
    "rounded to half precision": (rounded("conv2.weight", np.float16), "conv2.weight was rounded to f16"),
    "rounded to bfloat16": (change("wide.weight", as_bf16), "wide.weight was rounded to bf16"),
    "stored in half precision": (
        change("head.weight", lambda w: w.astype(np.float16)),
        "head.weight is f16, expected f32"),
    "quantised": (
        change("conv3.weight", lambda w: (np.round(w / (np.abs(w).max() / 127)) * (np.abs(w).max() / 127)).astype(np.float32)),
        "conv3.weight was quantised to 8 bits"),
    "scaled": (
        change("layers.1.weight", lambda w: w * np.float32(0.5)),
        "layers.1.weight is 0.5 times what it should be"),
    "sign turned": (change("layers.1.bias", np.negative), "layers.1.bias has the opposite sign"),
    "one weight changed": (
        set_one("wide.weight", (3, 4), 9.0),
        r"wide.weight differs in 1 of 80 elements, first at \[3, 4\]"),
    "one row overwritten": (set_one("embed.embedding_table", 5, 0.0), "all of them are in slice 5 of axis 0"),
    "a NaN": (
        set_one("conv2.weight", (1, 2, 0, 1), np.nan),
        r"conv2.weight is not finite in 1 of 576 elements, first at \[1, 2, 0, 1\]"),
    "rows shifted by one": (
        change("embed.embedding_table", lambda w: np.roll(w, 1, 0)),
        "embed.embedding_table is shifted by 1 along axis 0"),
    "reshaped where it should be transposed": (
        change("conv2.weight", lambda w: w.transpose(2, 3, 1, 0).reshape(w.shape)),
        "conv2.weight has the right elements in another order|slices"),
    "rows cut off": (
        change("embed.embedding_table", lambda w: w[:10]),
        r"embed.embedding_table is cut off: \[10, 8\] of \[12, 8\]"),
    "rows padded": (
        change("embed.embedding_table", lambda w: np.pad(w, ((0, 4), (0, 0)))), r"embed.embedding_table is padded: \[16, 8\]"),
    "channels in another order": (
        change("conv1.weight", lambda w: w[RANDOM.permutation(8)]),
        "conv1.weight has its slices along axis 0 in another order"),
    "fresh values": (
        change("layers.2.weight", lambda w: RANDOM.standard_normal(w.shape).astype(np.float32)),
        "layers.2.weight has other values .* perhaps a fresh initialisation"),
    "another step of training": (
        change("layers.2.weight", lambda w: w + np.float32(1e-3) * RANDOM.standard_normal(w.shape).astype(np.float32)),
        "layers.2.weight has values that are near"),
    "transposed and swapped": (
        several(swap("layers.0.weight", "layers.1.weight"), change("layers.0.weight", np.transpose)),
        "layers.0.weight holds the values of layers.1.weight, transposed"),
}  # fmt: skip


def test_there_are_fifty_mistakes():
    assert len(MISTAKES) >= 50


def certificate(right, map=MAP):
    left, there = open_state(original(), framework="torch"), open_state(right, framework="mindspore")
    return certify(left, there, map or declare(left, there))


@pytest.mark.parametrize("declared", [True, False])
def test_weights_that_arrived_are_certified(declared):
    found = certificate(arrived(original()), MAP if declared else None)
    assert found.granted, found.mistakes
    assert len(found.rows) == len(SHAPES)
    assert all(row.verdict == "equal" and len(row.fingerprint) == 32 for row in found.rows)
    assert "certified:" in api.certificate_text(found)
    assert "NOT" not in api.certificate_text(found)


@pytest.mark.parametrize("declared", [True, False], ids=["declared map", "found map"])
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_caught_and_named(name, declared):
    """With the map that was declared, and with one that is found from names and shapes alone."""
    mistake, expected = MISTAKES[name]
    right = arrived(original())
    mistake(right)
    found = certificate(right, MAP if declared else None)
    assert not found.granted
    assert any(re.search(expected, text) for text in found.mistakes), found.mistakes
    text = api.certificate_text(found)
    assert text.startswith("NOT certified")
    assert re.search(expected, text)


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_one_place_is_not_said_of_others(name):
    mistake, _ = MISTAKES[name]
    right, good = arrived(original()), arrived(original())
    mistake(right)
    touched = {key for key in good if key not in right or not np.array_equal(right[key], good[key])}
    found = certificate(right)
    wrong = {row.right for row in found.rows if row.verdict != "equal"}
    assert wrong == touched


def test_what_is_missing_or_too_much_is_told_on_its_side():
    right = arrived(original())
    del right["head.bias"]
    right["extra.weight"] = np.ones((3, 3), np.float32)
    found = certificate(right, None)
    assert any(text.startswith("head.bias was not carried over") for text in found.mistakes)
    assert any(text.startswith("extra.weight has nothing to come from") for text in found.mistakes)


def test_a_value_that_must_be_neutral_is_looked_at():
    """MindSpore's layer norm always has a beta; where PyTorch's has no bias it must be 0."""
    left = open_state(
        {"norm.weight": np.ones(4, np.float32), "fc.weight": np.ones((4, 4), np.float32)}, framework="torch"
    )
    for beta, granted in ((0.0, True), (0.5, False)):
        right = open_state(
            {
                "norm.gamma": np.ones(4, np.float32),
                "norm.beta": np.full(4, beta, np.float32),
                "fc.weight": np.ones((4, 4), np.float32),
            },
            framework="mindspore",
        )
        found = certify(left, right, map_states(left, right))
        assert found.granted is granted, found.mistakes
    assert any("norm.beta is not all 0" in text for text in found.mistakes)


def test_a_weight_norm_made_one_is_certified_but_for_its_last_places():
    random = np.random.default_rng(0)
    v, g = random.standard_normal((6, 300)).astype(np.float32), random.standard_normal((6, 1)).astype(np.float32)
    exact = (v.astype(np.float64) * g / np.linalg.norm(v.astype(np.float64), axis=1, keepdims=True)).astype(np.float32)
    left = open_state({"fc.weight_g": g, "fc.weight_v": v, "fc.bias": g[:, 0]}, framework="torch")
    right = open_state({"fc.weight": exact, "fc.bias": g[:, 0]}, framework="mindspore")
    assert certify(left, right, map_states(left, right)).granted
    wrong = open_state({"fc.weight": v, "fc.bias": g[:, 0]}, framework="mindspore")
    assert not certify(left, wrong, map_states(left, wrong)).granted


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16", "i64", "b8", "f8e5m2", "c64"])
def test_every_element_type_has_something_said_of_it(dtype):
    from twintrace.store.arrays import STORAGE

    random = np.random.default_rng(1)
    one = random.integers(0, 60, 24).astype(STORAGE[dtype]).reshape(4, 6)
    two = one.copy()
    two[0, 0] = STORAGE[dtype].type(0) if one[0, 0] else STORAGE[dtype].type(1)
    assert describe(one, two, dtype)
    assert describe(one, np.ascontiguousarray(one.T), dtype) == "is transposed: its axes are in the order 1 0"


# --- comparing --------------------------------------------------------------------------------------------------------


def rows(left, right, **options):
    states = open_state(left, framework="torch"), open_state(right, framework="torch")
    from twintrace.weights.comparison import by_name

    return {row.left or row.right: row for row in compare(*states, by_name(*states), **options).rows}


def test_a_comparison_has_a_row_for_every_weight_of_either_side():
    one = np.array([1.0, 2.0, 3.0, 4.0], np.float32)
    found = rows(
        {"same": one, "near": one, "far": one, "shape": one, "left": one, "nan": one * np.nan},
        {"same": one, "near": one + np.float32(1e-5), "far": -one, "shape": one[:2], "right": one, "nan": one * np.nan},
    )
    assert {name: row.verdict for name, row in found.items()} == {
        "same": "equal", "near": "close", "far": "different", "shape": "shape", "left": "only left", "right": "only right",
        "nan": "different",
    }  # fmt: skip
    assert (found["far"].ratio, found["far"].cosine, found["far"].max_error) == (0.0, -1.0, 8.0)
    assert found["near"].allclose
    assert rows({"nan": one * np.nan}, {"nan": one * np.nan}, equal_nan=True)["nan"].verdict == "equal"
    assert rows({"near": one}, {"near": one + np.float32(1e-5)}, rtol=0.0, atol=0.0)["near"].verdict == "different"
    assert rows({"far": one}, {"far": -one}, values=False)["far"].allclose is None


def test_the_tolerance_is_relative_to_the_left_or_as_numpy_has_it_to_the_right():
    one, two = np.array([100.0], np.float32), np.array([110.0], np.float32)
    for rtol in (0.0905, 0.0915, 0.095, 0.1005):
        to_left, to_right = (bool(np.allclose(*pair, rtol=rtol, atol=0)) for pair in ((two, one), (one, two)))
        assert rows({"w": one}, {"w": two}, rtol=rtol, atol=0.0)["w"].allclose is to_left, rtol
        found = rows({"w": one}, {"w": two}, rtol=rtol, atol=0.0, relative_to="right")
        assert found["w"].allclose is to_right, rtol


def test_integers_and_empty_tensors_are_compared_exactly():
    found = rows(
        {"n": np.array([2**60], np.int64), "e": np.zeros((0, 3), np.float32), "s": np.array(2.0, np.float32)},
        {"n": np.array([2**60 + 1], np.int64), "e": np.zeros((0, 3), np.float32), "s": np.array(2.0, np.float32)},
        rtol=0.0,
        atol=0.0,
    )
    assert {name: row.verdict for name, row in found.items()} == {"n": "different", "e": "equal", "s": "equal"}


def test_a_counter_that_only_one_framework_keeps_is_no_disagreement():
    left = {
        "bn.weight": np.ones(2, np.float32), "bn.bias": np.ones(2, np.float32), "bn.running_mean": np.ones(2, np.float32),
        "bn.running_var": np.ones(2, np.float32), "bn.num_batches_tracked": np.array(3, np.int64),
    }  # fmt: skip
    names = {"weight": "gamma", "bias": "beta", "running_mean": "moving_mean", "running_var": "moving_variance"}
    right = {f"bn.{new}": left[f"bn.{old}"] for old, new in names.items()}
    found = api.compare_weights(open_state(left, framework="torch"), open_state(right, framework="mindspore"))
    assert [row.verdict for row in found.rows] == ["equal"] * 4 + ["not carried"]
    assert found.agree
