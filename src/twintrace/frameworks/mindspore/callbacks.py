"""Callbacks of MindSpore's `Model.train`: the class that a callback must be of."""

from __future__ import annotations

from typing import Any

from mindspore.train import Callback

__all__ = ["callback_class"]


def callback_class() -> Any:
    """The class whose methods `Model.train` calls at the beginning and end of a training, an epoch and a step."""
    return Callback
