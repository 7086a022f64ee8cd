"""Facts about weights: which belongs to which, how it gets there, whether it arrived.

Pair          conv.weight -> conv.weight, "insert axis 2", 1.00, because: same path
Unpaired      bn.num_batches_tracked, because: MindSpore's BatchNorm2d counts nothing
WeightMap     all of them, and what is ambiguous
WeightRow     one line of a comparison or certificate: the two names, the two specs, what was found
Conversion, WeightComparison, Certificate    what the verbs give back

What the verbs give back prints as one line; `repr` has everything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from .tensors import Spec


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
    """What every element must be for it to be harmless."""


@dataclass(frozen=True, slots=True)
class Ambiguity:
    """Weights of which it cannot be told which belongs to which. `suggestion` is the likeliest assignment."""

    left: tuple[str, ...]
    right: tuple[str, ...]
    because: str
    suggestion: tuple[Pair, ...] = ()


@dataclass(frozen=True, slots=True)
class WeightMap:
    """Which weight of the left belongs to which of the right. Nothing is dropped: what is not in `pairs` is told."""

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

    def __str__(self) -> str:
        state = "complete" if self.complete else f"not complete ({self._open()})"
        return f"{self.left} -> {self.right}: {_weights(self.pairs)} mapped, {state}"

    def _open(self) -> str:
        alone = [[item for item in side if not item.harmless] for side in (self.only_left, self.only_right)]
        found = zip(
            ("only left", "only right", "ambiguous", "do not fit"), (*alone, self.ambiguous, self.misfits), strict=True
        )
        return ", ".join(f"{len(items)} {what}" for what, items in found if items) or "nothing at all"


@dataclass(frozen=True, slots=True)
class WeightRow:
    """One pair in a conversion, comparison or certificate. `verdict` is `equal`, `close`, `different`, `missing` …

    `finding` says what is wrong, in words: "holds the values of layer2.weight", "is transposed".
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


@dataclass(frozen=True, slots=True)
class Conversion:
    """Result of a conversion: the weights that were written, or loaded."""

    source: str
    target: str
    map: WeightMap
    rows: tuple[WeightRow, ...]
    nbytes: int
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        rest = "" if self.map.complete else f"; the map is not complete ({self.map._open()})"
        return f"{self.source} -> {self.target}: {_weights(self.rows)} carried over, {self.nbytes:,} bytes{rest}"


@dataclass(frozen=True, slots=True)
class WeightComparison:
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
        return bool(self.rows) and all(row.verdict in ("equal", "close", "not carried") for row in self.rows)

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


@dataclass(frozen=True, slots=True)
class Certificate:
    """The proof that weights arrived, or the list of what did not."""

    left: str
    right: str
    rows: tuple[WeightRow, ...]
    only_left: tuple[Unpaired, ...] = ()
    only_right: tuple[Unpaired, ...] = ()
    ambiguous: tuple[Ambiguity, ...] = ()
    mistakes: tuple[str, ...] = ()
    """What is wrong, one sentence each, the cause before its consequences."""
    trial: tuple[TrialRow, ...] = ()
    notes: tuple[str, ...] = field(default_factory=tuple)

    @property
    def granted(self) -> bool:
        """Every weight is what it should be, nothing that matters was left behind, and both nets compute the same."""
        return bool(self.rows) and not self.mistakes and all(row.within for row in self.trial)

    def __str__(self) -> str:
        between = f"{self.left} -> {self.right}"
        if self.granted:
            return f"{between}: certified, {_weights(self.rows)}" + (
                f", {len(self.trial)} results of both nets" * bool(self.trial)
            )
        beyond = [
            f"{row.what} {row.name} is further apart than rounding explains" for row in self.trial if not row.within
        ]
        wrong = [*self.mistakes, *beyond] or ["there is nothing to certify"]
        return f"{between}: not certified: {wrong[0]}" + (f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else "")


def _weights(items: Sequence[object]) -> str:
    return f"{len(items)} weight{'' if len(items) == 1 else 's'}"
