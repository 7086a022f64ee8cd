"""Corpora for what real ports do, class by class: programs written in two ways, and what corresponds in them.

    $ python -m benchmarks.align --classes            score every class: twenty pairs, three types, both directions
    $ python -m benchmarks.align --classes 4 6 -v     two of them, with everything that fell short

    cases.py        a pair: one program with two ways of writing it, perhaps with a mistake, and what a verdict has to say
    left_alone.py   classes 1 to 5:   lone calls, strays, other shapes, layouts, order inside statistics
    regions.py      classes 6 to 10:  regions, biases, level op, the only candidate, runs that meet again
    training.py     classes 11 to 16: arguments, gradients, values without effect, ties, objects as settings
    checkpoints.py  class 13:         weights under other names, fused, exchanged
    running.py      records a pair and compares it both ways
    truth.py        what corresponds, from the same programs without their mistake in float64
    scoring.py      alignments and verdicts held against the truth, by class

In: nothing but seeds. Out: shares of tensors paired, wrong pairs, exit codes, places. Not here: tests of single rules (tests/align,
tests/judge), ports to another framework (../pairs, ../generator).
Surprising: no pair of tensors is written down. Both ways are run without the mistake in float64, where what corresponds has equal
values and, with random numbers, nothing else has; a run in another type, or with the mistake, makes the same calls.
"""
