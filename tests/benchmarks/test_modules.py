"""Every benchmark can be imported: those that no test runs would be found broken by the next person who needs them."""

import importlib
from pathlib import Path

import pytest

import benchmarks


@pytest.mark.needs_torch
@pytest.mark.parametrize("name", sorted(path.stem for path in Path(benchmarks.__path__[0]).glob("[a-z]*.py")))
def test_a_benchmark_can_be_imported(name):
    importlib.import_module(f"benchmarks.{name}")
