"""Damaged dumps: what can be read is read, what cannot is said, and nothing in them is ever run."""

import json
import zipfile

import numpy as np
import pytest

import twintrace as tt
from tests.compat.msprobe.reading.elements import tensor
from twintrace.compat.msprobe.dumps import open_dump
from twintrace.model.errors import TraceError, TraceFormatError

RECORDS = {
    f"Functional.relu.{n}.forward": {"input_args": [tensor(high=float(n))], "output": [tensor()]} for n in range(6)
}


def test_cut_off_anywhere_everything_before_is_there(dump):
    place = dump(RECORDS)
    file = place / "dump.json"
    whole = file.read_bytes()
    starts = [whole.index(f'"{name}"'.encode()) for name in RECORDS]
    for size in range(starts[0], len(whole) - 4, 37):
        file.write_bytes(whole[:size])
        found = open_dump(place)
        begun = [name for name, start in zip(RECORDS, starts, strict=True) if start < size]
        records = list(dict.fromkeys(item.record for item in found.items))
        assert records in (begun, begun[:-1])  # the last one is whole, or cut
        assert found.task == "statistics"
        assert "dump.json" in found.problems[0]


def test_the_record_that_was_cut_is_named(dump):
    place = dump(RECORDS)
    file = place / "dump.json"
    whole = file.read_bytes()
    file.write_bytes(whole[: whole.index(b'"Functional.relu.3.forward"') + 60])
    found = open_dump(place)
    assert [item.record for item in found.items][-1] == "Functional.relu.2.forward"
    assert "inside Functional.relu.3.forward" in found.problems[0]


@pytest.mark.parametrize("indent", [1, None])
def test_a_spoilt_record_does_not_take_the_others_along(dump, indent):
    place = dump(RECORDS)
    file = place / "dump.json"
    text = json.dumps(json.loads(file.read_text()), indent=indent)
    at = text.index('"Max"', text.index("relu.2.forward"))
    file.write_text(text[:at] + "#" + text[at + 1 :])
    found = open_dump(place)
    assert {item.record for item in found.items} == RECORDS.keys() - {"Functional.relu.2.forward"}
    [problem] = found.problems
    assert "Functional.relu.2.forward at byte" in problem


def test_bytes_that_are_no_text(dump):
    place = dump(RECORDS)
    file = place / "dump.json"
    file.write_bytes(file.read_bytes().replace(b"torch.float32", b"torch.\xff\xfe32", 1))
    found = open_dump(place)
    assert {item.record for item in found.items} == RECORDS.keys()
    assert "not UTF-8" in found.problems[0]


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b"nothing", b'{"task": "statistics"}', b"[" * 100_000, b"\0" * 100]
)
def test_what_is_no_dump_is_an_error_that_names_the_file(tmp_path, content):
    (tmp_path / "dump.json").write_bytes(content)
    with pytest.raises(TraceFormatError, match=r"dump\.json"):
        open_dump(tmp_path)


def test_malformed_elements_are_items_that_say_so(dump):
    place = dump(
        {
            "A.b.0.forward": {
                "input_args": [3, tensor(shape=["x"]), tensor(high=[1]), tensor(dtype=None), tensor(grad="maybe")],
                "output": "nothing",
            },
            "A.b.1.forward": [1],
        }
    )
    found = open_dump(place)
    problems = [item.problem for item in found.items]
    assert "expected an object, a list or null, got 3" in problems[0]
    assert "its shape is" in problems[1]
    assert "its Max is [1]" in problems[2]
    assert "its dtype is null" in problems[3]
    assert "its requires_grad" in problems[4]
    assert all(problems)
    assert found.items[2].min == -1.0  # what can be read of it is there


def test_stack_and_construct_may_be_damaged_or_missing(dump):
    place = dump(RECORDS)
    assert open_dump(place).problems == ()
    (place / "stack.json").write_text('{"0": [["Functional.relu.0.forward"], ["frame"]], "1": [["Func')
    (place / "construct.json").write_text("no JSON")
    found = open_dump(place)
    assert len(found.items) == 12
    assert found.stacks == {"Functional.relu.0.forward": ("frame",)}
    assert [text.rpartition("/")[2].partition(":")[0] for text in found.problems] == ["stack.json", "construct.json"]


def test_a_spoilt_stack_does_not_take_the_others_along(dump):
    place = dump(RECORDS, stacks={str(n): [[name], ["frame"]] for n, name in enumerate(RECORDS)})
    file = place / "stack.json"
    file.write_text(file.read_text().replace('"frame"', "frame", 1))
    found = open_dump(place)
    assert found.stacks.keys() == RECORDS.keys() - {"Functional.relu.0.forward"}
    assert "stack.json: 0 at byte" in found.problems[0]


class Hostile:
    """Unpickled, it would call a function."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


@pytest.fixture
def files(dump):
    place = dump(
        {"A.b.0.forward": {"output": [tensor(data_name="x.npy"), tensor(mean=0.6, data_name="x.pt")]}}, task="tensor"
    )
    (place / "dump_tensor_data").mkdir()
    return place


def fails_with(place, which, match):
    found = open_dump(place)
    with pytest.raises(TraceError, match=match):
        found.array(found.items[which])
    journal = tt.open(place).journal(0)
    tensors = [t for t in journal.tensors() if t.payload]
    if tensors:
        with pytest.raises(TraceError, match=match):
            journal.array(tensors[0])


def test_values_that_are_not_there(files):
    fails_with(files, 0, "x.npy: the dump names this file, but it is not there")
    assert {t.missing for t in tt.open(files).journal(0).tensors()} == {
        f"{name} is not among the dump's files" for name in ("x.npy", "x.pt")
    }


@pytest.mark.parametrize("size", [0, 7, 100, 140])
def test_values_that_are_cut_off(files, size):
    np.save(files / "dump_tensor_data" / "x.npy", np.zeros((2, 2), np.float32))
    file = files / "dump_tensor_data" / "x.npy"
    file.write_bytes(file.read_bytes()[:size])
    fails_with(files, 0, r"x\.npy")


def test_objects_in_an_npy_file(files, tmp_path):
    np.save(
        files / "dump_tensor_data" / "x.npy", np.array([Hostile(tmp_path / "ran")], dtype=object), allow_pickle=True
    )
    fails_with(files, 0, r"x\.npy.*objects")
    assert not (tmp_path / "ran").exists()


@pytest.mark.needs_torch
@pytest.mark.parametrize("size", [0, 50, 700])
def test_pt_files_that_are_cut_off(files, size):
    import torch

    file = files / "dump_tensor_data" / "x.pt"
    torch.save(torch.zeros(2, 2), file)
    file.write_bytes(file.read_bytes()[:size])
    fails_with(files, 1, r"x\.pt")


@pytest.mark.needs_torch
def test_a_pt_file_that_would_run_something_is_not_loaded(files, tmp_path):
    import torch

    torch.save(Hostile(tmp_path / "ran"), files / "dump_tensor_data" / "x.pt")
    fails_with(files, 1, r"x\.pt.*refers to.*open")
    assert not (tmp_path / "ran").exists()


def test_a_pt_file_that_holds_something_else(files):
    with zipfile.ZipFile(files / "dump_tensor_data" / "x.pt", "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02]q\x00.")
    fails_with(files, 1, r"x\.pt: holds a list, expected one tensor")


@pytest.mark.parametrize("name", ["../../secret.npy", "/etc/hostname", "a/b.npy", ".."])
def test_a_file_elsewhere_is_not_read(dump, name):
    place = dump({"A.b.0.forward": {"output": [tensor(data_name=name)]}}, task="tensor")
    (place / "dump_tensor_data").mkdir()
    np.save(place.parent / "secret.npy", np.zeros((2, 2), np.float32))
    found = open_dump(place)
    with pytest.raises(TraceError):
        found.array(found.items[0])


def test_a_damaged_dump_as_a_trace(dump):
    place = dump(RECORDS | {"no name": {}, "Functional.relu.9.forward": {"output": [3]}})
    with pytest.raises(
        TraceFormatError, match=r"no name: this is not the name of a record \(and 1 more\).*tolerant=True"
    ):
        tt.open(place).journal(0)
    journal = tt.open(place, tolerant=True).journal(0)
    assert len(journal) == 7
    assert [damage.where for damage in journal.damage] == ["no name", "Functional.relu.9.forward.output.0"]


def test_different_tasks_can_be_compared(dump):
    """What both have is: here, statistics."""
    left = dump(RECORDS)
    right = dump(RECORDS, folder="other/step0/rank0", task="tensor")
    assert tt.compare(left, right).agree


def test_nested_too_deeply(dump):
    element = tensor()
    for _ in range(450):
        element = [element]
    found = open_dump(dump({"A.b.0.forward": {"input_args": element}}))
    assert "nested more than 400 deep" in found.items[0].problem
    assert tt.open(found.path, tolerant=True).journal(0).damage


@pytest.mark.needs_torch
def test_a_spoilt_pt_file_is_never_read_as_something_else(files):
    """One byte is changed: an error, or the very same values (bytes that mean nothing)."""
    import torch

    file = files / "dump_tensor_data" / "x.pt"
    torch.save(torch.arange(4.0).reshape(2, 2), file)
    found = open_dump(files)
    expected = found.array(found.items[1])  # from here on the program in the file is known, and the quick way is taken
    whole = file.read_bytes()
    random, errors = np.random.default_rng(0), []
    for place in random.integers(0, len(whole), 300):
        spoilt = bytearray(whole)
        spoilt[place] ^= 1 << int(random.integers(8))
        file.write_bytes(spoilt)
        try:
            np.testing.assert_array_equal(found.array(found.items[1]), expected)
        except TraceError as error:
            errors.append(str(error))
    assert len(errors) > 30
    assert all("x.pt" in error for error in errors)


@pytest.mark.needs_torch
@pytest.mark.parametrize("turned", [False, True])
def test_pt_files_of_known_programs_are_read_as_others_are(files, turned):
    import torch

    from twintrace.weights import pth

    file = files / "dump_tensor_data" / "x.pt"
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64, torch.float8_e4m3fn):
        values = torch.arange(6).reshape(2, 3).to(dtype)
        torch.save(values.T if turned else values, file)
        first, second = pth.read_tensor(file), pth.read_tensor(file)
        assert first[1] == second[1]
        assert first[0].tobytes() == second[0].tobytes()
        assert first[0].shape == tuple((values.T if turned else values).shape)


JUNK = (
    None,
    True,
    -1,
    3,
    1.5,
    float("nan"),
    10**30,
    "",
    "text",
    [],
    [1],
    {},
    {"type": "int"},
    {"type": 3},
    {"shape": [1]},
    "\ud800",
)


def mutated(random, value):
    """The same JSON with one place in it replaced by something else."""
    if isinstance(value, dict | list) and value and random.random() < 0.9:
        keys = list(value) if isinstance(value, dict) else range(len(value))
        key = keys[random.integers(len(keys))]
        copy = dict(value) if isinstance(value, dict) else list(value)
        if isinstance(value, dict) and random.random() < 0.1:
            copy[JUNK[8] + str(key)] = copy.pop(key)
        else:
            copy[key] = mutated(random, value[key])
        return copy
    return JUNK[random.integers(len(JUNK))]


def test_whatever_is_in_the_json_there_is_no_traceback(dump, tmp_path):
    """Anything in any place: an error of ours, or what is left of it; as items, as a trace, imported, compared."""
    whole = {
        **RECORDS,
        "Module.a.A.forward.0": {
            "input_args": [tensor()],
            "output": [tensor()],
            "parameters": {"w": tensor(md5="0badcafe")},
        },
        "Functional.relu.0.backward": {"input": [tensor()], "output": [tensor()]},
        "Module.a.A.parameters_grad": {"w": [tensor()]},
        "x.0.debug": tensor(),
    }
    head = {"task": "statistics", "level": "mix", "framework": "pytorch", "data": whole}
    construct = {name: "Module.a.A.forward.0" for name in RECORDS} | {"Module.a.A.forward.0": None}
    stacks = {"0": [list(RECORDS), ["File a.py, line 1, in f, \n x"]]}
    random = np.random.default_rng(0)
    place = dump({})
    read = 0
    for turn in range(250):
        files = [("dump.json", head), ("construct.json", construct), ("stack.json", stacks)]
        spoilt = random.choice(3, p=(0.8, 0.1, 0.1))
        for number, (name, content) in enumerate(files):
            (place / name).write_text(json.dumps(mutated(random, content) if number == spoilt else content))
        try:
            open_dump(place)
            journal = tt.open(place, tolerant=True).journal(0)
            list(journal.calls())
        except TraceError:
            continue
        read += 1
        if turn % 5 == 0:
            assert tt.compare(place, tt.convert_trace(place, tmp_path / str(turn)).path) is not None
    assert read > 100
