"""Placements in the mapping file: they count before what is inferred, and what does not fit is refused."""

import pytest
import yaml

import twintrace as tt
from twintrace.api.comparing import write_mapping
from twintrace.layouts import assemble
from twintrace.model.errors import UsageError
from twintrace.model.pairs import Declared

pytestmark = pytest.mark.needs_torch
pytest.importorskip("torch")

MEGATRON = {
    "blocks.*.up.*": ("shard(0)",),
    "blocks.*.down.weight": ("shard(1)",),
    "blocks.*.down.bias": ("replicate",),
}


@pytest.fixture
def megatron(runs):
    return runs(2, "megatron 2")


def _mapping(path, tensors, mesh=None):
    """A mapping file with placements of the right side."""
    side = {"tensors": {name: list(texts) for name, texts in tensors.items()}} | ({"mesh": mesh} if mesh else {})
    path.write_text(yaml.safe_dump({"mapping": 1, "placements": {"right": side}}))
    return path


def test_what_nothing_else_tells_is_placed_as_the_user_says(megatron):
    """Without the other side pieces of a weight are not told from other weights."""
    trace, one = tt.open(megatron / "megatron 2"), tt.open(megatron / "one")
    journals = [trace.journal(0, rank) for rank in trace.ranks]
    alone = assemble(journals, lambda side: {})
    said = assemble(journals, lambda side: {}, declared=Declared(tensors=MEGATRON))

    assert "blocks.0.up.weight" not in alone.parameters
    wholes = {
        f"{call.site.name}.{name}": number for call in said.journal.calls() for name, number in call.parameters.items()
    }
    mine = {
        f"{call.site.name}.{name}": one.journal(0).tensor(number)
        for call in one.journal(0).calls()
        for name, number in call.parameters.items()
    }
    for name in ("blocks.0.up.weight", "blocks.1.up.bias", "blocks.1.down.weight", "blocks.0.down.bias"):
        whole = said.journal.tensor(wholes[name])
        assert (whole.spec, whole.fingerprint) == (mine[name].spec, mine[name].fingerprint)


def test_what_was_inferred_is_written_corrected_and_given_back(megatron, tmp_path):
    runs = megatron / "one", megatron / "megatron 2"
    write_mapping(*runs, tmp_path / "map.yaml")
    written = yaml.safe_load((tmp_path / "map.yaml").read_text())
    told = written["placements"]["right"]

    assert told["mesh"] == [2]
    assert told["tensors"]["blocks.0.up.weight"] == "shard(0)"
    assert told["tensors"]["blocks.0.down.weight"] == "shard(1)"
    assert told["tensors"]["norm.weight"] == "replicate"
    assert "left" not in written["placements"]
    assert tt.compare(*runs, mapping=tmp_path / "map.yaml").code == 0


def test_a_placement_that_is_wrong_makes_no_agreement(megatron, tmp_path):
    path = _mapping(tmp_path / "map.yaml", {"blocks.0.up.weight": ("replicate",)})
    found = tt.compare(megatron / "one", megatron / "megatron 2", mapping=path)
    assert found.code == 1
    assert "blocks.0.up.weight is not the same on all ranks" in found.first.mistake.what


@pytest.mark.parametrize(
    ("tensors", "mesh", "what"),
    [
        (
            {"norm.weight": ("shard(1)",)},
            None,
            r"norm\.weight: shard\(1\) does not fit the tensors of the ranks, f32\[8\]",
        ),
        (
            {"norm.weight": ("replicate", "shard(0)")},
            None,
            "one placement for each axis of the mesh of the ranks, which is 2",
        ),
        ({}, [2, 2], "a mesh of 2 × 2 has 4 ranks, and the run has 2"),
    ],
)
def test_what_does_not_fit_the_ranks_is_refused(tensors, mesh, what, megatron, tmp_path):
    path = _mapping(tmp_path / "map.yaml", tensors, mesh)
    with pytest.raises(UsageError, match=what):
        tt.compare(megatron / "one", megatron / "megatron 2", mapping=path)


def test_placements_without_effect_are_told(megatron, tmp_path):
    path = _mapping(tmp_path / "map.yaml", {"blocks.7.up.weight": ("replicate",)})
    one = megatron / "one"
    assert any(
        "'blocks.7.up.weight' (placements)" in text
        for text in tt.compare(one, megatron / "megatron 2", mapping=path).remarks
    )
    assert any("placements of the right have no effect" in text for text in tt.compare(one, one, mapping=path).remarks)
