"""Environments in which the peers run: a thin layer each, built on first use and kept.

    environment("msprobe")          -> ~/.cache/twintrace/envs/msprobe-<hash>/bin/python
    environment("troubleshooter")   -> ~/.cache/twintrace/envs/troubleshooter-<hash>/bin/python
    python -m benchmarks.peers      builds both and says where they are

A layer (scripts/layers.py) holds the peer and what it imports, and nothing else: torch, numpy and mindspore are the very files
that the measured program uses, and it costs 200 MB instead of gigabytes. Dependencies are listed here by hand, because the peers
ask for more than they import (skl2onnx) or for what cannot be had (protobuf<=3.20.1 beside mindspore 2.10).
"""

from __future__ import annotations

import importlib.metadata
import sys
from dataclasses import dataclass
from pathlib import Path

from scripts.layers import CACHE, LayerError, layer


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
    try:
        return layer(
            name,
            (f"{peer.distribution}=={peer.version}", *peer.requirements),
            variables=dict(peer.variables),
            finish=lambda packages: apply(peer.edits, packages),
            finished=[(edit.file, edit.old, edit.new) for edit in peer.edits],
            cache=cache,
        )
    except LayerError as error:
        raise PeerUnavailable(str(error)) from error


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


def _installed_here(peer: Peer) -> bool:
    try:
        return importlib.metadata.version(peer.distribution) == peer.version and not peer.edits
    except importlib.metadata.PackageNotFoundError:
        return False


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    for each in PEERS:
        environment(each)
