"""A U-Net: transposed convolutions, skips joined along the channels; double convolutions as a module here, as two
Cells each there.
"""

import numpy as np

MAP = """
.            = .
down1 | down1.net    = enc1
down2 | down2.net    = enc2
middle | middle.net  = bridge
up2 | up2.net        = dec2
up1 | up1.net        = dec1
down1.net.{0,1,3,4}    = enc1.{conv_a,bn_a,conv_b,bn_b}
down2.net.{0,1,3,4}    = enc2.{conv_a,bn_a,conv_b,bn_b}
middle.net.{0,1,3,4}   = bridge.{conv_a,bn_a,conv_b,bn_b}
up2.net.{0,1,3,4}      = dec2.{conv_a,bn_a,conv_b,bn_b}
up1.net.{0,1,3,4}      = dec1.{conv_a,bn_a,conv_b,bn_b}
{down1,down2,middle,up2,up1}.net.2  = -
{down1,down2,middle,up2,up1}.net.5  = -
pool         = shrink
grow{2,1}    = expand{2,1}
mask         = final
"""


def batch(rng: np.random.Generator) -> dict[str, np.ndarray]:
    mask = rng.integers(0, 2, (2, 1, 16, 16)).astype(np.float32)
    return {"scan": rng.standard_normal((2, 1, 16, 16)).astype(np.float32), "mask": mask}
