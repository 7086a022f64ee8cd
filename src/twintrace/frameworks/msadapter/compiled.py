"""Compiled graphs: MindSpore's, as MSAdapter compiles nothing itself."""

from ..mindspore.compiled import CompiledRegions

__all__ = ["CompiledRegions"]
