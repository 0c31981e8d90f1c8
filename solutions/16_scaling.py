# %% [markdown]
# # 16 · Scaling
#
# **You get 10,000 GPUs. How do you use them, and what will a step take?**
#
# At the end of this lab you can
#
# - predict the time and memory of a training step, a few per cent from what others measured;
# - choose a layout of thousands, and say where the rest of the peak goes;
# - plan for failures and slow links, and train one model with all that you have built.
#
# You need labs 02, 05, 09 and 11 to 15, and no GPU. The core path takes about 180 minutes.
#
# Write your answers in the cells that raise `NotImplementedError`. The grader reads only those.

# %% tags=["setup"]
import itertools
import math

import matplotlib.pyplot as plt
import numpy as np
import torch

from common import figures, ledger, samples
from common.checks import agree, expect, no_fault, remark
from common.ledger import machine
from common.lessons.scaling import cluster_model, decoding, earlier_pieces, failures
from common.lessons.scaling import mesh_training, plan_figures, slow_links
from common.lessons.scaling.cluster_model import Cluster, Layout, Model
from nogpu import ranks

# %% tags=["setup"]
from common.lessons.scaling.mesh_training import Mesh, adam

figures.use_style()
torch.set_default_dtype(torch.float64)
rng = np.random.default_rng()
CLOSE = {"rtol": 1e-10, "atol": 1e-12}
published = plan_figures.published()  # 999 runs: dense models in 16 bits, whose layout is stated

# %% [markdown]
# Minutes per exercise, estimated from the lines of our solution: 1.1 10, 1.2 25, 1.3 40, 1.4 10, 2.1 15, 2.2 20, 3.1 15,
# 4.1 25, and 20 for reading.
#
# **Recall.** Answer before you unfold.
#
# <details><summary>Lab 11: p ranks sum n bytes on a ring. How long does it take?</summary>
#
# 2(p − 1) rounds of n/p bytes: 2(p − 1)(α + βn/p).
# </details>
#
# <details><summary>Lab 15: what share of its time does a pipeline of p stages idle, with m microbatches?</summary>
#
# (p − 1)/(m + p − 1). With v chunks per stage, the idle time is v times as short.
# </details>

# %% [markdown]
# ## The same model, faster and slower
#
# Hagemann and others trained one model of 30 billion weights on 256 A100s in 78 layouts. All compute the same step.

# %%
ax = plan_figures.draw_sweep()
figures.describe(ax, "Seconds per step by layout: the slowest takes twice as long as the fastest.")

# %% [markdown]
# The slowest takes about twice as long as the fastest, and layouts that ran out of memory are not shown. Nobody tries
# thousands of layouts on 10,000 GPUs, so we predict them. Your planner will be scored on 495 published runs.

# %% tags=["driver"]
# For all checks: models, clusters and layouts cross to your functions as dicts.
def asked(function, *parts):
    """What your function says of these arguments, where a dict stands for an object."""
    made = [cluster_model.made(part) if isinstance(part, dict) else part for part in parts]
    return np.asarray(globals()[function](*made), float).tolist()

def asked_of_all(function, cases):
    """The same for many cases."""
    return [asked(function, *case) for case in cases]

def asked_at_once(function, model, gpus, batch):
    """The same for all layouts of so many GPUs, as arrays."""
    made = cluster_model.made(model)
    layouts = cluster_model.layouts(made, gpus, batch)
    return np.asarray(globals()[function](made, layouts), float).tolist()

def planned(model, cluster, batch):
    """Your plan as a dict."""
    found = plan(cluster_model.made(model), cluster_model.made(cluster), batch)
    assert isinstance(found, cluster_model.Layout), f"plan gave {found!r:.60}, want one Layout"
    return dict(vars(found))

# %% [markdown]
# ## Part 1 · A planner
#
# Publications report a rate, and each counts FLOPs in its own way. A token costs 6 FLOPs per weight of the layers and of
# the scores (the embedding is a look-up), and 12·L·h·s for attention over s tokens, which is the whole square. A
# *causal* count takes half of it. A *hardware* count adds what is computed twice: the layers' forward pass.
#
# ### Exercise 1.1 · mfu
#
# How large is the share of the peak, by each convention?

# %% tags=["hole"]
def mfu(model, tokens_per_s, peak_flops_per_s, counts="model"):
    """The share of a GPU's peak that its FLOPs take, from 0 to 1.

    model: has layers, hidden, seq, layer_weights (of one layer) and end_weights (of the scores).
    tokens_per_s: per GPU. counts: "model", "causal", or "hardware", if full layers are recomputed and
    counted. About seven lines.
    """
    # BEGIN SOLUTION
    attention = 12 * model.layers * model.hidden * model.seq
    if counts == "causal":
        attention /= 2
    layers = 6 * model.layers * model.layer_weights + attention
    if counts == "hardware":
        layers *= 4 / 3
    return tokens_per_s * (layers + 6 * model.end_weights) / peak_flops_per_s
    # END SOLUTION

# %% tags=["check"]
from common.lessons.scaling.expected import planning as oracle

kinds = ("model", "causal", "hardware")
models = [plan_figures.MODELS["GPT-3 175B"], plan_figures.MODELS["Llama 3 8B"]]
for model in [*models, *(oracle.random_model(rng) for _ in range(6))]:
    rate, peak = oracle.random_rate(rng, model)
    wrong = oracle.mfu_mistakes(model, rate, peak)
    for kind in kinds:
        want, case = oracle.mfu(model, rate, peak, kind), f"mfu({model}, ..., {kind!r})"
        agree(asked("mfu", vars(model), rate, peak, kind), want, case, rtol=1e-9, mistakes=wrong)
print("mfu: three conventions")

# %% [markdown]
# <details><summary>Hint</summary>
#
# Backward costs twice the forward pass. So three parts become four if the forward pass of the layers is computed again.
# </details>
#
# Now check what others published, as we check your answers. Which rows don't agree with themselves?

# %%
plan_figures.print_stated_over_own(mfu)

# %% [markdown]
# Most agree with themselves. Hagemann and others state 4 % more: they also count the embedding. One run of BLOOM states
# 0.863 of what its time says, and fifteen state 0.964, by an early formula. Another row has 8·10·8 = 640 ranks on
# 320 GPUs, and we left it out. **Before you believe an MFU, compute it.**
#
# ### Exercise 1.2 · memory_bytes
#
# Predict the bytes of the fullest GPU. `cluster_model.kept_bytes(model, layout)` says what a layer keeps of one microbatch:
# all of it, the part that "selective" recomputation does not keep, and the layer's input alone. `cluster_model.score_bytes`
# says what a microbatch's scores take.
#
# <details><summary>Hint 1</summary>
#
# Which ranks hold the same weights? Over those, and over no others, optimizer state can be cut.
# </details>
# <details><summary>Hint 2</summary>
#
# In 1F1B, the first stage holds min(m, p) microbatches, and the last stage holds one, but also the scores.
# </details>

# %% tags=["hole"]
def memory_bytes(model, layout):
    """Bytes that the fullest GPU needs. A layout's fields may be arrays: use np.where, not if.

    Per weight: 2 bytes, 2 for its gradient (Megatron: 4), 12 for Adam. `layout.shards` cuts these over
    all ranks with the same weights: from 1 on Adam's, from 2 on gradients, with 3 also weights (then
    two layers are fetched, 4 bytes per weight). A stage has ceil(layers / pipeline) layers and one end;
    the only stage of an untied model has two. Interleaved chunks hold 1 + (p - 1)/(p·chunks) times as
    much.
    "selective" and "full" compute one layer's missing part again. Take cluster_model.FRAGMENTS times
    the sum, and add cluster_model.DRIVER_BYTES. About eighteen lines.
    """
    # BEGIN SOLUTION
    owners, p = layout.data * layout.context, layout.pipeline
    shards = np.asarray(layout.shards)
    layers = np.ceil(model.layers / p)
    ends = np.where((np.asarray(p) > 1) | np.asarray(model.tied), 1, 2) * model.end_weights
    weights = (layers * model.layer_weights + ends) / layout.tensor
    each = 12 / np.where(shards > 0, owners, 1)
    each = each + 2 / np.where(shards > 1, owners, 1) + 2 / np.where(shards > 2, owners, 1)
    fetched = np.where(shards > 2, 4 * model.layer_weights / layout.tensor, 0)
    kept, scores, given = cluster_model.kept_bytes(model, layout)
    chosen, kind = cluster_model.chosen, layout.recompute
    held = chosen(kind, {"none": kept, "selective": kept - scores, "full": given})
    again = chosen(kind, {"none": 0, "selective": scores, "full": kept})
    early = np.where(np.asarray(layout.chunks) > 1, 1 + (p - 1) / (p * layout.chunks), 1)
    first = layers * held * np.minimum(layout.microbatches, p) * early
    last = layers * held * early + cluster_model.score_bytes(model, layout)
    total = each * weights + fetched + np.maximum(first, last) + again
    return cluster_model.FRAGMENTS * total + cluster_model.DRIVER_BYTES
    # END SOLUTION

# %% tags=["check"] points=2
from common.lessons.scaling.expected import planning as oracle

small = Model(12, 768, 12, 12, 3072, 50_304, 1024)
models = small, Model(8, 512, 8, 8, 2048, 4096, 512, tied=False), oracle.random_model(rng)
for name, layout in oracle.memory_cases().items():
    for model in models:
        want, wrong = oracle.memory_bytes(model, layout), oracle.memory_mistakes(model, layout)
        got = asked("memory_bytes", vars(model), vars(layout))
        agree(got, float(want), f"{name}: bytes", rtol=1e-6, mistakes=wrong)
want = oracle.memory_bytes(small, cluster_model.layouts(small, 16, 64)).tolist()
got = asked_at_once("memory_bytes", vars(small), 16, 64)
agree(got, want, f"{len(want)} layouts at once, as arrays", rtol=1e-6)
print("memory_bytes: weights, optimizer, activations, one layout or many")

# %%
needed = np.array([memory_bytes(run.model, run.layout) for run in published], float)
pairs = [(bool(cluster_model.fits(b, run.cluster)), run.fits) for b, run in zip(needed, published)]
right = [mine == fits for mine, fits in pairs if fits is not None]
print(f"{np.mean(right):.1%} of {len(right)} runs: it says correctly whether they ran out of memory")
seen = "Reported against predicted peaks: most within 20 GB of the diagonal, a few up to 50 GB below."
figures.describe(plan_figures.draw_memory(needed), seen)

# %% [markdown]
# In nineteen of twenty cases the count is right. But three of four reported peaks are higher: programs hold memory for nobody (lab 09),
# and we add 5 %. **Whether it fits, you
# can count. Do it before you ask for GPUs.**
#
# ### What a step takes
#
# `cluster_model.work` says what one microbatch costs on one GPU: the seconds of a layer's forward and backward pass, of its attention, and
# of the ends. It knows tiles (lab 05), fused attention (06), and bytes (04), and four constants that were fitted to all runs.
# `cluster_model.bandwidth(cluster, size, stride)` gives the rate of a ring of `size` ranks that are `stride` GPUs apart.

# %% [markdown]
# ### Exercise 1.3 · step_time_s
#
# Write the messages, the pipeline, and the gradients. The order of ranks is tensor first, then context and data, then pipeline:
# tensor ranks are neighbours, and data ranks stand `tensor` GPUs apart.
#
# <details><summary>Hint 1</summary>
#
# In one layer, how many sums do tensor ranks compute forward, backward, and in a recomputed forward pass?
# </details>
# <details><summary>Hint 2</summary>
#
# A pipeline takes m slots of its slowest stage, and once the time of all other stages. Chunks divide only the latter.
# </details>

# %% tags=["hole"]
def ring_s(cluster, size, stride, sent):
    """Seconds in which `size` ranks, `stride` GPUs apart, sum `sent` bytes on a ring. Two lines."""
    # BEGIN SOLUTION
    rate = cluster_model.bandwidth(cluster, size, stride)
    return 2 * (size - 1) * (cluster.latency_s + sent / size / rate)
    # END SOLUTION

def slot_s(model, cluster, layout):
    """Seconds that one microbatch takes: (on the slowest stage, on all stages together).

    Begin with work = cluster_model.work(model, cluster, layout): this GPU's seconds, bytes, weights.
    Forward and backward each have two sums of work.message_bytes over tensor ranks. Of messages that
    overlap, only cluster.exposed is waited for. "selective" computes work.attention_s again, "full" the
    forward pass with its messages. cluster_model.stage_layers(model, layout) gives the layers of a
    stage and of the last one, which also has work.ends_s. About ten lines.
    """
    # BEGIN SOLUTION
    work = cluster_model.work(model, cluster, layout)
    chosen, kind = cluster_model.chosen, layout.recompute
    again = chosen(kind, {"none": 0, "selective": work.attention_s, "full": work.forward_s})
    messages = chosen(kind, {"none": 4, "selective": 4, "full": 6})
    waiting = np.where(layout.overlap, cluster.exposed, 1)
    messages_s = messages * waiting * ring_s(cluster, layout.tensor, 1, work.message_bytes)
    layer_s = work.forward_s + work.backward_s + again + messages_s
    most, last = cluster_model.stage_layers(model, layout)
    slowest_s = np.maximum(most * layer_s, last * layer_s + work.ends_s)
    return slowest_s, model.layers * layer_s + work.ends_s
    # END SOLUTION

def step_time_s(model, cluster, layout):
    """Seconds of a training step. Fields may be arrays.

    Pipeline: each microbatch also waits for chunks times cluster_model.hop_s(cluster, layout, work).
    The rest, with 2(p - 1) hops, is divided by chunks and multiplied by layout.bubble (1 for 1F1B).
    Gradients: a sum of 4 bytes per weight of a stage's layers and one end, over all ranks with the
    same weights. With shards 1 or 2, half of that sum, and half of one of 2 bytes; with shards 3,
    three halves of one of 2 bytes, per microbatch and in cluster_model.fetches(model, layout) messages.
    Overlapped, half of the pipeline's time hides messages (all of it with shards 3), but
    cluster.exposed of what is hidden still costs. Optimizer: 30 bytes per weight that the rank owns,
    and 6 per weight, at cluster.memory_bytes_per_s. All of it takes 1 + cluster.stragglers·log2(nodes)
    times as long, with at least one node. About twenty lines.
    """
    # BEGIN SOLUTION
    work = cluster_model.work(model, cluster, layout)
    slowest_s, all_s = slot_s(model, cluster, layout)
    hop_s = cluster_model.hop_s(cluster, layout, work)
    filling_s = (all_s - slowest_s + 2 * (layout.pipeline - 1) * hop_s) / layout.chunks
    pipeline_s = layout.microbatches * (slowest_s + layout.chunks * hop_s) + layout.bubble * filling_s
    weights = model.layers / layout.pipeline * work.layer_weights + work.end_weights
    owners, shards = layout.data * layout.context, np.asarray(layout.shards)
    parts = np.where(shards > 2, cluster_model.fetches(model, layout), 1)
    gathered_s = parts * ring_s(cluster, owners, layout.tensor, 2 * weights / parts) / 2
    reduced_s = ring_s(cluster, owners, layout.tensor, 4 * weights) / 2
    sent_s = np.where(shards > 0, gathered_s + reduced_s, 2 * reduced_s)
    sent_s = np.where(shards > 2, 3 * layout.microbatches * gathered_s, sent_s)
    beyond_s = np.maximum(sent_s - np.where(shards > 2, pipeline_s, pipeline_s / 2), 0)
    waiting_s = np.where(layout.overlap, beyond_s + cluster.exposed * (sent_s - beyond_s), sent_s)
    owned = weights / np.where(shards > 0, owners, 1)
    optimizer_s = (30 * owned + 6 * weights) / cluster.memory_bytes_per_s
    nodes = np.maximum(1, layout.gpus / cluster.gpus_per_node)
    return (pipeline_s + waiting_s + optimizer_s) * (1 + cluster.stragglers * np.log2(nodes))
    # END SOLUTION

# %% tags=["check"] points=2
from common.lessons.scaling.expected import planning as oracle

for name, (case, want) in oracle.simulated_cases(rng).items():
    got, wrong = asked("step_time_s", *oracle.fields(*case)), oracle.step_mistakes(*case)
    agree(got, want, f"{name}: seconds on simulated ranks", rtol=1e-9, mistakes=wrong)
print("step_time_s: the time of simulated ranks, for tensor ranks, stages and replicas")

# %% tags=["check"] points=2
from common.lessons.scaling.expected import planning as oracle

for name, case in oracle.real_cases(rng).items():
    got, want = asked("step_time_s", *oracle.fields(*case)), float(oracle.step_time_s(*case))
    agree(got, want, f"{name}: seconds", rtol=1e-6, mistakes=oracle.step_mistakes(*case))
print("step_time_s: nodes, chunks, recomputation, shards, overlap, ends")

# %% tags=["check"] points=2 limit_s=30
from common.lessons.scaling.expected import planning as oracle

cases = [oracle.fields(run.model, run.cluster, run.layout) for run in published]
needed = asked_of_all("memory_bytes", [(model, layout) for model, _, layout in cases])
got = plan_figures.marks(asked_of_all("step_time_s", cases), needed)
expect(got.median_error <= 0.08, f"the median error is {got.median_error:.1%}, at most 8 % is wanted")
expect(got.rank_correlation >= 0.85, f"rank correlation {got.rank_correlation:.2f}, 0.85 is wanted")
expect(got.memory_right >= 0.92, f"{got.memory_right:.0%} of out-of-memory right, 92 % is wanted")
moved, want = oracle.elsewhere(rng, published)  # what was published can be looked up
no_fault(oracle.elsewhere_fault(asked_of_all("step_time_s", moved), want))
print(f"published runs: median error {got.median_error:.1%}, rank {got.rank_correlation:.2f}, "
      f"out of memory right in {got.memory_right:.1%}")

# %%
predicted = [float(step_time_s(run.model, run.cluster, run.layout)) for run in published]
axes = plan_figures.draw_runs(predicted)
figures.describe(axes, "Published over predicted seconds, mostly within 20 %.")

# %% [markdown]
# A constant 45 % of the peak misses by 22 %, and it ranks layouts by chance. Four of our constants were fitted to these
# runs, so another figure is fairer: if each publication is predicted by constants fitted to the *others*, the median error
# is 5.4 % (`python -m benchmarks.planner --held-out`). The worst misses took 2.0 to 2.6 times
# as long as predicted: ZeRO-3 on 2,240 GPUs in 2021, a 3.6 B model on 512 GPUs, and an 80 B model on only 32 GPUs, whose memory
# was nearly full. Our rings know no congestion, and our allocator loses no time when memory is short.

# %% [markdown]
# ### Exercise 1.4 · plan
#
# `cluster_model.layouts(model, gpus, batch, gpus_per_node)` gives all layouts as one `Layout` of arrays, and `layouts[i]` is one of them.
#
# <details><summary>Hint: a question</summary>
#
# What do your functions give for all layouts at once, and what should a layout that does not fit count?
# </details>
# <details><summary>Hint: the idea</summary>
#
# Arrays. Where a layout does not fit, let its time be infinite; `argmin` gives the place of the best. What does
# `argmin` say if nothing fits?
# </details>

# %% tags=["hole"]
def plan(model, cluster, batch):
    """The layout with the shortest step of those that fit; ValueError if none does.

    cluster_model.fits(bytes, cluster) says whether they fit. Call your functions once, not once per
    layout. About six lines.
    """
    # BEGIN SOLUTION
    every = cluster_model.layouts(model, cluster.gpus, batch, cluster.gpus_per_node)
    fit = cluster_model.fits(memory_bytes(model, every), cluster)
    if not fit.any():
        raise ValueError("no layout fits")
    return every[int(np.where(fit, step_time_s(model, cluster, every), np.inf).argmin())]
    # END SOLUTION

# %% tags=["check"]
from common.lessons.scaling.expected import planning as oracle

for name, (model, cluster, batch) in oracle.plan_cases(rng).items():
    (best_s, _), case = oracle.cheapest(model, cluster, batch), f"{name}: the plan's seconds"
    try:
        got = cluster_model.made(planned(vars(model), vars(cluster), batch))
    except ValueError:
        expect(best_s == math.inf, f"{name}: ValueError, but a layout fits")
        continue
    expect(best_s < math.inf, f"{name}: no layout fits, but {plan_figures.words(got)} came")
    expect(not (fault := oracle.plan_fault(got, model, cluster, batch)), f"{name}: {fault}")
    agree(float(oracle.step_time_s(model, cluster, got)), best_s, case, rtol=1e-3)
print("plan: the best that fits, of thousands")

# %%
from common.lessons.scaling.expected import planning as oracle

plan_figures.widget(step_time_s, memory_bytes, ours=(oracle.step_time_s, oracle.memory_bytes))

# %% [markdown]
# Try it: when does tensor parallelism leave the plan? What does a network of 25 Gb/s change, and what does it not change? Which bar is
# the longest in every plan, and can a layout shorten it?
#
# Someone asks four questions: *how does the best layout change if the batch shrinks, if the network gets slower, if the GPU gets
# faster, if its memory grows?* Predict one word for each. The last line plans with the constants that *you* measured.

# %%
for name, (model, cluster, batch) in plan_figures.four_cases(ledger.read()["constants"]).items():
    best = plan(model, cluster, batch)
    seconds = float(step_time_s(model, cluster, best))
    share = mfu(model, batch * model.seq / seconds / cluster.gpus, cluster.peak_flops_per_s)
    print(f"{name:13} {seconds:6.2f} s, MFU {share:.0%}: {plan_figures.words(best)}")

# %% [markdown]
# <details><summary>What changed</summary>
#
# A smaller batch and a slower network bring stages: stages send the least, and fewer replicas sum gradients. More memory, on both other
# GPUs, lets fewer tensor ranks hold the model, and a faster GPU waits longer for their messages.
# </details>
#
# **Matmuls below the peak cost more than all else together. A layout decides about the rest.**

# %% [markdown]
# ## Part 2 · Some will fail today
#
# Meta trained Llama 3 on 16,384 GPUs for 54 days, and something stopped the job 466 times: every 2.8 hours. Nodes fail independently,
# at a rate per node and day. A job needs all of its nodes, so the time between failures of *any* node counts. Then it
# starts again from its last checkpoint.
#
# How often should it save? Let τ be the training between two checkpoints, δ the time to save one, and M the mean time between
# failures. If failures have no memory, τ seconds of training that is kept take M·(exp((τ + δ)/M) − 1) seconds in expectation.

# %% [markdown]
# ### Exercise 2.1 · checkpoint_interval_s
#
# First compute M. Then find the τ with the least time per second of training. Young (1974) takes √(2δM), which is simple. For
# which δ and M can it not be right?
#
# <details><summary>Hint 1</summary>
#
# Young's formula comes from a series for δ ≪ M. Compare √(2δM) with M when saving takes as long as half of M.
# </details>
# <details><summary>Hint 2</summary>
#
# Set the derivative to zero: exp((τ + δ)/M)·(1 − τ/M) = 1. The left side falls with τ, and τ is less than M. Halve the interval. Daly
# (2006) has a closed form, which also does.
# </details>

# %% tags=["hole"]
def mtbf_s(gpus, failures_per_1000_node_days, gpus_per_node=8):
    """Mean seconds between two failures of any node of a job on so many GPUs. About two lines."""
    # BEGIN SOLUTION
    per_day = gpus / gpus_per_node * failures_per_1000_node_days / 1000
    return 86400 / per_day
    # END SOLUTION

def checkpoint_interval_s(save_s, mtbf):
    """Seconds of training between two checkpoints, that cost at most 0.5 % more time than the best.

    save_s: to write a checkpoint, without training; it may be longer than mtbf, the mean seconds
    between failures. About six lines.
    """
    # BEGIN SOLUTION
    low, high = 0.0, mtbf
    for _ in range(60):
        middle = (low + high) / 2
        if math.exp((middle + save_s) / mtbf) * (1 - middle / mtbf) > 1:
            low = middle
        else:
            high = middle
    return low
    # END SOLUTION

# %% tags=["check"] points=2
from common.lessons.scaling.expected import scaling_parts as oracle

for gpus, rate, node in oracle.mtbf_cases(rng):
    want, case = oracle.mtbf_s(gpus, rate, node), f"mtbf_s({gpus}, {rate:.3g}, {node})"
    wrong = oracle.mtbf_mistakes(want, gpus, node)
    agree(mtbf_s(gpus, rate, node), want, case, rtol=1e-9, mistakes=wrong)
print("mtbf_s: shrinks with the size of the cluster")

# %% tags=["check"] points=2
from common.lessons.scaling.expected import scaling_parts as oracle

cases = [(120, 6500), (40, 6e5), (600, 900), (300, 300), (1200, 810), (60, 20)]
for save, mtbf in [*cases, *10 ** rng.uniform([1, 2], [3, 5], (12, 2))]:
    fault = oracle.interval_fault(checkpoint_interval_s(save, mtbf), save, mtbf)
    expect(not fault, fault)
print("checkpoint_interval_s: at most 0.5 % above the best, also where saving is slow")

# %%
published = samples.published_runs()["failures"]
ax = failures.draw_mtbf(mtbf_s, published)
figures.describe(ax, "Hours between failures fall as 1/GPUs; reports lie within a factor of four.")

# %%
axes = failures.draw_intervals(checkpoint_interval_s, 120.0, [6000.0, 600.0, 150.0])
figures.describe(axes, "Young's mark leaves the least time as failures come more often.")

# %% [markdown]
# Each dot is 20,000 simulated failures. At one per 100 minutes, Young is as good as the best. At one per 2.5 minutes his
# interval is longer than M. (RSC-1's own jobs failed three to four times as often as its stated rate.)
#
# ### Exercise 2.2 · policy
#
# `failures.CLUSTER` has 10,240 GPUs. After a failure the job starts on a spare node. Without one, it waits for a repair or
# drops a replica until the node is back, and each change of replicas takes `reshape_s`. `failures.goodputs(cluster, policies,
# seeds)` simulates years: the share of all node-seconds, of spares too, whose training was kept.
#
# <details><summary>Hint: a question</summary>
#
# How many different policies are worth a try, once you know the interval?
# </details>
# <details><summary>Hint: the idea</summary>
#
# Few: as many replicas as fit, or some fewer, and for each of them dropping or waiting. `failures.goodputs`
# simulates them all at once. Take the mean over several seeds, so that luck does not decide.
# </details>

# %% tags=["hole"]
def policy(cluster):
    """{"interval_s": seconds, "replicas": of the full job, "drop": True or False}.

    cluster: a dict, as failures.CLUSTER. Nodes that the replicas don't use are spares. Goodput has
    to be within 2 % of the best policy's, on years that you have not seen. About eight lines.
    """
    # BEGIN SOLUTION
    mtbf = mtbf_s(8 * cluster["nodes"], cluster["failures_per_1000_node_days"])
    interval_s = checkpoint_interval_s(cluster["save_s"], mtbf)
    most = int(cluster["nodes"] // cluster["replica_nodes"])
    tried = [{"interval_s": interval_s, "replicas": replicas, "drop": drop}
             for replicas in range(most, max(0, most - 10), -1) for drop in (True, False)]
    found = failures.goodputs(cluster, tried, range(900, 904)).mean(1)
    return tried[int(found.argmax())]
    # END SOLUTION

# %% tags=["check"] points=3 limit_s=60
from common.lessons.scaling.expected import scaling_parts as oracle

clusters = {**oracle.CLUSTERS, "a random cluster": oracle.random_cluster(rng)}
for name, cluster in clusters.items():
    scored = oracle.Scored(cluster, rng.integers(1 << 30, size=3).tolist())
    fault = scored.fault(policy(dict(cluster)), name)
    expect(not fault, fault)
print("policy: within 2 % of the best that a search finds, on years that it has not seen")

# %%
mine = policy(dict(failures.CLUSTER))
ax = failures.draw_policies(failures.CLUSTER, mine, [1, 2, 3])
figures.describe(ax, "Goodput by replicas, for jobs that wait and jobs that drop.")
print(f"every {mine['interval_s'] / 60:.0f} minutes, {mine['replicas']} replicas:",
      f"goodput {failures.goodput(failures.CLUSTER, mine, [1, 2, 3]):.3f}")

# %% [markdown]
# With no spares, a job that waits stands still after each failure until a node is repaired. A spare node costs one node-year per year.
# Too many spares cost more than they save.
#
# Now a real failure. Three processes train the language model on gloo. Each saves its shard of weights and optimizer every six steps.
# In the middle of training, `kill -9` ends one of them. Two ranks join the three shards, cut them anew, and go on. What must the
# curve of losses look like?

# %% tags=["nbval-ignore-output"]
told, one = failures.interrupted(), failures.one_device()
ax = failures.draw_interrupted(told, one)
figures.describe(ax, "The losses of the run that lost a rank lie on the line of one device.")
print(f"{told['error']} in step {told['steps'] + 1}; two ranks went on from step {told['resumed']}.",
      f"Losses differ by {max(abs(a - b) for a, b in zip(told['losses'], one)):.0e} from one device's.")

# %% [markdown]
# The batch of a step depends on the step's number only, and not on the number of ranks. So the curve is the one that the job would
# have had, to rounding.
#
# **A cluster that is n times as large fails n times as often, so plan for failures as you plan for memory.**

# %% [markdown]
# ## Part 3 · Slow links
#
# GPUs in two cities have a thousandth of NVLink's bandwidth between them. **DiLoCo** (Douillard et al., 2023) sends less: each rank
# trains alone for H steps with AdamW. Then all ranks average how far they moved, and treat this as a gradient, the *outer gradient*.
# An outer optimizer steps with it: SGD with Nesterov momentum. All ranks start the next round from its weights. A rank may also be
# away for some rounds.

# %% tags=["driver"]
# What the checks of parts 3 and 4 run on every rank. You may skip it.

def outer_round(dist, shared, own, momentum, *rest):
    """[shared, momentum, own] after a round's outer step."""
    outer_step(dist, shared, own, momentum, *rest)
    return [shared, momentum, own]

def updated(dist, sizes, weights, gradient, state, step, replicated, most):
    """[weights, state, norm] after mesh_update."""
    groups = ranks.mesh(dist, **sizes)
    norm = mesh_update(dist, groups, weights, gradient, state, step, replicated, most)
    return [weights, state, norm]

# %% [markdown]
# ### Exercise 3.1 · outer_step
#
# The outer gradient is the mean of `shared − own` over the ranks that took part. A rank that was away also calls the function, so
# that it gets the new weights, but its own weights are old. Nesterov, as in PyTorch: the momentum becomes β·momentum + gradient, and
# the step is rate·(gradient + β·momentum), with the *new* momentum.
#
# <details><summary>Hint</summary>
#
# How does a rank learn how many took part, without a second message? Send one number more.
# </details>

# %% tags=["hole"]
def outer_step(dist, shared, own, momentum, present, rate=0.7, beta=0.9):
    """One outer step; changes shared and momentum in place, in the same way on all ranks.

    shared (n,): the weights at the round's start. own (n,): this rank's after its inner steps; it
    stays as it is. momentum (n,). present: whether this rank took part; at least one did. Send no
    more than an all-reduce of n numbers and a few. About six lines.
    """
    # BEGIN SOLUTION
    change = torch.cat([shared - own, shared.new_ones(1)])
    change *= bool(present)
    dist.all_reduce(change)
    gradient = change[:-1] / change[-1]
    momentum.mul_(beta).add_(gradient)
    shared -= rate * (gradient + beta * momentum)
    # END SOLUTION

# %% tags=["check"] points=2 limit_s=30
from common.lessons.scaling.expected import scaling_parts as oracle

for here in ([1, 1, 1, 1], [1, 0, 1], [0, 1], [1], [0, 0, 1, 0]):
    p, n, rate_beta = len(here), int(rng.integers(12, 17)), rng.uniform(0.5, 0.8, 2).tolist()
    shared, momentum, *owns = torch.tensor(rng.normal(size=(2 + p, n)))
    want, wrong = oracle.outer(shared, owns, momentum, here, *rate_beta)
    data = shared.clone(), ranks.each([o.clone() for o in owns]), momentum.clone()
    result = ranks.run(outer_round, *data, ranks.each(list(map(bool, here))), *rate_beta, world_size=p)
    for rank, got in enumerate(result.returns):
        agree(tuple(got[:2]), want, f"(shared, momentum), rank {rank} of {p}", **CLOSE, mistakes=wrong)
        agree(got[2], owns[rank], f"own of rank {rank}, afterwards")
    no_fault(oracle.outer_messages_fault(result.trace, n))
print("outer_step: Nesterov on the mean of those who were there, in one all-reduce")

# %%
table, runs = samples.published_runs()["diloco"], {1: slow_links.run(slow_links.data_parallel)}
runs |= {every: slow_links.run(slow_links.diloco, outer_step, every) for every in (10, 50, 100, 500)}
axes = slow_links.draw_losses(runs, table)
figures.describe(axes, "Left: loss by bytes. Right: bandwidth falls as 1/H, ours and published.")
away = slow_links.with_absence(outer_step, 50, {3: range(5, 15)})
print(f"H = 50: loss {runs[50]['loss']:.3f}; a rank away for half of the rounds: {away['loss']:.3f}")

# %%
losses = {k: slow_links.run(slow_links.diloco, outer_step, 50, p=k)["loss"] for k in (1, 2, 8)}
losses = dict(sorted({**losses, 4: runs[50]["loss"]}.items()))
ax = slow_links.draw_replicas(losses, table)
figures.describe(ax, "Loss grows with the number of replicas, for our model and for published ones.")

# %% [markdown]
# Our model trains for 1,000 steps, so H = 500 has two rounds, too few for the momentum. Published runs have hundreds of rounds, and
# H = 1,000 costs them 2.9 % of perplexity over H = 50. H = 10 ends below data parallelism, because Nesterov's steps are longer.
# The bytes follow the same law: one all-reduce per H steps.
#
# With more replicas, each sees less of the batch, and loss grows: ours (21,504 weights) twice as much as that of the smallest model of
# Charles et al. (2025).
#
# **If the wire is slow, agree less often: bytes fall as 1/H, and loss rises slowly.**

# %% [markdown]
# ## Part 4 · Everything together
#
# Now train one model with all that you have built, in a mesh of data × pipeline × tensor ranks:
#
# - stages (lab 15), which keep each second activation and compute the others again (09);
# - tensor ranks (14), whose sums go round your ring (11), and whose attention merges parts of the keys (06);
# - replicas (12), which keep only a shard of the weights between two steps (13).
#
# One piece is missing: the optimizer's step.
#
# Who holds the same weights? Stages hold different layers. Tensor ranks hold different rows, except for norms and positions, which
# they all hold. Only **data** ranks hold the same numbers.

# %% [markdown]
# ### Exercise 4.1 · mesh_update
#
# Write a step with clipping and sharded Adam state (lab 13) on a mesh. Three questions: over which group is the gradient summed?
# Over which group is Adam's state cut? Which numbers would the norm of *all* gradients count twice?
#
# <details><summary>Hint</summary>
#
# Reduce-scatter over `groups["data"]`. Of the squares in your shard, divide those that all tensor ranks hold by the number of tensor
# ranks. Then add up over all ranks. The shard begins at rank·n/d: which of its numbers are among the first `replicated`?
# </details>

# %% tags=["hole"]
def mesh_update(dist, groups, weights, gradient, state, step, replicated, most):
    """A step of Adam, the gradient clipped to the norm `most`; returns the norm before, a float.

    groups: "data", "pipeline", "tensor". weights (n,): this rank's; afterwards the new ones.
    gradient (n,): its part; the sum over data ranks is wanted. The first `replicated` numbers are
    the same on all tensor ranks. state: {} before the first step, then "m" and "v" of this rank's
    shard, (n/d,) each for d data ranks; d divides n. step: 1, 2, ...
    Use adam(weights, gradient, m, v, step). About fourteen lines.
    """
    # BEGIN SOLUTION
    data = groups["data"]
    size = len(weights) // dist.get_world_size(data)
    start = dist.get_rank(data) * size
    total = gradient.new_empty(size)
    dist.reduce_scatter_tensor(total, gradient, group=data)
    squares = total * total
    squares[:max(0, replicated - start)] /= dist.get_world_size(groups["tensor"])
    square = squares.sum().reshape(1)
    dist.all_reduce(square)
    norm = square.sqrt().item()
    if not state:
        state.update(m=torch.zeros_like(total), v=torch.zeros_like(total))
    own = weights[start:start + size].clone()
    adam(own, total * min(1.0, most / norm), state["m"], state["v"], step)
    dist.all_gather_into_tensor(weights, own, group=data)
    return norm
    # END SOLUTION

# %% tags=["check"] points=3 limit_s=60
from common.lessons.scaling.expected import scaling_parts as oracle

cases = (3, 1, 2, 17, 2.0), (2, 2, 2, 5, 1.0), (4, 2, 1, 3, 1e9), (1, 1, 3, 2, 0.5)
for d, p, t, shared, most in cases:
    model = oracle.Model(rng, mesh_training.Mesh(d, p, t), shared, 12 * d - shared, most)
    states = [{} for _ in range(model.mesh.size)]
    for step in (1, 2, 3):
        weights, gradients, *wanted = model.step(step)
        data = *map(ranks.each, (weights, gradients, states)), step, shared, most
        result = ranks.run(updated, model.mesh._asdict(), *data, world_size=len(states))
        states = [state for _, state, _ in result.returns]
        model.check(result, *wanted, step)
print("mesh_update: one device's weights and norm, and Adam's state cut over data ranks only")

# %%
shape, cluster = Model.of_course(mesh_training.LENGTH), Cluster.simulated(8, 1e-5, 1e-10, 1e9)
best = plan(shape, cluster, 8)
meshes = [Mesh(best.data, best.pipeline, best.tensor), Mesh(2, 1, 2), Mesh(2, 2, 1), Mesh(2, 2, 2)]
parts = earlier_pieces.collect(earlier_pieces.of_the_course(), mesh_training.accepting(mesh_update))
runs = {m: mesh_training.run(parts.use, mesh_update, m, microbatches=min(2, 8 // m.data))
        for m in meshes}
want = mesh_training.one_device(mesh_training.named_weights(), mesh_training.texts(4, 8))
apart = {m: mesh_training.apart(m, r.returns, parts.use, want["weights"]) for m, r in runs.items()}

# %%
losses = {str(mesh): run.returns[0]["losses"] for mesh, run in runs.items()}
ax = mesh_training.draw_training(losses, want["losses"])
figures.describe(ax, "The losses of all meshes lie on those of one device.")
print(f"planned: {meshes[0]}; weights differ from one device's by {max(apart.values()):.0e} at most")
print(", ".join(f"lab {lab}: {whose}" for lab, whose in parts.origin.items()))

# %% [markdown]
# All 836,736 weights agree with one device's to rounding, in each layout. Where your answer of an earlier lab is missing or gave
# something else, the course's stood in for it.
#
# Next, the same program runs on two processes, on gloo. The prediction knows three numbers: the time of a step whose messages are left
# out, the latency of a message, and the bandwidth. It adds compute, bubble and the messages along each axis. All ranks measure them
# at the same time, in turns with whole steps, so that whatever else runs on this machine slows both. The turn with the middle ratio
# counts.

# %% tags=["nbval-ignore-output"]
pairs = {}
for mesh in (mesh_training.Mesh(2, 1, 1), mesh_training.Mesh(1, 2, 1), mesh_training.Mesh(1, 1, 2)):
    known, measured_s = mesh_training.in_turns(parts.use, mesh_update, mesh, machine="gloo")
    foretold = mesh_training.predicted_s(mesh, known)
    ledger.predict(f"step on {mesh} ranks", sum(foretold.values()), "s")
    ledger.measured(f"step on {mesh} ranks", measured_s, "s")
    pairs[str(mesh)] = foretold, measured_s

# %% tags=["nbval-ignore-output"]
ax = mesh_training.draw_steps(*({name: pair[i] for name, pair in pairs.items()} for i in (0, 1)))
figures.describe(ax, "Predicted parts of a step as bars, measured times as dots.")
for name, (foretold, measured_s) in pairs.items():
    print(f"{name}: measured {measured_s / sum(foretold.values()) - 1:+.0%} of the prediction")

# %% [markdown]
# On a busy machine a message also waits until the *other* process runs, and tensor ranks exchange by far the most messages. A stage
# that waits in the bubble leaves its core to others, so pipelines come out faster than predicted there.
#
# The last step is to use the model. It writes with the weights that ship with the course. Its matrices have 4 bits (lab 10), and it
# keeps keys and values, so that each token passes the model once. The plain model in fp32 has the same rounded weights, and computes
# all tokens of its window again for each new one.

# %% tags=["nbval-ignore-output"]
weights = decoding.quantized(parts.use["quantize_groups"])
plain = decoding.dequantized(weights, parts.use["dequantize_groups"])
cached, cached_s = decoding.write_cached(weights, 256)
again, again_s = decoding.write_again(plain, 256)
print(decoding.PROMPT + bytes(cached).decode())
print(f"\nthe same 256 tokens: {cached == again}; {again_s / cached_s:.1f} times as fast")

# %% tags=["nbval-ignore-output"]
text = cached == again, again_s / cached_s
facts = mesh_training.facts({str(mesh): gap for mesh, gap in apart.items()}, pairs, *text)
ax = mesh_training.certificate({**parts.origin, "16": "yours"}, facts)
figures.describe(ax, "A certificate: which pieces are yours, what they did, and your calibration.")

# %% [markdown]
# **The batch decides how many ranks can help, memory decides the layout, and the slowest link decides the speed.**

# %% [markdown]
# ## Where it is used
#
# - Planners: *Calculon* (Isaev et al., 2023), *llm-analysis*, AMD's *Primus* projection (it errs by 5 to 9 % on its own runs). The best
#   that we know errs by 3.8 % (root mean square).
# - Failures: the *Llama 3* report; *Revisiting Reliability* (Kokolis et al., 2024). Slow links: *INTELLECT-1* (2024) trained across
#   continents with DiLoCo.
#
# **Limits of ours.** Our planner knows dense models in 16 bits, rings without congestion, and no experts. Half of its misses are things that a
# publication does not state.

# %% [markdown]
# ## Done
#
# `make grade LAB=16` grades your lab.
#
# **A harder question.** Llama 3's report has a table of failures whose shares don't add up: `samples.published_runs()["failures"]`.
# Which number is wrong?
#
# <details><summary>Answer</summary>
#
# "Faulty GPU" has 148 of 419 failures. That is 35.3 %, and 30.1 % is printed. All other shares agree with their counts.
# </details>
