"""One tower, called twice with shared weights: the distance by a function here, by hand there; one ReLU for all
there.
"""

import numpy as np

MAP = """
.            = .
tower        = branch
tower.{0,3}  = branch.{conv1,conv2}
tower.{1,4}  ? {branch.act,branch.act}
tower.{2,5}  = -
tower.6      = branch.dense
"""


def batch(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {
        "one": rng.standard_normal((4, 1, 10, 10)).astype(np.float32),
        "two": rng.standard_normal((4, 1, 10, 10)).astype(np.float32),
        "alike": rng.integers(0, 2, 4).astype(np.float32),
    }
