"""Ctrl-C at any moment of the beginning or the end of a recording leaves nothing behind."""

import gc
import signal
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.optim.optimizer import _global_optimizer_pre_hooks  # noqa: E402
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack  # noqa: E402

import twintrace as tt  # noqa: E402
from twintrace.collect.processes import HERE  # noqa: E402
from twintrace.frameworks.torch.releases import ENGINE  # noqa: E402

pytestmark = pytest.mark.needs_torch
PACKAGE = str(Path(tt.__file__).parent)


@pytest.fixture(autouse=True)
def ctrl_c_raises():
    """Python's own handler, whatever the parent of this process has set: one that runs in the background ignores Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)


def installed():
    """All that a recorder puts in place."""
    return {
        "call": nn.Module.__call__,
        "backward": getattr(*ENGINE),
        "functions": torch.overrides.has_torch_function,
        "compile": torch.compile,
        "profiler": torch.autograd.profiler.record_function.__exit__,
        "collective": torch.distributed.all_reduce,
        "function modes": list(torch.overrides._get_current_function_mode_stack()),
        "dispatch modes": list(_get_current_dispatch_mode_stack()),
        "steps": dict(_global_optimizer_pre_hooks),
        "handlers": signal.getsignal(signal.SIGINT),
        "busy": HERE.busy,
    }


class _AtLine:
    """Sends SIGINT to this process at the n-th line that is run inside the package."""

    def __init__(self, number):
        self.left, self.sent = number, False

    def __call__(self, frame, event, _):
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        if event == "line":
            self.left -= 1
            if self.left == 0:
                self.sent = True
                signal.raise_signal(signal.SIGINT)
        return self

    def __enter__(self):
        sys.settrace(self)
        return self

    def __exit__(self, *_):
        sys.settrace(None)


@pytest.mark.parametrize("level", ["module", "mix", "op"])
def test_ctrl_c_while_a_recording_begins_leaves_nothing(tmp_path, level):
    net = nn.Linear(2, 2)
    before, moment, tried = installed(), 0, 0
    while True:
        moment += 3 + moment // 16  # every third line at first, then fewer: the beginning is where the patches are
        recorder = tt.record(tmp_path / str(moment), net, level=level)
        interrupted = False
        with _AtLine(moment) as ctrl_c:
            try:
                recorder.__enter__()
            except KeyboardInterrupt:
                interrupted = True
        if not ctrl_c.sent:
            recorder.close()
            break
        tried += 1
        if not interrupted:  # it came with the last instructions: whoever entered leaves
            recorder.close()
        assert installed() == before, moment
        gc.collect(0)
    assert tried > 20
    assert installed() == before


@pytest.mark.parametrize("end", ["stop", "__exit__"])
def test_ctrl_c_while_a_recording_ends_leaves_nothing(tmp_path, end):
    net = nn.Linear(2, 2)
    before, moment = installed(), 0
    while True:
        moment += 3 + moment // 16
        recorder = tt.record(tmp_path / str(moment), net)
        recorder.__enter__()
        net(torch.ones(1, 2))
        with _AtLine(moment) as ctrl_c:
            try:
                recorder.stop() if end == "stop" else recorder.__exit__(None, None, None)
            except KeyboardInterrupt:
                if end == "stop":
                    recorder.close()
        if not ctrl_c.sent:
            recorder.close()
            break
        assert installed() == before, moment


def test_a_signal_is_not_lost(tmp_path):
    """The user's own handler is called, once, when what was begun is whole."""
    seen = []
    previous = signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(nn.Module.__call__))
    original = nn.Module.__call__
    try:
        recorder = tt.record(tmp_path / "t", nn.Linear(2, 2))

        class Sender(dict):
            def items(self):  # asked for while hooks are put in place
                signal.raise_signal(signal.SIGUSR1)
                return super().items()

        recorder._watch._modules._models = Sender(recorder._watch._modules._models)
        with recorder:
            assert seen
            assert set(seen) == {nn.Module.__call__}
            assert nn.Module.__call__ is not original
    finally:
        signal.signal(signal.SIGUSR1, previous)
