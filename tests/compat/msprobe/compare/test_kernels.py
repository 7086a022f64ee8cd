"""Kernel dumps of MindSpore: as items, and beside each other."""

from __future__ import annotations

import math

import numpy as np
import pytest
from openpyxl import load_workbook

from twintrace.compat.msprobe.compare.flow import Settings, write_result
from twintrace.compat.msprobe.compare.kernels import Kernels
from twintrace.compat.msprobe.compare.rows import Mode, mode_of
from twintrace.model.errors import TraceError

TITLES = "Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape,Max Value,Min Value,Avg Value,L2Norm Value"


@pytest.fixture
def kernels(tmp_path):
    """`kernels("npu", ("MatMul", "a-op0", 17, "output", 0, array), …)` in step 3 of rank 1."""

    def write(side: str, *files: tuple[str, str, int, str, int, np.ndarray]):
        folder = tmp_path / side / "rank_1" / "Net" / "0" / "3"
        folder.mkdir(parents=True, exist_ok=True)
        for kind, name, time, io, slot, values in files:
            np.save(folder / f"{kind}.Default_{name}.0.0.{time}.{io}.{slot}.DefaultFormat.Float32.npy", values)
        return tmp_path / side

    return write


def test_by_name_and_slot_whatever_the_time(kernels):
    x, y = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([1.0, np.inf, -2.0], np.float32)
    npu = kernels("npu", ("Add", "a-op0", 10, "input", 0, x), ("Add", "a-op0", 11, "output", 0, y))
    bench = kernels("bench", ("Add", "a-op0", 95, "input", 0, x), ("Add", "a-op0", 96, "output", 0, y))

    left, right, found = Kernels(npu, bench).pair(3, 1)

    assert [(pair.npu is None, pair.bench is None) for pair in found.pairs] == [(False, False)] * 2
    one, two = (pair.npu for pair in found.pairs)
    assert one.name == "rank_1/Net/0/3/Add.Default_a-op0.0.0.10.input.0.DefaultFormat.Float32.npy"
    assert (one.dtype, one.shape, one.max, one.min, one.mean) == ("float32", (2, 3), 5.0, 0.0, 2.5)
    assert (two.max, two.min, two.mean, two.norm) == (math.inf, -2.0, math.inf, math.inf)
    assert np.array_equal(left.array(one), x)
    assert np.array_equal(right.array(found.pairs[1].bench), y)
    assert mode_of(left) is Mode.KERNEL


def test_a_kernel_that_ran_once_more_does_not_shift_the_others(kernels):
    """What the tool pairs in the order of time is told apart by what was computed."""

    def launches(values, start):
        return [
            ("Add", "a-op0", start + n, "output", 0, np.full(4, v, np.float32) + np.arange(4))
            for n, v in enumerate(values)
        ]

    npu, bench = kernels("npu", *launches((1, 2, 3), 10)), kernels("bench", *launches((1, 7, 2, 3), 50))

    _, _, found = Kernels(npu, bench).pair(3, 1)

    assert [pair.npu and pair.npu.max for pair in found.pairs] == [4.0, None, 5.0, 6.0]
    assert [pair.bench and pair.bench.max for pair in found.pairs] == [4.0, 10.0, 5.0, 6.0]
    assert found.pairs[1].because


def test_kernels_that_fail_are_coloured_say_why_and_are_advised_on(kernels, tmp_path):
    x = np.arange(1, 7, dtype=np.float32)
    npu = kernels("npu", ("Add", "a-op0", 10, "output", 0, x), ("Mul", "b-op0", 11, "output", 0, -x))
    bench = kernels("bench", ("Add", "a-op0", 10, "output", 0, x), ("Mul", "b-op0", 11, "output", 0, x))
    left, right, found = Kernels(npu, bench).pair(3, 1)

    made = write_result(left, right, found.pairs, Settings(tmp_path / "out"), name="compare_result_1_3", stamp="1")

    heads, good, bad = load_workbook(made.path).active.iter_rows()
    titles = [cell.value for cell in heads]
    said = dict(zip(titles, (cell.value for cell in bad), strict=True))
    assert said["Accuracy Reached or Not"] == "No"
    assert "cosine is -1.0" in said["Err_message"]
    assert [row[0].fill.fill_type for row in (good, bad)] == [None, "solid"]
    assert made.advice.name == "advisor_1_3_1.txt"
    text = made.advice.read_text()
    assert text.startswith("Line: 3\nSuspect Nodes: ")
    assert "The values that this call computes are wrong" in text


def test_nan_is_nan(kernels):
    values = ("Add", "a-op0", 1, "output", 0, np.array([1, np.nan], np.float32))

    _, _, found = Kernels(kernels("npu", values), kernels("bench", values)).pair(3, 1)

    assert all(
        math.isnan(number) for number in (found.pairs[0].npu.max, found.pairs[0].npu.min, found.pairs[0].npu.norm)
    )


def test_a_table_of_statistics(tmp_path):
    for side, high in (("npu", 2.5), ("bench", 2.0)):
        folder = tmp_path / side / "rank_0" / "Net" / "0" / "0"
        folder.mkdir(parents=True)
        rows = [f'Add,Default/a-op0,4,0,{time},output,0,8,Float32,"(2,)",{high},-1,0.5,3' for time in (17, 18)]
        (folder / "statistic.csv").write_text("\n".join((TITLES, *rows, "")), encoding="utf-8")

    left, right, found = Kernels(tmp_path / "npu", tmp_path / "bench").pair(0, 0)

    assert mode_of(left) is mode_of(right) is Mode.KERNEL_STATISTICS
    pair, again = found.pairs
    assert pair.npu.name == "Default/a-op0.4.output.0"
    assert again.npu.name == "Add.Default_a-op0.1.output.0"
    assert (pair.npu.max, pair.bench.max, pair.npu.min) == (2.5, 2.0, -1.0)
    with pytest.raises(TraceError, match="no values were kept"):
        left.array(pair.npu)

    made = write_result(left, right, found.pairs, Settings(tmp_path / "out"), name="compare_result_0_0", stamp="1")
    heads, first, _ = load_workbook(made.path).active.iter_rows(values_only=True)
    assert heads[:2] == ("NPU Name", "Bench Name")
    assert heads[-2:] == ("NPU CSV File", "Bench CSV File")
    assert first[-2:] == ("rank_0/Net/0/0/statistic.csv",) * 2


def test_a_damaged_file_is_an_item_that_says_so(kernels):
    values = ("Add", "a-op0", 1, "output", 0, np.ones(3, np.float32))
    npu, bench = kernels("npu", values), kernels("bench", values)
    (file,) = npu.rglob("*.npy")
    file.write_bytes(b"nothing")

    left, _, found = Kernels(npu, bench).pair(3, 1)

    assert left.problems
    assert found.pairs[0].npu.problem
    with pytest.raises(TraceError):
        left.array(found.pairs[0].npu)
