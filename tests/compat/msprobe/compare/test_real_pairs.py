"""What the real tool pairs in two dumps of two frameworks is paired here, too, for every mapping; and more than that.

The tool runs in a thin environment over this one, built on first use (benchmarks/peers.py).
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
from pathlib import Path

import pytest

from benchmarks.peers import environment
from twintrace.compat.msprobe.compare.mappings import read_cell_mapping, read_layer_mapping
from twintrace.compat.msprobe.compare.pairing import PairingRules, pair_items
from twintrace.compat.msprobe.dumps import open_dump

# All comparisons in one process: the tool takes seconds to start.
SCRIPT = """
import json, sys
from msprobe.msprobe import main
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["msprobe", "compare", *arguments]
    main()
"""
CELLS = "net.mlp.mapping.Dense: net.mlp.dense_h_to_4h.Linear\nDense: Linear\n"
LAYERS = "ParallelMLP:\n  mapping: dense_h_to_4h\n  projection: dense_4h_to_h\n"


@pytest.fixture(scope="module")
def compared(mindspore_dumps, torch_dumps, tmp_path_factory):
    """For each option: what the tool pairs, and what we pair."""
    root = tmp_path_factory.mktemp("real")
    (root / "cells.yaml").write_text(CELLS, encoding="utf-8")
    (root / "layers.yaml").write_text(LAYERS, encoding="utf-8")
    rules = {
        "-cm": ((), PairingRules(cells={})),
        "-cm file": ((str(root / "cells.yaml"),), PairingRules(cells=read_cell_mapping(root / "cells.yaml"))),
        "-am": ((), PairingRules(api_rules=())),
        "-lm": ((), PairingRules(layers={})),
        "-lm file": ((str(root / "layers.yaml"),), PairingRules(layers=read_layer_mapping(root / "layers.yaml"))),
    }
    npu, bench = (dumps / "statistics" / "step0" / "rank" / "dump.json" for dumps in (mindspore_dumps, torch_dumps))
    asked = [
        ["-tp", str(npu), "-gp", str(bench), "-o", str(_folder(root, name)), name.split()[0], *file]
        for name, (file, _) in rules.items()
    ]
    done = subprocess.run(
        [str(environment("msprobe")), "-c", SCRIPT, json.dumps(asked)],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]
    ours = {name: pair_items(open_dump(npu), open_dump(bench), wish).names for name, (_, wish) in rules.items()}
    return {name: (_pairs(_folder(root, name)), found) for name, found in ours.items()}


def _folder(root: Path, option: str) -> Path:
    return root / option.strip("-").replace(" ", "_")  # it refuses a path with a space


def _pairs(folder: Path) -> dict[str, str]:
    (path,) = folder.glob("compare_result_*.csv")
    with path.open(encoding="utf-8-sig", newline="") as file:
        return {r["NPU Name"]: r["Bench Name"] for r in csv.DictReader(file) if r["Bench Name"] != "N/A"}


@pytest.mark.needs_torch
@pytest.mark.needs_mindspore
@pytest.mark.parametrize("option", ["-cm", "-cm file", "-am", "-lm", "-lm file"])
def test_its_pairs_are_ours(compared, option):
    real, ours = compared[option]

    assert real, "it pairs something"
    assert real.items() <= ours.items()
    assert len(ours) > len(real)
