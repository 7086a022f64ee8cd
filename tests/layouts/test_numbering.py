"""Modules that a stage numbers anew: known by the bits of their parameters, or not at all."""

import pytest

from twintrace.layouts.numbering import renaming_of
from twintrace.model.tensors import Spec

WIDE, FLAT = Spec("f32", (8, 4)), Spec("f32", (8,))
OTHER = {
    "blocks.0.up.weight": (WIDE, "a0"),
    "blocks.0.up.bias": (FLAT, "00"),
    "blocks.1.up.weight": (WIDE, "a1"),
    "blocks.1.up.bias": (FLAT, "00"),
    "blocks.0.norm.weight": (FLAT, "n0"),
    "head.weight": (WIDE, "h"),
}


@pytest.mark.parametrize(
    ("mine", "renaming"),
    [
        ({"blocks.0.up.weight": (WIDE, "a1"), "head.weight": (WIDE, "h")}, {"blocks.0": "blocks.1"}),
        # Zeros are in many places, and tell nothing.
        ({"blocks.0.up.weight": (WIDE, "a1"), "blocks.0.up.bias": (FLAT, "00")}, {"blocks.0": "blocks.1"}),
        ({"blocks.0.up.weight": (WIDE, "a0")}, {}),
        # Other weights than any of the other side's: nobody knows which.
        ({"blocks.0.up.weight": (WIDE, "zz")}, {}),
        # Two modules that hold the weights of one: no renaming, but a mistake.
        ({"blocks.0.up.weight": (WIDE, "a1"), "blocks.5.up.weight": (WIDE, "a1")}, {}),
        # One weight of a module says this, another that.
        ({"blocks.0.up.weight": (WIDE, "a1"), "blocks.0.down.weight": (WIDE, "h")}, {}),
        # A module of which one weight is at home is not renamed for another.
        ({"blocks.0.up.weight": (WIDE, "a1"), "blocks.0.norm.weight": (FLAT, "n0")}, {}),
    ],
)
def test_a_renaming_is_what_all_weights_say(mine, renaming):
    assert renaming_of(mine, OTHER) == renaming


def test_weights_without_bits_tell_nothing():
    assert renaming_of({"blocks.0.up.weight": (WIDE, None)}, {"blocks.1.up.weight": (WIDE, None)}) == {}
