# %% held: gather leaves it everywhere
# says: only the root gets it
# edit: "gather": [own if rank == root else None for rank in range(p)],  ->  "gather": [own] * p,

# %% held: scatter gives the whole vector
# says: gets chunk r alone
# edit: "scatter": list(x[root].split(1)),  ->  "scatter": [x[root]] * p,

# %% held: reduce-scatter gives the whole sum
# says: gets chunk r alone
# edit: "reduce_scatter": list(total.split(1)),  ->  "reduce_scatter": [total] * p,

# %% held: gather takes the root's chunk of everyone
# says: brings its chunk r
# - "gather": [own if rank == root else None for rank in range(p)],
# + "gather": [x.T[root] if rank == root else None for rank in range(p)],

# %% held: all-to-all changes nothing
# says: everyone's chunk r
# edit: "all_to_all": list(x.T),  ->  "all_to_all": list(x),

# %% held: the notes' pair
# says: only the root has the sum
# edit: ("reduce_scatter", "all_gather")  ->  ("reduce", "scatter")

# %% held: the lecture's pair
# says: only the root has the sum
# edit: ("reduce_scatter", "all_gather")  ->  ("reduce", "all_gather")

# %% held: one pair of two
# says: there is one more
# edit: {("reduce", "broadcast"), ("reduce_scatter", "all_gather")}  ->  {("reduce", "broadcast")}

# %% tree_broadcast: the larger half goes
# says: gives away the smaller half
# edit: (last - first) // 2  ->  (last - first + 1) // 2 if last - first > 1 else 0

# %% tree_broadcast: messages in the wrong order
# says: does not have it yet
# - return [(src, dst, *given), *halve(*mine, src), *halve(*given, dst)]
# + return [*halve(*given, dst), (src, dst, *given), *halve(*mine, src)]

# %% tree_broadcast: the root sends to everyone itself
# says: rounds, want
# - for src, dst, _, _ in halvings(dist.get_world_size(), root):
# -     if me == src:
# -         dist.send(x, dst)
# -     elif me == dst:
# -         dist.recv(x, src)
# + for peer in range(dist.get_world_size()):
# +     if me == root and peer != root:
# +         dist.send(x, peer)
# +     elif me == peer and peer != root:
# +         dist.recv(x, root)

# %% tree_broadcast: root taken for 0
# says: not rank 0
# - for src, dst, _, _ in halvings(dist.get_world_size(), root):
# + for src, dst, _, _ in halvings(dist.get_world_size(), 0):

# %% tree_broadcast: everyone receives first
# says: deadlock
# - me = dist.get_rank()
# - for src, dst, _, _ in halvings(dist.get_world_size(), root):
# -     if me == src:
# -         dist.send(x, dst)
# -     elif me == dst:
# -         dist.recv(x, src)
# + me, p = dist.get_rank(), dist.get_world_size()
# + if p > 1:
# +     dist.recv(x, (me - 1) % p)
# +     dist.send(x, (me + 1) % p)

# %% tree_broadcast: reduce down the tree
# says: passed on too early
# edit: reversed(halvings(dist.get_world_size(), root))  ->  halvings(dist.get_world_size(), root)

# %% tree_broadcast: reduce overwrites
# says: own vector belongs to the sum
# - dist.recv(received, dst)
# - x += received
# + dist.recv(x, dst)

# %% tree_broadcast: everyone sends to the root
# says: rounds, want
# - for src, dst, _, _ in reversed(halvings(dist.get_world_size(), root)):
# -     if me == dst:
# -         dist.send(x, src)
# -     elif me == src:
# -         dist.recv(received, dst)
# + for peer in range(dist.get_world_size()):
# +     if me == peer and peer != root:
# +         dist.send(x, root)
# +     elif me == root and peer != root:
# +         dist.recv(received, peer)

# %% tree_broadcast: the root adds itself twice
# says: in the sum twice
# - me, received = dist.get_rank(), torch.empty_like(x)
# + me, received, own = dist.get_rank(), torch.empty_like(x), x.clone()
# ...
#           x += received
# - return x
# + return x + own if me == root else x

# %% scatter: the root sends every chunk itself
# says: rounds, want
# - for src, dst, first, last in halvings(p, root):
# -     theirs = x[starts[first]:starts[last]]
# -     if me == src:
# -         dist.send(theirs, dst)
# -     elif me == dst:
# -         dist.recv(theirs, src)
# + for peer in range(p):
# +     if me == root and peer != root:
# +         dist.send(chunks[peer], peer)
# +     elif me == peer and peer != root:
# +         dist.recv(chunks[me], root)

# %% scatter: a broadcast
# says: want only their chunks
# - for src, dst, first, last in halvings(p, root):
# -     theirs = x[starts[first]:starts[last]]
# -     if me == src:
# -         dist.send(theirs, dst)
# -     elif me == dst:
# -         dist.recv(theirs, src)
# - return chunks[me]
# + return tree_broadcast(dist, x, root).tensor_split(p)[me]

# %% scatter: cut with x.chunk
# says: x.tensor_split(p) evenly
#   def scatter(dist, x, root):
#       p, me = dist.get_world_size(), dist.get_rank()
# -     chunks = x.tensor_split(p)
# +     chunks = x.chunk(p)

# %% scatter: the remainder goes to the last
# says: not for the last one alone
# - chunks = x.tensor_split(p)
# - starts = [sum(map(len, chunks[:rank])) for rank in range(p + 1)]
# + starts = [rank * (len(x) // p) for rank in range(p)] + [len(x)]
#   for src, dst, first, last in halvings(p, root):
# edit: chunks[me]  ->  x[starts[me]:starts[me + 1]]

# %% scatter: the remainder is lost
# says: remainder is missing
# - chunks = x.tensor_split(p)
# - starts = [sum(map(len, chunks[:rank])) for rank in range(p + 1)]
# + starts = [rank * (len(x) // p) for rank in range(p + 1)]
#   for src, dst, first, last in halvings(p, root):
# edit: chunks[me]  ->  x[starts[me]:starts[me + 1]]

# %% scatter: each rank's own chunk
# says: the chunk is the root's
# - for src, dst, first, last in halvings(p, root):
# -     theirs = x[starts[first]:starts[last]]
# -     if me == src:
# -         dist.send(theirs, dst)
# -     elif me == dst:
# -         dist.recv(theirs, src)

# %% scatter: gather: everyone sends to the root
# says: rounds, want
# - for src, dst, first, last in reversed(halvings(p, root)):
# -     theirs = x[starts[first]:starts[last]]
# -     if me == dst:
# -         dist.send(theirs, src)
# -     elif me == src:
# -         dist.recv(theirs, dst)
# + for peer in range(p):
# +     if me == peer and peer != root:
# +         dist.send(chunks[me], root)
# +     elif me == root and peer != root:
# +         dist.recv(chunks[peer], peer)

# %% scatter: gather: a rank passes on its own chunk alone
# says: elements
# edit: dist.send(theirs, src)  ->  dist.send(chunks[me], src)

# %% ring_reduce_scatter: everyone sends before anyone receives
# says: deadlock
# - exchange(dist, sent, (me + 1) % p, inbox[:len(grows)], (me - 1) % p)
# + dist.send(sent, (me + 1) % p)
# + dist.recv(inbox[:len(grows)], (me - 1) % p)

# %% ring_reduce_scatter: the whole vector round the ring
# says: elements sent, want
def ring_reduce_scatter(dist, x):
    p, me = dist.get_world_size(), dist.get_rank()
    total, moving, received = x.clone(), x, torch.empty_like(x)
    for _ in range(p - 1):
        exchange(dist, moving, (me + 1) % p, received, (me - 1) % p)
        moving, received = received, moving
        total += moving
    return total.tensor_split(p)[me]

# %% ring_reduce_scatter: chunk me first
# says: start one chunk earlier
# - sent, grows = chunks[(me - step) % p], chunks[(me - step - 1) % p]
# + sent, grows = chunks[(me - step + 1) % p], chunks[(me - step) % p]
# edit: chunks[me]  ->  chunks[(me + 1) % p]

# %% ring_reduce_scatter: the remainder goes to the last
# says: not for the last one alone
# - chunks = x.tensor_split(p)
# - inbox = torch.empty_like(chunks[0])  # the first is as long as any
# + size = len(x) // p
# + chunks = [x[size * r:size * (r + 1) if r < p - 1 else len(x)] for r in range(p)]
# + inbox = torch.empty_like(x)

# %% ring_reduce_scatter: cut with x.chunk
# says: x.tensor_split(p) evenly
# edit: x.tensor_split  ->  x.chunk

# %% ring_reduce_scatter: sum taken p times
# says: in it p times
# edit: return chunks[me]  ->  return p * chunks[me]

# %% ring_reduce_scatter: the same share sent every time
# says: only one rank's share
# - chunks = x.tensor_split(p)
# + chunks, shares = x.tensor_split(p), x.clone().tensor_split(p)
# edit: chunks[(me - step) % p]  ->  shares[(me - step) % p]

# %% ring_reduce_scatter: messages one after another
# says: rounds, want
# - exchange(dist, sent, (me + 1) % p, inbox[:len(grows)], (me - 1) % p)
# + first, second = [("send", sent), ("recv", inbox[:len(grows)])][::1 if me else -1]
# + for kind, tensor in (first, second):
# +     if kind == "send":
# +         dist.send(tensor, (me + 1) % p)
# +     else:
# +         dist.recv(tensor, (me - 1) % p)

# %% ring_all_reduce: all-gather of whole vectors
# says: elements sent, want
#   chunks = x.tensor_split(p)
# + moving, received = x.clone(), torch.empty_like(x)
# ...
# - exchange(dist, chunks[(me - step) % p], (me + 1) % p, chunks[(me - step - 1) % p], (me - 1) % p)
# + exchange(dist, moving, (me + 1) % p, received, (me - 1) % p)
# + moving, received = received, moving
# + chunks[(me - step - 1) % p].copy_(moving.tensor_split(p)[(me - step - 1) % p])

# %% ring_all_reduce: all-gather begins with chunk me + 1
# says: not from rank r - 1
# - exchange(dist, chunks[(me - step) % p], (me + 1) % p, chunks[(me - step - 1) % p], (me - 1) % p)
# + exchange(dist, chunks[(me - step + 1) % p], (me + 1) % p, chunks[(me - step) % p], (me - 1) % p)

# %% ring_all_reduce: all-gather sends before it receives
# says: deadlock
# - exchange(dist, chunks[(me - step) % p], (me + 1) % p, chunks[(me - step - 1) % p], (me - 1) % p)
# + dist.send(chunks[(me - step) % p], (me + 1) % p)
# + dist.recv(chunks[(me - step - 1) % p], (me - 1) % p)

# %% ring_all_reduce: whole vectors round the ring
# says: elements sent, want
# - ring_reduce_scatter(dist, x)  # ours leaves rank r's chunk in its place in x
# - return ring_all_gather(dist, x)
# + p, me = dist.get_world_size(), dist.get_rank()
# + total, moving, received = x.clone(), x, torch.empty_like(x)
# + for _ in range(p - 1):
# +     exchange(dist, moving, (me + 1) % p, received, (me - 1) % p)
# +     moving, received = received, moving
# +     total += moving
# + return total

# %% ring_all_reduce: a tree
# says: cut evenly
# - ring_reduce_scatter(dist, x)  # ours leaves rank r's chunk in its place in x
# - return ring_all_gather(dist, x)
# + return tree_broadcast(dist, tree_reduce(dist, x, 0), 0)

# %% ring_all_reduce: sum taken p times
# says: in it p times
# edit: return ring_all_gather(dist, x)  ->  return dist.get_world_size() * ring_all_gather(dist, x)

# %% ring_all_reduce: the mean
# says: the mean is asked for later
# edit: return ring_all_gather(dist, x)  ->  return ring_all_gather(dist, x) / dist.get_world_size()

# %% alpha_beta_time: a ring passes whole vectors
# says: parts of the vector
# edit: "ring_reduce_scatter": (ring, share),  ->  "ring_reduce_scatter": (ring, ring),

# %% alpha_beta_time: a tree passes p-ths
# says: whole vectors
# edit: "tree_broadcast": (depth, depth),  ->  "tree_broadcast": (depth, depth / p),

# %% alpha_beta_time: the logarithm is not rounded
# says: round log₂ p up
# edit: (p - 1).bit_length(), p - 1, (p - 1) / p  ->  float(np.log2(p)), p - 1, (p - 1) / p

# %% alpha_beta_time: an all-reduce is one way
# says: there and back
# edit: "ring_all_reduce": (2 * ring, 2 * share),  ->  "ring_all_reduce": (ring, share),

# %% alpha_beta_time: p rounds
# says: p - 1 rounds
# edit: "ring_reduce_scatter": (ring, share),  ->  "ring_reduce_scatter": (p, 1),

# %% alpha_beta_time: crossover upside down
# says: β/α is none
# edit: alpha_s / beta_s_per_byte  ->  beta_s_per_byte / alpha_s

# %% alpha_beta_time: crossover in elements
# says: float32 elements
# - return alpha_s / beta_s_per_byte * (p - 1 - depth) / (depth - (p - 1) / p)
# + return alpha_s / beta_s_per_byte / 4 * (p - 1 - depth) / (depth - (p - 1) / p)

# %% halving_doubling_all_reduce: whole vectors in every round
# says: elements sent, want
def halving_doubling_all_reduce(dist, x):
    p, me = dist.get_world_size(), dist.get_rank()
    distance = 1
    while distance < p:
        received = torch.empty_like(x)
        exchange(dist, x, me ^ distance, received, me ^ distance)
        x += received
        distance *= 2
    return x

# %% halving_doubling_all_reduce: a ring
# says: rounds, want
def halving_doubling_all_reduce(dist, x):
    p, me = dist.get_world_size(), dist.get_rank()
    return ring_all_reduce(dist, x)

# %% fit_alpha_beta: least squares in seconds
# says: only the large messages count
def fit_alpha_beta(message_bytes, times_s):
    beta_s_per_byte, alpha_s = np.polyfit(np.array(message_bytes), np.array(times_s), 1)
    return float(alpha_s), float(beta_s_per_byte)

# %% fit_alpha_beta: bandwidth for β
# says: one over the bandwidth
# edit: float(alpha_s), float(beta_s_per_byte)  ->  float(alpha_s), 1 / float(beta_s_per_byte)

# %% fit_alpha_beta: the other order
# says: α comes first
# edit: float(alpha_s), float(beta_s_per_byte)  ->  float(beta_s_per_byte), float(alpha_s)

# %% bus_bandwidth: bytes by time
# says: never passes its port
# edit: (2 if collective == "all_reduce" else 1) * (p - 1) / p  ->  1

# %% bus_bandwidth: an all-reduce goes one way
# says: there and back
# edit: (2 if collective == "all_reduce" else 1) * (p - 1)  ->  (p - 1)

# %% bus_bandwidth: twice for every collective
# says: one way only
# edit: (2 if collective == "all_reduce" else 1) * (p - 1)  ->  2 * (p - 1)

# %% bus_bandwidth: all ports together
# says: not that of all together
# - vectors_sent = (2 if collective == "all_reduce" else 1) * (p - 1) / p
# + vectors_sent = (2 if collective == "all_reduce" else 1) * (p - 1)

# %% bus_bandwidth: GiB for GB
# says: 1.07 GB
# edit: 277 * 2**30 / 1e9  ->  277.0

# %% bus_bandwidth: the output's bytes
# says: one chunk of the vector
# edit: 4 * 70 * 2**30 / 1e9  ->  70 * 2**30 / 1e9

# %% rings_all_reduce: one ring after another
# says: begin a round of each ring
# - for _ in itertools.zip_longest(*(ring_in_turns(dist, part, group)
# -                                  for part, group in zip(parts, groups, strict=True))):
# -     pass  # one step of each ring
# + for part, group in zip(parts, groups, strict=True):
# +     for _ in ring_in_turns(dist, part, group):
# +         pass

# %% rings_all_reduce: the whole vector in each ring
# says: changed before its wait
# edit: x.tensor_split(len(groups))  ->  [x] * len(groups)

# %% ring_reduce_scatter: every chunk straight to its owner
# says: a ring has 3
# edit: chunks[0]  ->  chunks[me]
# - sent, grows = chunks[(me - step) % p], chunks[(me - step - 1) % p]
# - exchange(dist, sent, (me + 1) % p, inbox[:len(grows)], (me - 1) % p)
# - grows += inbox[:len(grows)]
# + exchange(dist, chunks[(me + step) % p], (me + step) % p, inbox, (me - step) % p)
# + chunks[me].add_(inbox)

# %% ring_reduce_scatter: received where its own share stands
# says: receive into a buffer
# - exchange(dist, sent, (me + 1) % p, inbox[:len(grows)], (me - 1) % p)
# - grows += inbox[:len(grows)]
# + exchange(dist, sent, (me + 1) % p, grows, (me - 1) % p)

# %% ring_reduce_scatter: chunk me - 2 first
# says: added to a rank's own share
# - sent, grows = chunks[(me - step) % p], chunks[(me - step - 1) % p]
# + sent, grows = chunks[(me - step - 1) % p], chunks[(me - step - 2) % p]

# %% ring_reduce_scatter: a chunk gets a new name instead of the sum
# says: Only one rank's share
def ring_reduce_scatter(dist, x):
    p, me = dist.get_world_size(), dist.get_rank()
    chunks = x.tensor_split(p)
    for step in range(1, p):
        grows = chunks[(me - step - 1) % p]
        inbox = torch.empty_like(grows)
        exchange(dist, chunks[(me - step) % p], (me + 1) % p, inbox, (me - 1) % p)
        grows = grows + inbox
    return grows if p > 1 else x

# %% ring_reduce_scatter: the inbox is as long as the own chunk
# says: sends 3 elements
# edit: chunks[0]  ->  chunks[me]
# - sent, grows = chunks[(me - step) % p], chunks[(me - step - 1) % p]
# - exchange(dist, sent, (me + 1) % p, inbox[:len(grows)], (me - 1) % p)
# - grows += inbox[:len(grows)]
# + exchange(dist, chunks[(me - step) % p], (me + 1) % p, inbox, (me - 1) % p)
# + chunks[(me - step - 1) % p].add_(inbox)

# %% alpha_beta_time: a scatter by p - 1 messages of the root
# says: A scatter by halving
# edit (2 places): (depth, share)  ->  (ring, share)

# %% alpha_beta_time: a scatter halves p as if it were a power of two
# says: chunks of p leave the root
# edit (2 places): (depth, share)  ->  (depth, 1 - 2**-depth)

# %% alpha_beta_time: the crossover with a logarithm that is not rounded
# says: a tree's time, against a ring's
#   def crossover_bytes(p, alpha_s, beta_s_per_byte):
# -     depth = (p - 1).bit_length()
# +     depth = np.log2(p)

# %% fit_alpha_beta: the line through the first and the last point
# says: is not the least
def fit_alpha_beta(message_bytes, times_s):
    beta = (times_s[-1] - times_s[0]) / (message_bytes[-1] - message_bytes[0])
    return times_s[0] - beta * message_bytes[0], beta

# %% fit_alpha_beta: weights of one over the root of the time
# says: is not the least
def fit_alpha_beta(message_bytes, times_s):
    b, a = np.polyfit(message_bytes, times_s, 1, w=1 / np.sqrt(times_s))
    return float(a), float(b)

# %% bus_bandwidth: GiB into GB the wrong way
# says: A GiB is more
def bus_bandwidth(collective, vector_bytes, time_s, p):
    k = 2 if collective == "all_reduce" else 1
    return k * (p - 1) / p * vector_bytes / time_s


all_reduce_gb_s = 277 * 1e9 / 2**30
reduce_scatter_gb_s = 4 * 70 * 1e9 / 2**30

# %% rings_all_reduce: waits before the next ring begins
# says: begin a round of each ring
# - yield
# ...
#       chunk += received
# + yield

# %% rings_all_reduce: all rings on one group
# says: begin a round of each ring
# - works = dist.batch_isend_irecv([dist.P2POp(dist.isend, sent, (me + 1) % p, group),
# -                                 dist.P2POp(dist.irecv, received, (me - 1) % p, group)])
# + works = dist.batch_isend_irecv([dist.P2POp(dist.isend, sent, (me + 1) % p),
# +                                 dist.P2POp(dist.irecv, received, (me - 1) % p)])

# %% rings_all_reduce: stops when the first ring yields no more
# says: never waited for
# - for _ in itertools.zip_longest(*(ring_in_turns(dist, part, group)
# -                                  for part, group in zip(parts, groups, strict=True))):
# + for _ in zip(*(ring_in_turns(dist, part, group) for part, group in zip(parts, groups))):
