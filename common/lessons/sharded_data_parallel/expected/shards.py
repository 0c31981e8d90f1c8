"""What lab 13's checks compare with: one device in float64, which holds everything."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from common.lessons.sharded_data_parallel import fsdp_units
from common.training.adam import ADAM
from common.training.replicas import Shard, digit_shards, text_shards
from nogpu import ranks

Mistakes = dict[str, Any]
Events = Sequence[tuple[str, int]]
Outputs = Sequence[Sequence[Tensor]]  # by unit and microbatch


def cut(flat: Tensor, p: int) -> list[Tensor]:
    """The p shards of a vector, the last ones filled up with zeros."""
    size = -(-len(flat) // p)
    whole = torch.cat([flat, flat.new_zeros(p * size - len(flat))])
    return [part.clone() for part in whole.split(size)] if size else [flat.clone()] * p


def joined(shards: Sequence[Tensor], size: int) -> Tensor:
    """The vector of this size that shards are of."""
    return torch.cat(list(shards))[:size]


def shard_mistakes(flat: Tensor, rank: int, p: int) -> Mistakes:
    """What mistakes give for this rank's shard."""
    n, size = len(flat), -(-len(flat) // p)
    down, rest = n // p, flat[rank * size : (rank + 1) * size].clone()
    filled = torch.full((size,), float(flat[-1]) if n else 0.0, dtype=flat.dtype)
    filled[: len(rest)] = rest
    before = flat[(rank - 1) * size : rank * size]
    return {
        "Every rank needs a shard of the same length: fill up with zeros.": rest,
        "With n // p numbers per rank, the last ones belong to nobody.": flat[rank * down :][:down],
        "The padding repeats the last number; it must be zero.": filled,
        "These numbers are dealt out like cards, but a shard is contiguous.": cut(
            torch.cat([flat[r::p] for r in range(p)]), p
        )[rank]
        if n % p == 0
        else flat[rank::p].clone(),
        "This is the next rank's shard.": cut(flat, p)[(rank + 1) % p],
        "This is the shard of the rank before.": nn.functional.pad(before, (0, size - len(before))),
    }


def adam(
    weights: Tensor, gradient: Tensor, m: Tensor, v: Tensor, step: int
) -> tuple[Tensor, Tensor, Tensor]:
    """(weights, m, v) after one step, all new."""
    first, second = ADAM["first"], ADAM["second"]
    m, v = first * m + (1 - first) * gradient, second * v + (1 - second) * gradient**2
    mean, square = m / (1 - first**step), v / (1 - second**step)
    return weights - ADAM["rate"] * mean / (square.sqrt() + ADAM["eps"]), m, v


class AdamRun:
    """One device that steps with Adam, beside p ranks whose state it may change between steps."""

    def __init__(self, rng: np.random.Generator, n: int, p: int) -> None:
        self.rng, self.n, self.p = rng, n, p
        self.weights, self.m, self.v = torch.tensor(rng.normal(size=n)), *torch.zeros(2, n)
        self.states: list[dict[str, Tensor]] = [{} for _ in range(p)]
        self.one = 8 * (p - 1) * p * -(-n // p)  # bytes of one collective

    def step(self, step: int) -> tuple[list[Any], Tensor, list[Mistakes]]:
        """(arguments of each rank, the weights after the step, by rank what mistakes give).

        Afterwards m and v are drawn anew: a rank that kept them elsewhere steps with others.
        """
        p, given = self.p, self.weights
        parts = torch.tensor(self.rng.normal(1, 1, (p, self.n)))
        arguments = [given.clone(), ranks.each(list(parts.clone())), ranks.each(self.states), step]
        wrong = [adam_mistakes(given, list(parts), self.m, self.v, step, r) for r in range(p)]
        self.weights, m, v = adam(given, parts.sum(0), self.m, self.v, step)
        self.m, self.v = (t * torch.tensor(self.rng.uniform(0.3, 3, self.n)) for t in (m, v))
        both = zip(cut(self.m, p), cut(self.v, p), strict=True)
        self.states = [{"m": own_m, "v": own_v} for own_m, own_v in both]
        return arguments, self.weights, wrong

    def state_fault(self, states: Sequence[Any]) -> str:
        """What is wrong with the states that the ranks came back with; "" if nothing is."""
        return next(filter(None, (state_fault(state, self.n, self.p) for state in states)), "")

    def bytes_fault(self, trace: ranks.Trace) -> str:
        """What is wrong with the bytes of a step; "" if nothing is."""
        return bytes_fault(trace.bytes, 2 * self.one, self.one)


def adam_mistakes(
    weights: Tensor, gradients: Sequence[Tensor], m: Tensor, v: Tensor, step: int, rank: int
) -> Mistakes:
    """What mistakes give for the weights after the step, on this rank."""
    p = len(gradients)
    total = torch.stack(list(gradients)).sum(0)
    size = -(-len(weights) // p)
    own = weights.clone()
    own[rank * size : (rank + 1) * size] = adam(weights, total, m, v, step)[0][
        rank * size : (rank + 1) * size
    ]
    means = "The sum of the gradients is wanted: each loss is a share already, so this is no mean."
    return {
        means: adam(weights, total / p, m, v, step)[0],
        "Each rank used its own gradient: sum over ranks first.": torch.cat(
            [
                cut(adam(weights, gradient, m, v, step)[0], p)[owner]
                for owner, gradient in enumerate(gradients)
            ]
        )[: len(weights)],
        "Only this rank's shard is new: gather the other ranks' shards.": own,
        "The weights are still the old ones.": weights.clone(),
        "These are the summed gradients: gather the new weights.": total,
        "m and v begin anew in each step: keep them in `state`.": (
            adam(weights, total, 0 * m, 0 * v, step)[0]
        ),
        "Adam is told that each step is the first: give it `step`.": (
            adam(weights, total, m, v, 1)[0]
        ),
        "All is NaN: is `step` passed on as it is? It counts from 1.": weights * float("nan"),
        "m and v are exchanged: adam takes m first.": adam(weights, total, v, m, step)[0],
    }


def state_fault(state: Any, n: int, p: int) -> str:
    """What is wrong with the optimizer state that a rank holds after a step; "" if nothing is."""
    size = -(-n // p)
    if type(state) is not dict or not {"m", "v"} <= set(state):
        return f"state must hold m and v after the step; it is {state!r:.60}"
    count = sum(tensor.numel() for tensor in state.values() if isinstance(tensor, Tensor))
    if count >= 2 * n and p > 1:
        return (
            f"A replicated optimizer: this rank's state has {count} numbers for {n} weights. "
            f"Keep m and v of this rank's shard only, {2 * size} numbers."
        )
    if count != 2 * size:
        return f"this rank's state has {count} numbers; m and v of a shard have {2 * size}"
    memories = [tensor.untyped_storage() for tensor in state.values() if isinstance(tensor, Tensor)]
    kept = sum({memory.data_ptr(): memory.nbytes() for memory in memories}.values())
    if kept > 16 * size and p > 1:
        return (
            f"m and v are views, which keep {kept:,} bytes in memory; "
            f"m and v of a shard have {16 * size:,}"
        )
    if state["m"].data_ptr() == state["v"].data_ptr():
        return "m and v are one tensor: adam writes v over m. Make two."
    return ""


def bytes_fault(sent: int, wanted: int, unit: int) -> str:
    """What is wrong with the bytes that a step sends; "" if nothing is. unit: of one collective."""
    if sent == wanted:
        return ""
    if wanted + 0.75 * unit <= sent <= wanted + unit:  # an all-reduce may leave out the padding
        why = (
            "An all-reduce leaves the whole sum on every rank. A rank needs its shard "
            "of the sum: use a reduce-scatter."
        )
    elif sent > wanted:
        why = "More crosses than is needed."
    else:
        why = "A collective is missing." if sent else "Nothing crosses."
    return f"{why} {sent:,} bytes sent in all, want {wanted:,}".strip()


def gradients(
    kind: str, flats: Sequence[Tensor], shards: Sequence[Shard], shares: Sequence[float]
) -> list[Tensor]:
    """By unit, flat: the gradient of the sum of the shards' mean losses, times their shares.

    A tied unit's gradient is that of all its uses, in the place of its first.
    """
    return _differentiated(kind, flats, shards, shares)[1]


def _differentiated(
    kind: str, flats: Sequence[Tensor], shards: Sequence[Shard], shares: Sequence[float]
) -> tuple[float, list[Tensor]]:
    leaves = [flat.clone().requires_grad_() for flat in flats]
    functions, total = _functions(kind, leaves), torch.zeros(())
    for (inputs, targets), share in zip(shards, shares, strict=True):
        x = inputs
        for function in functions:
            x = function(x)
        total = total + share * nn.functional.cross_entropy(x.flatten(0, -2), targets.flatten())
    got = torch.autograd.grad(total, leaves, materialize_grads=True)
    return total.item(), list(got)


def _views(piece: nn.Module, flat: Tensor) -> dict[str, Tensor]:
    shapes = {name: weight.shape for name, weight in piece.named_parameters()}
    parts = flat.split([shape.numel() for shape in shapes.values()])
    named = zip(shapes.items(), parts, strict=True)
    return {name: part.view(shape) for (name, shape), part in named}


def _first_uses(pieces: Sequence[nn.Module]) -> list[int]:
    """Of each piece, the place where it is used first: a tied one is used again."""
    return [pieces.index(piece) for piece in pieces]


def _functions(kind: str, flats: Sequence[Tensor]) -> list[Callable[[Tensor], Tensor]]:
    """The units on one device, each with its weights."""
    pieces = fsdp_units.modules(kind)
    return [
        functools.partial(_computed, piece, flats[first])
        for piece, first in zip(pieces, _first_uses(pieces), strict=True)
    ]


def _computed(piece: nn.Module, flat: Tensor, x: Tensor) -> Tensor:
    return functional_call(piece, _views(piece, flat), (x,))


def applied(kind: str, flats: Sequence[Tensor], x: Tensor) -> list[Tensor]:
    """[the input of each unit, and the output] on one device."""
    values = [x]
    with torch.no_grad():
        for function in _functions(kind, flats):
            values.append(function(values[-1]))
    return values


def recomputed(kind: str, flats: Sequence[Tensor], inputs: Outputs) -> Outputs:
    """The outputs of each unit for each of its inputs, by unit and microbatch."""
    functions = _functions(kind, flats)
    with torch.no_grad():
        return [[f(x) for x in own] for f, own in zip(functions, inputs, strict=True)]


def unit_gradients(
    kind: str, flats: Sequence[Tensor], inputs: Sequence[Tensor], slope: Tensor
) -> list[Tensor]:
    """By unit, flat: the gradient from these inputs of each unit and the slope of the output."""
    pieces = fsdp_units.modules(kind)
    sums = [torch.zeros_like(flat) for flat in flats]
    for i, place in reversed(list(enumerate(_first_uses(pieces)))):
        leaf = flats[place].clone().requires_grad_()
        x = inputs[i].clone().requires_grad_()
        y = _computed(pieces[i], leaf, x)
        own, slope = torch.autograd.grad(y, [leaf, x], slope)
        sums[place] += own
    return sums


def gradient_mistakes(
    want: Sequence[Tensor], own: Sequence[Tensor], given: Sequence[Tensor], p: int, times: int
) -> Mistakes:
    """What mistakes give for shards. want, given: with what was there before. own: this rank's.

    times: how many microbatches the gradients are of.
    """

    def all_of(made: Callable[[Tensor, Tensor, Tensor], Tensor]) -> list[Tensor]:
        both = zip(want, own, given, strict=True)
        return [made(total - start, mine, start) for total, mine, start in both]

    return {
        "Means that are treated as sums: the sum over ranks is wanted, and this is 1/p of it.": (
            all_of(lambda more, _, start: start + more / p)
        ),
        "It is p times too long: each loss is a share of the whole batch's already.": all_of(
            lambda more, _, start: start + more * p
        ),
        "This is the rank's own gradient: sum it over ranks.": all_of(
            lambda _, mine, start: start + mine
        ),
        "What stood in the shard before is lost: add to it, because microbatches add up.": all_of(
            lambda more, _, start: more
        ),
        "The mean over microbatches: each slope is a share already, so add gradients up.": all_of(
            lambda more, _, start: start + more / times
        ),
        "Only the last unit's gradient arrives. A function that is defined in a loop uses the "
        "loop's last values when it is called: let another function make it.": [
            *given[:-1],
            want[-1],
        ],
        "It is added twice.": all_of(lambda more, _, start: start + 2 * more),
        "Nothing is added: the gradient's shard is as it was.": list(given),
    }


def firsts(kind: str) -> list[int]:
    """The numbers of the units, without further uses of a tied one."""
    return [i for i, first in enumerate(_first_uses(fsdp_units.modules(kind))) if i == first]


class Gradients:
    """What each rank's gradient shards are before and after, and what mistakes give.

    whole: by rank and unit, the rank's own gradient. All lists are by rank, and of distinct units.
    times: how many microbatches each call adds.
    """

    def __init__(
        self,
        rng: np.random.Generator,
        whole: Sequence[Sequence[Tensor]],
        numbers: Sequence[int],
        times: int = 1,
    ) -> None:
        p = len(whole)
        totals = [torch.stack([own[i] for own in whole]).sum(0) for i in numbers]
        zeros = [[torch.zeros_like(part) for part in cut(total, p)] for total in totals]
        more = [cut(total, p) for total in totals]
        self.given = [
            [torch.tensor(rng.normal(size=len(parts[rank]))) for parts in zeros]
            for rank in range(p)
        ]
        self.want = [
            [start + parts[rank] for start, parts in zip(self.given[rank], more, strict=True)]
            for rank in range(p)
        ]
        own = [[cut(whole[rank][i], p)[rank] for i in numbers] for rank in range(p)]
        self.mistakes = [
            gradient_mistakes(self.want[rank], own[rank], self.given[rank], p, times)
            for rank in range(p)
        ]
        self.bytes = 8 * (p - 1) * sum(p * len(part) for part in self.want[0])

    def copies(self) -> ranks.Each:
        """What stands in the shards before, as an argument of ranks.run."""
        return ranks.each([[shard.clone() for shard in own] for own in self.given])


def one_unit(
    rng: np.random.Generator, p: int, size: int
) -> tuple[Tensor, Gradients, list[ranks.Each]]:
    """(weights (p, size) of a unit, its Gradients; shards, gradients and given, each by rank)."""
    shards, whole = (torch.tensor(rng.normal(size=(p, n))) for n in (size, p * size))
    made = Gradients(rng, [[gradient] for gradient in whole], [0])
    both = [ranks.each(list(each.clone())) for each in (shards, whole)]
    return shards, made, [*both, made.copies()]


def backward_gradients(
    rng: np.random.Generator, kind: str, batches: Sequence[Shard], p: int
) -> tuple[Any, ...]:
    """(Gradients, weights, batches by rank, rows of all, what is given) of p ranks.

    Rank r has every p-th batch, from the r-th on.
    """
    total = sum(len(inputs) for inputs, _ in batches)
    flats = fsdp_units.weights_of(kind, int(rng.integers(1000)))
    own = [list(batches[rank::p]) for rank in range(p)]
    shares = [[len(inputs) / total for inputs, _ in mine] for mine in own]
    both = list(zip(own, shares, strict=True))
    made = Gradients(rng, [gradients(kind, flats, *each) for each in both], firsts(kind))
    kept = [[share * (len(mine) - j) for j, share in enumerate(mine)] for mine in shares]
    again = [gradients(kind, flats, *each) for each in zip(own, kept, strict=True)]
    totals = [torch.stack([mine[i] for mine in again]).sum(0) for i in firsts(kind)]
    says = "An earlier microbatch counts again: its gradients were still there. Set w.grad to None."
    for rank, (wrong, given) in enumerate(zip(made.mistakes, made.given, strict=True)):
        more = [cut(total, p)[rank] for total in totals]
        wrong[says] = [start + own for start, own in zip(given, more, strict=True)]
    return made, flats, ranks.each(own), total, made.copies()


def forward_case(
    kind: str, flats: Sequence[Tensor], xs: Sequence[Sequence[Tensor]]
) -> tuple[ranks.Each, list[Any], list[Outputs]]:
    """(shards, [outputs, inputs of each unit], outputs of each unit) by rank.

    xs: by rank and microbatch.
    """
    want, outputs = [], []
    for own in xs:
        values = [applied(kind, flats, x) for x in own]
        *inputs, last = [list(of_all) for of_all in zip(*values, strict=True)]
        want.append([last, inputs])
        outputs.append([*inputs[1:], last])
    return by_rank(flats, len(xs)), want, outputs


def kept_otherwise(outputs: list[Tensor], inputs: list[list[Tensor]]) -> Mistakes:
    """What mistakes give for (outputs, inputs) of forward_units."""
    return {
        "The outputs stand where inputs belong: xs[j] = unit(x) writes into the list that was "
        "kept. Make a new list for each unit.": [outputs, [outputs for _ in inputs]],
        "These are the outputs of each unit: keep its inputs.": [outputs, [*inputs[1:], outputs]],
        "The last outputs are no unit's input.": [outputs, [*inputs, outputs]],
        "inputs is by unit and then by microbatch; here it is the other way round.": [
            outputs,
            [list(own) for own in zip(*inputs, strict=True)],
        ],
    }


def by_rank(flats: Sequence[Tensor], p: int) -> ranks.Each:
    """The shards of all vectors, as an argument of ranks.run."""
    parts = [cut(flat, p) for flat in flats]
    return ranks.each([[own[rank] for own in parts] for rank in range(p)])


def backward_case(
    rng: np.random.Generator, kind: str, xs: Sequence[Sequence[Tensor]]
) -> tuple[list[ranks.Each], Gradients, list[Outputs]]:
    """(shards, inputs, slopes and given of each rank; the Gradients; each rank's unit outputs).

    The weights are others than those that the inputs of the units were computed with, so that what
    somebody kept in forward is of no use.
    """
    p, old, new = len(xs), *(fsdp_units.weights_of(kind, int(rng.integers(1000))) for _ in range(2))
    _, want, _ = forward_case(kind, old, xs)
    inputs = [own for _, own in want]
    slopes = [[torch.tensor(rng.normal(size=y.shape)) for y in ys] for ys, _ in want]
    whole = []
    for own, backs in zip(inputs, slopes, strict=True):
        parts = [
            unit_gradients(kind, new, [by_unit[j] for by_unit in own], slope)
            for j, slope in enumerate(backs)
        ]
        whole.append([torch.stack(list(all_of)).sum(0) for all_of in zip(*parts, strict=True)])
    made = Gradients(rng, whole, firsts(kind), times=len(xs[0]))
    outputs = [recomputed(kind, new, own) for own in inputs]
    return [by_rank(new, p), ranks.each(inputs), ranks.each(slopes), made.copies()], made, outputs


class Norms:
    """Shards with junk in their padding, and what clipping them gives, by rank."""

    def __init__(self, rng: np.random.Generator, sizes: Sequence[int], p: int, most: float) -> None:
        self.sizes, self.most = sizes, most
        drawn, norm = [torch.tensor(rng.normal(size=size)) for size in sizes], rng.uniform(4, 5)
        self.flats = [flat * (norm / torch.cat(drawn).norm()) for flat in drawn]
        self.shards = [[cut(flat, p)[rank] for flat in self.flats] for rank in range(p)]
        for rank, own in enumerate(self.shards):
            for shard, size in zip(own, sizes, strict=True):
                junk = float("nan") if p == 2 else float(rng.uniform(5, 9))
                shard[max(0, size - rank * len(shard)) :] = junk
        self.norm = torch.cat(self.flats).norm().item()
        self.want = [flat * min(1.0, most / self.norm) for flat in self.flats]
        after = {"This is the norm after the scaling; return the one before.": min(most, self.norm)}
        self.mistakes = [after | norm_mistakes(self.shards, sizes, rank) for rank in range(p)]
        self.scaled = {
            "It is scaled even though its norm is small enough.": [
                flat * most / self.norm for flat in self.flats
            ],
            "It is not scaled.": self.flats,
            "The factor is upside down: it is most / norm.": [
                flat * self.norm / most for flat in self.flats
            ],
            "The norm is 1 now: the factor is most / norm.": [
                flat / self.norm for flat in self.flats
            ],
            "Each number is clipped by itself: scale all of them by one factor.": [
                flat.clamp(-most, most) for flat in self.flats
            ],
            "PyTorch adds 1e-6 to the norm; here the factor is most / norm.": [
                flat * min(1.0, most / (self.norm + 1e-6)) for flat in self.flats
            ],
        }

    def copies(self) -> ranks.Each:
        """The shards, as an argument of ranks.run."""
        return ranks.each([[shard.clone() for shard in own] for own in self.shards])

    def joined(self, shards: Sequence[Sequence[Tensor]]) -> list[Tensor]:
        """The vectors that these shards, by rank, are of."""
        return [joined([own[i] for own in shards], size) for i, size in enumerate(self.sizes)]


def norm_mistakes(shards: Sequence[Sequence[Tensor]], sizes: Sequence[int], rank: int) -> Mistakes:
    """What mistakes give for the norm. shards: by rank and unit, with junk in the padding."""
    p = len(shards)
    real = [joined([own[i] for own in shards], size) for i, size in enumerate(sizes)]
    norms = [torch.cat([cut(flat, p)[r] for flat in real]).norm().item() for r in range(p)]
    leaked = torch.cat([torch.cat(list(own)) for own in shards]).norm().item()
    below = [
        shard[: size - r * len(shard)]  # a stop below 0 counts from the end
        for r, own in enumerate(shards)
        for shard, size in zip(own, sizes, strict=True)
    ]
    return {
        "The padding leaks into the norm: count real numbers only.": leaked,
        "n - rank * size may be below 0, and [:-1] leaves out the last number only.": (
            torch.cat(below).norm().item()
        ),
        "This is the norm of this rank's shard alone: all-reduce the sum of squares.": norms[rank],
        "Norms don't add up: add the squares over ranks, then take the root.": sum(norms),
        "The root is missing.": sum(norm**2 for norm in norms),
        "A mean over ranks: add the squares up.": (sum(norm**2 for norm in norms) / p) ** 0.5,
        "The norms of the units don't add up: add their squares.": sum(
            flat.norm().item() for flat in real
        ),
        "This is the last unit's norm alone: add up the squares of all units.": (
            real[-1].norm().item()
        ),
    }


def text(events: Events) -> str:
    """The events in words."""
    words = {"reduce": "reduce-scatter"}
    return ", ".join(f"{words.get(kind, kind)} {number}" for kind, number in events)


def events_fault(trace: ranks.Trace, kind: str, backward: bool, outputs: Sequence[Outputs]) -> str:
    """What is wrong with what a rank gathered before it computed; "" if nothing is.

    outputs: by rank, what each unit gives per microbatch. The units of a tied model can't be told
    from each other.
    """
    if kind == "tied":
        return ""
    sizes = fsdp_units.sizes_of(kind)
    order = range(len(sizes))[:: -1 if backward else 1]
    for rank, wanted in enumerate(outputs):
        events = fsdp_units.events(trace, rank, sizes)
        found = (
            _gathers_fault(events, order)
            or _ahead_fault(events, order)
            or _computes_fault(events, order, wanted)
            or (_reduces_fault(events, order) if backward else "")
            or _marks_fault(trace, rank, wanted)
        )
        if found:
            return f"{found}\n  your rank {rank}: {text(events)}"
    return _sent_fault(trace, sizes, backward)


def _computes_fault(events: Events, order: Sequence[int], wanted: Outputs) -> str:
    computed = [number for kind, number in events if kind == "compute"]
    if computed != [number for number in order for _ in wanted[number]]:
        return "The units compute in another order, or in another number, than wanted."
    return ""


def _marks_fault(trace: ranks.Trace, rank: int, wanted: Outputs) -> str:
    """Whether the digests in the marks are those of the outputs."""
    marks = [call.values for call in trace.calls(rank) if call.name == "broadcast" and call.group]
    for number, own in enumerate(wanted):
        digests = sorted(tuple(mark[1:]) for mark in marks if mark and mark[0] == number)
        if not np.allclose(digests, sorted(map(fsdp_units.digest, own))):
            return f"A mark of unit {number} does not fit its output: only unit(x) leaves marks."
    return ""


def _sent_fault(trace: ranks.Trace, sizes: Sequence[int], backward: bool) -> str:
    """Whether more crosses the network than each unit's gather, and in backward its sum."""
    p = trace.world_size
    want = (p - 1) * sum(8 * fsdp_units.padded(size, p) for size in sizes)
    once = "gather each unit once"
    if backward:
        want, once = 2 * want, f"{once}, and reduce-scatter its gradient once"
    return "" if trace.bytes == want else f"The ranks send {trace.bytes} bytes, not {want}: {once}."


def _gathers_fault(events: Events, order: Sequence[int]) -> str:
    gathered = [number for kind, number in events if kind == "gather"]
    if not gathered:
        return "Nothing is gathered: weights that were kept are not those of the shards."
    twice = [number for number in order if gathered.count(number) > 1]
    if twice:
        return (
            f"Unit {twice[0]} is gathered {gathered.count(twice[0])} times in one pass: "
            "gather once, for all microbatches."
        )
    if sorted(gathered) != sorted(order):
        return f"Units {sorted(gathered)} are gathered, want {sorted(order)}, each once."
    return ""


def _ahead_fault(events: Events, order: Sequence[int]) -> str:
    """Whether, when a unit computes, it and the next one are gathered, and no other beyond."""
    gathered: list[int] = []
    for kind, number in events:
        if kind == "gather":
            gathered.append(number)
        if kind != "compute" or number not in order:
            continue
        place = order.index(number)
        beyond = [other for other in gathered if order.index(other) > place]
        if len(beyond) == len(order) - 1 - place and len(beyond) > 1:
            return f"Everything is gathered at once: before unit {number} computes, all are there."
        if len(beyond) > 1:
            return (
                f"Prefetch of more than one unit: when unit {number} computes, "
                f"{len(beyond)} others are gathered ahead."
            )
        if not beyond and place < len(order) - 1:
            return (
                f"No prefetch: start to gather unit {order[place + 1]} before "
                f"unit {number} computes."
            )
        if beyond and beyond[0] != order[place + 1]:
            return f"Unit {beyond[0]} is gathered ahead, but unit {order[place + 1]} comes next."
    return ""


def _reduces_fault(events: Events, order: Sequence[int]) -> str:
    reduced = [number for kind, number in events if kind == "reduce"]
    if sorted(reduced) != sorted(order):
        return f"The gradients of units {reduced} are reduce-scattered, want {list(order)}."
    for number in order:
        last = max(i for i, event in enumerate(events) if event == ("compute", number))
        after = [event for event in events[last:] if event[0] == "compute"]
        place = events.index(("reduce", number))
        if place > last and len([e for e in events[last + 1 : place] if e[0] == "compute"]) > 2:
            return (
                f"The whole gradient of unit {number} is kept while {len(after) - 1} other units "
                "compute: reduce-scatter it at once."
            )
    return ""


def drawn_steps(rng: np.random.Generator, kind: str, p: int) -> list[list[Shard]]:
    """Three batches, by rank, of what a model of this kind reads."""
    shards = text_shards if kind == "characters" else digit_shards
    return [shards(rng, rng.integers(2, 6, p).tolist()) for _ in range(3)]


def trained(
    kind: str,
    flats: Sequence[Tensor],
    batches: Sequence[Sequence[Shard]],
    most: float,
) -> tuple[list[float], list[float], list[Tensor]]:
    """(losses, norms before clipping, weights) of one device that sees all shards of each batch."""
    flats = [flat.clone() for flat in flats]
    moments = [(torch.zeros_like(flat), torch.zeros_like(flat)) for flat in flats]
    losses, norms = [], []
    for step, shards in enumerate(batches, 1):
        rows = [len(inputs) for inputs, _ in shards]
        loss, got = _differentiated(kind, flats, shards, [n / sum(rows) for n in rows])
        norm = torch.cat(got).norm().item()
        scale = min(1.0, most / norm)
        new = [
            adam(flat, gradient * scale, *own, step)
            for flat, gradient, own in zip(flats, got, moments, strict=True)
        ]
        flats, moments = [w for w, _, _ in new], [(m, v) for _, m, v in new]
        losses.append(loss)
        norms.append(norm)
    return losses, norms, [flats[i] for i in firsts(kind)]


def unit_fault(trace: ranks.Trace, unit: int) -> str:
    """What is wrong with the bytes of a unit's gather and sum, or with when they are waited for."""
    return bytes_fault(trace.bytes, 2 * unit, unit) or waits_fault(trace)


WAITS = (
    "gather_parameters waits: return the handle at once, and the caller waits.",
    "reduce_scatter_gradients waits: only the function it returns may.",
)


def waits_fault(trace: ranks.Trace) -> str:
    """What is wrong with a run in which a mark follows each of two collectives that take time.

    The network knows when each message is there, and a rank that has waited for one can't post
    anything earlier. So a mark before the end of a collective proves that nobody waited for it.
    """
    if trace.world_size == 1:
        return ""  # nothing takes time
    for rank in range(trace.world_size):
        calls = [call for call in trace.calls(rank) if call.name != "barrier"]
        marks = [call for call in calls if call.name == "broadcast"]
        started = [call for call in calls if call.name != "broadcast"]
        if [mark.values for mark in marks] != [[0], [1]] or len(started) != len(marks):
            return "gather_parameters and reduce_scatter_gradients start one collective each."
        for call, mark, says in zip(started, marks, WAITS, strict=True):
            if mark.start_s >= call.end_s:
                return says
    return ""


def changed_fault(after: Sequence[Any], gradient: Tensor, shard: Tensor) -> str:
    """What hybrid_shard or hybrid_norm has changed of what it was given; "" if nothing."""
    if not torch.equal(after[0], gradient):
        return "hybrid_shard changes the gradient, which must stay as it is: sum a copy."
    if not torch.equal(after[1], shard):
        return "hybrid_norm changes the shard that it was given."
    return ""


def pieces(size: int, p: int, rank: int, q: int) -> list[tuple[int, int, int]]:
    """[(old rank, start, stop)]: what new rank of q reads of the shards of p old ranks."""
    old, new = -(-size // p), -(-size // q)
    places = [(i // old, i % old) for i in range(rank * new, min(size, (rank + 1) * new))]
    found: list[tuple[int, int, int]] = []
    for owner, place in places:
        if found and found[-1][0] == owner:
            found[-1] = (owner, found[-1][1], place + 1)
        else:
            found.append((owner, place, place + 1))
    return found


def seconds(
    weights: float,
    tokens: float,
    p: int,
    flops_per_s: float,
    bytes_per_s: float,
    itemsize: int = 2,
    flops: float = 6,
) -> tuple[float, float]:
    """(compute, communication) of a step, counted piece by piece."""
    sent = sum((p - 1) * (weights * itemsize / p) for _ in ("gather", "gather", "reduce"))
    return tokens / p * flops * weights / flops_per_s, sent / bytes_per_s


def seconds_mistakes(wanted: Sequence[float], p: int) -> Mapping[str, Any]:
    """What mistakes give for (compute, communication)."""
    compute, communication = wanted
    return {
        "Each rank computes its part of the tokens only: divide by the number of ranks.": (
            compute * p,
            communication,
        ),
        "Each rank sends (p − 1)/p of the weights, not all of them.": (
            compute,
            communication * p / (p - 1),
        ),
        "FSDP has three collectives in a step: two gathers and a reduce-scatter.": (
            compute,
            communication * 2 / 3,
        ),
        "Backward takes twice the FLOPs of forward: 6 per weight and token in all.": (
            compute / 3,
            communication,
        ),
        "The wire does not become faster with more ranks: don't divide by p.": (
            compute,
            communication / p,
        ),
        "A rank sends (p − 1)/p of the weights: this is p times as much.": (
            compute,
            communication * p,
        ),
        "FSDP has no all-reduce: each weight is gathered twice, and its gradient scattered once.": (
            compute,
            communication * 4 / 3,
        ),
        "The order is (compute, communication).": (communication, compute),
    }


def tokens_mistakes(wanted: float, p: int) -> Mistakes:
    """What mistakes give for the tokens per rank from which compute hides the communication."""
    return {
        "Per rank, please: this is for all ranks.": p * wanted,
        "It is the other way round.": 1 / wanted,
        "Each rank sends (p − 1)/p of the weights, not all of them.": wanted * p / (p - 1),
        "FSDP has three collectives in a step: two gathers and a reduce-scatter.": wanted * 2 / 3,
    }


def hybrid(
    gradients: Sequence[Tensor], rank: int, nodes: int, per_node: int
) -> tuple[Tensor, float, Mistakes, Mistakes]:
    """(the shard, the norm, what mistakes give for each) of a mesh of nodes."""
    total = torch.stack(list(gradients)).sum(0)
    node, place = divmod(rank, per_node)
    inside = torch.stack(list(gradients[node * per_node : (node + 1) * per_node])).sum(0)
    across = torch.stack(list(gradients[place::per_node])).sum(0)
    want, norm = cut(total, per_node)[place], total.norm().item()
    shards = {
        "This is the sum over this node only: all-reduce the shard across nodes.": cut(
            inside, per_node
        )[place],
        "This is the sum over the same place in each node: reduce-scatter within the node, too.": (
            cut(across, per_node)[place]
        ),
        "The sum is wanted, not the mean over nodes.": want / nodes,
        "The sum is wanted, not the mean over a node's ranks.": want / per_node,
        "The sum is wanted, not the mean over all ranks.": want / len(gradients),
        "This adds different shards: give the all-reduce across nodes its group.": (
            torch.stack(cut(total, per_node)).sum(0)
        ),
        "The groups are exchanged: cut within a node, and sum shards across nodes.": (
            cut(total, nodes)[node]
        ),
        "The shard is counted once per node: each gradient once.": want * nodes,
    }
    norms = {
        "Each node holds the whole gradient: a sum over all ranks counts it once per node.": norm
        * nodes**0.5,
        "This is the norm of this rank's shard alone.": want.norm().item(),
        "The root is missing.": norm**2,
        "Norms don't add up: add the squares of the shards, then take the root.": sum(
            part.norm().item() for part in cut(total, per_node)
        ),
        "Sum over the shards of a node; ranks across nodes hold the same shard.": want.norm().item()
        * nodes**0.5,
    }
    return want, norm, shards, norms


def gradients_fault(trace: ranks.Trace, hooks: int) -> str:
    """What is wrong with what ranks held while 8 weights of 4 MiB got gradients; "" if nothing is.

    trace: of steps on two ranks, each with new shards. hooks: that are left, by a rank's own word.
    """
    held = held_fault(trace, 8 + 4, 8)
    if not held:
        return ""
    if hooks:
        return (
            f"{held} A hook is still there after the step: each step would add one more, and it "
            "keeps the shards of its step. Remove the hooks."
        )
    return (
        f"Gradients are kept whole. {held} Drop each unit's gradients once they are on the wire: "
        "w.grad = None."
    )


def release_fault(trace: ranks.Trace) -> str:
    """What is wrong with what ranks held that released 8 units of 4 MiB; "" if nothing is."""
    held = held_fault(trace, 8, 5.5)
    return held and f"release: the memory of unit.full must have 0 bytes afterwards. {held}"


def units_fault(trace: ranks.Trace, graph: bool, left: Sequence[int]) -> str:
    """What is wrong with what ranks held while 10 units of 4 MiB trained; "" if nothing is.

    graph: whether forward left one. left: units that are still gathered. Both are by the rank's own
    word, and decide only what the message says.
    """
    held = held_fault(trace, 10, 8.5)
    if not held:
        return ""
    if graph:
        return f"{KEPT} {held}"
    if left:
        return f"Weights are never released: units {left} are still gathered afterwards. {held}"
    return f"Weights or whole gradients are kept longer than needed. {held}"


def held_fault(trace: ranks.Trace, shards: float, others: float) -> str:
    """Whether a rank of two held more, at any of its calls, than shards and others; "" if not.

    Both in units of TABLE_BYTES. shards: what it has to hold. others: the units, gradients and
    messages of a moment, which differ between honest styles, and in a grader some megabytes that
    its process took for itself.
    """
    most, unit = max(map(max, trace.held_bytes)), fsdp_units.TABLE_BYTES
    if most <= (shards + others) * unit:
        return ""
    return (
        f"A rank holds {most / 1e6:.0f} MB at once: {shards * unit / 1e6:.0f} MB have to stay, "
        f"and {others * unit / 1e6:.0f} MB are enough for all else."
    )


KEPT = (
    "Gathered weights are kept by autograd: forward leaves a graph, which holds them. "
    "Compute under torch.no_grad()."
)


def piece_mistakes(n: int, p: int, rank: int, q: int) -> Mistakes:
    """What mistakes give for the pieces that a new rank reads."""
    old, new = -(-n // p), -(-n // q)
    if not old:
        return {}
    start, end = rank * new, (rank + 1) * new
    padded = [
        (owner, max(0, start - owner * old), min(old, end - owner * old))
        for owner in range(p)
        if max(start, owner * old) < min(end, (owner + 1) * old)
    ]
    wanted = pieces(n, p, rank, q)
    return {
        "The padding is read, too: stop at n.": padded,
        "Whole shards are read: read what this rank needs.": [
            (owner, 0, min(old, n - owner * old)) for owner, _, _ in wanted
        ],
        "start and stop count from the beginning of the old rank's shard.": [
            (owner, owner * old + a, owner * old + b) for owner, a, b in wanted
        ],
        "It is (start, stop), not (start, length).": [(owner, a, b - a) for owner, a, b in wanted],
        "stop is the place after the last number.": [(owner, a, b - 1) for owner, a, b in wanted],
    }


def batches(steps: Sequence[Sequence[Shard]]) -> list[list[tuple[Tensor, Tensor, int]]]:
    """By rank and step: (inputs, targets, rows of all ranks). steps: by step and rank."""
    totals = [sum(len(inputs) for inputs, _ in own) for own in steps]
    by_step = list(zip(steps, totals, strict=True))
    return [[(*own[rank], total) for own, total in by_step] for rank in range(len(steps[0]))]


def whole(shards: Sequence[Sequence[Tensor]], like: Sequence[Tensor]) -> list[Tensor]:
    """The vectors that shards, by rank, are of. like: vectors of the same sizes."""
    return [joined([own[i] for own in shards], len(flat)) for i, flat in enumerate(like)]


def crossing_fault(trace: ranks.Trace, nodes: int, per_node: int, n: int) -> str:
    """What is wrong with the bytes between nodes, for a gradient of n numbers; "" if nothing is."""
    crossed, want = trace.bytes_between_nodes(per_node), 16 * (nodes - 1) * n
    numbers = 8 * nodes * (nodes * per_node - 1)  # for the norm, each rank's square may go to all
    if 0 <= crossed - want <= numbers:
        return ""
    return (
        f"{crossed} bytes cross between nodes, and {want} are enough: sum within the node first, "
        "then send shards only."
    )
