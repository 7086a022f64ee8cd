"""`import torch_npu` in a spawned process: the embassy takes the place of this module."""

from twintrace.compat import disguises

disguises.settle("torch_npu")
