"""Activations that are swapped to the host's memory, in virtual time.

A program is a list of tasks in the order in which the host issues them. ("F", i) and ("B", i)
compute, one after another. ("out", i) copies activation i to the host and then frees it; ("in", i)
brings it back. There is one copy at a time in each direction, next to the compute. A task begins
when the task before it on its stream has ended and what it needs is there. A copy begins no earlier
than the last compute task that was issued before it. A task that needs memory waits until there is
room.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from common.checks import expect, is_whole

Task = tuple[str, int]
STREAMS = {"F": "compute", "B": "compute", "out": "to the host", "in": "from the host"}


@dataclasses.dataclass(frozen=True)
class Machine:
    """Times of n layers, bytes of their activations, and a device's room and link."""

    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]
    sizes: tuple[int, ...]
    bytes_per_s: float
    room: int

    @property
    def data(self) -> tuple[Any, ...]:
        """The arguments of swap_schedule."""
        return tuple(dataclasses.astuple(self))

    @property
    def compute_s(self) -> float:
        return sum(self.forward_s) + sum(self.backward_s)


@dataclasses.dataclass
class Played:
    """When each task ran, and the bytes that were live: [(time, change)]."""

    spans: list[tuple[Task, float, float]]
    changes: list[tuple[float, int]]

    @property
    def duration_s(self) -> float:
        return max((end for _, _, end in self.spans), default=0.0)

    @property
    def peak(self) -> int:
        total = most = 0
        for _, change in sorted(self.changes):  # what is freed at a time goes first
            total += change
            most = max(most, total)
        return most


class _Run:
    """The state of a program while it is played: of its streams, the one that can begin first does.

    queues: by stream, [(task, the number of compute tasks issued before it)].
    """

    def __init__(self, tasks: Sequence[Task], machine: Machine, case: str) -> None:
        self.machine, self.case = machine, case
        self.queues: dict[str, list[tuple[Task, int]]] = {name: [] for name in STREAMS.values()}
        issued = 0
        for task in tasks:
            self.queues[STREAMS[task[0]]].append((task, issued))
            issued += task[0] in "FB"
        self.free_s = dict.fromkeys(self.queues, 0.0)
        self.began_s: list[float] = []  # of the compute tasks
        self.ended_s: dict[Task, float] = {}
        self.played = Played([], [])

    def start_s(self, task: Task, issued: int) -> float | None:
        """When the task can begin, as far as is known; None if it has to wait for others."""
        kind, i = task
        needed: list[Task] = []
        if kind == "out":
            needed = [("F", i)]
        if kind == "in":
            needed = [("out", i)]
        if kind == "B" and self._leaves(i):
            needed = [("in", i)]
        if any(other not in self.ended_s for other in needed):
            return None
        start = max([self.free_s[STREAMS[kind]], *(self.ended_s[other] for other in needed)])
        if kind in ("out", "in") and issued:
            if len(self.began_s) < issued:
                return None
            start = max(start, self.began_s[issued - 1])
        return self._roomy_s(start, self.machine.sizes[i]) if kind in ("F", "in") else start

    def _leaves(self, i: int) -> bool:
        """Whether activation i is sent to the host at some time."""
        left = (task for task, _ in self.queues["to the host"])
        return ("out", i) in self.ended_s or ("out", i) in left

    def _roomy_s(self, start: float, size: int) -> float | None:
        """The first time from `start` on from which there is room for this many bytes."""
        times = sorted({start, *(at for at, _ in self.played.changes if at > start)})
        found = None
        for time_s in reversed(times):
            live = sum(change for at, change in self.played.changes if at <= time_s)
            if live + size > self.machine.room:
                break
            found = time_s
        return found

    def step(self) -> None:
        """Runs the task that can begin first; AssertionError if none can."""
        heads = [queue[0] for queue in self.queues.values() if queue]
        starts = [(self.start_s(*head), head[0]) for head in heads]
        able = [(start, task) for start, task in starts if start is not None]
        expect(able, f"{self.case}: {self._stuck([task for _, task in starts])}")
        start, (kind, i) = min(able, key=lambda one: one[0])
        self.queues[STREAMS[kind]].pop(0)
        size, machine = self.machine.sizes[i], self.machine
        copy_s = size / machine.bytes_per_s
        took = {"F": machine.forward_s[i], "B": machine.backward_s[i]}.get(kind, copy_s)
        end = start + took
        if kind in ("F", "in"):
            self.played.changes.append((start, size))
        if kind in ("B", "out"):
            self.played.changes.append((end, -size))
        if kind in ("F", "B"):
            self.began_s.append(start)
        self.free_s[STREAMS[kind]] = self.ended_s[kind, i] = end
        self.played.spans.append(((kind, i), start, end))

    def _stuck(self, heads: Sequence[Task]) -> str:
        """Why no stream can go on."""
        compute = next((task for task in heads if task[0] in "FB"), None)
        back = [task for task, _ in self.queues["from the host"]]
        if compute and compute[0] == "B" and self._leaves(compute[1]):
            i = compute[1]
            if ("in", i) not in back:
                return f"{compute} reads activation {i}, which was sent away and is never fetched"
            if back[0] == ("in", i) and ("out", i) in self.ended_s and self._gated(i):
                return (
                    f"{compute} reads activation {i}, which is on the host: "
                    "its prefetch comes after its use"
                )
        what = compute or heads[0]
        return (
            f"{what} can't begin, and no other task can, either: out of memory. "
            "What is fetched first takes the room of what is needed first"
            if back and what[0] == "B"
            else f"{what} finds no room, and nothing else will leave: out of memory"
        )

    def _gated(self, i: int) -> bool:
        """Whether the fetch of i waits for compute tasks that have not begun."""
        return next(
            issued > len(self.began_s)
            for task, issued in self.queues["from the host"]
            if task == ("in", i)
        )


def program_fault(tasks: object, n: int) -> str:
    """Why this is no program of n layers; "" if it is one."""
    if not isinstance(tasks, list):
        return f"it is {tasks!r:.100}, want a list of tuples like ('F', 0)"
    for task in tasks:
        if not (isinstance(task, tuple) and len(task) == 2 and task[0] in STREAMS):
            return f"{task!r:.60} is no task like ('F', 0), ('out', 0), ('in', 0)"
        if not is_whole(task[1]) or not 0 <= task[1] < n:
            return f"{task}: there are layers 0 to {n - 1}"
    compute = [task for task in tasks if task[0] in "FB"]
    want = [("F", i) for i in range(n)] + [("B", i) for i in reversed(range(n))]
    if compute != want:
        return f"its compute is {compute!r:.150}, want each F in order, then each B from the last"
    outs, ins = ([i for kind, i in tasks if kind == name] for name in ("out", "in"))
    if len(set(outs)) < len(outs) or len(set(ins)) < len(ins):
        return "it copies an activation twice"
    if set(ins) - set(outs):
        return f"it fetches activation {min(set(ins) - set(outs))}, which never left"
    return ""


def played(tasks: Any, machine: Machine, case: str) -> Played:
    """Plays a program; AssertionError if it can't run in the device's memory."""
    fault = program_fault(tasks, len(machine.sizes))
    expect(not fault, f"{case}: {fault}")
    run = _Run(tasks, machine, case)
    while any(run.queues.values()):
        run.step()
    return run.played


def draw(run: Played, machine: Machine, title: str) -> Sequence[Axes]:
    """Two Axes: the three streams over time, and the live bytes below."""
    axes = plt.subplots(
        2, 1, figsize=(7.4, 3.6), sharex=True, gridspec_kw={"height_ratios": [1.1, 1]}
    )[1]
    names = list(dict.fromkeys(STREAMS.values()))
    colors = {"F": "C0", "B": "C1", "out": "C2", "in": "C4"}
    for (kind, i), start, end in run.spans:
        place = names.index(STREAMS[kind])
        bar = {"left": 1e3 * start, "width": 1e3 * (end - start), "edgecolor": "white"}
        axes[0].barh(place, color=colors[kind], **bar)
        axes[0].text(500 * (start + end), place, str(i), ha="center", va="center", size=7)
    axes[0].set(yticks=range(len(names)), yticklabels=names, title=title)
    axes[0].invert_yaxis()
    axes[0].grid(visible=False)
    times, counts, total = [0.0], [0.0], 0
    for at, change in sorted(run.changes):
        total += change
        times.append(1e3 * at)
        counts.append(total / 1e6)
    axes[1].step(times, counts, where="post", color="C3")
    axes[1].axhline(machine.room / 1e6, color="black", linestyle="--")
    axes[1].set(xlabel="virtual time (ms)", ylabel="MB live", ylim=(0, None))
    return list(axes)
