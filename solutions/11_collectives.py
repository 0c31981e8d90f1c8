# %% [markdown]
# # 11 · Collectives
#
# **How do p machines add up a gigabyte each, and why does it hardly matter how large p is?**
#
# After this lab you can
#
# - say what each collective leaves on each rank, and build it from sends and receives, without a hang;
# - predict its time from two measured numbers, and pick the algorithm that suits a size;
# - read a bandwidth such as "277 GB/s" and know which bytes were divided by what.
#
# You need lab 02; no GPU. About 100 minutes. Where there are several GPUs, the last part measures NCCL.
#
# Keep your whole answer in the cell of its exercise: the grader reads no other.

# %% tags=["setup"]
import itertools
import time

import matplotlib.pyplot as plt
import numpy as np
import torch

from common import figures, holdings, ledger, ranks
from common.checks import agree

figures.use_style()
rng = np.random.default_rng()

# %% [markdown]
# **Recall.** (a) A kernel takes 5 µs to start and then copies 4 TB/s. From which size on does it spend more time
# copying than starting? (b) `y += x` in float32: how many bytes of memory traffic an element, and what limits it?
#
# <details><summary>Answers</summary>
#
# (a) 5 µs · 4 TB/s = 20 MB. This product of a latency and a bandwidth comes back today. (b) Two reads and a write, 12
# bytes for one FLOP: memory (lab 02).
# </details>

# %% [markdown]
# ## See it
#
# In data-parallel training each *rank* (a numbered process, with a GPU) has its own gradient, and all need the sum:
# an **all-reduce**. The obvious way: everyone sends to rank 0, which adds, and sends the sum to everyone.
#
# The functions below are called on all ranks at once. `dist` has the names of `torch.distributed`. The ranks are
# simulated and time is virtual: a message takes α = 10 µs, and 0.1 ns more for each byte (10 GB/s). A rank has **one
# port, full duplex**: it sends one message at a time and receives one; others queue. `send` returns when its message
# has arrived.

# %%
def sum_on_rank_0(dist, x):
    if dist.get_rank() > 0:
        dist.send(x, 0)
    else:
        for peer in range(1, dist.get_world_size()):
            dist.recv(received := torch.empty_like(x), peer)
            x += received

# %%
def through_rank_0(dist, x):
    sum_on_rank_0(dist, x)
    if dist.get_rank() > 0:
        dist.recv(x, 0)
    else:
        for peer in range(1, dist.get_world_size()):
            dist.send(x, peer)

# %% [markdown]
# Compare it with PyTorch's `dist.all_reduce`, simulated too, for 4 MB on 2, 4 and 8 ranks. Guess first: which of the
# two moves more bytes in all, and by how much?

# %%
def torch_all_reduce(dist, x):
    dist.all_reduce(x)

for p in (2, 4, 8):
    for function in (through_rank_0, torch_all_reduce):
        trace = ranks.run(function, torch.ones(2**20), world_size=p).trace
        print(f"{p} ranks, {function.__name__:16}: {ledger.show(float(trace.bytes), 'B'):>7} moved"
              f" in {ledger.show(trace.time_s, 's')}")

# %%
_, axes = plt.subplots(2, 1, figsize=(7.2, 4.8))
for ax, function in zip(axes, (through_rank_0, torch_all_reduce), strict=True):
    trace = ranks.run(function, torch.ones(2**20)).trace
    trace.draw(ax=ax, title=function.__name__, until_s=2.6e-3)

# %% [markdown]
# The bytes are the same, to the last one. But through rank 0 all of them pass one port, while the others wait: seven
# times the time on eight ranks as on two. PyTorch's ranks send and receive all the time. Theirs doubles; and a port
# will never have to carry more than two vectors, however many ranks there are.
#
# In this lab you write that, and say before any run how long it takes.

# %% [markdown]
# ## Part 1 · What is left where
#
# A *collective* is an operation that all ranks call together. Think of each rank's vector as cut into p *chunks*,
# chunk r being meant for, or coming from, rank r. Eight are in use:
#
# | | leaves |
# | --- | --- |
# | broadcast | the root's vector on every rank |
# | scatter | chunk r of the root's vector on rank r |
# | gather | chunk r from rank r, for all r, on the root |
# | reduce | the sum of all vectors on the root |
# | all-gather, all-reduce | what gather, what reduce leaves, on every rank |
# | reduce-scatter | chunk r of the sum on rank r |
# | all-to-all | chunk r of every rank's vector on rank r |

# %% [markdown]
# ### Exercise 1.1 · held
#
# Write this table as a function of the ranks' vectors. Then use it for a question on which both lectures slip. An
# all-reduce is two collectives, one after the other. The notes say "Reduce followed by scatter"; the lecture, "all
# reduce is equivalent to reduce plus all gather". Which pairs are right?

# %% tags=["hole"]
def held(collective, x, root):
    """What each rank has in the end: a list by rank of tensors, None for a rank that gets nothing.

    collective: "broadcast", "scatter", "gather", "reduce", "all_gather", "all_reduce", "reduce_scatter"
    or "all_to_all". x: (p, p); row r is rank r's vector, column c its chunk c. A lone chunk has
    shape (1,). About one line for each.
    """
    # BEGIN SOLUTION
    p = len(x)
    total, own = x.sum(0), x.diagonal()
    return {
        "broadcast": [x[root]] * p,
        "scatter": list(x[root].split(1)),
        "gather": [own if rank == root else None for rank in range(p)],
        "reduce": [total if rank == root else None for rank in range(p)],
        "all_gather": [own] * p,
        "all_reduce": [total] * p,
        "reduce_scatter": list(total.split(1)),
        "all_to_all": list(x.T),
    }[collective]
    # END SOLUTION


# A set of pairs (first, second) that leave what all_reduce leaves; none has all_reduce in it.
# BEGIN SOLUTION
all_reduce_pairs = {("reduce", "broadcast"), ("reduce_scatter", "all_gather")}
# END SOLUTION

# %% tags=["check"] points=2
for p in (1, 2, 3, 4):
    x, root = torch.from_numpy(rng.integers(1, 1000, (p, p))), int(rng.integers(p))
    for collective, want in holdings.after(x, root).items():
        mine = want[root]
        case = f"held({collective!r}, x, {root}), p = {p}"
        agree(held(collective, x.clone(), root), want, case, mistakes={
            "Only the root gets it.": [mine] * p,
            "Every rank gets it.": [mine if rank == root else None for rank in range(p)],
            "Rank r gets chunk r alone.": [x.sum(0) if "reduce" in collective else x[root]] * p,
            "Rank r brings its chunk r.": [x.T[root] if torch.is_tensor(w) else None for w in want],
            "Rank r gets everyone's chunk r; it had all chunks of its own before.": list(x)})
print("held agrees with torch.distributed on eight collectives, for 1 to 4 ranks")

# %% tags=["check"]
by_root, by_chunks = ("reduce", "broadcast"), ("reduce_scatter", "all_gather")
notes, lecture = ("reduce", "scatter"), ("reduce", "all_gather")
after_reduce = "After reduce, only the root has the sum, and the others need all of it."
agree(all_reduce_pairs, {by_root, by_chunks}, "all_reduce_pairs", mistakes={
    after_reduce: {by_root, notes}, after_reduce + " ": {by_root, lecture},
    " " + after_reduce: {notes, lecture}, "There is one more: by chunks.": {by_root},
    "There is one more: by way of the root.": {by_chunks}})
print("all_reduce_pairs: the two ways to make an all-reduce of two collectives")

# %% [markdown]
# Your function, drawn: a row a rank, a colour for whose numbers they are. A cell with stripes is a sum.

# %%
x = holdings.marked(4)
drawn = {collective: held(collective, x, 0) for collective in holdings.COLLECTIVES}
holdings.draw({"before": list(x), **drawn})
plt.show()

# %% [markdown]
# After a reduce, a scatter leaves each rank one chunk of the sum: that is a reduce-scatter, at the price of a detour.
# An all-gather after a reduce gathers a chunk of the sum from the root, and unsummed chunks from the others.
#
# **Reduce adds, gather and scatter move, "all" means that every rank gets it. An all-reduce is a reduce and a
# broadcast, or a reduce-scatter and an all-gather.**

# %% [markdown]
# ## Part 2 · Trees
#
# First the collectives with a root, in few **rounds**: the longest chain of messages that wait for one another, those
# that one rank sends, or receives, one after another included.
#
# The notes on broadcast: "We first split the ranks into half, and send the message to the half without the message.
# Then repeat recursively in each half. Beautiful." Each round doubles the ranks that have it: ⌈log₂ p⌉ rounds.
#
# Who passes on to whom is all there is to it. Reduce is the same tree, walked backwards; scatter sends along each
# branch only what its ranks need; gather is scatter backwards. One schedule, four collectives.

# %% tags=["setup"]
CASES = [(1, 3), (2, 5), (3, 7), (4, 2), (4, 8), (5, 13), (6, 0), (7, 9), (8, 24)]  # ranks, elements
MESSAGES = ("send", "recv", "isend", "irecv", "batch_isend_irecv")


def vectors(p, n):
    """A vector a rank, of whole numbers: float64 adds them up exactly."""
    return [torch.tensor(rng.integers(-99, 100, n).tolist(), dtype=torch.float64) for _ in range(p)]


def cases():
    """(ranks, elements, a root, a vector for each rank) of each case."""
    return ((p, n, int(rng.integers(p)), vectors(p, n)) for p, n in CASES)


def run(function, *args, p, only=MESSAGES, beta=1 / 8):
    """A run on p simulated ranks whose dist has nothing but `only`; time counts elements of float64."""
    return ranks.run(function, *args, world_size=p, only=only, seed=int(rng.integers(10**6)),
                     alpha_s=0.0, beta_s_per_byte=beta, live_bytes=False)

# %% tags=["setup"]
def assert_cost(case, trace, *, rounds, elements, most=float("inf"), pairs=float("inf")):
    """Raises for more rounds, elements in all, elements that one rank sends, or (sender, receiver)."""
    sent = [count // 8 for count in trace.bytes_sent]
    assert trace.rounds <= rounds, f"{case}: {trace.rounds} rounds, want {rounds}: too many ranks wait"
    assert sum(sent) <= elements, f"{case}: {sum(sent)} elements sent, want {elements}: some in vain"
    assert max(sent) <= most, f"{case}: one rank sent {max(sent)} elements, want {most}: cut evenly"
    links = {(message.src, message.dst) for message in trace.messages}
    assert len(links) <= pairs, f"{case}: {len(links)} links are used, a ring has {pairs}: neighbours"


def kept_by_rank(trace, n, root):
    """Elements that each rank has and does not send on, if the root begins with n."""
    both = enumerate(zip(trace.bytes_received, trace.bytes_sent, strict=True))
    return [(received - sent) // 8 + (n if rank == root else 0) for rank, (received, sent) in both]

# %% tags=["setup"]
def cut_otherwise(x, p):
    """{mistake: the p chunks that come of it}."""
    up, down = -(-len(x) // p), len(x) // p
    ends = [down * rank for rank in range(1, p)] + [len(x)]
    return {
        "x.chunk(p) cuts so; x.tensor_split(p) evenly.": [x[up * r:up * (r + 1)] for r in range(p)],
        "The remainder is not for the last one alone.": [x[down * r:end] for r, end in enumerate(ends)],
        "The remainder is missing.": [x[down * r:down * (r + 1)] for r in range(p)]}

# %% tags=["setup"]
def summed_otherwise(given):
    """{mistake: what each rank then has after a reduce-scatter of these vectors, one a rank}."""
    p, own = len(given), [x.tensor_split(len(given)) for x in given]  # own[rank][chunk]
    want = sum(given).tensor_split(p)
    return {
        "Rank r's chunk is r: start one chunk earlier.": [want[(r + 1) % p] for r in range(p)],
        "Everything is in it p times.": [p * chunk for chunk in want],
        "Nothing has been added to a rank's own share.": [own[r][r] for r in range(p)],
        "Only one rank's share has been added.": [own[r][r] + own[r - 1][r] for r in range(p)],
        "Its own share is lost: receive into a buffer.": [own[(r + 1) % p][r] for r in range(p)]}

# %% [markdown]
# ### Exercise 2.1 · tree_broadcast
#
# Write the schedule, and the first two collectives on top of it. One care is worth it now, for scatter's sake: let
# src give away the *smaller* half of its ranks, and keep the larger.

# %% tags=["hole"]
def halvings(p, root):
    """Who passes on to whom: a list of (src, dst, first, last), in an order that works.

    dst then has ranks first to last - 1 to care for, itself among them; src gives away the smaller
    half of its own ranks, rounded down, from one end. Root begins with all. About 12 lines.
    """
    # BEGIN SOLUTION
    def halve(first, last, src):
        half = (last - first) // 2
        if half == 0:
            return []
        if src < last - half:
            mine, given = (first, last - half), (last - half, last)
        else:
            mine, given = (first + half, last), (first, first + half)
        dst = given[0]
        return [(src, dst, *given), *halve(*mine, src), *halve(*given, dst)]
    return halve(0, p, root)
    # END SOLUTION


def tree_broadcast(dist, x, root):
    """Root's x, on every rank: each rank's x is overwritten, and returned. About six lines."""
    # BEGIN SOLUTION
    me = dist.get_rank()
    for src, dst, _, _ in halvings(dist.get_world_size(), root):
        if me == src:
            dist.send(x, dst)
        elif me == dst:
            dist.recv(x, src)
    return x
    # END SOLUTION


def tree_reduce(dist, x, root):
    """The sum of all ranks' x, in root's x, which is returned; what the others return is not used.

    About eight lines.
    """
    # BEGIN SOLUTION
    me, received = dist.get_rank(), torch.empty_like(x)
    for src, dst, _, _ in reversed(halvings(dist.get_world_size(), root)):
        if me == dst:
            dist.send(x, src)
        elif me == src:
            dist.recv(received, dst)
            x += received
    return x
    # END SOLUTION

# %% tags=["check"]
for p, root in ((p, root) for p, root in itertools.product(range(1, 10), range(9)) if root < p):
    messages, cares = halvings(p, root), {root: range(p)}
    agree(len(messages), p - 1, f"the number of messages in halvings({p}, {root})")
    for src, dst, first, last in messages:
        case, given = f"halvings({p}, {root}): ({src}, {dst}, {first}, {last})", range(first, last)
        assert src in cares, f"{case}: rank {src} does not have it yet"
        own, keep = cares[src], (len(cares[src]) + 1) // 2  # what it keeps: the larger half
        assert given in (own[keep:], own[:len(own) - keep]), (
            f"{case}: of ranks {list(own)}, rank {src} gives away the smaller half, from one end")
        assert dst in given and src not in given, f"{case}: dst is among them, src is not"
        cares[dst], cares[src] = given, own[:keep] if given == own[keep:] else own[len(own) - keep:]
print("halvings: for 1 to 9 ranks and every root, ranks halve until each has its own")

# %% tags=["check"]
for p, n, root, given in cases():
    result = run(tree_broadcast, ranks.each(given), root, p=p)
    case = f"tree_broadcast, {n} elements on {p} ranks, root {root}"
    agree(result.returns, [given[root]] * p, f"{case},", mistakes={
        "The root is the one that is asked for, not rank 0.": [given[0]] * p,
        "A rank still has its own vector.": given})
    assert_cost(case, result.trace, rounds=(p - 1).bit_length(), elements=(p - 1) * n)
print("tree_broadcast: 9 runs, each in ⌈log₂ p⌉ rounds")

# %% tags=["check"]
for p, n, root, given in cases():
    result, total = run(tree_reduce, ranks.each(given), root, p=p), sum(given)
    case = f"tree_reduce, {n} elements on {p} ranks, root {root}"
    agree(result.returns[root], total, f"{case}, on the root,", mistakes={
        "The root's own vector belongs to the sum.": total - given[root],
        "The root's own vector is in the sum twice.": total + given[root],
        **{f"Rank {r}'s is missing: who passed on too early?": total - x for r, x in enumerate(given)}})
    assert_cost(case, result.trace, rounds=(p - 1).bit_length(), elements=(p - 1) * n)
print("tree_reduce: 9 runs, each in ⌈log₂ p⌉ rounds")

# %% [markdown]
# <details><summary>Hint</summary>
#
# Recursion suits it: `halve(first, last, src)` gives the message (src, dst, …), then the messages of both halves, src
# going on in one and dst in the other. A rank looks through the whole list for its own messages. For reduce, go
# through `reversed(...)`: then a rank has received everything below it before its turn comes to send.
# </details>

# %%
def broadcast_from_2(dist):
    tree_broadcast(dist, torch.full((2**18,), float(dist.get_rank())), root=2)

trace = ranks.run(broadcast_from_2, world_size=8).trace
trace.draw(title="Broadcast of 1 MB from rank 2: three rounds")
plt.show()

# %% [markdown]
# Most ports idle most of the time. That is the price of few rounds.

# %% [markdown]
# ### Exercise 2.2 · scatter
#
# Now each branch carries only what its ranks need. Cut with `x.tensor_split(p)`: p chunks, views of x, whose lengths
# differ by one at most. (`x.chunk(p)` cuts otherwise, and may give fewer.) Chunks of neighbouring ranks are
# neighbours in x, so one message is one slice of it.

# %% tags=["hole"]
def scatter(dist, x, root):
    """Chunk r of root's x, on rank r. About eight lines.

    x has the same length everywhere; on other ranks it serves as memory, what stands in it is no use.
    """
    # BEGIN SOLUTION
    p, me = dist.get_world_size(), dist.get_rank()
    chunks = x.tensor_split(p)
    starts = [sum(map(len, chunks[:rank])) for rank in range(p + 1)]
    for src, dst, first, last in halvings(p, root):
        theirs = x[starts[first]:starts[last]]
        if me == src:
            dist.send(theirs, dst)
        elif me == dst:
            dist.recv(theirs, src)
    return chunks[me]
    # END SOLUTION


def gather(dist, x, root):
    """All chunks, in root's x, which is returned; what the others return is not used.

    Rank r brings chunk r of its x; what else stands there is no use. About eight lines.
    """
    # BEGIN SOLUTION
    p, me = dist.get_world_size(), dist.get_rank()
    chunks = x.tensor_split(p)
    starts = [sum(map(len, chunks[:rank])) for rank in range(p + 1)]
    for src, dst, first, last in reversed(halvings(p, root)):
        theirs = x[starts[first]:starts[last]]
        if me == dst:
            dist.send(theirs, src)
        elif me == src:
            dist.recv(theirs, dst)
    return x
    # END SOLUTION

# %% tags=["check"]
for p, n, root, given in cases():
    want, case = list(given[root].tensor_split(p)), f"scatter, {n} elements on {p} ranks, root {root}"
    result = run(scatter, ranks.each(given), root, p=p)
    agree(result.returns, want, f"{case},", mistakes=cut_otherwise(given[root], p) | {
        "The chunk is the root's.": [x.tensor_split(p)[r] for r, x in enumerate(given)],
        "Each rank gets its chunk alone.": [given[root]] * p})
    kept = kept_by_rank(result.trace, n, root)
    assert kept == list(map(len, want)), f"{case}: ranks keep {kept} elements; want only their chunks"
    assert_cost(case, result.trace, rounds=(p - 1).bit_length(), elements=3 * n)
    assert n % p or result.time_s <= n - n // p, f"{case}: the smaller half goes, the larger stays"
print("scatter: 9 runs in ⌈log₂ p⌉ rounds; each rank keeps its chunk and passes on the rest")

# %% tags=["check"]
for p, n, root, given in cases():
    want = torch.cat([x.tensor_split(p)[r] for r, x in enumerate(given)])
    result = run(gather, ranks.each(given), root, p=p)
    case = f"gather, {n} elements on {p} ranks, root {root}"
    agree(result.returns[root], want, f"{case}, on the root,", mistakes={
        "Rank r brings its chunk r; that is the root's own vector.": given[root]})
    added = [-kept for kept in kept_by_rank(result.trace, -n, root)]
    want = [len(chunk) for chunk in want.tensor_split(p)]
    assert added == want, f"{case}: ranks add {added} elements to what they pass on; want their chunks"
    assert_cost(case, result.trace, rounds=(p - 1).bit_length(), elements=3 * n)
print("gather: 9 runs in ⌈log₂ p⌉ rounds; each rank adds its chunk to what it passes on")

# %% [markdown]
# <details><summary>Hint</summary>
#
# With `starts[r]` the place where chunk r begins, the message (src, dst, first, last) carries
# `x[starts[first]:starts[last]]`.
# </details>

# %%
def scatter_from_2(dist):
    scatter(dist, torch.zeros(2**18), root=2)

trace = ranks.run(scatter_from_2, world_size=8).trace
trace.draw(title="Scatter of 1 MB from rank 2: half as much each round")
plt.show()

# %% [markdown]
# **A tree takes ⌈log₂ p⌉ rounds, the fewest there can be: each round at most doubles who has the data. With the whole
# vector in every round, that is ⌈log₂ p⌉ times the bytes through the root's port.**

# %% [markdown]
# ## Part 3 · Rings
#
# For large vectors, bytes count, not rounds; so all ports should be busy all the time. Put the ranks in a ring: each
# sends to its right neighbour, me + 1, and receives from its left. Let us try the simplest thing, everyone hands its
# vector to the right.

# %%
def everyone_sends_first(dist, x):
    me, p = dist.get_rank(), dist.get_world_size()
    dist.send(x, (me + 1) % p)
    dist.recv(x, (me - 1) % p)

try:
    ranks.run(everyone_sends_first, torch.ones(10))
except ranks.DeadlockError as error:
    print(error)

# %% [markdown]
# **The clinic: a hang.** `send` returns when the message has arrived, and nobody receives before its own `send` is
# over. On real machines nothing would happen, for ever; the simulated ones see the cycle. (With small messages it
# works on some systems, which keep a copy: a hang that waits for a larger model.)
#
# The cure is to begin both, then wait for both. `batch_isend_irecv` is the form that works with gloo and NCCL alike.
# From here on, use this function of ours.

# %% tags=["driver"]
def exchange(dist, sent, dst, received, src):
    """Sends one tensor to dst while receiving another from src; returns when both are over."""
    both = [dist.P2POp(dist.isend, sent, dst), dist.P2POp(dist.irecv, received, src)]
    for work in dist.batch_isend_irecv(both):
        work.wait()

# %% [markdown]
# ### Exercise 3.1 · ring_reduce_scatter
#
# Cut every vector into p chunks. Now let partial sums travel: in each round, every rank sends one chunk to the right,
# and adds the one that comes from the left to its own. After p − 1 rounds each chunk has been everywhere, and is
# complete.
#
# Chunk r must end on rank r. Where, then, does it start? And which chunk does rank me send in round 1, 2, …? No rank
# may send more than (p − 1)⌈n/p⌉ elements.

# %% tags=["hole"]
def ring_reduce_scatter(dist, x):
    """Chunk r, x.tensor_split(p)[r], of the sum over ranks, on rank r. About eight lines.

    p - 1 rounds. x may be overwritten.
    """
    # BEGIN SOLUTION
    p, me = dist.get_world_size(), dist.get_rank()
    chunks = x.tensor_split(p)
    inbox = torch.empty_like(chunks[0])  # the first is as long as any
    for step in range(1, p):
        sent, grows = chunks[(me - step) % p], chunks[(me - step - 1) % p]
        exchange(dist, sent, (me + 1) % p, inbox[:len(grows)], (me - 1) % p)
        grows += inbox[:len(grows)]
    return chunks[me]
    # END SOLUTION

# %% tags=["check"] points=2
for p, n, _, given in cases():
    case = f"ring_reduce_scatter, {n} elements on {p} ranks"
    total = sum(given)
    want = list(total.tensor_split(p))
    result = run(ring_reduce_scatter, ranks.each(given), p=p)
    agree(result.returns, want, f"{case},", mistakes=cut_otherwise(total, p) | summed_otherwise(given))
    most = (p - 1) * -(-n // p)
    assert_cost(case, result.trace, rounds=p - 1, elements=(p - 1) * n, most=most, pairs=p)
print("ring_reduce_scatter: 9 runs; p - 1 rounds, and (p - 1)⌈n/p⌉ elements a rank at most")

# %% [markdown]
# <details><summary>Hint</summary>
#
# Chunk r goes round from rank r + 1 to rank r, so rank me starts with chunk me − 1, and receives chunk me − 2: the
# next that it sends. Receive into a buffer: the chunk's place holds your own share. A chunk's length is that of the
# one it is added to.
# </details>

# %% [markdown]
# ### Exercise 3.2 · ring_all_reduce
#
# Now every rank has one complete chunk. Send it round once more, this time to be copied: a ring all-gather. And that
# completes the all-reduce.

# %% tags=["hole"]
def ring_all_gather(dist, x):
    """x with everyone's chunk in its place: rank r brings chunk r, x.tensor_split(p)[r].

    x is overwritten and returned; what else stood in it is of no use. p - 1 rounds. About six lines.
    """
    # BEGIN SOLUTION
    p, me = dist.get_world_size(), dist.get_rank()
    chunks = x.tensor_split(p)
    for step in range(p - 1):
        exchange(dist, chunks[(me - step) % p], (me + 1) % p, chunks[(me - step - 1) % p], (me - 1) % p)
    return x
    # END SOLUTION


def ring_all_reduce(dist, x):
    """The sum of all ranks' x, on every rank; x may be overwritten. About two lines."""
    # BEGIN SOLUTION
    ring_reduce_scatter(dist, x)  # ours leaves rank r's chunk in its place in x
    return ring_all_gather(dist, x)
    # END SOLUTION

# %% tags=["check"]
for p, n, _, given in cases():
    case = f"ring_all_gather, {n} elements on {p} ranks"
    want = torch.cat([x.tensor_split(p)[r] for r, x in enumerate(given)])
    result = run(ring_all_gather, ranks.each(given), p=p)
    agree(result.returns, [want] * p, f"{case},", mistakes={
        "Nothing has been overwritten.": given,
        "Chunk r comes from rank r, not from rank r - 1.": [
            torch.cat([given[r - 1].tensor_split(p)[r] for r in range(p)])] * p})
    most = (p - 1) * -(-n // p)
    assert_cost(case, result.trace, rounds=p - 1, elements=(p - 1) * n, most=most, pairs=p)
print("ring_all_gather: 9 runs; p - 1 rounds, and (p - 1)⌈n/p⌉ elements a rank at most")

# %% tags=["check"] points=2
for p, n, _, given in cases():
    case = f"ring_all_reduce, {n} elements on {p} ranks"
    total, share = sum(given), (p - 1) * -(-n // p)  # share: (p - 1)⌈n/p⌉
    result = run(ring_all_reduce, ranks.each(given), p=p)
    agree(result.returns, [total] * p, f"{case},", mistakes={
        "Everything is in it p times.": [p * total] * p, "A rank has its own vector still.": given,
        "The mean is asked for later; here, the sum.": [total / p] * p})
    assert_cost(case, result.trace, rounds=2 * (p - 1), elements=2 * (p - 1) * n, most=2 * share)
print("ring_all_reduce: 9 runs; 2(p - 1) rounds, and 2(p - 1)⌈n/p⌉ elements a rank at most")

# %% tags=["check"]
for p in (3, 5):
    given = [torch.from_numpy(rng.standard_normal(40)).float() for _ in range(p)]
    want = sum(x.double() for x in given).float()
    got = run(ring_all_reduce, ranks.each(given), p=p).returns
    agree(got[0], want, f"ring_all_reduce in float32 on {p} ranks", atol=1e-5)
    for r in range(1, p):
        agree(got[r], got[0], f"rank {r}'s sum, against rank 0's: to the last bit,")
print("ring_all_reduce: all ranks have the same bits")

# %% [markdown]
# Why the same bits? Floating-point addition depends on the order, and models whose sums differ in the last bit drift
# apart, step by step. In the ring each chunk is added up once, in one order, and then copied.
#
# The trace that you saw at the start, now your own:

# %%
ranks.run(ring_all_reduce, torch.ones(2**18)).trace.draw(title="Your all-reduce of 1 MB on four ranks")
plt.show()

# %% [markdown]
# A rank sends 2(p − 1) chunks of n/p elements: 1.5 n for four ranks, 1.75 n for eight, never 2 n. Here is the answer
# to the lab's question. None can do with fewer: each of the n sums takes p − 1 numbers to make, and p − 1 copies to
# spread.
#
# **All ports busy: a ring all-reduce moves 2(p − 1)/p vectors through each, whatever p is. It pays in rounds: 2(p −
# 1).**

# %% [markdown]
# ## Part 4 · Two numbers
#
# How long does it take? A message of b bytes takes **α + βb**: α seconds of latency, and β seconds a byte, one over
# the bandwidth. The time of a collective is that of its longest chain of messages. Write a vector's bytes as B, and
# sum α + βb over the rounds:
#
# - tree broadcast: B in each of ⌈log₂ p⌉ rounds;
# - scatter by halving: B/2 + B/4 + …, in all (p − 1)/p · B;
# - rings: B/p in each round.
#
# (The notes add nγ to a reduce, for the additions. We leave it out now, and meet it again in part 5.)

# %% tags=["setup"]
ALGORITHMS = {  # in PyTorch's collectives, for which the simulated machine has the same trees and rings
    "tree_broadcast": ["broadcast"], "tree_reduce": ["reduce"],
    "tree_all_reduce": ["reduce", "broadcast"],
    "scatter": ["scatter"], "gather": ["gather"], "ring_reduce_scatter": ["reduce_scatter"],
    "ring_all_gather": ["all_gather"], "ring_all_reduce": ["all_reduce"]}

# %% tags=["setup"]
def timed_otherwise(time_s, rounds, p, alpha_s, size_s):
    """{mistake: the seconds that come of it}; size_s: β times the bytes of a vector."""
    levels = (p - 1).bit_length()
    return {
        "These messages are parts of the vector.": rounds * (alpha_s + size_s),
        "Whole vectors; a half and less in a scatter.": rounds * (alpha_s + size_s / p),
        "Rounds are whole: round log₂ p up.": time_s * np.log2(p) / levels,
        "There and back.": time_s / 2,
        "Your own chunk is there: p - 1 rounds.": time_s * p / (p - 1),
        "A scatter by halving takes ⌈log₂ p⌉ rounds.": (p - 1) * (alpha_s + size_s / p),
        "p - 1 chunks of p leave the root.": levels * alpha_s + (1 - 0.5**levels) * size_s}

# %% tags=["setup"]
def torch_does(dist, collectives, n):
    """Calls torch.distributed's own, one after the other, for vectors of n float32; p divides n."""
    whole, other, chunk = torch.zeros(n), torch.zeros(n), torch.zeros(n // dist.get_world_size())
    chunks = list(whole.split(len(chunk))) if dist.get_rank() == 0 else None
    for collective in collectives:
        {"broadcast": lambda: dist.broadcast(whole, 0), "reduce": lambda: dist.reduce(whole, 0),
         "scatter": lambda: dist.scatter(chunk, chunks, 0),
         "gather": lambda: dist.gather(chunk, chunks, 0),
         "reduce_scatter": lambda: dist.reduce_scatter_tensor(chunk, whole),
         "all_gather": lambda: dist.all_gather_into_tensor(whole, chunk),
         "all_reduce": lambda: dist.all_reduce(whole),
         "all_to_all": lambda: dist.all_to_all_single(other, whole)}[collective]()

# %% [markdown]
# ### Exercise 4.1 · alpha_beta_time
#
# Write the times of all the algorithms you have built, for any p (also where it is no power of two) and p chunks of
# equal size. Then the size at which the ring overtakes a tree all-reduce, which is a tree reduce and a tree
# broadcast.

# %% tags=["hole"]
def alpha_beta_time(algorithm, p, vector_bytes, alpha_s, beta_s_per_byte):
    """Seconds that the algorithm takes on p ranks, for vectors of so many bytes on each.

    algorithm: one of ALGORITHMS, above. p is 1 or more. About ten lines.
    """
    # BEGIN SOLUTION
    depth, ring, share = (p - 1).bit_length(), p - 1, (p - 1) / p
    rounds, times_through_a_port = {
        "tree_broadcast": (depth, depth),
        "tree_reduce": (depth, depth),
        "tree_all_reduce": (2 * depth, 2 * depth),
        "scatter": (depth, share),
        "gather": (depth, share),
        "ring_reduce_scatter": (ring, share),
        "ring_all_gather": (ring, share),
        "ring_all_reduce": (2 * ring, 2 * share),
    }[algorithm]
    return rounds * alpha_s + times_through_a_port * vector_bytes * beta_s_per_byte
    # END SOLUTION


def crossover_bytes(p, alpha_s, beta_s_per_byte):
    """Bytes of a vector from which on the ring all-reduce takes no longer than the tree's.

    p is 2 or more. About two lines.
    """
    # BEGIN SOLUTION
    depth = (p - 1).bit_length()
    return alpha_s / beta_s_per_byte * (p - 1 - depth) / (depth - (p - 1) / p)
    # END SOLUTION

# %% tags=["check"] points=2
for algorithm, p in itertools.product(ALGORITHMS, (5, 8)):
    alpha_s, beta = 10 ** rng.uniform(-6, -4), 10 ** rng.uniform(-10, -9)
    n, cost = 840 * int(rng.integers(9, 99)), {"alpha_s": alpha_s, "beta_s_per_byte": beta}
    trace = ranks.run(torch_does, ALGORITHMS[algorithm], n, world_size=p, **cost).trace
    case = f"alpha_beta_time({algorithm!r}, {p}, {4 * n}, {alpha_s:.3g}, {beta:.3g})"
    wrong = timed_otherwise(trace.time_s, trace.rounds, p, alpha_s, 4 * n * beta)
    got = alpha_beta_time(algorithm, p, 4 * n, alpha_s, beta)
    agree(got, trace.time_s, case, rtol=1e-9, mistakes=wrong)
print("alpha_beta_time is what eight simulated collectives take, on 5 and on 8 ranks")

# %% tags=["check"]
for p, times in ((2, 0.0), (4, 0.8), (8, 32 / 17)):
    alpha_s, beta = 10 ** rng.uniform(-6, -4), 10 ** rng.uniform(-11, -9)
    want, case = times * alpha_s / beta, f"crossover_bytes({p}, {alpha_s:.3g}, {beta:.3g})"
    agree(crossover_bytes(p, alpha_s, beta), want, case, rtol=1e-9, mistakes={
        "α/β is a size in bytes; β/α is none.": times * beta / alpha_s,
        "That is in float32 elements.": want / 4})
for p in range(3, 40):
    size, times_s = crossover_bytes(p, 1e-5, 1e-10), []
    for kind in ("tree", "ring"):
        times_s.append(alpha_beta_time(f"{kind}_all_reduce", p, size, 1e-5, 1e-10))
    agree(*times_s, f"crossover_bytes({p}, 1e-5, 1e-10): a tree's time, against a ring's,", rtol=1e-9)
print("crossover_bytes: 0.8 α/β for 4 ranks, 1.9 α/β for 8, and both take the same there for 2 to 39")

# %% [markdown]
# Your formulas draw the lines; the dots are your own functions on eight simulated ranks.

# %%
def tree_all_reduce(dist, x):
    return tree_broadcast(dist, tree_reduce(dist, x, 0), 0)

both, sizes = {"tree": tree_all_reduce, "ring": ring_all_reduce}, [4**k for k in range(5, 12)]
simulated = {kind: [ranks.run(function, torch.ones(size // 4), world_size=8, live_bytes=False).time_s
                    for size in sizes] for kind, function in both.items()}

# %%
figures.predicted_and_measured(
    sizes, {"tree": lambda size: alpha_beta_time("tree_all_reduce", 8, size, 1e-5, 1e-10),
            "ring": lambda size: alpha_beta_time("ring_all_reduce", 8, size, 1e-5, 1e-10)},
    simulated, dots_are="simulated", log="xy", xunit="B", yunit="s", xlabel="vector", ylabel="time",
    title="Tree for small, ring for large: eight ranks"
    ).axvline(crossover_bytes(8, 1e-5, 1e-10), color="0.6", lw=1);

# %% [markdown]
# Left of the grey line latency decides, and the tree wins; right of it bandwidth, and the ring. For few ranks the
# crossing is near α/β, the size whose transfer takes as long as its start: the 20 MB of the recall, for a kernel.
#
# **A question.** The notes also say "broadcast is scatter followed by all-gather". For which vectors is that worth
# while?
#
# <details><summary>Answer</summary>
#
# For long ones: with a ring all-gather it takes 2(p − 1)/p · βB in place of ⌈log₂ p⌉ · βB, and p − 1 more rounds. On
# 64 GPUs that is a third of the bytes, and 63 rounds more.
# </details>

# %% [markdown]
# ### Exercise 4.2 · halving_doubling_all_reduce (optional)
#
# Both at once: the ring's bytes in the tree's rounds. First p/2 ranks swap halves with the other p/2, each adding the
# half that it keeps; then the same among p/2 with half of that, and so on: log₂ p rounds, and each rank has its chunk
# of the sum. Then all of it backwards, copying. For p a power of two.

# %% tags=["hole"]
def halving_doubling_all_reduce(dist, x):
    """The sum of all ranks' x, on every rank, for p = 1, 2, 4, 8, ...; x may be overwritten.

    2 log₂ p rounds. About 16 lines.
    """
    # BEGIN SOLUTION
    p, me = dist.get_world_size(), dist.get_rank()
    chunks = x.tensor_split(p)
    starts = [sum(map(len, chunks[:rank])) for rank in range(p + 1)]
    first, last, swaps = 0, p, []
    while last - first > 1:
        middle = (first + last) // 2
        low, high = x[starts[first]:starts[middle]], x[starts[middle]:starts[last]]
        if me < middle:
            last, kept, given = middle, low, high
        else:
            first, kept, given = middle, high, low
        peer, received = me ^ (last - first), torch.empty_like(kept)
        exchange(dist, given, peer, received, peer)
        kept += received
        swaps.append((peer, kept, given))
    for peer, kept, given in reversed(swaps):
        exchange(dist, kept, peer, given, peer)
    return x
    # END SOLUTION

# %% tags=["check"]
for p, n in [(1, 3), (2, 5), (2, 0), (4, 8), (4, 7), (8, 3), (8, 29)]:
    given, case = vectors(p, n), f"halving_doubling_all_reduce, {n} elements on {p} ranks"
    total, rounds, share = sum(given), 2 * (p - 1).bit_length(), (p - 1) * -(-n // p)
    result = run(halving_doubling_all_reduce, ranks.each(given), p=p)
    agree(result.returns, [total] * p, f"{case},", mistakes={
        "Everything is in it p times.": [p * total] * p})
    assert_cost(case, result.trace, rounds=rounds, elements=2 * (p - 1) * n, most=2 * share)
print("halving_doubling_all_reduce: 7 runs; 2 log₂ p rounds, and the ring's bytes")

# %% [markdown]
# In our model it is never slower than tree or ring. So why does anyone build rings?
#
# <details><summary>Answer</summary>
#
# For long vectors it gains nothing: the bytes are the same. It needs a power of two, and partners at every distance,
# a new one each round: where links are shared, as between nodes, these messages crowd them, while a ring has one
# going in and one coming out. And neighbours that never change can stream: NCCL's rings pass a chunk on while it
# still arrives.
# </details>

# %% [markdown]
# ### Exercise 4.3 · fit_alpha_beta
#
# On real machines α and β have to be measured: time messages of many sizes, and fit a line. One trap: sizes run over
# six decades, and noise is a few per cent of each *time*. Least squares in seconds hears only the largest messages,
# and α drowns. Fit so that a per cent counts the same everywhere: minimise the sum of ((α + βb − t)/t)².

# %% tags=["hole"]
def fit_alpha_beta(message_bytes, times_s):
    """(alpha_s, beta_s_per_byte), two floats, with the least sum of squared relative errors.

    message_bytes, times_s: lists, one entry a measurement. About four lines.
    """
    # BEGIN SOLUTION
    sizes, times_s = np.array(message_bytes, dtype=float), np.array(times_s)
    # (α + βb)/t should be 1: a linear problem with columns 1/t and b/t
    columns = np.stack([1 / times_s, sizes / times_s], axis=1)
    (alpha_s, beta_s_per_byte), *_ = np.linalg.lstsq(columns, np.ones(len(sizes)))
    return float(alpha_s), float(beta_s_per_byte)
    # END SOLUTION

# %% tags=["check"]
for noise in (0.0, *[0.02] * 20):
    alpha_s, beta = 10 ** rng.uniform(-5.5, -4), 10 ** rng.uniform(-11.5, -10)
    sizes = 2.0 ** np.arange(6, 30, 2)
    times_s = (alpha_s + beta * sizes) * (1 + noise * rng.standard_normal(len(sizes)))
    case = f"the fit to α = {alpha_s:.3g} s, β = {beta:.3g} s/B, with {noise:.0%} of noise,"
    slope, start = np.polyfit(sizes, times_s, 1).tolist()
    agree(fit_alpha_beta(sizes.tolist(), times_s.tolist()), (alpha_s, beta), case, rtol=0.12, mistakes={
        "Only the large messages count here: divide each row by its time.": (start, slope),
        "β is seconds a byte, one over the bandwidth.": (alpha_s, 1 / beta),
        "α comes first.": (beta, alpha_s)})
print("fit_alpha_beta finds both within 12 %, in 20 noisy series and one without noise")

# %% tags=["check"]
sizes = 2.0 ** np.arange(6, 30, 2)
for _ in range(20):
    times_s = (1e-5 + 1e-11 * sizes) * (1 + 0.02 * rng.standard_normal(len(sizes)))
    alpha_s, beta = fit_alpha_beta(sizes.tolist(), times_s.tolist())
    nearby = [(alpha_s * u, beta * v) for u, v in itertools.product((1, 0.998, 1.002), repeat=2)]
    sums = [float(np.sum(((a + b * sizes) / times_s - 1) ** 2)) for a, b in nearby]
    best = nearby[sums.index(min(sums))]
    assert sums[0] <= min(sums), (
        f"({alpha_s:.4g}, {beta:.4g}) makes the sum of squares {sums[0]:.5g}, which is not the least: "
        f"({best[0]:.4g}, {best[1]:.4g}) makes it {min(sums):.5g}")
print("fit_alpha_beta: in 20 noisy series no α and β nearby have a smaller sum")

# %% [markdown]
# **Two numbers, α and β, tell the time of every collective. Below α/β rounds decide, above it bytes.**

# %% [markdown]
# ## Part 5 · Real machines
#
# The same functions run unchanged on real processes: on CPUs over PyTorch's *gloo*, here four processes; where there
# are several GPUs, over NVIDIA's *NCCL*, one process for each of up to four.

# %% tags=["driver"]
def times_s(dist, functions, sizes, calls, repeats):
    """{name: seconds of function(dist, x), the best of `repeats` or more, for x of each size in bytes}.

    What is not written yet is left out.
    """
    finish, found = torch.cuda.synchronize if dist.get_backend() == "nccl" else int, {}
    for name, size in ((name, size) for name in functions for size in sizes):
        x, times = torch.zeros(size // 4), []
        try:
            for _ in range(1 + repeats * (4 if size < 2**20 else 1)):  # short ones are noisy, and cheap
                dist.barrier()
                finish()
                start_s = time.perf_counter()
                for _ in range(calls):
                    functions[name](dist, x)
                finish()
                times.append((time.perf_counter() - start_s) / calls)
        except NotImplementedError:
            continue
        found.setdefault(name, []).append(min(times[1:]))  # the first is for warming up
    return found


def measured(functions, sizes, machine, p, calls=1, repeats=5):
    """{name: seconds for each size}, the slowest rank's."""
    by_rank = ranks.run(times_s, functions, sizes, calls, repeats, world_size=p, machine=machine,
                        noted=False, timeout_s=90).returns
    return {name: [max(times) for times in zip(*(found[name] for found in by_rank), strict=True)]
            for name in by_rank[0]}

# %% tags=["driver"]
def one_round(dist, x):
    me, p = dist.get_rank(), dist.get_world_size()
    exchange(dist, x, (me + 1) % p, torch.empty_like(x), (me - 1) % p)


def machine_here():
    """("nccl", ranks) where several GPUs exchange messages, ("gloo", 4) elsewhere."""
    gpus = min(4, torch.cuda.device_count())
    if gpus > 1:
        try:
            measured({"one round": one_round}, [4], "nccl", gpus)
            return "nccl", gpus
        except Exception as error:
            print(f"NCCL fails here, so gloo: {error}")
    return "gloo", 4

# %% [markdown]
# First a single round, in which each rank sends to its right neighbour. Its times give α and β.

# %% tags=["nbval-ignore-output"]
MACHINE, WORLD_SIZE = machine_here()
SIZES = [4**k for k in range(5, 15 if MACHINE == "nccl" else 13)]
round_s = measured({"one round": one_round}, SIZES, MACHINE, WORLD_SIZE)["one round"]

# %% tags=["nbval-ignore-output"]
FITTED = fit_alpha_beta(SIZES, round_s)
source = f"lab 11, {WORLD_SIZE} ranks, {MACHINE}"
ledger.constant("latency of a message, α", FITTED[0], "s", source)
ledger.constant("bandwidth of a port, 1/β", 1 / FITTED[1], "B/s", source)
figures.predicted_and_measured(
    SIZES, lambda size: FITTED[0] + FITTED[1] * size, round_s, log="xy", xunit="B", yunit="s",
    xlabel="message", ylabel="time", title=f"α + β · bytes: a round on {WORLD_SIZE} ranks, {MACHINE}");

# %% [markdown]
# **Predict** with these two numbers, before you measure: the time of a ring all-reduce of 16 MiB on these ranks.

# %%
# BEGIN SOLUTION
ring_16_mib_s = alpha_beta_time("ring_all_reduce", WORLD_SIZE, 2**24, *FITTED)
# END SOLUTION
ledger.predict("ring all-reduce of 16 MiB", ring_16_mib_s, "s")

# %% tags=["nbval-ignore-output"]
times = measured({"tree": tree_all_reduce, "ring": ring_all_reduce}, SIZES, MACHINE, WORLD_SIZE)
ledger.measured("ring all-reduce of 16 MiB", times["ring"][SIZES.index(2**24)], "s")
figures.predicted_and_measured(
    SIZES, {"tree": lambda size: alpha_beta_time("tree_all_reduce", WORLD_SIZE, size, *FITTED),
            "ring": lambda size: alpha_beta_time("ring_all_reduce", WORLD_SIZE, size, *FITTED)},
    times, log="xy", xunit="B", yunit="s", xlabel="vector", ylabel="time",
    title=f"Tree for small, ring for large: {WORLD_SIZE} ranks, {MACHINE}");

# %% [markdown]
# The line holds as far as the model does: a port for each rank, and nothing shared. Processes on one machine share its
# cores and its memory; NCCL takes more of the GPU for a longer message, so that its β is not one number.

# %% [markdown]
# ### Exercise 5.1 · bus_bandwidth
#
# What does the port really carry? Bytes divided by time is no answer: a 1 GB all-reduce on four ranks moves 1.5 GB
# through each port. The **bus bandwidth** corrects for collective and p: it is what each port sends a second.
#
# The lecture measures 277 for an all-reduce and 70 for a reduce-scatter, on the same four H100s: "I don't exactly
# know why it's exactly 70". Its program:
#
# ```
# all_reduce      size = 4 · 10⁸ bytes                            2 · (p − 1) · size / (p · time) / 2³⁰ = 277
# reduce_scatter  input (4, 10⁸), output (10⁸,), size of output       (p − 1) · size / (p · time) / 2³⁰ =  70
# ```

# %% tags=["hole"]
def bus_bandwidth(collective, vector_bytes, time_s, p):
    """Bytes a second that each rank sends through its port.

    collective: "all_reduce", "reduce_scatter", "all_gather" or "all_to_all". vector_bytes: of the whole
    vector, all p chunks: a reduce-scatter's input, an all-gather's output. About two lines.
    """
    # BEGIN SOLUTION
    vectors_sent = (2 if collective == "all_reduce" else 1) * (p - 1) / p
    return vectors_sent * vector_bytes / time_s
    # END SOLUTION


# The lecture's two measurements as bus bandwidths, in GB/s: 10⁹ bytes a second.
# BEGIN SOLUTION
all_reduce_gb_s = 277 * 2**30 / 1e9
reduce_scatter_gb_s = 4 * 70 * 2**30 / 1e9  # size was that of the output, a quarter of the vector
# END SOLUTION

# %% tags=["check"]
collectives = "reduce_scatter", "all_gather", "all_to_all", "all_reduce"
for collective, p in itertools.product(collectives, (5, 2, 8)):
    want, n = 10 ** rng.uniform(9, 12), 840 * int(rng.integers(9, 99))
    cost = {"alpha_s": 0.0, "beta_s_per_byte": 1 / want}
    time_s = ranks.run(torch_does, [collective], n, world_size=p, live_bytes=False, **cost).time_s
    case = f"bus_bandwidth({collective!r}, {4 * n}, {time_s:.3g}, {p})"
    agree(bus_bandwidth(collective, 4 * n, time_s, p), want, case, rtol=1e-9, mistakes={
        "A rank's own chunk never passes its port.": want * p / (p - 1),
        "An all-reduce goes there and back.": want / 2, "One way only.": want * 2,
        "One port's, not that of all together.": want * p, "vector_bytes is all chunks.": want / p})
print("bus_bandwidth finds the speed of the simulated ports from four collectives, on 5, 2 and 8 ranks")

# %% tags=["check"]
agree(all_reduce_gb_s, 297.4, "all_reduce_gb_s", rtol=0.01, mistakes={
    "2³⁰ bytes are a GiB: 1.07 GB.": 277.0, "A GiB is more than a GB.": 258.0,
    "It counts there and back already.": 594.8})
agree(reduce_scatter_gb_s, 300.6, "reduce_scatter_gb_s", rtol=0.01, mistakes={
    "2³⁰ bytes are a GiB: 1.07 GB.": 280.0, "The output is one chunk of the vector.": 75.2})
print("The same ports, at the same speed: what looked like 277 and 70 is 297 and 301 GB/s")

# %% [markdown]
# **A question.** The same lecture gives NVLink "a total bandwidth of 900 gigabytes" a second. How far from it is
# that?
#
# <details><summary>Answer</summary>
#
# 900 counts both directions. A port sends 450 GB/s at most, and receives as much: 297 is two thirds. (Four H200s,
# measured with NCCL 2.28: 354 GB/s.)
# </details>
#
# **Before you compare bandwidths, ask which bytes were divided by what: of the input or the output, one way or
# both.**

# %% [markdown]
# ### The last tenth
#
# How close does your ring come to NCCL's own all-reduce? For 1 GiB on four H200s, 0.78 of it. Two things are missing.
#
# - *The addition*, the notes' nγ: 12 bytes of memory traffic for 4 on the wire, while the ports wait. Without it:
#   0.86.
# - *The wire.* NCCL carries a message over *channels*, a block of threads each; one message keeps too few busy.
#
# One cure for both: several rings at once, each on its own group of all ranks (`dist.new_group()`), with its own part
# of the vector. While one adds, the others' messages move. NCCL's own collectives are many rings, too.

# %% tags=["driver"]
def on_groups(dist, x, rings):
    return rings_all_reduce(dist, x, [dist.new_group() for _ in range(rings)])

# %% [markdown]
# ### Exercise 5.2 · rings_all_reduce (optional)
#
# A generator suits it: one ring, that yields whenever its messages have begun. Take turns.

# %% tags=["hole"]
def ring_in_turns(dist, x, group):
    """A generator: a ring all-reduce of x, in place; it yields once the messages of a round have begun.

    Its messages are `dist.P2POp(dist.isend, tensor, peer, group)` and the like. About 14 lines.
    """
    # BEGIN SOLUTION
    p, me = dist.get_world_size(), dist.get_rank()
    chunks = x.tensor_split(p)
    inbox = torch.empty_like(chunks[0])
    for step in range(1, 2 * p - 1):
        sent, chunk = chunks[(me - step) % p], chunks[(me - step - 1) % p]
        received = inbox[:len(chunk)] if step < p else chunk
        works = dist.batch_isend_irecv([dist.P2POp(dist.isend, sent, (me + 1) % p, group),
                                        dist.P2POp(dist.irecv, received, (me - 1) % p, group)])
        yield
        for work in works:
            work.wait()
        if step < p:
            chunk += received
    # END SOLUTION


def rings_all_reduce(dist, x, groups):
    """The sum of all ranks' x, in x, on every rank: a ring on each group, for parts of equal size.

    groups: each of all ranks. About four lines.
    """
    # BEGIN SOLUTION
    parts = x.tensor_split(len(groups))
    for _ in itertools.zip_longest(*(ring_in_turns(dist, part, group)
                                     for part, group in zip(parts, groups, strict=True))):
        pass  # one step of each ring
    return x
    # END SOLUTION

# %% tags=["check"]
for p, n, rings in [(1, 1, 2), (2, 8, 2), (3, 20, 2), (4, 48, 3), (5, 3, 4), (8, 64, 4)]:
    given, case = vectors(p, n), f"{rings} rings, {n} elements on {p} ranks"
    total = sum(given)
    slow = [[100.0 if dst == 1 else 1 / 8 for dst in range(p)] for _ in range(p)]  # towards rank 1
    result = run(on_groups, ranks.each(given), rings, p=p, only=(*MESSAGES, "new_group"), beta=slow)
    agree(result.returns, [total] * p, f"{case},", mistakes={
        "Everything is in it p times.": [p * total] * p})
    assert_cost(case, result.trace, rounds=2 * (p - 1) * rings, elements=2 * (p - 1) * n)
    came_s = min([m.end_s for m in result.trace.messages if m.dst == 1], default=0)
    begun = {m.group for m in result.trace.messages if m.src == 1 and m.start_s < came_s}
    assert n < p * rings or len(begun) == rings, f"{case}: begin a round of each ring, then wait"
print("rings_all_reduce: 6 runs; the rings take turns, and move what one ring moves")

# %% [markdown]
# All the all-reduces of this lab, on real ranks, as bus bandwidth. The line is the library's own.

# %%
GROUPS = []

def eight_rings(dist, x):
    GROUPS.extend(dist.new_group() for _ in range(8 - len(GROUPS)))
    return rings_all_reduce(dist, x, GROUPS)

rungs = {"through rank 0": through_rank_0, "tree": tree_all_reduce, "ring": ring_all_reduce,
         "eight rings": eight_rings, "library": torch_all_reduce}

# %% tags=["nbval-ignore-output"]
size, effort = (2**30, (4, 7)) if MACHINE == "nccl" else (2**24, (1, 3))
try:
    times = measured(rungs, [size], MACHINE, WORLD_SIZE, *effort)
    gb_s = {name: bus_bandwidth("all_reduce", size, *s, WORLD_SIZE) / 1e9 for name, s in times.items()}
    figures.ladder(gb_s, ceiling=(MACHINE, gb_s.pop("library")), xlabel="bus bandwidth (GB/s)",
                   title=f"All-reduce of {size // 2**20} MiB on {WORLD_SIZE} ranks")
except Exception as error:
    print(f"Not measured on {MACHINE}: {error}")

# %% [markdown]
# On four H200s (NCCL 2.28, 1 GiB), one ring reaches 0.77 of NCCL's 352 GB/s. Eight reach 0.91 where ten calls follow one
# another (`make bench-gpus`; 0.95 once), but 0.5 to 0.7 as measured here: 48 rounds of messages must be begun, and
# Python needs about α for each. Four: 0.85. (Every chunk straight to its owner and the sum straight back, two rounds in
# place of six: 0.86, and 0.93 in eight groups.) On a laptop, processes share cores and memory: no ports to
# fill.
#
# **The last tenth is overlap: while one ring adds, the others' messages move.**

# %% [markdown]
# ## Where it is used
#
# - Rings: Patarasuk and Yuan (2009); in deep learning since Baidu's all-reduce and Uber's *Horovod* (2017). Halving
#   and doubling, and the α-β analysis: Thakur, Rabenseifner and Gropp (2005), for MPICH.
# - NCCL chooses by size, as you did: trees for short vectors, rings for long ones; `NCCL_ALGO` overrules it. The
#   "busbw" of its tests is your `bus_bandwidth`.
# - Switches that add (NVLink SHARP) halve what a port sends for an all-reduce.
#
# **Limits of ours.** One speed for all pairs; no link is shared; additions cost nothing; a rank that fails hangs the
# others.

# %% [markdown]
# ## Done
#
# `python -m grading 11` grades your lab. α and 1/β are in your ledger, for lab 16 to plan with.
#
# **Harder.** All-reduce 14 GB of gradients at 350 GB/s of bus bandwidth: how long on 8 GPUs, on 64, and on 64 in
# nodes of eight, if a GPU reaches other nodes at 50 GB/s?
#
# <details><summary>Answer</summary>
#
# 2 · 7/8 · 14 / 350 = 70 ms; 79 ms. A ring through all nodes goes at its slowest link's pace: 551 ms. In two levels:
# reduce-scatter and all-gather within the node, 70 ms; between them each GPU's 1.75 GB across nodes, 2 · 7/8 · 1.75 /
# 50 = 61 ms.
# </details>

# %% tags=["nbval-ignore-output"]
ledger.constants()

# %% tags=["nbval-ignore-output"]
ledger.figure()
ledger.table()
