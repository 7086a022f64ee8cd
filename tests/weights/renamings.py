"""Architectures whose weights two code bases call differently: the names are real, the sizes small. `renamings.txt` has them:

# llama: original, transformers         the two code bases
wq.weight = q_proj.weight [8 8]         one weight, called differently
norm.* = norm.@ [8]                     weight and bias on the left, gamma and beta on the right
wq + wk + wv = qkv_proj [8|4|4 8]       three weights on the left are one on the right, along the first axis
c_fc^T = fc [32 8]                      kept transposed
gamma = gamma(1 1 1 8) [8]              kept in another shape
q + k + v = qkv~4 [8|8|8 8]             head by head, of four heads
layers.{}.x = blocks.{}.y [8]           once for each block
inv_freq = - [4 frequencies]            a buffer that only one side keeps, and what its values are
pooler.weight = - [8 8 lost]            a weight that only one side has
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

BLOCKS = 2


def _tables() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in Path(__file__).with_suffix(".txt").read_text().splitlines():
        if line.startswith("# "):
            found[line[2:]] = lines = []
        elif re.search(r"\.[*@]", line):
            names, _, form = line.rpartition(" [")
            pairs = (".weight", ".gamma"), (".bias", ".beta")
            lines += [names.replace(".*", pairs[0][0]).replace(".@", pairs[0][1]) + f" [{form}"]
            plain = re.sub(r"\^T|\([\d ]+\)", "", names)
            short = " ".join([form.rstrip("]").split()[0], *re.findall("[a-z]+", form)])
            lines += [plain.replace(".*", pairs[1][0]).replace(".@", pairs[1][1]) + f" [{short}]"]
        elif line:
            lines.append(line)
    return found


TABLES = _tables()


@dataclass(frozen=True)
class Renaming:
    """Two state dicts with the values that they have if everything arrived."""

    left: dict[str, np.ndarray]
    right: dict[str, np.ndarray]
    extra: frozenset[str]
    """Names that only one side has, and that carry nothing."""
    lost: frozenset[str]
    """Names that only one side has, and that carry something."""

    def flipped(self) -> Renaming:
        return Renaming(self.right, self.left, self.extra, self.lost)


def _derived(shape, kind):
    if kind == "frequencies":
        return (10000.0 ** (-np.arange(shape[0]) / shape[0])).astype(np.float32)
    if kind == "positions":
        return np.arange(shape[-1], dtype=np.int64).reshape(shape)
    if kind == "causal":
        return np.tril(np.ones(shape, bool))
    if kind == "zeros":
        return np.zeros(shape, np.float32)
    if kind == "windows":
        return np.add.outer(np.arange(shape[0]), np.arange(shape[1])[::-1]).astype(np.int64)
    assert kind == "one"
    return np.array(-1e9, np.float32)


def renaming(name: str, blocks: int = BLOCKS, seed: int = 0) -> Renaming:
    """The two state dicts of a table."""
    random = np.random.default_rng([seed, *name.encode()])
    sides: tuple[dict, dict] = ({}, {})
    extra, lost = set(), set()
    for line in TABLES[name]:
        names, _, form = line.removesuffix("]").partition(" [")
        left, _, right = names.partition(" = ")
        for block in range(blocks if "{" in line else 1):
            texts = [text.replace("{}", str(block)) for text in (left, right)]
            kind = next((word for word in form.split() if word.isalpha()), "")
            sizes = [[int(size) for size in axis.split("|")] for axis in form.split() if not axis.isalpha()]
            shape = tuple(sum(axis) for axis in sizes)
            whole = (
                _derived(shape, kind) if kind not in ("", "lost") else random.standard_normal(shape).astype(np.float32)
            )
            for side, text in enumerate(texts):
                if text == "-":
                    (lost if kind == "lost" else extra).update(texts)
                    continue
                parts = text.split(" + ")
                ends = np.cumsum(sizes[0] if sizes else [0])[:-1]
                for part, values in zip(parts, np.split(whole, ends) if len(parts) > 1 else [whole], strict=True):
                    found = re.fullmatch(r"([^(^~]+)(\^T)?(?:\(([\d ]+)\))?(?:~(\d+))?", part)
                    if found[4]:  # each head's rows of all parts together
                        heads = [chunk.reshape(int(found[4]), -1, *shape[1:]) for chunk in np.split(values, ends)]
                        values = np.concatenate(heads, 1).reshape(shape)
                    values = values.T if found[2] else values
                    values = values.reshape([int(size) for size in found[3].split()]) if found[3] else values
                    assert found[1] not in sides[side], found[1]
                    sides[side][found[1]] = np.ascontiguousarray(values)
    return Renaming(*sides, frozenset(extra - {"-"}), frozenset(lost - {"-"}))
