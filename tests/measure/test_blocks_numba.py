"""What is compiled is kept on disk, and compiled again when anything that it is made of has changed."""

import ast
import importlib.util
import sys
from pathlib import Path

import pytest
from numba import types

from twintrace.measure import blocks_numba as subject

KERNEL = """
import part


def kernel(number):
    return number * part.FACTOR
"""


@pytest.fixture
def load(tmp_path, monkeypatch):
    """`load(factor)`: a compiled kernel with a number from another file in it."""
    part, kernel = tmp_path / "part.py", tmp_path / "kernel_of_this_test.py"
    kernel.write_text(KERNEL)
    monkeypatch.setattr(subject, "_PARTS", (part,))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # a second text of the same second would not be seen

    def module(file):
        spec = importlib.util.spec_from_file_location(file.stem, file)
        made = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, file.stem, made)
        spec.loader.exec_module(made)
        return made

    def run(factor):
        part.write_text(f"FACTOR = {factor}")
        module(part)
        return subject.compiled((types.int64,), module(kernel).kernel)

    return run


def test_what_was_compiled_is_taken_from_the_disk(load):
    assert load(3)(2) == 6
    again = load(3)
    assert again(2) == 6
    assert sum(again.stats.cache_hits.values()) == 1


def test_a_change_in_another_file_is_seen(load):
    assert load(3)(2) == 6
    assert load(5)(2) == 10


def test_by_numba_alone_it_would_not_be_seen(load, monkeypatch):
    monkeypatch.setattr(subject, "_state", lambda *files: "")
    assert load(3)(2) == 6
    assert load(5)(2) == 6


def test_the_name_knows_every_file_that_the_kernels_are_made_of():
    here = Path(subject.__file__)
    for kernel in ("kernel_numba.py", "ratios_numba.py", here.name):
        assert _imported(here.with_name(kernel)) <= {path.stem for path in (here, *subject._PARTS)}


def test_that_check_finds_what_is_imported():
    assert _imported(Path(subject.__file__)) == {"formats", "totals", "measurements"}


def _imported(file):
    """The modules of ours: `from . import a`, `from .a import …`, `from ..model.a import …`. The engine is no part of a kernel."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level and node.module != "engine":
            whole = node.module in (None, "model")
            found |= {name.name for name in node.names} if whole else {node.module.rpartition(".")[2]}
    return found
