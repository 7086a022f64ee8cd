"""Inception branches: written in another order, one of them named otherwise; auxiliary head beside the main one."""

import numpy as np

MAP = """
.                          = .
mixed{1,2}                 = {a,b}
mixed1.branch1             = a.one
mixed1.branch3_{1,2}       = a.three_{in,out}
mixed1.branch5_{1,2,3}     = a.five_{in,mid,out}
mixed1.pool_proj           = a.pooled
mixed2.branch1             = b.one
mixed2.branch3_{1,2}       = b.three_{in,out}
mixed2.branch5_{1,2,3}     = b.five_{in,mid,out}
mixed2.pool_proj           = b.pooled
-                          = {a,b}.pool
fc                         = classifier
aux                        = side
"""


def batch(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {"x": rng.standard_normal((3, 6, 10, 10)).astype(np.float32), "y": rng.integers(0, 4, 3)}
