# %% shard_batch: by counting rows
def shard_batch(batch, rank, world_size):
    n = len(batch)
    sizes = [n // world_size + (1 if r < n % world_size else 0) for r in range(world_size)]
    return batch[sum(sizes[:rank]):sum(sizes[:rank + 1])]

# %% shard_batch: narrow
def shard_batch(batch, rank, world_size):
    n, p = batch.shape[0], world_size
    start = rank * (n // p) + min(rank, n % p)
    return batch.narrow(0, start, n // p + int(rank < n % p))

# %% broadcast_parameters: under no_grad, with copy_
def broadcast_parameters(dist, tensors):
    with torch.no_grad():
        for tensor in tensors:
            values = tensor.clone()
            dist.broadcast(values, 0)
            tensor.copy_(values)

# %% broadcast_parameters: in place on the detached tensor
def broadcast_parameters(dist, tensors):
    for t in tensors:
        dist.broadcast(t.detach(), src=0)

# %% average_gradients: sum first, divide afterwards
def average_gradients(dist, parameters, rows):
    count = torch.tensor(float(rows))
    dist.all_reduce(count)
    for p in parameters:
        p.grad.mul_(rows)
        dist.all_reduce(p.grad)
        p.grad.div_(count)

# %% average_gradients: into new tensors
def average_gradients(dist, parameters, rows):
    count = torch.full((1,), rows, dtype=torch.float64)
    dist.all_reduce(count)
    for p in parameters:
        total = p.grad * (rows / count[0])
        dist.all_reduce(total)
        p.grad = total

# %% sum_in_buckets: with copies back
def buckets_of(parameters, bucket_bytes):
    buckets, current, size = [], [], 0
    for p in parameters[::-1]:
        if current and size + p.nbytes > bucket_bytes:
            buckets.append(current)
            current, size = [], 0
        current.append(p)
        size += p.nbytes
    return buckets + [current] if current else buckets

def sum_in_buckets(dist, buckets):
    for bucket in buckets:
        flat = torch.cat([p.grad.reshape(-1) for p in bucket])
        dist.all_reduce(flat)
        start = 0
        for p in bucket:
            p.grad.copy_(flat[start:start + p.numel()].reshape(p.shape))
            start += p.numel()

# %% backward_overlapped: one hook and a dictionary
def backward_overlapped(dist, loss, buckets, update):
    place = {id(p): i for i, bucket in enumerate(buckets) for p in bucket}
    left, works = [len(bucket) for bucket in buckets], {}

    def hook(p):
        i = place[id(p)]
        left[i] -= 1
        if not left[i]:
            flat = torch.cat([q.grad.reshape(-1) for q in buckets[i]])
            works[i] = flat, dist.all_reduce(flat, async_op=True)

    handles = [p.register_post_accumulate_grad_hook(hook) for bucket in buckets for p in bucket]
    loss.backward()
    for handle in handles:
        handle.remove()
    for i, (flat, work) in works.items():
        work.wait()
        start = 0
        for p in buckets[i]:
            p.grad = flat[start:start + p.numel()].view(p.shape)
            start += p.numel()
        update(buckets[i])

# %% accumulated_step: by index
def accumulated_step(dist, share_of, microbatches, buckets, update):
    for i, microbatch in enumerate(microbatches):
        share = share_of(microbatch)
        if i + 1 < len(microbatches):
            share.backward()
        else:
            backward_overlapped(dist, share, buckets, update)

# %% step_time_s: the other way round
def step_time_s(ready_s, bucket_bytes, world_size, alpha_s, beta_s_per_byte):
    p, each = world_size, []
    for size in bucket_bytes:
        each.append(2 * (p - 1) * alpha_s + 2 * (p - 1) / p * size * beta_s_per_byte)
    return max(ready + sum(each[i:]) for i, ready in enumerate(ready_s))

# %% batch_norm: the mean, then the variance, with separate counts
class SumOverRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, dist):
        ctx.dist = dist
        total = x.detach().clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx, adjoint):
        total = adjoint.contiguous().clone()
        ctx.dist.all_reduce(total)
        return total, None

def batch_norm(dist, x, eps=1e-5):
    ones = torch.full((1,), float(len(x)), dtype=x.dtype)
    total = SumOverRanks.apply(torch.cat([x.sum(0), ones]), dist)
    count = total[-1].detach()
    centred = x - total[:-1] / count
    variance = SumOverRanks.apply(centred.pow(2).sum(0), dist) / count
    return centred / torch.sqrt(variance + eps)

# %% clip_gradients: by the norms of the norms
def clip_gradients(dist, parameters, rows, most):
    average_gradients(dist, parameters, rows)
    norm = torch.stack([p.grad.norm() for p in parameters]).norm()
    factor = min(1.0, most / (norm.item() + 1e-300))
    for p in parameters:
        p.grad.mul_(factor)
    return norm.item()

# %% shard_batch: the ends as rounded fractions
def shard_batch(batch, rank, world_size):
    n = len(batch)
    ends = [-(-n * r // world_size) for r in range(world_size + 1)]
    sizes = sorted((b - a for a, b in zip(ends, ends[1:])), reverse=True)
    start = sum(sizes[:rank])
    return batch[start:start + sizes[rank]]

# %% shard_batch: one rank after the other takes its share of what is left
def shard_batch(batch, rank, world_size):
    for left in range(world_size, world_size - rank, -1):
        batch = batch[-(-len(batch) // left):]
    return batch[:-(-len(batch) // (world_size - rank))]

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

# %% broadcast_parameters: all messages begin, and then all are waited for
def broadcast_parameters(dist, tensors):
    works = [dist.broadcast(tensor.data, 0, async_op=True) for tensor in tensors]
    for work in works:
        work.wait()

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

# %% average_gradients: all in one flat buffer, the rows at its end
def average_gradients(dist, parameters, rows):
    flat = torch.cat([*(rows * p.grad.flatten() for p in parameters), torch.tensor([float(rows)])])
    dist.all_reduce(flat)
    start = 0
    for p in parameters:
        p.grad = (flat[start:start + p.numel()] / flat[-1]).view_as(p)
        start += p.numel()

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

# %% sum_in_buckets: PyTorch's own flatten and unflatten
def buckets_of(parameters, bucket_bytes):
    buckets = [[]]
    for p in reversed(parameters):
        if buckets[-1] and sum(q.nbytes for q in buckets[-1]) + p.nbytes > bucket_bytes:
            buckets.append([])
        buckets[-1].append(p)
    return buckets

def sum_in_buckets(dist, buckets):
    from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
    for bucket in buckets:
        grads = [p.grad for p in bucket]
        flat = _flatten_dense_tensors(grads)
        dist.all_reduce(flat)
        for grad, part in zip(grads, _unflatten_dense_tensors(flat, grads)):
            grad.copy_(part)

# %% sum_in_buckets: hstack, and pieces cut off from the front
def buckets_of(parameters, bucket_bytes):
    order, buckets = iter(reversed(parameters)), []
    for p in order:
        if buckets and sum(q.nbytes for q in buckets[-1] + [p]) <= bucket_bytes:
            buckets[-1].append(p)
        else:
            buckets.append([p])
    return buckets

def sum_in_buckets(dist, buckets):
    for bucket in buckets:
        flat = torch.hstack([p.grad.ravel() for p in bucket]).contiguous()
        dist.all_reduce(flat, op=dist.ReduceOp.SUM)
        for p in bucket:
            mine, flat = flat[:p.numel()], flat[p.numel():]
            p.grad = mine.reshape(p.shape).clone()

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

# %% backward_overlapped: gradients are views of the bucket from the start
def backward_overlapped(dist, loss, buckets, update):
    flats, handles, works = [], [], []
    for bucket in buckets:
        flat, start, left = torch.zeros(sum(p.numel() for p in bucket)), 0, {len(bucket)}
        for p in bucket:
            view = flat[start:start + p.numel()].view_as(p)
            if p.grad is not None:
                view.copy_(p.grad)
            p.grad, start = view, start + p.numel()
        missing = [len(bucket)]

        def arrived(_, flat=flat, missing=missing, bucket=bucket):
            missing[0] -= 1
            if not missing[0]:
                works.append((bucket, dist.all_reduce(flat, async_op=True)))
        handles += [p.register_post_accumulate_grad_hook(arrived) for p in bucket]
    loss.backward()
    for handle in handles:
        handle.remove()
    for bucket, work in works:
        work.wait()
        update(bucket)

# %% backward_overlapped: the hook on the last parameter to come counts itself away
def backward_overlapped(dist, loss, buckets, update):
    works, hooks = [], {}

    def watch(bucket):
        rest = list(bucket)

        def hook(p):
            hooks.pop(id(p)).remove()
            rest.pop()
            if not rest:
                grads = torch.cat([q.grad.reshape(-1) for q in bucket])
                works.append((bucket, grads, dist.all_reduce(grads, async_op=True)))
        for p in bucket:
            hooks[id(p)] = p.register_post_accumulate_grad_hook(hook)

    for bucket in buckets:
        watch(bucket)
    loss.backward()
    for bucket, grads, work in works:
        work.wait()
        with torch.no_grad():
            torch._foreach_copy_([p.grad for p in bucket],
                                 [part.view_as(p) for p, part in
                                  zip(bucket, grads.split([p.numel() for p in bucket]))])
        update(bucket)

# %% accumulated_step: the last one popped, the rest in a loop
def accumulated_step(dist, share_of, microbatches, buckets, update):
    rest = list(microbatches)
    last = rest.pop()
    while rest:
        loss = share_of(rest.pop(0))
        loss.backward()
        del loss
    backward_overlapped(dist, share_of(last), buckets, update)

# %% accumulated_step: torch.autograd.backward, the first microbatch last
def accumulated_step(dist, share_of, microbatches, buckets, update):
    for microbatch in microbatches[1:]:
        torch.autograd.backward(share_of(microbatch))
    backward_overlapped(dist, share_of(microbatches[0]), buckets, update)

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

# %% step_time_s: functools.reduce
def step_time_s(ready_s, bucket_bytes, world_size, alpha_s, beta_s_per_byte):
    def later(free_s, bucket):
        ready, size = bucket
        ring_s = 2 * (world_size - 1) * (alpha_s + beta_s_per_byte * size / world_size)
        return (free_s if free_s > ready else ready) + ring_s
    return functools.reduce(later, zip(ready_s, bucket_bytes), 0)

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

# %% shard_batch: torch.split with sizes computed by hand
def shard_batch(batch, rank, world_size):
    n, p = len(batch), world_size
    return batch.split([n // p + (r < n % p) for r in range(p)])[rank]

# %% clip_gradients: with the 10⁻⁶ that PyTorch adds to the norm
def clip_gradients(dist, parameters, rows, most):
    average_gradients(dist, parameters, rows)
    norm = sum(p.grad.norm() ** 2 for p in parameters) ** 0.5
    factor = torch.clamp(most / (norm + 1e-6), max=1.0)
    for p in parameters:
        p.grad.mul_(factor)
    return norm.item()

# %% shard_batch: a local variable called chunk
def shard_batch(batch, rank, world_size):
    chunk, extra = len(batch) // world_size, len(batch) % world_size
    begin = rank * chunk + (rank if rank < extra else extra)
    return batch[begin:begin + chunk + (1 if rank < extra else 0)]

# %% shard_batch: recursive
def shard_batch(batch, rank, world_size):
    first = -(-len(batch) // world_size)
    if rank == 0:
        return batch[:first]
    return shard_batch(batch[first:], rank - 1, world_size - 1)

# %% shard_batch: as_strided, with the batch's own strides
def shard_batch(batch, rank, world_size):
    rows, more = divmod(len(batch), world_size)
    start, size = rank * rows + min(rank, more), rows + (rank < more)
    return batch.as_strided((size, *batch.shape[1:]), batch.stride(), batch.storage_offset() + start * batch.stride(0))

# %% broadcast_parameters: all tensors as bytes, in one message
def broadcast_parameters(dist, tensors):
    flat = torch.cat([t.detach().contiguous().reshape(-1).view(torch.uint8) for t in tensors])
    dist.broadcast(flat, src=0)
    start = 0
    for t in tensors:
        t.data.copy_(flat[start:start + t.nbytes].clone().view(t.dtype).view(t.shape))
        start += t.nbytes

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

# %% average_gradients: foreach
def average_gradients(dist, parameters, rows):
    total = torch.tensor(float(rows), dtype=torch.float64)
    dist.all_reduce(total, op=dist.ReduceOp.SUM)
    grads = [p.grad for p in parameters]
    torch._foreach_mul_(grads, rows / float(total))
    for work in [dist.all_reduce(g, async_op=True) for g in grads]:
        work.wait()

# %% average_gradients: a rank without rows sends new zeros
def average_gradients(dist, parameters, rows):
    total = torch.tensor([rows], dtype=torch.float64)
    dist.all_reduce(total)
    for p in parameters:
        part = p.grad * rows if rows else torch.zeros_like(p)
        dist.all_reduce(part)
        p.grad = part / total

# %% sum_in_buckets: itertools.groupby, by number of bucket
def buckets_of(parameters, bucket_bytes):
    import itertools
    numbers, number, size = [], 0, 0
    order = parameters[::-1]
    for i, p in enumerate(order):
        if i and size + p.nbytes > bucket_bytes:
            number, size = number + 1, 0
        size += p.nbytes
        numbers.append(number)
    return [[order[i] for i in group] for _, group in itertools.groupby(range(len(order)), key=numbers.__getitem__)]

def sum_in_buckets(dist, buckets):
    def one(bucket):
        grads = [p.grad for p in bucket]
        flat = torch.concatenate([g.ravel() for g in grads])
        dist.all_reduce(flat)
        parts = torch.tensor_split(flat, np.cumsum([g.numel() for g in grads])[:-1].tolist())
        for g, part in zip(grads, parts):
            g[...] = part.reshape(g.shape)
    list(map(one, buckets))

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

# %% backward_overlapped: one coroutine per bucket
def backward_overlapped(dist, loss, buckets, update):
    def bucket_life(bucket):
        for _ in bucket:
            yield
        flat = torch.cat([p.grad.reshape(-1) for p in bucket])
        work = dist.all_reduce(flat, async_op=True)
        order.append(life[id(bucket)])
        yield
        work.wait()
        for p, part in zip(bucket, flat.split([p.numel() for p in bucket])):
            p.grad = part.view(p.shape)
        update(bucket)
        yield

    order, life, hooks = [], {}, []
    for bucket in buckets:
        life[id(bucket)] = bucket_life(bucket)
        next(life[id(bucket)])
        for p in bucket:
            hooks.append(p.register_post_accumulate_grad_hook(lambda _, b=bucket: next(life[id(b)])))
    loss.backward()
    for hook in hooks:
        hook.remove()
    for one in order:
        next(one)

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

# %% accumulated_step: recursion
def accumulated_step(dist, share_of, microbatches, buckets, update):
    head, rest = microbatches[0], microbatches[1:]
    if not rest:
        return backward_overlapped(dist, share_of(head), buckets, update)
    share_of(head).backward()
    accumulated_step(dist, share_of, rest, buckets, update)

# %% step_time_s: the bucket from which on the wire is busy
def step_time_s(ready_s, bucket_bytes, world_size, alpha_s, beta_s_per_byte):
    each = [2 * (world_size - 1) * (alpha_s + beta_s_per_byte * b / world_size) for b in bucket_bytes]
    return max(ready_s[i] + sum(each[i:]) for i in range(len(each)))

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

# %% clip_gradients: divided by the largest number first
def clip_gradients(dist, parameters, rows, most):
    average_gradients(dist, parameters, rows)
    top = max(p.grad.abs().max().item() for p in parameters)
    if top == 0:
        return 0.0
    norm = top * sum(((p.grad / top) ** 2).sum().item() for p in parameters) ** 0.5
    [p.grad.mul_(most).div_(norm) for p in parameters if norm > most]
    return norm

# %% clip_gradients: PyTorch's norm, clipped by hand
def clip_gradients(dist, parameters, rows, most):
    average_gradients(dist, parameters, rows)
    norm = torch.nn.utils.get_total_norm([p.grad for p in parameters]).item()
    coefficient = most / (norm + 1e-6)
    if coefficient < 1:
        for p in parameters:
            p.grad.detach().mul_(coefficient)
    return norm
