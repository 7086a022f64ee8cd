"""Compiling takes seconds: it is said, once, and only where it happens."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("numba")

from twintrace.engine.compiling import TOLD

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
