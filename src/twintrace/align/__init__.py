"""THE LOOM: two lists of calls in; pairs and leftovers out, each with a `because`.

    addresses.py   calls with the same address belong together

In: `model` calls. Out: `model.results.Match`. Not here: whether paired values agree (`judge`). Works on metadata alone and
opens no tensor.
"""
