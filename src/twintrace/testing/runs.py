"""Two runs in a test: the verdict is the assertion's message.

assert_same_run("runs/a", "runs/b")
AssertionError: runs/a and runs/b part at torch.nn.functional.layer_norm in norm1, step 0, forward
  …  why     eps: 1e-05 | 1e-07
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..store.trace import Trace


def assert_same_run(
    left: str | os.PathLike[str] | Trace, right: str | os.PathLike[str] | Trace, **options: Any
) -> None:
    """Raise AssertionError with the verdict unless every result of two recorded runs agrees.

    Args:
        left: a trace, or its path: the one that is right.
        right: the other.
        options: those of `tt.compare`: policy, rtol, atol, mapping, steps, ranks, …

    Raises:
        AssertionError: the runs part, have nothing in common, or something that counts could not be told.
    """
    __tracebackhide__ = True
    from ..api import compare, verdict  # here, as pytest loads the plugin of this package for every suite

    comparison = compare(left, right, **{"pictures": False} | options)
    if comparison.code != 0:
        raise AssertionError(verdict(comparison))
