"""The command line: one file per command, or for a few that belong together: options and one call into `api`.

    twintrace                       the five things that one can do
    twintrace show TRACE            a trace as a tree, a table, or JSON
    twintrace why-nan TRACE         where the first value that is not finite comes from
    twintrace compare LEFT RIGHT    where two runs of one program part
    twintrace zoom LEFT RIGHT       what to record in a second run
    twintrace export TRACE --to …   a trace as another tool's dump
    twintrace import DUMP           another tool's dump as a trace
    twintrace upload TRACE URL      a trace to another file system
    twintrace view REPORT_OR_TRACE  the same in the browser
    twintrace selfcheck SCRIPT      does recording change the run?
    twintrace twice SCRIPT          does the run repeat itself?
    twintrace run-as TOOL SCRIPT    a script that was written for another tool
    twintrace msprobe compare …     two dumps of msprobe's, with its options and tables
    twintrace doctor                what is installed, what can be recorded
    twintrace weights …             map, convert, compare, certify weights
    twintrace npy compare DIR DIR   two folders of .npy files side by side

In: the command line. Out: text, and an exit code: 0 yes, 1 no (the runs differ), 2 could not be done, 3 could not be told.
Not here: any logic.
"""

from __future__ import annotations

import difflib
import importlib
import sys
from typing import Any

import click

from .. import __version__
from ..model.errors import TwintraceError
from .streams import unending_output

__all__ = ["cli", "main"]


# Name of a command -> where it is. It is imported when it is called: the others would cost a fifth of a second.
_COMMANDS = {
    "show": ".show:show", "why-nan": ".show:why_nan", "compare": ".compare:compare", "zoom": ".zoom:zoom", "view": ".view:view",
    "export": ".export:export", "import": ".export:import_", "upload": ".upload:upload", "selfcheck": ".scripts:selfcheck",
    "twice": ".scripts:twice", "run-as": ".run_as:run_as", "msprobe": ".msprobe:msprobe", "npy": ".npy:npy",
    "doctor": ".doctor:doctor", "weights": ".weights:weights",
}  # fmt: skip


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, _, name = _COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(module, __name__), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in _COMMANDS:
            near = difflib.get_close_matches(args[0], _COMMANDS, n=1)
            hint = f"Did you mean {near[0]}?" if near else f"There are {', '.join(_COMMANDS)}."
            ctx.fail(f"No such command {args[0]!r}. {hint}")
        return super().resolve_command(ctx, args)


_FIRST_STEPS = """\
Record what a network computed, lay two records side by side, see where they first part and why.

  Record a run, in Python     with tt.record("runs/a", net): net(x).sum().backward()
  Compare two runs            twintrace compare runs/a runs/b --html report.html
  Look at one run             twintrace show runs/a
  Carry weights over          twintrace weights convert net.pth net.ckpt
  See what can be recorded    twintrace doctor

twintrace --help lists all commands, twintrace COMMAND --help its options and exit codes."""


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]}, invoke_without_command=True)
@click.version_option(__version__, package_name="twintrace")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Record what a network computed, lay two records side by side, see where they first part and why."""
    if ctx.invoked_subcommand is None:
        click.echo(_FIRST_STEPS)


def main() -> None:
    """The `twintrace` command."""
    with unending_output():
        sys.exit(_run())


def _run() -> Any:
    """Exit code of the command that `sys.argv` gives, its errors told."""
    try:
        return cli.main(standalone_mode=False)  # click hands an exit code back instead of raising it
    except TwintraceError as error:
        click.echo(f"twintrace: {error}", err=True)
    except click.ClickException as error:
        error.show()
    except click.Abort:
        click.echo("twintrace: interrupted", err=True)
    return 2
