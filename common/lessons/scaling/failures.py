"""Clusters whose nodes fail: a simulated year of training, and real ranks that are killed.

A cluster is a dict of numbers (`CLUSTER` has an example), and so is a policy:

    {"interval_s": 1800.0, "replicas": 120, "drop": True}

interval_s: training between two checkpoints. replicas: how many the job begins with; nodes that
they don't need are spares. drop: whether the job goes on with fewer replicas while nodes for all
are missing. Otherwise it waits.
"""

import contextlib
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nogpu import ranks

if TYPE_CHECKING:
    import torch
    from matplotlib.axes import Axes

Policy = Mapping[str, Any]
Cluster = Mapping[str, float]

DAY_S = 86_400.0
CLUSTER: Cluster = {
    "nodes": 1280,  # of eight GPUs, those of spares included
    "replica_nodes": 16,  # that one replica of the model needs
    "failures_per_1000_node_days": 6.5,  # RSC-1: Kokolis et al. (2024)
    "save_s": 120.0,  # training stands still while a checkpoint is written
    "restart_s": 600.0,  # to notice a failure, to start again and to load the checkpoint
    "reshape_s": 1800.0,  # in addition, if the number of replicas changes
    "repair_s": 86_400.0,  # until a node that failed is back
    "days": 365.0,  # that are simulated
}


def failures_per_s(cluster: Cluster, nodes: Any) -> Any:
    """How often one of so many nodes fails."""
    return nodes * cluster["failures_per_1000_node_days"] / 1000 / DAY_S


def goodputs(cluster: Cluster, policies: Sequence[Policy], seeds: Sequence[int]) -> np.ndarray:
    """(policies, seeds): the share of all node-seconds that went into training that was kept.

    Nodes that compute fail independently of each other, at a constant rate. Then the training
    since the last checkpoint is lost, and the job starts again, on spares if there are any. A
    replica that was dropped comes back when there are nodes for it: the job saves and starts again.
    """
    return _Years(cluster, policies, seeds).run()


def goodput(cluster: Cluster, policy: Policy, seeds: Sequence[int]) -> float:
    """The mean of `goodputs` over seeds, for one policy."""
    return float(goodputs(cluster, [policy], seeds).mean())


class _Years:
    """Simulated time of all policies and seeds at once: arrays (policies, seeds)."""

    def __init__(self, cluster: Cluster, policies: Sequence[Policy], seeds: Sequence[int]) -> None:
        self.cluster, self.end_s = cluster, cluster["days"] * DAY_S
        self.nodes, self.size = int(cluster["nodes"]), int(cluster["replica_nodes"])
        self.random = [np.random.default_rng(seed) for seed in seeds]
        shape = len(policies), len(seeds)
        self.interval_s = _column(policies, "interval_s", float)
        self.drop = _column(policies, "drop", bool)
        wanted = _column(policies, "replicas", int)
        self.wanted = np.broadcast_to(wanted.clip(1, self.nodes // self.size), shape)
        self.replicas = self.wanted.copy()
        self.time_s, self.kept = np.zeros(shape), np.zeros(shape)
        self.repaired_s = np.full((1024, *shape), np.inf)  # by failure; these times only grow
        self.failures, self.back = np.zeros((2, *shape), int)  # so far; whose node is back
        self.place = np.arange(self.time_s.size).reshape(shape)

    def run(self) -> np.ndarray:
        """The goodput of each."""
        while (self.time_s < self.end_s).any():
            self._train()
            self._restart()
        return self.kept / (self.nodes * self.end_s)

    def _train(self) -> None:
        """Until a failure, or until a replica can come back."""
        used = self.replicas * self.size
        luck = np.array([random.exponential() for random in self.random])
        left_s = np.maximum(0.0, self.end_s - self.time_s)
        up_s = np.minimum(luck / failures_per_s(self.cluster, used), left_s)
        missing = self.drop & (self.replicas < self.wanted)
        able_s = np.where(missing, self._until((self.replicas + 1) * self.size), np.inf)
        grows = able_s - self.time_s < up_s
        up_s = np.where(grows, np.maximum(0.0, able_s - self.time_s), up_s)
        cycle_s = self.interval_s + self.cluster["save_s"]
        saved = np.floor(up_s / cycle_s)
        more_s = np.minimum(up_s - saved * cycle_s, self.interval_s)  # saved before a replica joins
        self.kept += used * (saved * self.interval_s + np.where(grows, more_s, 0.0))
        self.time_s = self.time_s + up_s + np.where(grows, self.cluster["save_s"], 0.0)
        at_s = np.where(grows, np.inf, self.time_s + self.cluster["repair_s"])
        self.repaired_s.put(self._index(self.failures), at_s)
        self.failures += ~grows
        if self.failures.max() == len(self.repaired_s):
            more = np.full_like(self.repaired_s, np.inf)
            self.repaired_s = np.concatenate([self.repaired_s, more])

    def _restart(self) -> None:
        """With as many replicas as there are nodes for, or after waiting for the nodes."""
        while np.any(is_back := self._repaired(self.back) <= self.time_s):
            self.back += is_back
        able = (self.nodes - self.failures + self.back) // self.size
        chosen = np.where(self.drop, np.minimum(able, self.wanted).clip(1), self.wanted)
        waits = able < chosen
        if waits.any():
            until_s = np.maximum(self.time_s, self._until(chosen * self.size))
            self.time_s = np.where(waits, until_s, self.time_s)
        reshape_s = np.where(chosen != self.replicas, self.cluster["reshape_s"], 0.0)
        self.time_s = self.time_s + self.cluster["restart_s"] + reshape_s
        self.replicas = chosen

    def _until(self, working: np.ndarray) -> np.ndarray:
        """When so many nodes work: all failures but the latest few are repaired."""
        number = self.failures - 1 - (self.nodes - working)
        return np.where(number < 0, 0.0, self._repaired(np.maximum(number, 0)))

    def _repaired(self, number: np.ndarray) -> np.ndarray:
        """When the node of this failure is back; never, if there was no such failure."""
        return self.repaired_s.take(self._index(number), mode="clip")

    def _index(self, number: np.ndarray) -> np.ndarray:
        """Where the time of this failure is, among all in a row: quicker than three indices."""
        return number * self.place.size + self.place


def _column(policies: Sequence[Policy], name: str, kind: type) -> np.ndarray:
    return np.array([[kind(policy[name])] for policy in policies])


# Formulas and pictures


def expected_slowdown(interval_s: Any, save_s: float, mtbf_s: float) -> Any:
    """Seconds per second of training that is kept, without restarts, if failures have no memory."""
    return mtbf_s * np.expm1((np.asarray(interval_s) + save_s) / mtbf_s) / interval_s


def counted_slowdown(interval_s: float, save_s: float, mtbf_s: float, failures: int) -> float:
    """The same, counted in a simulation with so many failures."""
    up_s = np.random.default_rng(16).exponential(mtbf_s, failures)
    kept = interval_s * np.floor(up_s / (interval_s + save_s)).sum()
    return float(up_s.sum() / kept) if kept else float("inf")


def draw_mtbf(mtbf_s: Callable[..., float], published: Mapping[str, Any]) -> "Axes":
    """The student's time between failures for two published rates, and what clusters reported."""
    import matplotlib.pyplot as plt

    ax = plt.subplots(figsize=(7.2, 3.2))[1]
    gpus = np.geomspace(8, 2e5, 60)
    rates = published["meta_rsc"]["failures_per_1000_node_days"]
    for place, (name, rate) in enumerate(rates.items()):
        hours = [mtbf_s(n, rate) / 3600 for n in gpus]
        ax.plot(gpus, hours, color=f"C{place}", label=f"{rate} per 1,000 node-days ({name})")
    for place, (name, count, hours) in enumerate(reported(published), 2):
        ax.plot(count, hours, "os^"[place - 2], color=f"C{place}", label=name, clip_on=False)
    ax.set(xscale="log", yscale="log", xlabel="GPUs", ylabel="hours between failures")
    ax.set_title("A cluster 1,000 times as large fails 1,000 times as often")
    ax.legend(fontsize=8)
    return ax


def reported(published: Mapping[str, Any]) -> list[tuple[str, list[float], list[float]]]:
    """[(source, GPUs, hours between failures)] as measured."""
    units = {"days": 24.0, "h": 1.0}
    meta = [row for row in published["meta_rsc"]["mttf"] if row["measured"]]
    hours = [float(v) * units[unit] for v, unit in (row["value"].split()[:2] for row in meta)]
    llama = published["llama3"]
    return [
        ("RSC-1 (Kokolis et al., 2024)", [row["gpus"] for row in meta], hours),
        (
            "Llama 3 (2024), 466 in 54 days",
            [llama["gpus"]],
            [llama["days"] * 24 / llama["interruptions_total"]],
        ),
        ("BLOOM (2022), about one per week", [published["bloom"]["gpus"]], [168.0]),
    ]


def draw_intervals(
    chosen_s: Callable[[float, float], float], save_s: float, mtbfs_s: Sequence[float]
) -> "Sequence[Axes]":
    """Slowdown by interval: expected line, simulated dots, Young's choice and the student's."""
    import matplotlib.pyplot as plt

    axes = plt.subplots(1, len(mtbfs_s), figsize=(7.2, 2.9))[1]
    for ax, mtbf_s in zip(axes, mtbfs_s, strict=True):
        young_s, own_s = (2 * save_s * mtbf_s) ** 0.5, chosen_s(save_s, mtbf_s)
        x = np.geomspace(0.25 * min(own_s, young_s), 3 * max(own_s, young_s), 80)
        ax.plot(x / 60, expected_slowdown(x, save_s, mtbf_s), label="expected")
        dots = np.geomspace(x[0], x[-1], 9)
        counted = [counted_slowdown(dot, save_s, mtbf_s, 20_000) for dot in dots]
        ax.plot(dots / 60, counted, "o", color="C0", label="simulated")
        for name, at_s, mark in (("Young", young_s, "v"), ("yours", own_s, "^")):
            height = expected_slowdown(at_s, save_s, mtbf_s)
            ax.plot(at_s / 60, height, mark, color="C1" if mark == "v" else "C2", ms=9, label=name)
        best = expected_slowdown(own_s, save_s, mtbf_s)
        ax.set(xscale="log", ylim=(min(1.0, best), best + 2.2 * (best - 1)))
        ax.set(xlabel="minutes between checkpoints", title=f"a failure every {mtbf_s / 60:g} min")
        ticks = [float(f"{own_s / 60 * factor:.1g}") for factor in (0.5, 1, 2, 4)]
        ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        ax.minorticks_off()
    axes[0].set_ylabel("time / training kept")
    axes[-1].legend(fontsize=8)
    return list(axes)


def draw_policies(cluster: Cluster, own: Policy, seeds: Sequence[int]) -> "Axes":
    """Goodput by replicas, for jobs that wait and jobs that drop replicas; and a policy's dot."""
    import matplotlib.pyplot as plt

    most = int(cluster["nodes"]) // int(cluster["replica_nodes"])
    counts = list(range(max(1, most - 13), most + 1))
    ax = plt.subplots(figsize=(7.2, 2.8))[1]
    for place, (drop, name) in enumerate(((False, "waits for nodes"), (True, "drops replicas"))):
        tried = [{**own, "replicas": replicas, "drop": drop} for replicas in counts]
        years = goodputs(cluster, tried, seeds)
        style = {"ls": "--" if drop else "-", "lw": 2 if drop else 5, "color": f"C{place}"}
        ax.plot(counts, years.mean(1), **style, label=name)  # where both are equal, both show
    at = own["replicas"], goodput(cluster, own, seeds)
    ax.plot(*at, "o", ms=12, mfc="none", mec="C2", mew=2)
    ax.annotate("yours", at, (-44, -18), textcoords="offset points", color="C2")
    ax.set(xlabel=f"replicas of {cluster['replica_nodes']:g} nodes (the rest are spares)")
    ax.set(ylabel="goodput", title=f"A year of {cluster['nodes']:,} nodes, simulated")
    ax.legend()
    return ax


def draw_interrupted(told: Mapping[str, Any], one: Sequence[float]) -> "Axes":
    """The losses of one device as a line, and of a run that lost a rank as dots."""
    import matplotlib.pyplot as plt

    ax = plt.subplots(figsize=(7.2, 2.9))[1]
    steps, resumed = range(1, len(one) + 1), told["resumed"]
    ax.plot(steps, one, color="0.4", label="one device")
    ax.plot(steps[:resumed], told["losses"][:resumed], "o", color="C0", label="three ranks")
    ax.plot(steps[resumed:], told["losses"][resumed:], "s", color="C1", label="two ranks")
    ax.axvspan(resumed + 0.5, told["steps"] + 0.5, color="0.9", label="lost, done again")
    ax.axvline(told["steps"] + 0.5, color="C3", ls="--", label="kill -9")
    ax.set(
        xlabel="step", ylabel="nats per character", title="A rank is killed, and the curve goes on"
    )
    ax.legend(fontsize=8)
    return ax


# Real ranks, of which one is killed

STEPS, EVERY, ROWS = 30, 6, 12  # steps of training, steps between checkpoints, texts per step


def interrupted(world_size: int = 3, victim: int = 1, kill_at: int = 15) -> dict[str, Any]:
    """What happens if `kill -9` ends a rank in the middle of training on gloo.

    {"losses": of all steps, as the two runs together give them; "error": what the first run raised;
    "steps": that the first run had begun; "resumed": the step at which fewer ranks went on}.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        over = threading.Event()
        killer = threading.Thread(target=_kill, args=(folder, victim, kill_at, over))
        killer.start()
        try:
            ranks.run(trained, name, STEPS, world_size=world_size, machine="gloo")
            error = ""
        except ranks.RankFailedError as failure:
            error = str(failure)
        finally:
            over.set()
            killer.join()
        begun, resumed = _number(folder / "progress"), _number(folder / "latest")
        result = ranks.run(
            trained,
            name,
            STEPS,
            world_size=world_size - 1,
            machine="gloo",
        )
    return {"losses": result.returns[0], "error": error, "steps": begun, "resumed": resumed}


def one_device() -> list[float]:
    """The losses of the same training, on one device, that nothing interrupts."""
    with tempfile.TemporaryDirectory() as name:
        return ranks.run(trained, name, STEPS, world_size=1, live_bytes=False).returns[0]


def trained(dist: Any, folder_name: str, steps: int) -> list[float]:
    """The losses of all steps so far. Continues from the latest checkpoint, whoever saved it.

    Each rank keeps a shard of Adam's state (lab 13) and saves it, with its shard of the weights.
    """
    import torch

    from common.training import replicas
    from common.training.adam import adam

    folder, p, rank = Path(folder_name), dist.get_world_size(), dist.get_rank()
    (folder / f"pid_{rank}").write_text(str(os.getpid()))
    torch.set_num_threads(1)  # as the processes of real ranks do
    model = replicas.transformer(16)
    weights = list(model.parameters())
    flat, m, v, losses = _loaded(folder, replicas.flattened(weights))
    size = -(-len(flat) // p)
    padded = (torch.nn.functional.pad(t, (0, p * size - len(t))) for t in (flat, m, v))
    flat, m, v = (t.view(p, size)[rank].clone() for t in padded)
    whole = flat.new_zeros(p * size)
    dist.all_gather_into_tensor(whole, flat)
    for step in range(len(losses), steps):
        torch.nn.utils.vector_to_parameters(
            whole[: sum(w.numel() for w in weights)].clone(), weights
        )
        loss, gradient = _share(model, weights, step, rank, p)
        total = torch.empty_like(flat)
        dist.reduce_scatter_tensor(
            total, torch.nn.functional.pad(gradient, (0, p * size - len(gradient)))
        )
        adam(flat, total, m, v, step + 1)
        dist.all_gather_into_tensor(whole, flat)
        dist.all_reduce(loss)
        losses.append(loss.item())
        if len(losses) % EVERY == 0:
            _save(dist, folder, len(losses), [flat, m, v], losses)
        if rank == 0:
            _write(folder / "progress", str(len(losses)))
    return losses


def _share(model: Any, weights: Any, step: int, rank: int, p: int) -> tuple[Any, Any]:
    """(this rank's share of the loss of a step, its gradient, flat)."""
    import torch

    from common.training import replicas

    ((tokens, following),) = replicas.text_shards(np.random.default_rng(step), [ROWS])
    tokens, following = (t.tensor_split(p)[rank] for t in (tokens, following))
    loss = replicas.mean_loss(model, (tokens, following)) * len(tokens) / ROWS
    return loss.detach().reshape(1), replicas.flattened(torch.autograd.grad(loss, weights))


def _save(dist: Any, folder: Path, step: int, shards: Any, losses: list[float]) -> None:
    """A checkpoint: a file per rank; it counts once all have been written."""
    import torch

    rank, p = dist.get_rank(), dist.get_world_size()
    torch.save((p, shards, losses), folder / f"{step}_{rank}.part")
    os.replace(folder / f"{step}_{rank}.part", folder / f"{step}_{rank}")
    dist.barrier()
    if rank == 0:
        _write(folder / "latest", str(step))


def _loaded(folder: Path, flat: "torch.Tensor") -> Any:
    """(weights, m, v, losses) of the latest checkpoint, joined; or of the beginning."""
    import torch

    step = _number(folder / "latest")
    if not step:
        return flat, torch.zeros_like(flat), torch.zeros_like(flat), []
    p, _, losses = torch.load(folder / f"{step}_0")
    shards = [torch.load(folder / f"{step}_{rank}")[1] for rank in range(p)]
    return (*(torch.cat(parts)[: len(flat)] for parts in zip(*shards, strict=True)), losses)


def _kill(folder: Path, victim: int, kill_at: int, over: threading.Event) -> None:
    """Sends SIGKILL to a rank's process once training has come to this step."""
    while not over.is_set():
        if _number(folder / "progress") >= kill_at:
            with contextlib.suppress(ProcessLookupError):
                os.kill(_number(folder / f"pid_{victim}"), signal.SIGKILL)
            return
        time.sleep(0.002)


def _number(file: Path) -> int:
    """The number in a file; 0 if there is no such file."""
    return int(file.read_text()) if file.exists() else 0


def _write(file: Path, text: str) -> None:
    """Whole or not at all."""
    part = file.with_suffix(".part")
    part.write_text(text)
    os.replace(part, file)
