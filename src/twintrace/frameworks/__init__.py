"""Adapters: one folder per framework, the same file names in each.

    protocol.py    all that is ever asked of a framework, and the sink that hears of its calls
    registry.py    whose object is this? (a table of dotted names)
    nodes.py       hooks on the nodes of an autograd graph, for frameworks whose graph has them
    torch/         PyTorch
    mindspore/     MindSpore
    msadapter/     MSAdapter: PyTorch's names on MindSpore, most of it borrowed from there
    reference/     numpy: a tiny framework of our own, what every test above this level uses

In each folder: `adapter.py` (the adapter: `FRAMEWORK`), `tensors.py` (looking at a tensor), `modules.py` (hooks on modules),
`calls.py` (functions and methods), `ops.py` (kernels), `gradients.py` (what flows back), `names.py` (what a function is
called), `seeding.py`, `weights.py` (parameters and buffers, loading them, one pass through a net).

In: models, tensors. Out: calls and gradients, to a `Sink`. Not here: what to keep (`collect`). Surprising: whose object it is
is asked of the object, among the frameworks already imported; nothing here imports a framework that the user has not.
"""
