"""What lab 15's checks compare with: models on one device, and schedules found by simulation."""

import contextlib
import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn

from common import figures
from common.checks import expect, is_whole, near_miss, remark
from common.lessons.pipeline_parallel.pipelines import (
    TOGETHER,
    Schedule,
    Task,
    Tasks,
    expect_each_once,
    held,
    played,
    written,
)
from nogpu import ranks

# Tasks (stage, kind, microbatch) of two stages, one after the other, for exercise 1.2.
ORDER = "0F0 0F1 0F2 0F3 1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3 0B0 0B1 0B2 0B3"
BY_HAND = [(int(stage), kind, int(i)) for stage, kind, i in ORDER.split()]
BY_STAGE = "gradients, by stage (has each message a tensor of its own?)"
LEAST_S = 1e-9  # times that differ by less are the same

# {words of an error that a mistake raises: what to say then}, for `hint`.
IN_STAGE = {
    "'NoneType' object has no attribute 'clone'": (
        "backward returns x.grad as it is. It is None only where x needs no gradient: keep x as it "
        "came."
    ),
    "'NoneType' object has no attribute 'detach'": (
        "backward returns x.grad as it is, also where it is None."
    ),
    "'NoneType' object is not callable": (
        "self.loss is None on all stages but the last: they have no loss."
    ),
    "attribute 'grad_fn'": "forward returns a tensor: y.detach().",
    "does not require grad": "y needs its graph until backward: keep y itself, and detach only "
    "what forward returns.",
    "implicitly created": "Only the last stage has no dy: on others, call y.backward(dy).",
    "KeyError": "Several microbatches are on their way at once: keep each until its backward.",
}
ON_RANKS = {
    "'NoneType' object is not subscriptable": (
        "Only the first rank has inputs, and only the last has targets."
    ),
    "'NoneType' object has no attribute 'size'": "The last rank gives targets[i] to stage.forward.",
    "implicitly created": "Each rank but the last receives dy: call stage.backward(i, dy).",
    "NoneType where": "backward gave None: what a rank receives must require a gradient.",
}
NO_LINKS = dict.fromkeys(
    ("subscriptable", "'get'", "(0, 1)", "(1, 0)"),
    "Without links, every message has group=None; `links` itself is None then.",
)
APART = {
    "pop from": "Each backward appends one tuple to put_off, also of a first layer.",
    "positional argument": "Each backward appends one tuple (weight, x, dy) to put_off.",
    "'NoneType' object has no attribute 'clone'": (
        "add_weight_gradient leaves the sum in weight.grad."
    ),
    "'NoneType' and 'Tensor'": "weight.grad is None at first: then set it, and add later.",
    "cannot be multiplied": "∂x is dy @ weight, and put_off gets (weight, x, dy), in this order.",
    "same size": "∂weight has the weight's shape (outputs, inputs): it is dyᵀ x over all rows, "
    "with the dy that backward got.",
}
CHARACTERS = {
    "can require gradients": "The first stage's x holds characters and needs no gradient: only "
    "what a rank receives must require one."
}


def least_cost(costs: Sequence[int], stages: int) -> int:
    """The cost of the most expensive stage in the best cut, found by trying every cut."""
    cuts = itertools.combinations(range(1, len(costs)), stages - 1)
    return min(
        max(sum(costs[a:b]) for a, b in itertools.pairwise((0, *inner, len(costs))))
        for inner in cuts
    )


def perceptron(weights: Iterable[Tensor], xs: Tensor, ts: Tensor) -> tuple[Tensor, list[Tensor]]:
    """The loss on one device, and the gradients of the weights; each layer is tanh(y Wᵀ)."""
    leaves = [weight.detach().clone().requires_grad_() for weight in weights]
    y = functools.reduce(lambda y, weight: torch.tanh(y @ weight.T), leaves, xs)
    loss = nn.functional.mse_loss(y, ts)
    return loss.detach(), list(torch.autograd.grad(loss, leaves))


def shares(divide: str, loss: Tensor) -> dict[str, Tensor]:
    """{sentence: the sum of 4 shares of the loss} after mistakes. divide: where it was not."""
    return {divide: 4 * loss, "Divide by the number of microbatches, once.": 16 * loss}


def of_stages(
    divide: str, weights: Tensor, xs: Tensor, want: list[Tensor], got: Any
) -> dict[str, Any]:
    """{sentence: gradients of two stages} that mistakes give. divide: where the loss was not."""
    m, x, first = len(xs), xs.flatten(0, -2), weights[0]
    slope = (1 - (x @ first.T).tanh().square()).T @ x
    return {
        divide: [m * gradient for gradient in want],
        "Add to the gradients, and divide only once: this is 1/m of them.": [
            gradient / m for gradient in want
        ],
        "backward is given dy, from the next stage: y.backward(dy).": [slope, want[1]],
        **lost(got, want),
    }


def expect_forgotten(trace: ranks.Trace) -> None:
    """Raise AssertionError if 8 microbatches of 4 MiB, one by one, left 5 or more on rank 0."""
    held_bytes = trace.held_bytes[0]
    more = held_bytes[-1] - held_bytes[0]
    said = f"8 microbatches of 4 MiB, one after another, leave {more / 2**20:.0f} MiB more"
    expect(more < 5 << 22, f"{said}: each must be forgotten after its backward")


def in_stages(
    weights: Tensor, xs: Tensor, ts: Tensor
) -> tuple[list[Tensor | None], list[Tensor], dict[str, list[Tensor]]]:
    """By stages of one layer each: (the loss, gradients, gradients that mistakes give)."""
    loss, want = perceptron(weights, xs, ts)
    one_x, one_t = xs[:1].expand_as(xs), ts[:1].expand_as(ts)
    silent = [torch.zeros_like(gradient) for gradient in want[:-1]]
    mistakes = {
        "Send what stage.backward returned: here all ranks but the last get zeros.": [
            *silent,
            want[-1],
        ],
        "Microbatch i takes inputs[i]: here all take inputs[0].": perceptron(weights, one_x, ts)[1],
        "Microbatch i has targets[i]: here all have targets[0].": perceptron(weights, xs, one_t)[1],
    }
    return [*[None] * (len(weights) - 1), loss], want, mistakes


def lost(got: Any, want: Any) -> dict[str, Any]:
    """{sentence: got} if the numbers are nearly the ones that are wanted."""
    digits = "Digits are lost on the way: all numbers keep their dtype, float64 here."
    return near_miss(got, want, digits, 1e-4)


@contextlib.contextmanager
def hint(said: Mapping[str, str]) -> Iterator[None]:
    """Says the sentence of the first of these words that an error of the student's code has."""
    try:
        yield
    except (AttributeError, TypeError, LookupError, RuntimeError) as error:
        came = f"{type(error).__name__}: {error}"
        sentence = next((sentence for word, sentence in said.items() if word in came), "")
        if not sentence:
            raise
        raise AssertionError(f"{sentence}\nThe answer raised {came}.") from None


def averaged(losses: list[Tensor | None], m: int) -> dict[str, list[Tensor | None]]:
    """{sentence: losses by stage} where the shares of m microbatches are averaged."""
    less = [None if loss is None else loss / m for loss in losses]
    return {"The shares are divided by m already: add them up.": less}


def remark_time(ran: ranks.Result, tasks: Tasks, name: str) -> None:
    """Remark on a pipeline whose stages take longer for these tasks than they have to."""
    want_s, work_s = played(tasks).time_s, ran.trace.compute_s
    remark(
        ran.time_s <= 1.01 * want_s,
        f"{name} takes {1e3 * ran.time_s:.1f} ms, want {1e3 * want_s:.1f}: a stage waits until its "
        "message has arrived, or does its tasks in another order",
        draw=lambda: ran.trace.draw_beside(played(tasks), row="stage"),
    )
    own_s = [sum(TOGETHER[kind] for kind, _ in own) for own in tasks]
    remark(
        all(s <= 1.01 * own for s, own in zip(work_s, own_s, strict=True)),
        f"{name}: the stages compute for {[round(1e3 * s, 1) for s in work_s]} ms, and their tasks "
        f"take {[round(1e3 * s, 1) for s in own_s]}",
    )


def wrong_calls(tasks: Tasks) -> dict[str, Tasks]:
    """What mistakes call of stages for these tasks."""
    return {
        "Call stage.local(kind, i) for each task that is neither F nor B.": [
            [task for task in own if task[0] in "FB"] for own in tasks
        ],
        "F and B are not local: only other tasks are.": [
            [each for task in own for each in [task] * (1 + (task[0] in "FB"))] for own in tasks
        ],
        "Do the tasks in the order of the list: here they go microbatch by microbatch.": [
            sorted(own, key=lambda task: (task[1], "FB".find(task[0]) % 3)) for own in tasks
        ],
    }


def calls_behind(got: Any, done: Tasks, tasks: Tasks) -> dict[str, Any]:
    """{sentence: what came} if these calls of stages are not the tasks: it chooses the words.

    done: by the ranks' own word. It decides no point.
    """
    said = {says: got for says, wrong in wrong_calls(tasks).items() if done == wrong}
    for rank, (own, want) in enumerate(zip(done, tasks, strict=True)):
        if own != want and isinstance(own, list):
            calls = ", ".join(f"{kind}{i}" for kind, i in own[:20])
            said[f"What is called of stage {rank}: {calls}, and its tasks have another order."] = (
                got
            )
    return said


def remark_calls(done: Tasks, tasks: Tasks) -> None:
    """Remark on calls of stages, by the ranks' own word, that are not their tasks."""
    pairs = [pair for pair in itertools.chain(*map(zip, done, tasks)) if pair[0] != pair[1]]
    called, task = pairs[0] if pairs else ((), ())
    remark(not pairs, f"run_stage gives the stage {called!r}, and its task is {task!r}")


def tasks_of(text: str) -> list[Task]:
    """The tasks that "F0 B0" writes."""
    return [(word[0], int(word[1:])) for word in text.split()]


def marked(weights: Tensor, xs: Tensor, ts: Tensor, tasks: Tasks) -> list[list[Tensor | None]]:
    """[gradients, losses] of two stages for which each local task is worth a factor of 1.5.

    It goes into what later forward and backward passes return, and into the gradients so far.
    """
    w0, w1 = (weight.clone().requires_grad_() for weight in weights)
    marks = [_marks(own) for own in tasks]
    gradients, loss = [torch.zeros_like(w0), torch.zeros_like(w1)], torch.zeros_like(xs[0, 0, 0])
    for i, (x, target) in enumerate(zip(xs, ts, strict=True)):
        (sent, _), (share, back) = ([of[kind, i] for kind in "FB"] for of in marks)
        y = torch.tanh(x @ w0.T)
        came = (y.detach() * sent).requires_grad_()
        lost = nn.functional.mse_loss(torch.tanh(came @ w1.T), target) / len(xs)
        slope, own = torch.autograd.grad(lost, [came, w1])
        loss = loss + lost.detach() * share
        first = torch.autograd.grad(y, w0, slope * back)[0]
        for part, of, gradient in zip((first, own), marks, (0, 1), strict=True):
            gradients[gradient] = gradients[gradient] + part * of["end", 0] / of["B", i]
    return [list(gradients), [None, loss]]


def _marks(own: Iterable[Task]) -> dict[Task, float]:
    """{task: the factor when it is done}, and that at the end."""
    mark, found = 1.0, dict[Task, float]()
    for kind, i in own:
        found[kind, i] = mark
        mark *= 1.0 if kind in "FB" else 1.5
    return found | {("end", 0): mark}


def halves(
    weight: Tensor, xs: Tensor, dys: Tensor, first: bool
) -> tuple[list[list[Any]], list[Tensor], dict[str, list[Tensor]]]:
    """([outputs, input gradients], weight.grad after each weight_gradient(), what mistakes give).

    weight: (outputs, inputs). xs, dys: stacks of microbatches, (m, ..., inputs) and outputs.
    first: whether the inputs need no gradient.
    """
    each = torch.einsum("i...o,i...n->ion", dys, xs)
    sums = each.cumsum(0)
    mistakes = {
        "Add to weight.grad.": list(each),
        "Append to put_off.": list(each.flip(0).cumsum(0)),
        "backward returns None for the weight.": list(sums + sums[-1]),
        "Add up over the rows: the loss has its mean already.": list(sums / xs[0, ..., 0].numel()),
        "What you put off is read later: leave dy and x as they are. Here one of them became 0.": [
            torch.zeros_like(each[0])
        ]
        * len(xs),
    }
    slopes = [None] * len(xs) if first else list(dys @ weight)
    return [list(xs @ weight.T), slopes], list(sums), mistakes


def remark_flops(trace: ranks.Trace, most: int) -> None:
    """Remark on halves of a backward, the spans "B" and "W", of more FLOPs than a product has."""
    b, w = (
        round(1e9 * sum(span.duration_s for span in trace.compute_named(half))) for half in "BW"
    )
    remark(
        b <= most, f"{b} FLOPs in B, want {most}: backward computes the weight's product already"
    )
    remark(w <= most, f"{w} FLOPs in W, and {most} are enough")


def next_character_loss(scores: Tensor, following: Tensor) -> Tensor:
    """The mean cross-entropy in nats per character."""
    return nn.functional.cross_entropy(scores.flatten(0, 1), following.flatten())


def one_device(
    model: nn.Module,
    inputs: Sequence[Sequence[Tensor]],
    targets: Sequence[Sequence[Tensor]],
    rate: float,
) -> list[Tensor]:
    """The losses of plain SGD with whole batches on one device; it trains the model.

    inputs, targets: for each step, a list of microbatches.
    """
    losses, weights = [], list(model.parameters())
    for xs, ys in zip(inputs, targets, strict=True):
        losses.append(next_character_loss(model(torch.cat(list(xs))), torch.cat(list(ys))))
        gradients = torch.autograd.grad(losses[-1], weights)
        with torch.no_grad():
            for weight, gradient in zip(weights, gradients, strict=True):
                weight -= rate * gradient
    return [loss.detach() for loss in losses]


def one_f_one_b(stage: int, stages: int, microbatches: int) -> list[Task]:
    """A stage's tasks in 1F1B: backward first; stage s holds at most p − s microbatches."""
    return _simulated(stages, microbatches)[stage]


def zb_h1(stage: int, stages: int, microbatches: int) -> list[Task]:
    """A stage's tasks in ZB-H1: those of 1F1B, and stage s puts off s W (Qi et al. 2023)."""
    tasks: list[Task] = []
    for kind, i in one_f_one_b(stage, stages, microbatches):
        tasks.append((kind, i))
        if kind == "B" and i >= stage:
            tasks.append(("W", i - stage))
    return tasks + [("W", i) for i in range(max(0, microbatches - stage), microbatches)]


SCHEDULES: dict[str, Schedule] = {
    "GPipe": lambda stage, stages, microbatches: [
        (kind, i) for kind in "FB" for i in range(microbatches)
    ],
    "1F1B": one_f_one_b,
    "ZB-H1": zb_h1,
}


@functools.cache
def _simulated(p: int, microbatches: int) -> list[list[Task]]:
    """Each free stage does what it can, millisecond by millisecond; by stage, what it did."""
    over_ms: dict[Task, int] = {}  # (stage, kind, microbatch): when it is over
    done: list[list[Task]] = [[] for _ in range(p)]
    free_ms, now_ms = [0] * p, 0
    while any(len(own) < 2 * microbatches for own in done):
        for stage in range(p):
            task = _next(stage, p, microbatches, done[stage], over_ms, now_ms)
            if task and free_ms[stage] <= now_ms:
                free_ms[stage] = over_ms[stage, *task] = now_ms + round(1e3 * TOGETHER[task[0]])
                done[stage].append(task)
        now_ms += 1
    return done


def _next(
    stage: int, p: int, microbatches: int, done: list[Task], over_ms: dict[Task, int], now_ms: int
) -> Task | None:
    """The task that this stage can begin now: a backward if it can, or a forward."""

    def over(*task: Any) -> bool:
        return over_ms.get(task, now_ms + 1) <= now_ms

    forwards = sum(kind == "F" for kind, _ in done)
    backwards = len(done) - forwards
    gradient = stage == p - 1 or over(stage + 1, "B", backwards)
    if backwards < microbatches and over(stage, "F", backwards) and gradient:
        return "B", backwards
    room = forwards - backwards < min(microbatches, p - stage)
    if forwards < microbatches and room and (stage == 0 or over(stage - 1, "F", forwards)):
        return "F", forwards
    return None


def bubbles_otherwise(p: int, m: int, replicas: int) -> dict[str, float]:
    """The idle share of 1F1B after known mistakes: {sentence: share}."""
    share = (p - 1) / (m + p - 1)
    return {
        "This is in percent; want a share from 0 to 1.": 100 * share,
        "This is a time in ms; want its share of all time.": 3 * (p - 1),
        "A stage waits for p − 1 forwards and for p − 1 backwards: 3(p − 1) of 3(m + p − 1) ms.": (
            (p - 1) / (3 * m + p - 1)
        ),
        "A slot is a forward and a backward: a stage has m of them, and waits in p − 1.": (
            2 * (p - 1) / (m + p - 1)
        ),
        "If you count tasks, both halves have a bubble: 2(p − 1) slots of 2(m + p − 1).": (
            (p - 1) / (2 * m + p - 1)
        ),
        "This is the share of its time that a stage works.": 1 - share,
        "All slots are m + p − 1: the microbatches, and those in which a stage waits.": (p - 1)
        / (m + p),
        "That is idle over busy time; want it over all time.": (p - 1) / m,
        "Count the slots of the last stage: how many does it wait, of how many?": p / (m + p),
        "A replica runs only its part of the batch.": (p - 1) / (m * replicas + p - 1),
        "A GPU is no replica; a replica has `stages` of them.": (p - 1) / (m / p + p - 1),
        "The batch is divided among the replicas: batch / replicas for each.": (p - 1)
        / (m * replicas**2 + p - 1),
    }


# What a cut or a schedule is worth, and pictures of it


def cut_problem(cuts: Any, costs: Sequence[int], stages: int) -> str:
    """What is wrong with a cut of a model into stages; "" if no cut is better."""
    least = least_cost(costs, stages)
    if fault := _no_cut(cuts, len(costs), stages):
        return (
            f"{fault}; want a list of {stages} pairs (first, end), runs of neighbours that cover "
            f"all {len(costs)} layers, each with at least one layer"
        )
    most = max(sum(costs[a:b]) for a, b in cuts)
    if most == least:
        return ""
    number = len(costs)
    even = [(number * s // stages, number * (s + 1) // stages) for s in range(stages)]
    same = [tuple(cut) for cut in cuts] == even
    why = " That is the same number of layers per stage: do the costs count?" if same else ""
    return f"the most expensive stage costs {most}, and it could cost {least}.{why}"


def _no_cut(cuts: Any, layers: int, stages: int) -> str:
    """Why these are no cuts of so many layers into stages; "" if they are."""
    if not isinstance(cuts, (list, tuple)):
        return f"that is of type {type(cuts).__name__}"
    for cut in cuts:
        pair = isinstance(cut, (list, tuple)) and len(cut) == 2 and all(map(is_whole, cut))
        if not pair:
            return f"{cut!r:.40} is no pair of ints"
    if len(cuts) != stages:
        return f"there are {len(cuts)} stages"
    end = 0
    for stage, (first, stop) in enumerate(cuts):
        if first != end:
            return f"stage {stage} begins at layer {first}, and the layers before it end at {end}"
        if stop <= first:
            return f"stage {stage} has no layer: `end` is the layer after its last one"
        end = stop
    return "" if end == layers else f"the last stage ends before layer {end}"


def draw_cut(cuts: Any, costs: Sequence[int], stages: int) -> None:
    """What each stage costs, and the least that the most expensive one can cost."""
    if not _no_cut(cuts, len(costs), stages):
        layers = [f"layer {a}" if b - a == 1 else f"layers {a} to {b - 1}" for a, b in cuts]
        rungs = {
            f"stage {stage}: {names}": sum(costs[a:b])
            for stage, (names, (a, b)) in enumerate(zip(layers, cuts, strict=True))
        }
        best = ("the best cut's most expensive stage", least_cost(costs, stages))
        figures.ladder(rungs, xlabel="cost", title="Your cut", ceiling=best)


def grows(more: int) -> str:
    """What to say of a peak that has so many bytes more for 16 microbatches than for 4."""
    said = f"a rank's peak has {more:,} bytes more for 16 microbatches than for 4"
    return f"{said}: what must not stay to the end?"


def remark_memory(trace: ranks.Trace, peaks: Sequence[Sequence[int]], most: int) -> None:
    """Remarks on peaks by rank, of few and of many microbatches, that grow by so many bytes."""
    more = max(many - few for few, many in zip(*peaks, strict=True))
    remark(more < most, grows(more), draw=lambda: draw_memory(trace))


def draw_memory(trace: ranks.Trace) -> None:
    """The live bytes of each rank over time."""
    ax = plt.subplots(figsize=(7.2, 2.6))[1]
    for rank, points in enumerate(trace.live_bytes):
        times_s, live = zip(*points, strict=True)
        ms, more_kb = [1e3 * s for s in times_s], [(bytes_ - live[0]) / 1e3 for bytes_ in live]
        ax.step(ms, more_kb, where="post", label=f"rank {rank}")
    title = "What your program keeps, beyond what it had at the start"
    ax.set(xlabel="virtual time (ms)", ylabel="kB", title=title)
    ax.legend()


def one_f_one_b_problem(tasks: Tasks, microbatches: int, case: str) -> str:
    """What is wrong with a schedule that should be 1F1B; "" if nothing is."""
    p, m = len(tasks), microbatches
    for stage, own in enumerate(tasks):
        expect_each_once(own, "FB", m, f"{case}, stage {stage}")
        holds, most = held(own), min(m, p - stage)
        if holds > most:
            why = "that is GPipe" if holds == m > most + 1 else "run p − stage − 1 forwards ahead"
            return f"{case}: stage {stage} holds {holds} microbatches at once, want {most}: {why}."
    if stuck := _stuck(tasks, case):
        return stuck
    time_s, want_s = played(tasks).time_s, (m + p - 1) * 3e-3
    if abs(time_s - want_s) < LEAST_S:
        return ""
    why = "a stage runs too few forwards ahead"
    if abs(time_s - m * p * 3e-3) < LEAST_S:
        why = "no stage runs ahead of another"
    elif any([i for kind, i in own if kind == "B"] != list(range(m)) for own in tasks):
        why = "the backwards of a stage are not in the order of the microbatches"
    took = f"{case} takes {time_s * 1e3:.0f} ms, want {want_s * 1e3:.0f}"
    return f"{took}: {why}.\n{written(tasks)}"


def _stuck(tasks: Tasks, case: str) -> str:
    """Why no stage can go on, and what is left then; "" if all tasks get done."""
    try:
        played(tasks)
    except AssertionError as problem:
        before = {
            "B": "F",
            "W": "B",
        }  # each kind of task, and the one that the same stage does first
        early = [
            f"Stage {stage} has {_name(kind, *task)} before its {_name(before[kind], *task)}. "
            for stage, own in enumerate(tasks)
            for place, (kind, *task) in enumerate(own)
            if kind in before and (before[kind], *task) not in own[:place]
        ]
        return f"{case}: {early[0] if early else ''}{problem}"
    return ""


def _name(kind: str, i: int, *chunk: int) -> str:
    return f"{kind}{i}" + (f" of chunk {chunk[0]}" if chunk else "")


def zb_h1_problem(tasks: Tasks, microbatches: int, case: str) -> str:
    """What is wrong with a schedule that should be as good as ZB-H1; "" if nothing is."""
    p, m = len(tasks), microbatches
    for stage, own in enumerate(tasks):
        expect_each_once(own, "FBW", m, f"{case}, stage {stage}")
        if held(own) > p:
            return (
                f"{case}: stage {stage} holds {held(own)} microbatches until their W, want at "
                f"most {p}: do a W sooner.\n{written(tasks)}"
            )
    if stuck := _stuck(tasks, case):
        return stuck
    time_s, want_s = played(tasks).time_s, (3 * m + p - 1) * 1e-3
    if time_s < want_s + LEAST_S:
        return ""
    pairs = [list(itertools.pairwise(own)) for own in tasks]
    at_once = all((("B", i), ("W", i)) in own for own in pairs for i in range(m))
    why = "a stage idles while it still has a W to do, or lets another stage wait for an F or a B"
    if at_once:
        why = "each W comes right after its B, so nothing is put off"
    took = f"{case} takes {time_s * 1e3:.0f} ms, want {want_s * 1e3:.0f}"
    return f"{took}: {why}.\n{written(tasks)}"


def interleaved_problem(tasks: Tasks, microbatches: int, chunks: int, case: str) -> str:
    """What is wrong with an interleaved schedule; "" if nothing is."""
    p, m, v = len(tasks), microbatches, chunks
    for rank, own in enumerate(tasks):
        expect_each_once(own, "FB", m, f"{case}, rank {rank}", chunks=v)
        most = min(m * v, 2 * (p - rank - 1) + (v - 1) * p + 1)
        if held(own) > most:
            return f"{case}: rank {rank} holds {held(own)} microbatch chunks, want at most {most}."
    if stuck := _stuck(tasks, case):
        first = {next(task[2] for task in own if task[0] == "B") for own in tasks}
        why = "Backward goes through the chunks in reversed order: it begins with the last one.\n"
        return f"{'' if first == {v - 1} else why}{stuck}"
    seconds = {"F": 1e-3 / v, "B": 2e-3 / v}
    time_s, want_s = played(tasks, seconds).time_s, (m * v + p - 1) * 3e-3 / v
    if time_s < want_s + LEAST_S:
        return ""
    return f"{case} takes {time_s * 1e3:.1f} ms, want {want_s * 1e3:.1f}."


def interleaved(rank: int, stages: int, microbatches: int, chunks: int) -> list[Task]:
    """Interleaved 1F1B of Megatron-LM (Narayanan et al. 2021): p microbatches per chunk in turn."""
    p, total = stages, microbatches * chunks
    ahead = min(2 * (p - rank - 1) + (chunks - 1) * p, total)

    def task(kind: str, k: int) -> Task:
        turn, place = divmod(k, p * chunks)
        chunk, i = divmod(place, p)
        return kind, turn * p + i, chunk if kind == "F" else chunks - 1 - chunk

    tasks = [task("F", k) for k in range(ahead)]
    for k in range(total):
        tasks += [task("F", k + ahead)] if k + ahead < total else []
        tasks.append(task("B", k))
    return tasks
