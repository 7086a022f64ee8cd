"""`twintrace why-nan`: where the first value that is not finite comes from."""

from __future__ import annotations

import click

from .. import api
from .numbers import numbers_option


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
    found = api.first_nonfinite(trace, steps=steps, ranks=ranks)
    click.echo(api.nonfinite_json(found) if as_json else api.nonfinite_text(found))
    raise click.exceptions.Exit(found.code)
