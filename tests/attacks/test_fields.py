"""Lines whose check fits and whose content is wrong: written by somebody who knows the format."""

import pickle

import pytest
import specimens

DEEP: list[object] = []
for _ in range(250):
    DEEP = [DEEP]

WRONG = {
    "true": True,
    "-1": -1,
    "400 digits": 10**400,
    "a text": "x\0\n../..",
    "a list": [[], {}, None, "x"],
    "an object, deep": {"a": DEEP},
}
FIELDS = {
    "head": "k format step rank stage world framework settings environment groups",
    "call": "k id kind name n phase path up type config stack in kw out params buffers mutates after raised missing",
    "tensor": "k id dtype shape device grad by stats fp at missing facts parts",
    "grad": "k of role slot t n",
    "stack": "k id frames",
    "module": "k id path type values",
    "note": "k topic text",
    "end": "k calls tensors",
}
# A value that each field cannot have; 5 where it is not said. `end` is for people: nobody reads its numbers.
NUMBERS = "format step rank world id n up config stack of t by"
REFUSED = {field: "x" for field in [*NUMBERS.split(), "kind", "phase", "role"]}
REFUSED |= {"out": {"a": 1}, "values": {"a": {"$new": 1}}, "calls": None, "tensors": None}


def change(victim, kind: str, field: str, value: object) -> int:
    """Give the field another value, in the first line of that kind; the line's number."""
    lines = specimens.lines_of(victim)
    number = next(number for number, line in enumerate(lines) if line["k"] == kind)
    lines[number][field] = value
    specimens.replace_lines(victim, list(map(specimens.reseal, lines)))
    return number + 1


@pytest.mark.parametrize(
    ("kind", "field"), [(kind, field) for kind, fields in FIELDS.items() for field in fields.split()]
)
def test_a_field_of_another_type(jail, good, victim, kind, field):
    """Refused with the file, the line and the field; or taken, and then every reader can live with it."""
    original = specimens.journal_file(victim).read_bytes()
    for name, value in WRONG.items():
        number = change(victim, kind, field, value)
        error = jail(victim, ways=["strict", "listing"]).strict.error
        if error is None:
            jail(victim, ways=["copy", "compare with good"], good=str(good))
        else:
            assert error.startswith("TraceFormatError"), name
            assert f"journal.jsonl: line {number}" in error, (name, error)
            assert f"'{field}" in error, (name, error)
        specimens.journal_file(victim).write_bytes(original)


@pytest.mark.parametrize(
    ("kind", "field"), [(kind, field) for kind, fields in FIELDS.items() for field in fields.split()[1:]]
)
def test_every_field_is_looked_at(jail, victim, kind, field):
    """The other half of the above: there is a value that is refused."""
    value = REFUSED.get(field, 5)
    number = change(victim, kind, field, value)
    answer = jail(victim, ways=["strict", "tolerant"])
    if value is not None:
        assert f"journal.jsonl: line {number} ({kind}" in answer.strict.error
        assert kind == "head" or answer.tolerant.damage > 0
    else:
        assert answer.strict.error is None


@pytest.mark.parametrize(
    ("kind", "field"),
    [(k, f) for k in ("call", "tensor", "grad", "stack", "module", "note") for f in FIELDS[k].split()[1:]],
)
def test_a_field_that_is_absent(jail, good, victim, kind, field):
    lines = specimens.lines_of(victim)
    specimens.replace_lines(
        victim, [specimens.reseal({n: v for n, v in line.items() if (line["k"], n) != (kind, field)}) for line in lines]
    )
    answer = jail(victim, ways=["strict", "tolerant", "listing"])
    assert (
        answer.strict.error is None or f"field {field!r}" in answer.strict.error or f"'{field}'" in answer.strict.error
    )


# --- where bytes lie ------------------------------------------------------------------------------------------------

PLACES = [
    [-1, 24], [0, -24], [0, 23], [0, 25], [0, 0], [1, 24], [64, 24], [2**61, 24], [2**62, 24], [10**400, 24], [0, 10**400],
    [0, 24, 1], [0, 24, 5],
    [0, 24, 2**61], [0, 24, 10**17], [0, 24, -1], [0, 24, None], [0, 24, 0, 0], [0], [], ["0", "24"], [0.0, 24.0],
    [True, 24], [[0], [24]], "0,24", {"offset": 0}, [0, 24, "../../x"], [0, 24, "0"],
]  # fmt: skip


@pytest.mark.parametrize("place", PLACES, ids=lambda place: str(place)[:24])
def test_an_address_that_leads_elsewhere(jail, good, victim, place):
    """Not one of them gives values that were not recorded."""
    change(victim, "tensor", "at", place)
    answer = jail(victim, good=str(good))
    assert answer.strict.error.startswith("TraceFormatError")
    assert "'at'" in answer.strict.error or "fingerprint" in answer.strict.error


SPECS = [
    ("f32", [-1]), ("f32", [-2, -3]), ("f32", [2**62]), ("f32", [10**400]), ("f32", [2**61, 2**61]), ("f32", [2**33] * 64),
    ("f32", [1] * 65), ("f32", [1.5]), ("f32", [True, 6]), ("f32", ["6"]), ("f32", [[6]]), ("f32", [None]), ("f32", {"0": 6}),
    ("f32", "6"), ("f32", [3, 3]), ("f64", [2, 3]), ("f16", [2, 3]), ("F32", [2, 3]), ("f32 ", [2, 3]), ("float32", [2, 3]),
    ("O", [3]), ("object", [3]), ("", [6]), ("<f4", [6]), ("V24", []), ("f32", [0, 2**61, 2**61]), ("u8", [2**62 - 1]),
    ("f32", [6, 0]),
]  # fmt: skip


@pytest.mark.parametrize(("dtype", "shape"), SPECS, ids=lambda part: str(part)[:24])
@pytest.mark.parametrize("place", ["kept", "fitting", "none"])
def test_an_absurd_shape(jail, good, victim, dtype, shape, place):
    """No size is believed before it is compared with the bytes that are there."""
    change(victim, "tensor", "dtype", dtype)
    change(victim, "tensor", "shape", shape)
    if place == "none":
        change(victim, "tensor", "at", None)
    elif place == "fitting":
        count = 1
        for size in shape if isinstance(shape, list) else []:
            count *= size if isinstance(size, int) else 1
        change(victim, "tensor", "at", [0, 4 * count])
    answer = jail(victim, ways=["strict", "tolerant", "listing"] if place == "kept" else None, good=str(good))
    assert place == "none" or answer.strict.error.startswith("TraceFormatError")


@pytest.mark.parametrize("rank", [32, 33, 64])
def test_as_many_dimensions_as_a_tensor_may_have(jail, good, victim, rank):
    """More than this numpy can: an error of ours, where the values are asked for and not before."""
    change(victim, "tensor", "shape", [1] * (rank - 2) + [2, 3])
    answer = jail(victim, good=str(good))
    assert answer.strict.error is None or "numpy has no array of this shape" in answer.strict.error
    assert answer.ways["listing"].error is None


# --- names ----------------------------------------------------------------------------------------------------------

NAMES = {
    "up": "../../canary", "absolute": "{canary}", "home": "~/canary", "url": "file://{canary}", "nul": "canary\0",
    "newline": "a\nb\r\n", "slashes": "//a//b/", "empty": "", "long": "x" * 20_000, "surrogate": "\ud800",
    "right to left": "\u202egnp.exe", "escape": "\x1b[2J", "braces": '{{"k":"call"}}', "percent": "%s%n%x",
    "template": "{{0.__class__}}", "dot": ".", "dots": "..", "device": "/dev/stdin",
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_name_never_becomes_a_path(jail, good, victim, tmp_path, name):
    """Every text of every line is hostile at once; nothing is opened but the files of the trace."""
    canary = tmp_path / "canary"
    canary.write_text("secret")
    text = NAMES[name].format(canary=canary)
    lines = specimens.lines_of(victim)
    for line in lines:
        texts = {"name", "path", "type", "slot", "device", "topic", "text", "raised"} & line.keys()
        line |= {field: text for field in texts}
        line |= {
            field: dict.fromkeys([text], next(iter(line[field].values())))
            for field in {"params", "buffers", "after", "parts"} & line.keys()
        }
        line |= {field: {text: {"$token": [text, text]}} for field in {"kw", "values"} & line.keys()}
        if "frames" in line:
            line["frames"] = [[text, 1, text, text]]
        if "facts" in line:
            line["facts"] = {text: text}
        if line["k"] == "head":
            line |= {"framework": text, "settings": {text: text}, "environment": {text: text}}
    specimens.replace_lines(victim, list(map(specimens.reseal, lines)))
    answer = jail(victim, good=str(good), watch=str(tmp_path.parent))
    assert answer.strict.error is None
    assert answer.ways["copy"].error is None
    assert [opened for opened in answer.opened if not opened.startswith((str(victim), str(good)))] == []


# --- numbers --------------------------------------------------------------------------------------------------------


def edit(victim, change_lines):
    lines = specimens.lines_of(victim)
    specimens.replace_lines(victim, list(map(specimens.reseal, change_lines(lines) or lines)))


def of_kind(lines, kind):
    return [line for line in lines if line["k"] == kind]


def duplicate(kind):
    def change_lines(lines):
        first = next(line for line in lines if line["k"] == kind)
        return [*lines[:-1], *[first] * 50, lines[-1]]

    return change_lines


def parents(*ups):
    def change_lines(lines):
        for line, up in zip(of_kind(lines, "call"), ups, strict=False):
            line["up"] = up

    return change_lines


def chain(lines):
    """A parent for each call, 1,500 deep."""
    calls = [specimens.call_line(100 + n, "deep", n=n, up=101 + n) for n in range(1500)]
    return [*lines[:-1], *calls, lines[-1]]


def set_all(kind, /, **fields):
    def change_lines(lines):
        for line in of_kind(lines, kind):
            line |= fields

    return change_lines


EDITS = {
    **{f"the {kind} line 50 times": duplicate(kind) for kind in FIELDS},
    "a call is its own parent": parents(1),
    "two calls are each other's parents": parents(0, 1),
    "three calls in a ring": parents(0, 2, 1),
    "a parent that is not there": parents(10**9, 2**61, 77),
    "1,500 calls deep": chain,
    "all calls have one number": set_all("call", id=1),
    "all calls have one address": set_all("call", kind="api", name="x", n=0, phase="forward"),
    "all tensors have one number": set_all("tensor", id=0),
    "numbers of tensors that are not there": set_all("call", out={"$t": 10**9}, params={"w": 2**61}, after={"0": 999}),
    "gradients of calls that are not there": set_all("grad", of=10**9, t=10**9),
    "a tensor is a part of itself": set_all("tensor", parts={"values": 0, "indices": 1}),
    "tensors made by calls that are not there": set_all("tensor", by=10**9),
    "stacks and modules that are not there": set_all("call", stack=10**9, config=10**9),
    "statistics that cannot be": set_all("tensor", stats=[5, -5, {"$float": "nan"}, -1.0, 2**61, 2**61, 0, 2**61]),
    "a fingerprint of something else": set_all("tensor", fp="0" * 32),
    "no fingerprint": set_all("tensor", fp=None),
    "no line but the first": lambda lines: lines[:1],
    "the head comes last": lambda lines: lines[1:] + lines[:1],
    "the head comes twice": lambda lines: [lines[0], *lines],
    "the end comes first": lambda lines: [lines[0], lines[-1], *lines[1:-1]],
    "backwards": lambda lines: [lines[0], *reversed(lines[1:])],
    "no tensors": lambda lines: [line for line in lines if line["k"] != "tensor"],
    "no calls": lambda lines: [line for line in lines if line["k"] != "call"],
    "another step": lambda lines: [lines[0] | {"step": 1}, *lines[1:]],
    "another rank": lambda lines: [lines[0] | {"rank": 1}, *lines[1:]],
    "a ring of no size": lambda lines: [lines[0] | {"stage": [0, 0]}, *lines[1:]],
    "a ring of every size": lambda lines: [lines[0] | {"stage": [2**61, 2**61]}, *lines[1:]],
}


@pytest.mark.parametrize("name", EDITS)
def test_numbers_that_do_not_fit_together(jail, good, victim, name):
    edit(victim, EDITS[name])
    answer = jail(victim, good=str(good))
    assert answer.strict.error is None or answer.strict.error.startswith("TraceFormatError")


# --- what is no line at all -----------------------------------------------------------------------------------------

BODIES = {
    "pickle": pickle.dumps({"k": "call", "f": print}),
    "pickle in a line": b'{"k":"note","topic":"' + pickle.dumps(print, protocol=0).replace(b"\n", b"\\n"),
    "not UTF-8": b'{"k":"note","topic":"\xff\xfe\x80","text":""',
    "overlong UTF-8": b'{"k":"note","topic":"\xc0\xaf","text":""',
    "NUL": b'{"k":"note","topic":"\0\0","text":""',
    "NUL, escaped": b'{"k":"note","topic":"\\u0000","text":""',
    "UTF-16": '{"k":"note","topic":"a","text":""'.encode("utf-16-le"),
    "a mark before it": b'\xef\xbb\xbf{"k":"note","topic":"a","text":""',
    "NaN": b'{"k":"note","topic":"a","text":"","x":NaN',
    "1e999": b'{"k":"tensor","id":0,"dtype":"f32","shape":[1],"stats":[1e999,0,0,0,0,0,0,0]',
    "minus zero": b'{"k":"tensor","id":0,"dtype":"f32","shape":[-0]',
    "exponent": b'{"k":"tensor","id":0,"dtype":"f32","shape":[1e1]',
    "5000 digits": b'{"k":"note","topic":"a","text":"","x":' + b"1" * 5000,
    "the same key twice": b'{"k":"note","k":"call","topic":"a","topic":5,"text":"b"',
    "a check inside": b'{"k":"note","crc":"00000000","topic":"a","text":"b"',
    "two objects": b'{"k":"note"}{"topic":"a"',
    "a list": b'["k","note"],["a"',
    "a comment": b'{"k":"note"/*x*/,"topic":"a","text":""',
    "spaces": b'{"k":"note" ,  "topic" : "a","text":"b"',
    "carriage returns": b'{"k":"note","topic":"a","text":"b"\r',
    "k is not first": b'{"topic":"a","k":"note","text":"b"',
    "keys of a prototype": b'{"k":"note","topic":"a","text":"b","__proto__":{"x":1},"__class__":"x"',
}


@pytest.mark.parametrize("name", BODIES)
def test_bytes_under_a_check_that_fits(jail, good, victim, name):
    raw = specimens.journal_file(victim).read_bytes().splitlines(keepends=True)
    specimens.replace_lines(victim, [*raw[:3], specimens.seal_raw(BODIES[name]), *raw[3:]])
    answer = jail(victim, good=str(good))
    assert answer.strict.error is None or "journal.jsonl: line 4" in answer.strict.error
    specimens.replace_lines(victim, [specimens.seal_raw(BODIES[name]), *raw])
    assert "journal.jsonl: line 1" in jail(victim, good=str(good)).strict.error
