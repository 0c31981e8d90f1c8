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
