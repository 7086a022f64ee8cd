"""Every public name of msprobe's two doors: here, or left out with a sentence; and in SURFACE.md."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from twintrace.compat import msprobe
from twintrace.compat.msprobe.stand_in import LEFT_OUT, provide
from twintrace.compat.run_as import LeftOutError

SURFACE = (Path(msprobe.__file__).parent / "SURFACE.md").read_text()
# The names that msprobe 8.3 and 26.2 import into their two packages.
NAMES = {
    "pytorch": (
        "PrecisionDebugger", "module_dump", "module_dump_end", "seed_all", "compare", "compare_distributed", "TrainerMon",
        "random_save", "set_fx_dump_config", "set_ge_dump_config", "acl_save", "AclGraphDumper",
    ),
    "mindspore": ("PrecisionDebugger", "seed_all", "MsprobeStep", "MsprobeInitStep", "TrainerMon", "save", "save_grad", "step"),
}  # fmt: skip
EACH = [(door, name) for door, names in NAMES.items() for name in names]


@pytest.mark.parametrize(("door", "name"), EACH)
def test_a_name_is_here_or_left_out_with_a_sentence(door, name):
    assert f"`{name}" in SURFACE
    with provide():
        module = sys.modules[f"msprobe.{door}"]
        if f"{door}.{name}" not in LEFT_OUT:
            if name.startswith("Msprobe"):
                pytest.importorskip("mindspore")
            assert callable(getattr(module, name))
            return
        assert not hasattr(module, name)
        with pytest.raises(LeftOutError, match=rf"msprobe\.{door}\.{name} is not provided here: .+\.$"):
            getattr(module, name)
        with pytest.raises(ImportError, match=rf"msprobe\.{door}\.{name} is not provided here: .+\.$"):
            exec(f"from msprobe.{door} import {name}")


def test_modules_inside_the_doors():
    with provide():
        from msprobe.mindspore.common.utils import seed_all
        from msprobe.pytorch.common.utils import seed_all as seed_torch
        from msprobe.pytorch.debugger.precision_debugger import PrecisionDebugger

        assert seed_all is sys.modules["msprobe.mindspore"].seed_all
        assert seed_torch is sys.modules["msprobe.pytorch"].seed_all
        assert PrecisionDebugger is sys.modules["msprobe.pytorch"].PrecisionDebugger
        for module in ("msprobe.core.compare", "msprobe.pytorch.online_dispatch", "msprobe.visualization"):
            with pytest.raises(ImportError, match=rf"{re.escape(module.rpartition('.')[0])}.* is not provided here"):
                __import__(module)
    assert "msprobe.mindspore.common.utils" not in sys.modules


def test_importing_the_doors_imports_no_framework(checkout_env):
    code = (
        "import sys, twintrace.compat.msprobe.mindspore, twintrace.compat.msprobe.pytorch;"
        "print({'torch', 'mindspore'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], env=checkout_env, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "set()", done.stderr
