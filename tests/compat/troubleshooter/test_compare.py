"""api_dump_compare: what its tables and files say. Which call is which is the alignment's affair, and tested there."""

import csv
import math

import numpy as np
import pytest

import twintrace as tt
import twintrace.compat.troubleshooter as ts
from tests.compat.troubleshooter.dumps import table, write_dump
from twintrace.compat.troubleshooter.tables import in_their_words
from twintrace.model.errors import ReportError, TraceError, TraceNotFoundError, UsageError
from twintrace.store.native import write

RANDOM = np.random.default_rng(5)
X, H, Y = (RANDOM.standard_normal(shape).astype(np.float32) for shape in ((2, 3), (2, 4), (2, 4)))
G = RANDOM.standard_normal((2, 4)).astype(np.float32)
LEFT = {
    "NN_Dense_0_forward_input.0": X,
    "NN_Dense_0_forward_output": H,
    "NN_ReLU_0_forward_input.0": H,
    "NN_ReLU_0_forward_output": Y,
    "NN_ReLU_0_backward_input": G,
    "NN_Dense_0_backward_input": G * 2,
}
RIGHT = {name.replace("Dense", "Linear"): value for name, value in LEFT.items()}


def with_more(entries, more):
    """A forward goes on before its backward begins."""
    forward = {name: value for name, value in entries.items() if "forward" in name}
    return {**forward, **more, **entries}


@pytest.fixture
def compared(tmp_path, capsys):
    """`compared(left, right, …)`: (forward, backward, mapping) as rows, and what was printed."""

    def call(left, right, **options):
        if isinstance(left, dict):
            write_dump(tmp_path / "ms", left, "mindspore")
            write_dump(tmp_path / "pt", right)
        ts.migrator.api_dump_compare(tmp_path / "ms", tmp_path / "pt", tmp_path / "out", **options)
        files = [tmp_path / "out" / f"ts_api_{stem}.csv" for stem in ("forward_compare", "backward_compare", "mapping")]
        return *(table(file) if file.exists() else None for file in files), capsys.readouterr().out

    return call


def result(rows, name):
    """The last four cells of the row of this tensor."""
    return next(row[4:] for row in rows if name in (row[0] or row[1]))


def test_two_that_agree(compared):
    forward, backward, mapping, said = compared(LEFT, RIGHT)
    assert mapping == [["NN_Dense_0", "NN_Linear_0"], ["NN_ReLU_0", "NN_ReLU_0"]]
    assert [row[:4] for row in forward] == [
        ["NN_Dense_0_forward_input.0.npy", "NN_Linear_0_forward_input.0.npy", "(2, 3)", "(2, 3)"],
        ["NN_Dense_0_forward_output.npy", "NN_Linear_0_forward_output.npy", "(2, 4)", "(2, 4)"],
        ["NN_ReLU_0_forward_input.0.npy", "NN_ReLU_0_forward_input.0.npy", "(2, 4)", "(2, 4)"],
        ["NN_ReLU_0_forward_output.npy", "NN_ReLU_0_forward_output.npy", "(2, 4)", "(2, 4)"],
    ]
    assert [row[0] for row in backward] == ["NN_ReLU_0_backward_input.npy", "NN_Dense_0_backward_input.npy"]
    assert {tuple(row[4:]) for row in forward + backward} == {("True", "100.00%", "1.00000", "0.00000, 0.00000")}
    assert "first difference" not in said


def test_the_numbers_of_a_difference(compared):
    right = dict(RIGHT)
    right["NN_ReLU_0_forward_output"] = Y + np.array([[0.5, 0, 0, 0], [0, 0, 0, 1e-5]], np.float32)
    forward, _, _, said = compared(LEFT, right)
    allclose, ratio, cosine, diffs = result(forward, "NN_ReLU_0_forward_output")
    assert (allclose, ratio) == ("False", "87.50%")
    a, b = Y.astype(np.float64).ravel(), right["NN_ReLU_0_forward_output"].astype(np.float64).ravel()
    exact = a @ b / np.linalg.norm(a) / np.linalg.norm(b)
    assert cosine == f"{math.floor(exact * 1e5) / 1e5:.5f}"
    errors = np.abs(a - b)
    assert diffs == ", ".join(f"{math.floor(error * 1e5) / 1e5:.5f}" for error in (errors.mean(), errors.max()))
    assert (
        "The first difference (forward): NN_ReLU_0 beside NN_ReLU_0: what comes in agrees, what goes out does not."
        in said
    )
    assert result(compared(LEFT, right, atol=1)[0], "NN_ReLU_0_forward_output")[:2] == ["True", "100.00%"]


def test_a_tolerance_is_relative_to_the_target(compared):
    """As with numpy.allclose(origin, target)."""
    left, right = ({**side, "NN_ReLU_0_forward_output": Y * scale} for side, scale in ((LEFT, 1), (RIGHT, 2)))
    assert result(compared(left, right, rtol=0.51, atol=0)[0], "NN_ReLU_0_forward_output")[0] == "True"
    assert result(compared(right, left, rtol=0.51, atol=0)[0], "NN_ReLU_0_forward_output")[0] == "False"


@pytest.mark.parametrize(("equal_nan", "expected"), [(False, ["False", "87.50%"]), (True, ["True", "100.00%"])])
def test_nan_on_both_sides(compared, equal_nan, expected):
    odd = Y.copy()
    odd[0, 0] = np.nan
    sides = ({**side, "NN_ReLU_0_forward_output": odd} for side in (LEFT, RIGHT))
    forward = compared(*sides, equal_nan=equal_nan)[0]
    assert result(forward, "NN_ReLU_0_forward_output") == [*expected, "nan", "nan, nan"]


def test_an_api_without_a_partner_is_shown_with_the_reason(compared, tmp_path):
    extra = RANDOM.standard_normal((5, 5)).astype(np.float32)
    right = with_more(RIGHT, {"Torch_erf_0_forward_input.0": extra, "Torch_erf_0_forward_output": extra * 2})
    forward, _, mapping, said = compared(LEFT, right)
    assert mapping[-1] == ["", "Torch_erf_0"]
    assert [row[:2] for row in forward[-2:]] == [
        ["", f"Torch_erf_0_forward_{part}.npy"] for part in ("input.0", "output")
    ]
    assert forward[-1][2:] == ["", "(5, 5)", "False", "0.00%", "nan", "nan, nan"]
    reason = "the other side has no record of api calls"
    assert table(tmp_path / "out" / "ts_api_unmatched.csv") == [["Torch_erf_0", "TARGET NET (pytorch)", reason]]
    assert "The APIs without a partner" in said
    assert reason in said
    forward, _, mapping, said = compared(LEFT, right, ignore_unmatched=True)
    assert len(forward) == 4
    assert mapping[-1] == ["", "Torch_erf_0"]
    assert "without a partner" not in said


def test_without_backward(compared, tmp_path):
    assert compared(LEFT, RIGHT, ignore_backward=True)[1] is None
    assert not (tmp_path / "out" / "ts_api_backward_compare.csv").exists()


def test_several_calls_beside_one(compared, tmp_path):
    """A region stands in one row of the mapping, and is compared at its edge."""
    a, b, c, d = (RANDOM.standard_normal((3, 3)).astype(np.float32) for _ in range(4))
    left = with_more(LEFT, {
        "Functional_matmul_0_forward_input.0": Y, "Functional_matmul_0_forward_input.1": a, "Functional_matmul_0_forward_output": b,
        "Functional_add_0_forward_input.0": b, "Functional_add_0_forward_input.1": c, "Functional_add_0_forward_output": d,
    })  # fmt: skip
    right = with_more(RIGHT, {
        "Torch_addmm_0_forward_input.0": c, "Torch_addmm_0_forward_input.1": Y, "Torch_addmm_0_forward_input.2": a,
        "Torch_addmm_0_forward_output": d,
    })  # fmt: skip
    forward, _, mapping, said = compared(left, right)
    assert mapping[-1] == ["Functional_matmul_0\nFunctional_add_0", "Torch_addmm_0"]
    lines = said.splitlines()
    at = next(number for number, line in enumerate(lines) if "Functional_matmul_0" in line)
    assert [cell.strip() for cell in lines[at].strip("|").split("|")] == ["Functional_matmul_0", "Torch_addmm_0"]
    assert [cell.strip() for cell in lines[at + 1].strip("|").split("|")] == ["Functional_add_0", ""]
    last = {row[0]: row[1] for row in forward[4:]}
    assert last["Functional_add_0_forward_output.npy"] == "Torch_addmm_0_forward_output.npy"
    assert last["Functional_matmul_0_forward_output.npy"] == ""
    unmatched = {row[0]: row[1:] for row in table(tmp_path / "out" / "ts_api_unmatched_tensors.csv")}
    net, reason = unmatched["Functional_matmul_0_forward_output.npy"]
    assert net == "ORIGIN NET (mindspore)"
    assert reason.startswith("Functional_matmul_0 + Functional_add_0 and Torch_addmm_0 are compared as a whole")
    assert "The tensors without a partner" in said


def test_a_tensor_without_a_partner_has_a_reason(compared, tmp_path):
    extra = RANDOM.standard_normal(7).astype(np.float32)
    forward, *_ = compared(LEFT, {"NN_Linear_0_forward_input.0": X, "NN_Linear_0_forward_input.1": extra, **RIGHT})
    assert ["", "NN_Linear_0_forward_input.1.npy"] in [row[:2] for row in forward]
    assert table(tmp_path / "out" / "ts_api_unmatched_tensors.csv") == [
        ["NN_Linear_0_forward_input.1.npy", "TARGET NET (pytorch)", "nothing that NN_Dense_0 takes belongs to it"]
    ]
    assert "without a partner" not in compared(LEFT, RIGHT, ignore_unmatched=True)[-1]


def test_a_result_that_is_not_in_the_dump_is_not_denied(compared, tmp_path):
    right = with_more(
        RIGHT, {"Tensor_argmax_0_forward_input.0": Y, "Torch_erf_0_forward_input.0": Y, "Torch_erf_0_forward_output": Y}
    )
    left = with_more(LEFT, {"Functional_erf_0_forward_input.0": Y, "Functional_erf_0_forward_output": Y})
    compared(left, right)
    reasons = {row[0]: row[2] for row in table(tmp_path / "out" / "ts_api_unmatched.csv")}
    assert reasons["Tensor_argmax_0"] == "it puts out no tensor that was recorded"


def test_statistics_alone(compared, tmp_path):
    """Where one side has no values, the rows are compared."""
    write_dump(tmp_path / "ms", LEFT, "mindspore")
    write_dump(tmp_path / "pt", RIGHT)
    for file in (tmp_path / "pt" / "rank0" / "torch_api_dump").iterdir():
        file.unlink()
    forward, _, mapping, said = compared(None, None)
    assert len(mapping) == 2
    assert "max, min, mean diffs" in said
    assert forward[0][2:] == ["[2, 3]", "[2, 3]", "0.00000, 0.00000, nan"]


def test_a_file_that_cannot_be_read_costs_its_row(compared, tmp_path):
    write_dump(tmp_path / "ms", LEFT, "mindspore")
    write_dump(tmp_path / "pt", RIGHT)
    folder = tmp_path / "pt" / "rank0" / "torch_api_dump"
    (folder / "NN_ReLU_0_forward_output.npy").write_bytes(b"garbage")
    (folder / "NN_Linear_0_backward_input.npy").unlink()
    forward, backward, _, said = compared(None, None)
    assert [row[4] for row in forward[:3]] == ["True"] * 3
    assert "no npy file: it begins with b'garbage'" in result(forward, "NN_ReLU_0_forward_output")[0]
    assert "there is no " in result(backward, "NN_Dense_0_backward_input")[0]
    assert "torch_api_dump/NN_Linear_0_backward_input.npy" in result(backward, "NN_Dense_0_backward_input")[0]
    assert "pt is damaged in 1 place" in said


@pytest.mark.parametrize("harm", ["missing", "cut off", "garbage", "objects"])
@pytest.mark.parametrize("side", ["ms", "pt", "both"])
def test_statistics_are_no_answer_where_a_file_of_values_is_lost(compared, tmp_path, harm, side):
    """Rows whose extremes, mean and norm are those of the other side; every file that is lost is named at its own row."""

    def row(value, dtype):
        extremes = [float(value.max()), float(value.min()), float(value.mean())]
        return 1, [], dtype, list(value.shape), extremes, [], float(np.linalg.norm(value))

    for folder, stem, entries, dtype in (("ms", "mindspore", LEFT, "Float32"), ("pt", "torch", RIGHT, "torch.float32")):
        write_dump(tmp_path / folder, {name: row(value, dtype) for name, value in entries.items()}, stem)
        for name, value in entries.items():
            np.save(tmp_path / folder / "rank0" / f"{stem}_api_dump" / f"{name}.npy", value)
    lost = [name for name in RIGHT if name != "NN_Linear_0_forward_input.0"]
    for folder, stem in (("ms", "mindspore"), ("pt", "torch")):
        for name in lost if side in (folder, "both") else ():
            name = name if folder == "pt" else name.replace("Linear", "Dense")
            file = tmp_path / folder / "rank0" / f"{stem}_api_dump" / f"{name}.npy"
            raw = file.read_bytes()
            file.unlink()
            if harm == "objects":
                np.save(file, np.array([{1: 2}, None], dtype=object), allow_pickle=True)
            elif harm != "missing":
                file.write_bytes(raw[:-5] if harm == "cut off" else b"garbage")
    forward, backward, _, _ = compared(None, None)
    rows = forward + backward
    assert len(rows) == 6
    for origin, target, _, _, said, *numbers in rows:
        if target == "NN_Linear_0_forward_input.0.npy":
            assert (said, numbers) == ("True", ["100.00%", "1.00000", "0.00000, 0.00000"])
            continue
        assert numbers == ["0.00%", "nan", "nan, nan"]
        named = [part for part in said.replace(":", " ").replace(";", " ").split() if part.endswith(".npy")]
        here = [f"mindspore_api_dump/{origin}"] * (side != "pt") + [f"torch_api_dump/{target}"] * (side != "ms")
        assert ["/".join(part.split("/")[-2:]) for part in named] == here


def test_shapes_that_differ(compared):
    right = {**RIGHT, "NN_ReLU_0_forward_output": np.zeros((2, 5), np.float32)}
    forward = compared(LEFT, right)[0]
    partners = [row for row in forward if "NN_ReLU_0_forward_output.npy" in row[:2]]
    assert partners
    assert all(row[4] in ("False", "Shape is inconsistent") for row in partners)


def test_steps_and_ranks_have_tables_of_their_own(tmp_path, capsys):
    later = {name.replace("_0_", "_1_"): value for name, value in RIGHT.items()}
    for rank in (0, 1):
        for name in ("one", "two"):
            write_dump(tmp_path / name, {**RIGHT, **later}, rank=rank)
    ts.migrator.api_dump_compare(tmp_path / "one", tmp_path / "two", tmp_path / "out")
    stems = ("mapping", "forward_compare", "backward_compare")
    assert {file.name for file in (tmp_path / "out").iterdir()} == {
        f"ts_api_{stem}_{step}_rank{rank}.csv" for stem in stems for step in (0, 1) for rank in (0, 1)
    }
    assert "The forward comparison results (step 1, rank 0)" in capsys.readouterr().out


def test_a_step_on_one_side_only_is_told(tmp_path, capsys):
    later = {name.replace("_0_", "_1_"): value for name, value in RIGHT.items()}
    write_dump(tmp_path / "one", {**RIGHT, **later})
    write_dump(tmp_path / "two", RIGHT)
    ts.migrator.api_dump_compare(tmp_path / "one", tmp_path / "two")
    assert "only one of the two has it: step 1 of rank 0" in capsys.readouterr().err


def test_a_shorter_result_leaves_nothing_of_a_longer_one(compared, tmp_path):
    compared(LEFT, RIGHT)
    few = [name for name in LEFT if "Dense" in name]
    for folder, stem in (("ms", "mindspore"), ("pt", "torch")):
        for file in (tmp_path / folder / "rank0" / f"{stem}_api_dump").iterdir():
            file.unlink()
    forward, _, mapping, _ = compared(
        {name: LEFT[name] for name in few}, {name.replace("Dense", "Linear"): LEFT[name] for name in few}
    )
    assert (len(forward), len(mapping)) == (2, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rtol": -1}, "rtol: expected a number, 0 or more, got -1"),
        ({"atol": "1"}, "atol: expected a number"),
        ({"rtol": math.nan}, "rtol: expected a number"),
        ({"equal_nan": 1}, "equal_nan: expected True or False, got 1"),
        ({"ignore_unmatched": None}, "ignore_unmatched: expected True or False"),
        ({"convinced_match_method": "best"}, "convinced_match_method: expected one of recursion, global, simple"),
    ],
)
def test_what_cannot_be_asked_for(compared, options, message):
    with pytest.raises(UsageError, match=message):
        compared(LEFT, RIGHT, **options)


def test_what_is_no_dump(tmp_path):
    write_dump(tmp_path / "pt", RIGHT)
    (tmp_path / "file").write_text("")
    with pytest.raises(TraceNotFoundError, match=r"origin_path: .*nothing does not exist.* given to api_dump_init"):
        ts.migrator.api_dump_compare(tmp_path / "nothing", tmp_path / "pt")
    (tmp_path / "empty").mkdir()
    with pytest.raises(TraceNotFoundError, match=r"target_path: .*empty is no dump: .* given to api_dump_init"):
        ts.migrator.api_dump_compare(tmp_path / "pt", tmp_path / "empty")
    with pytest.raises(UsageError, match="target_path: expected the folder that was given to api_dump_init, got None"):
        ts.migrator.api_dump_compare(tmp_path / "pt", None)
    with pytest.raises(ReportError, match=r"output_path: .*file: expected a folder, found a file in the way"):
        ts.migrator.api_dump_compare(tmp_path / "pt", tmp_path / "pt", tmp_path / "file")


def test_a_trace_of_another_layout_is_told_what_to_do(tmp_path):
    write_dump(tmp_path / "pt", RIGHT)
    write(tt.open(tmp_path / "pt"), tmp_path / "native")
    with pytest.raises(UsageError, match=r"layout twintrace.*Use tt.compare for it, or `twintrace export"):
        ts.migrator.api_dump_compare(tmp_path / "pt", tmp_path / "native")


def test_the_csv_is_quoted_throughout(compared, tmp_path):
    compared(LEFT, RIGHT)
    text = (tmp_path / "out" / "ts_api_mapping.csv").read_text()
    assert text.splitlines()[0] == '"ORIGIN NET (mindspore)","TARGET NET (pytorch)"'
    assert all(line.count('"') >= 4 for line in text.splitlines())
    assert list(csv.reader(text.splitlines()))[1] == ["NN_Dense_0", "NN_Linear_0"]


def test_sides_are_called_origin_and_target(compared, tmp_path):
    write_dump(tmp_path / "zero", RIGHT)
    write_dump(tmp_path / "one", RIGHT, rank=1)
    with pytest.raises(TraceError, match=r"zero \(origin_path\) has rank 0, .*one \(target_path\) has rank 1"):
        ts.migrator.api_dump_compare(tmp_path / "zero", tmp_path / "one")
    odd = Y.copy()
    odd[0, 0] = np.nan
    said = compared({**LEFT, "NN_ReLU_0_forward_output": odd}, RIGHT)[-1]
    assert " left" not in said
    assert " right" not in said


def test_our_sentences_in_their_words():
    assert in_their_words("left: no file; right: cut off") == "target: no file; origin: cut off"
    assert (
        in_their_words("NaN in 1 elements on the left, 2 on the right")
        == "NaN in 1 elements in the target, 2 in the origin"
    )
    assert in_their_words("/data/left: cut off") == "/data/left: cut off"
