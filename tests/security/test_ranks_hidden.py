"""What a rank hides in its messages, or asks the grader about others, reaches no other rank.

And however much ranks send, the grader holds a limited amount of it.
"""

import contextlib
from typing import Any

import pytest

from grading.worker import client, ranks
from grading.worker.errors import WorkerEnded
from grading.worker.fork_server import ForkServer
from grading.worker.session import Session

CELL = """
import dataclasses, torch
from nogpu.ranks import operations
from nogpu.ranks.call_site import CallSite

SITE = CallSite(1, "x")

def post(dist, operation):
    return dist._link.post(dist._recorder.clock_s, [operation])

def send(dist, payload, peer):
    n, t = payload.numel(), payload.dtype
    return post(dist, operations.Send("isend", SITE, 0, peer, 0, n, t, payload))

def receive(dist, elements, peer):
    kind = operations.Receive("irecv", SITE, 0, peer, 0, elements, torch.float32)
    _, (came,) = dist._link.wait(dist._recorder.clock_s, post(dist, kind))
    return came

def hides(dist, kind):
    me, secret = dist.get_rank(), torch.arange(100.0) + 42
    payload = {
        "behind a view": secret[:2],
        "beside a view": secret[50:52],
        "in strides": torch.zeros(4, 7)[:2, :1].transpose(0, 1),
        "in strides of one element": secret.as_strided((1, 2), (9, 1)),
        "in a gradient's flag": torch.zeros(2, requires_grad=True),
    }[kind]
    if me == 0:
        numbers = send(dist, payload, 1)
        dist._link.wait(dist._recorder.clock_s, numbers)
        return None
    came = receive(dist, 2, 0)
    size = came.untyped_storage().nbytes()
    return size, came.storage_offset(), came.is_contiguous(), came.requires_grad

def hides_in_a_collective(dist, secret):
    me, parts = dist.get_rank(), [torch.empty(2) for _ in range(2)]
    payload = (torch.arange(100.0) + 42)[:2]
    kind = operations.Collective(
        "all_gather", SITE, 0, "all_gather", None, None, (2,), torch.float32, [], [], payload)
    _, (came,) = dist._link.wait(dist._recorder.clock_s, post(dist, kind))
    return [part.untyped_storage().nbytes() for part in came]

def asks_for_a_group(dist, number):
    if dist.get_rank() == 0:
        dist._link.new_group([0, 1])
        dist._link.new_group([0])
    said = []
    for _ in range(300):
        for group in (1, 2):
            kind = operations.Receive("irecv", SITE, group, 99, 0, 1, torch.float32)
            try:
                post(dist, kind)
            except ValueError as error:
                said.append(str(error))
    if dist.get_rank() == 1:
        dist._link.new_group([0, 1])
        dist._link.new_group([0])
    return sorted(set(said)) if dist.get_rank() else None

def floods(dist, kind):
    me = dist.get_rank()
    if kind == "one tensor":
        return torch.zeros(2 << 20)
    if kind == "plain values":
        return list(range(1000, 60_000))
    if kind == "strides":
        for _ in range(10):
            send(dist, torch.zeros(1).expand(90_000), 1 - me)
    if kind == "to all":
        for _ in range(20):
            dist.all_gather([torch.empty(10_000) for _ in range(4)], torch.zeros(10_000))
    if kind == "small ones":
        while True:
            send(dist, torch.zeros(1000), 1 - me)
"""
OPTIONS: dict[str, Any] = dict.fromkeys(["seed", "only", "flops_per_s"]) | {
    "live_bytes": False,
    "alpha_s": 0.0,
    "beta_s_per_byte": 0.0,
    "timeout_s": 60.0,
}


@pytest.fixture(scope="module")
def fork_server():
    server = ForkServer("nogpu.ranks.remote", bare=True)
    yield server
    server.close()


@pytest.fixture
def run(fork_server):
    one = Session(fork_server, [("cell", CELL)])
    one.allow(60)
    with contextlib.closing(one):
        yield lambda name, argument, p=2: ranks.run(one, name, [argument], world_size=p, **OPTIONS)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [
        "behind a view",
        "beside a view",
        "in strides",
        "in strides of one element",
        "in a gradient's flag",
    ],
)
def test_a_message_brings_its_elements_and_nothing_else(run, kind):
    assert run("hides", kind).returns[1] == (8, 0, True, False)


def test_a_collective_brings_its_elements_and_nothing_else(run):
    assert run("hides_in_a_collective", 42).returns == [[8, 8]] * 2


def test_a_rank_learns_nothing_of_the_groups_that_another_makes(run):
    assert run("asks_for_a_group", 1).returns[1] == [
        "malformed operation: group is not the number of a group"
    ]


@pytest.mark.parametrize(
    "kind, p, says",
    [
        ("one tensor", 2, "was stopped: the ranks sent more than 1 MB in one run"),
        ("small ones", 2, "was stopped: the ranks sent more than 1 MB in one run"),
        ("plain values", 2, "sent 0 MB of plain values at once, and a rank may send"),
        ("strides", 2, "the ranks sent more than 1 MB in one run"),
        ("to all", 4, "the ranks were sent more than 1 MB in one run"),
    ],
)
def test_the_ranks_of_a_run_send_and_get_so_much_and_no_more(run, monkeypatch, kind, p, says):
    monkeypatch.setattr(ranks, "MAX_RUN_BYTES", 1 << 20)
    monkeypatch.setattr(ranks, "MAX_BACK_BYTES", 1 << 20)
    monkeypatch.setattr(ranks, "MAX_PLAIN_BYTES", 100_000)
    with pytest.raises((ValueError, WorkerEnded), match=says):
        run("floods", kind, p)


def test_a_cell_answers_little(fork_server, monkeypatch):
    monkeypatch.setattr(client, "MAX_EXECUTED_BYTES", 100)
    one = Session(fork_server, [("cell", "raise ValueError('x' * 1000)")])
    with contextlib.closing(one):
        assert "unasked" in str(one.ready_problem("cell"))
