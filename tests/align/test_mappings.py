"""A mapping is written out, edited and given back; what is wrong in it is named with its line."""

import pytest
from nets import attention, mlp, ported_mlp
from sides import alone, names, slots

from twintrace.align import Mapping, align, dumps, load, loads, mapping_of
from twintrace.align.mappings import _SHOWN, Region, Unused
from twintrace.model.errors import UsageError
from twintrace.model.pairs import Declared, Layout, Part

WHOLE = """\
mapping: 1
modules:
  encoder.fc1: enc.dense
calls:
  forward/api:torch.relu#3: forward/api:mindspore.ops.relu#1
regions:
- left: [forward/api:torch.a#0]
  right: [forward/api:b#0, forward/api:c#0]
tensors:
  encoder.fc1: {kw.mask: '1'}
layouts:
  encoder.fc1.weight: [1, 0]
  encoder.conv.weight: reshaped
placements:
  left: {tensors: {"*.bias": replicate}}
  right:
    mesh: [2, 4]
    tensors:
      encoder.fc1.weight: [replicate, shard(0) in 3 blocks]
ignore:
  left: [encoder.dropout]
  right: ['*cast#*']
"""


def test_a_whole_mapping_is_read_and_written():
    mapping = loads(WHOLE)

    assert mapping.modules == {"encoder.fc1": "enc.dense"}
    assert mapping.regions == (Region(("forward/api:torch.a#0",), ("forward/api:b#0", "forward/api:c#0")),)
    assert mapping.layouts == {"encoder.fc1.weight": Layout((1, 0)), "encoder.conv.weight": Layout(None, True)}
    assert mapping.placements == (
        Declared(tensors={"*.bias": ("replicate",)}),
        Declared((2, 4), {"encoder.fc1.weight": ("replicate", "shard(0) in 3 blocks")}),
    )
    assert loads(dumps(mapping)) == mapping


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("", None, "empty"),
        ("- 1\n", 1, "expected `name: …` lines"),
        ("modules: {}\n", 1, "expected `mapping: 1`"),
        ("mapping: 2\n", 1, "expected `mapping: 1`"),
        ("mapping: 1\nmodule:\n  a: b\n", 2, "unknown part 'module'"),
        ("mapping: 1\nmodules:\n  a: b\n  a: c\n", 4, "'a' is there twice"),
        ("mapping: 1\nmodules:\n  a: c\n  b: c\n", 4, "'c' is the partner of 'a' already"),
        ("mapping: 1\nmodules: [a, b]\n", 2, "found a list"),
        ("mapping: 1\nmodules:\n  a: [b]\n", 3, "expected a name, found a list"),
        ("mapping: 1\ncalls:\n  torch.relu: relu\n", 3, "expected two addresses"),
        ("mapping: 1\nregions:\n- left: [a]\n", 3, "calls on both sides"),
        ("mapping: 1\nlayouts:\n  w: [0, 2]\n", 3, "a list of all axes"),
        ("mapping: 1\nlayouts:\n  w: sideways\n", 3, "expected a list"),
        ("mapping: 1\nplacements:\n  right:\n    tensors: {a: split(0)}\n", 4, r"a placement is shard\(0\)"),
        ("mapping: 1\nplacements:\n  right:\n    mesh: [2, 0]\n", 4, "a mesh is a list of lengths"),
        ("mapping: 1\nplacements:\n  both: {}\n", 3, "unknown part 'both'"),
        ("mapping: 1\nignore:\n  up: [a]\n", 3, "unknown part 'up'"),
        ("mapping: 1\nmodules:\n  a: b\n bad\n", 4, "not YAML"),
        ("mapping: 1\nmodules: !!python/object:os.system {}\n", None, None),
    ],
)
def test_what_is_wrong_is_named_with_its_line(text, line, what):
    if what is None:  # a tag means nothing here: nothing is built, nothing is run
        assert loads(text) == Mapping()
        return
    with pytest.raises(UsageError, match=what) as error:
        loads(text, "map.yaml")
    assert str(error.value).startswith("map.yaml: ")
    assert line is None or f"line {line}: " in str(error.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(UsageError, match=r"none\.yaml.*cannot be read"):
        load(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    "sides",
    [
        (mlp(), ported_mlp(split=True, nested=True)),
        (mlp(), ported_mlp(transposed=True)),
        (mlp(), mlp()),
        (attention(fused=True), attention(fused=False, framework="mindspore")),
    ],
)
def test_what_was_found_can_be_given_back(sides, tmp_path):
    """Written, read and followed, it leads to the same pairs and the same layouts."""
    found = align(*sides)
    file = tmp_path / "map.yaml"
    file.write_text(dumps(mapping_of(found)), encoding="utf-8")
    again = align(*sides, mapping=load(file))

    assert names(again) == names(found)
    assert {match.because for match in again.matches} == {"the mapping says so"}
    layouts = [[(p.left_slot, str(p.layout)) for m in a.matches for p in m.tensors] for a in (found, again)]
    assert layouts[0] == layouts[1]


def test_a_mapping_counts_before_everything_else():
    """Said the other way round, two modules are paired the other way round, and what is inside them too."""
    found = align(mlp(), ported_mlp(), mapping=Mapping(modules={"fc1": "dense_mid", "fc2": "dense_in"}))

    assert names(found)["fc1#0"] == "dense_mid#0"
    assert names(found)["fc2#0"] == "dense_in#0"
    assert names(found)["fc3#0"] == "dense_out#0"


def test_what_is_to_be_ignored_takes_no_part():
    found = align(mlp(), ported_mlp(), mapping=Mapping(ignore_left=("*torch.relu#*",), ignore_right=("act*",)))

    assert not any("relu" in name for name in names(found))
    ignored = [
        item for item in (*found.only_left, *found.only_right) if item.because == "the mapping says to ignore it"
    ]
    assert len(ignored) == 2 + 4  # two functions; two modules and what is inside them
    assert all(item.skipped for item in ignored)
    assert alone(found, skipped=False) == ([], [])


def test_layouts_and_slots_that_were_asked_for():
    mapping = Mapping(layouts={"fc1.weight": Layout((1, 0))}, tensors={"forward/api:torch.relu#0": {"0": ""}})
    found = align(mlp(), ported_mlp(), mapping=mapping)
    weight = next(
        p for m in found.matches if m.left[0].site.name == "fc1" for p in m.tensors if p.part is Part.PARAMETER
    )

    assert weight.layout == Layout((1, 0))
    assert weight.because == "the mapping says so"
    assert slots(found, "torch.relu#0", Part.OUTPUT) == {"": ""}


def test_names_that_do_not_occur_have_no_effect():
    mapping = Mapping(
        modules={"nowhere": "dense_in"}, calls={"forward/api:no#0": "forward/api:no#1"}, ignore_left=("gone",)
    )

    assert names(align(mlp(), ported_mlp(), mapping=mapping)) == names(align(mlp(), ported_mlp()))


def test_characters_that_yaml_refuses_are_told():
    """Such an error has no line and no problem of its own, but a text."""
    with pytest.raises(UsageError, match=r"not YAML: .*special characters are not allowed"):
        loads("calls: \x00")


@pytest.mark.parametrize(("count", "more"), [(_SHOWN, ""), (_SHOWN + 2, " and 2 more")])
def test_some_of_the_names_that_do_not_occur_are_told(count, more):
    unused = Unused(Mapping(ignore_left=tuple(f"gone{number}" for number in range(count))))
    unused.saw((), ())

    assert unused.sentence().endswith(f"'gone{_SHOWN - 1}' (ignore){more}."), unused.sentence()
