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
