"""The ranks of one step as one journal.

found = assemble(journals, pairs)      pairs: the groups of the ranks beside the tensors of the other side
found.journal                          aligned, measured and judged like any other
found.findings                         differences among the ranks themselves
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..model.errors import TraceError, UsageError
from ..model.pairs import Declared, Side
from ..model.records import Call, Damage, Gradient, Header, Note
from ..model.sites import Kind, Phase
from ..model.tensors import Spec, Tensor
from ..model.values import TensorRef, Token, Value, mapped
from ..operations.sides import inputs_of, outputs_of
from ..store.digest import fingerprint
from ..store.trace import Journal
from .candidates import sharded
from .collectives import collective_of
from .findings import Finding, findings_of
from .inference import Inference
from .merging import DIFFERENT, Merged, merge
from .meshes import Mesh, mesh_of
from .microbatches import split
from .numbering import Held, parameters_of, renamed, renaming_of
from .parts import Parts
from .pipelines import drop_across_stages, join_stages, stages_by_sending, tie_stages
from .placements import REPLICATE, Array, Part, Placements, put_together, told
from .placing import NUMBERED_ANEW
from .wholes import Placed, Reference, Wholes


class WholeJournal:
    """Journal of the whole, put together from the journals of the ranks as it is asked for."""

    def __init__(self, journals: Sequence[Journal], merged: Merged, inference: Inference, parts: Parts) -> None:
        self._journals, self._merged, self._inference, self._parts = journals, merged, inference, parts
        first = journals[0].header
        self.header: Header = replace(first, rank=0, world=1, groups=())
        kept = [inference.calls[call.id] for call in merged.calls if call.id in inference.calls]
        self._calls = [self._placed_only(call) for call in kept if call.id not in parts.replaced]

    @property
    def damage(self) -> tuple[Damage, ...]:
        return tuple(item for journal in self._journals for item in journal.damage)

    @property
    def complete(self) -> bool:
        return all(journal.complete for journal in self._journals)

    def __len__(self) -> int:
        return len(self._calls)

    def calls(self) -> Iterator[Call]:
        return iter(self._calls)

    def calls_of_ranks(self) -> Sequence[Call]:
        """Calls of single ranks, which are recomputed and not compared."""
        return self._parts.calls

    def parameter_gradients(self) -> Iterator[Gradient]:
        return iter(self._merged.gradients)

    def notes(self) -> Iterator[Note]:
        for journal in self._journals:
            yield from journal.notes()

    def tensors(self) -> Iterator[Tensor]:
        return (self.tensor(number) for number in range(len(self._merged.groups)))

    def tensor(self, identity: int) -> Tensor:
        return self._parts.tensor(identity) if self._parts.has(identity) else self._inference.whole(identity)

    def array(self, tensor: Tensor) -> Array:
        return self._parts.array(tensor.id) if self._parts.has(tensor.id) else self._inference.array(tensor.id)

    def slack(self, number: int) -> Array | None:
        """Bound on the roundings of what was added up over the ranks to give a tensor, in units; None if it is no sum."""
        return None if self._parts.has(number) else self._inference.slack(number)

    def _placed_only(self, call: Call) -> Call:
        """A module around calls of single ranks, without tensors that are none of the whole."""
        if call.site.kind is not Kind.MODULE or call.site.phase is Phase.UPDATE:
            return call
        numbers = {*inputs_of(call).values(), *outputs_of(call).values()}
        if numbers <= self._inference.placed.keys():
            return call

        def told(leaf: Value, slot: str) -> Value:
            alone = isinstance(leaf, TensorRef) and leaf.id not in self._inference.placed
            return Token(DIFFERENT, "a tensor of each rank") if alone else leaf

        return replace(
            call,
            args=tuple(mapped(value, told) for value in call.args),
            kwargs={name: mapped(value, told) for name, value in call.kwargs.items()},
            output=mapped(call.output, told),
        )


@dataclass(frozen=True, slots=True)
class Assembled:
    """A step of several ranks as one journal."""

    journal: WholeJournal
    findings: tuple[Finding, ...]
    mesh: Mesh
    placed: Mapping[int, Placed]
    unplaced: Mapping[int, str]
    micro: int = 1
    """Micro-batches of each rank, along the last axis of the mesh."""
    parameters: Mapping[str, Placements] = field(default_factory=dict)
    """Placements of the parameters by their names in the model."""
    doubtful: Mapping[str, Placements] = field(default_factory=dict)
    """Placements of results that were inferred with doubt, by the addresses of their calls."""
    names: frozenset[str] = frozenset()
    """Names of the parameters, as the other run has them where that is known."""
    unmerged: tuple[str, ...] = ()
    """Parts that are not in the whole, a sentence each: calls that only some ranks make, gradients that nothing adds up."""

    @property
    def is_numbered_anew(self) -> bool:
        """True if ranks hold other parameters under one name, and which is which is not told."""
        return NUMBERED_ANEW in self.unplaced.values()

    def summary(self) -> str:
        """One sentence: the mesh, and how many tensors are what of the whole."""
        counts: dict[str, int] = {}
        for item in self.placed.values():
            kinds = {str(one.part) for one in item.placements if one.part is not Part.REPLICATE}
            kind = " and ".join(sorted(kinds)) or "replicate"
            counts[kind] = counts.get(kind, 0) + 1
        shown = ", ".join(f"{number} {kind}" for kind, number in sorted(counts.items()))
        unsure = sum(item.confidence < 1 for item in self.placed.values())
        more = f", {unsure} of them inferred with doubt" if unsure else ""
        open_ones = f"; {len(self.unplaced)} could not be placed" if self.unplaced else ""
        ranks = self.mesh.size // self.micro
        parts = [f"{ranks} ranks"] if ranks > 1 else []
        parts += [f"{self.micro} micro-batches"] if self.micro > 1 else []
        return f"{' of '.join(parts)} put together ({self.mesh}): {shown} tensors{more}{open_ones}."


def assemble(
    journals: Sequence[Journal],
    align: Callable[[Side], Mapping[int, tuple[Tensor, Callable[[], Any]]]],
    leaves: Collection[tuple[Spec, str | None]] = (),
    losses: Sequence[float] = (),
    micro: int = 1,
    known: Mapping[str, Placements] | None = None,
    declared: Declared | None = None,
    held: Held | None = None,
    first: Sequence[Journal] = (),
) -> Assembled:
    """The journals of all ranks of a step as one.

    Args:
        journals: in the order of the ranks.
        align: gives, for the calls of the ranks as a side of a comparison, the other side's tensor and values beside each group.
        leaves: shape, element type and bits of the other side's tensors that no call made.
        losses: numbers at which the other side's backward pass begins.
        micro: micro-batches of the ranks for one batch of the other side.
        known: placements of parameters by their names in the model, where nothing else tells them.
        declared: mesh and placements that the user says.
        held: parameters of the other side in its first step, by their names; None where it is on several ranks itself.
        first: journals of the ranks in that step, whose parameters have the bits of the other side's; those of this step if none.

    Raises:
        UsageError: what the user says does not fit the ranks.
    """
    if len({journal.header.framework for journal in journals}) > 1:
        raise TraceError("The ranks of one run are of different frameworks, and cannot be put together.")
    groups = {group for journal in journals for group in journal.header.groups}
    mesh = _mesh(len(journals), groups, declared)
    stages = stages_by_sending(journals)
    names = [renaming_of(parameters_of(journal), held) if held and any(stages) else {} for journal in first or journals]
    journals = [renamed(journal, mapped) for journal, mapped in zip(journals, names, strict=True)]
    own = {name.removeprefix("module.") for journal in journals for name in parameters_of(journal)}
    theirs = {name.removeprefix("module."): spec for name, (spec, _) in (held or {}).items()}
    # Ranks that count their modules anew have no name that the other side does not have.
    strange = {spec for name, spec in theirs.items() if name not in own} if own <= theirs.keys() else set()
    if micro > 1:
        journals = [piece for journal in journals for piece in split(journal, micro)]
        stages = [stage for stage in stages for _ in range(micro)]
        mesh = Mesh((*mesh.shape, micro) if mesh.size > 1 else (micro,), micro=True)
    merged = merge(journals, mesh, stages)
    if any(stages):
        drop_across_stages(merged, mesh, stages)
        tie_stages(merged, Wholes(journals, merged, mesh).bits)
        join_stages(merged)
    references = {
        number: Reference(tensor.spec.shape, values)
        for number, (tensor, values) in align(_raw(journals, merged)).items()
    }
    inference = Inference(journals, merged, mesh, references, leaves, losses, known, declared, strange)
    inference.run()
    ranks = [journal.header.rank for journal in journals]
    findings = findings_of(inference, merged, ranks, micro)
    unmerged = [
        f"only rank{'' if len(positions) == 1 else 's'} {', '.join(str(ranks[place]) for place in positions[:6])} "
        f"{'calls' if len(positions) == 1 else 'call'} {call.site.name}{f' in {call.site.path}' if call.site.path else ''}"
        for call, positions in merged.lone
        if outputs_of(call) and call.site.kind is not Kind.MODULE
    ]
    unmerged += [f"the ranks call {call.site.name} in other ways: {why}" for call, why in merged.untaken]
    unmerged += _not_seen_reduced(inference, merged)
    journal = WholeJournal(journals, merged, inference, Parts(inference))
    told = {number for call in journal.calls() for number in (*inputs_of(call).values(), *outputs_of(call).values())}
    told.update(gradient.tensor for call in journal.calls() for gradient in call.gradients)
    return Assembled(
        journal,
        tuple(findings),
        mesh,
        inference.placed,
        {number: why for number, why in inference.unplaced.items() if number in told},
        micro,
        {
            name: inference.placed[number].placements
            for number, name in inference.parameter_names().items()
            if number in inference.placed
        },
        {
            str(call.site): inference.placed[number].placements
            for call in journal.calls()
            for number in outputs_of(call).values()
            if number in inference.placed and inference.placed[number].confidence < 1
        },
        frozenset(own),
        tuple(unmerged),
    )


def _mesh(count: int, groups: Collection[Sequence[int]], declared: Declared | None) -> Mesh:
    if declared is None or not declared.mesh:
        return mesh_of(count, groups)
    mesh = Mesh(declared.mesh)
    if mesh.size != count:
        raise UsageError(f"placements: a mesh of {mesh} has {mesh.size} ranks, and the run has {count}.")
    return mesh


def leaves_of_ranks(journals: Sequence[Journal]) -> set[tuple[Spec, str | None]]:
    """Shape, element type and bits of everything that tensors which no call made, on several ranks, may be pieces or copies of."""
    mesh = mesh_of(len(journals), {group for journal in journals for group in journal.header.groups})
    merged = merge(journals, mesh, stages_by_sending(journals))
    wholes = Wholes(journals, merged, mesh)
    taken: dict[int, None] = {}
    made: set[int] = set()
    for call in merged.calls:
        own = inputs_of(call).values()
        taken.update(dict.fromkeys(own))
        made |= set(outputs_of(call).values()) - set(own)
    known: set[tuple[Spec, str | None]] = set()
    for group in taken:
        arrays = None if group in made else wholes.arrays(group)
        if arrays is None:
            continue
        copies = wholes.copies(group)
        for parts, shape in sharded(wholes, group):
            if all((item == REPLICATE) == copy for item, copy in zip(parts, copies, strict=True)):
                spec = Spec(wholes.ranks_of(group)[0].spec.dtype, shape)
                known.add((spec, fingerprint(put_together(arrays, spec, mesh, parts))))
    return known


def _not_seen_reduced(inference: Inference, merged: Merged) -> Iterator[str]:
    """Gradients of which each rank has a part, where nothing that was recorded adds them up and no update shows what was done."""
    reduced = any(call.site.phase is Phase.UPDATE or call.site.type in _REDUCES_UNSEEN for call in merged.calls)
    collected = {
        number
        for call in merged.calls
        if (collective := collective_of(call, inference.mesh))
        for number in collective.taken
    }
    parts = [
        gradient.slot
        for gradient in merged.gradients
        if gradient.tensor not in collected
        and (placed := inference.placed.get(gradient.tensor)) is not None
        and any(item.part is Part.SUM for item in placed.placements)
    ]
    if parts and not reduced:
        more = f" and of {len(parts) - 1} more parameters" if len(parts) > 1 else ""
        yield f"each rank has a part of the gradient of {parts[0]}{more}, and neither a reduction nor an update was recorded"


_REDUCES_UNSEEN = frozenset(("DistributedDataParallel",))
"""Modules that reduce gradients without a call that a recorder sees."""


def _raw(journals: Sequence[Journal], merged: Merged) -> Side:
    """The merged calls with the first rank's tensors, by the numbers of their groups; bits only where all ranks have them."""

    def tensor(number: int) -> Tensor:
        tensors = [journals[place if place >= 0 else ~place].tensor(item) for place, item in merged.groups[number]]
        same = len({(item.fingerprint, item.spec) for item in tensors}) == 1
        first = replace(tensors[0], id=number, parts={}, payload=None)
        return first if same else replace(first, fingerprint=None, statistics=None)

    return Side(journals[0].header.framework, merged.calls, tensor, tuple(merged.gradients))


__all__ = ["Assembled", "WholeJournal", "assemble", "leaves_of_ranks", "told"]
