"""PyTorch's checkpoint files, read and written without torch, and without running anything that is in them.

A `.pth` file is a pickle: a little program that, when it is run, may call any function. Here it is not run. Its
instructions are read (`pickletools` only parses) and interpreted by a machine that knows dicts, lists, tuples, numbers,
texts and tensors, and nothing else. Objects of other classes are kept as what the pickle says of them: the name of the class, and
their attributes. A call of any other function ends the reading with its name.

    archive/data.pkl      OrderedDict of _rebuild_tensor_v2(storage "0", offset, shape, strides, …)
    archive/data/0        the bytes of storage "0"
    archive/byteorder     little

A file that holds a whole module (`torch.save(net, …)`) is read the same way: a module's attributes are its parameters, buffers and
submodules, by name, and that is a state dict. The format from before 2020 (five pickles, then the storages) is read too. What
must be run to be known (a tensor that a function of the file's own makes) is `trust=True`, and torch's affair.
"""

from __future__ import annotations

import os
import pickletools
import struct
import sys
import zipfile
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO
from zlib import crc32

import numpy as np

from ..model.dtypes import LONG_NAMES
from ..model.errors import CheckpointError
from ..model.tensors import DTYPES, Spec
from ..store.arrays import STORAGE, nbytes
from .extents import Checkpoint, Extent, Stored, check

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
_LARGEST_PROGRAM = 256 << 20  # a state dict of a million tensors has less
_ALIGNMENT = 64  # torch's own: what is mapped into memory begins on a cache line


@dataclass(frozen=True, slots=True)
class _Storage:
    key: str
    dtype: str | None  # None: bytes, whose type the tensor says
    numel: int


@dataclass(frozen=True, slots=True)
class _Tensor:
    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class _Global:
    name: str


class _Inert:
    """Something whose contents do not matter here."""


class _Object:
    """An object of a class that is not known here: what the pickle says of it. Nothing of the class is looked up."""

    __slots__ = ("attributes", "entries", "kind")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.attributes: dict[Any, Any] = {}
        self.entries: dict[Any, Any] = {}

    @property
    def is_module(self) -> bool:
        """Has it what every torch.nn.Module has?"""
        return all(isinstance(self.attributes.get(name), dict) for name in ("_parameters", "_buffers", "_modules"))


_INERT = _Inert()
_ADVICE = (
    "Save the weights alone: torch.save(net.state_dict(), …). If you trust whoever wrote the file, say trust=True (--trust, or "
    "TWINTRACE_TRUST=1 in the environment): then torch loads it, and runs what is in it."
)
_PROGRAMS: dict[bytes, _Tensor] = {}
_MOST_PROGRAMS = 1024
_SMALL = 1 << 22
_MARK = object()


def is_zip(head: bytes) -> bool:
    """Does a file begin like the format of today?"""
    return head[:4] == b"PK\x03\x04"


def is_legacy(head: bytes) -> bool:
    """Does a file begin like the format from before 2020, or like any other pickle?"""
    return head[:1] == b"\x80"


def read(path: Path, *, key: str | None = None) -> Checkpoint:
    """The index of a file. `key` is the way to the state dict in a checkpoint that holds several: `model.ema`."""
    with path.open("rb") as file:
        tree, storages = _read_legacy(path, file) if is_legacy(file.read(1)) else _read_zip(path, file)
    state, notes = _state_dict(path, tree, key)
    stored: dict[str, Stored] = {}
    aliases: dict[str, str] = {}
    owners: dict[tuple[Any, ...], str] = {}
    sizes: dict[Path, int] = {}
    for name, tensor in state.items():
        stored[name] = _stored(path, name, tensor, storages)
        check(path, name, stored[name], sizes)
        if nbytes(stored[name].spec):
            owner = owners.setdefault((tensor.storage.key, tensor.offset, tensor.shape, tensor.strides), name)
            if owner != name:
                aliases[name] = owner
    return Checkpoint(str(path), "pth", stored, aliases, tuple(notes), {"format": "pt"})


def read_tensor(path: str | os.PathLike[str]) -> tuple[np.ndarray[Any, Any], str]:
    """The one tensor that `torch.save(tensor, path)` wrote: the array in its storage type, and its element type.

    Without torch, and without running anything that is in the file. CheckpointError says what is wrong with it.
    """
    where = Path(path)
    try:
        with where.open("rb") as file:
            quick = _read_small(file.read()) if os.fstat(file.fileno()).st_size <= _SMALL else None
            if quick is not None:
                return quick
            file.seek(0)
            tree, storages = _read_legacy(where, file) if is_legacy(file.read(1)) else _read_zip(where, file)
        if not isinstance(tree, _Tensor):
            raise CheckpointError(f"{where}: holds a {type(tree).__name__}, expected one tensor.")
        stored = _stored(where, "tensor", tree, storages)
        check(where, "tensor", stored, {})
        return Checkpoint(str(where), "pth", {"tensor": stored}).read("tensor"), stored.spec.dtype
    except OSError as error:
        raise CheckpointError(f"{where}: cannot be read ({error.strerror}).") from None


def _read_small(raw: bytes) -> tuple[np.ndarray[Any, Any], str] | None:
    """The same from memory, for a program that is known already; None for whatever is not as torch writes it, or damaged.

    The zip module and the pickle's instructions take longer than the reading of a small file, and dumps have thousands of them.
    """
    try:
        *_, count, _, at, _ = _END.unpack_from(raw, raw.rindex(b"PK\5\6"))
        members: dict[bytes, memoryview] = {}
        view = memoryview(raw)  # a slice of it is no copy
        for _ in range(count):
            head = _CENTRAL.unpack_from(raw, at)
            check, size, name, start = head[7], head[9], head[10], head[16]
            end = at + _CENTRAL.size + name
            local = _LOCAL.unpack_from(raw, start)
            start += _LOCAL.size + local[9] + local[10]
            member = view[start : start + size]
            if (
                head[0] != b"PK\1\2"
                or local[0] != b"PK\3\4"
                or head[4]
                or crc32(member) != check
                or len(member) != size
            ):
                return None
            members[raw[end - name : end].partition(b"/")[2]] = member
            at = end + head[11] + head[12]
        tensor, values = _PROGRAMS[bytes(members[b"data.pkl"])], members[b"data/0"]
    except (ValueError, struct.error, KeyError):
        return None
    spec = Spec(tensor.dtype, tensor.shape)
    usual = members.get(b"byteorder", b"little") == b"little" and tensor.storage.key == "0" and not tensor.offset
    if (
        not usual
        or len(values) != nbytes(spec)
        or len(tensor.shape) != len(tensor.strides)
        or not _is_row_major(tensor)
    ):
        return None
    return np.frombuffer(values, STORAGE[spec.dtype]).reshape(spec.shape), spec.dtype


def _stored(path: Path, name: str, tensor: _Tensor, storages: Mapping[str, Extent]) -> Stored:
    extent = storages.get(tensor.storage.key)
    if extent is None:
        raise CheckpointError(
            f"{path}: {name} refers to storage {tensor.storage.key!r}, which is not there. It is damaged."
        )
    spec = Spec(tensor.dtype, tensor.shape)
    width = DTYPES[tensor.dtype]
    if 0 in tensor.shape:
        return Stored(spec, ())
    if len(tensor.shape) != len(tensor.strides) or min((*tensor.shape, *tensor.strides, tensor.offset), default=0) < 0:
        raise CheckpointError(
            f"{path}: {name} has shape {tensor.shape} and strides {tensor.strides}. The file is damaged."
        )
    last = tensor.offset + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.strides, strict=True))
    if (last + 1) * width > extent.nbytes:
        raise CheckpointError(
            f"{path}: {name} reaches to byte {(last + 1) * width} of a storage of {extent.nbytes}. The file is damaged."
        )
    if nbytes(spec) > max(1 << 30, 16 * path.stat().st_size):
        raise CheckpointError(
            f"{path}: {name} is {spec}, {nbytes(spec)} bytes, repeated out of {extent.nbytes}: refused."
        )
    count = (last + 1 - tensor.offset) * width
    crc = extent.crc if tensor.offset == 0 and count == extent.nbytes else None
    part = Extent(extent.file, extent.offset + tensor.offset * width, count, crc)
    return Stored(spec, (part,), None if _is_row_major(tensor) else tensor.strides)


def _is_row_major(tensor: _Tensor) -> bool:
    expected = 1
    for size, stride in zip(reversed(tensor.shape), reversed(tensor.strides), strict=True):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


# Which of the things in the file are the weights --------------------------------------------------------------------


def _state_dict(path: Path, tree: Any, key: str | None) -> tuple[dict[str, _Tensor], list[str]]:
    if isinstance(tree, _Tensor):
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
        found = {name: item for name, (item, _) in opened.items() if isinstance(item, dict) and _tensors(item)}
        usual = [name for name in USUAL if name in found]
        if len(found) == 1 or len(usual) == 1:
            where = usual[0] if usual else next(iter(found))
            tree = found[where]
            notes.extend(opened[where][1])
            others = [str(name) for name in (found if len(found) > 1 else ()) if str(name) != where]
            notes.append(f"the weights are those under {where!r}" + (f", not {', '.join(others)}" if others else ""))
        elif found:
            raise CheckpointError(
                f"{path}: holds several state dicts, under {', '.join(found)}. Say which: key={next(iter(found))!r}."
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
            if not isinstance(tensor, _Tensor):
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


def _tensors(tree: dict[Any, Any]) -> dict[str, _Tensor]:
    return {name: item for name, item in tree.items() if isinstance(item, _Tensor) and isinstance(name, str)}


# Reading ------------------------------------------------------------------------------------------------------------


def _read_zip(path: Path, file: BinaryIO) -> tuple[Any, dict[str, Extent]]:
    try:
        archive = zipfile.ZipFile(file)
        names = archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise CheckpointError(
            f"{path}: cannot be read ({error}). It was not written to its end; get it again."
        ) from None
    with archive:
        program = next((name for name in names if name.split("/", 1)[-1] == "data.pkl"), None)
        if program is None:
            if any(name.endswith(("constants.pkl", "code/")) or "/code/" in name for name in names):
                raise CheckpointError(
                    f"{path}: is a TorchScript archive. Save the state dict: torch.save(net.state_dict(), …)."
                )
            raise CheckpointError(f"{path}: is a zip archive without data.pkl, so not a PyTorch checkpoint.")
        root = program.removesuffix("data.pkl")
        try:
            if f"{root}byteorder" in names and archive.read(f"{root}byteorder") != b"little":
                raise CheckpointError(
                    f"{path}: was written on a big-endian machine. Save it again on a little-endian one."
                )
            told = archive.getinfo(program)
            if told.file_size > _LARGEST_PROGRAM or told.compress_type != zipfile.ZIP_STORED:
                raise CheckpointError(
                    f"{path}: its data.pkl is compressed, or of {told.file_size} bytes: refused, torch writes none such."
                )
            raw = archive.read(program)
            storages = {
                info.filename.removeprefix(f"{root}data/"): _extent(path, file, info)
                for info in archive.infolist()
                if info.filename.startswith(f"{root}data/")
            }
        except (zipfile.BadZipFile, OSError, struct.error, EOFError, RuntimeError, NotImplementedError) as error:
            raise CheckpointError(f"{path}: is damaged ({error}); get it again.") from None
    known = _PROGRAMS.get(raw)
    if known is None:
        known = _interpret(path, pickletools.genops(raw))
        if isinstance(known, _Tensor):  # a directory of single tensors has few different programs
            if len(_PROGRAMS) > _MOST_PROGRAMS:
                _PROGRAMS.clear()
            _PROGRAMS[raw] = known
    return known, storages


def _extent(path: Path, file: BinaryIO, info: zipfile.ZipInfo) -> Extent:
    if info.compress_type != zipfile.ZIP_STORED:
        raise CheckpointError(
            f"{path}: {info.filename} is compressed, which torch does not do. Load it with torch and save again."
        )
    file.seek(info.header_offset)
    head = file.read(30)
    if len(head) < 30 or head[:4] != b"PK\x03\x04":
        raise zipfile.BadZipFile(f"no entry at byte {info.header_offset}")
    name, extra = struct.unpack("<HH", head[26:30])
    # Zero is what torch writes where checksums were switched off; of no bytes it is the right one anyway.
    return Extent(path, info.header_offset + 30 + name + extra, info.file_size, info.CRC or None)


def _read_legacy(path: Path, file: BinaryIO) -> tuple[Any, dict[str, Extent]]:
    file.seek(0)
    first = _interpret(path, pickletools.genops(file))
    if first != 0x1950A86A20F9469CFC6C:
        raise CheckpointError(
            f"{path}: is a pickle, but not one that torch.save wrote. Expected a .pth file with a state dict."
        )
    _interpret(path, pickletools.genops(file))
    system = _interpret(path, pickletools.genops(file))
    if isinstance(system, dict) and system.get("little_endian") is False:
        raise CheckpointError(f"{path}: was written on a big-endian machine. Save it again on a little-endian one.")
    widths: dict[str, int] = {}
    tree = _interpret(path, pickletools.genops(file), widths)
    storages: dict[str, Extent] = {}
    for key in _interpret(path, pickletools.genops(file)):
        raw = file.read(8)
        if len(raw) < 8 or key not in widths:
            raise CheckpointError(f"{path}: ends before storage {key}. It is damaged; get it again.")
        length = struct.unpack("<q", raw)[0] * widths[key]
        storages[key] = Extent(path, file.tell(), length)
        file.seek(length, 1)
    return tree, storages


def _interpret(path: Path, steps: Iterator[tuple[Any, Any, Any]], widths: dict[str, int] | None = None) -> Any:
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
        if name in _LITERALS:
            self.stack.append(argument)
        elif name in _NEW:
            self.stack.append(_NEW[name]())
        elif name in ("BINPUT", "LONG_BINPUT", "PUT"):
            self.memory[int(argument)] = self.stack[-1]
        elif name == "MEMOIZE":
            self.memory[len(self.memory)] = self.stack[-1]
        elif name in ("BINGET", "LONG_BINGET", "GET"):
            self.stack.append(self.memory[int(argument)])
        else:
            step = getattr(self, f"_{name.lower()}", None)
            if step is None:
                raise CheckpointError(
                    f"{self.path}: the pickle instruction {name} has no place in a state dict: refused."
                )
            step(argument)

    def _nothing(self, argument: Any) -> None:
        pass

    _proto = _frame = _nothing

    def _mark(self, argument: Any) -> None:
        self.stack.append(_MARK)

    def _since_mark(self) -> list[Any]:
        at = len(self.stack) - 1 - self.stack[::-1].index(_MARK)
        items = self.stack[at + 1 :]
        del self.stack[at:]
        return items

    def _pop(self, argument: Any) -> None:
        self.stack.pop()

    def _tuple(self, argument: Any) -> None:
        self.stack.append(tuple(self._since_mark()))

    def _list(self, argument: Any) -> None:
        self.stack.append(self._since_mark())

    def _dict(self, argument: Any) -> None:
        items = self._since_mark()
        self.stack.append(dict(zip(items[::2], items[1::2], strict=True)))

    def _tuple1(self, argument: Any) -> None:
        self.stack[-1:] = [tuple(self.stack[-1:])]

    def _tuple2(self, argument: Any) -> None:
        self.stack[-2:] = [tuple(self.stack[-2:])]

    def _tuple3(self, argument: Any) -> None:
        self.stack[-3:] = [tuple(self.stack[-3:])]

    def _append(self, argument: Any) -> None:
        item = self.stack.pop()
        self._extend([item])

    def _appends(self, argument: Any) -> None:
        self._extend(self._since_mark())

    def _additems(self, argument: Any) -> None:
        items = self._since_mark()
        if isinstance(self.stack[-1], set):
            self.stack[-1].update(_texts(items))

    def _extend(self, items: list[Any]) -> None:
        if isinstance(self.stack[-1], list):
            self.stack[-1].extend(items)
        elif self.stack[-1] is not _INERT and not isinstance(self.stack[-1], _Object):
            raise TypeError(f"appending to {type(self.stack[-1]).__name__}")

    def _setitem(self, argument: Any) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._update([key, value])

    def _setitems(self, argument: Any) -> None:
        self._update(self._since_mark())

    def _update(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if isinstance(target, dict):
            target.update(zip(items[::2], items[1::2], strict=True))
        elif isinstance(target, _Object):
            target.entries.update(zip(items[::2], items[1::2], strict=True))
        elif target is not _INERT:
            raise TypeError(f"setting items of {type(target).__name__}")

    def _global(self, argument: Any) -> None:
        self.stack.append(self._known(".".join(str(argument).split(" ", 1))))

    def _stack_global(self, argument: Any) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        self.stack.append(self._known(f"{module}.{name}"))

    def _known(self, name: str) -> Any:
        module, _, short = name.rpartition(".")
        name = f"{_NAMES_BEFORE_2008.get(module, module)}.{short}"
        if name not in _BUILDERS and name.startswith("torch._utils._rebuild_"):
            raise CheckpointError(
                f"{self.path}: holds a tensor of a special kind ({short}: sparse, quantised, distributed …). Make it an "
                f"ordinary one before saving."
            )
        return _Global(name)  # a name, and nothing is looked up by it

    def _newobj(self, argument: Any) -> None:
        arguments, target = self.stack.pop(), self.stack.pop()
        if isinstance(target, _Global) and self._is_class(target.name):
            self.stack.append(_Object(target.name))
        else:
            self.stack.append(self._make(target, arguments))

    def _newobj_ex(self, argument: Any) -> None:
        self.stack.pop()
        self._newobj(argument)

    def _is_class(self, name: str) -> bool:
        """May this be a class of the file's own? Of the standard library nothing is: what may be made of it is listed."""
        if name in _BUILDERS or name in INERT:
            return False
        return name.partition(".")[0] not in sys.stdlib_module_names

    def _reduce(self, argument: Any) -> None:
        arguments, target = self.stack.pop(), self.stack.pop()
        self.stack.append(self._make(target, arguments))

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
            if self._is_class(arguments[0].name):
                return _Object(arguments[0].name)
            target = arguments[0]
        # An enum, a named tuple, a class with arguments. A function is written small; what takes a tensor may be one.
        is_class = self._is_class(target.name) and target.name.rpartition(".")[2].lstrip("_")[:1].isupper()
        if is_class and not any(isinstance(argument, _Tensor | _Storage) for argument in arguments):
            return _Object(target.name)
        raise CheckpointError(
            f"{self.path}: is not a plain state dict: it refers to {target.name}, to call it. A pickle may run anything it "
            f"refers to, so it was not loaded, and nothing in it was run. {_ADVICE}"
        )

    def _build(self, argument: Any) -> None:
        # Attributes of an OrderedDict or of an inert object (`_metadata`) are not needed.
        state = self.stack.pop()
        if isinstance(self.stack[-1], _Object):
            parts = state if isinstance(state, tuple) else (state,)  # (attributes, those in slots)
            for part in parts:
                if isinstance(part, dict):
                    self.stack[-1].attributes.update(part)

    def _binpersid(self, argument: Any) -> None:
        identity = self.stack.pop()
        if isinstance(identity, tuple) and len(identity) == 4 and identity[0] in ("module", b"module"):
            self.stack.append(identity[1])  # before 2020 a module's class came with its source, which is not needed
            return
        if not isinstance(identity, tuple) or len(identity) < 5 or identity[0] not in ("storage", b"storage"):
            raise TypeError("a reference to something outside that is no storage")
        _, kind, key, _, numel, *view = identity
        if view and view[0] is not None:
            raise TypeError("a storage that is a part of another, of the time before 2018")
        dtype = STORAGES.get(kind.name.rpartition(".")[2])
        self.widths[str(key)] = DTYPES[dtype] if dtype else 1
        self.stack.append(_Storage(str(key), dtype, int(numel)))


def _tensor(storage: _Storage, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], *rest: Any) -> _Tensor:
    if storage.dtype is None:
        raise TypeError("a tensor without an element type")
    return _Tensor(storage, offset, _sizes(shape), _sizes(strides), storage.dtype)


def _tensor_v3(
    storage: _Storage, offset: int, shape: Any, strides: Any, grad: Any, hooks: Any, dtype: _Global, *rest: Any
) -> _Tensor:
    return _Tensor(storage, offset, _sizes(shape), _sizes(strides), DTYPE_NAMES[dtype.name.rpartition(".")[2]])


def _texts(items: Any = ()) -> list[str]:
    return [item for item in items if isinstance(item, str)]


def _sizes(numbers: Any) -> tuple[int, ...]:
    if not isinstance(numbers, tuple | list) or not all(type(number) is int for number in numbers):
        raise TypeError(f"sizes that are none: {numbers!r:.40}")
    return tuple(numbers)


def _same(tensor: Any, *rest: Any) -> Any:
    return tensor


def _from_type(function: Any, kind: Any, arguments: Any, state: Any) -> Any:
    return _BUILDERS[function.name](*arguments)


_BUILDERS: dict[str, Callable[..., Any]] = {
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v3": _tensor_v3,
    "torch._utils._rebuild_parameter": _same,
    "torch._utils._rebuild_parameter_with_state": _same,
    "torch._tensor._rebuild_from_type_v2": _from_type,
    "torch._tensor._rebuild_from_type": _from_type,
    "torch.nn.parameter.Parameter": _same,
    "torch.Tensor": _same,
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

# Writing ------------------------------------------------------------------------------------------------------------


def write(file: BinaryIO, specs: Mapping[str, Spec]) -> Generator[tuple[str, IO[bytes]], None, None]:
    """Write an archive; yields (name, where its bytes go) when they are due."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, raw in (("data.pkl", _program(specs)), ("byteorder", b"little"), ("version", b"3\n")):
            archive.writestr(zipfile.ZipInfo(f"archive/{name}"), raw)
        for number, (name, spec) in enumerate(specs.items()):
            info = zipfile.ZipInfo(f"archive/data/{number}")
            large = nbytes(spec) >= 1 << 31
            before = file.tell() + 30 + len(info.filename) + (20 if large else 0) + 4
            padding = -before % _ALIGNMENT
            info.extra = struct.pack("<HH", 0x4246, padding) + b"Z" * padding  # an extra field that readers skip
            with archive.open(info, "w", force_zip64=large) as entry:
                yield name, entry


def write_tensor(file: BinaryIO, spec: Spec, raw: Any) -> int:
    """Write a file that `torch.load` reads as one tensor, as `torch.save(tensor, …)` would; where in it the bytes begin.

    Made by hand: the zip module takes five times as long, and those who write thousands of such files notice. For gigabytes, where
    a zip file has other fields, it is asked all the same.
    """
    program = b"".join([b"\x80\x02", *_tensor_program(0, spec), b"."])
    entries: list[tuple[str, Any]] = [
        ("data.pkl", program),
        ("byteorder", b"little"),
        ("version", b"3\n"),
        ("data/0", raw),
    ]
    if len(raw) >= 1 << 31:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
            for name, content in entries[:-1]:
                archive.writestr(zipfile.ZipInfo(f"archive/{name}"), content)
            with archive.open(zipfile.ZipInfo("archive/data/0"), "w", force_zip64=True) as entry:
                begin = file.tell()
                entry.write(raw)
        return begin
    head, directory = b"", b""
    for name, content in entries:
        path, check, size = f"archive/{name}".encode(), crc32(content), len(content)
        padding = -(len(head) + _LOCAL.size + len(path) + 4) % _ALIGNMENT if content is raw else 0
        extra = struct.pack("<HH", 0x4246, padding) + b"Z" * padding if content is raw else b""
        common = (20, 0, 0, 0, 0x21, check, size, size, len(path))
        directory += _CENTRAL.pack(b"PK\1\2", 20, *common, 0, 0, 0, 0, 0, len(head)) + path
        head += _LOCAL.pack(b"PK\3\4", *common, len(extra)) + path + extra + (b"" if content is raw else content)
    end = _END.pack(b"PK\5\6", 0, 0, len(entries), len(entries), len(directory), len(head) + len(raw), 0)
    for part in (head, raw, directory, end):
        file.write(part)
    return len(head)


_END = struct.Struct("<4sHHHHIIH")
_LOCAL = struct.Struct("<4sHHHHHIIIHH")
_CENTRAL = struct.Struct("<4sHHHHHHIIIHHHHHII")


def _program(specs: Mapping[str, Spec]) -> bytes:
    """`OrderedDict` of tensors, as instructions."""
    out = [b"\x80\x02", _ORDERED, b"("]
    for number, (name, spec) in enumerate(specs.items()):
        out += [_text(name), *_tensor_program(number, spec)]
    return b"".join([*out, b"u."])


_ORDERED = b"ccollections\nOrderedDict\n)R"


def _tensor_program(number: int, spec: Spec) -> list[bytes]:
    """`_rebuild_tensor_v2(storage, 0, shape, strides, False, OrderedDict())`."""
    kinds = {dtype: name for name, dtype in STORAGES.items()}
    dtypes = {dtype: name for name, dtype in DTYPE_NAMES.items()}
    typed = spec.dtype in kinds
    kind = f"ctorch\n{kinds[spec.dtype]}\n" if typed else "ctorch.storage\nUntypedStorage\n"
    count = nbytes(spec) // DTYPES[spec.dtype] if typed else nbytes(spec)
    return [
        b"ctorch._utils\n_rebuild_tensor_v2\n(" if typed else b"ctorch._utils\n_rebuild_tensor_v3\n(",
        b"(" + _text("storage") + kind.encode() + _text(str(number)) + _text("cpu") + _number(count) + b"tQ",
        _number(0) + _numbers(spec.shape) + _numbers(_strides(spec.shape)) + b"\x89" + _ORDERED,
        b"" if typed else f"ctorch\n{dtypes[spec.dtype]}\n".encode(),
        b"tR",
    ]


def _text(text: str) -> bytes:
    raw = text.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def _number(number: int) -> bytes:
    if 0 <= number < 1 << 31:
        return b"J" + struct.pack("<i", number)
    raw = number.to_bytes(9, "little", signed=True)
    return b"\x8a" + bytes([len(raw)]) + raw


def _numbers(numbers: tuple[int, ...]) -> bytes:
    return b"(" + b"".join(map(_number, numbers)) + b"t"


def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))
