"""The embassy is global: each test gets it as a new process would."""

import pytest

from twintrace.compat.msprobe import debugger, seeds


@pytest.fixture(autouse=True)
def _fresh_embassy():
    debugger.close()
    yield
    debugger.close()
    seeds.restore()
