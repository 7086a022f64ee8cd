"""Let the tests of this folder say `from cells import CASES`, whatever import mode pytest runs in.

There is no `__init__.py` here on purpose: a package named `mindspore` beside a `sys.path` entry would hide the real one.
"""

import sys
from pathlib import Path

import pytest

HERE = str(Path(__file__).parent)
if HERE not in sys.path:
    sys.path.append(HERE)


@pytest.fixture(autouse=True, scope="session")
def _beside_numpy_2(mindspore_beside_numpy_2):
    """The first call of MindSpore is made."""


@pytest.fixture(autouse=True)
def _after_a_network_that_raised():
    """MindSpore does not tidy up after a forward that raised while it was differentiated: the next gradient would fail, or be of
    a higher order. Whoever lets a network raise does it here.
    """
    yield
    if "mindspore" in sys.modules:
        from twintrace.frameworks.mindspore.gradients import running

        running._pynative_executor.clear_res()
        running._pynative_executor.set_grad_flag(False)
