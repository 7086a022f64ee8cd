"""A workbook of plain tables, written row by row: the necessary part of Office Open XML.

    with Spreadsheet(path, fills={"red": "FF0000"}) as book:
        book.add("pairs", ("name", "value"), rows, widths=[40, 12])         rows: (fill or None, cells)

    header bold, frozen and with filters · a row in one colour · past a million rows the table goes on in `pairs 2`

Texts are texts whatever they begin with: nothing in the file is a formula or a link. What XML cannot hold is written as Excel
does it (`_x0001_`). A number that a cell cannot hold (not finite, or a whole one beyond 2^53) is written as text. Memory does not
grow with the rows. Written here and not by a library, because going cell by cell through XlsxWriter takes six times as long: of
20,000 rows with 28 columns, six seconds where this takes one.
"""

from __future__ import annotations

import io
import os
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, islice
from types import TracebackType
from typing import TypeAlias
from xml.sax.saxutils import escape

Cell: TypeAlias = "str | float | int | bool | None"
Row: TypeAlias = "tuple[str | None, Sequence[Cell]]"
"""The name of the row's fill, or None, and its cells."""

MAX_ROWS = 1_048_575  # of a sheet, below its header
MAX_TEXT = 32_767  # of a cell
_EXACT = 1 << 53  # beyond that a spreadsheet rounds whole numbers
_PLAIN, _HEADER, _FIRST_FILL = 0, 1, 2  # styles
_CHUNK = 1 << 16  # bytes handed to the compressor at a time

# Characters that XML 1.0 does not have, and how Excel writes them; a text that looks like that is told apart by `_x005F`.
_UNSPEAKABLE = re.compile("[\x00-\x08\x0b\x0c\x0d\x0e-\x1f\ud800-\udfff\ufffe\uffff]|_(?=x[0-9A-Fa-f]{4}_)")

_SHEET = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_TYPES = "application/vnd.openxmlformats-officedocument.spreadsheetml"
_HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'


class Spreadsheet:
    """One file, complete when the block ends; whoever wants it whole or not at all gives a path of `files.placed`."""

    def __init__(self, path: str | os.PathLike[str], fills: Mapping[str, str] | None = None) -> None:
        self._fills = dict(fills or {})
        self._styles = {name: _FIRST_FILL + at for at, name in enumerate(self._fills)}
        self._sheets: list[str] = []
        self._zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1)

    def __enter__(self) -> Spreadsheet:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            if error is None:
                self._finish()
        finally:
            self._zip.close()

    def add(self, name: str, columns: Sequence[str], rows: Iterable[Row], widths: Sequence[float] = ()) -> None:
        """A table on a sheet of its own, on several if it is too long for one."""
        for number, some in enumerate(_pieces(iter(rows), MAX_ROWS), 1):
            self._add(name if number == 1 else f"{name} {number}", columns, some, widths)

    def _add(self, name: str, columns: Sequence[str], rows: Iterable[Row], widths: Sequence[float]) -> None:
        self._sheets.append(name)
        places, last = _places(columns), 1
        with (
            self._zip.open(f"xl/worksheets/sheet{len(self._sheets)}.xml", "w", force_zip64=True) as file,
            io.TextIOWrapper(io.BufferedWriter(file, _CHUNK), encoding="utf-8", newline="") as text,
        ):
            text.write(_opening(widths) + _row(last, places, columns, _HEADER))
            for last, (fill, cells) in enumerate(rows, 2):  # counted from 1, and below the header
                text.write(_row(last, places, cells, self._styles[fill] if fill is not None else _PLAIN))
            text.write(f"</sheetData><autoFilter ref='A1:{_letters(max(len(columns), 1) - 1)}{last}'/></worksheet>")

    def _finish(self) -> None:
        numbers = range(1, len(self._sheets) + 1)
        parts = {
            "[Content_Types].xml": f"<Types xmlns='{_PACKAGE}/content-types'>"
            f"<Default Extension='rels' ContentType='application/vnd.openxmlformats-package.relationships+xml'/>"
            f"<Override PartName='/xl/workbook.xml' ContentType='{_TYPES}.sheet.main+xml'/>"
            f"<Override PartName='/xl/styles.xml' ContentType='{_TYPES}.styles+xml'/>"
            + "".join(
                f"<Override PartName='/xl/worksheets/sheet{number}.xml' ContentType='{_TYPES}.worksheet+xml'/>"
                for number in numbers
            )
            + "</Types>",
            "_rels/.rels": _links([("officeDocument", "xl/workbook.xml")]),
            "xl/_rels/workbook.xml.rels": _links(
                [("worksheet", f"worksheets/sheet{number}.xml") for number in numbers] + [("styles", "styles.xml")]
            ),
            "xl/workbook.xml": f"<workbook xmlns='{_SHEET}' xmlns:r='{_RELATIONS}'><sheets>"
            + "".join(
                f"<sheet name={_quoted(name)} sheetId='{number}' r:id='r{number}'/>"
                for number, name in zip(numbers, self._sheets, strict=True)
            )
            + "</sheets></workbook>",
            "xl/styles.xml": _styles(self._fills.values()),
        }
        for name, text in parts.items():
            self._zip.writestr(name, _HEAD + text)


def _row(number: int, places: Sequence[str], cells: Sequence[Cell], style: int) -> str:
    end = f"{number}' s='{style}'" if style else f"{number}'"
    made = [f"<row r='{number}'>"]
    for place, value in zip(places, cells, strict=True):
        if isinstance(value, float) and value - value == 0:  # finite
            made.append(f"<c r='{place}{end}><v>{float.__repr__(value)}</v></c>")
        elif value is None or value == "":
            if style:
                made.append(f"<c r='{place}{end}/>")
        elif isinstance(value, str):
            made.append(f"<c r='{place}{end} t='inlineStr'><is>{_text(value)}</is></c>")
        elif isinstance(value, bool):
            made.append(f"<c r='{place}{end} t='b'><v>{value:d}</v></c>")
        elif isinstance(value, int) and abs(value) <= _EXACT:
            made.append(f"<c r='{place}{end}><v>{value}</v></c>")
        else:
            made.append(f"<c r='{place}{end} t='inlineStr'><is><t>{value}</t></is></c>")
    made.append("</row>")
    return "".join(made)


@lru_cache(1 << 12)  # types, shapes and verdicts stand in all rows
def _text(text: str) -> str:
    if len(text) > MAX_TEXT:
        text = text[: MAX_TEXT - 1] + "…"
    if not text.isascii() or not text.isprintable() or "_x" in text:
        text = _UNSPEAKABLE.sub(_spelled, text)
    return f"<t xml:space='preserve'>{escape(text)}</t>"


def _spelled(match: re.Match[str]) -> str:
    code = ord(match[0])
    return "\ufffd" if 0xD800 <= code <= 0xDFFF else f"_x{code:04X}_"


def _places(columns: Sequence[str]) -> list[str]:
    """Names of columns in a spreadsheet."""
    return [_letters(at) for at in range(len(columns))]


def _letters(at: int) -> str:
    """0 is A, 26 is AA."""
    name = ""
    while at >= 0:
        name = chr(ord("A") + at % 26) + name
        at = at // 26 - 1
    return name


def _pieces(rows: Iterator[Row], size: int) -> Iterator[Iterable[Row]]:
    """At most `size` rows at a time, read as they are needed. The first piece is there even if it is empty."""
    first = next(rows, None)
    if first is None:
        yield ()
    while first is not None:
        yield chain((first,), islice(rows, size - 1))
        first = next(rows, None)


# The parts that are the same for all tables -------------------------------------------------------------------------


def _opening(widths: Sequence[float]) -> str:
    frozen = "<pane ySplit='1' topLeftCell='A2' activePane='bottomLeft' state='frozen'/>"
    columns = "".join(
        f"<col min='{at}' max='{at}' width='{width}' customWidth='1'/>" for at, width in enumerate(widths, 1)
    )
    return (
        f"{_HEAD}<worksheet xmlns='{_SHEET}'><sheetViews><sheetView workbookViewId='0'>{frozen}</sheetView></sheetViews>"
        f"{f'<cols>{columns}</cols>' if columns else ''}<sheetData>"
    )


def _styles(colours: Iterable[str]) -> str:
    """Style 0 is plain, 1 the header, and then one for each colour."""
    fills = ["<patternFill patternType='none'/>", "<patternFill patternType='gray125'/>"]  # Excel wants these two first
    fills += [
        f"<patternFill patternType='solid'><fgColor rgb='FF{colour}'/><bgColor indexed='64'/></patternFill>"
        for colour in colours
    ]
    font = "<sz val='11'/><name val='Calibri'/>"
    line = "<left/><right/><top/>{}<diagonal/>"
    formats = [
        "<xf numFmtId='0' fontId='0' fillId='0' borderId='0' xfId='0'/>",
        "<xf numFmtId='0' fontId='1' fillId='0' borderId='1' xfId='0' applyFont='1' applyBorder='1'/>",
    ]
    formats += [
        f"<xf numFmtId='0' fontId='0' fillId='{at}' borderId='0' xfId='0' applyFill='1'/>"
        for at in range(2, len(fills))
    ]
    return (
        f"<styleSheet xmlns='{_SHEET}'>"
        f"<fonts count='2'><font>{font}</font><font><b/>{font}</font></fonts>"
        f"<fills count='{len(fills)}'>{''.join(f'<fill>{fill}</fill>' for fill in fills)}</fills>"
        f"<borders count='2'><border>{line.format('<bottom/>')}</border>"
        f"<border>{line.format('<bottom style={}thin{}/>'.format(*chr(39) * 2))}</border></borders>"
        "<cellStyleXfs count='1'><xf numFmtId='0' fontId='0' fillId='0' borderId='0'/></cellStyleXfs>"
        f"<cellXfs count='{len(formats)}'>{''.join(formats)}</cellXfs>"
        "<cellStyles count='1'><cellStyle name='Normal' xfId='0' builtinId='0'/></cellStyles></styleSheet>"
    )


def _links(targets: Iterable[tuple[str, str]]) -> str:
    links = "".join(
        f"<Relationship Id='r{number}' Type='{_RELATIONS}/{kind}' Target='{target}'/>"
        for number, (kind, target) in enumerate(targets, 1)
    )
    return f"<Relationships xmlns='{_PACKAGE}/relationships'>{links}</Relationships>"


def _quoted(text: str) -> str:
    return f'"{escape(text, {chr(34): "&quot;"})}"'
