"""Simulated ranks: what they compute, what it costs, and that their order makes no difference."""

import itertools
import math
import sys
from dataclasses import dataclass
from typing import Any

import cloudpickle
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from nogpu import ranks

ALPHA_S, BETA = 1e-5, 1e-10


def every_function(dist, n):
    """Calls every function of dist, and returns all results."""
    return every_message(dist, n) | every_reduction(dist, n) | every_exchange(dist, n)


def every_message(dist, n):
    p, me = dist.get_world_size(), dist.get_rank()
    x = torch.arange(n, dtype=torch.float32) + 100 * me
    out: dict[str, Any] = {"rank": (me, p)}
    right, left = (me + 1) % p, (me - 1) % p
    if p > 1:
        a, b, c = x.clone(), torch.empty_like(x), torch.empty_like(x)
        for work in dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, a, right), dist.P2POp(dist.irecv, b, left)]
        ):
            work.wait()
        works = [dist.irecv(c, left, tag=3), dist.isend(a, right, tag=3)]
        for work in works:
            work.wait()
        out["shifted"] = b, c
        if me == 0:
            dist.send(x, 1)
        elif me == 1:
            out["recv"] = dist.recv(y := torch.empty_like(x), 0), y
    dist.barrier()
    return out


def every_reduction(dist, n):
    p, me, out = dist.get_world_size(), dist.get_rank(), {}
    x, root = torch.arange(n, dtype=torch.float32) + 100 * me, p - 1
    dist.broadcast(y := x.clone(), root)
    out["broadcast"] = y
    dist.reduce(y := x.clone(), root)
    out["reduce"] = y if me == root else None
    for op in ("SUM", "PRODUCT", "MIN", "MAX", "AVG"):
        work = dist.all_reduce(y := x.clone(), getattr(dist.ReduceOp, op), async_op=True)
        work.wait()
        out[op] = y
    dist.all_reduce(y := torch.tensor([1 << me, 7]), dist.ReduceOp.BOR)
    out["BOR"] = y
    dist.reduce_scatter(y := torch.empty(n), [x * k for k in range(p)])
    out["reduce_scatter"] = y
    dist.reduce_scatter_tensor(y := torch.empty(n), torch.cat([x * k for k in range(p)]))
    out["reduce_scatter_tensor"] = y
    dist.reduce_scatter_single(y := torch.empty(n), torch.cat([x * k for k in range(p)]))
    out["scatter_single"] = y
    even = dist.new_group(list(range(0, p, 2)))
    if me % 2 == 0:
        dist.all_reduce(y := x.clone(), group=even)
        out["group"] = y, dist.get_rank(even), dist.get_world_size(even)
    return out


def every_exchange(dist, n):
    p, me, out = dist.get_world_size(), dist.get_rank(), {}
    x, root = torch.arange(n, dtype=torch.float32) + 100 * me, p - 1
    dist.all_gather(y := [torch.empty_like(x) for _ in range(p)], x)
    out["all_gather"] = y
    dist.all_gather_into_tensor(z := torch.empty(p * n), x)
    out["into"] = z
    dist.all_gather_single(z := torch.empty(p * n), x)
    out["gather_single"] = z
    dist.gather(x, y := [torch.empty_like(x) for _ in range(p)] if me == root else None, root)
    out["gather"] = y
    dist.scatter(y := torch.empty(n), [x + k for k in range(p)] if me == root else None, root)
    out["scatter"] = y
    dist.all_to_all(y := [torch.empty(n) for _ in range(p)], [x + 1000 * k for k in range(p)])
    out["all_to_all"] = y
    dist.all_to_all_single(z := torch.empty(p * n), torch.cat([x + 1000 * k for k in range(p)]))
    out["all_to_all_single"] = z
    splits = [me + k for k in range(p)]
    dist.all_to_all_single(
        z := torch.empty(sum(splits), 2), torch.full((sum(splits), 2), float(me)), splits, splits
    )
    out["uneven"] = z
    return out


def test_every_function_does_what_torch_distributed_says():
    p, n = 3, 5
    got = ranks.run(every_function, n, world_size=p).returns
    x = [torch.arange(5.0) + 100 * r for r in range(p)]
    for me in range(p):
        out = got[me]
        assert out["rank"] == (me, p)
        assert all(torch.equal(y, x[me - 1]) for y in out["shifted"])
        assert torch.equal(out["broadcast"], x[2])
        assert torch.equal(out["SUM"], x[0] + x[1] + x[2]) and torch.equal(
            out["PRODUCT"], x[0] * x[1] * x[2]
        )
        assert torch.equal(out["MIN"], x[0]) and torch.equal(out["MAX"], x[2])
        assert torch.allclose(out["AVG"], x[1])
        assert out["BOR"].tolist() == [7, 7]
        assert torch.equal(torch.stack(out["all_gather"]), torch.stack(x)) and torch.equal(
            out["into"], torch.cat(x)
        )
        assert torch.equal(out["scatter"], x[2] + me)
        assert torch.equal(out["reduce_scatter"], me * (x[0] + x[1] + x[2]))
        assert torch.equal(out["reduce_scatter_tensor"], out["reduce_scatter"])
        assert torch.equal(out["gather_single"], out["into"]) and torch.equal(
            out["scatter_single"], out["reduce_scatter"]
        )
        assert torch.equal(out["all_to_all_single"], torch.cat([part + 1000 * me for part in x]))
        assert torch.equal(torch.cat(out["all_to_all"]), out["all_to_all_single"])
        assert out["uneven"][:, 0].tolist() == [float(k) for k in range(p) for _ in range(me + k)]
    assert got[1]["recv"][0] == 0 and torch.equal(got[1]["recv"][1], x[0])
    assert torch.equal(got[2]["reduce"], x[0] + x[1] + x[2]) and got[0]["reduce"] is None
    assert torch.equal(torch.stack(got[2]["gather"]), torch.stack(x)) and got[0]["gather"] is None
    assert (
        torch.equal(got[2]["group"][0], x[0] + x[2])
        and got[2]["group"][1:] == (1, 2)
        and "group" not in got[1]
    )


@pytest.mark.parametrize("p, n", [(1, 4), (2, 0), (5, 1), (4, 7), (8, 3)])
def test_sizes_that_do_not_divide_and_empty_ones(p, n):
    runs = [ranks.run(every_function, n, world_size=p, seed=seed) for seed in (None, 0, 1)]
    assert runs[0].trace == runs[1].trace == runs[2].trace
    total = torch.stack([torch.arange(n) + 100.0 * r for r in range(p)]).sum(0)
    assert torch.equal(runs[0].returns[0]["SUM"], total)


def test_a_trace_is_plain_data():
    trace = ranks.run(every_function, 3, world_size=3).trace
    assert ranks.Trace.from_dict(trace.as_dict()) == trace
    plain = (bool, int, float, str, type(None))

    def walk(value):
        assert isinstance(value, (*plain, list, tuple, dict)), value
        for item in (
            value.values()
            if isinstance(value, dict)
            else value
            if isinstance(value, (list, tuple))
            else ()
        ):
            walk(item)

    walk(trace.as_dict())


# --- costs


def one_collective(dist, name, n):
    p, me = dist.get_world_size(), dist.get_rank()
    x, parts = torch.zeros(n), [torch.zeros(n // p) for _ in range(p)]
    {
        "barrier": lambda: dist.barrier(),
        "broadcast": lambda: dist.broadcast(x, 0),
        "reduce": lambda: dist.reduce(x, 0),
        "all_reduce": lambda: dist.all_reduce(x),
        "all_gather": lambda: dist.all_gather_into_tensor(x, parts[me]),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(parts[me], x),
        "gather": lambda: dist.gather(parts[me], parts if me == 0 else None, 0),
        "scatter": lambda: dist.scatter(torch.zeros(n // p), parts if me == 0 else None, 0),
        "all_to_all": lambda: dist.all_to_all_single(torch.zeros(n), x),
    }[name]()


@pytest.mark.parametrize("p", [1, 2, 3, 4, 7, 8])
@pytest.mark.parametrize(
    "name, rounds, volume",
    [
        ("barrier", lambda p: math.ceil(math.log2(p)), lambda p, n: 0),
        ("broadcast", lambda p: math.ceil(math.log2(p)), lambda p, n: (p - 1) * n),
        ("reduce", lambda p: math.ceil(math.log2(p)), lambda p, n: (p - 1) * n),
        ("all_reduce", lambda p: 2 * (p - 1), lambda p, n: 2 * (p - 1) * n),
        ("all_gather", lambda p: p - 1, lambda p, n: (p - 1) * n),
        ("reduce_scatter", lambda p: p - 1, lambda p, n: (p - 1) * n),
        ("all_to_all", lambda p: p - 1, lambda p, n: (p - 1) * n),
        ("gather", lambda p: math.ceil(math.log2(p)), None),
        ("scatter", lambda p: math.ceil(math.log2(p)), None),
    ],
)
def test_collectives_cost_what_the_table_says(name, p, rounds, volume):
    n = 8 * 7 * 3
    trace = ranks.run(one_collective, name, n, world_size=p).trace
    assert trace.rounds == rounds(p)
    if volume:
        assert trace.bytes == 4 * volume(p, n)
        assert trace.time_s == pytest.approx(
            rounds(p) * ALPHA_S
            + (
                0
                if name == "barrier"
                else BETA
                * 4
                * n
                * (rounds(p) if name in ("broadcast", "reduce") else rounds(p) / p)
            )
        )
    else:  # halving: each shard moves as often as its place has bits
        assert trace.bytes == 4 * n // p * sum(r.bit_count() for r in range(p))


def test_a_ring_all_reduce_takes_no_more_where_n_does_not_divide():
    def all_reduce(dist, x):
        dist.all_reduce(x)

    for p, n in ((4, 10), (3, 1), (5, 12)):
        trace = ranks.run(all_reduce, torch.zeros(n), world_size=p).trace
        assert trace.bytes == 4 * 2 * (p - 1) * n
        assert max(trace.bytes_sent) <= 4 * 2 * (p - 1) * -(-n // p)


def test_a_port_sends_one_message_at_a_time_and_receives_one():
    def star(dist, n, to_root):
        me, p = dist.get_rank(), dist.get_world_size()
        x = torch.zeros(n)
        begin = dist.irecv if (me == 0) == to_root else dist.isend
        works = [begin(torch.zeros(n), peer) for peer in range(1, p)] if me == 0 else [begin(x, 0)]
        for work in works:
            work.wait()

    for to_root in (False, True):
        result = ranks.run(star, 100, to_root, world_size=5)
        assert (
            result.time_s == pytest.approx(4 * (ALPHA_S + 400 * BETA)) and result.trace.rounds == 4
        )


def test_full_duplex_and_a_send_that_waits_for_its_receive():
    def exchange(dist):
        me = dist.get_rank()
        ranks.compute(me * 1e-3)
        works = [dist.isend(torch.zeros(10), 1 - me), dist.irecv(torch.zeros(10), 1 - me)]
        for work in works:
            work.wait()

    result = ranks.run(exchange, world_size=2)
    assert result.time_s == pytest.approx(1e-3 + ALPHA_S + 40 * BETA) and result.trace.rounds == 1
    assert result.trace.end_s[0] == result.trace.end_s[1]


def test_links_may_differ():
    def chain(dist):
        me, x = dist.get_rank(), torch.zeros(1000)
        if me:
            dist.recv(x, me - 1)
        if me < 3:
            dist.send(x, me + 1)

    links = ranks.nodes(4, 2, inside=(1e-6, 1e-12), between=(5e-5, 1e-10))
    assert ranks.run(chain, **links).time_s == pytest.approx(2 * (1e-6 + 4e-9) + 5e-5 + 4e-7)


def test_communication_goes_on_while_a_rank_computes():
    def step(dist, asynchronous):
        x = torch.zeros(100_000)
        works = []
        for i in range(4):
            with ranks.span("backward"):
                ranks.compute(1e-3)
                works += (
                    [dist.all_reduce(x, async_op=True)] if asynchronous else [dist.all_reduce(x)]
                )
            if asynchronous and i:
                works[i - 1].wait()
        if asynchronous:
            works[-1].wait()

    one = 6 * ALPHA_S + 1.5 * 400_000 * BETA
    hidden, open_ = (ranks.run(step, asynchronous).trace for asynchronous in (True, False))
    assert hidden.time_s == pytest.approx(4e-3 + one) and open_.time_s == pytest.approx(
        4e-3 + 4 * one
    )
    assert hidden.bytes_during_compute("backward") == pytest.approx(
        [3 / 4 * count for count in hidden.bytes_sent]
    )
    assert open_.bytes_during_compute() == [0] * 4
    assert hidden.compute_s == pytest.approx([4e-3] * 4) and hidden.bubble == pytest.approx(
        1 - 4e-3 / hidden.time_s
    )
    assert len(hidden.spans_named("backward", rank=1)) == 4 and hidden.spans_named(
        "back*"
    ) == hidden.spans_named("backward")


def test_flops_move_the_clock_backward_too():
    def step(dist, w):
        w = torch.nn.Parameter(w)
        with ranks.span("forward"):
            y = (torch.zeros(8, 32) @ w).sum()
        with ranks.span("backward"):
            y.backward()

    trace = ranks.run(step, torch.zeros(32, 16), world_size=1, flops_per_s=1e9).trace
    flops = 2 * 8 * 32 * 16
    assert [(span.name, span.duration_s) for span in trace.compute] == [
        ("forward", pytest.approx(flops / 1e9)),
        ("backward", pytest.approx(flops / 1e9)),
    ]


def test_a_handle_can_be_asked():
    def ask(dist):
        me, x = dist.get_rank(), torch.zeros(1000)
        work = dist.isend(x, 1) if me == 0 else dist.irecv(x, 0)
        before = work.is_completed()
        asked = 0
        while not work.is_completed():
            asked += 1
        work.wait()
        return before, asked, work.is_completed()

    first = ranks.run(ask, world_size=2)
    assert first.returns[0][0] is False and first.returns[0][1] >= 8 and first.returns[0][2] is True
    assert all(ranks.run(ask, world_size=2, seed=seed).trace == first.trace for seed in range(4))


def test_whoever_comes_first():
    def first_come(dist):
        me, p, x = dist.get_rank(), dist.get_world_size(), torch.zeros(1)
        if me:
            ranks.compute((p - me) * 1e-3)
            dist.send(x + me, 0)
            return None
        return [(dist.recv(x), x.item()) for _ in range(p - 1)]

    assert ranks.run(first_come, seed=1).returns[0] == [(3, 3.0), (2, 2.0), (1, 1.0)]


# --- memory, autograd, isolation


def test_live_bytes_count_arguments_results_and_what_autograd_keeps():
    def step(dist, w):
        dist.barrier()
        h = torch.zeros(100, 100)
        dist.barrier()
        y = torch.tanh(torch.zeros(25, 100) @ h @ w)
        del h
        dist.barrier()
        loss = y.sum()
        del y
        loss.backward()
        del loss
        dist.barrier()
        return w.grad is not None

    trace = ranks.run(step, torch.nn.Parameter(torch.zeros(100, 100)), world_size=2).trace
    at = [trace.live_bytes_at(0, call.start_s) for call in trace.collectives if call.rank == 0]
    w = 40_000
    assert (
        at[:2] == [w, 2 * w] and at[2] == w + 2 * 10_000
    )  # the product with h, which w's gradient needs, and tanh's result
    assert at[3] == 2 * w and max(trace.peak_live_bytes) >= w + 4 * 10_000


def test_live_bytes_see_a_storage_that_is_resized():
    def release(dist):
        x = torch.zeros(1000)
        dist.barrier()
        x.untyped_storage().resize_(0)
        dist.barrier()

    trace = ranks.run(release, world_size=2).trace
    assert [
        trace.live_bytes_at(1, call.start_s) for call in trace.collectives if call.rank == 1
    ] == [4000, 0]


def test_sparse_tensors_have_no_storage_to_count():
    def step(dist):
        embedding = torch.nn.Embedding(4, 2, sparse=True)
        embedding(torch.tensor([1])).sum().backward()
        return embedding.weight.grad is not None and embedding.weight.grad.is_sparse

    assert ranks.run(step, world_size=1).returns == [True]


@pytest.mark.parametrize(
    "empty", [torch.empty(0), torch.from_numpy(np.empty(0)), torch.from_numpy(np.empty((3, 0)))]
)
def test_empty_tensors_cross(empty):  # of NumPy's, the strides are 0
    def pair(dist, x):
        works = [
            dist.isend(x, 1) if dist.get_rank() == 0 else dist.irecv(x, 0),
            dist.all_reduce(x, async_op=True),
        ]
        for work in works:
            work.wait()
        return x

    assert ranks.run(pair, empty, world_size=2).returns[1].shape == empty.shape


def test_one_element_in_strides_of_0_crosses():
    def gathered(dist, x):
        sent = x[None].expand(dist.get_world_size(), -1).reshape(-1)
        dist.all_to_all_single(received := torch.empty(1, dtype=x.dtype), sent)
        return received

    assert ranks.run(gathered, torch.tensor([3.0]).double(), world_size=1).returns == [3.0]


def test_a_default_dtype_ends_with_the_run():
    def double(dist):
        torch.set_default_dtype(torch.float64)
        return torch.ones(1).dtype

    assert (
        ranks.run(double, world_size=1).returns == [torch.float64]
        and torch.get_default_dtype() == torch.float32
    )


def test_hooks_call_dist_within_backward():
    def step(dist, x):
        layers = torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(3)]).double()
        works = []
        for parameter in layers.parameters():
            parameter.register_post_accumulate_grad_hook(
                lambda p: works.append(dist.all_reduce(p.grad, async_op=True))
            )
        layers(x).square().sum().backward()
        for work in works:
            work.wait()
        return [parameter.grad for parameter in layers.parameters()]

    x = torch.randn(8, 4, dtype=torch.float64)
    whole = ranks.run(step, x, world_size=1).returns[0]
    parts = ranks.run(step, ranks.each(list(x.chunk(4))), seed=5)
    assert all(
        torch.allclose(a, b, atol=1e-12)
        for grads in parts.returns
        for a, b in zip(grads, whole, strict=True)
    )
    assert {call.name for call in parts.trace.collectives} == {"all_reduce"} and len(
        parts.trace.collectives
    ) == 24


def test_ranks_share_nothing_and_draw_alike():
    seen, x = [], torch.zeros(2)

    def rank(dist, argument):
        seen.append(dist.get_rank())
        x.add_(1)
        argument.add_(1)
        first = torch.rand(2)
        dist.barrier()
        return seen, x, argument, torch.cat([first, torch.rand(2)])

    before = torch.get_rng_state()
    result = ranks.run(rank, x, seed=3)
    assert torch.equal(before, torch.get_rng_state()) and seen == [] and x.tolist() == [0, 0]
    torch.manual_seed(0)
    drawn = torch.rand(4)
    for me, (seen_there, x_there, argument, draws) in enumerate(result.returns):
        assert seen_there == [me] and x_there.tolist() == [1 + (argument is x_there)] * 2
        assert torch.equal(draws, drawn)
    torch.set_rng_state(before)


class Stage:
    """As a notebook's, with what Python shares among instances."""

    kept = []


@dataclass(frozen=True)
class Step:
    loss: float
    stage: object


class WentWrong(Exception):
    pass


def staged(dist, fails):
    Stage.kept.append(dist.get_rank())
    dist.barrier()
    if fails:
        raise WentWrong([Step(1.0, None)])
    return [Step(float(len(stage.kept)), stage) for stage in [Stage()]], Stage.kept


@pytest.mark.slow
def test_ranks_have_classes_of_their_own_and_return_the_notebook_s():
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    for machine in ("simulated", "gloo"):
        returns = ranks.run(staged, False, world_size=3, machine=machine).returns
        assert [kept for _, kept in returns] == [[0], [1], [2]] and Stage.kept == []
        assert all(
            type(step) is Step and type(step.stage) is Stage and step.loss == 1
            for (step,), _ in returns
        )
        with pytest.raises(WentWrong) as raised:
            ranks.run(staged, True, world_size=2, machine=machine)
        assert raised.value.args == ([Step(1.0, None)],) and Stage.kept == []


def test_a_dist_with_few_names_has_no_others():
    def pair(dist):
        me, x = dist.get_rank(), torch.ones(1)
        dist.send(x, 1) if me == 0 else dist.recv(x, 0)
        dist.all_reduce(x)

    with pytest.raises(AttributeError, match="this dist has no all_reduce: it has only recv, send"):
        ranks.run(pair, world_size=2, only=["send", "recv"])


def test_what_ranks_print_says_who(capsys):
    def speak(dist):
        print("I am", dist.get_rank())
        print("no end", end="")

    ranks.run(speak, world_size=2, seed=1)
    assert sorted(capsys.readouterr().out.splitlines()) == [
        "[rank 0] I am 0",
        "[rank 0] no end",
        "[rank 1] I am 1",
        "[rank 1] no end",
    ]


@pytest.mark.parametrize(
    "options, says",
    [
        ({"machine": "mpi"}, "machine: 'mpi'; there are simulated, gloo, nccl"),
        ({"world_size": 0}, "world_size: 0"),
        ({"world_size": 2.0}, "world_size: 2.0"),
        ({"only": "send"}, "only: 'send'; it must be a list of names"),
        ({"alpha_s": [[0]]}, r"alpha_s: \[\[0\]\]; give a number or 4 rows of 4"),
        ({"alpha_s": None}, "alpha_s: None; give a number"),
        ({"beta_s_per_byte": -1}, "beta_s_per_byte: -1; a cost must be a number"),
        ({"flops_per_s": -1}, "flops_per_s: -1"),
        ({"flops_per_s": "1e9"}, "flops_per_s: '1e9'"),
        ({"timeout_s": -1}, "timeout_s: -1; it must be a positive number of seconds"),
        ({"timeout_s": -1, "machine": "gloo"}, "timeout_s: -1"),
        ({"timeout_s": math.nan}, "timeout_s: nan"),
    ],
)
def test_bad_options_are_named(options, says):
    with pytest.raises(ValueError, match=says):
        ranks.run(every_function, 1, **options)


def test_bad_arguments_of_the_helpers_are_named():
    with pytest.raises(ValueError, match="each: 2 values for 4 ranks"):
        ranks.run(every_function, ranks.each([1, 2]))
    with pytest.raises(ValueError, match="per_node: 0; it must be a whole number from 1 on"):
        ranks.nodes(4, 0)


def test_numbers_of_numpy_are_numbers():
    def pair(dist):
        peer, x = np.int64(1 - dist.get_rank()), torch.ones(1)
        dist.send(x, peer, tag=np.int64(2)) if peer else dist.recv(
            x, torch.tensor(1 - dist.get_rank()), tag=2
        )
        dist.broadcast(x, np.int64(1))

    options: dict[str, Any] = {"world_size": np.int64(2), "alpha_s": np.float32(1)}
    trace = ranks.run(pair, beta_s_per_byte=0, **options).trace
    assert trace.time_s == 2.0 and type(trace.messages[0].dst) is type(trace.messages[0].tag) is int


def random_program(dist, seed, steps):
    """Random messages and collectives, none of which waits for a message that nobody has posted."""
    generator, me, p = torch.Generator().manual_seed(seed), dist.get_rank(), dist.get_world_size()
    x, got = torch.full((5,), float(me)), []
    for step in range(steps):
        a, b, kind, size = torch.randint(0, 1000, (4,), generator=generator, device="cpu").tolist()
        src, dst = a % p, b % p
        if kind % 3 == 0:
            y = torch.full((size % 7,), float(me + step))
            got.append((dist.all_reduce(y, async_op=True), y))
        elif src != dst and me == src:
            got.append((dist.isend(y := x[: size % 5].clone(), dst, tag=kind % 2), y))
        elif src != dst and me == dst:
            got.append((dist.irecv(y := torch.zeros(size % 5), src, tag=kind % 2), y))
        if me == size % p:
            ranks.compute(1e-6 * (kind % 50))
        if step % 5 == 4:
            for work, _ in got:
                work.wait()
    for work, _ in got:
        work.wait()
    return [y for _, y in got]


def test_the_order_in_which_ranks_run_makes_no_difference():
    for program, p in itertools.product(range(6), (2, 5)):
        one, other = (
            ranks.run(random_program, program, 30, world_size=p, seed=seed)
            for seed in (None, program)
        )
        assert one.trace == other.trace
        assert all(
            torch.equal(a, b)
            for mine, theirs in zip(one.returns, other.returns, strict=True)
            for a, b in zip(mine, theirs, strict=True)
        )


def test_the_timeline_draws():
    def step(dist):
        ranks.compute(1e-3, "F0")
        dist.all_reduce(torch.zeros(1000))

    trace = ranks.run(step).trace
    ax = trace.draw(predicted=trace, title="a step")
    assert [label.get_text() for label in ax.get_yticklabels()] == [f"rank {r}" for r in range(4)]
    assert "F0" in [text.get_text() for text in ax.texts]
    plt.close("all")
