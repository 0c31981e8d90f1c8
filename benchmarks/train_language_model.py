"""Trains the course's language model and writes common/samples/language_model.npz.

    python benchmarks/train_language_model.py [STEPS]

It prints the loss on the last tenth of the novel, which is held out, and the file's hash for
common/samples. It keeps the weights with the least held-out loss. About a minute on a GPU.
"""

import hashlib
import math
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common import language_model
from common.language_model.transformer import named
from common.paths import ROOT

FILE = ROOT / "common" / "samples" / "language_model.npz"
BATCH, RATE, WARM_UP, EVERY = 128, 2e-3, 100, 100
DECAY, DROPPED = 0.1, 0.1  # weight decay; share of the input's numbers that are dropped


def main(steps: int = 2500) -> int:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    text = torch.from_numpy(language_model.tokens(0, len(language_model.text()))).to(device)
    held_out = len(text) // 10
    learn, judge = text[:-held_out], text[-held_out:]
    model = language_model.module(trained=False).to(device)
    matrices = [p for p in model.parameters() if p.ndim == 2]
    gains = [p for p in model.parameters() if p.ndim == 1]
    groups = [
        {"params": matrices, "weight_decay": DECAY},
        {"params": gains, "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.99))
    best, start = math.inf, time.perf_counter()
    for step in range(steps + 1):
        if step % EVERY == 0 and (now := mean_loss(model, judge)) < best:
            best = now
            save(model)
        if step % EVERY == 0:
            seconds = time.perf_counter() - start
            print(f"step {step}: held out {now:.4f}, best {best:.4f}, {seconds:.0f} s", flush=True)
        for group in optimizer.param_groups:
            group["lr"] = RATE * rate(step, steps)
        loss(model, windows(learn, BATCH)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    print(f"{best / math.log(2):.3f} bits per held-out character")
    print("sha256", hashlib.sha256(FILE.read_bytes()).hexdigest())
    return 0


def rate(step: int, steps: int) -> float:
    """The learning rate's factor: a linear start, then half a cosine down to a tenth."""
    return min(step / WARM_UP, 0.55 + 0.45 * math.cos(math.pi * step / steps))


def windows(text: Tensor, count: int) -> Tensor:
    """Random pieces of the text, (count, context + 1)."""
    length = language_model.CONFIG.context + 1
    starts = torch.randint(len(text) - length + 1, (count, 1), device=text.device)
    return text[starts + torch.arange(length, device=text.device)]


def loss(model: nn.Sequential, pieces: Tensor) -> Tensor:
    """Mean cross-entropy of each next character, in nats."""
    if model.training:  # characters read wrongly now and then: the model can't learn by heart
        noise = torch.rand(pieces.shape, device=pieces.device) < DROPPED
        inputs = torch.where(noise, pieces[torch.randperm(len(pieces))], pieces)[:, :-1]
    else:
        inputs = pieces[:, :-1]
    return F.cross_entropy(model(inputs).flatten(0, 1), pieces[:, 1:].flatten())


@torch.no_grad()
def mean_loss(model: nn.Sequential, text: Tensor) -> float:
    model.eval()
    length = language_model.CONFIG.context + 1
    pieces = text[: len(text) // length * length].view(-1, length)
    mean = float(loss(model, pieces))
    model.train()
    return mean


def save(model: nn.Sequential) -> None:
    arrays = {name: p.detach().half().cpu().numpy() for name, p in named(model)}
    np.savez_compressed(FILE, allow_pickle=False, **arrays)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
