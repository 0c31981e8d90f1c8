"""Ranks that are processes: gloo does what the simulated machine does, and every run ends."""

import datetime
import os
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import warnings
from pathlib import Path

import cloudpickle
import psutil
import pytest
import torch

from common.paths import ROOT
from nogpu import ranks
from tests.nogpu import test_ranks as simulated
from tests.processes import alive, until

for module in (simulated, sys.modules[__name__]):
    cloudpickle.register_pickle_by_value(module)  # as functions of a notebook are


def same(got, want):
    if isinstance(want, torch.Tensor):
        return torch.allclose(got, want)
    if isinstance(want, dict):
        return got.keys() == want.keys() and all(same(got[key], want[key]) for key in want)
    if isinstance(want, (list, tuple)):
        return len(got) == len(want) and all(map(same, got, want))
    return got == want


@pytest.mark.slow
@pytest.mark.parametrize("p, n", [(3, 5), (4, 0), (1, 3)])
def test_gloo_returns_and_counts_the_same(p, n):
    virtual, real = (
        ranks.run(simulated.every_function, n, world_size=p, machine=machine)
        for machine in ("simulated", "gloo")
    )
    assert same(real.returns, virtual.returns)
    assert real.trace.machine == "gloo" and real.trace.bytes_sent == virtual.trace.bytes_sent
    assert real.trace.rounds == virtual.trace.rounds
    assert sorted(call.name for call in real.trace.collectives) == sorted(
        call.name for call in virtual.trace.collectives
    )
    assert all(
        0 <= message.start_s <= message.end_s <= real.time_s for message in real.trace.messages
    )
    assert ranks.Trace.from_dict(real.trace.as_dict()) == real.trace


def test_an_all_to_all_that_the_backend_does_not_have():
    def refuses(*_):
        raise RuntimeError("Backend gloo does not support alltoall")  # as with PyTorch 2.11

    def exchange(dist):
        setattr(torch.distributed, "all_to_all", refuses)  # noqa: B010 - of another type
        me, pair, got = dist.get_rank(), dist.new_group([0, 2]), []
        for group, members in (
            [(None, [0, 1, 2]), (pair, [0, 2])] if me != 1 else [(None, [0, 1, 2])]
        ):
            for asynchronous in (False, True):
                out = [torch.zeros(me + r, 2) for r in members]
                work = dist.all_to_all(
                    out,
                    [torch.full((me + r, 2), 10.0 * me + r) for r in members],
                    group,
                    asynchronous,
                )
                assert work.wait() if asynchronous else work is None
                got += [
                    torch.equal(tensor, torch.full((me + r, 2), 10.0 * r + me))
                    for r, tensor in zip(members, out, strict=True)
                ]
        return got

    result = ranks.run(exchange, world_size=3, machine="gloo")
    assert result.returns == [[True] * count for count in (10, 6, 10)]
    assert [call.name for call in result.trace.collectives] == ["all_to_all"] * 10


def test_pytorch_s_renamed_functions_do_not_warn():
    def gather(dist):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            dist.all_gather_into_tensor(x := torch.empty(2), torch.ones(1))
            dist.reduce_scatter_tensor(y := torch.empty(1), x)
        return y.item()

    assert ranks.run(gather, world_size=2, machine="gloo").returns == [2.0, 2.0]


def test_a_message_has_the_name_that_it_was_called_by():
    def pair(dist):
        if dist.get_rank() == 0:
            dist.send(torch.ones(1), dst=1)
            dist.isend(torch.ones(1), group_dst=1).wait(timeout=datetime.timedelta(seconds=30))
        else:
            dist.recv(x := torch.empty(1), src=0)
            dist.irecv(x, group_src=0).wait()

    virtual, real = (
        ranks.run(pair, world_size=2, machine=machine) for machine in ("simulated", "gloo")
    )
    assert (
        [m.what for m in real.trace.messages]
        == [m.what for m in virtual.trace.messages]
        == ["send", "isend"]
    )
    assert [m.line for m in real.trace.messages] == [m.line for m in virtual.trace.messages]


WRONG_CALLS = {  # what it says, on both machines
    "send: rank 5 is not one of [0, 1]": lambda dist: dist.send(torch.ones(1), 5),
    "send: rank 1.0; it must be a whole number": lambda dist: dist.send(torch.ones(1), 1.0),
    "recv: tag -1; it must be a number from 0 on": lambda dist: dist.recv(
        torch.ones(1), 1 - dist.get_rank(), tag=-1
    ),
    "ranks: []; they must be different numbers": lambda dist: dist.new_group([]),
    "p2p_op_list: it must be a list of at least one dist.P2POp": lambda dist: (
        dist.batch_isend_irecv([dist.isend])
    ),
    "all_reduce: a list where a tensor belongs": lambda dist: dist.all_reduce([1.0]),
}


@pytest.mark.parametrize("says", WRONG_CALLS)
def test_a_wrong_call_is_reported_in_the_same_words(says):
    for machine in ("simulated", "gloo"):
        with pytest.raises((TypeError, ValueError), match=re.escape(says)):
            ranks.run(WRONG_CALLS[says], world_size=2, machine=machine)


def test_a_process_of_a_rank_starts_no_others():
    def nested(dist, machine):
        return ranks.run(lambda dist: dist.get_rank(), world_size=2, machine=machine).returns

    assert ranks.run(nested, "simulated", world_size=2, machine="gloo").returns == [[0, 1], [0, 1]]
    with pytest.raises(ValueError, match="machine='gloo': this is a rank's process already"):
        ranks.run(nested, "gloo", world_size=2, machine="gloo")


def test_programs_drawn_at_random_agree():
    for seed in range(3):
        virtual, real = (
            ranks.run(simulated.random_program, seed, 20, world_size=3, machine=machine)
            for machine in ("simulated", "gloo")
        )
        assert (
            same(real.returns, virtual.returns)
            and real.trace.bytes_sent == virtual.trace.bytes_sent
        )


def test_computing_takes_time_and_is_measured():
    def step(dist):
        with ranks.span("F"):
            ranks.compute(0.02)
        dist.barrier()
        ranks.compute(0.03, "B")

    trace = ranks.run(step, world_size=2, machine="gloo").trace
    assert all(busy_s >= 0.05 for busy_s in trace.compute_s)
    assert [span.name for span in trace.compute if span.rank == 1] == ["F", "B"] and len(
        trace.spans_named("F")
    ) == 2


def test_autograd_s_hooks_and_live_bytes():
    def step(dist):
        w = torch.nn.Parameter(torch.ones(10, 10))
        w.register_post_accumulate_grad_hook(lambda p: dist.all_reduce(p.grad))
        (torch.ones(2, 10) @ w).sum().backward()
        return w.grad

    result = ranks.run(step, world_size=2, machine="gloo", live_bytes=True)
    assert (
        torch.equal(result.returns[1], torch.full((10, 10), 4.0))
        and min(result.trace.peak_live_bytes) >= 800
    )


def test_few_names_and_none_noted():
    def step(dist):
        dist.all_reduce(x := torch.ones(1))
        return x.item(), dist is torch.distributed

    with pytest.raises(AttributeError, match="this dist has no all_reduce: it has only send"):
        ranks.run(step, world_size=2, machine="gloo", only=["send"])
    result = ranks.run(step, world_size=2, machine="gloo", noted=False)
    assert result.returns == [(2.0, True)] * 2 and result.trace.messages == []


def test_what_a_rank_prints_says_who(capsys):
    def speak(dist):
        print("I am", dist.get_rank())
        print("careful", file=sys.stderr, end="")

    ranks.run(speak, world_size=2, machine="gloo")
    assert sorted(capsys.readouterr().out.splitlines()) == [
        "[rank 0] I am 0",
        "[rank 0] careful",
        "[rank 1] I am 1",
        "[rank 1] careful",
    ]


def test_a_rank_that_raises_is_shown_and_the_others_end():
    def fail(dist):
        if dist.get_rank() == 1:
            raise ValueError("no such layer")
        dist.barrier()

    with pytest.raises(ValueError, match="no such layer") as raised:
        ranks.run(fail, world_size=3, machine="gloo")
    shown = str(raised.value.__cause__)
    assert (
        shown.startswith("rank 1:\nTraceback")
        and 'raise ValueError("no such layer")' in shown
        and "process.py" not in shown
    )


def test_an_exception_that_can_not_cross_is_reported_as_text():
    def fail(dist):
        class Odd(Exception):
            def __reduce__(self):
                raise TypeError

        raise Odd("strange")

    with pytest.raises(ranks.RankFailedError, match="rank [01]: .*Odd: strange"):
        ranks.run(fail, world_size=2, machine="gloo")


@pytest.mark.parametrize(
    "how, says",
    [
        ("os._exit(7)", "exit code 7"),
        ("os.kill(os.getpid(), 11)", "signal 11"),
        ("sys.exit(3)", "SystemExit: 3"),
    ],
)
def test_a_rank_that_ends_its_process_is_named(how, says):
    def leave(dist):
        if dist.get_rank() == 2:
            exec(how, {"os": os, "sys": sys})
        dist.barrier()

    with pytest.raises(ranks.RankFailedError, match=f"rank 2.*{says}"):
        ranks.run(leave, world_size=3, machine="gloo")


def test_a_run_that_hangs_says_where_each_rank_is():
    def hang(dist):
        x = torch.zeros(1)
        if dist.get_rank() == 0:
            dist.recv(x, 1)
        while dist.get_rank() == 1:
            pass

    with pytest.raises(ranks.RankFailedError) as raised:
        ranks.run(hang, world_size=3, machine="gloo", timeout_s=2)
    lines = str(raised.value).splitlines()
    assert (
        lines[0] == "not over after 2 s:"
        and lines[1].endswith("dist.recv(x, 1)")
        and lines[3] == "  rank 2 has returned"
    )


def test_an_interrupt_ends_the_ranks():
    def sleep(dist, folder):
        (folder / str(os.getpid())).touch()
        time.sleep(1000)

    def interrupt():
        while len(list(folder.iterdir())) < 2:
            time.sleep(0.02)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        waiting = threading.Thread(target=interrupt)
        waiting.start()
        with pytest.raises(KeyboardInterrupt):
            ranks.run(sleep, folder, world_size=2, machine="gloo", timeout_s=100)
        waiting.join()
        assert not any(psutil.pid_exists(int(path.name)) for path in folder.iterdir())


PROGRAM = """
import os, time
from nogpu import ranks
print("once")  # this program has no `if __name__ == "__main__"`, and is not run again by the ranks
def sleep(dist):
    print(os.getpid(), os.getppid())
    time.sleep(1000)
assert ranks.run(lambda dist: dist.get_rank(), machine="gloo").returns == [0, 1, 2, 3]
ranks.run(sleep, world_size=2, machine="gloo", timeout_s=900)
"""


@pytest.mark.slow
@pytest.mark.skipif(
    sys.platform != "linux", reason="what a killed process leaves is ended by Linux"
)
def test_a_program_that_is_killed_leaves_no_orphan():
    program = subprocess.Popen(
        [sys.executable, "-uc", PROGRAM], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert program.stdout is not None
    once, *lines = [program.stdout.readline().split() for _ in range(3)]
    assert once == ["once"] and {line[1] for line in lines} == {"0]", "1]"}
    pids = {pid for line in lines for pid in line[2:]}  # of the ranks, and of their fork server
    started = [psutil.Process(int(pid)) for pid in pids]
    assert len(started) == 3 and all(map(alive, started))
    program.kill()
    program.wait()
    until(lambda: not any(map(alive, started)))


@pytest.mark.slow
def test_torchrun_starts_the_same_function(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent("""
        import os
        import torch
        from nogpu import ranks
        def total(dist, x):
            dist.all_reduce(x)
            return x.item()
        xs = ranks.each([torch.tensor([1.0]), torch.tensor([2.0])])
        result = ranks.run(total, xs, world_size=2, machine="gloo")
        line = f"{os.environ['RANK']} {result.returns} {result.trace.rounds}"
        os.write(1, line.encode() + bytes([10]))  # at once: two processes write
        """)
    )
    run = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", str(program)],
        cwd=ROOT,
        text=True,
        capture_output=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )
    assert sorted(run.stdout.splitlines()) == ["0 [3.0, 3.0] 2", "1 [3.0, 3.0] 2"], run.stderr


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_nccl_returns_the_same():
    virtual, real = (
        ranks.run(simulated.random_program, 1, 20, world_size=2, machine=machine)
        for machine in ("simulated", "nccl")
    )
    assert same(real.returns, virtual.returns)


def test_nccl_wants_a_gpu_for_each_rank():
    with pytest.raises(ValueError, match=r"there are \d+ GPUs for 64 ranks"):
        ranks.run(simulated.every_function, 1, world_size=64, machine="nccl")
