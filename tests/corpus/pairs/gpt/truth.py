"""A causal decoder: fused attention with is_causal beside scores, mask and softmax; output tied to the embedding;
half the nesting.
"""

import numpy as np

MAP = """
.                            = .
wte                          = token
wpe                          = position
blocks.{0,1}                 = layers.{0,1}
blocks.{0,1}.ln_1            = layers.{0,1}.norm_a
blocks.{0,1}.attn            = -
blocks.{0,1}.attn.c_attn     = layers.{0,1}.qkv
blocks.{0,1}.attn.c_proj     = layers.{0,1}.merge
blocks.{0,1}.ln_2            = layers.{0,1}.norm_b
blocks.{0,1}.mlp             = -
blocks.{0,1}.mlp.c_fc        = layers.{0,1}.wide
blocks.{0,1}.mlp.c_proj      = layers.{0,1}.narrow
ln_f                         = last_norm
"""


def batch(rng: np.random.Generator) -> dict[str, np.ndarray]:
    ids = rng.integers(0, 24, (2, 10))
    return {"ids": ids[:, :-1].copy(), "next": ids[:, 1:].copy()}
