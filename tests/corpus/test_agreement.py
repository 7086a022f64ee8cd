"""A correct port agrees with its original: nothing differs by more than rounding, and nothing that means something is alone."""

import pytest

import twintrace as tt
from corpus.notation import pair_names
from corpus.record import recordings
from corpus.test_alignment import SOME

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
    assert found.agree, tt.verdict(found)
