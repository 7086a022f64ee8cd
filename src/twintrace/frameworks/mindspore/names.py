"""Functions of MindSpore, their names in a trace, and the arguments that they write to.

ops.tanh(x), mint.tanh(x)       mindspore.mint.tanh             functions; one with several names has mint's, which is PyTorch's
ops.softmax(x)                  mindspore.ops.softmax
x + y                           mindspore.Tensor.add            operators have their method's name
x[0] = 1                        mindspore.Tensor.__setitem__    writes to argument 0
ops.MatMul()(x, y)              mindspore.ops.MatMul            primitives have their class's
x.shape, ops.grad(f)            nothing: a question about the tensor; what calls the user's own functions
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from mindspore import Parameter, Tensor, mint, ops
from mindspore.communication import GlobalComm, _comm_helper, comm_func, get_group_size
from mindspore.mint import distributed, linalg, special
from mindspore.mint.nn import functional

_HOMES = (
    (mint, "mindspore.mint"),
    (functional, "mindspore.mint.nn.functional"),
    (linalg, "mindspore.mint.linalg"),
    (special, "mindspore.mint.special"),
    (distributed, "mindspore.mint.distributed"),
    (comm_func, "mindspore.communication.comm_func"),
    (ops, "mindspore.ops"),
)
# Where MindSpore's public functions are written; what else is in its namespaces serves other ends.
_SOURCES = (
    "mindspore.ops.function.array_func", "mindspore.ops.function.clip_func", "mindspore.ops.function.fft_func",
    "mindspore.ops.function.image_func", "mindspore.ops.function.linalg_func", "mindspore.ops.function.math_func",
    "mindspore.ops.function.nn_func", "mindspore.ops.function.other_func", "mindspore.ops.function.parameter_func",
    "mindspore.ops.function.random_func", "mindspore.ops.function.sparse_func",
    "mindspore.ops.function.sparse_unary_func", "mindspore.ops.function.spectral_func", "mindspore.ops.auto_generate",
    "mindspore.ops.composite.math_ops", "mindspore.ops.functional_overload", "mindspore.ops.operations.manually_defined",
    "mindspore.ops.extend", "mindspore.mint", "mindspore.communication.comm_func", "mindspore.ops.function.comm_func",
)  # fmt: skip
_QUESTIONS = frozenset((
    "shape", "shape_", "size", "rank", "dtype", "ndim", "numel", "nelement", "dim", "ndimension", "element_size", "is_tensor",
    "asnumpy", "numpy", "get_bytes", "data_ptr", "storage", "untyped_storage", "storage_offset", "stride", "strides",
    "is_contiguous", "is_complex", "is_floating_point", "is_signed", "is_init", "is_pinned", "is_shared", "set_dtype",
    "set_cast_dtype", "set_const_arg", "set_device_address", "set_init_flag", "set_param_info", "init_data", "from_numpy",
    "convert_bytes_to_tensor", "getitem_index_info", "setitem_index_info", "flush_from_cache", "register_hook",
    "remove_hook", "hooks", "requires_grad_", "wait_pipeline", "data_sync", "delete_", "delta_seed", "value", "offload",
    "offload_file_path", "to_dlpack", "from_dlpack", "tolist", "const_arg", "pin_memory", "scalar_cast", "get_default_dtype",
    "set_default_dtype", "get_default_device", "set_default_device", "is_grad_enabled", "no_grad", "enable_grad", "typing",
    "manual_seed", "initial_seed", "seed", "get_rng_state", "set_rng_state", "default_generator", "constexpr",
    "set_grad_enabled", "jit_forbidden_register", "jit_view_unsupported",
))  # fmt: skip
_SILENT_PRIMITIVES = frozenset((
    "Shape", "TensorShape", "DynamicShape", "DType", "DTypeId", "Rank", "Size", "HookBackward", "InsertGradientOf", "Print",
    "Depend", "Load", "UpdateState", "MakeTuple", "TupleGetItem", "CellBackwardHook", "Morph", "PyExecute", "PyFunc",
    "ProxyOp", "TensorDump", "DumpGradient",
))  # fmt: skip
_METHODS = {
    "__add__": "add", "__sub__": "sub", "__mul__": "mul", "__truediv__": "div", "__floordiv__": "floor_divide",
    "__mod__": "remainder", "__pow__": "pow", "__matmul__": "matmul", "__neg__": "neg", "__abs__": "abs",
    "__invert__": "bitwise_not", "__and__": "bitwise_and", "__or__": "bitwise_or", "__xor__": "bitwise_xor",
    "__eq__": "eq", "__ne__": "ne", "__lt__": "lt", "__le__": "le", "__gt__": "gt", "__ge__": "ge",
}  # fmt: skip
_OPERATORS = frozenset((
    *_METHODS, "__radd__", "__rsub__", "__rmul__", "__rtruediv__", "__rfloordiv__", "__rmod__", "__rpow__", "__rmatmul__",
    "__iadd__", "__isub__", "__imul__", "__itruediv__", "__ifloordiv__", "__imod__", "__getitem__", "__setitem__", "__round__",
))  # fmt: skip
# Collectives that put their result into an argument; every other function of that name gives it back.
_GATHERING = {
    "all_reduce": ("0",), "broadcast": ("0",), "reduce": ("0",), "all_gather": ("0",), "all_gather_into_tensor": ("0",),
    "gather": ("1",), "scatter": ("0",), "reduce_scatter": ("0",), "reduce_scatter_tensor": ("0",), "all_to_all": ("0",),
    "all_to_all_single": ("0",), "recv": ("0",), "irecv": ("0",), "gather_into_tensor": ("0",), "scatter_tensor": ("0",),
}  # fmt: skip
COLLECTIVES = ("mindspore.mint.distributed.", "mindspore.communication.")
"""Homes of functions that take a process group."""
_WORLDS = ("hccl_world_group", "nccl_world_group", "mccl_world_group")
"""Names of the group of all ranks; a primitive has that of the device that was set when it was made, or of none."""
_REDUCTIONS = ("sum", "max", "min", "prod", "avg")
_GROUP_MATTERS = ("get_", "new_group", "init_process_group", "destroy_process_group", "set_comm_ops_inplace")
_COMPUTING_ATTRIBUTES = ("T", "H", "mT", "mH")
_PLAIN = (bool, int, float, str, tuple, list, type(None))
WRITING_PRIMITIVES = ("Assign", "Scatter", "Inplace", "Apply", "SparseApply", "Fused")
"""Beginnings of the names of primitives that write to an argument."""
_WRITERS = frozenset(("assign", "assign_add", "assign_sub", "assign_value", "itemset"))


@dataclass(frozen=True, slots=True)
class Api:
    """A function as a trace calls it."""

    name: str
    writes: tuple[str, ...] = ()
    inplace_at: int | None = None
    writes_if: Callable[[Sequence[Any], Mapping[str, Any]], tuple[str, ...]] | None = None

    @property
    def may_write(self) -> bool:
        """Is it worth watching for writes alone?"""
        return bool(self.writes) or self.inplace_at is not None or self.writes_if is not None

    def mutates(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[str, ...]:
        """The slots of the arguments that this call writes to."""
        written = self.writes
        if self.inplace_at is not None and (
            kwargs.get("inplace") or (len(args) > self.inplace_at and args[self.inplace_at])
        ):
            written = (*written, "0", "kw.input")
        if self.writes_if is not None:
            written = (*written, *self.writes_if(args, kwargs))
        return written


@functools.cache
def functions() -> tuple[tuple[FunctionType, Api], ...]:
    """Every public function once, by the first of its names."""
    return tuple(_functions())


def _functions() -> Iterator[tuple[FunctionType, Api]]:
    """Names that a namespace offers (`__all__`) come first: what else is in it serves it, as `ops.clamp` serves mint."""
    known: set[int] = set()
    for offered in (True, False):
        for home, prefix in _HOMES:
            for name in sorted(vars(home)):
                function = _unwrapped(vars(home)[name])
                # `isnan_ext` and `tensor_gt` are names behind the scenes.
                alias = home is ops and (name.endswith("_ext") or name.startswith("tensor_"))
                if not isinstance(function, FunctionType) or id(function) in known or alias:
                    continue
                if offered != (name in getattr(home, "__all__", ())):
                    continue
                api = describe(f"{prefix}.{name}", function)
                if api is not None:
                    known.add(id(function))
                    yield function, api


@functools.cache
def methods() -> tuple[tuple[str, Any, Api], ...]:
    """Every method and operator of a tensor: (attribute, what is there without us, its description)."""
    return tuple(_methods())


def _methods() -> Iterator[tuple[str, Any, Api]]:
    for name in dir(Tensor):
        attribute = inspect.getattr_static(Tensor, name)
        if name in _COMPUTING_ATTRIBUTES:
            yield name, attribute, Api(f"mindspore.Tensor.{name}")
            continue
        if (name[0] == "_" and name not in _OPERATORS) or name in _QUESTIONS or not callable(attribute):
            continue
        api = describe(f"mindspore.Tensor.{_METHODS.get(name, name)}", attribute)
        if api is not None:
            yield name, attribute, api


def primitives() -> Iterator[type]:
    """Every class of primitives that has a way of being called of its own."""
    pending: list[type] = [ops.Primitive]
    known: set[type] = set()
    while pending:
        kind = pending.pop()
        if kind not in known:
            known.add(kind)
            pending.extend(kind.__subclasses__())
            if "__call__" in vars(kind):
                yield kind


def describe(name: str, function: Any) -> Api | None:
    """The name and habits of a function; None for what is not worth a record."""
    last = name.rpartition(".")[2]
    if last in _QUESTIONS or (last.startswith(("is_", "_")) and last not in _OPERATORS):
        return None
    if isinstance(function, FunctionType) and ".Tensor." not in name and not function.__module__.startswith(_SOURCES):
        return None
    if name.startswith(COLLECTIVES):
        if last.startswith(_GROUP_MATTERS) or last[0].isupper():
            return None
        if "comm" not in function.__module__ and "distributed" not in function.__module__:
            return None  # used there, and at home elsewhere: `cat`
        return Api(name, _GATHERING.get(last, ()) if ".mint." in name else ())
    return Api(name, _writes(last), inplace_position(function), _CONDITIONAL.get(last))


def _unwrapped(function: Any) -> Any:
    """The function that a decorator of MindSpore's has wrapped, if the wrapper keeps neither its module nor its name; else itself.

    MindSpore 2.10 has `mint.squeeze`, `reshape`, `flatten` and `t` as `jit_view_unsupported.<locals>.mint_view`.
    """
    inner, seen = function, set[int]()
    while isinstance(inner, FunctionType) and not inner.__module__.startswith(_SOURCES):
        held = {id(each): each for each in _functions_in(inner)}
        if "<locals>" not in inner.__qualname__ or len(held) != 1 or not seen.isdisjoint(held):
            return function
        seen.update(held)
        [inner] = held.values()
    return inner


def _functions_in(function: FunctionType) -> Iterator[FunctionType]:
    """Functions that a closure holds; a cell may be empty."""
    for cell in function.__closure__ or ():
        try:
            content = cell.cell_contents
        except ValueError:
            continue
        if isinstance(content, FunctionType):
            yield content


def describe_primitive(primitive: Any) -> Api | None:
    """The same of a primitive, which is a function with its settings inside."""
    name = type(primitive).__name__
    if type(primitive) is ops.Primitive or name.startswith("_"):
        name = str(primitive.name)
    if name in _SILENT_PRIMITIVES:
        return None
    full = f"mindspore.ops.{name}"
    if not vars(primitive).get("side_effect_mem"):
        return Api(full)
    if name == "BatchNorm":
        return Api(full, ("3", "4"))
    return Api(full, ("0",)) if name.startswith(("Assign", "Scatter")) else Api(full, writes_if=_parameters_among)


def settings_of(primitive: Any) -> Mapping[str, Any] | None:
    """Constructor arguments of a primitive, defaults included (`transpose_b`, `pad_mode`, `epsilon`).

    The attributes that MindSpore derives from these are of its own making: a number for `pad_mode`, four strides for two.
    """
    given: Mapping[str, Any] | None = getattr(primitive, "init_attrs", None)
    if not given:
        return None
    settings: dict[str, Any] = {name: value for name, value in given.items() if isinstance(value, _PLAIN)}
    return {**settings, **ranks_of(settings["group"])} if isinstance(settings.get("group"), str) else settings


def groups() -> Mapping[str, tuple[int, ...]]:
    """Ranks of the process groups that were made, by name; of all ranks under an empty one."""
    if not GlobalComm.INITED:
        return {}
    made: Mapping[str, Sequence[int]] = getattr(getattr(_comm_helper, "_ExistingGroup", None), "ITEMS", {})
    return {"": tuple(range(get_group_size())), **{name: tuple(ranks) for name, ranks in made.items()}}


def group_among(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    """The process group that a function was given; None where it was given none."""
    if "group" in kwargs:
        return str(kwargs["group"]) if kwargs["group"] is not None else None
    return next((value for value in args if isinstance(value, str) and value not in _REDUCTIONS), None)


def ranks_of(group: str | None) -> Mapping[str, str]:
    """Ranks of a process group as a setting, `0,1`, since its name says little; nothing where they are not known."""
    known = groups()
    name = "" if group is None or group == GlobalComm.WORLD_COMM_GROUP or group in _WORLDS else group
    return {"ranks": ",".join(map(str, known[name]))} if name in known else {}


def _writes(last: str) -> tuple[str, ...]:
    if last == "__setitem__" or last in _WRITERS:
        return ("0",)
    if last.startswith("__i") and last.endswith("__") and last != "__invert__":
        return ("0",)
    return ("0",) if last.endswith("_") and not last.endswith("__") else ()


def inplace_position(function: Any) -> int | None:
    """Position of the argument `inplace`; None of a function without one."""
    try:
        parameters = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return None
    return parameters.index("inplace") if "inplace" in parameters else None


def _parameters_among(args: Sequence[Any], _: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(position) for position, value in enumerate(args) if isinstance(value, Parameter))


def running_statistics(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[str, ...]:
    """Arguments that a batch norm writes to: its moving averages, while it trains."""
    active = kwargs.get("training", args[5] if len(args) > 5 else False)
    return ("1", "2", "kw.running_mean", "kw.running_var") if active else ()


_CONDITIONAL = {"batch_norm": running_statistics}
