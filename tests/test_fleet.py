"""Many ranks: the rank that parts first is named, the others follow, and what was not judged never agrees."""

import json
import shutil

import pytest

import twintrace as tt
from benchmarks.simulated import Fault, record_base, write_run
from twintrace.api import fleet, scanning
from twintrace.model.steps import RankState
from twintrace.model.verdicts import Outcome
from twintrace.report.document import read_json
from twintrace.store.lines import seal, unseal

pytestmark = pytest.mark.needs_torch
RANKS = 6


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Runs of six ranks: `a`, and others beside it."""
    folder = tmp_path_factory.mktemp("fleet")
    base = record_base(folder / "base", records=100, steps=4)
    write_run(base, folder / "a", ranks=RANKS)
    write_run(base, folder / "again", ranks=RANKS)
    write_run(base, folder / "fault", ranks=RANKS, fault=Fault(rank=4, step=2))
    write_run(base, folder / "noise", ranks=RANKS, noise=True)
    return folder


@pytest.fixture
def large(monkeypatch):
    """As if there were too many calls to judge them all."""
    monkeypatch.setattr(fleet, "MANY_CALLS", 30)


def states(found):
    return {item.rank: str(item.state) for item in found.ranks}


def test_the_rank_that_parts_first_is_named_and_the_others_follow(runs, large):
    found = tt.compare(runs / "a", runs / "fault")

    assert found.code == 1
    assert found.first.result.rank == 4
    assert found.first.result.step == 2
    assert states(found) == {rank: "parted" if rank == 4 else "follows" for rank in range(RANKS)}
    assert {item.step for item in found.ranks} == {2}
    assert "gradient" in found.ranks[0].where
    assert "output" in found.ranks[4].where


def test_a_place_where_many_ranks_begin_to_differ_is_looked_up_once(runs, large, monkeypatch):
    """Each look takes the records of a step, in the driver: once for each rank it would grow with them on any number of cores."""
    looked, name = [], fleet._name
    monkeypatch.setattr(fleet, "_name", lambda traces, scan: looked.append(scan.rank) or name(traces, scan))

    found = tt.compare(runs / "a", runs / "fault", recompute=False)

    assert len(looked) == len({item.where for item in found.ranks}) == 2
    assert all(item.where for item in found.ranks)


def test_the_first_place_is_that_of_judging_every_rank(runs, monkeypatch):
    whole = tt.compare(runs / "a", runs / "fault")
    monkeypatch.setattr(fleet, "MANY_CALLS", 30)
    some = tt.compare(runs / "a", runs / "fault")

    assert not whole.ranks
    assert {item.rank for item in some.judged} < {item.rank for item in whole.judged}
    places = [
        (item.first.result.step, item.first.result.rank, item.first.result.match.left[0].site) for item in (whole, some)
    ]
    assert places[0] == places[1]


def test_ranks_that_are_the_same_agree(runs, large):
    found = tt.compare(runs / "a", runs / "again")

    assert found.code == 0
    assert set(states(found).values()) == {"same"}
    assert "ranks   6 ranks: all are the same throughout, bit by bit" in str(found)


def test_ranks_that_were_not_judged_do_not_agree(runs, large):
    found = tt.compare(runs / "a", runs / "noise")

    assert found.code == 3
    assert "same" not in states(found).values()
    assert RankState.FOLLOWS not in states(found).values()
    assert any("not judged" in text for text in found.untold)


@pytest.mark.parametrize("engine", ["threads", "processes"])
def test_every_engine_finds_the_same(runs, large, engine):
    expected = tt.compare(runs / "a", runs / "fault", workers=1)
    found = tt.compare(runs / "a", runs / "fault", engine=engine, workers=2)

    assert found.ranks == expected.ranks
    assert found.code == expected.code
    assert str(found) == str(expected)


def test_the_report_begins_with_rank_place_and_followers(runs, large, tmp_path):
    found = tt.compare(runs / "a", runs / "fault")
    lines = str(found).splitlines()

    assert "step 2" in lines[0]
    assert "rank 4" in lines[0]
    assert lines[1].strip() == "ranks   rank 4 of 6 parts first, in step 2; 5 others follow, since step 2"
    page = found.to_html()
    assert page.index("rank 4 of 6 parts first") < page.index("First difference")
    assert "5 ranks (0-3, 5) follows since step 2" in page
    found.to_json(tmp_path / "found.json")
    assert read_json(tmp_path / "found.json").ranks == found.ranks
    assert json.loads((tmp_path / "found.json").read_text())["ranks"][4]["state"] == "parted"


def test_the_structure_that_ranks_share_is_worked_out_once(runs):
    scanning._patterns.clear()
    scanning._units.cache_clear()
    traces = str(runs / "a"), str(runs / "fault")
    for rank in range(RANKS):
        scanning.scan_rank(traces, [(step, rank) for step in range(4)])

    assert len(scanning._patterns) <= 3  # the first step, in which the state is made, and the others
    assert scanning._units.cache_info().misses <= 3


@pytest.fixture(params=[True, False], ids=["very many", "few"])
def either(request, monkeypatch):
    """As if there were too many calls to judge them all, and not."""
    if request.param:
        monkeypatch.setattr(fleet, "MANY_CALLS", 30)


def copied(runs, tmp_path, name="fault"):
    shutil.copytree(runs / name, tmp_path / name)
    return tmp_path / name


def test_a_rank_that_was_killed_is_named_and_the_rest_compared(runs, large, tmp_path):
    right = copied(runs, tmp_path, "again")
    journal = right / "step0" / "rank3" / "journal.jsonl"
    content = journal.read_bytes()
    journal.write_bytes(content[: len(content) // 2])
    for step in (1, 2, 3):
        shutil.rmtree(right / f"step{step}" / "rank3")

    found = tt.compare(runs / "a", right)

    assert found.code == 1  # steps are on one side only
    assert states(found)[3] in ("untold", "parted")
    assert {state for rank, state in states(found).items() if rank != 3} == {"same"}
    assert found.left_out == ((1, 3), (2, 3), (3, 3))
    assert any("ended before" in text for text in (*found.untold, *found.remarks))


def test_a_rank_that_is_missing_is_named_and_the_rest_compared(runs, either, tmp_path):
    """Of two runs of one size: that a rank was not recorded does not make another layout of it."""
    right = copied(runs, tmp_path, "again")
    for step in range(4):
        shutil.rmtree(right / f"step{step}" / "rank5")

    found = tt.compare(runs / "a", right)

    assert found.code == 1
    assert found.left_out == tuple((step, 5) for step in range(4))
    assert "Not compared, only on one side" in str(found)
    assert found.count(Outcome.SAME) == found.count(*Outcome) > 0


def test_a_rank_of_another_step_is_named_and_the_rest_compared(runs, either, tmp_path):
    right = copied(runs, tmp_path, "again")
    shutil.copy(right / "step0" / "rank0" / "journal.jsonl", right / "step3" / "rank0" / "journal.jsonl")

    found = tt.compare(runs / "a", right)

    assert found.code == 3
    assert any("field 'step': expected 3" in text for text in found.untold)
    assert found.count(Outcome.SAME) == found.count(*Outcome) > 0


def test_a_rank_that_nobody_can_read_is_an_error(runs, tmp_path):
    right = copied(runs, tmp_path, "again")
    for step in range(4):
        for rank in range(RANKS):
            (right / f"step{step}" / f"rank{rank}" / "journal.jsonl").write_text("nothing\n")

    with pytest.raises(tt.errors.TraceFormatError, match=r"journal.jsonl: line 1"):
        tt.compare(runs / "a", right)


def test_clocks_and_paths_that_differ_are_no_difference(runs, large, tmp_path):
    right = tmp_path / "elsewhere"
    shutil.copytree(runs / "a", right)
    manifest = json.loads((right / "manifest.json").read_text())
    (right / "manifest.json").write_text(json.dumps(manifest | {"created": 1.0}))
    for step in (1, 2, 3):
        shutil.rmtree(right / f"step{step}")
    for rank in range(RANKS):
        journal = right / "step0" / f"rank{rank}" / "journal.jsonl"
        lines = [unseal(line) for line in journal.read_bytes().splitlines()]
        for line in lines:
            if line["k"] == "stack":
                line["frames"] = [[f"/elsewhere/{frame[0]}", *frame[1:]] for frame in line["frames"]]
        assert any(line["k"] == "stack" for line in lines)
        journal.write_bytes(b"".join(map(seal, lines)))

    found = tt.compare(runs / "a", right, steps=[0])

    assert found.code == 0
    assert set(states(found).values()) == {"same"}


def test_two_layouts_that_cannot_be_one_model_are_told_as_that(runs, tmp_path):
    write_run(record_base(tmp_path / "base", records=300, steps=1), tmp_path / "other", ranks=2)

    found = tt.compare(runs / "a", tmp_path / "other")

    assert not found
    told = [text for text in found.remarks if text.startswith("The two cannot be layouts of one model")]
    assert [text.partition(" holds ")[0].rpartition(": ")[2] for text in told] == ["the left alone", "the right alone"]
    assert "1.down.bias" in told[1]
