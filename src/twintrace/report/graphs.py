"""Graph of modules and data flow of each side, for the browser.

    (model)                  a node for each pair of calls, or call without a partner; the module that made it is around it
      stem
        0                    conv2d, from the network's input
        1                    batch_norm, from stem.0: an edge, because it takes the tensor that stem.0 gives
      blocks                 a name that is never called, only a part of others' paths: a node without a row
      …

    comparison_graph(comparison)   both sides, as columns
    trace_graph(rows, facts)       a single run

Nodes are numbered so that a module comes before its contents, and these directly behind it. Edges are between calls; the
page sums them up between what is shown of them. More than `MOST` siblings are put into sections, since neither a layout nor an
eye copes with a thousand boxes in a row.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from ..model.pairs import Alone, Part
from ..model.records import Call
from ..model.results import CallResult, Comparison
from ..model.sites import Kind, Phase
from ..model.tensors import Tensor
from ..model.values import tensor_slots
from ..model.verdicts import Outcome
from .sheets import Words, shorten, spec_text

MOST = 40
"""Siblings that are drawn in one box."""
DEEPEST = 64
"""Modules within modules; deeper ones are drawn at this depth."""
NO_ROW = -1
UNTOLD = len(Outcome)
"""Outcome of a tensor that was not compared."""
_OUTCOMES = {outcome: place for place, outcome in enumerate(Outcome)}
_FLOWING = (Part.INPUT, Part.OUTPUT, Part.AFTER)


@dataclass(slots=True)
class Fact:
    """A tensor on one side: the worst verdict on it, its spec, and the call that made it, as far as that is known."""

    outcome: int
    spec: str
    producer: int | None
    held: bool = False
    """It is trained, and no recorded call made it: given to a function a weight, given to a module what was made between two."""


@dataclass(slots=True)
class _Node:
    label: str
    key: int
    """2·row of a pair, 2·row + 1 of a call without a partner, NO_ROW of a name that is never called."""
    first: int
    """Number of its first call: siblings are in the order of execution."""
    base: str
    """Path of the module that it is, or is in."""
    overflow: _Node | None = None
    """Box that stands for its contents, at the depth at which nesting ends."""
    depth: int = 0
    children: list[_Node] = field(default_factory=list)
    named: dict[str, _Node] = field(default_factory=dict)
    number: int = -1
    loose: bool = False
    """It takes a tensor that no recorded call gave and that is no weight: something was not recorded, or it is the run's input."""


@dataclass(slots=True)
class _Entry:
    """Calls of one side that make up one node."""

    key: int
    calls: tuple[Call, ...]
    taken: Sequence[int] = ()
    given: Sequence[int] = ()
    """Tensors of the pair, for reports that do not have the arguments of calls."""
    node: _Node | None = None


@dataclass(slots=True)
class _Place:
    """One step of one rank of one side."""

    entries: list[_Entry] = field(default_factory=list)
    gradients: list[tuple[int, str]] = field(default_factory=list)
    """Rows of gradients of parameters, and the parameter's name."""
    facts: dict[int, Fact] = field(default_factory=dict)


def comparison_graph(comparison: Comparison) -> Mapping[str, Any]:
    """Columns of both sides' graphs, and the texts that they number."""
    words = Words()
    results = tuple(comparison.results)
    sides = []
    for side, alone in (("left", comparison.only_left), ("right", comparison.only_right)):
        numbers: dict[tuple[int, int], tuple[list[int], list[int]]] = {}
        for row, result in enumerate(results):
            numbers.setdefault((result.step, result.rank), ([], []))[0].append(row)
        for row, (step, rank, _) in enumerate(alone):
            numbers.setdefault((step, rank), ([], []))[1].append(row)
        # One after the other: the nodes of all steps at once would be as many objects as the comparison itself has.
        places = (
            (where, _place([(row, results[row]) for row in rows], [(row, alone[row][2]) for row in lone], side))
            for where, (rows, lone) in sorted(numbers.items())
        )
        sides.append(_side(places, words))
    return {"sides": sides, "words": words.items}


def trace_graph(
    rows: Iterable[tuple[int, int, Call | None, str]], facts: Callable[[int, Call], Iterable[tuple[int, Fact]]]
) -> Mapping[str, Any]:
    """Columns of the graph of one run.

    `rows` are (step, rank, call, parameter): a call, or the gradient of a parameter. `facts(row, call)` gives what is known of the
    tensors that a call gives, by number.
    """
    words = Words()
    places: dict[tuple[int, int], _Place] = {}
    for row, (step, rank, call, parameter) in enumerate(rows):
        place = places.setdefault((step, rank), _Place())
        if call is None:
            place.gradients.append((row, parameter))
            continue
        place.entries.append(_Entry(2 * row, (call,)))
        place.facts.update(facts(row, call))
    return {"sides": [_side(places.items(), words)], "words": words.items}


def has_calls(comparison: Comparison) -> bool:
    """True if the comparison has calls, and not only saved arrays."""
    return any(result.match.left or result.match.right for result in comparison.judged)


def _place(results: Iterable[tuple[int, CallResult]], alone: Iterable[tuple[int, Alone]], side: str) -> _Place:
    """One step of one rank: its pairs and its calls without a partner, each with its row."""
    place = _Place()
    for row, result in results:
        calls: tuple[Call, ...] = getattr(result.match, side)
        taken: list[int] = []
        given: list[int] = []
        for item in result.tensors:
            part = item.pair.part
            if part in _FLOWING:
                identity = getattr(item.pair, side)
                (taken if part is Part.INPUT else given).append(identity)
                _note(place.facts, identity, getattr(item, side), _OUTCOMES[item.verdict.outcome])
        for stray in getattr(result.match, f"only_{side}"):
            if stray.part in _FLOWING:
                (taken if stray.part is Part.INPUT else given).append(stray.tensor)
        if calls:
            place.entries.append(_Entry(2 * row, calls, taken, given))
        elif result.tensors:
            place.gradients.append((row, getattr(result.tensors[0].pair, f"{side}_slot")))
    place.entries += [_Entry(2 * row + 1, (lone.call,)) for row, lone in alone]
    return place


def _note(facts: dict[int, Fact], identity: int, tensor: Tensor, outcome: int) -> None:
    known = facts.get(identity)
    if known is None:
        held = tensor.requires_grad and tensor.producer is None
        facts[identity] = Fact(outcome, spec_text(tensor.spec), tensor.producer, held)
    elif outcome > known.outcome:
        known.outcome = outcome


def _side(places: Iterable[tuple[tuple[int, int], _Place]], words: Words) -> dict[str, Any]:
    """Columns: of nodes the way up to the module around each (0: there is none), row, label and looseness; of edges both ends (how
    far back the second is from the first), verdict and spec. `key`, `to` and `gradient_row` are differences from the one before.
    """
    names = ("up", "key", "label", "loose", "to", "back", "outcome", "spec", "gradient_row", "gradient_node")
    columns: dict[str, list[int]] = {name: [] for name in names}
    numbered: list[list[int]] = []
    for (step, rank), place in places:
        calls = {call.id: (call, entry) for entry in place.entries for call in entry.calls}
        root = _tree(place.entries, calls)
        nodes = _numbered(root)
        edges = sorted(_edges(place, calls))
        key = 0
        for node, up in nodes:
            columns["up"].append(up)
            columns["key"].append(node.key - key)
            columns["label"].append(words(shorten(node.label)))
            columns["loose"].append(int(node.loose))
            key = node.key
        before = 0
        for to, source, outcome, spec in edges:
            columns["to"].append(to - before)
            columns["back"].append(to - source)
            columns["outcome"].append(outcome)
            columns["spec"].append(words(spec))
            before = to
        gradients = list(_gradient_nodes(place.gradients, root))
        row = 0
        for at, number in gradients:
            columns["gradient_row"].append(at - row)
            columns["gradient_node"].append(number)
            row = at
        numbered.append([step, rank, len(nodes), len(edges), len(gradients)])
    return {"places": numbered, **columns}


# --- nodes ------------------------------------------------------------------------------------------------------------


def _tree(entries: Sequence[_Entry], calls: Mapping[int, tuple[Call, _Entry]]) -> _Node:
    """Nodes of one step, by the module or function that called each; where that was not recorded, by the path of its module."""
    root = _Node("", NO_ROW, -1, "")
    around_all = [_common(entry.calls, calls) for entry in entries]
    firsts = [min(call.id for call in entry.calls) for entry in entries]
    # By depth: the node around another is made before it, also where a node is several calls.
    for at in sorted(range(len(entries)), key=lambda at: (len(around_all[at]), firsts[at])):
        entry, above, first = entries[at], around_all[at], firsts[at]
        call = calls[first][0]
        around = (calls[above[-1]][1].node if above else None) or root
        if not above and call.site.phase is not Phase.FORWARD:
            around = _child(root, str(call.site.phase), "", first)
        module = len(entry.calls) == 1 and call.site.kind is Kind.MODULE
        steps = _steps(call.site.name if module else _common_path(entry.calls), around.base)
        own = steps.pop() if module and steps else ""
        for name in steps:
            around = _child(around, name, f"{around.base}.{name}" if around.base else name, first)
        if not module:
            entry.node = _node(around, _Node(_label(entry.calls), entry.key, first, around.base))
            continue
        label = (own or _last(call.site.name) or "(model)") + (f" #{call.site.call}" if call.site.call else "")
        entry.node = _node(around, _Node(label, entry.key, first, call.site.name))
        around.named.setdefault(own, entry.node)  # what has this module in its path alone goes into it
    return root


def _common(group: Sequence[Call], calls: Mapping[int, tuple[Call, _Entry]]) -> list[int]:
    """Calls that are around all of these, the outermost first."""
    if len(group) == 1:
        return _way(group[0], calls)
    ways = [_way(call, calls) for call in group]
    return [step[0] for step in takewhile(lambda step: len(set(step)) == 1, zip(*ways, strict=False))]


def _way(call: Call, calls: Mapping[int, tuple[Call, _Entry]]) -> list[int]:
    """Calls around this one, the outermost first."""
    outer: list[int] = []
    parent = _parent(call, calls)
    while parent is not None:
        outer.append(parent.id)
        parent = _parent(parent, calls)
    return outer[::-1]


def _common_path(calls: Sequence[Call]) -> str:
    """The module around all of these, by its path."""
    if len(calls) == 1:
        return calls[0].site.path
    ways = [call.site.path.split(".") for call in calls]
    return ".".join(step[0] for step in takewhile(lambda step: len(set(step)) == 1, zip(*ways, strict=False)))


def _parent(call: Call, calls: Mapping[int, tuple[Call, _Entry]]) -> Call | None:
    """The call around this one. It has the lower number in every trace; in a report that somebody wrote it may not."""
    if call.parent is None or call.parent >= call.id or call.parent not in calls:
        return None
    return calls[call.parent][0]


def _steps(path: str, base: str) -> list[str]:
    """Names on the way from the module `base` to the module `path`."""
    if path == base:
        return []
    rest = path[len(base) + 1 :] if base and path.startswith(f"{base}.") else path
    return rest.split(".", DEEPEST)[:DEEPEST] if rest else []


def _node(around: _Node, made: _Node) -> _Node:
    around = around.overflow or around
    made.depth = around.depth + 1
    if made.depth == DEEPEST:
        made.overflow = around
    around.children.append(made)
    return made


def _child(around: _Node, name: str, base: str, first: int) -> _Node:
    """The node of a name that is never called."""
    child = around.named.get(name)
    if child is None:
        child = around.named[name] = _node(around, _Node(name, NO_ROW, first, base))
    child.first = min(child.first, first)
    return child


def _label(calls: Sequence[Call]) -> str:
    names = [_last(call.site.name) or "(model)" for call in calls[:3]]
    return " + ".join(names) + (" + …" if len(calls) > 3 else "")


def _last(name: str) -> str:
    """`torch.nn.functional.linear` -> `linear`, `aten.mm.default` -> `mm`."""
    return name.removesuffix(".default").rpartition(".")[2]


def _numbered(root: _Node) -> list[tuple[_Node, int]]:
    """All nodes, each before its contents, with the way up to the one around it."""
    nodes: list[tuple[_Node, int]] = []
    pending = [(child, -1) for child in reversed(_sections(root))]
    while pending:
        node, above = pending.pop()
        node.number = len(nodes)
        nodes.append((node, 0 if above < 0 else node.number - above))
        pending += [(child, node.number) for child in reversed(_sections(node))]
    return nodes


def _sections(node: _Node) -> list[_Node]:
    """Children in the order of execution; sections of them, where they are too many."""
    children = sorted(node.children, key=lambda child: child.first)
    while len(children) > MOST:
        parts = -(-len(children) // MOST)
        size = -(-len(children) // parts)
        children = [_section(children[at : at + size]) for at in range(0, len(children), size)]
    return children


def _section(children: list[_Node]) -> _Node:
    label = f"{_end(children[0].label, 0)} … {_end(children[-1].label, -1)}"
    return _Node(label, NO_ROW, children[0].first, "", children=children)


def _end(label: str, end: int) -> str:
    """The first, or the last, of the names of a section of sections."""
    return label.split(" … ")[end]


# --- edges ------------------------------------------------------------------------------------------------------------


def _edges(place: _Place, calls: Mapping[int, tuple[Call, _Entry]]) -> set[tuple[int, int, int, str]]:
    """(number of the node that takes a tensor, of the one that gave it, the verdict on it, its spec), each once."""
    givers: dict[int, list[int]] = {}
    takers: list[tuple[int, int, _Entry]] = []
    for entry in place.entries:
        for identity, taken, given in _flow(entry):
            takers += [(identity, tensor, entry) for tensor in taken]
            for tensor in given:
                givers.setdefault(tensor, []).append(identity)
    for numbers in givers.values():
        numbers.sort()
    held = {
        tensor for call, _ in calls.values() for named in (call.parameters, call.buffers) for tensor in named.values()
    }
    edges: set[tuple[int, int, int, str]] = set()
    for identity, tensor, entry in takers:
        fact = place.facts.get(tensor)
        source = _giver(givers.get(tensor, ()), identity, calls, entry)
        if source is None and fact is not None and fact.producer is not None and fact.producer in calls:
            source = calls[fact.producer][1]  # made where nothing was returned, as by a write into a part of it
        weight = fact is not None and fact.held and calls[identity][0].site.kind is not Kind.MODULE
        if source is None and entry.node is not None and tensor not in held and not weight:
            entry.node.loose = True
        if source is None or source is entry or source.node is None or entry.node is None:
            continue
        outcome, spec = (fact.outcome, fact.spec) if fact is not None else (UNTOLD, "")
        edges.add((entry.node.number, source.node.number, outcome, spec))
    return edges


def _flow(entry: _Entry) -> Iterator[tuple[int, list[int], list[int]]]:
    """Of each call the tensors that it takes and gives; of a pair without arguments those of the pair."""
    known = False
    for call in entry.calls:
        taken, given = taken_and_given(call)
        known = known or bool(taken or given)
        yield call.id, taken, given
    if not known:
        numbers = [call.id for call in entry.calls]
        yield min(numbers), [*entry.taken], []
        yield max(numbers), [], [*entry.given]


def taken_and_given(call: Call) -> tuple[list[int], list[int]]:
    """Numbers of the tensors that a call takes as arguments, and of those that it returns or writes to."""
    given = [*call.returned.values(), *call.after.values()]
    return [identity for _, identity in tensor_slots(call.args, call.kwargs)], given


def _giver(givers: Sequence[int], taker: int, calls: Mapping[int, tuple[Call, _Entry]], entry: _Entry) -> _Entry | None:
    """The last that gave the tensor before the call took it: of a module and the function in it the function, and a module that
    gives what it got (a dropout that is switched off) for all that come after it. What is around the calls of a node has not given.
    """
    at = bisect_left(givers, taker)
    if not at:
        return None
    around = {identity for call in entry.calls for identity in _way(call, calls)}
    while at:
        at -= 1
        giver = calls[givers[at]][1]
        if givers[at] not in around and giver is not entry:
            return giver
    return None


def _gradient_nodes(gradients: Iterable[tuple[int, str]], root: _Node) -> Iterator[tuple[int, int]]:
    """(row, number of the module's node) of gradients of parameters; of a module that was not recorded the one around it."""
    modules: dict[str, int] = {}
    pending = [root]
    while pending:
        node = pending.pop()
        if node.base and node.number >= 0:
            modules[node.base] = min(modules.get(node.base, node.number), node.number)
        pending += node.children
    for row, name in gradients:
        path = name
        while path:
            path = path.rpartition(".")[0]
            if path in modules:
                yield row, modules[path]
                break
