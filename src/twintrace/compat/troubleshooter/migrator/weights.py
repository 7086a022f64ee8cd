"""`ts.migrator`'s functions about weights.

    ts.migrator.get_weight_map(pt_net=net, weight_map_save_path="map.json", print_map=True)
    ts.migrator.convert_weight(weight_map_path="map.json", pt_file_path="net.pth", ms_file_save_path="net.ckpt")
    ts.migrator.compare_pth_and_ckpt("map.json", "net.pth", "net.ckpt", print_level=2)

A map is a file with two dicts: names, and the functions that change values. It is the real tool's; its maps are read as well.
"""

from __future__ import annotations

import os
import pprint
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from .... import api
from ....model.errors import UsageError
from ....model.weights import WeightComparison, WeightMap, WeightRow
from ..tables import INCONSISTENT, VALUE_FIELDS, Scores, boxed, say

Names = dict[str, Any]
StrPath = str | os.PathLike[str]
WeightMaps = tuple[Mapping[str, Any], Mapping[str, str]]


def get_weight_map(
    pt_net: Any = None,
    weight_map_save_path: StrPath | None = None,
    weight_name_prefix: str | None = None,
    custom_name_func: Callable[[Names], Names] | None = None,
    print_map: bool = False,
    *,
    pt_model: Any = None,
) -> tuple[Names, dict[str, str]]:
    """(names, functions): what each weight of a torch net is called in MindSpore, and how its values change.

    weight_name_prefix   goes before every name, with a dot           custom_name_func  gets the names and returns them changed
    pt_model             the same as pt_net, as it was called once
    """
    net = pt_net if pt_net is not None else pt_model
    mapping = api.map_weights(net, to="mindspore")
    names, values = api.to_troubleshooter(mapping)
    absorbed = [name for name, target in names.items() if target is None]  # lengths, made one with their directions
    order = [*(name for name in api.weight_names(net) if name not in absorbed)]
    names = {name: names.get(name) or name for name in order}  # counters and tied names keep theirs
    if weight_name_prefix:
        if not isinstance(weight_name_prefix, str):
            raise UsageError(f"weight_name_prefix: expected a text, got {type(weight_name_prefix).__name__}.")
        names = {name: f"{weight_name_prefix}.{target}" for name, target in names.items()}
    if custom_name_func is not None:
        names = _customised(names, custom_name_func)
    names |= dict.fromkeys(absorbed)
    api.from_troubleshooter(names, values, "the weight map")  # two names that became one are mapping out here
    if print_map:
        say(pprint.pformat(names))
        say(pprint.pformat(values))
    if weight_map_save_path is not None:
        api.write_troubleshooter(names, values, weight_map_save_path)
    return names, values


def _customised(names: Names, function: Callable[[Names], Names]) -> Names:
    if not callable(function):
        raise UsageError(f"custom_name_func: expected a function, got {type(function).__name__}.")
    changed = function(dict(names))
    if not isinstance(changed, Mapping):
        raise UsageError(
            f"custom_name_func: must return the names, got {type(changed).__name__}. Is there a `return` in it?"
        )
    lost, new = [n for n in names if n not in changed], [n for n in changed if n not in names]
    if lost or new:
        raise UsageError(f"custom_name_func: keys must stay as they are; lost {lost[:4]}, new {new[:4]}.")
    return dict(changed)


def convert_weight(
    weight_map_path: StrPath | None = None,
    pt_file_path: StrPath | None = None,
    ms_file_save_path: StrPath | None = None,
    *,
    pth_para_dict: Mapping[str, Any] | None = None,
    pt_param_dict: Mapping[str, Any] | None = None,
    weight_map: WeightMaps | None = None,
    print_conv_info: bool = True,
    print_save_path: bool = True,
    print_level: int = 1,
    trust: bool = False,
) -> None:
    """Write a PyTorch checkpoint as a MindSpore checkpoint. The file holds a state dict, or a whole module.

    pth_para_dict   a state dict instead of a file; `pt_param_dict` is the same       weight_map   a map instead of a file
    print_level     0: no table, 1: all rows, 2: those that were renamed or converted
    trust           run the code in a file that cannot be read otherwise
    """
    if print_level not in (0, 1, 2):
        raise UsageError(f"print_level: expected 0, 1 or 2, got {print_level!r}.")
    if ms_file_save_path is None:
        raise UsageError("ms_file_save_path: expected where to write the checkpoint, got None.")
    given = pth_para_dict if pth_para_dict is not None else pt_param_dict
    source = _one_of("pt_file_path", pt_file_path, "pth_para_dict", given)
    map = _map(weight_map_path, weight_map)
    with api.progress_bar() as progress:
        conversion = api.convert_weights(source, ms_file_save_path, map=map, force=True, trust=trust, progress=progress)
    rows = [row for row in conversion.rows if print_level == 1 or _status(row) != "Consistent"]
    if print_conv_info and print_level:
        say(_conversion_table(rows))
    if print_save_path:
        say(
            f"The PTH has been converted to the checkpoint of MindSpore. The saved path is: {os.fspath(ms_file_save_path)}"
        )


def _one_of(name: str, value: Any, other: str, instead: Any) -> Any:
    if (value is None) == (instead is None):
        raise UsageError(f"expected {name} or {other}, got {'neither' if value is None else 'both'}.")
    return value if value is not None else instead


def _map(path: StrPath | None, given: WeightMaps | None) -> WeightMap:
    chosen = _one_of("weight_map_path", path, "weight_map", given)
    if given is not None:
        if not isinstance(given, Sequence) or len(given) != 2:
            raise UsageError("weight_map: expected (names, functions), as get_weight_map returns them.")
        return api.from_troubleshooter(given[0], given[1], "weight_map")
    return api.read_weight_map(chosen)


def _conversion_table(rows: Sequence[WeightRow]) -> str:
    heads = ("Parameter name of torch", "Parameter name of MindSpore", "Conversion status", "Parameter shape of torch",
             "Parameter shape of MindSpore")  # fmt: skip
    return boxed(
        "The list of conversion result",
        heads,
        [(row.left, row.right, _status(row), _shape(row.left_spec), _shape(row.right_spec)) for row in rows],
    )


def _status(row: WeightRow) -> str:
    left, right = (row.left or "").rpartition("."), (row.right or "").rpartition(".")
    renamed = f"{left[2]}->{right[2]}" if left[0] == right[0] and left[2] != right[2] else "Name converted"
    parts = [renamed] * (row.left != row.right) + ["Value converted"] * (row.transform != "same")
    return "; ".join(parts) or "Consistent"


def _shape(spec: Any) -> Any:
    return None if spec is None else tuple(spec.shape)


def convert_weight_and_load(weight_map_path: StrPath, pt_file_path: StrPath, net: Any, *, trust: bool = False) -> None:
    """Load a PyTorch checkpoint into a MindSpore net. What the net lacks, or what would not be filled, is an error."""
    map = api.read_weight_map(weight_map_path)
    with api.progress_bar() as progress:
        conversion = api.convert_weights(pt_file_path, net, map=map, trust=trust, progress=progress)
    say(_conversion_table(conversion.rows))


def save_net_and_weight_params(
    net: Any, path: StrPath | None = None, weight_params_filename: str | None = None
) -> None:
    """Write a net's weights, its architecture and, for a torch net, its map into the folder `path` (default: the current one).

    torch_troubleshooter_create.pth, torch_net_map.json, torch_net_architecture.txt
    mindspore_troubleshooter_create.ckpt, mindspore_net_architecture.txt
    """
    framework = api.framework_of_net(net)
    if framework not in ("torch", "mindspore"):
        raise UsageError(f"net: expected a torch.nn.Module or a mindspore.nn.Cell, got {type(net).__name__}.")
    folder = Path(path if path is not None else Path.cwd())
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = weight_params_filename or f"{framework}_troubleshooter_create.{'pth' if framework == 'torch' else 'ckpt'}"
    api.convert_weights(net, folder / file, to=framework, force=True)
    if framework == "torch":
        get_weight_map(net, folder / "torch_net_map.json")
    (folder / f"{framework}_net_architecture.txt").write_text(api.describe_net(net) + "\n", encoding="utf-8")


def compare_ms_ckpt(
    orig_file_path: StrPath | None,
    target_file_path: StrPath | None,
    *,
    compare_value: bool = True,
    print_level: int = 1,
    rtol: float = 1e-4,
    atol: float = 1e-4,
    equal_nan: bool = False,
    weight_map_path: StrPath | None = None,
    weight_map: WeightMaps | None = None,
    orig_ckpt_dict: Mapping[str, Any] | None = None,
    target_ckpt_dict: Mapping[str, Any] | None = None,
    shape_field_names: Sequence[str] | None = None,
    value_field_names: Sequence[str] | None = None,
    title: str | None = None,
) -> str:
    """Two MindSpore checkpoints: a table of shapes and one of values, printed and returned.

    print_level    0 prints nothing, 1 everything, 2 what differs          compare_value   False: shapes only
    weight_map…    show the original's names as the torch names that they were converted from
    """
    left = _one_of("orig_file_path", orig_file_path, "orig_ckpt_dict", orig_ckpt_dict)
    right = _one_of("target_file_path", target_file_path, "target_ckpt_dict", target_ckpt_dict)
    with api.progress_bar() as progress:
        comparison = api.compare_weights(
            left,
            right,
            values=compare_value,
            rtol=rtol,
            atol=atol,
            equal_nan=equal_nan,
            relative_to="right",
            progress=progress,
        )
    torch_names: dict[str, str] = {}
    if weight_map_path is not None or weight_map is not None:
        torch_names = {pair.right: pair.left[-1] for pair in _map(weight_map_path, weight_map).pairs}
    sides = ("original ckpt", "target ckpt")
    return _tables(comparison, print_level, sides, shape_field_names, value_field_names, title, torch_names)


def compare_pth_and_ckpt(
    weight_map_path: StrPath,
    pt_file_path: StrPath,
    ms_file_path: StrPath,
    *,
    compare_value: bool = True,
    print_level: int = 1,
    rtol: float = 1e-4,
    atol: float = 1e-4,
    equal_nan: bool = False,
    print_conv_info: bool = False,
    trust: bool = False,
) -> str:
    """A PyTorch checkpoint beside a MindSpore one, by a map: a table of shapes and one of values, printed and returned."""
    with api.progress_bar() as progress:
        comparison = api.compare_weights(
            pt_file_path, ms_file_path, map=weight_map_path, values=compare_value, rtol=rtol, atol=atol, equal_nan=equal_nan,
            relative_to="right", trust=trust, progress=progress,
        )  # fmt: skip
    if print_conv_info:
        say(_conversion_table([row for row in comparison.rows if row.left is not None and row.right is not None]))
    return _tables(comparison, print_level, ("torch", "MindSpore"))


def compare_nets(pt_net: Any, ms_net: Any, *, print_level: int = 1, rtol: float = 1e-4, atol: float = 1e-4) -> str:
    """The weights of two networks as they are now: the same two tables."""
    comparison = api.compare_weights(pt_net, ms_net, rtol=rtol, atol=atol, relative_to="right")
    return _tables(comparison, print_level, ("torch", "MindSpore"))


def _tables(
    comparison: WeightComparison,
    level: int,
    sides: tuple[str, str],
    shape_fields: Sequence[str] | None = None,
    value_fields: Sequence[str] | None = None,
    title: str | None = None,
    names: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """The table of shapes and the one of values, printed unless `level` is 0; `names` are shown instead of the left ones."""
    heads = [f"Parameter name of {side}" for side in sides]
    sizes = [f"Parameter shape of {side}" for side in sides]
    if level not in (0, 1, 2) or isinstance(level, bool):
        raise UsageError(f"print_level: expected 0 (nothing), 1 (everything) or 2 (what differs), got {level!r}.")
    shapes, values = [], []
    for row in comparison.rows:
        both = row.left_spec is not None and row.right_spec is not None
        equal = (row.left_spec.shape == row.right_spec.shape) if row.left_spec and row.right_spec else None
        left = names.get(row.left or "", row.left)
        if level != 2 or equal is not True:
            shapes.append((left, row.right, equal, _shape(row.left_spec), _shape(row.right_spec)))
        if comparison.values and both and (level != 2 or row.allclose is not True):
            values.append((left, row.right, *_scores(row).cells))
    text = boxed(
        "The list of comparison results for shapes", shape_fields or [*heads, "Whether shape are equal", *sizes], shapes
    )
    if values:
        title = title or "The list of comparison results for values"
        text += "\n" + boxed(title, value_fields or [*heads, *VALUE_FIELDS], values)
    if level:
        say(text)
    return text


def _scores(row: WeightRow) -> Scores:
    if row.allclose is None:
        return Scores(INCONSISTENT)
    same = row.verdict == "equal"
    cosine = 1.0 if same and row.cosine is None else row.cosine
    errors = (0.0, 0.0) if same and row.max_error is None else (row.mean_error, row.max_error)
    return Scores(row.allclose, row.ratio, cosine, errors)
