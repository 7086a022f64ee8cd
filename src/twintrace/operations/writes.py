"""Writes through a view, as calls that make the tensor that the view is of.

    v = y[:, 0]        select   7 ─▶ 8
    v.zero_()          zero_    8 ─▶ 9
    tanh(y)            tanh    10 ─▶ 11       10, which `zero_` is the producer of and did not put out, is 7 with 9 at [:, 0]

The recorder says who wrote (`by`), and what is read afterwards has a number of its own; what becomes of the whole follows from the
views. Views are told by what they mean: slices and single places (`getitem`), pieces (`split`), all places of an axis (`unbind`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from ..model.records import Call
from ..model.tensors import Tensor
from ..model.values import TensorRef
from .meanings import Argument, Meaning, Operand

Places: TypeAlias = "tuple[range | int, ...]"
"""Places of a view in the whole, axis by axis; a number where the view has no such axis."""
_VIEWS = 16
"""Views of views that are followed."""


def wholes_written(
    hidden: Sequence[int],
    tensor: Callable[[int], Tensor],
    writer: Callable[[int], Call | None],
    maker: Callable[[int], Call | None],
    takers: Callable[[int], Sequence[Call]],
    meaning: Callable[[Call], Meaning | None],
) -> Iterator[tuple[Call, Meaning]]:
    """Calls that make these tensors, which no call put out, with their meaning.

    Args:
        hidden: numbers of tensors that calls took, in order.
        writer: the call that wrote a tensor through a view.
        maker: the call that put a tensor out.
        takers: the calls that took one.
    """
    for count, number in enumerate(hidden, 1):
        call = writer(number)
        told = None if call is None else _told(number, call, tensor, maker, takers, meaning)
        if call is None or told is None:
            continue
        input, index, value = told
        arguments: Mapping[str, Argument] = {"input": Operand(input), "index": index, "value": Operand(value)}
        # Its line would stand between that of the write and that of whoever reads the tensor.
        made = replace(
            call,
            id=-count,
            order=call.order + 1,
            args=(TensorRef(input), TensorRef(value)),
            kwargs={},
            output=None,
            mutates=("0",),
            after={"0": number},
            gradients=(),
        )
        yield made, Meaning("setitem", arguments, {number: 0}, call.site.name)


def _told(
    number: int,
    call: Call,
    tensor: Callable[[int], Tensor],
    maker: Callable[[int], Call | None],
    takers: Callable[[int], Sequence[Call]],
    meaning: Callable[[Call], Meaning | None],
) -> tuple[int, tuple[Argument, ...], int] | None:
    """Tensor of the whole before, the places that were written to, the tensor that stands there now; None where nothing tells."""
    found = None
    for before, after in _written(call):
        current, places = before, _everything(tensor(after).spec.shape)
        for _ in range(_VIEWS):
            made = maker(current)
            if made is None:
                break
            earlier = [old for old, new in _written(made) if new == current]
            if len(earlier) == 1:  # written to before, in the same place
                current = earlier[0]
                continue
            view = meaning(made)
            step = None if view is None else _step(view, current, tensor)
            if step is None:
                break
            current, inner = step
            places = _through(inner, places)
            if tensor(current).spec == tensor(number).spec:
                if found is not None or _is_turned(current, tensor, takers, meaning):
                    return None  # it wrote to two pieces; or this may be the whole with its axes in another order
                found = current, _index(places), after
                break
    return found


def _is_turned(
    number: int,
    tensor: Callable[[int], Tensor],
    takers: Callable[[int], Sequence[Call]],
    meaning: Callable[[Call], Meaning | None],
) -> bool:
    """True if there is a view of a tensor that has its shape, and its elements in another order."""
    return any(
        told.operation in ("permute", "reshape") and tensor(other).spec == tensor(number).spec and other != number
        for call in takers(number)
        if (told := meaning(call)) is not None
        for other in told.results
    )


def _written(call: Call) -> Iterator[tuple[int, int]]:
    """Tensors that a call writes to, before and after."""
    from .sides import inputs_of, outputs_of

    taken, made = inputs_of(call), outputs_of(call)
    for slot in call.mutates:
        after = call.after.get(slot, made.get("") if len(call.mutates) == 1 else None)
        if slot in taken and after is not None and after != taken[slot]:
            yield taken[slot], after


def _step(view: Meaning, number: int, tensor: Callable[[int], Tensor]) -> tuple[int, Places] | None:
    """The tensor that a view is of, and its places there."""
    input = view.arguments.get("input")
    if not isinstance(input, Operand):
        return None
    shape = tensor(input.tensor).spec.shape
    key = view.results.get(number)
    places: list[range | int] = list(_everything(shape))
    if view.operation == "getitem":
        index = view.arguments.get("index")
        if not isinstance(index, tuple) or len(index) > len(shape):
            return None
        for axis, place in enumerate(index):
            inside = type(place) is int and -shape[axis] <= place < shape[axis]
            if not inside and not isinstance(place, slice):
                return None
            places[axis] = range(shape[axis])[place]  # type: ignore[index]
    elif view.operation in ("split", "unbind"):
        dim = view.arguments.get("dim")
        if not isinstance(key, int) or not isinstance(dim, int) or not 0 <= dim < len(shape):
            return None
        if view.operation == "unbind":
            places[dim] = key
        else:
            sizes = view.arguments.get("sizes")
            known = [size for size in sizes if isinstance(size, int)] if isinstance(sizes, tuple) else []
            if key >= len(known):
                return None
            places[dim] = range(sum(known[:key]), sum(known[: key + 1]))
    else:
        return None
    kept = tuple(len(place) for place in places if isinstance(place, range))
    return (input.tensor, tuple(places)) if kept == tensor(number).spec.shape else None


def _everything(shape: Sequence[int]) -> Places:
    return tuple(map(range, shape))


def _through(outer: Places, inner: Places) -> Places:
    """Places of a view of a view."""
    within = iter(inner)
    return tuple(place if isinstance(place, int) else _picked(place, next(within)) for place in outer)


def _picked(outer: range, inner: range | int) -> range | int:
    return outer[inner] if isinstance(inner, int) else outer[inner.start : inner.stop : inner.step]


def _index(places: Places) -> tuple[Argument, ...]:
    return tuple(place if isinstance(place, int) else slice(place.start, place.stop, place.step) for place in places)
