"""What holds for any two sides."""

import itertools

import numpy as np
import pytest
from nets import attention, blocks, convnet, mlp, ported_mlp
from sides import Maker, names, noise

from twintrace.align import align
from twintrace.model.pairs import Alignment, Side

SIDES = {
    "mlp": mlp(),
    "mlp without values": mlp(known=False),
    "ported": ported_mlp(nested=True, casts=True, split=True),
    "turned": ported_mlp(transposed=True),
    "fused": attention(fused=True),
    "unfused": attention(fused=False, framework="mindspore"),
    "blocks": blocks(7),
    "other blocks": blocks(9, "mindspore"),
    "convnet": convnet(),
    "empty": Maker("torch").side(),
}
PAIRS = list(itertools.combinations_with_replacement(SIDES, 2))


def random_side(seed: int) -> Side:
    """A few calls in no order that anybody would write."""
    rng = np.random.default_rng(seed)
    made = Maker(str(rng.choice(["torch", "mindspore"])))
    known = [made.given(noise(4, 8, seed=int(rng.integers(3))))]
    for _ in range(int(rng.integers(1, 25))):
        x = known[int(rng.integers(len(known)))]
        what = str(rng.choice(["torch.relu", "mindspore.ops.ReLU", "torch.neg", "torch.reshape", "mindspore.ops.cast"]))
        if rng.random() < 0.3:
            with made.module(f"m{rng.integers(3)}", str(rng.choice(["Block", "ReLU", "Linear"])), [x]) as module:
                known.append(module.gives(made.call(what, [x], -x.array)))
        else:
            known.append(made.call(what, [x], x.array if "cast" in what else np.maximum(x.array, 0)))
    return made.side()


RANDOM = [(random_side(2 * n), random_side(2 * n + 1)) for n in range(60)]


def whole(alignment: Alignment, left: Side, right: Side) -> bool:
    """Is every call there exactly once, and every tensor of a match once?"""
    for calls, which in ((left.calls, 0), (right.calls, 1)):
        found = [c.id for m in alignment.matches for c in (m.right if which else m.left)]
        found += [item.call.id for item in (alignment.only_right if which else alignment.only_left)]
        if sorted(found) != sorted(call.id for call in calls):
            return False
    for match in alignment.matches:
        for which in (0, 1):
            strays = match.only_right if which else match.only_left
            slots = [
                (p.part.backward, p.right_slot if which else p.left_slot, p.count, p.part.incoming)
                for p in match.tensors
            ]
            slots += [(s.part.backward, s.slot, 0, s.part.incoming) for s in strays]
            if len(slots) != len(set(slots)):
                return False
    return True


@pytest.mark.parametrize("pair", PAIRS, ids=" – ".join)
def test_every_call_is_there_exactly_once(pair):
    left, right = SIDES[pair[0]], SIDES[pair[1]]

    assert whole(align(left, right), left, right)


@pytest.mark.parametrize("pair", PAIRS, ids=" – ".join)
def test_the_other_way_round_is_the_mirror(pair):
    left, right = SIDES[pair[0]], SIDES[pair[1]]
    found, mirrored = align(left, right), align(right, left)

    assert names(found) == {one: two for two, one in names(mirrored).items()}
    assert [item.because for item in found.only_left] == [item.because for item in mirrored.only_right]
    assert [item.because for item in found.only_right] == [item.because for item in mirrored.only_left]
    tensors = {(p.left, p.right, p.part) for m in found.matches for p in m.tensors}
    assert tensors == {(p.right, p.left, p.part) for m in mirrored.matches for p in m.tensors}


@pytest.mark.parametrize("number", range(len(RANDOM)))
def test_random_sides(number):
    left, right = RANDOM[number]
    found = align(left, right)

    assert whole(found, left, right)
    assert found == align(left, right)
    assert names(found) == {one: two for two, one in names(align(right, left)).items()}


@pytest.mark.parametrize("name", SIDES)
def test_a_side_with_itself_is_certain(name):
    side = SIDES[name]
    found = align(side, side)

    assert len(found.matches) == len(side.calls)
    assert all(match.confidence == 1.0 for match in found.matches)
    assert all(pair.left == pair.right for match in found.matches for pair in match.tensors)
    assert not any(match.only_left or match.only_right for match in found.matches)


@pytest.mark.parametrize("pair", PAIRS, ids=" – ".join)
def test_everything_has_its_reason(pair):
    found = align(SIDES[pair[0]], SIDES[pair[1]])

    assert all(match.because and 0 < match.confidence <= 1 for match in found.matches)
    assert all(item.because for item in (*found.only_left, *found.only_right))
    for match in found.matches:
        assert all(
            pair.because
            for pair in match.tensors
            if pair.left_slot != pair.right_slot or str(pair.layout) != "as it is"
        )
        assert all(stray.because for stray in (*match.only_left, *match.only_right))


def test_the_check_can_fail():
    left, right = SIDES["mlp"], SIDES["ported"]
    found = align(left, right)

    assert not whole(Alignment(found.matches[1:], found.only_left, found.only_right), left, right)
    assert not whole(Alignment((*found.matches, found.matches[0]), found.only_left, found.only_right), left, right)
