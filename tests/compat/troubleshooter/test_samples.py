"""The document's samples, run as they are by `twintrace run-as troubleshooter`; and the real tool beside it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import twintrace as tt
from tests.compat.troubleshooter.dumps import names, table
from twintrace.compat.troubleshooter import layout

SAMPLES = Path(__file__).parent / "samples"
pytestmark = [pytest.mark.needs_torch, pytest.mark.needs_mindspore]

# The tables of the document.
APIS = [
    ("NN_Conv2d_0", "NN_Conv2d_0"),
    ("Functional_clip_0", "Torch_clip_0"),
    ("NN_BatchNorm2d_0", "NN_BatchNorm2d_0"),
    ("NN_ReLU_0", "NN_ReLU_0"),
    ("Tensor_reshape_0", "Tensor_reshape_0"),
    ("NN_Dense_0", "NN_Linear_0"),
    ("NN_ReLU_1", "NN_ReLU_1"),
]
FORWARD = [
    (f"{left}_forward_{part}.npy", f"{right}_forward_{part}.npy")
    for left, right in APIS
    for part in ("input.0", "output")
]
BACKWARD = [(f"{left}_backward_input.npy", f"{right}_backward_input.npy") for left, right in reversed(APIS)]
HEADS = (
    '"ORIGIN NET (mindspore)","TARGET NET (pytorch)","shape of orig","shape of target","result of allclose",'
    '"ratio of allclose","cosine similarity","mean & max diffs"'
)


@pytest.fixture(scope="module")
def run_as(checkout_env):
    def call(script, cwd):
        command = [
            sys.executable,
            "-c",
            "from twintrace.cli import main; main()",
            "run-as",
            "troubleshooter",
            str(script),
        ]
        done = subprocess.run(command, env=checkout_env, cwd=cwd, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    return call


@pytest.fixture(scope="module")
def dumped(run_as, tmp_path_factory):
    """The folder in which both samples were run."""
    folder = tmp_path_factory.mktemp("dumped")
    for script in ("pytorch_dump.py", "mindspore_dump.py"):
        run_as(SAMPLES / script, folder)
    return folder


@pytest.fixture(scope="module")
def really_dumped(real_tool, tmp_path_factory):
    """The same by the real tool; one process, since importing it takes longer than running the samples."""
    folder = tmp_path_factory.mktemp("really")
    both = folder / "both.py"  # a file, and no import: it cannot stand frames without source
    files = [str(SAMPLES / name) for name in ("pytorch_dump.py", "mindspore_dump.py")]
    both.write_text(
        f"for file in {files}:\n    exec(compile(open(file).read(), file, 'exec'), {{'__name__': '__main__'}})\n"
    )
    real_tool(str(both), cwd=folder)
    return folder


def check(folder, mapping="ts_api_mapping.csv", suffix=""):
    assert [tuple(row) for row in table(folder / mapping)] == APIS
    forward = table(folder / f"ts_api_forward_compare{suffix}.csv")
    backward = table(folder / f"ts_api_backward_compare{suffix}.csv")
    assert {row[4] for row in forward + backward} == {"True"}
    assert {row[5] for row in forward + backward} == {"100.00%"}
    return forward, backward


def test_the_documents_tables(run_as, dumped):
    said = run_as(SAMPLES / "api_dump_compare.py", dumped).stdout
    forward, backward = check(dumped / "compare_result")
    assert [tuple(row[:2]) for row in forward] == FORWARD
    assert [tuple(row[:2]) for row in backward] == BACKWARD
    assert (len(forward), len(backward)) == (14, 7)
    assert forward[0] == [
        "NN_Conv2d_0_forward_input.0.npy", "NN_Conv2d_0_forward_input.0.npy", "(1, 3, 90, 300)", "(1, 3, 90, 300)", "True",
        "100.00%", "1.00000", "0.00000, 0.00000",
    ]  # fmt: skip
    text = (dumped / "compare_result" / "ts_api_forward_compare.csv").read_text()
    assert text.splitlines()[0] == HEADS
    titles = [
        "The APIs mapping results of the two frameworks",
        "The forward comparison results",
        "The backward comparison results",
    ]
    assert [line.strip("| ") for line in said.splitlines() if "results" in line] == titles
    assert "|   Functional_clip_0    |      Torch_clip_0     |" in said
    assert "without a partner" not in said


def test_the_real_tools_dumps_open_and_compare(really_dumped):
    expected = {"mindspore": [left for left, _ in APIS], "torch": [right for _, right in APIS]}
    for folder, framework in (("ms_dump", "mindspore"), ("torch_dump", "torch")):
        trace = tt.open(really_dumped / folder)
        assert (trace.framework, trace.layout, trace.steps, trace.ranks) == (framework, "troubleshooter", (0,), (0,))
        journal = trace.journal(0)
        assert [call.site.name.rpartition(".")[2] for call in journal.calls()] == [
            label.split("_")[1] for label in expected[framework]
        ]
        assert all(call.stack and len(call.gradients) == 1 for call in journal.calls())
        assert not journal.damage
        assert all(journal.array(tensor).shape == tensor.spec.shape for tensor in journal.tensors())
    found = tt.compare(really_dumped / "ms_dump", really_dumped / "torch_dump", policy="troubleshooter")
    assert found.agree
    assert [len(result.tensors) for result in found.results] == [3] * 7


def test_both_tools_record_the_same(dumped, really_dumped):
    for folder, stem in (("ms_dump", "mindspore"), ("torch_dump", "torch")):
        theirs = [name for name in names(really_dumped / folder, stem) if not name.startswith("LAYER_")]
        assert names(dumped / folder, stem) == theirs


def test_the_real_tool_compares_our_dumps(real_tool, dumped, tmp_path):
    """One as it was recorded, one that was opened as a trace and written again."""
    shutil.copytree(dumped / "ms_dump", tmp_path / "ms_dump")
    layout.write(tt.open(dumped / "torch_dump"), tmp_path / "torch_dump")
    assert names(tmp_path / "torch_dump") == names(dumped / "torch_dump")
    real_tool(str(SAMPLES / "api_dump_compare.py"), cwd=tmp_path)
    forward, backward = check(tmp_path / "compare_result", "ts_api_mapping_0.csv", "_0")
    assert (len(forward), len(backward)) == (14, 7)
