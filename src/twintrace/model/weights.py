"""Facts about weights: which belongs to which, how it gets there, whether it arrived.

Pair          conv.weight -> conv.weight, "insert axis 2", 1.00, because: same path
Unpaired      bn.num_batches_tracked, because: MindSpore's BatchNorm2d counts nothing
WeightMap     all of them, and ambiguous ones
WeightRow     one line of a comparison or certificate: two names, two specs, the finding
Conversion, WeightComparison, Certificate    results of the verbs

Results print as one line. All of them have `code`, the exit code of their command, `bool()`, which is True for
exit code 0 alone, `guilty` (faults, one sentence each), `first` (the first of these) and `worst(10)`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from .tensors import Spec
from .words import counted

GOOD = ("equal", "close", "not carried")
"""Verdicts of a row that cost nothing."""


class _Told(Protocol):
    @property
    def code(self) -> int: ...
    @property
    def guilty(self) -> tuple[str, ...]: ...


class _Answer:
    """Questions that every report on weights answers alike."""

    __slots__ = ()

    def __bool__(self: _Told) -> bool:
        return self.code == 0

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self}>"

    @property
    def first(self: _Told) -> str | None:
        """The first thing that is wrong, one sentence; None if nothing is."""
        return next(iter(self.guilty), None)


@dataclass(frozen=True, slots=True)
class Pair:
    """`right` is made out of `left` by `steps`; most have one on the left, and no step.

    insert axis N, drop axis N     the same bytes in another shape
    reshape 4 12                   likewise
    weight_norm D                  out of length and direction (two on the left)
    lengths D                      the length of each slice along dimension D
    rows A:B, stack                a part of the first axis; several, one after the other
    heads N                        several, a part of each in turn, N times
    permute 1 0                    the axes in another order
    cast f16                       another element type
    """

    left: tuple[str, ...]
    right: str
    steps: tuple[str, ...] = ()
    confidence: float = 1.0
    because: str = ""

    @property
    def transform(self) -> str:
        """The steps as one text."""
        return ", ".join(self.steps) or "same"


@dataclass(frozen=True, slots=True)
class Unpaired:
    """A weight that only one side has. `harmless`: nothing is lost by it (a counter, a tied name, a neutral value)."""

    name: str
    because: str
    harmless: bool = False
    neutral: float | None = None
    """The value that every element must have for it to be harmless."""


@dataclass(frozen=True, slots=True)
class Ambiguity:
    """Weights of which it cannot be told which belongs to which. `suggestion` is the likeliest assignment."""

    left: tuple[str, ...]
    right: tuple[str, ...]
    because: str
    suggestion: tuple[Pair, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class WeightMap(_Answer):
    """Which weight of the left belongs to which of the right. Every weight is in one of its lists."""

    left: str
    right: str
    pairs: tuple[Pair, ...]
    only_left: tuple[Unpaired, ...] = ()
    only_right: tuple[Unpaired, ...] = ()
    ambiguous: tuple[Ambiguity, ...] = ()
    misfits: tuple[str, ...] = ()
    """Weights that belong together by name and cannot, by shape: one sentence each."""

    @property
    def complete(self) -> bool:
        """Everything that matters has its partner."""
        alone = [item for item in (*self.only_left, *self.only_right) if not item.harmless]
        return bool(self.pairs) and not (alone or self.ambiguous or self.misfits)

    @property
    def code(self) -> int:
        """Exit code: 0 everything has its place, 1 something is ambiguous or alone."""
        return 0 if self.complete else 1

    @property
    def guilty(self) -> tuple[str, ...]:
        """Weights without a place: those that do not fit, those that are ambiguous, those that one side alone has."""
        faults = [*self.misfits]
        faults += [f"{_some(item.left)} | {_some(item.right)}: {item.because}" for item in self.ambiguous]
        for side, items in (("left", self.only_left), ("right", self.only_right)):
            faults += [f"{item.name}, only {side}: {item.because}" for item in items if not item.harmless]
        return tuple(faults) or (() if self.complete else ("no weight was mapped",))

    def worst(self, count: int = 10) -> tuple[Pair, ...]:
        """The `count` pairs that are least sure."""
        return tuple(sorted(self.pairs, key=lambda pair: pair.confidence)[:count])

    def __str__(self) -> str:
        state = "complete" if self.complete else f"not complete ({self._open()})"
        return f"{self.left} -> {self.right}: {counted(len(self.pairs), 'weight')} mapped, {state}"

    def _open(self) -> str:
        alone = [[item for item in side if not item.harmless] for side in (self.only_left, self.only_right)]
        groups = zip(
            ("only left", "only right", "ambiguous", "do not fit"), (*alone, self.ambiguous, self.misfits), strict=True
        )
        return ", ".join(f"{len(items)} {what}" for what, items in groups if items) or "nothing at all"


@dataclass(frozen=True, slots=True)
class WeightRow:
    """One pair in a conversion, comparison or certificate. `verdict` is `equal`, `close`, `different`, `missing` …

    `finding` names the fault in words: "holds the values of layer2.weight", "is transposed".
    """

    left: str | None
    right: str | None
    left_spec: Spec | None = None
    right_spec: Spec | None = None
    transform: str = "same"
    verdict: str = "equal"
    finding: str = ""
    fingerprint: str | None = None
    allclose: bool | None = None
    ratio: float | None = None
    cosine: float | None = None
    mean_error: float | None = None
    max_error: float | None = None

    @property
    def good(self) -> bool:
        """Nothing is wrong with it."""
        return self.verdict in GOOD

    def __str__(self) -> str:
        names = " | ".join(dict.fromkeys(name for name in (self.left, self.right) if name))
        return f"{names}: {self.verdict}" + (f": {self.finding}" if self.finding else "")


def _worst(rows: Sequence[WeightRow], count: int) -> tuple[WeightRow, ...]:
    """Rows that are wrong before those that are right, larger errors before smaller ones."""

    def distance(row: WeightRow) -> tuple[bool, float]:
        error = row.max_error if row.max_error is not None else 0.0
        return not row.good, error if error == error else float("inf")

    return tuple(sorted(rows, key=distance, reverse=True)[:count])


@dataclass(frozen=True, slots=True, repr=False)
class Conversion(_Answer):
    """Result of a conversion: the weights that were written, or loaded."""

    source: str
    target: str
    map: WeightMap
    rows: tuple[WeightRow, ...]
    nbytes: int
    notes: tuple[str, ...] = ()

    @property
    def code(self) -> int:
        """Exit code: 0. A conversion that fails raises; weights that stay behind because of `partial` are in `guilty`."""
        return 0

    @property
    def guilty(self) -> tuple[str, ...]:
        """Weights that stayed behind and matter."""
        return self.map.guilty

    def worst(self, count: int = 10) -> tuple[WeightRow, ...]:
        """The `count` rows with the largest errors; a conversion measures none, so these are the first."""
        return _worst(self.rows, count)

    def __str__(self) -> str:
        rest = "" if self.map.complete else f"; the map is not complete ({self.map._open()})"
        return f"{self.source} -> {self.target}: {counted(len(self.rows), 'weight')} carried over, {self.nbytes:,} bytes{rest}"


@dataclass(frozen=True, slots=True, repr=False)
class WeightComparison(_Answer):
    """Two checkpoints side by side."""

    left: str
    right: str
    rows: tuple[WeightRow, ...]
    rtol: float
    atol: float
    values: bool = True
    notes: tuple[str, ...] = ()

    @property
    def agree(self) -> bool:
        """Every weight that matters has its partner, of the same shape, and close to it."""
        return bool(self.rows) and all(row.good for row in self.rows)

    @property
    def code(self) -> int:
        """Exit code: 0 they agree, 1 they differ."""
        return 0 if self.agree else 1

    @property
    def guilty(self) -> tuple[str, ...]:
        """Weights that differ, or that one side alone has."""
        return tuple(str(row) for row in self.rows if not row.good) or (
            () if self.rows else ("there is no weight in common",)
        )

    def worst(self, count: int = 10) -> tuple[WeightRow, ...]:
        """The `count` rows that differ most: those that are wrong first, by their largest error."""
        return _worst(self.rows, count)

    def __str__(self) -> str:
        counts = Counter(row.verdict for row in self.rows)
        told = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
        return (
            f"{self.left} and {self.right} {'agree' if self.agree else 'do not agree'}: {told or 'no weight in common'}"
        )


@dataclass(frozen=True, slots=True)
class TrialRow:
    """One output, or one gradient, of the same input in both frameworks."""

    what: str
    name: str
    error: float
    bound: float
    because: str

    @property
    def within(self) -> bool:
        """Rounding explains it."""
        return self.error <= self.bound


@dataclass(frozen=True, slots=True, repr=False)
class Certificate(_Answer):
    """The proof that weights arrived, or the list of those that did not."""

    left: str
    right: str
    rows: tuple[WeightRow, ...]
    only_left: tuple[Unpaired, ...] = ()
    only_right: tuple[Unpaired, ...] = ()
    ambiguous: tuple[Ambiguity, ...] = ()
    mistakes: tuple[str, ...] = ()
    """Faults, one sentence each, the cause before its consequences."""
    trial: tuple[TrialRow, ...] = ()
    notes: tuple[str, ...] = field(default_factory=tuple)

    @property
    def granted(self) -> bool:
        """Every weight has its expected value, nothing that matters was left behind, and both nets compute the same."""
        return bool(self.rows) and not self.mistakes and all(row.within for row in self.trial)

    @property
    def code(self) -> int:
        """Exit code: 0 certified, 1 not."""
        return 0 if self.granted else 1

    @property
    def guilty(self) -> tuple[str, ...]:
        """Reasons why it is not granted, the cause before its consequences."""
        beyond = [
            f"{row.what} {row.name} is further apart than rounding explains" for row in self.trial if not row.within
        ]
        return (*self.mistakes, *beyond) or (() if self.granted else ("there is nothing to certify",))

    def worst(self, count: int = 10) -> tuple[WeightRow, ...]:
        """The `count` rows that differ most: those that are wrong first."""
        return _worst(self.rows, count)

    def __str__(self) -> str:
        between = f"{self.left} -> {self.right}"
        if self.granted:
            return f"{between}: certified, {counted(len(self.rows), 'weight')}" + (
                f", {len(self.trial)} results of both nets" * bool(self.trial)
            )
        wrong = self.guilty
        return f"{between}: not certified: {wrong[0]}" + (f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else "")


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" … ({len(names)})" if len(names) > 3 else "")
