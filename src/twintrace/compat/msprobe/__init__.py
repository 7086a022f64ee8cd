"""An embassy of msprobe (mindstudio-probe), Ascend's accuracy tool.

    from twintrace.compat.msprobe.pytorch import PrecisionDebugger, seed_all
    from twintrace.compat.msprobe.mindspore import PrecisionDebugger, seed_all      MindSpore, and MSAdapter

What lives here: those names, and the files behind them. In: a script, a config.json or a dump of the other tool. Out: dumps that
both tools read. SURFACE.md lists every name, every field and every deliberate difference.

    pytorch.py, mindspore.py   what scripts import          names.py      `Functional.conv2d.3.forward.input.1`
    debugger.py                the one recording, seed_all  elements.py   a value as dump.json has it
    config.py                  config.json and arguments    writer.py     a recording, line by line, as a dump
    selection.py               scope, list, allow-list      values.py     tensors as files, written and read
    dumps.py                   a dump as items              layout.py     dumps as traces, traces as dumps
    folding.py                 records into calls           readings.py   elements into tensors and values
    compare/                   two dumps, item by item      salvage.py    what can be read of damaged JSON
    stand_in.py                `msprobe` for scripts

Not here: recording, pairing, measuring; they are the project's own. Surprising: dump.json is written record by record, each over
the closing braces of the last, so that it is valid JSON whenever the process is killed.
"""
