"""What the checks of lab 16's parts 2 to 4 compare with."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from common.checks import agree, expect
from common.lessons.scaling import failures, mesh_training
from common.lessons.scaling.failures import Cluster, Policy
from nogpu import ranks

Mistakes = dict[str, Any]
CLUSTERS: dict[str, Cluster] = {
    "1,280 nodes": {**failures.CLUSTER, "days": 180.0},  # 1,500 failures
    "four replicas of 32 nodes": {
        **failures.CLUSTER,
        "nodes": 128,
        "replica_nodes": 32,
        "save_s": 60.0,
    },
    "quick repairs": {
        **failures.CLUSTER,
        "nodes": 64,
        "replica_nodes": 8,
        "repair_s": 1800.0,
        "reshape_s": 7200.0,
    },
    "small replicas, slow changes": {  # here alone, spares are worth more than 2 %
        **failures.CLUSTER,
        "nodes": 256,
        "replica_nodes": 4,
        "reshape_s": 7200.0,
    },
    "slow checkpoints": {
        **failures.CLUSTER,
        "nodes": 8192,
        "replica_nodes": 256,
        "save_s": 900.0,
        "repair_s": 21_600.0,
        "days": 60.0,
    },
}


def mtbf_s(gpus: float, failures_per_1000_node_days: float, gpus_per_node: int) -> float:
    """Seconds between two failures of any node."""
    return 1 / failures.failures_per_s(
        {"failures_per_1000_node_days": failures_per_1000_node_days}, gpus / gpus_per_node
    )


def mtbf_cases(rng: np.random.Generator) -> list[tuple[int, float, int]]:
    """(GPUs, failures per 1,000 node-days, GPUs per node), of whole nodes."""
    drawn = [
        (int(nodes) * int(size), float(rng.uniform(1, 9)), int(size))
        for nodes, size in rng.integers(1, [9999, 9], (9, 2))
    ]
    return [(16_384, 6.5, 8), (8, 6.5, 8), (100_000, 2.34, 4), *drawn]


def mtbf_mistakes(want: float, gpus: float, gpus_per_node: int) -> Mistakes:
    """{sentence: what this mistake gives}."""
    nodes = gpus / gpus_per_node
    return {
        "This is the time of one node. Any of the nodes may fail, so the time between failures "
        "shrinks with the size of the cluster.": want * nodes,
        "The rate counts nodes, and these are GPUs: a node has several.": want / gpus_per_node,
        "These are days; the answer is in seconds.": want / failures.DAY_S,
        "These are hours; the answer is in seconds.": want / 3600,
        "These are minutes; the answer is in seconds.": want / 60,
        "A node has gpus_per_node GPUs, which need not be eight.": want * 8 / gpus_per_node,
        "This is how many failures there are per second: the time between them is its inverse.": 1
        / want,
        "The rate is per 1,000 node-days.": want / 1000,
    }


def best_interval_s(save_s: float, mtbf_s: float) -> float:
    """Where time per training kept is least: exp((τ + δ)/M)·(1 − τ/M) = 1, by bisection."""
    low, high = 0.0, mtbf_s
    for _ in range(200):
        middle = (low + high) / 2
        x = (middle + save_s) / mtbf_s
        low, high = (middle, high) if np.exp(x) * (1 - middle / mtbf_s) > 1 else (low, middle)
    return low


def interval_fault(got: Any, save_s: float, mtbf_s: float) -> str:
    """What is wrong with an interval; "" if it costs at most 0.5 % more time than the best."""
    best = best_interval_s(save_s, mtbf_s)
    case = f"checkpoint_interval_s({save_s:g}, {mtbf_s:g})"
    if isinstance(got, bool) or not isinstance(got, (int, float, np.number)):
        return f"{case} gave {got!r:.80}, want a number of seconds."
    least = float(failures.expected_slowdown(best, save_s, mtbf_s))
    own = float(failures.expected_slowdown(got, save_s, mtbf_s)) if got > 0 else np.inf
    if own <= 1.005 * least:
        return ""
    young, ratio = (2 * save_s * mtbf_s) ** 0.5, save_s / (2 * mtbf_s)
    daly = young * (1 + ratio**0.5 / 3 + ratio / 9) - save_s
    known = {
        "Where Young's formula exceeds M, M itself is too long, too.": (
            mtbf_s if young > mtbf_s else np.nan
        ),
        "Daly's closed form holds as long as saving takes less than 2·M.": daly,
        "Young's formula, of which the time to save is taken off, still assumes short saves.": (
            young - save_s
        ),
        "These are minutes; the answer is in seconds.": best / 60,
        "Young's formula assumes that saving is short beside the time between failures.": young,
        "Inside the root is twice the product.": (save_s * mtbf_s) ** 0.5,
        "This is the time between two beginnings; leave out the time to save.": best + save_s,
        "A checkpoint per failure loses half of the work.": mtbf_s,
        "This interval is no time at all: where does your search begin, and when does it turn?": (
            got if got < 1e-3 * best else np.nan
        ),
    }
    near = (says for says, value in known.items() if abs(got - value) <= 0.002 * abs(value))
    more = f"it costs {own / least - 1:.1%} more time than the best interval"
    return f"{next(near, '')}\n{case} gave {got:g} s; {more}.".strip()


# The policy


class Scored:
    """A policy against the best of a search, on years that the student has not seen."""

    def __init__(self, cluster: Cluster, seeds: Sequence[int]) -> None:
        self.cluster, self.seeds = cluster, list(seeds)
        mtbf = 1 / failures.failures_per_s(cluster, cluster["nodes"])
        self.interval_s = best_interval_s(cluster["save_s"], mtbf)

    def fault(self, policy: Any, case: str) -> str:
        """What is wrong; "" if the goodput is within 2 % of the best."""
        if said := malformed(policy, self.cluster):
            return f"{case}: {said}"
        if (more := self._expected_excess(policy)) > 0.02:
            return (
                f"{self._part('interval_s', policy, policy)}\n{case}: it costs {more:.1%} more "
                "time than the best interval, in expectation."
            )
        best, most, got = search(self.cluster, self.interval_s, self.seeds, policy)
        if got < 0.98 * most:  # the best of 250 was also the luckiest: both try other years
            years = [seed + more for seed in self.seeds for more in range(1, 15)]
            most, got = failures.goodputs(self.cluster, [best, policy], years).mean(1).tolist()
        if got >= 0.98 * most:
            return ""
        spoiled = {  # goodput of the best policy with one part of this one
            name: failures.goodput(self.cluster, {**best, name: policy[name]}, self.seeds)
            for name in ("drop", "replicas", "interval_s")
        }
        name = min(spoiled, key=lambda key: spoiled[key])
        return (
            f"{self._part(name, policy, best)}\n{case}: goodput {got:.3f}, and the best policy "
            f"that we found has {most:.3f}; 2 % less would do."
        )

    def _expected_excess(self, policy: Policy) -> float:
        """How much more time the interval costs than the best one for the nodes that compute."""
        nodes = policy["replicas"] * self.cluster["replica_nodes"]
        known = self.cluster["save_s"], 1 / failures.failures_per_s(self.cluster, nodes)
        with np.errstate(over="ignore"):
            own = failures.expected_slowdown(policy["interval_s"], *known)
        return float(own / failures.expected_slowdown(best_interval_s(*known), *known)) - 1

    def _part(self, name: str, policy: Policy, best: Policy) -> str:
        """What a part of the policy should be instead."""
        if name == "drop" and policy["drop"]:
            return "Here it is better to wait: a node is back soon, and a dropped replica is not."
        needed = policy["replicas"] * self.cluster["replica_nodes"]
        if name != "interval_s" and not policy["drop"] and needed == self.cluster["nodes"]:
            return "A job without spares that waits stands still until every node is repaired."
        if name == "drop":
            return "Here it is better to drop a replica than to let all others wait for one node."
        own = policy[name]
        if name == "interval_s":
            word = "long" if own > self.interval_s else "short"
            return f"The interval of {own:,.0f} s is too {word}: which failures interrupt the job?"
        word = "few" if own > best[name] else "many"
        return f"{own} replicas leave too {word} spares."


def search(
    cluster: Cluster, interval_s: float, seeds: Sequence[int], own: Policy
) -> tuple[dict[str, Any], float, float]:
    """(the best policy of some 250, its goodput, that of `own`), all on the same years.

    Tried are intervals near this one, numbers of spares, and to drop or to wait.
    """
    most = int(cluster["nodes"]) // int(cluster["replica_nodes"])
    tried = [
        {"interval_s": factor * interval_s, "replicas": replicas, "drop": drop}
        for factor in (0.3, 0.5, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0, 3.0)
        for replicas in range(most, max(0, most - 14), -1)
        for drop in (False, True)
    ]
    *found, of_own = failures.goodputs(cluster, [*tried, own], seeds).mean(1).tolist()
    most = max(found)
    return tried[found.index(most)], most, of_own


def malformed(policy: Any, cluster: Cluster) -> str:
    """What is wrong with the form of a policy; "" if nothing."""
    keys = ("interval_s", "replicas", "drop")
    if not isinstance(policy, Mapping) or sorted(policy) != sorted(keys):
        return f"policy gave {policy!r:.100}, want a dict with {', '.join(keys)}."
    most = int(cluster["nodes"]) // int(cluster["replica_nodes"])
    interval, replicas, drop = (policy[key] for key in keys)
    if isinstance(interval, bool) or not isinstance(interval, (int, float, np.number)):
        return f"interval_s is {interval!r:.60}, want a number of seconds."
    if not 1 <= interval < 1e9:
        return f"interval_s is {interval!r:.60}, want 1 second or more."
    if isinstance(replicas, bool) or not isinstance(replicas, (int, np.integer)):
        return f"replicas is {replicas!r:.60}, want a whole number."
    if not 1 <= replicas <= most:
        return f"replicas is {replicas}; there are nodes for 1 to {most}."
    if not isinstance(drop, (bool, np.bool_)):
        return f"drop is {drop!r:.60}, want True or False."
    return ""


def random_cluster(rng: np.random.Generator) -> Cluster:
    """A cluster of some hundred nodes."""
    size = int(rng.choice([4, 8, 16]))
    return {
        "nodes": size * int(rng.integers(8, 40)),
        "replica_nodes": size,
        "failures_per_1000_node_days": float(rng.uniform(2, 7)),
        "save_s": float(rng.uniform(20, 600)),
        "restart_s": float(rng.uniform(200, 900)),
        "reshape_s": float(rng.uniform(600, 3600)),
        "repair_s": float(rng.uniform(0.2, 2) * failures.DAY_S),
        "days": 365.0,
    }


# DiLoCo


def outer(
    shared: Tensor,
    owns: Sequence[Tensor],
    momentum: Tensor,
    present: Sequence[bool],
    rate: float,
    beta: float,
) -> tuple[tuple[Tensor, Tensor], dict[str, tuple[Tensor, Tensor]]]:
    """((shared, momentum) afterwards, {sentence: what this mistake gives})."""
    here = [own for own, there in zip(owns, present, strict=True) if there]
    mean = torch.stack([shared - own for own in here]).mean(0)

    def stepped(change: Tensor, look_ahead: bool = True) -> tuple[Tensor, Tensor]:
        kept = beta * momentum + change
        return shared - rate * (change + beta * kept if look_ahead else kept), kept

    everyone, given = torch.stack([shared - own for own in owns]).mean(0), (shared, momentum, mean)
    wrong = {
        "This is the sum over ranks: divide by the ranks that took part.": stepped(
            mean * len(here)
        ),
        "A rank that was away has nothing to add, and does not count in the mean.": stepped(
            mean * len(here) / len(owns)
        ),
        "The weights of a rank that was away are old: leave them out.": stepped(everyone),
        "The sign is wrong: the outer gradient is shared − own.": stepped(-mean),
        "This is plain momentum. Nesterov's step looks ahead: mean + β·momentum.": stepped(
            mean, look_ahead=False
        ),
        "These are the averaged weights: the outer step is missing.": (shared - mean, momentum),
        "The outer step has no momentum yet.": (shared - rate * mean, momentum),
        "0.7 and 0.9 are defaults: use rate and beta.": _nesterov(*given, 0.7, 0.9),
        "momentum has to change in place.": (stepped(mean)[0], momentum),
        "shared has to change in place.": (shared, stepped(mean)[1]),
        "The rate scales the step, not the momentum.": _nesterov(*given, rate, beta, rate),
        "The gradient is added to β·momentum as it is, without a factor.": _nesterov(
            *given, rate, beta, 1 - beta
        ),
    }
    return stepped(mean), wrong


def _nesterov(
    shared: Tensor, momentum: Tensor, mean: Tensor, rate: float, beta: float, factor: float = 1.0
) -> tuple[Tensor, Tensor]:
    """(shared, momentum) after the step; factor: what the momentum takes of the mean."""
    kept = beta * momentum + factor * mean
    return shared - rate * (mean + beta * kept), kept


def outer_messages_fault(trace: ranks.Trace, n: int) -> str:
    """What is wrong with the messages of an outer step of n numbers; "" if nothing.

    The few numbers beside the weights, four at most, may travel alone.
    """
    p = trace.world_size
    least, most = (2 * (p - 1) * (n + few) * 8 for few in (0, 4))
    if trace.rounds > (rounds := 2 * (p - 1) * (1 + 4)):
        return (
            f"{p} ranks exchange messages in {trace.rounds} rounds, {rounds} at most are wanted: "
            "each round pays α, so send all numbers together."
        )
    if least <= trace.bytes <= most:
        return ""
    if trace.bytes < least:
        return (
            f"{p} ranks send {trace.bytes:,} bytes: an all-reduce of {n} weights sends {least:,}."
        )
    return (
        f"{p} ranks send {trace.bytes:,} bytes for {n} weights; one all-reduce of {n} numbers and "
        f"a few is enough, at most {most:,} bytes. All ranks have the same momentum already."
    )


# The mesh


class Model:
    """Random parts of a model on a mesh, and Adam on one device that holds them all."""

    def __init__(
        self, rng: np.random.Generator, mesh: mesh_training.Mesh, shared: int, own: int, most: float
    ) -> None:
        self.rng, self.mesh, self.shared, self.own, self.most = rng, mesh, shared, own, most
        self.stages = range(mesh.pipeline)
        self.weights = self._drawn()
        self.m, self.v = ([torch.zeros_like(t) for t in self.weights] for _ in "mv")
        self.size = shared + own

    def _drawn(self) -> list[Tensor]:
        """By stage: what all tensor ranks hold, and then what each of them holds alone."""
        n = self.shared + self.mesh.tensor * self.own
        return [torch.tensor(self.rng.normal(size=n)) for _ in self.stages]

    def part(self, whole_stage: Tensor, tensor: int) -> Tensor:
        """What a tensor rank holds of a stage."""
        start = self.shared + tensor * self.own
        return torch.cat([whole_stage[: self.shared], whole_stage[start : start + self.own]])

    def by_rank(self, stages: Sequence[Tensor]) -> list[Tensor]:
        """What each rank holds of these vectors."""
        places = (self.mesh.place(rank) for rank in range(self.mesh.size))
        return [self.part(stages[place.pipeline], place.tensor) for place in places]

    def step(self, step: int) -> tuple[list[Tensor], list[Tensor], list[Tensor], float, Mistakes]:
        """(weights, gradients, wanted weights by rank, wanted norm, what mistakes give as norm)."""
        before = self.by_rank(self.weights)
        replicas = [self._drawn() for _ in range(self.mesh.data)]
        gradients = []
        for rank in range(self.mesh.size):
            place = self.mesh.place(rank)
            gradients.append(self.part(replicas[place.data][place.pipeline], place.tensor))
        totals = [torch.stack(parts).sum(0) for parts in zip(*replicas, strict=True)]
        squares = [float((total * total).sum()) for total in totals]
        norm = sum(squares) ** 0.5
        again = sum(float((t[: self.shared] ** 2).sum()) for t in totals)
        shard = self.size // self.mesh.data
        later = sum(float((t[shard : self.shared] ** 2).sum()) for t in totals)
        scale = min(1.0, self.most / norm)
        for w, m, v, total in zip(self.weights, self.m, self.v, totals, strict=True):
            mesh_training.adam(w, total * scale, m, v, step)
        mistakes = {
            "Weights that all tensor ranks hold are counted once per tensor rank.": (
                sum(squares) + (self.mesh.tensor - 1) * again
            )
            ** 0.5,
            "Replicated weights may reach into a later shard, too.": (
                sum(squares) + (self.mesh.tensor - 1) * later
            )
            ** 0.5,
            "This is the norm of one stage only.": squares[0] ** 0.5,
            "The sum of squares has no root yet.": sum(squares),
            "This is the norm of the mean: the sum over data ranks is wanted.": (
                norm / self.mesh.data
            ),
            "This is the norm after clipping; return the norm before.": min(norm, self.most),
            "What all tensor ranks hold counts once; here it is left out.": (sum(squares) - again)
            ** 0.5,
        }
        return before, gradients, self.by_rank(self.weights), norm, mistakes

    def check(
        self,
        result: ranks.Result,
        want: Sequence[Tensor],
        norm: float,
        mistakes: Mistakes,
        step: int,
    ) -> None:
        """Raises unless a step of all ranks is right."""
        case = f"mesh {self.mesh}, step {step}, rank"
        said = self.state_fault([state for _, state, _ in result.returns])
        expect(not said, said)
        for rank, (_, _, got) in enumerate(result.returns):
            agree(got, norm, f"the norm, {case} {rank}", rtol=1e-9, mistakes=mistakes)
        for rank, (got, _, _) in enumerate(result.returns):
            agree(got, want[rank], f"the weights, {case} {rank}", rtol=1e-9, atol=1e-11)
        expect(not (said := self.bytes_fault(result.trace)), said)

    def state_fault(self, states: Sequence[Any]) -> str:
        """What is wrong with what ranks keep between steps; "" if nothing."""
        want = self.size // self.mesh.data
        for rank, state in enumerate(states):
            if not isinstance(state, dict) or sorted(state) != ["m", "v"]:
                return f"rank {rank}'s state has {list(state)!r:.80}, want m and v."
            sizes = [len(t) for t in state.values()]
            if sizes == [want, want]:
                continue
            others = {"tensor": self.mesh.tensor, "pipeline": self.mesh.pipeline}
            others["all ranks"] = self.mesh.size
            named = (a for a, n in others.items() if n > 1 and sizes == [self.size // n] * 2)
            axis = next(named, "")
            says = (
                f"The optimizer's state is cut over the wrong group, {axis}"
                if axis
                else (
                    "The optimizer's state is whole" if sizes == [self.size] * 2 else "Other shards"
                )
            )
            return (
                f"{says}: rank {rank} of a mesh {self.mesh} keeps {sizes[0]} numbers each for m "
                f"and v of its {self.size} weights, want {want}: only data ranks "
                "hold the same weights."
            )
        return ""

    def bytes_fault(self, trace: ranks.Trace) -> str:
        """What is wrong with the bytes of a step; "" if nothing."""
        d, others = self.mesh.data, self.mesh.size
        want = 2 * (d - 1) * self.size * 8 * (others // d)
        room = 16 * 4 * others  # a norm's few numbers
        if want <= trace.bytes <= want + room:
            return ""
        return (
            f"The ranks of a mesh {self.mesh} send {trace.bytes:,} bytes in a step; {want:,} are "
            "due for a reduce-scatter and an all-gather over data ranks, and a few for the norm."
        )
