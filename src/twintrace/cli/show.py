"""`twintrace show` and `twintrace why-nan`: look at a trace, and find where its first NaN comes from."""

from __future__ import annotations

import click

from .. import api
from .numbers import numbers_option
from .outputs import console


@click.command()
@click.argument("trace", type=click.Path())
@numbers_option("step", "Only these steps: 3, or 0-5,8; may be repeated.")
@numbers_option("rank", "Only these ranks, likewise.")
@click.option("--limit", type=click.IntRange(min=1), default=200, show_default=True, help="At most so many calls.")
@click.option(
    "--nonfinite",
    is_flag=True,
    help="Only calls with NaN or infinities in their results or gradients, and where the first comes from (see why-nan).",
)
@click.option("--curves", is_flag=True, help="Loss, norms and dead units over the steps, and the layers of the last.")
@click.option("--all", "everything", is_flag=True, help="All calls, however many.")
@click.option("--table", is_flag=True, help="A flat table instead of a tree.")
@click.option("--json", "as_json", is_flag=True, help="The same for machines (all calls).")
def show(
    trace: str,
    steps: tuple[int, ...] | None,
    ranks: tuple[int, ...] | None,
    limit: int,
    nonfinite: bool,
    curves: bool,
    everything: bool,
    table: bool,
    as_json: bool,
) -> None:
    """Print a recorded run as a readable tree: modules, the calls inside them, shapes, values, gradients, source lines.

    Of each result the smallest and the largest value and the norm are shown; NaN, infinities and values at the end of their type's
    range are marked with !!.

    TRACE is the directory that was given to tt.record, or any other layout that twintrace knows.
    """
    if curves:
        drawn = api.curves_of(trace, steps=steps, rank=ranks[0] if ranks else None)
        click.echo(api.curves_json(drawn) if as_json else api.curves_text(drawn))
        return
    most = None if everything or as_json else limit
    listing = api.listing(trace, steps=steps, ranks=ranks, limit=most, nonfinite=nonfinite)
    if as_json:
        click.echo(api.listing_json(listing))
        return
    if nonfinite:
        click.echo(api.nonfinite_text(api.first_nonfinite(trace, steps=steps, ranks=ranks)) + "\n")
    (api.print_table if table else api.print_tree)(listing, console())


@click.command("why-nan")
@click.argument("trace", type=click.Path())
@numbers_option("step", "Only these steps: 3, or 0-5,8; may be repeated.")
@numbers_option("rank", "Only these ranks, likewise.")
@click.option("--json", "as_json", is_flag=True, help="The same for machines.")
def why_nan(trace: str, steps: tuple[int, ...] | None, ranks: tuple[int, ...] | None, as_json: bool) -> None:
    """Name the first call that made NaN or an infinity out of finite values, forward or backward, and say why.

    With its source line, the range of what came in, and what led there: overflow, division by zero, logarithm of zero, a softmax
    over nothing but -inf, norms that grew over the last steps, data or weights that were not finite from the beginning. Statistics
    are enough. A mask of -inf that a softmax swallows is not accused.

    Exit code: 0 nothing that counts is not finite, 1 found, 2 an error, 3 could not be told.
    """
    report = api.first_nonfinite(trace, steps=steps, ranks=ranks)
    click.echo(api.nonfinite_json(report) if as_json else api.nonfinite_text(report))
    raise click.exceptions.Exit(report.code)
