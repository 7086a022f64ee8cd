"""Relations between two different tensors that no recorded call made: transposed, scaled, another layer's.

relation(one, two, unit)      "the right's is the left's, transposed"; empty if nothing is seen
trend(one, two, unit)         Trend("1.01 times the left's"), for values of which each is within a few units
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .evaluation import SINGLE

Tensor = torch.Tensor

_UNITS = 4.0
"""Units by which values may differ that are the same but for one conversion."""
_GLIMPSE = 1 << 12
"""Elements beyond which the first row is looked at before all others."""
_LARGEST = 1 << 24
"""Elements up to which values are sorted and shifted to find a relation."""

_DEVIATIONS = 6.0
"""Standard errors beyond which differences have something in common: by chance once in 500 million times."""
_LIKELY = 4.0
"""Standard errors within which differences are those of another way of rounding."""


@dataclass(frozen=True, slots=True)
class Trend:
    """Something that the differences between two tensors have in common, although each is as small as rounding."""

    text: str
    rounding: bool = False
    """True if it is another way of rounding: toward zero, or down, instead of to the nearest."""


def shares_rows(one: Tensor, two: Tensor) -> bool:
    """True if all rows of the smaller of two tensors are among those of the larger, bit by bit, along one of the axes."""
    smaller, larger = sorted((one, two), key=lambda value: value.numel())
    if smaller.ndim != larger.ndim or not 0 < smaller.numel() < larger.numel() <= _LARGEST:
        return False
    for axis in range(smaller.ndim):
        rows = [value.movedim(axis, 0).reshape(value.shape[axis], -1).contiguous() for value in (smaller, larger)]
        if rows[0].shape[1] == rows[1].shape[1]:
            few, many = ({row.numpy().tobytes() for row in part} for part in rows)
            # Rows of a constant are in everything that has one: only different ones tell whose they are.
            if few <= many and len(few) > 1:
                return True
    return False


def trend(one: Tensor, two: Tensor, unit: float) -> Trend | None:
    """Property that the differences of two tensors share: a factor, of all or of one row, or one direction. None if they are as
    roundings are, as often up as down.

    A factor itself may have been rounded to float32 on each side: what is no more than that is no trend.
    """
    if one.shape != two.shape or one.is_complex() or not one.is_floating_point() or not unit:
        return None
    known = (one != 0) & one.isfinite() & two.isfinite()
    steps = torch.where(known, 2 * unit * torch.exp2(one.frexp()[1].double() - 1), 1.0)
    errors = torch.where(known, two - one, 0.0) / steps
    scaled = torch.where(known, one, 0.0) / steps
    if int((errors != 0).sum()) <= _DEVIATIONS**2:  # the sum of so few has fewer standard errors
        return None
    way = _way_of_rounding(errors[known], one[known], steps[known])
    if way:
        return Trend(way, True)
    for axis in range(one.ndim) if one.ndim > 1 else ():
        factors, sure = _factor(errors, scaled, tuple(place for place in range(one.ndim) if place != axis))
        if 0 < 2 * int(sure.sum()) <= sure.numel():
            row = int(sure.double().argmax())
            told = f"{_number(1 + float(factors[row]))} times the left's at {row} of axis {axis}"
            return Trend(f"the right's is {told}, but for rounding ({int(sure.sum())} of {sure.numel()} there)")
    factor, certain = _factor(errors, scaled, ())
    if bool(certain):
        return Trend(f"the right's is {_number(1 + float(factor))} times the left's, but for rounding")
    mean, size = float(errors.sum()), float(errors.pow(2).sum().sqrt())
    if abs(mean) > _DEVIATIONS * size and 2 * unit * abs(mean) > SINGLE * int(known.sum()):
        return Trend(f"the right's is {'above' if mean > 0 else 'below'} the left's more often than roundings are")
    return None


def _number(factor: float) -> str:
    return f"{factor:.9g}" if abs(factor - 1) < 1e-5 else f"{factor:.6g}"


def _factor(errors: Tensor, scaled: Tensor, axes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Relative factor less one that errors show, and whether it is certain; over some axes, all if empty."""
    many = axes or tuple(range(errors.ndim))
    products = errors * scaled
    factor = products.sum(many) / scaled.pow(2).sum(many)
    certain = products.sum(many).abs() > _DEVIATIONS * products.pow(2).sum(many).sqrt()
    return factor, certain & (factor.abs() > (2 if axes else 1) * SINGLE)


def _way_of_rounding(errors: Tensor, one: Tensor, steps: Tensor) -> str:
    """Sentence on one side whose values are those of the other, rounded toward zero or down; empty if it is not so.

    Then they differ by less than one step, always to one side, half a step in the mean, as much for large fractions as for small
    ones. A factor moves large fractions further.
    """
    fractions = (one / steps).abs()
    for signs, direction in ((one.sign(), "toward zero"), (torch.ones_like(one), "down")):
        moved = errors * signs
        for side, other, cut in (("right", "left", moved), ("left", "right", -moved)):
            if float(cut.max()) > 0 or float(cut.min()) < -1:
                continue
            spread = cut + 0.5
            leaning = (cut - cut.mean()) * (fractions - fractions.mean())
            even = abs(float(spread.sum())) <= _LIKELY * float(spread.pow(2).sum().sqrt())
            if even and abs(float(leaning.sum())) <= _LIKELY * float(leaning.pow(2).sum().sqrt()):
                return f"the {side}'s values are rounded {direction}, the {other}'s to the nearest"
    return ""


def blocks(one: Tensor, two: Tensor) -> tuple[Tensor, ...]:
    """Consecutive parts of the larger of two tensors that have the shape of the smaller, along the one axis that differs."""
    smaller, larger = sorted((one, two), key=lambda value: value.numel())
    if smaller.ndim != larger.ndim or not smaller.numel():
        return ()
    other = [axis for axis in range(smaller.ndim) if smaller.shape[axis] != larger.shape[axis]]
    if len(other) != 1 or larger.shape[other[0]] % smaller.shape[other[0]]:
        return ()
    return tuple(larger.split(smaller.shape[other[0]], other[0]))


def relation(one: Tensor, two: Tensor, unit: float) -> str:
    """One sentence on how two tensors of as many elements that differ belong together; empty if nothing is seen."""
    if one.numel() != two.numel() or not one.numel() or one.numel() > _LARGEST or one.is_complex() or two.is_complex():
        return ""
    if not one.is_floating_point():
        one, two = one.double(), two.double()
    for name, value in (("left", one), ("right", two)):
        if not bool(value.any()):
            return f"the {name}'s is all zeros"
    for axis in range(one.ndim - 1):
        if _close(one, two.transpose(axis, axis + 1), unit):
            return "the right's is the left's, transposed"
    if one.shape == two.shape:
        for axis in range(one.ndim):
            for shift in (1, -1):
                if _overlaps(one, two, axis, shift, unit):
                    return f"the right's is the left's, moved by one along axis {axis}"
    factor = float((one * two).sum() / (one * one).sum())
    if factor and _close(one.reshape(-1) * factor, two.reshape(-1), unit):
        return f"the right's is {_number(factor)} times the left's"
    if float(one.max()) == float(two.max()) and torch.equal(
        one.reshape(-1).sort().values, two.reshape(-1).sort().values
    ):
        return "both have the same values, in another order"
    return ""


def _overlaps(one: Tensor, two: Tensor, axis: int, shift: int, unit: float) -> bool:
    """True if two tensors are equal but for the ends when one is moved along an axis: labels shifted by one."""
    length = one.shape[axis]
    if length < 3:
        return False
    first, second = (one, two) if shift > 0 else (two, one)
    a, b = first.narrow(axis, 1, length - 1), second.narrow(axis, 0, length - 1)
    return _close(a, b, unit)


def _close(one: Tensor, two: Tensor, unit: float) -> bool:
    """True if two tensors are equal up to the rounding of one operation."""
    if one.shape != two.shape:
        return False
    if one.ndim and one.shape[0] > 1 and one.numel() > _GLIMPSE and not _close(one[:1], two[:1], unit):
        return False
    return bool(((one - two).abs() <= _UNITS * unit * torch.maximum(one.abs(), two.abs())).all())
