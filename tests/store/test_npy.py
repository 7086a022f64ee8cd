"""One .npy file, and a folder of them as a trace: what numpy, MindSpore and accidents leave behind."""

import io
import os
import re

import numpy as np
import pytest

from twintrace.model.errors import TraceFormatError, TraceNotFoundError
from twintrace.model.sites import Kind
from twintrace.model.tensors import Spec
from twintrace.store.npy import Npy
from twintrace.store.registry import open_trace
from twintrace.store.saved import numbers_of, open_folder

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def written(path, array, **options):
    np.save(path, array, **options)
    return path


@pytest.mark.parametrize(
    "array",
    [
        X,
        X.astype(">f8"),
        np.asfortranarray(X),
        np.float16(3.5),
        np.zeros((0, 4), np.int8),
        X > 2,
        X.astype(np.complex64),
        np.arange(3, dtype=np.uint64),
    ],
    ids=lambda array: f"{array.dtype}{array.shape}",
)
def test_values_are_those_that_numpy_reads(tmp_path, array):
    stored = Npy.of(written(tmp_path / "x.npy", array))
    assert stored.spec.shape == np.shape(array)
    assert stored.nbytes == array.nbytes
    found = stored.values()
    assert found.flags.c_contiguous
    assert found.dtype.byteorder in "=|<"
    np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize("spelling", ["<E2", "|V2", "<V2"])
def test_bf16_has_several_spellings(tmp_path, spelling):
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "<u2", "fortran_order": False, "shape": (2,)})
    head = file.getvalue().replace(b"'<u2'", f"'{spelling}'".encode())
    (tmp_path / "x.npy").write_bytes(head + np.array([0x3F80, 0xC000], np.uint16).tobytes())
    stored = Npy.of(tmp_path / "x.npy")
    assert stored.spec == Spec("bf16", (2,))
    assert stored.values().tolist() == [0x3F80, 0xC000]


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda path: path.write_bytes(b""), "it is empty"),
        (lambda path: path.write_bytes(b"hello, world"), "it begins with b'hello, w'"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "cut off: expected 152 bytes, found 151"),
        (lambda path: path.write_bytes(path.read_bytes()[:40]), "its header is not that of an npy file"),
        (lambda path: path.write_bytes(path.read_bytes().replace(b"(2, 3)", b"(2,-3)")), r"\(2, -3\) is no shape"),
        (lambda path: written(path, np.array([X, None], dtype=object), allow_pickle=True), "can run code"),
        (lambda path: written(path, np.array(["a"])), "expected numbers"),
        (lambda path: written(path, np.zeros(2, [("a", "f4")])), "expected numbers"),
        (lambda path: (path.unlink(), path.mkdir()), "cannot be read"),
        (lambda path: path.unlink(), "cannot be read"),
    ],
)
def test_what_is_no_array_of_numbers_is_named_and_refused(tmp_path, spoil, sentence):
    path = written(tmp_path / "x.npy", X)
    spoil(path)
    with pytest.raises(TraceFormatError, match=sentence) as told:
        Npy.of(path)
    assert str(path) in str(told.value)


def test_a_file_that_changes_after_it_was_opened_is_told_of(tmp_path):
    stored = Npy.of(written(tmp_path / "x.npy", X))
    os.truncate(tmp_path / "x.npy", 100)
    with pytest.raises(TraceFormatError, match="cannot be mapped"):
        stored.values()


def test_files_come_in_the_order_in_which_they_were_saved(tmp_path):
    names = ["a.layer10_float32_3.npy", "b_int64_0.npy", "weights.npy", "2_torch.layer9.npy", "c_bfloat16_11.npy"]
    for name in names:
        written(tmp_path / name, X)
    (tmp_path / "below").mkdir()
    written(tmp_path / "below" / "0_x.npy", X)
    (tmp_path / "notes.txt").write_text("not an array")
    found = [call.site.name for call in open_folder(tmp_path).calls()]
    assert found == [names[1], names[3], names[0], names[4], names[2]]


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("ms_tensor.x1_float32_4.npy", (0, 4, 4)),
        ("layer2.conv_bool_17.npy", (0, 17, 17)),
        ("12_torch_tensor.layer2.npy", (0, 12, 2)),
        ("float32_x.npy", (0, 32, 32)),
        ("weights.npy", (1,)),
    ],
)
def test_a_file_is_sorted_by_the_number_that_it_was_saved_under(name, numbers):
    assert numbers_of(name) == numbers


def test_files_that_no_number_orders_come_in_the_order_of_their_names_and_not_of_time(tmp_path):
    names = ["1_x2_0.npy", "1_x10_0.npy", "a.npy", "b.npy", "c.npy"]
    for name, time in zip(names, (5, 3, 9, 5, 1), strict=True):
        os.utime(written(tmp_path / name, X), (time, time))
    assert [call.site.name for call in open_folder(tmp_path).calls()] == names


def test_a_folder_is_a_trace_of_saved_values(tmp_path):
    written(tmp_path / "0_x.npy", X)
    (tmp_path / "1_y.npy").write_bytes(b"")
    (tmp_path / "2_gone.npy").symlink_to(tmp_path / "nowhere")
    trace = open_folder(tmp_path)
    journal = trace.journal(0)
    calls = list(journal.calls())
    assert [call.site.kind for call in calls] == [Kind.SAVE] * 3 == [Kind.SAVE] * len(journal)
    tensors = [journal.tensor(call.output.id) for call in calls]
    assert tensors == list(journal.tensors())
    np.testing.assert_array_equal(journal.array(tensors[0]), X)
    assert [tensor.is_lost for tensor in tensors] == [False, True, True]
    assert re.match("1_y.npy: no npy file: it is empty", tensors[1].missing)
    with pytest.raises(TraceFormatError, match="it is empty"):
        journal.array(tensors[1])
    assert journal.tensor(99).is_lost
    assert (trace.layout, journal.complete, journal.damage) == ("npy", True, ())
    assert not [*journal.notes(), *journal.parameter_gradients()]


def test_what_is_no_folder_of_arrays_is_told_apart(tmp_path):
    for path, sentence in ((tmp_path, "found none"), (tmp_path / "gone", "does not exist")):
        with pytest.raises(TraceNotFoundError, match=sentence):
            open_folder(path)
    with pytest.raises(TraceNotFoundError, match="it is a file"):
        open_folder(written(tmp_path / "x.npy", X))


def test_whoever_takes_a_folder_for_a_trace_is_told_what_to_do(tmp_path):
    written(tmp_path / "x.npy", X)
    with pytest.raises(TraceNotFoundError, match="compare two such with `twintrace npy compare`"):
        open_trace(tmp_path)
