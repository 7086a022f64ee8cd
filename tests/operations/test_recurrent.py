"""Bounds of recurrent networks: PyTorch's own kernels are within them, and what is wrong is not, however many steps there are."""

from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
from hypothesis import Phase, example, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from tests.operations.test_evaluation import values_of  # noqa: E402
from twintrace.operations import Meaning, Operand  # noqa: E402
from twintrace.operations.audits import audit  # noqa: E402
from twintrace.operations.evaluation import NotRecomputable, evaluate  # noqa: E402
from twintrace.operations.recorded_gradients import Gradients  # noqa: E402

pytestmark = pytest.mark.needs_torch
FUNCTIONS = {"lstm": torch.lstm, "gru": torch.gru}


def run(
    kind: str, dtype: torch.dtype, steps: int, width: int, seed: int
) -> tuple[Meaning, dict[int, torch.Tensor], Gradients]:
    """A forward and backward pass of one layer: its meaning, all tensors by their numbers, which are gradients."""
    generator = torch.Generator().manual_seed(seed)

    def drawn(*shape: int, scale: float = 1.0) -> torch.Tensor:
        return (torch.randn(*shape, generator=generator) * scale).to(dtype)

    gates = 4 if kind == "lstm" else 3
    x = drawn(3, steps, width).requires_grad_()
    shapes = ((gates * width, width), (gates * width, width), (gates * width,), (gates * width,))
    params = [drawn(*shape, scale=width**-0.5).requires_grad_() for shape in shapes]
    state = torch.zeros(1, 3, width, dtype=dtype)
    states = (state, state) if kind == "lstm" else state
    y = FUNCTIONS[kind](x, states, params, True, 1, 0.0, True, False, True)[0]
    g = drawn(*y.shape)
    y.backward(g)
    number = {path: Operand(place) for place, path in enumerate(("x", "h", "c", "a", "b", "d", "e"))}
    hx = (number["h"], number["c"]) if kind == "lstm" else number["h"]
    arguments = {
        "input": number["x"], "hx": hx, "params": tuple(number[path] for path in "abde"), "has_biases": True, "num_layers": 1,
        "dropout": 0.0, "train": True, "bidirectional": False, "batch_first": True,
    }  # fmt: skip
    tensors = {
        0: x,
        1: state,
        2: state,
        **{3 + place: param for place, param in enumerate(params)},
        10: y,
        11: g,
        12: x.grad,
    }
    tensors.update({13 + place: param.grad for place, param in enumerate(params)})
    tensors = {place: tensor.detach() for place, tensor in tensors.items()}
    meaning = Meaning(kind, arguments, {10: 0})
    return meaning, tensors, Gradients({10: 11}, {0: [12], **{3 + place: [13 + place] for place in range(4)}})


DTYPES = st.sampled_from((torch.float32, torch.float16, torch.bfloat16))


@settings(max_examples=6, deadline=None, phases=(Phase.explicit, Phase.generate))
@given(st.sampled_from(("lstm", "gru")), DTYPES, st.integers(1, 16), st.sampled_from((4, 16)), st.integers(0, 2**20))
def test_right_kernels_are_within_the_bound(kind: str, dtype: torch.dtype, steps: int, width: int, seed: int) -> None:
    meaning, tensors, gradients = run(kind, dtype, steps, width, seed)

    found = audit(meaning, values_of(tensors), gradients)

    assert found.forward[10].ratio <= 1
    assert len(found.backward) == 5
    assert all(score.ratio <= 1 for score in found.backward.values())


@settings(max_examples=6, deadline=None, phases=(Phase.explicit, Phase.generate))
@given(st.sampled_from(("lstm", "gru")), DTYPES, st.integers(8, 16), st.integers(10, 16), st.integers(0, 2**20))
@example("gru", torch.float16, 13, 14, 39912)  # its running bound is infinite times zero
def test_a_wrong_result_is_beyond_it(kind: str, dtype: torch.dtype, steps: int, wrong: int, seed: int) -> None:
    """Of zeros, or one element of another sign and size: the output, and each gradient."""
    number = wrong if wrong in (10, 12) else max(wrong, 13)
    meaning, tensors, gradients = run(kind, dtype, steps, 16, seed)

    for change in ("zeros", "element"):
        damaged = tensors[number].clone(memory_format=torch.contiguous_format)
        if change == "zeros":
            damaged.zero_()
        else:
            place = int(damaged.abs().flatten().argmax())
            damaged.view(-1)[place] *= -2
        found = audit(meaning, values_of({**tensors, number: damaged}), gradients)
        score = found.forward[10] if number == 10 else found.backward[number]
        assert score.ratio > 1


@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize("changed", [{"bidirectional": True}, {"num_layers": 2}, {"params": 3}])
def test_too_few_parameters_or_states_are_no_arguments(kind: str, changed: dict[str, object]) -> None:
    """PyTorch's kernels read beyond them."""
    meaning, tensors, _ = run(kind, torch.float32, 3, 4, 0)
    if "params" in changed:
        changed = {"params": meaning.arguments["params"][:3]}
    for more in ({}, {"params": meaning.arguments["params"] * 2}):  # enough parameters, one state
        other = replace(meaning, arguments={**meaning.arguments, **more, **changed})
        with pytest.raises(NotRecomputable, match=r"parameters for|state of another number"):
            evaluate(other, lambda _, number: tensors[number].double())


@pytest.mark.parametrize("whole", [True, False], ids=["several nodes", "one node"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("factor", "right"), [(1.0, True), (1.25, False)])
def test_the_gradient_of_a_cells_state_may_have_the_part_by_way_of_its_output(
    whole: bool, dtype: torch.dtype, factor: float, right: bool
) -> None:
    """On a CPU the cell is several nodes, and what is read at c has come by way of h, too; on a GPU it is one."""
    generator = torch.Generator().manual_seed(0)
    shapes = ((3, 8), (3, 12), (3, 12), (48, 8), (48, 12), (48,), (48,))
    taken = [
        (torch.randn(*shape, generator=generator) * shape[-1] ** -0.5).to(dtype).requires_grad_() for shape in shapes
    ]
    x, h0, c0, *params = taken
    h, c = torch.lstm_cell(x, (h0, c0), *params)
    seeds = [torch.randn(3, 12, generator=generator).to(dtype) for _ in range(2)]
    found = torch.autograd.grad((h, c), (*taken, h, c), seeds)
    sent, received = found[: len(taken)], found[len(taken) :] if whole else seeds
    numbers = [Operand(place) for place in range(7)]
    arguments = {"input": numbers[0], "hx": (numbers[1], numbers[2])} | dict(
        zip(("w_ih", "w_hh", "b_ih", "b_hh"), numbers[3:], strict=True)
    )
    tensors = dict(enumerate([*taken, h, c, *received, *(gradient * factor for gradient in sent)]))
    values = values_of({place: tensor.detach() for place, tensor in tensors.items()})

    audited = audit(
        Meaning("lstm_cell", arguments, {7: 0, 8: 1}),
        values,
        Gradients({7: 9, 8: 10}, {place: [11 + place] for place in range(7)}),
    )

    assert [score.ratio <= 1 for score in audited.backward.values()] == [right] * 7
