"""What the project's own alignment finds in two dumps, in terms of their items.

    Cell.norm.LayerNorm.forward.0.parameters.gamma    Module.norm.LayerNorm.forward.0.parameters.weight    the same parameters
    Primitive.bias_add.BiasAdd.0.forward.output.0     Functional.linear.0.forward.output.0                 2 calls and 1 call …

Dumps open as traces, and each of their tensors knows the item that it was. Names count for little here: values, parameters,
operations and their order pair the calls, so numbers of calls that are shifted do no harm.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from .... import api
from ....model.pairs import Alignment, Alone, Layout, TensorPair
from ....model.records import Call
from ....model.values import TensorRef, leaves, tensor_slots
from ....store.trace import Journal, Trace
from ..dumps import Dump

__all__ = ["AlignedItems", "Found", "aligned", "found_in"]

_PLACE = (0, 0)


@dataclass(frozen=True, slots=True)
class AlignedItems:
    """Two items that belong together, by their names."""

    npu: str
    bench: str
    because: str
    layout: Layout = field(default_factory=Layout)


@dataclass(frozen=True, slots=True)
class Found:
    """Pairs, and why the rest has no partner, by the names of items."""

    items: tuple[AlignedItems, ...]
    alone_npu: Mapping[str, str]
    alone_bench: Mapping[str, str]


def aligned(npu: Dump, bench: Dump, modules: Mapping[str, str] | None = None) -> Found:
    """Align two dumps; `modules` are paths of modules that are known to belong together."""
    left, right = _alone_in_its_place(npu), _alone_in_its_place(bench)
    alignment = api.pair_up(left, right, modules=modules or None)[_PLACE]
    return found_in(alignment, left.journal(*_PLACE), right.journal(*_PLACE))


def found_in(alignment: Alignment, npu: Journal, bench: Journal, fact: str = "item") -> Found:
    """The same in names; `fact` is where a tensor keeps its own."""

    def names(pairs: Iterator[tuple[TensorPair, str]]) -> Iterator[AlignedItems]:
        for pair, because in pairs:
            ours, theirs = npu.tensor(pair.left).facts.get(fact), bench.tensor(pair.right).facts.get(fact)
            if isinstance(ours, str) and isinstance(theirs, str):
                yield AlignedItems(ours, theirs, because, pair.layout)

    def alone(items: tuple[Alone, ...], journal: Journal) -> dict[str, str]:
        return {
            str(name): item.because
            for item in items
            for tensor in _tensors_of(item.call)
            if (name := journal.tensor(tensor).facts.get(fact)) is not None
        }

    return Found(
        tuple(names(_tensor_pairs(alignment))), alone(alignment.only_left, npu), alone(alignment.only_right, bench)
    )


def _tensors_of(call: Call) -> Iterator[int]:
    """All tensors of a call, gradients included."""
    yield from (tensor for _, tensor in tensor_slots(call.args, call.kwargs))
    yield from (leaf.id for _, leaf in leaves(call.output) if isinstance(leaf, TensorRef))
    yield from call.parameters.values()
    yield from (gradient.tensor for gradient in call.gradients)


def _tensor_pairs(alignment: Alignment) -> Iterator[tuple[TensorPair, str]]:
    for match in alignment.matches:
        for pair in match.tensors:
            yield pair, match.because
    for pair in alignment.parameter_gradients:
        yield pair, pair.because or "the gradients of parameters that belong together"


def _alone_in_its_place(dump: Dump) -> Trace:
    """The dump as a trace of one step and rank, whatever numbers its folders have: the other side's may be others."""
    trace = api.open(dump.path, tolerant=True)
    where = trace.places[0]
    return Trace(trace.path, trace.manifest, [_PLACE], lambda step, rank: trace.journal(*where), layout=trace.layout)
