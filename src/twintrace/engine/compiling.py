"""Kernels compiled by numba: from its cache on disk, or compiled now, which takes seconds and is said.

    compiled(signature, kernel)     the kernel, for arguments of these types

The log says "compiling kernels …" once in a process that compiles anything: on standard error, where nobody has set up logging.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

import logging

from numba import njit
from numba.core import event

TOLD = "twintrace: compiling kernels, once on this machine; this takes about ten seconds."


class _Notice(event.Listener):  # type: ignore[misc]  # numba has no types
    """Says that something is compiled. numba tells of it only where its cache has nothing."""

    told = False

    def on_start(self, event):
        if not self.told:
            self.told = True
            logging.getLogger("twintrace").warning(TOLD)

    def on_end(self, event):
        pass


_notice = _Notice()


def compiled(signature, function, **options):
    """The kernel for one signature. `options` are numba's."""
    with event.install_listener("numba:compile", _notice):
        try:
            return njit(signature, nogil=True, cache=True, **options)(function)
        except (RuntimeError, OSError, EOFError):
            # No writable place for the cache ("no locator available"), a full disk, or a damaged cache file. A fault of
            # the kernel itself shows again below.
            return njit(signature, nogil=True, **options)(function)
