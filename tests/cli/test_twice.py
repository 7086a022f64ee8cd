"""`twintrace twice`: what it says, and its exit codes."""

import pytest

pytestmark = pytest.mark.needs_torch
pytest.importorskip("torch")


def test_it_says_where_and_why(command, tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import torch\nimport sys\ny = (torch.arange(4.0) * torch.rand(int(sys.argv[2]))).sum()\n")
    said = command("twice")(script, "--size", "4", expect=1)
    assert "does not repeat itself: two runs differ first at torch.rand, step 0, forward" in said
    assert "where   script.py:3 in <module>" in said
    assert "cause   random numbers without a seed" in said


def test_what_it_is_not(command, tmp_path):
    assert "whether recording changes the run" in " ".join(command("twice")("--help", expect=0).split())
    assert "whether the run repeats itself" in " ".join(command("selfcheck")("--help", expect=0).split())
    (tmp_path / "plain.py").write_text("print(1)\n")
    assert "imports no framework" in command("twice")(tmp_path / "plain.py", expect=2)
