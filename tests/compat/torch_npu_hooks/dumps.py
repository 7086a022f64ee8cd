"""Dumps by hand and by recording, and the csv as a table."""

import csv
import json
from contextlib import contextmanager
from pathlib import Path

from twintrace.compat.torch_npu_hooks import recording


def write_dump(path, lines, end="\n"):
    """A dump of (name, values, dtype, shape) or any other lists."""
    path.write_text("\n".join(json.dumps(line) for line in lines) + end)
    return path


def tensor(name, values, shape=None, dtype="torch.float32"):
    return [name, values, dtype, [len(values)] if shape is None else shape]


def read_dump(path):
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def names(path):
    return [line[0] for line in read_dump(path)]


def table(path):
    """The rows of a csv as dicts."""
    with Path(path).open(newline="") as file:
        return list(csv.DictReader(file))


@contextmanager
def fresh():
    """The embassy as a new process finds it, whatever the test before has left."""
    recording.close()
    before, recording._DUMP = recording._DUMP, recording._Dump()
    try:
        yield
    finally:
        recording.close()
        recording._DUMP = before
