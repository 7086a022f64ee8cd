"""Looking for cycles later, and as before afterwards."""

import gc

import pytest

from twintrace.model.garbage import collecting_later


def test_the_collector_is_back_whatever_happens():
    assert gc.isenabled()
    with collecting_later():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(KeyError), collecting_later():
        raise KeyError
    assert gc.isenabled()


def test_a_pause_within_a_pause_ends_with_the_outer_one():
    with collecting_later():
        with collecting_later():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_settled_objects_are_not_looked_at_by_the_next_collection():
    """They are among the old ones, and cycles among them are still found by a full collection."""
    gc.collect()
    with collecting_later(settle=True):
        cycle: list[object] = []
        cycle.append(cycle)
        kept = [[] for _ in range(100)]
    assert all(any(item is each for each in gc.get_objects(generation=2)) for item in (cycle, kept[0], kept[-1]))
    assert gc.get_freeze_count() == 0
    del cycle
    assert gc.collect()


def test_objects_that_somebody_froze_stay_frozen():
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        with collecting_later(settle=True):
            pass
        assert gc.get_freeze_count() > frozen // 2  # a few may have been freed meanwhile, by their last reference
    finally:
        gc.unfreeze()
