"""Convolutions with group norm and SiLU, as diffusion models have them: the time embedding is added in the middle of
a block.
"""

import numpy as np

MAP = """
.                        = .
time                     = temb
time.{0,2}               = temb.{fc_in,fc_out}
time.1                   = -
enter                    = conv_in
blocks.{0,1}             = {block_a,block_b}
blocks.{0,1}.norm1       = {block_a,block_b}.gn1
blocks.{0,1}.conv1       = {block_a,block_b}.conv1
blocks.{0,1}.shift       = {block_a,block_b}.time_proj
blocks.{0,1}.norm2       = {block_a,block_b}.gn2
blocks.{0,1}.conv2       = {block_a,block_b}.conv2
norm                     = gn_out
leave                    = conv_out
-                        = act
-                        = {block_a,block_b}.silu
"""


def batch(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {
        "noisy": rng.standard_normal((2, 3, 8, 8)).astype(np.float32),
        "t": rng.random((2, 6)).astype(np.float32),
        "noise": rng.standard_normal((2, 3, 8, 8)).astype(np.float32),
    }
