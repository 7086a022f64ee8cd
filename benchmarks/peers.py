"""Environments in which the peers run: a thin layer each, built on first use and kept.

    environment("msprobe")          -> ~/.cache/twintrace/envs/msprobe-<hash>/bin/python
    environment("troubleshooter")   -> ~/.cache/twintrace/envs/troubleshooter-<hash>/bin/python
    python -m benchmarks.peers      builds both and says where they are

A layer is a venv that holds the peer and what it imports, and nothing else; one `.pth` file hands it the site-packages
of the interpreter that built it. So torch, numpy and mindspore are the very files that the measured program uses, and a
layer costs 200 MB instead of gigabytes. Dependencies are listed here by hand and installed without resolution, because
the peers ask for more than they import (skl2onnx) or for what cannot be had (protobuf<=3.20.1 beside mindspore 2.10).

The hash covers everything that decides the contents: requirements, edits, and the interpreter underneath. A layer
without its `complete` mark was interrupted and is built again.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "twintrace" / "envs"


class PeerUnavailable(RuntimeError):
    """The peer is not installed here and its environment could not be built."""


@dataclass(frozen=True)
class Edit:
    """One exact replacement in the installed copy of a peer."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Peer:
    """What is installed for a peer, and what must be changed for it to import."""

    distribution: str
    version: str
    requirements: tuple[str, ...]
    edits: tuple[Edit, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()  # set when the layer's interpreter starts


# What matplotlib and pandas import. Neither peer runs without either of them.
_PLOTTING = ("matplotlib", "cycler", "kiwisolver", "pyparsing", "fonttools", "pillow")
_TABLES = ("pandas<3.1", "python-dateutil", "six")  # pandas 3.1 wants numpy 2; mindspore wants numpy 1

_DUMP = "troubleshooter/migrator/api_dump/ms_dump/"

# TroubleShooter 1.0.18 was written for the MindSpore of 2023. Without these five edits `import troubleshooter` fails
# wherever mindspore 2.7 or later is installed, also for somebody who only wants the torch side. The wrapped torch code,
# and therefore what is measured, is untouched.
_TROUBLESHOOTER_EDITS = (
    Edit(  # the class it subclasses to step aside inside ms.jit has been renamed and moved
        _DUMP + "initialize.py",
        "from mindspore.common.api import _MindsporeFunctionExecutor\n",
        "import mindspore.common._stub_tensor\n"
        "try:\n"
        "    from mindspore.common.api import _MindsporeFunctionExecutor\n"
        "except ImportError:\n"
        "    from mindspore.graph.api import _JitExecutor as _MindsporeFunctionExecutor\n",
    ),
    Edit(  # StubTensor is an empty class now: wrap what is there
        _DUMP + "initialize.py",
        "            setattr(ms.common._stub_tensor.StubTensor, attr_name[5:], "
        "getattr(wrap_sub_tensor.HOOKSubTensor, attr_name))\n",
        "            if hasattr(wrap_sub_tensor.HOOKSubTensor, attr_name):\n"
        "                setattr(ms.common._stub_tensor.StubTensor, attr_name[5:], "
        "getattr(wrap_sub_tensor.HOOKSubTensor, attr_name))\n",
    ),
    Edit(  # and put back what was there
        _DUMP + "initialize.py",
        "            setattr(ms.common._stub_tensor.StubTensor, attr_name[5:], "
        "wrap_sub_tensor.SubTensorFunc[attr_name[5:]])\n",
        "            if attr_name[5:] in wrap_sub_tensor.SubTensorFunc:\n"
        "                setattr(ms.common._stub_tensor.StubTensor, attr_name[5:], "
        "wrap_sub_tensor.SubTensorFunc[attr_name[5:]])\n",
    ),
    Edit(  # ms.jit looks the executor up under its new name
        _DUMP + "initialize.py",
        "    ms.common.api._MindsporeFunctionExecutor = MyMindsporeFunctionExecutor\n",
        "    ms.common.api._MindsporeFunctionExecutor = MyMindsporeFunctionExecutor\n"
        "    if hasattr(ms, 'graph'):\n"
        "        ms.graph.api._JitExecutor = MyMindsporeFunctionExecutor\n",
    ),
    Edit(  # no longer imported by mindspore itself
        _DUMP + "wrap_sub_tensor.py",
        "import mindspore as ms\nimport os\n",
        "import mindspore as ms\nimport mindspore.common._stub_tensor\nimport os\n",
    ),
)

PEERS = {
    "msprobe": Peer(
        "mindstudio-probe",
        "26.2.0",
        # dumping imports all of these but openpyxl and psutil; `msprobe compare` imports those two as well
        (*_TABLES, *_PLOTTING, "pytz", "pyyaml", "tqdm", "packaging", "einops", "tensorboard", "absl-py", "protobuf",
         "openpyxl", "et-xmlfile", "psutil"),
    ),
    "troubleshooter": Peer(
        "troubleshooter",
        "1.0.18",
        (*_TABLES, *_PLOTTING, "pyyaml", "tqdm", "PySnooper>=1.1.0", "prettytable<3.8", "wcwidth", "protobuf"),
        _TROUBLESHOOTER_EDITS,
        # its generated protobuf file is of an age that only the Python implementation still reads
        (("PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", "python"),),
    ),
}  # fmt: skip


def environment(name: str, *, cache: Path = CACHE) -> Path:
    """The interpreter that can import the peer `name`; built on first use. One line on stdout says what was done."""
    if name not in PEERS:
        raise ValueError(f"expected one of {sorted(PEERS)}, got {name!r}")
    peer = PEERS[name]
    if _installed_here(peer):
        _say(f"{name}: {peer.distribution} {peer.version} is installed in this interpreter, used as it is")
        return Path(sys.executable)
    folder = cache / f"{name}-{_fingerprint(peer)}"
    with _alone(cache, name):
        if (folder / "complete").exists():
            _say(f"{name}: {peer.distribution} {peer.version} from {folder}")
        else:
            _say(f"{name}: building {folder} with {peer.distribution} {peer.version}, once")
            _build(folder, peer)
    return folder / "bin" / "python"


def apply(edits: tuple[Edit, ...], packages: Path) -> None:
    """Make the edits under `packages`. Each text must occur exactly once, or nothing is known about the result."""
    for edit in edits:
        path = packages / edit.file
        text = path.read_text(encoding="utf-8")
        found = text.count(edit.old)
        if found != 1:
            raise PeerUnavailable(
                f"{path}: expected this text once, found it {found} times; the edits in {__name__} are for another "
                f"version of the peer.\n{edit.old}"
            )
        path.write_text(text.replace(edit.old, edit.new), encoding="utf-8")


def _build(folder: Path, peer: Peer) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    _call(sys.executable, "-m", "venv", "--without-pip", str(folder))
    python = folder / "bin" / "python"
    packages = _packages_of(python)
    (packages / "layer.pth").write_text(_layer(peer), encoding="utf-8")
    wanted = (f"{peer.distribution}=={peer.version}", *peer.requirements)
    _call(
        sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-input", *wanted
    )
    apply(peer.edits, packages)
    (folder / "complete").touch()


def _layer(peer: Peer) -> str:
    """The `.pth` file: lines that begin with `import` are executed at start."""
    lines = [f"import os; os.environ.setdefault({name!r}, {value!r})" for name, value in peer.variables]
    lines += [f"import site; site.addsitedir({path!r})" for path in _underneath()]
    return "\n".join(lines) + "\n"


def _underneath() -> list[str]:
    """Site-packages of this interpreter."""
    paths = sysconfig.get_paths()
    return list(dict.fromkeys([paths["purelib"], paths["platlib"]]))


def _packages_of(python: Path) -> Path:
    return Path(_call(str(python), "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])").strip())


def _installed_here(peer: Peer) -> bool:
    try:
        return importlib.metadata.version(peer.distribution) == peer.version and not peer.edits
    except importlib.metadata.PackageNotFoundError:
        return False


def _fingerprint(peer: Peer) -> str:
    edits = [(edit.file, edit.old, edit.new) for edit in peer.edits]
    parts = [peer.distribution, peer.version, peer.requirements, edits, _layer(peer), sys.version_info[:2]]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:10]


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
        raise PeerUnavailable(f"`{' '.join(command[:4])} …` ended with {done.returncode}:\n{tail}")
    return done.stdout


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    for each in PEERS:
        environment(each)
