"""Causal dilated convolutions in time: Conv1d here; there a Conv1d too, whose weight is kept with one more axis,
padded by `ops.pad`.
"""

import numpy as np

MAP = """
.                   = .
blocks              = -
blocks.{0,1,2}      = levels.{0,1,2}
blocks.{0,1,2}.pad  = -
blocks.{0,1,2}.conv = levels.{0,1,2}.filter
blocks.0.match      = levels.0.widen
out                 = regress
"""


def batch(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {
        "signal": rng.standard_normal((3, 2, 20)).astype(np.float32),
        "wanted": rng.standard_normal((3, 4)).astype(np.float32),
    }
