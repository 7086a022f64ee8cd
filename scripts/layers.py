"""Thin environments over the present one: a few packages more, or others, and everything else as it is here.

    layer("msadapter", ["mindnlp==0.5.1", "ml_dtypes"])   -> ~/.cache/twintrace/envs/msadapter-<hash>/bin/python

A layer is a venv that holds what is named, and nothing else; one `.pth` file hands it the site-packages of the interpreter that
built it, so torch, numpy and mindspore are the very files that are used here, and a layer costs megabytes. What is named hides
what is underneath, so a layer may also have another version of something. Requirements are listed by hand and installed without
resolution: those who need a layer need it because they ask for more than they import, or for what cannot be had.

The hash covers everything that decides the contents: requirements, edits, and the interpreter underneath. A layer without its
`complete` mark was interrupted and is built again. Only the standard library is used here, and pip.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "twintrace" / "envs"


class LayerError(RuntimeError):
    """The layer could not be built; the message says why."""


def layer(
    name: str,
    requirements: Sequence[str],
    *,
    variables: Mapping[str, str] | None = None,
    finish: Callable[[Path], None] = lambda packages: None,
    finished: object = None,
    cache: Path = CACHE,
) -> Path:
    """The interpreter of the layer `name`, built on first use. One line on stdout says what was done.

    variables   set when the layer's interpreter starts
    finish      changes the installed packages before the layer counts as complete; `finished` is what stands for it in the hash
    """
    start = _start(variables or {})
    parts = json.dumps([list(requirements), finished, start, sys.version_info[:2]])
    folder = cache / f"{name}-{hashlib.sha256(parts.encode()).hexdigest()[:10]}"
    with _alone(cache, name):
        if (folder / "complete").exists():
            _say(f"{name}: {', '.join(requirements[:1])} from {folder}")
        else:
            _say(f"{name}: building {folder} with {', '.join(requirements)}, once")
            _build(folder, requirements, start, finish)
    return folder / "bin" / "python"


def _build(folder: Path, requirements: Sequence[str], start: str, finish: Callable[[Path], None]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    _call(sys.executable, "-m", "venv", "--without-pip", str(folder))
    python = folder / "bin" / "python"
    packages = Path(_call(str(python), "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])").strip())
    (packages / "layer.pth").write_text(start, encoding="utf-8")
    pip = (sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-input")
    _call(*pip, *requirements)
    finish(packages)
    (folder / "complete").touch()


def _start(variables: Mapping[str, str]) -> str:
    """The `.pth` file: lines that begin with `import` are executed at start."""
    lines = [f"import os; os.environ.setdefault({name!r}, {value!r})" for name, value in variables.items()]
    lines += [f"import site; site.addsitedir({path!r})" for path in _underneath()]
    return "\n".join(lines) + "\n"


def _underneath() -> list[str]:
    """Site-packages of this interpreter; of a checkout's .venv those that it is a layer over, so that all checkouts share ours."""
    paths = sysconfig.get_paths()
    found = []
    for path in dict.fromkeys([paths["purelib"], paths["platlib"]]):
        lent = Path(path) / "_cached_dependencies.pth"  # made by scripts/env.py
        found.append(lent.read_text(encoding="utf-8").strip() if lent.is_file() else path)
    return found


@contextlib.contextmanager
def _alone(cache: Path, name: str) -> Iterator[None]:
    """Two builders of one layer wait for each other."""
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _call(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        tail = "\n".join(done.stderr.strip().splitlines()[-5:])
        tail = re.sub(r"\w+://\S+", "<address>", tail)  # whose mirror this is belongs in nobody's log
        raise LayerError(f"`{' '.join(command[:4])} …` ended with {done.returncode}:\n{tail}")
    return done.stdout


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
