"""Dumps of kernels that MindSpore itself writes (MINDSPORE_DUMP_CONFIG, msaccucmp), opened as traces: KERNELS.md.

    layout.py   the layout          places.py   steps, ranks, graphs; phases and modules of kernels

In: directories of .npy files and tables. Out: the layout `mindspore-kernels` of the archive's registry. Not here: comparing two of
them as msprobe does (`msprobe/compare`). Surprising: the names of the files say everything but the values.
"""
