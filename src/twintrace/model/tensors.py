"""Facts about a tensor that are known without opening it.

    f32[8, 1024]                      a Spec: dtype and shape, the one notation used everywhere
    min -1.5  max 2.0  mean 0.01 …    its Statistics
    9f86d081884c7d65…                 its fingerprint: 128 bits of the bytes, in order (store/FORMAT.md)

`DTYPES` is the list of element types that a trace can hold (dtypes.py). A name is that of a number format, not of a memory layout.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from .dtypes import DTYPES as DTYPES
from .dtypes import LARGEST as LARGEST
from .dtypes import UNITS as UNITS

CRC = "0" * 24
"""Beginning of a fingerprint that is a CRC-32 of the bytes, which is all that some dumps have: compared with its like only."""


@dataclass(frozen=True, slots=True)
class Spec:
    """`f32[8, 1024]`: element type and shape."""

    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class Statistics:
    """Numbers about a tensor's values.

    `min`, `max`, `mean` and `norm` (L2) are over the *finite* elements, accumulated in float64; they are None where
    no element is finite. How many were not finite is said by the counts, so nothing is lost by leaving them out.
    Integers keep exact `min` and `max`; bool counts as 0 and 1; of complex numbers the modulus is taken.
    """

    min: float | int | None
    max: float | int | None
    mean: float | None
    norm: float | None
    nan: int
    posinf: int
    neginf: int
    zero: int
    order: tuple[float, float] | None = field(default=None, compare=False)
    """Two sums over the finite elements in which each place has its own weight in [-1, 1): other than the rest they mind the order.
    Values that are the same but for rounding have nearly the same sums. None: not known.
    """

    @property
    def nonfinite(self) -> int:
        """Number of elements that are NaN or infinite."""
        return self.nan + self.posinf + self.neginf

    def constant(self, count: int) -> float | int | None:
        """The one value that all of `count` elements have, a NaN or an infinity among them; None where they differ."""
        if not count:
            return None
        for number, value in ((self.nan, math.nan), (self.posinf, math.inf), (self.neginf, -math.inf)):
            if number == count:
                return value
        return self.min if self.min == self.max and not self.nonfinite else None


def same_values(one: Statistics, two: Statistics, count: int) -> bool:
    """Are these the statistics of the same elements, in whatever order? Then sums in f64 are equal, but for their own rounding.
    They are not, if a single element is off by a unit in the last place of f32.
    """
    if (one.min, one.max, one.zero) != (two.min, two.max, two.zero) or None in (one.mean, one.norm, two.mean, two.norm):
        return False
    mean, norm = one.mean or 0.0, one.norm or 0.0
    many = math.sqrt(max(count, 1))
    apart = abs((two.mean or 0.0) - mean), abs((two.norm or 0.0) - norm)
    return apart[0] <= 4e-16 * norm / many + 4e-17 * many * abs(mean) and apart[1] <= (4e-16 + 4e-17 * many) * norm


def in_another_order(one: Statistics, two: Statistics, *, rounding: float = 0.0) -> bool | None:
    """Do the same values lie in other places? None where that cannot be told: other values, or order sums that are not known.

    `rounding` is how far apart the two may be by rounding, as a part of their norm. The weights of the order sums have a
    root mean square of
    1/3; so the effect of rounding is about a third of `rounding` times the norm, and eight times that is beyond chance. Values
    that are nearly all alike cannot be told apart by their places: then the answer is False.
    """
    if one.order is None or two.order is None or one.norm is None or two.norm is None:
        return None
    norm = max(one.norm, two.norm)
    slack = rounding * norm
    ends = ((one.min, two.min), (one.max, two.max), (one.norm, two.norm))
    if any(left is None or right is None or abs(left - right) > slack + 1e-12 * norm for left, right in ends):
        return None
    if (one.nan, one.posinf, one.neginf) != (two.nan, two.posinf, two.neginf):
        return None
    gap = max(abs(left - right) for left, right in zip(one.order, two.order, strict=True))
    return gap > 8 / 3 * slack + 1e-12 * norm


@dataclass(frozen=True, slots=True)
class Location:
    """Where a tensor's bytes lie: `nbytes` from `offset` in the payload of `step` (None: the step of the record)."""

    offset: int
    nbytes: int
    step: int | None = None


@dataclass(frozen=True, slots=True)
class Tensor:
    """One observed tensor value: everything that a journal says of it.

    `missing` says why there is no value (a meta tensor, no disk space, a damaged line); `producer` is the id of the
    call that put it out, None for leaves. `facts` holds properties of some tensors: quantisation, sparsity, placement.
    A sparse tensor is made up of `parts`: the numbers of its indices and values.
    """

    id: int
    spec: Spec
    device: str = "cpu"
    requires_grad: bool = False
    producer: int | None = None
    statistics: Statistics | None = None
    fingerprint: str | None = None
    payload: Location | None = None
    missing: str | None = None
    facts: Mapping[str, object] = field(default_factory=dict)
    parts: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_rough(self) -> bool:
        """Are the statistics another tool's? Then they are of the precision of the elements, and nothing was counted: 1 is some."""
        return "statistics" in self.facts

    @property
    def constant(self) -> float | int | None:
        """The value that all elements have, as the statistics say; None where they differ, or where that is not known."""
        if self.statistics is None or self.is_rough or self.spec.dtype.startswith(("c", "f4")):
            return None  # of complex numbers the modulus is known
        return self.statistics.constant(math.prod(self.spec.shape))

    @property
    def is_lost(self) -> bool:
        """Its line is damaged or was never written: not even its shape is known, and `u8[0]` stands for it."""
        return self.missing is not None and self.spec == Spec("u8", (0,)) and self.statistics is None
