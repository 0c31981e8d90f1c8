# %% Node: 0.0 counts as no value
# says: 0.0 is a value, too
# edit: x is not None  ->  x

# %% Node: the truth of an array
# says: 0.0 is a value, too
# edit: all(x is not None for x in values)  ->  all(values)

# %% Node: numbers stay numbers
# says: has no attribute
# - self.inputs = tuple(x if isinstance(x, Node) else Node("constant", value=x) for x in inputs)
# + self.inputs = inputs

# %% Node: nothing is computed at once
# says: 0.0 is a value, too
# - if inputs and all(x is not None for x in values):
# -     self.value = evaluate(op, *values)

# %% Node: computed even where a value is missing
# says: TypeError
# - if inputs and all(x is not None for x in values):
# + if inputs:

# %% Node: a leaf is evaluated too
# says: leaf
# edit: if inputs and all(  ->  if all(

# %% Node: the given value is dropped
# says: keeps the value that it is given
# edit: self.op, self.name, self.value = op, name, value  ->  self.op, self.name, self.value = op, name, None

# %% Node: copies of the nodes
# says: not copies
# edit: x if isinstance(x, Node) else  ->  Node(x.op, *x.inputs, value=x.value, name=x.name) if isinstance(x, Node) else

# %% Node: the name is forgotten
# says: gave ('leaf', None
# edit: self.op, self.name, self.value = op, name, value  ->  self.op, self.name, self.value = op, None, value

# %% Node: the inputs' order
# says: Node('multiply', x, 2.0) gave
# edit: in inputs)  ->  in reversed(inputs))

# %% Node: self.value is not set
# says: has not set self.value
# edit: self.op, self.name, self.value = op, name, value  ->  self.op, self.name = op, name

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
# + values[node] = graphs.OPERATORS[node.op](*(values[x] for x in node.inputs))

# %% run: the inputs the wrong way round
# says: in their order
# edit: node.inputs  ->  reversed(node.inputs)

# %% run: each output for itself
# says: one of them twice
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
# says: , twice,
# - "multiply": lambda: da * b + a * db,
# + "multiply": lambda: np.add(np.multiply(da, b, out=da), a * db),

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
# says: it steps at 0
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
# says: g is DEAD: take zeros here
# - "switch_true": lambda: (None, x.merge(g, y.zeros_like())),
# + "switch_true": lambda: (None, x.switch_true(g)),

# %% vjp: Merge hands its adjoint to both branches
# says: gets no adjoint
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
# says: lends it to all of them
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
# says: must be summed to y's shape
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
# says: one derivative for each of inputs
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
# says: adjoint of sum(x) is a number
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

# %% topological_order: every path, and then each node once
# says: follows every path
def topological_order(outputs):
    paths, level = [], list(outputs)
    while level:
        paths += level
        level = [x for node in level for x in node.inputs]
    return list(dict.fromkeys(reversed(paths)))

# %% topological_order: what was seen is kept in a list
# says: in a set
# edit: order, seen = [], set()  ->  order, seen = [], []
# edit: seen.add(node)  ->  seen.append(node)

# %% topological_order: more nested calls are allowed
# says: setrecursionlimit is not allowed
import sys
def topological_order(outputs):
    sys.setrecursionlimit(20000)
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

# %% run: keeps the value of a placeholder
# says: must leave nothing in the nodes
# - values = dict(feeds)
# + for node, value in feeds.items():
# +     node.value = value if node.value is None else node.value
# + values = {node: node.value for node in feeds}

# %% dual: a constant is not a pair
# says: TypeError
# - pairs = [pair if isinstance(pair, tuple) else (pair, np.zeros_like(pair)) for pair in pairs]

# %% dual: a constant moves at speed 1
# says: its tangent is 0, not 1
# edit: np.zeros_like(pair)  ->  np.ones_like(pair)

# %% dual: each tangent meets its own value
# says: the *other* number's value
# edit: "multiply": lambda: da * b + a * db  ->  "multiply": lambda: da * a + db * b

# %% dual: the quotient is not divided again
# says: divide by b once more
# edit: "divide": lambda: (da - value * db) / b  ->  "divide": lambda: da - value * db

# %% dual: a product by its value
# says: with a factor 0
# edit: "multiply": lambda: da * b + a * db  ->  "multiply": lambda: value * (da / a + db / b)

# %% dual: tanh without its square
# says: 1 - tanh² a
# edit: (1 - value**2)  ->  (1 - value)

# %% dual: tanh by exp, which overflows
# says: dual('tanh'
# edit: "tanh": lambda: (1 - value**2) * da  ->  "tanh": lambda: 4 / (np.exp(a.astype(np.float16)) + np.exp(-a.astype(np.float16)))**2 * da

# %% dual: a rule is missing
# says: dual has no rule for 'matmul'
# - "matmul": lambda: da @ b + a @ db,

# %% dual: b does not move in a product of matrices
# says: b moves too
# edit: da @ b + a @ db  ->  da @ b

# %% vjp: multiply by the quotient
# says: do not divide by the factor
# edit: "multiply": lambda: (g * y, g * x),  ->  "multiply": lambda: (g * node / x, g * node / y),

# %% vjp: relu by a quotient
# says: 0/0 is NaN at x = 0
# edit: "relu": lambda: (g * x.step(),),  ->  "relu": lambda: (g * node / x,),

# %% vjp: relu with slope 1 at 0
# says: slope of relu at 0 is 0
# edit: "relu": lambda: (g * x.step(),),  ->  "relu": lambda: (g * (1.0 - (-x).step()),),

# %% vjp: relu on whether its value is positive and a half at 0
# says: x = -1, 0 and 1
# edit: "relu": lambda: (g * x.step(),),  ->  "relu": lambda: (0.5 * g * (x.step() + 1.0 - (-x).step()),),

# %% vjp: the quotient's divisor once
# says: divide once more
# edit: -g * node / y  ->  -g * node

# %% vjp: tanh, squared before
# says: of tanh x, not of x
# edit: (g - g * node * node,)  ->  (g - g * x * x,)

# %% vjp: a rule is missing
# says: vjp has no rule for 'mean'
# - "mean": lambda: ((g / x.size()).broadcast_like(x),),

# %% vjp: matmul in the other order
# says: matmul
# edit: x.transpose() @ g  ->  g.transpose() @ x

# %% vjp: numbers, not nodes
# says: through detach there are none
# edit: "multiply": lambda: (g * y, g * x),  ->  "multiply": lambda: (g * y.detach(), g * x.detach()),

# %% gradients: the first adjoint is 0 times the output, plus 1
# says: 0 times infinity is NaN
# edit: {output: output.ones_like()}  ->  {output: output * 0.0 + 1.0}

# %% gradients: the first adjoint is the number 1
# says: sum_like of shapes
# edit: {output: output.ones_like()}  ->  {output: Node("constant", value=1.0)}

# %% gradients: the first adjoint is the mean's
# says: gradients by x and y
# edit: {output: output.ones_like()}  ->  {output: output.ones_like() / output.size()}

# %% gradients: inputs must be reached
# says: KeyError
# edit: adjoints[x] if x in adjoints else x.zeros_like()  ->  adjoints[x]

# %% test_gradient: all pass
# says: refuses 0 of 16
def test_gradient(candidate):
    candidate(np.ones((2, 3)), np.ones((3, 3)), np.ones(3), np.ones((2, 3)))

# %% test_gradient: g of ones, and one point
# says: par is 13
def block(x, w, b):
    return x + np.tanh(x @ w + b)
def test_gradient(candidate):
    x, w, b = np.array([[0.5, 0.2], [0.1, 0.3]]), np.array([[0.1, 0.7], [0.3, 0.2]]), np.zeros(2)
    adjoints = candidate(x, w, b, np.ones((2, 2)))
    for i in range(3):
        for where in np.ndindex(adjoints[i].shape):
            ends = []
            for step in (1e-6, -1e-6):
                moved = [a.copy() for a in (x, w, b)]
                moved[i][where] += step
                ends.append(block(*moved).sum())
            assert abs((ends[0] - ends[1]) / 2e-6 - adjoints[i][where]) < 1e-6

# %% test_gradient: a tolerance below the error of differences
# says: refuses a program that is right
# edit: < 1e-5 * (1 + abs(slope))  ->  < 1e-14

# %% test_gradient: a step of 0.01
# says: refuses a program that is right
# edit (2 places): 1e-6  ->  1e-2
# edit: / 2e-6  ->  / 2e-2

# %% test_gradient: the shapes alone
# says: par is 13
def test_gradient(candidate):
    for n, k in ((1, 1), (1, 3), (4, 2)):
        arguments = [np.random.normal(size=shape) for shape in ((n, k), (k, k), k, (n, k))]
        for a, adjoint in zip(arguments, candidate(*arguments)):
            assert adjoint.shape == a.shape

# %% test_gradient: it returns its verdict
# says: it raises AssertionError if the candidate is wrong
def test_gradient(candidate):
    return True

# %% test_gradient: against one right answer, at one point
# says: par is 13
def test_gradient(candidate):
    x, w, b, g = (np.random.default_rng(0).normal(size=s) for s in ((1, 3), (3, 3), 3, (1, 3)))
    t = np.tanh(x @ w + b)
    d = g * (1 - t * t)
    for got, want in zip(candidate(x, w, b, g), (g + d @ w.T, x.T @ d, d.sum(0))):
        np.testing.assert_allclose(got, want)

# %% training_step: uphill
# says: subtract
# edit: p - rate * g  ->  p + rate * g

# %% training_step: the sum of the losses
# says: Take the mean
# edit: (z.exp().row_sum().log() - (labels * z).row_sum()).mean()  ->  (z.exp().row_sum().log() - (labels * z).row_sum()).sum()

# %% training_step: the maximum is not subtracted
# says: exp overflow
# - z = z - z.row_max().detach()

# %% training_step: the logarithm of a probability that is 0
# says: log 0?
# - return (z.exp().row_sum().log() - (labels * z).row_sum()).mean()
# + return -(labels * (z.exp() / z.exp().row_sum()).log()).row_sum().mean()

# %% training_step: a rate of its own
# says: a logit
# edit: rate * g  ->  0.5 * g

# %% training_step: the mean over all logits
# says: 10 times too small
# edit: (z.exp().row_sum().log() - (labels * z).row_sum()).mean()  ->  (labels * (z.exp().row_sum().log() - z)).mean()

# %% training_step: derivatives by hand
# says: another network()
def cross_entropy(z, labels):
    z = z - z.row_max().detach()
    return (z.exp().row_sum().log() - (labels * z).row_sum()).mean()
def training_step(images, labels, parameters, rate):
    w1, b1, w2, b2 = parameters
    hidden = (images @ w1 + b1).relu()
    z = hidden @ w2 + b2
    z = z - z.row_max()
    d = (z.exp() / z.exp().row_sum() - labels) / labels.sum()
    e = d @ w2.transpose() * hidden.step()
    slopes = [images.transpose() @ e, e.sum_like(b1), hidden.transpose() @ d, d.sum_like(b2)]
    return [cross_entropy(z, labels)] + [p - rate * g for p, g in zip(parameters, slopes)]

# %% training_step: the new parameters without the loss
# says: 4 long, not 5
# edit: [loss] + [p - rate * g  ->  [p - rate * g

# %% hessian_product: the gradient
# says: not how it moves
# edit: tangent for _, tangent in  ->  value for value, _ in

# %% hessian_product: each input by itself
# says: whole of v
def hessian_product(output, inputs, values, direction):
    slopes, found = gradients(output, inputs), []
    for i in range(len(inputs)):
        ways = [v if i == j else np.zeros_like(v) for j, v in enumerate(direction)]
        found.append(jvp(slopes[i], inputs, values, ways)[1])
    return found

# %% hessian_product: a derivative of the function along v
# says: hessian_product of
def hessian_product(output, inputs, values, direction):
    gradients(output, inputs)
    return [jvp(output, inputs, values, direction)[1] for _ in inputs]

# %% hessian_product: gradients once per input
# says: once is enough
def hessian_product(output, inputs, values, direction):
    return [jvp(gradients(output, [x])[0], inputs, values, direction)[1] for x in inputs]

# %% hessian_product: by differences
# says: hessian_product of
def hessian_product(output, inputs, values, direction):
    slopes = gradients(output, inputs)
    ends = [run(slopes, {x: v + s * d for x, v, d in zip(inputs, values, direction)}) for s in (1e-2, -1e-2)]
    return [(a - b) / 2e-2 for a, b in zip(*ends)]

# %% hessian_product: by PyTorch
# says: write it by your own rules
def hessian_product(output, inputs, values, direction):
    rows, ends = graphs.as_rows(topological_order([output]), [output])
    places = [i for i, (op, _) in enumerate(rows) if op == "placeholder"]
    order = [x for x in topological_order([output]) if x.op == "placeholder"]

    def total(*tensors):
        given = dict(zip(inputs, tensors))
        feeds = {rows[i][1]: given[x] for i, x in zip(places, order)}
        return graphs.evaluated(rows, ends, feeds)[0].sum()

    pairs = [tuple(map(torch.as_tensor, each)) for each in (values, direction)]
    return [g.numpy()[()] for g in torch.autograd.functional.hvp(total, *pairs)[1]]

# %% dual: by PyTorch
# says: write it by your own rules
# - (a, da), (b, db) = pairs[0], pairs[-1]
# + (a, da), (b, db) = pairs[0], pairs[-1]
# + if op in ("multiply", "divide", "exp", "log", "tanh", "matmul"):
# +     tensors, ways = (tuple(torch.tensor(x) for x in each) for each in (values, tangents))
# +     return value, torch.func.jvp(graphs.torch_operator(op), tensors, ways)[1].numpy()[()]

# %% hessian_product: by differences of four points
# says: relu(x0 - 1)
def hessian_product(output, inputs, values, direction):
    slopes, step = gradients(output, inputs), 1e-3
    points = [run(slopes, {x: v + s * step * d for x, v, d in zip(inputs, values, direction)})
              for s in (-2, -1, 1, 2)]
    return [(8 * (c - b) - (d - a)) / (12 * step) for a, b, c, d in zip(*points)]

# %% dual: tanh's slope by cosh and sinh, which overflow
# says: at -800, 0 and 800
# edit: (1 - value**2) * da  ->  (np.cosh(a) ** 2 - np.sinh(a) ** 2) / np.cosh(a) ** 2 * da

# %% Node: an array is not wrapped
# says: An array among the inputs becomes a constant
# edit: x if isinstance(x, Node) else  ->  x if isinstance(x, (Node, np.ndarray)) else
# edit: x.value for x in self.inputs  ->  getattr(x, "value", x) for x in self.inputs

# %% Node: NaN counts as missing
# says: so is NaN
class Node(graphs.Arithmetic):
    def __init__(self, op, *inputs, value=None, name=None):
        self.op, self.name, self.value = op, name, value
        self.inputs = tuple(x if isinstance(x, Node) else Node("constant", value=x) for x in inputs)
        if inputs and all(x.value is not None and np.all(x.value == x.value) for x in self.inputs):
            self.value = evaluate(op, *[x.value for x in self.inputs])

# %% Node: a node that is given twice stands once
# says: reads a node twice
class Node(graphs.Arithmetic):
    def __init__(self, op, *inputs, value=None, name=None):
        self.op, self.name, self.value = op, name, value
        nodes = [x if isinstance(x, Node) else Node("constant", value=x) for x in inputs]
        self.inputs = tuple(dict.fromkeys(nodes))
        if inputs and all(x.value is not None for x in nodes):
            self.value = evaluate(op, *[x.value for x in nodes])

# %% topological_order: the list that came is the stack
# says: changed the list of outputs
def topological_order(outputs):
    order, seen = [], set()
    while outputs:
        node = outputs[-1]
        rest = [x for x in node.inputs if x not in seen]
        if node in seen or not rest:
            outputs.pop()
            if node not in seen:
                seen.add(node)
                order.append(node)
        else:
            outputs.extend(rest)
    return order

# %% run: feeds by name
# says: feeds are by node, not by name
def run(outputs, feeds, evaluate=evaluate):
    named = {x.name: v for x, v in feeds.items()}
    values = {}
    for node in topological_order(outputs):
        if node.op == "placeholder":
            values[node] = named[node.name]
        elif node.op == "constant":
            values[node] = node.value
        else:
            values[node] = evaluate(node.op, *[values[x] for x in node.inputs])
    return [values[o] for o in outputs]

# %% run: every feed must be needed
# says: is not in list
def run(outputs, feeds, evaluate=evaluate):
    order = topological_order(outputs)
    values = {}
    for node in feeds:
        values[node] = feeds[order[order.index(node)]]
    for node in order:
        if node not in values:
            values[node] = node.value if not node.inputs else evaluate(node.op, *[values[x] for x in node.inputs])
    return [values[o] for o in outputs]

# %% run: one output comes without a list
# says: gave a ndarray, want a list
def run(outputs, feeds, evaluate=evaluate):
    values = dict(feeds)
    for node in topological_order(outputs):
        if node not in values:
            values[node] = node.value if not node.inputs else evaluate(node.op, *[values[x] for x in node.inputs])
    found = [values[o] for o in outputs]
    return found[0] if len(found) == 1 else found

# %% run: a cache by operator and values, kept between runs
# says: kept what an earlier run computed
def run(outputs, feeds, evaluate=evaluate, cache={}):
    values = dict(feeds)
    for node in topological_order(outputs):
        if node not in values and not node.inputs:
            values[node] = node.value
        elif node not in values:
            got = [values[x] for x in node.inputs]
            key = node.op, str(got)
            if key not in cache:
                cache[key] = evaluate(node.op, *got)
            values[node] = cache[key]
    return [values[o] for o in outputs]

# %% dual: exp without the tangent
# says: by a's own tangent
# edit: value * da  ->  value

# %% dual: only the first factor moves
# says: there are two terms
# edit: da * b + a * db  ->  da * b

# %% dual: the term of ε² is kept
# says: goes with ε² and vanishes
# edit: da * b + a * db  ->  da * b + a * db + da * db

# %% dual: matrices element by element
# says: not of their elements
# edit: da @ b + a @ db  ->  da * b + a * db

# %% dual: transposes, as in reverse mode
# says: belong to reverse mode
# edit: da @ b + a @ db  ->  da @ b.T + a.T @ db

# %% gradients: an input that is asked for twice is answered once
# says: One derivative for each of inputs
# edit: for x in inputs]  ->  for x in dict.fromkeys(inputs)]

# %% training_step: half of the maximum is subtracted
# says: a logit 5000 up
# edit: z.row_max().detach()  ->  0.5 * z.row_max().detach()

# %% training_step: the label's logit is not shifted
# says: subtract the maximum there, too
# - z = z - z.row_max().detach()
# - return (z.exp().row_sum().log() - (labels * z).row_sum()).mean()
# + shifted = z - z.row_max().detach()
# + return (shifted.exp().row_sum().log() - (labels * z).row_sum()).mean()

# %% dual: the quotient's numerator turned round
# says: The sign is turned
# edit: (da - value * db) / b  ->  (a * db - da * b) / b**2

# %% vjp: the factors' adjoints exchanged
# says: The first adjoint is the left factor's
# edit: (g @ y.transpose(), x.transpose() @ g)  ->  (x.transpose() @ g, g @ y.transpose())

# %% vjp: x as a factor of its sum
# says: x is no factor
# edit: "sum": lambda: (g.broadcast_like(x),)  ->  "sum": lambda: (g * x,)

# %% gradients: from the leaves up
# says: start at the output and walk to the leaves
# edit: reversed(topological_order([output]))  ->  topological_order([output])

# %% gradients: 0 times an input that does not count
# says: use zeros_like()
# edit: x.zeros_like() for x in inputs  ->  0.0 * x for x in inputs

# %% training_step: one shift for all rows
# says: each row has its own maximum
# edit: z.row_max().detach()  ->  z.row_max().mean().detach()

# %% Node: DEAD counts as missing
# says: DEAD is a value, too
# edit: all(x is not None for x in values)  ->  not any(x is None or isinstance(x, str) for x in values)

# %% vjp: Merge as a product
# says: switch g, do not multiply
# - "merge": lambda: (None, x.switch_true(g), x.switch_false(g)),
# + "merge": lambda: (None, x * g, (1.0 - x) * g),

# %% Node: only where all of two inputs have a value
# says: so the operator has one
# edit: if inputs and all(  ->  if len(inputs) == 2 and all(

# %% dual: log without the tangent
# says: by a's own tangent
# edit: "log": lambda: da / a  ->  "log": lambda: 1 / a

# %% dual: log upside down
# says: of log a is 1/a
# edit: "log": lambda: da / a  ->  "log": lambda: da * a

# %% dual: tanh, a squared
# says: of tanh a, not of a
# edit: (1 - value**2) * da  ->  (1 - a**2) * da

# %% dual: both matrix products turned round
# says: keeps its order
# edit: da @ b + a @ db  ->  b @ da + db @ a

# %% vjp: relu of g
# says: not where g is
# edit: (g * x.step(),)  ->  (g.relu(),)

# %% vjp: matrices element by element
# says: not of their elements
# edit: (g @ y.transpose(), x.transpose() @ g)  ->  (g * y, g * x)

# %% vjp: g first for both factors
# says: begins with x.transpose()
# edit: x.transpose() @ g  ->  g @ x.transpose()

# %% vjp: Switch merges g with the number 0
# says: zeros have the shape of their input
# edit: x.merge(g, y.zeros_like())  ->  x.merge(g, 0.0)

# %% gradients: only the first of two adjoints gets its shape
# says: too, before you add it
# - g = g.sum_like(x)
# - adjoints[x] = adjoints[x] + g if x in adjoints else g
# + adjoints[x] = adjoints[x] + g if x in adjoints else g.sum_like(x)

# %% gradients: adjoints are multiplied
# says: added, not multiplied
# edit: adjoints[x] + g if  ->  adjoints[x] * g if

# %% gradients: ones like a value that is not there yet
# says: no value before run()
# edit: output.ones_like()  ->  Node("constant", value=np.ones_like(output.value))

# %% gradients: a dict
# says: return a list of their derivatives
# edit: return [adjoints[x] if x in adjoints else x.zeros_like() for x in inputs]  ->  return {x: adjoints[x] if x in adjoints else x.zeros_like() for x in inputs}

# %% gradients: the order of the inputs' graph
# says: no adjoint reached x
# edit: reversed(topological_order([output]))  ->  reversed(topological_order(inputs))

# %% training_step: the derivatives alone
# says: these are the derivatives
# edit: p - rate * g for p  ->  g for p

# %% training_step: the label's logit minus the logarithm
# says: minus z at the label
# edit: (z.exp().row_sum().log() - (labels * z).row_sum()).mean()  ->  ((labels * z).row_sum() - z.exp().row_sum().log()).mean()

# %% difference_errors: the whole of f″
# says: the difference is divided by ε
# edit: step / 2 * abs(second)  ->  step * abs(second)

# %% topological_order: more nested calls, for a while
# says: not allowed here (getrecursionlimit, setrecursionlimit). Keep your own stack.
import sys
def topological_order(outputs):
    order, seen, before = [], set(), sys.getrecursionlimit()
    def visit(node):
        if node not in seen:
            seen.add(node)
            for x in node.inputs:
                visit(x)
            order.append(node)
    sys.setrecursionlimit(100_000)
    try:
        for node in outputs:
            visit(node)
    finally:
        sys.setrecursionlimit(before)
    return order

# %% test_gradient: the program's code is matched by a pattern
# says: looks at a program's text (__code__)
def test_gradient(candidate):
    match candidate:
        case object(__code__=code):
            assert len(str(code)) > 1

# %% gradients: nothing comes back
# says: gradients gave None, want a list of nodes
def gradients(output, inputs):
    pass

# %% gradients: sums and products undo a broadcast at once, all others at the end
# says: gradients by x0, x1, x2 of
# edit: g = g.sum_like(x)  ->  g = g.sum_like(x) if node.op in ("add", "multiply") else g
# edit: [adjoints[x] if  ->  [adjoints[x].sum_like(x) if
