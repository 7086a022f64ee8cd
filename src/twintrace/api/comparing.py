"""Two traces in, a Comparison out: the stages one after the other.

    store ─calls─▶ align ─pairs─▶ measure ─numbers─▶ judge ─results─▶

For each step and rank that both have: the calls are paired, the tensors of the pairs are measured where their bits are not
known to be equal (on all cores, one pair of arrays at a time), and the pairs are judged in the order of the data flow.
"""

from __future__ import annotations

import functools
import math
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..judge import Aftermath, Bench, Case, Policy, first_backward, first_forward, first_mistake, policy_named
from ..judge.divergences import counting_equal_steps
from ..judge.policies import Evidence, certain, relative_error
from ..judge.recomputed import Recomputed, Standing
from ..judge.settings import different_settings
from ..model.choices import PolicyName
from ..model.errors import ReportError, TraceError, TwintraceError, UsageError
from ..model.measurements import Measurement
from ..model.pairs import Alignment, Alone, Layout, Part, Side, TensorPair
from ..model.records import Call, Damage, Header
from ..model.results import (
    CallResult,
    Divergence,
    EqualStep,
    FirstBit,
    FollowedStep,
    Mistake,
    Recording,
    StepResults,
    TensorResult,
)
from ..model.sites import Kind, Phase
from ..model.tensors import UNITS
from ..model.verdicts import Outcome
from ..operations.sides import Side as Graph
from ..store.registry import open_trace
from ..store.trace import Journal, Trace
from .results import Comparison
from .stepping import JUDGED_AFTER, Outlines, first_bit, outlines_of, sentence, spans

if TYPE_CHECKING:
    from ..operations.recomputation import Recomputation

Source = str | os.PathLike[str] | Trace
Progress = Callable[[str, int, int], None]
"""Called with what is being done, how many are done, and how many there are."""

_PICTURES = 200
"""Pairs that differ and get a picture of where. More would make a report large, and nobody looks at them."""
_TENSORS = 100_000
"""Descriptions of tensors held at once, about 1 KB each."""


def compare(
    left: Source,
    right: Source,
    *,
    policy: PolicyName = "auto",
    rtol: float | None = None,
    atol: float | None = None,
    tolerances: str | os.PathLike[str] | None = None,
    mapping: str | os.PathLike[str] | None = None,
    noise: Source | None = None,
    steps: Collection[int] | None = None,
    ranks: Collection[int] | None = None,
    equal_nan: bool = True,
    pictures: bool = True,
    recompute: bool = True,
    every_step: bool = False,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Lay two runs side by side: the first call whose inputs agree and whose output does not, and all the rest.

    policy       auto (what rounding explains; no threshold) | msprobe | troubleshooter | torch_testing
    rtol, atol   instead of a policy: every element within atol + rtol·|left|
    tolerances   a TOML file with rtol and atol per dtype and per name
    mapping      a YAML file that says what belongs together, where that is not found by itself
    noise        a trace of the left run repeated: what differs between the two is not held against the right one
    steps, ranks only these                          workers  threads to measure with; all cores if not given
    equal_nan    NaN beside NaN is no difference     pictures where in a tensor the difference is, for the first that differ
    recompute    compute what is not equal again in float64 (policy auto, without noise, with torch installed)
    every_step   judge each step by itself. Otherwise steps that are equal bit by bit are passed over, steps of the same structure
                 are paired once, and what comes a few steps after the runs have parted is compared by fingerprints alone

    `bool()` of what comes back is True if every result of the two runs agrees, and False otherwise; its `code` is the exit code
    of `twintrace compare`.
    """
    chosen = policy_named(policy, rtol=rtol, atol=atol, tolerances=None if tolerances is None else Path(tolerances))
    traces = (_opened(left), _opened(right))
    repeat = None if noise is None else _opened(noise)
    mapped = _read_mapping(mapping)

    unused = None if mapped is None else _unused(mapped)

    def pair(one: Side, two: Side) -> Alignment:
        from ..align import align

        if unused is not None:
            unused.saw(one.calls, two.calls)
        return align(one, two, mapping=mapped)

    found = compare_traces(
        traces,
        chosen,
        pair,
        repeat=repeat,
        steps=steps,
        ranks=ranks,
        equal_nan=equal_nan,
        pictures=pictures,
        recompute=recompute and chosen.name == "auto" and repeat is None,
        shortcuts=not every_step and repeat is None,
        workers=workers,
        progress=progress,
    )
    told = [*_not_there(traces, steps, ranks), *_zoomed(traces), *([unused.sentence()] if unused is not None else [])]
    if steps is not None and found.code:
        told += _not_compared_before(traces, steps)
    if any(told):
        found = replace(found, remarks=(*filter(None, told), *found.remarks))
    if (
        chosen.name != "auto"
        or repeat is not None
        or found.recomputed
        or not found.count(Outcome.ROUNDING, Outcome.DIFFERENT)
    ):
        return found
    why = "PyTorch is not installed here; a CPU build will do" if recompute else "--no-recompute"
    remark = f"The values were not recomputed ({why}): what is within rounding is estimated, and causes are not proven."
    return replace(found, remarks=(*found.remarks, remark))


def compare_traces(
    traces: tuple[Trace, Trace],
    chosen: Policy,
    pair: Callable[[Side, Side], Alignment],
    *,
    repeat: Trace | None = None,
    steps: Collection[int] | None = None,
    ranks: Collection[int] | None = None,
    equal_nan: bool = True,
    pictures: bool = True,
    brief: bool = False,
    recompute: bool = False,
    shortcuts: bool = False,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """The flow itself, for whoever knows what belongs together: `pair` says it for each step and rank.

    equal_nan   NaN beside NaN is no difference        pictures   where in a tensor the difference is, for the first that differ
    brief       only the numbers that tolerances need: no relative errors, no histogram (see `measure`)
    shortcuts   what is equal is passed over, what repeats is paired once, what comes long after the parting is not judged
    """
    common, left_out = _places(traces, steps, ranks)
    shortcuts = shortcuts and len(common) > 1
    recompute = recompute and can_recompute()
    walk = _Walk(traces, chosen, pair, repeat, workers, equal_nan, brief, recompute, shortcuts)
    for number, place in enumerate(common):
        walk.visit(place, _silent if progress is None else _among(progress, number, len(common)))
    parts, equal = walk.parts, tuple(walk.equal)
    results = tuple(result for part in parts.values() for result in part.results)
    if pictures:
        results = _with_pictures(results, traces, workers)
    forward = (
        _with_share(first_mistake(results, backward=False), results, traces)
        if recompute
        else first_forward(results, alone=_steps_alone(parts))
    )
    backward = first_mistake(results, backward=True) if recompute else first_backward(results)

    def load(step: int, rank: int) -> Sequence[CallResult]:
        """Results of a step that is equal bit by bit: nothing that came before has a bearing on them."""
        one = _Walk(traces, chosen, pair, repeat, workers, equal_nan, brief, recompute, False)
        one.visit((step, rank), _silent)
        return one.parts[step, rank].results

    return Comparison(
        walk.recording(0),
        walk.recording(1),
        StepResults(results, equal, load) if equal else results,
        tuple((*place, item) for place, part in parts.items() for item in part.only_left),
        tuple((*place, item) for place, part in parts.items() for item in part.only_right),
        forward and counting_equal_steps(forward, equal),
        backward and counting_equal_steps(backward, equal),
        chosen.name,
        tuple(left_out),
        tuple(_remarks(traces, walk, left_out)),
        sum(part.strays for part in parts.values()),
        recompute,
        any(part.parted for part in parts.values()),
        tuple(dict.fromkeys(text for part in parts.values() for text in part.untold)),
        tuple(dict.fromkeys(text for part in parts.values() for text in part.lone)),
        tuple(walk.followed),
        walk.first_bit,
    )


@dataclass(slots=True)
class _Carried:
    """What the steps of one rank leave to the next."""

    before: Aftermath | None = None
    standing: Mapping[tuple[str, str], Standing] = field(default_factory=dict)
    passed: dict[tuple[str, str, str], tuple[int, int]] = field(default_factory=dict)
    """By structure: the last step that was passed over since one was judged."""
    was_equal: bool = False
    """True if the step before is equal bit by bit."""


@dataclass(frozen=True, slots=True)
class _Pairing:
    """Pairs of a step, and whether they hold for every step of its structure."""

    alignment: Alignment
    sure: bool


@dataclass(frozen=True, slots=True)
class _Seen:
    """Facts about the journals of one step of one rank that are told of the traces as a whole."""

    calls: tuple[int, int]
    damage: tuple[tuple[Damage, ...], tuple[Damage, ...]]
    complete: tuple[bool, bool]


class _Walk:
    """Goes through the steps of two traces in their order, and judges them as far as they have to be judged."""

    def __init__(
        self,
        traces: tuple[Trace, Trace],
        policy: Policy,
        pair: Callable[[Side, Side], Alignment],
        repeat: Trace | None,
        workers: int | None,
        equal_nan: bool,
        brief: bool,
        recompute: bool,
        shortcuts: bool,
    ) -> None:
        self._traces, self._policy, self._pair, self._repeat, self._workers = traces, policy, pair, repeat, workers
        self._equal_nan, self._brief, self.recompute, self._shortcuts = equal_nan, brief, recompute, shortcuts
        self.parts: dict[tuple[int, int], _Part] = {}
        self.equal: list[EqualStep] = []
        self.followed: list[FollowedStep] = []
        self.first_bit: FirstBit | None = None
        self.seen: dict[tuple[int, int], _Seen] = {}
        self._heads: list[tuple[Header, Header]] = []
        self._carried: dict[int, _Carried] = {}
        self._pairings: dict[tuple[str, str, str], _Pairing] = {}
        self._quiet: dict[tuple[str, str, str], EqualStep] = {}
        """By structure: a step in which all is the same, and nothing is to be said."""
        self._parted_in: int | None = None
        self._follows = self._differs = False

    def visit(self, place: tuple[int, int], progress: Progress) -> None:
        """Judge one step of one rank, or pass it over."""
        journals = (self._traces[0].journal(*place), self._traces[1].journal(*place))
        if not self._heads:
            self._heads.append((journals[0].header, journals[1].header))
        carried = self._carried.setdefault(place[1], _Carried())
        outlines = outlines_of(journals) if self._shortcuts else None
        if not self._pass_over(place, outlines, carried) and not self._follow(place, outlines):
            self._note_first_bit(journals, outlines, carried)
            self._catch_up(carried)
            part = self._judge(place, outlines, carried, progress)
            self._count_what_reached(part.reached, place)
            self.parts[place] = replace(part, left_behind=Aftermath(), standing={}, reached=frozenset())
            self._differs = self._differs or not all(map(_is_same, part.results))
            self._note_parting(place)
            if outlines is not None and outlines.equal and _is_quiet(part):
                self._quiet[outlines.skeleton] = _equal_step(place, part)
        carried.was_equal = outlines is not None and outlines.equal
        self.seen[place] = _Seen(
            (len(journals[0]), len(journals[1])),
            (journals[0].damage, journals[1].damage),
            (journals[0].complete, journals[1].complete),
        )
        if outlines is not None:  # other tools' dumps may take long to be read again
            for trace in self._traces:
                trace.forget()

    def _count_what_reached(self, reached: frozenset[Mistake], place: tuple[int, int]) -> None:
        """Mistakes of earlier steps count if a result of this one shows them: in a state that a network carries along."""
        for other, part in self.parts.items():
            if other[1] != place[1] or not reached:
                continue
            results = [_with_effect(result, reached) for result in part.results]
            if any(new is not old for new, old in zip(results, part.results, strict=True)):
                self.parts[other] = replace(part, results=results, parted=True)

    def recording(self, which: int) -> Recording:
        """One side, as far as it was gone through."""
        trace, head = self._traces[which], self._heads[0][which] if self._heads else None
        return Recording(
            trace.path,
            trace.framework,
            trace.layout,
            trace.steps,
            trace.ranks,
            sum(seen.calls[which] for seen in self.seen.values()),
            head.environment if head else {},
            head.settings if head else {},
        )

    def _pass_over(self, place: tuple[int, int], outlines: Outlines | None, carried: _Carried) -> bool:
        known = None if outlines is None else self._quiet.get(outlines.skeleton)
        if outlines is None or known is None or not outlines.equal:
            return False
        self.equal.append(replace(known, step=place[0], rank=place[1]))
        carried.passed.pop(outlines.skeleton, None)  # the last place is the latest
        carried.passed[outlines.skeleton] = place
        return True

    def _follow(self, place: tuple[int, int], outlines: Outlines | None) -> bool:
        """Long after the parting: what differs is counted."""
        if self._parted_in is None or outlines is None:
            return False
        if not self._follows:
            judged = {step for step, _ in self.parts if step > self._parted_in}
            self._follows = place[0] not in judged and len(judged) >= JUDGED_AFTER
        if self._follows:
            same = outlines.same_program
            counts = (len(outlines.apart), int(outlines.apart.sum())) if same else (0, 0)
            self.followed.append(FollowedStep(*place, *counts))
        return self._follows

    def _catch_up(self, carried: _Carried) -> None:
        """What the steps that were passed over leave behind is asked of the last of each structure: they only leave the latest."""
        passed, carried.passed = carried.passed, {}
        for place in passed.values():
            self._judge(place, None, carried, _silent)

    def _judge(self, place: tuple[int, int], outlines: Outlines | None, carried: _Carried, progress: Progress) -> _Part:
        part = _compare_place(
            self._traces,
            place,
            self._policy,
            functools.partial(self._paired, outlines),
            self._repeat,
            self._workers,
            progress,
            f"step {place[0]}, rank {place[1]}",
            carried.before,
            self._equal_nan,
            self._brief,
            carried.standing if self.recompute else None,
        )
        carried.before, carried.standing = part.left_behind, _worth_knowing(part.standing)
        return part

    def _paired(self, outlines: Outlines | None, left: Side, right: Side) -> Alignment:
        if outlines is None:
            return self._pair(left, right)
        known = self._pairings.get(outlines.key)
        if known is not None and known.sure:
            return known.alignment
        found = self._pair(left, right)
        # Two runs of one program are paired by their names. Two programs are paired by their values too, which may be alike by
        # chance (biases of zeros in the first step): a pairing holds for others once two steps have given it.
        again = known is not None and known.alignment == found
        while known is None and len(self._pairings) >= _PAIRINGS:
            del self._pairings[next(iter(self._pairings))]
        self._pairings[outlines.key] = _Pairing(found, again or outlines.same_program)
        return found

    def _note_first_bit(self, journals: tuple[Journal, Journal], outlines: Outlines | None, carried: _Carried) -> None:
        if self._differs or outlines is None:
            return
        from ..operations.traits import traits_of

        side = _side(journals[0])
        graph = Graph(side.framework, side.calls, side.tensor, str(journals[0].header.settings.get("level", "mix")))

        def draws(call: Call) -> bool:
            meaning = graph.meaning(call)
            return meaning is not None and traits_of(meaning).random

        self.first_bit = first_bit(journals[0], outlines, carried.was_equal, draws)

    def _note_parting(self, place: tuple[int, int]) -> None:
        """From the step on in which the first difference is found that no later one can come before: one that is large, or that is
        in the first bit of two runs of one program.
        """
        if self._parted_in is not None or not self._shortcuts:
            return
        part = self.parts[place]
        if self.recompute:
            guilty = [mistake for result in part.results for mistake in result.mistakes]
            first = self.first_bit is not None and (self.first_bit.step, self.first_bit.rank) == place
            parted = part.parted and any(item.effective and (first or not item.marginal) for item in guilty)
        else:
            parted = any(not result.harmless for result in part.results)
        if parted:
            self._parted_in = place[0]


_PAIRINGS = 8
"""Structures of steps whose pairings are held."""
_STANDING = 200_000
"""Values whose standing is carried from step to step, 0.2 KB each."""


def _with_effect(result: CallResult, reached: frozenset[Mistake]) -> CallResult:
    """The result, with those of its mistakes as effective that were among those that reached something."""
    counted = tuple(
        mistake
        if mistake.effective or replace(mistake, effective=True) not in reached
        else replace(mistake, effective=True)
        for mistake in result.mistakes
    )
    return result if counted == result.mistakes else replace(result, mistakes=counted)


def _worth_knowing(standing: Mapping[tuple[str, str], Standing]) -> Mapping[tuple[str, str], Standing]:
    """Without the oldest values that are the same on both sides: a value that differs is not among them."""
    if len(standing) <= _STANDING:
        return standing
    kept = {bits: status for bits, status in standing.items() if bits[0] != bits[1]}
    return dict(list(kept.items())[-_STANDING:])


def _is_same(result: CallResult) -> bool:
    """True if nothing differs; also of a call without tensors, of which nothing is to be told."""
    return not result.tensors or result.verdict.outcome is Outcome.SAME


def _is_quiet(part: _Part) -> bool:
    """Is all the same in a step, so that nothing is to be said of it?"""
    alone = part.only_left or part.only_right or part.strays
    told = part.parted or part.untold or part.lone or part.notes
    return not alone and not told and all(_is_same(item) and not item.mistakes for item in part.results)


def _equal_step(place: tuple[int, int], part: _Part) -> EqualStep:
    return EqualStep(
        *place,
        len(part.results),
        sum(1 for item in part.results if item.tensors),
        sum(1 for item in part.results if item.match.left),
        sum(1 for item in part.results if item.backward is not None),
    )


def pair_up(
    left: Source,
    right: Source,
    *,
    mapping: str | os.PathLike[str] | None = None,
    modules: Mapping[str, str] | None = None,
    steps: Collection[int] | None = None,
    ranks: Collection[int] | None = None,
) -> Mapping[tuple[int, int], Alignment]:
    """Pairs of two traces, by step and rank; nothing is measured.

    modules   paths of modules that belong together, left: right; instead of a mapping file that says just that
    """
    from ..align import Mapping as Said
    from ..align import align

    if mapping is not None and modules is not None:
        raise UsageError("mapping and modules were both given. Put the modules into the mapping file.")
    traces = (_opened(left), _opened(right))
    common, _ = _places(traces, steps, ranks)
    mapped = _read_mapping(mapping) if modules is None else Said(modules=dict(modules))
    return {
        place: align(_side(traces[0].journal(*place)), _side(traces[1].journal(*place)), mapping=mapped)
        for place in common
    }


def is_operation(name: str) -> bool:
    """Is a function or a class of this name one operation, known to all frameworks (`Conv2d`, `torch.relu`)?"""
    from ..operations import is_class, is_known

    return is_class(name) if name[:1].isupper() else is_known(name)


def same_operation(one: str, two: str) -> bool:
    """Are these two names of one operation: `Dense` and `Linear`, `mindspore.ops.matmul` and `torch.bmm`?"""
    from ..operations import family_of

    return family_of(one) == family_of(two)


def parameter_role(name: str) -> str:
    """Role of a parameter, whatever its framework calls it: `weight` for gamma and for embedding_table."""
    from ..operations.operands import parameter_of

    owner, dot, last = name.rpartition(".")
    return f"{owner}{dot}{parameter_of(last)}"


def write_mapping(
    left: Source,
    right: Source,
    path: str | os.PathLike[str],
    *,
    mapping: str | os.PathLike[str] | None = None,
    steps: Collection[int] | None = None,
    ranks: Collection[int] | None = None,
) -> None:
    """Writes the pairs of the first step and rank that both have as a YAML file to be edited and given back as `mapping`."""
    from ..align.mappings import dumps, mapping_of

    pairs = pair_up(left, right, mapping=mapping, steps=steps, ranks=ranks)
    try:
        Path(path).write_text(dumps(mapping_of(pairs[min(pairs)])), encoding="utf-8")
    except OSError as error:
        raise ReportError(
            f"{path}: the mapping could not be written ({error.strerror}). Choose another path."
        ) from None


def _opened(source: Source) -> Trace:
    return source if isinstance(source, Trace) else open_trace(source, tolerant=True)


def _among(progress: Progress, number: int, count: int) -> Progress:
    """Tells how much of all steps and ranks is done, of which this is one; of a single one, its own numbers."""
    if count == 1:
        return progress

    def tell(what: str, done: int, total: int) -> None:
        share = done / total if total else 1.0
        progress(f"{what} ({number + 1} of {count})", round(_PARTS * (number + share)), _PARTS * count)

    return tell


def _first_half(progress: Progress) -> Progress:
    """Tells of work after which as much again is to come."""
    return lambda what, done, total: progress(what, done, 2 * total)


_PARTS = 1000
"""Into how many parts a step is divided where several are told of together."""


def _silent(what: str, done: int, total: int) -> None:
    """Nobody wants to know."""


def _not_there(
    traces: tuple[Trace, Trace], steps: Collection[int] | None, ranks: Collection[int] | None
) -> Iterator[str]:
    """Steps and ranks that were asked for and that neither trace has."""
    for name, asked, there in (
        ("step", steps, {*traces[0].steps, *traces[1].steps}),
        ("rank", ranks, {*traces[0].ranks, *traces[1].ranks}),
    ):
        absent = sorted(set(asked or ()) - there)
        if absent:
            shown = ", ".join(map(str, absent[:6])) + (" …" if len(absent) > 6 else "")
            yield f"Asked for and in neither trace: {name}{'' if len(absent) == 1 else 's'} {shown}."


def _not_compared_before(traces: tuple[Trace, Trace], steps: Collection[int]) -> Iterator[str]:
    """Steps that were not asked for leave something behind all the same."""
    common = {*traces[0].steps} & {*traces[1].steps}
    first = min(common & {*steps}, default=0)
    earlier = [step for step in common - {*steps} if step < first]
    if earlier:
        which = f"Step {earlier[0]} was" if len(earlier) == 1 else f"Steps {spans(earlier)} were"
        yield f"{which} not compared: what rounding or a mistake has left there in the weights counts as a difference here."


def _zoomed(traces: tuple[Trace, Trace]) -> Iterator[str]:
    """The earlier comparison that two zoomed traces continue."""
    settings = [trace.manifest.get("settings") for trace in traces]
    zooms = [str(item.get("zoom", "")) if isinstance(item, Mapping) else "" for item in settings]
    if zooms[0] and zooms[0] == zooms[1]:
        yield f"Continues an earlier comparison: {zooms[0]}."
    elif any(zooms):
        yield "Only one of the traces is a zoom, or they are two zooms: calls that one side did not record are alone."


def _unused(mapping: Any) -> Any:
    from ..align.mappings import Unused

    return Unused(mapping)


def _read_mapping(path: str | os.PathLike[str] | None) -> Any:
    if path is None:
        return None
    from ..align.mappings import load

    return load(Path(path))


# --- which steps and ranks --------------------------------------------------------------------------------------------


def _places(
    traces: tuple[Trace, Trace], steps: Collection[int] | None, ranks: Collection[int] | None
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """(on both sides, on one side only) of what was asked for."""

    def wanted(trace: Trace) -> set[tuple[int, int]]:
        return {
            place
            for place in trace.places
            if (steps is None or place[0] in steps) and (ranks is None or place[1] in ranks)
        }

    left, right = map(wanted, traces)
    if not left & right:
        which = "" if steps is None and ranks is None else " among those that were asked for"
        raise TraceError(
            f"{traces[0].path} and {traces[1].path} have no step and rank in common{which}: the left has "
            f"{_listed(traces[0].places)}; the right has {_listed(traces[1].places)}."
        )
    return sorted(left & right), sorted(left ^ right)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _listed(places: Sequence[tuple[int, int]]) -> str:
    shown = ", ".join(f"step {step} rank {rank}" for step, rank in places[:4])
    return (shown or "none at all") + (f" and {len(places) - 4} more" if len(places) > 4 else "")


# --- one step of one rank ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Part:
    """Results of one step of one rank."""

    results: list[CallResult]
    only_left: tuple[Alone, ...]
    only_right: tuple[Alone, ...]
    strays: int
    left_behind: Aftermath
    """How far apart rounding may have left the weights."""
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


def _steps_alone(parts: Mapping[tuple[int, int], _Part]) -> set[int]:
    """The steps with calls that only one side makes, and that mean something."""
    both = ((place, item) for place, part in parts.items() for item in part.only_left + part.only_right)
    return {place[0] for place, item in both if not item.skipped}


def _side(journal: Journal) -> Side:
    calls = sorted(journal.calls(), key=lambda call: call.id)
    return Side(journal.header.framework, calls, journal.tensor, tuple(journal.parameter_gradients()), _values(journal))


def _values(journal: Journal) -> Callable[[int], Any]:
    """The values of a journal's tensors as numbers; None where they were not kept or cannot be read, which is told elsewhere."""
    from ..store.arrays import as_float

    def values(number: int) -> Any:
        tensor = journal.tensor(number)
        if tensor.payload is None:
            return None
        try:
            return as_float(journal.array(tensor), tensor.spec.dtype)
        except (TwintraceError, OSError):
            return None

    return values


def _compare_place(
    traces: tuple[Trace, Trace],
    place: tuple[int, int],
    policy: Policy,
    pair: Callable[[Side, Side], Alignment],
    repeat: Trace | None,
    workers: int | None,
    progress: Progress,
    label: str,
    before: Aftermath | None,
    equal_nan: bool,
    brief: bool,
    standing: Mapping[tuple[str, str], Standing] | None,
) -> _Part:
    journals = (traces[0].journal(*place), traces[1].journal(*place))
    sides = (_side(journals[0]), _side(journals[1]))
    progress(f"{label}: pairing", 0, 1)
    alignment = pair(*sides)
    noise = _noise(traces[0], repeat, place, policy, workers) if repeat is not None else {}
    told = f"{label}: measuring"
    measuring = progress if standing is None else _first_half(progress)
    measured = _measure_all(_tensor_pairs(alignment), journals, policy, workers, measuring, told, brief=brief)
    foreign = sides[0].framework != sides[1].framework
    graphs = _graphs(journals, sides)
    readers = graphs[0].meaning, graphs[1].meaning
    bench = Bench(policy, noise=noise, before=before, equal_nan=equal_nan, foreign=foreign, readers=readers)
    inside = _inside(sides[0].calls)
    cases = [
        Case(
            match,
            [replace(measured[_key(pair)], pair=pair) for pair in match.tensors],
            max((inside.get(call.id, 0) for call in match.left), default=0),
        )
        for match in alignment.matches
    ]
    gradients = [replace(measured[_key(pair)], pair=pair) for pair in alignment.parameter_gradients]
    results = bench.judge(*place, cases, gradients)
    results += bench.judge_gradients(*place, gradients)
    strays = _stray_gradients(alignment, sides)
    if standing is None:
        return _Part(results, alignment.only_left, alignment.only_right, strays, bench.left_behind, {})
    progress(f"{label}: recomputing", 1, 2)
    from ..operations.workers import working

    judge = Recomputed(alignment, results, _recomputation(journals, graphs), standing)
    with working():
        judgement = judge.judge()
    progress(f"{label}: recomputing", 1, 1)
    return _Part(
        judgement.results,
        alignment.only_left,
        alignment.only_right,
        strays,
        bench.left_behind,
        judge.left_behind,
        judgement.parted,
        judgement.untold,
        judgement.lone,
        judgement.notes,
        judgement.reached,
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


def _graphs(journals: tuple[Journal, Journal], sides: tuple[Side, Side]) -> tuple[Graph, Graph]:
    """Both sides as graphs of values, which know what their calls mean."""
    found = [
        Graph(
            side.framework,
            side.calls,
            # A tensor is asked for again by every call that takes it; each time it would be parsed anew.
            functools.lru_cache(_TENSORS)(side.tensor),
            str(journal.header.settings.get("level", "mix")),
            journal.header.precision,
        )
        for side, journal in zip(sides, journals, strict=True)
    ]
    return found[0], found[1]


def _recomputation(journals: tuple[Journal, Journal], graphs: tuple[Graph, Graph]) -> Recomputation:
    from ..operations.evaluation import Values
    from ..operations.recomputation import Recomputation

    def reading(which: int) -> Values:
        return Values(_values(journals[which]), lambda number: graphs[which].tensor(number).spec)

    return Recomputation(graphs, (reading(0), reading(1)))


def _with_share(
    found: Divergence | None, results: Sequence[CallResult], traces: tuple[Trace, Trace]
) -> Divergence | None:
    """The first mistake with its share in the gap at the end of its step, by replaying the right side from there."""
    if found is None or found.mistake is None or not found.mistake.effective or not found.tensors or found.place:
        return found
    from ..operations.replay import Compared, share

    place = found.result.step, found.result.rank
    journals = (traces[0].journal(*place), traces[1].journal(*place))
    first = found.tensors[0]
    recomputation = _recomputation(journals, _graphs(journals, (_side(journals[0]), _side(journals[1]))))
    end = _end(results, place, recomputation)
    if end is None or end.pair.right == first.pair.right:
        return found
    origin, last = (Compared(item.pair.left, item.pair.right, item.pair.layout) for item in (first, end))
    got = share(recomputation, origin, last)
    name = "loss" if not end.left.spec.shape else "output"
    if got.stopped:
        return replace(found, share=f"not known: the replay of the right side stops at {got.stopped}")
    if got.failed:
        return replace(found, share=f"not known: {got.failed}")
    if not got.before:
        return found
    fixed = (
        "both start from the same"
        if found.mistake.kind in ("leaf", "weights")
        else "this call gives what the left's gives"
    )
    return replace(found, share=f"{_percent(got.gone)} of the gap at the {name} goes away if {fixed}")


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if 0.0005 <= share < 0.9995 else "all" if share >= 0.9995 else "nothing"


def _end(results: Sequence[CallResult], place: tuple[int, int], recomputation: Recomputation) -> TensorResult | None:
    """The last result of the forward pass that differs: the loss, or the output of the model."""
    side = recomputation.sides[1]
    ends: list[tuple[int, TensorResult]] = []
    for result in results:
        last = max(result.match.right, key=lambda call: call.order, default=None)
        if last is None or (result.step, result.rank) != place or last.site.phase is not Phase.FORWARD:
            continue
        outermost = last.parent is None and last.site.kind is Kind.MODULE
        ends += [
            (last.order, item)
            for item in result.tensors
            if item.pair.part is Part.OUTPUT
            and item.verdict.outcome is Outcome.DIFFERENT
            and (outermost or not side.takers(item.pair.right))
        ]
    return max(ends, key=lambda end: end[0], default=(0, None))[1]


def _stray_gradients(alignment: Alignment, sides: tuple[Side, Side]) -> int:
    """Gradients that one side alone has, and should not: within one framework all of them, between two those of parameters
    that have a partner. A weight that the other side keeps in three pieces has none.
    """
    if sides[0].framework == sides[1].framework:
        inner = (item for match in alignment.matches for item in (*match.only_left, *match.only_right))
        return len(alignment.stray_left) + len(alignment.stray_right) + sum(item.part.backward for item in inner)
    paired: tuple[set[str], set[str]] = (set(), set())
    for match in alignment.matches:
        for pair in match.tensors:
            if pair.part is Part.PARAMETER:
                paired[0].update(f"{call.site.name}.{pair.left_slot}" for call in match.left)
                paired[1].update(f"{call.site.name}.{pair.right_slot}" for call in match.right)
    strays = (alignment.stray_left, alignment.stray_right)
    return sum(item.slot in names for side, names in zip(strays, paired, strict=True) for item in side)


def _inside(calls: Iterable[Call]) -> dict[int, int]:
    """Number of calls made within each."""
    found: dict[int, int] = {}
    for call in sorted(calls, key=lambda call: -call.id):  # what is inside has a higher number
        if call.parent is not None:
            found[call.parent] = found.get(call.parent, 0) + 1 + found.get(call.id, 0)
    return found


def _noise(
    trace: Trace, repeat: Trace, place: tuple[int, int], policy: Policy, workers: int | None
) -> Mapping[int, float]:
    """Distance between two runs of the left side, by the number of the left tensor."""
    from ..align import align

    if place not in repeat.places:
        raise UsageError(
            f"noise: {repeat.path} has no step {place[0]} of rank {place[1]}; it has {_listed(repeat.places)}. "
            f"Give a trace of the left run repeated, with the same steps and ranks."
        )
    journals = (trace.journal(*place), repeat.journal(*place))
    alignment = align(_side(journals[0]), _side(journals[1]))
    measured = _measure_all(_tensor_pairs(alignment), journals, policy, workers, _silent, "")
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
            if not (
                name.startswith("argument ") and _near(*values)
            ):  # a number that was computed may be as unsteady as a tensor
                yield f"{sites[0]} has {name}: {' | '.join(values)}"
        for pair in match.tensors:
            specs = [
                str(journal.tensor(tensor).spec)
                for journal, tensor in zip(journals, (pair.left, pair.right), strict=True)
            ]
            if specs[0] != specs[1]:
                yield f"{sites[0]} has {pair.part} {pair.left_slot}: {' | '.join(specs)}"
            fed = pair.part is Part.PARAMETER or (pair.part is Part.INPUT and not number)
            if fed and (relative_error(measured[_key(pair)]) or 0.0) > _UNRELATED:
                yield f"the {pair.part} {pair.left_slot} of {sites[0]} has other values: it was given other data or weights"


def _near(left: str, right: str) -> bool:
    try:
        return math.isclose(float(left), float(right), rel_tol=0.1)
    except ValueError:
        return False


# --- measuring --------------------------------------------------------------------------------------------------------

_Key = tuple[int, int, Layout]
_UNRELATED = 0.5
"""A relative error from which on two values have nothing in common."""


def _key(pair: TensorPair) -> _Key:
    return pair.left, pair.right, pair.layout


def _tensor_pairs(alignment: Alignment) -> Iterator[tuple[TensorPair, tuple[str, ...]]]:
    for match in alignment.matches:
        sites = [call.site for call in (*match.left, *match.right)]
        names = tuple(dict.fromkeys(name for site in sites for name in (site.name, site.path)))
        for pair in match.tensors:
            yield pair, names
    for pair in alignment.parameter_gradients:
        yield pair, (pair.left_slot, pair.right_slot)


def _measure_all(
    pairs: Iterable[tuple[TensorPair, tuple[str, ...]]],
    journals: tuple[Journal, Journal],
    policy: Policy,
    workers: int | None,
    progress: Progress,
    label: str,
    *,
    brief: bool = False,
) -> dict[_Key, Evidence]:
    """Evidence on each pair of tensors. Values are read only where the bits are not known to be equal."""
    from ..engine.local import Local
    from ..measure.statistics import difference

    found: dict[_Key, Evidence] = {}
    to_read: list[Evidence] = []
    for pair, names in pairs:
        if _key(pair) in found:
            continue
        left, right = journals[0].tensor(pair.left), journals[1].tensor(pair.right)
        apart = difference(left.statistics, right.statistics) if left.statistics and right.statistics else None
        item = Evidence(pair, left, right, None, apart, names)
        found[_key(pair)] = item
        verdict = certain(
            replace(item, statistics=None)
        )  # what the statistics say is asked only if there is nothing else
        decided = verdict is not None and verdict.outcome in (Outcome.SAME, Outcome.DIFFERENT)
        if not decided and left.payload is not None and right.payload is not None:
            to_read.append(item)

    def task(item: Evidence) -> Evidence:
        return _measured(item, journals, policy.tolerance(item.left, item.right, item.names), brief=brief)

    for number, done in enumerate(Local(workers).run(task, to_read), 1):
        item = done.result()
        found[_key(item.pair)] = item
        progress(label, number, len(to_read))
    return found


def _measured(
    item: Evidence,
    journals: tuple[Journal, Journal],
    tolerance: tuple[float, float],
    *,
    heat: bool = False,
    brief: bool = False,
) -> Evidence:
    """Both values read and measured; a damaged one costs its row, not the comparison."""
    from ..measure.values import measure

    rtol, atol = tolerance
    try:
        arrays = [journal.array(tensor) for journal, tensor in zip(journals, (item.left, item.right), strict=True)]
        found = measure(
            arrays[0],
            arrays[1],
            item.left.spec.dtype,
            item.right.spec.dtype,
            item.pair.layout,
            rtol=rtol,
            atol=atol,
            heat=heat,
            brief=brief,
        )
    except (TwintraceError, OSError) as error:
        return replace(item, failure=str(error))
    return replace(item, measurement=found)


def _with_pictures(
    results: tuple[CallResult, ...], traces: tuple[Trace, Trace], workers: int | None
) -> tuple[CallResult, ...]:
    """The first pairs that differ, with a picture of where in the tensor they do."""
    from ..engine.local import Local

    wanted = [
        (number, place)
        for number, result in enumerate(results)
        for place, item in enumerate(result.tensors)
        if item.measurement is not None and item.verdict.outcome is Outcome.DIFFERENT
    ][:_PICTURES]

    def picture(which: tuple[int, int]) -> Measurement | None:
        result = results[which[0]]
        item = result.tensors[which[1]]
        journals = (traces[0].journal(result.step, result.rank), traces[1].journal(result.step, result.rank))
        known = item.measurement
        assert known is not None
        evidence = Evidence(item.pair, item.left, item.right)
        drawn = _measured(evidence, journals, (known.rtol, known.atol), heat=True).measurement
        return drawn or known

    changed = list(results)
    for done in Local(workers).run(picture, wanted):
        number, place = done.item
        tensors = list(changed[number].tensors)
        tensors[place] = replace(tensors[place], measurement=done.result())
        changed[number] = replace(changed[number], tensors=tuple(tensors))
    return tuple(changed)


# --- what is told of the traces themselves ----------------------------------------------------------------------------


def _remarks(traces: tuple[Trace, Trace], walk: _Walk, left_out: Sequence[tuple[int, int]]) -> Iterator[str]:
    parts = list(walk.parts.values())
    if left_out:
        more = f" and {len(left_out) - 6} more" if len(left_out) > 6 else ""
        shown = ", ".join(f"step {step} rank {rank}" for step, rank in left_out[:6])
        yield f"Not compared, only on one side: {shown}{more}."
    if walk.first_bit is not None and len(walk.seen) > 1:
        yield sentence(walk.first_bit)
    if walk.followed:
        steps = spans([item.step for item in walk.followed])
        yield (
            f"Not judged, because the runs had parted before: step{'s' if len(walk.followed) > 1 else ''} {steps}. "
            f"{_of_followed(walk.followed)} To judge one, compare it alone (--step)."
        )
    yield from dict.fromkeys(note for part in parts for note in part.notes)
    for which, trace in enumerate(traces):
        damage = [item for seen in walk.seen.values() for item in seen.damage[which]]
        if damage:
            yield f"{trace.path} is damaged in {_count(len(damage), 'place')}, first: {damage[0]}"
        open_ones = [place for place, seen in walk.seen.items() if not seen.complete[which]]
        if open_ones:
            yield f"{trace.path} ended before {_listed(open_ones)} was closed; what it wrote is compared."
    unreadable = [
        item
        for part in parts
        for result in part.results
        for item in result.tensors
        if item.verdict.outcome is Outcome.UNKNOWN
    ]
    if unreadable:
        yield f"{_count(len(unreadable), 'pair')} of tensors could not be compared, first: {unreadable[0].verdict.because}"
    results = [result for part in parts for result in part.results]
    parted = any(not result.harmless for result in results)
    harmless = sum(result.absorbed_forward or result.absorbed_backward for result in results)
    if harmless and not parted:
        have = "has" if harmless == 1 else "have"
        yield f"{_count(harmless, 'pair')} of calls {have} values that differ without effect: what is made of them agrees."
    yield from _precisions(parts)
    yield from _not_numbers(results)
    strays = sum(part.strays for part in parts)
    if strays:
        yield f"{strays} gradients are on one side only."


def _of_followed(followed: Sequence[FollowedStep]) -> str:
    """By their fingerprints, what differs in steps that were not judged."""
    tensors, different = sum(item.tensors for item in followed), sum(item.different for item in followed)
    others = sum(not item.tensors for item in followed)
    told = f"By their fingerprints {different} of {tensors} values in them differ."
    return told + (f" In {others} of them the two make different calls." if others else "")


def _not_numbers(results: Sequence[CallResult]) -> Iterator[str]:
    """Two runs that agree in being NaN agree, and yet neither of them is well."""
    from ..report.text import places

    found = [
        result
        for result in results
        if any(
            item.left.statistics and item.right.statistics and item.left.statistics.nan and item.right.statistics.nan
            for item in result.tensors
            if not item.pair.part.incoming
        )
    ]
    if found:
        count = f"{len(found)} pairs of calls give" if len(found) > 1 else "1 pair of calls gives"
        yield f"{count} NaN on both sides, first: {places(found[0])}."


def _precisions(parts: Sequence[_Part]) -> Iterator[str]:
    """Results of another precision are allowed what the coarser one rounds: whoever did not mean that wants to know."""
    from ..report.text import places

    found: list[tuple[CallResult, str]] = []
    for result in (result for part in parts for result in part.results if result.match.left):
        specs = [
            (item.left.spec.dtype, item.right.spec.dtype) for item in result.tensors if item.pair.part is Part.OUTPUT
        ]
        if any(one != two and one in UNITS and two in UNITS for one, two in specs):
            one, two = next(pair for pair in specs if pair[0] != pair[1])
            found.append((result, f"{one} | {two}"))
    if found:
        things = "files" if found[0][0].match.left[0].site.kind is Kind.SAVE else "calls"
        count = f"{len(found)} pairs of {things} give" if len(found) > 1 else f"1 pair of {things} gives"
        yield f"{count} results of different precision, first {found[0][1]}: {places(found[0][0])}."


__all__ = ["Progress", "compare", "compare_traces", "pair_up", "write_mapping"]
