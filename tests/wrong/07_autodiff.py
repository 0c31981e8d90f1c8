# %% topological_order: recursive, one call inside the other for each link of a chain
# says: recursion
def topological_order(outputs):
    order, seen = [], set()
    def visit(node):
        if node not in seen:
            seen.add(node)
            for x in node.inputs:
                visit(x)
            order.append(node)
    for node in outputs:
        visit(node)
    return order

# %% topological_order: marked as seen when put on the stack
# says: stands before its input
def topological_order(outputs):
    order, seen, stack = [], set(outputs), list(set(outputs))
    while stack:
        node = stack.pop()
        order.append(node)
        for x in node.inputs:
            if x not in seen:
                seen.add(x)
                stack.append(x)
    return order[::-1]

# %% topological_order: outputs first
# says: stands before its input
def topological_order(outputs):
    order, seen = [], set()
    stack = [(node, False) for node in outputs]
    while stack:
        node, inputs_are_listed = stack.pop()
        if inputs_are_listed:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack.extend((x, False) for x in node.inputs)
    return order[::-1]

# %% topological_order: a node with two users twice
# says: lists a node twice
def topological_order(outputs):
    order, stack = [], list(outputs)
    while stack:
        node = stack.pop()
        order.append(node)
        stack.extend(node.inputs)
    return order[::-1]

# %% topological_order: what was seen is kept for the next call
# says: in each call
def topological_order(outputs, seen=set()):
    order = []
    stack = [(node, False) for node in outputs]
    while stack:
        node, inputs_are_listed = stack.pop()
        if inputs_are_listed:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack.extend((x, False) for x in node.inputs)
    return order

# %% topological_order: a generator
# says: want a list
def topological_order(outputs):
    seen, stack = set(), [(node, False) for node in outputs]
    while stack:
        node, inputs_are_listed = stack.pop()
        if inputs_are_listed:
            yield node
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack.extend((x, False) for x in node.inputs)

# %% topological_order: an output that is asked for twice
# says: lists a node twice
def topological_order(outputs):
    order, seen = [], set()
    for output in outputs:
        stack = [(output, iter(output.inputs))]
        while stack:
            node, inputs = stack[-1]
            x = next((x for x in inputs if x not in seen), None)
            if x is None:
                order.append(node)
                stack.pop()
            else:
                seen.add(x)
                stack.append((x, iter(x.inputs)))
    return order

# %% topological_order: operators only
# says: want what the outputs need
def topological_order(outputs):
    order, seen = [], set()
    stack = [(node, False) for node in outputs]
    while stack:
        node, inputs_are_listed = stack.pop()
        if inputs_are_listed:
            order.append(node)
        elif node not in seen and node.inputs:
            seen.add(node)
            stack.append((node, True))
            stack.extend((x, False) for x in node.inputs)
    return order

# %% run: the values stay in the nodes
# says: must leave nothing in the nodes
def run(outputs, feeds, evaluate=evaluate):
    for node in topological_order(outputs):
        if node.value is None:
            node.value = feeds[node] if node in feeds else evaluate(node.op, *(x.value for x in node.inputs))
    return [node.value for node in outputs]

# %% run: a node is computed for each of its users
# says: once for each of its users
def run(outputs, feeds, evaluate=evaluate):
    def value(node):
        if node.op == "constant":
            return node.value
        return feeds[node] if node in feeds else evaluate(node.op, *(value(x) for x in node.inputs))
    return [value(node) for node in outputs]

# %% run: feeds are written into
# says: writes into feeds
def run(outputs, feeds, evaluate=evaluate):
    values = feeds
    for node in topological_order(outputs):
        if node.op == "constant":
            values[node] = node.value
        elif node not in values:
            values[node] = evaluate(node.op, *(values[x] for x in node.inputs))
    return [values[node] for node in outputs]

# %% run: the values are kept for the next call
# says: must leave nothing in the nodes
def run(outputs, feeds, evaluate=evaluate, values={}):
    values.update(feeds)
    for node in topological_order(outputs):
        if node.op == "constant":
            values[node] = node.value
        elif node not in values:
            values[node] = evaluate(node.op, *(values[x] for x in node.inputs))
    return [values[node] for node in outputs]

# %% run: not with the evaluate that is given
# says: never calls the evaluate
def run(outputs, feeds, evaluate=evaluate):
    values = dict(feeds)
    for node in topological_order(outputs):
        if node.op == "constant":
            values[node] = node.value
        elif node not in values:
            values[node] = OPERATORS[node.op](*(values[x] for x in node.inputs))
    return [values[node] for node in outputs]

# %% run: the inputs the wrong way round
# says: in their order
def run(outputs, feeds, evaluate=evaluate):
    values = dict(feeds)
    for node in topological_order(outputs):
        if node.op == "constant":
            values[node] = node.value
        elif node not in values:
            values[node] = evaluate(node.op, *(values[x] for x in reversed(node.inputs)))
    return [values[node] for node in outputs]

# %% run: each output for itself
# says: evaluates an operator twice
def run(outputs, feeds, evaluate=evaluate):
    def value(output):
        values = dict(feeds)
        for node in topological_order([output]):
            if node.op == "constant":
                values[node] = node.value
            elif node not in values:
                values[node] = evaluate(node.op, *(values[x] for x in node.inputs))
        return values[output]
    return [value(output) for output in outputs]

# %% run: an output must be an operator
# says: KeyError
def run(outputs, feeds, evaluate=evaluate):
    values = {}
    for node in topological_order(outputs):
        if node.inputs:
            inputs = [values[x] if x.inputs else feeds.get(x, x.value) for x in node.inputs]
            values[node] = evaluate(node.op, *inputs)
    return [values[node] for node in outputs]

# %% dual: the tangents are multiplied
# says: goes with ε² and vanishes
def dual(op, *pairs):
    pairs = [pair if isinstance(pair, tuple) else (pair, np.zeros_like(pair)) for pair in pairs]
    value = evaluate(op, *(value for value, _ in pairs))
    (a, da), (b, db) = pairs if len(pairs) == 2 else (pairs[0], (None, None))
    return value, {"add": lambda: da + db, "sin": lambda: np.cos(a) * da, "subtract": lambda: da - db, "multiply": lambda: da * db,
                   "divide": lambda: (da - value * db) / b, "exp": lambda: value * da, "log": lambda: da / a,
                   "tanh": lambda: (1 - value**2) * da, "matmul": lambda: da @ b + a @ db, "sum": lambda: np.sum(da)}[op]()

# %% dual: the quotient's sign
# says: second term must be subtracted
def dual(op, *pairs):
    pairs = [pair if isinstance(pair, tuple) else (pair, np.zeros_like(pair)) for pair in pairs]
    value = evaluate(op, *(value for value, _ in pairs))
    (a, da), (b, db) = pairs if len(pairs) == 2 else (pairs[0], (None, None))
    return value, {"add": lambda: da + db, "sin": lambda: np.cos(a) * da, "subtract": lambda: da - db,
                   "multiply": lambda: da * b + a * db, "divide": lambda: (da + value * db) / b, "exp": lambda: value * da,
                   "log": lambda: da / a, "tanh": lambda: (1 - value**2) * da, "matmul": lambda: da @ b + a @ db,
                   "sum": lambda: np.sum(da)}[op]()

# %% dual: the matrix product's order
# says: mind the order
def dual(op, *pairs):
    pairs = [pair if isinstance(pair, tuple) else (pair, np.zeros_like(pair)) for pair in pairs]
    value = evaluate(op, *(value for value, _ in pairs))
    (a, da), (b, db) = pairs if len(pairs) == 2 else (pairs[0], (None, None))
    return value, {"add": lambda: da + db, "sin": lambda: np.cos(a) * da, "subtract": lambda: da - db,
                   "multiply": lambda: da * b + a * db, "divide": lambda: (da - value * db) / b, "exp": lambda: value * da,
                   "log": lambda: da / a, "tanh": lambda: (1 - value**2) * da, "matmul": lambda: da @ b + db @ a,
                   "sum": lambda: np.sum(da)}[op]()

# %% dual: in place, over the tangent that came
# says: arrays, twice
def dual(op, *pairs):
    pairs = [pair if isinstance(pair, tuple) else (pair, np.zeros_like(pair)) for pair in pairs]
    value = evaluate(op, *(value for value, _ in pairs))
    (a, da), (b, db) = pairs if len(pairs) == 2 else (pairs[0], (None, None))
    if op == "add":
        return value, da + db
    if op == "sin":
        return value, np.cos(a) * da
    tangents = {
        "subtract": lambda: da - db,
        "multiply": lambda: np.add(np.multiply(da, b, out=da), a * db),
        "divide": lambda: (da - value * db) / b,
        "exp": lambda: value * da,
        "log": lambda: da / a,
        "tanh": lambda: (1 - value**2) * da,
        "matmul": lambda: da @ b + a @ db,
        "sum": lambda: np.sum(da),
    }
    return value, tangents[op]()

# %% dual: the sum of each row
# says: not a number
def dual(op, *pairs):
    pairs = [pair if isinstance(pair, tuple) else (pair, np.zeros_like(pair)) for pair in pairs]
    value = evaluate(op, *(value for value, _ in pairs))
    (a, da), (b, db) = pairs if len(pairs) == 2 else (pairs[0], (None, None))
    if op == "add":
        return value, da + db
    if op == "sin":
        return value, np.cos(a) * da
    tangents = {
        "subtract": lambda: da - db,
        "multiply": lambda: da * b + a * db,
        "divide": lambda: (da - value * db) / b,
        "exp": lambda: value * da,
        "log": lambda: da / a,
        "tanh": lambda: (1 - value**2) * da,
        "matmul": lambda: da @ b + a @ db,
        "sum": lambda: np.sum(da, axis=-1),
    }
    return value, tangents[op]()

# %% difference_errors: the notes' O(ε²)
# says: One-sided differences err by O(ε)
def difference_errors(step, value, second, third):
    rounding = 2 * 2**-53 * abs(value)
    return step**2 / 6 * abs(third) + rounding / step, step**2 / 6 * abs(third) + rounding / (2 * step)

# %% difference_errors: no rounding
# says: Rounding counts
def difference_errors(step, value, second, third):
    return step / 2 * abs(second), step**2 / 6 * abs(third)

# %% difference_errors: the same rounding for both
# says: its rounding error too
def difference_errors(step, value, second, third):
    rounding = 2 * 2**-53 * abs(value)
    return step / 2 * abs(second) + rounding / step, step**2 / 6 * abs(third) + rounding / step

# %% difference_errors: one value's rounding
# says: each of the two values
def difference_errors(step, value, second, third):
    rounding = 2**-53 * abs(value)
    return step / 2 * abs(second) + rounding / step, step**2 / 6 * abs(third) + rounding / (2 * step)

# %% sum_like: stretched axes are forgotten
# says: stretched from size 1 must be summed
def sum_like(g, like):
    return np.sum(g, axis=tuple(range(np.ndim(g) - np.ndim(like))))

# %% sum_like: stretched axes are dropped
# says: keepdims
def sum_like(g, like):
    g = np.sum(g, axis=tuple(range(np.ndim(g) - np.ndim(like))))
    return np.sum(g, axis=tuple(axis for axis, size in enumerate(np.shape(like)) if size == 1))

# %% sum_like: the mean
# says: not take the mean
def sum_like(g, like):
    shape = np.shape(like)
    g = np.mean(g, axis=tuple(range(np.ndim(g) - len(shape))))
    return np.mean(g, axis=tuple(axis for axis, size in enumerate(shape) if size == 1), keepdims=True)

# %% sum_like: a plain number has no shape
# says: has no attribute
def sum_like(g, like):
    g = g.sum(axis=tuple(range(g.ndim - like.ndim)))
    return g.sum(axis=tuple(axis for axis, size in enumerate(like.shape) if size == 1), keepdims=True)

# %% sum_like: float64 whatever came
# says: float64, not float32
def sum_like(g, like):
    shape = np.shape(like)
    g = np.sum(g, axis=tuple(range(np.ndim(g) - len(shape))), dtype=float)
    return np.sum(g, axis=tuple(axis for axis, size in enumerate(shape) if size == 1), keepdims=True)

# %% sum_like: an axis stretched from 1 to 0
# says: sum_like(g of shape
def sum_like(g, like):
    shape = np.shape(like)
    g = np.sum(g, axis=tuple(range(np.ndim(g) - len(shape))))
    return np.sum(g, axis=tuple(axis for axis, size in enumerate(shape) if size == 1 < g.shape[axis]), keepdims=True)

# %% sum_like: rows are added into g, which belongs to others
# says: twice
def sum_like(g, like):
    shape = np.shape(like)
    while g.ndim > len(shape):
        for row in g[1:]:
            g[0] += row
        g = g[0] if len(g) else np.zeros(g.shape[1:], g.dtype)
    return np.sum(g, axis=tuple(axis for axis, size in enumerate(shape) if size == 1), keepdims=True)

# %% vjp: a factor's own adjoint
# says: meets the other factor
def vjp(node, g):
    if node.op in FLAT or not node.inputs:
        return (None,) * len(node.inputs)
    x, y = (*node.inputs, None)[:2]
    rules = {
        "add": lambda: (g, g),
        "subtract": lambda: (g, -g),
        "negative": lambda: (-g,),
        "exp": lambda: (g * node,),
        "sin": lambda: (g * x.cos(),),
        "cos": lambda: (-g * x.sin(),),
        "broadcast_like": lambda: (g, None),
        "sum_like": lambda: (g.broadcast_like(x), None),
    }
    rules |= {
        "multiply": lambda: (g * x, g * y),
        "divide": lambda: (g / y, -g * node / y),
        "log": lambda: (g / x,),
        "tanh": lambda: (g - g * node * node,),
        "relu": lambda: (g * x.step(),),
        "matmul": lambda: (g @ y.transpose(), x.transpose() @ g),
        "transpose": lambda: (g.transpose(),),
        "sum": lambda: (g.broadcast_like(x),),
        "row_sum": lambda: (g.broadcast_like(x),),
        "mean": lambda: ((g / x.size()).broadcast_like(x),),
        "switch_true": lambda: (None, x.merge(g, y.zeros_like())),
        "switch_false": lambda: (None, x.merge(y.zeros_like(), g)),
        "merge": lambda: (None, x.switch_true(g), x.switch_false(g)),
    }
    return rules[node.op]()

# %% vjp: the divisor's sign
# says: has a minus sign
def vjp(node, g):
    if node.op in FLAT or not node.inputs:
        return (None,) * len(node.inputs)
    x, y = (*node.inputs, None)[:2]
    rules = {
        "add": lambda: (g, g),
        "subtract": lambda: (g, -g),
        "negative": lambda: (-g,),
        "exp": lambda: (g * node,),
        "sin": lambda: (g * x.cos(),),
        "cos": lambda: (-g * x.sin(),),
        "broadcast_like": lambda: (g, None),
        "sum_like": lambda: (g.broadcast_like(x), None),
    }
    rules |= {
        "multiply": lambda: (g * y, g * x),
        "divide": lambda: (g / y, g * node / y),
        "log": lambda: (g / x,),
        "tanh": lambda: (g - g * node * node,),
        "relu": lambda: (g * x.step(),),
        "matmul": lambda: (g @ y.transpose(), x.transpose() @ g),
        "transpose": lambda: (g.transpose(),),
        "sum": lambda: (g.broadcast_like(x),),
        "row_sum": lambda: (g.broadcast_like(x),),
        "mean": lambda: ((g / x.size()).broadcast_like(x),),
        "switch_true": lambda: (None, x.merge(g, y.zeros_like())),
        "switch_false": lambda: (None, x.merge(y.zeros_like(), g)),
        "merge": lambda: (None, x.switch_true(g), x.switch_false(g)),
    }
    return rules[node.op]()

# %% vjp: log
# says: 1/x
def vjp(node, g):
    if node.op in FLAT or not node.inputs:
        return (None,) * len(node.inputs)
    x, y = (*node.inputs, None)[:2]
    rules = {
        "add": lambda: (g, g),
        "subtract": lambda: (g, -g),
        "negative": lambda: (-g,),
        "exp": lambda: (g * node,),
        "sin": lambda: (g * x.cos(),),
        "cos": lambda: (-g * x.sin(),),
        "broadcast_like": lambda: (g, None),
        "sum_like": lambda: (g.broadcast_like(x), None),
    }
    rules |= {
        "multiply": lambda: (g * y, g * x),
        "divide": lambda: (g / y, -g * node / y),
        "log": lambda: (g * x,),
        "tanh": lambda: (g - g * node * node,),
        "relu": lambda: (g * x.step(),),
        "matmul": lambda: (g @ y.transpose(), x.transpose() @ g),
        "transpose": lambda: (g.transpose(),),
        "sum": lambda: (g.broadcast_like(x),),
        "row_sum": lambda: (g.broadcast_like(x),),
        "mean": lambda: ((g / x.size()).broadcast_like(x),),
        "switch_true": lambda: (None, x.merge(g, y.zeros_like())),
        "switch_false": lambda: (None, x.merge(y.zeros_like(), g)),
        "merge": lambda: (None, x.switch_true(g), x.switch_false(g)),
    }
    return rules[node.op]()

# %% vjp: tanh without its square
# says: 1 - tanh² x
def vjp(node, g):
    if node.op in FLAT or not node.inputs:
        return (None,) * len(node.inputs)
    x, y = (*node.inputs, None)[:2]
    rules = {
        "add": lambda: (g, g),
        "subtract": lambda: (g, -g),
        "negative": lambda: (-g,),
        "exp": lambda: (g * node,),
        "sin": lambda: (g * x.cos(),),
        "cos": lambda: (-g * x.sin(),),
        "broadcast_like": lambda: (g, None),
        "sum_like": lambda: (g.broadcast_like(x), None),
    }
    rules |= {
        "multiply": lambda: (g * y, g * x),
        "divide": lambda: (g / y, -g * node / y),
        "log": lambda: (g / x,),
        "tanh": lambda: (g - g * node,),
        "relu": lambda: (g * x.step(),),
        "matmul": lambda: (g @ y.transpose(), x.transpose() @ g),
        "transpose": lambda: (g.transpose(),),
        "sum": lambda: (g.broadcast_like(x),),
        "row_sum": lambda: (g.broadcast_like(x),),
        "mean": lambda: ((g / x.size()).broadcast_like(x),),
        "switch_true": lambda: (None, x.merge(g, y.zeros_like())),
        "switch_false": lambda: (None, x.merge(y.zeros_like(), g)),
        "merge": lambda: (None, x.switch_true(g), x.switch_false(g)),
    }
    return rules[node.op]()

# %% vjp: relu hands on its value
# says: steps from 0 to 1
def vjp(node, g):
    if node.op in FLAT or not node.inputs:
        return (None,) * len(node.inputs)
    x, y = (*node.inputs, None)[:2]
    rules = {
        "add": lambda: (g, g),
        "subtract": lambda: (g, -g),
        "negative": lambda: (-g,),
        "exp": lambda: (g * node,),
        "sin": lambda: (g * x.cos(),),
        "cos": lambda: (-g * x.sin(),),
        "broadcast_like": lambda: (g, None),
        "sum_like": lambda: (g.broadcast_like(x), None),
    }
    rules |= {
        "multiply": lambda: (g * y, g * x),
        "divide": lambda: (g / y, -g * node / y),
        "log": lambda: (g / x,),
        "tanh": lambda: (g - g * node * node,),
        "relu": lambda: (g * node,),
        "matmul": lambda: (g @ y.transpose(), x.transpose() @ g),
        "transpose": lambda: (g.transpose(),),
        "sum": lambda: (g.broadcast_like(x),),
        "row_sum": lambda: (g.broadcast_like(x),),
        "mean": lambda: ((g / x.size()).broadcast_like(x),),
        "switch_true": lambda: (None, x.merge(g, y.zeros_like())),
        "switch_false": lambda: (None, x.merge(y.zeros_like(), g)),
        "merge": lambda: (None, x.switch_true(g), x.switch_false(g)),
    }
    return rules[node.op]()

# %% vjp: matmul without transposes
# says: transposes are missing
def vjp(node, g):
    if node.op in FLAT or not node.inputs:
        return (None,) * len(node.inputs)
    x, y = (*node.inputs, None)[:2]
    rules = {
        "add": lambda: (g, g),
        "subtract": lambda: (g, -g),
        "negative": lambda: (-g,),
        "exp": lambda: (g * node,),
        "sin": lambda: (g * x.cos(),),
        "cos": lambda: (-g * x.sin(),),
        "broadcast_like": lambda: (g, None),
        "sum_like": lambda: (g.broadcast_like(x), None),
    }
    rules |= {
        "multiply": lambda: (g * y, g * x),
        "divide": lambda: (g / y, -g * node / y),
        "log": lambda: (g / x,),
        "tanh": lambda: (g - g * node * node,),
        "relu": lambda: (g * x.step(),),
        "matmul": lambda: (g @ y, x @ g),
        "transpose": lambda: (g.transpose(),),
        "sum": lambda: (g.broadcast_like(x),),
        "row_sum": lambda: (g.broadcast_like(x),),
        "mean": lambda: ((g / x.size()).broadcast_like(x),),
        "switch_true": lambda: (None, x.merge(g, y.zeros_like())),
        "switch_false": lambda: (None, x.merge(y.zeros_like(), g)),
        "merge": lambda: (None, x.switch_true(g), x.switch_false(g)),
    }
    return rules[node.op]()

# %% vjp: transpose not turned back
# says: transposed back
def vjp(node, g):
    if node.op in FLAT or not node.inputs:
        return (None,) * len(node.inputs)
    x, y = (*node.inputs, None)[:2]
    rules = {
        "add": lambda: (g, g),
        "subtract": lambda: (g, -g),
        "negative": lambda: (-g,),
        "exp": lambda: (g * node,),
        "sin": lambda: (g * x.cos(),),
        "cos": lambda: (-g * x.sin(),),
        "broadcast_like": lambda: (g, None),
        "sum_like": lambda: (g.broadcast_like(x), None),
    }
    rules |= {
        "multiply": lambda: (g * y, g * x),
        "divide": lambda: (g / y, -g * node / y),
        "log": lambda: (g / x,),
        "tanh": lambda: (g - g * node * node,),
        "relu": lambda: (g * x.step(),),
        "matmul": lambda: (g @ y.transpose(), x.transpose() @ g),
        "transpose": lambda: (g,),
        "sum": lambda: (g.broadcast_like(x),),
        "row_sum": lambda: (g.broadcast_like(x),),
        "mean": lambda: ((g / x.size()).broadcast_like(x),),
        "switch_true": lambda: (None, x.merge(g, y.zeros_like())),
        "switch_false": lambda: (None, x.merge(y.zeros_like(), g)),
        "merge": lambda: (None, x.switch_true(g), x.switch_false(g)),
    }
    return rules[node.op]()

# %% vjp: mean without 1/n
# says: divides by the number of elements
def vjp(node, g):
    if node.op in FLAT or not node.inputs:
        return (None,) * len(node.inputs)
    x, y = (*node.inputs, None)[:2]
    rules = {
        "add": lambda: (g, g),
        "subtract": lambda: (g, -g),
        "negative": lambda: (-g,),
        "exp": lambda: (g * node,),
        "sin": lambda: (g * x.cos(),),
        "cos": lambda: (-g * x.sin(),),
        "broadcast_like": lambda: (g, None),
        "sum_like": lambda: (g.broadcast_like(x), None),
    }
    rules |= {
        "multiply": lambda: (g * y, g * x),
        "divide": lambda: (g / y, -g * node / y),
        "log": lambda: (g / x,),
        "tanh": lambda: (g - g * node * node,),
        "relu": lambda: (g * x.step(),),
        "matmul": lambda: (g @ y.transpose(), x.transpose() @ g),
        "transpose": lambda: (g.transpose(),),
        "sum": lambda: (g.broadcast_like(x),),
        "row_sum": lambda: (g.broadcast_like(x),),
        "mean": lambda: (g.broadcast_like(x),),
        "switch_true": lambda: (None, x.merge(g, y.zeros_like())),
        "switch_false": lambda: (None, x.merge(y.zeros_like(), g)),
        "merge": lambda: (None, x.switch_true(g), x.switch_false(g)),
    }
    return rules[node.op]()

# %% vjp: a value detached from the graph, so that there is no second derivative
# says: detached
def vjp(node, g):
    if node.op in FLAT or not node.inputs:
        return (None,) * len(node.inputs)
    x, y = (*node.inputs, None)[:2]
    rules = {
        "add": lambda: (g, g),
        "subtract": lambda: (g, -g),
        "negative": lambda: (-g,),
        "exp": lambda: (g * node,),
        "sin": lambda: (g * x.cos(),),
        "cos": lambda: (-g * x.sin(),),
        "broadcast_like": lambda: (g, None),
        "sum_like": lambda: (g.broadcast_like(x), None),
    }
    rules |= {
        "multiply": lambda: (g * y, g * x),
        "divide": lambda: (g / y, -g * node / y),
        "log": lambda: (g / x,),
        "tanh": lambda: (g - g * Node("constant", value=node.value) * Node("constant", value=node.value),),
        "relu": lambda: (g * x.step(),),
        "matmul": lambda: (g @ y.transpose(), x.transpose() @ g),
        "transpose": lambda: (g.transpose(),),
        "sum": lambda: (g.broadcast_like(x),),
        "row_sum": lambda: (g.broadcast_like(x),),
        "mean": lambda: ((g / x.size()).broadcast_like(x),),
        "switch_true": lambda: (None, x.merge(g, y.zeros_like())),
        "switch_false": lambda: (None, x.merge(y.zeros_like(), g)),
        "merge": lambda: (None, x.switch_true(g), x.switch_false(g)),
    }
    return rules[node.op]()

# %% vjp: the gradient of Switch is lost
# says: merge g with zeros
def vjp(node, g):
    if node.op in FLAT or not node.inputs:
        return (None,) * len(node.inputs)
    x, y = (*node.inputs, None)[:2]
    rules = {
        "add": lambda: (g, g),
        "subtract": lambda: (g, -g),
        "negative": lambda: (-g,),
        "exp": lambda: (g * node,),
        "sin": lambda: (g * x.cos(),),
        "cos": lambda: (-g * x.sin(),),
        "broadcast_like": lambda: (g, None),
        "sum_like": lambda: (g.broadcast_like(x), None),
    }
    rules |= {
        "multiply": lambda: (g * y, g * x),
        "divide": lambda: (g / y, -g * node / y),
        "log": lambda: (g / x,),
        "tanh": lambda: (g - g * node * node,),
        "relu": lambda: (g * x.step(),),
        "matmul": lambda: (g @ y.transpose(), x.transpose() @ g),
        "transpose": lambda: (g.transpose(),),
        "sum": lambda: (g.broadcast_like(x),),
        "row_sum": lambda: (g.broadcast_like(x),),
        "mean": lambda: ((g / x.size()).broadcast_like(x),),
        "switch_true": lambda: (None, x.switch_true(g)),
        "switch_false": lambda: (None, x.merge(y.zeros_like(), g)),
        "merge": lambda: (None, x.switch_true(g), x.switch_false(g)),
    }
    return rules[node.op]()

# %% vjp: Merge hands its adjoint to both branches
# says: may get no adjoint
def vjp(node, g):
    if node.op in FLAT or not node.inputs:
        return (None,) * len(node.inputs)
    x, y = (*node.inputs, None)[:2]
    rules = {
        "add": lambda: (g, g),
        "subtract": lambda: (g, -g),
        "negative": lambda: (-g,),
        "exp": lambda: (g * node,),
        "sin": lambda: (g * x.cos(),),
        "cos": lambda: (-g * x.sin(),),
        "broadcast_like": lambda: (g, None),
        "sum_like": lambda: (g.broadcast_like(x), None),
    }
    rules |= {
        "multiply": lambda: (g * y, g * x),
        "divide": lambda: (g / y, -g * node / y),
        "log": lambda: (g / x,),
        "tanh": lambda: (g - g * node * node,),
        "relu": lambda: (g * x.step(),),
        "matmul": lambda: (g @ y.transpose(), x.transpose() @ g),
        "transpose": lambda: (g.transpose(),),
        "sum": lambda: (g.broadcast_like(x),),
        "row_sum": lambda: (g.broadcast_like(x),),
        "mean": lambda: ((g / x.size()).broadcast_like(x),),
        "switch_true": lambda: (None, x.merge(g, y.zeros_like())),
        "switch_false": lambda: (None, x.merge(y.zeros_like(), g)),
        "merge": lambda: (None, g, g),
    }
    return rules[node.op]()

# %% vjp: a rule without g
# says: factor g is missing
def vjp(node, g):
    if node.op in FLAT or not node.inputs:
        return (None,) * len(node.inputs)
    x, y = (*node.inputs, None)[:2]
    rules = {
        "add": lambda: (g, g),
        "subtract": lambda: (g, -g),
        "negative": lambda: (-g,),
        "exp": lambda: (g * node,),
        "sin": lambda: (g * x.cos(),),
        "cos": lambda: (-g * x.sin(),),
        "broadcast_like": lambda: (g, None),
        "sum_like": lambda: (g.broadcast_like(x), None),
    }
    rules |= {
        "multiply": lambda: (g * y, g * x),
        "divide": lambda: (g / y, -g * node / y),
        "log": lambda: (1 / x,),
        "tanh": lambda: (g - g * node * node,),
        "relu": lambda: (g * x.step(),),
        "matmul": lambda: (g @ y.transpose(), x.transpose() @ g),
        "transpose": lambda: (g.transpose(),),
        "sum": lambda: (g.broadcast_like(x),),
        "row_sum": lambda: (g.broadcast_like(x),),
        "mean": lambda: ((g / x.size()).broadcast_like(x),),
        "switch_true": lambda: (None, x.merge(g, y.zeros_like())),
        "switch_false": lambda: (None, x.merge(y.zeros_like(), g)),
        "merge": lambda: (None, x.switch_true(g), x.switch_false(g)),
    }
    return rules[node.op]()

# %% vjp: a rule that is no tuple
# says: want a tuple
def vjp(node, g):
    if node.op in FLAT or not node.inputs:
        return (None,) * len(node.inputs)
    x, y = (*node.inputs, None)[:2]
    rules = {
        "add": lambda: (g, g),
        "subtract": lambda: (g, -g),
        "negative": lambda: (-g,),
        "exp": lambda: (g * node,),
        "sin": lambda: (g * x.cos(),),
        "cos": lambda: (-g * x.sin(),),
        "broadcast_like": lambda: (g, None),
        "sum_like": lambda: (g.broadcast_like(x), None),
    }
    rules |= {
        "multiply": lambda: (g * y, g * x),
        "divide": lambda: (g / y, -g * node / y),
        "log": lambda: g / x,
        "tanh": lambda: (g - g * node * node,),
        "relu": lambda: (g * x.step(),),
        "matmul": lambda: (g @ y.transpose(), x.transpose() @ g),
        "transpose": lambda: (g.transpose(),),
        "sum": lambda: (g.broadcast_like(x),),
        "row_sum": lambda: (g.broadcast_like(x),),
        "mean": lambda: ((g / x.size()).broadcast_like(x),),
        "switch_true": lambda: (None, x.merge(g, y.zeros_like())),
        "switch_false": lambda: (None, x.merge(y.zeros_like(), g)),
        "merge": lambda: (None, x.switch_true(g), x.switch_false(g)),
    }
    return rules[node.op]()

# %% vjp: nothing for the condition
# says: want a tuple of 3
def vjp(node, g):
    if node.op in FLAT or not node.inputs:
        return (None,) * len(node.inputs)
    x, y = (*node.inputs, None)[:2]
    rules = {
        "add": lambda: (g, g),
        "subtract": lambda: (g, -g),
        "negative": lambda: (-g,),
        "exp": lambda: (g * node,),
        "sin": lambda: (g * x.cos(),),
        "cos": lambda: (-g * x.sin(),),
        "broadcast_like": lambda: (g, None),
        "sum_like": lambda: (g.broadcast_like(x), None),
    }
    rules |= {
        "multiply": lambda: (g * y, g * x),
        "divide": lambda: (g / y, -g * node / y),
        "log": lambda: (g / x,),
        "tanh": lambda: (g - g * node * node,),
        "relu": lambda: (g * x.step(),),
        "matmul": lambda: (g @ y.transpose(), x.transpose() @ g),
        "transpose": lambda: (g.transpose(),),
        "sum": lambda: (g.broadcast_like(x),),
        "row_sum": lambda: (g.broadcast_like(x),),
        "mean": lambda: ((g / x.size()).broadcast_like(x),),
        "switch_true": lambda: (None, x.merge(g, y.zeros_like())),
        "switch_false": lambda: (None, x.merge(y.zeros_like(), g)),
        "merge": lambda: (x.switch_true(g), x.switch_false(g)),
    }
    return rules[node.op]()

# %% vjp: sum hands on one number for all elements
# says: is not expandable to
def vjp(node, g):
    if node.op in FLAT or not node.inputs:
        return (None,) * len(node.inputs)
    x, y = (*node.inputs, None)[:2]
    rules = {
        "add": lambda: (g, g),
        "subtract": lambda: (g, -g),
        "negative": lambda: (-g,),
        "exp": lambda: (g * node,),
        "sin": lambda: (g * x.cos(),),
        "cos": lambda: (-g * x.sin(),),
        "broadcast_like": lambda: (g, None),
        "sum_like": lambda: (g.broadcast_like(x), None),
    }
    rules |= {
        "multiply": lambda: (g * y, g * x),
        "divide": lambda: (g / y, -g * node / y),
        "log": lambda: (g / x,),
        "tanh": lambda: (g - g * node * node,),
        "relu": lambda: (g * x.step(),),
        "matmul": lambda: (g @ y.transpose(), x.transpose() @ g),
        "transpose": lambda: (g.transpose(),),
        "sum": lambda: (g,),
        "row_sum": lambda: (g.broadcast_like(x),),
        "mean": lambda: ((g / x.size()).broadcast_like(x),),
        "switch_true": lambda: (None, x.merge(g, y.zeros_like())),
        "switch_false": lambda: (None, x.merge(y.zeros_like(), g)),
        "merge": lambda: (None, x.switch_true(g), x.switch_false(g)),
    }
    return rules[node.op]()

# %% vjp: zeros of what is dead
# says: not like g
def vjp(node, g):
    if node.op in FLAT or not node.inputs:
        return (None,) * len(node.inputs)
    x, y = (*node.inputs, None)[:2]
    rules = {
        "add": lambda: (g, g),
        "subtract": lambda: (g, -g),
        "negative": lambda: (-g,),
        "exp": lambda: (g * node,),
        "sin": lambda: (g * x.cos(),),
        "cos": lambda: (-g * x.sin(),),
        "broadcast_like": lambda: (g, None),
        "sum_like": lambda: (g.broadcast_like(x), None),
    }
    rules |= {
        "multiply": lambda: (g * y, g * x),
        "divide": lambda: (g / y, -g * node / y),
        "log": lambda: (g / x,),
        "tanh": lambda: (g - g * node * node,),
        "relu": lambda: (g * x.step(),),
        "matmul": lambda: (g @ y.transpose(), x.transpose() @ g),
        "transpose": lambda: (g.transpose(),),
        "sum": lambda: (g.broadcast_like(x),),
        "row_sum": lambda: (g.broadcast_like(x),),
        "mean": lambda: ((g / x.size()).broadcast_like(x),),
        "switch_true": lambda: (None, x.merge(g, g.zeros_like())),
        "switch_false": lambda: (None, x.merge(g.zeros_like(), g)),
        "merge": lambda: (None, x.switch_true(g), x.switch_false(g)),
    }
    return rules[node.op]()

# %% vjp: Merge sends its adjoint down the other side
# says: where the value came from
def vjp(node, g):
    if node.op in FLAT or not node.inputs:
        return (None,) * len(node.inputs)
    x, y = (*node.inputs, None)[:2]
    rules = {
        "add": lambda: (g, g),
        "subtract": lambda: (g, -g),
        "negative": lambda: (-g,),
        "exp": lambda: (g * node,),
        "sin": lambda: (g * x.cos(),),
        "cos": lambda: (-g * x.sin(),),
        "broadcast_like": lambda: (g, None),
        "sum_like": lambda: (g.broadcast_like(x), None),
    }
    rules |= {
        "multiply": lambda: (g * y, g * x),
        "divide": lambda: (g / y, -g * node / y),
        "log": lambda: (g / x,),
        "tanh": lambda: (g - g * node * node,),
        "relu": lambda: (g * x.step(),),
        "matmul": lambda: (g @ y.transpose(), x.transpose() @ g),
        "transpose": lambda: (g.transpose(),),
        "sum": lambda: (g.broadcast_like(x),),
        "row_sum": lambda: (g.broadcast_like(x),),
        "mean": lambda: ((g / x.size()).broadcast_like(x),),
        "switch_true": lambda: (None, x.merge(g, y.zeros_like())),
        "switch_false": lambda: (None, x.merge(y.zeros_like(), g)),
        "merge": lambda: (None, x.switch_false(g), x.switch_true(g)),
    }
    return rules[node.op]()

# %% vjp: detached matrices, so that there is no second derivative
# says: through detach there are none
def vjp(node, g):
    if node.op in FLAT or not node.inputs:
        return (None,) * len(node.inputs)
    x, y = (*node.inputs, None)[:2]
    rules = {
        "add": lambda: (g, g),
        "subtract": lambda: (g, -g),
        "negative": lambda: (-g,),
        "exp": lambda: (g * node,),
        "sin": lambda: (g * x.cos(),),
        "cos": lambda: (-g * x.sin(),),
        "broadcast_like": lambda: (g, None),
        "sum_like": lambda: (g.broadcast_like(x), None),
    }
    rules |= {
        "multiply": lambda: (g * y, g * x),
        "divide": lambda: (g / y, -g * node / y),
        "log": lambda: (g / x,),
        "tanh": lambda: (g - g * node * node,),
        "relu": lambda: (g * x.step(),),
        "matmul": lambda: (g @ y.detach().transpose(), x.detach().transpose() @ g),
        "transpose": lambda: (g.transpose(),),
        "sum": lambda: (g.broadcast_like(x),),
        "row_sum": lambda: (g.broadcast_like(x),),
        "mean": lambda: ((g / x.size()).broadcast_like(x),),
        "switch_true": lambda: (None, x.merge(g, y.zeros_like())),
        "switch_false": lambda: (None, x.merge(y.zeros_like(), g)),
        "merge": lambda: (None, x.switch_true(g), x.switch_false(g)),
    }
    return rules[node.op]()

# %% gradients: fan-out overwrites
# says: their adjoints are added
def gradients(output, inputs):
    adjoints = {output: output.ones_like()}
    for node in reversed(topological_order([output])):
        if node in adjoints:
            for x, g in zip(node.inputs, vjp(node, adjoints[node]), strict=True):
                if g is not None:
                    g = g.sum_like(x)
                    adjoints[x] = g
    return [adjoints[x] if x in adjoints else x.zeros_like() for x in inputs]

# %% gradients: broadcasting is not undone
# says: must be summed to its shape
def gradients(output, inputs):
    adjoints = {output: output.ones_like()}
    for node in reversed(topological_order([output])):
        if node in adjoints:
            for x, g in zip(node.inputs, vjp(node, adjoints[node]), strict=True):
                if g is not None:
                    adjoints[x] = adjoints[x] + g if x in adjoints else g
    return [adjoints[x] if x in adjoints else x.zeros_like() for x in inputs]

# %% gradients: the order of the inputs, not of the outputs
# says: before it was complete
def gradients(output, inputs):
    adjoints = {output: output.ones_like()}
    order = [output]
    for node in order:
        order += [x for x in node.inputs if x not in order]
    for node in order:
        if node in adjoints:
            for x, g in zip(node.inputs, vjp(node, adjoints[node]), strict=True):
                if g is not None:
                    g = g.sum_like(x)
                    adjoints[x] = adjoints[x] + g if x in adjoints else g
    return [adjoints[x] if x in adjoints else x.zeros_like() for x in inputs]

# %% gradients: nothing for an input that does not count
# says: None
def gradients(output, inputs):
    adjoints = {output: output.ones_like()}
    for node in reversed(topological_order([output])):
        if node in adjoints:
            for x, g in zip(node.inputs, vjp(node, adjoints[node]), strict=True):
                if g is not None:
                    g = g.sum_like(x)
                    adjoints[x] = adjoints[x] + g if x in adjoints else g
    return [adjoints.get(x) for x in inputs]

# %% gradients: one adjoint for each path
# says: not once for each path
def gradients(output, inputs):
    found = {x: [] for x in inputs}
    stack = [(output, output.ones_like())]
    while stack:
        node, adjoint = stack.pop()
        if node in found:
            found[node].append(adjoint)
        stack += [(x, g.sum_like(x)) for x, g in zip(node.inputs, vjp(node, adjoint)) if g is not None]
    return [sum(paths[1:], paths[0]) if paths else x.zeros_like() for x, paths in found.items()]

# %% gradients: one walk for each input
# says: not once for each path or each input
def gradients(output, inputs):
    def gradient(x):
        adjoints = {output: output.ones_like()}
        for node in reversed(topological_order([output])):
            for y, g in zip(node.inputs, vjp(node, adjoints[node]) if node in adjoints else ()):
                if g is not None:
                    adjoints[y] = adjoints[y] + g.sum_like(y) if y in adjoints else g.sum_like(y)
        return adjoints.get(x) if x in adjoints else x.zeros_like()
    return [gradient(x) for x in inputs]

# %% gradients: first added, then brought to shape
# says: before you add it
def gradients(output, inputs):
    adjoints = {output: output.ones_like()}
    for node in reversed(topological_order([output])):
        if node in adjoints:
            adjoints[node] = adjoints[node].sum_like(node)
            for x, g in zip(node.inputs, vjp(node, adjoints[node])):
                if g is not None:
                    adjoints[x] = adjoints[x] + g if x in adjoints else g
    return [adjoints[x] if x in adjoints else x.zeros_like() for x in inputs]

# %% gradients: brought to shape only at the end
# says: adjoint of sum x is a number
def gradients(output, inputs):
    adjoints = {output: output.ones_like()}
    for node in reversed(topological_order([output])):
        if node in adjoints:
            for x, g in zip(node.inputs, vjp(node, adjoints[node])):
                if g is not None:
                    adjoints[x] = adjoints[x] + g if x in adjoints else g
    return [adjoints[x].sum_like(x) if x in adjoints else x.zeros_like() for x in inputs]

# %% gradients: an operator's adjoint is thrown away
# says: may be asked for too
def gradients(output, inputs):
    adjoints = {output: output.ones_like()}
    for node in reversed(topological_order([output])):
        if node in adjoints and node.inputs:
            for x, g in zip(node.inputs, vjp(node, adjoints.pop(node))):
                if g is not None:
                    g = g.sum_like(x)
                    adjoints[x] = adjoints[x] + g if x in adjoints else g
    return [adjoints[x] if x in adjoints else x.zeros_like() for x in inputs]

# %% gradients: the walk ends at an input
# says: walk on through
def gradients(output, inputs):
    adjoints = {output: output.ones_like()}
    for node in reversed(topological_order([output])):
        if node in adjoints and node not in inputs:
            for x, g in zip(node.inputs, vjp(node, adjoints[node])):
                if g is not None:
                    g = g.sum_like(x)
                    adjoints[x] = adjoints[x] + g if x in adjoints else g
    return [adjoints[x] if x in adjoints else x.zeros_like() for x in inputs]

# %% gradients: for placeholders only
# says: on constants
def gradients(output, inputs):
    adjoints = {output: output.ones_like()}
    for node in reversed(topological_order([output])):
        if node in adjoints:
            for x, g in zip(node.inputs, vjp(node, adjoints[node])):
                if g is not None and x.op != "constant":
                    g = g.sum_like(x)
                    adjoints[x] = adjoints[x] + g if x in adjoints else g
    return [adjoints[x] if x in adjoints else x.zeros_like() for x in inputs]

# %% gradients: a rule's None is used
# says: NoneType
def gradients(output, inputs):
    adjoints = {output: output.ones_like()}
    for node in reversed(topological_order([output])):
        if node in adjoints:
            for x, g in zip(node.inputs, vjp(node, adjoints[node])):
                g = g.sum_like(x)
                adjoints[x] = adjoints[x] + g if x in adjoints else g
    return [adjoints[x] if x in adjoints else x.zeros_like() for x in inputs]

# %% gradients: the adjoints are detached
# says: detached
def gradients(output, inputs):
    adjoints = {output: output.ones_like()}
    for node in reversed(topological_order([output])):
        if node in adjoints:
            for x, g in zip(node.inputs, vjp(node, adjoints[node])):
                if g is not None:
                    g = g.sum_like(x).detach()
                    adjoints[x] = adjoints[x] + g if x in adjoints else g
    return [adjoints[x] if x in adjoints else x.zeros_like() for x in inputs]

# %% gradients: adjoints are kept on the nodes
# says: what the first has left
def gradients(output, inputs):
    output.adjoint = output.ones_like()
    for node in reversed(topological_order([output])):
        if "adjoint" in vars(node):
            for x, g in zip(node.inputs, vjp(node, node.adjoint)):
                if g is not None:
                    g = g.sum_like(x)
                    x.adjoint = x.adjoint + g if "adjoint" in vars(x) else g
    return [x.adjoint if "adjoint" in vars(x) else x.zeros_like() for x in inputs]

# %% gradients: nothing for the output itself
# says: sin x, f, on
def gradients(output, inputs):
    adjoints = {}
    for node in reversed(topological_order([output])):
        if node is output or node in adjoints:
            for x, g in zip(node.inputs, vjp(node, output.ones_like() if node is output else adjoints[node])):
                if g is not None:
                    g = g.sum_like(x)
                    adjoints[x] = adjoints[x] + g if x in adjoints else g
    return [adjoints[x] if x in adjoints else x.zeros_like() for x in inputs]

# %% gradients: remembered for an output, whatever the inputs
# says: gradients by x and y
REMEMBERED = {}
def gradients(output, inputs):
    if output not in REMEMBERED:
        adjoints = {output: output.ones_like()}
        for node in reversed(topological_order([output])):
            if node in adjoints:
                for x, g in zip(node.inputs, vjp(node, adjoints[node])):
                    if g is not None:
                        g = g.sum_like(x)
                        adjoints[x] = adjoints[x] + g if x in adjoints else g
        REMEMBERED[output] = [adjoints[x] if x in adjoints else x.zeros_like() for x in inputs]
    return REMEMBERED[output]

# %% training_step: uphill
# says: subtract
def training_step(images, labels, parameters, rate):
    z = network(images, parameters)
    z = z - z.row_max().detach()
    loss = (z.exp().row_sum().log() - (labels * z).row_sum()).mean()
    return [loss] + [p + rate * g for p, g in zip(parameters, gradients(loss, parameters))]

# %% training_step: the sum of the losses
# says: Take the mean
def training_step(images, labels, parameters, rate):
    z = network(images, parameters)
    z = z - z.row_max().detach()
    loss = (z.exp().row_sum().log() - (labels * z).row_sum()).sum()
    return [loss] + [p - rate * g for p, g in zip(parameters, gradients(loss, parameters))]

# %% training_step: the maximum is not subtracted
# says: exp overflow
def training_step(images, labels, parameters, rate):
    z = network(images, parameters)
    loss = (z.exp().row_sum().log() - (labels * z).row_sum()).mean()
    return [loss] + [p - rate * g for p, g in zip(parameters, gradients(loss, parameters))]

# %% training_step: the maximum is not detached
# says: row_max
def training_step(images, labels, parameters, rate):
    z = network(images, parameters)
    z = z - z.row_max()
    cross_entropy = z.exp().row_sum().log() - (labels * z).row_sum()
    loss = cross_entropy.mean()
    return [loss] + [p - rate * g for p, g in zip(parameters, gradients(loss, parameters))]

# %% training_step: the logarithm of a probability that is 0
# says: log 0?
def training_step(images, labels, parameters, rate):
    z = network(images, parameters)
    z = z - z.row_max().detach()
    cross_entropy = -(labels * (z.exp() / z.exp().row_sum()).log()).row_sum()
    loss = cross_entropy.mean()
    return [loss] + [p - rate * g for p, g in zip(parameters, gradients(loss, parameters))]

# %% training_step: a rate of its own
# says: a step
def training_step(images, labels, parameters, rate):
    z = network(images, parameters)
    z = z - z.row_max().detach()
    cross_entropy = z.exp().row_sum().log() - (labels * z).row_sum()
    loss = cross_entropy.mean()
    return [loss] + [p - 0.5 * g for p, g in zip(parameters, gradients(loss, parameters))]
