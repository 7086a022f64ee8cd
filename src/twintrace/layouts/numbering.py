"""Modules that each stage of a pipeline numbers anew, under the names that they have in the other run.

    rank 1   blocks.0.up.weight   bit by bit the other run's blocks.4.up.weight    ->  blocks.0 of rank 1 is blocks.4

A parameter is known by its bits. A renaming is believed if all parameters below a path say the same, and those that have the other
run's bits under their own name stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..model.sites import Kind, Site
from ..model.tensors import Spec
from ..model.words import dotted
from ..store.trace import Journal
from .microbatches import derived

Held = Mapping[str, tuple[Spec, str | None]]
"""Parameters by their full names: type and shape, and bits."""


def parameters_of(journal: Journal) -> dict[str, tuple[Spec, str | None]]:
    """Parameters that the modules of a journal hold, by their full names."""
    parameters: dict[str, tuple[Spec, str | None]] = {}
    for call in journal.calls():
        for name, number in call.parameters.items():
            tensor = journal.tensor(number)
            parameters.setdefault(dotted(call.site.name, name), (tensor.spec, tensor.fingerprint))
    return parameters


def renaming_of(mine: Held, other: Held) -> dict[str, str]:
    """Paths of modules of a rank, and of the other run's that hold the same weights; nothing where that contradicts itself."""
    by_bits: dict[tuple[Spec, str | None], list[str]] = {}
    for name, bits in other.items():
        if bits[1]:
            by_bits.setdefault(bits, []).append(name)
    renaming: dict[str, str] = {}
    for name, bits in mine.items():
        candidates = by_bits.get(bits, [])
        if not candidates or name in candidates:
            continue
        if len(candidates) > 1:  # zeros and ones are everywhere: others tell
            continue
        # `blocks.0.up.weight` and `blocks.4.up.weight`: (`blocks.0`, `blocks.4`); None where they end differently.
        left, right = name.split("."), candidates[0].split(".")
        while left and right and left[-1] == right[-1]:
            left.pop()
            right.pop()
        path = (".".join(left), ".".join(right)) if left and right and left != name.split(".") else None
        if path is None or renaming.setdefault(path[0], path[1]) != path[1]:
            return {}
    nested = any(one != two and _is_below(one, two) for one in renaming for two in renaming)
    if nested or len(set(renaming.values())) < len(renaming):
        return {}
    stays = {name for name, bits in mine.items() if other.get(name) == bits and len(by_bits.get(bits, ())) == 1}
    return {} if any(_is_below(name, path) for name in stays for path in renaming) else renaming


def renamed(journal: Journal, names: Mapping[str, str]) -> Journal:
    """The journal with other paths of modules."""
    if not names:
        return journal

    def path(known: str) -> str:
        new = next(((old, name) for old, name in names.items() if _is_below(known, old)), None)
        return known if new is None else new[1] + known[len(new[0]) :]

    def site(known: Site) -> Site:
        name = path(known.name) if known.kind is Kind.MODULE else known.name
        return replace(known, name=name, path=path(known.path))

    calls = [replace(call, site=site(call.site)) for call in journal.calls()]
    gradients = [replace(gradient, slot=path(gradient.slot)) for gradient in journal.parameter_gradients()]
    return derived(journal, calls, gradients)


def _is_below(name: str, path: str) -> bool:
    return name == path or name.startswith(f"{path}.")
