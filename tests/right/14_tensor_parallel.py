# %% gather_columns: transposed rows
def gather_columns(dist, x):
    return two_way(x, lambda x: all_gather(dist, x.T).T, lambda g: reduce_scatter(dist, g.T).T)

# %% gather_columns: one autograd function of its own
class Columns(torch.autograd.Function):
    @staticmethod
    def forward(ctx, dist, x):
        ctx.dist = dist
        out = [torch.zeros_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(out, x.contiguous())
        return torch.hstack(out)

    @staticmethod
    def backward(ctx, g):
        p = ctx.dist.get_world_size()
        width = g.shape[1] // p
        parts = torch.stack([g[:, r * width:(r + 1) * width] for r in range(p)])
        own = torch.empty_like(parts[0])
        ctx.dist.reduce_scatter_tensor(own, parts.view(-1, width).contiguous())
        return None, own

def gather_columns(dist, x):
    return Columns.apply(dist, x)

# %% copied: two autograd functions, which clone
class Copied(torch.autograd.Function):
    @staticmethod
    def forward(ctx, dist, x):
        ctx.dist = dist
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        total = g.clone()
        ctx.dist.all_reduce(total)
        return None, total

class Summed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, dist, x):
        total = x.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx, g):
        return None, g

def copied(dist, x):
    return Copied.apply(dist, x)

def summed(dist, x):
    return Summed.apply(dist, x)

# %% copied: a view forward
# edit: two_way(x, same, lambda gradient  ->  two_way(x, lambda x: x.view_as(x), lambda gradient

# %% mlp: slices, and products by matmul
def shard_mlp(w1, b1, w2, b2, rank, world_size):
    n = len(w1) // world_size
    mine = slice(rank * n, (rank + 1) * n)
    return [w1[mine].clone(), b1[mine].clone(), w2[:, mine].contiguous(), b2.clone()]

def mlp(dist, x, w1, b1, w2, b2):
    hidden = gelu(copied(dist, x) @ w1.T + b1)
    partial = hidden @ w2.mT
    total = summed(dist, partial)
    return b2 + total

# %% mlp: GELU from its formula
def shard_mlp(w1, b1, w2, b2, rank, world_size):
    p = world_size
    return [w1.tensor_split(p)[rank].clone(), b1.tensor_split(p)[rank].clone(),
            w2.tensor_split(p, dim=1)[rank].clone(memory_format=torch.contiguous_format), b2]

def mlp(dist, x, w1, b1, w2, b2):
    z = torch.addmm(b1, copied(dist, x), w1.t())
    h = 0.5 * z * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (z + 0.044715 * z**3)))
    return torch.einsum("nd->nd", summed(dist, torch.einsum("nh,dh->nd", h, w2))) + b2

# %% attention: by a list of heads, with a softmax of its own
def shard_attention(w_in, b_in, w_out, b_out, heads, rank, world_size):
    D = w_out.shape[0]
    n = D // world_size
    rows = torch.cat([torch.arange(j * D + rank * n, j * D + (rank + 1) * n) for j in range(3)])
    return [w_in[rows], b_in[rows], w_out[:, rank * n:(rank + 1) * n].contiguous(), b_out]

def attention(dist, x, w_in, b_in, w_out, b_out, heads):
    x = copied(dist, x)
    n, D = len(x), x.shape[1]
    d = D // heads
    q, k, v = (x @ w_in.T + b_in).chunk(3, 1)
    mask = torch.full((n, n), float("-inf")).triu(1)
    out = []
    for q1, k1, v1 in zip(q.split(d, 1), k.split(d, 1), v.split(d, 1)):
        out.append((q1 @ k1.T / d**0.5 + mask).softmax(1) @ v1)
    return summed(dist, torch.cat(out, 1) @ w_out.T) + b_out

# %% attention: reshapes by einsum
# edit: y.transpose(0, 1).flatten(1)  ->  torch.einsum("htd->thd", y).reshape(len(x), -1)

# %% cross_entropy: a one-hot sum, and the logs gathered in one message
def cross_entropy(dist, logits, targets):
    V = logits.shape[1]
    m = logits.detach().amax(1, keepdim=True).clone()
    dist.all_reduce(m, op=dist.ReduceOp.MAX)
    z = logits - m
    words = torch.arange(V) + dist.get_rank() * V
    hot = (targets[:, None] == words).to(z.dtype)
    both = summed(dist, torch.stack([z.exp().sum(1), (z * hot).sum(1)]))
    return torch.mean(torch.log(both[0]) - both[1])

# %% cross_entropy: where and take_along_dim
def cross_entropy(dist, logits, targets):
    most, _ = logits.detach().max(dim=1)
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    index = targets - dist.get_rank() * logits.size(1)
    outside = index.lt(0) | index.ge(logits.size(1))
    own = torch.take_along_dim(logits, index.masked_fill(outside, 0)[:, None], 1).squeeze(1)
    z_y = summed(dist, torch.where(outside, torch.zeros(()), own))
    total = summed(dist, (logits - most.unsqueeze(1)).exp().sum(-1))
    return (total.log() + most - z_y).sum() / len(targets)

# %% sequence_mlp: two results are named
# - return x + scattered(dist, F.linear(h, w2)) + b2
# + part = F.linear(h, w2)
# + out = scattered(dist, part)
# + return x + out + b2

# %% sequence_mlp: the norm's weights applied by hand
# edit: F.layer_norm(x, x.shape[1:], gain, offset)  ->  F.layer_norm(x, x.shape[1:]) * gain + offset

# %% sequence_mlp: addcmul
# edit: F.layer_norm(x, x.shape[1:], gain, offset)  ->  torch.addcmul(offset, F.layer_norm(x, x.shape[1:]), gain)

# %% sequence_mlp: every step has a name
def gathered(dist, x):
    return two_way(x, lambda t: all_gather(dist, t), lambda t: reduce_scatter(dist, t))

def scattered(dist, x):
    return two_way(x, lambda t: reduce_scatter(dist, t), lambda t: all_gather(dist, t))

def sequence_mlp(dist, x, gain, offset, w1, b1, w2, b2):
    gain, offset, b2 = copied(dist, gain), copied(dist, offset), copied(dist, b2)
    own = F.layer_norm(x, (x.shape[1],), gain, offset)
    whole = gathered(dist, own)
    pre = whole @ w1.T + b1
    h = gelu(pre)
    terms = h @ w2.T
    tokens = scattered(dist, terms)
    with_bias = tokens + b2
    return x + with_bias

# %% GatheredLinear: named tensors
def _gather(dist, x):
    whole = x.new_empty(len(x) * dist.get_world_size(), x.shape[1])
    return whole, dist.all_gather_into_tensor(whole, x, async_op=True)

class GatheredLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, dist, x, w, b):
        ctx.save_for_backward(x, w)
        ctx.dist = dist
        whole, handle = _gather(dist, x)
        handle.wait()
        return whole @ w.T + b

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        whole, gathering = _gather(ctx.dist, x)
        gx = g @ w
        own = torch.empty_like(x)
        gathering.wait()
        scattering = ctx.dist.reduce_scatter_tensor(own, gx, async_op=True)
        gw = g.T @ whole
        gb = g.sum(dim=0)
        scattering.wait()
        return None, own, gw, gb

# %% collective_for: a table
def collective_for(have, want):
    table = {
        "replicated": {"replicated": "nothing", "rows": "slice", "columns": "slice"},
        "partial": {"replicated": "all-reduce", "rows": "reduce-scatter", "columns": "reduce-scatter"},
        "rows": {"replicated": "all-gather", "rows": "nothing", "columns": "all-to-all"},
        "columns": {"replicated": "all-gather", "columns": "nothing", "rows": "all-to-all"},
    }
    return table[have][want]

# %% mlp: a tuple of shards
def shard_mlp(w1, b1, w2, b2, rank, world_size):
    p = world_size
    return (w1.chunk(p)[rank].clone(), b1.chunk(p)[rank].clone(),
            w2.chunk(p, 1)[rank].contiguous().clone(), b2.clone())

def mlp(dist, x, w1, b1, w2, b2):
    return summed(dist, F.linear(gelu(F.linear(copied(dist, x), w1, b1)), w2)) + b2

# %% copied: a hook, and a difference that has no gradient
def copied(dist, x):
    y = x.view_as(x)
    if y.requires_grad:
        y.register_hook(lambda gradient: all_reduce(dist, gradient))
    return y

def summed(dist, x):
    return x + (all_reduce(dist, x.detach()) - x.detach())

# %% sequence_mlp: the small weights in one message, the norm by hand
# - gain, offset, b2 = (copied(dist, w) for w in (gain, offset, b2))
# - normed = F.layer_norm(x, x.shape[1:], gain, offset)
# + gain, offset, b2 = copied(dist, torch.cat([gain, offset, b2])).chunk(3)
# + mean, var = x.mean(1, keepdim=True), x.var(1, unbiased=False, keepdim=True)
# + normed = (x - mean) / (var + 1e-5).sqrt() * gain + offset
