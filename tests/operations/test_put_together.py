"""Tensors of several ranks joined to one, and one cut into theirs: values, gradients, and what is recomputed of them."""

import pytest

torch = pytest.importorskip("torch")

from twintrace.model.records import Call  # noqa: E402
from twintrace.model.sites import Kind, Site  # noqa: E402
from twintrace.model.tensors import Spec  # noqa: E402
from twintrace.model.values import Nest, TensorRef, Value  # noqa: E402
from twintrace.operations import meaning_of  # noqa: E402
from twintrace.operations.evaluation import run  # noqa: E402

pytestmark = pytest.mark.needs_torch
WHOLE = torch.arange(24, dtype=torch.float64).reshape(6, 4)


def nest(value) -> Value:
    if isinstance(value, tuple | list):
        return Nest("tuple", tuple((str(place), nest(item)) for place, item in enumerate(value)))
    return value


def joined(tensors, steps):
    args = (Nest("list", tuple((str(place), TensorRef(place)) for place in range(len(tensors)))),)
    call = Call(0, Site(Kind.API, "twintrace.joined", 0), None, args, {"steps": nest(steps)}, TensorRef(99))
    meaning = meaning_of(call, "mindspore", lambda number: Spec("f32", tuple(tensors[0].shape)))
    return run([meaning], lambda number: tensors[number])[99]


def pieces_of(whole, pieces, **more):
    output = Nest("list", tuple((str(place), TensorRef(10 + place)) for place in range(len(pieces))))
    call = Call(0, Site(Kind.API, "twintrace.cut", 0), None, (TensorRef(0),), {"pieces": nest(pieces), **more}, output)
    meaning = meaning_of(call, "torch", lambda number: Spec("f32", tuple(whole.shape)))
    found = run([meaning], lambda number: whole)
    return [found[10 + place] for place in range(len(pieces))]


@pytest.mark.parametrize(
    ("steps", "wanted"),
    [
        (((2, "sum", 0, ()),), WHOLE[:3] + WHOLE[3:]),
        (((2, "mean", 0, ()),), (WHOLE[:3] + WHOLE[3:]) / 2),
        (((2, "max", 0, ()),), WHOLE[3:]),
        (((2, "min", 0, ()),), WHOLE[:3]),
        (((2, "first", 0, ()),), WHOLE[:3]),
        (((2, "cat", 0, ()),), WHOLE),
        (((2, "cat", 0, ((1, 0, 1), (0, 1, 2))),), torch.cat([WHOLE[3:4], WHOLE[1:3]])),
        (((2, "sum", 0, ()), (1, "cat", 1, ((0, 2, 2),))), (WHOLE[:3] + WHOLE[3:])[:, 2:]),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, tuple) else "",
)
def test_joined(steps, wanted):
    torch.testing.assert_close(joined([WHOLE[:3], WHOLE[3:]], steps), wanted)


def test_pieces_along_two_axes_and_their_gradient():
    """A piece sends its gradient back to its place."""
    whole = WHOLE.clone().requires_grad_()
    pieces = pieces_of(whole, (((0, ((0, 3),)), (1, ((0, 1), (2, 1)))), ((0, ((3, 3),)),)))
    torch.testing.assert_close(pieces[0], WHOLE[:3, [0, 2]])
    torch.testing.assert_close(pieces[1], WHOLE[3:])
    (gradient,) = torch.autograd.grad(pieces[0].sum(), whole)
    assert gradient.nonzero().tolist() == [[0, 0], [0, 2], [1, 0], [1, 2], [2, 0], [2, 2]]


def test_pieces_of_a_whole_that_was_scaled():
    (piece,) = pieces_of(WHOLE, (((0, ((0, 3),)),),), factor=2.0)
    torch.testing.assert_close(piece, 2 * WHOLE[:3])
