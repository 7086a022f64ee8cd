"""How good the judge is: generated cases whose truth is known, beside the rules of other tools on the same pairs; its costs.

    python -m benchmarks.judge                      seed 0: 400 mistakes and 80 rewrites, then the costs
    python -m benchmarks.judge --seed 7 --seed 8    other cases, of two seeds
    python -m benchmarks.judge --quick              60 mistakes, 20 rewrites, a small pair for the costs
    python -m benchmarks.judge --only epsilon       one family; may be repeated. No costs
    python -m benchmarks.judge --dir FOLDER         keep the traces there, and record nothing twice
    python -m benchmarks.judge -v                   the verdict of every case that is judged wrongly
    python -m benchmarks.judge --cli                through the command line, not the function
    python -m benchmarks.judge --json FILE          the figures too

The status is 1 when a target was missed. README.md: how to read it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import twintrace as tt
from benchmarks import judge_costs
from benchmarks.record import layout, say, targets_table
from benchmarks.rules import RULES, Accusation, apply_all
from benchmarks.targets import Verdict
from tests.corpus.generator.cases import Case, is_blamed
from tests.corpus.generator.recording import record
from tests.corpus.generator.sampling import MISTAKES, RIGHT, cases
from tests.corpus.generator.scoring import (
    CAUSE,
    PLACE_16,
    PLACE_F32,
    Outcome,
    Summary,
    headline_of,
    outcome_of,
    summary,
)

QUICK = (60, 20)
Told = dict[str, Accusation]


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    began = time.perf_counter()
    folder = options.dir or Path(tempfile.mkdtemp(prefix="twintrace-benchmark-"))
    try:
        outcomes, rules, unrecorded = judge_seeds(options, folder)
        say("")
        say(scores_table(outcomes))
        say("")
        say(families_table(outcomes))
        say("")
        say(rules_table(outcomes, rules))
        for name, error in unrecorded.items():
            say(f"not recorded: {name}: {error}")
        verdicts = targets(outcomes)
        if not options.only and options.costs:
            verdicts += costs(folder, "tiny" if options.quick else "full")
    finally:
        if not options.dir:
            shutil.rmtree(folder, ignore_errors=True)
    say("")
    say(targets_table(verdicts))
    say(
        f"\n{time.perf_counter() - began:.0f} s on {os.cpu_count()} cores of {platform.machine()}, load {os.getloadavg()[0]:.1f}"
    )
    if options.json:
        options.json.write_text(json.dumps(_figures(outcomes, verdicts), indent=1) + "\n", encoding="utf-8")
    return int(bool(unrecorded) or any(not verdict.met for verdict in verdicts))


def judge_seeds(options: argparse.Namespace, folder: Path) -> tuple[list[Outcome], list[Told], dict[str, str]]:
    """Outcomes of ours and what the rules say, case by case; and what could not be recorded."""
    outcomes: list[Outcome] = []
    rules: list[Told] = []
    unrecorded: dict[str, str] = {}
    for seed in options.seed or [0]:
        sample = cases(seed, *(QUICK if options.quick else (options.mistakes, options.rewrites)))
        chosen = [case for case in sample.all if not options.only or case.family in options.only]
        say(f"seed {seed}: {len(chosen)} cases, {len(sample.gaps)} gaps; recording …")
        place = folder / f"seed-{seed}"
        failed = record(chosen, place)
        unrecorded |= {f"{seed}/{name}": error for name, error in failed.items()}
        for case in chosen:
            if case.name in failed:
                continue
            outcome, told = judge_case(case, place / case.name, cli=options.cli)
            outcomes.append(outcome)
            rules.append(told)
            _say_outcome(outcome, verbose=options.verbose)
    return outcomes, rules, unrecorded


def judge_case(case: Case, folder: Path, *, cli: bool = False) -> tuple[Outcome, Told]:
    """Ours, and what the rules say of the same pairs. An exception is a verdict, too: exit code 2."""
    left, right = folder / "left", folder / "right"
    try:
        found = tt.compare(left, right)
        code, text = _from_cli(left, right) if cli else (found.code, tt.verdict(found))
        return outcome_of(case, code, text, headline_of(found)), apply_all(found, left, right)
    except Exception:  # noqa: BLE001 - one case that fails is counted, and the others are still to be judged
        return outcome_of(case, 2, traceback.format_exc(limit=-5), ((), (), ("", ""))), {}


def _from_cli(left: Path, right: Path) -> tuple[int, str]:
    command = [sys.executable, "-m", "twintrace", "compare", str(left), str(right)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"COLUMNS": "400", "NO_COLOR": "1"})
    return done.returncode, done.stdout + done.stderr


def _say_outcome(outcome: Outcome, *, verbose: bool) -> None:
    truth = outcome.case.truth
    marks = f"{'place' if outcome.placed else '-----'} {'cause' if outcome.caused else '-----'}"
    good = outcome.right and outcome.placed and outcome.caused
    if good and not verbose:
        return
    where = " | ".join(outcome.headline)
    say(
        f"{'  ' if good else 'NO'} {marks}  exit {outcome.code}  {outcome.case.name}  want {truth.want}; told {where[:160]}"
    )
    if verbose and not good:
        say(f"     wanted: {_places(outcome.case)}, cause /{truth.cause}/\n{outcome.text}\n")


def _places(case: Case) -> str:
    sides = (case.truth.left, case.truth.right)
    return " | ".join("; ".join(f"{place.calls or 'any'} in {place.path or '.'}" for place in side) for side in sides)


# --- tables -----------------------------------------------------------------------------------------------------------


def scores_table(outcomes: Sequence[Outcome]) -> str:
    """Ours, by dtype and pair of frameworks."""
    groups: dict[tuple[str, str], list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        groups[outcome.case.dtype, outcome.case.pair].append(outcome)
    heads = ("dtype", "beside", "mistakes", "place", "cause", "rewrites", "false alarms", "false agreements", "untold")
    rows = [(dtype, pair, *_cells(summary(group))) for (dtype, pair), group in sorted(groups.items())]
    return layout([heads, *rows, ("all", "", *_cells(summary(outcomes)))])


def _cells(found: Summary) -> tuple[str, ...]:
    placed, caused = (f"{100 * share:.1f} %" if found.mistakes else "-" for share in (found.placed, found.caused))
    counts = (found.rewrites, found.false_alarms, found.false_agreements, found.undecided)
    return str(found.mistakes), placed, caused, *map(str, counts)


def families_table(outcomes: Iterable[Outcome]) -> str:
    """Families that are not all judged rightly."""
    groups: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        groups[outcome.case.family].append(outcome)
    rows = []
    for family, group in sorted(groups.items()):
        counts = [sum(good) for good in zip(*((item.placed, item.caused) for item in group), strict=True)]
        if min(counts) < len(group):
            rows.append((family, str(len(group)), *map(str, counts)))
    return layout([("family", "cases", "place", "cause"), *(rows or [("(all right)", "", "", "")])])


def rules_table(outcomes: Sequence[Outcome], rules: Sequence[Told]) -> str:
    """Ours beside the rules of other tools. They name no cause."""
    heads = ("rule", "mistakes", "noticed", "place", "cause", "rewrites", "false alarms")
    wrong = [outcome.case.truth.want != "agree" for outcome in outcomes]
    count, right = sum(wrong), len(wrong) - sum(wrong)
    ours = summary(outcomes)
    noticed = sum(outcome.code == 1 for outcome, is_wrong in zip(outcomes, wrong, strict=True) if is_wrong)
    rows = [("twintrace", count, _share(noticed, count), *(f"{100 * share:.1f} %" for share in (ours.placed, ours.caused)),
             right, ours.false_alarms)]  # fmt: skip
    for name in RULES:
        told = [(outcome, rule[name]) for outcome, rule in zip(outcomes, rules, strict=True) if name in rule]
        accused = [item for item in told if not item[1].agrees]
        placed = sum(_blames(*item) for item in accused if item[0].case.truth.want != "agree")
        alarms = sum(item[0].case.truth.want == "agree" for item in accused)
        rows.append(
            (name, count, _share(len(accused) - alarms, count), _share(placed, count), "-", right, alarms)
        )  # fmt: skip
    return layout([heads, *([str(cell) for cell in row] for row in rows)])


def _blames(outcome: Outcome, told: Accusation) -> bool:
    assert told.match is not None
    left, right = told.match.left, told.match.right
    return is_blamed(outcome.case.truth, left, right, ("", "") if left or right else told.parameters)


def _share(some: int, of: int) -> str:
    return f"{100 * some / of:.1f} %" if of else "-"


# --- targets ----------------------------------------------------------------------------------------------------------


def targets(outcomes: Sequence[Outcome]) -> list[Verdict]:
    """Shares of what is missed, so that less is better, as in the other benchmarks."""

    def missed(share: Callable[[Summary], float], kinds: tuple[str, ...]) -> float | None:
        group = [item for item in outcomes if item.case.dtype in kinds and item.case.truth.want != "agree"]
        return 1 - share(summary(group)) if group else None

    everything = summary(outcomes)
    return [
        Verdict("place missed, f32", missed(lambda found: found.placed, ("f32",)), 1 - PLACE_F32),
        Verdict("place missed, bf16", missed(lambda found: found.placed, ("bf16",)), 1 - PLACE_16),
        Verdict("place missed, f16", missed(lambda found: found.placed, ("f16",)), 1 - PLACE_16),
        Verdict("cause missed", missed(lambda found: found.caused, ("f32", "bf16", "f16")), 1 - CAUSE),
        Verdict("false alarms", float(everything.false_alarms) if everything.rewrites else None, 0.0),
        Verdict("false agreements", float(everything.false_agreements) if everything.mistakes else None, 0.0),
    ]


def costs(folder: Path, size: str) -> list[Verdict]:
    """Costs of judging, in seconds of one core, and by the clock on two; each figure the least of three."""
    return list(_costs(folder / "costs", size))


def _costs(folder: Path, size: str) -> Iterator[Verdict]:
    warm = str(folder / "warm")
    judge_costs.in_process("record", "tiny", warm)
    judge_costs.in_process("record", size, str(folder / "gpt"))
    judged = _least("compare", warm, str(folder / "gpt"))
    passes = _least("passes", size)
    say(
        f"\nGPT pair of which no value is equal: judged in {judged['seconds']:.2f} s ({judged['pairs']:,} pairs, "
        f"{judged['peak_mb']:.0f} MB, {'agree' if judged['agree'] else 'part'}); {judge_costs.PASSES} float64 forward and "
        f"backward passes take {passes['seconds']:.2f} s"
    )
    yield Verdict(
        "GPT pair: time / 8 float64 passes", judged["seconds"] / passes["seconds"], judge_costs.SHARE_OF_PASSES
    )
    both = [
        _least(*command, by="wall", OMP_NUM_THREADS="2")
        for command in (("compare", warm, str(folder / "gpt")), ("passes", size))
    ]
    say(f"on two cores: {both[0]['wall']:.2f} s by the clock; the passes {both[1]['wall']:.2f} s")
    yield Verdict(
        "GPT pair, two cores: time / 8 float64 passes", both[0]["wall"] / both[1]["wall"], judge_costs.SHARE_OF_PASSES
    )
    judge_costs.in_process("small", str(folder / "small"))
    small = _least("pair", warm, str(folder / "small"))
    say(f"small tensors: {small['pairs'] / small['seconds']:,.0f} pairs a second before recomputation")
    yield Verdict(
        "small tensors: ms for 10 pairs", 1e4 * small["seconds"] / small["pairs"], 1e4 * judge_costs.SECONDS_PER_PAIR
    )


def _least(*arguments: str, by: str = "seconds", **variables: str) -> dict[str, Any]:
    return min((judge_costs.in_process(*arguments, **variables) for _ in range(3)), key=lambda figures: figures[by])


def _figures(outcomes: Sequence[Outcome], verdicts: Sequence[Verdict]) -> dict[str, Any]:
    return {
        "summary": asdict(summary(outcomes)),
        "cases": [
            {"name": item.case.name, "want": item.case.truth.want, "code": item.code, "placed": item.placed, "caused": item.caused}
            for item in outcomes
        ],
        "targets": [asdict(verdict) | {"met": verdict.met} for verdict in verdicts],
    }  # fmt: skip


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.judge", description="How good the judge is, and what it costs."
    )
    parser.add_argument("--seed", type=int, action="append", help="of the generator; may be repeated (default: 0)")
    parser.add_argument("--mistakes", type=int, default=MISTAKES)
    parser.add_argument("--rewrites", type=int, default=RIGHT)
    parser.add_argument(
        "--quick", action="store_true", help=f"{QUICK[0]} mistakes, {QUICK[1]} rewrites, a small pair of GPT traces"
    )
    parser.add_argument("--only", action="append", metavar="FAMILY", help="of mistakes or rewrites; may be repeated")
    parser.add_argument("--dir", type=Path, help="keep the traces there; what is there is not recorded again")
    parser.add_argument(
        "--cli", action="store_true", help="exit code and text of the command, in a process for each case"
    )
    parser.add_argument("--no-costs", dest="costs", action="store_false")
    parser.add_argument("-v", "--verbose", action="store_true", help="the verdict of every case that is judged wrongly")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
