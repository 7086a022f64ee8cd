"""Looking for circles less often, and as before afterwards."""

import gc

import pytest

from twintrace.compat.msprobe.compare.flow import seldom


def test_what_was_set_comes_back_whatever_happens():
    before = gc.get_threshold()
    with seldom():
        assert gc.get_threshold()[0] > before[0]
        assert gc.isenabled()
    assert gc.get_threshold() == before
    with pytest.raises(KeyError), seldom():
        raise KeyError
    assert gc.get_threshold() == before
