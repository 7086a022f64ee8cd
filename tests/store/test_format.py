"""FORMAT.md and the code say the same."""

import contextlib
import json
import re
import shutil
import subprocess
import warnings
from pathlib import Path

import numpy as np
import pytest
import specimens

from twintrace.collect import flatten
from twintrace.model import tagged
from twintrace.model.errors import TraceFormatError
from twintrace.model.records import Role
from twintrace.model.sites import Kind, Phase
from twintrace.model.tensors import DTYPES
from twintrace.store import digest, journal, layout, lines, parsing
from twintrace.store.arrays import STORAGE
from twintrace.store.folding import MAX_CHANGED
from twintrace.store.lines import seal, unseal, value_of
from twintrace.store.registry import open_trace
from twintrace.store.stage import ALIGN
from twintrace.store.writer import TraceWriter

DOCUMENT = Path(layout.__file__).with_name("FORMAT.md").read_text(encoding="utf-8")
KINDS = {"head", "call", "tensor", "grad", "stack", "module", "note", "end"}
FOLDED = {"head", "same"}
TYPES = {"number": int, "text": str, "list": list, "object": dict, "flag": bool, "float": float, "value": object}


def sections(text: str) -> dict[str, str]:
    """Heading to what stands below it, up to the next heading of any level."""
    parts = re.split(r"^#+ +(.+)$", text, flags=re.MULTILINE)
    return {heading.strip("` "): body for heading, body in zip(parts[1::2], parts[2::2], strict=True)}


def table(heading: str, text: str = DOCUMENT) -> list[list[str]]:
    """The rows of the table below a heading, without its first."""
    rows = [line for line in sections(text)[heading].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows[2:]]


def fields(kind: str, text: str = DOCUMENT) -> dict[str, tuple[str, bool]]:
    """Field to type and whether it is required, as documented."""
    return {name.strip("`"): (type_, required == "yes") for name, type_, required, _ in table(kind, text)}


def undocumented(found: list[dict[str, object]], text: str = DOCUMENT) -> list[str]:
    """What is wrong between these lines and the tables."""
    faults = []
    for line in found:
        kind = str(line["k"])
        if kind not in sections(text):
            faults.append(f"{kind}: not documented")
            continue
        known = fields(kind, text)
        for name, value in line.items():
            if name not in known:
                faults.append(f"{kind}.{name}: not documented")
            elif value is not None and not isinstance(value, TYPES[known[name][0]]):
                faults.append(f"{kind}.{name}: documented as {known[name][0]}, is {value!r}")
        faults += [
            f"{kind}.{name}: required and absent"
            for name, (_, required) in known.items()
            if required and name not in line
        ]
    return sorted(set(faults))


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The lines of a specimen, which has everything."""
    path = specimens.write_full(tmp_path_factory.mktemp("format") / "trace")
    return [line for step in (0, 1) for line in specimens.lines_of(path, step)]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The lines of a recording of a small network in which most things happen, and its manifest."""
    torch = pytest.importorskip("torch")
    import twintrace as tt

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = torch.nn.BatchNorm1d(4)
            self.head = torch.nn.Linear(4, 2)

        def forward(self, x, fail=False):
            if fail:
                raise RuntimeError("on purpose")
            torch.add(x.detach(), 1, out=torch.empty(3, 4))
            return {"logits": self.head(torch.relu(self.norm(x))), "rest": (x * 2, [float("nan"), 1j, slice(1, 2)])}

    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    path = tmp_path_factory.mktemp("recorded") / "trace"
    with warnings.catch_warnings(), tt.record(path, net, keep="tensor", buffer="1 MB") as recorder:
        warnings.simplefilter("ignore")
        output = net(torch.ones(3, 4, requires_grad=True))
        recorder.save("logits", output["logits"])
        output["logits"].sum().backward()
        optimizer.step()
        with pytest.raises(RuntimeError, match="on purpose"):
            net(torch.ones(3, 4), fail=True)
        torch.sparse_coo_tensor(torch.tensor([[0, 1]]), torch.tensor([1.0, 2.0]), (3,)).coalesce()
        torch.relu(torch.ones(2, device="meta"))
        with torch.autocast("cpu"):
            net.head(torch.ones(3, 4))
        recorder.note("topic", "a sentence")
    return specimens.lines_of(path), json.loads((path / "manifest.json").read_text())


# --- lines ----------------------------------------------------------------------------------------------------------


def test_a_specimen_is_documented(written):
    assert undocumented(written) == []


@pytest.mark.needs_torch
def test_a_recording_is_documented(recorded):
    found, manifest = recorded
    assert undocumented(found) == []
    assert {line["k"] for line in found} == KINDS
    with_kind = DOCUMENT.replace("| `format` | text", "| `k` | text | yes | |\n| `format` | text")
    assert undocumented([manifest | {"k": "manifest.json"}], with_kind) == []


@pytest.mark.needs_torch
def test_what_is_documented_occurs(written, recorded):
    """Every kind, and every field of it: in the specimen, and but for a few in a recording of one process too."""
    assert {heading for heading in sections(DOCUMENT) if heading in {line["k"] for line in written} | KINDS} == KINDS
    rare = {("call", "missing"), ("tensor", "missing")}
    for kind in KINDS:
        documented = set(fields(kind))
        assert documented == {name for line in written if line["k"] == kind for name in line}, kind
        found = {name for line in recorded[0] if line["k"] == kind for name in line}
        assert documented - found <= {name for k, name in rare if k == kind}, kind
    assert set(fields("manifest.json")) == set(recorded[1])


def test_a_folded_journal_is_documented(tmp_path):
    """Both of its lines, and each field of the second that is documented occurs."""
    writer = TraceWriter.create(tmp_path / "trace", specimens.MANIFEST, folds=True)
    for step in range(2):
        journal = writer.begin_step(step, specimens.HEADER)
        journal.add(seal({"k": "note", "topic": "step", "text": str(step)}))
        journal.add(seal({"k": "end"}))
        writer.end_step()
    writer.close()
    found = specimens.lines_of(tmp_path / "trace", 1)
    assert {line["k"] for line in found} == FOLDED
    assert undocumented(found) == []
    assert set(fields("same")) == {name for name in found[1] if name != "crc"}
    assert f"At most {MAX_CHANGED} |" in DOCUMENT


def test_what_is_required_is_required(tmp_path):
    """Without it a line is damage; without any other field it is not."""
    path = specimens.write_small(tmp_path / "trace")
    whole = specimens.lines_of(path)
    for kind in KINDS - {"end"}:
        for name, (_, required) in fields(kind).items():
            if name == "k":
                continue
            lines_without = [{n: v for n, v in line.items() if (line["k"], n) != (kind, name)} for line in whole]
            specimens.replace_lines(path, list(map(specimens.reseal, lines_without)))
            with pytest.raises(TraceFormatError, match=f"'{name}'") if required else contextlib.nullcontext():
                journal = open_trace(path).journal(0)
                assert [list(journal.calls()), list(journal.tensors()), list(journal.notes())]
    for name, (_, required) in fields("manifest.json").items():
        manifest = path / "manifest.json"
        text = manifest.read_text()
        manifest.write_text(json.dumps({n: v for n, v in json.loads(text).items() if n != name}))
        with pytest.raises(TraceFormatError, match=f"'{name}'") if required else contextlib.nullcontext():
            open_trace(path)
        manifest.write_text(text)


def test_the_example_is_a_journal(tmp_path):
    [block] = re.findall(r"```jsonl\n(.*?)```", DOCUMENT, re.DOTALL)
    raw = block.encode().splitlines(keepends=True)
    assert undocumented([unseal(line) for line in raw]) == []
    directory = layout.journal_dir(tmp_path, 0, 0)
    directory.mkdir(parents=True)
    (directory / layout.JOURNAL).write_bytes(b"".join(raw))
    (directory / layout.PAYLOAD).write_bytes(np.array([1, 2], dtype="<f4").tobytes())
    (tmp_path / layout.MANIFEST).write_text('{"format":"twintrace","version":1}')
    journal = open_trace(tmp_path).journal(0)
    [call] = journal.calls()
    assert journal.complete
    assert journal.array(journal.tensor(call.output.id)).tolist() == [1, 2]
    assert (
        json.loads(json.dumps(journal.tensor(0).statistics.norm))
        == digest.digest(np.array([1, 2], dtype="<f4"), "f32").statistics.norm
    )


def test_enumerations_are_complete():
    """Each kind, phase and role of a call or a gradient is named where its field is described."""
    meaning = {(kind, row[0].strip("`")): row[3] for kind in ("call", "grad") for row in table(kind)}
    for place, names in ((("call", "kind"), Kind), (("call", "phase"), Phase), (("grad", "role"), Role)):
        assert set(re.findall(r"`(\w+)`", meaning[place])) - {"save"} == {name.value for name in names} - {"save"}
    assert "`save`" in meaning["call", "kind"]


# --- values and numbers ---------------------------------------------------------------------------------------------


def test_every_tag_is_documented_and_read():
    forms = [json.loads(cell) for row in table("Values") for cell in re.findall(r"`([^`]+)`", row[0])]
    for form in forms:
        value_of(form)
    documented = {next(iter(form)) for form in forms if isinstance(form, dict)}
    source = Path(tagged.__file__).read_text()
    assert documented == set(re.findall(r'"(\$[a-z]+)"', source))


def test_element_types():
    rows = [(name.strip("`"), int(size), storage.strip("`")) for name, size, _, storage in table("Element types")]
    assert {name: size for name, size, _ in rows} == dict(DTYPES)
    assert {name: np.dtype(storage) for name, _, storage in rows} == STORAGE


def test_limits():
    found = {row[0]: int(row[1]) for row in table("Limits")}
    assert found == {
        "length of a line": lines.MAX_LINE,
        "size of the manifest": lines.MAX_MANIFEST,
        "levels of a value": tagged.MAX_DEPTH,
        "levels of JSON in a line": lines.MAX_NESTING,
        "dimensions of a tensor": parsing.MAX_RANK,
        "numbers, sizes, offsets": tagged.MAX_NUMBER,
        "damaged places listed of a journal": journal.MAX_DAMAGE,
        "digits of a step": 18,
        "digits of a rank": 9,
    }
    assert layout._STEP.fullmatch("step" + "9" * 18)
    assert not layout._STEP.fullmatch("step" + "9" * 19)
    assert layout._RANK.fullmatch("rank" + "9" * 9)
    assert not layout._RANK.fullmatch("rank" + "9" * 10)
    assert f"each at a multiple of {ALIGN}" in DOCUMENT
    assert f"recorders stop at {flatten.MAX_DEPTH}" in DOCUMENT


def fingerprint(data: bytes) -> str:
    """The definition, word for word and slowly."""
    mask = (1 << 64) - 1

    def stir(z: int) -> int:
        z = (z ^ (z >> 29)) * 0xBF58476D1CE4E5B9 & mask
        z = (z ^ (z >> 32)) * 0x94D049BB133111EB & mask
        return z ^ (z >> 32)

    def fin(z: int) -> int:
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & mask
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & mask
        return z ^ (z >> 31)

    def halves(z: int) -> int:
        return (z % 2**32) * (z >> 32)

    keys = [fin((i + 1) * 0x9E3779B97F4A7C15 & mask) for i in range(256)]
    a = b = 0
    for j in range(-(-len(data) // 1024)):
        block = data[1024 * j : 1024 * (j + 1)]
        block += bytes(-len(block) % 8)
        p = q = s = 0
        for i in range(len(block) // 8):
            w = int.from_bytes(block[8 * i : 8 * i + 8], "little")
            p += halves((w + keys[i]) & mask)
            q += halves(w ^ keys[128 + i])
            s += w
        a += stir((p + s * 0xBF58476D1CE4E5B9 + (2 * j + 1) * 0x9E3779B97F4A7C15) & mask)
        b += stir((q + s * 0x94D049BB133111EB + (2 * j + 2) * 0x9E3779B97F4A7C15) & mask)
    upper = fin((a + len(data) * 0x9E3779B97F4A7C15) & mask)
    lower = fin(b & mask ^ (upper >> 32 | (upper << 32 & mask)))
    return f"{upper:016x}{lower:016x}"


VECTORS = {
    "none": b"",
    "`00` to `ff`": bytes(range(256)),
    "byte i is i mod 251": bytes(i % 251 for i in range(100_000)),
}


@pytest.mark.parametrize("row", table("Fingerprint"), ids=lambda row: row[0])
def test_fingerprint_vectors(row):
    name, size, expected = row
    data = VECTORS[name] if name in VECTORS else bytes.fromhex(re.match("`([0-9a-f]+)`", name)[1])
    assert len(data) == int(size)
    assert fingerprint(data) == expected.strip("`")
    assert digest.fingerprint(np.frombuffer(data, dtype=np.uint8)) == expected.strip("`")


def test_constants_of_the_fingerprint_are_those_of_the_document():
    """The slow one above was written from the document; here the document is held to it."""
    text = sections(DOCUMENT)["Fingerprint"]
    step, first, second = "0x9E3779B97F4A7C15", "0xBF58476D1CE4E5B9", "0x94D049BB133111EB"
    assert re.findall(r"0x[0-9A-F]{16}", text) == [first, second, first, second, step, first, step, second, step, step]
    assert re.findall(r">> (\d+)", text) == ["29", "32", "32", "30", "27", "31", "32"]


def test_jq_reads_it(tmp_path):
    if not shutil.which("jq"):
        pytest.skip("jq is not installed")
    path = specimens.write_full(tmp_path / "trace")
    [block] = re.findall(r"```sh\n(.*?)```", DOCUMENT, re.DOTALL)
    for command in block.strip().splitlines():
        done = subprocess.run(command.replace("runs/a", str(path)), shell=True, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("\n") >= 1


# --- the document itself --------------------------------------------------------------------------------------------


def test_links_within_the_document():
    anchors = {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ +(.+)$", DOCUMENT, re.MULTILINE)
    }
    assert set(re.findall(r"\]\(#([^)]+)\)", DOCUMENT)) <= anchors


def test_the_checks_can_fail():
    line = {"k": "note", "topic": "a", "text": "b"}
    assert undocumented([line]) == []
    assert undocumented([line | {"new": 1}]) == ["note.new: not documented"]
    assert undocumented([line | {"topic": 1}]) == ["note.topic: documented as text, is 1"]
    assert undocumented([{"k": "note", "topic": "a"}]) == ["note.text: required and absent"]
    assert undocumented([{"k": "poem"}]) == ["poem: not documented"]
    assert fields("note", DOCUMENT.replace("| `topic` | text | yes", "| `topic` | number | no"))["topic"] == (
        "number",
        False,
    )
    assert fingerprint(b"a") != fingerprint(b"b")
