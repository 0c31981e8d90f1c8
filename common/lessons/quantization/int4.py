"""Matrices of 4-bit codes times one vector: launches, timings, and our own kernel on tensor cores.

Import it after device.prepare_triton(): it imports Triton. Lab 10 packs the codes and has the
student's kernel; here is what surrounds it.

Our kernel reads a nibble where it stands as *bf16*: in bits 0 to 3 it is the subnormal
n · 2⁻¹³³, in bits 4 to 7 it is n · 2⁻¹²⁹. (For n >= 8 the latter is normal, but the least normal
numbers have the subnormals' step.) One mask makes two weights of a word, and a tensor core
multiplies 16 × 16 of them by eight vectors in one instruction. There is one vector, repeated eight
times: seven of the eight results are wasted, but the tensor cores are idle anyway.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from common.hardware import device, timing
from nogpu import tiles

INTEGER = ("LOP3", "SHF", "IADD3", "VIADD", "SGXT", "LEA", "PRMT", "ISETP", "I2FP", "MOV", "SEL",
           "BFE", "VIMNMX", "IMNMX")  # fmt: skip


def launch(
    kernel: Any, packed: torch.Tensor, scales: torch.Tensor, x: torch.Tensor, y: torch.Tensor
) -> None:
    """Launches lab 10's kernel: a program for each 8 rows, 256 words of each row in a step."""
    (rows, groups), words = scales.shape, packed.shape[1] // scales.shape[1]
    sizes = {"ROWS": math.gcd(rows, 8), "STEP": math.gcd(groups, max(1, 256 // words))}
    grid = (rows // sizes["ROWS"],)
    try:
        kernel[grid](packed, scales, x, y, GROUPS=groups, WORDS=words, **sizes, num_warps=2)
    except triton.runtime.errors.InterpreterError as error:
        raise (error.__cause__ or error) from None  # the error in the kernel, as it was raised


def matvec(
    kernel: Any, packed: torch.Tensor, scales: torch.Tensor, x: torch.Tensor
) -> torch.Tensor:
    """y = W x, float32 (rows,), by this kernel; scales and x become bf16."""
    where = "cuda" if device.has_gpu() else "cpu"
    y = torch.full((len(packed),), torch.nan, device=where)
    launch(kernel, packed.to(where), scales.bfloat16().to(where), x.bfloat16().to(where), y)
    return y.cpu()


def per_weight(kernel: Any) -> dict[str, float]:
    """{"all": ..., "integer": ...}: instructions per weight in the loop of lab 10's kernel.

    They are counted in the machine code for an H200, which Triton's compiler makes without a GPU.
    """
    sizes = {"GROUPS": 64, "WORDS": 16, "ROWS": 8, "STEP": 16}  # groups of 128, as `launch` has it
    packed = torch.zeros(8, 1024, dtype=torch.int32)
    arrays = torch.zeros(8, 64).bfloat16(), torch.zeros(8192).bfloat16(), torch.zeros(8)
    counts = tiles.compiled(kernel, packed, *arrays, **sizes, num_warps=2).loop()
    weights = 8 * sizes["ROWS"] * sizes["STEP"] * sizes["WORDS"] / 64  # of one thread in one step
    integer = sum(counts[name] for name in INTEGER)
    return {"all": counts.total() / weights, "integer": integer / weights}


def speedup(
    kernel: Any, quantize: Callable[..., Any], pack: Callable[..., Any], group: int
) -> float:
    """cuBLAS's time in bf16 over the kernel's, with a cold cache; without a GPU, of the bytes.

    The product is random, 8192 × 8192 on a GPU. quantize(weight, 4, group) gives codes and scales,
    pack(codes, group) the words.
    """
    rows, columns, where = (8192, 8192, "cuda") if device.has_gpu() else (1024, 4096, "cpu")
    weight, x = torch.randn(rows, columns, device=where), torch.randn(columns, device=where)
    codes, scales = quantize(weight, 4, group)
    bf16 = weight.bfloat16(), x.bfloat16()
    int4 = pack(codes, group), scales.bfloat16(), bf16[1], torch.empty(rows, device=where)
    if not device.has_gpu():  # the result's included
        return (sum(t.nbytes for t in bf16) + 2 * rows) / sum(t.nbytes for t in int4)
    bf16_s = timing.measure(torch.mv, *bf16, cold_cache=True).median_s
    return bf16_s / timing.measure(launch, kernel, *int4, cold_cache=True).median_s


def pack_tiles(codes: torch.Tensor, scales: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(words, scales) for tensor_core_kernel: a row has 8 parts, and 16 × 128 of one part are 1 KB.

    A row is padded to 8 parts of whole groups, with scales of 0. Nibble i of half h of a row's word
    4 t + 2 p + q is column 64 p + 16 i + 4 t + 2 q + h of these 128.
    """
    group = codes.shape[1] // scales.shape[1]
    more = -scales.shape[1] % 8  # groups
    codes = torch.nn.functional.pad(codes, (0, more * group))
    scales = torch.nn.functional.pad(scales, (0, more))
    tiles = len(codes) // 16
    nibbles = (codes.long() + 8).view(
        tiles, 16, 8, -1, 2, 4, 4, 2, 2
    )  # row, part, step, p, i, t, q, h
    i, h = (torch.arange(count, device=codes.device) for count in (4, 2))
    words = (nibbles << 4 * i[:, None, None, None] + 16 * h).sum((5, 8))
    words = (
        words.permute(0, 2, 3, 1, 5, 4, 6).to(torch.int32).contiguous()
    )  # part, step, row, t, p, q
    scales = scales.bfloat16().view(tiles, 16, 8, -1).permute(0, 2, 3, 1).contiguous()
    if codes.is_cuda:
        torch.cuda.synchronize()  # the kernel may load them before it waits for anything
    return words, scales


@triton.jit
def as_bf16(words: tl.tensor) -> tl.tensor:
    """bf16 (8, 16, 16) of words (8, 16, 8): of each its low half, then its high half."""
    halves = tl.join(words.to(tl.int16), (words >> 16).to(tl.int16))
    return tl.reshape(halves, (8, 16, 16)).to(tl.bfloat16, bitcast=True)


@triton.jit
def step_products(words: tl.tensor, x: tl.tensor) -> tl.tensor:
    """float32 (8, 16, 8), in 2**-33: 16 rows of 8 parts times 128 numbers of x, eight times."""
    words = tl.permute(tl.reshape(words, (2, 8, 8, 16)), (1, 0, 2, 3))  # in place
    first, last = tl.split(tl.permute(tl.reshape(words, (8, 16, 4, 2, 2)), (0, 1, 2, 4, 3)))
    eight = as_bf16(tl.reshape(first, (8, 16, 8)) & 0 | -0x7FF77FF8)  # 0x8008 twice: the code's -8
    large = tl.full((1, 1), 2.0**100, tl.float32).to(tl.bfloat16)  # keeps the sums normal
    none = tl.zeros((8, 16, 8), tl.float32)
    low, high, low_eights, high_eights = none, none, none, none  # four sums: no product waits long
    for k in tl.static_range(8):
        bits = tl.reshape(first if k < 4 else last, (8, 16, 8)) >> (k // 2 % 2 * 8)
        weights = as_bf16(bits & (0x000F000F << k % 2 * 4))
        numbers = tl.load(x + 16 * k)
        vectors = tl.broadcast_to((numbers * large)[:, :, None], (8, 16, 8))
        if k % 2:
            high = tl.dot(weights, vectors, high)
            high_eights = tl.dot(eight, vectors, high_eights)
        else:
            low = tl.dot(weights, vectors, low)
            low_eights = tl.dot(eight, vectors, low_eights)
    return low + high * 0.0625 + (low_eights + high_eights)


@triton.jit
def tensor_core_kernel(
    words: tl.tensor,
    scales: tl.tensor,
    x: tl.tensor,
    y: tl.tensor,
    COLUMNS: tl.constexpr,
    GROUP: tl.constexpr,
    AHEAD: tl.constexpr,
    EARLY: tl.constexpr,
) -> None:
    """y = W x: 16 rows per program, eight warps. words, scales: of pack_tiles. x: bf16.

    AHEAD: how many steps' weights are on their way while those of one step are multiplied.
    """
    if EARLY:
        gdc_launch_dependents()
    PART: tl.constexpr = (COLUMNS + 8 * GROUP - 1) // (8 * GROUP) * GROUP
    m, row, part = tl.arange(0, 128), tl.arange(0, 16)[None, :], tl.arange(0, 8)[:, None]
    words += tl.program_id(0) * (16 * PART) + tl.arange(0, 16)[None, :]
    words += (m // 8 % 8 * (2 * PART) + (m // 64 * 8 + m % 8) * 16)[:, None]  # part, row
    scales += tl.program_id(0) * (128 * PART // GROUP) + part * (16 * PART // GROUP) + row
    on_the_way = ()
    for step in tl.static_range(AHEAD):
        on_the_way = on_the_way + (load_step(words, scales, 128 * step, PART, GROUP),)
    if EARLY:
        gdc_wait()
    total = tl.zeros((8, 16, 8), tl.float32)
    for column in tl.range(0, PART, 128, loop_unroll_factor=AHEAD):
        now, scale = on_the_way[0]  # pyrefly: ignore  (Triton's tuple grows)
        following = load_step(words, scales, column + 128 * AHEAD, PART, GROUP)
        on_the_way = on_the_way[1:] + (following,)
        first = part * PART + column
        if COLUMNS != 8 * PART:  # where a part has ended, any numbers do: their scale is 0
            first = tl.where(first < COLUMNS, first, 0)
        total += step_products(now, x + first + row) * scale.to(tl.float32)[:, :, None]
    one = tl.sum(tl.where(tl.arange(0, 8)[None, None, :] == 0, total, 0), 2)
    tl.store(y + tl.program_id(0) * 16 + tl.arange(0, 16), tl.sum(one, 0) * 2.0**33)


@triton.jit
def load_step(
    words: tl.tensor, scales: tl.tensor, column: tl.tensor, PART: tl.constexpr, GROUP: tl.constexpr
) -> tuple[tl.tensor, tl.tensor]:
    """(words, scales) of 128 columns of each part from this one on; zeros after the part's end."""
    more = column < PART
    some = tl.load(words + 2 * column, mask=more, other=0, eviction_policy="evict_first")
    return some, tl.load(scales + column // GROUP * 16, mask=more, other=0)


def way_of(programs: int, processors: int, whole: bool) -> tuple[int, int | None]:
    """(steps ahead, most registers per thread) with which so many programs end soonest.

    Fewer programs at a time on a processor leave registers for more steps on their way. More of
    them may need fewer waves. Fewest waves come first; of those, fewest programs at a time.
    whole: whether all eight parts of a row have as many columns. Of what else was tried on an H200,
    this was the fastest or within 6 %.
    """
    three = (1, None) if whole else (2, 80)
    at_a_time = {2: (4, None), 3: three, 4: (1, 64)}  # registers decide how many there are
    waves = {count: math.ceil(programs / (count * processors)) for count in at_a_time}
    return at_a_time[min(waves, key=lambda count: waves[count])]


def launch_tiles(
    words: torch.Tensor, scales: torch.Tensor, x: torch.Tensor, y: torch.Tensor, early: bool = True
) -> None:
    """y = W x. Multiples: rows of 16, groups of 128, columns of groups. early: if the GPU can."""
    early = early and device.starts_early()
    group, programs = 8 * words.numel() // scales.numel(), len(y) // 16
    processors = device.multiprocessors() if device.has_gpu() else 1
    ahead, registers = way_of(programs, processors, whole=len(x) % (8 * group) == 0)
    sizes = {"COLUMNS": len(x), "GROUP": group, "AHEAD": ahead, "EARLY": early}
    kernel: Any = tensor_core_kernel
    kernel[(programs,)](
        words, scales, x, y, **sizes, num_warps=8, num_stages=1, maxnreg=registers, launch_pdl=early
    )
