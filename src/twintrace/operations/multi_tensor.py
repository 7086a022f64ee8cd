"""Multi-tensor kernels as one call for each tensor, so that they are paired and recomputed like the calls of a loop.

    aten._foreach_mul_.Scalar([a, b], 2)            aten._foreach_mul_.Scalar(a, 2) and aten._foreach_mul_.Scalar(b, 2)
    aten._fused_adamw_.default([a, b], [c, d], …)   …([a], [c], …) and …([b], [d], …)

The parts keep the kernel's name: that is what ran.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from ..model.records import Call
from ..model.tensors import Tensor
from ..model.values import Nest, TensorRef, Value, leaves
from .optimizers import is_fused

_STRIDE = 1 << 20
"""Distance between the numbers of two calls after splitting: a call of a million tensors has room for its parts."""


def kernel_name(full: str) -> str:
    """`_foreach_mul_` of `aten._foreach_mul_.Scalar` and of `torch._foreach_mul_`."""
    parts = full.split(".")
    return parts[1] if len(parts) > 1 else full


def is_multi_tensor(call: Call) -> bool:
    """True of a kernel that does the same for each tensor of a list."""
    return _width(call) > 0


def _width(call: Call) -> int:
    """Number of tensors that a multi-tensor kernel works on; 0 of other calls, and of lists that are not of one length."""
    name = kernel_name(call.site.name)
    if not name.startswith("_foreach_") and not is_fused(call):
        return 0
    if name.rstrip("_") in ("_foreach_addcmul", "_foreach_addcdiv") and not _has_lists_or_numbers(call):
        return 0
    lengths = {
        len(value.items) for value in (*call.args, *call.kwargs.values(), call.output) if isinstance(value, Nest)
    }
    lengths.discard(0)
    return lengths.pop() if len(lengths) == 1 else 0


def _has_lists_or_numbers(call: Call) -> bool:
    """False where the factors are one tensor of as many numbers as there are tensors."""
    return all(isinstance(value, Nest | int | float) for value in call.args)


TensorOf = Callable[[int], Tensor]


def split(tensor: TensorOf, *lists: Iterable[Call]) -> tuple[TensorOf, list[list[Call]]]:
    """The calls of one journal with multi-tensor kernels split into their parts, and its tensors, which name the call that made
    them. Where there are such kernels, all calls are renumbered, in the same order.
    """
    given = [list(calls) for calls in lists]
    if not any(is_multi_tensor(call) for calls in given for call in calls):
        return tensor, given
    found = [_split(calls) for calls in given]
    makers = {
        number: call.id
        for calls in found
        for call in calls
        if kernel_name(call.site.name).startswith(("_foreach_", "_fused_"))
        for number in (
            *(leaf.id for _, leaf in leaves(call.output) if isinstance(leaf, TensorRef)),
            *call.after.values(),
        )
    }

    def renumbered(number: int) -> Tensor:
        own = tensor(number)
        return own if own.producer is None else replace(own, producer=makers.get(number, own.producer * _STRIDE))

    return renumbered, found


def _split(calls: Sequence[Call]) -> list[Call]:
    counts: Counter[tuple[object, ...]] = Counter()
    found: list[Call] = []
    for call in calls:
        width = _width(call)
        for place in range(width or 1):
            part = _part(call, place) if width else call
            site = part.site
            if width:
                address = site.phase, site.kind, site.name
                site = replace(site, call=counts[address])
                counts[address] += 1
            found.append(
                replace(
                    part,
                    id=call.id * _STRIDE + place,
                    parent=None if call.parent is None else call.parent * _STRIDE,
                    site=site,
                    gradients=tuple(
                        replace(item, of=None if item.of is None else item.of * _STRIDE) for item in call.gradients
                    ),
                )
            )
    return found


def _part(call: Call, place: int) -> Call:
    fused = kernel_name(call.site.name).startswith("_fused_")

    def own(value: Value) -> Value:
        if not isinstance(value, Nest) or not value.items:
            return value
        item = value.items[place][1]
        return Nest(value.kind, (("0", item),)) if fused else item

    def own_slots(slots: Iterable[str]) -> list[tuple[str, str]]:
        """Slots of this tensor, `0.3`, and their names in the part: `0`, or `0.0` where it is a list still."""
        found = [(slot, slot.rpartition(".")) for slot in slots]
        return [(slot, f"{head}.0" if fused else head) for slot, (head, _, tail) in found if tail == str(place)]

    return replace(
        call,
        args=tuple(map(own, call.args)),
        kwargs={name: own(value) for name, value in call.kwargs.items()},
        output=own(call.output),
        mutates=call.mutates,  # of lists, the lists are named
        after={name: call.after[slot] for slot, name in own_slots(call.after)},
    )
