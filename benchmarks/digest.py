"""What a digest costs: GB/s for each element type and size, microseconds for small arrays, both back ends.

    python -m benchmarks.digest              all element types
    python -m benchmarks.digest f32 bf16     only these

Best of several turns, data warm in the cache where it fits. The columns "+fp" are statistics and fingerprint together,
what the training thread pays; "stats" is without the fingerprint; "µs" is one call for 16 elements.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from twintrace.model.tensors import DTYPES
from twintrace.store import digest as subject
from twintrace.store.arrays import STORAGE

SIZES = {"16 KB": 1 << 14, "128 KB": 1 << 17, "1 MB": 1 << 20, "4 MB": 1 << 22, "64 MB": 1 << 26}
BACKENDS = {"numba": subject._numba_kernel, "numpy": lambda dtype: functools.partial(subject._scan, dtype)}


def main(dtypes: list[str]) -> None:
    start = time.perf_counter()
    subject.warm_up()
    print(f"warm_up {time.perf_counter() - start:.2f} s, back end {subject.backend()}\n")
    print(f"{'':12}{'':8}{'µs':>8}", *(f"{size:>14}" for size in SIZES), "  GB/s: stats, +fp")
    for dtype in dtypes:
        for name, make in BACKENDS.items():
            kernel = make(dtype)
            if kernel is None:
                continue
            few = values(dtype, 16 * DTYPES[dtype])
            call = time_of(functools.partial(subject._digest, kernel, few, dtype, True))
            cells = [cell(kernel, values(dtype, nbytes), dtype) for nbytes in SIZES.values()]
            print(f"{dtype:12}{name:8}{call * 1e6:8.2f}", *cells, flush=True)


def values(dtype: str, nbytes: int) -> np.ndarray[Any, Any]:
    """Normal numbers as the type holds them; any bytes for types that numpy does not have."""
    count, rng = nbytes // DTYPES[dtype], np.random.default_rng(0)
    match dtype:
        case "f64" | "f32" | "f16":
            return rng.standard_normal(count).astype(STORAGE[dtype])
        case "bf16":
            return (rng.standard_normal(count).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        case "c32":
            return rng.standard_normal(2 * count).astype(np.float16).view(np.uint32)
        case "c64" | "c128":
            return rng.standard_normal(2 * count).view(np.complex128).astype(STORAGE[dtype])
        case "b8":
            return rng.random(count) < 0.5
        case _:
            return rng.integers(0, 100, count).astype(STORAGE[dtype])


def cell(kernel: Callable[..., Any], array: np.ndarray[Any, Any], dtype: str) -> str:
    calls = (functools.partial(subject._digest, kernel, array, dtype, wanted) for wanted in (False, True))
    return "".join(f"{array.nbytes / time_of(call) / 1e9:7.2f}" for call in calls)


def time_of(call: Callable[[], Any]) -> float:
    """Seconds for one call: the best of fifteen turns of at least a millisecond each."""
    call()
    start = time.perf_counter()
    call()
    times = max(1, int(1e-3 / (time.perf_counter() - start)))
    best = float("inf")
    for _ in range(15):
        start = time.perf_counter()
        for _ in range(times):
            call()
        best = min(best, (time.perf_counter() - start) / times)
    return best


if __name__ == "__main__":
    main(sys.argv[1:] or list(DTYPES))
