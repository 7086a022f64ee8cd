"""After a mistake has changed a shape: the two shapes are a pair, and what comes after them is paired all the same."""

import numpy as np
import pytest
from nets import relu, weight
from sides import Maker, alone, names, noise, slots

from twintrace.align import align
from twintrace.model.pairs import Part


def pooled(framework: str, size: int, *, last: bool = True):
    """A convolution, a pool that leaves `size`, an activation, another convolution."""
    made = Maker(framework)
    x = made.given(noise(1, 3, 9, 9))
    y = made.call(f"{framework}.conv2d", [x, made.parameter(weight(50, 4, 27))], noise(1, 4, 8, 8, seed=1))
    y = made.call(f"{framework}.max_pool2d", [y, 2], noise(1, 4, size, size, seed=2))
    y = made.call(f"{framework}.tanh", [y], np.tanh(y.array))
    if last:
        w = made.parameter(weight(51, 4, 36))
        y = made.call(f"{framework}.conv2d", [y, w], noise(1, 4, size - 1, size - 1, seed=3))
        made.call(f"{framework}.relu", [y], relu(y.array))
    return made.side()


@pytest.mark.parametrize("last", [True, False])
def test_pairing_goes_on_after_another_shape(last):
    found = align(pooled("torch", 4, last=last), pooled("mindspore", 3, last=last))

    assert all(left.replace("torch", "mindspore") == right for left, right in names(found).items())
    assert alone(found) == ([], [])
    assert slots(found, "torch.max_pool2d#0") == {"0": "0", "": ""}
    assert slots(found, "torch.tanh#0") == {"0": "0", "": ""}
    if last:
        assert slots(found, "torch.conv2d#1") == {"0": "0", "1": "1", "": ""}


def sliced(framework: str, *rows: slice):
    made = Maker(framework)
    x = made.call(f"{framework}.tanh", [made.given(noise(8, 3))], np.tanh(noise(8, 3)))
    for row in rows:
        y = made.call(f"{framework}.getitem", [x], x.array[row])
        made.call(f"{framework}.relu", [y], relu(y.array))
    return made.side()


def test_other_slices_of_one_tensor_are_other_things():
    """Which of the two was meant is not known; where there is one on each side, it is."""
    several = align(
        sliced("torch", slice(0, 2), slice(2, 8)), sliced("mindspore", slice(0, 3), slice(3, 7), slice(7, 8))
    )
    one = align(sliced("torch", slice(0, 3)), sliced("mindspore", slice(0, 5)))

    assert [left for left in names(several) if "getitem" in left] == []
    assert names(one)["torch.getitem#0"] == "mindspore.getitem#0"


def positions(framework: str, *, repeated: bool):
    """Positions are added to a batch: once, or repeated for each."""
    made = Maker(framework)
    x = made.given(noise(3, 5, 4))
    table = made.parameter(noise(9, 4, seed=4))
    rows = table.array[:5]
    y = made.call(f"{framework}.embedding", [table], np.stack([rows] * 3) if repeated else rows)
    z = made.call(f"{framework}.add", [x, y], x.array + rows)
    made.call(f"{framework}.relu", [z], relu(z.array))
    return made.side()


def test_what_is_repeated_for_each_of_a_batch_is_no_other_shape():
    """The sums are the same: two shapes that are told as a difference would be a false alarm."""
    found = align(positions("torch", repeated=True), positions("mindspore", repeated=False))

    assert slots(found, "torch.embedding#0", Part.OUTPUT) == {}
    assert slots(found, "torch.add#0", Part.OUTPUT) == {"": ""}


def losses(framework: str, labels: np.ndarray, *, cut: bool = False, loss: float = 1.234567):
    made = Maker(framework)
    x, known = made.given(noise(6, 5)), made.given(np.arange(6) % 5)
    z = made.call(f"{framework}.tanh", [x], np.tanh(x.array))
    if cut:
        z = made.call(f"{framework}.getitem", [z], z.array[:-1])
    y = made.call(f"{framework}.roll", [known], labels)
    made.call(f"{framework}.mul", [known, 2], 2 * known.array)
    made.call(f"{framework}.nn.functional.cross_entropy", [z, y], np.array(loss, np.float32))
    return made.side()


@pytest.mark.parametrize("cut", [True, False])
def test_the_only_candidate_is_a_pair_although_its_labels_are_others(cut):
    labels = np.arange(6) % 5
    left = losses("torch", labels[1:] if cut else np.roll(labels, 1), cut=cut)
    right = losses("mindspore", labels, loss=1.345678)

    assert names(align(left, right))["torch.nn.functional.cross_entropy#0"] == "mindspore.nn.functional.cross_entropy#0"


def test_a_stray_operand_says_what_it_is():
    left, right = Maker("torch"), Maker("mindspore")
    for made in (left, right):
        x, w, b = made.given(noise(4, 8)), made.parameter(weight(0)), made.parameter(weight(9)[0])
        given = [x, w, b] if made is left else [x, w]
        y = made.call(f"{made.framework}.nn.functional.linear", given, x.array @ w.array.T + (made is left) * b.array)
        made.call(f"{made.framework}.relu", [y], relu(y.array))
    (match, *_) = align(left.side(), right.side()).matches

    assert [(stray.part, stray.role) for stray in match.only_left] == [(Part.INPUT, "bias")]


def test_the_last_operands_of_both_sides_are_a_pair():
    """An argument that no call made and nothing else fits: under another name, with other values."""
    left, right = Maker("torch"), Maker("mindspore")
    for made, name, seed in ((left, "table", 1), (right, "offsets", 2)):
        x = made.given(noise(4, 8))
        y = made.call(f"{made.framework}.tanh", [x], np.tanh(x.array))
        z = made.call(
            f"{made.framework}.lerp", [y], noise(4, 8, seed=5 + seed), **{name: made.given(noise(8, seed=seed))}
        )
        made.call(f"{made.framework}.relu", [z], relu(z.array))

    assert slots(align(left.side(), right.side()), "torch.lerp#0")["kw.table"] == "kw.offsets"
