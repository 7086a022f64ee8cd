"""The files of a comparison: whole, coloured, split, safe, and honest about what could not be read."""

import csv
import json
import os
from pathlib import Path

import numpy as np
import pytest
from openpyxl import load_workbook

from tests.compat.msprobe.compare.twins import cases, write_twins
from twintrace.compat.msprobe.compare import flow
from twintrace.compat.msprobe.compare.advisor import Advisor
from twintrace.compat.msprobe.compare.flow import Settings, write_result
from twintrace.compat.msprobe.compare.pairing import ItemPair, pair_items
from twintrace.compat.msprobe.compare.rows import Generation, Mode, columns, mode_of
from twintrace.compat.msprobe.dumps import open_dump
from twintrace.model.errors import ReportError, TwintraceError, UsageError
from twintrace.model.pairs import Layout

OLDER, NEWER = Generation


@pytest.fixture
def compared(tmp_path):
    """`compared(task, **options)`: the summary of a comparison of twins."""

    def run(task: str, spoil=None, name="compare_result", stamp="", say=None, **options) -> Advisor:
        paths = write_twins(tmp_path / "twins", "mindspore", task)
        if spoil:
            spoil(*(path.parent for path in paths))
        npu, bench = map(open_dump, paths)
        settings = Settings(tmp_path / "out", **options)
        return write_result(npu, bench, pair_items(npu, bench).pairs, settings, name=name, stamp=stamp, say=say)

    return run


def rows_of(path: Path) -> list[dict]:
    if path.suffix == ".csv":
        with path.open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))
    heads, *rows = load_workbook(path).active.iter_rows(values_only=True)
    return [dict(zip(heads, row, strict=True)) for row in rows]


def named(rows: list[dict], name: str) -> dict:
    return next(row for row in rows if row["NPU Name"] == f"Functional.{name}.0.forward.output.0")


@pytest.mark.parametrize("task", ["statistics", "md5", "tensor"])
def test_the_files_of_the_older_generation(compared, task):
    found = compared(task, stamp="20260102030405", stacks=True)
    assert found.path.name == "compare_result_20260102030405.xlsx"
    assert found.advice.name == "advisor_20260102030405.txt"
    assert sorted(path.name for path in found.path.parent.iterdir()) == [found.advice.name, found.path.name], (
        "nothing else"
    )
    rows = rows_of(found.path)
    assert len(rows) == found.rows == 3 * len(cases())
    assert tuple(rows[0]) == columns(OLDER, Mode(task), stack=True)
    assert rows[0]["NPU_Stack_Info"].startswith("['File net.py, line 3")
    assert rows[1]["NPU_Stack_Info"] == "N/A"
    line = int(found.advice.read_text().splitlines()[0].removeprefix("Line: "))
    assert found.first == (line, rows[line - 2]["NPU Name"]), "the line is the row in the sheet"


def test_the_files_of_the_newer_generation(compared):
    found = compared("tensor", generation=NEWER, name="compare_result_rank3", stamp="1")
    assert [path.name for path in found.path.parent.iterdir()] == ["compare_result_rank3_1.csv"]
    rows = rows_of(found.path)
    assert found.verdicts == {verdict: sum(row["Result"] == verdict for row in rows) for verdict in found.verdicts}
    assert all(isinstance(json.loads(row["Err_message"]), list) for row in rows)


def test_advice_of_a_rank_has_its_name(compared):
    found = compared("statistics", name="compare_result_rank0", stamp="1")
    assert found.advice.name == "advisor_rank0_1.txt"


def test_no_advice_where_none_is_wanted(compared):
    assert compared("statistics", advise=False).advice is None


def test_numbers_are_numbers_in_a_spreadsheet(compared):
    rows = rows_of(compared("tensor").path)
    good = named(rows, "float_f4_1e-03")
    assert isinstance(good["EucDist"], float)
    assert good["Accuracy Reached or Not"] == "Yes"
    assert named(rows, "opposed")["Accuracy Reached or Not"] == "No"
    assert named(rows, "shapes")["Cosine"] == "shape unmatched"
    assert named(rows, "shapes")["Accuracy Reached or Not"] == "Unmatched"
    assert named(rows, "nan_elsewhere")["Cosine"] == "N/A"
    assert named(rows, "scalar")["Accuracy Reached or Not"] == "None"
    assert good["Data_name"] == str(["Functional.float_f4_1e-03.0.forward.output.0.npy"] * 2)


def test_rows_are_coloured_across(compared):
    sheet = load_workbook(compared("tensor").path).active
    colours = {}
    for row in sheet.iter_rows(min_row=2):
        found = {cell.fill.fgColor.rgb if cell.fill.fill_type else None for cell in row}
        assert len(found) == 1
        colours[row[0].value] = found.pop()
    assert colours["Functional.inf_only_npu.0.forward.output.0"] == "FFFF0000"
    assert colours["Functional.opposed.0.forward.output.0"] == "FFFF0000"
    assert colours["Functional.equal.0.forward.output.0"] is None


# What cannot be read --------------------------------------------------------------------------------------------------


def spoil_file(change):
    def spoil(npu: Path, bench: Path) -> None:
        change(npu / "dump_tensor_data" / "Functional.equal.0.forward.output.0.npy")

    return spoil


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def objects(path: Path) -> None:
    np.save(path, np.array([{}, None], object), allow_pickle=True)


@pytest.mark.parametrize(
    "change", [truncate, objects, Path.unlink, lambda path: path.write_bytes(b""), lambda path: path.write_bytes(b"no array")]
)  # fmt: skip
def test_a_file_that_cannot_be_read_is_a_row_that_says_so(compared, change):
    older = compared("tensor", spoil=spoil_file(change))
    row = named(rows_of(older.path), "equal")
    assert (row["Cosine"], row["Accuracy Reached or Not"]) == ("unsupported", "None")
    assert "Functional.equal.0.forward.output.0.npy" in row["Err_message"]
    assert older.unread == 1
    assert "could not be read" in older.advice.read_text()


def test_in_the_newer_generation_it_is_an_error(compared):
    row = named(rows_of(compared("tensor", spoil=spoil_file(truncate), generation=NEWER).path), "equal")
    assert row["Result"] == "error"
    assert "equal.0.forward.output.0.npy" in json.loads(row["Err_message"])[0]


def test_a_file_of_another_shape_than_the_dump_says_is_named(compared):
    found = compared("tensor", spoil=spoil_file(lambda path: np.save(path, np.zeros((2, 7), "f4"))))
    row = named(rows_of(found.path), "equal")
    assert row["Accuracy Reached or Not"] == "None"
    assert f"Functional.equal.0.forward.output.0.npy: expected shape {row['NPU Tensor Shape']}" in row["Err_message"]
    assert "got [2, 7]" in row["Err_message"]
    assert found.unread == 1


def test_a_tensor_without_a_file_was_not_read(compared):
    def spoil(npu: Path, bench: Path) -> None:
        document = json.loads((npu / "dump.json").read_text())
        del document["data"]["Functional.equal.0.forward"]["output"][0]["data_name"]
        (npu / "dump.json").write_text(json.dumps(document))

    row = named(rows_of(compared("tensor", spoil=spoil, generation=NEWER).path), "equal")
    assert row["Result"] == "error"
    assert row["Data_name"].startswith("['-1', ")
    assert "NPU" in row["Err_message"]


def test_an_element_that_makes_no_sense_was_not_read(compared):
    def spoil(npu: Path, bench: Path) -> None:
        document = json.loads((npu / "dump.json").read_text())
        document["data"]["Functional.equal.0.forward"]["output"][0]["shape"] = "six"
        (npu / "dump.json").write_text(json.dumps(document))

    rows = rows_of(compared("statistics", spoil=spoil, generation=NEWER).path)
    assert named(rows, "equal")["Result"] == "error"


# Layouts --------------------------------------------------------------------------------------------------------------


def test_a_bench_that_lies_the_other_way_is_turned(tmp_path):
    values = np.arange(6, dtype="f4").reshape(2, 3)
    dumps = []
    for side, array in (("npu", values), ("bench", values.T.copy())):
        folder = tmp_path / side / "dump_tensor_data"
        folder.mkdir(parents=True)
        np.save(folder / "Functional.f.0.forward.output.0.npy", array)
        element = {"type": "mindspore.Tensor", "dtype": "Float32", "shape": [*array.shape], "Max": 5.0, "Min": 0.0, "Mean": 2.5,
                   "Norm": 7.4, "data_name": "Functional.f.0.forward.output.0.npy"}  # fmt: skip
        data = {"Functional.f.0.forward": {"input_args": [], "input_kwargs": {}, "output": [element]}}
        document = {"task": "tensor", "level": "L1", "framework": "mindspore", "dump_data_dir": None, "data": data}
        (tmp_path / side / "dump.json").write_text(json.dumps(document))
        dumps.append(open_dump(tmp_path / side))
    npu, bench = dumps
    for layout, cosine in ((Layout((1, 0)), 1.0), (Layout(), "shape unmatched")):
        pairs = [ItemPair(npu.items[0], bench.items[0], "by values", layout)]
        row = rows_of(write_result(npu, bench, pairs, Settings(tmp_path / "out")).path)[0]
        assert row["Cosine"] == cosine


# Files ----------------------------------------------------------------------------------------------------------------


def test_dumps_of_different_kinds_are_refused(tmp_path):
    npu = open_dump(write_twins(tmp_path / "a", "mindspore", "tensor")[0])
    bench = open_dump(write_twins(tmp_path / "b", "mindspore", "md5")[1])
    assert (mode_of(npu), mode_of(bench)) == (Mode.TENSOR, Mode.MD5)
    with pytest.raises(UsageError, match=r"tensor .*md5"):
        write_result(npu, bench, [], Settings(tmp_path / "out"))
    assert not (tmp_path / "out").exists() or not [*(tmp_path / "out").iterdir()]


@pytest.mark.parametrize("generation", Generation)
def test_a_comparison_that_breaks_leaves_nothing_behind(compared, monkeypatch, generation, tmp_path):
    def broken(rows, mode, generation):
        raise TwintraceError("half way")

    monkeypatch.setattr(flow, "colour", broken)
    with pytest.raises(TwintraceError, match="half way"):
        compared("statistics", generation=generation)
    assert not [*(tmp_path / "out").iterdir()]


def test_a_place_that_cannot_be_written_to_is_said(tmp_path, compared):
    (tmp_path / "out").write_text("a file")
    with pytest.raises(ReportError, match="out"):
        compared("statistics")


@pytest.mark.parametrize("generation", Generation)
def test_names_cannot_smuggle_formulas(tmp_path, generation):
    evil = "=cmd|' /C calc'!A0"
    for side in ("npu", "bench"):
        (tmp_path / side).mkdir()
        record = {"input_args": [{"type": "str", "value": "=1+1"}], "input_kwargs": {}, "output": []}
        document = {
            "task": "statistics",
            "level": "L1",
            "framework": "pytorch",
            "dump_data_dir": None,
            "data": {evil: record},
        }
        (tmp_path / side / "dump.json").write_text(json.dumps(document))
    npu, bench = open_dump(tmp_path / "npu"), open_dump(tmp_path / "bench")
    path = write_result(npu, bench, pair_items(npu, bench).pairs, Settings(tmp_path / "out", generation)).path
    if path.suffix == ".xlsx":
        cells = [cell for row in load_workbook(path).active.iter_rows() for cell in row]
        assert not [cell for cell in cells if cell.data_type == "f"]
    else:
        (row,) = rows_of(path)
        assert row["NPU Name"].startswith("'=")
        assert row["NPU max"] == "'=1+1"


def test_a_line_is_said_for_each_row_that_is_read(compared):
    said = []
    found = compared("tensor", say=said.append)
    assert len(said) == found.rows
    assert any(line.startswith("Functional.equal.0.forward.output.0: 1.0, 0.0") for line in said)


@pytest.mark.skipif(not hasattr(os, "wait4"), reason="asks Linux what a process needed")
@pytest.mark.slow
def test_memory_does_not_grow_with_the_tensors(tmp_path):
    """Four times as many tensors of 4 MB need no more memory than once."""
    from benchmarks.msprobe import Work, once, tools, write

    commands, _ = tools(False)
    peaks = []
    for count in (8, 8, 32):
        work = Work(f"tensors{count}", count, 1 << 20)
        if not (tmp_path / work.folder).exists():
            write(tmp_path, work)
        status, _, _, peak, said = once(commands["twintrace"], tmp_path, work)
        assert status == 0, said
        peaks.append(peak)
    assert peaks[2] < 1.15 * peaks[1]
