"""Every element type, from the training thread to the reader's array: not a bit is lost."""

import numpy as np
import pytest
import specimens

from twintrace.model.errors import TraceFormatError
from twintrace.model.tensors import DTYPES, Spec, Statistics, Tensor
from twintrace.store.arrays import STORAGE, as_float, filled, nbytes, to_array
from twintrace.store.lines import seal
from twintrace.store.registry import open_trace
from twintrace.store.writer import TraceWriter

SHAPES = {
    "rank 0": (),
    "empty": (0,),
    "empty in the middle": (2, 0, 3),
    "one": (1,),
    "normal": (3, 5),
    "long": (1, 4099, 1),
}


def travel(tmp_path, array: np.ndarray, dtype: str) -> np.ndarray:
    """Store an array in a trace and read it back."""
    writer = TraceWriter.create(tmp_path / "trace", specimens.MANIFEST, keep_payload=True, buffer=specimens.SMALL_RING)
    journal = writer.begin_step(0, specimens.HEADER)
    journal.add(seal(specimens.tensor_line(writer, 0, array, dtype)))
    writer.close()
    found = open_trace(tmp_path / "trace").journal(0)
    tensor = found.tensor(0)
    assert tensor.spec == Spec(dtype, array.shape)
    return found.array(tensor)


def test_each_type_has_a_storage_of_its_size():
    assert {name: kind.itemsize for name, kind in STORAGE.items()} == dict(DTYPES)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_type_and_shape_travels_exactly(tmp_path, dtype, shape):
    array = specimens.values_of(dtype, shape)
    back = travel(tmp_path, array, dtype)
    assert (back.dtype, back.shape) == (STORAGE[dtype], shape)
    assert back.tobytes() == array.tobytes()


ODD = {
    "f64": [0x7FF8000000000001, 0xFFF8000000000000, 0x7FF0000000000000, 0xFFF0000000000000, 0x8000000000000000, 1],
    "f32": [0x7FC00001, 0x7F800001, 0xFFC0BEEF, 0x7F800000, 0xFF800000, 0x80000000, 1],
    "f16": [0x7E01, 0x7C01, 0xFE00, 0x7C00, 0xFC00, 0x8000, 1],
    "bf16": [0x7FC1, 0x7F81, 0xFFC0, 0x7F80, 0xFF80, 0x8000, 1],
}


@pytest.mark.parametrize("dtype", ODD)
def test_nan_payloads_minus_zero_and_infinities_travel_exactly(tmp_path, dtype):
    bits = np.array(ODD[dtype], dtype=f"<u{DTYPES[dtype]}")
    back = travel(tmp_path, bits.view(STORAGE[dtype]), dtype)
    assert back.view(bits.dtype).tolist() == bits.tolist()


def test_an_array_read_back_cannot_be_written_to(tmp_path):
    """It is the file itself, mapped."""
    back = travel(tmp_path, specimens.values_of("f32", (3,)), "f32")
    with pytest.raises(ValueError, match="read-only"):
        back[0] = 1


@pytest.mark.parametrize(
    ("spec", "raw", "text"),
    [
        (Spec("f32", (2, 3)), b"\0" * 23, r"f32\[2, 3\] needs 24 bytes, the payload has 23"),
        (Spec("f32", (1,) * 40), b"\0" * 4, "no array of this shape"),
        (Spec("u8", (0, 2**61, 2**61)), b"", "no array of this shape"),
    ],
    ids=["too short", "40 dimensions", "too large for numpy"],
)
def test_bytes_that_cannot_be_that_array(spec, raw, text):
    if len(spec.shape) == 40 and int(np.__version__.split(".")[0]) >= 2:
        pytest.skip("numpy 2 has 64 dimensions")
    with pytest.raises(TraceFormatError, match=f"here: .*{text}"):
        to_array(raw, spec, "here")


def test_sizes_do_not_overflow():
    assert nbytes(Spec("c128", (2**61, 2**61))) == 16 * 2**122


@pytest.mark.parametrize("shape", [(), (0,), (4,), (2, 2)], ids=str)
def test_values_for_arithmetic(shape):
    """What numpy does not have is widened exactly and keeps its shape; what it has stays what it is."""
    count = int(np.prod(shape))
    bf16 = np.full(shape, 0x3FC0, dtype="<u2")
    c32 = np.full(count, 1.5, dtype="<f2").repeat(2).view("<u4").reshape(shape)
    assert as_float(bf16, "bf16").shape == as_float(c32, "c32").shape == shape
    assert as_float(bf16, "bf16").dtype == np.float32
    assert as_float(c32, "c32").dtype == np.complex64
    assert as_float(bf16, "bf16").tolist() == np.full(shape, 1.5).tolist()
    assert as_float(c32, "c32").tolist() == np.full(shape, 1.5 + 1.5j).tolist()
    fp8 = as_float(np.full(shape, 0x3C, dtype="u1"), "f8e4m3fn")
    assert isinstance(fp8, np.ndarray)
    assert (fp8.dtype, fp8.tolist()) == (np.float32, np.full(shape, 1.5).tolist())
    fp4 = as_float(np.full(shape, 0x32, dtype="u1"), "f4e2m1fn_x2")
    assert fp4.shape == (*shape, 2)
    assert fp4.tolist() == np.broadcast_to([1.0, 1.5], (*shape, 2)).tolist()
    plain = np.ones(shape, dtype=np.float32)
    assert as_float(plain, "f32") is plain


@pytest.mark.parametrize(
    ("spec", "numbers", "constant"),
    [
        (Spec("f32", (2, 2)), (1.5, 1.5, 1.5, 3.0, 0, 0, 0, 0), 1.5),
        (Spec("bf16", ()), (1.5, 1.5, 1.5, 1.5, 0, 0, 0, 0), 1.5),
        (Spec("i64", (2,)), (3, 3, 3.0, 4.2, 0, 0, 0, 0), 3),
        (Spec("b8", (2,)), (1, 1, 1.0, 1.4, 0, 0, 0, 0), True),
        (Spec("f16", (2,)), (None, None, None, None, 2, 0, 0, 0), np.nan),
        (Spec("f16", (2,)), (None, None, None, None, 0, 2, 0, 0), np.inf),
        (Spec("f16", (2,)), (None, None, None, None, 0, 0, 2, 0), -np.inf),
        (Spec("f16", (2,)), (None, None, None, None, 0, 1, 1, 0), None),
        (Spec("f16", (2,)), (1.5, 1.5, 1.5, 1.5, 0, 1, 0, 0), None),
        (Spec("f32", (2,)), (0.0, 1.5, 0.75, 1.5, 0, 0, 0, 1), None),
        (Spec("c64", (2,)), (1.5, 1.5, 1.5, 2.1, 0, 0, 0, 0), None),
        (Spec("f32", (0,)), (None, None, None, None, 0, 0, 0, 0), None),
    ],
)
def test_one_value_of_all_elements_is_known_without_the_values(spec, numbers, constant):
    """Of complex numbers the modulus is not enough, and rounded statistics of another tool are not."""
    tensor = Tensor(0, spec, statistics=Statistics(*numbers))
    assert tensor.constant == constant or (constant != constant and tensor.constant != tensor.constant)
    assert Tensor(0, spec, statistics=Statistics(*numbers), facts={"statistics": "rough"}).constant is None
    if constant is not None:
        assert filled(constant, spec).dtype == as_float(np.zeros(spec.shape, STORAGE[spec.dtype]), spec.dtype).dtype
        np.testing.assert_array_equal(filled(constant, spec), np.full(spec.shape, constant))


def test_an_array_of_one_value_takes_the_room_of_one_element():
    assert filled(0.0, Spec("f64", (1 << 20, 1 << 20))).strides == (0, 0)
