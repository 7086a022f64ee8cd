"""Both sides of pairs, recorded once for all tests of a session.

    recordings(["mlp", "gpt"], folder)         FOLDER/mlp/torch, FOLDER/mlp/mindspore: traces with every value
    python -m corpus.record FOLDER [NAME …] [--fresh]    by hand; then each pair is aligned and its score printed

Each framework has a process of its own, which records all pairs that are asked for and not yet there.
"""

from __future__ import annotations

import fcntl
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from corpus.faults import Fault
from corpus.notation import pair_names, truth_of
from corpus.oracle import Oracle
from corpus.ports import run_once, run_side
from corpus.score import Score, score
from twintrace.align import align
from twintrace.model.pairs import Alignment, Side
from twintrace.model.tensors import Tensor
from twintrace.store.registry import open_trace
from twintrace.store.trace import Journal

LEVEL = "mix"
# What the default tests use, hard in different ways; recorded at one go, since starting a framework costs most.
SOME = ("deepfm", "densenet", "encoder_fused", "gpt", "mlp", "resnet", "seq2seq", "two_towers", "unet", "vae", "vit")


def recordings(
    names: Sequence[str], folder: Path, *, level: str = LEVEL, fresh: bool = False
) -> dict[str, tuple[Path, Path]]:
    """(left trace, right trace) by name. `fresh`: norms have the ones and zeros of their constructors."""
    run_once(names, folder, "--trace", level, *(["--fresh"] if fresh else []))
    return {name: (folder / name / "torch", folder / name / "mindspore") for name in names}


def faulty_recordings(faults: Sequence[Fault], folder: Path) -> dict[str, tuple[Path, Path]]:
    """(left trace, right trace with the fault) by the fault's name. The correct right sides are recorded as well."""
    pairs = {fault.pair for fault in faults}
    recordings(SOME if pairs <= {*SOME} else sorted(pairs), folder)
    found = {fault.name: (folder / fault.pair / "torch", folder / fault.pair / fault.name) for fault in faults}
    with (folder / "lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        needed = [name for name in found if not (folder / f"done-{name}").exists()]
        if needed:
            run_side("mindspore", folder, needed, "--trace", LEVEL, "--faulty")
            for name in needed:
                (folder / f"done-{name}").touch()
    return found


def journals(traces: tuple[Path, Path]) -> tuple[Journal, Journal]:
    left, right = (open_trace(path).journal(0, 0) for path in traces)
    return left, right


def side_of(journal: Journal, *, fingerprints: bool = True) -> Side:
    """A journal for the loom; without fingerprints it is as if only statistics had been kept."""

    def bare(number: int) -> Tensor:
        return replace(journal.tensor(number), fingerprint=None)

    gradients = tuple(journal.parameter_gradients())
    calls = tuple(journal.calls())
    return Side(journal.header.framework, calls, journal.tensor if fingerprints else bare, gradients)


def aligned(left: Journal, right: Journal, *, fingerprints: bool = True) -> Alignment:
    return align(side_of(left, fingerprints=fingerprints), side_of(right, fingerprints=fingerprints))


def scored(name: str, traces: tuple[Path, Path], *, fingerprints: bool = True) -> Score:
    left, right = journals(traces)
    return score(truth_of(name), aligned(left, right, fingerprints=fingerprints), Oracle(left, right))


def main() -> None:
    fresh = "--fresh" in sys.argv
    folder, *names = [argument for argument in sys.argv[1:] if argument != "--fresh"]
    recorded = recordings(names or pair_names(), Path(folder), fresh=fresh)
    scores = [scored(name, traces) for name, traces in recorded.items()]
    asked, missing = sum(one.asked for one in scores), sum(len(one.missing) for one in scores)
    wrong = sum(len(one.wrong) for one in scores)
    text = "\n".join(map(str, sorted(scores, key=lambda one: (-len(one.wrong), one.share))))
    sys.stdout.write(f"{text}\nall: {asked - missing} of {asked} ({1 - missing / asked:.2%}), {wrong} wrong\n")


if __name__ == "__main__":
    main()
