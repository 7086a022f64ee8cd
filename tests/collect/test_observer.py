"""A number for each value: read once, read again when it may have changed, held no longer than needed."""

import gc
from types import SimpleNamespace

import numpy as np
import pytest

from twintrace.collect import observer as module
from twintrace.collect import tensor_lines
from twintrace.collect.observer import Observer
from twintrace.frameworks.protocol import Look, Unreadable
from twintrace.frameworks.reference import FRAMEWORK, miniature
from twintrace.frameworks.reference.miniature import Tensor
from twintrace.model.records import Keep
from twintrace.store.digest import numbers_at
from twintrace.store.registry import open_trace
from twintrace.store.writer import TraceWriter

QUESTIONS = ["look", "host", "glance", "storage", "hold", "released", "release"]


@pytest.fixture
def framework():
    """The reference's answers, which a test may replace, and how often each was given."""
    asked = dict.fromkeys(QUESTIONS, 0)

    def counted(name):
        def answer(thing, **how):
            asked[name] += 1
            return getattr(FRAMEWORK, name)(thing, **how)

        return answer

    return SimpleNamespace(asked=asked, **{name: counted(name) for name in QUESTIONS})


@pytest.fixture
def watching(framework, tmp_path):
    """`watching(keep)`: an observer with an open journal; what it wrote is read with `.read()`."""

    def make(keep=Keep.TENSOR):
        writer = TraceWriter.create(tmp_path / "t", {"framework": "reference"}, keep_payload=keep is Keep.TENSOR)
        observer = Observer(framework, keep, writer)
        observer.begin(writer.begin_step(0, {}))

        def read():
            writer.close()
            return list(open_trace(tmp_path / "t").journal(0).tensors())

        return SimpleNamespace(observe=observer.observe, observer=observer, read=read, writer=writer)

    return make


def test_the_same_value_is_read_once(watching, framework):
    observe, x = watching().observe, Tensor([1.0, 2.0])
    assert [observe(x), observe(x), observe(x)] == [0, 0, 0]
    assert framework.asked["host"] == 1


def test_the_same_bytes_in_another_shape_are_not_read_again(watching, framework):
    kept = watching()
    x = Tensor(np.arange(6.0))
    first, second = kept.observe(x), kept.observe(miniature.reshape(x, (2, 3)))
    assert first != second
    assert framework.asked["host"] == 1
    left, right = kept.read()
    assert (left.fingerprint, left.statistics, left.payload) == (right.fingerprint, right.statistics, right.payload)
    assert (left.spec.shape, right.spec.shape) == ((6,), (2, 3))


@pytest.mark.parametrize("ordered", [True, False])
def test_a_tensor_that_is_marked_in_place_has_another_line_and_is_not_read_again(watching, framework, ordered):
    kept = watching()
    x = Tensor(np.arange(6.0))
    if not ordered:
        kept.observer._glance = lambda tensor: (
            *FRAMEWORK.glance(tensor)[:4],
            None,
            *FRAMEWORK.glance(tensor)[5:7],
            None,
            None,
        )
    kept.observer.producer = 7
    first = kept.observe(x)
    kept.observer.producer = None
    x.requires_grad = True
    second = kept.observe(x)
    assert kept.observe(x) == second != first
    x.requires_grad = False
    assert kept.observe(x) == first
    assert framework.asked["host"] == 1
    before, after = kept.read()
    assert (before.requires_grad, after.requires_grad) == (False, True)
    assert before.producer == after.producer == 7
    assert (before.fingerprint, before.statistics, before.payload) == (
        after.fingerprint,
        after.statistics,
        after.payload,
    )


def test_beneath_autograd_the_mark_is_not_told_apart(tmp_path, framework):
    """There a result is marked after it was seen: it is the same value, and the same number."""
    writer = TraceWriter.create(tmp_path / "t", {"framework": "reference"})
    observer = Observer(framework, Keep.FINGERPRINT, writer, autograd=False)
    observer.begin(writer.begin_step(0, {}))
    x = Tensor([1.0])
    first = observer.observe(x)
    x.requires_grad = True
    assert observer.observe(x) == first


@pytest.mark.parametrize("keep", [Keep.FINGERPRINT, Keep.TENSOR])
def test_beneath_autograd_a_version_that_moves_alone_is_the_same_value(tmp_path, framework, keep):
    """A view takes the version of its base when its kernel has returned; a write has other bits, and another number."""
    writer = TraceWriter.create(tmp_path / "t", {"framework": "reference"}, keep_payload=keep is Keep.TENSOR)
    observer = Observer(framework, keep, writer, autograd=False)
    observer.begin(writer.begin_step(0, {}))
    x = Tensor(np.arange(6.0))
    first = observer.observe(x)
    x.storage.version += 1
    assert observer.observe(x) == first
    miniature.add_(x, 1.0)
    assert observer.observe(x) != first


def test_a_view_is_a_value_of_its_own(watching):
    observe, x = watching().observe, Tensor(np.arange(6.0))
    view = miniature.reshape(x, (2, 3))
    again = miniature.reshape(x, (2, 3))
    assert [observe(x), observe(view), observe(again), observe(x)] == [0, 1, 1, 0]


def test_a_write_through_a_view_is_seen_in_all(watching, framework):
    observe, x = watching().observe, Tensor(np.arange(6.0))
    view = miniature.reshape(x, (2, 3))
    before = [observe(x), observe(view)]
    miniature.add_(view, 1.0)
    after = [observe(x), observe(view)]
    assert set(before).isdisjoint(after)
    assert framework.asked["host"] == 2  # once before and once after, whatever the shape


def test_a_write_behind_the_versions_back_is_seen_on_the_host(watching):
    observe, x = watching().observe, Tensor([1.0, 2.0])
    first = observe(x)
    x.array[0] = 5
    assert observe(x) != first


@pytest.mark.parametrize("size", [1, 3, 16, 1000, 100_000])
def test_a_write_to_the_end_or_to_all_of_it_is_seen_on_the_host(watching, size):
    observe, x = watching().observe, Tensor(np.arange(size, dtype=np.float32))
    seen = [observe(x)]
    x.array[-1] += 1
    seen.append(observe(x))
    x.array += 1
    assert len({*seen, observe(x)}) == 3


@pytest.mark.parametrize("keep", [Keep.STATISTICS, Keep.FINGERPRINT])
def test_where_no_bytes_are_kept_they_are_read_where_they_lie(watching, framework, keep, monkeypatch):
    kept = watching(keep)
    x = Tensor(np.arange(6, dtype=np.float32).reshape(2, 3))
    kept.observe(x)
    assert framework.asked["host"] == 0
    kept.observe(Tensor(x.array.T))  # in another order: brought together here
    assert framework.asked["host"] == 0
    monkeypatch.setattr(tensor_lines, "_MAX_GATHERED", 8)
    kept.observe(Tensor(np.array(x.array).T))  # too much of it at once: piece by piece
    assert framework.asked["host"] == 0
    kept.observer._gather = None
    kept.observe(Tensor(np.array(x.array).T))  # without numba: copied by the framework
    assert framework.asked["host"] == 1
    straight, turned, pieces, copied = kept.read()
    assert straight.statistics == turned.statistics == pieces.statistics == copied.statistics
    assert turned.fingerprint == pieces.fingerprint == copied.fingerprint
    assert straight.fingerprint != turned.fingerprint or keep is Keep.STATISTICS


def test_off_the_host_nothing_is_fetched_to_look_again(watching, framework):
    observe, x = watching().observe, Tensor(np.ones(2, np.float32), device="far:0")
    assert observe(x) == observe(x) == 0
    assert framework.asked["host"] == 1


def test_what_is_forgotten_is_read_again(watching, framework):
    net = watching()
    x = Tensor([1.0])
    first = net.observe(x)
    net.observer.forget([x])
    assert net.observe(x) != first


def test_without_identity_every_sight_is_new(watching, framework):
    framework.glance = lambda tensor: None
    observe, x = watching().observe, Tensor([1.0])
    assert [observe(x), observe(x)] == [0, 1]
    assert framework.asked["hold"] == 0


def test_a_value_that_can_no_longer_be_read_is_missing_and_nothing_raises(watching, framework):
    """A freed storage has another first byte, or none."""
    net = watching()
    x = Tensor([1.0])
    net.observe(x)

    def freed(tensor, **_):
        raise Unreadable("its storage has been freed")

    net.observer._glance = lambda tensor: (*FRAMEWORK.glance(tensor)[:4], None, 0, 0, None, None)
    framework.host = freed
    number = net.observe(x)
    tensors = net.read()
    assert tensors[number].missing == "its storage has been freed"
    assert tensors[number].payload is None


@pytest.mark.parametrize(
    ("keep", "kept"),
    [
        (Keep.STATISTICS, (True, False, False)),
        (Keep.FINGERPRINT, (True, True, False)),
        (Keep.TENSOR, (True, True, True)),
    ],
)
def test_what_is_kept(watching, keep, kept):
    net = watching(keep)
    net.observe(Tensor([1.0, 3.0]))
    (tensor,) = net.read()
    assert (tensor.statistics is not None, tensor.fingerprint is not None, tensor.payload is not None) == kept
    assert (tensor.statistics.min, tensor.statistics.max) == (1, 3)


def test_a_line_says_who_made_the_value(watching):
    net = watching()
    net.observer.producer = 7
    net.observe(Tensor([1.0], requires_grad=True))
    net.observer.producer = None
    net.observe(Tensor([2.0], device="far:0"))
    first, second = net.read()
    assert (first.producer, first.requires_grad, first.device) == (7, True, "cpu")
    assert (second.producer, second.requires_grad, second.device) == (None, False, "far:0")


def test_a_tensor_in_parts_is_its_parts(watching, framework):
    indices, values = Tensor(np.array([1, 2])), Tensor([1.0, 2.0])
    whole = Tensor(np.zeros(5, np.float32))
    glance = framework.glance
    look = Look("f32", (5,), "cpu", False, {"layout": "sparse"}, {"indices": indices, "values": values})
    framework.glance = lambda tensor: (
        (*glance(tensor)[:3], look, None, 0, 0, None, None) if tensor is whole else glance(tensor)
    )
    net = watching()
    number = net.observe(whole)
    tensors = {tensor.id: tensor for tensor in net.read()}
    assert tensors[number].facts == {"layout": "sparse"}
    assert [str(tensors[part].spec) for part in tensors[number].parts.values()] == ["i64[2]", "f32[2]"]
    assert tensors[number].payload is None


def test_the_same_bytes_are_stored_once(watching):
    net = watching()
    for _ in range(3):
        net.observe(Tensor([1.0, 2.0]))
    places = {tensor.payload for tensor in net.read()}
    assert len(places) == 1


def test_every_hold_is_released(watching, framework):
    net = watching()
    tensors = [Tensor([float(n)]) for n in range(5)]
    for tensor in tensors:
        net.observe(tensor)
    assert (framework.asked["hold"], framework.asked["release"]) == (5, 0)
    net.observer.forget_all()
    assert framework.asked["release"] == 5


def test_storages_that_are_gone_are_purged(watching, framework, monkeypatch):
    monkeypatch.setattr(module, "_PURGE_EVERY", 8)
    net = watching()
    kept = Tensor([-1.0])
    number = net.observe(kept)
    for value in range(100):
        net.observe(Tensor([float(value)]))
    gc.collect()
    assert len(net.observer._holds) <= 9
    assert framework.asked["hold"] - framework.asked["release"] == len(net.observer._holds)
    assert net.observe(kept) == number, "what is alive is still known"


def test_a_new_journal_begins_at_zero(watching):
    net = watching()
    x = Tensor([1.0])
    net.observe(x)
    net.writer.end_step()
    net.observer.begin(net.writer.begin_step(1, {}))
    assert net.observe(x) == 0
    assert net.observer.count == 1


def test_what_lasts_is_not_read_again_in_the_next_step(tmp_path, framework, monkeypatch):
    """An optimizer's state, unchanged between two steps: a line in each journal, and one reading."""
    readings = []
    monkeypatch.setattr(tensor_lines, "numbers_at", lambda *what: readings.append(1) or numbers_at(*what))
    writer = TraceWriter.create(tmp_path / "t", {"framework": "reference"})
    observer = Observer(framework, Keep.FINGERPRINT, writer)
    x, other, count = Tensor([1.0, 2.0]), Tensor([3.0]), Tensor([1.0])
    for step in range(2):
        observer.begin(writer.begin_step(step, {}))
        assert [observer.observe(x), observer.observe(other)] == [0, 1]
        observer.remember([x], count)
        writer.end_step()
        observer.end()
    assert len(readings) == 3
    miniature.add_(x, 1.0)
    observer.begin(writer.begin_step(2, {}))
    observer.observe(x)
    writer.close()
    assert len(readings) == 4
    prints = [next(journal.tensors()).fingerprint for journal in open_trace(tmp_path / "t").journals()]
    assert prints[0] == prints[1] != prints[2]


@pytest.mark.parametrize("happens", ["nothing", "another value", "it is gone", "between stop and start"])
def test_what_lasts_is_read_again_when_its_witness_has_changed(tmp_path, framework, monkeypatch, happens):
    """Whoever writes without counting versions still counts its steps."""
    readings = []
    monkeypatch.setattr(tensor_lines, "numbers_at", lambda *what: readings.append(1) or numbers_at(*what))
    writer = TraceWriter.create(tmp_path / "t", {"framework": "reference"})
    observer = Observer(framework, Keep.FINGERPRINT, writer)
    x, count = Tensor(np.zeros(1000, np.float32)), Tensor([1.0])
    observer.begin(writer.begin_step(0, {}))
    first = observer.observe(x)
    observer.remember([x], count)
    if happens == "between stop and start":
        x.array[500], count.array[0] = 5.0, 2.0
        observer.look_again()
        assert observer.observe(x) != first
        assert len(readings) == 2
        return
    writer.end_step()
    observer.end()
    if happens == "another value":
        x.array[500], count.array[0] = 5.0, 2.0
    elif happens == "it is gone":
        del count
    observer.begin(writer.begin_step(1, {}))
    observer.observe(x)
    assert len(readings) == (1 if happens == "nothing" else 2)
