"""What the second sample of torch_npu.hooks costs: ResNet-50, two dumps as text, compared.

    python -m benchmarks.torch_npu              at full size: 15 GB of text in --dir, several minutes
    python -m benchmarks.torch_npu --quick      a net of a quarter of the width: 3 GB
    python -m benchmarks.torch_npu --json FILE  the figures as well, for keeping

The sample is run as it is (`twintrace run-as torch_npu`), but for its last line, the comparison, which is run in a process of its
own after one that only reads a dump. The status is 1 when a target was missed or a process failed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.targets import Verdict

ROOT = Path(__file__).parent.parent
SAMPLE = ROOT / "tests" / "compat" / "torch_npu_hooks" / "samples" / "resnet50.py"
STAND_INS = ROOT / "tests" / "compat" / "torch_npu_hooks" / "stand_ins"
RATE = 300e6  # bytes of text a second, read on one core
MEMORY = 2 << 30  # whatever the dumps' size: a line of each and what torch and numba take

_MEASURED = """
import json, resource, sys, time
{setup}
began, worked = time.perf_counter(), time.process_time()
{work}
spent = {{"seconds": time.perf_counter() - began, "cpu": time.process_time() - worked}}
print(json.dumps(spent | {{"memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}}))
"""
_READ = ("import twintrace as tt; tt.open('warm.pkl').journal(0)", "tt.open('cpu_resnet50_op.pkl').journal(0)")
_COMPARE = (
    "from twintrace.compat.torch_npu_hooks.tools import compare",
    "compare('npu_resnet50_op.pkl', 'cpu_resnet50_op.pkl', 'resnet50_result.csv')",
)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    folder = Path(tempfile.mkdtemp(prefix="twintrace-benchmark-", dir=options.dir))
    try:
        figures = run(folder, options.width)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    verdicts = judge(figures)
    for name, number in figures.items():
        print(f"{name:32} {number:12.1f}")
    for verdict in verdicts:
        print(f"{verdict.target:60} {verdict.found or 0:10.2f}   wanted <= {verdict.wanted:8.2f}   {verdict.word}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")
    return 0 if all(verdict.met for verdict in verdicts) else 1


def run(folder: Path, width: int) -> dict[str, float]:
    """Record, read, compare; megabytes, seconds and megabytes a second."""
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(STAND_INS)]),
        "STAND_IN_WIDTH": str(width),
    }
    script = folder / "sample.py"
    script.write_text(SAMPLE.read_text(encoding="utf-8").rpartition("compare(")[0], encoding="utf-8")
    values = json.dumps([0.1] * 4096)
    (folder / "warm.pkl").write_text(
        f'["Torch_relu_forward_output", {values}, "torch.float32", [4096]]\n', encoding="utf-8"
    )
    began = time.perf_counter()
    _call([sys.executable, "-m", "twintrace", "run-as", "torch_npu", str(script)], folder, env)
    figures = {"recording, s": time.perf_counter() - began}
    megabytes = (folder / "cpu_resnet50_op.pkl").stat().st_size / 1e6
    figures["a dump, MB"] = megabytes
    for name, (setup, work) in (("reading one", _READ), ("comparing both", _COMPARE)):
        spent = json.loads(
            _call([sys.executable, "-c", _MEASURED.format(setup=setup, work=work)], folder, env).splitlines()[-1]
        )
        figures |= {
            f"{name}, s": spent["seconds"],
            f"{name}, CPU s": spent["cpu"],
            f"{name}, MB of memory": spent["memory"] / 1e6,
        }
    figures["reading, MB/s"] = megabytes / figures["reading one, s"]
    figures["reading, MB/s of CPU time"] = megabytes / figures["reading one, CPU s"]
    return figures


def judge(figures: dict[str, float]) -> list[Verdict]:
    """The targets against the figures of one run."""
    return [
        Verdict("reading: CPU s for 300 MB", RATE / 1e6 / figures["reading, MB/s of CPU time"], 1.0),
        Verdict("comparing: MB of memory", figures["comparing both, MB of memory"], MEMORY / 1e6),
    ]


def _call(command: Sequence[str], folder: Path, env: dict[str, str]) -> str:
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[:5])} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.torch_npu", description="The ResNet-50 sample of torch_npu.hooks."
    )
    parser.add_argument("--quick", action="store_true", help="a net of a quarter of the width")
    parser.add_argument("--width", type=int, help="channels of the first block: 64 is ResNet-50")
    parser.add_argument("--dir", type=Path, help="where the files go: 15 GB at full size")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    options = parser.parse_args(arguments)
    options.width = options.width or (16 if options.quick else 64)
    return options


if __name__ == "__main__":
    sys.exit(main())
