"""THE CORPUS: networks written twice, as a person ports them, and what corresponds in the two.

    pairs/<name>/truth.py         what corresponds (notation.py), and a batch of seeded numbers
    pairs/<name>/in_torch.py      the network in PyTorch: `build()` and `loss(net, batch)`
    pairs/<name>/in_mindspore.py  its port: the same two, other names, other nesting, other ways to compute the same

    notation.py        the language of the truths
    run_torch.py       one training step of a pair's left side, in a process of its own: values, or a trace
    run_mindspore.py   the same for the right side, with the left one's weights
    ports.py           both sides without a recorder: is the port correct, is the truth complete?
    record.py          both sides of many pairs, each recorded once for all tests
    oracle.py          what corresponds, seen from the values alone
    score.py           an alignment held against truth and oracle
    faults.py          mistakes that ports make, and where each is; planted.py plants them in the right side
    pairing/           pairs for each class of what real ports do: rewrites and mistakes, and what is paired and said of them
    generator/         another corpus, made from a seed: mistakes and rewrites in nets that are written once

    $ PYTHONPATH=src:tests python -m corpus.ports FOLDER [NAME …]       check ports
    $ PYTHONPATH=src:tests python -m corpus.record FOLDER [NAME …]      record, align and score

In: nothing but seeds. Out: traces with known answers. Not here: tests of single rules of the alignment (tests/align).
Surprising: no list of corresponding calls is written down anywhere. The ports are correct (test_ports.py), so what corresponds has
the same values, and with random numbers nothing else has; only modules and parameters, where values do not decide, are declared.
"""
