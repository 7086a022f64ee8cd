"""What the tests of the net share: the reference page, and recorders on it."""

import pytest

from tests.frameworks.reference.test_contract import ReferencePage
from twintrace.testing.recording import recorder


@pytest.fixture
def page():
    return ReferencePage()


@pytest.fixture
def record(page, tmp_path):
    """`record(model, …)`: a recorder that writes to `tmp_path / "t"`."""
    return lambda model=None, **options: recorder(page, tmp_path / "t", model, **options)
