"""Any trace as a dump, any dump as a trace: complete or not at all, and nothing that fits is lost on the way."""

import json

import numpy as np
import pytest

import twintrace as tt
from tests.compat.msprobe.reading.elements import tensor
from tests.test_api import run
from twintrace.api import damage_of, exporters
from twintrace.compat.msprobe.dumps import open_dump
from twintrace.model.errors import TraceExistsError, TraceNotFoundError, TraceWriteError
from twintrace.model.records import Role
from twintrace.model.sites import Phase
from twintrace.model.values import TensorRef, leaves, tensor_slots
from twintrace.store import registry


def values(journal):
    """The bytes of everything that a dump has a place for, by what it is."""
    found = {}
    for call in journal.calls():
        if call.site.phase is Phase.UPDATE or not call.site.name:
            continue  # neither the optimizer nor the model itself is in a dump
        # Tensors given by name have their places in a dump, so arguments are counted.
        places = {slot: str(place) for place, (slot, _) in enumerate(tensor_slots(call.args, call.kwargs))}
        slots = [("in", places[slot], number) for slot, number in tensor_slots(call.args, call.kwargs)]
        slots += [("out", slot, leaf.id) for slot, leaf in leaves(call.output) if isinstance(leaf, TensorRef)]
        slots += [("held", slot, number) for slot, number in call.parameters.items()]
        for gradient in call.gradients:
            slot = places[gradient.slot] if gradient.role is Role.INPUT else gradient.slot
            slots.append((str(gradient.role), slot, gradient.tensor))
        for part, slot, number in slots:
            spec = journal.tensor(number).spec
            found[str(call.site), part, slot] = str(spec), journal.array(journal.tensor(number)).tobytes()
    for gradient in journal.parameter_gradients():
        found["parameter", "", gradient.slot] = "", journal.array(journal.tensor(gradient.tensor)).tobytes()
    return found


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Two steps in PyTorch with every kind of element: bf16, integers, truth values, nothing, numbers, nested arguments."""
    torch = pytest.importorskip("torch")
    from torch import nn
    from torch.nn import functional

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1, self.norm, self.fc2 = nn.Linear(4, 6), nn.LayerNorm(6), nn.Linear(6, 3)

        def forward(self, x, mask=None):
            hidden = functional.relu(self.norm(self.fc1(x)))
            hidden = (hidden.bfloat16() * 2).float() + torch.cat([hidden[:, :2], hidden[:, 2:]], dim=1)
            return functional.softmax(self.fc2(torch.where(mask, hidden, 0.0)), dim=-1)

    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    path = tmp_path_factory.mktemp("own") / "trace"
    with tt.record(path, net, keep="tensor", strict=True) as rec:
        for _ in range(2):
            x = torch.randn(5, 4, requires_grad=True)
            functional.nll_loss(net(x, mask=torch.rand(5, 6) > 0.2).log(), torch.tensor([0, 2, 1, 0, 2])).backward()
            optimizer.step()
            optimizer.zero_grad()
            rec.step()
    return path


@pytest.mark.needs_torch
def test_there_and_back_every_value_is_the_same_bit_by_bit(recorded, tmp_path):
    dump = tt.convert_trace(recorded, tmp_path / "dump", to="msprobe")
    back = tt.convert_trace(dump.path, tmp_path / "back")
    assert (dump.layout, back.layout) == ("msprobe", "twintrace")
    assert dump.places == back.places == ((0, 0), (1, 0))
    for step in (0, 1):
        own, read, again = (values(trace.journal(step)) for trace in (tt.open(recorded), dump, back))
        assert len(own) > 60
        assert own == read == again


@pytest.mark.needs_torch
def test_there_and_back_the_runs_agree(recorded, tmp_path):
    """What is alone is what a dump has no place for: what the optimizer made of the weights, which cannot be told then."""
    tt.convert_trace(recorded, tmp_path / "dump", to="msprobe")
    found = tt.compare(recorded, tmp_path / "dump")
    text = tt.verdict(found)
    assert found.code == 3, text
    assert all("torch.optim.SGD.step" in sentence for sentence in found.untold), text
    assert "56 pairs of calls: 56 the same." in text
    assert "0 right" in text


@pytest.mark.needs_torch
def test_names_places_and_lines_survive(recorded, tmp_path):
    dump = tt.convert_trace(recorded, tmp_path / "dump", to="msprobe")
    sides = []
    for trace in (tt.open(recorded), dump):
        calls = [call for call in trace.journal(0).calls() if call.site.phase is Phase.FORWARD and call.site.name]
        names = {call.id: call.site.name for call in calls}
        sides.append([(str(c.site), c.site.path, c.site.type, names.get(c.parent), c.stack) for c in calls])
    assert sides[0] == sides[1]


def test_a_dump_of_statistics_there_and_back(dump, tmp_path):
    """Out of a dump, through a trace of our own, into a dump again: the same items, checksums, gradients of nodes."""
    record = "Functional.linear.0"
    records = {
        f"{record}.forward": {"input_args": [tensor(md5="00000001")], "input_kwargs": {}, "output": [tensor(mean=0.7)]},
        f"{record}.backward": {"input": [tensor(mean=0.8)], "output": [None, tensor(mean=0.9, shape=(7,))]},
        "Functional.relu.3.backward": {"input": [tensor(mean=1.1)], "output": [tensor(mean=1.2)]},
    }
    place = dump(records)
    tt.convert_trace(place, tmp_path / "own")
    made = tt.convert_trace(tmp_path / "own", tmp_path / "again", to="msprobe")
    again = open_dump(tmp_path / "again" / "step0" / "rank")
    assert {(i.name, i.md5, i.shape) for i in again.items} == {(i.name, i.md5, i.shape) for i in open_dump(place).items}
    assert [g.slot for c in made.journal(0).calls() for g in c.gradients] == ["", "node.1"]


def test_several_ranks(tmp_path, dump):
    for rank in (0, 1):
        place = dump({"Functional.relu.0.forward": {"output": [tensor()]}}, folder=f"step2/rank{rank}")
    own = tt.convert_trace(place.parent.parent, tmp_path / "own")
    again = tt.convert_trace(own, tmp_path / "again", to="msprobe")
    assert own.places == again.places == ((2, 0), (2, 1))
    old = tt.convert_trace(own, tmp_path / "old", to="torch_npu")
    assert old.ranks == (0, 1)


@pytest.mark.needs_torch
@pytest.mark.parametrize("layout", [name for name in exporters() if name != "twintrace"])
def test_every_layout_that_can_be_written_can_be_read(recorded, tmp_path, layout):
    """By its own reader, with the values that were recorded."""
    made = tt.convert_trace(recorded, tmp_path / "made", to=layout)
    assert made.layout == layout
    assert len(made) > 3

    def bytes_of(journals):
        return {
            (t.spec, j.array(t).tobytes())
            for j in journals
            for t in j.tensors()
            if t.payload and t.spec.dtype != "bf16"
        }

    kept = bytes_of(made.journals())
    assert len(kept) > 10
    assert kept <= bytes_of(tt.open(recorded).journals())


def test_nothing_is_overwritten(tmp_path):
    source = run(tmp_path / "own")
    (tmp_path / "there").mkdir()
    tt.convert_trace(source, tmp_path / "there", to="msprobe")  # an empty directory is as good as none
    for target in (tmp_path / "there", source):
        with pytest.raises(TraceExistsError, match="is there already"):
            tt.convert_trace(source, target, to="msprobe")


def test_complete_or_not_at_all(tmp_path, monkeypatch):
    """A layout whose writer fails half-way leaves nothing behind."""
    source = run(tmp_path / "own")
    (tmp_path / "failing.py").write_text(
        "def write(trace, path, *, tell=None):\n"
        "    path.mkdir(); (path / 'half').write_text('x'); raise OSError(28, 'No space left on device')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    registry.register("failing", "failing", writes="failing")
    try:
        with pytest.raises(TraceWriteError, match="No space left on device"):
            tt.convert_trace(source, tmp_path / "made", to="failing")
    finally:
        registry.unregister("failing")
    assert {entry.name for entry in tmp_path.iterdir()} - {"__pycache__"} == {"own", "failing.py"}


def test_progress_is_told(tmp_path):
    told = []
    tt.convert_trace(run(tmp_path / "own"), tmp_path / "made", progress=lambda *said: told.append(said))
    assert told[0] == ("step 0, rank 0", 0, told[-1][2])
    assert told[-1][1] == told[-1][2] > 3


def test_what_cannot_be_is_said(tmp_path):
    source = run(tmp_path / "own")
    with pytest.raises(tt.UsageError, match=f"expected a layout that can be written, {', '.join(exporters())}"):
        tt.convert_trace(source, tmp_path / "made", to="excel")
    with pytest.raises(TraceNotFoundError, match="does not exist"):
        tt.convert_trace(tmp_path / "nothing", tmp_path / "made")


def test_what_is_damaged_is_left_out_and_said(dump, tmp_path):
    place = dump({"Functional.relu.0.forward": {"output": [tensor(), 3]}, "?": {}})
    source = tt.open(place, tolerant=True)
    made = tt.convert_trace(source, tmp_path / "own")
    assert len(damage_of(source)) == 2
    assert [note.topic for note in made.journal(0).notes()] == ["damaged", "damaged"]
    assert len(made) == 1


def test_values_that_cannot_be_read_are_missing(dump, tmp_path):
    place = dump({"Functional.relu.0.forward": {"output": [tensor(data_name="x.npy")]}}, task="tensor")
    (place / "dump_tensor_data").mkdir()
    (place / "dump_tensor_data" / "x.npy").write_bytes(b"no array")
    [found] = tt.convert_trace(place, tmp_path / "own").journal(0).tensors()
    assert "no npy file" in found.missing
    assert found.statistics.max == 2.0


def test_an_export_does_not_say_where_it_was_written(tmp_path):
    """It is written beside its place and then moved."""
    tt.convert_trace(run(tmp_path / "own", keep="tensor"), tmp_path / "made", to="msprobe")
    [file] = (tmp_path / "made").glob("step0/*/dump.json")
    assert json.loads(file.read_text())["dump_data_dir"] == "dump_tensor_data"


def test_values_are_held_for_one_call_at_a_time(tmp_path):
    """A tensor is said when it is first used: what a writer has to hold is bounded."""
    from twintrace.store.lines import unseal

    source = run(tmp_path / "own", keep="tensor", steps=1)
    made = tt.convert_trace(source, tmp_path / "made")
    lines = [unseal(line) for line in (tmp_path / "made/step0/rank0/journal.jsonl").read_bytes().splitlines()]
    kinds = [line["k"] for line in lines if line["k"] in ("tensor", "call")]
    assert kinds.index("call") < len(kinds) - 1 - kinds[::-1].index("tensor")
    np.testing.assert_array_equal(
        [t.id for t in made.journal(0).tensors()], [t.id for t in tt.open(source).journal(0).tensors()]
    )
