"""Pairs of items of two dumps.

    pair_items(npu, bench)                                 by full name
    pair_items(npu, bench, PairingRules(fuzzy=True))             by name without the number of the call, in the same place
    pair_items(npu, bench, PairingRules(api_rules=rules))        -am: the rules, then what the project's alignment finds
    pair_items(npu, bench, PairingRules(cells={}))               -cm: Cell is Module, Dense is Linear, gamma is weight
    pair_items(npu, bench, PairingRules(items=names))            -dm: item by item
    pair_items(npu, bench, PairingRules(layers=rules))           -lm: layers by name, what is inside by the alignment

Rules may be combined: what files say counts first, then layers, APIs, cells, and in the end equal names. Every item of both
sides is in one pair, or alone; only a file may put one item of the bench beside several. A gradient belongs to the call whose
number it has, which is the call that it is the gradient of.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple

from .... import api
from ....model.pairs import Layout
from ....model.sites import Kind
from ..dumps import Dump, Item
from ..names import MODULES, RecordName, parse

if TYPE_CHECKING:
    from .aligned import Aligned
    from .mappings import ApiRule

_AS_IT_IS = Layout()
_Slot = tuple[str, str]
"""State and place of an item within its record: `("input", "0")`, `("parameters", "weight")`."""
_Module = tuple[str, str | None]
"""Path and class of a module; None for any class."""


class ItemPair(NamedTuple):
    """A row: two items that belong together, or one that has no partner, and why.

    `layout` is how the bench's tensor is to be laid to lie on the npu's: as it is, unless the pair was found by values.
    """

    npu: Item | None
    bench: Item | None
    because: str = ""
    layout: Layout = _AS_IT_IS


@dataclass(frozen=True, slots=True)
class Pairing:
    """All items of two dumps, in the order of the npu's; what only the bench has stands after what it came after there."""

    pairs: tuple[ItemPair, ...]
    remarks: tuple[str, ...] = ()

    @property
    def names(self) -> dict[str, str]:
        """Item -> item, of those that belong together."""
        return {pair.npu.name: pair.bench.name for pair in self.pairs if pair.npu and pair.bench}


@dataclass(frozen=True, slots=True)
class PairingRules:
    """Rules of pairing. None: not asked for. An empty table: asked for without a file."""

    fuzzy: bool = False
    api_rules: tuple[ApiRule, ...] | None = None
    cells: Mapping[str, str] | None = None
    items: Mapping[str, str] | None = None
    layers: Mapping[str, Mapping[str, str]] | None = None

    @property
    def mapped(self) -> bool:
        """True if any mapping was asked for."""
        return any(wish is not None for wish in (self.api_rules, self.cells, self.items, self.layers))


def pair_items(npu: Dump, bench: Dump, rules: PairingRules | None = None) -> Pairing:
    """Lay two dumps side by side."""
    rules = rules or PairingRules()
    pairs = _Pairs(npu, bench)
    aligned = rules.layers is not None or rules.api_rules is not None or rules.fuzzy
    if aligned:
        from .aligned import align_dumps  # equal names alone need none of it
    if rules.items is not None:
        pairs.follow_items(rules.items)
    if rules.cells:
        pairs.follow_modules(partial(_partner_of_cell, rules.cells, True), "the cell mapping says so")
        pairs.tell_unknown("cell", pairs.unknown_cells(rules.cells))
    modules: dict[str, str] = {}
    placed: list[tuple[str, str, bool]] = []
    if rules.layers is not None:
        from .layers import Layers

        layers = Layers(npu, bench, rules.layers)
        modules, placed = layers.modules(), layers.apis()
        pairs.follow_modules(partial(_partner_of_layer, modules, True), "the layer mapping says so")
        pairs.follow_modules(partial(_partner_of_layer, modules, False), "layers of the same name")
        pairs.follow_records(((one, two) for one, two, said in placed if said), "the layer mapping says so")
        pairs.tell_unknown("layer", layers.unknown())
    if rules.api_rules is not None:
        pairs.follow_rules(rules.api_rules)
    if rules.cells is not None:
        pairs.follow_modules(partial(_partner_of_cell, rules.cells, False), "Cell is Module")
    if rules.layers is not None:
        pairs.follow_alignment(align_dumps(npu, bench, modules))
    if rules.layers is not None or rules.api_rules is not None:
        pairs.follow_alignment(align_dumps(npu, bench, only_apis=True))
        rest = [(one, two) for one, two, _ in placed if pairs.is_free(one, two)]  # as the tool does
        pairs.follow_records(rest, "the same API in the same place of its layer")
    elif rules.fuzzy:
        pairs.follow_alignment(align_dumps(npu, bench), _same_but_for_the_number)
    # The alignment knows better than the numbers of APIs; across frameworks so do the modules around them.
    pairs.follow_names(() if not aligned and rules.cells is None else pairs.misplaced_apis(every=aligned))
    if rules.api_rules is not None and rules.cells is None and rules.layers is None:
        pairs.leave_modules("-am pairs APIs only; -cm pairs cells, -lm both")
    if npu.framework != bench.framework and not rules.mapped and {npu.framework, bench.framework} > {"mindspore"}:
        one, two = (framework or "an unknown framework" for framework in (npu.framework, bench.framework))
        pairs.remarks.append(
            f"{npu.path} is of {one} and {bench.path} of {two}, and no mapping was given: only equal names "
            f"were paired. Give -am for APIs, -cm for cells, or -lm for both."
        )
    return Pairing(tuple(pairs.pairs()), tuple(pairs.remarks))


def _same_but_for_the_number(one: str, two: str) -> bool:
    names = [parse(record) for record in (one, two)]
    ends = [
        (record, "") if name is None else (_stem(name), name.what)
        for record, name in zip((one, two), names, strict=True)
    ]
    return ends[0] == ends[1]


class _Pairs:
    """Pairs that have been found so far."""

    def __init__(self, npu: Dump, bench: Dump) -> None:
        self.remarks: list[str] = []
        self._dumps = (npu, bench)
        self._partner: dict[int, tuple[int, str, Layout]] = {}
        self._taken: set[int] = set()
        self._alone: dict[tuple[int, str], str] = {}
        self._closed: tuple[set[int], set[int]] = (set(), set())
        """Items that a file leaves out: they have no partner on purpose."""

    # Where each record's items, and those of one name, are on either side. Equal names alone are paired without.

    @cached_property
    def _records(self) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
        return _indexes(self._dumps[0].items, "record"), _indexes(self._dumps[1].items, "record")

    @cached_property
    def _names(self) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
        return _indexes(self._dumps[0].items, "name"), _indexes(self._dumps[1].items, "name")

    # --- the ways to pair -----------------------------------------------------------------------------------------------

    def follow_items(self, names: Mapping[str, str]) -> None:
        """Item to item, or record to record, as a file says."""
        because = "the data mapping says so"
        unknown: list[tuple[str, int]] = []
        for one, two in names.items():
            if one in self._names[0] and two in self._names[1]:
                for i, j in zip(self._names[0][one], self._names[1][two], strict=False):
                    self._pair(i, j, because, again=True)
            elif one in self._records[0] and two in self._records[1]:
                self._pair_records(one, two, because, again=True)
            else:
                unknown += [
                    (name, which)
                    for which, name in enumerate((one, two))
                    if name not in self._names[which] and name not in self._records[which]
                ]
        self.tell_unknown("data", unknown)

    def tell_unknown(self, file: str, unknown: Sequence[tuple[str, int]]) -> None:
        """Remark on the names in a file that its side (0 the npu, 1 the bench) does not have."""
        if unknown:
            shown = ", ".join(f"{name} ({('npu', 'bench')[which]})" for name, which in unknown[:4])
            more = f" and {len(unknown) - 4} more" if len(unknown) > 4 else ""
            self.remarks.append(f"the {file} mapping names what is not in the dumps: {shown}{more}.")

    def unknown_cells(self, cells: Mapping[str, str]) -> list[tuple[str, int]]:
        """The names in a cell mapping that no module of their side has."""
        owners = ["".join(f".{name.name}.{name.type}.\n" for _, name in _modules(records)) for records in self._records]
        sides = ((name, which) for pair in cells.items() for which, name in enumerate(pair))
        return [(name, which) for name, which in sides if f".{name}." not in owners[which]]

    def follow_modules(self, partner_of: Callable[[RecordName], _Module | None], because: str) -> None:
        """Modules call by call: `partner_of` gives path and class of a module's partner.

        What a file speaks of comes before everything else, so that no other pair takes its place in any direction.
        """
        theirs: dict[tuple[str, str, int], list[tuple[str, str]]] = {}
        for name, record in _modules(self._records[1]):
            theirs.setdefault((record.name, record.what, record.call), []).append((record.type, name))
        for name, record in _modules(self._records[0]):
            path, kind = partner_of(record) or ("", None)
            beside = theirs.get((path, record.what, record.call), [])
            if kind is not None:
                same = [pair for pair in beside if pair[0] == kind]
                beside = same or [pair for pair in beside if api.same_operation(pair[0], kind)]
            if beside:
                self._pair_records(name, beside[0][1], because)

    def follow_records(self, records: Iterable[tuple[str, str]], because: str) -> None:
        """Records that belong together, item by item."""
        for one, two in records:
            self._pair_records(one, two, because)

    def is_free(self, one: str, two: str) -> bool:
        """True if no item of these two records has a partner."""
        return all(self._free(0, i) for i in self._records[0][one]) and all(
            self._free(1, j) for j in self._records[1][two]
        )

    def follow_rules(self, rules: Sequence[ApiRule]) -> None:
        """APIs as a file says: the first call beside the first, arguments and results by their places."""
        ours, theirs = (_calls_of(records) for records in self._records)
        for rule in rules:
            if rule.ms_api not in ours or rule.pt_api not in theirs:
                missing = rule.ms_api if rule.ms_api not in ours else rule.pt_api
                where = self._dumps[rule.ms_api in ours].path
                self.remarks.append(f"{rule.file}: line {rule.line}: {missing} is not in {where}.")
                continue
            self._tell_range(rule, ours[rule.ms_api].values(), theirs[rule.pt_api].values())
            for key, name in ours[rule.ms_api].items():
                other = theirs[rule.pt_api].get(key)
                if other is not None:
                    placed = partial(_ruled, rule, key[1] == "backward")
                    self._pair_records(name, other, "the API mapping says so", placed=placed)
                    self._closed[0].update(self._records[0][name])
                    self._closed[1].update(self._records[1][other])

    def follow_alignment(self, aligned: Aligned, wanted: Callable[[str, str], bool] = lambda one, two: True) -> None:
        """Pairs of the alignment in records that are wanted together: tensors as it says, what is none by its place."""
        fitting = [
            (one, two, because)
            for one, two, because in aligned.records
            if one in self._records[0] and two in self._records[1] and wanted(one, two)
        ]
        for one, two, because in fitting:
            if _same_but_for_the_number(one, two):
                self._pair_records(one, two, because)
        for one, two, because, layout in aligned.items:
            i, j = self._names[0][one][0], self._names[1][two][0]
            if wanted(self._dumps[0].items[i].record, self._dumps[1].items[j].record):
                self._pair(i, j, because, layout)
        for one, two, because in fitting:
            self._pair_records(one, two, because, only=lambda item: not item.is_tensor)
        for which, names in enumerate(aligned.alone):
            for record, because in names.items():
                self._leave(which, record, because)

    def follow_names(self, barred: Collection[str]) -> None:
        """Equal names, however a generation of the tool spells them; not of the npu's records in `barred`."""
        spellings: tuple[tuple[Callable[[Item], object], str], ...] = (
            (lambda item: item.name, "same name"),
            (_loose, "same name, spelt as another generation of the tool does"),
        )
        for spelling, told in spellings:
            paired, taken = self._partner.keys() | self._closed[0], self._taken | self._closed[1]
            others: dict[object, list[int]] = {}
            for j, item in enumerate(self._dumps[1].items):
                if j not in taken:
                    others.setdefault(spelling(item), []).append(j)
            if not others:
                break
            for i, item in enumerate(self._dumps[0].items):
                if i not in paired and item.record not in barred and (free := others.get(spelling(item))):
                    self._pair(i, free.pop(0), told)

    def misplaced_apis(self, *, every: bool) -> set[str]:
        """The npu's records of APIs in modules that are not those of the bench's records of that name; or of every API."""
        names = ((record, parse(record)) for record in self._records[0])
        apis = [record for record, name in names if name is not None and name.kind is Kind.API]
        return {record for record in apis if every or not self._same_place(record)}

    def leave_modules(self, because: str) -> None:
        """Say of the modules without a partner that they were not looked at, and why."""
        for which, records in enumerate(self._records):
            for name, _ in _modules(records):
                self._leave(which, name, because)

    def _leave(self, which: int, record: str, because: str) -> None:
        for index in self._records[which].get(record, ()):
            self._alone[which, self._dumps[which].items[index].name] = because

    def _same_place(self, record: str) -> bool:
        ours, theirs = (dump.construct.get(record) for dump in self._dumps)
        if ours is None or theirs is None:
            return True
        partners = (self._partner.get(i) for i in self._records[0].get(ours, ()))
        beside = {self._dumps[1].items[partner[0]].record for partner in partners if partner is not None}
        return not beside or theirs in beside

    # --- pairs ----------------------------------------------------------------------------------------------------------

    def _free(self, which: int, index: int) -> bool:
        return index not in (self._taken if which else self._partner) and index not in self._closed[which]

    def _pair(self, i: int, j: int, because: str, layout: Layout = _AS_IT_IS, *, again: bool = False) -> None:
        if self._free(0, i) and (again or self._free(1, j)):
            self._partner[i] = (j, because, layout)
            self._taken.add(j)

    def _pair_records(
        self,
        one: str,
        two: str,
        because: str,
        *,
        placed: Callable[[_Slot], _Slot | None] = lambda slot: slot,
        again: bool = False,
        only: Callable[[Item], bool] = lambda item: True,
    ) -> None:
        """The items of two records: by place (`placed` gives the bench's for the npu's), then by what a parameter is."""
        npu, bench = self._dumps
        for slot_of in (_slot, _role):
            places: dict[_Slot | None, list[int]] = {}
            for j in self._records[1][two]:
                if (again or self._free(1, j)) and only(bench.items[j]):
                    places.setdefault(slot_of(bench.items[j]), []).append(j)
            for i in self._records[0][one]:
                slot = slot_of(npu.items[i]) if i not in self._partner and only(npu.items[i]) else None
                free = places.get(placed(slot), []) if slot is not None else []
                if free and self._free(0, i):
                    self._pair(i, free.pop(0), because, again=again)

    def _tell_range(self, rule: ApiRule, ours: Collection[str], theirs: Collection[str]) -> None:
        """Remark on a place that no call of the API has. Nothing stands there, so nothing is paired; the document has such."""
        for which, (side, name, records) in enumerate((("ms", rule.ms_api, ours), ("pt", rule.pt_api, theirs))):
            forward = [record for record in records if record.endswith(".forward")]
            there = [_slot(self._dumps[which].items[i]) for record in forward for i in self._records[which][record]]
            for state, key in (("input", "args"), ("output", "outputs")):
                slots = rule.slots(state)
                if slots is None or not forward:
                    continue
                heads = {place.split(".")[0] for found, place in there if found == state}
                count = max((int(head) + 1 for head in heads if head.isdecimal()), default=0)
                places, line = (slots.pt, slots.pt_line) if which else (slots.ms, slots.ms_line)
                self.remarks += [
                    f"{rule.file}: line {line}: {side}_{key}: {place} is out of range: in {self._dumps[which].path} "
                    f"{name} has {count} of them, counted from 0. It is passed over."
                    for place in places
                    if isinstance(place, int) and place >= count
                ]

    def pairs(self) -> Iterator[ItemPair]:
        """Everything, in the order of the npu's dump; what only the bench has follows the record that it came after there."""
        npu, bench = self._dumps
        after = self._leftovers() if len(self._taken) < len(bench.items) else {}
        yield from (self._lonely(1, j) for j in after.get(-1, ()))
        for i, item in enumerate(npu.items):
            partner = self._partner.get(i)
            if partner is None:
                yield self._lonely(0, i)
            else:
                j, because, layout = partner
                yield ItemPair(item, bench.items[j], because, layout)
            if i in after:
                yield from (self._lonely(1, j) for j in after[i])

    def _leftovers(self) -> dict[int, list[int]]:
        """Items that only the bench has, by the item of the npu's that they follow, or -1.

        That is the end of the npu's record that their own record, or else the one before it, stands beside.
        """
        ends = {i: indexes[-1] for indexes in self._records[0].values() for i in indexes}
        of_bench = {j: ends[i] for i, (j, _, _) in sorted(self._partner.items(), reverse=True)}
        found: dict[int, list[int]] = {}
        last = -1
        for indexes in self._records[1].values():
            last = max((of_bench[j] for j in indexes if j in of_bench), default=last)
            found.setdefault(last, []).extend(j for j in indexes if j not in self._taken)
        return {anchor: sorted(indexes) for anchor, indexes in found.items()}

    def _lonely(self, which: int, index: int) -> ItemPair:
        item, other = self._dumps[which].items[index], ("the bench", "the npu")[which]
        because = self._alone.get((which, item.name)) or f"{other} has nothing that belongs to it"
        if index in self._closed[which]:
            because = "the API mapping leaves it out"
        return ItemPair(None, item, because) if which else ItemPair(item, None, because)


# --- slots ------------------------------------------------------------------------------------------------------------


def _indexes(items: Sequence[Item], key: str) -> dict[str, list[int]]:
    """Places of the items by one of their fields."""
    indexes: dict[str, list[int]] = {}
    for index, item in enumerate(items):
        indexes.setdefault(getattr(item, key), []).append(index)
    return indexes


def _slot(item: Item) -> _Slot:
    """Slot of an item in its record. The tool calls an argument by name `kwargs.dim` where values were kept."""
    place = item.name.removeprefix(f"{item.record}.")
    for word in (f"{item.state}.", "kwargs."):
        if place.startswith(word):
            return item.state, place.removeprefix(word)
    return item.state, place


def _role(item: Item) -> _Slot | None:
    """The same, with parameters called by what they are: gamma is a weight."""
    state, place = _slot(item)
    return (state, api.parameter_role(place)) if state in ("parameters", "parameters_grad") else None


def _loose(item: Item) -> tuple[str, _Slot]:
    """The name of an item, however its generation spells it."""
    record = item.record
    if item.state == "parameters_grad":
        record = record.partition(".parameters_grad")[0]
    return record, _slot(item)


def _ruled(rule: ApiRule, backward: bool, slot: _Slot) -> _Slot | None:
    """Slot on the other side, as a rule says; None if it leaves the item out. A gradient goes with what it is the gradient of."""
    state, place = slot
    turned = {"input": "output", "output": "input"}.get(state, state) if backward else state
    slots = rule.slots(turned)
    if slots is None:
        return slot
    head, dot, rest = place.partition(".")
    return next(
        ((state, f"{two}{dot}{rest}") for one, two in zip(slots.ms, slots.pt, strict=True) if str(one) == head), None
    )


# --- modules, calls ---------------------------------------------------------------------------------------------------


def _modules(records: Iterable[str]) -> Iterator[tuple[str, RecordName]]:
    for name in records:
        record = parse(name)
        if record is not None and record.prefix in MODULES:
            yield name, record


def _calls_of(records: Iterable[str]) -> dict[str, dict[tuple[int, str], str]]:
    """The records of each API, by number and direction."""
    calls: dict[str, dict[tuple[int, str], str]] = {}
    for name in records:
        record = parse(name)
        if record is not None:
            calls.setdefault(_stem(record), {})[record.call, record.what] = name
    return calls


def _stem(record: RecordName) -> str:
    """`Functional.conv2d`: what mapping files call it."""
    return ".".join(filter(None, (record.prefix, record.name, record.type)))


def _partner_of_layer(modules: Mapping[str, str], said: bool, record: RecordName) -> _Module | None:
    """The path that belongs to a module's: one to which a file gives another (`said`), or that keeps its own."""
    path = modules.get(record.name)
    return (path, None) if path is not None and said == (path != record.name) else None


def _partner_of_cell(cells: Mapping[str, str], said: bool, record: RecordName) -> _Module | None:
    """Path and class on the other side: of the cells that a file speaks of (`said`), as a whole or with the stretches of their
    names that it speaks of; or those of the others, which are their own."""
    own = f"{record.name}.{record.type}"
    parts = cells.get(own, own).split(".")
    for one, two in cells.items() if own not in cells else ():
        wanted = one.split(".")
        for start in range(len(parts) - len(wanted) + 1):
            if parts[start : start + len(wanted)] == wanted:
                parts[start : start + len(wanted)] = two.split(".")
                break
    if said != (own in cells or ".".join(parts) != own):
        return None
    return ".".join(parts[:-1]), parts[-1]
