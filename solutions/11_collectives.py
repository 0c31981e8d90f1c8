# %% [markdown]
# # 11 · Collectives
#
# **How do p machines add up a gigabyte each, and why does it hardly matter how large p is?**
#
# After this lab you can
#
# - say what each collective leaves on each rank, and build it from messages without a hang;
# - predict its time from two measured numbers, and choose the algorithm that suits a size;
# - read a bandwidth such as "277 GB/s" and know which bytes were divided by what.
#
# You need lab 02, and no GPU. With several, part 5 measures NCCL. About 185 minutes. Write your answers
# in the cells marked as exercises. The grader reads only those.

# %% tags=["setup"]
import itertools
import math

import matplotlib.pyplot as plt
import numpy as np
import torch

from common import figures, language_model, ledger
from common.checks import agree, clinic
from common.lessons.collectives import collective_states, widget
from nogpu import ranks
from nogpu.ranks import clock

figures.use_style()
rng = np.random.default_rng()

# %% [markdown]
# **Minutes**: 40 of reading, then 15 (1.1), 30 (2.1), 25 (3.1), 15 (3.2),
# 20 (3.3), 20 (4.1), 10 (4.2) and 10 (5.1).
#
# **Recall.** (a) A kernel takes 5 µs to start, and then copies 4 TB per second. From which size on does it spend more
# time copying than starting? (b) How many bytes does `y += x` move per element in float32, and what limits it?
#
# <details><summary>Answers</summary>
#
# (a) 5 µs · 4 TB/s = 20 MB.  (b) Two reads and a write are 12 bytes, for one FLOP.
# Memory limits it.
# </details>

# %% [markdown]
# ## See it
#
# In data-parallel training, each *rank* (a numbered process with its own GPU) computes a gradient, and all ranks need
# the sum of all gradients. That is an **all-reduce**. The obvious program: everyone sends to rank 0, which adds, and
# sends the sum back.
#
# All ranks call the function at once. `dist` has the names of `torch.distributed`. The ranks are simulated, and time
# is virtual: a message takes 10 µs, plus 0.1 ns per byte (10 GB/s). Each rank has **one full-duplex port**. It sends
# one message and receives one at a time, and others queue. `send` returns when its message has arrived.

# %% tags=["driver", "shown"]
def through_rank_0(dist, x):
    me, others = dist.get_rank(), range(1, dist.get_world_size())
    if me > 0:
        dist.send(x, 0)
        dist.recv(x, 0)
        return x
    for peer in others:
        dist.recv(received := torch.empty_like(x), peer)
        x += received
    for peer in others:
        dist.send(x, peer)
    return x


def torch_all_reduce(dist, x):
    dist.all_reduce(x)
    return x

# %% [markdown]
# The gradient is that of this course's small language model: 836,736 weights, 3.3 MB. Guess first: which of the two
# programs moves more bytes in all, and by what factor? Which is slower on eight ranks, and by what factor?

# %%
gradient = torch.ones(language_model.parameter_count())
for p, function in itertools.product((2, 4, 8), (through_rank_0, torch_all_reduce)):
    trace = ranks.run(function, gradient, world_size=p).trace
    print(f"{p} ranks, {function.__name__:16} {trace.bytes / 1e6:6.1f} MB {trace.time_s * 1e3:6.2f} ms")
slow, fast = (ranks.run(function, gradient).trace for function in (through_rank_0, torch_all_reduce))
axes = slow.draw_beside(fast, titles=("All-reduce through rank 0", "PyTorch's all-reduce"))
figures.describe(axes, "Through rank 0, one port works while three wait. In PyTorch's, all four work.")

# %% [markdown]
# Both move the same bytes. But through rank 0, all of them pass one port while the others wait. On eight ranks that
# takes seven times as long as on two. In PyTorch's, all ranks send and receive all the time. Its time only doubles, and
# no port ever carries more than two vectors. In this lab you write PyTorch's version.
#
# **An all-reduce is slow where one port carries what all ports could share.**

# %% [markdown]
# ## Part 1 · What is left where
#
# A *collective* is an operation that all ranks call together. Think of each rank's vector as cut into p *chunks*.
# Chunk r is meant for rank r, or comes from it.
#
# | collective | what it leaves |
# | --- | --- |
# | broadcast | the root's vector on every rank |
# | scatter | chunk r of the root's vector on rank r |
# | gather | chunk r of rank r, for all r, on the root |
# | reduce | the sum of all vectors on the root |
# | all-gather, all-reduce | on every rank, what gather or reduce leaves |
# | reduce-scatter | chunk r of the sum on rank r |
# | all-to-all | chunk r of every rank's vector on rank r |

# %%
# A rank has a row and a colour, a chunk has a letter, and a sum has stripes. The root is rank 0.
x = collective_states.marked(4)
ax = collective_states.draw({"before": list(x), **collective_states.after(x, 0)})
figures.describe(ax, "What each of four ranks holds before and after each of eight collectives.")

# %% [markdown]
# ### Exercise 1.1 · reduce_scatter
#
# An all-to-all adds nothing. Yet two other collectives are only one all-to-all and one line away. Write them with
# nothing but `dist.all_to_all_single(output, input)`. It sends chunk r of `input` to rank r. `output` then holds the
# chunks that arrive, in the order of the ranks they come from.
#
# Then answer a riddle. An all-reduce is two collectives, one after the other. Someone writes "reduce followed by
# scatter", and someone else "reduce plus all-gather". Which pairs are right?

# %% tags=["hole"]
def reduce_scatter(dist, x):
    """Chunk r of the sum of all ranks' x, on rank r, by one all-to-all. Three lines.

    x has p chunks of equal length, one element or more. The sum keeps the precision of x.
    """
    # BEGIN SOLUTION
    received = torch.empty_like(x)
    dist.all_to_all_single(received, x)
    return received.view(dist.get_world_size(), -1).sum(0)
    # END SOLUTION


def all_gather(dist, chunk):
    """All ranks' chunks, which are equally long, in the order of ranks, on every rank. Three lines."""
    # BEGIN SOLUTION
    sent = chunk.repeat(dist.get_world_size())
    dist.all_to_all_single(received := torch.empty_like(sent), sent)
    return received
    # END SOLUTION


# The set of all pairs (first, second) of names such as "reduce", "scatter", "all_gather" that together
# leave what all_reduce leaves, with the same root. all_reduce itself is not among them.
# BEGIN SOLUTION
all_reduce_pairs = {("reduce", "broadcast"), ("reduce_scatter", "all_gather")}
# END SOLUTION

# %% tags=["check"]
from common.lessons.collectives import expected as oracle

for name, p, given, sent, want, wrong in oracle.all_to_all_cases(rng):
    function = {"reduce_scatter": reduce_scatter, "all_gather": all_gather}[name]
    case = f"{name} on {p} ranks,"
    result = oracle.run(function, rng, ranks.each(sent), p=p, only=["all_to_all_single"])
    draw, wrong = oracle.drawn(result, given, want, case), wrong | oracle.lost(result.returns, want)
    agree(result.returns, want, case, mistakes=wrong, draw=draw)
    oracle.assert_cost(case, result.trace, rounds=p - 1, elements=(p - 1) * len(given[0]), draw=draw)
oracle.assert_pairs(all_reduce_pairs)
print("reduce_scatter, all_gather: six runs each, one all-to-all; all_reduce_pairs: all are found")

# %% [markdown]
# <details><summary>Hint: a question</summary>
#
# What does an all-to-all do to the rows and columns of the picture?
# </details>
# <details><summary>Hint: the idea</summary>
#
# It transposes the table of chunks. Rank r then holds p chunks, which it can add. For an all-gather, every rank should get the same chunk.
# </details>
#
# **Reduce adds, gather and scatter move, and "all" means that every rank gets the result.**

# %% [markdown]
# ## Part 2 · Trees
#
# First come the collectives with a root. They should take few **rounds**. The rounds of a program are its longest chain
# of messages in which each waits for the one before. Two messages through one port wait, too.
#
# A broadcast splits the ranks into halves, and sends the vector to the half that does not have it. Then each half does
# the same. Each round doubles the ranks that have the vector, so ⌈log₂ p⌉ rounds suffice. Here PyTorch does it:

# %%
def torch_broadcast(dist, x, root):
    dist.broadcast(x, root)

trace = ranks.run(torch_broadcast, torch.ones(2**18), 0, world_size=8).trace
ax = trace.draw(title="A broadcast of 1 MB from rank 0: 0 to 4, then by twos, then by ones")
figures.describe(ax, "In three rounds, one, two, then four of eight ranks send the vector on.")

# %% [markdown]
# ### Exercise 2.1 · tree_broadcast
#
# Write the schedule (who passes the vector on to whom), and two collectives on top of it. A reduce is the same tree,
# walked backwards. One schedule for five ranks and root 1 is this list:
#
# | (src, dst, first, last) | in words |
# | --- | --- |
# | (1, 3, 3, 5) | Rank 1 cares for ranks 0 to 4. It gives ranks 3 and 4 to rank 3. |
# | (1, 0, 0, 1) | Of ranks 0 to 2, it gives 0 to rank 0. |
# | (1, 2, 2, 3) | Of ranks 1 and 2, it gives 2 to rank 2. |
# | (3, 4, 4, 5) | Rank 3 gives rank 4 to rank 4. |

# %% tags=["hole"]
def halvings(p, root):
    """Who passes on to whom: a list of (src, dst, first, last), in an order that works.

    dst then cares for ranks first to last - 1, itself among them. src gives away half of its ranks,
    from one end, and stays in the other half. The halves differ by one rank at most. At the beginning,
    the root cares for all. halvings(5, 1) may be the list above. About 12 lines.
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
    """Root's x, returned on every rank, in ⌈log₂ p⌉ rounds. x may be overwritten. About six lines."""
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
    """The sum of all ranks' x, returned on the root; what other ranks return is not used.

    ⌈log₂ p⌉ rounds. The sum keeps the precision of x, which may be overwritten. About eight lines.
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
from common.lessons.collectives import expected as oracle

for p in oracle.TREE_RANKS:
    for root in range(p):
        oracle.assert_tree(halvings(p, root), p, root)
print("halvings: for 1 to 32 ranks and every root, ranks halve until each has its own")

# %% tags=["check"]
from common.lessons.collectives import expected as oracle

for p, n, root, given in oracle.cases(rng):
    case, want = f"tree_broadcast, {n} elements on {p} ranks, root {root},", [given[root]] * p
    result = oracle.run(tree_broadcast, rng, ranks.each(given), root, p=p)
    draw = oracle.drawn(result, given, want, case)
    agree(result.returns, want, case, draw=draw, mistakes=oracle.broadcast_otherwise(given))
    oracle.assert_cost(case, result.trace, rounds=(p - 1).bit_length(), elements=(p - 1) * n, draw=draw)
print("tree_broadcast: 11 runs, each in ⌈log₂ p⌉ rounds")

# %% tags=["check"]
from common.lessons.collectives import expected as oracle

for p, n, root, given in oracle.cases(rng):
    case, total = f"tree_reduce, {n} elements on {p} ranks, root {root}, on the root,", sum(given)
    want, wrong = oracle.on_root(total, p, root), oracle.reduced_otherwise(given, root)
    result = oracle.run(tree_reduce, rng, ranks.each(given), root, p=p)
    got = result.returns[root]
    draw, wrong = oracle.drawn(result, given, want, case), wrong | oracle.lost([got], [total])
    agree(got, total, case, mistakes=wrong, draw=draw)
    oracle.assert_cost(case, result.trace, rounds=(p - 1).bit_length(), elements=(p - 1) * n, draw=draw)
print("tree_reduce: 11 runs, each in ⌈log₂ p⌉ rounds")

# %% [markdown]
# <details><summary>Hint: the idea</summary>
#
# Recursion: `halve(first, last, src)` gives one message (src, dst, …), then the messages of both halves. src goes on
# in one half, and dst in the other.
# </details>
#
# <details><summary>Hint: the shape</summary>
#
# A rank walks through the whole list and acts on its own messages. For a reduce, walk through `reversed(...)`: a rank
# then receives everything below it before it sends.
# </details>
#
# **A tree needs ⌈log₂ p⌉ rounds, the fewest there can be. If every message is the whole vector, the root's port
# carries it ⌈log₂ p⌉ times.**

# %% [markdown]
# ## Part 3 · Rings
#
# For large vectors, bytes count and rounds do not. So all ports should be busy all the time. Put the ranks in a ring:
# each sends to its right neighbour, me + 1, and receives from its left. Here is the simplest program.

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
# This program hangs. `send` returns when its message has arrived, and nobody receives before its own `send` is over.
# Real machines would show nothing, forever. (Small messages work on some systems, which keep a copy. Then the
# hang waits for a larger model.)
#
# The fix is to begin both, and then to wait for both. `batch_isend_irecv` does so on gloo and NCCL. From here on, use `exchange`.

# %% tags=["driver"]
def exchange(dist, sent, dst, received, src):
    """Sends one tensor to dst while receiving another from src; returns when both are over."""
    both = [dist.P2POp(dist.isend, sent, dst), dist.P2POp(dist.irecv, received, src)]
    for work in dist.batch_isend_irecv(both):
        work.wait()


def one_round(dist, x):
    """Each rank sends x to its right neighbour; part 5 measures this."""
    me, p = dist.get_rank(), dist.get_world_size()
    exchange(dist, x, (me + 1) % p, torch.empty_like(x), (me - 1) % p)


def judged(source):
    """What test_all_reduce of exercise 3.3 says of a program: "" if it accepts it."""
    return clinic.verdict(test_all_reduce, source)

# %% [markdown]
# Now let partial sums travel. In each round, every rank r sends one chunk to the right, and adds the chunk that comes
# from the left to its own. **Target: after three rounds, each of four ranks holds its own chunk of the sum** (rank 0
# all of a, rank 1 all of b, and so on). Which chunk must rank r send first, and which next? Move the slider to step
# through the rounds.

# %% tags=["nbval-ignore-output"]
widget.ring_by_rounds()

# %% [markdown]
# ### Exercise 3.1 · ring_reduce_scatter
#
# Write it for p ranks. Each rank sends to one neighbour only, in p − 1 rounds. In all, the ranks send (p − 1) n
# elements, so padding is not allowed. No rank sends more than (p − 1)⌈n/p⌉. Cut with `x.tensor_split(p)`: it gives p
# views of x, whose lengths differ by one at most.

# %% tags=["hole"]
def ring_reduce_scatter(dist, x):
    """Chunk r, x.tensor_split(p)[r], of the sum over ranks, on rank r.

    The sum keeps the dtype of x, and its precision. x may be overwritten. About eight lines.
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
from common.lessons.collectives import expected as oracle

for p, n, _, given in oracle.cases(rng):
    case, total = f"ring_reduce_scatter, {n} elements on {p} ranks,", sum(given)
    want = list(total.tensor_split(p))
    wrong = oracle.cut_otherwise(total, p) | oracle.summed_otherwise(given)
    result = oracle.run(ring_reduce_scatter, rng, ranks.each(given), p=p)
    draw, wrong = oracle.drawn(result, given, want, case), wrong | oracle.lost(result.returns, want)
    agree(result.returns, want, case, mistakes=wrong, draw=draw)
    oracle.assert_cost(case, result.trace, draw=draw, links=p, rounds=p - 1,
                       elements=(p - 1) * n, most=(p - 1) * -(-n // p))
print("ring_reduce_scatter: 11 runs; p - 1 rounds, and (p - 1)⌈n/p⌉ elements per rank at most")

# %% tags=["check"]
from common.lessons.collectives import expected as oracle

for p, dtype, rtol in ((3, torch.float64, 1e-12), (2, torch.float32, 1e-5), (4, torch.int64, 0)):
    given = oracle.fractions(rng, p, 7 * p + 1, dtype)
    want = list(sum(given).tensor_split(p))
    result = oracle.run(ring_reduce_scatter, rng, ranks.each(given), p=p)
    agree(result.returns, want, f"ring_reduce_scatter of {dtype} on {p} ranks", rtol=rtol, atol=rtol)
print("ring_reduce_scatter keeps the dtype and its precision")

# %% [markdown]
# <details><summary>Hint: a question</summary>
#
# Chunk r travels once round the ring and must end on rank r. Where does it start?
# </details>
# <details><summary>Hint: the idea</summary>
#
# On rank r + 1. What a rank receives is what
# it sends next. Receive into a buffer, because the chunk's own place holds your own numbers.
# </details>
#
# Your own program, round by round:

# %%
given = [torch.arange(12.0) * 7 ** rank for rank in range(4)]
result = ranks.run(ring_reduce_scatter, ranks.each(given))
ax = result.trace.draw_chunks(given, result.returns, title="Your reduce-scatter on four ranks")
figures.describe(ax, "In each round a chunk gains one more rank's numbers, until it has all four.")

# %% [markdown]
# ### Exercise 3.2 · ring_all_reduce
#
# Now every rank has one complete chunk. Send the chunks round once more, and copy them: a ring all-gather. That
# completes the all-reduce, in 2(p − 1) rounds.

# %% tags=["hole"]
def ring_all_gather(dist, x):
    """Everyone's chunk in its place: rank r brings chunk r, x.tensor_split(p)[r].

    What else stands in x does not matter, and x may be overwritten. About six lines.
    """
    # BEGIN SOLUTION
    p, me = dist.get_world_size(), dist.get_rank()
    chunks = x.tensor_split(p)
    for step in range(p - 1):
        exchange(dist, chunks[(me - step) % p], (me + 1) % p, chunks[(me - step - 1) % p], (me - 1) % p)
    return x
    # END SOLUTION


def ring_all_reduce(dist, x):
    """The sum of all ranks' x, on every rank, to the last bit the same. About two lines.

    x may be overwritten.
    """
    # BEGIN SOLUTION
    ring_reduce_scatter(dist, x)  # ours leaves rank r's chunk in its place in x
    return ring_all_gather(dist, x)
    # END SOLUTION

# %% tags=["check"]
from common.lessons.collectives import expected as oracle

for p, n, _, given in oracle.cases(rng):
    case, want = f"ring_all_gather, {n} elements on {p} ranks,", [oracle.gathered(given)] * p
    shifted = [oracle.gathered([*given[-1:], *given[:-1]])] * p
    result = oracle.run(ring_all_gather, rng, ranks.each(given), p=p)
    draw = oracle.drawn(result, given, want, case)
    agree(result.returns, want, case, draw=draw, mistakes={
        "Nothing has been overwritten.": given, "Chunk r comes from rank r, not r - 1.": shifted})
    oracle.assert_cost(case, result.trace, draw=draw, links=p, rounds=p - 1,
                       elements=(p - 1) * n, most=(p - 1) * -(-n // p))
print("ring_all_gather: 11 runs; p - 1 rounds, and (p - 1)⌈n/p⌉ elements per rank at most")

# %% tags=["check"] points=2
from common.lessons.collectives import expected as oracle

for p, n, _, given in oracle.cases(rng):
    case, want = f"ring_all_reduce, {n} elements on {p} ranks,", [sum(given)] * p
    result = oracle.run(ring_all_reduce, rng, ranks.each(given), p=p)
    draw = oracle.drawn(result, given, want, case)
    wrong = oracle.all_reduced_otherwise(given) | oracle.lost(result.returns, want)
    agree(result.returns, want, case, mistakes=wrong, draw=draw)
    oracle.assert_cost(case, result.trace, draw=draw, links=2 * p, rounds=2 * (p - 1),
                       elements=2 * (p - 1) * n, most=2 * (p - 1) * -(-n // p))
print("ring_all_reduce: 11 runs; 2(p - 1) rounds, and 2(p - 1)⌈n/p⌉ elements per rank at most")

# %% tags=["check"]
from common.lessons.collectives import expected as oracle

for p, dtype in ((3, torch.float32), (5, torch.float64)):
    given = oracle.fractions(rng, p, 40, dtype)
    want, case = sum(given), f"ring_all_reduce of {dtype} on {p} ranks"
    got = oracle.run(ring_all_reduce, rng, ranks.each(given), p=p).returns
    agree(got[0], want, case, atol=1e-5 if dtype == torch.float32 else 1e-12)
    oracle.same_bits(got, case)
print("ring_all_reduce: all ranks have the same bits")

# %% [markdown]
# <details><summary>Hint: a question</summary>
#
# Which chunk is complete on a rank at first? Which one does it get next?
# </details>
# <details><summary>Hint: the idea</summary>
#
# Rank r begins with chunk r. After that, it sends what it has just received.
# </details>
#
# Why must the bits agree? Models whose sums differ in the last bit drift apart, step by step. In the ring, each chunk
# is added up once, in one order, and then copied.
#
# A rank sends 2(p − 1) chunks of n/p elements: 1.5 n on four ranks, 1.75 n on eight, and never 2 n. That answers the
# question at the top. Fewer is impossible: each of the n sums takes p − 1 messages to make and p − 1 to spread.
#
# **A ring keeps all ports busy. Each carries 2(p − 1)/p vectors per all-reduce, whatever p is. The price is 2(p − 1)
# rounds.**

# %% [markdown]
# ### Exercise 3.3 · test_all_reduce
#
# Now you write the check. `candidate(dist, x)` should be an all-reduce, for p = 1, 2, 3, … and a vector x of any length
# and dtype. Each rank returns the sum, in x's dtype and precision, and all ranks return the same bits. Candidates may
# use all of `dist` and any number of messages, and may overwrite x. Run one with
# `ranks.run(candidate, ranks.each(vectors), world_size=p).returns`.
#
# We have twenty wrong programs. Par is 17. Your test must accept every right one, whatever its order of additions.

# %% tags=["hole"]
def test_all_reduce(candidate):
    """Raises AssertionError if the candidate is wrong, and returns nothing. About eight lines."""
    # BEGIN SOLUTION
    for p, n in itertools.product((1, 2, 5), (0, 4, 11)):
        vectors = [torch.from_numpy(rng.standard_normal(n)) for _ in range(p)]
        got = ranks.run(candidate, ranks.each(vectors), world_size=p).returns
        for x in got:
            assert torch.allclose(x, sum(vectors), rtol=1e-12, atol=1e-12), f"{p} ranks, {n} elements"
            assert torch.equal(x, got[0]), "ranks differ in the last bits"
    small = ranks.run(candidate, torch.ones(3), world_size=2).returns
    assert all(x.dtype == torch.float32 for x in small)
    # END SOLUTION

# %% tags=["check"] points=2 limit_s=60
print(clinic.score("all_reduce", judged, par=17, rng=rng))

# %% [markdown]
# <details><summary>Hint: where do wrong programs hide?</summary>
#
# In what a test does not vary. Does yours vary the number of ranks (1, 2, 3), the length (0, shorter than p, divisible
# by p or not), the numbers (fractions, negative, another vector per rank), and the dtype? Does it look at every rank?
# </details>
#
# **A test is as good as the wrong programs that it refuses.**

# %% [markdown]
# ## Part 4 · Two numbers
#
# How long does a collective take? A message of b bytes takes **α + βb**: α seconds of latency, and β seconds per byte
# (one over the bandwidth). A collective takes as long as its longest chain of messages. Sum
# α + βb over its rounds.

# %% [markdown]
# ### Exercise 4.1 · alpha_beta_time
#
# Write the times of the algorithms that you have built, for any p and p chunks of equal size. A tree all-reduce is a
# tree reduce followed by a tree broadcast. Then find the size at which the ring overtakes it.
#
# <details><summary>Hint</summary>
#
# A tree sends the whole vector in each round, and a ring a p-th of it. How many rounds has each?
# </details>

# %% tags=["hole"]
def alpha_beta_time(algorithm, p, vector_bytes, alpha_s, beta_s_per_byte):
    """Seconds that the algorithm takes on p ranks (1 or more), for vectors of so many bytes on each.

    algorithm: "tree_broadcast", "tree_reduce", "tree_all_reduce", "ring_reduce_scatter",
    "ring_all_gather" or "ring_all_reduce". About eight lines.
    """
    # BEGIN SOLUTION
    depth, ring = (p - 1).bit_length(), p - 1
    rounds, bytes_per_round = {
        "tree_broadcast": (depth, vector_bytes),
        "tree_reduce": (depth, vector_bytes),
        "tree_all_reduce": (2 * depth, vector_bytes),
        "ring_reduce_scatter": (ring, vector_bytes / p),
        "ring_all_gather": (ring, vector_bytes / p),
        "ring_all_reduce": (2 * ring, vector_bytes / p),
    }[algorithm]
    return rounds * (alpha_s + bytes_per_round * beta_s_per_byte)
    # END SOLUTION


def crossover_bytes(p, alpha_s, beta_s_per_byte):
    """The size of vectors from which on the ring all-reduce takes no longer than the tree's.

    In bytes; p is 2 or more. About two lines.
    """
    # BEGIN SOLUTION
    depth = (p - 1).bit_length()
    return alpha_s / beta_s_per_byte * (p - 1 - depth) / (depth - (p - 1) / p)
    # END SOLUTION

# %% tags=["check"] points=2 limit_s=30
from common.lessons.collectives import expected as oracle

many = (5, 8, 1, 2, int(rng.integers(17, 24)))
for algorithm, p in itertools.product((*oracle.TREES, *oracle.RINGS), many):
    alpha_s, beta = 10 ** rng.uniform(-6, -4), 10 ** rng.uniform(-10, -9)
    n = 840 * p * int(rng.integers(3, 29))
    trace = oracle.simulated(algorithm, p, n, alpha_s, beta)
    wrong = oracle.timed_otherwise(trace, p, alpha_s, 4 * n * beta)
    case = f"alpha_beta_time({algorithm!r}, {p}, {4 * n}, {alpha_s:.3g}, {beta:.3g})"
    got = alpha_beta_time(algorithm, p, 4 * n, alpha_s, beta)
    agree(got, trace.time_s, case, rtol=1e-9, atol=1e-15, mistakes=wrong)
print("alpha_beta_time is what six simulated collectives take, on 1, 2, 5, 8 and more ranks")

# %% tags=["check"] limit_s=30
from common.lessons.collectives import expected as oracle

for p in (5, 8, 2, *range(3, 40)):
    alpha_s, beta = 10 ** rng.uniform(-6, -4), 10 ** rng.uniform(-11, -9)
    want, wrong = (f(p, alpha_s, beta) for f in (oracle.crossover_bytes, oracle.crossed_otherwise))
    case = f"crossover_bytes({p}, {alpha_s:.3g}, {beta:.3g})"
    agree(crossover_bytes(p, alpha_s, beta), want, case, rtol=1e-6, atol=1e-9, mistakes=wrong)
print("crossover_bytes: a tree and a ring take equally long there, on 2 to 39 ranks")

# %% tags=["driver"]
def tree_all_reduce(dist, x):
    return tree_broadcast(dist, tree_reduce(dist, x, 0), 0)


def lines(p, alpha_s, beta_s_per_byte):
    """{"tree": a function from bytes to predicted seconds, "ring": another}."""
    def line(kind):
        return lambda size: alpha_beta_time(f"{kind}_all_reduce", p, size, alpha_s, beta_s_per_byte)
    return {kind: line(kind) for kind in ("tree", "ring")}

# %%
kinds, sizes = {"tree": tree_all_reduce, "ring": ring_all_reduce}, [4**k for k in range(5, 12)]
took = {kind: [ranks.run(function, torch.ones(size // 4), world_size=8, live_bytes=False).time_s
               for size in sizes] for kind, function in kinds.items()}
ax = figures.predicted_and_measured(
    sizes, lines(8, 1e-5, 1e-10), took, dots_are="simulated", log="xy", xunit="B", yunit="s",
    xlabel="vector", ylabel="time", title="All-reduce on eight simulated ranks: tree and ring")
ax.axvline(crossover_bytes(8, 1e-5, 1e-10), color="0.6", lw=1)
figures.describe(ax, "The tree is faster for short vectors, the ring for long ones. Dots lie on lines.")

# %% [markdown]
# Your formulas draw the lines, and your functions make the dots. Left of the grey line, latency decides and the tree
# wins. Right of it, bandwidth decides and the ring wins.
#
# <details><summary>On which side is the language model's gradient? How does the crossing move with p?</summary>
#
# 3.3 MB is right of it: take the ring. In units of α/β (100 kB here), the crossing lies at 0, 0.8, 1.9 and 6.4 for 2,
# 4, 8 and 32 ranks. It grows like p/log₂ p: one more rank adds two rounds to a ring, and hardly any to a tree.
# </details>
#
# ### Exercise 4.2 · fit_alpha_beta
#
# On real machines, α and β must be measured: time messages of many sizes, and fit a line. But sizes run over six
# decades, and noise is a few per cent of each *time*. Least squares in seconds fits the largest messages only, and
# their noise hides α. Fit so that one per cent counts the same everywhere: minimise the sum of ((α + βb − t)/t)².

# %% tags=["hole"]
def fit_alpha_beta(message_bytes, times_s):
    """(alpha_s, beta_s_per_byte), two floats, with the least sum of squared relative errors.

    message_bytes, times_s: lists, one entry per measurement. About four lines.
    """
    # BEGIN SOLUTION
    sizes, times_s = np.array(message_bytes, dtype=float), np.array(times_s)
    # (α + βb)/t should be 1: a linear problem with columns 1/t and b/t
    columns = np.stack([1 / times_s, sizes / times_s], axis=1)
    (alpha_s, beta_s_per_byte), *_ = np.linalg.lstsq(columns, np.ones(len(sizes)))
    return float(alpha_s), float(beta_s_per_byte)
    # END SOLUTION

# %% tags=["check"]
from common.checks import as_tuple
from common.lessons.collectives import expected as oracle

for noise in (0.0, *[0.02] * 20):
    alpha_s, beta = 10 ** rng.uniform(-5.5, -4), 10 ** rng.uniform(-11.5, -10)
    sizes, times_s, wrong = oracle.series(rng, alpha_s, beta, noise)
    case = f"the fit to α = {alpha_s:.3g} s, β = {beta:.3g} s/B, with {noise:.0%} of noise,"
    got = as_tuple(fit_alpha_beta(list(sizes), list(times_s)))
    agree(got, (alpha_s, beta), case, rtol=0.12 if noise else 1e-6, mistakes=wrong)
    oracle.assert_least(got, sizes, times_s, wrong)
print("fit_alpha_beta: 21 series; it finds both numbers, and none nearby have a smaller sum of squares")

# %% [markdown]
# <details><summary>Hint</summary>
#
# Divide α + βb = t by t. Which two columns are left?
# </details>
#
# **Two numbers, α and β, give the time of every collective. Below α/β rounds decide, and above it bytes.**
#
# ## Part 5 · Real machines
#
# The same functions run unchanged on real processes: over PyTorch's *gloo* on a CPU (four processes), or over NVIDIA's
# *NCCL*, with one process per GPU. First we time a single round of messages, to the right neighbour.

# %% tags=["nbval-ignore-output"]
MACHINE, WORLD_SIZE = clock.machine_here()
SIZES = [4**k for k in range(5, 15 if MACHINE == "nccl" else 13)]
round_s = clock.seconds({"round": one_round}, SIZES, MACHINE, WORLD_SIZE)["round"]
FITTED = fit_alpha_beta(SIZES, round_s)
ax = figures.predicted_and_measured(
    SIZES, lambda size: FITTED[0] + FITTED[1] * size, round_s, log="xy", xunit="B", yunit="s",
    xlabel="message", ylabel="time", title=f"One round on {WORLD_SIZE} ranks ({MACHINE}), and your fit")
figures.describe(ax.legend(["your fit", "measured"]).axes, "A round's time by size: flat, then rising.")

# %% [markdown]
# **Predict** with these two numbers, before you measure: how long does your ring all-reduce of 16 MiB take?

# %%
# BEGIN SOLUTION
ring_16_mib_s = alpha_beta_time("ring_all_reduce", WORLD_SIZE, 2**24, *FITTED)
# END SOLUTION
ledger.guess("ring all-reduce of 16 MiB", ring_16_mib_s, "s")

# %% tags=["nbval-ignore-output"]
kinds["library"] = torch_all_reduce
times = clock.seconds(kinds, SIZES, MACHINE, WORLD_SIZE)
ledger.measured("ring all-reduce of 16 MiB", times["ring"][SIZES.index(2**24)], "s")
ax = figures.predicted_and_measured(
    SIZES, lines(WORLD_SIZE, *FITTED), times, log="xy", xunit="B", yunit="s", xlabel="vector",
    ylabel="time", title=f"All-reduce on {WORLD_SIZE} ranks ({MACHINE}): lines from one round's time")
figures.describe(ax, "Times of tree, ring and library by size, with lines for tree and ring.")

# %% tags=["nbval-ignore-output"]
in_a_row = clock.seconds({"library": torch_all_reduce}, [1024], MACHINE, WORLD_SIZE, calls=20)
small_s = min(times["library"][0], *in_a_row["library"])  # alone, or one of 20 in a row
alpha_s = small_s / (2 * (WORLD_SIZE - 1))  # an all-reduce has 2(p - 1) rounds
source = f"lab 11, {WORLD_SIZE} ranks, {MACHINE}"
ledger.constant("latency of a round, α", alpha_s, "s", source)
ledger.constant("bandwidth of a port, 1/β", 1 / FITTED[1], "B/s", source)
print(f"α: {FITTED[0] * 1e6:.0f} µs from Python, {alpha_s * 1e6:.1f} µs within the library")

# %% [markdown]
# **By how much did you miss, and why?** On two H200s, the ring took 551 µs, 1.66 times the prediction (1.16 in another run): it
# also adds, and Python starts each addition. Short vectors took twice the predicted time. There are two α:
#
# - *Python's*: to begin a message from Python takes tens of microseconds or more. Your lines use this α.
# - *The library's*: its all-reduce is one call, without Python between rounds. On NCCL this α is several times smaller.
#   The ledger keeps it, as real training calls the library.

# %% [markdown]
# On NCCL, `send` returns once it is queued on the GPU. So a tree's message costs Python less than
# a round of two, and short vectors lie below the tree's line. On gloo, processes share cores and memory, so dots may
# lie far off.

# %% [markdown]
# ### Exercise 5.1 · bus_bandwidth
#
# What does a port really carry? Bytes divided by time is no answer, since an all-reduce of 1 GB on four ranks moves
# 1.5 GB through each port. The **bus bandwidth** corrects for the collective and for p: it is what each port sends per
# second.
#
# Someone measures 277 for an all-reduce and 70 for a reduce-scatter, on the same four H100s: "I don't exactly know
# why it's exactly 70". Its program:
#
# ```
# all_reduce      size = 4 · 10⁸ bytes                          2 · (p − 1) · size / (p · time) / 2³⁰ = 277
# reduce_scatter  input (4, 10⁸), output (10⁸,), float32;
#                 size = bytes of the output                        (p − 1) · size / (p · time) / 2³⁰ =  70
# ```

# %% tags=["hole"]
def bus_bandwidth(collective, vector_bytes, time_s, p):
    """Bytes per second that each rank sends through its port.

    collective: "all_reduce", "reduce_scatter", "all_gather" or "all_to_all". vector_bytes: of the whole
    vector, all p chunks: a reduce-scatter's input, an all-gather's output. About two lines.
    """
    # BEGIN SOLUTION
    vectors_sent = (2 if collective == "all_reduce" else 1) * (p - 1) / p
    return vectors_sent * vector_bytes / time_s
    # END SOLUTION


# The two measurements as bus bandwidths, in GB/s: 10⁹ bytes per second.
# BEGIN SOLUTION
all_reduce_gb_s = 277 * 2**30 / 1e9
reduce_scatter_gb_s = 4 * 70 * 2**30 / 1e9  # size was that of the output, a quarter of the vector
# END SOLUTION

# %% tags=["check"]
from common.lessons.collectives import expected as oracle

for collective, p in itertools.product(oracle.TORCH, (5, 2, int(rng.integers(9, 17)))):
    want, n = 10 ** rng.uniform(9, 12), 840 * p * int(rng.integers(3, 29))
    time_s = oracle.simulated(f"_{collective}", p, n, 0.0, 1 / want).time_s
    case = f"bus_bandwidth({collective!r}, {4 * n}, {time_s:.3g}, {p})"
    wrong = oracle.divided_otherwise(collective, want, p)
    agree(bus_bandwidth(collective, 4 * n, time_s, p), want, case, rtol=1e-9, mistakes=wrong)
print("bus_bandwidth finds the speed of simulated ports from four collectives, on 2, 5 and more ranks")

# %% tags=["check"]
from common.lessons.collectives import expected as oracle

for name, got in (("all_reduce", all_reduce_gb_s), ("reduce_scatter", reduce_scatter_gb_s)):
    want, wrong = oracle.claimed_gb_s(name)
    agree(got, want, f"{name}_gb_s", rtol=0.005, mistakes=wrong)
print("The two claims as bus bandwidths, on the same ports")

# %% [markdown]
# <details><summary>Hint</summary>
#
# Which share of the vector does a rank send? Of which vector is `size`?
# </details>
#
# **A question.** The same person gives NVLink "a total bandwidth of 900 gigabytes" per second. How far from it are
# your two numbers?
#
# <details><summary>Answer</summary>
#
# 900 counts both directions. A port sends 450 GB/s at most, and receives as much. The ports of the riddle, at 297 and
# 301, reach two thirds of it. (NCCL reaches 354 between four H200s.)
# </details>
#
# **Before you compare bandwidths, ask which bytes were divided by what: of the input or of the output, one way or
# both?**

# %% tags=["nbval-ignore-output"]
figures.describe(ledger.figure(), "Each prediction of your ledger: outcome over prediction.")
ledger.table()

# %% [markdown]
# ## Done
#
# `make grade LAB=11` grades your lab. α and 1/β are in your ledger, to plan with in lab 16.
#
# - **Where it is used.** Under every data-parallel and tensor-parallel step. NCCL chooses by size, as you did. Its
#   tests print your `bus_bandwidth` as "busbw".
# - **What our model leaves out.** Links have one speed and are not shared, additions cost nothing, and no rank fails.
#   Switches that add (NVLink SHARP) halve what a port sends.

# %% [markdown]
# ## Further
#
# Everything from here on is optional. Each exercise stands by itself.
#
# | exercise | what it adds | minutes |
# | --- | --- | --- |
# | 6.1 | scatter and gather: a tree that sends only what is needed | 20 |
# | 6.2 | the ring's bytes in the tree's rounds | 25 |
# | 6.3 | a chain that passes on pieces, and the best size of a piece | 25 |
# | 6.4 | an all-reduce in two levels, for nodes with fast links inside | 30 |
# | 6.5 | several rings at once: addition hidden behind messages | 30 |

# %% [markdown]
# ### Exercise 6.1 · scatter (optional)
#
# Now each branch of the tree carries only what its ranks need. Chunks of neighbouring ranks are neighbours in x, so
# one message is one slice of x. Gather is scatter backwards.

# %% tags=["hole"]
def scatter(dist, x, root):
    """Chunk r of root's x, on rank r, in ⌈log₂ p⌉ rounds. About eight lines.

    x has the same length everywhere. On other ranks x is scratch space, and its contents don't matter.
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
    """All chunks, returned on the root; what other ranks return is not used. ⌈log₂ p⌉ rounds.

    Rank r brings chunk r of its x. The rest of x is scratch space. About eight lines.
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
from common.lessons.collectives import expected as oracle

for p, n, root, given in oracle.cases(rng):
    want, case = list(given[root].tensor_split(p)), f"scatter, {n} elements on {p} ranks, root {root},"
    result = oracle.run(scatter, rng, ranks.each(given), root, p=p)
    draw = oracle.drawn(result, given, want, case)
    agree(result.returns, want, case, mistakes=oracle.scattered_otherwise(given, root), draw=draw)
    oracle.assert_kept(case, oracle.kept(result.trace, n, root), list(map(len, want)), draw)
    oracle.assert_cost(case, result.trace, rounds=(p - 1).bit_length(), least=0,
                       elements=3 * n, draw=draw)
print("scatter: 11 runs in ⌈log₂ p⌉ rounds; each rank keeps its chunk and passes on the rest")

# %% tags=["check"]
from common.lessons.collectives import expected as oracle

for p, n, root, given in oracle.cases(rng):
    want, case = oracle.gathered(given), f"gather, {n} elements on {p} ranks, root {root}, on the root,"
    result = oracle.run(gather, rng, ranks.each(given), root, p=p)
    draw = oracle.drawn(result, given, [want if rank == root else None for rank in range(p)], case)
    agree(result.returns[root], want, case, draw=draw, mistakes={
        "Rank r brings its chunk r; that is the root's own vector.": given[root]})
    added = [-kept for kept in oracle.kept(result.trace, -n, root)]
    oracle.assert_kept(case, added, [len(chunk) for chunk in want.tensor_split(p)], draw)
    oracle.assert_cost(case, result.trace, rounds=(p - 1).bit_length(), least=0,
                       elements=3 * n, draw=draw)
print("gather: 11 runs in ⌈log₂ p⌉ rounds; each rank adds its chunk to what it passes on")

# %% [markdown]
# <details><summary>Hint</summary>
#
# Let `starts[r]` be where chunk r begins. The message (src, dst, first, last) then carries
# `x[starts[first]:starts[last]]`.
# </details>
#
# **A question.** Someone writes "broadcast is scatter followed by all-gather". For which vectors is that worth it?
#
# <details><summary>Answer</summary>
#
# For long ones. With a ring all-gather it takes 2(p − 1)/p · βB in place of ⌈log₂ p⌉ · βB, and p − 1 more rounds. On
# 64 GPUs that is a third of the bytes, and 63 rounds more.
# </details>

# %% [markdown]
# ### Exercise 6.2 · halving_doubling_all_reduce (optional)
#
# Both at once: the ring's bytes in the tree's rounds. First p/2 ranks swap halves with the other p/2, and each adds the
# half that it keeps. Then the same happens within each group of p/2, with half of that, and so on. After log₂ p rounds
# each rank has its chunk of the sum. Then all of it runs backwards, copying. Write it for p a power of two.

# %% tags=["hole"]
def halving_doubling_all_reduce(dist, x):
    """The sum of all ranks' x, on every rank, for p = 1, 2, 4, 8, ...; x may be overwritten.

    2 log₂ p rounds, and the ring's bytes: a rank sends at most 2(p - 1)⌈n/p⌉ elements. About 16 lines.
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

# %% tags=["check"] limit_s=30
from common.lessons.collectives import expected as oracle

for p, n in [(1, 3), (2, 5), (2, 0), (4, 8), (4, 7), (4, 1), (8, 29), (16, 3)]:
    case = f"halving_doubling_all_reduce, {n} elements on {p} ranks,"
    given = oracle.vectors(rng, p, n, whole=n == 7)
    want, wrong = [sum(given)] * p, oracle.all_reduced_otherwise(given)
    result = oracle.run(halving_doubling_all_reduce, rng, ranks.each(given), p=p)
    draw = oracle.drawn(result, given, want, case)
    agree(result.returns, want, case, mistakes=wrong, draw=draw)
    oracle.assert_cost(case, result.trace, rounds=2 * (p - 1).bit_length(), elements=2 * (p - 1) * n,
                       most=2 * (p - 1) * -(-n // p), draw=draw)
print("halving_doubling_all_reduce: 8 runs; 2 log₂ p rounds, and the ring's bytes")

# %% [markdown]
# <details><summary>Hint: a question</summary>
#
# In round one, rank 0 of 8 swaps with rank 4, then with rank 2, then with rank 1. Which half does it keep each
# time?
# </details>
# <details><summary>Hint: the idea</summary>
#
# Keep a range of chunks, `first` to `last`, that begins as all of them. Each round halves it: one half is kept
# and added to, the other is given away. Note what was given and to whom; the second part runs through these
# notes backwards, and copies.
# </details>
#
# In our model it is never slower than tree or ring. So why does anyone build rings?
#
# <details><summary>Answer</summary>
#
# For long vectors it gains nothing, because the bytes are the same. It needs a power of two, and a new partner at
# another distance in each round. Where links are shared, as between nodes, these messages crowd them, while a ring has
# one going in and one coming out. And neighbours that never change can stream: NCCL's rings pass a chunk on while it
# still arrives.
# </details>

# %% [markdown]
# ### Exercise 6.3 · chain_broadcast (optional)
#
# A tree that sends whole vectors pays for the bytes ⌈log₂ p⌉ times. Cut the vector into k pieces, and pass them along a
# chain: root, root + 1, …, root − 1 (modulo p). A rank sends one piece on while it receives the next. Count the rounds,
# and find the k that takes the least time.

# %% tags=["hole"]
def chain_broadcast(dist, x, root, pieces):
    """Root's x, returned on every rank, along a chain, in pieces x.tensor_split(pieces).

    p - 2 + pieces rounds (none for p = 1). x may be overwritten. About 12 lines.
    """
    # BEGIN SOLUTION
    p, me = dist.get_world_size(), dist.get_rank()
    place, passed_on = (me - root) % p, []
    for piece in x.tensor_split(pieces):
        if place > 0:
            dist.recv(piece, (me - 1) % p)
        if place < p - 1:
            passed_on.append(dist.isend(piece, (me + 1) % p))
    for work in passed_on:
        work.wait()
    return x
    # END SOLUTION


def best_pieces(p, vector_bytes, alpha_s, beta_s_per_byte):
    """How many equal pieces make the chain take the least time: a whole number from 1 on."""
    # BEGIN SOLUTION
    best = math.sqrt(max(p - 2, 0) * vector_bytes * beta_s_per_byte / alpha_s)
    near = {max(1, math.floor(best)), max(1, math.ceil(best))}
    return min(near, key=lambda k: (p - 2 + k) * (alpha_s + vector_bytes * beta_s_per_byte / k))
    # END SOLUTION

# %% tags=["check"] limit_s=30
from common.lessons.collectives import expected as oracle

for p, n, root, given in oracle.cases(rng):
    for pieces in (1, 2, 5):
        case = f"chain_broadcast, {n} elements in {pieces} pieces on {p} ranks, root {root},"
        want = [given[root]] * p
        result = oracle.run(chain_broadcast, rng, ranks.each(given), root, pieces, p=p)
        draw = oracle.drawn(result, given, want, case)
        agree(result.returns, want, case, draw=draw, mistakes=oracle.broadcast_otherwise(given))
        oracle.assert_cost(case, result.trace, rounds=max(0, p - 2 + pieces), elements=(p - 1) * n,
                           links=p - 1, draw=draw)
        oracle.assert_pieces(case, result.trace, min(n, pieces), draw)
print("chain_broadcast: 33 runs in p - 2 + pieces rounds")

# %% tags=["check"] limit_s=30
from common.lessons.collectives import expected as oracle

for p, size, ratio in ((3, 1e6, 1e5), (2, 1e6, 1e5), (5, 2.7e5, 1e5), (8, 1e3, 1e5),
                       (16, 10 ** rng.uniform(5, 8), 1e4), (64, 1e7, 1e6)):
    beta = 10 ** rng.uniform(-12, -8)
    alpha_s = ratio * beta * 10 ** rng.uniform(-0.02, 0.02)
    case = f"best_pieces({p}, {size:.4g}, {alpha_s:.3g}, {beta:.3g})"
    want, got = oracle.best_pieces(p, size, alpha_s, beta), best_pieces(p, size, alpha_s, beta)
    agree(got, want, case, mistakes={
        "Rounds are p - 2 + k.": oracle.best_pieces(p + 1, size, alpha_s, beta)})
print("best_pieces: no other number of pieces takes less time, for six chains")

# %% [markdown]
# <details><summary>Hint</summary>
#
# `isend` begins a message and returns at once, so that the next `recv` can run. Keep what it returns, and wait for all
# of it in the end. The time is (p − 2 + k)(α + βB/k). For which k is the derivative 0?
# </details>
#
# For long vectors the chain pays for the bytes about once, and a tree in pieces does, too, with fewer rounds. NCCL's
# trees work so: there are two, and a rank that is a leaf of one passes on in the other. NCCL uses them across many
# nodes, at full bandwidth. "Trees for short vectors" is true of trees that send whole vectors.

# %% [markdown]
# ### Exercise 6.4 · two_level_all_reduce (optional)
#
# Eight GPUs in a node reach each other fast, and other nodes slowly. Reduce-scatter within each node. Then GPU i of
# each node has chunk i, and all-reduces it with GPU i of the other nodes only. Last, all-gather within the node. This
# is the first of your functions that runs in *subgroups*, as the later labs do.
#
# <details><summary>Hint: a question</summary>
#
# Which ranks are in my node, and which have my place in theirs? Your ring works on a list of peers instead of 0
# to p − 1.
# </details>
# <details><summary>Hint: the idea</summary>
#
# Write one function that goes round a list of peers, and adds or copies. Call it four times: add within the
# node, add across nodes, copy across nodes, copy within the node. Across nodes, it works on pieces of one
# chunk.
# </details>

# %% tags=["hole"]
def two_level_all_reduce(dist, x, per_node):
    """The sum of all ranks' x, on every rank; x may be overwritten. About 18 lines.

    Ranks k · per_node to (k + 1) · per_node - 1 are node k; per_node divides p. Rings everywhere.
    Between nodes, messages go only between ranks of the same place in their nodes.
    """
    # BEGIN SOLUTION
    p, me = dist.get_world_size(), dist.get_rank()
    place, nodes = me % per_node, p // per_node
    inside = [me - place + other for other in range(per_node)]
    across = [place + per_node * node for node in range(nodes)]

    def go_round(chunks, peers, adds):
        own, size = peers.index(me), len(peers)
        for step in range(1, size):
            sent, came = chunks[(own - step + 1 - adds) % size], chunks[(own - step - adds) % size]
            received = torch.empty_like(came)
            exchange(dist, sent, peers[(own + 1) % size], received, peers[own - 1])
            came.copy_(came + received if adds else received)

    chunks = x.tensor_split(per_node)
    pieces = chunks[place].tensor_split(nodes)
    go_round(chunks, inside, True)
    go_round(pieces, across, True)
    go_round(pieces, across, False)
    go_round(chunks, inside, False)
    return x
    # END SOLUTION

# %% tags=["check"]
from common.lessons.collectives import expected as oracle

for p, per_node, n in ((4, 2, 8), (1, 1, 3), (4, 2, 5), (4, 4, 7), (3, 1, 5), (6, 3, 0), (6, 2, 31)):
    given = oracle.vectors(rng, p, n, whole=n == 7)
    case = f"two_level_all_reduce, {n} elements on {p} ranks, {per_node} per node,"
    want = [sum(given)] * p
    result = oracle.run(two_level_all_reduce, rng, ranks.each(given), per_node, p=p)
    draw = oracle.drawn(result, given, want, case)
    agree(result.returns, want, case, draw=draw, mistakes=oracle.all_reduced_otherwise(given))
    oracle.assert_levels(case, result.trace, p, per_node, n, draw)
print("two_level_all_reduce: 7 runs; between nodes, each rank sends its own chunk alone")

# %%
flat = ranks.run(ring_all_reduce, torch.ones(2**20), world_size=8, **ranks.nodes(8, 4)).trace
levels = ranks.run(two_level_all_reduce, torch.ones(2**20), 4, world_size=8, **ranks.nodes(8, 4)).trace
axes = flat.draw_beside(levels, titles=("One ring through two nodes", "Two levels"), arrows=False)
figures.describe(axes, "One ring is as slow as its slowest link. In two levels, all ports share.")

# %% [markdown]
# **Harder.** You all-reduce 14 GB of gradients at 350 GB/s of bus bandwidth. How long does it take on 8 GPUs, on 64,
# and on 64 in nodes of eight, where each GPU reaches other nodes through its own port of 50 GB/s? Can you do better
# than two levels?

# %% [markdown]
# <details><summary>Answer</summary>
#
# - 8 GPUs: 2 · 7/8 · 14 / 350 = 70 ms. 64 GPUs: 79 ms.
# - *One* ring through all nodes goes at the pace of its slowest link: 2 · 63/64 · 14 / 50 = 551 ms.
# - *Two levels*, one after the other: 70 ms within the nodes, plus 2 · 7/8 · 1.75 / 50 = 61 ms between them: 131 ms.
# - *Eight rings* at once, each with 1/8 of the vector, and each leaving the node through another GPU's port: 2 · 63/64 ·
#   1.75 / 50 = 69 ms between nodes. At the same time, the links within take 2 · 63/64 · 14 · (7/8) / 350 = 69 ms.
#   NCCL does this.
# </details>

# %% tags=["driver"]
def on_groups(dist, x, rings):
    returned = rings_all_reduce(dist, x, [dist.new_group() for _ in range(rings)])
    return [x if returned is None else returned, x]

# %% [markdown]
# ### Exercise 6.5 · rings_all_reduce (optional)
#
# Two things keep one ring from NCCL's speed. While it *adds* (12 bytes of memory traffic per 4 bytes on the wire), its
# ports wait. And NCCL carries a message over *channels*, each a block of threads: one message keeps too few busy.
#
# Several rings at once help with both, each on its own group of all ranks (`dist.new_group()`) and with its own part of
# the vector. While one adds, the messages of the others move. A generator suits it: one ring that yields whenever its
# messages have begun. Take turns.
#
# <details><summary>Hint: a question</summary>
#
# A generator stops at `yield`. Where should one ring let the others go on?
# </details>
# <details><summary>Hint: the idea</summary>
#
# After its messages have begun, and before it waits for them. A ring has 2(p − 1) rounds: the first p − 1
# receive into an inbox and add, the others receive in place. Then take one step of each ring in turn:
# `itertools.zip_longest` does that.
# </details>

# %% tags=["hole"]
def ring_in_turns(dist, x, group):
    """A generator: a ring all-reduce of x, in place. It yields when the messages of a round have begun.

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

# %% tags=["check"] limit_s=30
from common.lessons.collectives import expected as oracle

for p, n, rings in [(1, 1, 2), (2, 8, 2), (3, 20, 2), (4, 48, 3), (5, 3, 4), (8, 64, 4)]:
    given, case = oracle.vectors(rng, p, n, n == 64), f"{rings} rings, {n} elements on {p} ranks,"
    slow = [[100.0 if dst == 1 else 1 / 8 for dst in range(p)] for _ in range(p)]  # towards rank 1
    want, names = [sum(given)] * p, (*oracle.MESSAGES, "new_group")
    result = oracle.run(on_groups, rng, ranks.each(given), rings, p=p, only=names, beta=slow)
    result.returns, after = map(list, zip(*result.returns))
    draw = oracle.drawn(result, given, want, case)
    agree(result.returns, want, case, draw=draw, mistakes=oracle.all_reduced_otherwise(given))
    agree(after, want, f"{case} x afterwards", mistakes={"The sum belongs in x, too.": given})
    oracle.assert_turns(case, result.trace, n, rings, draw)
print("rings_all_reduce: 6 runs; the rings take turns, and move what one ring moves")

# %%
GROUPS = []

def eight_rings(dist, x):
    GROUPS.extend(dist.new_group() for _ in range(8 - len(GROUPS)))
    return rings_all_reduce(dist, x, GROUPS)

rungs = {"through rank 0": through_rank_0, "tree": tree_all_reduce, "ring": ring_all_reduce,
         "eight rings": eight_rings, "library": torch_all_reduce}

# %% [markdown]
# All the all-reduces of this lab on real ranks, ten calls in a row, as bus bandwidth. The line is the library's own.

# %% tags=["nbval-ignore-output"]
size, effort = (2**30, {"calls": 10}) if MACHINE == "nccl" else (2**24, {"calls": 1, "repeats": 3})
times = clock.seconds(rungs, [size], MACHINE, WORLD_SIZE, **effort)
gb_s = {name: bus_bandwidth("all_reduce", size, *s, WORLD_SIZE) / 1e9 for name, s in times.items()}
ax = figures.ladder(gb_s, ceiling=(MACHINE, gb_s.pop("library")), xlabel="bus bandwidth (GB/s)",
                    title=f"All-reduce of {size // 2**20} MiB on {WORLD_SIZE} ranks ({MACHINE})")
figures.describe(ax, "Bus bandwidth of four all-reduces of this lab, beside the library's own.")

# %% [markdown]
# On four H200s and 1 GiB, in calls that follow each other, we measured these shares of NCCL's bandwidth (eight rings:
# `make bench-gpus`):
#
# | program | share |
# | --- | --- |
# | one ring | 0.77 |
# | four rings | 0.85 |
# | eight rings | 0.91 |
# | every chunk straight to its owner, and the sum straight back, in eight groups | 0.93 |
#
# In the figure, on two H200s, one ring reaches 0.96 and eight rings 1.03, because two ranks need only two rounds.

# %% [markdown]
# On four GPUs, a single call between two pauses is another matter. Eight rings are then slower than one: Python has to
# begin 48 rounds of messages, and nothing hides their α. On a laptop, processes share cores and memory, and there are no ports to fill.
#
# **Several rings hide additions behind messages, if enough work follows to hide Python, too.**

# %% tags=["driver"]
def when_it_returns(dist, size):
    """Seconds after which all_reduce, then wait() on its handle, then the device are done."""
    import time
    x, device_done = torch.zeros(size // 4), torch.cuda.synchronize if MACHINE == "nccl" else int
    dist.all_reduce(x)  # for warming up
    device_done()
    start_s = time.perf_counter()
    work = dist.all_reduce(x, async_op=True)
    call_s = time.perf_counter() - start_s
    work.wait()
    wait_s = time.perf_counter() - start_s
    device_done()
    return call_s, wait_s, time.perf_counter() - start_s

# %% [markdown]
# ### Streams
#
# On NCCL, Python only queues work. `dist.all_reduce(x, async_op=True)` puts a kernel into a *stream*, a queue of the
# GPU, and returns. NCCL's stream runs beside that of your kernels. Three rules follow:
#
# - `work.wait()` makes your *stream* wait, not Python. Kernels that you start later find the sum in x.
# - `x.item()` and `torch.cuda.synchronize()` make Python wait, too. Synchronise before you read a clock.
# - Calls on one group run in Python's order. All ranks need the same order, or their GPUs wait for each other forever.
#
# When are the call, its wait and the device done?

# %% tags=["nbval-ignore-output"]
real = {"world_size": WORLD_SIZE, "machine": MACHINE, "noted": False}
call_s, wait_s, sum_s = ranks.run(when_it_returns, size, **real).returns[0]
for what, seconds in {"the call": call_s, "wait()": wait_s, "the device": sum_s}.items():
    print(f"{what:10} is over after {seconds * 1e3:8.3f} ms")

# %% [markdown]
# On gloo, `wait()` returns when the sum is there. On NCCL, the first two are over long before, and Python can start the
# next kernels meanwhile. Lab 12 uses this: backward goes on while gradients travel.
