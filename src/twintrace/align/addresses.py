"""Pair the calls of two journals by their addresses.

    left                                right
    forward/module:norm#0               forward/module:norm#0               paired: same address
    forward/api:torch.relu#0            –                                   only left

Enough for two runs of the same program. What cannot be paired is returned, not dropped. The order is that of the left side;
what is only on the right comes last.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..model.records import Call
from ..model.results import Match


def pair_up(left: Iterable[Call], right: Iterable[Call]) -> list[Match]:
    """Matches for all calls of both sides."""
    partners = {str(call.site): call for call in right}
    matches = []
    for call in left:
        partner = partners.pop(str(call.site), None)
        because = "same address" if partner else "no call with this address on the right"
        matches.append(Match(call, partner, because))
    matches.extend(Match(None, call, "no call with this address on the left") for call in partners.values())
    return matches
