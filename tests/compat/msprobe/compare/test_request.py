"""compare.json and two paths: which dumps are compared with which."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from twintrace.compat.msprobe.compare.request import read_request, request_of
from twintrace.model.errors import UsageError


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """Makes empty dumps below a directory that is the current one."""
    monkeypatch.chdir(tmp_path)

    def make(*folders: str):
        for folder in folders:
            (tmp_path / folder).mkdir(parents=True, exist_ok=True)
            (tmp_path / folder / "dump.json").write_text("{}", encoding="utf-8")
        return tmp_path

    return make


def request(tmp_path, fields):
    path = tmp_path / "compare.json"
    path.write_text(fields if isinstance(fields, str) else json.dumps(fields), encoding="utf-8")
    return read_request(path)


def test_one_card(tree):
    root = tree("npu/step0/rank", "bench/step0/rank")

    found = request(
        root,
        {
            "npu_path": "./npu/step0/rank/dump.json",
            "bench_path": "./bench/step0/rank/dump.json",
            "stack_path": "./npu/step0/rank/stack.json",
            "is_print_compare_log": False,
        },
    )

    (place,) = found.places
    assert (str(place.npu), str(place.bench)) == ("npu/step0/rank/dump.json", "bench/step0/rank/dump.json")
    assert (place.label, found.verbose, str(found.stack)) == ("", False, "npu/step0/rank/stack.json")
    assert not found.kernels
    assert not found.remarks


def test_many_cards_as_in_the_document_with_its_remarks(tree):
    root = tree("npu/step0/rank0", "npu/step0/rank1", "bench/step0/rank0", "bench/step0/rank1", "bench/step0/rank2")

    found = request(
        root,
        '{\n"npu_path": "./npu/step0", # up to the step\n'
        '"bench_path": "./bench/step0", // here, too\n"is_print_compare_log": true\n}',
    )

    assert [(place.npu.name, place.bench.name, place.label) for place in found.places] == [
        ("rank0", "rank0", "_rank0"),
        ("rank1", "rank1", "_rank1"),
    ]
    assert found.remarks == ("bench/step0 alone has rank2; it is not compared.",)


@pytest.mark.parametrize("below", ["", "rank0", "rank0/dump.json"])
def test_a_step_that_the_path_names_already_may_be_asked_for(tree, below):
    tree("npu/step3/rank0", "bench/step3/rank0")
    fields = {"npu_path": f"npu/step3/{below}", "bench_path": f"bench/step3/{below}"}

    (place,) = request_of(fields | {"step_id": [3], "rank_id": [0]}, "").places
    assert place == request_of(fields, "").places[0]
    for other in ({"step_id": [0]}, {"rank_id": [1]}):
        with pytest.raises(
            UsageError, match=r"npu/step3.* among those that were asked for\. Ask for others, or for none"
        ):
            request_of(fields | other, "")


def test_a_path_that_names_no_step_is_of_the_step_that_is_asked_for(tree):
    tree("npu/rank2", "bench/rank2", "npu/first/proc12", "bench/first/proc34")
    assert request_of({"npu_path": "npu", "bench_path": "bench", "step_id": [5], "rank_id": [2]}, "").places
    alone = {"npu_path": "npu/first/proc12", "bench_path": "bench/first/proc34"}
    assert request_of(alone | {"step_id": [5], "rank_id": [0]}, "").places


def test_two_steps_that_are_given_by_name_may_differ(tree):
    tree("npu/step0/rank0", "bench/step7/rank0")
    fields = {"npu_path": "npu/step0", "bench_path": "bench/step7"}
    assert request_of(fields | {"step_id": [0]}, "").places == request_of(fields | {"step_id": [7]}, "").places
    with pytest.raises(UsageError, match="asked for"):
        request_of(fields | {"step_id": [1]}, "")


def test_all_steps_of_a_dump(tree):
    root = tree("npu/step0/rank0", "npu/step10/rank0", "npu/step2/rank0", "bench/step2/rank0", "bench/step10/rank0")

    found = request(root, {"npu_path": "npu", "bench_path": "bench", "rank_id": [0], "step_id": []})

    assert [place.label for place in found.places] == ["_step2_rank0", "_step10_rank0"]
    assert not found.kernels


@pytest.mark.parametrize(("ours", "theirs"), [("proc17", "proc4711"), ("rank", "proc1"), ("rank0", "rank3")])
def test_one_process_stands_beside_one_process(tree, ours, theirs):
    root = tree(f"npu/step0/{ours}", f"bench/step0/{theirs}")

    for fields in ({"npu_path": "npu/step0", "bench_path": "bench/step0"}, {"npu_path": "npu", "bench_path": "bench"}):
        (place,) = request(root, fields).places
        assert (place.npu.name, place.bench.name) == (ours, theirs)


@pytest.mark.parametrize("folder", ["rank", "proc17", "rank0"])
def test_the_rank_of_a_run_of_one_process_is_0(tree, folder):
    root = tree(f"npu/step0/{folder}", f"npu/step1/{folder}", f"bench/step0/{folder}", f"bench/step1/{folder}")
    fields = {"npu_path": "npu", "bench_path": "bench"}

    assert len(request(root, fields | {"rank_id": [0]}).places) == 2
    assert len(request(root, fields | {"rank_id": [0], "step_id": [1]}).places) == 1
    with pytest.raises(UsageError, match="among those that were asked for"):
        request(root, fields | {"rank_id": [1]})


def test_paths_are_looked_for_beside_the_file_too(tree, monkeypatch):
    root = tree("case/npu", "case/bench", "elsewhere")
    monkeypatch.chdir(root / "elsewhere")

    (place,) = request(root / "case", {"npu_path": "npu/dump.json", "bench_path": "bench/dump.json"}).places

    assert place.npu == root / "case/npu/dump.json"


def test_kernels(tmp_path):
    for side in ("npu", "bench"):
        for rank, step in ((0, 1), (0, 2), (1, 1)):
            folder = tmp_path / side / f"rank_{rank}" / "Net" / "0" / str(step)
            folder.mkdir(parents=True)
            np.save(folder / "MatMul.Default_MatMul-op0.0.0.17.output.0.DefaultFormat.Float32.npy", np.ones(3, "f4"))
    fields = {"npu_path": str(tmp_path / "npu"), "bench_path": str(tmp_path / "bench"), "rank_id": [], "step_id": []}

    found = request_of(fields, "compare.json")
    assert found.kernels
    assert [place.label for place in found.places] == ["_0_1", "_1_1", "_0_2"]
    assert [place.label for place in request_of(fields | {"rank_id": [1]}, "compare.json").places] == ["_1_1"]
    with pytest.raises(UsageError, match=r"npu \(step1 rank0, .*\) and .*bench \(.*\) have no rank .* asked for"):
        request_of(fields | {"rank_id": [7]}, "compare.json")
    with pytest.raises(UsageError, match="no rank and step in common"):
        request_of(fields | {"rank_id": [1], "step_id": [2]}, "compare.json")


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"bench_path": "b/dump.json"}, "npu_path: is missing"),
        ({"npu_path": "a/dump.json"}, "bench_path: is missing"),
        ({"npu_path": 3, "bench_path": "b/dump.json"}, "npu_path: expected a path, got 3"),
        ({"npu_path": " ", "bench_path": "b/dump.json"}, "npu_path: expected a path, got ' '"),
        ({"npu_path": "a\0", "bench_path": "b/dump.json"}, "npu_path: expected a path"),
        ({"npu_path": "nowhere", "bench_path": "b"}, "npu_path: nowhere does not exist"),
        ({"npu_path": "a" * 5000, "bench_path": "b"}, "cannot be looked for (File name too long)"),
        ({"npu_path": "a/dump.json", "bench_path": "b"}, "bench_path: is a directory and npu_path is a file"),
        ({"npu_path": "a", "bench_path": "b", "is_print_compare_log": "yes"}, "is_print_compare_log: expected true or"),
        ({"npu_path": "a", "bench_path": "b", "rank_id": 1}, "rank_id: expected a list of numbers"),
        ({"npu_path": "a", "bench_path": "b", "step_id": [-1]}, "step_id: expected numbers from 0 on, got -1"),
        ({"npu_path": "a", "bench_path": "b", "step_id": [True]}, "step_id: expected numbers from 0 on, got True"),
        ({"npu_path": "empty", "bench_path": "empty"}, "npu_path: empty holds neither a dump.json nor"),
        ({"npu_path": "a", "bench_path": "empty"}, "bench_path: empty holds no dump.json, the other side does"),
        ({"npu_path": "several", "bench_path": "b"}, "npu_path: several holds proc1 and proc2"),
        ({"npu_path": "ranks", "bench_path": "others"}, "have no rank and step in common"),
        ([1], 'expected an object, {"npu_path": "…", "bench_path": "…"}, got [1]'),
        ('{\n"npu_path": "a",\n"bench_path"\n}', "line 4: not JSON"),
        ('{"npu_path": "a", "bench_path": "b"', "line 1: not JSON"),
        ("", "line 1: not JSON"),
    ],
)
def test_a_wrong_compare_json_is_refused_by_file_and_field(tree, fields, told):
    root = tree(
        "a", "b", "several/proc1", "several/proc2", "ranks/rank0", "ranks/rank1", "others/rank2", "others/rank3"
    )
    (root / "empty").mkdir()

    with pytest.raises(UsageError) as caught:
        request(root, fields)

    assert str(caught.value).startswith(f"{root / 'compare.json'}: ")
    assert told in str(caught.value)


def test_a_file_that_is_not_there_or_not_text(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        read_request(tmp_path / "compare.json")
    (tmp_path / "compare.json").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="not UTF-8"):
        read_request(tmp_path / "compare.json")


def test_a_directory_that_cannot_be_listed(tree, monkeypatch):
    root = tree("a/rank0", "b/rank0")
    listed = Path.iterdir

    def refusing(path):
        if path.name == "b":
            raise PermissionError(13, "Permission denied", str(path))
        return listed(path)

    monkeypatch.setattr(Path, "iterdir", refusing)

    with pytest.raises(UsageError, match=r"bench_path: b cannot be read \(Permission denied\)"):
        request(root, {"npu_path": "a", "bench_path": "b"})


def test_an_unknown_field_is_told(tree):
    root = tree("a", "b")

    found = request(root, {"npu_path": "a", "bench_path": "b", "stack_pth": "x"})

    assert "'stack_pth' means nothing here" in found.remarks[0]


def test_the_documents_names_of_the_fields(tree):
    """As `compare(input_param, …)` of msprobe.pytorch is documented."""
    root = tree("npu/step0/rank", "bench/step0/rank")
    fields = {
        "npu_json_path": "./npu/step0/rank/dump.json",
        "bench_json_path": "./bench/step0/rank/dump.json",
        "stack_json_path": "./npu/step0/rank/stack.json",
        "is_print_compare_log": False,
    }
    found = request_of(fields, "input_param")
    (place,) = found.places
    assert (str(place.npu), str(place.bench)) == ("npu/step0/rank/dump.json", "bench/step0/rank/dump.json")
    assert (found.verbose, str(found.stack), found.remarks) == (False, "npu/step0/rank/stack.json", ())
    with pytest.raises(UsageError, match="input_param: npu_json_path: nowhere does not exist"):
        request_of(fields | {"npu_json_path": "nowhere"}, "input_param")
    with pytest.raises(UsageError, match="npu_json_path and npu_path name two paths"):
        request_of(fields | {"npu_path": str(root)}, "input_param")
