"""Steps that followed a plan: sums of many tensors at once, and the journal that refers to an earlier one."""

import numpy as np
import pytest

from twintrace.model.tensors import DTYPES
from twintrace.store.device_sums import COLUMNS, Kinds, columns, finish
from twintrace.store.folding import fold
from twintrace.store.lines import seal
from twintrace.store.writer import TraceWriter

KINDS = ["f32", "bf16", "f16", "f64", "i64", "i32", "u8", "b8", "c64", "f8e4m3fn"]


def rows_of(dtypes, elements, generator):
    rows = np.zeros((len(dtypes), COLUMNS), np.int64)
    rows[:, :2] = generator.integers(-(2**62), 2**62, (len(dtypes), 2))
    for row, dtype in zip(rows, dtypes, strict=True):
        low, high = sorted(generator.integers(0, 100, 2).tolist())
        if dtype in ("f64", "c64"):
            low, high = np.array([low, high], np.float64).view(np.int64).tolist()
        row[2:4] = low, high
        row[7] = generator.integers(0, elements)
    rows[:, 8:12] = generator.normal(size=(len(dtypes), 4)).view(np.int64)
    rows[:, 9] = np.abs(rows[:, 9].view(np.float64)).view(np.int64)
    return rows


@pytest.mark.parametrize("wanted", [True, False])
def test_columns_say_what_finish_says(wanted):
    generator = np.random.default_rng(0)
    dtypes = KINDS * 3
    sizes = [DTYPES[dtype] * 64 for dtype in dtypes]
    rows = rows_of(dtypes, 64, generator)
    rows[3, 4:7] = 60, 4, 0  # nothing finite
    rows[4, 2:4] = 0, 2**60  # an integer that float64 does not have
    rows[5, 8:9] = np.array([np.inf]).view(np.int64)
    prints, reals, counts, usual = columns(rows, Kinds(dtypes, sizes), wanted)
    assert usual.tolist() == [place not in (3, 4, 5) for place in range(len(rows))]
    for place, found in enumerate(finish(rows, dtypes, sizes, wanted)):
        if usual[place]:
            low, high, mean, norm, nan, posinf, neginf, zero, text, one, two = found
            assert reals[:, place].tolist() == [low, high, mean, norm, one, two]
            assert counts[:, place].tolist() == [nan, posinf, neginf, zero]
            assert text is None or prints[place].tobytes().hex() == text


@pytest.mark.parametrize("known", [True, False])
def test_a_step_of_a_known_structure_is_a_reference(tmp_path, known):
    """One whose structure the writer has forgotten is written whole; the lines are the same either way."""
    writer = TraceWriter.create(tmp_path / "trace", {"framework": "torch", "settings": {}, "world": 1}, folds=True)
    written = []
    for step in range(1 if known else 12):  # more than are remembered
        journal = writer.begin_step(step, {})
        for number in range(1 + step):  # structures of other lengths
            journal.add(seal({"k": "tensor", "id": number, "stats": [1.0, 2.0, 1.5, 2.0, 0, 0, 0, 0], "fp": "0" * 32}))
        journal.add(seal({"k": "end", "calls": 0, "tensors": 1 + step}))
        writer.end_step()
        written.append(writer.pattern)
    assert written[0] is not None
    writer.begin_step(100, {})
    body = (tmp_path / "trace/step0/rank0/journal.jsonl").read_bytes().partition(b"\n")[2]
    _, numbers = fold(body)
    writer.end_step_as(written[0], numbers)
    writer.close()
    ended = (tmp_path / "trace/step100/rank0/journal.jsonl").read_bytes().partition(b"\n")[2]
    assert ended.startswith(b'{"k":"same","as":0,') if known else ended == body
