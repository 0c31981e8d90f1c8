"""Attention in Gluon for an H100 or H200, measured ahead of lab 06 by benchmarks/attention.py.

Forward: one warp loads, and each of two or three groups of four warps multiplies its own 64 rows of
Q. A group starts the scores of the next block of keys before the softmax of this one, so that the
tensor cores have work meanwhile; groups take turns at starting products (`turns`).

Backward: one program per block of 128 keys. Five products per pair of blocks; dQ is added up in
memory by TMA. `early` starts the next scores while dQ is stored, and `late` starts dP only after
the probabilities, which frees registers.

Decoding: one program per split of the keys, in plain Triton with descriptors, then one merge. Each
of the two kernels starts while the one before it ends, and waits for its results.
"""

# Kernels stay free of types, as in the labs: their language is Triton's, which a type checker takes
# for Python's.
# ruff: noqa: ANN001, ANN201
# pyrefly: ignore-errors

import functools
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from triton._C.libtriton import ir
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language import _core
from triton.experimental.gluon.language.nvidia import hopper
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait
from triton.tools.tensor_descriptor import TensorDescriptor as PlainDescriptor

if not hasattr(tma, "async_load"):  # its names before Triton 3.8
    tma.async_load, tma.async_store = (
        tma.async_copy_global_to_shared,
        tma.async_copy_shared_to_global,
    )

LOG2E = gl.constexpr(1.4426950408889634)
ROWS = 64  # of Q: what four warps multiply at once, and a step of backward
KEYS = 128  # in a block
MERGED = 32  # values of a query that one program of the merge writes


@_core.builtin
def async_add_shared_to_global(desc, coord, src, _semantic=None):
    """Adds a tile of shared memory to memory, by TMA. Gluon 3.7 has the operation, but no name."""
    coord = _semantic._convert_to_ir_values(coord, require_i64=False)
    _semantic.builder.create_async_tma_reduce(
        ir.DESCRIPTOR_REDUCE_KIND.ADD, desc.handle, coord, src.handle
    )


@gluon.jit
def tanh(x):
    asm: gl.constexpr = "tanh.approx.f32 $0, $1;"
    return gl.inline_asm_elementwise(asm, "=f,f", [x], dtype=gl.float32, is_pure=True, pack=1)


@gluon.jit
def barriers(SLOTS: gl.constexpr, COUNT: gl.constexpr):
    """One barrier per slot, each of which waits for COUNT arrivals."""
    made = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(SLOTS):
        mbarrier.init(made.index(slot), count=COUNT)
    return made


@gluon.jit
def fetch(desc, coord, full, tile):
    mbarrier.expect(full, desc.block_type.nbytes)
    tma.async_load(desc, coord, full, tile)


# Forward


@gluon.jit
def load_forward(own, GROUPS: gl.constexpr):
    """The loading warp: each group's rows of Q, then keys and values from the last block on."""
    q, k, v, tiles, bars, head, q_start, n_blocks, count = own
    q_s, k_s, v_s = tiles
    q_full, k_full, k_empty, v_full, v_empty, _ = bars
    SLOTS: gl.constexpr = k_s.shape[0]
    for group in gl.static_range(GROUPS):
        row = q_start + group * q.block_shape[1]
        fetch(q, [head, row, 0], q_full.index(group), q_s.index(group))
    for i in range(count):
        slot, turn = i % SLOTS, (i // SLOTS + 1) & 1
        row = (n_blocks - 1 - i) * k.block_shape[1]
        mbarrier.wait(k_empty.index(slot), turn)
        fetch(k, [head, row, 0], k_full.index(slot), k_s.index(slot))
        mbarrier.wait(v_empty.index(slot), turn)
        fetch(v, [head, row, 0], v_full.index(slot), v_s.index(slot))


@gluon.jit
def softmax_step(s, m, scale, q_pos, k_start, MASK: gl.constexpr, CAP: gl.constexpr,
                 WINDOW: gl.constexpr):  # fmt: skip
    """(maximum so far, factor for what came before, probabilities) after a block of scores."""
    if CAP > 0:
        s = tanh(s * scale)
        factor = CAP * LOG2E
    else:
        factor = scale * LOG2E
    if MASK:
        k_pos = k_start + gl.arange(0, s.shape[1], gl.SliceLayout(0, s.type.layout))
        ahead = q_pos.expand_dims(1) - k_pos.expand_dims(0)
        s = gl.where(ahead >= 0, s, float("-inf"))
        if WINDOW > 0:
            s = gl.where(ahead < WINDOW, s, float("-inf"))
    m_new = gl.maximum(m, gl.max(s, 1))
    used = gl.where(m_new == float("-inf"), 0.0, m_new) if MASK else m_new
    alpha = gl.exp2((m - used) * factor)
    return m_new, alpha, gl.exp2(s * factor - (used * factor).expand_dims(1))


@gluon.jit
def start_product(x, y, zero):
    """Starts X Yᵀ."""
    return hopper.warpgroup_mma(x, y.permute((1, 0)), zero, use_acc=False, is_async=True)


@gluon.jit
def start_scores(q_s, k_tile, zero):
    """Starts Q Kᵀ."""
    return start_product(q_s, k_tile.reshape([k_tile.shape[1], k_tile.shape[2]]), zero)


@gluon.jit
def start_values(p16, v_tile, o):
    """Starts O += P V."""
    values = v_tile.reshape([v_tile.shape[1], v_tile.shape[2]])
    return hopper.warpgroup_mma(p16, values, o, is_async=True)


@gluon.jit
def forward_step(i, own, state, number, GROUP: gl.constexpr, GROUPS: gl.constexpr,
                 MASK: gl.constexpr, CAP: gl.constexpr, WINDOW: gl.constexpr):  # fmt: skip
    """Scores and softmax of block i, while the values of the block before are added."""
    n_blocks, q_s, zero, scale, q_pos, tiles, bars = own
    o, p16, m, total = state
    _, k_s, v_s = tiles
    _, k_full, k_empty, v_full, v_empty, turns = bars
    SLOTS: gl.constexpr = k_s.shape[0]
    slot, before = i % SLOTS, (i - 1) % SLOTS
    if not MASK:
        mbarrier.wait(turns.index(GROUP), (number + (1 if GROUP == 0 else 0)) & 1)
    mbarrier.wait(k_full.index(slot), (i // SLOTS) & 1)
    s = start_scores(q_s, k_s.index(slot), zero)
    mbarrier.wait(v_full.index(before), ((i - 1) // SLOTS) & 1)
    o = start_values(p16, v_s.index(before), o)
    if not MASK:
        mbarrier.arrive(turns.index((GROUP + 1) % GROUPS), count=1)
    s = hopper.warpgroup_mma_wait(1, deps=(s,))
    mbarrier.arrive(k_empty.index(slot), count=1)
    k_start = (n_blocks - 1 - i) * k_s.shape[2]
    m, alpha, p = softmax_step(s, m, scale, q_pos, k_start, MASK, CAP, WINDOW)
    total = total * alpha + gl.sum(p, 1)
    o = hopper.warpgroup_mma_wait(0, deps=(o,))
    mbarrier.arrive(v_empty.index(before), count=1)
    o = o * gl.convert_layout(alpha, gl.SliceLayout(1, o.type.layout)).expand_dims(1)
    return o, gl.convert_layout(p.to(gl.bfloat16), p16.type.layout), m, total


@gluon.jit
def multiply_forward(own, GROUP: gl.constexpr, GROUPS: gl.constexpr, CAP: gl.constexpr,
                     WINDOW: gl.constexpr):  # fmt: skip
    """Four multiplying warps: 64 rows of the result and of the log-sum-exps."""
    out, lse, tiles, bars, head, n_blocks, count, first_free, end_free, q_start, scale, N = own
    q_tiles, k_s, v_s = tiles
    q_full, k_full, k_empty, v_full, _, _ = bars
    ROWS_: gl.constexpr = q_tiles.shape[2]
    KEYS_: gl.constexpr = k_s.shape[2]
    D: gl.constexpr = k_s.shape[3]
    S_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, KEYS_, 16])
    O_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    P_LAYOUT: gl.constexpr = gl.DotOperandLayout(0, O_LAYOUT, 2)
    q_s = q_tiles.index(GROUP).reshape([ROWS_, D])
    start = q_start + GROUP * ROWS_
    q_pos = start + gl.arange(0, ROWS_, gl.SliceLayout(1, S_LAYOUT))
    o = gl.zeros([ROWS_, D], gl.float32, O_LAYOUT)
    zero = gl.zeros([ROWS_, KEYS_], gl.float32, S_LAYOUT)
    m = gl.full([ROWS_], float("-inf"), gl.float32, gl.SliceLayout(1, S_LAYOUT))
    mbarrier.wait(q_full.index(GROUP), 0)
    mbarrier.wait(k_full.index(0), 0)
    s = hopper.warpgroup_mma_wait(0, deps=(start_scores(q_s, k_s.index(0), zero),))
    mbarrier.arrive(k_empty.index(0), count=1)
    m, _, p = softmax_step(s, m, scale, q_pos, (n_blocks - 1) * KEYS_, True, CAP, WINDOW)
    total = gl.sum(p, 1)
    p16 = gl.convert_layout(p.to(gl.bfloat16), P_LAYOUT)
    same = (n_blocks, q_s, zero, scale, q_pos, tiles, bars)
    for i in range(1, first_free):
        state = (o, p16, m, total)
        o, p16, m, total = forward_step(i, same, state, 0, GROUP, GROUPS, True, CAP, WINDOW)
    for i in range(first_free, end_free):
        number, state = i - first_free, (o, p16, m, total)
        o, p16, m, total = forward_step(i, same, state, number, GROUP, GROUPS, False, CAP, WINDOW)
    if WINDOW > 0:  # where the window ends
        for i in range(end_free, count):
            state = (o, p16, m, total)
            o, p16, m, total = forward_step(i, same, state, 0, GROUP, GROUPS, True, CAP, WINDOW)
    where = (out, lse, q_tiles.index(GROUP), head, start, q_pos, N)
    finish_forward(where, v_s, v_full, (o, p16, m, total), count, scale, CAP)


@gluon.jit
def finish_forward(where, v_s, v_full, state, count, scale, CAP: gl.constexpr):
    """Adds the last values, divides, and stores; the tile of Q serves as the way out."""
    out, lse, q_tile, head, start, q_pos, N = where
    o, p16, m, total = state
    SLOTS: gl.constexpr = v_s.shape[0]
    last = (count - 1) % SLOTS
    mbarrier.wait(v_full.index(last), ((count - 1) // SLOTS) & 1)
    o = hopper.warpgroup_mma_wait(0, deps=(start_values(p16, v_s.index(last), o),))
    o = o / gl.convert_layout(total, gl.SliceLayout(1, o.type.layout)).expand_dims(1)
    m = m * (CAP if CAP > 0 else scale)
    gl.store(lse + head * N + q_pos, m + gl.log(total), mask=q_pos < N)
    q_tile.reshape([q_tile.shape[1], q_tile.shape[2]]).store(o.to(gl.bfloat16))
    hopper.fence_async_shared()
    tma.async_store(out, [head, start, 0], q_tile)
    tma.store_wait(0)


@gluon.jit
def forward_kernel(q, k, v, out, lse, scale, N, D: gl.constexpr, ROWS_: gl.constexpr,
                   KEYS_: gl.constexpr, SLOTS: gl.constexpr, GROUPS: gl.constexpr,
                   CAP: gl.constexpr, WINDOW: gl.constexpr):  # fmt: skip
    """Causal attention of GROUPS · ROWS_ rows of one head, the longest first."""
    SPAN: gl.constexpr = ROWS_ * GROUPS
    blocks_of_q = gl.cdiv(N, SPAN)
    head = gl.program_id(0) // blocks_of_q
    q_start = (blocks_of_q - 1 - gl.program_id(0) % blocks_of_q) * SPAN
    n_blocks = gl.cdiv(gl.minimum(q_start + SPAN, N), KEYS_)
    first_free = gl.maximum(n_blocks - (q_start + 1) // KEYS_, 1)  # blocks with no mask from here
    count = n_blocks
    end_free = n_blocks  # and before this one
    if WINDOW > 0:
        count -= gl.maximum(q_start - WINDOW + 1, 0) // KEYS_
        first_free = gl.minimum(first_free, count)
        end_free -= gl.cdiv(gl.maximum(q_start + SPAN - WINDOW, 0), KEYS_)
        end_free = gl.minimum(gl.maximum(end_free, first_free), count)
    tiles = (
        gl.allocate_shared_memory(gl.bfloat16, [GROUPS, 1, ROWS_, D], q.layout),
        gl.allocate_shared_memory(gl.bfloat16, [SLOTS, 1, KEYS_, D], k.layout),
        gl.allocate_shared_memory(gl.bfloat16, [SLOTS, 1, KEYS_, D], v.layout),
    )
    bars = (barriers(GROUPS, 1), barriers(SLOTS, 1), barriers(SLOTS, GROUPS), barriers(SLOTS, 1),
            barriers(SLOTS, GROUPS), barriers(GROUPS, 1))  # fmt: skip
    own = (out, lse, tiles, bars, head, n_blocks, count, first_free, end_free, q_start, scale, N)
    loads = (q, k, v, tiles, bars, head, q_start, n_blocks, count)
    if GROUPS == 2:
        gl.warp_specialize([
            (multiply_forward, (own, 0, GROUPS, CAP, WINDOW)),
            (multiply_forward, (own, 1, GROUPS, CAP, WINDOW)), (load_forward, (loads, GROUPS)),
        ], [4, 1], [240, 24])  # fmt: skip
    else:
        gl.warp_specialize([
            (multiply_forward, (own, 0, GROUPS, CAP, WINDOW)),
            (multiply_forward, (own, 1, GROUPS, CAP, WINDOW)),
            (multiply_forward, (own, 2, GROUPS, CAP, WINDOW)), (load_forward, (loads, GROUPS)),
        ], [4, 4, 1], [160, 160, 24])  # fmt: skip


@functools.cache
def layout(dtype: gl.dtype, *block: int) -> gl.NVMMASharedLayout:
    """How TMA lays a tile out in shared memory."""
    return gl.NVMMASharedLayout.get_default_for(list(block), dtype)


def described(x: torch.Tensor, rows: int) -> TensorDescriptor:
    """A descriptor of (heads, N, D), in tiles of one head and this many rows."""
    dtype = {torch.bfloat16: gl.bfloat16, torch.float32: gl.float32}[x.dtype]
    block = [1, rows, x.shape[2]]
    return TensorDescriptor(x, list(x.shape), list(x.stride()), block, layout(dtype, *block))


def forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cap: float = 0.0, window: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """(output, log-sum-exps) of causal attention; q, k, v: (B, H, N, D) bf16, D 64 or 128.

    cap: scores become cap · tanh(scores / cap); 0 for none. window: how many keys a query sees,
    its own included; 0 for all.
    """
    batch, heads, n, d = q.shape
    groups = 2 if d == 128 or window else 3  # with the window's loop, three groups spill registers
    out, lse = torch.empty_like(q), torch.empty(batch, heads, n, device=q.device)
    rows = (ROWS, KEYS, KEYS, ROWS)
    flat = [described(x.view(-1, n, d), size) for x, size in zip((q, k, v, out), rows, strict=True)]
    scale = d**-0.5 / (cap or 1)
    programs = batch * heads * triton.cdiv(n, ROWS * groups)
    sizes = d, ROWS, KEYS, 2, groups, cap, window
    forward_kernel[(programs,)](*flat, lse, scale, n, *sizes, num_warps=4)
    return out, lse


# Backward


@gluon.jit
def load_backward(q, do, k, v, tiles, bars, head, kv_start, first, n_q):
    """The loading warp: a block of keys and values, then rows of Q and dO from the diagonal on."""
    q_s, do_s, k_s, v_s, _, _ = tiles
    kv_full, q_full, q_empty, do_full, do_empty = bars
    SLOTS: gl.constexpr = q_s.shape[0]
    fetch(k, [head, kv_start, 0], kv_full.index(0), k_s)
    fetch(v, [head, kv_start, 0], kv_full.index(1), v_s)
    for i in range(first, n_q):
        slot, turn = (i - first) % SLOTS, ((i - first) // SLOTS + 1) & 1
        row = i * q.block_shape[1]
        mbarrier.wait(q_empty.index(slot), turn)
        fetch(q, [head, row, 0], q_full.index(slot), q_s.index(slot))
        mbarrier.wait(do_empty.index(slot), turn)
        fetch(do, [head, row, 0], do_full.index(slot), do_s.index(slot))


@gluon.jit
def probabilities(s, own, scale, q_pos, k_pos, diagonal, CAP: gl.constexpr):
    """(probabilities, what dP is multiplied by) of scores K Qᵀ; own: log₂-sum-exps of the rows."""
    if CAP > 0:
        s = tanh(s * scale)
        p = gl.exp2(s * (CAP * LOG2E) - own.expand_dims(0))
    else:
        p = gl.exp2(s * (scale * LOG2E) - own.expand_dims(0))
    if diagonal:
        p = gl.where(q_pos.expand_dims(0) >= k_pos.expand_dims(1), p, 0.0)
    factor = p * (1 - s * s) if CAP > 0 else p
    return p, factor


@gluon.jit
def add_products(i, own_args, ds, s, dk, dv, EARLY: gl.constexpr):
    """dK += dSᵀ Q; dQ in memory += dS K. Early: the next scores are under way meanwhile."""
    dq, _, _, tiles, bars, head, _, first, n_q, _, _ = own_args
    q_s, _, k_s3, _, ds_s, dq_s = tiles
    _, q_full, q_empty, _, do_empty = bars
    SLOTS: gl.constexpr = q_s.shape[0]
    R: gl.constexpr = q_s.shape[2]
    D: gl.constexpr = q_s.shape[3]
    K_: gl.constexpr = k_s3.shape[1]
    Q_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 2], [16, D // 2, 16])
    P_LAYOUT: gl.constexpr = gl.DotOperandLayout(0, dk.type.layout, 2)
    AHEAD: gl.constexpr = 1 if EARLY else 0
    k_s, t = k_s3.reshape([K_, D]), i - first
    slot = t % SLOTS
    ds_s.store(ds)
    hopper.fence_async_shared()
    dk = hopper.warpgroup_mma(
        gl.convert_layout(ds, P_LAYOUT), q_s.index(slot).reshape([R, D]), dk, is_async=True
    )
    none = gl.zeros([R, D], gl.float32, Q_LAYOUT)
    own_dq = hopper.warpgroup_mma(ds_s.permute((1, 0)), k_s, none, use_acc=False, is_async=True)
    if EARLY:
        more = i + 1 < n_q
        following = gl.where(more, (t + 1) % SLOTS, slot)
        mbarrier.wait(q_full.index(following), ((t + 1) // SLOTS) & 1, pred=more)
        S_LAYOUT: gl.constexpr = s.type.layout
        zero = gl.zeros([K_, R], gl.float32, S_LAYOUT)
        started = start_product(k_s, q_s.index(following).reshape([R, D]), zero)
    dv = hopper.warpgroup_mma_wait(2 + AHEAD, deps=(dv,))
    mbarrier.arrive(do_empty.index(slot), count=1)
    dk = hopper.warpgroup_mma_wait(1 + AHEAD, deps=(dk,))
    mbarrier.arrive(q_empty.index(slot), count=1)
    own_dq = hopper.warpgroup_mma_wait(AHEAD, deps=(own_dq,))
    tma.store_wait(0)
    dq_s.reshape([R, D]).store(own_dq)
    hopper.fence_async_shared()
    async_add_shared_to_global(dq, [head, i * R, 0], dq_s)
    if EARLY:
        s = hopper.warpgroup_mma_wait(0, deps=(started,))
    return s, dk, dv


@gluon.jit
def backward_step(i, own_args, k_pos, s, dk, dv, CAP: gl.constexpr, EARLY: gl.constexpr,
                  LATE: gl.constexpr):  # fmt: skip
    """64 rows of Q: adds to dK and dV, and adds dQ to memory; returns the next scores, too."""
    _, lse, delta, tiles, bars, head, kv_start, first, _, scale, NP = own_args
    q_s, do_s, k_s3, v_s3, _, _ = tiles
    _, q_full, _, do_full, _ = bars
    SLOTS: gl.constexpr = q_s.shape[0]
    R: gl.constexpr = q_s.shape[2]
    D: gl.constexpr = q_s.shape[3]
    P_LAYOUT: gl.constexpr = gl.DotOperandLayout(0, dk.type.layout, 2)
    K_: gl.constexpr = k_s3.shape[1]
    k_s, v_s = k_s3.reshape([K_, D]), v_s3.reshape([K_, D])
    t = i - first
    slot, turn = t % SLOTS, (t // SLOTS) & 1
    q_tile, do_tile = q_s.index(slot).reshape([R, D]), do_s.index(slot).reshape([R, D])
    S_LAYOUT: gl.constexpr = s.type.layout
    zero = gl.zeros([K_, R], gl.float32, S_LAYOUT)
    columns = i * R + gl.arange(0, R, gl.SliceLayout(0, S_LAYOUT))
    if not EARLY:
        mbarrier.wait(q_full.index(slot), turn)
        started = start_product(k_s, q_tile, zero)
    if not LATE:
        mbarrier.wait(do_full.index(slot), turn)
        dp = start_product(v_s, do_tile, zero)
    own = gl.load(lse + head * NP + columns)
    if not EARLY:
        s = hopper.warpgroup_mma_wait(0 if LATE else 1, deps=(started,))
    p, factor = probabilities(s, own, scale, columns, k_pos, i * R < kv_start + K_, CAP)
    p16 = gl.convert_layout(p.to(gl.bfloat16), P_LAYOUT)
    if LATE:
        mbarrier.wait(do_full.index(slot), turn)
        dp = start_product(v_s, do_tile, zero)
    dv = hopper.warpgroup_mma(p16, do_tile, dv, is_async=True)
    own = gl.load(delta + head * NP + columns)
    dp = hopper.warpgroup_mma_wait(1, deps=(dp,))
    ds = (factor * (dp - own.expand_dims(0))).to(gl.bfloat16)
    return add_products(i, own_args, ds, s, dk, dv, EARLY)


@gluon.jit
def multiply_backward(own_args, CAP: gl.constexpr, EARLY: gl.constexpr, LATE: gl.constexpr):
    """Eight multiplying warps: dK and dV of a block of keys."""
    _, _, _, tiles, bars, _, kv_start, first, n_q, _, _ = own_args
    q_s, _, k_s3, _, _, _ = tiles
    kv_full, q_full, _, _, _ = bars
    R: gl.constexpr = q_s.shape[2]
    K_: gl.constexpr = k_s3.shape[1]
    D: gl.constexpr = k_s3.shape[2]
    S_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [8, 1], [16, R, 16])
    O_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [8, 1], [16, D, 16])
    dk, dv = gl.zeros([K_, D], gl.float32, O_LAYOUT), gl.zeros([K_, D], gl.float32, O_LAYOUT)
    k_pos = kv_start + gl.arange(0, K_, gl.SliceLayout(1, S_LAYOUT))
    s = gl.zeros([K_, R], gl.float32, S_LAYOUT)
    mbarrier.wait(kv_full.index(0), 0)
    mbarrier.wait(kv_full.index(1), 0)
    if EARLY:
        mbarrier.wait(q_full.index(0), 0)
        s = start_product(k_s3.reshape([K_, D]), q_s.index(0).reshape([R, D]), s)
        s = hopper.warpgroup_mma_wait(0, deps=(s,))
    for i in range(first, n_q):
        s, dk, dv = backward_step(i, own_args, k_pos, s, dk, dv, CAP, EARLY, LATE)
    tma.store_wait(0)
    return dk, dv


@gluon.jit
def backward_kernel(q, k, v, do, dq, dk, dv, lse, delta, scale, N, D: gl.constexpr, R: gl.constexpr,
                    K_: gl.constexpr, SLOTS: gl.constexpr, CAP: gl.constexpr, EARLY: gl.constexpr,
                    LATE: gl.constexpr):  # fmt: skip
    """dK and dV of one block of keys of one head; dq (fp32) is added to."""
    blocks, n_q = gl.cdiv(N, K_), gl.cdiv(N, R)
    head, kv_start = gl.program_id(0) // blocks, gl.program_id(0) % blocks * K_
    first = kv_start // R
    S_SHARED: gl.constexpr = gl.NVMMASharedLayout.get_default_for([K_, R], gl.bfloat16)
    tiles = (
        gl.allocate_shared_memory(gl.bfloat16, [SLOTS, 1, R, D], q.layout),
        gl.allocate_shared_memory(gl.bfloat16, [SLOTS, 1, R, D], do.layout),
        gl.allocate_shared_memory(gl.bfloat16, [1, K_, D], k.layout),
        gl.allocate_shared_memory(gl.bfloat16, [1, K_, D], v.layout),
        gl.allocate_shared_memory(gl.bfloat16, [K_, R], S_SHARED),
        gl.allocate_shared_memory(gl.float32, [1, R, D], dq.layout),
    )
    bars = (barriers(2, 1), barriers(SLOTS, 1), barriers(SLOTS, 1), barriers(SLOTS, 1),
            barriers(SLOTS, 1))  # fmt: skip
    own_args = (dq, lse, delta, tiles, bars, head, kv_start, first, n_q, scale, n_q * R)
    own_dk, own_dv = gl.warp_specialize([
        (multiply_backward, (own_args, CAP, EARLY, LATE)),
        (load_backward, (q, do, k, v, tiles, bars, head, kv_start, first, n_q)),
    ], [1], [24])  # fmt: skip
    factor = scale * CAP if CAP > 0 else scale
    tiles[2].reshape([K_, D]).store((own_dk * factor).to(gl.bfloat16))
    tiles[3].reshape([K_, D]).store(own_dv.to(gl.bfloat16))
    hopper.fence_async_shared()
    tma.async_store(dk, [head, kv_start, 0], tiles[2])
    tma.async_store(dv, [head, kv_start, 0], tiles[3])
    tma.store_wait(0)


@triton.jit
def prepare_kernel(o, do, lse, lse2, delta, dq, N, NP, D: tl.constexpr, R: tl.constexpr):
    """Row sums of O · dO, log-sum-exps as powers of 2, and zeros where dQ is added up."""
    head, rows = tl.program_id(1), tl.program_id(0) * R + tl.arange(0, R)
    inside = rows < N
    at = (head * N + rows).to(tl.int64)[:, None] * D + tl.arange(0, D)[None, :]
    mask = inside[:, None]
    product = tl.load(o + at, mask, 0.0).to(tl.float32) * tl.load(do + at, mask, 0.0).to(tl.float32)
    tl.store(delta + head * NP + rows, tl.sum(product, 1))
    own = tl.load(lse + head * N + rows, inside, float("inf"))
    tl.store(lse2 + head * NP + rows, own * 1.4426950408889634)
    tl.store(dq + at, tl.zeros_like(product), mask)


@triton.jit
def scale_kernel(x, y, scale, size, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, (tl.load(x + at, at < size) * scale).to(tl.bfloat16), at < size)


@dataclass(frozen=True)
class Saved:
    """What forward leaves for backward: (B, H, N, D) bf16, log-sum-exps (B, H, N) fp32, the cap."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    out: torch.Tensor
    lse: torch.Tensor
    cap: float = 0.0


def backward(saved: Saved, do: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(dQ, dK, dV) of causal attention; do: the gradient of the output, contiguous."""
    batch, heads, n, d = saved.q.shape
    padded = triton.cdiv(n, ROWS) * ROWS
    delta, lse2 = (torch.empty(batch * heads, padded, device=do.device) for _ in range(2))
    dq32 = torch.empty(batch * heads, n, d, device=do.device)
    prepare_kernel[(padded // 32, batch * heads)](
        saved.out, do, saved.lse, lse2, delta, dq32, n, padded, d, 32
    )
    dq, dk, dv = (torch.empty_like(x) for x in (saved.q, saved.k, saved.v))
    arrays = (saved.q, saved.k, saved.v, do, dq32, dk, dv)
    rows = (ROWS, KEYS, KEYS, ROWS, ROWS, KEYS, KEYS)
    flat = [described(x.view(-1, n, d), size) for x, size in zip(arrays, rows, strict=True)]
    scale, late = d**-0.5 / (saved.cap or 1), d == 128 or not saved.cap
    backward_kernel[(batch * heads * triton.cdiv(n, KEYS),)](
        *flat, lse2, delta, scale, n, d, ROWS, KEYS, 2, saved.cap, d == 64, late, num_warps=8
    )
    blocks = triton.cdiv(dq.numel(), 4096)
    scale_kernel[(blocks,)](dq32, dq, d**-0.5, dq.numel(), 4096, num_warps=8)
    return dq, dk, dv


# Decoding


@triton.jit
def split_kernel(q, k, v, part, ml, scale, N, GROUP: tl.constexpr, G: tl.constexpr, D: tl.constexpr,
                 K_: tl.constexpr, SPLITS: tl.constexpr):  # fmt: skip
    """One key head's GROUP queries against one split of its keys: sum of values, maximum, sum."""
    gdc_launch_dependents()  # the merge may wait on its processors while this runs
    head, split = tl.program_id(1), tl.program_id(0)
    rows, columns, d = tl.arange(0, G), tl.arange(0, K_), tl.arange(0, D)
    gdc_wait()  # until the queries and keys are there, and the parts of the last call are read
    inside = rows < GROUP
    q_tile = tl.load(q + (head * GROUP + rows)[:, None] * D + d[None, :], inside[:, None], 0.0)
    blocks = tl.cdiv(N, K_)
    m = tl.full([G], float("-inf"), tl.float32)
    total, o = tl.zeros([G], tl.float32), tl.zeros([G, D], tl.float32)
    for block in range(split * blocks // SPLITS, (split + 1) * blocks // SPLITS):
        k_tile = k.load([head, block * K_, 0]).reshape(K_, D)
        s = tl.dot(q_tile, k_tile.T) * (scale * 1.4426950408889634)
        s = tl.where((block * K_ + columns < N)[None, :], s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        alpha, p = tl.exp2(m - m_new), tl.exp2(s - m_new[:, None])
        total = total * alpha + tl.sum(p, 1)
        v_tile = v.load([head, block * K_, 0]).reshape(K_, D)
        o = tl.dot(p.to(tl.bfloat16), v_tile, o * alpha[:, None])
        m = m_new
    at = (head * GROUP + rows) * SPLITS + split
    tl.store(part + at[:, None] * D + d[None, :], o, inside[:, None])
    tl.store(ml + at * 2, m, inside)
    tl.store(ml + at * 2 + 1, total, inside)


@triton.jit
def merge_kernel(part, ml, out, D: tl.constexpr, W: tl.constexpr, SPLITS: tl.constexpr,
                 S: tl.constexpr):  # fmt: skip
    """One query's splits, merged: W of its D values per program."""
    gdc_launch_dependents()
    row, split, d = tl.program_id(0), tl.arange(0, S), tl.program_id(1) * W + tl.arange(0, W)
    gdc_wait()
    inside = split < SPLITS
    at = row * SPLITS + split
    m = tl.load(ml + at * 2, inside, float("-inf"))
    total = tl.load(ml + at * 2 + 1, inside, 0.0)
    weight = tl.exp2(m - tl.max(m, 0))
    o = tl.load(part + at[:, None] * D + d[None, :], inside[:, None], 0.0)
    total = tl.sum(o * weight[:, None], 0) / tl.sum(total * weight, 0)
    tl.store(out + row * D + d, total.to(tl.bfloat16))


def decode(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, splits: int) -> torch.Tensor:
    """Attention of one query per head, (B, H, 1, D), to (B, H_k, N, D) bf16; H_k divides H."""
    batch, heads, _, d = q.shape
    key_heads, n = k.shape[1:3]
    group = heads // key_heads
    part = torch.empty(batch * heads * splits * d, device=q.device)
    ml, out = torch.empty(batch * heads * splits * 2, device=q.device), torch.empty_like(q)
    size, strides, block = [batch * key_heads, n, d], [n * d, d, 1], [1, KEYS, d]
    keys, values = (PlainDescriptor(x, size, strides, block) for x in (k, v))
    split_kernel[(splits, batch * key_heads)](
        q, keys, values, part, ml, d**-0.5, n, group, max(16, triton.next_power_of_2(group)), d,
        KEYS, splits, num_warps=4, num_stages=3, launch_pdl=True,
    )  # fmt: skip
    merge_kernel[(batch * heads, d // MERGED)](
        part, ml, out, d, MERGED, splits, triton.next_power_of_2(splits), launch_pdl=True
    )
    return out
