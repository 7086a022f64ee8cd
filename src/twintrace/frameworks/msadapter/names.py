"""Functions of MSAdapter, by the names that PyTorch's users know.

F.relu                 torch.nn.functional.relu
x + y, x.add(y)        torch.Tensor.add
x += y                 torch.Tensor.add_, writes to argument 0
x.shape                nothing: a question about the tensor, not a computation

The names are those that PyTorch's own adapter gives, so that two traces can be laid side by side.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Iterator
from types import FunctionType
from typing import Any

import torch
from torch import nn

from ..mindspore.names import Api, inplace_position, running_statistics

__all__ = ["Api", "describe", "functions", "methods"]

PACKAGE = nn.Module.__module__.partition(".")[0]
"""The package that stands behind the name `torch`."""

_PARTS = ("nn.functional", "linalg", "fft", "special", "")
# Functions that compute nothing: questions, switches, files, what serves MSAdapter itself, what calls the user's functions.
_QUESTIONS = frozenset((
    "size", "stride", "dim", "ndimension", "numel", "nelement", "element_size", "storage_offset", "data_ptr", "get_device",
    "untyped_storage", "storage", "register_hook", "remove_hook", "hooks", "retain_grad", "requires_grad_", "backward", "detach_",
    "numpy", "asnumpy", "mindspore", "stub_sync", "apply_", "record_stream", "dyn_shape", "tobytes", "new", "result_type",
    "can_cast", "promote_types", "broadcast_shapes", "typename", "compile", "set_grad_enabled", "use_deterministic_algorithms",
    "get_default_dtype", "set_default_dtype", "get_default_device", "set_autocast_enabled", "set_autocast_dtype",
    "get_autocast_dtype", "value_and_grad", "grad", "load", "save", "vmap", "set_pyboost", "manual_seed", "initial_seed",
    "seed", "get_rng_state", "set_rng_state", "load_library", "execute", "finfo", "iinfo", "depend", "cast", "from_numpy",
    "enable_mindspore_patch", "initialize_torch_proxy", "setup_metadata_patch", "set_dtype", "set_device_address",
    "set_init_flag", "set_cast_dtype", "set_const_arg", "set_param_info", "init_data", "getitem_index_info",
    "setitem_index_info", "flush_from_cache", "assign_value", "data_sync", "wait_pipeline", "convert_bytes_to_tensor",
    "get_bytes", "value", "offload", "offload_file_path", "to_dlpack", "from_dlpack", "const_arg", "delete_", "delta_seed",
    "pin_memory", "strides", "check_dtype", "shape_", "cuda_", "share_memory_", "set_", "assign_value_cpp", "move_to",
))  # fmt: skip
_OWN = ("inplace_", "raw_", "npu_", "is_", "_", "mutable_", "set_context")
# torch gives an operator the name of its method, mostly.
_OPERATORS = {
    "__add__": "add", "__radd__": "add", "__iadd__": "add_", "__sub__": "sub", "__rsub__": "__rsub__", "__isub__": "sub_",
    "__mul__": "mul", "__rmul__": "mul", "__imul__": "mul_", "__truediv__": "div", "__rtruediv__": "__rtruediv__",
    "__itruediv__": "div_", "__div__": "div", "__floordiv__": "__floordiv__", "__rfloordiv__": "__rfloordiv__",
    "__ifloordiv__": "floor_divide_", "__mod__": "remainder", "__rmod__": "__rmod__", "__imod__": "remainder_",
    "__pow__": "__pow__", "__rpow__": "__rpow__", "__ipow__": "__ipow__", "__matmul__": "matmul", "__rmatmul__": "__rmatmul__",
    "__neg__": "neg", "__abs__": "abs", "__invert__": "__invert__", "__and__": "__and__", "__or__": "__or__",
    "__xor__": "__xor__", "__rshift__": "__rshift__", "__lshift__": "__lshift__", "__eq__": "__eq__", "__ne__": "ne",
    "__lt__": "lt", "__le__": "le", "__gt__": "gt", "__ge__": "ge", "__getitem__": "__getitem__", "__setitem__": "__setitem__",
    "__bool__": "__bool__", "__float__": "__float__", "__int__": "__int__",
}  # fmt: skip
# In PyTorch these are written elsewhere than where they are found, and so called.
_ALIASES = {"cosine_similarity": "torch.nn.functional.cosine_similarity"} | {
    name: f"torch.functional.{name}"
    for name in (
        "atleast_1d", "atleast_2d", "atleast_3d", "block_diag", "broadcast_tensors", "cartesian_prod", "cdist", "chain_matmul",
        "einsum", "istft", "lu", "meshgrid", "norm", "pca_lowrank", "split", "stft", "svd_lowrank", "tensordot", "unique",
        "unique_consecutive", "unravel_index",
    )
}  # fmt: skip
_COMPUTING_ATTRIBUTES = ("T", "H", "mT", "mH", "real", "imag")


@functools.cache
def functions() -> tuple[tuple[FunctionType, Api], ...]:
    """Every public function once; one that is in two places has the more particular name."""
    return tuple(_functions())


@functools.cache
def methods() -> tuple[tuple[str, Any, Api], ...]:
    """Every method and operator of a tensor: (attribute, what is there now, its description).

    An attribute that computes is given by the function behind it.
    """
    return tuple(_methods())


def describe(name: str, function: Any) -> Api | None:
    """The name and habits of a function; None for what is not worth a record."""
    last = name.rpartition(".")[2]
    if last in _QUESTIONS or (last.startswith(_OWN) and last not in _OPERATORS):
        return None
    return Api(name, _writes(last), inplace_position(function), _CONDITIONAL.get(last))


def _functions() -> Iterator[tuple[FunctionType, Api]]:
    known: set[int] = set()
    for part in _PARTS:
        home = sys.modules.get(f"{PACKAGE}.{part}" if part else PACKAGE)
        prefix = f"torch.{part}" if part else "torch"
        for name, function in sorted(vars(home).items()) if home else ():
            if not isinstance(function, FunctionType) or id(function) in known:
                continue
            if function.__module__.partition(".")[0] != PACKAGE:
                continue
            api = describe(_ALIASES.get(name, f"{prefix}.{name}") if not part else f"{prefix}.{name}", function)
            if api is not None:
                known.add(id(function))
                yield function, api


def _methods() -> Iterator[tuple[str, Any, Api]]:
    known = {id(function) for function, _ in functions()}
    for name in dir(torch.Tensor):
        attribute = inspect.getattr_static(torch.Tensor, name)
        if isinstance(attribute, property) and name in _COMPUTING_ATTRIBUTES:
            attribute = attribute.fget
        elif (name[0] == "_" and name not in _OPERATORS) or not callable(attribute) or isinstance(attribute, type):
            continue
        api = describe(f"torch.Tensor.{_OPERATORS.get(name, name)}", attribute)
        if api is not None and id(attribute) not in known:
            known.add(id(attribute))
            yield name, attribute, api


def _writes(last: str) -> tuple[str, ...]:
    if last == "__setitem__" or last == "__ipow__" or (last.endswith("_") and not last.endswith("__")):
        return ("0",)
    return ()


_CONDITIONAL = {"batch_norm": running_statistics}
