"""Memory by its address, for kernels: numba's own arrays cost an object each, and promise LLVM an alignment.

at(np.int32, address, 3)        the fourth number there
put(np.int32, address, value)   write one
move(target, source, 100)       copy bytes
fetch(address)                  ask for a line of it, ahead of reading
trailing_zeros(word)            how many of the lowest bits are 0
"""

# No `from __future__ import annotations`, no annotations on kernels: numba reads these functions, mypy cannot.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


@intrinsic
def at(typing, like, address, index):
    """Element `index` of type `like` from `address`, at any alignment; numba's own arrays promise LLVM alignment."""
    result = like.instance_type

    def emit(context, builder, signature, arguments):
        pointer = builder.inttoptr(arguments[1], context.get_value_type(result).as_pointer())
        return builder.load(builder.gep(pointer, [arguments[2]]), align=1)

    return result(like, types.intp, types.intp), emit


@intrinsic
def put(typing, like, address, value):
    """Write an element of type `like`, at any alignment."""
    kind = like.instance_type

    def emit(context, builder, signature, arguments):
        pointer = builder.inttoptr(arguments[1], context.get_value_type(kind).as_pointer())
        builder.store(arguments[2], pointer, align=1)
        return context.get_dummy_value()

    return types.none(like, types.intp, kind), emit


@intrinsic
def fetch(typing, address):
    """Ask for the memory around `address`. There need be none: then nothing happens."""

    def emit(context, builder, signature, arguments):
        emit_fetch(builder, *arguments)
        return context.get_dummy_value()

    return types.none(types.intp), emit


def emit_fetch(builder, address):
    """The same, for whoever emits LLVM's code himself."""
    byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
    prefetch = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
    read, into_all_caches, data = number(0), number(3), number(1)
    builder.call(prefetch, [builder.inttoptr(address, byte), read, into_all_caches, data])


@intrinsic
def move(typing, target, source, nbytes):
    """Copy, at any alignment."""

    def emit(context, builder, signature, arguments):
        byte = context.get_value_type(types.voidptr)
        target, source, nbytes = arguments
        cgutils.raw_memcpy(builder, builder.inttoptr(target, byte), builder.inttoptr(source, byte), nbytes, 1)
        return context.get_dummy_value()

    return types.none(types.intp, types.intp, types.intp), emit


@intrinsic
def trailing_zeros(typing, word):
    """Number of the lowest bits of a word that are 0; of 0 itself the answer means nothing."""

    def emit(context, builder, signature, arguments):
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), emit
