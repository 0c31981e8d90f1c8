"""Passes of a compiler: (rows, outputs) to (rows, outputs), by people of mixed talent.

Right: what can be seen from outside keeps every bit, for every input, and the lists that were given
stay as they were. A pass may do nothing, or little.
"""

import numpy as np

from common import graphs
from common.graphs import COMMUTATIVE, EFFECTS, LEAVES, evaluate


def rebuilt(rows, outputs, rewrite):
    """The program after rewrite(made, op, content) of each operator: a row, or a row's number."""
    made, place = [], []
    for op, content in rows:
        found = op, content
        if op not in LEAVES:
            found = rewrite(made, op, tuple(place[i] for i in content))
        if isinstance(found, tuple):
            made.append(found)
            found = len(made) - 1
        place.append(found)
    return made, [place[i] for i in outputs]


def number(made, i):
    op, content = made[i]
    return content if op == "constant" and np.ndim(content) == 0 else None


def is_number(made, i, wanted):
    found = number(made, i)
    return found is not None and found == wanted and np.signbit(found) == np.signbit(wanted)


def dead(rows, outputs, stays):
    ends = [*outputs, *(i for i, (op, _) in enumerate(rows) if op in stays)]
    return graphs.chosen(rows, outputs, graphs.ancestors(rows, ends))


def merged(rows, outputs, key):
    made, place, known = [], [], {}
    for i, (op, content) in enumerate(rows):
        content = content if op in LEAVES else tuple(place[j] for j in content)
        writes = sum(row[0] == "write" for row in rows[:i])
        found = key(i, op, content, writes)
        if found not in known:
            known[found] = len(made)
            made.append((op, content))
        place.append(known[found])
    return made, [place[i] for i in outputs]


def exact_key(i, op, content, writes):
    if op == "constant":
        return op, np.shape(content), np.asarray(content, float).tobytes()
    if op in EFFECTS:
        return op, i
    if op == "read":
        return op, content, writes
    return op, tuple(sorted(content)) if op in COMMUTATIVE else content


def right_nothing(rows, outputs):
    return list(rows), list(outputs)


def right_dead_code(rows, outputs):
    return dead(rows, outputs, EFFECTS)


def right_subexpressions(rows, outputs):
    return merged(rows, outputs, exact_key)


def right_doubled(rows, outputs):
    def rewrite(made, op, content):
        if op == "multiply" and is_number(made, content[1], 2.0):
            return "add", (content[0], content[0])
        return op, content

    return rebuilt(rows, outputs, rewrite)


def right_halves(rows, outputs):
    def rewrite(made, op, content):
        if op == "divide" and is_number(made, content[1], 2.0):
            made.append(("constant", 0.5))
            return "multiply", (content[0], len(made) - 1)
        return op, content

    return rebuilt(rows, outputs, rewrite)


def right_negatives_outwards(rows, outputs):
    def rewrite(made, op, content):
        if op == "multiply" and made[content[0]][0] == "negative":
            made.append((op, (made[content[0]][1][0], content[1])))
            return "negative", (len(made) - 1,)
        return op, content

    return rebuilt(rows, outputs, rewrite)


def right_difference_as_sum(rows, outputs):
    def rewrite(made, op, content):
        if op == "subtract":
            made.append(("negative", (content[1],)))
            return "add", (content[0], len(made) - 1)
        return op, content

    return rebuilt(rows, outputs, rewrite)


def right_folds_constants(rows, outputs):
    def rewrite(made, op, content):
        values = [number(made, i) for i in content]
        if op in ("add", "multiply", "subtract") and None not in values:
            with np.errstate(all="ignore"):
                return "constant", evaluate(op, *values)
        return op, content

    return rebuilt(rows, outputs, rewrite)


def wrong_dead_writes(rows, outputs):
    """It removes a write whose value nobody reads."""
    return dead(rows, outputs, ("random",))


def wrong_dead_draws(rows, outputs):
    """It removes a random operator that nobody reads, so that the next one draws other numbers."""
    return dead(rows, outputs, ("write",))


def wrong_reads_merged(rows, outputs):
    """It takes two reads for one, though a write lies between them."""
    return merged(rows, outputs, lambda i, op, c, writes: exact_key(i, op, c, 0))


def wrong_draws_merged(rows, outputs):
    """It takes two random operators on one input for one."""

    def key(i, op, content, writes):
        return (op, content) if op == "random" else exact_key(i, op, content, writes)

    return merged(rows, outputs, key)


def wrong_writes_merged(rows, outputs):
    """It takes two equal writes for one, though another write lies between them."""

    def key(i, op, content, writes):
        return (op, content) if op == "write" else exact_key(i, op, content, writes)

    return merged(rows, outputs, key)


def wrong_zeros_merged(rows, outputs):
    """It takes the constants 0.0 and -0.0 for one."""

    def key(i, op, content, writes):
        return (op, content) if op == "constant" else exact_key(i, op, content, writes)

    return merged(rows, outputs, key)


def wrong_commuted(rows, outputs):
    """It believes that a - b is b - a."""

    def key(i, op, content, writes):
        if op == "subtract":
            return op, tuple(sorted(content))
        return exact_key(i, op, content, writes)

    return merged(rows, outputs, key)


def wrong_zero_added(rows, outputs):
    """It drops x + 0.0, which is not x at x = -0.0."""

    def rewrite(made, op, content):
        drop = op == "add" and is_number(made, content[1], 0.0)
        return content[0] if drop else (op, content)

    return rebuilt(rows, outputs, rewrite)


def wrong_zero_difference(rows, outputs):
    """It takes x - x for 0, also where x is infinite."""

    def rewrite(made, op, content):
        if op == "subtract" and content[0] == content[1] and number(made, content[0]) is None:
            made.append(("multiply", content))
            made += [("step", (len(made) - 1,)), ("constant", 0.0)]
            return "multiply", (len(made) - 2, len(made) - 1)
        return op, content

    return rebuilt(rows, outputs, rewrite)


def wrong_thirds(rows, outputs):
    """It divides by a constant by multiplying with its reciprocal, which is rounded."""

    def rewrite(made, op, content):
        found = number(made, content[-1])
        if op == "divide" and found is not None and found in (0.1, 3.0):
            made.append(("constant", 1 / found))
            return "multiply", (content[0], len(made) - 1)
        return op, content

    return rebuilt(rows, outputs, rewrite)


def wrong_regrouped(rows, outputs):
    """It regroups (a + b) + c as a + (b + c)."""

    def rewrite(made, op, content):
        if op == "add" and made[content[0]][0] == "add":
            a, b = made[content[0]][1]
            made.append(("add", (b, content[1])))
            return "add", (a, len(made) - 1)
        return op, content

    return rebuilt(rows, outputs, rewrite)


def wrong_subtracted_from_zero(rows, outputs):
    """It computes -x as 0 - x, which is 0.0, not -0.0, at x = 0.0."""

    def rewrite(made, op, content):
        if op == "negative":
            made.append(("constant", 0.0))
            return "subtract", (len(made) - 1, content[0])
        return op, content

    return rebuilt(rows, outputs, rewrite)


def wrong_turned_difference(rows, outputs):
    """It computes -(a - b) as b - a, which differs in the sign of zero where a and b are equal."""

    def rewrite(made, op, content):
        if op == "negative" and made[content[0]][0] == "subtract":
            return "subtract", made[content[0]][1][::-1]
        return op, content

    return rebuilt(rows, outputs, rewrite)


def wrong_product_of_exponentials(rows, outputs):
    """It computes exp(a) * exp(b) as exp(a + b), which rounds otherwise."""

    def rewrite(made, op, content):
        if op == "multiply" and all(made[i][0] == "exp" for i in content):
            made.append(("add", tuple(made[i][1][0] for i in content)))
            return "exp", (len(made) - 1,)
        return op, content

    return rebuilt(rows, outputs, rewrite)


def wrong_single_precision(rows, outputs):
    """It computes with constants in float32."""

    def rewrite(made, op, content):
        values = [number(made, i) for i in content]
        if op in ("add", "multiply", "subtract", "divide") and None not in values:
            with np.errstate(all="ignore"):
                return "constant", float(evaluate(op, *map(np.float32, values)))
        return op, content

    return rebuilt(rows, outputs, rewrite)


def wrong_outputs_once(rows, outputs):
    """It gives each output once, though an output may be asked for twice."""
    return list(rows), list(dict.fromkeys(outputs))


def wrong_order_of_outputs(rows, outputs):
    """It gives the outputs in the order of their rows."""
    return list(rows), sorted(outputs)


def wrong_order_of_draws(rows, outputs):
    """It moves random operators on x to the front, before others that drew first."""
    first = [i for i, (op, _) in enumerate(rows) if op in LEAVES]
    first += [i for i, (op, c) in enumerate(rows) if op == "random" and rows[c[0]][0] in LEAVES]
    order = [*first, *(i for i in range(len(rows)) if i not in first)]
    place = {old: new for new, old in enumerate(order)}
    made = [(op, c if op in LEAVES else tuple(place[i] for i in c))
            for op, c in (rows[i] for i in order)]  # fmt: skip
    return made, [place[i] for i in outputs]


def wrong_early_reads(rows, outputs):
    """It reads each buffer at the beginning, before what is written to it."""
    first = [i for i, (op, _) in enumerate(rows) if op in LEAVES]
    first += [i for i, (op, _) in enumerate(rows) if op == "read"]
    order = [*first, *(i for i in range(len(rows)) if i not in first)]
    place = {old: new for new, old in enumerate(order)}
    made = [(op, c if op in LEAVES else tuple(place[i] for i in c))
            for op, c in (rows[i] for i in order)]  # fmt: skip
    return made, [place[i] for i in outputs]


def wrong_changes_its_input(rows, outputs):
    """Its program is right, but it deletes rows of the list that it was given."""
    made = dead(rows, outputs, EFFECTS)
    rows[:], outputs[:] = made
    return list(rows), list(outputs)


def wrong_sum_with_itself(rows, outputs):
    """It computes (x + x) - x as x, which overflows for large x."""

    def rewrite(made, op, content):
        if op == "subtract" and made[content[0]] == ("add", (content[1], content[1])):
            return content[1]
        return op, content

    return rebuilt(rows, outputs, rewrite)


def wrong_relu_by_step(rows, outputs):
    """It computes relu(x) as x * step(x), which is -0.0 for negative x, and NaN for -infinity."""

    def rewrite(made, op, content):
        if op == "relu":
            made.append(("step", content))
            return "multiply", (content[0], len(made) - 1)
        return op, content

    return rebuilt(rows, outputs, rewrite)
