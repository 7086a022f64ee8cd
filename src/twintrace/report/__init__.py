"""THE PRESS: results in, reports out.

    text.py    a Comparison: the verdict first, at most 15 lines
    tree.py    a Listing: a trace as a tree, and as JSON
    tables.py  a Comparison as flat tables: the one list of columns of
        delimited.py   CSV
        workbook.py    XLSX
        document.py    JSON, and back (docs/report-json.md)
    files.py   files that are whole or not there

In: `model.results`. Out: strings, rich renderables, files. Not here: opening a trace. Knows no tensor. Surprising: what is written
can be read back; `document.read_json` gives a Comparison, so that every other format can be made from a report alone.
"""
