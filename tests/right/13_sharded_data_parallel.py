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

# %% own_shard: narrow and copy_
def own_shard(flat, rank, world_size):
    size = -(-flat.numel() // world_size)
    shard = torch.zeros(size, dtype=flat.dtype)
    start = min(rank * size, len(flat))
    count = min(size, len(flat) - start)
    shard.narrow(0, 0, count).copy_(flat.narrow(0, start, count))
    return shard

# %% own_shard: math.ceil and F.pad of the part
def own_shard(flat, rank, world_size):
    import math
    size = math.ceil(len(flat) / world_size)
    part = flat[rank * size:rank * size + size]
    return nn.functional.pad(part, (0, size - len(part))) if len(part) < size else part.clone()

# %% own_shard: through NumPy
def own_shard(flat, rank, world_size):
    size = -(-len(flat) // world_size)
    padded = np.zeros(size * world_size)
    padded[:len(flat)] = flat.numpy()
    return torch.from_numpy(padded.reshape(world_size, size)[rank].copy())

# %% own_shard: a list of numbers
def own_shard(flat, rank, world_size):
    size = -(-len(flat) // world_size)
    numbers = flat.tolist()[rank * size:(rank + 1) * size]
    return torch.tensor(numbers + [0.0] * (size - len(numbers)), dtype=flat.dtype)

# %% own_shard: cat of the part and zeros
def own_shard(flat, rank, world_size):
    size, rest = divmod(len(flat), world_size)
    size += rest > 0
    part = flat[rank * size:][:size]
    return torch.cat((part, part.new_zeros(size - part.numel())))

# %% own_shard: a matrix with one row per rank
def own_shard(flat, rank, world_size):
    rows = flat.new_zeros(world_size, -(-len(flat) // world_size))
    rows.view(-1)[:len(flat)] = flat
    return torch.clone(rows[rank])

# %% own_shard: gather by take
def own_shard(flat, rank, world_size):
    size = -(-len(flat) // world_size)
    padded = torch.cat([flat, torch.zeros(world_size * size - len(flat), dtype=flat.dtype)])
    return torch.take(padded, rank * size + torch.arange(size))

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

# %% shard_optimizer_state: the state made by a helper
def new_state(like):
    return {"m": torch.zeros_like(like), "v": torch.zeros_like(like)}

def shard_optimizer_state(dist, weights, gradient, state, step):
    p, n = dist.get_world_size(), weights.numel()
    mine = own_shard(weights, dist.get_rank(), p)
    if len(state) == 0:
        state |= new_state(mine)
    padded = torch.cat([gradient, gradient.new_zeros(p * len(mine) - n)])
    dist.reduce_scatter_tensor(summed := torch.empty_like(mine), padded)
    adam(mine, summed, state["m"], state["v"], step)
    dist.all_gather_into_tensor(gathered := torch.empty_like(padded), mine)
    weights.copy_(gathered[:n])

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

# %% shard_optimizer_state: new m and v in the dictionary
def shard_optimizer_state(dist, weights, gradient, state, step):
    p, n = dist.get_world_size(), len(weights)
    shard = own_shard(weights, dist.get_rank(), p)
    m = state["m"].clone() if state else torch.zeros_like(shard)
    v = state["v"].clone() if state else torch.zeros_like(shard)
    whole = torch.zeros(p * len(shard))
    whole[:n] = gradient
    total = torch.zeros_like(shard)
    dist.reduce_scatter_tensor(total, whole)
    adam(shard, total, m, v, step)
    state["m"], state["v"] = m, v
    dist.all_gather_into_tensor(whole, shard)
    weights.copy_(whole[:n])

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

# %% shard_optimizer_state: with SUM by name and in steps
def shard_optimizer_state(dist, weights, gradient, state, step):
    world = dist.get_world_size()
    per_rank = (len(weights) + world - 1) // world
    send = torch.zeros(world, per_rank)
    send.view(-1)[:len(gradient)].copy_(gradient)
    received = torch.zeros(per_rank)
    dist.reduce_scatter_tensor(received, send.view(-1), op=dist.ReduceOp.SUM)
    mine = own_shard(weights, dist.get_rank(), world)
    if state == {}:
        state["m"] = torch.zeros(per_rank)
        state["v"] = torch.zeros(per_rank)
    adam(mine, received, state["m"], state["v"], step)
    dist.all_gather_into_tensor(send.view(-1), mine)
    weights.copy_(send.flatten()[:len(weights)])

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

# %% shard_gradients: all of a unit's gradients are there
def shard_gradients(dist, loss, groups, shards):
    p = dist.get_world_size()

    def hook_of(group, shard):
        def hook(_):
            if any(w.grad is None for w in group):
                return
            whole = torch.zeros(p * shard.numel())
            torch.cat([w.grad.flatten() for w in group], out=whole[:sum(w.numel() for w in group)])
            for w in group:
                w.grad = None
            part = torch.empty_like(shard)
            dist.reduce_scatter_tensor(part, whole)
            shard.add_(part)
        return hook

    handles = []
    for group, shard in zip(groups, shards):
        for w in group:
            handles.append(w.register_post_accumulate_grad_hook(hook_of(group, shard)))
    loss.backward()
    while handles:
        handles.pop().remove()

# %% shard_gradients: try and finally
def shard_gradients(dist, loss, groups, shards):
    p, waiting = dist.get_world_size(), [set(map(id, group)) for group in groups]
    handles = []

    def arrived(unit, w):
        waiting[unit].discard(id(w))
        if waiting[unit]:
            return
        buffer = shards[unit].new_zeros(p, len(shards[unit]))
        start = 0
        for weight in groups[unit]:
            buffer.view(-1)[start:start + weight.numel()] = weight.grad.view(-1)
            start, weight.grad = start + weight.numel(), None
        mine = torch.empty_like(buffer[0])
        dist.reduce_scatter_tensor(mine, buffer.view(-1))
        shards[unit] += mine

    try:
        for unit, group in enumerate(groups):
            for w in group:
                hook = functools.partial(arrived, unit)
                handles.append(w.register_post_accumulate_grad_hook(hook))
        loss.backward()
    finally:
        for handle in handles:
            handle.remove()

# %% shard_gradients: parameters_to_vector and iterators
def shard_gradients(dist, loss, groups, shards):
    def send(group, shard):
        flat = nn.utils.parameters_to_vector(w.grad for w in group)
        for w in group:
            w.grad = None
        missing = shard.numel() * dist.get_world_size() - flat.numel()
        own = torch.zeros_like(shard)
        dist.reduce_scatter_tensor(own, torch.cat([flat, flat.new_zeros(missing)]))
        shard.copy_(shard + own)

    def counter(group, shard):
        ticks = iter(range(len(group) - 1, -1, -1))
        return lambda _: None if next(ticks) else send(group, shard)

    hooks = []
    for group, shard in zip(groups, shards):
        tick = counter(group, shard)
        hooks.extend(w.register_post_accumulate_grad_hook(tick) for w in group)
    loss.backward()
    for hook in hooks:
        hook.remove()

# %% shard_gradients: an ExitStack removes the hooks
def shard_gradients(dist, loss, groups, shards):
    import contextlib
    p = dist.get_world_size()
    with contextlib.ExitStack() as stack:
        for group, shard in zip(groups, shards):
            state = {"left": len(group)}

            def hook(_, group=group, shard=shard, state=state):
                state["left"] -= 1
                if state["left"] == 0:
                    grads = [w.grad.flatten() for w in group]
                    for w in group:
                        w.grad = None
                    n = sum(len(g) for g in grads)
                    whole = torch.cat([*grads, torch.zeros(p * len(shard) - n)])
                    del grads
                    own = torch.empty(len(shard))
                    dist.reduce_scatter_tensor(own, whole)
                    shard.add_(own)

            for w in group:
                stack.callback(w.register_post_accumulate_grad_hook(hook).remove)
        loss.backward()

# %% shard_gradients: scaled in place, one buffer for all units
def shard_gradients(dist, loss, groups, shards):
    p, counts, hooks = dist.get_world_size(), [0] * len(groups), []
    room = torch.zeros(p * max(len(shard) for shard in shards))

    def finish(i):
        whole = room[:p * len(shards[i])].zero_()
        flat = torch.cat([w.grad.flatten() for w in groups[i]])
        whole[:len(flat)] = flat
        for w in groups[i]:
            w.grad = None
        own = torch.empty_like(shards[i])
        dist.reduce_scatter_tensor(own, whole)
        shards[i].add_(own)

    def make_hook(i):
        def hook(_):
            counts[i] += 1
            if counts[i] == len(groups[i]):
                finish(i)
        return hook

    for i, group in enumerate(groups):
        hooks += [w.register_post_accumulate_grad_hook(make_hook(i)) for w in group]
    loss.backward()
    for hook in hooks:
        hook.remove()

# %% shard_gradients: asynchronous, at most one on its way
def shard_gradients(dist, loss, groups, shards):
    p, pending, hooks = dist.get_world_size(), None, []

    def settle():
        nonlocal pending
        if pending is not None:
            work, own, shard = pending
            work.wait()
            shard.add_(own)
            pending = None

    def hook_of(group, shard, left):
        def hook(_):
            nonlocal left, pending
            left -= 1
            if left == 0:
                whole = own_shard(torch.cat([w.grad.flatten() for w in group]), 0, 1)
                for w in group:
                    w.grad = None
                whole = nn.functional.pad(whole, (0, p * len(shard) - len(whole)))
                settle()
                own = torch.empty_like(shard)
                pending = dist.reduce_scatter_tensor(own, whole, async_op=True), own, shard
        return hook

    for group, shard in zip(groups, shards):
        hook = hook_of(group, shard, len(group))
        hooks += [w.register_post_accumulate_grad_hook(hook) for w in group]
    loss.backward()
    settle()
    for hook in hooks:
        hook.remove()

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

# %% clip_shards: NumPy
def clip_shards(dist, shards, sizes, most):
    rank, total = dist.get_rank(), 0.0
    for shard, size in zip(shards, sizes):
        real = shard.numpy()[:max(0, size - rank * len(shard))]
        total += float(np.dot(real, real))
    total = torch.tensor([total])
    dist.all_reduce(total)
    norm = float(np.sqrt(total.item()))
    for shard in shards:
        shard *= min(1.0, most / norm)
    return norm

# %% clip_shards: torch.cat of all that is real
def clip_shards(dist, shards, sizes, most):
    def real(shard, size):
        return shard[:min(len(shard), max(0, size - dist.get_rank() * len(shard)))]

    flat = torch.cat([real(*pair) for pair in zip(shards, sizes)])
    squared = torch.linalg.vector_norm(flat).square().view(1)
    dist.all_reduce(squared, op=dist.ReduceOp.SUM)
    norm = squared.item() ** 0.5
    if norm > most:
        [shard.mul_(most / norm) for shard in shards]
    return norm

# %% clip_shards: number by number
def clip_shards(dist, shards, sizes, most):
    squares = 0.0
    for shard, size in zip(shards, sizes):
        for i, value in enumerate(shard.tolist()):
            if dist.get_rank() * len(shard) + i < size:
                squares += value ** 2
    squares = torch.tensor([squares])
    work = dist.all_reduce(squares, async_op=True)
    work.wait()
    norm = squares.sqrt().item()
    if norm <= most:
        return norm
    for shard in shards:
        for i in range(len(shard)):
            shard[i] *= most / norm
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

# %% clip_shards: vdot, and out=
def clip_shards(dist, shards, sizes, most):
    me, sums = dist.get_rank(), []
    for shard, size in zip(shards, sizes):
        stop = size - me * len(shard)
        sums.append(torch.vdot(shard[:stop], shard[:stop]) if stop > 0 else torch.zeros(()))
    total = sum(sums).reshape(1).clone()
    dist.all_reduce(total)
    norm = torch.sqrt(total)[0].item()
    if norm > most:
        for shard in shards:
            torch.mul(shard, most / norm, out=shard)
    return norm

# %% clip_shards: the norms of the units, squared again
def clip_shards(dist, shards, sizes, most):
    norms = []
    for shard, size in zip(shards, sizes):
        count = max(0, min(len(shard), size - dist.get_rank() * len(shard)))
        norms.append(shard[:count].norm())
    mine = torch.stack(norms).norm().square()[None]
    dist.all_reduce(mine)
    norm = mine.item() ** 0.5
    if most < norm:
        for i in range(len(shards)):
            shards[i][:] = shards[i] * (most / norm)
    return norm

# %% clip_shards: where
def clip_shards(dist, shards, sizes, most):
    total = torch.zeros(())
    for shard, size in zip(shards, sizes):
        first = dist.get_rank() * len(shard)
        is_real = torch.arange(first, first + len(shard)) < size
        total = total + torch.where(is_real, shard, 0.0).square().sum()
    dist.all_reduce(total)
    norm = total.sqrt().item()
    if norm > most:
        torch._foreach_div_(list(shards), norm / most)
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

# %% gather_parameters: the storage kept in a local
def gather_parameters(dist, unit):
    size = dist.get_world_size() * len(unit.shard)
    unit.full = torch.empty(size, dtype=unit.shard.dtype, device=unit.shard.device)
    work = dist.all_gather_into_tensor(unit.full, unit.shard, async_op=True)
    return work

def release(unit):
    if unit.full is not None:
        full = unit.full.untyped_storage()
        full.resize_(0)
    unit.full = None

def reduce_scatter_gradients(dist, unit, gradient):
    received = unit.gradient.new_empty(unit.gradient.shape)
    handle = dist.reduce_scatter_tensor(received, gradient, async_op=True)

    def add():
        handle.wait()
        unit.gradient.add_(received)
    return add

# %% gather_parameters: filled with NaN first
def gather_parameters(dist, unit):
    pieces = [torch.empty_like(unit.shard) for _ in range(dist.get_world_size())]
    unit.full = torch.empty(sum(map(len, pieces)))
    del pieces
    return dist.all_gather_into_tensor(unit.full, unit.shard, async_op=True)

def release(unit):
    unit.full.detach().untyped_storage().resize_(0)
    unit.full = None

def reduce_scatter_gradients(dist, unit, gradient):
    own = torch.full_like(unit.gradient, float("nan"))
    work = dist.reduce_scatter_tensor(own, gradient, op=dist.ReduceOp.SUM, async_op=True)

    def finish(work=work, own=own):
        work.wait()
        torch.add(unit.gradient, own, out=unit.gradient)
    return finish

# %% gather_parameters: resize_ of the tensor's storage by its name
def gather_parameters(dist, unit):
    p = dist.get_world_size()
    unit.full = unit.shard.new_zeros((p, len(unit.shard))).view(-1)
    return dist.all_gather_into_tensor(output_tensor=unit.full, input_tensor=unit.shard, async_op=True)

def release(unit):
    torch.UntypedStorage.resize_(unit.full.untyped_storage(), 0)
    unit.full = None

def reduce_scatter_gradients(dist, unit, gradient):
    own = torch.zeros_like(unit.gradient)
    works = [dist.reduce_scatter_tensor(own, gradient.detach(), async_op=True)]

    def arrived():
        for work in works:
            work.wait()
        unit.gradient[:] += own
    return arrived

# %% gather_parameters: a generator as the function that waits
def gather_parameters(dist, unit):
    full = torch.zeros(dist.get_world_size() * unit.shard.numel())
    unit.full = full
    return dist.all_gather_into_tensor(full, unit.shard, async_op=True)

def release(unit):
    full, unit.full = unit.full, None
    storage = full.untyped_storage()
    storage.resize_(0)

def _steps(dist, unit, gradient):
    own = torch.empty_like(unit.gradient)
    work = dist.reduce_scatter_tensor(own, gradient, async_op=True)
    yield
    work.wait()
    unit.gradient += own
    yield

def reduce_scatter_gradients(dist, unit, gradient):
    steps = _steps(dist, unit, gradient)
    next(steps)
    return lambda: next(steps)

# %% gather_parameters: chunks of the full tensor
def gather_parameters(dist, unit):
    p = dist.get_world_size()
    unit.full = torch.empty(p * len(unit.shard))
    chunks = [unit.full[i * len(unit.shard):(i + 1) * len(unit.shard)] for i in range(p)]
    return dist.all_gather(chunks, unit.shard, async_op=True)

def release(unit):
    unit.full.untyped_storage().resize_(0)
    setattr(unit, "full", None)

def reduce_scatter_gradients(dist, unit, gradient):
    own = torch.empty(unit.gradient.numel())
    work = dist.reduce_scatter(own, list(gradient.chunk(dist.get_world_size())), async_op=True)

    def arrived():
        if work.wait():
            unit.gradient = unit.gradient.add_(own)
    return arrived

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

# %% gather_parameters: the sum in a new tensor
def gather_parameters(dist, unit):
    unit.full = torch.full((dist.get_world_size() * len(unit.shard),), float("nan"))
    return dist.all_gather_into_tensor(unit.full, unit.shard, None, True)

def release(unit):
    with torch.no_grad():
        unit.full.untyped_storage().resize_(0)
    del unit.full
    unit.full = None

def reduce_scatter_gradients(dist, unit, gradient):
    own = torch.empty_like(unit.shard)
    work = dist.reduce_scatter_tensor(own, gradient.clone(), async_op=True)

    def arrived():
        work.wait()
        unit.gradient = torch.stack([unit.gradient, own]).sum(0)
    return arrived

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
        slopes = [pair[-1] for pair in pairs]
        del pairs
        if len(finishers) > 1:
            finishers.pop(0)()
        if following:
            go(i - 1, following, slopes)

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

# %% forward_units: a while loop and a queue
def forward_units(dist, units, xs):
    inputs, queue, i = [], [gather_parameters(dist, units[0])], 0
    while i < len(units):
        queue.pop(0).wait()
        if i + 1 < len(units):
            queue.append(gather_parameters(dist, units[i + 1]))
        inputs.append(tuple(xs))
        with torch.no_grad():
            xs = list(map(units[i], xs))
        release(units[i])
        i += 1
    return list(xs), [list(own) for own in inputs]

def backward_units(dist, units, inputs, slopes):
    slopes, i, last = list(slopes), len(units) - 1, lambda: None
    queue = [gather_parameters(dist, units[i])]
    while i >= 0:
        queue.pop(0).wait()
        if i > 0:
            queue.append(gather_parameters(dist, units[i - 1]))
        unit, total = units[i], None
        leaf = unit.full.requires_grad_()
        for j in range(len(slopes)):
            x = inputs[i][j].detach()
            x = x.requires_grad_() if i else x
            got = torch.autograd.grad(unit(x), (leaf, x) if i else (leaf,), slopes[j])
            total = got[0] if total is None else total + got[0]
            slopes[j] = got[-1]
        del leaf, got
        release(unit)
        last()
        last = reduce_scatter_gradients(dist, unit, total)
        total = None
        i -= 1
    last()

# %% forward_units: a context manager for one unit
import contextlib

@contextlib.contextmanager
def gathered(dist, unit, work, following):
    work.wait()
    handle = gather_parameters(dist, following) if following is not None else None
    yield handle
    release(unit)

def forward_units(dist, units, xs):
    inputs, work = [], gather_parameters(dist, units[0])
    for unit, following in zip(units, [*units[1:], None]):
        inputs.append(xs)
        with torch.no_grad(), gathered(dist, unit, work, following) as work:
            xs = [unit(x) for x in xs]
    return xs, inputs

def backward_units(dist, units, inputs, slopes):
    slopes, arrived = list(slopes), []
    work = gather_parameters(dist, units[-1])
    for i, unit in reversed(list(enumerate(units))):
        with gathered(dist, unit, work, units[i - 1] if i else None) as work:
            weights, sums = unit.full.requires_grad_(), []
            for j, x in enumerate(inputs[i]):
                leaves = [weights, x.detach().requires_grad_()] if i else [weights]
                y = unit(leaves[1] if i else x)
                first, *rest = torch.autograd.grad(y, leaves, slopes[j])
                slopes[j] = rest[0] if rest else None
                sums = [sums[0] + first] if sums else [first]
            del weights, leaves, y, first, rest
        while arrived:
            arrived.pop()()
        arrived.append(reduce_scatter_gradients(dist, unit, sums.pop()))
    arrived.pop()()

# %% forward_units: vjp of a function
def forward_units(dist, units, xs):
    work, inputs, n = gather_parameters(dist, units[0]), [None] * len(units), len(units)
    for i in range(n):
        work.wait()
        work = gather_parameters(dist, units[i + 1]) if i < n - 1 else None
        inputs[i] = xs
        with torch.inference_mode(False), torch.no_grad():
            xs = [units[i](x) for x in xs]
        release(units[i])
    return xs, inputs

def backward_units(dist, units, inputs, slopes):
    def one(unit, xs, slopes, first):
        full = unit.full.detach().requires_grad_()
        unit.full = full
        if not first:
            xs = [x.detach().clone().requires_grad_() for x in xs]
        with torch.enable_grad():
            total = sum((unit(x) * slope).sum() for x, slope in zip(xs, slopes))
        gradient, *more = torch.autograd.grad(total, [full] + ([] if first else xs))
        return gradient, more

    work, arrived = gather_parameters(dist, units[-1]), None
    for i in range(len(units) - 1, -1, -1):
        work.wait()
        work = gather_parameters(dist, units[i - 1]) if i else None
        gradient, slopes = one(units[i], inputs[i], slopes, i == 0)
        release(units[i])
        if arrived is not None:
            arrived()
        arrived = reduce_scatter_gradients(dist, units[i], gradient)
        del gradient
    arrived()

# %% forward_units: the microbatches joined in backward
def forward_units(dist, units, xs):
    inputs = []
    handle = gather_parameters(dist, units[0])
    for place, unit in enumerate(units, 1):
        handle.wait()
        for following in units[place:place + 1]:
            handle = gather_parameters(dist, following)
        with torch.no_grad():
            ys = [unit(x) for x in xs]
        inputs.append(xs)
        xs = ys
        release(unit)
    return xs, inputs

def backward_units(dist, units, inputs, slopes):
    slopes, before = list(slopes), None
    handle = gather_parameters(dist, units[-1])
    for place in range(len(units), 0, -1):
        unit, xs = units[place - 1], inputs[place - 1]
        handle.wait()
        if place > 1:
            handle = gather_parameters(dist, units[place - 2])
        full = unit.full.requires_grad_()
        ys = []
        if place > 1:
            xs = [x.requires_grad_() for x in xs]
        for x in xs:
            ys.append(unit(x))
        torch.autograd.backward(ys, slopes, inputs=[full, *(xs if place > 1 else [])])
        gradient, full.grad = full.grad, None
        if place > 1:
            slopes = [x.grad for x in xs]
            for x in xs:
                x.grad = None
        del full, ys
        release(unit)
        if before:
            before()
        before = reduce_scatter_gradients(dist, unit, gradient)
        del gradient
    before()

# %% forward_units: one pass shared by both directions
def each_unit(dist, units, order):
    order = list(order)
    work = gather_parameters(dist, units[order[0]])
    for here, there in zip(order, order[1:] + [None]):
        work.wait()
        if there is not None:
            work = gather_parameters(dist, units[there])
        yield here, units[here]

@torch.no_grad()
def forward_units(dist, units, xs):
    inputs = []
    for _, unit in each_unit(dist, units, range(len(units))):
        inputs.append(xs)
        xs = [unit(x) for x in xs]
        release(unit)
    return xs, inputs

def backward_units(dist, units, inputs, slopes):
    finish = None
    for i, unit in each_unit(dist, units, reversed(range(len(units)))):
        unit.full.requires_grad_()
        total = torch.zeros_like(unit.full)
        new = []
        for x, slope in zip(inputs[i], slopes):
            x = x.requires_grad_() if i > 0 else x
            gradients = torch.autograd.grad(unit(x), [unit.full, x][:1 + (i > 0)], slope)
            total.add_(gradients[0])
            new.append(gradients[-1])
        slopes = new
        del gradients, new
        release(unit)
        if finish:
            finish()
        finish = reduce_scatter_gradients(dist, unit, total)
        del total
    finish()

# %% forward_units: the weights set free in a finally
def forward_units(dist, units, xs):
    inputs = []
    started = gather_parameters(dist, units[0])
    for unit, following in zip(units, list(units[1:]) + [None]):
        started.wait()
        try:
            if following is not None:
                started = gather_parameters(dist, following)
            inputs.append(xs)
            with torch.set_grad_enabled(False):
                xs = [unit(x) for x in xs]
        finally:
            release(unit)
    return xs, inputs

def backward_units(dist, units, inputs, slopes):
    count, ends = len(units), []
    started = gather_parameters(dist, units[count - 1])
    for back in range(count):
        unit = units[count - 1 - back]
        started.wait()
        if back + 1 < count:
            started = gather_parameters(dist, units[count - 2 - back])
        is_first = back == count - 1
        full = unit.full.requires_grad_()
        xs = inputs[count - 1 - back]
        if not is_first:
            xs = [x.requires_grad_() for x in xs]
        try:
            got = [torch.autograd.grad(unit(x), [full] if is_first else [full, x], s)
                   for x, s in zip(xs, slopes)]
        finally:
            del full
            release(unit)
        total = functools.reduce(torch.add, [pair[0] for pair in got])
        slopes = [pair[-1] for pair in got]
        del got
        if ends:
            ends.pop()()
        ends.append(reduce_scatter_gradients(dist, unit, total))
        del total
    ends.pop()()

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

# %% communication_hidden: fractions
def step_seconds(weights, tokens, world_size, flops_per_s, bytes_per_s, itemsize=2, flops=6):
    from fractions import Fraction
    share = Fraction(world_size - 1, world_size)
    wire = 3 * float(share) * weights * itemsize / bytes_per_s
    return float(flops) * weights * (tokens / world_size) / flops_per_s, wire

def communication_hidden(world_size, flops_per_s, bytes_per_s, itemsize=2, flops=6):
    per_weight_wire_s = step_seconds(1.0, 0.0, world_size, 1.0, bytes_per_s, itemsize, flops)[1]
    per_weight_token_s = flops / flops_per_s
    return per_weight_wire_s / per_weight_token_s

# %% communication_hidden: gathers and reduce-scatters named
def step_seconds(weights, tokens, world_size, flops_per_s, bytes_per_s, itemsize=2, flops=6):
    def collective_s():
        rounds, message_bytes = world_size - 1, weights * itemsize / world_size
        return rounds * message_bytes / bytes_per_s

    gather_forward = gather_backward = reduce_scatter = collective_s()
    compute = weights * flops * tokens / (flops_per_s * world_size)
    return compute, gather_forward + gather_backward + reduce_scatter

def communication_hidden(world_size, flops_per_s, bytes_per_s, itemsize=2, flops=6):
    sent = 3 * itemsize * (world_size - 1) / world_size
    return sent * flops_per_s / (flops * bytes_per_s)

# %% communication_hidden: a table of what is sent
def step_seconds(weights, tokens, world_size, flops_per_s, bytes_per_s, itemsize=2, flops=6):
    times = {"forward's gather": 1, "backward's gather": 1, "reduce-scatter": 1}
    wire = 0.0
    for count in times.values():
        wire += count * weights * itemsize * (world_size - 1) / (world_size * bytes_per_s)
    return weights * tokens * flops / world_size / flops_per_s, wire

def communication_hidden(world_size, flops_per_s, bytes_per_s, itemsize=2, flops=6):
    tokens = float(world_size)
    compute, wire = step_seconds(1e9, tokens, world_size, flops_per_s, bytes_per_s, itemsize, flops)
    return wire / (compute / (tokens / world_size))

# %% communication_hidden: torch
def step_seconds(weights, tokens, world_size, flops_per_s, bytes_per_s, itemsize=2, flops=6):
    both = torch.tensor([tokens / world_size * flops / flops_per_s,
                         3 * itemsize * (1 - 1 / world_size) / bytes_per_s])
    compute, wire = (both * weights).tolist()
    return compute, wire

def communication_hidden(world_size, flops_per_s, bytes_per_s, itemsize=2, flops=6):
    tokens = torch.tensor(3.0 * itemsize) * (1 - 1 / world_size) * flops_per_s / bytes_per_s / flops
    return tokens.item()

# %% communication_hidden: bytes and FLOPs first
def step_seconds(weights, tokens, world_size, flops_per_s, bytes_per_s, itemsize=2, flops=6):
    all_flops = flops * weights * tokens
    all_bytes = 3 * itemsize * weights * (world_size - 1)
    return all_flops / world_size / flops_per_s, all_bytes / world_size / bytes_per_s

def communication_hidden(world_size, flops_per_s, bytes_per_s, itemsize=2, flops=6):
    balance = flops_per_s / bytes_per_s  # FLOPs per byte
    return balance * (3 * itemsize / flops) * ((world_size - 1) / world_size)

# %% communication_hidden: two points of a line
def step_seconds(weights, tokens, world_size, flops_per_s, bytes_per_s, itemsize=2, flops=6):
    per_rank_tokens = tokens / world_size
    kept = 1 / world_size
    return (per_rank_tokens * weights * flops / flops_per_s,
            sum((1 - kept) * weights * itemsize / bytes_per_s for _ in range(3)))

def communication_hidden(world_size, flops_per_s, bytes_per_s, itemsize=2, flops=6):
    how = world_size, flops_per_s, bytes_per_s, itemsize, flops
    (low, wire), (high, _) = (step_seconds(1.0, n * world_size, *how) for n in (1.0, 2.0))
    return wire / (high - low)

# %% communication_hidden: logarithms
def step_seconds(weights, tokens, world_size, flops_per_s, bytes_per_s, itemsize=2, flops=6):
    compute = np.exp(np.log(flops) + np.log(weights) + np.log(tokens)
                     - np.log(world_size) - np.log(flops_per_s))
    wire = 3 * weights * itemsize / bytes_per_s
    return float(compute), wire - wire / world_size

def communication_hidden(world_size, flops_per_s, bytes_per_s, itemsize=2, flops=6):
    without = 3 * itemsize * flops_per_s / (flops * bytes_per_s)
    return without - without / world_size

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

# %% hybrid_shard: chunks of a list, a norm of norms
def hybrid_shard(dist, groups, gradient):
    inside, between = groups["gpu"], groups["node"]
    parts = list(gradient.tensor_split(dist.get_world_size(inside)))
    own = parts[0].new_empty(parts[0].shape)
    dist.reduce_scatter(own, parts, group=inside)
    work = dist.all_reduce(own, async_op=True, group=between)
    work.wait()
    return own

def hybrid_norm(dist, groups, shard):
    norms = torch.empty(dist.get_world_size(groups["gpu"]))
    dist.all_gather_into_tensor(norms, shard.norm().view(1), group=groups["gpu"])
    return norms.norm().item()

# %% hybrid_shard: nothing to send in a group of one
def hybrid_shard(dist, groups, gradient):
    s = dist.get_world_size(groups["gpu"])
    if s == 1:
        shard = gradient.clone()
    else:
        shard = gradient.new_empty(len(gradient) // s)
        dist.reduce_scatter_tensor(shard, gradient, group=groups["gpu"])
    if dist.get_world_size(groups["node"]) > 1:
        dist.all_reduce(shard, group=groups["node"])
    return shard

def hybrid_norm(dist, groups, shard):
    total = torch.tensor([float(shard.square().sum())])
    if dist.get_world_size(groups["gpu"]) > 1:
        dist.all_reduce(total, group=groups["gpu"])
    return float(total.sqrt())

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

# %% shard_pieces: recursion
def shard_pieces(n, p, rank, q):
    old, new = -(-n // p), -(-n // q)

    def pieces(start, stop):
        if start >= stop:
            return []
        owner = start // old
        here = min(stop, (owner + 1) * old)
        return [(owner, start - owner * old, here - owner * old)] + pieces(here, stop)

    return pieces(rank * new, min(n, (rank + 1) * new))

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

# %% shard_pieces: boundaries
def shard_pieces(n, p, rank, q):
    old, new = -(-n // p), -(-n // q)
    high = min(n, (rank + 1) * new)
    low = min(rank * new, high)
    cuts = sorted({low, high, *(c for c in range(0, n + old, old) if low < c < high)})
    return [(a // old, a % old, a % old + b - a) for a, b in zip(cuts, cuts[1:])]

# %% shard_pieces: a comprehension with ranges
def shard_pieces(n, p, rank, q):
    old, new = -(-n // p), -(-n // q)
    first, last = rank * new, min(n, (rank + 1) * new)
    overlaps = (range(max(first, r * old), min(last, r * old + old)) for r in range(p))
    return [(r, o.start - r * old, o.stop - r * old) for r, o in enumerate(overlaps) if len(o)]

# %% shard_pieces: math.ceil and a while loop that counts down
def shard_pieces(n, p, rank, q):
    import math
    old, new, found = math.ceil(n / p), math.ceil(n / q), []
    left, place = max(0, min(new, n - rank * new)), rank * new
    while left > 0:
        start = place % old
        count = min(left, old - start)
        found += [(place // old, start, start + count)]
        left, place = left - count, place + count
    return found

# %% shard_pieces: torch
def shard_pieces(n, p, rank, q):
    old, new = -(-n // p), -(-n // q)
    places = torch.arange(n)[rank * new:rank * new + new]
    owners, counts = torch.unique_consecutive(places // old, return_counts=True)
    found, place = [], rank * new
    for owner, count in zip(owners.tolist(), counts.tolist()):
        found.append((owner, place - owner * old, place - owner * old + count))
        place += count
    return found

# %% shard_pieces: a generator
def shard_pieces(n, p, rank, q):
    old, new = -(-n // p), -(-n // q)

    def walk(place, end):
        while place < end:
            owner = place // old
            stop = min(end, owner * old + old)
            yield owner, place - owner * old, stop - owner * old
            place = stop

    return list(walk(rank * new, min(n, rank * new + new)))

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

# %% test_global_norm: helpers, and all ranks equal
def shards_with_junk(flats, p, junk):
    for r in range(p):
        own = [own_shard(flat, r, p) for flat in flats]
        for shard, flat in zip(own, flats):
            shard[torch.arange(len(shard)) + r * len(shard) >= len(flat)] = junk
        yield own

def test_global_norm(candidate):
    for p, sizes, junk in ((2, [3], 1e3), (3, [4, 4, 1], -2.0), (4, [13, 3], 5.0), (1, [2, 2], 0.0)):
        flats = [torch.tensor(rng.uniform(1, 2, n)) for n in sizes]
        given = ranks.each(shards_with_junk(flats, p, junk))
        got = ranks.run(candidate, given, sizes, world_size=p).returns
        want = float(sum((flat ** 2).sum() for flat in flats)) ** 0.5
        assert max(got) - min(got) < 1e-12 * want, "ranks differ"
        assert abs(got[0] - want) < 1e-10 * want

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

# %% test_global_norm: pytest's approx by hand
def test_global_norm(candidate):
    def close(a, b):
        return abs(a - b) <= 1e-9 * max(abs(a), abs(b))

    for p in range(1, 6):
        for sizes in ([p + 1], [3 * p, 2 * p - 1, 1]):
            flats = [torch.tensor(rng.normal(0, 5, n)) for n in sizes]
            shards = [[own_shard(torch.cat([flat, torch.full((-len(flat) % p,), 8.0)]), r, p)
                       for flat in flats] for r in range(p)]
            want = torch.nn.utils.get_total_norm(flats).item()
            got = ranks.run(candidate, ranks.each(shards), sizes, world_size=p).returns
            assert all(close(one, want) for one in got)

# %% test_global_norm: scaled by two
def test_global_norm(candidate):
    for p, sizes in ((2, [3, 6]), (4, [7]), (3, [5, 5, 2]), (1, [8])):
        flats = [torch.tensor(rng.normal(0, 1, n)) for n in sizes]
        norm = torch.cat(flats).norm().item()
        for factor in (1.0, 2.0, 1000.0):
            shards = [[own_shard(flat * factor, r, p) for flat in flats] for r in range(p)]
            for r, own in enumerate(shards):
                for shard, n in zip(own, sizes):
                    shard[max(0, n - r * len(shard)):] = 11.0
            for got in ranks.run(candidate, ranks.each(shards), sizes, world_size=p).returns:
                assert abs(got - factor * norm) < 1e-9 * factor * norm

# %% own_shard: a loop over its places
def own_shard(flat, rank, world_size):
    n = flat.numel()
    size = (n + world_size - 1) // world_size
    out = torch.zeros_like(flat).resize_(0).new_zeros(size)
    for i, j in enumerate(range(rank * size, min(n, (rank + 1) * size))):
        out[i] = flat[j]
    return out

# %% shard_optimizer_state: async reduce-scatter while the weights' shard is cut
def shard_optimizer_state(dist, weights, gradient, state, step):
    p, r, n = dist.get_world_size(), dist.get_rank(), weights.numel()
    padded = nn.functional.pad(gradient, (0, -n % p))
    mine = torch.empty(len(padded) // p)
    work = dist.reduce_scatter_tensor(mine, padded, async_op=True)
    shard = own_shard(weights, r, p)
    for name in "mv":
        state.setdefault(name, torch.zeros(len(shard)))
    work.wait()
    adam(shard, mine, step=step, **state)
    parts = [torch.empty_like(shard) for _ in range(p)]
    dist.all_gather(parts, shard)
    with torch.no_grad():
        weights[:] = torch.cat(parts)[:n]

# %% shard_gradients: a set of what is missing, one closure per weight
def shard_gradients(dist, loss, groups, shards):
    p, handles, waiting = dist.get_world_size(), [], []
    def watch(w, group, shard, missing):
        def hook(weight):
            missing.discard(id(w))
            if missing:
                return
            flat = torch.cat([v.grad.reshape(-1) for v in group])
            for v in group:
                v.grad = None
            flat = nn.functional.pad(flat, (0, p * len(shard) - len(flat)))
            own = flat.new_empty(len(shard))
            dist.reduce_scatter_tensor(own, flat)
            shard.add_(own)
        return w.register_post_accumulate_grad_hook(hook)
    for group, shard in zip(groups, shards):
        missing = {id(w) for w in group}
        handles.extend(watch(w, group, shard, missing) for w in group)
    loss.backward()
    while handles:
        handles.pop().remove()

# %% clip_shards: math.sqrt, a min of factors
def clip_shards(dist, shards, sizes, most):
    r, squares = dist.get_rank(), 0.0
    for shard, n in zip(shards, sizes):
        stop = min(len(shard), max(n - r * len(shard), 0))
        squares += float(torch.dot(shard[:stop], shard[:stop]))
    box = torch.tensor([squares])
    dist.all_reduce(box)
    norm = float(box) ** 0.5
    factor = min(1.0, most / norm)
    for shard in shards:
        shard.mul_(factor)
    return norm

# %% gather_parameters: all_gather into views, a lambda
def gather_parameters(dist, unit):
    p, n = dist.get_world_size(), len(unit.shard)
    unit.full = torch.empty(p * n, dtype=unit.shard.dtype)
    return dist.all_gather(list(unit.full.split(n)), unit.shard, async_op=True)

def release(unit):
    full, unit.full = unit.full, None
    full.untyped_storage().resize_(0)

def reduce_scatter_gradients(dist, unit, gradient):
    own = torch.zeros(len(unit.gradient), dtype=gradient.dtype)
    work = dist.reduce_scatter(own, list(gradient.chunk(dist.get_world_size())), async_op=True)
    return lambda: (work.wait(), unit.gradient.add_(own))[1] is None

# %% communication_hidden: one calls the other
def step_seconds(weights, tokens, world_size, flops_per_s, bytes_per_s, itemsize=2, flops=6):
    per_rank = tokens / world_size
    sent = 3 * weights * itemsize * (1 - 1 / world_size)
    return per_rank * weights * flops / flops_per_s, sent / bytes_per_s

def communication_hidden(world_size, flops_per_s, bytes_per_s, itemsize=2, flops=6):
    compute_s, wire_s = step_seconds(1, world_size, world_size, flops_per_s, bytes_per_s, itemsize, flops)
    return wire_s / compute_s

# %% hybrid_shard: all-reduce across nodes as gather and sum
def hybrid_shard(dist, groups, gradient):
    parts = list(gradient.chunk(dist.get_world_size(groups["gpu"])))
    own = torch.empty_like(parts[0])
    dist.reduce_scatter(own, [part.contiguous() for part in parts], group=groups["gpu"])
    work = dist.all_reduce(own, group=groups["node"], async_op=True)
    work.wait()
    return own

def hybrid_norm(dist, groups, shard):
    squares = torch.tensor([float(shard @ shard)])
    dist.all_reduce(squares, op=dist.ReduceOp.SUM, group=groups["gpu"])
    return float(squares) ** 0.5

# %% own_shard: a gather with a mask
def own_shard(flat, rank, world_size):
    size = -(-len(flat) // world_size)
    at = torch.arange(rank * size, (rank + 1) * size)
    return torch.where(at < len(flat), flat[at.clamp(max=len(flat) - 1)], torch.zeros((), dtype=flat.dtype))

# %% shard_optimizer_state: lists of chunks with reduce_scatter and all_gather
def shard_optimizer_state(dist, weights, gradient, state, step):
    p, rank = dist.get_world_size(), dist.get_rank()
    parts = [own_shard(gradient, r, p) for r in range(p)]
    mine = torch.empty_like(parts[0])
    dist.reduce_scatter(mine, parts)
    shard = own_shard(weights, rank, p)
    state.setdefault("m", torch.zeros_like(shard))
    state.setdefault("v", torch.zeros_like(shard))
    adam(shard, mine, state["m"], state["v"], step)
    news = [torch.empty_like(shard) for _ in range(p)]
    dist.all_gather(news, shard)
    weights[:] = torch.cat(news)[:len(weights)]

# %% shard_gradients: counters in a dict, hooks in an ExitStack
import contextlib
def shard_gradients(dist, loss, groups, shards):
    p = dist.get_world_size()
    left = {i: len(group) for i, group in enumerate(groups)}
    with contextlib.ExitStack() as stack:
        for i, group in enumerate(groups):
            def hook(w, i=i, group=group):
                left[i] -= 1
                if left[i]:
                    return
                size = len(shards[i])
                flat = torch.cat([x.grad.reshape(-1) for x in group])
                flat = nn.functional.pad(flat, (0, p * size - len(flat)))
                for x in group:
                    x.grad = None
                out = torch.empty(size)
                dist.reduce_scatter_tensor(out, flat)
                shards[i] += out
            for w in group:
                stack.callback(w.register_post_accumulate_grad_hook(hook).remove)
        loss.backward()

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

# %% clip_shards: a mask by global place
def clip_shards(dist, shards, sizes, most):
    total = torch.zeros(())
    for s, n in zip(shards, sizes):
        place = dist.get_rank() * len(s) + torch.arange(len(s))
        total = total + torch.where(place < n, s, torch.zeros(())).square().sum()
    dist.all_reduce(total)
    norm = total.sqrt()
    if norm > most:
        torch._foreach_mul_(list(shards), float(most / norm))
    return norm.item()

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

# %% forward_units: backward() instead of grad
def forward_units(dist, units, xs):
    inputs, work = [], gather_parameters(dist, units[0])
    with torch.no_grad():
        for i in range(len(units)):
            work.wait()
            work = gather_parameters(dist, units[i + 1]) if i + 1 < len(units) else None
            inputs.append(xs)
            xs = [units[i](x) for x in xs]
            release(units[i])
    return xs, inputs

def backward_units(dist, units, inputs, slopes):
    slopes, arrived = list(slopes), None
    work = gather_parameters(dist, units[-1])
    for i in range(len(units) - 1, -1, -1):
        unit = units[i]
        work.wait()
        if i > 0:
            work = gather_parameters(dist, units[i - 1])
        if arrived:
            arrived()
        unit.full.requires_grad_(True)
        for j, x in enumerate(inputs[i]):
            if i:
                x = x.detach().requires_grad_(True)
            unit(x).backward(slopes[j])
            if i:
                slopes[j] = x.grad
        whole = unit.full.grad
        unit.full.grad = None
        release(unit)
        arrived = reduce_scatter_gradients(dist, unit, whole)
        del whole, x
    arrived()

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

# %% hybrid_shard: norm over all ranks divided by the nodes
def hybrid_shard(dist, groups, gradient):
    shard = torch.zeros(len(gradient) // dist.get_world_size(groups["gpu"]))
    work = dist.reduce_scatter_tensor(shard, gradient, group=groups["gpu"], async_op=True)
    work.wait()
    dist.all_reduce(shard, group=groups["node"], async_op=True).wait()
    return shard

def hybrid_norm(dist, groups, shard):
    total = shard.pow(2).sum().reshape(1)
    dist.all_reduce(total)
    return (total / dist.get_world_size(groups["node"])).sqrt().item()

# %% shard_pieces: number by number, grouped
from itertools import groupby
def shard_pieces(n, p, rank, q):
    old, new = (n + p - 1) // p, (n + q - 1) // q
    found = []
    for owner, places in groupby(range(rank * new, min(n, (rank + 1) * new)), key=lambda i: i // old):
        places = [i % old for i in places]
        found.append((owner, places[0], places[-1] + 1))
    return found

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

# %% shard_gradients: each gradient into the unit's buffer at once
def shard_gradients(dist, loss, groups, shards):
    p, hooks, buffers, left = dist.get_world_size(), [], {}, [len(group) for group in groups]

    def watch(unit, w, start):
        def hook(w):
            if unit not in buffers:
                buffers[unit] = torch.zeros(p * len(shards[unit]))
            buffers[unit][start:start + w.numel()] = w.grad.view(-1)
            w.grad = None
            left[unit] -= 1
            if not left[unit]:
                own = torch.empty_like(shards[unit])
                dist.reduce_scatter_tensor(own, buffers.pop(unit))
                shards[unit] = shards[unit].add_(own)
        return w.register_post_accumulate_grad_hook(hook)

    for unit, group in enumerate(groups):
        start = 0
        for w in group:
            hooks.append(watch(unit, w, start))
            start += w.numel()
    loss.backward()
    for hook in hooks:
        hook.remove()

# %% clip_shards: vector_norm and hypot
import math

def clip_shards(dist, shards, sizes, most):
    rank, norms = dist.get_rank(), []
    for shard, size in zip(shards, sizes):
        start = rank * len(shard)
        norms.append(torch.linalg.vector_norm(shard[:max(size, start) - start]).item())
    total = torch.tensor([math.hypot(*norms) ** 2])
    dist.all_reduce(total, op=dist.ReduceOp.SUM)
    norm = math.sqrt(total.item())
    scale = most / max(norm, most)
    for i in range(len(shards)):
        shards[i] *= scale
    return norm

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

# %% forward_units: one loss for all microbatches of a unit
def forward_units(dist, units, xs):
    inputs, n = [], len(units)
    works = {0: gather_parameters(dist, units[0])}
    for i in range(n):
        works.pop(i).wait()
        if i < n - 1:
            works[i + 1] = gather_parameters(dist, units[i + 1])
        inputs += [xs]
        with torch.inference_mode(False), torch.no_grad():
            ys = []
            for x in xs:
                ys.append(unit_of(units, i)(x))
        release(units[i])
        xs = ys
    return xs, inputs

def unit_of(units, i):
    return units[i]

def backward_units(dist, units, inputs, slopes):
    n, done = len(units), []
    works = {n - 1: gather_parameters(dist, units[-1])}
    for i in range(n - 1, -1, -1):
        works.pop(i).wait()
        if i > 0:
            works[i - 1] = gather_parameters(dist, units[i - 1])
        while done:
            done.pop()()
        unit, full = units[i], units[i].full
        full.requires_grad_(True)
        xs = [x.detach() for x in inputs[i]]
        if i > 0:
            for x in xs:
                x.requires_grad_(True)
        ys = [unit(x) for x in xs]
        wanted = [full] + (xs if i > 0 else [])
        got = torch.autograd.grad(ys, wanted, grad_outputs=slopes)
        slopes = list(got[1:])
        del ys, wanted, full
        release(unit)
        done.append(reduce_scatter_gradients(dist, unit, got[0]))
        del got
    done.pop()()

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

# %% shard_pieces: one stretch cut at the old boundaries
def shard_pieces(n, p, rank, q):
    old, new = -(-n // p), -(-n // q)
    start, end = min(n, rank * new), min(n, (rank + 1) * new)
    cuts = sorted({start, end, *(k * old for k in range(p + 1) if start < k * old < end)})
    return [(a // old, a % old, a % old + b - a) for a, b in zip(cuts, cuts[1:])]

# %% test_global_norm: unequal ranks found by a set
def test_global_norm(candidate):
    for p in (1, 2, 3, 5):
        sizes = [2 * p + 1, p, 1]
        whole = [torch.tensor(rng.uniform(1, 3, n) * rng.choice([-1, 1], n)) for n in sizes]
        shards = []
        for rank in range(p):
            shards.append([])
            for flat in whole:
                size = -(-len(flat) // p)
                shard = torch.full((size,), -50.0)
                part = flat[rank * size:(rank + 1) * size]
                shard[:len(part)] = part
                shards[-1].append(shard)
        want = sum(float(flat @ flat) for flat in whole) ** 0.5
        got = ranks.run(candidate, ranks.each(shards), sizes, world_size=p).returns
        assert {round(float(norm) / want, 9) for norm in got} == {1.0}

# %% communication_hidden: the two times in a list
# edit: return compute_s, communication_s  ->  return [compute_s, communication_s]
