"""Measurements: arrays in, numbers out. No thresholds, no logging, no opinion.

    values.py       measure(left, right, …)      two arrays, element by element: a Measurement
                    misfit(left, right, layout)  why two tensors cannot lie on each other, without opening them
    pictures.py     picture(array, decode)       one array for people to look at: a Picture
    fills.py        -1e9 before a softmax: what is measured without it
    statistics.py   difference(left, right)      of two tensors only the statistics are known: a StatisticsDifference
    formats.py      what the elements are: how they are decoded, how wide their last place is
    kernel_numpy.py                              the pass over both arrays, in numpy
    kernel_numba.py, blocks_numba.py             the same compiled, and what it is made of

In: numpy arrays in their storage type, as `store` maps them, and the names of their element types. Out:
`model.measurements`. Formulas and edge cases are in docs/reference/metrics.md. Not here: what is too large (`judge`), which
two belong together (`align`). Surprising: no array is ever converted or transposed as a whole. Both sides are decoded to
float64 a thousand elements at a time, in the order of the left side, whatever the types and the layout are; memory does not
grow with the tensors.
"""
