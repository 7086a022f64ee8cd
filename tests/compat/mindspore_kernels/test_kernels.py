"""Directories of MindSpore kernel files: every version's names, real dumps, and what is wrong with them."""

import csv
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from twintrace import api
from twintrace.compat.mindspore_kernels import layout as kernels
from twintrace.model.errors import TraceError, TraceFormatError, TraceNotFoundError
from twintrace.model.sites import Kind, Phase
from twintrace.model.tensors import Spec
from twintrace.model.values import Nest, TensorRef, Token
from twintrace.store import native
from twintrace.store.registry import open_trace

SCOPE = "Default_network-WithLossCell__backbone-Net_l1-Dense"
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def save(folder: Path, name: str, array: np.ndarray = X) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / name, array)
    return folder / name


def only(root: Path):
    """The single call of the single step of a trace, with its journal."""
    (journal,) = open_trace(root).journals()
    (call,) = journal.calls()
    return journal, call


def values(journal, ref: TensorRef) -> np.ndarray:
    return journal.array(journal.tensor(ref.id))


# --- names ------------------------------------------------------------------------------------------------------------

NAME = f"MatMul.{SCOPE}_MatMul-op0"


@pytest.mark.parametrize(
    ("folder", "names", "place", "graph"),
    [
        ("rank_1/Net/2/3", "{}.0.0.17{}.{}.0.DefaultFormat.Float32.npy", (3, 1), 2),
        ("rank_1/Net/2/3", "{}.0.0.17{}.{}.0.DefaultFormat.npy", (3, 1), 2),
        ("rank_1/Net/2/3", "{}.7.65535.17{}.{}.0.2x3.npy", (3, 1), 2),
        ("rank_0/a.b-c/0/10", "{}.0.0.17{}.{}.0.DefaultFormat.float32.npy", (10, 0), 0),
        ("4/20261115120000/1/ge_default_2/5/0", "{}.0.0.17{}.{}.0.ND.Float32.npy", (4, 1), 5),
        ("20261115120000/1/ge_default_2/5/6", "{}.0.0.17{}.{}.0.ND.npy", (6, 1), 5),
        ("step2/rank3/20261115120000/1/ge/5/0", "{}.0.0.17{}.{}.0.ND.npy", (2, 3), 5),
        ("step2/rank3", "{}.0.0.17{}.{}.0.DefaultFormat.npy", (2, 3), None),
        (".", "{}.0.0.17{}.{}.0.DefaultFormat.npy", (0, 0), None),
    ],
)
def test_every_versions_names(tmp_path, folder, names, place, graph):
    save(tmp_path / "dump" / folder, names.format(NAME, 1, "input"), X)
    save(tmp_path / "dump" / folder, names.format(NAME, 2, "output"), X + 1)
    trace = open_trace(tmp_path / "dump")
    assert (trace.layout, trace.framework, trace.places) == ("mindspore-kernels", "mindspore", (place,))
    journal, call = only(tmp_path / "dump")
    site = call.site
    assert (site.kind, site.type, site.name) == (Kind.OP, "MatMul", f"{SCOPE}_MatMul-op0")
    assert (site.phase, site.path) == (Phase.FORWARD, "network._backbone.l1")
    assert call.config.values["graph"] == graph
    assert values(journal, call.args[0]).tolist() == X.tolist()
    assert values(journal, call.output).tolist() == (X + 1).tolist()
    assert not journal.damage


def test_any_folder_of_a_dump_can_be_opened(tmp_path):
    folder = tmp_path / "rank_1" / "Net" / "2" / "3"
    save(folder, f"{NAME}.0.0.1.output.0.DefaultFormat.npy")
    for root in (tmp_path, *folder.relative_to(tmp_path).parents, folder.relative_to(tmp_path)):
        journal, call = only(tmp_path / root)
        assert (journal.header.step, journal.header.rank, call.config.values["graph"]) == (3, 1, 2), root


@pytest.mark.parametrize(
    ("name", "phase", "path"),
    [
        ("Default_MatMul-op0", Phase.FORWARD, ""),
        ("Default_fc_1-Dense_MatMul-op12", Phase.FORWARD, "fc_1"),
        ("Default_layers-SequentialCell_0-Dense_MatMul-op1", Phase.FORWARD, "layers.0"),
        ("Expand__PowTensorScalar_Pow-op0", Phase.FORWARD, ""),
        ("Gradients_Default_network-WithLossCell_l2-Dense_Grad_MatMul_MatMul-op2", Phase.BACKWARD, "network.l2"),
        ("Gradients_Default_Grad_Square_Mul-op0", Phase.BACKWARD, ""),
        ("Default_optimizer-SGD_SGD-op0", Phase.UPDATE, "optimizer"),
        ("recompute_Default_network-Net_l2-Dense_MatMul-op3", Phase.RECOMPUTE, "network.l2"),
    ],
)
def test_phase_and_module_come_from_the_scope(tmp_path, name, phase, path):
    save(tmp_path, f"Kernel.{name}.0.0.1.output.0.DefaultFormat.npy")
    _, call = only(tmp_path)
    assert (call.site.phase, call.site.path) == (phase, path)


def test_scopes_as_they_were_are_better_than_a_guess(tmp_path):
    """A class with an underscore in its name; kernels are numbered anew after the table is written."""
    folder = tmp_path / "rank_0" / "Net" / "0" / "0"
    save(folder, "MatMul.Default_my_net-My_Net_l1-Dense_MatMul-op0.0.0.1.output.0.DefaultFormat.npy")
    assert only(tmp_path)[1].site.path == "my_net.Net_l1"
    orders = tmp_path / "rank_0" / "execution_order" / "ms_execution_order_graph_0.csv"
    orders.parent.mkdir()
    orders.write_text("NodeExecutionOrder-FullNameWithScope\nDefault/my_net-My_Net/l1-Dense/MatMul-op3\n")
    assert only(tmp_path)[1].site.path == "my_net.l1"


def test_a_graph_that_ran_twice_in_one_iteration(tmp_path):
    for time in (10, 20, 30):
        save(tmp_path, f"Add.Default_Add-op0.0.0.{time}.input.0.DefaultFormat.npy", X * time)
        save(tmp_path, f"Add.Default_Add-op0.0.0.{time + 1}.output.0.DefaultFormat.npy", X * time)
        save(tmp_path, f"Mul.Default_Mul-op0.0.0.{time + 5}.output.0.DefaultFormat.npy", X * time)
    (journal,) = open_trace(tmp_path).journals()
    assert [f"{call.site.type}#{call.site.call}" for call in journal.calls()] == [
        "Add#0", "Mul#0", "Add#1", "Mul#1", "Add#2", "Mul#2",
    ]  # fmt: skip
    added = [call for call in journal.calls() if call.site.type == "Add"]
    assert [values(journal, call.output)[1, 2] for call in added] == [50, 100, 150]
    assert [values(journal, call.args[0])[1, 2] for call in added] == [50, 100, 150]
    assert [journal.tensor(call.output.id).producer for call in added] == [call.id for call in added]


def test_slots_that_were_not_dumped_and_several_outputs(tmp_path):
    for slot in (0, 2):
        save(tmp_path, f"Split.Default_Split-op0.0.0.{slot}.input.{slot}.DefaultFormat.npy")
        save(tmp_path, f"Split.Default_Split-op0.0.0.{slot + 9}.output.{slot}.DefaultFormat.npy", X[:slot])
    journal, call = only(tmp_path)
    gap = Token("opaque", "not in the dump")
    assert [type(value) for value in call.args] == [TensorRef, Token, TensorRef]
    assert call.args[1] == gap
    assert isinstance(call.output, Nest)
    assert [key for key, _ in call.output.items] == ["0", "1", "2"]
    assert journal.tensor(call.output.items[0][1].id).spec == Spec("f32", (0, 3))
    assert values(journal, call.output.items[0][1]).shape == (0, 3)


def test_constants_are_told_once(tmp_path):
    for step in (3, 4):
        save(tmp_path / "rank_0" / "Net" / "1" / str(step), "Add.Default_Add-op0.0.0.50.output.0.DefaultFormat.npy")
    save(tmp_path / "rank_0" / "Net" / "1" / "constants", "Parameter.data-8.0.0.20.output.0.DefaultFormat.npy")
    trace = open_trace(tmp_path)
    assert [[call.site.name for call in journal.calls()] for journal in trace.journals()] == [
        ["data-8", "Default_Add-op0"],
        ["Default_Add-op0"],
    ]
    assert trace.steps == (3, 4)


def test_names_that_were_too_long_for_the_file_system(tmp_path):
    long = f"MatMul.{SCOPE}_{'x' * 300}-op0.0.0.1.output.0.DefaultFormat.Float32"
    save(tmp_path, "123456.npy")
    save(tmp_path, "123457.npy", X + 1)
    save(tmp_path, f"{NAME}.0.0.9.output.0.DefaultFormat.npy")
    rows = [["123456.npy", f"{long}.npy"], [long.replace("op0.0.0.1", "op1.0.0.2"), "123457"], ["strange"]]
    with (tmp_path / "mapping.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    (journal,) = open_trace(tmp_path).journals()
    found = {call.site.name: values(journal, call.output)[0, 0] for call in journal.calls()}
    assert found == {f"{SCOPE}_{'x' * 300}-op0": 0, f"{SCOPE}_{'x' * 300}-op1": 1, f"{SCOPE}_MatMul-op0": 0}
    assert not journal.damage


# --- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "array", "spec"),
    [
        ("Float32", X, "f32[2, 3]"),
        ("Float16", X.astype(np.float16), "f16[2, 3]"),
        ("Float64", X.astype(">f8"), "f64[2, 3]"),
        ("Int64", np.array(7), "i64[]"),
        ("Bool", np.array([True, False]), "b8[2]"),
        ("UInt8", np.arange(3, dtype=np.uint8), "u8[3]"),
        ("UInt16", np.arange(3, dtype=np.uint16), "u16[3]"),
        ("UInt32", np.arange(3, dtype=np.uint32), "u32[3]"),
        ("Complex64", X.astype(np.complex64), "c64[2, 3]"),
        ("Float32", np.asfortranarray(X), "f32[2, 3]"),
        ("Float32", np.zeros((0, 4), np.float32), "f32[0, 4]"),
        ("NoSuchType", X, "f32[2, 3]"),
    ],
)
def test_values_of_every_type(tmp_path, dtype, array, spec):
    save(tmp_path, f"{NAME}.0.0.1.output.0.DefaultFormat.{dtype}.npy", array)
    journal, call = only(tmp_path)
    tensor = journal.tensor(call.output.id)
    assert str(tensor.spec) == spec
    assert np.array_equal(journal.array(tensor), array)
    assert journal.array(tensor).flags.c_contiguous
    finite = array.size and not np.iscomplexobj(array)
    assert tensor.statistics.max == (array.max() if finite else tensor.statistics.max)
    assert tensor.statistics.zero == np.count_nonzero(array == 0)
    assert len(tensor.fingerprint) == 32


def test_bfloat16_in_both_forms(tmp_path):
    """Most versions widen it to float32; 2.10 on CPU writes the 16 bits under a type that numpy does not know."""
    save(tmp_path, f"{NAME}.0.0.1.output.0.DefaultFormat.BFloat16.npy", X)
    raw = save(tmp_path, f"{NAME}.0.0.2.output.0.DefaultFormat.BFloat16.npy", (X.view(np.uint32) >> 16).astype("<u2"))
    raw.write_bytes(raw.read_bytes().replace(b"<u2", b"<E2"))
    (journal,) = open_trace(tmp_path).journals()
    wide, narrow = (journal.tensor(call.output.id) for call in journal.calls())
    assert str(wide.spec) == str(narrow.spec) == "bf16[2, 3]"
    assert wide.fingerprint == narrow.fingerprint
    assert wide.statistics.max == 5.0
    save(tmp_path / "lie", f"{NAME}.0.0.1.output.0.DefaultFormat.BFloat16.npy", X + 0.001)
    journal, call = only(tmp_path / "lie")
    with pytest.raises(TraceFormatError, match="values that bfloat16 does not have"):
        values(journal, call.output)
    assert journal.tensor(call.output.id).statistics is None


def test_narrow_types_and_formats_of_devices_are_facts(tmp_path):
    name = f"{NAME}.0.0.1.output.0.NC1HWC0.Int4.npy"
    save(tmp_path, name, np.array([1, -8], np.int8))
    journal, call = only(tmp_path)
    assert journal.tensor(call.output.id).facts == {"dtype": "Int4", "format": "NC1HWC0", "file": name}
    assert str(journal.tensor(call.output.id).spec) == "i8[2]"


def test_nothing_is_read_that_is_not_asked_for(tmp_path, monkeypatch):
    """Opening a trace reads headers; only statistics and fingerprints read values, once. A listing shows those of the results."""
    save(tmp_path, f"{NAME}.0.0.1.input.0.DefaultFormat.npy", 2 * X)
    save(tmp_path, f"{NAME}.0.0.1.output.0.DefaultFormat.npy", X)
    save(tmp_path, f"{NAME}.0.0.2.output.0.DefaultFormat.npy", 3 * X)
    reads = []
    take = kernels.digest
    monkeypatch.setattr(kernels, "digest", lambda *arguments: reads.append(arguments) or take(*arguments))
    (journal,) = open_trace(tmp_path).journals()
    call, _ = journal.calls()
    assert len(list(journal.tensors())) == 3
    assert api.listing(tmp_path, limit=0).calls == 2
    assert not reads
    assert api.listing(tmp_path, limit=1).rows[0].ranges == ("0 … 5, norm 7.416",)
    assert [array.max() for array, _ in reads] == [5]
    reads.clear()
    tensor = journal.tensor(call.output.id)
    assert tensor.statistics.max == 5
    assert tensor.fingerprint == journal.tensor(call.output.id).fingerprint
    assert len(reads) == 1


def test_a_dump_becomes_a_trace_of_ours_and_compares(tmp_path):
    folder = tmp_path / "dump" / "rank_0" / "Net" / "0" / "0"
    save(folder, f"{NAME}.0.0.1.input.0.DefaultFormat.npy", X)
    save(folder, f"{NAME}.0.0.2.output.0.DefaultFormat.npy", X + 1)
    native.write(open_trace(tmp_path / "dump"), tmp_path / "ours")
    assert open_trace(tmp_path / "ours").layout == "twintrace"
    assert api.compare(tmp_path / "dump", tmp_path / "ours").agree
    save(folder, f"{NAME}.0.0.2.output.0.DefaultFormat.npy", X + 2)
    found = api.compare(tmp_path / "dump", tmp_path / "ours")
    assert found.divergence.result.match.left[0].site.type == "MatMul"
    assert not found.divergence.inherited


# --- tables -----------------------------------------------------------------------------------------------------------

TITLES = (
    "Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape,Max Value,Min Value,L2Norm Value"
)


def test_statistics_without_tensors(tmp_path):
    folder = tmp_path / "rank_0" / "Net" / "0" / "2"
    folder.mkdir(parents=True)
    rows = [
        TITLES,
        'MatMul,Default/l1-Dense/MatMul-op0,0,0,11,input,0,24,float32,"(2,3)",5.0,0.0,7.416',
        'MatMul,Default/l1-Dense/MatMul-op0,0,0,12,output,0,12,bfloat16,"[2, 3]",inf,nan,1e3',
        "MatMul,Default/l1-Dense/MatMul-op0,0,0,13,output,1,12,strange,(),1,1,1",
        "MatMul",
    ]
    (folder / "statistic.csv").write_text("\n".join(rows))
    journal, call = only(tmp_path)
    assert (journal.header.step, call.site.name, call.site.path) == (2, "Default_l1-Dense_MatMul-op0", "l1")
    given, made = journal.tensor(call.args[0].id), journal.tensor(call.output.id)
    assert (str(given.spec), str(made.spec)) == ("f32[2, 3]", "bf16[2, 3]")
    assert (given.statistics.min, given.statistics.max, given.statistics.norm) == (0.0, 5.0, 7.416)
    assert (made.statistics.min, made.statistics.max) == (None, None)
    assert "not all counted" in given.facts["statistics"]
    assert given.fingerprint is None
    assert [item.where for item in journal.damage] == ["line 4", "line 5"]
    with pytest.raises(TraceNotFoundError, match="only statistics were dumped"):
        journal.array(given)


def test_all_the_numbers_that_can_be_chosen(tmp_path):
    titles = TITLES.replace(
        "L2Norm Value", "Avg Value,L2Norm Value,MD5,NaN Count,Positive Inf Count,Negative Inf Count,Zero Count"
    )
    row = 'Add,Default/Add-op0,0,0,1,output,0,8,Int4,"(2,)",7,-8,-0.5,10.6,abc,1,2,3,4'
    (tmp_path / "statistic.csv").write_text(f"{titles}\n{row}\n")
    journal, call = only(tmp_path)
    tensor = journal.tensor(call.output.id)
    statistics = tensor.statistics
    assert (statistics.mean, statistics.norm) == (-0.5, 10.6)
    assert (statistics.nan, statistics.posinf, statistics.neginf, statistics.zero) == (1, 2, 3, 4)
    assert tensor.facts.items() >= {"md5": "abc", "dtype": "Int4", "file": "statistic.csv"}.items()


def test_a_file_counts_more_than_its_row(tmp_path):
    save(tmp_path, "Add.Default_Add-op0.0.0.7.output.0.DefaultFormat.npy")
    row = 'Add,Default/Add-op0,0,0,7,output,0,24,float32,"(2,3)",99,99,99'
    (tmp_path / "statistic.csv").write_text(f"{TITLES}\n{row}\n{row.replace('output,0', 'output,1')}\n")
    journal, call = only(tmp_path)
    first, second = (journal.tensor(ref.id) for _, ref in call.output.items)
    assert (first.statistics.max, second.statistics.max) == (5, 99)


def test_a_kernels_arguments_are_its_configuration(tmp_path):
    save(tmp_path, f"{NAME}.0.0.1.output.0.DefaultFormat.npy")
    (tmp_path / f"{NAME}.json").write_text(json.dumps({"transpose_a": "False"}))
    assert only(tmp_path)[1].config.values == {"graph": None, "transpose_a": "False"}
    (tmp_path / f"{NAME}.json").write_text("{")
    journal, call = only(tmp_path)
    assert call.config.values == {"graph": None}
    assert "not JSON" in journal.damage[0].text


def test_an_overflow_is_noted(tmp_path):
    save(tmp_path, f"{NAME}.0.0.1.output.0.DefaultFormat.npy")
    (tmp_path / "Opdebug.Node_OpDebug.1.2.3.output.0.json").write_text("{}")
    journal, _ = only(tmp_path)
    assert [note.topic for note in journal.notes()] == ["overflow"]


# --- what is wrong with a dump ------------------------------------------------------------------------------------------


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-4])


def of_objects(path: Path) -> None:
    np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True)


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (cut, "cut off: expected 152 bytes, found 148"),
        (lambda path: path.write_bytes(b""), "no npy file"),
        (lambda path: path.write_bytes(b"\x93NUMPY\x01\x00\xff\xff{'descr'"), "its header is not that of an npy file"),
        (lambda path: path.write_bytes(b"\x93NUMPY\x01\x00\x76\x00" + b"(" * 118), "its header is not that of an npy file"),
        (lambda path: path.write_bytes(path.read_bytes().replace(b"(2, 3)", b"(2,-3)")), "is no shape"),
        (lambda path: path.write_bytes(path.read_bytes().replace(b"<f4", b"<X4")), "expected numbers"),
        (of_objects, "Python objects are never loaded"),
        (lambda path: np.save(path, np.zeros(2, dtype=[("a", "f4")])), "expected numbers"),
        (lambda path: np.save(path, np.array(["text"])), "expected numbers"),
        (lambda path: path.chmod(0) if os.geteuid() else path.write_bytes(b"x"), "cannot be read|no npy file"),
    ],
)  # fmt: skip
def test_a_damaged_file_is_a_row_that_says_so(tmp_path, damage, why):
    damage(save(tmp_path, f"{NAME}.0.0.1.output.0.DefaultFormat.Float32.npy"))
    save(tmp_path, f"{NAME}.0.0.1.input.0.DefaultFormat.Float32.npy")
    journal, call = only(tmp_path)
    assert len(journal.damage) == 1
    with pytest.raises(TraceError, match=why):
        values(journal, call.output)
    assert values(journal, call.args[0]).tolist() == X.tolist()
    (row,) = api.listing(tmp_path).rows
    assert row.remark.startswith("output 0: ")
    assert row.outputs == ("u8[0] (missing)",)
    native.write(open_trace(tmp_path), tmp_path / "ours")
    assert api.listing(tmp_path / "ours").calls == 1


def test_a_file_that_changes_after_it_was_opened(tmp_path):
    path = save(tmp_path, f"{NAME}.0.0.1.output.0.DefaultFormat.npy")
    journal, call = only(tmp_path)
    path.unlink()
    with pytest.raises(TraceFormatError, match="cannot be mapped"):
        values(journal, call.output)
    assert journal.tensor(call.output.id).statistics is None


@pytest.mark.parametrize("name", ["odd.npy", "MatMul.x.npy", "a.b.0.0.1.output.99999.DefaultFormat.npy", "é ü.npy"])
def test_a_name_that_says_nothing(tmp_path, name):
    save(tmp_path, f"{NAME}.0.0.1.output.0.DefaultFormat.npy")
    save(tmp_path, name)
    (journal,) = open_trace(tmp_path).journals()
    odd = next(call for call in journal.calls() if not call.site.type)
    assert odd.missing == ("the name of the file is not that of a kernel's",)
    assert values(journal, odd.output).tolist() == X.tolist()
    assert journal.damage[0].where == "name"


def test_files_of_the_device_must_be_converted_first(tmp_path):
    save(tmp_path, f"{NAME}.0.0.1.output.0.DefaultFormat.npy")
    (tmp_path / "Add.Default_Add-op0.2.7.161243956333802").write_bytes(b"protobuf")
    (tmp_path / "Mul.Default_Mul-op0.2.7.161243956333802.output.0.ND.Float32.bin").write_bytes(b"raw")
    remarks = {row.type: row.remark for row in api.listing(tmp_path).rows}
    assert "msaccucmp.py" in remarks["Add"]
    assert "msaccucmp.py" in remarks["Mul"]
    assert not remarks["MatMul"]


def test_other_directories_are_not_taken_for_a_dump(tmp_path):
    save(tmp_path / "a" / "0" / "0", "weights.npy")
    (tmp_path / "a" / "statistic.csv").write_text("name,value\n")
    (tmp_path / "circle").symlink_to(tmp_path)
    with pytest.raises(TraceNotFoundError, match="not a trace of any known layout"):
        open_trace(tmp_path)


@pytest.mark.parametrize("seed", range(40))
def test_random_damage_never_ends_in_anything_but_a_trace_error(tmp_path, seed):
    generator = random.Random(seed)
    for number in range(6):
        path = save(tmp_path / "rank_0" / "Net" / "0" / "0", f"K{number}.Default_x.0.0.{number}.output.0.F.Float32.npy")
        raw = bytearray(path.read_bytes())
        for _ in range(generator.randrange(1, 6)):
            raw[generator.randrange(len(raw) if number % 2 else 100)] = generator.randrange(256)
        path.write_bytes(raw[: generator.randrange(1, len(raw))] if number == 5 else raw)
    api.listing(tmp_path)
    (journal,) = open_trace(tmp_path).journals()
    for tensor in journal.tensors():
        assert tensor.fingerprint or tensor.missing or tensor.spec
        try:
            journal.array(tensor)
        except TraceError:
            continue


# --- real dumps -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real_dump(checkout_env, tmp_path_factory):
    """Two training steps in graph mode, dumped by MindSpore itself in a process of its own."""
    folder = tmp_path_factory.mktemp("kernels")
    script = Path(__file__).with_name("dumped.py")
    ran = subprocess.run(
        [sys.executable, script, folder], env=checkout_env, cwd=folder, capture_output=True, text=True, timeout=300
    )
    assert ran.returncode == 0, ran.stderr
    return folder / "dump"


@pytest.mark.needs_mindspore
def test_a_training_step_that_mindspore_dumped(real_dump):
    trace = open_trace(real_dump)
    assert (trace.framework, trace.steps, trace.ranks) == ("mindspore", (0, 1), (0,))
    for journal in trace.journals():
        assert not journal.damage
        calls = list(journal.calls())
        assert {call.site.phase for call in calls} == {Phase.FORWARD, Phase.BACKWARD, Phase.UPDATE}
        assert {call.config.values["graph"] for call in calls} == {0}

        def find(phase, path, kind, calls=calls):
            return [
                c
                for c in calls
                if (c.site.phase, c.site.path, c.site.type) == (phase, f"network._backbone.{path}", kind)
            ]

        (matmul,) = find(Phase.FORWARD, "l1", "MatMul")
        x, weight = (values(journal, ref) for ref in matmul.args[:2])
        assert np.allclose(x, np.linspace(-1, 1, 24, dtype=np.float32).reshape(3, 8) + journal.header.step)
        assert np.allclose(values(journal, matmul.output), x @ weight.T, atol=1e-6)
        (backward,) = find(Phase.BACKWARD, "relu", "ReluGrad")
        given, forward = (values(journal, ref) for ref in backward.args)
        assert np.array_equal(values(journal, backward.output), np.where(forward > 0, given, 0))
        halves = [journal.tensor(c.output.id) for c in calls if c.site.type == "Cast" and c.site.phase == Phase.FORWARD]
        assert {str(tensor.spec) for tensor in halves} == {"bf16[3, 4]", "f32[3, 4]"}
        low, high = (next(t for t in halves if t.spec.dtype == dtype).statistics for dtype in ("bf16", "f32"))
        assert (low.min, low.max, low.norm) == (high.min, high.max, high.norm)
        assert {call.site.name for call in calls if call.site.type == "Parameter"} >= {"l1_weight", "l2_bias"}
        (update,) = (
            c for c in calls if c.site.type == "SGD" and journal.tensor(c.args[0].id).spec == Spec("f32", (2, 4))
        )
        assert update.site.path == "optimizer"


@pytest.mark.needs_mindspore
def test_a_real_dump_is_shown_and_agrees_with_itself(real_dump, tmp_path):
    listing = api.listing(real_dump)
    assert listing.calls == len(listing.rows) > 50
    assert not listing.damage
    native.write(open_trace(real_dump), tmp_path / "ours")
    assert api.compare(real_dump, tmp_path / "ours").agree
