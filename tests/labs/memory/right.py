# %% training_memory: lists of dtypes
def training_memory(parameters, optimizer, precision):
    kind = torch.float32 if precision == "fp32" else torch.bfloat16
    held = [torch.float32] * ["sgd", "momentum", "adam"].index(optimizer)
    if kind != torch.float32:
        held.append(torch.float32)
    return dict(optimizer=sum(k.itemsize for k in held) * parameters,
                gradients=kind.itemsize * parameters, weights=kind.itemsize * parameters)

# %% training_memory: measured on four weights
def training_memory(parameters, optimizer, precision):
    weight = torch.ones(4, requires_grad=True)
    made = {"sgd": lambda: torch.optim.SGD([weight], lr=0.1),
            "momentum": lambda: torch.optim.SGD([weight], lr=0.1, momentum=0.9),
            "adam": lambda: torch.optim.Adam([weight], lr=0.1)}[optimizer]()
    weight.sum().backward()
    made.step()
    kept = [x for x in made.state[weight].values() if torch.is_tensor(x) and x.numel() == 4]
    copies = [] if precision == "fp32" else [weight.float()]
    kind = torch.float32 if precision == "fp32" else torch.bfloat16
    low = weight.detach().to(kind)
    return {"weights": low.nbytes // 4 * parameters, "gradients": low.nbytes // 4 * parameters,
            "optimizer": sum(x.nbytes for x in kept + copies) // 4 * parameters}

# %% training_memory: NumPy
def training_memory(parameters, optimizer, precision):
    per_weight = np.array([4, 4, {"sgd": 0, "momentum": 4, "adam": 8}[optimizer]])
    if precision == "mixed":
        per_weight += np.array([-2, -2, 4])
    return dict(zip(["weights", "gradients", "optimizer"], per_weight * parameters))

# %% activation_bytes: storages as objects
class Storage:
    def __init__(self, size):
        self.size, self.needed = size, False

def activation_bytes(rows, sizes):
    storages = []
    for (op, inputs), size in zip(rows, sizes):
        if op == "view":
            storages.append(storages[inputs[0]])
        else:
            storages.append(Storage(0 if op == "constant" else size))
    for (op, inputs), own in zip(rows, storages):
        match op:
            case "matmul" | "multiply":
                needed = [storages[i] for i in inputs]
            case "square" | "gelu":
                needed = [storages[inputs[0]]]
            case "pick":
                needed = [storages[inputs[1]]]
            case "attention":
                needed = [own] + [storages[i] for i in inputs]
            case "tanh" | "rsqrt" | "log_softmax" | "log_sum_exp":
                needed = [own]
            case _:
                needed = []
        for storage in needed:
            storage.needed = True
    return sum(s.size for s in {id(s): s for s in storages}.values() if s.needed)

# %% activation_bytes: backwards, marks that views hand on
def activation_bytes(rows, sizes):
    marked = [False] * len(rows)
    total = 0
    for i in range(len(rows) - 1, -1, -1):
        op, inputs = rows[i]
        if op in ("tanh", "rsqrt", "log_softmax", "log_sum_exp", "attention"):
            marked[i] = True
        if op in ("matmul", "multiply", "attention"):
            for j in inputs:
                marked[j] = True
        elif op in ("square", "gelu"):
            marked[inputs[0]] = True
        elif op == "pick":
            marked[inputs[1]] = True
        if marked[i]:
            if op == "view":
                marked[inputs[0]] = True
            elif op != "constant":
                total += sizes[i]
    return total

# %% activation_bytes: union-find
KEEPS = {"matmul": (0, 1), "multiply": (0, 1), "square": (0,), "gelu": (0,), "pick": (1,),
         "tanh": ("output",), "rsqrt": ("output",), "log_softmax": ("output",),
         "log_sum_exp": ("output",), "attention": (0, 1, 2, "output")}

def activation_bytes(rows, sizes):
    parent = list(range(len(rows)))

    def find(i):
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    for i, (op, inputs) in enumerate(rows):
        if op == "view":
            parent[find(i)] = find(inputs[0])
    held = np.zeros(len(rows), dtype=np.int64)
    for i, (op, inputs) in enumerate(rows):
        for which in KEEPS.get(op, ()):
            j = find(i if which == "output" else inputs[which])
            held[j] = 0 if rows[j][0] == "constant" else sizes[j]
    return held.sum()

# %% peak_live: without lifetimes
def lifetimes(rows, order, outputs):
    end = len(order) - 1
    last = dict(zip(order, range(len(order))))
    first = dict(last)
    for place, i in enumerate(order):
        last.update({j: place for j in graphs.inputs(rows[i]) if j in first})
    last.update({i: end for i in outputs if i in first})
    return {i: (first[i], last[i]) for i in sorted(order)}

def peak_live(rows, sizes, order, outputs):
    live, held = set(), []
    for place, i in enumerate(order):
        live.add(i)
        held.append(sum(sizes[j] for j in live))
        later = {j for k in order[place + 1:] for j in graphs.inputs(rows[k])} | set(outputs)
        live &= later
    return max(held)

# %% peak_live: a matrix of readers
def lifetimes(rows, order, outputs):
    n = len(order)
    reads = np.eye(n, dtype=bool)
    place = {i: p for p, i in enumerate(order)}
    for p, i in enumerate(order):
        for j in graphs.inputs(rows[i]):
            if j in place:
                reads[place[j], p] = True
    for i in outputs:
        if i in place:
            reads[place[i], n - 1] = True
    last = n - 1 - reads[:, ::-1].argmax(1)
    return {i: (p, last[p]) for p, i in enumerate(order)}

def peak_live(rows, sizes, order, outputs):
    spans = lifetimes(rows, order, outputs)
    live = np.zeros((len(order), len(order)), dtype=int)
    for p, i in enumerate(order):
        live[p, spans[i][0]:spans[i][1] + 1] = sizes[i]
    return live.sum(0).max()

# %% peak_live: a heap of deaths
import heapq

def lifetimes(rows, order, outputs):
    deaths = {i: len(order) - 1 for i in outputs}
    for place in reversed(range(len(order))):
        i = order[place]
        for j in [i, *graphs.inputs(rows[i])]:
            deaths.setdefault(j, place)
    return {i: (place, deaths[i]) for place, i in enumerate(order)}

def peak_live(rows, sizes, order, outputs):
    spans = lifetimes(rows, order, outputs)
    heap, live, most = [], 0, 0
    for place, i in enumerate(order):
        while heap and heap[0][0] < place:
            live -= heapq.heappop(heap)[1]
        live += sizes[i]
        heapq.heappush(heap, (spans[i][1], sizes[i]))
        most = max(most, live)
    return most

# %% plan_buffers: a grid of bytes
def plan_buffers(lifetimes):
    if not lifetimes:
        return []
    steps = 1 + max(last for _, _, last in lifetimes)
    total = sum(size for size, _, _ in lifetimes)
    low = max(arena.live_bytes(lifetimes))

    def plan(order):
        taken = np.zeros((steps, total), dtype=bool)
        offsets = [0] * len(lifetimes)
        for i in order:
            size, first, last = lifetimes[i]
            used = np.concatenate([[0], taken[first:last + 1].any(0).cumsum()])
            at = int(np.flatnonzero(used[size:] == used[:-size])[0])
            taken[first:last + 1, at:at + size] = True
            offsets[i] = at
        return offsets

    draw = np.random.default_rng(5)
    keys = np.array([size for size, _, _ in lifetimes], dtype=float)
    best = plan(np.argsort(-keys))
    for _ in range(300):
        if arena.arena_bytes(lifetimes, best) == low:
            break
        other = keys * draw.uniform(0.5, 1.5, len(keys)) ** draw.integers(0, 2, len(keys))
        offsets = plan(np.argsort(-other))
        if arena.arena_bytes(lifetimes, offsets) <= arena.arena_bytes(lifetimes, best):
            keys, best = other, offsets
    return best

# %% plan_buffers: NumPy's numbers as offsets
def plan_buffers(lifetimes):
    n = len(lifetimes)
    table = np.array(lifetimes, dtype=np.int64).reshape(n, 3)
    low = max(arena.live_bytes(lifetimes), default=0)

    def plan(order):
        at = np.zeros(n, dtype=np.int64)
        placed = np.zeros(n, dtype=bool)
        for i in order:
            size, first, last = table[i]
            near = np.flatnonzero(placed & (table[:, 1] <= last) & (table[:, 2] >= first))
            for j in near[np.argsort(at[near])]:
                if at[j] - at[i] >= size:
                    break
                at[i] = max(at[i], at[j] + table[j, 0])
            placed[i] = True
        return at, max((at + table[:, 0]).tolist(), default=0)

    draw = np.random.default_rng(7)
    order = np.argsort(-table[:, 0], kind="stable")
    best, least = plan(order)
    for _ in range(400):
        if least == low:
            break
        other = order.copy()
        a, b = draw.integers(0, n, 2)
        other[[a, b]] = other[[b, a]]
        offsets, size = plan(other)
        if size <= least:
            order, best, least = other, offsets, size
    return list(best)

# %% plan_buffers: several rules, then shuffles
import random

def plan_buffers(lifetimes):
    n, low = len(lifetimes), max(arena.live_bytes(lifetimes), default=0)

    def meet(a, b):
        return lifetimes[a][1] <= lifetimes[b][2] and lifetimes[b][1] <= lifetimes[a][2]

    def plan(order):
        offsets = {}
        for i in order:
            size = lifetimes[i][0]
            busy = sorted((offsets[j], offsets[j] + lifetimes[j][0]) for j in offsets if meet(i, j))
            at = 0
            for start, end in busy:
                if at + size <= start:
                    break
                at = max(at, end)
            offsets[i] = at
        return [offsets[i] for i in range(n)]

    rules = [lambda i: -lifetimes[i][0],
             lambda i: -lifetimes[i][0] * (lifetimes[i][2] - lifetimes[i][1] + 1),
             lambda i: (lifetimes[i][1] - lifetimes[i][2], -lifetimes[i][0])]
    orders = [sorted(range(n), key=rule) for rule in rules]
    order = min(orders, key=lambda order: arena.arena_bytes(lifetimes, plan(order)))
    best, dice = plan(order), random.Random(0)
    for _ in range(300):
        size = arena.arena_bytes(lifetimes, best)
        if size == low:
            return best
        other = list(order)
        other.insert(dice.randrange(n), other.pop(dice.randrange(n)))
        if arena.arena_bytes(lifetimes, plan(other)) <= size:
            order, best = other, plan(other)
    return best

# %% plan_buffers: annealing
def plan_buffers(lifetimes):
    n, low = len(lifetimes), max(arena.live_bytes(lifetimes), default=0)

    def plan(order):
        offsets, done = [0] * n, []
        for i in order:
            size, first, last = lifetimes[i]
            for start, end, a, b in sorted(done):
                if a <= last and first <= b:
                    if start >= offsets[i] + size:
                        break
                    offsets[i] = max(offsets[i], end)
            done.append((offsets[i], offsets[i] + size, first, last))
        return offsets, max((end for _, end, _, _ in done), default=0)

    draw = np.random.default_rng(0)
    order = sorted(range(n), key=lambda i: lifetimes[i][0], reverse=True)
    (best, least), now = plan(order), plan(order)[1]
    for step in range(400):
        if least == low:
            break
        a, b = draw.integers(n, size=2)
        order[a], order[b] = order[b], order[a]
        offsets, size = plan(order)
        if size <= now or draw.random() < np.exp((now - size) / (0.03 * low * (1 - step / 400))):
            now = size
        else:
            order[a], order[b] = order[b], order[a]
        if size < least:
            best, least = offsets, size
    return best

# %% plan_buffers: all orders of few buffers, else shuffles of the largest
import itertools

def plan_buffers(lifetimes):
    n, low = len(lifetimes), max(arena.live_bytes(lifetimes), default=0)
    large = sorted(range(n), key=lambda i: -lifetimes[i][0])

    def plan(order):
        offsets = [0] * n
        for count, i in enumerate(order):
            size, first, last = lifetimes[i]
            others = [j for j in order[:count] if lifetimes[j][1] <= last and first <= lifetimes[j][2]]
            for j in sorted(others, key=lambda j: offsets[j]):
                if offsets[j] - offsets[i] >= size:
                    break
                offsets[i] = max(offsets[i], offsets[j] + lifetimes[j][0])
        return offsets

    def orders():
        if n <= 4:
            yield from itertools.permutations(range(n))
        yield large
        draw = np.random.default_rng(1)
        for _ in range(500):
            order = list(large)
            for _ in range(draw.integers(1, 4)):
                order.insert(draw.integers(n), order.pop(draw.integers(n)))
            yield order

    best = None
    for order in orders():
        offsets = plan(order)
        if best is None or arena.arena_bytes(lifetimes, offsets) < arena.arena_bytes(lifetimes, best):
            best = offsets
        if arena.arena_bytes(lifetimes, best) == low:
            break
    return best

# %% plan_buffers: rests as lists of free gaps
def plan_buffers(lifetimes):
    low = max(arena.live_bytes(lifetimes), default=0)
    end = sum(size for size, _, _ in lifetimes)

    def plan(order):
        placed = {}
        for i in order:
            size, first, last = lifetimes[i]
            free = [(0, end)]
            for j, at in placed.items():
                if lifetimes[j][1] > last or lifetimes[j][2] < first:
                    continue
                stop = at + lifetimes[j][0]
                free = [piece for a, b in free for piece in ((a, min(b, at)), (max(a, stop), b))
                        if piece[0] < piece[1]]
            placed[i] = min(a for a, b in free if b - a >= size)
        return [placed[i] for i in range(len(lifetimes))]

    order = sorted(range(len(lifetimes)), key=lambda i: -lifetimes[i][0])
    best, draw = plan(order), np.random.default_rng(3)
    for _ in range(300):
        if arena.arena_bytes(lifetimes, best) == low:
            break
        i, j = sorted(draw.integers(0, len(order), 2).tolist())
        other = order[:i] + order[i:j + 1][::-1] + order[j + 1:]
        offsets = plan(other)
        if arena.arena_bytes(lifetimes, offsets) <= arena.arena_bytes(lifetimes, best):
            order, best = other, offsets
    return best

# %% plan_buffers: from scratch, without the arena's functions, as a tuple
def plan_buffers(lifetimes):
    def plan(order):
        boxes = {}
        for i in order:
            size, first, last = lifetimes[i]
            floor = 0
            for at, top in sorted(boxes[j] for j in boxes
                                  if not (lifetimes[j][2] < first or last < lifetimes[j][1])):
                if at < floor + size:
                    floor = max(floor, top)
                else:
                    break
            boxes[i] = (floor, floor + size)
        return boxes

    def top(boxes):
        return max((end for _, end in boxes.values()), default=0)

    order = sorted(range(len(lifetimes)), key=lambda i: -lifetimes[i][0])
    best, draw = plan(order), np.random.default_rng(4)
    for _ in range(150 if order else 0):
        other = list(order)
        other.insert(draw.integers(len(order)), other.pop(draw.integers(len(order))))
        boxes = plan(other)
        if top(boxes) <= top(best):
            order, best = other, boxes
    return tuple(best[i][0] for i in range(len(lifetimes)))

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

# %% checkpoint_every: NumPy's numbers
def checkpoint_every(n, k):
    kept = np.arange(0, n, k)
    tasks = []
    for i in np.arange(n):
        tasks.append(("F", i))
        if i not in kept:
            tasks.append(("D", i))
    for start in kept[::-1]:
        own = np.arange(start, min(start + k, n))
        tasks += [("F", i) for i in own[:-1]] + [("B", i) for i in own[::-1]]
    return tasks

def step_peak(n, k, copies):
    return np.maximum(len(np.arange(0, n, k)) + k - 1, copies)

# %% checkpoint_every: a segment is dropped when it is complete
def checkpoint_every(n, k):
    tasks = []
    for start in range(0, n, k):
        own = range(start, min(start + k, n))
        tasks += [("F", i) for i in own]
        tasks += [("D", i) for i in own if i != start]
    for start in range((n - 1) // k * k, -1, -k):
        own = range(start, min(start + k, n))
        for i in own[:-1]:
            tasks += [("F", i)]
        for i in reversed(own):
            tasks += [("B", i)]
    return tasks

def step_peak(n, k, copies):
    return sorted([(n + k - 1) // k + k - 1, copies])[-1]

# %% checkpoint_best: every word of three letters
import itertools

def checkpoint_best(costs, inputs, saved, budget):
    n, best = len(costs), None
    for word in itertools.product("kbj", repeat=n):
        if any(a in "k" and b == "j" for a, b in zip(("k",) + word, word)):
            continue
        segments = []
        for i, letter in enumerate(word):
            if letter == "b":
                segments.append((i, i + 1))
            if letter == "j":
                segments[-1] = (segments[-1][0], i + 1)
        cost = sum(c for c, letter in zip(costs, word) if letter != "k")
        if (best is None or cost < best[0]) and chains.segments_peak(inputs, saved, segments) <= budget:
            best = cost, segments
    return None if best is None else best[1]

# %% checkpoint_best: fronts that are pruned by comparison of all pairs
def checkpoint_best(costs, inputs, saved, budget):
    n = len(costs)
    fronts = [[(0, 0, ())]] + [[] for _ in costs]
    for i in range(n):
        front = {(k, c): s for k, c, s in fronts[i]
                 if not any((a, b) != (k, c) and a <= k and b <= c for a, b, _ in fronts[i])}
        for (kept, cost), segments in front.items():
            if kept + saved[i] <= budget:
                fronts[i + 1].append((kept + saved[i], cost, segments))
            for stop in range(i + 1, n + 1):
                if kept + sum(saved[i:stop]) <= budget:
                    fronts[stop].append((kept + inputs[i], cost + sum(costs[i:stop]), segments + ((i, stop),)))
    return list(min(fronts[n], key=lambda state: state[1])[2]) if fronts[n] else None

# %% checkpoint_best: cuts by the bits of a number
def checkpoint_best(costs, inputs, saved, budget):
    n, best, least = len(costs), None, None
    for bits in range(4 ** n):
        again = [bits >> i & 1 for i in range(n)]
        joined = [bits >> n + i & 1 for i in range(n)]
        if any(joined[i] and not (i and again[i] and again[i - 1]) for i in range(n)):
            continue
        starts = [i for i in range(n) if again[i] and not joined[i]]
        segments = [(a, next((j for j in range(a + 1, n) if not joined[j]), n)) for a in starts]
        cost = sum(c for c, one in zip(costs, again) if one)
        if least is not None and cost >= least:
            continue
        if max(chains.saved_over_time(inputs, saved, segments)) <= budget:
            best, least = segments, cost
    return best

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

# %% loss_scaled_step: one tensor says whether all is finite
def loss_scaled_step(loss, master, update, state, interval):
    own = [w.to(torch.float16).requires_grad_(True) for w in master]
    (loss(own) * state["scale"]).backward()
    fine = torch.stack([torch.isfinite(w.grad).all() for w in own]).all()
    if fine:
        update([w.grad.float().div(state["scale"]) for w in own])
        state["good"] += 1
        if state["good"] >= interval:
            state["good"] = 0
            state["scale"] = 2 * state["scale"]
    else:
        state["good"] = 0
        state["scale"] = state["scale"] / 2
    return fine

# %% loss_scaled_step: inf and NaN apart, an early return at the end
def loss_scaled_step(loss, master, update, state, interval):
    scale = state["scale"]
    half = [w.detach().half() for w in master]
    for w in half:
        w.requires_grad_()
    raw = torch.autograd.grad(scale * loss(half), half)
    bad = any(bool(torch.isinf(g).any()) or bool(torch.isnan(g).any()) for g in raw)
    state["scale"], state["good"] = (scale / 2, 0) if bad else (scale, state["good"] + 1)
    if not bad and state["good"] == interval:
        state["scale"], state["good"] = 2 * scale, 0
    if not bad:
        update([g.to(torch.float32) / scale for g in raw])
    return not bad

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

# %% swap_schedule: all programs of this form are played, and the fastest wins
def swap_schedule(forward_s, backward_s, sizes, bytes_per_s, room):
    n = len(sizes)
    machine = swapping.Machine(tuple(forward_s), tuple(backward_s), tuple(sizes), bytes_per_s, room)

    def program(away, ahead):
        tasks = [task for i in range(n) for task in [("F", i), ("out", i)][:1 + (i < away)]]
        back = [("in", i) for i in reversed(range(away))]
        for i in reversed(range(n)):
            while back and back[0][1] >= i - ahead:
                tasks.append(back.pop(0))
            tasks.append(("B", i))
        return tasks

    runs = []
    for away in range(n + 1):
        for ahead in range(1, n + 1):
            try:
                runs.append((swapping.played(program(away, ahead), machine, "").duration_s, away, ahead))
            except AssertionError:
                pass
    return program(*min(runs)[1:])

# %% swap_schedule: cumulative sums
def swap_schedule(forward_s, backward_s, sizes, bytes_per_s, room):
    n = len(sizes)
    from_end = np.cumsum(sizes[::-1])
    stay = np.searchsorted(from_end, room, side="right")
    away = n - stay
    tasks = []
    for i in range(n):
        tasks.append(("F", i))
        if i < away:
            tasks.append(("out", i))
    for i in np.arange(away)[::-1]:
        tasks.append(("in", i))
    for i in range(n)[::-1]:
        tasks.append(("B", i))
    return tasks

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

# %% checkpointed: the context set up apart
class Replayed(torch.autograd.Function):
    @staticmethod
    def forward(function, *inputs):
        return function(*inputs)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.function = inputs[0]
        ctx.state = STATES.pop()
        ctx.save_for_backward(*inputs[1:])

    @staticmethod
    def backward(ctx, slope):
        leaves = [x.detach().requires_grad_() for x in ctx.saved_tensors]
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(ctx.state)
            with torch.enable_grad():
                y = ctx.function(*leaves)
        return (None, *torch.autograd.grad([y], leaves, [slope]))

STATES = []

def checkpointed(function, *inputs):
    STATES.append(torch.get_rng_state())
    return Replayed.apply(function, *inputs)

# %% checkpointed: inputs kept by the context
class Simple(torch.autograd.Function):
    @staticmethod
    def forward(ctx, run, *inputs):
        ctx.run, ctx.inputs, ctx.seed = run, inputs, torch.get_rng_state()
        with torch.no_grad():
            return run(*inputs)

    @staticmethod
    def backward(ctx, slope):
        inputs = [x.detach().clone().requires_grad_() for x in ctx.inputs]
        with torch.enable_grad(), torch.random.fork_rng(devices=[], enabled=True):
            torch.set_rng_state(ctx.seed)
            (ctx.run(*inputs) * slope).sum().backward()
        return None, *[x.grad for x in inputs]

checkpointed = Simple.apply

# %% checkpointed: only the gradients that are needed
class Needed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, function, state, *inputs):
        ctx.function, ctx.state = function, state
        ctx.save_for_backward(*inputs)
        return function(*inputs)

    @staticmethod
    def backward(ctx, slope):
        needed = ctx.needs_input_grad[2:]
        inputs = [x.detach().requires_grad_(need) for x, need in zip(ctx.saved_tensors, needed)]
        old = torch.get_rng_state()
        torch.set_rng_state(ctx.state)
        with torch.set_grad_enabled(True):
            y = ctx.function(*inputs)
        torch.set_rng_state(old)
        found = iter(torch.autograd.grad(y, [x for x in inputs if x.requires_grad], slope))
        return (None, None, *(next(found) if need else None for need in needed))

def checkpointed(function, *inputs):
    return Needed.apply(function, torch.get_rng_state(), *inputs)

# %% checkpointed: PyTorch's own, reentrant
import torch.utils.checkpoint

def checkpointed(function, *inputs):
    return torch.utils.checkpoint.checkpoint(function, *inputs, use_reentrant=True)

# %% checkpointed: a generator that is forked by hand
import contextlib

@contextlib.contextmanager
def random_state(state):
    now = torch.default_generator.get_state()
    torch.default_generator.set_state(state)
    yield
    torch.default_generator.set_state(now)

class Recomputed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, function, *inputs):
        state = torch.default_generator.get_state()
        ctx.again = functools.partial(Recomputed.once_more, function, state)
        ctx.save_for_backward(*inputs)
        return function(*inputs)

    @staticmethod
    def once_more(function, state, inputs):
        with random_state(state), torch.enable_grad():
            return function(*inputs)

    @staticmethod
    def backward(ctx, slope):
        inputs = [x.detach().requires_grad_() for x in ctx.saved_tensors]
        return None, *torch.autograd.grad(ctx.again(inputs), inputs, slope)

def checkpointed(function, *inputs):
    return Recomputed.apply(function, *inputs)

# %% accumulated_step: gradients pile up in .grad
def accumulated_step(loss, weights, microbatches, update):
    total = sum(targets.numel() for _, targets in microbatches)
    leaves = [w.detach().clone().requires_grad_() for w in weights]
    for x, targets in microbatches:
        (loss(leaves, x, targets) * targets.numel() / total).backward()
    update([w.grad for w in leaves])

# %% accumulated_step: the slope carries the share
def accumulated_step(loss, weights, microbatches, update):
    n = sum(map(len, (targets for _, targets in microbatches)))
    total = None
    for x, targets in microbatches:
        own = [torch.nn.Parameter(w) for w in weights]
        value = loss(own, x, targets)
        found = torch.autograd.grad(value, own, torch.full_like(value, len(targets) / n))
        total = found if total is None else tuple(map(torch.add, total, found))
    update(list(total))

# %% accumulated_step: grad of a function
def accumulated_step(loss, weights, microbatches, update):
    slope = torch.func.grad(lambda w, x, t: loss(w, x, t) * t.shape[0])
    total, count = [torch.zeros_like(w) for w in weights], 0
    for x, targets in microbatches:
        for sum_, g in zip(total, slope(weights, x, targets)):
            sum_ += g
        count += targets.shape[0]
    update([t / count for t in total])

# %% fused_block: some tokens at a time, norms by formula
def rms(x, gain):
    scale = (x.pow(2).mean(-1, keepdim=True) + recomputed.EPSILON).rsqrt()
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

# %% fused_block: gate and up in one product
# - g, u = normed @ gate, normed @ up
# + g, u = (normed @ torch.cat([gate, up], 1)).chunk(2, 1)
# ...
# - d_x, d_gain = torch.autograd.grad(normed, [x, gain], d_g @ gate.T + d_u @ up.T)
# - normed = normed.detach()
# - return [d_x + d_h, d_gain, normed.T @ d_g, normed.T @ d_u, product.T @ d_h, d_last_gain, d_scores]
# + d_both = torch.cat([d_g, d_u], 1)
# + d_x, d_gain = torch.autograd.grad(normed, [x, gain], d_both @ torch.cat([gate, up], 1).T)
# + d_gate, d_up = (normed.detach().T @ d_both).chunk(2, 1)
# + return [d_x + d_h, d_gain, d_gate, d_up, product.T @ d_h, d_last_gain, d_scores]

# %% fused_block: all gradients in forward, none in backward
def fused_forward(x, targets, *weights):
    own = [w.detach().requires_grad_() for w in (x, *weights)]
    with torch.enable_grad():
        loss = recomputed.block_loss(*own, targets)
    return loss.detach(), list(torch.autograd.grad(loss, own))

def fused_backward(saved, *weights):
    return list(saved)

def fused_block(x, targets, *weights):
    loss, saved = fused_forward(x, targets, *weights)
    return loss, fused_backward(saved, *weights)

# %% test_plan: the course's replay
def test_plan(candidate):
    for seed in range(40):
        lifetimes = arena.drawn_lifetimes(np.random.default_rng(seed), 3 + seed)
        fault = arena.replay(lifetimes, candidate(lifetimes))
        assert fault == "", fault

# %% test_plan: neighbours by offset in each step
def test_plan(candidate):
    for seed in range(60):
        lifetimes = arena.drawn_lifetimes(np.random.default_rng(seed), 2 + seed // 3)
        offsets = candidate(lifetimes)
        if len(offsets) != len(lifetimes):
            raise AssertionError("too few")
        for step in range(1 + max(b[2] for b in lifetimes)):
            there = sorted((at, size) for at, (size, a, b) in zip(offsets, lifetimes) if a <= step <= b)
            end = 0
            for at, size in there:
                assert isinstance(at, int), "a fraction"
                assert at >= end, (step, at, end)
                end = at + size

# %% test_plan: sets of bytes
def test_plan(candidate):
    for count in [1, 2, 3, 5, 8, 12, 16, 24] * 4:
        TRIALS.append(None)
        lifetimes = arena.drawn_lifetimes(np.random.default_rng(len(TRIALS)), count)
        offsets = candidate(lifetimes)
        assert len(offsets) == count
        places = [set(range(at, at + size)) for at, (size, _, _) in zip(offsets, lifetimes)]
        assert all(min(place) >= 0 for place in places)
        for step in range(count + 1):
            live = [p for p, (_, first, last) in zip(places, lifetimes) if first <= step <= last]
            assert len(set().union(*live)) == sum(map(len, live))

TRIALS = []

# %% test_plan: cases by hand, and pairs
import itertools

def test_plan(candidate):
    cases = [[(4, 0, 0), (4, 0, 3)], [(8, 0, 1), (8, 1, 2), (8, 2, 3)], [(1, 0, 9), (100, 2, 4), (3, 4, 9)],
             [(128, 0, 2), (64, 1, 2), (64, 2, 2)]]
    cases += [arena.drawn_lifetimes(np.random.default_rng(s), 14) for s in range(40)]
    for lifetimes in cases:
        offsets = candidate(list(lifetimes))
        assert len(offsets) == len(lifetimes), "length"
        assert all(int(at) == at and at >= 0 for at in offsets), "offsets"
        for (a, one), (b, two) in itertools.combinations(zip(offsets, lifetimes), 2):
            in_time = max(one[1], two[1]) <= min(one[2], two[2])
            in_space = max(a, b) < min(a + one[0], b + two[0])
            assert not (in_time and in_space), (one, two)

# %% test_plan: buffers of real graphs
def test_plan(candidate):
    draw = np.random.default_rng(0)
    for _ in range(80):
        rows, sizes = arena.drawn_graph(draw, int(draw.integers(3, 14)))
        order = arena.drawn_order(draw, rows)
        spans = lifetimes(rows, order, order[-1:])
        for buffers in ([(sizes[i], *spans[i]) for i in order], arena.drawn_lifetimes(draw, 10)):
            fault = arena.replay(buffers, candidate(list(buffers)))
            assert not fault, fault
