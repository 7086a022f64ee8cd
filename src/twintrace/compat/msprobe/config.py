"""Settings of a recording: config.json, and the arguments that win over it.

    {"task": "tensor", "dump_path": "./dump", "rank": [], "step": [0, "3-5"], "level": "mix",
     "tensor": {"scope": [], "list": ["conv"], "data_mode": ["forward"]}}

    settings_from("config.json", level="L0")   ->  Settings(task="tensor", level="L0", …)

Two that are equal ask for the same. A value that is not possible is an error that names the file, the field, and what it may be; a
field that is not known is warned about and passed over. Fields of other tasks are left alone.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from ...model.errors import UsageError

TASKS = ("statistics", "tensor", "structure")
LEVELS = ("L0", "L1", "mix", "debug")
MODES = ("all", "forward", "backward", "input", "output")
SUMMARIES = ("statistics", "md5")
# Tasks of msprobe that this embassy does not have: their own sections may stand in a file.
_OTHER_TASKS = (
    "acc_check", "run_ut", "overflow_check", "free_benchmark", "grad_probe", "nan_check", "diff_check", "exception_dump",
)  # fmt: skip
_TOP = (
    "task", "dump_path", "rank", "step", "level", "extra_info", "support_wrap_ops", "async_dump", "precision", "risk_level",
    "dump_enable", "enable_dataloader", "seed", "is_deterministic", "custom_op_namespaces", *TASKS, *_OTHER_TASKS,
)  # fmt: skip
_SECTION = (
    "scope",
    "list",
    "data_mode",
    "summary_mode",
    "tensor_list",
    "file_format",
    "backward_input",
    "online_run_ut",
)
_LARGEST = 1_000_000  # of a step or rank, as in msprobe
_RANGE = re.compile(r"\s*(\d{1,7})\s*-\s*(\d{1,7})\s*")
# By level, which records there are: the form of a name, and one as an example. All of them at other levels.
_RECORDS = {
    "L0": (re.compile(r"(Cell|Module)\..+\.(forward|backward)\.\d+"), "Module.fc1.Linear.forward.0"),
    "L1": (re.compile(r"[A-Z]\w*\..+\.\d+\.(forward|backward)"), "Functional.linear.0.forward"),
}


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a recording. None and () mean: all."""

    dump_path: Path
    task: str = "statistics"
    level: str = "L1"
    steps: tuple[int, ...] | None = None
    ranks: tuple[int, ...] | None = None
    scope: tuple[str, str] | None = None
    names: tuple[str, ...] = ()
    data_mode: tuple[str, ...] = ("all",)
    summary_mode: str = "statistics"
    tensor_list: tuple[str, ...] = ()
    extra_info: bool = True
    enabled: bool = True
    allowed: frozenset[str] | None = None

    def wants(self, direction: str, end: str) -> bool:
        """True if the inputs or outputs (`end`) of forward or backward records (`direction`) are wanted."""
        modes = self.data_mode
        if "all" in modes:
            return True
        either = "forward" in modes or "backward" in modes
        side = "input" in modes or "output" in modes
        return (direction in modes or not either) and (end in modes or not side)


def settings_from(
    config_path: str | os.PathLike[str] | None = None,
    task: str | None = None,
    dump_path: str | os.PathLike[str] | None = None,
    level: str | None = None,
    step: Sequence[int | str] | None = None,
) -> Settings:
    """The settings that a file and the arguments give; an argument wins over the file."""
    file, config = _read(config_path)
    where = f"{file}: " if file else ""
    _tell_unknown(config, _TOP, where)
    _check_without_effect(config, where)
    chosen = _one_of("task", task, TASKS, "") if task is not None else config.get("task") or "statistics"
    if chosen in _OTHER_TASKS:
        raise UsageError(f"{where}task: {chosen!r} is not offered here, expected one of {', '.join(TASKS)}.")
    chosen = _one_of("task", chosen, TASKS, where)
    place = dump_path if dump_path is not None else config.get("dump_path", "./dump_path")
    section = config.get(chosen) or {}
    if not isinstance(section, dict):
        raise UsageError(f"{where}{chosen}: expected an object with scope, list, data_mode …, got {section!r:.60}.")
    inside = f"{where}{chosen}."
    _tell_unknown(section, _SECTION, inside)
    steps = _numbers("step", step, "") if step is not None else _numbers("step", config.get("step"), where)
    if level is not None:
        depth = _one_of("level", level, LEVELS, "")
    else:
        depth = _one_of("level", config.get("level") or "L1", LEVELS, where)
    return Settings(
        _path("dump_path", place, where if dump_path is None else ""),
        chosen,
        depth,
        steps,
        _numbers("rank", config.get("rank"), where),
        _scope(section.get("scope"), depth, inside),
        _names("list", section.get("list"), inside),
        _modes(section.get("data_mode"), inside),
        _one_of("summary_mode", section.get("summary_mode") or "statistics", SUMMARIES, inside)
        if chosen != "structure"
        else "statistics",
        _names("tensor_list", section.get("tensor_list"), inside),
        _flag("extra_info", config.get("extra_info", True), where),
        _flag("dump_enable", config.get("dump_enable", True), where),
        _allowed(config.get("support_wrap_ops"), file, where),
    )


def _read(config_path: str | os.PathLike[str] | None) -> tuple[Path | None, Mapping[str, Any]]:
    if not config_path:
        return None, {}
    path = _path("config_path", config_path, "")
    try:
        config = json.loads(path.read_bytes())
    except OSError as error:
        raise UsageError(f"config_path: {path} cannot be read ({error.strerror}).") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"config_path: {path} is not JSON ({error}).") from None
    if not isinstance(config, dict):
        raise UsageError(f"config_path: {path}: expected an object with task, dump_path, level …, got {config!r:.60}.")
    return path, config


def _tell_unknown(fields: Mapping[str, Any], names: Sequence[str], where: str) -> None:
    """A warning for fields that mean nothing here: msprobe passes over them without a word, and files have remarks in them."""
    for field in fields:
        if field not in names:
            near = difflib.get_close_matches(str(field), names, 1)
            hint = f" Did you mean {near[0]!r}?" if near else f" The fields are {', '.join(names)}."
            warnings.warn(
                f"{where}the field {field!r} means nothing here and is passed over.{hint}", UserWarning, stacklevel=2
            )


def _check_without_effect(config: Mapping[str, Any], where: str) -> None:
    """Fields that are accepted and change nothing are held to msprobe's rules all the same: a file that it refuses is refused."""
    for field in ("async_dump", "enable_dataloader", "is_deterministic"):
        if field in config:
            _flag(field, config[field], where)
    for field, choices in (("precision", ("low", "high")), ("risk_level", ("CORE", "FOCUS", "ALL"))):
        if config.get(field) is not None:
            _one_of(field, config[field], choices, where)
    _names("custom_op_namespaces", config.get("custom_op_namespaces"), where)


def _one_of(field: str, value: object, choices: Sequence[str], where: str) -> str:
    if not isinstance(value, str) or value not in choices:
        more = " Kernels are recorded by MindSpore itself." if value == "L2" else ""
        raise UsageError(f"{where}{field}: expected one of {', '.join(choices)}, got {value!r}.{more}")
    return value


def _path(field: str, value: object, where: str) -> Path:
    if not isinstance(value, str | os.PathLike) or not os.fspath(value):
        raise UsageError(f"{where}{field}: expected the name of a file or directory, got {value!r}.")
    return Path(os.fsdecode(value)).absolute()


def _flag(field: str, value: object, where: str) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"{where}{field}: expected true or false, got {value!r}.")
    return value


def _numbers(field: str, value: object, where: str) -> tuple[int, ...] | None:
    """Numbers, and ranges such as "3-5"; an empty list means all."""
    if value is None:
        return None
    if not isinstance(value, list | tuple):
        raise UsageError(f'{where}{field}: expected a list of numbers, such as [0, "3-5"], got {value!r:.60}.')
    numbers: set[int] = set()
    for item in value:
        bounds = _RANGE.fullmatch(item) if isinstance(item, str) else None
        if isinstance(item, int) and not isinstance(item, bool) and 0 <= item <= _LARGEST:
            numbers.add(item)
        elif bounds and int(bounds[1]) <= int(bounds[2]) <= _LARGEST:
            numbers.update(range(int(bounds[1]), int(bounds[2]) + 1))
        else:
            raise UsageError(
                f'{where}{field}: expected numbers from 0 to {_LARGEST} and ranges such as "3-5", got {item!r}.'
            )
    return tuple(sorted(numbers)) or None


def _names(field: str, value: object, where: str) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) and name for name in value):
        raise UsageError(f"{where}{field}: expected a list of names or parts of names, got {value!r:.60}.")
    for name in value:
        try:
            pattern_of(name)
        except re.error as error:
            raise UsageError(f"{where}{field}: {name!r} is not a regular expression ({error}).") from None
    return tuple(value)


def pattern_of(name: str) -> re.Pattern[str]:
    """A name of a list as a pattern: `name-regex(fc\\d)`, or a text that a record's name holds."""
    if name.startswith("name-regex(") and name.endswith(")"):
        return re.compile(name[len("name-regex(") : -1])
    return re.compile(re.escape(name))


def _scope(value: object, level: str, where: str) -> tuple[str, str] | None:
    names = _names("scope", value, where)
    if not names:
        return None
    if len(names) != 2:
        raise UsageError(f"{where}scope: expected the names of two records (from, to), got {len(names)} of them.")
    forms = [_RECORDS[level]] if level in _RECORDS else [*_RECORDS.values()]
    for name in names:
        if not any(form.fullmatch(name) for form, _ in forms):
            examples = " or ".join(example for _, example in forms)
            raise UsageError(f"{where}scope: expected the whole name of a record, such as {examples}, got {name!r}.")
    return names[0], names[1]


def _modes(value: object, where: str) -> tuple[str, ...]:
    if value is None or value == []:
        return ("all",)
    if not isinstance(value, list | tuple) or not all(mode in MODES for mode in value):
        raise UsageError(f"{where}data_mode: expected a list of {', '.join(MODES)}, got {value!r:.60}.")
    if "all" in value and len(value) > 1:
        raise UsageError(f"{where}data_mode: 'all' stands alone, got {value!r:.60}. Leave out 'all', or the others.")
    if len(value) >= len(MODES):
        raise UsageError(
            f"{where}data_mode: expected at most {len(MODES) - 1} of {', '.join(MODES)}, got {len(value)}."
        )
    return tuple(value)


def _allowed(value: object, file: Path | None, where: str) -> frozenset[str] | None:
    if value is None:
        return None
    if not isinstance(value, str) or not value:
        raise UsageError(f"{where}support_wrap_ops: expected the name of a YAML file, got {value!r:.60}.")
    return read_allowed(((file.parent if file else Path.cwd()) / value).absolute())


# --- support_wrap_ops.yaml --------------------------------------------------------------------------------------------

CATEGORIES: Mapping[str, str] = MappingProxyType(
    {
        "functional": "Functional", "tensor": "Tensor", "torch": "Torch", "_VF": "VF", "torch_npu": "NPU", "aten": "Aten",
        "distributed": "Distributed", "npu_distributed": "Distributed", "mindspeed": "MindSpeed",
        "ops": "Functional", "mint.ops": "Mint", "mint.nn.functional": "MintFunctional", "mint.distributed": "MintDistributed",
        "communication.comm_func": "Distributed",
    }
)  # fmt: skip
"""Category of the file -> prefix of records."""

_RULED = frozenset(CATEGORIES.values())


def read_allowed(path: Path) -> frozenset[str]:
    """The stems (`Functional.conv2d`) that a support_wrap_ops.yaml allows: lists of functions by category.

    Functions that a file does not name are not recorded. One that belongs to no category of the file's format (primitives,
    functions of other packages) is not the file's business and stays.
    """
    try:
        content = yaml.safe_load(path.read_bytes())
    except OSError as error:
        raise UsageError(f"support_wrap_ops: {path} cannot be read ({error.strerror}).") from None
    except yaml.YAMLError as error:
        raise UsageError(f"support_wrap_ops: {path} is not YAML ({' '.join(str(error).split())}).") from None
    if not isinstance(content, dict):
        raise UsageError(f"support_wrap_ops: {path}: expected categories with lists of functions, got {content!r:.60}.")
    allowed: set[str] = set()
    for category, functions in content.items():
        if category not in CATEGORIES:
            raise UsageError(
                f"support_wrap_ops: {path}: unknown category {category!r}, expected one of {', '.join(CATEGORIES)}."
            )
        names = functions or []
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise UsageError(
                f"support_wrap_ops: {path}: {category}: expected a list of names, got {functions!r:.60}. "
                f"Write each name in a line of its own, after a dash."
            )
        allowed |= {f"{CATEGORIES[category]}.{name.rpartition('.')[2]}" for name in names}
    return frozenset(allowed)


def is_allowed(stem: str, allowed: frozenset[str]) -> bool:
    """True if a function with this stem is recorded."""
    return stem in allowed or stem.partition(".")[0] not in _RULED
