"""What judging costs: a pair of traces of which no value is equal, and many small tensors.

    python -m benchmarks.judge_costs compare WARM FOLDER     one line of JSON: seconds, pairs; WARM is compared first, untimed
    python -m benchmarks.judge_costs pair WARM FOLDER        the same without recomputation
    python -m benchmarks.judge_costs passes SIZE             seconds of 8 forward and backward passes in float64
    python -m benchmarks.judge_costs record SIZE FOLDER      the pair: FOLDER/left, FOLDER/right

The work is the transformer of the other benchmarks: 6 layers, width 256, one training step. The right side's weights are a few
units in the last place off, so every value differs and nothing can be skipped as equal. `seconds` are those of the processor, of
all threads: whatever else the machine does, they are comparable. `wall` are those of the clock, for several cores.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PASSES = 8
SMALL = (10_000, 64)
"""Tensors, elements of each."""
SHARE_OF_PASSES = 1.0
SECONDS_PER_PAIR = 1 / 10_000
ROOT = Path(__file__).resolve().parent.parent


def record(size: str, folder: str) -> None:
    import torch

    import twintrace as tt
    from benchmarks.nets_torch import trainings

    for side in ("left", "right"):
        work = trainings(size)["transformer"]
        if side == "right":
            noise = torch.Generator().manual_seed(1)
            with torch.no_grad():
                for value in work.net.parameters():
                    sign = (torch.rand(value.shape, generator=noise) - 0.5).sign()
                    value.mul_(1 + 4 * 2**-23 * sign).add_(1e-9 * sign)  # added: some biases begin as zeros
        with tt.record(Path(folder) / side, work.net, level="mix", keep="tensor", overwrite=True) as recorder:
            work.step()
            recorder.step()


def passes(size: str) -> None:
    from benchmarks.nets_torch import F, trainings

    work = trainings(size)["transformer"]
    net = work.net.double()

    def run() -> None:
        outputs = net(work.inputs)
        F.cross_entropy(outputs.reshape(-1, outputs.shape[-1]), work.targets).backward()

    run()
    began = _clocks()
    for _ in range(PASSES):
        run()
    _tell(began)


def compare(warm: str, folder: str, *, recompute: bool = True) -> None:
    """`warm` first, untimed: importing and compiling are not what is measured."""
    import twintrace as tt

    tt.compare(Path(warm) / "left", Path(warm) / "right", recompute=recompute)
    began = _clocks()
    found = tt.compare(Path(folder) / "left", Path(folder) / "right", recompute=recompute)
    _tell(began, pairs=sum(len(result.tensors) for result in found.results), agree=bool(found.agree))


def pair(warm: str, folder: str) -> None:
    """What comes before recomputation: reading, pairing, measuring."""
    compare(warm, folder, recompute=False)


def small(folder: str) -> None:
    """Traces of many small tensors."""
    from benchmarks.comparers import Data, write_traces

    write_traces(Path(folder), Data("small", *SMALL))


def _clocks() -> tuple[float, float]:
    return time.process_time(), time.perf_counter()


def _tell(began: tuple[float, float], **more: Any) -> None:
    seconds, wall = (now - then for now, then in zip(_clocks(), began, strict=True))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sys.stdout.write(json.dumps({"seconds": seconds, "wall": wall, "peak_mb": peak, **more}) + "\n")


def in_process(*arguments: str, **variables: str) -> dict[str, Any]:
    """One of the above in a process of its own, with one core for its arithmetic unless `variables` say more; what it tells."""
    paths = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    env = os.environ | {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16", "OMP_NUM_THREADS": "1"} | paths | variables
    command = [sys.executable, "-m", "benchmarks.judge_costs", *arguments]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)}: {(done.stderr.strip().splitlines() or ['no word'])[-1]}")
    lines = done.stdout.strip().splitlines()
    return dict(json.loads(lines[-1])) if lines else {}


if __name__ == "__main__":
    {"record": record, "passes": passes, "compare": compare, "pair": pair, "small": small}[sys.argv[1]](*sys.argv[2:])
