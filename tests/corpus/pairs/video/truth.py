"""3-d convolutions over frames, then an average over time; a reshape that joins time and space on one side only."""

import numpy as np

MAP = """
.                = .
conv{1,2}        = {c1,c2}
norm             = bn
fc               = fc
"""


def batch(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {"clip": rng.standard_normal((2, 2, 4, 6, 6)).astype(np.float32), "what": rng.integers(0, 3, 2)}
