"""Producers and consumers of the tensors of one side.

    flow = flow_of(tree)
    flow.makers[17]       the calls that put out tensor 17, the innermost last
    flow.users[9]         the calls that take tensor 9
    flowing(tree)         the tensors that come from data or parameters, and the answers that are computed of these

A value that came in as if no call had made it has the makers of the one that it is: written in place, through a view, marked later.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..model.pairs import Part
from ..model.tensors import UNITS, Tensor
from ..operations.families import MAKING
from .trees import CallTree
from .units import operation
from .values import Fill, fill_of, numel


@dataclass
class Flow:
    """Calls by the tensors that they make and take. A call that hands its argument on as it is makes nothing."""

    makers: dict[int, list[int]] = field(default_factory=dict)
    users: dict[int, list[int]] = field(default_factory=dict)


def flow_of(tree: CallTree) -> Flow:
    """Makers and users of the tensors of one side; unseen copies are noted in the tree as well."""
    found = Flow()
    for index in range(len(tree)):
        into = {slot.tensor for slot in tree.inputs(index)}
        for tensor in dict.fromkeys(slot.tensor for slot in tree.outputs(index)):
            if tensor not in into:
                found.makers.setdefault(tensor, []).append(index)
        for tensor in into:
            found.users.setdefault(tensor, []).append(index)
    unseen = _unseen(tree, found)
    tree.same.update(unseen)
    for tensor, twin in (*_marked(tree, found), *unseen, *_written(tree, found)):
        for flows in (found.makers, found.users):
            flows[tensor] = flows[twin] = sorted({*flows.get(tensor, ()), *flows.get(twin, ())})
    return found


def _unseen(tree: CallTree, flow: Flow) -> list[tuple[int, int]]:
    """Values that came out of a call, went on by ways that were not recorded (written in place, a written slice, `vmap`), and came
    in somewhere as if no call had made them: the same bits, taken by nobody before. Each with the number that it came out with.
    """
    lost: dict[object, list[tuple[int, int]]] = {}
    for number, makers in flow.makers.items():
        tensor = tree.tensor(number)
        if tensor.fingerprint is not None and number not in flow.users and not tree.children[makers[-1]]:
            lost.setdefault((tensor.fingerprint, tensor.spec), []).append((makers[-1], number))
    found = []
    for number, users in flow.users.items() if lost else ():
        tensor = tree.tensor(number)
        if tensor.producer is not None or number in flow.makers:
            continue
        before = [item for item in lost.get((tensor.fingerprint, tensor.spec), ()) if item[0] < users[0]]
        if before:
            found.append((number, max(before)[1]))
    return found


def _written(tree: CallTree, flow: Flow) -> list[tuple[int, int]]:
    """Values that a call left, by writing to a view, in what the view is of; each with the number that the view came out with. And
    results of several parts (jagged tensors), which have a number for each time they are seen.
    """
    found = []
    for number in flow.users:
        producer = tree.tensor(number).producer
        maker = None if producer is None or number in flow.makers else tree.position.get(producer)
        given = {slot.tensor for slot in tree.outputs(maker)} if maker is not None else set()
        if maker is None or len(given) != 1 or number in given:
            continue
        result, parts = given.pop(), tree.tensor(number).parts
        if tree.calls[maker].mutates or (parts and parts == tree.tensor(result).parts):
            found.append((number, result))
    return found


def flowing(tree: CallTree) -> tuple[set[int], set[int]]:
    """The tensors that come from the numbers of the network or its data, not from nothing, from places or from answers; and the
    answers and indices that come from these.
    """
    found: set[int] = set()
    decided: set[int] = set()
    for index, call in enumerate(tree.calls):
        into = tree.inputs(index)
        for slot in into:
            tensor = tree.tensor(slot.tensor)
            lone = numel(tensor) == 1 and slot.part is Part.INPUT and not tensor.requires_grad  # a factor, a fill value
            if tensor.producer is None and _is_number(tensor) and not lone:
                found.add(slot.tensor)
        if operation(call) in MAKING:
            continue
        if any(slot.tensor in found for slot in into):
            found.update(slot.tensor for slot in tree.outputs(index) if _is_number(tree.tensor(slot.tensor)))
        if any(slot.tensor in found or slot.tensor in decided for slot in into):
            decided.update(slot.tensor for slot in tree.outputs(index) if slot.tensor not in found)
    return found, decided


def _is_number(tensor: Tensor) -> bool:
    """Is it a tensor of numbers, and no indices, answers or mask?"""
    if tensor.spec.dtype not in UNITS:
        return False
    return tensor.statistics is None or fill_of(tensor.statistics, numel(tensor)) is not Fill.PURE


def _marked(tree: CallTree, flow: Flow) -> list[tuple[int, int]]:
    """Values that were marked after they were made (`requires_grad_`, the end of an autograd function): they have numbers of their
    own, which their makers have not put out. Each with the number that these have put out.
    """
    found = []
    for number in dict.fromkeys((*flow.users, *flow.makers)):
        tensor = tree.tensor(number)
        maker = None if tensor.producer is None else tree.position.get(tensor.producer)
        if maker is None or maker in flow.makers.get(number, ()):
            continue
        for slot in tree.outputs(maker):
            other = tree.tensor(slot.tensor)
            if other.requires_grad != tensor.requires_grad and (other.spec, other.statistics, other.fingerprint) == (
                tensor.spec, tensor.statistics, tensor.fingerprint
            ):  # fmt: skip
                found.append((number, slot.tensor))
                break
    return found
