"""`ts.widget`: small things that go with carrying a network over.

    ts.save("grads/torch", ts.widget.get_pt_grads(net))     grads/torch.fc.weight_0_float32_0.npy …
    ts.widget.loss_compare(…)                               losses.py

In: nets, objects, files. Out: gradients, files. Not here: any logic (`api`). Surprising: none of it pickles.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NoReturn

from .... import api
from ....model.errors import UsageError
from ..stand_in import refuse
from .losses import loss_compare

__all__ = ["fix_random", "get_pt_grads", "load_ms_weight2net", "loss_compare", "object_dump", "object_load"]

StrPath = str | os.PathLike[str]


def fix_random(seed: int = 16) -> None:
    """Seed python, numpy and every framework that is imported."""
    api.seed_all(seed)


def get_pt_grads(model: Any) -> dict[str, Any]:
    """The gradient of every parameter of a torch net, by `name_number`; None of one that has none."""
    if api.framework_of(model) not in ("torch", "msadapter") or not hasattr(model, "named_parameters"):
        raise UsageError(f"model: expected a torch.nn.Module, got {type(model).__name__}.")
    return {f"{name}_{number}": item.grad for number, (name, item) in enumerate(model.named_parameters())}


def load_ms_weight2net(model: Any, file: StrPath) -> None:
    """Load a MindSpore checkpoint into a net. What the net lacks, or what would not be filled, is an error."""
    api.convert_weights(file, model)


def object_dump(obj: Any, file: StrPath) -> None:
    """Write numbers, texts, lists and dicts as JSON."""
    try:
        text = json.dumps(obj)
    except (TypeError, ValueError) as error:
        raise UsageError(f"obj: expected numbers, texts, lists and dicts, which JSON can hold ({error}).") from None
    Path(file).write_text(text, encoding="utf-8")


def object_load(file: StrPath) -> Any:
    """Contents of a file that `object_dump` wrote. JSON: nothing in it is run."""
    try:
        return json.loads(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{os.fspath(file)}: expected a file of JSON ({error}).") from None


def __getattr__(name: str) -> NoReturn:
    refuse("widget", name)
