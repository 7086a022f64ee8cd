"""Tensors of every element type and lie, and a check that a device reads them as the host does.

python -m tests.frameworks.torch.device_cases cuda          on a GPU, by Triton and by torch's operations
TRITON_INTERPRET=1 python -m tests.frameworks.torch.device_cases cpu    the Triton kernel, interpreted
"""

import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from twintrace.frameworks.runs import Runs
from twintrace.frameworks.torch.batches import Entry, launch, triton_for, walk_of
from twintrace.frameworks.torch.tensors import NAMES, host
from twintrace.store.device_sums import finish
from twintrace.store.digest import digest

QUANTISED = (torch.quint8, torch.qint8, torch.qint32)
TYPES = [dtype for dtype in NAMES if dtype not in QUANTISED]


def cases(dtype: torch.dtype, device: str, sizes: Sequence[int] = (1, 3, 129, 1000, 9001)) -> Iterator[torch.Tensor]:
    """Any bytes at all as elements of a type: contiguous, strided, transposed, expanded, at odd addresses; and some that
    are special.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # complex half is experimental
        size = torch.empty(0, dtype=dtype).element_size()
        generator = torch.Generator().manual_seed(size)
        for count in sizes:
            raw = torch.randint(0, 256, (count * size,), dtype=torch.uint8, generator=generator)
            flat = (raw & 1 if dtype is torch.bool else raw).to(device).view(dtype)
            yield flat
            if count >= 1000:
                yield flat[:1000].view(-1, 40)[:, 3:9]
                yield flat[1:]
                yield flat[:960].view(8, 15, 8).transpose(0, 2)
                yield flat[:24].view(24, 1).expand(24, 17)
                yield flat[:896].view(7, 128)[:, 64:]
                yield flat[:128].view(2, 2, 2, 2, 2, 2, 2)[:, 0].transpose(0, 4)
        if dtype.is_floating_point and size > 1:
            for scale in (1.0, 1e-300, 1e300):  # smallest and largest, where there are such
                yield (torch.randn(3000, generator=generator).double() * scale).to(dtype).to(device)
            yield torch.tensor([-0.0, -1.0]).to(dtype).to(device)
            mixed = torch.randn(5000, generator=generator)
            mixed[[7, 4999]], mixed[100], mixed[4000] = torch.nan, torch.inf, -torch.inf
            yield mixed.to(dtype).to(device)
        if dtype is torch.complex128:
            yield (torch.randn(300, dtype=dtype, generator=generator) * 1e300).to(device)
            yield (torch.randn(300, dtype=dtype, generator=generator) * 1e-300).to(device)


def faults(tensors: Sequence[torch.Tensor], kernels: Any) -> list[str]:
    """Where the device's numbers are not the host's: fingerprint, counts and ends bit for bit, the sums and the moduli of complex
    numbers within their last digits.
    """
    entries = [_entry(tensor, number, kernels) for number, tensor in enumerate(tensors)]
    results = torch.empty((len(entries), 16), dtype=torch.int64, device=tensors[0].device)
    launch(entries, results, True, kernels)
    again = torch.empty_like(results)
    launch(entries, again, True, kernels)
    found = [] if torch.equal(results, again) else ["not the same twice"]
    numbers = finish(results.cpu().numpy(), [e.dtype for e in entries], [e.nbytes for e in entries], True)
    for tensor, (low, high, mean, norm, nan, posinf, neginf, zero, text, one, two) in zip(
        tensors, numbers, strict=True
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wanted = digest(host(tensor), NAMES[tensor.dtype])
        told = wanted.statistics
        exact = (told.nan, told.posinf, told.neginf, told.zero, wanted.fingerprint)
        ends = (told.min, told.max) == (low, high)
        if tensor.is_complex():  # moduli: the processor's own root may be one unit off
            ends = _near(told.min, low, 0.0) and _near(told.max, high, 0.0)
        size = (told.norm or 0.0) / max(1, tensor.numel()) ** 0.5
        order = told.order or (None, None)
        near = (
            _near(told.mean, mean, size)
            and _near(told.norm, norm, 0.0)
            and _near(order[0], one, told.norm or 0.0)
            and _near(order[1], two, told.norm or 0.0)
        )
        if exact != (nan, posinf, neginf, zero, text) or not ends or not near:
            found.append(f"{tensor.dtype}{list(tensor.shape)} {tensor.stride()}: {wanted}, got {numbers}"[:2000])
    return found


def _near(left: float | None, right: float | None, size: float) -> bool:
    if left is None or right is None or left == right:
        return left == right
    return abs(left - right) <= 1e-14 * max(size, abs(left))


def _entry(tensor: torch.Tensor, number: int, kernels: Any) -> Entry:
    size, nbytes, dtype, walk = tensor.element_size(), tensor.numel() * tensor.element_size(), NAMES[tensor.dtype], None
    if not tensor.is_contiguous() or tensor.data_ptr() % 8:
        runs = Runs.of(tensor.shape, [size * step for step in tensor.stride()], size)
        walk = walk_of(runs, tensor.data_ptr() % 8 == 0, kernels) if kernels else None
        if walk is None:
            tensor = tensor.contiguous().clone()
    return Entry(tensor.data_ptr(), nbytes, dtype, walk, tensor, tensor.untyped_storage(), 0, 0, number)


def main() -> int:
    """All of it; how many faults there are."""
    device = sys.argv[1]
    names = sys.argv[2:]
    sizes = (1, 3, 129, 1000, 9001) if device == "cpu" else (1, 3, 129, 1000, 70001, 300001)
    kernels = triton_for(torch.device(device))
    assert kernels is not None, "no Triton"
    faulty = 0
    for dtype in TYPES:
        if names and NAMES[dtype] not in names:
            continue
        tensors = list(cases(dtype, device, sizes))
        for way in (kernels, None):
            told = faults(tensors, way)
            faulty += len(told)
            sys.stdout.write("".join(f"{'plain' if way is None else 'triton'}: {text}\n" for text in told))
    sys.stdout.write(f"faults: {faulty}\n")
    return faulty


if __name__ == "__main__":
    sys.exit(min(main(), 1))
