"""`twintrace msprobe compare`, from recordings made here to the tables: every scenario, both command lines, bad input."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import openpyxl
import pytest
import yaml

from tests.compat.msprobe.compare.writing import record, tensor, write_dump
from twintrace.cli import main
from twintrace.compat.msprobe.compare import compare, compare_distributed
from twintrace.compat.msprobe.compare.flow import free_stamp
from twintrace.compat.msprobe.compare.rows import Generation, Mode, columns

HERE = Path(__file__).parent
NORM = "Cell.net.norm.LayerNorm.forward.0"


class Said(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def msprobe(monkeypatch, capsys) -> Callable[..., Said]:
    """The command, in this process."""

    def call(*arguments: object) -> Said:
        monkeypatch.setattr(sys, "argv", ["twintrace", "msprobe", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        return Said(int(ended.value.code or 0), *capsys.readouterr())

    return call


def rank(dump: Path) -> Path:
    return dump / "step0" / "rank" / "dump.json"


@pytest.fixture
def asked(tmp_path):
    """A compare.json for two dumps."""

    def write(npu: Path, bench: Path, **fields: Any) -> Path:
        path = tmp_path / "compare.json"
        path.write_text(json.dumps({"npu_path": str(npu), "bench_path": str(bench)} | fields), encoding="utf-8")
        return path

    return write


class Table(NamedTuple):
    columns: tuple[str, ...]
    rows: list[dict[str, Any]]

    def of(self, name: str) -> dict[str, Any]:
        return next(row for row in self.rows if row["NPU Name"] == name)

    @property
    def pairs(self) -> dict[str, str]:
        return {r["NPU Name"]: r["Bench Name"] for r in self.rows if "N/A" not in (r["NPU Name"], r["Bench Name"])}


def table(folder: Path, pattern: str = "compare_result_*.xlsx") -> Table:
    """The one table of that name."""
    (path,) = folder.glob(pattern)
    if path.suffix == ".csv":
        with path.open(encoding="utf-8-sig", newline="") as file:
            head, *rows = csv.reader(file)
    else:
        sheet = openpyxl.load_workbook(path).worksheets[0]
        head, *rows = [list(row) for row in sheet.iter_rows(values_only=True)]
    return Table(tuple(head), [dict(zip(head, row, strict=True)) for row in rows])


# --- scenarios: versions ------------------------------------------------------------------------------------------------


@pytest.mark.needs_mindspore
def test_two_versions_api_by_api(mindspore_dumps, asked, msprobe, tmp_path):
    npu, bench = rank(mindspore_dumps / "broken"), rank(mindspore_dumps / "good")
    file = asked(npu, bench, stack_path=str(npu.with_name("stack.json")), is_print_compare_log=False)

    said = msprobe("-f", "mindspore", "compare", "-i", file, "-o", tmp_path / "output", "-s")

    found = table(tmp_path / "output")
    assert said.code == 0
    assert found.columns == columns(Generation.OLDER, Mode.TENSOR, stack=True)
    assert all(row["NPU Name"] == row["Bench Name"] for row in found.rows)
    assert found.of("Primitive.LayerNorm.0.forward.input.0")["Accuracy Reached or Not"] == "Yes"
    assert found.of("Primitive.LayerNorm.0.forward.output.0")["Accuracy Reached or Not"] == "No"
    assert "mindspore_net.py" in found.of("Primitive.LayerNorm.0.forward.input.0")["NPU_Stack_Info"]
    (advice,) = (tmp_path / "output").glob("advisor_*.txt")
    assert "Primitive.LayerNorm.0.forward.output.0" in advice.read_text(encoding="utf-8")
    assert "first that fails" in said.out


@pytest.mark.needs_mindspore
def test_two_versions_kernel_by_kernel(checkout_env, asked, msprobe, tmp_path):
    (tmp_path / "run").mkdir()
    script = HERE.parents[2] / "compat" / "mindspore_kernels" / "dumped.py"
    subprocess.run(
        [sys.executable, script, tmp_path / "run"], env=checkout_env, check=True, capture_output=True, timeout=600
    )
    npu, bench = tmp_path / "run" / "dump", tmp_path / "bench"
    shutil.copytree(npu, bench)
    (changed,) = bench.glob("rank_0/Net/*/1/ReLU.Default*.output.0.*.npy")
    np.save(changed, np.load(changed) * 3 + 1)
    file = asked(npu, bench, rank_id=[0], step_id=[])

    said = msprobe("-f", "mindspore", "compare", "-i", file, "-o", tmp_path / "output")

    assert said.code == 0, said
    first, second = (table(tmp_path / "output", f"compare_result_0_{step}_*.xlsx") for step in (0, 1))
    assert first.columns == columns(Generation.OLDER, Mode.KERNEL)
    assert {row["Accuracy Reached or Not"] for row in first.rows} == {"Yes", "None"}, "None is for single numbers"
    wrong = [row["Bench Name"] for row in second.rows if row["Accuracy Reached or Not"] not in ("Yes", "None")]
    assert [Path(name).name for name in wrong] == [changed.name]
    advice = [*(tmp_path / "output").glob("advisor_0_1_*.txt")]
    assert changed.name in advice[0].read_text(encoding="utf-8")
    assert msprobe("compare", "-i", file, "-o", tmp_path / "output", "-s").code == 2


def test_comparisons_within_a_second_do_not_overwrite_each_other(two_dumps, asked, msprobe, tmp_path):
    file = asked(*two_dumps)
    for _ in range(3):
        assert msprobe("compare", "-i", file, "-o", tmp_path / "output").code == 0
    names = sorted(path.name for path in (tmp_path / "output").iterdir())
    assert len(names) == 6, names
    stamps = [name.removeprefix("compare_result_").removesuffix(".xlsx") for name in names[3:]]
    assert all(len(stamp) == 14 and stamp.isdigit() for stamp in stamps)
    assert [name.removeprefix("advisor_").removesuffix(".txt") for name in names[:3]] == stamps


def test_comparisons_at_once_have_times_of_their_own(tmp_path):
    with free_stamp(tmp_path) as stamp, free_stamp(tmp_path) as other:
        assert int(other) > int(stamp)
    assert not [*tmp_path.iterdir()]


def test_what_is_wrong_with_the_stacks_is_told_once(two_dumps, asked, msprobe, tmp_path):
    stacks = two_dumps[0].with_name("stack.json")
    stacks.write_bytes(stacks.read_bytes()[:-9])
    said = msprobe("compare", "-i", asked(*two_dumps, stack_path=str(stacks)), "-o", tmp_path / "output", "-s")
    assert said.code == 0
    assert (said.out + said.err).count("stack.json") == 1


@pytest.mark.needs_mindspore
def test_two_versions_cell_by_cell(mindspore_dumps, asked, msprobe, tmp_path):
    npu, bench = rank(mindspore_dumps / "cells_broken"), rank(mindspore_dumps / "cells")
    file = asked(npu, bench, stack_path=str(npu.with_name("stack.json")))

    assert msprobe("-f", "mindspore", "compare", "-i", file, "-o", tmp_path / "output", "-s").code == 0

    found = table(tmp_path / "output")
    assert found.columns == columns(Generation.OLDER, Mode.STATISTICS, stack=True)
    assert {row["NPU Name"].split(".")[0] for row in found.rows} == {"Cell"}
    assert all(row["NPU Name"] == row["Bench Name"] for row in found.rows)
    assert found.of(f"{NORM}.input.0")["Max diff"] == 0
    assert found.of(f"{NORM}.output.0")["Max diff"] != 0


# --- scenarios: two frameworks ------------------------------------------------------------------------------------------


@pytest.fixture
def crossed(mindspore_dumps, torch_dumps, asked, msprobe, tmp_path):
    """MindSpore beside PyTorch, with these options."""

    def call(*options: object, npu: str = "good") -> Table:
        output = tmp_path / "output"
        shutil.rmtree(output, ignore_errors=True)
        bench = rank(torch_dumps / "good")
        file = asked(rank(mindspore_dumps / npu), bench, is_print_compare_log=False)
        said = msprobe("-f", "mindspore", "compare", "-i", file, "-o", output, *options)
        assert said.code == 0, said
        return table(output)

    return call


def yaml_file(tmp_path: Path, content: object) -> Path:
    path = tmp_path / "mapping.yaml"
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return path


def assert_agreeing(found: Table, *names: str) -> None:
    for name in names:
        assert found.of(name)["Accuracy Reached or Not"] == "Yes", found.of(name)


@pytest.mark.needs_torch
@pytest.mark.needs_mindspore
def test_two_frameworks_api_by_api(crossed):
    found = crossed("-am")

    assert found.pairs["Functional.relu.0.forward.input.0"] == "Torch.relu.0.forward.input.0"
    assert found.pairs["Primitive.MatMul.1.forward.input.1"] == "Functional.linear.1.forward.input.1"
    assert found.pairs["Primitive.BiasAdd.1.forward.output.0"] == "Functional.linear.1.forward.output.0"
    assert found.pairs["Primitive.Gather.0.forward.input.0"] == "Functional.embedding.0.forward.input.1"
    assert found.pairs["Primitive.LayerNorm.0.forward.input.1"] == "Functional.layer_norm.0.forward.input.2"
    for n in range(3):  # a gradient beside that of the same call, by the argument that it is the gradient of
        assert found.pairs[f"Primitive.MatMul.{n}.backward.output.1"] == f"Functional.linear.{n}.backward.output.1"
    assert not [name for name in found.pairs if name.startswith("Cell")]
    assert_agreeing(found, "Primitive.BiasAdd.1.forward.output.0", "Primitive.LayerNorm.0.forward.output.0")


@pytest.mark.needs_torch
@pytest.mark.needs_mindspore
def test_two_frameworks_api_by_api_as_a_file_says(crossed, tmp_path):
    said = {
        "ms_api": "Primitive.LayerNorm",
        "pt_api": "Functional.layer_norm",
        "ms_args": [0, 1],
        "pt_args": [0, 2],
        "ms_outputs": [0],
        "pt_outputs": [0],
    }

    found = crossed("-am", yaml_file(tmp_path, said))

    assert found.pairs["Primitive.LayerNorm.0.forward.input.1"] == "Functional.layer_norm.0.forward.input.2"
    assert "Primitive.LayerNorm.0.forward.input.2" not in found.pairs, "the file leaves it out"
    assert found.pairs["Primitive.MatMul.1.forward.input.1"] == "Functional.linear.1.forward.input.1", (
        "the rest as without"
    )


@pytest.mark.needs_torch
@pytest.mark.needs_mindspore
def test_two_frameworks_cell_by_cell(crossed, tmp_path):
    without = crossed("-cm")
    found = crossed(
        "-cm",
        yaml_file(tmp_path, "net.mlp.mapping.Dense: net.mlp.dense_h_to_4h.Linear\nprojection: dense_4h_to_h\n"),
    )

    assert (
        without.pairs["Cell.net.fc1.Dense.forward.0.parameters.weight"]
        == "Module.net.fc1.Linear.forward.0.parameters.weight"
    )
    assert without.pairs[f"{NORM}.parameters.gamma"] == "Module.net.norm.LayerNorm.forward.0.parameters.weight"
    assert "Cell.net.mlp.mapping.Dense.forward.0.input.0" not in without.pairs
    for layer, other in (("mapping", "dense_h_to_4h"), ("projection", "dense_4h_to_h")):
        cell, module = f"Cell.net.mlp.{layer}.Dense", f"Module.net.mlp.{other}.Linear"
        assert found.pairs[f"{cell}.forward.0.output.0"] == f"{module}.forward.0.output.0"
        assert found.pairs[f"{cell}.backward.0.input.0"] == f"{module}.backward.0.input.0"
        assert found.pairs[f"{cell}.parameters_grad.weight"] == f"{module}.parameters_grad.weight"
        assert_agreeing(found, f"{cell}.forward.0.output.0", f"{cell}.parameters_grad.weight")


@pytest.mark.needs_torch
@pytest.mark.needs_mindspore
def test_two_frameworks_item_by_item(crossed, tmp_path):
    said = {
        "Primitive.LayerNorm.0.forward.output.0": "Functional.layer_norm.0.forward.output.0",
        "Cell.net.mlp.mapping.Dense.forward.0.input.0.npy": "Module.net.mlp.dense_h_to_4h.Linear.forward.0.input.0.npy",
    }

    found = crossed("-dm", yaml_file(tmp_path, said))

    names = {name.removesuffix(".npy"): other.removesuffix(".npy") for name, other in said.items()}
    assert names.items() <= found.pairs.items()
    assert all(name == other for name, other in found.pairs.items() if name not in names)
    assert_agreeing(found, *names)


@pytest.mark.needs_torch
@pytest.mark.needs_mindspore
def test_two_frameworks_layer_by_layer(crossed, tmp_path):
    said = {"ParallelMLP": {"mapping": "dense_h_to_4h", "projection": "dense_4h_to_h"}}

    found = crossed("-lm", yaml_file(tmp_path, said), npu="broken")

    for layer, other in (("mapping", "dense_h_to_4h"), ("projection", "dense_4h_to_h")):
        assert (
            found.pairs[f"Cell.net.mlp.{layer}.Dense.forward.0.output.0"]
            == f"Module.net.mlp.{other}.Linear.forward.0.output.0"
        )
    assert found.pairs["Functional.tanh.0.forward.input.0"] == "Torch.tanh.0.forward.input.0", (
        "after the place where they part"
    )
    assert found.of(f"{NORM}.input.0")["Accuracy Reached or Not"] == "Yes"
    assert found.of(f"{NORM}.output.0")["Accuracy Reached or Not"] == "No"
    (written,) = (tmp_path / "output").glob("data_mapping_*.yaml")
    assert yaml.safe_load(written.read_text(encoding="utf-8")) == found.pairs
    assert crossed("-dm", _kept(written, tmp_path)).pairs == found.pairs


def _kept(path: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(path, tmp_path / "kept.yaml"))


# --- many cards, and the newer command line -----------------------------------------------------------------------------


@pytest.mark.needs_torch
def test_many_cards(rank_dumps, asked, msprobe, tmp_path):
    file = asked(rank_dumps / "broken" / "step0", rank_dumps / "good" / "step0", is_print_compare_log=True)

    said = msprobe("-f", "pytorch", "compare", "-i", file, "-o", tmp_path / "output", "-s", "-c")

    assert said.code == 0, said
    whole, parted = (table(tmp_path / "output", f"compare_result_rank{n}_*.xlsx") for n in (0, 1))
    apart = [row["NPU Name"] for row in whole.rows if isinstance(row["Max diff"], int | float) and row["Max diff"]]
    assert all(name.startswith("Distributed.all_reduce") for name in apart), "its sum has the other rank's part in it"
    norm = "Functional.layer_norm.0.forward"
    assert (whole.of(f"{norm}.output.0")["Max diff"], parted.of(f"{norm}.input.0")["Max diff"]) == (0, 0)
    assert parted.of(f"{norm}.output.0")["Max diff"] != 0
    assert apart
    assert len(list((tmp_path / "output").iterdir())) == 2, "no advice with -c"


@pytest.mark.needs_torch
def test_the_newer_command_line(torch_dumps, rank_dumps, msprobe, tmp_path):
    broken, good = torch_dumps / "broken", torch_dumps / "good"

    assert msprobe("compare", "-tp", broken / "step0", "-gp", good / "step0", "-o", tmp_path / "csv").code == 0
    assert msprobe("compare", "-tp", rank(broken), "-gp", rank(good), "-o", tmp_path / "x", "--xlsx", "-da").code == 0
    assert (
        msprobe(
            "compare", "-tp", rank_dumps / "broken", "-gp", rank_dumps / "good", "-o", tmp_path / "r", "--rank", "1"
        ).code
        == 0
    )

    found, sheet = table(tmp_path / "csv", "compare_result_*.csv"), table(tmp_path / "x")
    assert found.columns == sheet.columns == columns(Generation.NEWER, Mode.TENSOR, stack=True)
    assert found.pairs == sheet.pairs
    assert [path.name.split("_")[0] for path in sorted((tmp_path / "x").iterdir())] == ["advisor", "compare"]
    assert [path.name.rsplit("_", 1)[0] for path in (tmp_path / "r").iterdir()] == ["compare_result_step0_rank1"]


@pytest.mark.needs_torch
def test_from_python(torch_dumps, rank_dumps, tmp_path):
    fields = {"npu_path": str(rank(torch_dumps / "broken")), "bench_path": str(rank(torch_dumps / "good"))}

    compare(fields, tmp_path / "one", stack_mode=True, auto_analyze=False)
    compare_distributed(rank_dumps / "broken" / "step0", rank_dumps / "good" / "step0", tmp_path / "ranks")

    assert "NPU_Stack_Info" in table(tmp_path / "one").columns
    assert sorted(path.name.split("_2")[0] for path in (tmp_path / "ranks").iterdir()) == [
        "advisor_rank0", "advisor_rank1", "compare_result_rank0", "compare_result_rank1",
    ]  # fmt: skip


# --- bad input ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def two_dumps(tmp_path):
    """Two small dumps with statistics, written by hand."""
    records = {f"Torch.neg.{n}.forward": record([tensor(2)], [tensor(2, seed=2.0)]) for n in range(3)}
    return write_dump(tmp_path / "npu", records), write_dump(tmp_path / "bench", records)


def refused(said: Said, output: Path) -> str:
    assert said.code == 2, said
    assert said.err.startswith("twintrace: ")
    assert "Traceback" not in said.err + said.out
    assert not output.exists() or not list(output.iterdir()), "nothing may be left behind"
    return said.err


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"npu_path": "npu/dump.json"}, "compare.json: bench_path: is missing"),
        ({"npu_path": "npu/dump.json", "bench_path": "no/dump.json"}, "bench_path: no/dump.json does not exist"),
        ({"npu_path": "npu/dump.json", "bench_path": "bench"}, "bench_path: is a directory and npu_path is a file"),
    ],
)
def test_a_wrong_compare_json(two_dumps, msprobe, tmp_path, monkeypatch, fields, told):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "compare.json").write_text(json.dumps(fields), encoding="utf-8")

    assert told in refused(msprobe("compare", "-i", "compare.json", "-o", "output"), tmp_path / "output")


def test_options_that_do_not_go_together(two_dumps, asked, msprobe, tmp_path):
    file, output = asked(*two_dumps), tmp_path / "output"

    assert "either -i compare.json, or -tp and -gp" in refused(msprobe("compare", "-o", output), output)
    assert "either -i" in refused(msprobe("compare", "-i", file, "-tp", two_dumps[0], "-o", output), output)
    assert "-gp: is missing" in refused(msprobe("compare", "-tp", two_dumps[0], "-o", output), output)
    assert "--rank goes with -tp" in refused(msprobe("compare", "-i", file, "--rank", "0", "-o", output), output)
    new = ("compare", "-tp", two_dumps[0], "-gp", two_dumps[1], "-o", output)
    assert "--rank: expected numbers" in refused(msprobe(*new, "--rank", "a"), output)
    for last in (("-dm",), ("-dm", "-c")):  # what comes next is an option of its own
        assert "data_mapping: expected a YAML file" in refused(msprobe(*new, *last), output)
    assert "cannot be read" in refused(msprobe(*new, "-am", tmp_path / "none.yaml"), output)


def test_every_option_of_the_document_by_both_names(two_dumps, asked, msprobe, tmp_path):
    """On two small dumps of one framework: what is asked here is whether the words are understood."""
    api = yaml_file(tmp_path, {"ms_api": "Torch.neg", "pt_api": "Torch.neg"})
    names = Path(shutil.copy(api, tmp_path / "names.yaml"))
    names.write_text("a.b.c: d.e.f\n", encoding="utf-8")
    layers = Path(shutil.copy(api, tmp_path / "layers.yaml"))
    layers.write_text("Block:\n  a: b\n", encoding="utf-8")
    file = asked(*two_dumps, is_print_compare_log=False)

    for number, (start, ask, out, flags) in enumerate(
        (
            ("-f", "-i", "-o", ("-s", "-c", "-f", "-am", api, "-cm", names, "-dm", names, "-lm", layers)),
            ("-f", "-i", "-o", ("-am", "-cm", "-lm", "-hl")),
            (
                "--framework", "--input_path", "--output_path",
                ("--stack_mode", "--compare_only", "--fuzzy_match", "--api_mapping", api, "--cell_mapping", names,
                 "--data_mapping", names, "--layer_mapping", layers),
            ),
            ("--framework", "--input_path", "--output_path", ("--api_mapping", "--cell_mapping", "--layer_mapping")),
        )
    ):  # fmt: skip
        said = msprobe(start, "pytorch", "compare", ask, file, out, tmp_path / str(number), *flags)

        assert said.code == 0, said
        found = table(tmp_path / str(number))
        assert len(found.pairs) == len(found.rows) == 6
        assert bool(list((tmp_path / str(number)).glob("advisor*"))) is (number % 2 == 1)


def test_whose_dumps_they_are_is_remarked_on(two_dumps, asked, msprobe, tmp_path):
    said = msprobe("-f", "mindspore", "compare", "-i", asked(*two_dumps), "-o", tmp_path / "output", "-c")

    assert said.code == 0
    assert "is a dump of pytorch, not of mindspore" in said.out


def test_a_dump_may_have_any_name(two_dumps, msprobe, tmp_path):
    moved = two_dumps[0].rename(tmp_path / "npu" / "monday.json")

    for flags in ((), ("-fm",), ("-am",), ("-lm",)):
        said = msprobe("compare", "-tp", moved, "-gp", two_dumps[1], "-o", tmp_path / f"out{''.join(flags)}", *flags)

        assert said.code == 0, said
        assert len(table(tmp_path / f"out{''.join(flags)}", "*.csv").pairs) == 6


def test_a_stack_that_is_not_there(two_dumps, asked, msprobe, tmp_path):
    output = tmp_path / "output"
    file = asked(*two_dumps, stack_path=str(tmp_path / "stack.json"))
    assert f"stack_path: {tmp_path / 'stack.json'} does not exist" in refused(
        msprobe("compare", "-i", file, "-o", output, "-s"), output
    )
    two_dumps[0].with_name("stack.json").unlink()
    assert "there is no stack.json beside" in refused(
        msprobe("compare", "-i", asked(*two_dumps), "-o", output, "-s"), output
    )


@pytest.mark.needs_torch
def test_dumps_of_different_tasks(torch_dumps, asked, msprobe, tmp_path):
    file = asked(rank(torch_dumps / "good"), rank(torch_dumps / "statistics"))

    said = msprobe("compare", "-i", file, "-o", tmp_path / "output")

    assert "got tensor (" in refused(said, tmp_path / "output")
    assert "and statistics (" in said.err


@pytest.mark.needs_mindspore
def test_a_truncated_and_a_missing_npy_are_rows_that_say_so(mindspore_dumps, asked, msprobe, tmp_path):
    shutil.copytree(mindspore_dumps / "good", tmp_path / "npu")
    values = tmp_path / "npu" / "step0" / "rank" / "dump_tensor_data"
    cut, gone = "Primitive.MatMul.1.forward.output.0", "Primitive.MatMul.2.forward.output.0"
    (values / f"{cut}.npy").write_bytes((values / f"{cut}.npy").read_bytes()[:150])
    (values / f"{gone}.npy").unlink()
    file = asked(rank(tmp_path / "npu"), rank(mindspore_dumps / "good"), is_print_compare_log=False)

    said = msprobe("compare", "-i", file, "-o", tmp_path / "output")

    assert said.code == 0
    found = table(tmp_path / "output")
    assert f"{cut}.npy" in found.of(cut)["Err_message"]
    assert "is not there" in found.of(gone)["Err_message"]
    assert {found.of(name)["Accuracy Reached or Not"] for name in (cut, gone)}.isdisjoint({"Yes"})
    assert found.of("Primitive.MatMul.0.forward.output.0")["Accuracy Reached or Not"] == "Yes"
    assert "2 rows could not be compared" in said.out


def test_a_damaged_dump_json_is_read_as_far_as_it_goes(two_dumps, asked, msprobe, tmp_path):
    npu, bench = two_dumps
    text = npu.read_text(encoding="utf-8")
    npu.write_text(text[: text.index("Torch.neg.2.forward") + 60], encoding="utf-8")

    said = msprobe("compare", "-i", asked(npu, bench), "-o", tmp_path / "output")

    assert said.code == 0, said
    assert str(npu) in said.out, "the damage is told"
    found = table(tmp_path / "output")
    assert "Torch.neg.1.forward.output.0" in found.pairs
    assert "Torch.neg.2.forward.output.0" not in found.pairs
    npu.write_text("", encoding="utf-8")
    assert "Nothing in it can be read" in refused(
        msprobe("compare", "-i", asked(npu, bench), "-o", tmp_path / "again"), tmp_path / "again"
    )


def test_one_rank_that_cannot_be_read_does_not_cost_the_others(two_dumps, asked, msprobe, tmp_path):
    for side, dump in zip(("a", "b"), two_dumps, strict=True):
        for n in (0, 1):
            shutil.copytree(dump.parent, tmp_path / side / f"rank{n}")
    (tmp_path / "a" / "rank1" / "dump.json").write_text("nothing", encoding="utf-8")
    file = asked(tmp_path / "a", tmp_path / "b", stack_path="of/one/card")

    said = msprobe("compare", "-i", file, "-o", tmp_path / "output", "-s")

    assert said.code == 2
    assert "1 of 2 comparisons failed, first rank 1: " in said.err
    assert [path.name.rsplit("_", 1)[0] for path in sorted((tmp_path / "output").iterdir())] == [
        "advisor_rank0", "compare_result_rank0",
    ]  # fmt: skip


def test_an_output_that_cannot_be_written(two_dumps, asked, msprobe, tmp_path):
    (tmp_path / "output").write_text("a file", encoding="utf-8")

    said = msprobe("compare", "-i", asked(*two_dumps), "-o", tmp_path / "output")

    assert said.code == 2
    assert "output" in said.err
    assert "Traceback" not in said.err
