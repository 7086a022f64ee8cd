"""List, show and record the cases of a seed; `python -m tests.corpus.generator --help`."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from .recording import record
from .sampling import MISTAKES, RIGHT, by_name, cases


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.corpus.generator", description=__doc__)
    parser.add_argument("names", nargs="*", help="cases; default: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mistakes", type=int, default=MISTAKES)
    parser.add_argument("--rewrites", type=int, default=RIGHT)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--list", action="store_true", help="names and what is set, then the gaps (default)")
    how.add_argument("--show", action="store_true", help="as JSON")
    how.add_argument("--record", type=Path, metavar="FOLDER")
    asked = parser.parse_args()
    sample = cases(asked.seed, asked.mistakes, asked.rewrites)
    chosen = by_name(sample, asked.names)
    if asked.record:
        errors = record(chosen, asked.record)
        for name, error in errors.items():
            sys.stdout.write(f"{name}: {error}\n")
        sys.stdout.write(f"{len(chosen) - len(errors)} of {len(chosen)} recorded below {asked.record}\n")
        return int(bool(errors))
    for case in chosen:
        if asked.show:
            sys.stdout.write(json.dumps(asdict(case), indent=1) + "\n")
        else:
            sets = [f"{side}: {'; '.join(' '.join(map(str, knob)) for knob in run.set)}" for side, run in
                    (("left", case.left), ("right", case.right)) if run.set]  # fmt: skip
            sys.stdout.write(f"{case.name:72} {case.truth.want:7} {' | '.join(sets)}\n")
    if not asked.names and not asked.show:
        sys.stdout.write(f"\n{len(sample.mistakes)} mistakes, {len(sample.rewrites)} rewrites; left out:\n")
        sys.stdout.writelines(f"  {gap}\n" for gap in sample.gaps)
    return 0


if __name__ == "__main__":
    sys.exit(main())
