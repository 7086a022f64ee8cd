"""Run by the real msprobe: a dump compared with itself. Arguments: dump.json, where to."""

import sys

from msprobe.msprobe import main

sys.argv = ["msprobe", "compare", "-tp", sys.argv[1], "-gp", sys.argv[1], "-o", sys.argv[2]]
main()
