"""Depthwise separable convolutions with ReLU6: grouped convolutions; a Cell with a Sequential inside beside a plain
one.
"""

import numpy as np

MAP = """
.                       = .
first                   = layers.0
stages                  = -
stages.{0,1}            = layers.{1,2}
stages.{0,1}.depthwise  = layers.{1,2}.0
stages.{0,1}.norm1      = layers.{1,2}.1
stages.{0,1}.pointwise  = layers.{1,2}.3
stages.{0,1}.norm2      = layers.{1,2}.4
-                       = layers.{1,2}.2
-                       = layers.{1,2}.5
-                       = layers
head                    = fc
"""


def batch(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {"x": rng.standard_normal((3, 3, 14, 14)).astype(np.float32), "y": rng.integers(0, 4, 3)}
