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

from ..model.tensors import UNITS, Spec
from .meanings import Operand, SpecOf
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


class Context:
    """Shapes of the operands of one call: the functions of a row that need them."""

    def __init__(self, spec: SpecOf, outputs: Sequence[int]) -> None:
        self._spec, self._outputs = spec, outputs

    def names(self) -> Mapping[str, Any]:
        """Functions that the right side of a row may call."""
        own = {name: getattr(self, name) for name in dir(self) if name[0] != "_" and name != "names"}
        return {**_FUNCTIONS, **own}

    def spec(self, operand: Any) -> Spec:
        """Shape and element type of an operand."""
        if not isinstance(operand, Operand):
            raise NotTold("a tensor was expected")
        return self._spec(operand.tensor)

    def shape(self, operand: Any) -> tuple[int, ...]:
        """Shape of an operand."""
        return self.spec(operand).shape

    def rank(self, operand: Any) -> int:
        """Number of axes of an operand."""
        return len(self.shape(operand))

    def dtype(self, operand: Any) -> str:
        """Element type of an operand."""
        return self.spec(operand).dtype

    def size(self, operand: Any, place: int) -> int:
        """Length of one axis."""
        return self.shape(operand)[place]

    def out(self, place: int = 0) -> Spec:
        """Shape and element type of a result."""
        if place >= len(self._outputs):
            raise NotTold("no result was recorded")
        return self._spec(self._outputs[place])

    def out_shape(self) -> tuple[int, ...]:
        """Shape of the first result."""
        return self.out().shape

    def out_dtype(self) -> str:
        """Element type of the first result."""
        return self.out().dtype

    def parts(self, place: int) -> tuple[int, ...]:
        """Lengths of all results along one axis."""
        return tuple(self._spec(number).shape[place] for number in self._outputs)

    def spatial(self, operand: Any, count: int) -> tuple[int, ...]:
        """Lengths of the last `count` axes."""
        return self.shape(operand)[-count:]

    def kernel(self, weight: Any) -> tuple[int, ...]:
        """Spatial extent of a convolution's weight."""
        return self.shape(weight)[2:]

    def conv_sides(self, input: Any, weight: Any, padding: Any, stride: Any, dilation: Any) -> Sides:
        """PyTorch's padding of a convolution: numbers, `same` or `valid`."""
        kernel = self.kernel(weight)
        count = len(kernel)
        if padding == "valid":
            return ((0, 0),) * count
        if padding == "same":
            totals = [step * (width - 1) for step, width in zip(spread(dilation, count), kernel, strict=True)]
            return tuple((total // 2, total - total // 2) for total in totals)
        return sides(padding, count)

    def mode_sides(self, input: Any, kernel: Any, mode: Any, pad: Any, stride: Any, dilation: Any = 1) -> Sides:
        """MindSpore's padding: `pad_mode` same, valid, or pad with `padding`."""
        kernel = tuple(kernel)
        count = len(kernel)
        mode = {"0": "pad", "1": "same", "2": "valid"}.get(str(mode), str(mode).lower())
        if mode == "valid":
            return ((0, 0),) * count
        if mode == "same":
            return same_sides(self.spatial(input, count), kernel, spread(stride, count), spread(dilation, count))
        return sides(pad, count)

    def pool_overhang(
        self, input: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: Any, count: int
    ) -> tuple[int, ...]:
        """Cells that `ceil_mode` adds to a pooling with PyTorch's arguments."""
        kernel = spread(kernel_size, count)
        step = spread(kernel_size if stride in (None, ()) else stride, count)
        return overhang(
            self.spatial(input, count), kernel, step, sides(padding, count), spread(dilation, count), ceil_mode
        )

    def permutation(self, input: Any, first: int, second: int) -> tuple[int, ...]:
        """Order of axes after two of them have changed places."""
        rank = self.rank(input)
        order = list(range(rank))
        if rank:
            one, two = axis(first, rank), axis(second, rank)
            order[one], order[two] = order[two], order[one]
        return tuple(order)

    def moved(self, input: Any, source: Any, destination: Any) -> tuple[int, ...]:
        """Order of axes after `movedim`."""
        rank = self.rank(input)
        pick = [axis(item, rank) for item in spread_any(source)]
        place = [axis(item, rank) for item in spread_any(destination)]
        left = iter(item for item in range(rank) if item not in pick)
        chosen = dict(zip(place, pick, strict=True))
        return tuple(chosen[item] if item in chosen else next(left) for item in range(rank))

    def order(self, input: Any, dims: Any) -> tuple[int, ...]:
        """Order of axes as `permute` takes it, each counted from the front."""
        rank = self.rank(input)
        return tuple(axis(item, rank) for item in flat(dims))

    def reversed_axes(self, input: Any) -> tuple[int, ...]:
        """All axes in the opposite order."""
        return tuple(reversed(range(self.rank(input))))

    def picked(self, input: Any, index: Any) -> tuple[Any, ...]:
        """An index in its plain form."""
        return _index(index, self.shape(input), self._axes_taken)

    def sliced(self, input: Any, dim: Any, start: Any = None, end: Any = None, step: Any = 1) -> tuple[Any, ...]:
        """The index that is a slice of one axis."""
        rank = self.rank(input)
        before: tuple[Any, ...] = (slice(None),) * axis(dim, rank)
        return self.picked(input, (*before, slice(start, end, step)))

    def selected(self, input: Any, dim: Any, place: Any) -> tuple[Any, ...]:
        """The index that is one place of one axis."""
        before: tuple[Any, ...] = (slice(None),) * axis(dim, self.rank(input))
        return self.picked(input, (*before, place))

    def _axes_taken(self, item: Any) -> int:
        if isinstance(item, Operand) and self.dtype(item) == "b8":
            return self.rank(item)
        return 1

    def attention_scale(self, query: Any, scale: Any) -> float:
        """Factor of the scores, 1/sqrt(d) unless given."""
        return float(scale) if scale is not None else 1.0 / math.sqrt(self.shape(query)[-1])

    def implicit_dim(self, input: Any, dim: Any) -> int:
        """Axis that PyTorch's softmax takes where none is given: the first of scalars, vectors and rank 3, else the second."""
        if dim is not None:
            return int(dim)
        return 0 if self.rank(input) in (0, 1, 3) else 1

    def machine_epsilon(self, input: Any) -> float:
        """`finfo(dtype).eps` of what kernels compute with: float32 for an operand of 16 bits."""
        return 2 * min(UNITS.get(self.dtype(input), UNITS["f32"]), UNITS["f32"])

    def real_only(self, input: Any) -> Any:
        """The operand; NotTold if it is complex: then its conjugate is meant."""
        if self.dtype(input).startswith("c"):
            raise NotTold("complex")
        return input

    def full_rank(self, input: Any, dims: Any) -> tuple[int, ...]:
        """Repetitions for every axis; those that are not given are 1."""
        given_ones = flat(dims)
        return (1,) * (self.rank(input) - len(given_ones)) + given_ones

    def holes(self, indices: Any) -> tuple[Any, ...]:
        """An index of kernels: None there is a full slice here."""
        return tuple(slice(None) if item is None else item for item in spread_any(indices))

    def stacked_axis(self, tensors: Any, place: int) -> int:
        """Axis of hstack: the first one of vectors."""
        return place if self.rank(tensors[0]) > place else 0

    def same_rank(self, input: Any, indices: Any) -> Any:
        """The indices; NotTold if they would be broadcast."""
        if self.rank(input) != self.rank(indices):
            raise NotTold("broadcast indices")
        return indices

    def padding_row(self, weight: Any, place: Any) -> Any:
        """`padding_idx` counted from the front."""
        return place if place is None else axis(place, self.shape(weight)[0])

    def rolled(self, input: Any, dims: Any) -> Any:
        """Axes of roll, in the order of the shifts; None rolls the flattened tensor."""
        return None if dims in (None, ()) else tuple(axis(item, self.rank(input)) for item in spread_any(dims))

    def used_scales(self, input: Any, size: Any, scale: Any, recompute: Any = None) -> tuple[float, ...]:
        """Ratios of output to input coordinates, as given or as the sizes say."""
        count = self.rank(input) - 2
        if scale is not None and size is None and not recompute:
            items = scale if isinstance(scale, tuple) else (scale,) * count
            return tuple(float(item) for item in items)
        return tuple(after / before for after, before in zip(self.out_shape()[2:], self.shape(input)[2:], strict=True))

    def kernel_scales(self, input: Any, *scales: Any) -> tuple[float, ...]:
        """The same for the arguments of a kernel, which are None where the sizes count."""
        if None in scales:
            return self.used_scales(input, (), None)
        return tuple(float(scale) for scale in scales)

    def channels_first(self, input: Any, layout: Any) -> Any:
        """The operand, if its second axis is that of channels."""
        if str(layout).upper() not in ("NCHW", "NCDHW", "NCL", "NCW", "0", "DEFAULTFORMAT"):
            raise NotTold(f"layout {layout}")
        return input

    def mode_overhang(
        self, input: Any, kernel: Any, mode: Any, pad: Any, stride: Any, ceil_mode: Any
    ) -> tuple[int, ...]:
        """Cells that `ceil_mode` adds where the padding goes by `pad_mode`."""
        count = len(kernel)
        padding = self.mode_sides(input, kernel, mode, pad, stride)
        return overhang(
            self.spatial(input, count), kernel, spread(stride, count), padding, (1,) * count, bool(ceil_mode)
        )

    def transposed_sides(self, input: Any, kernel: Any, mode: Any, pad: Any, stride: Any, dilation: Any) -> Sides:
        """Cells that a transposed convolution cuts off: those that the convolution back would have been padded with."""
        count = len(kernel)
        if str(mode).lower() == "valid":
            return ((0, 0),) * count
        if str(mode).lower() == "same":
            steps = spread(stride, count)
            sizes = [size * step for size, step in zip(self.spatial(input, count), steps, strict=True)]
            return same_sides(sizes, kernel, steps, spread(dilation, count))
        return sides(pad, count)

    def transposed_rest(
        self, input: Any, kernel: Any, mode: Any, pad: Any, stride: Any, dilation: Any
    ) -> tuple[int, ...]:
        """Cells that the result has beyond that: `output_padding`."""
        count = len(kernel)
        cut = self.transposed_sides(input, kernel, mode, pad, stride, dilation)
        whole = [
            (size - 1) * step + gap * (width - 1) + 1
            for size, step, gap, width in zip(
                self.spatial(input, count), spread(stride, count), spread(dilation, count), kernel, strict=True
            )
        ]
        return tuple(
            size - (full - before - behind)
            for size, full, (before, behind) in zip(self.out_shape()[-count:], whole, cut, strict=True)
        )

    def tail(self, input: Any, begin: int) -> tuple[int, ...]:
        """Lengths of the axes from `begin` on."""
        return self.shape(input)[axis(begin, self.rank(input)) :]

    def front(self, input: Any, place: Any) -> int:
        """An axis of an operand, counted from the front."""
        return int(axis(place, self.rank(input)))

    def boxed(self, input: Any, begin: Any, size: Any) -> tuple[Any, ...]:
        """The index of a box: where it begins, and how long it is (-1: to the end)."""
        return self.picked(
            input,
            tuple(slice(at, None if length == -1 else at + length) for at, length in zip(begin, size, strict=True)),
        )

    def strided(self, input: Any, begin: Any, end: Any, strides: Any, *masks: int) -> tuple[Any, ...]:
        """The index of a strided slice with MindSpore's masks, each a set of bits by position."""
        no_begin, no_end, ellipsis, new_axis, shrink = masks
        items: list[Any] = []
        for place, (at, to, step) in enumerate(zip(begin, end, strides, strict=True)):
            bit = 1 << place
            if ellipsis & bit:
                items.append("...")
            elif new_axis & bit:
                items.append(None)
            elif shrink & bit:
                items.append(at)
            else:
                items.append(slice(None if no_begin & bit else at, None if no_end & bit else to, step))
        return self.picked(input, tuple(items))

    def projections(self, together: Any, *apart: Any) -> Any:
        """Weights of an attention's input projections: one operand, or three."""
        return together if together is not None else apart


_index = index


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


_FUNCTIONS: Mapping[str, Any] = {
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
