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
