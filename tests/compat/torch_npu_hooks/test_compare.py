"""`compare`: the csv, the two sets of numbers, what is skipped, what is refused."""

import math
from pathlib import Path

import numpy as np
import pytest

from tests.compat.torch_npu_hooks.dumps import table, tensor, write_dump
from twintrace import api
from twintrace.compat.torch_npu_hooks import recording, register_acc_cmp_hook, set_dump_path
from twintrace.compat.torch_npu_hooks.tools import compare
from twintrace.model.errors import TraceError, TraceFormatError, TraceNotFoundError, TraceWriteError, UsageError
from twintrace.store import native

COLUMNS = "Name,Npu Tensor Dtype,Bench Tensor Dtype,Npu Tensor Shape,Bench Tensor Shape,Cosine,RMSE,MAPE"


@pytest.fixture
def score(tmp_path):
    """`score(npu, bench)`: the row of one tensor."""

    def of(npu, bench, **options):
        lines = [
            [tensor("Torch_relu_forward_input.0", [1.0, 2.0, 3.0]), tensor("Torch_relu_forward_output", values)]
            for values in (npu, bench)
        ]
        paths = [write_dump(tmp_path / f"{name}.pkl", part) for name, part in zip(("npu", "cpu"), lines, strict=True)]
        compare(*paths, tmp_path / "out.csv", **options)
        row = table(tmp_path / "out.csv")[1]
        return row["Cosine"], row["RMSE"], row["MAPE"]

    return of


def test_the_csv(tmp_path, capsys):
    npu = [
        tensor("Torch_relu_forward_input.0", [1.0, 2.0], [2, 1]),
        tensor("Torch_relu_forward_output", [1.0, 2.5], [2, 1]),
    ]
    cpu = [npu[0], ["Torch_relu_forward_output", [1.0, 2.0], "torch.float16", [2, 1]]]
    compare(write_dump(tmp_path / "npu.pkl", npu), write_dump(tmp_path / "cpu.pkl", cpu), tmp_path / "out.csv")
    head, first, second = (tmp_path / "out.csv").read_text().splitlines()
    assert head == COLUMNS
    assert first == 'Torch_relu_forward_input.0,torch.float32,torch.float32,"[2, 1]","[2, 1]",1.0,0.0,0%'
    names, cosine, rmse, mape = second.rsplit(",", 3)
    assert names == 'Torch_relu_forward_output,torch.float32,torch.float16,"[2, 1]","[2, 1]"'
    assert float(cosine) == pytest.approx(6 / math.sqrt(7.25 * 5), rel=1e-12)
    assert float(rmse) == pytest.approx(0.5 / math.sqrt(2), rel=1e-12)
    assert mape == "12.5%"
    assert (tmp_path / "out_skipped.csv").read_text() == "Side,Name,Line,Tensors,Because\n"
    told = capsys.readouterr().out
    assert "2 tensors compared, 0 calls skipped" in told
    assert "out_skipped.csv" in told


def test_numbers_by_their_definitions(score):
    npu, bench = np.array([1.0, -2.0, 3.5]), np.array([1.5, -2.0, 3.0])
    cosine, rmse, mape = score(npu.tolist(), bench.tolist())
    assert float(cosine) == pytest.approx(npu @ bench / (np.linalg.norm(npu) * np.linalg.norm(bench)), rel=1e-12)
    assert float(rmse) == pytest.approx(math.sqrt(np.mean((npu - bench) ** 2)), rel=1e-12)
    assert float(mape.removesuffix("%")) == pytest.approx(100 * np.mean(np.abs((npu - bench) / bench)), rel=1e-9)


@pytest.mark.parametrize(
    ("npu", "bench", "default", "legacy"),
    [
        ([1.0, 0.0], [0.0, 2.0], ("0.0", None, "nan"), ("0.5", None, "inf%")),
        ([1.0, 2.0], [-1.0, -2.0], ("-1.0", None, "200%"), ("0.0", None, "200.0%")),
        ([1.0, 3.0], [1.0, 3.0], ("1.0", "0.0", "0%"), (None, "0.0", "0.0%")),
        ([0.0, 3.0], [0.0, 3.0], ("1.0", "0.0", "nan"), ("1.0", "0.0", "nan%")),
        ([0.0, 0.0], [0.0, 0.0], ("nan", "0.0", "nan"), ("nan", "0.0", "nan%")),
        ([0.0, 1.0], [0.0, 0.0], ("nan", None, "nan"), ("nan", None, "nan%")),
        ([math.nan, 1.0], [1.0, 1.0], ("nan", "nan", "nan"), ("nan", "", "nan%")),
        ([math.inf, 1.0], [math.inf, 1.0], ("nan", "nan", "nan"), ("nan", "", "nan%")),
        ([1.00001, 2.0], [1.0, 2.0], (None, None, None), (None, None, "0.0005%")),
    ],
    ids=["orthogonal", "opposed", "equal", "a zero", "zeros", "zero bench", "nan", "inf", "rounded"],
)
def test_edges(score, npu, bench, default, legacy):
    for options, expected in (({}, default), ({"legacy": True}, legacy)):
        found = score(npu, bench, **options)
        for cell, wanted in zip(found, expected, strict=True):
            assert wanted is None or cell == wanted or float(cell) == pytest.approx(float(wanted), abs=1e-15), (
                options,
                found,
            )


def test_legacy_is_half_a_cosine_more(score):
    npu, bench = [1.0, 2.0, -3.0], [1.5, 1.0, 1.0]
    default, legacy = score(npu, bench), score(npu, bench, legacy=True)
    assert float(legacy[0]) == pytest.approx(0.5 + 0.5 * float(default[0]), rel=1e-12)
    assert float(legacy[1]) == pytest.approx(float(default[1]), rel=1e-12)
    assert legacy[2] == f"{round(float(default[2].removesuffix('%')), 4)}%"


def test_other_shapes_are_skipped_unless_asked_for(tmp_path):
    same = [tensor("Torch_relu_forward_output", [5.0, 6.0, 7.0])]
    npu = [*same, tensor("Torch_sum_forward_input.0", [1.0, 2.0]), tensor("Torch_sum_forward_output", [3.0], [])]
    cpu = [*same, tensor("Torch_sum_forward_input.0", [1.0, 2.0]), tensor("Torch_sum_forward_output", [3.0], [1])]
    paths = write_dump(tmp_path / "npu.pkl", npu), write_dump(tmp_path / "cpu.pkl", cpu)
    compare(*paths, tmp_path / "out.csv")
    assert [row["Name"] for row in table(tmp_path / "out.csv")] == ["Torch_relu_forward_output"]
    skipped = table(tmp_path / "out_skipped.csv")
    assert [(row["Side"], row["Line"]) for row in skipped] == [("bench", "2"), ("npu", "2")]
    assert "other shapes: f32[] beside f32[1]" in skipped[0]["Because"]
    for legacy, blank in ((False, ""), (True, " ")):
        compare(*paths, tmp_path / "out.csv", False, legacy=legacy)
        row = table(tmp_path / "out.csv")[2]
        assert (row["Cosine"], row["RMSE"], row["MAPE"]) == (
            f"cannot be calculated{blank}",
            *["cannot be calculated"] * 2,
        )


def test_nothing_in_common(tmp_path):
    npu = write_dump(tmp_path / "npu.pkl", [tensor("Torch_relu_forward_output", [1.0, 4.0])])
    cpu = write_dump(tmp_path / "cpu.pkl", [tensor("Functional_linear_forward_output", [7.0] * 9, [3, 3])])
    with pytest.raises(TraceError, match=r"nothing in common: .*Torch_relu ×1.*Functional_linear ×1"):
        compare(npu, cpu, tmp_path / "out.csv")
    assert not (tmp_path / "out.csv").exists()
    (tmp_path / "empty.pkl").write_text("")
    with pytest.raises(TraceError, match=r"nothing in common.*none at all"):
        compare(tmp_path / "empty.pkl", cpu, tmp_path / "out.csv")


def test_what_cannot_be_read_or_written(tmp_path):
    good = write_dump(tmp_path / "a.pkl", [tensor("Torch_relu_forward_output", [1.0])])
    (tmp_path / "pickle.pkl").write_bytes(b"\x80\x04N.")
    for path, error, said in (
        (tmp_path / "gone.pkl", TraceNotFoundError, "does not exist"),
        (tmp_path / "pickle.pkl", TraceFormatError, "a real pickle"),
    ):
        for pair in ((path, good), (good, path)):
            with pytest.raises(error, match=said):
                compare(*pair, tmp_path / "out.csv")
    native.write(api.open(good), tmp_path / "ours")
    with pytest.raises(UsageError, match=r"a trace in the layout twintrace.*Use tt\.compare"):
        compare(good, tmp_path / "ours", tmp_path / "out.csv")
    with pytest.raises(UsageError, match="is a directory"):
        compare(good, good, tmp_path)
    with pytest.raises(UsageError, match="none does not exist"):  # before anything is read, which may take minutes
        compare(tmp_path / "gone.pkl", good, tmp_path / "none" / "out.csv")
    with pytest.raises(TraceWriteError, match="cannot be written"):
        compare(good, good, Path("/proc/folder.csv"))


def test_a_torn_dump_is_compared_as_far_as_it_goes_and_that_is_said(tmp_path, capsys):
    lines = [tensor("Torch_relu_forward_output", [1.0, 2.0]), tensor("Torch_tanh_forward_output", [3.0, 4.0])]
    npu, cpu = write_dump(tmp_path / "npu.pkl", lines), write_dump(tmp_path / "cpu.pkl", lines)
    npu.write_bytes(npu.read_bytes()[:-5])
    compare(npu, cpu, tmp_path / "out.csv")
    assert [row["Name"] for row in table(tmp_path / "out.csv")] == ["Torch_relu_forward_output"]
    assert [row["Name"] for row in table(tmp_path / "out_skipped.csv")] == ["Torch_tanh_forward"]
    assert "the last line is torn" in capsys.readouterr().out


def test_values_that_a_dump_lacks(tmp_path):
    lines = [tensor("Torch_relu_forward_input.0", [1.0, 2.0]), tensor("Torch_relu_forward_output", [], [2])]
    paths = write_dump(tmp_path / "npu.pkl", lines), write_dump(tmp_path / "cpu.pkl", lines)
    for legacy in (False, True):
        compare(*paths, tmp_path / "out.csv", legacy=legacy)
        assert table(tmp_path / "out.csv")[1]["RMSE"] == "cannot be calculated"


def test_the_terminal_shows_a_few_and_the_file_has_all(tmp_path, capsys):
    shared = tensor("Torch_relu_forward_output", [1.0, 2.0])
    extra = [tensor(f"Torch_op{i}_forward_output", [float(i), 1.0, 3.0]) for i in range(12)]
    npu, cpu = write_dump(tmp_path / "npu.pkl", [shared, *extra]), write_dump(tmp_path / "cpu.pkl", [shared])
    compare(npu, cpu, tmp_path / "out.csv")
    told = capsys.readouterr().out
    assert "12 calls skipped" in told
    assert told.count("skipped npu line") == 8
    assert "and 4 more" in told
    assert [row["Line"] for row in table(tmp_path / "out_skipped.csv")] == [str(n) for n in range(2, 14)]


def test_a_numbered_dump_is_compared_with_a_plain_one(tmp_path):
    """The later generations put numbers into the names; the operations are the same."""
    plain = [tensor("Torch_relu_forward_input.0", [1.0, 2.0]), tensor("Torch_relu_forward_output", [1.0, 2.0])]
    late = [[f"{number}_{line[0]}", *line[1:]] for number, line in enumerate(plain)]
    compare(write_dump(tmp_path / "npu.pkl", late), write_dump(tmp_path / "cpu.pkl", plain), tmp_path / "out.csv")
    assert [row["Name"] for row in table(tmp_path / "out.csv")] == [line[0] for line in late]


def test_dumps_of_ptdbg_are_compared_too(tmp_path):
    for name, value in (("npu", 2.5), ("cpu", 2.0)):
        home = tmp_path / name / "ptdbg_dump_v2.0" / "rank0"
        (home / "dump").mkdir(parents=True)
        line = ["Functional_relu_0_forward_output", 0, [], "torch.float32", [2], [value, value, value]]
        write_dump(home / "dump.pkl", [line])
        np.save(home / "dump" / f"{line[0]}.npy", np.full(2, value, np.float32))
    compare(tmp_path / "npu" / "ptdbg_dump_v2.0", tmp_path / "cpu" / "ptdbg_dump_v2.0", tmp_path / "out.csv")
    (row,) = table(tmp_path / "out.csv")
    assert (row["Name"], row["RMSE"], row["MAPE"]) == ("Functional_relu_0_forward_output", "0.5", "25%")


# --- recorded -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def recorded(tmp_path):
    """`recorded(bench, npu, x)`: both recorded, forward and backward; the rows and what was skipped."""
    pytest.importorskip("torch")

    def of(bench, npu, x):
        for model, name in ((bench, "cpu"), (npu, "npu")):
            register_acc_cmp_hook(model)
            set_dump_path(tmp_path / f"{name}.pkl")
            model(x).pow(2).sum().backward()
        recording.close()
        compare(tmp_path / "npu.pkl", tmp_path / "cpu.pkl", tmp_path / "out.csv")
        return table(tmp_path / "out.csv"), table(tmp_path / "out_skipped.csv")

    return of


@pytest.mark.needs_torch
def test_an_operation_that_is_fused_on_one_side(recorded):
    """The bench multiplies and adds, the npu does both at once: skipped on both sides, and all others pair."""
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self, fused):
            super().__init__()
            generator = torch.Generator().manual_seed(0)
            self.fused = fused
            self.weights = nn.ParameterList(nn.Parameter(torch.randn(4, 4, generator=generator)) for _ in range(3))
            self.bias = nn.Parameter(torch.randn(4, generator=generator))

        def forward(self, x):
            x = torch.tanh(torch.matmul(x, self.weights[0]))
            middle = (
                torch.addmm(self.bias, x, self.weights[1])
                if self.fused
                else torch.matmul(x, self.weights[1]) + self.bias
            )
            return torch.matmul(torch.sigmoid(middle), self.weights[2])

    rows, skipped = recorded(Net(False), Net(True), torch.randn(3, 4, generator=torch.Generator().manual_seed(1)))
    counts = {
        name: sum(row["Name"] == f"{name}_forward_output" for row in rows) for name in ("Torch_matmul", "Torch_tanh")
    }
    assert counts == {"Torch_matmul": 2, "Torch_tanh": 1}
    assert {row["Name"].split("_forward_")[0].split("_backward_")[0] for row in rows} == {
        "Torch_matmul", "Torch_tanh", "Torch_sigmoid", "Tensor_pow", "Tensor_sum",
    }  # fmt: skip
    assert all(float(row["RMSE"]) < 1e-6 for row in rows), "what is paired belongs together"
    assert {(row["Side"], row["Name"]) for row in skipped if row["Name"].endswith("_forward")} == {
        ("npu", "Torch_addmm_forward"), ("bench", "Torch_matmul_forward"), ("bench", "Tensor_add_forward"),
    }  # fmt: skip


@pytest.mark.needs_torch
@pytest.mark.parametrize("place", range(4))
def test_an_extra_operation_of_the_same_name(recorded, place):
    """One Linear more on the npu: wherever it stands, the others pair by their weights."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(4, 4), nn.ELU()) for _ in range(3)]
    longer = [*layers[:place], nn.Sequential(nn.Linear(4, 4), nn.ELU()), *layers[place:]]
    rows, skipped = recorded(nn.Sequential(*layers), nn.Sequential(*longer), torch.randn(2, 4, requires_grad=True))
    weights = [row for row in rows if row["Name"] == "Functional_linear_forward_input.1"]
    assert [row["RMSE"] for row in weights] == ["0.0"] * 3
    extra = ("Functional_linear", "Module_Linear", "Functional_elu", "Module_ELU")
    expected = {("npu", f"{name}_{direction}") for name in extra for direction in ("forward", "backward")}
    assert {(row["Side"], row["Name"]) for row in skipped} == expected
    forward = [int(row["Line"]) for row in skipped if row["Name"].endswith("forward")]
    assert sorted(forward) == [10 * place + offset for offset in (1, 5, 7, 9)], "the extra calls, and no others"
