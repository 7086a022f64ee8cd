"""Make the environment that the Makefile's targets run in.

    $ python3 scripts/env.py torch fast
    env: .venv over /home/me/.cache/twintrace/envs/cpython-311-3f2a9c51d0 (fast, torch)

Two layers, so that a second run, or a second checkout, downloads nothing:

    ~/.cache/twintrace/envs/<python>-<hash>/   the dependencies, and never twintrace itself; the hash is of the requirements,
                                               the interpreter and the machine
    .venv/                                     this checkout's own: a thin venv with twintrace installed editable, the tools'
                                               commands, and one .pth line that leads to the first layer

The cached layer is shared between checkouts and processes: it is built under a lock and counts once `complete.json` is in it.
A venv cannot be moved, so building elsewhere and renaming would not do. An extra that .venv has had is kept by later calls:
`make demo` takes nothing away from a `make test` that is running. Only the standard library is used here, and pip.
"""

from __future__ import annotations

import argparse
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
import venv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    from pip._vendor import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
STAMP = "complete.json"
OURS = "made-by-scripts-env"  # in a .venv that may be thrown away and made again


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Make .venv, with the given extras of pyproject.toml.")
    parser.add_argument("extras", nargs="*")
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout (default: the one of this script)")
    asked = parser.parse_args(argv)
    root = asked.root.resolve()
    envs = cache_folder()
    try:
        envs.mkdir(parents=True, exist_ok=True)
        with lock(envs / f"checkout-{digest(str(root))}.lock"):
            thin = root / ".venv"
            pyproject = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
            kept = {*stamp_of(thin).get("extras", ())} & {*pyproject["project"]["optional-dependencies"]}
            extras = sorted({*asked.extras} | kept)
            wanted = requirements(pyproject, extras)
            with lock(envs / f"{env_name(wanted)}.lock"):
                cached = find(envs, wanted) or build(envs, wanted)
            changed = lay_over(root, thin, cached, extras)
    except (EnvError, OSError) as error:
        print(f"env: {error}", file=sys.stderr)
        return 1
    if changed:
        print(f"env: .venv over {cached} ({', '.join(extras) or 'no extras'})")
    return 0


class EnvError(Exception):
    """No environment; the message says why and what to do."""


# --- what is wanted ---------------------------------------------------------------------------------------------------


def requirements(pyproject: dict[str, Any], extras: Sequence[str]) -> list[str]:
    """What pip is to install: dependencies, extras (those that name extras of this project unfolded), build backend."""
    project = pyproject["project"]
    offered = project.get("optional-dependencies", {})

    def unfold(extra: str) -> Iterator[str]:
        if extra not in offered:
            raise EnvError(f"unknown extra {extra!r}: pyproject.toml offers {', '.join(sorted(offered))}.")
        for requirement in offered[extra]:
            own = re.fullmatch(rf"{re.escape(project['name'])}\[([\w, -]+)\]", requirement)
            if own is None:
                yield requirement
            else:
                for inner in own[1].split(","):
                    yield from unfold(inner.strip())

    unfolded = [requirement for extra in extras for requirement in unfold(extra)]
    return sorted({*pyproject["build-system"]["requires"], *project.get("dependencies", ()), *unfolded})


def interpreter() -> list[str]:
    """What an environment cannot survive a change of."""
    return [sys.version, sysconfig.get_platform(), str(Path(sys.base_prefix).resolve())]


def env_name(wanted: Sequence[str]) -> str:
    return f"{sys.implementation.cache_tag}-{digest(json.dumps([interpreter(), sorted(wanted)]))}"


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:10]


# --- the cached layer -------------------------------------------------------------------------------------------------


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base).resolve() / "twintrace" / "envs"


def find(envs: Path, wanted: Sequence[str]) -> Path | None:
    """A complete environment of this interpreter with all that is wanted: of this very name first, else a larger one."""
    for path in [envs / env_name(wanted), *sorted(envs.glob(f"{sys.implementation.cache_tag}-*/"))]:
        stamp = stamp_of(path)
        if stamp.get("interpreter") == interpreter() and set(wanted) <= set(stamp.get("requirements", ())):
            return path
    return None


def build(envs: Path, wanted: Sequence[str]) -> Path:
    path = envs / env_name(wanted)
    log = path.with_suffix(".log")
    print(
        f"env: installing {', '.join(wanted)}\n     into {path}, once; this can take some minutes (log: {log})",
        flush=True,
    )
    shutil.rmtree(path, ignore_errors=True)  # what an interrupted build left
    with log.open("w", encoding="utf-8") as out:
        made = subprocess.run([sys.executable, "-I", "-m", "venv", path], stdout=out, stderr=subprocess.STDOUT)
        if made.returncode:
            raise EnvError(
                f"{sys.executable} -m venv failed:\n{tail(log)}\nInstall its venv module (on Debian: python3-venv), "
                f"or choose another Python: make PYTHON=…"
            )
        pip = [str(path / "bin" / "python"), "-I", "-m", "pip", "install", "--progress-bar=off", *wanted]
        installed = subprocess.run(pip, stdout=out, stderr=subprocess.STDOUT)
    if installed.returncode:
        raise EnvError(
            f"pip could not install the dependencies; its last words, of {log}:\n{tail(log)}\n"
            f"Without network? An environment once complete needs none; a first one needs an index or a folder of wheels that "
            f"pip knows of (pip config, PIP_INDEX_URL, PIP_FIND_LINKS). Nothing is left half-made: run make again."
        )
    write_stamp(path, {"interpreter": interpreter(), "requirements": sorted(wanted)})
    return path


def tail(log: Path) -> str:
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if "WARNING" not in line]
    return "\n".join(f"    {line}" for line in lines[-12:])


# --- the checkout's layer ---------------------------------------------------------------------------------------------


def lay_over(root: Path, thin: Path, cached: Path, extras: Sequence[str]) -> bool:
    """Bring .venv in line with what was asked; False if it already was."""
    before = stamp_of(thin)
    project = digest((root / "pyproject.toml").read_text(encoding="utf-8"))
    python = {"interpreter": interpreter(), "root": str(root)}
    after = {**python, "extras": list(extras), "cached": str(cached), "project": project}
    if {**before, "extras": None} == {**after, "extras": None} and (thin / "bin" / "python").exists():
        return False  # more extras by name, but all that they ask for is there
    if {key: before.get(key) for key in python} != python or not (thin / "bin" / "python").exists():
        if thin.is_symlink() or (thin.exists() and not (thin / OURS).exists()):
            raise EnvError(f"{thin} was not made by scripts/env.py. Move it away and run make again.")
        shutil.rmtree(thin, ignore_errors=True)
        thin.mkdir()
        (thin / OURS).touch()
        venv.EnvBuilder(symlinks=True).create(thin)
    (thin / STAMP).unlink(missing_ok=True)
    replace(site_packages(thin) / "_cached_dependencies.pth", f"{site_packages(cached)}\n")
    for script in filter(Path.is_file, (cached / "bin").iterdir()):  # MindSpore leaves a __pycache__ there
        lend(script, thin / "bin" / script.name, cached, thin)
    # --no-index: the backend is in the cached layer, so nothing can be missing and nothing needs to be asked for.
    pip = [str(thin / "bin" / "python"), "-I", "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    pip += ["--no-build-isolation", "--editable", str(root)]
    installed = subprocess.run(pip, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if installed.returncode:
        raise EnvError(f"twintrace could not be installed into {thin}:\n{installed.stdout}")
    write_stamp(thin, after)
    return True


def lend(script: Path, here: Path, cached: Path, thin: Path) -> None:
    """A command of the cached layer, run by .venv's interpreter; one that is not Python (ruff) as a link."""
    if script.name.startswith(("python", "pip", "activate", "Activate")):
        return
    # Of a command that is a .py file pip leaves a __pycache__ here.
    if not script.is_file() or not os.access(script, os.X_OK):
        return
    start, _, rest = script.read_bytes().partition(b"\n")
    if start.startswith(b"#!/bin/sh") and rest.startswith(b"'''exec'"):  # pip's way round a long path: three lines
        start, rest = rest.split(b"\n", 2)[::2]
    if os.fsencode(cached / "bin" / "python") in start:
        # Always in pip's way: the checkout's path may be long, or have spaces, where the cache's does not.
        replace(here, f"""#!/bin/sh\n'''exec' "{thin}/bin/python" "$0" "$@"\n' '''\n{rest.decode()}""", mode=0o755)
    elif not here.is_symlink() or here.readlink() != script:
        here.unlink(missing_ok=True)
        here.symlink_to(script)


def site_packages(env: Path) -> Path:
    return env / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"


# --- files ------------------------------------------------------------------------------------------------------------


def stamp_of(env: Path) -> dict[str, Any]:
    try:
        return dict(json.loads((env / STAMP).read_text(encoding="utf-8")))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return {}


def write_stamp(env: Path, content: dict[str, Any]) -> None:
    replace(env / STAMP, json.dumps(content, indent=1))


def replace(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Write a file in one step: who reads it meanwhile sees the old one or the new one."""
    new = path.with_name(path.name + ".new")
    new.write_text(text, encoding="utf-8")
    new.chmod(mode)
    new.replace(path)


@contextlib.contextmanager
def lock(path: Path) -> Iterator[None]:
    with path.open("w", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"env: waiting for another process ({path})", flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    sys.exit(main())
