"""The columns of a result, for each generation of the tool and each kind of dump: one table.

columns(Generation.OLDER, Mode.TENSOR, stack=True)      ("NPU Name", "Bench Name", …, "Accuracy Reached or Not", …, "Data_name")
columns(Generation.NEWER, Mode.MD5)                     ("NPU Name", …, "NPU MD5", "BENCH MD5", …, "Result", "Err_message")
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from ..dumps import Dump, Item

__all__ = ["Generation", "Mode", "columns", "mode_of"]


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
        """Are the values themselves opened?"""
        self.of_kernels = "kernels" in value


NAMES = ("NPU Name", "Bench Name")
SPECS = ("NPU Dtype", "Bench Dtype", "NPU Tensor Shape", "Bench Tensor Shape")
GRADS = ("NPU Requires_grad", "Bench Requires_grad")
ERRORS = (
    "Cosine", "EucDist", "MaxAbsErr", "MaxRelativeErr", "One Thousandth Err Ratio", "Five Thousandths Err Ratio",
)  # fmt: skip
DIFFERENCES = (
    "Max diff", "Min diff", "Mean diff", "L2norm diff",
    "MaxRelativeErr", "MinRelativeErr", "MeanRelativeErr", "NormRelativeErr",
)  # fmt: skip
SUMMARY = ("NPU max", "NPU min", "NPU mean", "NPU l2norm", "Bench max", "Bench min", "Bench mean", "Bench l2norm")
HASHES = ("NPU MD5", "BENCH MD5")
CONSISTENT, RESULT, REACHED, MESSAGE = "Requires_grad Consistent", "Result", "Accuracy Reached or Not", "Err_message"
STACK, FILES = "NPU_Stack_Info", "Data_name"

_NUMBERS = {
    Mode.STATISTICS: DIFFERENCES + SUMMARY,
    Mode.MD5: HASHES,
    Mode.TENSOR: ERRORS + SUMMARY,
}
TABLES = ("NPU CSV File", "Bench CSV File")
_OF_KERNELS = {Mode.KERNEL: ERRORS, Mode.KERNEL_STATISTICS: DIFFERENCES + TABLES}


def columns(generation: Generation, mode: Mode, *, stack: bool = False) -> tuple[str, ...]:
    """The names, in their order."""
    if mode in _OF_KERNELS:
        return NAMES + SPECS + SUMMARY + (REACHED, MESSAGE) + _OF_KERNELS[mode]
    older = generation is Generation.OLDER
    verdict = REACHED if older and mode is Mode.TENSOR else RESULT
    message = () if older and mode is Mode.MD5 else (MESSAGE,)
    more = ((STACK,) if stack else ()) + ((FILES,) if mode is Mode.TENSOR else ())
    return NAMES + SPECS + GRADS + _NUMBERS[mode] + (CONSISTENT, verdict, *message) + more


def mode_of(dump: Dump) -> Mode:
    """Which kind of dump this is: one with values, one with hashes, or one with statistics only."""
    if dump.level == "L2":
        return Mode.KERNEL if dump.task == "tensor" else Mode.KERNEL_STATISTICS
    if dump.task == "tensor":
        return Mode.TENSOR
    return Mode.MD5 if _hashed(dump.items) else Mode.STATISTICS


def _hashed(items: Iterable[Item]) -> bool:
    return any(item.md5 is not None and item.is_tensor for item in items)
