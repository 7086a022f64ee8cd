"""A correct port agrees with its original: nothing differs by more than rounding, and nothing that means something is alone.

Where one side has in one parameter what the other has in several, the gradients of these have no counterpart: told, and not held
against either here.
"""

import pytest

import twintrace as tt
from corpus.notation import pair_names, truth_of
from corpus.record import SOME, recordings
from twintrace.model.verdicts import Outcome

pytestmark = [pytest.mark.needs_torch, pytest.mark.needs_mindspore]

AGREEING = ["gpt", "mlp", "resnet", "unet"]


@pytest.mark.parametrize("name", AGREEING)
def test_a_correct_port_agrees(name, shared):
    found = tt.compare(*recordings(SOME, shared / "mix")[name])
    assert found.agree, tt.verdict(found)


@pytest.mark.slow
@pytest.mark.parametrize("name", pair_names())
def test_every_correct_port_agrees(name, shared):
    found = tt.compare(*recordings(pair_names(), shared / "all-mix", level="mix")[name])
    assert not found.count(Outcome.DIFFERENT), tt.verdict(found)
    split = any(line.rows for line in truth_of(name).declared)
    assert found.agree or split, tt.verdict(found)
