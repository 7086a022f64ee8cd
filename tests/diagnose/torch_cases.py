"""Real runs of PyTorch in which something is not finite: where it is made, and why; and runs in which nothing is to blame."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from twintrace.model.nonfinite import Pass, Source

INF = float("inf")


@dataclass(frozen=True)
class Case:
    """A computation, the call to blame in it (the end of its name), and the cause."""

    run: Callable[[], object]
    call: str
    source: Source
    when: Pass = Pass.FORWARD
    says: str = ""


def leaf(*values, dtype=torch.float32):
    return torch.tensor(values, dtype=dtype, requires_grad=dtype.is_floating_point)


def overflow_in_f16():
    x = torch.full((4, 8), 300.0, dtype=torch.float16)
    (x @ x.t()).float().mean()


def overflow_of_a_cast():
    (torch.full((4,), 1e5).half() * 2).sum()


def overflow_under_autocast():
    x, w = torch.full((4, 64), 200.0), torch.full((64, 64), 200.0)
    with torch.autocast("cpu", dtype=torch.float16):
        F.linear(x, w).sum()


def overflow_of_exp():
    torch.exp(torch.tensor([1.0, 100.0])).sum()


def division_by_zero():
    (torch.ones(3) / torch.tensor([1.0, 0.0, 2.0])).sum()


def zero_by_zero():
    x = torch.tensor([1.0, 0.0])
    (x / x).mean()


def in_place_division():
    x = torch.ones(3)
    y = x.view(3)
    y.div_(torch.tensor([1.0, 0.0, 1.0]))
    (x * 2).sum()


def division_by_a_number():
    (torch.ones(3) / 0).sum()


def log_of_zero():
    (torch.tensor([0.0, 0.5]).log() * 2).mean()


def log_of_a_negative_number():
    torch.log(torch.tensor([-0.1, 0.5])).mean()


def root_of_a_negative_number():
    torch.sqrt(torch.tensor([-1e-7, 4.0])).sum()


def power_of_a_negative_number():
    (torch.tensor([-2.0, 1.0]) ** 0.5).sum()


def arc_cosine_above_one():
    torch.acos(torch.tensor([1.0000001, 0.2])).sum()


def softmax_of_a_masked_row():
    scores = torch.randn(2, 4, 4).masked_fill(torch.ones(4, 4, dtype=torch.bool), -INF)
    (F.softmax(scores, -1) @ torch.ones(4, 4)).sum()


def mask_times_infinity():
    mask = torch.tensor([1.0, 0.0])
    (torch.randn(2) + (1 - mask) * -INF).softmax(0).sum()


def infinity_minus_infinity():
    scores = torch.tensor([1.0, -INF])
    (scores - scores.amin()).sum()


def loss_of_a_masked_class():
    scores = torch.randn(2, 5).masked_fill(torch.tensor([False, True, False, False, False]), -INF)
    F.cross_entropy(scores, torch.tensor([1, 2]))


def sum_of_masked_scores():
    torch.randn(2, 5).masked_fill(torch.tensor([False, True, False, False, False]), -INF).sum()


def every_target_ignored():
    F.cross_entropy(torch.randn(2, 5), torch.tensor([-100, -100]))


def variance_of_one():
    torch.randn(1, 4).var(0).sum()


def mean_of_nothing():
    torch.randn(4)[:0].mean() * 2


def norm_without_epsilon():
    F.layer_norm(torch.ones(2, 4), (4,), eps=0.0).sum()


def data_with_nan():
    F.linear(torch.from_numpy(np.array([[1.0, np.nan]], np.float32)), torch.ones(2, 2)).sum()


def root_at_zero():
    leaf(0.0, 4.0).sqrt().sum().backward()


def norm_by_hand_at_zero():
    x = leaf(0.0, 0.0)
    (x * x).sum().sqrt().backward()


def log_behind_a_where():
    x = leaf(0.0, 2.0)
    torch.where(x > 0, x.log(), torch.zeros(())).sum().backward()


def power_at_zero():
    (leaf(0.0, 1.0) ** 0.5).sum().backward()


def gradient_overflow_in_f16():
    x = leaf(1.0, 2.0, dtype=torch.float16)
    (x.mul(torch.tensor([1000.0, 1.0], dtype=torch.float16)).float() * 1000.0).sum().backward()


CASES = {
    case.run.__name__: case
    for case in (
        Case(overflow_in_f16, "matmul", Source.OVERFLOW, says="65504"),
        Case(overflow_of_a_cast, "half", Source.OVERFLOW, says="1e+05|100000"),
        Case(overflow_under_autocast, "linear", Source.OVERFLOW, says="autocast"),
        Case(overflow_of_exp, "exp", Source.OVERFLOW, says="exp of 100"),
        Case(division_by_zero, "div", Source.DIVISION, says="1 of 3"),
        Case(zero_by_zero, "div", Source.DIVISION, says="zero divided by zero"),
        Case(in_place_division, "div_", Source.DIVISION, says="1 of 3"),
        Case(division_by_a_number, "div", Source.DIVISION, says="the divisor is 0"),
        Case(log_of_zero, "log", Source.LOGARITHM, says="log of zero: 1 of 2"),
        Case(log_of_a_negative_number, "log", Source.LOGARITHM, says="-0.1"),
        Case(root_of_a_negative_number, "sqrt", Source.ROOT, says="-1e-07"),
        Case(power_of_a_negative_number, "__pow__", Source.ROOT, says="-2"),
        Case(arc_cosine_above_one, "acos", Source.DOMAIN, says="acos"),
        Case(softmax_of_a_masked_row, "softmax", Source.MASKED, says="rows have 4"),
        Case(mask_times_infinity, "mul", Source.ZERO_TIMES, says="zero times infinity"),
        Case(infinity_minus_infinity, "sub", Source.CANCELLED, says="infinity minus infinity"),
        Case(loss_of_a_masked_class, "cross_entropy", Source.PASSED_ON, says="masked_fill"),
        Case(sum_of_masked_scores, "sum", Source.PASSED_ON, says="masked_fill"),
        Case(every_target_ignored, "cross_entropy", Source.EMPTY, says="ignore_index"),
        Case(variance_of_one, "var", Source.EMPTY, says="correction 1"),
        Case(mean_of_nothing, "mean", Source.EMPTY, says="empty"),
        Case(norm_without_epsilon, "layer_norm", Source.DIVISION, says="epsilon"),
        Case(data_with_nan, "linear", Source.DATA, says="not finite when it comes in"),
        Case(root_at_zero, "sqrt", Source.SLOPE, Pass.BACKWARD, says="1 of 2"),
        Case(norm_by_hand_at_zero, "sqrt", Source.SLOPE, Pass.BACKWARD),
        Case(log_behind_a_where, "log", Source.SLOPE, Pass.BACKWARD, says="gradient of 0"),
        Case(power_at_zero, "__pow__", Source.SLOPE, Pass.BACKWARD, says="x\\^0.5"),
        Case(gradient_overflow_in_f16, "mul", Source.OVERFLOW, Pass.BACKWARD, says="f16 ends at 65504"),
    )
}


def mask_and_softmax():
    causal = torch.ones(4, 4, dtype=torch.bool).triu(1)
    x = torch.randn(2, 4, 4, requires_grad=True)
    scores = (x @ x.transpose(-1, -2)).masked_fill(causal, -INF)
    scores.softmax(-1).sum().backward()


def added_mask():
    mask = torch.full((4, 4), -INF).triu(1)
    x = torch.randn(2, 2, 4, 4, requires_grad=True)
    ((x + mask[None, None]) / 2).softmax(-1).sum().backward()


def mask_written_by_index():
    scores = torch.randn(4, 4)
    scores[torch.ones(4, 4).triu(1).bool()] = -INF
    scores.log_softmax(-1).exp().sum()


def mask_in_place():
    scores = torch.randn(4, 4)
    scores.masked_fill_(torch.ones(4, 4).triu(1).bool(), -INF)
    scores.softmax(-1).sum()


def logarithm_of_a_mask():
    mask = torch.ones(4, 4).tril()
    (torch.randn(4, 4) + mask.log()).softmax(-1).sum()


def where_with_infinity():
    torch.where(torch.eye(3).bool(), torch.randn(3, 3), torch.tensor(-INF)).amax(-1).sum()


def smallest_so_far():
    best = torch.full((3,), INF)
    torch.minimum(best, torch.randn(3)).sum()


def one_over_infinity():
    (1 / (torch.ones(2) / torch.tensor([0.0, 1.0])) + 1).sum()


def nan_that_is_replaced():
    (torch.zeros(2) / torch.tensor([0.0, 1.0])).nan_to_num(0.0).sum()


def masked_rows_that_are_zeroed():
    x = torch.randn(2, 3, requires_grad=True)
    empty = torch.tensor([[True], [False]])
    x.masked_fill(empty, -INF).softmax(-1).masked_fill(empty, 0.0).sum().backward()


def deviation_of_a_constant():
    leaf(1.0, 1.0, 1.0).std().backward()  # PyTorch divides 0 by 0, and puts 0 there


def fused_attention():
    q = torch.randn(1, 1, 4, 8, requires_grad=True)
    mask = torch.full((4, 4), -INF).triu(1)
    F.scaled_dot_product_attention(q, q, q, attn_mask=mask).sum().backward()


def finite():
    x = torch.randn(3, requires_grad=True)
    x.exp().log().sum().backward()


def asked_for_nan():
    x = torch.randn(4)
    assert not torch.isnan(x).any()
    x.sum()


HARMLESS = (
    mask_and_softmax, added_mask, mask_written_by_index, mask_in_place, logarithm_of_a_mask, where_with_infinity, smallest_so_far,
    one_over_infinity, nan_that_is_replaced, masked_rows_that_are_zeroed, deviation_of_a_constant, fused_attention, finite,
    asked_for_nan,
)  # fmt: skip
