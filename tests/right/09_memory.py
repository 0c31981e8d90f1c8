# %% training_memory: a table
def training_memory(parameters, optimizer, precision):
    table = {
        ("sgd", "fp32"): (4, 4, 0), ("momentum", "fp32"): (4, 4, 4), ("adam", "fp32"): (4, 4, 8),
        ("sgd", "mixed"): (2, 2, 4), ("momentum", "mixed"): (2, 2, 8), ("adam", "mixed"): (2, 2, 12),
    }
    names = ("weights", "gradients", "optimizer")
    return {name: n * parameters for name, n in zip(names, table[optimizer, precision])}

# %% training_memory: lists of dtypes
def training_memory(parameters, optimizer, precision):
    kind = torch.float32 if precision == "fp32" else torch.bfloat16
    held = [torch.float32] * ["sgd", "momentum", "adam"].index(optimizer)
    if kind != torch.float32:
        held.append(torch.float32)
    return dict(optimizer=sum(k.itemsize for k in held) * parameters,
                gradients=kind.itemsize * parameters, weights=kind.itemsize * parameters)

# %% activation_bytes: a pass that resolves views first
KEEPS = {"matmul": (0, 1), "multiply": (0, 1), "square": (0,), "gelu": (0,), "pick": (1,),
         "tanh": ("output",), "rsqrt": ("output",), "log_softmax": ("output",),
         "log_sum_exp": ("output",), "attention": (0, 1, 2, "output")}

def activation_bytes(rows, sizes):
    owner, is_kept = [], [False] * len(rows)
    for i, (op, inputs) in enumerate(rows):
        owner.append(owner[inputs[0]] if op == "view" else i)
    for i, (op, inputs) in enumerate(rows):
        for which in KEEPS.get(op, ()):
            is_kept[owner[i] if which == "output" else owner[inputs[which]]] = True
    return sum(size for size, kept, (op, _) in zip(sizes, is_kept, rows) if kept and op != "constant")

# %% activation_bytes: a dictionary and recursion
def activation_bytes(rows, sizes):
    def base(i):
        return base(rows[i][1][0]) if rows[i][0] == "view" else i

    kept = {}
    for i, (op, inputs) in enumerate(rows):
        if op in ("matmul", "multiply"):
            reads = list(inputs)
        elif op in ("square", "gelu"):
            reads = [inputs[0]]
        elif op == "attention":
            reads = [*inputs, i]
        elif op == "pick":
            reads = [inputs[1]]
        elif op in ("tanh", "rsqrt", "log_softmax", "log_sum_exp"):
            reads = [i]
        else:
            reads = []
        for j in map(base, reads):
            if rows[j][0] != "constant":
                kept[j] = sizes[j]
    return sum(kept.values())

# %% peak_live: backwards, then a running sum
def lifetimes(rows, order, outputs):
    place = {i: p for p, i in enumerate(order)}
    last = {i: len(order) - 1 for i in outputs if i in place}
    for p, i in reversed(list(enumerate(order))):
        last.setdefault(i, p)
        for j in graphs.inputs(rows[i]):
            if j in place:
                last.setdefault(j, p)
    return {i: (place[i], last[i]) for i in order}

def peak_live(rows, sizes, order, outputs):
    change = [0] * (len(order) + 1)
    for i, (first, last) in lifetimes(rows, order, outputs).items():
        change[first] += sizes[i]
        change[last + 1] -= sizes[i]
    live = most = 0
    for more in change:
        live += more
        most = max(most, live)
    return most

# %% peak_live: by readers
def lifetimes(rows, order, outputs):
    spans = {}
    for first, i in enumerate(order):
        reads = [place for place, j in enumerate(order) if i in graphs.inputs(rows[j])]
        spans[i] = (first, len(order) - 1 if i in outputs else max(reads, default=first))
    return spans

def peak_live(rows, sizes, order, outputs):
    table = np.zeros(len(order), dtype=int)
    for i, (first, last) in lifetimes(rows, order, outputs).items():
        table[first:last + 1] += sizes[i]
    return int(table.max())

# %% plan_buffers: a map of bytes per step, and many random orders
def plan_buffers(lifetimes):
    steps = 1 + max((b[2] for b in lifetimes), default=0)
    low = max(arena.live_bytes(lifetimes), default=0)

    def place(order):
        offsets, taken = {}, [[] for _ in range(steps)]
        for i in order:
            size, first, last = lifetimes[i]
            blocked = sorted({span for step in range(first, last + 1) for span in taken[step]})
            at = 0
            for start, end in blocked:
                if start - at >= size:
                    break
                at = max(at, end)
            offsets[i] = at
            for step in range(first, last + 1):
                taken[step].append((at, at + size))
        return [offsets[i] for i in range(len(lifetimes))]

    draw = np.random.default_rng(1)
    numbers = list(range(len(lifetimes)))
    best_order = sorted(numbers, key=lambda i: (-lifetimes[i][0], lifetimes[i][1]))
    best = place(best_order)
    for _ in range(600):
        if arena.arena_bytes(lifetimes, best) <= low:
            break
        order = list(best_order)
        a, b = draw.integers(0, len(order), 2)
        order[a], order[b] = order[b], order[a]
        plan = place(order)
        if arena.arena_bytes(lifetimes, plan) <= arena.arena_bytes(lifetimes, best):
            best_order, best = order, plan
    return best

# %% checkpoint_every: the last segment is not dropped
def checkpoint_every(n, k):
    last = (n - 1) // k * k
    tasks = []
    for i in range(n):
        tasks.append(("F", i))
        if i % k and i < last:
            tasks.append(("D", i))
    for start in range(last, -1, -k):
        stop = min(start + k, n)
        if start != last:
            tasks.extend(("F", i) for i in range(start, stop - 1))
        tasks.extend(("B", i) for i in range(stop - 1, start - 1, -1))
    return tasks

def step_peak(n, k, copies):
    return max(copies, (n + k - 1) // k + k - 1)

# %% checkpoint_every: segments as lists
def checkpoint_every(n, k):
    segments = [list(range(n))[i:i + k] for i in range(0, n, k)]
    forward, backward = [], []
    for segment in segments:
        for i in segment:
            forward += [("F", i)] + ([("D", i)] if i != segment[0] else [])
        again = [("F", i) for i in segment[:-1]] + [("B", i) for i in segment[::-1]]
        backward = again + backward
    return forward + backward

def step_peak(n, k, copies):
    chain = int(np.ceil(n / k)) + k - 1
    return chain if chain > copies else copies

# %% checkpoint_best: recursion with a cache
def checkpoint_best(costs, inputs, saved, budget):
    n = len(costs)

    @functools.cache
    def best(i, kept):
        if i == n:
            return (0, ())
        found = None
        if kept + saved[i] <= budget:
            found = best(i + 1, kept + saved[i])
        for stop in range(i + 1, n + 1):
            if kept + sum(saved[i:stop]) > budget:
                break
            rest = best(stop, kept + inputs[i])
            if rest is not None:
                cost = rest[0] + sum(costs[i:stop])
                if found is None or cost < found[0]:
                    found = (cost, ((i, stop), *rest[1]))
        return found

    found = best(0, 0)
    return None if found is None else list(found[1])

# %% checkpoint_best: all choices
def checkpoint_best(costs, inputs, saved, budget):
    n = len(costs)

    def choices(i):
        if i == n:
            yield []
            return
        for rest in choices(i + 1):
            yield rest
        for stop in range(i + 1, n + 1):
            for rest in choices(stop):
                yield [(i, stop)] + rest

    best = None
    for segments in choices(0):
        stops = dict(segments)
        kept = most = cost = i = 0
        while i < n:
            stop = stops.get(i, i + 1)
            most = max(most, kept + sum(saved[i:stop]))
            kept += inputs[i] if i in stops else saved[i]
            cost += sum(costs[i:stop]) if i in stops else 0
            i = stop
        if most <= budget and (best is None or cost < best[0]):
            best = (cost, segments)
    return best and best[1]

# %% checkpoint_best: a dictionary of bytes
def checkpoint_best(costs, inputs, saved, budget):
    n = len(costs)
    tables = [{} for _ in range(n + 1)]
    tables[0][0] = (0, [])

    def offer(i, kept, cost, segments):
        if kept <= budget and (kept not in tables[i] or cost < tables[i][kept][0]):
            tables[i][kept] = (cost, segments)

    for i in range(n):
        for kept, (cost, segments) in tables[i].items():
            offer(i + 1, kept + saved[i], cost, segments)
            for stop in range(i + 1, n + 1):
                if kept + sum(saved[i:stop]) <= budget:
                    more = cost + sum(costs[i:stop])
                    offer(stop, kept + inputs[i], more, segments + [(i, stop)])
    if not tables[n]:
        return None
    return min(tables[n].values(), key=lambda entry: entry[0])[1]

# %% loss_scaled_step: backward() and a flat test
def loss_scaled_step(loss, master, update, state, interval):
    copies = []
    for w in master:
        copy = w.detach().to(torch.float16)
        copy.requires_grad = True
        copies.append(copy)
    (loss(copies) * state["scale"]).backward()
    unscaled = [copy.grad.to(torch.float32).mul(1 / state["scale"]) for copy in copies]
    flat = torch.cat([g.flatten() for g in unscaled])
    good = bool(torch.isfinite(flat).all())
    if good:
        update(unscaled)
        state["good"] = (state["good"] + 1) % interval
        if state["good"] == 0:
            state["scale"] = state["scale"] * 2
    else:
        state["good"], state["scale"] = 0, state["scale"] * 0.5
    return good

# %% loss_scaled_step: the sum of squares tells
def loss_scaled_step(loss, master, update, state, interval):
    own = [w.half().requires_grad_() for w in master]
    gradients = [g.float() / state["scale"] for g in torch.autograd.grad(state["scale"] * loss(own), own)]
    total = sum(float(g.double().abs().sum()) for g in gradients)
    if not np.isfinite(total):
        state.update(scale=state["scale"] / 2, good=0)
        return False
    update(gradients)
    good = state["good"] + 1
    state.update(good=0, scale=2 * state["scale"]) if good == interval else state.update(good=good)
    return True

# %% swap_schedule: fetched just before
def swap_schedule(forward_s, backward_s, sizes, bytes_per_s, room):
    n = len(sizes)
    away = next(k for k in range(n + 1) if sum(sizes[k:]) <= room)
    tasks = []
    for i in range(n):
        tasks += [("F", i), ("out", i)] if i < away else [("F", i)]
    wanted = [("in", i) for i in range(away - 1, -1, -1)]
    for i in range(n - 1, -1, -1):
        tasks += wanted[:2]
        wanted = wanted[2:]
        tasks.append(("B", i))
    return tasks

# %% swap_schedule: in three lists
def swap_schedule(forward_s, backward_s, sizes, bytes_per_s, room):
    n, held, away = len(sizes), 0, []
    for i in reversed(range(n)):
        held += sizes[i]
        if held > room:
            away.append(i)
    forward = [task for i in range(n) for task in [("F", i), ("out", i)][:1 + (i in away)]]
    return forward + [("in", i) for i in away] + [("B", i) for i in reversed(range(n))]

# %% checkpointed: PyTorch's own
def checkpointed(function, *inputs):
    from torch.utils.checkpoint import checkpoint
    return checkpoint(function, *inputs, use_reentrant=False)

# %% checkpointed: the state put back by hand
class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, function, *inputs):
        ctx.before = torch.get_rng_state()
        ctx.function = function
        ctx.save_for_backward(*inputs)
        with torch.no_grad():
            return function(*inputs)

    @staticmethod
    def backward(ctx, slope):
        now = torch.get_rng_state()
        torch.set_rng_state(ctx.before)
        with torch.enable_grad():
            own = tuple(x.detach().clone().requires_grad_(True) for x in ctx.saved_tensors)
            ctx.function(*own).backward(slope)
        torch.set_rng_state(now)
        return (None,) + tuple(x.grad for x in own)

def checkpointed(function, *inputs):
    return Twice.apply(function, *inputs)

# %% accumulated_step: sums of losses, with .grad
def accumulated_step(loss, weights, microbatches, update):
    own = [w.detach().clone().requires_grad_() for w in weights]
    count = 0
    for x, targets in microbatches:
        (loss(own, x, targets) * len(x)).backward()
        count += len(x)
    update([w.grad / count for w in own])

# %% accumulated_step: a list of weighted gradients
def accumulated_step(loss, weights, microbatches, update):
    counts = np.array([len(t) for _, t in microbatches])
    shares = counts / counts.sum()
    total = None
    for (x, targets), share in zip(microbatches, shares.tolist()):
        own = [w.clone().requires_grad_() for w in weights]
        gradients = [share * g for g in torch.autograd.grad(loss(own, x, targets), own)]
        total = gradients if total is None else [a + b for a, b in zip(total, gradients)]
    update(total)

# %% fused_block: some tokens at a time, norms by formula
def rms(x, gain):
    scale = (x.pow(2).mean(-1, keepdim=True) + programs.EPSILON).rsqrt()
    return x * scale * gain, scale

def rms_backward(x, gain, scale, slope):
    normed = x * scale
    inner = slope * gain
    d_x = scale * (inner - normed * (inner * normed).mean(-1, keepdim=True))
    return d_x, (slope * normed).sum(0)

def fused_forward(x, targets, gain, gate, up, down, last_gain, scores):
    normed, _ = rms(x, gain)
    g, u = normed @ gate, normed @ up
    h = x + (g * torch.sigmoid(g) * u) @ down
    loss, d_h = 0.0, torch.empty_like(h)
    d_gain, d_scores = torch.zeros_like(last_gain), torch.zeros_like(scores)
    for start in range(0, len(x), 64):
        part, wanted = h[start:start + 64], targets[start:start + 64]
        last, scale = rms(part, last_gain)
        p = (last @ scores).softmax(-1)
        loss = loss - p.gather(1, wanted[:, None]).log().sum() / len(x)
        p.scatter_add_(1, wanted[:, None], -torch.ones(len(wanted), 1, dtype=p.dtype))
        p /= len(x)
        d_scores += last.T @ p
        d_h[start:start + 64], more = rms_backward(part, last_gain, scale, p @ scores.T)
        d_gain += more
    return loss, [x.clone(), torch.cat([g, u], 1), d_h, d_gain, d_scores]

def fused_backward(saved, gain, gate, up, down, last_gain, scores):
    x, both, d_h, d_last_gain, d_scores = saved
    g, u = both.chunk(2, 1)
    normed, scale = rms(x, gain)
    s = torch.sigmoid(g)
    inner = d_h @ down.T
    d_g, d_u = inner * u * s * (1 + g * (1 - s)), inner * g * s
    d_x, d_gain = rms_backward(x, gain, scale, d_g @ gate.T + d_u @ up.T)
    d_down = (g * s * u).T @ d_h
    return [d_x + d_h, d_gain, normed.T @ d_g, normed.T @ d_u, d_down, d_last_gain, d_scores]

def fused_block(x, targets, *weights):
    loss, saved = fused_forward(x, targets, *weights)
    return loss, fused_backward(saved, *weights)

# %% test_plan: every pair
def test_plan(candidate):
    draw = np.random.default_rng(3)
    for count in range(1, 40):
        lifetimes = arena.drawn_lifetimes(draw, count)
        offsets = candidate(list(lifetimes))
        assert isinstance(offsets, list) and len(offsets) == count
        for i, (size, first, last) in enumerate(lifetimes):
            assert isinstance(offsets[i], int) and offsets[i] >= 0
            for j in range(i):
                other, start, stop = lifetimes[j]
                apart = offsets[i] + size <= offsets[j] or offsets[j] + other <= offsets[i]
                assert apart or stop < first or last < start
