"""What it costs to lay two long records along each other: seconds and peak memory, by the number of calls.

    python -m benchmarks.align                 three pairs of records of 25,000, 50,000 and 100,000 calls on each side
    python -m benchmarks.align 10000 20000     other lengths
    python -m benchmarks.align --classes       how good it is: twenty pairs of each class (tests/corpus/pairing)
    python -m benchmarks.align --classes 4 6 -v    some classes, with everything that falls short

    again     two runs of one program: the same names, values a little off
    longer    the same, with an extra call now and then
    port      another framework's names, nesting and kernels, a cast now and then

The records are made up: blocks of a transformer with statistics and fingerprints, a gradient for each result. The target is
100,000 calls on each side in less than 30 s and 2 GB, at a cost that grows close to linearly.
"""

from __future__ import annotations

import random
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from twintrace.align import align
from twintrace.model.pairs import Side
from twintrace.model.records import Call, Gradient, Role
from twintrace.model.sites import Kind, Site
from twintrace.model.tensors import Spec, Statistics, Tensor
from twintrace.model.values import TensorRef

PAIRS = ("again", "longer", "port")
_CALLS_PER_BLOCK = 9
TARGET_SECONDS, TARGET_GIGABYTES = 30.0, 2.0


class Record:
    """Makes up a record, call by call. `noise` is how far its values are off."""

    def __init__(self, framework: str, noise: float) -> None:
        self.framework, self.noise = framework, noise
        self.calls: list[Call | None] = []
        self.tensors: list[Tensor] = []
        self.gradients: list[Gradient] = []
        self._counts: dict[tuple[Kind, str], int] = {}
        self._jitter = random.Random(framework)

    def tensor(self, value: float, shape: tuple[int, ...], by: int | None, *, held: bool = False) -> int:
        """A tensor whose statistics follow from one number, its seed, so that another record can have the same."""
        off = 0.0 if held else self.noise * self._jitter.uniform(-1, 1)
        own = random.Random(value)
        least, most, mean, norm = (value * (1 + off) * own.uniform(0.5, 2.0) for _ in range(4))
        statistics = Statistics(-least, most, mean / 9, norm * 9, 0, 0, 0, 0)
        mark = f"{hash((value, off)) & (1 << 128) - 1:032x}"
        self.tensors.append(Tensor(len(self.tensors), Spec("f32", shape), "cpu", held, by, statistics, mark))
        return self.tensors[-1].id

    def begin(self) -> int:
        self.calls.append(None)
        return len(self.calls) - 1

    def end(
        self,
        index: int,
        kind: Kind,
        name: str,
        arguments: Sequence[int],
        result: int,
        *,
        up: int | None,
        path: str,
        type: str = "",
        held: dict[str, int] | None = None,
    ) -> None:
        number = self._counts.get((kind, name), 0)
        self._counts[kind, name] = number + 1
        spec = self.tensors[result].spec
        gradient = self.tensor(self.tensors[result].statistics.max / 3, spec.shape, None)  # type: ignore[union-attr, operator]
        self.calls[index] = Call(
            index,
            Site(kind, name, number, path=path, type=type),
            up,
            tuple(map(TensorRef, arguments)),
            {},
            TensorRef(result),
            held or {},
            gradients=(Gradient(Role.OUTPUT, "", gradient, index),),
        )

    def call(self, name: str, arguments: Sequence[int], value: float, shape: tuple[int, ...], **where: Any) -> int:
        """One function call; its result."""
        index = self.begin()
        result = self.tensor(value, shape, index)
        self.end(index, Kind.API, name, arguments, result, **where)
        return result

    def side(self) -> Side:
        return Side(self.framework, [c for c in self.calls if c is not None], self.tensors.__getitem__, self.gradients)


def program(calls: int, *, noise: float = 0.0, extra: int = 0) -> Side:
    """Blocks as PyTorch has them: norm, linear, gelu, linear, add. Every `extra`-th block does something twice."""
    record, numbers = Record("torch", noise), random.Random(0)
    x = record.tensor(1.0, (8, 64), None)
    block = 0
    while block < calls // _CALLS_PER_BLOCK:
        path = f"blocks.{block}"
        outer = record.begin()
        value = [numbers.uniform(1, 1000) for _ in range(8)]
        y = x
        for name, kind, function, number in (("norm", "LayerNorm", "layer_norm", 0), ("fc1", "Linear", "linear", 2)):
            y = _layer(
                record, f"{path}.{name}", kind, [f"torch.nn.functional.{function}"], y, value[number:], outer, path
            )
        where = {"up": outer, "path": path}
        y = record.call("torch.nn.functional.gelu", [y], value[4], (8, 64), **where)
        if extra and block % extra == extra - 1:
            record.call("torch.nn.functional.gelu", [x], value[7], (8, 64), **where)
        y = _layer(record, f"{path}.fc2", "Linear", ["torch.nn.functional.linear"], y, value[5:], outer, path)
        y = record.call("torch.Tensor.add", [x, y], value[6] * 2, (8, 64), **where)
        record.end(outer, Kind.MODULE, path, [x], y, up=None, path="", type="Block")
        x, block = y, block + 1
    return record.side()


def port(calls: int, *, noise: float) -> Side:
    """The same blocks as somebody ported them to MindSpore: other names, one more level, matmul and bias apart, casts."""
    record, numbers = Record("mindspore", noise), random.Random(0)
    x = record.tensor(1.0, (8, 64), None)
    block = 0
    while block < calls // _CALLS_PER_BLOCK:
        path = f"encoder.layer{block}"
        outer = record.begin()
        mlp = f"{path}.mlp"
        value = [numbers.uniform(1, 1000) for _ in range(8)]
        y = _layer(record, f"{path}.ln", "LayerNorm", ["mindspore.ops.LayerNorm"], x, value[0:], outer, path)
        if block % 5 == 0:
            y = record.call("mindspore.ops.cast", [y], value[1], (8, 64), up=outer, path=path)
        inner, given = record.begin(), y
        kernels = ["mindspore.ops.MatMul", "mindspore.ops.BiasAdd"]
        y = _layer(record, f"{mlp}.up", "Dense", kernels, y, value[2:], inner, mlp)
        y = _layer(record, f"{mlp}.act", "GELU", ["mindspore.ops.GeLU"], y, [0.0, value[4]], inner, mlp)
        y = _layer(record, f"{mlp}.down", "Dense", kernels, y, value[5:], inner, mlp)
        record.end(inner, Kind.MODULE, mlp, [given], y, up=outer, path=path, type="FeedForward")
        y = record.call("mindspore.ops.add", [x, y], value[6] * 2, (8, 64), up=outer, path=path)
        record.end(outer, Kind.MODULE, path, [x], y, up=None, path="", type="Layer")
        x, block = y, block + 1
    return record.side()


def _layer(
    record: Record, name: str, kind: str, functions: list[str], x: int, value: Sequence[float], up: int, path: str
) -> int:
    """A module and the functions inside it. Its weight and its result follow from the first two values."""
    index = record.begin()
    held = {"weight": record.tensor(value[0], (64, 64), None, held=True)} if value[0] else {}
    y = x
    for number, function in enumerate(functions):
        last = number == len(functions) - 1
        arguments = [y, *(held.values() if number == 0 else ())]
        y = record.call(function, arguments, value[1] if last else value[1] / 2, (8, 64), up=index, path=name)
    record.end(index, Kind.MODULE, name, [x], y, up=up, path=path, type=kind, held=held)
    return y


def pair(name: str, calls: int) -> tuple[Side, Side]:
    """Two records with as many calls on the left; a port needs half as many again for the same work."""
    left = program(calls)
    if name == "again":
        return left, program(calls, noise=1e-6)
    if name == "longer":
        return left, program(calls, noise=1e-6, extra=7)
    return left, port(calls, noise=1e-6)


def measure(name: str, calls: int) -> None:
    """One pair in this process: how long it took, how much memory the process ever held, what was found."""
    sides = pair(name, calls)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()  # of this process alone: a busy machine does not count
    found = align(*sides)
    seconds = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    alone = sum(1 for item in (*found.only_left, *found.only_right) if not item.skipped)
    print(
        f"{name:8}{len(sides[0].calls):>10,}{len(sides[1].calls):>10,}{seconds:>9.1f}{peak / 2**20:>9.2f}"
        f"{(peak - before) / 2**20:>9.2f}{len(found.matches):>10,}{alone:>9,}"
    )


def score_classes(numbers: Sequence[int], *, verbose: bool) -> None:
    """The corpora, class by class: tensors paired, wrong pairs, exit codes, places."""
    from tests.corpus.pairing.cases import CLASSES  # here: they need PyTorch
    from tests.corpus.pairing.corpora import outcomes, table
    from tests.corpus.pairing.scoring import Score

    scores = {}
    for number in numbers or CLASSES:
        found = list(outcomes(number))
        scores[number] = Score.of(found)
        for outcome in found if verbose else ():
            if not outcome.perfect:
                print(outcome, flush=True)
        print(f"class {number}: {'met' if scores[number].met else 'MISSED'}", flush=True)
    print(
        f"\n{table(scores)}\n\ntarget: 99 % of the tensors that both sides have are paired, none wrongly; every exit code right"
    )


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--one"]:
        measure(arguments[1], int(arguments[2]))
        return
    if arguments[:1] == ["--classes"]:
        score_classes([int(text) for text in arguments[1:] if text != "-v"], verbose="-v" in arguments)
        return
    lengths = [int(text) for text in arguments] or [25_000, 50_000, 100_000]
    print(
        f"{'pair':8}{'left':>10}{'right':>10}{'cpu s':>9}{'peak GB':>9}{'own GB':>9}{'matches':>10}{'alone':>9}",
        flush=True,
    )
    for name in PAIRS:
        for length in lengths:  # each in a process of its own: a peak of memory does not go down again
            subprocess.run([sys.executable, "-m", "benchmarks.align", "--one", name, str(length)], check=True)
    print(f"\ntarget: 100,000 on each side in less than {TARGET_SECONDS:.0f} s and {TARGET_GIGABYTES:.0f} GB")


if __name__ == "__main__":
    main(sys.argv[1:])
