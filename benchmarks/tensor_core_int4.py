"""The int4 matrix-vector product of lab 10 by tensor cores: a form to be measured, for benchmarks/quantization.py.

A tensor core multiplies a 16 × 16 tile by eight vectors. Here the eight are eight parts of one vector, and so of each product
seven eighths are thrown away: they cost nothing that is scarce. The weights are packed in the order in which registers hold
a tile. So 16 bytes are loaded, masked, and multiplied, and nothing passes through shared memory: 1.7 instructions a weight,
counted in the machine code for compute capability 9.0, against 3.0 of the lab's kernel.
"""

import torch
import triton
import triton.language as tl

PARTS = 8  # of the columns, and of the vector; a warp takes each


def pack(codes):
    """int32 (rows, columns / 8): in each 128 columns, word 4 t + 2 p + q holds columns 64 p + 16 i + 4 t + 2 q + h.

    i of 0 to 3 is a nibble of the word's half h, so nibble i of all words is a 16 × 16 tile in the order in which the
    registers of a warp hold it: thread t of four has columns 4 t to 4 t + 3, two in each register.
    """
    nibbles = (codes.to(torch.int64) + 8).view(len(codes), -1, 2, 4, 4, 2, 2)  # chunk, p, i, t, q, h
    i, h = (torch.arange(count, device=codes.device) for count in (4, 2))
    words = (nibbles << 4 * i[:, None, None, None] + 16 * h).sum((3, 6))
    return words.transpose(2, 3).to(torch.int32).reshape(len(codes), -1)


@triton.jit
def as_bf16(words):
    """(rows, 16) bf16 of (rows, 8) words: the low half of each, then its high half."""
    halves = tl.join(words.to(tl.int16), (words >> 16).to(tl.int16))
    return tl.reshape(halves, (words.shape[0], 16)).to(tl.bfloat16, bitcast=True)


@triton.jit
def products(packed, scales, x, GROUP: tl.constexpr, PARTS: tl.constexpr):
    """(16 PARTS, 8) float32: 16 rows of each part of the weights times eight parts of x, 128 columns of each, in 2**-33.

    Where they stand, nibble 0 of a half is n · 2**-133 in bf16 and nibble 1 n · 2**-129: up to 255 · 2**-133 bf16 counts
    in equal steps.
    """
    M: tl.constexpr = 16 * PARTS
    words = tl.load(packed, eviction_policy="evict_first")
    words = tl.permute(tl.reshape(words, (2, PARTS, 8, 16)), (1, 0, 2, 3))  # as the registers hold it: nothing moves
    first, last = tl.split(tl.permute(tl.reshape(words, (M, 4, 2, 2)), (0, 1, 3, 2)))
    eight = as_bf16(tl.reshape(first, (M, 8)) & 0 | -0x7FF77FF8)  # 0x8008 twice, -8; made of words, to lie as they do
    large = tl.full((128,), 2.0**100, tl.float32).to(tl.bfloat16)  # without it the sums would be subnormal
    none = tl.zeros((M, 8), tl.float32)
    low, high, zero, total = none, none, none, none
    for d in tl.static_range(8):
        bits = tl.reshape(first if d < 4 else last, (M, 8)) >> (d // 2 % 2 * 8)
        weights = as_bf16(bits & (0x000F000F << (d % 2 * 4)))
        vectors = tl.trans(tl.reshape(tl.load(x + 16 * d) * large, (8, 16)))
        if d % 2:
            high = tl.dot(weights, vectors, high)
        else:
            low = tl.dot(weights, vectors, low)
        zero = tl.dot(eight, vectors, zero)
        if d == 7 or 16 * (d + 1) % GROUP == 0:
            scale = tl.load(scales + 16 * d // GROUP).to(tl.float32)
            total += (low + high * 0.0625 + zero) * scale[:, None]
            low, high, zero = none, none, none
    return total


@triton.jit
def matvec_kernel(packed, scales, x, y, COLUMNS: tl.constexpr, GROUP: tl.constexpr, PARTS: tl.constexpr,
                  TILES: tl.constexpr, UNROLL: tl.constexpr, STAGES: tl.constexpr):
    """16 TILES rows a program. All parts of the weights times all parts of x: of its own alone each part keeps the products.

    COLUMNS is a multiple of 128 PARTS, GROUP a power of two from 32 on; PARTS warps.
    """
    M: tl.constexpr = 16 * PARTS
    PART: tl.constexpr = COLUMNS // PARTS
    m, k = tl.arange(0, M), tl.arange(0, 128)
    top = tl.program_id(0) * 16 * TILES
    row, part = top + m // (8 * PARTS) * 8 + m % 8, m // 8 % PARTS  # in the order of the lanes that load
    words = packed + (row * COLUMNS + part * PART)[:, None] // 8 + tl.arange(0, 16)[None, :]
    row, part = top + m % 16, m // 16  # in the order of the products
    total = tl.zeros((M, 8), tl.float32)
    below = tl.zeros((M, 8), tl.float32)  # the second tile's
    for column in tl.range(0, PART, 128, loop_unroll_factor=UNROLL, num_stages=STAGES):
        scale = scales + (row * COLUMNS + part * PART + column) // GROUP
        vectors = x + k // 16 * PART + k % 16 + column
        total += products(words + column // 8, scale, vectors, GROUP, PARTS)
        if TILES == 2:
            below += products(words + (16 * COLUMNS + column) // 8, scale + 16 * COLUMNS // GROUP, vectors, GROUP, PARTS)
    for tile in tl.static_range(TILES):
        own = tl.where(part[:, None] == tl.arange(0, 8)[None, :], below if tile else total, 0)
        rows = tl.sum(tl.reshape(tl.sum(own, 1), (PARTS, 16)), 0)
        tl.store(y + top + 16 * tile + tl.arange(0, 16), rows * 2.0**33)
