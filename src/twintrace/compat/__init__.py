"""THE EMBASSIES: other tools' names and formats over our own verbs, without logic of their own.

    troubleshooter/    `import twintrace.compat.troubleshooter as ts`

In: calls as the other tool documents them. Out: what it would print, return and write. Not here: what is done (`api` and below).
Surprising: where the other tool's document and the tool differ, the document is kept to.
"""
