"""What comparing two folders of .npy files costs: ours in TroubleShooter's place, and TroubleShooter, in one run.

    python -m benchmarks.npy                 200 pairs of 4 MB, a minute or two
    python -m benchmarks.npy --quick         40 pairs, one round
    python -m benchmarks.npy --no-peers      ours alone
    python -m benchmarks.npy --json FILE     the figures as well, for keeping

The status is 1 when a target was missed, a tool failed, or the peer could not be had. README.md: how to read it.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks import peers
from benchmarks.compare import Row, call_comparers, costs_table, one_run, quickest, tell
from benchmarks.comparers import Data
from benchmarks.targets import Verdict

OURS, THEIRS = "folders", "troubleshooter"
ELEMENTS = 1 << 20  # 4 MB of float32
SHARE_OF_TIME = 1 / 10  # of TroubleShooter's compare_npy_dir, on arrays that differ
SHARE_OF_EQUAL = 1 / 3  # on arrays that are equal, which it compares at the speed of memory
WARM = Data("warm", 2, 64)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    began = time.perf_counter()
    pythons, missing = {OURS: Path(sys.executable)}, []
    if options.peers:
        try:
            pythons[THEIRS] = peers.environment(THEIRS)
        except peers.PeerUnavailable as reason:
            missing.append(f"{THEIRS} was not measured: {reason}")
    folder = Path(tempfile.mkdtemp(prefix="twintrace-benchmark-", dir=options.dir))
    try:
        rows = list(run(folder, pythons, options.pairs, options.rounds))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return tell(rows, judge(rows), missing, costs_table(rows), began, options.json)


def run(folder: Path, pythons: dict[str, Path], pairs: int, rounds: int) -> Iterator[Row]:
    """Both tools on arrays that differ, then on arrays that are equal, in turns."""
    for format, name in (("neighbours", "different"), ("twins", "equal")):
        data = Data(name, pairs, ELEMENTS)
        place = folder / "arrays"  # where the comparers look for them
        for each in (WARM, data):
            done = call_comparers(
                Path(sys.executable), "write", format, str(place / each.name), str(each.tensors), str(each.elements)
            )
            if done.returncode:
                raise RuntimeError(f"{each} could not be written:\n{done.stderr}")
        found: dict[str, list[Row]] = {tool: [] for tool in pythons}
        for _ in range(rounds):
            for tool, python in pythons.items():
                found[tool].append(checked(one_run(tool, python, folder, data), pairs))
        for rows in found.values():
            yield quickest(rows)
        shutil.rmtree(place)


def checked(row: Row, pairs: int) -> Row:
    """A tool that has not compared every pair has no figure."""
    if row.error or row.rows == pairs:
        return row
    return replace(row, error=f"it has {row.rows} rows for {pairs} pairs")


def judge(rows: Iterable[Row]) -> list[Verdict]:
    """Both targets against the rows of one run."""
    table = {row.key: row for row in rows if row.error is None}

    def share(data: str) -> float | None:
        ours, theirs = table.get((OURS, data)), table.get((THEIRS, data))
        return ours.seconds / theirs.seconds if ours and theirs else None

    return [
        Verdict("arrays that differ: time / troubleshooter's", share("different"), SHARE_OF_TIME),
        Verdict("equal arrays: time / troubleshooter's", share("equal"), SHARE_OF_EQUAL),
    ]


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.npy", description="What comparing folders of arrays costs."
    )
    parser.add_argument(
        "--no-peers", dest="peers", action="store_false", help="ours alone; nothing is built or installed"
    )
    parser.add_argument("--quick", action="store_true", help="40 pairs, one round")
    parser.add_argument("--pairs", type=int, help="of 4 MB each; 200 if not given")
    parser.add_argument("--rounds", type=int, help="of every tool; the quickest counts")
    parser.add_argument("--dir", type=Path, help="where the files go: up to 1.7 GB")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    options = parser.parse_args(arguments)
    options.pairs = options.pairs or (40 if options.quick else 200)
    options.rounds = options.rounds or (1 if options.quick else 3)
    return options


if __name__ == "__main__":
    sys.exit(main())
