"""What an operation does to the errors of its inputs, by what it is called.

    torch.nn.functional.linear, Dense, MatMul       contracts: sums of products, over a length that the shapes tell
    torch.nn.functional.layer_norm, sub             cancels: what comes out may be much smaller than what came in
    softmax, cross_entropy                          exponential: an absolute error becomes a relative one
    relu, max_pool2d, argmax                        decides: near a tie, rounding picks the other side
    sum                                             sums: of terms that may cancel, too
    embedding, getitem, gather                      selects: few of the elements, with the errors of all
    tanh, gelu, LSTM                                approximates: a polynomial stands for the function, not the same everywhere
    LSTM, MultiheadAttention                        many steps in one call

Names of all frameworks are read by the same words: they differ in spelling, not in words. A word that is not known costs
nothing but sharpness: the operation is judged as an ordinary one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache

from ..model.records import Call
from ..model.sites import Kind


@dataclass(frozen=True, slots=True)
class Traits:
    """Properties of an operation that a judge must know."""

    contracts: bool = False
    cancels: bool = False
    exponential: bool = False
    decides: bool = False
    approximates: bool = False
    steps: int = 1
    """Elementary operations in one call, one after the other."""
    selects: bool = False
    sums: bool = False

    def __or__(self, other: Traits) -> Traits:
        """What is known of one that does both."""
        return replace(
            self,
            contracts=self.contracts or other.contracts,
            cancels=self.cancels or other.cancels,
            exponential=self.exponential or other.exponential,
            decides=self.decides or other.decides,
            approximates=self.approximates or other.approximates,
        )


def _words(*words: str) -> re.Pattern[str]:
    return re.compile("|".join(words))


_CONTRACTS = _words(
    "linear", "dense", "conv", "matmul", r"\bmm\b", "bmm", "addm[mv]", "einsum", r"\bdot\b", r"\bmv\b", "attention", "lstm",
    "gru", "rnn", "transformer", "gemm", "outer", "kron",
)  # fmt: skip
_CANCELS = _words(
    "norm", r"\bbn", "sub", r"\badd", r"\biadd", r"\bisub", "mean", r"\bsum", "reduce", r"var\b", r"\bstd", "diff", "loss", "total",
    "cumsum", "softmax", "entropy",
)  # fmt: skip
_EXPONENTIAL = _words("softmax", r"exp\b", "expm1", "entropy", "nll", "logsumexp", r"\bpow", "attention", r"\blog")
_DECIDES = _words(
    "relu", "pool", "arg", "top_?k", "sort", r"\bmax", r"\bmin", "clamp", "clip", "where", "round", "floor", "ceil", "sign", "hard",
    "dropout", "abs", "greater", "less", r"\bge\b", r"\bgt\b", r"\ble\b", r"\blt\b", r"\beq\b", r"\bne\b", "equal", "bucket",
    "huber", "l1", "masked", "threshold", "nonzero", "unique",
)  # fmt: skip
_APPROXIMATES = _words(
    "tanh", "sigmoid", "exp", "[gsc]?elu", "erf", "silu", "swish", "mish", "softplus", "softmax", r"\blog", "logits",
    r"\bsin", r"\bcos", r"\btan", r"\bpow", "rsqrt", "lstm", "gru", "rnn", "attention", "entropy", "transformer",
)  # fmt: skip
_SELECTS = _words("embedding", "getitem", "select", "gather", "slice", "narrow", "split", "chunk", "unbind", r"\btake")
_SUMS = _words(r"\bsum", "reduce_?sum")
_STEPS = (
    (_words("transformerencoder$", "transformerdecoder$", "^transformer$"), 64),
    (_words(r"transformer\w*layer"), 24),
    (_words("lstm", "gru", "rnn"), 16),
    (_words("attention"), 8),
    (_words("norm", "softmax", "entropy", "loss", "gelu", "silu", r"\bbn"), 3),
)


def traits(call: Call) -> Traits:
    """What is known of the operation that was called."""
    site = call.site
    return _traits(site.type if site.kind is Kind.MODULE else site.name)


@lru_cache(maxsize=4096)
def _traits(name: str) -> Traits:
    last = name.rpartition(".")[2] if not name.startswith("aten.") else name.split(".")[1]
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", last)  # LayerNorm -> Layer Norm, so that a word has an edge
    text = f"{words.lower()} {last.lower()}".replace("_", " ").replace("  ", " ") + f" {last.lower().strip('_')}"
    steps = next((count for pattern, count in _STEPS if pattern.search(last.lower())), 1)
    return Traits(
        contracts=bool(_CONTRACTS.search(text)),
        cancels=bool(_CANCELS.search(text)),
        exponential=bool(_EXPONENTIAL.search(text)),
        decides=bool(_DECIDES.search(text)),
        approximates=bool(_APPROXIMATES.search(text)) and not text.startswith("relu"),
        steps=steps,
        selects=bool(_SELECTS.search(text)),
        sums=bool(_SUMS.search(text)),
    )
