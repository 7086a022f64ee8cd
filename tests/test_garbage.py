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
