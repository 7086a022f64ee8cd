"""A comparison in at most 15 lines: what, where, how large, how sure, what to look at next.

runs/torch and runs/mindspore part at encoder.norm (LayerNorm), step 0, forward

  left    model.py:21 in forward: x = self.norm(x)
  right   net.py:33 in construct: x = self.ln(x)
  what    what comes in agrees, what goes out does not: the output, f32[4, 16]
  size    relative error 5.1e-06, 22.0 times what rounding explains (f32, sums of 16); worst at [2, 3]: 1.23401 | 1.23452
  set     eps: 1e-05 | 1e-07
  sure    31 pairs before it agree; paired because they have the same parameters
  next    give both sides the same eps

  44 pairs of calls: 12 the same, 25 within rounding, 7 different. Alone: 1 left, 2 right (3 carry no meaning of their own).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import PurePath

from ..model.pairs import Alone, Part
from ..model.records import Call
from ..model.results import CallResult, Comparison, Divergence, TensorResult
from ..model.sites import Kind
from ..model.verdicts import Outcome

MAX_LINES = 15
_UPDATE = 2  # Divergence.place
MAX_WIDTH = 160


def verdict(result: Comparison) -> str:
    """The comparison as text."""
    found = result.divergence
    lines = list(_parting(result, found) if found else _agreement(result))
    lines += [f"  {remark}" for remark in result.remarks]
    lines = [legible(line) for line in lines]
    return "\n".join([lines[0], *(_cut(line) for line in lines[1:MAX_LINES])])


def _agreement(result: Comparison) -> Iterator[str]:
    names = _both(result)
    compared = result.count(Outcome.SAME, Outcome.ROUNDING)
    if not result.results:
        things = "files" if result.saved else "calls"
        yield (
            f"{names} have nothing in common: none of the {result.left.calls} {things} of the left ({result.left.framework}) "
            f"could be paired with one of the {result.right.calls} of the right ({result.right.framework})."
        )
    elif result.agree:
        same, rounding = result.count(Outcome.SAME), result.count(Outcome.ROUNDING)
        if not rounding:
            how = f"{'all ' if compared > 1 else ''}{_pairs(compared)} {_are(compared)} the same, {_exactness(result)}"
        else:
            alike = f"{'all ' if compared > 1 else ''}{_pairs(compared)}"
            equal = f"{same} of {compared} pairs {_are(same)} equal, the other{'s' * (rounding > 1)}" if same else alike
            how = f"{equal} within {_allowed(result)}"
        yield f"{names} agree: {how}."
        yield f"  {balance(result)}"
    elif result.code == 3:
        yield f"{names}: nothing differs where it could be told, but not everything could be"
        for text in result.untold[:4]:
            yield f"  untold  {text}"
        yield f"  {balance(result)}"
    elif compared:
        yield f"{names} agree where both have a record ({_pairs(compared)}), but not everywhere:"
        yield from _alone(result)
        yield f"  {balance(result)}"
    else:
        yield f"{names}: {pairs_of(result)}, and no pair of values that could be compared."
        yield from _alone(result)


def _exactness(result: Comparison) -> str:
    tensors = [item for found in result.results for item in found.tensors]
    if all((item.left.fingerprint and item.right.fingerprint) or item.measurement for item in tensors):
        return "bit by bit"
    return "as far as their statistics tell; keep='fingerprint' would tell more"


def _allowed(result: Comparison) -> str:
    if result.policy == "auto":
        return "what rounding explains"
    return "the tolerances that were given" if result.policy == "tolerances" else f"the tolerances of {result.policy}"


def _parting(result: Comparison, found: Divergence) -> Iterator[str]:
    calls = found.result.match
    where = f", step {found.result.step}, {('forward', 'backward', 'update')[found.place]}"
    where += f", rank {found.result.rank}" if found.result.rank else ""
    yield f"{_both(result)} part at {places(found.result)}{'' if result.saved else where}"
    yield ""
    if calls.left and not result.saved:
        yield f"  left    {_source(calls.left)}"
        yield f"  right   {_source(calls.right)}"
    first = found.tensors[0] if found.tensors else None
    if first is not None:
        yield f"  what    {found.because}: {tensor_name(first, held_name(result, found, first.pair.left_slot))}"
        yield f"  size    {size(first)}"
        yield from _numbers(first)
    if found.mistake is not None:
        yield f"  why     {found.mistake.why or 'not told by what was recorded'}"
    settings = list(found.result.settings.items())
    if settings:
        shown = ", ".join(f"{name}: {left} | {right}" for name, (left, right) in settings[:4])
        yield f"  set     {shown}" + (f" and {len(settings) - 4} more" if len(settings) > 4 else "")
    yield f"  sure    {sureness(found)}"
    if not result.saved:
        yield f"  next    {advice(result, found)}"
    yield ""
    yield f"  {balance(result)}"
    if result.backward is not None and not found.backward and not result.backward.inherited:
        yield f"  The gradients part at {places(result.backward.result)}."


def _both(result: Comparison) -> str:
    """Both names, as short as they can be told apart: what matters comes after them."""
    parts = [PurePath(side.path).parts for side in (result.left, result.right)]
    length = 1
    while length < max(map(len, parts)) and parts[0][-length:] == parts[1][-length:]:
        length += 1
    return " and ".join(str(PurePath(*side[-length:])) for side in parts)


def places_of(found: CallResult) -> tuple[str, str]:
    """What the two sides call it."""
    if not found.match.left:
        pair = found.tensors[0].pair
        return f"the gradient of {pair.left_slot}", f"the gradient of {pair.right_slot}"
    return _region(found.match.left), _region(found.match.right)


def places(found: CallResult) -> str:
    """What the two sides call it, once if they call it the same."""
    left, right = places_of(found)
    return left if left == right else f"{left} | {right}"


def _region(calls: Sequence[Call]) -> str:
    return single_place(calls[0]) if len(calls) == 1 else f"{single_place(calls[0])} … {single_place(calls[-1])}"


def single_place(call: Call) -> str:
    """A call as people would name it."""
    site = call.site
    count = f" (call {site.call + 1} of the step)" if site.call else ""
    if site.kind is Kind.MODULE:
        return f"{site.name or 'the model'} ({site.type}){count}"
    inside = f" in {site.path}" if site.path else ""
    return f"{site.name}{inside}{count}"


def _source(calls: Sequence[Call]) -> str:
    frames = [call.stack[0] for call in calls if call.stack]
    if not frames:
        return "(no source line was recorded)"
    first = frames[0]
    more = f"  (and {len(calls) - 1} {'call' if len(calls) == 2 else 'calls'} more)" if len(calls) > 1 else ""
    return f"{PurePath(first.file).name}:{first.line} in {first.function}: {first.code}"[:110] + more


def tensor_name(item: TensorResult, held: str = "") -> str:
    """`the output 0, f32[4, 16]`, and of which parameter, if that is known."""
    slots = dict.fromkeys(filter(None, (item.pair.left_slot, item.pair.right_slot)))
    spec = str(item.left.spec) if item.left.spec == item.right.spec else f"{item.left.spec} | {item.right.spec}"
    return f"the {item.pair.part} {' | '.join(slots)}".rstrip() + (f" ({held})" if held else "") + f", {spec}"


def held_name(result: Comparison, found: Divergence, slot: str) -> str:
    """What an optimizer has as `parameters.14`, `gradients.14` or `state.14.exp_avg`, by the name in the model: `fc1.weight`."""
    number = next((part for part in reversed(slot.split(".")) if part.isdigit()), "")
    if found.place != _UPDATE or not number:
        return ""
    taken = {item.pair.left_slot: item.pair.left for item in found.result.tensors if item.pair.part is Part.INPUT}
    parameter = taken.get(f"0.{number}")
    for other in result.results if parameter is not None else ():
        if (other.step, other.rank) == (found.result.step, found.result.rank) and other.match.left:
            for item in other.tensors:
                if item.pair.part is Part.PARAMETER and item.pair.left == parameter:
                    return ".".join(filter(None, (other.match.left[0].site.name, item.pair.left_slot)))
    return ""


def size(item: TensorResult) -> str:
    """How large the difference is, and where it is largest."""
    worst = item.measurement.worst if item.measurement else None
    where = f"; worst at [{', '.join(map(str, worst.index))}]: {worst.left:.9g} | {worst.right:.9g}" if worst else ""
    return item.verdict.because + where


def _numbers(item: TensorResult) -> Iterator[str]:
    """The statistics, where no element was read."""
    if item.measurement is not None:
        return
    for side, tensor in (("left ", item.left), ("right", item.right)):
        known = tensor.statistics
        if known is not None and known.min is not None:
            bad = (
                f"  nan {known.nan}  inf {known.posinf + known.neginf}"
                if known.nan + known.posinf + known.neginf
                else ""
            )
            numbers = (("min", known.min), ("max", known.max), ("mean", known.mean), ("norm", known.norm))
            told = "  ".join(f"{name} {number:.9g}" for name, number in numbers if number is not None)
            yield f"          {side} {told}{bad}"


def sureness(found: Divergence) -> str:
    """What speaks for it that this is the place."""
    match = found.result.match
    pairs = (
        f"{_pairs(found.after)} before it {'agrees' if found.after == 1 else 'agree'}"
        if found.after and not found.inherited
        else f"{_pairs(found.after)} before it"
    )
    if found.inherited and not found.after:
        pairs = "nothing was recorded before it"
    confidence = f" ({match.confidence:.0%})" if match.confidence < 1 else ""
    return f"{pairs}; paired because: {match.because}{confidence}"


def advice(result: Comparison, found: Divergence) -> str:
    """What to look at next."""
    if found.advice:
        return found.advice
    names = list(found.result.settings)
    if found.inherited and any(map(found.result.holds, found.tensors)):
        if _had_the_same_weights(result, found):
            return (
                f"the weights were the same in step {found.result.step - 1}: look at the optimizer's step, its settings and what "
                f"it takes (zero_grad, clipping); level='mix' records it"
            )
        return "give both sides the same weights and compare again"
    if found.inherited and found.result.match.left and not found.after:
        return "compare what the two runs were fed: data, preprocessing, order, dtype"
    near = None if found.backward else _nearest_alone(result, found)
    if near is None and found.inherited and not found.backward:
        near = _nearest_alone(result, found, skipped=True)  # a padding that was taken to mean nothing
    if near and (found.inherited or not names):
        return f"look at what only the {near[0]} calls before it: {single_place(near[1])}, {_source([near[1]])}"
    lone = _lone_gradient(result, found)
    if lone:
        return lone
    if found.inherited:
        return "record more: level='mix', and every step from the first"
    if names:
        return f"give both sides the same {', '.join(names[:3])}"
    if found.tensors and found.tensors[0].pair.part.incoming and not found.backward:
        return "give both sides their arguments in the same order"
    if any(item.left.spec.dtype != item.right.spec.dtype for item in found.tensors):
        return "compute in the same dtype on both sides"
    if any(not item.skipped for _, _, item in (*result.only_left, *result.only_right)):
        return "look at the two lines above, and at the calls that only one side makes (--table)"
    return "look at the two lines above: the same input gives another output"


def _lone_gradient(result: Comparison, found: Divergence) -> str:
    """An optimizer that is given a gradient on one side only."""
    match = found.result.match
    for side, other, strays in (("left", "right", match.only_left), ("right", "left", match.only_right)):
        slots = [stray.slot for stray in strays if stray.part is Part.INPUT and ".gradients." in f".{stray.slot}"]
        if slots and found.place == _UPDATE:
            name = held_name(result, found, slots[0]) or slots[0].removeprefix("kw.")
            more = f" and of {len(slots) - 1} more" if len(slots) > 1 else ""
            return f"only the {side} has a gradient of {name}{more}: is it frozen, or out of the loss, on the {other}?"
    return ""


def _had_the_same_weights(result: Comparison, found: Divergence) -> bool:
    """Did these calls take the same weights in the step before?"""
    weights = [
        item
        for before in result.results
        if (before.step, before.rank) == (found.result.step - 1, found.result.rank)
        for item in before.tensors
        if before.holds(item)
    ]
    return bool(weights) and all(item.verdict.outcome in (Outcome.SAME, Outcome.ROUNDING) for item in weights)


def _nearest_alone(result: Comparison, found: Divergence, *, skipped: bool = False) -> tuple[str, Call] | None:
    """The last call before the parting, or inside it, that only one side makes and that means something; or seems not to."""
    place, match = (found.result.step, found.result.rank), found.result.match
    near: list[tuple[int, str, Call]] = []
    for side, alone, here in (("left", result.only_left, match.left), ("right", result.only_right, match.right)):
        until = max((call.order for call in here), default=0)
        near += [
            (until - item.call.order, side, item.call)
            for step, rank, item in alone
            if (step, rank) == place and item.skipped is skipped and item.call.order < until
        ]
    first = min(near, key=lambda item: item[:2], default=None)
    return first[1:] if first else None


def _alone(result: Comparison) -> Iterator[str]:
    for side, found in (("left", result.only_left), ("right", result.only_right)):
        alone: list[Alone] = [item for _, _, item in found if not item.skipped]
        if alone:
            calls = ("file" if result.saved else "call") + ("s" if len(alone) > 1 else "")
            yield f"  only {side}: {len(alone)} {calls}, first {single_place(alone[0].call)}: {alone[0].because}"


def balance(result: Comparison) -> str:
    """How many pairs have which outcome, and how many calls are alone."""
    counts = Counter(item.verdict.outcome for item in result.results)
    told = ", ".join(f"{counts[item]} {word}" for item, word in _WORDS.items() if counts[item])
    alone = ""
    if result.only_left or result.only_right:
        skipped = sum(item.skipped for _, _, item in (*result.only_left, *result.only_right))
        aside = f" ({skipped} carry no meaning of their own)" if skipped else ""
        alone = f" Alone: {len(result.only_left)} left, {len(result.only_right)} right{aside}."
    return f"{pairs_of(result)}: {told or 'none'}.{alone}"


def pairs_of(result: Comparison) -> str:
    """How many pairs the results are, and of what."""
    return f"{_pairs(len(result.results))} of {'files' if result.saved else 'calls'}"


def _pairs(count: int) -> str:
    return "1 pair" if count == 1 else f"{count} pairs"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


_WORDS = {
    Outcome.SAME: "the same",
    Outcome.ROUNDING: "within rounding",
    Outcome.DIFFERENT: "different",
    Outcome.UNKNOWN: "not comparable",
}


def legible(text: str) -> str:
    """Names come from a file: a line break or a terminal's control sequence among them is shown, not obeyed."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _cut(line: str) -> str:
    return line if len(line) <= MAX_WIDTH else line[: MAX_WIDTH - 1] + "…"
