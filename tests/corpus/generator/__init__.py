"""Cases made by a generator: nets with a mistake, or rewritten, in three precisions and three pairs of frameworks, from a seed.

    $ python -m tests.corpus.generator --seed 3 --list          what there is, and what is left out and why
    $ python -m tests.corpus.generator --seed 3 --show NAME     one case as JSON
    $ python -m tests.corpus.generator --seed 3 --record FOLDER [NAME …]

    kit.py, kit_torch.py, kit_mindspore.py   what the nets are written with
    parts.py, nets.py                        ten nets, with knobs
    families.py                              mistakes and rewrites: which knob, which values, what a verdict has to say
    cases.py                                 a case as data: two sides and the truth
    pairwise.py                              a sample in which every two choices meet
    sampling.py                              the cases of a seed
    running.py, kernels.py                   runs one side, with a recorder or without
    recording.py                             both sides of many cases, one process per framework
    soundness.py                             does a mistake change a result, does a rewrite change none?

In: a seed. Out: traces with a known truth. Not here: the nets of `pairs/`, written twice as people write them, for alignment.
Surprising: the nets are written once, against a kit; so a mistake is the same mistake in every framework, and its effect can be
checked in float64 in PyTorch before any verdict is asked for.
"""
