"""Real architectures under two names each: pairs are right or not made, values settle the rest, exchanged weights are noticed."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import numpy as np
import pytest

from twintrace.weights.certificate import certify
from twintrace.weights.conversion import value
from twintrace.weights.mapping import declare, map_states
from twintrace.weights.states import open_state

sys.path.append(str(Path(__file__).resolve().parent))
from renamings import TABLES, renaming

# table: weights of the right that are paired by names and shapes, and that are said to be ambiguous; forth, then back
FOUND = {
    "llama: original, transformers": (13, 8, 13, 8),
    "llama, grouped heads: transformers, fused": (11, 4, 11, 10),
    "gpt2: transformers, mindformers": (20, 16, 20, 8),
    "gpt2: transformers, linear layers": (16, 12, 16, 12),
    "vit: timm, transformers": (28, 12, 28, 4),
    "vit: vit-pytorch, transformers": (24, 0, 24, 0),
    "clip: openai, transformers": (40, 0, 32, 0),
    "bert: transformers, mindspore": (39, 0, 39, 0),
    "distilbert, bert": (36, 0, 36, 0),
    "roberta: fairseq, transformers": (41, 0, 41, 0),
    "whisper: openai, transformers": (81, 8, 81, 8),
    "autoencoder: latent diffusion, diffusers": (46, 0, 46, 0),
    "swin: timm, transformers": (32, 12, 32, 4),
    "convnext: original, transformers": (30, 0, 30, 0),
    "resnet: torchvision, mindspore": (32, 0, 32, 0),
    "mobilenet: torchvision, mindcv": (17, 0, 17, 0),
    "vgg: torchvision, flat": (14, 0, 14, 0),
    "detr: original, transformers": (61, 20, 37, 20),
    "dinov2: original, transformers": (31, 12, 31, 4),
    "segformer: original, transformers": (34, 8, 34, 4),
    "t5: transformers, mindformers": (4, 15, 4, 15),
    "gptj: transformers, flat": (22, 3, 22, 2),
    "mixer: timm, flax": (30, 0, 30, 0),
    "two towers that nothing tells apart": (0, 8, 0, 8),
    "lstm: one layer, four gates": (3, 16, 3, 4),
    "llama: gguf, transformers": (17, 4, 17, 4),
    "gemma2: gguf, transformers": (18, 6, 18, 6),
    "bloom: fused head by head, three layers": (13, 24, 13, 16),
    "internlm2: grouped heads in one weight, transformers": (7, 14, 7, 10),
    "flux: original, diffusers": (6, 64, 6, 48),
    "unet: latent diffusion, diffusers": (30, 30, 30, 30),
    "mae: encoder and decoder of the same size": (32, 0, 32, 0),
    "bert: one with a pooler, one with a head for masked words": (5, 2, 5, 2),
    "tied: one side has the output's weight twice": (5, 0, 5, 0),
}  # fmt: skip


def state(arrays):
    mindspore = any(name.endswith((".beta", "embedding_table")) for name in arrays)
    return open_state(arrays, framework="mindspore" if mindspore else "torch")


def fresh(found):
    """The right side with other weights in it, as before they are carried over; buffers keep their values."""
    random = np.random.default_rng(5)
    kept = found.extra | {name for name, array in found.right.items() if array.dtype != np.float32}
    return {
        name: array if name in kept else random.standard_normal(array.shape).astype(np.float32)
        for name, array in found.right.items()
    }


def both(name):
    found = renaming(name)
    return (found, found.flipped())


def test_there_are_twenty_pairs_and_twelve_architectures():
    assert len(TABLES) >= 20
    assert len({name.split(":")[0].split(",")[0] for name in TABLES}) >= 12
    assert set(FOUND) == set(TABLES)


@pytest.mark.parametrize("name", TABLES)
def test_names_and_shapes_pair_rightly_or_not_at_all(name):
    counts = []
    for found in both(name):
        left, right = state(found.left), state(fresh(found))
        made = map_states(left, right)
        wrong = [
            pair for pair in made.pairs
            if pair.right in found.lost or not np.array_equal(value(left, pair), found.right[pair.right])
        ]  # fmt: skip
        assert wrong == []
        told = {n for pair in made.pairs for n in pair.left} | {item.name for item in made.only_left}
        assert told | {n for item in made.ambiguous for n in item.left} == set(left.items)  # nothing is dropped
        alone = {item.name for item in (*made.only_left, *made.only_right) if not item.harmless}
        assert alone <= found.lost
        assert {item.name for item in (*made.only_left, *made.only_right) if item.harmless} <= found.extra
        assert made.misfits == ()
        counts += [len(made.pairs), len({n for item in made.ambiguous for n in item.right})]
    assert tuple(counts) == FOUND[name]


@pytest.mark.parametrize("name", TABLES)
def test_what_arrived_is_certified_under_any_name(name):
    for found in both(name):
        left, right = state(found.left), state(found.right)
        certificate = certify(left, right, declare(left, right))
        assert certificate.granted is not bool(found.lost), certificate.mistakes
        assert len(certificate.rows) == len(set(found.right) - found.extra - found.lost)


@pytest.mark.parametrize("name", TABLES)
def test_exchanged_weights_are_not_certified_where_names_tell_them_apart(name):
    found = renaming(name)
    left = state(found.left)
    open_ = {n for item in map_states(left, state(fresh(found))).ambiguous for n in item.right}
    twins = [
        (one, two)
        for one, two in itertools.combinations(sorted(set(found.right) - found.extra - found.lost), 2)
        if found.right[one].shape == found.right[two].shape
        and not np.array_equal(found.right[one], found.right[two])
        and not {one, two} <= open_
    ]
    random = np.random.default_rng(0)
    for at in random.permutation(len(twins))[:8]:
        one, two = twins[at]
        right = state({**found.right, one: found.right[two], two: found.right[one]})
        assert not certify(left, right, declare(left, right)).granted, (one, two)


@pytest.mark.parametrize("name", [name for name in TABLES if "{}" in "".join(TABLES[name])])
def test_exchanged_blocks_are_not_certified(name):
    """Every weight is somewhere, in the wrong block; only the numbers contradict."""
    found = renaming(name)
    lines = [line for line in TABLES[name] if "{}" in line.partition(" = ")[2]]
    other = {}
    for line in lines:
        for part in line.rpartition(" [")[0].partition(" = ")[2].split(" + "):
            plain = part.partition("^")[0].partition("(")[0].partition("~")[0]
            other |= {
                plain.replace("{}", "0"): plain.replace("{}", "1"),
                plain.replace("{}", "1"): plain.replace("{}", "0"),
            }
    right = state({name: found.right[other.get(name, name)] for name in found.right})
    left = state(found.left)
    assert not certify(left, right, declare(left, right)).granted


def test_pairs_that_rest_on_values_alone_are_told():
    """Names do not tell the two norms of a block apart: had they been exchanged, the values would be there all the same."""
    found = renaming("llama: original, transformers")
    left, right = state(found.left), state(found.right)
    certificate = certify(left, right, declare(left, right))
    assert any("8 weights are paired by their values alone" in note for note in certificate.notes), certificate.notes
    found = renaming("distilbert, bert")
    left, right = state(found.left), state(found.right)
    assert not certify(left, right, declare(left, right)).notes


def test_the_notation_says_what_it_means():
    assert TABLES["distilbert, bert"][2:4] == [
        "embeddings.LayerNorm.weight = embeddings.LayerNorm.weight [8]",
        "embeddings.LayerNorm.bias = embeddings.LayerNorm.bias [8]",
    ]
    found = renaming("bloom: fused head by head, three layers")
    fused, parts = found.left["h.0.self_attention.query_key_value.weight"], found.right
    assert np.array_equal(fused[:2], parts["blocks.0.attn.q.weight"][:2])
    assert np.array_equal(fused[2:4], parts["blocks.0.attn.k.weight"][:2])
    assert np.array_equal(fused[6:8], parts["blocks.0.attn.q.weight"][2:4])
