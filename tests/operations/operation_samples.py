"""Arguments for the kernel of every operation, and for its other modes: numbers that want a gradient."""

import math

import torch

from twintrace.operations.catalog import OPERATIONS
from twintrace.operations.kernels import KERNELS


def positive(*shape):
    return torch.rand(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 0.8 + 0.1


def whole(*shape, below=3):
    return torch.randint(below, shape, generator=torch.Generator().manual_seed(0))


IMAGE = {"input": positive(2, 4, 6, 6)}
WINDOW = {"kernel_size": (2, 2), "stride": (2, 2), "padding": ((0, 0), (0, 0)), "dilation": (1, 1), "ceil_mode": (0, 0)}
CONV = {
    "stride": (1, 1),
    "padding": ((0, 0), (0, 0)),
    "dilation": (1, 1),
    "groups": 1,
    "output_padding": (0, 0),
    "bias": None,
}
BITS = dict.fromkeys(("input", "other"), whole(3, 4))
GATES = {"hx": positive(3, 5), "w_hh": positive(15, 5), "w_ih": positive(15, 4)}
RECURRENT = {
    "input": positive(6, 2, 4), "has_biases": False, "num_layers": 1, "dropout": 0.0, "train": False, "bidirectional": False,
    "batch_first": False,
}  # fmt: skip
LOGITS = {"input": positive(3, 4), "target": whole(3)}
PLACES = {"dim": 1, "index": whole(3, 4), "src": positive(3, 4), "source": positive(3, 4)}
SIZE = {"size": (2, 3), "dtype": "f32"}
ALONG = [
    "max_dim",
    "min_dim",
    "median_dim",
    "softmax",
    "softmin",
    "log_softmax",
    "cumsum",
    "cumprod",
    "logcumsumexp",
    "cummax",
    "cummin",
]
OVER = ["logsumexp", "prod", "all", "any", "var", "std", "var_mean", "std_mean", "vector_norm"]
BITWISE = [
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "bitwise_left_shift",
    "bitwise_right_shift",
    "gcd",
    "lcm",
    "bitwise_not",
]
LSTM_LAYER = {
    "input": positive(6, 2, 4), "w_ih": positive(20, 4), "w_hh": positive(20, 5), "b_ih": positive(20), "b_hh": positive(20),
    "h": positive(2, 5), "c": positive(2, 5), "reverse": False,
}  # fmt: skip
# Arguments that the drawn ones (two matrices, whatever they are called) do not stand for.
ARGUMENTS = {
    **{name: {"dim": (1,)} for name in OVER},
    **{name: {"dim": 1} for name in ALONG},
    **{name: {"training": False} for name in ("dropout", "feature_dropout", "alpha_dropout")},
    **dict.fromkeys(BITWISE, BITS),
    "cast": {"dtype": "f32"}, "where": {"condition": positive(3, 4) > 0.5}, "threshold": {"threshold": 0.5, "value": 0.25},
    "complex": {"real": positive(3, 4), "imag": positive(3, 4)}, "polar": {"abs": positive(3, 4), "angle": positive(3, 4)},
    "view_as_real": {"input": torch.complex(positive(3, 4), positive(3, 4))}, "view_as_complex": {"input": positive(3, 2)},
    "imag": {"input": torch.complex(positive(3, 4), positive(3, 4))}, "acosh": {"input": positive(3, 4) + 1},
    "atanh": {"input": positive(3, 4) / 2}, "prelu": {"weight": positive(1)}, "matmul": {"other": positive(4, 3)},
    "kthvalue": {"k": 2, "dim": 1}, "quantile": {"q": 0.5}, "topk": {"k": 2, "dim": 1}, "bincount": {"input": whole(9)},
    "searchsorted": {"sorted_sequence": positive(4).sort()[0]}, "bucketize": {"boundaries": positive(4).sort()[0]},
    "linear": {"weight": positive(5, 4)}, "bias_add": {"bias": positive(4)}, "add_all": {"tensors": (positive(3), positive(3))},
    "bilinear": {"weight": positive(5, 4, 4)}, "addmm": {"mat1": positive(3, 2), "mat2": positive(2, 4)},
    "addbmm": {"batch1": positive(2, 3, 2), "batch2": positive(2, 2, 4)}, "addr": {"vec1": positive(3), "vec2": positive(4)},
    "einsum": {"equation": "ij,kj->ik", "operands": (positive(3, 4), positive(3, 4))}, "tensordot": {"dims": ((1,), (1,))},
    "outer": {"input": positive(3), "other": positive(4)}, "cross": {"input": positive(3, 3), "other": positive(3, 3)},
    "conv": IMAGE | CONV | {"weight": positive(5, 4, 3, 3)}, "conv_transpose": IMAGE | CONV | {"weight": positive(4, 5, 3, 3)},
    "max_pool": IMAGE | WINDOW, "lp_pool": IMAGE | WINDOW | {"norm_type": 2.0, "ceil_mode": False},
    "avg_pool": IMAGE | WINDOW | {"count_include_pad": True, "divisor_override": None},
    "adaptive_avg_pool": IMAGE | {"output_size": (2, 2)}, "adaptive_max_pool": IMAGE | {"output_size": (2, 2)},
    "unfold": IMAGE | {"kernel_size": (2, 2), "dilation": (1, 1), "padding": (0, 0), "stride": (1, 1)},
    "fold": {
        "input": positive(2, 4, 4), "output_size": (4, 4), "kernel_size": (2, 2), "dilation": (1, 1), "padding": (0, 0),
        "stride": (2, 2),
    },
    "multi_head_attention": {
        "query": positive(3, 2, 4), "key": positive(3, 2, 4), "value": positive(3, 2, 4), "in_proj": positive(12, 4),
        "in_proj_bias": None, "out_proj_weight": positive(4, 4), "out_proj_bias": None, "num_heads": 2, "attn_mask": None,
        "key_padding_mask": None, "bias_k": None, "bias_v": None, "add_zero_attn": False, "dropout_p": 0.0, "training": False,
        "need_weights": False, "average_attn_weights": True, "batch_first": False,
    },
    "attention_backward": {
        **{name: positive(1, 2, 3, 4) for name in ("grad_out", "query", "key", "value")}, "dropout_p": 0.0, "is_causal": False,
        "scale": 0.5,
    },
    "scaled_dot_product_attention": {"scale": 0.5}, "batch_norm": {"training": True}, "instance_norm": IMAGE,
    "weight_norm": {"g": positive(3, 1)}, "layer_norm": {"normalized_shape": (4,)}, "group_norm": IMAGE | {"num_groups": 2},
    "rms_norm": {"normalized_shape": (4,), "eps": 1e-6}, "local_response_norm": IMAGE | {"size": 3},
    "l2_normalize": {"dim": (1,), "eps": 1e-6}, "renorm": {"p": 2.0, "dim": 0, "maxnorm": 0.5},
    "cross_entropy": LOGITS, "nll_loss": LOGITS, "multi_margin_loss": LOGITS, "multilabel_margin_loss": {"target": whole(3, 4)},
    "ctc_loss": {
        "log_probs": positive(6, 2, 4).log_softmax(-1), "targets": whole(2, 2) + 1, "input_lengths": torch.tensor([6, 6]),
        "target_lengths": torch.tensor([2, 2]),
    },
    "soft_margin_loss": {"target": whole(3, 4)},
    "cosine_embedding_loss": {"target": torch.ones(3)}, "dice_loss": {"smooth": 1.0}, "reshape": {"shape": (4, 3)},
    "permute": {"dims": (1, 0)}, "expand": {"size": (2, 3, 4)}, "tile": {"dims": (2, 1)}, "getitem": {"index": (0,)},
    "setitem": {"index": (0,), "value": 1.0}, "split": {"sizes": (1, 2)}, "gather": PLACES, "scatter": PLACES,
    "cat": {"tensors": (positive(3), positive(3))}, "stack": {"tensors": (positive(3), positive(3))},
    "scatter_add": PLACES, "scatter_reduce": PLACES | {"reduce": "sum"}, "index_add": PLACES | {"index": torch.arange(4)},
    "index_copy": PLACES | {"index": torch.arange(4)}, "index_fill": {"dim": 1, "index": whole(2), "value": 1.0},
    "index_put": {"indices": (whole(2),), "values": positive(2, 4)}, "index_select": {"dim": 1, "index": whole(2)},
    "gather_nd": {"indices": whole(2, 1)}, "take": {"index": whole(2)}, "embedding": {"input": whole(3), "weight": positive(3, 4)},
    "embedding_bag": {"input": whole(3, 2), "weight": positive(3, 4)}, "one_hot": {"input": whole(3), "num_classes": 3},
    "masked_fill": {"mask": positive(3, 4) > 0.5, "value": 1.0}, "masked_select": {"mask": positive(3, 4) > 0.5},
    "masked_scatter": {"mask": positive(3, 4) > 0.5}, "fill": {"value": 1.0}, "flip": {"dims": (1,)}, "roll": {"shifts": 1},
    "pad": {"pad": (1, 1)}, "repeat_interleave": {"repeats": 2}, "pixel_shuffle": IMAGE | {"upscale_factor": 2},
    "pixel_unshuffle": IMAGE | {"downscale_factor": 2}, "channel_shuffle": IMAGE | {"groups": 2},
    "depth_to_space": IMAGE | {"block_size": 2}, "space_to_depth": IMAGE | {"block_size": 2},
    "mirror_pad": {"paddings": ((1, 1), (1, 1)), "mode": "REFLECT"}, "fill_diagonal": {"value": 1.0},
    "meshgrid": {"tensors": (positive(3), positive(3))}, "broadcast_tensors": {"tensors": (positive(3), positive(3))},
    "multi_dot": {"tensors": (positive(3, 4), positive(4, 3))}, "interpolate": IMAGE | {"size": (12, 12), "scales": (2.0, 2.0)},
    "grid_sample": IMAGE | {"grid": positive(2, 3, 3, 2)}, "affine_grid": {"theta": positive(2, 2, 3), "size": (2, 1, 3, 3)},
    "unfold_axis": {"dim": 1, "size": 2, "step": 1}, "zeros": SIZE, "ones": SIZE, "full": SIZE | {"fill_value": 1.0},
    "arange": {"start": 0, "end": 3, "step": 1, "dtype": "f32"}, "linspace": {"start": 0, "end": 1, "steps": 3, "dtype": "f32"},
    "eye": {"n": 3, "m": 3, "dtype": "f32"}, "tensor": {"data": (1.0, 2.0), "dtype": "f32"},
    "swiglu": {"dim": 1}, "glu": {"dim": 1}, "lstm": RECURRENT | {"hx": None, "params": (positive(20, 4), positive(20, 5))},
    "gru": RECURRENT | {"hx": None, "params": (positive(15, 4), positive(15, 5))},
    "rnn": RECURRENT | {"hx": None, "params": (positive(5, 4), positive(5, 5)), "nonlinearity": "tanh"},
    "lstm_cell": {"hx": (positive(3, 5), positive(3, 5)), "w_ih": positive(20, 4), "w_hh": positive(20, 5)},
    "gru_cell": GATES, "rnn_cell": {"hx": positive(3, 5), "w_ih": positive(5, 4), "w_hh": positive(5, 5)},
    "flat_lstm": {
        "h": positive(1, 2, 5), "c": positive(1, 2, 5), "input": positive(6, 2, 4), "weight": positive(200, 1, 1),
        "input_size": 4, "hidden_size": 5, "has_bias": True,
    },
    "lstm_layer": LSTM_LAYER, "lstm_layer_backward": LSTM_LAYER | {"grad_out": positive(6, 2, 5), "grad_h": None, "grad_c": None},
}  # fmt: skip


def results_of(name, **more):
    """Results of a kernel for numbers that all want a gradient."""
    given = {}
    known = ARGUMENTS.get(name, {}) | more
    for parameter in OPERATIONS[name].parameters:
        if parameter.name in known:
            given[parameter.name] = wanted(known[parameter.name])
        elif not parameter.required:
            given[parameter.name] = parameter.default
        else:
            given[parameter.name] = wanted(positive(3, 4))
    result = KERNELS[name](**given)
    parts = result.values() if isinstance(result, dict) else result if isinstance(result, tuple | list) else [result]
    return [part for part in parts if isinstance(part, torch.Tensor)]


def is_differentiable(parts):
    """Can autograd go back through one of these results?"""
    for part in parts:
        if part.requires_grad:
            try:
                part.abs().sum().backward(retain_graph=True)
            except (RuntimeError, NotImplementedError):
                continue
            return True
    return False


def wanted(value):
    if isinstance(value, tuple):
        return tuple(map(wanted, value))
    number = isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())
    return value.clone().requires_grad_() if number else value


def spatial(axes, **more):
    """An image of so many axes, and a window for it."""
    given = {"input": positive(2, 4, *[6] * axes)}
    return {**given, **{name: value(axes) if callable(value) else value for name, value in more.items()}}


WINDOWS = {
    "kernel_size": lambda axes: (2,) * axes, "stride": lambda axes: (1,) * axes, "padding": lambda axes: ((0, 0),) * axes,
    "dilation": lambda axes: (1,) * axes, "ceil_mode": lambda axes: (0,) * axes,
}  # fmt: skip
MODES = [("nearest", 1), ("nearest", 2), ("nearest", 3), ("nearest-exact", 1), ("nearest-exact", 2), ("nearest-exact", 3),
         ("linear", 1), ("bilinear", 2), ("bicubic", 2), ("trilinear", 3), ("area", 2)]  # fmt: skip
VARIANTS = [
    *[("max_pool", spatial(axes, **WINDOWS)) for axes in (1, 2, 3)],
    *[("avg_pool", spatial(axes, **WINDOWS, count_include_pad=True, divisor_override=None)) for axes in (1, 2, 3)],
    *[("adaptive_avg_pool", spatial(axes, output_size=lambda axes: (4,) * axes)) for axes in (1, 2, 3)],
    *[("adaptive_max_pool", spatial(axes, output_size=lambda axes: (4,) * axes)) for axes in (1, 2, 3)],
    *[
        ("conv", CONV | spatial(axes, weight=lambda axes: positive(5, 4, *[3] * axes))
         | {"stride": (2,) * axes, "padding": ((1, 1),) * axes, "dilation": (1,) * axes, "output_padding": (0,) * axes})
        for axes in (1, 2, 3)
    ],
    *[
        ("conv_transpose", CONV | spatial(axes, weight=lambda axes: positive(4, 5, *[3] * axes))
         | {"stride": (2,) * axes, "padding": ((1, 1),) * axes, "dilation": (1,) * axes, "output_padding": (1,) * axes})
        for axes in (1, 2, 3)
    ],
    *[("interpolate", spatial(axes, size=lambda axes: (9,) * axes, scales=(1.5,) * axes, mode=mode)) for mode, axes in MODES],
    *[
        ("pad", spatial(axes, pad=lambda axes: (1, 2) * axes, mode=mode))
        for mode in ("constant", "reflect", "replicate", "circular") for axes in (1, 2, 3)
    ],
    *[("scatter_reduce", PLACES | {"reduce": reduce, "include_self": own}) for reduce in ("sum", "mean", "prod", "amax", "amin")
      for own in (True, False)],
    *[("embedding_bag", {"mode": mode}) for mode in ("sum", "mean", "max")],
    ("embedding_bag", {"mode": "sum", "per_sample_weights": positive(3, 2)}),
    ("embedding_bag", {"input": whole(7), "offsets": torch.tensor([0, 3, 3]), "mode": "mean", "padding_idx": 1}),
    *[("grid_sample", {"mode": mode, "padding_mode": padding}) for mode in ("bilinear", "nearest", "bicubic")
      for padding in ("zeros", "border", "reflection")],
    ("grid_sample", {"input": positive(2, 3, 4, 4, 4), "grid": positive(2, 3, 3, 3, 3)}),
    ("affine_grid", {"theta": positive(2, 3, 4), "size": (2, 1, 3, 4, 5)}),
    *[("cdist", {"x1": positive(rows, 4), "x2": positive(rows + 1, 4), "p": p}) for rows in (3, 30)
      for p in (1.0, 2.0, 3.0, math.inf)],
    *[("quantile", {"interpolation": how, "dim": dim}) for how in ("linear", "lower", "higher", "midpoint", "nearest")
      for dim in (None, 1)],
    ("quantile", {"q": torch.tensor([0.2, 0.7], dtype=torch.float64), "dim": 0, "keepdim": True}),
    *[("vector_norm", {"ord": order, "dim": (1,)}) for order in (1, 2, 3.5, math.inf, -math.inf)],
    *[("gelu", {"approximate": how}) for how in ("none", "tanh")],
    *[(name, {"reduction": how}) for name in ("mse_loss", "cross_entropy", "kl_div", "binary_cross_entropy", "huber_loss")
      for how in ("none", "sum")],
    ("cross_entropy", {"label_smoothing": 0.2}),
    ("cross_entropy", {"input": positive(3, 4, 5), "target": whole(3, 5)}),
    ("scaled_dot_product_attention", {"is_causal": True}),
    ("scaled_dot_product_attention", {"attn_mask": positive(3, 3) > 0.3}),
    ("batch_norm", {"training": False, "running_mean": positive(4), "running_var": positive(4)}),
    *[(name, RECURRENT | ARGUMENTS[name] | {"bidirectional": True, "params": ARGUMENTS[name]["params"] * 2})
      for name in ("lstm", "gru", "rnn")],
    ("gru", RECURRENT | ARGUMENTS["gru"] | {"batch_first": True}), ("lstm", RECURRENT | ARGUMENTS["lstm"] | {"batch_first": True}),
    ("pow", {"other": 3}), ("pow", {"other": 0.5}), ("div", {"other": 3.0}), ("cumprod", {"dim": 0}),
    ("index_put", {"indices": (whole(2),), "values": positive(2, 4), "accumulate": True}),
    ("repeat_interleave", {"repeats": torch.tensor([1, 2, 0]), "dim": 0}), ("renorm", {"p": 1.0}),
]  # fmt: skip
"""Further arguments: other numbers of axes, modes, reductions."""
