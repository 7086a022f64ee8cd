"""Convolutions over words: Conv1d on channels first here, Conv2d over the whole width of the embedding there; max
over time.
"""

import numpy as np

MAP = """
.                  = .
words              = emb
convs.{0,1,2}      = {k2,k3,k4}
fc                 = classifier
drop               = -
convs.0.weight     ~ k2.weight (0 2 1)
convs.1.weight     ~ k3.weight (0 2 1)
convs.2.weight     ~ k4.weight (0 2 1)
"""


def batch(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {"text": rng.integers(0, 50, (5, 11)), "topic": rng.integers(0, 4, 5)}
