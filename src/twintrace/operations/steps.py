"""Float64 computation of the steps of optimizers, element by element. Works on tensors by their methods alone.

Every kernel returns a dict: `parameters.0`, the state with the number of its parameter, what all share without one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from .optimizers import AFTER

Results = dict[int | str, Any]


def _each(value: Any, number: int) -> Any:
    """A setting for one parameter: one for all, or one of several."""
    return value[number] if isinstance(value, tuple) else value


def _moving(parameters: Sequence[Any], gradients: Sequence[Any], results: Results) -> Iterator[tuple[int, Any, Any]]:
    """Numbers, parameters and gradients of those that have one; the others are results as they are."""
    for number, (parameter, gradient) in enumerate(zip(parameters, gradients, strict=True)):
        if gradient is None:
            results[f"parameters.{number}"] = parameter
        else:
            yield number, parameter, gradient


def _decayed(gradient: Any, parameter: Any, decay: Any, scale: float, *, maximize: bool) -> Any:
    """The gradient that the step uses: weight decay first, then the factor of the loss's scale."""
    gradient = -gradient if maximize else gradient
    if not (isinstance(decay, int | float) and decay == 0):
        gradient = gradient + decay * parameter
    return gradient * scale if scale != 1.0 else gradient


def _counted(step: Any, counted: bool) -> Any:
    """Number of steps including this one, of a count that has it already or not."""
    return _centre(step) + (0 if counted else 1)


def _centre(step: Any) -> Any:
    """Number of steps; a record of none is 0, a row of one number is that number."""
    return 0 if step is None else step.double().reshape(()) if hasattr(step, "double") else step


def sgd(
    parameters: Sequence[Any],
    gradients: Sequence[Any],
    momentum_buffer: Sequence[Any],
    stat: Sequence[Any],
    lr: Any,
    momentum: Any,
    dampening: Any,
    weight_decay: Any,
    nesterov: bool,
    maximize: bool,
    grad_scale: float,
) -> Results:
    """The buffer begins with the gradient itself: where there is none yet, or where `stat` is still 1."""
    results: Results = {}
    for number, parameter, gradient in _moving(parameters, gradients, results):
        inertia = _each(momentum, number)
        gradient = _decayed(gradient, parameter, _each(weight_decay, number), grad_scale, maximize=maximize)
        update = gradient
        if inertia != 0:
            buffer, first = momentum_buffer[number], stat[number]
            if buffer is None:
                buffer = gradient
            else:
                going_on = inertia * buffer + (1 - _each(dampening, number)) * gradient
                buffer = going_on if first is None else gradient.where(first > 0, going_on)
            results[f"momentum_buffer.{number}"] = buffer
            update = gradient + inertia * buffer if nesterov else buffer
        elif momentum_buffer[number] is not None:
            results[f"momentum_buffer.{number}"] = momentum_buffer[number]
        results[f"parameters.{number}"] = parameter - _each(lr, number) * update
    return results


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


def adam(
    parameters: Sequence[Any],
    gradients: Sequence[Any],
    exp_avg: Sequence[Any],
    exp_avg_sq: Sequence[Any],
    max_exp_avg_sq: Sequence[Any],
    step: Sequence[Any],
    beta1_power: Any,
    beta2_power: Any,
    lr: Any,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: Any,
    eps_added: str,
    bias_correction: bool,
    decoupled: bool,
    amsgrad: bool,
    nesterov: bool,
    maximize: bool,
    grad_scale: float,
    counted: bool = False,
) -> Results:
    """Adam and AdamW; `decoupled` decay shrinks the parameter instead of adding to the gradient. `counted`: `step` has this one."""
    results: Results = {}
    if beta1_power is not None:
        results["beta1_power"], results["beta2_power"] = beta1_power * beta1, beta2_power * beta2
    for number, parameter, gradient in _moving(parameters, gradients, results):
        rate, decay = _each(lr, number), _each(weight_decay, number)
        gradient = _decayed(gradient, parameter, 0 if decoupled else decay, grad_scale, maximize=maximize)
        average, squares = _moments(gradient, exp_avg[number], exp_avg_sq[number], beta1, beta2)
        results[f"exp_avg.{number}"], results[f"exp_avg_sq.{number}"] = average, squares
        largest = squares
        if amsgrad:
            known = max_exp_avg_sq[number]
            largest = squares if known is None else squares.maximum(known)
            results[f"max_exp_avg_sq.{number}"] = largest
        elif max_exp_avg_sq[number] is not None:
            results[f"max_exp_avg_sq.{number}"] = max_exp_avg_sq[number]
        first = second = 1.0
        if beta1_power is not None:
            first, second = 1 - results["beta1_power"], 1 - results["beta2_power"]
        elif bias_correction:
            steps = _counted(step[number], counted)
            results[f"step.{number}"] = steps
            first, second = 1 - beta1**steps, 1 - beta2**steps
        moved = beta1 * average + (1 - beta1) * gradient if nesterov else average
        root = second**0.5
        if eps_added == AFTER:
            update = moved / first / (largest.sqrt() / root + eps)
        else:
            update = moved * (root / first) / (largest.sqrt() + eps)
        shrunk = parameter - rate * decay * parameter if decoupled else parameter
        results[f"parameters.{number}"] = shrunk - rate * update
    return results


def rmsprop(
    parameters: Sequence[Any],
    gradients: Sequence[Any],
    square_avg: Sequence[Any],
    grad_avg: Sequence[Any],
    momentum_buffer: Sequence[Any],
    lr: Any,
    alpha: float,
    eps: float,
    eps_added: str,
    momentum: float,
    centered: bool,
    rate_in_momentum: bool,
    weight_decay: Any,
    maximize: bool,
    grad_scale: float,
) -> Results:
    """RMSprop: epsilon below or after the root, the rate inside the momentum or outside of it."""
    results: Results = {}
    for number, parameter, gradient in _moving(parameters, gradients, results):
        rate = _each(lr, number)
        gradient = _decayed(gradient, parameter, _each(weight_decay, number), grad_scale, maximize=maximize)
        squares = _averaged(square_avg[number], alpha, (1 - alpha) * gradient * gradient)
        results[f"square_avg.{number}"] = spread = squares
        if centered:
            mean = _interpolated(grad_avg[number], alpha, gradient)
            results[f"grad_avg.{number}"] = mean
            spread = squares - mean * mean
        elif grad_avg[number] is not None:
            results[f"grad_avg.{number}"] = grad_avg[number]
        scaled = gradient / ((spread + eps).sqrt() if eps_added == "below the root" else spread.sqrt() + eps)
        buffer = momentum_buffer[number]
        if rate_in_momentum:
            buffer = _averaged(buffer, momentum, rate * scaled)
            results[f"momentum_buffer.{number}"] = buffer
            results[f"parameters.{number}"] = parameter - buffer
        elif momentum > 0:
            buffer = _averaged(buffer, momentum, scaled)
            results[f"momentum_buffer.{number}"] = buffer
            results[f"parameters.{number}"] = parameter - rate * buffer
        else:
            results[f"parameters.{number}"] = parameter - rate * scaled
    return results


def adagrad(
    parameters: Sequence[Any],
    gradients: Sequence[Any],
    sum: Sequence[Any],
    step: Sequence[Any],
    lr: Any,
    lr_decay: float,
    eps: float,
    weight_decay: Any,
    maximize: bool,
    grad_scale: float,
    counted: bool = False,
) -> Results:
    """Adagrad: the rate falls with the steps, the sum of squares grows. `counted`: `step` has this one."""
    results: Results = {}
    for number, parameter, gradient in _moving(parameters, gradients, results):
        gradient = _decayed(gradient, parameter, _each(weight_decay, number), grad_scale, maximize=maximize)
        known = sum[number]
        squares = gradient * gradient if known is None else known + gradient * gradient
        steps = _counted(step[number], counted)
        results[f"sum.{number}"], results[f"step.{number}"] = squares, steps
        rate = _each(lr, number) / (1 + (steps - 1) * lr_decay)
        results[f"parameters.{number}"] = parameter - rate * gradient / (squares.sqrt() + eps)
    return results


def nadam(
    parameters: Sequence[Any],
    gradients: Sequence[Any],
    exp_avg: Sequence[Any],
    exp_avg_sq: Sequence[Any],
    mu_product: Sequence[Any],
    step: Sequence[Any],
    lr: Any,
    beta1: float,
    beta2: float,
    eps: float,
    momentum_decay: float,
    weight_decay: Any,
    decoupled: bool,
    maximize: bool,
    grad_scale: float,
) -> Results:
    """Adam with Nesterov's momentum, whose share grows with the steps."""
    results: Results = {}
    for number, parameter, gradient in _moving(parameters, gradients, results):
        rate, decay = _each(lr, number), _each(weight_decay, number)
        gradient = _decayed(gradient, parameter, 0 if decoupled else decay, grad_scale, maximize=maximize)
        average, squares = _moments(gradient, exp_avg[number], exp_avg_sq[number], beta1, beta2)
        steps = float(_centre(step[number])) + 1  # its powers are taken in float64
        share, following = (beta1 * (1 - 0.5 * 0.96 ** (count * momentum_decay)) for count in (steps, steps + 1))
        product = share if mu_product[number] is None else _centre(mu_product[number]) * share
        results[f"exp_avg.{number}"], results[f"exp_avg_sq.{number}"] = average, squares
        results[f"step.{number}"], results[f"mu_product.{number}"] = steps, product
        size = (squares / (1 - beta2**steps)).sqrt() + eps
        update = (
            gradient * ((1 - share) / (1 - product)) / size + average * (following / (1 - product * following)) / size
        )
        shrunk = parameter - rate * decay * parameter if decoupled else parameter
        results[f"parameters.{number}"] = shrunk - rate * update
    return results


def radam(
    parameters: Sequence[Any],
    gradients: Sequence[Any],
    exp_avg: Sequence[Any],
    exp_avg_sq: Sequence[Any],
    step: Sequence[Any],
    lr: Any,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: Any,
    decoupled: bool,
    maximize: bool,
    grad_scale: float,
) -> Results:
    """Adam that leaves the second moment out of its first steps, and then corrects its variance."""
    results: Results = {}
    for number, parameter, gradient in _moving(parameters, gradients, results):
        rate, decay = _each(lr, number), _each(weight_decay, number)
        gradient = _decayed(gradient, parameter, 0 if decoupled else decay, grad_scale, maximize=maximize)
        average, squares = _moments(gradient, exp_avg[number], exp_avg_sq[number], beta1, beta2)
        steps = float(_centre(step[number])) + 1  # its powers are taken in float64
        results[f"exp_avg.{number}"], results[f"exp_avg_sq.{number}"] = average, squares
        results[f"step.{number}"] = steps
        second = 1 - beta2**steps
        longest = 2 / (1 - beta2) - 1
        length = longest - 2 * steps * beta2**steps / second
        update = average / (1 - beta1**steps)
        if length > 5:
            variance = (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
            update = update * (variance**0.5 * second**0.5) / (squares.sqrt() + eps)
        shrunk = parameter - rate * decay * parameter if decoupled else parameter
        results[f"parameters.{number}"] = shrunk - rate * update
    return results


def adamax(
    parameters: Sequence[Any],
    gradients: Sequence[Any],
    exp_avg: Sequence[Any],
    exp_inf: Sequence[Any],
    step: Sequence[Any],
    lr: Any,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: Any,
    maximize: bool,
    grad_scale: float,
) -> Results:
    """Adam with the largest gradient so far, which fades, in the place of the second moment."""
    results: Results = {}
    for number, parameter, gradient in _moving(parameters, gradients, results):
        gradient = _decayed(gradient, parameter, _each(weight_decay, number), grad_scale, maximize=maximize)
        average = _interpolated(exp_avg[number], beta1, gradient)
        known, size = exp_inf[number], gradient.abs() + eps
        largest = size if known is None else size.maximum(beta2 * known)
        steps = _centre(step[number]) + 1
        results[f"exp_avg.{number}"], results[f"exp_inf.{number}"] = average, largest
        results[f"step.{number}"] = steps
        results[f"parameters.{number}"] = parameter - _each(lr, number) / (1 - beta1**steps) * average / largest
    return results


def adadelta(
    parameters: Sequence[Any],
    gradients: Sequence[Any],
    square_avg: Sequence[Any],
    acc_delta: Sequence[Any],
    step: Sequence[Any],
    lr: Any,
    rho: float,
    eps: float,
    weight_decay: Any,
    maximize: bool,
    grad_scale: float,
) -> Results:
    """Adadelta: steps as large as those before them, over gradients as large as those before them."""
    results: Results = {}
    for number, parameter, gradient in _moving(parameters, gradients, results):
        gradient = _decayed(gradient, parameter, _each(weight_decay, number), grad_scale, maximize=maximize)
        squares = _averaged(square_avg[number], rho, (1 - rho) * gradient * gradient)
        known = acc_delta[number]
        before = (squares * 0 if known is None else known) + eps
        delta = before.sqrt() / (squares + eps).sqrt() * gradient
        results[f"square_avg.{number}"] = squares
        results[f"acc_delta.{number}"] = _averaged(known, rho, (1 - rho) * delta * delta)
        results[f"step.{number}"] = _centre(step[number]) + 1
        results[f"parameters.{number}"] = parameter - _each(lr, number) * delta
    return results


def lamb(
    parameters: Sequence[Any],
    gradients: Sequence[Any],
    exp_avg: Sequence[Any],
    exp_avg_sq: Sequence[Any],
    step: Sequence[Any],
    lr: Any,
    beta1: float,
    beta2: float,
    eps: float,
    largest_trust: float,
    weight_decay: Any,
    maximize: bool,
    grad_scale: float,
) -> Results:
    """Lamb: the step of AdamW, scaled so that its norm is the parameter's, by a factor of at most `largest_trust`.

    The norm is that of the update with epsilon below the root. A parameter of one element stands for its norm, sign and all.
    """
    results: Results = {}
    for number, parameter, gradient in _moving(parameters, gradients, results):
        rate, decay = _each(lr, number), _each(weight_decay, number)
        gradient = _decayed(gradient, parameter, 0, grad_scale, maximize=maximize)
        average, squares = _moments(gradient, exp_avg[number], exp_avg_sq[number], beta1, beta2)
        results[f"exp_avg.{number}"], results[f"exp_avg_sq.{number}"] = average, squares
        steps = _centre(step[number]) + 1
        first, second = average / (1 - beta1**steps), squares / (1 - beta2**steps)
        update = first / (second.sqrt() + eps) + decay * parameter
        measured = first / (second + eps).sqrt() + decay * parameter
        alone = parameter.numel() == 1
        own, other = (parameter, measured) if alone else (_norm(parameter), _norm(measured))
        one = own * 0 + 1
        trust = (own / other.where(other > 0, one)).where((own > 0) & (other > 0), one).clamp(max=largest_trust)
        results[f"parameters.{number}"] = parameter - trust * rate * update
    return results


def _norm(value: Any) -> Any:
    return value.square().sum().sqrt()


STEPS: Mapping[str, Callable[..., Results]] = {
    "sgd": sgd, "adam": adam, "nadam": nadam, "radam": radam, "adamax": adamax, "adadelta": adadelta, "rmsprop": rmsprop,
    "adagrad": adagrad, "lamb": lamb,
}  # fmt: skip
"""Computation of each optimizer's step, by its operation."""
