"""LeNet: modules in the order of the paper beside two Sequentials; pooling by function, by Cell."""

import numpy as np

MAP = """
.       = .
-       = features
-       = classifier
conv1   = features.0
conv2   = features.3
-       = features.{1,2,4,5}
fc1     = classifier.0
fc2     = classifier.2
fc3     = classifier.4
-       = classifier.{1,3}
"""


def batch(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {"x": rng.standard_normal((4, 1, 28, 28)).astype(np.float32), "y": rng.integers(0, 10, 4)}
