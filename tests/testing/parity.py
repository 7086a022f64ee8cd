"""Do all adapters have the same names, files and signatures?

    adapter_faults(FRAMEWORK)            ["torch.release: expected (hold), got (reference)", …], or [] if it fits the protocol
    floor_plan_faults(floor_plans())     ["names.py:describe is in torch and not in reference", …]

The floor plan is read, not imported, so that an adapter whose framework is not installed is compared as well. Names that only some
adapters have are listed in `OPTIONAL`, with the reason; a reason that no longer applies is a fault too.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from twintrace.frameworks import registry
from twintrace.frameworks.protocol import Framework, Watch
from twintrace.model.records import Level

OPTIONAL: Mapping[str, str] = {
    "miniature.py": "the reference's framework is its own; the others are installed",
    "patches.py": "torch has no hook for every way in; the miniature has",
    "patches.py:Patch": "MindSpore's functions are replaced by the thousand: what was built for one is kept from start to start",
    "collectives.py": "the miniature runs in one process; MindSpore's are functions and primitives like others",
    "compiled.py": "the miniature compiles nothing",
    "taps.py": "a call of the host from inside a compiled graph: only MindSpore compiles what users write in Python",
    "releases.py": "names that torch has moved since 2.1; MindSpore's differences are flags of capabilities",
    "steps.py": "only torch has hooks of its own around the steps of all optimizers",
    "quiet.py": "only torch lets users see every kernel and every function, by modes and subclasses",
    "callbacks.py": "only MindSpore has a loop of its own, Model.train, that calls others back",
    "digests.py": "only torch's tensors wait on a device; MindSpore's are read on the host when they are seen",
    "batches.py": "as for digests.py: nothing else waits",
    "readers.py": "as for digests.py: launches what reads them",
    "sums.py": "as for digests.py: rows of sums on a device",
    "streams.py": "as for digests.py: streams of a device",
    "outlets.py": "as for digests.py: values are taken off a device in the same way",
    "digest_triton.py": "as for digests.py: Triton's kernels take torch's tensors",
    "digest_plain.py": "as for digests.py: nothing else waits",
    "plans.py": "as for digests.py: steps are followed where values wait on a device",
    "checks.py": "as for plans.py: what of each event is compared, written out",
    "drafts.py": "as for plans.py: the events of a step that others follow",
    "scripts.py": "as for plans.py: these events, ready to be followed",
    "layers.py": "as for plans.py: layers whose inside need not be looked at",
    "wiring.py": "as for plans.py: hooks that every step puts on its graph",
    "modules.py:end": "as for plans.py: a call's end is told to the draft of a plan as well",
    "modules.py:written_by": "as for writes.py: what is written to",
    "gradients.py:Hooked": "as for plans.py: where a call's hooks are",
    "writes.py": "as for digests.py: only what waits must be told of writes",
    "names.py:arguments": "as for writes.py: what may be written to",
    "calls.py:without_modes": "torch's fused layers look for modes",
    "tensors.py:is_elsewhere": "as for digests.py: nothing else waits",
    "tensors.py:has_device": "as for digests.py: nothing else waits",
    "tensors.py:on_device": "as for digests.py: nothing else waits",
    "devices.py": "only torch has a method for each device: x.cuda(), x.npu()",
    "names.py:group_among": "groups of ranks are told by names in MindSpore, by objects elsewhere",
    "names.py:groups": "as for names.py:group_among: told by names",
    "names.py:ranks_of": "as for names.py:group_among: told by names",
    "weights.py": "MSAdapter's nets have PyTorch's names and layouts: there is nothing to translate",
    "modules.py:is_opaque": "the miniature compiles nothing",
    "modules.py:walk": "MSAdapter goes through its modules as MindSpore through its Cells",
    "names.py:inplace_position": "as for modules.py:walk: MSAdapter's functions are told by MindSpore's rules",
    "names.py:running_statistics": "as for modules.py:walk: MSAdapter's functions are told by MindSpore's rules",
    "modules.py:end_without_result": "the miniature recomputes a block to its end",
    "calls.py:CallMode": "torch wants a class of its own for its mode",
    "calls.py:flush_after_backward": "the miniature's own hook is in gradients.py",
    "ops.py:OpMode": "torch wants a class of its own for its mode",
    "weights.py:unpickle": "only torch's files hold code",
    "gradients.py:in_backward": "a function in the miniature; torch lends its own",
    "gradients.py:is_quiet": "MindSpore has no mode to switch off: the recorder's own calls are told by a flag",
    "gradients.py:unseen": "torch lends its own; the miniature's hooks call nothing",
    "gradients.py:is_recomputing": "MindSpore's backward passes also run the user's own bprop, which is no forward",
    "gradients.py:next_sequence_number": "torch lends its own; MindSpore does not tell it",
    "precision.py:float32_matmul": "only torch has several precisions for a product of f32 on the host",
    "precision.py:computing_in": "a Cell of MindSpore's has a type to compute in; torch and the miniature have none in a module",
    "precision.py:forget": "MindSpore's switches are slow to read and fixed once its device is used: they are read once",
    "modules.py:named_parameters": "MindSpore's own would list the optimizer's as well",
    "modules.py:named_buffers": "MindSpore's own would list the optimizer's as well",
    "modules.py:present_phase": "three phases in MindSpore's backward; torch asks its engine",
    "names.py:functions": "MindSpore has no mode that sees its functions: they are listed and replaced",
    "names.py:methods": "as for functions: MindSpore has no mode",
    "names.py:primitives": "as for functions: MindSpore has no mode",
    "names.py:describe_primitive": "only MindSpore has primitives",
    "names.py:settings_of": "only MindSpore has primitives",
    "names.py:schema_writes": "only torch's operators declare what they write to",
    "updates.py:forget_updated": "only torch has optimizers that write without counting versions",
    "ops.py:is_offered": "MindSpore's dispatch mode came with 2.9",
    "patches.py:put_aside": "MindSpore's compiler reads the functions that are replaced",
    "tensors.py:launch_synchronously": "torch runs a CPU operator when it is called",
    "tensors.py:in_place": "MSAdapter borrows MindSpore's way of reading memory; torch's is its own affair",
    "tensors.py:stored": "MSAdapter borrows MindSpore's way of reading memory; torch's is its own affair",
    "tensors.py:identity": "MSAdapter borrows MindSpore's way of recognising a tensor; torch's is its own affair",
    "tensors.py:stretch": "MSAdapter borrows MindSpore's way of reading memory; torch's is its own affair",
    "gradients.py:TensorHooks": "MSAdapter also runs on MindSpore 2.7, whose graph cannot be read",
    "gradients.py:on_gradient": "MSAdapter also runs on MindSpore 2.7, whose graph cannot be read",
    "gradients.py:without_gradient": "torch keeps a gradient of every write in place that it allows",
    "tensors.py:same_value": "MindSpore before 2.8 has aliases put in the place of arguments",
    "tensors.py:wrote": "torch and the miniature count versions",
    "updates.py:is_optimizer": "MindSpore's optimizers are Cells like others",
}

FloorPlan = Mapping[str, set[str]]
"""The files of an adapter, and the public classes and functions in each."""


def protocol_faults(subject: object, protocol: type, name: str) -> list[str]:
    """Where the public names and signatures of `subject` are not those of a protocol."""
    methods = {key: value for key, value in vars(protocol).items() if key[0] != "_" and inspect.isfunction(value)}
    expected = {*methods, *inspect.get_annotations(protocol)}
    public = {key for key in dir(subject) if key[0] != "_"}
    faults = [f"{name}.{key} is missing" for key in sorted(expected - public)]
    faults += [f"{name}.{key} is not in the protocol" for key in sorted(public - expected)]
    for key in sorted(methods.keys() & public):
        wanted, found = _parameters(methods[key])[1:], _parameters(getattr(subject, key))
        if wanted != found:
            faults.append(f"{name}.{key}: expected ({', '.join(wanted)}), got ({', '.join(found)})")
    return faults


def adapter_faults(adapter: Framework) -> list[str]:
    """Where an adapter, and the watch that it makes for each level, do not fit the protocol."""
    faults = protocol_faults(adapter, Framework, adapter.name)
    nobody: Any = None  # who hears of it does not matter: the watch is not started
    for level in Level:
        faults += protocol_faults(adapter.watch({}, level, nobody), Watch, f"{adapter.name}.watch[{level}]")
    return faults


def floor_plans() -> dict[str, FloorPlan]:
    """The floor plan of every registered adapter."""
    home = Path(inspect.getfile(registry)).parent
    return {name: floor_plan(home / name) for name in registry.names()}


def floor_plan(folder: Path) -> FloorPlan:
    """The files of a folder, and the public classes and functions in each; also those that
    it lists in `__all__` and borrows from another adapter."""
    return {file.name: set(_names(ast.parse(file.read_text("utf-8")))) for file in sorted(folder.glob("*.py"))}


def _names(tree: ast.Module) -> Iterator[str]:
    listed: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            listed = set(ast.literal_eval(node.value))
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.ImportFrom) and node.level == 2 and "." in (node.module or ""):
            yield from (alias.name for alias in node.names if alias.name in listed and not alias.name.isupper())


def floor_plan_faults(plans: Mapping[str, FloorPlan], optional: Mapping[str, str] = OPTIONAL) -> list[str]:
    """Names that one adapter has and another has not, unless there is a reason; and reasons that no longer apply."""
    items = {shop: _items(shop, plan) for shop, plan in plans.items()}
    everything = set[str]().union(*items.values())
    uneven = {
        item
        for item in everything
        if any(item not in found and _has_file(plans[s], item) for s, found in items.items())
    }
    faults = []
    for item in sorted(uneven - optional.keys()):
        having = [shop for shop, found in items.items() if item in found]
        lacking = [shop for shop in items if shop not in having and _has_file(plans[shop], item)]
        faults.append(f"{item} is in {', '.join(having)} and not in {', '.join(lacking)}")
    return faults + [
        f"{item} is listed as optional and is not: {optional[item]}" for item in sorted(optional.keys() - uneven)
    ]


def _items(shop: str, plan: FloorPlan) -> set[str]:
    """Files, and names in them; the framework's own name is left out of class names (TorchWatch, ReferenceWatch)."""
    names = {
        f"{file}:{name.removeprefix(shop.capitalize())}"
        for file, found in plan.items()
        for name in found
        if name[0] != "_"
    }
    return names | set(plan)


def _has_file(plan: FloorPlan, item: str) -> bool:
    """A missing file is one fault, not one for each name in it."""
    return ":" not in item or item.split(":")[0] in plan


def _parameters(function: Any) -> list[str]:
    """`["seed", "*", "deterministic"]`: names, and the star after which they must be written."""
    found: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in found:
            found.append("*")
        found.append(parameter.name)
    return found
