"""Other tools' layouts, opened like our own."""

import sys
from types import ModuleType

import numpy as np
import pytest
import specimens

from twintrace.model.errors import TraceNotFoundError, UsageError
from twintrace.model.records import Call, Gradient, Header, Note, Role
from twintrace.model.sites import Kind, Site
from twintrace.model.tensors import Location, Spec, Tensor
from twintrace.model.values import TensorRef
from twintrace.store import native, registry
from twintrace.store.trace import Trace


class FakeJournal:
    """A dump of another tool: `.npy` files, no fingerprints, no order, nothing about gradients but their values."""

    damage = ()
    complete = True

    def __init__(self, path, step):
        self.path, self.header = path, Header(step, 0, 1, "fake")

    def __len__(self):
        return 2

    def calls(self):
        for number in range(2):
            gradients = (Gradient(Role.OUTPUT, "", 1, number), Gradient(Role.INPUT, "0", 0, number))
            yield Call(
                number, Site(Kind.API, "relu", number), None, (TensorRef(0),), {}, TensorRef(1), gradients=gradients
            )

    def parameter_gradients(self):
        return iter([Gradient(Role.PARAMETER, "w", 0)])

    def notes(self):
        return iter([Note("a", "one"), Note("b", "two")])

    def tensors(self):
        return (self.tensor(number) for number in range(2))

    def tensor(self, identity):
        return Tensor(identity, Spec("i64", (2,)), payload=Location(0, 16))

    def array(self, tensor):
        return np.array([tensor.id, self.header.step])


@pytest.fixture
def fake(monkeypatch):
    """A layout called `fake`, in a module of its own; its list of paths it was asked about."""
    module = ModuleType("fake_layout")
    module.asked = []
    module.recognises = lambda path: module.asked.append(path) or (path / "dump.fake").exists()
    module.read = lambda path, *, tolerant: Trace(
        str(path),
        {"framework": "fake", "tolerant": tolerant},
        [(0, 0), (1, 0)],
        lambda step, rank: FakeJournal(path, step),
        layout="fake",
    )
    monkeypatch.setitem(sys.modules, "fake_layout", module)
    before = registry.layouts()
    registry.register("fake", "fake_layout")
    yield module
    registry.unregister("fake")
    assert registry.layouts() == before


def test_a_registered_layout_is_opened_like_our_own(fake, tmp_path):
    (tmp_path / "dump.fake").write_text("")
    assert registry.layouts()[0] == "twintrace"
    assert registry.layouts()[-1] == "fake"
    trace = registry.open_trace(tmp_path, tolerant=True)
    assert (trace.layout, trace.framework, trace.manifest["tolerant"]) == ("fake", "fake", True)
    assert len(trace) == 4
    assert fake.asked == [tmp_path]


def test_our_own_is_asked_first(fake, tmp_path):
    path = specimens.write_full(tmp_path / "trace")
    (path / "dump.fake").write_text("")
    assert registry.open_trace(path).layout == "twintrace"
    assert fake.asked == []


def test_a_foreign_trace_becomes_one_of_ours(fake, tmp_path):
    """Same number, same length, no fingerprint, other values in another step: not taken for the same content."""
    (tmp_path / "dump.fake").write_text("")
    native.write(registry.open_trace(tmp_path), tmp_path / "ours")
    ours = registry.open_trace(tmp_path / "ours")
    assert (ours.layout, ours.framework, ours.steps) == ("twintrace", "fake", (0, 1))
    for journal in ours.journals():
        arrays = [journal.array(tensor).tolist() for tensor in journal.tensors()]
        assert arrays == [[0, journal.header.step], [1, journal.header.step]]
        assert all(tensor.fingerprint for tensor in journal.tensors())
        assert [[g.role for g in call.gradients] for call in journal.calls()] == [[Role.OUTPUT, Role.INPUT]] * 2
        assert len(list(journal.parameter_gradients())) == 1
        assert [note.text for note in journal.notes()] == ["one", "two"]


def test_a_name_is_taken_once(fake):
    registry.register("fake", "fake_layout")
    with pytest.raises(UsageError, match="already registered as fake_layout"):
        registry.register("fake", "another_layout")
    with pytest.raises(UsageError, match=r"unknown layout 'fke': expected one of twintrace, .*fake"):
        registry.layout_of("fke")


def test_a_layout_is_imported_when_it_is_asked_and_not_before(tmp_path):
    registry.register("broken", "no_such_module")
    try:
        assert registry.open_trace(specimens.write_full(tmp_path / "trace"))
        with pytest.raises(ModuleNotFoundError, match="no_such_module"):
            registry.open_trace(tmp_path)
    finally:
        registry.unregister("broken")


@pytest.mark.parametrize("path", ["gone", "", "empty", "file", "x" * 300, "a\0b"], ids=lambda path: repr(path)[:8])
def test_what_is_no_trace(tmp_path, path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    with pytest.raises(TraceNotFoundError, match=r"does not exist|is not a trace of any known layout|cannot be read"):
        registry.open_trace(tmp_path / path)
    with pytest.raises(TraceNotFoundError):
        registry.open_trace(str(tmp_path / path))


def test_a_directory_that_may_not_be_read(tmp_path, monkeypatch):
    path = specimens.write_full(tmp_path / "trace")

    def refused(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(native, "recognises", refused)
    with pytest.raises(TraceNotFoundError, match=r"cannot be read \(Permission denied\)"):
        registry.open_trace(path)
