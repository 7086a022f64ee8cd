"""`twintrace twice`: does a run repeat itself?"""

from __future__ import annotations

import click

from .. import api


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("script", type=click.Path(exists=True, dir_okay=False))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--level", type=click.Choice(["module", "api", "mix", "op"]), help="Record at this level, whatever the script says."
)
@click.option(
    "--seed", type=click.IntRange(0, 2**32 - 1), help="Seed everything before each run: shows what is left then."
)
@click.option(
    "--keep", type=click.Path(file_okay=False), help="A folder for the two traces, to be looked at afterwards."
)
def twice(script: str, arguments: tuple[str, ...], level: str | None, seed: int | None, keep: str | None) -> None:
    """Run SCRIPT twice and compare the two runs bit by bit: is it deterministic? If not, name the first call that differs, and why.

    Causes: random numbers without a seed, the order of the data, initial weights, a kernel that is not deterministic, threads,
    uninitialised memory, other calls. Both runs are recorded, with fingerprints only. (`twintrace selfcheck` asks something else:
    whether recording changes the run.)

    Exit code: 0 the run repeats itself, 1 it does not, 2 an error, 3 could not be told.
    """
    found = api.run_twice(script, list(arguments), level=level, seed=seed, keep=keep)
    click.echo(api.repetition_text(found))
    raise click.exceptions.Exit(found.code)
