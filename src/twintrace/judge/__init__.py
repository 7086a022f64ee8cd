"""THE BENCH: what is known of two values in, a verdict with its reason out.

    sameness.py      are two recorded tensors the same value? which settings differ?
    divergences.py   which difference is the first, and whose is it?

In: `model` types. Out: answers and `model.results`. Not here: opening tensors or computing errors (`measure`).
"""
