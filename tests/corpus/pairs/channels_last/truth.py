"""The same convolutions on images that are NCHW here and NHWC there: the right side permutes at its door and before
its head.
"""

import numpy as np

MAP = """
.               = .
body            = -
body.0          = c1
body.{1,4}      = {n1,n2}
body.{2,5}      = -
body.3          = c2
head            = linear
head.weight     ~ linear.kernel (1 0)
"""


def batch(rng: np.random.Generator) -> dict[str, np.ndarray]:
    images = rng.standard_normal((4, 3, 9, 11)).astype(np.float32)
    return {
        "images": images,
        "images_last": np.ascontiguousarray(images.transpose(0, 2, 3, 1)),
        "target": rng.standard_normal((4, 9 * 11, 5)).astype(np.float32),
    }
