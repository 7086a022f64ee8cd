"""Diagnoses of one recorded run, without a second one beside it.

    search.py        the first value that is not finite          first_nonfinite(trace) -> NonfiniteReport
    suspects.py      the calls of one step that may have made it, and whether it had an effect
    growth.py        growth over the calls and the steps before
    repetition.py    two runs of one script: the first call that differs, by cause
    curves.py        a run over its steps and its depth: loss, norms, dead units
    flow.py          one journal as data flow: who took which value

In: traces (`store.trace.Trace`). Out: `model.nonfinite`. Not here: texts for people (`report`), watching while a run is recorded
(`collect/watching.py`). Causes by operation are in `operations/nonfinite`.
Surprising: no value is ever opened. Statistics count NaN, infinities and zeros, and that is enough.
"""
