# %% partition_layers: bisection on the cost
def partition_layers(costs, stages):
    def cuts(limit):
        out, first, total = [], 0, 0
        for i, cost in enumerate(costs):
            if i > first and (total + cost > limit or len(costs) - i < stages - len(out)):
                out.append((first, i))
                first, total = i, 0
            total += cost
        return [*out, (first, len(costs))]

    for limit in range(max(costs), sum(costs) + 1):
        found = cuts(limit)
        if len(found) <= stages and all(sum(costs[a:b]) <= limit for a, b in found):
            while len(found) < stages:
                k = next(k for k, (a, b) in enumerate(found) if b - a > 1)
                a, b = found[k]
                found[k:k + 1] = [(a, a + 1), (a + 1, b)]
            return found

# %% partition_layers: every cut, as lists
import itertools

def partition_layers(costs, stages):
    best = None
    for inner in itertools.combinations(range(1, len(costs)), stages - 1):
        cut = [list(pair) for pair in itertools.pairwise((0, *inner, len(costs)))]
        worst = max(sum(costs[a:b]) for a, b in cut)
        if best is None or worst < best[0]:
            best = worst, cut
    return best[1]

# %% partition_layers: a table, in NumPy
def partition_layers(costs, stages):
    n = len(costs)
    total = np.concatenate([[0], np.cumsum(costs)])
    best = np.full((stages + 1, n + 1), np.inf)
    back = np.zeros((stages + 1, n + 1), dtype=int)
    best[0, 0] = 0
    for s in range(1, stages + 1):
        for end in range(s, n + 1):
            for first in range(s - 1, end):
                cost = max(best[s - 1, first], total[end] - total[first])
                if cost < best[s, end]:
                    best[s, end], back[s, end] = cost, first
    cuts, end = [], n
    for s in range(stages, 0, -1):
        cuts.append((int(back[s, end]), int(end)))
        end = back[s, end]
    return cuts[::-1]

# %% Stage: keeps the graph of a clone, and divides the gradient
class Stage:
    def __init__(self, layers, microbatches, loss=None):
        self.layers, self.microbatches, self.loss = layers, microbatches, loss
        self.kept = {}

    def forward(self, i, x, target=None):
        y = self.layers(x)
        if self.loss is None:
            self.kept[i] = (x, y)
            return y.detach().clone()
        loss = self.loss(y, target)
        self.kept[i] = (x, loss)
        return (loss / self.microbatches).detach()

    def backward(self, i, dy=None):
        x, y = self.kept[i]
        if dy is None:
            dy = torch.full_like(y, 1 / self.microbatches)
        torch.autograd.backward(y, dy)
        del self.kept[i]
        return x.grad

    def local(self, kind, i):
        for layer in self.layers.modules():
            if hasattr(layer, "weight_gradient"):
                layer.weight_gradient()

# %% Stage: gradients by torch.autograd.grad
class Stage:
    def __init__(self, layers, microbatches, loss=None):
        self.layers, self.microbatches, self.loss = layers, microbatches, loss
        self.kept = {}

    def forward(self, i, x, target=None):
        y = self.layers(x)
        if self.loss:
            y = self.loss(y, target).div(self.microbatches)
        self.kept.update({i: (x, y)})
        return y.data

    def backward(self, i, dy=None):
        x, y = self.kept.pop(i)
        weights = list(self.layers.parameters())
        wanted = [*weights, x] if x.requires_grad else weights
        gradients = torch.autograd.grad(y, wanted, dy, allow_unused=True)
        for weight, gradient in zip(weights, gradients):
            if gradient is not None:
                weight.grad = gradient if weight.grad is None else weight.grad + gradient
        return gradients[-1] if x.requires_grad else None

    def local(self, kind, i):
        for layer in self.layers.modules():
            if hasattr(layer, "weight_gradient"):
                layer.weight_gradient()

# %% run_stage: receives posted before they are needed, without helpers
def run_stage(dist, stage, tasks, inputs, targets, like, links=None):
    me, p = dist.get_rank(), dist.get_world_size()
    links = links or {}
    waiting, total = {}, None
    for kind, i in tasks:
        if kind == "F":
            if me:
                x = torch.empty_like(like)
                dist.irecv(x, me - 1, group=links.get((me - 1, me))).wait()
                x.requires_grad_()
            else:
                x = inputs[i]
            out = stage.forward(i, x, targets[i]) if me == p - 1 else stage.forward(i, x)
            if me == p - 1:
                total = out if total is None else total + out
            else:
                waiting["F", i] = dist.isend(out, me + 1, group=links.get((me, me + 1)))
        elif kind == "B":
            gradient = None
            if me < p - 1:
                gradient = torch.empty_like(like)
                dist.irecv(gradient, me + 1, group=links.get((me + 1, me))).wait()
                waiting.pop(("F", i)).wait()
            gradient = stage.backward(i, gradient)
            if me:
                if "B" in waiting:
                    waiting["B"].wait()
                waiting["B"] = dist.isend(gradient, me - 1, group=links.get((me, me - 1)))
        else:
            stage.local(kind, i)
    for work in list(waiting.values()):
        work.wait()
    return total

# %% one_f_one_b: by counting
def one_f_one_b(stage, stages, microbatches):
    tasks, f, b = [], 0, 0
    while b < microbatches:
        if f < microbatches and f - b < stages - stage:
            tasks.append(("F", f))
            f += 1
        else:
            tasks.append(("B", b))
            b += 1
    return tasks

# %% one_f_one_b: warm-up, steady state and drain as lists
def one_f_one_b(stage, stages, microbatches):
    warm_up = min(microbatches, stages - stage - 1)
    forwards = [("F", i) for i in range(microbatches)]
    backwards = [("B", i) for i in range(microbatches)]
    steady = zip(forwards[warm_up:], backwards)
    return [*forwards[:warm_up], *(task for pair in steady for task in pair), *backwards[microbatches - warm_up:]]

# %% bubble: counted from the slots
def bubble(stages, batch, gpus=None, replicas=None):
    if gpus is not None:
        replicas = gpus / stages
    m = batch / replicas
    return 1 - m / (m + stages - 1)

# %% MatmulApart: by einsum and add_
class MatmulApart(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, put_off):
        ctx.save_for_backward(x, weight)
        ctx.put_off = put_off
        return x @ weight.T

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        ctx.put_off += [(weight, x, dy)]
        return torch.einsum("...o,oi->...i", dy, weight), None, None

def add_weight_gradient(weight, x, dy):
    if weight.grad is None:
        weight.grad = torch.zeros_like(weight)
    weight.grad += dy.reshape(-1, dy.shape[-1]).T @ x.reshape(-1, x.shape[-1])

# %% zb_h1: greedy, within the budget
def zb_h1(stage, stages, microbatches):
    tasks, f, b, w = [], 0, 0, 0
    for kind, i in one_f_one_b(stage, stages, microbatches):
        tasks.append((kind, i))
        if kind == "B":
            b += 1
            if b - w > stage:
                tasks.append(("W", w))
                w += 1
    while w < microbatches:
        tasks.append(("W", w))
        w += 1
    return tasks

# %% test_schedule: with loops over many sizes, and try
def test_schedule(candidate):
    for p in range(1, 6):
        for m in range(1, 13):
            tasks = [candidate(stage, p, m) for stage in range(p)]
            for stage in range(p):
                own = tasks[stage]
                if len(own) != 2 * m or len(set(own)) != 2 * m:
                    raise AssertionError("too many or too few")
                live = most = 0
                for kind, i in own:
                    assert 0 <= i < m
                    live += 1 if kind == "F" else -1
                    most = max(most, live)
                assert most <= min(m, p - stage), (p, m, stage)
            assert abs(played(tasks).time_s - 3e-3 * (m + p - 1)) < 1e-6

# %% interleaved: by counting
def interleaved(rank, stages, microbatches, chunks):
    order = [(turn + i, c) for turn in range(0, microbatches, stages) for c in range(chunks) for i in range(stages)]
    back = [(turn + i, c) for turn in range(0, microbatches, stages) for c in reversed(range(chunks)) for i in range(stages)]
    ahead = min(len(order), 2 * (stages - rank - 1) + (chunks - 1) * stages)
    tasks = [("F", *place) for place in order[:ahead]]
    for k, place in enumerate(back):
        if k + ahead < len(order):
            tasks.append(("F", *order[k + ahead]))
        tasks.append(("B", *place))
    return tasks

# %% partition_layers: recursion on the first stage, as a generator of all cuts
def _all(n, stages, first=0):
    if stages == 1:
        yield ((first, n),)
        return
    for end in range(first + 1, n - stages + 2):
        for rest in _all(n, stages - 1, end):
            yield ((first, end), *rest)

def partition_layers(costs, stages):
    return min(_all(len(costs), stages), key=lambda cut: max(sum(costs[a:b]) for a, b in cut))

# %% partition_layers: cuts moved until nothing gets better, from every start
def partition_layers(costs, stages):
    prefix = np.cumsum([0, *costs])
    n, limits = len(costs), sorted({int(b - a) for a in prefix for b in prefix if b > a})
    for limit in limits:
        ends, at = [], 0
        while at < n and len(ends) <= stages:
            end = int(np.searchsorted(prefix, prefix[at] + limit, side="right")) - 1
            if end == at:
                break
            ends.append(end)
            at = end
        if at == n and len(ends) <= stages:
            free = [i for i in range(1, n) if i not in ends]
            ends = sorted(ends + free[:stages - len(ends)])
            return list(zip([0, *ends], ends))

# %% Stage: a leaf of its own, kept with the loss's weight
class Stage:
    def __init__(self, layers, microbatches, loss=None):
        self.layers, self.microbatches, self.loss = layers, microbatches, loss
        self.kept = {}

    def forward(self, i, x, target=None):
        own = x.detach().requires_grad_(x.requires_grad)
        with torch.enable_grad():
            out = self.layers(own)
            if self.loss is not None:
                out = (1 / self.microbatches) * self.loss(out, target)
        self.kept[i] = {"in": own, "out": out}
        return out.detach()

    def backward(self, i, dy=None):
        entry = self.kept[i]
        entry["out"].backward(gradient=dy)
        del self.kept[i]
        return entry["in"].grad

    def local(self, kind, i):
        for layer in self.layers.modules():
            if hasattr(layer, "weight_gradient"):
                layer.weight_gradient()

# %% Stage: keeps its input and computes forward again
class Stage:
    def __init__(self, layers, microbatches, loss=None):
        self.layers, self.microbatches, self.loss = layers, microbatches, loss
        self.kept = {}

    def _value(self, x, target):
        y = self.layers(x)
        return y if self.loss is None else self.loss(y, target) / self.microbatches

    def forward(self, i, x, target=None):
        self.kept[i] = (x, target)
        with torch.no_grad():
            return self._value(x, target)

    def backward(self, i, dy=None):
        x, target = self.kept.pop(i)
        self._value(x, target).backward(dy)
        return x.grad

    def local(self, kind, i):
        for layer in self.layers.modules():
            if hasattr(layer, "weight_gradient"):
                layer.weight_gradient()

# %% run_stage: the next receive is posted one task early
def run_stage(dist, stage, tasks, inputs, targets, like, links=None):
    me, end, links = dist.get_rank(), dist.get_world_size() - 1, links or {}

    def source(kind):
        src = {"F": me - 1, "B": me + 1}.get(kind, -1)
        return src if 0 <= src <= end else None

    def post(k):
        if k < len(tasks) and source(tasks[k][0]) is not None:
            src, buffer = source(tasks[k][0]), torch.empty_like(like)
            return buffer, dist.irecv(buffer, src, group=links.get((src, me)))

    out, total, coming = {}, None, post(0)
    for k, (kind, i) in enumerate(tasks):
        buffer = None
        if coming:
            buffer, work = coming
            work.wait()
        coming = post(k + 1)
        if kind == "F":
            x = buffer.requires_grad_() if me else inputs[i]
            y = stage.forward(i, x, targets[i] if me == end else None)
            if me == end:
                total = y + (0 if total is None else total)
            else:
                out[i] = dist.isend(y, me + 1, group=links.get((me, me + 1)))
        elif kind == "B":
            if me < end:
                out.pop(i).wait()
            dx = stage.backward(i, buffer)
            if me:
                if -1 in out:
                    out.pop(-1).wait()
                out[-1] = dist.isend(dx, me - 1, group=links.get((me, me - 1)))
        else:
            stage.local(kind, i)
    while out:
        out.popitem()[1].wait()
    return total

# %% run_stage: a class of mailboxes, with blocking receives
class Mail:
    def __init__(self, dist, like, links):
        self.dist, self.like, self.links, self.me = dist, like, links or {}, dist.get_rank()
        self.sent = {-1: [], 1: []}

    def get(self, way):
        tensor, src = torch.zeros_like(self.like), self.me + way
        self.dist.recv(tensor, src, group=self.links.get((src, self.me)))
        return tensor

    def put(self, way, tensor):
        dst = self.me + way
        self.sent[way].append(self.dist.isend(tensor, dst, group=self.links.get((self.me, dst))))

    def settle(self, way, most):
        while len(self.sent[way]) > most:
            self.sent[way].pop(0).wait()

def run_stage(dist, stage, tasks, inputs, targets, like, links=None):
    mail, losses = Mail(dist, like, links), []
    first, last = mail.me == 0, mail.me == dist.get_world_size() - 1
    under_way = 0
    for kind, i in tasks:
        if kind not in ("F", "B"):
            stage.local(kind, i)
        elif kind == "F" and last:
            losses.append(stage.forward(i, inputs[i] if first else mail.get(-1).requires_grad_(), targets[i]))
        elif kind == "F":
            mail.put(1, stage.forward(i, inputs[i] if first else mail.get(-1).requires_grad_()))
            under_way += 1
        else:
            dy = None if last else mail.get(1)
            under_way -= 1
            mail.settle(1, max(under_way, 0))
            dx = stage.backward(i, dy)
            if not first:
                mail.settle(-1, 0)
                mail.put(-1, dx)
    mail.settle(1, 0)
    mail.settle(-1, 0)
    return sum(losses) if last else None

# %% run_stage: batches of P2P operations
def run_stage(dist, stage, tasks, inputs, targets, like, links=None):
    rank, p, groups = dist.get_rank(), dist.get_world_size(), links or {}
    pending, loss = {}, None

    def begin(call, tensor, src, dst):
        peer = dst if call == dist.isend else src
        (work,) = dist.batch_isend_irecv([dist.P2POp(call, tensor, peer, group=groups.get((src, dst)))])
        return work

    for kind, i in tasks:
        if kind == "F":
            x = inputs[i] if rank == 0 else torch.empty_like(like)
            if rank > 0:
                begin(dist.irecv, x, rank - 1, rank).wait()
                x.requires_grad_(True)
            if rank == p - 1:
                share = stage.forward(i, x, targets[i])
                loss = share if loss is None else torch.add(loss, share)
            else:
                pending["F", i] = begin(dist.isend, stage.forward(i, x), rank, rank + 1)
        elif kind == "B":
            dy = None
            if rank < p - 1:
                dy = torch.empty_like(like)
                begin(dist.irecv, dy, rank + 1, rank).wait()
                pending.pop(("F", i)).wait()
            dx = stage.backward(i, dy)
            if rank > 0:
                if i - 1 in pending:
                    pending.pop(i - 1).wait()
                pending[i] = begin(dist.isend, dx, rank, rank - 1)
        else:
            stage.local(kind, i)
    [work.wait() for work in pending.values()]
    return loss

# %% one_f_one_b: every stage simulated, a step at a time
def one_f_one_b(stage, stages, microbatches):
    lists = [[] for _ in range(stages)]
    done = set()
    while len(lists[stage]) < 2 * microbatches:
        now = []
        for s in range(stages):
            f, b = (sum(kind == k for kind, _ in lists[s]) for k in "FB")
            if b < f and (s == stages - 1 or (s + 1, "B", b) in done) and (
                    f - b == stages - s or f == microbatches or (lists[s] and lists[s][-1][0] == "F")):
                now.append((s, "B", b))
            elif f < microbatches and f - b < stages - s and (s == 0 or (s - 1, "F", f) in done):
                now.append((s, "F", f))
        for s, kind, i in now:
            lists[s].append((kind, i))
        done.update(now)
    return lists[stage]

# %% one_f_one_b: a generator, recursive in the microbatches
def _steady(i, ahead, m):
    if i == m:
        return
    if i + ahead < m:
        yield "F", i + ahead
    yield "B", i
    yield from _steady(i + 1, ahead, m)

def one_f_one_b(stage, stages, microbatches):
    ahead = min(stages - stage - 1, microbatches)
    return [*(("F", i) for i in range(ahead)), *_steady(0, ahead, microbatches)]

# %% one_f_one_b: sorted by when each task is due
def one_f_one_b(stage, stages, microbatches):
    ahead = stages - 1 - stage
    due = {("F", i): 2 * (i - ahead) for i in range(microbatches)}
    due |= {("B", i): 2 * i + 1 for i in range(microbatches)}
    return sorted(due, key=due.get)

# %% bubble: fractions, and one expression
from fractions import Fraction

def bubble(stages, batch, gpus=None, replicas=None):
    copies = Fraction(gpus, stages) if replicas is None else Fraction(replicas)
    slots = Fraction(batch) / copies + stages - 1
    return float(Fraction(stages - 1) / slots)

# %% bubble: NumPy, idle over idle plus work
def bubble(stages, batch, gpus=None, replicas=None):
    m = np.divide(batch, replicas) if replicas else np.divide(batch * stages, gpus)
    idle, work = 3e-3 * (stages - 1), 3e-3 * m
    return idle / (idle + work)

# %% bubble: the timeline itself
def bubble(stages, batch, gpus=None, replicas=None):
    m = batch // replicas if replicas is not None else batch * stages // gpus
    return played(on_stages(one_f_one_b, stages, m)).bubble

# %% MatmulApart: attributes of ctx, and sums of outer products
class MatmulApart(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, put_off):
        ctx.tensors, ctx.later = (weight, x), put_off
        return torch.nn.functional.linear(x, weight)

    @staticmethod
    def backward(ctx, dy):
        ctx.later.append((*ctx.tensors, dy))
        return torch.matmul(dy, ctx.tensors[0]), None, None

def add_weight_gradient(weight, x, dy):
    rows = zip(dy.reshape(-1, dy.shape[-1]), x.reshape(-1, x.shape[-1]))
    with torch.no_grad():
        total = sum(torch.outer(d, row) for d, row in rows)
        weight.grad = total if weight.grad is None else weight.grad.add_(total)

# %% MatmulApart: tensordot
# edit: dy.flatten(0, -2).T @ x.flatten(0, -2)  ->  torch.tensordot(dy, x, dims=(list(range(dy.ndim - 1)), list(range(x.ndim - 1))))

# %% zb_h1: three columns, shifted against one another
def zb_h1(stage, stages, microbatches):
    forwards, backwards, weights = ([(kind, i) for i in range(microbatches)] for kind in "FBW")
    ahead = stages - 1 - stage
    rows = itertools.zip_longest(forwards[ahead:], backwards, [None] * stage + weights)
    return forwards[:ahead] + [task for row in rows for task in row if task]

# %% zb_h1: three lists merged by their due times
def zb_h1(stage, stages, microbatches):
    ahead, late = stages - 1 - stage, stage
    due = {}
    for i in range(microbatches):
        due["F", i] = (i - ahead, 0)
        due["B", i] = (i, 1)
        due["W", i] = (i + late, 2) if i + late < microbatches else (microbatches, i)
    return sorted(due, key=due.get)

# %% test_schedule: a simulation of its own, random sizes
def test_schedule(candidate):
    import random
    sizes = [(1, 1), (1, 5), (2, 1), (5, 2), (4, 4), (3, 11)]
    sizes += [(random.randint(1, 6), random.randint(1, 14)) for _ in range(12)]
    for p, m in sizes:
        lists = [candidate(s, p, m) for s in range(p)]
        for s, own in enumerate(lists):
            assert len(own) == 2 * m and set(own) == {(k, i) for k in "FB" for i in range(m)}
            forwards = backwards = 0
            for kind, _ in own:
                forwards, backwards = forwards + (kind == "F"), backwards + (kind == "B")
                assert 0 <= forwards - backwards <= min(m, p - s)
        end, free, at = {}, [0] * p, [0] * p
        while any(at[s] < 2 * m for s in range(p)):
            moved = False
            for s in range(p):
                if at[s] == 2 * m:
                    continue
                kind, i = lists[s][at[s]]
                need = [(s - 1, "F", i)] * (s > 0) if kind == "F" else [(s, "F", i)] + [(s + 1, "B", i)] * (s < p - 1)
                if all(key in end for key in need):
                    free[s] = max([free[s], *(end[key] for key in need)]) + (1 if kind == "F" else 2)
                    end[s, kind, i], at[s], moved = free[s], at[s] + 1, True
            assert moved, "hangs"
        assert max(free) <= 3 * (m + p - 1)

# %% test_schedule: beside GPipe's own time
def test_schedule(candidate):
    for p, m in itertools.product((1, 2, 3, 5), (1, 2, 3, 5, 11)):
        tasks = on_stages(candidate, p, m)
        assert all(sorted(own) == sorted(gpipe(0, p, m)) for own in tasks)
        assert all(held(own) <= min(m, p - s) for s, own in enumerate(tasks))
        np.testing.assert_allclose(played(tasks).time_s, played(on_stages(gpipe, p, m)).time_s)

# %% interleaved: a queue of turns, and a generator
def interleaved(rank, stages, microbatches, chunks):
    def places(order):
        for start in range(0, microbatches, stages):
            for chunk in order:
                yield from ((start + i, chunk) for i in range(stages))

    forward, backward = places(range(chunks)), places(range(chunks)[::-1])
    ahead = 2 * (stages - rank - 1) + (chunks - 1) * stages
    tasks = [("F", *place) for place in itertools.islice(forward, ahead)]
    for back in backward:
        place = next(forward, None)
        tasks += [("B", *back)] if place is None else [("F", *place), ("B", *back)]
    return tasks

# %% partition_layers: numbers of NumPy
def partition_layers(costs, stages):
    prefix = np.concatenate([[0], np.cumsum(costs)])
    best = None
    for inner in itertools.combinations(np.arange(1, len(costs)), stages - 1):
        ends = np.array([0, *inner, len(costs)])
        worst = np.diff(prefix[ends]).max()
        if best is None or worst < best[0]:
            best = worst, list(zip(ends[:-1], ends[1:]))
    return best[1]

# %% partition_layers: binary search with a greedy cut
def partition_layers(costs, stages):
    low, high = max(costs), sum(costs)
    def greedy(limit):
        cuts, first, total = [], 0, 0
        for i, c in enumerate(costs):
            left = len(costs) - i
            if i > first and (total + c > limit or left <= stages - len(cuts) - 1):
                cuts.append((first, i))
                first, total = i, 0
            total += c
        return cuts + [(first, len(costs))]
    while low < high:
        middle = (low + high) // 2
        found = greedy(middle)
        if len(found) <= stages and max(sum(costs[a:b]) for a, b in found) <= middle:
            high = middle
        else:
            low = middle + 1
    return greedy(low)

# %% partition_layers: from the left, with a dictionary
def partition_layers(costs, stages):
    memo = {}
    def go(first, s):
        if (first, s) in memo:
            return memo[first, s]
        if s == 1:
            answer = (sum(costs[first:]), ((first, len(costs)),))
        else:
            answer = min(((max(sum(costs[first:end]), go(end, s - 1)[0]), ((first, end), *go(end, s - 1)[1]))
                         for end in range(first + 1, len(costs) - s + 2)), key=lambda pair: pair[0])
        memo[first, s] = answer
        return answer
    return list(go(0, stages)[1])

# %% Stage: a list of what is kept, and a scalar product
class Stage:
    def __init__(self, layers, microbatches, loss=None):
        self.layers, self.microbatches, self.loss = layers, microbatches, loss
        self.kept = []

    def forward(self, i, x, target=None):
        y = self.layers(x)
        if self.loss is not None:
            y = self.loss(y, target) * (1 / self.microbatches)
        self.kept.append((i, x, y))
        with torch.no_grad():
            return y + 0

    def backward(self, i, dy=None):
        index = next(k for k, (j, *_) in enumerate(self.kept) if j == i)
        _, x, y = self.kept.pop(index)
        if dy is not None:
            y = (y * dy).sum()
        y.backward()
        return x.grad

    def local(self, kind, i):
        for layer in self.layers.modules():
            if hasattr(layer, "weight_gradient"):
                layer.weight_gradient()

# %% Stage: a dictionary per microbatch
class Stage:
    def __init__(self, layers, microbatches, loss=None):
        self.layers, self.microbatches, self.loss = layers, microbatches, loss
        self.kept = {}

    def forward(self, i, x, target=None):
        value = self.layers.forward(x)
        if callable(self.loss):
            value = torch.div(self.loss(value, target), self.microbatches)
        self.kept[int(i)] = {"x": x, "value": value}
        return value.data

    def backward(self, i, dy=None):
        kept = self.kept.pop(int(i))
        torch.autograd.backward(tensors=[kept["value"]], grad_tensors=[dy])
        return kept["x"].grad

    def local(self, kind, i):
        for layer in self.layers.modules():
            if hasattr(layer, "weight_gradient"):
                layer.weight_gradient()

# %% run_stage: a match statement, and losses summed at the end
def run_stage(dist, stage, tasks, inputs, targets, like, links=None):
    me, p = dist.get_rank(), dist.get_world_size()
    group = (links or {}).get
    acts, grads, shares = {}, [], []
    for task in tasks:
        match task:
            case ("F", i):
                if me == 0:
                    x = inputs[i]
                else:
                    x = like.new_empty(like.shape)
                    dist.recv(x, me - 1, group=group((me - 1, me)))
                    x = x.requires_grad_()
                if me == p - 1:
                    shares.append(stage.forward(i, x, targets[i]))
                else:
                    acts[i] = dist.isend(stage.forward(i, x), me + 1, group=group((me, me + 1)))
            case ("B", i):
                dy = None
                if me != p - 1:
                    dy = like.new_empty(like.shape)
                    dist.recv(dy, me + 1, group=group((me + 1, me)))
                    acts.pop(i).wait()
                dx = stage.backward(i, dy)
                if me:
                    while grads:
                        grads.pop().wait()
                    grads.append(dist.isend(dx, me - 1, group=group((me, me - 1))))
            case (kind, i):
                stage.local(kind, i)
    for work in [*acts.values(), *grads]:
        work.wait()
    return torch.stack(shares).sum() if shares else None

# %% run_stage: lets go of what is_completed
def run_stage(dist, stage, tasks, inputs, targets, like, links=None):
    me, last = dist.get_rank(), dist.get_world_size() - 1
    links = {} if links is None else links
    works, loss = [], None
    def tidy():
        for work in [w for w in works if w.is_completed()]:
            work.wait()
            works.remove(work)
    for kind, i in tasks:
        tidy()
        if kind == "F":
            if me > 0:
                x = torch.zeros_like(like)
                dist.irecv(x, src=me - 1, group=links.get((me - 1, me))).wait()
                x.requires_grad = True
            else:
                x = inputs[i]
            y = stage.forward(i, x, None if me < last else targets[i])
            if me < last:
                works.append(dist.isend(y, dst=me + 1, group=links.get((me, me + 1))))
            else:
                loss = y if loss is None else loss.add(y)
        elif kind == "B":
            dy = None
            if me < last:
                dy = torch.zeros_like(like)
                dist.irecv(dy, src=me + 1, group=links.get((me + 1, me))).wait()
            dx = stage.backward(i, dy)
            if me > 0:
                works.append(dist.isend(dx, dst=me - 1, group=links.get((me, me - 1))))
        else:
            stage.local(kind, i)
    [w.wait() for w in works]
    return loss

# %% run_stage: a table of functions
def run_stage(dist, stage, tasks, inputs, targets, like, links=None):
    rank, size = dist.get_rank(), dist.get_world_size()
    state = {"down": {}, "up": None, "loss": None}

    def group(a, b):
        return links[a, b] if links else None

    def F(i):
        if rank:
            x = torch.empty(like.shape, dtype=like.dtype, device=like.device)
            dist.irecv(x, rank - 1, group=group(rank - 1, rank)).wait()
            x.requires_grad_()
        else:
            x = inputs[i]
        if rank == size - 1:
            share = stage.forward(i, x, target=targets[i])
            state["loss"] = share if state["loss"] is None else state["loss"] + share
        else:
            state["down"][i] = dist.isend(stage.forward(i, x), rank + 1, group=group(rank, rank + 1))

    def B(i):
        dy = None
        if rank + 1 < size:
            dy = torch.empty(like.shape, dtype=like.dtype, device=like.device)
            dist.irecv(dy, rank + 1, group=group(rank + 1, rank)).wait()
            state["down"].pop(i).wait()
        dx = stage.backward(i, dy=dy)
        if rank:
            if state["up"]:
                state["up"].wait()
            state["up"] = dist.isend(dx, rank - 1, group=group(rank, rank - 1))

    for kind, i in tasks:
        if kind in "FB":
            {"F": F, "B": B}[kind](i)
        else:
            stage.local(kind, i)
    for work in [*state["down"].values(), state["up"]]:
        if work is not None:
            work.wait()
    return state["loss"]

# %% one_f_one_b: numbers of NumPy
def one_f_one_b(stage, stages, microbatches):
    ahead = min(microbatches, stages - 1 - stage)
    order = np.arange(microbatches)
    tasks = [("F", i) for i in order[:ahead]]
    for i in order:
        if i + ahead < microbatches:
            tasks.append(("F", i + ahead))
        tasks.append(("B", i))
    return tasks

# %% one_f_one_b: namedtuples
from collections import namedtuple
Task = namedtuple("Task", "kind i")
def one_f_one_b(stage, stages, microbatches):
    ahead = min(microbatches, stages - 1 - stage)
    tasks = [Task("F", i) for i in range(ahead)]
    for i in range(microbatches):
        if i + ahead < microbatches:
            tasks.append(Task("F", i + ahead))
        tasks.append(Task("B", i))
    return tasks

# %% one_f_one_b: from a text
def one_f_one_b(stage, stages, microbatches):
    ahead = min(microbatches, stages - 1 - stage)
    text = " ".join(f"F{i}" for i in range(ahead))
    for i in range(microbatches):
        text += f" F{i + ahead}" * (i + ahead < microbatches) + f" B{i}"
    return [(word[0], int(word[1:])) for word in text.split()]

# %% test_schedule: collects faults
def test_schedule(candidate):
    faults = []
    for p, m in itertools.product(range(1, 5), range(1, 10)):
        tasks = [candidate(stage, p, m) for stage in range(p)]
        for s, own in enumerate(tasks):
            if sorted(own) != sorted(gpipe(s, p, m)):
                faults.append((p, m, s, "tasks"))
            elif held(own) > min(m, p - s):
                faults.append((p, m, s, "held"))
        if faults:
            raise AssertionError(faults)
        if round(played(tasks).time_s * 1e3) > 3 * (m + p - 1):
            raise AssertionError((p, m, "time"))

# %% test_schedule: unittest
def test_schedule(candidate):
    import unittest
    case = unittest.TestCase()
    for p, m in [(1, 1), (1, 4), (2, 5), (3, 2), (4, 4), (5, 11)]:
        tasks = on_stages(candidate, p, m)
        for s, own in enumerate(tasks):
            case.assertCountEqual(own, gpipe(s, p, m))
            case.assertLessEqual(held(own), min(m, p - s))
        case.assertAlmostEqual(played(tasks).time_s, 3e-3 * (m + p - 1))

# %% bubble: the GPUs first
def bubble(stages, batch, gpus=None, replicas=None):
    per = batch * stages / gpus if gpus else batch / replicas
    return 1 / (1 + per / (stages - 1)) if stages > 1 else 0.0

# %% MatmulApart: einsum over all axes, of detached tensors
class MatmulApart(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, put_off):
        ctx.save_for_backward(x, weight)
        ctx.put_off = put_off
        return x @ weight.T

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        ctx.put_off.append((weight, x.detach(), dy.detach()))
        return torch.einsum("...o,oi->...i", dy, weight), None, None

def add_weight_gradient(weight, x, dy):
    new = torch.einsum("...o,...i->oi", dy, x)
    weight.grad = new if weight.grad is None else torch.add(weight.grad, new)

# %% zb_h1: a queue
def zb_h1(stage, stages, microbatches):
    from collections import deque
    late, tasks = deque(), []
    for kind, i in one_f_one_b(stage, stages, microbatches):
        tasks.append((kind, i))
        if kind == "B":
            late.append(("W", i))
            if len(late) > stage:
                tasks.append(late.popleft())
    return [*tasks, *late]

# %% interleaved: a grid of NumPy
def interleaved(rank, stages, microbatches, chunks):
    grid = np.arange(microbatches).reshape(-1, stages)
    forwards = [("F", i, c) for row in grid for c in range(chunks) for i in row]
    backwards = [("B", i, c) for row in grid for c in reversed(range(chunks)) for i in row]
    ahead = min(len(forwards), 2 * (stages - rank - 1) + (chunks - 1) * stages)
    tasks = forwards[:ahead]
    for f, b in itertools.zip_longest(forwards[ahead:], backwards):
        tasks += [f, b] if f else [b]
    return tasks

# %% partition_layers: branch and bound with a heap
import heapq

def partition_layers(costs, stages):
    n = len(costs)
    heap = [(0, 0, (0,))]
    tick = 0
    while heap:
        worst, _, ends = heapq.heappop(heap)
        first, left = ends[-1], stages - len(ends) + 1
        if left == 0:
            if first == n:
                return [(a, b) for a, b in zip(ends, ends[1:])]
            continue
        for end in ([n] if left == 1 else range(first + 1, n - left + 2)):
            tick += 1
            heapq.heappush(heap, (max(worst, sum(costs[first:end])), tick, (*ends, end)))

# %% Stage: a closure is kept
class Stage:
    def __init__(self, layers, microbatches, loss=None):
        self.layers, self.microbatches, self.loss = layers, microbatches, loss
        self.kept = {}

    def forward(self, i, x, target=None):
        with torch.enable_grad():
            y = self.layers(x)
            y = y if self.loss is None else self.loss(y, target) / self.microbatches

        def back(dy):
            y.backward(gradient=dy)
            return x.grad

        self.kept[i] = back
        with torch.no_grad():
            return y.detach()

    def backward(self, i, dy=None):
        return self.kept.pop(i)(dy)

    def local(self, kind, i):
        for layer in self.layers.modules():
            if hasattr(layer, "weight_gradient"):
                layer.weight_gradient()

# %% Stage: a generator per microbatch, resumed by backward
class Stage:
    def __init__(self, layers, microbatches, loss=None):
        self.layers, self.microbatches, self.loss = layers, microbatches, loss
        self.kept = {}

    def _microbatch(self, x, target):
        y = self.layers(x)
        if self.loss:
            y = self.loss(y, target) / self.microbatches
        dy = yield y.detach()
        y.backward(dy)
        yield x.grad

    def forward(self, i, x, target=None):
        self.kept[i] = self._microbatch(x, target)
        return next(self.kept[i])

    def backward(self, i, dy=None):
        return self.kept.pop(i).send(dy)

    def local(self, kind, i):
        for layer in self.layers.modules():
            if hasattr(layer, "weight_gradient"):
                layer.weight_gradient()

# %% Stage: a hook takes x's gradient
class Stage:
    def __init__(self, layers, microbatches, loss=None):
        self.layers, self.microbatches, self.loss = layers, microbatches, loss
        self.kept = {}

    def forward(self, i, x, target=None):
        box = []
        inside = x.detach()
        if x.requires_grad:
            inside.requires_grad_().register_hook(box.append)
        y = self.layers(inside)
        if self.loss is not None:
            y = self.loss(y, target) / self.microbatches
        self.kept[i] = box, y
        return y.detach()

    def backward(self, i, dy=None):
        box, y = self.kept.pop(i)
        y.backward(dy)
        return box[0] if box else None

    def local(self, kind, i):
        for layer in self.layers.modules():
            if hasattr(layer, "weight_gradient"):
                layer.weight_gradient()

# %% run_stage: deques of handles, oldest first
from collections import deque

def run_stage(dist, stage, tasks, inputs, targets, like, links=None):
    rank, size = dist.get_rank(), dist.get_world_size()
    group = (lambda a, b: None) if links is None else (lambda a, b: links[a, b])
    down, up, shares = deque(), deque(), []
    for kind, i in tasks:
        if kind not in ("F", "B"):
            stage.local(kind, i)
            continue
        source = rank - 1 if kind == "F" else rank + 1
        came = None
        if 0 <= source < size:
            came = torch.empty(like.shape, dtype=like.dtype, device=like.device)
            dist.irecv(came, source, group=group(source, rank)).wait()
        if kind == "F":
            x = inputs[i] if came is None else came.requires_grad_(True)
            out = stage.forward(i, x, targets[i]) if rank == size - 1 else stage.forward(i, x)
            if rank == size - 1:
                shares.append(out)
            else:
                down.append(dist.isend(out, rank + 1, group=group(rank, rank + 1)))
        else:
            if down:
                down.popleft().wait()
            dx = stage.backward(i, came)
            if rank:
                while up:
                    up.popleft().wait()
                up.append(dist.isend(dx, rank - 1, group=group(rank, rank - 1)))
    for handle in (*down, *up):
        handle.wait()
    return sum(shares) if shares else None

# %% run_stage: a generator of messages to wait for
def run_stage(dist, stage, tasks, inputs, targets, like, links=None):
    me, p = dist.get_rank(), dist.get_world_size()
    links = {} if links is None else dict(links)

    def steps():
        handles = {}
        for kind, i in tasks:
            if kind == "F":
                x = inputs[i] if me == 0 else torch.empty_like(like)
                if me:
                    yield dist.irecv(x, src=me - 1, group=links.get((me - 1, me)))
                    x = x.requires_grad_()
                if me == p - 1:
                    shares[i] = stage.forward(i, x, targets[i])
                else:
                    handles[i] = dist.isend(stage.forward(i, x), dst=me + 1, group=links.get((me, me + 1)))
            elif kind == "B":
                dy = None
                if me < p - 1:
                    dy = torch.empty_like(like)
                    yield dist.irecv(dy, src=me + 1, group=links.get((me + 1, me)))
                    yield handles.pop(i)
                dx = stage.backward(i, dy)
                if me:
                    if None in handles:
                        yield handles.pop(None)
                    handles[None] = dist.isend(dx, dst=me - 1, group=links.get((me, me - 1)))
            else:
                stage.local(kind, i)
        yield from handles.values()

    shares = {}
    for work in steps():
        work.wait()
    return torch.stack(list(shares.values())).sum() if shares else None

# %% run_stage: all receives of a kind posted at the start
def run_stage(dist, stage, tasks, inputs, targets, like, links=None):
    me, last, links = dist.get_rank(), dist.get_world_size() - 1, links or {}
    came = {}
    for kind, i in tasks:
        src = {"F": me - 1, "B": me + 1}.get(kind, -1)
        if 0 <= src <= last:
            tensor = torch.empty_like(like)
            came[kind, i] = tensor, dist.irecv(tensor, src, group=links.get((src, me)))

    def arrived(kind, i):
        if (kind, i) not in came:
            return None
        tensor, work = came.pop((kind, i))
        work.wait()
        return tensor

    sent, loss = {}, None
    for kind, i in tasks:
        if kind == "F":
            x = arrived(kind, i)
            x = inputs[i] if x is None else x.requires_grad_()
            y = stage.forward(i, x, targets[i] if me == last else None)
            if me == last:
                loss = y if loss is None else loss + y
            else:
                sent[i] = dist.isend(y, me + 1, group=links.get((me, me + 1)))
        elif kind == "B":
            dy = arrived(kind, i)
            if i in sent:
                sent.pop(i).wait()
            dx = stage.backward(i, dy)
            if me:
                if "up" in sent:
                    sent.pop("up").wait()
                sent["up"] = dist.isend(dx, me - 1, group=links.get((me, me - 1)))
        else:
            stage.local(kind, i)
    for work in sent.values():
        work.wait()
    return loss

# %% one_f_one_b: recursion on the later stages
def one_f_one_b(stage, stages, microbatches):
    if stage == stages - 1:
        return [(kind, i) for i in range(microbatches) for kind in "FB"]
    after = one_f_one_b(stage + 1, stages, microbatches)
    kinds = ["F"] + [kind for kind, _ in after if True]
    tasks, counts = [], {"F": 0, "B": 0}
    for kind in kinds:
        if counts[kind] < microbatches:
            tasks.append((kind, counts[kind]))
            counts[kind] += 1
    return tasks + [("B", i) for i in range(counts["B"], microbatches)]

# %% one_f_one_b: two iterators
def one_f_one_b(stage, stages, microbatches):
    f = iter([("F", i) for i in range(microbatches)])
    b = iter([("B", i) for i in range(microbatches)])
    tasks = list(itertools.islice(f, stages - stage - 1))
    for task in b:
        tasks.extend(itertools.islice(f, 1))
        tasks.append(task)
    return tasks

# %% zb_h1: sorted by slots
def zb_h1(stage, stages, microbatches):
    ahead = stages - 1 - stage
    slots = []
    for i in range(microbatches):
        slots += [(3 * (i - ahead), 0, ("F", i)), (3 * i, 1, ("B", i)), (3 * (i + stage), 2, ("W", i))]
    return [task for *_, task in sorted(slots)]

# %% interleaved: sorted by key
def interleaved(rank, stages, microbatches, chunks):
    p, v = stages, chunks
    all_tasks = list(itertools.product(range(microbatches), range(v)))
    forwards = sorted(all_tasks, key=lambda t: (t[0] // p, t[1], t[0]))
    backwards = sorted(all_tasks, key=lambda t: (t[0] // p, -t[1], t[0]))
    ahead = 2 * (p - rank - 1) + (v - 1) * p
    due = [(2 * (k - ahead), ("F", *t)) for k, t in enumerate(forwards)]
    due += [(2 * k + 1, ("B", *t)) for k, t in enumerate(backwards)]
    return [task for _, task in sorted(due)]
