# %% own_shard: a view
# says: this is a view
def own_shard(flat, rank, world_size):
    size = -(-len(flat) // world_size)
    if len(flat) == size * world_size:
        return flat[rank * size:(rank + 1) * size]
    shard = flat.new_zeros(size)
    part = flat[rank * size:(rank + 1) * size]
    shard[:len(part)] = part
    return shard

# %% own_shard: shards of unequal length
# says: fill up with zeros
def own_shard(flat, rank, world_size):
    size = -(-len(flat) // world_size)
    return flat[rank * size:(rank + 1) * size].clone()

# %% own_shard: rounded down
# says: the last ones belong to nobody
def own_shard(flat, rank, world_size):
    size = len(flat) // world_size
    return flat[rank * size:(rank + 1) * size].clone()

# %% own_shard: the padding repeats the last number
# says: it must be zero
# edit: shard = flat.new_zeros(size)  ->  shard = flat[-1:].repeat(size)

# %% own_shard: dealt out like cards
# says: a shard is contiguous
def own_shard(flat, rank, world_size):
    return flat[rank::world_size].clone()

# %% own_shard: as tensor_split cuts
# says: want
def own_shard(flat, rank, world_size):
    return flat.tensor_split(world_size)[rank].clone()

# %% own_shard: uninitialised padding
# says: want
# edit: shard = flat.new_zeros(size)  ->  shard = flat.new_full((size,), 1e-300)

# %% own_shard: the next rank's shard
# says: This is the next rank's shard
# edit: part = flat[rank * size:(rank + 1) * size]  ->  part = flat[(rank + 1) % world_size * size:][:size]

# %% shard_optimizer_state: a replicated optimizer
# says: A replicated optimizer
def shard_optimizer_state(dist, weights, gradient, state, step):
    if not state:
        state.update(m=torch.zeros_like(weights), v=torch.zeros_like(weights))
    dist.all_reduce(gradient)
    adam(weights, gradient, state["m"], state["v"], step)

# %% shard_optimizer_state: m whole, v cut
# says: this rank's state has
# edit: m=torch.zeros_like(shard)  ->  m=torch.zeros_like(weights)
# edit: adam(shard, total, state["m"], state["v"], step)  ->  adam(shard, total, state["m"][:len(shard)], state["v"], step)

# %% shard_optimizer_state: a copy of the weights in the state
# says: this rank's state has
# edit: v=torch.zeros_like(shard))  ->  v=torch.zeros_like(shard), master=shard)

# %% shard_optimizer_state: the means of the gradients
# says: so this is no mean
# edit: adam(shard, total,  ->  adam(shard, total / p,

# %% shard_optimizer_state: its own gradient
# says: Each rank used its own gradient
# - dist.reduce_scatter_tensor(total, whole)
# + total = own_shard(gradient, dist.get_rank(), p)

# %% shard_optimizer_state: all-reduce, then all-gather
# says: use a reduce-scatter
# - dist.reduce_scatter_tensor(total, whole)
# + dist.all_reduce(whole)
# + total = own_shard(whole, dist.get_rank(), p)

# %% shard_optimizer_state: the new shards are not gathered
# says: gather the other ranks' shards
# - dist.all_gather_into_tensor(whole, shard)
# - weights.copy_(whole[:n])
# + rank, size = dist.get_rank(), len(shard)
# + weights[rank * size:(rank + 1) * size] = shard[:max(0, n - rank * size)]

# %% shard_optimizer_state: nothing is written into weights
# says: The weights are still the old ones
# - weights.copy_(whole[:n])
# + weights = whole[:n]

# %% shard_optimizer_state: m and v begin anew at each step
# says: m and v begin anew in each step
# edit: if not state:  ->  if True:

# %% shard_optimizer_state: always the first step
# says: Adam is told that each step is the first
# edit: state["v"], step)  ->  state["v"], 1)

# %% shard_optimizer_state: m and v kept elsewhere
# says: want
def shard_optimizer_state(dist, weights, gradient, state, step, kept={}):
    p, n = dist.get_world_size(), len(weights)
    shard = own_shard(weights, dist.get_rank(), p)
    if step == 1 or "m" not in kept:
        kept.clear()
        kept.update(m=torch.zeros_like(shard), v=torch.zeros_like(shard))
    whole = weights.new_zeros(p * len(shard))
    whole[:n] = gradient
    total = torch.empty_like(shard)
    dist.reduce_scatter_tensor(total, whole)
    adam(shard, total, kept["m"], kept["v"], step)
    dist.all_gather_into_tensor(whole, shard)
    weights.copy_(whole[:n])
    state.update(m=torch.zeros_like(shard), v=torch.zeros_like(shard))

# %% shard_optimizer_state: no state comes back
# says: state must hold m and v
# - if not state:
# -     state.update(m=torch.zeros_like(shard), v=torch.zeros_like(shard))
# + state = {"m": torch.zeros_like(shard), "v": torch.zeros_like(shard)}

# %% shard_optimizer_state: an endless series of tensors to rank 0
# says: bytes sent in all
# - dist.all_gather_into_tensor(whole, shard)
# + dist.all_gather_into_tensor(whole, shard)
# + dist.all_gather_into_tensor(whole, shard)

# %% shard_gradients: means that are treated as sums
# says: Means that are treated as sums
# edit: dist.reduce_scatter_tensor(own, whole)  ->  dist.reduce_scatter_tensor(own, whole, op=dist.ReduceOp.AVG)

# %% shard_gradients: the loss multiplied by p
# says: p times too long
# edit: loss.backward()  ->  (loss * p).backward()

# %% shard_gradients: its own gradient
# says: the rank's own gradient
# - dist.reduce_scatter_tensor(own, whole)
# - shard.add_(own)
# + shard.add_(own_shard(flat, dist.get_rank(), p))

# %% shard_gradients: overwrites earlier microbatches
# says: What stood in the shard before is lost
# edit: shard.add_(own)  ->  shard.copy_(own)

# %% shard_gradients: gradients kept whole next to the shard
# says: Gradients are kept whole
# - for w in group:
# -     w.grad = None
# ...
# -     loss.backward()
# +     for group in groups:
# +         for w in group:
# +             w.grad = None
# +     loss.backward()

# %% shard_gradients: all-reduced whole
# says: use a reduce-scatter
# - dist.reduce_scatter_tensor(own, whole)
# + dist.all_reduce(whole)
# + own = own_shard(whole, dist.get_rank(), p)

# %% shard_gradients: each weight by itself
# says: reduce-scatter
def shard_gradients(dist, loss, groups, shards):
    p, rank = dist.get_world_size(), dist.get_rank()
    loss.backward()
    for group, shard in zip(groups, shards):
        flat = torch.cat([w.grad.flatten() for w in group])
        for w in group:
            w.grad = None
        whole = shard.new_zeros(p * len(shard))
        whole[:len(flat)] = flat
        for half in (0, 1):
            mask = torch.arange(len(whole)) % 2 == half
            own = torch.empty_like(shard)
            dist.reduce_scatter_tensor(own, whole * mask)
            shard += own

# %% shard_gradients: everything in one collective, after backward
# says: one for each unit is enough
def shard_gradients(dist, loss, groups, shards):
    p = dist.get_world_size()
    loss.backward()
    wholes = []
    for group, shard in zip(groups, shards):
        flat = torch.cat([w.grad.flatten() for w in group])
        whole = shard.new_zeros(p * len(shard))
        whole[:len(flat)] = flat
        wholes.append(whole.view(p, -1))
        for w in group:
            w.grad = None
    whole = torch.cat(wholes, 1).flatten()
    own = whole.new_empty(len(whole) // p)
    dist.reduce_scatter_tensor(own, whole)
    for shard, part in zip(shards, own.split([len(shard) for shard in shards])):
        shard += part

# %% shard_gradients: whole gradients until backward has ended
# says: Gradients are kept whole
def shard_gradients(dist, loss, groups, shards):
    p = dist.get_world_size()
    loss.backward()
    for group, shard in zip(groups, shards):
        flat = torch.cat([w.grad.flatten() for w in group])
        whole = shard.new_zeros(p * len(shard))
        whole[:len(flat)] = flat
        own = torch.empty_like(shard)
        dist.reduce_scatter_tensor(own, whole)
        shard += own
        for w in group:
            w.grad = None

# %% shard_gradients: hooks stay
# says: each step would add one more
# - for hook in hooks:
# -     hook.remove()

# %% shard_gradients: the last weight of a unit is left out
# says: want
# edit: torch.cat([w.grad.flatten() for w in group])  ->  torch.cat([w.grad.flatten() for w in group[:1]])

# %% shard_gradients: the weights of a unit in reverse order
# says: want
# edit: torch.cat([w.grad.flatten() for w in group])  ->  torch.cat([w.grad.flatten() for w in group[::-1]])

# %% shard_gradients: every unit in the first one's shard
# says: want
# edit: shard.add_(own)  ->  shards[0][:len(own)].add_(own[:len(shards[0])])

# %% clip_shards: the norm of the local shard alone
# says: the norm of this rank's shard alone
# - dist.all_reduce(total)

# %% clip_shards: the padding leaks into the norm
# says: The padding leaks into the norm
# edit: total += (real * real).sum()  ->  total += (shard * shard).sum()

# %% clip_shards: norms are added
# says: Norms don't add up
# - dist.all_reduce(total)
# - norm = total.sqrt().item()
# + total = total.sqrt()
# + dist.all_reduce(total)
# + norm = total.item()

# %% clip_shards: the root is missing
# says: The root is missing
# edit: total.sqrt().item()  ->  total.item()

# %% clip_shards: the mean over ranks
# says: A mean over ranks
# edit: dist.all_reduce(total)  ->  dist.all_reduce(total, op=dist.ReduceOp.AVG)

# %% clip_shards: the norms of the units are added
# says: The norms of the units don't add up
# -     total += (real * real).sum()
# - dist.all_reduce(total)
# - norm = total.sqrt().item()
# +     part = (real * real).sum().reshape(1)
# +     dist.all_reduce(part)
# +     total += part.sqrt()
# + norm = total.item()

# %% clip_shards: always scaled
# says: its norm is small enough
# edit: if norm > most:  ->  if True:

# %% clip_shards: never scaled
# says: It is not scaled
# edit: if norm > most:  ->  if False:

# %% clip_shards: everything is gathered
# says: one number per rank is enough
def clip_shards(dist, shards, sizes, most):
    total = 0.0
    for shard, size in zip(shards, sizes):
        whole = shard.new_empty(dist.get_world_size() * len(shard))
        dist.all_gather_into_tensor(whole, shard)
        total += (whole[:size] ** 2).sum().item()
    for _ in range(3):
        dist.all_reduce(torch.zeros(9))
    norm = total ** 0.5
    for shard in shards:
        shard *= min(1, most / norm)
    return norm

# %% clip_shards: into new tensors
# says: It is not scaled
# edit: shard *= most / norm  ->  shard = shard * (most / norm)

# %% clip_shards: the first shard only
# says: want
# edit: for shard in shards:  ->  for shard in shards[:1]:

# %% clip_shards: padding only on the last rank
# says: gave
# edit: max(0, size - dist.get_rank() * len(shard))  ->  size - dist.get_rank() * len(shard) if dist.get_rank() == dist.get_world_size() - 1 else len(shard)

# %% gather_parameters: nothing crosses
# says: want
# - return dist.all_gather_into_tensor(unit.full, unit.shard, async_op=True)
# + unit.full[:] = unit.shard.repeat(dist.get_world_size())
# + return dist.barrier(async_op=True)

# %% gather_parameters: not released
# says: release: unit.full must be None
# - unit.full.untyped_storage().resize_(0)
# - unit.full = None
# + pass

# %% gather_parameters: the name is dropped, the memory stays
# says: the memory of unit.full must have 0 bytes
# -     unit.full.untyped_storage().resize_(0)

# %% gather_parameters: means that are treated as sums
# says: Means that are treated as sums
# edit: gradient, async_op=True  ->  gradient, dist.ReduceOp.AVG, async_op=True

# %% gather_parameters: the gradient is overwritten
# says: What stood in the shard before is lost
# edit: unit.gradient += own  ->  unit.gradient = own

# %% gather_parameters: an all-reduce of the gradient
# says: use a reduce-scatter
# - work = dist.reduce_scatter_tensor(own, gradient, async_op=True)
# + gradient = gradient.clone()
# + work = dist.all_reduce(gradient, async_op=True)
# ...
# - unit.gradient += own
# + unit.gradient += own_shard(gradient, dist.get_rank(), dist.get_world_size())

# %% gather_parameters: never waited for
# says: wait
# -         work.wait()

# %% forward_units: everything gathered at once
# says: Everything is gathered at once
# - inputs, work = [], gather_parameters(dist, units[0])
# - for i, unit in enumerate(units):
# -     work.wait()
# -     if i + 1 < len(units):
# -         work = gather_parameters(dist, units[i + 1])
# -     inputs.append(xs)
# + inputs = []
# + for work in [gather_parameters(dist, unit) for unit in units]:
# +     work.wait()
# + for unit in units:
# +     inputs.append(xs)

# %% forward_units: two units ahead
# says: Prefetch of more than one unit
# - inputs, work = [], gather_parameters(dist, units[0])
# - for i, unit in enumerate(units):
# -     work.wait()
# -     if i + 1 < len(units):
# -         work = gather_parameters(dist, units[i + 1])
# -     inputs.append(xs)
# + inputs, works = [], [gather_parameters(dist, unit) for unit in units[:2]]
# + for i, unit in enumerate(units):
# +     works[i].wait()
# +     if i + 2 < len(units):
# +         works.append(gather_parameters(dist, units[i + 2]))
# +     inputs.append(xs)

# %% forward_units: no prefetch
# says: No prefetch
# - inputs, work = [], gather_parameters(dist, units[0])
# - for i, unit in enumerate(units):
# -     work.wait()
# -     if i + 1 < len(units):
# -         work = gather_parameters(dist, units[i + 1])
# -     inputs.append(xs)
# + inputs = []
# + for unit in units:
# +     gather_parameters(dist, unit).wait()
# +     inputs.append(xs)

# %% forward_units: gathered for each microbatch
# says: gather once, for all microbatches
# - inputs, work = [], gather_parameters(dist, units[0])
# - for i, unit in enumerate(units):
# -     work.wait()
# -     if i + 1 < len(units):
# -         work = gather_parameters(dist, units[i + 1])
# -     inputs.append(xs)
# -     with torch.no_grad():
# -         xs = [unit(x) for x in xs]
# -     release(unit)
# - return xs, inputs
# + inputs, ys = [[] for _ in units], []
# + for x in xs:
# +     work = gather_parameters(dist, units[0])
# +     for i, unit in enumerate(units):
# +         work.wait()
# +         if i + 1 < len(units):
# +             work = gather_parameters(dist, units[i + 1])
# +         inputs[i].append(x)
# +         with torch.no_grad():
# +             x = unit(x)
# +         release(unit)
# +     ys.append(x)
# + return ys, inputs

# %% forward_units: gathered twice in backward
# says: is gathered 2 times in one pass
# - full, total = unit.full.requires_grad_(), None
# + gather_parameters(dist, unit).wait()
# + full, total = unit.full.requires_grad_(), None

# %% forward_units: gathered weights kept by autograd
# says: Gathered weights are kept by autograd
# - with torch.no_grad():
# -     xs = [unit(x) for x in xs]
# - release(unit)
# + unit.full.requires_grad_()
# + xs = [unit(x) for x in xs]
# + unit.full = None

# %% forward_units: weights are never released
# says: Weights are never released
# -     release(unit)
#   return xs, inputs

# %% forward_units: backward never releases
# says: Weights are never released
# - del full, gradients, y
# - release(unit)

# %% forward_units: backward gathers everything at once
# says: Everything is gathered at once
# - work = gather_parameters(dist, units[-1])
# - for i in reversed(range(len(units))):
# -     unit = units[i]
# -     work.wait()
# -     if i:
# -         work = gather_parameters(dist, units[i - 1])
# + for work in [gather_parameters(dist, unit) for unit in units[::-1]]:
# +     work.wait()
# + for i in reversed(range(len(units))):
# +     unit = units[i]

# %% forward_units: backward without prefetch
# says: No prefetch
# - work = gather_parameters(dist, units[-1])
# - for i in reversed(range(len(units))):
# -     unit = units[i]
# -     work.wait()
# -     if i:
# -         work = gather_parameters(dist, units[i - 1])
# + for i in reversed(range(len(units))):
# +     unit = units[i]
# +     gather_parameters(dist, unit).wait()

# %% forward_units: only the last microbatch's gradient
# says: want
# edit: total.add_(gradients[0])  ->  gradients[0]

# %% forward_units: the slope is not passed on
# says: gave
# edit: slopes[j] = gradients[-1]  ->  pass
# edit: y, wanted, slopes[j]  ->  y, wanted, torch.ones_like(y)

# %% forward_units: weights of forward used in backward
# says: gradient shards of the perceptron model
def forward_units(dist, units, xs):
    inputs, work = [], gather_parameters(dist, units[0])
    for i, unit in enumerate(units):
        work.wait()
        if i + 1 < len(units):
            work = gather_parameters(dist, units[i + 1])
        inputs.append(xs)
        with torch.no_grad():
            xs = [unit(x) for x in xs]
        KEPT[unit.number] = unit.full.clone()
        release(unit)
    return xs, inputs

KEPT = {}

def backward_units(dist, units, inputs, slopes):
    slopes = list(slopes)
    for i in reversed(range(len(units))):
        unit, total = units[i], 0.0
        size = dist.get_world_size() * len(unit.shard)
        unit.full = KEPT.get(unit.number, torch.zeros(size)).clone().requires_grad_()
        if len(unit.full) != size:
            unit.full = torch.zeros(size, requires_grad=True)
        for j, x in enumerate(inputs[i]):
            wanted = [unit.full, x.requires_grad_()] if i else [unit.full]
            gradients = torch.autograd.grad(unit(x), wanted, slopes[j])
            total, slopes[j] = total + gradients[0], gradients[-1]
        release(unit)
        reduce_scatter_gradients(dist, unit, total)()

# %% forward_units: gradients reduce-scattered after the whole backward
# says: The whole gradient of unit
# -             if arrived:  # backward needs the memory of the last unit's whole gradient
# -                 arrived()
# -                 arrived = None
# ...
# - arrived = reduce_scatter_gradients(dist, unit, total)
# - del total
# + kept = [] if arrived is None else arrived
# + kept.append((unit, total))
# + arrived = kept
# ...
# - arrived()
# + for unit, total in arrived:
# +     reduce_scatter_gradients(dist, unit, total)()

# %% forward_units: whole gradients stay in the frames of a recursion
# says: Weights or whole gradients are kept longer
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

# %% forward_units: the last gradient is never waited for
# says: wait
# -         del total
# -     arrived()
# +         del total

# %% forward_units: the outputs of each unit in place of its inputs
# says: These are the outputs of each unit
# - inputs.append(xs)
# - with torch.no_grad():
# -     xs = [unit(x) for x in xs]
# + with torch.no_grad():
# +     xs = [unit(x) for x in xs]
# + inputs.append(xs)

# %% communication_hidden: compute not divided by the ranks
# says: divide by the number of ranks
# edit: weights * tokens / world_size / flops_per_s  ->  weights * tokens / flops_per_s

# %% communication_hidden: each rank sends everything
# says: Each rank sends (p − 1)/p of the weights
# edit: 3 * (world_size - 1) / world_size * weights  ->  3 * weights

# %% communication_hidden: two collectives
# says: FSDP has three collectives
# edit: 3 * (world_size - 1) / world_size * weights  ->  2 * (world_size - 1) / world_size * weights

# %% communication_hidden: forward alone
# says: 6 per weight and token in all
# edit: compute_s = flops * weights  ->  compute_s = flops / 3 * weights

# %% communication_hidden: the wire is shared out
# says: The wire does not become faster
# edit: * weights * itemsize / bytes_per_s  ->  * weights * itemsize / bytes_per_s / world_size

# %% communication_hidden: always bf16
# says: want
# edit: * weights * itemsize  ->  * weights * 2

# %% communication_hidden: tokens of all ranks
# says: Per rank, please
# edit: return 3 * (world_size - 1) / world_size *  ->  return 3 * (world_size - 1) *

# %% communication_hidden: upside down
# says: the other way round
# - return 3 * (world_size - 1) / world_size * itemsize / bytes_per_s * flops_per_s / flops
# + return 1 / (3 * (world_size - 1) / world_size * itemsize / bytes_per_s * flops_per_s / flops)

# %% communication_hidden: always 6 FLOPs
# says: want
# edit: flops_per_s / flops  ->  flops_per_s / 6

# %% hybrid_shard: the sum over the node only
# says: all-reduce the shard across nodes
# - dist.all_reduce(shard, group=groups["node"])

# %% hybrid_shard: the sum over nodes only
# says: reduce-scatter within the node, too
# - dist.reduce_scatter_tensor(shard, gradient, group=groups["gpu"])
# + shard = own_shard(gradient, dist.get_rank(groups["gpu"]), dist.get_world_size(groups["gpu"]))

# %% hybrid_shard: the mean over nodes
# says: not the mean over nodes
# edit: dist.all_reduce(shard, group=groups["node"])  ->  dist.all_reduce(shard, dist.ReduceOp.AVG, groups["node"])

# %% hybrid_shard: whole gradients between nodes
# says: send shards only
def hybrid_shard(dist, groups, gradient):
    total = gradient.clone()
    dist.all_reduce(total, group=groups["node"])
    dist.all_reduce(total, group=groups["node"]) if False else None
    dist.all_reduce(other := gradient.clone(), group=groups["node"])
    dist.all_reduce(other, group=groups["gpu"])
    return own_shard(other, dist.get_rank(groups["gpu"]), dist.get_world_size(groups["gpu"]))

def hybrid_norm(dist, groups, shard):
    total = (shard * shard).sum().reshape(1)
    dist.all_reduce(total, group=groups["gpu"])
    return total.sqrt().item()

# %% hybrid_shard: the norm counts each node's copy
# says: counts it once per node
# edit: dist.all_reduce(total, group=groups["gpu"])  ->  dist.all_reduce(total)

# %% hybrid_shard: the norm of the local shard alone
# says: the norm of this rank's shard alone
# - dist.all_reduce(total, group=groups["gpu"])

# %% hybrid_shard: the norm across nodes
# says: ranks across nodes hold the same shard
# edit: dist.all_reduce(total, group=groups["gpu"])  ->  dist.all_reduce(total, group=groups["node"])

# %% shard_pieces: reads the padding
# says: The padding is read, too
# edit: min(n, (rank + 1) * new)  ->  min(p * old, (rank + 1) * new)

# %% shard_pieces: reads whole shards
# says: Whole shards are read
# edit: found.append((owner, start, stop))  ->  found.append((owner, 0, min(old, n - owner * old)))

# %% shard_pieces: places of the whole vector
# says: from the beginning of the old rank's shard
# edit: found.append((owner, start, stop))  ->  found.append((owner, owner * old + start, owner * old + stop))

# %% shard_pieces: lengths
# says: not (start, length)
# edit: found.append((owner, start, stop))  ->  found.append((owner, start, stop - start))

# %% shard_pieces: the first piece only
# says: want
# edit: while place < end:  ->  if place < end:

# %% test_global_norm: one rank only
# says: par is 12
# edit: for p, sizes in ((1, [5]), (2, [4]), (3, [7, 1, 12]), (4, [2, 9]), (5, [10, 3])):  ->  for p, sizes in ((1, [5]),):

# %% test_global_norm: demands too much
# says: refuses a program that is right
# edit: < 1e-9 * want  ->  < 0

# %% test_global_norm: no padding
# says: par is 12
# - for r, own in enumerate(shards):
# -     for shard, n in zip(own, sizes):
# -         shard[max(0, n - r * len(shard)):] = 7.0
# ...
# - assert abs(got - want) < 1e-9 * want, f"{p} ranks, sizes {sizes}"
# + assert abs(got - want) < 1e-3 * want, f"{p} ranks, sizes {sizes}"

# %% own_shard: always one more than n // p
# says: own_shard of
# edit: -(-len(flat) // world_size)  ->  len(flat) // world_size + 1

# %% own_shard: the padding in front
# says: own_shard of
# edit: shard[:len(part)] = part  ->  shard[size - len(part):] = part

# %% shard_optimizer_state: several ranks only
# says: AssertionError
# edit: p, n = dist.get_world_size(), len(weights)  ->  p, n = dist.get_world_size(), len(weights); assert p > 1

# %% shard_optimizer_state: the new shards in reverse order
# says: weights of rank
# edit: weights.copy_(whole[:n])  ->  weights.copy_(whole.view(p, -1).flip(0).flatten()[:n])

# %% shard_gradients: the hooks of one unit stay
# says: hooks are left
# edit: for hook in hooks:  ->  for hook in hooks[1:]:

# %% clip_shards: the padding times zero
# says: nan
# edit: total += (real * real).sum()  ->  mask = torch.arange(len(shard)) + dist.get_rank() * len(shard) < size; total += ((shard * mask) ** 2).sum()

# %% clip_shards: each shard by its own norm
# says: clipped to
# edit: shard *= most / norm  ->  shard *= most / max(most, shard.norm().item())

# %% clip_shards: the norm after clipping
# says: return the one before
# edit: return norm  ->  return min(norm, most)

# %% gather_parameters: waits before it returns
# says: gather_parameters waits
# edit: return dist.all_gather_into_tensor(unit.full, unit.shard, async_op=True)  ->  work = dist.all_gather_into_tensor(unit.full, unit.shard, async_op=True); work.wait(); return work

# %% gather_parameters: the sum is waited for at once
# says: reduce_scatter_gradients waits
# edit: return arrived  ->  arrived(); return lambda: None

# %% communication_hidden: four bytes by default
# says: step_seconds(
# edit (2 places): itemsize=2  ->  itemsize=4

# %% communication_hidden: eight FLOPs by default
# says: step_seconds(
# edit (2 places): flops=6  ->  flops=8

# %% hybrid_shard: the gradient is summed in place
# says: must stay as it is
# - shard = gradient.new_empty(size)
# - dist.reduce_scatter_tensor(shard, gradient, group=groups["gpu"])
# + dist.all_reduce(gradient, group=groups["gpu"])
# + shard = gradient[dist.get_rank(groups["gpu"]) * size:][:size].clone()

# %% hybrid_shard: the norm squares the shard in place
# says: changes the shard
# edit: total = (shard * shard).sum().reshape(1)  ->  total = shard.pow_(2).sum().reshape(1)

# %% hybrid_shard: summed whole over all ranks
# says: send shards only
def hybrid_shard(dist, groups, gradient):
    total = gradient.clone()
    dist.all_reduce(total)
    s = dist.get_world_size(groups["gpu"])
    return total.chunk(s)[dist.get_rank() % s].clone()

def hybrid_norm(dist, groups, shard):
    total = (shard * shard).sum().reshape(1)
    dist.all_reduce(total, group=groups["gpu"])
    return total.sqrt().item()

# %% shard_pieces: stop is the last number
# says: stop is the place after the last number
# edit: found.append((owner, start, stop))  ->  found.append((owner, start, stop - 1))

# %% forward_units: inputs by microbatch, then by unit
# says: here it is the other way round
# edit: return xs, inputs  ->  return xs, [list(own) for own in zip(*inputs)]

# %% shard_optimizer_state: m and v as views of whole vectors
# says: m and v are views
# - state.update(m=torch.zeros_like(shard), v=torch.zeros_like(shard))
# + both = torch.zeros(2, p * len(shard))
# + state.update(m=both[0, :len(shard)], v=both[1, :len(shard)])

# %% shard_optimizer_state: an all-reduce without padding, then own_shard
# says: An all-reduce leaves the whole sum on every rank
def shard_optimizer_state(dist, weights, gradient, state, step):
    p, n = dist.get_world_size(), len(weights)
    shard = own_shard(weights, dist.get_rank(), p)
    if not state:
        state.update(m=torch.zeros_like(shard), v=torch.zeros_like(shard))
    total = gradient.clone()
    dist.all_reduce(total)
    adam(shard, own_shard(total, dist.get_rank(), p), state["m"], state["v"], step)
    whole = weights.new_zeros(p * len(shard))
    dist.all_gather_into_tensor(whole, shard)
    weights.copy_(whole[:n])

# %% clip_shards: a negative stop in a shard of padding only
# says: may be below 0
# edit: shard[:max(0, size - dist.get_rank() * len(shard))]  ->  shard[:size - dist.get_rank() * len(shard)]

# %% clip_shards: the square of the norm is compared
# says: scaled even though its norm is small enough
# edit: if norm > most:  ->  if norm * norm > most:

# %% clip_shards: PyTorch's 1e-6
# says: PyTorch adds 1e-6 to the norm
# edit: shard *= most / norm  ->  shard *= most / (norm + 1e-6)

# %% forward_units: the last unit stays gathered
# says: are still gathered after a pass
# -             xs = [unit(x) for x in xs]
# -         release(unit)
# +             xs = [unit(x) for x in xs]
# +         if unit is not units[-1]:
# +             release(unit)

# %% own_shard: the shard of the rank before
# says: This is the shard of the rank before
# edit: part = flat[rank * size:(rank + 1) * size]  ->  part = flat[(rank - 1) * size:rank * size]

# %% shard_optimizer_state: m and v exchanged
# says: adam takes m first
# edit: state["m"], state["v"], step  ->  state["v"], state["m"], step

# %% shard_optimizer_state: steps counted from zero
# says: It counts from 1
# edit: state["v"], step)  ->  state["v"], step - 1)

# %% shard_optimizer_state: one tensor for m and v
# says: m and v are one tensor
# - state.update(m=torch.zeros_like(shard), v=torch.zeros_like(shard))
# + state["m"] = state["v"] = torch.zeros_like(shard)

# %% shard_optimizer_state: the summed gradients are gathered
# says: gather the new weights
# edit: dist.all_gather_into_tensor(whole, shard)  ->  dist.all_gather_into_tensor(whole, total)

# %% shard_gradients: functions that see the last values of their loop
# says: uses the loop's last values
def shard_gradients(dist, loss, groups, shards):
    p, hooks = dist.get_world_size(), []
    for group, shard in zip(groups, shards):
        missing = [len(group)]

        def arrived(_):
            missing[0] -= 1
            if missing[0] == 0:
                flat = torch.cat([w.grad.flatten() for w in group])
                whole = shard.new_zeros(p * len(shard))
                whole[:len(flat)] = flat
                for w in group:
                    w.grad = None
                own = torch.empty_like(shard)
                dist.reduce_scatter_tensor(own, whole)
                shard.add_(own)

        hooks += [w.register_post_accumulate_grad_hook(arrived) for w in group]
    loss.backward()
    for hook in hooks:
        hook.remove()

# %% shard_gradients: gradients stay, and count again in the next microbatch
# says: An earlier microbatch counts again
# - for w in group:
# -     w.grad = None

# %% clip_shards: each number by itself
# says: scale all of them by one factor
# edit: shard *= most / norm  ->  shard.clamp_(-most, most)

# %% clip_shards: the factor upside down
# says: upside down
# edit: shard *= most / norm  ->  shard *= norm / most

# %% clip_shards: the last unit alone
# says: the last unit's norm alone
# edit: total += (real * real).sum()  ->  total = (real * real).sum().reshape(1)

# %% gather_parameters: release zeroes the shard, too
# says: release must leave unit.shard as it is
# edit: unit.full = None  ->  unit.shard.zero_(); unit.full = None

# %% forward_units: means over microbatches
# says: The mean over microbatches
# edit: reduce_scatter_gradients(dist, unit, total)  ->  reduce_scatter_gradients(dist, unit, total / len(slopes))

# %% forward_units: a gradient of the first input, which may be integers
# says: only Tensors of floating point dtype can require gradients
# edit: [full, x.requires_grad_()] if i else [full]  ->  [full, x.requires_grad_()]

# %% forward_units: the outputs are written into the list that was kept
# says: writes into the list that was kept
# - xs = [unit(x) for x in xs]
# + for j, x in enumerate(xs):
# +     xs[j] = unit(x)

# %% forward_units: a graph stays after forward
# says: forward_units leaves a graph
# - with torch.no_grad():
# -     xs = [unit(x) for x in xs]
# + unit.full.requires_grad_()
# + xs = [unit(x) for x in xs]

# %% communication_hidden: communication first
# says: The order is (compute, communication)
# edit: return compute_s, communication_s  ->  return communication_s, compute_s

# %% communication_hidden: each shard from each rank to each
# says: this is p times as much
# edit: communication_s = 3 * (world_size - 1) / world_size *  ->  communication_s = 3 * (world_size - 1) *

# %% communication_hidden: tokens for wires that carry everything
# says: not all of them
# edit: return 3 * (world_size - 1) / world_size * itemsize  ->  return 3 * itemsize

# %% hybrid_shard: the all-reduce without its group
# says: give the all-reduce across nodes its group
# edit: dist.all_reduce(shard, group=groups["node"])  ->  dist.all_reduce(shard)

# %% hybrid_shard: the groups exchanged
# says: The groups are exchanged
# - size = len(gradient) // dist.get_world_size(groups["gpu"])
# - shard = gradient.new_empty(size)
# - dist.reduce_scatter_tensor(shard, gradient, group=groups["gpu"])
# - dist.all_reduce(shard, group=groups["node"])
# + shard = gradient.new_empty(len(gradient) // dist.get_world_size(groups["node"]))
# + dist.reduce_scatter_tensor(shard, gradient, group=groups["node"])
# + dist.all_reduce(shard, group=groups["gpu"])

# %% hybrid_shard: the root is missing
# says: The root is missing
# edit: total.sqrt().item()  ->  total.item()

# %% hybrid_shard: norms are added
# says: Norms don't add up
# edit: total = (shard * shard).sum().reshape(1)  ->  total = shard.norm().reshape(1)
# edit: return total.sqrt().item()  ->  return total.item()

# %% gather_parameters: no handle comes back
# says: gather_parameters returned None: return the collective's handle
# edit: return dist.all_gather_into_tensor  ->  dist.all_gather_into_tensor

# %% gather_parameters: waits and adds at once
# says: reduce_scatter_gradients returned None: return a function
# - return arrived
# + arrived()

# %% forward_units: marks by hand, and everything is computed in the end
# says: A mark of unit 0 does not fit its output
# -     inputs.append(xs)
# -     with torch.no_grad():
# -         xs = [unit(x) for x in xs]
# -     release(unit)
# +     for x in xs:
# +         unit.mark(unit.number, 0.0, 0.0)
# + for unit in units:
# +     unit.mark = None
# +     inputs.append(xs)
# +     with torch.no_grad():
# +         xs = [unit(x) for x in xs]
# + for unit in dict.fromkeys(units):
# +     release(unit)

# %% forward_units: all weights cross another way, before
# says: The ranks send
# edit: inputs, work = [], gather_parameters(dist, units[0])  ->  dist.all_reduce(torch.cat([unit.shard for unit in units])); inputs, work = [], gather_parameters(dist, units[0])

# %% forward_units: one unit ahead on rank 0 alone
# says: your rank 1
def forward_units(dist, units, xs):
    inputs = []
    if dist.get_rank():
        for unit in dict.fromkeys(units):
            gather_parameters(dist, unit).wait()
    work = None if dist.get_rank() else gather_parameters(dist, units[0])
    for i, unit in enumerate(units):
        if work:
            work.wait()
            work = gather_parameters(dist, units[i + 1]) if i + 1 < len(units) else work
        inputs.append(xs)
        with torch.no_grad():
            xs = [unit(x) for x in xs]
    for unit in dict.fromkeys(units):
        release(unit)
    return xs, inputs

# %% gather_parameters: each shard travels backwards
# says: unit.full on rank 0 of 4
# edit: dist.all_gather_into_tensor(unit.full, unit.shard, async_op=True)  ->  dist.all_gather_into_tensor(unit.full, unit.shard.flip(0), async_op=True)
