"""The oldest releases that twintrace works with, and the sentence for an older one.

    require("torch", "2.0.1+cu118")    MissingPackageError: torch 2.0.1+cu118 is too old: twintrace needs torch 2.1 or newer. …
    require("torch", "2.1.0a0+git")    nothing: it is new enough
    require("torch", "unknown")        nothing: a build without a number is taken as it is

pyproject.toml asks pip for the same, but an environment may have been made by hand, or changed since. This is the one place
where versions are compared: other abilities are asked of the release itself (frameworks/torch/releases.py).
`make matrix` runs the tests with the oldest of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from .errors import MissingPackageError

OLDEST: Mapping[str, tuple[int, int]] = {"numpy": (1, 24), "torch": (2, 1), "mindspore": (2, 7)}
"""Package to its oldest release. Python's own is in twintrace/__init__.py, which is read before this file can be."""


def require(package: str, version: str) -> None:
    """Does nothing if this release is new enough, or the package is not one of `OLDEST`.

    Raises:
        MissingPackageError: it is too old; the sentence has both versions, and the command that helps.
    """
    oldest = OLDEST.get(package)
    number = re.match(r"(\d+)\.(\d+)", version)
    if oldest is None or number is None or (int(number[1]), int(number[2])) >= oldest:
        return
    wanted = ".".join(map(str, oldest))
    too_old = f"{package} {version} is too old: twintrace needs {package} {wanted} or newer."
    raise MissingPackageError(f"{too_old} Get it with: pip install '{package}>={wanted}'")
