"""Run one side of a case: a forward pass, a forward and a backward pass, or two training steps; with a recorder or without.

    results = run_side(side)                       numbers by name: loss, output, grad:NAME, state:NAME
    run_side(side, folder)                         the same, and a trace with every value

    python -m corpus.generator.running FOLDER < sides.json        many sides in one process, of the framework of this process

Only what is needed to run is here: a Side is data (cases.py), nets and mistakes are in nets.py and parts.py.
"""

from __future__ import annotations

import contextlib
import json
import sys
import traceback
from pathlib import Path
from typing import Any

import numpy as np

from .cases import Side
from .kit import kit as k
from .kit import use_names
from .nets import NETS
from .parts import Plan

STEPS = 2
"""Of a training: the second shows what the first did to the weights and the optimizer's state."""


def build(side: Side) -> tuple[Plan, Any, dict[str, Any]]:
    """The net with its weights, in its dtype and mode, and its batch."""
    use_names(side.names)
    k.prepare()
    plan = Plan(side.knobs, side.dtype)
    net = NETS[side.net].build(plan)
    plan.load_weights(side.seed)
    k.to_dtype(net, side.dtype)
    k.train_mode(net, side.mode != "forward")
    for site, layer in plan.layers:
        if plan.knobs.get((site, "frozen")):
            k.train_mode(layer, False)
    arrays = NETS[side.net].batch(np.random.default_rng([side.seed, 1]))
    return plan, net, {name: k.to_tensor(value, side.dtype) for name, value in arrays.items()}


def run_side(side: Side, folder: Path | None = None) -> dict[str, np.ndarray]:
    """Results by name, in float64."""
    plan, net, batch = build(side)
    first: dict[str, Any] = {}

    def forward() -> tuple[Any, Any]:
        return NETS[side.net].loss(plan, net, batch)

    with contextlib.ExitStack() as stack:
        fault = _wrong_kernel(plan, stack)
        step = _recorder(net, side, folder, stack)
        if side.mode == "forward":
            loss, output = k.forward_only(forward)
            step()
        else:
            optimize = _optimizer(plan, net) if side.mode == "train" else None
            for _ in range(STEPS if optimize else 1):
                loss, output, gradients = k.with_gradients(net, forward, fault)
                first = first or gradients
                if optimize:
                    optimize(gradients)
                step()
    # Only now: a conversion while recording would be recorded.
    results = {"loss": k.to_numpy(loss), "output": k.to_numpy(output)}
    results |= {f"grad:{name}": k.to_numpy(value) for name, value in first.items()}
    if side.mode != "forward":
        results |= {f"state:{name}": k.to_numpy(value) for name, value in k.named_state(net)}
    return results


def knobs_of(net: str, dtype: str = "f32", mode: str = "train") -> dict[tuple[str, str], Any]:
    """Every knob that a net has, with what is right."""
    side = Side("torch", net, (), dtype, mode, "same", 0)
    plan, made, batch = build(side)
    NETS[net].loss(plan, made, batch)
    _optimizer(plan, made)
    _wrong_kernel(plan, contextlib.ExitStack())
    return plan.asked


def _wrong_kernel(plan: Plan, stack: contextlib.ExitStack) -> Any:
    """What is to be called before the backward pass."""
    for site, layer in plan.layers:
        if len(k.shapes_of(layer).get("weight", ())) < 2 or site in ("tokens", "places"):
            continue  # no product, no convolution
        for knob in ("kernel", "kernel_backward"):
            plan.at(site, knob, "right")
            how = plan.knobs.get((site, knob))
            if how:
                from .kernels import WrongKernel

                return stack.enter_context(WrongKernel(layer, how, backward=knob == "kernel_backward")).arm
    return lambda: None


def _optimizer(plan: Plan, net: Any) -> Any:
    kind = plan.at("#optimizer", "optimizer", "adamw")
    settings = {"lr": plan.at("#optimizer", "lr", 1e-2)}
    if kind == "sgd":
        settings |= {"momentum": plan.at("#optimizer", "momentum", 0.9)}
    else:
        settings |= {
            "betas": (0.9, plan.at("#optimizer", "beta2", 0.999)),
            "eps": plan.at("#optimizer", "eps", 1e-8),
            "weight_decay": plan.at("#optimizer", "decay", 0.01),
        }
    return k.optimizer(kind, net, settings, plan.at("#optimizer", "form", ""))


def _recorder(net: Any, side: Side, folder: Path | None, stack: contextlib.ExitStack) -> Any:
    if folder is None:
        return lambda: None
    import twintrace as tt

    recorder = tt.record(folder, net, level=side.level, keep="tensor", strict=True, overwrite=True)
    return stack.enter_context(recorder).step


def main() -> None:
    """Record what is asked for on stdin, [[folder, side], …]; one line of JSON for each: an error, or nothing."""
    for folder, given in json.load(sys.stdin):
        side = Side.from_json(given)
        error = ""
        try:
            results = run_side(side, Path(folder))
            np.savez(f"{folder}.npz", **results)
            Path(f"{folder}.json").write_text(json.dumps(given), encoding="utf-8")  # last: it says that all is there
        except Exception as failure:  # noqa: BLE001 - told to whoever asked; the others are still to be recorded
            error = f"{type(failure).__name__}: {str(failure).strip()[:300]}"
            sys.stderr.write(f"{folder}\n{traceback.format_exc(limit=-4)}\n")
        sys.stdout.write(json.dumps([folder, error]) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
