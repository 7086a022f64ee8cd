"""Stacks lead to the user's own lines, each is written once."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import twintrace
from twintrace.collect.stacks import MAX_FRAMES, MAX_LINE, Stacks

HERE = str(Path(__file__))


@pytest.fixture
def written():
    return {}


@pytest.fixture
def stacks(written):
    return Stacks(("/nowhere/at/all",), told(written))


def told(written):
    """What a recording does with a stack, but for the writing."""
    return lambda number, frames: written.update({number: json.loads(frames)})


def call(stacks):
    return stacks.capture(1)


def test_frames_are_innermost_first_with_their_source(stacks, written):
    def user():
        return call(stacks)  # the user's line

    number = user()
    line = sys._getframe().f_lineno - 1
    innermost, *outer = written[number]

    assert innermost[0] == HERE
    assert innermost[2:] == ["call", "return stacks.capture(1)"]
    assert outer[0][2:] == ["user", "return call(stacks)  # the user's line"]
    assert outer[1][:3] == [HERE, line, "test_frames_are_innermost_first_with_their_source"]


def test_one_place_is_one_stack_and_another_is_another(stacks, written):
    numbers = [call(stacks) for _ in range(3)]
    other = call(stacks)
    assert len(set(numbers)) == 1
    assert other not in numbers
    assert len(written) == 2


def test_after_a_reset_stacks_are_written_again(stacks, written):
    def user():
        return call(stacks)

    for _ in range(2):
        assert user() == 0
        assert list(written) == [0]
        stacks.reset()
        written.clear()


def test_the_library_and_the_framework_are_left_out(written, monkeypatch):
    stacks = Stacks((), told(written))
    json.loads("{}", object_hook=lambda _: call(stacks))
    assert not [frame for frame in written[0] if "json" in frame[0]]

    hidden = Stacks((str(Path(__file__).parent),), told(written))
    call(hidden)
    assert not [frame for frame in written[0] if frame[0] == HERE]


def test_a_folder_is_left_out_and_not_those_whose_names_begin_like_it(tmp_path, written):
    """torch is left out, torchvision is not."""
    stacks = Stacks((str(tmp_path / "torch"),), told(written))
    source = "def forward(call, stacks):\n    return call(stacks)\n"
    files = {}
    for folder in ("torch", "torchvision"):
        exec(compile(source, str(tmp_path / folder / "net.py"), "exec"), space := {})
        number = space["forward"](call, stacks)
        files[folder] = [frame[0] for frame in written[number]]
    assert str(tmp_path / "torchvision" / "net.py") in files["torchvision"]
    assert str(tmp_path / "torch" / "net.py") not in files["torch"]


@pytest.mark.needs_torch
def test_the_package_is_left_out_where_it_is_found_by_a_link(tmp_path):
    """A home directory that is a link, as on many clusters."""
    (tmp_path / "twintrace").symlink_to(Path(twintrace.__file__).parent)
    script = (
        "import torch, twintrace as tt\n"
        "net = torch.nn.Linear(2, 2)\n"
        "with tt.record('trace', net, level='module') as rec:\n"
        "    net(torch.ones(1, 2))\n"
        "[call] = tt.open('trace').journal(0, 0).calls()\n"
        "print(*[frame.file for frame in call.stack])\n"
    )
    (tmp_path / "script.py").write_text(script)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == [str(tmp_path / "script.py")], done.stderr


def test_endless_recursion_is_cut(stacks, written):
    def deep(levels):
        return deep(levels - 1) if levels else call(stacks)

    assert deep(100) == deep(100)
    assert len(written[0]) == MAX_FRAMES


def test_a_thread_has_its_own_stack(stacks, written):
    thread = threading.Thread(target=lambda: call(stacks))
    thread.start()
    thread.join()
    assert [frame[2] for frame in written[0]] == ["call", "<lambda>"]


def test_code_without_a_file_is_shown_without_source(stacks, written):
    exec(compile("capture()", "<typed in>", "exec"), {"capture": lambda: call(stacks)})
    assert ["<typed in>", 1, "<module>", ""] in written[0]


@pytest.mark.parametrize("length", [MAX_LINE, MAX_LINE + 1])
def test_a_line_is_kept_whole_unless_it_is_longer_than_any_that_is_written(stacks, written, tmp_path, length):
    file = tmp_path / "wide.py"
    begin = "def user(call, stacks): return call(stacks, "
    line = begin + "1" * (length - len(begin) - 1) + ")"
    file.write_text(line, encoding="utf-8")
    names = {}
    exec(compile(line, str(file), "exec"), names)

    names["user"](lambda stacks, _: stacks.capture(2), stacks)

    (text,) = [text for path, _, _, text in written[0] if path == str(file)]
    assert text == (line if length <= MAX_LINE else f"{line[:MAX_LINE]} …")
