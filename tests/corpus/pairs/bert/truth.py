"""A masked language model: gathered positions, a decoder tied to the embedding, attention masks added here and
filled there; three embeddings.
"""

import numpy as np

MAP = """
.                                    = .
embeddings                           = -
embeddings.word                      = word_emb
embeddings.position                  ? pos_emb
embeddings.segment                   = seg_emb
embeddings.norm                      = emb_ln
layer.{0,1}                          = encoder.{0,1}
layer.{0,1}.attention                = encoder.{0,1}.attn
layer.{0,1}.attention.query          = encoder.{0,1}.attn.query
layer.{0,1}.attention.key            = encoder.{0,1}.attn.key
layer.{0,1}.attention.value          = encoder.{0,1}.attn.value
layer.{0,1}.attention.output         = encoder.{0,1}.attn.dense
layer.{0,1}.attention_norm           = encoder.{0,1}.attn_ln
layer.{0,1}.intermediate             = encoder.{0,1}.inter
layer.{0,1}.output                   = encoder.{0,1}.out
layer.{0,1}.norm                     = encoder.{0,1}.out_ln
transform                            = mlm_dense
transform_norm                       = mlm_ln
bias                                 ~ mlm_bias
"""


def batch(rng: np.random.Generator) -> dict[str, np.ndarray]:
    keep = np.ones((2, 8), np.float32)
    keep[1, 6:] = 0
    return {
        "ids": rng.integers(0, 25, (2, 8)),
        "segments": np.tile(np.array([0, 0, 0, 0, 1, 1, 1, 1]), (2, 1)),
        "keep": keep,
        "where": np.array([[1, 5], [0, 3]]),
        "wanted": rng.integers(0, 25, (2, 2)),
    }
