"""THE PRESS: results in, text out.

    text.py    a Comparison: the verdict first, at most 15 lines
    tree.py    a Listing: a trace as a tree, and as JSON

In: `model.results`. Out: strings and rich renderables. Not here: opening anything. Knows no tensor and no file.
"""
