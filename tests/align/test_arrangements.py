"""How one tensor lies on another where shapes leave a choice: by the flow of data, and by values where they are kept."""

import numpy as np
import pytest
from nets import softmax
from sides import Maker, names, noise, slots

from twintrace.align import align
from twintrace.model.pairs import Layout, Part

LONG = 6


def keys(framework: str, *, turned: bool, kept: bool = False, marks: bool = True, off: float = 0.0, rest: bool = True):
    """Queries and keys as long as they are wide; `turned` transposes the keys before the product takes them."""
    made = Maker(framework, kept=kept, marks=marks)
    q, k = (made.given(noise(2, LONG, LONG, seed=seed)) for seed in (1, 2))
    q = made.call(f"{framework}.tanh", [q], np.tanh(q.array) + off)
    k = made.call(f"{framework}.sin", [k], np.sin(k.array) + off)
    scores = q.array @ k.array.transpose(0, 2, 1)
    if turned:
        k = made.call(f"{framework}.Tensor.transpose", [k, 1, 2], np.ascontiguousarray(k.array.transpose(0, 2, 1)))
        s = made.call(f"{framework}.matmul", [q, k], scores)
        s = made.call(f"{framework}.softmax", [s], softmax(scores))
    else:
        s = made.call(f"{framework}.nn.functional.scaled_dot_product_attention", [q, k], softmax(scores))
    if rest:
        made.call(f"{framework}.relu", [s], np.maximum(s.array, 0))
    return made


def layouts(left: Maker, right: Maker, part: Part = Part.INPUT) -> dict[str, Layout]:
    found = align(left.side(), right.side())
    return {
        f"{match.left[0].site.name.rpartition('.')[2]}:{pair.left_slot}": pair.layout
        for match in found.matches
        for pair in match.tensors
        if pair.part is part
    }


def test_square_keys_that_one_side_transposes():
    """The transpose is looked at, not the values."""
    left, right = keys("torch", turned=False), keys("mindspore", turned=True)
    found = layouts(left, right)

    assert found["scaled_dot_product_attention:1"] == Layout((0, 2, 1))
    assert found["scaled_dot_product_attention:0"] == Layout()
    assert not left.asked
    assert not right.asked


def test_after_the_runs_have_parted_the_transpose_belongs_to_the_region():
    """No value tells, and nothing comes after it that is known: what takes the same tensors is one region."""
    left, right = keys("torch", turned=False), keys("mindspore", turned=True, off=0.5)
    found = align(left.side(), right.side())

    assert names(found)["torch.nn.functional.scaled_dot_product_attention#0"] == (
        "mindspore.Tensor.transpose#0 + mindspore.matmul#0 + mindspore.softmax#0"
    )
    assert names(found)["torch.relu#0"] == "mindspore.relu#0"
    assert slots(found, "torch.nn.functional.scaled_dot_product_attention#0", Part.INPUT) == {
        "0": "matmul#0:0",
        "1": "transpose#0:0",
    }


def test_so_it_is_the_other_way_round():
    found = layouts(keys("torch", turned=True), keys("mindspore", turned=False))

    assert found["matmul:matmul#0:1"] == Layout((0, 2, 1))


def weights(framework: str, *, turned: bool, kept: bool, marks: bool = True):
    """A square weight, as it is or transposed, that no call has made."""
    made = Maker(framework, kept=kept, marks=marks)
    x, w = made.given(noise(4, LONG)), noise(LONG, LONG, seed=5)
    held = made.parameter(np.ascontiguousarray(w.T) if turned else w)
    y = made.call(f"{framework}.nn.functional.linear", [x, held], x.array @ w.T)
    made.call(f"{framework}.relu", [y], np.maximum(y.array, 0))
    return made


@pytest.mark.parametrize("turned", [False, True])
def test_a_square_weight_is_laid_by_its_values(turned):
    """Without fingerprints nothing but the values tells."""
    left = weights("torch", turned=False, kept=True, marks=False)
    right = weights("mindspore", turned=turned, kept=True, marks=False)

    assert layouts(left, right)["linear:1"] == (Layout((1, 0)) if turned else Layout())
    assert left.asked == [1]


def test_where_no_values_are_kept_nothing_is_guessed():
    left = weights("torch", turned=False, kept=False, marks=False)
    right = weights("mindspore", turned=True, kept=False, marks=False)

    assert layouts(left, right)["linear:1"] == Layout()


def test_values_are_read_only_where_shapes_leave_a_choice():
    """Equal bits, other axes, results of one operation on what lies as it is: none of them is opened."""
    left, right = (Maker(framework, kept=True) for framework in ("torch", "mindspore"))
    for made, rounding in ((left, 0.0), (right, 1e-6)):
        x = made.given(noise(LONG, LONG))
        y = made.call(f"{made.framework}.tanh", [x], (np.tanh(x.array) + rounding).astype(np.float32))
        y = made.call(f"{made.framework}.exp", [y], np.exp(y.array))
        made.call(f"{made.framework}.sum", [y, 1], y.array.sum(1))
    align(left.side(), right.side())

    assert not left.asked
    assert not right.asked


def test_a_wrong_softmax_does_not_turn_its_result():
    """A softmax over another axis of a square matrix: its result lies as it is, and differs."""
    left, right = (Maker(framework, kept=True) for framework in ("torch", "mindspore"))
    x = noise(LONG, LONG)
    x = ((x + x.T) / 2).astype(np.float32)  # of a symmetric matrix the other softmax is the transposed one
    for made in (left, right):
        y = made.call(f"{made.framework}.tanh", [made.given(x)], np.tanh(x))
        made.call(f"{made.framework}.softmax", [y], softmax(y.array) if made is left else softmax(y.array.T).T)

    assert layouts(left, right, Part.OUTPUT)["softmax:"] == Layout()


@pytest.mark.parametrize("heads", [LONG, 3])
def test_pieces_with_as_many_heads_as_positions(heads):
    """A split gives `[b, t, h·d]`, an unbind `[b, h, t, d]`: one is no reshape of the other, and only values say so if t is h."""
    wide = 4
    sides = []
    for way in (0, 1):
        made = Maker("torch", kept=True)
        x = made.given(noise(2, LONG, 2 * heads * wide))
        y = made.call("torch.tanh", [x], np.tanh(x.array))
        if way:
            z = y.array.reshape(2, LONG, 2, heads, wide)
            view = made.call("torch.Tensor.reshape", [y, 2, LONG, 2, heads, wide], z)
            z = np.ascontiguousarray(z.transpose(2, 0, 3, 1, 4))
            turned = made.call("torch.Tensor.permute", [view, 2, 0, 3, 1, 4], z)
            pieces = made.call("torch.Tensor.unbind", [turned, 0], tuple(z))
        else:
            pieces = made.call("torch.Tensor.split", [y, heads * wide, -1], tuple(np.split(y.array, 2, -1)))
            shapes = [piece.array.reshape(2, LONG, heads, wide) for piece in pieces]
            views = [
                made.call("torch.Tensor.view", [piece, *z.shape], z) for piece, z in zip(pieces, shapes, strict=True)
            ]
            pieces = [
                made.call(
                    "torch.Tensor.transpose", [view, 1, 2], np.ascontiguousarray(view.array.transpose(0, 2, 1, 3))
                )
                for view in views
            ]
        made.call("torch.mul", list(pieces), pieces[0].array * pieces[1].array)
        sides.append(made.side())
    found = align(*sides)

    laid = {
        (pair.left, pair.right): pair.layout
        for match in found.matches
        for pair in match.tensors
        if pair.part in (Part.INPUT, Part.OUTPUT) and not pair.part.backward
    }
    for (left, right), layout in laid.items():
        array = sides[1].values(right)
        array = array if layout.axes is None else array.transpose(layout.axes)
        ours = sides[0].values(left)
        np.testing.assert_allclose(ours, array.reshape(ours.shape) if layout.reshaped else array, rtol=1e-5)
