# %% gather_columns: the gradient is cut, not added
# says: Nobody adds
# - own = torch.empty_like(parts[0])
# - dist.reduce_scatter(own, parts)
# - return own
# + return parts[dist.get_rank()]

# %% gather_columns: no gradient at all
# says: does x pass through two_way
# edit: two_way(x, gather, back)  ->  gather(x.detach())

# %% gather_columns: the whole gradient is added, then cut
# says: thrown away
# - parts = [part.contiguous() for part in gradient.chunk(p, 1)]
# - own = torch.empty_like(parts[0])
# - dist.reduce_scatter(own, parts)
# - return own
# + return all_reduce(dist, gradient).chunk(p, 1)[dist.get_rank()].contiguous()

# %% gather_columns: the mean of the ranks' gradients
# says: not the mean
# edit: dist.reduce_scatter(own, parts)  ->  dist.reduce_scatter(own, parts, op=dist.ReduceOp.AVG)

# %% gather_columns: rows where columns belong
# says: shapes cannot be multiplied
def gather_columns(dist, x):
    def back(gradient):
        return reduce_scatter(dist, gradient)
    return two_way(x, lambda x: all_gather(dist, x), back)

# %% copied: nothing comes back
# says: own use of x only
# edit: two_way(x, same, lambda gradient: all_reduce(dist, gradient))  ->  x * 1

# %% copied: x is added forward
# says: it is there already
# - return two_way(x, same, lambda gradient: all_reduce(dist, gradient))
# + return two_way(x, lambda x: all_reduce(dist, x), same)

# %% copied: summed adds its gradient, too
# says: p times too large
# - return two_way(x, lambda x: all_reduce(dist, x), same)
# + return two_way(x, lambda x: all_reduce(dist, x), lambda gradient: all_reduce(dist, gradient))

# %% copied: the all-reduce writes into what it was given
# says: stay as it was
# - return two_way(x, lambda x: all_reduce(dist, x), same)
# + def add(x):
# +     dist.all_reduce(x)
# +     return x.clone()
# + return two_way(x, add, same)

# %% mlp: the backward all-reduce is forgotten
# says: nobody adds
# - h = gelu(F.linear(copied(dist, x), w1, b1))
# - return summed(dist, F.linear(h, w2)) + b2
# + return summed(dist, F.linear(gelu(F.linear(x, w1, b1)), w2)) + b2

# %% mlp: the bias is added on each rank before the sum
# says: b2 is added p times
# - h = gelu(F.linear(copied(dist, x), w1, b1))
# - return summed(dist, F.linear(h, w2)) + b2
# + return summed(dist, F.linear(gelu(F.linear(copied(dist, x), w1, b1)), w2, b2))

# %% mlp: a p-th of the bias on each rank, right forward and wrong backward
# says: Add b2 after it
# - h = gelu(F.linear(copied(dist, x), w1, b1))
# - return summed(dist, F.linear(h, w2)) + b2
# + hidden = gelu(F.linear(copied(dist, x), w1, b1))
# + return summed(dist, F.linear(hidden, w2, b2 / dist.get_world_size()))

# %% mlp: the bias on rank 0 only
# says: ∂b2 of block 1
# - h = gelu(F.linear(copied(dist, x), w1, b1))
# - return summed(dist, F.linear(h, w2)) + b2
# + own = b2 if dist.get_rank() == 0 else 0 * b2
# + return summed(dist, F.linear(gelu(F.linear(copied(dist, x), w1, b1)), w2, own))

# %% mlp: the bias's gradient is added, too
# says: More than ∂x crosses
# - h = gelu(F.linear(copied(dist, x), w1, b1))
# - return summed(dist, F.linear(h, w2)) + b2
# + return summed(dist, F.linear(gelu(F.linear(copied(dist, x), w1, b1)), w2)) + copied(dist, b2)

# %% mlp: GELU of partial sums, w1 cut by its inputs
# says: GELU(a + b) is not
def shard_mlp(w1, b1, w2, b2, rank, world_size):
    p = world_size
    own = [w1.chunk(p, 1)[rank], b1.chunk(p)[rank], w2.chunk(p)[rank], b2]
    return [w.clone(memory_format=torch.contiguous_format) for w in own]

def mlp(dist, x, w1, b1, w2, b2):
    p, rank, width = dist.get_world_size(), dist.get_rank(), len(b1)
    own = copied(dist, x).chunk(p, 1)[rank]
    b1 = F.pad(b1, (rank * width, (p - 1 - rank) * width))
    h = summed(dist, gelu(F.linear(own, w1, b1)))
    return gather_columns(dist, F.linear(copied(dist, h), w2)) + b2

# %% mlp: every rank holds everything
# says: elements of [w1, b1, w2, b2]
def shard_mlp(w1, b1, w2, b2, rank, world_size):
    return [w1, b1, w2, b2]

def mlp(dist, x, w1, b1, w2, b2):
    return F.linear(gelu(F.linear(x, w1, b1)), w2, b2)

# %% mlp: the hidden units are gathered, as in part 1
# says: bytes sent forward
# edit: w2.chunk(world_size, 1)  ->  w2.chunk(world_size)
# - h = gelu(F.linear(copied(dist, x), w1, b1))
# - return summed(dist, F.linear(h, w2)) + b2
# + h = gather_columns(dist, gelu(F.linear(copied(dist, x), w1, b1)))
# + return gather_columns(dist, F.linear(h, w2)) + b2

# %% attention: PyTorch's matrix is cut into p equal pieces
# says: queries and no values
def shard_attention(w_in, b_in, w_out, b_out, heads, rank, world_size):
    return [w_in.chunk(world_size)[rank].clone(), b_in.chunk(world_size)[rank].clone(),
            w_out.chunk(world_size, 1)[rank].contiguous().clone(), b_out]

def attention(dist, x, w_in, b_in, w_out, b_out, heads):
    qkv = F.linear(copied(dist, x), w_in, b_in)
    qkv = qkv.view(len(x), 3, heads // dist.get_world_size(), -1).permute(1, 2, 0, 3)
    y = F.scaled_dot_product_attention(*qkv.unsqueeze(1), is_causal=True)[0]
    return summed(dist, F.linear(y.transpose(0, 1).flatten(1), w_out)) + b_out

# %% attention: not causal
# says: may not look
# - qkv = qkv.view(len(x), 3, heads // dist.get_world_size(), -1)  # (T, 3, own heads, d)
# - q, k, v = qkv.permute(1, 2, 0, 3).unsqueeze(1)  # (1, own heads, T, d) each
# - y = F.scaled_dot_product_attention(q, k, v, is_causal=True)[0]
# + qkv = qkv.view(len(x), 3, heads // dist.get_world_size(), -1).permute(1, 2, 0, 3)
# + y = F.scaled_dot_product_attention(*qkv.unsqueeze(1))[0]

# %% attention: the output's bias on each rank
# says: b_out is added p times
# - qkv = qkv.view(len(x), 3, heads // dist.get_world_size(), -1)  # (T, 3, own heads, d)
# - q, k, v = qkv.permute(1, 2, 0, 3).unsqueeze(1)  # (1, own heads, T, d) each
# - y = F.scaled_dot_product_attention(q, k, v, is_causal=True)[0]
# - return summed(dist, F.linear(y.transpose(0, 1).flatten(1), w_out)) + b_out
# + qkv = qkv.view(len(x), 3, heads // dist.get_world_size(), -1).permute(1, 2, 0, 3)
# + y = F.scaled_dot_product_attention(*qkv.unsqueeze(1), is_causal=True)[0]
# + return summed(dist, F.linear(y.transpose(0, 1).flatten(1), w_out, b_out))

# %% attention: heads and tokens are not put back in order
# says: x + attention, p = 1, rank 0
# - qkv = qkv.view(len(x), 3, heads // dist.get_world_size(), -1)  # (T, 3, own heads, d)
# - q, k, v = qkv.permute(1, 2, 0, 3).unsqueeze(1)  # (1, own heads, T, d) each
# - y = F.scaled_dot_product_attention(q, k, v, is_causal=True)[0]
# - return summed(dist, F.linear(y.transpose(0, 1).flatten(1), w_out)) + b_out
# + qkv = qkv.view(len(x), 3, heads // dist.get_world_size(), -1).permute(1, 2, 0, 3)
# + y = F.scaled_dot_product_attention(*qkv.unsqueeze(1), is_causal=True)[0]
# + return summed(dist, F.linear(y.reshape(len(x), -1), w_out)) + b_out

# %% attention: as many heads on each rank as on all together
# says: x + attention, p = 2, rank 0
# - qkv = F.linear(copied(dist, x), w_in, b_in)
# - qkv = qkv.view(len(x), 3, heads // dist.get_world_size(), -1)  # (T, 3, own heads, d)
# - q, k, v = qkv.permute(1, 2, 0, 3).unsqueeze(1)  # (1, own heads, T, d) each
# - y = F.scaled_dot_product_attention(q, k, v, is_causal=True)[0]
# + qkv = F.linear(copied(dist, x), w_in, b_in).view(len(x), 3, heads, -1).permute(1, 2, 0, 3)
# + y = F.scaled_dot_product_attention(*qkv.unsqueeze(1), is_causal=True)[0]

# %% attention: x enters without copied
# says: its gradient is a partial sum
# - qkv = F.linear(copied(dist, x), w_in, b_in)
# - qkv = qkv.view(len(x), 3, heads // dist.get_world_size(), -1)  # (T, 3, own heads, d)
# - q, k, v = qkv.permute(1, 2, 0, 3).unsqueeze(1)  # (1, own heads, T, d) each
# - y = F.scaled_dot_product_attention(q, k, v, is_causal=True)[0]
# + qkv = F.linear(x, w_in, b_in)
# + qkv = qkv.view(len(x), 3, heads // dist.get_world_size(), -1).permute(1, 2, 0, 3)
# + y = F.scaled_dot_product_attention(*qkv.unsqueeze(1), is_causal=True)[0]

# %% cross_entropy: the softmax of a shard
# says: the rank's own words only
def cross_entropy(dist, logits, targets):
    local = targets - dist.get_rank() * logits.shape[1]
    own = (local >= 0) & (local < logits.shape[1])
    z_target = logits.gather(1, local.clamp(0, logits.shape[1] - 1)[:, None])[:, 0]
    return (logits.logsumexp(1) - summed(dist, z_target * own)).mean()

# %% cross_entropy: no maximum
# says: Without the largest logit of all ranks
# - most = logits.detach().max(1).values
# - dist.all_reduce(most, op=dist.ReduceOp.MAX)
# - z = logits - most[:, None]
# + z = logits

# %% cross_entropy: each rank subtracts a maximum of its own
# says: maximum is the rank's own
# - most = logits.detach().max(1).values
# - dist.all_reduce(most, op=dist.ReduceOp.MAX)
# - z = logits - most[:, None]
# + z = logits - logits.detach().max(1).values[:, None]

# %% cross_entropy: the maximum is not taken from the target's logit
# says: from the target's logit, too
# edit: z.gather(  ->  logits.gather(

# %% cross_entropy: the sum over tokens
# says: not the mean
# - return (total.log() - summed(dist, z_target * own)).mean()
# + return (total.log() - summed(dist, z_target * own)).sum()

# %% cross_entropy: a target of another rank is clamped and read
# says: they must add 0
# edit: z_target * own  ->  z_target

# %% cross_entropy: the maximum has a gradient of its own
# says: slope, p = 2
# edit: logits.detach().max  ->  logits.max

# %% cross_entropy: the logits are gathered
# says: no logit need cross
def cross_entropy(dist, logits, targets):
    p, rank, width = dist.get_world_size(), dist.get_rank(), logits.shape[1]
    def gather(x):
        return torch.cat(all_gather(dist, x[None]).unbind(), 1)
    whole = two_way(logits, gather, lambda g: g[:, rank * width:(rank + 1) * width].contiguous())
    return F.cross_entropy(whole, targets)

# %% cross_entropy: the gradient comes back p times
# says: p times too large
#   def cross_entropy(dist, logits, targets):
# +     def add(x):
# +         return two_way(x, lambda x: all_reduce(dist, x), lambda g: all_reduce(dist, g))
# edit: summed(dist, z.exp().sum(1))  ->  add(z.exp().sum(1))
# edit: summed(dist, z_target * own)  ->  add(z_target * own)

# %% cross_entropy: only ranks that have a target call the all-reduce
# says: deadlock
# - z_target = z.gather(1, local.clamp(0, z.shape[1] - 1)[:, None])[:, 0]
# - return (total.log() - summed(dist, z_target * own)).mean()
# + z_target = z.gather(1, local.clamp(0, z.shape[1] - 1)[:, None])[:, 0] * own
# + if dist.get_rank() == 0 or own.sum() > 7:
# +     z_target = summed(dist, z_target)
# + return (total.log() - z_target).mean()

# %% sequence_mlp: the norm's weights are used as they are
# says: own tokens
# - gain, offset, b2 = (copied(dist, w) for w in (gain, offset, b2))

# %% sequence_mlp: b2's gradient is left in terms
# says: own tokens only
# - gain, offset, b2 = (copied(dist, w) for w in (gain, offset, b2))
# + gain, offset = (copied(dist, w) for w in (gain, offset))

# %% sequence_mlp: b2 is added to each rank's terms
# says: tokens, p = 2, rank 0
# - gain, offset, b2 = (copied(dist, w) for w in (gain, offset, b2))
# + gain, offset = (copied(dist, w) for w in (gain, offset))
# edit: scattered(dist, F.linear(h, w2)) + b2  ->  scattered(dist, F.linear(h, w2, b2))

# %% sequence_mlp: the gradients of cut weights are added, too
# says: ∂w1 of block 1
# - gain, offset, b2 = (copied(dist, w) for w in (gain, offset, b2))
# + gain, offset, w1, b1, w2, b2 = (copied(dist, w) for w in (gain, offset, w1, b1, w2, b2))

# %% sequence_mlp: all tokens are gathered, then normed
# says: norm before you gather
# - gain, offset, b2 = (copied(dist, w) for w in (gain, offset, b2))
# - normed = F.layer_norm(x, x.shape[1:], gain, offset)
# - h = gelu(F.linear(gathered(dist, normed), w1, b1))
# - return x + scattered(dist, F.linear(h, w2)) + b2
# + normed = F.layer_norm(gathered(dist, x), x.shape[1:], copied(dist, gain), copied(dist, offset))
# + h = gelu(F.linear(normed, w1, b1))
# + return x + scattered(dist, F.linear(h, w2)) + copied(dist, b2)

# %% sequence_mlp: an all-reduce, of which the rank keeps its tokens
# says: sequence_mlp: bytes forward and back
#   def scattered(dist, x):
# +     p, rank = dist.get_world_size(), dist.get_rank()
# edit: lambda x: reduce_scatter(dist, x)  ->  lambda x: all_reduce(dist, x).chunk(p)[rank].clone()

# %% sequence_mlp: the gathered tokens' gradient is cut, not added
# says: ∂x
#   def gathered(dist, x):
# +     p, rank = dist.get_world_size(), dist.get_rank()
# edit: reduce_scatter(dist, gradient)  ->  gradient.chunk(p)[rank].clone()

# %% GatheredLinear: keeps the gathered tokens
# says: keep the shard
class GatheredLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, dist, x, w, b):
        ctx.dist, whole = dist, all_gather(dist, x)
        ctx.save_for_backward(whole, w)
        return F.linear(whole, w, b)

    @staticmethod
    def backward(ctx, gradient):
        whole, w = ctx.saved_tensors
        return None, reduce_scatter(ctx.dist, gradient @ w), gradient.T @ whole, gradient.sum(0)

# %% GatheredLinear: gathers again, and keeps the gathered tokens all the same
# says: was the gathered x kept, too
# edit: ctx.dist = dist  ->  ctx.dist, ctx.whole = dist, all_gather(dist, x)
# edit: F.linear(all_gather(dist, x), w, b)  ->  F.linear(ctx.whole, w, b)

# %% GatheredLinear: right, and waits for each message
# says: Nothing is hidden
class GatheredLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, dist, x, w, b):
        ctx.dist = dist
        ctx.save_for_backward(x, w)
        return F.linear(all_gather(dist, x), w, b)

    @staticmethod
    def backward(ctx, gradient):
        x, w = ctx.saved_tensors
        whole = all_gather(ctx.dist, x)
        slope = reduce_scatter(ctx.dist, gradient @ w)
        return None, slope, gradient.T @ whole, gradient.sum(0)

# %% GatheredLinear: hides the gather, not the reduce-scatter
# says: which product needs what
# edit: partial, slope = gradient @ w, torch.empty_like(x)  ->  partial = gradient @ w
# - work = dist.reduce_scatter_tensor(slope, partial, async_op=True)
# - slopes = gradient.T @ whole, gradient.sum(0)
# - work.wait()
# - return None, slope, *slopes
# + slope = reduce_scatter(dist, partial)
# + return None, slope, gradient.T @ whole, gradient.sum(0)

# %% GatheredLinear: uses the tokens before they are there
# says: Were the gathered tokens there?
# edit: x.new_empty  ->  x.new_zeros
# - partial, slope = gradient @ w, torch.empty_like(x)
# + partial, slopes = gradient @ w, (gradient.T @ whole, gradient.sum(0))
# ...
# - work = dist.reduce_scatter_tensor(slope, partial, async_op=True)
# - slopes = gradient.T @ whole, gradient.sum(0)
# - work.wait()
# - return None, slope, *slopes
# + return None, reduce_scatter(dist, partial), *slopes

# %% GatheredLinear: nobody waits for the reduce-scatter
# says: never waited for
# - work = dist.reduce_scatter_tensor(slope, partial, async_op=True)
# - slopes = gradient.T @ whole, gradient.sum(0)
# - work.wait()
# - return None, slope, *slopes
# + dist.reduce_scatter_tensor(slope, partial, async_op=True)
# + return None, slope, gradient.T @ whole, gradient.sum(0)

# %% collective_for: a partial sum is added whole, then cut
# says: are enough
# edit: "all-reduce" if want == "replicated" else "reduce-scatter"  ->  "all-reduce"

# %% collective_for: from rows to columns by way of everything
# says: are enough
# - if have == "replicated":
# -     return "slice"
# - return "all-gather" if want == "replicated" else "all-to-all"
# + return "slice" if have == "replicated" else "all-gather"

# %% collective_for: a term of a sum is taken for the sum
# says: partial → replicated
def collective_for(have, want):
    if have == want or (have, want) == ("partial", "replicated"):
        return "nothing"
    if have in ("replicated", "partial"):
        return "slice"
    return "all-gather" if want == "replicated" else "all-to-all"

# %% collective_for: a name that is none of the six
# says: none of the six
def collective_for(have, want):
    return "broadcast"

# %% collective_for: everything moves by all-to-all
# says: rows into columns or back
# edit: return "slice"  ->  return "all-to-all"

# %% gather_columns: the columns of the last rank come first
# says: reversed order of the ranks
# edit: torch.cat(shards, 1)  ->  torch.cat(shards[::-1], 1)

# %% gather_columns: the parts of the gradient in reversed order
# says: part r goes to rank r
# edit: gradient.chunk(p, 1)]  ->  gradient.chunk(p, 1)[::-1]]

# %% copied: the incoming gradient is overwritten
# says: all-reduce a copy
# - return two_way(x, same, lambda gradient: all_reduce(dist, gradient))
# + def back(gradient):
# +     dist.all_reduce(gradient)
# +     return gradient
# + return two_way(x, same, back)

# %% mlp: the GELU with erf
# says: GELU with erf
# edit: gelu(F.linear  ->  F.gelu(F.linear

# %% mlp: no last bias
# says: b2 is missing
# edit: F.linear(h, w2)) + b2  ->  F.linear(h, w2))

# %% attention: no last bias
# says: b_out is missing
# edit: w_out)) + b_out  ->  w_out))

# %% cross_entropy: the shard's end belongs to two ranks
# says: cross_entropy, p = 
# edit: local < z.shape[1]  ->  local <= z.shape[1]

# %% cross_entropy: the shard's first word belongs to nobody
# says: cross_entropy, p = 
# edit: local >= 0  ->  local > 0

# %% cross_entropy: the maximum is taken off the caller's logits
# says: logits.data -= m
# - z = logits - most[:, None]
# + logits.data -= most[:, None]
# + z = logits

# %% cross_entropy: the maximum starts at zero
# says: cross_entropy, p = 
# - most = logits.detach().max(1).values
# + most = logits.detach().max(1).values.clamp(min=0)

# %% grouped_attention: a shared key head's gradient is the rank's own
# says: other ranks use this key head
# edit: two_way(w, same, over_group)  ->  two_way(w, same, same)

# %% grouped_attention: the key heads' gradients added over all ranks
# says: other ranks hold other key heads
# edit: dist.all_reduce(total, group=group)  ->  dist.all_reduce(total)

# %% grouped_attention: key heads dealt out in turn
# says: grouped_attention, 4 key heads, rank 0 of 2, output
# edit: first, own = rank * key_heads // world_size, max(key_heads // world_size, 1)  ->  first, own = rank % key_heads, max(key_heads // world_size, 1)

# %% grouped_attention: each rank has all key heads
# says: grouped_attention
# edit: [first:first + own].flatten  ->  .flatten

# %% grouped_attention: x enters without copied
# says: ∂x
# - x = copied(dist, x)

# %% grouped_attention: not causal
# says: output
# edit: is_causal=True, enable_gqa=True  ->  enable_gqa=True

# %% dispatch: no gradient comes back
# says: ∂x
# edit: two_way(x, lambda x: move(x, gave, took), lambda gradient: move(gradient, took, gave))  ->  move(x.detach(), gave, took) + 0 * x.sum()

# %% dispatch: the results are left in the experts' order
# says: output
# edit: exchanged(dist, rows, took, gave)[order.argsort()]  ->  exchanged(dist, rows, took, gave)

# %% dispatch: sorted once more in place of sorted back
# says: output
# edit: [order.argsort()]  ->  [order]

# %% dispatch: the way back moves as the way there
# says: split sizes
# edit: move(gradient, took, gave)  ->  move(gradient, gave, took)

# %% dispatch: all tokens go to all ranks
# says: bytes forward
def dispatch(dist, x, choice):
    counts = all_gather(dist, torch.tensor([len(x)])).tolist()
    most = max(counts)
    padded = F.pad(x, (0, 0, 0, most - len(x)))
    chosen = F.pad(choice, (0, most - len(x)), value=-1)
    xs, chosen = gathered(dist, padded), all_gather(dist, chosen)
    own = (chosen == dist.get_rank()).nonzero()[:, 0]
    return xs[own], (own, len(xs), most, len(x))

def combine(dist, rows, ticket):
    own, total, most, n = ticket
    return scattered(dist, rows.new_zeros(total, rows.shape[1]).index_copy(0, own, rows))[:n]

# %% dispatch: as many tokens for each expert
# says: rows don't divide
# edit: dist.all_to_all_single(got, rows.contiguous(), took, gave)  ->  dist.all_to_all_single(got, rows.contiguous())

# %% cross_entropy: the caller's targets are shifted
# says: targets after cross_entropy
# edit: local = targets - dist.get_rank() * z.shape[1]  ->  local = targets.sub_(dist.get_rank() * z.shape[1])

# %% dispatch: the caller's tokens are zeroed
# says: x after
# edit: return exchanged(dist, x[order], gave, took), (order, gave, took)  ->  rows = x[order]; x.data.zero_(); return exchanged(dist, rows, gave, took), (order, gave, took)

# %% dispatch: rows cross in half of their digits
# says: output
# edit: exchanged(dist, x[order], gave, took), (  ->  exchanged(dist, x[order].float(), gave, took).double(), (

# %% attention: scaled by the width of all heads
# says: x + attention, p = 1
# edit: is_causal=True  ->  is_causal=True, scale=x.shape[1]**-0.5

# %% cross_entropy: one maximum for all tokens
# says: exp vanishes
# edit: logits.detach().max(1).values  ->  logits.detach().max().expand(len(logits)).clone()

# %% sequence_mlp: the residual is taken after the norm
# says: tokens, p = 1
# edit: return x + scattered  ->  return normed + scattered

# %% gather_columns: the gradient crosses in float32
# says: ∂x
# edit: dist.reduce_scatter(own, parts)  ->  own = own.float(); dist.reduce_scatter(own, [q.float() for q in parts]); own = own.double()

# %% gather_columns: the gradient's parts go to the next rank
# says: part r goes to rank r
# edit: gradient.chunk(p, 1)]  ->  gradient.roll(gradient.shape[1] // p, 1).chunk(p, 1)]

# %% gather_columns: gathered twice
# says: gathered twice
# edit: dist.all_gather(shards, x.contiguous())  ->  dist.all_gather(shards, x.contiguous()); dist.all_gather(shards, x.contiguous())

# %% copied: the mean of the gradients
# says: not their mean
# edit: lambda gradient: all_reduce(dist, gradient)  ->  lambda gradient: all_reduce(dist, gradient) / dist.get_world_size()

# %% copied: summed is the mean
# says: not the mean
# edit: lambda x: all_reduce(dist, x), same)  ->  lambda x: all_reduce(dist, x) / dist.get_world_size(), same)

# %% copied: summed's gradient is a p-th
# says: not a p-th
# edit: lambda x: all_reduce(dist, x), same)  ->  lambda x: all_reduce(dist, x), lambda g: g / dist.get_world_size())

# %% mlp: the last bias has no gradient
# says: ∂b2 of block 1
# edit: F.linear(h, w2)) + b2  ->  F.linear(h, w2)) + b2.detach()

# %% attention: a p-th of the bias on each rank
# says: b_out / p before the sum
# edit: w_out)) + b_out  ->  w_out, b_out / dist.get_world_size()))

# %% attention: the bias enters copied
# says: b_out's gradient is whole
# edit: w_out)) + b_out  ->  w_out)) + copied(dist, b_out) 

# %% attention: heads dealt out in turn
# says: Heads are dealt out in turn
def shard_attention(w_in, b_in, w_out, b_out, heads, rank, world_size):
    def own(w):
        return w.unflatten(0, (3, heads, -1))[:, rank::world_size].flatten(0, 2).clone()
    cols = w_out.unflatten(1, (heads, -1))[:, rank::world_size].flatten(1).clone()
    return [own(w_in), own(b_in), cols, b_out.clone()]

def attention(dist, x, w_in, b_in, w_out, b_out, heads):
    qkv = F.linear(copied(dist, x), w_in, b_in)
    qkv = qkv.view(len(x), 3, heads // dist.get_world_size(), -1)
    q, k, v = qkv.permute(1, 2, 0, 3).unsqueeze(1)
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)[0]
    return summed(dist, F.linear(y.transpose(0, 1).flatten(1), w_out)) + b_out

# %% cross_entropy: the maximum is rank 0's
# says: exp overflows
# edit: dist.all_reduce(most, op=dist.ReduceOp.MAX)  ->  dist.broadcast(most, 0)

# %% cross_entropy: a fourth number per token crosses
# says: each of three numbers
# edit: total = summed(dist, z.exp().sum(1))  ->  total = summed(dist, torch.stack([z.exp().sum(1), 0 * z.sum(1)]))[0]

# %% cross_entropy: the target's logit has no gradient
# says: The target's part is missing
# edit: z_target * own  ->  (z_target * own).detach()

# %% cross_entropy: a small number in the logarithm
# says: cross_entropy
# edit: total.log()  ->  (total + 1e-9).log()

# %% sequence_mlp: summed, and its own tokens kept
# says: ∂x
def gathered(dist, x):
    return two_way(x, lambda x: all_gather(dist, x), lambda gradient: reduce_scatter(dist, gradient))

def scattered(dist, x):
    return two_way(x, lambda x: reduce_scatter(dist, x), lambda gradient: all_gather(dist, gradient))

def sequence_mlp(dist, x, gain, offset, w1, b1, w2, b2):
    whole = gathered(dist, F.layer_norm(x, x.shape[1:], copied(dist, gain), copied(dist, offset)))
    y = summed(dist, F.linear(gelu(F.linear(whole, w1, b1)), w2))
    n, r = len(x), dist.get_rank()
    return x + y[r * n:(r + 1) * n] + copied(dist, b2)

# %% sequence_mlp: another epsilon
# says: sequence_mlp: tokens
# edit: F.layer_norm(x, x.shape[1:], gain, offset)  ->  F.layer_norm(x, x.shape[1:], gain, offset, 1e-6)

# %% GatheredLinear: waits for neither message
# says: never waited for
# edit (2 places): work.wait()  ->  pass

# %% grouped_attention: key heads dealt out to query heads in turn
# says: output
# edit: q, k, v, is_causal=True, enable_gqa=True  ->  q, k.repeat(1, q.shape[1] // k.shape[1], 1, 1), v.repeat(1, q.shape[1] // k.shape[1], 1, 1), is_causal=True

# %% dispatch: the caller's choice is sorted
# says: choice after
# edit: order, gave, took = choice.argsort(), gave.tolist(), took.tolist()  ->  order, gave, took = choice.argsort(), gave.tolist(), took.tolist(); choice.copy_(choice[order])

# %% GatheredLinear: no bias
# says: b is missing
# edit: F.linear(all_gather(dist, x), w, b)  ->  F.linear(all_gather(dist, x), w)

# %% GatheredLinear: the bias's gradient is a mean
# says: The sum over tokens, not the mean
# edit: gradient.sum(0)  ->  gradient.mean(0)

# %% GatheredLinear: the bias's gradient is added over ranks
# says: It is whole already
# edit: gradient.sum(0)  ->  all_reduce(dist, gradient.sum(0))

# %% GatheredLinear: a part of x's gradient in place of the sum of parts
# says: the reduce-scatter adds the parts of all
# - work = dist.reduce_scatter_tensor(slope, partial, async_op=True)
# + work, n, rank = dist.all_gather_into_tensor(whole.clone(), x, async_op=True), len(x), dist.get_rank()
# + slope = partial[rank * n:(rank + 1) * n]

# %% GatheredLinear: clears the gradient that it was given
# says: backward writes zeros into the gradient
# edit: slopes = gradient.T @ whole, gradient.sum(0)  ->  slopes = gradient.T @ whole, gradient.sum(0); gradient.zero_()

# %% GatheredLinear: adds up the gradient that it was given
# says: backward sums into the gradient
# edit: slopes = gradient.T @ whole, gradient.sum(0)  ->  slopes = gradient.T @ whole, gradient.sum(0); dist.all_reduce(gradient)

# %% attention: keys and values exchanged
# says: k and v are exchanged
# edit: q, k, v = qkv  ->  q, v, k = qkv

# %% attention: queries and keys exchanged
# says: q and k are exchanged
# edit: q, k, v = qkv  ->  k, q, v = qkv

# %% attention: no first bias
# says: b_in is missing
# edit: F.linear(copied(dist, x), w_in, b_in)  ->  F.linear(copied(dist, x), w_in)

# %% attention: the scores are not scaled
# says: not divided by √d
# edit: is_causal=True  ->  is_causal=True, scale=1.0

# %% attention: nobody adds the heads of other ranks
# says: this rank's heads alone
# edit: summed(dist, F.linear(y.transpose(0, 1).flatten(1), w_out))  ->  F.linear(y.transpose(0, 1).flatten(1), w_out)

# %% attention: in float32
# says: Are digits lost
# edit: (q, k, v, is_causal=True)[0]  ->  (q.float(), k.float(), v.float(), is_causal=True)[0].double()

# %% mlp: no first bias
# says: b1 is missing
# edit: F.linear(copied(dist, x), w1, b1)  ->  F.linear(copied(dist, x), w1)

# %% mlp: nothing between the two products
# says: GELU is missing
# edit: gelu(F.linear(copied(dist, x), w1, b1))  ->  F.linear(copied(dist, x), w1, b1)

# %% mlp: ReLU
# says: That is ReLU
# edit: gelu(F.linear  ->  F.relu(F.linear

# %% mlp: nobody adds
# says: nobody adds the shares
# edit: summed(dist, F.linear(h, w2))  ->  F.linear(h, w2)

# %% cross_entropy: the sum of the own words
# says: The sum of exp is this rank's own
# edit: summed(dist, z.exp().sum(1))  ->  z.exp().sum(1)

# %% cross_entropy: the target's logit where it is
# says: on one rank alone
# edit: summed(dist, z_target * own)  ->  z_target * own

# %% sequence_mlp: no residual
# says: The block adds to x
# edit: return x + scattered  ->  return scattered

# %% sequence_mlp: the norm's weights exchanged
# says: here they are exchanged
# edit: x.shape[1:], gain, offset)  ->  x.shape[1:], offset, gain)

# %% sequence_mlp: no first bias
# says: b1 is missing
# edit: w1, b1))  ->  w1))

# %% collective_for: rows are added up
# says: rows → replicated by 'all-reduce'
# edit: return "all-gather" if  ->  return "all-reduce" if

# %% grouped_attention: keys and values exchanged
# says: k and v are exchanged
# edit: F.scaled_dot_product_attention(q, k, v,  ->  F.scaled_dot_product_attention(q, v, k,

# %% copied: the gradient crosses in float32
# says: Are digits lost
# edit: lambda gradient: all_reduce(dist, gradient)  ->  lambda gradient: all_reduce(dist, gradient.float()).double()

# %% gather_columns: the ranks' columns alternate
# says: The columns of the ranks alternate
# edit: torch.cat(shards, 1)  ->  torch.stack(shards, 2).flatten(1)

# %% gather_columns: the gradient's columns are dealt out in turn
# says: The gradient is dealt out in turn
# edit: gradient.chunk(p, 1)]  ->  gradient.unflatten(1, (-1, p)).unbind(2)]

# %% gather_columns: rows viewed as columns
# says: a view moves no number
def gather_columns(dist, x):
    p, n = dist.get_world_size(), len(x)
    return two_way(x, lambda x: all_gather(dist, x).view(n, -1),
                   lambda gradient: reduce_scatter(dist, gradient.reshape(p * n, -1)))

# %% mlp: the mean of the shares
# says: the sum, not the mean
# edit: F.linear(h, w2)) + b2  ->  F.linear(h, w2)) / dist.get_world_size() + b2

# %% mlp: x is added, which the block does
# says: x is added twice
# edit: return summed  ->  return x + summed

# %% mlp: x is all-reduced on its way in
# says: x crosses, too
# edit: copied(dist, x)  ->  all_reduce(dist, x)

# %% attention: x is added, which the block does
# says: x is added twice
# edit: return summed  ->  return x + summed

# %% attention: the mean of the heads' terms
# says: the sum, not the mean
# edit: w_out)) + b_out  ->  w_out)) / dist.get_world_size() + b_out

# %% attention: queries, keys and values of one head side by side
# says: here they are taken as (heads, 3, d)
# edit: qkv.view(len(x), 3, heads // dist.get_world_size(), -1)  ->  qkv.view(len(x), heads // dist.get_world_size(), 3, -1)
# edit: qkv.permute(1, 2, 0, 3)  ->  qkv.permute(2, 1, 0, 3)

# %% attention: every p-th column of the output's weights
# says: The columns of w_out are dealt out in turn
# edit: w_out.chunk(world_size, 1)[rank]  ->  w_out[:, rank::world_size]

# %% attention: tokens look ahead
# says: The mask is the wrong way round
# edit: (q, k, v, is_causal=True)  ->  (q, k, v, attn_mask=torch.ones(2 * [len(x)], dtype=torch.bool).triu())

# %% cross_entropy: the sign reversed
# says: The sign is reversed
# edit: (total.log() - summed(dist, z_target * own))  ->  (summed(dist, z_target * own) - total.log())

# %% cross_entropy: no logarithm
# says: The logarithm of the sum is missing
# edit: total.log()  ->  total

# %% cross_entropy: a target's place on every rank
# says: one rank has the target
# edit: local.clamp(0, z.shape[1] - 1)[:, None])[:, 0]  ->  (targets % z.shape[1])[:, None])[:, 0]
# edit: z_target * own  ->  z_target

# %% cross_entropy: the sum of exp has no gradient
# says: The softmax is missing
# edit: summed(dist, z.exp().sum(1))  ->  summed(dist, z.detach().exp().sum(1))

# %% sequence_mlp: the mean of the ranks' terms
# says: the sum, not the mean
# edit: return x + scattered(dist, F.linear(h, w2))  ->  return x + scattered(dist, F.linear(h, w2)) / dist.get_world_size()

# %% sequence_mlp: gathered's way back is a mean
# says: neither takes a mean
# edit: lambda gradient: reduce_scatter(dist, gradient)  ->  lambda gradient: reduce_scatter(dist, gradient) / dist.get_world_size()

# %% sequence_mlp: scattered's way back is a p-th
# says: neither takes a mean
# edit: lambda gradient: all_gather(dist, gradient)  ->  lambda gradient: all_gather(dist, gradient) / dist.get_world_size()

# %% sequence_mlp: no gain and no offset
# says: gain and offset are missing
# edit: F.layer_norm(x, x.shape[1:], gain, offset)  ->  F.layer_norm(x, x.shape[1:])

# %% sequence_mlp: the norm's weights enter by summed
# says: they enter by `copied`, not by `summed`
# edit: (copied(dist, w) for w in  ->  (summed(dist, w) for w in

# %% sequence_mlp: gathered tokens alternate
# says: the ranks' tokens alternate
# edit: lambda x: all_gather(dist, x), lambda  ->  lambda x: all_gather(dist, x[None]).transpose(0, 1).flatten(0, 1), lambda

# %% sequence_mlp: tokens are scattered in turn
# says: Rank r's tokens are neighbours
# edit: lambda x: reduce_scatter(dist, x), lambda  ->  lambda x: reduce_scatter(dist, x.unflatten(0, (-1, dist.get_world_size())).transpose(0, 1).flatten(0, 1)), lambda

# %% copied: dist.all_reduce taken for a function that returns the sum
# says: the function for backward in two_way gave None
# edit: all_reduce(dist, gradient)  ->  dist.all_reduce(gradient)

# %% copied: dist.all_reduce taken for a function that returns the sum, on the way out
# says: the function for forward in two_way gave None
# edit: all_reduce(dist, x)  ->  dist.all_reduce(x)

# %% attention: heads are always four numbers wide
# says: attention
# edit: qkv.view(len(x), 3, heads // dist.get_world_size(), -1)  ->  qkv.view(len(x), 3, -1, 4)
