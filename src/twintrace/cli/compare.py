"""`twintrace compare`: where two runs part."""

from __future__ import annotations

from pathlib import Path

import click

from .. import api
from . import reports
from .numbers import numbers_option
from .outputs import STDOUT, check_output, force
from .progress import bar


@click.command()
@click.argument("left", type=click.Path())
@click.argument("right", type=click.Path())
@click.option(
    "--policy",
    type=click.Choice(["auto", "msprobe", "troubleshooter", "torch_testing"]),
    default="auto",
    show_default=True,
    help="What counts as a difference.",
)
@click.option("--rtol", type=float, help="Instead of a policy: every element within atol + rtol·|left|.")
@click.option("--atol", type=float, help="See --rtol.")
@click.option("--tolerances", type=reports.FILE, help="TOML file with rtol and atol per dtype and per name.")
@click.option("--noise", type=click.Path(), help="The left run repeated: what differs between the two is allowed.")
@click.option("--map", "mapping", type=reports.FILE, help="YAML file that says what belongs together.")
@click.option("--write-map", type=reports.FILE, help="Write what was paired as YAML, to be edited and given back.")
@numbers_option("step", "Only these steps: 3, or 0-5,8; may be repeated.")
@numbers_option("rank", "Only these ranks, likewise.")
@force
@reports.options
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
    force: bool,
    steps: tuple[int, ...] | None,
    ranks: tuple[int, ...] | None,
    table: bool,
    html: Path | None,
    xlsx: Path | None,
    csv: Path | None,
    json: Path | None,
    columns: str,
    quiet: bool,
    workers: int | None,
) -> None:
    """Say where two runs first part, and why.

    LEFT and RIGHT are traces: of PyTorch, MindSpore or MSAdapter, in any layout that `twintrace doctor` lists. What belongs
    together is found by itself; what rounding explains is not held against either. Exit code: 0 they agree, 1 they part, 2 they
    could not be compared.
    """
    check_output(write_map, "--write-map", force=force)
    with bar(quiet=quiet) as progress:
        found = api.compare(
            left,
            right,
            policy=policy,
            rtol=rtol,
            atol=atol,
            tolerances=tolerances,
            mapping=mapping,
            noise=noise,
            steps=steps,
            ranks=ranks,
            workers=workers,
            progress=progress,
        )
    reports.show(found, table=table, html=html, xlsx=xlsx, csv=csv, json=json, columns=columns, quiet=quiet)
    if write_map is not None:
        api.write_mapping(left, right, write_map, mapping=mapping, steps=steps, ranks=ranks)
        if not quiet:
            click.echo(f"  written: {write_map}", err=json == STDOUT)
    raise click.exceptions.Exit(reports.exit_code(found))
