"""Functions of a row that look at one call: at the shapes and types of its operands and results, and what follows from them.

    Context(spec, outputs).names()      {"shape": …, "conv_sides": …, "axis": …}

Values are never looked at.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..model.tensors import UNITS, Spec
from .conventions import FUNCTIONS, Sides, axis, flat, overhang, same_sides, sides, spread, spread_any
from .conventions import index as index_of
from .meanings import Operand, SpecOf
from .rows import NotTold


class Context:
    """Shapes of the operands of one call: the functions of a row that need them."""

    def __init__(self, spec: SpecOf, outputs: Sequence[int]) -> None:
        self._spec, self._outputs = spec, outputs

    def names(self) -> Mapping[str, Any]:
        """Functions that the right side of a row may call."""
        own = {name: getattr(self, name) for name in dir(self) if name[0] != "_" and name != "names"}
        return {**FUNCTIONS, **own}

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
        return index_of(index, self.shape(input), self._axes_taken)

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
