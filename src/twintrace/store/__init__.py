"""The trace on disk. FORMAT.md is the specification; the code follows it.

What lives here: the layout of a trace directory, its writer and its readers, the digest of a tensor's bytes, the registry of
other tools' layouts.

    layout.py     names of files                    writer.py    journals, payloads, the manifest
    lines.py      one checked line of JSON          stage.py     payload bytes behind the training thread
    trace.py      Trace: what everybody sees        reader.py    our own layout, read lazily, trusting nothing
    journal.py    one journal: its index            parsing.py   a line as a record of the model
    payloads.py   the bytes of tensors              folded.py    journals that refer to an earlier step
    digest.py     statistics and fingerprint        arrays.py    bytes <-> numpy, for each element type
    digest_numba.py, fingerprint_numba.py     the same, compiled, where numba is installed
    device_sums.py      the same from sums that a device has made
    manifests.py  whose a directory is              uploading.py    a trace on its way to another file system
    registry.py   the table of layouts              native.py    our own layout, as the registry wants it
    folding.py    a step that repeats an earlier one, as its numbers alone
    appending.py  files that grow, and stay whole on a full disk
    remote.py     paths of other file systems, through fsspec
    npy.py        one .npy file                     saved.py     a folder of them as a trace
    decimals.py   numbers out of JSON text; decimals_numba.py    the same, compiled

In: lines and bytes from `collect`; paths. Out: `Trace`, which gives `model` types and numpy arrays. Not here: what to record
(`collect`), what two traces have in common (`align`). Surprising: there is no index file. Lines name their kind in the first
bytes, so finding all newlines is the index, and a killed process cannot leave a stale one behind.
"""
