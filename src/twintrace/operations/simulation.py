"""Kernels that hold something in 16 bits: the errors that they have, by simulation.

pytorch_sums(meaning, values, gradients, framework)    PyTorch's own kernel, which adds up in memory
in_two_steps(…)                                        a product that is rounded before its bias is added
step_by_step(…)                                        every intermediate value rounded, in frameworks that do so
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch

from ..model.tensors import UNITS
from . import kernels
from .evaluation import COARSE, DTYPES, NotRecomputable, Values, evaluate, rounded
from .meanings import Meaning, Operand
from .recorded_gradients import Gradients
from .rounding import RoundedResults
from .traits import traits_of
from .workers import plain_attention, without_onednn

Tensor = torch.Tensor

_SIMULATED = 2.0
"""Multiple of the error of sums that were simulated in 16 bits, by which others may be off: their order need not be the same."""
_TAIL = 12.0
"""Root mean squares of simulated errors within which those of another kernel stay: up to 8 were seen (PyTorch's fused backward)."""
_NOT_SIMULATED = frozenset(("scaled_dot_product_attention", "multi_head_attention", "lstm", "gru", "rnn"))
"""Operations whose kernels in 16 bits say nothing of others: they are made of products, which some add up in 16 bits."""


_ROUNDED_STEPS = frozenset(("mindspore", "msadapter"))
"""Frameworks whose kernels hold intermediate values in 16 bits (MindSpore 2.10 on a CPU: layer norm, SiLU, scaling)."""


@dataclass(frozen=True, slots=True)
class Simulation:
    """Results and gradients that a kernel would have which holds something in 16 bits, by the numbers of the recorded ones."""

    results: Mapping[int, Tensor]
    tail: float
    """Root mean squares of the simulated errors, of the whole or of the row, within which those of the kernel stay."""

    def error(self, want: Tensor, number: int) -> Tensor | None:
        """Errors that such a kernel may have."""
        other = self.results.get(number)
        if other is None or other.shape != want.shape:
            return None
        error = (other - want).abs()
        if not error.dim():
            return (_SIMULATED + self.tail) * error
        rows = error.square().mean(-1, keepdim=True).sqrt()  # under a causal mask the first rows have larger errors
        return _SIMULATED * error + self.tail * torch.maximum(rows, error.square().mean().sqrt())


def corrected(
    bound: Tensor | None, want: Tensor, number: int, wider: Simulation | None, narrower: Simulation | None
) -> Tensor | None:
    """The bound, more by what one simulation shows, and no more than another does."""
    more = None if wider is None else wider.error(want, number)
    if more is not None:
        more = more.nan_to_num(0.0, 0.0, 0.0)
        bound = more if bound is None else bound + more
    most = None if narrower is None or bound is None else narrower.error(want, number)
    return bound if most is None or bound is None else torch.where(most.isfinite(), torch.minimum(bound, most), bound)


def is_half(values: Values, number: int) -> bool:
    return UNITS.get(values.spec(number).dtype, 0.0) > COARSE


def pytorch_sums(meaning: Meaning, values: Values, gradients: Gradients | None, framework: str) -> Simulation | None:
    """Results of PyTorch's own kernels in 16 bits: those that add up in memory, or whose formulas (the third power in the gradient
    of 1/√x) round or overflow on the way. Not of products of matrices, which are added up in float32.
    """
    if meaning.operation in _NOT_SIMULATED or (traits_of(meaning).product and not meaning.operation.startswith("conv")):
        return None
    with without_onednn():
        found = _simulated(meaning, values, gradients, lambda number: DTYPES[values.spec(number).dtype], kernels.FUSED)
    return Simulation(found, _SIMULATED)


def channels_last(meaning: Meaning, values: Values, gradients: Gradients | None, framework: str) -> Simulation | None:
    """Results of PyTorch's convolutions of images whose channels lie last in memory: another kernel, with another order of sums."""
    image = meaning.arguments.get("input")
    if not meaning.operation.startswith("conv") or not isinstance(image, Operand):
        return None
    if len(values.spec(image.tensor).shape) != 4:
        return None
    with without_onednn():
        found = _simulated(
            meaning,
            values,
            gradients,
            lambda number: DTYPES[values.spec(number).dtype],
            kernels.FUSED,
            torch.channels_last,
        )
    return Simulation(found, _SIMULATED)


def in_two_steps(meaning: Meaning, values: Values, gradients: Gradients | None, framework: str) -> Simulation | None:
    """Result of a product with a bias, where the product is rounded before the bias is added: a kernel for each."""
    bias = meaning.arguments.get("bias")
    if not traits_of(meaning).product or not isinstance(bias, Operand) or len(meaning.results) != 1:
        return None
    (number,) = meaning.results
    parts = (replace(meaning, arguments={**meaning.arguments, "bias": None}), meaning)
    with torch.no_grad():
        product, whole = (evaluate(part, lambda _, own: values(own))[0] for part in parts)
    return Simulation({number: rounded(product, values.spec(number).dtype) + (whole - product)}, _SIMULATED)


def step_by_step(meaning: Meaning, values: Values, gradients: Gradients | None, framework: str) -> Simulation | None:
    """Results where each step of the computation is rounded to 16 bits, of frameworks whose kernels do so."""
    halves = [values.spec(number).dtype for number in meaning.results if is_half(values, number)]
    if framework not in _ROUNDED_STEPS or not halves:
        return None
    return rounded_steps(meaning, values, gradients, halves[0])


def rounded_steps(meaning: Meaning, values: Values, gradients: Gradients | None, dtype: str) -> Simulation:
    known = DTYPES[dtype]
    held = {
        name: float(torch.tensor(value, dtype=known)) if isinstance(value, float) and abs(value) < 1 else value
        for name, value in meaning.arguments.items()
    }
    held = {name: meaning.arguments[name] if value == 0 else value for name, value in held.items()}  # eps of 1e-12
    with RoundedResults(known), plain_attention():
        found = _simulated(replace(meaning, arguments=held), values, gradients, lambda number: torch.float64, {})
    return Simulation(found, _TAIL)


def _simulated(
    meaning: Meaning,
    values: Values,
    gradients: Gradients | None,
    dtype_of: Callable[[int], torch.dtype],
    preferred: Mapping[str, kernels.Kernel],
    memory: torch.memory_format = torch.preserve_format,
) -> dict[int, Tensor]:
    """Results and gradients of a call whose operands have other element types, by the numbers of the recorded ones; `memory`: how
    its input and the gradients of its results lie in memory.
    """
    operands: dict[str, Tensor] = {}
    numbers: dict[str, int] = {}
    for path, operand in meaning.operands():
        tensor = values(operand.tensor).detach()
        if tensor.is_floating_point():
            kind = memory if path == "input" else torch.preserve_format
            tensor = tensor.to(dtype_of(operand.tensor)).clone(memory_format=kind).detach().requires_grad_()
        operands[path], numbers[path] = tensor, operand.tensor
    try:
        with torch.enable_grad():
            made = evaluate(meaning, lambda path, _: operands[path], preferred)
            found = {number: made[key].detach().double() for number, key in meaning.results.items() if key in made}
            outputs = gradients.outputs if gradients is not None else {}
            results = [
                (made[key], number) for number, key in meaning.results.items() if number in outputs and key in made
            ]
            seeds = [
                values(outputs[number]).to(result.dtype).reshape(result.shape).clone(memory_format=memory)
                for result, number in results
            ]
            leaves = [path for path, tensor in operands.items() if tensor.requires_grad]
            if gradients is None or not results or not leaves:
                return found
            gradients.hold((result, seed) for (result, _), seed in zip(results, seeds, strict=True))
            sent = torch.autograd.grad(
                [result for result, _ in results], [operands[path] for path in leaves], seeds, allow_unused=True
            )
    except (NotRecomputable, RuntimeError):  # no kernel for this element type
        return {}
    for path, gradient in zip(leaves, sent, strict=True):
        if gradient is not None:
            found.update(dict.fromkeys(gradients.inputs.get(numbers[path], ()), gradient.double()))
    return found
