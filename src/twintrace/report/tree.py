"""A trace for people: a tree of its calls, or the same as JSON.

runs/a  torch, mix/fingerprint, steps 0-2, rank 0: 311 calls, 840 tensors
step 0
└── encoder (Encoder)  f32[4, 8] → f32[4, 8]  {-2.1 … 3.4, norm 5.6}  !! NaN 3 of 32
    └── torch.nn.functional.linear#0  …
"""

from __future__ import annotations

import dataclasses
import json

from rich.console import Console
from rich.markup import escape as _escape
from rich.table import Table
from rich.tree import Tree

from ..model.listings import Listing, Row
from .naming import legible


def listing_json(listing: Listing) -> str:
    """The listing for machines."""
    return json.dumps(dataclasses.asdict(listing), indent=2, ensure_ascii=False)


def print_tree(listing: Listing, console: Console) -> None:
    """The listing as a tree, one branch for each step and rank."""
    console.print(_title(listing), highlight=False)
    branches: dict[tuple[int, int], list[tuple[int, Tree]]] = {}
    for row in listing.rows:
        place = (row.step, row.rank)
        if place not in branches:
            branches[place] = [(-1, Tree(f"[bold]step {row.step}[/], rank {row.rank}"))]
        line = branches[place]
        while line[-1][0] >= row.depth:
            line.pop()
        line.append((row.depth, line[-1][1].add(_label(row))))
    for line in branches.values():
        console.print(line[0][1], highlight=False)
    _print_rest(listing, console)


def print_table(listing: Listing, console: Console) -> None:
    """The listing as a flat table."""
    console.print(_title(listing), highlight=False)
    table = Table(box=None, pad_edge=False)
    for column in ("step", "rank", "call", "type", "in", "out", "values", "grads", "marks", "where"):
        table.add_column(column, overflow="fold")
    for row in listing.rows:
        values = "; ".join(filter(None, row.ranges))
        texts = (row.site, row.type, ", ".join(row.inputs), ", ".join(row.outputs), values)
        rest = (", ".join(dict.fromkeys(row.marks)), row.where)
        table.add_row(str(row.step), str(row.rank), *map(plain, texts), str(row.gradients), *map(plain, rest))
    console.print(table)
    _print_rest(listing, console)


def _title(listing: Listing) -> str:
    settings = "/".join(str(value) for name, value in listing.settings.items() if name != "zoom")
    places = f"steps {_span(listing.steps)}, ranks {_span(listing.ranks)}"
    how = plain(", ".join(filter(None, (listing.framework, settings))))
    return f"[bold]{plain(listing.path)}[/]  {how}, {places}: {listing.calls} calls, {listing.tensors} tensors"


def _label(row: Row) -> str:
    flow = f"{', '.join(row.inputs) or '–'} → {', '.join(row.outputs) or '–'}"
    kind = f" [cyan]({plain(row.type)})[/]" if row.type else ""
    gradients = f" [green]∂{row.gradients}[/]" if row.gradients else ""
    remark = f" [red]{plain(row.remark)}[/]" if row.remark else ""
    # NaN and the like, to be seen without colours too.
    marks = f"  [bold red]!! {plain(', '.join(dict.fromkeys(row.marks)))}[/]" if row.marks else ""
    values = "; ".join(filter(None, row.ranges))
    told = f"  [cyan]{plain('{' + values + '}')}[/]" if values else ""
    return f"{plain(row.site)}{kind}  [dim]{plain(flow)}[/]{told}{gradients}{marks}  [dim]{plain(row.where)}[/]{remark}"


def _print_rest(listing: Listing, console: Console) -> None:
    if listing.hidden:
        console.print(f"… {listing.hidden} more calls; use --limit to see them", highlight=False)
    for note in listing.notes:
        console.print(f"[yellow]note[/]  {plain(note)}", highlight=False)
    for damage in listing.damage:
        console.print(f"[red]damaged[/]  {plain(damage)}", highlight=False)


def _span(numbers: tuple[int, ...]) -> str:
    if len(numbers) > 2 and numbers == tuple(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]}-{numbers[-1]}"
    return ", ".join(map(str, numbers)) or "none"


def plain(text: str) -> str:
    """A text that rich prints as it is."""
    return _escape(legible(text))
