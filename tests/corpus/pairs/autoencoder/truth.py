"""A convolutional autoencoder: upsampling by a module here, by reshape and tile there; PReLU, whose weight is called
`w` there.
"""

import numpy as np

MAP = """
.                  = .
encoder            = -
encoder.{0,2}      = {down1,down2}
encoder.{1,3}      = {bend1,bend2}
decoder            = -
decoder.{1,3}      = {up1,up2}
decoder.{0,2}      = -
encoder.{1,3}.weight ~ {bend1,bend2}.w
"""


def batch(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {"x": rng.standard_normal((3, 2, 12, 12)).astype(np.float32)}
