"""An MLP-Mixer: tokens and channels take turns, with transposes around the token part; a shared MLP class with other
names inside.
"""

import numpy as np

MAP = """
.                          = .
patches                    = embed
layers.{0,1}               = blocks.{0,1}
layers.{0,1}.norm1         = blocks.{0,1}.norm_t
layers.{0,1}.token         = blocks.{0,1}.tokens
layers.{0,1}.norm2         = blocks.{0,1}.norm_c
layers.{0,1}.channel       = blocks.{0,1}.channels
layers.{0,1}.token.fc1     = blocks.{0,1}.tokens.0
layers.{0,1}.token.fc2     = blocks.{0,1}.tokens.2
layers.{0,1}.channel.fc1   = blocks.{0,1}.channels.0
layers.{0,1}.channel.fc2   = blocks.{0,1}.channels.2
-                          = blocks.{0,1}.tokens.1
-                          = blocks.{0,1}.channels.1
norm                       = norm
head                       = head
"""


def batch(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {"images": rng.standard_normal((2, 3, 12, 12)).astype(np.float32), "labels": rng.integers(0, 5, 2)}
