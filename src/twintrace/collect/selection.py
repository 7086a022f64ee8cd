"""Selection of what is recorded: steps, ranks, names, a range of modules, phases, counts, a predicate.

    Selection(steps=(0, 10), names=("*attn*", "re:layers\\.[0-3]\\..*"), first=2)

A call is wanted when every condition that was given holds. Calls are counted whether they are wanted or not, so an address
means the same call in a full and in a selective recording.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from ..model.errors import UsageError
from ..model.sites import Kind, Phase, Site


@dataclass(frozen=True, slots=True)
class Selection:
    """The conditions; None or False means no condition.

    names         glob patterns, or regular expressions after `re:`; one must match the call's name or its module path
    between       (from, to): module paths; from the entry of the first to the exit of the second, both included
    forward_only  no gradients, no backward kernels, no recomputation, no optimizer
    inputs_only   arguments and parameters, but no results and no gradients
    flow_only     arguments, results and the gradients of results: no parameters, and no other gradients
    first         only the first so many calls of each name in a step
    predicate     called with the Site; what it answers decides
    """

    steps: Collection[int] | None = None
    ranks: Collection[int] | None = None
    names: Sequence[str] | None = None
    between: tuple[str, str] | None = None
    forward_only: bool = False
    inputs_only: bool = False
    flow_only: bool = False
    first: int | None = None
    predicate: Callable[[Site], bool] | None = None

    def __post_init__(self) -> None:
        for field in ("steps", "ranks"):
            object.__setattr__(self, field, _numbers(field, getattr(self, field)))
        if self.names is not None:
            object.__setattr__(self, "names", _patterns(self.names))
        if self.first is not None and (not isinstance(self.first, int) or self.first < 1):
            raise UsageError(f"first: expected a positive number of calls, got {self.first!r}.")
        if self.between is not None:
            pair = isinstance(self.between, tuple | list) and len(self.between) == 2
            if not pair or not all(isinstance(path, str) for path in self.between):
                raise UsageError(f"between: expected two module paths (from, to), got {self.between!r}.")
        if self.predicate is not None and not callable(self.predicate):
            raise UsageError(f"predicate: expected a function of a Site, got {self.predicate!r}.")

    def wants_step(self, step: int) -> bool:
        return self.steps is None or step in self.steps

    def wants_rank(self, rank: int) -> bool:
        return self.ranks is None or rank in self.ranks


class Sieve:
    """A Selection at work: remembers patterns and whether the range is open."""

    def __init__(self, selection: Selection) -> None:
        self._selection = selection
        self._patterns = [_compile(pattern) for pattern in selection.names or ()]
        self._known: dict[tuple[str, str], bool] = {}
        self._inside = selection.between is None
        self._entered: set[str] = set()  # the modules that were called within the range
        self._met: set[str] = set()  # those ends of the range that were there, in any step
        self._fitted: set[int] = set()  # positions of the patterns that fitted something, in any step
        self.everything = selection == Selection(steps=selection.steps, ranks=selection.ranks)

    def reset(self) -> None:
        """A new step: the range is closed again."""
        self._inside = self._selection.between is None
        self._entered.clear()

    def enter_module(self, path: str) -> None:
        """A module begins: the range may open."""
        if self._selection.between:
            if path in self._selection.between:
                self._met.add(path)
            self._inside = self._inside or path == self._selection.between[0]
            if self._inside:
                self._entered.add(path)

    def leave_module(self, path: str) -> None:
        """A module has ended: the range may close."""
        if self._selection.between and path == self._selection.between[1]:
            self._inside = False

    def wants(self, site: Site) -> bool:
        """Is this call to be recorded?"""
        chosen = self._selection
        if not self._inside or (chosen.first is not None and site.call >= chosen.first):
            return False
        if chosen.forward_only and site.phase is not Phase.FORWARD:
            return False
        if self._patterns and not self._matches(site):
            return False
        return chosen.predicate is None or bool(chosen.predicate(site))

    def wants_parameter(self, site: Site) -> bool:
        """Is the gradient of a parameter of this module wanted? Gradients come when the range has long been closed."""
        inside = self._inside
        self._inside = inside or site.name in self._entered
        try:
            return self.wants(site)
        finally:
            self._inside = inside

    def _matches(self, site: Site) -> bool:
        key = (site.name, site.path)
        known = self._known.get(key)
        if known is None:
            texts = (site.name, site.path) if site.kind is not Kind.MODULE else (site.name,)
            fitting = [i for i, pattern in enumerate(self._patterns) if any(pattern.fullmatch(text) for text in texts)]
            self._fitted.update(fitting)
            known = self._known[key] = bool(fitting)
        return known

    def without_effect(self) -> list[str]:
        """Sentences about conditions that nothing has met: a name that is misspelt selects less than was meant, or more."""
        sentences = []
        if self._selection.between:
            for end, path in zip(("begins", "ends"), self._selection.between, strict=True):
                if path not in self._met:
                    effect = (
                        "nothing is in the range" if end == "begins" else "the range goes on to the end of the step"
                    )
                    sentences.append(f"between: no module {path!r} was called, with which the range {end}: {effect}")
        idle = [name for i, name in enumerate(self._selection.names or ()) if i not in self._fitted]
        if idle:
            sentences.append(f"names: no call fits {', '.join(map(repr, idle))}")
        return sentences


def _numbers(field: str, numbers: object) -> frozenset[int] | None:
    """A collection of numbers, taken once: it may be a generator."""
    if numbers is None:
        return None
    try:
        given: frozenset[Any] = frozenset(numbers)  # type: ignore[call-overload]  # what cannot be iterated is told
    except TypeError:
        given = frozenset(("",))
    if isinstance(numbers, str) or not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in given):
        raise UsageError(f"{field}: expected a collection of numbers, got {numbers!r}.")
    return given


def _patterns(names: object) -> tuple[str, ...]:
    if isinstance(names, str):
        raise UsageError(f"names: expected a list of patterns, got one string. Write names=[{names!r}].")
    try:
        patterns: tuple[Any, ...] = tuple(names)  # type: ignore[arg-type]  # as above
    except TypeError:
        patterns = ()
    if not patterns or not all(isinstance(name, str) for name in patterns):
        raise UsageError(f"names: expected a list of patterns, got {names!r}.")
    return patterns


def _compile(pattern: str) -> re.Pattern[str]:
    source = pattern.removeprefix("re:") if pattern.startswith("re:") else fnmatch.translate(pattern)
    try:
        return re.compile(source)
    except re.error as error:
        raise UsageError(f"names: {pattern!r} is not a regular expression ({error}).") from None
