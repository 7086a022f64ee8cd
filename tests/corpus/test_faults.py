"""A planted mistake is found where it is: the first divergence names the guilty call, on both sides."""

import pytest

import twintrace as tt
from corpus.faults import FAULTS, Fault, Place, fault_of
from corpus.notation import pair_names, truth_of
from corpus.oracle import Oracle
from corpus.record import aligned, faulty_recordings, journals
from corpus.score import survivors
from twintrace.model.results import Comparison

pytestmark = [pytest.mark.needs_torch, pytest.mark.needs_mindspore]

SOME = [
    fault_of(name)
    for name in (
        "layer_norm_epsilon",
        "pad_mode",
        "gelu_by_default",
        "loss_reduction",
        "concat_order",
        "detached_norm",
        "shuffle_order",
    )
]


def blamed(fault: Fault, found: Comparison) -> bool:
    """Is the first divergence where the fault is, and of its kind? A call that one side alone makes has no place on the other."""
    first = found.divergence
    if first is None or first.backward != fault.backward:
        return False
    left, right = first.calls
    return bool(left or right) and all(
        not calls or any(map(place.holds, calls)) for place, calls in ((fault.left, left), (fault.right, right))
    )


@pytest.mark.parametrize("fault", SOME, ids=lambda fault: fault.name)
def test_a_mistake_is_found_where_it_is(fault, shared):
    found = tt.compare(*faulty_recordings(SOME, shared / "mix")[fault.name])
    assert blamed(fault, found), tt.verdict(found)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_every_mistake_is_found_where_it_is(fault, shared):
    found = tt.compare(*faulty_recordings(FAULTS, shared / "all-faults")[fault.name])
    assert blamed(fault, found), tt.verdict(found)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_modules_are_still_matched_where_values_differ(fault, shared):
    """What comes after a mistake has other values on the two sides: then the structure carries the alignment."""
    left, right = journals(faulty_recordings(FAULTS, shared / "all-faults")[fault.name])
    kept, lost, wrong = survivors(truth_of(fault.pair), aligned(left, right), Oracle(left, right))
    assert not wrong
    assert len(kept) >= 0.85 * (len(kept) + len(lost)), lost


def test_there_are_many_mistakes_each_in_a_pair_of_its_own_kind():
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 20
    assert {fault.pair for fault in FAULTS} <= {*pair_names()}


def test_another_place_is_not_accepted(shared):
    """The check itself: the verdict on one fault does not do for another."""
    found = tt.compare(*faulty_recordings(SOME, shared / "mix")["pad_mode"])
    assert not blamed(fault_of("batch_norm_momentum"), found)
    assert not blamed(Fault("", "resnet", Place("layer2.conv2"), Place("blocks.1.b"), ""), found)
