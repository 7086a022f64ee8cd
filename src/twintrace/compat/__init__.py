"""THE EMBASSIES: other tools' names and files over our own verbs.

What lives here: one folder for each tool, with a SURFACE.md that says what each of its names does and where it differs on
purpose. In: scripts written for the other tool, files that it wrote. Out: our own recordings and comparisons, in the shape that
the script expects. Not here: how anything is recorded, paired or measured; an embassy translates.

    torch_npu_hooks/   `torch_npu.hooks`: set_dump_path, register_acc_cmp_hook, compare; its dumps, and ptdbg_ascend's
    disguises.py       which tools a script may be run as

Surprising: an embassy may register a layout with the archive, by name. So its files open everywhere, not only in here.
"""
