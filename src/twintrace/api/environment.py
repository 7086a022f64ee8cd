"""Packages that are installed here, stand-ins for those that are not, and the operations that are known."""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import Any

from ..frameworks import registry
from ..model.errors import MissingPackageError
from ..model.listings import Finding, KnownOperation
from ..store import digest
from ..store.registry import exporters, layouts


def stand_in(alias: str, device: str | None = None, *, framework: str, remedy: str = "") -> Callable[[], None]:
    """Let `device` (or the best one here) play a device called `alias` that is not here; calling the result ends that.

    Said once in a warning, when it is first used; `remedy` ends it. Something of that name that is here already stays as it is.
    """
    undo: Callable[[], None] = registry.peculiar(framework, "devices").stand_in(alias, device, remedy)
    return undo


def callback_class(framework: str = "mindspore") -> Any:
    """The class that a callback of the framework's own training loop (MindSpore's `Model.train`) must be of."""
    return registry.peculiar(framework, "callbacks").callback_class()


def imported_frameworks() -> tuple[str, ...]:
    """The frameworks that a program of this process may mean: imported, and not the base of another one of them."""
    return tuple(adapter.name for adapter in registry.foremost())


def doctor() -> list[Finding]:
    """Look at this machine: packages, what can be recorded, what is missing and how to get it.

        print(*(finding.text for finding in tt.doctor() if not finding.good), sep="\\n")

    Returns:
        Findings, each with its subject, a sentence, whether it is good, and the remedy if it is not.
    """
    import numpy

    formats = f"that can be opened: {', '.join(layouts())}; and exported to: {', '.join(exporters())}"
    fast = digest.backend() == "numba"
    speed = "numba" if fast else "numpy only: recording works, and is slower"
    findings = [
        Finding("python", True, platform.python_version()),
        Finding("numpy", True, numpy.__version__),
        Finding("layouts", True, formats),
        Finding("fast digest", fast, speed, "pip install 'twintrace[fast]'"),
    ]
    for name in registry.names():
        if name == registry.REFERENCE:
            continue
        try:
            adapter = registry.by_name(name)
        except MissingPackageError as error:
            problem, _, remedy = str(error).rpartition("Get it with: ")
            findings.append(
                Finding(name, False, problem.strip() if registry.installed(name) else "not installed", remedy)
            )
            continue
        except Exception as error:  # noqa: BLE001 - an installed framework may fail to import in any way; say so and go on
            findings.append(Finding(name, False, f"installed, but it does not import: {type(error).__name__}: {error}"))
            continue
        version = adapter.environment().get(name, "")
        findings.append(Finding(name, True, f"{version}: records {', '.join(sorted(adapter.capabilities()))}"))
    return findings


def known_operations(*names: str) -> list[KnownOperation]:
    """Operations that can be recomputed, compared and named, with their names in each framework; needs no framework.

    Args:
        names: only those that have one of these names, or a name with it inside, in some framework; `conv*` is a pattern.
    """
    from ..operations.listing import listing, select

    return select(listing(), names)


def is_operation(name: str) -> bool:
    """Is a function or a class of this name one operation, known to all frameworks (`Conv2d`, `torch.relu`)?"""
    from ..operations import is_class, is_known

    return is_class(name) if name[:1].isupper() else is_known(name)


def same_operation(one: str, two: str) -> bool:
    """Are these two names of one operation: `Dense` and `Linear`, `mindspore.ops.matmul` and `torch.bmm`?"""
    from ..operations import family_of

    return family_of(one) == family_of(two)


def parameter_role(name: str) -> str:
    """Role of a parameter, whatever its framework calls it: `weight` for gamma and for embedding_table."""
    from ..operations.operands import parameter_of

    owner, dot, last = name.rpartition(".")
    return f"{owner}{dot}{parameter_of(last)}"
