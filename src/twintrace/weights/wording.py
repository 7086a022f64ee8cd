"""The words of a name, so that names can be equal without being spelled alike.

    h0.attn.c_proj            h 0 attention projection               numbers are words of their own
    attention.self.query      attention self q                       known abbreviations are one word
    q_proj, to_q, wq          q                                      once `WEAK` words, which many names have, are left out
    layernorm_before          norm, and the number 1                 some words count

Two names belong together when their words are equal, never because they resemble each other: `attention_norm` and
`post_attention_layernorm` do, and are different layers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

_SAME = {
    "q": "query queries wq", "k": "key keys wk", "v": "value values wv", "out": "o output outputs wo", "in": "input inputs",
    "qkv": "wqkv", "attention": "attn attentions sa mha msa", "mlp": "ffn ff feed feedforward",
    "norm": "ln layernorm layrnorm bn batchnorm groupnorm gn rmsnorm norms", "convolution": "conv convs",
    "embedding": "embed emb embd embeddings", "token": "tok tokens word words wte vocab", "class": "cls",
    "position": "pos positional positions wpe", "projection": "proj", "linear": "lin dense fc", "block": "blocks",
    "layer": "layers", "encoder": "enc", "decoder": "dec", "before": "pre", "after": "post",
}  # fmt: skip
_CONCEPT = {word: concept for concept, words in _SAME.items() for word in words.split()}

WEAK = frozenset({
    "projection", "linear", "layer", "block", "norm", "convolution", "embedding", "self", "to", "forward", "model", "net",
    "backbone", "module", "sub", "weight", "c", "h",
})  # fmt: skip
"""Words that tell little: layers of one shape in one block rarely differ in them alone."""

ORDINALS = {
    "first": 1, "second": 2, "third": 3, "fourth": 4, "fifth": 5, "sixth": 6, "last": 99,
    "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6,
}  # fmt: skip
"""Words that number branches, as digits do."""
_COUNTING = {**ORDINALS, "before": 1, "after": 2, "in": 1, "mid": 2, "hidden": 2, "out": 3, "a": 1, "b": 2}
"""Words that order layers which are alike otherwise."""

OPPOSED = (
    frozenset({"q", "k", "v", "out"}),
    frozenset({"gate", "up", "down"}),
    frozenset({"encoder", "decoder"}),
    frozenset({"before", "after"}),
    frozenset({"token", "position", "class"}),
    frozenset({"attention", "mlp"}),
)
"""Words of which a layer is one at most: two layers that have different ones are not the same layer."""


@dataclass(frozen=True, slots=True)
class Wording:
    """A name in words. `numbers` are its numbers, `counts` these and those of words that count, in their order."""

    words: frozenset[str]
    numbers: tuple[int, ...] = ()
    counts: tuple[int, ...] = ()

    def without(self, words: Iterable[str]) -> Wording:
        """The name without some of its words."""
        return Wording(self.words.difference(words), self.numbers, self.counts)

    def counted(self) -> Wording:
        """The name with the words that count among the numbers."""
        return Wording(self.words.difference(_COUNTING), self.counts, self.counts)

    def contradicts(self, other: Wording) -> bool:
        """True if the words say that they are different things."""
        ours, theirs = self.words, other.words
        return any(ours & kinds and theirs & kinds and not ours & theirs & kinds for kinds in OPPOSED)


@lru_cache(1 << 14)
def tokens(path: str) -> tuple[str, ...]:
    """A path's words and numbers in their order, in lower case: at dots, underscores, digits and capitals."""
    return tuple(part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", path))


def concept(token: str) -> str:
    """The word that stands for this one and others of the same meaning."""
    return _CONCEPT.get(token, token)


def wording(parts: Sequence[str]) -> Wording:
    """The words of these tokens."""
    known = [concept(part) for part in parts]
    numbers = tuple(int(part) for part in known if part.isdigit())
    counts = tuple(
        int(part) if part.isdigit() else _COUNTING[part] for part in known if part.isdigit() or part in _COUNTING
    )
    return Wording(frozenset(part for part in known if not part.isdigit()), numbers, counts)
