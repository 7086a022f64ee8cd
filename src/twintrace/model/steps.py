"""Facts about steps and ranks that were looked at and not judged: equal ones, those after the parting, one rank of many."""

from __future__ import annotations

from dataclasses import dataclass

from .words import Word


@dataclass(frozen=True, slots=True)
class EqualStep:
    """A step of a rank that is equal bit by bit on both sides, and has the structure of one that was judged."""

    step: int
    rank: int
    pairs: int
    """Number of its results: all that have tensors are the same."""
    same: int = 0
    """Of these, those that have tensors."""
    with_calls: int = 0
    """Of these, those of calls."""
    with_gradients: int = 0
    """Of these, those that have gradients."""


@dataclass(frozen=True, slots=True)
class FollowedStep:
    """A step after the runs have parted: compared by its fingerprints, not judged."""

    step: int
    rank: int
    tensors: int
    """0 where the two sides make different calls."""
    different: int


@dataclass(frozen=True, slots=True)
class FirstBit:
    """The first value of which a bit differs, in the order in which the left run made them.

    origin: data       it was given to the network
            weights    the two begin with other weights or buffers
            optimizer  weights, buffers or state that were made of equal gradients between two steps
            random     a call that draws random numbers got others
            call       a call made it of equal values
            gradient   it came back in the backward pass, from outside of the record
    """

    step: int
    rank: int
    origin: str
    where: str
    """The call and the place in it."""
    tensor: int
    """Its number on the left."""


class RankState(Word):
    """Standing of one rank of many."""

    SAME = "same"
    """Equal bit by bit in all steps that both sides have."""
    AGREES = "agrees"
    """Judged: all differences are rounding."""
    PARTED = "parted"
    """Judged: a mistake was made here, or has reached it, before any other rank differed."""
    FOLLOWS = "follows"
    """It differs, not before another rank has parted. Not judged."""
    UNTOLD = "untold"
    """It differs, and could not be told, or was not judged."""


@dataclass(frozen=True, slots=True)
class RankResult:
    """One rank of a comparison of many."""

    rank: int
    state: RankState
    step: int | None = None
    """The first step in which a bit differs; None if none does."""
    where: str = ""
    """The first value that differs, where it was looked up: of the first rank of those that begin to differ in one place."""
    different: int = 0
    """Values of that step of which a bit differs."""
    tensors: int = 0
    """Values of that step; 0 where the two make different calls."""
    because: str = ""
    """Why it could not be told."""
