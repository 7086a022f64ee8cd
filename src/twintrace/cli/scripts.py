"""`twintrace selfcheck` and `twintrace twice`: run a script several times, to see what recording, or nothing at all, changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from .. import api
from ..model.words import KeepName, LevelName

_AS_GIVEN = {"ignore_unknown_options": True, "allow_interspersed_args": False}


def _script(command: Callable[..., Any]) -> Callable[..., Any]:
    """A script, its arguments, and the level at which it is recorded."""
    for option in (
        click.option(
            "--level",
            type=click.Choice(["module", "api", "mix", "op"]),
            help="Record at this level, whatever the script says.",
        ),
        click.argument("arguments", nargs=-1, type=click.UNPROCESSED),
        click.argument("script", type=click.Path(exists=True, dir_okay=False)),
    ):
        command = option(command)
    return command


@click.command(context_settings=_AS_GIVEN)
@_script
@click.option(
    "--keep", type=click.Choice(["statistics", "fingerprint", "tensor"]), help="Keep this, whatever the script says."
)
def selfcheck(script: str, arguments: tuple[str, ...], level: LevelName | None, keep: KeepName | None) -> None:
    """Run SCRIPT without recording, again without, and with; compare losses, gradients and weights bit by bit.

    A script that calls tt.record is recorded as it says, and its models are compared as well as its global variables. One that
    does not is recorded as a whole at level api.

    (`twintrace twice` asks something else: whether the run repeats itself.) Exit code: 0 same bits, 1 different, 2 cannot tell.
    """
    check = api.selfcheck_script(script, list(arguments), level=level, keep=keep)
    click.echo(str(check))
    raise click.exceptions.Exit(0 if check.same else 1 if check.differences and not check.unstable else 2)


@click.command(context_settings=_AS_GIVEN)
@_script
@click.option(
    "--seed", type=click.IntRange(0, 2**32 - 1), help="Seed everything before each run: shows what is left then."
)
@click.option(
    "--keep", type=click.Path(file_okay=False), help="A folder for the two traces, to be looked at afterwards."
)
def twice(script: str, arguments: tuple[str, ...], level: LevelName | None, seed: int | None, keep: str | None) -> None:
    """Run SCRIPT twice and compare the two runs bit by bit: is it deterministic? If not, name the first call that differs, and why.

    Causes: random numbers without a seed, the order of the data, initial weights, a kernel that is not deterministic, threads,
    uninitialised memory, other calls. Both runs are recorded, with fingerprints only. (`twintrace selfcheck` asks something else:
    whether recording changes the run.)

    Exit code: 0 the run repeats itself, 1 it does not, 2 an error, 3 could not be told.
    """
    repetition = api.run_twice(script, list(arguments), level=level, seed=seed, keep=keep)
    click.echo(api.repetition_text(repetition))
    raise click.exceptions.Exit(repetition.code)
