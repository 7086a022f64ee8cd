"""Reports on weights as tables, as JSON and as one small page.

    weight_table(found)      a row for each weight: CSV, XLSX and data frames
    weight_json(found)       the same and everything else, for machines
    weight_page(found)       one HTML file: the report as the terminal has it, and the table

A map has a row for each pair; the others have one for each WeightRow.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from ..model.tensors import Spec
from ..model.weights import Certificate, Conversion, Pair, WeightComparison, WeightMap, WeightRow
from .notebook import QUIET, verdict_element
from .page import markup
from .sheets import element, shorten
from .tables import Cell, Table, cell
from .weights import certificate_text, conversion_text, map_text, weight_comparison_text

Found: TypeAlias = WeightMap | Conversion | WeightComparison | Certificate

_PAIR = tuple(field.name for field in dataclasses.fields(Pair))
_ROW = tuple(field.name for field in dataclasses.fields(WeightRow))


def weight_table(found: Found) -> Table:
    """The rows of a report on weights."""
    if isinstance(found, WeightMap):
        return Table(_PAIR, (tuple(_cells(pair, _PAIR)) for pair in found.pairs))
    return Table(_ROW, (tuple(_cells(row, _ROW)) for row in found.rows))


def _cells(item: object, names: Iterable[str]) -> Iterable[Cell]:
    return (cell(getattr(item, name)) for name in names)


def weight_text(found: Found) -> str:
    """The report as the command line prints it."""
    if isinstance(found, WeightMap):
        return map_text(found)
    if isinstance(found, Conversion):
        return conversion_text(found)
    return weight_comparison_text(found) if isinstance(found, WeightComparison) else certificate_text(found)


def weight_json(found: Found) -> str:
    """Everything that the report has, with its verdict and exit code. Numbers that are not finite are texts: "nan", "inf"."""
    kind = next(kind for kind in (WeightMap, Conversion, WeightComparison, Certificate) if isinstance(found, kind))
    head = {"format": f"twintrace-{kind.__name__}", "code": found.code, "verdict": str(found)}
    return json.dumps({**head, **_plain(found)}, ensure_ascii=False, indent=1, allow_nan=False) + "\n"


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


def weight_page(found: Found) -> str:
    """One HTML file that works offline and has no script: the report, then all rows."""
    columns, rows = weight_table(found)
    head = element("tr", *(element("th", name) for name in columns))
    body = [element("tr", *(element("td", _shown(item)) for item in row)) for row in rows]
    policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    parts = [
        element("title", f"{shorten(str(found))} · twintrace"),
        element("style", _STYLE),
    ]
    content = [
        verdict_element(weight_text(found), good=found.code == 0),
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


def _shown(item: Cell) -> str:
    return "" if item is None else f"{item:.6g}" if isinstance(item, float) else shorten(str(item))
