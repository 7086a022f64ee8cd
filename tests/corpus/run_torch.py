"""One training step of pairs' left sides: what came out, or a trace.

    python -m corpus.run_torch FOLDER mlp resnet           FOLDER/mlp/weights.npz, FOLDER/mlp/torch.npz, …
    python -m corpus.run_torch FOLDER mlp --trace mix      FOLDER/mlp/weights.npz, FOLDER/mlp/torch/ (a trace with all values)
                               … --fresh                   norms begin with ones and zeros, as constructed

weights.npz has the weights that the step began with. torch.npz has `loss`, `output:…`, `grad:…` by parameter, and what each call of
each module put out: `module:PATH#CALL:N`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import nn

from corpus.notation import ROOT, Truth, seed_of, side, truth_of


def initialise(net: nn.Module, rng: np.random.Generator, fresh: bool = False) -> dict[str, np.ndarray]:
    """Random numbers for every weight, so that no two are alike and none is a bare one or zero; returned by name.

    With `fresh`, vectors stay as the constructors left them.
    """
    weights = {}
    with torch.no_grad():
        for name, value in [*net.named_parameters(), *net.named_buffers()]:
            if not value.is_floating_point():
                continue
            noise = rng.standard_normal(value.shape).astype(np.float32)
            if value.dim() > 1:
                new = noise / np.sqrt(np.prod(value.shape[1:]))
            elif fresh:
                new = value.numpy()
            elif name.endswith("running_var"):
                new = 0.5 + np.abs(noise)
            else:
                new = value.numpy() + 0.1 * noise
            value.copy_(torch.from_numpy(np.asarray(new, np.float32)))
            weights[name] = value.detach().numpy().copy()
    return weights


def prepare(truth: Truth, fresh: bool = False) -> tuple[nn.Module, dict[str, torch.Tensor], dict[str, np.ndarray]]:
    """The network in training mode with its random weights, its batch, and the weights."""
    torch.manual_seed(0)
    net: nn.Module = side(truth.name, "torch").build().train()
    weights = initialise(net, np.random.default_rng(seed_of(truth.name) + 1), fresh)
    return net, {key: torch.from_numpy(value.copy()) for key, value in truth.batch.items()}, weights


def train(name: str, net: nn.Module, batch: dict[str, torch.Tensor]) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Forward, loss, backward. A pair may bring its own `train`."""
    written = side(name, "torch")
    if hasattr(written, "train"):
        return written.train(net, batch)
    loss, outputs = written.loss(net, batch)
    loss.backward()
    return loss, outputs


def observe(name: str, folder: Path) -> None:
    """Run the step and keep what came out."""
    net, batch, weights = prepare(truth_of(name))
    np.savez(folder / "weights.npz", **weights)
    found: dict[str, np.ndarray] = {}
    paths = {module: path or ROOT for path, module in net.named_modules()}
    counts: dict[str, int] = {}

    def keep(module: nn.Module, _: object, output: object) -> None:
        if module in paths:
            call = counts[paths[module]] = counts.get(paths[module], -1) + 1
            for number, value in enumerate(tensors(output)):
                found[f"module:{paths[module]}#{call}:{number}"] = value.detach().numpy().copy()

    handle = nn.modules.module.register_module_forward_hook(keep)
    try:
        loss, outputs = train(name, net, batch)
    finally:
        handle.remove()
    found["loss"] = loss.detach().numpy()
    found |= {f"output:{key}": value.detach().numpy() for key, value in outputs.items()}
    found |= {f"grad:{key}": value.grad.numpy() for key, value in net.named_parameters() if value.grad is not None}
    np.savez(folder / "torch.npz", **found)


def tensors(value: object) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [item for inner in value for item in tensors(inner)] if isinstance(value, tuple | list) else []


def record(name: str, folder: Path, level: str, fresh: bool = False) -> None:
    """Run the step under the recorder; every value is kept."""
    import twintrace as tt

    net, batch, weights = prepare(truth_of(name), fresh)
    np.savez(folder / "weights.npz", **weights)
    with tt.record(folder / "torch", net, level=level, keep="tensor", strict=True, overwrite=True) as recorder:
        train(name, net, batch)
        recorder.step()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--trace", metavar="LEVEL")
    parser.add_argument("--fresh", action="store_true")
    asked = parser.parse_args()
    for name in asked.names:
        folder = asked.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        record(name, folder, asked.trace, asked.fresh) if asked.trace else observe(name, folder)


if __name__ == "__main__":
    main()
