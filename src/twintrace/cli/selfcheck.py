"""`twintrace selfcheck`: prove that recording changes nothing."""

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
    "--keep", type=click.Choice(["statistics", "fingerprint", "tensor"]), help="Keep this, whatever the script says."
)
def selfcheck(script: str, arguments: tuple[str, ...], level: str | None, keep: str | None) -> None:
    """Run SCRIPT without recording, again without, and with; compare losses, gradients and weights bit by bit.

    A script that calls tt.record is recorded as it says, and its models are compared as well as its global variables. One that
    does not is recorded as a whole at level api.

    (`twintrace twice` asks something else: whether the run repeats itself.) Exit code: 0 same bits, 1 different, 2 cannot tell.
    """
    found = api.selfcheck_script(script, list(arguments), level=level, keep=keep)
    click.echo(str(found))
    raise click.exceptions.Exit(0 if found.same else 1 if found.differences and not found.unstable else 2)
