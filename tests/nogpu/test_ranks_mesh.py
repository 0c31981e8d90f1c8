"""Groups along the axes of a mesh, nodes, live bytes by category, and what goes wrong with them."""

import os
import sys

import cloudpickle
import pytest
import torch

from grading.worker.fork_server import ForkServer
from grading.worker.remote import Remote
from grading.worker.session import Session
from nogpu import ranks

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # as functions of a notebook are
MACHINES = ["simulated", "gloo"]


def summed_along(dist, **sizes):
    """{axis: the sum of the ranks' numbers over this rank's group}."""
    groups, sums = ranks.mesh(dist, **sizes), {}
    for axis, group in groups.items():
        x = torch.tensor([float(dist.get_rank())])
        dist.all_reduce(x, group=group)
        sums[axis] = (x.item(), dist.get_world_size(group), dist.get_rank(group))
    return sums


def of_two_axes(dist):
    return summed_along(dist, node=2, gpu=3)


@pytest.mark.slow
@pytest.mark.parametrize("machine", MACHINES)
def test_a_mesh_has_a_group_along_each_axis(machine):
    got = ranks.run(of_two_axes, world_size=6, machine=machine).returns
    assert got[0] == {"node": (3.0, 2, 0), "gpu": (3.0, 3, 0)}
    assert got[4] == {"node": (5.0, 2, 1), "gpu": (12.0, 3, 1)}


def test_a_mesh_of_three_axes_and_of_one():
    three = ranks.run(lambda dist: summed_along(dist, a=2, b=2, c=2), world_size=8).returns
    assert three[5] == {"a": (6.0, 2, 1), "b": (12.0, 2, 0), "c": (9.0, 2, 1)}
    one = ranks.run(lambda dist: summed_along(dist, a=1, all=3), world_size=3).returns
    assert one[1] == {"a": (1.0, 1, 0), "all": (3.0, 3, 1)}


@pytest.mark.parametrize(
    "sizes, says",
    [
        ({"node": 2, "gpu": 3}, "mesh: 2 × 3 is 6, but there are 4 ranks"),
        ({"node": 2, "gpu": 0}, "they must be whole numbers from 1 on"),
        ({"node": 2, "gpu": 2.0}, "they must be whole numbers from 1 on"),
        ({}, "they must be whole numbers from 1 on"),
    ],
)
def test_sizes_of_a_mesh_that_do_not_fit_are_named(sizes, says):
    with pytest.raises(ValueError, match=says):
        ranks.run(lambda dist: ranks.mesh(dist, **sizes), world_size=4)


def outside(dist):
    others = dist.new_group([1, 2, 3])  # all but one: on real ranks, the first to fail is reported
    dist.all_gather_into_tensor(torch.empty(3), torch.ones(1), group=others)


def too_short(dist):
    dist.all_gather_into_tensor(torch.empty(6), torch.ones(2))


def not_divided(dist):
    dist.reduce_scatter_tensor(torch.empty(2), torch.ones(7))


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    "function, says",
    [
        (outside, "group: rank 0 is not in this group; only its members may use it"),
        (too_short, "the output has 6 elements of torch.float32, the 4 inputs 2 of torch.float32"),
        (not_divided, "input: 7 elements; it must have 4 times output's 2"),
    ],
)
def test_a_wrong_group_or_size_gets_one_sentence(machine, function, says):
    with pytest.raises(ValueError) as raised:
        ranks.run(function, machine=machine)
    assert says in str(raised.value) and len(str(raised.value).splitlines()) == 1


def dies_while_gathering(dist, how):
    full = torch.empty(8)
    works = [dist.all_gather_into_tensor(full, torch.ones(2), async_op=True)]
    if dist.get_rank() == 2:
        how()
    works.append(dist.all_gather_into_tensor(torch.empty(8), full[:2].clone(), async_op=True))
    for work in works:
        work.wait()


def raises():
    raise MemoryError("no room for the gathered weights")


def test_a_rank_that_dies_while_others_gather_is_the_one_that_is_reported():
    with pytest.raises(MemoryError, match="no room for the gathered weights"):
        ranks.run(dies_while_gathering, raises)
    with pytest.raises(ranks.RankFailedError, match="rank 2 ended by SystemExit"):
        ranks.run(dies_while_gathering, sys.exit)


def test_a_process_that_dies_while_others_gather_is_the_one_that_is_reported():
    with pytest.raises(ranks.RankFailedError) as raised:
        ranks.run(dies_while_gathering, lambda: os._exit(3), machine="gloo", timeout_s=20)
    assert str(raised.value) == "rank 2 ended its process (exit code 3)"


def test_bytes_between_nodes():
    run = ranks.run(along_both, world_size=4, **ranks.nodes(4, 2))
    assert run.trace.bytes == 4 * 400 * 2 and run.trace.bytes_between_nodes(2) == 2 * 400 * 2
    assert run.trace.bytes_between_nodes(4) == 0
    with pytest.raises(ValueError, match="per_node: 3; it must divide the 4 ranks"):
        run.trace.bytes_between_nodes(3)


def along_both(dist):
    groups = ranks.mesh(dist, node=2, gpu=2)
    for axis in groups:
        dist.all_reduce(torch.zeros(100), group=groups[axis])


def step(dist):
    """Gathers four times its weights, keeps its gradient, and sums that over ranks into a shard."""
    weights, moments = torch.zeros(100, requires_grad=True), torch.zeros(200)
    ranks.label("weights", weights)
    ranks.label("optimizer", [moments])
    full = torch.empty(400)
    dist.all_gather_into_tensor(full, weights.detach())
    ranks.compute(1e-3)
    del full
    (weights * weights).sum().backward()
    assert weights.grad is not None
    whole, own = torch.cat([weights.grad] * 4), torch.empty(100)
    dist.reduce_scatter_tensor(own, whole)
    ranks.compute(1e-3)


PEAKS = {"weights": 400, "gradients": 2400, "optimizer": 800, "gathered": 1600}


@pytest.mark.parametrize("machine", MACHINES)
def test_live_bytes_by_category(machine):
    trace = ranks.run(step, machine=machine, live_bytes=True).trace
    for peaks in trace.peak_by_category:
        assert {name: peaks[name] for name in PEAKS} == PEAKS
    for points, totals in zip(trace.live_by_category, trace.live_bytes, strict=True):
        assert max(sum(counts.values()) for _, counts in points) == max(n for _, n in totals)
    assert ranks.Trace.from_dict(trace.as_dict()) == trace


def test_live_bytes_by_category_over_time():
    trace = ranks.run(step, alpha_s=0.0, beta_s_per_byte=0.0).trace
    at = {round(time_s, 9): counts for time_s, counts in trace.live_by_category[0]}
    assert at[0.0]["gathered"] == 1600 and at[0.001]["gathered"] == 0
    assert at[0.001]["gradients"] == 2400 and at[0.001]["optimizer"] == 800


def test_a_resized_storage_leaves_its_category():
    def resized(dist):
        full = torch.empty(8)
        dist.all_gather_into_tensor(full, torch.ones(2))
        full.untyped_storage().resize_(0)
        ranks.compute(1e-3)
        dist.barrier()

    trace = ranks.run(resized).trace
    assert trace.peak_by_category[0]["gathered"] == 32
    assert trace.live_by_category[0][-1][1]["gathered"] == 0


def test_an_unknown_category_is_named():
    with pytest.raises(ValueError, match="category: 'moments'; there are weights, gradients"):
        ranks.label("moments", [])  # type: ignore[arg-type]
    ranks.label("weights", torch.zeros(1))  # outside of a run it does nothing


GATHERS = """
def f(dist, how):
    full = torch.empty(8)
    work = dist.all_gather_into_tensor(full, torch.ones(2), async_op=True)
    if dist.get_rank() == 2 and how == "raises":
        raise MemoryError("no room")
    if dist.get_rank() == 2 and how == "exits":
        import os
        os._exit(3)
    work.wait()
    dist.barrier()
    return ranks.mesh(dist, node=2, gpu=2)["gpu"].ranks
"""


@pytest.fixture(scope="module")
def remote():
    fork_server = ForkServer("nogpu.ranks.remote")
    session = Session(
        fork_server, [("setup", "import torch\nfrom nogpu import ranks\n"), ("f", GATHERS)]
    )
    session.allow(60)
    yield Remote(session, "f", GATHERS)
    session.close()
    fork_server.close()


@pytest.mark.slow
def test_a_mesh_and_categories_in_the_grader(remote):
    result = ranks.run(remote, "")
    assert result.returns[3] == (2, 3)
    assert result.trace.peak_by_category[0]["gathered"] == 32
    assert "peak_by_category" in result.trace.self_reported


def test_a_rank_that_dies_while_gathering_in_the_grader(remote):
    with pytest.raises(MemoryError, match="no room"):
        ranks.run(remote, "raises")


def keeps(dist, releases):
    """Gathers six units of 4 MiB, and releases them or not."""
    kept = []
    for _ in range(6):
        full = torch.empty(1 << 19, dtype=torch.float64)
        dist.all_gather_into_tensor(full, torch.ones(1 << 18, dtype=torch.float64))
        kept.append(full)
        if releases:
            full.untyped_storage().resize_(0)
        dist.barrier()


def test_what_is_held_at_each_call_if_it_is_asked_for():
    for releases, most in ((True, 1), (False, 6)):
        held = ranks.run(keeps, releases, world_size=2, held=True).trace.held_bytes
        small = 1 << 21  # what is sent
        assert len(held[0]) == 12
        assert most << 22 <= max(held[0]) <= (most << 22) + small, held
    assert ranks.run(keeps, True, world_size=2).trace.held_bytes == [[], []]
