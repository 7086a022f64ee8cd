"""Let the tests of this folder say `from corpus import …`, and share what they run and record between all test processes."""

import os
import sys
from pathlib import Path

import pytest

TESTS = str(Path(__file__).resolve().parent.parent)
if TESTS not in sys.path:
    sys.path.append(TESTS)


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    """A folder that all processes of this test session share."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "corpus"
