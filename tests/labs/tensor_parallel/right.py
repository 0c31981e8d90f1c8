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

# %% gather_columns: one tensor gathered and its axes moved, the gradient exchanged and added
def gather_columns(dist, x):
    p, (n, d) = dist.get_world_size(), x.shape

    def forward(x):
        whole = x.new_zeros(p, n, d)
        dist.all_gather_into_tensor(whole.view(p * n, d), x.contiguous())
        return whole.permute(1, 0, 2).reshape(n, p * d)

    def backward(g):
        mine = g.reshape(n, p, d).transpose(0, 1).contiguous()
        theirs = torch.empty_like(mine)
        dist.all_to_all_single(theirs, mine)
        return theirs.sum(0)

    return two_way(x, forward, backward)

# %% copied: an all-reduce of two halves
def _sum(dist, x):
    p = dist.get_world_size()
    flat = F.pad(x.flatten(), (0, -x.numel() % p))
    own = flat.new_empty(len(flat) // p)
    dist.reduce_scatter_tensor(own, flat)
    whole = torch.empty_like(flat)
    dist.all_gather_into_tensor(whole, own)
    return whole[:x.numel()].view_as(x)

def copied(dist, x):
    return two_way(x, lambda t: t, lambda t: _sum(dist, t))

def summed(dist, x):
    return two_way(x, lambda t: _sum(dist, t), lambda t: t)

# %% copied: everything is gathered and added here
def copied(dist, x):
    def back(g):
        return torch.stack(list(all_gather(dist, g[None]))).sum(dim=0)
    return two_way(x, torch.clone, back)

def summed(dist, x):
    def forward(x):
        total = torch.zeros_like(x)
        for term in all_gather(dist, x.unsqueeze(0)):
            total += term
        return total
    return two_way(x, forward, torch.clone)

# %% mlp: every p-th hidden unit
def shard_mlp(w1, b1, w2, b2, rank, world_size):
    own = torch.arange(rank, len(b1), world_size)
    return [w1.index_select(0, own), b1.index_select(0, own), w2.index_select(1, own), b2.clone()]

def mlp(dist, x, w1, b1, w2, b2):
    return torch.add(summed(dist, gelu(copied(dist, x).matmul(w1.mT).add(b1)).matmul(w2.mT)), b2)

# %% attention: einsum and a mask
def shard_attention(w_in, b_in, w_out, b_out, heads, rank, world_size):
    D = len(b_out)
    own = slice(D * rank // world_size, D * (rank + 1) // world_size)
    q, k, v = w_in.chunk(3)
    bq, bk, bv = b_in.chunk(3)
    return [torch.vstack((q[own], k[own], v[own])), torch.hstack((bq[own], bk[own], bv[own])),
            w_out[:, own].clone(), b_out.clone()]

def attention(dist, x, w_in, b_in, w_out, b_out, heads):
    T, D = x.shape
    q, k, v = (F.linear(copied(dist, x), w_in) + b_in).reshape(T, 3, -1, D // heads).unbind(1)
    scores = torch.einsum("thd,shd->hts", q, k) / (D // heads) ** 0.5
    later = torch.ones(T, T, dtype=torch.bool).triu(1)
    odds = F.softmax(scores.masked_fill(later, float("-inf")), dim=-1)
    y = torch.einsum("hts,shd->thd", odds, v).reshape(T, -1)
    return b_out + summed(dist, y @ w_out.mT)

# %% attention: PyTorch's own mask, and each of q, k, v from its own rows
def shard_attention(w_in, b_in, w_out, b_out, heads, rank, world_size):
    def rows(w):
        return torch.cat([part.chunk(world_size)[rank] for part in w.chunk(3)])
    return rows(w_in), rows(b_in), w_out.tensor_split(world_size, 1)[rank].contiguous(), b_out

def attention(dist, x, w_in, b_in, w_out, b_out, heads):
    x, n = copied(dist, x), heads // dist.get_world_size()
    q, k, v = (
        F.linear(x, w, b).unflatten(1, (n, -1)).movedim(1, 0)[None]
        for w, b in zip(w_in.chunk(3), b_in.chunk(3))
    )
    mask = torch.tril(torch.ones(len(x), len(x), dtype=torch.bool))
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    return summed(dist, F.linear(y[0].movedim(0, 1).reshape(len(x), -1), w_out)) + b_out

# %% cross_entropy: an autograd function with the slope as a formula
class Entropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, dist, logits, targets):
        width = logits.shape[1]
        most = logits.amax(1)
        dist.all_reduce(most, op=dist.ReduceOp.MAX)
        powers = (logits - most[:, None]).exp()
        total = all_reduce(dist, powers.sum(1))
        words = torch.arange(dist.get_rank() * width, (dist.get_rank() + 1) * width)
        hot = (targets[:, None] == words[None]).to(logits.dtype)
        target = all_reduce(dist, (logits * hot).sum(1))
        ctx.save_for_backward(powers / total[:, None] - hot)
        return (total.log() + most - target).mean()

    @staticmethod
    def backward(ctx, slope):
        (odds,) = ctx.saved_tensors
        return None, odds * slope / len(odds), None

def cross_entropy(dist, logits, targets):
    return Entropy.apply(dist, logits, targets)

# %% sequence_mlp: two autograd functions, one the other's way back
class Gathered(torch.autograd.Function):
    @staticmethod
    def forward(ctx, dist, x):
        ctx.dist = dist
        return all_gather(dist, x)

    @staticmethod
    def backward(ctx, g):
        return None, reduce_scatter(ctx.dist, g)

class Scattered(torch.autograd.Function):
    @staticmethod
    def forward(ctx, dist, x):
        ctx.dist = dist
        return reduce_scatter(dist, x)

    @staticmethod
    def backward(ctx, g):
        return None, all_gather(ctx.dist, g)

def gathered(dist, x):
    return Gathered.apply(dist, x)

def scattered(dist, x):
    return Scattered.apply(dist, x)

def sequence_mlp(dist, x, gain, offset, w1, b1, w2, b2):
    normed, _, _ = torch.native_layer_norm(x, x.shape[1:], copied(dist, gain), copied(dist, offset), 1e-5)
    hidden = gelu(torch.addmm(b1, gathered(dist, normed), w1.T))
    return x + (scattered(dist, hidden @ w2.T) + copied(dist, b2))

# %% sequence_mlp: lists of tokens by rank
def gathered(dist, x):
    def forward(x):
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, x)
        return torch.cat(parts)
    def back(g):
        own = torch.empty_like(x)
        dist.reduce_scatter(own, [part.contiguous() for part in g.tensor_split(dist.get_world_size())])
        return own
    return two_way(x, forward, back)

def scattered(dist, x):
    def forward(x):
        parts = [part.contiguous() for part in x.chunk(dist.get_world_size())]
        own = torch.empty_like(parts[0])
        dist.reduce_scatter(own, parts)
        return own
    def back(g):
        parts = [torch.empty_like(g) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, g.contiguous())
        return torch.vstack(parts)
    return two_way(x, forward, back)

def sequence_mlp(dist, x, gain, offset, w1, b1, w2, b2):
    whole = gathered(dist, F.layer_norm(x, [x.shape[1]], copied(dist, gain), copied(dist, offset)))
    return scattered(dist, gelu(whole @ w1.T + b1) @ w2.T) + copied(dist, b2) + x

# %% GatheredLinear: lists of messages, sums by einsum
class GatheredLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, dist, x, w, b):
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, x.contiguous())
        ctx.save_for_backward(x, w)
        ctx.dist = dist
        return torch.addmm(b, torch.cat(parts), w.t())

    @staticmethod
    def backward(ctx, g):
        (x, w), dist, p = ctx.saved_tensors, ctx.dist, ctx.dist.get_world_size()
        parts = [torch.empty_like(x) for _ in range(p)]
        gather = dist.all_gather(parts, x.contiguous(), async_op=True)
        gx = torch.mm(g, w)
        gather.wait()
        own = torch.empty_like(x)
        scatter = dist.reduce_scatter(own, list(gx.chunk(p)), async_op=True)
        gw = torch.einsum("th,td->hd", g, torch.cat(parts))
        gb = torch.einsum("th->h", g)
        scatter.wait()
        return None, own, gw, gb

# %% grouped_attention: copies of key heads, a softmax of its own, one message for both weights
def shard_grouped(w_q, w_k, w_v, w_out, key_heads, rank, world_size):
    D, d = len(w_q), len(w_k) // key_heads
    n = D // world_size
    heads = range(rank * n // d, (rank + 1) * n // d)
    per = D // d // key_heads
    keys = sorted({h // per for h in heads})
    rows = torch.cat([torch.arange(k * d, (k + 1) * d) for k in keys])
    mine = slice(rank * n, (rank + 1) * n)
    return [w_q[mine].clone(), w_k[rows], w_v[rows], w_out[:, mine].contiguous()]

def grouped_attention(dist, x, w_q, w_k, w_v, w_out, d, group):
    def back(g):
        g = g.clone()
        dist.all_reduce(g, group=group)
        return g
    x, T = copied(dist, x), len(x)
    w_kv = two_way(torch.stack([w_k, w_v]), lambda w: w.clone(), back)
    q = (x @ w_q.T).view(T, -1, d)
    k, v = ((x @ w.T).view(T, -1, d) for w in w_kv)
    times = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(times, 1), v.repeat_interleave(times, 1)
    scores = torch.einsum("thd,shd->hts", q, k) * d**-0.5 + torch.full((T, T), float("-inf")).triu(1)
    y = torch.einsum("hts,shd->thd", scores.softmax(-1), v).flatten(1)
    return summed(dist, y @ w_out.T)

# %% grouped_attention: an autograd function, and a loop over query heads
class OfGroup(torch.autograd.Function):
    @staticmethod
    def forward(ctx, dist, group, w):
        ctx.dist, ctx.group = dist, group
        return w.clone()

    @staticmethod
    def backward(ctx, g):
        parts = [torch.empty_like(g) for _ in range(ctx.dist.get_world_size(ctx.group))]
        ctx.dist.all_gather(parts, g.contiguous(), group=ctx.group)
        return None, None, sum(parts)

def shard_grouped(w_q, w_k, w_v, w_out, key_heads, rank, world_size):
    if key_heads >= world_size:
        k, v = (w.chunk(world_size)[rank].clone() for w in (w_k, w_v))
    else:
        share = world_size // key_heads
        k, v = (w.chunk(key_heads)[rank // share].clone() for w in (w_k, w_v))
    return [w_q.chunk(world_size)[rank].clone(), k, v, w_out.chunk(world_size, 1)[rank].contiguous()]

def grouped_attention(dist, x, w_q, w_k, w_v, w_out, d, group):
    x, out = copied(dist, x), []
    ks = (x @ OfGroup.apply(dist, group, w_k).T).split(d, 1)
    vs = (x @ OfGroup.apply(dist, group, w_v).T).split(d, 1)
    qs = (x @ w_q.T).split(d, 1)
    for h, q in enumerate(qs):
        at = h * len(ks) // len(qs)
        out.append(F.scaled_dot_product_attention(q[None], ks[at][None], vs[at][None], is_causal=True)[0])
    return summed(dist, torch.cat(out, 1) @ w_out.T)

# %% dispatch: lists of tensors by rank, counts gathered
def dispatch(dist, x, choice):
    p, r = dist.get_world_size(), dist.get_rank()
    places = [torch.nonzero(choice == e)[:, 0] for e in range(p)]
    counts = all_gather(dist, torch.tensor([[len(place) for place in places]]))
    took = counts[:, r].tolist()
    return _swapped(dist, torch.cat([x[place] for place in places]), counts[r].tolist(), took), (places, counts, x.shape)

def _swapped(dist, x, gave, took):
    def move(gave, took):
        def moved(x):
            got = [x.new_empty(n, x.shape[1]) for n in took]
            dist.all_to_all(got, [part.contiguous() for part in x.split(gave)])
            return torch.cat(got)
        return moved
    return two_way(x, move(gave, took), move(took, gave))

def combine(dist, rows, ticket):
    places, counts, shape = ticket
    r = dist.get_rank()
    home = _swapped(dist, rows, counts[:, r].tolist(), counts[r].tolist())
    return torch.zeros(shape).index_copy(0, torch.cat(places), home)

# %% dispatch: an autograd function that exchanges its lists, messages between pairs
class Move(torch.autograd.Function):
    @staticmethod
    def forward(ctx, dist, x, gave, took):
        ctx.dist, ctx.lists = dist, (gave, took)
        parts, me = list(x.detach().split(gave)), dist.get_rank()
        got = [x.new_empty(n, x.shape[1]) for n in took]
        got[me].copy_(parts[me])
        works = [dist.irecv(got[r], r) for r in range(len(took)) if r != me and took[r]]
        works += [dist.isend(parts[r].contiguous(), r) for r in range(len(gave)) if r != me and gave[r]]
        for work in works:
            work.wait()
        return torch.cat(got)

    @staticmethod
    def backward(ctx, g):
        gave, took = ctx.lists
        return None, Move.apply(ctx.dist, g.contiguous(), took, gave), None, None

def dispatch(dist, x, choice):
    p = dist.get_world_size()
    gave = (choice[:, None] == torch.arange(p)).sum(0)
    took = torch.zeros(p, dtype=gave.dtype)
    dist.all_to_all_single(took, gave)
    _, order = torch.sort(choice, stable=True)
    ticket = {"order": order, "gave": gave.tolist(), "took": took.tolist()}
    return Move.apply(dist, x.index_select(0, order), ticket["gave"], ticket["took"]), ticket

def combine(dist, rows, ticket):
    home = Move.apply(dist, rows, ticket["took"], ticket["gave"])
    out = [None] * len(home)
    for row, place in zip(home, ticket["order"].tolist()):
        out[place] = row
    return torch.stack(out) if out else home

# %% gather_columns: one batch of sends and receives
def gather_columns(dist, x):
    p, me = dist.get_world_size(), dist.get_rank()
    w = x.shape[1]

    def there(x):
        blocks = x.new_empty(p, *x.shape)
        blocks[me] = x
        ops = [dist.P2POp(dist.isend, x.contiguous(), r) for r in range(p) if r != me]
        ops += [dist.P2POp(dist.irecv, blocks[r], r) for r in range(p) if r != me]
        for work in dist.batch_isend_irecv(ops) if ops else []:
            work.wait()
        return blocks.transpose(0, 1).flatten(1)

    def back(g):
        own = g.new_empty(len(g), w)
        dist.reduce_scatter(own, list(map(torch.clone, g.split(w, 1))))
        return own

    return two_way(x, there, back)

# %% copied: reduce, then broadcast
def _total(dist, x):
    t = x.clone(memory_format=torch.contiguous_format)
    dist.reduce(t, 0)
    dist.broadcast(t, 0)
    return t

def copied(dist, x):
    return two_way(x, same, functools.partial(_total, dist))

def summed(dist, x):
    return two_way(x, functools.partial(_total, dist), same)

# %% sequence_mlp: partial functions, and a sum of three
def gathered(dist, x):
    return two_way(x, functools.partial(all_gather, dist), functools.partial(reduce_scatter, dist))

def scattered(dist, x):
    return two_way(x, functools.partial(reduce_scatter, dist), functools.partial(all_gather, dist))

def sequence_mlp(dist, x, gain, offset, w1, b1, w2, b2):
    z = F.layer_norm(x, (x.size(-1),), weight=copied(dist, gain), bias=copied(dist, offset))
    return torch.stack([x, scattered(dist, gelu(gathered(dist, z) @ w1.mT + b1) @ w2.mT), copied(dist, b2).expand_as(x)]).sum(0)

# %% grouped_attention: query heads in a second axis
def shard_grouped(w_q, w_k, w_v, w_out, key_heads, rank, world_size):
    d = len(w_k) // key_heads
    lo = rank * key_heads // world_size
    hi = max(lo + 1, (rank + 1) * key_heads // world_size)
    n = len(w_q) // world_size
    return [w_q[rank * n:(rank + 1) * n].clone(), w_k[lo * d:hi * d].clone(), w_v[lo * d:hi * d].clone(),
            w_out[:, rank * n:(rank + 1) * n].clone()]

def grouped_attention(dist, x, w_q, w_k, w_v, w_out, d, group):
    def added(g):
        t = g.clone().contiguous()
        dist.all_reduce(t, op=dist.ReduceOp.SUM, group=group)
        return t
    T = len(x)
    x = copied(dist, x)
    q = F.linear(x, w_q).view(T, -1, d).movedim(1, 0)
    k = F.linear(x, two_way(w_k, same, added)).view(T, -1, d).movedim(1, 0)
    v = F.linear(x, two_way(w_v, same, added)).view(T, -1, d).movedim(1, 0)
    n = len(q) // len(k)
    scores = torch.matmul(q.unflatten(0, (len(k), n)), k[:, None].mT) / d**0.5
    scores = scores.masked_fill(~torch.ones(T, T, dtype=torch.bool).tril(), -torch.inf)
    y = (scores.softmax(-1) @ v[:, None]).flatten(0, 1)
    return summed(dist, F.linear(y.movedim(0, 1).reshape(T, -1), w_out))

# %% gather_columns: an all-to-all forward, a reduce to each rank backward
def gather_columns(dist, x):
    p, me = dist.get_world_size(), dist.get_rank()

    def there(x):
        sent = x[None].expand(p, *x.shape).contiguous()
        came = torch.empty_like(sent)
        dist.all_to_all_single(came, sent)
        return came.permute(1, 0, 2).reshape(len(x), -1)

    def back(gradient):
        parts = torch.stack(gradient.split(gradient.shape[1] // p, 1))
        for r in range(p):
            dist.reduce(parts[r], r)
        return parts[me].clone()

    return two_way(x, there, back) if p > 1 else x.clone()

# %% gather_columns: one broadcast per rank, and rows backward
def gather_columns(dist, x):
    p, me = dist.get_world_size(), dist.get_rank()
    width = x.shape[1]

    class Gather(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            pieces = [x.contiguous().clone() if r == me else torch.empty(x.shape, dtype=x.dtype) for r in range(p)]
            for r, piece in enumerate(pieces):
                dist.broadcast(piece, src=r)
            return torch.hstack(pieces)

        @staticmethod
        def backward(ctx, gradient):
            rows = gradient.T.contiguous()
            return reduce_scatter(dist, rows).T

    return Gather.apply(x)

# %% copied: two functions, one of them once_differentiable
from torch.autograd.function import once_differentiable

class Enter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, dist, x):
        ctx.dist = dist
        return x.view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        g = g.detach().clone(memory_format=torch.contiguous_format)
        ctx.dist.all_reduce(g, op=ctx.dist.ReduceOp.SUM)
        return None, g

class Leave(torch.autograd.Function):
    @staticmethod
    def forward(ctx, dist, x):
        y = x.detach().clone(memory_format=torch.contiguous_format)
        dist.all_reduce(y)
        return y

    @staticmethod
    def backward(ctx, g):
        return None, g.clone()

def copied(dist, x):
    return Enter.apply(dist, x)

def summed(dist, x):
    return Leave.apply(dist, x)

# %% copied: messages to everyone, added in the order of ranks
def copied(dist, x):
    return two_way(x, same, lambda g: everywhere(dist, g))

def summed(dist, x):
    return two_way(x, lambda x: everywhere(dist, x), same)

def everywhere(dist, x):
    p, me = dist.get_world_size(), dist.get_rank()
    x = x.contiguous()
    came = {r: torch.empty_like(x) if r != me else x.clone() for r in range(p)}
    works = [dist.isend(x, r) for r in range(p) if r != me] + [dist.irecv(came[r], r) for r in range(p) if r != me]
    for work in works:
        work.wait()
    total = torch.zeros_like(x)
    for r in range(p):
        total = total + came[r]
    return total

# %% mlp: addmm, with each rank's units in reversed order
def shard_mlp(w1, b1, w2, b2, rank, world_size):
    n = len(b1) // world_size
    units = torch.arange(rank * n, (rank + 1) * n).flip(0)
    return (w1[units], b1[units], w2[:, units], b2)

def mlp(dist, x, w1, b1, w2, b2):
    hidden = gelu(torch.addmm(b1, copied(dist, x), w1.t()))
    out = summed(dist, hidden.mm(w2.t()))
    return out + b2.expand_as(out)

# %% cross_entropy: targets in a loop, the maximum added back
def cross_entropy(dist, logits, targets):
    n = logits.shape[1]
    first = n * dist.get_rank()
    m = logits.detach().amax(1)
    dist.all_reduce(m, op=dist.ReduceOp.MAX)
    total = summed(dist, torch.exp(logits - m.unsqueeze(1)).sum(dim=1))
    picked = torch.stack([logits[t, y - first] if first <= y < first + n else logits.new_zeros(())
                          for t, y in enumerate(targets.tolist())])
    return torch.mean(torch.log(total) + m - summed(dist, picked))

# %% sequence_mlp: all-to-all and a sum in place of reduce-scatter
class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, dist, x):
        ctx.dist = dist
        return all_gather(dist, x)

    @staticmethod
    def backward(ctx, g):
        p = ctx.dist.get_world_size()
        came = torch.empty_like(g.contiguous())
        ctx.dist.all_to_all_single(came, g.contiguous())
        return None, came.unflatten(0, (p, -1)).sum(0)

class Scatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, dist, x):
        ctx.dist, p = dist, dist.get_world_size()
        came = torch.empty_like(x)
        dist.all_to_all_single(came, x.contiguous())
        return came.unflatten(0, (p, -1)).sum(0)

    @staticmethod
    def backward(ctx, g):
        return None, all_gather(ctx.dist, g)

def gathered(dist, x):
    return Gather.apply(dist, x)

def scattered(dist, x):
    return Scatter.apply(dist, x)

def sequence_mlp(dist, x, gain, offset, w1, b1, w2, b2):
    a, b, c = copied(dist, gain), copied(dist, offset), copied(dist, b2)
    h = gathered(dist, F.layer_norm(x, x.shape[1:], a, b))
    return x + scattered(dist, F.linear(gelu(F.linear(h, w1, b1)), w2)) + c

# %% collective_for: by sets
def collective_for(have, want):
    cut = {"rows", "columns"}
    if {have, want} == cut:
        return "all-to-all"
    if have in cut and want not in cut:
        return "all-gather"
    if have == "partial":
        return "reduce-scatter" if want in cut else "all-reduce"
    return "slice" if want in cut and have not in cut else "nothing"

# %% GatheredLinear: setup_context, and lists by rank
class GatheredLinear(torch.autograd.Function):
    @staticmethod
    def forward(dist, x, w, b):
        return all_gather(dist, x) @ w.T + b

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.dist, x, w, _ = inputs
        ctx.save_for_backward(x, w)

    @staticmethod
    def backward(ctx, gradient):
        x, w = ctx.saved_tensors
        shards = [torch.empty_like(x) for _ in range(ctx.dist.get_world_size())]
        work = ctx.dist.all_gather(shards, x.contiguous(), async_op=True)
        partial = gradient.matmul(w)
        work.wait()
        slope = torch.empty_like(x)
        work = ctx.dist.reduce_scatter(slope, [part.contiguous() for part in partial.chunk(len(shards))], async_op=True)
        products = gradient.T @ torch.cat(shards)
        work.wait()
        return None, slope, products, gradient.sum(0)

# %% grouped_attention: heads by number, repeated, with a mask
def shard_grouped(w_q, w_k, w_v, w_out, key_heads, rank, world_size):
    d = len(w_k) // key_heads
    n = len(w_q) // world_size
    heads = sorted({h * key_heads * d // len(w_q) for h in range(rank * n // d, (rank + 1) * n // d)})
    rows = torch.tensor([h * d + i for h in heads for i in range(d)])
    return (w_q[rank * n:(rank + 1) * n].clone(), w_k[rows], w_v[rows], w_out[:, rank * n:(rank + 1) * n].clone())

def grouped_attention(dist, x, w_q, w_k, w_v, w_out, d, group):
    t = len(x)

    def shared(w):
        def back(g):
            g = g.clone(memory_format=torch.contiguous_format)
            dist.all_reduce(g, group=group)
            return g
        return two_way(w, lambda w: w, back)

    z = copied(dist, x)
    q = (z @ w_q.T).view(t, -1, d).transpose(0, 1)
    k, v = ((z @ shared(w).T).view(t, -1, d).transpose(0, 1).repeat_interleave(len(w_q) // len(w), 0)
            for w in (w_k, w_v))
    mask = torch.ones(t, t, dtype=torch.bool).tril()
    y = F.scaled_dot_product_attention(q[None], k[None], v[None], attn_mask=mask)[0]
    return summed(dist, y.transpose(0, 1).reshape(t, -1) @ w_out.T)

# %% copied: partial functions
def copied(dist, x):
    return two_way(x, same, functools.partial(all_reduce, dist))

def summed(dist, x):
    return two_way(x, functools.partial(all_reduce, dist), same)

# %% collective_for: an enumeration
from enum import StrEnum

class Way(StrEnum):
    NOTHING = "nothing"
    SLICE = "slice"
    ALL_GATHER = "all-gather"
    ALL_REDUCE = "all-reduce"
    REDUCE_SCATTER = "reduce-scatter"
    ALL_TO_ALL = "all-to-all"

def collective_for(have, want):
    if have == want:
        return Way.NOTHING
    ways = {
        "replicated": (None, Way.SLICE),
        "partial": (Way.ALL_REDUCE, Way.REDUCE_SCATTER),
    }
    whole, cut = ways.get(have, (Way.ALL_GATHER, Way.ALL_TO_ALL))
    return whole if want == "replicated" else cut

# %% dispatch: a permutation matrix
def dispatch(dist, x, choice):
    p = dist.get_world_size()
    places = [i for expert in range(p) for i, c in enumerate(choice.tolist()) if c == expert]
    matrix = torch.eye(len(x), dtype=x.dtype)[places]
    gave = F.one_hot(choice, p).sum(0) if len(choice) else torch.zeros(p, dtype=torch.int64)
    took = torch.zeros_like(gave)
    dist.all_to_all_single(took, gave)
    lists = gave.tolist(), took.tolist()
    return travel(dist, matrix @ x, *lists), (matrix, *lists)

def travel(dist, x, gave, took):
    def forth(rows):
        came = rows.new_zeros(sum(took), rows.shape[1])
        dist.all_to_all_single(came, rows.contiguous(), took, gave)
        return came

    def back(rows):
        came = rows.new_zeros(sum(gave), rows.shape[1])
        dist.all_to_all_single(came, rows.contiguous(), gave, took)
        return came

    return two_way(x, forth, back)

def combine(dist, rows, ticket):
    matrix, gave, took = ticket
    return matrix.T @ travel(dist, rows, took, gave)
