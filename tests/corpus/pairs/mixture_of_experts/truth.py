"""A mixture of experts: results stacked and weighted at once here, added up one after the other there; the best two
by index, by threshold.
"""

import numpy as np

MAP = """
.                       = .
gate                    = router
experts.{0,1,2}         = experts.{0,1,2}
experts.{0,1,2}.0       ? experts.{0,1,2}.up
experts.{0,1,2}.1       = experts.{0,1,2}.up.activation
experts.{0,1,2}.2       = experts.{0,1,2}.down
out                     = head
"""


def batch(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {"x": rng.standard_normal((6, 8)).astype(np.float32), "y": rng.integers(0, 4, 6)}
