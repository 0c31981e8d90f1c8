"""Published training runs as lab 16 plans them: a row as a model, a cluster, a layout, a time."""

from __future__ import annotations

import dataclasses
import re
from typing import Any, NamedTuple

from common.lessons.scaling.cluster_model import SHARES, Cluster, Layout, Model, Shares

Row = dict[str, Any]

LOW_PRECISION = re.compile(r"fp8|float8|mxfp|nvfp|fp4|int8|e4m3|e5m2", re.I)
FULL_PRECISION = re.compile(r"^\W*(fp|tf|float)(32|64)", re.I)
# Stacks whose elementwise kernels are fused: Megatron's, and those of compilers (XLA, Inductor).
# Others are plain PyTorch, unless their notes say that kernels are fused.
FUSED = re.compile(
    r"megatron|nemo|dgxc|sc21|korthikanti|bloom|bigscience|llama 3 herd|zero bubble|primus"
    r"|megascale|flagscale"
    r"|\bjax\b|\bxla\b|maxtext|paxml|levanter|\btpu|compile|(?<!un)(?<!not )fused"
    r"|transformer.?engine|\bliger",
    re.I,
)
# What says nothing of a layer's kernels.
ELSEWHERE = re.compile(r"no torch\.compile|fused[ _-]?(adam|optim|cross|ce\b|loss|linear)", re.I)
OVERLAPPED = re.compile(
    r"megatron-core|megatron-bridge|nemo|dgxc|llama 3 herd|llm-foundry|torchtitan|fsdp|primus"
    r"|megascale|\bjax\b|\bxla\b|maxtext|paxml|levanter|\btpu",
    re.I,
)
# Without fused attention unless the source names it: Volta and older have no kernel for it, and
# on Ampere it was new.
VOLTA, AMPERE = {"P100", "T4", "V100", "V100-16GB"}, {"A100", "A100-40GB", "A100-PCIe", "A10"}
AMPERE |= {"A10G", "A30", "A40", "A6000", "3090"}
# Models that were born with fused attention (2023 and later): their name dates a run.
BORN_FUSED = re.compile(
    r"llama|mistral|qwen|gemma|olmo|nemotron|phi-?[1-9]|falcon|deepseek|granite|smollm|\bmpt", re.I
)
EXPERTS = re.compile(
    r"\bmoe\b|mixtral|\d+x\d+(\.\d+)?b\b|(?<![a-z0-9])a\d+(\.\d+)?b\b|gpt.?oss|grok", re.I
)
# Where nothing is said of sharding, these stacks share out the optimizer's state by default.
DISTRIBUTED = re.compile(r"overlap-param-gather|distributed.optim|megatron-bridge|nemo", re.I)
GIGABIT = 1e9 / 8


class Run(NamedTuple):
    """One published run. step_s: measured, or from what was; None if it did not run."""

    row: Row
    model: Model
    cluster: Cluster
    layout: Layout
    step_s: float | None
    fits: bool | None  # None: it failed for another reason

    @property
    def source(self) -> str:
        return self.row["source"]


TEXTS = {
    *("gpu", "name", "network", "sharding", "fsdp", "zero", "tflops_kind", "mfu_kind"),
    *("gated_mlp", "tied_embeddings", "moe", "notes", "sequence_parallel"),
}


def in_16_bits(row: Row) -> bool:
    """Whether a tidy row's precision is 16 bits, or not stated: then it is the usual one."""
    return not (LOW_PRECISION.search(row["precision"]) or FULL_PRECISION.search(row["precision"]))


def tidy(row: Any, number: int = 0) -> Row:
    """A row of a file with all parts, numbers as numbers, and None for what is not stated.

    ValueError if it is no row. number: its place in the file, the name of a row that has none.
    """
    if not isinstance(row, dict):
        raise ValueError(f"a row is {type(row).__name__}, not an object with model, hardware, ...")
    notes = row.get("notes") or ()
    parts = {
        part: {key: _tidied(key, value) for key, value in (row.get(part) or {}).items()}
        if isinstance(row.get(part) or {}, dict)
        else {}
        for part in ("model", "hardware", "parallel", "batch", "measured")
    }
    return {
        **parts,
        "id": str(row.get("id") or f"row {number}"),
        "source": str(row.get("source") or "source not stated"),
        "tier": str(row.get("tier") or "A").upper(),
        "status": str(row.get("status") or "ok"),
        "precision": str(row.get("precision") or "16 bits"),
        "recompute": row.get("recompute"),
        "schedule": row.get("schedule"),
        "notes": [str(note) for note in (notes if isinstance(notes, list | tuple) else [notes])],
    }


def _tidied(key: str, value: Any) -> Any:
    """A number that is positive and finite, a text or a flag; None for anything else."""
    if key in TEXTS or value is None or (type(value) is int and 0 <= value < 2**53):
        return value
    try:
        plain = float(str(value).replace(",", ""))
    except ValueError:
        return None
    if not 0 <= plain < 1e18:  # nothing that is counted here has more digits
        return None
    return int(plain) if plain == int(plain) else plain


def run_of(row: Row, shares: Shares = SHARES) -> Run:
    """A row as objects; ValueError with the reason if the row does not say enough for a planner."""
    row = tidy(row)
    model, cluster = model_of(row), cluster_of(row, shares)
    layout = layout_of(row, model)
    if layout.gpus != cluster.gpus:
        raise ValueError(f"the layout multiplies to {layout.gpus} of {cluster.gpus} GPUs")
    if layout.microbatches < 1:
        raise ValueError(
            f"{layout.batch} sequences don't fill {layout.data} ranks, {layout.microbatch} each"
        )
    fits = fits_of(row)
    step_s = step_of(row, model, cluster, layout) if fits else None
    return Run(row, model, cluster, layout, step_s, fits)


def fits_of(row: Row) -> bool | None:
    """Whether a run fit on its GPUs; None if it failed for another reason."""
    status = row["status"].lower()
    if "oom" in status or "memory" in status:
        return False
    ran = re.match(r"ok\b|success|complete|finished|ran\b|measured", status)
    return True if ran else None


def model_of(row: Row) -> Model:
    """The shape of a row's model. Heads that are not stated have 128 numbers each (most models)."""
    shape, parallel = row["model"], row["parallel"]
    experts = max(shape.get("experts") or 1, parallel.get("ep") or 1)
    if experts > 1 or shape.get("moe") or EXPERTS.search(str(shape.get("name") or "")):
        raise ValueError("not a dense model")
    missing = [name for name in ("layers", "hidden", "seq") if not shape.get(name)]
    if missing:
        raise ValueError(f"the model does not state its {' and '.join(missing)}")
    gated = bool(shape.get("gated_mlp"))
    heads = shape.get("heads") or max(1, shape["hidden"] // 128)
    return Model(
        layers=shape["layers"],
        hidden=shape["hidden"],
        heads=heads,
        kv_heads=shape.get("kv_heads") or heads,
        ffn=shape.get("ffn") or (8 * shape["hidden"] // 3 if gated else 4 * shape["hidden"]),
        vocab=shape.get("vocab") or 50_304,  # of GPT-2, padded
        seq=shape["seq"],
        gated=gated,
        tied=shape.get("tied_embeddings") is not False,
    )


def cluster_of(row: Row, shares: Shares = SHARES) -> Cluster:
    """A row's GPUs by their data sheet, with the network that the source states.

    A slice of TPUs is one node. Where a source does not say, a node has eight GPUs.
    """
    hardware = row["hardware"]
    if not hardware.get("gpu") or not hardware.get("gpus"):
        raise ValueError("the GPU or the number of GPUs is not stated")
    node = hardware.get("gpus_per_node") or (
        hardware["gpus"] if "TPU" in str(hardware["gpu"]) else 8
    )
    peak = 1e12 * (hardware.get("peak_bf16_tflops") or 0)
    network = network_of(hardware.get("network"), node)
    try:
        return Cluster.of(hardware["gpu"], hardware["gpus"], node, network, shares, peak)
    except KeyError as problem:
        raise ValueError(problem.args[0]) from None


PORTS = {"FDR": 56, "EDR": 100, "HDR": 200, "NDR": 400, "XDR": 800, "OMNI-PATH": 100}
PORTS |= {"SLINGSHOT": 200}  # Gb/s


def network_of(text: str | None, gpus_per_node: int) -> float | None:
    """Bytes per second and GPU between nodes, from words: "HDR200 x8/node", "400 Gb/s per GPU".

    None if the words don't say for how many GPUs a port is.
    """
    if not isinstance(text, str):
        return None
    found = re.search(r"(\d+(?:\.\d+)?)\s*([GT])(b|B)", text)
    named = [gigabits for name, gigabits in PORTS.items() if name in text.upper()]
    if not found and not named:
        return None
    scale = {"G": 1, "T": 1000}[found[2]] * {"b": 1, "B": 8}[found[3]] if found else 1
    gigabits = float(found[1]) * scale if found else named[0]
    if re.search(r"(per|/)[\s-]?(GPU|accelerator|chip|device)", text, re.I):
        return gigabits * GIGABIT
    ports = re.search(r"\b(\d{1,2})\s*[x×]|[x×]\s*(\d{1,2})\b(?!\d)", text)
    whole = re.search(r"(per|/)[\s-]?(node|host|server|instance)", text, re.I) or gigabits >= 800
    if not ports and not whole:
        return None
    count = int(ports[1] or ports[2]) if ports else 1
    return count * gigabits * GIGABIT / gpus_per_node


def layout_of(row: Row, model: Model) -> Layout:
    """A row's layout. What the source does not state is filled in, each by one rule."""
    parallel, batch = row["parallel"], row["batch"]
    tensor, pipeline = parallel.get("tp") or 1, parallel.get("pp") or 1
    context = parallel.get("cp") or 1
    data = data_of(row, tensor * pipeline * context)
    micro = microbatch_of(row, data, _shards(parallel, ""))
    schedule = str(row.get("schedule") or "")
    compiler = "xla" if re.match("TPU|Trainium", cluster_of(row).name) else ""
    words = f"{row['source']} {schedule} {compiler} {' '.join(row.get('notes') or ())}".lower()
    fused = bool(FUSED.search(ELSEWHERE.sub("", words)))
    shards = _shards(parallel, words)
    split = parallel.get("sequence_parallel")
    return Layout(
        tensor=tensor,
        pipeline=pipeline,
        data=data,
        context=context,
        batch=batch.get("gbs_sequences")
        or int(batch.get("tokens") or 0) // model.seq
        or data * micro * (batch.get("grad_accum") or batch.get("microbatches") or 1),
        microbatch=micro,
        chunks=_chunks(parallel.get("vp"), schedule + row["source"], model.layers, pipeline),
        recompute=recompute_of(row),
        shards=shards,
        sequence_parallel=_is_new(row) and tensor > 1 if split is None else bool(split),
        attention=attention_of(row, words),
        kernels=kernels_of(words, fused),
        overlap=overlaps(parallel, words),
        bubble=bubble_of(schedule),
        balanced=bool(re.search("nanotron|torchtitan", words)),
        deepspeed="deepspeed" in words,
        half=shards > 2 and "deepspeed" not in words,
    )


def saving(run: Run) -> Layout:
    """A run's layout; what it does not state about saving memory, it does."""
    states = any(run.row["parallel"].get(name) is not None for name in ("zero", "fsdp", "sharding"))
    recomputes = run.row.get("recompute") not in (None, "not stated")
    return dataclasses.replace(
        run.layout,
        shards=run.layout.shards if states else max(1, run.layout.shards),
        recompute=run.layout.recompute if recomputes else "full",
    )


def data_of(row: Row, others: int) -> int:
    """Data ranks: all GPUs over the other ranks, where the stated number counts some of them again.

    Some sources count context ranks or expert ranks among the data ranks.
    """
    parallel, gpus = row["parallel"], row["hardware"]["gpus"]
    stated = parallel.get("dp")
    again = {parallel.get("cp") or 1, parallel.get("ep") or 1}
    copies = parallel.get("fsdp") if isinstance(parallel.get("fsdp"), int) else 1
    counted_again = stated and stated * others in {factor * gpus for factor in again}
    if not stated or counted_again or stated * others * copies == gpus:  # replicas of shards
        return max(1, gpus // others)
    return stated


def recompute_of(row: Row) -> str:
    """ "none", "selective" or "full". What is not stated counts as none."""
    stated = str(row.get("recompute") or "").lower()
    if re.match(r"selective|partial|half|every other", stated):
        return "selective"
    return "full" if re.match(r"full|true|yes|all\b|every", stated) else "none"


def microbatch_of(row: Row, data: int, shards: int) -> int:
    """Sequences per microbatch. Not stated: one, or all of a rank's if weights are sharded."""
    batch = row["batch"]
    rank = (batch.get("gbs_sequences") or 0) // data
    times = batch.get("grad_accum") or batch.get("microbatches") or (1 if shards > 2 else rank)
    return batch.get("mbs") or max(1, rank // max(1, times))


def overlaps(parallel: dict[str, Any], words: str) -> bool:
    """Whether messages run beside the computation; PyTorch's FSDP fetches weights ahead."""
    fetches_ahead = any(parallel.get(name) for name in ("fsdp", "sharding"))
    return bool(
        fetches_ahead
        or OVERLAPPED.search(words)
        or "overlap" in words.replace("not overlapped", "")
    )


def bubble_of(schedule: str) -> float:
    """A schedule's bubble, over that of 1F1B: zero-bubble schedules that hold more have none."""
    if re.match(r"ZB-?(2p|H2|V)", schedule, re.I):
        return 0.0
    return 1 / 3 if re.match(r"ZB-?(1p|H1)", schedule, re.I) else 1.0


def attention_of(row: Row, words: str) -> str:
    """How the attention's core is computed: as the notes say, or as was usual at the time."""
    named = {"kernel: torch": "torch", "kernel: fused": "softmax", "v1.0.8": "flash1"}
    for name, kind in named.items():
        if name in words:
            return kind
    if re.search(r"(no|without) flash", words) or not (_is_new(row) or "flash" in words):
        return "softmax"
    return "flash"


def kernels_of(words: str, fused: bool) -> str:
    """Whether elementwise kernels are fused, those of plain PyTorch, or also norms in fp32."""
    if "kernel: " in words:
        return "eager" if "rms kernel" in words else "unfused"
    return "fused" if fused else "eager"


def step_of(row: Row, model: Model, cluster: Cluster, layout: Layout) -> float:
    """Seconds per step: measured, or from what the source reports, by the source's convention."""
    tokens, gpus = layout.batch * model.seq, cluster.gpus
    hardware = row["hardware"]
    peak = hardware.get("mfu_denominator_tflops") or hardware.get("peak_bf16_tflops")
    flops = tokens * counted(row, model) / gpus
    amounts = {  # what is stated, and of what it is a rate
        "tokens_per_s_per_gpu": tokens / gpus,
        "tokens_per_s": tokens,
        "samples_per_gpu_per_s": layout.batch / gpus,
        "samples_per_s": layout.batch,
        "tflops_per_gpu": flops / 1e12,
        "mfu": flops / (1e12 * peak if peak else cluster.peak_flops_per_s),
    }
    measured = row["measured"]
    for name, scale in {"step_time_s": 1, "iteration_time_s": 1, "step_time_ms": 1e-3}.items():
        if measured.get(name):
            return scale * measured[name]
    for name, amount in amounts.items():
        if rate := measured.get(name):
            return amount / (rate / 100 if name == "mfu" and rate > 1 else rate)  # 45 for 45 %
    raise ValueError("no time, rate or MFU is stated")


def counted(row: Row, model: Model) -> float:
    """FLOPs per token as the source counts them.

    Model FLOPs are 6 per weight of the layers and of the scores, and 12·L·h·s for attention. A
    causal count takes half of the attention, and "6N" leaves it out. A hardware count adds the
    recomputed forward.
    """
    kind = f"{row['measured'].get('tflops_kind') or row['measured'].get('mfu_kind') or ''}".lower()
    causal = "causal" in kind or "megatron-bridge" in row["source"].lower()
    weights_alone = re.search(r"6 ?[·*]? ?n\b|(no|without) attention", kind) and "12" not in kind
    per_score = 0 if weights_alone else 6 if causal else 12
    attention = per_score * model.layers * model.hidden * model.seq
    layers = 6 * model.layers * model.layer_weights + attention
    again = 4 / 3 if kind.startswith("hardware") and recompute_of(row) == "full" else 1
    return again * layers + 6 * model.end_weights


def model_flops(model: Model) -> float:
    """Model FLOPs per token, with the whole square of attention."""
    attention = 12 * model.seq * model.hidden * model.layers
    return 6 * (model.layers * model.layer_weights + model.end_weights) + attention


def _is_new(row: Row) -> bool:
    """Whether fused attention was usual: by the GPU, the model's name, the stack or the date.

    PyTorch has called FlashAttention-2 by itself since version 2.2, of January 2024. Papers took
    half a year to follow.
    """
    gpu, source = cluster_of(row).name, row["source"]
    if gpu not in VOLTA | AMPERE:
        return True
    named = f"{row['model'].get('name')} {source} {' '.join(row['notes'])}"
    if gpu not in VOLTA and (BORN_FUSED.search(named) or "compile" in named):
        return True
    paper = re.search(r"arXiv (\d{4})\.", source)
    dated = re.search(r"\b(20\d\d)\b|\b(2\d)\.\d\d\b", source)
    if paper:
        return int(paper[1]) >= 2406 and gpu not in VOLTA
    return bool(dated) and int(dated[1] or f"20{dated[2]}") >= 2024 and gpu not in VOLTA


def _chunks(stated: int | None, schedule: str, layers: int, stages: int) -> int:
    """Chunks per stage. Interleaved but not stated: chunks of two layers and more, at most four."""
    if stated:
        return stated
    interleaved = re.search(r"interleaved|Megatron-Core", schedule)
    return max(1, min(4, layers // stages // 2)) if interleaved and stages > 1 else 1


def _shards(parallel: dict[str, Any], words: str) -> int:
    """What is sharded over data ranks, as ZeRO's stages count it."""
    sharding, fsdp = str(parallel.get("sharding") or ""), parallel.get("fsdp")
    if stage := re.search(r"[0-3]", str(parallel.get("zero"))):
        return int(stage[0])
    whole = fsdp is True or isinstance(fsdp, int) and fsdp > 1 or str(fsdp).upper() == "FULL_SHARD"
    if whole or sharding in ("FULL_SHARD", "HYBRID_SHARD"):
        return 3
    if sharding == "SHARD_GRAD_OP" or "gradients" in str(fsdp):
        return 2
    return 1 if DISTRIBUTED.search(words) else 0
