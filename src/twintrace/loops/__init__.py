"""Recorders for training loops that are not yours: one module for each library, imported only when it is asked for.

    twintrace.loops.transformers   RecordCallback: `Trainer(..., callbacks=[RecordCallback("runs/a")])`
    twintrace.loops.lightning      RecordCallback: `Trainer(..., callbacks=[RecordCallback("runs/a")])`
    twintrace.loops.accelerate     record: a recorder whose `step` ends a step once gradients are synchronised
    twintrace.loops.mindspore      RecordCallback: `model.train(..., callbacks=[RecordCallback("runs/a")])`

In: the options of `tt.record`. Out: a trace whose steps are those of the optimizer: the batches of an accumulated gradient
are one step, evaluation is not recorded, and a training that is taken up again goes on in its trace under its own numbers.
`steps.py` says it once for all of them; the contents of a step are decided in `collect`. Each library has
its extra in pyproject.toml.
"""
