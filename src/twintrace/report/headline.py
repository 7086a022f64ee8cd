"""What a page says first, as elements that need no script: what, where on both sides, how large, how sure.

headline_of_comparison(comparison, rows)    the verdict; `rows` are the rows of its partings, for the links
headline_of_trace(listing)                  what was recorded, and the first value that is not finite
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from xml.etree.ElementTree import Element

from ..model.records import Call, Frame
from ..model.results import Comparison, Divergence, TensorResult
from ..model.sites import Kind
from ..model.verdicts import Outcome
from .sheets import element, place, shorten


def headline_of_comparison(comparison: Comparison, rows: Sequence[int]) -> list[Element]:
    """The verdict."""
    partings = [item for item in (comparison.forward, comparison.backward) if item is not None]
    first = comparison.divergence
    title: list[Element | str]
    if first is not None:
        partings.sort(key=lambda item: item is not first)
        title, tone = ["The runs part at ", _strong(_place(first)), f", {_when(first)}"], "different"
    elif comparison.agree:
        title, tone = ["The runs agree"], "same"
    elif not comparison.results:
        title, tone = ["Nothing could be compared"], "unknown"
    elif comparison.count(Outcome.SAME, Outcome.ROUNDING):
        title, tone = ["The runs agree where both have a record, but not everywhere"], "unknown"
    else:
        title, tone = ["It cannot be told whether the runs agree"], "unknown"
    row_of = {
        id(item): row
        for item, row in zip(
            [item for item in (comparison.forward, comparison.backward) if item is not None], rows, strict=True
        )
    }
    found = [element("h1", *title, class_=f"title {tone}"), element("p", _numbers(comparison), class_="sentence")]
    if partings:
        found.append(element("div", *(_parting(item, row_of[id(item)]) for item in partings), class_="cards"))
    remarks = [shorten(text) for text in comparison.remarks]
    if comparison.left_out:
        places = ", ".join(f"step {step} rank {rank}" for step, rank in comparison.left_out[:8])
        more = " …" if len(comparison.left_out) > 8 else ""
        remarks.append(f"Not compared, since only one side has it: {places}{more}.")
    if remarks:
        found.append(element("ul", *(element("li", text) for text in remarks), class_="remarks"))
    return found


def headline_of_trace(
    title: str, sentence: str, first: tuple[str, Sequence[Frame], str, int] | None, remarks: Iterable[str]
) -> list[Element]:
    """What was recorded. `first` is where the first value is that is not finite: name, stack, what it has, and its row."""
    tone = "different" if first else "same"
    found = [element("h1", title, class_=f"title {tone}"), element("p", sentence, class_="sentence")]
    if first is not None:
        name, stack, what, row = first
        facts: list[tuple[str, list[Element | str]]] = [("what", [what]), ("where", [_source(stack)])]
        card = _card(f"First value that is not finite: {name}", facts, row, "Open this row")
        found.append(element("div", card, class_="cards"))
    texts = [element("li", shorten(text)) for text in remarks]
    return [*found, element("ul", *texts, class_="remarks")] if texts else found


def call_name(call: Call) -> str:
    """A call in the user's words: the module's path and class, or the function and where."""
    site = call.site
    count = f", call {site.call + 1}" if site.call else ""
    if site.kind is Kind.MODULE:
        return shorten(f"{site.name or 'the model'}{f' ({site.type})' if site.type else ''}{count}")
    return shorten(f"{site.name}{f' in {site.path}' if site.path else ''}{count}")


def _place(found: Divergence) -> str:
    match = found.result.match
    calls = match.left or match.right
    if calls:
        return call_name(calls[0]) + (f" and {len(calls) - 1} more" if len(calls) > 1 else "")
    slot = found.tensors[0].pair.left_slot if found.tensors else ""
    return shorten(f"the gradient of {slot}")


def _when(found: Divergence) -> str:
    calls = found.result.match.left
    phase = "backward" if found.backward else str(calls[0].site.phase) if calls else "forward"
    rank = f", rank {found.result.rank}" if found.result.rank else ""
    return f"step {found.result.step}{rank}, {phase}"


def _parting(found: Divergence, row: int) -> Element:
    result = found.result
    facts: list[tuple[str, list[Element | str]]] = []
    for name, calls in (("left", result.match.left), ("right", result.match.right)):
        facts.append(
            (name, [_source(calls[0].stack) if calls else element("span", "a gradient that reached a parameter")])
        )
    if found.tensors:
        worst = found.tensors[0]
        facts.append(("what", [f"{_part(worst)}, {worst.left.spec}: {found.because}"]))
        facts.append(("how large", [_size(worst)]))
    else:
        facts.append(("what", [found.because]))
    if result.settings:
        facts.append(("set differently", [_settings(result.settings)]))
    facts.append(("how sure", [_certainty(found)]))
    kind = "First difference in the backward pass" if found.backward else "First difference in the forward pass"
    if found.inherited:
        kind = kind.replace("First difference", "First row that differs")
    return _card(f"{kind}: {_place(found)}, step {result.step}", facts, row)


def _card(
    title: str, facts: Iterable[tuple[str, Sequence[Element | str]]], row: int, link: str = "Open this pair"
) -> Element:
    items = [part for name, content in facts for part in (element("dt", name), element("dd", *content))]
    links = [element("a", link, href=f"#row={row}", class_="open")] if row >= 0 else []
    return element("section", element("h2", title), element("dl", *items), *links, class_="card")


def _source(stack: Sequence[Frame]) -> Element:
    if not stack:
        return element("span", "no source line was recorded", class_="quiet")
    frame = stack[0]
    where = element("span", f"{place(frame)} in {shorten(frame.function)}", class_="place", title=shorten(frame.file))
    return element("span", where, element("code", shorten(frame.code))) if frame.code else where


def _part(worst: TensorResult) -> str:
    pair = worst.pair
    slot = (
        pair.left_slot if pair.left_slot == pair.right_slot else f"{pair.left_slot or '–'} | {pair.right_slot or '–'}"
    )
    return shorten(f"the {pair.part} {slot}".rstrip())


def _size(worst: TensorResult) -> str:
    parts = [worst.verdict.because]
    found = worst.measurement
    if found is not None and found.max_abs is not None:
        largest = f"largest absolute error {found.max_abs:.3g}"
        if found.max_rel is not None:
            largest += f", relative {found.max_rel:.3g}"
        if found.worst is not None:
            at = ", ".join(map(str, found.worst.index))
            largest += f"; at [{at}] left has {found.worst.left:.9g}, right {found.worst.right:.9g}"
        parts.append(largest)
    if found is not None and found.nan_left != found.nan_right:
        parts.append(f"NaN: {found.nan_left} left, {found.nan_right} right")
    return shorten("; ".join(parts))


def _settings(settings: Mapping[str, tuple[str, str]]) -> Element:
    shown = list(settings.items())[:6]
    items = [
        element("span", f"{shorten(name)}: {shorten(left)} | {shorten(right)}", class_="setting")
        for name, (left, right) in shown
    ]
    if len(settings) > len(shown):
        items.append(element("span", f"and {len(settings) - len(shown)} more", class_="quiet"))
    return element("span", *items)


def _certainty(found: Divergence) -> str:
    match = found.result.match
    parts = [f"{found.after:,} pairs before it agree" if found.after else "no pair comes before it"]
    if found.inherited:
        parts = ["this is only the first row that differs: what comes in differs already, so the cause lies before it"]
    if match.because:
        parts.append(f"the two are a pair because: {shorten(match.because)} (confidence {match.confidence:.2g})")
    return "; ".join(parts)


def _numbers(comparison: Comparison) -> str:
    total = len(comparison.results)
    counts = Counter(result.verdict.outcome for result in comparison.results)
    said = {
        Outcome.SAME: "are the same",
        Outcome.ROUNDING: "agree within rounding",
        Outcome.UNKNOWN: "could not be compared",
        Outcome.DIFFERENT: "differ",
    }
    texts = [f"{counts[outcome]:,} {said[outcome]}" for outcome in Outcome if counts[outcome]]
    for side, alone in (("left", comparison.only_left), ("right", comparison.only_right)):
        real = sum(not item.skipped for _, _, item in alone)
        if real:
            texts.append(f"{real:,} calls are only on the {side}")
    return f"{total:,} pairs of calls: {', '.join(texts)}." if texts else "No pair of calls was found."


def _strong(text: str) -> Element:
    return element("strong", text)
