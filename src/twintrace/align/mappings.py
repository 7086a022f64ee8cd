"""Pairs in a file that can be read, edited and given back.

    mapping: 1                                   the version of this notation
    modules:                                     paths of modules, left: right
      encoder.fc1: enc.dense_in
    calls:                                       addresses of calls, left: right
      forward/api:torch.relu#3: forward/api:mindspore.ops.relu#1
    regions:                                     several calls that do together what others do
      - left: [forward/api:torch.nn.functional.scaled_dot_product_attention#0]
        right: [forward/api:mindspore.ops.matmul#0, forward/api:mindspore.ops.softmax#0]
    tensors:                                     slots of a module or call (by its left name), left: right
      encoder.fc1: {kw.mask: "1"}
    layouts:                                     parameters (by their left name): axes of the right one, in the left one's order
      encoder.fc1.weight: [1, 0]
    placements:                                  tensors of the ranks: parts of the whole, where that is inferred wrongly
      right:
        mesh: [2, 2]
        tensors: {encoder.fc1.weight: [replicate, shard(0)]}
    ignore:                                      paths, addresses or patterns of what is to be left out
      left: [encoder.dropout, "*torch.Tensor.to#*"]
      right: []

Every part may be left out, and what the file does not speak of is found as without it. docs/explanation/pairing.md says more.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Mapping as Table
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import yaml

from ..model.errors import UsageError
from ..model.pairs import Alignment, Declared, Layout, Match, Part
from ..model.records import Call
from ..model.sites import Kind

VERSION = 1
_PARTS = ("mapping", "modules", "calls", "regions", "tensors", "layouts", "placements", "ignore")


@dataclass(frozen=True)
class Region:
    """Addresses of calls that do together what others do."""

    left: tuple[str, ...]
    right: tuple[str, ...]


@dataclass(frozen=True)
class Mapping:
    """Contents of a mapping file. All names are as in a trace: module paths, addresses of calls, slots."""

    modules: Table[str, str] = field(default_factory=dict)
    calls: Table[str, str] = field(default_factory=dict)
    regions: tuple[Region, ...] = ()
    tensors: Table[str, Table[str, str]] = field(default_factory=dict)
    layouts: Table[str, Layout] = field(default_factory=dict)
    ignore_left: tuple[str, ...] = ()
    ignore_right: tuple[str, ...] = ()
    placements: tuple[Declared, Declared] = (Declared(), Declared())
    """Of the left and of the right side."""

    def ignores(self, which: int, call: Call) -> bool:
        """Is this call to be left out? `which` is 0 for the left side."""
        names = (str(call.site), call.site.name if call.site.kind is Kind.MODULE else "")
        return any(
            fnmatch.fnmatchcase(name, pattern)
            for pattern in (self.ignore_right if which else self.ignore_left)
            for name in names
            if name
        )


class Unused:
    """Finds the names of a mapping that occur in none of the steps and ranks that were compared: one file serves them all."""

    def __init__(self, mapping: Mapping) -> None:
        self._mapping = mapping
        self._seen: tuple[set[str], set[str]] = (set(), set())  # paths of modules, addresses, full names of parameters

    def saw(self, left: Iterable[Call], right: Iterable[Call]) -> None:
        """One step of one rank."""
        for seen, calls in zip(self._seen, (left, right), strict=True):
            for call in calls:
                seen.add(str(call.site))
                if call.site.kind is Kind.MODULE:
                    seen.add(call.site.name)
                    prefix = f"{call.site.name}." if call.site.name else ""
                    seen.update(f"{prefix}{name}" for name in (*call.parameters, *call.buffers))

    def sentence(self) -> str:
        """Sentence about names that are not there; empty if all are."""
        found = [f"{side} {name!r} ({part})" for part, side, name in self._absent()]
        if not found:
            return ""
        more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        return f"The mapping names what is not in the traces, and is without effect there: {', '.join(found[:_SHOWN])}{more}."

    def _absent(self) -> Iterator[tuple[str, str, str]]:
        said = self._mapping
        for part, names in (("modules", said.modules.items()), ("calls", said.calls.items())):
            for left, right in names:
                yield from self._either(part, (left,), (right,))
        for region in said.regions:
            yield from self._either("regions", region.left, region.right)
        yield from self._either("tensors", tuple(said.tensors), ())
        yield from self._either("layouts", tuple(said.layouts), ())
        for part, of_sides in (
            ("ignore", (said.ignore_left, said.ignore_right)),
            ("placements", tuple(declared.tensors for declared in said.placements)),
        ):
            for side, patterns in enumerate(of_sides):
                for pattern in patterns:
                    if not any(fnmatch.fnmatchcase(name, pattern) for name in self._seen[side]):
                        yield part, _SIDES[side], pattern

    def _either(self, part: str, left: Sequence[str], right: Sequence[str]) -> Iterator[tuple[str, str, str]]:
        for side, names in enumerate((left, right)):
            for name in names:
                if name not in self._seen[side]:
                    yield part, _SIDES[side], name


_SIDES = ("left", "right")
_SHOWN = 6


def load(path: Path) -> Mapping:
    """Read a mapping file. What it must not hold is an error that names the line."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: the mapping cannot be read ({error}).") from None
    return loads(text, str(path))


def loads(text: str, name: str = "mapping") -> Mapping:
    """The same from a text."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f"line {mark.line + 1}: " if mark else ""
        problem = getattr(error, "problem", None) or str(error)
        raise UsageError(f"{name}: {line}not YAML: {problem}.") from None
    return _Reader(name).mapping(root)


class _Reader:
    """Walks the nodes of a YAML document, which know their lines."""

    def __init__(self, name: str) -> None:
        self._name = name

    def mapping(self, root: Any) -> Mapping:
        if root is None:
            raise UsageError(f"{self._name}: the mapping is empty. Begin it with `mapping: {VERSION}`.")
        parts = self._table(root, "the mapping", _PARTS)
        version = parts.get("mapping")
        if version is None or self._plain(version) != str(VERSION):
            self._refuse(version or root, f"expected `mapping: {VERSION}`, the version of this notation")
        ignore = self._table(parts["ignore"], "ignore", ("left", "right")) if "ignore" in parts else {}
        placements = self._table(parts.get("placements"), "placements", _SIDES)
        return Mapping(
            self._names(parts.get("modules"), "modules"),
            self._names(parts.get("calls"), "calls", address=True),
            tuple(map(self._region, self._items(parts.get("regions"), "regions"))),
            {
                owner: self._names(node, f"tensors of {owner}", unique=False)
                for owner, node in self._table(parts.get("tensors"), "tensors").items()
            },
            {owner: self._layout(node) for owner, node in self._table(parts.get("layouts"), "layouts").items()},
            tuple(map(self._text, self._items(ignore.get("left"), "ignore.left"))),
            tuple(map(self._text, self._items(ignore.get("right"), "ignore.right"))),
            (self._declared(placements.get("left"), "left"), self._declared(placements.get("right"), "right")),
        )

    def _declared(self, node: Any, side: str) -> Declared:
        parts = self._table(node, f"placements.{side}", ("mesh", "tensors"))
        mesh = [self._plain(item) for item in self._items(parts.get("mesh"), f"placements.{side}.mesh")]
        if not all(length.isdigit() and int(length) for length in mesh):
            self._refuse(parts["mesh"], "a mesh is a list of lengths, such as [2, 4]")
        tensors = self._table(parts.get("tensors"), f"placements.{side}.tensors")
        return Declared(tuple(map(int, mesh)), {name: self._placements(item) for name, item in tensors.items()})

    def _placements(self, node: Any) -> tuple[str, ...]:
        items = node.value if isinstance(node, yaml.SequenceNode) else [node]
        texts = tuple(" ".join(self._text(item).split()) for item in items)
        if not texts or not all(_PLACEMENT.fullmatch(text) for text in texts):
            self._refuse(
                node,
                "a placement is shard(0), shard(0) in 3 blocks, replicate, sum or mean, or a list of these, one for each axis "
                "of the mesh",
            )
        return texts

    def _names(self, node: Any, what: str, *, address: bool = False, unique: bool = True) -> dict[str, str]:
        table = self._table(node, what)
        seen: dict[str, str] = {}
        for left, right in table.items():
            text = self._text(right)
            if address and not (_ADDRESS.fullmatch(left) and _ADDRESS.fullmatch(text)):
                self._refuse(right, f"{what}: expected two addresses such as forward/api:torch.relu#3")
            if unique and text in seen:
                self._refuse(right, f"{what}: {text!r} is the partner of {seen[text]!r} already")
            seen[text] = left
        return {left: self._text(right) for left, right in table.items()}

    def _region(self, node: Any) -> Region:
        sides = self._table(node, "a region", ("left", "right"))
        calls = [tuple(map(self._text, self._items(sides.get(side), f"region.{side}"))) for side in ("left", "right")]
        if not all(calls):
            self._refuse(node, "a region needs calls on both sides: `left: [...]` and `right: [...]`")
        return Region(calls[0], calls[1])

    def _layout(self, node: Any) -> Layout:
        if isinstance(node, yaml.ScalarNode) and node.value == "reshaped":
            return Layout(None, True)
        if isinstance(node, yaml.ScalarNode) and node.value == "as it is":
            return Layout()
        axes = [self._plain(item) for item in self._items(node, "a layout")]
        if sorted(axes) != [str(axis) for axis in range(len(axes))] or not axes:
            self._refuse(node, "a layout is a list of all axes, such as [1, 0], or `reshaped`, or `as it is`")
        return Layout(tuple(map(int, axes)))

    def _table(self, node: Any, what: str, allowed: Sequence[str] | None = None) -> dict[str, Any]:
        if node is None or (isinstance(node, yaml.ScalarNode) and node.tag.endswith(":null")):
            return {}
        if not isinstance(node, yaml.MappingNode):
            self._refuse(node, f"{what}: expected `name: …` lines, found {_kind(node)}")
        found: dict[str, Any] = {}
        for key, value in node.value:
            name = self._text(key)
            if allowed is not None and name not in allowed:
                self._refuse(key, f"{what}: unknown part {name!r}; there are {', '.join(allowed)}")
            if name in found:
                self._refuse(key, f"{what}: {name!r} is there twice")
            found[name] = value
        return found

    def _items(self, node: Any, what: str) -> list[Any]:
        if node is None or (isinstance(node, yaml.ScalarNode) and node.tag.endswith(":null")):
            return []
        if not isinstance(node, yaml.SequenceNode):
            self._refuse(node, f"{what}: expected a list, found {_kind(node)}")
        return list(node.value)

    def _text(self, node: Any) -> str:
        if not isinstance(node, yaml.ScalarNode):
            self._refuse(node, f"expected a name, found {_kind(node)}")
        return str(node.value)

    def _plain(self, node: Any) -> str:
        return node.value if isinstance(node, yaml.ScalarNode) else ""

    def _refuse(self, node: Any, why: str) -> NoReturn:
        raise UsageError(f"{self._name}: line {node.start_mark.line + 1}: {why}.")


_PLACEMENT = re.compile(r"replicate|sum|mean|shard\(\d+\)( in [1-9]\d* blocks)?")
_ADDRESS = re.compile(r"(forward|backward|recompute|update)/(module|api|op|save):.*#\d+")


def _kind(node: Any) -> str:
    return {yaml.SequenceNode: "a list", yaml.MappingNode: "a table"}.get(type(node), "a plain text")


# --- writing --------------------------------------------------------------------------------------------------------


def mapping_of(alignment: Alignment) -> Mapping:
    """An alignment as a mapping: given back, it leads to the same pairs."""
    single = [match for match in alignment.matches if len(match.left) == len(match.right) == 1]
    modules = _paths(single)
    calls = {}
    for match in single:
        one, two = match.left[0].site, match.right[0].site
        covered = one.kind is two.kind is Kind.MODULE and modules.get(one.name) == two.name
        if not covered:
            calls[str(one)] = str(two)
    return Mapping(
        modules,
        calls,
        tuple(
            Region(tuple(str(call.site) for call in match.left), tuple(str(call.site) for call in match.right))
            for match in alignment.matches
            if len(match.left) > 1 or len(match.right) > 1
        ),
        layouts=dict(_layouts(single)),
    )


def _paths(matches: Sequence[Match]) -> dict[str, str]:
    """Modules all of whose calls belong together, the first with the first and so on."""
    partners: dict[str, set[str]] = {}
    backwards: dict[str, set[str]] = {}
    for match in matches:
        one, two = match.left[0].site, match.right[0].site
        if one.kind is Kind.MODULE or two.kind is Kind.MODULE:
            same = one.kind is two.kind and one.call == two.call and one.phase is two.phase
            partners.setdefault(one.name, set()).add(two.name if same else "")
            backwards.setdefault(two.name, set()).add(one.name if same else "")
    return {
        left: right
        for left, names in partners.items()
        for right in names
        if right and len(names) == 1 and len(backwards[right]) == 1
    }


def _layouts(matches: Sequence[Match]) -> Iterator[tuple[str, Layout]]:
    for match in matches:
        site = match.left[0].site
        if site.kind is Kind.MODULE:
            for pair in match.tensors:
                if pair.part is Part.PARAMETER and pair.layout != Layout():
                    yield f"{site.name}.{pair.left_slot}" if site.name else pair.left_slot, pair.layout


def dumps(mapping: Mapping) -> str:
    """A mapping as the text of its file."""
    parts: dict[str, Any] = {
        "modules": dict(mapping.modules),
        "calls": dict(mapping.calls),
        "regions": [{"left": list(region.left), "right": list(region.right)} for region in mapping.regions],
        "tensors": {owner: dict(slots) for owner, slots in mapping.tensors.items()},
        "layouts": {owner: _written(layout) for owner, layout in mapping.layouts.items()},
        "placements": {
            side: {
                name: part
                for name, part in (("mesh", list(declared.mesh)), ("tensors", _told(declared.tensors)))
                if part
            }
            for side, declared in zip(_SIDES, mapping.placements, strict=True)
            if declared
        },
        "ignore": {
            side: list(names)
            for side, names in (("left", mapping.ignore_left), ("right", mapping.ignore_right))
            if names
        },
    }
    kept = {"mapping": VERSION} | {name: part for name, part in parts.items() if part}
    return str(yaml.safe_dump(kept, sort_keys=False, allow_unicode=True, width=1000))


def _told(tensors: Table[str, tuple[str, ...]]) -> dict[str, str | list[str]]:
    return {name: texts[0] if len(texts) == 1 else list(texts) for name, texts in tensors.items()}


def _written(layout: Layout) -> list[int] | str:
    return list(layout.axes) if layout.axes is not None else str(layout)
