"""A recording under adverse conditions: little memory, a full disk, forks, threads, hostile arguments, warnings as errors."""

import contextlib
import errno
import gc
import json
import os
import threading
import tracemalloc
import warnings
import weakref

import numpy as np
import pytest

from twintrace.api import open as open_trace
from twintrace.frameworks.reference import miniature
from twintrace.frameworks.reference.miniature import Module, Tensor
from twintrace.model.errors import TraceWriteError
from twintrace.model.records import Role
from twintrace.model.sites import Kind
from twintrace.model.values import Nest, Token, leaves
from twintrace.testing.reading import Reading, check_same_bits, names

relu, total = miniature.relu, miniature.total


@pytest.fixture
def reading(tmp_path):
    return lambda step=0: Reading(tmp_path / "t", step=step)


class Takes(Module):
    """Takes whatever it is given, and answers with its first argument."""

    def forward(self, x, *args, **kwargs):
        return x


# --- memory -----------------------------------------------------------------------------------------------------------


def test_a_tensor_larger_than_the_buffer_is_kept_whole(record, reading):
    values = np.random.default_rng(0).standard_normal(500_000)
    with record(buffer="64 KB") as rec:
        rec.save("large", Tensor(values))
    check_same_bits(reading().outputs(reading()["save:large#0"])[""], values)


def test_memory_stays_bounded_however_much_is_recorded(record):
    """Fifty tensors of a megabyte each, let go by the run: nowhere do more than a few of them exist."""
    with record(buffer="256 KB") as rec:
        rec.save("warm", Tensor(np.zeros(1 << 18, np.float32)))
        tracemalloc.start()
        try:
            for number in range(50):
                relu(Tensor(np.full(1 << 18, number, np.float32)))
                rec.save("value", Tensor(np.full(1 << 18, -number, np.float32)))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 12 << 20


def test_a_run_without_steps_keeps_no_graph_alive(record, page):
    """Who never calls `step` gets one long step, and not a longer and longer tape."""
    model, tape = page.models["mlp"](), []

    def function(x):
        loss = total(model(x))
        tape.append(weakref.ref(loss.node))
        return loss

    with record(model):
        for _ in range(3):
            page.differentiate(function, page.ones(2, 3), model=model)
        gc.collect()
        assert [node() for node in tape] == [None] * 3


# --- a full disk ------------------------------------------------------------------------------------------------------


def full_disk(monkeypatch, name, *, after, times=1_000_000):
    """From the given number of bytes on, `os.<name>` finds no space, so many times."""
    real, room, failures = getattr(os, name), [after], [times]

    def write(file, data, *rest):
        if room[0] < len(data) and failures[0]:
            failures[0] -= 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        room[0] -= len(data)
        return real(file, data, *rest)

    monkeypatch.setattr(os, name, write)


def run_many(recorder):
    with recorder:
        for number in range(200):
            assert relu(Tensor([float(number)])).array[0] == number


def test_a_journal_that_cannot_be_written_ends_the_recording_and_not_the_training(record, tmp_path, monkeypatch):
    full_disk(monkeypatch, "write", after=10_000)
    with pytest.warns(RuntimeWarning, match="No space left on device") as told:
        run_many(record(strict=False))
    monkeypatch.undo()
    journal = open_trace(tmp_path / "t").journal(0)

    assert len(told) == 1
    assert not journal.complete
    assert not journal.damage, "cut back to its last whole line"
    sites = [call.site.call for call in journal.calls()]
    assert 3 < len(sites) < 200
    assert sites == list(range(len(sites)))


def test_a_journal_with_a_gap_does_not_call_itself_complete(record, tmp_path, monkeypatch):
    """The disk was full for a moment only; what was not recorded then is not there."""
    full_disk(monkeypatch, "write", after=10_000, times=1)
    with pytest.warns(RuntimeWarning, match="No space left on device"):
        run_many(record(strict=False))
    journal = open_trace(tmp_path / "t").journal(0)
    assert len(journal) == 200 or not journal.complete


def test_a_full_disk_between_two_steps_is_told_once_and_leaves_no_empty_step(record, tmp_path, page, monkeypatch):
    model = page.models["mlp"]()

    def train():
        with record(model, strict=False) as rec:
            model(page.ones(2, 3))
            rec.step()
            full_disk(monkeypatch, "write", after=0)
            for _ in range(3):
                model(page.ones(2, 3))
                rec.step()

    with pytest.warns(RuntimeWarning, match=r"recording has ended.*No space left") as told:
        train()
    monkeypatch.undo()
    assert len(told) == 1
    trace = open_trace(tmp_path / "t")
    assert trace.steps == (0,)
    assert trace.journal(0).complete


def test_what_fails_again_and_again_is_told_once(record, tmp_path, page):
    model = page.models["mlp"]()
    with pytest.warns(RuntimeWarning, match="the model: could not be recorded") as told, record(
        model, strict=False, predicate=lambda site: site.nowhere
    ):  # fmt: skip
        model(page.ones(2, 3))
    assert len(told) == 1
    assert len(list(open_trace(tmp_path / "t").journal(0).notes())) > 1


def test_strict_raises_when_the_journal_cannot_be_written(record, monkeypatch):
    full_disk(monkeypatch, "write", after=10_000)
    with pytest.raises(TraceWriteError, match="No space left"):
        run_many(record(strict=True))
    assert not any(vars(miniature.HOOKS).values())


def test_a_step_that_cannot_be_begun_does_not_end_the_training(record, page, monkeypatch):
    """Recording begins at step 1, in the middle of the training, and the disk is full by then."""
    model = page.models["mlp"]()
    rec = record(model, steps=[1], strict=False)
    rec.start()
    full_disk(monkeypatch, "write", after=0)
    with pytest.warns(RuntimeWarning, match="No space left"):
        rec.step()
    model(page.ones(2, 3))
    rec.step()
    rec.close()
    assert not any(vars(miniature.HOOKS).values())


def test_a_payload_that_cannot_be_written_leaves_the_fingerprints(record, monkeypatch, tmp_path):
    full_disk(monkeypatch, "pwrite", after=300_000)
    rec = record(strict=False, buffer="64 KB")

    def run():
        with rec:
            for number in range(20):
                rec.save("value", Tensor(np.full(20_000, number, np.float64)))

    with pytest.warns(RuntimeWarning, match="could not be written") as told:
        run()
    journal = open_trace(tmp_path / "t").journal(0)
    tensors = list(journal.tensors())

    assert len({str(warning.message).split(":")[1] for warning in told}) <= 2, "once while recording, once at the end"
    assert len(tensors) == 20
    assert all(tensor.fingerprint and tensor.statistics for tensor in tensors)
    lost = [tensor for tensor in tensors if tensor.payload is None]
    assert 5 < len(lost) < 20
    assert all("No space left" in tensor.missing for tensor in lost)
    assert "No space left" in next(note.text for note in journal.notes() if note.topic == "payload")
    check_same_bits(journal.array(tensors[1]), np.full(20_000, 1, np.float64))


LIMITED = """
import resource, signal, sys, warnings
import numpy as np
import twintrace as tt
from twintrace.frameworks.reference.miniature import Tensor, relu
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with tt.record(sys.argv[1], framework="reference", level="api", keep="tensor", buffer="64 KB") as rec:
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for number in range(50):
            assert relu(Tensor(np.full(5_000, number, np.float64))).array[0] == number
        rec.close()
print(len(told))
"""


def test_a_real_limit_is_survived_too(python, tmp_path):
    run = python(LIMITED, str(tmp_path / "t"))
    assert run.returncode == 0, run.stderr
    assert 1 <= int(run.stdout) <= 3
    journal = open_trace(tmp_path / "t", tolerant=True).journal(0)
    second = next(tensor for tensor in journal.tensors() if tensor.statistics.max == 1)
    check_same_bits(journal.array(second), np.full(5_000, 1, np.float64))
    assert [tensor for tensor in journal.tensors() if tensor.payload is None and tensor.missing]


# --- forks and threads ------------------------------------------------------------------------------------------------


def test_in_a_forked_child_a_recorder_does_nothing_and_says_nothing(record, reading):
    with record() as rec:
        relu(Tensor([1.0]))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # 3.12: fork beside a thread
            child = os.fork()
        if child == 0:
            status = 1
            try:
                for verb in (rec.step, rec.stop, rec.start, lambda: rec.save("x", Tensor([2.0])), rec.close):
                    verb()
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
    assert len(reading().calls) == 1


@pytest.mark.parametrize("keep", ["fingerprint", "tensor"])
def test_a_forked_child_writes_nothing_into_the_parents_trace(record, reading, page, keep):
    model = page.models["mlp"]()
    before = page.hook_count(model)
    with record(model, keep=keep) as rec:
        model(page.ones(2, 3))
        miniature.mul(Tensor(np.ones(100_000)), 2.0)  # large enough for every worker that there is
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # 3.12: fork beside a thread
            child = os.fork()
        if child == 0:
            code = 1
            with contextlib.suppress(BaseException):
                assert page.hook_count(model) == before
                for _ in range(5):
                    page.differentiate(lambda x: total(model(x)), page.ones(2, 3), model=model)
                    miniature.mul(Tensor(np.ones(100_000)), 2.0)
                rec.close()
                code = 0
            os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        model(page.ones(2, 3))
        miniature.mul(Tensor(np.ones(100_000)), 3.0)
    found = reading()

    assert names(found.sites(Kind.MODULE)) == ["", "first", "norm", "last"] * 2
    assert names(found.sites(Kind.API)).count("reference.mul") == 2
    if keep == "tensor":
        for call in found.calls:
            found.inputs(call), found.outputs(call)


def test_threads_record_side_by_side(record, reading, page):
    """Each thread has its own place in the network; numbers are given once."""
    model = page.models["mlp"]()
    failures = []

    def work():
        try:
            for _ in range(10):
                model(page.ones(2, 3))
        except BaseException as error:  # noqa: BLE001 - a thread's failure is the test's
            failures.append(error)

    with record(model):
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = reading()

    assert not failures
    assert len(found.calls) == len(set(found.sites())) == 40 * 8
    parents = {call.id: call.site.name for call in found.calls}
    assert {parents[call.parent] for call in found.calls if call.site.name == "first"} == {""}
    children = [call.parent for call in found.calls if call.site.name == "norm"]
    assert len(set(children)) == 40, "each model call has one norm of its own"


# --- hostile arguments ------------------------------------------------------------------------------------------------


def test_what_cannot_be_written_is_named(record, reading, tmp_path):
    model = Takes()

    def step():
        with record(model, level="module", strict=False), (tmp_path / "file").open("w") as file:
            for _ in range(2):
                model(Tensor([1.0]), file, object(), lambda: 0, np.zeros(3), thing=threading.Lock())

    with pytest.warns(RuntimeWarning, match=r"kept as a name only \(_io.TextIOWrapper\)") as told:
        step()
    assert len(told) == 1
    assert [note.topic for note in open_trace(tmp_path / "t").journal(0).notes()] == ["opaque"]
    call = reading()["module:#0"]

    assert [value.text for value in call.args[1:]] == [
        "_io.TextIOWrapper",
        "builtins.object",
        "test_what_cannot_be_written_is_named.<locals>.step.<locals>.<lambda>",
        "numpy.ndarray",
    ]
    assert call.kwargs == {"thing": Token("opaque", "_thread.lock")}


def test_strict_raises_at_what_cannot_be_written(record, reading):
    model = Takes()
    with pytest.raises(TraceWriteError, match=r"_thread\.lock"), record(model, level="module"):
        model(Tensor([1.0]), threading.Lock())
    assert reading()["module:#0"], "what was there is there"


def test_strict_does_not_mind_an_array_and_a_function(record):
    model = Takes()
    with record(model, level="module"):
        model(Tensor([1.0]), np.zeros(3), len)


def test_huge_arguments_are_cut_and_the_call_is_recorded(record, reading):
    model = Takes()
    deep, wide = [], list(range(100_000))
    deep.append(deep)
    with pytest.warns(RuntimeWarning, match="too deep or too many"), record(model, level="module", strict=False):
        model(Tensor([1.0]), deep, wide, {"text": "x" * 1_000_000}, 1 << 100_000)
    call = reading()["module:#0"]

    assert sum(1 for value in call.args for _ in leaves(value)) < 10
    assert len(json.dumps(str(call))) < 20_000


def test_a_hostile_argument_does_not_lose_the_call(record, reading):
    class NoText:
        def __str__(self):
            raise RuntimeError("no text")

    model = Takes()
    with record(model, level="module", strict=False):
        model(Tensor([1.0]), {NoText(): 1}, 7)
    call = reading()["module:#0"]
    assert call.args[2] == 7


def test_odd_names_are_only_text(record, reading, tmp_path):
    with record() as rec:
        for name in ("../../escape", 'quote"\n', "a/b:c#1", "", "nul\x00", "\ud800"):
            rec.save(name, 1)
    assert [call.site.name for call in reading().calls][:5] == ["../../escape", 'quote"\n', "a/b:c#1", "", "nul\x00"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t"]


# --- troubles of the run itself ---------------------------------------------------------------------------------------


class Speechless(Exception):
    def __str__(self):
        raise RuntimeError("no text")


def test_warnings_that_are_errors_do_not_end_the_training(record, reading, page, monkeypatch):
    def glance(tensor):
        raise ArithmeticError("a fault")

    monkeypatch.setattr(page.adapter, "glance", glance)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with record(strict=False):
            relu(Tensor([1.0]))
            relu(Tensor([1.0]))
    assert "a fault" in reading().notes()["unrecorded"]


def test_an_error_without_text_stays_the_users_error(record, reading):
    class Raises(Module):
        def forward(self, x):
            raise Speechless

    model = Raises()

    def run():
        with record(model, level="module", strict=False):
            model(Tensor([1.0]))

    with pytest.raises(Speechless):
        run()
    assert not any(vars(miniature.HOOKS).values())


def test_a_fault_without_text_does_not_end_the_training(record, page):
    def predicate(site):
        raise Speechless

    model = page.models["mlp"]()
    with pytest.warns(RuntimeWarning, match="Speechless"), record(model, strict=False, predicate=predicate):
        model(page.ones(2, 3))


def test_a_fault_in_what_the_framework_says_of_itself_does_not_end_the_training(record, page, monkeypatch):
    """The second step's journal cannot be begun: its header is not to be had."""
    rec = record(strict=False)

    def run():
        with rec:
            relu(Tensor([1.0]))
            rec.step()
            monkeypatch.setattr(page.adapter, "environment", lambda: 1 / 0)
            assert relu(Tensor([2.0])).array == 2
            assert relu(Tensor([3.0])).array == 3

    with pytest.warns(RuntimeWarning, match="division by zero"):
        run()


def test_an_interrupt_is_recorded_and_goes_through(record, reading):
    class Interrupted(Module):
        def forward(self, x):
            raise KeyboardInterrupt

    model = Interrupted()

    def run():
        with record(model):
            model(Tensor([1.0]))

    with pytest.raises(KeyboardInterrupt):
        run()
    assert reading()["module:#0"].raised.startswith("KeyboardInterrupt")
    assert not any(vars(miniature.HOOKS).values())


@pytest.mark.parametrize("verb", ["stop", "step", "close"])
def test_a_verb_in_the_middle_of_a_forward(record, page, tmp_path, verb):
    """Whatever is open then is over; what comes after has its right place again."""

    class Verbose(Module):
        def __init__(self):
            self.inner = Takes()

        def forward(self, x):
            x = self.inner(x)
            getattr(rec, verb)()
            return relu(self.inner(x))

    model = Verbose()
    rec = record({"net": model})
    rec.start()
    model(Tensor([1.0]))
    if verb == "stop":
        rec.start()
    relu(Tensor([1.0])) if verb != "close" else None
    rec.close()
    calls = [call for journal in open_trace(tmp_path / "t").journals() for call in journal.calls()]

    assert not any(vars(miniature.HOOKS).values())
    assert "net.inner" in {call.site.name for call in calls}
    if verb != "close":
        assert calls[-1].site.name == "reference.relu"
        assert calls[-1].site.path == ""


def test_saving_keeps_to_forward_only(record, reading, page):
    rec = record(forward_only=True)

    def function(x):
        h = relu(x)
        rec.save("h", h)
        return total(h)

    with rec:
        page.differentiate(function, page.ones(2, requires_grad=True))
    assert reading().gradients(reading()["save:h#0"], Role.SAVED) == {}


def test_unwanted_ranks_make_no_file(record, page, tmp_path, monkeypatch):
    monkeypatch.setattr(page.adapter, "rank", lambda: (3, 4))
    with record(ranks=[0, 1]) as rec:
        relu(Tensor([1.0]))
        rec.save("x", 1)
        rec.step()
        rec.step(7)
    assert list(tmp_path.iterdir()) == []
    assert rec.total_calls == 0


def test_settings_are_in_the_header(record, reading):
    with record(keep="statistics"):
        relu(Tensor([1.0]))
    header = reading().journal.header
    assert header.framework == "reference"
    assert header.settings["level"] == "api"
    assert header.settings["keep"] == "statistics"
    assert header.environment["numpy"] == np.__version__


def test_a_configuration_is_written_again_when_it_may_have_changed(record, reading, page):
    model = page.models["mlp"]()
    with record(model, level="module"):
        model(page.ones(2, 3))
        model(page.ones(2, 3))
        model.train(False)
        model(page.ones(2, 3))
    training = [reading()[f"module:norm#{n}"].config.values["training"] for n in range(3)]
    assert training == [True, True, False]


def test_a_nested_result_is_a_nest(record, reading):
    with record() as rec:
        rec.save("value", {"a": [1, (2.5, None)]})
    assert reading()["save:value#0"].output == Nest(
        "dict", (("a", Nest("list", (("0", 1), ("1", Nest("tuple", (("0", 2.5), ("1", None))))))),)
    )
