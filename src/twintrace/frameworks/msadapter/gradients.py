"""What flows back: the graph is MindSpore's, and so is its reading."""

from ..mindspore.gradients import (
    Gradients,
    edges_of,
    in_backward,
    is_quiet,
    is_recomputing,
    next_sequence_number,
    unseen,
)

__all__ = ["Gradients", "edges_of", "in_backward", "is_quiet", "is_recomputing", "next_sequence_number", "unseen"]
