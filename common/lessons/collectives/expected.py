"""Lab 11: cases, what each rank should hold, what it may cost, and what mistakes leave."""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from common.checks import SHORT, expect, near_miss
from nogpu import ranks

Vectors = list[torch.Tensor]  # by rank
Mistakes = dict[str, Any]
Draw = Callable[[], object]

# (ranks, elements): one rank, no element, fewer elements than ranks, lengths on both sides of a
# multiple of p, and a number of ranks just above a power of two, which takes a round more.
CASES = [(1, 3), (2, 5), (2, 0), (3, 7), (3, 6), (3, 1), (4, 11), (4, 2), (5, 13), (6, 0), (9, 24)]
WHOLE = (3, 6)  # the case of int64, which an answer fails that writes a dtype down
TREE_RANKS = (*range(1, 10), 13, 21, 32)
MESSAGES = ("send", "recv", "isend", "irecv", "batch_isend_irecv")
RINGS = {"ring_reduce_scatter": 1, "ring_all_gather": 1, "ring_all_reduce": 2}  # times round
TREES = {"tree_broadcast": 1, "tree_reduce": 1, "tree_all_reduce": 2}
TORCH = {"reduce_scatter": 1, "all_gather": 1, "all_to_all": 1, "all_reduce": 2}


def vectors(rng: np.random.Generator, p: int, n: int, whole: bool = False) -> Vectors:
    """A vector per rank, of multiples of 2⁻¹⁶: exact sums in float64, and not in float32.

    whole: of int64, which has as many bytes.
    """
    numbers = rng.integers(-9999 * 2**16, 9999 * 2**16, (p, n))
    if whole:
        return list(torch.tensor(numbers))
    return [torch.tensor(row / 2**16, dtype=torch.float64) for row in numbers]


def cases(rng: np.random.Generator) -> Iterator[tuple[int, int, int, Vectors]]:
    """(ranks, elements, a root, a vector for each rank) of each case."""
    return (
        (p, n, int(rng.integers(p)), vectors(rng, p, n, whole=(p, n) == WHOLE)) for p, n in CASES
    )


def run(
    function: Callable[..., Any],
    rng: np.random.Generator,
    *args: Any,
    p: int,
    only: Sequence[str] = MESSAGES,
    beta: Any = 1 / 8,
) -> ranks.Result:
    """A run on p simulated ranks whose dist has nothing but `only`; time counts float64 numbers."""
    seed = int(rng.integers(10**6))
    options: dict[str, Any] = {"alpha_s": 0.0, "beta_s_per_byte": beta, "live_bytes": False}
    try:
        return ranks.run(function, *args, world_size=p, only=only, seed=seed, **options)
    except ValueError as error:
        if p > 1 or "this rank itself" not in str(error):
            raise
        message = f"{function.__name__} on 1 rank sends to itself ({error})."
        raise AssertionError(f"One rank alone takes no round: p - 1 is 0.\n{message}") from None


def drawn(result: ranks.Result, given: Vectors, want: Sequence[Any], case: str) -> Draw:
    """What draws a run: what each round brought, what ranks returned, and what was wanted."""
    title = case.rstrip(",")
    return lambda: result.trace.draw_chunks(given, result.returns, want, title=title)


def assert_cost(
    case: str,
    trace: ranks.Trace,
    *,
    rounds: int,
    elements: int,
    least: int | None = None,
    most: float = math.inf,
    links: float = math.inf,
    draw: Draw | None = None,
) -> None:
    """Raise for more rounds, other elements in all, or more from one rank, or over more links.

    elements, least, most: of float64. least: in all; by default elements, no fewer and no more.
    """
    sent = [count // 8 for count in trace.bytes_sent]
    total, used = sum(sent), {(message.src, message.dst) for message in trace.messages}
    came = f"{total} elements sent, want {elements}"
    least = elements if least is None else least
    for holds, says in (
        (
            total <= elements,
            f"{came}: some were not needed, were sent a second time, or were padding.",
        ),
        (
            trace.rounds <= rounds,
            f"{trace.rounds} rounds, want {rounds}: some messages wait for others in vain.",
        ),
        (total >= least, f"{came}: what a rank holds must have come in the vector's own dtype."),
        (
            max(sent) <= most,
            f"one rank sent {max(sent)} elements, want {most} at most: cut evenly.",
        ),
        (
            len(used) <= links,
            f"messages go over {len(used)} links, want {links} at most: "
            "each rank sends to one neighbour only.",
        ),
    ):
        expect(holds, f"{case.rstrip(',')}: {says}", draw=draw)


def lost(got: Any, want: Sequence[torch.Tensor]) -> Mistakes:
    """{sentence: got} if the numbers are nearly the ones that are wanted."""
    digits = "Digits are lost on the way: the sum keeps the dtype of x."
    return near_miss(got, want, digits)


def fractions(rng: np.random.Generator, p: int, n: int, dtype: torch.dtype) -> Vectors:
    """A vector per rank whose sums round; whole numbers if the dtype is an integer's."""
    vectors = torch.from_numpy(rng.standard_normal((p, n)))
    return list((vectors if dtype.is_floating_point else (99 * vectors).round()).to(dtype))


def all_to_all_cases(
    rng: np.random.Generator,
) -> Iterator[tuple[str, int, Vectors, Vectors, list[torch.Tensor], Mistakes]]:
    """(collective, ranks, whole vectors, what each rank brings, what it should get, mistakes)."""
    for p, n, whole in ((1, 3, 0), (2, 1, 0), (2, 4, 0), (3, 2, 0), (4, 3, 1), (5, 1, 0)):
        given = vectors(rng, p, p * n, bool(whole))
        total = torch.stack(given).sum(0)
        want = [total[r * n : (r + 1) * n] for r in range(p)]
        columns = [x.view(p, n).sum(1) if n != 1 else x for x in given]
        yield (
            "reduce_scatter",
            p,
            given,
            given,
            want,
            summed_otherwise(given)
            | {
                "Each row is one rank's chunk: add the rows.": columns,
                "Those are sums of a rank's own chunks: add the chunks that arrived.": [
                    x.view(p, n).sum(0) for x in given
                ],
                "Those are the chunks that arrived. Now add them.": [
                    torch.cat([x[r * n : (r + 1) * n] for x in given]) for r in range(p)
                ],
            },
        )
        chunks = vectors(rng, p, n, bool(whole))
        placed = [torch.zeros(p * n, dtype=chunk.dtype) for chunk in chunks]
        for rank, chunk in enumerate(chunks):
            placed[rank][rank * n : (rank + 1) * n] = chunk
        wrong = {
            "Each rank has its own chunk, p times.": [chunk.repeat(p) for chunk in chunks],
            "Each rank has its own chunk only.": chunks,
            "The chunks stand in rows. Make one vector of them.": [torch.stack(chunks)] * p,
        }
        yield "all_gather", p, placed, chunks, [torch.cat(chunks)] * p, wrong


def gathered(given: Vectors) -> torch.Tensor:
    """Chunk r of rank r's vector, for all r."""
    return torch.cat([x.tensor_split(len(given))[rank] for rank, x in enumerate(given)])


def assert_tree(messages: Any, p: int, root: int) -> None:
    """Raise unless this result of halvings(p, root) halves the ranks until each has its own."""
    cares = {root: range(p)}
    name = f"halvings({p}, {root})"
    expect(
        isinstance(messages, (list, tuple)),
        f"{name} gave {messages!r:.80}; want a list of messages.",
    )
    expect(
        len(messages) == p - 1, f"{name} has {len(messages)} messages, want {p - 1}: one per dst."
    )
    for message in messages:
        entry = tuple(message) if isinstance(message, (list, tuple)) else ()
        fits = len(entry) == 4 and all(isinstance(number, (int, np.integer)) for number in entry)
        expect(fits, f"{name} has the entry {message!r:.80}; want (src, dst, first, last).")
        src, dst, first, last = map(int, entry)
        case, given = f"{name}: ({src}, {dst}, {first}, {last})", range(first, last)
        expect(src in cares, f"{case}: rank {src} does not have it yet.")
        own = cares[src]
        rest = [rank for rank in own if rank not in given]
        at_one_end = bool(rest) and len(given) > 0 and first in own and last - 1 in own
        at_one_end = at_one_end and rest[-1] - rest[0] == len(rest) - 1
        even = at_one_end and abs(len(given) - len(rest)) <= 1
        expect(
            even,
            f"{case}: of ranks {list(own)}, rank {src} gives away one half, from one end; "
            "the halves differ by one rank at most.",
        )
        expect(
            dst in given and src in rest,
            f"{case}: dst is one of ranks first to last - 1, and src is none of them.",
        )
        cares[dst], cares[src] = given, range(rest[0], rest[-1] + 1)


def cut_otherwise(x: torch.Tensor, p: int) -> Mistakes:
    """{mistake: the p chunks that come of it}."""
    up, down = -(-len(x) // p), len(x) // p
    ends = [down * rank for rank in range(1, p)] + [len(x)]
    return {
        "x.chunk(p) cuts so. x.tensor_split(p) cuts evenly.": [
            x[up * r : up * (r + 1)] for r in range(p)
        ],
        "The remainder is not for the last rank alone.": [
            x[down * r : end] for r, end in enumerate(ends)
        ],
        "The remainder is missing.": [x[down * r : down * (r + 1)] for r in range(p)],
    }


def summed_otherwise(given: Vectors) -> Mistakes:
    """{mistake: what each rank then has after a reduce-scatter of these vectors}."""
    p, own = len(given), [x.tensor_split(len(given)) for x in given]  # own[rank][chunk]
    want = sum(given[1:], given[0]).tensor_split(p)
    return {
        "Rank r's chunk is r: start one chunk earlier.": [want[(r + 1) % p] for r in range(p)],
        "That is chunk r + 1, which lacks one rank's numbers: rank r returns chunk r.": [
            want[c] - own[c][c] for c in [*range(1, p), 0]
        ],
        "The sum is in it p times.": [p * chunk for chunk in want],
        "Nothing has been added to a rank's own numbers.": [own[r][r] for r in range(p)],
        "Only one other rank's numbers have been added.": [
            own[r][r] + own[r - 1][r] if len(own[r - 1][r]) == len(own[r][r]) else own[r][r]
            for r in range(p)
        ],
        "Its own numbers are lost: receive into a buffer, then add.": [
            own[(r + 1) % p][r] for r in range(p)
        ],
        "That is the mean.": [chunk / p for chunk in want],
    }


def broadcast_otherwise(given: Vectors) -> Mistakes:
    """{mistake: what each rank then has after a broadcast}."""
    return {
        "The root is the one that is asked for, not rank 0.": [given[0]] * len(given),
        "A rank still has its own vector.": given,
    }


def on_root(x: torch.Tensor, p: int, root: int) -> list[torch.Tensor | None]:
    """x on the root and nothing on the other ranks, by rank."""
    return [x if rank == root else None for rank in range(p)]


def reduced_otherwise(given: Vectors, root: int) -> Mistakes:
    """{mistake: what the root then has after a reduce}."""
    total = torch.stack(given).sum(0)
    return {
        "The root's own vector belongs to the sum.": total - given[root],
        "The root's own vector is in the sum twice.": total + given[root],
        **{
            f"Rank {rank}'s is missing: who passed on too early?": total - x
            for rank, x in enumerate(given)
        },
        "That is the mean.": total / len(given),
    }


def all_reduced_otherwise(given: Vectors) -> Mistakes:
    """{mistake: what each rank then has after an all-reduce of these vectors}."""
    p, total = len(given), sum(given[1:], given[0])
    return {
        "The sum is in it p times.": [p * total] * p,
        "Each rank still has its own vector.": given,
        "That is the mean. Here the sum is asked for.": [total / p] * p,
        "Only rank 0 has the sum.": [total, *given[1:]],
        "Chunk r is still rank r's own: gather the chunks of the sum, not of x.": [gathered(given)]
        * p,
    }


def same_bits(got: Vectors, case: str) -> None:
    """Raise unless all ranks have the same numbers, to the last bit."""
    for rank, x in enumerate(got[1:], 1):
        expect(
            isinstance(x, torch.Tensor) and torch.equal(x, got[0]),
            f"{case}: rank {rank}'s sum differs from rank 0's in the last bits. "
            "Add up each chunk once, and copy the result.",
        )


BY_ROOT, BY_CHUNKS = ("reduce", "broadcast"), ("reduce_scatter", "all_gather")
ALL_REDUCE_PAIRS = {BY_ROOT, BY_CHUNKS}  # which two collectives leave what all_reduce leaves


def assert_pairs(pairs: Any) -> None:
    """Raise unless these are ALL_REDUCE_PAIRS, with a message that does not give them away."""
    if pairs is Ellipsis:
        raise NotImplementedError("all_reduce_pairs is still ...: replace it with your answer")
    named = isinstance(pairs, (set, frozenset)) and all(
        isinstance(pair, tuple) and len(pair) == 2 and {*map(type, pair)} == {str} for pair in pairs
    )
    expect(
        named,
        f"all_reduce_pairs is {SHORT.repr(pairs)}; want a set of pairs of names, "
        'in the form of {("scatter", "gather")}.',
    )
    for pair in sorted(pairs - ALL_REDUCE_PAIRS):
        expect(False, f"all_reduce_pairs has the pair {pair}. {_pair_fault(*pair)}")
    expect(BY_ROOT in pairs, "all_reduce_pairs: there is one more, by way of the root.")
    expect(BY_CHUNKS in pairs, "all_reduce_pairs: there is one more, by chunks.")


def _pair_fault(first: str, second: str) -> str:
    """Why these two collectives, one after the other, do not leave what all_reduce leaves."""
    if "all_reduce" in (first, second):
        return "all_reduce itself is not among them."
    if second.startswith("reduce") and not first.startswith("reduce"):
        return "The order matters: add first."
    if first == "reduce":
        return "After reduce, only the root has the sum, and all others need all of it."
    if first == "reduce_scatter":
        return f"After reduce_scatter, each rank has its chunk of the sum: is {second} enough?"
    return f"{first} and {second} add nothing: one of the two must be a sum."


def torch_does(dist: Any, collectives: Sequence[str], n: int) -> None:
    """Calls torch.distributed's own, one after the other, for vectors of n float32; p divides n."""
    whole, other, chunk = torch.zeros(n), torch.zeros(n), torch.zeros(n // dist.get_world_size())
    calls: dict[str, Callable[[], object]] = {
        "broadcast": lambda: dist.broadcast(whole, 0),
        "reduce": lambda: dist.reduce(whole, 0),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(chunk, whole),
        "all_gather": lambda: dist.all_gather_into_tensor(whole, chunk),
        "all_reduce": lambda: dist.all_reduce(whole),
        "all_to_all": lambda: dist.all_to_all_single(other, whole),
    }
    for collective in collectives:
        calls[collective]()


def simulated(algorithm: str, p: int, n: int, alpha_s: float, beta: float) -> ranks.Trace:
    """The trace of PyTorch's own collectives for this algorithm, for vectors of n float32."""
    name = algorithm.split("_", 1)[1]
    collectives = ["reduce", "broadcast"] if algorithm == "tree_all_reduce" else [name]
    cost: dict[str, Any] = {"alpha_s": alpha_s, "beta_s_per_byte": beta, "live_bytes": False}
    return ranks.run(torch_does, collectives, n, world_size=p, **cost).trace


def timed_otherwise(trace: ranks.Trace, p: int, alpha_s: float, size_s: float) -> Mistakes:
    """{mistake: the seconds that come of it}; size_s: β times the bytes of a vector."""
    time_s, rounds, levels = trace.time_s, trace.rounds, (p - 1).bit_length()
    moved_s = time_s - rounds * alpha_s
    if p == 1:
        alone = "One rank alone takes no round: it has nothing to send"
        return {f"{alone}.": alpha_s + size_s, f"{alone}, there or back.": 2 * (alpha_s + size_s)}
    return {
        "A tree of p ranks has ⌈log₂ p⌉ levels, 3 for p = 8: (p - 1).bit_length(), not of p.": (
            time_s * p.bit_length() / levels
        ),
        "⌈log₂ p⌉ is rounded up: 3 levels for p = 5.": time_s * (p.bit_length() - 1) / levels,
        "A ring has p chunks, not p - 1.": rounds * alpha_s + moved_s * p / (p - 1),
        "A ring's messages are parts of the vector.": rounds * (alpha_s + size_s),
        "A tree sends whole vectors.": rounds * (alpha_s + size_s / p),
        "Rounds are whole numbers: round log₂ p up.": time_s * math.log2(p) / levels,
        "There and back: twice that.": time_s / 2,
        "One way only: half of that.": time_s * 2,
        "Each rank already has its own chunk: p - 1 rounds.": time_s * p / (p - 1),
        "Every round pays α.": alpha_s + moved_s,
        "Every round sends its bytes.": rounds * alpha_s + moved_s / max(rounds, 1),
        "vector_bytes are bytes already.": rounds * alpha_s + moved_s / 4,
    }


def all_reduce_s(kind: str, p: int, size: float, alpha_s: float, beta: float) -> float:
    """Seconds of a "tree" or "ring" all-reduce, round by round."""
    if kind == "tree":
        depth = next(k for k in itertools.count() if 2**k >= p)
        return sum(alpha_s + beta * size for _ in range(2 * depth))
    return sum(alpha_s + beta * size / p for _ in range(2 * (p - 1)))


def crossover_bytes(p: int, alpha_s: float, beta: float) -> float:
    """Where the ring's line meets the tree's, from each line's value at 0 and at one byte."""
    tree, ring = (
        [all_reduce_s(kind, p, size, alpha_s, beta) for size in (0.0, alpha_s / beta)]
        for kind in ("tree", "ring")
    )
    return alpha_s / beta * (ring[0] - tree[0]) / ((tree[1] - tree[0]) - (ring[1] - ring[0]))


def crossed_otherwise(p: int, alpha_s: float, beta: float) -> Mistakes:
    """{mistake: the crossover that comes of it}."""
    size, depth = crossover_bytes(p, alpha_s, beta), math.log2(p)
    levels = math.ceil(depth)
    return {
        "α/β is a size in bytes; β/α is not.": size * (beta / alpha_s) ** 2,
        "That is in float32 elements.": size / 4,
        "That is one chunk's size. The whole vector's is asked for.": size / p,
        "A ring has more rounds than a tree, and sends fewer bytes: mind the sign.": -size,
        "A ring sends bytes, too: a p-th of the vector in each round.": alpha_s
        / beta
        * (p - 1 - levels)
        / levels,
        "A ring has p - 1 rounds, not p.": alpha_s / beta * (p - levels) / (levels - (p - 1) / p),
        "Rounds are whole numbers: round log₂ p up.": alpha_s
        / beta
        * (p - 1 - depth)
        / (depth - (p - 1) / p),
    }


def series(
    rng: np.random.Generator, alpha_s: float, beta: float, noise: float
) -> tuple[list[float], list[float], Mistakes]:
    """Sizes and noisy times of messages, and {mistake: the α and β that come of it}."""
    sizes = np.rint(2.0 ** (np.arange(6, 30, 2) + rng.uniform(-0.5, 0.5)))
    times_s = (alpha_s + beta * sizes) * (1 + noise * rng.standard_normal(len(sizes)))
    slope, start = np.polyfit(sizes, times_s, 1).tolist()
    return (
        sizes.tolist(),
        times_s.tolist(),
        {
            "Only the large messages count here: divide each row by its time.": (start, slope),
            "β is seconds per byte, one over the bandwidth.": (alpha_s, 1 / beta),
            "α comes first.": (beta, alpha_s),
        },
    )


def assert_least(
    fitted: tuple[float, float],
    message_bytes: Sequence[float],
    times_s: Sequence[float],
    mistakes: Mistakes,
) -> None:
    """Raise unless no α and β nearby have a smaller sum of squared relative errors.

    mistakes: {sentence: the α and β that come of it}; if these came, the message begins with it.
    """
    sizes, times, (alpha_s, beta) = np.array(message_bytes), np.array(times_s), fitted
    nearby = [(alpha_s * u, beta * v) for u, v in itertools.product((1, 0.998, 1.002), repeat=2)]
    sums = [float(np.sum(((a + b * sizes) / times - 1) ** 2)) for a, b in nearby]
    best = nearby[sums.index(min(sums))]
    known = (f"{says}\n" for says, wrong in mistakes.items() if np.allclose(fitted, wrong, 1e-6, 0))
    expect(
        sums[0] <= min(sums),
        f"{next(known, '')}({alpha_s:.4g}, {beta:.4g}) makes the sum of squares "
        f"{sums[0]:.5g}, which is not the least: ({best[0]:.4g}, {best[1]:.4g}) makes it "
        f"{min(sums):.5g}.",
    )


def divided_otherwise(collective: str, want: float, p: int) -> Mistakes:
    """{mistake: the bus bandwidth that comes of it}."""
    half, double = "One way is p - 1 chunks.", "This collective goes one way only."
    if collective == "all_reduce":
        half, double = "An all-reduce goes there and back.", "There and back is twice."
    return {
        "A rank's own chunk never passes its port.": want * p / (p - 1),
        "A rank sends p - 1 of its p chunks: (p - 1)/p, not p/(p - 1).": want * (p / (p - 1)) ** 2,
        half: want / 2,
        double: want * 2,
        "Bytes per second are asked for, not GB per second.": want / 1e9,
        "Bytes per second are asked for, not GiB per second.": want / 2**30,
        "That is the bandwidth of all ports together. One port's is asked for.": want * p,
        "vector_bytes is all p chunks.": want / p,
    }


def claimed_gb_s(collective: str) -> tuple[float, Mistakes]:
    """Each claim of exercise 5.1 as a bus bandwidth, and mistakes.

    It undoes the program's own formula for the time, and counts what a port then sent in it.
    """
    p, gib, output = 4, 2**30, 4e8
    in_bytes = "In GB per second, please: divide by 10⁹."
    if collective == "all_reduce":
        time_s = 2 * (p - 1) * output / (p * 277 * gib)
        return 2 * (p - 1) * output / p / time_s / 1e9, {
            "2³⁰ bytes are a GiB: 1.07 GB.": 277.0,
            in_bytes: 277.0 * gib,
            "A GiB is more than a GB.": 277e9 / gib,
            "The formula counts there and back already.": 2 * 277 * gib / 1e9,
        }
    time_s = (p - 1) * output / (p * 70 * gib)
    return (p - 1) * output / time_s / 1e9, {
        "2³⁰ bytes are a GiB: 1.07 GB.": 4 * 70.0,
        in_bytes: 4 * 70.0 * gib,
        "The output is one chunk of the vector.": 70 * gib / 1e9,
        "The output is one chunk of the vector, and a GiB is 1.07 GB.": 70.0,
        "A GiB is more than a GB.": 4 * 70e9 / gib,
    }


def kept(trace: ranks.Trace, n: int, root: int) -> list[int]:
    """Elements that each rank has and does not send on, if the root begins with n."""
    both = enumerate(zip(trace.bytes_received, trace.bytes_sent, strict=True))
    return [(came - went) // 8 + (n if rank == root else 0) for rank, (came, went) in both]


def assert_kept(case: str, got: Sequence[int], want: Sequence[int], draw: Draw) -> None:
    """Raise unless each rank keeps, or adds, just its own chunk."""
    expect(
        list(got) == list(want),
        f"{case} ranks keep or add {list(got)} elements; want only their own chunks, {list(want)}.",
        draw=draw,
    )


def scattered_otherwise(given: Vectors, root: int) -> Mistakes:
    """{mistake: what each rank then has after a scatter}."""
    p = len(given)
    return cut_otherwise(given[root], p) | {
        "The chunk is the root's.": [x.tensor_split(p)[r] for r, x in enumerate(given)],
        "Each rank gets its chunk alone.": [given[root]] * p,
    }


def assert_pieces(case: str, trace: ranks.Trace, pieces: int, draw: Draw) -> None:
    """Raise unless each link of a chain carries so many messages that are not empty."""
    want, came = (trace.world_size - 1) * pieces, sum(m.bytes > 0 for m in trace.messages)
    expect(
        came == want,
        f"{case} {came} messages carry elements, want {want}: each piece goes over each link.",
        draw=draw,
    )


def best_pieces(p: int, size: float, alpha_s: float, beta: float) -> int:
    """The number of pieces with the least time, by trying up to 5,000."""
    return min(range(1, 5000), key=lambda k: (p - 2 + k) * (alpha_s + beta * size / k))


def assert_levels(case: str, trace: ranks.Trace, p: int, per_node: int, n: int, draw: Draw) -> None:
    """Raise unless messages between nodes are as few, and as short, as two levels need."""
    nodes, chunk = p // per_node, -(-n // per_node)
    between = [m for m in trace.messages if m.src // per_node != m.dst // per_node]
    expect(
        all(m.src % per_node == m.dst % per_node for m in between),
        f"{case} a message between nodes goes to another place than the sender's own.",
        draw=draw,
    )
    most = 2 * (nodes - 1) * -(-chunk // nodes)
    for rank in range(p):
        sent = sum(m.bytes for m in between if m.src == rank) // 8
        expect(
            sent <= most,
            f"{case} rank {rank} sends {sent} elements to other nodes, want {most} at most: "
            "reduce within the node first, and send your own chunk alone.",
            draw=draw,
        )
    rounds = 2 * (per_node - 1) + 2 * (nodes - 1)
    assert_cost(case, trace, rounds=rounds, elements=2 * (p - 1) * n, draw=draw)


def assert_turns(case: str, trace: ranks.Trace, n: int, rings: int, draw: Draw) -> None:
    """Raise unless the rings cost what one costs, share the work, and take turns.

    Each has its own group, and rank 1 begins a message of each before its first one arrives.
    """
    rounds, elements = 2 * (trace.world_size - 1) * rings, 2 * (trace.world_size - 1) * n
    assert_cost(case, trace, rounds=rounds, elements=elements, draw=draw)
    sent = {m.group: 0 for m in trace.messages}
    for m in trace.messages:
        sent[m.group] += m.bytes
    if trace.world_size > 1 and n % rings == 0:
        expect(
            len(sent) == rings and len(set(sent.values())) == 1,
            f"{case} groups carry {sorted(sent.values())} bytes: each ring has its own group, "
            "and its own part of the vector, all of equal size.",
        )
    came_s = min([m.end_s for m in trace.messages if m.dst == 1], default=0.0)
    begun = {m.group for m in trace.messages if m.src == 1 and m.start_s < came_s}
    enough = n < trace.world_size * rings or len(begun) == rings
    expect(enough, f"{case} begin a round of each ring, then wait.")
