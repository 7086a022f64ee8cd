"""As much of torchvision as the document's second sample wants, where torchvision is not installed."""

from types import SimpleNamespace

from . import models

datasets = transforms = SimpleNamespace()

__all__ = ["datasets", "models", "transforms"]
