"""`ts.widget.loss_compare`: two logs, their curves and numbers."""

import csv
import math
from xml.etree import ElementTree

import pytest

import twintrace.compat.troubleshooter as ts
from twintrace.model.errors import UsageError

LEFT = (
    "epoch 0\nstep 0 loss: 2.5, lr: 0.1\nstep 1 loss: nan, lr: 0.1\nstep 2 loss: 1.25e0 x\nloss: none\nstep 3 loss: 1\n"
)
RIGHT = "loss is 2.0 (7)\nloss is 1.5\nloss is 1.0\n"


@pytest.fixture
def logs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.log").write_text(LEFT)
    (tmp_path / "b.log").write_text(RIGHT)
    return {"path": "a.log", "loss_tag": "loss:", "label": "A"}, {"path": "b.log", "loss_tag": "loss is", "label": "B"}


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_files(logs, tmp_path, capsys):
    ts.widget.loss_compare(*logs, title="Two runs")
    folder = tmp_path / "loss_compare"
    assert capsys.readouterr().out == f"Loss Comparison has completed, results saved in {folder}!\n"
    names = ["a.log.csv", "b.log.csv", "error.svg", "loss_compare.svg", "statistic.csv"]
    assert sorted(path.name for path in folder.iterdir()) == names
    assert [(row[""], row["loss"]) for row in read(folder / "a.log.csv")] == [
        ("0", "2.5"), ("1", "nan"), ("2", "1.25"), ("3", "1.0"),
    ]  # fmt: skip
    assert read(folder / "b.log.csv")[1] == {"": "1", "loss": "1.5"}
    [row] = read(folder / "statistic.csv")
    assert {name: float(value) for name, value in row.items()} == pytest.approx(
        {"LEFT_MAX": 2.5, "LEFT_MIN": 1.0, "LEFT_MEAN": 4.75 / 3, "RIGHT_MAX": 2.0, "RIGHT_MIN": 1.0, "RIGHT_MEAN": 1.5,
         "MAX_ABS_ERROR": 0.5, "MAX_REL_ERROR": 0.2}
    )  # fmt: skip


def test_the_curves(logs, tmp_path):
    ts.widget.loss_compare(*logs, title="<Two> & runs")
    root = ElementTree.parse(tmp_path / "loss_compare" / "loss_compare.svg").getroot()
    texts = [element.text for element in root.iter() if element.tag.endswith("text")]
    assert {"<Two> & runs", "A", "B", "2.5", "1"} <= set(texts)
    ways = [element.get("d") for element in root.iter() if element.tag.endswith("path")]
    assert [way.count("M") + way.count("L") for way in ways] == [3, 3]
    assert ways[0].count("M") == 2  # a gap where the loss is NaN
    assert math.isclose(float(ways[0].split("M")[1].split(",")[1]), 60)  # the largest is at the top


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"path": "gone.log"}, "left_file: gone.log cannot be read"),
        ({"loss_tag": "perplexity"}, "no line of a.log has a number after 'perplexity'"),
        ({"path": None}, 'left_file: expected {"path"'),
    ],
)
def test_what_is_no_log_is_refused(logs, tmp_path, change, sentence):
    with pytest.raises(UsageError, match=sentence):
        ts.widget.loss_compare({**logs[0], **change}, logs[1])
    assert not (tmp_path / "loss_compare").exists()
