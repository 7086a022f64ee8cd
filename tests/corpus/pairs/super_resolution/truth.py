"""Sub-pixel upscaling: pixel shuffle by a module here, by reshape and transpose there; a global residual over an
interpolation.
"""

import numpy as np

MAP = """
.              = .
head           = conv_first
body           = -
body.{0,1}     = {rb1,rb2}
body.{0,1}.a   = {rb1,rb2}.conv1
body.{0,1}.b   = {rb1,rb2}.conv2
tail           = conv_last
shuffle        = -
"""


def batch(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {
        "small": rng.random((2, 3, 7, 7)).astype(np.float32),
        "large": rng.random((2, 3, 14, 14)).astype(np.float32),
    }
