"""Here `torch` is MSAdapter. Where it needs another import first, the environment says which."""

import importlib
import os

import pytest

if "TWINTRACE_IMPORT_FIRST" in os.environ:
    importlib.import_module(os.environ["TWINTRACE_IMPORT_FIRST"])


@pytest.fixture(autouse=True, scope="session")
def _beside_numpy_2(mindspore_beside_numpy_2):
    """The first call of MindSpore is made."""
