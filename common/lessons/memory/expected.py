"""What the checks of lab 09 compare with."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from common.checks import is_whole, static_names
from common.graphs.rows import LEAVES, Row, inputs
from common.lessons.memory import (
    arena,
    blocks,
    chains,
    memory_profile,
    precision,
    recomputed,
    swapping,
)
from common.lessons.memory.arena import Lifetime


class Case(NamedTuple):
    """Arguments, what is wanted, what was tried, and known wrong values."""

    args: tuple[Any, ...]
    want: Any
    text: str
    mistakes: Mapping[str, Any]


# 1.1


def _state_bytes(optimizer: str) -> int:
    """Bytes per weight in the state of PyTorch's optimizer, measured on float32 weights."""
    weight = torch.ones(64, requires_grad=True)
    made: torch.optim.Optimizer = {
        "sgd": lambda: torch.optim.SGD([weight], 0.1),
        "momentum": lambda: torch.optim.SGD([weight], 0.1, 0.9),
        "adam": lambda: torch.optim.Adam([weight], 0.1, foreach=False),
    }[optimizer]()
    weight.grad = torch.ones(64)
    made.step()
    state = [x for x in made.state[weight].values() if isinstance(x, Tensor) and x.numel() > 1]
    return sum(x.nbytes for x in state) // 64


def memory_cases(rng: np.random.Generator) -> Iterator[Case]:
    for precision_, optimizer in itertools.product(("fp32", "mixed"), ("sgd", "momentum", "adam")):
        n, state = int(rng.integers(1, 10**10)), _state_bytes(optimizer)
        each, copy = (4, 0) if precision_ == "fp32" else (2, 4)

        def held(each: int, gradient: int, per_weight: float, n: int = n) -> dict[str, Any]:
            counts = {"weights": each, "gradients": gradient, "optimizer": per_weight}
            return {name: int(count * n) for name, count in counts.items()}

        mistakes = {
            "The copy in float32 belongs to the optimizer.": held(each + copy, each, state),
            "Mixed precision also keeps a copy of the weights in float32.": held(each, each, state),
            "Gradients are in the precision of the weights.": held(each, 4, copy + state),
        }
        if precision_ == "mixed":
            said = "The optimizer's numbers are in float32, in mixed precision too."
            mistakes[said] = held(each, each, copy + state // 2)
        else:
            said = "In float32 the weights are their own copy."
            mistakes[said] = held(each, each, 4 + state)
            mistakes["Adam keeps two numbers per weight, and momentum one."] = held(each, each, 4)
        want = held(each, each, copy + state)
        wrong = {said: value for said, value in mistakes.items() if value != want}
        text = f"training_memory({n}, {optimizer!r}, {precision_!r})"
        yield Case((n, optimizer, precision_), want, text, wrong)


# 1.2


def activation_cases(rng: np.random.Generator) -> Iterator[Case]:
    fixed = _views_graph()
    for rows, shapes in [fixed, *(_random_graph(rng) for _ in range(30))]:
        sizes = [8 * int(np.prod(shape)) for shape in shapes]
        want = _saved_by_torch(rows, shapes)
        text = f"activation_bytes of {_short_rows(rows)}, sizes {sizes}"
        yield Case((rows, sizes), want, text, activation_mistakes(rows, sizes, want))
    batch, heads = (int(n) for n in rng.integers(1, 5, 2))
    n, width, hidden = (int(x) for x in 4 * rng.integers(1, 9, 3))
    rows, sizes = blocks.block(batch, n, width * heads, heads, hidden)
    unit = 4 * batch * n
    want = unit * (2 * (width * heads * 3 + 1) + 4 * width * heads + heads + 2 * hidden)
    text = "activation_bytes of a block of the language model"
    yield Case((rows, sizes), want, text, activation_mistakes(rows, sizes, want))
    rows, sizes = blocks.scores(batch, n, width, hidden)
    want = _saved_by_the_loss(batch, n, width, hidden)
    text = f"activation_bytes of the scores and the loss: {_short_rows(rows)}, sizes {sizes}"
    yield Case((rows, sizes), want, text, activation_mistakes(rows, sizes, want))


def _views_graph() -> tuple[list[Row], list[tuple[int, ...]]]:
    """Two views of one storage, which is also kept itself, and a product of a value with itself."""
    rows: list[Row] = [
        ("placeholder", "x"),
        ("constant", "w"),
        ("matmul", (0, 1)),
        ("view", (2,)),
        ("view", (3,)),
        ("multiply", (2, 4)),
        ("multiply", (5, 5)),
        ("view", (5,)),
        ("matmul", (7, 6)),
        ("add", (8, 8)),
        ("add", (9, 8)),
    ]
    return rows, [
        (4, 6),
        (6, 3),
        (4, 3),
        (3, 4),
        (4, 3),
        (4, 3),
        (4, 3),
        (3, 4),
        (3, 3),
        (3, 3),
        (3, 3),
    ]


def _random_graph(rng: np.random.Generator) -> tuple[list[Row], list[tuple[int, ...]]]:
    rows: list[Row] = [("placeholder", "x")]
    shapes: list[tuple[int, ...]] = [(int(rng.integers(2, 9)), int(rng.integers(2, 9)))]
    for number in range(int(rng.integers(4, 14))):
        values = [i for i, (op, _) in enumerate(rows) if op != "constant"]
        a = int(rng.choice(values[-4:]))
        op = str(rng.choice(["matmul", "multiply", "add", "tanh", "gelu", "square", "view"]))
        n, m = shapes[a]
        if op == "matmul":
            columns = int(rng.integers(2, 9))
            rows += [("constant", f"w{number}"), ("matmul", (a, len(rows)))]
            shapes += [(m, columns), (n, columns)]
        elif op in ("multiply", "add"):
            b = int(rng.choice([i for i in values if shapes[i] == shapes[a]]))
            rows.append((op, (a, b)))
            shapes.append((n, m))
        else:
            rows.append((op, (a,)))
            shapes.append((m, n) if op == "view" else (n, m))
    return rows, shapes


def _saved_by_torch(rows: Sequence[Row], shapes: Sequence[tuple[int, ...]]) -> int:
    leaves = {
        i: torch.rand(shape, dtype=torch.float64, requires_grad=True)
        for i, (shape, (op, _)) in enumerate(zip(shapes, rows, strict=True))
        if op in LEAVES
    }

    def compute() -> list[Tensor]:
        values: list[Tensor] = []
        for i, row in enumerate(rows):
            made = leaves.get(i)
            read = [values[j] for j in inputs(row)]
            values.append(blocks.TORCH[row[0]](*read) if made is None else made)
        return values

    return memory_profile.saved_bytes(
        compute, besides=[x for i, x in leaves.items() if rows[i][0] == "constant"]
    )


def _saved_by_the_loss(batch: int, n: int, width: int, vocabulary: int) -> int:
    """What PyTorch saves of the language model's last layer and its loss."""
    x = torch.rand(batch, n, width, requires_grad=True)
    gain, matrix = (
        torch.rand(shape, requires_grad=True) for shape in ((width,), (width, vocabulary))
    )
    targets = torch.zeros(batch, n, 1, dtype=torch.int64)

    def loss() -> Tensor:
        normed = x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * gain
        return (normed @ matrix).log_softmax(-1).gather(-1, targets)

    return memory_profile.saved_bytes(loss, besides=[gain, matrix])


def activation_mistakes(rows: Sequence[Row], sizes: Sequence[int], want: int) -> dict[str, int]:
    def storage(i: int) -> int:
        return storage(rows[i][1][0]) if rows[i][0] == "view" else i

    keeps: dict[str, tuple[int, ...]] = {
        "matmul": (0, 1),
        "multiply": (0, 1),
        "square": (0,),
        "gelu": (0,),
        "pick": (1,),
    }
    keeps["attention"] = (0, 1, 2)
    own = ("tanh", "rsqrt", "log_softmax", "log_sum_exp", "attention")
    read = [row[1][j] for row in rows for j in keeps.get(row[0], ())]
    read += [i for i, row in enumerate(rows) if row[0] in own]
    no_weights = [i for i in read if rows[i][0] != "constant"]
    found = {
        "A view is the same memory: count its storage, once.": sum(
            sizes[i] for i in set(no_weights)
        ),
        "What two operators need is kept once.": sum(sizes[storage(i)] for i in no_weights),
        "Weights were counted in 1.1, so leave them out.": sum(
            sizes[i] for i in {storage(i) for i in read}
        ),
        "The values of all rows are not kept: only what backward reads.": sum(
            size
            for size, row in zip(sizes, rows, strict=True)
            if row[0] not in ("constant", "view")
        ),
        "What is behind a view is kept whole: count the storage, not nothing.": sum(
            sizes[i] for i in set(no_weights) if rows[i][0] != "view"
        ),
        "An input of the graph is kept, too, if backward reads it.": sum(
            sizes[i] for i in {storage(i) for i in no_weights} if rows[i][0] not in LEAVES
        ),
    }
    return {said: count for said, count in found.items() if count != want}


def _short_rows(rows: Sequence[Row]) -> str:
    text = ", ".join(
        f"{i}: {op}{read if op not in LEAVES else ''}" for i, (op, read) in enumerate(rows)
    )
    return f"[{text}]"


# 2.1


def lifetime_cases(rng: np.random.Generator) -> Iterator[Case]:
    for number in range(30):
        rows, sizes = arena.drawn_graph(rng, int(rng.integers(1, 12)))
        order = arena.drawn_order(rng, rows)
        some = rng.choice(order, min(2, len(order)), replace=False).tolist()
        outputs = sorted({order[-1], *some}) if number % 2 else [order[-1]]
        if number % 3 == 0:
            outputs = [*outputs, 0]  # a leaf
        spans = _simulated(rows, order, outputs)
        peak = _peak(spans, sizes, len(order))
        end = len(order) - 1
        wrong = {
            "An input is live while its last reader runs, too.": {
                i: (a, max(a, b - (b > a and i not in outputs))) for i, (a, b) in spans.items()
            },
            "An output stays to the end.": _simulated(rows, order, []),
            "Nothing is freed here: a value dies after its last reader.": {
                i: (a, end) for i, (a, _) in spans.items()
            },
            "These are numbers of rows. Places in `order` are wanted.": {
                i: (order[a], order[b]) for i, (a, b) in spans.items()
            },
            "Leaves belong to the caller.": spans | _leaves(rows, order, outputs),
        }
        wrong = {said: value for said, value in wrong.items() if value != spans}
        peaks = {
            said: _peak(value, sizes, len(order))
            for said, value in wrong.items()
            if "numbers of rows" not in said
        }
        text = f"{_short_rows(rows)}, order {order}, outputs {outputs}"
        peaks = {said: n for said, n in peaks.items() if n != peak}
        yield Case((rows, sizes, order, outputs), (spans, peak, wrong, peaks), text, {})


def _simulated(
    rows: Sequence[Row], order: Sequence[int], outputs: Sequence[int]
) -> dict[int, tuple[int, int]]:
    """Runs the graph with counts of readers that are left."""
    readers = {i: sum(i in inputs(rows[j]) for j in order) for i in order}
    born: dict[int, int] = {}
    dead: dict[int, int] = {}
    for place, i in enumerate(order):
        born[i] = place
        for j in {i, *inputs(rows[i])} & set(order):
            readers[j] -= j != i
            if not readers[j]:
                dead.setdefault(j, place)
    end = len(order) - 1
    return {i: (born[i], end if i in outputs else dead[i]) for i in order}


def _leaves(
    rows: Sequence[Row], order: Sequence[int], outputs: Sequence[int]
) -> dict[int, tuple[int, int]]:
    """Lifetimes of the leaves that are read, as if the graph owned them."""
    end = len(order) - 1
    reads = {
        i: [place for place, j in enumerate(order) if i in inputs(rows[j])]
        for i, (op, _) in enumerate(rows)
        if op in LEAVES
    }
    return {i: (0, end if i in outputs else max(at)) for i, at in reads.items() if at}


def _peak(spans: Mapping[int, tuple[int, int]], sizes: Sequence[int], steps: int) -> int:
    return max(
        sum(sizes[i] for i, (first, last) in spans.items() if first <= place <= last)
        for place in range(steps)
    )


# 2.2


def arena_cases(rng: np.random.Generator, planner: Callable[..., Any]) -> Iterator[list[Lifetime]]:
    """200 lists of buffers: by hand, from graphs, and at random.

    AssertionError if the planner is the course's, of plans for every batch size.
    """
    static_names.expect_none("plan_buffers", planner, {"symbolic"}, "Write a plan of your own.")
    yield []
    yield [(5, 0, 0)]
    yield [(4, 0, 1), (4, 1, 2), (4, 2, 3)]  # each meets the next in one step
    yield [(3, 0, 0), (3, 1, 1), (3, 2, 2)]
    yield [(2, 0, 5), (8, 0, 1), (8, 4, 5), (3, 1, 4)]
    yield [(1, 3, 4), (9, 0, 3), (9, 4, 7), (1, 0, 7)]
    for _ in range(97):
        yield arena.drawn_lifetimes(rng, int(rng.integers(3, 16)))
    for _ in range(97):
        rows, sizes = arena.drawn_graph(rng, int(rng.integers(2, 9)))
        order = arena.drawn_order(rng, rows)
        spans = _simulated(rows, order, order[-1:])
        yield [(sizes[i], *spans[i]) for i in order]


def best_arena(rng: np.random.Generator, buffers: Sequence[Lifetime]) -> int:
    """Bytes of the smallest arena found: by several rules, then by random exchanges."""
    low = max(arena.live_bytes(buffers), default=0)
    numbers = list(range(len(buffers)))
    best, kept = 1 << 62, numbers
    keys: list[Any] = [
        lambda i: -buffers[i][0],
        lambda i: -buffers[i][0] * (buffers[i][2] - buffers[i][1] + 1),
        lambda i: (buffers[i][1] - buffers[i][2], -buffers[i][0]),
        lambda i: (buffers[i][1], -buffers[i][0]),
    ]
    for key in keys:
        order = sorted(numbers, key=key)
        size = _first_fit(buffers, order)
        if size < best:
            best, kept = size, order
        if best == low:
            return best
    for _ in range(15):
        order = list(kept)
        a, b = rng.integers(0, len(order), 2).tolist()
        order.insert(b, order.pop(a))
        size = _first_fit(buffers, order)
        if size <= best:
            best, kept = size, order
        if best == low:
            break
    return best


def _first_fit(buffers: Sequence[Lifetime], order: Sequence[int]) -> int:
    """Bytes of the arena if buffers are placed in this order, each as low as it can lie."""
    ends: list[tuple[int, int, int, int]] = []  # (offset, end, first, last), by offset
    most = 0
    for i in order:
        size, first, last = buffers[i]
        at = 0
        for start, end, a, b in ends:
            if a <= last and first <= b:
                if start - at >= size:
                    break
                at = max(at, end)
        ends.append((at, at + size, first, last))
        ends.sort()
        most = max(most, at + size)
    return most


def listed(offsets: Any) -> Any:
    """A tuple or an array of offsets as a list of ints; anything else as it is."""
    if isinstance(offsets, np.ndarray) and offsets.ndim == 1:
        return offsets.tolist()
    if isinstance(offsets, (list, tuple)):
        return [int(at) if is_whole(at) else at for at in offsets]
    return offsets


def plan_fault(buffers: Sequence[Lifetime], offsets: Any) -> str:
    """What is wrong with a plan; "" if it can be used."""
    if not isinstance(offsets, list):
        return f"it is {type(offsets).__name__}, want a list of offsets"
    return arena.replay(buffers, offsets)


def waste(buffers: Sequence[Lifetime], offsets: Sequence[int]) -> str:
    """What the plan does not do, if it is one of two things."""
    if arena.arena_bytes(buffers, offsets) == sum(size for size, _, _ in buffers):
        return "No two buffers share bytes: those that are never live together may."
    return "Place large buffers first; then try other orders, and keep the best plan."


def draw_plan(buffers: Sequence[Lifetime], offsets: Any) -> object:
    fine = isinstance(offsets, list) and len(offsets) == len(buffers)
    if fine and all(type(at) is int for at in offsets):
        return arena.draw(buffers, offsets, "the plan that came")
    return None


def short(buffers: Sequence[Lifetime]) -> str:
    """The buffers as text, if they are few."""
    return repr(list(buffers)) if len(buffers) <= 12 else f"{len(buffers)} buffers"


# 3.1


def peak_said(tasks: Sequence[chains.Task], plan: chains.Played, n: int, k: int, case: str) -> str:
    """What a plan does wrong whose peak is too high."""
    most = -(-n // k) + k - 1
    said = f"{case}: {plan.peak} activations are live at once in backward; {most} are enough. "
    if plan.again == 0 and n > 1:
        return said + (
            "Nothing was computed again, so nothing was free: a candidate for recomputation was "
            "left among those that stay."
        )
    before = tasks[plan.first_backward :]
    if not any(kind == "F" for kind, _ in before) or plan.peak == n:
        return said + (
            "All copies are made at the start of backward, so they all live at once. Compute a "
            "segment again just before its backward."
        )
    return said + "Keep activations 0, k, 2k, ... and compute one segment at a time."


def forward_fault(plan: chains.Played, most: int, case: str) -> str:
    """Why forward holds too much; "" if it does not. It may hold one activation more."""
    if plan.forward_peak <= most + 1:
        return ""
    return (
        f"{case}: {plan.forward_peak} activations are live at once in forward; {most} are enough. "
        "Drop an activation as soon as the next one is computed, not when forward has ended."
    )


def step_mistakes(n: int, k: int, copies: int) -> dict[str, int]:
    chain = -(-n // k) + k - 1
    wrong = {
        "Here the peak lies in the optimizer's step: no dropped activation lowers it.": chain,
        "The two moments differ: a peak is the larger of both, not their sum.": chain + copies,
        "n/k rounds up: the last segment may be short.": max(n // k + k - 1, copies),
        "The segment's first activation is counted twice, or the one more of forward, which does "
        "not count here.": max(-(-n // k) + k, copies),
    }
    want = max(chain, copies)
    return {said: value for said, value in wrong.items() if value != want}


# 3.2


def chain_cases(rng: np.random.Generator) -> Iterator[Case]:
    """60 chains of up to 7 layers, with budgets from too small to ample."""
    fixed = [
        ([2, 4, 6, 2], [1, 3, 1, 3], [3, 4, 7, 4], 12),
        ([1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1], 3),
        ([1, 9, 1, 1], [2, 2, 2, 2], [4, 20, 4, 4], 24),
        ([5], [2], [7], 6),
        ([5], [2], [7], 7),
        ([3, 3, 3, 3, 3], [1, 1, 1, 1, 1], [5, 5, 5, 5, 5], 9),
        ([1, 10, 10], [1, 1, 1], [10, 6, 6], 13),
    ]
    for number in range(60):
        if number < len(fixed):
            costs, before, saved, budget = fixed[number]
        else:
            n = int(rng.integers(2, 8))
            costs = rng.integers(1, 10, n).tolist()
            before = rng.integers(1, 9, n).tolist()
            saved = [x + int(rng.integers(0, 15)) for x in before]
            budget = int(rng.integers(max(saved), sum(saved) + 2))
        want = least_cost(costs, before, saved, budget)
        text = f"checkpoint_best({costs}, {before}, {saved}, {budget})"
        mistakes = (
            {"Nothing fits here, so None is wanted.": []}
            if want is None
            else {"There is a choice that fits.": None}
        )
        yield Case((costs, before, saved, budget), want, text, mistakes)


def all_choices(n: int) -> Iterator[list[chains.Segment]]:
    """Each choice of segments of n layers."""
    for kinds in itertools.product(("keep", "begin", "join"), repeat=n):
        segments: list[chains.Segment] = []
        for i, kind in enumerate(kinds):
            if kind == "begin":
                segments.append((i, i + 1))
            elif kind == "join":
                if not segments or segments[-1][1] != i:
                    break
                segments[-1] = segments[-1][0], i + 1
        else:
            yield segments


def least_cost(
    costs: Sequence[int], before: Sequence[int], saved: Sequence[int], budget: int
) -> int | None:
    """The cost of the best of all choices, by trying each one that is not dearer than the best."""
    best = None
    for segments in all_choices(len(costs)):
        cost = chains.segments_cost(costs, segments)
        if (best is None or cost < best) and (
            chains.segments_peak(before, saved, segments) <= budget
        ):
            best = cost
    return best


def over(args: Sequence[Any], got: Sequence[chains.Segment], said: str) -> str:
    """Why a choice keeps too much."""
    _, before, saved, budget = args
    said += f": {chains.segments_peak(before, saved, got)} bytes are saved at once. "
    counts = [before[start] for start, _ in got]
    kept = sum(s for i, s in enumerate(saved) if not any(a <= i < b for a, b in got))
    if kept + sum(counts) <= budget:
        return said + (
            "In backward, a segment holds all that it saves, besides what earlier layers keep: "
            "what is computed again is not free."
        )
    return said + "Each segment keeps its first input, and each other layer all that it saves."


def dear(case: Case, got: Sequence[chains.Segment], said: str) -> str:
    """Why a choice costs too much."""
    costs, before, saved, budget = case.args
    n, own = len(costs), chains.segments_cost(costs, got)
    said += f": cost {own}; {case.want} is enough. "
    if own == _least_of_all_together(case.args):
        return said + "In backward, later layers hold nothing any more."
    if sum(b - a for a, b in got) == n:
        return said + "Not every layer has to be computed again."
    return said + "A cheap layer is not always the best one to compute again: try all choices."


def _least_of_all_together(args: Sequence[Any]) -> int | None:
    """The best cost for those who think that all that is kept is kept throughout backward."""
    costs, before, saved, budget = args
    best = None
    for segments in all_choices(len(costs)):
        kept = sum(s for i, s in enumerate(saved) if not any(a <= i < b for a, b in segments))
        kept += sum(before[a] for a, _ in segments)
        more = max((sum(saved[a:b]) - before[a] for a, b in segments), default=0)
        cost = chains.segments_cost(costs, segments)
        if kept + more <= budget and (best is None or cost < best):
            best = cost
    return best


# 4.1


class Scaling(NamedTuple):
    """A training run in float16: arguments of the driver, and what torch.amp does with them."""

    args: tuple[Any, ...]
    want: list[list[Any]]
    text: str
    wrong: Mapping[str, list[list[Any]]]

    def mistakes(self, step: int) -> dict[str, Any]:
        return {
            said: run[step]
            for said, run in self.wrong.items()
            if not _same(run[step], self.want[step])
        }


def _same(a: Sequence[Any], b: Sequence[Any]) -> bool:
    close = all(
        torch.allclose(x, y, rtol=1e-5, atol=1e-9)
        for k in (0, 1)
        for x, y in zip(a[k], b[k], strict=True)
    )
    return close and a[2:] == b[2:]


def scaling_cases(rng: np.random.Generator) -> Iterator[Scaling]:
    """Runs with gradients that vanish in float16, that overflow, and that do neither."""
    plans = [
        ("an easy run", [1.0] * 4, 2.0**10, 2),
        ("a run of tiny gradients", [1e-6] * 4, 2.0**20, 3),
        ("a run with overflows", [1.0, 1.0, 1e4, 1.0, 1e4, 1e4, 1.0], 2.0**12, 3),
        ("a run whose scale is too large", [1.0] * 7, 2.0**24, 2),
        ("a run in which one gradient overflows", [1.0] * 6, 2.0**17, 2),
    ]
    for text, factors, scale, interval in plans:
        master, wide = precision.weights(int(rng.integers(1 << 30)), 6, 8, 4), 1
        if "one gradient" in text:
            wide = 256
            master[0] /= wide
        batches = [
            (
                torch.tensor(wide * rng.normal(size=(16, 6))).float(),
                torch.tensor(rng.integers(0, 4, 16)),
            )
            for _ in factors
        ]
        args = master, batches, factors, {"scale": scale, "good": 0}, interval
        want = _amp_run(*args)
        wrong = {
            "The scale must be divided out of the gradients.": _amp_run(*args, kept=True),
            "A skipped step changes neither weights nor moments: call no update.": _amp_run(
                *args, zeros=True
            ),
            "A gradient that is not finite must not reach the weights.": _amp_run(
                *args, blind=True
            ),
            "Divide in float32: in float16 the gradients vanish again.": _amp_run(
                *args, narrow=True
            ),
            "Without scaling, small gradients vanish in float16.": _amp_run(*args, none=True),
            "After an overflow the count of good steps begins anew.": _amp_run(*args, counts=True),
        }
        yield Scaling(args, want, text, wrong)


def _amp_run(
    master: Sequence[Tensor],
    batches: Sequence[tuple[Tensor, Tensor]],
    factors: Sequence[float],
    state: Mapping[str, Any],
    interval: int,
    **mistakes: bool,
) -> list[list[Any]]:
    """[[weights, moments, scale, stepped], ...] by GradScaler; with mistakes, by its rules."""
    if mistakes:
        return _mistaken_run(master, batches, factors, state, interval, set(mistakes))
    weights = [w.clone().requires_grad_() for w in master]
    optimizer = torch.optim.SGD(weights, 0.1, 0.9, foreach=False)
    scaler = torch.amp.GradScaler("cpu", init_scale=state["scale"], growth_interval=interval)
    states = []
    for (x, targets), factor in zip(batches, factors, strict=True):
        optimizer.zero_grad()
        scaler.scale(precision.loss(x, targets, factor, [w.half() for w in weights])).backward()
        before = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        moments = [
            optimizer.state[w].get("momentum_buffer", torch.zeros_like(w)).clone() for w in weights
        ]
        stepped = scaler.get_scale() >= before
        states.append([[w.detach().clone() for w in weights], moments, scaler.get_scale(), stepped])
    return states


def _mistaken_run(
    master: Sequence[Tensor],
    batches: Sequence[tuple[Tensor, Tensor]],
    factors: Sequence[float],
    state: Mapping[str, Any],
    interval: int,
    mistakes: set[str],
) -> list[list[Any]]:
    weights = [w.clone() for w in master]
    optimizer = precision.Momentum(weights)
    scale, good, states = state["scale"], state["good"], []
    for (x, targets), factor in zip(batches, factors, strict=True):
        own = [w.half().requires_grad_() for w in weights]
        used = 1.0 if "none" in mistakes else scale
        raw = torch.autograd.grad(precision.loss(x, targets, factor, own) * used, own)
        gradients = [(g / used).float() if "narrow" in mistakes else g.float() / used for g in raw]
        if "kept" in mistakes:
            gradients = [g.float() for g in raw]
        fine = "blind" in mistakes or all(g.isfinite().all() for g in gradients)
        if fine:
            optimizer.update(gradients)
            good += 1
        elif "zeros" in mistakes:
            optimizer.update([torch.nan_to_num(g, 0.0, 0.0, 0.0) * 0 for g in gradients])
        if not fine:
            scale, good = scale / 2, good if "counts" in mistakes else 0
        elif good == interval:
            scale, good = scale * 2, 0
        moments = [m.clone() for m in optimizer.moments]
        states.append([[w.clone() for w in weights], moments, scale, fine])
    return states


# 4.2


class Swap(NamedTuple):
    """A machine, the best time found on it, and what was tried."""

    args: tuple[Any, ...]
    want: float
    text: str
    machine: swapping.Machine


def swap_cases(rng: np.random.Generator) -> Iterator[Swap]:
    for number in range(7):
        n = int(rng.integers(4, 7)) if number != 1 else 6
        forward = (1e-3 * rng.uniform(0.9, 1.1, n)).tolist()
        backward = [2 * x for x in forward]
        sizes = (10**6 * rng.uniform(0.96, 1.04, n)).astype(int).tolist()
        link = 1e9 * [2.0, 0.5, 0.3, 0.4, 0.2, 0.35, 0.02][number]
        stay = {0: n, 1: 2, 6: n}.get(number) or int(rng.integers(2, n - 1))
        room = int((1.0 if number == 6 else 1.01) * sum(sorted(sizes)[-stay:]))  # 6: just fits
        machine = swapping.Machine(tuple(forward), tuple(backward), tuple(sizes), link, room)
        text = (
            f"swap_schedule of {n} layers of about 1 MB, room {room:,} bytes, {link / 1e9:g} GB/s"
        )
        args = forward, backward, sizes, link, room
        yield Swap(args, best_swap_s(machine), text, machine)


def best_swap_s(machine: swapping.Machine) -> float:
    """The best time of all choices of layers to send away, fetched as early as there is room."""
    n = len(machine.sizes)
    best = float("inf")
    for away in itertools.product((False, True), repeat=n):
        if sum(s for s, gone in zip(machine.sizes, away, strict=True) if not gone) > machine.room:
            continue
        try:
            best = min(best, swapping.played(_swapped(away), machine, "").duration_s)
        except AssertionError:
            continue
    return best


def _swapped(away: Sequence[bool]) -> list[swapping.Task]:
    n = len(away)
    tasks: list[swapping.Task] = []
    for i in range(n):
        tasks += [("F", i), ("out", i)] if away[i] else [("F", i)]
    back = list(reversed(range(n)))
    return [*tasks, *(("in", i) for i in back if away[i]), *(("B", i) for i in back)]


def slow(case: Swap, tasks: Sequence[swapping.Task], run: swapping.Played) -> str:
    """What makes a program slow."""
    took_ms, least_ms = 1e3 * run.duration_s, 1e3 * case.want
    said = f"{case.text}: {took_ms:.2f} ms, and {least_ms:.2f} ms are possible. "
    gone = {i for kind, i in tasks if kind == "out"}
    first_b = next(place for place, (kind, _) in enumerate(tasks) if kind == "B")
    enough, left = 0, list(case.machine.sizes)
    while sum(left) > case.machine.room:
        left, enough = left[1:], enough + 1
    if gone and not enough:
        return said + "All activations fit into the room: none has to leave."
    if len(gone) > enough:
        return said + f"{len(gone)} layers leave, and {enough} would be enough."
    if max(gone, default=-1) == len(case.machine.sizes) - 1:
        return said + "The last activations are needed first: let them stay."
    outs = [place for place, (kind, _) in enumerate(tasks) if kind == "out"]
    if outs and min(outs) > 2 * len(gone):
        return said + "Send an activation away as soon as its layer has computed."
    ins = [place for place, (kind, _) in enumerate(tasks) if kind == "in"]
    if ins and max(ins) > first_b:
        return said + "Fetch earlier: a copy may begin before the backward that needs it."
    return said + "Which layers have the most time to come back?"


# 5.1


def again_cases(rng: np.random.Generator) -> Iterator[Case]:
    shapes = {"dropout": [(6, 5), (5, 7), (7, 3)], "two masks": [(4, 6), (6, 5)]}
    for kind in recomputed.AGAIN:
        inputs_ = [torch.tensor(rng.normal(size=shape)) for shape in shapes.get(kind, [(5, 4)])]
        seed = int(rng.integers(1 << 30))
        slope = torch.tensor(rng.normal(size=recomputed.AGAIN[kind](*inputs_).shape))
        with torch.random.fork_rng(devices=[]):
            want = _plain_run(kind, seed, inputs_, slope, "right")
            other = _plain_run(kind, seed, inputs_, slope, "other mask")
            once = _plain_run(kind, seed, inputs_, slope, "computed once")
        text = f"checkpointed({kind!r}, ...)"
        said = "Backward computed nothing again: these are the gradients of a graph from forward."
        mistakes = {said: once[1]}
        if not all(torch.equal(a, b) for a, b in zip(want[1], other[1], strict=True)):
            said = "Dropout drew another mask the second time: restore the state of the random "
            mistakes[f"{said}numbers."] = other[1]
        yield Case((kind, seed, inputs_, slope), want, text, mistakes)


def number_mistakes(case: Case) -> dict[str, Any]:
    """Random numbers of programs that leave another state behind."""
    kind, seed, inputs_, slope = case.args
    said = "Backward leaves another state of the random numbers behind: put the old one back."
    with torch.random.fork_rng(devices=[]):
        wrong = {
            said: _plain_run(kind, seed, inputs_, slope, "state left")[2],
            said + " It drew new ones.": _plain_run(kind, seed, inputs_, slope, "other mask")[2],
        }
    want = case.want[2]
    return {said: n for said, n in wrong.items() if not torch.equal(n[1], want[1])}


def _plain_run(
    kind: str, seed: int, inputs_: Sequence[Tensor], slope: Tensor, how: str
) -> list[Any]:
    """[value, gradients, random numbers before and after backward] of this way to compute again."""
    function, own = recomputed.Scaled(kind), [x.clone().requires_grad_() for x in inputs_]
    torch.manual_seed(seed)
    y = function(*own)
    value, before, state = y.detach(), torch.rand(2), torch.get_rng_state()
    function.scale = torch.tensor(2.0)
    if how in ("right", "state left"):
        torch.manual_seed(seed)
    if how != "computed once":
        y = function(*own)
    if how == "right":
        torch.set_rng_state(state)
    gradients = torch.autograd.grad(y, own, slope)
    return [value, list(gradients), [before, torch.rand(2)]]


# 5.2


def accumulation_cases(rng: np.random.Generator) -> Iterator[Case]:
    for counts in ([3, 9], [7], [1, 2, 12, 4], rng.integers(1, 9, 3).tolist()):
        weights = [torch.tensor(rng.normal(size=shape)) for shape in ((5, 6), (6, 4))]
        pieces = [
            (torch.tensor(rng.normal(size=(n, 5))), torch.tensor(rng.integers(0, 4, n)))
            for n in counts
        ]
        whole = tuple(torch.cat(part) for part in zip(*pieces, strict=True))
        want = _token_gradients(weights, *whole)
        each = [_token_gradients(weights, *piece) for piece in pieces]
        sums = [torch.stack(parts).sum(0) for parts in zip(*each, strict=True)]
        means = {
            "This is averaged over microbatches: a long one counts as much as a short one. Weight "
            "by tokens.": [g / len(counts) for g in sums],
            "The means are added up, and the sum grows with the number of microbatches.": sums,
            "This is the last microbatch's gradient: add them up.": each[-1],
            "This is the first microbatch's gradient: add them up.": each[0],
            "These are sums over tokens: divide by their number.": [g * sum(counts) for g in want],
        }
        wrong = {
            said: value
            for said, value in means.items()
            if not all(torch.allclose(a, b) for a, b in zip(value, want, strict=True))
        }
        text = f"accumulated_step of microbatches of {counts} tokens"
        yield Case((weights, pieces), want, text, wrong)


def _token_gradients(weights: Sequence[Tensor], x: Tensor, targets: Tensor) -> list[Tensor]:
    own = [w.clone().requires_grad_() for w in weights]
    return list(torch.autograd.grad(recomputed.token_loss(own, x, targets), own))


# 5.3


class Fused:
    """A block with its loss: PyTorch's gradients, what it saves, and how many FLOPs are enough."""

    close: ClassVar[dict[str, float]] = {"rtol": 1e-8, "atol": 1e-11}

    def __init__(self, rng: np.random.Generator, *sizes: int) -> None:
        tokens, width, hidden, words = sizes
        shapes = [(tokens, width), (width,), (width, hidden), (width, hidden), (hidden, width)]
        shapes += [(width,), (width, words)]
        self.x, *self.weights = (torch.tensor(rng.normal(size=shape)) for shape in shapes)
        self.targets = torch.tensor(rng.integers(0, words, tokens))
        own = [w.clone().requires_grad_() for w in (self.x, *self.weights)]
        self.saved = memory_profile.saved_bytes(
            recomputed.block_loss, *own, self.targets, besides=[*own[1:], self.targets]
        )
        loss = recomputed.block_loss(*own, self.targets)
        self.loss = loss.detach()
        self.gradients = list(torch.autograd.grad(loss, own))
        self.flops = 3 * 2 * tokens * (3 * width * hidden + width * words)
        self.text = f"a block of {tokens} tokens, width {width}, hidden {hidden}, {words} words"
        self.few = tokens < 2 * width
        x, *rest = self.gradients
        self.mistakes = {
            "The mean loss divides by the number of tokens.": [g * tokens for g in self.gradients],
            "x also reaches the sum directly: add that gradient.": [
                x - self._direct(own),
                *rest,
            ],
        }

    def _direct(self, own: Sequence[Tensor]) -> Tensor:
        """The gradient by the sum h, which x reaches directly."""
        x, gain, gate, up, down, last_gain, scores = (w.detach() for w in own)
        normed = recomputed.norm(x, gain)
        hidden = torch.nn.functional.silu(normed @ gate) * (normed @ up)
        h = (x + hidden @ down).requires_grad_()
        values = recomputed.norm(h, last_gain) @ scores
        return torch.autograd.grad(torch.nn.functional.cross_entropy(values, self.targets), h)[0]

    def copies(self) -> list[Tensor]:
        """The arguments of fused_forward, fresh."""
        return [self.x.clone(), self.targets.clone(), *(w.clone() for w in self.weights)]

    def saved_fault(self, saved: Any) -> str:
        """Why too much is saved; "" if it is little enough, or the block is a small one."""
        if not (isinstance(saved, list) and all(isinstance(x, Tensor) for x in saved)):
            return "fused_forward returns (loss, a list of tensors)"
        storages = {x.untyped_storage()._cdata: x.untyped_storage().nbytes() for x in saved}
        count = sum(storages.values())
        if self.few or 5 * count <= self.saved:
            return ""
        return (
            f"{self.text}: {count:,} bytes are saved. PyTorch saves {self.saved:,}, and a fifth of "
            f"that is the goal. The largest tensor has shape "
            f"{tuple(max(saved, key=lambda x: x.untyped_storage().nbytes()).shape)}."
        )


def fused_case(rng: np.random.Generator, *sizes: int) -> Fused:
    return Fused(rng, *sizes)
