"""The embassy is global: each test gets it as a new process would."""

import pytest

from tests.compat.torch_npu_hooks.dumps import fresh


@pytest.fixture(autouse=True)
def _fresh_embassy():
    with fresh():
        yield
