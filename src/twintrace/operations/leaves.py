"""Relations between two different tensors that no recorded call made: transposed, scaled, another layer's.

relation(recomputation, left, right)      "the right's is the left's, transposed"; empty if nothing is seen
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ..model.tensors import UNITS
from .evaluation import NotRecomputable

if TYPE_CHECKING:
    from .recomputation import Recomputation

Tensor = torch.Tensor

_UNITS = 4.0
"""Units by which values may differ that are the same but for one conversion."""
_GLIMPSE = 1 << 12
"""Elements beyond which the first row is looked at before all others."""
_LARGEST = 1 << 24
"""Elements up to which values are sorted and shifted to find a relation."""


def relation(recomputation: Recomputation, left: int, right: int) -> str:
    """One sentence on how two tensors that differ belong together; empty if nothing is seen."""
    elsewhere = _elsewhere(recomputation, left, right)
    if elsewhere:
        return elsewhere
    try:
        one, two = recomputation.values[0](left), recomputation.values[1](right)
    except NotRecomputable:
        return ""
    unit = max(
        UNITS.get(recomputation.values[which].spec(number).dtype, 0.0) for which, number in ((0, left), (1, right))
    )
    if one.numel() != two.numel() or not one.numel() or one.numel() > _LARGEST or one.is_complex() or two.is_complex():
        return ""
    return _relation(one, two, unit)


def is_part(recomputation: Recomputation, left: int, right: int) -> bool:
    """True if all rows of the smaller tensor are among those of the larger, bit by bit, along one of the axes."""
    try:
        smaller, larger = sorted(
            (recomputation.values[0](left), recomputation.values[1](right)), key=lambda value: value.numel()
        )
    except NotRecomputable:
        return False
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


def _elsewhere(recomputation: Recomputation, left: int, right: int) -> str:
    """The same bits under another name on the other side: weights of another layer."""
    for which, number, other in ((1, right, "left"), (0, left, "right")):
        side = ("left", "right")[which]
        tensor = recomputation.sides[which].tensor(number)
        names = recomputation.sides[1 - which].parameters_like(tensor)
        own = recomputation.sides[which].parameter_name(number)
        if names and own not in names:
            return f"the {side} has here what the {other} has as {names[0]}"
    return ""


def _relation(one: Tensor, two: Tensor, unit: float) -> str:
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
        return f"the right's is {factor:.6g} times the left's"
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
