"""Are two recorded tensors the same value?

    fingerprints on both sides   they decide: equal bits or not
    only statistics              equal numbers and counts, or not
    neither                      the same kind of tensor is all that can be said

For two runs of the same program on the same machine, where the bits are expected to be equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..model.records import Call
from ..model.tensors import Statistics, Tensor
from ..model.values import Nest, TensorRef, Token, Value, leaves


def same_value(left: Tensor, right: Tensor) -> bool:
    """Is it the same value, as far as the two records can tell?"""
    if left.spec != right.spec or left.facts != right.facts:
        return False
    if left.fingerprint and right.fingerprint:
        return left.fingerprint == right.fingerprint
    if left.statistics and right.statistics:
        return _same_statistics(left.statistics, right.statistics)
    return left.missing == right.missing


def _same_statistics(left: Statistics, right: Statistics) -> bool:
    """Counts and ends are exact; mean and norm are sums, whose last bits depend on the order of the additions."""
    scale = max(abs(left.norm or 0.0), abs(left.max or 0.0), abs(left.min or 0.0))
    for one, two in ((left.mean, right.mean), (left.norm, right.norm)):
        if one is None or two is None:
            if one is not two:
                return False
        elif one != two and not abs(one - two) <= 1e-12 * scale:
            return False
    exact = ("min", "max", "nan", "posinf", "neginf", "zero")
    return all(getattr(left, name) == getattr(right, name) for name in exact)


def different_settings(left: Call, right: Call) -> Mapping[str, tuple[str, str]]:
    """What was set differently: module configuration, scalar and keyword arguments."""
    found: dict[str, tuple[str, str]] = {}
    sides = (dict(_settings(left)), dict(_settings(right)))
    for name in sorted(sides[0].keys() | sides[1].keys()):
        texts = tuple(side.get(name, "–") for side in sides)
        if texts[0] != texts[1]:
            found[name] = (texts[0], texts[1])
    return found


def _settings(call: Call) -> Iterator[tuple[str, str]]:
    if call.config:
        for name, value in call.config.values.items():
            yield from _texts(name, value)
    for position, value in enumerate(call.args):
        yield from _texts(f"argument {position}", value)
    for name, value in call.kwargs.items():
        yield from _texts(name, value)


def _texts(name: str, value: Value) -> Iterator[tuple[str, str]]:
    for slot, leaf in leaves(value, name):
        if isinstance(leaf, Token):
            yield slot, leaf.text
        elif not isinstance(leaf, TensorRef | Nest):
            yield slot, repr(leaf)
