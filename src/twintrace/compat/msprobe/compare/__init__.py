"""The comparison of two dumps: which item stands beside which, what is said of the two, and the files that say it.

    request.py    what is to be compared: compare.json, or two paths          mappings.py   the four mapping files
    pairing.py    which item stands beside which: ItemPair

In: a compare.json, or two paths, and mapping files. Out: a table for each rank and step. Not here: the search for what belongs
together across frameworks (the project's alignment, through `api`). Surprising: whatever stands on one side only has a row too.
"""
