"""`tt.compare_arrays`: two folders of .npy files side by side, with everything that may be wrong in them."""

import random

import numpy as np
import pytest

from twintrace import api
from twintrace.model.errors import TraceNotFoundError, UsageError
from twintrace.model.verdicts import Outcome

X = np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)
SAME, ROUNDING, DIFFERENT, UNKNOWN = Outcome.SAME, Outcome.ROUNDING, Outcome.DIFFERENT, Outcome.UNKNOWN


@pytest.fixture
def folders(tmp_path):
    sides = tmp_path / "left", tmp_path / "right"
    for side in sides:
        side.mkdir()

    def write(left, right):
        for folder, arrays in zip(sides, (left, right), strict=True):
            for name, array in arrays.items():
                if isinstance(array, bytes):
                    (folder / f"{name}.npy").write_bytes(array)
                else:
                    np.save(folder / f"{name}.npy", array, allow_pickle=array.dtype == object)
        return sides

    return write


def changed(value, at=(1, 2)):
    array = X.copy()
    array[at] = value
    return array


def outcomes(found):
    return {result.match.left[0].site.name: result.verdict.outcome for result in found.results}


# what it is, left, right, verdict without and with equal_nan, part of the reason
CASES = [
    ("equal", X, X, SAME, SAME, "equal values"),
    ("close", X, X + np.float32(1e-6), ROUNDING, ROUNDING, "every element within rtol 0.0001, atol 0.0001"),
    ("far", X, X + 1, DIFFERENT, DIFFERENT, "20 of 20 elements beyond"),
    ("one element", X, changed(9.0), DIFFERENT, DIFFERENT, "1 of 20 elements beyond"),
    ("transposed", X, X.T, DIFFERENT, DIFFERENT, "f32[4, 5] | f32[5, 4]"),
    ("flat", X, X.reshape(-1), DIFFERENT, DIFFERENT, "f32[4, 5] | f32[20]"),
    ("nan on both sides", changed(np.nan), changed(np.nan), DIFFERENT, SAME, ""),
    ("nan on one side", changed(np.nan), X, DIFFERENT, DIFFERENT, "NaN in 1 elements on the left, 0 on the right"),
    ("nan in two places", changed(np.nan), changed(np.nan, (0, 0)), DIFFERENT, DIFFERENT, "0 in the same places"),
    ("inf on both sides", changed(np.inf), changed(np.inf), SAME, SAME, "equal values"),
    ("opposite infinities", changed(np.inf), changed(-np.inf), DIFFERENT, DIFFERENT, "infinite in 1 elements"),
    ("empty", np.zeros((0, 3)), np.zeros((0, 3)), SAME, SAME, ""),
    ("empty, other shape", np.zeros((0, 3)), np.zeros((3, 0)), DIFFERENT, DIFFERENT, "the shapes do not fit"),
    ("0-rank", np.float32(1), np.float32(2), DIFFERENT, DIFFERENT, "1 of 1 elements beyond"),
    ("0-rank and rank 1", np.float32(1), np.ones(1, np.float32), DIFFERENT, DIFFERENT, "f32[] | f32[1]"),
    ("other dtype", X.astype(np.float64), X, SAME, SAME, "(f64 | f32)"),
    ("imaginary part", np.array([1 + 1j]), np.array([1 - 1j]), DIFFERENT, DIFFERENT, "1 of 1 elements beyond"),
    ("bool", X > 0, X > 1, DIFFERENT, DIFFERENT, "elements beyond"),
    ("objects", np.array([{}], object), X, UNKNOWN, UNKNOWN, "can run code"),
    ("texts", X, np.array(["a"]), UNKNOWN, UNKNOWN, "right: texts.npy: elements of type '<U1'"),
    ("0 bytes", X, b"", UNKNOWN, UNKNOWN, "right: 0 bytes.npy: no npy file: it is empty"),
    ("garbage", b"not numpy", X, UNKNOWN, UNKNOWN, "left: garbage.npy: no npy file: it begins with"),
]  # fmt: skip


@pytest.mark.parametrize("equal_nan", [False, True])
@pytest.mark.parametrize(
    ("name", "left", "right", "plain", "lenient", "because"), CASES, ids=[case[0] for case in CASES]
)
def test_every_kind_of_pair_has_its_verdict(folders, name, left, right, plain, lenient, because, equal_nan):
    found = api.compare_arrays(*folders({name: left}, {name: right}), equal_nan=equal_nan)
    [result] = found.results
    assert result.verdict.outcome is (lenient if equal_nan else plain), result.verdict
    assert because in result.verdict.because
    assert found.agree is result.verdict.outcome.good
    assert found.comparable is (result.verdict.outcome is not UNKNOWN)


def test_one_bad_file_costs_its_row_alone(folders):
    left = {name: array for name, array, *_ in CASES}
    right = {name: array for name, _, array, *_ in CASES}
    found = api.compare_arrays(*folders(left, right))
    assert outcomes(found) == {f"{name}.npy": plain for name, _, _, plain, *_ in CASES}
    assert not found.agree
    assert any("4 pairs of tensors could not be compared" in remark for remark in found.remarks)


def test_missing_and_extra_files_are_told_of_with_the_reason(folders):
    found = api.compare_arrays(*folders({"a": X, "b": X}, {"b": X, "c": X}))
    assert outcomes(found) == {"b.npy": SAME}
    assert not found.agree
    [(_, _, left)], [(_, _, right)] = found.only_left, found.only_right
    assert (left.call.site.name, right.call.site.name) == ("a.npy", "c.npy")
    assert "no file of this name" in left.because
    text = api.verdict(found)
    assert "only left: 1 file, first a.npy: the other side has no file of this name" in text
    assert "1 pair of files: 1 the same. Unpaired: 1 left, 1 right." in text


@pytest.mark.parametrize(
    ("left", "right", "sentence"),
    [
        ([X], [X], "agree: 1 pair is the same, bit by bit.\n  1 pair of files: 1 the same."),
        ([X, X], [X, X], "agree: all 2 pairs are the same, bit by bit.\n  2 pairs of files: 2 the same."),
        ([X], [X + 1e-5], "agree: 1 pair within "),
        ([X, X], [X, X + 1e-5], "agree: 1 of 2 pairs is equal, the other within "),
        ([X, X], [X, X + 1], "sure    1 pair before it; "),
    ],
)
def test_one_is_not_many(folders, left, right, sentence):
    sides = folders(*({f"x{number}": array for number, array in enumerate(side)} for side in (left, right)))
    assert sentence in api.verdict(api.compare_arrays(*sides))


def test_tolerances_are_relative_to_the_left(folders):
    sides = folders({"x": np.array([1.0])}, {"x": np.array([1.1])})
    assert not api.compare_arrays(*sides, rtol=0.095, atol=0.0).agree
    assert api.compare_arrays(*sides[::-1], rtol=0.095, atol=0.0).agree
    assert api.compare_arrays(*sides, rtol=0.0, atol=0.11).agree
    with pytest.raises(UsageError, match="rtol"):
        api.compare_arrays(*sides, rtol=-1.0)


def test_values_that_no_atol_could_tell_apart_are_remarked_on(folders):
    """Gradients of the opposite sign, all of them below atol."""
    sides = folders({"x": X * 1e-6, "y": X}, {"x": -X * 1e-6, "y": X})
    found = api.compare_arrays(*sides)
    assert found.agree
    told = "Within the tolerances only because every value is below atol 0.0001: 1 pair, first x.npy."
    assert any(remark.startswith(told) for remark in found.remarks)
    assert not api.compare_arrays(*sides, atol=0.0).agree


def test_nan_that_agrees_is_remarked_on(folders):
    sides = folders({"x": changed(np.nan)}, {"x": changed(np.nan)})
    assert "NaN on both sides: 1 pair, first x.npy." in api.compare_arrays(*sides, equal_nan=True).remarks


def test_by_number_and_by_shape(folders):
    sides = folders({"0_a": X, "1_b": X[0], "2_c": X[0]}, {"x_float32_7": X, "x_float32_8": X[0]})
    pairs = [("0_a.npy", "x_float32_7.npy"), ("1_b.npy", "x_float32_8.npy"), ("2_c.npy", None)]
    for by in ("number", "shape"):
        assert api.pair_arrays(*sides, by=by) == pairs
        found = api.compare_arrays(*sides, by=by)
        assert [result.verdict.outcome for result in found.results] == [SAME, SAME]
        assert len(found.only_left) == 1
    backwards = api.pair_arrays(*sides, by="number", key=lambda name: [-ord(char) for char in name])
    assert backwards[0] == ("2_c.npy", "x_float32_8.npy")
    with pytest.raises(UsageError, match="expected one of name, number, shape, got 'size'"):
        api.pair_arrays(*sides, by="size")


def test_by_shape_what_cannot_be_read_stands_beside_its_like(folders):
    sides = folders({"0": X, "1": b"", "2": X[0]}, {"0": X, "1": b"", "2": X[0]})
    assert api.pair_arrays(*sides, by="shape") == [(f"{n}.npy", f"{n}.npy") for n in range(3)]


def test_pairs_by_hand(folders):
    """With or without the ending; one file may be in several; what is not there, and what was left out, is told."""
    sides = folders({"a": X, "b": X, "z": X}, {"x": X, "y": X + 1})
    pairs = [("a", "x.npy"), ("a.npy", "y"), ("b", "gone"), ("gone", "nowhere"), (None, "y")]
    found = api.compare_arrays(*sides, pairs=pairs)
    assert [result.verdict.outcome for result in found.results] == [SAME, DIFFERENT]
    assert found.results[0].match.because == "given by hand"
    assert [item.because for _, _, item in found.only_left] == ["there is no gone.npy"]
    assert "Not among the pairs that were given: 1 file of the left, first z.npy." in found.remarks
    assert any("1 pair, first ('gone.npy', 'nowhere.npy')" in remark for remark in found.remarks)


def test_what_differs_is_not_said_to_arise_in_a_file(folders):
    found = api.compare_arrays(*folders({"0": X, "1": X, "2": X}, {"0": X, "1": X + 1, "2": X + 2}))
    assert not any(result.introduced_forward for result in found.results)
    text = api.verdict(found)
    assert text.startswith("left and right part at 1.npy\n")
    assert "the values that were saved differ" in text
    assert "source line" not in text


def test_pictures_are_made_when_they_are_wanted(folders):
    sides = folders({"x": X}, {"x": X + 1})
    heats = [api.compare_arrays(*sides, pictures=wanted).results[0].tensors[0].measurement.heat for wanted in (0, 1)]
    assert heats[0] is None
    assert heats[1].rows == 4


def test_progress_counts_files(folders):
    told = []
    sides = folders({str(n): X for n in range(5)}, {str(n): X + 1 for n in range(5)})
    api.compare_arrays(*sides, progress=lambda *step: told.append(step))
    assert told[-1][1:] == (5, 5)


def test_nothing_to_compare_is_an_error(folders):
    with pytest.raises(TraceNotFoundError, match=r"expected \.npy files"):
        api.compare_arrays(*folders({"x": X}, {}))


def test_whatever_a_file_holds_the_others_are_compared(folders, tmp_path):
    """Bytes of good files changed, cut, doubled: a row each, and never an exception."""
    numbers = random.Random(0)
    np.save(tmp_path / "good.npy", X)
    good = (tmp_path / "good.npy").read_bytes()
    spoilt = {}
    for number in range(150):
        raw = bytearray(good)
        for _ in range(numbers.choice([1, 1, 2, 8])):
            raw[numbers.randrange(128)] = numbers.choice([numbers.randrange(256), ord("9"), ord("'"), ord(","), 0, 255])
        spoilt[str(number)] = bytes(raw[: numbers.choice([len(raw), len(raw), numbers.randrange(len(raw))])])
    sides = folders({**spoilt, "good": X}, {**dict.fromkeys(spoilt, X), "good": X})
    for by in ("name", "number", "shape"):
        found = api.compare_arrays(*sides, by=by)
        assert len(found.results) + len(found.only_left) == 151
        if by == "name":
            assert outcomes(found)["good.npy"] is SAME
            assert {UNKNOWN, SAME} <= set(outcomes(found).values())
