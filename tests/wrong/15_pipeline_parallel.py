# %% partition_layers: as many layers on each stage
# says: same number of layers each
def partition_layers(costs, stages):
    n = len(costs)
    return [(n * s // stages, n * (s + 1) // stages) for s in range(stages)]

# %% partition_layers: a stage is full once it has its share
# says: could be
def partition_layers(costs, stages):
    cuts, first, share = [], 0, sum(costs) / stages
    for stage in range(stages - 1):
        end = first + 1
        while sum(costs[first:end + 1]) <= share and len(costs) - end > stages - 1 - stage:
            end += 1
        cuts.append((first, end))
        first = end
    return [*cuts, (first, len(costs))]

# %% partition_layers: the dearest layers are dealt out, in whatever order
# says: runs of neighbours
def partition_layers(costs, stages):
    stage_costs, of = [0] * stages, [[] for _ in range(stages)]
    for layer in sorted(range(len(costs)), key=lambda layer: -costs[layer]):
        cheapest = stage_costs.index(min(stage_costs))
        stage_costs[cheapest] += costs[layer]
        of[cheapest].append(layer)
    return [(min(layers), max(layers) + 1) for layers in of]

# %% Stage: losses not divided by m
# says: Divide by m
class Stage:
    def __init__(self, layers, microbatches, loss=None):
        self.layers, self.microbatches, self.loss = layers, microbatches, loss
        self.kept = {}

    def forward(self, i, x, target=None):
        y = self.layers(x)
        if self.loss is not None:
            y = self.loss(y, target)
        self.kept[i] = x, y
        return y.detach()

    def backward(self, i, dy=None):
        x, y = self.kept.pop(i)
        y.backward(dy)
        return x.grad

    def weight_gradients(self, i):
        pass

# %% Stage: activations of the wrong microbatch (the last in is the first out)
# says: does each find its own activations?
class Stage:
    def __init__(self, layers, microbatches, loss=None):
        self.layers, self.microbatches, self.loss = layers, microbatches, loss
        self.kept = []

    def forward(self, i, x, target=None):
        y = self.layers(x)
        if self.loss is not None:
            y = self.loss(y, target) / self.microbatches
        self.kept.append((x, y))
        return y.detach()

    def backward(self, i, dy=None):
        x, y = self.kept.pop()
        y.backward(dy)
        return x.grad

    def weight_gradients(self, i):
        pass

# %% Stage: never lets go of a microbatch
# says: must be forgotten after its backward
class Stage:
    def __init__(self, layers, microbatches, loss=None):
        self.layers, self.microbatches, self.loss = layers, microbatches, loss
        self.kept = {}

    def forward(self, i, x, target=None):
        y = self.layers(x)
        if self.loss is not None:
            y = self.loss(y, target) / self.microbatches
        self.kept[i] = x, y
        return y.detach()

    def backward(self, i, dy=None):
        x, y = self.kept[i]
        y.backward(dy)
        return x.grad

    def weight_gradients(self, i):
        pass

# %% Stage: the output with its graph
# says: cut it off
class Stage:
    def __init__(self, layers, microbatches, loss=None):
        self.layers, self.microbatches, self.loss = layers, microbatches, loss
        self.kept = {}

    def forward(self, i, x, target=None):
        y = self.layers(x)
        if self.loss is not None:
            y = self.loss(y, target) / self.microbatches
        self.kept[i] = x, y
        return y

    def backward(self, i, dy=None):
        x, y = self.kept.pop(i)
        y.backward(dy)
        return x.grad

    def weight_gradients(self, i):
        pass

# %% run_stage: both neighbours receive first, and send before the next task
# says: each waits for the next
def run_stage(dist, stage, tasks, inputs, targets, like, links=None):
    me, last, links = dist.get_rank(), dist.get_world_size() - 1, links or {}
    ready, works, loss = [], [], None

    def flush():
        for tensor, dst in ready:
            works.append(dist.isend(tensor, dst, group=links.get((me, dst))))
        ready.clear()

    def received(src):
        tensor = torch.empty_like(like)
        dist.irecv(tensor, src, group=links.get((src, me))).wait()
        return tensor

    for kind, i in tasks:
        if kind == "F":
            x = inputs[i] if me == 0 else received(me - 1).requires_grad_()
            flush()
            y = stage.forward(i, x, targets[i] if me == last else None)
            if me < last:
                ready.append((y, me + 1))
            else:
                loss = y if loss is None else loss + y
        elif kind in "BI":
            dy = None if me == last else received(me + 1)
            flush()
            dx = stage.backward(i, dy)
            if me > 0:
                ready.append((dx, me - 1))
        if kind in "BW":
            stage.weight_gradients(i)
    flush()
    for work in works:
        work.wait()
    return loss

# %% run_stage: a stage waits until its message has arrived
# says: each waits for the next
def run_stage(dist, stage, tasks, inputs, targets, like, links=None):
    me, last, links = dist.get_rank(), dist.get_world_size() - 1, links or {}
    loss = None

    def received(src):
        tensor = torch.empty_like(like)
        dist.recv(tensor, src, group=links.get((src, me)))
        return tensor

    for kind, i in tasks:
        if kind == "F":
            x = inputs[i] if me == 0 else received(me - 1).requires_grad_()
            y = stage.forward(i, x, targets[i] if me == last else None)
            if me < last:
                dist.send(y, me + 1, group=links.get((me, me + 1)))
            else:
                loss = y if loss is None else loss + y
        elif kind in "BI":
            dx = stage.backward(i, None if me == last else received(me + 1))
            if me > 0:
                dist.send(dx, me - 1, group=links.get((me, me - 1)))
        if kind in "BW":
            stage.weight_gradients(i)
    return loss

# %% run_stage: what was sent is kept until the end
# says: must not stay to the end
def run_stage(dist, stage, tasks, inputs, targets, like, links=None):
    me, last, links = dist.get_rank(), dist.get_world_size() - 1, links or {}
    works, loss = [], None

    def received(src):
        tensor = torch.empty_like(like)
        dist.irecv(tensor, src, group=links.get((src, me))).wait()
        return tensor

    for kind, i in tasks:
        if kind == "F":
            x = inputs[i] if me == 0 else received(me - 1).requires_grad_()
            y = stage.forward(i, x, targets[i] if me == last else None)
            if me < last:
                works.append((y, dist.isend(y, me + 1, group=links.get((me, me + 1)))))
            else:
                loss = y if loss is None else loss + y
        elif kind in "BI":
            dx = stage.backward(i, None if me == last else received(me + 1))
            if me > 0:
                works.append((dx, dist.isend(dx, me - 1, group=links.get((me, me - 1)))))
        if kind in "BW":
            stage.weight_gradients(i)
    for _, work in works:
        work.wait()
    return loss

# %% run_stage: one buffer receives all activations
# says: no tensor used twice?
def run_stage(dist, stage, tasks, inputs, targets, like, links=None):
    me, last, links = dist.get_rank(), dist.get_world_size() - 1, links or {}
    sent, loss, buffer = {}, None, torch.empty_like(like)

    def received(src):
        tensor = buffer if src < me else torch.empty_like(like)
        dist.irecv(tensor.detach(), src, group=links.get((src, me))).wait()
        return tensor.detach()

    def send(tensor, dst, name):
        if name in sent:
            sent.pop(name).wait()
        sent[name] = dist.isend(tensor, dst, group=links.get((me, dst)))

    for kind, i in tasks:
        if kind == "F":
            x = inputs[i] if me == 0 else received(me - 1).requires_grad_()
            y = stage.forward(i, x, targets[i] if me == last else None)
            if me < last:
                send(y, me + 1, i)
            else:
                loss = y if loss is None else loss + y
        elif kind in "BI":
            dx = stage.backward(i, None if me == last else received(me + 1))
            if me > 0:
                send(dx, me - 1, "gradient")
        if kind in "BW":
            stage.weight_gradients(i)
    for work in sent.values():
        work.wait()
    return loss

# %% run_stage: nobody waits for the sends
# says: never waited for
def run_stage(dist, stage, tasks, inputs, targets, like, links=None):
    me, last, links = dist.get_rank(), dist.get_world_size() - 1, links or {}
    loss = None

    def received(src):
        tensor = torch.empty_like(like)
        dist.irecv(tensor, src, group=links.get((src, me))).wait()
        return tensor

    for kind, i in tasks:
        if kind == "F":
            x = inputs[i] if me == 0 else received(me - 1).requires_grad_()
            y = stage.forward(i, x, targets[i] if me == last else None)
            if me < last:
                dist.isend(y, me + 1, group=links.get((me, me + 1)))
            else:
                loss = y if loss is None else loss + y
        elif kind in "BI":
            dx = stage.backward(i, None if me == last else received(me + 1))
            if me > 0:
                dist.isend(dx, me - 1, group=links.get((me, me - 1)))
        if kind in "BW":
            stage.weight_gradients(i)
    return loss

# %% run_stage: what is received needs no gradient
# says: a NoneType where a tensor belongs
def run_stage(dist, stage, tasks, inputs, targets, like, links=None):
    me, last, links = dist.get_rank(), dist.get_world_size() - 1, links or {}
    works, loss = [], None

    def received(src):
        tensor = torch.empty_like(like)
        dist.irecv(tensor, src, group=links.get((src, me))).wait()
        return tensor

    for kind, i in tasks:
        if kind == "F":
            x = inputs[i] if me == 0 else received(me - 1)
            y = stage.forward(i, x, targets[i] if me == last else None)
            if me < last:
                works.append(dist.isend(y, me + 1, group=links.get((me, me + 1))))
            else:
                loss = y if loss is None else loss + y
        else:
            dx = stage.backward(i, None if me == last else received(me + 1))
            if me > 0:
                works.append(dist.isend(dx, me - 1, group=links.get((me, me - 1))))
    for work in works:
        work.wait()
    return loss

# %% one_f_one_b: all forwards first
# says: that is GPipe
def one_f_one_b(stage, stages, microbatches):
    return [(kind, i) for kind in "FB" for i in range(microbatches)]

# %% one_f_one_b: one forward too many ahead
# says: run p − stage − 1 forwards ahead
def one_f_one_b(stage, stages, microbatches):
    ahead = min(microbatches, stages - stage)
    tasks = [("F", i) for i in range(ahead)]
    for i in range(microbatches):
        if i + ahead < microbatches:
            tasks.append(("F", i + ahead))
        tasks.append(("B", i))
    return tasks

# %% one_f_one_b: a forward and a backward in turn, from the start
# says: No stage runs ahead of another
def one_f_one_b(stage, stages, microbatches):
    return [(kind, i) for i in range(microbatches) for kind in "FB"]

# %% one_f_one_b: the last backwards are forgotten
# says: once a microbatch
def one_f_one_b(stage, stages, microbatches):
    ahead = min(microbatches, stages - 1 - stage)
    tasks = [("F", i) for i in range(ahead)]
    for i in range(microbatches - ahead):
        tasks += [("F", i + ahead), ("B", i)]
    return tasks

# %% bubble: idle over busy time
# says: want it over all time
def bubble(stages, batch, gpus=None, replicas=None):
    replicas = gpus / stages if replicas is None else replicas
    return (stages - 1) / (batch / replicas)

# %% bubble: every replica runs the whole batch
# says: only its part of the batch
def bubble(stages, batch, gpus=None, replicas=None):
    return (stages - 1) / (batch + stages - 1)

# %% bubble: a replica for each GPU
# says: A GPU is no replica
def bubble(stages, batch, gpus=None, replicas=None):
    microbatches = batch / (gpus if replicas is None else replicas)
    return (stages - 1) / (microbatches + stages - 1)

# %% MatmulApart: the last microbatch's gradient replaces the others
# says: Add to weight.grad
class MatmulApart(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, put_off):
        ctx.save_for_backward(x, weight)
        ctx.put_off = put_off
        return x @ weight.T

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        ctx.put_off.append((weight, x, dy))
        return dy @ weight, None, None

def add_weight_gradient(weight, x, dy):
    weight.grad = dy.flatten(0, -2).T @ x.flatten(0, -2)

# %% MatmulApart: the product is made at once, only its addition is put off
# says: made in backward already
class MatmulApart(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, put_off):
        ctx.save_for_backward(x, weight)
        ctx.put_off = put_off
        return x @ weight.T

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        ctx.put_off.append((weight, dy.flatten(0, -2).T @ x.flatten(0, -2), None))
        return dy @ weight, None, None

def add_weight_gradient(weight, gradient, _):
    weight.grad = gradient if weight.grad is None else weight.grad + gradient

# %% MatmulApart: the weight's gradient transposed
# says: same size
class MatmulApart(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, put_off):
        ctx.save_for_backward(x, weight)
        ctx.put_off = put_off
        return x @ weight.T

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        ctx.put_off.append((weight, x, dy))
        return dy @ weight, None, None

def add_weight_gradient(weight, x, dy):
    gradient = x.flatten(0, -2).T @ dy.flatten(0, -2)
    weight.grad = gradient if weight.grad is None else weight.grad + gradient

# %% zb_h1: no weight gradient is put off
# says: with each W right after its I
def zb_h1(stage, stages, microbatches):
    ahead = min(microbatches, stages - 1 - stage)
    tasks = [("F", i) for i in range(ahead)]
    for i in range(microbatches):
        if i + ahead < microbatches:
            tasks.append(("F", i + ahead))
        tasks += [("I", i), ("W", i)]
    return tasks

# %% zb_h1: all weight gradients at the end
# says: W sooner
def zb_h1(stage, stages, microbatches):
    ahead = min(microbatches, stages - 1 - stage)
    tasks = [("F", i) for i in range(ahead)]
    for i in range(microbatches):
        if i + ahead < microbatches:
            tasks.append(("F", i + ahead))
        tasks.append(("I", i))
    return tasks + [("W", i) for i in range(microbatches)]

# %% zb_h1: the first stage puts off most
# says: W sooner
def zb_h1(stage, stages, microbatches):
    ahead = later = min(microbatches, stages - 1 - stage)
    tasks = [("F", i) for i in range(ahead)]
    for i in range(microbatches):
        if i + ahead < microbatches:
            tasks.append(("F", i + ahead))
        tasks.append(("I", i))
        if i >= later:
            tasks.append(("W", i - later))
    return tasks + [("W", i) for i in range(microbatches - later, microbatches)]

# %% run_stage: all messages in one process group, where NCCL would carry one after another
# says: bytes on links
def run_stage(dist, stage, tasks, inputs, targets, like, links=None):
    me, last = dist.get_rank(), dist.get_world_size() - 1
    sent, loss = {}, None

    def received(src):
        tensor = torch.empty_like(like)
        dist.irecv(tensor, src).wait()
        return tensor

    def send(tensor, dst, name):
        if name in sent:
            sent.pop(name).wait()
        sent[name] = dist.isend(tensor, dst)

    for kind, i in tasks:
        if kind == "F":
            x = inputs[i] if me == 0 else received(me - 1).requires_grad_()
            y = stage.forward(i, x, targets[i] if me == last else None)
            if me < last:
                send(y, me + 1, i)
            else:
                loss = y if loss is None else loss + y
        elif kind in "BI":
            dx = stage.backward(i, None if me == last else received(me + 1))
            if me < last:
                sent.pop(i).wait()
            if me > 0:
                send(dx, me - 1, "gradient")
        if kind in "BW":
            stage.weight_gradients(i)
    for work in sent.values():
        work.wait()
    return loss

# %% partition_layers: the last layer of each stage, not the one after it
# says: runs of neighbours
def partition_layers(costs, stages):
    cuts = [[0, *inner, len(costs)] for inner in itertools.combinations(range(1, len(costs)), stages - 1)]
    best = min(cuts, key=lambda cut: max(sum(costs[a:b]) for a, b in itertools.pairwise(cut)))
    return [(a, b - 1) for a, b in itertools.pairwise(best)]

# %% partition_layers: no layer is left for the first stage
# says: runs of neighbours
def partition_layers(costs, stages):
    def best(end, stages):  # (cost of the dearest stage, cuts) of the layers before end
        if stages == 1:
            return sum(costs[:end]), [(0, end)]
        cuts = [(first, best(first, stages - 1)) for first in range(stages - 2, end)]
        return min((max(dearest, sum(costs[first:end])), [*before, (first, end)])
                   for first, (dearest, before) in cuts)
    return best(len(costs), stages)[1]

# %% Stage: the loss is divided for backward only
# says: Divide by m
class Stage:
    def __init__(self, layers, microbatches, loss=None):
        self.layers, self.microbatches, self.loss = layers, microbatches, loss
        self.kept = {}

    def forward(self, i, x, target=None):
        y = self.layers(x)
        if self.loss is not None:
            y = self.loss(y, target)
            self.kept[i] = x, y / self.microbatches
        else:
            self.kept[i] = x, y
        return y.detach()

    def backward(self, i, dy=None):
        x, y = self.kept.pop(i)
        y.backward(dy)
        return x.grad

    def weight_gradients(self, i):
        for layer in self.layers.modules():
            if hasattr(layer, "weight_gradient"):
                layer.weight_gradient()

# %% Stage: only the latest microbatch is kept
# says: a second time
class Stage:
    def __init__(self, layers, microbatches, loss=None):
        self.layers, self.microbatches, self.loss = layers, microbatches, loss
        self.kept = {}

    def forward(self, i, x, target=None):
        y = self.layers(x)
        if self.loss is not None:
            y = self.loss(y, target) / self.microbatches
        self.kept[0] = x, y
        return y.detach()

    def backward(self, i, dy=None):
        x, y = self.kept[0]
        y.backward(dy)
        return x.grad

    def weight_gradients(self, i):
        pass

# %% run_stage: weight gradients are never asked for
# says: end of a B and of a W
def run_stage(dist, stage, tasks, inputs, targets, like, links=None):
    me, last, links = dist.get_rank(), dist.get_world_size() - 1, links or {}
    sent, loss = {}, None

    def received(src):
        tensor = torch.empty_like(like)
        dist.irecv(tensor, src, group=links.get((src, me))).wait()
        return tensor

    def send(tensor, dst, name):
        if name in sent:
            sent.pop(name).wait()
        sent[name] = dist.isend(tensor, dst, group=links.get((me, dst)))

    for kind, i in tasks:
        if kind == "F":
            x = inputs[i] if me == 0 else received(me - 1).requires_grad_()
            y = stage.forward(i, x, targets[i] if me == last else None)
            if me < last:
                send(y, me + 1, i)
            else:
                loss = y if loss is None else loss + y
        elif kind in "BI":
            dy = None if me == last else received(me + 1)
            if me < last:
                sent.pop(i).wait()
            dx = stage.backward(i, dy)
            if me > 0:
                send(dx, me - 1, "gradient")
    for work in sent.values():
        work.wait()
    return loss

# %% run_stage: I and W are left out
# says: end of a B and of a W
def run_stage(dist, stage, tasks, inputs, targets, like, links=None):
    me, last, links = dist.get_rank(), dist.get_world_size() - 1, links or {}
    sent, loss = {}, None

    def received(src):
        tensor = torch.empty_like(like)
        dist.irecv(tensor, src, group=links.get((src, me))).wait()
        return tensor

    def send(tensor, dst, name):
        if name in sent:
            sent.pop(name).wait()
        sent[name] = dist.isend(tensor, dst, group=links.get((me, dst)))

    for kind, i in tasks:
        if kind == "F":
            x = inputs[i] if me == 0 else received(me - 1).requires_grad_()
            y = stage.forward(i, x, targets[i] if me == last else None)
            if me < last:
                send(y, me + 1, i)
            else:
                loss = y if loss is None else loss + y
        elif kind == "B":
            dy = None if me == last else received(me + 1)
            if me < last:
                sent.pop(i).wait()
            dx = stage.backward(i, dy)
            if me > 0:
                send(dx, me - 1, "gradient")
            stage.weight_gradients(i)
    for work in sent.values():
        work.wait()
    return loss

# %% run_stage: weight gradients with I, too
# says: I leaves it to W
def run_stage(dist, stage, tasks, inputs, targets, like, links=None):
    me, last, links = dist.get_rank(), dist.get_world_size() - 1, links or {}
    sent, loss = {}, None

    def received(src):
        tensor = torch.empty_like(like)
        dist.irecv(tensor, src, group=links.get((src, me))).wait()
        return tensor

    def send(tensor, dst, name):
        if name in sent:
            sent.pop(name).wait()
        sent[name] = dist.isend(tensor, dst, group=links.get((me, dst)))

    for kind, i in tasks:
        if kind == "F":
            x = inputs[i] if me == 0 else received(me - 1).requires_grad_()
            y = stage.forward(i, x, targets[i] if me == last else None)
            if me < last:
                send(y, me + 1, i)
            else:
                loss = y if loss is None else loss + y
        elif kind in "BI":
            dy = None if me == last else received(me + 1)
            if me < last:
                sent.pop(i).wait()
            dx = stage.backward(i, dy)
            if me > 0:
                send(dx, me - 1, "gradient")
        if kind in "BIW":
            stage.weight_gradients(i)
    for work in sent.values():
        work.wait()
    return loss

# %% run_stage: the last microbatch's loss for the batch's
# says: the sum of the shares
def run_stage(dist, stage, tasks, inputs, targets, like, links=None):
    me, last, links = dist.get_rank(), dist.get_world_size() - 1, links or {}
    sent, loss = {}, None

    def received(src):
        tensor = torch.empty_like(like)
        dist.irecv(tensor, src, group=links.get((src, me))).wait()
        return tensor

    def send(tensor, dst, name):
        if name in sent:
            sent.pop(name).wait()
        sent[name] = dist.isend(tensor, dst, group=links.get((me, dst)))

    for kind, i in tasks:
        if kind == "F":
            x = inputs[i] if me == 0 else received(me - 1).requires_grad_()
            y = stage.forward(i, x, targets[i] if me == last else None)
            if me < last:
                send(y, me + 1, i)
            else:
                loss = y
        elif kind in "BI":
            dy = None if me == last else received(me + 1)
            if me < last:
                sent.pop(i).wait()
            dx = stage.backward(i, dy)
            if me > 0:
                send(dx, me - 1, "gradient")
        if kind in "BW":
            stage.weight_gradients(i)
    for work in sent.values():
        work.wait()
    return loss

# %% run_stage: a message takes the link of the other way
# says: bytes on links
def run_stage(dist, stage, tasks, inputs, targets, like, links=None):
    me, last, links = dist.get_rank(), dist.get_world_size() - 1, links or {}
    sent, loss = {}, None

    def received(src):
        tensor = torch.empty_like(like)
        dist.irecv(tensor, src, group=links.get((me, src))).wait()
        return tensor

    def send(tensor, dst, name):
        if name in sent:
            sent.pop(name).wait()
        sent[name] = dist.isend(tensor, dst, group=links.get((dst, me)))

    for kind, i in tasks:
        if kind == "F":
            x = inputs[i] if me == 0 else received(me - 1).requires_grad_()
            y = stage.forward(i, x, targets[i] if me == last else None)
            if me < last:
                send(y, me + 1, i)
            else:
                loss = y if loss is None else loss + y
        elif kind in "BI":
            dy = None if me == last else received(me + 1)
            if me < last:
                sent.pop(i).wait()
            dx = stage.backward(i, dy)
            if me > 0:
                send(dx, me - 1, "gradient")
        if kind in "BW":
            stage.weight_gradients(i)
    for work in sent.values():
        work.wait()
    return loss

# %% one_f_one_b: one forward too few ahead
# says: too few ahead?
def one_f_one_b(stage, stages, microbatches):
    ahead = max(0, min(microbatches, stages - 2 - stage))
    tasks = [("F", i) for i in range(ahead)]
    for i in range(microbatches):
        if i + ahead < microbatches:
            tasks.append(("F", i + ahead))
        tasks.append(("B", i))
    return tasks

# %% one_f_one_b: as many forwards ahead where there are fewer microbatches
# says: once a microbatch
def one_f_one_b(stage, stages, microbatches):
    ahead = stages - 1 - stage
    tasks = [("F", i) for i in range(ahead)]
    for i in range(microbatches):
        if i + ahead < microbatches:
            tasks.append(("F", i + ahead))
        tasks.append(("B", i))
    return tasks

# %% bubble: p idle slots
# says: p − 1 slots are idle
def bubble(stages, batch, gpus=None, replicas=None):
    if replicas is None:
        replicas = gpus // stages
    m = batch // replicas
    return 1 - m / (m + stages)

# %% MatmulApart: the weight's gradient is returned as well
# says: None for the weight
class MatmulApart(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, put_off):
        ctx.save_for_backward(x, weight)
        ctx.put_off = put_off
        return x @ weight.T

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        ctx.put_off.append((weight, x, dy))
        return dy @ weight, dy.flatten(0, -2).T @ x.flatten(0, -2), None

def add_weight_gradient(weight, x, dy):
    gradient = dy.flatten(0, -2).T @ x.flatten(0, -2)
    weight.grad = gradient if weight.grad is None else weight.grad + gradient

# %% zb_h1: each weight gradient a microbatch too late
# says: W sooner
def zb_h1(stage, stages, microbatches):
    ahead = min(microbatches, stages - 1 - stage)
    tasks = [("F", i) for i in range(ahead)]
    for i in range(microbatches):
        if i + ahead < microbatches:
            tasks.append(("F", i + ahead))
        tasks.append(("I", i))
        if i > stage:
            tasks.append(("W", i - stage - 1))
    return tasks + [("W", i) for i in range(max(0, microbatches - stage - 1), microbatches)]

# %% zb_h1: what is put off at the end is never done
# says: once a microbatch
def zb_h1(stage, stages, microbatches):
    ahead = min(microbatches, stages - 1 - stage)
    tasks = [("F", i) for i in range(ahead)]
    for i in range(microbatches):
        if i + ahead < microbatches:
            tasks.append(("F", i + ahead))
        tasks.append(("I", i))
        if i >= stage:
            tasks.append(("W", i - stage))
    return tasks
