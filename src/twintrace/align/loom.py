"""Two sides in, an Alignment out.

align(left, right)                     finds what belongs together by itself
align(left, right, mapping=mapping)    what the mapping says counts first
"""

from __future__ import annotations

from ..model.pairs import Alignment, Alone, Match, Side
from ..model.records import Call
from ..model.sites import Kind
from .equivalents import operation_of
from .gradients import pair_gradients
from .named import by_name
from .strands import Strand
from .tensors import Mapper


def align(left: Side, right: Side, *, mapping: None = None) -> Alignment:
    """What belongs together in two journals, and what is left over, each with its reason."""
    strands = Strand(left), Strand(right)
    mapper = Mapper(*strands)
    matches = []
    taken: tuple[set[int], set[int]] = set(), set()
    for one, two, sure in by_name(*strands):
        taken[0].add(one)
        taken[1].add(two)
        calls = strands[0].calls[one], strands[1].calls[two]
        mapped = mapper.map(strands[0].slots(one), strands[1].slots(two), _operation(calls[0]), named=True)
        same = calls[0].site == calls[1].site
        because = "same address" if same else "same name in the same place"
        matches.append(Match((calls[0],), (calls[1],), because, 1.0 if sure else 0.9, *mapped))
    alone = tuple(
        tuple(
            Alone(call, "no call of this name in this place on the other side")
            for index, call in enumerate(strand.calls)
            if index not in gone
        )
        for strand, gone in zip(strands, taken, strict=True)
    )
    gradients = pair_gradients(left.parameter_gradients, right.parameter_gradients, matches)
    return Alignment(tuple(matches), alone[0], alone[1], *gradients)


def _operation(call: Call) -> str:
    return operation_of(call.site.type if call.site.kind is Kind.MODULE else call.site.name)
