"""support_wrap_ops.yaml: which functions are recorded, by category. Nobody needs one; who gives one has it kept to.

    functional:            torch.nn.functional         ops:                   mindspore.ops
      - conv2d             recorded                    mint.ops:              mindspore.mint
      - linear                                         mint.nn.functional:    mindspore.mint.nn.functional
    tensor:
      - __add__            x + y; and x.add(y), which when it begins is the same function

Functions that a file does not name are not recorded. One that belongs to no category of the file's format (primitives, functions
of other packages) is not the file's business and stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import yaml

from ...model.errors import UsageError

CATEGORIES: Mapping[str, str] = MappingProxyType(
    {
        "functional": "Functional", "tensor": "Tensor", "torch": "Torch", "_VF": "VF", "torch_npu": "NPU", "aten": "Aten",
        "distributed": "Distributed", "npu_distributed": "Distributed", "mindspeed": "MindSpeed",
        "ops": "Functional", "mint.ops": "Mint", "mint.nn.functional": "MintFunctional", "mint.distributed": "MintDistributed",
        "communication.comm_func": "Distributed",
    }
)  # fmt: skip
"""Category of the file -> prefix of records."""

_RULED = frozenset(CATEGORIES.values())


def read_allowed(path: Path) -> frozenset[str]:
    """The stems (`Functional.conv2d`) that a file allows."""
    try:
        content = yaml.safe_load(path.read_bytes())
    except OSError as error:
        raise UsageError(f"support_wrap_ops: {path} cannot be read ({error.strerror}).") from None
    except yaml.YAMLError as error:
        raise UsageError(f"support_wrap_ops: {path} is not YAML ({' '.join(str(error).split())}).") from None
    if not isinstance(content, dict):
        raise UsageError(f"support_wrap_ops: {path}: expected categories with lists of functions, got {content!r:.60}.")
    allowed: set[str] = set()
    for category, functions in content.items():
        if category not in CATEGORIES:
            raise UsageError(
                f"support_wrap_ops: {path}: unknown category {category!r}, expected one of {', '.join(CATEGORIES)}."
            )
        names = [] if functions is None else functions
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise UsageError(
                f"support_wrap_ops: {path}: {category}: expected a list of names, got {functions!r:.60}. "
                f"Write each name in a line of its own, after a dash."
            )
        prefix = CATEGORIES[category]
        for name in names:
            last = name.rpartition(".")[2]
            allowed.add(f"{prefix}.{last}")
    return frozenset(allowed)


def is_allowed(stem: str, allowed: frozenset[str]) -> bool:
    """Is a function with this stem recorded?"""
    return stem in allowed or stem.partition(".")[0] not in _RULED
