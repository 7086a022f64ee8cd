"""A graph network: neighbours gathered and added up by index here, by a dense adjacency matrix there."""

import numpy as np

MAP = """
.                  = .
conv{1,2}          = gc{1,2}
conv{1,2}.own      = gc{1,2}.self_weight
conv{1,2}.others   = gc{1,2}.neighbour_weight
read               = readout
"""


def batch(rng: np.random.Generator) -> dict[str, np.ndarray]:
    edges = np.array([(a, b) for a in range(9) for b in range(9) if a != b and rng.random() < 0.35]).T
    adjacency = np.zeros((9, 9), np.float32)
    adjacency[edges[1], edges[0]] = 1
    return {
        "nodes": rng.standard_normal((9, 5)).astype(np.float32),
        "edges": np.ascontiguousarray(edges),
        "adjacency": adjacency,
        "labels": rng.integers(0, 3, 9),
    }
