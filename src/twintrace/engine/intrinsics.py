"""Intrinsics of all kernels: memory by its address, the bits of floats.

    at(np.int32, address, 3)           the fourth number there         as_float(bits)    the float with these bits
    put(np.int32, address, 3, value)   write it                        bits(value)       the bits of a float
    move(target, source, 100)          copy bytes                      half(bits)        an f16 as float64
    fetch(address)                     prefetch a cache line           modulus(re, im)   of a complex number

Memory is read by address because numba's own arrays cost an object each, and promise LLVM an alignment.
"""

# No `from __future__ import annotations`, no annotations on kernels: numba reads these functions, mypy cannot.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

_SMALLEST_F16 = np.float32(2.0**-14)


@intrinsic
def at(typing, like, address, index):
    """Element `index` of type `like` from `address`, at any alignment."""
    result = like.instance_type

    def emit(context, builder, signature, arguments):
        pointer = builder.inttoptr(arguments[1], context.get_value_type(result).as_pointer())
        return builder.load(builder.gep(pointer, [arguments[2]]), align=1)

    return result(like, types.intp, types.intp), emit


@intrinsic
def put(typing, like, address, index, value):
    """Write element `index` of type `like` from `address` on, at any alignment."""
    kind = like.instance_type

    def emit(context, builder, signature, arguments):
        pointer = builder.inttoptr(arguments[1], context.get_value_type(kind).as_pointer())
        builder.store(arguments[3], builder.gep(pointer, [arguments[2]]), align=1)
        return context.get_dummy_value()

    return types.none(like, types.intp, types.intp, kind), emit


@intrinsic
def fetch(typing, address):
    """Ask for the memory around `address`. There need be none: then nothing happens."""

    def emit(context, builder, signature, arguments):
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        read, into_all_caches, data = number(0), number(3), number(1)
        builder.call(prefetch, [builder.inttoptr(arguments[0], byte), read, into_all_caches, data])
        return context.get_dummy_value()

    return types.none(types.intp), emit


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
def as_float(typing, bits):
    """The float of the same width with these bits."""
    result = {32: types.float32, 64: types.float64}[bits.bitwidth]

    def emit(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], context.get_value_type(result))

    return result(bits), emit


@intrinsic
def bits(typing, value):
    """The bits of a float as an integer of its width."""
    result = {32: types.int32, 64: types.int64}[value.bitwidth]

    def emit(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], context.get_value_type(result))

    return result(value), emit


@njit
def half(bits):
    """An f16 as float64, by hand: the same on every processor, and subnormals survive torch.set_flush_denormal."""
    magnitude = np.int32(bits & 0x7FFF)
    normal = as_float(np.int32((magnitude << 13) + (112 << 23)))
    special = as_float(np.int32((magnitude << 13) | (255 << 23)))
    subnormal = np.float32(as_float(np.int32((magnitude << 13) + (113 << 23))) - _SMALLEST_F16)
    v = subnormal if magnitude < 0x400 else (special if magnitude >= 0x7C00 else normal)
    return np.float64(-v if bits < 0 else v)


@njit
def modulus(real, imaginary):
    """Modulus of two float64. Powers of two keep the squares in range, and change no bit where they were in range anyway."""
    largest = max(abs(real), abs(imaginary))
    scale = 2.0**-600 if largest > 2.0**500 else (2.0**600 if largest < 2.0**-500 else 1.0)
    back = 2.0**600 if largest > 2.0**500 else (2.0**-600 if largest < 2.0**-500 else 1.0)
    real *= scale
    imaginary *= scale
    return np.sqrt(real * real + imaginary * imaginary) * back
