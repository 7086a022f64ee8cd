"""Runs on several ranks as runs on one: the sides of a comparison whose numbers of ranks differ.

whole = assembled(trace, other, pair)      a trace of one rank, whose steps are put together as they are asked for
whole.findings                             differences among the ranks themselves, by step
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from ..model.errors import TraceFormatError
from ..model.pairs import Alignment, Declared, Match, Side
from ..model.records import Call
from ..model.results import CallResult, Mistake
from ..model.sites import Phase
from ..model.tensors import Spec, Tensor
from ..model.words import some
from ..operations.sides import inputs_of, outputs_of
from ..store.trace import Journal, Trace
from .composed import composed
from .places import PlaceResult, side_of

if TYPE_CHECKING:
    from ..layouts import Assembled, Finding

Pair = Callable[[Side, Side], Alignment]


class WholeTrace(Trace):
    """A run on several ranks as one of a single rank.

    Args:
        trace: the run on several ranks.
        other: the run that it is compared with: on one rank, put together, or on several ranks, which then only tell their data.
        pair: pairs the calls of two sides.
        flipped: True if the other run is the right one.
        declared: mesh and placements that the user says.
    """

    def __init__(
        self, trace: Trace, other: Trace, pair: Pair, *, flipped: bool, declared: Declared | None = None
    ) -> None:
        self._declared = declared
        path, manifest, places, _ = trace.parts()
        self._trace, self._other, self._pair, self._flipped = trace, other, pair, flipped
        self._found: dict[int, Assembled] = {}
        self.run_ranks = trace.ranks
        steps = sorted({step for step, _ in places})
        world = int(manifest.get("world") or len(trace.ranks))
        self.missing = {step: tuple(rank for rank in range(world) if (step, rank) not in set(places)) for step in steps}
        """Ranks of which a step was not recorded."""
        whole = [(step, 0) for step in steps if not self.missing[step]]
        super().__init__(path, manifest, whole, self._put_together, layout=trace.layout)

    def assembled(self, step: int) -> Assembled:
        """One step, put together."""
        if step not in self._found:
            from ..layouts import assemble

            journals = [composed(self._trace.journal(step, rank)) for rank in self.run_ranks]
            earlier = [known for known in self._found if known < step]
            self._found[step] = assemble(
                journals,
                lambda side: self._beside(step, side),
                self._leaves(step),
                self._losses(step),
                self._micro_batches(step),
                self._found[max(earlier)].parameters if earlier else None,
                self._declared,
                self._held(),
                self._first(),
            )
        return self._found[step]

    def placements(self, step: int) -> Declared:
        """Mesh and placements that a step was put together with, as a user would say them."""
        whole = self.assembled(step)
        axes = len(whole.mesh.rank_axes)
        told = {
            name: tuple(str(item) for item in parts[:axes])
            for name, parts in (*whole.parameters.items(), *whole.doubtful.items())
        }
        return Declared(whole.mesh.shape[:axes], told)

    def remarks(self, steps: Iterable[int]) -> Iterator[str]:
        """Sentences on how the ranks were put together, and which were not there."""
        compared = list(steps)
        if compared:
            yield f"{self.path}: {self.assembled(compared[0]).summary()}"
        for step, ranks in self.missing.items():
            if ranks:
                yield (
                    f"{self.path}: step {step} was not compared, because {'rank' if len(ranks) == 1 else 'ranks'} "
                    f"{', '.join(map(str, ranks[:6]))}{' …' if len(ranks) > 6 else ''} did not record it."
                )

    @functools.cached_property
    def _first_step(self) -> int | None:
        """The first step that both runs have: there weights have the bits that they began with."""
        return min(set(self.steps) & set(self._other.steps), default=None)

    def _held(self) -> Mapping[str, tuple[Spec, str | None]] | None:
        """The other run's parameters in the first step, where it is on one rank."""
        from ..layouts import parameters_of

        step = self._first_step
        return None if step is None or not self._is_beside_one(step) else parameters_of(self._other.journal(step, 0))

    def _first(self) -> Sequence[Journal]:
        return (
            [self._trace.journal(self._first_step, rank) for rank in self.run_ranks]
            if self._first_step is not None
            else []
        )

    def _put_together(self, step: int, rank: int) -> Journal:
        return cast(Journal, self.assembled(step).journal)

    def _is_beside_one(self, step: int) -> bool:
        """True if the other run has this step, on one rank."""
        return len(self._other.ranks) == 1 and (step, 0) in self._other.places

    def _others(self, step: int) -> list[Journal]:
        """The other run's journals of a step."""
        return [
            composed(self._other.journal(step, rank))
            for rank in self._other.ranks
            if (step, rank) in self._other.places
        ]

    def _micro_batches(self, step: int) -> int:
        """Micro-batches of this run for one of the other's."""
        from ..layouts import count_of

        counts = {count_of(journal) for journal in self._others(step)}
        return count_of(self._trace.journal(step, self.run_ranks[0])) if counts == {1} else 1

    def _losses(self, step: int) -> list[float]:
        """Numbers at which the other run's backward pass begins; of several ranks their means, which copies have as well."""
        losses = [_losses_of(side_of(journal)) for journal in self._others(step)]
        return [sum(items) / len(items) for items in zip(*losses, strict=False)]

    def _leaves(self, step: int) -> set[tuple[Spec, str | None]]:
        """The other run's tensors that no recorded call made: data and weights."""
        if not self._is_beside_one(step):
            from ..layouts import leaves_of_ranks

            journals = self._others(step)
            return leaves_of_ranks(journals) if journals else set()
        journal = self._other.journal(step, 0)
        taken: set[int] = set()
        made: set[int] = set()
        for call in journal.calls():
            own = set(inputs_of(call).values())
            taken |= own
            made |= set(outputs_of(call).values()) - own  # a call that hands on its argument has not made it
        tensors = [journal.tensor(number) for number in taken - made]
        return {(tensor.spec, tensor.fingerprint) for tensor in tensors if tensor.fingerprint}

    def _beside(self, step: int, side: Side) -> Mapping[int, tuple[Tensor, Callable[[], Any]]]:
        """The other run's tensors beside the groups of the ranks."""
        if not self._is_beside_one(step):
            return {}
        other = side_of(composed(self._other.journal(step, 0)))
        sides = (side, other) if self._flipped else (other, side)
        alignment = self._pair(*sides)
        tensors: dict[int, tuple[Tensor, Callable[[], Any]]] = {}
        pairs = [pair for match in alignment.matches for pair in match.tensors if not pair.part.backward]
        for pair in pairs:
            mine, theirs = (pair.left, pair.right) if self._flipped else (pair.right, pair.left)
            if pair.layout.axes is None and not pair.layout.reshaped:
                tensors.setdefault(mine, (other.tensor(theirs), functools.partial(other.values, theirs)))
        return tensors


def _losses_of(side: Side) -> list[float]:
    """Numbers that calls of a backward pass gave and that none took."""
    taken = {number for call in side.calls for number in inputs_of(call).values()}
    losses = []
    for call in side.calls:
        for number in set(outputs_of(call).values()) - taken if call.gradients else ():
            values = side.values(number) if not side.tensor(number).spec.shape else None
            if values is not None:
                losses.append(float(values))
    return losses


def micro_batches(traces: Sequence[Trace]) -> list[int]:
    """Micro-batches of the first step that both runs on one rank have; 1 for each where the two are about as long."""
    from ..layouts import count_of

    places = sorted(set(traces[0].places) & set(traces[1].places))
    if not places:
        return [1, 1]
    journals = [trace.journal(*places[0]) for trace in traces]
    short, long = sorted(map(len, journals))
    return [1, 1] if long < _LONGER * short else [count_of(journal) for journal in journals]


_LONGER = 1.5
"""Times that a journal of several micro-batches is as long as that of one batch, at least: two make nearly all calls twice."""


def is_same_layout(traces: Sequence[Trace]) -> bool:
    """True if the first ranks of two runs hold and update parameters of the same shapes, in the first step that both have."""
    for place in sorted(set(traces[0].places) & set(traces[1].places)):
        try:
            return len({_held(trace.journal(*place)) for trace in traces}) == 1
        except TraceFormatError:  # told where it is compared; another will tell of the layout
            continue
    return True


def unlike_models(traces: Sequence[Trace]) -> Iterator[str]:
    """A sentence for each run that holds parameters of names that the other does not have on any rank: another layout of one model
    has all of them somewhere.
    """
    steps = sorted(set(traces[0].steps) & set(traces[1].steps))
    if not steps or traces[0].framework != traces[1].framework:
        return
    names: list[set[str]] = []
    anew = False
    for trace in traces:
        if isinstance(trace, WholeTrace) and (steps[0], 0) in trace.places:
            assembled = trace.assembled(steps[0])
            names.append(set(assembled.names))
            anew = anew or assembled.is_numbered_anew
            continue
        journals = (trace.journal(*place) for place in trace.places if place[0] == steps[0])
        calls = (call for journal in journals for call in journal.calls())
        held = (f"{call.site.name}.{name}" for call in calls for name in call.parameters)
        names.append({name.removeprefix("module.") for name in held})
    for side, mine, other in (("left", names[0], names[1]), ("right", names[1], names[0])):
        alone = sorted(mine - other)
        if alone and other:
            if anew:
                yield (
                    f"The {side} alone holds {some(alone, 3)}: the ranks of the other number their modules anew, and which is "
                    f"which is not told."
                )
            else:
                yield f"The two cannot be layouts of one model: the {side} alone holds {some(alone, 3)}."


def _held(journal: Journal) -> frozenset[tuple[str, Spec, str]]:
    """Names, shapes and placements of the parameters of modules, and of those that optimizers take."""
    held = set()
    for call in journal.calls():
        numbers = {f"{call.site.name}.{name}".removeprefix("module."): item for name, item in call.parameters.items()}
        if call.site.phase is Phase.UPDATE:
            numbers = {slot: item for slot, item in inputs_of(call).items() if slot.startswith("0.")}
        for name, item in numbers.items():
            tensor = journal.tensor(item)
            held.add((name, tensor.spec, str(tensor.facts.get("placements", ""))))
    return frozenset(held)


def without_unplaced(part: PlaceResult, assembled: Assembled, which: int) -> PlaceResult:
    """Results of a step without mistakes where a tensor of the ranks could not be placed: there nothing can be told, nor of calls
    that only some ranks make.
    """
    unplaced, unmerged = assembled.unplaced, list(assembled.unmerged)
    if not unplaced and not unmerged:
        return part
    results, untold = [], list(part.untold)
    if unmerged:
        more = f", and {len(unmerged) - 1} more calls are not of all ranks" if len(unmerged) > 1 else ""
        untold.append(unmerged[0] + more)
    for result in part.results:
        numbers = {item.pair.right if which else item.pair.left for item in result.tensors}
        if result.mistakes and numbers & set(unplaced):
            untold.append(f"{result.mistakes[0].what}: some of it could not be put together of the ranks")
            result = replace(result, mistakes=(), untold=result.untold or "it could not be put together of the ranks")
        results.append(result)
    untold += part.lone
    parted = any(mistake.effective for result in results for mistake in result.mistakes)
    return replace(part, results=results, untold=tuple(dict.fromkeys(untold)), lone=(), parted=part.parted and parted)


def with_findings(
    results: Sequence[CallResult], findings: Mapping[int, Sequence[Finding]], *, which: int
) -> list[CallResult]:
    """The results with differences among the ranks of one side as mistakes, at the calls that show them."""
    changed = list(results)
    told: set[str] = set()
    for step, items in sorted(findings.items()):
        new = [item for item in items if item.group is None or item.what not in told]
        told.update(item.what for item in new)
        for item in reversed(new):  # the first of a call comes first
            if item.group is not None and step > min(findings):  # other weights stay others: told once
                item = replace(item, what=f"{item.what}, since step {step}")
            calls: list[tuple[Call, ...]] = [(item.call,), ()] if which == 0 else [(), (item.call,)]
            words = (item.what, item.why, item.advice, ("left", "right")[which])
            mistake = Mistake("ranks", *words, backward=item.backward, left=calls[0], right=calls[1])
            place = _shown_at(changed, step, item, which)
            if place is None:
                match = Match(calls[0], calls[1], "only one side")
                changed.append(CallResult(step, 0, match, (), None, None, mistakes=(mistake,)))
            else:
                changed[place] = replace(changed[place], mistakes=(mistake, *changed[place].mistakes))
    return changed


def _shown_at(results: Sequence[CallResult], step: int, finding: Finding, which: int) -> int | None:
    """The result that shows a finding: the first call to end that has its tensor, else the call itself or a module around it."""
    with_tensor = [
        (max(call.order for call in (*result.match.left, *result.match.right)), number)
        for number, result in enumerate(results)
        if result.step == step
        and result.match.left
        and any(finding.group == (item.pair.right if which else item.pair.left) for item in result.tensors)
    ]
    if with_tensor:
        return min(with_tensor)[1]
    for call in finding.around:
        for number, result in enumerate(results):
            calls = result.match.right if which else result.match.left
            if result.step == step and any(other.id == call for other in calls):
                return number
    return None
