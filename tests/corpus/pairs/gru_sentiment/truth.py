"""A bidirectional GRU with max pooling over time; length first here, batch first there."""

import numpy as np

MAP = """
.         = .
embed     = lookup
gru       = encoder
-         = encoder.rnn
out       = score
out.0     ? score.0
out.1     = score.0.activation
out.2     = score.1
"""


def batch(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {"tokens": rng.integers(0, 40, (5, 8)), "liked": rng.integers(0, 2, (5, 1)).astype(np.float32)}
