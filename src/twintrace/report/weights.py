"""Reports on weights: as text (a summary, then faults and doubts, then the table), as tables, JSON and one small page.

net.pth -> net.ckpt: 161 weights carried over, 102.5 MB
  renamed 106, reshaped 1, as they are 54
  left behind, and not needed: 53 (bn.num_batches_tracked: a count of batches …)
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from ..model.tensors import Spec
from ..model.weights import Certificate, Conversion, Pair, Unpaired, WeightComparison, WeightMap, WeightRow
from ..model.words import bytes_text
from .notebook import QUIET, verdict_element
from .page import markup
from .sheets import element, shorten
from .tables import Cell, Table, cell

MOST = 12
"""Lines of a kind before the rest is counted."""


def map_text(map: WeightMap, *, table: bool = False) -> str:
    """A map."""
    sure = sum(pair.confidence >= 0.9 for pair in map.pairs)
    state = "complete" if map.complete else "not complete"
    lines = [f"{map.left} -> {map.right}: {len(map.pairs)} weights mapped, {state}"]
    reasons = Counter(re.split(r";|:| \[", pair.because)[0] for pair in map.pairs)
    lines.append(
        f"  sure {sure}, less so {len(map.pairs) - sure}   " + ", ".join(f"{r}: {n}" for r, n in reasons.most_common(4))
    )
    lines += _attention(map)
    unsure = [pair for pair in map.pairs if pair.confidence < 0.9]
    listed = map.pairs if table else unsure
    rows = [(" + ".join(p.left), p.right, p.transform, f"{p.confidence:.2f}", p.because) for p in listed]
    if rows:
        lines += ["", *_table(("left", "right", "transform", "sure", "because"), rows, None if table else MOST)]
    return "\n".join(lines)


def _attention(map: WeightMap) -> Iterator[str]:
    yield from _cut([f"  does not fit   {text}" for text in map.misfits])
    for item in map.ambiguous[:MOST]:
        yield f"  ambiguous      {_some(item.left)}  |  {_some(item.right)}: {item.because}"
    for side, items in (("only left", map.only_left), ("only right", map.only_right)):
        yield from _cut([f"  {side:13}  {item.name}: {item.because}" for item in items if not item.harmless])
        yield from _harmless(side, items)


def _harmless(side: str, items: Iterable[Unpaired]) -> Iterator[str]:
    kept = [item for item in items if item.harmless]
    if kept:
        yield f"  {side:13}  {len(kept)} that are not needed ({kept[0].name}: {kept[0].because})"


def conversion_text(conversion: Conversion, *, table: bool = False) -> str:
    """Report on a conversion."""
    kinds = Counter(
        "computed" if row.transform != "same" and not row.transform.startswith(("insert axis", "drop axis"))
        else "reshaped" if row.transform != "same" else "renamed" if row.left != row.right else "as they are"
        for row in conversion.rows
    )  # fmt: skip
    lines = [
        f"{conversion.source} -> {conversion.target}: {len(conversion.rows)} weights carried over, {bytes_text(conversion.nbytes)}"
    ]
    lines.append("  " + ", ".join(f"{kind} {count}" for kind, count in kinds.most_common()))
    lines += [f"  note           {note}" for note in conversion.notes]
    lines += _attention(conversion.map)
    if table:
        rows = [
            (row.left or "–", row.right or "–", row.transform, str(row.left_spec or "–"), str(row.right_spec or "–"))
            for row in conversion.rows
        ]
        lines += ["", *_table(("left", "right", "transform", "left shape", "right shape"), rows, None)]
    return "\n".join(lines)


def weight_comparison_text(comparison: WeightComparison, *, table: bool = False) -> str:
    """Two checkpoints side by side."""
    counts = Counter(row.verdict for row in comparison.rows)
    verdict = "agree" if comparison.agree else "differ"
    what = "names and shapes" if not comparison.values else f"rtol {comparison.rtol:g}, atol {comparison.atol:g}"
    lines = [
        f"{comparison.left} and {comparison.right} {verdict}: "
        + ", ".join(f"{n} {v}" for v, n in counts.most_common())
        + f" ({what})"
    ]
    lines += [f"  note  {note}" for note in comparison.notes]
    bad = [row for row in comparison.rows if not row.good]
    rows = comparison.rows if table else bad
    if rows:
        heads = ("left", "right", "verdict", "left shape", "right shape", "close", "cosine", "mean error", "max error")
        lines += ["", *_table(heads, map(_numbers, rows), None if table else MOST)]
    return "\n".join(lines)


def _numbers(row: WeightRow) -> tuple[str, ...]:
    return (
        row.left or "–",
        row.right or "–",
        row.verdict,
        str(row.left_spec or "–"),
        str(row.right_spec or "–"),
        "–" if row.ratio is None else f"{math.floor(row.ratio * 10000) / 100:.2f} %",
        "–" if row.cosine is None else f"{row.cosine:.6f}",
        "–" if row.mean_error is None else f"{row.mean_error:.3g}",
        "–" if row.max_error is None else f"{row.max_error:.3g}",
    )


def certificate_text(certificate: Certificate, *, table: bool = False) -> str:
    """A certificate, or why there is none."""
    equal = sum(row.verdict == "equal" for row in certificate.rows)
    head = "certified" if certificate.granted else "NOT certified"
    lines = [
        f"{head}: {certificate.left} -> {certificate.right}",
        f"  {equal} of {len(certificate.rows)} weights are equal under their transform",
    ]
    lines += _cut([f"  mistake        {text}" for text in certificate.mistakes], 50)
    lines += [*_harmless("only left", certificate.only_left), *_harmless("only right", certificate.only_right)]
    if certificate.trial:
        within = f"{sum(row.within for row in certificate.trial)} of {len(certificate.trial)}"
        lines.append(f"  one pass through both nets: {within} outputs and gradients within what rounding explains")
        beyond = [row for row in certificate.trial if not row.within]
        shown = beyond or sorted(certificate.trial, key=lambda row: -row.error / (row.bound or 1))[:1]
        lines += _cut(
            [
                f"    {row.what} {row.name}: off by {row.error:.3g}, at most {row.bound:.3g} ({row.because})"
                for row in shown
            ]
        )
        if beyond and not certificate.mistakes:
            lines.append("    the weights arrived; the nets are set differently (epsilon, padding, activation …)")
    lines += [f"  note           {note}" for note in certificate.notes]
    if table:
        rows = [
            (r.left or "–", r.right or "–", r.transform, r.verdict, r.fingerprint or "–", r.finding)
            for r in certificate.rows
        ]
        lines += ["", *_table(("left", "right", "transform", "verdict", "fingerprint", "finding"), rows, None)]
    return "\n".join(lines)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], most: int | None) -> Iterator[str]:
    listed = [tuple(row) for row in rows]
    shown = [tuple(heads), *listed[:most]]
    widths = [max(len(row[at]) for row in shown) for at in range(len(heads))]
    for row in shown:
        yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
    if most is not None and len(listed) > most:
        yield f"  … and {len(listed) - most} more"


def _cut(lines: Sequence[str], most: int = MOST) -> list[str]:
    return [*lines[:most], *([f"  … and {len(lines) - most} more"] if len(lines) > most else [])]


def _some(names: Sequence[str], most: int = 3) -> str:
    return ", ".join(names[:most]) + (f" … ({len(names)})" if len(names) > most else "")


Found: TypeAlias = WeightMap | Conversion | WeightComparison | Certificate

_PAIR = tuple(field.name for field in dataclasses.fields(Pair))
_ROW = tuple(field.name for field in dataclasses.fields(WeightRow))


def weight_table(report: Found) -> Table:
    """The rows of a report on weights."""
    names, items = (_PAIR, report.pairs) if isinstance(report, WeightMap) else (_ROW, report.rows)
    return Table(names, ([cell(getattr(item, name)) for name in names] for item in items))


def weight_text(report: Found) -> str:
    """The report as the command line prints it."""
    match report:
        case WeightMap():
            return map_text(report)
        case Conversion():
            return conversion_text(report)
        case WeightComparison():
            return weight_comparison_text(report)
    return certificate_text(report)


def weight_json(report: Found) -> str:
    """Everything that the report has, with its verdict and exit code. Numbers that are not finite are texts: "nan", "inf"."""
    kind = next(kind for kind in (WeightMap, Conversion, WeightComparison, Certificate) if isinstance(report, kind))
    head = {"format": f"twintrace-{kind.__name__}", "code": report.code, "verdict": str(report)}
    return json.dumps({**head, **_plain(report)}, ensure_ascii=False, indent=1, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, Spec):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


_STYLE = (
    "body{font:14px/1.5 system-ui,sans-serif;margin:20px;color-scheme:light dark}table{border-collapse:collapse}"
    "th,td{text-align:left;padding:2px 10px;border-bottom:1px solid #8886;white-space:nowrap}"
)


def weight_page(report: Found) -> str:
    """One HTML file that works offline and has no script: the report, then all rows."""

    def shown(item: Cell) -> str:
        return "" if item is None else f"{item:.6g}" if isinstance(item, float) else shorten(str(item))

    columns, rows = weight_table(report)
    head = element("tr", *(element("th", name) for name in columns))
    body = [element("tr", *(element("td", shown(item)) for item in row)) for row in rows]
    policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    parts = [element("title", f"{shorten(str(report))} · twintrace"), element("style", _STYLE)]
    content = [
        verdict_element(weight_text(report), good=report.code == 0),
        element("p", f"{len(body):,} rows", style=QUIET),
        element("table", element("thead", head), element("tbody", *body)),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<meta name="generator" content="twintrace">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        + "\n".join(map(markup, parts))
        + "\n</head>\n<body>\n"
        + "\n".join(map(markup, content))
        + "\n</body>\n</html>\n"
    )
