# %% held: gather leaves it everywhere
# says: only the root gets it
def held(collective, x, root):
    """What each rank has in the end: a list by rank of tensors, None for a rank that gets nothing.

    collective: "broadcast", "scatter", "gather", "reduce", "all_gather", "all_reduce", "reduce_scatter"
    or "all_to_all". x: (p, p); row r is rank r's vector, column c its chunk c. A lone chunk has
    shape (1,). About one line for each.
    """
    p = len(x)
    total, own = x.sum(0), x.diagonal()
    return {
        "broadcast": [x[root]] * p,
        "scatter": list(x[root].split(1)),
        "gather": [own] * p,
        "reduce": [total if rank == root else None for rank in range(p)],
        "all_gather": [own] * p,
        "all_reduce": [total] * p,
        "reduce_scatter": list(total.split(1)),
        "all_to_all": list(x.T),
    }[collective]


# A set of pairs (first, second) that leave what all_reduce leaves; none has all_reduce in it.
all_reduce_pairs = {("reduce", "broadcast"), ("reduce_scatter", "all_gather")}

# %% held: scatter gives the whole vector
# says: gets chunk r alone
def held(collective, x, root):
    """What each rank has in the end: a list by rank of tensors, None for a rank that gets nothing.

    collective: "broadcast", "scatter", "gather", "reduce", "all_gather", "all_reduce", "reduce_scatter"
    or "all_to_all". x: (p, p); row r is rank r's vector, column c its chunk c. A lone chunk has
    shape (1,). About one line for each.
    """
    p = len(x)
    total, own = x.sum(0), x.diagonal()
    return {
        "broadcast": [x[root]] * p,
        "scatter": [x[root]] * p,
        "gather": [own if rank == root else None for rank in range(p)],
        "reduce": [total if rank == root else None for rank in range(p)],
        "all_gather": [own] * p,
        "all_reduce": [total] * p,
        "reduce_scatter": list(total.split(1)),
        "all_to_all": list(x.T),
    }[collective]


# A set of pairs (first, second) that leave what all_reduce leaves; none has all_reduce in it.
all_reduce_pairs = {("reduce", "broadcast"), ("reduce_scatter", "all_gather")}

# %% held: reduce-scatter gives the whole sum
# says: gets chunk r alone
def held(collective, x, root):
    """What each rank has in the end: a list by rank of tensors, None for a rank that gets nothing.

    collective: "broadcast", "scatter", "gather", "reduce", "all_gather", "all_reduce", "reduce_scatter"
    or "all_to_all". x: (p, p); row r is rank r's vector, column c its chunk c. A lone chunk has
    shape (1,). About one line for each.
    """
    p = len(x)
    total, own = x.sum(0), x.diagonal()
    return {
        "broadcast": [x[root]] * p,
        "scatter": list(x[root].split(1)),
        "gather": [own if rank == root else None for rank in range(p)],
        "reduce": [total if rank == root else None for rank in range(p)],
        "all_gather": [own] * p,
        "all_reduce": [total] * p,
        "reduce_scatter": [total] * p,
        "all_to_all": list(x.T),
    }[collective]


# A set of pairs (first, second) that leave what all_reduce leaves; none has all_reduce in it.
all_reduce_pairs = {("reduce", "broadcast"), ("reduce_scatter", "all_gather")}

# %% held: gather takes the root's chunk of everyone
# says: brings its chunk r
def held(collective, x, root):
    """What each rank has in the end: a list by rank of tensors, None for a rank that gets nothing.

    collective: "broadcast", "scatter", "gather", "reduce", "all_gather", "all_reduce", "reduce_scatter"
    or "all_to_all". x: (p, p); row r is rank r's vector, column c its chunk c. A lone chunk has
    shape (1,). About one line for each.
    """
    p = len(x)
    total, own = x.sum(0), x.diagonal()
    return {
        "broadcast": [x[root]] * p,
        "scatter": list(x[root].split(1)),
        "gather": [x.T[root] if rank == root else None for rank in range(p)],
        "reduce": [total if rank == root else None for rank in range(p)],
        "all_gather": [own] * p,
        "all_reduce": [total] * p,
        "reduce_scatter": list(total.split(1)),
        "all_to_all": list(x.T),
    }[collective]


# A set of pairs (first, second) that leave what all_reduce leaves; none has all_reduce in it.
all_reduce_pairs = {("reduce", "broadcast"), ("reduce_scatter", "all_gather")}

# %% held: all-to-all changes nothing
# says: everyone's chunk r
def held(collective, x, root):
    """What each rank has in the end: a list by rank of tensors, None for a rank that gets nothing.

    collective: "broadcast", "scatter", "gather", "reduce", "all_gather", "all_reduce", "reduce_scatter"
    or "all_to_all". x: (p, p); row r is rank r's vector, column c its chunk c. A lone chunk has
    shape (1,). About one line for each.
    """
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
        "all_to_all": list(x),
    }[collective]


# A set of pairs (first, second) that leave what all_reduce leaves; none has all_reduce in it.
all_reduce_pairs = {("reduce", "broadcast"), ("reduce_scatter", "all_gather")}

# %% held: the notes' pair
# says: only the root has the sum
def held(collective, x, root):
    """What each rank has in the end: a list by rank of tensors, None for a rank that gets nothing.

    collective: "broadcast", "scatter", "gather", "reduce", "all_gather", "all_reduce", "reduce_scatter"
    or "all_to_all". x: (p, p); row r is rank r's vector, column c its chunk c. A lone chunk has
    shape (1,). About one line for each.
    """
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


# A set of pairs (first, second) that leave what all_reduce leaves; none has all_reduce in it.
all_reduce_pairs = {("reduce", "broadcast"), ("reduce", "scatter")}

# %% held: the lecture's pair
# says: only the root has the sum
def held(collective, x, root):
    """What each rank has in the end: a list by rank of tensors, None for a rank that gets nothing.

    collective: "broadcast", "scatter", "gather", "reduce", "all_gather", "all_reduce", "reduce_scatter"
    or "all_to_all". x: (p, p); row r is rank r's vector, column c its chunk c. A lone chunk has
    shape (1,). About one line for each.
    """
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


# A set of pairs (first, second) that leave what all_reduce leaves; none has all_reduce in it.
all_reduce_pairs = {("reduce", "broadcast"), ("reduce", "all_gather")}

# %% held: one pair of two
# says: there is one more
def held(collective, x, root):
    """What each rank has in the end: a list by rank of tensors, None for a rank that gets nothing.

    collective: "broadcast", "scatter", "gather", "reduce", "all_gather", "all_reduce", "reduce_scatter"
    or "all_to_all". x: (p, p); row r is rank r's vector, column c its chunk c. A lone chunk has
    shape (1,). About one line for each.
    """
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


# A set of pairs (first, second) that leave what all_reduce leaves; none has all_reduce in it.
all_reduce_pairs = {("reduce", "broadcast")}

# %% tree_broadcast: the larger half goes
# says: gives away the smaller half
def halvings(p, root):
    """Who passes on to whom: a list of (src, dst, first, last), in an order that works.

    dst then has ranks first to last - 1 to care for, itself among them; src gives away the smaller
    half of its own ranks, rounded down, from one end. Root begins with all. About 12 lines.
    """
    def halve(first, last, src):
        half = (last - first + 1) // 2 if last - first > 1 else 0
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
    """Root's x, on every rank: each rank's x is overwritten, and returned. About six lines."""
    me = dist.get_rank()
    for src, dst, _, _ in halvings(dist.get_world_size(), root):
        if me == src:
            dist.send(x, dst)
        elif me == dst:
            dist.recv(x, src)
    return x


def tree_reduce(dist, x, root):
    """The sum of all ranks' x, in root's x, which is returned; what the others return is not used.

    About eight lines.
    """
    me, received = dist.get_rank(), torch.empty_like(x)
    for src, dst, _, _ in reversed(halvings(dist.get_world_size(), root)):
        if me == dst:
            dist.send(x, src)
        elif me == src:
            dist.recv(received, dst)
            x += received
    return x

# %% tree_broadcast: messages in the wrong order
# says: does not have it yet
def halvings(p, root):
    """Who passes on to whom: a list of (src, dst, first, last), in an order that works.

    dst then has ranks first to last - 1 to care for, itself among them; src gives away the smaller
    half of its own ranks, rounded down, from one end. Root begins with all. About 12 lines.
    """
    def halve(first, last, src):
        half = (last - first) // 2
        if half == 0:
            return []
        if src < last - half:
            mine, given = (first, last - half), (last - half, last)
        else:
            mine, given = (first + half, last), (first, first + half)
        dst = given[0]
        return [*halve(*given, dst), (src, dst, *given), *halve(*mine, src)]
    return halve(0, p, root)


def tree_broadcast(dist, x, root):
    """Root's x, on every rank: each rank's x is overwritten, and returned. About six lines."""
    me = dist.get_rank()
    for src, dst, _, _ in halvings(dist.get_world_size(), root):
        if me == src:
            dist.send(x, dst)
        elif me == dst:
            dist.recv(x, src)
    return x


def tree_reduce(dist, x, root):
    """The sum of all ranks' x, in root's x, which is returned; what the others return is not used.

    About eight lines.
    """
    me, received = dist.get_rank(), torch.empty_like(x)
    for src, dst, _, _ in reversed(halvings(dist.get_world_size(), root)):
        if me == dst:
            dist.send(x, src)
        elif me == src:
            dist.recv(received, dst)
            x += received
    return x

# %% tree_broadcast: the root sends to everyone itself
# says: rounds, want
def halvings(p, root):
    """Who passes on to whom: a list of (src, dst, first, last), in an order that works.

    dst then has ranks first to last - 1 to care for, itself among them; src gives away the smaller
    half of its own ranks, rounded down, from one end. Root begins with all. About 12 lines.
    """
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
    """Root's x, on every rank: each rank's x is overwritten, and returned. About six lines."""
    me = dist.get_rank()
    for peer in range(dist.get_world_size()):
        if me == root and peer != root:
            dist.send(x, peer)
        elif me == peer and peer != root:
            dist.recv(x, root)
    return x


def tree_reduce(dist, x, root):
    """The sum of all ranks' x, in root's x, which is returned; what the others return is not used.

    About eight lines.
    """
    me, received = dist.get_rank(), torch.empty_like(x)
    for src, dst, _, _ in reversed(halvings(dist.get_world_size(), root)):
        if me == dst:
            dist.send(x, src)
        elif me == src:
            dist.recv(received, dst)
            x += received
    return x

# %% tree_broadcast: root taken for 0
# says: not rank 0
def halvings(p, root):
    """Who passes on to whom: a list of (src, dst, first, last), in an order that works.

    dst then has ranks first to last - 1 to care for, itself among them; src gives away the smaller
    half of its own ranks, rounded down, from one end. Root begins with all. About 12 lines.
    """
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
    """Root's x, on every rank: each rank's x is overwritten, and returned. About six lines."""
    me = dist.get_rank()
    for src, dst, _, _ in halvings(dist.get_world_size(), 0):
        if me == src:
            dist.send(x, dst)
        elif me == dst:
            dist.recv(x, src)
    return x


def tree_reduce(dist, x, root):
    """The sum of all ranks' x, in root's x, which is returned; what the others return is not used.

    About eight lines.
    """
    me, received = dist.get_rank(), torch.empty_like(x)
    for src, dst, _, _ in reversed(halvings(dist.get_world_size(), root)):
        if me == dst:
            dist.send(x, src)
        elif me == src:
            dist.recv(received, dst)
            x += received
    return x

# %% tree_broadcast: everyone receives first
# says: deadlock
def halvings(p, root):
    """Who passes on to whom: a list of (src, dst, first, last), in an order that works.

    dst then has ranks first to last - 1 to care for, itself among them; src gives away the smaller
    half of its own ranks, rounded down, from one end. Root begins with all. About 12 lines.
    """
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
    """Root's x, on every rank: each rank's x is overwritten, and returned. About six lines."""
    me, p = dist.get_rank(), dist.get_world_size()
    if p > 1:
        dist.recv(x, (me - 1) % p)
        dist.send(x, (me + 1) % p)
    return x


def tree_reduce(dist, x, root):
    """The sum of all ranks' x, in root's x, which is returned; what the others return is not used.

    About eight lines.
    """
    me, received = dist.get_rank(), torch.empty_like(x)
    for src, dst, _, _ in reversed(halvings(dist.get_world_size(), root)):
        if me == dst:
            dist.send(x, src)
        elif me == src:
            dist.recv(received, dst)
            x += received
    return x

# %% tree_broadcast: reduce down the tree
# says: passed on too early
def halvings(p, root):
    """Who passes on to whom: a list of (src, dst, first, last), in an order that works.

    dst then has ranks first to last - 1 to care for, itself among them; src gives away the smaller
    half of its own ranks, rounded down, from one end. Root begins with all. About 12 lines.
    """
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
    """Root's x, on every rank: each rank's x is overwritten, and returned. About six lines."""
    me = dist.get_rank()
    for src, dst, _, _ in halvings(dist.get_world_size(), root):
        if me == src:
            dist.send(x, dst)
        elif me == dst:
            dist.recv(x, src)
    return x


def tree_reduce(dist, x, root):
    """The sum of all ranks' x, in root's x, which is returned; what the others return is not used.

    About eight lines.
    """
    me, received = dist.get_rank(), torch.empty_like(x)
    for src, dst, _, _ in halvings(dist.get_world_size(), root):
        if me == dst:
            dist.send(x, src)
        elif me == src:
            dist.recv(received, dst)
            x += received
    return x

# %% tree_broadcast: reduce overwrites
# says: own vector belongs to the sum
def halvings(p, root):
    """Who passes on to whom: a list of (src, dst, first, last), in an order that works.

    dst then has ranks first to last - 1 to care for, itself among them; src gives away the smaller
    half of its own ranks, rounded down, from one end. Root begins with all. About 12 lines.
    """
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
    """Root's x, on every rank: each rank's x is overwritten, and returned. About six lines."""
    me = dist.get_rank()
    for src, dst, _, _ in halvings(dist.get_world_size(), root):
        if me == src:
            dist.send(x, dst)
        elif me == dst:
            dist.recv(x, src)
    return x


def tree_reduce(dist, x, root):
    """The sum of all ranks' x, in root's x, which is returned; what the others return is not used.

    About eight lines.
    """
    me, received = dist.get_rank(), torch.empty_like(x)
    for src, dst, _, _ in reversed(halvings(dist.get_world_size(), root)):
        if me == dst:
            dist.send(x, src)
        elif me == src:
            dist.recv(x, dst)
    return x

# %% tree_broadcast: everyone sends to the root
# says: rounds, want
def halvings(p, root):
    """Who passes on to whom: a list of (src, dst, first, last), in an order that works.

    dst then has ranks first to last - 1 to care for, itself among them; src gives away the smaller
    half of its own ranks, rounded down, from one end. Root begins with all. About 12 lines.
    """
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
    """Root's x, on every rank: each rank's x is overwritten, and returned. About six lines."""
    me = dist.get_rank()
    for src, dst, _, _ in halvings(dist.get_world_size(), root):
        if me == src:
            dist.send(x, dst)
        elif me == dst:
            dist.recv(x, src)
    return x


def tree_reduce(dist, x, root):
    """The sum of all ranks' x, in root's x, which is returned; what the others return is not used.

    About eight lines.
    """
    me, received = dist.get_rank(), torch.empty_like(x)
    for peer in range(dist.get_world_size()):
        if me == peer and peer != root:
            dist.send(x, root)
        elif me == root and peer != root:
            dist.recv(received, peer)
            x += received
    return x

# %% tree_broadcast: the root adds itself twice
# says: in the sum twice
def halvings(p, root):
    """Who passes on to whom: a list of (src, dst, first, last), in an order that works.

    dst then has ranks first to last - 1 to care for, itself among them; src gives away the smaller
    half of its own ranks, rounded down, from one end. Root begins with all. About 12 lines.
    """
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
    """Root's x, on every rank: each rank's x is overwritten, and returned. About six lines."""
    me = dist.get_rank()
    for src, dst, _, _ in halvings(dist.get_world_size(), root):
        if me == src:
            dist.send(x, dst)
        elif me == dst:
            dist.recv(x, src)
    return x


def tree_reduce(dist, x, root):
    """The sum of all ranks' x, in root's x, which is returned; what the others return is not used.

    About eight lines.
    """
    me, received, own = dist.get_rank(), torch.empty_like(x), x.clone()
    for src, dst, _, _ in reversed(halvings(dist.get_world_size(), root)):
        if me == dst:
            dist.send(x, src)
        elif me == src:
            dist.recv(received, dst)
            x += received
    return x + own if me == root else x

# %% scatter: the root sends every chunk itself
# says: rounds, want
def scatter(dist, x, root):
    """Chunk r of root's x, on rank r. About eight lines.

    x has the same length everywhere; on other ranks it serves as memory, what stands in it is no use.
    """
    p, me = dist.get_world_size(), dist.get_rank()
    chunks = x.tensor_split(p)
    starts = [sum(map(len, chunks[:rank])) for rank in range(p + 1)]
    for peer in range(p):
        if me == root and peer != root:
            dist.send(chunks[peer], peer)
        elif me == peer and peer != root:
            dist.recv(chunks[me], root)
    return chunks[me]


def gather(dist, x, root):
    """All chunks, in root's x, which is returned; what the others return is not used.

    Rank r brings chunk r of its x; what else stands there is no use. About eight lines.
    """
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

# %% scatter: a broadcast
# says: want only their chunks
def scatter(dist, x, root):
    """Chunk r of root's x, on rank r. About eight lines.

    x has the same length everywhere; on other ranks it serves as memory, what stands in it is no use.
    """
    p, me = dist.get_world_size(), dist.get_rank()
    chunks = x.tensor_split(p)
    starts = [sum(map(len, chunks[:rank])) for rank in range(p + 1)]
    return tree_broadcast(dist, x, root).tensor_split(p)[me]


def gather(dist, x, root):
    """All chunks, in root's x, which is returned; what the others return is not used.

    Rank r brings chunk r of its x; what else stands there is no use. About eight lines.
    """
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

# %% scatter: cut with x.chunk
# says: x.tensor_split(p) evenly
def scatter(dist, x, root):
    """Chunk r of root's x, on rank r. About eight lines.

    x has the same length everywhere; on other ranks it serves as memory, what stands in it is no use.
    """
    p, me = dist.get_world_size(), dist.get_rank()
    chunks = x.chunk(p)
    starts = [sum(map(len, chunks[:rank])) for rank in range(p + 1)]
    for src, dst, first, last in halvings(p, root):
        theirs = x[starts[first]:starts[last]]
        if me == src:
            dist.send(theirs, dst)
        elif me == dst:
            dist.recv(theirs, src)
    return chunks[me]


def gather(dist, x, root):
    """All chunks, in root's x, which is returned; what the others return is not used.

    Rank r brings chunk r of its x; what else stands there is no use. About eight lines.
    """
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

# %% scatter: the remainder goes to the last
# says: not for the last one alone
def scatter(dist, x, root):
    """Chunk r of root's x, on rank r. About eight lines.

    x has the same length everywhere; on other ranks it serves as memory, what stands in it is no use.
    """
    p, me = dist.get_world_size(), dist.get_rank()
    starts = [rank * (len(x) // p) for rank in range(p)] + [len(x)]
    for src, dst, first, last in halvings(p, root):
        theirs = x[starts[first]:starts[last]]
        if me == src:
            dist.send(theirs, dst)
        elif me == dst:
            dist.recv(theirs, src)
    return x[starts[me]:starts[me + 1]]


def gather(dist, x, root):
    """All chunks, in root's x, which is returned; what the others return is not used.

    Rank r brings chunk r of its x; what else stands there is no use. About eight lines.
    """
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

# %% scatter: the remainder is lost
# says: remainder is missing
def scatter(dist, x, root):
    """Chunk r of root's x, on rank r. About eight lines.

    x has the same length everywhere; on other ranks it serves as memory, what stands in it is no use.
    """
    p, me = dist.get_world_size(), dist.get_rank()
    starts = [rank * (len(x) // p) for rank in range(p + 1)]
    for src, dst, first, last in halvings(p, root):
        theirs = x[starts[first]:starts[last]]
        if me == src:
            dist.send(theirs, dst)
        elif me == dst:
            dist.recv(theirs, src)
    return x[starts[me]:starts[me + 1]]


def gather(dist, x, root):
    """All chunks, in root's x, which is returned; what the others return is not used.

    Rank r brings chunk r of its x; what else stands there is no use. About eight lines.
    """
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

# %% scatter: each rank's own chunk
# says: the chunk is the root's
def scatter(dist, x, root):
    """Chunk r of root's x, on rank r. About eight lines.

    x has the same length everywhere; on other ranks it serves as memory, what stands in it is no use.
    """
    p, me = dist.get_world_size(), dist.get_rank()
    chunks = x.tensor_split(p)
    starts = [sum(map(len, chunks[:rank])) for rank in range(p + 1)]
    return chunks[me]


def gather(dist, x, root):
    """All chunks, in root's x, which is returned; what the others return is not used.

    Rank r brings chunk r of its x; what else stands there is no use. About eight lines.
    """
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

# %% scatter: gather: everyone sends to the root
# says: rounds, want
def scatter(dist, x, root):
    """Chunk r of root's x, on rank r. About eight lines.

    x has the same length everywhere; on other ranks it serves as memory, what stands in it is no use.
    """
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


def gather(dist, x, root):
    """All chunks, in root's x, which is returned; what the others return is not used.

    Rank r brings chunk r of its x; what else stands there is no use. About eight lines.
    """
    p, me = dist.get_world_size(), dist.get_rank()
    chunks = x.tensor_split(p)
    starts = [sum(map(len, chunks[:rank])) for rank in range(p + 1)]
    for peer in range(p):
        if me == peer and peer != root:
            dist.send(chunks[me], root)
        elif me == root and peer != root:
            dist.recv(chunks[peer], peer)
    return x

# %% scatter: gather: a rank passes on its own chunk alone
# says: elements
def scatter(dist, x, root):
    """Chunk r of root's x, on rank r. About eight lines.

    x has the same length everywhere; on other ranks it serves as memory, what stands in it is no use.
    """
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


def gather(dist, x, root):
    """All chunks, in root's x, which is returned; what the others return is not used.

    Rank r brings chunk r of its x; what else stands there is no use. About eight lines.
    """
    p, me = dist.get_world_size(), dist.get_rank()
    chunks = x.tensor_split(p)
    starts = [sum(map(len, chunks[:rank])) for rank in range(p + 1)]
    for src, dst, first, last in reversed(halvings(p, root)):
        theirs = x[starts[first]:starts[last]]
        if me == dst:
            dist.send(chunks[me], src)
        elif me == src:
            dist.recv(theirs, dst)
    return x

# %% ring_reduce_scatter: everyone sends before anyone receives
# says: deadlock
def ring_reduce_scatter(dist, x):
    """Chunk r, x.tensor_split(p)[r], of the sum over ranks, on rank r. About eight lines.

    p - 1 rounds. x may be overwritten.
    """
    p, me = dist.get_world_size(), dist.get_rank()
    chunks = x.tensor_split(p)
    inbox = torch.empty_like(chunks[0])  # the first is as long as any
    for step in range(1, p):
        sent, grows = chunks[(me - step) % p], chunks[(me - step - 1) % p]
        dist.send(sent, (me + 1) % p)
        dist.recv(inbox[:len(grows)], (me - 1) % p)
        grows += inbox[:len(grows)]
    return chunks[me]

# %% ring_reduce_scatter: the whole vector round the ring
# says: elements sent, want
def ring_reduce_scatter(dist, x):
    """Chunk r, x.tensor_split(p)[r], of the sum over ranks, on rank r. About eight lines.

    p - 1 rounds. x may be overwritten.
    """
    p, me = dist.get_world_size(), dist.get_rank()
    total, moving, received = x.clone(), x, torch.empty_like(x)
    for _ in range(p - 1):
        exchange(dist, moving, (me + 1) % p, received, (me - 1) % p)
        moving, received = received, moving
        total += moving
    return total.tensor_split(p)[me]

# %% ring_reduce_scatter: chunk me first
# says: start one chunk earlier
def ring_reduce_scatter(dist, x):
    """Chunk r, x.tensor_split(p)[r], of the sum over ranks, on rank r. About eight lines.

    p - 1 rounds. x may be overwritten.
    """
    p, me = dist.get_world_size(), dist.get_rank()
    chunks = x.tensor_split(p)
    inbox = torch.empty_like(chunks[0])  # the first is as long as any
    for step in range(1, p):
        sent, grows = chunks[(me - step + 1) % p], chunks[(me - step) % p]
        exchange(dist, sent, (me + 1) % p, inbox[:len(grows)], (me - 1) % p)
        grows += inbox[:len(grows)]
    return chunks[(me + 1) % p]

# %% ring_reduce_scatter: the remainder goes to the last
# says: not for the last one alone
def ring_reduce_scatter(dist, x):
    """Chunk r, x.tensor_split(p)[r], of the sum over ranks, on rank r. About eight lines.

    p - 1 rounds. x may be overwritten.
    """
    p, me = dist.get_world_size(), dist.get_rank()
    size = len(x) // p
    chunks = [x[size * r:size * (r + 1) if r < p - 1 else len(x)] for r in range(p)]
    inbox = torch.empty_like(x)
    for step in range(1, p):
        sent, grows = chunks[(me - step) % p], chunks[(me - step - 1) % p]
        exchange(dist, sent, (me + 1) % p, inbox[:len(grows)], (me - 1) % p)
        grows += inbox[:len(grows)]
    return chunks[me]

# %% ring_reduce_scatter: cut with x.chunk
# says: x.tensor_split(p) evenly
def ring_reduce_scatter(dist, x):
    """Chunk r, x.chunk(p)[r], of the sum over ranks, on rank r. About eight lines.

    p - 1 rounds. x may be overwritten.
    """
    p, me = dist.get_world_size(), dist.get_rank()
    chunks = x.chunk(p)
    inbox = torch.empty_like(chunks[0])  # the first is as long as any
    for step in range(1, p):
        sent, grows = chunks[(me - step) % p], chunks[(me - step - 1) % p]
        exchange(dist, sent, (me + 1) % p, inbox[:len(grows)], (me - 1) % p)
        grows += inbox[:len(grows)]
    return chunks[me]

# %% ring_reduce_scatter: sum taken p times
# says: in it p times
def ring_reduce_scatter(dist, x):
    """Chunk r, x.tensor_split(p)[r], of the sum over ranks, on rank r. About eight lines.

    p - 1 rounds. x may be overwritten.
    """
    p, me = dist.get_world_size(), dist.get_rank()
    chunks = x.tensor_split(p)
    inbox = torch.empty_like(chunks[0])  # the first is as long as any
    for step in range(1, p):
        sent, grows = chunks[(me - step) % p], chunks[(me - step - 1) % p]
        exchange(dist, sent, (me + 1) % p, inbox[:len(grows)], (me - 1) % p)
        grows += inbox[:len(grows)]
    return p * chunks[me]

# %% ring_reduce_scatter: the same share sent every time
# says: only one rank's share
def ring_reduce_scatter(dist, x):
    """Chunk r, x.tensor_split(p)[r], of the sum over ranks, on rank r. About eight lines.

    p - 1 rounds. x may be overwritten.
    """
    p, me = dist.get_world_size(), dist.get_rank()
    chunks, shares = x.tensor_split(p), x.clone().tensor_split(p)
    inbox = torch.empty_like(chunks[0])  # the first is as long as any
    for step in range(1, p):
        sent, grows = shares[(me - step) % p], chunks[(me - step - 1) % p]
        exchange(dist, sent, (me + 1) % p, inbox[:len(grows)], (me - 1) % p)
        grows += inbox[:len(grows)]
    return chunks[me]

# %% ring_reduce_scatter: messages one after another
# says: rounds, want
def ring_reduce_scatter(dist, x):
    """Chunk r, x.tensor_split(p)[r], of the sum over ranks, on rank r. About eight lines.

    p - 1 rounds. x may be overwritten.
    """
    p, me = dist.get_world_size(), dist.get_rank()
    chunks = x.tensor_split(p)
    inbox = torch.empty_like(chunks[0])  # the first is as long as any
    for step in range(1, p):
        sent, grows = chunks[(me - step) % p], chunks[(me - step - 1) % p]
        first, second = [("send", sent), ("recv", inbox[:len(grows)])][::1 if me else -1]
        for kind, tensor in (first, second):
            if kind == "send":
                dist.send(tensor, (me + 1) % p)
            else:
                dist.recv(tensor, (me - 1) % p)
        grows += inbox[:len(grows)]
    return chunks[me]

# %% ring_all_reduce: all-gather of whole vectors
# says: elements sent, want
def ring_all_gather(dist, x):
    """x with everyone's chunk in its place: rank r brings chunk r, x.tensor_split(p)[r].

    x is overwritten and returned; what else stood in it is of no use. p - 1 rounds. About six lines.
    """
    p, me = dist.get_world_size(), dist.get_rank()
    chunks = x.tensor_split(p)
    moving, received = x.clone(), torch.empty_like(x)
    for step in range(p - 1):
        exchange(dist, moving, (me + 1) % p, received, (me - 1) % p)
        moving, received = received, moving
        chunks[(me - step - 1) % p].copy_(moving.tensor_split(p)[(me - step - 1) % p])
    return x


def ring_all_reduce(dist, x):
    """The sum of all ranks' x, on every rank; x may be overwritten. About two lines."""
    ring_reduce_scatter(dist, x)  # ours leaves rank r's chunk in its place in x
    return ring_all_gather(dist, x)

# %% ring_all_reduce: all-gather begins with chunk me + 1
# says: not from rank r - 1
def ring_all_gather(dist, x):
    """x with everyone's chunk in its place: rank r brings chunk r, x.tensor_split(p)[r].

    x is overwritten and returned; what else stood in it is of no use. p - 1 rounds. About six lines.
    """
    p, me = dist.get_world_size(), dist.get_rank()
    chunks = x.tensor_split(p)
    for step in range(p - 1):
        exchange(dist, chunks[(me - step + 1) % p], (me + 1) % p, chunks[(me - step) % p], (me - 1) % p)
    return x


def ring_all_reduce(dist, x):
    """The sum of all ranks' x, on every rank; x may be overwritten. About two lines."""
    ring_reduce_scatter(dist, x)  # ours leaves rank r's chunk in its place in x
    return ring_all_gather(dist, x)

# %% ring_all_reduce: all-gather sends before it receives
# says: deadlock
def ring_all_gather(dist, x):
    """x with everyone's chunk in its place: rank r brings chunk r, x.tensor_split(p)[r].

    x is overwritten and returned; what else stood in it is of no use. p - 1 rounds. About six lines.
    """
    p, me = dist.get_world_size(), dist.get_rank()
    chunks = x.tensor_split(p)
    for step in range(p - 1):
        dist.send(chunks[(me - step) % p], (me + 1) % p)
        dist.recv(chunks[(me - step - 1) % p], (me - 1) % p)
    return x


def ring_all_reduce(dist, x):
    """The sum of all ranks' x, on every rank; x may be overwritten. About two lines."""
    ring_reduce_scatter(dist, x)  # ours leaves rank r's chunk in its place in x
    return ring_all_gather(dist, x)

# %% ring_all_reduce: whole vectors round the ring
# says: elements sent, want
def ring_all_gather(dist, x):
    """x with everyone's chunk in its place: rank r brings chunk r, x.tensor_split(p)[r].

    x is overwritten and returned; what else stood in it is of no use. p - 1 rounds. About six lines.
    """
    p, me = dist.get_world_size(), dist.get_rank()
    chunks = x.tensor_split(p)
    for step in range(p - 1):
        exchange(dist, chunks[(me - step) % p], (me + 1) % p, chunks[(me - step - 1) % p], (me - 1) % p)
    return x


def ring_all_reduce(dist, x):
    """The sum of all ranks' x, on every rank; x may be overwritten. About two lines."""
    p, me = dist.get_world_size(), dist.get_rank()
    total, moving, received = x.clone(), x, torch.empty_like(x)
    for _ in range(p - 1):
        exchange(dist, moving, (me + 1) % p, received, (me - 1) % p)
        moving, received = received, moving
        total += moving
    return total

# %% ring_all_reduce: a tree
# says: cut evenly
def ring_all_gather(dist, x):
    """x with everyone's chunk in its place: rank r brings chunk r, x.tensor_split(p)[r].

    x is overwritten and returned; what else stood in it is of no use. p - 1 rounds. About six lines.
    """
    p, me = dist.get_world_size(), dist.get_rank()
    chunks = x.tensor_split(p)
    for step in range(p - 1):
        exchange(dist, chunks[(me - step) % p], (me + 1) % p, chunks[(me - step - 1) % p], (me - 1) % p)
    return x


def ring_all_reduce(dist, x):
    """The sum of all ranks' x, on every rank; x may be overwritten. About two lines."""
    return tree_broadcast(dist, tree_reduce(dist, x, 0), 0)

# %% ring_all_reduce: sum taken p times
# says: in it p times
def ring_all_gather(dist, x):
    """x with everyone's chunk in its place: rank r brings chunk r, x.tensor_split(p)[r].

    x is overwritten and returned; what else stood in it is of no use. p - 1 rounds. About six lines.
    """
    p, me = dist.get_world_size(), dist.get_rank()
    chunks = x.tensor_split(p)
    for step in range(p - 1):
        exchange(dist, chunks[(me - step) % p], (me + 1) % p, chunks[(me - step - 1) % p], (me - 1) % p)
    return x


def ring_all_reduce(dist, x):
    """The sum of all ranks' x, on every rank; x may be overwritten. About two lines."""
    ring_reduce_scatter(dist, x)
    return dist.get_world_size() * ring_all_gather(dist, x)

# %% ring_all_reduce: the mean
# says: the mean is asked for later
def ring_all_gather(dist, x):
    """x with everyone's chunk in its place: rank r brings chunk r, x.tensor_split(p)[r].

    x is overwritten and returned; what else stood in it is of no use. p - 1 rounds. About six lines.
    """
    p, me = dist.get_world_size(), dist.get_rank()
    chunks = x.tensor_split(p)
    for step in range(p - 1):
        exchange(dist, chunks[(me - step) % p], (me + 1) % p, chunks[(me - step - 1) % p], (me - 1) % p)
    return x


def ring_all_reduce(dist, x):
    """The sum of all ranks' x, on every rank; x may be overwritten. About two lines."""
    ring_reduce_scatter(dist, x)
    return ring_all_gather(dist, x) / dist.get_world_size()

# %% alpha_beta_time: a ring passes whole vectors
# says: parts of the vector
def alpha_beta_time(algorithm, p, vector_bytes, alpha_s, beta_s_per_byte):
    """Seconds that the algorithm takes on p ranks, for vectors of so many bytes on each.

    algorithm: one of ALGORITHMS, above. p is 1 or more. About ten lines.
    """
    depth, ring, share = (p - 1).bit_length(), p - 1, (p - 1) / p
    rounds, times_through_a_port = {
        "tree_broadcast": (depth, depth),
        "tree_reduce": (depth, depth),
        "tree_all_reduce": (2 * depth, 2 * depth),
        "scatter": (depth, share),
        "gather": (depth, share),
        "ring_reduce_scatter": (ring, ring),
        "ring_all_gather": (ring, share),
        "ring_all_reduce": (2 * ring, 2 * share),
    }[algorithm]
    return rounds * alpha_s + times_through_a_port * vector_bytes * beta_s_per_byte


def crossover_bytes(p, alpha_s, beta_s_per_byte):
    """Bytes of a vector from which on the ring all-reduce takes no longer than the tree's.

    p is 2 or more. About two lines.
    """
    depth = (p - 1).bit_length()
    return alpha_s / beta_s_per_byte * (p - 1 - depth) / (depth - (p - 1) / p)

# %% alpha_beta_time: a tree passes p-ths
# says: whole vectors
def alpha_beta_time(algorithm, p, vector_bytes, alpha_s, beta_s_per_byte):
    """Seconds that the algorithm takes on p ranks, for vectors of so many bytes on each.

    algorithm: one of ALGORITHMS, above. p is 1 or more. About ten lines.
    """
    depth, ring, share = (p - 1).bit_length(), p - 1, (p - 1) / p
    rounds, times_through_a_port = {
        "tree_broadcast": (depth, depth / p),
        "tree_reduce": (depth, depth),
        "tree_all_reduce": (2 * depth, 2 * depth),
        "scatter": (depth, share),
        "gather": (depth, share),
        "ring_reduce_scatter": (ring, share),
        "ring_all_gather": (ring, share),
        "ring_all_reduce": (2 * ring, 2 * share),
    }[algorithm]
    return rounds * alpha_s + times_through_a_port * vector_bytes * beta_s_per_byte


def crossover_bytes(p, alpha_s, beta_s_per_byte):
    """Bytes of a vector from which on the ring all-reduce takes no longer than the tree's.

    p is 2 or more. About two lines.
    """
    depth = (p - 1).bit_length()
    return alpha_s / beta_s_per_byte * (p - 1 - depth) / (depth - (p - 1) / p)

# %% alpha_beta_time: the logarithm is not rounded
# says: round log₂ p up
def alpha_beta_time(algorithm, p, vector_bytes, alpha_s, beta_s_per_byte):
    """Seconds that the algorithm takes on p ranks, for vectors of so many bytes on each.

    algorithm: one of ALGORITHMS, above. p is 1 or more. About ten lines.
    """
    depth, ring, share = float(np.log2(p)), p - 1, (p - 1) / p
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


def crossover_bytes(p, alpha_s, beta_s_per_byte):
    """Bytes of a vector from which on the ring all-reduce takes no longer than the tree's.

    p is 2 or more. About two lines.
    """
    depth = (p - 1).bit_length()
    return alpha_s / beta_s_per_byte * (p - 1 - depth) / (depth - (p - 1) / p)

# %% alpha_beta_time: an all-reduce is one way
# says: there and back
def alpha_beta_time(algorithm, p, vector_bytes, alpha_s, beta_s_per_byte):
    """Seconds that the algorithm takes on p ranks, for vectors of so many bytes on each.

    algorithm: one of ALGORITHMS, above. p is 1 or more. About ten lines.
    """
    depth, ring, share = (p - 1).bit_length(), p - 1, (p - 1) / p
    rounds, times_through_a_port = {
        "tree_broadcast": (depth, depth),
        "tree_reduce": (depth, depth),
        "tree_all_reduce": (2 * depth, 2 * depth),
        "scatter": (depth, share),
        "gather": (depth, share),
        "ring_reduce_scatter": (ring, share),
        "ring_all_gather": (ring, share),
        "ring_all_reduce": (ring, share),
    }[algorithm]
    return rounds * alpha_s + times_through_a_port * vector_bytes * beta_s_per_byte


def crossover_bytes(p, alpha_s, beta_s_per_byte):
    """Bytes of a vector from which on the ring all-reduce takes no longer than the tree's.

    p is 2 or more. About two lines.
    """
    depth = (p - 1).bit_length()
    return alpha_s / beta_s_per_byte * (p - 1 - depth) / (depth - (p - 1) / p)

# %% alpha_beta_time: p rounds
# says: p - 1 rounds
def alpha_beta_time(algorithm, p, vector_bytes, alpha_s, beta_s_per_byte):
    """Seconds that the algorithm takes on p ranks, for vectors of so many bytes on each.

    algorithm: one of ALGORITHMS, above. p is 1 or more. About ten lines.
    """
    depth, ring, share = (p - 1).bit_length(), p - 1, (p - 1) / p
    rounds, times_through_a_port = {
        "tree_broadcast": (depth, depth),
        "tree_reduce": (depth, depth),
        "tree_all_reduce": (2 * depth, 2 * depth),
        "scatter": (depth, share),
        "gather": (depth, share),
        "ring_reduce_scatter": (p, 1),
        "ring_all_gather": (ring, share),
        "ring_all_reduce": (2 * ring, 2 * share),
    }[algorithm]
    return rounds * alpha_s + times_through_a_port * vector_bytes * beta_s_per_byte


def crossover_bytes(p, alpha_s, beta_s_per_byte):
    """Bytes of a vector from which on the ring all-reduce takes no longer than the tree's.

    p is 2 or more. About two lines.
    """
    depth = (p - 1).bit_length()
    return alpha_s / beta_s_per_byte * (p - 1 - depth) / (depth - (p - 1) / p)

# %% alpha_beta_time: crossover upside down
# says: β/α is none
def alpha_beta_time(algorithm, p, vector_bytes, alpha_s, beta_s_per_byte):
    """Seconds that the algorithm takes on p ranks, for vectors of so many bytes on each.

    algorithm: one of ALGORITHMS, above. p is 1 or more. About ten lines.
    """
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


def crossover_bytes(p, alpha_s, beta_s_per_byte):
    """Bytes of a vector from which on the ring all-reduce takes no longer than the tree's.

    p is 2 or more. About two lines.
    """
    depth = (p - 1).bit_length()
    return beta_s_per_byte / alpha_s * (p - 1 - depth) / (depth - (p - 1) / p)

# %% alpha_beta_time: crossover in elements
# says: float32 elements
def alpha_beta_time(algorithm, p, vector_bytes, alpha_s, beta_s_per_byte):
    """Seconds that the algorithm takes on p ranks, for vectors of so many bytes on each.

    algorithm: one of ALGORITHMS, above. p is 1 or more. About ten lines.
    """
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


def crossover_bytes(p, alpha_s, beta_s_per_byte):
    """Bytes of a vector from which on the ring all-reduce takes no longer than the tree's.

    p is 2 or more. About two lines.
    """
    depth = (p - 1).bit_length()
    return alpha_s / beta_s_per_byte / 4 * (p - 1 - depth) / (depth - (p - 1) / p)

# %% halving_doubling_all_reduce: whole vectors in every round
# says: elements sent, want
def halving_doubling_all_reduce(dist, x):
    """The sum of all ranks' x, on every rank, for p = 1, 2, 4, 8, ...; x may be overwritten.

    2 log₂ p rounds. About 16 lines.
    """
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
    """The sum of all ranks' x, on every rank, for p = 1, 2, 4, 8, ...; x may be overwritten.

    2 log₂ p rounds. About 16 lines.
    """
    p, me = dist.get_world_size(), dist.get_rank()
    return ring_all_reduce(dist, x)

# %% fit_alpha_beta: least squares in seconds
# says: only the large messages count
def fit_alpha_beta(message_bytes, times_s):
    """(alpha_s, beta_s_per_byte), two floats, with the least sum of squared relative errors.

    message_bytes, times_s: lists, one entry a measurement. About four lines.
    """
    beta_s_per_byte, alpha_s = np.polyfit(np.array(message_bytes), np.array(times_s), 1)
    return float(alpha_s), float(beta_s_per_byte)

# %% fit_alpha_beta: bandwidth for β
# says: one over the bandwidth
def fit_alpha_beta(message_bytes, times_s):
    """(alpha_s, beta_s_per_byte), two floats, with the least sum of squared relative errors.

    message_bytes, times_s: lists, one entry a measurement. About four lines.
    """
    sizes, times_s = np.array(message_bytes, dtype=float), np.array(times_s)
    # (α + βb)/t should be 1: a linear problem with columns 1/t and b/t
    columns = np.stack([1 / times_s, sizes / times_s], axis=1)
    (alpha_s, beta_s_per_byte), *_ = np.linalg.lstsq(columns, np.ones(len(sizes)))
    return float(alpha_s), 1 / float(beta_s_per_byte)

# %% fit_alpha_beta: the other order
# says: α comes first
def fit_alpha_beta(message_bytes, times_s):
    """(alpha_s, beta_s_per_byte), two floats, with the least sum of squared relative errors.

    message_bytes, times_s: lists, one entry a measurement. About four lines.
    """
    sizes, times_s = np.array(message_bytes, dtype=float), np.array(times_s)
    # (α + βb)/t should be 1: a linear problem with columns 1/t and b/t
    columns = np.stack([1 / times_s, sizes / times_s], axis=1)
    (alpha_s, beta_s_per_byte), *_ = np.linalg.lstsq(columns, np.ones(len(sizes)))
    return float(beta_s_per_byte), float(alpha_s)

# %% bus_bandwidth: bytes by time
# says: never passes its port
def bus_bandwidth(collective, vector_bytes, time_s, p):
    """Bytes a second that each rank sends through its port.

    collective: "all_reduce", "reduce_scatter", "all_gather" or "all_to_all". vector_bytes: of the whole
    vector, all p chunks: a reduce-scatter's input, an all-gather's output. About two lines.
    """
    vectors_sent = 1
    return vectors_sent * vector_bytes / time_s


# The lecture's two measurements as bus bandwidths, in GB/s: 10⁹ bytes a second.
all_reduce_gb_s = 277 * 2**30 / 1e9
reduce_scatter_gb_s = 4 * 70 * 2**30 / 1e9  # size was that of the output, a quarter of the vector

# %% bus_bandwidth: an all-reduce goes one way
# says: there and back
def bus_bandwidth(collective, vector_bytes, time_s, p):
    """Bytes a second that each rank sends through its port.

    collective: "all_reduce", "reduce_scatter", "all_gather" or "all_to_all". vector_bytes: of the whole
    vector, all p chunks: a reduce-scatter's input, an all-gather's output. About two lines.
    """
    vectors_sent = (p - 1) / p
    return vectors_sent * vector_bytes / time_s


# The lecture's two measurements as bus bandwidths, in GB/s: 10⁹ bytes a second.
all_reduce_gb_s = 277 * 2**30 / 1e9
reduce_scatter_gb_s = 4 * 70 * 2**30 / 1e9  # size was that of the output, a quarter of the vector

# %% bus_bandwidth: twice for every collective
# says: one way only
def bus_bandwidth(collective, vector_bytes, time_s, p):
    """Bytes a second that each rank sends through its port.

    collective: "all_reduce", "reduce_scatter", "all_gather" or "all_to_all". vector_bytes: of the whole
    vector, all p chunks: a reduce-scatter's input, an all-gather's output. About two lines.
    """
    vectors_sent = 2 * (p - 1) / p
    return vectors_sent * vector_bytes / time_s


# The lecture's two measurements as bus bandwidths, in GB/s: 10⁹ bytes a second.
all_reduce_gb_s = 277 * 2**30 / 1e9
reduce_scatter_gb_s = 4 * 70 * 2**30 / 1e9  # size was that of the output, a quarter of the vector

# %% bus_bandwidth: all ports together
# says: not that of all together
def bus_bandwidth(collective, vector_bytes, time_s, p):
    """Bytes a second that each rank sends through its port.

    collective: "all_reduce", "reduce_scatter", "all_gather" or "all_to_all". vector_bytes: of the whole
    vector, all p chunks: a reduce-scatter's input, an all-gather's output. About two lines.
    """
    vectors_sent = (2 if collective == "all_reduce" else 1) * (p - 1)
    return vectors_sent * vector_bytes / time_s


# The lecture's two measurements as bus bandwidths, in GB/s: 10⁹ bytes a second.
all_reduce_gb_s = 277 * 2**30 / 1e9
reduce_scatter_gb_s = 4 * 70 * 2**30 / 1e9  # size was that of the output, a quarter of the vector

# %% bus_bandwidth: GiB for GB
# says: 1.07 GB
def bus_bandwidth(collective, vector_bytes, time_s, p):
    """Bytes a second that each rank sends through its port.

    collective: "all_reduce", "reduce_scatter", "all_gather" or "all_to_all". vector_bytes: of the whole
    vector, all p chunks: a reduce-scatter's input, an all-gather's output. About two lines.
    """
    vectors_sent = (2 if collective == "all_reduce" else 1) * (p - 1) / p
    return vectors_sent * vector_bytes / time_s


# The lecture's two measurements as bus bandwidths, in GB/s: 10⁹ bytes a second.
all_reduce_gb_s = 277.0
reduce_scatter_gb_s = 4 * 70 * 2**30 / 1e9  # size was that of the output, a quarter of the vector

# %% bus_bandwidth: the output's bytes
# says: one chunk of the vector
def bus_bandwidth(collective, vector_bytes, time_s, p):
    """Bytes a second that each rank sends through its port.

    collective: "all_reduce", "reduce_scatter", "all_gather" or "all_to_all". vector_bytes: of the whole
    vector, all p chunks: a reduce-scatter's input, an all-gather's output. About two lines.
    """
    vectors_sent = (2 if collective == "all_reduce" else 1) * (p - 1) / p
    return vectors_sent * vector_bytes / time_s


# The lecture's two measurements as bus bandwidths, in GB/s: 10⁹ bytes a second.
all_reduce_gb_s = 277 * 2**30 / 1e9
reduce_scatter_gb_s = 70 * 2**30 / 1e9  # size was that of the output, a quarter of the vector

# %% rings_all_reduce: one ring after another
# says: begin a round of each ring
def ring_in_turns(dist, x, group):
    """A generator: a ring all-reduce of x, in place; it yields once the messages of a round have begun.

    Its messages are `dist.P2POp(dist.isend, tensor, peer, group)` and the like. About 14 lines.
    """
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


def rings_all_reduce(dist, x, groups):
    """The sum of all ranks' x, in x, on every rank: a ring on each group, for parts of equal size.

    groups: each of all ranks. About four lines.
    """
    parts = x.tensor_split(len(groups))
    for part, group in zip(parts, groups, strict=True):
        for _ in ring_in_turns(dist, part, group):
            pass
    return x

# %% rings_all_reduce: the whole vector in each ring
# says: changed before its wait
def ring_in_turns(dist, x, group):
    """A generator: a ring all-reduce of x, in place; it yields once the messages of a round have begun.

    Its messages are `dist.P2POp(dist.isend, tensor, peer, group)` and the like. About 14 lines.
    """
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


def rings_all_reduce(dist, x, groups):
    """The sum of all ranks' x, in x, on every rank: a ring on each group, for parts of equal size.

    groups: each of all ranks. About four lines.
    """
    parts = [x] * len(groups)
    for _ in itertools.zip_longest(*(ring_in_turns(dist, part, group)
                                     for part, group in zip(parts, groups, strict=True))):
        pass  # one step of each ring
    return x

# %% ring_reduce_scatter: every chunk straight to its owner
# says: a ring has 3
def ring_reduce_scatter(dist, x):
    p, me = dist.get_world_size(), dist.get_rank()
    chunks = x.tensor_split(p)
    inbox = torch.empty_like(chunks[me])
    for step in range(1, p):
        exchange(dist, chunks[(me + step) % p], (me + step) % p, inbox, (me - step) % p)
        chunks[me].add_(inbox)
    return chunks[me]

# %% ring_reduce_scatter: received where its own share stands
# says: receive into a buffer
def ring_reduce_scatter(dist, x):
    p, me = dist.get_world_size(), dist.get_rank()
    chunks = x.tensor_split(p)
    for step in range(1, p):
        exchange(dist, chunks[(me - step) % p], (me + 1) % p, chunks[(me - step - 1) % p], (me - 1) % p)
    return chunks[me]

# %% ring_reduce_scatter: chunk me - 2 first
# says: added to a rank's own share
def ring_reduce_scatter(dist, x):
    p, me = dist.get_world_size(), dist.get_rank()
    chunks = x.tensor_split(p)
    for step in range(1, p):
        sent, grows = chunks[(me - step - 1) % p], chunks[(me - step - 2) % p]
        inbox = torch.empty_like(grows)
        exchange(dist, sent, (me + 1) % p, inbox, (me - 1) % p)
        grows += inbox
    return chunks[me]

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
def ring_reduce_scatter(dist, x):
    p, me = dist.get_world_size(), dist.get_rank()
    chunks = x.tensor_split(p)
    inbox = torch.empty_like(chunks[me])
    for step in range(1, p):
        exchange(dist, chunks[(me - step) % p], (me + 1) % p, inbox, (me - 1) % p)
        chunks[(me - step - 1) % p].add_(inbox)
    return chunks[me]

# %% alpha_beta_time: a scatter by p - 1 messages of the root
# says: A scatter by halving
def alpha_beta_time(algorithm, p, vector_bytes, alpha_s, beta_s_per_byte):
    k = (p-1).bit_length()
    B = vector_bytes * beta_s_per_byte
    if algorithm in ("tree_broadcast", "tree_reduce"): return k * (alpha_s + B)
    if algorithm == "tree_all_reduce": return 2 * k * (alpha_s + B)
    if algorithm in ("scatter", "gather"): return (p - 1) * (alpha_s + B / p)
    if algorithm == "ring_all_reduce": return 2 * (p - 1) * (alpha_s + B / p)
    return (p - 1) * (alpha_s + B / p)


def crossover_bytes(p, alpha_s, beta_s_per_byte):
    k = (p-1).bit_length()
    return alpha_s * (p - 1 - k) / (beta_s_per_byte * (k - 1 + 1 / p))

# %% alpha_beta_time: a scatter halves p as if it were a power of two
# says: chunks of p leave the root
def alpha_beta_time(algorithm, p, vector_bytes, alpha_s, beta_s_per_byte):
    k = (p-1).bit_length()
    B = vector_bytes * beta_s_per_byte
    if algorithm in ("tree_broadcast", "tree_reduce"): return k * (alpha_s + B)
    if algorithm == "tree_all_reduce": return 2 * k * (alpha_s + B)
    if algorithm in ("scatter", "gather"): return k * alpha_s + sum(B / 2 ** (i + 1) for i in range(k))
    if algorithm == "ring_all_reduce": return 2 * (p - 1) * (alpha_s + B / p)
    return (p - 1) * (alpha_s + B / p)


def crossover_bytes(p, alpha_s, beta_s_per_byte):
    k = (p-1).bit_length()
    return alpha_s * (p - 1 - k) / (beta_s_per_byte * (k - 1 + 1 / p))

# %% alpha_beta_time: the crossover with a logarithm that is not rounded
# says: a tree's time, against a ring's
def alpha_beta_time(algorithm, p, vector_bytes, alpha_s, beta_s_per_byte):
    k = (p-1).bit_length()
    B = vector_bytes * beta_s_per_byte
    if algorithm in ("tree_broadcast", "tree_reduce"): return k * (alpha_s + B)
    if algorithm == "tree_all_reduce": return 2 * k * (alpha_s + B)
    if algorithm in ("scatter", "gather"): return k * alpha_s + (p - 1) / p * B
    if algorithm == "ring_all_reduce": return 2 * (p - 1) * (alpha_s + B / p)
    return (p - 1) * (alpha_s + B / p)


def crossover_bytes(p, alpha_s, beta_s_per_byte):
    k = np.log2(p)
    return alpha_s * (p - 1 - k) / (beta_s_per_byte * (k - 1 + 1 / p))

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
def ring_in_turns(dist, x, group):
    p, me = dist.get_world_size(), dist.get_rank()
    chunks = x.tensor_split(p)
    inbox = torch.empty_like(chunks[0])
    for step in range(1, 2 * p - 1):
        sent, chunk = chunks[(me - step) % p], chunks[(me - step - 1) % p]
        received = inbox[:len(chunk)] if step < p else chunk
        works = dist.batch_isend_irecv([dist.P2POp(dist.isend, sent, (me + 1) % p, group),
                                        dist.P2POp(dist.irecv, received, (me - 1) % p, group)])
        for work in works:
            work.wait()
        if step < p:
            chunk += received
        yield


def rings_all_reduce(dist, x, groups):
    parts = x.tensor_split(len(groups))
    for _ in itertools.zip_longest(*(ring_in_turns(dist, part, group)
                                     for part, group in zip(parts, groups, strict=True))):
        pass
    return x

# %% rings_all_reduce: all rings on one group
# says: begin a round of each ring
def ring_in_turns(dist, x, group):
    p, me = dist.get_world_size(), dist.get_rank()
    chunks = x.tensor_split(p)
    inbox = torch.empty_like(chunks[0])
    for step in range(1, 2 * p - 1):
        sent, chunk = chunks[(me - step) % p], chunks[(me - step - 1) % p]
        received = inbox[:len(chunk)] if step < p else chunk
        works = dist.batch_isend_irecv([dist.P2POp(dist.isend, sent, (me + 1) % p),
                                        dist.P2POp(dist.irecv, received, (me - 1) % p)])
        yield
        for work in works:
            work.wait()
        if step < p:
            chunk += received


def rings_all_reduce(dist, x, groups):
    parts = x.tensor_split(len(groups))
    for _ in itertools.zip_longest(*(ring_in_turns(dist, part, group)
                                     for part, group in zip(parts, groups, strict=True))):
        pass
    return x

# %% rings_all_reduce: stops when the first ring yields no more
# says: never waited for
def ring_in_turns(dist, x, group):
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


def rings_all_reduce(dist, x, groups):
    parts = x.tensor_split(len(groups))
    for _ in zip(*(ring_in_turns(dist, part, group) for part, group in zip(parts, groups))):
        pass
    return x
