"""Operands that reach a call in two ways.

    lone_paths(search)        candidates: "only the left computes here: … → mul → cat → mul → add"
    operand_paths(search)     candidates: "input of linear: repeat_interleave(…) on the left, repeat(…) on the right"

The latter are tried last: if the right's call with the left's operand gives the left's result, the difference is in the calls that
make this operand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import torch

from ..candidates import SIDES, Candidate, Cause, call_text
from ..evaluation import NotRecomputable
from ..meanings import Meaning, Operand
from ..traits import traits_of

if TYPE_CHECKING:
    from .search import Search

Tensor = torch.Tensor
Values: TypeAlias = Callable[[Operand], Tensor]

_TOLD = 4
"""Calls of a path that are told: the last ones."""


@dataclass(frozen=True, slots=True)
class _Path:
    """One operand of two calls of the same operation, with the calls that one side alone makes on the way to it."""

    name: str
    number: int
    """The right's."""
    value: Tensor
    """The left's, in full."""
    left: tuple[Meaning, ...]
    right: tuple[Meaning, ...]


def operand_paths(search: Search) -> Iterator[Candidate]:
    """The right's calls with operands of the left: each alone, then all that differ."""
    try:
        values = search.values(0), search.values(1)
    except NotRecomputable:
        return
    for one, two in reversed(search.pairs):
        if one.operation != two.operation or traits_of(two).moves:
            continue
        paths = list(_paths(search, one, two, values))
        for path in paths:
            yield _candidate(search, one, two, (path,))
        if len(paths) > 1:
            yield _candidate(search, one, two, paths)


def lone_paths(search: Search) -> Iterator[Candidate]:
    """One side without all its calls, if the other only takes what is there: keys that one side alone rotates."""
    for which in (0, 1):
        calls = search.meanings(which)
        if all(traits_of(item).moves for item in calls) or not all(
            traits_of(item).moves for item in search.meanings(1 - which)
        ):
            continue
        blamed = (search.call(which, calls[-1]),)
        cause = Cause(
            f"only the {SIDES[which]} computes here: {_told(calls)}",
            advice="add it on the right, or see why the left has it" if not which else "see why the left does without",
            lone=True,
            left=() if which else blamed,
            right=blamed if which else (),
            how="without it",
        )
        yield from search.taking_an_input(which, cause)


def _paths(search: Search, one: Meaning, two: Meaning, values: Sequence[Values]) -> Iterator[_Path]:
    theirs = dict(two.operands())
    for name, operand in one.operands():
        if name not in theirs:
            continue
        try:
            mine, other = (_in_full(meaning, name, values[which]) for which, meaning in enumerate((one, two)))
        except (NotRecomputable, RuntimeError):
            continue
        if torch.equal(mine, other):
            continue
        left, right = _without_common(search.makers(0, operand.tensor), search.makers(1, theirs[name].tensor))
        if left or right:
            yield _Path(name, theirs[name].tensor, mine, left, right)


def _in_full(meaning: Meaning, name: str, value: Values) -> Tensor:
    """An operand as a call takes it: a key or value of grouped queries once for each of them."""
    operands = dict(meaning.operands())
    tensor = value(operands[name])
    if meaning.arguments.get("enable_gqa") is not True or name not in ("key", "value"):
        return tensor
    return tensor.repeat_interleave(value(operands["query"]).shape[-3] // tensor.shape[-3], -3)


def _without_common(
    left: Sequence[Meaning], right: Sequence[Meaning]
) -> tuple[tuple[Meaning, ...], tuple[Meaning, ...]]:
    """Two sequences of calls without those that both begin and end with."""
    one, two = list(left), list(right)
    for end in (0, -1):
        while one and two and call_text(one[end]) == call_text(two[end]):
            del one[end], two[end]
    return tuple(one), tuple(two)


def _candidate(search: Search, one: Meaning, two: Meaning, paths: Sequence[_Path]) -> Candidate:
    sides = [next(filter(None, calls), ()) for calls in ([path.left for path in paths], [path.right for path in paths])]
    grouped = [meaning.arguments.get("enable_gqa") is True for meaning in (one, two)]
    texts = [
        "enable_gqa=True" if grouped == [not which, bool(which)] else _told(calls) for which, calls in enumerate(sides)
    ]
    blamed = [(search.call(which, calls[-1]),) if calls else () for which, calls in enumerate(sides)]
    cause = Cause(
        f"{' and '.join(path.name for path in paths)} of {two.operation}: {texts[0]} on the left, {texts[1]} on the right",
        setting=paths[0].name,
        advice="make it on the right as on the left",
        lone=bool(blamed[0]) != bool(blamed[1]),
        left=blamed[0],
        right=blamed[1],
    )
    return search.with_operands(two, {path.number: path.value for path in paths}, cause)


def _told(calls: Sequence[Meaning]) -> str:
    if not calls:
        return "no such call"
    return ("… → " if len(calls) > _TOLD else "") + " → ".join(map(call_text, calls[-_TOLD:]))
