"""benchmarks/multi_gpu.py without GPUs: every race runs, on gloo; a wrong solution gets no time."""

import functools
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from benchmarks import multi_gpu, races
from common.paths import ROOT
from nogpu import ranks

on_gloo = functools.partial(ranks.run, noted=False, machine="gloo", world_size=2)


@pytest.mark.slow
def test_a_trial_of_all_parts():
    figures = multi_gpu.FILE.read_bytes() if multi_gpu.FILE.exists() else None
    run = subprocess.run(
        [sys.executable, "benchmarks/multi_gpu.py", "--gloo"],
        cwd=ROOT,
        text=True,
        capture_output=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert run.returncode == 0, run.stderr
    _, table, *causes = run.stdout.partition("A trial on gloo")[2].strip().split("\n\n")
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
    assert [row[0].split(",")[0].split(" of ")[0] for row in rows] == [
        "all-reduce",
        "all-reduce",
        "data-parallel step",
        "data-parallel step",
        "sharded step",
        "tensor-parallel block",
        *5 * ["1F1B"],
    ]
    assert all(row[1] == "2" and float(row[2]) > 0 for row in rows)
    assert len(causes) == 6 and all(
        len(causes[i].splitlines()) == 7 and "0.0588 |\n" in causes[i] for i in (1, 4)
    )
    assert figures == (multi_gpu.FILE.read_bytes() if multi_gpu.FILE.exists() else None), (
        "a trial is not a measurement"
    )


@pytest.mark.parametrize(
    "arguments, says",
    [
        ([], "needs two GPUs or more, and this machine has 0; benchmarks/multi_gpu.md has"),
        (["--gloo", "pipe"], "there is no part pipe; there are all-reduce, data-parallel"),
    ],
)
def test_it_says_what_it_can_not_do(arguments, says, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["multi_gpu.py", *arguments])
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(SystemExit) as ended:
        multi_gpu.main()
    assert says in f"{ended.value} {capsys.readouterr().err}"


def averaged(dist, x, groups=None):
    dist.all_reduce(x)
    return x.div_(dist.get_world_size())


@pytest.mark.slow
def test_what_is_wrong_gets_no_time(capsys):
    lab = SimpleNamespace(rings_all_reduce=averaged, ring_all_reduce=averaged)
    with pytest.raises(AssertionError, match="all-reduce: relative error 5.0e-01 in tensor 0"):
        on_gloo(races.all_reduce, lab, 1, 2**10, [])


def test_a_part_that_fails_is_reported_and_the_others_go_on(monkeypatch, capsys):
    def breaks(machine):
        yield multi_gpu.faster("half", 2.0, "a peer", 1.0, 0.9)
        raise AssertionError("the other half is wrong")

    monkeypatch.setattr(
        multi_gpu,
        "PARTS",
        {"breaks": breaks, "works": lambda machine: [multi_gpu.faster("all", 1.0, "it", 2.0, 0.9)]},
    )
    rows, below, failed = multi_gpu.measured(
        multi_gpu.Machine("gloo", 2), ["breaks", "works"], {"breaks": (), "works": ()}
    )
    assert (
        [(row.what, row.ratio) for row in rows] == [("half", 0.5), ("all", 2.0)]
        and below == []
        and failed == ["breaks"]
    )
    assert "the other half is wrong" in capsys.readouterr().err


def test_the_share_of_time_without_a_task():
    spans = [
        [ranks.Span(0, "task", 0.0, 3.0), ranks.Span(0, "task", 4.0, 5.0)],
        [ranks.Span(1, "task", 2.0, 8.0)],
    ]
    assert multi_gpu.idle(spans) == pytest.approx(1 - (4 + 6) / 16)


@pytest.fixture(scope="module")
def lab():
    return multi_gpu.from_lab("15", "Stage", "run_stage", "one_f_one_b", "open_links", "bubble")


def tasks(forward_s, backward_s, microbatches):
    return {
        f"{kind}{i}": s
        for kind, s in (("F", forward_s), ("B", backward_s))
        for i in range(microbatches)
    }


@pytest.mark.parametrize(
    "f, b, c", [(1.0, 2.0, 0.0), (1.0, 2.0, 0.03), (2.0, 1.0, 0.7), (0.3, 2.0, 5.0)]
)
@pytest.mark.parametrize(
    "p, m", [(2, 2), (2, 16), (3, 3), (3, 7), (4, 4), (4, 16), (8, 8), (8, 16)]
)
def test_the_time_of_1f1b_with_messages(lab, p, m, f, b, c):
    spans = multi_gpu.simulated(lab, [tasks(f, b, m)] * p, c)
    chain = m + 1 if p == 2 else 2 * (m + p) - 5
    time_s = (m + p - 1) * (f + b) + chain * c
    assert max(span.end_s for own in spans for span in own) == pytest.approx(time_s)
    assert multi_gpu.idle(spans) == pytest.approx(1 - m * (f + b) / time_s)
    assert multi_gpu.messages(spans) == pytest.approx([c] * 2 * m * (p - 1))
    assert sum(multi_gpu.waits(spans)) == pytest.approx(time_s - m * (f + b))
    if not c:
        assert multi_gpu.idle(spans) == pytest.approx(lab.bubble(p, m, replicas=1))
        assert multi_gpu.waits(spans) == pytest.approx(
            [(p - 1) * (f + b) / 2, 0.0, (p - 1) * (f + b) / 2]
        )


def test_idle_time_is_explained_cause_by_cause(lab):
    m, alone = races.MICROBATCHES, [(1.0, 2.0), (1.25, 2.25), (1.0, 2.0)]
    within = [{task: 1.1 * s for task, s in tasks(f, b, m).items()} for f, b in alone]
    spans = [
        ranks.Span(rank, f"alone {task}", 0.0, s)
        for rank, own in enumerate(alone)
        for task, s in tasks(*own, m).items()
    ]
    for step in range(2):  # the first warms up; each rank's clock is off by a time of its own
        for rank, own in enumerate(multi_gpu.simulated(lab, within, 0.5 if step else 9.0)):
            begin_s = 1e3 * step + 7.0 * rank
            spans.append(ranks.Span(rank, "step", begin_s, begin_s + 999.0))
            spans += [
                ranks.Span(rank, span.name, begin_s + span.start_s, begin_s + span.end_s)
                for span in own
            ]
    result = ranks.Result([{"message": 0.1}], ranks.Trace(3, spans=spans))
    medians = multi_gpu.by_itself(result)
    causes = multi_gpu.by_cause(lab, result, medians)
    shares = list(map(multi_gpu.idle, causes.values()))
    slower = multi_gpu.simulated(lab, [tasks(*own, m) for own in alone], 0.0)
    assert shares[0] == pytest.approx(lab.bubble(3, m, replicas=1)) and shares[1] == pytest.approx(
        multi_gpu.idle(slower)
    )
    assert (
        shares[0] < shares[1] < shares[3] < shares[2] < shares[4]
    )  # next to longer tasks the same messages count for less
    assert multi_gpu.messages(causes["measured"]) == pytest.approx([0.5] * 2 * m * 2)
    waits = multi_gpu.waits(causes["measured"])
    text = multi_gpu.explanation("1F1B", causes, medians, 0.1, 2e6)
    assert f"| measured | {' | '.join(f'{1e3 * s:.2f}' for s in waits)} | {shares[4]:.4f} |" in text
    assert (
        "forward takes 1000.00, 1250.00, 1000.00 ms" in text
        and "2 MB 100.000 ms, within the pipeline 500.000 ms" in text
    )


def test_a_message_goes_there_and_back():
    def hops(dist):
        links = multi_gpu.from_lab("15", "open_links").open_links(dist)
        races.there_and_back(dist, links, torch.full((2,), float(dist.get_rank())))

    assert [
        ranks.run(hops, world_size=p, alpha_s=1.0, beta_s_per_byte=0.0).time_s for p in (2, 4)
    ] == [2.0, 6.0]


@pytest.mark.slow
def test_the_stages_that_are_watched_do_equal_work(lab, monkeypatch):
    monkeypatch.setattr(races, "MICROBATCHES", 4)
    trace = ranks.run(
        races.pipeline,
        lab,
        1,
        8,
        1,
        2,
        torch.float32,
        False,
        world_size=3,
        flops_per_s=1e9,
        live_bytes=False,
    ).trace
    work_s = [
        [
            sum(span.duration_s for span in trace.compute_named(f"{task}*", rank))
            for rank in range(3)
        ]
        for task in ("alone F", "alone B", "F", "B")
    ]
    assert all(own == pytest.approx([own[0]] * 3) for own in work_s) and work_s[3][
        0
    ] == pytest.approx(4 * work_s[0][0])  # 2 steps, and backward is two products
    assert [len(trace.spans_named("step", rank)) for rank in range(3)] == [2] * 3


def test_medians_of_the_slowest_rank():
    assert on_gloo(naps).returns[0]["nap"] == pytest.approx(0.02, rel=0.5)


def naps(dist):
    return races.race(
        dist, {"nap": lambda: ranks.compute(0.02 * dist.get_rank()), "none": lambda: None}, rounds=3
    )


def test_tensors_are_compared_to_their_rounding():
    x = torch.rand(100)
    races.validate([x, x.bfloat16()], [x.double(), x], "x")
    for wrong in (x * 1.001, x + torch.nan, x * torch.nan):
        with pytest.raises(AssertionError, match="x: relative error"):
            races.validate([wrong], [x], "x")
