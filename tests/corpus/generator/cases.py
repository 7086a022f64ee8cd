"""Cases as data: two sides that differ by one mistake, or by none, and the truth about them.

    Case("epsilon-gpt-bf16-backward-torch-17", left=Side(…), right=Side(…), truth=Truth(…))

A side says everything that is needed to run it; a truth says what a verdict has to say: agree, or where and why they part. No
framework is needed to read or write either.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from twintrace.model.records import Call
from twintrace.model.sites import Kind, Phase

PAIRS = {
    "torch": ("torch", "torch"),
    "mindspore": ("torch", "mindspore"),
    "msadapter": ("torch", "msadapter"),
}
"""Left and right framework, by the name of the right one."""


@dataclass(frozen=True)
class Side:
    """One run."""

    framework: str
    net: str
    set: tuple[tuple[str, str, Any], ...]
    """(site, knob, value) of everything that is not as the net has it."""
    dtype: str
    mode: str
    """forward, backward or train."""
    names: str
    """same or other: names of the modules (kit.OTHER_NAMES)."""
    seed: int
    level: str = "mix"

    @property
    def knobs(self) -> dict[tuple[str, str], Any]:
        return {(site, knob): value for site, knob, value in self.set}

    def with_knobs(self, *more: tuple[str, str, Any]) -> Side:
        return replace(self, set=(*self.set, *more))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, given: dict[str, Any]) -> Side:
        knobs = ((site, knob, tuple(value) if isinstance(value, list) else value) for site, knob, value in given["set"])
        return cls(**{**given, "set": tuple(knobs)})


@dataclass(frozen=True)
class Place:
    """Where a call is: the path of the module that makes it, and a pattern for its name.

    Without a pattern the module itself counts, too. `deep`: what a layer is made of counts as the layer.
    """

    path: str
    calls: str = ""
    deep: bool = False
    update: bool = False
    """The optimizer's step, wherever it is made."""
    module: bool = False
    """The module itself alone, and no call in it."""

    def holds(self, call: Call) -> bool:
        site = call.site
        if self.update or site.phase is Phase.UPDATE:
            return self.update and site.phase is Phase.UPDATE
        module = site.kind is Kind.MODULE
        where = site.name if module else site.path
        if self.module and not module:
            return False
        inside = where == self.path or (self.deep and where.startswith(f"{self.path}."))
        return inside and (not self.calls or (not module and re.search(self.calls, site.name, re.I) is not None))

    def holds_parameter(self, name: str) -> bool:
        """Does a parameter of that name, which no call goes with, belong here?"""
        return self.update or (not self.calls and not self.module and name.rpartition(".")[0] == self.path)


@dataclass(frozen=True)
class Truth:
    """What is to be said.

    agree    exit code 0
    part     exit code 1, the first place told is one of these, and the cause matches
    remark   exit code 0 or 1, and the cause is told either way; a place that is told must be one of these
    """

    want: str
    left: tuple[Place, ...] = ()
    right: tuple[Place, ...] = ()
    cause: str = ""
    lone: bool = False
    """A call that one side alone makes: it is enough if that side's place is told."""


@dataclass(frozen=True)
class Case:
    name: str
    family: str
    left: Side
    right: Side
    truth: Truth

    @property
    def dtype(self) -> str:
        return self.left.dtype

    @property
    def pair(self) -> str:
        return self.right.framework


def is_blamed(
    truth: Truth, left: Iterable[Call], right: Iterable[Call], parameters: tuple[str, str] = ("", "")
) -> bool:
    """Is what a verdict names where the mistake is? `parameters` are named where no call goes with them."""
    held = []
    for calls, places, name in ((list(left), truth.left, parameters[0]), (list(right), truth.right, parameters[1])):
        if calls:
            held.append(any(place.holds(call) for place in places for call in calls))
        elif name:
            held.append(any(place.holds_parameter(name) for place in places))
    return bool(held) and (any(held) if truth.lone else all(held))
