"""rtol and atol by hand: for all, per dtype, per name pattern.

    rtol = 1e-3            # for everything that is not named below
    atol = 1e-5

    [dtype.bf16]
    rtol = 1.6e-2

    [name."encoder.*.attention*"]     # glob over the site's name and module path, left or right; the last that fits wins
    atol = 1e-2

A file that says something else is refused with the key that is wrong.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import translate
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..model.errors import UsageError
from ..model.tensors import DTYPES

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True, slots=True)
class Tolerance:
    """|right - left| <= atol + rtol·|left| is close. None: not said here."""

    rtol: float | None = None
    atol: float | None = None


@dataclass(frozen=True, slots=True)
class Tolerances:
    """Tolerances for all tensors, per dtype and per name."""

    rtol: float = 1e-5
    atol: float = 1e-8
    dtypes: Mapping[str, Tolerance] = field(default_factory=dict)
    names: tuple[tuple[str, Tolerance], ...] = ()

    def of(self, dtypes: tuple[str, str], names: tuple[str, ...]) -> tuple[float, float]:
        """(rtol, atol): of two dtypes the larger; a name that fits overrides the dtype."""
        rtol, atol = self.rtol, self.atol
        by_dtype = [self.dtypes[dtype] for dtype in dtypes if dtype in self.dtypes]
        rtol = max((item.rtol for item in by_dtype if item.rtol is not None), default=rtol)
        atol = max((item.atol for item in by_dtype if item.atol is not None), default=atol)
        for pattern, item in self.names:
            if any(_compiled(pattern).match(name) for name in names):
                rtol = rtol if item.rtol is None else item.rtol
                atol = atol if item.atol is None else item.atol
        return rtol, atol


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(translate(pattern))


def read_tolerances(path: Path) -> Tolerances:
    """The tolerances of a TOML file."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: the tolerances cannot be read ({error.strerror}).") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not a TOML file: {error}.") from None
    unknown = content.keys() - {"rtol", "atol", "dtype", "name"}
    if unknown:
        raise UsageError(
            f"{path}: unknown key {sorted(unknown)[0]!r}: expected rtol, atol, [dtype.NAME] or [name.PATTERN]."
        )
    dtypes, names = _table(path, content, "dtype"), _table(path, content, "name")
    for dtype in dtypes.keys() - DTYPES.keys():
        raise UsageError(f"{path}: [dtype.{dtype}]: no such element type; there are {', '.join(DTYPES)}.")
    general = _tolerance(path, {key: content[key] for key in ("rtol", "atol") if key in content}, "")
    return Tolerances(
        1e-5 if general.rtol is None else general.rtol,
        1e-8 if general.atol is None else general.atol,
        {key: _tolerance(path, item, f"[dtype.{key}] ") for key, item in dtypes.items()},
        tuple((key, _tolerance(path, item, f"[name.{key!r}] ")) for key, item in names.items()),
    )


def _table(path: Path, content: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = content.get(key, {})
    if not isinstance(found, dict) or not all(isinstance(item, dict) for item in found.values()):
        raise UsageError(f"{path}: {key}: expected tables [{key}.…] with rtol and atol, got {found!r}.")
    return found


def _tolerance(path: Path, item: Mapping[str, Any], where: str) -> Tolerance:
    for key, value in item.items():
        if key not in ("rtol", "atol"):
            raise UsageError(f"{path}: {where}unknown key {key!r}: expected rtol or atol.")
        check(value, f"{path}: {where}{key}")
    return Tolerance(**item)


def check(value: Any, where: str) -> None:
    """A tolerance is a finite number, not below zero."""
    good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
    if not good:
        raise UsageError(f"{where}: expected a number that is not negative, got {value!r}.")
