# %% eliminate_dead_code: a write that nobody reads is removed
# says: outlives the run
# edit: if op in EFFECTS:  ->  if op == "random":

# %% eliminate_dead_code: a random operator that nobody reads is removed
# says: A draw moves the generator
# edit: if op in EFFECTS:  ->  if op == "write":

# %% eliminate_dead_code: all effects are removed
# says: outlives the run
# edit: if op in EFFECTS:  ->  if False:

# %% eliminate_dead_code: what a write reads is removed
# says: which it reads, is left out
# edit: if i in needed and op not in LEAVES:  ->  if i in needed and op not in (*LEAVES, "write"):

# %% eliminate_dead_code: nothing is removed
# says: No output needs this operator
def eliminate_dead_code(rows, outputs):
    return rows, outputs

# %% eliminate_dead_code: only what nobody reads at all
# says: What only dead operators read is dead, too
def eliminate_dead_code(rows, outputs):
    read = {j for row in rows for j in graphs.inputs(row)} | set(outputs)
    return graphs.chosen(rows, outputs, [i for i, (op, _) in enumerate(rows)
                                         if i in read or op in EFFECTS or op in LEAVES])

# %% eliminate_dead_code: reads are kept as if they were effects
# says: A read changes nothing
# edit: if op in EFFECTS:  ->  if op in (*EFFECTS, "read"):

# %% eliminate_dead_code: the outputs in ascending order
# says: The outputs keep their order
# edit: return graphs.chosen(rows, outputs, needed)  ->  return graphs.chosen(rows, sorted(outputs), needed)

# %% eliminate_dead_code: each output once
# says: The outputs keep their order and number
# edit: return graphs.chosen(rows, outputs, needed)  ->  return graphs.chosen(rows, list(dict.fromkeys(outputs)), needed)

# %% eliminate_dead_code: the old numbers of the outputs
# says: no program
# edit: return graphs.chosen(rows, outputs, needed)  ->  return graphs.chosen(rows, outputs, needed)[0], outputs

# %% eliminate_dead_code: only the inputs of outputs
# says: which it reads, is left out
def eliminate_dead_code(rows, outputs):
    needed = set(outputs)
    for i in outputs:
        needed.update(graphs.inputs(rows[i]))
    needed.update(i for i, (op, _) in enumerate(rows) if op in EFFECTS)
    return graphs.chosen(rows, outputs, needed)

# %% eliminate_dead_code: rows from the front
# says: which it reads, is left out
# edit: reversed(range(len(rows)))  ->  range(len(rows))

# %% eliminate_common_subexpressions: nothing is removed
# says: is computed twice
def eliminate_common_subexpressions(rows, outputs):
    return rows, outputs

# %% eliminate_common_subexpressions: two random operators become one
# says: Two random operators draw different numbers
# edit: op in EFFECTS or key not in known  ->  op == "write" or key not in known

# %% eliminate_common_subexpressions: across a write
# says: A write lies between the two reads
# edit: key += (writes,)  ->  pass

# %% eliminate_common_subexpressions: two equal writes become one
# says: A write that is made again
# edit: op in EFFECTS or key not in known  ->  op == "random" or key not in known

# %% eliminate_common_subexpressions: reads are never merged
# says: Nothing is written between
# edit: key += (writes,)  ->  key += (len(new),)

# %% eliminate_common_subexpressions: the order of inputs is ignored
# says: subtract does not commute
# edit: tuple(sorted(content)) if op in COMMUTATIVE else content  ->  tuple(sorted(content))

# %% eliminate_common_subexpressions: swapped sums are not seen
# says: a + b is b + a
# edit: tuple(sorted(content)) if op in COMMUTATIVE else content  ->  content

# %% eliminate_common_subexpressions: constants by ==
# says: 0.0 == -0.0
# - key = op, np.shape(content), np.asarray(content, float).tobytes()
# + key = op, np.shape(content), tuple(np.ravel(content).tolist())

# %% eliminate_common_subexpressions: constants without their shape
# says: different shapes
# edit: key = op, np.shape(content), np.asarray(content, float).tobytes()  ->  key = op, np.asarray(content, float).tobytes()

# %% eliminate_common_subexpressions: constants by their first number
# says: Two arrays of one shape
# edit: np.asarray(content, float).tobytes()  ->  np.ravel(content)[:1].tobytes()

# %% eliminate_common_subexpressions: constants are never merged
# says: Two constants with the same bits
# edit: key = op, np.shape(content), np.asarray(content, float).tobytes()  ->  key = op, len(place)

# %% eliminate_common_subexpressions: constants by repr, which is short for arrays
# says: Two constants with the same bits
# edit: key = op, np.shape(content), np.asarray(content, float).tobytes()  ->  key = op, id(content)

# %% eliminate_common_subexpressions: placeholders are never merged
# says: Two placeholders of one name
# edit: key = op, content  ->  key = op, len(place)

# %% eliminate_common_subexpressions: all buffers are one
# says: Two buffers are two memories
# edit: key = op, content  ->  key = op, content if op == "placeholder" else None

# %% eliminate_common_subexpressions: inputs are compared before they are renamed
# says: Inputs that have become one
def eliminate_common_subexpressions(rows, outputs):
    new, place, known, writes = [], [], {}, 0
    for op, content in rows:
        if op == "constant":
            key = op, np.shape(content), np.asarray(content, float).tobytes()
        elif op in LEAVES:
            key = op, content
        else:
            key = op, tuple(sorted(content)) if op in COMMUTATIVE else tuple(content)
            content = tuple(place[i] for i in content)
        if op == "read":
            key += (writes,)
        writes += op == "write"
        if op in EFFECTS or key not in known:
            known[key] = len(new)
            new.append((op, content))
        place.append(known[key])
    return new, [place[i] for i in outputs]

# %% eliminate_common_subexpressions: the outputs keep their old numbers
# says: no program
# edit: return new, [place[i] for i in outputs]  ->  return new, outputs

# %% eliminate_common_subexpressions: the inputs keep their old numbers
# says: its inputs must be earlier rows
# edit: content = tuple(place[i] for i in content)  ->  content = tuple(content)

# %% eliminate_common_subexpressions: only the operator is compared
# says: does not
# - key = op, tuple(sorted(content)) if op in COMMUTATIVE else content
# + key = op, len(content)

# %% fold_constants: nothing is folded
# says: compute it now
def fold_constants(rows, outputs):
    return rows, outputs

# %% fold_constants: only constants, no neutral elements
# says: gives its input back
# edit: elif op in neutral and  ->  elif False and

# %% fold_constants: 0.0 added is dropped, too
# says: -0.0 + 0.0 is 0.0
# edit: same_bits(np.float64(value), np.float64(neutral[op]))  ->  np.ndim(value) == 0 and value == neutral[op]

# %% fold_constants: add with 0.0 instead of -0.0
# says: gives its input back
# edit: "add": -0.0  ->  "add": 0.0

# %% fold_constants: a product with 0 is 0
# says: 0 times infinity is NaN
# -     elif op == "negative" and new[a][0] == "negative":
# +     elif op == "multiply" and any(new[i][0] == "constant" and np.ndim(new[i][1]) == 0 and new[i][1] == 0 for i in content):
# +         op, content = "constant", 0.0
# +     elif op == "negative" and new[a][0] == "negative":

# %% fold_constants: x - x is 0
# says: infinity minus infinity
# -     elif op == "negative" and new[a][0] == "negative":
# +     elif op == "subtract" and a == b:
# +         op, content = "constant", 0.0
# +     elif op == "negative" and new[a][0] == "negative":

# %% fold_constants: x / x is 1
# says: 0 / 0 is NaN
# -     elif op == "negative" and new[a][0] == "negative":
# +     elif op == "divide" and a == b:
# +         op, content = "constant", 1.0
# +     elif op == "negative" and new[a][0] == "negative":

# %% fold_constants: sums are regrouped
# says: rounds twice
# -     elif op == "negative" and new[a][0] == "negative":
# +     elif op == "add" and new[a][0] == "add" and new[b][0] == "constant" == new[new[a][1][1]][0]:
# +         new.append(("constant", new[b][1] + new[new[a][1][1]][1]))
# +         content = new[a][1][0], len(new) - 1
# +     elif op == "negative" and new[a][0] == "negative":

# %% fold_constants: products are regrouped
# says: rounds twice
# -     elif op == "negative" and new[a][0] == "negative":
# +     elif op == "multiply" and new[a][0] == "multiply" and new[b][0] == "constant" == new[new[a][1][1]][0]:
# +         new.append(("constant", new[b][1] * new[new[a][1][1]][1]))
# +         content = new[a][1][0], len(new) - 1
# +     elif op == "negative" and new[a][0] == "negative":

# %% fold_constants: a division becomes a product
# says: x / 3 rounds once
# -     elif op == "negative" and new[a][0] == "negative":
# +     elif op == "divide" and new[b][0] == "constant" and np.ndim(new[b][1]) == 0 and new[b][1] not in (0, 1):
# +         new.append(("constant", 1 / new[b][1]))
# +         op, content = "multiply", (a, len(new) - 1)
# +     elif op == "negative" and new[a][0] == "negative":

# %% fold_constants: exp undoes log
# says: exp(log(x)) rounds
# -     elif op == "negative" and new[a][0] == "negative":
# +     elif op == "exp" and new[a][0] == "log":
# +         place.append(new[a][1][0])
# +         continue
# +     elif op == "negative" and new[a][0] == "negative":

# %% fold_constants: a random operator is folded
# says: KeyError: 'random'
# edit: op not in ("read", *EFFECTS)  ->  op != "write"

# %% fold_constants: a neutral number on either side of everything
# says: is not x
# edit: op in COMMUTATIVE and is_neutral(a, op)  ->  is_neutral(a, op)

# %% fold_constants: an array of ones is a 1
# says: stretches its other factor
# edit: same_bits(np.float64(value), np.float64(neutral[op]))  ->  all(same_bits(np.float64(v), np.float64(neutral[op])) for v in np.ravel(value))

# %% fold_constants: x * -1 is x
# says: x * -1 is not x
# edit: same_bits(np.float64(value), np.float64(neutral[op]))  ->  np.ndim(value) == 0 and same_bits(np.float64(abs(value) if op == "multiply" else value), np.float64(neutral[op]))

# %% fold_constants: one negative undoes another, and relu, too
# says: Only a second negative
# edit: elif op == "negative" and new[a][0] == "negative":  ->  elif op == "negative" and new[a][0] in ("negative", "relu"):

# %% fold_constants: two negatives are kept
# says: The second negative undoes the first
# edit: elif op == "negative" and new[a][0] == "negative":  ->  elif False:

# %% fold_constants: operators on folded constants are kept
# says: can be folded, too
# edit: if all(new[i][0] == "constant" for i in content) and  ->  if all((op_, c_) in rows for op_, c_ in [new[i] for i in content]) and all(new[i][0] == "constant" for i in content) and

# %% fold_constants: the wrong input is kept
# says: A bit has changed
# edit: place.append(a if is_neutral(b, op) else b)  ->  place.append(b if is_neutral(b, op) else a)

# %% fold_constants: the outputs keep their old numbers
# says: no program
# edit: return new, [place[i] for i in outputs]  ->  return new, outputs

# %% fold_constants: two negatives leave a row that nobody counted
# says: each row still needs its own new place
# -         place.append(new[a][1][0])
# -         continue
# +         place.append(new[a][1][0])

# %% fold_constants: a neutral number leaves a row that nobody counted
# says: each row still needs its own new place
# -         place.append(a if is_neutral(b, op) else b)
# -         continue
# +         place.append(a if is_neutral(b, op) else b)

# %% fold_constants: x - (-0.0) is x
# says: gives its input back
# edit: "subtract": 0.0  ->  "subtract": -0.0

# %% counterexample: normal numbers alone
# says: at x = -0.0 alone
# edit: np.where(draw.random(400) < 0.6, draw.choice(hard, 400), plain)  ->  draw.normal(size=400)

# %% counterexample: no -0.0
# says: at x = -0.0 alone
# edit: hard = [0.0, -0.0,  ->  hard = [0.0,

# %% counterexample: no infinity
# says: where x is infinite
# edit: 1.0, -1.0, np.inf, -np.inf, np.nan,  ->  1.0, -1.0, np.nan,

# %% counterexample: infinity, but not minus infinity
# says: at x = -infinity alone
# edit: np.inf, -np.inf, np.nan,  ->  np.inf, np.nan,

# %% counterexample: no numbers near the largest
# says: where 2 x overflows
# edit: 1.7e308, 5e-324  ->  5e-324

# %% counterexample: no tiny numbers
# says: as small as 5e-324
# edit: 1.7e308, 5e-324  ->  1.7e308

# %% counterexample: only hard numbers, none of which rounds
# says: the last bit of some inputs
# edit: plain)  ->  1.0)
# edit: 5e-324, 0.1, 3.0]  ->  5e-324]

# %% counterexample: x and y never meet
# says: where x and y are equal
# - feeds[name] = np.where(draw.random(400) < 0.6, draw.choice(hard, 400), plain)
# + feeds[name] = np.where(draw.random(400) < 0.6, draw.choice(hard, 400), plain)
# + if name == "y" and "x" in feeds:
# +     x, y = feeds["x"], feeds["y"]
# +     feeds["y"] = np.where(x == y, np.where(x == 1.0, 2.0, 1.0), y)

# %% counterexample: compared with a tolerance
# says: the last bit of some inputs
# edit: if not same_bits(execute(*first, feeds), execute(*second, feeds)):  ->  if not all(np.allclose(a, b, rtol=1e-9, equal_nan=True) for a, b in zip(execute(*first, feeds), execute(*second, feeds))):

# %% counterexample: compared by ==
# says: NaN is not equal to itself
# edit: if not same_bits(execute(*first, feeds), execute(*second, feeds)):  ->  if any((a != b).any() for a, b in zip(execute(*first, feeds), execute(*second, feeds))):

# %% counterexample: only the outputs are compared
# says: in what b holds afterwards
# edit: if not same_bits(execute(*first, feeds), execute(*second, feeds)):  ->  if not same_bits(execute(*first, feeds)[:len(first[1])], execute(*second, feeds)[:len(second[1])]):

# %% counterexample: memory is compared, the generator is not
# says: how often the generator was used
# edit: if not same_bits(execute(*first, feeds), execute(*second, feeds)):  ->  if not same_bits(execute(*first, feeds)[:-1], execute(*second, feeds)[:-1]):

# %% counterexample: always None
# says: gave None, but they differ
def counterexample(first, second):
    return None

# %% counterexample: always some feeds
# says: but the programs are equal
# edit: return None  ->  return feeds

# %% counterexample: feeds without a test
# says: gave None, but they differ
# edit: if not same_bits(execute(*first, feeds), execute(*second, feeds)):  ->  if not (first == second or graphs.operators(first[0]) == graphs.operators(second[0]) > 2):

# %% counterexample: True
# says: want a dict
# edit: return feeds  ->  return True

# %% counterexample: one name only
# says: want ['x', 'y']
# edit: return feeds  ->  return {"x": feeds["x"]}

# %% counterexample: numbers, not arrays
# says: float64 arrays of one shape
# edit: return feeds  ->  return {name: [float(v) for v in a][:3] + [None] for name, a in feeds.items()}

# %% minify: nothing is left out
# says: not 1-minimal
def minify(rows, outputs, fails):
    return rows, outputs

# %% minify: a passing program
# says: this program does not fail
# edit: return rows, outputs  ->  return next((less for i, (op, _) in enumerate(rows) if op not in LEAVES for less in graphs.without(rows, outputs, i)), (rows, outputs))

# %% minify: whatever passes
# says: this program does not fail
# edit: if fails(*less)  ->  if not fails(*less)

# %% minify: without asking
# says: this program does not fail
# edit: if fails(*less)  ->  if True

# %% minify: one operator only
# says: not 1-minimal
def minify(rows, outputs, fails):
    for i, (op, _) in enumerate(rows):
        if op not in LEAVES:
            for less in graphs.without(rows, outputs, i):
                if fails(*less):
                    return less
    return rows, outputs

# %% minify: only the first input takes an operator's place
# says: not 1-minimal
# edit: for less in graphs.without(rows, outputs, i))  ->  for less in graphs.without(rows, outputs, i)[:1])

# %% minify: one pass from the end, without a second look
# says: not 1-minimal
def minify(rows, outputs, fails):
    i = len(rows) - 1
    while i >= 0:
        if i < len(rows) and rows[i][0] not in LEAVES:
            for less in graphs.without(rows, outputs, i):
                if fails(*less):
                    rows, outputs = less
                    break
        i -= 1
    return rows, outputs

# %% minify: only the last operator is tried
# says: not 1-minimal
# edit: for i in operators for less  ->  for i in operators[-1:] for less

# %% minify: only the first operator is tried
# says: not 1-minimal
# edit: for i in operators for less  ->  for i in operators[:1] for less

# %% minify: the rows alone
# says: want (rows, outputs)
# edit: return rows, outputs  ->  return rows

# %% minify: the second smallest
# says: not 1-minimal
# edit: smaller = rows, outputs  ->  smaller, before = (rows, outputs), (rows, outputs)
# edit: rows, outputs = smaller  ->  before, (rows, outputs) = (rows, outputs), smaller
# edit: return rows, outputs  ->  return before

# %% fuse_elementwise: nothing is fused
# says: a chain of three operators is one kernel
# edit: if len(readers) == 1 and i not in outputs:  ->  if False:

# %% fuse_elementwise: fused across a reduction
# says: is fused with other operators
# edit: fusible = rows[i][0] in ELEMENTWISE and rows[reader][0] in ELEMENTWISE  ->  fusible = True
# edit: if fusible and shapes[i] == shapes[reader]:  ->  if fusible:

# %% fuse_elementwise: a reduction is fused with what it reads
# says: is fused with other operators
# edit: fusible = rows[i][0] in ELEMENTWISE and rows[reader][0] in ELEMENTWISE  ->  fusible = rows[i][0] in ELEMENTWISE
# edit: if fusible and shapes[i] == shapes[reader]:  ->  if fusible:

# %% fuse_elementwise: a reduction is fused with its reader
# says: is fused with other operators
# edit: fusible = rows[i][0] in ELEMENTWISE and rows[reader][0] in ELEMENTWISE  ->  fusible = rows[reader][0] in ELEMENTWISE

# %% fuse_elementwise: a value with two readers is fused with the first
# says: tanh has two readers
# edit: if len(readers) == 1 and i not in outputs:  ->  if readers and i not in outputs:
# edit: reader, = readers  ->  reader = min(readers)

# %% fuse_elementwise: a value with two readers is fused with the last
# says: tanh has two readers
# edit: if len(readers) == 1 and i not in outputs:  ->  if readers and i not in outputs:
# edit: reader, = readers  ->  reader = max(readers)

# %% fuse_elementwise: an output is swallowed
# says: an output has to be stored
# edit: if len(readers) == 1 and i not in outputs:  ->  if len(readers) == 1:

# %% fuse_elementwise: shapes are ignored
# says: tanh of a column has N elements
# edit: if fusible and shapes[i] == shapes[reader]:  ->  if fusible:

# %% fuse_elementwise: one that reads twice counts as two
# says: reads twice is one reader
# edit: readers = {j for j in range(len(rows)) if i in graphs.inputs(rows[j])}  ->  readers = [j for j in range(len(rows)) for k in graphs.inputs(rows[j]) if k == i]

# %% fuse_elementwise: the groups in the reverse order
# says: runs before row
# edit: for last in sorted(set(group.values()))]  ->  for last in sorted(set(group.values()), reverse=True)]

# %% fuse_elementwise: an operator in no group
# says: want each operator once
# edit: for last in sorted(set(group.values()))]  ->  for last in sorted(set(group.values()))[:-1]]

# %% fuse_elementwise: leaves are in groups
# says: want each operator once
# edit: if rows[i][0] in LEAVES:  ->  if False:

# %% fuse_elementwise: one group for everything element-wise
# says: a reduction is no element-wise operator
def fusion_groups(rows, outputs, shapes):
    fused = [i for i, (op, _) in enumerate(rows) if op in ELEMENTWISE]
    return [[i] for i, (op, _) in enumerate(rows) if op not in (*LEAVES, *ELEMENTWISE)] + [fused]


def fuse_elementwise(rows, group, shapes):
    raise ValueError("not reached")

# %% fuse_elementwise: the load is not masked
# says: has 120 elements
# edit: tl.load(p{j} + {place}, mask=i < n)  ->  tl.load(p{j} + {place})

# %% fuse_elementwise: the store is not masked
# says: out
# edit: tl.store(out + i, v{last}, mask=i < n)  ->  tl.store(out + i, v{last})

# %% fuse_elementwise: a row is read at i
# says: loads element
# edit: else "i % COLUMNS"  ->  else "i"

# %% fuse_elementwise: a column is read at i % COLUMNS
# says: loads element
# edit: column = shapes[j] == (*shapes[last][:-1], 1)  ->  column = False

# %% fuse_elementwise: a row is read at i // COLUMNS
# says: out gave
# edit: "i // COLUMNS" if column else "i % COLUMNS"  ->  "i // COLUMNS"

# %% fuse_elementwise: each program stores the first block
# says: out gave
# edit: tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  ->  tl.arange(0, BLOCK)

# %% fuse_elementwise: one load per use, not per array
# says: loads
# -     for i in group:
# -         op, content = rows[i]
# -         lines.append(f"    v{i} = {TRITON[op].format(*(f'v{j}' for j in content))}")
# +     for i in group:
# +         op, content = rows[i]
# +         again = [f"tl.load(p{j} + i, mask=i < n)" if j in arrays and shapes[j] == shapes[last] else f"v{j}" for j in content]
# +         lines.append(f"    v{i} = {TRITON[op].format(*again)}")

# %% fuse_elementwise: constants are cut to whole numbers
# says: out gave
# edit: {float(rows[j][1])!r}  ->  {int(rows[j][1])}

# %% fuse_elementwise: the first value is stored
# says: out gave
# edit: tl.store(out + i, v{last}, mask=i < n)  ->  tl.store(out + i, v{group[0]}, mask=i < n)

# %% fuse_elementwise: every value is stored
# says: stores per program
# edit: lines.append(f"    v{i} = {TRITON[op].format(*(f'v{j}' for j in content))}")  ->  lines.append(f"    v{i} = {TRITON[op].format(*(f'v{j}' for j in content))}\n    tl.store(out + i, v{i}, mask=i < n)")

# %% fuse_elementwise: operands in the wrong order
# says: out gave
# edit: for j in content))}")  ->  for j in reversed(content)))}")

# %% fuse_elementwise: a kernel with another name
# says: fused is not defined
# edit: f"def fused({pointers}  ->  f"def kernel({pointers}

# %% fuse_elementwise: lines, not a text
# says: want a str
# edit: return "@triton.jit\n" + "\n".join(lines) + "\n"  ->  return lines

# %% discover: numbers instead of matrices
# says: symmetric, or 1 × 1
# edit: identities.random_matrices(draw, draws=2) for name  ->  identities.random_matrices(draw, draws=2, n=1) for name

# %% discover: symmetric matrices
# says: symmetric, or 1 × 1
# -     known = {value.tobytes(): name for name, value in values.items()}
# +     values = {name: (v + np.swapaxes(v, 1, 2)) % np.uint64(identities.PRIME) for name, v in values.items()}
# +     known = {value.tobytes(): name for name, value in values.items()}

# %% discover: matrices of equal numbers
# says: symmetric, or 1 × 1
# edit: identities.random_matrices(draw, draws=2) for name in "xyz"  ->  np.full((2, 2, 2), 1 + ord(name), np.uint64) for name in "xyz"

# %% discover: small numbers, one draw and one element
# says: by chance
# edit: values[new].tobytes()  ->  (values[new].ravel()[1:2] % np.uint64(64)).tobytes()
# edit: value.tobytes(): name  ->  (value.ravel()[1:2] % np.uint64(64)).tobytes(): name

# %% discover: renamings are kept
# says: are one rule with other names
# edit: order = dict(zip(identities.names_in(("pair", new, equal)), "xyz"))  ->  order = {}

# %% discover: renamed by the larger side alone, in the order of the alphabet
# says: are one rule with other names
# edit: identities.names_in(("pair", new, equal))  ->  sorted(identities.names_in(("pair", new, equal)))

# %% discover: two operators only
# says: misses a rule
# edit: range(1, most + 1)  ->  range(1, most)

# %% discover: no transposes
# says: misses a rule: two transposes cancel
# edit: candidates = [("transpose", a) for a in levels[-1]]  ->  candidates = []

# %% discover: one side is always a name
# says: misses a rule
# edit: for k in range(size):  ->  for k in range(1):

# %% discover: no sums
# says: misses a rule: add commutes
# edit: for op in ("add", "matmul")  ->  for op in ("matmul",)

# %% discover: no products
# says: misses a rule: matmul is associative
# edit: for op in ("add", "matmul")  ->  for op in ("add",)

# %% discover: each expression equals itself
# says: says nothing
# edit: if equal is new:  ->  if False:

# %% discover: the expressions, without their partners
# says: want (expression, expression)
# edit: return list(rules)  ->  return [left for left, _ in rules]

# %% discover: the four laws of the textbook
# says: misses a rule
def discover(most=3):
    return [(("add", "x", "y"), ("add", "y", "x")),
            (("matmul", "x", ("matmul", "y", "z")), ("matmul", ("matmul", "x", "y"), "z"))]

# %% discover: four operators
# says: more than 3 operators
# edit: return list(rules)  ->  return [*rules, (("transpose",) * 1 + (("transpose", ("transpose", ("transpose", "x"))),), "x")]

# %% trace: no guard of numbers
# says: The number 2.0 was a part of the program
# edit: return type(argument).__name__, argument  ->  return type(argument).__name__, 0

# %% trace: no guard of the branch
# says: The branch was the other one
# edit: if all(bool(value) == truth for value, (_, truth) in zip(values, branches)):  ->  if True:

# %% trace: only branches that were taken are guarded
# says: The second branch was the other one
# edit: bool(value) == truth for  ->  bool(value) >= truth for

# %% trace: only the first branch is guarded
# says: The second branch was the other one
# edit: zip(values, branches)):  ->  [*zip(values, branches)][:1]):

# %% trace: only the last branch is guarded
# says: The first branch was the other one
# edit: zip(values, branches)):  ->  [*zip(values, branches)][-1:]):

# %% trace: one of the branches is enough
# says: The second branch was the other one
# edit: if all(bool(value) == truth for value, (_, truth) in zip(values, branches)):  ->  if not branches or any(bool(value) == truth for value, (_, truth) in zip(values, branches)):

# %% trace: unused arguments are guarded
# says: never uses its last argument
# edit: for i, (x, a) in enumerate(zip(given, arguments)) if x.row in used]  ->  for i, (x, a) in enumerate(zip(given, arguments))]

# %% trace: the exact shape always
# says: 65 to 128 rows are one bucket
# edit: first if exact else 1 << (first - 1).bit_length()  ->  first

# %% trace: buckets always, even where Python read the shape
# says: Python has read the shape
# edit: first if exact else 1 << (first - 1).bit_length()  ->  1 << (first - 1).bit_length()

# %% trace: the shape only of the array whose shape was read itself
# says: which x and y decide
# edit: exact = graphs.ancestors(tape.rows, tape.shapes)  ->  exact = tape.shapes

# %% trace: no guard of the dtype
# says: float32 is another dtype
# edit: return str(argument.dtype), first  ->  return "", first

# %% trace: no guard of the other sizes
# says: Only the first axis has buckets
# edit: 1 << (first - 1).bit_length(), *others  ->  1 << (first - 1).bit_length()

# %% trace: buckets begin at powers of two
# says: one bucket
# edit: 1 << (first - 1).bit_length()  ->  1 << first.bit_length()

# %% trace: buckets on every axis
# says: Only the first axis has buckets
# edit: 1 << (first - 1).bit_length(), *others  ->  1 << (first - 1).bit_length(), *(1 << (s - 1).bit_length() for s in (others if len(others) != 1 or others[0] != 5 else [4]))

# %% trace: only the last program is looked at
# says: compiled again
# edit: for number, (rows, _, (guards, branches)) in enumerate(cache):  ->  for number, (rows, _, (guards, branches)) in [*enumerate(cache)][-1:]:

# %% trace: always compiled
# says: compiled again
def described(argument, exact):
    return 0


def trace(function, arguments):
    tape = graphs.Tape()
    given = [tape.placeholder(f"x{i}", a) if isinstance(a, np.ndarray) else tape.constant(a)
             for i, a in enumerate(arguments)]
    return tape.rows, [function(*given).row], []


def lookup(cache, arguments):
    return None

# %% trace: never compiled again
# says: 129 rows are in the next bucket
# edit: if all(described(arguments[i], exact) == seen for i, exact, seen in guards):  ->  if True:
# edit: if all(bool(value) == truth for value, (_, truth) in zip(values, branches)):  ->  if True:

# %% trace: a number that Python only counted with is not guarded
# says: Python has counted to another number
# edit: [*outputs, *branches, *tape.shapes, *tape.numbers]  ->  [*outputs, *branches, *tape.shapes]

# %% trace: what only a branch reads is not guarded
# says: The number decides about the branch
# edit: [*outputs, *branches, *tape.shapes, *tape.numbers]  ->  [*outputs, *tape.shapes, *tape.numbers]

# %% trace: numbers become arrays, so that their dtype wins
# says: float32
# edit: else tape.constant(a)  ->  else tape.constant(np.asarray(a))

# %% trace: the branch is taken to be true
# says: is compiled again
# edit: bool(value) == truth for  ->  bool(value) for

# %% trace: arrays become constants
# says: gave
# edit: tape.placeholder(f"x{i}", a) if isinstance(a, np.ndarray) else tape.constant(a)  ->  tape.constant(a)

# %% trace: the result of the last row that was recorded
# says: gave
# edit: outputs = [function(*given).row]  ->  outputs = [function(*given).row * 0]

# %% trace: the index of the next program
# says: lookup gave
# edit: return number  ->  return number + 1

# %% trace: a lookup that traces again
# says: lookup has only the guards
def described(argument):
    return (argument.dtype, argument.shape[1:]) if isinstance(argument, np.ndarray) else argument

def traced(function, arguments):
    tape = graphs.Tape()
    given = [tape.placeholder(f"x{i}", a) if isinstance(a, np.ndarray) else tape.constant(a)
             for i, a in enumerate(arguments)]
    return tape.rows, [function(*given).row]

def trace(function, arguments):
    global KEPT
    KEPT = function
    rows, outputs = traced(function, arguments)
    return rows, outputs, repr((rows, list(map(described, arguments))))

def lookup(cache, arguments):
    again = repr((traced(KEPT, arguments)[0], list(map(described, arguments)))) if cache else ""
    return next((i for i, (_, _, seen) in enumerate(cache) if seen == again), None)

# %% trace: a lookup that finds the functions by the course's table
# says: lookup uses FUNCTIONS, capture
# edit: feeds = {f"x{i}": a for i, a in enumerate(arguments) if isinstance(a, np.ndarray)}  ->  feeds, names = {f"x{i}": a for i, a in enumerate(arguments) if isinstance(a, np.ndarray)}, list(capture.FUNCTIONS)

# %% trace: rows and outputs without guards
# says: want (rows, outputs, guards)
# edit: return tape.rows, outputs, (guards, tape.branches)  ->  return tape.rows, outputs

# %% minify: one pass from the front, without a second look
# says: not 1-minimal
def minify(rows, outputs, fails):
    i = 0
    while i < len(rows):
        for less in graphs.without(rows, outputs, i) if rows[i][0] not in LEAVES else []:
            if fails(*less):
                rows, outputs = less
                break
        else:
            i += 1
    return rows, outputs

# %% fold_batch_norm: nothing is folded
# says: leaves 2 operators, want at most 1
def fold_batch_norm(rows, outputs):
    return rows, outputs

# %% fold_batch_norm: the scale goes to the channels that come in
# says: 3 channels to 3): its results
# edit: scale[:, None, None, None]  ->  scale[:weight.shape[1], None, None] if len(scale) >= weight.shape[1] else scale

# %% fold_batch_norm: without epsilon
# says: its results
# edit: variance + graphs.BATCH_NORM_EPSILON  ->  variance

# %% fold_batch_norm: the variance is taken for the deviation
# says: its results
# edit: np.sqrt(variance + graphs.BATCH_NORM_EPSILON)  ->  (variance + graphs.BATCH_NORM_EPSILON)

# %% fold_batch_norm: the bias is not scaled
# says: its results
# edit: (bias - mean) * scale + shift  ->  bias - mean * scale + shift

# %% fold_batch_norm: the mean is forgotten
# says: its results
# edit: (bias - mean) * scale  ->  bias * scale

# %% fold_batch_norm: the shift is forgotten
# says: its results
# edit: scale + shift  ->  scale

# %% fold_batch_norm: the gain is forgotten
# says: its results
# edit: gain / np.sqrt  ->  1 / np.sqrt

# %% fold_batch_norm: folded by the statistics of this batch's weights, not by those that are given
# says: its results
# edit: (bias - mean) * scale  ->  (bias - weight.mean((1, 2, 3))) * scale

# %% fold_batch_norm: with other readers, by a second convolution
# says: 2 convolutions; there were 1
# edit: readers[content[0]] == 1  ->  readers[content[0]] >= 1

# %% fold_batch_norm: an output is no reader
# says: the convolution is an output, too
# edit: [*outputs, *(i for row in rows for i in graphs.inputs(row))]  ->  [i for row in rows for i in graphs.inputs(row)]

# %% fold_batch_norm: whatever stands before it is taken for the convolution
# says: not enough values
# edit: if op == "batch_norm" and new[content[0]][0] == "convolve" and readers[content[0]] == 1:  ->  if op == "batch_norm" and readers[content[0]] == 1 and new[content[0]][0] != "placeholder":

# %% fold_batch_norm: only the weights must be constants
# says: TypeError
# edit: if all(new[i][0] == "constant" for i in parts):  ->  if all(new[i][0] == "constant" for i in parts[:2]):

# %% fold_batch_norm: the old convolution is changed in place, and other convolutions with it
# says: share their weights
# -                 scale = gain / np.sqrt(variance + graphs.BATCH_NORM_EPSILON)
# -                 new.append(("constant", weight * scale[:, None, None, None]))
# +                 scale = gain / np.sqrt(variance + graphs.BATCH_NORM_EPSILON)
# +                 weight *= scale[:, None, None, None]
# +                 new.append(("constant", weight))

# %% fold_batch_norm: only the first one
# says: leaves 4 operators, want at most 3
# edit: if op == "batch_norm" and  ->  if not any(op == "batch_norm" for op, _ in rows[:old]) and op == "batch_norm" and

# %% fold_batch_norm: the batch norm stays, too
# says: its results
# -         place.append(len(new))
# -         new.append((op, content))
# +                 new.append((op, content))
# +                 readers.append(1)
# +                 op, content = "batch_norm", tuple(len(new) + k for k in range(-1, 0)) + tuple(parts[2:])
# +         place.append(len(new))
# +         new.append((op, content))

# %% fold_batch_norm: the outputs keep their old numbers
# says: fold_batch_norm
# edit: outputs = [place[i] for i in outputs]  ->  outputs = [min(i, len(new) - 1) for i in outputs]

# %% test_rewrite: everything is accepted
# says: refuses 0 of 22 wrong programs
def test_rewrite(candidate):
    pass

# %% test_rewrite: everything is refused
# says: refuses a program that is right
def test_rewrite(candidate):
    raise AssertionError("no")

# %% test_rewrite: the numbers of operators are compared
# says: refuses a program that is right
def test_rewrite(candidate):
    draw = np.random.default_rng(0)
    for _ in range(20):
        rows, outputs = graphs.random_program(draw)
        after, _ = candidate(list(rows), list(outputs))
        assert graphs.operators(after) < graphs.operators(rows)

# %% test_rewrite: the rows are compared, not what they compute
# says: refuses a program that is right
def test_rewrite(candidate):
    draw = np.random.default_rng(0)
    for _ in range(20):
        rows, outputs = graphs.random_program(draw)
        after = candidate(list(rows), list(outputs))
        assert list(after[0]) == rows

# %% test_rewrite: ordinary numbers
# says: par is 18
# edit: graphs.random_feeds(draw, graphs.names((rows, outputs)), 100)  ->  {name: draw.normal(size=20) for name in graphs.names((rows, outputs))}

# %% test_rewrite: with a tolerance
# says: par is 18
# edit: same_bits(execute(rows, outputs, feeds), execute(*after, feeds)), "a bit has changed"  ->  all(map(functools.partial(np.allclose, equal_nan=True), execute(rows, outputs, feeds), execute(*after, feeds)))

# %% test_rewrite: NaN is not equal to itself
# says: refuses a program that is right
# edit: assert same_bits(execute(rows, outputs, feeds), execute(*after, feeds)), "a bit has changed"  ->  assert all((a == b).all() for a, b in zip(execute(rows, outputs, feeds), execute(*after, feeds)))

# %% test_rewrite: three programs
# says: par is 18
# edit: range(150)  ->  range(3)

# %% test_rewrite: programs without effects
# says: par is 18
# edit: graphs.random_program(draw)  ->  graphs.random_program(draw, effects=False)

# %% test_rewrite: other inputs before than after
# says: refuses a program that is right
# edit: execute(*after, feeds)  ->  execute(*after, graphs.random_feeds(draw, graphs.names((rows, outputs)), 100))

# %% test_rewrite: it returns False
# says: it returned False
def test_rewrite(candidate):
    return False

# %% cheapest: greedy
# says: greedy rewriting gives 34
def cheapest(expression, rules, most=1500):
    return identities.greedy(expression, rules)

# %% cheapest: as it was
# says: neighbours first
def cheapest(expression, rules, most=1500):
    return expression

# %% cheapest: only steps that gain
# says: greedy rewriting gives 34
# edit: <= 1.4 * identities.cost(found)  ->  < identities.cost(found)

# %% cheapest: equals, but nothing more expensive
# says: leads through a more expensive one
# edit: <= 1.4 * identities.cost(found)  ->  <= identities.cost(found)

# %% cheapest: as much slack as TASO
# says: leads through a more expensive one
# edit: 1.4 *  ->  1.05 *

# %% cheapest: the first that is cheaper
# says: One step that saves is not the end
#   found = min(found, current, key=identities.cost)
# + if found != expression:
# +     return found

# %% cheapest: the neighbours of the beginning alone
# says: neighbours first
def cheapest(expression, rules, most=1500):
    return min([expression, *identities.rewrites(expression, rules)], key=identities.cost)

# %% cheapest: two steps at most
# says: greedy rewriting gives
def cheapest(expression, rules, most=1500):
    near = list(identities.rewrites(expression, rules))
    return min([expression, *near, *(new for x in near for new in identities.rewrites(x, rules))], key=identities.cost)

# %% cheapest: a small part of it
# says: not equal
# edit: return found  ->  return min((x for x in identities.parts(found) if not isinstance(x, str)), key=identities.cost)

# %% cheapest: a name, which costs nothing
# says: not equal
def cheapest(expression, rules, most=1500):
    return identities.names_in(expression)[0]

# %% cheapest: the most expensive one
# says: neighbours first
# edit: found = min(found  ->  found = max(found

# %% cheapest: ten expressions are looked at
# says: want
# edit: most=1500  ->  most=10

# %% cheapest: seen expressions are not remembered
# says: greedy rewriting gives
# edit: if new not in seen and  ->  if
# edit: range(most)  ->  range(min(most, 25))

# %% cheapest: from a table of the best ones
# says: greedy rewriting gives
def sum_of(*terms):
    return functools.reduce(lambda a, b: ("add", a, b), terms)

def cheapest(expression, rules, most=1500):
    product = lambda a, b: ("matmul", a, b)
    x, y, z, w, v = "xyzwv"
    table = [
        (sum_of(product(x, z), w, product(y, z)), sum_of(product(sum_of(x, y), z), w)),
        (sum_of(product(x, w), v, product(y, w), product(z, w)),
         sum_of(product(sum_of(x, y, z), w), v)),
        (sum_of(product(product(x, y), z), v, product(x, w)),
         sum_of(product(x, sum_of(product(y, z), w)), v)),
        (sum_of(product(x, x), product(x, y), product(y, x), product(y, y)),
         product(sum_of(x, y), sum_of(x, y))),
        (sum_of(product(sum_of(x, y), z), product(x, w), product(y, v)),
         sum_of(product(x, sum_of(z, w)), product(y, sum_of(z, v)))),
        (sum_of(product(x, sum_of(z, w)), product(sum_of(x, y), v), product(y, w)),
         sum_of(product(x, z), product(sum_of(x, y), sum_of(v, w)))),
    ]
    names = identities.names_in(expression)
    for given, best in table:
        to = dict(zip(identities.names_in(given), names))
        if identities.renamed(given, to) == expression:
            return identities.renamed(best, to)
    return expression

# %% cheapest: its cost
# says: want an expression
# edit: return found  ->  return identities.cost(found)

# %% corrections: an input of zeros
# says: pair 'window' on 3 rows, 40 columns misses
# edit: np.random.default_rng(0).integers(0, identities.PRIME, shape, np.uint64)  ->  np.zeros(shape, np.uint64)

# %% corrections: an input of small numbers, 0 and 1 among them
# says: hide this
# edit: integers(0, identities.PRIME, shape, np.uint64)  ->  integers(0, 4, shape, np.uint64)

# %% corrections: all numbers are equal
# says: pair 'mirror' on 3 rows, 40 columns misses
# edit: np.random.default_rng(0).integers(0, identities.PRIME, shape, np.uint64)  ->  np.full(shape, 123456789, np.uint64)

# %% corrections: every second column is zero, and the last one
# says: misses
# - x = np.random.default_rng(0).integers(0, identities.PRIME, shape, np.uint64)
# + x = np.random.default_rng(0).integers(0, identities.PRIME, shape, np.uint64)
# + x[:, ::2] = 0
# + x[:, -1] = 0

# %% corrections: rows that read the same from both ends
# says: pair 'mirror' on 3 rows, 40 columns misses
# - differ = original(x) != substitute(x)
# + x = (x + x[:, ::-1]) % np.uint64(identities.PRIME)
# + differ = original(x) != substitute(x)

# %% corrections: nearly equal results count as equal
# says: misses
# edit: original(x) != substitute(x)  ->  ~np.isclose(original(x).astype(float), substitute(x).astype(float), rtol=0.5)

# %% corrections: a box around all wrong places
# says: where the programs agree
# - for row in range(shape[0] + 1):
# -     line = differ[row] if row < shape[0] else np.zeros(shape[1], bool)
# -     edges = np.flatnonzero(np.diff(np.concatenate([[False], line, [False]]))).tolist()
# -     runs = set(zip(edges[::2], edges[1::2]))
# -     for run in set(begun) - runs:
# -         boxes.append((begun.pop(run), row, *run))
# -     for run in runs - set(begun):
# -         begun[run] = row
# + if differ.any():
# +     rows, columns = (np.flatnonzero(differ.any(axis)).tolist() for axis in (1, 0))
# +     boxes.append((rows[0], rows[-1] + 1, columns[0], columns[-1] + 1))

# %% corrections: a box per row
# says: are one box, and so one launch
# - for run in set(begun) - runs:
# + for run in set(begun):

# %% corrections: a box per place
# says: are one box, and so one launch
# - return boxes
# + return [(row, row + 1, column, column + 1) for row, column in np.argwhere(differ).tolist()]

# %% corrections: the last row and column of a box are inside
# says: misses
# edit: boxes.append((begun.pop(run), row, *run))  ->  boxes.append((begun.pop(run), max(row - 1, 1), run[0], max(run[1] - 1, run[0] + 1)))

# %% corrections: columns first, then rows
# says: is empty, or outside
# edit: boxes.append((begun.pop(run), row, *run))  ->  boxes.append((*run, begun.pop(run), row))

# %% corrections: boxes that reach the last row are lost
# says: misses
# edit: for row in range(shape[0] + 1):  ->  for row in range(shape[0]):

# %% corrections: the whole array
# says: where the programs agree
# edit: return boxes  ->  return [(0, shape[0], 0, shape[1])]

# %% corrections: no boxes
# says: misses
# edit: return boxes  ->  return []

# %% corrections: each box twice
# says: covers more than once
# edit: return boxes  ->  return boxes + boxes

# %% corrections: where the programs agree
# says: misses
# edit: original(x) != substitute(x)  ->  original(x) == substitute(x)

# %% corrections: the places, as an array of truth values
# says: want a list of boxes
# edit: return boxes  ->  return differ

# %% corrections: corners in pairs
# says: want (top, bottom, left, right)
# edit: return boxes  ->  return [((a, c), (b, d)) for a, b, c, d in boxes]

# %% corrections: only rows that are wrong at all the same places share boxes
# says: are one box, and so one launch
def corrections(original, substitute, shape):
    from itertools import groupby
    x = np.random.default_rng(6).integers(0, identities.PRIME, shape, np.uint64)
    wrong = (original(x) != substitute(x)).tolist()
    boxes = []
    for pattern, rows in groupby(enumerate(wrong), key=lambda pair: pair[1]):
        rows = [row for row, _ in rows]
        for bad, columns in groupby(enumerate(pattern), key=lambda pair: pair[1]):
            columns = [column for column, _ in columns]
            if bad:
                boxes.append((rows[0], rows[-1] + 1, columns[0], columns[-1] + 1))
    return boxes

# %% cheapest: each expression is rewritten twenty times
# says: identities.rewrites is called more than `most` times
# edit: for new in identities.rewrites(current, rules)  ->  for new in [list(identities.rewrites(current, rules)) for _ in range(20)][0]
