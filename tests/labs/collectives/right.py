# %% reduce_scatter: chunks in rows, added in a loop
def reduce_scatter(dist, x):
    p = dist.get_world_size()
    arrived = torch.zeros_like(x)
    dist.all_to_all_single(arrived, x)
    total = 0
    for chunk in arrived.chunk(p):
        total = total + chunk
    return total


def all_gather(dist, chunk):
    p = dist.get_world_size()
    arrived = chunk.new_empty(p * len(chunk))
    dist.all_to_all_single(arrived, torch.cat([chunk] * p))
    return arrived


all_reduce_pairs = [("reduce", "broadcast"), ("reduce_scatter", "all_gather")]
all_reduce_pairs = set(all_reduce_pairs)

# %% tree_broadcast: a queue of ranges, dst is the last rank
def halvings(p, root):
    messages, todo = [], [(root, 0, p)]
    while todo:
        src, first, last = todo.pop(0)
        if last - first > 1:
            middle = (first + last) // 2
            mine, theirs = (first, middle), (middle, last)
            if src >= middle:
                mine, theirs = theirs, mine
            dst = theirs[1] - 1
            messages.append((src, dst, theirs[0], theirs[1]))
            todo += [(src, *mine), (dst, *theirs)]
    return messages


def tree_broadcast(dist, x, root):
    me = dist.get_rank()
    for src, dst, *_ in halvings(dist.get_world_size(), root):
        if src == me:
            dist.send(x, dst)
        if dst == me:
            dist.recv(x, src)
    return x.clone()


def tree_reduce(dist, x, root):
    me, total = dist.get_rank(), x.clone()
    for src, dst, *_ in halvings(dist.get_world_size(), root)[::-1]:
        if dst == me:
            dist.send(total, src)
        if src == me:
            part = torch.zeros_like(x)
            dist.recv(part, dst)
            total = total + part
    return total if me == root else None

# %% tree_broadcast: phases, as lists of lists
def halvings(p, root):
    cares, messages = {root: (0, p)}, []
    while any(last - first > 1 for first, last in cares.values()):
        for src, (first, last) in list(cares.items()):
            if last - first > 1:
                half = (last - first) // 2
                theirs = (last - half, last) if src < last - half else (first, first + half)
                mine = (first, last - half) if src < last - half else (first + half, last)
                dst = (theirs[0] + theirs[1]) // 2
                cares[src], cares[dst] = mine, theirs
                messages.append([src, dst, *theirs])
    return messages


def tree_broadcast(dist, x, root):
    me = dist.get_rank()
    mine = [m for m in halvings(dist.get_world_size(), root) if me in m[:2]]
    for m in mine:
        (dist.send if m[0] == me else dist.recv)(x, m[1] if m[0] == me else m[0])
    return x


def tree_reduce(dist, x, root):
    me = dist.get_rank()
    for m in reversed([m for m in halvings(dist.get_world_size(), root) if me in m[:2]]):
        if m[1] == me:
            dist.send(x, m[0])
        else:
            part = torch.empty_like(x)
            dist.recv(part, m[1])
            x = x + part
    return x

# %% tree_broadcast: sends begin at once, and are waited for in the end
def halvings(p, root):
    def go(ranks_, src):
        if len(ranks_) == 1:
            return []
        low, high = ranks_[:len(ranks_) // 2], ranks_[len(ranks_) // 2:]
        mine, theirs = (low, high) if src in low else (high, low)
        return [(src, theirs[0], theirs[0], theirs[-1] + 1)] + go(mine, src) + go(theirs, theirs[0])
    return go(list(range(p)), root)


def tree_broadcast(dist, x, root):
    me, works = dist.get_rank(), []
    for src, dst, _, _ in halvings(dist.get_world_size(), root):
        if me == dst:
            dist.irecv(x, src).wait()
        if me == src:
            works.append(dist.isend(x, dst))
    [work.wait() for work in works]
    return x


def tree_reduce(dist, x, root):
    me, tree = dist.get_rank(), halvings(dist.get_world_size(), root)
    children = [dst for src, dst, _, _ in tree if src == me][::-1]
    parent = [src for src, dst, _, _ in tree if dst == me]
    for child in children:
        part = torch.empty_like(x)
        dist.recv(part, child)
        x.add_(part)
    for rank in parent:
        dist.send(x, rank)
    return x

# %% ring_reduce_scatter: to the left
def ring_reduce_scatter(dist, x):
    p, me = dist.get_world_size(), dist.get_rank()
    chunks = list(x.tensor_split(p))
    for step in range(p - 1):
        mine, theirs = (me + 1 + step) % p, (me + 2 + step) % p
        inbox = torch.empty_like(chunks[theirs])
        exchange(dist, chunks[mine], (me - 1) % p, inbox, (me + 1) % p)
        chunks[theirs] = chunks[theirs] + inbox
    return chunks[me]

# %% ring_all_reduce: the gather to the left, in place
def ring_all_gather(dist, x):
    p, me = dist.get_world_size(), dist.get_rank()
    chunks = x.tensor_split(p)
    for k in range(p - 1):
        exchange(dist, chunks[(me + k) % p], (me - 1) % p, chunks[(me + k + 1) % p], (me + 1) % p)
    return x


def ring_all_reduce(dist, x):
    p, me = dist.get_world_size(), dist.get_rank()
    chunks = x.tensor_split(p)
    for k in range(1, 2 * p - 1):
        sent, grows = chunks[(me - k) % p], chunks[(me - k - 1) % p]
        inbox = torch.empty_like(grows)
        exchange(dist, sent, (me + 1) % p, inbox, (me - 1) % p)
        grows.copy_(grows + inbox if k < p else inbox)
    return x

# %% test_all_reduce: NumPy, with the par and no more
def test_all_reduce(candidate):
    for p, n in [(1, 4), (2, 3), (3, 2), (3, 7), (5, 11), (4, 0)]:
        xs = np.random.default_rng(p).standard_normal((p, n))
        given = ranks.each([torch.from_numpy(x) for x in xs])
        for got in ranks.run(candidate, given, world_size=p).returns:
            np.testing.assert_allclose(got.numpy(), xs.sum(0), rtol=1e-9, atol=1e-12)

# %% alpha_beta_time: one round after another
def alpha_beta_time(algorithm, p, vector_bytes, alpha_s, beta_s_per_byte):
    rounds = 0
    while 2 ** rounds < p:
        rounds += 1
    size = vector_bytes
    if algorithm.startswith("ring"):
        rounds, size = p - 1, vector_bytes / p
    if algorithm.endswith("all_reduce"):
        rounds *= 2
    return sum(alpha_s + beta_s_per_byte * size for _ in range(rounds))


def crossover_bytes(p, alpha_s, beta_s_per_byte):
    low, high = 0.0, 1e15
    for _ in range(300):
        middle = (low + high) / 2
        tree, ring = (alpha_beta_time(f"{kind}_all_reduce", p, middle, alpha_s, beta_s_per_byte)
                      for kind in ("tree", "ring"))
        low, high = (low, middle) if ring <= tree else (middle, high)
    return high

# %% alpha_beta_time: with math.ceil and two terms
def alpha_beta_time(algorithm, p, vector_bytes, alpha_s, beta_s_per_byte):
    log = math.ceil(math.log2(p))
    if algorithm in ("tree_broadcast", "tree_reduce"):
        return log * alpha_s + log * vector_bytes * beta_s_per_byte
    if algorithm == "tree_all_reduce":
        return 2 * log * (alpha_s + vector_bytes * beta_s_per_byte)
    ring = (p - 1) * alpha_s + (p - 1) / p * vector_bytes * beta_s_per_byte
    return 2 * ring if algorithm == "ring_all_reduce" else ring


def crossover_bytes(p, alpha_s, beta_s_per_byte):
    log = int(np.ceil(np.log2(p)))
    latency = 2 * (p - 1) * alpha_s - 2 * log * alpha_s
    return latency / (2 * log * beta_s_per_byte - 2 * (p - 1) / p * beta_s_per_byte)

# %% fit_alpha_beta: a weighted polynomial
def fit_alpha_beta(message_bytes, times_s):
    slope, start = np.polyfit(message_bytes, times_s, 1, w=1 / np.array(times_s))
    return start, slope

# %% fit_alpha_beta: PyTorch's least squares
def fit_alpha_beta(message_bytes, times_s):
    b, t = (torch.tensor(x, dtype=torch.float64) for x in (message_bytes, times_s))
    a = torch.stack([1 / t, b / t], dim=1)
    x = torch.linalg.lstsq(a, torch.ones(len(b), 1, dtype=torch.float64), driver="gelsd").solution
    return x[0, 0].item(), x[1, 0].item()

# %% bus_bandwidth: a table of factors
def bus_bandwidth(collective, vector_bytes, time_s, p):
    factor = {"all_reduce": 2 * (p - 1) / p}.get(collective, (p - 1) / p)
    return factor * vector_bytes / time_s


all_reduce_gb_s, reduce_scatter_gb_s = 297, 301

# %% scatter: recursion by ranges, and a copy
def scatter(dist, x, root):
    p, me = dist.get_world_size(), dist.get_rank()
    cut = [0] + np.cumsum([len(c) for c in x.tensor_split(p)]).tolist()
    for src, dst, first, last in halvings(p, root):
        if me in (src, dst):
            piece = x[cut[first]:cut[last]]
            dist.send(piece, dst) if me == src else dist.recv(piece, src)
    return x[cut[me]:cut[me + 1]].clone()


def gather(dist, x, root):
    p, me = dist.get_world_size(), dist.get_rank()
    cut = [0] + np.cumsum([len(c) for c in x.tensor_split(p)]).tolist()
    for src, dst, first, last in halvings(p, root)[::-1]:
        if me in (src, dst):
            piece = x[cut[first]:cut[last]]
            dist.send(piece, src) if me == dst else dist.recv(piece, dst)
    return x if me == root else None

# %% scatter: a binomial tree in the other direction of cutting
def scatter(dist, x, root):
    p, me = dist.get_world_size(), dist.get_rank()
    chunks, held = x.tensor_split(p), dict(enumerate(x.tensor_split(p))) if me == root else {}
    for src, dst, first, last in halvings(p, root):
        if me == src:
            dist.send(torch.cat([held.pop(r) for r in range(first, last)]), dst)
        elif me == dst:
            theirs = torch.empty_like(torch.cat(chunks[first:last]))
            dist.recv(theirs, src)
            parts = theirs.split([len(c) for c in chunks[first:last]])
            held = dict(zip(range(first, last), parts))
    return held[me]


def gather(dist, x, root):
    p, me = dist.get_world_size(), dist.get_rank()
    chunks = x.tensor_split(p)
    held = {me: chunks[me].clone()}
    for src, dst, first, last in reversed(halvings(p, root)):
        if me == dst:
            dist.send(torch.cat([held[r] for r in range(first, last)]), src)
        elif me == src:
            theirs = torch.empty_like(torch.cat(chunks[first:last]))
            dist.recv(theirs, dst)
            held |= dict(zip(range(first, last), theirs.split([len(c) for c in chunks[first:last]])))
    return torch.cat([held[r] for r in sorted(held)])

# %% halving_doubling_all_reduce: by bits of the rank, recursive
def halving_doubling_all_reduce(dist, x):
    p, me = dist.get_world_size(), dist.get_rank()
    chunks = x.tensor_split(p)

    def go(first, last):
        if last - first == 1:
            return chunks[first].clone()
        middle = (first + last) // 2
        low, high = torch.cat(chunks[first:middle]), torch.cat(chunks[middle:last])
        peer = me + (last - first) // 2 if me < middle else me - (last - first) // 2
        kept, given = (low, high) if me < middle else (high, low)
        arrived = torch.empty_like(kept)
        exchange(dist, given, peer, arrived, peer)
        for chunk, part in zip(chunks[first:middle] if me < middle else chunks[middle:last],
                               (kept + arrived).tensor_split(1)[0].split(
                                   [len(c) for c in (chunks[first:middle] if me < middle
                                                     else chunks[middle:last])])):
            chunk.copy_(part)
        mine = go(first, middle) if me < middle else go(middle, last)
        other = torch.empty_like(given)
        exchange(dist, mine, peer, other, peer)
        return torch.cat([mine, other] if me < middle else [other, mine])

    return go(0, p)

# %% chain_broadcast: one receive ahead
def chain_broadcast(dist, x, root, pieces):
    p, me = dist.get_world_size(), dist.get_rank()
    if p == 1:
        return x
    parts, last = x.tensor_split(pieces), (root - 1) % p
    left, right = (me - 1) % p, (me + 1) % p
    if me != root:
        dist.recv(parts[0], left)
    for k in range(pieces):
        ops = []
        if me != last:
            ops.append(dist.P2POp(dist.isend, parts[k], right))
        if me != root and k + 1 < pieces:
            ops.append(dist.P2POp(dist.irecv, parts[k + 1], left))
        for work in dist.batch_isend_irecv(ops) if ops else []:
            work.wait()
    return x


def best_pieces(p, vector_bytes, alpha_s, beta_s_per_byte):
    def time_s(k):
        return (p - 2 + k) * (alpha_s + beta_s_per_byte * vector_bytes / k)
    k = 1
    while time_s(k + 1) < time_s(k):
        k += 1
    return k

# %% two_level_all_reduce: dictionaries of chunks, with direct exchanges within the node
def two_level_all_reduce(dist, x, per_node):
    p, me = dist.get_world_size(), dist.get_rank()
    node, place, nodes = me // per_node, me % per_node, p // per_node
    chunks = [c.clone() for c in x.tensor_split(per_node)]
    mine = chunks[place].clone()
    for step in range(1, per_node):
        to, fro = (place + step) % per_node, (place - step) % per_node
        inbox = torch.empty_like(mine)
        exchange(dist, chunks[to], node * per_node + to, inbox, node * per_node + fro)
        mine += inbox
    parts = list(mine.tensor_split(nodes))
    total = parts[node].clone()
    for step in range(1, nodes):
        to, fro = (node + step) % nodes, (node - step) % nodes
        inbox = torch.empty_like(total)
        exchange(dist, parts[to], to * per_node + place, inbox, fro * per_node + place)
        total += inbox
    parts[node] = total
    for step in range(1, nodes):
        to, fro = (node + step) % nodes, (node - step) % nodes
        parts[fro] = torch.empty_like(parts[fro])
        exchange(dist, total, to * per_node + place, parts[fro], fro * per_node + place)
    mine = torch.cat(parts)
    chunks[place] = mine
    for step in range(1, per_node):
        to, fro = (place + step) % per_node, (place - step) % per_node
        exchange(dist, mine, node * per_node + to, chunks[fro], node * per_node + fro)
    return torch.cat(chunks)

# %% tree_broadcast: by place from the root, as a binomial tree
def halvings(p, root):
    messages = []

    def give(src, first, last):
        while last - first > 1:
            middle = (first + last + 1) // 2
            if src < middle:
                dst, theirs = middle, (middle, last)
                last = middle
            else:
                dst, theirs = middle - 1, (first, middle)
                first = middle
            messages.append((src, dst) + theirs)
            later.append((dst, *theirs))

    later = [(root, 0, p)]
    while later:
        give(*later.pop())
    return messages


def tree_broadcast(dist, x, root):
    me, y = dist.get_rank(), torch.empty_like(x)
    have = me == root
    if have:
        y.copy_(x)
    for src, dst, first, last in halvings(dist.get_world_size(), root):
        if me == dst:
            dist.recv(y, src=src)
        elif me == src:
            dist.send(y, dst=dst)
    return y


def tree_reduce(dist, x, root):
    me, total = dist.get_rank(), x.clone()
    received = [torch.empty_like(x) for _ in range(10)]
    for src, dst, first, last in list(halvings(dist.get_world_size(), root))[::-1]:
        if me == src:
            dist.recv(received[0], src=dst)
            total += received[0]
        elif me == dst:
            dist.send(total, dst=src)
    return total

# %% ring_all_reduce: in one loop, without the reduce-scatter's function
def ring_all_gather(dist, x):
    p, me = dist.get_world_size(), dist.get_rank()
    parts = list(x.tensor_split(p))
    k = me
    while k != me - p + 1:
        inbox = torch.empty_like(parts[(k - 1) % p])
        exchange(dist, parts[k % p], (me + 1) % p, inbox, (me - 1) % p)
        parts[(k - 1) % p] = inbox
        k -= 1
    return torch.cat(parts)


def ring_all_reduce(dist, x):
    p, me = dist.get_world_size(), dist.get_rank()
    pieces = [piece.clone() for piece in x.tensor_split(p)]
    pieces[me] = ring_reduce_scatter(dist, x)
    return ring_all_gather(dist, torch.cat(pieces))

# %% test_all_reduce: whole numbers and thirds, rank by rank
def test_all_reduce(candidate):
    for p in (1, 2, 3, 5):
        for n in (0, 1, 7):
            xs = [torch.linspace(-r - 1, 2, n, dtype=torch.float64) / 3 for r in range(p)]
            want = xs[0].clone()
            for x in xs[1:]:
                want += x
            returned = ranks.run(candidate, ranks.each(xs), world_size=p).returns
            assert len(returned) == p
            for rank, got in enumerate(returned):
                assert got.shape == want.shape, rank
                assert (got - want).abs().max().item() < 1e-9 if n else True, rank
                assert got.tolist() == returned[0].tolist(), rank

# %% alpha_beta_time: by recursion on halves
def alpha_beta_time(algorithm, p, vector_bytes, alpha_s, beta_s_per_byte):
    def depth(q):
        return 0 if q == 1 else 1 + depth((q + 1) // 2)

    kind, collective = algorithm.split("_", 1)
    message_s = alpha_s + beta_s_per_byte * vector_bytes / (p if kind == "ring" else 1)
    rounds = {"ring": p - 1, "tree": depth(p)}[kind]
    return (1 + (collective == "all_reduce")) * rounds * message_s


def crossover_bytes(p, alpha_s, beta_s_per_byte):
    n0, n1 = 1.0, 2.0
    gap = [alpha_beta_time("ring_all_reduce", p, n, alpha_s, beta_s_per_byte)
           - alpha_beta_time("tree_all_reduce", p, n, alpha_s, beta_s_per_byte) for n in (0.0, 1e9)]
    return max(0.0, 1e9 * gap[0] / (gap[0] - gap[1]))

# %% fit_alpha_beta: by hand, over all relative errors
def fit_alpha_beta(message_bytes, times_s):
    s00 = s01 = s11 = r0 = r1 = 0.0
    for b, t in zip(message_bytes, times_s):
        u, v = 1 / t, b / t
        s00, s01, s11 = s00 + u * u, s01 + u * v, s11 + v * v
        r0, r1 = r0 + u, r1 + v
    det = s00 * s11 - s01 * s01
    return (s11 * r0 - s01 * r1) / det, (s00 * r1 - s01 * r0) / det

# %% bus_bandwidth: by cases, with floats of the lecture's formula
def bus_bandwidth(collective, vector_bytes, time_s, p):
    chunk = vector_bytes / p
    sent = (p - 1) * chunk
    if collective == "all_reduce":
        sent += sent
    return sent / time_s


all_reduce_gb_s = 277 * 1.073741824
reduce_scatter_gb_s = 280 * 1.073741824

# %% chain_broadcast: a loop over rounds, and the best piece by search
def chain_broadcast(dist, x, root, pieces):
    p, me = dist.get_world_size(), dist.get_rank()
    place = (me - root) % p
    parts = x.tensor_split(pieces)
    for number in range(p - 2 + pieces):
        ops = []
        if place > 0 and 0 <= number - place + 1 < pieces:
            ops.append(dist.P2POp(dist.irecv, parts[number - place + 1], (me - 1) % p))
        if place < p - 1 and 0 <= number - place < pieces:
            ops.append(dist.P2POp(dist.isend, parts[number - place], (me + 1) % p))
        if ops:
            for work in dist.batch_isend_irecv(ops):
                work.wait()
    return x


def best_pieces(p, vector_bytes, alpha_s, beta_s_per_byte):
    times = [(p - 2 + k) * (alpha_s + beta_s_per_byte * vector_bytes / k) for k in range(1, 4000)]
    return 1 + int(np.argmin(times))

# %% halving_doubling_all_reduce: distances halve, a stack remembers the way back
def halving_doubling_all_reduce(dist, x):
    p, me = dist.get_world_size(), dist.get_rank()
    ends = [0, *np.cumsum([len(c) for c in x.tensor_split(p)]).tolist()]
    distance, block, way = p // 2, 0, []
    while distance:
        peer = me ^ distance
        upper = bool(me & distance)
        middle = block + distance
        halves = [x[ends[block]:ends[middle]], x[ends[middle]:ends[middle + distance]]]
        kept, given = halves[upper], halves[not upper]
        inbox = torch.zeros_like(kept)
        exchange(dist, given, peer, inbox, peer)
        kept.add_(inbox)
        way.append((peer, kept, given))
        block = middle if upper else block
        distance //= 2
    while way:
        peer, kept, given = way.pop()
        exchange(dist, kept, peer, given, peer)
    return x

# %% two_level_all_reduce: a ring function of its own for both halves, new tensors
def two_level_all_reduce(dist, x, per_node):
    me, p = dist.get_rank(), dist.get_world_size()

    def scatter_sum(values, team):
        own, size = team.index(me), len(team)
        parts = [part.clone() for part in values.tensor_split(size)]
        for k in range(size - 1):
            out, into = (own - k - 1) % size, (own - k - 2) % size
            inbox = torch.empty_like(parts[into])
            exchange(dist, parts[out], team[(own + 1) % size], inbox, team[(own - 1) % size])
            parts[into] = parts[into] + inbox
        return parts

    def spread(parts, team):
        own, size = team.index(me), len(team)
        for k in range(size - 1):
            into = (own - k - 1) % size
            inbox = torch.empty_like(parts[into])
            exchange(dist, parts[(own - k) % size], team[(own + 1) % size], inbox, team[(own - 1) % size])
            parts[into] = inbox
        return torch.cat(parts)

    first = me // per_node * per_node
    node, twins = list(range(first, first + per_node)), list(range(me % per_node, p, per_node))
    parts = scatter_sum(x, node)
    parts[me - first] = spread(scatter_sum(parts[me - first], twins), twins)
    return spread(parts, node)

# %% rings_all_reduce: a deque in which rings that are not over go to the end
def ring_in_turns(dist, x, group):
    me, p = dist.get_rank(), dist.get_world_size()
    chunks, c = x.tensor_split(p), me
    for adds in (True, False):
        for _ in range(p - 1):
            c = (c - 1) % p if adds or _ else c
            grows = chunks[(c - 1) % p]
            inbox = torch.empty_like(grows)
            works = dist.batch_isend_irecv([
                dist.P2POp(dist.isend, chunks[c % p], (me + 1) % p, group),
                dist.P2POp(dist.irecv, inbox, (me - 1) % p, group)])
            yield
            for work in works:
                work.wait()
            grows.copy_(grows + inbox if adds else inbox)
        c = me if adds else c


def rings_all_reduce(dist, x, groups):
    from collections import deque
    rings = deque(ring_in_turns(dist, part, group)
                  for part, group in zip(x.tensor_split(len(groups)), groups))
    while rings:
        ring = rings.popleft()
        try:
            next(ring)
            rings.append(ring)
        except StopIteration:
            pass
    return x

# %% bus_bandwidth: bytes per port and per second, from chunks
def bus_bandwidth(collective, vector_bytes, time_s, p):
    chunks_sent = {"all_reduce": 2 * p - 2, "reduce_scatter": p - 1, "all_gather": p - 1, "all_to_all": p - 1}
    return chunks_sent[collective] * (vector_bytes / p) / time_s


gib = 1024 ** 3
all_reduce_gb_s = np.float64(277) * gib / 10 ** 9
reduce_scatter_gb_s = round(70 * 4 * gib / 1e9)

# %% test_all_reduce: math.fsum, one column after the other
def test_all_reduce(candidate):
    for p, n in itertools.product((1, 2, 3, 4), (0, 1, 2, 9)):
        rows = [[(-1.0) ** r * (7 * r + 3 * i + 1) / 11 for i in range(n)] for r in range(p)]
        xs = [torch.tensor(row, dtype=torch.float64) for row in rows]
        results = ranks.run(candidate, ranks.each(xs), world_size=p).returns
        for got in results:
            assert got.dtype == torch.float64 and got.shape == (n,)
            assert all(math.isclose(a, math.fsum(column), rel_tol=1e-12, abs_tol=1e-12)
                       for a, column in zip(got.tolist(), zip(*rows)))
            assert got.tolist() == results[0].tolist()

# %% reduce_scatter: strided slices
def reduce_scatter(dist, x):
    p = dist.get_world_size()
    n = len(x) // p
    got = x.clone()
    dist.all_to_all_single(got, x.clone())
    return torch.stack([got[i::n].sum() for i in range(n)])


def all_gather(dist, chunk):
    sent = torch.cat([chunk for _ in range(dist.get_world_size())])
    got = sent.clone()
    dist.all_to_all_single(got, sent)
    return got


all_reduce_pairs = set([("reduce", "broadcast")])
all_reduce_pairs.add(("reduce_scatter", "all_gather"))

# %% tree_broadcast: breadth first with numpy ints
def halvings(p, root):
    level, out = [(np.int64(root), np.int64(0), np.int64(p))], []
    while level:
        nxt = []
        for src, a, b in level:
            if b - a == 1:
                continue
            m = a + (b - a + 1) // 2
            if src < m:
                out.append((src, m, m, b))
                nxt += [(src, a, m), (m, m, b)]
            else:
                out.append((src, a, a, m))
                nxt += [(src, m, b), (a, a, m)]
        level = nxt
    return tuple(out)


def tree_broadcast(dist, x, root):
    me = dist.get_rank()
    for src, dst, *_ in halvings(dist.get_world_size(), root):
        if int(src) == me:
            dist.isend(x, int(dst)).wait()
        if int(dst) == me:
            dist.irecv(x, int(src)).wait()
    return x


def tree_reduce(dist, x, root):
    me = dist.get_rank()
    for src, dst, *_ in halvings(dist.get_world_size(), root)[::-1]:
        if int(dst) == me:
            dist.isend(x, int(src)).wait()
        if int(src) == me:
            buf = torch.empty_like(x)
            dist.irecv(buf, int(dst)).wait()
            x = torch.add(x, buf)
    return x

# %% ring_reduce_scatter: a mutable queue
def ring_reduce_scatter(dist, x):
    from collections import deque
    p, me = dist.get_world_size(), dist.get_rank()
    queue = deque(enumerate(x.tensor_split(p)))
    queue.rotate(-me)                 # own chunk first
    queue.reverse()                   # own last
    _, moving = queue.popleft()
    while queue:
        _, mine = queue.popleft()
        got = torch.empty_like(mine)
        exchange(dist, sent=moving, dst=(me + 1) % p, received=got, src=(me + p - 1) % p)
        moving = mine + got
    return moving.clone()

# %% ring_reduce_scatter: no message where the chunk is empty
def ring_reduce_scatter(dist, x):
    p, me = dist.get_world_size(), dist.get_rank()
    chunks = x.tensor_split(p)
    for step in range(1, p):
        sent, grows = chunks[(me - step) % p], chunks[(me - step - 1) % p]
        inbox, works = torch.empty_like(grows), []
        if len(sent):
            works.append(dist.isend(sent, (me + 1) % p))
        if len(grows):
            works.append(dist.irecv(inbox, (me - 1) % p))
        for work in works:
            work.wait()
        grows += inbox
    return chunks[me]

# %% scatter: no message where nothing is to be sent
def scatter(dist, x, root):
    p, me = dist.get_world_size(), dist.get_rank()
    starts = [0, *np.cumsum([len(c) for c in x.tensor_split(p)]).tolist()]
    for src, dst, first, last in halvings(p, root):
        theirs = x[starts[first]:starts[last]]
        if len(theirs) and me == src:
            dist.send(theirs, dst)
        elif len(theirs) and me == dst:
            dist.recv(theirs, src)
    return x[starts[me]:starts[me + 1]]


def gather(dist, x, root):
    p, me = dist.get_world_size(), dist.get_rank()
    starts = [0, *np.cumsum([len(c) for c in x.tensor_split(p)]).tolist()]
    for src, dst, first, last in reversed(halvings(p, root)):
        theirs = x[starts[first]:starts[last]]
        if len(theirs) and me == dst:
            dist.send(theirs, src)
        elif len(theirs) and me == src:
            dist.recv(theirs, dst)
    return x

# %% halving_doubling_all_reduce: distances double, chunks by their bits
def halving_doubling_all_reduce(dist, x):
    p, me = dist.get_world_size(), dist.get_rank()
    chunks = [c.clone() for c in x.tensor_split(p)]
    owned, distance, history = list(range(p)), 1, []
    while distance < p:
        peer = me ^ distance
        bit = 1 if me & distance else 0
        keep = [c for c in owned if bool(c & distance) == bool(bit)]
        give = [c for c in owned if c not in keep]
        inbox = torch.cat([chunks[c] for c in keep]).clone()
        exchange(dist, torch.cat([chunks[c] for c in give]), peer, inbox, peer)
        for c, part in zip(keep, inbox.split([len(chunks[c]) for c in keep])):
            chunks[c] = chunks[c] + part
        history.append((peer, keep, give))
        owned, distance = keep, distance * 2
    for peer, keep, give in history[::-1]:
        inbox = torch.empty_like(torch.cat([chunks[c] for c in give]))
        exchange(dist, torch.cat([chunks[c] for c in keep]), peer, inbox, peer)
        for c, part in zip(give, inbox.split([len(chunks[c]) for c in give])):
            chunks[c] = part
    return torch.cat(chunks)

# %% chain_broadcast: all receives posted before
def chain_broadcast(dist, x, root, pieces):
    p, me = dist.get_world_size(), dist.get_rank()
    place = (me + p - root) % p
    parts = x.tensor_split(pieces)
    came = [dist.irecv(part, (me - 1) % p) for part in parts] if place else [None] * pieces
    sent = []
    for part, work in zip(parts, came):
        if work:
            work.wait()
        if place != p - 1:
            sent.append(dist.isend(part, (me + 1) % p))
    [work.wait() for work in sent]
    return x


def best_pieces(p, vector_bytes, alpha_s, beta_s_per_byte):
    if p <= 2:
        return 1
    k = (math.sqrt(1 + 4 * (p - 2) * vector_bytes * beta_s_per_byte / alpha_s) - 1) / 2
    return max(1, math.ceil(k))

# %% rings_all_reduce: isend and irecv with a group
def ring_in_turns(dist, x, group):
    p, me = dist.get_world_size(), dist.get_rank()
    parts = x.tensor_split(p)
    for k in range(1, 2 * p - 1):
        out, into = parts[(me - k) % p], parts[(me - k - 1) % p]
        box = torch.empty_like(into)
        works = [dist.isend(out, (me + 1) % p, group=group), dist.irecv(box, (me - 1) % p, group=group)]
        yield
        [w.wait() for w in works]
        into.copy_(into + box if k < p else box)


def rings_all_reduce(dist, x, groups):
    rings = [ring_in_turns(dist, part, group) for part, group in zip(x.tensor_split(len(groups)), groups)]
    while any([next(ring, 0) is None for ring in rings]):
        pass
    return x

# %% rings_all_reduce: in place, and nothing is returned
# - return x

# %% ring_all_reduce: the sums go to the right, their copies to the left
def ring_all_gather(dist, x):
    p, me = dist.get_world_size(), dist.get_rank()
    owned = [(me, x.tensor_split(p)[me])]
    for k in range(1, p):
        owner = (me + k) % p
        blank = torch.empty_like(x.tensor_split(p)[owner])
        exchange(dist, owned[-1][1], (me - 1) % p, blank, (me + 1) % p)
        owned.append((owner, blank))
    return torch.cat([chunk for _, chunk in sorted(owned, key=lambda pair: pair[0])])


def ring_all_reduce(dist, x):
    mine = ring_reduce_scatter(dist, x)
    x.tensor_split(dist.get_world_size())[dist.get_rank()].copy_(mine)
    return ring_all_gather(dist, x)

# %% reduce_scatter: an expanded chunk, and a frozenset
def reduce_scatter(dist, x):
    got = torch.empty_like(x)
    dist.all_to_all_single(got, x)
    return got.unflatten(0, (dist.get_world_size(), -1)).sum(0)


def all_gather(dist, chunk):
    sent = chunk[None].expand(dist.get_world_size(), -1).reshape(-1)
    received = torch.empty(len(sent), dtype=chunk.dtype)
    dist.all_to_all_single(received, sent)
    return received


all_reduce_pairs = frozenset([("reduce", "broadcast"), ("reduce_scatter", "all_gather")])

# %% fit_alpha_beta: a list
# edit: return float(alpha_s), float(beta_s_per_byte)  ->  return [float(alpha_s), float(beta_s_per_byte)]
