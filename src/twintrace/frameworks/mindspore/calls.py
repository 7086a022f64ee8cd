"""Functions, methods, operators and primitives: every public call of MindSpore, seen in the function that is called.

    while recording:  x + y, ops.relu(x), mint.cat([x, y]), x[0], ops.MatMul()(x, y), a function that was imported before

Inside a call nothing is reported, so only the outermost function is: what the user's code, or a Cell, has called.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from mindspore import Tensor

from ...model.sites import Kind, Phase
from ..protocol import Sink
from .gradients import HAS_NODES, Gradients, is_quiet, next_sequence_number, unseen, without_gradient
from .modules import end_without_result, present_phase
from .names import (
    COLLECTIVES,
    WRITING_PRIMITIVES,
    Api,
    describe_primitive,
    functions,
    group_among,
    methods,
    primitives,
    ranks_of,
    settings_of,
)
from .patches import Patch
from .tensors import wrote
from .updates import Updates


class _Inside(threading.local):
    """True while this thread is inside a call. One for all recorders: what is inside for one is inside for all."""

    def __init__(self) -> None:
        self.owners: set[int] = set()


_INSIDE = _Inside()
_UNKNOWN = object()


class Calls:
    """Puts the layers in place. Where calls are not recorded, only those that write are watched, for their writes."""

    def __init__(self, sink: Sink, gradients: Gradients, *, recorded: bool) -> None:
        self._sink, self._gradients, self._recorded = sink, gradients, recorded
        self._updates = Updates(sink if recorded else None)
        self._primitives: dict[Any, Any] = {}
        self._patches: list[Patch] = []
        self._patched: dict[type, Patch] = {}

    def install(self) -> Iterator[Callable[[], None]]:
        """Install; yields what undoes each change."""
        yield from self._updates.install()
        yield self._primitives.clear
        if not self._patches:
            self._patches.extend(self._planned())
        for each in self._patches:
            yield each.install()
        layer = self._primitive_layer if self._recorded else _announcing
        for kind in primitives():  # asked anew: there may be more by now
            if self._recorded or kind.__name__.startswith(WRITING_PRIMITIVES):
                if kind not in self._patched:
                    self._patched[kind] = Patch(kind, "__call__", layer)
                yield self._patched[kind].install()

    def _planned(self) -> Iterator[Patch]:
        for function, api in functions():
            if self._recorded or api.may_write:
                yield Patch(function, "__call__", functools.partial(self._layer, api))
        for name, attribute, api in methods():
            if isinstance(attribute, property) or type(attribute).__name__ == "getset_descriptor":
                if self._recorded:
                    yield Patch(Tensor, name, functools.partial(self._attribute_layer, api, attribute))
            elif self._recorded or api.may_write:
                yield Patch(Tensor, name, functools.partial(self._layer, api))

    def _layer(self, api: Api, original: Any) -> Any:
        if not self._recorded:
            return _announcing(original)
        collects = api.name.startswith(COLLECTIVES)

        def call(*args: Any, **kwargs: Any) -> Any:
            if self._sink.busy or is_quiet() or id(self) in _INSIDE.owners or self._updates.own:
                return original(*args, **kwargs)
            settings = ranks_of(group_among(args, kwargs)) if collects else None
            return self._call(api, original, args, kwargs, settings=settings)

        return call

    def _attribute_layer(self, api: Api, attribute: Any, original: Any) -> Any:
        inner = original if original is not None and hasattr(original, "__get__") else attribute

        def read(this: Any) -> Any:
            def original_read(tensor: Any) -> Any:
                return inner.__get__(tensor, type(tensor))

            if self._sink.busy or is_quiet() or id(self) in _INSIDE.owners or self._updates.own:
                return original_read(this)
            return self._call(api, original_read, (this,), {})

        return property(read)

    def _primitive_layer(self, original: Any) -> Any:
        def __call__(primitive: Any, /, *args: Any, **kwargs: Any) -> Any:
            if self._sink.busy or is_quiet() or id(self) in _INSIDE.owners or self._updates.own:
                return original(primitive, *args, **kwargs)
            # Facts about the primitive, not itself: it may be one of many.
            key = (
                type(primitive),
                primitive.name,
                vars(primitive).get("side_effect_mem"),
            )
            api = self._primitives.get(key, _UNKNOWN)
            if api is _UNKNOWN:
                api = self._primitives[key] = describe_primitive(primitive)
            if api is None:
                return original(primitive, *args, **kwargs)
            return self._call(
                api, functools.partial(original, primitive), args, kwargs, settings=settings_of(primitive)
            )

        return __call__

    def report(self, name: str, function: Any, args: Any, kwargs: Any) -> Any:
        """Run a function that is none of MindSpore's as a call of this name."""
        if not self._recorded or self._sink.busy or is_quiet() or id(self) in _INSIDE.owners or self._updates.own:
            return function(*args, **kwargs)
        # A hook on a tensor would be compiled in.
        return self._call(Api(name), function, args, kwargs, follows=HAS_NODES)

    def _call(
        self,
        api: Api,
        original: Any,
        args: Any,
        kwargs: Any,
        *,
        follows: bool = True,
        settings: Mapping[str, Any] | None = None,
    ) -> Any:
        mutates = api.mutates(args, kwargs) if api.may_write else ()
        with unseen():
            call = self._sink.enter(
                Kind.API, api.name, args, kwargs, phase=self._phase(), mutates=mutates, settings=settings
            )
            follows = follows and call is not None and call.wants_gradients
            inputs = self._gradients.begin(call) if call is not None and follows else []
            given, named, restore = self._gradients.tap(call if follows else None, args, kwargs, mutates)
        _INSIDE.owners.add(id(self))
        start = next_sequence_number(inputs)
        try:
            output = restore(original(*given, **named))
        except BaseException as error:
            restore(None)
            if call is not None:
                end_without_result(self._sink, call, error)
            raise
        finally:
            _INSIDE.owners.discard(id(self))
            if mutates:
                wrote()
        if call is None:
            return output
        with unseen():
            self._sink.leave(call, output, missing=without_gradient(call, mutates, start) if mutates and inputs else ())
            if follows:
                self._gradients.follow(call, inputs, start)
        return output

    def _phase(self) -> Phase:
        return Phase.UPDATE if self._updates.running else present_phase()


def _announcing(original: Any) -> Any:
    """A layer for what writes where calls are not recorded: its writes are known all the same."""

    def writing(*args: Any, **kwargs: Any) -> Any:
        try:
            return original(*args, **kwargs)
        finally:
            wrote()

    return writing
