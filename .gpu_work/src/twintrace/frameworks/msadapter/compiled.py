"""Compiled graphs: MindSpore's, as MSAdapter compiles nothing itself. One way out of the two.

torch.compile, torch.jit.script     give what they were given: nothing is compiled, everything is seen
@ms.jit                             compiles MindSpore's own code; MSAdapter's it refuses
  with eager=True                   not offered: MindSpore's functions give tensors without a device, and MSAdapter's operators,
                                    which are those of every tensor in such a process, want one
  with kernels=True                 as in MindSpore
"""

from __future__ import annotations

from ..mindspore import compiled

__all__ = ["CompiledRegions"]


class CompiledRegions(compiled.CompiledRegions):
    """Watches the doors of MindSpore's compiler and of what it has compiled."""

    ways_out = (
        "kernels=True to have MindSpore dump the graph's kernels into the trace. (eager=True is not offered beside MSAdapter: "
        "MindSpore's own code, which a graph is made of, does not run there uncompiled.)"
    )
