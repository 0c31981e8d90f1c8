# %% mfu: recomputation counted as useful work
# says: This is the hardware count.
# edit: if counts == "hardware":  ->  if counts != "causal":

# %% mfu: recomputation never counted
# says: This is the model count.
# edit: layers *= 4 / 3  ->  pass

# %% mfu: causal counts the whole square
# says: This is the model count.
# edit: attention /= 2  ->  pass

# %% mfu: the scores are left out
# says: mfu(
# edit: (layers + 6 * model.end_weights)  ->  layers

# %% mfu: the scores are recomputed, too
# says: 'hardware'
# edit: layers *= 4 / 3  ->  return tokens_per_s * (layers + 6 * model.end_weights) * 4 / 3 / peak_flops_per_s

# %% memory_bytes: Adam's state cut over tensor ranks, too
# says: Tensor ranks hold different weights
# edit: each = 12 / np.where(shards > 0, owners, 1)  ->  each = 12 / np.where(shards > 0, owners * layout.tensor, 1)

# %% memory_bytes: context ranks forgotten
# says: Context ranks hold the same weights
# edit: owners, p = layout.data * layout.context, layout.pipeline  ->  owners, p = layout.data, layout.pipeline

# %% memory_bytes: one microbatch in flight
# says: the first stage holds as many microbatches as there are stages
# edit: np.minimum(layout.microbatches, p)  ->  1

# %% memory_bytes: all microbatches in flight, as in GPipe
# says: bytes gave
# edit: np.minimum(layout.microbatches, p)  ->  layout.microbatches

# %% memory_bytes: p microbatches, even where there are fewer
# says: fewer microbatches than stages: bytes
# edit: np.minimum(layout.microbatches, p)  ->  p

# %% memory_bytes: gradients are never cut
# says: gradients, too: bytes
# edit: 2 / np.where(shards > 1, owners, 1)  ->  2

# %% memory_bytes: no layer is fetched
# says: weights, too: bytes
# edit: fetched = np.where(shards > 2, 4 * model.layer_weights / layout.tensor, 0)  ->  fetched = 0

# %% memory_bytes: nothing is computed again
# says: recomputation: bytes
# edit: {"none": 0, "selective": scores, "full": kept}  ->  {"none": 0, "selective": 0, "full": 0}

# %% memory_bytes: the scores forgotten
# says: bytes
# edit: last = layers * held * early + cluster_model.score_bytes(model, layout)  ->  last = 0

# %% memory_bytes: a fraction of a layer
# says: stages: bytes
# edit: layers = np.ceil(model.layers / p)  ->  layers = model.layers / p

# %% memory_bytes: chunks hold no more
# says: chunks: bytes
# edit: early = np.where(np.asarray(layout.chunks) > 1, 1 + (p - 1) / (p * layout.chunks), 1)  ->  early = 1

# %% step_time_s: only forward adds up over tensor ranks
# says: tensor ranks: seconds on simulated ranks
# edit: {"none": 4, "selective": 4, "full": 6}  ->  {"none": 2, "selective": 2, "full": 4}

# %% step_time_s: a recomputed forward pass has no messages
# says: tensor ranks that recompute
# edit: {"none": 4, "selective": 4, "full": 6}  ->  {"none": 4, "selective": 4, "full": 4}

# %% step_time_s: full recomputation forgotten
# says: A recomputed forward pass repeats its time and its messages.
# edit: {"none": 0, "selective": work.attention_s, "full": work.forward_s}  ->  {"none": 0, "selective": work.attention_s, "full": 0}
# edit: {"none": 4, "selective": 4, "full": 6}  ->  {"none": 4, "selective": 4, "full": 4}

# %% step_time_s: tensor ranks on two nodes, at NVLink's speed
# says: tensor ranks on two nodes
# edit: rate = cluster_model.bandwidth(cluster, size, stride)  ->  rate = cluster.node_bytes_per_s

# %% step_time_s: data ranks as neighbours
# says: seconds
# edit (2 places): ring_s(cluster, owners, layout.tensor,  ->  ring_s(cluster, owners, 1,

# %% step_time_s: all stages are equal
# says: seconds on simulated ranks
# - slowest_s = np.maximum(most * layer_s, last * layer_s + work.ends_s)
# + slowest_s = (model.layers * layer_s + work.ends_s) / layout.pipeline

# %% step_time_s: a bubble that does not know the microbatches
# says: seconds on simulated ranks
# edit: layout.microbatches * (slowest_s + layout.chunks * hop_s)  ->  slowest_s + layout.chunks * hop_s

# %% step_time_s: no bubble
# says: stages
# edit: + layout.bubble * filling_s  ->  + 0 * filling_s

# %% step_time_s: chunks don't shrink the bubble
# says: chunks: seconds
# - filling_s = (all_s - slowest_s + 2 * (layout.pipeline - 1) * hop_s) / layout.chunks
# + filling_s = all_s - slowest_s + 2 * (layout.pipeline - 1) * hop_s

# %% step_time_s: gradients in two bytes
# says: replicas: seconds on simulated ranks
# edit: ring_s(cluster, owners, layout.tensor, 4 * weights)  ->  ring_s(cluster, owners, layout.tensor, 2 * weights)

# %% step_time_s: gradients always overlap
# says: seconds gave
# edit: np.where(layout.overlap, beyond_s + cluster.exposed * (sent_s - beyond_s), sent_s)  ->  beyond_s + cluster.exposed * (sent_s - beyond_s)

# %% step_time_s: gradients never overlap
# says: seconds
# edit: np.where(layout.overlap, beyond_s + cluster.exposed * (sent_s - beyond_s), sent_s)  ->  sent_s

# %% step_time_s: sharded weights are fetched once per step
# says: sharded weights
# edit: 3 * layout.microbatches * gathered_s  ->  3 * gathered_s / 2

# %% step_time_s: sharded weights come in one message
# says: sharded weights
# edit: np.where(shards > 2, cluster_model.fetches(model, layout), 1)  ->  1

# %% step_time_s: the last stage has as many layers as its share
# says: a last stage with fewer layers
# - most, last = cluster_model.stage_layers(model, layout)
# + most, last = np.ceil(model.layers / layout.pipeline), np.floor(model.layers / layout.pipeline)

# %% step_time_s: the optimizer is free
# says: seconds
# edit: optimizer_s = (30 * owned + 6 * weights) / cluster.memory_bytes_per_s  ->  optimizer_s = 0

# %% step_time_s: a ring of p rounds instead of p - 1
# says: seconds on simulated ranks
# edit: 2 * (size - 1) * (cluster.latency_s + sent / size / rate)  ->  2 * size * (cluster.latency_s + sent / size / rate)

# %% step_time_s: 45 % of the peak, for every layout
# says: seconds on simulated ranks
def ring_s(cluster, size, stride, sent):
    return 0 * sent

def slot_s(model, cluster, layout):
    return 0.0, 0.0

def step_time_s(model, cluster, layout):
    flops = 6 * (model.layers * model.layer_weights + model.end_weights) + 12 * model.layers * model.hidden * model.seq
    return flops * layout.batch * model.seq / (0.45 * cluster.peak_flops_per_s * cluster.gpus)

# %% plan: the fastest, whether it fits or not
# says: does not fit
# edit: np.where(fit, step_time_s(model, cluster, every), np.inf)  ->  step_time_s(model, cluster, every)

# %% plan: the one that needs the least memory
# says: the plan's seconds
# edit: int(np.where(fit, step_time_s(model, cluster, every), np.inf).argmin())  ->  int(memory_bytes(model, every).argmin())

# %% plan: the first that fits
# says: the plan's seconds
# edit: int(np.where(fit, step_time_s(model, cluster, every), np.inf).argmin())  ->  int(fit.argmax())

# %% plan: something comes even if nothing fits
# says: no layout fits, but
# edit: if not fit.any():  ->  if False:

# %% checkpoint_interval_s: a time between failures that does not shrink with size
# says: the time between failures shrinks with the size
# edit: per_day = gpus / gpus_per_node * failures_per_1000_node_days / 1000  ->  per_day = failures_per_1000_node_days / 1000

# %% checkpoint_interval_s: GPUs counted as nodes
# says: The rate counts nodes
# edit: gpus / gpus_per_node * failures_per_1000_node_days  ->  gpus * failures_per_1000_node_days

# %% checkpoint_interval_s: hours
# says: These are hours
# edit: 86400 / per_day  ->  24 / per_day

# %% checkpoint_interval_s: days
# says: These are days
# edit: 86400 / per_day  ->  1 / per_day

# %% checkpoint_interval_s: per node-day
# says: per 1,000 node-days
# edit: failures_per_1000_node_days / 1000  ->  failures_per_1000_node_days

# %% checkpoint_interval_s: Young's formula, where it exceeds the time between failures
# says: Young's formula assumes
def mtbf_s(gpus, failures_per_1000_node_days, gpus_per_node=8):
    return 86400 * 1000 * gpus_per_node / gpus / failures_per_1000_node_days

def checkpoint_interval_s(save_s, mtbf):
    return math.sqrt(2 * save_s * mtbf)

# %% checkpoint_interval_s: the factor 2 forgotten
# says: twice the product
def mtbf_s(gpus, failures_per_1000_node_days, gpus_per_node=8):
    return 86400 * 1000 * gpus_per_node / gpus / failures_per_1000_node_days

def checkpoint_interval_s(save_s, mtbf):
    return math.sqrt(save_s * mtbf)

# %% checkpoint_interval_s: a checkpoint per failure
# says: A checkpoint per failure
# edit: return low  ->  return mtbf

# %% checkpoint_interval_s: from beginning to beginning
# says: leave out the time to save
# edit: return low  ->  return low + save_s

# %% checkpoint_interval_s: every half hour
# says: more time than the best interval
# edit: return low  ->  return 1800.0

# %% policy: the time between failures of one node
# says: is too long
# edit: mtbf_s(8 * cluster["nodes"],  ->  mtbf_s(8,

# %% policy: a checkpoint every five minutes
# says: is too short
# edit: checkpoint_interval_s(cluster["save_s"], mtbf)  ->  300.0

# %% policy: Young's interval
# says: is too long
# edit: checkpoint_interval_s(cluster["save_s"], mtbf)  ->  (2 * cluster["save_s"] * mtbf) ** 0.5

# %% policy: no spares, and it waits
# says: without spares
def policy(cluster):
    mtbf = mtbf_s(8 * cluster["nodes"], cluster["failures_per_1000_node_days"])
    return {"interval_s": checkpoint_interval_s(cluster["save_s"], mtbf),
            "replicas": int(cluster["nodes"] // cluster["replica_nodes"]), "drop": False}

# %% policy: half of the cluster is spare
# says: leave too many spares
def policy(cluster):
    mtbf = mtbf_s(8 * cluster["nodes"], cluster["failures_per_1000_node_days"])
    return {"interval_s": checkpoint_interval_s(cluster["save_s"], mtbf),
            "replicas": int(cluster["nodes"] // cluster["replica_nodes"]) // 2, "drop": False}

# %% policy: always drops, where a repair is quick
# says: Here it is better to wait
# edit: for drop in (True, False)  ->  for drop in (True,)

# %% policy: never drops
# says: better to drop a replica
# edit: for drop in (True, False)  ->  for drop in (False,)

# %% policy: replicas as nodes
# says: there are nodes for 1 to
def policy(cluster):
    return {"interval_s": 900.0, "replicas": int(cluster["nodes"]), "drop": True}

# %% outer_step: the sum instead of the mean
# says: This is the sum over ranks
# edit: gradient = change[:-1] / change[-1]  ->  gradient = change[:-1]

# %% outer_step: absent ranks count in the mean
# says: does not count in the mean
# edit: gradient = change[:-1] / change[-1]  ->  gradient = change[:-1] / dist.get_world_size()

# %% outer_step: absent ranks add their old weights
# says: are old: leave them out
# - change *= bool(present)

# %% outer_step: the sign
# says: The sign is wrong
# edit: shared - own  ->  own - shared

# %% outer_step: plain momentum
# says: Nesterov's step looks ahead
# edit: shared -= rate * (gradient + beta * momentum)  ->  shared -= rate * momentum

# %% outer_step: only averages
# says: the outer step is missing
# - momentum.mul_(beta).add_(gradient)
# - shared -= rate * (gradient + beta * momentum)
# + shared -= gradient

# %% outer_step: no momentum
# says: no momentum yet
# - momentum.mul_(beta).add_(gradient)
# - shared -= rate * (gradient + beta * momentum)
# + shared -= rate * gradient

# %% outer_step: the step before the momentum
# says: This is plain momentum
# - momentum.mul_(beta).add_(gradient)
#   shared -= rate * (gradient + beta * momentum)
# + momentum.mul_(beta).add_(gradient)

# %% outer_step: the momentum is sent, too
# says: All ranks have the same momentum already
#   dist.all_reduce(change)
# + dist.all_reduce(momentum)
# + momentum /= dist.get_world_size()

# %% mesh_update: the optimizer's state cut over the tensor ranks
# says: cut over the wrong group
# edit: data = groups["data"]  ->  data = groups["tensor"]

# %% mesh_update: the state is whole
# says: The optimizer's state is whole
def mesh_update(dist, groups, weights, gradient, state, step, replicated, most):
    dist.all_reduce(gradient, group=groups["data"])
    squares = gradient * gradient
    squares[:replicated] /= dist.get_world_size(groups["tensor"])
    square = squares.sum().reshape(1) / dist.get_world_size(groups["data"])
    dist.all_reduce(square)
    norm = square.sqrt().item()
    if not state:
        state.update(m=torch.zeros_like(weights), v=torch.zeros_like(weights))
    adam(weights, gradient * min(1.0, most / norm), state["m"], state["v"], step)
    return norm

# %% mesh_update: replicated weights counted on each tensor rank
# says: counted once per tensor rank
# - squares[:max(0, replicated - start)] /= dist.get_world_size(groups["tensor"])

# %% mesh_update: every shard begins with replicated weights
# says: the norm
# edit: max(0, replicated - start)  ->  replicated

# %% mesh_update: replicated weights looked for in the first shard alone
# says: Replicated weights may reach into a later shard
# edit: max(0, replicated - start)  ->  replicated if start == 0 else 0

# %% mesh_update: the norm of one pipeline stage
# says: the norm
# - dist.all_reduce(square)
# + dist.all_reduce(square, group=data)
# + dist.all_reduce(square, group=groups["tensor"])

# %% mesh_update: the norm of the own shard
# says: the norm
# - dist.all_reduce(square)

# %% mesh_update: the root forgotten
# says: has no root
# edit: square.sqrt().item()  ->  square.item()

# %% mesh_update: gradients summed over all ranks
# says: cut over the wrong group, all ranks
# edit (2 places): group=data  ->  group=None
# edit: dist.get_world_size(data)  ->  dist.get_world_size()
# edit: dist.get_rank(data)  ->  dist.get_rank()

# %% mesh_update: not clipped
# says: the weights
# edit: total * min(1.0, most / norm)  ->  total

# %% mesh_update: small gradients are scaled up
# says: the weights
# edit: min(1.0, most / norm)  ->  most / norm

# %% mesh_update: a new state in every step
# says: the weights
# edit: if not state:  ->  if True:

# %% mesh_update: the new weights stay at home
# says: the weights
# - dist.all_gather_into_tensor(weights, own, group=data)
# + weights[start:start + size] = own

# %% mfu: the embedding counted as a product
# says: The embedding is a look-up
# edit: layers = 6 * model.layers * model.layer_weights + attention  ->  layers = 6 * (model.weights - model.end_weights) + attention

# %% mfu: in percent
# says: These are percent
# - return tokens_per_s * (layers + 6 * model.end_weights) / peak_flops_per_s
# + return 100 * tokens_per_s * (layers + 6 * model.end_weights) / peak_flops_per_s

# %% mfu: weights of one layer only
# says: layer_weights are those of one layer
# edit: 6 * model.layers * model.layer_weights  ->  6 * model.layer_weights

# %% mfu: attention per layer forgotten
# says: is the attention of one layer
# edit: attention = 12 * model.layers * model.hidden * model.seq  ->  attention = 12 * model.hidden * model.seq

# %% memory_bytes: gradients in fp32
# says: Here a gradient has 2 bytes
# edit: each = each + 2 / np.where(shards > 1, owners, 1)  ->  each = each + 4 / np.where(shards > 1, owners, 1)

# %% memory_bytes: two ends on each stage
# says: one has the embedding and another one the scores
# - ends = np.where((np.asarray(p) > 1) | np.asarray(model.tied), 1, 2) * model.end_weights
# + ends = np.where(np.asarray(model.tied), 1, 2) * model.end_weights

# %% memory_bytes: one end always
# says: The only stage has both ends
# edit: ends = np.where((np.asarray(p) > 1) | np.asarray(model.tied), 1, 2) * model.end_weights  ->  ends = model.end_weights

# %% memory_bytes: ends are not cut over tensor ranks
# says: Tensor ranks cut the ends, too
# edit: weights = (layers * model.layer_weights + ends) / layout.tensor  ->  weights = layers * model.layer_weights / layout.tensor + ends

# %% memory_bytes: weights not cut over tensor ranks
# says: Tensor ranks hold a part of each weight
# edit: weights = (layers * model.layer_weights + ends) / layout.tensor  ->  weights = layers * model.layer_weights + ends

# %% memory_bytes: fragments of the driver, too
# says: The driver's bytes have no fragments
# edit: cluster_model.FRAGMENTS * total + cluster_model.DRIVER_BYTES  ->  cluster_model.FRAGMENTS * (total + cluster_model.DRIVER_BYTES)

# %% memory_bytes: activations divided by tensor again
# says: bytes gave
# edit: first = layers * held * np.minimum  ->  first = layers * held / layout.tensor * np.minimum

# %% step_time_s: gradients over data ranks only
# says: their gradients add up, too
# - owners, shards = layout.data * layout.context, np.asarray(layout.shards)
# + owners, shards = layout.data, np.asarray(layout.shards)

# %% step_time_s: hops forgotten
# says: Stages wait for messages
# edit: hop_s = cluster_model.hop_s(cluster, layout, work)  ->  hop_s = 0

# %% step_time_s: hops not multiplied by chunks
# says: seconds gave
# edit: slowest_s + layout.chunks * hop_s  ->  slowest_s + hop_s

# %% step_time_s: p hops instead of 2(p-1)
# says: seconds gave
# edit: 2 * (layout.pipeline - 1) * hop_s  ->  layout.pipeline * hop_s

# %% step_time_s: a part of a node is less than one node
# says: A part of a node has no stragglers
# edit: nodes = np.maximum(1, layout.gpus / cluster.gpus_per_node)  ->  nodes = layout.gpus / cluster.gpus_per_node

# %% step_time_s: selective forgotten
# says: seconds gave
# edit: "selective": work.attention_s,  ->  "selective": 0,

# %% plan: None if nothing fits
# says: want one Layout
# edit: raise ValueError("no layout fits")  ->  return None

# %% plan: a place among those that fit, not among all
# says: does not fit
def plan(model, cluster, batch):
    every = cluster_model.layouts(model, cluster.gpus, batch, cluster.gpus_per_node)
    fit = cluster_model.fits(memory_bytes(model, every), cluster)
    if not fit.any():
        raise ValueError("no layout fits")
    return every[int(step_time_s(model, cluster, every)[fit].argmin())]

# %% checkpoint_interval_s: eight GPUs per node, always
# says: which need not be eight
# edit: per_day = gpus / gpus_per_node  ->  per_day = gpus / 8

# %% checkpoint_interval_s: a rate instead of a time
# says: how many failures there are per second
# edit: return 86400 / per_day  ->  return per_day / 86400

# %% checkpoint_interval_s: minutes
# says: These are minutes
# edit: return 86400 / per_day  ->  return 1440 / per_day

# %% checkpoint_interval_s: an interval in minutes
# says: These are minutes
# edit: return low  ->  return low / 60

# %% checkpoint_interval_s: Young less the time to save
# says: still assumes short saves
# edit: return low  ->  return max(1.0, math.sqrt(2 * save_s * mtbf) - save_s)

# %% checkpoint_interval_s: Young, at most M
# says: M itself is too long
# edit: return low  ->  return min(mtbf, math.sqrt(2 * save_s * mtbf))

# %% checkpoint_interval_s: Daly without the switch
# says: Daly's closed form holds
# - low, high = 0.0, mtbf
# - for _ in range(60):
# -     middle = (low + high) / 2
# -     if math.exp((middle + save_s) / mtbf) * (1 - middle / mtbf) > 1:
# -         low = middle
# -     else:
# -         high = middle
# - return low
# + ratio = save_s / (2 * mtbf)
# + return math.sqrt(2 * save_s * mtbf) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - save_s

# %% checkpoint_interval_s: the time to save left out of the exponent
# says: This interval is no time at all
# edit: math.exp((middle + save_s) / mtbf) * (1 - middle / mtbf) > 1  ->  math.exp(middle / mtbf) * (1 - middle / mtbf) > 1

# %% policy: as many as fit and drop always
# says: Here it is better to wait
def policy(cluster):
    mtbf = mtbf_s(8 * cluster["nodes"], cluster["failures_per_1000_node_days"])
    return {"interval_s": checkpoint_interval_s(cluster["save_s"], mtbf),
            "replicas": int(cluster["nodes"] // cluster["replica_nodes"]), "drop": True}

# %% policy: one replica spare and wait
# says: better to drop a replica
def policy(cluster):
    mtbf = mtbf_s(8 * cluster["nodes"], cluster["failures_per_1000_node_days"])
    return {"interval_s": checkpoint_interval_s(cluster["save_s"], mtbf),
            "replicas": max(1, int(cluster["nodes"] // cluster["replica_nodes"]) - 1), "drop": False}

# %% policy: nodes where GPUs are wanted
# says: is too long
# edit: mtbf_s(8 * cluster["nodes"],  ->  mtbf_s(cluster["nodes"],

# %% outer_step: momentum not in place
# says: momentum has to change in place
# edit: momentum.mul_(beta).add_(gradient)  ->  momentum = beta * momentum + gradient

# %% outer_step: shared not in place
# says: shared has to change in place
# edit: shared -= rate * (gradient + beta * momentum)  ->  shared = shared - rate * (gradient + beta * momentum)

# %% outer_step: dampened momentum
# says: without a factor
# edit: momentum.mul_(beta).add_(gradient)  ->  momentum.mul_(beta).add_((1 - beta) * gradient)

# %% outer_step: the rate in the momentum
# says: The rate scales the step
# edit: momentum.mul_(beta).add_(gradient)  ->  momentum.mul_(beta).add_(rate * gradient)

# %% outer_step: 0.7 and 0.9 instead of rate and beta
# says: (shared, momentum)
# edit: shared -= rate * (gradient + beta * momentum)  ->  shared -= 0.7 * (gradient + 0.9 * momentum)

# %% outer_step: own weights set too
# says: own of rank
# edit: shared -= rate * (gradient + beta * momentum)  ->  shared -= rate * (gradient + beta * momentum); own.copy_(shared)

# %% mesh_update: mean over data ranks
# says: the norm of the mean
# edit: squares = total * total  ->  total /= dist.get_world_size(data); squares = total * total

# %% mesh_update: norm after clipping
# says: return the norm before
# edit: return norm  ->  return min(norm, most)

# %% mesh_update: replicated are removed from the norm
# says: here it is left out
# edit: /= dist.get_world_size(groups["tensor"])  ->  = 0

# %% mesh_update: all-reduce instead of reduce-scatter
# says: are due for a reduce-scatter
# - total = gradient.new_empty(size)
# - dist.reduce_scatter_tensor(total, gradient, group=data)
# + dist.all_reduce(gradient, group=data)
# + total = gradient[start:start + size]

# %% mesh_update: step always 1
# says: step 2
# edit: state["m"], state["v"], step)  ->  state["m"], state["v"], 1)

# %% policy: as many replicas as fit, and a guess whether to drop one
# says: leave too few spares
def policy(cluster):
    mtbf = mtbf_s(8 * cluster["nodes"], cluster["failures_per_1000_node_days"])
    interval_s = checkpoint_interval_s(cluster["save_s"], mtbf)
    replicas = int(cluster["nodes"] // cluster["replica_nodes"])
    return {"interval_s": interval_s, "replicas": replicas,
            "drop": cluster["repair_s"] > cluster["reshape_s"]}

# %% outer_step: a message for each number
# says: send all numbers together
def outer_step(dist, shared, own, momentum, present, rate=0.7, beta=0.9):
    numbers = torch.cat([shared - own, torch.ones(1)]) * bool(present)
    for number in numbers.split(1):
        dist.all_reduce(number)
    gradient = numbers[:-1] / numbers[-1]
    momentum.mul_(beta).add_(gradient)
    shared -= rate * (gradient + beta * momentum)
