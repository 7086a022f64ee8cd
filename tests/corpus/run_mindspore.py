"""One training step of pairs' right sides, with the left ones' weights: what came out, or a trace.

    python -m corpus.run_mindspore FOLDER mlp resnet           reads FOLDER/mlp/weights.npz, writes FOLDER/mlp/mindspore.npz, …
    python -m corpus.run_mindspore FOLDER mlp --trace mix      the same with a trace: FOLDER/mlp/mindspore/

    python -m corpus.run_mindspore FOLDER pad_mode --trace mix --faulty      the names are of faults (faults.py); this one is in
                                                                             resnet: a trace FOLDER/resnet/pad_mode/

run_torch.py comes first. The names in mindspore.npz are those of torch.npz; beside them `shape:…` tells the parameters and buffers.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import nn

from corpus.faults import fault_of
from corpus.notation import ROOT, Truth, side, truth_of

# The synchronous launch: less than a tenth of the time for small operators that are read one by one.
ms.set_context(mode=ms.PYNATIVE_MODE)
ms.runtime.launch_blocking()


def prepare(truth: Truth, weights: dict[str, np.ndarray]) -> tuple[nn.Cell, dict[str, ms.Tensor]]:
    """The network in training mode with the left side's weights, and its batch."""
    net: nn.Cell = side(truth.name, "mindspore").build()
    net.set_train()
    own = parameters_of(net)
    forgotten = truth.left_out(set(weights), set(own))
    if any(forgotten):
        raise ValueError(
            f"{truth.name}: in no line of its truth: {sorted(forgotten[0])} (left), {sorted(forgotten[1])} (right)"
        )
    for line in truth.parameters(set(weights), set(own)):
        own[line.right].set_data(ms.Tensor(line.carry(weights[line.left], own[line.right].shape)))
    return net, {key: to_tensor(value) for key, value in truth.batch.items()}


def to_tensor(value: np.ndarray) -> ms.Tensor:
    return ms.Tensor(value.astype(np.int32) if value.dtype == np.int64 else value)


def parameters_of(net: nn.Cell) -> dict[str, ms.Parameter]:
    """Parameters by their path in the tree of Cells."""
    return dict(net.parameters_and_names())


def train(
    name: str, net: nn.Cell, batch: dict[str, ms.Tensor], loss: Callable | None = None
) -> tuple[ms.Tensor, dict, dict[str, ms.Tensor]]:
    """Forward, loss and gradients, these by parameter. A pair may bring its own `train`; a fault brings another loss."""
    written = side(name, "mindspore")
    if hasattr(written, "train"):
        return written.train(net, batch)
    computed = loss or written.loss
    trained = {key: value for key, value in parameters_of(net).items() if value.requires_grad}
    step = ms.value_and_grad(lambda: computed(net, batch), None, list(trained.values()), has_aux=True)
    (loss, outputs), gradients = step()
    return loss, outputs, dict(zip(trained, gradients, strict=True))


def observe(name: str, folder: Path) -> None:
    """Run the step and keep what came out."""
    net, batch = prepare(truth_of(name), dict(np.load(folder / "weights.npz")))
    seen: dict[str, ms.Tensor] = {}
    counts: dict[str, int] = {}

    def keep_as(path: str) -> Callable[..., None]:
        def keep(_: nn.Cell, __: object, output: object) -> None:
            call = counts[path] = counts.get(path, -1) + 1
            for number, value in enumerate(tensors(output)):
                seen[f"module:{path}#{call}:{number}"] = value

        return keep

    for path, cell in net.cells_and_names():
        cell.register_forward_hook(keep_as(path or ROOT))
    loss, outputs, gradients = train(name, net, batch)
    found = {key: value.asnumpy() for key, value in seen.items()}
    found["loss"] = loss.asnumpy()
    found |= {f"output:{key}": value.asnumpy() for key, value in outputs.items()}
    found |= {f"grad:{key}": value.asnumpy() for key, value in gradients.items()}
    found |= {f"shape:{key}": np.array(value.shape, np.int64) for key, value in parameters_of(net).items()}
    np.savez(folder / "mindspore.npz", **found)


def tensors(value: object) -> list[ms.Tensor]:
    if isinstance(value, ms.Tensor):
        return [value]
    return [item for inner in value for item in tensors(inner)] if isinstance(value, tuple | list) else []


def record(name: str, folder: Path, level: str, fault: str | None = None) -> None:
    """Run the step under the recorder; every value is kept."""
    import twintrace as tt

    net, batch = prepare(truth_of(name), dict(np.load(folder / "weights.npz")))
    loss = None
    if fault is not None:
        from corpus.planted import plant

        loss = plant(fault, name, net)
    where = folder / (fault or "mindspore")
    with tt.record(where, net, level=level, keep="tensor", strict=True, overwrite=True) as recorder:
        train(name, net, batch, loss)
        recorder.step()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--trace", metavar="LEVEL")
    parser.add_argument("--fresh", action="store_true", help="says nothing here: the weights come from the left side")
    parser.add_argument("--faulty", action="store_true", help="the names are of faults")
    asked = parser.parse_args()
    for name in asked.names:
        if asked.faulty:
            pair = fault_of(name).pair
            record(pair, asked.folder / pair, asked.trace, name)
            continue
        folder = asked.folder / name
        record(name, folder, asked.trace) if asked.trace else observe(name, folder)


if __name__ == "__main__":
    main()
