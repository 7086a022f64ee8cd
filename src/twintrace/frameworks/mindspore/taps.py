"""A node that tells the gradient which flows back through it: `telling(callback)(tensor)`.

The same in PyNative and, with `telling_in_graph`, in GRAPH_MODE; there it must be made by Python while the compiler asks for
constants, since a function within the graph cannot be a hook. A @jit function that PyNative differentiates cannot call Python on
its way back, so there it is refused.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import mindspore as ms
from mindspore import ops

from ...model.errors import UsageError

REFUSAL = (
    "the gradient of a value inside a compiled graph cannot be had from Python here. Run it in PyNative "
    "(mindspore.set_context(mode=mindspore.PYNATIVE_MODE), without @jit), or record the run with eager=True."
)


def telling(callback: Callable[[Any], None]) -> Any:
    """Function to call with a tensor; its result is the tensor to go on with."""
    told = functools.partial(callback)  # has no source, so that it is called where the function below is compiled

    def passing(gradient: Any) -> Any:
        told(gradient)
        return gradient

    return ops.InsertGradientOf(passing)


def telling_in_graph(callback: Callable[[Any], None]) -> Any:
    """The same for the graph that is being compiled. UsageError where its backward pass could not call Python."""
    if ms.get_context("mode") != ms.GRAPH_MODE:
        raise UsageError(REFUSAL)
    return telling(callback)
