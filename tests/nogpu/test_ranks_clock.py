"""The clock of functions of ranks, on two processes."""

import pytest
import torch

from nogpu.ranks import clock


def summed(dist, x):
    dist.all_reduce(x)


def sleeping(dist, x):
    import time

    time.sleep(1.0 if dist.get_rank() == 1 and x.numel() > 1 else 0.0)


def unwritten(dist, x):
    raise NotImplementedError


@pytest.mark.slow
def test_the_slowest_rank_counts_and_what_is_not_written_is_left_out():
    functions = {"sum": summed, "sleep": sleeping, "unwritten": unwritten}
    found = clock.seconds(functions, [4, 2**20], "gloo", 2, repeats=1)
    assert list(found) == ["sum", "sleep"] and all(len(times) == 2 for times in found.values())
    assert all(seconds > 0 for seconds in found["sum"])
    assert found["sleep"][0] < 1 <= found["sleep"][1]


def test_without_several_gpus_the_machine_is_gloo(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert clock.machine_here() == ("gloo", 4)


def test_where_nccl_fails_the_machine_is_gloo(monkeypatch, capsys):
    def fails(*args, **options):
        raise RuntimeError("no link")

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 16)
    monkeypatch.setattr(clock, "seconds", fails)
    assert clock.machine_here() == ("gloo", 4)
    assert "NCCL fails here, so gloo: no link" in capsys.readouterr().out
