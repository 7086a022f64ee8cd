"""`twintrace compare`: where two runs part."""

from __future__ import annotations

from pathlib import Path

import click

from .. import api
from .consoles import console
from .progress import bar

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.argument("left", type=click.Path())
@click.argument("right", type=click.Path())
@click.option("--policy", default="auto", show_default=True, help="auto | msprobe | troubleshooter | torch_testing")
@click.option("--rtol", type=float, help="Instead of a policy: every element within atol + rtol·|left|.")
@click.option("--atol", type=float, help="See --rtol.")
@click.option("--tolerances", type=_FILE, help="TOML file with rtol and atol per dtype and per name.")
@click.option("--noise", type=click.Path(), help="The left run repeated: what differs between the two is allowed.")
@click.option("--map", "mapping", type=_FILE, help="YAML file that says what belongs together.")
@click.option("--write-map", type=_FILE, help="Write what was paired as YAML, to be edited and given back.")
@click.option("--step", "steps", type=int, multiple=True, help="Only this step; may be repeated.")
@click.option("--rank", "ranks", type=int, multiple=True, help="Only this rank; may be repeated.")
@click.option("--table", is_flag=True, help="All pairs after the verdict, and what is alone.")
@click.option("--html", type=_FILE, help="Write a report to look at: one file, works offline.")
@click.option("--xlsx", type=_FILE, help="Write a spreadsheet, coloured by verdict.")
@click.option("--csv", type=_FILE, help="Write all pairs of tensors as CSV.")
@click.option("--json", type=_FILE, help="Write everything as JSON; `twintrace view` opens it.")
@click.option("--workers", type=click.IntRange(min=1), help="Threads to measure with.  [default: all cores]")
def compare(
    left: str,
    right: str,
    policy: str,
    rtol: float | None,
    atol: float | None,
    tolerances: Path | None,
    noise: str | None,
    mapping: Path | None,
    write_map: Path | None,
    steps: tuple[int, ...],
    ranks: tuple[int, ...],
    table: bool,
    html: Path | None,
    xlsx: Path | None,
    csv: Path | None,
    json: Path | None,
    workers: int | None,
) -> None:
    """Say where two runs first part, and why.

    LEFT and RIGHT are traces: of PyTorch, MindSpore or MSAdapter, in any layout that `twintrace doctor` lists. What belongs
    together is found by itself; what rounding explains is not held against either. Exit code: 0 they agree, 1 they part, 2 they
    could not be compared.
    """
    with bar() as progress:
        found = api.compare(
            left,
            right,
            policy=policy,
            rtol=rtol,
            atol=atol,
            tolerances=tolerances,
            mapping=mapping,
            noise=noise,
            steps=steps or None,
            ranks=ranks or None,
            workers=workers,
            progress=progress,
        )
    click.echo(api.verdict(found))
    if table:
        click.echo()
        api.print_pairs(found, console())
    for path, write in ((html, api.write_html), (xlsx, api.write_xlsx), (csv, api.write_csv), (json, api.write_json)):
        if path is not None:
            write(found, path)
            click.echo(f"  written: {path}")
    if write_map is not None:
        api.write_mapping(left, right, write_map, mapping=mapping, steps=steps or None, ranks=ranks or None)
        click.echo(f"  written: {write_map}")
    raise click.exceptions.Exit(0 if found.agree else 1 if found.comparable else 2)
