"""The framework that the nets are written with: layers, functions and a training step under names of their own.

    CORPUS_KIT=mindspore python …       kit_mindspore; anything else: kit_torch (PyTorch, or MSAdapter where that is `torch`)

One framework per process, chosen before the first import. The nets are written once, against this module, so a mistake is planted
once and is the same mistake in every framework; a recorder sees the framework's own calls.
"""

from __future__ import annotations

import os

if os.environ.get("CORPUS_KIT") == "mindspore":
    from . import kit_mindspore as kit
else:
    from . import kit_torch as kit  # type: ignore[no-redef]

OTHER_NAMES = {
    "blocks": "layers",
    "attn": "attention",
    "norm": "ln_f",
    "norm1": "ln_1",
    "norm2": "ln_2",
    "fc1": "up_proj",
    "fc2": "down_proj",
    "head": "classifier",
    "conv1": "conv_a",
    "conv2": "conv_b",
    "bn1": "norm_a",
    "bn2": "norm_b",
    "q": "query",
    "k": "key",
    "v": "value",
    "o": "dense",
    "qkv": "in_proj",
    "tokens": "wte",
    "places": "wpe",
    "stem": "patchify",
    "mlp": "feed_forward",
    "gate": "w1",
    "up": "w3",
    "down": "w2",
    "rnn": "encoder",
    "router": "switch",
    "experts": "ffns",
}
"""How another person might have called the parts of the nets."""


def renamed_path(path: str, names: str) -> str:
    """A path of the nets as it is in a build with these names ("same" or "other")."""
    renames = OTHER_NAMES if names == "other" else {}
    return ".".join(renames.get(part, part) for part in path.split("."))


def use_names(names: str) -> None:
    """From now on modules store their children under these names."""
    kit.RENAMES.clear()
    kit.RENAMES.update(OTHER_NAMES if names == "other" else {})
