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
from typing import TYPE_CHECKING, Any, NamedTuple

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
_Partner = tuple[str | None, str | None, bool]
"""Path and class of a module's partner (None: of any class), and whether a file says so."""
_Proposal = tuple[str, str, bool]
"""Records that may belong together, the npu's and the bench's, and whether a file says so."""


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
    modules: dict[str, str] = {}
    cells: list[_Proposal] = []
    layers: list[_Proposal] = []
    placed: list[_Proposal] = []
    # What a file speaks of comes before everything else, so that no other pair takes its place in any direction.
    if rules.items is not None:
        pairs.follow_items(rules.items)
    if rules.cells is not None:
        cells = [*pairs.modules(partial(_partner_of_cell, rules.cells))]
        pairs.follow_records(cells, True, "the cell mapping says so")
        pairs.tell_unknown("cell", missing_names(rules.cells.items(), [side.cells for side in pairs.sides]))
    if rules.layers is not None:
        from .layers import Layers

        tree = Layers(npu, bench, rules.layers)
        modules, placed = tree.modules(), tree.apis()
        layers = [*pairs.modules(lambda name: (modules.get(name.name), None, modules.get(name.name) != name.name))]
        pairs.follow_records(layers, True, "the layer mapping says so")
        pairs.follow_records(layers, False, "layers of the same name")
        pairs.follow_records(placed, True, "the layer mapping says so")
        pairs.tell_unknown("layer", tree.unknown())
    if rules.api_rules is not None:
        pairs.follow_rules(rules.api_rules)
    pairs.follow_records(cells, False, "Cell is Module")
    if rules.layers is not None:
        pairs.follow_alignment(align_dumps(npu, bench, modules))
    if rules.layers is not None or rules.api_rules is not None:
        pairs.follow_alignment(align_dumps(npu, bench, only_apis=True))
        rest = [proposal for proposal in placed if pairs.are_free(*proposal[:2])]  # as the tool does
        pairs.follow_records(rest, False, "the same API in the same place of its layer")
    elif rules.fuzzy:
        pairs.follow_alignment(align_dumps(npu, bench), _same_but_for_the_number)
    # The alignment knows better than the numbers of APIs; across frameworks so do the modules around them.
    pairs.follow_names(() if not aligned and rules.cells is None else pairs.misplaced_apis(every=aligned))
    if rules.api_rules is not None and rules.cells is None and rules.layers is None:
        for side in pairs.sides:
            side.alone |= {record: "-am pairs APIs only; -cm pairs cells, -lm both" for record, _ in side.modules}
    if npu.framework != bench.framework and not rules.mapped and {npu.framework, bench.framework} > {"mindspore"}:
        one, two = (framework or "an unknown framework" for framework in (npu.framework, bench.framework))
        pairs.remarks.append(
            f"{npu.path} is of {one} and {bench.path} of {two}, and no mapping was given: only equal names "
            f"were paired. Give -am for APIs, -cm for cells, or -lm for both."
        )
    return Pairing(tuple(pairs.all()), tuple(pairs.remarks))


def pair_aligned(npu: Dump, bench: Dump, aligned: Aligned) -> Pairing:
    """Lay two dumps side by side as an alignment says, and nothing else."""
    pairs = _Pairs(npu, bench)
    pairs.follow_alignment(aligned)
    return Pairing(tuple(pairs.all()))


def _same_but_for_the_number(one: str, two: str) -> bool:
    names = [parse(record) for record in (one, two)]
    ends = [record if name is None else (name.stem, name.what) for record, name in zip((one, two), names, strict=True)]
    return ends[0] == ends[1]


class _Side:
    """Items of one dump, and what has become of each: a partner, left out by a file, or alone and why."""

    def __init__(self, dump: Dump, name: str, other: str) -> None:
        self.dump, self.items, self.name = dump, dump.items, name
        self.settled: dict[int, str] = {}
        """Items that no other pair may take: "" for those that have a partner, or why a file leaves them out."""
        self.alone: dict[str, str] = {}
        """By record: why what is left of it has no partner."""
        self._nothing = f"the {other} has nothing that belongs to it"

    # Where each record's items, and those of one name, are. Equal names alone are paired without.

    @cached_property
    def records(self) -> dict[str, list[int]]:
        return _indexes(self.items, "record")

    @cached_property
    def names(self) -> dict[str, list[int]]:
        return _indexes(self.items, "name")

    @cached_property
    def parsed(self) -> list[tuple[str, RecordName]]:
        """Records, and their names taken apart."""
        names = ((record, parse(record)) for record in self.records)
        return [(record, name) for record, name in names if name is not None]

    @property
    def modules(self) -> list[tuple[str, RecordName]]:
        """Records of modules, and their names taken apart."""
        return [(record, name) for record, name in self.parsed if name.prefix in MODULES]

    @property
    def cells(self) -> str:
        """Paths and classes of all modules, as `missing_names` searches them."""
        return "".join(f".{name.name}.{name.type}.\n" for _, name in self.modules)

    def calls(self) -> dict[str, dict[tuple[int, str], str]]:
        """The records of each API, by number and direction."""
        calls: dict[str, dict[tuple[int, str], str]] = {}
        for record, name in self.parsed:
            calls.setdefault(name.stem, {})[name.call, name.what] = record
        return calls

    def why_alone(self, index: int) -> str:
        return self.settled.get(index) or self.alone.get(self.items[index].record) or self._nothing

    def out_of_range(self, rule: ApiRule, calls: Collection[str]) -> Iterator[str]:
        """Remarks on places of a rule that no call of its API has: nothing is paired there. The tool's document has such."""
        forward = [record for record in calls if record.endswith(".forward")]
        there = [_slot(self.items[i]) for record in forward for i in self.records[record]]
        which, api_name = (0, rule.ms_api) if self.name == "npu" else (1, rule.pt_api)
        for state, key in (("input", "args"), ("output", "outputs")):
            slots = rule.slots.get(state)
            if slots is None or not forward:
                continue
            heads = {place.split(".")[0] for own, place in there if own == state}
            count = max((int(head) + 1 for head in heads if head.isdecimal()), default=0)
            for place in (slots.ms, slots.pt)[which]:
                if isinstance(place, int) and place >= count:
                    yield (
                        f"{rule.file}: line {slots.lines[which]}: {('ms', 'pt')[which]}_{key}: {place} is out of range: in "
                        f"{self.dump.path} {api_name} has {count} of them, counted from 0. It is passed over."
                    )


class _Pairs:
    """Pairs of the items of two dumps, as far as they are known."""

    def __init__(self, npu: Dump, bench: Dump) -> None:
        self.sides = self._npu, self._bench = _Side(npu, "npu", "bench"), _Side(bench, "bench", "npu")
        self.remarks: list[str] = []
        self._partner: dict[int, tuple[int, str, Layout]] = {}

    # --- the ways to pair -----------------------------------------------------------------------------------------------

    def follow_items(self, names: Mapping[str, str]) -> None:
        """Item to item, or record to record, as a file says."""
        npu, bench, because = self._npu, self._bench, "the data mapping says so"
        unknown: list[tuple[str, int]] = []
        for one, two in names.items():
            if one in npu.names and two in bench.names:
                for i, j in zip(npu.names[one], bench.names[two], strict=False):
                    if i not in npu.settled:
                        self._set(i, j, because)
            elif one in npu.records and two in bench.records:
                self._pair_records(one, two, because, again=True)
            else:
                pair = enumerate(zip((one, two), self.sides, strict=True))
                unknown += [
                    (name, n) for n, (name, side) in pair if not {name} & (side.names.keys() | side.records.keys())
                ]
        self.tell_unknown("data", unknown)

    def tell_unknown(self, file: str, unknown: Sequence[tuple[str, int]]) -> None:
        """Remark on the names in a file that its side (0 the npu, 1 the bench) does not have."""
        if unknown:
            shown = ", ".join(f"{name} ({self.sides[which].name})" for name, which in unknown[:4])
            more = f" and {len(unknown) - 4} more" if len(unknown) > 4 else ""
            self.remarks.append(f"the {file} mapping names what is not in the dumps: {shown}{more}.")

    def modules(self, partner_of: Callable[[RecordName], _Partner]) -> Iterator[_Proposal]:
        """Modules call by call, by path and class of a module's partner; where no class is equal, one of the same operation."""
        theirs: dict[tuple[str | None, str, int], list[tuple[str, str]]] = {}
        for record, name in self._bench.modules:
            theirs.setdefault((name.name, name.what, name.call), []).append((name.type, record))
        for record, name in self._npu.modules:
            path, kind, said = partner_of(name)
            beside = theirs.get((path, name.what, name.call), [])
            if kind is not None:
                same = [pair for pair in beside if pair[0] == kind]
                beside = same or [pair for pair in beside if api.same_operation(pair[0], kind)]
            if beside:
                yield record, beside[0][1], said

    def follow_records(self, proposals: Iterable[_Proposal], said: bool, because: str) -> None:
        """Records that belong together, item by item: those of which a file speaks (`said`), or the others."""
        for one, two, by_file in proposals:
            if by_file == said:
                self._pair_records(one, two, because)

    def are_free(self, *records: str) -> bool:
        """True if no item of these two records has a partner."""
        pairs = zip(self.sides, records, strict=True)
        return all(side.settled.keys().isdisjoint(side.records[record]) for side, record in pairs)

    def follow_rules(self, rules: Sequence[ApiRule]) -> None:
        """APIs as a file says: the first call beside the first, arguments and results by their places."""
        ours, theirs = (side.calls() for side in self.sides)
        for rule in rules:
            one, two = ours.get(rule.ms_api), theirs.get(rule.pt_api)
            if one is None or two is None:
                missing, side = (rule.ms_api, self._npu) if one is None else (rule.pt_api, self._bench)
                self.remarks.append(f"{rule.file}: line {rule.line}: {missing} is not in {side.dump.path}.")
                continue
            self.remarks += (*self._npu.out_of_range(rule, one.values()), *self._bench.out_of_range(rule, two.values()))
            for key in (key for key in one if key in two):
                placed = partial(_ruled, rule, key[1] == "backward")
                self._pair_records(one[key], two[key], "the API mapping says so", placed=placed)
                for side, record in zip(self.sides, (one[key], two[key]), strict=True):
                    side.settled = dict.fromkeys(side.records[record], "the API mapping leaves it out") | side.settled

    def follow_alignment(self, aligned: Aligned, wanted: Callable[[str, str], bool] = lambda one, two: True) -> None:
        """Pairs of the alignment in records that are wanted together: tensors as it says, what is none by its place."""
        npu, bench = self.sides
        fitting = [
            (one, two, because)
            for one, two, because in aligned.records
            if one in npu.records and two in bench.records and wanted(one, two)
        ]
        for one, two, because in fitting:
            if _same_but_for_the_number(one, two):
                self._pair_records(one, two, because)
        for one, two, because, layout in aligned.items:
            i, j = npu.names[one][0], bench.names[two][0]
            if wanted(npu.items[i].record, bench.items[j].record) and i not in npu.settled and j not in bench.settled:
                self._set(i, j, because, layout)
        for one, two, because in fitting:
            self._pair_records(one, two, because, only=lambda item: not item.is_tensor)
        for side, alone in zip(self.sides, aligned.alone, strict=True):
            side.alone |= alone

    def follow_names(self, barred: Collection[str]) -> None:
        """Equal names, however a generation of the tool spells them; not of the npu's records in `barred`."""
        ours = [i for i, item in enumerate(self._npu.items) if item.record not in barred]
        theirs = range(len(self._bench.items))
        self._match(ours, theirs, lambda item: item.name, "same name")
        self._match(ours, theirs, _loose, "same name, spelt as another generation of the tool does")

    def misplaced_apis(self, *, every: bool) -> set[str]:
        """The npu's records of APIs in modules that are not those of the bench's records of that name; or of every API."""
        apis = (record for record, name in self._npu.parsed if name.kind is Kind.API)
        return {record for record in apis if every or not self._same_place(record)}

    def _same_place(self, record: str) -> bool:
        ours, theirs = (side.dump.construct.get(record) for side in self.sides)
        if ours is None or theirs is None:
            return True
        partners = (self._partner.get(i) for i in self._npu.records.get(ours, ()))
        beside = {self._bench.items[partner[0]].record for partner in partners if partner is not None}
        return not beside or theirs in beside

    # --- pairs ----------------------------------------------------------------------------------------------------------

    def _set(self, i: int, j: int, because: str, layout: Layout = _AS_IT_IS) -> None:
        self._partner[i] = (j, because, layout)
        self._npu.settled[i] = self._bench.settled[j] = ""

    def _pair_records(
        self,
        one: str,
        two: str,
        because: str,
        *,
        placed: Callable[[Any], object] | None = None,
        again: bool = False,
        only: Callable[[Item], bool] = lambda item: True,
    ) -> None:
        """The items of two records: by place (`placed` gives the bench's for the npu's), then by what a parameter is."""
        ours = [i for i in self._npu.records[one] if only(self._npu.items[i])]
        theirs = [j for j in self._bench.records[two] if only(self._bench.items[j])]
        for slot_of in (_slot, _role):
            self._match(ours, theirs, slot_of, because, placed=placed, again=again)

    def _match(
        self,
        ours: Iterable[int],
        theirs: Iterable[int],
        key: Callable[[Item], object],
        because: str,
        *,
        placed: Callable[[Any], object] | None = None,
        again: bool = False,
    ) -> None:
        """The first beside the first of the items with one key; those whose key is None have none."""
        npu, bench, places = self._npu, self._bench, dict[object, list[int]]()
        for j in theirs:
            if again or j not in bench.settled:
                places.setdefault(key(bench.items[j]), []).append(j)
        for i in ours if places else ():
            own = None if i in npu.settled else key(npu.items[i])
            if own is not None and (free := places.get(own if placed is None else placed(own))):
                self._set(i, free.pop(0), because)

    def all(self) -> Iterator[ItemPair]:
        """Everything, in the order of the npu's dump; what only the bench has follows the record that it came after there."""
        npu, bench = self.sides
        after = self._leftovers()
        for i in range(-1, len(npu.items)):
            if (partner := self._partner.get(i)) is not None:
                yield ItemPair(npu.items[i], bench.items[partner[0]], *partner[1:])
            elif i >= 0:
                yield ItemPair(npu.items[i], None, npu.why_alone(i))
            for j in after.get(i, ()):
                yield ItemPair(None, bench.items[j], bench.why_alone(j))

    def _leftovers(self) -> dict[int, list[int]]:
        """Items that only the bench has, by the item of the npu's that they follow, or -1.

        That is the end of the npu's record that their own record, or else the one before it, stands beside.
        """
        bench = self._bench
        if len(bench.settled) == len(bench.items) and not any(bench.settled.values()):
            return {}
        ends = {i: indexes[-1] for indexes in self._npu.records.values() for i in indexes}
        of_bench = {j: ends[i] for i, (j, _, _) in sorted(self._partner.items(), reverse=True)}
        followers: dict[int, list[int]] = {}
        last = -1
        for indexes in bench.records.values():
            last = max((of_bench[j] for j in indexes if j in of_bench), default=last)
            followers.setdefault(last, []).extend(j for j in indexes if bench.settled.get(j) != "")
        return {anchor: sorted(indexes) for anchor, indexes in followers.items()}


def missing_names(pairs: Iterable[tuple[str, str]], paths: Sequence[str]) -> list[tuple[str, int]]:
    """Names in the lines of a file that are in no path of their side, and the side. `paths`: `.fc1.Linear.` and a line end each."""
    return [(name, which) for pair in pairs for which, name in enumerate(pair) if f".{name}." not in paths[which]]


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
    slots = rule.slots.get(turned)
    if slots is None:
        return slot
    head, dot, rest = place.partition(".")
    return next(
        ((state, f"{two}{dot}{rest}") for one, two in zip(slots.ms, slots.pt, strict=True) if str(one) == head), None
    )


# --- modules ----------------------------------------------------------------------------------------------------------


def _partner_of_cell(cells: Mapping[str, str], name: RecordName) -> _Partner:
    """Path and class on the other side: as a file says of the cell as a whole, or of stretches of its name; or its own."""
    own = f"{name.name}.{name.type}"
    parts = cells.get(own, own).split(".")
    for one, two in cells.items() if own not in cells else ():
        wanted = one.split(".")
        for start in range(len(parts) - len(wanted) + 1):
            if parts[start : start + len(wanted)] == wanted:
                parts[start : start + len(wanted)] = two.split(".")
                break
    return ".".join(parts[:-1]), parts[-1], own in cells or ".".join(parts) != own
