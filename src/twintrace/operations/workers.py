"""Cores and memory that recomputation uses.

with working():                         two threads of half the cores each; large blocks of memory are used again
    first, second = both(left, right)   two functions at once: the two sides of a comparison do not wait for each other
with plain_attention():                 attention is computed from its parts, in every thread
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

First = TypeVar("First")
Second = TypeVar("Second")

_TRIM, _MMAP = -1, -3
"""M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of glibc's mallopt."""
_KEPT = 256 << 20
"""Free memory that stays with the process while it recomputes: a page that is faulted in anew costs five times its arithmetic."""
_LARGEST = 32 << 20
"""Largest block that glibc takes from the heap at all."""
_DEFAULT = 128 << 10

_state = threading.local()
_lock = threading.Lock()
_users = 0
_attention: list[contextlib.ExitStack] = []
"""One for each that is inside of `plain_attention`; the first has changed PyTorch's setting, which all threads share."""
_ATTENTION_KERNELS = {"math": True, "flash": False, "mem_efficient": False, "cudnn": False, "overrideable": False}
"""PyTorch's switches by their names, and their positions inside of `plain_attention`: the parts alone."""
_onednn: list[bool] = []
"""PyTorch's setting as it was, and one entry for each that is inside of `without_onednn`."""


@contextlib.contextmanager
def working() -> Iterator[None]:
    """Share the cores between two threads and keep freed memory, until the last user is done."""
    global _users
    cores = torch.get_num_threads()
    with _lock:
        _users += 1
        if _users == 1:
            _set_allocator(_KEPT, _LARGEST)
    pool = ThreadPoolExecutor(1, "twintrace-recompute") if cores > 1 else None
    before, _state.pool = getattr(_state, "pool", None), pool
    torch.set_num_threads(max(1, cores // 2))
    try:
        yield
    finally:
        torch.set_num_threads(cores)
        _state.pool = before
        if pool is not None:
            pool.shutdown()
        with _lock:
            _users -= 1
            if not _users:
                _set_allocator(_DEFAULT, _DEFAULT)


def both(first: Callable[[], First], second: Callable[[], Second]) -> tuple[First, Second]:
    """Results of two functions; at the same time where `working` has given the cores for it."""
    pool = getattr(_state, "pool", None)
    if pool is None:
        return first(), second()
    other = pool.submit(second)
    try:
        return first(), other.result()
    finally:
        other.cancel()


@contextlib.contextmanager
def plain_attention() -> Iterator[None]:
    """Attention without fused kernels, whose roundings cannot be followed, until the last user is done."""
    with _lock:
        stack = _attention[0] if _attention else contextlib.ExitStack()
        if not _attention:
            for kernel, wanted in _ATTENTION_KERNELS.items():
                switch = getattr(torch._C, f"_set_sdp_use_{kernel}", None)  # older releases have fewer
                if switch is not None:
                    stack.callback(switch, getattr(torch._C, f"_get_{kernel}_sdp_enabled")())
                    switch(wanted)
        _attention.append(stack)
    try:
        yield
    finally:
        with _lock:
            _attention.pop()
            if not _attention:
                stack.close()


@contextlib.contextmanager
def without_onednn() -> Iterator[None]:
    """Kernels of PyTorch's own, until the last user is done: oneDNN's of bf16 may end the process with an illegal instruction."""
    with _lock:
        if not _onednn:
            _onednn.append(torch._C._get_mkldnn_enabled())
            torch._C._set_mkldnn_enabled(False)
        _onednn.append(True)
    try:
        yield
    finally:
        with _lock:
            _onednn.pop()
            if len(_onednn) == 1:
                torch._C._set_mkldnn_enabled(_onednn.pop())


def _set_allocator(trim: int, mmap: int) -> None:
    if not sys.platform.startswith("linux"):
        return
    with contextlib.suppress(OSError, AttributeError):  # musl has no mallopt
        library = ctypes.CDLL(None)
        library.mallopt(_TRIM, trim)
        library.mallopt(_MMAP, mmap)
        if trim == _DEFAULT:
            library.malloc_trim(0)
