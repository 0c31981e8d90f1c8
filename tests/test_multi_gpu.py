"""benchmarks/multi_gpu.py without GPUs: every race runs, on gloo; a wrong solution gets no time."""
import functools
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from benchmarks import multi_gpu, races
from common import ranks
from grading.lab import ROOT

on_gloo = functools.partial(ranks.run, noted=False, machine="gloo", world_size=2)


def test_a_trial_of_all_parts():
    figures = multi_gpu.FILE.read_bytes() if multi_gpu.FILE.exists() else None
    run = subprocess.run([sys.executable, "benchmarks/multi_gpu.py", "--gloo"], cwd=ROOT, text=True, capture_output=True,
                         timeout=120, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert run.returncode == 0, run.stderr
    rows = [line.strip("| ").split(" | ") for line in run.stdout.rstrip().rpartition("\n\n")[2].splitlines()[2:]]
    assert [row[0].split(",")[0].split(" of ")[0] for row in rows] == [
        "all-reduce", "all-reduce", "data-parallel step", "data-parallel step", "tensor-parallel block", *2 * ["1F1B"]]
    assert all(row[1] == "2" and float(row[2]) > 0 for row in rows)
    assert figures == (multi_gpu.FILE.read_bytes() if multi_gpu.FILE.exists() else None), "a trial is no measurement"


@pytest.mark.parametrize("arguments, says", [
    ([], "needs two GPUs or more, and none are here; benchmarks/multi_gpu.md has the figures"),
    (["--gloo", "pipe"], "there is no part pipe; there are all-reduce, data-parallel")])
def test_what_it_can_not_do_it_says(arguments, says, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["multi_gpu.py", *arguments])
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(SystemExit) as ended:
        multi_gpu.main()
    assert says in f"{ended.value} {capsys.readouterr().err}"


def averaged(dist, x, groups=None):
    dist.all_reduce(x)
    return x.div_(dist.get_world_size())


def test_what_is_wrong_gets_no_time(capsys):
    lab = SimpleNamespace(rings_all_reduce=averaged, ring_all_reduce=averaged)
    with pytest.raises(AssertionError, match="all-reduce: relative error 5.0e-01 in tensor 0"):
        on_gloo(races.all_reduce, lab, 1, 2**10, [])


def test_a_part_that_fails_is_told_and_the_others_go_on(monkeypatch, capsys):
    def breaks(run):
        yield multi_gpu.faster("half", 2.0, "a peer", 1.0, 0.9)
        raise AssertionError("the other half is wrong")
    monkeypatch.setattr(multi_gpu, "PARTS", {"breaks": breaks, "works": lambda run: [multi_gpu.faster("all", 1.0, "it", 2.0, 0.9)]})
    rows, failed = multi_gpu.measured(SimpleNamespace(world_size=2), ["breaks", "works"], {"breaks": (), "works": ()})
    assert [(row.what, row.ratio) for row in rows] == [("half", 0.5), ("all", 2.0)] and failed == ["breaks"]
    assert "the other half is wrong" in capsys.readouterr().err


def test_the_share_of_time_without_a_task():
    spans = [[ranks.Span(0, "task", 0.0, 3.0), ranks.Span(0, "task", 4.0, 5.0)], [ranks.Span(1, "task", 2.0, 8.0)]]
    assert multi_gpu.idle(spans) == pytest.approx(1 - (4 + 6) / 16)


def test_medians_of_the_slowest_rank():
    assert on_gloo(naps).returns[0]["nap"] == pytest.approx(0.02, rel=0.5)


def naps(dist):
    return races.race(dist, {"nap": lambda: ranks.compute(0.02 * dist.get_rank()), "none": lambda: None}, rounds=3)


def test_tensors_are_compared_to_their_rounding():
    x = torch.rand(100)
    races.insist([x, x.bfloat16()], [x.double(), x], "x")
    for wrong in (x * 1.001, x + torch.nan, x * torch.nan):
        with pytest.raises(AssertionError, match="x: relative error"):
            races.insist([wrong], [x], "x")
