"""Execution: many independent tasks in, their results in the same order out.

    protocol.py   Engine (all that is ever asked of one), Done (a task and what became of it), cores
    local.py      Local: threads of this process, on all cores
    processes.py  Processes: processes of this machine, for tasks that can be pickled; engine_named: the engine of a name
    cluster.py    Cluster: a Ray cluster
    compiling.py  compiled: a kernel by numba, from its cache or compiled now, which is said
    intrinsics.py what kernels need and numba has no name for: memory by its address, bits of floats

In: a function and descriptions of what to call it with. Out: one `Done` for each. Not here: what the work is; of all packages only
the verbs come here, and those that have kernels. Surprising: a task that raises costs itself alone, and its error is a result like
any other. Function and descriptions should be such that they can be pickled, although threads do not ask for it: another machine
may take them one day.
"""
