"""Results of merged calls for the whole, in float64, from operands that are put together.

computed(wholes, call)      {7: array}, and the call with the sizes of the whole among its arguments
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ..model.records import Call
from ..model.tensors import Spec
from ..model.values import Value, leaves, mapped
from ..operations.sides import inputs_of, outputs_of
from .candidates import NEAR, distance, possible_shapes, sharded
from .placements import Array
from .wholes import Wholes

_SIZES = 8
"""Whole numbers among the arguments of a call that are tried as sizes of the whole."""


def computed(wholes: Wholes, call: Call) -> tuple[Mapping[int, Array], Call]:
    """Results by their groups, nothing where the call cannot be computed, and the call that was computed.

    Sizes among its arguments may be those of a piece: each is tried as that of the whole where the call fails, or gives what no
    pieces make up. A view that may be read in several ways is read in the one of which the ranks have plain pieces.
    """
    from ..operations.evaluation import NotRecomputable, Values, run
    from ..operations.telling import meaning_of
    from ..operations.traits import traits_of

    assumed: dict[int, Spec] = {}

    def spec(group: int) -> Spec:
        return assumed.get(group) or wholes.whole(group).spec

    if any(number not in wholes.placed for number in inputs_of(call).values()):
        return {}, call
    framework = wholes.journals[0].header.framework
    values = Values(wholes.values, spec)
    made = [number for number in outputs_of(call).values() if number not in wholes.placed]
    shapes = possible_shapes(wholes, made[0]) if made else [()]
    first: tuple[Mapping[int, Array], Call] = {}, call
    for tried, shape in itertools.product(_with_whole_sizes(wholes, call), shapes):
        if made:
            assumed[made[0]] = replace(wholes.ranks_of(made[0])[0].spec, shape=shape)  # a view is read off its result
        meaning = meaning_of(tried, framework, spec)
        if meaning is None or traits_of(meaning).random:
            continue
        try:
            results = {number: np.asarray(item.detach().numpy()) for number, item in run([meaning], values).items()}
        except NotRecomputable:
            continue
        if results and all(tuple(item.shape) in possible_shapes(wholes, number) for number, item in results.items()):
            if not traits_of(meaning).moves or _are_pieces(wholes, results):
                return results, tried
            first = first if first[0] else (results, tried)
    return first


def _are_pieces(wholes: Wholes, results: Mapping[int, Array]) -> bool:
    """True if the ranks have copies or plain pieces of what was computed."""
    return all(
        any(
            shape == tuple(values.shape) and (distance(wholes, number, parts, lambda: values) or 0.0) <= NEAR  # noqa: B023
            for parts, shape in sharded(wholes, number)
        )
        for number, values in results.items()
    )


def _with_whole_sizes(wholes: Wholes, call: Call) -> list[Call]:
    """The call, then with one whole number among its arguments times the length of an axis of the mesh."""
    calls = [call]
    lengths = sorted({length for length in (*wholes.mesh.shape, wholes.mesh.size) if length > 1})

    positional = [(str(place), value) for place, value in enumerate(call.args)]
    named = [(f"kw.{name}", value) for name, value in call.kwargs.items()]
    sizes = [
        slot
        for start, value in (*positional, *named)
        for slot, leaf in leaves(value, start)
        if isinstance(leaf, int) and not isinstance(leaf, bool) and leaf > 0
    ]
    for size, factor in itertools.product(sizes[:_SIZES], lengths):

        def changed(leaf: Value, slot: str, size: str = size, factor: int = factor) -> Value:
            return leaf * factor if slot == size and isinstance(leaf, int) else leaf

        args = tuple(mapped(value, changed, start) for start, value in positional)
        kwargs = {start.removeprefix("kw."): mapped(value, changed, start) for start, value in named}
        calls.append(replace(call, args=args, kwargs=kwargs))
    return calls
