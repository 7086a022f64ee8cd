"""`twintrace twice`: a real script in two processes of its own."""

from __future__ import annotations

import textwrap

import pytest

from twintrace import api
from twintrace.model.errors import UsageError
from twintrace.model.repetition import Unsteadiness

pytestmark = pytest.mark.needs_torch
pytest.importorskip("torch")


def twice(folder, source, **options):
    script = folder / "script.py"
    script.write_text("import numpy as np\nimport torch\nimport twintrace as tt\n" + textwrap.dedent(source))
    return api.run_twice(script, **options)


def test_a_run_that_repeats_itself(tmp_path):
    found = twice(
        tmp_path,
        """
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 2))
        optimizer = torch.optim.Adam(net.parameters())
        with tt.record("never made", net) as rec:
            for _ in range(3):
                net(torch.randn(2, 4)).square().mean().backward()
                optimizer.step()
                rec.step()
        """,
    )
    assert found
    assert found.code == 0
    assert found.calls > 30
    assert "repeats itself" in api.repetition_text(found)
    assert not (tmp_path / "never made").exists()


SHUFFLED = """
data = torch.utils.data.TensorDataset(torch.arange(32.0))
for (x,) in torch.utils.data.DataLoader(data, batch_size=4, shuffle=True):
    y = (x * 2).sum()
"""


def test_a_loader_that_shuffles(tmp_path):
    found = twice(tmp_path, SHUFFLED)
    assert found.code == 1
    assert found.first.cause is Unsteadiness.ORDER, str(found)
    said = api.repetition_text(found)
    assert "script.py:6 in <module>: for (x,) in torch.utils.data.DataLoader" in said


def test_with_a_seed_it_is_steady(tmp_path):
    assert twice(tmp_path, SHUFFLED, seed=0).code == 0


def test_a_variable_that_was_made_elsewhere(tmp_path):
    found = twice(tmp_path, "y = torch.ones(3).sum()\nz = np.random.rand(3)")
    assert found.first.cause is Unsteadiness.OUTSIDE
    assert "first: z" in found.first.what


def test_arguments_errors_and_traces_that_are_kept(tmp_path):
    source = "import sys\ny = torch.ones(3).sum()\nraise KeyError(sys.argv[1])"
    found = twice(tmp_path, source, arguments=["--rate", "3"], keep=tmp_path / "kept")
    assert found.code == 0
    assert found.raised == "KeyError: '--rate'"
    kept = [api.open(tmp_path / "kept" / side / "0") for side in ("first", "second")]
    assert [trace.steps for trace in kept] == [(0,), (0,)]
    with pytest.raises(UsageError, match="Give another folder"):
        twice(tmp_path, source, keep=tmp_path / "kept")


def test_what_is_no_script(tmp_path):
    with pytest.raises(UsageError, match="no such file"):
        api.run_twice(tmp_path / "none.py")
