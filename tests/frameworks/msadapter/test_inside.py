"""MSAdapter is a package called `torch`, so its tests run in a process and an environment of their own: those in `inside`.

    the environment's MindSpore   mindnlp's mindtorch, over the environment that runs these tests; under a stand-in `torch` from
                                  MindSpore 2.8 on
    MindSpore 2.7                 mindtorch as it is, as its users import it; slow, because a MindSpore of its own is installed

Environments are made on first use and kept (scripts/layers.py). One that cannot be made is a failure here, never a skipped test.
"""

import functools
import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Collection
from pathlib import Path

import pytest

import twintrace as tt
from scripts.layers import layer

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
MINDTORCH = [
    "mindnlp==0.5.1",
    "ml_dtypes==0.5.4",
    "typing_extensions>=4.12",  # comes with torch, where that is installed
]  # mindnlp asks for transformers, torch and much else, and imports none of it here

# What an adapter cannot offer, and what a test may therefore be skipped for; any other reason is a fault.
EXCUSES = (
    "msadapter has no f8",
    "msadapter has no f4",
    "msadapter has no c32",
    "msadapter shares no memory",
    "has no checkpoint",
)
EXCUSES_OF_27 = (*EXCUSES, "msadapter does not offer op", "msadapter has no bf16")
# MindSpore 2.7 tells no call's own share in the gradient of a tensor that several calls take. These ask for one.
LIMITS_OF_27 = {
    "TestMsadapter::test_a_module_that_uses_its_input_twice_shows_the_sum",
    "TestMsadapter::test_both_places_of_one_tensor_have_a_gradient",
    "TestMsadapter::test_each_call_shows_its_own_part_of_a_shared_gradient",
    "TestMsadapter::test_gradients_go_through_writes_in_place",
    "TestMsadapter::test_large_gradients_are_what_they_were_when_they_came",
}
QUIET_27 = "-Wignore:twintrace:RuntimeWarning"  # what is said of the limits
AS_IT_IS = {"PYTHONPATH": str(ROOT / "src"), "TWINTRACE_IMPORT_FIRST": "mindtorch"}

pytestmark = pytest.mark.needs_mindspore


Found = dict[str, tuple[str, str]]


def run_inside(python: Path, files: list[str], variables: dict[str, str], folder: Path, *options: str) -> Found:
    """Run test files with that interpreter: each test's name, with `passed`, `skipped` or `failed` and why."""
    report = folder / "report.xml"
    env = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "COV_"))}
    env |= {"TWINTRACE_INSIDE": "1", "GLOG_v": "4", **variables}
    command = [
        str(python),
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "--tb=short",
        f"--junitxml={report}",
    ]
    done = subprocess.run(
        [*command, *options, f"--rootdir={ROOT}", *(str(HERE / "inside" / name) for name in files)],
        env=env, cwd=folder, capture_output=True, text=True, timeout=1800,
    )  # fmt: skip
    assert report.exists(), (
        f"pytest did not run inside ({done.returncode}):\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    )
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        outcome = next((child for child in case if child.tag in ("failure", "error", "skipped")), None)
        state = "passed" if outcome is None else "skipped" if outcome.tag == "skipped" else "failed"
        why = "" if outcome is None else f"{outcome.get('message')}\n{outcome.text or ''}"
        found[f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"] = (state, why)
    return found


def check(found: Found, excuses: tuple[str, ...], at_least: int, limits: Collection[str] = ()) -> None:
    """Every test has passed, or was skipped for a reason that is listed, or fails as it must."""
    bad = [f"{name}: {why}" for name, (state, why) in found.items() if state == "failed" and name not in limits]
    bad += [
        f"{name}: expected to fail, but it was {found.get(name, ('left out',))[0]}"
        for name in limits
        if found.get(name, ("",))[0] != "failed"
    ]
    bad += [
        f"{name}: skipped without an excuse: {why.splitlines()[0]}"
        for name, (state, why) in found.items()
        if state == "skipped" and not any(excuse in why for excuse in excuses)
    ]
    assert not bad, f"{len(bad)} of {len(found)} tests inside:\n\n" + "\n\n".join(bad)
    passed = sum(state == "passed" for state, _ in found.values())
    assert passed >= at_least, f"only {passed} tests ran inside"


def needs_stand_in() -> bool:
    """Is this MindSpore newer than the one that mindtorch was written for?"""
    return hasattr(pytest.importorskip("mindspore").Tensor, "_grad_node")


def records_kernels() -> bool:
    """Does this MindSpore tell of its kernels? 2.9 is the first that does."""
    return hasattr(pytest.importorskip("mindspore")._c_expression, "_DispatchGuardStack")


def script(text: str) -> str:
    """A script in which `torch` is MSAdapter: by the stand-in on its path, or by mindtorch, which puts itself in its place."""
    return text if needs_stand_in() else f"import mindtorch\n{text}"


@pytest.fixture
def path() -> str:
    return os.pathsep.join([*([str(HERE / "standin")] if needs_stand_in() else []), str(ROOT / "src")])


@pytest.mark.parametrize(
    ("file", "at_least"), [("test_contract.py", 100), ("test_recording.py", 10)], ids=["contract", "recording"]
)
def test_on_the_mindspore_of_this_environment(file, at_least, path, tmp_path):
    python = layer("msadapter", MINDTORCH)
    if needs_stand_in():
        kernels = () if records_kernels() else ("msadapter does not offer op",)
        check(run_inside(python, [file], {"PYTHONPATH": path}, tmp_path), (*EXCUSES, *kernels), at_least)
    else:
        limits = LIMITS_OF_27 if file == "test_contract.py" else ()
        check(run_inside(python, [file], AS_IT_IS, tmp_path, QUIET_27), EXCUSES_OF_27, at_least, limits)


NAMES = """
import json, torch
from twintrace.frameworks.msadapter.names import functions
print(json.dumps([api.name for _, api in functions()]))
"""


@pytest.mark.needs_torch
def test_functions_have_the_names_that_pytorchs_adapter_gives(path):
    """So that a trace of MSAdapter can be laid beside one of PyTorch. What PyTorch has not is MSAdapter's own."""
    torch, names = pytest.importorskip("torch"), pytest.importorskip("twintrace.frameworks.torch.names")
    python = layer("msadapter", MINDTORCH)
    told = subprocess.run(
        [python, "-c", script(NAMES)],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert told.returncode == 0, told.stderr
    compared = 0
    for name in json.loads(told.stdout.splitlines()[-1]):
        public = name.replace("torch.functional.", "torch.").split(".")[1:]
        function = functools.reduce(lambda home, part: getattr(home, part, None), public, torch)
        if function is not None and name != "torch.mm":  # which torch itself calls spmm when it is asked
            compared += 1
            described = names.describe(function)
            assert described is not None, f"{name} is not worth a record in PyTorch"
            assert described.name == name
    assert compared > 300


SAME_NET = """
import sys
import numpy as np, torch
import torch.nn.functional as F
from torch import nn
import twintrace as tt

class Net(nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.fc1, self.norm, self.fc2 = nn.Linear(6, 16), nn.LayerNorm(16, eps=eps), nn.Linear(16, 3)
    def forward(self, x):
        return self.fc2(F.relu(self.norm(self.fc1(x))))

net, draw = Net(float(sys.argv[2])), np.random.default_rng(0)
for name, parameter in net.named_parameters():
    values = (0.3 * draw.normal(size=tuple(parameter.shape)) + (name == "norm.weight")).astype(np.float32)
    with torch.no_grad():
        parameter.copy_(torch.from_numpy(values))
x = torch.tensor((0.1 * draw.normal(size=(5, 6))).astype(np.float32))
with tt.record(sys.argv[1], net, level="mix", keep="tensor", strict=True):
    if hasattr(torch.Tensor, "asnumpy"):
        import mindspore as ms
        ms.value_and_grad(lambda x: net(x).sum(), grad_position=0, weights=list(net.parameters()))(x)
    else:
        net(x).sum().backward()
"""


@pytest.mark.needs_torch
def test_a_trace_of_msadapter_lies_beside_one_of_pytorch(path, tmp_path):
    """The same code in both: it agrees, and where it does not, the layer and the setting are named."""
    runs = {
        "torch": (sys.executable, SAME_NET, str(ROOT / "src"), "1e-5"),
        "adapter": (layer("msadapter", MINDTORCH), script(SAME_NET), path, "1e-5"),
        "wrong": (layer("msadapter", MINDTORCH), script(SAME_NET), path, "1e-3"),
    }
    for name, (python, text, paths, eps) in runs.items():
        command = [str(python), "-c", text, str(tmp_path / name), eps]
        env = os.environ | {"PYTHONPATH": paths, "GLOG_v": "4"}
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=900)
        assert done.returncode == 0, done.stderr
    good = tt.compare(tmp_path / "torch", tmp_path / "adapter")
    assert good.agree, tt.verdict(good)
    found = tt.compare(tmp_path / "torch", tmp_path / "wrong").divergence.result
    assert found.match.left[0].site.path == "norm"
    assert found.settings["eps"] == ("1e-05", "0.001")


@pytest.mark.slow
def test_the_self_check_on_the_mindspore_of_this_environment(path, tmp_path):
    python = layer("msadapter", MINDTORCH)
    check(run_inside(python, ["test_selfcheck.py"], {"PYTHONPATH": path}, tmp_path), EXCUSES, 1)


@pytest.mark.slow
def test_as_it_is_on_mindspore_2_7(tmp_path):
    python = layer("msadapter-2.7", ["mindspore==2.7.0", *MINDTORCH])
    found = run_inside(python, ["test_contract.py", "test_recording.py"], AS_IT_IS, tmp_path, QUIET_27)
    check(found, EXCUSES_OF_27, 100, LIMITS_OF_27)


# --- the checks can fail ----------------------------------------------------------------------------------------------


def test_a_failure_inside_is_a_failure_here(tmp_path):
    (tmp_path / "test_it.py").write_text(
        "import pytest\n"
        "def test_good(): pass\n"
        "def test_bad(): assert 1 == 2\n"
        "def test_left_out(): pytest.skip('no reason')\n"
        "def test_excused(): pytest.skip('msadapter has no f8e5m2')\n"
    )
    found = run_inside(Path(sys.executable), [str(tmp_path / "test_it.py")], {}, tmp_path)
    assert {name.partition("::")[2]: state for name, (state, _) in found.items()} == {
        "test_good": "passed", "test_bad": "failed", "test_left_out": "skipped", "test_excused": "skipped",
    }  # fmt: skip
    with pytest.raises(
        AssertionError, match=r"(?s)2 of 4 tests inside.*test_bad.*1 == 2.*test_left_out: skipped without an excuse"
    ):
        check(found, EXCUSES, 1)
    with pytest.raises(AssertionError, match="only 1 tests ran inside"):
        check({name: it for name, it in found.items() if "good" in name}, EXCUSES, 2)
    good = next(name for name in found if "good" in name)
    with pytest.raises(AssertionError, match="test_good: expected to fail, but it was passed"):
        check({good: found[good]}, EXCUSES, 1, {good})
