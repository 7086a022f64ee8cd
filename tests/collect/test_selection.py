"""Which calls are wanted, one condition at a time, and what is refused as a condition."""

import pytest

from twintrace.collect.selection import Selection, Sieve
from twintrace.model.errors import UsageError
from twintrace.model.sites import Kind, Phase, Site


def api(name, path="", call=0, phase=Phase.FORWARD):
    return Site(Kind.API, name, call, phase, path)


def module(name, call=0, phase=Phase.FORWARD):
    return Site(Kind.MODULE, name, call, phase, name.rpartition(".")[0])


@pytest.mark.parametrize(
    ("conditions", "site", "wanted"),
    [
        ({}, api("relu"), True),
        ({"names": ["relu"]}, api("relu"), True),
        ({"names": ["relu"]}, api("relu6"), False),
        ({"names": ["*.relu"]}, api("torch.relu"), True),
        ({"names": ["layers.?"]}, module("layers.1"), True),
        ({"names": ["layers.?"]}, module("layers.11"), False),
        ({"names": ["layers.[02]"]}, module("layers.1"), False),
        ({"names": ["net"]}, api("relu", path="net"), True),
        ({"names": ["net"]}, module("net.first"), False),
        ({"names": [r"re:layers\.\d+"]}, module("layers.11"), True),
        ({"names": [r"re:layers\.\d"]}, module("layers.11"), False),
        ({"names": ["nothing", "re:.*lu"]}, api("relu"), True),
        ({"first": 2}, api("relu", call=1), True),
        ({"first": 2}, api("relu", call=2), False),
        ({"forward_only": True}, api("relu"), True),
        ({"forward_only": True}, api("relu", phase=Phase.RECOMPUTE), False),
        ({"forward_only": True}, api("relu", phase=Phase.UPDATE), False),
        ({"predicate": lambda site: site.call == 3}, api("relu", call=3), True),
        ({"predicate": lambda site: None}, api("relu"), False),
        ({"names": ["relu"], "first": 1}, api("relu", call=1), False),
        ({"between": ("a", "b")}, api("relu"), False),
    ],
)
def test_a_call_is_wanted_when_every_condition_holds(conditions, site, wanted):
    sieve = Sieve(Selection(**conditions))
    assert sieve.wants(site) is wanted
    assert sieve.wants(site) is wanted, "the second answer comes from memory"


def test_a_range_opens_and_closes_and_opens_again():
    sieve = Sieve(Selection(between=("a", "b")))
    seen = []
    for path in ("x", "a", "y", "b", "z", "a"):
        sieve.enter_module(path)
        seen.append(sieve.wants(module(path)))
        sieve.leave_module(path)
    assert seen == [False, True, True, True, False, True]
    sieve.reset()
    assert not sieve.wants(module("y")), "a new step begins outside"


def test_a_range_may_be_one_module():
    sieve = Sieve(Selection(between=("a", "a")))
    sieve.enter_module("a")
    assert sieve.wants(module("a.inner"))
    sieve.leave_module("a")
    assert not sieve.wants(module("b"))


def test_steps_and_ranks_are_not_asked_for_each_call():
    assert Sieve(Selection(steps=[1], ranks=[0])).everything
    for conditions in ({"names": ["a"]}, {"first": 1}, {"forward_only": True}, {"inputs_only": True}):
        assert not Sieve(Selection(**conditions)).everything


def test_steps_and_ranks():
    selection = Selection(steps=range(0, 10, 5), ranks=(1,))
    assert [step for step in range(12) if selection.wants_step(step)] == [0, 5]
    assert [rank for rank in range(3) if selection.wants_rank(rank)] == [1]
    assert Selection().wants_step(7)


@pytest.mark.parametrize(
    ("conditions", "named"),
    [
        ({"first": 0}, "first"),
        ({"first": "2"}, "first"),
        ({"between": ("a",)}, "between"),
        ({"between": ("a", 3)}, "between"),
        ({"predicate": "yes"}, "predicate"),
        ({"names": "*attn*"}, "names"),
        ({"steps": "12"}, "steps"),
        ({"steps": [-1]}, "steps"),
        ({"ranks": [0.5]}, "ranks"),
    ],
)
def test_what_cannot_work_is_refused_by_name(conditions, named):
    with pytest.raises(UsageError, match=f"^{named}: expected"):
        Selection(**conditions)


def test_a_pattern_that_is_none_is_refused():
    with pytest.raises(UsageError, match=r"names: 're:\(' is not a regular expression"):
        Sieve(Selection(names=["re:("]))
