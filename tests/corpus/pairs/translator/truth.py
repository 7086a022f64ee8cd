"""Encoder, decoder and cross attention from the frameworks' own layers: names differ, attention is inside the
framework on both sides.
"""

import numpy as np

MAP = """
.                       = .
source                  = src_embed
target                  = tgt_embed
encoder                 = enc
encoder.self_attn       = enc.self_attn
encoder.self_attn.out_proj ? enc.self_attn.out_proj
encoder.linear1         = enc.dense1
encoder.linear2         = enc.dense2
encoder.{norm1,norm2}   = enc.{norm1,norm2}
encoder.{dropout,dropout1,dropout2} = enc.{dropout,dropout1,dropout2}
decoder                 = dec
decoder.self_attn       = dec.self_attn
decoder.multihead_attn  = dec.multihead_attn
decoder.{self_attn,multihead_attn}.out_proj ? dec.{self_attn,multihead_attn}.out_proj
decoder.linear1         = dec.dense1
decoder.linear2         = dec.dense2
decoder.{norm1,norm2,norm3} = dec.{norm1,norm2,norm3}
decoder.{dropout,dropout1,dropout2,dropout3} = dec.{dropout,dropout1,dropout2,dropout3}
words                   = generator
"""


def batch(rng: np.random.Generator) -> dict[str, np.ndarray]:
    target = rng.integers(0, 20, (3, 7))
    future = np.triu(np.full((6, 6), -1e9, np.float32), 1)
    return {"source": rng.integers(0, 18, (3, 5)), "given": target[:, :-1], "wanted": target[:, 1:], "future": future}
