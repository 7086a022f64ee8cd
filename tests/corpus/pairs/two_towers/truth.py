"""Two towers and their cosine: L2 normalisation by a function here, by hand there; a temperature that is learned;
in-batch negatives.
"""

import numpy as np

MAP = """
.              = .
user           = left_tower
user.0         ? left_tower.0
user.1         = left_tower.0.activation
user.2         = left_tower.1
item           = right_tower
item.0         ? right_tower.0
item.1         = right_tower.0.activation
item.2         = right_tower.1
temperature    ~ log_scale
"""


def batch(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {
        "users": rng.standard_normal((6, 9)).astype(np.float32),
        "items": rng.standard_normal((6, 7)).astype(np.float32),
        "which": np.arange(6),
    }
