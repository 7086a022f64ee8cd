"""The doors of the house: imports go down only, lazy ones included.

    cli     → api, compat, model                            align, judge → operations, model
    compat  → api, store, model                             operations, report, frameworks, engine → model
    loops   → api, model
    testing → api, store, frameworks, model                 measure, store → engine, model; model → nothing
    api     → everything below                              weights → frameworks, measure, store, model
                                                            diagnose, layouts → operations, store, model
    collect → store, frameworks, model        frameworks/<one> → protocol.py, nodes.py, runs.py, headroom.py, no other <one>,
                                                            but msadapter → mindspore

`testing` is above `api` because what it ships is for the tests of others. The package's own `__init__.py` lends names out of
`api` and below, so a name taken from `twintrace` itself counts as taken from `api`; `__version__` alone is everybody's.
To move a wall, change DOORS or HOMES here together with docs/explanation/architecture.md.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parent.parent / "src" / "twintrace"

STAGES = {"align", "operations", "measure", "judge", "report", "store", "frameworks", "engine"}
BELOW_API = {"collect", "weights", "diagnose", "layouts", "model"} | STAGES
DOORS: dict[str, set[str]] = {stage: {"model"} for stage in STAGES} | {
    "__init__": {"api", "errors"} | BELOW_API,
    "__main__": {"cli"},
    "errors": {"model"},
    "cli": {"api", "compat", "model"},
    "compat": {"api", "store", "model"},
    "testing": {"api", "store", "frameworks", "model"},
    "loops": {"api", "model"},
    "api": BELOW_API,
    "collect": {"store", "frameworks", "model"},
    "weights": {"frameworks", "measure", "store", "model"},
    "diagnose": {"operations", "store", "model"},
    "layouts": {"operations", "store", "model"},
    "measure": {"engine", "model"},
    "operations": {"engine", "model"},
    "store": {"engine", "model"},
    "align": {"operations", "model"},
    "judge": {"operations", "model"},
    "model": set(),
}
ADAPTERS = {"torch", "mindspore", "msadapter", "reference"}
# What is MindSpore beneath is recorded by MindSpore's means: tensors, graph and kernels are the same.
BORROWS = {"msadapter": {"mindspore"}}
# Packages that are not ours, and where each may be imported; a package that is in neither table has no home yet.
HOMES = {
    "torch": (
        "frameworks/torch/",
        "frameworks/msadapter/",
        "operations/kernels/",
        "operations/leaves.py",
        "operations/causes/",
        "operations/allowances.py",
        "operations/differences.py",
        "operations/recorded.py",
        "operations/recorded_gradients.py",
        "operations/audits.py",
        "operations/evaluation.py",
        "operations/recomputation.py",
        "operations/pullbacks.py",
        "operations/splits.py",
        "operations/replay.py",
        "operations/rounding/",
        "operations/scores.py",
        "operations/scoring.py",
        "operations/ties.py",
        "operations/simulation.py",
        "operations/transforms.py",
        "operations/workers.py",
    ),
    "triton": ("frameworks/torch/",),
    "fsspec": ("store/remote.py",),
    "ray": ("engine/cluster.py",),
    "mindspore": ("frameworks/mindspore/", "frameworks/msadapter/"),
    "click": ("cli/",),
    "rich": ("cli/", "report/"),
    "yaml": ("align/", "compat/msprobe/"),
    "numba": (
        "store/",
        "measure/",
        "engine/compiling.py",
        "engine/intrinsics.py",
        "compat/torch_npu_hooks/decimals_numba.py",
        "operations/scores_numba.py",
    ),
    "llvmlite": ("engine/intrinsics.py",),  # numba's own, for an instruction that numba has no name for
    "tomli": ("judge/", "api/accepting.py"),
    "pytest": ("testing/",),
    "transformers": ("loops/transformers.py",),
    "lightning": ("loops/lightning.py",),
    "pytorch_lightning": ("loops/lightning.py",),
    "pandas": ("report/frames.py",),
    "polars": ("report/frames.py",),
    "pyarrow": ("report/frames.py",),
}
BARRED = {"numpy": ("model/", "judge/", "report/")} | dict.fromkeys(["pickle", "_pickle", "shelve", "marshal"], ("",))
# Where a module may be imported by a name that is not written there: the lazy names and commands, and the two registries.
UNSEEN_DOORS = {"__init__.py", "api/__init__.py", "cli/__init__.py", "store/registry.py", "frameworks/registry.py"}
NO_NAMES = re.compile(r"(.*_)?(utils?|commons?|helpers?|misc|consts?|constants?)")


def imports(path: str, tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every (line, dotted module) that a file imports, wherever in the file; "?" if its name cannot be read."""
    package = ["twintrace", *Path(path).parent.parts]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*origin, *filter(None, [node.module])])
            # `from . import reader` imports a module as well: the names are followed as if they were one.
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in {"import_module", "__import__"}:
            name = node.args[0] if node.args else None
            readable = isinstance(name, ast.Constant) and isinstance(name.value, str)
            yield node.lineno, name.value if readable else "?"


def violations(path: str, source: str) -> list[str]:
    """What is wrong with one file; `path` is relative to src/twintrace."""
    tree = ast.parse(source)
    parts = Path(path).with_suffix("").parts
    found = [
        f"{path}: {part!r} says nothing of what lives there" for part in parts if NO_NAMES.fullmatch(part.strip("_"))
    ]
    if parts[-1] == "__init__" and not ast.get_docstring(tree):
        found.append(f"{path}: no door sign (docstring)")
    for line, module in imports(path, tree):
        fault = fault_of(path, parts, module)
        if fault:
            found.append(f"{path}:{line}: {fault}")
    return found


def fault_of(path: str, parts: tuple[str, ...], module: str) -> str | None:
    room, (top, *inner) = parts[0], module.split(".")
    if module == "?":
        return None if path in UNSEEN_DOORS else "imports by a name that is not written here"
    if top != "twintrace":
        if path.startswith(BARRED.get(top, ())):
            return f"imports {top}, which is not allowed here"
        at_home = path.startswith(HOMES[top]) if top in HOMES else top in {*sys.stdlib_module_names, *BARRED}
        return None if at_home else f"imports {top}, which belongs to {HOMES.get(top, 'no room yet: see HOMES')}"
    target = inner[0] if inner and inner[0] in {*DOORS, "__version__"} else "api"
    if target not in {room, "__version__"} and target not in DOORS.get(room, set()):
        return f"{room} has no door to {target} ({module})"
    shop = inner[1] if target == "frameworks" and len(inner) > 1 else None
    lenders = BORROWS.get(parts[1], set()) if room == "frameworks" and len(parts) > 1 else set()
    if (
        shop
        and room == "frameworks"
        and parts[1] in ADAPTERS
        and shop not in {parts[1], "protocol", "nodes", "runs", "headroom", *lenders}
    ):
        return f"the {parts[1]} adapter may use itself, protocol.py, nodes.py, runs.py and headroom.py ({module})"
    if shop in ADAPTERS - lenders and parts[:2] != (target, shop) and (room, shop) != ("testing", "reference"):
        return f"names the {shop} adapter, which only registry.py may, as a string ({module})"
    return None


FILES = sorted(path.relative_to(SRC).as_posix() for path in SRC.rglob("*.py"))


@pytest.mark.parametrize("path", FILES)
def test_a_file_keeps_to_the_doors(path):
    assert not violations(path, (SRC / path).read_text(encoding="utf-8"))


def test_every_folder_has_a_sign_and_every_room_a_door():
    folders = {Path(path).parent for path in FILES}
    assert not [str(folder) for folder in folders if not (SRC / folder / "__init__.py").exists()]
    assert {path.split("/")[0].removesuffix(".py") for path in FILES} <= {*DOORS, "_version"}
    shops = {folder.parts[1] for folder in folders if folder.parts[:1] == ("frameworks",) and len(folder.parts) > 1}
    assert shops <= ADAPTERS


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("model/sites.py", "from ..store import reader"),
        ("model/sites.py", "import twintrace"),
        ("model/sites.py", "import numpy as np"),
        ("judge/policy.py", "def f():\n    from numpy import ndarray"),
        ("report/text.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import numpy"),
        ("report/text.py", "from twintrace.judge.policy import Policy"),
        ("store/reader.py", "from twintrace import api"),
        ("store/reader.py", "from twintrace import record"),
        ("store/reader.py", "from .. import measure"),
        ("store/reader.py", "import pickle"),
        ("store/sub/reader.py", "from ...collect import session"),
        ("align/names.py", "from ..measure import scales"),
        ("collect/session.py", "from ..api import record"),
        ("collect/session.py", "from ..measure import scales"),
        ("collect/session.py", "import torch"),
        ("collect/session.py", "import torch.nn as nn"),
        ("collect/session.py", "from importlib import import_module\nimport_module('torch.nn')"),
        ("collect/session.py", "import importlib\nname = 'torch'\nimportlib.import_module(name)"),
        ("collect/session.py", "__import__('torch')"),
        ("collect/session.py", "from ..frameworks.torch import adapter"),
        ("collect/session.py", "from ..frameworks import torch"),
        ("collect/session.py", "import numba"),
        ("collect/session.py", "import requests"),
        ("cli/record.py", "from ..store import reader"),
        ("compat/msprobe/debugger.py", "from ...collect import session"),
        ("weights/names.py", "import torch"),
        ("api.py", "import click"),
        ("api.py", "from .cli import main"),
        ("api.py", "import rich.table"),
        ("testing/contract.py", "from ..frameworks.torch import adapter"),
        ("frameworks/protocol.py", "from .torch import adapter"),
        ("frameworks/protocol.py", "import mindspore"),
        ("frameworks/torch/calls.py", "import mindspore"),
        ("frameworks/torch/calls.py", "from ..reference import names"),
        ("frameworks/torch/calls.py", "from .. import mindspore"),
        ("frameworks/torch/calls.py", "from ..registry import by_name"),
        ("frameworks/mindspore/calls.py", "from ..msadapter import names"),
        ("frameworks/msadapter/calls.py", "from ..torch import names"),
        ("frameworks/torch/calls.py", "from ...store import lines"),
        ("newroom/thing.py", "from ..model import sites"),
        ("store/utils.py", ""),
        ("store/_helpers.py", ""),
        ("common/things.py", ""),
        ("store/path_utils.py", ""),
        ("model/constants.py", ""),
        ("store/__init__.py", "x = 1"),
    ],
)
def test_the_check_rejects(path, source):
    assert violations(path, source), f"{source!r} in {path} should have been refused"


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("__init__.py", "'''Sign.'''\nimport importlib\nimportlib.import_module(where)"),
        ("__main__.py", "from twintrace.cli import main"),
        ("api.py", "from .collect.session import Session\nfrom . import frameworks, store"),
        (
            "cli/record.py",
            "import click\nfrom rich.table import Table\nfrom .. import api, __version__\nfrom ..model import sites",
        ),
        ("compat/msprobe/debugger.py", "from ... import record\nfrom ...store import registry"),
        (
            "collect/session.py",
            "import numpy as np\nfrom ..frameworks.protocol import Framework\nfrom .flatten import x",
        ),
        (
            "frameworks/torch/calls.py",
            "import torch\nfrom . import names\nfrom ..protocol import Sink\nfrom ...model import sites",
        ),
        ("frameworks/msadapter/calls.py", "import torch, mindspore\nfrom ..mindspore.calls import Calls"),
        ("frameworks/registry.py", "import importlib\nfrom .protocol import Framework\nimportlib.import_module(entry)"),
        ("testing/contract.py", "from ..frameworks.reference import adapter\nfrom ..api import record"),
        ("store/digest.py", "def f():\n    import numba\nfrom . import layout"),
    ],
)
def test_the_check_accepts(path, source):
    assert not violations(path, source)


def unknown_types(picture: str) -> list[str]:
    """Types that a picture of the flow names and that no file of the source defines."""
    sources = "\n".join((SRC / path).read_text(encoding="utf-8") for path in FILES)
    named = set(re.findall(r"\b[A-Z][a-z]+(?:[A-Z][a-z]+)*\b", picture))
    return sorted(name for name in named if not re.search(rf"^class {name}\b", sources, re.MULTILINE))


def test_the_picture_of_the_flow_names_real_types():
    page = (SRC.parent.parent / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
    picture = re.search(r"```text\n(.*?)```", page, re.DOTALL)[1]
    assert picture.count("│") > 5
    assert unknown_types(picture) == []
    assert unknown_types("Session ─▶ Nowhere") == ["Nowhere"]
