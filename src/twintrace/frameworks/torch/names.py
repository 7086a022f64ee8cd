"""Names of functions, whether they are worth a record, the arguments that they write to.

F.relu                 torch.nn.functional.relu
x + y                  torch.Tensor.add
x.shape                None: a question about the tensor, not a computation
x.add_(1)              torch.Tensor.add_, writes to argument 0
F.relu(x, inplace=True) writes to argument 0
F.batch_norm(training) writes to the running statistics, which torch's version counter does not show
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

# Attributes that compute something. All others are questions (`shape`) or bookkeeping (`grad`).
_COMPUTING_ATTRIBUTES = frozenset(("T", "H", "mT", "mH", "real", "imag"))
_QUESTIONS = frozenset((
        "size", "stride", "dim", "ndimension", "numel", "nelement", "element_size", "storage_offset", "data_ptr",
        "get_device", "type_as_type", "has_names", "untyped_storage", "storage", "storage_type", "_typed_storage",
        "register_hook", "register_post_accumulate_grad_hook", "retain_grad", "requires_grad_", "backward", "grad",
        "detach_", "__repr__", "__format__", "__len__", "__hash__", "__dir__", "__reduce_ex__", "__reduce__",
        "__deepcopy__", "__array__", "__array_wrap__", "numpy", "names", "refine_names", "rename",
        "rename_", "share_memory_", "module_load", "set_", "sparse_dim", "dense_dim", "_nnz", "qscheme", "q_scale",
        "q_zero_point", "q_per_channel_scales", "q_per_channel_zero_points", "q_per_channel_axis", "as_subclass",
        "_sequence_nr", "result_type", "can_cast", "promote_types", "broadcast_shapes", "get_default_dtype",
        "set_default_dtype", "compiled_with_cxx11_abi", "_set_grad_enabled", "set_grad_enabled", "typename", "dim_order",
        "__dlpack__", "__dlpack_device__", "__cuda_array_interface__", "layout", "_assert", "_assert_async", "sym_int",
        "sym_float", "sym_max", "sym_min", "sym_not", "Generator", "manual_seed", "initial_seed", "seed",
        "get_rng_state", "set_rng_state", "_lazy_clone", "_is_view", "_use_count", "_make_subclass",
        "_make_wrapper_subclass", "__torch_dispatch__", "_has_compatible_shallow_copy_type", "_get_tracing_state",
))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Api:
    """A function as a trace calls it."""

    name: str
    writes: tuple[str, ...] = ()
    inplace_at: int | None = None
    writes_if: Callable[[Sequence[Any], Mapping[str, Any]], tuple[str, ...]] | None = None
    is_kernel: bool = False
    """Called as `torch.ops.…`, not through a public function."""
    is_collective: bool = False
    """Its result is still being written when it returns."""

    def mutates(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[str, ...]:
        """The slots of the arguments that this call writes to."""
        written = self.writes
        if self.inplace_at is None and self.writes_if is None and not kwargs:
            return written
        if self.inplace_at is not None and (
            kwargs.get("inplace") or (len(args) > self.inplace_at and args[self.inplace_at])
        ):
            written = (*written, "0", "kw.input")
        if self.writes_if is not None:
            written = (*written, *self.writes_if(args, kwargs))
        if kwargs and kwargs.get("out") is not None:
            written = (*written, "kw.out")
        return written


def describe(function: Any) -> Api | None:
    """The name and habits of a function; None for what is not worth a record."""
    name = _full_name(function)
    last = name.rpartition(".")[2]
    if last in ("__get__", "__set__", "__delete__"):
        attribute = name.split(".")[-2]
        return Api(f"torch.Tensor.{attribute}") if last == "__get__" and attribute in _COMPUTING_ATTRIBUTES else None
    if (
        last in _QUESTIONS
        or (last.startswith(("is_", "_is_", "__get_", "_has_")) and last != "is_nonzero")  # that one asks for the value
        or name.startswith(("torch.autograd.", "torch.distributed.", "profiler."))  # collectives are seen elsewhere
    ):
        return None
    if isinstance(function, torch._ops.OperatorBase | torch._ops.OpOverloadPacket):
        return Api(str(function), _declared(function), is_kernel=True, is_collective=_is_collective(str(function)))
    return Api(name, _writes(name, last), _inplace_position(function), _CONDITIONAL.get(name))


def _is_collective(name: str) -> bool:
    """True of the functional collectives, which DTensor and FSDP call: all but those that wait."""
    return name.startswith("_c10d_functional.") and "wait_tensor" not in name and "_wrap_" not in name


def _declared(function: Any) -> tuple[str, ...]:
    """Arguments that a schema of an operator marks as written to: its own kernels count no versions."""
    if isinstance(function, torch._ops.OpOverloadPacket):
        overloads = [getattr(function, name) for name in function.overloads()]
    else:
        overloads = [function] if hasattr(function, "_schema") else []
    return tuple(dict.fromkeys(slot for each in overloads for slot in schema_writes(each)))


def arguments(args: Any, kwargs: Mapping[str, Any] | None) -> Iterator[Any]:
    """The tensors among a call's arguments, also in lists: a superset of those that it writes to."""
    for value in (*args, *kwargs.values()) if kwargs else args:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            for item in value:
                if isinstance(item, torch.Tensor):
                    yield item
                elif isinstance(item, list | tuple):
                    yield from (each for each in item if isinstance(each, torch.Tensor))


def schema_writes(op: Any) -> tuple[str, ...]:
    """The slots of the arguments that an operator's schema marks as written to."""
    if "batch_norm" in str(op) and "backward" not in str(op):
        return ("3", "4")  # the running statistics, which the schemas do not tell
    written = []
    for position, argument in enumerate(op._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            written.append(f"kw.{argument.name}" if argument.kwarg_only else str(position))
    return tuple(written)


def _full_name(function: Any) -> str:
    with warnings.catch_warnings():  # torch 2.1 makes its table of deprecated names as well, and is told so
        warnings.simplefilter("ignore")
        name = torch.overrides.resolve_name(function)
    if name is not None:
        found = (
            str(name).replace("torch._C._nn.", "torch.nn.functional.").replace("torch._C._VariableFunctions.", "torch.")
        )
        own = getattr(function, "__name__", "")  # torch.mm and torch.spmm are equal, and torch's table has one of them
        return f"torch.{own}" if found.rpartition(".")[0] == "torch" and hasattr(torch, own) else found
    owner = getattr(function, "__module__", None) or "torch"
    return f"{owner}.{getattr(function, '__qualname__', getattr(function, '__name__', type(function).__name__))}"


def _writes(name: str, last: str) -> tuple[str, ...]:
    if last == "__setitem__" or (
        last.startswith("__i") and last.endswith("__") and last not in ("__invert__", "__index__", "__int__")
    ):
        return ("0",)
    if last.endswith("_") and not last.endswith("__"):
        return tuple(map(str, range(6))) if last.startswith("_fused_") else ("0",)
    return ()


def _inplace_position(function: Any) -> int | None:
    try:
        parameters = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return None
    return parameters.index("inplace") if "inplace" in parameters else None


def _running_statistics(flag: str, position: int) -> Callable[[Sequence[Any], Mapping[str, Any]], tuple[str, ...]]:
    def written(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[str, ...]:
        active = kwargs.get(flag, args[position] if len(args) > position else False)
        return ("1", "2", "kw.running_mean", "kw.running_var") if active else ()

    return written


_CONDITIONAL = {
    "torch.nn.functional.batch_norm": _running_statistics("training", 5),
    "torch.nn.functional.instance_norm": _running_statistics("use_input_stats", 5),
}
