"""`twintrace run-as`: run a script that was written for another tool."""

from __future__ import annotations

import click

from ..compat import run_as as running


@click.command("run-as", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("tool", type=click.Choice(sorted(running.TOOLS)))
@click.argument("script", type=click.Path(exists=True, dir_okay=False))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run_as(tool: str, script: str, arguments: tuple[str, ...]) -> None:
    """Run SCRIPT, written for TOOL, without change: what it imports of TOOL is provided, and twintrace does the work.

    msprobe provides `msprobe.pytorch` and `msprobe.mindspore`, whether it is installed or not.

    troubleshooter provides `import troubleshooter as ts`, whether it is installed or not.

    torch_npu provides torch_npu.hooks and the method .npu(), which means the device that TWINTRACE_NPU names: cuda where there is
    one and cpu otherwise, if it names none.
    """
    running.run_as(tool, script, arguments)
