# %% own_shard: padded first
def own_shard(flat, rank, world_size):
    size = -(-len(flat) // world_size)
    padded = torch.cat([flat, flat.new_zeros(size * world_size - len(flat))])
    return padded.view(world_size, size)[rank].clone()

# %% own_shard: with nn.functional.pad
def own_shard(flat, rank, world_size):
    size = (len(flat) + world_size - 1) // world_size
    return nn.functional.pad(flat, (0, size * world_size - len(flat))).split(size)[rank].clone()

# %% own_shard: number by number
def own_shard(flat, rank, world_size):
    size = -(-len(flat) // world_size)
    shard = torch.zeros(size, dtype=flat.dtype)
    for i in range(size):
        if rank * size + i < len(flat):
            shard[i] = flat[rank * size + i]
    return shard

# %% own_shard: by index and mask
def own_shard(flat, rank, world_size):
    size = -(-len(flat) // world_size)
    place = torch.arange(rank * size, (rank + 1) * size)
    return torch.where(place < len(flat), flat[place.clamp(max=len(flat) - 1)], 0.0)

# %% shard_optimizer_state: lists of tensors
def shard_optimizer_state(dist, weights, gradient, state, step):
    p, rank, n = dist.get_world_size(), dist.get_rank(), len(weights)
    parts = [own_shard(gradient, r, p) for r in range(p)]
    total = torch.empty_like(parts[0])
    dist.reduce_scatter(total, parts)
    shard = own_shard(weights, rank, p)
    if "m" not in state:
        state["m"], state["v"] = torch.zeros_like(shard), torch.zeros_like(shard)
    adam(shard, total, state["m"], state["v"], step)
    dist.all_gather(parts, shard)
    weights[:] = torch.cat(parts)[:n]

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

# %% shard_optimizer_state: asynchronous, waited for at once
def shard_optimizer_state(dist, weights, gradient, state, step):
    p, n = dist.get_world_size(), len(weights)
    shard = own_shard(weights, dist.get_rank(), p)
    for name in "mv":
        state.setdefault(name, torch.zeros_like(shard))
    padded = nn.functional.pad(gradient, (0, p * len(shard) - n))
    total = torch.zeros_like(shard)
    dist.reduce_scatter_tensor(total, padded, async_op=True).wait()
    adam(shard, total, state["m"], state["v"], step)
    dist.all_gather_into_tensor(padded, shard, async_op=True).wait()
    with torch.no_grad():
        weights.copy_(padded[:n])

# %% shard_gradients: a dictionary of counters
def shard_gradients(dist, loss, groups, shards):
    p, left, unit_of = dist.get_world_size(), {}, {}
    for i, group in enumerate(groups):
        left[i] = len(group)
        for w in group:
            unit_of[id(w)] = i

    def hook(w):
        i = unit_of[id(w)]
        left[i] -= 1
        if not left[i]:
            whole = torch.zeros(p * len(shards[i]))
            start = 0
            for weight in groups[i]:
                whole[start:start + weight.numel()] = weight.grad.reshape(-1)
                start += weight.numel()
                weight.grad = None
            own = torch.zeros_like(shards[i])
            dist.reduce_scatter_tensor(own, whole)
            shards[i] += own

    handles = [w.register_post_accumulate_grad_hook(hook) for group in groups for w in group]
    loss.backward()
    for handle in handles:
        handle.remove()

# %% shard_gradients: started in the hook, waited for afterwards
def shard_gradients(dist, loss, groups, shards):
    p, started, hooks = dist.get_world_size(), [], []

    def make(group, shard):
        seen = []

        def hook(w):
            seen.append(w)
            if len(seen) == len(group):
                flat = torch.cat([w.grad.flatten() for w in group])
                whole = nn.functional.pad(flat, (0, p * len(shard) - len(flat)))
                for w in group:
                    w.grad = None
                own = torch.empty_like(shard)
                while len(started) > 0:
                    wait_for(started.pop())
                started.append((dist.reduce_scatter_tensor(own, whole, async_op=True), own, shard))
        return hook

    def wait_for(one):
        work, own, shard = one
        work.wait()
        shard += own

    for group, shard in zip(groups, shards):
        hook = make(group, shard)
        hooks += [w.register_post_accumulate_grad_hook(hook) for w in group]
    loss.backward()
    for one in started:
        wait_for(one)
    for hook in hooks:
        hook.remove()

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

# %% clip_shards: with a mask
def clip_shards(dist, shards, sizes, most):
    squares = []
    for shard, size in zip(shards, sizes):
        place = torch.arange(len(shard)) + dist.get_rank() * len(shard)
        squares.append(shard[place < size].square().sum())
    total = torch.stack(squares).sum().reshape(1)
    dist.all_reduce(total)
    norm = float(total) ** 0.5
    if norm > most:
        for shard in shards:
            shard.mul_(most / norm)
    return norm

# %% clip_shards: the padding set to zero first
def clip_shards(dist, shards, sizes, most):
    for shard, size in zip(shards, sizes):
        shard[max(0, size - dist.get_rank() * len(shard)):] = 0
    total = torch.cat([shard.flatten() for shard in shards]).norm() ** 2
    total = total.reshape(1)
    dist.all_reduce(total)
    norm = total.sqrt().item()
    factor = min(1.0, most / norm)
    for shard in shards:
        shard *= factor
    return norm

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

# %% clip_shards: gathered by all ranks
def clip_shards(dist, shards, sizes, most):
    mine = torch.zeros(1)
    for shard, size in zip(shards, sizes):
        count = min(len(shard), max(0, size - dist.get_rank() * len(shard)))
        mine += sum(x * x for x in shard[:count].tolist())
    everyone = torch.empty(dist.get_world_size())
    dist.all_gather_into_tensor(everyone, mine)
    norm = everyone.sum().sqrt().item()
    if norm > most:
        for shard in shards:
            shard *= most / norm
    return norm

# %% gather_parameters: lists
def gather_parameters(dist, unit):
    p, size = dist.get_world_size(), len(unit.shard)
    unit.full = torch.empty(p * size)
    return dist.all_gather(list(unit.full.split(size)), unit.shard, async_op=True)

def release(unit):
    full, unit.full = unit.full, None
    full.untyped_storage().resize_(0)

def reduce_scatter_gradients(dist, unit, gradient):
    own = torch.zeros_like(unit.shard)
    pieces = [piece.clone() for piece in gradient.split(len(own))]
    work = dist.reduce_scatter(own, pieces, async_op=True)
    return lambda: (work.wait(), unit.gradient.add_(own)) and None

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

# %% forward_units: a generator that gathers ahead
def ahead(dist, units):
    works = [gather_parameters(dist, units[0])]
    for i, unit in enumerate(units):
        works.pop().wait()
        if i < len(units) - 1:
            works.append(gather_parameters(dist, units[i + 1]))
        yield i, unit
        release(unit)

def forward_units(dist, units, xs):
    inputs = []
    with torch.no_grad():
        for _, unit in ahead(dist, units):
            inputs.append(list(xs))
            xs = [unit(x) for x in xs]
    return xs, inputs

def backward_units(dist, units, inputs, slopes):
    slopes, last = list(slopes), None
    for i, unit in ahead(dist, units[::-1]):
        first = i == len(units) - 1
        weights = unit.full.requires_grad_()
        total = torch.zeros_like(weights)
        for j, x in enumerate(inputs[len(units) - 1 - i]):
            if not first:
                x = x.detach().requires_grad_()
            y = unit(x)
            got = torch.autograd.grad(y, [weights] if first else [weights, x], slopes[j])
            total += got[0]
            if not first:
                slopes[j] = got[1]
        del y, got, weights
        if last:
            last()
        last = reduce_scatter_gradients(dist, unit, total)
    last()

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

# %% forward_units: recursion
def forward_units(dist, units, xs):
    inputs = []

    def go(i, work, xs):
        work.wait()
        following = gather_parameters(dist, units[i + 1]) if i + 1 < len(units) else None
        inputs.append(xs)
        with torch.no_grad():
            ys = [units[i](x) for x in xs]
        release(units[i])
        return go(i + 1, following, ys) if following else ys

    return go(0, gather_parameters(dist, units[0]), xs), inputs

def backward_units(dist, units, inputs, slopes):
    finishers = []

    def go(i, work, slopes):
        work.wait()
        following = gather_parameters(dist, units[i - 1]) if i else None
        unit = units[i]
        full = unit.full.requires_grad_()
        pairs = []
        for x, slope in zip(inputs[i], slopes):
            leaves = [full, x.requires_grad_()] if i else [full]
            pairs.append(torch.autograd.grad(unit(x), leaves, slope))
        del full
        release(unit)
        finishers.append(reduce_scatter_gradients(dist, unit, sum(pair[0] for pair in pairs)))
        if len(finishers) > 1:
            finishers.pop(0)()
        if following:
            go(i - 1, following, [pair[1] for pair in pairs])

    go(len(units) - 1, gather_parameters(dist, units[-1]), slopes)
    finishers.pop()()

# %% forward_units: the next gather before the wait
def forward_units(dist, units, xs):
    works = {0: gather_parameters(dist, units[0])}
    inputs = []
    for i, unit in enumerate(units):
        if i + 1 < len(units):
            works[i + 1] = gather_parameters(dist, units[i + 1])
        works.pop(i).wait()
        inputs.append([x for x in xs])
        with torch.no_grad():
            xs = [unit(x) for x in xs]
        release(unit)
    return xs, inputs

def backward_units(dist, units, inputs, slopes):
    slopes, n = list(slopes), len(units)
    works = {n - 1: gather_parameters(dist, units[-1])}
    for i in range(n)[::-1]:
        if i:
            works[i - 1] = gather_parameters(dist, units[i - 1])
        works.pop(i).wait()
        unit = units[i]
        unit.full.requires_grad_(True)
        xs = [x.clone().requires_grad_(bool(i)) for x in inputs[i]]
        ys = [unit(x) for x in xs]
        leaves = [unit.full, *(xs if i else [])]
        total, *more = torch.autograd.grad(ys, leaves, slopes)
        slopes = more
        del ys, leaves
        release(unit)
        reduce_scatter_gradients(dist, unit, total)()

# %% communication_hidden: one factor after the other
def step_seconds(weights, tokens, world_size, flops_per_s, bytes_per_s, itemsize=2, flops=6):
    per_rank = tokens / world_size
    compute = weights * per_rank * flops / flops_per_s
    one_collective = (world_size - 1) * (weights / world_size) * itemsize / bytes_per_s
    return compute, sum([one_collective] * 3)

def communication_hidden(world_size, flops_per_s, bytes_per_s, itemsize=2, flops=6):
    compute, wire = step_seconds(1, world_size, world_size, flops_per_s, bytes_per_s, itemsize, flops)
    return wire / compute

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

# %% hybrid_shard: lists
def hybrid_shard(dist, groups, gradient):
    s = dist.get_world_size(groups["gpu"])
    parts = [part.clone() for part in gradient.chunk(s)]
    own = torch.empty_like(parts[0])
    dist.reduce_scatter(own, parts, group=groups["gpu"])
    dist.all_reduce(own, group=groups["node"])
    return own

def hybrid_norm(dist, groups, shard):
    squares = shard.square().sum()[None]
    dist.all_reduce(squares, group=groups["gpu"])
    return float(squares) ** 0.5

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

# %% hybrid_shard: asynchronous
def hybrid_shard(dist, groups, gradient):
    shard = torch.zeros(len(gradient) // dist.get_world_size(groups["gpu"]))
    dist.reduce_scatter_tensor(shard, gradient, group=groups["gpu"], async_op=True).wait()
    dist.all_reduce(shard, group=groups["node"], async_op=True).wait()
    return shard

def hybrid_norm(dist, groups, shard):
    total = torch.tensor([sum(x * x for x in shard.tolist())])
    dist.all_reduce(total, group=groups["gpu"])
    return total.item() ** 0.5

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

# %% shard_pieces: over all old ranks
def shard_pieces(n, p, rank, q):
    old, new = -(-n // p), -(-n // q)
    low, high = rank * new, min(n, (rank + 1) * new)
    found = []
    for owner in range(p):
        start, stop = max(low, owner * old), min(high, (owner + 1) * old)
        if start < stop:
            found.append((owner, start - owner * old, stop - owner * old))
    return found

# %% shard_pieces: number by number
def shard_pieces(n, p, rank, q):
    old, new = -(-n // p), -(-n // q)
    found = {}
    for i in range(rank * new, min(n, (rank + 1) * new)):
        start, _ = found.get(i // old, (i % old, None))
        found[i // old] = (start, i % old + 1)
    return [(owner, *ends) for owner, ends in found.items()]

# %% shard_pieces: NumPy
def shard_pieces(n, p, rank, q):
    old, new = -(-n // p), -(-n // q)
    places = np.arange(n)[rank * new:(rank + 1) * new]
    owners = places // old
    return [(int(o), int(places[owners == o][0] % old), int(places[owners == o][-1] % old) + 1)
            for o in np.unique(owners)]

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
