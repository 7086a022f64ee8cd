"""THE COUNTER: one file per command, options and one call into `api`.

    twintrace show TRACE            a trace as a tree, a table, or JSON
    twintrace compare LEFT RIGHT    where two runs of one program part
    twintrace export TRACE --to …   a trace as another tool's dump
    twintrace import DUMP           another tool's dump as a trace
    twintrace view REPORT_OR_TRACE  the same in the browser
    twintrace selfcheck SCRIPT      does recording change the run?
    twintrace run-as TOOL SCRIPT    a script that was written for another tool
    twintrace msprobe compare …     two dumps of msprobe's, with its options and tables
    twintrace doctor                what is installed, what can be recorded
    twintrace weights …             map, convert, compare, certify weights
    twintrace npy compare DIR DIR   two folders of .npy files side by side

In: the command line. Out: text, and an exit code: 0 yes, 1 no (the runs differ), 2 could not be done. Not here: any logic.
"""

from __future__ import annotations

import sys

import click

from ..model.errors import TwintraceError
from .compare import compare
from .doctor import doctor
from .export import export, import_
from .msprobe import msprobe
from .npy import npy
from .run_as import run_as
from .selfcheck import selfcheck
from .show import show
from .view import view
from .weights import weights

__all__ = ["cli", "main"]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="twintrace")
def cli() -> None:
    """Record what a network computed, lay two records side by side, see where they first part and why."""


for _command in (show, compare, view, export, import_, selfcheck, run_as, msprobe, npy, doctor, weights):
    cli.add_command(_command)


def main() -> None:
    """The `twintrace` command."""
    try:
        sys.exit(cli.main(standalone_mode=False))  # click hands an exit code back instead of raising it
    except TwintraceError as error:
        click.echo(f"twintrace: {error}", err=True)
        sys.exit(2)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except click.Abort:
        click.echo("twintrace: interrupted", err=True)
        sys.exit(2)
    except BrokenPipeError:  # `twintrace show … | head`
        sys.stderr.close()
        sys.exit(0)
