"""TroubleShooter's names: `import twintrace.compat.troubleshooter as ts`.

    ts.fix_random                                                                 widget/
    ts.save, save_grad                                                            saving.py
    ts.migrator.api_dump_init, api_dump_start, api_dump_stop                      migrator/api_dump.py
                api_dump_compare                                                  migrator/api_compare.py
                get_weight_map, convert_weight, convert_weight_and_load, save_net_and_weight_params,
                compare_ms_ckpt, compare_pth_and_ckpt                             migrator/weights.py
                NetDifferenceFinder                                               migrator/net_difference.py
                get_name_map_list_by_name, …_by_number, …_by_shape_edit_distance, cal_algorithm, cal_cosine_sim,
                compare_npy_dir, compare_grads_dir, compare_list_dir, compare_dict_dir      migrator/arrays.py
    ts.widget.get_pt_grads, load_ms_weight2net, object_dump, object_load          widget/
              loss_compare                                                        widget/losses.py

    writer.py    a recording, file by file         layout.py     dumps as traces, traces as dumps
    names.py     `NN_Conv2d_0_forward_input.0`     layers.py     which modules have one name in a dump
    tables.py    tables as it prints them, and what they say of two tensors
    stand_in.py  for unchanged scripts, and names that are not here
    SURFACE.md   every keyword, and what differs on purpose

In: its arguments, its dumps. Out: its files, tables and return values. Not here: recording, pairing, measuring; they are the
project's own. Surprising: none of it needs both frameworks; the nets that are given say which ones are there.
"""

from __future__ import annotations

from typing import Any

from . import migrator, widget
from .saving import save, save_grad
from .stand_in import refuse
from .widget import fix_random

__all__ = ["FRAMEWORK_TYPE", "fix_random", "migrator", "save", "save_grad", "widget"]

__version__ = "1.0.18"
"""Of the real tool: the one whose names and files these are."""


def __getattr__(name: str) -> Any:
    if name == "FRAMEWORK_TYPE":
        from importlib.util import find_spec

        return {package for package in ("torch", "mindspore", "mindtorch") if find_spec(package) is not None}
    refuse("", name)
