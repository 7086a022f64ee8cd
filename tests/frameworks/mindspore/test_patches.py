"""Layers that are put in and taken out many times: what was built for them is kept, as long as it fits."""

import pytest

pytest.importorskip("mindspore")

from twintrace.frameworks.mindspore.patches import Patch, patch

pytestmark = pytest.mark.needs_mindspore


def doubled(original):
    def layer(*args, **kwargs):
        return 2 * original(*args, **kwargs)

    return layer


class Layers:
    """Counts how often it was built."""

    def __init__(self):
        self.built = 0

    def __call__(self, original):
        self.built += 1
        return doubled(original)


@pytest.fixture
def function():
    def number(value=3):
        return value

    return number


def test_what_was_built_is_kept(function):
    layers = Layers()
    again, code = Patch(function, "__call__", layers), function.__code__
    for _ in range(5):
        remove = again.install()
        assert function() == 6
        remove()
        assert function() == 3
        assert function.__code__ is code
    assert layers.built == 1


def test_what_was_changed_meanwhile_is_respected(function):
    """A default, the code, an attribute: what the layer is put on is what is there now."""
    again = Patch(function, "__call__", doubled)
    again.install()()
    function.__defaults__ = (5,)
    remove = again.install()
    assert function() == 10
    remove()
    function.__code__ = (lambda value=0: value + 1).__code__
    remove = again.install()
    assert function() == 12
    remove()
    assert function() == 6

    class Owner:
        def method(self):
            return 1

    attribute = Patch(Owner, "method", doubled)
    attribute.install()()
    Owner.method = lambda self: 4
    remove = attribute.install()
    assert Owner().method() == 8
    remove()
    assert Owner().method() == 4


def test_two_come_and_go_in_any_order(function):
    one, two = Patch(function, "__call__", doubled), Patch(function, "__call__", lambda f: lambda *a: 10 + f(*a))
    first, second = one.install(), two.install()
    assert function() == 16
    first()
    assert function() == 13
    third = one.install()
    assert function() == 26
    second()
    assert function() == 6
    third()
    assert function() == 3
    remove = patch(function, "__call__", doubled)
    assert function(1) == 2
    remove()
    assert function(1) == 1


def test_the_variables_of_a_closure_that_is_replaced_can_be_read():
    """Debuggers and test runners read those of each frame on the way to an error: it ended the process."""
    import sys

    __class__, target = 5, 3

    def closure(value):
        return value + __class__ * target

    frames = []
    remove = patch(
        closure, "__call__", lambda original: lambda *given: frames.append(sys._getframe(1)) or original(*given)
    )
    assert closure(1) == 16
    [frame] = frames
    seen = frame.f_locals
    remove()
    assert closure(2) == 17
    assert (seen["__class__"], seen["target"]) == (5, 3)
    assert frame.f_code.co_filename.endswith("patches.py")
