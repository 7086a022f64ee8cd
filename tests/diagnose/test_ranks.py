"""Several ranks: the one that made it is blamed, not those that it was sent to."""

import subprocess
import sys
from pathlib import Path

import pytest

import twintrace as tt
from twintrace.model.nonfinite import Source

pytestmark = [pytest.mark.needs_torch, pytest.mark.slow]
pytest.importorskip("torch")


def test_the_rank_that_made_it(tmp_path, checkout_env):
    script = Path(__file__).with_name("two_ranks.py")
    subprocess.run([sys.executable, str(script), str(tmp_path / "t")], env=checkout_env, check=True, timeout=300)
    found = tt.first_nonfinite(tmp_path / "t").origin
    assert (found.step, found.rank, found.source) == (1, 1, Source.DIVISION)
    alone = tt.first_nonfinite(tmp_path / "t", ranks=[0]).origin
    assert (alone.rank, alone.source, alone.call.site.name) == (0, Source.ELSEWHERE, "torch.distributed.all_reduce")
