"""A multilayer perceptron: a Sequential beside named layers; flattening by a module, by a method."""

import numpy as np

MAP = """
. | layers = .
layers.0   = -
layers.1   = hidden
layers.2   = -
layers.3   = narrow
layers.4   = act
layers.5   = classify
"""


def batch(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {"images": rng.standard_normal((16, 6, 8)).astype(np.float32), "labels": rng.integers(0, 10, 16)}
