"""What the recorder is held to, and whether a run of the benchmark met it.

    judge(rows)     ours api statistics: extra <= 1/6 of msprobe L1 statistics'     0.11   wanted <= 0.167   met

A target whose figures are not all there is `not measured`, which is not `met`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from benchmarks.measure import MODELS, Row

# ours (level, keep)            msprobe (level, keep)       share of its extra time that we may take
SHARES = (
    (("api", "statistics"), ("api", "statistics"), 1 / 6),
    (("api", "fingerprint"), ("api", "statistics"), 1 / 6),
    (("module", "statistics"), ("module", "statistics"), 1 / 2),
    (("module", "fingerprint"), ("module", "statistics"), 1 / 2),
    (("mix", "statistics"), ("mix", "statistics"), 1 / 6),
    (("mix", "fingerprint"), ("mix", "statistics"), 1 / 6),
    (("api", "tensor"), ("api", "tensor"), 1 / 6),
)
BYTES_SHARE = 1 / 2
FILES_OF_A_STEP = 5  # a handful
GROWTH = 1.10  # flat, give or take what a noisy machine does to a median of ten
STOPPED = 1.03  # nothing, likewise

Table = dict[tuple[str, str, str], Row]


@dataclass(frozen=True)
class Verdict:
    """One target and the figure that was found."""

    target: str
    found: float | None
    wanted: float

    @property
    def met(self) -> bool | None:
        """None where it was not measured."""
        return None if self.found is None else self.found <= self.wanted

    @property
    def word(self) -> str:
        return {None: "not measured", True: "met", False: "MISSED"}[self.met]


def judge(rows: Iterable[Row]) -> list[Verdict]:
    """All targets against the rows of one run."""
    table = {row.key: row for row in rows if row.error is None}
    return [
        *(_share_of_time(table, ours, theirs, share) for ours, theirs, share in SHARES),
        _share_of_bytes(table),
        _number(table, ("twintrace", "api", "tensor"), "files of a step", _files_of_a_step, FILES_OF_A_STEP),
        _number(table, ("twintrace", "api", "statistics"), "last / first steps", lambda row: row.growth, GROWTH),
        _number(table, ("stopped", "api", "statistics"), "stopped / bare", lambda row: row.both, STOPPED),
    ]


def _share_of_time(table: Table, ours: tuple[str, str], theirs: tuple[str, str], share: float) -> Verdict:
    mine, peer = table.get(("twintrace", *ours)), table.get(("msprobe", *theirs))
    name = f"{' '.join(ours)}: extra time / msprobe {' '.join(theirs)}"
    return Verdict(name, mine.extra / peer.extra if mine and peer else None, share)


def _share_of_bytes(table: Table) -> Verdict:
    mine, peer = table.get(("twintrace", "api", "tensor")), table.get(("msprobe", "api", "tensor"))
    found = mine.bytes_per_step / peer.bytes_per_step if mine and peer else None
    return Verdict("api tensor: bytes / msprobe api tensor", found, BYTES_SHARE)


def _files_of_a_step(row: Row) -> float:
    return row.files / row.steps / len(MODELS)


def _number(
    table: Table, key: tuple[str, str, str], what: str, figure: Callable[[Row], float | None], wanted: float
) -> Verdict:
    row = table.get(key)
    return Verdict(f"{key[1]} {key[2]}: {what}", figure(row) if row else None, wanted)
