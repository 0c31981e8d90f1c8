"""Labs 11, 12, 14 and 15 on all GPUs of a machine against NCCL and PyTorch's own parallelism.

    python benchmarks/multi_gpu.py [PART ...]      of all-reduce, data-parallel, tensor-parallel, pipeline; all if none is given
    python benchmarks/multi_gpu.py --gloo          tiny sizes on two processes, no GPU: a trial of this program, no measurement

Ours are the solutions' own functions, a rank a GPU. What they compute is compared first (races.py). Times are medians over
rounds in which ours and the peer take turns. For 1F1B's idle time two predictions stand beside the measurement: the lab's
formula, and the simulated machine with the tasks and messages as long as each is by itself; what makes the difference is told
cause by cause. A run of all parts writes benchmarks/multi_gpu.md.
"""

import argparse
import functools
import itertools
import math
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
GPUS = {
    "all-reduce": (7, 2**30, [4**k for k in range(5, 15)]),
    "data-parallel": (7, 8192, 8, 1024, torch.bfloat16),
    "tensor-parallel": (7, 8192, 64, 4096, torch.bfloat16),
    "pipeline": (7, 8192, 4, 16, 1024, torch.bfloat16),
}
TRIAL = {
    "all-reduce": (2, 2**16, [2**10, 2**14]),
    "data-parallel": (2, 64, 3, 8, torch.float32),
    "tensor-parallel": (2, 64, 4, 16, torch.float32),
    "pipeline": (2, 32, 2, 4, 4, torch.float32),
}


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
    lab = from_lab(
        "11",
        "rings_all_reduce",
        "ring_all_reduce",
        "one_round",
        "bus_bandwidth",
        "fit_alpha_beta",
        "alpha_beta_time",
    )
    p, (times_s, messages_s) = (
        run.world_size,
        run(races.all_reduce, lab, rounds, size, sizes).returns[0],
    )
    ours, its = (
        1e-9 * lab.bus_bandwidth("all_reduce", size, times_s[name], p)
        for name in ("rings", "library")
    )
    what = f"all-reduce of {size / 2**20:,g} MiB, fp32"
    yield Row(
        f"{what}, eight rings", "GB/s", ours, "torch.distributed's", its, ours / its, "≥ 0.90"
    )
    alpha_beta = lab.fit_alpha_beta(list(messages_s), list(messages_s.values()))
    predicted_s = lab.alpha_beta_time("ring_all_reduce", p, size, *alpha_beta)
    yield Row(
        f"{what}, one ring",
        "ms",
        1e3 * times_s["ring"],
        "predicted from messages' α and β",
        1e3 * predicted_s,
        times_s["ring"] / predicted_s,
        "",
    )


def data_parallel(run, rounds, width, layers, rows, dtype):
    """Lab 12: a step that overlaps beside DistributedDataParallel, as it comes and with its other way to keep gradients."""
    times_s = run(
        races.data_parallel, from_lab("12", "step_of"), rounds, width, layers, rows, dtype
    ).returns[0]
    what = f"data-parallel step, {layers} layers of {width:,}, {rows:,} rows a rank"
    yield faster(what, times_s["ours"], "DistributedDataParallel", times_s["DDP"], 1.0)
    yield faster(
        what,
        times_s["ours"],
        "the same, gradient_as_bucket_view",
        times_s["DDP, bucket views"],
        1.0,
    )


def tensor_parallel(run, rounds, width, heads, tokens, dtype):
    """Lab 14: a transformer's block beside parallelize_module's."""
    lab = from_lab("14", "transformer_block", "shard_attention", "shard_mlp")
    times_s = run(races.tensor_parallel, lab, rounds, width, heads, tokens, dtype).returns[0]
    what = f"tensor-parallel block, {width:,} wide, {tokens:,} tokens, forward and backward"
    yield faster(what, times_s["ours"], "parallelize_module", times_s["peer"], 0.95)


def pipeline(run, rounds, width, blocks, more_blocks, rows, dtype):
    """Lab 15: 1F1B beside PyTorch's; its bubble beside the lab's formula, for which messages are free, and what explains it.

    more_blocks: of a second size, whose work is long beside its messages.
    """
    lab, p, m = (
        from_lab("15", "Stage", "run_stage", "one_f_one_b", "open_links", "bubble"),
        run.world_size,
        races.MICROBATCHES,
    )
    plain = lab.bubble(p, m, replicas=1)
    for count, times in ((blocks, rounds), (more_blocks, 1 + rounds // 3)):
        result = run(races.pipeline, lab, times, width, count, rows, dtype, count == blocks)
        times_s, what = (
            result.returns[0],
            f"1F1B, {p} stages of {count} blocks of {width:,}, {m} × {rows:,} rows",
        )
        if "peer" in times_s:
            yield faster(what, times_s["ours"], "Schedule1F1B", times_s["peer"], 0.95)
        alone = by_itself(result)
        causes = by_cause(lab, result, alone)
        measured, expected = idle(causes["measured"]), idle(causes[MESSAGES])
        what += ", idle"
        for name, predicted in (
            ("predicted", plain),
            ("predicted from f, b and messages", expected),
        ):
            yield Row(
                what, "of the time", measured, name, predicted, measured / predicted, "0.90 to 1.10"
            )
        yield told(what, causes, alone, times_s["message"], rows * width * dtype.itemsize)


MESSAGES = "messages as long as by themselves"


def by_cause(lab, result, alone):
    """{cause: by rank, the spans of a step}: on the simulated machine, each with one cause more to be idle; then measured.

    alone: as `by_itself` has it.
    """
    p, m, message_s, watched = (
        result.trace.world_size,
        races.MICROBATCHES,
        result.returns[0]["message"],
        steps(result.trace),
    )
    own = [{f"{kind}{i}": kinds[kind] for kind in "FB" for i in range(m)} for kinds in alone]
    mean = {task: statistics.fmean(seconds[task] for seconds in own) for task in own[0]}
    within = [
        {
            tasks[0].name: statistics.median(task.duration_s for task in tasks)
            for tasks in zip(*of_rank, strict=True)
        }
        for of_rank in zip(*watched, strict=True)
    ]
    return {
        "equal stages, free messages": simulated(lab, [mean] * p, 0.0),
        "each stage as fast as by itself": simulated(lab, own, 0.0),
        MESSAGES: simulated(lab, own, message_s),
        "tasks as long as within the pipeline": simulated(lab, within, message_s),
        "measured": sorted(watched, key=idle)[len(watched) // 2],
    }


def simulated(lab, seconds, message_s):
    """By rank, the spans of a step on the simulated machine. seconds: by rank, {"F0": s, ...}; message_s: of each message.

    Equal stages take (m + p − 1)(f + b) and a chain of messages: m + 1 with two stages, each of which waits for one a
    microbatch; 2(m + p) − 5 with more, since a stage in the middle waits for two.
    """
    trace = ranks.run(
        races.timed_pipeline,
        lab,
        ranks.each(seconds),
        world_size=len(seconds),
        alpha_s=message_s,
        beta_s_per_byte=0.0,
        live_bytes=False,
    ).trace
    return [trace.compute_named("*", rank) for rank in range(len(seconds))]


def by_itself(result):
    """By rank, {"F": seconds, "B": seconds} of a task of the stage by itself: medians."""
    return [
        {
            kind: statistics.median(
                span.duration_s for span in result.trace.spans_named(f"alone {kind}*", rank)
            )
            for kind in "FB"
        }
        for rank in range(result.trace.world_size)
    ]


def steps(trace):
    """The steps that were watched but the first, which warms up: of each, by rank, its tasks as spans on one clock."""
    by_rank = []
    for rank in range(trace.world_size):
        tasks = sorted(
            trace.spans_named("F*", rank) + trace.spans_named("B*", rank),
            key=lambda task: task.start_s,
        )
        by_rank.append(
            [
                [
                    ranks.Span(
                        rank, task.name, task.start_s - step.start_s, task.end_s - step.start_s
                    )
                    for task in tasks
                    if step.start_s <= task.start_s < step.end_s
                ]
                for step in trace.spans_named("step", rank)[1:]
            ]
        )
    return list(zip(*by_rank, strict=True))


def idle(spans_by_rank):
    """The share of all ranks' time without a span, from the first one's start to the last one's end."""
    spans = list(itertools.chain(*spans_by_rank))
    time_s = max(span.end_s for span in spans) - min(span.start_s for span in spans)
    return 1 - sum(span.duration_s for span in spans) / (time_s * len(spans_by_rank))


def waits(spans_by_rank):
    """[warm-up, steady state, drain]: the seconds that a rank idles there, the mean of the ranks.

    Warm-up lasts until a rank's first backward, the steady state until the end of the one that follows its last forward. With
    equal stages and free messages a rank idles only before and after.
    """
    start_s, end_s = (
        min(own[0].start_s for own in spans_by_rank),
        max(own[-1].end_s for own in spans_by_rank),
    )
    sums = [0.0] * 3
    for own in spans_by_rank:
        kinds = "".join(span.name[0] for span in own)
        first, last = kinds.index("B"), kinds.rindex("F") + 1
        edges = [start_s, *(edge for span in own for edge in (span.start_s, span.end_s)), end_s]
        for number, (idle_s, busy_s) in enumerate(zip(edges[::2], edges[1::2], strict=True)):
            sums[(number > first) + (number > last)] += busy_s - idle_s
    return [total / len(spans_by_rank) for total in sums]


def messages(spans_by_rank):
    """Seconds of each message, from when both its sender and its receiver were free for it to the task that it is for."""
    ended, found = {(span.rank, span.name): span.end_s for own in spans_by_rank for span in own}, []
    for own in spans_by_rank:
        free_s = -math.inf
        for span in own:
            sent_s = ended.get((span.rank + {"F": -1, "B": 1}[span.name[0]], span.name))
            if sent_s is not None:
                found.append(span.start_s - max(free_s, sent_s))
            free_s = span.end_s
    return found


def told(what, causes, alone, message_s, size):
    """The causes as Markdown. alone: as `by_itself` has it; message_s: of a message of this size, by itself."""
    lines = [
        f"| {cause} | {' | '.join(f'{1e3 * each:.2f}' for each in waits(spans))} | {idle(spans):.4f} |"
        for cause, spans in causes.items()
    ]
    forward, backward = (", ".join(f"{1e3 * each[kind]:.2f}" for each in alone) for kind in "FB")
    within_s = statistics.median(messages(causes["measured"]))
    return "\n".join(
        [
            f"{what}: the milliseconds that a rank waits, the mean of the ranks. Simulated, with one cause more in each line; then "
            "measured.",
            "",
            "| cause | warm-up | steady state | drain | idle |",
            "| --- | ---: | ---: | ---: | ---: |",
            *lines,
            "",
            f"By itself, rank by rank, a forward takes {forward} ms, a backward {backward} ms; a message of {size / 1e6:.3g} MB "
            f"{1e3 * message_s:.3f} ms, within the pipeline {1e3 * within_s:.3f} ms (the median).",
        ]
    )


PARTS = {
    "all-reduce": all_reduce,
    "data-parallel": data_parallel,
    "tensor-parallel": tensor_parallel,
    "pipeline": pipeline,
}


def measured(run, parts, sizes):
    """(rows, what is told below them, the parts that failed): one that fails is told, and the others go on."""
    rows, below, failed = [], [], []
    for part in parts:
        try:
            for found in PARTS[part](run, *sizes[part]):
                print(line(found, run.world_size) if isinstance(found, Row) else found, flush=True)
                (rows if isinstance(found, Row) else below).append(found)
        except Exception:
            traceback.print_exc()
            failed.append(part)
    return rows, below, failed


def line(row, world_size) -> str:
    return (
        f"| {row.what} | {world_size} | {row.ours:,.4g} | {row.unit} | {row.peer} | {row.its:,.4g} | {row.ratio:.3f} | "
        f"{row.goal} |"
    )


def table(rows, world_size):
    """The rows as Markdown."""
    return "\n".join(
        [
            "| what | ranks | ours | unit | peer | its | ratio | goal |",
            "| --- | ---: | ---: | --- | --- | ---: | ---: | ---: |",
            *(line(row, world_size) for row in rows),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description="The multi-GPU labs beside NCCL and PyTorch's own parallelism."
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument(
        "--gloo", action="store_true", help="tiny sizes on two processes: a trial, no measurement"
    )
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    gpus, parts = torch.cuda.device_count(), options.parts or list(PARTS)
    if gpus < 2 and not options.gloo:
        sys.exit(
            f"benchmarks/multi_gpu.py needs two GPUs or more, and {'one is' if gpus else 'none are'} here; "
            "benchmarks/multi_gpu.md has the figures of a machine with several."
        )
    os.environ.setdefault(
        "CUDA_DEVICE_MAX_CONNECTIONS", "32"
    )  # a queue for each stream of messages; for all that is raced
    where = (
        {"machine": "gloo", "world_size": 2}
        if options.gloo
        else {"machine": "nccl", "world_size": gpus}
    )
    run = functools.partial(ranks.run, noted=False, timeout_s=150, **where)
    run.world_size = where["world_size"]
    rows, below, failed = measured(run, parts, TRIAL if options.gloo else GPUS)
    head = (
        "A trial on gloo: no measurement."
        if options.gloo
        else (
            f"{gpus} × {device.name()}, torch {torch.__version__}, NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}. Made by "
            "`python benchmarks/multi_gpu.py`."
        )
    )
    text = "\n\n".join([head, table(rows, run.world_size), *below]) + "\n"
    print(f"\n{text}")
    if not options.gloo and not failed and parts == list(PARTS):
        FILE.write_text(text, encoding="utf-8")
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
