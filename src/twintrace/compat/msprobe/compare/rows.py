"""Rows: what is said of two items.

    Functional.linear.0.forward.output.0  …  Max diff -0.0007, MaxRelativeErr 0.014%  …  pass
    Functional.linear.0.forward.output.0  …  Cosine 0.999999, MaxAbsErr 0.0045        …  Yes

The cells are those of the tool, and so are the words in them: N/A where a side has nothing, None where there is no such number,
Nan, unsupported. `verdicts.py` fills in what a row is worth and how it looks.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ....model.pairs import Layout
from ..dumps import Dump, Item, some
from .pairing import ItemPair

if TYPE_CHECKING:
    from .tensors import Measured


Cell: TypeAlias = "str | float | int | bool | None"
NOTHING = "N/A"
NUMBERS = (float, int)  # a tuple: there are many cells, and a union is looked through slowly
_NAN, _NONE, _DIFFERENT, _UNSUPPORTED = "Nan", "None", "Diff", "unsupported"
_PLACES = ("src", "dst", "group_src", "group_dst")  # arguments that name a rank
_DEVICES = ("npu", "cpu", "cuda")
AS_IT_IS = Layout()


class Generation(Enum):
    """The generation whose files are written: of the commands with a compare.json (1.x, 8.x), or of those with two paths (26.x)."""

    OLDER = "8.x"
    NEWER = "26.x"


class Mode(Enum):
    """Knowledge of the values."""

    STATISTICS = "statistics"
    MD5 = "md5"
    TENSOR = "tensor"
    KERNEL = "kernels"
    KERNEL_STATISTICS = "statistics of kernels"

    def __init__(self, value: str) -> None:
        self.reads = value in ("tensor", "kernels")
        """True if the values themselves are opened."""
        self.of_kernels = "kernels" in value


_SIDES = (
    "NPU Name", "Bench Name", "NPU Dtype", "Bench Dtype", "NPU Tensor Shape", "Bench Tensor Shape",
)  # fmt: skip
_ERRORS = (
    "Cosine", "EucDist", "MaxAbsErr", "MaxRelativeErr", "One Thousandth Err Ratio", "Five Thousandths Err Ratio",
)  # fmt: skip
_DIFFERENCES = (
    "Max diff", "Min diff", "Mean diff", "L2norm diff",
    "MaxRelativeErr", "MinRelativeErr", "MeanRelativeErr", "NormRelativeErr",
)  # fmt: skip
_SUMMARY = ("NPU max", "NPU min", "NPU mean", "NPU l2norm", "Bench max", "Bench min", "Bench mean", "Bench l2norm")
_REACHED = "Accuracy Reached or Not"


_Columns: TypeAlias = "tuple[tuple[str, ...], Callable[[Row], Iterable[Cell]]]"
"""Heads of a group of columns, and the function that gives their cells."""


@lru_cache
def _layout(generation: Generation, mode: Mode, stack: bool) -> tuple[_Columns, ...]:
    """The table from left to right."""
    older, of_values = generation is Generation.OLDER, mode is Mode.TENSOR
    numbers: _Columns = (_ERRORS if mode.reads else _DIFFERENCES), lambda row: row.numbers
    summary: _Columns = _SUMMARY, lambda row: (*row.npu.numbers, *row.bench.numbers)
    sides: _Columns = _SIDES, lambda row: (
        row.npu.name, row.bench.name, row.npu.dtype, row.bench.dtype, row.npu.shape, row.bench.shape,
    )  # fmt: skip
    message: _Columns = ("Err_message",), lambda row: (_message(row, generation),)
    if mode.of_kernels:
        tables: _Columns = (
            ("NPU CSV File", "Bench CSV File"),
            lambda row: (_table(row.pair.npu), _table(row.pair.bench)),
        )
        verdict: _Columns = (_REACHED,), lambda row: (row.verdict,)
        return (sides, summary, verdict, message, numbers, *([] if mode.reads else [tables]))
    table = [sides, (("NPU Requires_grad", "Bench Requires_grad"), lambda row: (row.npu.grad, row.bench.grad))]
    hashes: _Columns = ("NPU MD5", "BENCH MD5"), lambda row: (row.npu.md5, row.bench.md5)
    table += [hashes] if mode is Mode.MD5 else [numbers, summary]
    result = _REACHED if older and of_values else "Result"
    table.append((("Requires_grad Consistent", result), lambda row: (row.consistent, row.verdict)))
    table += [] if older and mode is Mode.MD5 else [message]
    table += [(("NPU_Stack_Info",), lambda row: (row.stack,))] if stack else []
    files: _Columns = ("Data_name",), lambda row: (str([_file(row.pair.npu), _file(row.pair.bench)]),)
    return (*table, *([files] if of_values else []))


def columns(generation: Generation, mode: Mode, *, stack: bool = False) -> tuple[str, ...]:
    """The names, in their order."""
    return tuple(head for heads, _ in _layout(generation, mode, stack) for head in heads)


def cells_of(row: Row, mode: Mode, generation: Generation, *, stack: bool = False) -> list[Cell]:
    """The cells of a row, in the order of `columns`."""
    return [cell for _, cells in _layout(generation, mode, stack) for cell in cells(row)]


def _message(row: Row, generation: Generation) -> str:
    """Texts, in the newer generation as a JSON list."""
    if generation is Generation.OLDER:
        return "\n".join(row.messages)
    return json.dumps(row.messages, ensure_ascii=False)


def _table(item: Item | None) -> str:
    """The file whose row an item of a kernel is."""
    return NOTHING if item is None else str(item.value)


def _file(item: Item | None) -> str:
    return NOTHING if item is None else item.data_name or "-1"


def mode_of(dump: Dump) -> Mode:
    """Kind of a dump: one with values, one with hashes, or one with statistics only."""
    if dump.level == "L2":
        return Mode.KERNEL if dump.task == "tensor" else Mode.KERNEL_STATISTICS
    if dump.task == "tensor":
        return Mode.TENSOR
    hashed = any(item.md5 is not None and item.is_tensor for item in dump.items)
    return Mode.MD5 if hashed else Mode.STATISTICS


_OF_STATISTICS = (Mode.STATISTICS, Mode.KERNEL_STATISTICS)
_Four: TypeAlias = "tuple[Cell, Cell, Cell, Cell]"


class Side(NamedTuple):
    """One item as a row shows it."""

    name: str
    dtype: str
    shape: str
    grad: str
    numbers: _Four
    md5: str


@dataclass(slots=True)
class Row:
    """A pair, the cells that belong to the mode, and what the judges say of it."""

    pair: ItemPair
    npu: Side
    bench: Side
    numbers: tuple[Cell, ...]
    """The errors or differences; nothing for hashes."""
    consistent: str
    """Requires_grad on both sides: True, False, or N/A where the tool that recorded a side does not know it."""
    matched: bool
    """True if there are two sides."""
    output: bool
    """True for a result of its record; otherwise it came in."""
    unread: str = ""
    """Reason that something that should have been compared was not."""
    remark: str = ""
    """Remarks on the numbers."""
    differs: str = ""
    """Differences that are no numbers: an argument that is no tensor, shapes, element types, NaN."""
    stack: str = "N/A"
    verdict: str = ""
    messages: list[str] = field(default_factory=list)
    colour: str | None = None

    @property
    def name(self) -> str:
        return self.npu.name if self.pair.npu is not None else self.bench.name


def make_row(pair: ItemPair, mode: Mode, generation: Generation, measured: Measured | None = None) -> Row:
    """The row of a pair; `measured` is what was found in the values, where they are opened."""
    npu, bench = pair.npu, pair.bench
    left, right = _side(npu), _side(bench)
    unread, remark = "", ""
    numbers: tuple[Cell, ...] = ()
    if mode in _OF_STATISTICS:
        numbers = _differences(left, right, generation)
    elif measured is not None:
        numbers, unread, remark = measured.cells, measured.unread, measured.remark
    elif mode.reads:
        numbers = (_UNSUPPORTED,) * len(_ERRORS)
    if npu is not None and npu.problem:
        unread = f"NPU: {npu.problem}"
    elif bench is not None and bench.problem:
        unread = f"bench: {bench.problem}"
    matched = npu is not None and bench is not None
    output = (npu or bench).state == "output"  # type: ignore[union-attr]  # a pair has at least one side
    consistent = "True" if left.grad == right.grad else "False"
    tensors = all(item is not None and item.is_tensor for item in (npu, bench))
    if tensors and left.grad != right.grad and NOTHING in (left.grad, right.grad):
        consistent = NOTHING
    differs = "" if npu is None or bench is None or unread else _differs(npu, bench, left, right, pair, mode)
    return Row(pair, left, right, numbers, consistent, matched, output, unread, remark, differs)


# Sides --------------------------------------------------------------------------------------------------------------


_GRADS = {None: NOTHING, True: "True", False: "False"}
_NO_HASH = "00000000"  # of nothing
_ABSENT = Side(NOTHING, NOTHING, NOTHING, NOTHING, (NOTHING,) * 4, NOTHING)


def _side(item: Item | None) -> Side:
    if item is None:
        return _ABSENT
    grad = _GRADS[item.requires_grad]
    if item.shape is not None:
        numbers = _number(item.max), _number(item.min), _number(item.mean), _number(item.norm)
        return Side(item.name, item.dtype, str([*item.shape]), grad, numbers, item.md5 or _NO_HASH)
    if item.type in ("NoneType", ""):
        return Side(item.name, NOTHING, NOTHING, grad, (_NONE,) * 4, NOTHING)
    # What is no tensor, as the tool writes it: type and shape, a value in place of the four statistics, a hash.
    text, sized, named = str(item.value), item.type in ("torch.Size", "slice"), item.type == "torch.ProcessGroup"
    named = named or item.name.rpartition(".")[2] in _PLACES
    kind = item.type if sized or named or item.type == "ellipsis" else str(type(item.value))
    shape = text if item.type == "torch.Size" else "[]"
    if item.type == "slice":
        shape = f"({len(item.value)},)" if isinstance(item.value, list) else "()"
    shown = _NONE if sized else text if named else _number(item.value)
    md5 = item.md5 or (text if named and not sized else f"{zlib.crc32(text.encode(errors='replace')):08x}")
    return Side(item.name, kind, shape, grad, (shown,) * 4, md5)


def _number(value: object) -> Cell:
    if value is None:
        return _NONE
    if isinstance(value, float):
        return value if value == value else _NAN
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return str(value)


# Differences that are no numbers --------------------------------------------------------------------------------------


def _differs(npu: Item, bench: Item, left: Side, right: Side, pair: ItemPair, mode: Mode) -> str:
    """Sentences on what numbers do not show."""
    if npu.shape is not None and bench.shape is not None:
        told = []
        if mode not in _OF_STATISTICS:
            return ""
        if left.shape != right.shape and pair.layout == AS_IT_IS:
            told.append(f"The shapes differ: {left.shape} | {right.shape}.")
        if left.dtype != right.dtype and _family(left.dtype) != _family(right.dtype):
            told.append(f"The element types differ in kind: {left.dtype} | {right.dtype}.")
        if (_NAN in left.numbers) != (_NAN in right.numbers):
            told.append(f"Only the {'NPU' if _NAN in left.numbers else 'bench'} has NaN.")
        return " ".join(told)
    if npu.shape is None and bench.shape is None and _same(npu, bench):
        return ""
    what = "result" if npu.state == "output" else "argument"
    return f"The {what} differs: {_shown(npu)} | {_shown(bench)}."


@lru_cache(maxsize=256)
def _family(dtype: str) -> str:
    """`float` of torch.bfloat16, Float32 and float64."""
    name = dtype.rpartition(".")[2].lower()
    return next((kind for kind in ("float", "complex", "int", "bool") if kind in name), name)


def _same(npu: Item, bench: Item) -> bool:
    """True for equal values that are no tensors. One device is as good as another."""
    one, two = npu.value, bench.value
    if one is None and two is None:
        return npu.type == bench.type or "NoneType" not in (npu.type, bench.type)
    if one == two or (one != one and two != two):
        return True
    if isinstance(one, str) and isinstance(two, str):
        named = [text.rpartition(".")[2].lower() for text in (one, two)]
        return named[0] == named[1] or (_is_device(one) and _is_device(two))
    return False


def _shown(item: Item) -> str:
    if item.shape is not None:
        return f"a tensor {item.dtype} {[*item.shape]}"
    return "None" if item.type == "NoneType" else item.type if item.value is None else some(item.value)


# Differences of statistics ------------------------------------------------------------------------------------------


def _differences(left: Side, right: Side, generation: Generation) -> tuple[Cell, ...]:
    apart = _older if generation is Generation.OLDER else _newer
    (top, top_share), (low, low_share), (mean, mean_share), (norm, norm_share) = map(apart, left.numbers, right.numbers)
    return top, low, mean, norm, top_share, low_share, mean_share, norm_share


def _newer(npu: Cell, bench: Cell) -> tuple[Cell, Cell]:
    """Difference and relative error: equal is 0, whatever it is; a text beside something else is `Diff`."""
    if npu == bench:
        return 0, "0"
    if isinstance(npu, NUMBERS) and isinstance(bench, NUMBERS):
        difference = _minus(npu, bench)
        if difference - difference != 0:  # one of them is infinite
            return difference, difference
        return difference, f"{abs(difference / bench * 100)!r}%" if bench else math.inf
    if NOTHING in (npu, bench) or (_is_device(npu) and _is_device(bench)):
        return NOTHING, NOTHING
    return _without_number(npu, bench, _DIFFERENT)


def _older(npu: Cell, bench: Cell) -> tuple[Cell, Cell]:
    """Only numbers have a difference, and a relative error only where the bench is not 0."""
    if isinstance(npu, NUMBERS) and isinstance(bench, NUMBERS):
        difference = _minus(npu, bench)
        if difference != difference:
            return _NAN, _NAN
        return difference, f"{abs(difference / bench * 100)!r}%" if bench else NOTHING
    return _without_number(npu, bench, NOTHING)


def _without_number(npu: Cell, bench: Cell, otherwise: str) -> tuple[Cell, Cell]:
    """The cells of a difference that is no number: NaN beside a number, or what is no number at all."""
    numeric = all(isinstance(side, NUMBERS) or side == _NAN for side in (npu, bench))
    return (_NAN, _NAN) if numeric else (otherwise, otherwise)


def _minus(npu: float, bench: float) -> float:
    try:
        return float(npu) - float(bench)
    except OverflowError:  # a whole number that no float holds: JSON knows no limit
        return math.nan


def _is_device(value: Cell) -> bool:
    return isinstance(value, str) and any(name in value.lower() for name in _DEVICES)
