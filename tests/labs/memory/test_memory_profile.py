"""What lab 09's pictures and checks measure of memory."""

import numpy as np
import pytest
import torch

from common.lessons.memory import arena, blocks, memory_profile, recomputed, symbolic


def test_on_a_gpu_what_is_reserved_and_not_allocated_is_held_for_nobody(monkeypatch):
    stats = {"reserved_bytes.all.current": 700, "allocated_bytes.all.current": 260}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda: stats)
    assert memory_profile.idle_bytes() == 440
    monkeypatch.setattr(torch.cuda, "memory_stats", dict)  # before the first allocation
    assert memory_profile.idle_bytes() == 0


def test_without_a_gpu_free_blocks_of_the_heap_are_seen_where_the_c_library_tells(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    small = [torch.ones(10_000) for _ in range(400)]  # 40 kB each: inside the heap
    before = memory_profile.idle_bytes()
    if before is None:
        pytest.skip("this C library has no mallinfo2")
    del small[::2]  # every second one: these gaps can't leave the heap
    after = memory_profile.idle_bytes()
    assert after is not None and after - before > 7_000_000
    assert len(small) == 200


def test_a_watch_adds_fragmentation_at_its_peak_if_the_allocator_tells(monkeypatch):
    model = torch.nn.Linear(4, 4)
    monkeypatch.setattr(memory_profile, "idle_bytes", lambda: 123)
    with memory_profile.Watch(model) as watch:
        model(torch.ones(2, 4)).sum().backward()
    assert watch.held == watch.peak | {"fragmentation": 123}
    monkeypatch.setattr(memory_profile, "idle_bytes", lambda: None)
    with memory_profile.Watch(model) as watch:
        model(torch.ones(2, 4)).sum().backward()
    assert watch.held == watch.peak


@pytest.mark.parametrize("at_once", [False, True])
def test_graphs_that_are_alive_at_once_are_counted(at_once):
    weights = [torch.rand(5, 6, requires_grad=True), torch.rand(6, 4, requires_grad=True)]
    loss = memory_profile.CountedLoss(recomputed.token_loss, 3)
    pieces = [(torch.rand(3, 5), torch.tensor([0, 1, 2])) for _ in range(4)]
    if at_once:
        torch.stack([loss(weights, *piece) for piece in pieces]).sum().backward()
    else:
        for piece in pieces:
            loss(weights, *piece).backward()
    assert loss.most == (4 if at_once else 1)


def test_a_fused_norm_multiplies_nothing_that_is_kept():
    ops = {op for op, _ in blocks.block(2, 8, 16, 4, 64, fused_norm=True)[0]}
    assert "multiply" not in ops and {"square", "rsqrt"} <= ops


@pytest.mark.parametrize("seed", range(20))
def test_a_symbolic_plan_holds_for_every_batch(seed):
    rng = np.random.default_rng(seed)
    buffers: list[symbolic.Lifetime] = [
        ((30 * size, 0) if rng.random() < 0.4 else (0, size), first, last)
        for size, first, last in arena.drawn_lifetimes(rng, 12)
    ]
    offsets = symbolic.plan(buffers, tries=20)
    for texts in range(1, 65):
        places = [symbolic.nbytes(at, texts) for at in offsets]
        assert arena.replay(symbolic.sized(buffers, texts), places) == ""


def test_if_all_sizes_grow_alike_one_plan_is_as_good_as_one_for_each_batch():
    buffers: list[symbolic.Lifetime] = [
        ((0, size), first, last)
        for size, first, last in arena.drawn_lifetimes(np.random.default_rng(1), 14)
    ]
    offsets = symbolic.plan(buffers)
    ratios = {
        symbolic.arena_bytes(buffers, offsets, texts)
        / max(arena.live_bytes(symbolic.sized(buffers, texts)))
        for texts in (1, 7, 100)
    }
    assert len(ratios) == 1 and max(ratios) < 1.1
