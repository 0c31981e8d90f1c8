# %% partition_layers: as many layers on each stage
# says: the same number of layers per stage
def partition_layers(costs, stages):
    n = len(costs)
    return [(n * s // stages, n * (s + 1) // stages) for s in range(stages)]

# %% partition_layers: a stage is full once it has its share
# says: it could cost
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
# says: Divide the loss by the number of microbatches
# edit: self.loss(y, target) / self.microbatches  ->  self.loss(y, target)

# %% Stage: activations of the wrong microbatch (the last in is the first out)
# says: does each find its own activations?
# edit: self.kept = {}  ->  self.kept = []
# edit: self.kept[i] = x, y  ->  self.kept.append((x, y))
# edit: self.kept.pop(i)  ->  self.kept.pop()

# %% Stage: never lets go of a microbatch
# says: must be forgotten after its backward
# edit: self.kept.pop(i)  ->  self.kept[i]

# %% Stage: the output with its graph
# says: detach it
# edit: y.detach()  ->  y

# %% run_stage: both neighbours receive first, and send before the next task
# says: each waits for the next
# - sent, loss = {}, None
# + ready, works, loss = [], [], None
# + def flush():
# +     for tensor, dst in ready:
# +         works.append(dist.isend(tensor, dst, group=links.get((me, dst))))
# +     ready.clear()
# ...
# - def send(tensor, dst, name):
# -     if name in sent:
# -         sent.pop(name).wait()
# -     sent[name] = dist.isend(tensor, dst, group=links.get((me, dst)))
# ...
#   x = inputs[i] if me == 0 else received(me - 1).requires_grad_()
# + flush()
# edit: send(y, me + 1, i)  ->  ready.append((y, me + 1))
# - if me < last:
# -     sent.pop(i).wait()  # its gradient is here, so it has arrived
# + flush()
# edit: send(dx, me - 1, "gradient")  ->  ready.append((dx, me - 1))
# - for work in sent.values():
# + flush()
# + for work in works:

# %% run_stage: a stage waits until its message has arrived
# says: each waits for the next
# edit: sent, loss = {}, None  ->  loss = None
# - dist.irecv(tensor, src, group=links.get((src, me))).wait()
# + dist.recv(tensor, src, group=links.get((src, me)))
# ...
# - def send(tensor, dst, name):
# -     if name in sent:
# -         sent.pop(name).wait()
# -     sent[name] = dist.isend(tensor, dst, group=links.get((me, dst)))
# edit: send(y, me + 1, i)  ->  dist.send(y, me + 1, group=links.get((me, me + 1)))
# - dy = None if me == last else received(me + 1)
# - if me < last:
# -     sent.pop(i).wait()  # its gradient is here, so it has arrived
# - dx = stage.backward(i, dy)
# + dx = stage.backward(i, None if me == last else received(me + 1))
# edit: send(dx, me - 1, "gradient")  ->  dist.send(dx, me - 1, group=links.get((me, me - 1)))
# - for work in sent.values():
# -     work.wait()

# %% run_stage: what was sent is kept until the end
# says: must not stay to the end
# edit: sent, loss = {}, None  ->  works, loss = [], None
# - def send(tensor, dst, name):
# -     if name in sent:
# -         sent.pop(name).wait()
# -     sent[name] = dist.isend(tensor, dst, group=links.get((me, dst)))
# ...
# - send(y, me + 1, i)
# + works.append((y, dist.isend(y, me + 1, group=links.get((me, me + 1)))))
# ...
# - dy = None if me == last else received(me + 1)
# - if me < last:
# -     sent.pop(i).wait()  # its gradient is here, so it has arrived
# - dx = stage.backward(i, dy)
# + dx = stage.backward(i, None if me == last else received(me + 1))
# ...
# - send(dx, me - 1, "gradient")
# + works.append((dx, dist.isend(dx, me - 1, group=links.get((me, me - 1)))))
# edit: for work in sent.values():  ->  for _, work in works:

# %% run_stage: one buffer receives all activations
# says: has each message a tensor of its own?
# edit: sent, loss = {}, None  ->  sent, loss, buffer = {}, None, torch.empty_like(like)
# - tensor = torch.empty_like(like)
# - dist.irecv(tensor, src, group=links.get((src, me))).wait()
# - return tensor
# + tensor = buffer if src < me else torch.empty_like(like)
# + dist.irecv(tensor.detach(), src, group=links.get((src, me))).wait()
# + return tensor.detach()

# %% run_stage: nobody waits for the sends
# says: never waited for
# edit: sent, loss = {}, None  ->  loss = None
# - def send(tensor, dst, name):
# -     if name in sent:
# -         sent.pop(name).wait()
# -     sent[name] = dist.isend(tensor, dst, group=links.get((me, dst)))
# edit: send(y, me + 1, i)  ->  dist.isend(y, me + 1, group=links.get((me, me + 1)))
# - dy = None if me == last else received(me + 1)
# - if me < last:
# -     sent.pop(i).wait()  # its gradient is here, so it has arrived
# - dx = stage.backward(i, dy)
# + dx = stage.backward(i, None if me == last else received(me + 1))
# edit: send(dx, me - 1, "gradient")  ->  dist.isend(dx, me - 1, group=links.get((me, me - 1)))
# - for work in sent.values():
# -     work.wait()

# %% run_stage: what is received needs no gradient
# says: a NoneType where a tensor belongs
# edit: received(me - 1).requires_grad_()  ->  received(me - 1)

# %% one_f_one_b: all forwards first
# says: that is GPipe
def one_f_one_b(stage, stages, microbatches):
    return [(kind, i) for kind in "FB" for i in range(microbatches)]

# %% one_f_one_b: one forward too many ahead
# says: run p − stage − 1 forwards ahead
# edit: stages - 1 - stage  ->  stages - stage

# %% one_f_one_b: a forward and a backward in turn, from the start
# says: No stage runs ahead of another
def one_f_one_b(stage, stages, microbatches):
    return [(kind, i) for i in range(microbatches) for kind in "FB"]

# %% one_f_one_b: the last backwards are forgotten
# says: once per microbatch
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
# - gradient = dy.flatten(0, -2).T @ x.flatten(0, -2)
# - weight.grad = gradient if weight.grad is None else weight.grad + gradient
# + weight.grad = dy.flatten(0, -2).T @ x.flatten(0, -2)

# %% MatmulApart: the product is made at once, only its addition is put off
# says: computes the weight's product already
# - ctx.put_off.append((weight, x, dy))
# + ctx.put_off.append((weight, dy.flatten(0, -2).T @ x.flatten(0, -2), None))
# ...
# - def add_weight_gradient(weight, x, dy):
# -     gradient = dy.flatten(0, -2).T @ x.flatten(0, -2)
# + def add_weight_gradient(weight, gradient, _):

# %% MatmulApart: the weight's gradient transposed
# says: same size
# edit: dy.flatten(0, -2).T @ x.flatten(0, -2)  ->  x.flatten(0, -2).T @ dy.flatten(0, -2)

# %% zb_h1: no weight gradient is put off
# says: each W comes right after its B
# -     tasks.append(("B", i))
# -     if i >= stage:
# -         tasks.append(("W", i - stage))
# - return tasks + [("W", i) for i in range(max(0, microbatches - stage), microbatches)]
# +     tasks += [("B", i), ("W", i)]
# + return tasks

# %% zb_h1: all weight gradients at the end
# says: W sooner
# -     if i >= stage:
# -         tasks.append(("W", i - stage))
# - return tasks + [("W", i) for i in range(max(0, microbatches - stage), microbatches)]
# + return tasks + [("W", i) for i in range(microbatches)]

# %% zb_h1: the first stage puts off most
# says: W sooner
def zb_h1(stage, stages, microbatches):
    ahead = later = min(microbatches, stages - 1 - stage)
    tasks = [("F", i) for i in range(ahead)]
    for i in range(microbatches):
        if i + ahead < microbatches:
            tasks.append(("F", i + ahead))
        tasks.append(("B", i))
        if i >= later:
            tasks.append(("W", i - later))
    return tasks + [("W", i) for i in range(microbatches - later, microbatches)]

# %% run_stage: all messages in one process group, where NCCL would carry one after another
# says: the bytes on the links
# edit: dist.irecv(tensor, src, group=links.get((src, me)))  ->  dist.irecv(tensor, src)
# edit: dist.isend(tensor, dst, group=links.get((me, dst)))  ->  dist.isend(tensor, dst)

# %% partition_layers: the last layer of each stage, not the one after it
# says: runs of neighbours
def partition_layers(costs, stages):
    inners = itertools.combinations(range(1, len(costs)), stages - 1)
    cuts = [[0, *inner, len(costs)] for inner in inners]
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
# says: Divide the loss by the number of microbatches
# -     y = self.loss(y, target) / self.microbatches
# - self.kept[i] = x, y
# +     y = self.loss(y, target)
# +     self.kept[i] = x, y / self.microbatches
# + else:
# +     self.kept[i] = x, y

# %% Stage: only the latest microbatch is kept
# says: a second time
# edit: self.kept[i]  ->  self.kept[0]
# edit: self.kept.pop(i)  ->  self.kept[0]

# %% run_stage: other tasks are left out
# says: for each task that is neither F nor B
# - else:
# -     stage.local(kind, i)

# %% run_stage: every task is local, too
# says: F and B are not local
# - else:
# -     stage.local(kind, i)
# + stage.local(kind, i)

# %% run_stage: the last microbatch's loss for the batch's
# says: the sum of the shares
# edit: y if loss is None else loss + y  ->  y

# %% run_stage: a message takes the link of the other way
# says: the bytes on the links
# edit: (src, me)  ->  (me, src)
# edit: (me, dst)  ->  (dst, me)

# %% one_f_one_b: one forward too few ahead
# says: too few forwards ahead
# edit: min(microbatches, stages - 1 - stage)  ->  max(0, min(microbatches, stages - 2 - stage))

# %% one_f_one_b: as many forwards ahead where there are fewer microbatches
# says: has also
# edit: min(microbatches, stages - 1 - stage)  ->  stages - 1 - stage

# %% bubble: p idle slots
# says: count the slots of the last stage
def bubble(stages, batch, gpus=None, replicas=None):
    if replicas is None:
        replicas = gpus // stages
    m = batch // replicas
    return 1 - m / (m + stages)

# %% MatmulApart: the weight's gradient is returned as well
# says: None for the weight
# edit: dy @ weight, None, None  ->  dy @ weight, dy.flatten(0, -2).T @ x.flatten(0, -2), None

# %% zb_h1: each weight gradient a microbatch too late
# says: W sooner
# -     if i >= stage:
# -         tasks.append(("W", i - stage))
# - return tasks + [("W", i) for i in range(max(0, microbatches - stage), microbatches)]
# +     if i > stage:
# +         tasks.append(("W", i - stage - 1))
# + return tasks + [("W", i) for i in range(max(0, microbatches - stage - 1), microbatches)]

# %% zb_h1: what is put off at the end is never done
# says: once per microbatch
# edit: tasks + [("W", i) for i in range(max(0, microbatches - stage), microbatches)]  ->  tasks

# %% one_f_one_b: the last backwards in reversed order
# says: not in the order of the microbatches
def one_f_one_b(stage, stages, microbatches):
    ahead = min(microbatches, stages - 1 - stage)
    tasks = [("F", i) for i in range(ahead)]
    for i in range(microbatches - ahead):
        tasks += [("F", i + ahead), ("B", i)]
    return tasks + [("B", i) for i in reversed(range(microbatches - ahead, microbatches))]

# %% MatmulApart: put off at the front of the list
# says: Append to put_off
# edit: ctx.put_off.append((weight, x, dy))  ->  ctx.put_off.insert(0, (weight, x, dy))

# %% zb_h1: as late as memory allows
# says: lets another stage wait
def zb_h1(stage, stages, microbatches):
    tasks, held, later = [], 0, []
    for kind, i in one_f_one_b(stage, stages, microbatches):
        if kind == "F" and held == stages:
            tasks.append(later.pop(0))
            held -= 1
        held += kind == "F"
        tasks.append((kind, i))
        if kind == "B":
            later.append(("W", i))
    return tasks + later

# %% zb_h1: lists in place of tuples
# says: want a list of tuples
# edit: tasks.append(("B", i))  ->  tasks.append(["B", i])

# %% test_schedule: looks at memory only
# says: par is 11
def test_schedule(candidate):
    for stage in range(4):
        assert held(candidate(stage, 4, 8)) <= 4 - stage

# %% test_schedule: one case only
# says: par is 11
def test_schedule(candidate):
    for stage, own in enumerate(on_stages(candidate, 4, 8)):
        assert sorted(own) == [(kind, i) for kind in "BF" for i in range(8)]
        assert held(own) <= 4 - stage
    assert played(on_stages(candidate, 4, 8)).time_s < 33.001e-3

# %% test_schedule: forgets that there may be fewer microbatches than stages
# says: refuses a program that is right
def test_schedule(candidate):
    for p, m in [(1, 3), (2, 1), (4, 2), (3, 4)]:
        for stage, own in enumerate(on_stages(candidate, p, m)):
            assert held(own) == p - stage

# %% test_schedule: returns what it finds
# says: raises AssertionError if the candidate is wrong
def test_schedule(candidate):
    return all(held(own) <= 4 - stage for stage, own in enumerate(on_stages(candidate, 4, 8)))

# %% test_schedule: accepts everything
# says: refuses 0 of 13
def test_schedule(candidate):
    on_stages(candidate, 0, 0)

# %% test_schedule: compares with one right order only
# says: refuses a program that is right
def test_schedule(candidate):
    assert candidate(1, 3, 4) == [("F", 0), ("F", 1), ("F", 2), ("B", 0), ("B", 1), ("F", 3), ("B", 2), ("B", 3)]

# %% interleaved: chunks in order, backward too
# says: no stage can go on
# edit: chunk if kind == "F" else chunks - 1 - chunk  ->  chunk

# %% interleaved: all microbatches through a chunk before the next
# says: no stage can go on
# edit: p * chunks  ->  microbatches * chunks
# edit: divmod(place, p)  ->  divmod(place, microbatches)
# edit: turn * p + i  ->  turn * microbatches + i

# %% interleaved: as many forwards ahead as without chunks
# says: no stage can go on
# edit: 2 * (p - rank - 1) + (chunks - 1) * p  ->  p - rank - 1

# %% interleaved: one forward too many ahead
# says: chunks, want at most
# edit: 2 * (p - rank - 1) + (chunks - 1) * p  ->  2 * (p - rank - 1) + (chunks - 1) * p + 1

# %% partition_layers: the least difference between the dearest and the cheapest stage
# says: it could cost
def partition_layers(costs, stages):
    def spread(inner):
        totals = [sum(costs[a:b]) for a, b in itertools.pairwise((0, *inner, len(costs)))]
        return max(totals) - min(totals)
    inner = min(itertools.combinations(range(1, len(costs)), stages - 1), key=spread)
    return list(itertools.pairwise((0, *inner, len(costs))))

# %% partition_layers: the least sum of squares
# says: it could cost
def partition_layers(costs, stages):
    def squares(inner):
        return sum(sum(costs[a:b]) ** 2 for a, b in itertools.pairwise((0, *inner, len(costs))))
    inner = min(itertools.combinations(range(1, len(costs)), stages - 1), key=squares)
    return list(itertools.pairwise((0, *inner, len(costs))))

# %% Stage: the gradients of the microbatch before are dropped
# says: gradients
# edit: y.backward(dy)  ->  self.layers.zero_grad(); y.backward(dy)

# %% Stage: the loss is divided by the size of a microbatch
# says: the sum of the shares
# edit: self.loss(y, target) / self.microbatches  ->  self.loss(y, target) / len(y)

# %% run_stage: takes its tasks off the caller's list
# says: changed the list of tasks
# - for kind, i in tasks:
# + while tasks:
# +     kind, i = tasks.pop(0)

# %% run_stage: receives into the model of all messages
# says: was changed before its wait
# edit: tensor = torch.empty_like(like)  ->  tensor = like

# %% run_stage: what was sent is overwritten at once
# says: was changed before its wait
# edit: send(y, me + 1, i)  ->  send(y, me + 1, i); y.zero_()

# %% run_stage: a loss on every rank
# says: the sum of the shares
# edit: return loss  ->  return torch.zeros(()) if loss is None else loss

# %% MatmulApart: one batch axis at most
# says: same size
# edit: dy.flatten(0, -2).T @ x.flatten(0, -2)  ->  (dy.mT @ x).sum(0) if x.ndim > 2 else dy.T @ x

# %% MatmulApart: the incoming gradient is reused as scratch space
# says: leave dy and x as they are
# edit: return dy @ weight, None, None  ->  slope = dy @ weight; dy.zero_(); return slope, None, None

# %% partition_layers: divides by the least cost
# says: by zero
def partition_layers(costs, stages):
    share = [cost / min(costs) for cost in costs]
    inner = min(itertools.combinations(range(1, len(costs)), stages - 1),
                key=lambda inner: max(sum(share[a:b]) for a, b in itertools.pairwise((0, *inner, len(costs)))))
    return list(itertools.pairwise((0, *inner, len(costs))))

# %% partition_layers: empties the list of costs
# says: changed the list of costs
def partition_layers(costs, stages):
    every = list(costs)
    costs.clear()
    inner = min(itertools.combinations(range(1, len(every)), stages - 1),
                key=lambda inner: max(sum(every[a:b]) for a, b in itertools.pairwise((0, *inner, len(every)))))
    return list(itertools.pairwise((0, *inner, len(every))))

# %% Stage: the share of the loss with its graph
# says: the share of the loss still has its graph
# edit: return y.detach()  ->  return y.detach() if self.loss is None else y

# %% Stage: overwrites dy
# says: backward changed dy
# edit: y.backward(dy)  ->  y.backward(dy); dy is not None and dy.zero_()

# %% Stage: divides twice
# says: divide only once
# edit: y.backward(dy)  ->  y.backward(torch.tensor(1 / self.microbatches) if dy is None else dy)

# %% run_stage: takes links for granted
# says: every message has group=None
# edit (2 places): links.get((  ->  links[(
# edit (1 places): (src, me))).wait()  ->  (src, me)]).wait()
# edit (1 places): (me, dst)))  ->  (me, dst)])

# %% run_stage: messages in the default dtype
# says: elements of float32
# edit: torch.empty_like(like)  ->  torch.empty(like.shape)

# %% run_stage: other tasks first
# says: what is called
# edit: for kind, i in tasks:  ->  for kind, i in sorted(tasks, key=lambda t: t[0] not in "X"):

# %% run_stage: microbatch by microbatch
# says: microbatch by microbatch
# edit: for kind, i in tasks:  ->  for kind, i in sorted(tasks, key=lambda t: (t[1], "FBXW".index(t[0]))):

# %% run_stage: an only stage has no loss
# says: one stage: the sum of the shares
# edit: loss = y if loss is None else loss + y  ->  loss = (y if loss is None else loss + y) if me else None

# %% run_stage: the mean of the shares
# says: add them up
# edit: return loss  ->  return loss / len(inputs or targets) if loss is not None else None

# %% run_stage: the first inputs for all microbatches
# says: takes inputs[i]
# edit: inputs[i]  ->  inputs[0]

# %% run_stage: the first targets for all microbatches
# says: has targets[i]
# edit: targets[i] if me == last else None  ->  targets[0] if me == last else None

# %% one_f_one_b: a backward before its forward
# says: before its F
def one_f_one_b(stage, stages, microbatches):
    ahead = min(microbatches, stages - 1 - stage)
    tasks = [("F", i) for i in range(ahead)]
    for i in range(microbatches):
        tasks.append(("B", i))
        if i + ahead < microbatches:
            tasks.append(("F", i + ahead))
    return tasks

# %% bubble: in percent
# says: a share from 0 to 1
def bubble(stages, batch, gpus=None, replicas=None):
    replicas = gpus / stages if replicas is None else replicas
    return 100 * (stages - 1) / (batch / replicas + stages - 1)

# %% bubble: the share of work
# says: the share of its time that a stage works
def bubble(stages, batch, gpus=None, replicas=None):
    replicas = gpus / stages if replicas is None else replicas
    return (batch / replicas) / (batch / replicas + stages - 1)

# %% bubble: a float32 of NumPy
# says: bubble(
def bubble(stages, batch, gpus=None, replicas=None):
    replicas = gpus / stages if replicas is None else replicas
    return np.float32((stages - 1) / (batch / replicas + stages - 1))

# %% MatmulApart: the mean over rows
# says: the loss has its mean already
# edit: dy.flatten(0, -2).T @ x.flatten(0, -2)  ->  dy.flatten(0, -2).T @ x.flatten(0, -2) / dy.flatten(0, -2).shape[0]

# %% MatmulApart: nothing put off where x needs no gradient
# says: pop from empty list
#   x, weight = ctx.saved_tensors
# + if not ctx.needs_input_grad[0]:
# +     weight.grad = dy.flatten(0, -2).T @ x.flatten(0, -2)
# +     return None, None, None

# %% zb_h1: W before its B
# says: before its B
def zb_h1(stage, stages, microbatches):
    tasks = []
    for kind, i in one_f_one_b(stage, stages, microbatches):
        tasks += [("W", i), (kind, i)] if kind == "B" else [(kind, i)]
    return tasks

# %% run_stage: links are never None
# says: `links` itself is None then
# edit: dist.get_world_size() - 1, links or {}  ->  dist.get_world_size() - 1, links

# %% Stage: the gradient of the sum of y
# says: y.backward(dy)
# edit: y.backward(dy)  ->  y.sum().backward()

# %% Stage: keeps a detached x
# says: keep x as it came
# edit: self.kept[i] = x, y  ->  self.kept[i] = x.detach(), y

# %% Stage: in float32
# says: Digits are lost
# edit: y.backward(dy)  ->  y.backward(dy); [setattr(w, "grad", w.grad.float().double()) for w in self.layers.parameters()]

# %% run_stage: forwards from the wrong side
# says: is not one of
# edit: received(me - 1)  ->  received(me + 1)

# %% run_stage: rank 0 sends a gradient, too
# says: is not one of
# edit: if me > 0:  ->  if me >= 0:

# %% run_stage: a list of shares
# says: a list, not a tensor
# edit: loss = y if loss is None else loss + y  ->  loss = [y] if loss is None else [*loss, y]

# %% partition_layers: filled up to the average of what is left
# says: it could cost
def partition_layers(costs, stages):
    cuts, first = [], 0
    for s in range(stages):
        left, end = sum(costs[first:]), first + 1
        while end < len(costs) - (stages - 1 - s) and sum(costs[first:end]) < left / (stages - s):
            end += 1
        cuts.append((first, end if s < stages - 1 else len(costs)))
        first = end
    return cuts

# %% one_f_one_b: counted from one
# says: lacks [('F', 0), ('B', 0)]
def one_f_one_b(stage, stages, microbatches):
    ahead = min(microbatches, stages - 1 - stage)
    tasks = [("F", i + 1) for i in range(ahead)]
    for i in range(1, microbatches + 1):
        tasks += [("F", i + ahead)] * (i + ahead <= microbatches) + [("B", i)]
    return tasks

# %% one_f_one_b: the last stage runs ahead
# says: run p − stage − 1 forwards ahead
# edit: stages - 1 - stage  ->  stage

# %% bubble: each replica runs the batch of all others, too
# says: The batch is divided among the replicas
# edit: batch / replicas  ->  batch * replicas

# %% MatmulApart: keeps the latest microbatch only
# says: appends one tuple to put_off
# edit: ctx.put_off.append((weight, x, dy))  ->  ctx.put_off[:] = [(weight, x, dy)]

# %% MatmulApart: in float32
# says: Digits are lost
# edit: dy.flatten(0, -2).T @ x.flatten(0, -2)  ->  (dy.flatten(0, -2).T.float() @ x.flatten(0, -2).float()).double()

# %% MatmulApart: axes for a batch are not added up
# says: size '[2, 7, 5]'
# edit: dy.flatten(0, -2).T @ x.flatten(0, -2)  ->  dy.mT @ x

# %% partition_layers: fewer stages, where they cost no more
# says: there are 2 stages
def partition_layers(costs, stages):
    def greedy(limit):
        cuts, first, total = [], 0, 0
        for i, cost in enumerate(costs):
            if total + cost > limit:
                cuts.append((first, i))
                first, total = i, 0
            total += cost
        return [*cuts, (first, len(costs))]
    limit = max(costs)
    while len(greedy(limit)) > stages:
        limit += 1
    return greedy(limit)

# %% partition_layers: a cache that forgets the number of stages
# says: there are 7 stages
def partition_layers(costs, stages):
    known = {}
    def best(end, stages):
        if stages == 1:
            return sum(costs[:end]), [(0, end)]
        if end not in known:
            options = []
            for first in range(stages - 1, end):
                worst, cuts = best(first, stages - 1)
                options.append((max(worst, sum(costs[first:end])), [*cuts, (first, end)]))
            known[end] = min(options)
        return known[end]
    return best(len(costs), stages)[1]

# %% partition_layers: the layers of each stage
# says: is no pair of ints
def partition_layers(costs, stages):
    inner = min(itertools.combinations(range(1, len(costs)), stages - 1),
                key=lambda inner: max(sum(costs[a:b]) for a, b in itertools.pairwise((0, *inner, len(costs)))))
    return [list(range(a, b)) for a, b in itertools.pairwise((0, *inner, len(costs)))]

# %% Stage: detaches too early
# says: detach only what forward returns
# edit: self.kept[i] = x, y  ->  y = y.detach(); self.kept[i] = x, y

# %% Stage: a loss on every stage
# says: they have no loss
# edit: if self.loss is not None:  ->  if True:

# %% Stage: backward without dy
# says: call y.backward(dy)
# edit: y.backward(dy)  ->  y.backward()

# %% Stage: clones the gradient that the first stage lacks
# says: only where x needs no gradient
# edit: return x.grad  ->  return x.grad.clone()

# %% Stage: forgets the others at each forward
# says: keep each until its backward
# edit: y = self.layers(x)  ->  self.kept.clear(); y = self.layers(x)

# %% Stage: times the number of microbatches
# says: Divide by the number of microbatches, once
# edit: / self.microbatches  ->  * self.microbatches

# %% Stage: the loss as a number
# says: forward returns a tensor
# edit: return y.detach()  ->  return y.detach() if self.loss is None else y.item()

# %% run_stage: no gradient is received
# says: Each rank but the last receives dy
# edit: dy = None if me == last else received(me + 1)  ->  dy = None

# %% run_stage: inputs on every rank
# says: Only the first rank has inputs
# edit: inputs[i] if me == 0 else received(me - 1).requires_grad_()  ->  inputs[i]

# %% run_stage: targets for no rank
# says: gives targets[i] to stage.forward
# edit: targets[i] if me == last else None  ->  None

# %% run_stage: hands on dy
# says: Send what stage.backward returned
# edit: dx = stage.backward(i, dy)  ->  stage.backward(i, dy); dx = torch.zeros_like(like) if dy is None else dy

# %% run_stage: kind and number exchanged
# says: run_stage gives the stage (0, 'X')
# edit: stage.local(kind, i)  ->  stage.local(i, kind)

# %% bubble: the idle time
# says: want its share of all time
def bubble(stages, batch, gpus=None, replicas=None):
    return 3 * (stages - 1)

# %% bubble: counts what a stage waits in forward, in ms
# says: for p − 1 backwards
def bubble(stages, batch, gpus=None, replicas=None):
    m = batch / (replicas or gpus / stages)
    return (stages - 1) / (3 * m + stages - 1)

# %% bubble: both halves over one
# says: A slot is a forward and a backward
def bubble(stages, batch, gpus=None, replicas=None):
    m = batch / (replicas or gpus / stages)
    return 2 * (stages - 1) / (m + stages - 1)

# %% bubble: all tasks, and the wait of one half
# says: both halves have a bubble
def bubble(stages, batch, gpus=None, replicas=None):
    m = batch / (replicas or gpus / stages)
    return (stages - 1) / (2 * m + stages - 1)

# %% MatmulApart: a step of the optimizer, without a rate
# says: leaves the sum in weight.grad
# edit: weight.grad = gradient if weight.grad is None else weight.grad + gradient  ->  weight.data += gradient

# %% MatmulApart: adds to None
# says: weight.grad is None at first
# edit: gradient if weight.grad is None else weight.grad + gradient  ->  weight.grad + gradient

# %% MatmulApart: the tuple in another order
# says: in this order
# edit: ctx.put_off.append((weight, x, dy))  ->  ctx.put_off.append((x, weight, dy))

# %% MatmulApart: three entries in place of a tuple
# says: appends one tuple (weight, x, dy)
# edit: ctx.put_off.append((weight, x, dy))  ->  ctx.put_off.extend((weight, x, dy))

# %% MatmulApart: returns a value less
# says: incorrect number of gradients
# edit: return dy @ weight, None, None  ->  return dy @ weight, None

# %% zb_h1: as soon as possible, B first and W last
# says: lets another stage wait
def zb_h1(stage, stages, microbatches):
    p, m = stages, microbatches
    done, lists = [dict(F=0, B=0, W=0) for _ in range(p)], [[] for _ in range(p)]
    while any(d["W"] < m for d in done):
        now = [dict(d) for d in done]
        for s in range(p):
            f, b, w = now[s].values()
            can_b = b < f and (s == p - 1 or now[s + 1]["B"] > b)
            can_f = f < m and f - b < p - s and f - w < p and (s == 0 or now[s - 1]["F"] > f)
            if kind := "B" if can_b else "F" if can_f else "W" if w < b else None:
                lists[s].append((kind, now[s][kind]))
                done[s][kind] += 1
    return lists[stage]
