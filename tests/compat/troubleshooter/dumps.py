"""Dumps by recording and by hand, and tables as dicts."""

import csv
import json
from pathlib import Path

import numpy as np


def rows(folder, stem="torch", rank=0):
    """The rows of a dump."""
    path = Path(folder) / f"rank{rank}" / f"{stem}_api_dump_info.csv"
    return [json.loads(line) for line in path.read_text().splitlines()]


def names(folder, stem="torch", rank=0):
    return [row[0] for row in rows(folder, stem, rank)]


def array(folder, name, stem="torch", rank=0):
    return np.load(Path(folder) / f"rank{rank}" / f"{stem}_api_dump" / f"{name}.npy")


def stacks(folder, stem="torch", rank=0):
    return json.loads((Path(folder) / f"rank{rank}" / f"{stem}_api_dump_stack.json").read_text())


def table(path):
    """The rows of a csv as lists, without its heads."""
    with Path(path).open(newline="") as file:
        return [row for row in csv.reader(file) if row][1:]  # the real tool ends with an empty line


def write_dump(folder, entries, stem="torch", rank=0, end="\n"):
    """A dump by hand: `{name: array}`, each with its npy file; a tuple is a row as it is, without a file."""
    place = Path(folder) / f"rank{rank}"
    (place / f"{stem}_api_dump").mkdir(parents=True, exist_ok=True)
    lines = []
    for name, value in entries.items():
        if isinstance(value, tuple):
            lines.append(json.dumps([name, *value]))
            continue
        value = np.asarray(value)
        dtype = {"torch": f"torch.{value.dtype}", "mindspore": str(value.dtype).title()}[stem]
        finite = value.size and np.isfinite(value).all()
        extremes = [float(value.max()), float(value.min()), float("nan")] if finite else [float("nan")] * 3
        norm = float(np.linalg.norm(value)) if finite else []
        lines.append(json.dumps([name, 1, [], dtype, list(value.shape), extremes, [], norm]))
        np.save(place / f"{stem}_api_dump" / f"{name}.npy", value)
    (place / f"{stem}_api_dump_info.csv").write_text("\n".join(lines) + end)
    return Path(folder)
