"""What a trace takes on disk: one step of the benchmark's transformer and CNN, for every level and keep.

    python -m benchmarks.trace_sizes

Sizes do not depend on how busy the machine is. The steps are those of `benchmarks.record` (README.md).
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import twintrace as tt
from benchmarks.nets_torch import prepare, trainings

LEVELS = ("module", "api", "mix", "op")
KEEPS = ("statistics", "fingerprint", "tensor")


def main() -> None:
    prepare()
    print("| level | calls | " + " | ".join(f"{keep}, MB" for keep in KEEPS) + " |")
    print("|---|---|" + "---|" * len(KEEPS))
    for level in LEVELS:
        sizes, calls = [], 0
        for keep in KEEPS:
            with tempfile.TemporaryDirectory() as folder:
                calls = record(Path(folder), level, keep)
                sizes.append(sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file()) / 1e6)
        print(f"| {level} | {calls:,} | " + " | ".join(f"{size:,.1f}" for size in sizes) + " |", flush=True)


def record(folder: Path, level: str, keep: str) -> int:
    """One step of each work, the second of a training: the first makes the optimizer's state. Returns the number of calls."""
    calls = 0
    for name, training in trainings("full").items():
        training.step()
        with tt.record(folder / name, training.net, level=level, keep=keep):
            training.step()
        calls += len(tt.open(folder / name))
    return calls


if __name__ == "__main__":
    main()
