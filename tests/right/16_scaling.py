# %% mfu: a table of factors
def mfu(model, tokens_per_s, peak_flops_per_s, counts="model"):
    square, again = {"model": (12, 1), "causal": (6, 1), "hardware": (12, 4 / 3)}[counts]
    per_layer = 6 * model.layer_weights + square * model.hidden * model.seq
    return (again * model.layers * per_layer + 6 * model.end_weights) * tokens_per_s / peak_flops_per_s

# %% mfu: forward passes
def mfu(model, tokens_per_s, peak_flops_per_s, counts="model"):
    forward = model.layers * (2 * model.layer_weights + 4 * model.hidden * model.seq * (0.5 if counts == "causal" else 1))
    passes = 4 if counts == "hardware" else 3
    flops = passes * forward + 3 * 2 * model.vocab * model.hidden
    return flops / peak_flops_per_s * tokens_per_s

# %% memory_bytes: one layout at a time, in plain Python
def memory_bytes(model, layout):
    if len(layout) > 1:
        return np.array([memory_bytes(model, layout[i]) for i in range(len(layout))])
    same, p = layout.data * layout.context, layout.pipeline
    layers = -(-model.layers // p)
    ends = 2 if p == 1 and not model.tied else 1
    weights = (layers * model.layer_weights + ends * model.end_weights) / layout.tensor
    state = weights * ((12 / same if layout.shards >= 1 else 12) + (2 / same if layout.shards >= 2 else 2)
                       + (2 / same if layout.shards >= 3 else 2))
    if layout.shards == 3:
        state += 2 * 2 * model.layer_weights / layout.tensor
    kept, scores, given = (float(part) for part in planning.kept_bytes(model, layout))
    held, again = {"none": (kept, 0), "selective": (kept - scores, scores), "full": (given, kept)}[str(layout.recompute)]
    more = 1 + (p - 1) / (p * layout.chunks) if layout.chunks > 1 else 1
    first = layers * held * min(layout.microbatches, p) * more
    last = layers * held * more + float(planning.score_bytes(model, layout))
    return planning.FRAGMENTS * (state + max(first, last) + again) + planning.DRIVER_BYTES

# %% memory_bytes: state by a loop, recomputation by np.select
def memory_bytes(model, layout):
    p, same = np.asarray(layout.pipeline), np.asarray(layout.data) * layout.context
    ends = model.end_weights * (1 + ((p == 1) & (not model.tied)))
    per_rank = (-(-model.layers // p) * model.layer_weights + ends) / layout.tensor
    total = 0
    for size, least in (12, 1), (2, 2), (2, 3):
        total = total + per_rank * np.where(np.asarray(layout.shards) >= least, size / same, size)
    total = total + np.where(np.asarray(layout.shards) == 3, 4 * model.layer_weights / layout.tensor, 0)
    kept, scores, given = planning.kept_bytes(model, layout)
    kind = np.asarray(layout.recompute)
    held = np.select([kind == "full", kind == "selective"], [given, kept - scores], kept)
    again = np.select([kind == "full", kind == "selective"], [kept, scores], 0.0)
    per_stage = held * -(-model.layers // p) * np.where(np.asarray(layout.chunks) == 1, 1, 1 + (1 - 1 / p) / layout.chunks)
    flying = np.where(layout.microbatches < p, layout.microbatches, p)
    total = total + again + np.maximum(per_stage * flying, per_stage + planning.score_bytes(model, layout))
    return total * planning.FRAGMENTS + planning.DRIVER_BYTES

# %% plan: a mask, then the smallest of what is left
def plan(model, cluster, batch):
    every = planning.layouts(model, cluster.gpus, batch, cluster.gpus_per_node)
    rows = np.flatnonzero(planning.fits(memory_bytes(model, every), cluster))
    if len(rows) == 0:
        raise ValueError("too large")
    return every[int(rows[np.argsort(step_time_s(model, cluster, every)[rows])[0]])]

# %% plan: from the fastest on, the first that fits
def plan(model, cluster, batch):
    every = planning.layouts(model, cluster.gpus, batch, cluster.gpus_per_node)
    fit = memory_bytes(model, every) <= 1.06 * cluster.memory_bytes
    for i in np.argsort(step_time_s(model, cluster, every)):
        if fit[i]:
            return every[int(i)]
    raise ValueError(f"{model} fits no layout of {cluster.gpus} GPUs")

# %% checkpoint_interval_s: Daly's formula
def mtbf_s(gpus, failures_per_1000_node_days, gpus_per_node=8):
    rate_per_node_s = failures_per_1000_node_days / 1000 / (24 * 3600)
    return 1 / (rate_per_node_s * gpus / gpus_per_node)

def checkpoint_interval_s(save_s, mtbf):
    if save_s >= 2 * mtbf:
        return mtbf
    ratio = save_s / (2 * mtbf)
    return math.sqrt(2 * save_s * mtbf) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - save_s

# %% checkpoint_interval_s: the least of a grid
def mtbf_s(gpus, failures_per_1000_node_days, gpus_per_node=8):
    return 1000 * 86400 * gpus_per_node / (gpus * failures_per_1000_node_days)

def checkpoint_interval_s(save_s, mtbf):
    x = mtbf * np.geomspace(1e-4, 1, 4000)
    return float(x[np.argmin(np.expm1((x + save_s) / mtbf) / x)])

# %% checkpoint_interval_s: Newton's steps
def mtbf_s(gpus, failures_per_1000_node_days, gpus_per_node=8):
    nodes = gpus / gpus_per_node
    return 86400 / (nodes * failures_per_1000_node_days / 1000)

def checkpoint_interval_s(save_s, mtbf):
    x, d = 1.0, save_s / mtbf
    for _ in range(50):
        e = math.exp(-x - d)
        x -= (1 - x - e) / (-1 + e)
    return x * mtbf

# %% checkpoint_interval_s: a golden section
def mtbf_s(gpus, failures_per_1000_node_days, gpus_per_node=8):
    return 86400 / (gpus / gpus_per_node * failures_per_1000_node_days * 1e-3)

def checkpoint_interval_s(save_s, mtbf):
    def cost(tau):
        return math.expm1((tau + save_s) / mtbf) / tau
    a, b = 1e-6 * mtbf, mtbf
    g = (math.sqrt(5) - 1) / 2
    for _ in range(80):
        c, d = b - g * (b - a), a + g * (b - a)
        if cost(c) < cost(d):
            b = d
        else:
            a = c
    return (a + b) / 2

# %% policy: intervals searched, too
def policy(cluster):
    mtbf = mtbf_s(8 * cluster["nodes"], cluster["failures_per_1000_node_days"])
    base, best = checkpoint_interval_s(cluster["save_s"], mtbf), None
    most = int(cluster["nodes"] // cluster["replica_nodes"])
    tried = [{"interval_s": f * base, "replicas": r, "drop": d} for f in (0.8, 1.0, 1.25)
             for r in range(max(1, most - 8), most + 1) for d in (False, True)]
    years = failures.goodputs(cluster, tried, [1, 2, 3])
    return tried[int(np.argmax(years.mean(axis=1)))]

# %% policy: one at a time
def policy(cluster):
    mtbf = mtbf_s(8 * cluster["nodes"], cluster["failures_per_1000_node_days"])
    interval_s = checkpoint_interval_s(cluster["save_s"], mtbf)
    most = int(cluster["nodes"]) // int(cluster["replica_nodes"])
    best, found = 0.0, None
    for drop in (False, True):
        for spare in range(min(8, most)):
            candidate = dict(interval_s=interval_s, replicas=most - spare, drop=drop)
            value = failures.goodput({**cluster, "days": min(cluster["days"], 180)}, candidate, (5, 6, 7))
            if value > best:
                best, found = value, candidate
    return found

# %% outer_step: two all-reduces
def outer_step(dist, shared, own, momentum, present, rate=0.7, beta=0.9):
    count = torch.tensor([1.0 if present else 0.0])
    dist.all_reduce(count)
    total = shared - own if present else torch.zeros_like(shared)
    dist.all_reduce(total)
    mean = total / count
    momentum[:] = beta * momentum + mean
    shared[:] = shared - rate * (mean + beta * momentum)

# %% outer_step: PyTorch's own SGD
def outer_step(dist, shared, own, momentum, present, rate=0.7, beta=0.9):
    change = torch.zeros(len(shared) + 1)
    if present:
        change[:-1], change[-1] = shared - own, 1
    dist.all_reduce(change)
    weight = torch.nn.Parameter(shared.clone())
    weight.grad = change[:-1] / change[-1]
    sgd = torch.optim.SGD([weight], rate, momentum=beta, nesterov=True)
    sgd.state[weight]["momentum_buffer"] = momentum.clone()
    sgd.step()
    shared.copy_(weight.data)
    momentum.copy_(sgd.state[weight]["momentum_buffer"])

# %% outer_step: averaged weights first
def outer_step(dist, shared, own, momentum, present, rate=0.7, beta=0.9):
    packed = torch.cat([own * float(present), torch.tensor([float(present)])])
    dist.all_reduce(packed)
    gradient = shared - packed[:-1] / packed[-1]
    new = beta * momentum + gradient
    shared.sub_(rate * gradient + rate * beta * new)
    momentum.copy_(new)

# %% mesh_update: three all-reduces of one number
def mesh_update(dist, groups, weights, gradient, state, step, replicated, most):
    d, rank = dist.get_world_size(groups["data"]), dist.get_rank(groups["data"])
    n = len(weights) // d
    g = torch.empty(n)
    dist.reduce_scatter_tensor(g, gradient, group=groups["data"])
    place = torch.arange(n) + rank * n
    share = torch.where(place < replicated, 1 / dist.get_world_size(groups["tensor"]), 1.0)
    total = (g * g * share).sum()[None]
    for axis in ("tensor", "data", "pipeline"):
        dist.all_reduce(total, group=groups[axis])
    norm = float(total) ** 0.5
    if norm > most:
        g = g * (most / norm)
    state.setdefault("m", torch.zeros(n))
    state.setdefault("v", torch.zeros(n))
    mine = weights.view(d, n)[rank].clone()
    adam(mine, g, state["m"], state["v"], step)
    dist.all_gather_into_tensor(weights, mine, group=groups["data"])
    return norm

# %% mesh_update: lists of tensors
def mesh_update(dist, groups, weights, gradient, state, step, replicated, most):
    group = groups["data"]
    d, me = dist.get_world_size(group), dist.get_rank(group)
    parts = [part.clone() for part in gradient.chunk(d)]
    own = torch.empty_like(parts[0])
    dist.reduce_scatter(own, parts, group=group)
    start = me * len(own)
    cut = min(len(own), max(0, replicated - start))
    t = dist.get_world_size(groups["tensor"])
    square = ((own[:cut] ** 2).sum() / t + (own[cut:] ** 2).sum()).reshape(1)
    dist.all_reduce(square)
    norm = math.sqrt(square.item())
    if step == 1:
        state["m"], state["v"] = torch.zeros_like(own), torch.zeros_like(own)
    mine = weights[start:start + len(own)].clone()
    adam(mine, own * min(1, most / norm), state["m"], state["v"], step)
    gathered = [torch.empty_like(mine) for _ in range(d)]
    dist.all_gather(gathered, mine, group=group)
    weights[:] = torch.cat(gathered)
    return norm

# %% mfu: one list of products
def mfu(model, tokens_per_s, peak_flops_per_s, counts="model"):
    products = [6.0 * model.layers * model.layer_weights, 12.0 * model.layers * model.hidden * model.seq,
                6.0 * model.end_weights]
    factors = {"causal": [1, 0.5, 1], "hardware": [4 / 3, 4 / 3, 1]}.get(counts, [1, 1, 1])
    return float(np.dot(products, factors)) * tokens_per_s / peak_flops_per_s

# %% mfu: what differs from the model's count
def mfu(model, tokens_per_s, peak_flops_per_s, counts="model"):
    square = 12 * model.hidden * model.seq * model.layers
    flops = 6 * (model.layers * model.layer_weights + model.end_weights) + square
    if counts == "causal":
        flops = flops - square / 2
    elif counts == "hardware":
        flops = flops + (flops - 6 * model.end_weights) / 3
    return flops / (peak_flops_per_s / tokens_per_s)

# %% mfu: match
def mfu(model, tokens_per_s, peak_flops_per_s, counts="model"):
    weights, scores = 2 * model.layer_weights, 4 * model.hidden * model.seq
    match counts:
        case "model":
            layer = 3 * (weights + scores)
        case "causal":
            layer = 3 * weights + 1.5 * scores
        case "hardware":
            layer = 4 * (weights + scores)
    return (model.layers * layer + 6 * model.end_weights) * (tokens_per_s / peak_flops_per_s)

# %% memory_bytes: parts in a dict
def memory_bytes(model, layout):
    p, t, stage = np.asarray(layout.pipeline), layout.tensor, np.asarray(layout.shards)
    group = np.asarray(layout.data * layout.context, float)
    deep = np.ceil(model.layers / p)
    both_ends = (p == 1) & np.logical_not(model.tied)
    mine = (deep * model.layer_weights + (1.0 + both_ends) * model.end_weights) / t
    kept, scores, given = planning.kept_bytes(model, layout)
    full, part = np.asarray(layout.recompute) == "full", np.asarray(layout.recompute) == "selective"
    per_layer = kept - scores * part - (kept - given) * full
    ahead = 1 + (np.asarray(layout.chunks) > 1) * (p - 1) / (p * np.asarray(layout.chunks))
    parts = {
        "adam": 12 * mine / group ** (stage >= 1),
        "gradients": 2 * mine / group ** (stage >= 2),
        "weights": 2 * mine / group ** (stage >= 3),
        "fetched": (stage >= 3) * 4 * model.layer_weights / t,
        "again": part * scores + full * kept,
        "activations": np.maximum(deep * per_layer * np.minimum(p, layout.microbatches) * ahead,
                                  deep * per_layer * ahead + planning.score_bytes(model, layout)),
    }
    return planning.DRIVER_BYTES + planning.FRAGMENTS * sum(parts.values())

# %% step_time_s: one layout at a time, in plain Python
def ring_s(cluster, size, stride, sent):
    rounds = 2 * size - 2
    return rounds * cluster.latency_s + rounds / size * sent / planning.bandwidth(cluster, size, stride)

def slot_s(model, cluster, layout):
    work = planning.work(model, cluster, layout)
    two_sums = 2 * ring_s(cluster, layout.tensor, 1, work.message_bytes)
    if layout.overlap:
        two_sums = two_sums * cluster.exposed
    layer = work.forward_s + two_sums + work.backward_s + two_sums
    if layout.recompute == "full":
        layer = layer + work.forward_s + two_sums
    elif layout.recompute == "selective":
        layer = layer + work.attention_s
    most, last = planning.stage_layers(model, layout)
    return max(most * layer, last * layer + work.ends_s), model.layers * layer + work.ends_s

def step_time_s(model, cluster, layout):
    if len(layout) > 1:
        return np.array([step_time_s(model, cluster, layout[i]) for i in range(len(layout))])
    work = planning.work(model, cluster, layout)
    slowest, everything = slot_s(model, cluster, layout)
    hop, stages = planning.hop_s(cluster, layout, work), layout.pipeline
    filling = (everything - slowest + 2 * (stages - 1) * hop) / layout.chunks
    pipeline = layout.microbatches * (slowest + layout.chunks * hop) + layout.bubble * filling
    n = model.layers * work.layer_weights / stages + work.end_weights
    same = layout.data * layout.context

    def half(size, messages=1):
        return messages * ring_s(cluster, same, layout.tensor, size * n / messages) / 2

    if layout.shards == 0:
        sent = 2 * half(4)
    elif layout.shards < 3:
        sent = half(4) + half(2)
    else:
        sent = 3 * layout.microbatches * half(2, planning.fetches(model, layout))
    if layout.overlap:
        hidden = min(sent, pipeline if layout.shards == 3 else pipeline / 2)
        sent = sent - hidden + cluster.exposed * hidden
    update = (30 * (n / same if layout.shards else n) + 6 * n) / cluster.memory_bytes_per_s
    nodes = max(1.0, layout.gpus / cluster.gpus_per_node)
    return (pipeline + sent + update) * (1 + cluster.stragglers * math.log2(nodes))

# %% step_time_s: a reduce-scatter and an all-gather
def one_half_s(cluster, size, stride, sent):
    return (size - 1) * cluster.latency_s + (1 - 1 / size) * sent / planning.bandwidth(cluster, size, stride)

def ring_s(cluster, size, stride, sent):
    return one_half_s(cluster, size, stride, sent) + one_half_s(cluster, size, stride, sent)

def slot_s(model, cluster, layout):
    work = planning.work(model, cluster, layout)
    kind = np.asarray(layout.recompute)
    message = ring_s(cluster, layout.tensor, 1, work.message_bytes)
    message = message - np.asarray(layout.overlap) * (1 - cluster.exposed) * message
    once = work.forward_s + 2 * message
    layer = once + work.backward_s + 2 * message
    layer = layer + np.select([kind == "full", kind == "selective"], [once, work.attention_s], 0.0)
    most, last = planning.stage_layers(model, layout)
    stages = np.stack(np.broadcast_arrays(most * layer, last * layer + work.ends_s))
    return stages.max(0), layer * model.layers + work.ends_s

def step_time_s(model, cluster, layout):
    work, kind = planning.work(model, cluster, layout), np.asarray(layout.shards)
    slowest, everything = slot_s(model, cluster, layout)
    hop = planning.hop_s(cluster, layout, work)
    busy = layout.microbatches * slowest + layout.microbatches * layout.chunks * hop
    idle = layout.bubble / layout.chunks * (everything - slowest + 2 * (layout.pipeline - 1) * hop)
    n = work.end_weights + work.layer_weights * model.layers / layout.pipeline
    ring = cluster, layout.data * layout.context, layout.tensor
    parts = planning.fetches(model, layout)
    reduced, gathered = one_half_s(*ring, 4 * n), one_half_s(*ring, 2 * n)
    fetched = layout.microbatches * parts * one_half_s(*ring, 2 * n / parts)
    sent = np.select([kind == 0, kind == 3], [2 * reduced, 3 * fetched], reduced + gathered)
    hidden = np.minimum(sent, (busy + idle) * np.where(kind == 3, 1.0, 0.5)) * np.asarray(layout.overlap)
    owned = np.where(kind == 0, n, n / ring[1])
    update = (5 * owned + n) * 6 / cluster.memory_bytes_per_s
    slower = cluster.stragglers * np.log2(np.clip(layout.gpus / cluster.gpus_per_node, 1, None))
    return (1 + slower) * (busy + idle + sent - (1 - cluster.exposed) * hidden + update)

# %% step_time_s: masks as numbers
def ring_s(cluster, size, stride, sent):
    piece = np.asarray(sent) / size
    return 2 * (np.asarray(size) - 1) * (piece / planning.bandwidth(cluster, size, stride) + cluster.latency_s)

def slot_s(model, cluster, layout):
    work, kind = planning.work(model, cluster, layout), np.asarray(layout.recompute)
    full, part = (kind == "full") * 1.0, (kind == "selective") * 1.0
    hidden = np.asarray(layout.overlap) * (1 - cluster.exposed)
    sums = (4 + 2 * full) * (1 - hidden) * ring_s(cluster, layout.tensor, 1, work.message_bytes)
    layer = (1 + full) * work.forward_s + work.backward_s + part * work.attention_s + sums
    most, last = planning.stage_layers(model, layout)
    return np.maximum(layer * most, layer * last + work.ends_s), layer * model.layers + work.ends_s

def step_time_s(model, cluster, layout):
    work = planning.work(model, cluster, layout)
    (slowest, everything), hop = slot_s(model, cluster, layout), planning.hop_s(cluster, layout, work)
    time = layout.microbatches * (slowest + layout.chunks * hop)
    time = time + (everything - slowest + 2 * (layout.pipeline - 1) * hop) * layout.bubble / layout.chunks
    n = model.layers / layout.pipeline * work.layer_weights + work.end_weights
    ranks_, cut, three = layout.data * layout.context, np.asarray(layout.shards) > 0, np.asarray(layout.shards) > 2
    def ring(size):
        return ring_s(cluster, ranks_, layout.tensor, size)
    parts = planning.fetches(model, layout)
    sent = (~cut) * ring(4 * n) + (cut & ~three) * (ring(4 * n) + ring(2 * n)) / 2
    sent = sent + three * 1.5 * layout.microbatches * parts * ring(2 * n / parts)
    room = time * (0.5 + 0.5 * three)
    beyond = np.clip(sent - room, 0, None)
    sent = np.where(layout.overlap, beyond + cluster.exposed * np.minimum(sent, room), sent)
    update = 30 * n * np.where(cut, 1 / ranks_, 1) + 6 * n
    nodes = np.fmax(1, layout.gpus / cluster.gpus_per_node)
    return (time + sent + update / cluster.memory_bytes_per_s) * (1 + np.log2(nodes) * cluster.stragglers)

# %% plan: a masked array
def plan(model, cluster, batch):
    every = planning.layouts(model, cluster.gpus, batch, cluster.gpus_per_node)
    fit = planning.fits(memory_bytes(model, every), cluster)
    times = np.ma.masked_array(step_time_s(model, cluster, every), mask=np.logical_not(fit))
    if times.count() == 0:
        raise ValueError("nothing fits")
    return every[int(times.argmin())]

# %% plan: Python's min
def plan(model, cluster, batch):
    every = planning.layouts(model, cluster.gpus, batch, cluster.gpus_per_node)
    times, fit = step_time_s(model, cluster, every).tolist(), planning.fits(memory_bytes(model, every), cluster)
    best = min((i for i in range(len(every)) if fit[i]), key=times.__getitem__)  # ValueError if none
    return every[best]

# %% outer_step: a list of two tensors is one buffer
def outer_step(dist, shared, own, momentum, present, rate=0.7, beta=0.9):
    packed = torch.zeros(shared.numel() + 1, dtype=shared.dtype)
    if present:
        torch.sub(shared, own, out=packed[:-1])
        packed[-1] = 1.0
    dist.all_reduce(packed, op=dist.ReduceOp.SUM)
    mean = packed[:-1].div(packed[-1])
    torch.add(mean, momentum, alpha=beta, out=momentum)
    shared.sub_(mean, alpha=rate).sub_(momentum, alpha=rate * beta)

# %% mesh_update: weights of the squares
def mesh_update(dist, groups, weights, gradient, state, step, replicated, most):
    group = groups["data"]
    d, me, t = dist.get_world_size(group), dist.get_rank(group), dist.get_world_size(groups["tensor"])
    share = torch.ones(len(weights))
    share[:replicated] = 1 / t
    total = torch.zeros(len(weights) // d)
    dist.reduce_scatter_tensor(total, gradient.contiguous(), group=group)
    square = torch.dot(share.chunk(d)[me], total ** 2)[None]
    dist.all_reduce(square, op=dist.ReduceOp.SUM)
    norm = math.sqrt(float(square))
    total = total if norm <= most else total * most / norm
    for name in ("m", "v"):
        if name not in state:
            state[name] = torch.zeros(len(total))
    mine = torch.narrow(weights, 0, me * len(total), len(total)).clone()
    adam(mine, total, state["m"], state["v"], step)
    dist.all_gather_into_tensor(weights, mine, group=group)
    return norm

# %% policy: the spares of a bad week
def policy(cluster):
    per_s = cluster["failures_per_1000_node_days"] / 1000 / 86400
    most = int(cluster["nodes"] // cluster["replica_nodes"])
    interval_s = checkpoint_interval_s(cluster["save_s"], 1 / (cluster["nodes"] * per_s))
    found = []
    for drop in (True, False):
        for replicas in range(max(1, most - 12), most + 1):
            one = {"interval_s": float(interval_s), "replicas": int(replicas), "drop": drop}
            found.append((failures.goodput(cluster, one, [11, 12, 13]), replicas, one))
    return max(found, key=lambda entry: entry[:2])[2]

# %% mfu: the other counts from the model's, by recursion
def mfu(model, tokens_per_s, peak_flops_per_s, counts="model"):
    attention, ends = 12 * model.layers * model.hidden * model.seq, 6 * model.end_weights
    rate = tokens_per_s / peak_flops_per_s
    if counts == "causal":
        return mfu(model, tokens_per_s, peak_flops_per_s) - attention / 2 * rate
    if counts == "hardware":
        return 4 / 3 * mfu(model, tokens_per_s, peak_flops_per_s) - ends / 3 * rate
    return (6 * model.layers * model.layer_weights + attention + ends) * rate

# %% mfu: the ideal time over the real one
def mfu(model, tokens_per_s, peak_flops_per_s, counts="model"):
    real_s = 1 / tokens_per_s
    pairs = model.seq / 2 if counts == "causal" else model.seq
    forward = 2 * model.layer_weights + 2 * 2 * pairs * model.hidden
    backward = 2 * forward
    recomputed = forward if counts == "hardware" else 0
    ideal_s = (model.layers * (forward + backward + recomputed) + 6 * model.end_weights) / peak_flops_per_s
    return ideal_s / real_s

# %% mfu: layer by layer
def mfu(model, tokens_per_s, peak_flops_per_s, counts="model"):
    flops = 0.0
    for _ in range(model.layers):
        layer = 6 * model.layer_weights
        layer += (6 if counts == "causal" else 12) * model.hidden * model.seq
        flops += layer / 3 * 4 if counts == "hardware" else layer
    flops += 6 * model.vocab * model.hidden
    return flops * tokens_per_s / peak_flops_per_s

# %% mfu: a dataclass of FLOPs
from dataclasses import dataclass

@dataclass
class Flops:
    matrices: float
    attention: float
    ends: float

    def counted(self, counts):
        if counts == "causal":
            return self.matrices + 0.5 * self.attention + self.ends
        if counts == "hardware":
            return (self.matrices + self.attention) * 4 / 3 + self.ends
        return self.matrices + self.attention + self.ends

def mfu(model, tokens_per_s, peak_flops_per_s, counts="model"):
    flops = Flops(6 * model.layers * model.layer_weights, 12 * model.layers * model.hidden * model.seq,
                  6 * model.end_weights)
    return float(flops.counted(counts)) * tokens_per_s / peak_flops_per_s

# %% mfu: a share that asserts that it is one
def mfu(model, tokens_per_s, peak_flops_per_s, counts="model"):
    peak_tokens_per_s = {}
    weights, square = 6 * model.layers * model.layer_weights, 12 * model.layers * model.hidden * model.seq
    for kind, flops in (("model", weights + square), ("causal", weights + square / 2),
                        ("hardware", 8 * weights / 6 + 16 * square / 12)):
        peak_tokens_per_s[kind] = peak_flops_per_s / (flops + 6 * model.end_weights)
    share = tokens_per_s / peak_tokens_per_s[counts]
    assert 0 <= share <= 1, "a share of the peak is at most 1"
    return share

# %% mfu: teraflops, in np.select
def mfu(model, tokens_per_s, peak_flops_per_s, counts="model"):
    tera = np.array([model.layer_weights * 6, model.hidden * model.seq * 12]) * model.layers * 1e-12
    layers = np.select([counts == "causal", counts == "hardware"], [tera @ [1, 0.5], tera.sum() / 0.75], tera.sum())
    return (layers + 6e-12 * model.end_weights) * tokens_per_s / (peak_flops_per_s * 1e-12)

# %% memory_bytes: a table by the stage of sharding
def memory_bytes(model, layout):
    same = np.asarray(layout.data * layout.context)[..., None]
    cut = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [1, 1, 1]])[np.asarray(layout.shards)]
    each = np.where(cut, np.array([12, 2, 2]) / same, np.array([12, 2, 2])).sum(-1)
    p = layout.pipeline
    layers = (model.layers + p - 1) // p
    ends = model.end_weights + np.where((np.asarray(p) == 1) & (not model.tied), model.end_weights, 0)
    state = each * (layers * model.layer_weights + ends) / layout.tensor
    state = state + (np.asarray(layout.shards) == 3) * 4 * model.layer_weights / layout.tensor
    kept, scores, given = planning.kept_bytes(model, layout)
    held = planning.chosen(layout.recompute, {"none": kept, "selective": kept - scores, "full": given})
    again = planning.chosen(layout.recompute, {"selective": scores, "full": kept})
    v = np.asarray(layout.chunks)
    per_stage = layers * held * (1 + (v > 1) * (1 - 1 / np.asarray(p)) / v)
    ends_of_pipeline = per_stage * np.minimum(p, layout.microbatches), per_stage + planning.score_bytes(model, layout)
    return planning.FRAGMENTS * (state + np.maximum(*ends_of_pipeline) + again) + planning.DRIVER_BYTES

# %% memory_bytes: three helpers
def weights_of_a_stage(model, layout):
    both = (np.asarray(layout.pipeline) == 1) & np.logical_not(model.tied)
    layers = np.ceil(model.layers / layout.pipeline)
    return (layers * model.layer_weights + (1 + both) * model.end_weights) / layout.tensor

def bytes_per_weight(layout):
    n = layout.data * layout.context
    return planning.chosen(layout.shards, {0: 16, 1: 4 + 12 / n, 2: 2 + 14 / n, 3: 16 / n})

def activation_bytes(model, layout):
    kept, scores, given = planning.kept_bytes(model, layout)
    held = planning.chosen(layout.recompute, {"none": kept, "selective": kept - scores, "full": given})
    more = np.where(np.asarray(layout.chunks) > 1, (layout.pipeline - 1) / (layout.pipeline * layout.chunks), 0)
    one = np.ceil(model.layers / layout.pipeline) * held * (1 + more)
    flying = one * np.minimum(layout.pipeline, layout.microbatches)
    again = planning.chosen(layout.recompute, {"none": 0, "selective": scores, "full": kept})
    return np.maximum(flying, one + planning.score_bytes(model, layout)) + again

def memory_bytes(model, layout):
    fetched = planning.chosen(layout.shards, {3: 2 * 2 * model.layer_weights / layout.tensor})
    sums = bytes_per_weight(layout) * weights_of_a_stage(model, layout) + activation_bytes(model, layout) + fetched
    return sums * planning.FRAGMENTS + planning.DRIVER_BYTES

# %% memory_bytes: early returns for one layout, a comprehension for many
def of_one(model, layout):
    t, p, d = layout.tensor, layout.pipeline, layout.data * layout.context
    layers = math.ceil(model.layers / p)
    weights = layers * model.layer_weights + model.end_weights
    if p == 1 and not model.tied:
        weights += model.end_weights
    weights /= t
    per_weight = [16, 4 + 12 / d, 2 + 14 / d, 16 / d][int(layout.shards)]
    kept, scores, given = planning.kept_bytes(model, layout)
    if layout.recompute == "none":
        held, again = kept, 0
    elif layout.recompute == "selective":
        held, again = kept - scores, scores
    else:
        held, again = given, kept
    ahead = 1 if layout.chunks == 1 else 1 + (p - 1) / (p * layout.chunks)
    total = per_weight * weights + again + max(
        layers * held * ahead * min(p, layout.microbatches),
        layers * held * ahead + planning.score_bytes(model, layout))
    if layout.shards == 3:
        total += 4 * model.layer_weights / t
    return float(planning.FRAGMENTS * total + planning.DRIVER_BYTES)

def memory_bytes(model, layout):
    if not any(np.ndim(value) for value in vars(layout).values()):
        return of_one(model, layout)
    return np.array([of_one(model, layout[i]) for i in range(len(layout))])

# %% memory_bytes: np.vectorize over the places
def memory_bytes(model, layout):
    def one(i):
        at = layout[i]
        d, p, v = at.data * at.context, at.pipeline, at.chunks
        layers = -(-model.layers // p)
        n = (layers * model.layer_weights + (1 if p > 1 or model.tied else 2) * model.end_weights) / at.tensor
        state = sum(n * size / (d if at.shards > level else 1) for level, size in enumerate((12, 2, 2)))
        state += 4 * model.layer_weights / at.tensor * (at.shards > 2)
        kept, scores, given = planning.kept_bytes(model, at)
        held, more = {"none": (kept, 0), "selective": (kept - scores, scores), "full": (given, kept)}[at.recompute]
        held = layers * held * (1 + (v > 1) * (p - 1) / p / v)
        peak = max(held * min(at.microbatches, p), held + planning.score_bytes(model, at))
        return float(planning.FRAGMENTS * (state + peak + more) + planning.DRIVER_BYTES)
    return np.vectorize(one, otypes=[float])(np.arange(len(layout)) if len(layout) > 1 else 0)

# %% memory_bytes: powers of the ranks, recomputation by masks
# edit: each = 12 / np.where(shards > 0, owners, 1)  ->  each = 12 * np.asarray(owners, float) ** -(shards > 0).astype(float)
# ...
# -     held = chosen(kind, {"none": kept, "selective": kept - scores, "full": given})
# -     again = chosen(kind, {"none": 0, "selective": scores, "full": kept})
# +     full, part = np.asarray(kind) == "full", np.asarray(kind) == "selective"
# +     held, again = np.where(full, given, kept - part * scores), full * kept + part * scores

# %% memory_bytes: what sharding saves, taken off
# -     each = 12 / np.where(shards > 0, owners, 1)
# -     each = each + 2 / np.where(shards > 1, owners, 1) + 2 / np.where(shards > 2, owners, 1)
# +     saved = (12 * (shards > 0) + 2.0 * (shards > 1) + 2.0 * (shards > 2)) * (1 - 1 / np.asarray(owners))
# +     each = 16 - saved
# ...
# -     first = layers * held * np.minimum(layout.microbatches, p) * early
# -     last = layers * held * early + planning.score_bytes(model, layout)
# -     total = each * weights + fetched + np.maximum(first, last) + again
# +     more = (np.minimum(layout.microbatches, p) - 1) * layers * held * early
# +     total = each * weights + fetched + layers * held * early + again
# +     total = total + np.maximum(more, planning.score_bytes(model, layout))

# %% memory_bytes: sorted ends, gigabytes on the way
# -     total = each * weights + fetched + np.maximum(first, last) + again
# -     return planning.FRAGMENTS * total + planning.DRIVER_BYTES
# +     ends_gb = np.sort(np.stack(np.broadcast_arrays(first, last)) / 1e9, axis=0)[-1]
# +     total_gb = (each * weights + fetched + again) / 1e9 + ends_gb
# +     return 1e9 * (planning.FRAGMENTS * total_gb + planning.DRIVER_BYTES / 1e9)

# %% step_time_s: halves of a sum, chosen by the stage of sharding
# -     sent_s = np.where(shards > 0, gathered_s + reduced_s, 2 * reduced_s)
# -     sent_s = np.where(shards > 2, 3 * layout.microbatches * gathered_s, sent_s)
# +     two = gathered_s + reduced_s
# +     sent_s = planning.chosen(shards, {0: 2 * reduced_s, 1: two, 2: two, 3: 3 * layout.microbatches * gathered_s})
# ...
# -     beyond_s = np.maximum(sent_s - np.where(shards > 2, pipeline_s, pipeline_s / 2), 0)
# -     waiting_s = np.where(layout.overlap, beyond_s + cluster.exposed * (sent_s - beyond_s), sent_s)
# +     hides_s = np.minimum(sent_s, pipeline_s / np.where(shards > 2, 1, 2)) * np.where(layout.overlap, 1 - cluster.exposed, 0)
# +     waiting_s = sent_s - hides_s

# %% step_time_s: gradients in a function of their own
def ring_s(cluster, size, stride, sent):
    return 2 * sum(((size - 1) * cluster.latency_s, (1 - 1 / size) * sent / planning.bandwidth(cluster, size, stride)))

def layer_time(work, cluster, layout):
    both = ring_s(cluster, layout.tensor, 1, work.message_bytes) * 2
    both = both * (1 - (1 - cluster.exposed) * np.asarray(layout.overlap))
    again = planning.chosen(layout.recompute, {"selective": work.attention_s, "full": work.forward_s + both})
    return (work.forward_s + both) + (work.backward_s + both) + again

def slot_s(model, cluster, layout):
    work = planning.work(model, cluster, layout)
    layer_s = layer_time(work, cluster, layout)
    counts = planning.stage_layers(model, layout)
    stages = [counts[0] * layer_s, counts[1] * layer_s + work.ends_s]
    return np.where(stages[0] > stages[1], *stages), model.layers * layer_s + work.ends_s

def gradients_s(model, cluster, layout, weights, room_s):
    same, parts = layout.data * layout.context, planning.fetches(model, layout)
    def half(size, pieces=1):
        return pieces * ring_s(cluster, same, layout.tensor, size * weights / pieces) / 2
    zero, three = np.asarray(layout.shards) == 0, np.asarray(layout.shards) == 3
    sent = np.where(three, 3 * layout.microbatches * half(2, parts), half(4) + np.where(zero, half(4), half(2)))
    hidden = np.minimum(sent, np.where(three, room_s, room_s / 2))
    return np.where(layout.overlap, (sent - hidden) + hidden * cluster.exposed, sent)

def step_time_s(model, cluster, layout):
    work = planning.work(model, cluster, layout)
    slowest, every = slot_s(model, cluster, layout)
    hop = planning.hop_s(cluster, layout, work)
    steady = layout.microbatches * (slowest + layout.chunks * hop)
    fill = (every - slowest) / layout.chunks + 2 * (layout.pipeline - 1) * hop / layout.chunks
    pipeline = steady + fill * layout.bubble
    weights = (model.layers * model.layer_weights / layout.pipeline + model.end_weights) / layout.tensor
    cut = np.where(np.asarray(layout.shards) > 0, layout.data * layout.context, 1)
    adam_s = 6 * weights * (5 / cut + 1) / cluster.memory_bytes_per_s
    nodes = np.where(layout.gpus > cluster.gpus_per_node, layout.gpus / cluster.gpus_per_node, 1)
    total = pipeline + adam_s + gradients_s(model, cluster, layout, weights, pipeline)
    return total + total * cluster.stragglers * np.log(nodes) / np.log(2)

# %% step_time_s: passes in a loop, np.vectorize over layouts
def ring_s(cluster, size, stride, sent):
    return (size - 1) * 2 * cluster.latency_s + 2 * (size - 1) * sent / (size * planning.bandwidth(cluster, size, stride))

def slot_s(model, cluster, layout):
    work = planning.work(model, cluster, layout)
    passes = [work.forward_s, work.backward_s] + ([work.forward_s] if layout.recompute == "full" else [])
    layer_s = sum(passes) + (work.attention_s if layout.recompute == "selective" else 0)
    for _ in passes:
        for _ in range(2):
            layer_s += ring_s(cluster, layout.tensor, 1, work.message_bytes) * (cluster.exposed if layout.overlap else 1)
    most, last = planning.stage_layers(model, layout)
    return max(most * layer_s, last * layer_s + work.ends_s), model.layers * layer_s + work.ends_s

def of_one(model, cluster, layout):
    work = planning.work(model, cluster, layout)
    slowest, every = slot_s(model, cluster, layout)
    hop, m, v = planning.hop_s(cluster, layout, work), layout.microbatches, layout.chunks
    time = m * slowest + m * v * hop + layout.bubble * (every - slowest + 2 * (layout.pipeline - 1) * hop) / v
    n = model.layers / layout.pipeline * work.layer_weights + work.end_weights
    same = layout.data * layout.context
    if layout.shards == 3:
        parts = planning.fetches(model, layout)
        sent = 1.5 * m * parts * ring_s(cluster, same, layout.tensor, 2 * n / parts)
    else:
        sent = sum(ring_s(cluster, same, layout.tensor, size * n) / 2 for size in ((4, 4) if layout.shards == 0 else (4, 2)))
    if layout.overlap:
        room = time if layout.shards == 3 else time / 2
        sent = cluster.exposed * sent if sent <= room else sent - room + cluster.exposed * room
    time += sent + (30 * n / (same if layout.shards else 1) + 6 * n) / cluster.memory_bytes_per_s
    return float(time * (1 + cluster.stragglers * math.log2(max(1, layout.gpus / cluster.gpus_per_node))))

def step_time_s(model, cluster, layout):
    if len(layout) == 1:
        return of_one(model, cluster, layout)
    return np.fromiter((of_one(model, cluster, layout[i]) for i in range(len(layout))), float)

# %% step_time_s: a class for a ring
class Ring:
    def __init__(self, cluster, size, stride):
        self.size, self.latency_s = size, cluster.latency_s
        self.rate = planning.bandwidth(cluster, size, stride)

    def half(self, sent):
        return (self.size - 1) * (self.latency_s + sent / self.size / self.rate)

def ring_s(cluster, size, stride, sent):
    return 2 * Ring(cluster, size, stride).half(sent)

def slot_s(model, cluster, layout):
    w = planning.work(model, cluster, layout)
    sums = 4 * Ring(cluster, layout.tensor, 1).half(w.message_bytes) * np.where(layout.overlap, cluster.exposed, 1)
    forward, backward = w.forward_s + sums, w.backward_s + sums
    layer = backward + planning.chosen(layout.recompute, {
        "none": forward, "selective": forward + w.attention_s, "full": 2 * forward})
    n, of_last = planning.stage_layers(model, layout)
    return np.maximum(n * layer, of_last * layer + w.ends_s), layer * model.layers + w.ends_s

def step_time_s(model, cluster, layout):
    w, (slow, whole_) = planning.work(model, cluster, layout), slot_s(model, cluster, layout)
    hop, v = planning.hop_s(cluster, layout, w), layout.chunks
    pipeline = layout.microbatches * (slow + v * hop) + layout.bubble / v * (whole_ - slow + 2 * (layout.pipeline - 1) * hop)
    n = w.layer_weights * (model.layers / layout.pipeline) + w.end_weights
    ring, cut = Ring(cluster, layout.data * layout.context, layout.tensor), np.asarray(layout.shards)
    parts = planning.fetches(model, layout)
    three = 3 * layout.microbatches * parts * ring.half(2 * n / parts)
    sent = np.choose(cut, [2 * ring.half(4 * n), ring.half(4 * n) + ring.half(2 * n),
                           ring.half(4 * n) + ring.half(2 * n), three])
    room = pipeline * np.where(cut == 3, 1, 0.5)
    seen = np.where(sent > room, sent - (1 - cluster.exposed) * room, cluster.exposed * sent)
    sent = np.where(layout.overlap, seen, sent)
    adam_s = n * (6 + 30 / np.where(cut == 0, 1, ring.size)) / cluster.memory_bytes_per_s
    slower = 1 + cluster.stragglers * np.maximum(0, np.log2(layout.gpus / cluster.gpus_per_node))
    return slower * (pipeline + sent + adam_s)

# %% step_time_s: a dict of parts, added up
# -     owned = weights / np.where(shards > 0, owners, 1)
# -     optimizer_s = (30 * owned + 6 * weights) / cluster.memory_bytes_per_s
# -     nodes = np.maximum(1, layout.gpus / cluster.gpus_per_node)
# -     return (pipeline_s + waiting_s + optimizer_s) * (1 + cluster.stragglers * np.log2(nodes))
# +     parts = {"pipeline": pipeline_s, "messages": waiting_s}
# +     moved = weights * np.where(shards == 0, 36, 6 + 30 / np.asarray(owners))
# +     parts["optimizer"] = moved / cluster.memory_bytes_per_s
# +     doublings = np.log2(np.maximum(layout.gpus, cluster.gpus_per_node)) - np.log2(cluster.gpus_per_node)
# +     parts["stragglers"] = cluster.stragglers * doublings * sum(parts.values())
# +     return sum(parts.values())

# %% step_time_s: all other stages, one by one
# -     slowest_s = np.maximum(most * layer_s, last * layer_s + work.ends_s)
# -     return slowest_s, model.layers * layer_s + work.ends_s
# +     slowest_s = np.max(np.broadcast_arrays(most * layer_s, last * layer_s + work.ends_s), axis=0)
# +     return slowest_s, sum([layer_s] * model.layers) + work.ends_s

# %% step_time_s: microseconds
# -     return 2 * (size - 1) * (cluster.latency_s + sent / size / rate)
# +     return (size - 1) * (2e6 * cluster.latency_s + 2e6 * sent / size / rate) / 1e6
# ...
# -     return (pipeline_s + waiting_s + optimizer_s) * (1 + cluster.stragglers * np.log2(nodes))
# +     step_us = 1e6 * pipeline_s + 1e6 * waiting_s + 1e6 * optimizer_s
# +     return step_us * (1 + cluster.stragglers * np.log2(nodes)) / 1e6

# %% plan: infinity by a boolean index
def plan(model, cluster, batch):
    candidates = planning.layouts(model, cluster.gpus, batch, cluster.gpus_per_node)
    times = np.array(step_time_s(model, cluster, candidates), dtype=float)
    times[~planning.fits(memory_bytes(model, candidates), cluster)] = float("inf")
    best = np.argmin(times)
    if np.isinf(times[best]):
        raise ValueError(f"{batch} sequences of this model fit on no layout of {cluster.gpus} {cluster.name}")
    return candidates[int(best)]

# %% plan: NaN for what does not fit
def plan(model, cluster, batch):
    every = planning.layouts(model, cluster.gpus, batch, cluster.gpus_per_node)
    fit = planning.fits(memory_bytes(model, every), cluster)
    return every[int(np.nanargmin(np.where(fit, step_time_s(model, cluster, every), np.nan)))]  # ValueError: all NaN

# %% plan: a loop that remembers the best
def plan(model, cluster, batch):
    every = planning.layouts(model, cluster.gpus, batch, cluster.gpus_per_node)
    times, needed = step_time_s(model, cluster, every), memory_bytes(model, every)
    best, best_s = None, math.inf
    for i, (seconds, amount) in enumerate(zip(times, needed)):
        if seconds < best_s and planning.fits(amount, cluster):
            best, best_s = i, seconds
    if best is None:
        raise ValueError("no layout fits")
    return every[best]

# %% plan: pairs on a heap
import heapq

def plan(model, cluster, batch):
    every = planning.layouts(model, cluster.gpus, batch, cluster.gpus_per_node)
    fit = planning.fits(memory_bytes(model, every), cluster)
    heap = [(float(s), i) for i, s in enumerate(step_time_s(model, cluster, every)) if fit[i]]
    heapq.heapify(heap)
    if heap:
        return every[heapq.heappop(heap)[1]]
    raise ValueError("no layout fits into memory")

# %% plan: a penalty, then a look at the winner
def plan(model, cluster, batch):
    every = planning.layouts(model, cluster.gpus, batch, cluster.gpus_per_node)
    too_large = ~planning.fits(memory_bytes(model, every), cluster)
    best = every[int((step_time_s(model, cluster, every) + 1e12 * too_large).argmin())]
    if not planning.fits(memory_bytes(model, best), cluster):
        raise ValueError("no layout fits")
    return best

# %% plan: sorted by (does not fit, time)
def plan(model, cluster, batch):
    every = planning.layouts(model, cluster.gpus, batch, cluster.gpus_per_node)
    fit = planning.fits(memory_bytes(model, every), cluster)
    order = np.lexsort((step_time_s(model, cluster, every), ~fit))
    if fit[order[0]]:
        return every[int(order[0])]
    raise ValueError("nothing fits")

# %% checkpoint_interval_s: a fixed point
def mtbf_s(gpus, failures_per_1000_node_days, gpus_per_node=8):
    node_days = 1000 / failures_per_1000_node_days
    return node_days * 24 * 60 * 60 / (gpus / gpus_per_node)

def checkpoint_interval_s(save_s, mtbf):
    share = 1.0
    for _ in range(10_000):
        share = 1 - math.exp(-share - save_s / mtbf)
    return share * mtbf

# %% checkpoint_interval_s: Lambert's W, by Halley
def mtbf_s(gpus, failures_per_1000_node_days, gpus_per_node=8):
    return gpus_per_node / gpus * 8.64e7 / failures_per_1000_node_days

def lambert_w(z):
    w = -1 + math.sqrt(max(0.0, 2 * (1 + math.e * z)))
    for _ in range(60):
        e = math.exp(w)
        f = w * e - z
        if w == -1 or f == 0:
            break
        w -= f / (e * (w + 1) - (w + 2) * f / (2 * w + 2))
    return w

def checkpoint_interval_s(save_s, mtbf):
    return mtbf * (1 + lambert_w(-math.exp(-1 - save_s / mtbf)))

# %% checkpoint_interval_s: recursion halves the interval
def mtbf_s(gpus, failures_per_1000_node_days, gpus_per_node=8):
    failures_per_day = (gpus / gpus_per_node) * (failures_per_1000_node_days / 1000)
    return 24 / failures_per_day * 3600

def checkpoint_interval_s(save_s, mtbf, low=0.0, high=None, depth=50):
    high = mtbf if high is None else high
    middle = 0.5 * (low + high)
    if depth == 0:
        return middle
    slope = 1 - middle / mtbf - math.exp(-(middle + save_s) / mtbf)
    if slope > 0:
        return checkpoint_interval_s(save_s, mtbf, middle, high, depth - 1)
    return checkpoint_interval_s(save_s, mtbf, low, middle, depth - 1)

# %% checkpoint_interval_s: Python's bisect with a key
import bisect

def mtbf_s(gpus, failures_per_1000_node_days, gpus_per_node=8):
    return 86400e3 / failures_per_1000_node_days / (gpus / gpus_per_node)

def checkpoint_interval_s(save_s, mtbf):
    n = 1 << 20
    place = bisect.bisect_left(range(n), 0, key=lambda i: math.exp(-i / n - save_s / mtbf) - (1 - i / n))
    return max(1, place) * mtbf / n

# %% checkpoint_interval_s: simulated, on common failures
def mtbf_s(gpus, failures_per_1000_node_days, gpus_per_node=8):
    from datetime import timedelta
    nodes = gpus / gpus_per_node
    return timedelta(days=1).total_seconds() * 1000 / (nodes * failures_per_1000_node_days)

def checkpoint_interval_s(save_s, mtbf):
    shares = np.linspace(0.002, 1, 500)
    cost = failures.expected_slowdown(shares * mtbf, save_s, mtbf)
    near = shares[cost.argmin()] * np.linspace(0.5, 1.5, 2001)
    return float(near[failures.expected_slowdown(near * mtbf, save_s, mtbf).argmin()] * mtbf)

# %% checkpoint_interval_s: a ternary search on logarithms
def mtbf_s(gpus, failures_per_1000_node_days, gpus_per_node=8):
    return float(np.divide(1000 * 86400, failures_per_1000_node_days * gpus) * gpus_per_node)

def checkpoint_interval_s(save_s, mtbf):
    cost = lambda log: math.log(math.expm1((math.exp(log) + save_s) / mtbf)) - log
    a, b = math.log(mtbf) - 12, math.log(mtbf)
    while b - a > 1e-9:
        third = (b - a) / 3
        if cost(a + third) < cost(b - third):
            b -= third
        else:
            a += third
    return math.exp((a + b) / 2)

# %% checkpoint_interval_s: a NumPy number, by secants
def mtbf_s(gpus, failures_per_1000_node_days, gpus_per_node=8):
    return np.float64(86400) / (failures_per_1000_node_days / 1000 * (gpus / gpus_per_node))

def checkpoint_interval_s(save_s, mtbf):
    f = lambda x: np.exp(x + save_s / mtbf) * (1 - x) - 1
    a, b = 0.0, 1.0
    for _ in range(200):
        c = (a + b) / 2 if f(a) * f(b) >= 0 else b - f(b) * (b - a) / (f(b) - f(a))
        a, b = (c, b) if f(c) > 0 else (a, c)
        if b - a < 1e-12:
            break
        middle = (a + b) / 2
        a, b = (middle, b) if f(middle) > 0 else (a, middle)
    return np.float64((a + b) / 2 * mtbf)

# %% policy: a dataclass, dropping and waiting apart
from dataclasses import asdict, dataclass

@dataclass(frozen=True)
class Choice:
    interval_s: float
    replicas: int
    drop: bool

def policy(cluster):
    mtbf = mtbf_s(cluster["nodes"], cluster["failures_per_1000_node_days"], gpus_per_node=1)
    tau = checkpoint_interval_s(cluster["save_s"], mtbf)
    most = int(cluster["nodes"] / cluster["replica_nodes"])
    score = {}
    for drop in (False, True):
        choices = [Choice(tau, n, drop) for n in range(most, 0, -1)[:10]]
        for choice, value in zip(choices, failures.goodputs(cluster, [asdict(c) for c in choices], [7, 8, 9]).mean(axis=1)):
            score[choice] = value
    return asdict(max(score, key=score.get))

# %% policy: medians of five years
def policy(cluster):
    mtbf = mtbf_s(8 * cluster["nodes"], cluster["failures_per_1000_node_days"])
    interval = checkpoint_interval_s(cluster["save_s"], mtbf)
    most = int(cluster["nodes"]) // int(cluster["replica_nodes"])
    grid = itertools.product(range(max(1, most - 9), most + 1), (True, False))
    tried = [{"interval_s": interval, "replicas": r, "drop": d} for r, d in grid]
    return tried[int(np.median(failures.goodputs(cluster, tried, range(5)), axis=1).argmax())]

# %% policy: an interval for each number of replicas
def policy(cluster):
    most = int(cluster["nodes"] // cluster["replica_nodes"])
    tried = []
    for replicas in range(max(1, most - 11), most + 1):
        gpus = 8 * replicas * cluster["replica_nodes"]
        tau = checkpoint_interval_s(cluster["save_s"], mtbf_s(gpus, cluster["failures_per_1000_node_days"]))
        tried += [{"interval_s": tau, "replicas": replicas, "drop": drop} for drop in (True, False)]
    means = np.mean(failures.goodputs(cluster, tried, [21, 22, 23, 24]), axis=1)
    return max(zip(means, range(len(tried)), tried))[2]

# %% policy: steps downhill while it gets better
def policy(cluster):
    mtbf = mtbf_s(8 * cluster["nodes"], cluster["failures_per_1000_node_days"])
    fixed = {"interval_s": checkpoint_interval_s(cluster["save_s"], mtbf)}
    most = int(cluster["nodes"] // cluster["replica_nodes"])
    found = []
    for drop in (True, False):
        best = {**fixed, "replicas": most, "drop": drop}
        value, misses = failures.goodput(cluster, best, [1, 2, 3]), 0
        for replicas in range(most - 1, 0, -1):
            other = {**best, "replicas": replicas}
            got = failures.goodput(cluster, other, [1, 2, 3])
            best, value, misses = (other, got, 0) if got > value else (best, value, misses + 1)
            if misses == 3:
                break
        found.append((value, drop, best))
    return max(found, key=lambda one: one[0])[2]

# %% policy: a random search with a seed
def policy(cluster):
    rng = np.random.default_rng(5)
    mtbf = mtbf_s(8 * cluster["nodes"], cluster["failures_per_1000_node_days"])
    tau, most = checkpoint_interval_s(cluster["save_s"], mtbf), int(cluster["nodes"] // cluster["replica_nodes"])
    least = max(1, most - 10)
    tried = [dict(interval_s=tau, replicas=r, drop=d) for r in (most, max(1, most - 1)) for d in (True, False)]
    tried += [dict(interval_s=tau * rng.uniform(0.9, 1.1), replicas=int(rng.integers(least, most + 1)), drop=bool(rng.integers(2)))
              for _ in range(60)]
    return tried[int(failures.goodputs(cluster, tried, [31, 32, 33]).mean(1).argmax())]

# %% policy: NumPy's types in the answer
def policy(cluster):
    mtbf = mtbf_s(8 * cluster["nodes"], cluster["failures_per_1000_node_days"])
    most = np.int64(cluster["nodes"] // cluster["replica_nodes"])
    replicas, drop = np.meshgrid(np.arange(max(1, most - 8), most + 1), [False, True])
    interval_s = np.float64(checkpoint_interval_s(cluster["save_s"], mtbf))
    tried = [{"drop": np.bool_(d), "replicas": np.int64(r), "interval_s": interval_s}
             for r, d in zip(replicas.ravel(), drop.ravel())]
    return tried[int(np.argmax(failures.goodputs(cluster, tried, (41, 42, 43, 44)).sum(1)))]

# %% policy: spares of a normal distribution, then a look at neighbours
def policy(cluster):
    mtbf = mtbf_s(8 * cluster["nodes"], cluster["failures_per_1000_node_days"])
    tau = checkpoint_interval_s(cluster["save_s"], mtbf)
    down = cluster["repair_s"] / mtbf
    most = int(cluster["nodes"] // cluster["replica_nodes"])
    sizes = {most}
    for sigmas in range(-2, 5):
        sizes.add(int((cluster["nodes"] - max(0, down + sigmas * math.sqrt(down))) // cluster["replica_nodes"]))
    tried = [{"interval_s": tau, "replicas": n, "drop": d} for n in sorted(sizes | {most - 1}) if n > 0 for d in (True, False)]
    years = failures.goodputs(cluster, tried, [51, 52, 53])
    return tried[years.mean(1).tolist().index(years.mean(1).max())]

# %% outer_step: a reduce-scatter and an all-gather
def outer_step(dist, shared, own, momentum, present, rate=0.7, beta=0.9):
    p, n = dist.get_world_size(), len(shared)
    size = -(-(n + 1) // p)
    padded = torch.zeros(p * size)
    if present:
        padded[:n], padded[n] = shared - own, 1
    part, whole_ = torch.empty(size), torch.empty(p * size)
    dist.reduce_scatter_tensor(part, padded)
    dist.all_gather_into_tensor(whole_, part)
    gradient = whole_[:n] / whole_[n]
    momentum.mul_(beta).add_(gradient)
    shared.sub_(rate * (gradient + beta * momentum))

# %% outer_step: rank 0 adds up and sends it to all
def outer_step(dist, shared, own, momentum, present, rate=0.7, beta=0.9):
    packed = torch.cat([own, torch.ones(1)]) if present else torch.zeros(len(own) + 1)
    dist.reduce(packed, dst=0)
    dist.broadcast(packed, src=0)
    gradient = shared - packed[:-1] / packed[-1].item()
    momentum *= beta
    momentum += gradient
    shared -= rate * gradient + rate * beta * momentum

# %% outer_step: NumPy between two tensors
def outer_step(dist, shared, own, momentum, present, rate=0.7, beta=0.9):
    sent = np.append(shared.numpy() - own.numpy(), 1.0) * float(present)
    message = torch.from_numpy(sent)
    dist.all_reduce(message)
    *total, count = message.numpy()
    gradient = np.array(total) / count
    new = beta * momentum.numpy() + gradient
    momentum.copy_(torch.from_numpy(new))
    shared.copy_(torch.from_numpy(shared.numpy() - rate * (gradient + beta * new)))

# %% outer_step: the count alone, after the message
def outer_step(dist, shared, own, momentum, present, rate=0.7, beta=0.9):
    moved = torch.where(torch.tensor(bool(present)), shared - own, 0.0)
    dist.all_reduce(moved)
    count = torch.tensor(int(present))
    dist.all_reduce(count)
    gradient = moved / int(count)
    momentum[...] = momentum * beta + gradient
    shared[...] = torch.sub(shared, torch.add(gradient, momentum, alpha=beta), alpha=rate)

# %% outer_step: early return of a helper
def mean_of_present(dist, x, present):
    message = torch.zeros(x.numel() + 1, dtype=x.dtype)
    if present:
        message[1:] = x
        message[0] = 1
    dist.all_reduce(message)
    return message[1:] / message[0]

def outer_step(dist, shared, own, momentum, present, rate=0.7, beta=0.9):
    gradient = -mean_of_present(dist, own - shared, present)
    before = momentum.clone()
    momentum.copy_(gradient + beta * before)
    shared.add_(gradient + beta * gradient + beta ** 2 * before, alpha=-rate)

# %% outer_step: number by number
def outer_step(dist, shared, own, momentum, present, rate=0.7, beta=0.9):
    numbers = [float(a - b) if present else 0.0 for a, b in zip(shared, own)] + [float(bool(present))]
    message = torch.tensor(numbers)
    dist.all_reduce(message)
    *total, count = message.tolist()
    for i, moved in enumerate(total):
        momentum[i] = beta * momentum[i] + moved / count
        shared[i] -= rate * (moved / count + beta * momentum[i])

# %% mesh_update: everyone sends its part to its owner
def mesh_update(dist, groups, weights, gradient, state, step, replicated, most):
    data = groups["data"]
    d, me = dist.get_world_size(data), dist.get_rank(data)
    got = torch.empty_like(gradient)
    dist.all_to_all_single(got, gradient, group=data)
    total = got.view(d, -1).sum(0)
    first = me * len(total)
    counted = total.clone()
    shared = max(0, min(len(total), replicated - first))
    counted[:shared] *= dist.get_world_size(groups["tensor"]) ** -0.5
    square = (counted @ counted).reshape(1)
    dist.all_reduce(square)
    norm = float(square.sqrt())
    if "m" not in state:
        state["m"], state["v"] = torch.zeros(len(total)), torch.zeros(len(total))
    mine = weights[first:first + len(total)].clone()
    adam(mine, total if norm <= most else total * (most / norm), state["m"], state["v"], step)
    dist.all_gather_into_tensor(weights, mine, group=data)
    return norm

# %% mesh_update: all squares gathered
def mesh_update(dist, groups, weights, gradient, state, step, replicated, most):
    data = groups["data"]
    n = len(weights) // dist.get_world_size(data)
    begin = n * dist.get_rank(data)
    part = torch.zeros(n)
    dist.reduce_scatter_tensor(part, gradient, group=data)
    times = [1 / dist.get_world_size(groups["tensor"]) if begin + i < replicated else 1.0 for i in range(n)]
    own = torch.tensor([sum(w * x * x for w, x in zip(times, part.tolist()))])
    squares = [torch.empty(1) for _ in range(dist.get_world_size())]
    dist.all_gather(squares, own)
    norm = math.sqrt(sum(square.item() for square in squares))
    for key in "mv":
        if key not in state:
            state[key] = part.new_zeros(n)
    mine = weights.narrow(0, begin, n).clone()
    adam(mine, part.mul(min(1.0, most / norm)), state["m"], state["v"], step)
    dist.all_gather_into_tensor(weights, mine, group=data)
    return norm

# %% mesh_update: helpers, and torch.clamp
def split(x, count, place):
    return x.view(count, -1)[place]

def mesh_update(dist, groups, weights, gradient, state, step, replicated, most):
    data = groups["data"]
    d, place, t = dist.get_world_size(data), dist.get_rank(data), dist.get_world_size(groups["tensor"])
    counts = torch.where(torch.arange(len(weights)) < replicated, float(t), 1.0)
    total = torch.empty_like(split(gradient, d, place))
    dist.reduce_scatter_tensor(total, gradient, group=data)
    square = (total.pow(2) / split(counts, d, place)).sum(dim=0, keepdim=True)
    dist.all_reduce(square)
    norm = torch.sqrt(square)
    if len(state) == 0:
        state |= {"m": torch.zeros_like(total), "v": torch.zeros_like(total)}
    mine = split(weights, d, place).clone()
    adam(mine, total * torch.clamp(most / norm, max=1.0), **state, step=step)
    dist.all_gather_into_tensor(weights, mine, group=data)
    return norm.item()

# %% mesh_update: only the first tensor rank counts what all hold
# -     squares[:max(0, replicated - start)] /= dist.get_world_size(groups["tensor"])
# +     if dist.get_rank(groups["tensor"]) > 0:
# +         squares[:max(0, replicated - start)] = 0

# %% mesh_update: norms of two parts, added as squares
# -     squares = total * total
# -     squares[:max(0, replicated - start)] /= dist.get_world_size(groups["tensor"])
# -     square = squares.sum().reshape(1)
# +     cut = max(0, replicated - start)
# +     shared, others = torch.linalg.vector_norm(total[:cut]), torch.linalg.vector_norm(total[cut:])
# +     square = (shared ** 2 / dist.get_world_size(groups["tensor"]) + others ** 2).reshape(1)

# %% mesh_update: a reduce to each owner in turn
# -     dist.reduce_scatter_tensor(total, gradient, group=data)
# +     for owner in range(dist.get_world_size(data)):
# +         part = gradient[owner * size:(owner + 1) * size].clone()
# +         dist.reduce(part, group=data, group_dst=owner)
# +         if owner == dist.get_rank(data):
# +             total.copy_(part)

# %% mesh_update: Adam in place, in a view of the weights
# -     own = weights[start:start + size].clone()
# +     own = weights.view(-1, size)[start // size]
# ...
# -     dist.all_gather_into_tensor(weights, own, group=data)
# +     dist.all_gather_into_tensor(weights, own.clone(), group=data)

# %% checkpoint_interval_s: whole nodes
# edit: per_day = gpus / gpus_per_node  ->  per_day = gpus // gpus_per_node

# %% outer_step: each rank tells the others in turn whether it took part
def outer_step(dist, shared, own, momentum, present, rate=0.7, beta=0.9):
    here = 0
    for rank in range(dist.get_world_size()):
        took_part = torch.tensor(float(present), dtype=shared.dtype)
        dist.broadcast(took_part, src=rank)
        here += int(took_part)
    change = (shared - own) * bool(present)
    dist.all_reduce(change)
    momentum.mul_(beta).add_(change / here)
    shared -= rate * (change / here + beta * momentum)
