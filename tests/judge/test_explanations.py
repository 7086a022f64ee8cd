"""The calls that a mistake blames, and the settings that explain it together."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

from tests.judge.recorded_pairs import Net, compared, only_mistake, rand  # noqa: E402
from twintrace.judge.explanations import Explainer  # noqa: E402
from twintrace.model.pairs import Layout, Part, TensorPair  # noqa: E402
from twintrace.model.records import Call  # noqa: E402
from twintrace.model.sites import Kind, Site  # noqa: E402
from twintrace.model.values import TensorRef  # noqa: E402
from twintrace.operations.candidates import Cause  # noqa: E402
from twintrace.operations.differences import Difference  # noqa: E402
from twintrace.operations.sides import Slice  # noqa: E402

pytestmark = pytest.mark.needs_torch


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


@pytest.mark.parametrize(
    ("between", "why", "advice"),
    [
        (
            lambda x, side: F.softplus(x, 2.0, 0.5) if side else F.softplus(x),
            "beta: 1.0 | 2.0, threshold: 20.0 | 0.5",
            "set beta, threshold as on the left",
        ),
        (
            lambda x, side: x.reshape(4, 6, 2).permute(2, 0, 1) if side else x.reshape(4, 2, 6).permute(1, 0, 2),
            "shape of reshape: (4, 2, 6) | (4, 6, 2), dims of permute: (1, 0, 2) | (2, 0, 1)",
            "set these as on the left",
        ),
    ],
    ids=["of one call", "of two calls"],
)
def test_settings_that_explain_it_together(
    tmp_path: Path, between: Callable[[torch.Tensor, int], torch.Tensor], why: str, advice: str
) -> None:
    """None of them does alone."""

    def run(side: int, record: Callable[..., Any]) -> None:
        net = Net(lambda net, x: between(net.layer(x), side).sin(), layer=nn.Linear(8, 12))
        with record(net):
            net(rand(4, 8))

    mistake = only_mistake(compared(tmp_path, run))
    assert mistake.why.startswith(f"{why}; with the left's the results agree")
    assert mistake.advice == advice
