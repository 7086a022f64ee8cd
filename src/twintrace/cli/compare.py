"""`twintrace compare`: where two runs part."""

from __future__ import annotations

from pathlib import Path

import click

from .. import api
from ..model.choices import EngineName, LayoutName, PolicyName
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
    help="Rule by which differences are judged.",
)
@click.option("--rtol", type=float, help="Instead of a policy: every element within atol + rtol·|left|.")
@click.option("--atol", type=float, help="See --rtol.")
@click.option("--tolerances", type=reports.FILE, help="TOML file with rtol and atol per dtype and per name.")
@click.option("--noise", type=click.Path(), help="The left run repeated: what differs between the two is allowed.")
@click.option("--map", "mapping", type=reports.FILE, help="YAML file that says what belongs together.")
@click.option("--write-map", type=reports.FILE, help="Write what was paired as YAML, to be edited and given back.")
@numbers_option("step", "Only these steps: 3, or 0-5,8; may be repeated.")
@numbers_option("rank", "Only these ranks, likewise.")
@click.option("--accept", type=reports.FILE, help="TOML file of differences that are accepted, by place and cause.")
@click.option("--write-accept", type=reports.FILE, help="Write such a file of the mistakes that were found.")
@click.option("--bundle", type=reports.FILE, help="Write a zip that shows the mistake without this package.")
@click.option(
    "--recompute/--no-recompute", default=True, help="Compute what is not equal again in float64.  [default: recompute]"
)
@click.option(
    "--every-step",
    is_flag=True,
    help="Judge each step, also those after the runs have parted; takes longer, and more memory.",
)
@click.option(
    "--layout",
    type=click.Choice(["auto", "whole", "ranks"]),
    default="auto",
    show_default=True,
    help="auto: where the two have other layouts, the ranks of each are put together. whole: always. ranks: never, rank by rank.",
)
@click.option(
    "--all", "everything", is_flag=True, help="All mistakes after the verdict, each with its place and cause."
)
@click.option(
    "--growth",
    is_flag=True,
    help="After the verdict: is the difference normal (bf16 against float32), and which calls add most to it.",
)
@click.option(
    "--curves",
    is_flag=True,
    help="After the verdict: loss and norms of both runs over the steps, and how far they are apart over steps and depth.",
)
@force
@reports.options
@click.option(
    "--engine",
    type=click.Choice(["auto", "threads", "processes", "ray"]),
    default="auto",
    show_default=True,
    help="Where many ranks are looked at; auto: processes, where there are several cores.",
)
@click.option("--address", help="Of a Ray cluster, for --engine ray.  [default: one is started here]")
@click.option("--workers", type=click.IntRange(min=1), help="Threads or processes.  [default: all cores]")
def compare(
    left: str,
    right: str,
    policy: PolicyName,
    rtol: float | None,
    atol: float | None,
    tolerances: Path | None,
    noise: str | None,
    mapping: Path | None,
    write_map: Path | None,
    steps: tuple[int, ...] | None,
    ranks: tuple[int, ...] | None,
    accept: Path | None,
    write_accept: Path | None,
    bundle: Path | None,
    recompute: bool,
    every_step: bool,
    layout: LayoutName,
    everything: bool,
    growth: bool,
    curves: bool,
    force: bool,
    table: bool,
    html: Path | None,
    xlsx: Path | None,
    csv: Path | None,
    json: Path | None,
    columns: str,
    quiet: bool,
    engine: EngineName,
    address: str | None,
    workers: int | None,
) -> None:
    """Say where two runs first part, and why.

    LEFT and RIGHT are traces: of PyTorch, MindSpore or MSAdapter, in any layout that `twintrace doctor` lists. Calls are paired
    automatically; rounding is not held against either side. Exit code: 0 every result of the two runs agrees, 1 they part, 2 an
    error or nothing in common, 3 nothing differs where it could be told, but something that counts could not be.
    """
    entries = None if accept is None else api.read_accepted(accept)
    for path, option in ((write_map, "--write-map"), (write_accept, "--write-accept"), (bundle, "--bundle")):
        check_output(path, option, force=force)
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
            recompute=recompute,
            # Whoever accepts the first difference wants to know of all others.
            every_step=every_step or accept is not None or write_accept is not None,
            layout=layout,
            engine=engine,
            address=address,
            workers=workers,
            progress=progress,
        )
    if entries is not None:
        found = api.accept(found, entries)
    reports.show(
        found,
        table=table,
        everything=everything,
        html=html,
        xlsx=xlsx,
        csv=csv,
        json=json,
        columns=columns,
        quiet=quiet,
    )
    if growth and not quiet:
        click.echo("\n" + api.growth_text(found), err=json == STDOUT)
    if curves and not quiet:
        click.echo("\n" + api.curves_text(api.compared_curves(found)), err=json == STDOUT)
    written = []
    if write_map is not None:
        api.write_mapping(left, right, write_map, mapping=mapping, steps=steps, ranks=ranks, layout=layout)
        written.append(f"  written: {write_map}")
    if write_accept is not None:
        count = api.write_accepted(found, write_accept)
        written.append(f"  written: {write_accept} ({count} {'entry' if count == 1 else 'entries'})")
    if bundle is not None:
        done = api.write_bundle(left, right, found, bundle)
        written.append(f"  written: {bundle}" if done else "  not written: there is no mistake to bundle")
    for line in written if not quiet else ():
        click.echo(line, err=json == STDOUT)
    raise click.exceptions.Exit(reports.exit_code(found))
