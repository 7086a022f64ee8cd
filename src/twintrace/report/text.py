"""A comparison in at most 15 lines, before they are wrapped: place, difference, size, cause, certainty, next step.

runs/torch and runs/mindspore part at encoder.norm (LayerNorm), step 0, forward

  left    model.py:21 in forward: x = self.norm(x)
  right   net.py:33 in construct: x = self.ln(x)
  what    on the same inputs, the two calls give different results: the output, f32[4, 16]
  size    5.1e-06 apart on the same inputs, 86 times the rounding of f32; worst at [2, 3]: 1.23401 | 1.23452
  why     eps: 1e-05 | 1e-07; with the left's the results agree: 5.1e-06 → 0.0e+00
  share   99.8 % of the gap at the loss goes away if this call gives what the left's gives
  sure    31 pairs before it agree; paired because: the same parameters
  next    set eps=1e-05 on the right: net.py:33

  44 pairs of calls: 12 the same, 25 within rounding, 7 different (2 in gradients alone). Unpaired: 1 left, 2 right.

A line that is longer than the terminal is wrapped below its text; in a pipe nothing is wrapped or cut.
"""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from ..model.pairs import Alone
from ..model.results import CallResult, Comparison, Divergence, Mistake, TensorResult
from ..model.tensors import UNITS
from ..model.verdicts import Outcome
from ..model.words import counted, times
from . import ranks
from .advice import advice, recorded_with, recording, telling_settings
from .naming import held_name, legible, places, single_place, source_of, tensor_name, updates

MAX_LINES = 15
_REMARKS = 3
"""Remarks that are printed with the verdict, however many lines it has: a damaged trace is never passed over."""
_ALWAYS = 9
_LABEL = 10
"""Columns that a label takes: two blanks, the word, blanks."""
_NARROW = 40
"""Terminals with fewer columns are not wrapped for: a column of words is harder to read than a broken line."""


@dataclass(frozen=True, slots=True)
class _Line:
    """One line of a verdict. Where there are too many, those of the lowest `worth` are left out, the last first."""

    label: str
    text: str
    worth: int = _ALWAYS

    def render(self, width: int | None) -> list[str]:
        head = f"  {self.label:<{_LABEL - 2}}" if self.label else ""
        whole = legible(head + self.text)
        if width is None or width < _NARROW or len(whole) <= width:
            return [whole]
        indent = " " * (_LABEL if self.label or whole.startswith(" " * _LABEL) else 2)
        return textwrap.wrap(whole, width, subsequent_indent=indent, break_on_hyphens=False, replace_whitespace=False)


def verdict(result: Comparison, *, width: int | None = None, everything: bool = False) -> str:
    """The comparison as text.

    Args:
        result: the comparison.
        width: columns of the terminal; None for a pipe, where nothing is wrapped.
        everything: all mistakes after the verdict, however many lines that takes.
    """
    parting = result.divergence
    lines = list(_parting(result, parting) if parting else _agreement(result))
    if result.ranks:
        lines.insert(1, _Line("ranks", ranks.sentence(result)))
    lines += [_Line("", f"  {remark}", 1) for remark in _aside(result)]
    lines += [_Line("", f"  {remark}") for remark in result.remarks[:_REMARKS]]
    if len(result.remarks) > _REMARKS:
        lines.append(_Line("", f"  {len(result.remarks) - _REMARKS} more remarks are in the reports (--json, --html)."))
    if result.code != 3 and result.untold:
        more = f" and {len(result.untold) - 1} more" if len(result.untold) > 1 else ""
        lines.append(_Line("", f"  Could not be told: {result.untold[0]}{more}.", 2))
    told = _fitted(lines, width)
    if everything:
        told += [row for line in _listed(result) for row in line.render(width)]
    return "\n".join(told)


def _fitted(lines: Sequence[_Line], width: int | None) -> list[str]:
    """The lines as they are printed, at most MAX_LINES before they are wrapped: those of the least worth are left out."""
    kept = list(lines)
    while len(kept) > MAX_LINES and (least := min(line.worth for line in kept)) < _ALWAYS:
        kept.pop(max(place for place, line in enumerate(kept) if line.worth == least))
    return [row for line in kept for row in line.render(width)]


def remarks(result: Comparison) -> list[str]:
    """Sentences that a reader must know: differences without effect first, then those that were accepted, then all others."""
    return [*_aside(result), *result.remarks]


def _aside(result: Comparison) -> list[str]:
    """Differences that cost nothing: without effect, or accepted."""
    idle = [item for item in result.mistakes if not item[1].effective and not item[1].accepted]
    taken = [item for item in result.mistakes if item[1].accepted]
    texts = []
    for intro, items in (("Without effect on any result", idle), ("Accepted", taken)):
        if items:
            place, mistake = items[0]
            more = f" (and {len(items) - 1} more: --all)" if len(items) > 1 else ""
            reason = f" [{mistake.accepted}]" if mistake.accepted not in ("", "accepted") else ""
            texts.append(f"{intro}: {places(place, mistake)}: {cause_of(mistake)}{reason}{more}")
    return texts


def _listed(result: Comparison) -> Iterator[_Line]:
    """All mistakes, one line each."""
    if not result.mistakes:
        return
    yield _Line("", "")
    yield _Line("", "  All mistakes, each with its place and cause:")
    for number, (place, mistake) in enumerate(result.mistakes, 1):
        yield _Line(f"{number:>4}", described(place, mistake))


def described(place: CallResult, mistake: Mistake) -> str:
    """One mistake in one line: place, difference, cause, and whether it counts."""
    phase = "backward" if mistake.backward else "update" if updates(place) else "forward"
    rank = f", rank {place.rank}" if place.rank else ""
    what, _ = sentence(mistake)
    why = reason(mistake) if mistake.why != mistake.what or what != mistake.what else ""
    aside = "accepted" if mistake.accepted else "" if mistake.effective else "no effect on any result"
    notes = ", ".join(filter(None, (aside, _marginal(mistake))))
    return f"{places(place, mistake)}, step {place.step}{rank}, {phase}: " + "; ".join(filter(None, (what, why, notes)))


def _marginal(mistake: Mistake) -> str:
    marginal = mistake.marginal and mistake.kind == "kernel"
    return f"marginal, {times(mistake.size)} times what is allowed" if marginal else ""


def reason(mistake: Mistake) -> str:
    """The cause with its proof, or that there is none."""
    if mistake.why:
        return mistake.why
    if mistake.kind in ("leaf", "weights"):
        return "no recorded call made it: it differed before the first one"
    return "nothing that was tried explains it"


def cause_of(mistake: Mistake) -> str:
    """The cause without its proof, or the difference where no cause is known."""
    return re.split("; with(?:out it| the left's)", mistake.why)[0] if mistake.why else sentence(mistake)[0]


_MEANT = re.compile(r"the two calls mean something else: (\S+ apart on the same inputs)")
_KERNEL = re.compile(r"(the (?:left|right)'s .+? does not give what it says it computes): (.+)", re.DOTALL)
_UNPROVEN = re.compile(r"different, judged without recomputation \((.*)\): (.+)", re.DOTALL)


def sentence(mistake: Mistake) -> tuple[str, str]:
    """`(difference, numbers)` of a mistake: the sentence for `what` and the part of it that belongs to `size`."""
    if (match := _MEANT.fullmatch(mistake.what)) is not None:
        return "on the same inputs, the two calls give different results", match[1]
    if (match := _KERNEL.fullmatch(mistake.what)) is not None:
        return f"{match[1]} from its own operands", match[2]
    if (match := _UNPROVEN.fullmatch(mistake.what)) is not None:
        return f"the results differ (not recomputed: {match[1]})", match[2]
    if mistake.kind == "random" and mistake.why.startswith(mistake.what):
        return "the two draw different random numbers", ""
    head, _, setting = mistake.what.partition(": ")
    if setting and mistake.why.startswith(setting):
        return head, ""  # the cause says the rest
    return mistake.what, ""


def _agreement(result: Comparison) -> Iterator[_Line]:
    names = _both(result)
    compared = result.count(Outcome.SAME, Outcome.ROUNDING)
    if not result.results:
        things = "files" if result.saved else "calls"
        yield _Line(
            "",
            f"{names} have nothing in common: none of the {result.left.calls} {things} of the left ({result.left.framework}) "
            f"could be paired with one of the {result.right.calls} of the right ({result.right.framework}).",
        )
    elif result.code == 0:
        same, rounding = result.count(Outcome.SAME), result.count(Outcome.ROUNDING)
        if any(mistake.accepted for _, mistake in result.mistakes):
            how = "all that differs was accepted"
        elif same + rounding < len(result.results):
            how = f"every result of the run is within {_allowed(result)}"
        elif not rounding:
            how = f"{'all ' if compared > 1 else ''}{counted(compared, 'pair')} {_are(compared)} the same, {_exactness(result)}"
        else:
            alike = f"{'all ' if compared > 1 else ''}{counted(compared, 'pair')}"
            equal = f"{same} of {compared} pairs {_are(same)} equal, the other{'s' * (rounding > 1)}" if same else alike
            how = f"{equal} within {_allowed(result)}"
        yield _Line("", f"{names} agree: {how}.")
        yield _Line("", f"  {balance(result)}")
    elif result.code == 3 and (compared or result.untold):
        yield _Line("", f"{names}: nothing differs where it could be told, but not everything could be")
        for text in result.untold[:4]:
            yield _Line("untold", text)
        if len(result.untold) > 4:
            yield _Line("", f"          and {len(result.untold) - 4} more")
        yield _Line("next", recording(result))
        yield _Line("", f"  {balance(result)}")
    elif result.lone:
        yield _Line("", f"{names} part at the results: {result.lone[0]}")
        for text in result.lone[1:4]:
            yield _Line("also", text)
        yield _Line("next", "let both sides compute the same results, or accept it with --accept")
        yield _Line("", f"  {balance(result)}")
    elif compared:
        yield _Line("", f"{names} agree where both have a record ({counted(compared, 'pair')}), but not everywhere:")
        yield from (_Line("", line) for line in _alone(result))
        yield _Line("", f"  {balance(result)}")
    else:
        yield _Line("", f"{names}: {pairs_of(result)}, and no pair of values that could be compared.")
        yield from (_Line("", line) for line in _alone(result))


def _exactness(result: Comparison) -> str:
    tensors = [item for judged in result.judged for item in judged.tensors]
    if all((item.left.fingerprint and item.right.fingerprint) or item.measurement for item in tensors):
        return "bit by bit"
    more = "" if recorded_with(result, "keep", "fingerprint", "tensor") else "; keep='fingerprint' would tell more"
    return f"as far as their statistics tell{more}"


def _allowed(result: Comparison) -> str:
    if result.policy == "auto":
        return "what rounding explains"
    return "the tolerances that were given" if result.policy == "tolerances" else f"the tolerances of {result.policy}"


def _parting(result: Comparison, parting: Divergence) -> Iterator[_Line]:
    left, right = parting.calls
    where = f", step {parting.result.step}, {('forward', 'backward', 'update')[parting.place]}"
    where += f", rank {parting.result.rank}" if parting.result.rank or result.ranks else ""
    yield _Line("", f"{_both(result)} part at {places(parting.result, parting.mistake)}{'' if result.saved else where}")
    yield _Line("", "", 3)
    if (left or right) and not result.saved:
        yield _Line("left", source_of(left))
        yield _Line("right", source_of(right))
    first = parting.tensors[0] if parting.tensors else None
    what = difference(result, parting)
    if what:
        yield _Line("what", what)
    if first is not None or parting.mistake is not None:
        yield _Line("size", extent(parting))
    if first is not None:
        yield from (_Line("", line, 5) for line in _numbers(first))
    if parting.mistake is not None:
        yield _Line("why", reason(parting.mistake))
    settings = telling_settings(parting)
    if settings:
        shown = ", ".join(f"{name}: {left} | {right}" for name, (left, right) in settings[:4])
        yield _Line("set", shown + (f" and {len(settings) - 4} more" if len(settings) > 4 else ""), 4)
    if parting.share:
        yield _Line("share", parting.share, 7)
    yield _Line("sure", sureness(parting, result), 6)
    if not result.saved:
        yield _Line("next", advice(result, parting))
    other = others(result, parting)
    if other:
        yield _Line("also", other, 8)
    yield _Line("", "", 3)
    yield _Line("", f"  {balance(result)}")
    if result.backward is not None and not parting.backward and not result.backward.inherited and not other:
        yield _Line("", f"  The gradients part at {places(result.backward.result)}.", 2)


def difference(result: Comparison, parting: Divergence) -> str:
    """The difference in one sentence, and the tensor that shows it."""
    what = parting.because if parting.mistake is None else sentence(parting.mistake)[0]
    if not parting.tensors:
        return what
    first = parting.tensors[0]
    held = held_name(result, parting, first.pair.left_slot)
    if parting.mistake is not None and parting.mistake.kind in ("leaf", "weights") and f"the {first.pair.part}" in what:
        spec = "" if str(first.left.spec) in what else f", {first.left.spec}"
        return what + (f" ({held})" if held else "") + spec
    return f"{what}: {tensor_name(first, held)}"


def extent(parting: Divergence) -> str:
    """The numbers of a parting: relative error, worst element, the roundings of both calls beside their bounds."""
    first = parting.tensors[0] if parting.tensors else None
    if parting.mistake is None:
        return size(first) if first is not None else ""
    mistake, told = parting.mistake, []
    numbers = sentence(mistake)[1]
    if numbers:
        told.append(numbers)
    if first is not None:
        measured, dtypes = first.measurement, {first.left.spec.dtype, first.right.spec.dtype}
        rounded = not dtypes.isdisjoint(UNITS)  # integers are exact
        if rounded and mistake.kind == "meaning" and 0 < mistake.size < float("inf") and numbers:
            coarse = dtypes.pop() if len(dtypes) == 1 else "the coarser side"
            told[-1] += f", {times(mistake.size)} times the rounding of {coarse}"
        if measured is not None and measured.rmse is not None and measured.rms_left:
            relative = f"{measured.rmse / measured.rms_left:.1e}"
            if relative not in numbers:
                told.append(f"relative error {relative} as recorded")
        elif first.verdict.error is not None and "relative error" not in numbers:
            told.append(f"relative error {first.verdict.error:.1e}")
        worst = measured.worst if measured else None
        if worst is not None and "worst at" not in numbers:
            told.append(f"worst at [{', '.join(map(str, worst.index))}]: {worst.left:.9g} | {worst.right:.9g}")
        terms = first.terms
        if rounded and terms is not None and (terms.left is not None or terms.right is not None):
            own = " | ".join("–" if item is None else times(item) for item in (terms.left, terms.right))
            told.append(f"own error {own} times the rounding bound")
    return "; ".join(told) or "not measured"


def others(result: Comparison, parting: Divergence) -> str:
    """Mistakes beside the headline's that reach a result: a marginal one before it by name, of the rest the first."""
    rest = [item for item in result.mistakes if item[1].effective and item[1] is not parting.mistake]
    own = None if parting.mistake is None else cause_of(parting.mistake)  # the same again in the gradients is no other
    rest = [item for item in rest if item[0] is not parting.result or cause_of(item[1]) != own]
    if not rest:
        return ""
    place, mistake = rest[0]
    small = f" ({_marginal(mistake)})" if _marginal(mistake) else ""
    more = f"; {len(rest) - 1} more (--all lists them)" if len(rest) > 1 else ""
    return f"{places(place, mistake)}: {cause_of(mistake)}{small}{more}"


def _both(result: Comparison) -> str:
    """Both names, as short as they can be told apart."""
    parts = [PurePath(side.path).parts for side in (result.left, result.right)]
    length = 1
    while length < max(map(len, parts)) and parts[0][-length:] == parts[1][-length:]:
        length += 1
    return " and ".join(str(PurePath(*side[-length:])) for side in parts)


def size(item: TensorResult) -> str:
    """Size of the difference, and where it is largest."""
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
            inf = known.posinf + known.neginf
            bad = f"  nan {known.nan}  inf {inf}" if known.nan + inf else ""
            numbers = (("min", known.min), ("max", known.max), ("mean", known.mean), ("norm", known.norm))
            told = "  ".join(f"{name} {number:.9g}" for name, number in numbers if number is not None)
            yield f"          {side} {told}{bad}"


def sureness(parting: Divergence, result: Comparison) -> str:
    """Evidence that this is the place."""
    match = parting.result.match
    mark = next((place for place, item in enumerate(result.judged) if item is parting.result), 0)
    guilty = any(item.mistakes and item.step <= parting.result.step for item in result.judged[:mark])
    pairs = f"{counted(parting.after, 'pair')} before it"
    if parting.after and not parting.inherited and not guilty:
        pairs += " agrees" if parting.after == 1 else " agree"
    elif parting.inherited and not parting.after:
        pairs = "nothing was recorded before it"
    confidence = f" ({match.confidence:.0%})" if match.confidence < 1 else ""
    return f"{pairs}; paired because: {match.because}{confidence}"


def _alone(result: Comparison) -> Iterator[str]:
    for side, lone in (("left", result.only_left), ("right", result.only_right)):
        alone: list[Alone] = [item for _, _, item in lone if not item.skipped]
        if alone:
            calls = counted(len(alone), "file" if result.saved else "call")
            yield f"  only {side}: {calls}, first {single_place(alone[0].call)}: {alone[0].because}"


def balance(result: Comparison) -> str:
    """Number of pairs of each outcome, and of calls without a partner."""
    counts = Counter({outcome: result.count(outcome) for outcome in _WORDS})
    words = dict(_WORDS)
    # Without it a comparison whose gradients all differ reads as if no value agreed.
    backward = sum(item.verdict.outcome is Outcome.DIFFERENT and not item.values_differ for item in result.judged)
    if backward:
        words[Outcome.DIFFERENT] += f" ({backward} in gradients alone)"
    told = ", ".join(f"{counts[item]} {word}" for item, word in words.items() if counts[item])
    alone = [item for _, _, item in (*result.only_left, *result.only_right)]
    unpaired = (
        f" Unpaired: {len(result.only_left)} left, {len(result.only_right)} right{_harmless(alone)}." if alone else ""
    )
    return f"{pairs_of(result)}: {told or 'none'}.{unpaired}"


def _harmless(alone: Sequence[Alone]) -> str:
    """The number of unpaired calls that do not count as a difference, as the end of a sentence."""
    count = sum(item.skipped for item in alone)
    if not count:
        return ""
    if count == len(alone):
        return "; it does not matter" if count == 1 else "; none of them matters"
    return f"; {count} of them {'does' if count == 1 else 'do'} not matter"


def pairs_of(result: Comparison) -> str:
    """Number of pairs of calls, or of files."""
    return f"{counted(len(result.results), 'pair')} of {'files' if result.saved else 'calls'}"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


_WORDS = {
    Outcome.SAME: "the same",
    Outcome.ROUNDING: "within rounding",
    Outcome.DIFFERENT: "different",
    Outcome.UNKNOWN: "not comparable",
}
