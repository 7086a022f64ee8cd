"""Promises of every adapter, by theme; `contract.py` puts them together.

    levels.py      what each level records                       saving.py      single values
    forward.py     arguments, results, the data flow             selection.py   recording less
    backward.py    gradients                                     sessions.py    steps, and the right call at the wrong time
    hooks.py       coming and going without a trace              faults.py      the recorder fails, the training does not
    values.py      reading tensors

In: a Page. Out: tests. Surprising: nothing here names a framework, and every test has a saboteur of its own in
`tests/testing/test_contract.py`, which it must catch.
"""
