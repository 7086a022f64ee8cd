"""Modules that each stage of a pipeline numbers anew, under the names that they have in the other run.

    rank 1   blocks.0.up.weight   bit by bit the other run's blocks.4.up.weight    ->  blocks.0 of rank 1 is blocks.4

A parameter is known by its bits. A renaming is believed if all parameters below a path say the same, and those that have the other
run's bits under their own name stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

from ..model.records import Call, Gradient
from ..model.sites import Kind
from ..model.tensors import Spec
from ..model.words import dotted
from ..store.trace import Journal

Held = Mapping[str, tuple[Spec, str | None]]
"""Parameters by their full names: type and shape, and bits."""


def parameters_of(journal: Journal) -> dict[str, tuple[Spec, str | None]]:
    """Parameters that the modules of a journal hold, by their full names."""
    found: dict[str, tuple[Spec, str | None]] = {}
    for call in journal.calls():
        for name, number in call.parameters.items():
            tensor = journal.tensor(number)
            found.setdefault(dotted(call.site.name, name), (tensor.spec, tensor.fingerprint))
    return found


def renaming_of(mine: Held, other: Held) -> dict[str, str]:
    """Paths of modules of a rank, and of the other run's that hold the same weights; nothing where that contradicts itself."""
    by_bits: dict[tuple[Spec, str | None], list[str]] = {}
    for name, bits in other.items():
        if bits[1]:
            by_bits.setdefault(bits, []).append(name)
    found: dict[str, str] = {}
    for name, bits in mine.items():
        candidates = by_bits.get(bits, [])
        if not candidates or name in candidates:
            continue
        if len(candidates) > 1:  # zeros and ones are everywhere: others tell
            continue
        path = _without_common_end(name, candidates[0])
        if path is None or found.setdefault(path[0], path[1]) != path[1]:
            return {}
    nested = any(one != two and _is_below(one, two) for one in found for two in found)
    if nested or len(set(found.values())) < len(found):
        return {}
    stays = {name for name, bits in mine.items() if other.get(name) == bits and len(by_bits.get(bits, ())) == 1}
    return {} if any(_is_below(name, path) for name in stays for path in found) else found


def renamed(journal: Journal, names: Mapping[str, str]) -> Journal:
    """The journal with other paths of modules."""
    return cast(Journal, _Renamed(journal, names)) if names else journal


def _without_common_end(one: str, two: str) -> tuple[str, str] | None:
    """`blocks.0.up.weight` and `blocks.4.up.weight`: (`blocks.0`, `blocks.4`); None where they end differently."""
    left, right = one.split("."), two.split(".")
    while left and right and left[-1] == right[-1]:
        left.pop()
        right.pop()
    return (".".join(left), ".".join(right)) if left and right and left != one.split(".") else None


def _is_below(name: str, path: str) -> bool:
    return name == path or name.startswith(f"{path}.")


class _Renamed:
    """A journal with other paths of modules."""

    def __init__(self, journal: Journal, names: Mapping[str, str]) -> None:
        self._journal, self._names = journal, names

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    def __len__(self) -> int:
        return len(self._journal)

    def _path(self, path: str) -> str:
        for old, new in self._names.items():
            if _is_below(path, old):
                return new + path[len(old) :]
        return path

    def calls(self) -> Iterator[Call]:
        for call in self._journal.calls():
            site = call.site
            name = self._path(site.name) if site.kind is Kind.MODULE else site.name
            yield replace(call, site=replace(site, name=name, path=self._path(site.path)))

    def parameter_gradients(self) -> Iterator[Gradient]:
        for gradient in self._journal.parameter_gradients():
            yield replace(gradient, slot=self._path(gradient.slot))
