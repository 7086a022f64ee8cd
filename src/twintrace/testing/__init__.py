"""Tools for tests of one's own: golden traces for their runs, and a contract suite for a new framework's adapter.

    runs.py        assert_same_run: two runs agree, or the verdict is the assertion's message
    plugin.py      the pytest plugin: the fixture golden_trace, --twintrace-update
    golden.py      a trace as a golden file, the same on every machine

For an adapter: a page of facts about the framework in, a suite of tests out.

    fixtures.py    Page: all that the suite must know of a framework (how to make a tensor, four small models, …)
    contract.py    FrameworkContract: what every adapter promises, as a class of pytest's (by theme in promises/)
    recording.py   recording, as the contract does it
    reading.py     a recorded step, asked by address; arrays compared bit by bit

    class TestMine(FrameworkContract):
        @pytest.fixture
        def framework(self):
            return MyPage()

In: a Page. Out: pytest's verdict. Not here: what only one framework does (its own tests). Surprising: frames of this folder
count as twintrace's own and are left out of recorded stacks, so models must be written in the page, where a user's would be.
"""

import pytest

from .runs import assert_same_run

__all__ = ["assert_same_run"]

pytest.register_assert_rewrite(f"{__name__}.promises", f"{__name__}.reading", f"{__name__}.recording")
