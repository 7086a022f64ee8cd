"""A dueling Q network with a frozen target network of the same class: gradients for one copy only; huber loss on
chosen actions.
"""

import numpy as np

MAP = """
online                = policy
online.body           = policy.trunk
online.body.{0,2}     = policy.trunk.{0,2}
online.body.{1,3}     = policy.trunk.{1,3}
online.value          = policy.v
online.advantage      = policy.a
target                = frozen
target.body           = frozen.trunk
target.body.{0,2}     = frozen.trunk.{0,2}
target.body.{1,3}     = frozen.trunk.{1,3}
target.value          = frozen.v
target.advantage      = frozen.a
"""


def batch(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {
        "state": rng.standard_normal((7, 6)).astype(np.float32),
        "after": rng.standard_normal((7, 6)).astype(np.float32),
        "action": rng.integers(0, 3, (7, 1)),
        "reward": rng.standard_normal((7, 1)).astype(np.float32),
    }
