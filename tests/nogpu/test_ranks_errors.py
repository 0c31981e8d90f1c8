"""What goes wrong between ranks is reported at once, by rank and line."""

import linecache
import signal
import textwrap
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from nogpu import ranks
from nogpu.ranks import simulated

DEADLOCKS = {
    "everyone receives first": (
        """
        def f(dist):
            me, p, x = dist.get_rank(), dist.get_world_size(), torch.zeros(2)
            dist.recv(x, (me + 1) % p)
            dist.send(x, (me - 1) % p)
        """,
        ranks.DeadlockError,
        """
        deadlock: rank 0 → rank 1 → rank 2 → rank 0, each waits for the next
          rank 0 waits for a message from rank 1 (line 3: dist.recv(x, (me + 1) % p))
          rank 1 waits for a message from rank 2 (line 3: dist.recv(x, (me + 1) % p))
          rank 2 waits for a message from rank 0 (line 3: dist.recv(x, (me + 1) % p))""",
    ),
    "everyone sends first": (
        """
        def f(dist):
            me, p, x = dist.get_rank(), dist.get_world_size(), torch.zeros(2)
            dist.send(x, (me + 1) % p)
            dist.recv(x, (me - 1) % p)
        """,
        ranks.DeadlockError,
        "rank 2 waits for rank 0 to receive its message (line 3: dist.send(x, (me + 1) % p))",
    ),
    "a wait far from its irecv": (
        """
        def f(dist):
            x = torch.zeros(2)
            if dist.get_rank() == 1:
                w = dist.irecv(x, 0, tag=5)
                w.wait()
        """,
        ranks.DeadlockError,
        """
        deadlock: what these ranks wait for never comes
          rank 1 waits for a message with tag 5 from rank 0 (line 4: w = dist.irecv(x, 0, tag=5))
          rank 0 has returned""",
    ),
    "a rank that forgets the all-reduce": (
        """
        def f(dist):
            if dist.get_rank() != 1:
                dist.all_reduce(torch.zeros(2))
        """,
        ranks.DeadlockError,
        """
        deadlock: what these ranks wait for never comes
          rank 0 waits in all_reduce for rank 1 (line 3: dist.all_reduce(torch.zeros(2)))
          rank 2 waits in all_reduce for rank 1 (line 3: dist.all_reduce(torch.zeros(2)))
          rank 1 has returned""",
    ),
    "a message in the way of a barrier": (
        """
        def f(dist):
            if dist.get_rank() == 0:
                dist.barrier()
                dist.send(torch.zeros(2), 1)
            else:
                if dist.get_rank() == 1:
                    dist.recv(torch.zeros(2), 0)
                dist.barrier()
        """,
        ranks.DeadlockError,
        """
        deadlock: rank 0 → rank 1 → rank 0, each waits for the next
          rank 0 waits in barrier for rank 1 (line 3: dist.barrier())
          rank 1 waits for a message from rank 0 (line 7: dist.recv(torch.zeros(2), 0))
          rank 2 waits in barrier for rank 1 (line 8: dist.barrier())""",
    ),
    "another tag": (
        """
        def f(dist):
            if dist.get_rank() == 0:
                dist.send(torch.zeros(2), 1, tag=1)
            if dist.get_rank() == 1:
                dist.recv(torch.zeros(2), 0, tag=2)
        """,
        ranks.DeadlockError,
        "rank 0 waits for rank 1 to receive its message with tag 1",
    ),
    "another collective": (
        """
        def f(dist):
            if dist.get_rank() == 2:
                dist.broadcast(torch.zeros(2), 0)
            dist.all_reduce(torch.zeros(2))
        """,
        ranks.MismatchError,
        "1st collective of the group: "
        "rank 0 calls all_reduce (line 4: dist.all_reduce(torch.zeros(2))), "
        "rank 2 calls broadcast (line 3: dist.broadcast(torch.zeros(2), 0))",
    ),
    "another shape": (
        """
        def f(dist):
            dist.barrier()
            dist.all_reduce(torch.zeros(2 + dist.get_rank() // 2))
        """,
        ranks.MismatchError,
        "2nd collective of the group: rank 0 calls all_reduce with shape (2,) (line 3: ",
    ),
    "another dtype": (
        """
        def f(dist):
            x = torch.zeros(2, dtype=torch.float64 if dist.get_rank() else torch.float32)
            dist.all_reduce(x)
        """,
        ranks.MismatchError,
        "rank 1 calls all_reduce with dtype float64",
    ),
    "another op": (
        """
        def f(dist):
            op = dist.ReduceOp.MAX if dist.get_rank() else dist.ReduceOp.SUM
            dist.all_reduce(torch.zeros(2), op)
        """,
        ranks.MismatchError,
        "rank 0 calls all_reduce with op sum",
    ),
    "another root": (
        """
        def f(dist):
            dist.broadcast(torch.zeros(2), dist.get_rank())
        """,
        ranks.MismatchError,
        "rank 1 calls broadcast with root 1",
    ),
    "other groups": (
        """
        def f(dist):
            dist.new_group([0, 1] if dist.get_rank() else [0, 2])
        """,
        ranks.MismatchError,
        "call 1 of new_group: rank 0 gives [0, 2], rank 1 [0, 1]; every rank calls new_group",
    ),
    "a group that only its members make": (
        """
        def f(dist):
            if dist.get_rank() < 2:
                dist.new_group([0, 1])
        """,
        ranks.UnfinishedError,
        "calls of new_group: 1 by rank 0, 0 by rank 2; every rank calls it for every group",
    ),
    "a message of another size": (
        """
        def f(dist):
            x = torch.zeros(3 + dist.get_rank())
            if dist.get_rank() == 0:
                dist.send(x, 1)
            elif dist.get_rank() == 1:
                dist.recv(x, 0)
        """,
        ranks.MismatchError,
        "rank 0 sends 3 elements of float32 (line 4: dist.send(x, 1)), "
        "rank 1 receives 4 elements of float32 (line 6: dist.recv(x, 0))",
    ),
    "a message that nobody receives": (
        """
        def f(dist):
            if dist.get_rank() == 0:
                dist.isend(torch.zeros(3), 1)
        """,
        ranks.UnfinishedError,
        "rank 0's isend (line 3: dist.isend(torch.zeros(3), 1)): "
        "rank 1 never receives that message",
    ),
    "a handle that nobody waits for": (
        """
        def f(dist):
            work = dist.all_reduce(torch.zeros(3), async_op=True)
            if dist.get_rank() != 1:
                work.wait()
        """,
        ranks.UnfinishedError,
        "rank 1's all_reduce (line 2: work = dist.all_reduce(torch.zeros(3), async_op=True)) "
        "is never waited for: call wait() on its handle",
    ),
    "a collective that one rank begins": (
        """
        def f(dist):
            if dist.get_rank() == 1:
                work = dist.all_reduce(torch.zeros(3), async_op=True)
        """,
        ranks.UnfinishedError,
        "ranks 0 and 2 never call it",
    ),
    "a buffer used again too early": (
        """
        def f(dist):
            me, x = dist.get_rank(), torch.zeros(3)
            if me == 0:
                work = dist.isend(x, 1)
                x += 1
                work.wait()
            elif me == 1:
                dist.recv(x, 0)
        """,
        ranks.RaceError,
        "rank 0: the tensor of isend (line 4: work = dist.isend(x, 1)) "
        "was changed before its wait()",
    ),
    "an exception": (
        """
        def f(dist):
            if dist.get_rank() == 1:
                raise KeyError("weights")
            dist.barrier()
        """,
        KeyError,
        "weights",
    ),
    "an exit": (
        """
        def f(dist):
            if dist.get_rank() == 1:
                raise SystemExit(3)
            dist.barrier()
        """,
        ranks.RankFailedError,
        "rank 1 ended by SystemExit: 3",
    ),
    "a receive in a group from whoever comes first": (
        """
        def f(dist):
            pair = dist.new_group([1, 2])
            if dist.get_rank() == 1:
                dist.recv(torch.zeros(1), group=pair)
            if dist.get_rank() == 0:
                dist.recv(torch.zeros(1), 1)
        """,
        ranks.DeadlockError,
        """
        deadlock: what these ranks wait for never comes
          rank 0 waits for a message from rank 1 (line 6: dist.recv(torch.zeros(1), 1))
          rank 1 waits for a message from any rank (line 4: dist.recv(torch.zeros(1), group=pair))
          rank 2 has returned""",
    ),
    "a message to itself": (
        """
        def f(dist):
            dist.send(torch.zeros(1), dist.get_rank())
        """,
        ValueError,
        "send: rank 0 is this rank itself",
    ),
    "a rank that is not there": (
        """
        def f(dist):
            dist.send(torch.zeros(1), 3)
        """,
        ValueError,
        "send: rank 3 is not one of [0, 1, 2]",
    ),
    "a negative rank": (
        """
        def f(dist):
            dist.recv(torch.zeros(1), -1)
        """,
        ValueError,
        "recv: rank -1 is not one of [0, 1, 2]",
    ),
    "a rank that is no whole number": (
        """
        def f(dist):
            dist.send(torch.zeros(1), (dist.get_rank() + 1) / 2)
        """,
        TypeError,
        "send: rank 0.5; it must be a whole number",
    ),
    "a negative place in a group": (
        """
        def f(dist):
            dist.isend(torch.zeros(1), group_dst=-1)
        """,
        ValueError,
        "isend: rank -1 is not one of [0, 1, 2]",
    ),
    "a place that the group does not have": (
        """
        def f(dist):
            dist.broadcast(torch.zeros(1), group_src=3)
        """,
        ValueError,
        "broadcast: rank 3 is not one of [0, 1, 2]",
    ),
    "a rank and a place in the group": (
        """
        def f(dist):
            dist.send(torch.zeros(1), 1, group_dst=2)
        """,
        ValueError,
        "send: a rank among all, 1, and one in the group, 2; give one of them",
    ),
    "a broadcast from nobody": (
        """
        def f(dist):
            dist.broadcast(torch.zeros(1))
        """,
        ValueError,
        "broadcast: it needs a src",
    ),
    "a negative tag": (
        """
        def f(dist):
            dist.send(torch.zeros(1), (dist.get_rank() + 1) % 3, tag=-1)
        """,
        ValueError,
        "send: tag -1; it must be a number from 0 on",
    ),
    "a group of none": (
        """
        def f(dist):
            dist.new_group([])
        """,
        ValueError,
        "ranks: []; they must be different numbers from 0 to 2, at least one",
    ),
    "a list in place of a tensor": (
        """
        def f(dist):
            dist.all_reduce([1.0, 2.0])
        """,
        TypeError,
        "all_reduce: a list where a tensor belongs",
    ),
    "a sparse tensor": (
        """
        def f(dist):
            dist.all_reduce(torch.eye(3).to_sparse())
        """,
        ValueError,
        "all_reduce: the tensor must be dense; this one is sparse_coo",
    ),
    "a tensor with gaps": (
        """
        def f(dist):
            dist.all_reduce(torch.zeros(4, 4)[:, 0])
        """,
        ValueError,
        "all_reduce: the tensor must be contiguous; this one has shape (4,) and strides (4,)",
    ),
    "an output with gaps": (
        """
        def f(dist):
            dist.all_gather_into_tensor(torch.zeros(2, 3).T, torch.zeros(1, 2))
        """,
        ValueError,
        "all_gather_into_tensor: the tensor must be contiguous; "
        "this one has shape (3, 2) and strides (1, 3)",
    ),
    "an input with gaps": (
        """
        def f(dist):
            dist.reduce_scatter_tensor(torch.zeros(1, 2), torch.zeros(2, 3).T)
        """,
        ValueError,
        "reduce_scatter_tensor: the tensor must be contiguous; "
        "this one has shape (3, 2) and strides (1, 3)",
    ),
    "a list that is too short": (
        """
        def f(dist):
            dist.all_gather([torch.zeros(2)], torch.zeros(2))
        """,
        ValueError,
        "all_gather: a list of 1 tensors for 3 ranks",
    ),
    "an op that is not there": (
        """
        def f(dist):
            dist.all_reduce(torch.zeros(2), dist.ReduceOp.PREMUL_SUM)
        """,
        ValueError,
        "all_reduce: there is no op",
    ),
}


def cell(title: str) -> Callable:
    """The function of a case, defined by its text as in a notebook's cell."""
    text = textwrap.dedent(DEADLOCKS[title][0]).lstrip()
    name = f"<{title}>"
    linecache.cache[name] = len(text), None, text.splitlines(keepends=True), name
    names: dict[str, Any] = {"torch": torch, "__name__": "__main__"}
    exec(compile(text, name, "exec"), names)
    return names["f"]


@pytest.mark.parametrize("title", DEADLOCKS)
def test_it_is_reported(title):
    _, kind, says = DEADLOCKS[title]
    messages = set()
    for seed in (0, 1, None):
        with pytest.raises(kind) as raised:
            ranks.run(cell(title), world_size=3, seed=seed)
        messages.add(str(raised.value))
    assert len(messages) == 1, "the message depends on the order in which ranks run"
    assert textwrap.dedent(says).strip() in messages.pop()


def test_the_traceback_is_the_rank_s_own():
    with pytest.raises(KeyError) as raised:
        ranks.run(cell("an exception"), world_size=3)
    assert raised.traceback[-1].lineno == 2 and raised.value.__notes__ == ["on rank 1"]


def test_a_rank_that_never_ends_is_stopped():
    def loop(dist):
        while dist.get_rank() == 1:
            pass

    with pytest.raises(
        ranks.RankFailedError,
        match=r"not over after 0.3 s:\n(.*\n)*  rank 1 is in line \d+: (while|pass)",
    ):
        ranks.run(loop, world_size=2, timeout_s=0.3)


def test_an_endless_loop_is_found_by_its_computing_without_a_message(monkeypatch):
    def loop(dist):
        while dist.get_rank() == 1:
            pass

    monkeypatch.setattr(simulated, "QUIET_S", 0.2)
    with pytest.raises(
        ranks.RankFailedError, match=r"for 0.2 s. Is a loop endless\?\n(.*\n)*  rank"
    ):
        ranks.run(loop, world_size=2)
    assert simulated.QUIET_S < 10


def test_an_op_that_the_dtype_does_not_have_is_reported_with_its_line():
    def bits(dist):
        dist.all_reduce(torch.ones(2), dist.ReduceOp.BAND)

    with pytest.raises(NotImplementedError) as raised:
        ranks.run(bits, world_size=2)
    (note,) = raised.value.__notes__
    assert note.startswith("in all_reduce (line ") and note.endswith(
        ": dist.all_reduce(torch.ones(2), dist.ReduceOp.BAND))"
    )


def test_a_rank_that_ends_by_an_interrupt_of_its_own():
    def leave(dist):
        if dist.get_rank() == 1:
            raise KeyboardInterrupt
        dist.barrier()

    with pytest.raises(ranks.RankFailedError, match="^rank 1 ended by KeyboardInterrupt$"):
        ranks.run(leave, world_size=2)


def test_an_interrupt_ends_the_ranks():
    def loop(dist, begun):
        begun()
        while dist.get_rank() == 0:
            pass

    with pytest.raises(KeyboardInterrupt):
        ranks.run(loop, interrupted, world_size=2)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("rank ")]


def interrupted():  # by reference: the rank's own copy would be
    threading.Timer(
        0.1, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)
    ).start()


def test_the_next_run_is_as_if_nothing_had_been():
    def good(dist):
        dist.all_reduce(x := torch.ones(1))
        return x.item()

    with pytest.raises(ranks.DeadlockError):
        ranks.run(cell("everyone sends first"), world_size=3)
    assert ranks.run(good).returns == [4.0] * 4


def released_too_early(dist, sends):
    full, own = torch.empty(8), torch.ones(2)
    work = dist.all_gather_into_tensor(full, own, async_op=True)
    (own if sends else full).untyped_storage().resize_(0)
    work.wait()


@pytest.mark.parametrize("sends", [True, False])
def test_memory_that_is_released_too_early_is_named_and_ends_no_process(sends):
    with pytest.raises(ValueError, match=r"the memory of this tensor of \d elements was released"):
        ranks.run(released_too_early, sends)


def test_a_released_tensor_is_not_sent():
    def sends(dist):
        x = torch.ones(4)
        x.untyped_storage().resize_(0)
        dist.all_reduce(x)

    with pytest.raises(ValueError, match="all_reduce: the memory of this tensor of 4 elements"):
        ranks.run(sends, world_size=2)
