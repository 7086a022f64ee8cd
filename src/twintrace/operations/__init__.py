"""Operations: what a recorded call computes, whatever its framework calls it.

    meaning_of(call, framework, spec)      operation, arguments by name with defaults, results
    family_of("mindspore.ops.LayerNorm")   "layer_norm", by the name alone
    kernels.KERNELS["layer_norm"]          the same in float64, with torch

Lives here: the table of operations (names in each framework, arguments, defaults, one convention), their float64
computation, their error bounds, their known variants. In: recorded calls (`model.records.Call`). Out: meanings, and numbers for
those who have values. Not here: which calls belong together (`align`), whether a difference counts (`judge`).

Surprising: only what computes (`kernels/`, `evaluation.py` and what is built on them) imports torch, and only when values are
recomputed; meanings are had without it.
"""

from __future__ import annotations

from .families import family_of, is_class, is_known, operations_named
from .meanings import Argument, Meaning, Operand, SpecOf, different_arguments, equal_arguments
from .telling import meaning_of
from .traits import Accuracy, Traits, accuracy_of, is_question, role_of, traits_named, traits_of
from .variants import variants

__all__ = [
    "Accuracy", "Argument", "Meaning", "Operand", "SpecOf", "Traits", "accuracy_of", "different_arguments", "equal_arguments",
    "family_of", "is_class", "is_known", "is_question", "meaning_of", "operations_named", "role_of", "traits_named", "traits_of",
    "variants",
]  # fmt: skip
