"""`twintrace compare`: where two runs part. Options that are not named in the signature are those of `api.compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .. import api
from . import reports
from .numbers import numbers_option
from .outputs import bar, check_output, force


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
    write_map: Path | None,
    accept: Path | None,
    write_accept: Path | None,
    bundle: Path | None,
    every_step: bool,
    everything: bool,
    growth: bool,
    curves: bool,
    force: bool,
    report: reports.ReportOptions,
    **options: Any,
) -> None:
    """Say where two runs first part, and why.

    LEFT and RIGHT are traces: of PyTorch, MindSpore or MSAdapter, in any layout that `twintrace doctor` lists. Calls are paired
    automatically; rounding is not held against either side. Exit code: 0 every result of the two runs agrees, 1 they part, 2 an
    error or nothing in common, 3 nothing differs where it could be told, but something that counts could not be.
    """
    entries = None if accept is None else api.read_accepted(accept)
    for path, option in ((write_map, "--write-map"), (write_accept, "--write-accept"), (bundle, "--bundle")):
        check_output(path, option, force=force)
    # Whoever accepts the first difference wants to know of all others.
    every_step = every_step or accept is not None or write_accept is not None
    with bar(quiet=report.quiet) as progress:
        comparison = api.compare(left, right, every_step=every_step, progress=progress, **options)
    if entries is not None:
        comparison = api.accept(comparison, entries)
    report.show(comparison, everything=everything)
    if growth:
        report.echo("\n" + api.growth_text(comparison))
    if curves:
        report.echo("\n" + api.curves_text(api.compared_curves(comparison)))
    if write_map is not None:
        some = {name: options[name] for name in ("mapping", "steps", "ranks", "layout")}
        api.write_mapping(left, right, write_map, **some)
        report.echo(f"  written: {write_map}")
    if write_accept is not None:
        count = api.write_accepted(comparison, write_accept)
        report.echo(f"  written: {write_accept} ({count} {'entry' if count == 1 else 'entries'})")
    if bundle is not None:
        done = api.write_bundle(left, right, comparison, bundle)
        report.echo(f"  written: {bundle}" if done else "  not written: there is no mistake to bundle")
    raise click.exceptions.Exit(comparison.code)
