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
# edit: return order  ->  return order[::-1]

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
# edit: def topological_order(outputs):  ->  def topological_order(outputs, seen=set()):
# edit: order, seen = [], set()  ->  order = []

# %% topological_order: a generator
# says: want a list
# - order, seen = [], set()
# - stack = [(node, False) for node in outputs]
# + seen, stack = set(), [(node, False) for node in outputs]
# edit: order.append(node)  ->  yield node
# - return order

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
# edit: elif node not in seen:  ->  elif node not in seen and node.inputs:

# %% run: the values stay in the nodes
# says: must leave nothing in the nodes
def run(outputs, feeds, evaluate=evaluate):
    for node in topological_order(outputs):
        if node.value is None:
            inputs = [x.value for x in node.inputs]
            node.value = feeds[node] if node in feeds else evaluate(node.op, *inputs)
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
# edit: dict(feeds)  ->  feeds

# %% run: the values are kept for the next call
# says: must leave nothing in the nodes
# - def run(outputs, feeds, evaluate=evaluate):
# -     values = dict(feeds)
# + def run(outputs, feeds, evaluate=evaluate, values={}):
# +     values.update(feeds)

# %% run: not with the evaluate that is given
# says: never calls the evaluate
# - values[node] = evaluate(node.op, *(values[x] for x in node.inputs))
# + values[node] = OPERATORS[node.op](*(values[x] for x in node.inputs))

# %% run: the inputs the wrong way round
# says: in their order
# edit: node.inputs  ->  reversed(node.inputs)

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
# edit: "multiply": lambda: da * b + a * db  ->  "multiply": lambda: da * db

# %% dual: the quotient's sign
# says: second term must be subtracted
# edit: (da - value * db) / b  ->  (da + value * db) / b

# %% dual: the matrix product's order
# says: mind the order
# edit: da @ b + a @ db  ->  da @ b + db @ a

# %% dual: in place, over the tangent that came
# says: arrays, twice
# - "multiply": lambda: da * b + a * db,
# + "multiply": lambda: np.add(np.multiply(da, b, out=da), a * db),

# %% dual: the sum of each row
# says: not a number
# edit: "sum": lambda: np.sum(da),  ->  "sum": lambda: np.sum(da, axis=-1),

# %% difference_errors: the notes' O(ε²)
# says: One-sided differences err by O(ε)
# edit: step / 2 * abs(second)  ->  step**2 / 6 * abs(third)

# %% difference_errors: no rounding
# says: Rounding counts
def difference_errors(step, value, second, third):
    return step / 2 * abs(second), step**2 / 6 * abs(third)

# %% difference_errors: the same rounding for both
# says: its rounding error too
# edit: rounding / (2 * step)  ->  rounding / step

# %% difference_errors: one value's rounding
# says: each of the two values
# edit: 2 * 2**-53 * abs(value)  ->  2**-53 * abs(value)

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
# edit (2 places): np.sum  ->  np.mean

# %% sum_like: a plain number has no shape
# says: has no attribute
def sum_like(g, like):
    g = g.sum(axis=tuple(range(g.ndim - like.ndim)))
    axes = tuple(axis for axis, size in enumerate(like.shape) if size == 1)
    return g.sum(axis=axes, keepdims=True)

# %% sum_like: float64 whatever came
# says: float64, not float32
# - g = np.sum(g, axis=tuple(range(np.ndim(g) - len(shape))))
# + g = np.sum(g, axis=tuple(range(np.ndim(g) - len(shape))), dtype=float)

# %% sum_like: an axis stretched from 1 to 0
# says: sum_like(g of shape
# edit: size == 1  ->  size == 1 < g.shape[axis]

# %% sum_like: rows are added into g, which belongs to others
# says: twice
# - g = np.sum(g, axis=tuple(range(np.ndim(g) - len(shape))))
# + while g.ndim > len(shape):
# +     for row in g[1:]:
# +         g[0] += row
# +     g = g[0] if len(g) else np.zeros(g.shape[1:], g.dtype)

# %% vjp: a factor's own adjoint
# says: meets the other factor
# edit: "multiply": lambda: (g * y, g * x),  ->  "multiply": lambda: (g * x, g * y),

# %% vjp: the divisor's sign
# says: has a minus sign
# edit: "divide": lambda: (g / y, -g * node / y),  ->  "divide": lambda: (g / y, g * node / y),

# %% vjp: log
# says: 1/x
# edit: "log": lambda: (g / x,),  ->  "log": lambda: (g * x,),

# %% vjp: tanh without its square
# says: 1 - tanh² x
# edit: "tanh": lambda: (g - g * node * node,),  ->  "tanh": lambda: (g - g * node,),

# %% vjp: relu hands on its value
# says: steps from 0 to 1
# edit: "relu": lambda: (g * x.step(),),  ->  "relu": lambda: (g * node,),

# %% vjp: matmul without transposes
# says: transposes are missing
# - "matmul": lambda: (g @ y.transpose(), x.transpose() @ g),
# + "matmul": lambda: (g @ y, x @ g),

# %% vjp: transpose not turned back
# says: transposed back
# edit: "transpose": lambda: (g.transpose(),),  ->  "transpose": lambda: (g,),

# %% vjp: mean without 1/n
# says: divides by the number of elements
# - "mean": lambda: ((g / x.size()).broadcast_like(x),),
# + "mean": lambda: (g.broadcast_like(x),),

# %% vjp: a value detached from the graph, so that there is no second derivative
# says: detached
# - "tanh": lambda: (g - g * node * node,),
# + "tanh": lambda: (g - g * Node("constant", value=node.value)
# +                  * Node("constant", value=node.value),),

# %% vjp: the gradient of Switch is lost
# says: merge g with zeros
# - "switch_true": lambda: (None, x.merge(g, y.zeros_like())),
# + "switch_true": lambda: (None, x.switch_true(g)),

# %% vjp: Merge hands its adjoint to both branches
# says: may get no adjoint
# - "merge": lambda: (None, x.switch_true(g), x.switch_false(g)),
# + "merge": lambda: (None, g, g),

# %% vjp: a rule without g
# says: factor g is missing
# edit: "log": lambda: (g / x,),  ->  "log": lambda: (1 / x,),

# %% vjp: a rule that is no tuple
# says: want a tuple
# edit: "log": lambda: (g / x,),  ->  "log": lambda: g / x,

# %% vjp: nothing for the condition
# says: want a tuple of 3
# - "merge": lambda: (None, x.switch_true(g), x.switch_false(g)),
# + "merge": lambda: (x.switch_true(g), x.switch_false(g)),

# %% vjp: sum hands on one number for all elements
# says: is not expandable to
# edit: "sum": lambda: (g.broadcast_like(x),),  ->  "sum": lambda: (g,),

# %% vjp: zeros of what is dead
# says: not like g
# - "switch_true": lambda: (None, x.merge(g, y.zeros_like())),
# - "switch_false": lambda: (None, x.merge(y.zeros_like(), g)),
# + "switch_true": lambda: (None, x.merge(g, g.zeros_like())),
# + "switch_false": lambda: (None, x.merge(g.zeros_like(), g)),

# %% vjp: Merge sends its adjoint down the other side
# says: where the value came from
# - "merge": lambda: (None, x.switch_true(g), x.switch_false(g)),
# + "merge": lambda: (None, x.switch_false(g), x.switch_true(g)),

# %% vjp: detached matrices, so that there is no second derivative
# says: through detach there are none
# - "matmul": lambda: (g @ y.transpose(), x.transpose() @ g),
# + "matmul": lambda: (g @ y.detach().transpose(), x.detach().transpose() @ g),

# %% gradients: fan-out overwrites
# says: their adjoints are added
# edit: adjoints[x] + g if x in adjoints else g  ->  g

# %% gradients: broadcasting is not undone
# says: must be summed to its shape
# - g = g.sum_like(x)

# %% gradients: the order of the inputs, not of the outputs
# says: before it was complete
# - for node in reversed(topological_order([output])):
# + order = [output]
# + for node in order:
# +     order += [x for x in node.inputs if x not in order]
# + for node in order:

# %% gradients: nothing for an input that does not count
# says: None
# edit: adjoints[x] if x in adjoints else x.zeros_like()  ->  adjoints.get(x)

# %% gradients: one adjoint for each path
# says: not once for each path
def gradients(output, inputs):
    found = {x: [] for x in inputs}
    stack = [(output, output.ones_like())]
    while stack:
        node, adjoint = stack.pop()
        if node in found:
            found[node].append(adjoint)
        pairs = zip(node.inputs, vjp(node, adjoint))
        stack += [(x, g.sum_like(x)) for x, g in pairs if g is not None]
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
#   if node in adjoints:
# +     adjoints[node] = adjoints[node].sum_like(node)
# ...
# - g = g.sum_like(x)

# %% gradients: brought to shape only at the end
# says: adjoint of sum x is a number
# - g = g.sum_like(x)
# ...
# - return [adjoints[x] if x in adjoints else x.zeros_like() for x in inputs]
# + return [adjoints[x].sum_like(x) if x in adjoints else x.zeros_like() for x in inputs]

# %% gradients: an operator's adjoint is thrown away
# says: may be asked for too
# edit: if node in adjoints:  ->  if node in adjoints and node.inputs:
# edit: adjoints[node]  ->  adjoints.pop(node)

# %% gradients: the walk ends at an input
# says: walk on through
# edit: if node in adjoints:  ->  if node in adjoints and node not in inputs:

# %% gradients: for placeholders only
# says: on constants
# edit: if g is not None:  ->  if g is not None and x.op != "constant":

# %% gradients: a rule's None is used
# says: NoneType
# - if g is not None:
# -     g = g.sum_like(x)
# -     adjoints[x] = adjoints[x] + g if x in adjoints else g
# + g = g.sum_like(x)
# + adjoints[x] = adjoints[x] + g if x in adjoints else g

# %% gradients: the adjoints are detached
# says: detached
# edit: g.sum_like(x)  ->  g.sum_like(x).detach()

# %% gradients: adjoints are kept on the nodes
# says: what the first has left
# edit: adjoints = {output: output.ones_like()}  ->  output.adjoint = output.ones_like()
# edit: node in adjoints  ->  "adjoint" in vars(node)
# edit: adjoints[node]  ->  node.adjoint
# -                 adjoints[x] = adjoints[x] + g if x in adjoints else g
# - return [adjoints[x] if x in adjoints else x.zeros_like() for x in inputs]
# +                 x.adjoint = x.adjoint + g if "adjoint" in vars(x) else g
# + return [x.adjoint if "adjoint" in vars(x) else x.zeros_like() for x in inputs]

# %% gradients: nothing for the output itself
# says: sin x, f, on
# edit: {output: output.ones_like()}  ->  {}
# - if node in adjoints:
# -     for x, g in zip(node.inputs, vjp(node, adjoints[node])):
# + if node is output or node in adjoints:
# +     adjoint = output.ones_like() if node is output else adjoints[node]
# +     for x, g in zip(node.inputs, vjp(node, adjoint)):

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
# - cross_entropy = z.exp().row_sum().log() - (labels * z).row_sum()
# - loss = cross_entropy.mean()
# + loss = (z.exp().row_sum().log() - (labels * z).row_sum()).sum()

# %% training_step: the maximum is not subtracted
# says: exp overflow
def training_step(images, labels, parameters, rate):
    z = network(images, parameters)
    loss = (z.exp().row_sum().log() - (labels * z).row_sum()).mean()
    return [loss] + [p - rate * g for p, g in zip(parameters, gradients(loss, parameters))]

# %% training_step: the maximum is not detached
# says: row_max
# edit: z.row_max().detach()  ->  z.row_max()

# %% training_step: the logarithm of a probability that is 0
# says: log 0?
# - cross_entropy = z.exp().row_sum().log() - (labels * z).row_sum()
# + cross_entropy = -(labels * (z.exp() / z.exp().row_sum()).log()).row_sum()

# %% training_step: a rate of its own
# says: a step
# edit: rate * g  ->  0.5 * g
