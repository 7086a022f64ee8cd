"""Inverted residuals with squeeze-and-excite: 1×1 convolutions here, dense layers on pooled channels there;
activations written out.
"""

import numpy as np

MAP = """
.                        = .
stem                     = -
stem.{0,1}               = {stem_conv,stem_bn}
stem.2                   = -
blocks.{0,1}             = {first,second}
blocks.{0,1}.expand      = {first,second}.pw
blocks.{0,1}.bn1         = {first,second}.pw_bn
blocks.{0,1}.act         = {first,second}.hswish
blocks.{0,1}.depthwise   = {first,second}.dw
blocks.{0,1}.bn2         = {first,second}.dw_bn
blocks.{0,1}.se          = {first,second}.excite
blocks.{0,1}.se.squeeze  = {first,second}.excite.reduce
blocks.{0,1}.se.relu     = -
blocks.{0,1}.se.excite   = {first,second}.excite.grow
blocks.{0,1}.se.gate     = {first,second}.excite.hsigmoid
blocks.{0,1}.project     = {first,second}.pw_linear
blocks.{0,1}.bn3         = {first,second}.pw_linear_bn
classifier               = head
"""


def batch(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {"image": rng.standard_normal((4, 3, 16, 16)).astype(np.float32), "label": rng.integers(0, 5, 4)}
