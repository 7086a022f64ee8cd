"""Headline of a page, as elements that need no script: what, where on both sides, how large, how sure.

    headline_of_comparison(comparison, rows)    the verdict; `rows` are the rows of its partings, for the links
    headline_of_trace(title, sentence, first)   contents, and the first value that is not finite

The sentences are those of text.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from xml.etree.ElementTree import Element

from ..model.records import Frame
from ..model.results import Comparison, Divergence
from ..model.verdicts import Outcome
from ..model.words import spans
from . import ranks
from .advice import advice, telling_settings
from .naming import places
from .sheets import element, place, shorten
from .text import balance, described, difference, extent, reason, remarks, sureness

Fact = tuple[str, Sequence[Element | str]]


def headline_of_comparison(comparison: Comparison, rows: Sequence[int]) -> list[Element]:
    """The verdict. `rows` has the row of the forward parting and that of the backward one, as far as there are any."""
    partings = [item for item in (comparison.forward, comparison.backward) if item is not None]
    linked = list(zip(partings, rows, strict=True))
    first = comparison.divergence
    title: list[Element | str]
    both = "The folders" if comparison.saved else "The runs"
    if first is not None:
        linked.sort(key=lambda item: item[0] is not first)
        when = "" if comparison.saved else f", {_when(first)}"
        place = element("strong", shorten(places(first.result, first.mistake)))
        title, tone = [f"{both} part at ", place, when], "different"
    elif comparison.code == 0:
        title, tone = [f"{both} agree"], "same"
    elif not comparison.results:
        title, tone = [f"{both} have nothing in common"], "unknown"
    elif comparison.code == 3:
        title, tone = ["Nothing differs where it could be told, but not everything could be"], "unknown"
    elif comparison.lone:
        title, tone = [f"{both} part at the results: {shorten(comparison.lone[0])}"], "different"
    elif comparison.count(Outcome.SAME, Outcome.ROUNDING):
        title, tone = [f"{both} agree where both have a record, but not everywhere"], "unknown"
    else:
        title, tone = ["No pair of values could be compared"], "unknown"
    parts = [element("h1", *title, class_=f"title {tone}")]
    parts += [element("p", ranks.sentence(comparison), class_="sentence")] if comparison.ranks else []
    parts += [element("p", balance(comparison), class_="sentence")]
    if linked:
        parts.append(element("div", *(_parting(comparison, *item) for item in linked), class_="cards"))
    parts += _ranks(comparison)
    parts += _mistakes(comparison)
    untold = (f"Could not be told: {text}" for text in comparison.untold)
    return [*parts, *_remarks([*remarks(comparison), *untold])]


_SHOWN = 50
"""Mistakes that the page lists; more would bury the table below."""


def _ranks(comparison: Comparison) -> list[Element]:
    """Standing of all ranks, those together that have the same."""
    items = []
    groups = ranks.groups(comparison)
    for group in groups[:_SHOWN]:
        number = len(group.ranks)
        which = f"{number:,} rank{'s' if number > 1 else ''} ({spans(group.ranks)})"
        since = "" if group.step is None else f" since step {group.step}"
        told = ": ".join(filter(None, (f"{which} {group.state}{since}", group.where, group.because)))
        items.append(element("li", shorten(told)))
    if len(groups) > _SHOWN:
        items.append(element("li", f"and {len(groups) - _SHOWN} more places where ranks begin to differ: --json"))
    return _folded(f"All ranks ({len(comparison.ranks):,})", items)


def _folded(title: str, items: Sequence[Element]) -> list[Element]:
    return [element("details", element("summary", title), element("ol", *items), class_="mistakes")] if items else []


def _mistakes(comparison: Comparison) -> list[Element]:
    """All independent mistakes, each with its place and cause."""
    told = [described(*item) for item in comparison.mistakes]
    items = [element("li", shorten(text)) for text in told[:_SHOWN]]
    if len(told) > _SHOWN:
        items.append(element("li", f"and {len(told) - _SHOWN} more: twintrace compare --all"))
    return _folded(f"All mistakes ({len(told)})", items)


def headline_of_trace(
    title: str, sentence: str, first: tuple[str, Sequence[Frame], str, int] | None, remarks: Iterable[str]
) -> list[Element]:
    """Headline of a trace. `first` is where the first value is that is not finite: name, stack, what it has, and its row."""
    tone = "different" if first else "same"
    parts = [element("h1", title, class_=f"title {tone}"), element("p", sentence, class_="sentence")]
    if first is not None:
        name, stack, what, row = first
        facts: list[Fact] = [("what", [what]), ("where", [_source(stack)])]
        card = _card(f"First value that is not finite: {name}", facts, row, "Open this row")
        parts.append(element("div", card, class_="cards"))
    return [*parts, *_remarks(remarks)]


def _remarks(texts: Iterable[str]) -> list[Element]:
    items = [element("li", shorten(text)) for text in texts]
    return [element("ul", *items, class_="remarks")] if items else []


def _when(parting: Divergence) -> str:
    rank = f", rank {parting.result.rank}" if parting.result.rank else ""
    return f"step {parting.result.step}{rank}, {('forward', 'backward', 'update')[parting.place]}"


def _parting(comparison: Comparison, parting: Divergence, row: int) -> Element:
    facts: list[Fact] = []
    for name, calls in zip(("left", "right"), parting.calls, strict=True):
        if calls and not comparison.saved:
            facts.append((name, [_source(calls[0].stack)]))
    facts.append(("what", [shorten(difference(comparison, parting))]))
    if parting.tensors or parting.mistake is not None:
        facts.append(("how large", [shorten(_size(parting))]))
    if parting.mistake is not None:
        facts.append(("why", [shorten(reason(parting.mistake))]))
    settings = telling_settings(parting)
    if settings:
        facts.append(("set differently", [_settings(dict(settings))]))
    if parting.share:
        facts.append(("share", [shorten(parting.share)]))
    facts.append(("how sure", [shorten(sureness(parting, comparison))]))
    if parting is comparison.divergence and not comparison.saved:
        facts.append(("look next", [shorten(advice(comparison, parting))]))
    kind = "gradients" if parting.backward else "values"
    title = f"First {kind} that differ" if parting.inherited else f"First difference in the {kind}"
    if parting is not comparison.divergence:  # the place of that one is what the page begins with
        when = "" if comparison.saved else f", {_when(parting)}"
        title += f": {places(parting.result, parting.mistake)}{when}"
    return _card(shorten(title), facts, row)


def _size(parting: Divergence) -> str:
    """The sentence of the terminal, and the largest errors, for which there is room here."""
    measured = parting.tensors[0].measurement if parting.tensors else None
    if measured is None or measured.max_abs is None:
        return extent(parting)
    relative = f", relative {measured.max_rel:.3g}" if measured.max_rel is not None else ""
    return f"{extent(parting)}; largest absolute error {measured.max_abs:.3g}{relative}"


def _card(title: str, facts: Iterable[Fact], row: int, link: str = "Open this pair") -> Element:
    items = [part for name, content in facts for part in (element("dt", name), element("dd", *content))]
    links = [element("a", link, href=f"#row={row}", class_="open")] if row >= 0 else []
    return element("section", element("h2", title), element("dl", *items), *links, class_="card")


def _source(stack: Sequence[Frame]) -> Element:
    if not stack:
        return element("span", "no source line was recorded", class_="quiet")
    frame = stack[0]
    label = f"{place(frame)} in {shorten(frame.function)}"
    file = shorten(frame.file)
    where = element("span", label, class_="place", title=file, data_file=file, data_line=str(frame.line))
    return element("span", where, element("code", shorten(frame.code))) if frame.code else where


def _settings(settings: Mapping[str, tuple[str, str]]) -> Element:
    shown = list(settings.items())[:6]
    texts = [f"{shorten(name)}: {shorten(left)} | {shorten(right)}" for name, (left, right) in shown]
    items = [element("span", text, class_="setting") for text in texts]
    if len(settings) > len(shown):
        items.append(element("span", f"and {len(settings) - len(shown)} more", class_="quiet"))
    return element("span", *items)
