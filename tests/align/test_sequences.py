"""Two sequences side by side: anchors, then sums."""

import pytest

from twintrace.align.sequences import longest_chain, match_sequences


def lay(left: str, right: str, *, second: tuple[str, str] | None = None, least: float = 0.5) -> list[tuple[int, int]]:
    """Letters are one feature; `second` may give another, which counts less."""
    texts = [(left, right), *([second] if second else [])]
    rows = [
        [[-1 if c == "?" else ord(c) for c in row] for row in zip(*side, strict=True)]
        for side in zip(*texts, strict=True)
    ]
    worth = [(2.0, 4.0), (1.0, 1.0)][: len(texts)]
    links = match_sequences(*rows, worth, [[0]], least=least)
    return [(link.left, link.right) for link in links]


@pytest.mark.parametrize(
    ("left", "right", "pairs"),
    [
        ("abcde", "abcde", [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4)]),
        ("abcde", "abxcde", [(0, 0), (1, 1), (2, 3), (3, 4), (4, 5)]),
        ("abcde", "abde", [(0, 0), (1, 1), (3, 2), (4, 3)]),
        ("aaaa", "aaaa", [(0, 0), (1, 1), (2, 2), (3, 3)]),
        ("abc", "xyz", []),
        ("a", "a", [(0, 0)]),
        ("a", "b", []),
        ("", "abc", []),
        ("", "", []),
        ("a?c", "a?c", [(0, 0), (2, 2)]),
    ],
)
def test_letters(left, right, pairs):
    assert lay(left, right) == pairs


def test_what_is_repeated_is_told_apart_by_other_features():
    """b b against b: the second feature says that it is the second."""
    assert lay("abbc", "abc", second=("0120", "020")) == [(0, 0), (2, 1), (3, 2)]


def test_pairs_that_nothing_supports_are_left_out():
    letters = "abcdefgh"
    assert len(lay(letters, letters, least=5.0)) == len(letters)  # singled out by a key: no sum is asked of them
    assert lay("aab", "bba", least=5.0) == []


def test_a_long_stretch_without_anchors_is_cut_into_pieces():
    """4000 members of two kinds that alternate: too many for one table."""
    left = "ab" * 2000
    found = lay(left, left[1:])

    assert len(found) > 3000
    assert found == sorted(found)
    assert all(left[i] == left[1:][j] for i, j in found)


def test_the_longest_chain_runs_forward_on_both_sides():
    assert longest_chain([(0, 3), (1, 0), (2, 1), (3, 2)]) == [(1, 0), (2, 1), (3, 2)]
    assert longest_chain([]) == []


def test_sums_that_are_equal_decide_nothing():
    """Two ways to pair one member are as good as each other, or one is better by more than nothing."""

    def one_of_two(better):
        left, right = [[1, 1, -1]], [[1, 1, 5], [1, 1, 6]]
        rows = [[*left[0][:2], 6]] if better else left
        return [
            (link.left, link.right)
            for link in match_sequences(rows, right, [(2.0, 4.0), (1.0, 1.0), (0.5, 0.0)], [[0]], least=0.5)
        ]

    assert one_of_two(better=False) == []
    assert one_of_two(better=True) == [(0, 1)]


@pytest.mark.parametrize("repeated", [2, 5, 9])
def test_anchors_within_the_stretches_between_anchors(repeated):
    """Letters that are repeated in the whole occur once between two that do not, whatever lies around them."""
    left = "".join(f"{chr(65 + place)}xyz" for place in range(repeated))
    right = "".join(f"{chr(65 + place)}xqyz" for place in range(repeated))
    pairs = lay(left, right)
    assert {(left[one], right[two]) for one, two in pairs} == {(letter, letter) for letter in left}
    assert len(pairs) == len(left)
