"""Pickles that torch wrote, interpreted without running anything that is in them.

A `.pth` file is a pickle: a little program that, when it is run, may call any function. Here it is not run. Its
instructions are read (`pickletools` only parses) and interpreted by a machine that knows dicts, lists, tuples, numbers,
texts and tensors, and nothing else. Objects of other classes are kept as the name of the class, and
their attributes. A call of any other function ends the reading with its name.

A file that holds a whole module (`torch.save(net, …)`) is read the same way: a module's attributes are its parameters, buffers and
submodules, by name, and that is a state dict. What must be run to be known (a tensor that a function of the file's own makes) is
`trust=True`, and torch's affair.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..model.dtypes import LONG_NAMES
from ..model.errors import CheckpointError
from ..model.tensors import DTYPES

STORAGES = {
    "DoubleStorage": "f64", "FloatStorage": "f32", "HalfStorage": "f16", "BFloat16Storage": "bf16", "LongStorage": "i64",
    "IntStorage": "i32", "ShortStorage": "i16", "CharStorage": "i8", "ByteStorage": "u8", "BoolStorage": "b8",
    "ComplexFloatStorage": "c64", "ComplexDoubleStorage": "c128",
}  # fmt: skip
DTYPE_NAMES = {long: name for name, long in LONG_NAMES.items()}
# Classes that training loops put beside the weights and that are read as something without contents.
INERT = {
    "argparse.Namespace", "pathlib.PosixPath", "pathlib.WindowsPath", "pathlib._local.PosixPath", "datetime.datetime",
    "numpy.dtype", "numpy.ndarray", "numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar",
    "numpy.core.multiarray._reconstruct", "numpy._core.multiarray._reconstruct", "_codecs.encode", "torch.Size",
    "torch.device", "torch.Generator", "collections.defaultdict", "collections.Counter", "builtins.complex", "builtins.slice",
    "builtins.range", "builtins.bytearray", "builtins.frozenset", "builtins.getattr", "builtins.object", "collections.deque",
    "datetime.date", "datetime.timedelta", "datetime.timezone", "decimal.Decimal",
    "fractions.Fraction", "functools.partial", "uuid.UUID",
    "types.SimpleNamespace", "operator.attrgetter", "operator.itemgetter", "operator.methodcaller", "re._compile",
}  # fmt: skip
_NEW_OBJECT = ("copyreg._reconstructor", "copyreg.__newobj__")
_NAMES_BEFORE_2008 = {"__builtin__": "builtins", "copy_reg": "copyreg"}  # Python 2's, which protocol 2 writes
# Where training loops put the state dict, the likeliest first.
USUAL = ("state_dict", "model_state_dict", "model", "net", "module", "weights", "params")
_MOST_STEPS = 20_000_000


@dataclass(frozen=True, slots=True)
class _Storage:
    key: str
    dtype: str | None  # None: bytes, whose type the tensor says
    numel: int


@dataclass(frozen=True, slots=True)
class PickledTensor:
    """A tensor as a pickle describes it: part of a storage."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class _Global:
    name: str


class _Object:
    """An object of a class that is not known here: its attributes and entries. Nothing of the class is looked up."""

    __slots__ = ("attributes", "entries", "kind")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.attributes: dict[Any, Any] = {}
        self.entries: dict[Any, Any] = {}

    @property
    def is_module(self) -> bool:
        """True if it has the tables of a torch.nn.Module."""
        return all(isinstance(self.attributes.get(name), dict) for name in ("_parameters", "_buffers", "_modules"))


class _Inert:
    """Something whose contents do not matter here."""


_INERT = _Inert()
_ADVICE = (
    "Save the weights alone: torch.save(net.state_dict(), …). If you trust whoever wrote the file, say trust=True (--trust, or "
    "TWINTRACE_TRUST=1 in the environment): then torch loads it, and runs what is in it."
)
_MARK = object()


def state_dict(path: Path, tree: Any, key: str | None) -> tuple[dict[str, PickledTensor], list[str]]:
    """The weights among the things in a file, and remarks. `key` is the way to them: `model.ema`."""
    if isinstance(tree, PickledTensor):
        raise CheckpointError(f"{path}: holds one tensor without a name, expected a state dict (names and tensors).")
    notes: list[str] = []
    tree = _opened(path, tree, notes)
    if not isinstance(tree, dict):
        what = tree.kind if isinstance(tree, _Object) else type(tree).__name__
        raise CheckpointError(f"{path}: holds a {what}, expected a state dict (names and tensors) or a whole module.")
    where = key
    if key is not None:
        for part in key.split("."):
            if not isinstance(tree, dict) or part not in tree:
                known = ", ".join(map(str, tree)) if isinstance(tree, dict) else "nothing below it"
                raise CheckpointError(f"{path}: there is no {key!r}: at {part!r} there are {known}.")
            tree = _opened(path, tree[part], notes)
    elif not _tensors(tree):
        opened: dict[str, tuple[Any, list[str]]] = {}
        for name, item in tree.items():
            told: list[str] = []
            opened[str(name)] = _opened(path, item, told), told
        states = {name: item for name, (item, _) in opened.items() if isinstance(item, dict) and _tensors(item)}
        usual = [name for name in USUAL if name in states]
        if len(states) == 1 or len(usual) == 1:
            where = usual[0] if usual else next(iter(states))
            tree = states[where]
            notes.extend(opened[where][1])
            others = [str(name) for name in (states if len(states) > 1 else ()) if str(name) != where]
            notes.append(f"the weights are those under {where!r}" + (f", not {', '.join(others)}" if others else ""))
        elif states:
            raise CheckpointError(
                f"{path}: holds several state dicts, under {', '.join(states)}. Say which: key={next(iter(states))!r}."
            )
    state = _tensors(tree) if isinstance(tree, dict) else {}
    if not state:
        raise CheckpointError(
            f"{path}: {f'under {where!r} there are' if where else 'there are'} no named tensors. Expected a state dict, as "
            f"torch.save(net.state_dict(), …) writes it."
        )
    left_out = [str(name) for name in tree if name not in state]
    if left_out:
        notes.append(f"not tensors, left out: {', '.join(left_out[:6])}" + (" …" if len(left_out) > 6 else ""))
    return state, notes


def _opened(path: Path, item: Any, notes: list[str]) -> Any:
    """The state dict of a whole module; the entries of an object that is a dict of its own kind; anything else as it is."""
    if not isinstance(item, _Object):
        return item
    if item.is_module:
        return _module_state(path, item, notes)
    return item.entries or item


def _module_state(path: Path, root: _Object, notes: list[str]) -> dict[str, Any]:
    """State dict of a module: parameters and buffers that are kept, by the paths of their modules, in its order."""
    state: dict[str, Any] = {}
    hooked: list[str] = []
    pending: list[tuple[str, _Object, tuple[int, ...]]] = [("", root, (id(root),))]
    while pending:
        prefix, module, around = pending.pop()
        passing = module.attributes.get("_non_persistent_buffers_set")
        dropped = passing if isinstance(passing, set) else set()
        for name, tensor in (*module.attributes["_parameters"].items(), *module.attributes["_buffers"].items()):
            if tensor is None or name in dropped:
                continue
            if not isinstance(tensor, PickledTensor):
                kind = tensor.kind if isinstance(tensor, _Object) else type(tensor).__name__
                raise CheckpointError(
                    f"{path}: {prefix}{name} is a {kind}, which only its own code makes a tensor of, so it was not loaded, and "
                    f"nothing in it was run. {_ADVICE}"
                )
            state[f"{prefix}{name}"] = tensor
        if module.attributes.get("_state_dict_hooks"):
            hooked.append(prefix.rstrip(".") or "the module itself")
        children = module.attributes["_modules"].items()
        for name, child in reversed(
            [(name, child) for name, child in children if isinstance(child, _Object) and child.is_module]
        ):
            if id(child) not in around:
                pending.append((f"{prefix}{name}.", child, (*around, id(child))))
    notes.append(f"the file holds a whole module ({root.kind}); its weights were read, and nothing in it was run")
    if hooked:
        notes.append(
            f"hooks on the state dict of {', '.join(hooked[:3])} were not run: names may differ from state_dict()"
        )
    return state


def _tensors(tree: dict[Any, Any]) -> dict[str, PickledTensor]:
    return {name: item for name, item in tree.items() if isinstance(item, PickledTensor) and isinstance(name, str)}


def interpret(path: Path, steps: Iterator[tuple[Any, Any, Any]], widths: dict[str, int] | None = None) -> Any:
    """The object that a pickle builds. `widths` gets the bytes per element of each storage."""
    machine = _Machine(path, {} if widths is None else widths)
    try:
        for count, (opcode, argument, _) in enumerate(steps):
            if count > _MOST_STEPS:
                raise CheckpointError(f"{path}: more than {_MOST_STEPS} instructions; refused.")
            if opcode.name == "STOP":
                return machine.stack.pop()
            machine.do(opcode.name, argument)
    except CheckpointError:
        raise
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, UnicodeDecodeError, OverflowError) as error:
        raise CheckpointError(
            f"{path}: cannot be understood ({type(error).__name__}: {error}). It is damaged."
        ) from None
    raise CheckpointError(f"{path}: ends in the middle. It is damaged; get it again.")


class _Machine:
    """Interprets the instructions of a pickle that builds a state dict."""

    def __init__(self, path: Path, widths: dict[str, int]) -> None:
        self.path, self.widths = path, widths
        self.stack: list[Any] = []
        self.memory: dict[int, Any] = {}

    def do(self, name: str, argument: Any) -> None:
        stack = self.stack
        match name:
            case _ if name in _LITERALS:
                stack.append(argument)
            case _ if name in _NEW:
                stack.append(_NEW[name]())
            case "BINPUT" | "LONG_BINPUT" | "PUT":
                self.memory[int(argument)] = stack[-1]
            case "MEMOIZE":
                self.memory[len(self.memory)] = stack[-1]
            case "BINGET" | "LONG_BINGET" | "GET":
                stack.append(self.memory[int(argument)])
            case "PROTO" | "FRAME":
                pass
            case "MARK":
                stack.append(_MARK)
            case "POP":
                stack.pop()
            case "TUPLE":
                stack.append(tuple(self._since_mark()))
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                count = int(name[-1])
                stack[-count:] = [tuple(stack[-count:])]
            case "LIST":
                stack.append(self._since_mark())
            case "DICT":
                stack.append(_entries(self._since_mark()))
            case "APPEND" | "APPENDS":
                items = [stack.pop()] if name == "APPEND" else self._since_mark()
                if isinstance(stack[-1], list):
                    stack[-1].extend(items)
                elif stack[-1] is not _INERT and not isinstance(stack[-1], _Object):
                    raise TypeError(f"appending to {type(stack[-1]).__name__}")
            case "ADDITEMS":
                items = self._since_mark()
                if isinstance(stack[-1], set):
                    stack[-1].update(_texts(items))
            case "SETITEM" | "SETITEMS":
                items = [stack.pop(), stack.pop()][::-1] if name == "SETITEM" else self._since_mark()
                if isinstance(stack[-1], dict):
                    stack[-1].update(_entries(items))
                elif isinstance(stack[-1], _Object):
                    stack[-1].entries.update(_entries(items))
                elif stack[-1] is not _INERT:
                    raise TypeError(f"setting items of {type(stack[-1]).__name__}")
            case "GLOBAL":
                stack.append(self._known(*str(argument).split(" ", 1)))
            case "STACK_GLOBAL":
                short, module = stack.pop(), stack.pop()
                stack.append(self._known(module, short))
            case "NEWOBJ" | "NEWOBJ_EX":
                if name == "NEWOBJ_EX":
                    stack.pop()
                arguments, target = stack.pop(), stack.pop()
                own = isinstance(target, _Global) and _is_class(target.name)
                stack.append(_Object(target.name) if own else self._make(target, arguments))
            case "REDUCE":
                arguments, target = stack.pop(), stack.pop()
                stack.append(self._make(target, arguments))
            case "BUILD":
                # Attributes of an OrderedDict or of an inert object (`_metadata`) are not needed.
                state = stack.pop()
                if isinstance(stack[-1], _Object):
                    for part in state if isinstance(state, tuple) else (state,):  # (attributes, those in slots)
                        if isinstance(part, dict):
                            stack[-1].attributes.update(part)
            case "BINPERSID":
                stack.append(self._outside(stack.pop()))
            case _:
                raise CheckpointError(
                    f"{self.path}: the pickle instruction {name} has no place in a state dict: refused."
                )

    def _since_mark(self) -> list[Any]:
        at = len(self.stack) - 1 - self.stack[::-1].index(_MARK)
        items = self.stack[at + 1 :]
        del self.stack[at:]
        return items

    def _known(self, module: str, name: str = "") -> _Global:
        """A name, and nothing is looked up by it."""
        module, _, short = f"{module}.{name}".rpartition(".")
        full = f"{_NAMES_BEFORE_2008.get(module, module)}.{short}"
        if full not in _BUILDERS and full.startswith("torch._utils._rebuild_"):
            raise CheckpointError(
                f"{self.path}: holds a tensor of a special kind ({short}: sparse, quantised, distributed …). Make it an "
                f"ordinary one before saving."
            )
        return _Global(full)

    def _make(self, target: Any, arguments: Any) -> Any:
        if not isinstance(target, _Global):
            raise TypeError(f"calling {type(target).__name__}")
        if target.name == "collections.OrderedDict":
            return dict(*arguments)
        if target.name in _BUILDERS:
            return _BUILDERS[target.name](*arguments)
        if target.name in INERT:
            return _INERT
        if target.name == "builtins.set":
            return set(_texts(*arguments))
        if target.name in _NEW_OBJECT and arguments and isinstance(arguments[0], _Global):
            if _is_class(arguments[0].name):
                return _Object(arguments[0].name)
            target = arguments[0]
        # An enum, a named tuple, a class with arguments. A function is written small; what takes a tensor may be one.
        own = _is_class(target.name) and target.name.rpartition(".")[2].lstrip("_")[:1].isupper()
        if own and not any(isinstance(argument, PickledTensor | _Storage) for argument in arguments):
            return _Object(target.name)
        raise CheckpointError(
            f"{self.path}: is not a plain state dict: it refers to {target.name}, to call it. A pickle may run anything it "
            f"refers to, so it was not loaded, and nothing in it was run. {_ADVICE}"
        )

    def _outside(self, identity: Any) -> Any:
        """The storage that a persistent id stands for."""
        if isinstance(identity, tuple) and len(identity) == 4 and identity[0] in ("module", b"module"):
            return identity[1]  # before 2020 a module's class came with its source, which is not needed
        if not isinstance(identity, tuple) or len(identity) < 5 or identity[0] not in ("storage", b"storage"):
            raise TypeError("a reference to something outside that is no storage")
        _, kind, key, _, numel, *view = identity
        if view and view[0] is not None:
            raise TypeError("a storage that is a part of another, of the time before 2018")
        dtype = STORAGES.get(kind.name.rpartition(".")[2])
        self.widths[str(key)] = DTYPES[dtype] if dtype else 1
        return _Storage(str(key), dtype, int(numel))


def _entries(items: list[Any]) -> dict[Any, Any]:
    return dict(zip(items[::2], items[1::2], strict=True))


def _is_class(name: str) -> bool:
    """True of what may be a class of the file's own. Of the standard library nothing is: what may be made of it is listed."""
    known = name in _BUILDERS or name in INERT
    return not known and name.partition(".")[0] not in sys.stdlib_module_names


def _tensor(
    storage: _Storage, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], *rest: Any
) -> PickledTensor:
    if storage.dtype is None:
        raise TypeError("a tensor without an element type")
    return PickledTensor(storage, offset, _sizes(shape), _sizes(strides), storage.dtype)


def _tensor_v3(
    storage: _Storage, offset: int, shape: Any, strides: Any, grad: Any, hooks: Any, dtype: _Global, *rest: Any
) -> PickledTensor:
    return PickledTensor(storage, offset, _sizes(shape), _sizes(strides), DTYPE_NAMES[dtype.name.rpartition(".")[2]])


def _texts(items: Any = ()) -> list[str]:
    return [item for item in items if isinstance(item, str)]


def _sizes(numbers: Any) -> tuple[int, ...]:
    if not isinstance(numbers, tuple | list) or not all(type(number) is int for number in numbers):
        raise TypeError(f"sizes that are none: {numbers!r:.40}")
    return tuple(numbers)


_BUILDERS: dict[str, Callable[..., Any]] = {
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v3": _tensor_v3,
    "torch._utils._rebuild_parameter": lambda tensor, *rest: tensor,
    "torch._utils._rebuild_parameter_with_state": lambda tensor, *rest: tensor,
    "torch._tensor._rebuild_from_type_v2": lambda function, kind, arguments, state: _BUILDERS[function.name](
        *arguments
    ),
    "torch._tensor._rebuild_from_type": lambda function, kind, arguments, state: _BUILDERS[function.name](*arguments),
    "torch.nn.parameter.Parameter": lambda tensor, *rest: tensor,
    "torch.Tensor": lambda tensor, *rest: tensor,
}
_LITERALS = {
    "BININT", "BININT1", "BININT2", "INT", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "STRING", "BINSTRING",
    "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8",
}  # fmt: skip
_NEW: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
    "EMPTY_SET": set,
}
