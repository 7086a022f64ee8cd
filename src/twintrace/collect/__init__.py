"""Recording: what is recorded, when, where to; turns what a framework reports into lines of a trace.

    session.py     a recording: start, stop, step, save, close
    calls.py       hears of calls from a framework, decides which are wanted, writes them down
    journals.py    the journal of the present step, and what goes wrong with it
    numbering.py   numbers of calls, stacks, configurations          plans.py     steps that repeat an earlier one
    alarms.py      values that are watched: not finite (watching.py), or not those of another run (lockstep.py)
    activity.py    why a record is empty
    models.py      which models, and whose they are
    selection.py   which steps, ranks, names, ranges
    observer.py    a number for each tensor value that was seen, and recognised again
    tensor_lines.py     reads it once, and writes its line
    flatten.py     takes the tensors out of nested arguments
    stacks.py      where in the user's own files a call was made
    configurations.py   what modules are set to             complaints.py   what goes wrong, told once
    processes.py   closed when the process ends; let go in forked children
    selfcheck.py   does recording change the run?            scripts.py   the same for a whole script
    seeding.py     the same random numbers every time

In: calls and gradients from `frameworks`. Out: lines and bytes to `store`. Not here: how a framework is intercepted
(`frameworks`), how a line is written (`store`). Surprising: tensors are read on the training thread, at the moment of the call.
A reader behind it would race with in-place writes; what is behind is the disk.
"""
