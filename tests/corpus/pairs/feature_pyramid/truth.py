"""A feature pyramid with one head for all levels: a module called three times, nearest upsampling, sums from the top
down.
"""

import numpy as np

MAP = """
.                = .
c{1,2,3}         = backbone.{0,1,2}
lateral.{0,1,2}  = fpn.lat{0,1,2}
smooth.{0,1,2}   = fpn.out{0,1,2}
-                = fpn
head             = predictor
head.{0,2}       = predictor.{tower,score}
head.1           = -
"""


def batch(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {"x": rng.standard_normal((2, 3, 16, 16)).astype(np.float32)}
