"""Pairs that the project's own alignment finds in two dumps, in terms of their items.

    Cell.norm.LayerNorm.forward.0.parameters.gamma    Module.norm.LayerNorm.forward.0.parameters.weight    the same parameters
    Primitive.bias_add.BiasAdd.0.forward.output.0     Functional.linear.0.forward.output.0                 2 calls and 1 call …

Dumps open as traces. Values, parameters, operations and their order pair the calls, so names count for little and numbers of calls
that are shifted do no harm. A tensor that goes from call to call is one tensor in a trace and an item in every record that it goes
through: which item is meant is seen from the call.

A module that is one operation (`Dense`, `Linear`) is aligned as a whole, and what is inside it is not looked at. Where APIs are
asked for, they are aligned without the modules around them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from .... import api
from ....model.pairs import Layout, Part, TensorPair
from ....model.records import Call, Gradient, Header
from ....model.sites import Kind
from ....store.trace import DerivedJournal, Journal, Trace
from ..dumps import Dump
from ..layout import DumpJournal
from ..names import FRAMEWORKS, backward_of, parse

_PLACE = (0, 0)


@dataclass(frozen=True, slots=True)
class Aligned:
    """Names that belong together, with the reason: records one by one where they do the same, and items with their layout.

    Of the rest of each side, by record, why it is alone.
    """

    records: list[tuple[str, str, str]] = field(default_factory=list)
    items: list[tuple[str, str, str, Layout]] = field(default_factory=list)
    alone: tuple[dict[str, str], dict[str, str]] = field(default_factory=lambda: ({}, {}))


def align_dumps(
    npu: Dump, bench: Dump, modules: Mapping[str, str] | None = None, *, only_apis: bool = False
) -> Aligned:
    """Align two dumps, or only their APIs; `modules` are paths of modules that are known to belong together."""
    sides = (_Side(npu, only_apis), _Side(bench, only_apis))
    alignment = api.pair_up(sides[0].trace, sides[1].trace, modules=modules or None)[_PLACE]
    aligned = Aligned()

    def add_items(pair: TensorPair, within: Sequence[Collection[str] | None], because: str) -> None:
        ends = ((pair.left, pair.left_slot), (pair.right, pair.right_slot))
        one, two = (
            side.item(tensor, records, _place(pair.part, slot))
            for side, (tensor, slot), records in zip(sides, ends, within, strict=True)
        )
        if one is not None and two is not None:
            aligned.items.append((one, two, because, pair.layout))

    for match in alignment.matches:
        names = [[*map(side.record, calls)] for side, calls in zip(sides, (match.left, match.right), strict=True)]
        if len(names[0]) == len(names[1]) == 1:
            (one,), (two,) = names
            gradients = sides[0].gradients(one), sides[1].gradients(two)
            for pair in ((one, two), (backward_of(one), backward_of(two)), gradients):
                if pair[0] is not None and pair[1] is not None:
                    aligned.records.append((pair[0], pair[1], match.because))
        for tensors in match.tensors:
            back = tensors.part.backward
            add_items(tensors, [[*map(backward_of, records)] if back else records for records in names], match.because)
    for tensors in alignment.parameter_gradients:
        add_items(tensors, [None, None], tensors.because or "gradients of parameters that belong together")
    for side, why, alone in zip(sides, aligned.alone, (alignment.only_left, alignment.only_right), strict=True):
        for item in alone:
            record = side.record(item.call)
            why |= {record: item.because, backward_of(record): item.because}
    return aligned


class _Apis(DerivedJournal):
    """A journal without its modules."""

    def calls(self) -> Iterator[Call]:
        return (replace(call, parent=None) for call in self._journal.calls() if call.site.kind is Kind.API)

    def parameter_gradients(self) -> Iterator[Gradient]:
        return iter(())


class _Side:
    """A dump as a trace of one step and rank, whatever numbers its folders have: the other side's may be others."""

    def __init__(self, dump: Dump, only_apis: bool) -> None:
        ours = {theirs: ours for ours, theirs in FRAMEWORKS.items()}.get(dump.framework, dump.framework)
        self.journal = journal = DumpJournal(dump.path, Header(*_PLACE, 1, ours, {}), tolerant=True)
        seen = cast(Journal, _Apis(journal)) if only_apis else journal
        self.trace = Trace(str(dump.path), {"framework": ours}, [_PLACE], lambda step, rank: seen, layout="msprobe")
        self._records = frozenset(journal.records)
        self._record_of = {item.name: item.record for item in dump.items}

    def record(self, call: Call) -> str:
        """The record that a call was made of."""
        return self.journal.records[call.order or 0]

    def gradients(self, record: str) -> str | None:
        """The record of the gradients of a module's parameters: with the number of the call behind, or without."""
        name = parse(record)
        if name is None or name.what != "forward":
            return None
        whole = str(replace(name, what="parameters_grad"))
        return next((found for found in (f"{whole}.{name.call}", whole) if found in self._records), None)

    def item(self, tensor: int, within: Collection[str] | None, place: str) -> str | None:
        """The item that a tensor is in one of these records, at this place if it is there twice."""
        facts = self.journal.tensor(tensor).facts
        also = facts.get("also", ())
        names = [str(name) for name in (facts.get("item"), *(also if isinstance(also, Sequence) else ()))]
        if within is None:
            fitting = [name for name in names if ".parameters_grad" in self._record_of.get(name, "")]
        else:
            fitting = [name for name in names if self._record_of.get(name) in within]
        return next((name for name in fitting if name.endswith(f".{place}")), fitting[0] if fitting else None)


def _place(part: Part, slot: str) -> str:
    """The end of an item's name, as far as a slot tells it."""
    word = {Part.OUTPUT: "output", Part.OUTPUT_GRADIENT: "input", Part.INPUT_GRADIENT: "output"}.get(part, "")
    slot = slot.rpartition(":")[2]  # of several calls: `MatMul#0:1`
    slot = slot.removeprefix("kw.").removeprefix("node.") or "0"
    return f"{word}.{slot}" if word else slot
