"""ConvNeXt blocks: layer norm over the last axis after a permute on both sides, dense layers here, 1×1 convolutions
there; layer scale.
"""

import numpy as np

MAP = """
.                         = .
stem                      = stem
blocks                    = stage
blocks.{0,1}              = stage.{0,1}
blocks.{0,1}.dwconv       = stage.{0,1}.dw
blocks.{0,1}.norm         = stage.{0,1}.ln
blocks.{0,1}.pwconv1      = stage.{0,1}.expand
blocks.{0,1}.act          = -
blocks.{0,1}.pwconv2      = stage.{0,1}.shrink
norm                      = final_ln
head                      = head
blocks.{0,1}.gamma        ~ stage.{0,1}.layer_scale
"""


def batch(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {"x": rng.standard_normal((2, 3, 12, 12)).astype(np.float32), "y": rng.integers(0, 5, 2)}
