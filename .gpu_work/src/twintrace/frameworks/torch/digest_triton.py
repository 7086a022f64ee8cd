"""Statistics, fingerprint and order sums of many tensors on a GPU, one launch for each element type and batch.

    table (one row per tensor)  ──▶ digest ──▶ partial sums, a row per chunk ──▶ gather_up ──▶ a row per tensor

A program takes a chunk of 64 blocks: one warp, one block of the fingerprint (128 words of 8 bytes, one row) per iteration.
Words are loaded once and the elements cut out of them by shifts; everything is kept lane by lane in registers and added up
at the end of the chunk. Tried and left (GB/s of bf16 on an H200): 16 rows × 128 words in 4 warps, reduced every iteration, 230
against 2,100. Sums are float64 in a fixed order: the same result every time. Minimum and maximum are those of the bits, read as integers that
order like the values, as on the host.

Importing this module imports Triton. FORMAT.md and store/digest.py say what the numbers mean.
"""

# Triton reads these functions, mypy cannot.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, misc, name-defined, attr-defined, valid-type"

import triton
import triton.language as tl

CHUNK = 64  # blocks of a program
MAX_AXES = 4  # runs of a view that is gathered here; of more the framework makes a copy first

# Columns of the table: the first chunk of a tensor, where it lies, its bytes, then MAX_AXES times (how many, bytes to the next).
COLUMNS = 3 + 2 * MAX_AXES
# Columns of the results, as int64: A, B, lowest key, highest key, NaN, +Inf, -Inf, zeros; then the bits of float64: sum, squares, two order
# sums; of f64 and c128 also squares of the large and of the small, and the sum scaled down. Partial sums have the same columns.
RESULTS = 16

DIRECT, WORDS, ELEMENTS = range(3)  # how a tensor is read: in order; by words along its runs; by elements along its runs


@triton.jit
def _stir(z):
    z = z ^ (z >> 29)
    z = z * 0xBF58476D1CE4E5B9
    z = z ^ (z >> 32)
    z = z * 0x94D049BB133111EB
    return z ^ (z >> 32)


@triton.jit
def _halves(x):
    # Written so that the compiler sees factors of 32 bits: one multiplication instead of four.
    return x.to(tl.uint32).to(tl.uint64) * (x >> 32).to(tl.uint32).to(tl.uint64)


@triton.jit
def _place(row, unit, MAX_AXES: tl.constexpr, FAR: tl.constexpr):
    """Bytes from the first element to unit number `unit` of a view."""
    rest = unit if FAR else unit.to(tl.uint32)
    place = tl.zeros_like(unit)
    for axis in tl.static_range(MAX_AXES):
        count = tl.load(row + 3 + 2 * axis)
        step = tl.load(row + 4 + 2 * axis)
        count = count if FAR else count.to(tl.uint32)
        place += (rest % count).to(tl.int64) * step
        rest = rest // count
    return place


@triton.jit
def _words(row, place, nbytes, lane, first, MODE: tl.constexpr, SIZE: tl.constexpr, AXES: tl.constexpr, FAR: tl.constexpr):
    """The 128 words of a block as uint64; zeros beyond the end."""
    word = first + lane
    if MODE == 2:
        x = tl.zeros_like(word).to(tl.uint64)
        for part in tl.static_range(8 // SIZE):
            unit = word * (8 // SIZE) + part
            inside = unit * SIZE < nbytes
            address = place + _place(row, tl.where(inside, unit, 0), AXES, FAR)
            if SIZE == 1:
                u = tl.load(address.to(tl.pointer_type(tl.uint8)), mask=inside, other=0).to(tl.uint64)
            elif SIZE == 2:
                u = tl.load(address.to(tl.pointer_type(tl.uint16)), mask=inside, other=0).to(tl.uint64)
            elif SIZE == 4:
                u = tl.load(address.to(tl.pointer_type(tl.uint32)), mask=inside, other=0).to(tl.uint64)
            else:
                u = tl.load(address.to(tl.pointer_type(tl.uint64)), mask=inside, other=0)
            x = x | (u << (8 * SIZE * part))
    else:
        full = nbytes // 8
        inside = word < full
        if MODE == 1:  # whole words only: the host sees to it
            address = place + _place(row, tl.where(inside, word, 0), AXES, FAR)
            x = tl.load(address.to(tl.pointer_type(tl.uint64)), mask=inside, other=0)
        else:
            x = tl.load(place.to(tl.pointer_type(tl.uint64)) + word, mask=inside, other=0)
            if (first + 128) * 8 > nbytes:  # the last block may end within a word
                for byte in tl.static_range(7):
                    here = (word == full) & (full * 8 + byte < nbytes)
                    u = tl.load(place.to(tl.pointer_type(tl.uint8)) + full * 8 + byte + tl.zeros_like(lane), mask=here, other=0)
                    x = x | (u.to(tl.uint64) << (8 * byte))
    return x


@triton.jit
def _narrow(x, e, codes, KIND: tl.constexpr, BITS: tl.constexpr):
    """Element `e` of each word, of a type whose order fits into int32: key, magnitude, value as float64."""
    u = (x >> (BITS * e)).to(tl.uint32)
    if KIND == "f16":
        key = u.to(tl.int16).to(tl.int32)
        size = key & 0x7FFF
        v = u.to(tl.uint16).to(tl.float16, bitcast=True).to(tl.float32).to(tl.float64)
        key = key ^ ((key >> 31) & 0x7FFF)
    elif KIND == "i16":
        key = u.to(tl.int16).to(tl.int32)
        size = key
        v = key.to(tl.float64)
    elif KIND == "u16":
        key = (u & 0xFFFF).to(tl.int32)
        size = key
        v = key.to(tl.float64)
    elif KIND == "i32":
        key = u.to(tl.int32, bitcast=True)
        size = key
        v = key.to(tl.float64)
    else:
        if KIND == "bf16":
            f = (u << 16).to(tl.float32, bitcast=True)
        elif KIND == "f32":
            f = u.to(tl.float32, bitcast=True)
        else:  # one byte, or half of one: looked up
            f = tl.load(codes + (u & (255 if BITS == 8 else 15)).to(tl.int32))
        key = f.to(tl.int32, bitcast=True)
        size = key & 0x7FFFFFFF
        v = f.to(tl.float64)
        key = key ^ ((key >> 31) & 0x7FFFFFFF)
    return key, size, v


@triton.jit
def _modulus(re, im, WIDE: tl.constexpr):
    if WIDE:  # powers of two keep the squares in range and change no bit of the result where they were in range anyway
        most = tl.maximum(tl.abs(re), tl.abs(im))
        scale = tl.where(most > 3.273390607896142e150, 2.409919865102884e-181, tl.where(most < 3.054936363499605e-151, 4.149515568880993e180, 1.0))
        back = tl.where(most > 3.273390607896142e150, 4.149515568880993e180, tl.where(most < 3.054936363499605e-151, 2.409919865102884e-181, 1.0))
        re = re * scale
        im = im * scale
        return tl.sqrt(re * re + im * im) * back
    else:
        return tl.sqrt(re * re + im * im)


@triton.jit
def _group_weights(group):
    z = _stir((group + 1).to(tl.uint64) * 0x9E3779B97F4A7C15)
    one = z.to(tl.uint32).to(tl.int32, bitcast=True).to(tl.float64) * 4.656612873077393e-10
    two = (z >> 32).to(tl.uint32).to(tl.int32, bitcast=True).to(tl.float64) * 4.656612873077393e-10
    return one, two


@triton.jit
def digest(
    table, tensors, keys, weights, codes, partials, first_chunk,
    KIND: tl.constexpr, MODE: tl.constexpr, SIZE: tl.constexpr, FAR: tl.constexpr, PRINT: tl.constexpr,
    ROOM: tl.constexpr, COLUMNS: tl.constexpr, AXES: tl.constexpr, CHUNK: tl.constexpr,
):
    """Partial sums of one chunk. `KIND` is the element type, `ROOM` the number of tensors, rounded up to a power of two."""
    chunk = first_chunk + tl.program_id(0)
    places = tl.arange(0, ROOM)
    starts = tl.load(table + places * COLUMNS, mask=places < tensors, other=0x7FFFFFFFFFFFFFFF)
    number = tl.sum((starts <= chunk).to(tl.int32)) - 1
    row = table + number * COLUMNS
    place = tl.load(row + 1)
    nbytes = tl.load(row + 2)
    block = (chunk - tl.load(row)) * CHUNK
    blocks = tl.minimum((nbytes + 1023) // 1024 - block, CHUNK).to(tl.int32)

    lane = tl.arange(0, 128)
    added = tl.load(keys + lane).to(tl.uint64, bitcast=True)
    crossed = tl.load(keys + 128 + lane).to(tl.uint64, bitcast=True)
    a = tl.zeros((1,), tl.uint64)
    b = tl.zeros((1,), tl.uint64)

    NARROW: tl.constexpr = KIND == "f32" or KIND == "bf16" or KIND == "f16" or KIND == "code" or KIND == "nibble" or KIND == "i16" or KIND == "u16" or KIND == "i32"
    INTEGER: tl.constexpr = KIND == "i16" or KIND == "u16" or KIND == "i32" or KIND == "u32" or KIND == "i64" or KIND == "u64"
    FEW: tl.constexpr = KIND == "f64" or KIND == "c128"
    BITS: tl.constexpr = 4 if KIND == "nibble" else 8 if KIND == "code" else 16 if (KIND == "f16" or KIND == "bf16" or KIND == "i16" or KIND == "u16") else 32 if (KIND == "f32" or KIND == "i32" or KIND == "u32" or KIND == "c32") else 64
    PER: tl.constexpr = 64 // BITS  # elements of a word
    INFINITY: tl.constexpr = 0x7C00 if KIND == "f16" else 0x7F800000

    if NARROW:
        low = tl.full((128,), 0x7FFFFFFF, tl.int32)
        high = tl.full((128,), -0x80000000, tl.int32)
    else:
        low = tl.full((128,), 0x7FFFFFFFFFFFFFFF, tl.int64)
        high = tl.full((128,), -0x8000000000000000, tl.int64)
    zero = tl.zeros((128,), tl.int32)
    odd = tl.zeros((128,), tl.int32)  # NaN, +Inf and -Inf, ten bits each: at most 64 blocks of 16 elements a lane, one class an element
    nan = tl.zeros((128,), tl.int32)
    total = tl.zeros((128,), tl.float64)
    squares = tl.zeros((128,), tl.float64)
    one = tl.zeros((128,), tl.float64)
    two = tl.zeros((128,), tl.float64)
    large = tl.zeros((128,), tl.float64)
    small = tl.zeros((128,), tl.float64)
    scaled = tl.zeros((128,), tl.float64)

    for i in range(blocks):
        at = block + i
        x = _words(row, place, nbytes, lane, at * 128, MODE, SIZE, AXES, FAR)
        if PRINT:
            there = at * 128 + lane < (nbytes + 7) // 8
            s = tl.sum(x)
            p = tl.sum(tl.where(there, _halves(x + added), 0))
            q = tl.sum(tl.where(there, _halves(x ^ crossed), 0))
            key = at.to(tl.uint64) * 2 * 0x9E3779B97F4A7C15
            a += _stir(p + s * 0xBF58476D1CE4E5B9 + (key + 0x9E3779B97F4A7C15))
            b += _stir(q + s * 0x94D049BB133111EB + (key + 0x9E3779B97F4A7C15 + 0x9E3779B97F4A7C15))
        weighted = tl.zeros((128,), tl.float64)
        if NARROW:
            left = tl.minimum(nbytes * 8 // BITS - at * 128 * PER, 128 * PER).to(tl.int32)
            for e in tl.static_range(PER):
                here = lane * PER + e < left
                key, size, v = _narrow(x, e, codes, KIND, BITS)
                if INTEGER:
                    low = tl.minimum(low, tl.where(here, key, 0x7FFFFFFF))
                    high = tl.maximum(high, tl.where(here, key, -0x80000000))
                    v = tl.where(here, v, 0.0)
                else:
                    finite = here & (size < INFINITY)
                    low = tl.minimum(low, tl.where(finite, key, 0x7FFFFFFF))
                    high = tl.maximum(high, tl.where(finite, key, -0x80000000))
                    v = tl.where(finite, v, 0.0)
                    nan += tl.where(here & (size > INFINITY), 1, 0)
                    odd += tl.where(here & (key == INFINITY), 1, 0) + tl.where(here & (key == -INFINITY - 1), 65536, 0)
                zero += tl.where(here & (size == 0), 1, 0)
                total += v
                squares += v * v
                weighted += v * tl.load(weights + (lane * PER + e) % 128)
            first, second = _group_weights(at * PER + lane * PER // 128)
        else:
            if KIND == "c128":
                count = nbytes // 16
                element = at * 64 + lane
                here = (lane < 64) & (element < count)
                pair = place.to(tl.pointer_type(tl.float64)) + 2 * element
                re = tl.load(pair, mask=here, other=0.0)
                im = tl.load(pair + 1, mask=here, other=0.0)
                v = _modulus(re, im, True)
                none = (re != re) | (im != im)
                far = (tl.abs(re) == float("inf")) | (tl.abs(im) == float("inf")) | (v == float("inf"))
                key = v.to(tl.int64, bitcast=True)
                order = at * 64 + lane
                weighted, total, squares, low, high, zero, nan, odd, large, small, scaled = _wide(
                    v, key, none, far & (none == 0), here & False, here, v == 0.0, tl.load(weights + order % 128),
                    weighted, total, squares, low, high, zero, nan, odd, large, small, scaled, True,
                )
                first, second = _group_weights(order // 128)
            else:
                left = tl.minimum(nbytes * 8 // BITS - at * 128 * PER, 128 * PER).to(tl.int32)
                for e in tl.static_range(PER):
                    here = lane * PER + e < left
                    never = here & False
                    if KIND == "f64":
                        key = x.to(tl.int64, bitcast=True)
                        v = x.to(tl.float64, bitcast=True)
                        size = key & 0x7FFFFFFFFFFFFFFF
                        none = size > 0x7FF0000000000000
                        above = key == 0x7FF0000000000000
                        below = (key < 0) & (size == 0x7FF0000000000000)
                        empty = size == 0
                        key = key ^ ((key >> 63) & 0x7FFFFFFFFFFFFFFF)
                    elif KIND == "u32":
                        key = (x >> (32 * e)).to(tl.uint32).to(tl.int64)
                        v = key.to(tl.float64)
                        none = never
                        above = never
                        below = never
                        empty = key == 0
                    elif KIND == "i64":
                        key = x.to(tl.int64, bitcast=True)
                        v = key.to(tl.float64)
                        none = never
                        above = never
                        below = never
                        empty = key == 0
                    elif KIND == "u64":
                        v = x.to(tl.float64)
                        key = (x ^ 0x8000000000000000).to(tl.int64, bitcast=True)
                        none = never
                        above = never
                        below = never
                        empty = x == 0
                    else:
                        if KIND == "c32":
                            u = (x >> (32 * e)).to(tl.uint32)
                            re = u.to(tl.uint16).to(tl.float16, bitcast=True).to(tl.float32)
                            im = (u >> 16).to(tl.uint16).to(tl.float16, bitcast=True).to(tl.float32)
                        else:
                            re = x.to(tl.uint32).to(tl.float32, bitcast=True)
                            im = (x >> 32).to(tl.uint32).to(tl.float32, bitcast=True)
                        none = (re != re) | (im != im)
                        above = ((tl.abs(re) == float("inf")) | (tl.abs(im) == float("inf"))) & (none == 0)
                        below = never
                        v = _modulus(re.to(tl.float64), im.to(tl.float64), False)
                        key = v.to(tl.int64, bitcast=True)
                        empty = v == 0.0
                    weighted, total, squares, low, high, zero, nan, odd, large, small, scaled = _wide(
                        v, key, none, above, below, here, empty, tl.load(weights + (lane * PER + e) % 128),
                        weighted, total, squares, low, high, zero, nan, odd, large, small, scaled, FEW,
                    )
                first, second = _group_weights(at * PER + lane * PER // 128)
        one += first * weighted
        two += second * weighted

    result = partials + chunk.to(tl.int64) * 16
    tl.store(result, tl.sum(a).to(tl.int64, bitcast=True))
    tl.store(result + 1, tl.sum(b).to(tl.int64, bitcast=True))
    tl.store(result + 2, tl.min(low).to(tl.int64))
    tl.store(result + 3, tl.max(high).to(tl.int64))
    tl.store(result + 4, tl.sum(nan).to(tl.int64))
    tl.store(result + 5, tl.sum(odd & 65535).to(tl.int64))
    tl.store(result + 6, tl.sum(odd >> 16).to(tl.int64))
    tl.store(result + 7, tl.sum(zero).to(tl.int64))
    tl.store(result + 8, tl.sum(total).to(tl.int64, bitcast=True))
    tl.store(result + 9, tl.sum(squares).to(tl.int64, bitcast=True))
    tl.store(result + 10, tl.sum(one).to(tl.int64, bitcast=True))
    tl.store(result + 11, tl.sum(two).to(tl.int64, bitcast=True))
    tl.store(result + 12, tl.sum(large).to(tl.int64, bitcast=True))
    tl.store(result + 13, tl.sum(small).to(tl.int64, bitcast=True))
    tl.store(result + 14, tl.sum(scaled).to(tl.int64, bitcast=True))
    tl.store(result + 15, 0)


@triton.jit
def _wide(
    v, key, none, above, below, here, empty, weight,
    weighted, total, squares, low, high, zero, nan, odd, large, small, scaled,
    FEW: tl.constexpr,
):
    """One element of each lane, of a type whose order needs int64, into the sums. `FEW`: squares may leave float64's range."""
    finite = here & (none == 0) & (above == 0) & (below == 0)
    low = tl.minimum(low, tl.where(finite, key, 0x7FFFFFFFFFFFFFFF))
    high = tl.maximum(high, tl.where(finite, key, -0x8000000000000000))
    nan += tl.where(here & none, 1, 0)
    odd += tl.where(here & above, 1, 0) + tl.where(here & below, 65536, 0)
    zero += tl.where(here & empty, 1, 0)
    v = tl.where(finite, v, 0.0)
    if FEW:
        magnitude = tl.abs(v)
        is_large = magnitude > 2.9073548971824276e135  # 2^450: beyond it, and below 2^-450, squares are kept apart, scaled
        is_small = magnitude < 3.439552647215424e-136
        r = tl.where(is_large, v * 2.409919865102884e-181, 0.0)
        large += r * r
        r = tl.where(is_small, v * 4.149515568880993e180, 0.0)
        small += r * r
        r = tl.where(is_large | is_small, 0.0, v)
        squares += r * r
        scaled += v * 2.409919865102884e-181
    else:
        squares += v * v
    total += v
    weighted += v * weight
    return weighted, total, squares, low, high, zero, nan, odd, large, small, scaled


@triton.jit
def gather_up(table, tensors, order, chunks, partials, results, COLUMNS: tl.constexpr):
    """The sums of one tensor's chunks, in a fixed order, into the row of results that `order` says."""
    number = tl.program_id(0)
    start = tl.load(table + number * COLUMNS)
    end = tl.load(table + (number + 1) * COLUMNS, mask=number + 1 < tensors, other=0)
    end = tl.where(number + 1 < tensors, end, chunks)
    lane = tl.arange(0, 128)
    column = tl.arange(0, 8)
    whole = tl.zeros((128, 8), tl.int64)
    low = tl.full((128,), 0x7FFFFFFFFFFFFFFF, tl.int64)
    high = tl.full((128,), -0x8000000000000000, tl.int64)
    real = tl.zeros((128, 8), tl.float64)
    for at in range(start, end, 128):
        chunk = at + lane
        here = chunk < end
        cells = partials + chunk[:, None] * 16 + column[None, :]
        whole += tl.load(cells, mask=here[:, None], other=0)
        real += tl.load(cells + 8, mask=here[:, None], other=0).to(tl.float64, bitcast=True)
        low = tl.minimum(low, tl.load(partials + chunk * 16 + 2, mask=here, other=0x7FFFFFFFFFFFFFFF))
        high = tl.maximum(high, tl.load(partials + chunk * 16 + 3, mask=here, other=-0x8000000000000000))
    sums = tl.sum(whole, 0)
    sums = tl.where(column == 2, tl.min(low), tl.where(column == 3, tl.max(high), sums))
    result = results + tl.load(order + number) * 16 + column
    tl.store(result, sums)
    tl.store(result + 8, tl.sum(real, 0).to(tl.int64, bitcast=True))


# element type -> how the kernel cuts it out of a word
KINDS = {
    "f64": "f64", "f32": "f32", "f16": "f16", "bf16": "bf16", "c32": "c32", "c64": "c64", "c128": "c128",
    "i16": "i16", "u16": "u16", "i32": "i32", "u32": "u32", "i64": "i64", "u64": "u64", "f4e2m1fn_x2": "nibble",
}  # fmt: skip  # all others are one byte, which is looked up
