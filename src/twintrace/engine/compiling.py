"""Kernels compiled by numba: from a cache on disk, or compiled now, which takes seconds and is said.

    compiled(signature, kernel)     the kernel, for arguments of these types

    ~/.cache/twintrace/kernels/kernel_numba-5f0c…/      one folder for each state of a kernel's sources, shared by all environments

numba itself keeps what it compiles beside the sources, so that each new environment compiles anew, and looks at the kernel's own
file only. Here the folder's name covers every file of this package that the kernel's file imports, and the versions of numba and
numpy. NUMBA_CACHE_DIR, numba's own setting, is another place for it. The log says "compiling kernels …" once in a process that
compiles anything: on standard error, where nobody has set up logging.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

import ast
import functools
import hashlib
import logging
from pathlib import Path

import numba
import numpy as np
from numba import njit
from numba.core import caching, config, event
from numba.misc.appdirs import AppDirs

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
            return _compile(signature, function, options, _KernelCache(function))
        except (RuntimeError, OSError, EOFError):
            # No writable place for the cache ("no locator available"), a full disk, or a damaged cache file. A fault of
            # the kernel itself shows again below.
            return _compile(signature, function, options, caching.NullCache())


def _compile(signature, function, options, cache):
    kernel = njit(nogil=True, **options)(function)
    kernel._cache = cache
    kernel.compile(signature)
    kernel.disable_compile()
    return kernel


class _Shared(caching._CacheLocator):  # type: ignore[misc]
    """A place for compiled kernels that all environments of a user share."""

    def __init__(self, function, file):
        self._line = function.__code__.co_firstlineno
        self._state = state_of(Path(file))
        root = config.CACHE_DIR or AppDirs(appname="twintrace", appauthor=False).user_cache_dir
        self._path = Path(root, "kernels", f"{Path(file).stem}-{self._state}")

    def get_cache_path(self):
        return str(self._path)

    def get_source_stamp(self):
        return self._state

    def get_disambiguator(self):
        return str(self._line)

    @classmethod
    def from_function(cls, function, file):
        try:
            place = cls(function, file)
            place.ensure_cache_path()
        except OSError:  # no sources, as in an archive, or not writable: the next of numba's own places
            return None
        return place


class _Places(caching.CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes = (_Shared, *caching.CompileResultCacheImpl._locator_classes)


class _KernelCache(caching.FunctionCache):  # type: ignore[misc]
    _impl_class = _Places


@functools.cache
def state_of(file: Path) -> str:
    """Digits that change with the text of a module, of all modules of this package that it imports, and with the compiler."""
    digest = hashlib.sha256(f"{numba.__version__} {np.__version__}".encode())
    for part in sorted(_imported(file)):
        digest.update(part.read_bytes())
    return digest.hexdigest()[:16]


def _imported(file: Path) -> set[Path]:
    """The files of a module and of those that it imports relative to itself, and they in turn."""
    files, pending = set(), [file]
    while pending:
        module = pending.pop()
        if module not in files:
            files.add(module)
            for node in ast.walk(ast.parse(module.read_bytes())):
                if isinstance(node, ast.ImportFrom) and node.level:
                    pending.extend(_files(module, node))
    return files


def _files(module: Path, node: ast.ImportFrom) -> list[Path]:
    """The files that `from ..a import b` names: a.py, or a/b.py where a is a package."""
    home = module.parents[node.level - 1].joinpath(*node.module.split(".") if node.module else ())
    if home.with_suffix(".py").is_file():
        return [home.with_suffix(".py")]
    return [path for alias in node.names if (path := home / f"{alias.name}.py").is_file()]
