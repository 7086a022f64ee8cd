"""The first value of a run that is not finite, with its cause: step by step, the first suspect whose values have an effect."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ..model.nonfinite import FINITE, Counts, NonfiniteReport, Origin, Pass, Source, ValueRange
from ..model.records import Call
from ..model.sites import Kind, Phase
from ..model.tensors import LARGEST, Tensor
from ..model.values import tensor_slots
from ..model.words import dotted
from ..operations.nonfinite import (
    Cause,
    by_position,
    cause_of_gradient,
    cause_of_result,
    cause_of_update,
    settings_of,
    terms_of,
)
from ..store.trace import Journal, Trace
from .flow import Flow
from .growth import growth_over_calls, growth_over_steps
from .suspects import (
    Effect,
    ForwardSuspects,
    Suspect,
    effect_of,
    gradient_suspects,
    gradients_do_harm,
    is_uninitialised,
    stray_suspects,
)

_AROUND = 16
"""Steps around a skipped one that are asked whether they update: a loss scaler that begins at 2^16 skips as many at the most."""
_SCALERS = ("_amp_foreach_non_finite_check_and_unscale_", "all_finite", "AllFinite", "FloatStatus")
"""Functions with which loss scalers ask whether the gradients overflowed."""
_UNSEEN = "record with level='mix' (or 'op'), which sees functions as well as modules"
_LISTED = 8
"""Harmless places that are listed; a mask is made again in every layer and step."""


def first_nonfinite(trace: Trace, places: Iterable[tuple[int, int]] | None = None) -> NonfiniteReport:
    """Origin of the first value that is not finite, judged by statistics alone.

    Args:
        trace: a recorded run, of which statistics are enough.
        places: `(step, rank)` of the journals to look through; all of them if None.
    """
    wanted = sorted(trace.places if places is None else places)
    search = _Search(trace)
    for step in sorted({step for step, _ in wanted}):
        origin = search.look_at(step, [rank for number, rank in wanted if number == step])
        if origin is not None:
            return search.report(origin)
        trace.forget()
    return search.report(None)


class _Search:
    """Goes through the steps of one trace."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._steps = 0
        self._harmless: dict[str, None] = {}
        self._told = self._untold = 0
        self._lost: dict[str, int] = {}
        self._without_results = False

    def report(self, origin: Origin | None) -> NonfiniteReport:
        gaps = () if origin else tuple(self._gaps())
        return NonfiniteReport(self._trace.path, origin, self._steps, tuple(self._harmless)[:_LISTED], gaps)

    def _gaps(self) -> Iterator[str]:
        if not self._told and not self._untold:
            yield "nothing was recorded that has values"
        elif not self._told:
            yield "no tensor of the trace has statistics"
        elif self._untold:
            why, count = max(self._lost.items(), key=lambda item: item[1])
            yield f"{self._untold:,} of {self._told + self._untold:,} tensors have no statistics ({why}: {count:,})"
        if self._without_results:
            yield "results were not recorded (inputs_only): what the last calls gave is not known"

    def look_at(self, step: int, ranks: Sequence[int]) -> Origin | None:
        """The first origin of a step; where several ranks have one, that which did not come from another rank."""
        self._steps += 1
        origins = [origin for rank in ranks if (origin := self._look_at(self._trace.journal(step, rank))) is not None]
        own = [origin for origin in origins if origin.source is not Source.ELSEWHERE]
        return next(iter(own or origins), None)

    def _look_at(self, journal: Journal) -> Origin | None:
        if not self._has_any(journal):
            return None
        flow = Flow(journal, self._trace.framework)
        harm = gradients_do_harm(flow)
        forward = ForwardSuspects(flow)
        suspects = [*forward.suspects, *gradient_suspects(flow)]
        hidden: list[Suspect] = []
        for suspect in sorted(suspects, key=lambda item: item.order):
            kernel = suspect.call is not None and suspect.call.site.phase is Phase.BACKWARD
            backward = suspect.when is Pass.BACKWARD and not kernel
            effect = Effect(harm, 0) if backward else effect_of(flow, suspect)
            skipped = suspect.when is Pass.BACKWARD and self._was_skipped(flow)
            if effect.harmful and not skipped:
                return self._origin(flow, suspect, effect, hidden)
            hidden.append(suspect)
            if suspect.call is not None and is_uninitialised(flow, suspect.call):
                continue  # memory that is written to before it is read may hold anything, and does
            self._harmless.setdefault(self._without_effect(flow, suspect, effect, skipped), None)
        if not self._was_skipped(flow):
            unexplained = harm and not any(suspect.when is Pass.BACKWARD for suspect in hidden)
            for suspect in stray_suspects(flow, forward.purposes, unexplained):
                return self._origin(flow, suspect, Effect(True, 0), hidden)
        for call, number, made in forward.on_purpose():
            how = "made" if made else "takes"
            self._harmless.setdefault(f"{named(call)} {how} {flow.state(number)} on purpose", None)
        return None

    def _has_any(self, journal: Journal) -> bool:
        """True if a value is not finite. Also counts tensors without statistics."""
        nonfinite = False
        for tensor in journal.tensors():
            known = tensor.statistics
            if known is not None:
                self._told += 1
                nonfinite = nonfinite or bool(known.nonfinite)
            elif _counts(tensor):
                self._untold += 1
                why = tensor.missing or "not kept"
                self._lost[why] = self._lost.get(why, 0) + 1
        settings = journal.header.settings
        self._without_results = self._without_results or bool(settings.get("inputs_only"))
        return nonfinite

    # --- a step that had no effect ------------------------------------------------------------------------------

    def _was_skipped(self, flow: Flow) -> bool:
        """Did no update follow the gradients of this step, although others are followed by one? A loss scaler does that."""
        if any(call.site.phase is Phase.UPDATE for call in flow.calls):
            return False
        if any(scaler in call.site.name for call in flow.calls for scaler in _SCALERS):
            return True
        _, after = self._neighbours(flow)
        here, there = _weights(flow.journal), {} if after is None else _weights(after)
        if any(_is_broken(known) for known in there.values()):
            return False
        around = sorted((abs(step - flow.step), step) for step, rank in self._trace.places if rank == flow.rank)
        others = [self._trace.journal(step, flow.rank) for step in sorted(step for _, step in around[1 : _AROUND + 1])]
        if any(call.site.phase is Phase.UPDATE for journal in others for call in journal.calls()):
            return True
        if not here or here != there:
            return False
        return any(_weights(one) != _weights(two) for one, two in itertools.pairwise(others))

    def _neighbours(self, flow: Flow) -> tuple[Journal | None, Journal | None]:
        steps = sorted(step for step, rank in self._trace.places if rank == flow.rank)
        place = steps.index(flow.step)
        before = self._trace.journal(steps[place - 1], flow.rank) if place else None
        after = self._trace.journal(steps[place + 1], flow.rank) if place + 1 < len(steps) else None
        return before, after

    def _without_effect(self, flow: Flow, suspect: Suspect, effect: Effect, skipped: bool) -> str:
        where = "a value" if suspect.call is None else named(suspect.call)
        counts = _sum(flow.state(number) for number in suspect.made)
        if skipped:
            why = "no update followed, as with a loss scaler that skips the step"
            return f"step {flow.step}: {where} made {counts} in a gradient; {why}"
        if suspect.when is Pass.BACKWARD:
            return f"{where} made {counts} in a gradient that reaches no weight"
        taken = f", and {named(effect.swallowed[0])} gives finite results of it" if effect.swallowed else ""
        return f"{where} made {counts}{taken}"

    # --- the origin ---------------------------------------------------------------------------------------------

    def _origin(self, flow: Flow, suspect: Suspect, effect: Effect, hidden: Sequence[Suspect]) -> Origin:
        call = suspect.call
        backward = suspect.when is Pass.BACKWARD and not (call is not None and call.site.phase is Phase.BACKWARD)
        made = self._made(flow, suspect, backward)
        given = [flow.range_of(number, "gradient of the output") for number in suspect.given]
        given += [] if call is None else flow.input_ranges(call)
        cause = self._by_place(flow, suspect) or (
            self._of_gradient(flow, suspect, made) if backward else self._of_result(flow, suspect, made)
        )
        led = self._led(flow, suspect, cause, hidden)
        what = f"{self._came_in(flow, suspect)}{'; '.join(_result(item) for item in made)}"
        return Origin(
            flow.step, flow.rank, suspect.when, cause.source, what, cause.why, cause.advice, call, tuple(given), tuple(made),
            tuple(led), self._reached(flow, suspect, effect),
        )  # fmt: skip

    def _made(self, flow: Flow, suspect: Suspect, backward: bool) -> list[ValueRange]:
        if backward:
            parameter = suspect.call is None or suspect.call.site.kind is Kind.MODULE
            known = {item.slot for item in flow.parameter_gradients} if parameter else set()
            role = (
                "gradient of the output"
                if suspect.source in (Source.UNRECORDED, Source.OVERFLOW)
                else "gradient of the input"
            )
            names = [f"gradient of {slot}" if slot in known else f"{role} {slot or '0'}" for slot in suspect.slots]
            return [flow.range_of(number, name) for number, name in zip(suspect.made, names, strict=True)]
        if suspect.source in (Source.DATA, Source.WEIGHTS, Source.UNRECORDED) or suspect.call is None:
            taker = suspect.between[1] if suspect.source is Source.UNRECORDED and suspect.between[1] else suspect.call
            names_of = {} if taker is None else _names_of(taker)
            return [flow.range_of(number, names_of.get(number, "a value")) for number in suspect.made]
        outputs = {(item.spec, item.name): item for item in flow.output_ranges(suspect.call)}
        return [item for item in outputs.values() if item.counts] or [flow.range_of(n, "output") for n in suspect.made]

    def _came_in(self, flow: Flow, suspect: Suspect) -> str:
        if suspect.source in (Source.DATA, Source.WEIGHTS):
            return "it is there before any recorded call: "
        if suspect.source is Source.UNRECORDED:
            return "no recorded call made it: "
        if suspect.when is Pass.BACKWARD and suspect.given:
            return "the gradients that come in are finite: "
        if suspect.when is Pass.BACKWARD and suspect.call is not None and suspect.call.site.phase is not Phase.BACKWARD:
            return "the gradients before it are finite: "
        call = suspect.call
        if call is not None and any(flow.is_bad(number) for number in flow.taken(call)):
            return "infinities that were made on purpose come in: "
        return "what comes in is finite: " if call is not None and flow.taken(call) else ""

    def _by_place(self, flow: Flow, suspect: Suspect) -> Cause | None:
        """Causes that the place tells, whatever the operation."""
        first, second = suspect.between
        if suspect.source is Source.UNRECORDED:
            if suspect.when is Pass.BACKWARD and suspect.call is None:
                why = f"it comes from behind {_quoted(first)}: the loss, or other code that was not recorded"
            elif first is None and second is None:
                why = "made by code that was not recorded"
            else:
                both = f"between {_quoted(first)} and {_quoted(second)}"
                where = (
                    both if first and second else f"behind {_quoted(first)}" if first else f"before {_quoted(second)}"
                )
                why = f"made in the module's own code {where}, which was not recorded"
            return Cause(Source.UNRECORDED, why, _UNSEEN)
        if suspect.source is Source.ELSEWHERE:
            why = "this rank's own part is finite: it came from another rank"
            ranks = [rank for step, rank in self._trace.places if step == flow.step]
            all_there = len(ranks) >= flow.journal.header.world
            return Cause(Source.ELSEWHERE, why, "" if all_there else "record the other ranks as well")
        if suspect.source is Source.DATA:
            name = _names_of(suspect.call).get(suspect.made[0], "an input") if suspect.call is not None else "an input"
            advice = "look at the data: loading, normalisation, an empty record"
            return Cause(Source.DATA, f"{name} is not finite when it comes in", advice)
        if suspect.source is Source.WEIGHTS:
            return self._of_weights(flow, suspect)
        if suspect.source is Source.OVERFLOW:
            ranges = [flow.range_of(number, "") for number in suspect.given]
            sizes = ", ".join(f"{item.size:.4g}" for item in ranges if item.size is not None)
            why = f"overflow in the sum of {len(suspect.given)} gradients (up to {sizes}) of one value"
            return Cause(Source.OVERFLOW, why, "lower the loss scale")
        if suspect.source is Source.PASSED_ON:
            origin = f", from {_quoted(suspect.purposes[0])}" if suspect.purposes else ""
            why = f"an infinity that was made on purpose{origin} is added up with the rest"
            return Cause(Source.PASSED_ON, why, "mask behind this call, or leave masked places out of it")
        return None

    def _of_weights(self, flow: Flow, suspect: Suspect) -> Cause:
        """Weights that were loaded so, or that became so between two steps."""
        names = {
            number: dotted(call.site.name, name)
            for call in flow.calls
            for name, number in (*call.parameters.items(), *call.buffers.items())
        }
        told = None if suspect.call is None else flow.meaning(suspect.call)
        roles = {} if told is None else {operand.tensor: path for path, operand in told.operands()}
        name = names.get(suspect.made[0], roles.get(suspect.made[0], "a weight"))
        before, _ = self._neighbours(flow)
        if before is None:
            why = f"{name} is not finite when the run begins: it was loaded, or initialised, so"
            return Cause(Source.WEIGHTS, why, "check the checkpoint")
        gradients = any(True for _ in before.parameter_gradients())
        seen = "the gradients there are finite" if gradients else "its gradients are not in the record"
        was = f"{name} was finite in step {before.header.step}"
        why = f"{was} and is not any more: the update between made it so; {seen}"
        advice = "record with level='mix', which shows the optimizer's step; look at eps, lr and the scale"
        return Cause(Source.UPDATE, why, advice)

    def _of_result(self, flow: Flow, suspect: Suspect, made: Sequence[ValueRange]) -> Cause:
        call = suspect.call
        assert call is not None
        terms, settings = _terms(flow, call)
        operation = flow.operation(call)
        if is_uninitialised(flow, call):
            advice = "use zeros, or write to it before it is read"
            return Cause(Source.UNINITIALISED, "the memory was never written to", advice)
        dtypes = {flow.tensor(number).spec.dtype for number in flow.taken(call)}
        step = cause_of_update(call, flow.meaning(call), dtypes)
        cause = step or cause_of_result(operation, terms, settings, made)
        if cause is not None:
            return cause if step else _with_autocast(cause, flow, call)
        if call.site.kind is Kind.MODULE and flow.meaning(call) is None:
            inner = "" if not flow.children[call.id] else " behind the modules inside, which are finite,"
            why = f"made in the module's own code,{inner} which was not recorded"
            return Cause(Source.UNRECORDED, why, _UNSEEN)
        if not flow.taken(call):
            return Cause(Source.DATA, "it was made so", "look at what the values are made of")
        advice = "zoom: record this step again with keep='tensor'"
        return Cause(Source.UNKNOWN, "the ranges of what comes in do not tell why", advice)

    def _of_gradient(self, flow: Flow, suspect: Suspect, made: Sequence[ValueRange]) -> Cause:
        call = suspect.call
        advice = "zoom: record this step again with level='op' and keep='tensor'"
        unknown = Cause(Source.UNKNOWN, "the ranges do not tell why", advice)
        if call is None:
            return unknown
        terms, settings = _terms(flow, call)
        results = flow.output_ranges(call)
        given = [flow.range_of(number, "gradient of the output") for number in suspect.given]
        cause = cause_of_gradient(flow.operation(call), terms, settings, results, given, made)
        if cause is None and call.site.kind is Kind.MODULE and flow.meaning(call) is None:
            why = "made in the backward pass of the module's own code, which was not recorded"
            return Cause(Source.UNRECORDED, why, _UNSEEN)
        return _with_autocast(cause, flow, call) if cause is not None else unknown

    def _led(self, flow: Flow, suspect: Suspect, cause: Cause, hidden: Sequence[Suspect]) -> list[str]:
        signs = []
        call = suspect.call
        if call is not None and call.site.phase is Phase.BACKWARD:
            forward = _forward_of(flow, call)
            if forward is not None:
                signs.append(f"it is the backward pass of {_quoted(forward)}")
        if suspect.when is Pass.BACKWARD and call is not None:
            same = [item for item in hidden if item.call is call and item.when is Pass.FORWARD]
            if same:
                counts = _sum(flow.state(number) for number in same[0].made)
                signs.append(f"the forward pass had {counts} here, which no result shows")
        for maker in {item.id: item for item in suspect.purposes}.values():
            signs.append(f"the infinities come from {_quoted(maker)}")
        large = cause.source in (Source.OVERFLOW, Source.UNKNOWN, Source.UPDATE, Source.UNRECORDED)
        if large and call is not None and suspect.when is not Pass.UPDATE and suspect.source is None:
            grown = growth_over_calls(flow, call)
            signs += [grown] if grown else []
        signs += growth_over_steps(self._trace, flow.step, flow.rank, call)
        return signs

    def _reached(self, flow: Flow, suspect: Suspect, effect: Effect) -> str:
        gradients = sum(1 for item in flow.parameter_gradients if flow.is_bad(item.tensor))
        parts = [f"{effect.reached:,} calls" if effect.reached != 1 else "1 call"] if effect.reached else []
        parts += [f"the gradients of {gradients:,} parameter{'s' * (gradients != 1)}"] if gradients else []
        _, after = self._neighbours(flow)
        if after is not None:
            weights = sum(1 for known in _weights(after).values() if _is_broken(known))
            parts += [f"{weights:,} weight{'s' * (weights != 1)} of step {after.header.step}"] if weights else []
        return f"it reaches {', '.join(parts)}" if parts else ""


def _counts(tensor: Tensor) -> bool:
    """Would this tensor have statistics if it could be read?"""
    if tensor.is_lost:
        return True
    real = not tensor.parts and tensor.device != "meta" and math.prod(tensor.spec.shape) > 0
    return real and tensor.spec.dtype in LARGEST


def _sum(states: Iterable[Counts | None]) -> Counts:
    return sum((state for state in states if state is not None), FINITE)


def _result(item: ValueRange) -> str:
    counts = item.counts
    if item.is_rough:  # another tool's statistics count nothing
        kinds = ((counts.nan, "NaN"), (counts.posinf, "+inf"), (counts.neginf, "-inf"))
        return f"the {item.name}, {item.spec}, has {' and '.join(name for count, name in kinds if count)}"
    return f"the {item.name}, {item.spec}, has {counts} of {item.elements:,}"


def named(call: Call) -> str:
    """A call as people speak of it: its name, and the module around it."""
    site = call.site
    if site.kind is Kind.MODULE:
        return f"{site.name or 'the model'} ({site.type})" if site.type else site.name or "the model"
    return f"{site.name} in {site.path}" if site.path else site.name


def _quoted(call: Call | None) -> str:
    if call is None:
        return "nothing"
    return named(call) + (f" ({call.stack[0].place})" if call.stack else "")


def _names_of(call: Call) -> dict[int, str]:
    names = {number: f"input {slot.removeprefix('kw.')}" for slot, number in tensor_slots(call.args, call.kwargs)}
    return names | {number: name for name, number in (*call.parameters.items(), *call.buffers.items())}


def _terms(flow: Flow, call: Call) -> tuple[Mapping[str, ValueRange], Mapping[str, object]]:
    """Operands and settings by the operation's own names; where its meaning is not told, by position."""
    told = flow.meaning(call)
    ranges = {number: flow.range_of(number, "") for number in flow.taken(call)}
    if told is not None:
        return terms_of(told, ranges), settings_of(told)
    return by_position(ranges.values()), {}


def _with_autocast(cause: Cause, flow: Flow, call: Call) -> Cause:
    """An overflow under autocast says so: values that were recorded as f32 were computed in 16 bits."""
    setting = {**flow.journal.header.precision, **call.precision}.get("autocast")
    if cause.source is not Source.OVERFLOW or not isinstance(setting, Mapping) or "f16" not in setting.values():
        return cause
    return Cause(cause.source, f"{cause.why}; autocast computes it in f16", cause.advice)


def _forward_of(flow: Flow, call: Call) -> Call | None:
    """The forward call whose saved values a backward kernel works with: through at most four views and products before it."""
    pending, seen = [(number, 0) for number in flow.taken(call)], set()
    while pending:
        number, depth = pending.pop(0)
        maker = flow.maker.get(number)
        if maker is None or number in seen or depth > 4:
            continue
        seen.add(number)
        moved = flow.operation(maker) in ("detach", "identity", "expand", "reshape", "permute", "unsqueeze", "alias")
        if maker.site.phase is Phase.FORWARD and not moved:
            return maker
        pending += [(taken, depth + 1) for taken in flow.taken(maker)]
    return None


def _weights(journal: Journal) -> dict[str, tuple[object, ...]]:
    """Statistics of each module's parameters, as its first call of the step took them."""
    weights: dict[str, tuple[object, ...]] = {}
    for call in journal.calls():
        for name, number in call.parameters.items():
            known = journal.tensor(number).statistics
            if known is not None:
                numbers = (known.min, known.max, known.mean, known.norm, known.nan, known.posinf + known.neginf)
                weights.setdefault(f"{call.site.name}.{name}", numbers)
    return weights


def _is_broken(known: tuple[object, ...]) -> bool:
    return bool(known[4] or known[5])
