"""Whose object is this? A small table of dotted names, asked among the modules that are already imported.

    framework_of(model)         the workshop that owns the object
    by_name("torch")            that workshop; MissingPackageError with the pip command if its package is not installed
    loaded()                    the workshops whose framework this process has imported

MSAdapter's tensors are MindSpore tensors behind torch's name, so more specific workshops are asked first.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Collection
from dataclasses import dataclass
from types import ModuleType

from ..model.errors import MissingPackageError, UsageError
from .protocol import Framework


@dataclass(frozen=True, slots=True)
class _Entry:
    module: str
    package: str
    extra: str


_FRAMEWORKS: dict[str, _Entry] = {
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
    """The workshop called `name`."""
    entry = _FRAMEWORKS.get(name)
    if entry is None:
        raise UsageError(f"unknown framework {name!r}: expected one of {', '.join(_FRAMEWORKS)}.")
    if not installed(name):
        raise MissingPackageError(
            f"{name} is not installed in this environment ({sys.prefix}). Get it with: pip install 'twintrace[{entry.extra}]'"
        )
    workshop: Framework = importlib.import_module(entry.module).FRAMEWORK
    return workshop


def peculiar(name: str, part: str) -> ModuleType:
    """A file that only this workshop has, such as torch's `devices`: for what no other framework could be asked."""
    by_name(name)
    return importlib.import_module(f"{_FRAMEWORKS[name].module}.{part}")


def installed(name: str) -> bool:
    """Could this framework be imported?"""
    package = _FRAMEWORKS[name].package
    return package in sys.modules or importlib.util.find_spec(package) is not None


def loaded() -> list[Framework]:
    """The workshops whose framework has been imported by this process."""
    return [by_name(name) for name, entry in _FRAMEWORKS.items() if entry.package in sys.modules]


def load(packages: Collection[str]) -> None:
    """Import the workshops of these packages, as far as they are installed."""
    for name, entry in _FRAMEWORKS.items():
        if entry.package in packages and installed(name):
            by_name(name)


def framework_of(value: object) -> Framework | None:
    """The workshop that owns this tensor or module, or None."""
    for workshop in loaded():
        if workshop.is_module(value) or workshop.is_tensor(value):
            return workshop
    return None
