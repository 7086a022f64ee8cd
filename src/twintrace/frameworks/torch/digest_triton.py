"""Statistics, fingerprint and order sums of many tensors on a GPU, one launch for each element type and batch.

    table (one row per tensor)  ──▶ digest ──▶ partial sums, a row per chunk ──▶ gather_up ──▶ a row per tensor

A program takes a chunk of 64 blocks: one warp, one block of the fingerprint (128 words of 8 bytes, one row) per iteration. Words
are loaded once and the elements cut out of them by shifts; everything is kept lane by lane in registers and added up at the end
of the chunk. Tried and left (GB/s of bf16 on an H200): 16 rows × 128 words in 4 warps, reduced every iteration, 230 against
2,100. Sums are float64 in a fixed order: the same result every time. Minimum and maximum are those of the bits, read as integers
that order like the values, as on the host.

Importing this module imports Triton. FORMAT.md and store/digest.py say what the numbers mean.
"""

# Triton reads these functions, mypy cannot.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, import-not-found"

import triton
import triton.language as tl

CHUNK = 64  # blocks of a program
UNROLL = 2  # blocks that are loaded before they are worked on
MAX_AXES = 4  # runs of a view that is gathered here; of more the framework makes a copy first

# Columns of the table: the first chunk of a tensor, where it lies, its bytes, then MAX_AXES times (how many, bytes to the next).
COLUMNS = 3 + 2 * MAX_AXES
# Columns of the results, as int64: A, B, lowest key, highest key, NaN, +Inf, -Inf, zeros; then the bits of float64: sum, squares,
# two order sums; of f64 and c128 also squares of the large and of the small, and the sum scaled down. Partial sums have the same
# columns.
RESULTS = 16

# Ways to read a tensor: in order; by words along its runs; by elements along its runs.
DIRECT, WORDS, ELEMENTS = range(3)


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
def _words(
    row, place, nbytes, lane, first,
    MODE: tl.constexpr, SIZE: tl.constexpr, AXES: tl.constexpr, FAR: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """The 128 words of a block as uint64; zeros beyond the end. Not `MASKED`: the block is whole."""
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
            if MASKED:
                x = tl.load(place.to(tl.pointer_type(tl.uint64)) + word, mask=inside, other=0)
            else:
                x = tl.load(place.to(tl.pointer_type(tl.uint64)) + word)
            if MASKED and (first + 128) * 8 > nbytes:  # the last block may end within a word
                for byte in tl.static_range(7):
                    here = (word == full) & (full * 8 + byte < nbytes)
                    u = tl.load(
                        place.to(tl.pointer_type(tl.uint8)) + full * 8 + byte + tl.zeros_like(lane), mask=here, other=0
                    )
                    x = x | (u.to(tl.uint64) << (8 * byte))
    return x


@triton.jit
def _float(x, e, codes, KIND: tl.constexpr, BITS: tl.constexpr):
    """Element `e` of each word as f32, which all floats of up to four bytes are exactly."""
    u = (x >> (BITS * e)).to(tl.uint32)
    if KIND == "f16":
        return u.to(tl.uint16).to(tl.float16, bitcast=True).to(tl.float32)
    elif KIND == "bf16":
        return (u << 16).to(tl.float32, bitcast=True)
    elif KIND == "f32":
        return u.to(tl.float32, bitcast=True)
    else:  # one byte, or half of one: looked up
        return tl.load(codes + (u & (255 if BITS == 8 else 15)).to(tl.int32))


@triton.jit
def _key(f, KIND: tl.constexpr):
    """An integer that orders like the value; of f16 that of its own 16 bits."""
    if KIND == "f16":
        key = f.to(tl.float16).to(tl.int16, bitcast=True).to(tl.int32)
        return key ^ ((key >> 31) & 0x7FFF)
    else:
        key = f.to(tl.int32, bitcast=True)
        return key ^ ((key >> 31) & 0x7FFFFFFF)


@triton.jit
def _narrow(x, e, codes, KIND: tl.constexpr, BITS: tl.constexpr):
    """Element `e` of each word, of a type whose order fits into int32: key, magnitude, value as float64."""
    u = (x >> (BITS * e)).to(tl.uint32)
    if KIND == "i16":
        key = u.to(tl.int16).to(tl.int32)
        return key, key, key.to(tl.float64)
    elif KIND == "u16":
        key = (u & 0xFFFF).to(tl.int32)
        return key, key, key.to(tl.float64)
    elif KIND == "i32":
        key = u.to(tl.int32, bitcast=True)
        return key, key, key.to(tl.float64)
    else:
        f = _float(x, e, codes, KIND, BITS)
        bits = u.to(tl.int16).to(tl.int32) if KIND == "f16" else f.to(tl.int32, bitcast=True)
        size = bits & (0x7FFF if KIND == "f16" else 0x7FFFFFFF)
        key = bits ^ ((bits >> 31) & (0x7FFF if KIND == "f16" else 0x7FFFFFFF))
        return key, size, f.to(tl.float64)


@triton.jit
def _wide(x, e, KIND: tl.constexpr):
    """Element `e` of each word, of a type whose order needs int64: key, value, is it NaN, +Inf, -Inf, zero."""
    never = x < 0  # of unsigned
    if KIND == "f64":
        bits = x.to(tl.int64, bitcast=True)
        size = bits & 0x7FFFFFFFFFFFFFFF
        far = size == 0x7FF0000000000000
        key = bits ^ ((bits >> 63) & 0x7FFFFFFFFFFFFFFF)
        v = x.to(tl.float64, bitcast=True)
        return key, v, size > 0x7FF0000000000000, far & (bits >= 0), far & (bits < 0), size == 0
    elif KIND == "u32":
        key = (x >> (32 * e)).to(tl.uint32).to(tl.int64)
        return key, key.to(tl.float64), never, never, never, key == 0
    elif KIND == "i64":
        key = x.to(tl.int64, bitcast=True)
        return key, key.to(tl.float64), never, never, never, key == 0
    elif KIND == "u64":
        key = (x ^ 0x8000000000000000).to(tl.int64, bitcast=True)
        return key, x.to(tl.float64), never, never, never, x == 0
    elif KIND == "c32":
        u = (x >> (32 * e)).to(tl.uint32)
        re = u.to(tl.uint16).to(tl.float16, bitcast=True).to(tl.float32)
        im = (u >> 16).to(tl.uint16).to(tl.float16, bitcast=True).to(tl.float32)
        return _modulus(re.to(tl.float64), im.to(tl.float64), False)
    else:
        re = x.to(tl.uint32).to(tl.float32, bitcast=True)
        im = (x >> 32).to(tl.uint32).to(tl.float32, bitcast=True)
        return _modulus(re.to(tl.float64), im.to(tl.float64), False)


@triton.jit
def _modulus(re, im, WIDE: tl.constexpr):
    """Of a complex number: key, modulus, is it NaN, Inf, (never) -Inf, zero. A NaN in either part makes it NaN."""
    none = (re != re) | (im != im)
    if WIDE:  # powers of two keep the squares in range and change no bit of the result where they were in range anyway
        most = tl.maximum(tl.abs(re), tl.abs(im))
        is_large = most > 3.273390607896142e150  # 2^500
        is_small = most < 3.054936363499605e-151
        scale = tl.where(is_large, 2.409919865102884e-181, tl.where(is_small, 4.149515568880993e180, 1.0))
        back = tl.where(is_large, 4.149515568880993e180, tl.where(is_small, 2.409919865102884e-181, 1.0))
        one = re * scale
        two = im * scale
        v = tl.sqrt(one * one + two * two) * back
    else:
        v = tl.sqrt(re * re + im * im)
    far = (tl.abs(re) == float("inf")) | (tl.abs(im) == float("inf")) | (v == float("inf"))
    return v.to(tl.int64, bitcast=True), v, none, far & (none == 0), none & (none == 0), v == 0.0


@triton.jit
def _group_weights(group):
    z = _stir((group + 1).to(tl.uint64) * 0x9E3779B97F4A7C15)
    one = z.to(tl.uint32).to(tl.int32, bitcast=True).to(tl.float64) * 4.656612873077393e-10
    two = (z >> 32).to(tl.uint32).to(tl.int32, bitcast=True).to(tl.float64) * 4.656612873077393e-10
    return one, two


@triton.jit
def _add_print(a, b, x, added, crossed, there, at, MASKED: tl.constexpr):
    """A block into the two sums of the fingerprint."""
    p = _halves(x + added)
    q = _halves(x ^ crossed)
    if MASKED:
        p = tl.where(there, p, 0)
        q = tl.where(there, q, 0)
    p = tl.sum(p)
    q = tl.sum(q)
    s = tl.sum(x)
    key = at.to(tl.uint64) * 2 * 0x9E3779B97F4A7C15
    a += _stir(p + s * 0xBF58476D1CE4E5B9 + (key + 0x9E3779B97F4A7C15))
    b += _stir(q + s * 0x94D049BB133111EB + (key + 0x9E3779B97F4A7C15 + 0x9E3779B97F4A7C15))
    return a, b


# Numbers are not specialised: each new one would be compiled by itself.
@triton.jit(do_not_specialize=["tensors", "first_chunk"])
def digest(
    table, tensors, keys, weights, codes, partials, first_chunk,
    KIND: tl.constexpr, MODE: tl.constexpr, SIZE: tl.constexpr, FAR: tl.constexpr, PRINT: tl.constexpr,
    ROOM: tl.constexpr, COLUMNS: tl.constexpr, AXES: tl.constexpr, CHUNK: tl.constexpr, UNROLL: tl.constexpr,
):  # fmt: skip
    """Partial sums of one chunk. `KIND` is the element type, `ROOM` at least the number of tensors.

    Floats of up to four bytes first go by a short way that takes them to be finite; where their sum is not, the chunk is
    walked again.
    What is left at the end of a tensor, and all other types, go the long way, which looks at each element.
    """
    chunk = first_chunk + tl.program_id(0)
    places = tl.arange(0, ROOM)
    starts = tl.load(table + places * COLUMNS, mask=places < tensors, other=0x7FFFFFFFFFFFFFFF)
    number = tl.sum((starts <= chunk).to(tl.int32)) - 1
    row = table + number * COLUMNS
    place = tl.load(row + 1)
    nbytes = tl.load(row + 2)
    block = (chunk - tl.load(row)) * CHUNK
    blocks = tl.minimum((nbytes + 1023) // 1024 - block, CHUNK).to(tl.int32)

    FLOAT: tl.constexpr = KIND == "f32" or KIND == "bf16" or KIND == "f16" or KIND == "code" or KIND == "nibble"
    INTEGER: tl.constexpr = KIND == "i16" or KIND == "u16" or KIND == "i32"
    NARROW: tl.constexpr = FLOAT or INTEGER
    SCALED: tl.constexpr = KIND == "f64" or KIND == "c128"
    BITS: tl.constexpr = (
        4 if KIND == "nibble"
        else 8 if KIND == "code"
        else 16 if (KIND == "f16" or KIND == "bf16" or KIND == "i16" or KIND == "u16")
        else 32 if (KIND == "f32" or KIND == "i32" or KIND == "u32" or KIND == "c32")
        else 64
    )  # fmt: skip
    PER: tl.constexpr = 64 // BITS  # elements of a word
    ROWS: tl.constexpr = 32 if KIND == "c128" else 16 // PER  # blocks of a group of 2048 elements
    INFINITY: tl.constexpr = 0x7C00 if KIND == "f16" else 0x7F800000
    UNROLLED: tl.constexpr = ROWS if ROWS < UNROLL else UNROLL

    lane = tl.arange(0, 128)
    added = tl.load(keys + lane).to(tl.uint64, bitcast=True)
    crossed = tl.load(keys + 128 + lane).to(tl.uint64, bitcast=True)
    a = tl.zeros((1,), tl.uint64)
    b = tl.zeros((1,), tl.uint64)
    zero = tl.zeros((128,), tl.int32)
    total = tl.zeros((128,), tl.float64)
    squares = tl.zeros((128,), tl.float64)
    one = tl.zeros((128,), tl.float64)
    two = tl.zeros((128,), tl.float64)
    if NARROW:
        low = tl.full((128,), 0x7FFFFFFF, tl.int32)
        high = tl.full((128,), -0x80000000, tl.int32)
    else:
        low = tl.full((128,), 0x7FFFFFFFFFFFFFFF, tl.int64)
        high = tl.full((128,), -0x8000000000000000, tl.int64)

    start = tl.zeros((), tl.int32)  # where the long way begins
    whole = tl.zeros((), tl.int32)  # blocks that are in the fingerprint by then
    if FLOAT:
        whole = (tl.minimum(nbytes // 1024 - block, CHUNK) // ROWS * ROWS).to(tl.int32)
        least = tl.full((128,), float("inf"), tl.float32)
        most = tl.full((128,), float("-inf"), tl.float32)
        for group in range(whole // ROWS):
            weighted = tl.zeros((128,), tl.float64)
            for part in range(ROWS // UNROLLED):
                for k in tl.static_range(UNROLLED):
                    i = part * UNROLLED + k
                    at = block + group * ROWS + i
                    x = _words(row, place, nbytes, lane, at * 128, MODE, SIZE, AXES, FAR, False)
                    if PRINT:
                        a, b = _add_print(a, b, x, added, crossed, lane >= 0, at, False)
                    for e in tl.static_range(PER):
                        f = _float(x, e, codes, KIND, BITS)
                        least = tl.minimum(least, f)
                        most = tl.maximum(most, f)
                        zero += (f == 0.0).to(tl.int32)
                        v = f.to(tl.float64)
                        total += v
                        squares += v * v
                        weighted += v * tl.load(weights + (i * PER + e) * 128 + lane)
            first, second = _group_weights(block // ROWS + group)
            one += first * weighted
            two += second * weighted
        start = whole
        sum_ = tl.sum(total)
        if (whole > 0) & ((sum_ - sum_) != 0.0):  # NaN or an infinity: the chunk is walked again
            start = tl.zeros((), tl.int32)
            zero = tl.zeros((128,), tl.int32)
            total = tl.zeros((128,), tl.float64)
            squares = tl.zeros((128,), tl.float64)
            one = tl.zeros((128,), tl.float64)
            two = tl.zeros((128,), tl.float64)
        else:
            if whole > 0:
                low = _key(least, KIND)
                high = _key(most, KIND)

    posinf = tl.zeros((128,), tl.int32)
    neginf = tl.zeros((128,), tl.int32)
    nan = tl.zeros((128,), tl.int32)
    large = tl.zeros((128,), tl.float64)
    small = tl.zeros((128,), tl.float64)
    scaled = tl.zeros((128,), tl.float64)
    for i in range(start, blocks):
        at = block + i
        x = _words(row, place, nbytes, lane, at * 128, MODE, SIZE, AXES, FAR, True)
        if PRINT:  # noqa: SIM102 - the first is known when it is compiled
            if i >= whole:
                a, b = _add_print(a, b, x, added, crossed, at * 128 + lane < (nbytes + 7) // 8, at, True)
        weighted = tl.zeros((128,), tl.float64)
        left = tl.minimum(nbytes * 8 // BITS - at * 128 * PER, 128 * PER).to(tl.int32)
        within = (at % ROWS).to(tl.int32)  # the group
        for e in tl.static_range(PER):
            here = lane * PER + e < left
            if NARROW:
                key, size, v = _narrow(x, e, codes, KIND, BITS)
                if INTEGER:
                    finite = here
                else:
                    finite = here & (size < INFINITY)
                    nan += (here & (size > INFINITY)).to(tl.int32)
                    posinf += (here & (key == INFINITY)).to(tl.int32)
                    neginf += (here & (key == -INFINITY - 1)).to(tl.int32)
                low = tl.minimum(low, tl.where(finite, key, 0x7FFFFFFF))
                high = tl.maximum(high, tl.where(finite, key, -0x80000000))
                zero += (here & (size == 0)).to(tl.int32)
                weight = tl.load(weights + (within * PER + e) * 128 + lane)
            else:
                if KIND == "c128":
                    here = (lane < 64) & (at * 64 + lane < nbytes // 16)
                    pair = place.to(tl.pointer_type(tl.float64)) + 2 * (at * 64 + lane)
                    key, v, none, above, below, empty = _modulus(
                        tl.load(pair, mask=here, other=0.0), tl.load(pair + 1, mask=here, other=0.0), True
                    )
                    weight = tl.load(weights + within * 64 + lane, mask=lane < 64, other=0.0)
                else:
                    key, v, none, above, below, empty = _wide(x, e, KIND)
                    weight = tl.load(weights + (within * PER + e) * 128 + lane)
                finite = here & (none == 0) & (above == 0) & (below == 0)
                nan += (here & none).to(tl.int32)
                posinf += (here & above).to(tl.int32)
                neginf += (here & below).to(tl.int32)
                low = tl.minimum(low, tl.where(finite, key, 0x7FFFFFFFFFFFFFFF))
                high = tl.maximum(high, tl.where(finite, key, -0x8000000000000000))
                zero += (here & empty).to(tl.int32)
            v = tl.where(finite, v, 0.0)
            total += v
            weighted += v * weight
            if SCALED:  # squares beyond 2^450 and below 2^-450 are kept apart, times a power of two
                size = tl.abs(v)
                is_large = size > 2.9073548971824276e135
                is_small = size < 3.439552647215424e-136
                r = tl.where(is_large, v * 2.409919865102884e-181, 0.0)
                large += r * r
                r = tl.where(is_small, v * 4.149515568880993e180, 0.0)
                small += r * r
                r = tl.where(is_large | is_small, 0.0, v)
                squares += r * r
                scaled += v * 2.409919865102884e-181
            else:
                squares += v * v
        first, second = _group_weights(at // ROWS)
        one += first * weighted
        two += second * weighted

    result = partials + chunk.to(tl.int64) * 16
    tl.store(result, tl.sum(a).to(tl.int64, bitcast=True))
    tl.store(result + 1, tl.sum(b).to(tl.int64, bitcast=True))
    tl.store(result + 2, tl.min(low).to(tl.int64))
    tl.store(result + 3, tl.max(high).to(tl.int64))
    tl.store(result + 4, tl.sum(nan).to(tl.int64))
    tl.store(result + 5, tl.sum(posinf).to(tl.int64))
    tl.store(result + 6, tl.sum(neginf).to(tl.int64))
    tl.store(result + 7, tl.sum(zero).to(tl.int64))
    tl.store(result + 8, tl.sum(total).to(tl.int64, bitcast=True))
    tl.store(result + 9, tl.sum(squares).to(tl.int64, bitcast=True))
    tl.store(result + 10, tl.sum(one).to(tl.int64, bitcast=True))
    tl.store(result + 11, tl.sum(two).to(tl.int64, bitcast=True))
    tl.store(result + 12, tl.sum(large).to(tl.int64, bitcast=True))
    tl.store(result + 13, tl.sum(small).to(tl.int64, bitcast=True))
    tl.store(result + 14, tl.sum(scaled).to(tl.int64, bitcast=True))
    tl.store(result + 15, 0)


@triton.jit(do_not_specialize=["tensors", "order", "chunks"])
def gather_up(table, tensors, order, chunks, partials, results, COLUMNS: tl.constexpr):
    """The sums of one tensor's chunks, in a fixed order, into the row of results that the table says, from `order` on."""
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
    result = results + tl.load(table + order + number) * 16 + column
    tl.store(result, sums)
    tl.store(result + 8, tl.sum(real, 0).to(tl.int64, bitcast=True))


# element type -> how the kernel cuts it out of a word
KINDS = {
    "f64": "f64", "f32": "f32", "f16": "f16", "bf16": "bf16", "c32": "c32", "c64": "c64", "c128": "c128",
    "i16": "i16", "u16": "u16", "i32": "i32", "u32": "u32", "i64": "i64", "u64": "u64", "f4e2m1fn_x2": "nibble",
}  # fmt: skip  # all others are one byte, which is looked up
