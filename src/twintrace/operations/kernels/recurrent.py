"""Recurrent layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .registry import KERNELS, Kernel, Random, Result, kernel


def _recurrent(function: Kernel, states: int) -> Kernel:
    """PyTorch's kernel, which reads beyond parameters and states that are too few, behind a check of their number."""

    def call(
        input: Tensor,
        hx: Any,
        params: Sequence[Tensor],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> Result:
        if train and dropout > 0 and num_layers > 1:
            raise Random("dropout between the layers draws its masks")
        rows = num_layers * (2 if bidirectional else 1)
        one = 4 if has_biases else 2
        if len(params) not in (rows * one, rows * (one + 1)):  # + 1: projections
            raise ValueError(f"{len(params)} parameters for {rows} layers and directions")
        if hx is None:
            shape = (
                (rows, params[1].shape[1])
                if input.dim() == 2
                else (rows, input.shape[0 if batch_first else 1], params[1].shape[1])
            )
            hx = (input.new_zeros(shape),) * states
        single = isinstance(hx, tuple) and states == 1
        state = tuple(hx) if states > 1 else hx[0] if single else hx
        if any(item.shape[0] != rows for item in (state if states > 1 else (state,))):
            raise ValueError(f"a state of another number than {rows} layers and directions")
        return function(input, state, list(params), has_biases, num_layers, 0.0, train, bidirectional, batch_first)

    return call


KERNELS["lstm"] = _recurrent(torch.lstm, 2)
KERNELS["gru"] = _recurrent(torch.gru, 1)


@kernel("rnn")
def _rnn(nonlinearity: str, **arguments: Any) -> Result:
    return _recurrent(torch.rnn_tanh if nonlinearity == "tanh" else torch.rnn_relu, 1)(**arguments)


@kernel("flat_lstm")
def _flat_lstm(
    input: Tensor, h: Tensor, c: Tensor, weight: Tensor, input_size: int, hidden_size: int, has_bias: bool
) -> Result:
    """One layer, all parameters in one row: input weights, hidden weights, one bias."""
    gates = 4 * hidden_size
    flat = weight.reshape(-1)
    cuts = [gates * input_size, gates * hidden_size] + ([gates] if has_bias else [])
    w_ih, w_hh, *bias = torch.split(flat, cuts)
    params = [w_ih.reshape(gates, input_size), w_hh.reshape(gates, hidden_size)]
    params += [bias[0], torch.zeros_like(bias[0])] if has_bias else []
    return torch.lstm(input, (h, c), params, has_bias, 1, 0.0, False, False, False)


@kernel("lstm_layer")
def _lstm_layer(
    input: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor, h: Tensor, c: Tensor, reverse: bool
) -> Result:
    """One layer in one direction, time first; `reverse` reads from the last step to the first."""
    x = input.flip(0) if reverse else input
    state = h.reshape(1, *h.shape[-2:]), c.reshape(1, *c.shape[-2:])
    output, last_h, last_c = torch.lstm(x, state, [w_ih, w_hh, b_ih, b_hh], True, 1, 0.0, False, False, False)
    return output.flip(0) if reverse else output, last_h.reshape(h.shape), last_c.reshape(c.shape)


@kernel("lstm_layer_backward")
def _lstm_layer_backward(
    input: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor,
    b_hh: Tensor,
    h: Tensor,
    c: Tensor,
    grad_out: Tensor | None,
    grad_h: Tensor | None,
    grad_c: Tensor | None,
    reverse: bool,
) -> Result:
    """Gradients of input, weights, biases and states of `lstm_layer`, step by step. PyTorch's kernel reads a workspace instead."""
    x, sent = (item.flip(0) if reverse and item is not None else item for item in (input, grad_out))
    assert x is not None
    before, after, bias = (h.reshape(h.shape[-2:]), c.reshape(c.shape[-2:])), [], b_ih + b_hh
    hidden, cell = before
    for row in x.unbind(0):
        i, f, g, o = (row @ w_ih.t() + hidden @ w_hh.t() + bias).chunk(4, -1)
        i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
        following = f * cell + i * g
        bounded = following.tanh()
        after.append((hidden, cell, i, f, g, o, bounded))
        hidden, cell = o * bounded, following
    d_hidden, d_cell = (
        torch.zeros_like(own) if given is None else given.reshape(own.shape)
        for own, given in zip(before, (grad_h, grad_c), strict=True)
    )
    gates = []
    for step, (_, cell, i, f, g, o, bounded) in reversed([*enumerate(after)]):
        d_hidden = d_hidden if sent is None else d_hidden + sent[step]
        d_cell = d_cell + d_hidden * o * (1 - bounded * bounded)
        d_i, d_f, d_g, d_o = d_cell * g, d_cell * cell, d_cell * i, d_hidden * bounded
        d_gates = [d_i * i * (1 - i), d_f * f * (1 - f), d_g * (1 - g * g), d_o * o * (1 - o)]
        gates.append(torch.cat(d_gates, -1))
        d_hidden, d_cell = gates[-1] @ w_hh, d_cell * f
    d_gates_of_all = torch.stack(gates[::-1])
    d_input, flat = d_gates_of_all @ w_ih, d_gates_of_all.flatten(0, 1)
    d_bias = flat.sum(0)
    d_w_hh = flat.t() @ torch.stack([hidden for hidden, *_ in after]).flatten(0, 1)
    weights = flat.t() @ x.flatten(0, 1), d_w_hh, d_bias, d_bias
    return d_input.flip(0) if reverse else d_input, *weights, d_hidden.reshape(h.shape), d_cell.reshape(c.shape)


@kernel("lstm_cell")
def _lstm_cell(input: Tensor, hx: Any, w_ih: Tensor, w_hh: Tensor, b_ih: Any, b_hh: Any) -> Result:
    hx = (_no_state(input, w_hh),) * 2 if hx is None else tuple(hx)
    return torch.lstm_cell(input, hx, w_ih, w_hh, b_ih, b_hh)


@kernel("gru_cell")
def _gru_cell(input: Tensor, hx: Any, w_ih: Tensor, w_hh: Tensor, b_ih: Any, b_hh: Any) -> Result:
    return torch.gru_cell(input, _no_state(input, w_hh) if hx is None else hx, w_ih, w_hh, b_ih, b_hh)


@kernel("rnn_cell")
def _rnn_cell(input: Tensor, hx: Any, w_ih: Tensor, w_hh: Tensor, b_ih: Any, b_hh: Any, nonlinearity: str) -> Result:
    function = torch.rnn_tanh_cell if nonlinearity == "tanh" else torch.rnn_relu_cell
    return function(input, _no_state(input, w_hh) if hx is None else hx, w_ih, w_hh, b_ih, b_hh)


def _no_state(input: Tensor, w_hh: Tensor) -> Tensor:
    """The state that a cell begins with: zeros."""
    return input.new_zeros((*input.shape[:-1], w_hh.shape[1]))
