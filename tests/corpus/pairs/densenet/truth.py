"""Dense connections: one growing concatenation here, a list that is joined anew in each layer there."""

import numpy as np

MAP = """
.                              = .
conv0                          = stem
block{1,2}                     = dense.{0,1}
block1.layers.{0,1,2}          ? dense.0.units.{0,1,2}
block2.layers.{0,1,2}          ? dense.1.units.{0,1,2}
block1.layers.{0,1,2}.norm     = dense.0.units.{0,1,2}.bn
block2.layers.{0,1,2}.norm     = dense.1.units.{0,1,2}.bn
block1.layers.{0,1,2}.conv     = dense.0.units.{0,1,2}.grow
block2.layers.{0,1,2}.conv     = dense.1.units.{0,1,2}.grow
transition                     = shrink
transition.{0,2}               = shrink.{bn,conv}
transition.1                   = -
transition.3                   = shrink.pool
norm                           = last_bn
fc                             = out
"""


def batch(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {"x": rng.standard_normal((4, 3, 8, 8)).astype(np.float32), "y": rng.integers(0, 6, 4)}
