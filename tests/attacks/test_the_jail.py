"""The harness would notice: each thing that no attack may cause is caused here on purpose."""

import pytest

BREAK = {
    "an exception of Python's": (
        "from twintrace.store import parsing; parsing.note_of = lambda *a: 1 / 0",
        r"crashed: ZeroDivisionError",
    ),
    "an error that is not ours, in the commands' side": (
        "from twintrace.api import opening; opening._rows = lambda *a: [][1]",
        r"crashed: IndexError",
    ),
    "an endless loop": (
        "from twintrace.store import parsing\ndef forever(*a):\n    while True: pass\nparsing.note_of = forever",
        r"crashed: Hang: still busy after 1",
    ),
    "a wait for something that never comes": (
        "import os, tempfile; f = tempfile.mktemp(); os.mkfifo(f)\n"
        "from twintrace.store import parsing; parsing.note_of = lambda *a: open(f)",
        r"crashed: Hang: still busy after 1",
    ),
    "a gigabyte": (
        "from twintrace.store import parsing; parsing.note_of = lambda *a: bytearray(1 << 30)",
        r"crashed: MemoryError",
    ),
    "endless recursion": (
        "from twintrace.store import parsing\ndef f(*a): return f()\nparsing.note_of = f",
        r"crashed: RecursionError",
    ),
    "the end of the process": ("import os; os.kill(os.getpid(), 11)", r"the process ended with status -11"),
}


@pytest.mark.parametrize("case", BREAK)
def test_a_crash_is_noticed(jail, good, case):
    before, text = BREAK[case]
    with pytest.raises(AssertionError, match=text):
        jail(good, before=before, seconds=1, good=str(good))
    jail(good, ways=["strict"])  # and the next one is served


def test_a_file_that_is_opened_is_noticed(jail, good, tmp_path):
    canary = tmp_path / "canary"
    canary.write_text("x")
    before = f"from twintrace.store import parsing; parsing.note_of = lambda *a: open({str(canary)!r}).close()"
    assert jail(good, before=before, ways=["strict"], watch=str(tmp_path)).opened == [str(canary)]


def test_the_end_of_the_jail_is_noticed(jail, good):
    with pytest.raises(AssertionError, match=r"ended with status -?\d+, or did not answer"):
        jail(good, before="import os; os.kill(os.getppid(), 9); os._exit(0)")
    jail(good, ways=["strict"])


def test_a_good_trace_is_read_cleanly(jail, good):
    answer = jail(good, good=str(good))
    assert set(answer.ways) == {"strict", "tolerant", "copy", "listing", "compare", "compare with good"}
    for name, way in answer.ways.items():
        assert (name, way.error, way.damage) == (name, None, 0)


def test_another_content_is_noticed(jail, good, victim):
    """What `same_as` compares: one changed letter under a fitting check is another content, and not damage."""
    import specimens

    lines = specimens.lines_of(victim)
    specimens.replace_lines(
        victim, [specimens.reseal(line | ({"text": "b"} if line["k"] == "note" else {})) for line in lines]
    )
    changed, whole = (jail(path, ways=["strict", "tolerant"]) for path in (victim, good))
    assert not changed.same_as(whole)
    assert not changed.noticed()
