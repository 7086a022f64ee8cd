"""Residual blocks with batch norm: the shortcut is a Sequential here, two optional Cells there; ReLU in place,
shared and called often.
"""

import numpy as np

MAP = """
.                          = .
stem                       = -
stem.{0,1}                 = {conv1,bn1}
stem.2                     = relu
layer{1,2,3}               = blocks.{0,1,2}
layer{1,2,3}.conv1         = blocks.{0,1,2}.a
layer{1,2,3}.bn1           = blocks.{0,1,2}.a_norm
layer{1,2,3}.conv2         = blocks.{0,1,2}.b
layer{1,2,3}.bn2           = blocks.{0,1,2}.b_norm
layer{1,2,3}.relu          = blocks.{0,1,2}.act
layer2.shortcut            = -
layer2.shortcut.{0,1}      = {blocks.1.down,blocks.1.down_norm}
pool                       = -
fc                         = end
"""


def batch(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {"images": rng.standard_normal((4, 3, 16, 16)).astype(np.float32), "labels": rng.integers(0, 7, 4)}
