"""Steps and ranks on the command line."""

import json

import pytest

from tests.test_api import run
from twintrace import api


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    root = tmp_path_factory.mktemp("traces")
    return run(root / "left", steps=4), run(root / "right", steps=4)


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        (["--step", "1"], {1}),
        (["--step", "0-1,3"], {0, 1, 3}),
        (["--step", "0", "--step", "2"], {0, 2}),
        (["--step", "1-2", "--step", "2, 3"], {1, 2, 3}),
        ([], {0, 1, 2, 3}),
    ],
)
def test_steps_that_are_shown(command, traces, options, steps):
    rows = json.loads(command("show")(traces[0], "--json", *options, expect=None))
    assert {row["step"] for row in rows["rows"]} == steps


@pytest.mark.parametrize("text", ["x", "3-1", "1-", "-1", "1,,2", "1-x", "0-99999999999"])
def test_what_is_no_number_is_refused(command, traces, text):
    assert "expected" in command("show")(traces[0], "--step", text, expect=2)


def test_a_step_that_is_not_there_is_refused(command, traces):
    assert "has no step 9" in command("show")(traces[0], "--step", "0,9", expect=2)


def test_a_step_that_is_in_neither_trace_is_told(command, traces):
    text = command("compare")(*traces, "--step", "0-1,8", "--rank", "0", "--rank", "5", expect=0)
    assert "Asked for and in neither trace: step 8." in text
    assert "Asked for and in neither trace: rank 5." in text


def test_the_names_of_a_mapping_that_are_not_there_are_told(traces, tmp_path):
    file = tmp_path / "map.yaml"
    file.write_text(
        "mapping: 1\nmodules: {norm: norm, nrom: norm2}\nlayouts: {fc.nothing: [1, 0]}\nignore: {left: ['*nowhere*']}\n"
    )
    [text] = api.compare(*traces, mapping=file).remarks
    assert "The mapping names what is not in the traces" in text
    for name in (
        "left 'nrom' (modules)",
        "right 'norm2' (modules)",
        "left 'fc.nothing' (layouts)",
        "'*nowhere*' (ignore)",
    ):
        assert name in text
    assert "'norm'" not in text


def test_a_payload_that_was_removed_is_told(command, tmp_path):
    left, right = run(tmp_path / "left", keep="tensor"), run(tmp_path / "right", keep="tensor")
    (left / "step0" / "rank0" / "payload.bin").unlink()
    assert "have been removed since" in " ".join(command("show")(left, expect=None).split())
    assert "have been removed since" in " ".join(api.compare(left, right).remarks)
