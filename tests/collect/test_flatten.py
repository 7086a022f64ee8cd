"""Nested Python in, JSON out; tensors found with their slots; nothing that a user passes raises."""

import collections
import dataclasses
import enum
import json
import math
import types
import weakref

import numpy as np
import pytest

from twintrace.collect.flatten import MAX_DEPTH, MAX_ITEMS, MAX_TEXT, Flattener
from twintrace.frameworks.reference import FRAMEWORK
from twintrace.frameworks.reference.miniature import RANDOM, Tensor
from twintrace.model.values import Nest, TensorRef, Token, leaves
from twintrace.store.lines import value_of


class Colour(enum.Enum):
    RED = 1


class Size(enum.IntEnum):
    LARGE = 3


class Text(str):
    pass


Point = collections.namedtuple("Point", "x y")


@dataclasses.dataclass
class Pair:
    left: object
    right: object


def flatten(value, slot="0"):
    """The value as a reader sees it, and the slots of its tensors, which are numbered as they are found."""
    found = []
    flattener = Flattener(FRAMEWORK, lambda tensor: len(found) - 1)
    return value_of(json.loads(flattener.flatten(value, slot, found))), [slot for slot, _ in found]


@pytest.mark.parametrize(
    "value", [None, True, False, 0, -7, 2**80, 1.5, -0.0, "text", "", 'quotes " and \\', "ümlaut\u2028", 1 + 2j]
)
def test_plain_values_stand_for_themselves(value):
    found, _ = flatten(value)
    assert repr(found) == repr(value)


@pytest.mark.parametrize("value", [math.inf, -math.inf, complex(0, math.inf)])
def test_infinities_come_back(value):
    assert flatten(value)[0] == value


def test_nan_comes_back():
    assert math.isnan(flatten(math.nan)[0])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float32(1.5), 1.5),
        (np.float64(1.5), 1.5),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (Text("t"), "t"),
        (Size.LARGE, Token("enum", "Size.LARGE")),
        (Colour.RED, Token("enum", "Colour.RED")),
        (slice(1, None, 2), Token("slice", "1::2")),
        (slice(None, 3), Token("slice", ":3")),
        (..., Token("ellipsis", "...")),
        (RANDOM, Token("generator", "reference.Generator")),
        (len, Token("callable", "len")),
        (Pair, Token("callable", "Pair")),
        (object(), Token("opaque", "builtins.object")),
        (np.zeros(3), Token("opaque", "numpy.ndarray")),
        (b"bytes", Token("opaque", "builtins.bytes")),
        (iter([]), Token("opaque", "builtins.list_iterator")),
    ],
)
def test_other_values_become_plain_or_tokens(value, expected):
    assert flatten(value)[0] == expected


@pytest.mark.parametrize(
    ("value", "kind", "keys"),
    [
        ([1, 2], "list", "01"),
        ((1, 2), "tuple", "01"),
        ({"a": 1, "b": 2}, "dict", "ab"),
        ({1: 1, None: 2}, "dict", ["1", "None"]),
        ({2, 1}, "set", "01"),
        (frozenset((1, 2)), "set", "01"),
        (Point(1, 2), "Point", "xy"),
        (Pair(1, 2), "Pair", ["left", "right"]),
        (collections.OrderedDict(a=1, b=2), "OrderedDict", "ab"),
        (types.MappingProxyType({"a": 1, "b": 2}), "mappingproxy", "ab"),
    ],
    ids=repr,
)
def test_containers_keep_their_kind_and_their_keys(value, kind, keys):
    assert flatten(value)[0] == Nest(kind, tuple(zip(keys, (1, 2), strict=True)))


def test_tensors_are_found_with_their_slots():
    x = Tensor([1.0])
    value, slots = flatten({"a": [x, 1], "b": Point(x, Pair(None, (x,)))}, "kw.options")
    assert slots == ["kw.options.a.0", "kw.options.b.x", "kw.options.b.y.right.0"]
    assert [leaf for _, leaf in leaves(value) if isinstance(leaf, TensorRef)] == [TensorRef(n) for n in range(3)]


def test_a_bare_result_has_an_empty_slot():
    assert flatten(Tensor([1.0]), "")[1] == [""]
    assert flatten((Tensor([1.0]), {"k": Tensor([1.0])}), "")[1] == ["0", "1.k"]


def test_long_texts_are_cut():
    found, _ = flatten("x" * 10_000)
    assert found == "x" * MAX_TEXT + "…"


@pytest.mark.parametrize("bits", [4_000, 40_000])
def test_endless_integers_are_not_written_out(bits):
    assert isinstance(flatten(2**bits)[0], Token)
    assert isinstance(flatten(-(2**bits))[0], Token)


def test_what_is_too_wide_is_said_to_be():
    assert len(flatten([0] * MAX_ITEMS)[0].items) == MAX_ITEMS
    found, _ = flatten([Tensor([1.0])] * (MAX_ITEMS + 1))
    assert found == Token("opaque", f"list of {MAX_ITEMS + 1} items, not recorded: too deep or too many")


def test_what_is_too_deep_is_said_to_be():
    value = []
    value.append(value)
    found, _ = flatten(value)
    for _ in range(MAX_DEPTH):
        ((_, found),) = found.items
    assert found == Token("opaque", "list of 1 items, not recorded: too deep or too many")


def test_what_is_large_all_in_all_is_cut_too():
    """Neither too wide nor too deep anywhere, and yet 2**16 leaves: the line must stay of a sane length."""
    value = [1]
    for _ in range(16):
        value = [value, value]
    count = sum(1 for _ in leaves(flatten(value)[0]))
    assert count <= 2 * MAX_ITEMS


# --- nothing raises because of what a user passes ---------------------------------------------------------------------


class NoText:
    def __str__(self):
        raise RuntimeError("no text")

    __repr__ = __str__


class NoClass:
    @property
    def __class__(self):
        raise RuntimeError("no class")


class NoAttributes:
    def __getattr__(self, name):
        raise RuntimeError("no attributes")


class NoName:
    def __getattribute__(self, name):
        raise RuntimeError("no name")

    def __call__(self): ...


class FalseFields(tuple):
    _fields = ("only", "two")


class NoFields(tuple):
    _fields = 3


class NoValues(collections.UserDict):
    def values(self):
        raise RuntimeError("no values")


class NoLength(collections.UserDict):
    def __iter__(self):
        return iter(["a", "b", "c"])

    def values(self):
        return [1]


@dataclasses.dataclass
class NoField:
    value: int = 0

    def __getattribute__(self, name):
        if name == "value":
            raise RuntimeError("no field")
        return super().__getattribute__(name)


def dead_proxy():
    return weakref.proxy(Text("gone"))


class NoHash(type):
    """Of classes that cannot be in a set."""

    __hash__ = None


HOSTILE = {
    "an object of a class without hash": lambda: NoHash("Odd", (), {})(),
    "an object without text": NoText,
    "a key without text": lambda: {NoText(): 1},
    "a set of what has no text": lambda: {NoText(), NoText()},
    "a slice of what has no text": lambda: slice(NoText()),
    "an object without class": NoClass,
    "an object without attributes": NoAttributes,
    "a callable without name": NoName,
    "a tuple with more fields than items": lambda: FalseFields((1,)),
    "a tuple whose fields are a number": lambda: NoFields((1,)),
    "a mapping without values": lambda: NoValues(a=1),
    "a mapping with more keys than values": NoLength,
    "a dataclass without its field": NoField,
    "a proxy of what is gone": dead_proxy,
}


@pytest.mark.parametrize("make", HOSTILE.values(), ids=HOSTILE)
def test_nothing_that_a_user_passes_raises(make):
    found, slots = flatten([make(), 1, Tensor([1.0])])
    assert found.items[1:] == (("1", 1), ("2", TensorRef(0))), "what comes after it is there"
    assert slots == ["0.2"]
