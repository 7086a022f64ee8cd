"""Releases that are too old are refused in one sentence, and the promise is the same wherever it stands."""

import importlib.metadata
import re
import sys
from pathlib import Path

import pytest

import twintrace as tt
from twintrace import api
from twintrace.frameworks import registry
from twintrace.model import versions

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.mark.parametrize(
    ("package", "found"),
    [("torch", "2.0.1+cu118"), ("torch", "1.13.1"), ("mindspore", "2.6.0"), ("numpy", "1.23.5"), ("numpy", "1.9.3")],
)
def test_a_release_that_is_too_old_is_named_beside_the_oldest_that_works(package, found):
    oldest = ".".join(map(str, versions.OLDEST[package]))
    sentence = f"{package} {found} is too old: twintrace needs {package} {oldest} or newer. Get it with: pip install "
    with pytest.raises(tt.errors.MissingPackageError, match=re.escape(sentence)):
        versions.require(package, found)


@pytest.mark.parametrize(
    ("package", "found"),
    [
        ("torch", "2.1.0a0+git"),
        ("torch", "2.15.0+cpu"),
        ("torch", "3.0"),
        ("mindspore", "2.7.0rc1"),
        ("mindspore", "2.10.0"),
        ("numpy", "1.24.0"),
        ("numpy", "2.5.4"),
        ("numpy", "unknown"),
        ("scipy", "0.1"),
    ],
)
def test_others_pass(package, found):
    versions.require(package, found)


@pytest.mark.needs_torch
def test_a_recording_with_an_old_torch_says_so(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch, "__version__", "2.0.1")
    monkeypatch.delitem(sys.modules, "twintrace.frameworks.torch", raising=False)  # as before anything was recorded
    with pytest.raises(tt.errors.MissingPackageError, match=r"torch 2\.0\.1 is too old: twintrace needs torch 2\.1"):
        tt.record(tmp_path / "t", torch.nn.Linear(2, 2))
    [finding] = [finding for finding in tt.doctor() if finding.subject == "torch"]
    assert not finding.good
    assert finding.text == "torch 2.0.1 is too old: twintrace needs torch 2.1 or newer."
    assert finding.remedy == "pip install 'torch>=2.1'"


def test_what_runs_on_mindspore_needs_its_version(monkeypatch):
    asked = []
    monkeypatch.setattr(registry.versions, "require", lambda *given: asked.append(given))
    monkeypatch.setattr(registry, "installed", lambda name: True)
    monkeypatch.setattr(registry.importlib, "import_module", lambda name: registry)
    monkeypatch.setattr(registry, "FRAMEWORK", None, raising=False)
    monkeypatch.delitem(sys.modules, "twintrace.frameworks.msadapter", raising=False)
    registry.by_name("msadapter")
    assert [name for name, _ in asked] == ["mindspore"]


def test_every_verb_asks_numpy(monkeypatch):
    monkeypatch.setattr(importlib.metadata, "version", {"numpy": "1.23.5"}.__getitem__)
    monkeypatch.delitem(vars(api), "compare", raising=False)
    api._check_numpy.cache_clear()
    with pytest.raises(tt.errors.MissingPackageError, match=r"numpy 1\.23\.5 is too old: twintrace needs numpy 1\.24"):
        _ = api.compare


def test_an_old_python_is_refused_before_anything_else(python):
    run = python("import sys; sys.version_info = (3, 9, 18); sys.version = '3.9.18 (main)'; import twintrace")
    assert run.returncode == 1
    assert "ImportError: twintrace needs Python 3.10 or newer, and this is Python 3.9.18 (" in run.stderr


def test_pip_is_asked_for_the_same():
    asked = dict(re.findall(r"\b(numpy|torch|mindspore)>=([\d.]+)", " ".join(map(str, _requirements()))))
    assert asked == {name: ".".join(map(str, oldest)) for name, oldest in versions.OLDEST.items()}
    assert PROJECT["requires-python"].startswith(">=3.10")


def test_the_extras_of_users_pin_nothing():
    offered = PROJECT["optional-dependencies"]
    assert not [asked for name in ("torch", "mindspore", "fast", "frames") for asked in offered[name] if "==" in asked]


def _requirements():
    offered = PROJECT["optional-dependencies"]
    return [*PROJECT["dependencies"], *offered["torch"], *offered["mindspore"]]
