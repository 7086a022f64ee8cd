"""The contract can fail: every test of it meets a saboteur, and must catch it.

A saboteur breaks the reference adapter, or the recorder where the promise is the recorder's own, in one place. A promise
that is kept by a broken adapter promises nothing.
"""

import functools
import itertools

import numpy as np
import pytest

from tests.frameworks.reference.test_contract import ReferencePage
from twintrace.api import recording
from twintrace.collect.journals import Journals
from twintrace.collect.selection import Selection, Sieve
from twintrace.collect.session import Session
from twintrace.collect.stacks import Stacks
from twintrace.frameworks.reference import adapter, calls, gradients, miniature, modules, ops, tensors
from twintrace.frameworks.reference.names import Api
from twintrace.model.records import Role
from twintrace.model.sites import Phase
from twintrace.store.writer import TraceWriter
from twintrace.testing.contract import FrameworkContract


def replace(owner, name, value):
    return lambda patch: patch.setattr(owner, name, value)


def answer(name, value):
    """The adapter gives this answer."""
    return replace(adapter.FRAMEWORK, name, value)


def nothing(*_, **__):
    return None


def ignoring(option):
    """The recorder does not hear of an option."""
    unset = {"forward_only": False, "inputs_only": False}.get(option)
    return replace(recording, "Selection", lambda **options: Selection(**options | {option: unset}))


# --- the adapter's sabotages ------------------------------------------------------------------------------------------

ONLY_THE_ROOT = replace(modules, "named_modules", lambda model: [("", model)])
NO_MODULES = replace(modules.Modules, "_call", lambda self, module, args, kwargs, run: run())
NO_UPDATES = replace(calls.Updates, "_step", lambda self, optimizer, args, kwargs, run: run())
NO_SETTINGS = replace(modules, "configuration", lambda module: {})
NO_RECOMPUTATION = replace(calls, "in_backward", lambda: 0)
NO_BACKWARD_PHASE = replace(ops.Ops, "_phase", lambda self: Phase.FORWARD)
NO_WRITES = replace(calls, "describe", lambda function: Api(f"reference.{function.__name__}"))
NO_INPUT_GRADIENTS = replace(gradients, "edges_of", lambda call: [])
NO_PARAMETER_GRADIENTS = replace(modules.Modules, "_hook_parameter", lambda self, name, parameter: nothing)
NO_SUMS = replace(gradients._Sum, "give", nothing)
NO_STOP = replace(adapter.ReferenceWatch, "stop", nothing)
NO_OTHER_NAMES = replace(modules.Modules, "rename", lambda self, module, path: nothing)
NO_TOKENS = answer("token", nothing)
NO_IDENTITY = answer("glance", nothing)
NUMBERS = itertools.count(1)
NO_SAVED_GRADIENTS = answer("on_gradient", lambda tensor, callback: nothing)
ZEROS = answer("host", lambda tensor, **_: np.zeros(tensor.shape, tensor.array.dtype))
MEMORY_ORDER = answer("host", lambda tensor, **_: tensor.array.ravel("K").reshape(tensor.shape))
ELSEWHERE = None, 0, 0, None, None
ALWAYS_NEW = answer("glance", lambda tensor: (next(NUMBERS), next(NUMBERS), 0, tensors.look(tensor), *ELSEWHERE))
NO_VERSIONS = answer(
    "glance",
    lambda tensor: (tensor.storage.number, (tensor.storage.number, tensor.shape), 0, tensors.look(tensor), *ELSEWHERE),
)
ONE_STORAGE = answer("glance", lambda tensor: (0, tensor.shape, 0, tensors.look(tensor), *ELSEWHERE))


def impatient(patch):
    """A stop that waits for no gradient."""
    stop = adapter.ReferenceWatch.stop
    patch.setattr(adapter.ReferenceWatch, "stop", lambda self, **_: stop(self))


def careless_reading(patch):
    """Reading a tensor changes it."""

    def host(tensor):
        if tensor.array.flags.writeable:
            tensor.array += 1
        return np.asarray(tensor.array, order="C")

    patch.setattr(adapter.FRAMEWORK, "host", host)


def modules_only_once(patch):
    """A module is recorded the first time it is called."""
    seen, original = set(), modules.Modules._call

    def call(self, module, args, kwargs, run):
        if id(module) in seen:
            return run()
        seen.add(id(module))
        return original(self, module, args, kwargs, run)

    patch.setattr(modules.Modules, "_call", call)


def modules_once_and_for_all(patch):
    """Modules are looked up when recording begins, and never again."""
    patch.setattr(modules, "named_modules", functools.cache(lambda model: list(model.modules().items())))


def doubled_gradients(patch):
    original = gradients.Gradients._reporter

    def reporter(self, call, role, slot):
        report = original(self, call, role, slot)
        if role is Role.OUTPUT:
            return report
        return lambda gradient: report(gradient and miniature.Tensor(gradient.array * 2))

    patch.setattr(gradients.Gradients, "_reporter", reporter)


def total_gradients(patch):
    """Not what a call sends to its input, but all that arrives there."""

    def put_on(self, edge, report):
        node, position = edge
        self._put(node.targets[position].before, report)

    patch.setattr(gradients.Gradients, "_put_on", put_on)


def first_edge_only(patch):
    original = gradients.Gradients._put_on
    patch.setattr(gradients.Gradients, "_put_on", lambda self, edge, report: edge[1] or original(self, edge, report))


def first_pass_only(patch):
    original, seen = gradients.Gradients._hook, set()

    def hook(self, call, inputs, start):
        if call.name not in seen:
            seen.add(call.name)
            original(self, call, inputs, start)

    patch.setattr(gradients.Gradients, "_hook", hook)


def stop_for_all(patch):
    """Whoever stops takes the others' hooks along."""
    patch.setattr(adapter.ReferenceWatch, "stop", lambda self: forget_hooks())


def hoarding(patch):
    original, hoard = gradients.Gradients.follow, []

    def follow(self, call, sink, run):
        hoard.append(original(self, call, sink, run))
        return hoard[-1]

    patch.setattr(gradients.Gradients, "follow", follow)


def hooks_of_saved_values_stay(patch):
    original = adapter.FRAMEWORK.on_gradient
    patch.setattr(adapter.FRAMEWORK, "on_gradient", lambda tensor, callback: original(tensor, callback) and nothing)


# --- the recorder's sabotages -----------------------------------------------------------------------------------------

FRAMES_OF_ALL = replace(Stacks, "_judge", lambda self, code: self._kept.setdefault(id(code), True))
NO_FAILURES = replace(Session, "fail", nothing)
EVERY_STEP = replace(Selection, "wants_step", lambda self, step: True)
EVERY_RANK = replace(Selection, "wants_rank", lambda self, rank: True)
EVERY_NAME = replace(Sieve, "_matches", lambda self, site: True)
NO_PATHS = replace(Sieve, "_matches", lambda self, site: any(p.fullmatch(site.name) for p in self._patterns))
NEVER_INSIDE = replace(Sieve, "enter_module", nothing)
ALWAYS_INSIDE = replace(Sieve, "leave_module", nothing)
NO_TURNS = replace(Session, "stop", nothing)
NO_END = replace(Session, "_is_open", lambda self, verb: True)
STEPS_TWICE = replace(TraceWriter, "has_step", lambda self, step: False)
SILENT = replace(Journals, "trouble", nothing)


def plain_steps(patch):
    original = Session.step
    patch.setattr(Session, "step", lambda self, number=None: original(self))


def one_epoch(patch):
    """A step ends, and its calls do not notice."""
    original = Journals.end_step

    def end_step(self):
        epoch = self.epoch
        original(self)
        self.epoch = epoch

    patch.setattr(Journals, "end_step", end_step)
    patch.setattr(adapter.ReferenceWatch, "end_step", nothing)


def always_raise(patch):
    def trouble(self, where, error):
        raise error

    patch.setattr(Journals, "trouble", trouble)


SABOTEURS = {
    # levels
    "level_module_records_modules_and_nothing_else": ONLY_THE_ROOT,
    "level_api_records_functions_and_the_modules_they_are_in": NO_MODULES,
    "level_mix_hangs_functions_below_the_modules_that_called_them": NO_MODULES,
    "level_op_records_kernels_of_both_directions": NO_BACKWARD_PHASE,
    "the_optimizer_has_a_phase_of_its_own": NO_UPDATES,
    "modules_tell_their_class_settings_and_parameters": NO_SETTINGS,
    "buffers_have_the_values_from_before_the_call": NO_VERSIONS,
    "stacks_lead_to_the_users_file": FRAMES_OF_ALL,
    "a_module_that_is_called_twice_is_recorded_twice": modules_only_once,
    "a_module_that_is_put_in_later_is_seen": modules_once_and_for_all,
    "recomputed_calls_have_a_phase_of_their_own": NO_RECOMPUTATION,
    # forward
    "arguments_and_results_are_what_they_were": ZEROS,
    "structures_keep_their_form": NO_INPUT_GRADIENTS,
    "writes_in_place_keep_the_value_from_before": NO_WRITES,
    "producers_rebuild_the_data_flow": ALWAYS_NEW,
    "modules_are_linked_by_their_values": NO_IDENTITY,
    "what_only_the_framework_knows_becomes_a_token": NO_TOKENS,
    # backward
    "modules_show_the_gradients_of_what_they_took_and_gave": NO_INPUT_GRADIENTS,
    "what_flows_out_of_a_value_is_what_flowed_into_it": doubled_gradients,
    "each_call_shows_its_own_part_of_a_shared_gradient": total_gradients,
    "both_places_of_one_tensor_have_a_gradient": first_edge_only,
    "a_module_that_uses_its_input_twice_shows_the_sum": NO_SUMS,
    "parameters_have_the_gradients_that_arrived": NO_PARAMETER_GRADIENTS,
    "gradients_go_through_writes_in_place": NO_INPUT_GRADIENTS,
    "every_pass_of_a_step_has_its_own_gradients": first_pass_only,
    # hooks
    "a_model_that_raises_leaves_no_hook": NO_STOP,
    "a_module_that_raises_is_recorded_as_such": NO_FAILURES,
    "a_function_that_raises_is_recorded_as_such": NO_FAILURES,
    "stop_removes_everything_and_start_goes_on": NO_STOP,
    "nothing_is_heard_after_stop": NO_STOP,
    "gradients_may_be_waited_for_after_stop": impatient,
    "a_module_may_be_recorded_under_another_name": NO_OTHER_NAMES,
    "two_recorders_leave_in_any_order": stop_for_all,
    "the_run_keeps_its_bits": careless_reading,
    "nothing_is_kept_alive_that_the_framework_would_let_go": hoarding,
    # values
    "an_unchanged_tensor_is_read_once": NO_IDENTITY,
    "a_changed_tensor_is_read_again": NO_VERSIONS,
    "memory_that_is_used_again_is_another_value": ONE_STORAGE,
    "a_large_result_is_what_it_was_when_it_was_seen": ZEROS,
    "large_gradients_are_what_they_were_when_they_came": doubled_gradients,
    "every_element_type_comes_back_bit_by_bit": ZEROS,
    "unpleasant_tensors_come_back_bit_by_bit": MEMORY_ORDER,
    "a_tensor_without_values_says_why": ZEROS,
    # saving
    "a_saved_value_has_its_gradient": NO_SAVED_GRADIENTS,
    "saved_values_know_where_they_are_and_are_counted": NO_IDENTITY,
    "a_saved_value_leaves_no_hook": hooks_of_saved_values_stay,
    "a_tapped_value_tells_its_gradient_and_changes_nothing": NO_SAVED_GRADIENTS,
    # selection
    "steps": EVERY_STEP,
    "ranks": EVERY_RANK,
    "names_of_modules": EVERY_NAME,
    "names_that_fit_nothing_are_told": EVERY_NAME,
    "names_of_functions_and_of_the_modules_around_them": NO_PATHS,
    "between": NEVER_INSIDE,
    "between_has_the_gradients_of_its_parameters": NO_PARAMETER_GRADIENTS,
    "between_ends_with_a_module_that_raises": ALWAYS_INSIDE,
    "forward_only": ignoring("forward_only"),
    "inputs_only": ignoring("inputs_only"),
    "flow_only": ignoring("flow_only"),
    "flow_only_has_the_gradients_of_results": ignoring("flow_only"),
    "first": ignoring("first"),
    "predicate": ignoring("predicate"),
    # sessions
    "steps_are_numbered_and_begin_anew": plain_steps,
    "a_step_is_recorded_once": STEPS_TWICE,
    "start_and_stop_take_turns": NO_TURNS,
    "after_the_end_there_is_nothing": NO_END,
    "a_gradient_of_the_step_before_is_not_written_into_this_one": one_epoch,
    # faults
    "strict_raises_and_leaves_no_hook": SILENT,
    "otherwise_the_training_goes_on_with_one_warning": always_raise,
    "a_fault_in_a_module_does_not_shift_what_follows": always_raise,
    "a_fault_on_the_way_back_does_not_end_the_training": always_raise,
    "a_predicate_that_fails_does_not_end_the_training": always_raise,
}


def forget_hooks():
    for hooks in vars(miniature.HOOKS).values():
        hooks.clear()


class TestSabotaged(FrameworkContract):
    sabotaged = True

    @pytest.fixture
    def framework(self, request, monkeypatch):
        SABOTEURS[request.function.__name__.removeprefix("test_")](monkeypatch)
        yield ReferencePage()
        forget_hooks()


def test_every_promise_has_a_saboteur():
    promises = {name.removeprefix("test_") for name in dir(FrameworkContract) if name.startswith("test_")}
    assert promises == SABOTEURS.keys()


class TestTheTurningRound:
    sabotaged = True

    @pytest.mark.xfail(strict=True, raises=pytest.fail.Exception, reason="a test that passes is a fault here")
    def test_what_passes_fails(self): ...

    def test_what_fails_passes(self):
        raise AssertionError
