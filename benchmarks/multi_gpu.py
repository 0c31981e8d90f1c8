"""Labs 11, 12, 14 and 15 on all GPUs of a machine against NCCL and PyTorch's own parallelism.

    python benchmarks/multi_gpu.py [PART ...]      of all-reduce, data-parallel, tensor-parallel, pipeline; all if none is given
    python benchmarks/multi_gpu.py --gloo          tiny sizes on two processes, no GPU: a trial of this program, no measurement

Ours are the solutions' own functions, a rank a GPU. What they compute is compared first (races.py). Times are medians over
rounds in which ours and the peer take turns. A run of all parts writes benchmarks/multi_gpu.md.
"""

import argparse
import functools
import itertools
import os
import statistics
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import torch

from benchmarks import races
from benchmarks.solved import solved
from common import device, ranks

FILE = Path(__file__).with_suffix(".md")
GPUS = {"all-reduce": (7, 2**30, [4**k for k in range(5, 15)]), "data-parallel": (7, 8192, 8, 1024, torch.bfloat16),
        "tensor-parallel": (7, 8192, 64, 4096, torch.bfloat16), "pipeline": (7, 8192, 4, 1024, torch.bfloat16)}
TRIAL = {"all-reduce": (2, 2**16, [2**10, 2**14]), "data-parallel": (2, 64, 3, 8, torch.float32),
         "tensor-parallel": (2, 64, 4, 16, torch.float32), "pipeline": (2, 32, 2, 4, torch.float32)}


@dataclass
class Row:
    """A line of the table: ours and the peer's, or what was measured and what was predicted."""

    what: str
    unit: str
    ours: float
    peer: str
    its: float
    ratio: float
    goal: str


def faster(what, ours_s, peer, peer_s, least):
    """The Row of two times."""
    return Row(what, "ms", 1e3 * ours_s, peer, 1e3 * peer_s, peer_s / ours_s, f"≥ {least:.2f}")


def from_lab(number, *names):
    """These functions of a lab's solution."""
    found = solved(number)
    torch.set_default_dtype(torch.float32)  # some labs teach in float64
    return SimpleNamespace(**{name: found[name] for name in names})


def all_reduce(run, rounds, size, sizes):
    """Lab 11: eight rings of sends and receives beside the library's own; one ring beside the α-β model."""
    lab = from_lab("11", "rings_all_reduce", "ring_all_reduce", "one_round", "bus_bandwidth", "fit_alpha_beta",
                   "alpha_beta_time")
    p, (times_s, messages_s) = run.world_size, run(races.all_reduce, lab, rounds, size, sizes).returns[0]
    ours, its = (1e-9 * lab.bus_bandwidth("all_reduce", size, times_s[name], p) for name in ("rings", "library"))
    what = f"all-reduce of {size / 2**20:,g} MiB, fp32"
    yield Row(f"{what}, eight rings", "GB/s", ours, "torch.distributed's", its, ours / its, "≥ 0.90")
    alpha_beta = lab.fit_alpha_beta(list(messages_s), list(messages_s.values()))
    predicted_s = lab.alpha_beta_time("ring_all_reduce", p, size, *alpha_beta)
    yield Row(f"{what}, one ring", "ms", 1e3 * times_s["ring"], "predicted from messages' α and β", 1e3 * predicted_s,
              times_s["ring"] / predicted_s, "")


def data_parallel(run, rounds, width, layers, rows, dtype):
    """Lab 12: a step that overlaps beside DistributedDataParallel, as it comes and with its other way to keep gradients."""
    times_s = run(races.data_parallel, from_lab("12", "step_of"), rounds, width, layers, rows, dtype).returns[0]
    what = f"data-parallel step, {layers} layers of {width:,}, {rows:,} rows a rank"
    yield faster(what, times_s["ours"], "DistributedDataParallel", times_s["DDP"], 1.0)
    yield faster(what, times_s["ours"], "the same, gradient_as_bucket_view", times_s["DDP, bucket views"], 1.0)


def tensor_parallel(run, rounds, width, heads, tokens, dtype):
    """Lab 14: a transformer's block beside parallelize_module's."""
    lab = from_lab("14", "transformer_block", "shard_attention", "shard_mlp")
    times_s = run(races.tensor_parallel, lab, rounds, width, heads, tokens, dtype).returns[0]
    what = f"tensor-parallel block, {width:,} wide, {tokens:,} tokens, forward and backward"
    yield faster(what, times_s["ours"], "parallelize_module", times_s["peer"], 0.95)


def pipeline(run, rounds, width, blocks, rows, dtype):
    """Lab 15: 1F1B beside PyTorch's; its bubble beside the lab's formula, for which messages are free."""
    lab, p, m = from_lab("15", "Stage", "run_stage", "one_f_one_b", "open_links", "bubble"), run.world_size, races.MICROBATCHES
    result = run(races.pipeline, lab, rounds, width, blocks, rows, dtype)
    times_s, what = result.returns[0], f"1F1B, {p} stages of {blocks} blocks of {width:,}, {m} × {rows:,} rows"
    yield faster(what, times_s["ours"], "Schedule1F1B", times_s["peer"], 0.95)
    tasks = [result.trace.spans_named("task", rank) for rank in range(p)]
    measured = statistics.median(idle([own[i:i + 2 * m] for own in tasks]) for i in range(0, 2 * m * rounds, 2 * m))
    predicted = lab.bubble(p, m, replicas=1)
    yield Row(f"{what}, idle", "of the time", measured, "predicted", predicted, measured / predicted, "0.90 to 1.10")


def idle(spans_by_rank):
    """The share of all ranks' time without a span, from the first one's start to the last one's end."""
    spans = list(itertools.chain(*spans_by_rank))
    time_s = max(span.end_s for span in spans) - min(span.start_s for span in spans)
    return 1 - sum(span.duration_s for span in spans) / (time_s * len(spans_by_rank))


PARTS = {"all-reduce": all_reduce, "data-parallel": data_parallel, "tensor-parallel": tensor_parallel, "pipeline": pipeline}


def measured(run, parts, sizes):
    """(rows, the parts that failed): one that fails is told, and the others go on."""
    rows, failed = [], []
    for part in parts:
        try:
            for row in PARTS[part](run, *sizes[part]):
                print(line(row, run.world_size), flush=True)
                rows.append(row)
        except Exception:
            traceback.print_exc()
            failed.append(part)
    return rows, failed


def line(row, world_size):
    return (f"| {row.what} | {world_size} | {row.ours:,.4g} | {row.unit} | {row.peer} | {row.its:,.4g} | {row.ratio:.3f} | "
            f"{row.goal} |")


def table(rows, world_size):
    """The rows as Markdown."""
    return "\n".join(["| what | ranks | ours | unit | peer | its | ratio | goal |",
                      "| --- | ---: | ---: | --- | --- | ---: | ---: | ---: |", *(line(row, world_size) for row in rows)])


def main():
    parser = argparse.ArgumentParser(description="The multi-GPU labs beside NCCL and PyTorch's own parallelism.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--gloo", action="store_true", help="tiny sizes on two processes: a trial, no measurement")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    gpus, parts = torch.cuda.device_count(), options.parts or list(PARTS)
    if gpus < 2 and not options.gloo:
        sys.exit(f"benchmarks/multi_gpu.py needs two GPUs or more, and {'one is' if gpus else 'none are'} here; "
                 "benchmarks/multi_gpu.md has the figures of a machine with several.")
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")  # a queue for each stream of messages; for all that is raced
    where = {"machine": "gloo", "world_size": 2} if options.gloo else {"machine": "nccl", "world_size": gpus}
    run = functools.partial(ranks.run, noted=False, timeout_s=150, **where)
    run.world_size = where["world_size"]
    rows, failed = measured(run, parts, TRIAL if options.gloo else GPUS)
    head = "A trial on gloo: no measurement." if options.gloo else (
        f"{gpus} × {device.name()}, torch {torch.__version__}, NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}. Made by "
        "`python benchmarks/multi_gpu.py`.")
    text = f"{head}\n\n{table(rows, run.world_size)}\n"
    print(f"\n{text}")
    if not options.gloo and not failed and parts == list(PARTS):
        FILE.write_text(text, encoding="utf-8")
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
