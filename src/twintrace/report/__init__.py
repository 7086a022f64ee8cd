"""Reports: results in, reports out.

    text.py    a Comparison: the verdict first, at most 15 lines
    progress.py  a bar while it is made, on a terminal only
    tree.py    a Listing: a trace as a tree, and as JSON
    tables.py  a Comparison as flat tables: the one list of columns of
        delimited.py   CSV
        workbook.py    XLSX
        document.py    JSON, and back (docs/reference/report-json.md)
        frames.py      data frames of pandas, polars, Arrow
    trace_table.py     a trace's tensors as such a table
    weights.py, weight_tables.py   reports on weights: text; tables, JSON, a small page
    files.py   files that are whole or not there
    spreadsheet.py     any tables as XLSX, for workbook.py and for `compat`, whose tables are not ours
    page.py    one HTML file that works offline (docs/reference/report.md), made of
        headline.py    the verdict, as elements
        sheets.py      data of the page's script: columns, words, packed
        comparison_sheet.py, trace_sheet.py    a Comparison, and a trace's calls, in that shape
        graphs.py      modules and data flow of both sides
        assets/        the page's own script and style, and the libraries for its table and its graph
    notebook.py  verdict and ribbon for a notebook, without a script
    server.py  the same page for this machine's browser, asked for piece by piece

In: `model.results`. Out: strings, rich renderables, files. Not here: opening a trace. Knows no tensor. Surprising: what is written
can be read back; `document.read_json` gives a Comparison, so that every other format can be made from a report alone.
"""
