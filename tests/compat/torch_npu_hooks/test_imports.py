"""Importing the embassy does nothing: no framework, no patch; the old tool replaced a thousand functions."""

PROBE = """
import sys
import twintrace.compat.torch_npu_hooks as hooks
assert "numpy" not in sys.modules
from twintrace.compat.torch_npu_hooks import register_acc_cmp_hook, seed_all, set_dump_path
from twintrace.compat.torch_npu_hooks.tools import compare
import twintrace.compat.run_as
assert not {"torch", "torch_npu", "mindspore", "numba"} & set(sys.modules), sorted(sys.modules)
assert sorted(hooks.__all__) == ["register_acc_cmp_hook", "seed_all", "set_dump_path"]
"""


def test_importing_it_does_nothing(python):
    done = python(PROBE)
    assert done.returncode == 0, done.stderr
