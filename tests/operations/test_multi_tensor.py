"""Multi-tensor kernels, taken apart: one call for each tensor, and kernels of whole optimizers' steps."""

import pytest

torch = pytest.importorskip("torch")

import twintrace as tt  # noqa: E402
from twintrace.api.places import (  # noqa: E402
    graphs_of,
    recomputation_of,
    side_of,
)

pytestmark = pytest.mark.needs_torch
A, B = (
    [torch.tensor([1.0, 2.0]), torch.tensor([[3.0, -4.0, 5.0]])],
    [torch.tensor([4.0, 0.5]), torch.tensor([[1.0, 2.0, 8.0]])],
)
KERNELS = {
    "add by number": lambda a, b: torch._foreach_add(a, 2.0),
    "add of lists": lambda a, b: torch._foreach_add(a, b, alpha=3.0),
    "mul by numbers": lambda a, b: torch._foreach_mul(a, [2.0, 3.0]),
    "mul by a tensor": lambda a, b: torch._foreach_mul(a, torch.tensor(1.5)),
    "addcmul": lambda a, b: torch._foreach_addcmul(a, b, b, 0.5),
    "addcmul by numbers": lambda a, b: torch._foreach_addcmul(a, b, b, [0.5, 0.25]),
    "addcdiv": lambda a, b: torch._foreach_addcdiv(a, b, b, 0.5),
    "lerp": lambda a, b: torch._foreach_lerp(a, b, 0.25),
    "maximum by number": lambda a, b: torch._foreach_maximum(a, 2.0),
    "maximum of lists": lambda a, b: torch._foreach_maximum(a, b),
    "minimum by number": lambda a, b: torch._foreach_minimum(a, 2.0),
    "pow": lambda a, b: torch._foreach_pow(a, 2.0),
    "pow of a number": lambda a, b: torch._foreach_pow(2.0, a),
    "norm": lambda a, b: torch._foreach_norm(a, 1.0),
    "sqrt": lambda a, b: torch._foreach_sqrt(b),
    "written in place": lambda a, b: torch._foreach_mul_(a, 2.0),
    "copied": lambda a, b: torch._foreach_copy_(a, b),
}


def recorded(path, run, level="op"):
    with tt.record(path, torch.nn.Identity(), level=level, keep="tensor"):
        run()
    return tt.open(path).journal(0, 0)


@pytest.mark.parametrize("kernel", KERNELS)
def test_each_tensor_of_a_list_is_a_call_of_its_own(kernel, tmp_path):
    journal = recorded(tmp_path / "run", lambda: KERNELS[kernel]([x.clone() for x in A], [x.clone() for x in B]))
    side = side_of(journal)
    parts = [call for call in side.calls if "_foreach_" in call.site.name]
    recomputation = recomputation_of((journal, journal), graphs_of((journal, journal), (side, side)))

    assert [call.site.call for call in parts] == [0, 1]
    assert len({call.id for call in side.calls}) == len(side.calls)
    for call in parts:  # each gives what was recorded, of its own operands
        audit = recomputation.audit(0, call)
        assert audit.forward, audit.failure if hasattr(audit, "failure") else audit
        assert all(score.ratio <= 1 for score in audit.forward.values())
        shapes = {side.tensor(number).spec.shape for number in audit.forward}
        assert shapes <= {(), tuple(A[call.site.call].shape)}


def test_factors_in_a_tensor_leave_the_kernel_whole(tmp_path):
    def run():
        torch._foreach_addcmul_([x.clone() for x in A], B, B, torch.tensor([0.5, 0.25]))

    (call,) = (call for call in side_of(recorded(tmp_path / "run", run)).calls if "_foreach_" in call.site.name)
    assert len(call.args[0].items) == 2


SINGLE, LISTS, FUSED = {"foreach": False}, {"foreach": True}, {"fused": True}


def trained(path, optimizer, dtype=torch.float32, **settings):
    torch.manual_seed(0)
    layers = (
        torch.nn.Linear(8, 16),
        torch.nn.GELU(),
        torch.nn.LayerNorm(16),
        torch.nn.Linear(16, 4),
    )  # three of one shape
    net = torch.nn.Sequential(*layers).to(dtype)
    update = getattr(torch.optim, optimizer)(net.parameters(), lr=0.01, **settings)
    data = torch.Generator().manual_seed(1)
    with tt.record(path, net, level="op", keep="tensor") as recorder:
        for _ in range(2):
            update.zero_grad()
            net(torch.randn(16, 8, generator=data).to(dtype)).pow(2).mean().backward()
            update.step()
            recorder.step()
    return path


@pytest.mark.parametrize("sides", [(SINGLE, LISTS), (LISTS, FUSED), (FUSED, SINGLE)], ids=["loop", "lists", "fused"])
@pytest.mark.parametrize(
    ("optimizer", "settings"),
    [
        ("SGD", {"momentum": 0.9, "weight_decay": 0.1}),
        ("Adam", {"weight_decay": 0.1, "amsgrad": True}),
        ("AdamW", {"weight_decay": 0.1}),
        ("Adagrad", {"lr_decay": 0.1}),
    ],
)
def test_an_optimizer_agrees_with_itself_in_whatever_kernels(optimizer, settings, sides, tmp_path):
    left, right = (trained(tmp_path / str(n), optimizer, **settings, **kind) for n, kind in enumerate(sides))
    found = tt.compare(left, right)
    assert found.code == 0, tt.verdict(found)


def test_an_epsilon_that_changes_no_bit_is_on_both_sides(tmp_path):
    """In bf16 the sum has the bits of what epsilon was added to. PyTorch notes the write after the kernel, so that the sum is seen
    under a number of its own: it is the last tensor with its bits, not the first.
    """
    left, right = (
        trained(tmp_path / str(n), "Adagrad", torch.bfloat16, **kind) for n, kind in enumerate((SINGLE, LISTS))
    )
    found = tt.compare(left, right)
    assert found.code == 0, tt.verdict(found)


@pytest.mark.parametrize(
    ("optimizer", "left", "right", "why"),
    [
        ("Adam", {"eps": 1e-8, **SINGLE}, {"eps": 1e-4, **FUSED}, "eps: 1e-08 | 0.0001"),
        ("Adam", {"betas": (0.9, 0.999), **LISTS}, {"betas": (0.9, 0.99), **FUSED}, "beta2: 0.999 | 0.99"),
        ("AdamW", {"weight_decay": 0.1, **LISTS}, {"weight_decay": 0.0, **FUSED}, "only the left multiplies by 0.999"),
        ("SGD", {"momentum": 0.9, **FUSED}, {"momentum": 0.8, **SINGLE}, "momentum: 0.9 | 0.8"),
        ("SGD", {"momentum": 0.9, **FUSED}, {"momentum": 0.9, "dampening": 0.1, **FUSED}, "dampening: 0.0 | 0.1"),
        ("Adam", {"eps": 1e-8, **SINGLE}, {"eps": 1e-4, **LISTS}, "eps: 1e-08 | 0.0001"),
    ],
)
def test_another_setting_is_named_across_kernels(optimizer, left, right, why, tmp_path):
    found = tt.compare(trained(tmp_path / "a", optimizer, **left), trained(tmp_path / "b", optimizer, **right))
    assert found.code == 1
    assert found.divergence.mistake.why.startswith(why), tt.verdict(found)
    assert str(found.divergence.result.match.left[0].site.phase) == "update"
