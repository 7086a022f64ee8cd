"""What recording on a GPU promises, as functions that need a GPU and no test runner.

python -m tests.frameworks.torch.device_checks              all of them
python -m tests.frameworks.torch.device_checks streams graphs
"""

import functools
import json
import os
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

import twintrace as tt
from twintrace.collect.plans import Planner
from twintrace.frameworks.torch import adapter, tensors
from twintrace.frameworks.torch.digests import DeviceDigests
from twintrace.store.device_sums import finish
from twintrace.store.digest import digest

from . import plan_cases

ROOT = Path(__file__).resolve().parents[3]


def waiting(room: int | None = None) -> DeviceDigests:
    return DeviceDigests(fingerprint=True, room=room, tell=lambda topic, text: None)


def fingerprints(made: DeviceDigests) -> list[str | None]:
    return [
        outcome if isinstance(outcome, str) or outcome is None else finish(outcome[None], [dtype], [nbytes], True)[0][8]
        for dtype, nbytes, outcome in made.collect()
    ]


def fingerprint(tensor: torch.Tensor) -> str | None:
    return digest(tensors.host(tensor), tensors.NAMES[tensor.dtype]).fingerprint


def train(path: Path, level: str, keep: str, *, steps: int = 2, device: str = "cuda") -> list[torch.Tensor]:
    """Convolution, batch norm, writes in place, accumulated gradients, an optimizer with state; a tensor on the host in between."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(288, 64), nn.GELU(),
        nn.Linear(64, 4),
    ).to(device)  # fmt: skip
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, fused=device == "cuda")
    x, y = torch.randn(4, 3, 8, 8).to(device), torch.randint(0, 4, (4,)).to(device)
    with tt.record(path, net, level=level, keep=keep) as recorder:
        for _ in range(steps):
            for _ in range(2):
                out = net(x)
                out = out.transpose(0, 1).contiguous().t()
                out *= 2
                out = out + (torch.arange(4.0) * 2).to(device)
                torch.nn.functional.cross_entropy(out, y).backward()
            optimizer.step()
            optimizer.zero_grad()
            recorder.step()
    return [parameter.detach().clone() for parameter in net.parameters()]


def told(path: Path) -> list[Any]:
    """Calls with their tensors' numbers, and what is said of each tensor; sums without their last digits."""
    found: list[Any] = []
    trace = tt.open(path)
    for step in trace.steps:
        journal = trace.journal(step)
        found += [(call.site, call.args, call.kwargs, call.output, call.after) for call in journal.calls()]
        for tensor in sorted(journal.tensors(), key=lambda tensor: tensor.id):
            s = tensor.statistics
            numbers = s and (s.min, s.max, s.zero, s.nan, None if s.norm is None else float(f"{s.norm:.10g}"))
            found.append(
                (tensor.id, tensor.spec, tensor.device, tensor.producer, tensor.fingerprint, tensor.missing, numbers)
            )
    return found


# --- the checks ---------------------------------------------------------------------------------------------------------


def check_same_as_on_the_host(folder: Path) -> None:
    """What the device reads is what the host reads of the same run."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    for level in ("module", "api", "mix"):
        for keep in ("statistics", "fingerprint", "tensor"):
            train(folder / f"device-{level}-{keep}", level, keep)
            plans = dict(tensors._PLANS)
            tensors._PLANS.clear()
            look = tensors._look
            tensors._look = functools.partial(_on_host, look)
            try:
                train(folder / f"host-{level}-{keep}", level, keep)
            finally:
                tensors._look = look
                tensors._PLANS.clear()
                tensors._PLANS.update(plans)
            left, right = told(folder / f"device-{level}-{keep}"), told(folder / f"host-{level}-{keep}")
            apart = [pair for pair in zip(left, right, strict=True) if pair[0] != pair[1]]
            assert not apart, (level, keep, len(apart), apart[:2])


def _on_host(look: Callable[[Any], Any], tensor: Any) -> Any:
    found = look(tensor)
    found.elsewhere = False  # then the recorder asks for it on the host, as it does without a device digest
    return found


def check_plans(folder: Path) -> None:
    """Steps that follow a plan, and steps that depart from it, have the lines that a recorder without plans writes."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    followed = []
    finish = Planner.finish

    def watched(self: Planner) -> Any:
        found = finish(self)
        followed.append(found is not None)
        return found

    Planner.finish = watched  # type: ignore[method-assign]
    plans = adapter.TorchFramework.plans
    try:
        for scenario in plan_cases.SCENARIOS:
            for level, keep in (("module", "fingerprint"), ("api", "fingerprint"), ("mix", "statistics")):
                told = []
                followed.clear()
                for offer in (plans, lambda self: None):  # from one line: the stack is recorded too
                    adapter.TorchFramework.plans = offer  # type: ignore[method-assign]
                    path = folder / f"{scenario.__name__}-{level}-{len(told)}"
                    made = plan_cases.record(path, scenario, level=level, keep=keep, device="cuda")
                    told.append((plan_cases.lines(path), made))
                (left, weights), (right, wanted) = told
                for step, (one, other) in enumerate(zip(left, right, strict=True)):
                    apart = [pair for pair in zip(one, other, strict=True) if pair[0] != pair[1]]
                    assert not apart, (scenario.__name__, level, step, len(apart), apart[:2])
                assert all(map(torch.equal, weights, wanted)), (scenario.__name__, level)
                assert any(followed), (scenario.__name__, level)
    finally:
        adapter.TorchFramework.plans = plans  # type: ignore[method-assign]
        Planner.finish = finish  # type: ignore[method-assign]


def check_streams(folder: Path) -> None:
    """A tensor made on another stream is read after it was made, and before it is written to on a third."""
    made = waiting()
    side, other = torch.cuda.Stream(), torch.cuda.Stream()
    tensors_ = []
    for i in range(20):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            x = torch.zeros(1 << 20, device="cuda")
            torch.cuda._sleep(2_000_000)
            x.fill_(float(i))
            made.submit(x)
        other.wait_stream(side)
        with torch.cuda.stream(other):
            made.before_write([x])
            x.fill_(-1.0)
        y = torch.full((1 << 20,), float(i), device="cuda")
        made.submit(y)
        tensors_.append(y.clone())
        del x, y
    wanted = [fingerprint(tensor) for tensor in tensors_ for _ in range(2)]
    assert fingerprints(made) == wanted
    # One stream alone has been seen, and a second, that comes late, writes: a copy there would come too late as well.
    made = waiting()
    with torch.cuda.stream(side):
        x = torch.full((1 << 20,), 7.0, device="cuda")
        made.submit(x)
    other.wait_stream(side)
    with torch.cuda.stream(other):
        torch.cuda._sleep(20_000_000)
        made.before_write([x])
        x.fill_(-1.0)
    with torch.cuda.stream(side):
        made.flush()
    assert fingerprints(made) == [fingerprint(torch.full((1 << 20,), 7.0))]


def check_reused_memory(folder: Path) -> None:
    """The caching allocator gives memory to others as soon as it may; what waits is not affected, nor what is being read."""
    made = waiting(64 << 20)
    wanted = []
    for i in range(300):
        x = torch.full((1 << 20,), float(i), device="cuda")
        wanted.append(float(i))
        made.submit(x)
        del x
        torch.full((1 << 20,), -1.0, device="cuda")
    likes = [fingerprint(torch.full((1 << 20,), value)) for value in wanted]
    assert fingerprints(made) == likes


def check_memory_is_bounded(folder: Path) -> None:
    """Peak memory grows by no more than the room, and one tensor."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    made = waiting(64 << 20)
    for _ in range(200):
        made.submit(torch.ones(1 << 20, device="cuda"))
    grown = torch.cuda.max_memory_allocated() - before
    made.collect()
    assert grown <= (64 << 20) + (16 << 20), grown


def check_graphs(folder: Path) -> None:
    """A capture is left alone, and says so; a replay comes after what waits, and what it wrote is new."""
    net = nn.Linear(16, 16).cuda()
    x = torch.randn(4, 16, device="cuda")
    with torch.no_grad():
        net(x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            with tt.record(folder / "trace", net, level="api") as recorder:
                with torch.cuda.graph(graph):
                    out = net(x)
                for value in (1.0, 2.0):
                    x.fill_(value)
                    graph.replay()
                    recorder.save(f"out{value}", out)
                recorder.step()
    assert any("CUDA graph" in str(warning.message) for warning in heard), [str(w.message) for w in heard]
    journal = tt.open(folder / "trace").journal(0)
    saved = {
        call.site.name: journal.tensor(call.output.id).fingerprint
        for call in journal.calls()
        if call.site.kind == "save"
    }
    wanted = {f"out{value}": fingerprint(net(torch.full_like(x, value)).detach()) for value in (1.0, 2.0)}
    assert saved == wanted, (saved, wanted)


def check_training_is_not_changed(folder: Path) -> None:
    torch.use_deterministic_algorithms(True, warn_only=True)
    runs = [train(folder / f"{level}", level, "fingerprint", steps=3) for level in ("module", "api", "mix", "op")]
    for other in runs[1:]:
        assert all(map(torch.equal, runs[0], other))


def check_an_error_is_the_users_own(folder: Path) -> None:
    """Of a device that fails in the second step: the first is whole, and the error comes from the user's line."""
    code = """
import sys, torch, twintrace as tt
net = torch.nn.Embedding(10, 4).cuda()
recorder = tt.record(sys.argv[1], net, level="mix")
recorder.start()
net(torch.tensor([1], device="cuda")); recorder.step()
try:
    net(torch.tensor([10_000_000], device="cuda")).sum().item()
except Exception as error:
    sys.stdout.write(type(error).__name__ + ": " + str(error).splitlines()[0])
try:
    recorder.close()
except Exception as error:
    sys.stdout.write("CLOSE RAISED " + repr(error))
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, str(folder / "trace")], capture_output=True, text=True
    )
    assert "device-side assert" in done.stdout, done.stdout + done.stderr
    assert "CLOSE RAISED" not in done.stdout, done.stdout
    assert all(tensor.fingerprint for tensor in tt.open(folder / "trace").journal(0).tensors())
    second = tt.open(folder / "trace").journal(1)
    assert all(tensor.fingerprint or tensor.missing for tensor in second.tensors())


def check_one_rank_of_nccl(folder: Path) -> None:
    """DDP and FSDP2 with a single rank: what is recorded has values."""
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29533", "RANK": "0", "WORLD_SIZE": "1"}
    dist.init_process_group("nccl", device_id=torch.device("cuda", 0))
    try:
        for kind in ("ddp", "fsdp"):
            net: nn.Module = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)).cuda()
            if kind == "ddp":
                net = DistributedDataParallel(net)
            else:
                from torch.distributed.fsdp import fully_shard

                fully_shard(net)
            optimizer = torch.optim.AdamW(net.parameters())
            # At level api FSDP's own buffers are written to by what no call shows; they are missing, and say so.
            for level in ("module", "api") if kind == "ddp" else ("module",):
                path = folder / f"{kind}-{level}"
                with warnings.catch_warnings(record=True) as heard:
                    warnings.simplefilter("always")
                    with tt.record(path, net, level=level) as recorder:
                        for _ in range(2):
                            net(torch.randn(8, 64, device="cuda")).square().mean().backward()
                            optimizer.step()
                            optimizer.zero_grad()
                            recorder.step()
                missing = [tensor for tensor in tt.open(path).journal(1).tensors() if tensor.missing]
                count = len(list(tt.open(path).journal(1).tensors()))
                assert count > 8
                assert not missing, (
                    kind,
                    level,
                    count,
                    len(missing),
                    missing[0],
                    [str(w.message)[:200] for w in heard],
                )
    finally:
        dist.destroy_process_group()


CHECKS: dict[str, Callable[[Path], None]] = {
    name.removeprefix("check_"): check for name, check in globals().copy().items() if name.startswith("check_")
}


def main() -> int:
    """How many fail."""
    wanted = sys.argv[1:]
    results = {}
    for name, check in CHECKS.items():
        if wanted and name not in wanted:
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                check(Path(folder))
                results[name] = "ok"
            except Exception:  # noqa: BLE001 - all of them are wanted
                results[name] = "FAILED " + traceback.format_exc()[-1500:]
        sys.stdout.write(f"{name}: {results[name]}\n")
        sys.stdout.flush()
    sys.stdout.write(json.dumps({name: text[:6] for name, text in results.items()}) + "\n")
    return sum(text != "ok" for text in results.values())


if __name__ == "__main__":
    sys.exit(main())
