"""What is missing, too old or of the wrong version is said, with the command that helps; and nothing is left on disk."""

import importlib.metadata

import pytest

ms = pytest.importorskip("mindspore")

import numpy as np  # noqa: E402
from mindspore import nn  # noqa: E402

import twintrace as tt  # noqa: E402
from twintrace.frameworks import registry  # noqa: E402
from twintrace.frameworks.mindspore import ops as kernels  # noqa: E402
from twintrace.model.errors import MissingPackageError  # noqa: E402

pytestmark = pytest.mark.needs_mindspore


def test_mindspore_is_not_installed(monkeypatch):
    monkeypatch.setattr(registry, "installed", lambda name: name != "mindspore")
    with pytest.raises(
        MissingPackageError, match=r"mindspore is not installed .* pip install 'twintrace\[mindspore\]'"
    ):
        registry.by_name("mindspore")


@pytest.mark.parametrize("asked", ["numpy<2.0.0,>=1.20.0", "numpy (>=1.20.0,<2.0.0)"])
def test_numpy_is_too_new(monkeypatch, tmp_path, asked):
    monkeypatch.setattr(np, "__version__", "2.4.6")
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: ["scipy<2", asked])
    with pytest.raises(MissingPackageError, match=r"numpy below 2, and this is numpy 2.4.6.*pip install .*'numpy<2'"):
        tt.record(tmp_path / "t", nn.Dense(2, 2))
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("asked", ["numpy>=1.25.0", "numpy<20"])
def test_numpy_2_is_for_a_mindspore_that_takes_it(monkeypatch, tmp_path, asked):
    tt.record(tmp_path / "s", nn.Dense(2, 2)).close()  # numba looks at numpy's version too, when it is first used
    monkeypatch.setattr(np, "__version__", "2.4.6")
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: ["scipy<2", asked])
    tt.record(tmp_path / "t", nn.Dense(2, 2)).close()


def test_mindspore_is_too_old_for_kernels(monkeypatch, tmp_path):
    monkeypatch.setattr(kernels, "_DispatchGuardStack", None)
    monkeypatch.setattr(ms, "__version__", "2.7.0")
    with pytest.raises(MissingPackageError, match=r"needs MindSpore 2.9 or newer.* this is 2.7.0.*mindspore>=2.10"):
        tt.record(tmp_path / "t", nn.Dense(2, 2), level="op")
    assert not (tmp_path / "t").exists()
    tt.record(tmp_path / "u", nn.Dense(2, 2), level="mix").close()


def test_what_is_no_cell(tmp_path):
    with pytest.raises(tt.UsageError, match="expected a module of a known framework"):
        tt.record(tmp_path / "t", lambda x: x)
