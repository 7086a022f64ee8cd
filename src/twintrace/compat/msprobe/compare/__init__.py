"""The comparison of two dumps: which item stands beside which, what is said of the two, and the files that say it.

    flow.py       from end to end: run, write_result                          kernels.py    MindSpore's kernel dumps
    request.py    what is to be compared: compare.json, or two paths          mappings.py   the four mapping files
    pairing.py    which item stands beside which: ItemPair                    layers.py     layers by name, for -lm
    aligned.py    what the project's alignment finds, in items
    rows.py       what is said of two items, in which columns                 tensors.py    the numbers of their values
    verdicts.py   what a row is worth, and its colour                         advisor.py    the first row that fails

In: a compare.json, or two paths, and mapping files. Out: a table for each rank and step. Not here: the search for what belongs
together across frameworks (the project's alignment, through `api`). Surprising: whatever stands on one side only has a row too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["compare", "compare_distributed"]

PathLike = str | os.PathLike[str]


def compare(
    input_param: Mapping[str, Any] | PathLike,
    output_path: PathLike,
    stack_mode: bool = False,
    auto_analyze: bool = True,
    fuzzy_match: bool = False,
    *,
    api_mapping: PathLike | bool | None = None,
    cell_mapping: PathLike | bool | None = None,
    data_mapping: PathLike | None = None,
    layer_mapping: PathLike | bool | None = None,
) -> None:
    """Compare two dumps and write the tables, as `msprobe -f … compare -i` does.

    input_param   the fields of a compare.json (npu_path, bench_path, stack_path …), or the path of one
    …_mapping     a YAML file; True for the option without a file
    auto_analyze  False: without the advice on the first row that fails
    """
    from .flow import Settings, rules_of, run
    from .request import read_request, request_of

    given = isinstance(input_param, Mapping)
    request = request_of(input_param, "input_param") if given else read_request(Path(input_param))  # type: ignore[arg-type]
    rules = rules_of(fuzzy_match, api_mapping, cell_mapping, data_mapping, layer_mapping)
    settings = Settings(Path(output_path), stacks=stack_mode, advise=auto_analyze, rules=rules)
    run(request, settings, lambda line: sys.stdout.write(f"{line}\n"))


def compare_distributed(
    npu_dump_dir: PathLike,
    bench_dump_dir: PathLike,
    output_path: PathLike,
    *,
    stack_mode: bool = False,
    auto_analyze: bool = True,
    fuzzy_match: bool = False,
    is_print_compare_log: bool = True,
    api_mapping: PathLike | bool | None = None,
    cell_mapping: PathLike | bool | None = None,
    data_mapping: PathLike | None = None,
    layer_mapping: PathLike | bool | None = None,
) -> None:
    """Compare all ranks of two steps (`dump/step0`), or of all steps; a table for each."""
    paths = {"npu_path": os.fspath(npu_dump_dir), "bench_path": os.fspath(bench_dump_dir)}
    compare(
        {**paths, "is_print_compare_log": is_print_compare_log}, output_path, stack_mode, auto_analyze, fuzzy_match,
        api_mapping=api_mapping, cell_mapping=cell_mapping, data_mapping=data_mapping, layer_mapping=layer_mapping,
    )  # fmt: skip
