"""`ts.migrator`'s functions about folders of arrays: every keyword, and everything that may be wrong with a folder."""

import csv
import io
import math

import numpy as np
import pytest

import twintrace.compat.troubleshooter as ts
from twintrace.compat.troubleshooter.tables import Scores
from twintrace.model.errors import ReportError, UsageError

X = np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)


@pytest.fixture
def folders(tmp_path):
    sides = tmp_path / "orig", tmp_path / "target"

    def write(orig, target):
        for folder, arrays in zip(sides, (orig, target), strict=True):
            folder.mkdir(exist_ok=True)
            for name, array in arrays.items():
                if isinstance(array, bytes):
                    (folder / f"{name}.npy").write_bytes(array)
                else:
                    np.save(folder / f"{name}.npy", array, allow_pickle=np.asarray(array).dtype == object)
        return sides

    return write


def rows(table):
    """Name of the orig -> the rest of the row."""
    lines = [line for line in table.splitlines() if line.startswith("|")][2:]
    found = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return {row[0]: row[1:] for row in found}


def test_the_table_is_printed_and_returned(folders, capsys):
    table = ts.migrator.compare_npy_dir(*folders({"a": X}, {"a": X}))
    out, err = capsys.readouterr()
    assert out == table + "\n"
    assert "[*User Attention*] The compare directory information:" in err


def test_one_bad_file_is_a_row_that_says_so(folders):
    whole = io.BytesIO()
    np.save(whole, np.zeros(3, np.float32))
    cut = whole.getvalue()[:-1]
    bad = {
        "1_objects": np.array([{}], object),
        "2_cut": cut,
        "3_empty": b"",
        "4_garbage": b"garbage",
        "5_text": np.array(["a"]),
    }
    sides = folders({"0_good": X, **bad, "6_alone": X}, {"0_good": X, **dict.fromkeys(bad, X), "7_alone": X})
    found = rows(ts.migrator.compare_npy_dir(*sides))
    assert list(found) == ["0_good.npy", *(f"{name}.npy" for name in bad), "6_alone.npy", "None"]
    assert found["0_good.npy"] == ["0_good.npy", "True", "100.00%", "1.00000", "0.00000, 0.00000"]
    for name, sentence in {
        "1_objects": "Python objects are never loaded: they can run code",
        "2_cut": "2_cut.npy: cut off: expected 140 bytes, found 139",
        "3_empty": "3_empty.npy: no npy file: it is empty",
        "4_garbage": "4_garbage.npy: no npy file: it begins with b'garbage'",
        "5_text": "elements of type '<U1', expected numbers",
    }.items():
        verdict, *numbers = found[f"{name}.npy"][1:]
        assert verdict.startswith("Cannot be read: ")
        assert sentence in verdict
        assert numbers == ["0.00%", "nan", "nan, nan"]
    assert found["6_alone.npy"] == ["None", "False", "0.00%", "nan", "nan, nan"]
    assert found["None"][0] == "7_alone.npy"


def test_pairs_by_hand(folders):
    sides = folders({"a": X, "b": X, "LAYER_x": X}, {"x": X, "y": X + 1})
    pairs = [("a", "x"), ("a.npy", "y.npy"), ("b", "gone"), (None, "x"), ["nowhere", None], ("LAYER_x", None)]
    table = ts.migrator.compare_npy_dir(*sides, name_map_list=pairs, compare_shape=True)
    lines = [line for line in table.splitlines() if line.startswith("|")][2:]
    found = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    assert [row[:5] for row in found] == [
        ["a", "x", "(4, 5)", "(4, 5)", "True"],
        ["a.npy", "y.npy", "(4, 5)", "(4, 5)", "False"],
        ["b", "gone", "(4, 5)", "None", "There is no gone.npy"],
        ["None", "x", "None", "(4, 5)", "False"],
        ["nowhere", "None", "None", "None", "There is no nowhere.npy"],
    ]


def test_tolerances_are_relative_to_the_target(folders):
    sides = folders({"x": np.array([1.0])}, {"x": np.array([1.1])})
    assert rows(ts.migrator.compare_npy_dir(*sides, 0.095, 0.0))["x.npy"][1] == "True"
    assert rows(ts.migrator.compare_npy_dir(*sides[::-1], 0.095, 0.0))["x.npy"][1] == "False"


def test_equal_nan(folders):
    nan = X.copy()
    nan[0] = np.nan
    sides = folders({"x": nan}, {"x": nan})
    assert rows(ts.migrator.compare_npy_dir(*sides))["x.npy"][1:] == ["False", "75.00%", "nan", "nan, nan"]
    equal = rows(ts.migrator.compare_npy_dir(*sides, equal_nan=True))["x.npy"][1:]
    assert equal == ["True", "100.00%", "1.00000", "0.00000, 0.00000"]


def test_values_below_atol_are_warned_about(folders, capsys):
    sides = folders({"x": X * 1e-6}, {"x": -X * 1e-6})
    assert rows(ts.migrator.compare_npy_dir(*sides))["x.npy"][1] == "True"
    assert (
        "Within the tolerances only because every value is below atol 0.0001: 1 pair, first x.npy"
        in capsys.readouterr().err
    )


def test_title_and_heads(folders):
    names = ["one", "two", "three", "four", "five", "six"]
    table = ts.migrator.compare_npy_dir(*folders({"x": X}, {"x": X}), title="A title", field_names=names)
    lines = table.splitlines()
    assert lines[1].strip("| ") == "A title"
    assert [cell.strip() for cell in lines[3].strip("|").split("|")] == names
    with pytest.raises(UsageError, match="expected 6 names, got 2"):
        ts.migrator.compare_npy_dir(*folders({}, {}), field_names=["one", "two"])


def test_a_csv_beside_it(folders, tmp_path, monkeypatch):
    sides = folders({"x": X, "y": X}, {"x": X, "y": X[0]})
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.csv").write_text("a longer text that was there before\n" * 100)
    ts.migrator.compare_npy_dir(*sides, output_file="r.csv")
    with (tmp_path / "r.csv").open(newline="") as file:
        found = list(csv.reader(file))
    assert found == [
        ["orig array name", "target array name", "result of allclose", "ratio of allclose", "cosine similarity",
         "mean & max diffs"],
        ["x.npy", "x.npy", "True", "100.00%", "1.00000", "0.00000, 0.00000"],
        ["y.npy", "y.npy", "Shape is inconsistent", "0.00%", "nan", "nan, nan"],
    ]  # fmt: skip
    with pytest.raises(ReportError, match="a folder that does not exist"):
        ts.migrator.compare_npy_dir(*sides, output_file="gone/r.csv")


def test_every_variant_compares(folders):
    sides = folders({"0_a1": X, "1_a0": X[0]}, {"1_a0": X[0], "0_a1": X})
    for function in ("compare_npy_dir", "compare_grads_dir", "compare_list_dir", "compare_dict_dir"):
        table = getattr(ts.migrator, function)(*sides, num_processes=1)
        assert {row[-4] for row in rows(table).values()} == {"True"}, function
    by_hand = ts.migrator.compare_grads_dir(*sides, name_map_list=[("0_a1", "1_a0")])
    assert rows(by_hand)["0_a1"][3] == "Shape is inconsistent"


def test_what_cannot_be_compared_is_refused(folders, tmp_path):
    sides = folders({"x": X}, {})
    with pytest.raises(UsageError, match=r"target_dir: expected \.npy files"):
        ts.migrator.compare_npy_dir(*sides)
    with pytest.raises(UsageError, match="orig_dir: expected a folder"):
        ts.migrator.get_name_map_list_by_number(tmp_path / "gone", sides[0])
    with pytest.raises(UsageError, match="orig_dir: expected a folder"):
        ts.migrator.compare_grads_dir(None, sides[0])
    with pytest.raises(UsageError, match="name_map_list: expected pairs of names"):
        ts.migrator.compare_npy_dir(sides[0], sides[0], name_map_list=["ab", ("x",)])


def test_warnings_of_the_maps(folders, capsys):
    sides = folders({"0_a": X, "1_b": X[0]}, {"0_a": X})
    ts.migrator.get_name_map_list_by_name(*sides)
    assert "cannot be fully mapped" in capsys.readouterr().err
    ts.migrator.get_name_map_list_by_number(*sides)
    assert "in the original directory is 2, Number of files in the target directory is 1" in capsys.readouterr().err
    ts.migrator.get_name_map_list_by_shape_edit_distance(*sides)
    assert "shapes are inconsistent" in capsys.readouterr().err
    for function in ("name", "number", "shape_edit_distance"):
        getattr(ts.migrator, f"get_name_map_list_by_{function}")(sides[0], sides[0])
    assert capsys.readouterr().err == ""


def test_names_with_and_without_numbers_may_be_mixed(folders):
    sides = folders({"0_a": X, "b": X}, {"0_a": X, "b": X})
    assert ts.migrator.get_name_map_list_by_number(*sides) == [("0_a.npy", "0_a.npy"), ("b.npy", "b.npy")]


def test_two_arrays():
    assert ts.migrator.cal_algorithm(X, X, 1e-4, 1e-4, False) == (True, 1.0, 1.0, (0.0, 0.0))
    assert ts.migrator.cal_algorithm(X, X.T, 1e-4, 1e-4, False)[0] == "Shape is inconsistent"
    assert ts.migrator.cal_algorithm(X, None, 1e-4, 1e-4, False)[:2] == (False, 0)
    close, ratio, cosine, (mean, largest) = ts.migrator.cal_algorithm(X, X + 1, 1e-4, 1e-4, False)
    assert (close, ratio) == (False, 0.0)
    assert cosine == pytest.approx(ts.migrator.cal_cosine_sim(X, X + 1))
    assert mean == pytest.approx(1, rel=1e-6)
    assert largest == pytest.approx(1, rel=1e-6)
    assert isinstance(ts.migrator.cal_algorithm(X, X, 1e-4, 1e-4, False), Scores)
    with pytest.raises(UsageError, match="expected arrays of numbers"):
        ts.migrator.cal_algorithm(np.array(["a"]), np.array(["a"]), 1e-4, 1e-4, False)


def test_cosines():
    assert ts.migrator.cal_cosine_sim(X, 2 * X) == pytest.approx(1)
    assert ts.migrator.cal_cosine_sim(np.zeros(3), np.zeros(3)) == 1
    assert math.isnan(ts.migrator.cal_cosine_sim(np.zeros(3), np.ones(3)))
    assert math.isnan(ts.migrator.cal_cosine_sim(np.array([np.nan]), np.ones(1)))


def test_objects_are_json(tmp_path):
    ts.widget.object_dump({"a": [1, 2.5, None]}, tmp_path / "o.json")
    assert ts.widget.object_load(tmp_path / "o.json") == {"a": [1, 2.5, None]}
    with pytest.raises(UsageError, match="which JSON can hold"):
        ts.widget.object_dump({1, 2}, tmp_path / "o.json")
    (tmp_path / "o.json").write_bytes(b"\x80\x04K\x01.")
    with pytest.raises(UsageError, match="expected a file of JSON"):
        ts.widget.object_load(tmp_path / "o.json")


@pytest.mark.needs_torch
def test_gradients_of_a_torch_net():
    torch = pytest.importorskip("torch")
    net = torch.nn.Linear(3, 2)
    assert ts.widget.get_pt_grads(net) == {"weight_0": None, "bias_1": None}
    net(torch.ones(1, 3)).sum().backward()
    assert [*ts.widget.get_pt_grads(net)] == ["weight_0", "bias_1"]
    assert ts.widget.get_pt_grads(net)["bias_1"] is net.bias.grad
    with pytest.raises(UsageError, match=r"expected a torch\.nn\.Module, got dict"):
        ts.widget.get_pt_grads({})


@pytest.mark.needs_mindspore
def test_loading_into_a_mindspore_net(tmp_path):
    ms = pytest.importorskip("mindspore")
    source, target = ms.nn.Dense(3, 2), ms.nn.Dense(3, 2)
    ms.save_checkpoint(source, str(tmp_path / "n.ckpt"))
    ts.widget.load_ms_weight2net(target, tmp_path / "n.ckpt")
    np.testing.assert_array_equal(target.weight.asnumpy(), source.weight.asnumpy())


@pytest.mark.parametrize("name", ["save_convert", "precision_tracker"])
def test_names_that_are_left_out_say_so(name):
    with pytest.raises(UsageError, match=f"ts.widget.{name} is left out: "):
        getattr(ts.widget, name)


def test_dicts_are_compared_by_their_keys(tmp_path, capsys):
    """In whatever order they were saved, and under whatever name; the real tool pairs equal file names only."""
    for folder, names, keys in (("one", "pt", "abc"), ("two", "ms", "cab"), ("three", "pt", "ad")):
        (tmp_path / folder).mkdir()
        for number, key in enumerate(keys):
            np.save(tmp_path / folder / f"{names}.{key}_float32_{number}.npy", np.full(3, ord(key), np.float32))
    table = ts.migrator.compare_dict_dir(tmp_path / "one", tmp_path / "two")
    pairs = [[cell.strip() for cell in line.split("|")[1:4]] for line in table.splitlines() if ".npy" in line]
    assert pairs == [
        ["pt.a_float32_0.npy", "ms.a_float32_1.npy", "True"],
        ["pt.b_float32_1.npy", "ms.b_float32_2.npy", "True"],
        ["pt.c_float32_2.npy", "ms.c_float32_0.npy", "True"],
    ]
    table = ts.migrator.compare_dict_dir(tmp_path / "one", tmp_path / "three")
    assert table.count("True") == 1
    assert table.count("None") == 3
    assert "Some keys are in one of the two directories only" in capsys.readouterr().err


def test_a_dict_of_the_real_tool_beside_one_of_ours(tmp_path):
    for folder, names in (("one", ("0_data.a", "1_data.b")), ("two", ("data.b_float32_0", "data.a_float32_1"))):
        (tmp_path / folder).mkdir()
        for name in names:
            np.save(tmp_path / folder / f"{name}.npy", np.full(3, "a" in name.partition(".")[2][:1], np.float32))
    assert ts.migrator.compare_dict_dir(tmp_path / "one", tmp_path / "two").count("True") == 2


def test_a_cosine_of_float32_is_printed_as_the_real_tool_prints_it():
    """1 - 1e-8 is 1 in float32, in which that tool computes; cut off as a float64 it would be 0.99999."""
    ones = np.ones(1000, np.float32)
    other = ones.copy()
    other[::2] += np.float32(1e-4)
    assert ts.migrator.cal_algorithm(ones, other, 1e-3, 1e-3, False).cells[2] == "1.00000"
    assert ts.migrator.cal_algorithm(ones.astype(float), other.astype(float), 1e-3, 1e-3, False).cells[2] == "0.99999"
