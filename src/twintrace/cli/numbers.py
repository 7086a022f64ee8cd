"""Numbers of steps and ranks on the command line: `--step 3`, `--step 0-5,8`, `--step 0 --step 8`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

_MOST = 1_000_000
"""Numbers that one range may stand for; a range is a slip of the finger beyond it."""


class _Numbers(click.ParamType):  # type: ignore[type-arg]  # generic in some versions of click only
    """A list of numbers and ranges."""

    name = "numbers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        numbers: dict[int, None] = {}
        for piece in str(value).split(","):
            first, dash, last = piece.strip().partition("-")
            if not first.isdecimal() or (dash and not last.strip().isdecimal()):
                self.fail(f"{value!r}: expected numbers and ranges, such as 3 or 0-5,8.", param, ctx)
            begin, end = int(first), int(last) if dash else int(first)
            if end < begin or end - begin >= _MOST:
                self.fail(f"{piece.strip()!r}: expected a range from a smaller to a larger number.", param, ctx)
            numbers.update(dict.fromkeys(range(begin, end + 1)))
        return tuple(numbers)


def numbers_option(option: str, help: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """An option that takes lists of numbers, and may be repeated; the command gets a tuple of numbers, or None."""

    def together(
        ctx: click.Context, param: click.Parameter, value: tuple[tuple[int, ...], ...]
    ) -> tuple[int, ...] | None:
        return tuple(dict.fromkeys(number for numbers in value for number in numbers)) or None

    return click.option(
        f"--{option}", f"{option}s", type=_Numbers(), multiple=True, metavar="N,N-N", callback=together, help=help
    )
