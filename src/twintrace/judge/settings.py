"""Settings that differ between two calls, whatever the two sides call them.

    LayerNorm(eps=1e-05)   LayerNorm(epsilon=1e-07)      eps: 1e-05 | 1e-07
    softmax(x, -1)         softmax(x, dim=1)             dim: 2 | 1, axes are counted from the front
    linear(x, w, b)        linear(x, w)                  bias: a tensor | None
    F.gelu(x)              nn.GELU()(x)                  approximate: 'none' | 'tanh', MindSpore's default

Calls are compared by their meanings: arguments by name, defaults filled in, in one convention (`operations`). Where one has no
meaning (a class of the user's, an attribute that was not recorded), what was written is compared: between two calls of the same
name everything, and what only one side has is told; between different ones only what both have, because that one framework has
a setting more is no difference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from ..model.records import Call
from ..model.values import Nest, TensorRef, Token, Value, leaves
from ..operations import Argument, Meaning, Operand, different_arguments, equal_arguments, traits_of
from ..operations.meanings import FRAMEWORKS_OWN, told
from ..operations.steps import STEPS

Readers: TypeAlias = "tuple[Callable[[Call], Meaning | None], Callable[[Call], Meaning | None]]"
"""Meanings of the calls of the left side and of the right; None where one cannot be told."""

SYNONYMS: Mapping[str, str] = {
    "epsilon": "eps", "variance_epsilon": "eps", "axis": "dim", "keep_dims": "keepdim", "keepdims": "keepdim", "has_bias": "bias",
    "use_bias": "bias", "learning_rate": "lr", "init_learning_rate": "lr", "beta1": "betas.0", "beta2": "betas.1",
    "use_nesterov": "nesterov", "use_amsgrad": "amsgrad",
}  # fmt: skip
"""Names of one setting, to the one that is shown, for classes and optimizers that have no meaning."""

_UNTOLD = frozenset({"training", "name", "auto_prefix", "cls_name", "data_format", "format", "prefix"})
"""Between different frameworks: bookkeeping, or shown elsewhere."""


def different_settings(
    left: Sequence[Call], right: Sequence[Call], readers: Readers | None = None
) -> Mapping[str, tuple[str, str]]:
    """Settings that differ between two calls, by name, as text; nothing for regions of several calls."""
    if len(left) != 1 or len(right) != 1:
        return {}
    one, two = left[0], right[0]
    alike = one.site.type == two.site.type if one.site.kind == "module" else one.site.name == two.site.name
    if alike and _same_record(one, two):
        return {}
    if readers is not None:
        meanings = readers[0](one), readers[1](two)
        if meanings[0] is not None and meanings[1] is not None:
            same = meanings[0].operation == meanings[1].operation
            if not alike and (not same or traits_of(meanings[0]).moves):
                return {}  # arguments of two operations are no settings of one; how values lie is the pairing's to tell
            if same:
                return _meant(meanings[0], meanings[1])
    if alike and _own_names(one) == _own_names(two):
        return _compared(dict(_settings(one)), dict(_settings(two)), everything=True)
    sides = [{canonical(name): value for name, value in _settings(call) if _telling(name)} for call in (one, two)]
    return _compared(sides[0], sides[1], everything=False)


def _meant(left: Meaning, right: Meaning) -> dict[str, tuple[str, str]]:
    """Arguments in which two meanings of one operation differ. Tensors are compared elsewhere, but that one is missing is told."""
    found: dict[str, tuple[str, str]] = {}
    for name in sorted((left.arguments.keys() & right.arguments.keys()) - FRAMEWORKS_OWN):
        one, two = left.arguments[name], right.arguments[name]
        if isinstance(one, Operand) or isinstance(two, Operand):
            # Which state an optimizer keeps is its own.
            differs = (one is None or two is None) and left.operation not in STEPS
        else:
            differs = not (_is_state(one) or _is_state(two) or equal_arguments(one, two))
        if differs:
            found[name] = told(one), told(two)
    return found


def other_arguments(left: Meaning, right: Meaning) -> dict[str, tuple[str, str]]:
    """Arguments in which two meanings of one operation differ, by name, as text. Tensors are not compared, and what no user can
    set is left out.
    """
    different = different_arguments(left, right)
    return {
        name: (told(one), told(two)) for name, (one, two) in sorted(different.items()) if name not in FRAMEWORKS_OWN
    }


def _is_state(value: Argument) -> bool:
    """True of tensors, one for each parameter of an optimizer, or of the places for them."""
    nothing = isinstance(value, tuple) and bool(value) and all(item is None for item in value)
    return nothing or isinstance(value, Operand) or (isinstance(value, tuple) and any(map(_is_state, value)))


def _same_record(one: Call, two: Call) -> bool:
    """True if both say the same but for which tensors: then nothing is to be read."""
    return len(one.args) == len(two.args) and all(
        left.keys() == right.keys() and all(_same_value(value, right[name]) for name, value in left.items())
        for left, right in zip(_written(one), _written(two), strict=True)
    )


def _written(call: Call) -> tuple[Mapping[Any, Value], ...]:
    """Arguments and settings of a call, with the names of its parameters and buffers."""
    held = dict.fromkeys((*call.parameters, *call.buffers))
    return dict(enumerate(call.args)), call.kwargs, call.config.values if call.config else {}, held


def _same_value(one: Value, two: Value) -> bool:
    if isinstance(one, Nest) and isinstance(two, Nest):
        names = [name for name, _ in one.items] == [name for name, _ in two.items]
        return names and all(_same_value(a, b) for (_, a), (_, b) in zip(one.items, two.items, strict=True))
    return type(one) is type(two) and (isinstance(one, TensorRef) or one == two)


def another_number(settings: Mapping[str, tuple[str, str]]) -> bool:
    """True if a fraction is among them (an epsilon, a share, a factor) that is not the same, or given on one side only."""
    return any(
        any(map(_is_fraction, sides)) and all(side == NOT_GIVEN or _is_number(side) for side in sides)
        for sides in settings.values()
    )


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _is_fraction(text: str) -> bool:
    return _is_number(text) and not text.lstrip("-").isdigit()


def _own_names(call: Call) -> set[str]:
    return set(call.config.values) if call.config else set()


def canonical(name: str) -> str:
    """The name that is shown, for all that mean the same: `epsilon.0` is `eps.0`, an optimizer's `groups.0.lr` is `lr`."""
    head, dot, rest = name.removeprefix("settings.").removeprefix("groups.0.").partition(".")
    return SYNONYMS.get(head, head) + dot + rest


def number_set(call: Call, name: str) -> float | None:
    """The number that a setting has in a call, by the name that is shown; None if it has none."""
    found = (value for own, value in _settings(call) if canonical(own) == name)
    return next((float(value) for value in found if isinstance(value, int | float)), None)


def _telling(name: str) -> bool:
    return not name.startswith("argument ") and name.partition(".")[0] not in _UNTOLD


def _compared(left: dict[str, Value], right: dict[str, Value], *, everything: bool) -> dict[str, tuple[str, str]]:
    found: dict[str, tuple[str, str]] = {}
    for name in sorted(left.keys() | right.keys()):
        sides = [_lookup(side, name) for side in (left, right)]
        if any(side is _NOTHING for side in sides):
            if not everything or None in sides:
                continue
        elif _equal(sides[0], sides[1]):
            continue
        texts = [_text(side) for side in sides]
        if texts[0] != texts[1]:
            found[name] = (texts[0], texts[1])
    return found


NOT_GIVEN = "not given"
_NOTHING = Token("nothing", NOT_GIVEN)
_TENSOR = Token("tensor", "a tensor")


def _lookup(side: Mapping[str, Value], name: str) -> Value:
    """`stride` of one side is `stride.0` of the other, where one number stands for all axes."""
    if name in side:
        return side[name]
    head, dot, _ = name.rpartition(".")
    return side[head] if dot and head in side else _NOTHING


def _equal(left: Value, right: Value) -> bool:
    if isinstance(left, bool) != isinstance(right, bool):
        return False
    if isinstance(left, int | float) and isinstance(right, int | float):
        return left == right or math.isclose(left, right, rel_tol=1e-9) or (left != left and right != right)
    return _text(left) == _text(right)


def _settings(call: Call) -> Iterator[tuple[str, Value]]:
    if call.config:
        for name, value in call.config.values.items():
            yield from _scalars(name, value)
    for position, value in enumerate(call.args):
        yield from _scalars(f"argument {position}", value)
    for name, value in call.kwargs.items():
        yield from _scalars(name, value)


def _scalars(name: str, value: Value) -> Iterator[tuple[str, Value]]:
    if isinstance(value, TensorRef):
        yield name, _TENSOR
    for slot, leaf in leaves(value, name):
        if not isinstance(leaf, TensorRef | Nest):
            yield slot, leaf


def _text(value: Value) -> str:
    return value.text if isinstance(value, Token) else repr(value)
