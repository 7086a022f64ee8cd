"""Pieces, sums and copies are put together as they were cut; meshes are read off process groups."""

import numpy as np
import pytest

from twintrace.layouts.meshes import Mesh, mesh_of
from twintrace.layouts.placements import (
    MEAN,
    REPLICATE,
    SUM,
    cut_apart,
    narrowed,
    put_together,
    read,
    segments_of,
    shard,
    whole_shape,
)
from twintrace.model.tensors import Spec

WHOLE = np.arange(8 * 12, dtype=np.float32).reshape(8, 12)


@pytest.mark.parametrize(
    ("mesh", "placements"),
    [
        (Mesh((2,)), (shard(0),)),
        (Mesh((4,)), (shard(1),)),
        (Mesh((2,)), (shard(1, 3),)),
        (Mesh((2, 2)), (shard(0), shard(1))),
        (Mesh((2, 2)), (shard(0), shard(0))),
        (Mesh((2, 2)), (shard(1, 3), shard(1, 3))),
        (Mesh((2, 2)), (REPLICATE, shard(1))),
        (Mesh((2, 2)), (shard(1), REPLICATE)),
    ],
    ids=str,
)
def test_pieces_make_up_the_whole(mesh, placements):
    pieces = cut_apart(WHOLE, mesh, placements)
    assert whole_shape([piece.shape for piece in pieces], mesh, placements) == WHOLE.shape
    np.testing.assert_array_equal(put_together(pieces, Spec("f32", WHOLE.shape), mesh, placements), WHOLE)
    for place, piece in enumerate(pieces):
        found = WHOLE
        for axis, segments in segments_of(mesh, placements, [item.shape for item in pieces], place):
            found = np.concatenate([found.take(range(start, start + size), axis) for start, size in segments], axis)
        np.testing.assert_array_equal(found, piece)


def test_blocks_are_taken_from_each_block():
    """Queries, keys and values in one weight: each rank has some rows of each."""
    first, second = cut_apart(np.arange(12), Mesh((2,)), (shard(0, 3),))
    assert first.tolist() == [0, 1, 4, 5, 8, 9]
    assert second.tolist() == [2, 3, 6, 7, 10, 11]


def test_sums_and_means_are_rounded_once():
    """One and two halves of its unit are lost one by one, and not together."""
    parts = [np.array([1.0], np.float32), np.array([2.0**-24], np.float32), np.array([2.0**-24], np.float32)]
    spec, mesh = Spec("f32", (1,)), Mesh((3,))
    assert put_together(parts, spec, mesh, (SUM,))[0] == np.float32(1 + 2.0**-23)
    assert put_together(parts, spec, mesh, (MEAN,))[0] == np.float32((1 + 2.0**-23) / 3)


def test_pieces_that_do_not_fit():
    assert whole_shape([(2, 3), (2, 4)], Mesh((2,)), (shard(0),)) is None
    assert whole_shape([(2, 3), (2, 4)], Mesh((2,)), (shard(1),)) == (2, 7)
    assert whole_shape([(2, 3), (2, 4)], Mesh((2,)), (REPLICATE,)) is None


def test_numbers_without_dimensions_stay_so():
    assert put_together([np.float32(1), np.float32(2)], Spec("f32", ()), Mesh((2,)), (SUM,)).shape == ()


@pytest.mark.needs_torch
def test_bfloat16_is_rounded_as_torch_rounds():
    torch = pytest.importorskip("torch")
    values = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    wanted = torch.from_numpy(values).bfloat16().view(torch.uint16).numpy()
    np.testing.assert_array_equal(narrowed(values.astype(np.float64), "bf16"), wanted)


@pytest.mark.parametrize(
    ("text", "placement"),
    [
        ("S(1)", shard(1)),
        ("R", REPLICATE),
        ("P(sum)", SUM),
        ("P(avg)", MEAN),
        ("Shard(dim=0)", shard(0)),
        ("P(max)", None),
    ],
)
def test_placements_of_a_dtensor(text, placement):
    assert read(text) == placement


@pytest.mark.parametrize(
    ("count", "groups", "shape"),
    [
        (4, [(0, 1, 2, 3)], (4,)),
        (4, [(0, 1), (2, 3), (0, 2), (1, 3)], (2, 2)),
        (4, [(0, 1), (2, 3)], (2, 2)),
        (8, [(0, 1), (2, 3), (4, 5), (6, 7), (0, 2), (1, 3), (4, 6), (5, 7)], (2, 2, 2)),
        (8, [(0, 4), (1, 5), (2, 6), (3, 7)], (2, 4)),
        (4, [(0, 1)], (4,)),
        (4, [(0, 1, 2)], (4,)),
    ],
)
def test_meshes_by_process_groups(count, groups, shape):
    assert mesh_of(count, groups).shape == shape


def test_axes_of_a_group():
    mesh = Mesh((2, 2))
    assert mesh.axes_of([0, 1]) == (1,)
    assert mesh.axes_of([1, 3]) == (0,)
    assert mesh.axes_of([0, 1, 2, 3]) == (0, 1)
    assert mesh.axes_of([0, 3]) is None
