"""The calls that a mistake blames."""

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")
from twintrace.judge.explanations import Explainer
from twintrace.model.pairs import Layout, Part, TensorPair
from twintrace.model.records import Call
from twintrace.model.sites import Kind, Site
from twintrace.model.values import TensorRef
from twintrace.operations.candidates import Cause
from twintrace.operations.recomputation import Difference
from twintrace.operations.sides import Slice


@pytest.mark.parametrize("paired", [True, False])
def test_calls_are_blamed_unless_their_own_pair_says_it(paired: bool) -> None:
    """Two activations at the end of modules of which only the modules were paired: the place is the activations."""
    gelu, silu = (
        Call(number, Site(Kind.API, name, 0), None, (TensorRef(number),), {}, TensorRef(number + 2))
        for number, name in enumerate(("torch.nn.functional.gelu", "mindspore.ops.silu"))
    )
    match = object()
    state: Any = SimpleNamespace(match_of=({0: match}, {1: match}) if paired else ({}, {}))
    pair = TensorPair(Part.OUTPUT, "", "", 2, 3, Layout(), "")
    cause = Cause("gelu | silu", left=(gelu,), right=(silu,))
    mistake = Explainer(state).meaning_mistake(
        Slice(2, (gelu,), (0,)), Slice(3, (silu,), (1,)), pair, Difference(True, 0.1, 100.0), cause
    )

    assert (mistake.left, mistake.right) == (((), ()) if paired else ((gelu,), (silu,)))


@pytest.mark.parametrize("part", [Part.INPUT, Part.OUTPUT])
def test_a_difference_in_an_input_without_a_cause_is_that_of_its_makers(part: Part) -> None:
    """A call that takes a wrong value has not made it."""
    shuffle, reshape = (
        Call(number, Site(Kind.API, name, 0), None, (TensorRef(number),), {}, TensorRef(number + 2))
        for number, name in enumerate(("torch.nn.functional.pixel_shuffle", "mindspore.ops.reshape"))
    )
    side = SimpleNamespace(meaning=lambda call: None)
    state: Any = SimpleNamespace(match_of=({}, {}), sides=(side, side), bound={})
    mistake = Explainer(state).meaning_mistake(
        Slice(2, (shuffle,), (0,)), Slice(3, (reshape,), (1,)),
        TensorPair(part, "", "", 2, 3, Layout(), ""), Difference(True, 0.1, 100.0), None,
    )  # fmt: skip

    assert (mistake.left, mistake.right) == (((shuffle,), (reshape,)) if part is Part.INPUT else ((), ()))
