"""Changes that are tried as causes, and the calls with such a change.

Candidate(Cause("eps: 1e-05 | 1e-07", advice="set eps=1e-05 on the right"), right=exchanged(meanings, old, new))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..model.records import Call
from .meanings import Argument, Meaning, Operand, told

if TYPE_CHECKING:
    from .sides import Bound

SIDES = ("left", "right")


@dataclass(frozen=True, slots=True)
class Cause:
    """Why two calls mean something else, proven by computing with the change."""

    text: str
    proof: str = ""
    setting: str = ""
    advice: str = ""
    lone: bool = False
    """True if one side alone makes a call."""
    left: tuple[Call, ...] = ()
    right: tuple[Call, ...] = ()
    """Calls to blame, where it is known which."""
    how: str = "with the left's"
    """Change that makes the results agree."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A change worth trying: meanings and operands to compute with instead."""

    cause: Cause
    left: Sequence[Meaning] | None = None
    right: Sequence[Meaning] | None = None
    bound: Mapping[int, Bound] | None = None

    @classmethod
    def on(cls, which: int, cause: Cause, meanings: Sequence[Meaning]) -> Candidate:
        """Other calls of one side."""
        return cls(cause, right=meanings) if which else cls(cause, left=meanings)


def exchanged(meanings: Sequence[Meaning], old: Meaning, new: Meaning) -> list[Meaning]:
    """The calls with one of them exchanged for another."""
    return [new if item is old else item for item in meanings]


def with_substitute(meanings: Sequence[Meaning], number: int, substitute: Operand) -> list[Meaning]:
    """The calls with another operand in place of one."""
    return [
        replace(
            item, arguments={name: _substituted(value, number, substitute) for name, value in item.arguments.items()}
        )
        for item in meanings
    ]


def _substituted(value: Argument, number: int, substitute: Operand) -> Argument:
    if isinstance(value, Operand):
        return substitute if value.tensor == number else value
    if isinstance(value, tuple):
        return tuple(_substituted(item, number, substitute) for item in value)
    return value


def call_text(meaning: Meaning) -> str:
    """An operation with its settings: transpose(dim0=1, dim1=2)."""
    settings = ", ".join(f"{name}={told(value)}" for name, value in meaning.settings().items() if value is not None)
    return f"{meaning.operation}({settings})" if settings and len(settings) < 60 else meaning.operation
