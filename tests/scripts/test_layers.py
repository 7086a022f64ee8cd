"""Thin environments over this one: built once, hiding what is underneath, and saying why they could not be built."""

import subprocess
import sysconfig
import zipfile

import pytest

from scripts.layers import LayerError, layer


@pytest.fixture
def wheel(tmp_path):
    """A package called `thing`."""
    path = tmp_path / "thing-1.0-py3-none-any.whl"
    about = "thing-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("thing.py", "VALUE = 1\n")
        archive.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: thing\nVersion: 1.0\n")
        archive.writestr(
            f"{about}/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{about}/RECORD", "")
    return path


def told(python, code):
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_a_layer_has_what_is_named_and_what_is_underneath(wheel, tmp_path, capsys):
    def finish(packages):
        (packages / "thing.py").write_text("VALUE = 22\n")

    options = {"variables": {"THING": "yes"}, "finish": finish, "finished": 2, "cache": tmp_path / "cache"}
    python = layer("things", [str(wheel)], **options)
    assert "building" in capsys.readouterr().out
    code = "import os, thing, numpy, pytest; print(thing.VALUE, os.environ['THING'], numpy.__version__)"
    assert told(python, code).startswith("22 yes 1.")

    assert layer("things", [str(wheel)], **options) == python
    assert "building" not in capsys.readouterr().out
    assert layer("things", [str(wheel)], **{**options, "finished": 3}) != python

    (python.parent.parent / "complete").unlink()  # as if it had been interrupted
    layer("things", [str(wheel)], **options)
    assert "building" in capsys.readouterr().out


def test_checkouts_share_their_layers(wheel, tmp_path, monkeypatch):
    """A .venv is itself a thin layer over cached dependencies; those are what lies underneath."""
    real = sysconfig.get_paths()["purelib"]
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "_cached_dependencies.pth").write_text(f"{real}\n")
    pythons = []
    for name in ("one", "two"):
        monkeypatch.setattr(
            sysconfig, "get_paths", lambda home=str(tmp_path / name): {"purelib": home, "platlib": home}
        )
        pythons.append(layer("things", [str(wheel)], cache=tmp_path / "cache"))
    assert pythons[0] == pythons[1]
    assert told(pythons[0], "import thing, numpy; print(thing.VALUE)") == "1"


def test_what_cannot_be_built_says_why(tmp_path):
    with pytest.raises(LayerError, match="no-such-thing"):
        layer("things", [str(tmp_path / "no-such-thing.whl")], cache=tmp_path / "cache")
    assert not list((tmp_path / "cache").glob("*/complete"))
