"""A block of f32 in one pass: what `digest_numba.py` does in three loops, written out in vectors.

    state = room()                                                 what is known so far, a vector of each
    clear(state)
    p, q, s = walk(block, weights, added, crossed, state)          1024 bytes: sums of the fingerprint, the rest in `state`
    walk_without(block, weights, state)                            the same without a fingerprint
    weighted(state)                                                the sum of values times weights, which begins anew
    low, high, zero, total, squares = reduced(state)

LLVM turns three simple loops into vectors and gives up on one rich one. Three loops load every element three times, and only the
first of them waits for memory; so where most of a recording's time goes, which is f32, the rich loop is put together by hand,
a third faster. Lanes are whole cache lines where the processor has registers for them (AVX-512), and half of one elsewhere.
"""

# No `from __future__ import annotations`, no annotations on kernels: numba reads these functions, mypy cannot.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, assignment"

import numpy as np
from llvmlite import binding, ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from .digest import BLOCK
from .memory_numba import at, emit_fetch, put

AHEAD = 4096
"""Bytes; memory this far ahead of what is read is asked for."""
_LANES = 16 if binding.get_host_cpu_features().get("avx512f") else 8
_SLOT = 64  # bytes of the state for each vector
_TOP = 0x7FFFFFFF

_I8, _I32, _I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
_BITS, _REALS = ir.VectorType(_I32, _LANES), ir.VectorType(ir.FloatType(), _LANES)
_WORDS, _SUMS = ir.VectorType(_I64, _LANES // 2), ir.VectorType(ir.DoubleType(), _LANES // 2)
# In the order of their slots. Sums are kept apart for either half of a vector: fewer additions wait for each other.
_STATE = {
    "low": _BITS,
    "high": _BITS,
    "zero": _BITS,
    "sum0": _SUMS,
    "sum1": _SUMS,
    "squares0": _SUMS,
    "squares1": _SUMS,
    "order0": _SUMS,
    "order1": _SUMS,
}


def _all(kind, value):
    return ir.Constant(kind, [value] * kind.count)


class _Block:
    """Emits the walk over one block."""

    def __init__(self, builder, address, state):
        self.builder, self.address, self.state = builder, address, state
        self.variables = {}

    def pointer(self, address, offset, kind):
        return self.builder.inttoptr(self.builder.add(address, offset), kind.as_pointer())

    def slots(self):
        for number, (name, kind) in enumerate(_STATE.items()):
            yield name, self.pointer(self.state, _I64(number * _SLOT), kind)

    def begin(self, name, kind, value):
        self.variables[name] = variable = cgutils.alloca_once(self.builder, kind)  # becomes a register
        self.builder.store(value, variable)

    def change(self, name, change):
        variable = self.variables[name]
        self.builder.store(change(self.builder.load(variable)), variable)

    def emit(self, weights, added=None, crossed=None):
        builder = self.builder
        for name, slot in self.slots():
            self.begin(name, _STATE[name], builder.load(slot, align=_SLOT // 2))
        for name in "pqs":
            self.begin(name, _WORDS, _all(_WORDS, 0))
        with cgutils.for_range(builder, _I64(BLOCK // (4 * _LANES)), intp=_I64) as loop:
            offset = builder.mul(loop.index, _I64(4 * _LANES))
            emit_fetch(builder, builder.add(self.address, builder.add(offset, _I64(AHEAD))))
            bits = builder.load(self.pointer(self.address, offset, _BITS), align=1)
            self.order(bits)
            self.sums(bits, builder.add(weights, builder.mul(offset, _I64(2))))
            if added is not None:
                self.products(builder.bitcast(bits, _WORDS), added, crossed, offset)
        for name, slot in self.slots():
            builder.store(builder.load(self.variables[name]), slot, align=_SLOT // 2)

    def order(self, bits):
        """Bits that order like the values (see digest_numba.py), and zeros of both signs."""
        builder, top = self.builder, _all(_BITS, _TOP)
        key = builder.xor(bits, builder.and_(builder.ashr(bits, _all(_BITS, 31)), top))
        zero = builder.icmp_signed("==", builder.and_(bits, top), _all(_BITS, 0))
        self.change("low", lambda low: builder.select(builder.icmp_signed("<", key, low), key, low))
        self.change("high", lambda high: builder.select(builder.icmp_signed(">", key, high), key, high))
        self.change("zero", lambda count: builder.add(count, builder.zext(zero, _BITS)))

    def sums(self, bits, weights):
        """Of the values, their squares, and the values times the weights of their places, eight bytes each."""
        builder, contract = self.builder, ("contract",)
        reals = builder.bitcast(bits, _REALS)
        for half in (0, 1):
            places = [half * _LANES // 2 + lane for lane in range(_LANES // 2)]
            chosen = ir.Constant(ir.VectorType(_I32, _LANES // 2), places)
            value = builder.fpext(builder.shuffle_vector(reals, reals, chosen), _SUMS)
            self.change(f"sum{half}", lambda total, value=value: builder.fadd(total, value))
            square = builder.fmul(value, value, flags=contract)
            self.change(f"squares{half}", lambda total, square=square: builder.fadd(total, square, flags=contract))
            weight = builder.load(self.pointer(weights, _I64(4 * half * _LANES), _SUMS), align=8)
            part = builder.fmul(value, weight, flags=contract)
            self.change(f"order{half}", lambda total, part=part: builder.fadd(total, part, flags=contract))

    def products(self, words, added, crossed, offset):
        """P, Q and S of the fingerprint (see digest.py)."""
        builder = self.builder
        lower, half = _all(_WORDS, 0xFFFFFFFF), _all(_WORDS, 32)

        def product(z):
            return builder.mul(builder.and_(z, lower), builder.lshr(z, half))

        def key(keys):
            return builder.load(self.pointer(keys, offset, _WORDS), align=8)

        self.change("p", lambda p: builder.add(p, product(builder.add(words, key(added)))))
        self.change("q", lambda q: builder.add(q, product(builder.xor(words, key(crossed)))))
        self.change("s", lambda s: builder.add(s, words))

    def total(self, name):
        kind = ir.FunctionType(_I64, [_WORDS])
        add = cgutils.get_or_insert_function(self.builder.module, kind, f"llvm.vector.reduce.add.v{_WORDS.count}i64")
        return self.builder.call(add, [self.builder.load(self.variables[name])])


@intrinsic
def walk(typing, address, weights, added, crossed, state):
    """P, Q and S of a block; `added` and `crossed` are where the keys lie, `weights` those of the block's elements."""

    def emit(context, builder, signature, arguments):
        address, weights, added, crossed, state = arguments
        block = _Block(builder, address, state)
        block.emit(weights, added, crossed)
        return context.make_tuple(builder, signature.return_type, [block.total(name) for name in "pqs"])

    return types.UniTuple(types.uint64, 3)(types.intp, types.intp, types.intp, types.intp, types.intp), emit


@intrinsic
def walk_without(typing, address, weights, state):
    """The same without the fingerprint."""

    def emit(context, builder, signature, arguments):
        address, weights, state = arguments
        _Block(builder, address, state).emit(weights)
        return context.get_dummy_value()

    return types.none(types.intp, types.intp, types.intp), emit


@intrinsic
def room(typing):
    """Where a state lies: on the stack, as long as the function runs that asks for it."""

    def emit(context, builder, signature, arguments):
        memory = cgutils.alloca_once(builder, ir.ArrayType(_I8, (len(_STATE) + 1) * _SLOT))
        start = builder.add(builder.ptrtoint(memory, _I64), _I64(_SLOT - 1))
        return builder.and_(start, _I64(-_SLOT))

    return types.intp(), emit


@njit
def clear(state):
    """Nothing has been read."""
    for lane in range(_LANES):
        put(np.int32, state + 4 * lane, np.int32(_TOP))
        put(np.int32, state + _SLOT + 4 * lane, np.int32(-_TOP - 1))
        put(np.int32, state + 2 * _SLOT + 4 * lane, np.int32(0))
    for lane in range(_LANES // 2):
        for slot in range(3, 9):
            put(np.float64, state + slot * _SLOT + 8 * lane, 0.0)


@njit
def weighted(state):
    """The sum of the weighted values since it was last asked for."""
    total = 0.0
    for lane in range(_LANES // 2):
        for slot in range(7, 9):
            total += at(np.float64, state + slot * _SLOT, lane)
            put(np.float64, state + slot * _SLOT + 8 * lane, 0.0)
    return total


@njit
def reduced(state):
    """The ends in order, how many zeros, and both sums."""
    low = np.int32(_TOP)
    high = np.int32(-_TOP - 1)
    zero = 0
    total = 0.0
    squares = 0.0
    for lane in range(_LANES):
        low = np.int32(min(low, at(np.int32, state, lane)))
        high = np.int32(max(high, at(np.int32, state + _SLOT, lane)))
        zero += at(np.int32, state + 2 * _SLOT, lane)
    for lane in range(_LANES // 2):
        total += at(np.float64, state + 3 * _SLOT, lane) + at(np.float64, state + 4 * _SLOT, lane)
        squares += at(np.float64, state + 5 * _SLOT, lane) + at(np.float64, state + 6 * _SLOT, lane)
    return low, high, zero, total, squares
