"""A decoder with RMS norm, rotary positions and a gated feed-forward part: fused gate and up projections there,
casts around the norm here.
"""

import numpy as np

MAP = """
.                            = .
embed                        = tok_embeddings
layers.{0,1}                 = layers.{0,1}
layers.{0,1}.input_norm      = layers.{0,1}.attention_norm
layers.{0,1}.attn            = layers.{0,1}.attention
layers.{0,1}.attn.q          = layers.{0,1}.attention.wq
layers.{0,1}.attn.k          = layers.{0,1}.attention.wk
layers.{0,1}.attn.v          = layers.{0,1}.attention.wv
layers.{0,1}.attn.o          = layers.{0,1}.attention.wo
layers.{0,1}.post_norm       = layers.{0,1}.ffn_norm
layers.{0,1}.mlp             = -
layers.{0,1}.mlp.gate_up     = -
-                            = layers.{0,1}.w_gate
-                            = layers.{0,1}.w_up
layers.{0,1}.mlp.down        = layers.{0,1}.w_down
norm                         = norm
lm_head                      = output
layers.{0,1}.mlp.gate_up.weight[0:24]   ~ layers.{0,1}.w_gate.weight
layers.{0,1}.mlp.gate_up.weight[24:48]  ~ layers.{0,1}.w_up.weight
"""


def batch(rng: np.random.Generator) -> dict[str, np.ndarray]:
    ids = rng.integers(0, 30, (2, 9))
    angles = np.outer(np.arange(8), 100.0 ** -np.linspace(0, 1, 2, endpoint=False))
    both = np.concatenate([angles, angles], axis=1).astype(np.float32)
    return {"ids": ids[:, :-1], "next": ids[:, 1:], "cos": np.cos(both), "sin": np.sin(both)}
