"""Importing twintrace does nothing: no framework, no thread, no patch, no time; and every name it promises is there.

Each check runs in an interpreter of its own, and each has a test that it fails on a package that misbehaves.
"""

import json
import re
import time
from textwrap import dedent

import pytest

HEAVY = ["torch", "mindspore", "numba", "click", "rich", "numpy"]
SECONDS = 0.2
MOST_NAMES = 25

# Prints what `import <argv[1]>` changed. The snapshot's own imports come first, so that they are on neither side.
PROBE = """
import builtins, importlib, json, os, signal, sys, threading, warnings
from pathlib import Path

def snapshot():
    tasks = Path("/proc/self/task")
    return {
        "threads": max(threading.active_count(), len(list(tasks.iterdir())) if tasks.exists() else 0),
        "environ": dict(os.environ),
        "warnings": repr(warnings.filters),
        "hooks": repr([sys.meta_path, sys.path_hooks, sys.excepthook, threading.excepthook, builtins.__import__]),
        "signals": repr([signal.getsignal(number) for number in sorted(signal.valid_signals())]),
    }

modules, before = set(sys.modules), snapshot()
importlib.import_module(sys.argv[1])
after = snapshot()
print(json.dumps({
    "imported": sorted({name.split(".")[0] for name in set(sys.modules) - modules}),
    "changed": sorted(key for key in before if before[key] != after[key]),
}))
"""

NAMES = """
import importlib, json, sys
package = importlib.import_module(sys.argv[1])
listed = list(package.__all__)
print(json.dumps({
    "listed": listed,
    "missing": sorted(name for name in {*listed, *dir(package)} if not hasattr(package, name)),
    "hidden": sorted(set(listed) - set(dir(package))),
}))
"""


@pytest.fixture
def effects(python):
    """`effects(package, path)`: what importing it brings in of HEAVY, and what it changes in the process."""

    def of(package, path=None):
        run = python(PROBE, package, path=path)
        assert run.returncode == 0, run.stderr
        told = json.loads(run.stdout)
        return sorted({*told["imported"]} & {*HEAVY}) + told["changed"]

    return of


@pytest.fixture
def name_faults(python):
    """`name_faults(package, path)`: what is wrong with the names that a package lists."""

    def of(package, path=None):
        run = python(NAMES, package, path=path)
        assert run.returncode == 0, run.stderr
        told = json.loads(run.stdout)
        faults = [f"{name} is listed and not there" for name in told["missing"]]
        faults += [f"{name} is in __all__ and not in dir()" for name in told["hidden"]]
        faults += [f"{name} is listed twice" for name in {*told["listed"]} if told["listed"].count(name) > 1]
        if len(told["listed"]) >= MOST_NAMES:
            faults.append(f"{len(told['listed'])} names: a reader should see them all at a glance")
        return faults

    return of


@pytest.fixture
def seconds(python):
    """`seconds(package, path)`: what importing it adds to the interpreter's own start, at best."""

    def once(code, path):
        start = time.perf_counter()
        assert python(code, path=path).returncode == 0
        return time.perf_counter() - start

    def of(package, path=None):
        # In turns and the best of each: a busy machine slows both, and never makes either faster than it is.
        runs = [(once(f"import {package}", path), once("pass", path)) for _ in range(7)]
        return min(loaded for loaded, _ in runs) - min(bare for _, bare in runs)

    return of


def package_with(folder, source, **others):
    """A package called `specimen`, and modules beside it."""
    (folder / "specimen").mkdir()
    (folder / "specimen" / "__init__.py").write_text(dedent(source), encoding="utf-8")
    for name, text in others.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    return folder


def test_import_has_no_effects(effects):
    assert effects("twintrace") == []


@pytest.mark.parametrize(
    ("source", "effect"),
    [
        ("import torch", "torch"),
        ("from specimen import inner", "numpy"),
        ("import threading, time\nthreading.Thread(target=time.sleep, args=(9,), daemon=True).start()", "threads"),
        ("import os\nos.environ['OMP_NUM_THREADS'] = '77'", "environ"),
        ("import warnings\nwarnings.simplefilter('ignore')", "warnings"),
        ("import sys\nsys.excepthook = print", "hooks"),
        ("import signal\nsignal.signal(signal.SIGUSR1, print)", "signals"),
    ],
)
def test_the_check_of_effects_can_fail(effects, tmp_path, source, effect):
    folder = package_with(tmp_path, source, torch="", numpy="")
    (folder / "specimen" / "inner.py").write_text("import numpy", encoding="utf-8")
    assert effects("specimen", folder) == [effect]


def test_a_package_without_effects_passes_the_check(effects, tmp_path):
    assert effects("specimen", package_with(tmp_path, "import json", torch="")) == []


def test_import_costs_no_time(seconds):
    assert seconds("twintrace") < SECONDS


def test_the_check_of_time_can_fail(seconds, tmp_path):
    assert seconds("specimen", package_with(tmp_path, f"import time\ntime.sleep({SECONDS})")) > SECONDS * 0.9


def test_every_listed_name_is_there(name_faults):
    assert name_faults("twintrace") == []


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("__all__ = ['gone']", "gone is listed and not there"),
        ("__all__ = []\ndef __dir__(): return ['promised']", "promised is listed and not there"),
        ("__all__ = ['lazy']\ndef __getattr__(name): return 1", "lazy is in __all__ and not in dir()"),
        ("twice = 1\n__all__ = ['twice', 'twice']", "twice is listed twice"),
        ("__all__ = [f'n{i}' for i in range(25)]\nglobals().update(dict.fromkeys(__all__))", "25 names"),
    ],
)
def test_the_check_of_names_can_fail(name_faults, tmp_path, source, fault):
    assert any(found.startswith(fault) for found in name_faults("specimen", package_with(tmp_path, source)))


def test_the_version_is_a_version(python):
    version = python("import twintrace; print(twintrace.__version__)").stdout.strip()
    assert re.fullmatch(r"\d+\.\d+\.\d+([a-z0-9.+-]*)", version), version


def without(packages, code):
    """Code that runs as if these packages were not installed."""
    return f"import sys\nsys.modules.update(dict.fromkeys({list(packages)!r}))\n{dedent(code)}"


RECORDING = "import twintrace.collect, twintrace.store, twintrace.frameworks.reference"


def test_recording_needs_neither_the_counter_nor_a_compiler(python):
    run = python(without(["click", "rich", "numba", "torch", "mindspore"], RECORDING))
    assert run.returncode == 0, run.stderr


def test_the_command_starts_without_any_framework(python):
    start = "sys.argv[:] = ['twintrace', '--help']\nfrom twintrace.cli import main\nsys.exit(main())"
    run = python(without(["torch", "mindspore", "numba"], start))
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip()


def test_statistics_of_msprobe_are_compared_without_numpy(python, tmp_path):
    """Half of the command's time would be spent on its import."""
    tensor = {
        "type": "torch.Tensor",
        "dtype": "torch.float32",
        "shape": [2],
        "Max": 1.0,
        "Min": 0.0,
        "Mean": 0.5,
        "Norm": 1.0,
    }
    record = {"input_args": [tensor], "input_kwargs": {}, "output": [tensor]}
    dump = {"task": "statistics", "level": "L1", "framework": "pytorch", "data": {"Torch.relu.0.forward": record}}
    (tmp_path / "dump.json").write_text(json.dumps(dump), encoding="utf-8")
    for more in ([], ["--xlsx", "-da"]):
        command = [
            "twintrace",
            "msprobe",
            "compare",
            "-tp",
            str(tmp_path),
            "-gp",
            str(tmp_path),
            "-o",
            str(tmp_path / "out"),
            *more,
        ]
        start = f"sys.argv[:] = {command!r}\nfrom twintrace.cli import main\nsys.exit(main())"
        run = python(without(["numpy", "rich", "torch", "mindspore", "numba"], start))
        assert run.returncode == 0, run.stderr
    assert len([*(tmp_path / "out").iterdir()]) == 3


@pytest.mark.parametrize("code", ["import click", "import click.core", "from numba import njit"])
def test_a_blocked_package_is_not_importable(python, code):
    run = python(without(["click", "numba"], code))
    assert run.returncode == 1
    assert "ModuleNotFoundError" in run.stderr
