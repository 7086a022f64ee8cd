"""A generator and a critic, each with its own loss and backward pass: a module called three times, gradients that
come twice.
"""

import numpy as np

MAP = """
generator         = g
generator.{0,2,4} = g.{fc1,fc2,fc3}
generator.{1,3,5} = -
critic            = d
critic.body       = -
critic.body.{0,2} = d.{a,b}
critic.body.{1,3} = -
critic.verdict    = d.out
"""


def batch(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {
        "real": np.tanh(rng.standard_normal((6, 12))).astype(np.float32),
        "noise": rng.standard_normal((6, 5)).astype(np.float32),
        "noise2": rng.standard_normal((6, 5)).astype(np.float32),
    }
