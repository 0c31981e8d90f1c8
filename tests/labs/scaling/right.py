# %% plan: a mask, then the smallest of what is left
def plan(model, cluster, batch):
    every = cluster_model.layouts(model, cluster.gpus, batch, cluster.gpus_per_node)
    rows = np.flatnonzero(cluster_model.fits(memory_bytes(model, every), cluster))
    if len(rows) == 0:
        raise ValueError("too large")
    return every[int(rows[np.argsort(step_time_s(model, cluster, every)[rows])[0]])]

# %% checkpoint_interval_s: Daly's formula
def mtbf_s(gpus, failures_per_1000_node_days, gpus_per_node=8):
    rate_per_node_s = failures_per_1000_node_days / 1000 / (24 * 3600)
    return 1 / (rate_per_node_s * gpus / gpus_per_node)

def checkpoint_interval_s(save_s, mtbf):
    if save_s >= 2 * mtbf:
        return mtbf
    ratio = save_s / (2 * mtbf)
    return math.sqrt(2 * save_s * mtbf) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - save_s

# %% outer_step: two all-reduces
def outer_step(dist, shared, own, momentum, present, rate=0.7, beta=0.9):
    count = torch.tensor([1.0 if present else 0.0])
    dist.all_reduce(count)
    total = shared - own if present else torch.zeros_like(shared)
    dist.all_reduce(total)
    mean = total / count
    momentum[:] = beta * momentum + mean
    shared[:] = shared - rate * (mean + beta * momentum)

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

# %% step_time_s: a reduce-scatter and an all-gather
def one_half_s(cluster, size, stride, sent):
    return (size - 1) * cluster.latency_s + (1 - 1 / size) * sent / cluster_model.bandwidth(cluster, size, stride)

def ring_s(cluster, size, stride, sent):
    return one_half_s(cluster, size, stride, sent) + one_half_s(cluster, size, stride, sent)

def slot_s(model, cluster, layout):
    work = cluster_model.work(model, cluster, layout)
    kind = np.asarray(layout.recompute)
    message = ring_s(cluster, layout.tensor, 1, work.message_bytes)
    message = message - np.asarray(layout.overlap) * (1 - cluster.exposed) * message
    once = work.forward_s + 2 * message
    layer = once + work.backward_s + 2 * message
    layer = layer + np.select([kind == "full", kind == "selective"], [once, work.attention_s], 0.0)
    most, last = cluster_model.stage_layers(model, layout)
    stages = np.stack(np.broadcast_arrays(most * layer, last * layer + work.ends_s))
    return stages.max(0), layer * model.layers + work.ends_s

def step_time_s(model, cluster, layout):
    work, kind = cluster_model.work(model, cluster, layout), np.asarray(layout.shards)
    slowest, everything = slot_s(model, cluster, layout)
    hop = cluster_model.hop_s(cluster, layout, work)
    busy = layout.microbatches * slowest + layout.microbatches * layout.chunks * hop
    idle = layout.bubble / layout.chunks * (everything - slowest + 2 * (layout.pipeline - 1) * hop)
    n = work.end_weights + work.layer_weights * model.layers / layout.pipeline
    ring = cluster, layout.data * layout.context, layout.tensor
    parts = cluster_model.fetches(model, layout)
    reduced, gathered = one_half_s(*ring, 4 * n), one_half_s(*ring, 2 * n)
    fetched = layout.microbatches * parts * one_half_s(*ring, 2 * n / parts)
    sent = np.select([kind == 0, kind == 3], [2 * reduced, 3 * fetched], reduced + gathered)
    hidden = np.minimum(sent, (busy + idle) * np.where(kind == 3, 1.0, 0.5)) * np.asarray(layout.overlap)
    owned = np.where(kind == 0, n, n / ring[1])
    update = (5 * owned + n) * 6 / cluster.memory_bytes_per_s
    slower = cluster.stragglers * np.log2(np.clip(layout.gpus / cluster.gpus_per_node, 1, None))
    return (1 + slower) * (busy + idle + sent - (1 - cluster.exposed) * hidden + update)

# %% plan: Python's min
def plan(model, cluster, batch):
    every = cluster_model.layouts(model, cluster.gpus, batch, cluster.gpus_per_node)
    times, fit = step_time_s(model, cluster, every).tolist(), cluster_model.fits(memory_bytes(model, every), cluster)
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

# %% memory_bytes: early returns for one layout, a comprehension for many
def of_one(model, layout):
    t, p, d = layout.tensor, layout.pipeline, layout.data * layout.context
    layers = math.ceil(model.layers / p)
    weights = layers * model.layer_weights + model.end_weights
    if p == 1 and not model.tied:
        weights += model.end_weights
    weights /= t
    per_weight = [16, 4 + 12 / d, 2 + 14 / d, 16 / d][int(layout.shards)]
    kept, scores, given = cluster_model.kept_bytes(model, layout)
    if layout.recompute == "none":
        held, again = kept, 0
    elif layout.recompute == "selective":
        held, again = kept - scores, scores
    else:
        held, again = given, kept
    ahead = 1 if layout.chunks == 1 else 1 + (p - 1) / (p * layout.chunks)
    total = per_weight * weights + again + max(
        layers * held * ahead * min(p, layout.microbatches),
        layers * held * ahead + cluster_model.score_bytes(model, layout))
    if layout.shards == 3:
        total += 4 * model.layer_weights / t
    return float(cluster_model.FRAGMENTS * total + cluster_model.DRIVER_BYTES)

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
        kept, scores, given = cluster_model.kept_bytes(model, at)
        held, more = {"none": (kept, 0), "selective": (kept - scores, scores), "full": (given, kept)}[at.recompute]
        held = layers * held * (1 + (v > 1) * (p - 1) / p / v)
        peak = max(held * min(at.microbatches, p), held + cluster_model.score_bytes(model, at))
        return float(cluster_model.FRAGMENTS * (state + peak + more) + cluster_model.DRIVER_BYTES)
    return np.vectorize(one, otypes=[float])(np.arange(len(layout)) if len(layout) > 1 else 0)

# %% memory_bytes: sorted ends, gigabytes on the way
# -     total = each * weights + fetched + np.maximum(first, last) + again
# -     return cluster_model.FRAGMENTS * total + cluster_model.DRIVER_BYTES
# +     ends_gb = np.sort(np.stack(np.broadcast_arrays(first, last)) / 1e9, axis=0)[-1]
# +     total_gb = (each * weights + fetched + again) / 1e9 + ends_gb
# +     return 1e9 * (cluster_model.FRAGMENTS * total_gb + cluster_model.DRIVER_BYTES / 1e9)

# %% step_time_s: gradients in a function of their own
def ring_s(cluster, size, stride, sent):
    return 2 * sum(((size - 1) * cluster.latency_s, (1 - 1 / size) * sent / cluster_model.bandwidth(cluster, size, stride)))

def layer_time(work, cluster, layout):
    both = ring_s(cluster, layout.tensor, 1, work.message_bytes) * 2
    both = both * (1 - (1 - cluster.exposed) * np.asarray(layout.overlap))
    again = cluster_model.chosen(layout.recompute, {"selective": work.attention_s, "full": work.forward_s + both})
    return (work.forward_s + both) + (work.backward_s + both) + again

def slot_s(model, cluster, layout):
    work = cluster_model.work(model, cluster, layout)
    layer_s = layer_time(work, cluster, layout)
    counts = cluster_model.stage_layers(model, layout)
    stages = [counts[0] * layer_s, counts[1] * layer_s + work.ends_s]
    return np.where(stages[0] > stages[1], *stages), model.layers * layer_s + work.ends_s

def gradients_s(model, cluster, layout, weights, room_s):
    same, parts = layout.data * layout.context, cluster_model.fetches(model, layout)
    def half(size, pieces=1):
        return pieces * ring_s(cluster, same, layout.tensor, size * weights / pieces) / 2
    zero, three = np.asarray(layout.shards) == 0, np.asarray(layout.shards) == 3
    sent = np.where(three, 3 * layout.microbatches * half(2, parts), half(4) + np.where(zero, half(4), half(2)))
    hidden = np.minimum(sent, np.where(three, room_s, room_s / 2))
    return np.where(layout.overlap, (sent - hidden) + hidden * cluster.exposed, sent)

def step_time_s(model, cluster, layout):
    work = cluster_model.work(model, cluster, layout)
    slowest, every = slot_s(model, cluster, layout)
    hop = cluster_model.hop_s(cluster, layout, work)
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
    return (size - 1) * 2 * cluster.latency_s + 2 * (size - 1) * sent / (size * cluster_model.bandwidth(cluster, size, stride))

def slot_s(model, cluster, layout):
    work = cluster_model.work(model, cluster, layout)
    passes = [work.forward_s, work.backward_s] + ([work.forward_s] if layout.recompute == "full" else [])
    layer_s = sum(passes) + (work.attention_s if layout.recompute == "selective" else 0)
    for _ in passes:
        for _ in range(2):
            layer_s += ring_s(cluster, layout.tensor, 1, work.message_bytes) * (cluster.exposed if layout.overlap else 1)
    most, last = cluster_model.stage_layers(model, layout)
    return max(most * layer_s, last * layer_s + work.ends_s), model.layers * layer_s + work.ends_s

def of_one(model, cluster, layout):
    work = cluster_model.work(model, cluster, layout)
    slowest, every = slot_s(model, cluster, layout)
    hop, m, v = cluster_model.hop_s(cluster, layout, work), layout.microbatches, layout.chunks
    time = m * slowest + m * v * hop + layout.bubble * (every - slowest + 2 * (layout.pipeline - 1) * hop) / v
    n = model.layers / layout.pipeline * work.layer_weights + work.end_weights
    same = layout.data * layout.context
    if layout.shards == 3:
        parts = cluster_model.fetches(model, layout)
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

# %% plan: a loop that remembers the best
def plan(model, cluster, batch):
    every = cluster_model.layouts(model, cluster.gpus, batch, cluster.gpus_per_node)
    times, needed = step_time_s(model, cluster, every), memory_bytes(model, every)
    best, best_s = None, math.inf
    for i, (seconds, amount) in enumerate(zip(times, needed)):
        if seconds < best_s and cluster_model.fits(amount, cluster):
            best, best_s = i, seconds
    if best is None:
        raise ValueError("no layout fits")
    return every[best]

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

# %% policy: NumPy's types in the answer
def policy(cluster):
    mtbf = mtbf_s(8 * cluster["nodes"], cluster["failures_per_1000_node_days"])
    most = np.int64(cluster["nodes"] // cluster["replica_nodes"])
    replicas, drop = np.meshgrid(np.arange(max(1, most - 8), most + 1), [False, True])
    interval_s = np.float64(checkpoint_interval_s(cluster["save_s"], mtbf))
    tried = [{"drop": np.bool_(d), "replicas": np.int64(r), "interval_s": interval_s}
             for r, d in zip(replicas.ravel(), drop.ravel())]
    return tried[int(np.argmax(failures.goodputs(cluster, tried, (41, 42, 43, 44)).sum(1)))]

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

# %% mesh_update: a reduce to each owner in turn
# -     dist.reduce_scatter_tensor(total, gradient, group=data)
# +     for owner in range(dist.get_world_size(data)):
# +         part = gradient[owner * size:(owner + 1) * size].clone()
# +         dist.reduce(part, group=data, group_dst=owner)
# +         if owner == dist.get_rank(data):
# +             total.copy_(part)

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
