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
