"""Transformer encoder: PyTorch's own layers, with their fused attention, beside layers written out; one matrix for
q, k, v beside three.
"""

import numpy as np

MAP = """
.                                      = .
encoder                                = -
encoder.layers.{0,1}                   = layers.{0,1}
encoder.layers.{0,1}.self_attn         = layers.{0,1}.attn
-                                      = layers.{0,1}.attn.wq
-                                      = layers.{0,1}.attn.wk
-                                      = layers.{0,1}.attn.wv
encoder.layers.{0,1}.self_attn.out_proj ? layers.{0,1}.attn.wo
encoder.layers.{0,1}.dropout           = -
encoder.layers.{0,1}.dropout1          = -
encoder.layers.{0,1}.dropout2          = -
encoder.layers.{0,1}.linear1           = layers.{0,1}.mlp.up
encoder.layers.{0,1}.linear2           = layers.{0,1}.mlp.down | layers.{0,1}.mlp
encoder.layers.{0,1}.norm1             = layers.{0,1}.ln1
encoder.layers.{0,1}.norm2             = layers.{0,1}.ln2
pool                                   = head
encoder.layers.{0,1}.self_attn.in_proj_weight[0:16]   ~ layers.{0,1}.attn.wq.weight
encoder.layers.{0,1}.self_attn.in_proj_weight[16:32]  ~ layers.{0,1}.attn.wk.weight
encoder.layers.{0,1}.self_attn.in_proj_weight[32:48]  ~ layers.{0,1}.attn.wv.weight
encoder.layers.{0,1}.self_attn.in_proj_bias[0:16]     ~ layers.{0,1}.attn.wq.bias
encoder.layers.{0,1}.self_attn.in_proj_bias[16:32]    ~ layers.{0,1}.attn.wk.bias
encoder.layers.{0,1}.self_attn.in_proj_bias[32:48]    ~ layers.{0,1}.attn.wv.bias
"""


def batch(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {"x": rng.standard_normal((3, 7, 16)).astype(np.float32), "y": rng.integers(0, 5, 3)}
