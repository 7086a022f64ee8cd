"""A small vision transformer: patches by a strided convolution here, by cutting and a dense layer there; pre-norm
blocks.
"""

import numpy as np

MAP = """
.                         = .
patch                     ? cut
patch.weight              ~ cut.proj.weight
patch.bias                ~ cut.proj.bias
-                         = cut.proj
blocks                    = -
blocks.{0,1}              = {first,last}
blocks.{0,1}.norm1        = {first,last}.pre
blocks.{0,1}.attn         = {first,last}.mha
blocks.{0,1}.attn.out_proj ? {first,last}.mha.out
-                         = {first,last}.mha.qkv
blocks.{0,1}.norm2        = {first,last}.post
blocks.{0,1}.fc1          = {first,last}.ff.0
-                         = {first,last}.ff.1
blocks.{0,1}.fc2          = {first,last}.ff.2 | {first,last}.ff
norm                      = norm
head                      = head
blocks.{0,1}.attn.in_proj_weight  ~ {first,last}.mha.qkv.weight
blocks.{0,1}.attn.in_proj_bias    ~ {first,last}.mha.qkv.bias
cls                       ~ class_token
pos                       ~ positions
"""


def batch(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {"images": rng.standard_normal((3, 3, 12, 12)).astype(np.float32), "labels": rng.integers(0, 6, 3)}
