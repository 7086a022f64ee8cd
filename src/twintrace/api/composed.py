"""A journal in which tensors of several parts are compared as one: sparse ones, jagged ones, wrappers.

    journal.tensor(14)     f32[10, 4], parts indices and values     ->  f32[10, 4] with a fingerprint, made of those of its parts
    journal.array(it)                                               ->  of a sparse one its values, with the zeros between them

A recorder reads each part by itself, so that the whole has neither a fingerprint nor values of its own. Two wholes are equal bit
by bit if all their parts are. Only sparse tensors of plain coordinates are laid out: rows of a jagged one have no common length.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from typing import Any, cast

import numpy as np

from ..model.errors import TraceFormatError
from ..model.tensors import Location, Tensor
from ..store.trace import DerivedJournal, Journal

_LAID_OUT = {"f32": 4, "f64": 8}
_MOST = 256 << 20
"""Bytes of a sparse tensor that is laid out. An embedding of a million rows is compared by its fingerprint."""


def composed(journal: Journal) -> Journal:
    """The journal, with wholes for the tensors of several parts."""
    return cast(Journal, _Composed(journal))


class _Composed(DerivedJournal):
    def tensor(self, identity: int) -> Tensor:
        tensor = self._journal.tensor(identity)
        if not tensor.parts:
            return tensor
        # Parts have no parts; a file that says otherwise may say that one is part of itself.
        parts = {name: self._journal.tensor(number) for name, number in tensor.parts.items()}
        prints = [(name, str(part.spec), part.fingerprint) for name, part in sorted(parts.items())]
        if all(fingerprint for _, _, fingerprint in prints):
            told = repr((prints, str(tensor.spec))).encode()
            tensor = replace(tensor, fingerprint=hashlib.blake2b(told, digest_size=16).hexdigest())
        nbytes = math.prod(tensor.spec.shape) * _LAID_OUT.get(tensor.spec.dtype, 0)
        kept = parts.keys() == {"indices", "values"} and all(part.payload is not None for part in parts.values())
        if kept and tensor.facts.get("layout") == "sparse_coo" and 0 < nbytes <= _MOST:
            tensor = replace(tensor, payload=Location(0, nbytes))
        return tensor

    def array(self, tensor: Tensor) -> np.ndarray[Any, Any]:
        if not tensor.parts:
            return self._journal.array(tensor)
        indices, values = (
            self._journal.array(self._journal.tensor(tensor.parts[name])) for name in ("indices", "values")
        )
        whole = np.zeros(tensor.spec.shape, values.dtype)
        try:
            np.add.at(whole, tuple(indices), values)
        except (IndexError, ValueError) as error:
            raise TraceFormatError(
                f"{tensor.spec}: its indices {indices.shape} do not fit its values {values.shape} ({error})."
            ) from None
        return whole
