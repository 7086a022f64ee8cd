"""Proof that weights arrived: every tensor equal under its declared transform, by fingerprint.

    fc.weight      -> fc.weight       equal         9f86d081884c7d65…
    norm.weight    -> norm.gamma      different     norm.gamma and norm.beta are swapped
    fc.bias        -> –               missing       fc.bias was not carried over

Only where fingerprints differ are the values looked at, for the cause (`mistakes.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..measure.values import measure
from ..model.errors import WeightsError
from ..model.weights import Certificate, Pair, TrialRow, Unpaired, WeightMap, WeightRow
from ..model.words import Progress
from ..store.arrays import as_float
from ..store.digest import fingerprint
from .conversion import fit_names, made, metered, value
from .equality import ALONE
from .mistakes import describe
from .prediction import predict
from .states import State

_COMPUTED = ("weight_norm", "lengths")
_ULPS = 8  # a norm is a sum of squares, whose order frameworks choose


def certify(
    left: State,
    right: State,
    map: WeightMap,
    *,
    trial: Sequence[TrialRow] = (),
    notes: Sequence[str] = (),
    progress: Progress | None = None,
) -> Certificate:
    """Check every pair of the map, and that nothing is missing on either side."""
    map, remarks = fit_names(map, left)
    certifier = _Certifier(left, right, map)
    rows = certifier.compare(progress)
    mistakes = [*certifier.explain(), *certifier.leftovers()]
    alone = [pair.right for pair in map.pairs if ALONE in pair.because]
    if alone and not trial:
        remarks.append(
            f"{len(alone)} weights are paired by their values alone ({alone[0]} …): {ALONE}. If some of them were exchanged, "
            f"or should have been transposed, only one pass through both nets would show it (inputs)"
        )
    return Certificate(
        left.label,
        right.label,
        tuple(replace(row, finding=certifier.findings.get(row.right or "", row.finding)) for row in rows),
        map.only_left,
        map.only_right,
        map.ambiguous,
        tuple(dict.fromkeys(mistakes)),
        tuple(trial),
        (*left.notes, *right.notes, *remarks, *notes),
    )


class _Certifier:
    def __init__(self, left: State, right: State, map: WeightMap) -> None:
        self.left, self.right, self.map = left, right, map
        self.expected: dict[str, str] = {}  # right name -> fingerprint of what it should hold
        self.found: dict[str, str] = {}
        self.pairs = {pair.right: pair for pair in map.pairs}
        self.bad: list[Pair] = []
        self.findings: dict[str, str] = {}

    def compare(self, progress: Progress | None) -> list[WeightRow]:
        specs = {name: item.spec for name, item in self.right.items.items()}
        pairs = (*self.map.pairs, *self._misfits())
        return [self._row(pair) for pair in metered(pairs, specs, "certifying weights", progress)]

    def _misfits(self) -> Iterator[Pair]:
        """Weights that would belong together by name, and were not paired because they do not fit."""
        used = {name for pair in self.map.pairs for name in pair.left}
        try:
            likely = predict(self.left, self.right.framework).pairs
        except WeightsError:
            likely = ()
        for pair in likely:
            if not used & set(pair.left) and pair.right not in self.pairs and pair.right in self.right:
                self.pairs[pair.right] = pair
                yield pair

    def _row(self, pair: Pair) -> WeightRow:
        name = " + ".join(pair.left)
        gone = [source for source in pair.left if source not in self.left]
        there = self.right.items.get(pair.right)
        if gone or there is None:
            missing = gone[0] if gone else pair.right
            where = self.left.label if gone else self.right.label
            self.findings[pair.right] = f"{missing} is missing in {where}"
            return WeightRow(name, pair.right, None, None, pair.transform, "missing")
        try:
            spec = made(self.left, pair)
        except WeightsError as error:
            self.findings[pair.right] = f"{pair.right}: {error}"
            return WeightRow(name, pair.right, None, there.spec, pair.transform, "missing")
        row = WeightRow(name, pair.right, spec, there.spec, pair.transform)
        wanted, got = value(self.left, pair), self.right.read(pair.right)
        self.expected[pair.right], self.found[pair.right] = fingerprint(wanted), fingerprint(got)
        if spec == there.spec and (
            self.expected[pair.right] == self.found[pair.right] or self._rounds_alike(pair, wanted, got, spec.dtype)
        ):
            return replace(row, verdict="equal", fingerprint=self.found[pair.right])
        self.bad.append(pair)
        return replace(row, verdict="different", fingerprint=self.found[pair.right])

    def _rounds_alike(self, pair: Pair, wanted: Any, got: Any, dtype: str) -> bool:
        """True if the values had to be computed and differ in their last places only."""
        if not any(step.startswith(_COMPUTED) for step in pair.steps):
            return False
        numbers = measure(wanted, got, dtype, dtype, rtol=0.0, atol=0.0)
        return numbers.max_ulp is not None and numbers.max_ulp <= _ULPS

    def explain(self) -> Iterator[str]:
        """One sentence for each thing that is wrong."""
        owners: dict[str, list[str]] = {}
        for name, mark in self.expected.items():
            owners.setdefault(mark, []).append(name)
        swapped: set[str] = set()
        for pair in self.bad:
            name = pair.right
            shape = self.right.items[name].spec.shape
            same = [other for other in owners.get(self.found[name], ()) if other != name]
            others = [other for other in same if self.right.items[other].spec.shape == shape]
            partner = next((other for other in others if self.found.get(other) == self.expected[name]), None)
            if name in swapped:
                continue
            if partner is not None:
                swapped |= {name, partner}
                text = self.findings[partner] = f"{name} and {partner} are swapped"
            else:
                text = f"{name} holds the values of {others[0]}" if others else f"{name} {self._look(pair)}"
            self.findings[name] = text
            yield text
        explained = {pair.right for pair in self.bad}
        for name, finding in self.findings.items():
            if name not in explained:
                yield finding if finding.startswith(name) else f"{name}: {finding}"

    def _look(self, pair: Pair) -> str:
        wanted, got = value(self.left, pair), self.right.read(pair.right)
        spec, there = made(self.left, pair), self.right.items[pair.right].spec
        kind = self.left.items[pair.left[-1]].rule.kind or self.right.items[pair.right].rule.kind
        if spec.dtype != there.dtype:
            wide, narrow = as_float(wanted, spec.dtype), as_float(got, there.dtype)
            same = spec.shape == there.shape and np.array_equal(wide.astype(narrow.dtype), narrow)
            text = f"is {there.dtype}, expected {spec.dtype}"
            return f"{text} (the values are the same but for rounding)" if same else f"{text}, and has other values"
        mistake = self._turned(got, pair.right) or self._merged(wanted, got, pair)
        return mistake or describe(wanted, got, spec.dtype, kind)

    def _turned(self, got: Any, name: str) -> str:
        """True for another's weight, transposed."""
        if got.ndim != 2:
            return ""
        mark = fingerprint(np.ascontiguousarray(got.T))
        other = next((other for other, known in self.expected.items() if known == mark and other != name), None)
        return f"holds the values of {other}, transposed" if other else ""

    def _merged(self, wanted: Any, got: Any, pair: Pair) -> str:
        """The weight of the layer that was added to it (two biases made one), in words; empty if there is none."""
        if wanted.shape != got.shape or wanted.dtype.kind != "f":
            return ""
        path = self.left.items[pair.left[-1]].path
        for other in self.map.pairs:
            item = self.left.items.get(other.left[-1])
            if other is pair or item is None or item.path != path or made(self.left, other).shape != wanted.shape:
                continue
            if np.allclose(wanted + value(self.left, other), got, rtol=1e-5, atol=1e-7) and np.any(
                value(self.left, other)
            ):
                return f"is the sum of {pair.left[-1]} and {item.name}"
        return ""

    def leftovers(self) -> Iterator[str]:
        """Weights that were not carried over, where that matters."""
        for state, items in ((self.left, self.map.only_left), (self.right, self.map.only_right)):
            for item in items:
                if item.name in self.pairs or any(item.name in pair.left for pair in self.pairs.values()):
                    continue
                fault = self._fault(item, state)
                if fault:
                    yield fault
        for open_ in self.map.ambiguous:
            names = [name for name in open_.right if name not in self.pairs]
            if names:
                yield f"it is not clear what belongs to {', '.join(names[:4])}: {open_.because}"

    def _fault(self, item: Unpaired, state: State) -> str:
        if item.neutral is not None and item.name in state:
            spec = state.items[item.name].spec
            neutral = bool((as_float(state.read(item.name), spec.dtype) == item.neutral).all())
            return "" if neutral else f"{item.name} is not all {item.neutral:g}: {item.because}"
        if item.harmless:
            return ""
        if state is self.left:
            return f"{item.name} was not carried over: {item.because}"
        return f"{item.name} has nothing to come from: {item.because}"
