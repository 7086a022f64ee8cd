"""The real TroubleShooter 1.0.18 and this embassy on the same folders: the same rows, but for what SURFACE.md lists."""

import contextlib
import csv
import io
import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

import twintrace.compat.troubleshooter as ts

HERE = Path(__file__).parent
NUMBERS = np.random.default_rng(0)
X = NUMBERS.standard_normal((4, 5)).astype(np.float32)
NOISE = NUMBERS.standard_normal((4, 5)).astype(np.float32)


def with_one(value, at=(1, 2)):
    array = X.copy()
    array[at] = value
    return array


# scenario -> (orig, target), arrays by name. Every element of two arrays that differ is another: the real tool's mean is over
# those that differ, ours over all.
SCENARIOS = {
    "values": (
        {
            "0_equal": X, "1_close": X, "2_far": X, "3_shape": X, "4_flat": X, "5_int": np.arange(6), "6_more": X + 2,
            "7_double": X.astype(np.float64), "8_scalar": np.float32(1), "9_empty": np.zeros((0, 3)), "10_bool": X > 0,
            "11_tolerance": X, "12_inf": with_one(np.inf), "13_only": X, "14_zero": np.zeros(3), "15_zeros": np.zeros(3),
            "16_sum": np.float64(3),
        },
        {
            "0_equal": X, "1_close": X + NOISE * 1e-6, "2_far": X + NOISE, "3_shape": X.T, "4_flat": X.reshape(-1),
            "5_int": np.arange(6) + 1, "6_more": X + 2, "7_double": X + 1e-3, "8_scalar": np.float32(1),
            "9_empty": np.zeros((0, 3)), "10_bool": X > 0, "11_tolerance": X * np.float32(1.009),
            "12_inf": with_one(np.inf), "15_zeros": np.ones(3),
            "16_sum": np.float64(4), "17_alone": X, "14_zero": np.zeros(3),
        },
    ),
    "not finite": (
        {"0_both": with_one(np.nan), "1_one": with_one(np.nan), "2_infs": with_one(np.inf), "3_inf": with_one(np.inf)},
        {"0_both": with_one(np.nan), "1_one": X, "2_infs": with_one(-np.inf), "3_inf": X},
    ),
    "other numbers": (
        {"0_half": X.astype(np.float16), "1_few": X, "2_inf": with_one(np.inf)},
        {"0_half": X, "1_few": with_one(9), "2_inf": with_one(np.inf) + np.float32(1e-5)},
    ),
    "numbers": (
        {f"{n}_x.layer{9 - n}": X + n for n in range(12)},
        {f"{n}_y": X + n for n in range(10)},
    ),
    "mindspore names": (
        {f"ms.{n}_float32_{n}": X + n for n in range(12)},
        {f"ms_float32_{n + 3}": X + n for n in range(12)},
    ),
    "gradients": (
        {f"{n}_g": np.ones(shape) for n, shape in enumerate([(5, 10), (5,), (5,), (5,), (3, 5), (3,), (2, 3)])},
        {f"{n}_h": np.ones(shape) for n, shape in enumerate([(5, 10), (5,), (3, 5), (3,), (3,), (2, 2), (2, 3)])},
    ),
    "more gradients": (
        {f"{n}_g": np.ones(shape) for n, shape in enumerate([(5,), (3, 5), (5,)])},
        {f"{n}_h": np.ones(shape) for n, shape in enumerate([(5,), (5,), (5,), (3, 5), (4,), (5,), (5,)])},
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("parity")
    for scenario, sides in SCENARIOS.items():
        for side, arrays in zip(("orig", "target"), sides, strict=True):
            folder = root / scenario / side
            folder.mkdir(parents=True)
            for name, array in arrays.items():
                np.save(folder / f"{name}.npy", array)
    return root


@pytest.fixture(scope="module")
def real(root, checkout_env):
    from benchmarks.peers import environment

    env = {name: value for name, value in checkout_env.items() if name != "PYTHONPATH"}
    command = [str(environment("troubleshooter")), str(HERE / "real_arrays.py"), str(root)]
    done = subprocess.run(command, cwd=root.parent, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def ours(root):
    def call(scenario, function, *arguments, **options):
        with contextlib.redirect_stdout(io.StringIO()):
            return function(root / scenario / "orig", root / scenario / "target", *arguments, **options)

    return call


def cells(table):
    """The rows of a printed table, the names of its columns first."""
    lines = [line for line in table.splitlines() if line.startswith("|")][1:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


CALLS = {
    "npy": (ts.migrator.compare_npy_dir, {"compare_shape": True}),
    "equal_nan": (ts.migrator.compare_npy_dir, {"equal_nan": True}),
    "tolerant": (ts.migrator.compare_npy_dir, {"rtol": 1e-2, "atol": 1e-6}),
    "grads": (ts.migrator.compare_grads_dir, {}),
    "list": (ts.migrator.compare_list_dir, {}),
    "dict": (ts.migrator.compare_dict_dir, {}),
}
SETTLED = [name for name in SCENARIOS if name not in ("not finite", "other numbers")]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("scenario", SETTLED)
def test_the_same_table(real, ours, scenario, call):
    function, options = CALLS[call]
    table = ours(scenario, function, **options)
    theirs = real[scenario][call]
    assert cells(table) == cells(theirs)
    assert table.splitlines() == theirs.splitlines()  # boxes and spaces, too


@pytest.mark.parametrize("by", ["name", "number", "shape_edit_distance"])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_same_pairs(real, ours, scenario, by):
    found = ours(scenario, getattr(ts.migrator, f"get_name_map_list_by_{by}"))
    assert [list(pair) for pair in found] == real[scenario][f"by_{by}"]


@pytest.mark.parametrize("scenario", SETTLED)
def test_the_same_csv(real, ours, root, scenario, tmp_path):
    ours(scenario, ts.migrator.compare_npy_dir, compare_shape=True, output_file=tmp_path / "ours.csv")
    mine, theirs = ((path / name).read_text() for path, name in ((tmp_path, "ours.csv"), (root / scenario, "real.csv")))
    assert mine == theirs.rstrip("\n") + "\n"
    assert next(csv.reader(io.StringIO(mine)))[2:4] == ["shape of orig", "shape of target"]


def test_where_numbers_differ_on_purpose_the_verdicts_are_the_same(real, ours):
    """Its float16 computes in float16, its mean leaves out what is equal, and one infinity costs it the cosine."""
    mine, theirs = cells(ours("other numbers", ts.migrator.compare_dict_dir)), cells(real["other numbers"]["dict"])
    assert [row[:4] for row in mine] == [row[:4] for row in theirs]
    assert (mine[1][4], theirs[1][4]) == ("0.99999", "0.99988")
    over_all, over_some = float(mine[2][5].split(",")[0]), float(theirs[2][5].split(",")[0])
    assert over_all == pytest.approx(over_some / X.size, abs=1e-5)
    assert (mine[3][4], theirs[3][4]) == ("1.00000", "nan")


@pytest.mark.parametrize("call", ["npy", "equal_nan"])
def test_where_not_all_is_finite_the_verdicts_are_the_same(real, ours, call):
    function, options = CALLS[call]
    mine, theirs = cells(ours("not finite", function, **options)), cells(real["not finite"][call])
    verdict = mine[0].index("result of allclose")
    assert [row[: verdict + 2] for row in mine] == [row[: verdict + 2] for row in theirs]
    assert [row[-1] for row in mine[2:]] == ["nan, nan", "inf, inf", "inf, inf"] == [row[-1] for row in theirs[2:]]
