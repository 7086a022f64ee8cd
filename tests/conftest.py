"""What all tests share: which frameworks they need, how they start another interpreter, and no network."""

import contextlib
import functools
import importlib
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent

# Models are built from their configurations: a test that would download something fails at once, everywhere alike.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")  # AMX bf16 can die of SIGILL on virtual machines
if "PYTEST_XDIST_WORKER" in os.environ:  # one worker per core: threads within each would only fight
    os.environ.setdefault("OMP_NUM_THREADS", "1")

FRAMEWORKS = ("torch", "mindspore")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--require",
        action="append",
        default=[],
        choices=FRAMEWORKS,
        help="this framework must be installed: an error instead of skipped tests",
    )
    parser.addoption(
        "--older-releases",
        action="store_true",
        help="skip what a release does not offer (the marker `offered`); without this it is an error",
    )


def pytest_configure(config: pytest.Config) -> None:
    missing = [name for name in config.getoption("--require") if importlib.util.find_spec(name) is None]
    if missing:
        raise pytest.UsageError(f"--require: {', '.join(missing)} not installed in {sys.prefix}")


def pytest_runtest_setup(item: pytest.Item) -> None:
    for name in FRAMEWORKS:
        if item.get_closest_marker(f"needs_{name}") and importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
    for marker in item.iter_markers("offered"):
        for wanted in marker.args:
            need(item.config, wanted)


@pytest.fixture
def needs_offered(request: pytest.FixtureRequest) -> "Callable[[str | Callable[[], bool]], None]":
    """The marker `offered` as a function, for tests of which only some parameters need it."""
    return functools.partial(need, request.config)


def need(config: pytest.Config, wanted: str | Callable[[], bool]) -> None:
    if not is_offered(wanted):
        told = f"not offered here: {wanted if isinstance(wanted, str) else wanted.__doc__}"
        (pytest.skip if config.getoption("--older-releases") else pytest.fail)(told)


def is_offered(wanted: str | Callable[[], bool]) -> bool:
    """Is there a module or attribute of this dotted name? A function is asked."""
    if not isinstance(wanted, str):
        return wanted()
    first, *rest = wanted.split(".")
    found = importlib.import_module(first) if importlib.util.find_spec(first) else None
    for name in rest:
        if isinstance(found, ModuleType) and hasattr(found, "__path__") and not hasattr(found, name):
            with contextlib.suppress(ModuleNotFoundError):
                importlib.import_module(f"{found.__name__}.{name}")
        found = getattr(found, name, None)
    return found is not None


@pytest.fixture(scope="session")
def mindspore_beside_numpy_2() -> None:
    """MindSpore 2.10 is built with numpy 1. Beside numpy 2 the first call that takes a Python number raises, recorded or not, and
    those after it do not (docs/reference/versions.md): that call is made here.
    """
    if version("numpy").startswith("2.") and importlib.util.find_spec("mindspore"):
        from mindspore import Tensor, ops

        with contextlib.suppress(SystemError):
            ops.mul(Tensor([1.0]), 2.0)


@pytest.fixture(scope="session")
def checkout_env() -> dict[str, str]:
    """The environment variables of a process that runs this checkout's code with this interpreter's commands."""
    path = [str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    commands = [str(Path(sys.executable).parent), os.environ["PATH"]]
    return os.environ | {"PYTHONPATH": os.pathsep.join(path), "PATH": os.pathsep.join(commands), "NO_COLOR": "1"}


@pytest.fixture(scope="session")
def python(checkout_env: dict[str, str]) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """`python(code, *arguments, path=folder)`: run code in an interpreter of its own, `folder` first on its path."""

    def run(code: str, *arguments: str, path: Path | None = None) -> "subprocess.CompletedProcess[str]":
        env = checkout_env
        if path is not None:
            env = env | {"PYTHONPATH": os.pathsep.join([str(path), env["PYTHONPATH"]])}
        command = [sys.executable, "-c", code, *arguments]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)

    return run
