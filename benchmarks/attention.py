"""Attention on an H100 or H200, compared with the usual libraries.

    python benchmarks/attention.py [FILE] [--only windows students]

prints the table and writes it (benchmarks/attention.md), or some parts of it.

The kernels are those of benchmarks/hopper_attention.py, and the solutions' own of lab 06 in the
fastest of a few configurations. The data is random; each result is first
compared with float64. Medians of seven rounds, in which ours and the peers take turns. Decoding is
timed in a CUDA graph over several caches of keys, which together are larger than the GPU's L2.
"""

import argparse
import contextlib
import functools
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
import torch._functorch.config
import triton
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from benchmarks import hopper_attention as ours
from benchmarks.kernels import Row, in_a_row_s, require_close, table
from benchmarks.solved import solved
from common.hardware import device, timing
from common.ledger import machine

FILE = Path(__file__).with_suffix(".md")
BATCH, HEADS, N = 4, 16, 8192
CAP, WINDOW = 30.0, 1024
TILES = [(128, 64, 8, 2), (128, 64, 8, 3), (128, 128, 8, 2), (64, 64, 4, 3), (128, 32, 4, 3)]
DECODING = [(16, 8192, 32, 8, 1), (1, 32768, 32, 8, 16), (1, 131072, 64, 1, 128)]
TENSORS = tuple[torch.Tensor, ...]


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def reference(inputs: Sequence[torch.Tensor], cap: float, window: int = 0) -> torch.Tensor:
    """Causal attention of Q, K and V in float64."""
    q, k, v = inputs
    scores = (q.double() @ k.double().mT) * q.shape[-1] ** -0.5
    scores = cap * torch.tanh(scores / cap) if cap else scores
    hidden = torch.ones(scores.shape[-2:], device=q.device, dtype=torch.bool).triu(1)
    if window:
        hidden |= hidden.new_ones(hidden.shape).tril(-window)
    return scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v.double()


def require_right(d: int, n: int, cap: float) -> None:
    """Ends the run unless a small case, forward and backward, agrees with float64."""
    q, k, v, do = (drawn(1, 2, n, d) for _ in range(4))
    out, lse = ours.forward(q, k, v, cap)
    exact = [x.double().requires_grad_() for x in (q, k, v)]
    want = reference(exact, cap)
    require_close(out, want, 4e-3, f"forward, N = {n}, d = {d}, cap = {cap}")
    gradients = ours.backward(ours.Saved(q, k, v, out, lse, cap), do)
    for name, got, wanted in zip(
        "QKV", gradients, torch.autograd.grad(want, exact, do.double()), strict=True
    ):
        require_close(got, wanted, 8e-3, f"d{name}, N = {n}, d = {d}, cap = {cap}")


def library(backend: SDPBackend) -> Callable[..., torch.Tensor]:
    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    return call


def flex(cap: float, window: int = N) -> Callable[..., Any]:
    """FlexAttention, compiled, with the causal mask of a window (by default of all keys)."""

    def seen(b: Any, h: Any, i: Any, j: Any) -> Any:
        return (i >= j) & (i - j < window) if window < N else i >= j

    mask = create_block_mask(seen, None, None, N, N, device="cuda")
    soft = (lambda score, b, h, i, j: cap * torch.tanh(score / cap)) if cap else None
    return functools.partial(torch.compile(flex_attention), score_mod=soft, block_mask=mask)


def training(ceiling: float) -> Iterator[Row]:
    """Forward and backward at N = 8,192, in TFLOP/s of the products that causal attention needs."""
    for d, cap in itertools.product((128, 64), (0.0, CAP)):
        for n in (127, 1024, 1025):
            require_right(d, n, cap)
        yield from race(d, cap, ceiling)


def race(d: int, cap: float, ceiling: float) -> Iterator[Row]:
    """Forward, then backward, against each peer. ceiling: in TFLOP/s."""
    q, k, v, do = (drawn(BATCH, HEADS, N, d) for _ in range(4))
    saved = ours.Saved(q, k, v, *ours.forward(q, k, v, cap), cap)
    peers = {"compiled flex": flex(cap)}
    if not cap:
        peers |= {"cuDNN": library(SDPBackend.CUDNN_ATTENTION)}
        peers |= {"FlashAttention-2": library(SDPBackend.FLASH_ATTENTION)}
    forwards: list[Callable[[], object]] = [lambda: ours.forward(q, k, v, cap)]
    backwards: list[Callable[[], object]] = [lambda: ours.backward(saved, do)]
    for peer in peers.values():
        inputs = [x.clone().requires_grad_() for x in (q, k, v)]
        result = peer(*inputs)
        forwards.append(functools.partial(peer, q, k, v))
        gradient: Any = torch.autograd.grad
        backwards.append(functools.partial(gradient, result, inputs, do, retain_graph=True))
    tflop = 2e-12 * N * N * d * BATCH * HEADS
    what = f"causal, d {d}" + (", soft-capped" if cap else "")
    for name, calls, work in (("forward", forwards, tflop), ("backward", backwards, 2.5 * tflop)):
        mine_s, *peers_s = timing.in_turns(in_a_row_s, *calls)
        for peer, peer_s in zip(peers, peers_s, strict=True):
            speeds = work / mine_s, ceiling, "TFLOP/s", peer, work / peer_s
            yield Row(f"attention {name}, Gluon", what, *speeds)


def windows(ceiling: float) -> Iterator[Row]:
    """Forward with a sliding window; the work is that of the keys in the window."""
    for d in (128, 64):
        for n, window in itertools.product((127, 1024, 1025), (1, 100, 128, 500)):
            q, k, v = (drawn(1, 2, n, d) for _ in range(3))
            want = reference((q, k, v), 0.0, window)
            what = f"N = {n}, d = {d}, window of {window}"
            require_close(ours.forward(q, k, v, window=window)[0], want, 4e-3, what)
        q, k, v = (drawn(BATCH, HEADS, N, d) for _ in range(3))
        tflop = 4e-12 * BATCH * HEADS * d * (N * WINDOW - WINDOW * (WINDOW - 1) // 2)
        calls = [functools.partial(f, q, k, v) for f in (
            functools.partial(ours.forward, window=WINDOW), flex(0.0, WINDOW))]  # fmt: skip
        mine_s, flex_s = timing.in_turns(in_a_row_s, *calls)
        speeds = tflop / mine_s, ceiling, "TFLOP/s", "compiled flex", tflop / flex_s
        yield Row("attention forward, Gluon", f"window of {WINDOW:,}, d {d}", *speeds)


@triton.jit
def causal(b, h, i, j):  # noqa: ANN001, ANN201  (a kernel's function)
    return i >= j


@triton.jit
def sliding(b, h, i, j):  # noqa: ANN001, ANN201
    return (i >= j) & (i - j < 1024)


@triton.jit
def unchanged(score, b, h, i, j):  # noqa: ANN001, ANN201
    return score


@triton.jit
def one(score, b, h, i, j):  # noqa: ANN001, ANN201
    return score * 0 + 1


@functools.cache
def kinds_of(window: int, block_q: int, block_k: int) -> torch.Tensor:
    """Lab 06's kinds of tiles (0 empty, 1 partial, 2 full) of a causal window."""
    i = torch.arange(0, N, block_q, device="cuda")[:, None]
    j = torch.arange(0, N, block_k, device="cuda")[None, :]
    seen = (i + block_q - 1 >= j) & (i - (j + block_k - 1) < window)
    full = (i >= j + block_k - 1) & (i + block_q - 1 - j < window)
    return (seen.int() + full.int()).int()


def run_forward(
    kernel: Any, tensors: TENSORS, window: int, tile: Sequence[int], how: dict[str, Any]
) -> None:
    """Launches lab 06's flex_forward. tensors: q, k, v, o, lse."""
    kinds, d = kinds_of(window, *tile), tensors[0].shape[-1]
    mods = {"MASK": causal if window == N else sliding, "SCORE": unchanged}
    blocks = {"GROUP": 1, "D": d, "BLOCK_Q": tile[0], "BLOCK_K": tile[1]}
    kernel[(N // tile[0], HEADS, BATCH)](*tensors, kinds, N, N, d**-0.5, **mods, **blocks, **how)


def run_backward(kernel: Any, tensors: TENSORS, tile: Sequence[int], how: dict[str, Any]) -> None:
    """Launches lab 06's flash_backward. tensors: q, k, v, do, lse, delta, dq, dk, dv."""
    kinds, d = kinds_of(N, *tile), tensors[0].shape[-1]
    tensors[6].zero_()
    mods = {"MASK": causal, "SCORE": unchanged, "SLOPE": one}
    blocks = {"GROUP": 1, "D": d, "BLOCK_Q": tile[0], "BLOCK_K": tile[1]}
    kernel[(N // tile[1], HEADS, BATCH)](*tensors, kinds, N, N, d**-0.5, **mods, **blocks, **how)


def best_s(run: Callable[..., None], *fixed: Any) -> float:
    """Seconds of a launch with the fastest of TILES that the GPU can hold."""
    times_s = []
    for *tile, warps, stages in TILES:
        call = functools.partial(run, *fixed, tile, {"num_warps": warps, "num_stages": stages})
        with contextlib.suppress(triton.runtime.errors.OutOfResources):
            call()
            times_s.append(in_a_row_s(call, calls=2))
    return min(times_s)


def students(ceiling: float) -> Iterator[Row]:
    """Lab 06's flex_forward and flash_backward, as its solution has them, in bf16."""
    lab = solved("06")
    for d in (128, 64):
        q, k, v, do = (drawn(BATCH, HEADS, N, d) for _ in range(4))
        o, lse = torch.empty_like(q), torch.empty(BATCH, HEADS, N, device="cuda")
        for what, window in ((f"window of {WINDOW:,}", WINDOW), ("causal", N)):
            fixed = lab["flex_forward"], (q, k, v, o, lse), window
            mine_s, peer = best_s(run_forward, *fixed), flex(0.0, window)
            require_close(o, peer(q, k, v).double(), 8e-3, f"lab 06, {what}, d {d}")
            peer_s = in_a_row_s(functools.partial(peer, q, k, v))
            tflop = 4e-12 * BATCH * HEADS * d * (N * window - window * (window - 1) // 2)
            speeds = tflop / mine_s, ceiling, "TFLOP/s", "compiled flex", tflop / peer_s
            yield Row("attention forward, lab 06", f"{what}, d {d}", *speeds)
        gradients = torch.zeros_like(q).float(), torch.empty_like(k), torch.empty_like(v)
        delta = (o.float() * do.float()).sum(-1)
        inputs = [x.clone().requires_grad_() for x in (q, k, v)]
        result = flex(0.0)(*inputs)
        grad = functools.partial(torch.autograd.grad, result, inputs, do, retain_graph=True)
        fixed = lab["flash_backward"], (q, k, v, do, lse, delta, *gradients)
        mine_s, peer_s = best_s(run_backward, *fixed), in_a_row_s(grad)
        for name, mine, theirs in zip("QKV", gradients, grad(), strict=True):
            require_close(mine, theirs.double(), 2e-2, f"lab 06, d{name}, d {d}")
        tflop = 1e-12 * 5 * BATCH * HEADS * d * N * N
        speeds = tflop / mine_s, ceiling, "TFLOP/s", "compiled flex", tflop / peer_s
        yield Row("attention backward, lab 06", f"causal, d {d}", *speeds)


def captured(call: Callable[..., torch.Tensor], caches: list[TENSORS]) -> Callable[[], None]:
    """A replay of one call per cache, with no launch to wait for."""
    for cache in caches:
        call(*cache)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for cache in caches:
            call(*cache)
    return graph.replay


def decoding() -> Iterator[Row]:
    """One query per head; GB/s of keys and values read. The ceiling is a copy of the keys."""
    peer: Any = functools.partial(F.scaled_dot_product_attention, enable_gqa=True)
    for batch, n, heads, key_heads, splits in DECODING:
        sizes = ((heads, 1), (key_heads, n), (key_heads, n))
        count = max(2, min(8, 2 * 10**9 // (batch * key_heads * n * 512)))
        caches = [tuple(drawn(batch, h, size, 128) for h, size in sizes) for _ in range(count)]
        mine = functools.partial(ours.decode, splits=splits)
        require_close(mine(*caches[0]), peer(*caches[0]).double(), 8e-3, f"decoding {n} keys")
        keys = caches[0][1]
        calls = [captured(mine, caches), captured(peer, caches), keys.clone]
        gb = 2e-9 * keys.nbytes
        mine_s, peer_s, copy_s = timing.in_turns(in_a_row_s, *calls)
        speeds = gb * count / mine_s, gb / copy_s, "GB/s", "SDPA", gb * count / peer_s
        yield Row("decoding, Triton", f"{batch} × {n:,} keys, {heads}:{key_heads} heads", *speeds)


def main() -> None:
    """Measures the parts asked for, and prints each row when it is there."""
    if device.compute_capability()[0] != 9:
        sys.exit("This needs an H100 or H200; benchmarks/attention.md has an H200's results.")
    sheets = (peaks for key, peaks in machine.DATA_SHEETS.items() if key in device.name())
    ceiling = (next(sheets, None) or machine.profile()).flops_per_s["bf16"] / 1e12
    torch._dynamo.config.recompile_limit = 64  # for each shape and mask, FlexAttention is compiled
    torch._functorch.config.donated_buffer = False  # its backward is called many times
    parts: dict[str, Callable[[], Iterator[Row]]] = {
        "training": functools.partial(training, ceiling),
        "windows": functools.partial(windows, ceiling),
        "students": functools.partial(students, ceiling),
        "decoding": decoding,
    }
    parser = argparse.ArgumentParser()
    parser.add_argument("file", nargs="?", type=Path, default=FILE)
    parser.add_argument("--only", nargs="+", choices=list(parts), default=list(parts))
    options = parser.parse_args()
    rows: list[Row] = []
    for part in options.only:
        for row in parts[part]():
            rows.append(row)
            print(row, flush=True)
    versions = f"torch {torch.__version__}, triton {triton.__version__}"
    origin = f"{device.name()}, {versions}. Made by `python benchmarks/attention.py`."
    text = "\n\n".join([origin, table(rows)]) + "\n"
    print(text)
    options.file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
