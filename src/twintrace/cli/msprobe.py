"""`twintrace msprobe`: the command lines of msprobe's comparison, of both generations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from ..model.errors import UsageError
from ..model.garbage import collecting_later

_FILE = click.Path(dir_okay=False, path_type=Path)
_PATH = click.Path(path_type=Path)
_HELP = {"help_option_names": ["-h", "--help"]}
_OWN = "\0"
"""Stands for a mapping option without a file: no file has that name."""
_Command = TypeVar("_Command", bound=Callable[..., Any])


@click.group(context_settings=_HELP)
@click.option(
    "-f",
    "--framework",
    type=click.Choice(["pytorch", "mindspore"]),
    help="Whose dumps they are. The dumps say it themselves; if they say otherwise, that is remarked on.",
)
@click.pass_context
def msprobe(context: click.Context, framework: str | None) -> None:
    """msprobe's commands, with its options, files and tables.

    \b
    twintrace msprobe -f mindspore compare -i ./compare.json -o ./output -s
    twintrace msprobe compare -tp npu/step0 -gp bench/step0 -o ./output
    """
    context.obj = framework


def _mapping(*names: str, help: str) -> Callable[[_Command], _Command]:
    """An option that may be given without a file."""
    return click.option(*names, is_flag=False, flag_value=_OWN, default=None, metavar="[YAML]", help=help)


def _flag(*names: str, help: str) -> Callable[[_Command], _Command]:
    return click.option(*names, is_flag=True, help=help)


@msprobe.command(context_settings=_HELP)
@click.option(
    "-i", "--input_path", type=_FILE, help="A compare.json: npu_path, bench_path, stack_path, rank_id, step_id."
)
@click.option(
    "-tp", "--target_path", type=_PATH, help="Instead of -i: the dump.json, or directory, that is in question."
)
@click.option("-gp", "--golden_path", type=_PATH, help="Instead of -i: the one that it is compared with.")
@click.option("-o", "--output_path", type=_PATH, default="./output", show_default=True, help="Where the tables go.")
@_flag("-s", "--stack_mode", help="With the column NPU_Stack_Info: where each API was called. With -tp by itself.")
@_flag("-c", "--compare_only", help="Without the advice on the first row that fails.")
@_flag("-f", "-fm", "--fuzzy_match", help="Pair calls of one name in one place, although their numbers differ.")
@_mapping("-am", "--api_mapping", help="MindSpore beside PyTorch: APIs, by this file and by what they do.")
@_mapping("-cm", "--cell_mapping", help="MindSpore beside PyTorch: cells, by this file, by path and by kind.")
@_mapping("-dm", "--data_mapping", help="MindSpore beside PyTorch: item by item. Its file must be given.")
@_mapping("-lm", "--layer_mapping", help="MindSpore beside PyTorch: layers by name, and what is inside them.")
@_flag("--xlsx", help="With -tp: a spreadsheet, not csv. With -i it is one anyway.")
@_flag("-hl", "--highlight", help="Changes nothing: a spreadsheet is coloured anyway.")
@_flag("-da", "--diff_analyze", help="With -tp: the advice that -i gives anyway.")
@_flag("-tensor_log", "--is_print_compare_log", help="With -tp: a line for each tensor. With -i, compare.json says it.")
@click.option("--rank", metavar="N,…", help="With -tp: only these ranks.")
@click.option("--step", metavar="N,…", help="With -tp: only these steps.")
@click.option(
    "-m", "--mode", type=click.Choice(["auto"]), default="auto", help="Only auto: the files say what they are."
)
@click.pass_obj
def compare(
    framework: str | None,
    input_path: Path | None,
    target_path: Path | None,
    golden_path: Path | None,
    output_path: Path,
    stack_mode: bool,
    compare_only: bool,
    fuzzy_match: bool,
    api_mapping: str | None,
    cell_mapping: str | None,
    data_mapping: str | None,
    layer_mapping: str | None,
    xlsx: bool,
    highlight: bool,
    diff_analyze: bool,
    is_print_compare_log: bool,
    rank: str | None,
    step: str | None,
    mode: str,
) -> None:
    """Compare two dumps of msprobe's item by item, and write a table for each rank and step.

    With -i: compare_result_{timestamp}.xlsx and advisor_{timestamp}.txt. With -tp and -gp: compare_result_{timestamp}.csv. Give
    two dump.json, or two directories: of one step, whose ranks are paired, or of all steps. Kernel dumps of MindSpore are
    recognised. Items that only one side has are in the table, too.

    Exit code: 0 the tables are written, whatever they say; 2 they could not be.
    """
    from ..compat.msprobe.compare.flow import Settings, rules_of, run
    from ..compat.msprobe.compare.request import read_request, request_of
    from ..compat.msprobe.compare.rows import Generation

    newer = target_path is not None or golden_path is not None
    if newer == (input_path is not None):
        raise UsageError("msprobe compare: give either -i compare.json, or -tp and -gp.")
    for option, given in (("--xlsx", xlsx), ("-da", diff_analyze), ("--rank", rank), ("--step", step)):
        if given and not newer:
            raise UsageError(f"{option} goes with -tp and -gp. Leave it out; a compare.json has rank_id and step_id.")
    if input_path is not None:
        request = read_request(input_path)
    else:
        fields = {"npu_path": target_path, "bench_path": golden_path}
        numbers = {"rank_id": _numbers(rank, "--rank"), "step_id": _numbers(step, "--step")}
        called = {"npu_path": "-tp", "bench_path": "-gp", "rank_id": "--rank", "step_id": "--step"}
        request = request_of(fields | numbers, "msprobe compare", names=called)
    settings = Settings(
        output_path,
        Generation.NEWER if newer else Generation.OLDER,
        xlsx=xlsx or None,
        stacks=stack_mode or (None if newer else False),
        advise=diff_analyze if newer else not compare_only,
        verbose=is_print_compare_log or not newer,
        framework=framework,
        rules=rules_of(fuzzy_match, *map(_file, (api_mapping, cell_mapping, data_mapping, layer_mapping))),
    )
    with collecting_later():
        run(request, settings, click.echo)


def _file(given: str | None) -> str | bool | None:
    return True if given == _OWN else given


def _numbers(text: str | None, option: str) -> list[int] | None:
    try:
        return None if text is None else [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"{option}: expected numbers with commas between them, such as 0,1, got {text!r}.") from None
