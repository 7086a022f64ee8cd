"""MSAdapter where it is not: what is said, and that it is asked before PyTorch."""

import pytest

from twintrace.api import doctor
from twintrace.frameworks import registry
from twintrace.model.errors import MissingPackageError


def test_it_is_asked_first():
    assert registry.names().index("msadapter") < registry.names().index("torch")


def test_it_is_told_how_to_get_it():
    assert not registry.installed("msadapter")
    with pytest.raises(
        MissingPackageError, match=r"`torch` is not MSAdapter in this process.*pip install 'twintrace\[mindspore\]'"
    ):
        registry.by_name("msadapter")
    found = next(finding for finding in doctor() if finding.subject == "msadapter")
    assert (found.good, found.text) == (False, "not installed")
    assert found.remedy.startswith("pip install 'twintrace[mindspore]'")


@pytest.mark.needs_torch
def test_pytorch_is_pytorch():
    torch = pytest.importorskip("torch")
    assert registry.installed("torch")
    assert registry.framework_of(torch.ones(1)).name == "torch"
    assert "msadapter" not in [adapter.name for adapter in registry.loaded()]
