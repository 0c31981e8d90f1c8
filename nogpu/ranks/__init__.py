"""p ranks that run one function: simulated in this process, on gloo, or on NCCL.

    from nogpu import ranks

    def shift(dist, x):                             # dist: torch.distributed's own names
        p, me = dist.get_world_size(), dist.get_rank()
        got = torch.empty_like(x)
        works = dist.batch_isend_irecv([dist.P2POp(dist.isend, x, (me + 1) % p),
                                        dist.P2POp(dist.irecv, got, (me - 1) % p)])
        for work in works:
            work.wait()
        return got

    xs = ranks.each([torch.full((3,), float(r)) for r in range(4)])
    result = ranks.run(shift, xs, world_size=4)
    result.returns        # what each rank returned, by rank
    result.trace          # what happened
    result.time_s         # virtual seconds here; measured with machine="gloo" or "nccl"

**Arguments.** `run(function, *args, world_size=4, ...)` calls function(dist, *args) on every rank.
`ranks.each([...])` is an argument that differs by rank. Every rank has its own copy of the
arguments and of what the function uses from the notebook (cloudpickle), as processes have. Nothing
is shared, and what a rank changes is not changed here. Return what you want back.

**dist** has get_rank, get_world_size, send, recv, isend, irecv, batch_isend_irecv with P2POp,
barrier, broadcast, reduce, all_reduce, all_gather, all_gather_into_tensor, gather, scatter,
reduce_scatter, reduce_scatter_tensor, all_to_all, all_to_all_single, new_group with group=, and
ReduceOp. async_op=True returns a handle with wait() and is_completed(). all_gather_single and
reduce_scatter_single, PyTorch 2.13's names for two of them, work with any PyTorch.
only=["send", "recv"] gives a dist that has only these, get_rank, get_world_size, P2POp, ReduceOp.

`groups = ranks.mesh(dist, node=2, gpu=4)` makes the groups of a mesh with dist.new_group, on all
machines: dist.all_gather(..., group=groups["gpu"]) stays within a node.

**Machines.** "gloo" starts one process per rank (the first time in seconds, then in 0.2 s), where
ranks.compute sleeps. "nccl" does the same with one GPU per rank: arguments are moved there, new
tensors are made there, results come back. Messages that cross must go through batch_isend_irecv.
Both give the same trace, measured: a message lasts from when both sides had posted it until its
receiver had waited for it. The messages of a collective are the simulated machine's, and last as
long as the collective. noted=False leaves out the trace and passes torch.distributed itself, so
that a stopwatch measures nothing else. Under torchrun, run uses the processes that there are.

**Time** (simulated) is virtual: a message takes alpha_s + beta_s_per_byte × bytes, each a number or
a matrix [src][dst]. `**ranks.nodes(8, 4)` gives matrices for nodes with fast links inside. Ports
are full duplex: a rank sends one message and receives one at a time, and others queue. A message
begins when both its send and its receive are posted; send returns when it has arrived. What isend,
irecv or async_op=True begins goes on while the rank computes. Collectives are made of such messages
(rings and trees: the table in `collectives`). Computing takes no time, except:
- flops_per_s=1e12: each matmul, product with a vector, convolution and attention takes its FLOPs
  over this, backward too. All else takes no time: recurrent layers, linalg, FFT, element-wise;
- `ranks.compute(1e-3, "F0")` in the function takes 1 ms (on real machines it sleeps).
`with ranks.span("backward"):` names what happens within, and compute there takes that name.

**The order does not matter.** seed=7 draws the order in which ranks run; without a seed the lowest
runs first. Returns, times and trace do not depend on it; only what ranks print does (shown as
"[rank 2] ...", on all machines). Each rank begins with torch.manual_seed(0), so ranks draw the same
numbers unless they seed by rank. Ranks share Python's and NumPy's global generators: make one per
rank, np.random.default_rng(rank).

**What goes wrong is reported at once.** A rank's exception is raised here. DeadlockError: who waits
for whom, in which line; also a collective that some ranks never call. MismatchError: another size,
dtype, shape, op, root, or another collective. UnfinishedError: a message that nobody receives, a
handle that nobody waits for. RaceError: a tensor changed between isend and wait().
RankFailedError: not over after timeout_s (60), or a process that ended.

**Autograd** works as usual: hooks (`register_post_accumulate_grad_hook`, autograd.Function) may
call dist, in backward too.

**The trace** is plain data (as_dict, from_dict). Lists are by rank unless noted otherwise:
- trace.messages: Message(src, dst, bytes, start_s, end_s, what, tag, line, depth, group);
  trace.bytes (of all), trace.bytes_sent, trace.bytes_received; trace.bytes_between_nodes(per_node);
  trace.rounds: messages in the longest chain, in which one rank's successive messages follow each
  other too;
- trace.collectives: Collective(name, rank, group, number, bytes, start_s, end_s, line, values), one
  for each rank's call; trace.calls(rank): one rank's, in its own order;
- trace.compute, trace.spans: Span(rank, name, start_s, end_s); trace.spans_named("F*", rank=0),
  trace.compute_named("F*"); trace.compute_s; trace.idle_share; trace.bubble: the share of all
  ranks' time without compute;
- trace.bytes_during_compute("backward"): bytes sent while the rank computed under this name
  (under any name by default);
- trace.live_bytes[rank]: [(time_s, bytes)] of live tensors at each change (of changes at one time,
  the largest and the last): arguments, all results of PyTorch's operations, what autograd saves. A
  storage counts once, until it is freed. trace.peak_live_bytes (0 where live tensors were not
  followed), trace.live_bytes_at(rank, time_s). Not counted: copies that messages make, sparse
  tensors. Gradients that are views count as their storage. live_bytes=False leaves all this out;
- trace.live_by_category[rank]: [(time_s, {category: bytes})], and trace.peak_by_category[rank]:
  {category: the most bytes at once}, for the categories weights, gradients, optimizer, gathered and
  buffers (all the rest). The runtime finds what was gathered, the gradients of weights, and what a
  reduce-scatter takes and leaves. `ranks.label("weights", tensors)` in a driver says what else a
  tensor is;
- trace.held_bytes[rank], with held=True: what the rank held when it began each of its calls (of
  messages and collectives), in their order: its live tensors. A grader measures it from outside,
  while the rank waits for an answer: the memory of its process, beyond what it was forked with;
- message.values, collective.values: the numbers of a message, or of what a rank brings to a
  collective, of at most 64 elements, on the simulated machine;
- trace.draw(predicted=another_trace, title=..., until_s=..., ax=...): the timeline, one row per
  rank;
- trace.draw_beside(another_trace): two timelines on one axis, what was done above what was wanted;
- trace.draw_chunks(given, got, want, title=...): whose numbers each round brought to each rank,
  then what it returned and should have returned. given: each rank's vector before the run.
In a check, both pictures serve as `draw=lambda: result.trace.draw_chunks(given, ...)`.

**In a check**, all this works in the grader too: ranks.run(their_function, data, ..., options that
are data). The function is the name of a hole or a driver. There each rank is a process of its own
that holds only setup, holes and drivers, and the grader counts messages, bytes, rounds and clocks.
What a rank reports of itself (compute, spans, live bytes: the trace's self_reported) may be wrong:
also assert compute_s if a bubble or an overlap decides a mark. Errors to expect in a check:
ranks.DeadlockError and the other RanksErrors, or builtin ones. A run of 4 ranks takes some 30 ms.

To read the code: `operations` (what a rank posts) and `link` (what it asks); `calls` and `dist`
(what a rank calls), with `groups`, `mesh` and `arguments`; `network` with `ports`, `progress` and
`collectives` (which messages there are, and when they move) and `deadlock`; `conductor` (who runs
when); `recorder` (what a rank records of itself); `copies` (what crosses to a rank and back);
`simulated`. Pictures: `draw` (timelines), `chunks` (whose numbers are where), `ring`. `clock`
times functions on real machines.
Processes: `processes` starts them, `process` is one, `real` notes what it calls, `replay` makes the
trace. `remote` is a rank in the grader.
"""

import math
import numbers
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, get_args

from nogpu.ranks.errors import (
    DeadlockError,
    MismatchError,
    RaceError,
    RankFailedError,
    RanksError,
    UnfinishedError,
)
from nogpu.ranks.events import Collective, Message, Span
from nogpu.ranks.mesh import mesh
from nogpu.ranks.ports import Cost
from nogpu.ranks.recorder import compute, label, span
from nogpu.ranks.trace import Trace
from nogpu.remote import CountedRemotely

__all__ = [
    "Collective",
    "DeadlockError",
    "Each",
    "Message",
    "MismatchError",
    "RaceError",
    "RankFailedError",
    "RanksError",
    "Result",
    "Span",
    "Trace",
    "UnfinishedError",
    "compute",
    "each",
    "label",
    "mesh",
    "nodes",
    "run",
    "span",
]

Machine = Literal["simulated", "gloo", "nccl"]


@dataclass(frozen=True)
class Each:
    """An argument that differs by rank."""

    values: list[Any]


@dataclass
class Result:
    """What a run gave: what each rank returned, by rank, and the trace."""

    returns: list[Any]
    trace: Trace

    @property
    def time_s(self) -> float:
        """Seconds until the last rank returned: virtual if simulated, measured otherwise."""
        return self.trace.time_s


class Costs(TypedDict):
    """What messages cost between each pair of ranks: [src][dst]."""

    alpha_s: list[list[float]]
    beta_s_per_byte: list[list[float]]


def each(values: Iterable[Any]) -> Each:
    """An argument of `run` that differs by rank: rank r gets values[r]."""
    return Each(list(values))


def nodes(
    world_size: int,
    per_node: int,
    *,
    inside: tuple[float, float] = (5e-6, 5e-12),
    between: tuple[float, float] = (1e-5, 5e-11),
) -> Costs:
    """alpha_s and beta_s_per_byte of nodes with per_node ranks each: run(f, x, **nodes(8, 4)).

    inside, between: (α in seconds, β in seconds per byte) of two ranks of one node, and of
    different nodes.
    """
    if per_node < 1:
        raise ValueError(f"per_node: {per_node}; it must be a whole number from 1 on")
    ranks = range(world_size)
    links = [
        [inside if src // per_node == dst // per_node else between for dst in ranks]
        for src in ranks
    ]
    alpha_s, beta_s_per_byte = ([[link[i] for link in row] for row in links] for i in (0, 1))
    return {"alpha_s": alpha_s, "beta_s_per_byte": beta_s_per_byte}


def run(
    function: Callable[..., Any],
    *args: Any,
    world_size: int = 4,
    machine: Machine = "simulated",
    seed: int | None = None,
    only: Sequence[str] | None = None,
    alpha_s: Cost = 1e-5,
    beta_s_per_byte: Cost = 1e-10,
    flops_per_s: float | None = None,
    live_bytes: bool | None = None,
    held: bool = False,
    noted: bool = True,
    timeout_s: float = 60.0,
) -> Result:
    """The Result of function(dist, *args) on each of world_size ranks.

    args: those that `each` made differ by rank. machine: "simulated", "gloo" or "nccl". seed: of
    the order in which simulated ranks run; None: the lowest first. only: the names that dist has.
    alpha_s, beta_s_per_byte, flops_per_s: costs of the simulated machine. live_bytes: whether to
    follow live tensors (by default if simulated). held: whether to note what ranks hold at each
    call. noted: whether calls of dist on real machines go into the trace; if not, dist is
    torch.distributed itself. timeout_s: of the run, in real time.
    """
    __tracebackhide__ = True  # IPython and pytest then show the rank's frames, not ours
    _validate(args, world_size, machine, only, flops_per_s, timeout_s)
    live_bytes = machine == "simulated" if live_bytes is None else live_bytes
    options = {"only": only, "live_bytes": live_bytes, "held": held, "timeout_s": timeout_s}
    if machine != "simulated":
        return _run(function, args, int(world_size), **options, backend=machine, noted=noted)
    costs = {"alpha_s": alpha_s, "beta_s_per_byte": beta_s_per_byte, "flops_per_s": flops_per_s}
    return _run(function, args, int(world_size), **options, seed=seed, **costs)


def _run(function: Callable[..., Any], args: tuple, world_size: int, **options: Any) -> Result:
    __tracebackhide__ = True
    backend = options.get("backend")
    if isinstance(function, CountedRemotely):
        if backend:
            raise ValueError(f"machine: {backend!r}; a grader has simulated ranks only")
        return function.count_remotely("ranks", *args, world_size=world_size, **options)
    args_by_rank = [
        [arg.values[rank] if isinstance(arg, Each) else arg for arg in args]
        for rank in range(world_size)
    ]
    if backend:
        from nogpu.ranks import processes

        return Result(*processes.run(function, args_by_rank, **options))
    from nogpu.ranks import simulated

    return Result(*simulated.run(function, args_by_rank, **options))


def _validate(
    args: tuple,
    world_size: Any,
    machine: Any,
    only: Any,
    flops_per_s: Any,
    timeout_s: Any,
) -> None:
    """Raise unless these arguments of `run` are possible."""
    if machine not in get_args(Machine):
        raise ValueError(f"machine: {machine!r}; there are {', '.join(get_args(Machine))}")
    if not isinstance(world_size, numbers.Integral) or world_size < 1:
        raise ValueError(f"world_size: {world_size!r}; it must be a whole number from 1 on")
    if flops_per_s is not None and not _is_positive(flops_per_s):
        raise ValueError(f"flops_per_s: {flops_per_s!r}; it must be a positive number, or None")
    if not _is_positive(timeout_s):
        raise ValueError(f"timeout_s: {timeout_s!r}; it must be a positive number of seconds")
    if isinstance(only, str):
        raise ValueError(f"only: {only!r}; it must be a list of names")
    for arg in args:
        if isinstance(arg, Each) and len(arg.values) != world_size:
            raise ValueError(f"each: {len(arg.values)} values for {world_size} ranks")


def _is_positive(number: Any) -> bool:
    return isinstance(number, numbers.Real) and 0 < float(number) < math.inf
