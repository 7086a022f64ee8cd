"""The listing of operations says what the tables, the kernels and the frameworks have."""

import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from operation_samples import is_differentiable, positive, results_of

from twintrace.operations.catalog import OPERATIONS
from twintrace.operations.kernels import KERNELS, Random
from twintrace.operations.listing import _OURS, listing, select
from twintrace.operations.optimizers import KINDS
from twintrace.operations.steps import STEPS
from twintrace.operations.torch_names import QUESTIONS

KNOWN = {item.name: item for item in listing() if not item.asks}


@pytest.mark.parametrize("name", OPERATIONS)
def test_gradients_are_recomputed_where_the_listing_says_so(name):
    """A kernel whose results autograd can differentiate is listed with `backward`, and no other."""
    if not KNOWN[name].forward:
        if KNOWN[name].draws:
            with pytest.raises(Random):
                results_of(name)
        return
    assert is_differentiable(results_of(name)) is KNOWN[name].backward


def test_everything_that_is_recomputed_has_a_kernel():
    computed = {name for name, item in KNOWN.items() if item.forward}
    assert computed <= set(KERNELS)
    assert set(KNOWN) - computed == {"random", "gumbel_softmax", "empty"}
    assert {name for name, item in KNOWN.items() if item.draws == "always"} == {"random", "gumbel_softmax"}


def test_names_are_those_of_pytorch():
    """A name without home is one of PyTorch's functions, methods or kernels, unless the operation is our own."""
    homes = (torch, F, torch.Tensor, torch.ops.aten, torch.special, torch.linalg)
    missing = {name for name in OPERATIONS if not any(callable(getattr(home, name, None)) for home in homes)}
    missing = {name for name in missing if not hasattr(torch.Tensor, f"{name}_")}
    assert missing == _OURS
    written = [name for item in KNOWN.values() for name in item.torch if name.startswith("torch.nn.")]
    assert len(written) > 100
    for name in written:
        home, _, last = name.rpartition(".")
        assert hasattr(F if home == "torch.nn.functional" else torch.nn, last) or last.startswith("NonDynamically"), (
            name
        )


def test_names_in_the_frameworks():
    """One operation under the names that each framework has for it: functions, methods, operators, modules, kernels."""
    linear, add, getitem, adam = (KNOWN[name] for name in ("linear", "add", "getitem", "adam"))
    assert {"linear", "torch.nn.Linear"} <= set(linear.torch)
    assert {"mindspore.nn.Dense", "dense"} <= set(linear.mindspore)
    assert linear.msadapter == linear.torch
    assert {"torch.Tensor.__radd__", "torch.Tensor.__iadd__"} <= set(add.torch)
    assert "mindspore.Tensor.__iadd__" in add.mindspore
    assert "aten.index" in getitem.torch
    assert "aten.index" not in getitem.msadapter
    assert "torch.optim.AdamW.step" in adam.torch
    assert "mindspore.nn.AdamWeightDecay" in adam.mindspore
    assert {"amax", "max_dim"} <= {name for name, item in KNOWN.items() if "max" in item.torch}
    assert all(item.torch or item.mindspore for item in KNOWN.values())


def test_traits():
    """Drawing, moving, asking and writing are told apart."""
    assert KNOWN["dropout"].draws == "sometimes"
    assert KNOWN["poisson_nll_loss"].draws == ""
    assert KNOWN["reshape"].moves
    assert not KNOWN["add"].moves
    assert KNOWN["batch_norm"].writes == ("running_mean", "running_var")
    assert KNOWN["add"].writes == ("__iadd__",)
    assert "input" in KNOWN["setitem"].writes
    assert {"parameters", "exp_avg"} <= set(KNOWN["adam"].writes)
    assert not KNOWN["adam"].backward
    asked = {item.name for item in listing() if item.asks}
    assert asked >= QUESTIONS
    assert not any(item.forward or item.moves for item in listing() if item.asks)


@pytest.mark.parametrize("name", ["batch_norm", "instance_norm"])
def test_what_is_written_is_what_the_kernel_gives(name):
    """Kernels name the arguments that they write to; the listing has the same."""
    arguments = {parameter.name: parameter.default for parameter in OPERATIONS[name].parameters}
    arguments |= {"input": positive(2, 4, 6), "running_mean": positive(4), "running_var": positive(4)}
    arguments |= {"training": True} if "training" in arguments else {}
    assert {key for key in KERNELS[name](**arguments) if isinstance(key, str)} == set(KNOWN[name].writes)


def test_every_optimizer_is_listed():
    assert {name for name, item in KNOWN.items() if item.name in STEPS} == set(STEPS)
    assert set(STEPS) == set(KINDS.values())


def test_variants():
    """All variants of an operation, one line for all axes and one for all epsilons."""
    assert KNOWN["gelu"].variants[:2] == ("GELU by tanh", "GELU by the error function")
    assert KNOWN["rms_norm"].variants == ("with the mean subtracted", "another eps", "without weight")
    assert KNOWN["softmax"].variants == ("the logarithm of softmax", "along another axis")
    assert "without padding" in KNOWN["conv"].variants
    assert "eps added below the root" in KNOWN["rmsprop"].variants
    assert "another eps" not in KNOWN["sgd"].variants


@pytest.mark.parametrize(
    ("wanted_names", "found"),
    [
        (["Dense"], {"linear", "bilinear"}),
        (["mindspore.nn.Dense"], {"linear"}),
        (["*sgd"], {"sgd"}),
        (["rms_norm", "quick_gelu"], {"rms_norm", "quick_gelu"}),
        (["no such thing"], set()),
    ],
)
def test_a_filter_looks_at_all_names(wanted_names, found):
    assert {item.name for item in select(listing(), wanted_names) if not item.asks} == found


def test_the_listing_needs_no_framework():
    code = (
        "import sys; from twintrace import api; api.operations_text(api.known_operations());"
        "print({'torch', 'mindspore'} & set(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"
