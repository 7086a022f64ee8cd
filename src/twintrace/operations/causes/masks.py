"""Masks of attention that differ, or that one side alone has.

masks(search)      candidates: "the left masks 12 of 100 places (causal); the right has no mask"
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from ..candidates import SIDES, Candidate, Cause, exchanged
from ..differences import HIDDEN
from ..evaluation import NotRecomputable
from ..meanings import Meaning, Operand

if TYPE_CHECKING:
    from .search import Search

Tensor = torch.Tensor


def masks(search: Search) -> Iterator[Candidate]:
    """The right with the left's mask in place of its own."""
    mine, other = _mask(search, 0), _mask(search, 1)
    if mine is not None and other is not None:
        if _broadcastable(mine.allowed, other.allowed) and torch.equal(
            *torch.broadcast_tensors(mine.allowed, other.allowed)
        ):
            return
        text = f"the masks differ: the left masks {mine.text}, the right {other.text}"
        changed = other.exchanged(Operand(search.recomputation.constant(mine.additive())))
        cause = Cause(text, setting="mask", advice="build the mask on the right as on the left")
        yield Candidate(cause, right=exchanged(search.right, other.meaning, changed))
        return
    for which, has in enumerate((mine, other)):
        if has is not None:
            side, lacks = SIDES[which], SIDES[1 - which]
            cause = Cause(
                f"the {side} masks {has.text}; the {lacks} has no mask",
                setting="mask",
                advice=f"give the {lacks} the mask",
            )
            yield search.changed(cause, which, has.meaning, has.without())


def _mask(search: Search, which: int) -> _Mask | None:
    """The mask of an attention: an argument of its own, or what is added to the scores."""
    try:
        value = search.values(which)
    except NotRecomputable:
        return None
    # The last that is added to the scores: masks are built of masks.
    for meaning in reversed(search.meanings(which)):
        arguments = meaning.arguments
        own = arguments.get("attn_mask")
        if isinstance(own, Operand):
            return _Mask(meaning, "attn_mask", value(own))
        if arguments.get("is_causal") is True and isinstance(arguments.get("query"), Operand):
            query, key = arguments["query"], arguments["key"]
            assert isinstance(query, Operand)
            assert isinstance(key, Operand)
            rows, columns = value(query).shape[-2], value(key).shape[-2]
            return _Mask(meaning, "is_causal", torch.ones(rows, columns, dtype=torch.bool).tril())
        if meaning.operation in ("add", "masked_fill", "where"):
            for name in ("other", "input", "mask", "condition"):
                operand = arguments.get(name)
                if isinstance(operand, Operand):
                    tensor = value(operand)
                    if meaning.operation == "add" and tensor.is_floating_point() and bool((tensor < HIDDEN).any()):
                        return _Mask(meaning, name, tensor)
                    if meaning.operation == "masked_fill" and name == "mask" and tensor.dtype == torch.bool:
                        return _Mask(meaning, name, ~tensor)
    return None


@dataclass(frozen=True, slots=True)
class _Mask:
    """The mask of an attention, and the call that applies it."""

    meaning: Meaning
    argument: str
    tensor: Tensor

    @property
    def allowed(self) -> Tensor:
        return self.tensor if self.tensor.dtype == torch.bool else self.tensor > HIDDEN

    def additive(self) -> Tensor:
        return torch.zeros(self.allowed.shape, dtype=torch.float64).masked_fill(~self.allowed, -math.inf)

    @property
    def text(self) -> str:
        """Places that a mask leaves open: `12 of 100 places, a window of 4`."""
        open_ = f"{int((~self.allowed).sum())} of {self.allowed.numel()} places"
        if self.allowed.dim() < 2:  # of labels, not of scores
            return open_
        allowed = self.allowed.reshape(-1, *self.allowed.shape[-2:])[0]
        rows, columns = allowed.shape
        distance = torch.arange(rows)[:, None] - torch.arange(columns)[None] + (columns - rows)
        for kind, shape in (("causal", distance >= 0), ("", None)):
            if shape is not None and torch.equal(allowed, shape):
                return f"{open_} ({kind})"
        widths = distance[allowed]
        if (
            widths.numel()
            and int(widths.min()) == 0
            and torch.equal(allowed, (distance >= 0) & (distance <= int(widths.max())))
        ):
            return f"{open_} (causal, a sliding window of {int(widths.max()) + 1})"
        return open_

    def without(self) -> Meaning:
        """The call without its mask."""
        if self.argument == "is_causal":
            return replace(self.meaning, arguments={**self.meaning.arguments, "is_causal": False})
        if self.argument == "attn_mask":
            return replace(self.meaning, arguments={**self.meaning.arguments, "attn_mask": None})
        return replace(
            self.meaning,
            arguments={**self.meaning.arguments, self.argument: 0.0 if self.meaning.operation == "add" else False},
        )

    def exchanged(self, mask: Operand) -> Meaning:
        """The call with another mask, additive."""
        arguments = dict(self.meaning.arguments)
        if self.argument in ("attn_mask", "is_causal"):
            return replace(self.meaning, arguments={**arguments, "attn_mask": mask, "is_causal": False})
        if self.meaning.operation == "add":
            return replace(self.meaning, arguments={**arguments, self.argument: mask})
        source = arguments["input"]
        return replace(self.meaning, operation="add", arguments={"input": source, "other": mask, "alpha": 1})


def _broadcastable(one: Tensor, two: Tensor) -> bool:
    try:
        torch.broadcast_shapes(one.shape, two.shape)
    except RuntimeError:
        return False
    return True
