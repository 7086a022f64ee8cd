"""A collective as a function of the whole.

    all_reduce of a sum         the identity: the whole is the same before and after
    all_reduce of copies        times the number of ranks
    all_gather of shards        the identity, or the pieces one by one
    reduce_scatter of a sum     the identity

`meaning` puts it into the arguments of the merged call, where `operations` reads it; None where the whole after a collective is no
function of the whole before it: then nothing is claimed of it, and what comes of it is not recomputed through it.

MindSpore's collectives have the names that torch.distributed's have, or are primitives with a name, a group and an operation among
their settings: `as_torch_says` puts the last two where torch has them, and everything else reads one convention.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ..model.records import Call
from ..model.values import Nest, TensorRef, Token, Value, leaves
from .meshes import Mesh
from .placements import Part, Placements, shard

HOMES = ("torch.distributed.", "mindspore.mint.distributed.")
"""Modules whose collectives write into an argument."""
_RETURNING = ("_c10d_functional.", "mindspore.communication.comm_func.")
"""Modules whose collectives return their result."""
_PRIMITIVES = {
    "mindspore.ops.AllReduce": "all_reduce", "mindspore.ops.AllGather": "all_gather_into_tensor",
    "mindspore.ops.ReduceScatter": "reduce_scatter_tensor", "mindspore.ops.Broadcast": "broadcast",
}  # fmt: skip
_OTHERS = frozenset(
    f"mindspore.ops.{name}"
    for name in ("AlltoAll", "AlltoAllV", "AllGatherV", "ReduceScatterV", "Reduce", "CollectiveGather", "CollectiveScatter",
                 "NeighborExchange", "NeighborExchangeV2", "Send", "Receive", "Barrier")
)  # fmt: skip
"""Primitives of which it is not told what they make of the whole."""
_WORLD = "_world_group"
"""End of the names that MindSpore has for the group of all ranks."""
REDUCING = frozenset(("all_reduce", "reduce_scatter", "reduce_scatter_tensor", "reduce_scatter_single"))
COLLECTING = frozenset((*REDUCING, "all_gather", "all_gather_into_tensor", "all_gather_single"))
"""Collectives whose results follow from what the ranks give."""
GATHERING = frozenset(("all_gather", "all_gather_into_tensor", "all_gather_single"))


@dataclass(frozen=True, slots=True)
class Collective:
    """A merged call of a collective: what goes in, what comes out, along which axes of the mesh, and how it reduces."""

    call: Call
    name: str
    taken: tuple[int, ...]
    made: tuple[int, ...]
    axes: tuple[int, ...] | None
    """None: the groups of the ranks do not lie along axes of the mesh, or are not known."""
    operation: str

    source: int | None = None
    """Rank that a broadcast starts from."""

    @property
    def reduces(self) -> bool:
        return self.name in REDUCING


def collective_of(call: Call, mesh: Mesh) -> Collective | None:
    """A merged call as a collective; None if it is none."""
    if call.site.name in _PRIMITIVES:
        return _functional(call, _PRIMITIVES[call.site.name], mesh)
    home = next((prefix for prefix in (*HOMES, *_RETURNING) if call.site.name.startswith(prefix)), None)
    if home is None:
        return None
    name = call.site.name.removeprefix(home)
    if home in _RETURNING:
        return _functional(call, name.partition(".")[0].rstrip("_"), mesh)
    if name not in REDUCING | GATHERING | {"broadcast", "all_to_all", "all_to_all_single", "reduce"}:
        return None
    made = tuple(call.after.values())
    written = {slot.partition(".")[0] if not slot.startswith("kw.") else slot for slot in call.after}
    taken = []
    for slot, value in [
        *((str(place), value) for place, value in enumerate(call.args)),
        *((f"kw.{key}", value) for key, value in call.kwargs.items()),
    ]:
        if name in ("all_reduce", "broadcast", "reduce") or slot not in written:
            taken += [leaf.id for _, leaf in leaves(value) if isinstance(leaf, TensorRef)]
    return Collective(call, name, tuple(taken), made, _axes(call, mesh), _operation(call), _source(call))


def is_collective(call: Call) -> bool:
    """True for what ranks do together, also where it is not told what it makes of the whole."""
    name = call.site.name
    return name.startswith((*HOMES, *_RETURNING)) or name in _PRIMITIVES or name in _OTHERS


def as_torch_says(call: Call) -> Call:
    """A collective of MindSpore with its group and operation among its arguments; any other call as it is."""
    if not call.site.name.startswith("mindspore.") or not is_collective(call):
        return call
    settings = {} if call.config is None else call.config.values
    ranks = settings.get("ranks")
    group = settings.get("group") or next((item for item in call.args if isinstance(item, str) and _WORLD in item), "")
    told: dict[str, Value] = {}
    if isinstance(ranks, str):
        told["group"] = Token("group", ranks)
    elif not str(group).endswith(_WORLD):
        told["group"] = Token("opaque", f"ProcessGroup {group}")
    operation = settings.get("op", call.kwargs.get("op", call.args[1] if len(call.args) > 1 else None))
    if isinstance(operation, str) and operation.upper() in ("SUM", "AVG", "MAX", "MIN", "PROD"):
        told["op"] = Token("reduce_op", operation.upper())
    return replace(call, kwargs={**call.kwargs, **told})


def _functional(call: Call, name: str, mesh: Mesh) -> Collective | None:
    """A functional collective, which returns its result. Kernels of PyTorch name a group, known on a line alone."""
    taken = [leaf.id for value in call.args[:1] for _, leaf in leaves(value) if isinstance(leaf, TensorRef)]
    made = [leaf.id for _, leaf in leaves(call.output) if isinstance(leaf, TensorRef)]
    words = {value.upper() for value in call.args if isinstance(value, str)}
    operation = next((word for word in ("SUM", "AVG", "MAX", "MIN") if word in words), "SUM")
    if name not in COLLECTING | {"all_to_all_single", "broadcast"} or not taken or not made:
        return None
    if not call.site.name.startswith("_c10d_functional."):
        return Collective(call, name, tuple(taken), tuple(made), _axes(call, mesh), _operation(call), _source(call))
    return Collective(call, name, tuple(taken), tuple(made), (0,) if mesh.rank_axes == (0,) else None, operation)


def groups_of(call: Call) -> list[list[int]]:
    """Ranks of the process groups that a merged call names: one group, or those of the ranks where they name others."""
    for value in (*call.args, *call.kwargs.values()):
        if isinstance(value, Token) and (value.kind == "group" or (value.kind == "ranks" and "group" in value.text)):
            return [
                [int(item) for item in "".join(sign if sign.isdigit() else " " for sign in part).split()]
                for part in value.text.split(" | ")
            ]
    return []


def _axes(call: Call, mesh: Mesh) -> tuple[int, ...] | None:
    axes = {mesh.axes_of(ranks) for ranks in groups_of(call)}  # as a rule the rows of a mesh
    if axes:
        return axes.pop() if len(axes) == 1 else None
    tokens = [value for value in (*call.args, *call.kwargs.values()) if isinstance(value, Token)]
    unknown = any(
        (token.kind == "opaque" and "ProcessGroup" in token.text) or (token.kind == "ranks" and "," in token.text)
        for token in tokens
    )
    return None if unknown else mesh.rank_axes


def _source(call: Call) -> int | None:
    values = [*call.args[1:2], *(call.kwargs.get(name) for name in ("src", "group_src"))]
    return next((value for value in values if isinstance(value, int)), None)


def splits_of(ranks: Sequence[Call], index: int, lengths: Sequence[int]) -> tuple[tuple[int, int, int], ...]:
    """Rows that one rank of a group gets of each in an all-to-all: `(which, start, length)`.

    Args:
        ranks: the calls of the ranks of the group, in their order.
        index: of the rank that gets them.
        lengths: rows that each rank gives.
    """
    splits = []
    for which, (call, length) in enumerate(zip(ranks, lengths, strict=True)):
        sizes = _split_sizes(call) or [length // len(ranks)] * len(ranks)
        splits.append((which, sum(sizes[:index]), sizes[index]))
    return tuple(splits)


def _split_sizes(call: Call) -> list[int]:
    """Rows that a rank gives to each, where it says so."""
    functional = call.site.name.startswith("_c10d_functional.")
    value = call.kwargs.get(
        "input_split_sizes", call.args[2 if functional else 3] if len(call.args) > 3 - functional else None
    )
    return [item for _, item in leaves(value) if isinstance(item, int)] if isinstance(value, Nest) else []


def _operation(call: Call) -> str:
    for value in (*call.args, *call.kwargs.values()):
        if isinstance(value, Token) and value.kind == "reduce_op":
            return value.text.upper()
    return "SUM"


def as_function(
    collective: Collective, placements: Callable[[int], Placements | None], factor: Callable[[int], float], mesh: Mesh
) -> Call:
    """The merged call with its meaning for the whole among its arguments, under `whole`; as it was where it has none."""
    told = _function(collective, placements, mesh)
    verb, _, number = (told or "").partition(" ")
    if told is not None and verb == "times":
        told = f"times {float(number) * factor(collective.made[0]) / factor(collective.taken[0])!r}"
    if told is None:
        return replace(
            collective.call,
            mutates=(),
            after={},
            output=_listed(collective.made),
            kwargs={**collective.call.kwargs, "whole": None},
        )
    return replace(
        collective.call,
        args=tuple(TensorRef(number) for number in collective.taken),
        kwargs={"whole": told},
        output=_listed(collective.made),
        mutates=(),
        after={},
    )


def _listed(numbers: tuple[int, ...]) -> Value:
    if len(numbers) == 1:
        return TensorRef(numbers[0])
    return Nest("list", tuple((str(place), TensorRef(number)) for place, number in enumerate(numbers)))


def _function(collective: Collective, placements: Callable[[int], Placements | None], mesh: Mesh) -> str | None:
    if collective.axes is None or not collective.taken or not collective.made:
        return None
    ranks = 1
    for axis in collective.axes:
        ranks *= mesh.shape[axis]
    before, after = placements(collective.taken[0]), placements(collective.made[0])
    if before is None or after is None:
        return None
    along = {before[axis].part for axis in collective.axes}, {after[axis].part for axis in collective.axes}
    if len(along[0]) > 1 or len(along[1]) > 1:
        return None
    one, two = along[0].pop(), along[1].pop()
    others = [axis for axis in range(len(mesh.shape)) if axis not in collective.axes]
    if any(before[axis] != after[axis] for axis in others):
        return None
    if collective.name == "all_reduce" and two is Part.REPLICATE:
        factors = {
            ("SUM", Part.SUM): 1.0, ("SUM", Part.MEAN): float(ranks), ("SUM", Part.REPLICATE): float(ranks),
            ("AVG", Part.SUM): 1.0 / ranks, ("AVG", Part.MEAN): 1.0, ("AVG", Part.REPLICATE): 1.0,
            ("MAX", Part.REPLICATE): 1.0, ("MIN", Part.REPLICATE): 1.0,
        }  # fmt: skip
        factor = factors.get((collective.operation, one))
        return None if factor is None else f"times {factor!r}"
    if collective.name in ("all_gather_into_tensor", "all_gather_single") and two is Part.REPLICATE:
        # Along several axes of the mesh the ranks lie in their order, row by row, and so do the pieces.
        return "times 1.0" if one is Part.SHARD and all(before[axis] == shard(0) for axis in collective.axes) else None
    if collective.name == "all_gather" and two is Part.REPLICATE and one is Part.SHARD and len(collective.axes) == 1:
        return f"pieces {len(collective.made)} along {before[collective.axes[0]].axis}"
    if collective.name in ("reduce_scatter_tensor", "reduce_scatter_single") and two is Part.SHARD:
        scaled = {Part.SUM: 1.0, Part.MEAN: float(ranks), Part.REPLICATE: float(ranks)}.get(one)
        ordered = all(after[axis] == shard(0) for axis in collective.axes)
        if scaled is None or not ordered or collective.operation not in ("SUM", "AVG"):
            return None
        return f"times {scaled / ranks if collective.operation == 'AVG' else scaled!r}"
    if collective.name == "broadcast" and one is two is Part.REPLICATE:
        return "times 1.0"
    return None
