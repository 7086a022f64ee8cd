"""Names of functions, and the arguments that they write to.

    relu(x)       reference.relu
    add_(x, 1)    reference.add_, writes to argument 0

A trailing underscore says that something is written to, in functions and in kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Api:
    """A function as a trace calls it."""

    name: str
    writes: tuple[str, ...] = ()

    def mutates(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[str, ...]:
        """The slots of the arguments that this call writes to."""
        return self.writes


def describe(function: Any) -> Api | None:
    """The name and habits of a function. None would be: not worth a record."""
    name = function.__name__
    return Api(f"reference.{name}", ("0", "kw.a") if name.endswith("_") else ())
