"""The real msprobe takes what is written here, and calls the same things by the same names.

It runs in a layer over this environment (benchmarks/peers.py); one that cannot be built is a failure, never a skipped test.
"""

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.peers import environment
from tests.compat.msprobe.dumped import data, tensors

HERE = Path(__file__).parent
TASKS = ("statistics", "md5", "tensor")
FRAMEWORKS = [
    pytest.param("torch", marks=pytest.mark.needs_torch),
    pytest.param("mindspore", marks=pytest.mark.needs_mindspore),
]


@pytest.fixture(scope="module")
def real() -> Path:
    return environment("msprobe")


@pytest.fixture(scope="module", params=FRAMEWORKS)
def framework(request) -> str:
    return request.param


def start(python, script, *arguments, env) -> subprocess.Popen:
    """Another process, in this environment or that of the real tool."""
    command = [str(python), str(HERE / "scripts" / script), *map(str, arguments)]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(process: subprocess.Popen) -> None:
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0, output[-4000:]


@pytest.fixture(scope="module")
def dumps(framework, real, checkout_env, tmp_path_factory) -> tuple[Path, Path]:
    """(ours, theirs): the same net, recorded here in each task, and by the real tool with checksums."""
    ours, theirs = tmp_path_factory.mktemp("ours"), tmp_path_factory.mktemp("theirs")
    script, door = f"small_{framework}.py", "pytorch" if framework == "torch" else framework
    env = checkout_env | {"GLOG_v": "4", "OMP_NUM_THREADS": "1"}
    alone = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | {
        "GLOG_v": "4",
        "OMP_NUM_THREADS": "1",
    }
    running = [
        start(sys.executable, script, f"twintrace.compat.msprobe.{door}", ours, *TASKS, env=env),
        start(real, script, f"msprobe.{door}", theirs, "md5", env=alone),
    ]
    for process in running:
        finish(process)
    return ours, theirs


@pytest.fixture(scope="module")
def compared(dumps, real, tmp_path_factory) -> dict[str, list[dict[str, str]]]:
    """What the real tool's compare says of our step 1 beside our step 0, for each task."""
    out = tmp_path_factory.mktemp("compared")
    places = []
    for task in TASKS:
        steps = [dumps[0] / task / f"step{n}" / "rank" / "dump.json" for n in (1, 0)]
        places += [*steps, out / task]
    places += [*(dumps[0] / "statistics" / f"step{n}" for n in (1, 0)), out / "directories"]
    finish(start(real, "real_compare.py", *places, env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"}))
    rows = {}
    for task in (*TASKS, "directories"):
        (file,) = (out / task).glob("compare_result_*.csv")
        with file.open(newline="") as opened:
            rows[task] = list(csv.DictReader(opened))
    return rows


def their_step(place: Path, task: str = "md5") -> Path:
    (found,) = (place / task / "step0").iterdir()  # it is called proc and a number
    return found


@pytest.mark.parametrize("task", TASKS)
def test_every_item_is_a_row_of_the_real_comparison(dumps, compared, task):
    entries = data(dumps[0] / task / "step1" / "rank")
    rows = {row["NPU Name"]: row for row in compared[task]}
    wanted = set()
    for name, entry in entries.items():
        for path, element in tensors(entry):
            item = f"{name}.{path.replace('input_args', 'input').replace('input_kwargs', 'input')}"
            item = item.removesuffix(".0") if "parameters_grad" in name else item
            wanted.add(element["data_name"].rpartition(".")[0] if "data_name" in element else item)
    assert wanted <= set(rows)
    unpaired = {name for name in wanted if rows[name]["Bench Name"] in ("N/A", "")}
    assert not unpaired


def test_steps_are_compared_by_their_directories(compared):
    assert [row["NPU Name"] for row in compared["directories"]] == [row["NPU Name"] for row in compared["statistics"]]


def test_the_real_tool_reads_every_value(dumps, compared):
    entries = data(dumps[0] / "tensor" / "step1" / "rank").values()
    named = {e["data_name"].rpartition(".")[0] for entry in entries for _, e in tensors(entry) if e["shape"]}
    rows = {row["NPU Name"]: row for row in compared["tensor"]}
    assert len(named) > 50
    assert [name for name in named if not re.fullmatch(r"[\d.]+(e-?\d+)?", rows[name]["EucDist"])] == []


def test_checksums_differ_where_values_do(compared):
    rows = {re.sub("Linear|Dense", "Linear", row["NPU Name"].partition(".")[2]): row for row in compared["md5"]}
    weight, output = rows["head.Linear.forward.0.parameters.weight"], rows["head.Linear.forward.0.output.0"]
    assert weight["NPU MD5"] == weight["BENCH MD5"]
    assert weight["Result"] == "pass"
    assert output["NPU MD5"] != output["BENCH MD5"]


def plain(name: str) -> str:
    """A name without what differs on purpose; SURFACE.md says why."""
    name = re.sub(r"\.parameters_grad\.0$", ".parameters_grad", name)
    name = re.sub(r"^Primitive\.\w+\.(\w+)\.", r"Primitive.\1.", name) if name.count(".") > 3 else name
    return name.replace("Tensor.to.", "Tensor.astype.") if name.startswith("Tensor.to") else name


# Of MindSpore: a question about a tensor is no computation; what changes nothing (x.to of its own type) has no backward here.
LEFT_OUT = re.compile(r"Primitive\.Shape\..*|Tensor\.astype\.\d+\.backward")


def test_records_have_the_names_that_the_real_tool_gives(dumps):
    ours = set(data(dumps[0] / "md5" / "step0" / "rank"))
    theirs = {plain(name) for name in data(their_step(dumps[1]))}
    theirs = {name for name in theirs if not LEFT_OUT.fullmatch(name)}
    assert ours - theirs <= {"Torch.eye.0.forward"}  # is not on its list
    assert not theirs - ours


def test_forward_values_are_the_same_by_name_and_checksum(dumps):
    ours, theirs = data(dumps[0] / "md5" / "step0" / "rank"), data(their_step(dumps[1]))
    compared = 0
    for name, entry in theirs.items():
        if name not in ours or "backward" in name:
            continue
        left, right = dict(tensors(ours[name])), dict(tensors(entry))
        assert {path: e["md5"] for path, e in left.items()} == {path: e["md5"] for path, e in right.items()}, name
        for path, element in right.items():
            found = left[path]
            compared += 1
            assert list(found) == list(element)
            assert {key: found[key] for key in ("type", "dtype", "shape")} == {
                key: element[key] for key in ("type", "dtype", "shape")
            }
            assert found.get("requires_grad") == element.get("requires_grad")
            for key in ("Max", "Min"):
                assert found[key] == element[key]
            for key in ("Mean", "Norm"):
                assert element[key] is None or found[key] == pytest.approx(element[key], rel=1e-5, abs=1e-6)
    assert compared > 20


def test_gradients_of_modules_are_the_same(dumps):
    ours, theirs = data(dumps[0] / "md5" / "step0" / "rank"), data(their_step(dumps[1]))
    names = [name for name in theirs if name.startswith(("Module", "Cell")) and "forward" not in name]
    assert len(names) >= 8
    for name in names:
        right = {path: element["md5"] for path, element in tensors(theirs[name])}
        left = {path: element["md5"] for path, element in tensors(ours[plain(name)])}
        assert left == right, name


def test_the_tree_is_the_same(dumps):
    """Which module is around which record."""
    ours = json.loads((dumps[0] / "md5" / "step0" / "rank" / "construct.json").read_text())
    theirs = json.loads((their_step(dumps[1]) / "construct.json").read_text())
    shared = {name: parent for name, parent in theirs.items() if name in ours}
    assert len(shared) > 15
    assert {name: ours[name] for name in shared} == shared
