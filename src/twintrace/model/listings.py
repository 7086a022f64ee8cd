"""Listings for people: a trace as rows, the findings of `doctor`, the known operations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a listing."""

    step: int
    rank: int
    depth: int
    site: str
    kind: str
    type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    gradients: int
    where: str
    remark: str = ""
    ranges: tuple[str, ...] = ()
    """Of each output: smallest and largest value, and the norm; empty where they are not known."""
    marks: tuple[str, ...] = ()
    """Marks that a reader must see: NaN and infinities in outputs and gradients, values at the end of their type's range."""


@dataclass(frozen=True, slots=True)
class Listing:
    """A trace for people."""

    path: str
    layout: str
    framework: str
    steps: tuple[int, ...]
    ranks: tuple[int, ...]
    settings: Mapping[str, object]
    calls: int
    tensors: int
    rows: tuple[Row, ...]
    hidden: int = 0
    notes: tuple[str, ...] = ()
    damage: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that `doctor` looked at."""

    subject: str
    good: bool
    text: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class KnownOperation:
    """One operation of the table: its names in each framework, and its traits."""

    name: str
    torch: tuple[str, ...]
    """Names in PyTorch; a name without a home is found in all of them, as function, method and kernel."""
    mindspore: tuple[str, ...]
    msadapter: tuple[str, ...]
    forward: bool
    """Its results are recomputed in float64."""
    backward: bool
    """Its gradients are recomputed in float64."""
    draws: str
    """`always` if it draws random numbers, `sometimes` if its arguments decide (dropout), else empty."""
    moves: bool
    """It moves or copies values, or makes them from its settings, and computes none."""
    asks: bool
    """It hands a value to Python, and nothing goes on from it."""
    writes: tuple[str, ...]
    """Arguments that it writes to, and the operators that are its in-place form."""
    variants: tuple[str, ...]
    """Variants of it that are tried as causes."""
