"""Sequence to sequence with additive attention: an encoder layer, a decoder in a loop that looks at all encoder
states each time.
"""

import numpy as np

MAP = """
.               = .
source          = embed_src
target          = embed_tgt
encoder         = enc
-               = enc.rnn
attend          = attention
attend.query    = attention.wq
attend.keys     = attention.wk
attend.score    = attention.v
decoder         = dec_cell
words           = project
"""


def batch(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {
        "source": rng.integers(0, 20, (3, 6)),
        "given": rng.integers(0, 16, (3, 4)),
        "wanted": rng.integers(0, 16, (3, 4)),
    }
