"""MindSpore's kernel dumps as dumps of items, and which of them stand beside each other.

    rank_0/Net/0/3/MatMul.Default_l1-Dense_MatMul-op0.0.0.17.output.0.DefaultFormat.Float32.npy
        the item of that name, in the record MatMul.Default_l1-Dense_MatMul-op0.0

The archive opens the directory, the alignment pairs the kernels: by name and, where a kernel ran more often on one side, by place.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .... import api
from ....model.dtypes import LONG_NAMES
from ....model.errors import TraceFormatError
from ....model.pairs import Part
from ....model.records import Call
from ....model.tensors import Statistics, Tensor
from ....store.trace import Journal
from ...translating import over_all_elements
from ..dumps import Dump, Item, Number
from .aligned import Aligned
from .pairing import Pairing, pair_aligned


@dataclass(frozen=True)
class KernelDump(Dump):
    """One rank of one step of a kernel dump."""

    journal: Journal = field(kw_only=True, repr=False)
    tensors: dict[str, Tensor] = field(kw_only=True, repr=False)

    def stored(self, item: Item) -> tuple[np.ndarray[Any, Any], str]:
        tensor = self.tensors[item.name]
        if item.data_name is None:
            raise TraceFormatError(f"{self.path}: {item.name}: {item.problem or 'no values were kept of it'}.")
        return self.journal.array(tensor), tensor.spec.dtype

    def file(self, item: Item) -> Path:
        return self.path / (item.data_name or "")


class Kernels:
    """Two directories of kernel dumps, listed once; one step of one rank at a time is held."""

    def __init__(self, npu: Path, bench: Path) -> None:
        self._paths = (npu, bench)
        self._traces = (api.open(npu, tolerant=True), api.open(bench, tolerant=True))

    def pair(self, step: int, rank: int) -> tuple[KernelDump, KernelDump, Pairing]:
        """Both sides of one step of one rank, and what belongs together."""
        for trace in self._traces:
            trace.forget()
        left, right = (
            _opened(path, trace.journal(step, rank)) for path, trace in zip(self._paths, self._traces, strict=True)
        )
        alignment = api.pair_up(*self._traces, steps=[step], ranks=[rank])[step, rank]
        names = [{tensor.id: name for name, tensor in dump.tensors.items()} for dump in (left, right)]
        aligned = Aligned(
            items=[
                (names[0][pair.left], names[1][pair.right], match.because, pair.layout)
                for match in alignment.matches
                for pair in match.tensors
                if pair.left in names[0] and pair.right in names[1]
            ]
        )
        for alone, items in zip(aligned.alone, (alignment.only_left, alignment.only_right), strict=True):
            alone |= {_record(item.call): item.because for item in items}
        return left, right, pair_aligned(left, right, aligned)


def _opened(path: Path, journal: Journal) -> KernelDump:
    tensors: dict[str, Tensor] = {}
    items: list[Item] = []
    for call in journal.calls():
        for part, slot, _, number in call.tensors():
            tensor = journal.tensor(number)
            item = _item(call, "input" if part is Part.INPUT else "output", slot or "0", tensor, taken=tensors)
            tensors[item.name] = tensor
            items.append(item)
    task = "tensor" if any(item.data_name for item in items) else "statistics"
    problems = tuple(f"{path}: {damage}" for damage in journal.damage)
    return KernelDump(path, task, "L2", "mindspore", tuple(items), {}, {}, problems, journal=journal, tensors=tensors)


def _record(call: Call) -> str:
    return f"{call.site.type}.{call.site.name}.{call.site.call}"


def _item(call: Call, state: str, slot: str, tensor: Tensor, taken: dict[str, Tensor]) -> Item:
    """A tensor in a file of its own has the file's name, one in a table that of its row: operation, task, end and slot."""
    record = _record(call)
    file = str(tensor.facts.get("file", ""))
    name = file if tensor.payload is not None else str(tensor.facts.get("row", ""))
    if not name or name in taken:  # the same once more: a kernel that ran again
        name = f"{record}.{state}.{slot}"
    return Item(
        name,
        record,
        state,
        "mindspore.Tensor",
        LONG_NAMES[tensor.spec.dtype],
        tensor.spec.shape if not tensor.is_lost else None,
        *_statistics(tensor.statistics),
        data_name=file if tensor.payload is not None else None,
        value=file,
        problem=tensor.missing or "",
    )


def _statistics(known: Statistics | None) -> tuple[Number, Number, Number, Number]:
    if known is None:
        return None, None, None, None
    return over_all_elements(known.min, known.max, known.mean, known.norm, known.nan, known.posinf, known.neginf)
