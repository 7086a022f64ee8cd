"""Click-through rate: embeddings of fields in one table with offsets here, a table for each field there; a bag of
words on one side.
"""

import numpy as np

MAP = """
.              = .
fields         = -
bag            = -
-              = tables.{0,1,2}
-              = words
deep           = -
deep.{0,2,4}   = {fc1,fc2,fc3}
deep.{1,3}     = -
linear         = wide
fields.weight[0:10]  ~ tables.0.embedding_table
fields.weight[10:17] ~ tables.1.embedding_table
fields.weight[17:20] ~ tables.2.embedding_table
bag.weight     ~ words.embedding_table
"""


def batch(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {
        "fields": np.stack([rng.integers(0, n, 12) for n in (10, 7, 3)], axis=1),
        "words": rng.integers(0, 15, (12, 4)),
        "numbers": rng.random((12, 3)).astype(np.float32),
        "clicked": rng.integers(0, 2, 12).astype(np.float32),
    }
