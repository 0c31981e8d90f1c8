# %% own_shard: math.ceil and F.pad of the part
def own_shard(flat, rank, world_size):
    import math
    size = math.ceil(len(flat) / world_size)
    part = flat[rank * size:rank * size + size]
    return nn.functional.pad(part, (0, size - len(part))) if len(part) < size else part.clone()

# %% shard_optimizer_state: reduce to each owner, broadcast from it
def shard_optimizer_state(dist, weights, gradient, state, step):
    p, rank, n = dist.get_world_size(), dist.get_rank(), len(weights)
    shards = [own_shard(weights, r, p) for r in range(p)]
    for r in range(p):
        part = own_shard(gradient, r, p)
        dist.reduce(part, r)
        if r == rank:
            total = part
    if step == 1:
        state["m"], state["v"] = torch.zeros_like(total), torch.zeros_like(total)
    adam(shards[rank], total, state["m"], state["v"], step)
    for r in range(p):
        dist.broadcast(shards[r], r)
    weights.copy_(torch.cat(shards)[:n])

# %% shard_optimizer_state: all_to_all in place of the reduce-scatter
def shard_optimizer_state(dist, weights, gradient, state, step):
    p, rank, n = dist.get_world_size(), dist.get_rank(), len(weights)
    mine = own_shard(weights, rank, p)
    outgoing = torch.cat([own_shard(gradient, r, p) for r in range(p)])
    incoming = torch.empty_like(outgoing)
    dist.all_to_all_single(incoming, outgoing)
    total = incoming.view(p, -1).sum(0)
    if step == 1:
        state["m"] = torch.zeros(len(mine))
        state["v"] = torch.zeros(len(mine))
    adam(mine, total, state["m"], state["v"], step)
    dist.all_gather_into_tensor(incoming, mine)
    weights[:] = incoming[:n]

# %% shard_optimizer_state: a gather and a broadcast
def shard_optimizer_state(dist, weights, gradient, state, step):
    p, rank, n = dist.get_world_size(), dist.get_rank(), len(weights)
    shard = own_shard(weights, rank, p)
    size = len(shard)
    total = torch.empty(size)
    dist.reduce_scatter(total, list(nn.functional.pad(gradient, (0, p * size - n)).split(size)))
    m, v = (state.setdefault(key, torch.zeros(size)) for key in ("m", "v"))
    adam(shard, total, m, v, step)
    for owner in range(p):
        part = shard if owner == rank else torch.empty(size)
        dist.broadcast(part, src=owner)
        start, stop = owner * size, min(n, (owner + 1) * size)
        weights[start:stop] = part[:max(0, stop - start)]

# %% shard_optimizer_state: point to point
def shard_optimizer_state(dist, weights, gradient, state, step):
    p, rank, n = dist.get_world_size(), dist.get_rank(), len(weights)

    def exchange(outgoing):
        incoming = [torch.empty_like(part) for part in outgoing]
        incoming[rank] = outgoing[rank]
        pairs = [(dist.isend, outgoing[r], r) for r in range(p) if r != rank]
        pairs += [(dist.irecv, incoming[r], r) for r in range(p) if r != rank]
        works = dist.batch_isend_irecv([dist.P2POp(*pair) for pair in pairs]) if p > 1 else []
        for work in works:
            work.wait()
        return incoming

    total = sum(exchange([own_shard(gradient, r, p) for r in range(p)]))
    shard = own_shard(weights, rank, p)
    if not state:
        state.update({"m": total * 0, "v": total * 0})
    adam(shard, total, state["m"], state["v"], step)
    weights.copy_(torch.cat(exchange([shard] * p))[:n])

# %% shard_optimizer_state: an exact view of the weights where there is no padding
def shard_optimizer_state(dist, weights, gradient, state, step):
    p, rank = dist.get_world_size(), dist.get_rank()
    size = -(-len(weights) // p)
    if "v" not in state:
        state["v"] = weights.new_zeros(size)
        state["m"] = weights.new_zeros(size)
    padded_weights, padded_gradient = (
        nn.functional.pad(vector, (0, size * p - len(vector))) for vector in (weights, gradient)
    )
    own = padded_weights.split(size)[rank].clone()
    total = torch.empty_like(own)
    work = dist.reduce_scatter_tensor(total, padded_gradient, async_op=True)
    work.wait()
    adam(own, total, **{key: state[key] for key in ("m", "v")}, step=step)
    dist.all_gather(list(padded_weights.split(size)), own)
    weights.copy_(padded_weights[:len(weights)])

# %% shard_gradients: with a list of pieces
def shard_gradients(dist, loss, groups, shards):
    p, hooks = dist.get_world_size(), []
    counts = [len(group) for group in groups]

    def arrived(i):
        counts[i] -= 1
        if counts[i] == 0:
            flat = torch.cat([w.grad.flatten() for w in groups[i]])
            pieces = [own_shard(flat, r, p) for r in range(p)]
            for w in groups[i]:
                w.grad = None
            own = torch.empty_like(shards[i])
            dist.reduce_scatter(own, pieces)
            shards[i].add_(own)

    for i, group in enumerate(groups):
        for w in group:
            hooks.append(w.register_post_accumulate_grad_hook(lambda _, i=i: arrived(i)))
    loss.backward()
    [hook.remove() for hook in hooks]

# %% shard_gradients: a class that counts
class Bucket:
    def __init__(self, dist, group, shard):
        self.dist, self.group, self.shard, self.left = dist, group, shard, len(group)
        self.handles = [w.register_post_accumulate_grad_hook(self) for w in group]

    def __call__(self, _):
        self.left -= 1
        if self.left:
            return
        p = self.dist.get_world_size()
        flat = torch.cat([w.grad.reshape(-1) for w in self.group])
        for w in self.group:
            w.grad = None
        own = torch.empty_like(self.shard)
        padding = p * len(self.shard) - len(flat)
        self.dist.reduce_scatter_tensor(own, nn.functional.pad(flat, (0, padding)))
        self.shard += own

    def close(self):
        for handle in self.handles:
            handle.remove()

def shard_gradients(dist, loss, groups, shards):
    buckets = [Bucket(dist, *pair) for pair in zip(groups, shards)]
    loss.backward()
    for bucket in buckets:
        bucket.close()

# %% clip_shards: one number per unit
def clip_shards(dist, shards, sizes, most):
    total = torch.zeros(len(shards))
    for i, (shard, size) in enumerate(zip(shards, sizes)):
        real = shard[:max(0, size - dist.get_rank() * len(shard))]
        total[i] = real @ real
    dist.all_reduce(total)
    norm = total.sum().sqrt().item()
    if norm > most:
        torch._foreach_mul_(shards, most / norm)
    return norm

# %% clip_shards: a reduce and a broadcast
def clip_shards(dist, shards, sizes, most):
    total = torch.zeros(1)
    for shard, size in zip(shards, sizes):
        total += shard[:max(0, size - dist.get_rank() * len(shard))].pow(2).sum()
    dist.reduce(total, 0)
    dist.broadcast(total, 0)
    norm = total.sqrt().item()
    scale = torch.clamp(torch.tensor(most / norm), max=1.0)
    for shard in shards:
        shard.mul_(scale)
    return norm

# %% gather_parameters: a class for the handle
def gather_parameters(dist, unit):
    unit.full = unit.shard.repeat(dist.get_world_size())
    return dist.all_gather_into_tensor(unit.full, unit.shard.clone(), async_op=True)

def release(unit):
    storage = unit.full.untyped_storage()
    unit.full = None
    storage.resize_(0)

class Pending:
    def __init__(self, work, own, unit):
        self.work, self.own, self.unit = work, own, unit

    def __call__(self):
        self.work.wait()
        self.unit.gradient = self.unit.gradient + self.own

def reduce_scatter_gradients(dist, unit, gradient):
    own = torch.empty(len(unit.gradient))
    return Pending(dist.reduce_scatter_tensor(own, gradient.contiguous(), async_op=True), own, unit)

# %% gather_parameters: functools.partial
def gather_parameters(dist, unit):
    unit.full = torch.zeros(dist.get_world_size() * unit.shard.numel(), dtype=unit.shard.dtype)
    return dist.all_gather_into_tensor(unit.full, unit.shard, async_op=True)

def release(unit):
    unit.full.untyped_storage().resize_(0)
    unit.full = None

def _finish(work, own, unit):
    work.wait()
    unit.gradient += own

def reduce_scatter_gradients(dist, unit, gradient):
    own = torch.empty_like(unit.gradient)
    work = dist.reduce_scatter_tensor(own, gradient, async_op=True)
    return functools.partial(_finish, work, own, unit)

# %% gather_parameters: a bound method
class Reduction:
    def __init__(self, dist, unit, gradient):
        self.unit, self.own = unit, torch.empty_like(unit.gradient)
        self.work = dist.reduce_scatter_tensor(self.own, gradient, async_op=True)

    def add(self):
        self.work.wait()
        self.unit.gradient += self.own
        self.own = self.work = None

def gather_parameters(dist, unit):
    unit.full = torch.empty_like(unit.shard).repeat(dist.get_world_size())
    return dist.all_gather_into_tensor(unit.full, unit.shard, async_op=True)

def release(unit):
    unit.full.untyped_storage().resize_(0)
    unit.full = None

def reduce_scatter_gradients(dist, unit, gradient):
    return Reduction(dist, unit, gradient).add

# %% forward_units: backward() in place of autograd.grad
def forward_units(dist, units, xs):
    inputs, handle = [], gather_parameters(dist, units[0])
    for i in range(len(units)):
        handle.wait()
        if i != len(units) - 1:
            handle = gather_parameters(dist, units[i + 1])
        inputs += [xs]
        with torch.no_grad():
            outputs = []
            for x in xs:
                outputs.append(units[i](x))
        release(units[i])
        xs = outputs
    return xs, inputs

def backward_units(dist, units, inputs, slopes):
    slopes = [slope.clone() for slope in slopes]
    handle = gather_parameters(dist, units[-1])
    for i in range(len(units) - 1, -1, -1):
        unit = units[i]
        handle.wait()
        if i > 0:
            handle = gather_parameters(dist, units[i - 1])
        weights = unit.full.detach().requires_grad_()
        unit.full = weights
        for j in range(len(slopes)):
            x = inputs[i][j].detach()
            if i > 0:
                x.requires_grad_()
            unit(x).backward(slopes[j])
            slopes[j] = x.grad
        gradient, weights.grad = weights.grad, None
        release(unit)
        reduce_scatter_gradients(dist, unit, gradient)()

# %% communication_hidden: by bisection
def step_seconds(weights, tokens, world_size, flops_per_s, bytes_per_s, itemsize=2, flops=6):
    return (flops * weights * tokens / (world_size * flops_per_s),
            3 * (1 - 1 / world_size) * weights * itemsize / bytes_per_s)

def communication_hidden(world_size, flops_per_s, bytes_per_s, itemsize=2, flops=6):
    low, high = 0.0, 1e12
    for _ in range(200):
        middle = (low + high) / 2
        how = world_size, flops_per_s, bytes_per_s, itemsize, flops
        compute, wire = step_seconds(1.0, middle * world_size, *how)
        low, high = (middle, high) if compute < wire else (low, middle)
    return high

# %% communication_hidden: NumPy
def step_seconds(weights, tokens, world_size, flops_per_s, bytes_per_s, itemsize=2, flops=6):
    compute = np.prod([flops, weights, tokens]) / np.prod([float(world_size), flops_per_s])
    return float(compute), float(3 * weights * itemsize * (world_size - 1) / world_size / bytes_per_s)

def communication_hidden(world_size, flops_per_s, bytes_per_s, itemsize=2, flops=6):
    intensity = flops_per_s / bytes_per_s
    return intensity * itemsize * (3 / flops) * (world_size - 1) / world_size

# %% hybrid_shard: a reduce-scatter and an all-gather between the nodes
def hybrid_shard(dist, groups, gradient):
    s, nodes = (dist.get_world_size(groups[name]) for name in ("gpu", "node"))
    own = gradient.new_empty(len(gradient) // s)
    dist.reduce_scatter_tensor(own, gradient, group=groups["gpu"])
    padded = nn.functional.pad(own, (0, -len(own) % nodes))
    part = own.new_empty(len(padded) // nodes)
    dist.reduce_scatter_tensor(part, padded, group=groups["node"])
    dist.all_gather_into_tensor(padded, part, group=groups["node"])
    return padded[:len(own)].clone()

def hybrid_norm(dist, groups, shard):
    total = shard @ shard
    everyone = torch.empty(dist.get_world_size(groups["gpu"]))
    dist.all_gather_into_tensor(everyone, total.reshape(1), group=groups["gpu"])
    return everyone.sum().sqrt().item()

# %% hybrid_shard: reduce and broadcast within the node
def hybrid_shard(dist, groups, gradient):
    s, me = dist.get_world_size(groups["gpu"]), dist.get_rank(groups["gpu"])
    for r, part in enumerate(gradient.view(s, -1)):
        part = part.clone()
        dist.reduce(part, group_dst=r, group=groups["gpu"])
        if r == me:
            own = part
    dist.all_reduce(own, group=groups["node"])
    return own

def hybrid_norm(dist, groups, shard):
    total = (shard ** 2).sum().view(1)
    dist.all_reduce(total, op=dist.ReduceOp.SUM, group=groups["gpu"])
    return total.sqrt().item()

# %% hybrid_shard: an all-gather between two nodes
def hybrid_shard(dist, groups, gradient):
    s = dist.get_world_size(groups["gpu"])
    own = torch.empty(len(gradient) // s)
    dist.reduce_scatter_tensor(own, gradient.clone(), group=groups["gpu"])
    if dist.get_world_size(groups["node"]) == 2:  # as many bytes as an all-reduce, in one round
        both = [torch.empty_like(own) for _ in range(2)]
        dist.all_gather(both, own, group=groups["node"])
        return both[0] + both[1]
    dist.all_reduce(own, group=groups["node"])
    return own

def hybrid_norm(dist, groups, shard):
    squares = torch.dot(shard, shard).view(1).clone()
    dist.all_reduce(squares, group=groups["gpu"])
    return squares.sqrt().item()

# %% hybrid_shard: all_to_all within the node
def hybrid_shard(dist, groups, gradient):
    s = dist.get_world_size(groups["gpu"])
    incoming = torch.empty_like(gradient)
    dist.all_to_all_single(incoming, gradient.contiguous(), group=groups["gpu"])
    shard = incoming.view(s, -1).sum(dim=0)
    dist.all_reduce(shard, group=groups["node"])
    return shard

def hybrid_norm(dist, groups, shard):
    total = torch.zeros(1)
    total[0] = torch.linalg.vector_norm(shard) ** 2
    dist.all_reduce(total, group=groups["gpu"])
    return float(total[0]) ** 0.5

# %% hybrid_shard: reduce and broadcast between the nodes
def hybrid_shard(dist, groups, gradient):
    shard = gradient.new_zeros(gradient.numel() // dist.get_world_size(group=groups["gpu"]))
    dist.reduce_scatter_tensor(shard, gradient, op=dist.ReduceOp.SUM, group=groups["gpu"])
    dist.reduce(shard, group_dst=0, group=groups["node"])
    dist.broadcast(shard, group_src=0, group=groups["node"])
    return shard

def hybrid_norm(dist, groups, shard):
    total = (shard * shard).sum().unsqueeze(0)
    dist.reduce(total, group_dst=0, group=groups["gpu"])
    dist.broadcast(total, group_src=0, group=groups["gpu"])
    return total.sqrt().item()

# %% hybrid_shard: an all-reduce in the node, then a slice
def hybrid_shard(dist, groups, gradient):
    s, me = dist.get_world_size(groups["gpu"]), dist.get_rank(groups["gpu"])
    inside = gradient.clone()
    dist.all_reduce(inside, group=groups["gpu"])
    size = len(gradient) // s
    shard = inside[me * size:(me + 1) * size].clone()
    dist.all_reduce(shard, group=groups["node"])
    return shard

def hybrid_norm(dist, groups, shard):
    total = shard.pow(2).sum(dim=0, keepdim=True)
    work = dist.all_reduce(total, group=groups["gpu"], async_op=True)
    work.wait()
    return np.sqrt(total.item()).item()

# %% shard_pieces: NumPy
def shard_pieces(n, p, rank, q):
    old, new = -(-n // p), -(-n // q)
    places = np.arange(n)[rank * new:(rank + 1) * new]
    owners = places // old
    return [(int(o), int(places[owners == o][0] % old), int(places[owners == o][-1] % old) + 1)
            for o in np.unique(owners)]

# %% shard_pieces: itertools.groupby
def shard_pieces(n, p, rank, q):
    import itertools
    old, new = (n + p - 1) // p, (n + q - 1) // q
    mine = range(rank * new, min(n, rank * new + new))
    found = []
    for owner, places in itertools.groupby(mine, key=lambda i: i // old):
        places = list(places)
        found.append((owner, places[0] % old, places[-1] % old + 1))
    return found

# %% shard_pieces: a comprehension with ranges
def shard_pieces(n, p, rank, q):
    old, new = -(-n // p), -(-n // q)
    first, last = rank * new, min(n, (rank + 1) * new)
    overlaps = (range(max(first, r * old), min(last, r * old + old)) for r in range(p))
    return [(r, o.start - r * old, o.stop - r * old) for r, o in enumerate(overlaps) if len(o)]

# %% test_global_norm: against the library, on one large case
def test_global_norm(candidate):
    for p, sizes in ((4, [3, 13, 6]), (5, [6, 2]), (1, [4, 4]), (2, [5])):
        flats = [torch.randn(n) for n in sizes]
        want = torch.linalg.vector_norm(torch.cat(flats))
        shards = []
        for r in range(p):
            own = []
            for flat in flats:
                size = -(-len(flat) // p)
                shard = torch.randn(size) * 10
                part = flat[r * size:(r + 1) * size]
                shard[:len(part)] = part
                own.append(shard)
            shards.append(own)
        for got in ranks.run(candidate, ranks.each(shards), sizes, world_size=p).returns:
            torch.testing.assert_close(torch.tensor(got), want, rtol=1e-10, atol=0)

# %% test_global_norm: whole numbers whose norm is known
def test_global_norm(candidate):
    for p, sizes in ((1, [3, 1]), (2, [5]), (3, [2, 8]), (4, [9, 1, 6])):
        flats = [torch.arange(1.0, n + 1) * (-1) ** i for i, n in enumerate(sizes)]
        shards = []
        for r in range(p):
            shards.append([])
            for flat in flats:
                shard = own_shard(flat, r, p)
                real = max(0, min(len(shard), len(flat) - r * len(shard)))
                shard[real:] = -50.0
                shards[-1].append(shard)
        want = sum(i * i for n in sizes for i in range(1, n + 1)) ** 0.5
        for rank, got in enumerate(ranks.run(candidate, ranks.each(shards), sizes, world_size=p).returns):
            assert abs(got - want) < 1e-9, f"rank {rank}: {got}, not {want}"

# %% test_global_norm: padded with NaN
def test_global_norm(candidate):
    for p in (1, 2, 3, 5):
        sizes = [4 * p, 4 * p - 1, 1]
        flats = [torch.tensor(rng.normal(size=n)) for n in sizes]
        wholes = [nn.functional.pad(flat, (0, -len(flat) % p), value=float("nan")) for flat in flats]
        shards = [[whole.view(p, -1)[r].clone() for whole in wholes] for r in range(p)]
        want = np.linalg.norm(torch.cat(flats).numpy())
        returns = ranks.run(candidate, ranks.each(shards), sizes, world_size=p).returns
        np.testing.assert_allclose(returns, [want] * p, rtol=1e-10)

# %% test_global_norm: many random cases
def test_global_norm(candidate):
    for _ in range(12):
        p, sizes = int(rng.integers(1, 6)), rng.integers(1, 15, int(rng.integers(1, 5))).tolist()
        total, shards = 0.0, [[] for _ in range(p)]
        for n in sizes:
            numbers = rng.normal(0, 2, n)
            total += float((numbers ** 2).sum())
            size = -(-n // p)
            padded = np.concatenate([numbers, rng.uniform(3, 4, p * size - n)])
            for r in range(p):
                shards[r].append(torch.tensor(padded[r * size:(r + 1) * size]))
        got = ranks.run(candidate, ranks.each(shards), sizes, world_size=p).returns
        assert len(got) == p
        assert np.allclose(got, total ** 0.5, rtol=1e-9, atol=0), f"{p} ranks, {sizes}"

# %% test_global_norm: against clip_shards
def test_global_norm(candidate):
    def reference(dist, shards, sizes):
        return clip_shards(dist, [shard.clone() for shard in shards], sizes, 1e9)

    for p, sizes in ((1, [6]), (2, [7, 3]), (4, [5, 10, 2]), (3, [9])):
        shards = [[torch.tensor(rng.normal(1, 2, -(-n // p))) for n in sizes] for _ in range(p)]
        want = ranks.run(reference, ranks.each(shards), sizes, world_size=p).returns
        got = ranks.run(candidate, ranks.each(shards), sizes, world_size=p).returns
        for a, b in zip(got, want):
            assert abs(a - b) <= 1e-10 * b

# %% test_global_norm: one number at a time
def test_global_norm(candidate):
    for p, sizes in ((3, [4, 2]), (2, [1, 5]), (1, [3])):
        for unit, n in enumerate(sizes):
            for place in range(n):
                shards = [[torch.full((-(-m // p),), 9.0) for m in sizes] for _ in range(p)]
                for i, m in enumerate(sizes):
                    size = -(-m // p)
                    for k in range(m):
                        shards[k // size][i][k % size] = 3.0 if (i, k) == (unit, place) else 1.0
                want = (sum(sizes) - 1 + 9.0) ** 0.5
                for got in ranks.run(candidate, ranks.each(shards), sizes, world_size=p).returns:
                    assert abs(got - want) < 1e-9, f"number {place} of unit {unit}, {p} ranks"

# %% test_global_norm: padding on several ranks
def test_global_norm(candidate):
    cases = {4: [2, 9, 5], 5: [6, 11], 2: [8, 1], 1: [4], 3: [12]}
    for p, sizes in cases.items():
        flats = {i: torch.randn(n) * 4 for i, n in enumerate(sizes)}
        by_rank = []
        for rank in range(p):
            own = []
            for i, n in enumerate(sizes):
                size = (n + p - 1) // p
                real = flats[i][rank * size:(rank + 1) * size]
                own.append(torch.cat([real, torch.rand(size - len(real)) + 6]))
            by_rank.append(own)
        want = torch.cat(list(flats.values())).square().sum().sqrt()
        result = ranks.run(candidate, ranks.each(by_rank), sizes, world_size=p)
        for got in result.returns:
            assert torch.isclose(torch.tensor(got), want, rtol=1e-9), (p, sizes, got, want)

# %% own_shard: a loop over its places
def own_shard(flat, rank, world_size):
    n = flat.numel()
    size = (n + world_size - 1) // world_size
    out = torch.zeros_like(flat).resize_(0).new_zeros(size)
    for i, j in enumerate(range(rank * size, min(n, (rank + 1) * size))):
        out[i] = flat[j]
    return out

# %% shard_gradients: a class per unit
class UnitHook:
    def __init__(self, dist, group, shard):
        self.dist, self.group, self.shard, self.seen = dist, group, shard, 0
        self.handles = [w.register_post_accumulate_grad_hook(self) for w in group]
    def __call__(self, _):
        self.seen += 1
        if self.seen == len(self.group):
            p, size = self.dist.get_world_size(), len(self.shard)
            flat = torch.zeros(p * size)
            torch.cat([w.grad.ravel() for w in self.group], out=flat[:sum(w.numel() for w in self.group)])
            for w in self.group:
                w.grad = None
            got = torch.empty(size)
            self.dist.reduce_scatter_tensor(got, flat)
            self.shard.add_(got)
    def close(self):
        for h in self.handles:
            h.remove()

def shard_gradients(dist, loss, groups, shards):
    hooks = [UnitHook(dist, g, s) for g, s in zip(groups, shards)]
    loss.backward()
    for h in hooks:
        h.close()

# %% clip_shards: all_gather of one number
def clip_shards(dist, shards, sizes, most):
    p, rank = dist.get_world_size(), dist.get_rank()
    mine = sum((s[:max(0, n - rank * len(s))] @ s[:max(0, n - rank * len(s))] for s, n in zip(shards, sizes)), torch.zeros(()))
    parts = torch.empty(p)
    dist.all_gather_into_tensor(parts, mine.reshape(1))
    norm = parts.sum().sqrt().item()
    if norm > most:
        for s in shards:
            s *= most / norm
    return norm

# %% gather_parameters: a list of views of the whole
def gather_parameters(dist, unit):
    unit.full = unit.shard.new_zeros(dist.get_world_size() * len(unit.shard))
    return dist.all_gather(list(unit.full.chunk(dist.get_world_size())), unit.shard, async_op=True)

def release(unit):
    unit.full.untyped_storage().resize_(0)
    unit.full = None

def reduce_scatter_gradients(dist, unit, gradient):
    own = torch.empty_like(unit.shard)
    work = dist.reduce_scatter(own, list(gradient.chunk(dist.get_world_size())), async_op=True)
    return lambda: (work.wait(), unit.gradient.add_(own))

# %% forward_units: generators of gathered units
def gathered(dist, units):
    work = gather_parameters(dist, units[0])
    for i, unit in enumerate(units):
        work.wait()
        if i + 1 < len(units):
            work = gather_parameters(dist, units[i + 1])
        yield unit
        release(unit)

def forward_units(dist, units, xs):
    inputs = []
    with torch.no_grad():
        for unit in gathered(dist, units):
            inputs.append(xs)
            xs = [unit(x) for x in xs]
    return xs, inputs

def of_unit(unit, xs, slopes, is_first):
    total, full = None, unit.full.requires_grad_()
    for j, x in enumerate(xs):
        leaves = [full] if is_first else [full, x.requires_grad_()]
        by_full, *rest = torch.autograd.grad(unit(x), leaves, slopes[j])
        total = by_full if total is None else total + by_full
        slopes[j] = rest[0] if rest else None
    return total

def backward_units(dist, units, inputs, slopes):
    slopes, arrived, total = list(slopes), lambda: None, None
    last = None
    for unit, i in zip(gathered(dist, units[::-1]), range(len(units) - 1, -1, -1)):
        if last is not None:
            arrived = reduce_scatter_gradients(dist, last, total)
            total = None
            arrived()
        total, last = of_unit(unit, inputs[i], slopes, i == 0), unit
    reduce_scatter_gradients(dist, last, total)()

# %% own_shard: split, and nothing beyond the last part
def own_shard(flat, rank, world_size):
    size = -(-len(flat) // world_size)
    parts = dict(enumerate(flat.split(size)))
    part = parts.get(rank, flat[:0])
    return torch.hstack([part, torch.zeros(size - len(part))])

# %% shard_optimizer_state: under no_grad, in place in one padded copy
@torch.no_grad()
def shard_optimizer_state(dist, weights, gradient, state, step):
    p, rank, n = dist.get_world_size(), dist.get_rank(), len(weights)
    size = -(-n // p)
    padded = nn.functional.pad(weights, (0, p * size - n))
    own = padded.view(p, size)[rank]
    grads = nn.functional.pad(gradient, (0, p * size - n))
    total = grads.view(p, size)[rank]
    dist.reduce_scatter_tensor(total, grads)
    if not state:
        both = torch.zeros(2, size)
        state["m"], state["v"] = both
    adam(own, total, state["m"], state["v"], step)
    dist.all_gather_into_tensor(padded, own)
    weights.copy_(padded[:n])

# %% shard_optimizer_state: remembers the step, too
def shard_optimizer_state(dist, weights, gradient, state, step):
    p, rank, n = dist.get_world_size(), dist.get_rank(), len(weights)
    shard = own_shard(weights, rank, p)
    if step == 1:
        state.update(m=torch.zeros(len(shard)), v=torch.zeros(len(shard)), step=0)
    state["step"] = step
    padded = torch.cat([own_shard(gradient, r, p) for r in range(p)])
    total = padded.new_empty(len(shard))
    dist.reduce_scatter_tensor(total, padded)
    adam(shard, total, m=state["m"], v=state["v"], step=state["step"])
    dist.all_gather_into_tensor(padded, shard)
    weights[:] = padded[:n]

# %% gather_parameters: the data replaced
def gather_parameters(dist, unit):
    p, n = dist.get_world_size(), unit.shard.numel()
    unit.full = torch.zeros(p * n, dtype=unit.shard.dtype)
    return dist.all_gather_into_tensor(unit.full, unit.shard, async_op=True)

def release(unit):
    unit.full.data = torch.empty(0)
    unit.full = None

def reduce_scatter_gradients(dist, unit, gradient):
    p = dist.get_world_size()
    came = torch.empty_like(gradient)
    work = dist.all_to_all_single(came, gradient, async_op=True)

    def finish():
        work.wait()
        unit.gradient.add_(came.view(p, -1).sum(0))

    return finish

# %% forward_units: pairs of neighbours, backward with enable_grad and stacks
from itertools import zip_longest

@torch.no_grad()
def forward_units(dist, units, xs):
    kept, handle = [], gather_parameters(dist, units[0])
    for unit, following in zip_longest(units, units[1:]):
        handle.wait()
        handle = following and gather_parameters(dist, following)
        kept.append(list(xs))
        xs = tuple(map(unit, xs))
        release(unit)
    return list(xs), kept

def backward_units(dist, units, inputs, slopes):
    handle, finish = gather_parameters(dist, units[-1]), None
    order = list(zip(units, inputs))[::-1]
    for place, (unit, xs) in enumerate(order):
        handle.wait()
        if place + 1 < len(order):
            handle = gather_parameters(dist, order[place + 1][0])
        if finish is not None:
            finish()
        is_last, parts, back = place + 1 == len(order), [], []
        unit.full.requires_grad_()
        for x, slope in zip(xs, slopes):
            if not is_last:
                x = x.detach().clone().requires_grad_()
            with torch.enable_grad():
                y = unit(x)
            by_weights, *by_input = torch.autograd.grad(y, [unit.full] + [x] * (not is_last), slope)
            parts.append(by_weights)
            back += by_input
            del y, by_weights
        release(unit)
        slopes = back
        finish = reduce_scatter_gradients(dist, unit, torch.stack(parts).sum(0) if len(parts) > 1 else parts[0])
        del parts
    finish()

# %% hybrid_shard: the norm from everybody's squares
def hybrid_shard(dist, groups, gradient):
    s = dist.get_world_size(groups["gpu"])
    shard = torch.zeros(len(gradient) // s)
    dist.reduce_scatter_tensor(shard, gradient.contiguous(), group=groups["gpu"])
    dist.all_reduce(shard, op=dist.ReduceOp.SUM, group=groups["node"])
    return shard

def hybrid_norm(dist, groups, shard):
    squares = torch.empty(dist.get_world_size())
    dist.all_gather_into_tensor(squares, (shard @ shard).reshape(1))
    return (squares.sum() / dist.get_world_size(groups["node"])).sqrt().item()

# %% hybrid_shard: the norm by reduce and broadcast over all ranks
def hybrid_shard(dist, groups, gradient):
    shard = gradient.new_zeros(gradient.numel() // dist.get_world_size(groups["gpu"]))
    dist.reduce_scatter(shard, [part.clone() for part in gradient.split(len(shard))], group=groups["gpu"])
    dist.all_reduce(shard, group=groups["node"])
    return shard

def hybrid_norm(dist, groups, shard):
    total = torch.tensor([float(shard.norm()) ** 2])
    dist.reduce(total, 0)
    dist.broadcast(total, 0)
    return (total.item() / dist.get_world_size(groups["node"])) ** 0.5

# %% communication_hidden: the two times in a list
# edit: return compute_s, communication_s  ->  return [compute_s, communication_s]
