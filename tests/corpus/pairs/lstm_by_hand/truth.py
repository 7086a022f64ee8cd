"""An LSTM layer here, its cell unrolled by hand there: gates in one matrix on the left, four layers of their own on
the right.
"""

import numpy as np

MAP = """
.                        = .
lstm                     = cell_loop
-                        = cell_loop.{x_in,x_forget,x_cell,x_out}
-                        = cell_loop.{h_in,h_forget,h_cell,h_out}
read                     = readout
lstm.weight_ih_l0[0:6]   ~ cell_loop.x_in.weight
lstm.weight_ih_l0[6:12]  ~ cell_loop.x_forget.weight
lstm.weight_ih_l0[12:18] ~ cell_loop.x_cell.weight
lstm.weight_ih_l0[18:24] ~ cell_loop.x_out.weight
lstm.weight_hh_l0[0:6]   ~ cell_loop.h_in.weight
lstm.weight_hh_l0[6:12]  ~ cell_loop.h_forget.weight
lstm.weight_hh_l0[12:18] ~ cell_loop.h_cell.weight
lstm.weight_hh_l0[18:24] ~ cell_loop.h_out.weight
lstm.bias_ih_l0[0:6]     ~ cell_loop.x_in.bias
lstm.bias_ih_l0[6:12]    ~ cell_loop.x_forget.bias
lstm.bias_ih_l0[12:18]   ~ cell_loop.x_cell.bias
lstm.bias_ih_l0[18:24]   ~ cell_loop.x_out.bias
lstm.bias_hh_l0[0:6]     ~ cell_loop.h_in.bias
lstm.bias_hh_l0[6:12]    ~ cell_loop.h_forget.bias
lstm.bias_hh_l0[12:18]   ~ cell_loop.h_cell.bias
lstm.bias_hh_l0[18:24]   ~ cell_loop.h_out.bias
"""


def batch(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {
        "series": rng.standard_normal((3, 4, 5)).astype(np.float32),
        "next": rng.standard_normal((3, 2)).astype(np.float32),
    }
