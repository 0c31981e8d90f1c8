# %% eliminate_dead_code: ancestors, in a line
def eliminate_dead_code(rows, outputs):
    effects = [i for i, (op, _) in enumerate(rows) if op in EFFECTS]
    return graphs.chosen(rows, outputs, graphs.ancestors(rows, [*outputs, *effects]))

# %% eliminate_common_subexpressions: the first equal row, searched
def eliminate_common_subexpressions(rows, outputs):
    rows, place = list(rows), list(range(len(rows)))
    def same(i, j):
        (a, x), (b, y) = rows[i], rows[j]
        if a != b or a in EFFECTS:
            return False
        if a == "constant":
            x, y = np.asarray(x, float), np.asarray(y, float)
            return x.shape == y.shape and x.tobytes() == y.tobytes()
        if a == "read" and any(op == "write" for op, _ in rows[i:j]):
            return False
        return x == y or a in COMMUTATIVE and x == y[::-1]
    for j, (op, content) in enumerate(rows):
        if op not in LEAVES:
            rows[j] = op, tuple(place[i] for i in content)
        place[j] = next((i for i in range(j) if place[i] == i and same(i, j)), j)
    return graphs.chosen(rows, [place[i] for i in outputs], set(place))

# %% counterexample: a grid of all pairs
def counterexample(first, second):
    draw = np.random.default_rng(7)
    hard = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1.7e308, -1.7e308, 5e-324, 0.5, 2.0]
    values = np.concatenate([hard, draw.normal(size=20), draw.normal(size=8) * 1e8])
    grid = np.stack(np.meshgrid(values, values)).reshape(2, -1)
    columns = [grid[0], grid[1], grid[0][::-1], grid[1][::-1]]
    feeds = {name: columns[i % 4] for i, name in enumerate(graphs.names(first, second))}
    return None if same_bits(execute(*first, feeds), execute(*second, feeds)) else feeds

# %% counterexample: only the elements at which they differ
def counterexample(first, second):
    draw = np.random.default_rng(3)
    for size in (1, 50, 500, 2000):
        feeds = {}
        for name in graphs.names(first, second):
            pool = np.concatenate([[0.0, -0.0, np.inf, -np.inf, np.nan, 1e308, -1e308, 5e-324, 1.0],
                                   draw.normal(size=9), 10.0 ** draw.uniform(-300, 300, 9)])
            feeds[name] = draw.choice(pool, size)
        a, b = execute(*first, feeds), execute(*second, feeds)
        if not same_bits(a, b):
            return feeds
    return None

# %% minify: from the end
def minify(rows, outputs, fails):
    i = len(rows) - 1
    while i >= 0:
        less = [] if rows[i][0] in LEAVES else graphs.without(rows, outputs, i)
        good = [program for program in less if fails(*program)]
        if good:
            rows, outputs = good[0]
            i = len(rows)
        i -= 1
    return rows, outputs

# %% fuse_elementwise: union by list, other names in the kernel
def fusion_groups(rows, outputs, shapes):
    groups = []
    for i, (op, content) in enumerate(rows):
        if op in LEAVES:
            continue
        mine = [i]
        if op in ELEMENTWISE:
            for j in set(content):
                users = [k for k, row in enumerate(rows) if j in graphs.inputs(row)]
                if rows[j][0] in ELEMENTWISE and users == [i] and j not in outputs and shapes[j] == shapes[i]:
                    other = next(group for group in groups if j in group)
                    groups.remove(other)
                    mine = other + mine
        groups.append(sorted(mine))
    return groups


def fuse_elementwise(rows, group, shapes):
    result = shapes[group[-1]]
    outside = []
    for i in group:
        for j in rows[i][1]:
            if j not in group and j not in outside:
                outside.append(j)
    outside.sort()
    names, body, parameters = {}, [], []
    for j in outside:
        if rows[j][0] == "constant":
            names[j] = f"({float(rows[j][1])!r})"
            continue
        parameters.append(f"ptr_{j}")
        names[j] = f"x_{j}"
        offset = "where"
        if tuple(shapes[j]) != tuple(result):
            offset = "where // COLUMNS" if len(shapes[j]) == 2 else "where % COLUMNS"
        body.append(f"x_{j} = tl.load(ptr_{j} + {offset}, mask=inside, other=1.0)")
    for i in group:
        names[i] = f"y_{i}"
        body.append(f"y_{i} = " + TRITON[rows[i][0]].format(*[names[j] for j in rows[i][1]]))
    body.append(f"tl.store(out + where, y_{group[-1]}, mask=inside)")
    head = [
        "@triton.jit",
        f"def fused({', '.join([*parameters, 'out', 'n', 'COLUMNS: tl.constexpr', 'BLOCK: tl.constexpr'])}):",
        "    start = tl.program_id(0) * BLOCK",
        "    where = start + tl.arange(0, BLOCK)",
        "    inside = where < n",
    ]
    return "\n".join(head + ["    " + line for line in body])

# %% fuse_elementwise: one expression, nested
def fusion_groups(rows, outputs, shapes):
    last = {}
    for i in range(len(rows) - 1, -1, -1):
        if rows[i][0] not in LEAVES:
            users = [j for j in range(len(rows)) if i in graphs.inputs(rows[j])]
            joins = (len(users) == 1 and i not in outputs and rows[i][0] in ELEMENTWISE
                     and rows[users[0]][0] in ELEMENTWISE and shapes[i] == shapes[users[0]])
            last[i] = last[users[0]] if joins else i
    return [sorted(i for i in last if last[i] == end) for end in sorted(set(last.values()))]


def fuse_elementwise(rows, group, shapes):
    full = tuple(shapes[group[-1]])
    reads = sorted({j for i in group for j in rows[i][1] if j not in group and rows[j][0] != "constant"})
    def place(j):
        return "i" if tuple(shapes[j]) == full else "(i // COLUMNS)" if len(shapes[j]) == len(full) else "(i % COLUMNS)"
    loads = "".join(f"    a{j} = tl.load(p{j} + {place(j)}, mask=m)\n" for j in reads)
    lines = ""
    for i in group:
        inner = [f"({float(rows[j][1])})" if rows[j][0] == "constant" else f"a{j}" for j in rows[i][1]]
        lines += f"    a{i} = {TRITON[rows[i][0]].format(*inner)}\n"
    return ("@triton.jit\ndef fused(" + "".join(f"p{j}, " for j in reads)
            + "out, n, COLUMNS: tl.constexpr, BLOCK: tl.constexpr):\n"
            + "    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n    m = i < n\n"
            + loads + lines + f"    tl.store(out + i, a{group[-1]}, mask=m)\n")

# %% trace: guards as strings, one function per guard
def described(argument, exact):
    if isinstance(argument, np.ndarray):
        bucket = 1
        while bucket < argument.shape[0]:
            bucket *= 2
        head = argument.shape[0] if exact else -bucket
        return f"{argument.dtype} {head} {argument.shape[1:]}"
    return f"{type(argument)} {argument!r}"


def trace(function, arguments):
    tape, given = graphs.Tape(), []
    for i, argument in enumerate(arguments):
        if isinstance(argument, np.ndarray):
            given.append(tape.placeholder(f"x{i}", argument))
        else:
            given.append(tape.constant(argument))
    result = function(*given)
    looked_at = {result.row} | {row for row, _ in tape.branches} | tape.shapes | tape.numbers
    used = graphs.ancestors(tape.rows, looked_at)
    exact = graphs.ancestors(tape.rows, tape.shapes)
    guards = []
    for i, argument in enumerate(arguments):
        row = given[i].row
        if row in used:
            guards.append([i, row in exact, described(argument, row in exact)])
    return list(tape.rows), [result.row], {"arguments": guards, "branches": list(tape.branches)}


def lookup(cache, arguments):
    for number in range(len(cache) - 1, -1, -1):
        rows, _, guards = cache[number]
        if any(described(arguments[i], exact) != text for i, exact, text in guards["arguments"]):
            continue
        feeds = {f"x{i}": a for i, a in enumerate(arguments) if isinstance(a, np.ndarray)}
        if all(bool(execute(rows, [row], feeds)[0]) == truth for row, truth in guards["branches"]):
            return number
    return None

# %% eliminate_dead_code: a matrix of who reads whom, and its closure
def eliminate_dead_code(rows, outputs):
    n = len(rows)
    reads = np.eye(n, dtype=bool)
    for i, row in enumerate(rows):
        for j in graphs.inputs(row):
            reads[i, j] = True
    seen = np.array([i in outputs or rows[i][0] in EFFECTS for i in range(n)])
    while True:
        more = seen @ reads
        if (more == seen).all():
            return graphs.chosen(rows, outputs, np.flatnonzero(seen).tolist())
        seen = more

# %% eliminate_dead_code: bits of one integer
def eliminate_dead_code(rows, outputs):
    live = sum(1 << i for i in set(outputs))
    for i in range(len(rows) - 1, -1, -1):
        live |= (rows[i][0] in EFFECTS) << i
        if live >> i & 1:
            for j in graphs.inputs(rows[i]):
                live |= 1 << j
    return graphs.chosen(rows, outputs, [i for i in range(len(rows)) if live >> i & 1])

# %% eliminate_dead_code: a fold over the rows, from the end
def eliminate_dead_code(rows, outputs):
    def step(live, i):
        op, _ = rows[i]
        return live | {i, *graphs.inputs(rows[i])} if i in live or op in EFFECTS else live
    return graphs.chosen(rows, outputs, functools.reduce(step, range(len(rows))[::-1], frozenset(outputs)))

# %% eliminate_dead_code: all leaves stay, and it gives tuples
def eliminate_dead_code(rows, outputs):
    keep = [op in LEAVES or op in EFFECTS or i in outputs for i, (op, _) in enumerate(rows)]
    for i in range(len(rows))[::-1]:
        if keep[i] and rows[i][0] not in LEAVES:
            for j in rows[i][1]:
                keep[j] = True
    number = np.cumsum(keep) - 1
    made = tuple((op, c) if op in LEAVES else (op, tuple(int(number[j]) for j in c))
                 for (op, c), kept in zip(rows, keep) if kept)
    return made, tuple(int(number[i]) for i in outputs)

# %% eliminate_common_subexpressions: a class of values with a number each
class Numbering:
    def __init__(self):
        self.rows, self.number, self.writes = [], {}, {}

    def leaf(self, op, content):
        if op != "constant":
            return self.put((op, content), (op, content))
        array = np.asarray(content, dtype=np.float64)
        return self.put((array.shape, array.tobytes()), (op, content))

    def operator(self, op, *inputs):
        if op == "write":
            self.writes[inputs[0]] = self.writes.get(inputs[0], 0) + 1
        if op in EFFECTS:
            return self.put(object(), (op, inputs))
        if op in COMMUTATIVE and inputs[0] > inputs[1]:
            inputs = inputs[::-1]
        version = self.writes.get(inputs[0], 0) if op == "read" else None
        return self.put((op, inputs, version), (op, inputs))

    def put(self, key, row):
        if key not in self.number:
            self.rows.append(row)
        return self.number.setdefault(key, len(self.rows) - 1)


def eliminate_common_subexpressions(rows, outputs):
    table, place = Numbering(), []
    for op, content in rows:
        if op in LEAVES:
            place.append(table.leaf(op, content))
        else:
            place.append(table.operator(op, *(place[i] for i in content)))
    return table.rows, [place[i] for i in outputs]

# %% eliminate_common_subexpressions: no row moves, the second of two is bypassed and left to be dead
def eliminate_common_subexpressions(rows, outputs):
    rows, of, seen = list(rows), {}, {}
    stamp = 0
    for i in range(len(rows)):
        op, c = rows[i]
        if op not in LEAVES:
            c = tuple(of[j] for j in c)
            rows[i] = op, c
        stamp += op == "write"
        if op in EFFECTS:
            of[i] = i
            continue
        value = (np.shape(c), np.asarray(c, float).tobytes()) if op == "constant" else c
        value = frozenset(c) if op in COMMUTATIVE else value
        of[i] = seen.setdefault((op, value, stamp if op == "read" else 0), i)
    return eliminate_dead_code(rows, [of[i] for i in outputs])

# %% fold_constants: edited in place, what is folded is left to be dead
def fold_constants(rows, outputs):
    rows, same = list(rows), list(range(len(rows)))
    zero, minus_zero, one = (np.float64(x).tobytes() for x in (0.0, -0.0, 1.0))
    def bits(i):
        return np.float64(rows[i][1]).tobytes() if rows[i][0] == "constant" and not np.shape(rows[i][1]) else None
    for i, (op, c) in enumerate(rows):
        if op in LEAVES:
            continue
        c = tuple(same[j] for j in c)
        rows[i] = op, c
        if op in EFFECTS or op == "read":
            continue
        if all(rows[j][0] == "constant" for j in c):
            rows[i] = "constant", evaluate(op, *(rows[j][1] for j in c))
        elif op == "negative" and rows[c[0]][0] == "negative":
            same[i] = rows[c[0]][1][0]
        elif len(c) == 2:
            left, right = bits(c[0]), bits(c[1])
            if (op, right) in [("multiply", one), ("divide", one), ("subtract", zero), ("add", minus_zero)]:
                same[i] = c[0]
            elif (op, left) in [("multiply", one), ("add", minus_zero)]:
                same[i] = c[1]
    return rows, [same[i] for i in outputs]

# %% fold_constants: two passes, constants first, then neutral numbers
def fold_constants(rows, outputs):
    known = {}
    for i, (op, c) in enumerate(rows):
        if op == "constant":
            known[i] = c
        elif op not in (*LEAVES, *EFFECTS, "read") and all(j in known for j in c):
            known[i] = evaluate(op, *(known[j] for j in c))
    rows = [("constant", known[i]) if i in known else row for i, row in enumerate(rows)]
    place = []
    def number(i):
        return repr(float(known[i])) if i in known and np.ndim(known[i]) == 0 else ""
    for i, (op, c) in enumerate(rows):
        place.append(i)
        if op in LEAVES:
            continue
        c = tuple(place[j] for j in c)
        rows[i] = op, c
        match op, [number(j) for j in c]:
            case ("multiply" | "divide", [_, "1.0"]) | ("subtract", [_, "0.0"]) | ("add", [_, "-0.0"]):
                place[i] = c[0]
            case ("multiply", ["1.0", _]) | ("add", ["-0.0", _]):
                place[i] = c[1]
            case ("negative", _) if rows[c[0]][0] == "negative":
                place[i] = rows[c[0]][1][0]
    return rows, [place[i] for i in outputs]

# %% fold_constants: recursive from the outputs and effects, in the old order of rows
def fold_constants(rows, outputs):
    @functools.cache
    def known(i):
        op, c = rows[i]
        if op == "constant":
            return (c,)
        if op in LEAVES or op in EFFECTS or op == "read" or not all(map(known, c)):
            return ()
        return (evaluate(op, *(known(j)[0] for j in c)),)
    def is_number(i, wanted):
        value = known(i)
        return bool(value) and np.ndim(value[0]) == 0 and str(float(value[0])) == wanted
    @functools.cache
    def stands_for(i):
        op, c = rows[i]
        if known(i) or op in LEAVES:
            return i
        if op in ("multiply", "divide") and is_number(c[1], "1.0") or op == "subtract" and is_number(c[1], "0.0"):
            return stands_for(c[0])
        if op == "add" and is_number(c[1], "-0.0"):
            return stands_for(c[0])
        if op == "add" and is_number(c[0], "-0.0") or op == "multiply" and is_number(c[0], "1.0"):
            return stands_for(c[1])
        if op == "negative" and rows[stands_for(c[0])][0] == "negative":
            return stands_for(rows[stands_for(c[0])][1][0])
        return i
    made = []
    for i, (op, c) in enumerate(rows):
        if known(i):
            made.append(("constant", known(i)[0]))
        else:
            made.append((op, c if op in LEAVES else tuple(map(stands_for, c))))
    return eliminate_dead_code(made, [stands_for(i) for i in outputs])

# %% fold_constants: arrays of no axes as constants, again and again until nothing changes
def fold_constants(rows, outputs):
    def once(rows, outputs):
        rows, place = list(rows), list(range(len(rows)))
        for i, (op, c) in enumerate(rows):
            if op in LEAVES:
                continue
            c = tuple(place[j] for j in c)
            rows[i] = op, c
            values = [np.asarray(rows[j][1]) if rows[j][0] == "constant" else None for j in c]
            if op not in ("read", "write", "random") and all(v is not None for v in values):
                rows[i] = "constant", np.asarray(evaluate(op, *values))
                continue
            for kept, v in zip(c, values[::-1]) if len(c) == 2 else []:
                second = v is values[1]
                if v is None or v.ndim or not (second or op in COMMUTATIVE):
                    continue
                wanted = {"multiply": 1.0, "divide": 1.0, "add": -0.0, "subtract": 0.0}.get(op, np.nan)
                if v == wanted and np.signbit(v) == np.signbit(wanted):
                    place[i] = kept
            if op == "negative" and rows[c[0]][0] == "negative":
                place[i] = rows[c[0]][1][0]
        return rows, [place[i] for i in outputs]
    left = None
    while left != graphs.operators(rows):
        left = graphs.operators(rows)
        rows, outputs = eliminate_dead_code(*once(rows, outputs))
    return rows, outputs

# %% counterexample: shrunk to one element
def counterexample(first, second):
    names = graphs.names(first, second)
    draw = np.random.default_rng(0)
    pool = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1.5e308, 5e-324, 0.3, 7.0, *draw.normal(size=30)]
    feeds = {name: draw.choice(pool, 3000) for name in names}
    def differ(feeds):
        return not same_bits(execute(*first, feeds), execute(*second, feeds))
    if not differ(feeds):
        return None
    n = 3000
    while n > 1:
        half = next((part for part in (slice(n // 2), slice(n // 2, n))
                     if differ({k: x[part] for k, x in feeds.items()})), None)
        if half is None:
            break
        feeds = {k: x[half] for k, x in feeds.items()}
        n = len(next(iter(feeds.values())))
    return feeds

# %% counterexample: itertools.product of a few numbers, element by element
def counterexample(first, second):
    import itertools
    numbers = [0.0, -0.0, 1.0, -2.5, float("inf"), -float("inf"), float("nan"), 1.7e308, 5e-324,
               0.1, 0.7, 1 / 3, 5.0, 1e-5, 12345.678, 11.3]
    names = graphs.names(first, second)
    points = np.array(list(itertools.product(numbers, repeat=min(len(names), 3))))
    feeds = {name: points[:, i % 3].copy() for i, name in enumerate(names)}
    if same_bits(execute(*first, feeds), execute(*second, feeds)):
        return None
    return feeds

# %% counterexample: recursion over the names
def counterexample(first, second):
    names = graphs.names(first, second)
    values = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, 0.1, 3.3, 1.7e308, 5e-324, -7.7, 1e-3])
    def search(fixed, left):
        if not left:
            feeds = {**fixed}
            return None if same_bits(execute(*first, feeds), execute(*second, feeds)) else feeds
        for shift in (0, 1, 5):
            found = search(fixed | {left[0]: np.roll(np.repeat(values, 2), shift)}, left[1:])
            if found:
                return found
        return None
    return search({}, names) if names else None

# %% minify: answers are remembered
def minify(rows, outputs, fails):
    known = {}
    def asked(program):
        key = repr(program)
        if key not in known:
            known[key] = fails(*program)
        return known[key]
    program, changed = (list(rows), list(outputs)), True
    while changed:
        changed = False
        for i in range(len(program[0])):
            if i >= len(program[0]) or program[0][i][0] in LEAVES:
                continue
            for less in graphs.without(*program, i):
                if asked(less):
                    program, changed = less, True
                    break
    return program

# %% minify: breadth first, to one of the smallest within reach
def minify(rows, outputs, fails):
    level = [(rows, outputs)]
    while True:
        following, seen = [], set()
        for program in level[:3]:
            for i, (op, _) in enumerate(program[0]):
                for less in graphs.without(*program, i) if op not in LEAVES else []:
                    if repr(less) not in seen:
                        seen.add(repr(less))
                        if fails(*less):
                            following.append(less)
        if not following:
            return level[0]
        level = sorted(following, key=lambda p: graphs.operators(p[0]))

# %% fuse_elementwise: a list of readers, and a template
def fusion_groups(rows, outputs, shapes):
    readers = [set() for _ in rows]
    for i, row in enumerate(rows):
        for j in graphs.inputs(row):
            readers[j].add(i)
    def joins(i):
        if rows[i][0] not in ELEMENTWISE or i in outputs or len(readers[i]) != 1:
            return None
        (reader,) = readers[i]
        return reader if rows[reader][0] in ELEMENTWISE and shapes[reader] == shapes[i] else None
    def root(i):
        return i if joins(i) is None else root(joins(i))
    made = {}
    for i, (op, _) in enumerate(rows):
        if op not in LEAVES:
            made.setdefault(root(i), []).append(i)
    return [made[last] for last in sorted(made)]


def fuse_elementwise(rows, group, shapes):
    template = """@triton.jit
def fused({pointers}out, n, COLUMNS: tl.constexpr, BLOCK: tl.constexpr):
    pid = tl.program_id(axis=0)
    offsets = pid * BLOCK + tl.arange(0, BLOCK)
    row = offsets // COLUMNS
    column = offsets % COLUMNS
    mask = offsets < n
    {body}
    tl.store(out + offsets, {result}, mask=mask)
"""
    last, body, name = group[-1], [], {}
    arrays = []
    for j in sorted({j for i in group for j in rows[i][1]}.difference(group)):
        op, content = rows[j]
        name[j] = f"in{j}"
        if op == "constant":
            body.append(f"in{j} = {float(content)!r}")
            continue
        arrays.append(f"ptr{j}, ")
        if shapes[j] == shapes[last]:
            offset = "offsets"
        elif len(shapes[j]) == 1:
            offset = "column"
        else:
            offset = "row"
        body.append(f"in{j} = tl.load(ptr{j} + {offset}, mask=mask)")
    for i in group:
        name[i] = f"t{i}"
        body.append(f"t{i} = " + TRITON[rows[i][0]].format(*(name[j] for j in rows[i][1])))
    return template.format(pointers="".join(arrays), body="\n    ".join(body), result=name[last])

# %% fuse_elementwise: a class that emits, other names
def fusion_groups(rows, outputs, shapes):
    parent = list(range(len(rows)))
    def find(i):
        while parent[i] != i:
            i = parent[i]
        return i
    for i, (op, _) in enumerate(rows):
        users = {k for k, row in enumerate(rows) if i in graphs.inputs(row)}
        if op in ELEMENTWISE and i not in outputs and len(users) == 1:
            k = users.pop()
            if rows[k][0] in ELEMENTWISE and shapes[i] == shapes[k]:
                parent[find(i)] = find(k)
    sets = {}
    for i, (op, _) in enumerate(rows):
        if op not in LEAVES:
            sets.setdefault(find(i), []).append(i)
    return sorted(sets.values(), key=max)


class Emitter:
    def __init__(self, rows, group, shapes):
        self.rows, self.group, self.shapes, self.lines = rows, group, shapes, []
        self.arrays = sorted({j for i in group for j in rows[i][1]
                              if j not in group and rows[j][0] != "constant"})

    def write(self, line, depth=1):
        self.lines.append("    " * depth + line)

    def operand(self, j):
        return f"({float(self.rows[j][1])!r})" if self.rows[j][0] == "constant" else f"val_{j}"

    def index(self, j):
        full, own = self.shapes[self.group[-1]], self.shapes[j]
        return {True: "idx", False: "idx // COLUMNS" if own[-1:] == (1,) and len(own) == 2 else "idx % COLUMNS"}[own == full]

    def text(self):
        names = [f"a{j}" for j in self.arrays] + ["out", "n"]
        self.write("@triton.jit", 0)
        self.write(f"def fused({', '.join(names)}, COLUMNS: tl.constexpr, BLOCK: tl.constexpr):", 0)
        self.write("idx = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)")
        self.write("ok = idx < n")
        for j in self.arrays:
            self.write(f"val_{j} = tl.load(a{j} + ({self.index(j)}), mask=ok, other=0.0)")
        for i in self.group:
            self.write(f"val_{i} = " + TRITON[self.rows[i][0]].format(*map(self.operand, self.rows[i][1])))
        self.write(f"tl.store(out + idx, val_{self.group[-1]}, mask=ok)")
        return "\n".join(self.lines) + "\n"


def fuse_elementwise(rows, group, shapes):
    return Emitter(rows, group, shapes).text()

# %% fuse_elementwise: one pass forward, and loads where they are first used
def fusion_groups(rows, outputs, shapes):
    uses = {}
    for i, row in enumerate(rows):
        for j in set(graphs.inputs(row)):
            uses.setdefault(j, []).append(i)
    groups, home = {}, {}
    for i, (op, _) in reversed(list(enumerate(rows))):
        if op in LEAVES:
            continue
        mine = uses.get(i, [])
        free = op in ELEMENTWISE and len(mine) == 1 and i not in outputs
        into = free and rows[mine[0]][0] in ELEMENTWISE and shapes[mine[0]] == shapes[i]
        home[i] = home[mine[0]] if into else i
        groups.setdefault(home[i], []).insert(0, i)
    return [groups[end] for end in sorted(groups)]


def fuse_elementwise(rows, group, shapes):
    lines, have, pointers = [], set(), set()
    def value(j):
        if rows[j][0] == "constant":
            return repr(float(rows[j][1]))
        if j not in have and j not in group:
            pointers.add(j)
            if shapes[j] == shapes[group[-1]]:
                at = "at"
            elif shapes[j][-1] == 1 and len(shapes[j]) > 1:
                at = "at // COLUMNS"
            else:
                at = "at % COLUMNS"
            lines.append(f"x{j} = tl.load(p{j} + {at}, at < n)")
        have.add(j)
        return f"x{j}"
    for i in group:
        operands = [value(j) for j in rows[i][1]]
        lines.append(f"x{i} = {TRITON[rows[i][0]].format(*operands)}")
        have.add(i)
    lines.append(f"tl.store(out + at, x{group[-1]}, at < n)")
    head = "".join(f"p{j}, " for j in sorted(pointers))
    return "\n    ".join([f"@triton.jit\ndef fused({head}out, n, COLUMNS: tl.constexpr, BLOCK: tl.constexpr):",
                          "at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)", *lines]) + "\n"

# %% fuse_elementwise: groups grow backwards by a worklist, comments in the kernel
def fusion_groups(rows, outputs, shapes):
    groups, taken = [], set()
    def only_reader(i):
        found = [k for k in range(len(rows)) if i in graphs.inputs(rows[k])]
        return found[0] if len(found) == 1 and i not in outputs else -1
    for end in range(len(rows) - 1, -1, -1):
        if rows[end][0] in LEAVES or end in taken:
            continue
        group, work = [], [end]
        while work:
            i = work.pop()
            group.append(i)
            for j in set(graphs.inputs(rows[i])):
                if (rows[i][0] in ELEMENTWISE and rows[j][0] in ELEMENTWISE
                        and only_reader(j) == i and shapes[j] == shapes[i]):
                    work.append(j)
        taken.update(group)
        groups.insert(0, sorted(group))
    return groups


def fuse_elementwise(rows, group, shapes):
    end = max(group)
    external = sorted(j for j in {j for i in group for j in rows[i][1]} if j not in group)
    signature = [f"p{j}" for j in external if rows[j][0] != "constant"]
    signature += ["out", "n", "COLUMNS: tl.constexpr", "BLOCK: tl.constexpr"]
    text = "@triton.jit\ndef fused(" + ", ".join(signature) + "):\n"
    text += '    """Made by a compiler."""\n'
    text += "    start = tl.program_id(0).to(tl.int64) * BLOCK\n"
    text += "    e = start + tl.arange(0, BLOCK)\n"
    text += "    m = e < n\n"
    for j in external:
        if rows[j][0] == "constant":
            text += f"    v{j} = {float(rows[j][1])}  # a constant\n"
        else:
            e = "e" if shapes[j] == shapes[end] else "e % COLUMNS" if shapes[j] == shapes[end][-1:] else "e // COLUMNS"
            text += f"    v{j} = tl.load(p{j} + {e}, mask=m)  # {shapes[j]}\n"
    for i in sorted(group):
        text += f"    v{i} = {TRITON[rows[i][0]].format(*['v' + str(j) for j in rows[i][1]])}\n"
    return text + f"    tl.store(out + e, v{end}, mask=m)\n"

# %% fuse_elementwise: string.Template, tuples as groups
def fusion_groups(rows, outputs, shapes):
    leader = {}
    for i in range(len(rows) - 1, -1, -1):
        op = rows[i][0]
        if op in LEAVES:
            continue
        leader[i] = i
        users = sorted({k for k in leader if i in rows[k][1]})
        if len(users) == 1 and i not in outputs and {op, rows[users[0]][0]} <= set(ELEMENTWISE):
            if tuple(shapes[i]) == tuple(shapes[users[0]]):
                leader[i] = leader[users[0]]
    return [tuple(i for i in range(len(rows)) if leader.get(i) == end) for end in sorted(set(leader.values()))]


def fuse_elementwise(rows, group, shapes):
    from string import Template
    reads = []
    for i in group:
        reads += [j for j in rows[i][1] if j not in group and j not in reads]
    arrays = sorted({j for j in reads if rows[j][0] != "constant"})
    numbers = {j for j in reads if rows[j][0] == "constant"}
    full = tuple(shapes[group[-1]])
    def offset(j):
        shape = tuple(shapes[j])
        if shape == full:
            return "i"
        return "i % COLUMNS" if shape == full[1:] else "i // COLUMNS"
    lines = [f"r{j} = {float(rows[j][1])!r}" for j in numbers]
    lines += [f"r{j} = tl.load(in_{j} + {offset(j)}, mask=live)" for j in arrays]
    lines += [f"r{i} = " + TRITON[rows[i][0]].format(*[f"r{j}" for j in rows[i][1]]) for i in group]
    return Template("@triton.jit\ndef fused($given out, n, COLUMNS: tl.constexpr, BLOCK: tl.constexpr):\n"
                    "    i = BLOCK * tl.program_id(0) + tl.arange(0, BLOCK)\n    live = i < n\n    $lines\n"
                    "    tl.store(out + i, r$last, mask=live)\n").substitute(
        given="".join(f"in_{j}, " for j in arrays), lines="\n    ".join(lines), last=group[-1])

# %% fuse_elementwise: functional, each constant where it is used
def fusion_groups(rows, outputs, shapes):
    users = lambda i: {k for k, row in enumerate(rows) if i in graphs.inputs(row)}
    def end(i):
        following = users(i)
        if len(following) == 1 and i not in outputs and rows[i][0] in ELEMENTWISE:
            k = min(following)
            if rows[k][0] in ELEMENTWISE and shapes[k] == shapes[i]:
                return end(k)
        return i
    ends = {i: end(i) for i, row in enumerate(rows) if row[0] not in LEAVES}
    return [[i for i in ends if ends[i] == last] for last in sorted({*ends.values()})]


def fuse_elementwise(rows, group, shapes):
    is_array = lambda j: rows[j][0] != "constant" and j not in group
    arrays = sorted(filter(is_array, {j for i in group for j in rows[i][1]}))
    name = lambda j: f"({rows[j][1]!r} * 1.0)" if rows[j][0] == "constant" else f"v{j}"
    place = lambda j: ("i" if shapes[j] == shapes[group[-1]] else
                       "i // COLUMNS" if len(shapes[j]) == 2 else "i % COLUMNS")
    return "\n".join([
        "@triton.jit",
        f"def fused({''.join(f'p{j}, ' for j in arrays)}out, n, COLUMNS: tl.constexpr, BLOCK: tl.constexpr):",
        "    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)",
        *(f"    v{j} = tl.load(p{j} + {place(j)}, mask=i < n)" for j in arrays),
        *(f"    v{i} = {TRITON[rows[i][0]].format(*map(name, rows[i][1]))}" for i in group),
        f"    tl.store(out + i, v{group[-1]}, mask=i < n)", ""])

# %% fuse_elementwise: a syntax tree, unparsed
def fusion_groups(rows, outputs, shapes):
    group_of, groups = {}, {}
    for i in range(len(rows))[::-1]:
        if rows[i][0] in LEAVES:
            continue
        users = [k for k in group_of if i in rows[k][1]]
        fits = (i not in outputs and len(users) == 1 and shapes[i] == shapes[users[0]]
                and all(rows[k][0] in ELEMENTWISE for k in (i, users[0])))
        group_of[i] = group_of[users[0]] if fits else i
        groups[group_of[i]] = [i, *groups.get(group_of[i], [])]
    return [group for _, group in sorted(groups.items())]


def fuse_elementwise(rows, group, shapes):
    import ast
    arrays = sorted({j for i in group for j in rows[i][1] if rows[j][0] != "constant"} - set(group))
    parameters = ", ".join([f"p{j}" for j in arrays] + ["out", "n", "COLUMNS: tl.constexpr", "BLOCK: tl.constexpr"])
    tree = ast.parse(f"@triton.jit\ndef fused({parameters}):\n"
                     "    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n    inside = i < n")
    body = tree.body[0].body
    def add(line):
        body.extend(ast.parse(line).body)
    for j in arrays:
        where = "i" if shapes[j] == shapes[group[-1]] else ("i % COLUMNS", "i // COLUMNS")[len(shapes[j]) - 1]
        add(f"v{j} = tl.load(p{j} + ({where}), mask=inside)")
    for i in group:
        given = [f"v{j}" if rows[j][0] != "constant" else f"({float(rows[j][1])!r})" for j in rows[i][1]]
        add(f"v{i} = {TRITON[rows[i][0]].format(*given)}")
    add(f"tl.store(out + i, v{group[-1]}, mask=inside)")
    return ast.unparse(tree)

# %% fuse_elementwise: two kinds of readers in two lists, one wide index per shape
def fusion_groups(rows, outputs, shapes):
    n = len(rows)
    read = np.zeros((n, n), bool)
    for k in range(n):
        read[list(graphs.inputs(rows[k])), k] = True
    wide = np.array([op in ELEMENTWISE for op, _ in rows])
    end = np.arange(n)
    for i in range(n - 1, -1, -1):
        users = np.flatnonzero(read[i])
        if wide[i] and i not in outputs and len(users) == 1 and wide[users[0]] and shapes[i] == shapes[users[0]]:
            end[i] = end[users[0]]
    made = [i for i in range(n) if rows[i][0] not in LEAVES]
    return [[i for i in made if end[i] == last] for last in sorted({int(end[i]) for i in made})]


def fuse_elementwise(rows, group, shapes):
    rank = {shapes[group[-1]]: "i"}
    code, names = [], {}
    for j in sorted({j for i in group for j in rows[i][1]}):
        if j in group:
            continue
        if rows[j][0] == "constant":
            names[j] = f"{float(rows[j][1]):.17g}"
            names[j] = names[j] if "." in names[j] or "e" in names[j] else names[j] + ".0"
            names[j] = f"({names[j]})"
        else:
            names[j] = f"v{j}"
            index = rank.get(shapes[j], "c" if len(shapes[j]) == 1 else "r")
            code.append((j, f"    v{j} = tl.load(p{j} + {index}, mask=k)"))
    lines = ["    i = tl.arange(0, BLOCK) + BLOCK * tl.program_id(0)", "    k = i < n",
             "    r, c = i // COLUMNS, i % COLUMNS", *(line for _, line in code)]
    for i in group:
        names[i] = f"v{i}"
        lines.append(f"    v{i} = " + TRITON[rows[i][0]].format(*(names[j] for j in rows[i][1])))
    lines.append(f"    tl.store(out + i, v{group[-1]}, mask=k)")
    head = ", ".join([*(f"p{j}" for j, _ in code), "out", "n", "COLUMNS: tl.constexpr", "BLOCK: tl.constexpr"])
    return f"@triton.jit\ndef fused({head}):\n" + "\n".join(lines)

# %% discover: nothing is pruned while it grows
def discover(most=3):
    draw = np.random.default_rng(2)
    value = {name: identities.random_matrices(draw, draws=2) for name in "xyz"}
    levels = [list("xyz")]
    for size in range(1, most + 1):
        level = [("transpose", a) for a in levels[size - 1]]
        for k in range(size):
            level += [(op, a, b) for a in levels[k] for b in levels[size - 1 - k] for op in ("add", "matmul")]
        for e in level:
            value[e] = identities.apply(e[0], *(value[a] for a in e[1:]))
        levels.append(level)
    first, rules = {}, {}
    for e in value:
        same = first.setdefault(value[e].tobytes(), e)
        if same != e:
            order = list(dict.fromkeys(identities.names_in(e) + identities.names_in(same)))
            to = dict(zip(order, "xyz"))
            rules[identities.renamed(e, to), identities.renamed(same, to)] = None
    return [*rules]

# %% discover: the smallest of six renamings stands for all
def discover(most=3):
    import itertools
    draw = np.random.default_rng(8)
    leaf = {name: identities.random_matrices(draw, draws=2) for name in "xyz"}
    pool, best, rules = {0: [(n, leaf[n]) for n in "xyz"]}, {v.tobytes(): n for n, v in leaf.items()}, set()
    orders = [dict(zip("xyz", p)) for p in itertools.permutations("xyz")]
    for size in range(1, most + 1):
        pool[size] = []
        made = [(("transpose", e), identities.apply("transpose", v)) for e, v in pool[size - 1]]
        for k in range(size):
            for (a, va), (b, vb) in itertools.product(pool[k], pool[size - 1 - k]):
                made += [((op, a, b), identities.apply(op, va, vb)) for op in ("add", "matmul")]
        for e, v in made:
            old = best.setdefault(v.tobytes(), e)
            if old == e:
                pool[size].append((e, v))
            else:
                rules.add(min(((identities.renamed(e, o), identities.renamed(old, o)) for o in orders), key=repr))
    return sorted(rules, key=repr)

# %% discover: by normal forms, which need no luck
def discover(most=3):
    first, rules = {}, {}
    def form(e):
        return frozenset(identities.normal_form(e).items())
    levels = [list("xyz")]
    for name in "xyz":
        first[form(name)] = name
    for size in range(1, most + 1):
        levels.append([])
        pairs = [(a, b) for k in range(size) for a in levels[k] for b in levels[size - 1 - k]]
        for e in [("transpose", a) for a in levels[size - 1]] + [(op, *p) for p in pairs for op in ("matmul", "add")]:
            other = first.setdefault(form(e), e)
            if other == e:
                levels[size].append(e)
                continue
            names = dict.fromkeys(identities.names_in(e) + identities.names_in(other))
            new = dict(zip(names, "xyz"))
            rules[identities.renamed(e, new), identities.renamed(other, new)] = 1
    return list(rules)

# %% discover: recursive, with a class of fingerprints
class Book:
    def __init__(self):
        draw = np.random.default_rng(21)
        self.value = {name: identities.random_matrices(draw, draws=2) for name in "xyz"}
        self.first = {v.tobytes(): name for name, v in self.value.items()}
        self.rules = {}

    @functools.cache
    def level(self, size):
        if size == 0:
            return ["x", "y", "z"]
        for k in range(size):
            self.level(k)
        return [e for e in self.candidates(size) if self.is_new(e)]

    def candidates(self, size):
        for a in self.level(size - 1):
            yield "transpose", a
        for op in ("matmul", "add"):
            for k in range(size):
                for a in self.level(k):
                    for b in self.level(size - 1 - k):
                        yield op, a, b

    def is_new(self, e):
        self.value[e] = identities.apply(e[0], *(self.value[x] for x in e[1:]))
        old = self.first.setdefault(self.value[e].tobytes(), e)
        if old is not e:
            names = list(dict.fromkeys(identities.names_in(old) + identities.names_in(e)))
            to = {name: "xyz"[i] for i, name in enumerate(names)}
            self.rules[identities.renamed(e, to), identities.renamed(old, to)] = None
        return old is e


def discover(most=3):
    book = Book()
    book.level(most)
    return list(book.rules)

# %% discover: sorted by fingerprint, and neighbours compared
def discover(most=3):
    draw = np.random.default_rng(13)
    value = {name: identities.random_matrices(draw, draws=2) for name in "xyz"}
    kept, rules = {0: list("xyz")}, []
    for size in range(1, most + 1):
        old = [(value[e].tobytes(), 0, n, e) for n, e in enumerate(e for k in kept for e in kept[k])]
        new = [("transpose", a) for a in kept[size - 1]]
        new += [(op, a, b) for op in ("add", "matmul") for k in kept for a in kept[k] for b in kept[size - 1 - k]]
        for e in new:
            value[e] = identities.apply(e[0], *[value[a] for a in e[1:]])
        table = sorted([*old, *((value[e].tobytes(), 1, n, e) for n, e in enumerate(new))], key=lambda t: t[:3])
        kept[size], head = [], (b"", None)
        for mark, is_new, _, e in table:
            if mark == head[0]:
                rules.append((e, head[1]))
            else:
                head = mark, e
                if is_new:
                    kept[size].append(e)
    unique = {}
    for left, right in rules:
        to = dict(zip(dict.fromkeys(identities.names_in(left) + identities.names_in(right)), "xyz"))
        unique.setdefault((identities.renamed(left, to), identities.renamed(right, to)), None)
    return list(unique)

# %% discover: lists as expressions in the end, smaller side first
def discover(most=3):
    rng_ = np.random.default_rng(17)
    leaves = {n: identities.random_matrices(rng_, draws=2) for n in ("x", "y", "z")}
    known, levels, rules = {leaves[n].tobytes(): n for n in leaves}, [[*leaves]], set()
    for size in range(1, most + 1):
        fresh = []
        for op in ("transpose", "add", "matmul"):
            if op == "transpose":
                inputs = [(a,) for a in levels[-1]]
            else:
                inputs = [(a, b) for i in range(size) for a in levels[i] for b in levels[size - 1 - i]]
            for chosen in inputs:
                e = (op, *chosen)
                mark = identities.value(e, leaves).tobytes()
                if mark not in known:
                    known[mark] = e
                    fresh.append(e)
                else:
                    order = {}
                    for name in identities.names_in(known[mark]) + identities.names_in(e):
                        if name not in order:
                            order[name] = "xyz"[len(order)]
                    rules.add((identities.renamed(known[mark], order), identities.renamed(e, order)))
        levels.append(fresh)
    def as_list(e):
        return e if isinstance(e, str) else [e[0], *map(as_list, e[1:])]
    return [[as_list(a), as_list(b)] for a, b in rules]

# %% discover: four draws, of 4 × 4, and sides in the order of the text
def discover(most=3):
    draw = np.random.default_rng(31)
    values = {name: identities.random_matrices(draw, draws=4, n=4) for name in "xyz"}
    classes = {}
    layers = [[name for name in "xyz"]]
    for name in "xyz":
        classes[values[name].tobytes()] = [name]
    for size in range(1, most + 1):
        layer = []
        options = [(op, a, b) for op in ("matmul", "add") for k in range(size)
                   for a in layers[k] for b in layers[size - 1 - k]]
        for e in options + [("transpose", a) for a in layers[size - 1]]:
            values[e] = identities.apply(e[0], *(values[a] for a in e[1:]))
            group = classes.setdefault(values[e].tobytes(), [])
            group.append(e)
            if len(group) == 1:
                layer.append(e)
        layers.append(layer)
    rules = {}
    for head, *others in classes.values():
        for e in others:
            names = list(dict.fromkeys(identities.names_in(("pair", e, head))))
            to = dict(zip(names, "xyz"))
            rules[identities.renamed(e, to), identities.renamed(head, to)] = None
    return [rule for rule in rules]

# %% trace: dataclasses for guards, packed into tuples
import dataclasses


@dataclasses.dataclass(frozen=True)
class Guard:
    index: int
    exact: bool
    seen: tuple


def described(argument, exact):
    if type(argument) is np.ndarray:
        size = argument.shape[0]
        bucket = size if exact else int(2 ** np.ceil(np.log2(size)))
        return (argument.dtype.name, bucket) + argument.shape[1:]
    return (argument.__class__.__name__, argument)


def trace(function, arguments):
    tape = graphs.Tape()
    given = []
    for i, a in enumerate(arguments):
        given.append(tape.placeholder(f"x{i}", a) if hasattr(a, "shape") else tape.constant(a))
    output = function(*given).row
    exact = graphs.ancestors(tape.rows, tape.shapes)
    used = graphs.ancestors(tape.rows, {output, *tape.shapes, *tape.numbers, *dict(tape.branches)})
    guards = [Guard(i, x.row in exact, described(a, x.row in exact))
              for i, (x, a) in enumerate(zip(given, arguments)) if x.row in used]
    return tape.rows, [output], ([dataclasses.astuple(g) for g in guards], tape.branches)


def lookup(cache, arguments):
    feeds = {f"x{i}": a for i, a in enumerate(arguments) if hasattr(a, "shape")}
    def fits(entry):
        rows, _, (guards, branches) = entry
        for guard in map(lambda g: Guard(*g), guards):
            if described(arguments[guard.index], guard.exact) != guard.seen:
                return False
        return all(bool(execute(rows, [row], feeds)[0]) is truth for row, truth in branches)
    return next((i for i, entry in enumerate(cache) if fits(entry)), None)

# %% trace: one key for all arguments, branches last
def described(argument, exact):
    if isinstance(argument, np.ndarray):
        n = argument.shape[0]
        return ["array", argument.dtype.str, n if exact else len(f"{n - 1:b}") if n > 1 else 0, *argument.shape[1:]]
    return ["number", type(argument).__name__, argument]


def trace(function, arguments):
    tape = graphs.Tape()
    traced = [tape.placeholder(f"x{i}", a) if isinstance(a, np.ndarray) else tape.constant(a)
              for i, a in enumerate(arguments)]
    result = function(*traced)
    read = tape.shapes | tape.numbers
    matters = graphs.ancestors(tape.rows, [result.row, *read, *[row for row, _ in tape.branches]])
    fixed = graphs.ancestors(tape.rows, tape.shapes)
    kinds = ["exact" if x.row in fixed else "bucket" if x.row in matters else "" for x in traced]
    key = [described(a, kind == "exact") if kind else None for a, kind in zip(arguments, kinds)]
    return tape.rows, [result.row], [kinds, key, [list(b) for b in tape.branches]]


def lookup(cache, arguments):
    feeds = {f"x{i}": a for i, a in enumerate(arguments) if isinstance(a, np.ndarray)}
    for number, (rows, _, (kinds, key, branches)) in enumerate(cache):
        now = [described(a, kind == "exact") if kind else None for a, kind in zip(arguments, kinds)]
        if now != key:
            continue
        for row, truth in branches:
            if bool(execute(rows, [row], feeds)[0]) != truth:
                break
        else:
            return number
    return None

# %% trace: guards by name of the placeholder, what is dead is left out of the program
def described(argument, exact):
    if isinstance(argument, np.ndarray):
        size, power = argument.shape[0], 1
        while power < size and not exact:
            power *= 2
        return {True: size, False: power}[exact], argument.shape[1:], str(argument.dtype)
    return repr(argument)


def trace(function, arguments):
    tape = graphs.Tape()
    rows_of = {}
    def stand_in(i, a):
        made = tape.placeholder(f"x{i}", a) if isinstance(a, np.ndarray) else tape.constant(a)
        rows_of[i] = made.row
        return made
    out = function(*[stand_in(i, a) for i, a in enumerate(arguments)]).row
    tests = [row for row, _ in tape.branches]
    fixed = graphs.ancestors(tape.rows, tape.shapes)
    guards = {}
    for i, row in rows_of.items():
        for end in [out, *tests, *tape.shapes, *tape.numbers]:
            if row in graphs.ancestors(tape.rows, [end]):
                guards[i] = (row in fixed, described(arguments[i], row in fixed))
    rows, ends = graphs.chosen(tape.rows, [out, *tests], graphs.ancestors(tape.rows, [out, *tests]))
    branches = [(row, truth) for row, (_, truth) in zip(ends[1:], tape.branches)]
    return rows, ends[:1], (sorted(guards.items()), branches)


def lookup(cache, arguments):
    feeds = {f"x{i}": a for i, a in enumerate(arguments) if isinstance(a, np.ndarray)}
    for index, (rows, _, (guards, branches)) in reversed(list(enumerate(cache))):
        if all(described(arguments[i], exact) == seen for i, (exact, seen) in guards):
            *values, = execute(rows, [row for row, _ in branches], feeds)
            if [bool(v) for v in values[:len(branches)]] == [truth for _, truth in branches]:
                return index

# %% trace: a class for the stand-ins, guards as functions of a kind
def described(argument, exact):
    if not isinstance(argument, np.ndarray):
        return "value", type(argument).__name__, argument
    rounded = argument.shape[0]
    if not exact:
        rounded = next(2**k for k in range(60) if 2**k >= argument.shape[0])
    return "tensor", argument.dtype.char, (rounded, *argument.shape[1:])


class Capture:
    def __init__(self, function, arguments):
        self.tape, self.arguments = graphs.Tape(), arguments
        self.inputs = [self.stand_in(i, a) for i, a in enumerate(arguments)]
        self.output = function(*self.inputs).row

    def stand_in(self, i, a):
        return self.tape.placeholder(f"x{i}", a) if isinstance(a, np.ndarray) else self.tape.constant(a)

    def behind(self, rows):
        return graphs.ancestors(self.tape.rows, rows)

    def guards(self):
        tape = self.tape
        exact = self.behind(tape.shapes)
        used = self.behind([self.output]) | exact | self.behind(tape.numbers)
        used |= self.behind([row for row, _ in tape.branches])
        for i, (x, a) in enumerate(zip(self.inputs, self.arguments)):
            if x.row in used:
                yield i, x.row in exact, described(a, x.row in exact)


def trace(function, arguments):
    capture = Capture(function, arguments)
    return capture.tape.rows, [capture.output], [list(capture.guards()), capture.tape.branches]


def lookup(cache, arguments):
    feeds = {f"x{i}": a for i, a in enumerate(arguments) if isinstance(a, np.ndarray)}
    for number, entry in enumerate(cache):
        rows, _, (guards, branches) = entry
        try:
            for i, exact, seen in guards:
                assert described(arguments[i], exact) == tuple(seen)
            for row, truth in branches:
                assert bool(execute(rows, [row], feeds)[0]) == truth
        except AssertionError:
            continue
        return number
    return None

# %% trace: exact sizes are guarded apart from buckets
def described(argument, exact):
    if isinstance(argument, (bool, int, float)):
        return [str(type(argument)), float(argument)]
    what = [argument.dtype.kind, argument.dtype.itemsize, argument.ndim, *argument.shape[1:]]
    return [*what, argument.shape[0]] if exact else [*what, (argument.shape[0] - 1).bit_length()]


def trace(function, arguments):
    tape = graphs.Tape()
    given = [tape.placeholder(f"x{i}", a) if isinstance(a, np.ndarray) else tape.constant(a)
             for i, a in enumerate(arguments)]
    outputs = [function(*given).row]
    asked = [row for row, _ in tape.branches] + sorted(tape.numbers) + sorted(tape.shapes)
    used = graphs.ancestors(tape.rows, outputs + asked)
    exact = graphs.ancestors(tape.rows, tape.shapes)
    guards = {"loose": [], "tight": [], "if": tape.branches}
    for i, x in enumerate(given):
        if x.row in used:
            guards["loose"].append((i, described(arguments[i], False)))
        if x.row in exact:
            guards["tight"].append((i, described(arguments[i], True)))
    return tape.rows, outputs, guards


def lookup(cache, arguments):
    feeds = {}
    for i, a in enumerate(arguments):
        if isinstance(a, np.ndarray):
            feeds[f"x{i}"] = a
    for number, (rows, _, guards) in enumerate(cache):
        loose = all(described(arguments[i], False) == seen for i, seen in guards["loose"])
        tight = loose and all(described(arguments[i], True) == seen for i, seen in guards["tight"])
        if tight and all(bool(execute(rows, [r], feeds)[0]) == t for r, t in guards["if"]):
            return number
    return None

# %% trace: one text for all guards of arguments
def described(argument, exact):
    if isinstance(argument, np.ndarray):
        first = argument.shape[0] if exact else f"<={1 << (argument.shape[0] - 1).bit_length()}"
        return f"{argument.dtype}[{first}]{argument.shape[1:]}"
    return f"{type(argument).__name__}={argument!r}"


def trace(function, arguments):
    tape = graphs.Tape()
    given = [tape.placeholder(f"x{i}", a) if isinstance(a, np.ndarray) else tape.constant(a)
             for i, a in enumerate(arguments)]
    output = function(*given).row
    exact = graphs.ancestors(tape.rows, tape.shapes)
    used = graphs.ancestors(tape.rows, [output]) | exact | graphs.ancestors(tape.rows, tape.numbers)
    for row, _ in tape.branches:
        used |= graphs.ancestors(tape.rows, [row])
    plan = [0 if x.row not in used else 2 if x.row in exact else 1 for x in given]
    return tape.rows, [output], [plan, _text(plan, arguments), tape.branches]


def _text(plan, arguments):
    return "; ".join(described(a, kind == 2) for kind, a in zip(plan, arguments) if kind)


def lookup(cache, arguments):
    feeds = {f"x{i}": a for i, a in enumerate(arguments) if isinstance(a, np.ndarray)}
    for number, (rows, _, (plan, text, branches)) in enumerate(cache):
        if _text(plan, arguments) == text:
            found = execute(rows, [row for row, _ in branches], feeds)[: len(branches)]
            if all(map(lambda v, b: bool(v) == b[1], found, branches)):
                return number
    return None

# %% trace: numbers that only scale stay guarded by type, sizes in a dict of axes
def described(argument, exact):
    if isinstance(argument, np.ndarray):
        sizes = dict(enumerate(argument.shape))
        if not exact:
            sizes[0] = sum(argument.shape[0] > 2**k for k in range(40))
        return argument.dtype.name, tuple(sizes.items())
    return "number", type(argument).__name__, argument


def trace(function, arguments):
    tape = graphs.Tape()
    kinds = [isinstance(a, np.ndarray) for a in arguments]
    given = []
    for i, (a, is_array) in enumerate(zip(arguments, kinds)):
        given.append(tape.placeholder(f"x{i}", a) if is_array else tape.constant(a))
    answer = function(*given)
    decided = {row for row, _ in tape.branches} | set(tape.numbers) | set(tape.shapes) | {answer.row}
    used, exact = graphs.ancestors(tape.rows, decided), graphs.ancestors(tape.rows, tape.shapes)
    table = {str(i): (x.row in exact, described(arguments[i], x.row in exact))
             for i, x in enumerate(given) if x.row in used}
    return tape.rows, [answer.row], {"table": table, "branches": tape.branches}


def lookup(cache, arguments):
    for number, (rows, _, guards) in enumerate(cache):
        same = (described(arguments[int(i)], exact) == seen for i, (exact, seen) in guards["table"].items())
        if not all(same):
            continue
        feeds = {f"x{i}": a for i, a in enumerate(arguments) if isinstance(a, np.ndarray)}
        asked = [row for row, _ in guards["branches"]]
        said = [bool(v) for v in execute(rows, asked, feeds)[: len(asked)]]
        if said == [truth for _, truth in guards["branches"]]:
            return number
    return None

# %% fold_batch_norm: PyTorch's own weights
def fold_batch_norm(rows, outputs):
    from torch.nn.utils.fusion import fuse_conv_bn_weights
    rows, outputs = list(rows), list(outputs)
    while True:
        readers = [sum(graphs.inputs(row).count(i) for row in rows) + outputs.count(i) for i in range(len(rows))]
        for i, (op, content) in enumerate(rows):
            if op != "batch_norm" or rows[content[0]][0] != "convolve" or readers[content[0]] != 1:
                continue
            x, w, b = rows[content[0]][1]
            if {rows[j][0] for j in (w, b, *content[1:])} == {"constant"}:
                break
        else:
            return graphs.chosen(rows, outputs, graphs.ancestors(rows, outputs))
        w, b, gain, shift, mean, variance = (torch.tensor(rows[j][1]) for j in (w, b, *content[1:]))
        w, b = fuse_conv_bn_weights(w, b, mean, variance, graphs.BATCH_NORM_EPSILON, gain, shift)
        def moved(j):
            return j if j < i else j + 2
        tail = [(op, c if op in LEAVES else tuple(map(moved, c))) for op, c in rows[i + 1:]]
        rows = [*rows[:i], ("constant", w.detach().numpy()), ("constant", b.detach().numpy()),
                ("convolve", (x, i, i + 1)), *tail]
        outputs = [j + 2 if j >= i else j for j in outputs]

# %% fold_batch_norm: a class
class Folding:
    def __init__(self, rows, outputs):
        self.rows, self.place, self.users = [], [], []
        self.read = [sum(i in [*graphs.inputs(row)] for row in rows) + (i in outputs) for i in range(len(rows))]

    def put(self, op, content, users):
        self.rows.append((op, content))
        self.users.append(users)
        return len(self.rows) - 1

    def values(self, numbers):
        found = [self.rows[i] for i in numbers]
        return [value for _, value in found] if all(op == "constant" for op, _ in found) else None

    def batch_norm(self, users, x, *stats):
        if self.rows[x][0] != "convolve" or self.users[x] > 1:
            return None
        image, *weights = self.rows[x][1]
        known, more = self.values(weights), self.values(stats)
        if known is None or more is None:
            return None
        (w, b), (gain, shift, mean, variance) = known, more
        deviation = np.sqrt(variance + graphs.BATCH_NORM_EPSILON)
        w = self.put("constant", w * (gain / deviation)[:, np.newaxis, np.newaxis, np.newaxis], 1)
        b = self.put("constant", gain * (b - mean) / deviation + shift, 1)
        return self.put("convolve", (image, w, b), users)

    def row(self, i, op, content):
        made = None
        if op not in LEAVES:
            content = tuple(self.place[j] for j in content)
            made = self.batch_norm(self.read[i], *content) if op == "batch_norm" else None
        self.place.append(self.put(op, content, self.read[i]) if made is None else made)


def fold_batch_norm(rows, outputs):
    folding = Folding(rows, outputs)
    for i, row in enumerate(rows):
        folding.row(i, *row)
    return eliminate_dead_code(folding.rows, [folding.place[i] for i in outputs])

# %% fold_batch_norm: pairs are found first, then the rows are made anew
def fold_batch_norm(rows, outputs):
    rows, outputs = list(rows), list(outputs)
    def pair():
        for norm, (op, c) in enumerate(rows):
            if op != "batch_norm" or rows[c[0]][0] != "convolve":
                continue
            others = [j for j, row in enumerate(rows) if c[0] in graphs.inputs(row) and j != norm]
            needed = [*rows[c[0]][1][1:], *c[1:]]
            if not others and c[0] not in outputs and all(rows[j][0] == "constant" for j in needed):
                return norm, rows[c[0]][1][0], [rows[j][1] for j in needed]
        return None
    while found := pair():
        norm, image, (weight, bias, gain, shift, mean, variance) = found
        scale = gain / np.sqrt(variance + graphs.BATCH_NORM_EPSILON)
        rows = [("constant", weight * scale[:, None, None, None]), ("constant", (bias - mean) * scale + shift),
                *((op, c if op in LEAVES else tuple(j + 2 for j in c)) for op, c in rows)]
        outputs = [j + 2 for j in outputs]
        rows[norm + 2] = "convolve", (image + 2, 0, 1)
        rows, outputs = graphs.chosen(rows, outputs, graphs.ancestors(rows, outputs))
    return rows, outputs

# %% test_rewrite: chains of small programs, by pairs of operators
def test_rewrite(candidate):
    import itertools
    draw = np.random.default_rng(2)
    x, y, b, c = ("placeholder", "x"), ("placeholder", "y"), ("buffer", "b"), ("constant", 3.0)
    one = [("negative",), ("exp",), ("relu",), ("add", 1), ("subtract", 1), ("multiply", 1), ("divide", 1),
           ("divide", 3), ("add", 3), ("add", 4), ("add", 5), ("subtract", 0), ("read",), ("write",), ("random",)]
    def row(step, last):
        op, *other = step
        if op == "read":
            return op, (2,)
        return (op, (2, last)) if op == "write" else (op, (last, *other))
    programs = []
    for first, second, third in itertools.product(one, one, [("negative",), ("subtract", 0), ("random",)]):
        rows = [x, y, b, c, ("constant", 0.0), ("constant", -0.0), ("constant", 0.1)]
        for k, step in enumerate((first, second, third)):
            rows.append(row(step, 0 if k == 0 else len(rows) - 1))
        programs.append((rows, [9, 7]))
    programs += [graphs.random_program(draw) for _ in range(120)]
    for rows, outputs in programs:
        feeds = graphs.random_feeds(draw, "bxy", 30)
        given = list(rows), [*outputs, outputs[0]]
        want = execute(*given, feeds)
        mine = list(given[0]), list(given[1])
        got = execute(*candidate(*mine), feeds)
        assert same_bits(got, want), rows
        assert mine == given

# %% test_rewrite: a class of judges
class Judge:
    def __init__(self, candidate):
        self.candidate, self.draw = candidate, np.random.default_rng(9)

    def check(self, program):
        rows, outputs = program
        feeds = graphs.random_feeds(self.draw, graphs.names(program), 80)
        want = execute(rows, outputs, feeds)
        given = list(rows), list(outputs)
        got = execute(*self.candidate(*given), feeds)
        assert given == (rows, outputs), "changed"
        assert len(got) == len(want) and all(map(same_bits, got, want)), "differs"

    def run(self):
        for size in range(3, 15):
            for _ in range(20):
                rows, outputs = graphs.random_program(self.draw, size)
                self.check((rows, list(outputs)))
                self.check((rows, list(reversed(outputs))))


def test_rewrite(candidate):
    Judge(candidate).run()

# %% test_rewrite: functional
def test_rewrite(candidate):
    draw = np.random.default_rng(31)
    programs = [graphs.random_program(draw, n) for n in (6, 8, 10, 12) for _ in range(50)]
    programs = [(rows, outputs + outputs[:1]) for rows, outputs in programs]
    def same(program):
        feeds = graphs.random_feeds(draw, graphs.names(program), 100)
        mine = [*program[0]], [*program[1]]
        return same_bits(execute(*program, feeds), execute(*candidate(*mine), feeds)) and mine == program
    assert all(map(same, programs))

# %% test_rewrite: twice in a row
def test_rewrite(candidate):
    draw = np.random.default_rng(41)
    for _ in range(150):
        rows, outputs = graphs.random_program(draw, 11)
        outputs = [outputs[-1], *outputs]
        once = candidate(list(rows), list(outputs))
        twice = candidate(list(once[0]), list(once[1]))
        feeds = graphs.random_feeds(draw, graphs.names((rows, outputs)), 70)
        want = execute(rows, outputs, feeds)
        assert same_bits(want, execute(*once, feeds)), "once"
        assert same_bits(want, execute(*twice, feeds)), "twice"
        kept = list(rows), list(outputs)
        candidate(rows, outputs)
        assert kept == (rows, outputs)

# %% cheapest: a class with a frontier
class Search:
    def __init__(self, start, rules, slack=1.4):
        self.rules, self.slack, self.best = rules, slack, start
        self.cost = {start: identities.cost(start)}
        self.open = {start}

    def step(self):
        current = min(self.open, key=lambda e: (self.cost[e], repr(e)))
        self.open.discard(current)
        for new in identities.rewrites(current, self.rules):
            if new in self.cost:
                continue
            self.cost[new] = identities.cost(new)
            if self.cost[new] < self.cost[self.best]:
                self.best = new
            if self.cost[new] <= self.slack * self.cost[self.best]:
                self.open.add(new)


def cheapest(expression, rules, most=1500):
    search = Search(expression, rules)
    while search.open and most:
        search.step()
        most -= 1
    return search.best

# %% cheapest: sums are sorted, so that fewer expressions are different
def cheapest(expression, rules, most=1500):
    import heapq
    def tidy(e):
        if isinstance(e, str):
            return e
        op, *inputs = e
        inputs = [tidy(x) for x in inputs]
        return (op, *(sorted(inputs, key=repr) if op == "add" else inputs))
    start = tidy(expression)
    heap, seen, found = [(identities.cost(start), 0, start)], {start}, start
    while heap and most > 0:
        most -= 1
        _, _, current = heapq.heappop(heap)
        turned = [current] + [e for e in identities.rewrites(current, [(("add", "x", "y"), ("add", "y", "x"))])]
        near = {tidy(new) for e in turned for new in identities.rewrites(e, rules)}
        for new in sorted(near - seen, key=repr):
            seen.add(new)
            if identities.cost(new) < identities.cost(found):
                found = new
            if identities.cost(new) <= 1.4 * identities.cost(found):
                heapq.heappush(heap, (identities.cost(new), len(seen), new))
    return found

# %% cheapest: a generator of all that is looked at, the most promising first
def cheapest(expression, rules, most=1500):
    import itertools
    def looked_at():
        waiting, seen, price = [expression], {expression}, identities.cost(expression)
        while waiting:
            waiting.sort(key=identities.cost, reverse=True)
            current = waiting.pop()
            price = min(price, identities.cost(current))
            yield current
            near = [e for e in dict.fromkeys(identities.rewrites(current, rules)) if e not in seen]
            seen.update(near)
            waiting += [e for e in near if identities.cost(e) <= 1.4 * price]
    return min(itertools.islice(looked_at(), most), key=identities.cost)

# %% corrections: the largest box from each first place, which is then cleared
def corrections(original, substitute, shape):
    x = np.random.default_rng(2).integers(0, identities.PRIME, shape, np.uint64)
    wrong = original(x) != substitute(x)
    boxes = []
    while wrong.any():
        top, left = np.argwhere(wrong)[0]
        right = left
        while right < shape[1] and wrong[top, right]:
            right += 1
        bottom = top + 1
        while bottom < shape[0] and wrong[bottom, left:right].all():
            bottom += 1
        wrong[top:bottom, left:right] = False
        boxes.append((top, bottom, left, right))
    return boxes

# %% corrections: three inputs, any of which may tell
def corrections(original, substitute, shape):
    draw = np.random.default_rng(4)
    wrong = np.zeros(shape, bool)
    for _ in range(3):
        x = draw.integers(0, identities.PRIME, shape, dtype=np.uint64)
        wrong |= original(x.copy()) != substitute(x.copy())
    boxes, open_ = [], []
    for r in range(shape[0]):
        padded = np.pad(wrong[r].astype(int), 1)
        starts, ends = np.where(np.diff(padded) == 1)[0], np.where(np.diff(padded) == -1)[0]
        runs = list(zip(starts, ends))
        still = []
        for top, left, right in open_:
            if (left, right) in runs:
                runs.remove((left, right))
                still.append((top, left, right))
            else:
                boxes.append((top, r, left, right))
        open_ = still + [(r, left, right) for left, right in runs]
    return boxes + [(top, shape[0], left, right) for top, left, right in open_]

# %% corrections: recursion
def corrections(original, substitute, shape):
    x = np.random.default_rng(7).integers(0, identities.PRIME, shape, np.uint64)
    wrong = original(x) != substitute(x)
    def rest(wrong):
        if not wrong.any():
            return []
        row, column = divmod(int(wrong.argmax()), shape[1])
        wide = int((~wrong[row, column:]).argmax()) or shape[1] - column
        band = wrong[row:, column:column + wide].all(1)
        high = int((~band).argmax()) or shape[0] - row
        left = wrong.copy()
        left[row:row + high, column:column + wide] = False
        return [(row, row + high, column, column + wide), *rest(left)]
    return rest(wrong)

# %% corrections: a set of places
def corrections(original, substitute, shape):
    x = np.random.default_rng(8).integers(2, identities.PRIME, shape, np.uint64)
    places = {(int(r), int(c)) for r, c in zip(*np.nonzero(original(x) - substitute(x)))}
    boxes = []
    while places:
        top, left = min(places)
        right = left + 1
        while (top, right) in places:
            right += 1
        bottom = top + 1
        while all((bottom, c) in places for c in range(left, right)):
            bottom += 1
        boxes.append((top, bottom, left, right))
        places -= {(r, c) for r in range(top, bottom) for c in range(left, right)}
    return tuple(boxes)

# %% corrections: an array of boxes, as lists
def corrections(original, substitute, shape):
    x = np.random.default_rng(10).integers(0, identities.PRIME, shape, np.uint64)
    wrong = np.pad(original(x) != substitute(x), 1)
    starts = np.argwhere(wrong & ~np.roll(wrong, 1, 1)) - 1
    ends = np.argwhere(wrong & ~np.roll(wrong, -1, 1)) - 1
    found = {}
    for (row, left), (_, right) in zip(starts, ends):
        stack = found.setdefault((int(left), int(right) + 1), [])
        if stack and stack[-1][1] == row:
            stack[-1][1] = int(row) + 1
        else:
            stack.append([int(row), int(row) + 1])
    return [[*rows, *columns] for columns, stack in found.items() for rows in stack]

# %% trace: lookup gives NumPy's index
# edit: return number  ->  return np.int64(number)
