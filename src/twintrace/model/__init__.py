"""The types that the packages exchange.

Contents: frozen dataclasses and enums without behaviour of their own. In: nothing. Out: the types that every other
room takes and gives.

    sites.py     addresses of calls               forward/api:torch.relu#3
    tensors.py   facts about a tensor             f32[8, 1024], statistics, fingerprint, place
    dtypes.py    element types                    f32, bf16: bytes, names, precision, the 256 values of f8e5m2
    values.py    arguments and results            nested, typed, with the tensors taken out
    records.py   contents of a trace              Call, Gradient, Note, Header
    pairs.py     pairs of calls and tensors       Match, TensorPair, Alone, Alignment
    measurements.py  numbers about two tensors    Measurement, StatisticsDifference
    verdicts.py  verdicts on two values           same, rounding, different, unknown
    results.py   results of a comparison          CallResult, Divergence, Comparison
    weights.py   which weight is which            Pair, WeightMap, Conversion, Certificate
    words.py     texts that are one of a few      the base of the enums
    errors.py    exceptions                       one tree

Not here: reading and writing them (`store`), making them (`collect`). Surprising: no numpy. A tensor's values never travel
between packages inside these types, only their address does.
"""
