"""Settings, factors and operands that one side has otherwise, or alone.

settings_of(search, one, two)      candidates: "eps: 1e-05 | 1e-07", then all that differ at once
operands_of(search, one, two)      candidates: "the left has a bias, f32[8]; the right has none"
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from ..candidates import SIDES, Candidate, Cause
from ..evaluation import NotRecomputable
from ..meanings import FRAMEWORKS_OWN, Argument, Meaning, Operand, different_arguments, told

if TYPE_CHECKING:
    from .search import Search

_NUMBERS = {"mul": "factor", "div": "divisor", "add": "addend", "sub": "subtrahend", "pow": "exponent"}
"""Names of the second operand of arithmetic."""
_WRITTEN = 16
"""Numbers of calls that are tried as a setting of the call that does the same as all of them."""


def settings_of(search: Search, one: Meaning, two: Meaning) -> Iterator[Candidate]:
    """Settings that differ between two calls, one after the other, then all."""
    settings = different_arguments(one, two)
    fixed = {name: settings.pop(name)[0] for name in FRAMEWORKS_OWN & settings.keys()}
    for name, (mine, other) in sorted(settings.items()):
        shown = _NUMBERS.get(two.operation, name) if name == "other" else name
        if shown == "addend" and all(isinstance(item, float) and 0 < item < 0.1 for item in (mine, other)):
            shown = "eps"
        text = f"{shown}: {told(mine)} | {told(other)}"
        cause = Cause(text, setting=name, advice=f"set {shown}={told(mine)} on the right")
        yield search.changed_right(cause, two, {**fixed, name: mine})
    if len(settings) > 1:
        names = ", ".join(f"{name}: {told(mine)} | {told(other)}" for name, (mine, other) in sorted(settings.items()))
        advice = f"set {', '.join(sorted(settings))} as on the left"
        changed = {name: mine for name, (mine, _) in settings.items()}
        cause = Cause(names, setting=min(settings), advice=advice)
        yield search.changed_right(cause, two, {**fixed, **changed})


def operands_of(search: Search, one: Meaning, two: Meaning) -> Iterator[Candidate]:
    """Operands that one side alone has: a bias, a mask."""
    for which, has, lacks in ((0, one, two), (1, two, one)):
        for name, argument in has.arguments.items():
            if not isinstance(argument, Operand) or lacks.arguments.get(name, argument) is not None:
                continue
            without = replace(has, arguments={**has.arguments, name: None})
            spec = search.recomputation.values[which].spec(argument.tensor)
            side, other = SIDES[which], SIDES[1 - which]
            text = f"the {side} has a {name}, {spec}; the {other} has none"
            cause = Cause(text, setting=name, advice=f"give the {other} its {name}")
            yield search.changed(cause, which, has, without)


def all_settings(search: Search) -> Iterator[Candidate]:
    """All settings of all calls between: a reshape and a permutation that belong together."""
    changed, names = list(search.right), []
    for one, two in search.pairs:
        for name, (mine, other) in sorted(different_arguments(one, two).items()):
            names.append(f"{name} of {two.operation}: {told(mine)} | {told(other)}")
            place = next(place for place, item in enumerate(changed) if item.results.keys() == two.results.keys())
            changed[place] = replace(changed[place], arguments={**changed[place].arguments, name: mine})
    if len(names) > 1:
        yield Candidate(Cause(", ".join(names), advice="set these as on the left"), right=changed)


def factors(search: Search) -> Iterator[Candidate]:
    """Numbers by which values are scaled in other ways: a divisor here, a factor there, the scale of an attention."""
    for one in search.left:
        for two in search.right:
            mine, other = _factor(search, 0, one), _factor(search, 1, two)
            if mine is None or other is None or mine == other:
                continue
            divisors = one.operation == two.operation == "div"
            shown = (1 / mine, 1 / other) if divisors else (mine, other)
            name = "divisor" if divisors else "scale"
            cause = Cause(
                f"{name}: {told(shown[0])} | {told(shown[1])}",
                setting=name,
                advice=f"{'divide' if divisors else 'scale'} by {told(shown[0])} on the right",
            )
            argument = "scale" if two.operation == "scaled_dot_product_attention" else "other"
            own = 1 / mine if two.operation == "div" else mine
            yield search.at(one, two, search.changed_right(cause, two, {argument: own}))


def _factor(search: Search, which: int, meaning: Meaning) -> float | None:
    """The number, or the tensor of one number, that a call scales by; None if it scales by none."""
    if meaning.operation == "scaled_dot_product_attention":
        scale = meaning.arguments.get("scale")
        return scale if isinstance(scale, float) else None
    other = meaning.arguments.get("other")
    if meaning.operation not in ("mul", "div"):
        return None
    if isinstance(other, Operand) and math.prod(search.recomputation.values[which].spec(other.tensor).shape) == 1:
        try:
            value = search.recomputation.values[which](other.tensor)
        except NotRecomputable:
            return None
        other = None if value.is_complex() else float(value.double())
    if not isinstance(other, int | float) or not other or not math.isfinite(other):
        return None
    return 1 / other if meaning.operation == "div" else float(other)


def written_numbers(search: Search) -> Iterator[Candidate]:
    """Settings of one call with the numbers of the calls that do the same on the other side, one after the other: the momentum
    of an optimizer's kernel, which is a factor where its step is written out.
    """
    for which in (0, 1):
        own, others = search.meanings(which), search.meanings(1 - which)
        if len(own) != 1 or own[0].operation in {meaning.operation for meaning in others}:
            continue
        fused = own[0]
        given = (_number(item) for meaning in others for item in meaning.arguments.values())
        numbers = {number for number in given if number is not None}
        numbers |= {1 - number for number in numbers if 0 < number < 1}
        settings = [name for name, value in fused.arguments.items() if isinstance(value, float)]
        for name, number in itertools.product(settings, sorted(numbers)[:_WRITTEN]):
            values = (fused.arguments[name], number) if which == 0 else (number, fused.arguments[name])
            if values[0] != values[1]:
                advice = f"set {name}={told(values[0])} on the right"
                cause = Cause(f"{name}: {told(values[0])} | {told(values[1])}", setting=name, advice=advice)
                changed = replace(fused, arguments={**fused.arguments, name: number})
                yield search.changed(cause, which, fused, changed)


def _number(value: Argument) -> float | None:
    """An argument that is a finite number; None of any other."""
    return float(value) if type(value) in (int, float) and math.isfinite(value) else None  # type: ignore[arg-type]
