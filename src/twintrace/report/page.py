"""One HTML file that holds a whole report, and works without network.

    write_page(sheet, "report.html")       everything inside; beyond 10 MB the least telling tensors are left out
    page_text(sheet)                       the same as text
    served_page(sheet)                     the same page for `twintrace view`, which asks its server for what it shows

The verdict is plain HTML; the rest is data in gzip and base64 that a script unpacks. Only the scripts whose hashes are in the
page's Content-Security-Policy may run, and nothing may be loaded from anywhere.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from importlib import resources
from string import Template
from typing import Any
from xml.etree.ElementTree import tostring

from .files import written
from .server import Give
from .sheets import Sheet, element, pack

LIMIT = 10_000_000
"""Bytes of a file that mail, chat and browsers still take."""
LAYOUT = "dagre.min.js"
"""The library that lays out the graph: packed like data, and run when the graph is first opened."""
MARK = b'<meta name="generator" content="twintrace">'
SCRIPTS = (
    "elements.js", "sources.js", "rows.js", "colours.js", "ribbon.js", "tree.js", "table.js", "tensors.js", "editors.js",
    "details.js", "graph.js", "charts.js", "main.js",
)  # fmt: skip


def write_page(sheet: Sheet, path: str | os.PathLike[str], *, limit: int = LIMIT) -> int:
    """Write the page to `path` in one step. Returns how many of the sheet's pages of tensors did not fit in."""
    text, left_out = page_text(sheet, limit=limit)
    with written(path) as file:
        file.write(text)
    return left_out


def page_text(sheet: Sheet, *, limit: int = LIMIT) -> tuple[str, int]:
    """The page, and how many of the sheet's pages of tensors did not fit in."""
    blocks = {name: pack(make()) for name, make in _portions(sheet).items()}
    room = limit - len(_html(sheet, blocks, (0, 0)).encode("utf-8", "replace"))
    # Most of the room is for numbers; what the pictures of those leave is for more numbers.
    held, room = _fill(blocks, "page", range(sheet.pages), sheet.page, room * 4 // 5, room)
    pictured, room = _fill(blocks, "heat", range(held), sheet.heats, room, room)
    held, room = _fill(blocks, "page", range(held, sheet.pages), sheet.page, room, room)
    return _html(sheet, blocks, (held, pictured)), sheet.pages - held


def _portions(sheet: Sheet) -> dict[str, Callable[[], object]]:
    """Portions that are always there whole, by name."""
    portions: dict[str, Callable[[], object]] = {"index": lambda: sheet.index, "calls": sheet.calls}
    if sheet.graph is not None:
        portions |= {"graph": sheet.graph, "layout": lambda: _asset(LAYOUT)}
    return portions


def _fill(
    blocks: dict[str, bytes], name: str, pages: range, make: Callable[[int], Sequence[Any]], share: int, room: int
) -> tuple[int, int]:
    """Add pages while they fit into `share`. Returns the first page that did not fit, and the remaining room."""
    for page in pages:
        content = pack(make(page))
        size = -(-len(content) // 3) * 4 + 80  # in base64, and its element
        if size > share:
            return page, room
        blocks[f"{name}-{page}"] = content
        share, room = share - size, room - size
    return pages.stop, room


def is_page(content: bytes) -> bool:
    """True for what `write_page` wrote."""
    return content.startswith(b"<!doctype html>") and MARK in content[:4096]


def served_page(sheet: Sheet) -> bytes:
    """The page for a server that gives index, calls and pages when asked."""
    return _html(sheet, {}, (sheet.pages, sheet.pages), served=True).encode("utf-8", "replace")


def served(sheet: Sheet, values: Callable[[Mapping[str, str]], object]) -> Callable[[str], tuple[str, Give] | None]:
    """Answers of a Server by name: the page, its data, and the values of a tensor, which `values` finds."""
    pages = {"page": sheet.page, "heat": sheet.heats}
    lock = threading.Lock()  # journals are not made to be read by two at once

    def packed(make: Callable[[], object]) -> tuple[str, Give]:
        def give(_: Mapping[str, str]) -> bytes:
            with lock:
                return pack(make())

        return "application/json", give

    def find(name: str) -> tuple[str, Give] | None:
        if not name:
            return "text/html", lambda _: served_page(sheet)
        if name == "data/tensor":
            return "application/json", lambda query: packed(lambda: values(query))[1](query)
        portion = _portions(sheet).get(name.removeprefix("data/"))
        if portion is not None and name.startswith("data/"):
            return packed(portion)
        match = re.fullmatch(r"data/(page|heat)-(\d{1,9})", name)
        if match is None or int(match[2]) >= sheet.pages:
            return None
        return packed(lambda: pages[match[1]](int(match[2])))

    return find


def _html(sheet: Sheet, blocks: dict[str, bytes], held: tuple[int, int], *, served: bool = False) -> str:
    library, program = _asset("slickgrid.min.js"), _program()
    later = [_asset(LAYOUT)] if sheet.graph is not None else []
    hashes = [hashlib.sha256(script.encode("utf-8")).digest() for script in (library, program, *later)]
    sources = " ".join(f"'sha256-{base64.b64encode(digest).decode('ascii')}'" for digest in hashes)
    policy = (
        f"default-src 'none'; script-src {sources}; style-src 'unsafe-inline'; img-src data:; "
        f"connect-src {chr(39)}{'self' if served else 'none'}{chr(39)}; base-uri 'none'; form-action 'none'"
    )
    data = "".join(
        f'<script type="text/plain" id="data-{name}">{base64.b64encode(content).decode("ascii")}</script>\n'
        for name, content in blocks.items()
    )
    return Template(_asset("page.html")).substitute(
        policy=policy,
        title=markup(element("title", f"{sheet.title} · twintrace")),
        source="served" if served else "embedded",
        pages=str(sheet.pages),
        graph="" if sheet.graph is None else "yes",
        held=str(held[0]),
        pictured=str(held[1]),
        style=_asset("slickgrid.css") + _asset("page.css"),
        headline="".join(markup(item) for item in sheet.headline),
        library=library,
        program=program,
        data=data,
    )


def markup(item: object) -> str:
    """An element as HTML."""
    return str(tostring(item, encoding="unicode", method="html"))  # type: ignore[call-overload]


@lru_cache(maxsize=1)
def _program() -> str:
    parts = "\n".join(_asset(name) for name in SCRIPTS)
    return f'(() => {{\n"use strict";\n{parts}\n}})();\n'


@lru_cache(maxsize=32)
def _asset(name: str) -> str:
    return (resources.files(__package__) / "assets" / name).read_text(encoding="utf-8")
