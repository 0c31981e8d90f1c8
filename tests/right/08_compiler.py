# %% eliminate_dead_code: a stack
def eliminate_dead_code(rows, outputs):
    stack = [*outputs, *(i for i, row in enumerate(rows) if row[0] in EFFECTS)]
    needed = set()
    while stack:
        i = stack.pop()
        if i not in needed:
            needed.add(i)
            stack.extend(graphs.inputs(rows[i]))
    return graphs.chosen(rows, outputs, needed)

# %% eliminate_dead_code: ancestors, in a line
def eliminate_dead_code(rows, outputs):
    effects = [i for i, (op, _) in enumerate(rows) if op in EFFECTS]
    return graphs.chosen(rows, outputs, graphs.ancestors(rows, [*outputs, *effects]))

# %% eliminate_dead_code: renumbered by hand, again and again until nothing changes
def eliminate_dead_code(rows, outputs):
    rows, outputs = list(rows), list(outputs)
    changed = True
    while changed:
        changed = False
        for i in reversed(range(len(rows))):
            read = any(i in graphs.inputs(row) for row in rows) or i in outputs
            if not read and rows[i][0] not in EFFECTS:
                del rows[i]
                rows = [(op, c if op in LEAVES else tuple(j - (j > i) for j in c)) for op, c in rows]
                outputs = [j - (j > i) for j in outputs]
                changed = True
    return rows, outputs

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

# %% eliminate_common_subexpressions: versions per buffer, and dead code goes, too
def eliminate_common_subexpressions(rows, outputs):
    new, place, known, version = [], [], {}, {}
    for number, (op, content) in enumerate(rows):
        if op == "constant":
            key = (op, np.asarray(content, float).shape, np.asarray(content, float).tobytes())
        elif op in LEAVES:
            key = (op, content)
        else:
            content = tuple(place[i] for i in content)
            key = (op, frozenset(content) if op in COMMUTATIVE else content,
                   version.get(content[0], 0) if op == "read" else 0,
                   number if op in EFFECTS else -1)
            if op == "write":
                version[content[0]] = version.get(content[0], 0) + 1
        if key not in known:
            known[key] = len(new)
            new.append((op, content))
        place.append(known[key])
    return eliminate_dead_code(new, [place[i] for i in outputs])

# %% fold_constants: a function per rule
def fold_constants(rows, outputs):
    new, place = [], []
    def number(i, wanted):
        op, value = new[i]
        return op == "constant" and np.ndim(value) == 0 and repr(float(value)) == repr(wanted)
    def given_back(op, content):
        if op == "multiply":
            return next((a for a, b in (content, content[::-1]) if number(b, 1.0)), None)
        if op == "add":
            return next((a for a, b in (content, content[::-1]) if number(b, -0.0)), None)
        if op == "divide" and number(content[1], 1.0) or op == "subtract" and number(content[1], 0.0):
            return content[0]
        if op == "negative" and new[content[0]][0] == "negative":
            return new[content[0]][1][0]
        return None
    for op, content in rows:
        if op in LEAVES:
            place.append(len(new))
            new.append((op, content))
            continue
        content = tuple(place[i] for i in content)
        same = given_back(op, content)
        if op not in ("read", "write", "random") and all(new[i][0] == "constant" for i in content):
            place.append(len(new))
            new.append(("constant", evaluate(op, *[new[i][1] for i in content])))
        elif same is not None:
            place.append(same)
        else:
            place.append(len(new))
            new.append((op, content))
    return new, [place[i] for i in outputs]

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

# %% minify: recursive
def minify(rows, outputs, fails):
    for i, (op, _) in enumerate(rows):
        for less in graphs.without(rows, outputs, i) if op not in LEAVES else []:
            if fails(*less):
                return minify(*less, fails)
    return rows, outputs

# %% minify: the smallest of each round
def minify(rows, outputs, fails):
    while True:
        found = [less for i, (op, _) in enumerate(rows) if op not in LEAVES
                 for less in graphs.without(rows, outputs, i) if fails(*less)]
        if not found:
            return rows, outputs
        rows, outputs = min(found, key=lambda less: graphs.operators(less[0]))

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

# %% discover: larger matrices, a list of rules
def discover(most=3):
    draw = np.random.default_rng(5)
    values = {name: identities.random_matrices(draw, draws=3, n=4) for name in "xyz"}
    first = {values[name].tobytes(): name for name in "xyz"}
    sizes, rules, seen = {0: ["x", "y", "z"]}, [], set()
    for size in range(1, most + 1):
        sizes[size] = []
        new = [("transpose", a) for a in sizes[size - 1]]
        new += [("add", a, b) for k in range(size) for a in sizes[k] for b in sizes[size - 1 - k]]
        new += [("matmul", a, b) for k in range(size) for a in sizes[k] for b in sizes[size - 1 - k]]
        for e in new:
            v = identities.apply(e[0], *[values[a] for a in e[1:]])
            if v.tobytes() in first:
                other, names = first[v.tobytes()], {}
                for name in identities.names_in(e) + identities.names_in(other):
                    names.setdefault(name, "xyz"[len(names)] if name not in names else None)
                rule = identities.renamed(e, names), identities.renamed(other, names)
                if rule not in seen:
                    seen.add(rule)
                    rules.append(rule)
            else:
                values[e] = v
                first[v.tobytes()] = e
                sizes[size].append(e)
    return rules

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
