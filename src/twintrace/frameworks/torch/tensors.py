"""Look at a torch tensor, recognise it again, read its values on the host.

    look(t)       f32[8, 8] on cpu, requires_grad, facts of the unusual ones (sparse, quantised, DTensor)
    glance(t)     the same, what recognises it again (storage, view, version), and where its bytes lie
    host(t)       numpy, a view of the tensor's own memory where that is possible

Nothing here changes a tensor, makes an autograd node, draws a random number or runs the user's code. A tensor that wraps others is
recorded by these: of a subclass that keeps its values in attributes, of a ragged one, of one inside `vmap`.
"""

from __future__ import annotations

from types import MemberDescriptorType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...model.dtypes import LETTERS, LONG_NAMES
from ..protocol import Glance, Look, Lost, Unreadable
from ..runs import Runs, merged
from .quiet import quiet
from .releases import wait_tensor

NAMES: dict[torch.dtype, str] = {  # not every torch has all of them
    getattr(torch, long): name for name, long in LONG_NAMES.items() if hasattr(torch, long)
} | {torch.quint8: "u8", torch.qint8: "i8", torch.qint32: "i32"}
_CODES: dict[torch.dtype, str] = {dtype: LETTERS[name] for dtype, name in NAMES.items()}
_EMPTY = frozenset({"FakeTensor", "FunctionalTensor"})
"""Classes of torch's own whose tensors stand for others that are not there."""
_NO_DISPATCH: Any = Tensor.__torch_dispatch__
_MAX_TRANSFORMATIONS = 16  # nested grad, jvp and vmap; nobody has as many
_LARGEST_COPY = 1 << 30  # bytes of a view that are written out though its memory is a fraction of it
_PLAIN = frozenset({Tensor, torch.nn.Parameter})
_functorch: Any = getattr(torch._C, "_functorch", None)
_is_transformed: Any = getattr(_functorch, "is_functorch_wrapped_tensor", lambda tensor: False)


class _Plan:
    """Facts that tensors of one element type, shape and so on have in common."""

    __slots__ = ("form", "is_usual", "look", "nbytes", "on_host", "order", "place", "runs", "span", "turns", "whole")

    def __init__(self, tensor: Tensor) -> None:
        self.is_usual = tensor.dtype in NAMES and not tensor.is_quantized  # of others each has facts of its own
        self.place = _stand_in_for((tensor.dtype, tensor.shape, tensor.stride()))
        self.form = _stand_in_for((tensor.dtype, *merged(tensor.shape, tensor.stride())))
        self.look = _look(tensor)
        self.turns = tensor.dtype.is_complex  # may be conjugated without a copy
        self.on_host = not is_elsewhere(tensor)
        self.order = True if tensor.is_contiguous() else False if _is_permuted(tensor) else None
        size = tensor.element_size()
        self.runs = None if self.order else Runs.of(tensor.shape, [size * step for step in tensor.stride()], size)
        self.span = _span(tensor)
        self.whole = whole = tensor.numel() * size
        self.nbytes = min(whole, size) if self.order is None else whole


_PLANS: dict[Any, _Plan] = {}
_PLACES: dict[Any, object] = {}
_MAX_PLANS = 1 << 14  # then new ones are made each time: a tensor that is known must not become another one


def _stand_in_for(description: Any) -> Any:
    """Something that is compared quickly, the same for the same description; without room for more, the description itself."""
    if len(_PLANS) < _MAX_PLANS:
        return _PLACES.setdefault(description, object())
    return _PLACES.get(description, description)


def is_tensor(value: object) -> bool:
    """Is this a torch tensor?"""
    return isinstance(value, Tensor)


def is_elsewhere(tensor: Tensor) -> bool:
    """Do its values lie on a device, where only the device reads them?"""
    return not tensor.is_cpu


def has_device() -> bool:
    """Is there a device at all on which tensors may lie?"""
    return torch.cuda.is_available() or (hasattr(torch, "accelerator") and torch.accelerator.is_available())


def look(tensor: Tensor) -> Look:
    """Facts that are known without the values."""
    if type(tensor) in _PLAIN and tensor.layout is torch.strided and not tensor.is_nested:
        if _is_transformed(tensor):
            return _look_transformed(tensor)
        plan = _plan(tensor)
        if plan.is_usual:
            return plan.look
    with quiet():
        return _look(tensor)


def _plan(tensor: Tensor) -> _Plan:
    key = (tensor.dtype, tensor.shape, tensor.stride(), tensor.device, tensor.requires_grad)
    found = _PLANS.get(key)
    if found is None:
        found = _Plan(tensor)
        if len(_PLANS) < _MAX_PLANS:
            _PLANS[key] = found
    return found


def _look(tensor: Tensor) -> Look:
    found = Look(NAMES.get(tensor.dtype, "u8"), (), str(tensor.device), tensor.requires_grad)
    shape: tuple[Any, ...]
    try:
        shape = tuple(tensor.shape)
    except RuntimeError:  # nested tensors and parameters that are not initialised yet have none
        shape = (None,)
    if all(type(size) is int for size in shape):
        found.shape = shape
    else:  # a ragged one has sizes that are no numbers
        found.facts = {"shape": "unknown"}
    plain = tensor.layout is torch.strided and type(tensor) in _PLAIN and tensor.dtype in NAMES
    if not plain or tensor.is_quantized or tensor.is_nested:
        _look_closer(tensor, found)
    found.elsewhere = is_elsewhere(_body(tensor)) and not tensor.is_meta
    return found


def glance(tensor: Tensor) -> Glance | None:
    """See `protocol.Glance`. None where torch gives no version. Asked of every tensor, so what it asks itself is counted."""
    try:
        if type(tensor) not in _PLAIN:
            with quiet():
                return None if _is_wrapper(tensor) else _glance_closer(tensor)
        # First: where there is none, as with sparse ones, it raises, and no plan is made under the key of an ordinary tensor.
        memory, address = tensor.untyped_storage(), tensor.data_ptr()
        plan = _PLANS.get((tensor.dtype, tensor.shape, tensor.stride(), tensor.device, tensor.requires_grad))
        if plan is None:
            plan = _plan(tensor)
        if not plan.is_usual:
            with quiet():
                return _glance_closer(tensor)
        storage = memory._cdata
        seat: Any = storage, address, plan.place
        stretch: Any = address, plan.form
        order, runs = plan.order, plan.runs
        if tensor.is_neg() or (plan.turns and tensor.is_conj()):
            seat, stretch, order, runs = (*seat, tensor.is_neg(), tensor.is_conj()), None, None, None
        if not plan.on_host or address + plan.span > memory.data_ptr() + memory.nbytes():  # elsewhere, or freed
            return storage, seat, tensor._version, plan.look, stretch, 0, 0, None, None
        return storage, seat, tensor._version, plan.look, stretch, address, plan.nbytes, order, runs
    except (RuntimeError, NotImplementedError, ValueError):  # sparse, inference, inside vmap, lazy: read every time
        return None


def _glance_closer(tensor: Tensor) -> Glance:
    """The same of the unusual ones."""
    body = _body(tensor)
    address, version, storage = body.data_ptr(), body._version, body.untyped_storage()._cdata
    flags = tensor.dtype, tensor.is_neg(), tensor.is_conj()
    seat = (storage, address, type(tensor), tensor.shape, body.stride(), *flags)
    if not address or not body.is_cpu or _is_gone(body):
        return storage, seat, version, _look(tensor), None, 0, 0, None, None
    count = body.numel() if body.is_contiguous() else 1
    return storage, seat, version, _look(tensor), None, address, count * body.element_size(), None, None


def _body(tensor: Tensor) -> Tensor:
    """Holder of the memory: of a DTensor the local shard, through which it may be written to."""
    return _kept(tensor).get("_local_tensor", tensor)


def _kept(tensor: Tensor) -> dict[str, Tensor]:
    """The tensors that an object of a subclass has as attributes, by name. Read, not asked for: no code of the class is run."""
    found: dict[str, Any] = dict(object.__getattribute__(tensor, "__dict__"))
    for kind in type(tensor).__mro__[:-1]:
        for name, member in vars(kind).items():
            if isinstance(member, MemberDescriptorType) and name not in found:  # of a class with __slots__
                found[name] = member.__get__(tensor) if _is_set(member, tensor) else None
    return {name: value for name, value in found.items() if isinstance(value, Tensor) and value is not tensor}


def _is_set(member: MemberDescriptorType, tensor: Tensor) -> bool:
    try:
        member.__get__(tensor)
    except AttributeError:
        return False
    return True


def _is_wrapper(tensor: Tensor) -> bool:
    """Has it no memory of its own, because its kernels are the class's own Python? Not a DTensor, whose shard is what counts."""
    if type(tensor).__torch_dispatch__ is _NO_DISPATCH or "_local_tensor" in _kept(tensor):
        return False
    try:
        return not tensor.data_ptr()
    except (RuntimeError, NotImplementedError, ValueError):
        return True


def storage(tensor: Tensor) -> Any:
    """The first part of a glance."""
    try:
        if type(tensor) in _PLAIN:
            return tensor.untyped_storage()._cdata
        with quiet():
            return None if _is_wrapper(tensor) else _body(tensor).untyped_storage()._cdata
    except (RuntimeError, NotImplementedError, ValueError):
        return None


def hold(tensor: Tensor) -> Any:
    """A weak hold: the storage may go, its identity is not given to another while we have this."""
    if type(tensor) in _PLAIN:
        return tensor.untyped_storage()._weak_ref()
    with quiet():
        return _body(tensor).untyped_storage()._weak_ref()


def released(hold: Any) -> bool:
    """Has the storage gone?"""
    return bool(torch.UntypedStorage._expired(hold))


def release(hold: Any) -> None:
    """Give the hold back."""
    torch.UntypedStorage._free_weak_ref(hold)


def host(tensor: Tensor) -> np.ndarray[Any, Any]:
    """The values, C-contiguous, in their storage type."""
    try:
        if type(tensor) not in _PLAIN:
            with quiet():
                return _host_of_unusual(tensor)
        if _is_transformed(tensor):
            return host(_untransformed(tensor))
        if tensor.dtype not in _CODES:
            raise Lost(f"elements of type {tensor.dtype} have no place in a trace")
        if tensor.is_cpu and _is_gone(tensor):
            raise Unreadable("its storage has been freed")
        if tensor.is_cpu and tensor.is_contiguous() and not (tensor.is_neg() or tensor.is_conj()):
            return _in_place(tensor)
        size, memory = tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes()
        if size > max(_LARGEST_COPY, 4 * memory):  # on a device, too: it is written out there, or here
            raise Lost(f"an expanded view: {memory} bytes of memory stand for {size}, which are not written out")
        with quiet():
            return _in_place(_copied(tensor.detach()))
    except (RuntimeError, TypeError, NotImplementedError, ValueError, MemoryError) as error:
        text = (str(error).splitlines() or [type(error).__name__])[0][:200]
        # No room for a copy; otherwise there are none, as inside vmap.
        kind = Lost if "memory" in text.lower() else Unreadable
        raise kind(f"torch does not give its values here: {text}") from None


def _is_gone(tensor: Tensor) -> bool:
    """Does it lie outside its storage? One that was freed or cut (FSDP does that) leaves tensors that point anywhere."""
    memory = tensor.untyped_storage()
    return bool(tensor.numel()) and tensor.data_ptr() + _span(tensor) > memory.data_ptr() + memory.nbytes()


def _span(tensor: Tensor) -> int:
    """Bytes from the first element to the end of the last."""
    if not tensor.numel():
        return 0
    steps = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    return (steps + 1) * tensor.element_size()


def _in_place(tensor: Tensor) -> np.ndarray[Any, Any]:
    """The tensor's own memory as an array. Not `tensor.numpy()`: that fixes the size of the storage for good."""
    start = tensor.data_ptr()
    if not start:
        if tensor.numel():
            raise Unreadable("a meta tensor has no values" if tensor.is_meta else "torch gives no address")
        return np.empty(tuple(tensor.shape), _CODES.get(tensor.dtype, "|u1"))
    return np.asarray(_Memory(tensor, start))


class _Memory:
    """Array interface of memory that is not numpy's own; it keeps the tensor alive as long as the array lives."""

    __slots__ = ("__array_interface__", "tensor")

    def __init__(self, tensor: Tensor, start: int) -> None:
        self.tensor = tensor
        self.__array_interface__ = {
            "version": 3,
            "data": (start, False),
            "shape": tensor.shape,
            "typestr": _CODES[tensor.dtype],
        }


def on_device(tensor: Tensor) -> Tensor:
    """A plain tensor for a subclass whose values lie on a device: its local shard, or itself. Unreadable where it has none."""
    if torch.nn.parameter.is_lazy(tensor):
        raise Unreadable("not initialised yet: a lazy module's parameter before its first forward")
    try:
        with torch._C.DisableTorchFunction():
            return _plain(tensor.detach())
    except (RuntimeError, TypeError, NotImplementedError, ValueError) as error:
        raise Unreadable(f"torch does not give its values here: {str(error).splitlines()[0][:200]}") from None


def _host_of_unusual(tensor: Tensor) -> np.ndarray[Any, Any]:
    if torch.nn.parameter.is_lazy(tensor):
        raise Unreadable("not initialised yet: a lazy module's parameter before its first forward")
    if type(tensor).__name__ in _EMPTY:
        raise Unreadable(f"a {type(tensor).__name__} has no values")
    if _is_wrapper(tensor):
        raise Unreadable(
            f"a {type(tensor).__name__} has no memory of its own and no tensor as an attribute: only its class's own code "
            f"could give its values, and a recorder does not run it"
        )
    return host(_plain(tensor))


def _copied(found: Tensor) -> Tensor:
    """A copy on the host, in order: of what is on a device, strided, negated or conjugated."""
    if found.is_meta:
        raise Unreadable("a meta tensor has no values")
    if not found.is_cpu:
        found = found.cpu()
    return found.resolve_neg().resolve_conj().contiguous()


def _is_permuted(tensor: Tensor) -> bool:
    """Would it be contiguous with its axes in another order?"""
    filled = 1
    for step, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1:
            if step != filled:
                return False
            filled *= size
    return True


def _plain(tensor: Tensor) -> Tensor:
    """A plain tensor for a subclass: its local shard, or itself without the class's own behaviour."""
    body = _body(tensor)
    if body is not tensor:
        return body
    return tensor.detach().as_subclass(Tensor)


def _untransformed(tensor: Tensor) -> Tensor:
    """The tensor that one inside `torch.func.grad`, `jvp` and the like stands for: the same values, without what they track."""
    for _ in range(_MAX_TRANSFORMATIONS):
        if not _is_transformed(tensor) or _functorch.is_batchedtensor(tensor):
            return tensor
        if _functorch.is_functionaltensor(tensor):
            raise Unreadable("inside functionalize, where writes are still to be done")
        if not _functorch.is_gradtrackingtensor(tensor) or _functorch.is_dead_tensor_wrapper(tensor):
            raise Unreadable("left over from a transformation of torch.func that is over")
        tensor = _functorch.get_unwrapped(tensor)
    raise Unreadable("inside more transformations of torch.func than are looked through")


def _look_transformed(tensor: Tensor) -> Look:
    """Inside `vmap`: what all examples of the batch have together is the part `batch`, with its dimension among the facts."""
    found = Look(NAMES.get(tensor.dtype, "u8"), tuple(tensor.shape), str(tensor.device), tensor.requires_grad)
    try:
        inner = _untransformed(tensor)
    except Unreadable:  # `host` will say why
        return found
    if _is_transformed(inner):
        found.facts = {"layout": "vmap", "dimension": _functorch.maybe_get_bdim(inner)}
        found.parts = {"batch": _functorch.get_unwrapped(inner)}
    return found


def _look_closer(tensor: Tensor, found: Look) -> None:
    """The unusual ones: say what they are, and name the parts of those that have no bytes of their own."""
    facts: dict[str, Any] = dict(found.facts)
    if type(tensor) not in _PLAIN:
        facts["class"] = type(tensor).__name__
    if tensor.dtype not in NAMES:
        facts["dtype"] = str(tensor.dtype)
    try:
        body = _body(tensor)
        if body is not tensor and hasattr(tensor, "placements"):
            facts |= {"placements": [str(p) for p in tensor.placements], "shape": list(tensor.shape)}
            found.shape = tuple(body.shape)
        if tensor.is_quantized:
            facts["quantised"] = _quantisation(tensor)
        parts = _parts(tensor)
        if parts:
            facts["layout"] = "wrapper" if _is_wrapped(tensor) else str(tensor.layout).removeprefix("torch.")
            found.parts = parts
    except (RuntimeError, NotImplementedError, AttributeError, ValueError) as error:
        facts["unknown"] = str(error).splitlines()[0][:120]
    found.facts = facts


def _quantisation(tensor: Tensor) -> dict[str, Any]:
    scheme = tensor.qscheme()
    if scheme in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        return {"scheme": str(scheme), "scale": tensor.q_scale(), "zero_point": tensor.q_zero_point()}
    scales, zeros = tensor.q_per_channel_scales().tolist(), tensor.q_per_channel_zero_points().tolist()
    return {"scheme": str(scheme), "scales": scales, "zero_points": zeros, "axis": tensor.q_per_channel_axis()}


def _is_wrapped(tensor: Tensor) -> bool:
    """Is it a wrapper other than a ragged tensor, which is torch's own?"""
    return type(tensor) not in _PLAIN and not tensor.is_nested and _is_wrapper(tensor)


def _parts(tensor: Tensor) -> dict[str, Tensor]:
    if type(tensor) not in _PLAIN and tensor.layout is getattr(torch, "jagged", None):
        kept = _kept(tensor)
        names = {"values": "_values", "offsets": "_offsets", "lengths": "_lengths"}
        return {ours: kept[theirs] for ours, theirs in names.items() if theirs in kept}
    if _is_wrapped(tensor):
        name = type(tensor).__name__
        if name in _EMPTY:
            return {}
        kept = _kept(tensor)
        if name == "AsyncCollectiveTensor":  # waiting twice is allowed, and before it there is nothing to read
            kept = {key: wait_tensor(value) for key, value in kept.items()}
        return kept
    with torch.no_grad():
        source = tensor.detach()
        if tensor.layout is torch.sparse_coo:
            return {"indices": source._indices(), "values": source._values()}
        if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
            return {"crow": source.crow_indices(), "col": source.col_indices(), "values": source.values()}
        if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
            return {"ccol": source.ccol_indices(), "row": source.row_indices(), "values": source.values()}
        if tensor.is_nested:
            return {str(i): part for i, part in enumerate(source.unbind())}
        if tensor.is_mkldnn:
            return {"values": source.to_dense()}
    return {}
