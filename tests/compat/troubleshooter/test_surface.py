"""Every public name of the real tool: here, or left out with a sentence; and in SURFACE.md."""

import subprocess
import sys
from pathlib import Path

import pytest

import twintrace.compat.troubleshooter as ts
from tests.compat.troubleshooter.dumps import stacks
from twintrace.compat import run_as as running
from twintrace.compat.troubleshooter import stand_in
from twintrace.compat.troubleshooter.stand_in import LEFT_OUT
from twintrace.model.errors import UsageError

SURFACE = (Path(ts.__file__).parent / "SURFACE.md").read_text()

# The real tool's, by hand: it does not import where this runs.
NAMES = {
    "": ("FRAMEWORK_TYPE", "fix_random", "migrator", "proposal", "save", "save_grad", "tracking", "widget"),
    "migrator": (
        "NetDifferenceFinder", "api_dump_compare", "api_dump_init", "api_dump_start", "api_dump_stop", "cal_algorithm",
        "cal_cosine_sim", "compare_dict_dir", "compare_grads_dir", "compare_list_dir", "compare_ms_ckpt", "compare_npy_dir",
        "compare_pth_and_ckpt", "convert_weight", "convert_weight_and_load", "get_name_map_list_by_name",
        "get_name_map_list_by_number", "get_name_map_list_by_shape_edit_distance", "get_weight_map", "save", "save_grad",
        "save_net_and_weight_params",
    ),
    "widget": (
        "fix_random", "get_pt_grads", "load_ms_weight2net", "loss_compare", "object_dump", "object_load", "precision_tracker",
        "save_convert",
    ),
}  # fmt: skip
ALL = [f"{package}.{name}".strip(".") for package, names in NAMES.items() for name in names]


def look_up(full):
    found = ts
    for part in full.split("."):
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("full", ALL)
def test_a_name_is_here_or_left_out(full):
    if full in LEFT_OUT:
        with pytest.raises(UsageError, match=rf"ts\.{full} is left out: "):
            look_up(full)
    else:
        assert look_up(full) is not None
    assert f"`{full}`" in SURFACE


def test_a_name_that_nobody_has():
    assert not hasattr(ts, "quux")
    assert not hasattr(ts.migrator, "quux")
    with pytest.raises(ImportError):
        exec("from twintrace.compat.troubleshooter import quux")
    with pytest.raises(UsageError, match="line tracer"):
        exec("from twintrace.compat.troubleshooter import tracking")


def test_a_name_that_is_left_out_can_be_asked_for():
    assert not hasattr(ts, "proposal")
    assert getattr(ts.widget, "save_convert", None) is None
    with pytest.raises(ImportError, match="line tracer"):
        exec("from twintrace.compat.troubleshooter import tracking")
    with pytest.raises(ImportError, match=r"ts\.widget\.save_convert is left out"):
        exec("from twintrace.compat.troubleshooter.widget import save_convert")


@pytest.mark.parametrize("line", ["import troubleshooter.tracker", "from troubleshooter.proposal import proposal"])
def test_a_module_that_is_left_out_says_so(line):
    finders = list(sys.meta_path)
    with stand_in.provide():
        with pytest.raises(ImportError, match=r"ts\.(tracker|proposal) is left out: "):
            exec(line)
        with pytest.raises(ModuleNotFoundError, match=r"troubleshooter\.quux"):
            exec("import troubleshooter.quux")
    assert sys.meta_path == finders


def test_what_is_listed_is_there():
    for module in (ts, ts.migrator):
        assert all(hasattr(module, name) for name in module.__all__)
    assert ts.__version__ == "1.0.18"
    assert {"torch", "mindspore", "mindtorch"} >= ts.FRAMEWORK_TYPE


def test_importing_does_nothing(python):
    code = """
import builtins, sys
before = builtins.print
import twintrace.compat.troubleshooter as ts
assert builtins.print is before
assert not {"torch", "mindspore"} & set(sys.modules), "a framework was imported"
"""
    assert python(code).stderr == ""


def test_the_stand_in_is_the_same_embassy_and_goes_away():
    assert "troubleshooter" not in sys.modules
    with stand_in.provide():
        import troubleshooter
        from troubleshooter.migrator import api_dump_init

        assert troubleshooter is ts
        assert api_dump_init is ts.migrator.api_dump_init
    assert "troubleshooter" not in sys.modules
    assert "troubleshooter.migrator" not in sys.modules


def test_a_real_one_is_hidden_meanwhile(monkeypatch):
    real = type(sys)("troubleshooter")
    monkeypatch.setitem(sys.modules, "troubleshooter", real)
    with stand_in.provide():
        assert sys.modules["troubleshooter"] is ts
    assert sys.modules["troubleshooter"] is real


def test_a_script_that_raises_leaves_nothing(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import troubleshooter as ts\nraise RuntimeError('mine')")
    with pytest.raises(RuntimeError, match="mine"):
        running.run_as("troubleshooter", str(script))
    assert "troubleshooter" not in sys.modules


def test_the_command_lists_the_tool(checkout_env):
    command = [sys.executable, "-c", "from twintrace.cli import main; main()", "run-as", "--help"]
    done = subprocess.run(command, env=checkout_env, capture_output=True, text=True, timeout=120)
    assert "troubleshooter" in done.stdout


@pytest.mark.parametrize("filtered", [True, False])
def test_a_script_sees_itself_as_python_would_run_it(tmp_path, monkeypatch, filtered):
    """By its absolute path, and nothing below it in its stacks."""
    (tmp_path / "script.py").write_text(
        "import torch, troubleshooter as ts\n"
        "assert __file__.startswith('/')\n"
        "net = torch.nn.Linear(2, 2)\n"
        "ts.migrator.api_dump_init(net, 'dump')\n"
        f"ts.migrator.api_dump_start(filter_stack={filtered})\n"
        "net(torch.ones(1, 2))\n"
        "ts.migrator.api_dump_stop()\n"
    )
    monkeypatch.chdir(tmp_path)
    running.run_as("troubleshooter", "script.py")
    *_, found = stacks("dump").values()
    assert found == [f"File {tmp_path}/script.py, line 6, in <module>, \n net(torch.ones(1, 2))"]
