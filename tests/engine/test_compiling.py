"""Compiling takes seconds: it is said, once, and only where it happens; and what is compiled is kept for all environments."""

import importlib
import os
import subprocess
import sys

import pytest

numba = pytest.importorskip("numba")

from twintrace.engine import compiling  # noqa: E402
from twintrace.engine.compiling import TOLD, compiled, state_of  # noqa: E402

_KERNELS = """
import numpy as np
from twintrace.store.digest import digest
digest(np.zeros(4, np.float32), "f32")
digest(np.zeros(4, np.float64), "f64")
"""


def _run(text, cache):
    env = os.environ | {"NUMBA_CACHE_DIR": str(cache)}
    return subprocess.run([sys.executable, "-c", text], env=env, capture_output=True, text=True, check=True).stderr


def test_what_is_compiled_is_told_once_and_what_is_in_the_cache_is_not(tmp_path):
    """Without a terminal, and without anything set up for logging."""
    assert _run(_KERNELS, tmp_path).splitlines() == [TOLD]
    assert _run(_KERNELS, tmp_path) == ""


def test_it_goes_through_the_log_so_that_it_can_be_switched_off(tmp_path):
    off = "import logging; logging.getLogger('twintrace').setLevel(logging.ERROR)"
    assert _run(off + _KERNELS, tmp_path) == ""


@pytest.fixture
def load(tmp_path, monkeypatch):
    """`load("here", 3)`: the kernel of a package in this folder, compiled, with a number in it that comes from a third file."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # a second text of the same second would not be seen

    def run(environment, factor):
        package = tmp_path / environment / "kernels_of_this_test"
        (package / "inner").mkdir(parents=True, exist_ok=True)
        (package / "kernel.py").write_text("from .inner.part import FACTOR\ndef kernel(n):\n    return n * FACTOR\n")
        (package / "inner" / "part.py").write_text("from .. import numbers\nFACTOR = numbers.FACTOR\n")
        (package / "numbers.py").write_text(f"FACTOR = {factor}\n")
        state_of.cache_clear()
        for name in [name for name in sys.modules if name.startswith(package.name)]:
            del sys.modules[name]
        importlib.invalidate_caches()
        with monkeypatch.context() as patched:
            patched.syspath_prepend(package.parent)
            return compiled((numba.types.int64,), importlib.import_module(f"{package.name}.kernel").kernel)

    return run


def hits(kernel):
    return sum(kernel.stats.cache_hits.values())


def test_another_environment_takes_what_is_compiled_from_the_disk(load):
    assert [hits(kernel) for kernel in (load("here", 3), load("here", 3), load("there", 3))] == [0, 1, 1]
    assert load("there", 3)(2) == 6


def test_a_change_in_any_file_that_a_kernel_is_made_of_is_seen(load):
    assert load("here", 3)(2) == 6
    assert load("here", 5)(2) == 10
    assert hits(load("here", 3)) == 1  # and the other is still there


def test_by_numba_alone_it_would_not_be_seen(load, monkeypatch):
    monkeypatch.setattr(compiling, "_imported", lambda file: {file})
    assert load("here", 3)(2) == 6
    assert load("here", 5)(2) == 6


def test_another_compiler_compiles_anew(load, monkeypatch):
    load("here", 3)
    monkeypatch.setattr(numba, "__version__", "0.0.0")
    assert hits(load("here", 3)) == 0


def test_without_a_place_of_ours_numba_keeps_it_beside_the_sources(load, monkeypatch, tmp_path):
    monkeypatch.setattr(compiling._Shared, "from_function", lambda *_: None)
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    assert load("here", 3)(2) == 6
    assert [*(tmp_path / "here").rglob("*.nbi")]
