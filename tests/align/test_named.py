"""Two runs of one program: by name and place, and an extra call shifts nothing."""

import numpy as np
import pytest
from nets import mlp, relu, weight
from sides import Maker, alone, names, noise, pairs

from twintrace.align import align
from twintrace.model.sites import Kind, Phase


def test_a_record_with_itself_is_paired_whole_and_surely():
    found = align(mlp(), mlp())

    assert all(left == right for left, right in pairs(found).items())
    assert {match.confidence for match in found.matches} == {1.0}
    assert {match.because for match in found.matches} == {"same address"}
    assert not found.only_left
    assert not found.only_right


def test_values_that_differ_do_not_part_what_has_the_same_address():
    found = align(mlp(), mlp(marks=False))

    assert len(found.matches) == len(mlp().calls)
    assert all(pair.left_slot == pair.right_slot for match in found.matches for pair in match.tensors)


def program(extra: str = "", *, skip: int | None = None, lines: bool = True, known: bool = True):
    """Four relus in a row in one place; `extra` is called between the second and the third."""
    made = Maker("torch", known=known)
    x = made.given(noise(4, 8))
    for number in range(4):
        if number == skip:
            continue
        x = made.call(
            "torch.relu", [x], relu(x.array) - 0.1 * (number + 1), line=f"x{number} = relu(x)" if lines else ""
        )
        if extra and number == 1:
            made.call(extra, [x], noise(4, 8, seed=7), line="extra")
    return made.side()


@pytest.mark.parametrize(("lines", "known"), [(True, True), (True, False), (False, True)])
def test_an_extra_call_in_the_middle_shifts_nothing(lines, known):
    """Source lines tell which is the extra one, or values do."""
    found = align(program(lines=lines, known=known), program("torch.relu", lines=lines, known=known))

    assert names(found) == {
        "torch.relu#0": "torch.relu#0",
        "torch.relu#1": "torch.relu#1",
        "torch.relu#2": "torch.relu#3",
        "torch.relu#3": "torch.relu#4",
    }
    assert alone(found) == ([], ["torch.relu#2"])


def layers(*seeds: int):
    """Linears and tanhs in a row, without lines or paths; each linear has a weight of its own."""
    made = Maker("torch")
    x = made.given(noise(4, 8))
    for seed in seeds:
        w = made.given(noise(8, 8, seed=seed))
        x = made.call("torch.nn.functional.linear", [x, w], x.array @ w.array.T)
        x = made.call("torch.tanh", [x], np.tanh(x.array))
    return made.side()


@pytest.mark.parametrize("place", range(4))
def test_an_extra_layer_shifts_nothing_although_all_values_after_it_are_others(place):
    """The weights tell which linear is which, and what comes after each."""
    seeds = [1, 2, 3]
    found = names(align(layers(*seeds), layers(*seeds[:place], 9, *seeds[place:])))

    for name in ("torch.nn.functional.linear", "torch.tanh"):
        expected = {f"{name}#{number}": f"{name}#{number + (number >= place)}" for number in range(3)}
        assert {left: right for left, right in found.items() if left.startswith(name)} == expected


def test_a_missing_call_shifts_nothing():
    found = align(program(), program(skip=1))

    assert names(found)["torch.relu#2"] == "torch.relu#1"
    assert alone(found) == (["torch.relu#1"], [])


def test_as_many_calls_and_one_of_them_another_is_seen_by_its_line():
    """One relu is gone, another was added elsewhere: the numbers agree and the lines do not."""
    found = align(program(skip=1), program("torch.relu", skip=3))

    assert names(found) == {"torch.relu#0": "torch.relu#0", "torch.relu#1": "torch.relu#3"}


def test_calls_of_one_name_in_two_modules_do_not_mix():
    def side(twice: bool):
        made = Maker("torch")
        x = made.given(noise(4, 8))
        for path in ("a", "b"):
            with made.module(path, "Block", [x]) as block:
                y = made.call("torch.relu", [x], relu(x.array))
                if twice and path == "a":
                    y = made.call("torch.relu", [y], relu(y.array))
                x = block.gives(made.call("torch.neg", [y], -y.array))
        return made.side()

    found = align(side(False), side(True))

    assert names(found)["torch.relu#1"] == "torch.relu#2"  # the one in b
    assert [item.call.site.path for item in found.only_right] == ["a"]


def test_a_trace_of_both_levels_against_one_of_modules():
    left = mlp()
    right = type(left)(left.framework, [c for c in left.calls if c.site.kind is Kind.MODULE], left.tensor)
    found = align(left, right)

    assert set(names(found)) == {"#0", "fc1#0", "fc2#0", "fc3#0"}
    assert {item.because for item in found.only_left} == {"the other side has no record of api calls"}
    assert all(item.skipped for item in found.only_left)


def test_phases_are_kept_apart():
    def side(order: tuple[Phase, ...]):
        made = Maker("torch")
        x = made.given(noise(4, 8))
        for phase in order:
            made.phase = phase
            made.call("torch.relu", [x], relu(x.array))
        return made.side()

    found = align(
        side((Phase.FORWARD, Phase.RECOMPUTE, Phase.UPDATE)), side((Phase.UPDATE, Phase.FORWARD, Phase.RECOMPUTE))
    )

    assert len(found.matches) == 3
    assert all(match.left[0].site == match.right[0].site for match in found.matches)


def test_another_shape_at_the_same_address_is_no_layout():
    """In one program a weight that is the other way round is a difference to be found, not one to be undone."""

    def side(turned: bool):
        made = Maker("torch")
        x = made.given(noise(4, 8))
        w = weight(0, 8, 6)
        made.call("torch.matmul", [x, made.parameter(np.ascontiguousarray(w.T) if turned else w)], x.array @ w)
        return made.side()

    (match,) = align(side(False), side(True)).matches

    assert {str(pair.layout) for pair in match.tensors} == {"as it is"}


def test_another_operation_in_the_same_place_is_its_partner():
    """Somebody has exchanged one function for another: the two are to be compared."""

    def side(function: str):
        made = Maker("torch")
        x = made.given(noise(4, 8))
        y = made.call("torch.neg", [x], -x.array)
        result = relu(y.array) if function == "torch.relu" else np.tanh(y.array)
        y = made.call(function, [y], result)
        made.call("torch.square", [y], y.array**2)
        return made.side()

    found = align(side("torch.relu"), side("torch.tanh"))

    assert names(found)["torch.relu#0"] == "torch.tanh#0"
    assert next(m for m in found.matches if m.left[0].site.name == "torch.relu").confidence <= 0.5


def test_what_only_a_sum_of_features_tells_is_less_sure():
    """More calls of one name than are looked at one by one, without lines and values: shapes in their order."""

    def shaped(pattern):
        made = Maker("torch", known=False)
        x = made.given(noise(4, 8))
        for letter in pattern:
            made.call("torch.relu", [x], noise(4, ord(letter) - 60))
        return made.side()

    found = align(shaped("AABBAABB"), shaped("AABBAAB"))

    assert len(found.matches) >= 6
    assert {match.confidence for match in found.matches if match.because.startswith("same")} == {0.9}
