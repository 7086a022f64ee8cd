"""Run by the real tool's interpreter: what it says of folders of arrays, as one line of JSON.

real_arrays.py ROOT     ROOT/<scenario>/orig, ROOT/<scenario>/target
"""

import contextlib
import io
import json
import sys
from pathlib import Path

import troubleshooter as ts

found = {}
for scenario in sorted(Path(sys.argv[1]).iterdir()):
    sides = str(scenario / "orig"), str(scenario / "target")
    told = found[scenario.name] = {}
    with contextlib.redirect_stdout(io.StringIO()):
        for by in ("name", "number", "shape_edit_distance"):
            told[f"by_{by}"] = getattr(ts.migrator, f"get_name_map_list_by_{by}")(*sides)
        told["npy"] = ts.migrator.compare_npy_dir(*sides, compare_shape=True, output_file=str(scenario / "real.csv"))
        told["equal_nan"] = ts.migrator.compare_npy_dir(*sides, equal_nan=True)
        told["tolerant"] = ts.migrator.compare_npy_dir(*sides, 1e-2, 1e-6)
        for kind in ("grads", "list", "dict"):
            told[kind] = getattr(ts.migrator, f"compare_{kind}_dir")(*sides)
sys.stdout.write("\n" + json.dumps(found) + "\n")
