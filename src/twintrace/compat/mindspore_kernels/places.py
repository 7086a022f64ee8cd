"""Places of kernels: in the folders of a dump, by step, rank and graph; in the network, by phase and module.

rank_0/Net/0/3/MatMul.Default_l1-Dense_MatMul-op0.0.0.1794744157070204.output.0.DefaultFormat.Float32.npy
    rank 0, graph 0, step 3; forward, module l1
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...model.errors import TraceFormatError
from ...model.sites import Phase

MAX_DEPTH = 10  # of folders below the one that is opened
MAX_TEXT = 64 << 20  # of a table beside the kernel files

NUMBER = "[0-9]{1,18}"
_STEM = rf"(?P<type>[^.]+)\.(?P<name>.+)\.(?P<task>{NUMBER})\.(?P<stream>{NUMBER})\.(?P<time>{NUMBER})"
KERNEL = re.compile(
    rf"{_STEM}\.(?P<io>input|output)\.(?P<slot>[0-9]{{1,9}})\.(?P<format>[^.]+)(\.(?P<dtype>[^.]+))?\.npy"
)
RAW = re.compile(rf"{_STEM}(\.(input|output)\.[0-9]{{1,9}}(\.[^.]+){{0,2}}\.bin)?")
OVERFLOW = re.compile(rf"Opdebug\.Node_OpDebug\.{NUMBER}\.{NUMBER}\.{NUMBER}(\.output\.0\.json)?")
STATISTICS, MAPPING, _CONSTANTS = "statistic.csv", "mapping.csv", "constants"
UNSPELT = str.maketrans("./\\ ", "____")  # what MindSpore does to a kernel's name before it becomes a file's


# --- where files lie --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder with kernel files, and what its path says."""

    path: Path
    step: int
    rank: int
    graph: int | None
    constant: bool


def walk(root: Path, depth: int = 0) -> Iterator[os.DirEntry[str]]:
    """Every entry below `root`, folder by folder. Links to folders are not followed: they may lead in a circle."""
    try:
        with os.scandir(root) as entries:
            listed = sorted(entries, key=lambda entry: entry.name)
    except OSError:
        if depth == 0:
            raise
        return
    yield from listed
    for entry in listed:
        if depth < MAX_DEPTH and entry.is_dir(follow_symlinks=False):
            yield from walk(Path(entry.path), depth + 1)


def folders_in(root: Path) -> Iterator[Folder]:
    names = (entry for entry in walk(root) if entry.is_file() and _is_of_a_kernel(entry.name))
    return (_placed(path, root) for path in dict.fromkeys(Path(entry.path).parent for entry in names))


def _is_of_a_kernel(name: str) -> bool:
    raw = RAW.fullmatch(name) and not OVERFLOW.fullmatch(name)
    return bool(name == STATISTICS or KERNEL.fullmatch(name) or raw)


def _placed(path: Path, root: Path) -> Folder:
    """Step, rank and graph of a folder, from the names of the folders around it.

    rank_0/Net/0/3                                  rank 0, graph 0, step 3
    rank_0/Net/0/constants                          rank 0, graph 0, every step
    2/20261115120000/1/ge_default_x/5/0             step 2, rank (device) 1, graph 5
    step2/rank1/…                                   step 2, rank 1, whatever comes below
    """
    inside = path.relative_to(root).parts
    parts = root.absolute().parts[-4:] + inside
    constant = parts[-1] == _CONSTANTS
    graph, step = _number(parts[-2:-1]), 0 if constant else _number(parts[-1:])
    ranks = [int(match[1]) for part in parts if (match := re.fullmatch(r"rank_?([0-9]{1,9})", part))]
    for position, part in enumerate(inside):
        if re.fullmatch(r"20[0-9]{12}", part):  # a time: the runtime of Ascend writes this layout
            ranks = ranks or [_number(inside[position + 1 : position + 2]) or 0]
            before = _number(inside[position - 1 : position]) if position else None
            step = step if before is None else before
        if match := re.fullmatch(r"step_?([0-9]{1,9})", part):
            step = int(match[1])
    return Folder(path, step or 0, ranks[-1] if ranks else 0, graph, constant)


def _number(parts: Sequence[str]) -> int | None:
    return int(parts[0]) if parts and re.fullmatch("[0-9]{1,9}", parts[0]) else None


# --- where in the network ---------------------------------------------------------------------------------------------


def place_in_network(name: str, folder: Folder, findscopes_of: Callable[[Path], _ScopeTable]) -> tuple[Phase, str]:
    """Phase of a kernel, and the path of the module that it belongs to, by the kernel's scope.

        Gradients/Default/network-WithLossCell/_backbone-Net/l1-Dense/Grad_MatMul/MatMul-op2   backward, network._backbone.l1
        Default/optimizer-SGD/SGD-op0                                                          update, optimizer

    In the name of a file every / and . is _. `execution_order/` beside the net's folder has the scopes as they were; where it
    is missing, the way back is a guess that is right as long as no class has an _ in its name.
    """
    orders = folder.path.parent.parent.parent / "execution_order"
    scopes = findscopes_of(orders / f"ms_execution_order_graph_{folder.graph}.csv")
    parts = scopes.get(_flat(name)) or _guess(name.rpartition("_")[0])
    phase = Phase.FORWARD
    if parts[:1] == ["Gradients"]:
        phase = Phase.BACKWARD
    elif parts[:1] and parts[0].startswith("recompute_"):
        phase = Phase.RECOMPUTE
    elif any(part.startswith("optimizer-") for part in parts):
        phase = Phase.UPDATE
    return phase, ".".join(part.partition("-")[0] for part in parts if "-" in part)


_ScopeTable = dict[str, list[str]]


def scopes_of(orders: Path) -> _ScopeTable:
    """The scope of each kernel, by its name in files without its number: kernels are numbered anew after the table is written."""
    try:
        lines = text_of(orders).splitlines()[1:] if orders.is_file() else []
    except TraceFormatError:
        lines = []
    return {_flat(line.strip().translate(UNSPELT)): line.strip().split("/")[:-1] for line in lines}


def _flat(name: str) -> str:
    return re.sub("-op[0-9]+$", "", name)


def _guess(scope: str) -> list[str]:
    """Parts of a scope: each ends at a word with a hyphen, but for `Gradients` and `Default` at the beginning."""
    parts: list[str] = []
    words: list[str] = []
    for word in scope.split("_"):
        words.append(word)
        first = word in ("Gradients", "Default") if not parts else parts == ["Gradients"] and word == "Default"
        if "-" in word or first:
            parts.append("_".join(words))
            words = []
    return parts


def text_of(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_TEXT:
            raise TraceFormatError(f"{path}: expected at most {MAX_TEXT} bytes, found {path.stat().st_size}.")
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise TraceFormatError(f"{path}: cannot be read ({error.strerror}).") from error
