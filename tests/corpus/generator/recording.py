"""Both sides of many cases, recorded: one process per framework, since starting one costs more than recording.

    record(cases, folder)      FOLDER/NAME/left, FOLDER/NAME/right, the results beside them as .npz; {name: error} of what failed

MSAdapter needs an interpreter of its own (scripts/layers.py): it is built on first use.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from .cases import Case, Side

ROOT = Path(__file__).resolve().parents[3]
MINDTORCH = ["mindnlp==0.5.1", "ml_dtypes==0.5.4"]
"""As in tests/frameworks/msadapter/test_inside.py."""


def record(cases: Sequence[Case], folder: Path) -> dict[str, str]:
    """Record what is not there yet. Sides that several cases share are recorded once and linked."""
    errors: dict[str, str] = {}
    for framework in ("torch", "mindspore", "msadapter"):
        asked: dict[Side, list[Path]] = {}
        for case in cases:
            for side, name in ((case.left, "left"), (case.right, "right")):
                place = folder / case.name / name
                if side.framework == framework and not _is_recorded(side, place):
                    asked.setdefault(side, []).append(place)
        first = [(places[0], side) for side, places in asked.items()]
        failed = _record(framework, first)
        for places in asked.values():
            for place in places:
                if places[0] in failed:
                    errors[place.parent.name] = failed[places[0]]
                elif place != places[0]:
                    place.parent.mkdir(parents=True, exist_ok=True)
                    for suffix in ("", ".npz", ".json"):
                        link = Path(f"{place}{suffix}")
                        link.unlink(missing_ok=True)
                        link.symlink_to(os.path.relpath(f"{places[0]}{suffix}", place.parent))
    return errors


def _is_recorded(side: Side, place: Path) -> bool:
    """Is this very side there? A name alone may be that of another sampler's case."""
    told = place.with_suffix(".json")
    return told.exists() and Side.from_json(json.loads(told.read_text(encoding="utf-8"))) == side


def _record(framework: str, sides: Iterable[tuple[Path, Side]]) -> dict[Path, str]:
    """What failed, and why."""
    sides = list(sides)
    if not sides:
        return {}
    for place, _ in sides:
        place.parent.mkdir(parents=True, exist_ok=True)
    asked = json.dumps([[str(place), side.to_json()] for place, side in sides])
    done = subprocess.run(
        [str(interpreter(framework)), "-W", "ignore", "-m", "corpus.generator.running"],
        input=asked,
        env=surroundings(framework),
        capture_output=True,
        text=True,
    )
    told = {}
    for line in done.stdout.splitlines():
        if line.startswith("["):
            place, error = json.loads(line)
            told[Path(place)] = error
    last = (done.stderr.strip().splitlines() or ["no word"])[-1]
    found = {place: told.get(place, f"{framework} ended with {done.returncode}: {last}") for place, _ in sides}
    return {place: error for place, error in found.items() if error}


def interpreter(framework: str) -> Path:
    if framework != "msadapter":
        return Path(sys.executable)
    sys.path.insert(0, str(ROOT))
    from scripts.layers import layer

    return layer("msadapter", MINDTORCH)


def surroundings(framework: str) -> dict[str, str]:
    """The environment of a process that runs one framework: one thread, this checkout's code."""
    paths = [str(ROOT / "src"), str(ROOT / "tests")]
    if framework == "msadapter":
        paths.insert(0, str(ROOT / "tests" / "frameworks" / "msadapter" / "standin"))
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),
        "CORPUS_KIT": framework,
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "GLOG_v": "4",
        "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16",
    }
