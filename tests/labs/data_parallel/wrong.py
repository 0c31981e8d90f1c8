# %% shard_batch: the rows left over are lost
# says: belong to nobody
def shard_batch(batch, rank, world_size):
    rows = len(batch) // world_size
    return batch[rank * rows:(rank + 1) * rows]

# %% shard_batch: the rows left over go to the last rank
# says: went to the last rank
def shard_batch(batch, rank, world_size):
    rows = len(batch) // world_size
    return batch[rank * rows:] if rank == world_size - 1 else batch[rank * rows:(rank + 1) * rows]

# %% shard_batch: dealt out like cards
# says: a shard is contiguous
def shard_batch(batch, rank, world_size):
    return batch[rank::world_size]

# %% shard_batch: rounded up
# says: Rounded up
def shard_batch(batch, rank, world_size):
    rows = -(-len(batch) // world_size)
    return batch[rank * rows:(rank + 1) * rows]

# %% shard_batch: PyTorch's chunk, which may give fewer pieces than ranks
# says: want
def shard_batch(batch, rank, world_size):
    pieces = batch.chunk(world_size)
    return pieces[rank] if rank < len(pieces) else batch[:0]

# %% shard_batch: a copy
# says: a slice is a view
def shard_batch(batch, rank, world_size):
    return batch.tensor_split(world_size)[rank].clone()

# %% broadcast_parameters: left to the seed
# says: still this rank's own
def broadcast_parameters(dist, tensors):
    torch.manual_seed(0)

# %% broadcast_parameters: the mean over ranks
# says: the mean over all ranks
# - dist.broadcast(tensor.data, src=0)  # .data: autograd need not know
# + total = tensor.data.clone()
# + dist.all_reduce(total)
# + tensor.data.copy_(total / dist.get_world_size())

# %% broadcast_parameters: everyone is the source
# says: with root
# edit: src=0  ->  src=dist.get_rank()

# %% broadcast_parameters: from the last rank
# says: They are rank p − 1's
# edit: src=0  ->  src=dist.get_world_size() - 1

# %% broadcast_parameters: only what has a gradient
# says: The count of steps is still this rank's own
# - dist.broadcast(tensor.data, src=0)  # .data: autograd need not know
# + if tensor.requires_grad:
# +     dist.broadcast(tensor.data, src=0)

# %% broadcast_parameters: into new tensors
# says: still this rank's own
def broadcast_parameters(dist, tensors):
    for i, tensor in enumerate(tensors):
        tensors[i] = tensor.detach().clone()
        dist.broadcast(tensors[i], src=0)

# %% broadcast_parameters: everything gathered from everyone
# says: the bytes sent: each tensor to p − 1 ranks
# - dist.broadcast(tensor.data, src=0)  # .data: autograd need not know
# + everyone = [torch.empty_like(tensor.data) for _ in range(dist.get_world_size())]
# + dist.all_gather(everyone, tensor.data)
# + tensor.data.copy_(everyone[0])

# %% average_gradients: sum instead of mean
# says: the step is p times too long
def average_gradients(dist, parameters, rows):
    for p in parameters:
        dist.all_reduce(p.grad)

# %% average_gradients: mean of means with unequal shards
# says: but their numbers of rows differ
def average_gradients(dist, parameters, rows):
    for p in parameters:
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()

# %% average_gradients: weighed, not divided
# says: not divided by the total number of rows
# - total = torch.tensor([float(rows)])
# - dist.all_reduce(total)
# edit: rows / total.item()  ->  rows

# %% average_gradients: no all-reduce
# says: Only this rank's own gradients
def average_gradients(dist, parameters, rows):
    pass

# %% average_gradients: one rank forgets the all-reduce
# says: rank 1 calls all_reduce with shape (1,)
# - dist.all_reduce(p.grad)
# + if dist.get_rank() != 1:
# +     dist.all_reduce(p.grad)

# %% average_gradients: one rank in another order
# says: with shape
# edit: for p in parameters:  ->  for p in parameters if dist.get_rank() else reversed(parameters):

# %% average_gradients: all gradients to all ranks
# says: more than one all-reduce per parameter
# - p.grad *= rows / total.item()
# - dist.all_reduce(p.grad)
# + everyone = [torch.empty_like(p.grad) for _ in range(dist.get_world_size())]
# + for src, part in enumerate(everyone):
# +     part.copy_(p.grad * rows / total.item())
# +     dist.broadcast(part, src=src)
# +     dist.broadcast(part, src=src)
# + p.grad = sum(everyone)

# %% sum_in_buckets: numbers are counted for bytes
# says: holds too many bytes
# edit: buckets, room = [], 0  ->  buckets, room = [], -1
# edit: not buckets or p.nbytes > room  ->  p.numel() > room
# edit: p.nbytes  ->  p.numel()

# %% sum_in_buckets: what fits exactly opens a new bucket
# says: would have fitted into the bucket before
# edit: buckets, room = [], 0  ->  buckets, room = [], -1
# edit: not buckets or p.nbytes > room  ->  p.nbytes >= room

# %% sum_in_buckets: in the order of forward
# says: last used first
# edit: reversed(parameters)  ->  parameters

# %% sum_in_buckets: a bucket is closed once it is overfull
# says: holds too many bytes
# edit: buckets, room = [], 0  ->  buckets, held = [[]], 0
# edit: not buckets or p.nbytes > room  ->  held >= bucket_bytes
# edit: room = bucket_bytes  ->  held = 0
# edit: room -= p.nbytes  ->  held += p.nbytes

# %% sum_in_buckets: a bucket for each parameter
# says: would have fitted into the bucket before
def buckets_of(parameters, bucket_bytes):
    return [[p] for p in reversed(parameters)]

def sum_in_buckets(dist, buckets):
    for bucket in buckets:
        flat = torch.cat([p.grad.flatten() for p in bucket])
        dist.all_reduce(flat)
        for p, part in zip(bucket, flat.split([p.numel() for p in bucket])):
            p.grad = part.view_as(p)

# %% sum_in_buckets: what is larger than a bucket leaves an empty one
# says: a bucket is empty
# edit: buckets, room = [], 0  ->  buckets, room = [[]], bucket_bytes
# edit: not buckets or p.nbytes > room  ->  p.nbytes > room

# %% sum_in_buckets: an all-reduce for each parameter
# says: one all-reduce for each
# - flat = torch.cat([p.grad.flatten() for p in bucket])
# - dist.all_reduce(flat)
# - for p, part in zip(bucket, flat.split([p.numel() for p in bucket])):
# -     p.grad = part.view_as(p)
# + for p in bucket:
# +     dist.all_reduce(p.grad)

# %% sum_in_buckets: divided once more
# says: each loss was divided by all rows before
#   dist.all_reduce(flat)
# + flat /= dist.get_world_size()

# %% sum_in_buckets: the sum is never cut up again
# says: still this rank's own gradients
# - for p, part in zip(bucket, flat.split([p.numel() for p in bucket])):
# -     p.grad = part.view_as(p)

# %% backward_overlapped: after backward
# says: of the bytes went while backward computed
def backward_overlapped(dist, loss, buckets, update):
    loss.backward()
    for bucket in buckets:
        grads = [p.grad.flatten() for p in bucket]
        flat = torch.cat(grads) if len(grads) > 1 else grads[0]  # one alone need not be copied
        dist.all_reduce(flat)
        for p, part in zip(bucket, flat.split([p.numel() for p in bucket])):
            p.grad = part.view_as(p)
        update(bucket)

# %% backward_overlapped: waits in the hook
# says: of the bytes went while backward computed
# edit: on_the_wire, hooks = [], []  ->  hooks = []
# - on_the_wire.append((bucket, flat, dist.all_reduce(flat, async_op=True)))
# + dist.all_reduce(flat)
# + for p, part in zip(bucket, flat.split([p.numel() for p in bucket])):
# +     p.grad = part.view_as(p)
# ...
# - for bucket, flat, work in on_the_wire:
# -     work.wait()
# -     for p, part in zip(bucket, flat.split([p.numel() for p in bucket])):
# -         p.grad = part.view_as(p)
# + for bucket in buckets:

# %% backward_overlapped: a bucket is sent with its first gradient
# says: sent before its gradients were there
# - missing = len(bucket)
# ...
# - nonlocal missing
# - missing -= 1
# - if missing == 0:
# + if all(bucket is not other for other, *_ in on_the_wire):

# %% backward_overlapped: never waits
# says: wait()
# - on_the_wire.append((bucket, flat, dist.all_reduce(flat, async_op=True)))
# + dist.all_reduce(flat, async_op=True)
# + on_the_wire.append((bucket, flat))
# ...
# - for bucket, flat, work in on_the_wire:
# -     work.wait()
# + for bucket, flat in on_the_wire:

# %% backward_overlapped: waits for the last bucket only
# says: wait()
# - for bucket, flat, work in on_the_wire:
# -     work.wait()
# + on_the_wire[-1][2].wait()
# + for bucket, flat, _ in on_the_wire:

# %% backward_overlapped: updates once all have arrived
# says: no update began before
# edit: bucket, flat, work  ->  _, _, work
#       work.wait()
# + for bucket, flat, _ in on_the_wire:

# %% backward_overlapped: the sums never get back into p.grad
# says: Each rank used its own gradients
# edit: torch.cat(grads) if len(grads) > 1 else grads[0]  ->  torch.cat(grads)
# edit: bucket, flat, work  ->  bucket, _, work
# - for p, part in zip(bucket, flat.split([p.numel() for p in bucket])):
# -     p.grad = part.view_as(p)

# %% backward_overlapped: leaves its hooks
# says: a hook is still there
# edit: on_the_wire, hooks = [], []  ->  on_the_wire = []
# - hooks += [p.register_post_accumulate_grad_hook(arrived) for p in bucket]
# + for p in bucket:
# +     p.register_post_accumulate_grad_hook(arrived)
# ...
# - for hook in hooks:
# -     hook.remove()

# %% backward_overlapped: the mean
# says: The sum is wanted, not the mean
# - grads = [p.grad.flatten() for p in bucket]
# - flat = torch.cat(grads) if len(grads) > 1 else grads[0]  # one alone need not be copied
# + flat = torch.cat([p.grad.flatten() for p in bucket]) / dist.get_world_size()

# %% backward_overlapped: all hooks see the loop's last bucket
# says: update was not called for every bucket
def backward_overlapped(dist, loss, buckets, update):
    on_the_wire, hooks = [], []
    for bucket in buckets:
        missing = [len(bucket)]
        def arrived(_):
            missing[0] -= 1
            if missing[0] == 0:
                grads = [p.grad.flatten() for p in bucket]
                flat = torch.cat(grads) if len(grads) > 1 else grads[0]
                on_the_wire.append((bucket, flat, dist.all_reduce(flat, async_op=True)))
        hooks += [p.register_post_accumulate_grad_hook(lambda p: arrived(p)) for p in bucket]
    try:
        loss.backward()
    except AttributeError:
        pass
    for hook in hooks:
        hook.remove()
    for bucket, flat, work in on_the_wire:
        work.wait()
        for p, part in zip(bucket, flat.split([p.numel() for p in bucket])):
            p.grad = part.view_as(p)
        update(bucket)

# %% backward_overlapped: every parameter by itself
# says: update takes one of the buckets
def backward_overlapped(dist, loss, buckets, update):
    works, hooks = [], []
    def arrived(p):
        works.append((p, dist.all_reduce(p.grad, async_op=True)))
    hooks = [p.register_post_accumulate_grad_hook(arrived) for bucket in buckets for p in bucket]
    loss.backward()
    for hook in hooks:
        hook.remove()
    for p, work in works:
        work.wait()
        update([p])

# %% backward_overlapped: an all-reduce for each parameter
# says: one all-reduce for each of 8 buckets
def backward_overlapped(dist, loss, buckets, update):
    works, hooks = [], []
    def arrived(p):
        works.append((p, dist.all_reduce(p.grad, async_op=True)))
    hooks = [p.register_post_accumulate_grad_hook(arrived) for bucket in buckets for p in bucket]
    loss.backward()
    for hook in hooks:
        hook.remove()
    for _, work in works:
        work.wait()
    for bucket in buckets:
        update(bucket)

# %% backward_overlapped: a bucket of one parameter is never sent
# says: update was not called for every bucket
# - missing = len(bucket)
# -
# - def arrived(_):
# -     nonlocal missing
# -     missing -= 1
# -     if missing == 0:
# + there = []
# + def arrived(p):
# +     if there and len(there) == len(bucket) - 1:
# ...
#       on_the_wire.append((bucket, flat, dist.all_reduce(flat, async_op=True)))
# + there.append(p)

# %% backward_overlapped: one rank keeps its last bucket to itself
# says: rank 0 calls all_reduce
# edit: if missing == 0:  ->  if missing == 0 and (dist.get_rank() or bucket is not buckets[-1]):
#       update(bucket)
# + if not dist.get_rank():
# +     update(buckets[-1])

# %% accumulated_step: gradients averaged before accumulation ends
# says: before all were in
# - share_of(microbatch).backward()
# + backward_overlapped(dist, share_of(microbatch), buckets, lambda bucket: None)

# %% accumulated_step: every microbatch on the wire
# says: each gradient once on the wire
def accumulated_step(dist, share_of, microbatches, buckets, update):
    parameters = [p for bucket in buckets for p in bucket]
    total = [torch.zeros_like(p) for p in parameters]
    for microbatch in microbatches:
        def take(bucket):
            for p in bucket:
                i = next(i for i, q in enumerate(parameters) if q is p)
                total[i] += p.grad
                p.grad = None
        backward_overlapped(dist, share_of(microbatch), buckets, take)
    for p, grad in zip(parameters, total):
        p.grad = grad
    for bucket in buckets:
        update(bucket)

# %% accumulated_step: the sum comes after the last backward
# says: use the last backward
# - *first, last = microbatches
# - for microbatch in first:
# + for microbatch in microbatches:
# ...
# - backward_overlapped(dist, share_of(last), buckets, update)
# + sum_in_buckets(dist, buckets)
# + for bucket in buckets:
# +     update(bucket)

# %% accumulated_step: one backward through the sum of all losses
# says: one microbatch's graph at a time
def accumulated_step(dist, share_of, microbatches, buckets, update):
    total = sum(share_of(microbatch) for microbatch in microbatches)
    backward_overlapped(dist, total, buckets, update)

# %% accumulated_step: divided by the number of microbatches
# says: Divided by k?
# -     share_of(microbatch).backward()
# - backward_overlapped(dist, share_of(last), buckets, update)
# +     (share_of(microbatch) / len(microbatches)).backward()
# + backward_overlapped(dist, share_of(last) / len(microbatches), buckets, update)

# %% accumulated_step: backward of all, and of the last again
# says: The last one counts twice
# edit: *first, last = microbatches  ->  first, last = microbatches, microbatches[-1]

# %% accumulated_step: only the last microbatch
# says: Only the last microbatch counts
# - for microbatch in first:
# -     share_of(microbatch).backward()

# %% accumulated_step: an update after each microbatch
# says: weights, 
# - share_of(microbatch).backward()
# + backward_overlapped(dist, share_of(microbatch), buckets, update)

# %% step_time_s: all buckets on the wire at once
# says: can't be on the wire at once
def step_time_s(ready_s, bucket_bytes, world_size, alpha_s, beta_s_per_byte):
    return max(ready + 2 * (world_size - 1) * (alpha_s + beta_s_per_byte * size / world_size)
               for ready, size in zip(ready_s, bucket_bytes))

# %% step_time_s: nothing overlaps
# says: Nothing is hidden here
def step_time_s(ready_s, bucket_bytes, world_size, alpha_s, beta_s_per_byte):
    return ready_s[-1] + sum(2 * (world_size - 1) * (alpha_s + beta_s_per_byte * size / world_size)
                             for size in bucket_bytes)

# %% step_time_s: half an all-reduce
# says: p − 1 to add up
# - message_s = alpha_s + beta_s_per_byte * size / world_size
# - end_s = max(end_s, ready) + 2 * (world_size - 1) * message_s
# + end_s = max(end_s, ready) + (world_size - 1) * (alpha_s + beta_s_per_byte * size / world_size)

# %% step_time_s: the whole bucket in each round
# says: A round sends 1/p of the bucket
# - message_s = alpha_s + beta_s_per_byte * size / world_size
# - end_s = max(end_s, ready) + 2 * (world_size - 1) * message_s
# + end_s = max(end_s, ready) + 2 * (world_size - 1) * (alpha_s + beta_s_per_byte * size)

# %% batch_norm: each rank by itself
# says: mean and variance of its own rows
class SumOverRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, dist):
        return x.clone()

    @staticmethod
    def backward(ctx, adjoint):
        return adjoint, None

def batch_norm(dist, x, eps=1e-5):
    return (x - x.mean(0)) / (x.var(0, correction=0) + eps).sqrt()

# %% batch_norm: the adjoint goes straight through
# says: this rank's adjoint alone
# edit: ctx.dist, total = dist, x.clone()  ->  total = x.clone()
# - total = adjoint.clone()  # every rank's loss saw this rank's x
# - ctx.dist.all_reduce(total)
# - return total, None
# + return adjoint, None

# %% batch_norm: mean of the ranks' means
# says: batch_norm
# - rows = torch.full((x.shape[1],), float(len(x)), dtype=x.dtype, device=x.device)
# - total, rows = SumOverRanks.apply(torch.stack([x.sum(0), rows]), dist)
# - deviation = x - total / rows
# - variance = SumOverRanks.apply((deviation * deviation).sum(0), dist) / rows
# - return deviation * (variance + eps).rsqrt()
# + p = dist.get_world_size()
# + mean, square = SumOverRanks.apply(torch.stack([x.mean(0), (x * x).mean(0)]), dist) / p
# + return (x - mean) * (square - mean * mean + eps).rsqrt()

# %% batch_norm: the adjoint is averaged
# says: do not divide by p
# edit: total, None  ->  total / ctx.dist.get_world_size(), None

# %% batch_norm: the variance divides by one less
# says: not by one less
# edit: deviation).sum(0), dist) / rows  ->  deviation).sum(0), dist) / (rows - 1)

# %% batch_norm: mean and variance are taken for constants
# says: here they are constants
# edit: torch.stack([x.sum(0), rows])  ->  torch.stack([x.sum(0), rows]).detach()
# edit: (deviation * deviation).sum(0)  ->  (deviation * deviation).sum(0).detach()

# %% batch_norm: the mean of the squares less the square of the mean
# says: with a mean of 10⁶
# - total, rows = SumOverRanks.apply(torch.stack([x.sum(0), rows]), dist)
# - deviation = x - total / rows
# - variance = SumOverRanks.apply((deviation * deviation).sum(0), dist) / rows
# - return deviation * (variance + eps).rsqrt()
# + total, squares, rows = SumOverRanks.apply(torch.stack([x.sum(0), (x * x).sum(0), rows]), dist)
# + mean = total / rows
# + return (x - mean) * (squares / rows - mean * mean + eps).rsqrt()

# %% batch_norm: an all-reduce for each of three sums
# says: two forward and two backward are enough
# - total, rows = SumOverRanks.apply(torch.stack([x.sum(0), rows]), dist)
# + total, rows = SumOverRanks.apply(x.sum(0), dist), SumOverRanks.apply(rows, dist)
# edit: deviation = x - total / rows  ->  deviation = x - (total + 0 * SumOverRanks.apply(x.sum(0), dist)) / rows

# %% batch_norm: forward sums into x
# says: forward overwrites x
# edit: x.clone()  ->  x

# %% batch_norm: backward sums into the adjoint
# says: backward overwrites the adjoint
# edit: adjoint.clone()  ->  adjoint

# %% average_gradients: a rank without rows leaves its gradients out
# says: all_reduce
#   for p in parameters:
# +     if rows == 0:
# +         break

# %% shard_batch: PyTorch's tensor_split
# says: torch.tensor_split is not allowed
def shard_batch(batch, rank, world_size):
    return batch.tensor_split(world_size)[rank]

# %% broadcast_parameters: new storages
# says: a tensor has a new storage
# - dist.broadcast(tensor.data, src=0)  # .data: autograd need not know
# + values = tensor.detach().clone()
# + dist.broadcast(values, src=0)
# + tensor.data = values

# %% backward_overlapped: earlier gradients are thrown away
# says: keep what was there before
#   for bucket in buckets:
# +     for p in bucket:
# +         p.grad = None

# %% clip_gradients: before the sum
# says: Clip after the sum
# - average_gradients(dist, parameters, rows)
#   norm = sum((p.grad * p.grad).sum() for p in parameters).sqrt().item()
# ...
#       p.grad *= most / norm
# + average_gradients(dist, parameters, rows)
# + norm = sum((p.grad * p.grad).sum() for p in parameters).sqrt().item()

# %% clip_gradients: each tensor by itself
# says: take the norm of all together
# - if norm > most:
# -     for p in parameters:
# -         p.grad *= most / norm
# + for p in parameters:
# +     p.grad *= min(1.0, most / max(1e-300, p.grad.norm().item()))

# %% clip_gradients: every gradient is scaled to the limit
# says: below the limit stay as they are
# edit: if norm > most:  ->  if norm > 0:

# %% clip_gradients: the sum of squares is no norm
# says: the square of the norm
# edit: .sqrt().item()  ->  .item()

# %% shard_batch: the remainder goes to the first rank
# says: want
def shard_batch(batch, rank, world_size):
    rows, more = divmod(len(batch), world_size)
    start = rank * rows + (more if rank else 0)
    return batch[start:start + rows + (0 if rank else more)]

# %% shard_batch: the last ranks take the rows left over
# says: The first ranks take one more row each
def shard_batch(batch, rank, world_size):
    rows, more = divmod(len(batch), world_size)
    start = rank * rows + max(0, rank - (world_size - more))
    return batch[start:start + rows + (rank >= world_size - more)]

# %% shard_batch: fails on an empty batch
# says: None, not a tensor
def shard_batch(batch, rank, world_size):
    if not len(batch):
        return None
    rows, more = divmod(len(batch), world_size)
    start = rank * rows + min(rank, more)
    return batch[start:start + rows + (rank < more)]

# %% shard_batch: torch.tensor_split in a helper
# says: torch.tensor_split is not allowed
def cut(batch, p):
    return torch.tensor_split(batch, p)

def shard_batch(batch, rank, world_size):
    return cut(batch, world_size)[rank]

# %% shard_batch: indices, so a copy
# says: a slice is a view
def shard_batch(batch, rank, world_size):
    rows, more = divmod(len(batch), world_size)
    start = rank * rows + min(rank, more)
    return batch[torch.arange(start, start + rows + (rank < more))]

# %% broadcast_parameters: only parameters of two dimensions
# says: the tensors of rank
def broadcast_parameters(dist, tensors):
    for tensor in tensors:
        if tensor.dim() > 1:
            dist.broadcast(tensor.data, src=0)

# %% broadcast_parameters: through float32
# says: the tensors of rank
def broadcast_parameters(dist, tensors):
    for tensor in tensors:
        values = tensor.detach().float()
        dist.broadcast(values, src=0)
        tensor.data.copy_(values)

# %% broadcast_parameters: never waits
# says: is never waited for
def broadcast_parameters(dist, tensors):
    for tensor in tensors:
        dist.broadcast(tensor.data, src=0, async_op=True)

# %% average_gradients: divides by the number of rows of this rank
# says: weights, shards of
def average_gradients(dist, parameters, rows):
    for p in parameters:
        dist.all_reduce(p.grad)
        p.grad /= max(rows, 1) * dist.get_world_size()

# %% average_gradients: the total taken for p times the own rows
# says: their numbers of rows differ
def average_gradients(dist, parameters, rows):
    total = rows * dist.get_world_size()
    for p in parameters:
        p.grad *= rows / total if total else 0
        dist.all_reduce(p.grad)

# %% average_gradients: gradients in bfloat16
# says: weights, shards of
def average_gradients(dist, parameters, rows):
    total = torch.tensor([float(rows)])
    dist.all_reduce(total)
    for p in parameters:
        half = (p.grad * (rows / total.item())).bfloat16()
        dist.all_reduce(half)
        p.grad = half.to(p.dtype)

# %% average_gradients: gradients in float32
# says: weights, shards of
def average_gradients(dist, parameters, rows):
    total = torch.tensor([float(rows)])
    dist.all_reduce(total)
    for p in parameters:
        half = (p.grad * (rows / total.item())).float()
        dist.all_reduce(half)
        p.grad = half.to(p.dtype)

# %% average_gradients: only rank 0 has the mean
# says: weights, shards of
def average_gradients(dist, parameters, rows):
    total = torch.tensor([float(rows)])
    dist.all_reduce(total)
    for p in parameters:
        p.grad *= rows / total.item()
        dist.reduce(p.grad, 0)

# %% sum_in_buckets: a bucket may hold twice its size
# says: holds too many bytes
# edit: room = bucket_bytes  ->  room = 2 * bucket_bytes

# %% sum_in_buckets: best fit: packed into any earlier bucket with room
# says: not each once, last used first
def buckets_of(parameters, bucket_bytes):
    buckets = []
    for p in reversed(parameters):
        for bucket in buckets:
            if sum(q.nbytes for q in bucket) + p.nbytes <= bucket_bytes:
                bucket.append(p)
                break
        else:
            buckets.append([p])
    return buckets

def sum_in_buckets(dist, buckets):
    for bucket in buckets:
        flat = torch.cat([p.grad.flatten() for p in bucket])
        dist.all_reduce(flat)
        for p, part in zip(bucket, flat.split([p.numel() for p in bucket])):
            p.grad = part.view_as(p)

# %% sum_in_buckets: cut up in another order than it was packed
# says: gradients, summed
# edit: zip(bucket, flat.split([p.numel() for p in bucket]))  ->  zip(bucket[::-1], flat.split([p.numel() for p in bucket[::-1]]))

# %% sum_in_buckets: in float32
# says: gradients, summed
# edit: flat = torch.cat([p.grad.flatten() for p in bucket])  ->  flat = torch.cat([p.grad.flatten() for p in bucket]).float()
# edit: part.view_as(p)  ->  part.view_as(p).double()

# %% sum_in_buckets: only one rank cuts the sum up
# says: gradients, summed
# -     p.grad = part.view_as(p)
# +     p.grad = part.view_as(p) if dist.get_rank() == 0 else p.grad

# %% backward_overlapped: a hook that runs before p.grad is there
# says: sent before its gradients were there
# - hooks += [p.register_post_accumulate_grad_hook(arrived) for p in bucket]
# + hooks += [p.register_hook(arrived) for p in bucket]

# %% backward_overlapped: blocks on each all-reduce after starting the next
# says: backward waits for messages
# - on_the_wire.append((bucket, flat, dist.all_reduce(flat, async_op=True)))
# + if on_the_wire:
# +     on_the_wire[-1][2].wait()
# + on_the_wire.append((bucket, flat, dist.all_reduce(flat, async_op=True)))

# %% backward_overlapped: update for each parameter
# says: update takes one of the buckets, as it is
# -     update(bucket)
# +     for p in bucket:
# +         update([p])

# %% backward_overlapped: waits for None
# says: 'wait'
# edit: dist.all_reduce(flat, async_op=True)  ->  dist.all_reduce(flat)

# %% backward_overlapped: updates twice
# says: update was called twice
# -     update(bucket)
# +     update(bucket)
# +     update(bucket)

# %% backward_overlapped: update before the sum is cut up
# says: Each rank used its own gradients
def backward_overlapped(dist, loss, buckets, update):
    on_the_wire, hooks = [], []

    def starter(bucket):
        left = [len(bucket)]

        def arrived(_):
            left[0] -= 1
            if not left[0]:
                flat = torch.cat([p.grad.flatten() for p in bucket])
                on_the_wire.append((bucket, flat, dist.all_reduce(flat, async_op=True)))
        return arrived

    for bucket in buckets:
        arrived = starter(bucket)
        hooks += [p.register_post_accumulate_grad_hook(arrived) for p in bucket]
    loss.backward()
    for hook in hooks:
        hook.remove()
    for bucket, flat, work in on_the_wire:
        work.wait()
        update(bucket)
        for p, part in zip(bucket, flat.split([p.numel() for p in bucket])):
            p.grad = None

# %% backward_overlapped: waits in the opposite order
# says: No update began before
# edit: in on_the_wire:  ->  in on_the_wire[::-1]:

# %% backward_overlapped: clears the hooks of the first parameter only
# says: a hook is still there
# - hook.remove()
# + hook.remove()
# + break

# %% backward_overlapped: the list's last gradient alone triggers
# says: sent before its gradients were there
# - hooks += [p.register_post_accumulate_grad_hook(arrived) for p in bucket]
# + hooks += [bucket[-1].register_post_accumulate_grad_hook(arrived)]
# ...
# - missing -= 1
# + missing = 0

# %% accumulated_step: gradients are cleared between
# says: Only the last microbatch counts
# -     share_of(microbatch).backward()
# +     share_of(microbatch).backward()
# +     for bucket in buckets:
# +         for p in bucket:
# +             p.grad = None

# %% accumulated_step: the first microbatch is forgotten
# says: The first microbatch is left out
# edit: *first, last = microbatches  ->  _, *first, last = microbatches

# %% accumulated_step: all graphs held, backward one by one
# says: one microbatch's graph at a time
# - for microbatch in first:
# -     share_of(microbatch).backward()
# - backward_overlapped(dist, share_of(last), buckets, update)
# + shares = [share_of(microbatch) for microbatch in microbatches]
# + for share in shares[:-1]:
# +     share.backward()
# + backward_overlapped(dist, shares[-1], buckets, update)

# %% accumulated_step: one bucket for all, under the last backward
# says: use the last backward
# - backward_overlapped(dist, share_of(last), buckets, update)
# + backward_overlapped(dist, share_of(last), [[p for bucket in buckets for p in bucket]], lambda b: [update(bucket) for bucket in buckets])

# %% step_time_s: p rounds
# says: step_time_s(
# edit: 2 * (world_size - 1) * message_s  ->  2 * world_size * message_s

# %% step_time_s: begins with the largest ready time
# says: step_time_s(
# edit: end_s = 0.0  ->  end_s = max(ready_s)

# %% step_time_s: the last bucket's size counts for all
# says: step_time_s(
# edit: beta_s_per_byte * size / world_size  ->  beta_s_per_byte * bucket_bytes[-1] / world_size

# %% step_time_s: sorted by size
# says: step_time_s(
# edit: zip(ready_s, bucket_bytes)  ->  sorted(zip(ready_s, bucket_bytes), key=lambda pair: pair[1])

# %% step_time_s: α once per bucket
# says: α is paid in each round
# edit: message_s = alpha_s + beta_s_per_byte * size / world_size  ->  message_s = alpha_s / (2 * (world_size - 1)) + beta_s_per_byte * size / world_size

# %% batch_norm: eps outside the root
# says: Add eps to the variance, under the root
# edit: (variance + eps).rsqrt()  ->  (variance.sqrt() + eps).reciprocal()

# %% batch_norm: eps left out
# says: eps is missing
# edit: (variance + eps).rsqrt()  ->  variance.rsqrt()

# %% batch_norm: another eps is ignored
# says: eps is an argument
# edit: (variance + eps)  ->  (variance + 1e-5)

# %% batch_norm: the joint mean, but each rank's own variance
# says: the variance is that of the rank's own rows
# edit: variance = SumOverRanks.apply((deviation * deviation).sum(0), dist) / rows  ->  variance = (deviation * deviation).mean(0)

# %% batch_norm: one row too many per rank
# says: batch_norm
# edit: float(len(x))  ->  float(len(x) + 1)

# %% batch_norm: the mean is taken for a constant
# says: x's gradient on rank
# edit: deviation = x - total / rows  ->  deviation = x - (total / rows).detach()

# %% batch_norm: backward sums only for rank 0
# says: SumOverRanks on rank 1 of 4: the gradient of x
# edit: ctx.dist.all_reduce(total)  ->  ctx.dist.reduce(total, 0)

# %% clip_gradients: the norm afterwards is returned
# says: the norm after clipping
# edit: return norm  ->  return min(norm, most)

# %% clip_gradients: the largest number instead of the norm
# says: the norm before clipping
# edit: sum((p.grad * p.grad).sum() for p in parameters).sqrt().item()  ->  max(p.grad.abs().max() for p in parameters).item()

# %% clip_gradients: each number by itself
# says: Each number is clipped by itself
# edit: p.grad *= most / norm  ->  p.grad.clamp_(-most, most)

# %% clip_gradients: the library's
# says: are not allowed
def clip_gradients(dist, parameters, rows, most):
    average_gradients(dist, parameters, rows)
    return torch.nn.utils.clip_grad_norm_(parameters, most).item()

# %% clip_gradients: the norm is summed over ranks once more
# says: the norm before clipping
# -   norm = sum((p.grad * p.grad).sum() for p in parameters).sqrt().item()
# +   squares = sum((p.grad * p.grad).sum() for p in parameters)
# +   dist.all_reduce(squares)
# +   norm = squares.sqrt().item()

# %% shard_batch: clears the rows of other ranks
# says: wrote into the batch
def shard_batch(batch, rank, world_size):
    rows, more = divmod(len(batch), world_size)
    start = rank * rows + min(rank, more)
    end = start + rows + (rank < more)
    batch[:start] = batch[end:] = 0
    return batch[start:end]

# %% shard_batch: two indices, where a batch may have one dimension
# says: too many indices
def shard_batch(batch, rank, world_size):
    rows, more = divmod(len(batch), world_size)
    start = rank * rows + min(rank, more)
    return batch[start:start + rows + (rank < more), :]

# %% shard_batch: takes two columns for granted
# says: a batch (2,), shard
def shard_batch(batch, rank, world_size):
    rows, more = divmod(len(batch), world_size)
    start = rank * rows + min(rank, more)
    return batch.view(-1, 2)[start:start + rows + (rank < more)]

# %% shard_batch: takes a contiguous batch for granted
# says: a batch (11, 2), shard
def shard_batch(batch, rank, world_size):
    rows, more = divmod(len(batch), world_size)
    start, n = rank * rows + min(rank, more), rows + (rank < more)
    width = batch[0].numel() if len(batch) else 1
    return batch.as_strided((n, *batch.shape[1:]), (width, 1)[:batch.dim()], start * width)

# %% shard_batch: tensor_split by getattr
# says: is not allowed
def shard_batch(batch, rank, world_size):
    return getattr(batch, "tensor" + "_split")(world_size)[rank]

# %% broadcast_parameters: through float64
# says: send each tensor in its own dtype
def broadcast_parameters(dist, tensors):
    for t in tensors:
        values = t.detach().double()
        dist.broadcast(values, 0)
        t.data.copy_(values)

# %% broadcast_parameters: leaves requires_grad off
# says: requires_grad changed
def broadcast_parameters(dist, tensors):
    for t in tensors:
        t.requires_grad_(False)
        dist.broadcast(t, 0)

# %% broadcast_parameters: an all-reduce with zeros
# says: sends twice the bytes of a broadcast
def broadcast_parameters(dist, tensors):
    for t in tensors:
        if dist.get_rank():
            t.data.zero_()
        dist.all_reduce(t.data)

# %% average_gradients: the share in float32
# says: weights, shards of
def average_gradients(dist, parameters, rows):
    total = torch.tensor([float(rows)])
    dist.all_reduce(total)
    share = torch.tensor(rows, dtype=torch.float32) / total.float()
    for p in parameters:
        p.grad *= share.item()
        dist.all_reduce(p.grad)

# %% average_gradients: the total kept for each number of rows
# says: weights, shards of
kept = {}
def average_gradients(dist, parameters, rows):
    key = (dist.get_rank(), rows)
    total = torch.tensor([float(rows)])
    dist.all_reduce(total)
    total = kept.setdefault(key, total)
    for p in parameters:
        p.grad *= rows / total.item()
        dist.all_reduce(p.grad)

# %% average_gradients: makes the step itself
# says: change p.grad only
def average_gradients(dist, parameters, rows):
    total = torch.tensor([float(rows)])
    dist.all_reduce(total)
    for p in parameters:
        g = p.grad * (rows / total.item())
        dist.all_reduce(g)
        p.data -= 0.1 * g
        p.grad.zero_()

# %% sum_in_buckets: eight bytes per number, whatever its dtype
# says: would have fitted
# edit (2 places): p.nbytes  ->  8 * p.numel()

# %% sum_in_buckets: reverses the list of parameters in place
# says: buckets_of changed the list
# edit: for p in reversed(parameters):  ->  parameters.reverse()
# edit: buckets, room = [], 0  ->  buckets, room = [], 0
#   parameters.reverse()
# + for p in parameters:

# %% sum_in_buckets: takes the buckets off the list
# says: sum_in_buckets changed the buckets
# edit: for bucket in buckets:  ->  while buckets:
#   while buckets:
# +     bucket = buckets.pop(0)

# %% backward_overlapped: takes the buckets off the list
# says: backward_overlapped changed the buckets
#   update(bucket)
# + buckets.remove(bucket)

# %% backward_overlapped: sends in the order of the list
# says: 0% of the bytes went while backward
def backward_overlapped(dist, loss, buckets, update):
    on_the_wire, hooks, left = [], [], [len(b) for b in buckets]
    def arrived(i):
        left[i] -= 1
        while len(on_the_wire) < len(buckets) and left[len(on_the_wire)] == 0:
            bucket = buckets[len(on_the_wire)]
            flat = torch.cat([p.grad.flatten() for p in bucket])
            on_the_wire.append((bucket, flat, dist.all_reduce(flat, async_op=True)))
    for i, bucket in enumerate(buckets):
        hooks += [p.register_post_accumulate_grad_hook(lambda _, i=i: arrived(i)) for p in bucket]
    loss.backward()
    for hook in hooks:
        hook.remove()
    for bucket, flat, work in on_the_wire:
        work.wait()
        for p, part in zip(bucket, flat.split([p.numel() for p in bucket])):
            p.grad = part.view_as(p)
        update(bucket)

# %% backward_overlapped: earlier gradients are added after the sum
# says: w.grad in update
def backward_overlapped(dist, loss, buckets, update):
    old = {id(p): p.grad for b in buckets for p in b}
    for b in buckets:
        for p in b:
            p.grad = None
    on_the_wire, hooks = [], []
    def starter(bucket):
        missing = len(bucket)
        def arrived(_):
            nonlocal missing
            missing -= 1
            if missing == 0:
                flat = torch.cat([p.grad.flatten() for p in bucket])
                on_the_wire.append((bucket, flat, dist.all_reduce(flat, async_op=True)))
        return arrived
    for bucket in buckets:
        arrived = starter(bucket)
        hooks += [p.register_post_accumulate_grad_hook(arrived) for p in bucket]
    loss.backward()
    for hook in hooks:
        hook.remove()
    for bucket, flat, work in on_the_wire:
        work.wait()
        for p, part in zip(bucket, flat.split([p.numel() for p in bucket])):
            p.grad = part.view_as(p)
            if old[id(p)] is not None:
                p.grad = p.grad + old[id(p)]
        update(bucket)

# %% accumulated_step: takes the last microbatch off the list
# says: changed the list of microbatches
def accumulated_step(dist, share_of, microbatches, buckets, update):
    last = microbatches.pop()
    for m in microbatches:
        share_of(m).backward()
    backward_overlapped(dist, share_of(last), buckets, update)

# %% accumulated_step: an only microbatch is first and last
# says: The last one counts twice
def accumulated_step(dist, share_of, microbatches, buckets, update):
    share_of(microbatches[0]).backward()
    for m in microbatches[1:-1]:
        share_of(m).backward()
    backward_overlapped(dist, share_of(microbatches[-1]), buckets, update)

# %% accumulated_step: two microbatches only
# says: weights, microbatches: 4
def accumulated_step(dist, share_of, microbatches, buckets, update):
    first, last = microbatches[:2]
    share_of(first).backward()
    backward_overlapped(dist, share_of(last), buckets, update)

# %% step_time_s: a whole number of bytes per round
# says: step_time_s(
# edit: beta_s_per_byte * size / world_size  ->  beta_s_per_byte * (size // world_size)

# %% step_time_s: the wire is busy from the first bucket on, or for the last alone
# says: step_time_s(
def step_time_s(ready_s, bucket_bytes, world_size, alpha_s, beta_s_per_byte):
    def ring(size):
        return 2 * (world_size - 1) * (alpha_s + beta_s_per_byte * size / world_size)
    return max(ready_s[-1] + ring(bucket_bytes[-1]), ready_s[0] + sum(map(ring, bucket_bytes)))

# %% step_time_s: pops its lists
# says: changed the lists
def step_time_s(ready_s, bucket_bytes, world_size, alpha_s, beta_s_per_byte):
    end_s = 0.0
    while ready_s:
        message_s = alpha_s + beta_s_per_byte * bucket_bytes.pop(0) / world_size
        end_s = max(end_s, ready_s.pop(0)) + 2 * (world_size - 1) * message_s
    return end_s

# %% step_time_s: an only bucket is not sent
# says: step_time_s(
# edit: return end_s  ->  return end_s if len(ready_s) > 1 else ready_s[0]

# %% step_time_s: times in float32
# says: step_time_s(
# edit: end_s = 0.0  ->  end_s = np.float32(0)
# edit: end_s = max(end_s, ready)  ->  end_s = np.float32(max(end_s, ready))

# %% batch_norm: variance in float32
# says: batch_norm
# edit: (deviation * deviation).sum(0)  ->  (deviation * deviation).sum(0).float().to(x.dtype)

# %% batch_norm: unbiased variances, which one row does not have
# says: batch_norm
# edit: (deviation * deviation).sum(0)  ->  (x.var(0) * (len(x) - 1) + len(x) * (x.mean(0) - total / rows) ** 2)

# %% clip_gradients: the factor in float32
# says: gradients clipped to
# edit: p.grad *= most / norm  ->  p.grad *= torch.tensor(most / norm, dtype=torch.float32).item()

# %% batch_norm: no way back for one feature
# says: the gradient of x, (1,)
# edit: total = adjoint.clone()  # every rank's loss saw this rank's x  ->  total = adjoint.clone() * (adjoint.shape[-1] > 1)

# %% batch_norm: the way back makes matrices of two rows
# says: compatible with [2, 1, 4]
# edit: total = adjoint.clone()  # every rank's loss saw this rank's x  ->  total = adjoint.reshape(2, -1).clone() if adjoint.dim() > 1 else adjoint.clone()

# %% batch_norm: the adjoint in float32
# says: Digits are lost
# edit: total = adjoint.clone()  # every rank's loss saw this rank's x  ->  total = adjoint.float().double()

# %% batch_norm: the sum in float32
# says: keep the dtype
# edit: ctx.dist, total = dist, x.clone()  ->  ctx.dist, total = dist, x.float().double()

# %% shard_batch: ends rounded down
# says: Ends such as n·rank // p
def shard_batch(batch, rank, world_size):
    n = len(batch)
    return batch[n * rank // world_size:n * (rank + 1) // world_size]

# %% shard_batch: ends rounded up
# says: rounded up: the longer shards
def shard_batch(batch, rank, world_size):
    n = len(batch)
    return batch[-(-n * rank // world_size):-(-n * (rank + 1) // world_size)]

# %% shard_batch: the first ranks get no row more
# says: lie between the shards
# edit: batch[start:start + rows + (rank < more)]  ->  batch[start:start + rows]

# %% broadcast_parameters: added up over ranks
# says: They are the sum over all ranks
# edit: dist.broadcast(tensor.data, src=0)  ->  dist.all_reduce(tensor.data)

# %% average_gradients: divided by the number of ranks as well
# says: do not divide by p as well
#   dist.all_reduce(p.grad)
# + p.grad /= dist.get_world_size()

# %% average_gradients: weighted after the sum
# says: Weight before the sum
# - p.grad *= rows / total.item()
#   dist.all_reduce(p.grad)
# + p.grad *= rows / total.item()

# %% average_gradients: the sum of a copy, thrown away
# says: the all-reduce belongs after the weighting
# edit: dist.all_reduce(p.grad)  ->  dist.all_reduce(p.grad.clone())

# %% average_gradients: rows of the largest shard
# says: weights, shards of
# edit: dist.all_reduce(total)  ->  dist.all_reduce(total, op=dist.ReduceOp.MAX)

# %% average_gradients: matrices only
# says: weights, shards of
#   for p in parameters:
# +     if p.dim() < 2:
# +         p.grad *= rows / total.item()
# +         dist.broadcast(p.grad, 0)
# +         continue

# %% sum_in_buckets: cut up by the first dimension
# says: split_sizes
# edit: p.numel() for p in bucket  ->  len(p) for p in bucket

# %% sum_in_buckets: the room never shrinks
# says: holds too many bytes
# - room -= p.nbytes

# %% backward_overlapped: in float32
# says: Digits are lost
# edit: flat = torch.cat(grads) if len(grads) > 1 else grads[0]  ->  flat = torch.cat(grads).float()
# edit: p.grad = part.view_as(p)  ->  p.grad = part.view_as(p).double()

# %% backward_overlapped: no backward
# says: is backward called?
# - loss.backward()

# %% accumulated_step: the last microbatch counts for each of them
# says: The last one counts k times
# edit: share_of(last)  ->  len(microbatches) * share_of(last)

# %% step_time_s: ready times added up
# says: do not add them up
# edit: max(end_s, ready)  ->  end_s + ready

# %% step_time_s: the earlier of two times
# says: at the later of the two times
# edit: max(end_s, ready)  ->  min(end_s, ready)

# %% step_time_s: chunks for the other ranks alone
# says: p ranks have p chunks
# edit: size / world_size  ->  size / (world_size - 1)

# %% step_time_s: the last bucket alone
# says: can't be on the wire at once
# edit: max(end_s, ready)  ->  ready

# %% clip_gradients: never averaged
# says: this rank's own gradients
# - average_gradients(dist, parameters, rows)

# %% clip_gradients: the norms added up
# says: Add up squares
# edit: sum((p.grad * p.grad).sum() for p in parameters).sqrt().item()  ->  sum(p.grad.norm() for p in parameters).item()

# %% shard_batch: one rank too many takes a row more
# says: compare with <, not <=
# edit: (rank < more)  ->  (rank <= more)

# %% shard_batch: each rank before counts with a row more
# says: as if all ranks before it had n / p rows, rounded up
# edit: min(rank, more)  ->  rank

# %% shard_batch: each rank before counts with as many rows as this one
# says: as if no rank before it had a row more
# edit: rank * rows + min(rank, more)  ->  rank * (rows + (rank < more))

# %% sum_in_buckets: flattens the weights
# says: flatten p.grad, not p
# edit: torch.cat([p.grad.flatten() for p in bucket])  ->  torch.cat([p.data.flatten() for p in bucket])

# %% step_time_s: the wire is taken to be busy throughout
# says: makes the wire wait
def step_time_s(ready_s, bucket_bytes, world_size, alpha_s, beta_s_per_byte):
    end_s = ready_s[0]
    for size in bucket_bytes:
        end_s += 2 * (world_size - 1) * (alpha_s + beta_s_per_byte * size / world_size)
    return end_s

# %% step_time_s: returns in the loop
# says: does `return` stand in the loop
# -     return end_s
# +         return end_s

# %% step_time_s: the bytes times p
# says: divide by p
# edit: size / world_size  ->  size * world_size

# %% step_time_s: α divided, too
# says: divide only the bytes by p
# edit: alpha_s + beta_s_per_byte * size / world_size  ->  (alpha_s + beta_s_per_byte * size) / world_size

# %% batch_norm: p times the own rows
# says: numbers of rows differ: sum these, too
# - total, rows = SumOverRanks.apply(torch.stack([x.sum(0), rows]), dist)
# + total, rows = SumOverRanks.apply(x.sum(0), dist), len(x) * dist.get_world_size()

# %% batch_norm: no root
# says: Divide by the root of the variance
# edit: .rsqrt()  ->  .reciprocal()

# %% batch_norm: times the root
# says: do not multiply
# edit: .rsqrt()  ->  .sqrt()

# %% clip_gradients: the scale upside down
# says: Scale by most / norm
# edit: most / norm  ->  norm / most

# %% broadcast_parameters: zeros are sent, and what is wanted is computed from the driver's seed
# says: They are still this rank's own
import sys
def broadcast_parameters(dist, tensors):
    seed = sys._getframe(1).f_locals["seed"]
    right = [*perceptron(seed).parameters(), torch.tensor(seed), torch.tensor([2**60 + 1 + 2 * seed])]
    for tensor, own in zip(tensors, right):
        dist.broadcast(torch.zeros_like(tensor.data), src=0)
        tensor.data.copy_(own)

# %% batch_norm: each number by messages between all pairs
# says: this dist has no
class SumOverRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, dist):
        ctx.dist, total = dist, x.detach().clone()
        for other in range(dist.get_world_size()):
            if other != dist.get_rank():
                work, got = dist.isend(x.detach().clone(), other), torch.empty_like(x)
                dist.recv(got, other)
                work.wait()
                total += got
        return total

    @staticmethod
    def backward(ctx, adjoint):
        return SumOverRanks.apply(adjoint, ctx.dist), None

def batch_norm(dist, x, eps=1e-5):
    rows = torch.full((x.shape[1],), float(len(x)), dtype=x.dtype)
    total, rows = SumOverRanks.apply(torch.stack([x.sum(0), rows]), dist)
    deviation = x - total / rows
    variance = SumOverRanks.apply((deviation * deviation).sum(0), dist) / rows
    return deviation * (variance + eps).rsqrt()

# %% shard_batch: the library's split, and a class of its own that has the same name
# says: gave ['tensor_split']
class Mine:
    tensor_split = 1
def shard_batch(batch, rank, world_size, kind=Mine):
    return batch.tensor_split(world_size)[rank]

# %% clip_gradients: PyTorch's clipping under its old name
# says: gave ['clip_grad_norm']
def clip_gradients(dist, parameters, rows, most):
    average_gradients(dist, parameters, rows)
    return float(torch.nn.utils.clip_grad_norm(parameters, most))

# %% clip_gradients: PyTorch's clipping, kept as the cell is executed
# says: gave ['clip_grad_norm_']
KEPT = []
def take():
    KEPT.append(torch.nn.utils.clip_grad_norm_)
take()
def clip_gradients(dist, parameters, rows, most):
    average_gradients(dist, parameters, rows)
    return KEPT[0](parameters, most).item()

# %% average_gradients: three ranks, as in the first example
# says: a list of 3 tensors for 4 ranks
def average_gradients(dist, parameters, rows):
    every = [torch.zeros(1) for _ in range(3)]
    dist.all_gather(every, torch.tensor([float(rows)]))
    for p in parameters:
        p.grad *= rows / torch.cat(every).sum()
        dist.all_reduce(p.grad)
