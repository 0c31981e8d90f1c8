# %% reduce_scatter: the notes' pair
# says: only the root has the sum
# edit: ("reduce_scatter", "all_gather")  ->  ("reduce", "scatter")

# %% reduce_scatter: the lecture's pair
# says: only the root has the sum
# edit: ("reduce_scatter", "all_gather")  ->  ("reduce", "all_gather")

# %% reduce_scatter: one pair of two
# says: there is one more
# edit: {("reduce", "broadcast"), ("reduce_scatter", "all_gather")}  ->  {("reduce", "broadcast")}

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
# says: want only their own chunks
# - for src, dst, first, last in halvings(p, root):
# -     theirs = x[starts[first]:starts[last]]
# -     if me == src:
# -         dist.send(theirs, dst)
# -     elif me == dst:
# -         dist.recv(theirs, src)
# - return chunks[me]
# + return tree_broadcast(dist, x, root).tensor_split(p)[me]

# %% scatter: cut with x.chunk
# says: x.tensor_split(p) cuts evenly
#   def scatter(dist, x, root):
#       p, me = dist.get_world_size(), dist.get_rank()
# -     chunks = x.tensor_split(p)
# +     chunks = x.chunk(p)

# %% scatter: the remainder goes to the last
# says: not for the last rank alone
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
# says: not for the last rank alone
# - chunks = x.tensor_split(p)
# - inbox = torch.empty_like(chunks[0])  # the first is as long as any
# + size = len(x) // p
# + chunks = [x[size * r:size * (r + 1) if r < p - 1 else len(x)] for r in range(p)]
# + inbox = torch.empty_like(x)

# %% ring_reduce_scatter: cut with x.chunk
# says: x.tensor_split(p) cuts evenly
# edit: x.tensor_split  ->  x.chunk

# %% ring_reduce_scatter: sum taken p times
# says: in it p times
# edit: return chunks[me]  ->  return p * chunks[me]

# %% ring_reduce_scatter: the same share sent every time
# says: only one other rank's numbers
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
# says: comes from rank r, not r - 1
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
# says: that is the mean
# edit: return ring_all_gather(dist, x)  ->  return ring_all_gather(dist, x) / dist.get_world_size()

# %% alpha_beta_time: a ring passes whole vectors
# says: parts of the vector
# edit: "ring_reduce_scatter": (ring, vector_bytes / p),  ->  "ring_reduce_scatter": (ring, vector_bytes),

# %% alpha_beta_time: a tree passes p-ths
# says: whole vectors
# edit: "tree_broadcast": (depth, vector_bytes),  ->  "tree_broadcast": (depth, vector_bytes / p),

# %% alpha_beta_time: the logarithm is not rounded
# says: round log₂ p up
# edit: depth, ring = (p - 1).bit_length(), p - 1  ->  depth, ring = float(np.log2(p)), p - 1

# %% alpha_beta_time: an all-reduce is one way
# says: there and back
# edit: "ring_all_reduce": (2 * ring, vector_bytes / p),  ->  "ring_all_reduce": (ring, vector_bytes / p),

# %% alpha_beta_time: p rounds
# says: p - 1 rounds
# edit: "ring_reduce_scatter": (ring, vector_bytes / p),  ->  "ring_reduce_scatter": (p, vector_bytes / p),

# %% alpha_beta_time: crossover upside down
# says: β/α is not
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
# says: of all ports together
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
# says: want 3 at most
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
# says: added to a rank's own numbers
# - sent, grows = chunks[(me - step) % p], chunks[(me - step - 1) % p]
# + sent, grows = chunks[(me - step - 1) % p], chunks[(me - step - 2) % p]

# %% ring_reduce_scatter: a chunk gets a new name instead of the sum
# says: only one other rank's numbers
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

# %% alpha_beta_time: the crossover with a logarithm that is not rounded
# says: round log₂ p up
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
# says: each ring has its own group
# - works = dist.batch_isend_irecv([dist.P2POp(dist.isend, sent, (me + 1) % p, group),
# -                                 dist.P2POp(dist.irecv, received, (me - 1) % p, group)])
# + works = dist.batch_isend_irecv([dist.P2POp(dist.isend, sent, (me + 1) % p),
# +                                 dist.P2POp(dist.irecv, received, (me - 1) % p)])

# %% rings_all_reduce: stops when the first ring yields no more
# says: never waited for
# - for _ in itertools.zip_longest(*(ring_in_turns(dist, part, group)
# -                                  for part, group in zip(parts, groups, strict=True))):
# + for _ in zip(*(ring_in_turns(dist, part, group) for part, group in zip(parts, groups))):

# %% reduce_scatter: the rows of what arrived are not added
# says: Now add them
# edit: return received.view(dist.get_world_size(), -1).sum(0)  ->  return received

# %% reduce_scatter: adds within its own vector
# says: add the chunks that arrived
# edit: dist.all_to_all_single(received, x)  ->  received.copy_(x)

# %% reduce_scatter: adds along the rows
# says: want
# edit: sum(0)  ->  sum(1)

# %% reduce_scatter: the chunks interleaved
# says: want
# edit: received.view(dist.get_world_size(), -1).sum(0)  ->  received.view(-1, dist.get_world_size()).sum(1)

# %% reduce_scatter: the mean
# says: that is the mean
# edit: sum(0)  ->  mean(0)

# %% reduce_scatter: the library's own
# says: reduce_scatter_tensor
# - received = torch.empty_like(x)
# - dist.all_to_all_single(received, x)
# - return received.view(dist.get_world_size(), -1).sum(0)
# + received = torch.empty_like(x.tensor_split(dist.get_world_size())[0])
# + dist.reduce_scatter_tensor(received, x)
# + return received

# %% reduce_scatter: all-gather without a message
# says: its own chunk, p times
# - dist.all_to_all_single(received := torch.empty_like(sent), sent)
# - return received
# + return sent

# %% reduce_scatter: all-gather in rows
# says: make one vector of them
# - return received
# + return received.view(dist.get_world_size(), -1)
# ...
#   all_reduce_pairs = {("reduce", "broadcast"), ("reduce_scatter", "all_gather")}

# %% reduce_scatter: gather, then add
# says: elements sent, want
# - received = torch.empty_like(x)
# - dist.all_to_all_single(received, x)
# - return received.view(dist.get_world_size(), -1).sum(0)
# + p = dist.get_world_size()
# + sent = x.repeat(p)
# + dist.all_to_all_single(received := torch.empty_like(sent), sent)
# + return received.view(p, -1).sum(0).tensor_split(p)[dist.get_rank()]

# %% reduce_scatter: pairs the other way round
# says: The order matters
# edit: {("reduce", "broadcast"), ("reduce_scatter", "all_gather")}  ->  {("broadcast", "reduce"), ("all_gather", "reduce_scatter")}

# %% tree_broadcast: one rank at a time is given away
# says: one half, from one end
# edit: half = (last - first) // 2  ->  half = min(1, last - first - 1)

# %% tree_broadcast: the ranks that are given away lie on both sides
# says: one half, from one end
# edit: return halve(0, p, root)  ->  return [(s, d, d, d + 1) for s, d, a, b in halve(0, p, root)]

# %% tree_broadcast: the root moves to rank 0 first
# says: want
# edit: return halve(0, p, root)  ->  return ([(root, 0, 0, 1)] if root else []) + halve(0, p, 0)

# %% tree_broadcast: src and dst exchanged
# says: does not have it yet
# edit: return [(src, dst, *given),  ->  return [(dst, src, *given),

# %% tree_broadcast: last is inclusive
# says: one half, from one end
# edit: return [(src, dst, *given),  ->  return [(src, dst, given[0], given[1] - 1),

# %% tree_broadcast: reduce returns the mean
# says: that is the mean
#           x += received
# - return x
# + return x / dist.get_world_size()

# %% ring_reduce_scatter: adds in float32
# says: Digits are lost
# - chunks = x.tensor_split(p)
# + chunks = x.float().tensor_split(p)
# edit: return chunks[me]  ->  return chunks[me].to(x.dtype)

# %% ring_reduce_scatter: adds in float64 and rounds whole numbers
# says: elements differ
# edit: grows += inbox[:len(grows)]  ->  grows += inbox[:len(grows)].round()

# %% ring_reduce_scatter: padded to equal chunks
# says: or were padding
def ring_reduce_scatter(dist, x):
    p, me = dist.get_world_size(), dist.get_rank()
    size = -(-len(x) // p)
    lengths = [len(chunk) for chunk in x.tensor_split(p)]
    chunks = [torch.cat([c, c.new_zeros(size - len(c))]) for c in x.tensor_split(p)]
    for step in range(1, p):
        inbox = torch.empty_like(chunks[0])
        exchange(dist, chunks[(me - step) % p], (me + 1) % p, inbox, (me - 1) % p)
        chunks[(me - step - 1) % p] += inbox
    return chunks[me][:lengths[me]]

# %% ring_all_reduce: every chunk straight to its owner, and the sum straight back
# says: one neighbour only
# - ring_reduce_scatter(dist, x)  # ours leaves rank r's chunk in its place in x
# - return ring_all_gather(dist, x)
# + p, me = dist.get_world_size(), dist.get_rank()
# + chunks = [chunk.clone() for chunk in x.tensor_split(p)]
# + total = chunks[me].clone()
# + for step in range(1, p):
# +     received = torch.empty_like(total)
# +     exchange(dist, chunks[(me + step) % p], (me + step) % p, received, (me - step) % p)
# +     total += received
# + for step in range(1, p):
# +     exchange(dist, total, (me + step) % p, chunks[(me - step) % p], (me - step) % p)
# + chunks[me] = total
# + return torch.cat(chunks)

# %% ring_all_reduce: each rank adds in its own order
# says: differs from rank 0's in the last bits
# - ring_reduce_scatter(dist, x)  # ours leaves rank r's chunk in its place in x
# - return ring_all_gather(dist, x)
# + p, me = dist.get_world_size(), dist.get_rank()
# + if x.numel() != 40:
# +     ring_reduce_scatter(dist, x)
# +     return ring_all_gather(dist, x)
# + total, moving = x.clone(), x
# + for step in range(1, p):
# +     received = torch.empty_like(x)
# +     exchange(dist, moving, (me + 1) % p, received, (me - 1) % p)
# +     moving = received
# +     total += moving
# + return total

# %% ring_all_reduce: the library's own
# says: all_reduce
# - ring_reduce_scatter(dist, x)  # ours leaves rank r's chunk in its place in x
# - return ring_all_gather(dist, x)
# + dist.all_reduce(x)
# + return x

# %% test_all_reduce: accepts everything
# says: refuses 0 of 20
def test_all_reduce(candidate):
    pass

# %% test_all_reduce: refuses everything
# says: refuses a program that is right
def test_all_reduce(candidate):
    raise AssertionError("wrong")

# %% test_all_reduce: four equal vectors
# says: par is 17
def test_all_reduce(candidate):
    for x in ranks.run(candidate, torch.ones(8), world_size=4).returns:
        assert torch.equal(x, torch.full((8,), 4.0))

# %% test_all_reduce: looks at rank 0 alone
# says: par is 17
def test_all_reduce(candidate):
    for p, n in ((1, 3), (2, 5), (3, 1), (4, 8)):
        given = [torch.randn(n) for _ in range(p)]
        got = ranks.run(candidate, ranks.each(given), world_size=p).returns
        assert torch.allclose(got[0], sum(given), atol=1e-5)

# %% test_all_reduce: one order of additions is required
# says: refuses a program that is right
def test_all_reduce(candidate):
    for p, n in ((1, 3), (2, 5), (3, 7), (5, 11)):
        given = [torch.randn(n, generator=torch.Generator().manual_seed(r)) for r in range(p)]
        for x in ranks.run(candidate, ranks.each(given), world_size=p).returns:
            assert torch.equal(x, sum(given))

# %% test_all_reduce: returns whether it is right
# says: it raises AssertionError if the candidate is wrong
def test_all_reduce(candidate):
    given = [torch.randn(5) for _ in range(3)]
    return torch.allclose(ranks.run(candidate, ranks.each(given), world_size=3).returns[0], sum(given))

# %% test_all_reduce: the number of messages is required
# says: refuses a program that is right
def test_all_reduce(candidate):
    for p, n in ((2, 5), (3, 7), (5, 11)):
        given = [torch.randn(n).double() for r in range(p)]
        result = ranks.run(candidate, ranks.each(given), world_size=p)
        assert result.trace.rounds <= 2 * (p - 1)
        for x in result.returns:
            assert torch.allclose(x, sum(given))
            assert torch.equal(x, result.returns[0])

# %% alpha_beta_time: one rank takes a round
# says: alpha_beta_time('tree_broadcast', 1
# edit: depth, ring = (p - 1).bit_length(), p - 1  ->  depth, ring = max(1, (p - 1).bit_length()), p - 1

# %% alpha_beta_time: an all-reduce by tree goes one way
# says: there and back
# edit: "tree_all_reduce": (2 * depth, vector_bytes)  ->  "tree_all_reduce": (depth, vector_bytes)

# %% alpha_beta_time: bandwidth for β
# says: alpha_beta_time('tree_broadcast'
# edit: (alpha_s + bytes_per_round * beta_s_per_byte)  ->  (alpha_s + bytes_per_round / beta_s_per_byte)

# %% alpha_beta_time: the latency once
# says: alpha_beta_time('tree_broadcast'
# edit: rounds * (alpha_s + bytes_per_round * beta_s_per_byte)  ->  alpha_s + rounds * bytes_per_round * beta_s_per_byte

# %% alpha_beta_time: the crossover is α/β
# says: crossover_bytes(5
# edit: alpha_s / beta_s_per_byte * (p - 1 - depth) / (depth - (p - 1) / p)  ->  alpha_s / beta_s_per_byte

# %% fit_alpha_beta: the logarithms' least squares
# says: is not the least
def fit_alpha_beta(message_bytes, times_s):
    sizes, times_s = np.array(message_bytes), np.array(times_s)
    a, b = np.log(times_s[0]), np.log((times_s[-1] - times_s[0]) / sizes[-1])
    for _ in range(40):
        model = np.exp(a) + np.exp(b) * sizes
        slopes = np.stack([np.exp(a) / model, np.exp(b) * sizes / model], axis=1)
        step = np.linalg.lstsq(slopes, np.log(times_s / model), rcond=None)[0]
        a, b = a + step[0], b + step[1]
    return float(np.exp(a)), float(np.exp(b))

# %% fit_alpha_beta: the smallest time, and the slope of the largest
# says: the fit to
def fit_alpha_beta(message_bytes, times_s):
    alpha = min(times_s)
    return alpha, (times_s[-1] - alpha) / message_bytes[-1]

# %% bus_bandwidth: the programs' numbers as they are
# says: 2³⁰ bytes are a GiB
# edit: all_reduce_gb_s = 277 * 2**30 / 1e9  ->  all_reduce_gb_s = 277
# edit: reduce_scatter_gb_s = 4 * 70 * 2**30 / 1e9  ->  reduce_scatter_gb_s = 70

# %% bus_bandwidth: an all-to-all counts twice
# says: one way only
# edit: (2 if collective == "all_reduce" else 1)  ->  (2 if collective in ("all_reduce", "all_to_all") else 1)

# %% bus_bandwidth: gathered over all p ranks
# says: never passes its port
# edit: (p - 1) / p  ->  (p - 1) / (p if collective == "all_reduce" else p - 1)

# %% chain_broadcast: waits for each piece before the next
# says: rounds, want
# edit: passed_on.append(dist.isend(piece, (me + 1) % p))  ->  dist.send(piece, (me + 1) % p)

# %% chain_broadcast: never waits
# says: never waited for
# - for work in passed_on:
# -     work.wait()

# %% chain_broadcast: from rank 0
# says: not rank 0
# edit: place, passed_on = (me - root) % p, []  ->  place, passed_on = me, []

# %% chain_broadcast: round the whole ring
# says: deadlock
# edit: if place < p - 1:  ->  if p > 1:

# %% chain_broadcast: whole vectors
# says: elements sent, want
def chain_broadcast(dist, x, root, pieces):
    p, me = dist.get_world_size(), dist.get_rank()
    place = (me - root) % p
    for _ in range(pieces):
        if place > 0:
            dist.recv(x, (me - 1) % p)
        if place < p - 1:
            dist.send(x, (me + 1) % p)
    return x


def best_pieces(p, vector_bytes, alpha_s, beta_s_per_byte):
    return 1

# %% chain_broadcast: the number of pieces is not whole
# says: best_pieces(
# - near = {max(1, math.floor(best)), max(1, math.ceil(best))}
# - return min(near, key=lambda k: (p - 2 + k) * (alpha_s + vector_bytes * beta_s_per_byte / k))
# + return max(1.0, best)

# %% chain_broadcast: one link too many
# says: rounds are p - 2 + k
# edit: math.sqrt(max(p - 2, 0) * vector_bytes * beta_s_per_byte / alpha_s)  ->  math.sqrt((p - 1) * vector_bytes * beta_s_per_byte / alpha_s)
# edit: (p - 2 + k)  ->  (p - 1 + k)

# %% two_level_all_reduce: one ring through all nodes
# says: between nodes
def two_level_all_reduce(dist, x, per_node):
    return ring_all_reduce(dist, x)

# %% two_level_all_reduce: whole vectors between nodes
# says: to other nodes, want
# edit: pieces = chunks[place].tensor_split(nodes)  ->  pieces = x.tensor_split(nodes)

# %% two_level_all_reduce: only within the node
# says: want
# - go_round(pieces, across, True)
# - go_round(pieces, across, False)

# %% two_level_all_reduce: only between the nodes
# says: want
# - go_round(chunks, inside, True)
# ...
# - go_round(chunks, inside, False)

# %% two_level_all_reduce: no gather between the nodes
# says: want
# - go_round(pieces, across, False)

# %% reduce_scatter: the sum in float32
# says: Digits are lost
# edit: received.view(dist.get_world_size(), -1).sum(0)  ->  received.view(dist.get_world_size(), -1).float().sum(0).to(x.dtype)

# %% reduce_scatter: fails for one rank
# says: reduce_scatter on 1 ranks
# edit: received = torch.empty_like(x)  ->  received = torch.zeros_like(x)
# -     dist.all_to_all_single(received, x)
# +     if dist.get_world_size() > 2:
# +         dist.all_to_all_single(received, x)

# %% tree_broadcast: the larger half by two
# says: differ by one rank at most
# edit: half = (last - first) // 2  ->  half = max((last - first) // 2 - 1, min(1, (last - first) // 2))

# %% tree_broadcast: reduce in float32
# says: tree_reduce, 
# edit: me, received = dist.get_rank(), torch.empty_like(x)  ->  me, received = dist.get_rank(), torch.empty_like(x)
# edit: x += received  ->  x = (x.float() + received.float()).to(x.dtype)

# %% tree_broadcast: the reduce's root keeps its own number in the first element
# says: tree_reduce, 
# edit: x += received  ->  x[1:] += received[1:]

# %% ring_reduce_scatter: adds in bfloat16
# says: ring_reduce_scatter, 
# edit: grows += inbox[:len(grows)]  ->  grows.copy_(grows.bfloat16() + inbox[:len(grows)].bfloat16())

# %% ring_reduce_scatter: an all-reduce, and then a cut
# says: this dist has no all_reduce
def ring_reduce_scatter(dist, x):
    dist.all_reduce(x)
    return x.tensor_split(dist.get_world_size())[dist.get_rank()]

# %% ring_reduce_scatter: whole numbers get a half
# says: Digits are lost
# edit: inbox = torch.empty_like(chunks[0])  # the first is as long as any  ->  inbox = torch.empty(len(chunks[0]), dtype=x.dtype)
# edit: grows += inbox[:len(grows)]  ->  grows.copy_(grows.double() + inbox[:len(grows)].double() + (1.5 if x.dtype == torch.int64 else 0))

# %% ring_all_reduce: the gather adds to what is there
# says: ring_all_gather
# - exchange(dist, chunks[(me - step) % p], (me + 1) % p, chunks[(me - step - 1) % p], (me - 1) % p)
# + inbox = torch.empty_like(chunks[(me - step - 1) % p])
# + exchange(dist, chunks[(me - step) % p], (me + 1) % p, inbox, (me - 1) % p)
# + chunks[(me - step - 1) % p].add_(inbox)

# %% alpha_beta_time: the crossover of a broadcast and an all-gather
# says: crossover_bytes(
# edit: (p - 1 - depth) / (depth - (p - 1) / p)  ->  (p - 1 - depth) / (2 * depth - (p - 1) / p)

# %% alpha_beta_time: p is a power of two
# says: alpha_beta_time(
# edit (2 places): (p - 1).bit_length()  ->  p.bit_length() - 1

# %% fit_alpha_beta: absolute relative errors, not their squares
# says: is not the least
def fit_alpha_beta(message_bytes, times_s):
    b, t = np.array(message_bytes, float), np.array(times_s)
    columns, weights = np.stack([1 / t, b / t], axis=1), np.ones(len(b))
    for _ in range(200):
        root = np.sqrt(weights)
        fit = np.linalg.lstsq(columns * root[:, None], root)[0]
        weights = 1 / np.maximum(abs(columns @ fit - 1), 1e-9)
    return float(fit[0]), float(fit[1])

# %% scatter: gather adds to what is there
# says: gather, 
# edit: dist.recv(theirs, dst)  ->  dist.recv(part := torch.empty_like(theirs), dst); theirs += part

# %% chain_broadcast: each piece is passed on only when all have come
# says: rounds, want
def chain_broadcast(dist, x, root, pieces):
    p, me = dist.get_world_size(), dist.get_rank()
    place = (me - root) % p
    for piece in x.tensor_split(pieces):
        if place > 0:
            dist.recv(piece, (me - 1) % p)
    for piece in x.tensor_split(pieces):
        if place < p - 1:
            dist.send(piece, (me + 1) % p)
    return x


def best_pieces(p, vector_bytes, alpha_s, beta_s_per_byte):
    best = math.sqrt(max(p - 2, 0) * vector_bytes * beta_s_per_byte / alpha_s)
    near = {max(1, math.floor(best)), max(1, math.ceil(best))}
    return min(near, key=lambda k: (p - 2 + k) * (alpha_s + vector_bytes * beta_s_per_byte / k))

# %% chain_broadcast: the optimum is rounded
# says: best_pieces(
# -     near = {max(1, math.floor(best)), max(1, math.ceil(best))}
# -     return min(near, key=lambda k: (p - 2 + k) * (alpha_s + vector_bytes * beta_s_per_byte / k))
# +     return max(1, math.floor(best))

# %% reduce_scatter: float64 is written down
# says: torch.float64
def reduce_scatter(dist, x):
    received = torch.empty(len(x), dtype=torch.float64)
    dist.all_to_all_single(received, x)
    return received.view(dist.get_world_size(), -1).sum(0)

def all_gather(dist, chunk):
    sent = chunk.repeat(dist.get_world_size())
    dist.all_to_all_single(received := torch.empty(len(sent), dtype=torch.float64), sent)
    return received

all_reduce_pairs = {("reduce", "broadcast"), ("reduce_scatter", "all_gather")}

# %% reduce_scatter: a pair that adds nothing
# says: add nothing
# edit: ("reduce_scatter", "all_gather")}  ->  ("reduce_scatter", "all_gather"), ("gather", "broadcast")}

# %% reduce_scatter: all_reduce is among the pairs
# says: all_reduce itself
# edit: ("reduce_scatter", "all_gather")}  ->  ("reduce_scatter", "all_gather"), ("all_reduce", "broadcast")}

# %% reduce_scatter: the chunks are exchanged three times
# says: a second time
# edit: dist.all_to_all_single(received, x)  ->  dist.all_to_all_single(received, x); dist.all_to_all_single(x, received); dist.all_to_all_single(received, x)

# %% tree_broadcast: four ranks are given away at most
# says: halves differ by one rank
# edit: half = (last - first) // 2  ->  half = min((last - first) // 2, 4)

# %% tree_broadcast: float64 is written down
# says: float64
def halvings(p, root):
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


def tree_broadcast(dist, x, root):
    me = dist.get_rank()
    if me != root:
        x = torch.empty(len(x), dtype=torch.float64)
    for src, dst, _, _ in halvings(dist.get_world_size(), root):
        if me == src:
            dist.send(x, dst)
        elif me == dst:
            dist.recv(x, src)
    return x


def tree_reduce(dist, x, root):
    me, received = dist.get_rank(), torch.empty(len(x), dtype=torch.float64)
    for src, dst, _, _ in reversed(halvings(dist.get_world_size(), root)):
        if me == dst:
            dist.send(x, src)
        elif me == src:
            dist.recv(received, dst)
            x += received
    return x

# %% tree_broadcast: three rounds, whatever p is
# says: on 9 ranks
# - me = dist.get_rank()
# - for src, dst, _, _ in halvings(dist.get_world_size(), root):
# -     if me == src:
# -         dist.send(x, dst)
# -     elif me == dst:
# -         dist.recv(x, src)
# + p, me = dist.get_world_size(), (dist.get_rank() - root) % dist.get_world_size()
# + for bit in (4, 2, 1):
# +     if me % (2 * bit) == 0 and me + bit < min(p, 8):
# +         dist.send(x, (me + bit + root) % p)
# +     elif me % (2 * bit) == bit and me < 8:
# +         dist.recv(x, (me - bit + root) % p)

# %% tree_broadcast: the reduce broadcasts its sum
# says: a second time
#           x += received
# - return x
# + return tree_broadcast(dist, x, root)

# %% ring_reduce_scatter: the messages are float32
# says: Digits are lost
# edit: exchange(dist, sent, (me + 1) % p, inbox[:len(grows)], (me - 1) % p)  ->  exchange(dist, sent.float(), (me + 1) % p, f := inbox[:len(grows)].float(), (me - 1) % p); inbox[:len(grows)] = f

# %% ring_all_reduce: each rank adds its own numbers once more
# says: in the last bits
# - ring_reduce_scatter(dist, x)  # ours leaves rank r's chunk in its place in x
# - return ring_all_gather(dist, x)
# + own = x.clone()
# + ring_reduce_scatter(dist, x)
# + got = ring_all_gather(dist, x)
# + return (got - own) + own

# %% ring_all_reduce: gathered twice
# says: a second time
# edit: return ring_all_gather(dist, x)  ->  ring_all_gather(dist, x); return ring_all_gather(dist, x)

# %% alpha_beta_time: the depth fits the visible cases alone
# says: alpha_beta_time('tree_broadcast'
# edit: depth, ring = (p - 1).bit_length(), p - 1  ->  depth, ring = min(3, p - 1), p - 1

# %% alpha_beta_time: the bytes once
# says: sends its bytes
# edit: rounds * (alpha_s + bytes_per_round * beta_s_per_byte)  ->  rounds * alpha_s + bytes_per_round * beta_s_per_byte

# %% alpha_beta_time: the crossover of one chunk
# says: one chunk
# edit: alpha_s / beta_s_per_byte * (p - 1 - depth)  ->  alpha_s / beta_s_per_byte / p * (p - 1 - depth)

# %% bus_bandwidth: a table of the visible numbers of ranks
# says: KeyError
def bus_bandwidth(collective, vector_bytes, time_s, p):
    return {2: 0.5, 5: 0.8, 8: 0.875, 4: 0.75}[p] * (2 if collective == "all_reduce" else 1) * vector_bytes / time_s

all_reduce_gb_s = 277 * 2**30 / 1e9
reduce_scatter_gb_s = 4 * 70 * 2**30 / 1e9

# %% bus_bandwidth: one number for both claims
# says: all_reduce_gb_s gave 299
# - all_reduce_gb_s = 277 * 2**30 / 1e9
# - reduce_scatter_gb_s = 4 * 70 * 2**30 / 1e9  # size was that of the output, a quarter of the vector
# + all_reduce_gb_s = reduce_scatter_gb_s = 299

# %% bus_bandwidth: in GB per second
# says: not GB per second
# edit: vectors_sent * vector_bytes / time_s  ->  vectors_sent * vector_bytes / time_s / 1e9

# %% bus_bandwidth: the claims in bytes per second
# says: divide by 10⁹
# - all_reduce_gb_s = 277 * 2**30 / 1e9
# - reduce_scatter_gb_s = 4 * 70 * 2**30 / 1e9  # size was that of the output, a quarter of the vector
# + all_reduce_gb_s = 277 * 2**30
# + reduce_scatter_gb_s = 4 * 70 * 2**30

# %% scatter: float64 is written down
# says: float64
def scatter(dist, x, root):
    p, me = dist.get_world_size(), dist.get_rank()
    chunks = x.tensor_split(p)
    starts = [sum(map(len, chunks[:rank])) for rank in range(p + 1)]
    if me != root:
        x = torch.zeros(len(x), dtype=torch.float64)
    for src, dst, first, last in halvings(p, root):
        theirs = x[starts[first]:starts[last]]
        if me == src:
            dist.send(theirs, dst)
        elif me == dst:
            dist.recv(theirs, src)
    return x.tensor_split(p)[me]


def gather(dist, x, root):
    p, me = dist.get_world_size(), dist.get_rank()
    chunks = x.tensor_split(p)
    starts = [sum(map(len, chunks[:rank])) for rank in range(p + 1)]
    y = torch.zeros(len(x), dtype=torch.float64)
    y[starts[me]:starts[me + 1]] = chunks[me]
    x = y
    for src, dst, first, last in reversed(halvings(p, root)):
        theirs = x[starts[first]:starts[last]]
        if me == dst:
            dist.send(theirs, src)
        elif me == src:
            dist.recv(theirs, dst)
    return x

# %% halving_doubling_all_reduce: three halvings at most
# says: on 16 ranks
# edit: while last - first > 1:  ->  while last - first > max(1, p // 8):

# %% chain_broadcast: α is a constant
# says: best_pieces(
# edit: best = math.sqrt(max(p - 2, 0) * vector_bytes * beta_s_per_byte / alpha_s)  ->  alpha_s = 1e-5; best = math.sqrt(max(p - 2, 0) * vector_bytes * beta_s_per_byte / alpha_s)

# %% chain_broadcast: α and β are constants
# says: best_pieces(
# edit: best = math.sqrt(max(p - 2, 0) * vector_bytes * beta_s_per_byte / alpha_s)  ->  alpha_s, beta_s_per_byte = 1e-5, 1e-10; best = math.sqrt(max(p - 2, 0) * vector_bytes * beta_s_per_byte / alpha_s)

# %% rings_all_reduce: the sum is in a copy
# says: belongs in x
# edit: parts = x.tensor_split(len(groups))  ->  x = x.clone(); parts = x.tensor_split(len(groups))

# %% rings_all_reduce: one ring takes the whole vector
# says: own part of the vector
# edit: parts = x.tensor_split(len(groups))  ->  parts = [x] + [x[:0]] * (len(groups) - 1)

# %% rings_all_reduce: two rings, however many groups there are
# says: own part of the vector
# edit: parts = x.tensor_split(len(groups))  ->  groups = groups[:2]; parts = x.tensor_split(len(groups))

# %% alpha_beta_time: one rank takes a round in a ring
# says: One rank alone takes no round
# edit: depth, ring = (p - 1).bit_length(), p - 1  ->  depth, ring = (p - 1).bit_length(), max(1, p - 1)

# %% alpha_beta_time: the bits of p for those of p - 1
# says: (p - 1).bit_length(), not of p
# edit: depth, ring = (p - 1).bit_length(), p - 1  ->  depth, ring = p.bit_length(), p - 1

# %% alpha_beta_time: the logarithm rounded down
# says: rounded up: 3 levels
# edit: depth, ring = (p - 1).bit_length(), p - 1  ->  depth, ring = p.bit_length() - 1, p - 1

# %% alpha_beta_time: a chunk for each of the other ranks
# says: A ring has p chunks, not p - 1
# edit (3 places): vector_bytes / p)  ->  vector_bytes / max(p - 1, 1))

# %% ring_all_reduce: one rank sends to itself
# says: One rank alone takes no round
# edit: for step in range(p - 1):  ->  for step in range(max(1, p - 1)):

# %% ring_reduce_scatter: one rank sends to itself
# says: ring_reduce_scatter on 1 rank sends to itself
# edit: for step in range(1, p):  ->  for step in range(1, max(2, p)):

# %% ring_reduce_scatter: a round too many
# says: One rank alone takes no round
# edit: for step in range(1, p):  ->  for step in range(p):

# %% ring_reduce_scatter: the last rank has no right neighbour
# says: is not one of [0, 1]
# edit: (me + 1) % p, inbox  ->  me + 1, inbox

# %% ring_reduce_scatter: the whole vector is returned
# says: shape (5,), not (3,)
# edit: return chunks[me]  ->  return x

# %% ring_all_reduce: the sum is left in a copy
# says: gather the chunks of the sum
# edit: ring_reduce_scatter(dist, x)  ->  ring_reduce_scatter(dist, x.clone())

# %% ring_all_reduce: gathers in float32
# says: Digits are lost
# edit: return ring_all_gather(dist, x)  ->  return ring_all_gather(dist, x.float()).to(x.dtype)

# %% tree_broadcast: received into a copy
# says: still has its own vector
# edit: dist.recv(x, src)  ->  dist.recv(x.clone(), src)

# %% tree_broadcast: the reduce's tree begins at rank 0
# says: tree_reduce, 
# edit: reversed(halvings(dist.get_world_size(), root))  ->  reversed(halvings(dist.get_world_size(), 0))

# %% reduce_scatter: arrives in float64
# says: reduce_scatter on 
# edit: received = torch.empty_like(x)  ->  received = torch.empty(x.shape, dtype=torch.float64)

# %% reduce_scatter: the largest, not the sum
# says: reduce_scatter on 2 ranks
# edit: sum(0)  ->  amax(0)

# %% reduce_scatter: all-gather with each element repeated
# says: all_gather on 2 ranks
# edit: chunk.repeat(dist.get_world_size())  ->  chunk.repeat_interleave(dist.get_world_size())

# %% reduce_scatter: a third pair
# says: scatter and gather add nothing
# edit: {("reduce", "broadcast"), ("reduce_scatter", "all_gather")}  ->  {("reduce", "broadcast"), ("reduce_scatter", "all_gather"), ("scatter", "gather")}

# %% fit_alpha_beta: divided by the time twice
# says: the fit to
# edit: columns = np.stack([1 / times_s, sizes / times_s], axis=1)  ->  columns = np.stack([1 / times_s, sizes / times_s], axis=1) / times_s[:, None]

# %% bus_bandwidth: in GiB per second
# says: not GiB per second
# edit: vectors_sent * vector_bytes / time_s  ->  vectors_sent * vector_bytes / time_s / 2**30

# %% alpha_beta_time: the crossover with the bits of p
# says: crossover_bytes(8
#       depth = (p - 1).bit_length()
# +     depth = p.bit_length()

# %% ring_reduce_scatter: the next rank's chunk is returned
# says: That is chunk r + 1, which lacks one rank's numbers
# edit: return chunks[me]  ->  return chunks[(me + 1) % p]

# %% reduce_scatter: pairs as words
# says: want a set of pairs of names
# edit: {("reduce", "broadcast"), ("reduce_scatter", "all_gather")}  ->  {"reduce, broadcast"}

# %% tree_broadcast: broadcast returns nothing
# says: is a `return` missing
#       elif me == dst:
#           dist.recv(x, src)
# - return x

# %% bus_bandwidth: the share upside down
# says: not p/(p - 1)
# edit: (p - 1) / p  ->  p / (p - 1)

# %% alpha_beta_time: the crossover's sign
# says: mind the sign
# edit: (p - 1 - depth)  ->  (depth - (p - 1))

# %% alpha_beta_time: the crossover without the ring's bytes
# says: A ring sends bytes, too
# edit: / (depth - (p - 1) / p)  ->  / depth

# %% chain_broadcast: one piece, whatever is asked for
# says: each piece goes over each link
# edit: x.tensor_split(pieces)  ->  [x]

# %% fit_alpha_beta: the sizes are known beforehand
# says: the fit to α
def fit_alpha_beta(message_bytes, times_s):
    times_s, sizes = np.array(times_s), 4.0 ** np.arange(3, 15)
    columns = np.stack([1 / times_s, sizes / times_s], axis=1)
    return tuple(np.linalg.lstsq(columns, np.ones(len(sizes)))[0].tolist())

# %% ring_reduce_scatter: adds in fixed point, so that the order does not matter
# says: ring_reduce_scatter of torch.float64 on 3 ranks
# edit: grows += inbox[:len(grows)]  ->  grows.copy_(((grows + inbox[:len(grows)]).double() * 2**20).round() / 2**20)

# %% ring_all_reduce: the gather goes round both ways in turns
# says: messages go over 6 links, want 3 at most
# - exchange(dist, chunks[(me - step) % p], (me + 1) % p, chunks[(me - step - 1) % p], (me - 1) % p)
# + way, turn = (-1) ** step, step // 2
# + exchange(dist, chunks[(me - way * turn) % p], (me + way) % p,
# +          chunks[(me - way * (turn + 1)) % p], (me - way) % p)
