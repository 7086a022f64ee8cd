"""MSAdapter is a package called `torch`, so its tests run in a process and an environment of their own: those in `inside`.

    MindSpore 2.10   mindnlp's mindtorch under a stand-in `torch`, over the environment that runs these tests
    MindSpore 2.7    mindtorch as it is, as its users import it; slow, because a MindSpore of its own is installed

Environments are made on first use and kept (scripts/layers.py). One that cannot be made is a failure here, never a skipped test.
"""

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from scripts.layers import layer

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
MINDTORCH = [
    "mindnlp==0.5.1",
    "ml_dtypes==0.5.4",
]  # mindnlp asks for transformers, torch and much else, and imports none of it here

# What an adapter cannot offer, and what a test may therefore be skipped for; any other reason is a fault.
EXCUSES = (
    "msadapter has no f8",
    "msadapter has no f4",
    "msadapter has no c32",
    "msadapter shares no memory",
    "has no checkpoint",
)
EXCUSES_OF_27 = (*EXCUSES, "msadapter does not offer op", "PyTorch lies underneath and would be imported first")

pytestmark = pytest.mark.needs_mindspore


def run_inside(python: Path, files: list[str], variables: dict[str, str], folder: Path) -> dict[str, tuple[str, str]]:
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
        [*command, f"--rootdir={ROOT}", *(str(HERE / "inside" / name) for name in files)],
        env=env, cwd=folder, capture_output=True, text=True, timeout=1200,
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


def check(found: dict[str, tuple[str, str]], excuses: tuple[str, ...], at_least: int) -> None:
    """Every test has passed, or was skipped for a reason that is listed."""
    bad = [f"{name}: {why}" for name, (state, why) in found.items() if state == "failed"]
    bad += [
        f"{name}: skipped without an excuse: {why.splitlines()[0]}"
        for name, (state, why) in found.items()
        if state == "skipped" and not any(excuse in why for excuse in excuses)
    ]
    assert not bad, f"{len(bad)} of {len(found)} tests inside:\n\n" + "\n\n".join(bad)
    passed = sum(state == "passed" for state, _ in found.values())
    assert passed >= at_least, f"only {passed} tests ran inside"


@pytest.fixture
def path() -> str:
    return os.pathsep.join([str(HERE / "standin"), str(ROOT / "src")])


@pytest.mark.parametrize(
    ("files", "at_least"), [(["test_contract.py"], 100), (["test_recording.py"], 10)], ids=["contract", "recording"]
)
def test_on_mindspore_2_10(files, at_least, path, tmp_path):
    python = layer("msadapter", MINDTORCH)
    check(run_inside(python, files, {"PYTHONPATH": path}, tmp_path), EXCUSES, at_least)


@pytest.mark.slow
def test_as_it_is_on_mindspore_2_7(tmp_path):
    python = layer("msadapter-2.7", ["mindspore==2.7.0", *MINDTORCH])
    variables = {"PYTHONPATH": str(ROOT / "src"), "TWINTRACE_IMPORT_FIRST": "mindtorch"}
    check(run_inside(python, ["test_contract.py", "test_recording.py"], variables, tmp_path), EXCUSES_OF_27, 100)


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
