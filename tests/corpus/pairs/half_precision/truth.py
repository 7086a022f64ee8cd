"""Convolution and dense layers in float16 around a softmax in float32: casts that are in other places on the two
sides.
"""

import numpy as np

MAP = """
.         = .
conv      = conv
fc1       = dense1
norm      = ln
fc2       = dense2
"""


def batch(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {"x": rng.standard_normal((4, 3, 8, 8)).astype(np.float32), "y": rng.integers(0, 5, 4)}
