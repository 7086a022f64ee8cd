"""The four mapping files, read and held to their rules.

    -am  ms_api: Functional.abs          -cm  fc2.Dense: fc2.Linear
         pt_api: Torch.abs               -dm  Functional.abs.0.forward.input.0: Torch.abs.0.forward.input.0
         ms_args: [0, 1]                 -lm  ParallelMLP:
         pt_args: [0, 2]                        mapping: dense_h_to_4h

A file may hold several YAML documents, and the API file a list as well. Keys are spelt as in the document (`ms_outputs`) or as
the tool reads them (`ms_output`). A file that breaks a rule is refused by file, line and key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import yaml

from .... import api
from ....model.errors import UsageError
from .request import text_in

TOP = "TopLayer"
"""Stands above all layers; older files call it Cell."""

Slot = int | str
"""The place of an argument, or the name of one that is given by name."""

# State of the items that a list is for -> its names in the document and in the tool.
_LISTS = {
    "input": ("args",),
    "output": ("outputs", "output"),
    "parameters": ("parameters",),
    "parameters_grad": ("parameters_grad",),
}
_RULE_KEYS = (
    "ms_api",
    "pt_api",
    *(f"{side}_{name}" for names in _LISTS.values() for name in names for side in ("ms", "pt")),
)
_SUFFIX = re.compile(r"\.(npy|pt)$")
_MISSING = {"N/A", ""}
"""Written by the tool where nothing belongs to an item."""


class Slots(NamedTuple):
    """Slots of the two sides that belong together, and the lines that say so."""

    ms: tuple[Slot, ...]
    pt: tuple[Slot, ...]
    lines: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class ApiRule:
    """One API of MindSpore beside one of PyTorch. `slots` are by the state of items; a state without: all, each by its namesake."""

    ms_api: str
    pt_api: str
    slots: Mapping[str, Slots]
    file: str
    line: int


def read_api_mapping(path: Path) -> tuple[ApiRule, ...]:
    """The rules of an API mapping file, in their order."""
    file = _File(path)
    rules: dict[str, ApiRule] = {}
    for document in file.documents():
        for node in document.value if isinstance(document, yaml.SequenceNode) else [document]:
            rule = _rule(file, node)
            if rule.ms_api in rules:
                file.refuse(node, f"ms_api: {rule.ms_api} has a partner already, in line {rules[rule.ms_api].line}")
            rules[rule.ms_api] = rule
    return tuple(rules.values())


def read_cell_mapping(path: Path) -> dict[str, str]:
    """`fc2.Dense` -> `fc2.Linear`; a class alone (`Dense` -> `Linear`) stands for all cells of it."""
    file = _File(path)
    cells: dict[str, str] = {}
    for key, value in file.pairs():
        left, right = file.word(key), file.word(value)
        file.add(cells, key, left.removeprefix("Cell."), right.removeprefix("Module."), once=not _is_class(right))
    return cells


def read_data_mapping(path: Path) -> dict[str, str]:
    """Item -> item, by the full names of dump.json; a file's suffix (`.npy`) is not part of a name."""
    file = _File(path)
    items: dict[str, str] = {}
    for key, value in file.pairs():
        left, right = _SUFFIX.sub("", file.text(key)), file.text(value)
        if right in _MISSING:
            continue
        for node, name in ((key, left), (value, right)):
            if name.count(".") < 2:
                file.refuse(
                    node, f"{name}: expected the full name of an item, such as Functional.abs.0.forward.input.0"
                )
        file.add(items, key, left, _SUFFIX.sub("", right))
    return items


def read_layer_mapping(path: Path) -> dict[str, dict[str, str]]:
    """Class of a layer (or its name, where it has no record) -> name of a layer inside it -> what the other side calls that."""
    file = _File(path)
    layers: dict[str, dict[str, str]] = {}
    for key, value in file.pairs():
        name = file.text(key)
        inner = layers.setdefault(TOP if name in ("Cell", TOP) else name, {})
        for left, right in file.table(value, name):
            file.add(inner, left, file.text(left), file.text(right).split("(")[0].strip(), once=True)
    return layers


def write_data_mapping(path: Path, pairs: Mapping[str, str]) -> None:
    """Item -> item as a file that `-dm` takes."""
    # Ten times as fast; its reader is not used, it can be crashed.
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text = yaml.dump(dict(pairs), Dumper=dumper, sort_keys=False, allow_unicode=True, width=10_000) if pairs else ""
    api.write_text(path, text)


# --- rules of an API mapping ------------------------------------------------------------------------------------------


def _rule(file: _File, node: Any) -> ApiRule:
    parts: dict[str, Any] = {}
    for key, value in file.table(node, "an API mapping"):
        name = file.text(key)
        if name not in _RULE_KEYS:
            file.refuse(key, f"unknown key {name!r}: expected {', '.join(_RULE_KEYS)}")
        if name in parts:
            file.refuse(key, f"{name}: is there twice")
        parts[name] = value
    names = {}
    for key in ("ms_api", "pt_api"):
        if key not in parts:
            file.refuse(node, f"{key}: is missing; each mapping names both APIs, ms_api and pt_api")
        names[key] = file.text(parts[key])
        if not all(names[key].split(".")[:2]) or "." not in names[key]:
            file.refuse(
                parts[key], f"{key}: expected {{api_type}}.{{api_name}}, such as Functional.abs, got {names[key]!r}"
            )
    slots = {state: _slots(file, parts, spellings) for state, spellings in _LISTS.items()}
    known = {state: both for state, both in slots.items() if both is not None}
    return ApiRule(names["ms_api"], names["pt_api"], known, file.name, node.start_mark.line + 1)


def _slots(file: _File, parts: Mapping[str, Any], spellings: Sequence[str]) -> Slots | None:
    """Two lists of equal length, without repetition."""
    given: list[tuple[str, Any]] = []
    for side in ("ms", "pt"):
        keys = [f"{side}_{spelling}" for spelling in spellings if f"{side}_{spelling}" in parts]
        if len(keys) > 1:
            file.refuse(parts[keys[1]], f"{keys[1]}: is the same as {keys[0]}; give one of them")
        given.append((keys[0], parts[keys[0]]) if keys else (f"{side}_{spellings[0]}", None))
    nodes = [node for _, node in given if node is not None]
    if not nodes:
        return None
    ms, pt = (_places(file, key, node) for key, node in given)
    if len(ms) != len(pt):
        keys = [key for key, _ in given]
        file.refuse(nodes[0], f"{', '.join(keys)}: expected as many in both lists, got {len(ms)} and {len(pt)}")
    return Slots(ms, pt, (nodes[0].start_mark.line + 1, nodes[-1].start_mark.line + 1))


def _places(file: _File, key: str, node: Any) -> tuple[Slot, ...]:
    if node is None:
        return ()
    if not isinstance(node, yaml.SequenceNode):
        file.refuse(node, f"{key}: expected a list of places, such as [0, 1], found {_kind(node)}")
    seen: list[Slot] = []
    for entry in node.value:
        text = file.text(entry)
        whole = re.fullmatch(r"\+?\d+", text) is not None
        if not (whole or text.isidentifier()) or entry.tag.endswith((":bool", ":null")):
            file.refuse(entry, f"{key}: expected a place (0, 1, 2, …) or the name of an argument, got {text!r}")
        place: Slot = int(text) if whole else text
        if place in seen:
            file.refuse(entry, f"{key}: {text} is there twice; a place may be given once")
        seen.append(place)
    return tuple(seen)


# --- the file ---------------------------------------------------------------------------------------------------------


class _File:
    """The documents of a YAML file as nodes, which know their lines."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        text = text_in(path, "a YAML file")
        try:
            self._nodes = [node for node in yaml.compose_all(text, Loader=yaml.SafeLoader) if not _is_null(node)]
        except (yaml.YAMLError, RecursionError) as error:
            mark = getattr(error, "problem_mark", None)
            line = f"line {mark.line + 1}: " if mark else ""
            raise UsageError(
                f"{path}: {line}not YAML: {getattr(error, 'problem', None) or str(error).splitlines()[0]}."
            ) from None

    def documents(self) -> list[Any]:
        if not self._nodes:
            raise UsageError(f"{self.name}: the mapping is empty. Leave it out, or say in it what belongs together.")
        return self._nodes

    def pairs(self) -> list[tuple[Any, Any]]:
        """The `key: value` lines of all documents, one after the other."""
        return [pair for document in self.documents() for pair in self.table(document, "the mapping")]

    def table(self, node: Any, what: str) -> list[tuple[Any, Any]]:
        if not isinstance(node, yaml.MappingNode):
            self.refuse(node, f"{what}: expected `key: value` lines, found {_kind(node)}")
        return list(node.value)

    def text(self, node: Any) -> str:
        if not isinstance(node, yaml.ScalarNode):
            self.refuse(node, f"expected a name, found {_kind(node)}")
        return str(node.value).strip()

    def word(self, node: Any) -> str:
        """A name that is no number, and neither true nor false."""
        text = self.text(node)
        if text and not node.tag.endswith(":str"):
            self.refuse(node, f"expected a name, such as fc2.Dense, got {node.value} ({node.tag.rpartition(':')[2]})")
        return text

    def add(self, names: dict[str, str], node: Any, left: str, right: str, *, once: bool = False) -> None:
        """`once`: the name on the right may stand there once only."""
        if not left or not right:
            self.refuse(node, f"{left or right or 'an empty name'}: expected a name on both sides of the colon")
        first = next((name for name, target in names.items() if target == right), "") if once else ""
        for name, other in ((left, names.get(left)), (right, first)):
            if other:
                self.refuse(node, f"{name}: is there twice; it stands beside {other} already")
        names[left] = right

    def refuse(self, node: Any, why: str) -> NoReturn:
        raise UsageError(f"{self.name}: line {node.start_mark.line + 1}: {why}.")


def _is_class(name: str) -> bool:
    """`Linear`: a class may be the partner of several."""
    return "." not in name and name[:1].isupper()


def _is_null(node: Any) -> bool:
    return node is None or (isinstance(node, yaml.ScalarNode) and node.tag.endswith(":null"))


def _kind(node: Any) -> str:
    if isinstance(node, yaml.ScalarNode):
        return f"the text {node.value!r}"
    return "a list" if isinstance(node, yaml.SequenceNode) else "a table"
