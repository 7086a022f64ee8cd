"""Who makes and who uses a value."""

from sides import Maker, noise

from twintrace.align.strands import Strand
from twintrace.align.webs import Web


def test_a_value_that_is_marked_after_it_was_made_has_the_same_makers_and_users():
    """`requires_grad_`, or the end of an autograd function: the same value under another number, made by the same call."""
    maker = Maker("torch")
    x = maker.call("torch.randn", [], noise(3, 4))
    maker.call("torch.Tensor.abs", [x], abs(x.array))
    marked = maker._tensor(x.array, producer=0, held=True)
    maker.call("torch.sin", [marked], noise(3, 4, seed=1))
    given = maker.given(x.array)
    maker.call("torch.cos", [given], noise(3, 4, seed=2))
    web = Web(Strand(maker.side()), Strand(maker.side()))
    for number in (x.number, marked.number):
        assert (web.flow(0).makers[number], web.flow(0).users[number]) == ([0], [1, 2])
    assert given.number not in web.flow(0).makers, "equal values that nobody has made are no such thing"
