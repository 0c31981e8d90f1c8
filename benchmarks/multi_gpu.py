"""Labs 11 to 15 on all GPUs of a machine against NCCL and PyTorch's own parallelism.

    python benchmarks/multi_gpu.py [PART ...]
    python benchmarks/multi_gpu.py --gloo

The parts are all-reduce, data-parallel, sharded, tensor-parallel and pipeline; all of them if none
is given.
--gloo uses tiny sizes on two processes and no GPU: a trial of this program, not a measurement.

Ours are the solutions' own functions, with one rank per GPU. What they compute is compared first
(races.py). Times are medians over rounds in which ours and the peer take turns. 1F1B's idle time
is compared with two predictions: the lab's formula, and the simulated machine with tasks and
messages as long as each is by itself. The difference is explained cause by cause. A run of all
parts writes benchmarks/multi_gpu.md.
"""

import argparse
import itertools
import math
import os
import statistics
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch

from benchmarks import races
from benchmarks.solved import solved
from common.hardware import device
from nogpu import ranks

Spans = list[ranks.Span]  # of one rank
FILE = Path(__file__).with_suffix(".md")
GPUS: dict[str, tuple] = {  # the sizes of each part
    "all-reduce": (7, 2**30, [4**k for k in range(5, 15)]),
    "data-parallel": (7, 8192, 8, 1024, torch.bfloat16),
    "sharded": (7, 4096, 8, 8, 2048, torch.bfloat16),
    "tensor-parallel": (7, 8192, 64, 4096, torch.bfloat16),
    "pipeline": (7, 8192, 4, 16, 1024, torch.bfloat16),
}
TRIAL: dict[str, tuple] = {
    "all-reduce": (2, 2**16, [2**10, 2**14]),
    "data-parallel": (2, 64, 3, 8, torch.float32),
    "sharded": (2, 64, 2, 2, 8, torch.float32),
    "tensor-parallel": (2, 64, 4, 16, torch.float32),
    "pipeline": (2, 32, 2, 4, 4, torch.float32),
}


@dataclass(frozen=True)
class Machine:
    """What the ranks run on."""

    name: Literal["gloo", "nccl"]
    world_size: int

    def run(self, function: Callable[..., Any], *args: Any) -> ranks.Result:
        """The Result of a function of races.py; its calls are not noted, which would take time."""
        return ranks.run(
            function,
            *args,
            world_size=self.world_size,
            machine=self.name,
            noted=False,
            timeout_s=150,
        )


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


def faster(what: str, ours_s: float, peer: str, peer_s: float, least: float) -> Row:
    """The Row of two times. least: the goal for peer_s over ours_s."""
    return Row(what, "ms", 1e3 * ours_s, peer, 1e3 * peer_s, peer_s / ours_s, f"≥ {least:.2f}")


def from_lab(number: str, *names: str) -> SimpleNamespace:
    """These functions of a lab's solution."""
    solution = solved(number)
    return SimpleNamespace(**{name: solution[name] for name in names})


def all_reduce(machine: Machine, rounds: int, size: int, sizes: Sequence[int]) -> Iterator[Row]:
    """Lab 11: eight rings and the library's all-reduce; one ring and the α-β model."""
    lab = from_lab(
        "11",
        "rings_all_reduce",
        "ring_all_reduce",
        "one_round",
        "bus_bandwidth",
        "fit_alpha_beta",
        "alpha_beta_time",
    )
    p = machine.world_size
    times_s, messages_s = machine.run(races.all_reduce, lab, rounds, size, sizes).returns[0]
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


def data_parallel(
    machine: Machine, rounds: int, width: int, layers: int, rows: int, dtype: torch.dtype
) -> Iterator[Row]:
    """Lab 12: a step that overlaps, and DistributedDataParallel's.

    The latter by default, and with gradients that are views of its buckets.
    """
    lab = from_lab("12", "step_of")
    times_s = machine.run(races.data_parallel, lab, rounds, width, layers, rows, dtype).returns[0]
    what = f"data-parallel step, {layers} layers of {width:,}, {rows:,} rows per rank"
    yield faster(what, times_s["ours"], "DistributedDataParallel", times_s["DDP"], 1.0)
    yield faster(
        what,
        times_s["ours"],
        "the same, gradient_as_bucket_view",
        times_s["DDP, bucket views"],
        1.0,
    )


def sharded(
    machine: Machine,
    rounds: int,
    width: int,
    blocks: int,
    rows: int,
    tokens: int,
    dtype: torch.dtype,
) -> Iterator[Row]:
    """Lab 13: forward and backward with weights cut over ranks, and fully_shard's.

    Both compute forward again in backward. Memory is what a step needs beyond what stays.
    """
    lab = from_lab("13", "forward_units", "backward_units")
    sizes = width, blocks, rows, tokens, dtype
    times_s, peaks = machine.run(races.sharded, lab, rounds, *sizes).returns[0]
    what = f"sharded step, {blocks} blocks of {width:,}, {rows} × {tokens:,} tokens per rank"
    yield faster(what, times_s["ours"], "fully_shard", times_s["fully_shard"], 0.95)
    if peaks["fully_shard"]:
        ours, its = (1e-9 * peaks[name] for name in ("ours", "fully_shard"))
        yield Row(f"{what}, memory", "GB", ours, "fully_shard", its, ours / its, "≤ 1.02")


def tensor_parallel(
    machine: Machine, rounds: int, width: int, heads: int, tokens: int, dtype: torch.dtype
) -> Iterator[Row]:
    """Lab 14: a transformer's block and parallelize_module's."""
    lab = from_lab("14", "attention", "mlp", "shard_attention", "shard_mlp")
    times_s = machine.run(races.tensor_parallel, lab, rounds, width, heads, tokens, dtype).returns[
        0
    ]
    what = f"tensor-parallel block, {width:,} wide, {tokens:,} tokens, forward and backward"
    yield faster(what, times_s["ours"], "parallelize_module", times_s["peer"], 0.95)


def pipeline(
    machine: Machine,
    rounds: int,
    width: int,
    blocks: int,
    more_blocks: int,
    rows: int,
    dtype: torch.dtype,
) -> Iterator[Row | str]:
    """Lab 15: 1F1B and PyTorch's; its bubble, the lab's formula, and the causes.

    In the formula messages are free. more_blocks: of a second size, which computes for long
    compared with its messages.
    """
    lab = from_lab("15", "Stage", "run_stage", "one_f_one_b", "open_links", "bubble")
    p, m = machine.world_size, races.MICROBATCHES
    plain = lab.bubble(p, m, replicas=1)
    for count, times in ((blocks, rounds), (more_blocks, 1 + rounds // 3)):
        peer = count == blocks
        result = machine.run(races.pipeline, lab, times, width, count, rows, dtype, peer)
        times_s = result.returns[0]
        what = f"1F1B, {p} stages of {count} blocks of {width:,}, {m} × {rows:,} rows"
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
        size = rows * width * dtype.itemsize
        yield explanation(what, causes, alone, times_s["message"], size)


MESSAGES = "messages as long as by themselves"


def by_cause(
    lab: SimpleNamespace, result: ranks.Result, alone: Sequence[Mapping[str, float]]
) -> dict[str, Sequence[Spans]]:
    """{cause: by rank, the spans of a step}.

    On the simulated machine, each with one more cause to be idle; then measured. alone: as
    `by_itself` has it.
    """
    p, m = result.trace.world_size, races.MICROBATCHES
    message_s, watched = result.returns[0]["message"], steps(result.trace)
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


def simulated(
    lab: SimpleNamespace, seconds: Sequence[Mapping[str, float]], message_s: float
) -> list[Spans]:
    """By rank, the spans of a step on the simulated machine.

    seconds: of each task, {"F0": s, ...}, by rank. message_s: of each message. Equal stages take
    (m + p − 1)(f + b) and a chain of messages: m + 1 with two stages, each of which waits for one
    message per microbatch; 2(m + p) − 5 with more, since a stage in the middle waits for two.
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


def by_itself(result: ranks.Result) -> list[dict[str, float]]:
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


def steps(trace: ranks.Trace) -> list[tuple[Spans, ...]]:
    """The tasks of each step that was watched, by rank, as spans on one clock.

    The first step is left out: it warms up.
    """
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


def idle(spans_by_rank: Sequence[Spans]) -> float:
    """The share of all ranks' time without a span, from the first one's start to the last's end."""
    spans = list(itertools.chain(*spans_by_rank))
    time_s = max(span.end_s for span in spans) - min(span.start_s for span in spans)
    return 1 - sum(span.duration_s for span in spans) / (time_s * len(spans_by_rank))


def waits(spans_by_rank: Sequence[Spans]) -> list[float]:
    """[warm-up, steady state, drain]: seconds that a rank idles there, on average over ranks.

    Warm-up lasts until a rank's first backward. The steady state lasts until the end of the
    backward that follows its last forward. With equal stages and free messages a rank idles only
    before and after.
    """
    start_s = min(own[0].start_s for own in spans_by_rank)
    end_s = max(own[-1].end_s for own in spans_by_rank)
    sums = [0.0] * 3
    for own in spans_by_rank:
        kinds = "".join(span.name[0] for span in own)
        first, last = kinds.index("B"), kinds.rindex("F") + 1
        edges = [start_s, *(edge for span in own for edge in (span.start_s, span.end_s)), end_s]
        for number, (idle_s, busy_s) in enumerate(zip(edges[::2], edges[1::2], strict=True)):
            sums[(number > first) + (number > last)] += busy_s - idle_s
    return [total / len(spans_by_rank) for total in sums]


def messages(spans_by_rank: Sequence[Spans]) -> list[float]:
    """Seconds of each message, until the task that it is for starts.

    They count from when both the sender and the receiver were free for the message.
    """
    ended = {(span.rank, span.name): span.end_s for own in spans_by_rank for span in own}
    seconds = []
    for own in spans_by_rank:
        free_s = -math.inf
        for span in own:
            sent_s = ended.get((span.rank + {"F": -1, "B": 1}[span.name[0]], span.name))
            if sent_s is not None:
                seconds.append(span.start_s - max(free_s, sent_s))
            free_s = span.end_s
    return seconds


def explanation(
    what: str,
    causes: Mapping[str, Sequence[Spans]],
    alone: Sequence[Mapping[str, float]],
    message_s: float,
    size: float,
) -> str:
    """The causes as Markdown.

    alone: as `by_itself` has it. message_s: of a message of this size, by itself.
    """
    lines = [
        f"| {cause} | {' | '.join(f'{1e3 * wait_s:.2f}' for wait_s in waits(spans))} "
        f"| {idle(spans):.4f} |"
        for cause, spans in causes.items()
    ]
    forward, backward = (", ".join(f"{1e3 * task[kind]:.2f}" for task in alone) for kind in "FB")
    within_s = statistics.median(messages(causes["measured"]))
    return "\n".join(
        [
            f"{what}: the milliseconds that a rank waits, the mean of the ranks. "
            "Simulated, with one cause more in each line; then measured.",
            "",
            "| cause | warm-up | steady state | drain | idle |",
            "| --- | ---: | ---: | ---: | ---: |",
            *lines,
            "",
            f"By itself, rank by rank, a forward takes {forward} ms, a backward {backward} ms; "
            f"a message of {size / 1e6:.3g} MB {1e3 * message_s:.3f} ms, "
            f"within the pipeline {1e3 * within_s:.3f} ms (the median).",
        ]
    )


PARTS: dict[str, Callable[..., Iterable[Row | str]]] = {
    "all-reduce": all_reduce,
    "data-parallel": data_parallel,
    "sharded": sharded,
    "tensor-parallel": tensor_parallel,
    "pipeline": pipeline,
}


def measured(
    machine: Machine, parts: Sequence[str], sizes: Mapping[str, tuple]
) -> tuple[list[Row], list[str], list[str]]:
    """The rows, the texts below them, and the parts that failed, whose tracebacks are printed."""
    rows: list[Row] = []
    texts: list[str] = []
    failed: list[str] = []
    for part in parts:
        try:
            for output in PARTS[part](machine, *sizes[part]):
                if isinstance(output, Row):
                    rows.append(output)
                    print(line(output, machine.world_size), flush=True)
                else:
                    texts.append(output)
                    print(output, flush=True)
        except Exception:
            traceback.print_exc()
            failed.append(part)
    return rows, texts, failed


def line(row: Row, world_size: int) -> str:
    """The row as Markdown."""
    return (
        f"| {row.what} | {world_size} | {row.ours:,.4g} | {row.unit} | {row.peer} "
        f"| {row.its:,.4g} | {row.ratio:.3f} | {row.goal} |"
    )


def table(rows: Iterable[Row], world_size: int) -> str:
    """The rows as Markdown."""
    return "\n".join(
        [
            "| what | ranks | ours | unit | peer | its | ratio | goal |",
            "| --- | ---: | ---: | --- | --- | ---: | ---: | ---: |",
            *(line(row, world_size) for row in rows),
        ]
    )


def main() -> None:
    options = parsed_options()
    gpus, parts = torch.cuda.device_count(), options.parts or list(PARTS)
    if gpus < 2 and not options.gloo:
        sys.exit(
            f"benchmarks/multi_gpu.py needs two GPUs or more, and this machine has {gpus}; "
            "benchmarks/multi_gpu.md has the figures of a machine with several."
        )
    # One queue for each stream of messages, for ours and for the peers.
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
    machine = Machine("gloo", 2) if options.gloo else Machine("nccl", gpus)
    rows, texts, failed = measured(machine, parts, TRIAL if options.gloo else GPUS)
    text = "\n\n".join([heading(machine), table(rows, machine.world_size), *texts]) + "\n"
    print(f"\n{text}")
    if not options.gloo and not failed and parts == list(PARTS):
        FILE.write_text(text, encoding="utf-8")
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


def parsed_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="The multi-GPU labs compared with NCCL and PyTorch's own parallelism."
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument(
        "--gloo",
        action="store_true",
        help="tiny sizes on two processes: a trial, not a measurement",
    )
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    return options


def heading(machine: Machine) -> str:
    """Where the figures come from."""
    if machine.name == "gloo":
        return "A trial on gloo, not a measurement."
    nccl = ".".join(map(str, torch.cuda.nccl.version()))
    return (
        f"{machine.world_size} × {device.name()}, torch {torch.__version__}, NCCL {nccl}. "
        "Made by `python benchmarks/multi_gpu.py`."
    )


if __name__ == "__main__":
    main()
