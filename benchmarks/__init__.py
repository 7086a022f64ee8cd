"""Side-by-side measurements against the peers; not timed tests.

    python -m benchmarks.record          what recording costs, ours and theirs, in one run

Nothing here is imported by the package, and nothing is shipped. README.md says how to read the tables.
"""

import importlib.util
import sys
from pathlib import Path

if importlib.util.find_spec("twintrace") is None:  # a machine on which nothing is installed: from source
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))
