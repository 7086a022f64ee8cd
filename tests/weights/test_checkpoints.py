"""Checkpoint files: read and written without a framework, as the frameworks read and write them; bad ones refused."""

import argparse
import collections
import io
import json
import pickle
import struct
import subprocess
import sys
import zipfile

import numpy as np
import pytest

from twintrace.model.errors import CheckpointError, TwintraceError, UsageError
from twintrace.model.tensors import DTYPES, Spec
from twintrace.store.arrays import nbytes
from twintrace.weights import checkpoints, ckpt, pth, safetensors
from twintrace.weights.checkpoints import open_checkpoint, writing
from twintrace.weights.extents import BLOCK

FORMATS = {"net.pth": pth.DTYPE_NAMES.values(), "net.safetensors": safetensors.CODES, "net.ckpt": ckpt.CODES}
SHAPES = [(), (1,), (0,), (3, 0), (2, 3), (2, 1, 4)]


def contents(dtypes, seed=0):
    """A few tensors of each type, as bytes: any bytes are values."""
    random = np.random.default_rng(seed)
    specs = {f"layer.{dtype}.{number}": Spec(dtype, shape) for dtype in dtypes for number, shape in enumerate(SHAPES)}
    return specs, {name: random.integers(0, 2, nbytes(spec)).astype(np.uint8).tobytes() for name, spec in specs.items()}


def written(path, specs, data, **options):
    with writing(path, specs, **options) as out:
        for name in specs:
            out.put(name, [data[name][:3], data[name][3:]])
    return path


@pytest.fixture(params=FORMATS)
def example(request, tmp_path):
    """(path, specs, bytes) of a good file in each format."""
    specs, data = contents(FORMATS[request.param])
    return written(tmp_path / request.param, specs, data), specs, data


def test_what_is_written_is_read(example):
    path, specs, data = example
    found = open_checkpoint(path)
    assert found.specs == specs
    assert {name: found.read(name).tobytes() for name in specs} == data
    assert {name: b"".join(map(bytes, found.blocks(name))) for name in specs} == data


def test_only_the_file_itself_is_left(example):
    path, _, _ = example
    assert list(path.parent.iterdir()) == [path]


def test_a_large_tensor_is_written_and_read_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(ckpt, "SLICE", 1000)
    spec = {"w": Spec("f32", (3, 1000)), "v": Spec("f32", (2,))}
    data = {"w": np.arange(3000, dtype=np.float32).tobytes(), "v": b"\1" * 8}
    found = open_checkpoint(written(tmp_path / "net.ckpt", spec, data))
    assert len(found.stored["w"].extents) == 12
    assert found.read("w").tobytes() == data["w"]
    assert found.read("v").tobytes() == data["v"]


def test_memory_is_bounded_by_blocks_and_not_by_tensors(tmp_path):
    spec = {"w": Spec("u8", (3 * BLOCK + 5,))}
    path = written(tmp_path / "net.safetensors", spec, {"w": bytes(3 * BLOCK + 5)})
    assert max(len(block) for block in open_checkpoint(path).blocks("w")) == BLOCK


def test_shards_are_one_checkpoint(tmp_path):
    specs, data = contents(["bf16", "f32"])
    halves = {"a.safetensors": list(specs)[:5], "b.safetensors": list(specs)[5:]}
    for file, names in halves.items():
        written(tmp_path / file, {name: specs[name] for name in names}, data, framework="torch")
    weight_map = {name: file for file, names in halves.items() for name in names}
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    for path in (index, tmp_path):
        found = open_checkpoint(path)
        assert found.specs == specs
        assert all(found.read(name).tobytes() == data[name] for name in specs)
        assert found.metadata["format"] == "pt"
    index.write_text(json.dumps({"weight_map": {"layer.elsewhere": "a.safetensors"}}))
    with pytest.raises(CheckpointError, match=r"layer.elsewhere should be in a.safetensors, and is not"):
        open_checkpoint(index)
    index.write_text(json.dumps({"weight_map": {"x": "../a.safetensors"}}))
    with pytest.raises(CheckpointError, match="a shard must be a checkpoint beside the index"):
        open_checkpoint(index)
    index.write_text(json.dumps({"weight_map": {"x": index.name}}))  # itself
    with pytest.raises(CheckpointError, match="a shard must be a checkpoint beside the index"):
        open_checkpoint(index)


def test_shards_are_written_with_their_index_last(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "SHARD", 40)
    specs, data = contents(["f32", "bf16"])
    index = written(tmp_path / "net.safetensors.index.json", specs, data, framework="torch")
    shards = sorted(tmp_path.glob("net-*-of-*.safetensors"))
    assert len(shards) > 2
    assert all(open_checkpoint(shard).stored for shard in shards)
    found = open_checkpoint(index)
    assert found.specs == specs
    assert all(found.read(name).tobytes() == data[name] for name in specs)


def test_shards_that_could_not_be_finished_leave_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "SHARD", 8)
    specs = {"a": Spec("f32", (2,)), "b": Spec("f32", (2,))}
    with pytest.raises(CheckpointError, match="b is f32"):
        write_both(tmp_path / "net.safetensors.index.json", specs, [bytes(3)])
    assert not list(tmp_path.iterdir())


# --- torch ------------------------------------------------------------------------------------------------------------


def can_be_saved(torch, dtype):
    try:
        torch.save(torch.ones(1).to(getattr(torch, dtype)), io.BytesIO())
    except (AttributeError, KeyError):
        return False
    return True


@pytest.fixture
def odd_tensors():
    """One tensor of each kind; of the element types those that this release has, and can save."""
    torch = pytest.importorskip("torch")
    base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    shared = torch.nn.Parameter(torch.randn(3))
    newer = {"fp8": "float8_e4m3fn", "u16": "uint16"}
    return {
        "plain": base.clone(), "transposed": base.t(), "slice": base[1:3, 2:5], "rows": base[1:3],
        "expanded": base[:1].expand(5, 6), "scalar": torch.tensor(7), "empty": torch.zeros(0, 3),
        "parameter": shared, "tied": shared,
        "bf16": torch.randn(5).bfloat16(), "half": torch.randn(5).half(), "complex": torch.randn(2, dtype=torch.complex64),
        "bool": torch.tensor([True, False]),
        **{name: torch.ones(4).to(getattr(torch, dtype)) for name, dtype in newer.items() if can_be_saved(torch, dtype)},
    }  # fmt: skip


def raw(tensor):
    import torch

    flat = tensor.detach().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


@pytest.mark.needs_torch
@pytest.mark.parametrize("new", [True, False])
def test_what_torch_saves_is_read(tmp_path, odd_tensors, new):
    import torch

    state = odd_tensors if new else {name: t for name, t in odd_tensors.items() if name not in ("fp8", "u16")}
    torch.save(state, tmp_path / "net.pth", _use_new_zipfile_serialization=new)
    found = open_checkpoint(tmp_path / "net.pth")
    assert list(found.specs) == list(state)
    for name, tensor in state.items():
        assert found.specs[name].shape == tuple(tensor.shape)
        assert found.read(name).tobytes() == raw(tensor), name
        assert b"".join(map(bytes, found.blocks(name))) == raw(tensor), name
    assert found.aliases["tied"] == "parameter"
    assert "slice" not in found.aliases


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")  # by older releases, of themselves
@pytest.mark.needs_torch
@pytest.mark.parametrize("file", ["net.pth", "net.safetensors"])
def test_torch_reads_what_is_written(tmp_path, odd_tensors, file):
    import torch

    torch.save(odd_tensors, tmp_path / "from.pth")
    source = open_checkpoint(tmp_path / "from.pth")
    with writing(tmp_path / file, source.specs, framework="torch") as out:
        for name in source.specs:
            out.put(name, source.blocks(name))
    if file == "net.pth":
        found = torch.load(str(tmp_path / file), weights_only=True, mmap=True)
        assert all(tensor.data_ptr() % 64 == 0 for tensor in found.values() if tensor.numel())
    else:
        found = pytest.importorskip("safetensors.torch").load_file(tmp_path / file)
    assert set(found) == set(odd_tensors)
    for name, tensor in odd_tensors.items():
        assert (found[name].dtype, found[name].shape) == (tensor.dtype, tensor.shape)
        assert raw(found[name]) == raw(tensor), name


@pytest.mark.needs_torch
def test_the_state_dict_is_found_inside_a_training_checkpoint(tmp_path):
    import argparse

    import torch

    net = torch.nn.Linear(2, 2)
    optimizer = torch.optim.Adam(net.parameters())
    net(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    path = tmp_path / "net.pth"
    extras = {
        "epoch": 3,
        "optimizer": optimizer.state_dict(),
        "args": argparse.Namespace(lr=0.1),
        "best": np.float64(0.5),
    }
    torch.save({"state_dict": net.state_dict()} | extras, path)
    found = open_checkpoint(path)
    assert list(found.specs) == ["weight", "bias"]
    assert "under 'state_dict'" in found.notes[0]
    torch.save({"generator": net.state_dict(), "critic": net.state_dict()}, path)
    with pytest.raises(
        CheckpointError, match=r"several state dicts, under generator, critic. Say which: key='generator'"
    ):
        open_checkpoint(path)
    assert list(open_checkpoint(path, key="critic").specs) == ["weight", "bias"]
    with pytest.raises(CheckpointError, match="there is no 'painter'"):
        open_checkpoint(path, key="painter")


WHOLE_MODULE = """
import collections, enum, functools, math, sys
import torch
from torch import nn

class Kind(enum.Enum):
    RELU = "relu"

Options = collections.namedtuple("Options", "a b")

class Block(nn.Module):
    ran = False

    def __init__(self, size, shared=None):
        super().__init__()
        self.fc = shared or nn.Linear(size, size)
        self.norm = nn.BatchNorm1d(size)
        self.scale = nn.Parameter(torch.full((size,), 2.0).to(torch.bfloat16))
        self.register_buffer("mask", torch.tril(torch.ones(size, size)).bool())
        self.register_buffer("cache", torch.ones(size), persistent=False)
        self.register_parameter("absent", None)
        self.act, self.kind, self.options = functools.partial(math.pow, 2), Kind.RELU, Options(1, (2, 3))
        self.function, self.method, self.device = torch.nn.functional.gelu, self.fc.forward, torch.device("cpu")
        self.settings = {"sizes": {1, 2}, "shape": torch.Size([2]), "inner": object()}

    def __setstate__(self, state):  # would be called by whoever loads it
        open(sys.argv[1] + "/ran", "w").close()
        super().__setstate__(state)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        first = Block(4)
        self.blocks = nn.Sequential(first, Block(4, first.fc))
        self.rnn = nn.LSTM(4, 3, num_layers=2, bidirectional=True)
        self.embedding = nn.Embedding(5, 4)
        self.transposed = nn.Parameter(torch.randn(3, 4).t())

net = Net()
folder = sys.argv[1]
torch.save(net.state_dict(), folder + "/state.pth")
torch.save(net, folder + "/net.pth")
torch.save(net, folder + "/protocol4.pth", pickle_protocol=4)
torch.save(net, folder + "/legacy.pth", _use_new_zipfile_serialization=False)
torch.save({"epoch": 3, "model": net, "args": Options(1, 2)}, folder + "/inside.pth")
torch.save(nn.DataParallel(net), folder + "/parallel.pth")
"""


@pytest.fixture(scope="module")
def whole_modules(tmp_path_factory, checkout_env):
    folder = tmp_path_factory.mktemp("whole")
    done = subprocess.run(
        [sys.executable, "-c", WHOLE_MODULE, str(folder)], env=checkout_env, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    (folder / "ran").unlink(missing_ok=True)
    return folder


@pytest.mark.needs_torch
@pytest.mark.parametrize("name", ["net", "protocol4", "legacy", "inside", "parallel"])
def test_a_whole_module_is_read_without_running_it(whole_modules, name):
    """Its class exists in no process but the one that saved it; names, order, types and values are those of its state dict."""
    expected = open_checkpoint(whole_modules / "state.pth")
    found = open_checkpoint(whole_modules / f"{name}.pth")
    prefix = "module." if name == "parallel" else ""
    assert list(found.specs.items()) == [(f"{prefix}{key}", spec) for key, spec in expected.specs.items()]
    for key in expected.specs:
        assert np.array_equal(found.read(f"{prefix}{key}"), expected.read(key))
    assert found.aliases == {f"{prefix}blocks.1.fc.{own}": f"{prefix}blocks.0.fc.{own}" for own in ("weight", "bias")}
    assert any("holds a whole module (" in note and "nothing in it was run" in note for note in found.notes)
    assert not (whole_modules / "ran").exists()


class Rebuilt:
    """What only its own code makes a tensor of."""

    def __reduce__(self):
        return rebuild, (1,)


def rebuild(number):
    raise AssertionError("this was run")


@pytest.mark.needs_torch
def test_what_must_be_run_to_be_known_is_refused_until_it_is_trusted(tmp_path, monkeypatch):
    import torch

    from twintrace.weights.states import open_state

    net = torch.nn.Linear(2, 2)
    net._buffers["odd"] = Rebuilt()
    torch.save(net, tmp_path / "net.pth")
    with pytest.raises(
        CheckpointError, match=r"refers to .*rebuild, to call it.*nothing in it was run.*TWINTRACE_TRUST=1"
    ):
        open_state(tmp_path / "net.pth")
    monkeypatch.setenv("TWINTRACE_TRUST", "1")
    with pytest.raises(CheckpointError, match="torch cannot load it either: AssertionError: this was run"):
        open_state(tmp_path / "net.pth")


@pytest.mark.needs_torch
def test_an_object_in_the_place_of_a_tensor_is_refused(tmp_path):
    import torch

    net = torch.nn.Linear(2, 2)
    net._buffers["odd"] = argparse.Namespace()
    torch.save(net, tmp_path / "net.pth")
    with pytest.raises(CheckpointError, match="odd is a _Inert, which only its own code makes a tensor of"):
        open_checkpoint(tmp_path / "net.pth")
    torch.save(collections.ChainMap(), tmp_path / "net.pth")
    with pytest.raises(CheckpointError, match=r"refers to collections\.ChainMap"):
        open_checkpoint(tmp_path / "net.pth")


# --- MindSpore --------------------------------------------------------------------------------------------------------

MINDSPORE = """
import sys, numpy as np, mindspore as ms
folder = sys.argv[1]
values = {name: ms.Tensor(np.arange(6).reshape(2, 3), getattr(ms, kind)) for name, kind in
          {"f": "float32", "h": "float16", "b": "bfloat16", "d": "float64", "i": "int32", "l": "int64", "u": "uint8"}.items()}
values |= {"z": ms.Tensor(3, ms.int64), "t": ms.Tensor([True, False])}
listed = [{"name": name, "data": value} for name, value in values.items()]
ms.save_checkpoint(listed, f"{folder}/plain.ckpt")
ms.save_checkpoint(listed, f"{folder}/checked.ckpt", crc_check=True)
ms.save_checkpoint(listed, f"{folder}/text.ckpt", append_dict={"note": "hello"})
ms.save_checkpoint(listed, f"{folder}/plain.safetensors", format="safetensors")
for file in sys.argv[2:]:
    for name, value in ms.load_checkpoint(file, format=file.rpartition(".")[2]).items():
        print(file.rpartition("/")[2], name, value.dtype, list(value.shape), value.get_bytes().hex(), flush=True)
"""


def reads_bf16() -> bool:
    """MindSpore's arrays of bfloat16, which it has with the major version of numpy that it was built with."""
    import mindspore

    try:
        mindspore.Tensor([1.0], mindspore.bfloat16).asnumpy()
    except TypeError:
        return False
    return True


@pytest.mark.needs_mindspore
@pytest.mark.offered.with_args(reads_bf16)
def test_mindspore_reads_what_is_written_and_what_it_writes_is_read(tmp_path, python):
    specs = {
        f"layer.{dtype}.{number}": Spec(dtype, shape)
        for dtype in ckpt.CODES
        for number, shape in enumerate(((), (2, 3), (1, 4)))
    }
    data = {
        name: np.random.default_rng(1).integers(0, 2, nbytes(spec)).astype(np.uint8).tobytes()
        for name, spec in specs.items()
    }
    files = [written(tmp_path / f"ours.{end}", specs, data, framework="mindspore") for end in ("ckpt", "safetensors")]
    run = python(MINDSPORE, str(tmp_path), *map(str, files))
    assert run.returncode == 0, run.stderr
    lines = [line.split(" ", 3) for line in run.stdout.splitlines() if line.startswith("ours.")]
    told = {(file, name): (dtype, rest) for file, name, dtype, rest in lines}
    for file in ("ours.ckpt", "ours.safetensors"):
        for name, spec in specs.items():
            dtype, rest = told[file, name]
            shape, _, content = rest.rpartition(" ")
            assert (dtype, shape, content) == (ckpt.CODES[spec.dtype], str(list(spec.shape)), data[name].hex()), (
                file,
                name,
            )
    for file in ("plain.ckpt", "checked.ckpt", "text.ckpt", "plain.safetensors"):
        found = open_checkpoint(tmp_path / file)
        assert found.specs["b"] == Spec("bf16", (2, 3))
        assert found.specs["z"] == Spec("i64", ())
        assert found.read("f").tolist() == [[0, 1, 2], [3, 4, 5]]
        assert found.read("b").tolist() == [[0, 0x3F80, 0x4000], [0x4040, 0x4080, 0x40A0]]
        assert found.metadata["format"] == "ms"
    damaged = bytearray((tmp_path / "checked.ckpt").read_bytes())
    damaged[40] ^= 1
    (tmp_path / "damaged.ckpt").write_bytes(damaged)
    with pytest.raises(CheckpointError, match="CRC-32"):
        open_checkpoint(tmp_path / "damaged.ckpt")
    assert "note is a text" in open_checkpoint(tmp_path / "text.ckpt").notes[0]


# --- bad files --------------------------------------------------------------------------------------------------------


def read_all(path):
    found = open_checkpoint(path)
    return {name: found.read(name) for name in found.specs}


def test_a_file_that_was_cut_is_refused_wherever_it_was_cut(example):
    path, _, _ = example
    whole = path.read_bytes()
    cut = path.with_name("cut" + path.suffix)
    complete, refused = 0, []
    for length in [*range(200), *range(200, len(whole), 97), len(whole) - 1]:
        cut.write_bytes(whole[:length])
        try:
            read_all(cut)
            complete += 1  # a MindSpore checkpoint that ends between two tensors is a checkpoint
        except CheckpointError as error:
            refused.append(str(error))
    assert all(str(cut) in message for message in refused)
    assert complete <= (len(read_all(path)) if path.suffix == ".ckpt" else 0)


def test_a_file_with_wrong_bytes_never_ends_in_another_error(example):
    path, _, _ = example
    whole = path.read_bytes()
    bad = path.with_name("bad" + path.suffix)
    random = np.random.default_rng(3)
    refused = 0
    for at in random.integers(0, min(len(whole), 6000), 400):
        changed = bytearray(whole)
        changed[at] ^= 1 << random.integers(0, 8)
        bad.write_bytes(changed)
        try:
            read_all(bad)
        except TwintraceError:
            refused += 1
    assert refused > 20


def test_a_changed_weight_in_a_pth_file_is_noticed(tmp_path):
    spec = {"w": Spec("f32", (64,))}
    path = written(tmp_path / "net.pth", spec, {"w": b"\x11" * 256})
    path.write_bytes(path.read_bytes().replace(b"\x11" * 256, b"\x11" * 255 + b"\x12"))
    with pytest.raises(CheckpointError, match="the bytes of w are not those that were written"):
        open_checkpoint(path).read("w")


class Bomb:
    """What unpickling this would run."""

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        import os

        return os.mkdir, (str(self.folder / "ran"),)


def zipped(path, program, storages=None):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", program)
        for name, data in (storages or {}).items():
            archive.writestr(f"archive/data/{name}", data)
    return path


TENSOR = (
    b"ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\0"
    + b"0X\x03\0\0\0cpuK\x04tQ"
)


@pytest.mark.parametrize("protocol", [2, 4, 5])
@pytest.mark.parametrize("wrapped", [True, False])
def test_a_hostile_pickle_runs_nothing(tmp_path, protocol, wrapped):
    program = pickle.dumps({"w": Bomb(tmp_path), "x": [1]}, protocol=protocol)
    path = tmp_path / "net.pth"
    if wrapped:
        zipped(path, program)
    else:
        path.write_bytes(program)
    with pytest.raises(CheckpointError, match=r"refers to (posix|nt)\.mkdir.*nothing in it was run"):
        open_checkpoint(path)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (b"\x80\x02}X\x01\0\0\0w" + TENSOR + b"K\0(K\x02K\x04t(K\x04K\x01t\x89}tRs.", "reaches to byte 32 of a storage of 16"),
        (b"\x80\x02}X\x01\0\0\0w" + TENSOR + b"K\x01(K\x04t(K\x01t\x89}tRs.", "reaches to byte 20 of a storage of 16"),
        (b"\x80\x02}X\x01\0\0\0w" + TENSOR + b"K\0(J\0\0\0\x7ft(K\0t\x89}tRs.", "repeated out of 16: refused"),
        (b"\x80\x02}X\x01\0\0\0w" + TENSOR + b"J\xff\xff\xff\xff(K\x04t(K\x01t\x89}tRs.", "damaged"),
        (b"\x80\x02}X\x01\0\0\0w" + TENSOR + b"K\0(K\x04t(K\x01K\x01t\x89}tRs.", "shape .4,. and strides .1, 1."),
        (b"\x80\x02}X\x01\0\0\0w" + TENSOR.replace(b"X\x01\0\0\0" + b"0", b"X\x01\0\0\0" + b"9") + b"K\0(K\x04t(K\x01t\x89}tRs.",
         "storage '9', which is not there"),
        (b"\x80\x02}.", "no named tensors"),
        (b"\x80\x02K\x01.", "holds a int"),
        (b"\x80\x02}(K\x01K\x02u", "ends in the middle|cannot be understood"),
        (b"\x80\x02\x8a\x05\x01\x02\x03\x04\x05)R.", "cannot be understood"),
        (b"\x80\x02cbuiltins\neval\nX\x01\0\0\x001\x85R.", "refers to builtins.eval"),
        (b"\x80\x02ctorch.hub\nload\n)R.", "refers to torch.hub.load"),
        (b"\x80\x02(X\x01\0\0\0aios\nsystem\n.", "INST has no place"),
        (b"\x80\x02ctorch._utils\n_rebuild_sparse_tensor\n.", "special kind"),
        (b"\x80\x02h\x05.", "cannot be understood"),
        (b"", "ends in the middle|cannot be understood"),
    ],
)  # fmt: skip
def test_a_pickle_that_lies_is_refused(tmp_path, program, message):
    with pytest.raises(CheckpointError, match=message):
        read_all(zipped(tmp_path / "net.pth", program, {"0": bytes(16)}))


def test_a_pickle_that_grows_when_it_is_unpacked_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "net.pth", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", bytes(10**7))
    with pytest.raises(CheckpointError, match=r"data.pkl is compressed, or of 10000000 bytes: refused"):
        open_checkpoint(tmp_path / "net.pth")


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"w": {"dtype": "F32", "shape": [5], "data_offsets": [0, 16]}}, "that is 20 bytes, but 16 are stored"),
        ({"w": {"dtype": "F32", "shape": [4], "data_offsets": [4, 20]}}, "begins at byte|should be 16 bytes"),
        ({"w": {"dtype": "F32", "shape": [-4], "data_offsets": [0, 16]}}, "cannot be understood"),
        ({"w": {"dtype": "F99", "shape": [4], "data_offsets": [0, 16]}}, "element type 'F99'"),
        ({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, "the tensors end at byte"),
        ({"w": {"dtype": "F32"}}, "cannot be understood"),
        ([1], "the header is not a JSON object"),
    ],
)
def test_a_safetensors_header_that_lies_is_refused(tmp_path, header, message):
    text = json.dumps(header).encode()
    path = tmp_path / "net.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(16))
    with pytest.raises(CheckpointError, match=message):
        read_all(path)


@pytest.mark.parametrize(
    ("length", "said"),
    [
        (1 << 62, "4,611,686,018,427,387,904"),
        (200_000_000, "200,000,000"),
        (500, "500"),
        (0, "0"),
        (10 + (1 << 40), "1,099"),
    ],
)
def test_a_safetensors_header_of_an_absurd_length_is_told_with_where_it_says_so(tmp_path, length, said):
    path = tmp_path / "net.safetensors"
    path.write_bytes(struct.pack("<Q", length) + b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}' + bytes(4))
    with pytest.raises(
        CheckpointError, match=rf"by its bytes 0 to 7 the header has {said}.* expected 2 to .* the 58 that"
    ):
        read_all(path)


@pytest.mark.parametrize("content", [b"abc", b"PK", b"1234567"])
def test_a_safetensors_file_that_is_too_short_is_told(tmp_path, content):
    path = tmp_path / "net.safetensors"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=f"has {len(content)} bytes; a .safetensors file begins with"):
        read_all(path)


@pytest.mark.parametrize(
    ("content", "message"), [(b"", "is empty"), (b"hello, this is no checkpoint", "no MindSpore checkpoint")]
)
def test_what_is_no_checkpoint_is_said_to_be_none(tmp_path, content, message):
    path = tmp_path / "net.ckpt"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(path)
    with pytest.raises(CheckpointError, match="no such file"):
        open_checkpoint(tmp_path / "gone.ckpt")
    with pytest.raises(CheckpointError, match=r"is empty|no checkpoint|no MindSpore"):
        open_checkpoint(tmp_path)


# --- all or nothing ---------------------------------------------------------------------------------------------------


def write_both(path, specs, second):
    with writing(path, specs) as out:
        out.put("a", [bytes(8)])
        out.put("b", second)


@pytest.mark.parametrize("file", FORMATS)
@pytest.mark.parametrize("existing", [True, False])
def test_a_file_that_could_not_be_finished_leaves_everything_as_it_was(tmp_path, file, existing):
    path = tmp_path / file
    if existing:
        path.write_bytes(b"what was there")
    specs = {"a": Spec("f32", (2,)), "b": Spec("f32", (2,))}

    def failing():
        yield bytes(4)
        raise ArithmeticError

    for blocks, error in ((failing(), ArithmeticError), ([bytes(4)], CheckpointError), ([bytes(100)], CheckpointError)):
        with pytest.raises(error):
            write_both(path, specs, blocks)
    with pytest.raises(UsageError, match="b was announced and never put"), writing(path, specs) as out:
        out.put("a", [bytes(8)])
    with pytest.raises(UsageError, match="b is put where a is due"), writing(path, specs) as out:
        out.put("b", [bytes(8)])
    assert [item.name for item in tmp_path.iterdir()] == ([file] if existing else [])
    assert not existing or path.read_bytes() == b"what was there"


@pytest.mark.parametrize(("file", "dtype"), [("net.ckpt", "f8e5m2"), ("net.ckpt", "c64"), ("net.safetensors", "c128")])
def test_what_a_format_cannot_hold_is_refused_before_anything_is_written(tmp_path, file, dtype):
    with (
        pytest.raises(CheckpointError, match=f"{dtype}.*w: {dtype}.2"),
        writing(tmp_path / file, {"v": Spec("f32", (1,)), "w": Spec(dtype, (2,))}) as out,
    ):
        out.put("v", [bytes(4)])
    assert not list(tmp_path.iterdir())


def test_places_that_cannot_be_written_are_named(tmp_path):
    with pytest.raises(UsageError, match=r"ends in .ckpt"), writing(tmp_path / "net.onnx", {}):
        pass
    with pytest.raises(CheckpointError, match="there is no folder"), writing(tmp_path / "no" / "net.ckpt", {}):
        pass


def test_every_element_type_has_a_file_that_holds_it():
    assert {dtype for held in FORMATS.values() for dtype in held} == set(DTYPES)
