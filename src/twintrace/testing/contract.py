"""Promises of every adapter, as one class.

    class TestMine(FrameworkContract):
        @pytest.fixture
        def framework(self):
            return MyPage()                  a `fixtures.Page`

A test that needs a capability which the adapter does not claim is skipped. The tests are in `promises`, by theme.
"""

from __future__ import annotations

import pytest

from .fixtures import Page
from .promises.backward import BackwardContract
from .promises.faults import FaultsContract
from .promises.forward import ForwardContract
from .promises.hooks import HooksContract
from .promises.levels import LevelsContract
from .promises.saving import SavingContract
from .promises.selection import SelectionContract
from .promises.sessions import SessionContract
from .promises.values import ValuesContract


class FrameworkContract(
    LevelsContract,
    ForwardContract,
    BackwardContract,
    HooksContract,
    ValuesContract,
    SavingContract,
    SelectionContract,
    SessionContract,
    FaultsContract,
):
    """All of it. A subclass gives the page."""

    @pytest.fixture
    def framework(self) -> Page:
        raise NotImplementedError("give the page: override the fixture `framework`")
