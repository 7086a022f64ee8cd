"""Weights from one framework to the other. Names, layouts, values; checkpoint files; certificates.

    checkpoints.py   open any file; write one, completely or not at all       extents.py      where tensors lie on disk
    pth.py, safetensors.py, ckpt.py                                           the three formats, without their frameworks
    states.py        a net, a file, a dict: seen alike                        layers.py       names of a layer's weights
    mapping.py       which layer is which, how sure, and why                  mapfile.py      the same as a file
    places.py        layers, and where they are in their nets                 wording.py      names in words
    fusion.py        one weight against several                               derivation.py   buffers that follow from their shape
    uses.py          the order of use, out of traces                          equality.py     which is which by equal values
    members.py       from paired layers to their weights                      prediction.py   with one net alone at hand
    transforms.py    from one layout to the other                             conversion.py   into a file or a net
    comparison.py    side by side                                             certificate.py  proof; mistakes.py: faults
    trial.py         one pass through both nets, judged by rounding

In: nets (through `frameworks`), paths, dicts. Out: `model.weights`. Not here: texts (`report`), TroubleShooter's names
(`compat`). Surprising: nothing in a checkpoint is run. A `.pth` file is a pickle, and is read by a machine that knows
tensors and containers and nothing else; torch's own loader is asked only for trusted files.
"""
