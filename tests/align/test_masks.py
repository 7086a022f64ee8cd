"""Masks: their fill values hide what is between them, and all layers take them."""

import numpy as np
import pytest
from nets import softmax, weight
from sides import Maker, alone, names, noise, slots

from twintrace.align import align
from twintrace.align.values import Fill, alike, fill_of
from twintrace.model.pairs import Part

LONG, WIDTH = 5, 8
KEEP = np.tril(np.ones((LONG, LONG), bool))


def tensor(array: np.ndarray, framework: str = "torch"):
    made = Maker(framework)
    return made.tensors[made.given(np.asarray(array, np.float32)).number]


@pytest.mark.parametrize("fill", [-1e4, -65504.0, -1e9, -3.4028235e38])
def test_a_mask_is_known_from_masked_scores(fill):
    mask = tensor(np.where(KEEP, 0, fill))
    scores = [tensor(np.where(KEEP, noise(LONG, LONG, seed=seed), fill)) for seed in (1, 2)]

    assert fill_of(mask.statistics, LONG * LONG) is Fill.PURE
    assert fill_of(scores[0].statistics, LONG * LONG) is Fill.MIXED
    assert alike(mask, tensor(np.where(KEEP, 0, fill * 0.9999999))) > 0
    assert alike(mask, scores[0]) == -1
    assert alike(*scores) == 0


@pytest.mark.parametrize("array", [noise(40, 40) * 900, np.arange(5000.0), np.where(KEEP, 1, -0.999e3)])
def test_large_numbers_are_no_fill_values(array):
    known = tensor(array).statistics

    assert fill_of(known, np.size(array)) is Fill.NONE


def layers(framework: str, *, fused: bool, off: float = 0.0):
    """Two layers of attention that take one mask; each side makes it in its own way."""
    made = Maker(framework)
    x = made.given(noise(LONG, WIDTH))
    ones = made.call(f"{framework}.ones", [LONG, LONG], np.ones((LONG, LONG), np.float32))
    bias = np.where(KEEP, 0, -1e4).astype(np.float32)
    if fused:
        mask = made.call(f"{framework}.tril", [ones], KEEP)
    else:
        mask = made.call(f"{framework}.triu", [ones], bias / -1e4)
        mask = made.call(f"{framework}.mul", [mask, -1e4], bias)
    for number in range(2):
        w = made.parameter(weight(60 + number, WIDTH, WIDTH))
        q = made.call(f"{framework}.nn.functional.linear", [x, w], x.array @ w.array.T)
        scores = q.array @ q.array.T + bias + off * noise(LONG, LONG)
        result = softmax(scores) @ q.array
        if fused:
            x = made.call(f"{framework}.nn.functional.scaled_dot_product_attention", [q, q, q, mask], result)
        else:
            y = made.call(f"{framework}.matmul", [q, q], q.array @ q.array.T)
            y = made.call(f"{framework}.add", [y, mask], scores)
            x = made.call(f"{framework}.matmul", [made.call(f"{framework}.softmax", [y], softmax(scores)), q], result)
    made.call(f"{framework}.nn.functional.linear", [x, made.parameter(weight(62))], x.array @ weight(62).T)
    return made.side()


@pytest.mark.parametrize("off", [0.0, 1.0])
def test_each_layer_is_a_region_of_its_own_although_both_take_one_mask(off):
    """Equal results, and results that differ."""
    found = align(layers("torch", fused=True), layers("mindspore", fused=False, off=off))

    for number in range(2):
        assert names(found)[f"torch.nn.functional.scaled_dot_product_attention#{number}"] == " + ".join(
            f"mindspore.{name}"
            for name in (f"matmul#{2 * number}", f"add#{number}", f"softmax#{number}", f"matmul#{2 * number + 1}")
        )
        region = slots(found, f"torch.nn.functional.scaled_dot_product_attention#{number}", Part.OUTPUT)
        assert region == {"": f"matmul#{2 * number + 1}:"}
    assert "mindspore.triu#0" in alone(found)[1]


def written(framework: str, *, lost: bool):
    """A value that is written in place, and comes in again under another number as if no call had made it."""
    made = Maker(framework)
    x = made.given(noise(4, WIDTH))
    y = made.call(f"{framework}.tanh", [x], np.tanh(x.array))
    y = made.call(f"{framework}.mul_", [y, 3.0], 3 * y.array)
    if lost:
        y = made.given(y.array)
    z = made.call(f"{framework}.exp", [y], np.exp(y.array))
    made.call(f"{framework}.relu", [z], np.maximum(z.array, 0))
    return made.side()


def test_a_value_that_comes_in_again_is_known_by_its_bits():
    """So the call that made it is not without consequence."""
    made = Maker("mindspore")
    made.call("mindspore.exp", [made.given(3 * np.tanh(noise(4, WIDTH)))], np.exp(3 * np.tanh(noise(4, WIDTH))))
    found = align(written("torch", lost=True), made.side())
    lone = {item.call.site.name: item for item in found.only_left}

    assert lone["torch.mul_"].takers


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "f8e4m3fn"])
def test_a_mask_of_truth_values_is_no_mask_of_numbers(dtype):
    """In bf16, too, whose name begins as that of truth values does."""
    from twintrace.align.evidence import kind
    from twintrace.model.tensors import Spec, Tensor

    kinds = {name: kind(Tensor(0, Spec(name, (2,)))) for name in (dtype, "b8", "i64", "u8", "c64")}
    assert kinds[dtype] not in (kinds["b8"], kinds["i64"], kinds["c64"])
    assert kinds["i64"] == kinds["u8"] != kinds["b8"]
    assert kinds[dtype] == kind(Tensor(0, Spec("f64", (2,))))
