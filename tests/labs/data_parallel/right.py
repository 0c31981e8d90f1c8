# %% shard_batch: rows dealt out to count them, cut with narrow
def shard_batch(batch, rank, world_size):
    sizes = [len(range(r, len(batch), world_size)) for r in range(world_size)]
    return torch.narrow(batch, 0, sum(sizes[:rank]), sizes[rank])

# %% shard_batch: NumPy's cumulative sum of the sizes
def shard_batch(batch, rank, world_size):
    sizes = np.full(world_size, len(batch) // world_size)
    sizes[:len(batch) % world_size] += 1
    ends = np.concatenate([[0], np.cumsum(sizes)])
    return batch[int(ends[rank]):int(ends[rank + 1])]

# %% broadcast_parameters: one flat buffer per dtype
def broadcast_parameters(dist, tensors):
    for dtype in sorted({tensor.dtype for tensor in tensors}, key=str):
        same = [tensor.detach() for tensor in tensors if tensor.dtype == dtype]
        flat = torch.cat([tensor.reshape(-1) for tensor in same])
        dist.broadcast(flat, src=0)
        for tensor, part in zip(same, flat.split([tensor.numel() for tensor in same])):
            tensor.copy_(part.view_as(tensor))

# %% broadcast_parameters: messages from rank 0
def broadcast_parameters(dist, tensors):
    with torch.no_grad():
        for tensor in tensors:
            if dist.get_rank():
                dist.recv(tensor, 0)
            else:
                for peer in range(1, dist.get_world_size()):
                    dist.send(tensor.detach(), peer)

# %% average_gradients: the rows gathered, not summed
def average_gradients(dist, parameters, rows):
    counts = [torch.zeros(1) for _ in range(dist.get_world_size())]
    dist.all_gather(counts, torch.tensor([float(rows)]))
    total = float(sum(counts))
    with torch.no_grad():
        for p in parameters:
            p.grad.mul_(rows).div_(total)
            dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)

# %% average_gradients: a whole number of rows, and messages that run side by side
def average_gradients(dist, parameters, rows):
    count = torch.tensor(rows, dtype=torch.int64)
    works = [dist.all_reduce(count, async_op=True)]
    for p in parameters:
        p.grad.mul_(float(rows))
        works.append(dist.all_reduce(p.grad, async_op=True))
    for work in works:
        work.wait()
    for p in parameters:
        p.grad.div_(count.item())

# %% average_gradients: the mean over ranks of p times the share
def average_gradients(dist, parameters, rows):
    rows_of_all = torch.tensor([rows], dtype=torch.float32)
    dist.all_reduce(rows_of_all)
    share = dist.get_world_size() * rows / rows_of_all.item()
    for p in parameters:
        p.grad *= share
        dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)

# %% sum_in_buckets: packed recursively, and parameters_to_vector
def buckets_of(parameters, bucket_bytes):
    def pack(rest):
        if not rest:
            return []
        bucket = [rest.pop()]
        while rest and sum(p.nbytes for p in bucket) + rest[-1].nbytes <= bucket_bytes:
            bucket.append(rest.pop())
        return [bucket, *pack(rest)]
    return pack(list(parameters))

def sum_in_buckets(dist, buckets):
    for bucket in buckets:
        flat = nn.utils.parameters_to_vector([p.grad for p in bucket])
        dist.all_reduce(flat)
        nn.utils.vector_to_parameters(flat, [p.grad for p in bucket])

# %% sum_in_buckets: tuples, one buffer written piece by piece, messages side by side
def buckets_of(parameters, bucket_bytes):
    result, left = [], -1
    for i in range(len(parameters) - 1, -1, -1):
        size = parameters[i].numel() * parameters[i].element_size()
        if result and left >= size:
            result[-1] += (parameters[i],)
            left -= size
        else:
            result.append((parameters[i],))
            left = bucket_bytes - size
    return tuple(result)

def sum_in_buckets(dist, buckets):
    begun = []
    for bucket in buckets:
        flat = torch.empty(sum(p.grad.numel() for p in bucket), dtype=bucket[0].dtype)
        ends = np.cumsum([p.grad.numel() for p in bucket]).tolist()
        for p, end in zip(bucket, ends):
            flat[end - p.grad.numel():end] = p.grad.reshape(-1)
        begun.append((bucket, ends, flat, dist.all_reduce(flat, async_op=True)))
    for bucket, ends, flat, work in begun:
        work.wait()
        for p, end in zip(bucket, ends):
            p.grad.data = flat[end - p.numel():end].reshape(p.shape)

# %% backward_overlapped: a class with a state per bucket
class Sender:
    def __init__(self, dist, bucket, started):
        self.dist, self.bucket, self.started = dist, bucket, started
        self.waiting = {id(p) for p in bucket}
        self.hooks = [p.register_post_accumulate_grad_hook(self) for p in bucket]

    def __call__(self, p):
        self.waiting.discard(id(p))
        if not self.waiting:
            self.flat = nn.utils.parameters_to_vector([q.grad for q in self.bucket])
            self.work = self.dist.all_reduce(self.flat, async_op=True)
            self.started.append(self)

    def finish(self, update):
        self.work.wait()
        nn.utils.vector_to_parameters(self.flat, [q.grad for q in self.bucket])
        update(self.bucket)


def backward_overlapped(dist, loss, buckets, update):
    started = []
    senders = [Sender(dist, bucket, started) for bucket in buckets]
    loss.backward()
    for sender in senders:
        for hook in sender.hooks:
            hook.remove()
    for sender in started:
        sender.finish(update)

# %% backward_overlapped: functools.partial, and a queue
def backward_overlapped(dist, loss, buckets, update):
    from collections import deque
    queue, counts, handles = deque(), dict.fromkeys(range(len(buckets)), 0), []

    def arrived(i, p):
        counts[i] += 1
        if counts[i] == len(buckets[i]):
            flat = torch.cat([q.grad.view(-1) for q in buckets[i]])
            queue.append((i, flat, dist.all_reduce(flat, op=dist.ReduceOp.SUM, async_op=True)))

    for i, bucket in enumerate(buckets):
        for p in bucket:
            handles.append(p.register_post_accumulate_grad_hook(functools.partial(arrived, i)))
    try:
        loss.backward()
    finally:
        [handle.remove() for handle in handles]
    while queue:
        i, flat, work = queue.popleft()
        work.wait()
        for p in buckets[i]:
            p.grad.copy_(flat[:p.numel()].view(p.shape))
            flat = flat[p.numel():]
        update(buckets[i])

# %% accumulated_step: the last one popped, the rest in a loop
def accumulated_step(dist, share_of, microbatches, buckets, update):
    rest = list(microbatches)
    last = rest.pop()
    while rest:
        loss = share_of(rest.pop(0))
        loss.backward()
        del loss
    backward_overlapped(dist, share_of(last), buckets, update)

# %% accumulated_step: gradients by autograd.grad, added by hand
def accumulated_step(dist, share_of, microbatches, buckets, update):
    parameters = [p for bucket in buckets for p in bucket]
    for microbatch in microbatches[:-1]:
        for p, grad in zip(parameters, torch.autograd.grad(share_of(microbatch), parameters)):
            p.grad = grad if p.grad is None else p.grad + grad
    backward_overlapped(dist, share_of(microbatches[-1]), buckets, update)

# %% step_time_s: recursion over the buckets
def step_time_s(ready_s, bucket_bytes, world_size, alpha_s, beta_s_per_byte):
    if not ready_s:
        return 0.0
    before = step_time_s(ready_s[:-1], bucket_bytes[:-1], world_size, alpha_s, beta_s_per_byte)
    rounds = 2 * (world_size - 1)
    return max(before, ready_s[-1]) + rounds * alpha_s + rounds * bucket_bytes[-1] / world_size * beta_s_per_byte

# %% step_time_s: NumPy, from the last bucket back
def step_time_s(ready_s, bucket_bytes, world_size, alpha_s, beta_s_per_byte):
    rounds = 2 * (world_size - 1)
    each_s = rounds * alpha_s + rounds / world_size * beta_s_per_byte * np.array(bucket_bytes)
    remaining_s = np.cumsum(each_s[::-1])[::-1]
    return float(np.max(np.array(ready_s) + remaining_s))

# %% batch_norm: means and squared deviations merged by their counts, as in SyncBatchNorm
class SumOverRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, dist):
        ctx.dist = dist
        everyone = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(everyone, x.contiguous())
        return sum(everyone)

    @staticmethod
    def backward(ctx, adjoint):
        everyone = [torch.empty_like(adjoint) for _ in range(ctx.dist.get_world_size())]
        ctx.dist.all_gather(everyone, adjoint.contiguous())
        return sum(everyone), None

def batch_norm(dist, x, eps=1e-5):
    n, own = len(x), x.mean(0)
    total = SumOverRanks.apply(torch.cat([n * own, own.new_tensor([n])]), dist)
    mean = total[:-1] / total[-1]
    squares = x.var(0, correction=0) * n + n * (own - mean) ** 2
    variance = SumOverRanks.apply(squares, dist) / total[-1]
    return (x - mean) / (variance + eps) ** 0.5

# %% batch_norm: the rows as a column of ones, the squares by einsum
class SumOverRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, dist):
        ctx.group = dist
        y = x.new_empty(x.shape).copy_(x)
        dist.all_reduce(y, op=dist.ReduceOp.SUM)
        return y

    @staticmethod
    def backward(ctx, adjoint):
        return SumOverRanks.apply(adjoint, ctx.group), None

def batch_norm(dist, x, eps=1e-5):
    packed = torch.cat([x, torch.ones_like(x[:, :1])], dim=1).sum(dim=0, keepdim=True)
    packed = SumOverRanks.apply(packed, dist)
    mean = packed[:, :-1] / packed[:, -1:]
    d = x - mean
    var = SumOverRanks.apply(torch.einsum("nf,nf->f", d, d), dist) / packed[0, -1]
    return d / torch.sqrt(var + eps)

# %% clip_gradients: torch's own norm of all numbers in one vector, scaled by foreach
def clip_gradients(dist, parameters, rows, most):
    average_gradients(dist, parameters, rows)
    grads = [p.grad for p in parameters]
    norm = torch.linalg.vector_norm(torch.cat([g.flatten() for g in grads])).item()
    torch._foreach_mul_(grads, most / max(norm, most))
    return norm

# %% clip_gradients: without average_gradients, in one message
def clip_gradients(dist, parameters, rows, most):
    flat = torch.cat([*(rows * p.grad.flatten() for p in parameters), torch.tensor([float(rows)])])
    dist.all_reduce(flat)
    mean = flat[:-1] / flat[-1]
    norm = float(mean.dot(mean)) ** 0.5
    if norm > most:
        mean = mean * (most / norm)
    for p, part in zip(parameters, mean.split([p.numel() for p in parameters])):
        p.grad = part.view_as(p)
    return norm

# %% clip_gradients: math.fsum over every number
def clip_gradients(dist, parameters, rows, most):
    import math
    average_gradients(dist, parameters, rows)
    norm = math.sqrt(math.fsum(v * v for p in parameters for v in p.grad.flatten().tolist()))
    scale = 1.0 if norm <= most else most / norm
    for p in parameters:
        p.grad = p.grad * scale
    return norm

# %% clip_gradients: with the 10⁻⁶ that PyTorch adds to the norm
def clip_gradients(dist, parameters, rows, most):
    average_gradients(dist, parameters, rows)
    norm = sum(p.grad.norm() ** 2 for p in parameters) ** 0.5
    factor = torch.clamp(most / (norm + 1e-6), max=1.0)
    for p in parameters:
        p.grad.mul_(factor)
    return norm.item()

# %% shard_batch: recursive
def shard_batch(batch, rank, world_size):
    first = -(-len(batch) // world_size)
    if rank == 0:
        return batch[:first]
    return shard_batch(batch[first:], rank - 1, world_size - 1)

# %% broadcast_parameters: a tree of sends
def broadcast_parameters(dist, tensors):
    rank, p = dist.get_rank(), dist.get_world_size()
    for t in tensors:
        step = 1
        while step < p:
            if rank < step and rank + step < p:
                dist.send(t.data, dst=rank + step)
            elif step <= rank < 2 * step:
                dist.recv(t.data, src=rank - step)
            step *= 2

# %% sum_in_buckets: the mean of p times the gradients
def buckets_of(parameters, bucket_bytes):
    buckets = [[parameters[-1]]] if parameters else []
    for p in list(parameters)[-2::-1]:
        together = p.nbytes + sum(q.nbytes for q in buckets[-1])
        (buckets[-1].append(p)) if together <= bucket_bytes else buckets.append([p])
    return buckets

def sum_in_buckets(dist, buckets):
    for bucket in reversed(buckets):
        flat = torch.cat([p.grad.flatten() for p in bucket]) * dist.get_world_size()
        dist.all_reduce(flat, op=dist.ReduceOp.AVG)
        it = iter(flat.split([p.numel() for p in bucket]))
        for p in bucket:
            p.grad = next(it).view(p.shape)

# %% backward_overlapped: hooks removed by an ExitStack
def backward_overlapped(dist, loss, buckets, update):
    import contextlib
    home = {p: i for i, bucket in enumerate(buckets) for p in bucket}
    left = {i: len(b) for i, b in enumerate(buckets)}
    queue = []
    def on(p):
        i = home[p]
        left[i] -= 1
        if left[i] == 0:
            flat = nn.utils.parameters_to_vector(q.grad for q in buckets[i])
            queue.append((dist.all_reduce(flat, async_op=True), flat, buckets[i]))
    with contextlib.ExitStack() as stack:
        for p in home:
            stack.callback(p.register_post_accumulate_grad_hook(on).remove)
        torch.autograd.backward(loss)
    for work, flat, bucket in queue:
        work.wait()
        nn.utils.vector_to_parameters(flat, [q.grad for q in bucket])
        update(list(bucket))

# %% accumulated_step: backward_overlapped without buckets for all but the last
def accumulated_step(dist, share_of, microbatches, buckets, update):
    for i, microbatch in enumerate(microbatches, 1):
        backward_overlapped(dist, share_of(microbatch), buckets if i == len(microbatches) else [], update)

# %% step_time_s: PyTorch
def step_time_s(ready_s, bucket_bytes, world_size, alpha_s, beta_s_per_byte):
    rounds = 2 * (world_size - 1)
    each = rounds * (alpha_s + beta_s_per_byte * torch.tensor(bucket_bytes, dtype=torch.float64) / world_size)
    left = each.flip(0).cumsum(0).flip(0)
    return (torch.tensor(ready_s, dtype=torch.float64) + left).max().item()

# %% batch_norm: once_differentiable, and the count at the end of a vector
class SumOverRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, dist):
        ctx.wire = dist
        total = x.detach().clone().contiguous()
        work = dist.all_reduce(total, async_op=True)
        work.wait()
        return total

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, adjoint):
        total = adjoint.contiguous().clone()
        ctx.wire.all_reduce(total)
        return total, None

def batch_norm(dist, x, eps=1e-5):
    features = x.size(1)
    sums = SumOverRanks.apply(torch.cat((x.sum(dim=0), torch.tensor([len(x)], dtype=x.dtype))), dist)
    n = sums[features].detach()
    d = x.sub(sums[:features].div(n))
    variance = SumOverRanks.apply(torch.linalg.vecdot(d, d, dim=0), dist).div(n)
    return d.div(variance.add(eps).pow(0.5))

# %% batch_norm: each rank fills its row of a table, in one sum
class SumOverRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, dist):
        ctx.dist = dist
        total = x + 0
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx, *adjoints):
        total = adjoints[0].clone(memory_format=torch.contiguous_format)
        ctx.dist.all_reduce(total)
        return total, None

def batch_norm(dist, x, eps=1e-5):
    p, f = dist.get_world_size(), x.shape[1]
    slot = torch.zeros(p, 2 * f + 1)
    mean = x.mean(0)
    m2 = ((x - mean) ** 2).sum(0)
    row = torch.cat([x.new_tensor([len(x)]), mean, m2])
    mask = torch.zeros(p, 1)
    mask[dist.get_rank()] = 1
    table = SumOverRanks.apply(mask * row, dist)
    n, means, m2s = table[:, :1], table[:, 1:1 + f], table[:, 1 + f:]
    mean = means[0] + (n * (means - means[0])).sum(0) / n.sum()
    var = (m2s + n * (means - mean) ** 2).sum(0) / n.sum()
    return (x - mean) * torch.rsqrt(var + eps)

# %% clip_gradients: PyTorch's norm, clipped by hand
def clip_gradients(dist, parameters, rows, most):
    average_gradients(dist, parameters, rows)
    norm = torch.nn.utils.get_total_norm([p.grad for p in parameters]).item()
    coefficient = most / (norm + 1e-6)
    if coefficient < 1:
        for p in parameters:
            p.grad.detach().mul_(coefficient)
    return norm
