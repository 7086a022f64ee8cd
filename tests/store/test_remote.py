"""Traces on other file systems: read by ranges, asked for again where a connection is cut, and compared as they lie."""

import subprocess
import sys

import numpy as np
import pytest

import twintrace as tt
from twintrace.store import remote
from twintrace.store.registry import open_trace

fsspec = pytest.importorskip("fsspec")


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """Two recorded runs, that differ in one number."""
    torch = pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("runs")
    for name, shift in (("a", 0.0), ("b", 0.5)):
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
        with tt.record(folder / name, net, keep="tensor") as recorder:
            for step in range(2):
                net(torch.ones(2, 4) + shift * step)
                recorder.step()
    return folder


@pytest.fixture
def memory(local):
    """The same in memory://runs."""
    system = fsspec.filesystem("memory")
    system.put(str(local), "/runs", recursive=True)
    yield system
    system.rm("/runs", recursive=True)


@pytest.fixture
def asked(memory, monkeypatch):
    """Requests for the bytes of files: (path, start, end)."""
    found = []
    own = type(memory).cat_file

    def cat_file(self, path, start=None, end=None, **options):
        found.append((path, start, end))
        return own(self, path, start=start, end=end, **options)

    monkeypatch.setattr(type(memory), "cat_file", cat_file)
    return found


def test_a_trace_is_read_where_it_lies(memory, local):
    here, there = open_trace(local / "a"), open_trace("memory://runs/a")

    assert there.path == "memory://runs/a"
    assert there.places == here.places
    for one, two in zip(here.calls(), there.calls(), strict=True):
        assert one == two


def test_of_tensors_no_more_is_read_than_is_asked_for(asked, local):
    journal = open_trace("memory://runs/a").journal(0)
    tensor = next(item for item in journal.tensors() if item.spec.shape == (3, 4))
    asked.clear()
    values = journal.array(tensor)

    assert np.array_equal(values, open_trace(local / "a").journal(0).array(tensor))
    [(path, start, end)] = asked
    assert path.endswith("payload.bin")
    assert end - start == values.nbytes == 48


def test_runs_are_compared_as_they_lie(memory, local):
    here = tt.compare(local / "a", local / "b")
    there = tt.compare("memory://runs/a", "memory://runs/b")

    assert there.code == here.code == 1
    assert there.first.result.match.left[0].site == here.first.result.match.left[0].site
    assert tt.compare("memory://runs/a", str(local / "a")).code == 0


def test_a_request_whose_connection_is_cut_is_made_again(memory, monkeypatch):
    monkeypatch.setattr(remote, "PAUSE", 0.0)
    cuts = []
    own = type(memory).cat_file

    def cat_file(self, path, start=None, end=None, **options):
        if len(cuts) % 2 == 0:
            cuts.append(path)
            raise ConnectionResetError("cut")
        cuts.append(path)
        return own(self, path, start=start, end=end, **options)

    monkeypatch.setattr(type(memory), "cat_file", cat_file)

    assert tt.compare("memory://runs/a", "memory://runs/a").code == 0
    assert len(cuts) > 2


def test_a_connection_that_stays_cut_is_an_error_that_names_the_file(memory, monkeypatch):
    monkeypatch.setattr(remote, "PAUSE", 0.0)

    def cut(self, path, **options):
        raise ConnectionResetError("cut")

    monkeypatch.setattr(type(memory), "cat_file", cut)

    with pytest.raises(tt.errors.TraceError, match=r"memory://runs/a/step0/rank0/journal\.jsonl"):
        tt.compare("memory://runs/a", "memory://runs/a")


def test_what_is_not_there_is_told_as_that(memory):
    with pytest.raises(tt.errors.TraceNotFoundError, match=r"memory://runs/none is not a trace"):
        open_trace("memory://runs/none")
    with pytest.raises(tt.errors.UsageError, match="nosuch"):
        open_trace("nosuch://runs/a")


def test_a_package_that_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)

    with pytest.raises(tt.errors.MissingPackageError, match=r"pip install 'twintrace\[remote\]'"):
        open_trace("s3://bucket/runs/a")


def test_importing_does_not_import_fsspec():
    code = "import sys, twintrace.api, twintrace.store.reader; raise SystemExit('fsspec' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
