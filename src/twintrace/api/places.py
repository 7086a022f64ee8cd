"""One step of one rank: paired, measured, judged.

Request(traces, policy, pair, …)            two traces, and the way in which they are compared
compare_place(request, (step, rank), …)     a PlaceResult: the results, and the state for the next step
"""

from __future__ import annotations

import functools
import itertools
import math
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..judge import BoundsJudge, CarriedBounds, Case, Policy
from ..judge.policies import Evidence, certain, relative_error
from ..judge.recomputed import Recomputed, Standing
from ..judge.settings import different_settings
from ..model.errors import TwintraceError, UsageError
from ..model.garbage import collecting_later
from ..model.pairs import Alignment, Alone, Layout, Part, Side, TensorPair
from ..model.records import Call, is_kept
from ..model.results import CallResult, Mistake
from ..model.tensors import Tensor
from ..model.verdicts import Outcome
from ..model.words import Progress, some
from ..operations.multi_tensor import split
from ..operations.sides import Side as Graph
from ..store.trace import Journal, Trace
from .composed import composed

if TYPE_CHECKING:
    from ..operations.recomputation import Recomputation

_TENSORS = 100_000
"""Descriptions of tensors held at once, about 1 KB each."""


def silent(what: str, done: int, total: int) -> None:
    """Nobody wants to know."""


def listed(places: Sequence[tuple[int, int]]) -> str:
    return some(f"step {step} rank {rank}" for step, rank in places) or "none at all"


@dataclass(frozen=True, slots=True)
class Request:
    """Two traces, and the way in which they are compared."""

    traces: tuple[Trace, Trace]
    policy: Policy
    pair: Callable[[Side, Side], Alignment]
    """Pairs the calls of each step and rank."""
    repeat: Trace | None = None
    """The left run repeated: differences between these two are noise."""
    workers: int | None = None
    equal_nan: bool = True
    recompute: bool = False
    shortcuts: bool = False
    """Equal steps are passed over, repeated structures paired once, steps long after the parting not judged."""


@dataclass(frozen=True, slots=True)
class PlaceResult:
    """Results of one step of one rank."""

    results: list[CallResult]
    only_left: tuple[Alone, ...]
    only_right: tuple[Alone, ...]
    strays: int
    left_behind: CarriedBounds
    """Bound on the difference that rounding may have left in the weights."""
    standing: Mapping[tuple[str, str], Standing]
    """Standing of the values that the step made, by the fingerprints of both sides."""
    parted: bool = False
    """True if a mistake reaches a result."""
    untold: tuple[str, ...] = ()
    """Results that could not be told."""
    lone: tuple[str, ...] = ()
    """Results that one side alone has."""
    notes: tuple[str, ...] = ()
    """Differences that no setting removes."""
    reached: frozenset[Mistake] = frozenset()
    """Mistakes that reach a result, of this step or of an earlier one."""


def side_of(journal: Journal) -> Side:
    tensor, (calls, _) = _calls(journal)
    return Side(journal.header.framework, calls, tensor, tuple(journal.parameter_gradients()), _values(journal))


def _values(journal: Journal) -> Callable[[int], Any]:
    """The values of a journal's tensors as numbers; None where they were not kept or cannot be read, which is told elsewhere.

    Where all elements have one value, the statistics say it: a scale, an epsilon, a mask that hides nothing.
    """
    from ..store.arrays import as_float, filled

    def values(number: int) -> Any:
        tensor = journal.tensor(number)
        if tensor.payload is None:
            constant = tensor.constant
            return None if constant is None else filled(constant, tensor.spec)
        try:
            return as_float(journal.array(tensor), tensor.spec.dtype)
        except (TwintraceError, OSError):
            return None

    return values


def compare_place(
    request: Request,
    place: tuple[int, int],
    progress: Progress,
    before: CarriedBounds | None,
    standing: Mapping[tuple[str, str], Standing] | None,
) -> PlaceResult:
    """Results of one step of one rank, given the state after the step before; recomputed if `standing` is given."""
    label, policy = f"step {place[0]}, rank {place[1]}", request.policy
    with collecting_later(settle=True):
        journals = (composed(request.traces[0].journal(*place)), composed(request.traces[1].journal(*place)))
        sides = (side_of(journals[0]), side_of(journals[1]))
        progress(f"{label}: pairing", 0, 1)
        alignment = request.pair(*sides)
        noise = _noise(request, request.repeat, place) if request.repeat is not None else {}
        share = 1 if standing is None else 2  # as much again is to come

        def tell(done: int, total: int) -> None:
            progress(f"{label}: measuring", done, share * total)

        measured = _measure_all(alignment, journals, request, tell)
        foreign = sides[0].framework != sides[1].framework
        graphs = graphs_of(journals, sides)
        readers = graphs[0].meaning, graphs[1].meaning
        bounds = BoundsJudge(
            policy, noise=noise, before=before, equal_nan=request.equal_nan, foreign=foreign, readers=readers
        )
        inside = _inside(sides[0].calls)
        cases = [
            Case(
                match,
                [_of_pair(measured, pair) for pair in match.tensors],
                max((inside.get(call.id, 0) for call in match.left), default=0),
            )
            for match in alignment.matches
        ]
        gradients = [_of_pair(measured, pair) for pair in alignment.parameter_gradients]
        results = bounds.judge(*place, cases, gradients)
        results += bounds.judge_gradients(*place, gradients)
    alone = alignment.only_left, alignment.only_right
    if standing is None:
        return PlaceResult(results, *alone, _stray_gradients(alignment, sides), bounds.left_behind, {})
    progress(f"{label}: recomputing", 1, 2)
    from ..operations.workers import working

    judge = Recomputed(alignment, results, recomputation_of(journals, graphs), standing)
    with working():
        told = judge.judge()
    progress(f"{label}: recomputing", 1, 1)
    strays = _stray_gradients(alignment, sides, told.in_parts)
    behind = bounds.left_behind, judge.left_behind
    return PlaceResult(
        told.results, *alone, strays, *behind, told.parted, told.untold, told.lone, told.notes, told.reached
    )


def can_recompute() -> bool:
    """True if PyTorch itself is there to compute with; MSAdapter, which has its name, is not."""
    from importlib.machinery import EXTENSION_SUFFIXES
    from importlib.util import find_spec

    loaded = sys.modules.get("torch")
    if loaded is not None:
        core = getattr(getattr(loaded, "_C", None), "__file__", None) or ""
        return core.endswith(tuple(EXTENSION_SUFFIXES))
    try:
        return find_spec("torch._C") is not None
    except (ImportError, AttributeError, ValueError):
        return False


def graphs_of(journals: tuple[Journal, Journal], sides: tuple[Side, Side]) -> tuple[Graph, Graph]:
    """Both sides as graphs of values, which know the meanings of their calls."""
    graphs = [
        Graph(
            side.framework,
            [*side.calls, *(_calls(journal)[1][1] if hasattr(journal, "calls_of_ranks") else ())],
            # A tensor is asked for again by every call that takes it; each time it would be parsed anew.
            functools.lru_cache(_TENSORS)(side.tensor),
            str(journal.header.settings.get("level", "mix")),
            journal.header.precision,
        )
        for side, journal in zip(sides, journals, strict=True)
    ]
    return graphs[0], graphs[1]


def _calls(journal: Journal) -> tuple[Callable[[int], Tensor], list[list[Call]]]:
    """Tensors of a journal; calls that are compared, and those of single ranks where it was put together of several, which are only
    recomputed. Multi-tensor kernels are a call for each tensor.
    """
    compared = sorted((call for call in journal.calls() if not is_kept(call)), key=lambda call: call.id)
    return split(journal.tensor, compared, getattr(journal, "calls_of_ranks", tuple)())


def recomputation_of(journals: tuple[Journal, Journal], graphs: tuple[Graph, Graph]) -> Recomputation:
    from ..operations.evaluation import Values
    from ..operations.recomputation import Recomputation

    def reading(which: int) -> Values:
        addends = getattr(journals[which], "slack", None)  # a journal that was put together of several ranks
        return Values(_values(journals[which]), lambda number: graphs[which].tensor(number).spec, addends)

    return Recomputation(graphs, (reading(0), reading(1)))


def _stray_gradients(
    alignment: Alignment, sides: tuple[Side, Side], in_parts: Sequence[Collection[int]] = ((), ())
) -> int:
    """Gradients that one side alone has, and should not: within one framework all of them, between two those of parameters
    that have a partner. A weight that the other side keeps in three pieces has none; its gradient was compared `in_parts`.
    """
    strays = tuple(
        [stray for stray in own if stray.tensor not in in_parts[which]]
        for which, own in enumerate((alignment.stray_left, alignment.stray_right))
    )
    if sides[0].framework == sides[1].framework:
        inner = (item for match in alignment.matches for item in (*match.only_left, *match.only_right))
        return len(strays[0]) + len(strays[1]) + sum(item.part.backward for item in inner)
    paired: tuple[set[str], set[str]] = (set(), set())
    for match in alignment.matches:
        for pair in match.tensors:
            if pair.part is Part.PARAMETER:
                paired[0].update(f"{call.site.name}.{pair.left_slot}" for call in match.left)
                paired[1].update(f"{call.site.name}.{pair.right_slot}" for call in match.right)
    return sum(item.slot in names for side, names in zip(strays, paired, strict=True) for item in side)


def _inside(calls: Iterable[Call]) -> dict[int, int]:
    """Number of calls made within each."""
    counts: dict[int, int] = {}
    for call in sorted(calls, key=lambda call: -call.id):  # what is inside has a higher number
        if call.parent is not None:
            counts[call.parent] = counts.get(call.parent, 0) + 1 + counts.get(call.id, 0)
    return counts


def _noise(request: Request, repeat: Trace, place: tuple[int, int]) -> Mapping[int, float]:
    """Distance between two runs of the left side, by the number of the left tensor."""
    from ..align import align

    trace = request.traces[0]
    if place not in repeat.places:
        raise UsageError(
            f"noise: {repeat.path} has no step {place[0]} of rank {place[1]}; it has {listed(repeat.places)}. "
            f"Give a trace of the left run repeated, with the same steps and ranks."
        )
    journals = (trace.journal(*place), repeat.journal(*place))
    alignment = align(side_of(journals[0]), side_of(journals[1]))
    measured = _measure_all(alignment, journals, request)
    another = next(_unlike(journals, alignment, measured), None)
    if another is not None:
        raise UsageError(
            f"noise: {repeat.path} is no repeated run of {trace.path}, so it does not tell how far two of its runs are apart: "
            f"in step {place[0]} of rank {place[1]} {another}. Record the left program once more, with nothing changed."
        )
    return {key[0]: error for key, item in measured.items() if (error := relative_error(item))}


def _unlike(
    journals: tuple[Journal, Journal], alignment: Alignment, measured: Mapping[_Key, Evidence]
) -> Iterator[str]:
    """Why two traces are not those of one program that ran twice; nothing if they are."""
    frameworks = [journal.header.framework for journal in journals]
    if frameworks[0] != frameworks[1]:
        yield f"one is of {frameworks[0]}, the other of {frameworks[1]}"
    for only, alone in (("the first", alignment.only_left), ("the second", alignment.only_right)):
        if alone:
            yield f"only {only} calls {alone[0].call.site}"
    for number, match in enumerate(sorted(alignment.matches, key=lambda match: match.left[0].order)):
        sites = [" … ".join(str(call.site) for call in calls) for calls in (match.left, match.right)]
        if sites[0] != sites[1]:
            yield f"the first calls {sites[0]} where the second calls {sites[1]}"
        for name, values in different_settings(match.left, match.right).items():
            # A number that was computed may be as unsteady as a tensor.
            if not (name.startswith("argument ") and _near(*values)):
                yield f"{sites[0]} has {name}: {' | '.join(values)}"
        for pair in match.tensors:
            specs = [str(journals[0].tensor(pair.left).spec), str(journals[1].tensor(pair.right).spec)]
            if specs[0] != specs[1]:
                yield f"{sites[0]} has {pair.part} {pair.left_slot}: {' | '.join(specs)}"
            fed = pair.part is Part.PARAMETER or (pair.part is Part.INPUT and not number)
            if fed and (relative_error(measured[key_of(pair)]) or 0.0) > _UNRELATED:
                yield f"the {pair.part} {pair.left_slot} of {sites[0]} has other values: it was given other data or weights"


def _near(left: str, right: str) -> bool:
    try:
        return math.isclose(float(left), float(right), rel_tol=0.1)
    except ValueError:
        return False


_Key = tuple[int, int, Layout]


_LARGE = 1 << 14
"""Elements from which on a pair is measured in a thread: about 20 microseconds for the values, as for handing them over."""
_UNRELATED = 0.5
"""A relative error from which on two values have nothing in common."""


def key_of(pair: TensorPair) -> _Key:
    return pair.left, pair.right, pair.layout


def _of_pair(measured: Mapping[_Key, Evidence], pair: TensorPair) -> Evidence:
    """Evidence on a pair of tensors, which may have been measured in another place."""
    item = measured[key_of(pair)]
    return item if item.pair is pair else replace(item, pair=pair)


def _tensor_pairs(alignment: Alignment) -> Iterator[tuple[TensorPair, tuple[str, ...]]]:
    for match in alignment.matches:
        sites = [call.site for call in (*match.left, *match.right)]
        names = tuple(dict.fromkeys(name for site in sites for name in (site.name, site.path)))
        for pair in match.tensors:
            yield pair, names
    for pair in alignment.parameter_gradients:
        yield pair, (pair.left_slot, pair.right_slot)


def _measure_all(
    alignment: Alignment,
    journals: tuple[Journal, Journal],
    request: Request,
    tell: Callable[[int, int], None] = lambda done, total: None,
) -> dict[_Key, Evidence]:
    """Evidence on each pair of tensors. Values are read only where the bits are not known to be equal."""
    from ..engine.local import Local
    from ..measure.statistics import difference

    evidence: dict[_Key, Evidence] = {}
    to_read: list[Evidence] = []
    for pair, names in _tensor_pairs(alignment):
        if key_of(pair) in evidence:
            continue
        left, right = journals[0].tensor(pair.left), journals[1].tensor(pair.right)
        apart = difference(left.statistics, right.statistics) if left.statistics and right.statistics else None
        item = Evidence(pair, left, right, None, apart, names)
        evidence[key_of(pair)] = item
        # Statistics are asked only if there is nothing else.
        verdict = certain(Evidence(pair, left, right, None, None, names))
        decided = verdict is not None and verdict.outcome in (Outcome.SAME, Outcome.DIFFERENT)
        if not decided and left.payload is not None and right.payload is not None:
            to_read.append(item)

    def task(item: Evidence) -> Evidence:
        return measure_pair(item, journals, request.policy.tolerance(item.left, item.right, item.names))

    large = [item for item in to_read if math.prod(item.left.spec.shape) >= _LARGE]
    ended = (done.result() for done in Local(request.workers).run(task, large))
    # Of small ones the interpreter's part is all, and threads would only wait for each other.
    small = (task(item) for item in to_read if math.prod(item.left.spec.shape) < _LARGE)
    for measured, item in enumerate(itertools.chain(ended, small), 1):
        evidence[key_of(item.pair)] = item
        tell(measured, len(to_read))
    return evidence


def measure_pair(
    item: Evidence,
    journals: tuple[Journal, Journal],
    tolerance: tuple[float, float],
    *,
    heat: bool = False,
) -> Evidence:
    """Both values read and measured; a damaged one costs its row, not the comparison."""
    from ..measure.values import measure

    rtol, atol = tolerance
    types = item.left.spec.dtype, item.right.spec.dtype
    try:
        arrays = journals[0].array(item.left), journals[1].array(item.right)
        measured = measure(*arrays, *types, item.pair.layout, rtol=rtol, atol=atol, heat=heat)
    except (TwintraceError, OSError) as error:
        return replace(item, failure=str(error))
    return replace(item, measurement=measured)
