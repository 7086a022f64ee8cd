"""A variational autoencoder: one layer for mean and variance here, two there; the noise comes with the batch."""

import numpy as np

MAP = """
.                      = .
encode                 = -
encode.0               = enc
encode.1               = -
encode.2               = -
-                      = mu
-                      = logvar
decode                 = decoder
decode.{0,1,2}         = decoder.{0,1,2}
encode.2.weight[0:4]   ~ mu.weight
encode.2.weight[4:8]   ~ logvar.weight
encode.2.bias[0:4]     ~ mu.bias
encode.2.bias[4:8]     ~ logvar.bias
"""


def batch(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {"x": rng.random((8, 14)).astype(np.float32), "noise": rng.standard_normal((8, 4)).astype(np.float32)}
