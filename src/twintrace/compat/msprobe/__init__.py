"""An embassy of msprobe (MindStudio's accuracy tool): its debugger, its dumps, its comparison.

What lives here: the names that its users write, and the files behind them. In: scripts, config files, dumps. Out: dumps
that both tools read. SURFACE.md lists every name and every deliberate difference.

    dumps.py   a dump directory as items, straight from its JSON        salvage.py   what can be read of a damaged JSON file

Not here: recording, pairing, measuring; they are the project's own. Surprising: a dump vouches for nothing. Every element is
checked when it is read, and one that does not fit is an item that says so.
"""
