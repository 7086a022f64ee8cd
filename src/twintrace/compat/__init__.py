"""Other tools' names and formats over our own verbs, without logic of their own.

    troubleshooter/    `import twintrace.compat.troubleshooter as ts`: dumps, arrays, weights; its dumps as traces.
                       What its `compare_npy_dir` does is a command, too: `twintrace npy compare`
    torch_npu_hooks/   `torch_npu.hooks`: set_dump_path, register_acc_cmp_hook, compare; its dumps, and ptdbg_ascend's
    msprobe/           `msprobe.pytorch`, `msprobe.mindspore`: PrecisionDebugger; its dumps. Its command
                       line: `twintrace msprobe compare`
    mindspore_kernels/ MindSpore's own dumps of kernels, read only
    translating.py     the base of their writers of dumps; documents.py: JSON that is whole at any time
    reading.py         what their readers have in common; lines.py: names of lines, and lines into calls
    arguments.py       arguments of their functions, held to what they may be
    run_as.py          scripts for another tool, run as they are: `twintrace run-as TOOL SCRIPT`

In: calls as the other tool documents them, and files that it wrote. Out: what it would print, return and write. Not here: what is
done (`api` and below). Surprising: where the other tool's document and the tool differ, the document is kept to; each folder's
SURFACE.md lists what differs on purpose. An embassy may register a layout with the archive, by name: so its files open everywhere.
"""
