"""A GRU cell called in a loop on both sides: a module that is called five times, a list that is stacked along
another axis.
"""

import numpy as np

MAP = """
.        = .
enter    = project
step     = cell
leave    = head
"""


def batch(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {
        "frames": rng.standard_normal((5, 4, 6)).astype(np.float32),
        "start": rng.standard_normal((4, 8)).astype(np.float32),
        "want": rng.standard_normal((5, 4, 3)).astype(np.float32),
    }
