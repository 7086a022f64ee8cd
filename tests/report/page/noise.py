"""Large comparisons, as they are in earnest.

flowing(comparison)       the same, with calls that take what the call before them gave
noisy(comparison)         the same, with numbers that do not repeat: what they weigh in a file
repeated(comparison, 10)  ten times as many steps, quickly made
"""

import random
from dataclasses import fields, replace

from twintrace.model.results import Comparison, badness
from twintrace.model.values import TensorRef
from twintrace.model.verdicts import Outcome


def flowing(comparison: Comparison) -> Comparison:
    """The same comparison, with a data flow: every call takes the tensor that the one before it in its step gave."""

    def chained(calls, last):
        found = []
        for call in calls:
            found.append(replace(call, args=(TensorRef(last[0]),), output=TensorRef(call.id)))
            last[0] = call.id
        return tuple(found)

    def result(item, ends):
        if item.step != ends["step"]:
            ends |= {"step": item.step, "left": [-1], "right": [-1]}
        sides = {side: chained(getattr(item.match, side), ends[side]) for side in ("left", "right")}
        return replace(item, match=replace(item.match, **sides))

    ends = {"step": None}
    results = tuple(result(item, ends) for item in comparison.results)
    return _with_results(comparison, results)


def _with_results(comparison: Comparison, results) -> Comparison:
    new = {id(before): after for before, after in zip(comparison.results, results, strict=True)}
    partings = {
        name: parting and replace(parting, result=new[id(parting.result)], tensors=new[id(parting.result)].tensors)
        for name, parting in (("forward", comparison.forward), ("backward", comparison.backward))
    }
    return replace(comparison, results=results, **partings)


def noisy(comparison: Comparison, seed: int = 0) -> Comparison:
    """The same comparison, with every number of its tensors drawn anew."""
    draw = random.Random(seed)

    def measurement(item):
        if item is None:
            return None
        numbers = {
            field.name: getattr(item, field.name) * draw.lognormvariate(0, 2)
            for field in fields(item)
            if isinstance(getattr(item, field.name), float)
        }
        numbers["histogram"] = tuple(draw.randrange(50_000) if draw.random() < 0.4 else 0 for _ in item.histogram)
        if item.heat:
            numbers["heat"] = replace(item.heat, values=tuple(draw.random() for _ in item.heat.values))
        return replace(item, **numbers)

    def side(item):
        if item.statistics is None:
            return item
        numbers = {name: draw.gauss(0, 3) for name in ("min", "max", "mean", "norm")}
        return replace(item, statistics=replace(item.statistics, **numbers))

    def verdict(item):
        if item.error is None or item.bound is None:
            return item
        error = item.error * draw.lognormvariate(0, 1)
        if item.outcome is Outcome.ROUNDING:
            error = min(error, item.bound)
        return replace(item, error=error, because=f"{error / item.bound:.4g} times what rounding in f32 explains")

    def tensor(item):
        return replace(
            item,
            left=side(item.left),
            right=side(item.right),
            verdict=verdict(item.verdict),
            measurement=measurement(item.measurement),
        )

    def result(item):
        tensors = tuple(map(tensor, item.tensors))
        sides = [[one.verdict for one in tensors if one.pair.part.backward is backward] for backward in (False, True)]
        forward, backward = (max(side, key=badness, default=None) for side in sides)
        return replace(item, tensors=tensors, forward=forward, backward=backward)

    return _with_results(comparison, tuple(map(result, comparison.results)))


def repeated(comparison: Comparison, times: int) -> Comparison:
    """The same pairs in `times` as many steps."""
    steps = 1 + max(result.step for result in comparison.results)
    more = [replace(result, step=result.step + steps * at) for at in range(1, times) for result in comparison.results]
    return replace(comparison, results=(*comparison.results, *more))
