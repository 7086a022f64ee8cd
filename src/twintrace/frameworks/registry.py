"""The framework that an object belongs to: a small table of dotted names, asked among the modules that are already imported.

    framework_of(model)         the adapter that owns the object
    by_name("torch")            that adapter; MissingPackageError with the pip command if its package is not installed, or too old
    loaded()                    the adapters whose framework this process has imported
    foremost()                  those of them that the user can have meant without saying so
    weights_of(net)             (name, what the adapter does with weights); weights_by_name("torch") likewise

MSAdapter is a package called `torch` whose tensors are MindSpore's. So whether `torch` is PyTorch is asked of its tensor class, and
not of the environment; and where it is MSAdapter, the MindSpore beneath it is not what the user means.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import cast

from ..model import versions
from ..model.errors import MissingPackageError, UsageError
from .protocol import Framework, Weights


@dataclass(frozen=True, slots=True)
class _Entry:
    module: str
    package: str
    extra: str
    beneath: str = ""
    """The framework that this one runs on."""


_FRAMEWORKS: dict[str, _Entry] = {
    "msadapter": _Entry("twintrace.frameworks.msadapter", "torch", "", "mindspore"),
    "torch": _Entry("twintrace.frameworks.torch", "torch", "torch"),
    "mindspore": _Entry("twintrace.frameworks.mindspore", "mindspore", "mindspore"),
    "reference": _Entry("twintrace.frameworks.reference", "twintrace.frameworks.reference", ""),
}
REFERENCE = "reference"
"""The miniature framework that tests use: never chosen where a real one will do."""


def names() -> tuple[str, ...]:
    """The frameworks that can be recorded, most specific first."""
    return tuple(_FRAMEWORKS)


def by_name(name: str) -> Framework:
    """The adapter called `name`."""
    entry = _FRAMEWORKS.get(name)
    if entry is None:
        raise UsageError(f"unknown framework {name!r}: expected one of {', '.join(_FRAMEWORKS)}.")
    if not installed(name):
        raise MissingPackageError(_absence(name, entry))
    if entry.module not in sys.modules:
        _check_version(entry.beneath or name)
    adapter: Framework = importlib.import_module(entry.module).FRAMEWORK
    return adapter


def _check_version(name: str) -> None:
    """MissingPackageError if this framework is too old. Asked before its adapter is imported, which would fail in its own way."""
    package = importlib.import_module(_FRAMEWORKS[name].package)
    versions.require(name, str(getattr(package, "__version__", "")))


def peculiar(name: str, part: str) -> ModuleType:
    """A file that only this adapter has, such as torch's `devices`: for what no other framework could be asked."""
    by_name(name)
    return importlib.import_module(f"{_FRAMEWORKS[name].module}.{part}")


def installed(name: str) -> bool:
    """Could this framework be imported? Of PyTorch and MSAdapter, which are both called `torch`, the one that would be."""
    package = _FRAMEWORKS[name].package
    if package in sys.modules:
        return _is_loaded(name)
    found = importlib.util.find_spec(package)
    return found is not None and (package != "torch" or _is_compiled(found.origin) is (name == "torch"))


def loaded() -> list[Framework]:
    """The adapters whose framework has been imported by this process."""
    return [by_name(name) for name in _FRAMEWORKS if _is_loaded(name)]


def foremost() -> list[Framework]:
    """The adapters that may be meant: loaded, not the reference where there is a real one, not what another runs on."""
    found = loaded()
    beneath = {_FRAMEWORKS[adapter.name].beneath for adapter in found}
    return [adapter for adapter in found if adapter.name not in {REFERENCE, *beneath}] or found


def _is_loaded(name: str) -> bool:
    if _FRAMEWORKS[name].package != "torch":
        return _FRAMEWORKS[name].package in sys.modules
    tensor = getattr(sys.modules.get("torch"), "Tensor", None)
    theirs = getattr(sys.modules.get("mindspore"), "Tensor", None)
    is_adapter = isinstance(tensor, type) and isinstance(theirs, type) and issubclass(tensor, theirs)
    return "torch" in sys.modules and is_adapter is (name == "msadapter")


def _is_compiled(origin: str | None) -> bool:
    """Before `torch` is imported there is no object to ask. PyTorch has a compiled core beside its first file, MSAdapter none."""
    return origin is not None and any(Path(origin).parent.glob("_C.*"))


def _absence(name: str, entry: _Entry) -> str:
    if name == "msadapter":
        return (
            "msadapter: `torch` is not MSAdapter in this process (import it before it is asked for). "
            "Get it with: pip install 'twintrace[mindspore]', then MSAdapter itself, whose `torch` must come first on PYTHONPATH"
        )
    if name == "torch" and _is_loaded("msadapter"):
        return (
            "torch: in this process `torch` is MSAdapter. Say framework='msadapter', or take MSAdapter off PYTHONPATH."
        )
    return f"{name} is not installed in this environment ({sys.prefix}). Get it with: pip install 'twintrace[{entry.extra}]'"


def packages() -> frozenset[str]:
    """Packages that a script imports to use a framework."""
    return frozenset(entry.package for entry in _FRAMEWORKS.values())


def load(packages: Collection[str]) -> None:
    """Import the adapters of these packages, as far as they are installed."""
    for name, entry in _FRAMEWORKS.items():
        if entry.package in packages and installed(name):
            by_name(name)


def framework_of(value: object) -> Framework | None:
    """The adapter that owns this tensor or module, or None."""
    for adapter in loaded():
        if adapter.is_module(value) or adapter.is_tensor(value):
            return adapter
    return None


# An adapter's weights are a module of their own: moving weights needs no hooks, and recording no weights.
_WITH_WEIGHTS = ("torch", "mindspore", REFERENCE)


def weights_by_name(name: str) -> Weights:
    """Work on weights of the adapter called `name`."""
    if name not in _WITH_WEIGHTS:
        raise UsageError(f"unknown framework {name!r}: expected one of {', '.join(_WITH_WEIGHTS)}.")
    by_name(name)  # says how to get it, where it is not installed
    return cast("Weights", importlib.import_module(f"{_FRAMEWORKS[name].module}.weights"))


def weights_of(value: object) -> tuple[str, Weights] | None:
    """(framework, what it does with weights) of the adapter that owns this net or tensor, or None."""
    for name in _WITH_WEIGHTS:
        if _FRAMEWORKS[name].package in sys.modules:
            adapter = weights_by_name(name)
            if adapter.is_net(value) or adapter.is_tensor(value):
                return name, adapter
    return None
