"""Who makes and who uses a value."""

from sides import Maker, alone, names, noise

from twintrace.align import align
from twintrace.align.pairing import Pairing
from twintrace.align.trees import CallTree


def test_a_value_that_is_marked_after_it_was_made_has_the_same_makers_and_users():
    """`requires_grad_`, or the end of an autograd function: the same value under another number, made by the same call."""
    maker = Maker("torch")
    x = maker.call("torch.randn", [], noise(3, 4))
    maker.call("torch.Tensor.abs", [x], abs(x.array))
    marked = maker._tensor(x.array, producer=0, held=True)
    maker.call("torch.sin", [marked], noise(3, 4, seed=1))
    given = maker.given(x.array)
    maker.call("torch.cos", [given], noise(3, 4, seed=2))
    pairing = Pairing(CallTree(maker.side()), CallTree(maker.side()))
    for number in (x.number, marked.number):
        assert (pairing.flow(0).makers[number], pairing.flow(0).users[number]) == ([0], [1, 2])
    assert given.number not in pairing.flow(0).makers, "equal values that nobody has made are no such thing"


def scaled_norm(factor: float | None):
    """An embedding, perhaps scaled, and the mean of its squares; both sides have it as their only product."""
    made = Maker("torch")
    x = made.given(noise(4, 8))
    if factor is not None:
        x = made.call("torch.mul", [x, factor], x.array * factor)
    square = made.call("torch.mul", [x, x], x.array * x.array)
    made.call("torch.mean", [square], square.array.mean(-1))
    return made.side()


def test_a_square_is_no_product_with_a_number():
    """Both take the embedding; the one that scales it is alone."""
    found = align(scaled_norm(5.0), scaled_norm(None))

    assert names(found)["torch.mul#1"] == "torch.mul#0"
    assert alone(found, skipped=False) == (["torch.mul#0"], [])


def test_tensors_of_alike_statistics_in_other_places_are_shuffled():
    maker, other = Maker("torch", ordered=True), Maker("torch", ordered=True)
    array = noise(6, 50)
    one = maker.given(array)
    moved, same, turned = (other.given(item) for item in (array[::-1].copy(), array.copy(), array.T.copy()))
    pairing = Pairing(CallTree(maker.side()), CallTree(other.side()))
    assert pairing.is_shuffled(one.number, moved.number)
    assert not pairing.is_shuffled(one.number, same.number)
    assert not pairing.is_shuffled(one.number, turned.number), "another shape may be another layout"
