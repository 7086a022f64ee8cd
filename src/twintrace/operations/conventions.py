"""One convention for what frameworks write in several ways: padding, axes, indices, shapes, reductions.

    padding(input, weight, pad="same", stride=2)     ((0, 1), (0, 1)): cells before and behind each spatial axis
    axis(-1, rank 4)                                 3
    index(x[..., 1:], f32[2, 3, 4])                  (slice(0, 2), slice(0, 3), slice(1, 4))

The functions here are those that the right side of a row may call (`rows.py`). They look at shapes, never at values.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .rows import NotTold

Sides = tuple[tuple[int, int], ...]


def spread(value: Any, count: int) -> tuple[int, ...]:
    """`value` for each of `count` axes: 3 is (3, 3), (3,) is (3, 3), and the last of too many (1, 1, 3, 3) are taken."""
    if isinstance(value, int):
        return (value,) * count
    items = tuple(int(item) for item in value)
    return items * count if len(items) == 1 else items[-count:]


def sides(value: Any, count: int) -> Sides:
    """Cells before and behind each axis, from one number, one for each axis, or two for each axis in the axes' order."""
    items: tuple[Any, ...] = (value,) * count if isinstance(value, int) else tuple(value)
    if items and isinstance(items[0], tuple):
        return tuple((int(before), int(behind)) for before, behind in items)
    if len(items) == 1:
        items = items * count
    if len(items) == count:
        return tuple((int(item), int(item)) for item in items)
    if len(items) == 2 * count:
        return tuple((int(items[2 * axis]), int(items[2 * axis + 1])) for axis in range(count))
    raise NotTold(f"padding {value} for {count} axes")


def same_sides(sizes: Sequence[int], kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> Sides:
    """Padding with which the output has `ceil(size / stride)` cells; an odd cell goes behind."""
    found = []
    for size, width, step, spacing in zip(sizes, kernel, stride, dilation, strict=True):
        total = max((math.ceil(size / step) - 1) * step + spacing * (width - 1) + 1 - size, 0)
        found.append((total // 2, total - total // 2))
    return tuple(found)


def overhang(
    sizes: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sides,
    dilation: Sequence[int],
    ceil_mode: Any,
) -> tuple[int, ...]:
    """Cells that `ceil_mode` adds behind each axis. A window that would begin in the padding behind is not added."""
    if not ceil_mode:
        return (0,) * len(sizes)
    found = []
    for size, width, step, (before, behind), spacing in zip(sizes, kernel, stride, padding, dilation, strict=True):
        reach = spacing * (width - 1) + 1
        count = -(-(size + before + behind - reach) // step) + 1
        if (count - 1) * step >= size + before:
            count -= 1
        found.append(max((count - 1) * step + reach - (size + before + behind), 0))
    return tuple(found)


def axis(value: Any, rank: int) -> Any:
    """An axis counted from the front."""
    return value + max(rank, 1) if isinstance(value, int) and not isinstance(value, bool) and value < 0 else value


def axes(value: Any, rank: int) -> Any:
    """Axes counted from the front, in order; none given are all of them."""
    if value is None or value == ():
        return tuple(range(rank))
    items = (value,) if isinstance(value, int) else value
    return tuple(sorted(axis(item, rank) for item in items))


def index(value: Any, shape: Sequence[int], is_mask: Any = None) -> tuple[Any, ...]:
    """An index as a tuple without ellipsis, its slices explicit, trailing full slices left out.

    Numbers in a list stay a tuple, masks and tensors stay operands; `is_mask` gives how many axes an operand takes (1 unless told).
    """
    items = value if isinstance(value, tuple) else (value,)
    width = is_mask or (lambda item: 1)
    taken = sum(0 if item is None or item == "..." or isinstance(item, bool) else width(item) for item in items)
    found: list[Any] = []
    place = 0
    for item in items:
        if isinstance(item, str):
            for _ in range(len(shape) - taken):
                found.append(slice(0, shape[place], 1))
                place += 1
        elif item is None or isinstance(item, bool):
            found.append(item)
        elif isinstance(item, slice):
            found.append(slice(*item.indices(shape[place])))
            place += 1
        elif isinstance(item, int):
            found.append(item + shape[place] if item < 0 else item)
            place += 1
        else:
            found.append(item)
            place += width(item)
    while found and isinstance(found[-1], slice) and place and found[-1] == slice(0, shape[place - 1], 1):
        found.pop()
        place -= 1
    return tuple(found)


def reduction_of(reduction: Any = "mean", size_average: Any = None, reduce: Any = None) -> Any:
    """`mean`, `sum` or `none`; PyTorch's two old flags count where they are given, numbers are those of its kernels."""
    if isinstance(reduction, int) and not isinstance(reduction, bool):
        return ("none", "mean", "sum")[reduction]
    if size_average is None and reduce is None:
        return reduction
    if reduce is False:
        return "none"
    return "sum" if size_average is False else "mean"


def flat(value: Any) -> tuple[Any, ...]:
    """`(1, 2)` of `(1, 2)` and of `((1, 2),)`: sizes may be given one by one or together."""
    if not isinstance(value, tuple):
        return (value,)
    return tuple(value[0]) if len(value) == 1 and isinstance(value[0], tuple) else value


def spread_any(value: Any) -> tuple[Any, ...]:
    """A tuple of what may be one."""
    return tuple(value) if isinstance(value, tuple) else (value,)


def without_padding(padding: Iterable[tuple[int, int]], counted: Any) -> bool:
    """`count_include_pad`, true where there is nothing to count."""
    return bool(counted) or not any(before or behind for before, behind in padding)


def only(value: Any) -> Any:
    """The one item of a tuple, or what is none."""
    if isinstance(value, tuple):
        if len(value) != 1:
            raise NotTold("several axes")
        return value[0]
    return value


def unless(value: Any, obstacle: Any) -> Any:
    """The value; NotTold where a setting is on that no operation here has."""
    if obstacle:
        raise NotTold("a setting that no operation here has")
    return value


def unbiased_by(ddof: Any, correction: Any, unbiased: Any) -> int:
    """Degrees of freedom to subtract, as `ddof`, `correction` or `unbiased` says."""
    if correction is not None:
        return int(correction)
    return int(ddof) if unbiased is None else int(unbiased)


def needed(value: Any) -> Any:
    """The value; NotTold where it is missing."""
    if value is None:
        raise NotTold("made inside the call")
    return value


def last_pair(padding: Any) -> Any:
    """Padding of the last axis, of numbers for all sides."""
    return tuple(padding)[-2:] if isinstance(padding, tuple) and len(padding) == 4 else padding


def approximation(value: Any) -> str:
    """`approximate` of GELU as PyTorch has it: MindSpore's is a bool too."""
    return {True: "tanh", False: "none"}.get(value, str(value)) if isinstance(value, bool) else str(value)


def from_behind(paddings: Any) -> tuple[int, ...]:
    """Padding by axis as one row that begins with the last axis."""
    return tuple(cells for pair in reversed(tuple(paddings)) for cells in pair)


def pad_mode_name(mode: Any) -> str:
    """PyTorch's name of a way to pad."""
    return {"edge": "replicate", "wrap": "circular"}.get(str(mode), str(mode))


def resize_corners(align_corners: Any, half_pixel_centers: Any) -> bool:
    """`align_corners`; NotTold for the third way to lay the grid, which PyTorch does not have."""
    if not align_corners and not half_pixel_centers:
        raise NotTold("neither corners nor centres are aligned")
    return bool(align_corners)


def given(value: Any, otherwise: Any) -> Any:
    """`otherwise` where the argument was not given."""
    return otherwise if value in (None, ()) else value


FUNCTIONS: Mapping[str, Any] = {
    **{
        each.__name__: each
        for each in (
            needed, last_pair, approximation, only, unless, unbiased_by, from_behind, pad_mode_name, resize_corners, spread, sides,
            same_sides, overhang, axis, axes, reduction_of, flat, spread_any, without_padding, given,
            float, int, bool, len, tuple, str, max, min,
        )
    },
    "sqrt": math.sqrt,
}  # fmt: skip
"""Functions that need no shapes, by the names that the right side of a row calls them."""
