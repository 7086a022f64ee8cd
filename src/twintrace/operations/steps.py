"""Float64 computation of the steps of optimizers, element by element. Works on tensors by their methods alone.

    STEPS["adagrad"](parameters=(p,), gradients=(g,), sum=(s,), …)      {"parameters.0": …, "sum.0": …, "step.0": …}

A rule is the step of one parameter: it has the gradient with decay and scale, and a state that is None where there is none yet. It
returns what is new, the parameter under the name of `parameters`. The decorator makes a kernel of it, for all parameters: its
results have the number of the parameter, those that all share none.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from .optimizers import AFTER, RESULTS, SHARED

Results = dict[int | str, Any]
New = dict[str, Any]
STEPS: dict[str, Callable[..., Results]] = {}
"""Computation of each optimizer's step, by its operation."""

_OF_ONE = frozenset.union(*RESULTS.values()) | {"stat", "momentum", "dampening"}
"""Arguments of a rule that may be one for each parameter: state, and settings of groups."""


def _each(value: Any, number: int) -> Any:
    """A setting for one parameter: one for all, or one of several."""
    return value[number] if isinstance(value, tuple) else value


def _decayed(gradient: Any, parameter: Any, decay: Any, scale: float, *, maximize: bool) -> Any:
    """The gradient that the step uses: weight decay first, then the factor of the loss's scale."""
    gradient = -gradient if maximize else gradient
    if not (isinstance(decay, int | float) and decay == 0):
        gradient = gradient + decay * parameter
    return gradient * scale if scale != 1.0 else gradient


def _for_all(rule: Callable[..., New]) -> Callable[..., New]:
    """Register the step of one parameter as the kernel of all. Parameters without a gradient stay as they are.

    `decoupled` decay shrinks the parameter instead of adding to the gradient; a rule that takes `weight_decay` applies it itself.
    """
    signature = inspect.signature(rule)
    by_rule = "weight_decay" in signature.parameters
    own = [
        item for item in signature.parameters.values() if item.kind is item.KEYWORD_ONLY and item.name != "weight_decay"
    ]

    def step(
        parameters: Sequence[Any],
        gradients: Sequence[Any],
        lr: Any,
        weight_decay: Any,
        maximize: bool,
        grad_scale: float,
        decoupled: bool = False,
        **given: Any,
    ) -> Results:
        shared = [name for name in SHARED if given.get(name) is not None]
        powers = {name: given[name] * given[name.removesuffix("_power")] for name in shared}
        results: Results = dict(powers.items())
        for number, (parameter, gradient) in enumerate(zip(parameters, gradients, strict=True)):
            if gradient is None:
                results[f"parameters.{number}"] = parameter
                continue
            rate, decay = _each(lr, number), _each(weight_decay, number)
            settings = {name: _each(value, number) if name in _OF_ONE else value for name, value in given.items()}
            settings |= powers | ({"weight_decay": decay} if by_rule else {})
            added = 0 if decoupled or by_rule else decay
            gradient = _decayed(gradient, parameter, added, grad_scale, maximize=maximize)
            parameter = parameter - rate * decay * parameter if decoupled else parameter
            new = rule(parameter, gradient, rate, **settings)
            results |= {f"{name}.{number}": value for name, value in new.items()}
        return results

    outer = [item for name, item in inspect.signature(step).parameters.items() if name != "given"]
    step.__signature__ = signature.replace(parameters=[*outer, *own])  # type: ignore[attr-defined]
    STEPS[rule.__name__] = step
    return rule


def _counted(step: Any, counted: bool) -> Any:
    """Number of steps including this one, of a count that has it already or not."""
    return _centre(step) + (0 if counted else 1)


def _centre(step: Any) -> Any:
    """Number of steps; a record of none is 0, a row of one number is that number."""
    return 0 if step is None else step.double().reshape(()) if hasattr(step, "double") else step


def _averaged(before: Any, share: float, new: Any) -> Any:
    """`share·before + new`; in its first step a running average begins with zeros, which add nothing."""
    return new if before is None else share * before + new


def _interpolated(before: Any, share: float, new: Any) -> Any:
    """`share·before + (1 - share)·new`, also of frameworks that compute `before + (1 - share)·(new - before)` instead.

    The factors are tensors, so that both products count as rounded: with a share of 0.5 they are exact, and the difference is not.
    """
    part = new.new_tensor(1 - share) * new
    return part if before is None else before.new_tensor(share) * before + part


def _moments(gradient: Any, average: Any, squares: Any, beta1: float, beta2: float) -> tuple[Any, Any]:
    """Running averages of a gradient and of its square."""
    return (
        _interpolated(average, beta1, gradient),
        _averaged(squares, beta2, (1 - beta2) * gradient * gradient),
    )


@_for_all
def sgd(
    parameter: Any,
    gradient: Any,
    rate: Any,
    *,
    momentum_buffer: Any,
    stat: Any,
    momentum: Any,
    dampening: Any,
    nesterov: bool,
) -> New:
    """The buffer begins with the gradient itself: where there is none yet, or where `stat` is still 1."""
    buffer, update = momentum_buffer, gradient
    if momentum != 0:
        if buffer is None:
            buffer = gradient
        else:
            going_on = momentum * buffer + (1 - dampening) * gradient
            buffer = going_on if stat is None else gradient.where(stat > 0, going_on)
        update = gradient + momentum * buffer if nesterov else buffer
    kept = {} if buffer is None else {"momentum_buffer": buffer}
    return {"parameters": parameter - rate * update, **kept}


@_for_all
def adam(
    parameter: Any,
    gradient: Any,
    rate: Any,
    *,
    exp_avg: Any,
    exp_avg_sq: Any,
    max_exp_avg_sq: Any,
    step: Any,
    beta1_power: Any,
    beta2_power: Any,
    beta1: float,
    beta2: float,
    eps: float,
    eps_added: str,
    bias_correction: bool,
    amsgrad: bool,
    nesterov: bool,
    counted: bool = False,
) -> New:
    """Adam and AdamW. `counted`: `step` has this one; the powers of the betas always have."""
    average, squares = _moments(gradient, exp_avg, exp_avg_sq, beta1, beta2)
    new = {"exp_avg": average, "exp_avg_sq": squares}
    largest = squares
    if amsgrad:
        largest = squares if max_exp_avg_sq is None else squares.maximum(max_exp_avg_sq)
        new["max_exp_avg_sq"] = largest
    elif max_exp_avg_sq is not None:
        new["max_exp_avg_sq"] = max_exp_avg_sq
    first = second = 1.0
    if beta1_power is not None:
        first, second = 1 - beta1_power, 1 - beta2_power
    elif bias_correction:
        new["step"] = steps = _counted(step, counted)
        first, second = 1 - beta1**steps, 1 - beta2**steps
    moved = beta1 * average + (1 - beta1) * gradient if nesterov else average
    root = second**0.5
    if eps_added == AFTER:
        update = moved / first / (largest.sqrt() / root + eps)
    else:
        update = moved * (root / first) / (largest.sqrt() + eps)
    return {"parameters": parameter - rate * update, **new}


@_for_all
def rmsprop(
    parameter: Any,
    gradient: Any,
    rate: Any,
    *,
    square_avg: Any,
    grad_avg: Any,
    momentum_buffer: Any,
    alpha: float,
    eps: float,
    eps_added: str,
    momentum: float,
    centered: bool,
    rate_in_momentum: bool,
) -> New:
    """RMSprop: epsilon below or after the root, the rate inside the momentum or outside of it."""
    squares = spread = _averaged(square_avg, alpha, (1 - alpha) * gradient * gradient)
    new = {"square_avg": squares}
    if centered:
        new["grad_avg"] = mean = _interpolated(grad_avg, alpha, gradient)
        spread = squares - mean * mean
    elif grad_avg is not None:
        new["grad_avg"] = grad_avg
    update = gradient / ((spread + eps).sqrt() if eps_added == "below the root" else spread.sqrt() + eps)
    if rate_in_momentum:
        new["momentum_buffer"] = buffer = _averaged(momentum_buffer, momentum, rate * update)
        return {"parameters": parameter - buffer, **new}
    if momentum > 0:
        new["momentum_buffer"] = update = _averaged(momentum_buffer, momentum, update)
    return {"parameters": parameter - rate * update, **new}


@_for_all
def adagrad(
    parameter: Any, gradient: Any, rate: Any, *, sum: Any, step: Any, lr_decay: float, eps: float, counted: bool = False
) -> New:
    """Adagrad: the rate falls with the steps, the sum of squares grows. `counted`: `step` has this one."""
    squares = gradient * gradient if sum is None else sum + gradient * gradient
    steps = _counted(step, counted)
    falling = rate / (1 + (steps - 1) * lr_decay)
    return {"parameters": parameter - falling * gradient / (squares.sqrt() + eps), "sum": squares, "step": steps}


@_for_all
def nadam(
    parameter: Any,
    gradient: Any,
    rate: Any,
    *,
    exp_avg: Any,
    exp_avg_sq: Any,
    mu_product: Any,
    step: Any,
    beta1: float,
    beta2: float,
    eps: float,
    momentum_decay: float,
) -> New:
    """Adam with Nesterov's momentum, whose share grows with the steps."""
    average, squares = _moments(gradient, exp_avg, exp_avg_sq, beta1, beta2)
    steps = float(_centre(step)) + 1  # its powers are taken in float64
    share, following = (beta1 * (1 - 0.5 * 0.96 ** (count * momentum_decay)) for count in (steps, steps + 1))
    product = share if mu_product is None else _centre(mu_product) * share
    size = (squares / (1 - beta2**steps)).sqrt() + eps
    update = gradient * ((1 - share) / (1 - product)) / size + average * (following / (1 - product * following)) / size
    new = {"exp_avg": average, "exp_avg_sq": squares, "step": steps, "mu_product": product}
    return {"parameters": parameter - rate * update, **new}


@_for_all
def radam(
    parameter: Any,
    gradient: Any,
    rate: Any,
    *,
    exp_avg: Any,
    exp_avg_sq: Any,
    step: Any,
    beta1: float,
    beta2: float,
    eps: float,
) -> New:
    """Adam that leaves the second moment out of its first steps, and then corrects its variance."""
    average, squares = _moments(gradient, exp_avg, exp_avg_sq, beta1, beta2)
    steps = float(_centre(step)) + 1  # its powers are taken in float64
    second = 1 - beta2**steps
    longest = 2 / (1 - beta2) - 1
    length = longest - 2 * steps * beta2**steps / second
    update = average / (1 - beta1**steps)
    if length > 5:
        variance = (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
        update = update * (variance**0.5 * second**0.5) / (squares.sqrt() + eps)
    return {"parameters": parameter - rate * update, "exp_avg": average, "exp_avg_sq": squares, "step": steps}


@_for_all
def adamax(
    parameter: Any,
    gradient: Any,
    rate: Any,
    *,
    exp_avg: Any,
    exp_inf: Any,
    step: Any,
    beta1: float,
    beta2: float,
    eps: float,
) -> New:
    """Adam with the largest gradient so far, which fades, in the place of the second moment."""
    average = _interpolated(exp_avg, beta1, gradient)
    size = gradient.abs() + eps
    largest = size if exp_inf is None else size.maximum(beta2 * exp_inf)
    steps = _counted(step, False)
    moved = parameter - rate / (1 - beta1**steps) * average / largest
    return {"parameters": moved, "exp_avg": average, "exp_inf": largest, "step": steps}


@_for_all
def adadelta(
    parameter: Any, gradient: Any, rate: Any, *, square_avg: Any, acc_delta: Any, step: Any, rho: float, eps: float
) -> New:
    """Adadelta: steps as large as those before them, over gradients as large as those before them."""
    squares = _averaged(square_avg, rho, (1 - rho) * gradient * gradient)
    before = (squares * 0 if acc_delta is None else acc_delta) + eps
    delta = before.sqrt() / (squares + eps).sqrt() * gradient
    deltas = _averaged(acc_delta, rho, (1 - rho) * delta * delta)
    new = {"square_avg": squares, "acc_delta": deltas, "step": _counted(step, False)}
    return {"parameters": parameter - rate * delta, **new}


@_for_all
def lamb(
    parameter: Any,
    gradient: Any,
    rate: Any,
    *,
    exp_avg: Any,
    exp_avg_sq: Any,
    step: Any,
    beta1: float,
    beta2: float,
    eps: float,
    largest_trust: float,
    weight_decay: Any,
) -> New:
    """Lamb: the step of AdamW, scaled so that its norm is the parameter's, by a factor of at most `largest_trust`.

    The norm is that of the update with epsilon below the root. A parameter of one element stands for its norm, sign and all.
    """
    average, squares = _moments(gradient, exp_avg, exp_avg_sq, beta1, beta2)
    steps = _counted(step, False)
    first, second = average / (1 - beta1**steps), squares / (1 - beta2**steps)
    update = first / (second.sqrt() + eps) + weight_decay * parameter
    measured = first / (second + eps).sqrt() + weight_decay * parameter
    alone = parameter.numel() == 1
    own, other = (parameter, measured) if alone else (_norm(parameter), _norm(measured))
    one = own * 0 + 1
    trust = (own / other.where(other > 0, one)).where((own > 0) & (other > 0), one).clamp(max=largest_trust)
    return {"parameters": parameter - trust * rate * update, "exp_avg": average, "exp_avg_sq": squares}


def _norm(value: Any) -> Any:
    return value.square().sum().sqrt()
