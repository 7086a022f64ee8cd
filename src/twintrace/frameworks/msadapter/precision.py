"""Settings that decide in which precision MSAdapter computes: MindSpore's. Its `torch.autocast` sets MindSpore's own strategy."""

from ..mindspore.precision import computing_in, forget, precision

__all__ = ["computing_in", "forget", "precision"]
