"""One rank of one step of a dump, as the items that a comparison has rows for, straight from its JSON.

    step0/rank0/dump.json               open_dump("step0/rank0") or open_dump("step0/rank0/dump.json")
                stack.json              stacks["Functional.linear.0.forward"]       ("File net.py, line 7, in forward, …", …)
                construct.json          construct["Functional.linear.0.forward"]    "Module.fc1.Linear.forward.0"
                dump_tensor_data/       array(item)

    Functional.linear.0.forward.input.0               the first argument
    Functional.softmax.0.forward.input.dim            one given by name; where values were kept, .forward.kwargs.dim
    Module.fc1.Linear.forward.0.parameters.weight
    Module.fc1.Linear.parameters_grad.0.weight        (older: Module.fc1.Linear.parameters_grad.weight)
    loss.0.debug                                      a value that the script saved itself (debug.json)

Items stand in the order of the records in the file; those of one record as a comparison shows them: arguments, parameters, results.
Nothing that a dump says is believed: an element that does not fit is an item with a `problem`, a file that is damaged is read as
far as it goes and the dump's `problems` say what is missing.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ...model.errors import TraceFormatError, TraceNotFoundError

if TYPE_CHECKING:  # only who opens values waits for numpy
    import numpy as np

Number: TypeAlias = "float | int | bool | None"
FILES = ("dump.json", "debug.json")
TENSORS = "dump_tensor_data"
STEP, RANK = re.compile(r"step(0|[1-9][0-9]{0,17})"), re.compile(r"rank(0|[1-9][0-9]{0,8})?|proc[0-9]{1,18}")
"""Directories of steps and ranks. A process that was not distributed has no number (`rank`; 26.2: `proc4711`)."""
_PARTS = (
    ("input_args", "input"),
    ("input_kwargs", "input"),
    ("input", "input"),
    ("parameters", "parameters"),
    ("output", "output"),
)
_DEEPEST = 400  # what the tool itself allows
_STATISTICS = ("Max", "Min", "Mean", "Norm")
_NUMBERS = frozenset({float, int, bool, type(None)})
_SIZES = frozenset({int})
_SPELLED = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}
# The field of elements without "value".
_VALUES = {"torch.memory_format": "format", "torch.ProcessGroup": "group_ranks"}


# No dataclass: a large dump has a hundred thousand, and a frozen one takes five times as long to make.
class Item(NamedTuple):
    """A tensor, or another value, of a record: one side of a row.

    `max` to `norm` are as the dump has them, None where it has none; `value` is that of a scalar, a slice, a dtype … `problem`
    says why the element cannot be read; it is "" if it can.
    """

    name: str
    record: str
    state: str
    type: str
    dtype: str = ""
    shape: tuple[int, ...] | None = None
    max: Number = None
    min: Number = None
    mean: Number = None
    norm: Number = None
    requires_grad: bool | None = None
    md5: str | None = None
    value: object = None
    data_name: str | None = None
    problem: str = ""

    @property
    def is_tensor(self) -> bool:
        """True if it has a shape and an element type."""
        return self.shape is not None


@dataclass(frozen=True, slots=True)
class Records:
    """One rank of one step as it stands in its files; `path` is that of the JSON file."""

    path: Path
    task: str
    level: str
    framework: str
    data: Mapping[str, Any]
    stacks: Mapping[str, tuple[str, ...]]
    construct: Mapping[str, str | None]
    problems: tuple[str, ...]
    by_node: bool = False
    """Are the gradients of a function's arguments what autograd's last node gave?"""
    last_first: bool = False
    """Do the gradients of a primitive's arguments begin with that of the last?"""


@dataclass(frozen=True, slots=True)
class Dump:
    """One rank of one step, as items."""

    path: Path
    task: str
    level: str
    framework: str
    items: tuple[Item, ...]
    stacks: Mapping[str, tuple[str, ...]] = field(repr=False)
    construct: Mapping[str, str | None] = field(repr=False)
    problems: tuple[str, ...]

    def array(self, item: Item) -> np.ndarray[Any, Any]:
        """The values of an item, for arithmetic: bf16 and fp8 widened exactly to float32. TraceError names the file."""
        from ...store.arrays import as_float

        return as_float(*self.stored(item))

    def stored(self, item: Item) -> tuple[np.ndarray[Any, Any], str]:
        """The values as they lie in the file, and what the elements are: `bf16` lies as uint16, or as float32."""
        if item.data_name is None:
            raise TraceFormatError(
                f"{self.path}: no values were kept of {item.name}. Record with task=tensor to have them."
            )
        from .values import read_values

        return read_values(self.path.parent / TENSORS, item.data_name)

    def file(self, item: Item) -> Path:
        """The file with the values of an item."""
        return self.path.parent / TENSORS / (item.data_name or "")


def open_dump(path: str | os.PathLike[str]) -> Dump:
    """Read the dump of one rank: its dump.json (or debug.json), or the directory that holds it."""
    records = read_records(path)
    items: list[Item] = []
    problems = list(records.problems)
    for name, record in records.data.items():
        if isinstance(record, dict):
            _items(name, record, items)
        elif name.endswith(".debug"):
            _elements(record, name, name, "debug", items)
        else:
            problem = f"expected an object, got {some(record)}"
            problems.append(f"{records.path}: {name}: {problem}.")
            items.append(Item(name, name, "", "", problem=problem))
    head = (records.path, records.task, records.level, records.framework)
    return Dump(*head, tuple(items), records.stacks, records.construct, tuple(problems))


def read_records(path: str | os.PathLike[str]) -> Records:
    """The same, not taken apart."""
    file = _find(Path(path))
    problems: list[str] = []
    document = _read(file, problems)
    data = document.get("data")
    if not isinstance(data, dict):
        known = ", ".join(map(repr, list(document)[:5])) or "nothing"
        raise TraceFormatError(
            f'{file}: expected {{"task": …, "data": {{records}}}}, found {known}. Give the dump.json of a rank.'
        )
    task, level = (_text(document, key, file, problems) for key in ("task", "level"))
    framework = _framework(document, data, file, problems)
    stacks = read_stacks(file.with_name("stack.json"), problems)
    construct = _construct(file.with_name("construct.json"), problems)
    theirs = document.get("recorder") != "twintrace"
    by_node, last_first = theirs and framework == "pytorch", theirs and framework == "mindspore"
    return Records(file, task, level, framework, data, stacks, construct, tuple(problems), by_node, last_first)


# Files --------------------------------------------------------------------------------------------------------------


def file_in(folder: Path) -> Path | None:
    """The JSON file of a rank's directory; None if this is none."""
    return next((folder / name for name in FILES if (folder / name).is_file()), None)


def rank_folders(step: Path) -> Iterator[tuple[int | None, Path]]:
    """The directories of a step that hold dumps, by name, with the numbers of their ranks; None for a run of one process."""
    for folder in sorted(step.iterdir()):
        match = RANK.fullmatch(folder.name)
        if match and folder.is_dir() and file_in(folder) is not None:
            yield int(match[1]) if match[1] else None, folder


def places_in(path: Path) -> Iterator[tuple[int | None, int | None, Path]]:
    """Step, rank and directory of each dump below a path; None for a step or rank that the path is of, or that has no number."""
    if path.is_file() or file_in(path) is not None:
        yield None, None, path
    elif path.is_dir():
        ranks = [(None, rank, folder) for rank, folder in rank_folders(path)]
        steps = ((STEP.fullmatch(folder.name), folder) for folder in path.iterdir() if folder.is_dir())
        numbered = sorted((int(match[1]), folder) for match, folder in steps if match) if not ranks else []
        yield from ranks
        yield from ((step, rank, folder) for step, inside in numbered for rank, folder in rank_folders(inside))


def _find(path: Path) -> Path:
    if path.is_dir():
        if (file := file_in(path)) is not None:
            return file
        below = sorted(file.parent.relative_to(path) for name in FILES for file in path.glob(f"*/{name}"))
        below += sorted(file.parent.relative_to(path) for name in FILES for file in path.glob(f"*/*/{name}"))
        hint = f"Name the rank: {path / below[0]}." if below else "Give a directory such as step0/rank0."
        raise TraceNotFoundError(f"{path}: expected a directory with a dump.json, found none in it. {hint}")
    if not path.is_file():
        raise TraceNotFoundError(f"{path}: there is no such file. Give a dump.json, or the directory that holds it.")
    return path


def _read(file: Path, problems: list[str]) -> dict[str, Any]:
    """The JSON object in a file; of a damaged one what can be read of it."""
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise TraceNotFoundError(f"{file}: cannot be read ({error.strerror}).") from None
    try:
        document = json.loads(raw)
    except RecursionError:
        raise TraceFormatError(f"{file}: nested too deeply to be a dump. It was not written by msprobe.") from None
    except ValueError:
        from .salvage import salvage

        document, told = salvage(raw)
        if document:
            problems.extend(f"{file}: {text}" for text in told)
        else:
            raise TraceFormatError(
                f"{file}: {told[0] if told else 'nothing in it can be read'}. Nothing in it can be read; record again."
            ) from None
    if not isinstance(document, dict):
        raise TraceFormatError(f"{file}: expected a JSON object, got {some(document)}. Give the dump.json of a rank.")
    return document


def _text(document: Mapping[str, Any], key: str, file: Path, problems: list[str]) -> str:
    value = document.get(key)
    if isinstance(value, str):
        return value
    problems.append(f"{file}: it does not say its {key} (expected a text, got {some(value)}).")
    return ""


def _framework(document: Mapping[str, Any], data: Mapping[str, Any], file: Path, problems: list[str]) -> str:
    """`pytorch`, `mindspore` or `mindtorch`; early dumps do not say it, but their elements do."""
    value = document.get("framework")
    if isinstance(value, str):
        return value
    text = str(next(iter(data.values()), ""))
    if "torch.Tensor" in text or "mindspore.Tensor" in text:
        return "pytorch" if "torch.Tensor" in text else "mindspore"
    return _text(document, "framework", file, problems)


def _beside(file: Path, problems: list[str]) -> dict[str, Any]:
    """stack.json and construct.json: they may be missing, and a dump is worth reading without them."""
    if not file.is_file():
        return {}
    try:
        return _read(file, problems)
    except (TraceFormatError, TraceNotFoundError) as error:
        problems.append(str(error))
        return {}


def read_stacks(file: Path, problems: list[str]) -> dict[str, tuple[str, ...]]:
    """`{"0": [[names], [frames]], …}`, or in older dumps `{name: [frames], …}`."""
    stacks: dict[str, tuple[str, ...]] = {}
    for key, value in _beside(file, problems).items():
        grouped = isinstance(value, list) and len(value) == 2 and isinstance(value[0], list)
        names, frames = value if grouped else ([key], value)
        if not isinstance(frames, list):
            frames = [frames]
        if all(isinstance(text, str) for text in (*names, *frames)):
            stacks.update(dict.fromkeys(names, tuple(frames)))
        elif grouped or value:
            problems.append(f"{file}: {key}: expected names and lines of a stack, got {some(value)}.")
    return stacks


def _construct(file: Path, problems: list[str]) -> dict[str, str | None]:
    """`{record: parent or null}`; with micro steps the parent stands in a pair: `[parent, 3]`."""
    parents: dict[str, str | None] = {}
    for name, value in _beside(file, problems).items():
        parent = value[0] if isinstance(value, list) and len(value) == 2 else value
        if parent is None or isinstance(parent, str):
            parents[name] = parent
        elif name != "megatron_micro_step_number":
            problems.append(f"{file}: {name}: expected the name of a record or null, got {some(value)}.")
    return parents


# Items --------------------------------------------------------------------------------------------------------------


def _items(record: str, entry: Mapping[str, Any], into: list[Item]) -> None:
    if record.endswith(".debug"):
        _elements(entry, record, record, "debug", into)
    elif "parameters_grad" in record.rsplit(".", 2)[-2:]:
        for parameter, value in entry.items():
            _gradients(value, f"{record}.{parameter}", record, into)
    else:
        for key, state in _PARTS:
            if key in entry:
                _elements(entry[key], f"{record}.{state}", record, state, into)


def _gradients(value: Any, name: str, record: str, into: list[Item]) -> None:
    """A parameter's gradients stand in a list, and the place in it is not part of the name."""
    for element in value if isinstance(value, list) else [value]:
        _elements(element, name, record, "parameters_grad", into)


def _elements(value: Any, name: str, record: str, state: str, into: list[Item], depth: int = 0) -> None:
    if type(value) is dict:
        kind = value.get("type")
        if type(kind) is str:
            into.append(_item(value, kind, name, record, state))
            return
        if value.get("class_type") == "torch.distributed.P2POp":
            into.append(_message(value, name, record, state))
            return
        inside: Iterable[tuple[Any, Any]] = value.items()
    elif type(value) is list:
        inside = enumerate(value)
    elif value is None:
        into.append(Item(name, record, state, "NoneType"))
        return
    else:
        problem = f"expected an object, a list or null, got {some(value)}"
        into.append(Item(name, record, state, "", problem=problem))
        return
    if depth > _DEEPEST:
        into.append(Item(name, record, state, "", problem=f"nested more than {_DEEPEST} deep"))
        return
    for key, element in inside:
        _elements(element, f"{name}.{key}", record, state, into, depth + 1)


def _item(entry: Mapping[str, Any], kind: str, name: str, record: str, state: str) -> Item:
    """A tensor, of which what is not as it should be is left out and told; or a value that is none."""
    get = entry.get
    data_name, dtype, shape, grad, md5 = map(get, ("data_name", "dtype", "shape", "requires_grad", "md5"))
    if type(data_name) is not str or data_name in ("", "-1"):
        data_name = None
    if data_name is not None:
        name = data_name.rpartition(".")[0]
    if md5 is not None:
        md5 = str(md5)
    if dtype is None and "shape" not in entry:
        return Item(name, record, state, kind, md5=md5, value=get(_VALUES.get(kind, "value")))
    problems: list[str] = []
    if type(dtype) is not str:
        problems.append(f"its dtype is {some(dtype)}, not a text")
        dtype = ""
    sizes: tuple[int, ...] | None = None
    if type(shape) is list and {*map(type, shape)} <= _SIZES and (not shape or min(shape) >= 0):
        sizes = tuple(shape)
    else:
        problems.append(f"its shape is {some(shape)}, not a list of sizes")
    high, low, mean, norm = map(get, _STATISTICS)
    if not {type(high), type(low), type(mean), type(norm)} <= _NUMBERS:
        high, low, mean, norm = (_number(entry, key, problems) for key in _STATISTICS)
    if type(grad) is str and grad in ("True", "False"):
        grad = grad == "True"
    elif grad is not None and type(grad) is not bool:
        problems.append(f"its requires_grad is {some(grad)}, not true or false")
        grad = None
    problem = "; ".join(problems)
    return Item(name, record, state, kind, dtype, sizes, high, low, mean, norm, grad, md5, None, data_name, problem)


def _number(entry: Mapping[str, Any], key: str, problems: list[str]) -> Number:
    number: Any = entry.get(key)
    if type(number) in _NUMBERS:
        return number  # type: ignore[no-any-return]  # it is one of them
    if type(number) is str and number.lower() in _SPELLED:
        return _SPELLED[number.lower()]
    problems.append(f"its {key} is {some(number)}, not a number")
    return None


def _message(entry: Mapping[str, Any], name: str, record: str, state: str) -> Item:
    """One of a batch of messages between ranks: its tensor, and to whom it goes."""
    tensor = entry.get("tensor")
    value = {key: entry.get(key) for key in ("op", "peer", "tag", "group_id")}
    if not isinstance(tensor, dict) or not isinstance(tensor.get("type"), str):
        return Item(name, record, state, str(entry["class_type"]), value=value)
    return _item(tensor, tensor["type"], name, record, state)._replace(value=value)


def some(value: Any) -> str:
    """A value in a few characters."""
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:59]}…"
