"""A norm, a gated hidden layer, a norm and a cross-entropy, with a backward of their own.

Forward keeps x, the two products of the hidden layer, and the gradients that the cross-entropy
already has. Backward computes again what is element-wise: the first norm, SiLU and the product.
"""

# ruff: noqa: ANN001, ANN201
# pyrefly: ignore-errors

from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

EPSILON = 1e-5
CHUNK = 4096  # tokens whose scores exist at once


@triton.jit
def gated_kernel(gate, up, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    g = tl.load(gate + i, mask=i < n, other=0.0).to(tl.float32)
    u = tl.load(up + i, mask=i < n, other=0.0).to(tl.float32)
    y = g * tl.sigmoid(g) * u
    tl.store(out + i, y.to(out.dtype.element_ty), mask=i < n)


@triton.jit
def gated_backward_kernel(gate, up, slope, out, d_gate, n, BLOCK: tl.constexpr):
    """Writes the product again into out, d_gate, and the slope of up over slope."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    g = tl.load(gate + i, mask=i < n, other=0.0).to(tl.float32)
    u = tl.load(up + i, mask=i < n, other=0.0).to(tl.float32)
    d = tl.load(slope + i, mask=i < n, other=0.0).to(tl.float32)
    s = tl.sigmoid(g)
    silu = g * s
    tl.store(out + i, (silu * u).to(out.dtype.element_ty), mask=i < n)
    tl.store(d_gate + i, (d * u * (s + silu * (1 - s))).to(out.dtype.element_ty), mask=i < n)
    tl.store(slope + i, (d * silu).to(out.dtype.element_ty), mask=i < n)


@triton.jit
def cross_entropy_kernel(scores, targets, losses, width, scale, BLOCK: tl.constexpr):
    """One program per row: its loss, and the gradient of scale · loss over the scores."""
    row = tl.program_id(0).to(tl.int64)
    start = scores + row * width
    most = tl.full((), float("-inf"), tl.float32)
    total = tl.zeros((), tl.float32)
    for first in range(0, width, BLOCK):
        i = first + tl.arange(0, BLOCK)
        x = tl.load(start + i, mask=i < width, other=float("-inf")).to(tl.float32)
        new = tl.maximum(most, tl.max(x))
        total = total * tl.exp(most - new) + tl.sum(tl.exp(x - new))
        most = new
    target = tl.load(targets + row)
    at_target = tl.load(start + target).to(tl.float32)
    tl.store(losses + row, most + tl.log(total) - at_target)
    for first in range(0, width, BLOCK):
        i = first + tl.arange(0, BLOCK)
        x = tl.load(start + i, mask=i < width, other=0.0).to(tl.float32)
        g = (tl.exp(x - most) / total - tl.where(i == target, 1.0, 0.0)) * scale
        tl.store(start + i, g.to(scores.dtype.element_ty), mask=i < width)


def gated(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) · up."""
    if not gate.is_cuda:
        return F.silu(gate) * up
    out, n = torch.empty_like(gate), gate.numel()
    gated_kernel[(triton.cdiv(n, 4096),)](gate, up, out, n, BLOCK=4096, num_warps=8)
    return out


def gated_backward(gate: Tensor, up: Tensor, slope: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(silu(gate) · up, the gradient by gate, by up); slope is overwritten."""
    if not gate.is_cuda:
        s = torch.sigmoid(gate)
        silu = gate * s
        return silu * up, slope * up * (s + silu * (1 - s)), slope * silu
    out, d_gate, n = torch.empty_like(gate), torch.empty_like(gate), gate.numel()
    grid = (triton.cdiv(n, 2048),)
    gated_backward_kernel[grid](gate, up, slope, out, d_gate, n, BLOCK=2048, num_warps=8)
    return out, d_gate, slope


def cross_entropy(scores: Tensor, targets: Tensor, scale: float) -> Tensor:
    """Each row's loss; scores become the gradient of scale · the sum of losses."""
    if not scores.is_cuda:
        log_p = scores.log_softmax(-1)
        losses = -log_p.gather(1, targets[:, None])[:, 0]
        scores.copy_((log_p.exp() - F.one_hot(targets, scores.shape[1])) * scale)
        return losses
    losses = torch.empty(len(scores), dtype=torch.float32, device=scores.device)
    cross_entropy_kernel[(len(scores),)](
        scores, targets, losses, scores.shape[1], scale, BLOCK=8192, num_warps=16
    )
    return losses


def head(h: Tensor, gain: Tensor, scores: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
    """(mean loss, its gradients by h, gain and scores), for some tokens at a time."""
    d_h, d_scores, d_gain = torch.empty_like(h), torch.empty_like(scores), torch.zeros_like(gain)
    total = torch.zeros((), dtype=torch.float32, device=h.device)
    for first in range(0, len(h), CHUNK):
        rows = slice(first, first + CHUNK)
        with torch.enable_grad():
            part, own = h[rows].detach().requires_grad_(), gain.detach().requires_grad_()
            normed = F.rms_norm(part, part.shape[-1:], own, EPSILON)
        values = normed.detach() @ scores.T
        total += cross_entropy(values, targets[rows], 1 / len(h)).sum()
        d_normed = values @ scores
        if first:
            d_scores.addmm_(values.T, normed.detach())
        else:
            torch.mm(values.T, normed.detach(), out=d_scores)
        d_h[rows], more = torch.autograd.grad(normed, [part, own], d_normed)
        d_gain += more
    return total / len(h), d_h, d_gain, d_scores


class FusedBlock(torch.autograd.Function):
    """The loss of x (tokens, width) after the block; weights as `eager` takes them."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, *weights_and_targets: Tensor) -> Tensor:
        gain, gate, up, down, last_gain, scores, targets = weights_and_targets
        normed = F.rms_norm(x, x.shape[-1:], gain, EPSILON)
        g, u = normed @ gate.T, normed @ up.T
        h = torch.addmm(x, gated(g, u), down.T)
        loss, *known = head(h, last_gain, scores, targets)
        ctx.save_for_backward(x, gain, gate, up, down, g, u, *known)
        return loss

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Any:
        x, gain, gate, up, down, g, u, *known = ctx.saved_tensors
        d_h, d_last_gain, d_scores = (part.mul_(slopes[0]) for part in known)
        with torch.enable_grad():
            x, gain = x.detach().requires_grad_(), gain.detach().requires_grad_()
            normed = F.rms_norm(x, x.shape[-1:], gain, EPSILON)
        product, d_g, d_u = gated_backward(g, u, d_h @ down)
        d_down = d_h.T @ product
        d_normed = torch.addmm(d_g @ gate, d_u, up)
        d_gate, d_up = d_g.T @ normed.detach(), d_u.T @ normed.detach()
        d_x, d_gain = torch.autograd.grad(normed, [x, gain], d_normed)
        return d_x.add_(d_h), d_gain, d_gate, d_up, d_down, d_last_gain, d_scores, None


def eager(x: Tensor, *weights_and_targets: Tensor) -> Tensor:
    """The same by PyTorch's operators; the cross-entropy in float32, as usual."""
    gain, gate, up, down, last_gain, scores, targets = weights_and_targets
    normed = F.rms_norm(x, x.shape[-1:], gain, EPSILON)
    h = x + (F.silu(normed @ gate.T) * (normed @ up.T)) @ down.T
    last = F.rms_norm(h, h.shape[-1:], last_gain, EPSILON)
    values = last @ scores.T
    wide = torch.promote_types(values.dtype, torch.float32)
    return F.cross_entropy(values.to(wide), targets)
