"""`ts.migrator`: carrying a network over.

In: nets, checkpoints, maps. Out: files and tables. Not here: any logic (`api`). Surprising: one module for each of the real tool's
chapters, and all their names here, where its users look for them.
"""

from __future__ import annotations

from typing import NoReturn

from ..saving import save, save_grad
from ..stand_in import refuse
from .api_compare import api_dump_compare
from .api_dump import api_dump_init, api_dump_start, api_dump_stop
from .arrays import (
    cal_algorithm,
    cal_cosine_sim,
    compare_dict_dir,
    compare_grads_dir,
    compare_list_dir,
    compare_npy_dir,
    get_name_map_list_by_name,
    get_name_map_list_by_number,
    get_name_map_list_by_shape_edit_distance,
)
from .net_difference import NetDifferenceFinder
from .weights import (
    compare_ms_ckpt,
    compare_pth_and_ckpt,
    convert_weight,
    convert_weight_and_load,
    get_weight_map,
    save_net_and_weight_params,
)

__all__ = [
    "NetDifferenceFinder",
    "api_dump_compare",
    "api_dump_init",
    "api_dump_start",
    "api_dump_stop",
    "cal_algorithm",
    "cal_cosine_sim",
    "compare_dict_dir",
    "compare_grads_dir",
    "compare_list_dir",
    "compare_ms_ckpt",
    "compare_npy_dir",
    "compare_pth_and_ckpt",
    "convert_weight",
    "convert_weight_and_load",
    "get_name_map_list_by_name",
    "get_name_map_list_by_number",
    "get_name_map_list_by_shape_edit_distance",
    "get_weight_map",
    "save",
    "save_grad",
    "save_net_and_weight_params",
]


def __getattr__(name: str) -> NoReturn:
    refuse("migrator", name)
