"""Sums that mind the order of the values: what they tell apart, and what they do not."""

import dataclasses

import numpy as np
import pytest

from twintrace.model.fingerprints import GROUP, WEIGHTS
from twintrace.model.tensors import in_another_order
from twintrace.store import digest as digests
from twintrace.store.arrays import STORAGE
from twintrace.store.digest import digest


def values(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(count).astype(np.float32)


def statistics(array: np.ndarray):
    return digest(np.ascontiguousarray(array), "f32", fingerprint=False).statistics


REORDERED = {
    "rolled by one": lambda x: np.roll(x, 1),
    "rolled by a group": lambda x: np.roll(x, GROUP),
    "rolled by eight": lambda x: np.roll(x, 8),
    "reversed": lambda x: x[::-1],
    "transposed": lambda x: x.reshape(8, -1).T.reshape(-1),
    "two groups exchanged": lambda x: np.concatenate([x[GROUP : 2 * GROUP], x[:GROUP], x[2 * GROUP :]]),
    "shuffled": lambda x: np.random.default_rng(7).permutation(x),
    "two neighbours exchanged": lambda x: np.concatenate([x[1::-1], x[2:]]),
}


@pytest.mark.parametrize("how", REORDERED)
@pytest.mark.parametrize("count", [64, 4096, 64 * 1024])
def test_another_order_shows(how, count):
    x = values(count)
    y = REORDERED[how](x)
    if count < 2 * GROUP and "group" in how:
        pytest.skip("there is one group only")
    assert in_another_order(statistics(x), statistics(y)) is True


@pytest.mark.parametrize("how", ["rolled by eight", "transposed", "shuffled"])
@pytest.mark.parametrize("rounding", [1e-6, 4e-3])
def test_rounding_is_no_other_order_and_hides_none(how, rounding):
    """As between two devices in f32, or in bf16."""
    x = values(20000)
    y = (x * (1 + rounding / 2 * values(20000, 1).clip(-2, 2) / 2)).astype(np.float32)
    assert in_another_order(statistics(x), statistics(y), rounding=rounding) is False
    assert in_another_order(statistics(x), statistics(REORDERED[how](y[:19968])), rounding=rounding) in (None, True)
    x, y = x[:19968], y[:19968]
    assert in_another_order(statistics(x), statistics(REORDERED[how](y)), rounding=rounding) is True


def test_other_values_are_not_another_order():
    assert in_another_order(statistics(values(1000)), statistics(values(1000, 1))) is None


def test_without_order_sums_nothing_is_told():
    told = statistics(values(100))
    assert in_another_order(told, dataclasses.replace(told, order=None)) is None


@pytest.mark.parametrize("dtype", sorted(STORAGE))
@pytest.mark.parametrize("count", [1, 300, GROUP, GROUP + 1, 9000])
def test_both_implementations_give_the_same(dtype, count):
    """But for the order of the additions; NaN and infinities are left out."""
    size = STORAGE[dtype].itemsize
    raw = np.random.default_rng(count).integers(0, 2 if dtype == "b8" else 256, count * size, np.uint8)
    if dtype in ("f64", "c128"):  # near overflow a sum is finite or not by the order of the additions
        with np.errstate(invalid="ignore"):
            raw = (raw.view(np.float64) * 2.0**-64).view(np.uint8)
    found = digests.numbers_at(digests.address_of(raw), raw.nbytes, dtype, False)
    one, two = digests._scan(dtype, digests.address_of(raw), raw.nbytes, False)[-2:]
    if found[9] is None or found[10] is None:
        assert found[0] is None or (found[3] or 0.0) > 1e150  # sums that leave the range of float64 are left out
        return
    assert found[3] is not None
    assert found[9] == pytest.approx(one, rel=1e-12, abs=1e-13 * found[3])
    assert found[10] == pytest.approx(two, rel=1e-12, abs=1e-13 * found[3])


def test_sums_beyond_float64_are_not_told():
    largest = np.copysign(np.finfo(np.float64).max, np.tile(WEIGHTS, 3))
    assert digest(largest, "f64").statistics.order is None


def test_sums_are_those_of_the_format():
    """One element alone shows its weight: the formula of FORMAT.md, worked out here once more."""
    x = np.zeros(3 * GROUP, np.float64)
    x[2 * GROUP + 5] = 1.0
    mask, step = (1 << 64) - 1, 0x9E3779B97F4A7C15
    z = 3 * step & mask
    z = (z ^ z >> 29) * 0xBF58476D1CE4E5B9 & mask
    z = (z ^ z >> 32) * 0x94D049BB133111EB & mask
    z ^= z >> 32
    lower, upper = (half - (1 << 32) if half >> 31 else half for half in (z & 0xFFFFFFFF, z >> 32))
    k = 6 * step & mask
    k = (k ^ k >> 30) * 0xBF58476D1CE4E5B9 & mask
    k = (k ^ k >> 27) * 0x94D049BB133111EB & mask
    k ^= k >> 31
    weight = (k >> 11) / 2**52 - 1
    assert weight == WEIGHTS[5]
    assert digest(x, "f64").statistics.order == (weight * (lower / 2**31), weight * (upper / 2**31))


def test_the_type_of_the_elements_does_not_matter():
    """A run in f64 can be compared with one in f32."""
    x = values(5000)
    told = digest(x.astype(np.float64), "f64").statistics.order
    assert told is not None
    assert statistics(x).order == pytest.approx(told, rel=1e-12)
